package catalog

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"castellan/internal/catalog/facts"
	"castellan/internal/gate"
)

const (
	maxText  = 512 << 10 // bytes of one value; the products take no larger body
	maxItems = 4096      // elements of one list
	maxDepth = 16        // nesting of JSON values

	maxProblems = 16 // told of one list; the rest would be more of the same
)

// field says which value is being checked.
type field struct {
	name     string // as reported: "net0.bridge"
	template string // as in the catalogue: "net[n].bridge"
	secret   bool   // its text must not appear in a message
	inner    bool   // a key of a property string: commas and line ends have a meaning there
}

func (f field) show(text string) string {
	if f.secret {
		return "the value"
	}
	return quote(text)
}

func (f field) bad(format string, a ...any) []Problem {
	return []Problem{{Param: f.name, Message: fmt.Sprintf(format, a...)}}
}

func quote(s string) string { return strconv.Quote(clip(s, 80)) }

// value checks one parameter and returns the values to send.
func (k *checker) value(f field, s *facts.Schema, v any) ([]gate.Value, []Problem) {
	if len(s.OneOf) > 0 {
		return k.oneOf(f, s, v)
	}
	switch s.Type {
	case "array":
		return k.array(f, s, v)
	case "object":
		text, probs := k.object(f, s, v)
		return []gate.Value{{Text: text}}, probs
	}
	gv, ok, probs := k.deferred(f, s, v)
	if ok || len(probs) > 0 {
		return []gate.Value{gv}, probs
	}
	text, probs := k.text(f, s, v)
	return []gate.Value{{Text: text}}, probs
}

// deferred passes values that are not plain text: sealed secrets and results of earlier steps.
func (k *checker) deferred(f field, s *facts.Schema, v any) (gate.Value, bool, []Problem) {
	switch x := v.(type) {
	case gate.Ref:
		v = gate.Value{Ref: &x}
	case *gate.Ref:
		v = gate.Value{Ref: x}
	}
	gv, ok := v.(gate.Value)
	switch {
	case !ok:
		return gate.Value{}, false, nil
	case gv.Secret != nil && !f.secret && !k.op.hasSecretKey(f.template):
		return gv, true, f.bad("holds no secret, so a sealed value cannot stand here")
	case gv.Secret != nil:
		return gv, true, nil
	case gv.Ref != nil && gv.Ref.Plan != "":
		_, probs := k.text(f, s, gv.Ref.Plan)
		return gv, true, probs
	case gv.Ref != nil:
		return gv, true, nil
	}
	text, probs := k.text(f, s, gv.Text)
	return gate.Value{Text: text}, true, probs
}

func (k *checker) oneOf(f field, s *facts.Schema, v any) ([]gate.Value, []Problem) {
	t := k.types[s.TypeProperty]
	var last []Problem
	for _, branch := range s.OneOf {
		if t != "" && len(branch.InstanceTypes) > 0 && !slices.Contains(branch.InstanceTypes, t) {
			continue
		}
		vals, probs := k.value(f, branch, v)
		if len(probs) == 0 {
			return vals, nil
		}
		last = probs
	}
	if last == nil {
		last = f.bad("does not exist for %s %s", s.TypeProperty, quote(t))
	}
	return nil, last
}

func (k *checker) array(f field, s *facts.Schema, v any) ([]gate.Value, []Problem) {
	items := s.Items
	if items == nil {
		items = &facts.Schema{Type: "string"}
	}
	var list []any
	switch x := v.(type) {
	case []any:
		list = x
	case []string:
		for _, e := range x {
			list = append(list, e)
		}
	case string:
		if a, ok := jsonArray(x); ok {
			list = a
		} else if isNameList(f.template) || items.Type == "integer" || len(items.Enum) > 0 { // one word each: a list text can only mean one thing
			for _, e := range gate.SplitList(x) {
				list = append(list, e)
			}
		} else {
			list = []any{x}
		}
	default:
		list = []any{x}
	}
	if len(list) == 0 {
		return nil, f.bad("needs at least one element")
	}
	if len(list) > maxItems {
		return nil, f.bad("holds more than %d elements", maxItems)
	}
	var out []gate.Value
	var probs []Problem
	for i, e := range list {
		ef := f
		ef.name = fmt.Sprintf("%s[%d]", f.name, i)
		if e == nil {
			probs = append(probs, ef.bad("null is not a value")...)
			continue
		}
		if items.Type == "object" {
			text, p := k.object(ef, items, e)
			probs, out = append(probs, p...), append(out, gate.Value{Text: text})
			continue
		}
		gv, ok, p := k.deferred(ef, items, e)
		if !ok {
			var text string
			text, p = k.text(ef, items, e)
			gv = gate.Value{Text: text}
		}
		if isNameList(f.template) && len(items.Enum) == 0 && len(p) == 0 {
			p = k.deletableName(ef, gv.Text)
		}
		if probs, out = append(probs, p...), append(out, gv); len(probs) >= maxProblems {
			return nil, probs
		}
	}
	if s.MinLength != nil && len(out) < *s.MinLength || s.MaxLength != nil && len(out) > *s.MaxLength {
		probs = append(probs, f.bad("has the wrong number of elements")...)
	}
	return out, probs
}

func (k *checker) deletableName(f field, name string) []Problem {
	valid := keep(&k.op.known.settings, k.deletable)
	if slices.Contains(valid, name) {
		return nil
	}
	p := Problem{Param: f.name, Message: fmt.Sprintf("%s is not a setting of this object", f.show(name)), Nearest: nearest(name, valid)}
	if len(valid) <= 40 {
		p.Valid = valid
	}
	return []Problem{p}
}

// text checks one single value and returns its canonical text.
func (k *checker) text(f field, s *facts.Schema, v any) (string, []Problem) {
	if p := k.op.properties(s); p != nil {
		return k.propertyString(f, p, v)
	}
	if base, sep, ok := k.listFormat(f, s); ok {
		return k.list(f, s, base, sep, v)
	}
	text, ok := plainText(v)
	if !ok {
		switch v.(type) {
		case []any, []string:
			return "", f.bad("takes one value, not a list")
		case map[string]any:
			return "", f.bad("takes one value, not an object")
		case float64, json.Number:
			return "", f.bad("is not a plain number")
		}
		return "", f.bad("a %T is not a value", v)
	}
	if len(text) > maxText {
		return "", f.bad("is longer than %d bytes", maxText)
	}
	return k.scalar(f, s, v, text)
}

func (k *checker) scalar(f field, s *facts.Schema, v any, text string) (string, []Problem) {
	switch s.Type {
	case "boolean":
		return boolean(f, text)
	case "integer":
		return k.integer(f, s, text)
	case "number":
		return k.number(f, s, text)
	}
	if _, isBool := v.(bool); isBool && len(s.Enum) == 0 {
		return "", f.bad("takes a text, not true or false")
	}
	text = k.prepare(f, s, text)
	if bad := k.controls(f, s, text); bad != "" {
		return "", f.bad("%s", bad)
	}
	if len(s.Enum) > 0 {
		return enum(f, s, text)
	}
	if s.Format != nil && s.Format.Name != "" || s.Type == "ip" {
		name := "ip"
		if s.Type != "ip" {
			name = s.Format.Name
		}
		canonical, probs := k.format(f, name, text)
		if len(probs) > 0 {
			return "", probs
		}
		text = canonical
	}
	if s.Pattern != "" {
		if ok, known := k.cat.patterns.match(s.Pattern, text); known && !ok {
			return "", f.bad("%s does not have the form %s", f.show(text), clip(s.Pattern, 160))
		} else if !known {
			return "", f.bad("its pattern cannot be checked here, so no value is taken")
		}
	}
	if n := utf8.RuneCountInString(text); s.MinLength != nil && n < *s.MinLength {
		return "", f.bad("is shorter than %d characters", *s.MinLength)
	} else if s.MaxLength != nil && n > *s.MaxLength {
		return "", f.bad("is longer than %d characters", *s.MaxLength)
	}
	return k.special(f, text)
}

// plainText takes what a caller may write for a single value: text, a number, true or false.
func plainText(v any) (string, bool) {
	switch x := v.(type) {
	case string:
		return x, true
	case bool:
		if x {
			return "1", true
		}
		return "0", true
	case json.Number:
		return x.String(), true
	case float64:
		if math.IsNaN(x) || math.IsInf(x, 0) || math.Abs(x) >= 1<<53 {
			return "", false
		}
		return strconv.FormatFloat(x, 'f', -1, 64), true
	case int:
		return strconv.Itoa(x), true
	case int64:
		return strconv.FormatInt(x, 10), true
	case uint64:
		return strconv.FormatUint(x, 10), true
	}
	return "", false
}

func enumText(e any) string {
	text, _ := plainText(e)
	return text
}

func enum(f field, s *facts.Schema, text string) (string, []Problem) {
	var valid []string
	for _, e := range s.Enum {
		valid = append(valid, enumText(e))
	}
	if slices.Contains(valid, text) {
		return text, nil
	}
	p := Problem{Param: f.name, Message: f.show(text) + " is none of the values", Nearest: nearest(text, valid)}
	if p.Nearest == "" || len(valid) <= 40 {
		p.Valid = valid
	}
	return "", []Problem{p}
}

// multiline are the parameters whose text may have several lines: the product encodes them, or they are no
// configuration at all.
var multiline = []string{"description", "comments", "comments6", "notes", "notes-template", "text", "certificates", "key", "sshkeys",
	"ssh-public-keys", "root-ssh-keys", "content", "input-data", "command", "data", "disclaimer", "consent-text", "body",
	"master-pubkey", "encryption-key", "keyring", "layout", "info", "commands"}

// runLines are those of castellan's own runs.
var runLines = []string{"script", "input", "content", "command", "env", "arg"}

// controls refuses characters that could begin another line or hide text.
func (k *checker) controls(f field, s *facts.Schema, text string) string {
	if !utf8.ValidString(text) {
		return "is not valid UTF-8"
	}
	name := f.template
	if i := strings.IndexByte(name, '['); i >= 0 {
		name = name[:i]
	}
	if k.op.Method == MethodRun { // no product splits it at line breaks
		return badControl(text, slices.Contains(runLines, name))
	}
	if name == "env" && k.op.Product == "pve" { // a list of settings, separated by NUL in the product's own form
		text = strings.ReplaceAll(text, "\x00", "")
	}
	own := k.op.Method == MethodRun && (name == "script" || name == "input")
	return badControl(text, own || !f.inner && s.Pattern == "" && slices.Contains(multiline, name) ||
		strings.HasPrefix(s.Pattern, "(?m)") && !f.inner)
}

func badControl(text string, lines bool) string {
	for _, r := range text {
		switch {
		case lines && (r == '\n' || r == '\t' || r == '\r'):
		case r == '\n' || r == '\r':
			return "must be one line"
		case unicode.IsControl(r), r == 0x2028, r == 0x2029:
			return fmt.Sprintf("holds the control character U+%04X", r)
		case r >= 0x202A && r <= 0x202E, r >= 0x2066 && r <= 0x2069:
			return fmt.Sprintf("holds the invisible character U+%04X, which reorders text", r)
		}
	}
	return ""
}
