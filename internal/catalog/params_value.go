package catalog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/big"
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
		} else if isNameList(f.template) {
			for _, e := range splitList(x) {
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
		if isNameList(f.template) && len(p) == 0 {
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

// object checks a true JSON object and returns it in canonical JSON.
func (k *checker) object(f field, s *facts.Schema, v any) (string, []Problem) {
	if text, ok := v.(string); ok {
		o, err := jsonObject(text)
		if err != nil {
			return "", f.bad("is not a JSON object: %v", err)
		}
		v = o
	}
	m, ok := v.(map[string]any)
	if !ok {
		return "", f.bad("must be an object")
	}
	if probs := k.objectKeys(f, s, m, 0); len(probs) > 0 {
		return "", probs
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(m); err != nil {
		return "", f.bad("cannot be written as JSON")
	}
	return strings.TrimSuffix(buf.String(), "\n"), nil
}

func (k *checker) objectKeys(f field, s *facts.Schema, m map[string]any, depth int) []Problem {
	if depth > maxDepth {
		return f.bad("is nested too deeply")
	}
	var probs []Problem
	open := len(s.Properties) == 0
	names := make([]string, 0, len(s.Properties))
	for n := range s.Properties {
		names = append(names, n)
	}
	slices.Sort(names)
	for key, v := range m {
		kf := field{name: f.name + "." + clip(key, 40), template: f.template + "." + key, secret: f.secret}
		ks := s.Properties[key]
		switch {
		case ks == nil && !open:
			probs = append(probs, Problem{Param: kf.name, Message: "no such key", Nearest: nearest(key, names), Valid: names})
		case v == nil:
			probs = append(probs, kf.bad("null is not a value")...)
		case ks != nil && ks.Type == "object":
			sub, ok := v.(map[string]any)
			if !ok {
				probs = append(probs, kf.bad("must be an object")...)
				continue
			}
			probs = append(probs, k.objectKeys(kf, ks, sub, depth+1)...)
		case ks != nil && ks.Type == "array":
			list, ok := v.([]any)
			if !ok {
				probs = append(probs, kf.bad("must be a list")...)
				continue
			}
			for i, e := range list {
				ef := kf
				ef.name = fmt.Sprintf("%s[%d]", kf.name, i)
				if sub, ok := e.(map[string]any); ok && ks.Items != nil && ks.Items.Type == "object" {
					probs = append(probs, k.objectKeys(ef, ks.Items, sub, depth+1)...)
				} else if ks.Items != nil {
					if _, p := k.text(ef, ks.Items, e); len(p) > 0 {
						probs = append(probs, p...)
					}
				}
			}
		case ks != nil:
			text, p := k.text(kf, ks, v)
			if probs = append(probs, p...); len(p) == 0 {
				m[key] = typed(ks, text)
			}
		default:
			if !plainJSON(v, depth) {
				probs = append(probs, kf.bad("holds a control character or is nested too deeply")...)
			}
		}
	}
	for _, n := range names {
		if _, ok := m[n]; !ok && !s.Properties[n].Optional {
			probs = append(probs, Problem{Param: f.name + "." + n, Message: "is missing"})
		}
	}
	return probs
}

// typed turns checked text into the JSON value that its schema asks for.
func typed(s *facts.Schema, text string) any {
	switch s.Type {
	case "boolean":
		return text == "1"
	case "integer", "number":
		return json.Number(text)
	}
	return text
}

func plainJSON(v any, depth int) bool {
	if depth > maxDepth {
		return false
	}
	switch x := v.(type) {
	case string:
		return len(x) <= maxText && badControl(x, false) == ""
	case []any:
		for _, e := range x {
			if !plainJSON(e, depth+1) {
				return false
			}
		}
	case map[string]any:
		for key, e := range x {
			if badControl(key, false) != "" || !plainJSON(e, depth+1) {
				return false
			}
		}
	}
	return true
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

func boolean(f field, text string) (string, []Problem) {
	switch strings.ToLower(text) {
	case "1", "true", "yes", "on":
		return "1", nil
	case "0", "false", "no", "off":
		return "0", nil
	}
	return "", []Problem{{Param: f.name, Message: f.show(text) + " is neither true nor false", Valid: []string{"true", "false"}}}
}

func (k *checker) integer(f field, s *facts.Schema, text string) (string, []Problem) {
	if !isInteger(text) {
		p := Problem{Param: f.name, Message: f.show(text) + " is not a whole number in plain digits"}
		if r, ok := new(big.Rat).SetString(text); ok && len(text) < 40 && !strings.ContainsAny(text, "/eEpPxX_") && !f.secret {
			p.Nearest = new(big.Int).Quo(r.Num(), r.Denom()).String()
		}
		return "", []Problem{p}
	}
	if s.Format != nil && s.Format.Name != "" {
		if _, probs := k.format(f, s.Format.Name, text); len(probs) > 0 {
			return "", probs
		}
	}
	if len(s.Enum) > 0 {
		return enum(f, s, text)
	}
	return inRange(f, s, text)
}

// isInteger tells whole numbers in ASCII digits without sign plus or leading zeros.
func isInteger(text string) bool {
	digits := strings.TrimPrefix(text, "-")
	return digits != "" && len(digits) <= 30 && strings.Trim(digits, "0123456789") == "" && (digits == "0" && text == "0" || digits[0] != '0')
}

func (k *checker) number(f field, s *facts.Schema, text string) (string, []Problem) {
	whole, fraction, dot := strings.Cut(text, ".")
	if whole == "-0" && dot {
		whole = "0"
	}
	if !isInteger(whole) || dot && (fraction == "" || len(fraction) > 30 || strings.Trim(fraction, "0123456789") != "") {
		return "", f.bad("%s is not a number in plain digits", f.show(text))
	}
	return inRange(f, s, text)
}

func inRange(f field, s *facts.Schema, text string) (string, []Problem) {
	n, ok := new(big.Rat).SetString(text)
	if !ok {
		return "", f.bad("%s is not a number", f.show(text))
	}
	limit := func(l *json.Number) *big.Rat {
		if l == nil {
			return nil
		}
		r, ok := new(big.Rat).SetString(l.String())
		if !ok {
			return nil
		}
		return r
	}
	if low := limit(s.Minimum); low != nil && n.Cmp(low) < 0 {
		return "", []Problem{{Param: f.name, Message: fmt.Sprintf("%s is below the minimum", f.show(text)), Nearest: s.Minimum.String()}}
	}
	if high := limit(s.Maximum); high != nil && n.Cmp(high) > 0 {
		return "", []Problem{{Param: f.name, Message: fmt.Sprintf("%s is above the maximum", f.show(text)), Nearest: s.Maximum.String()}}
	}
	return text, nil
}

func enum(f field, s *facts.Schema, text string) (string, []Problem) {
	var valid []string
	for _, e := range s.Enum {
		valid = append(valid, fmt.Sprint(e))
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

// controls refuses characters that could begin another line or hide text.
func (k *checker) controls(f field, s *facts.Schema, text string) string {
	if !utf8.ValidString(text) {
		return "is not valid UTF-8"
	}
	name := f.template
	if i := strings.IndexByte(name, '['); i >= 0 {
		name = name[:i]
	}
	if name == "env" && k.op.Product == "pve" { // a list of settings, separated by NUL in the product's own form
		text = strings.ReplaceAll(text, "\x00", "")
	}
	return badControl(text, !f.inner && s.Pattern == "" && slices.Contains(multiline, name) ||
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

func jsonArray(text string) ([]any, bool) {
	if !strings.HasPrefix(strings.TrimSpace(text), "[") {
		return nil, false
	}
	v, err := strictJSON(text)
	a, ok := v.([]any)
	return a, err == nil && ok
}

func jsonObject(text string) (map[string]any, error) {
	v, err := strictJSON(text)
	if err != nil {
		return nil, err
	}
	o, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("another JSON value")
	}
	return o, nil
}

// strictJSON decodes one JSON value, keeping numbers as written; it refuses repeated keys, what follows the value,
// and deep nesting.
func strictJSON(text string) (any, error) {
	if len(text) > maxText {
		return nil, fmt.Errorf("longer than %d bytes", maxText)
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	v, err := strictValue(d, 0)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("something follows the value")
	}
	return v, nil
}

func strictValue(d *json.Decoder, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("nested too deeply")
	}
	t, err := d.Token()
	if err != nil {
		return nil, fmt.Errorf("not JSON")
	}
	switch t {
	case json.Delim('['):
		list := []any{}
		for d.More() {
			v, err := strictValue(d, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err := d.Token()
		return list, err
	case json.Delim('{'):
		object := map[string]any{}
		for d.More() {
			name, err := d.Token()
			if err != nil {
				return nil, fmt.Errorf("not JSON")
			}
			key, _ := name.(string)
			if _, twice := object[key]; twice {
				return nil, fmt.Errorf("key %s given twice", quote(key))
			}
			if object[key], err = strictValue(d, depth+1); err != nil {
				return nil, err
			}
		}
		_, err := d.Token()
		return object, err
	}
	return t, nil
}
