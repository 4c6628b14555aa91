package gate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"castellan/internal/regex"
)

// hidden stands in a record where a secret was given.
const hidden = "[redacted]"

// veil takes secrets out of what is recorded of one call: values under names that the catalogue calls secret, however
// deep they lie (JSON in a text, a query, a property string), and the same texts wherever else they turn up.
type veil struct {
	secret func(name string) bool
	found  []string
}

// newVeil looks through a call's arguments and returns them as they may be recorded.
func newVeil(secret func(string) bool, args []byte) (*veil, string) {
	v := &veil{secret: secret}
	d := json.NewDecoder(bytes.NewReader(args))
	d.UseNumber()
	var val any
	if len(args) > 0 && (d.Decode(&val) != nil || d.More()) {
		return v, fmt.Sprintf("(%d bytes that are no JSON)", len(args)) // what is a secret in it cannot be told
	}
	out, err := json.Marshal(v.value(val, 0))
	if err != nil {
		return v, hidden
	}
	return v, string(out)
}

func (v *veil) value(val any, depth int) any {
	switch x := val.(type) {
	case map[string]any:
		for k, e := range x {
			if name := leafName(k); v.secret(name) && v.keep(e) {
				x[k] = hidden
				continue
			}
			x[k] = v.value(e, depth+1)
		}
		return x
	case []any:
		for i, e := range x {
			x[i] = v.value(e, depth+1)
		}
		return x
	case string:
		return v.text(x, depth)
	}
	return val
}

// keep remembers what stands under a secret name; false when there is nothing to hide.
func (v *veil) keep(val any) bool {
	switch x := val.(type) {
	case string:
		v.learn(x)
		return x != ""
	case json.Number:
		v.learn(x.String())
		return true
	case map[string]any:
		for _, e := range x {
			v.keep(e)
		}
		return len(x) > 0
	case []any:
		for _, e := range x {
			v.keep(e)
		}
		return len(x) > 0
	}
	return false
}

// learn keeps a secret; one of a few characters would blot out ordinary words.
func (v *veil) learn(s string) {
	for _, form := range []string{s, strings.TrimSpace(s), url.QueryEscape(s), url.PathEscape(s)} {
		if len(form) >= 5 && !slices.Contains(v.found, form) {
			v.found = append(v.found, form)
		}
	}
}

var pair = &regex.Lazy{Expr: `([A-Za-z][A-Za-z0-9_.%-]*)=([^&,;\s"'\\]*)`}

func (v *veil) text(s string, depth int) string {
	if t := strings.TrimSpace(s); depth < 8 && len(t) > 1 && (t[0] == '{' || t[0] == '[') {
		d := json.NewDecoder(strings.NewReader(t))
		d.UseNumber()
		var inner any
		if d.Decode(&inner) == nil && !d.More() {
			if b, err := json.Marshal(v.value(inner, depth+1)); err == nil {
				return string(b)
			}
		}
	}
	return pair.ReplaceAllStringFunc(s, func(m string) string {
		name, val, _ := strings.Cut(m, "=")
		if plain, err := url.PathUnescape(name); err == nil {
			name = plain
		}
		if val == "" || !v.secret(leafName(name)) {
			return m
		}
		v.learn(val)
		if plain, err := url.QueryUnescape(val); err == nil {
			v.learn(plain)
		}
		return m[:strings.IndexByte(m, '=')+1] + hidden
	})
}

// elsewhere takes what was found out of another text about the same call.
func (v *veil) elsewhere(s string) string {
	for _, f := range v.found {
		s = strings.ReplaceAll(s, f, hidden)
	}
	return s
}

// leafName is the last part of a dotted name, in the form of the catalogue.
func leafName(name string) string {
	return strings.ToLower(name[strings.LastIndexByte(name, '.')+1:])
}
