package self

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"castellan/internal/gate"
	"castellan/internal/ops/table"
)

// shaped is the answer of a generic read.
type shaped struct {
	Data       any                        `json:"data"`
	Shown      *int                       `json:"shown,omitempty"`   // rows in this answer
	Matched    *int                       `json:"matched,omitempty"` // rows that came
	Cursor     string                     `json:"cursor,omitempty"`
	More       string                     `json:"more,omitempty"`
	Also       map[string]json.RawMessage `json:"also,omitempty"` // what came beside the data: total, changes
	Incomplete []string                   `json:"incomplete,omitempty"`
	Note       string                     `json:"note,omitempty"`
}

// shape cuts an answer to what was asked for and to what one answer may hold.
func shape(a gate.Answer, ask table.Ask) (shaped, error) {
	out := shaped{Also: a.Siblings, Incomplete: a.Missing}
	data := bytes.TrimSpace(a.Data)
	switch {
	case len(data) == 0 || string(data) == "null":
		out.Note = "The server answered without data, which is no error."
		return out, nil
	case data[0] == '[':
		return out, out.list(data, ask)
	case data[0] == '{':
		return out, out.object(data, ask)
	}
	if len(ask.Fields)+len(ask.Omit) > 0 || ask.Cursor != "" {
		return out, gate.Fail(gate.ErrInvalid, "Leave fields, omit_fields and cursor out.", "the answer is a single value, not a list")
	}
	var text string
	if json.Unmarshal(data, &text) != nil {
		out.Data = json.RawMessage(data)
		return out, nil
	}
	out.Data = text
	if len(text) > table.MaxBytes {
		out.Data, out.Note = middle(text, table.MaxBytes), fmt.Sprintf("The text has %d bytes; its middle is left out.", len(text))
	}
	return out, nil
}

func (out *shaped) list(data []byte, ask table.Ask) error {
	var items []json.RawMessage
	if err := json.Unmarshal(data, &items); err != nil {
		return fmt.Errorf("read the list: %w", err)
	}
	if len(items) == 0 {
		out.Note = "An empty list: there is nothing, or nothing that castellan's user may see; Proxmox hides the rest without an error."
	}
	rows := make([]row, len(items))
	columns, objects := map[string]bool{}, len(items) > 0
	for i, item := range items {
		rows[i].raw = item
		if json.Unmarshal(item, &rows[i].fields) != nil || rows[i].fields == nil {
			objects = false
			continue
		}
		for k := range rows[i].fields {
			columns[k] = true
		}
	}
	var count table.Count
	var err error
	if objects {
		order(rows)
		all := slices.Sorted(maps.Keys(columns))
		var kept []map[string]any
		kept, count, err = table.Cut(ask, table.Columns{All: all}, rows, row.key, func(r row) map[string]any {
			m := make(map[string]any, len(r.fields))
			for k, v := range r.fields {
				m[k] = v
			}
			return m
		})
		out.Data = kept
	} else {
		if len(items) > 0 && len(ask.Fields)+len(ask.Omit) > 0 {
			return gate.Fail(gate.ErrInvalid, "Leave fields and omit_fields out.", "the list holds single values, not rows with fields")
		}
		var kept []map[string]any
		kept, count, err = table.Cut(table.Ask{Limit: ask.Limit, Cursor: ask.Cursor}, table.Columns{All: []string{"value"}}, rows, row.key, func(r row) map[string]any {
			return map[string]any{"value": r.raw}
		})
		values := make([]any, 0, len(kept))
		for _, k := range kept {
			values = append(values, k["value"])
		}
		out.Data = values
	}
	if err != nil {
		return err
	}
	out.Shown, out.Matched, out.Cursor, out.More = &count.Shown, &count.Matched, count.Cursor, count.More
	return nil
}

// row is one element of a list.
type row struct {
	raw    json.RawMessage
	fields map[string]json.RawMessage
}

// keyFields name a row, the surest first.
var keyFields = []string{"upid", "volid", "sid", "vmid", "id", "name", "node", "storage", "poolid", "userid", "tokenid", "groupid", "roleid", "realm", "iface", "key", "cidr", "path"}

func (r row) key() string {
	var parts []string
	for _, k := range keyFields {
		if v, ok := r.fields[k]; ok {
			parts = append(parts, k+"="+strings.Trim(string(v), `"`))
		}
	}
	if len(parts) == 0 {
		return clip(string(r.raw), 80)
	}
	return clip(strings.Join(parts, ","), 120)
}

// ordered are fields by which the server has sorted rows already.
var ordered = []string{"starttime", "n", "pos", "time", "t", "snaptime", "ctime", "timestamp"}

// order sorts rows that come in random order, so that a cursor means the same in the next call.
func order(rows []row) {
	for _, f := range ordered {
		if _, has := rows[0].fields[f]; has {
			return
		}
	}
	slices.SortStableFunc(rows, func(a, b row) int {
		x, y := a.key(), b.key()
		return cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y)) // vmid=99 before vmid=100
	})
}

func (out *shaped) object(data []byte, ask table.Ask) error {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(data, &m); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if ask.Cursor != "" {
		return gate.Fail(gate.ErrInvalid, "Leave cursor out.", "the answer is one object, not a list")
	}
	all := slices.Sorted(maps.Keys(m))
	fields, err := table.Columns{All: all}.Choose(ask)
	if err != nil {
		return err
	}
	kept, size, left := map[string]json.RawMessage{}, 0, []string{}
	for _, f := range fields {
		if size+len(m[f]) > table.MaxBytes {
			left = append(left, fmt.Sprintf("%s (%d bytes)", f, len(m[f])))
			continue
		}
		size += len(m[f]) + len(f) + 4
		kept[f] = m[f]
	}
	out.Data = kept
	if len(left) > 0 {
		out.Note = "Too large for one answer and left out: " + clip(strings.Join(left, ", "), 400) + ". Ask for single fields, or narrow the call."
	}
	return nil
}

// middle keeps the beginning and the end of a text.
func middle(s string, n int) string {
	head, tail := s[:n*6/10], s[len(s)-n*4/10:]
	for len(head) > 0 && !utf8.ValidString(head) {
		head = head[:len(head)-1]
	}
	for len(tail) > 0 && !utf8.RuneStart(tail[0]) {
		tail = tail[1:]
	}
	return head + fmt.Sprintf("\n… %d bytes left out …\n", len(s)-len(head)-len(tail)) + tail
}
