// Package table shapes lists for a caller: chosen fields, a limit, a cursor, and a bound on what one answer may
// hold. Every answer says how many rows there are and how to get the rest.
package table

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"castellan/internal/gate"
)

// MaxBytes bounds the rows of one answer: numbers and short names come to about two and a half bytes a token, so
// that an answer stays below 20,000 tokens.
const MaxBytes = 44_000

// Ask is what a caller may say about the rows that it wants; operations embed it into their input.
type Ask struct {
	Fields []string `json:"fields,omitempty"`
	Omit   []string `json:"omit_fields,omitempty"`
	Limit  int      `json:"limit,omitempty"`
	Cursor string   `json:"cursor,omitempty"`
}

// Count tells how much of a list an answer holds; operations embed it into their output.
type Count struct {
	Shown   int    `json:"shown"`
	Matched int    `json:"matched"`          // rows that fit the question, shown or not
	Cursor  string `json:"cursor,omitempty"` // give it back for the next rows
	More    string `json:"more,omitempty"`
}

// Columns are the fields of a list: all that there are, and those shown when nobody chooses.
type Columns struct {
	All     []string
	Default []string // nil = all
}

// Choose returns the fields to show, or an error that names the fields that there are.
func (c Columns) Choose(a Ask) ([]string, error) {
	for _, f := range slices.Concat(a.Fields, a.Omit) {
		if !slices.Contains(c.All, f) {
			e := gate.Fail(gate.ErrInvalid, "The fields are: "+strings.Join(c.All, ", "), "there is no field %q", clip(f))
			if near := gate.Nearest(f, c.All); near != "" {
				e.Message += fmt.Sprintf("; did you mean %s?", near)
			}
			return nil, e
		}
	}
	out := c.Default
	if out == nil {
		out = c.All
	}
	if len(a.Fields) > 0 {
		out = a.Fields
	}
	return slices.DeleteFunc(slices.Clone(out), func(f string) bool { return slices.Contains(a.Omit, f) }), nil
}

// Cut takes the page of items that the caller asks for. key tells items apart, so that a cursor survives rows that
// come and go; row makes the row of an item, of which only the chosen fields that are not empty are kept.
func Cut[T any](a Ask, c Columns, items []T, key func(T) string, row func(T) map[string]any) ([]map[string]any, Count, error) {
	fields, err := c.Choose(a)
	if err != nil {
		return nil, Count{}, err
	}
	if a.Limit < 0 {
		return nil, Count{}, gate.Fail(gate.ErrInvalid, "Give a limit of 1 or more.", "the limit is %d", a.Limit)
	}
	from, err := start(a.Cursor, items, key)
	if err != nil {
		return nil, Count{}, err
	}
	rows, size, i := []map[string]any{}, 0, from
	for ; i < len(items) && (a.Limit == 0 || len(rows) < a.Limit); i++ {
		whole := row(items[i])
		kept := map[string]any{}
		for _, f := range fields {
			if v, ok := whole[f]; ok && !empty(v) {
				kept[f] = v
			}
		}
		b, err := json.Marshal(kept)
		if err != nil {
			return nil, Count{}, fmt.Errorf("write row: %w", err)
		}
		if size += len(b) + 1; size > MaxBytes && len(rows) > 0 {
			break
		}
		rows = append(rows, kept)
	}
	count := Count{Shown: len(rows), Matched: len(items)}
	if i < len(items) {
		count.Cursor = strconv.Itoa(i) + ":" + key(items[i-1])
		count.More = fmt.Sprintf("%d more: call again with this cursor, narrow the filters, or ask for fewer fields", len(items)-i)
	}
	return rows, count, nil
}

func start[T any](cursor string, items []T, key func(T) string) (int, error) {
	if cursor == "" {
		return 0, nil
	}
	number, last, ok := strings.Cut(cursor, ":")
	n, err := strconv.Atoi(number)
	if !ok || err != nil || n < 0 {
		return 0, gate.Fail(gate.ErrInvalid, "Give the cursor of the answer before, unchanged, or none.", "%q is no cursor", clip(cursor))
	}
	if n > 0 && n <= len(items) && key(items[n-1]) == last {
		return n, nil
	}
	if i := slices.IndexFunc(items, func(t T) bool { return key(t) == last }); i >= 0 {
		return i + 1, nil
	}
	return min(n, len(items)), nil
}

func empty(v any) bool {
	switch x := v.(type) {
	case nil:
		return true
	case string:
		return x == ""
	case bool:
		return !x
	case []string:
		return len(x) == 0
	}
	return false
}

func clip(s string) string {
	if r := []rune(s); len(r) > 60 {
		return string(r[:60]) + "…"
	}
	return s
}
