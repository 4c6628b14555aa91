package catalog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"castellan/internal/catalog/facts"
)

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
	m, probs := k.objectKeys(f, s, m, 0)
	if len(probs) > 0 {
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

// objectKeys checks the members of an object and returns a copy in which they have the types of their schemas.
func (k *checker) objectKeys(f field, s *facts.Schema, m map[string]any, depth int) (map[string]any, []Problem) {
	if depth > maxDepth {
		return nil, f.bad("is nested too deeply")
	}
	names := slices.Sorted(maps.Keys(s.Properties))
	out := make(map[string]any, len(m))
	var probs []Problem
	for _, key := range slices.Sorted(maps.Keys(m)) {
		kf := field{name: f.name + "." + clip(key, 40), template: f.template + "." + key, secret: f.secret}
		ks := s.Properties[key]
		var p []Problem
		switch {
		case ks == nil && len(s.Properties) > 0:
			p = []Problem{{Param: kf.name, Message: "no such key", Nearest: nearest(key, names), Valid: names}}
		case ks != nil:
			out[key], p = k.member(kf, ks, m[key], depth+1)
		case !plainJSON(m[key], depth) || badControl(key, false) != "":
			p = kf.bad("holds a control character or is nested too deeply")
		default:
			out[key] = m[key]
		}
		if probs = append(probs, p...); len(probs) >= maxProblems {
			return nil, probs
		}
	}
	for _, n := range names {
		if _, ok := m[n]; !ok && !s.Properties[n].Optional {
			probs = append(probs, Problem{Param: f.name + "." + n, Message: "is missing"})
		}
	}
	return out, probs
}

// member checks one value inside an object.
func (k *checker) member(f field, s *facts.Schema, v any, depth int) (any, []Problem) {
	switch {
	case v == nil:
		return nil, f.bad("null is not a value")
	case s.Type == "object":
		sub, ok := v.(map[string]any)
		if !ok {
			return nil, f.bad("must be an object")
		}
		return k.objectKeys(f, s, sub, depth)
	case s.Type == "array":
		list, ok := v.([]any)
		if !ok || len(list) > maxItems || depth > maxDepth {
			return nil, f.bad("must be a list of at most %d elements", maxItems)
		}
		items := s.Items
		if items == nil {
			items = &facts.Schema{Type: "string"}
		}
		out := make([]any, 0, len(list))
		var probs []Problem
		for i, e := range list {
			ef := f
			ef.name = fmt.Sprintf("%s[%d]", f.name, i)
			value, p := k.member(ef, items, e, depth+1)
			if out, probs = append(out, value), append(probs, p...); len(probs) >= maxProblems {
				break
			}
		}
		return out, probs
	}
	text, probs := k.text(f, s, v)
	return typed(s, text), probs
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
