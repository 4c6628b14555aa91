package oauth

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// fields are the members of a JSON object, by their exact names.
type fields map[string]json.RawMessage

// parseFields takes one JSON object without any name twice: what two readers could read in two ways is refused.
func parseFields(b []byte) (fields, error) {
	if !utf8.Valid(b) {
		return nil, errors.New("it is not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(b))
	t, err := d.Token()
	if err != nil || t != json.Delim('{') {
		return nil, errors.New("it is not a JSON object")
	}
	out := fields{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, errors.New("it is not valid JSON")
		}
		name, _ := t.(string) // a name is nothing else
		if _, twice := out[name]; twice {
			return nil, errors.New("it has a name twice")
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, errors.New("it is not valid JSON")
		}
		if len(out) == 100 {
			return nil, errors.New("it has more than 100 members")
		}
		out[name] = value
	}
	if _, err := d.Token(); err != nil {
		return nil, errors.New("it is not valid JSON")
	}
	if d.More() {
		return nil, errors.New("something follows the JSON object")
	}
	return out, nil
}

// text reads a string; an absent or null one is "".
func (f fields) text(name string, limit int) (string, error) {
	raw, ok := f[name]
	if !ok || string(raw) == "null" {
		return "", nil
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return "", fmt.Errorf("%s is not a string", name)
	}
	if len(s) > limit {
		return "", fmt.Errorf("%s is longer than %d bytes", name, limit)
	}
	return s, nil
}

// texts reads a list of strings; an absent or null one is nil.
func (f fields) texts(name string, limit int) ([]string, error) {
	raw, ok := f[name]
	if !ok || string(raw) == "null" {
		return nil, nil
	}
	var list []*string
	if json.Unmarshal(raw, &list) != nil {
		return nil, fmt.Errorf("%s is not a list of strings", name)
	}
	if len(list) > limit {
		return nil, fmt.Errorf("%s has more than %d entries", name, limit)
	}
	out := make([]string, 0, len(list))
	for _, s := range list {
		if s == nil || len(*s) > maxRedirect {
			return nil, fmt.Errorf("%s holds what is no string, or one longer than %d bytes", name, maxRedirect)
		}
		out = append(out, *s)
	}
	return out, nil
}

const (
	maxName      = 60 // characters of a client's name that people see
	maxRedirects = 20
)

// label makes a client's own words fit to be shown: one line, bounded, without characters that are not seen or that turn
// the order of others.
func label(s string) string {
	var b strings.Builder
	n, space := 0, false
	for _, r := range s {
		switch {
		case unicode.IsSpace(r):
			space = b.Len() > 0
			continue
		case r == utf8.RuneError || !unicode.IsPrint(r) || unicode.In(r, unicode.Cf, unicode.Co, unicode.Cs, unicode.Mn, unicode.Me, unicode.Variation_Selector):
			continue
		}
		if space {
			b.WriteByte(' ')
			n++
			space = false
		}
		if n >= maxName-1 {
			b.WriteRune('…')
			return b.String()
		}
		b.WriteRune(r)
		n++
	}
	return b.String()
}
