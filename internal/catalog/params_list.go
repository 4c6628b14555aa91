package catalog

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"castellan/internal/catalog/facts"
	"castellan/internal/gate"
)

// listFormat tells whether a single text holds a list, the schema of its elements, and the separator that is sent.
func (k *checker) listFormat(f field, s *facts.Schema) (*facts.Schema, string, bool) {
	if s.Format == nil {
		return nil, "", false
	}
	if fs := s.Format.Schema; fs != nil && fs.Type == "array" && fs.Items != nil {
		return fs.Items, ",", true
	}
	name := s.Format.Name
	base, ok := strings.CutSuffix(name, "-list")
	if name == "pve-fw-conntrack-helper" {
		base, ok = "conntrack-helper", true // a list, although its name does not say so
	}
	if !ok {
		return nil, "", false
	}
	sep := ","
	switch {
	case f.inner, name == "pve-tag-list":
		sep = ";" // inside a property string a comma would begin another key
	case f.template == "bridge_vids":
		sep = " "
	}
	return &facts.Schema{Type: "string", Format: &facts.Format{Name: base}}, sep, true
}

// list checks a text that holds many values and writes it with one separator.
func (k *checker) list(f field, s *facts.Schema, item *facts.Schema, sep string, v any) (string, []Problem) {
	var elements []any
	switch x := v.(type) {
	case []any:
		elements = x
	case []string:
		for _, e := range x {
			elements = append(elements, e)
		}
	case string:
		if a, ok := jsonArray(x); ok {
			elements = a
			break
		}
		if strings.ContainsRune(x, 0) && strings.ContainsFunc(x, func(r rune) bool { return r == ',' || r == ';' || unicode.IsSpace(r) }) {
			return "", f.bad("mixes NUL with other separators, which the product would not split alike")
		}
		for _, e := range gate.SplitList(x) {
			elements = append(elements, e)
		}
	default:
		elements = []any{v}
	}
	if len(elements) > maxItems {
		return "", f.bad("holds more than %d elements", maxItems)
	}
	var out []string
	var probs []Problem
	for i, e := range elements {
		ef := f
		if len(elements) > 1 {
			ef.name = fmt.Sprintf("%s[%d]", f.name, i)
		}
		text, p := k.text(ef, item, e)
		switch {
		case len(p) > 0:
		case text == "" || len(gate.SplitList(text)) != 1 || gate.SplitList(text)[0] != text:
			p = ef.bad("%s is empty or would be split", ef.show(text))
		case isNameList(f.template):
			p = k.deletableName(ef, text)
		}
		if probs = append(probs, p...); len(probs) >= maxProblems {
			return "", probs
		}
		if !isNameList(f.template) || !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	if len(probs) > 0 {
		return "", probs
	}
	if len(out) == 0 {
		return "", f.bad("names nothing")
	}
	text := strings.Join(out, sep)
	if strings.HasPrefix(text, "[") {
		return "", f.bad("begins with [, which is not a plain value")
	}
	if s.Pattern != "" {
		if ok, known := k.cat.patterns.match(s.Pattern, text); known && !ok {
			return "", f.bad("%s does not have the form %s", f.show(text), clip(s.Pattern, 160))
		}
	}
	if s.MaxLength != nil && len([]rune(text)) > *s.MaxLength {
		return "", f.bad("is longer than %d characters", *s.MaxLength)
	}
	return text, nil
}

// propertyString checks a property string given as text, as JSON text or as object, and writes it canonically.
func (k *checker) propertyString(f field, p *propSchema, v any) (string, []Problem) {
	var props []Property
	var probs []Problem
	under := func(q Problem) Problem {
		if q.Param == "" || k.op.hasSecretKey(f.template) && p.props[q.Param] == nil {
			q.Param = f.name
		} else {
			q.Param = f.name + "." + clip(q.Param, 40)
		}
		return q
	}
	if text, ok := v.(string); ok && strings.HasPrefix(strings.TrimSpace(text), "{") {
		o, err := jsonObject(text)
		if err != nil {
			return "", f.bad("is neither a property string nor a JSON object: %v", err)
		}
		v = o
	}
	if list, ok := v.([]any); ok && len(list) == 1 {
		v = list[0]
	}
	switch x := v.(type) {
	case map[string]any:
		keys := make([]string, 0, len(x))
		for key := range x {
			keys = append(keys, key)
		}
		slices.Sort(keys)
		for _, key := range keys {
			kf := k.keyField(f, p, key)
			text, ok := k.innerText(kf, x[key])
			if !ok {
				probs = append(probs, kf.bad("takes one value")...)
				continue
			}
			if text == "" {
				probs = append(probs, kf.bad("is empty; leave the key out")...)
				continue
			}
			if q := p.put(&props, key, text); q != nil {
				probs = append(probs, under(*q))
			}
		}
	default:
		text, ok := plainText(v)
		if !ok {
			return "", f.bad("takes a property string or an object")
		}
		if len(text) > maxText {
			return "", f.bad("is too long")
		}
		if bad := badControl(text, false); bad != "" {
			return "", f.bad("%s", bad)
		}
		var q *Problem
		if props, q = p.parse(text); q != nil {
			return "", []Problem{under(*q)}
		}
	}
	if len(probs) > 0 {
		return "", probs
	}
	if len(props) == 0 {
		return "", f.bad("holds no key")
	}
	props, probs = k.keys(f, p, props)
	if len(probs) > 0 {
		return "", probs
	}
	text, q := p.render(props)
	if q != nil {
		return "", []Problem{under(*q)}
	}
	if strings.HasPrefix(text, "{") {
		return "", f.bad("begins with {, which is not a plain value")
	}
	return text, nil
}

func (k *checker) keyField(f field, p *propSchema, key string) field {
	template := f.template + "." + key
	return field{name: f.name + "." + clip(key, 40), template: template, secret: f.secret || k.op.isSecret(template), inner: true}
}

// innerText is the text of a key's value in an object; a list becomes a list text.
func (k *checker) innerText(f field, v any) (string, bool) {
	list, ok := v.([]any)
	if !ok {
		return plainText(v)
	}
	var parts []string
	for _, e := range list {
		text, ok := plainText(e)
		if !ok || len(gate.SplitList(text)) != 1 {
			return "", false
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ";"), true
}

// keys checks the values of a property string and what holds between them.
func (k *checker) keys(f field, p *propSchema, props []Property) ([]Property, []Problem) {
	var probs []Problem
	have := map[string]bool{}
	for i, kv := range props {
		kf := k.keyField(f, p, kv.Key)
		s := p.props[kv.Key]
		if s == nil {
			s = &facts.Schema{Type: "string"}
		}
		text, q := k.text(kf, s, kv.Value)
		probs = append(probs, q...)
		props[i].Value, have[kv.Key] = text, true
	}
	for _, key := range p.keys() {
		s := p.props[key]
		switch {
		case s.Alias != "":
		case have[key] && s.Requires != "" && !have[s.Requires]:
			probs = append(probs, Problem{Param: f.name + "." + key, Message: "needs the key " + s.Requires + " as well"})
		case !have[key] && !s.Optional && s.Default == nil:
			probs = append(probs, Problem{Param: f.name + "." + key, Message: "is missing"})
		}
	}
	return props, probs
}
