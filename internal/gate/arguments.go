package gate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// maxArguments bounds one call's arguments, in bytes.
const maxArguments = 512 << 10

// arguments checks raw arguments against the closed schema and returns them normalised: what models get wrong
// harmlessly (a number as text, an object as JSON text) is put right here, before any digest.
func (o *Operation) arguments(raw json.RawMessage) (json.RawMessage, []Problem) {
	if len(bytes.TrimSpace(raw)) == 0 || string(bytes.TrimSpace(raw)) == "null" {
		raw = json.RawMessage("{}")
	}
	if len(raw) > maxArguments {
		return nil, []Problem{{Message: fmt.Sprintf("the arguments are %d bytes; at most %d are taken", len(raw), maxArguments)}}
	}
	v, err := strictJSON(raw)
	if err != nil {
		return nil, []Problem{{Message: err.Error()}}
	}
	var problems []Problem
	out := normalise(o.takes, "", v, &problems)
	if len(problems) > 0 {
		return nil, problems
	}
	b, err := json.Marshal(out)
	if err != nil {
		return nil, []Problem{{Message: err.Error()}}
	}
	return b, nil
}

// strictJSON decodes one JSON value; duplicate keys and anything after it are errors.
func strictJSON(raw []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	v, err := strictValue(d, 0)
	if err != nil {
		return nil, fmt.Errorf("the arguments are no valid JSON: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("the arguments are no valid JSON: something follows the object")
	}
	return v, nil
}

func strictValue(d *json.Decoder, depth int) (any, error) {
	if depth > 32 {
		return nil, errors.New("nested too deep")
	}
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t {
	case json.Delim('{'):
		m := map[string]any{}
		for d.More() {
			k, err := d.Token()
			if err != nil {
				return nil, err
			}
			key, ok := k.(string)
			if !ok {
				return nil, fmt.Errorf("key %v is no text", k)
			}
			if _, twice := m[key]; twice {
				return nil, fmt.Errorf("the key %q stands twice", key)
			}
			if m[key], err = strictValue(d, depth+1); err != nil {
				return nil, err
			}
		}
		_, err := d.Token()
		return m, err
	case json.Delim('['):
		l := []any{}
		for d.More() {
			v, err := strictValue(d, depth+1)
			if err != nil {
				return nil, err
			}
			l = append(l, v)
		}
		_, err := d.Token()
		return l, err
	}
	return t, nil
}

func normalise(s *shape, at string, v any, problems *[]Problem) any {
	fault := func(format string, args ...any) any {
		*problems = append(*problems, Problem{Param: at, Message: fmt.Sprintf(format, args...)})
		return nil
	}
	if s == nil || s.kind == "" {
		return v
	}
	if text, ok := v.(string); ok && (s.kind == "object" || s.kind == "array") {
		if inner, err := strictJSON([]byte(text)); err == nil {
			v = inner
		} else if s.kind == "array" && text != "" {
			v = []any{text}
		}
	}
	switch s.kind {
	case "object":
		m, ok := v.(map[string]any)
		if !ok {
			return fault("is %s; an object is wanted", said(v))
		}
		return normaliseObject(s, at, m, problems)
	case "array":
		l, ok := v.([]any)
		if !ok {
			l = []any{v} // one value where a list of one is meant
		}
		out := make([]any, 0, len(l))
		for i, e := range l {
			out = append(out, normalise(s.items, fmt.Sprintf("%s[%d]", at, i), e, problems))
		}
		return out
	case "string":
		switch x := v.(type) {
		case json.Number:
			v = x.String()
		case bool:
			v = strconv.FormatBool(x)
		case string:
		default:
			return fault("is %s; a text is wanted", said(v))
		}
		text := v.(string)
		if len(s.enum) > 0 && !slices.Contains(s.enum, text) {
			valid := s.enum
			*problems = append(*problems, Problem{Param: at, Message: fmt.Sprintf("%q is none of its values", clip(text, 60)), Nearest: Nearest(text, valid), Valid: valid})
			return nil
		}
		return text
	case "integer", "number":
		text := ""
		switch x := v.(type) {
		case json.Number:
			text = x.String()
		case string:
			text = x
		default:
			return fault("is %s; a number is wanted", said(v))
		}
		if !plainNumber(text, s.kind == "number") {
			return fault("%q is no %s", clip(text, 60), s.kind)
		}
		n, err := strconv.ParseFloat(text, 64)
		if err == nil && s.min != nil && n < *s.min {
			return fault("%s is below %v", text, *s.min)
		}
		if err == nil && s.max != nil && n > *s.max {
			return fault("%s is above %v", text, *s.max)
		}
		return json.Number(text)
	case "boolean":
		switch x := v.(type) {
		case bool:
			return x
		case json.Number:
			if x == "0" || x == "1" {
				return x == "1"
			}
		case string:
			switch x {
			case "true", "1", "yes", "on":
				return true
			case "false", "0", "no", "off":
				return false
			}
		}
		return fault("is %s; true or false is wanted", said(v))
	}
	return v
}

func normaliseObject(s *shape, at string, m map[string]any, problems *[]Problem) any {
	out := map[string]any{}
	valid := s.names()
	for _, k := range slices.Sorted(maps.Keys(m)) {
		name := k
		if at != "" {
			name = at + "." + k
		}
		p, known := s.field(k)
		switch {
		case known && m[k] == nil: // an explicit null for an optional argument is its absence
		case known:
			out[k] = normalise(p, name, m[k], problems)
		case len(s.fields) == 0 || s.values != nil:
			out[k] = normalise(s.values, name, m[k], problems)
		default:
			*problems = append(*problems, Problem{Param: name, Message: "there is no such argument", Nearest: Nearest(k, valid), Valid: valid})
		}
	}
	for _, k := range s.required {
		if _, ok := out[k]; !ok {
			if _, given := m[k]; !given || m[k] == nil {
				*problems = append(*problems, Problem{Param: k, Message: "is missing"})
			}
		}
	}
	return out
}

func plainNumber(s string, fraction bool) bool {
	t := strings.TrimPrefix(s, "-")
	if t == "" || len(t) > 18 || len(t) > 1 && t[0] == '0' && t[1] != '.' {
		return false
	}
	dots := 0
	for _, r := range t {
		switch {
		case r >= '0' && r <= '9':
		case r == '.' && fraction:
			dots++
		default:
			return false
		}
	}
	return dots <= 1
}

func said(v any) string {
	switch x := v.(type) {
	case nil:
		return "null"
	case map[string]any:
		return "an object"
	case []any:
		return "a list"
	case string:
		return fmt.Sprintf("the text %q", clip(x, 60))
	default:
		return clip(fmt.Sprint(v), 60)
	}
}

// clip bounds a text of others for showing: no control characters, at most n runes.
func clip(s string, n int) string {
	var b strings.Builder
	count := 0
	for _, r := range s {
		if count == n {
			b.WriteRune('…')
			break
		}
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			r = '�'
		}
		b.WriteRune(r)
		count++
	}
	return b.String()
}

// Nearest returns the valid name that is closest to s, or "" when none is close.
func Nearest(s string, valid []string) string {
	best, at := "", 1+max(2, len(s)/3)
	low := strings.ToLower(s)
	for _, v := range valid {
		d := distance(low, strings.ToLower(v), at)
		if d < at {
			best, at = v, d
		}
	}
	return best
}

// distance is the edit distance with swaps of neighbours, cut off at limit.
func distance(a, b string, limit int) int {
	if len(a) > 64 || len(b) > 64 || len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	before, row := make([]int, len(b)+1), make([]int, len(b)+1)
	var old []int
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		old, before, row = before, row, make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(before[j]+1, row[j-1]+1, before[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], old[j-2]+1)
			}
		}
	}
	return min(row[len(b)], limit)
}

// problemError turns problems into one error that names them all.
func problemError(operation string, problems []Problem) *Error {
	var lines []string
	for _, p := range problems {
		line := p.Message
		if p.Param != "" {
			line = p.Param + ": " + line
		}
		if p.Param == "plan_only" || p.Param == "reason" { // what every change takes beside its own
			line = p.Param + ": it is not an argument of the operation itself; with call_operation it stands beside params, not in it"
		} else if p.Nearest != "" {
			line += fmt.Sprintf("; did you mean %q?", p.Nearest)
		} else if len(p.Valid) > 0 && len(p.Valid) <= 30 {
			line += "; valid: " + strings.Join(p.Valid, ", ")
		}
		lines = append(lines, line)
	}
	hint := "Correct the arguments and call again; describe_operation shows them all."
	if operation == "call_operation" {
		hint = "The arguments of the operation that is called go into params, target, reason and plan_only beside it; describe_operation shows them all."
	}
	e := Fail(ErrInvalid, hint, "%s: %s", operation, strings.Join(lines, " · "))
	e.Operation = operation
	return e
}
