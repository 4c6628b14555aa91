package catalog

import (
	"slices"
	"strings"
	"sync"

	"castellan/internal/gate"
)

// Judge says what one request would do: its effect, classes and rows of the policy table as a function of
// operation, parameters and values. Its classes are among those of Classes. What nobody has judged counts as
// everything that its operation can do, and more parameters never make a judgement milder, with the exception
// of those by which the product itself holds back: a true dry-run, a true keep, a false remove.
func (c *Catalog) Judge(op *Operation, r gate.Request) gate.Judgement {
	v := newVerdict(op, r)
	v.judge()
	j := gate.Judgement{Operation: op.ID, Classes: sortedClasses(v.classes), Kinds: sortedKinds(v.kinds), FreeText: op.mayHoldFreeText(),
		Task: op.Facts.Task != "", Sentence: wording(op, r), References: c.References(op, r), Secrets: sentSecrets(op, r),
		Privileges: c.Privileges(op, r), Commands: commands(op, r)}
	j.Effect = effectOf(v.kinds)
	return j
}

// Effect returns what an operation can do at worst: its published classes as its family weighs them, or what a
// read does when it is asked for nothing special.
func (c *Catalog) Effect(op *Operation) gate.Effect {
	v := newVerdict(op, gate.Request{})
	if op.Method == "GET" || op.Foreign {
		v.judge()
	} else {
		for _, class := range v.union {
			v.add(class)
		}
		if len(v.union) == 0 {
			v.plain()
		}
	}
	return effectOf(v.kinds)
}

func effectOf(kinds map[gate.Kind]bool) gate.Effect {
	worst := gate.EffectRead
	for k := range kinds {
		worst = gate.WorseEffect(worst, gate.RowOf(k).Effect)
	}
	return worst
}

// verdict gathers classes and rows while the parameters of one request are looked at.
type verdict struct {
	op      *Operation
	r       gate.Request
	union   []gate.Class
	classes map[gate.Class]bool
	kinds   map[gate.Kind]bool
}

func newVerdict(op *Operation, r gate.Request) *verdict {
	return &verdict{op: op, r: r, union: unionClasses(op), classes: map[gate.Class]bool{}, kinds: map[gate.Kind]bool{}}
}

func (v *verdict) judge() {
	if v.op.Foreign {
		v.worst()
		v.kinds[gate.KindUnknown] = true
		return
	}
	if rule := v.family(); rule != nil {
		rule(v)
	} else {
		v.whole()
	}
	for _, p := range v.r.Params {
		if !v.known(p) {
			v.worst()
			v.kinds[gate.KindUnknown] = true
		}
	}
	if len(v.kinds) == 0 {
		v.plain()
	}
}

// known reports whether a parameter, its keys and its values were there when the operation was judged.
func (v *verdict) known(p gate.Param) bool {
	if slices.Contains(v.op.Placeholders, p.Name) {
		return true
	}
	for _, text := range append(valueOf(p).texts, "") {
		if v.op.IsForeign(p.Name, text) {
			return false
		}
	}
	_, _, ok := v.op.Schema(p.Name)
	return ok
}

// add puts the request into classes, under the rows that the family has for them. A class that the operation
// does not publish counts by its rows only.
func (v *verdict) add(classes ...gate.Class) {
	for _, class := range classes {
		v.as(class, kindsOf(v.op, class)...)
	}
}

// as puts the request into a class under the given rows.
func (v *verdict) as(class gate.Class, kinds ...gate.Kind) {
	if slices.Contains(v.union, class) {
		v.classes[class] = true
	}
	for _, k := range kinds {
		v.kinds[k] = true
	}
}

// plain notes that the request also does what its family does when nothing is dangerous about it.
func (v *verdict) plain() {
	for _, k := range kindsOf(v.op, "") {
		v.kinds[k] = true
	}
}

// worst is the union of the operation, each class under its own row: what an unjudged value stands for.
func (v *verdict) worst() {
	if len(v.union) == 0 {
		v.plain()
	}
	for _, class := range v.union {
		v.as(class, rowOfClass(class))
		v.add(class)
	}
}

// harmless takes back what was noted: the product carries nothing out.
func (v *verdict) harmless() {
	v.classes, v.kinds = map[gate.Class]bool{}, map[gate.Kind]bool{gate.KindRead: true}
}

// whole judges an operation whose parameters make no difference: all of its classes, but for secrets that are
// not sent and for what a read only shows.
func (v *verdict) whole() {
	for _, class := range v.union {
		switch {
		case class == gate.ClassSin && len(sentSecrets(v.op, v.r)) == 0:
		case v.op.Method == "GET" && (class == gate.ClassLic || class == gate.ClassLock): // shown, not changed
		default:
			v.add(class)
		}
	}
}

// sentSecrets lists the secret parameters and keys that may be in the request.
func sentSecrets(op *Operation, r gate.Request) []string {
	var out []string
	for _, p := range r.Params {
		if _, template, ok := op.Schema(p.Name); ok && !slices.Contains(op.Placeholders, p.Name) {
			out = append(out, secretsOf(op, template)...)
		}
	}
	return out
}

// secretsOf names the secret that a parameter is, or the secret keys that it may hold.
func secretsOf(op *Operation, template string) []string {
	s := op.Facts.Params[template]
	if s == nil || s.Type == "boolean" {
		return nil
	}
	if op.isSecret(template) {
		return []string{template}
	}
	if s.Type == "array" && s.Items != nil {
		s = s.Items
	}
	var out []string
	if p := op.properties(s); p != nil {
		for _, key := range p.keys() {
			if name := template + "." + key; op.isSecret(name) && p.props[key].Alias == "" {
				out = append(out, name)
			}
		}
	}
	return out
}

// value is what one parameter of the request says.
type value struct {
	name  string   // as sent
	key   string   // with its index folded: net[n]
	texts []string // in order
	sure  bool     // false: a part is sealed or not yet resolved
}

// on reports whether a switch is, or may be, on.
func (x value) on() bool { return !x.off() }

// off reports whether a switch is surely off.
func (x value) off() bool {
	for _, t := range x.texts {
		if !isFalse(t) {
			return false
		}
	}
	return x.sure && len(x.texts) > 0
}

func isFalse(text string) bool {
	switch strings.ToLower(strings.TrimSpace(text)) {
	case "0", "no", "off", "false":
		return true
	}
	return false
}

func isTrue(text string) bool {
	switch strings.ToLower(strings.TrimSpace(text)) {
	case "1", "yes", "on", "true":
		return true
	}
	return false
}

// one returns the text of a parameter that is sent once and whose text is sure.
func (x value) one() (string, bool) {
	if !x.sure || len(x.texts) != 1 {
		return "", false
	}
	return x.texts[0], true
}

// words splits a list parameter in every way that one of the products does.
func (x value) words() []string {
	var out []string
	for _, t := range x.texts {
		out = append(out, gate.SplitList(t)...)
	}
	return out
}

// values lists what is sent besides the path and the digest of what was read.
func (v *verdict) values() []value {
	var out []value
	for _, p := range v.r.Params {
		if slices.Contains(v.op.Placeholders, p.Name) || p.Name == "digest" || p.Name == "lock-token" {
			continue
		}
		x := valueOf(p)
		if _, template, ok := v.op.Schema(p.Name); ok {
			x.key = template // efidisk0 is a name of its own, net0 is one of net[n]
		}
		out = append(out, x)
	}
	return out
}

func valueOf(p gate.Param) value {
	x := value{name: p.Name, key: foldIndex(p.Name), sure: true}
	for _, t := range p.Values {
		switch {
		case t.Secret != nil:
			x.texts = append(x.texts, t.Secret.Before+t.Secret.After)
			x.sure = false
		case t.Ref != nil:
			x.texts = append(x.texts, t.Ref.Plan)
			x.sure = false
		default:
			x.texts = append(x.texts, t.Text)
		}
	}
	return x
}

// value returns one parameter; the second result is false when it is not sent.
func (v *verdict) value(name string) (value, bool) {
	for _, p := range v.r.Params {
		if p.Name == name {
			return valueOf(p), true
		}
	}
	return value{}, false
}

// foldIndex turns net0 into net[n]; names that end in no digit stay.
func foldIndex(name string) string {
	base := strings.TrimRight(name, "0123456789")
	if base == name || base == "" {
		return name
	}
	return base + "[n]"
}

func sortedKinds(has map[gate.Kind]bool) []gate.Kind {
	var out []gate.Kind
	for _, k := range kindOrder() {
		if has[k] {
			out = append(out, k)
		}
	}
	return out
}

// kindOrder is the order of the gate's table.
var kindOrder = sync.OnceValue(func() []gate.Kind {
	var out []gate.Kind
	for _, row := range gate.Table() {
		out = append(out, row.Kind)
	}
	return out
})
