package table

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"castellan/internal/gate"
)

type item struct{ id, name string }

var columns = Columns{All: []string{"id", "name", "note"}, Default: []string{"id", "name"}}

func cut(a Ask, items []item) ([]map[string]any, Count, error) {
	return Cut(a, columns, items, func(i item) string { return i.id }, func(i item) map[string]any {
		return map[string]any{"id": i.id, "name": i.name, "note": "", "more": "never shown"}
	})
}

func many(n int, name string) []item {
	var out []item
	for i := range n {
		out = append(out, item{fmt.Sprint(i), name})
	}
	return out
}

func TestCut(t *testing.T) {
	items := many(5, "x")
	for _, c := range []struct {
		name string
		ask  Ask
		want string // the rows, or part of the error
		next string
	}{
		{"all", Ask{}, `[{"id":"0","name":"x"},{"id":"1","name":"x"},{"id":"2","name":"x"},{"id":"3","name":"x"},{"id":"4","name":"x"}]`, ""},
		{"fields", Ask{Fields: []string{"id"}, Limit: 2}, `[{"id":"0"},{"id":"1"}]`, "2:1"},
		{"goes on", Ask{Fields: []string{"id"}, Limit: 2, Cursor: "2:1"}, `[{"id":"2"},{"id":"3"}]`, "4:3"},
		{"ends", Ask{Fields: []string{"id"}, Limit: 2, Cursor: "4:3"}, `[{"id":"4"}]`, ""},
		{"rows went before it", Ask{Fields: []string{"id"}, Limit: 1, Cursor: "4:1"}, `[{"id":"2"}]`, "3:2"},
		{"its row went", Ask{Fields: []string{"id"}, Limit: 1, Cursor: "2:gone"}, `[{"id":"2"}]`, "3:2"},
		{"beyond", Ask{Cursor: "99:gone"}, `[]`, ""},
		{"omit", Ask{Omit: []string{"name"}, Limit: 1}, `[{"id":"0"}]`, "1:0"},
		{"empty values are left out", Ask{Fields: []string{"note", "id"}, Limit: 1}, `[{"id":"0"}]`, "1:0"},
		{"unknown field", Ask{Fields: []string{"nmae"}}, `did you mean name?`, ""},
		{"unknown omitted field", Ask{Omit: []string{"zzz"}}, `there is no field "zzz"`, ""},
		{"no cursor", Ask{Cursor: "next"}, `is no cursor`, ""},
		{"negative cursor", Ask{Cursor: "-1:a"}, `is no cursor`, ""},
		{"negative limit", Ask{Limit: -1}, `limit is -1`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			rows, count, err := cut(c.ask, items)
			if err != nil {
				if !strings.Contains(err.Error(), c.want) || gate.AsError(err).Kind != gate.ErrInvalid {
					t.Fatal(err)
				}
				return
			}
			got, err := json.Marshal(rows)
			if err != nil || string(got) != c.want || count.Cursor != c.next || count.Matched != 5 || count.Shown != len(rows) {
				t.Errorf("%s %+v, want %s and cursor %q", got, count, c.want, c.next)
			}
		})
	}
}

func TestCutBounds(t *testing.T) {
	rows, count, err := cut(Ask{}, many(5000, strings.Repeat("n", 40)))
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(rows)
	if err != nil || len(b) > MaxBytes || count.Cursor == "" || count.More == "" || count.Matched != 5000 {
		t.Errorf("%d bytes, %+v, %v", len(b), count, err)
	}
	rows, _, err = cut(Ask{}, many(2, strings.Repeat("n", 2*MaxBytes)))
	if err != nil || len(rows) != 1 {
		t.Errorf("a row larger than an answer: %d rows, %v; want it alone, so that the list goes on", len(rows), err)
	}
}

func FuzzCursor(f *testing.F) {
	for _, s := range []string{"", "2:1", ":", "99999999999999999999:1", "1", "-1:0", "2:\x00"} {
		f.Add(s, 2)
	}
	items := many(9, "x")
	f.Fuzz(func(t *testing.T, cursor string, limit int) {
		rows, count, err := cut(Ask{Cursor: cursor, Limit: limit}, items)
		if err == nil && (len(rows) > len(items) || count.Shown != len(rows)) {
			t.Fatalf("%d rows, %+v", len(rows), count)
		}
	})
}
