package catalog

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"castellan/internal/catalog/facts"
	"castellan/internal/gate"
)

const maxArgs = 512 // parameters of one call; the richest operation has some 3000 names, of which a guest can use a part

// Problem is one thing that is wrong with the arguments of a call. Nothing was sent.
type Problem struct {
	Param   string   `json:"param"`             // "vmid", or "net0.bridge" for a key of a property string
	Message string   `json:"message"`           // what is wrong
	Nearest string   `json:"nearest,omitempty"` // the name or value that was probably meant
	Valid   []string `json:"valid,omitempty"`   // what would be right, when that is a short list
}

func (p Problem) Error() string {
	s := p.Message
	if p.Param != "" {
		s = p.Param + ": " + s
	}
	if p.Nearest != "" {
		s += fmt.Sprintf("; did you mean %q?", p.Nearest)
	}
	if len(p.Valid) > 0 && len(p.Valid) <= 40 {
		s += " (valid: " + strings.Join(p.Valid, ", ") + ")"
	}
	return s
}

// Checked is the outcome of checking arguments.
type Checked struct {
	Request  gate.Request // exactly what would be sent; of no use when there are problems
	Problems []Problem    // sorted by parameter
	Notes    []string     // what was changed or left out on the way, one sentence each
}

// Check turns arguments into the request to be sent, or says all that is wrong with them. It is stricter than the
// products are. What is harmlessly wrong (a number as text, an object where a property string is wanted) is put
// right before the request is made, so that the request is what is shown, judged and sent.
func (c *Catalog) Check(op *Operation, args map[string]any) (gate.Request, []Problem) {
	r := c.Examine(op, args)
	return r.Request, r.Problems
}

// Examine is Check with notes on what was changed.
func (c *Catalog) Examine(op *Operation, args map[string]any) Checked {
	if len(args) > maxArgs {
		return Checked{Problems: []Problem{{Message: fmt.Sprintf("more than %d parameters are given", maxArgs)}}}
	}
	k := &checker{cat: c, op: op, given: map[string]any{}, values: map[string][]gate.Value{}}
	for name, v := range args {
		k.given[name] = v
	}
	k.adjust()
	names := make([]string, 0, len(k.given))
	for name := range k.given {
		names = append(names, name)
	}
	sort.Strings(names)
	k.findTypes()
	for _, name := range names {
		k.param(name, k.given[name])
	}
	k.required()
	k.together()
	r := gate.Request{Product: op.Product, Operation: op.ID}
	for _, name := range names {
		if vs, ok := k.values[name]; ok {
			r.Params = append(r.Params, gate.Param{Name: name, Values: vs})
		}
	}
	sort.SliceStable(k.problems, func(i, j int) bool { return k.problems[i].Param < k.problems[j].Param })
	return Checked{Request: r, Problems: k.problems, Notes: k.notes}
}

// checker holds one check.
type checker struct {
	cat      *Catalog
	op       *Operation
	given    map[string]any
	values   map[string][]gate.Value // checked, by name as given
	types    map[string]string       // values of the parameters that decide which others exist
	problems []Problem
	notes    []string
}

func (k *checker) fail(p Problem) { k.problems = append(k.problems, p) }

func (k *checker) note(format string, a ...any) { k.notes = append(k.notes, fmt.Sprintf(format, a...)) }

// update tells whether the call changes something that exists, so that an empty text can mean something.
func (k *checker) update() bool {
	return k.op.unsets() || k.op.Method == "PUT"
}

func (k *checker) findTypes() {
	k.types = map[string]string{}
	for _, s := range k.op.Facts.Params {
		if s.TypeProperty == "" {
			continue
		}
		if text, ok := plainText(k.given[s.TypeProperty]); ok {
			k.types[s.TypeProperty] = text
		}
	}
}

func (k *checker) param(name string, v any) {
	s, template, ok := k.op.Schema(name)
	if !ok {
		k.unknown(name)
		return
	}
	if refusal := k.refused(name); refusal != nil {
		k.fail(*refusal)
		return
	}
	t := k.types[s.TypeProperty]
	if s.TypeProperty != "" && t != "" && len(s.InstanceTypes) > 0 && !slices.Contains(s.InstanceTypes, t) {
		k.fail(Problem{Param: name, Message: fmt.Sprintf("does not exist for %s %s, only for %s", s.TypeProperty, quote(t), strings.Join(s.InstanceTypes, ", "))})
		return
	}
	if v == nil {
		k.fail(Problem{Param: name, Message: "null is not a value; leave the parameter out" + k.unsetHint(name)})
		return
	}
	if s.Optional && k.dropEmpty(name, s, v) {
		return
	}
	if text, is := v.(string); is && text == "" && name == "groups" && k.emptyMeans(name, s) {
		k.values[name] = []gate.Value{{Text: ""}}
		return
	}
	vals, probs := k.value(field{name: name, template: template, secret: k.op.isSecret(template)}, s, v)
	if len(probs) == 0 && slices.Contains(k.op.Placeholders, name) {
		probs = k.pathValue(name, vals)
	}
	if len(probs) > 0 {
		k.problems = append(k.problems, probs...)
		return
	}
	k.values[name] = vals
}

// pathValue refuses what could not stand in the path, and says where else it could be given.
func (k *checker) pathValue(name string, vals []gate.Value) []Problem {
	if len(vals) != 1 {
		return []Problem{{Param: name, Message: "stands in the path, which takes one value"}}
	}
	if vals[0].Ref != nil && vals[0].Ref.Plan == "" {
		return nil
	}
	text := vals[0].Text
	if vals[0].Ref != nil {
		text = vals[0].Ref.Plan
	}
	bad := k.op.badPathValue(name, text)
	if bad == "" {
		return nil
	}
	p := Problem{Param: name, Message: quote(text) + " cannot stand in the path: " + bad}
	parent := k.op.Path[:strings.LastIndexByte(k.op.Path, '/')]
	if other, ok := k.cat.Lookup(k.op.Product, k.op.Method+" "+parent); ok && other.Facts.Params[name] != nil {
		p.Message += "; use " + other.ID + ", which takes it as a parameter"
	}
	return []Problem{p}
}

func (k *checker) unsetHint(name string) string {
	if k.op.unsets() && name != "delete" {
		return ", or name it in delete to unset it"
	}
	return ""
}

// unknown explains a name that the operation does not have.
func (k *checker) unknown(name string) {
	var names []string
	shown := clip(name, 80)
	if badControl(name, false) != "" {
		shown = quote(name)
	}
	for n, s := range k.op.Facts.Params {
		if len(s.Index) == 2 {
			base := strings.TrimSuffix(n, "[n]")
			if digits := strings.TrimPrefix(name, base); digits != name && digits != "" && strings.Trim(digits, "0123456789") == "" {
				k.fail(Problem{Param: shown, Message: fmt.Sprintf("%s goes from %s%d to %s%d, without leading zeros", base, base, s.Index[0], base, s.Index[1])})
				return
			}
			if name == n {
				k.fail(Problem{Param: name, Message: "give the number itself", Nearest: base + fmt.Sprint(s.Index[0])})
				return
			}
			n = base + fmt.Sprint(s.Index[0])
		}
		names = append(names, n)
	}
	sort.Strings(names)
	p := Problem{Param: shown, Message: "this operation has no such parameter", Nearest: nearest(name, names), Valid: names}
	if len(names) == 0 {
		p.Message = "this operation takes no parameters"
	}
	if p.Nearest != "" && len(names) > 12 {
		p.Valid = nil
	}
	k.fail(p)
}

// dropEmpty leaves an empty optional value out, unless emptiness means something. Sent along, it would ask for a
// right that the caller does not need, or store a blank.
func (k *checker) dropEmpty(name string, s *facts.Schema, v any) bool {
	switch x := v.(type) {
	case string:
		if x != "" || k.emptyMeans(name, s) {
			return false
		}
	case []any:
		if len(x) > 0 {
			return false
		}
	case []string:
		if len(x) > 0 {
			return false
		}
	case map[string]any:
		if len(x) > 0 || s.Type == "object" {
			return false
		}
	default:
		return false
	}
	if isNameList(name) && s.Type != "boolean" {
		k.fail(Problem{Param: name, Message: "an empty list would vanish on the way; name at least one setting, or leave it out"})
		return true
	}
	k.note("%s was empty and is left out%s", name, k.unsetHint(name))
	return true
}

// unsets tells whether delete names settings to take away; elsewhere it is a switch.
func (op *Operation) unsets() bool {
	s := op.Facts.Params["delete"]
	return s != nil && s.Type != "boolean"
}

// isNameList tells the parameters that name other parameters of the same call.
func isNameList(name string) bool { return name == "delete" || name == "revert" }

func (k *checker) emptyMeans(name string, s *facts.Schema) bool {
	if name == "groups" && k.op.ID == "PUT /access/users/{userid}" { // there is no other way out of the last group
		return true
	}
	if s.Format != nil {
		return strings.HasSuffix(s.Format.Name, "-opt")
	}
	if !k.update() || len(s.Enum) > 0 || s.Type != "string" || s.MinLength != nil && *s.MinLength > 0 {
		return false
	}
	if s.Pattern != "" {
		ok, known := k.cat.patterns.match(s.Pattern, "")
		return ok && known && !decodesWhole(k.op.Product)
	}
	return slices.Contains([]string{"comment", "comments", "comments6", "description", "notes", "consent-text", "firstname", "lastname"}, name)
}

func (k *checker) required() {
	for name, s := range k.op.Facts.Params {
		if s.Optional || s.Index != nil {
			continue
		}
		if _, given := k.given[name]; given {
			continue
		}
		if t := k.types[s.TypeProperty]; s.TypeProperty != "" && (t == "" || len(s.InstanceTypes) > 0 && !slices.Contains(s.InstanceTypes, t)) {
			continue
		}
		if k.refused(name) != nil {
			continue
		}
		p := Problem{Param: name, Message: "is missing"}
		for _, e := range s.Enum {
			p.Valid = append(p.Valid, enumText(e))
		}
		k.fail(p)
	}
}

// together checks what holds between parameters.
func (k *checker) together() {
	for name := range k.values {
		s, _, _ := k.op.Schema(name)
		if s.Requires == "" {
			continue
		}
		if _, ok := k.given[s.Requires]; !ok {
			k.fail(Problem{Param: name, Message: "needs the parameter " + s.Requires + " as well"})
		}
	}
	k.conflicts()
	k.nestedSecrets()
	for _, list := range []string{"delete", "revert"} {
		for _, v := range k.values[list] {
			for _, name := range gate.SplitList(v.Text) {
				if _, both := k.values[name]; both {
					k.fail(Problem{Param: name, Message: "is set and named in " + list + " at the same time"})
				}
			}
		}
	}
}

// deletable lists what delete and revert may name: the settings of this operation and of those beside it that make
// or show the same object.
func (k *checker) deletable() []string {
	have := map[string]bool{}
	take := func(op *Operation) {
		for n, s := range op.Facts.Params {
			if slices.Contains(op.Placeholders, n) || isNameList(n) || n == "digest" {
				continue
			}
			if len(s.Index) == 2 {
				base := strings.TrimSuffix(n, "[n]")
				for i := s.Index[0]; i <= s.Index[1]; i++ {
					have[base+fmt.Sprint(i)] = true
				}
				continue
			}
			have[n] = true
		}
	}
	take(k.op)
	parent := k.op.Path[:strings.LastIndexByte(k.op.Path, '/')]
	for _, id := range []string{"POST " + k.op.Path, "PUT " + k.op.Path, "POST " + parent} {
		if op, ok := k.cat.Lookup(k.op.Product, id); ok {
			if op.unsets() || strings.HasSuffix(id, parent) {
				take(op)
			}
		}
	}
	out := make([]string, 0, len(have))
	for n := range have {
		out = append(out, n)
	}
	sort.Strings(out)
	return out
}
