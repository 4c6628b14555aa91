package ledger

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"
	"time"
	"unicode/utf8"
)

// ErrEntry says that an entry cannot become a record, whatever the store does.
var ErrEntry = errors.New("encode record")

// makeRecord turns an entry into the record that stands at index seq of tree.
func makeRecord(tree Tree, seq int64, e Entry, now time.Time, random io.Reader) (Record, error) {
	when := e.Time
	if when.IsZero() {
		when = now
	}
	cols := e.Columns
	for _, f := range cols.fields() {
		*f.v = clip(*f.v)
	}
	cols.TS = when.UTC().Format(TimeLayout)
	if len(cols.TS) != len(TimeLayout) {
		return Record{}, fmt.Errorf("%w: time %s is outside the years 0 to 9999", ErrEntry, cols.TS)
	}
	if cols.Kind == "" {
		return Record{}, fmt.Errorf("%w: it has no kind", ErrEntry)
	}
	if len(e.Parts) > maxParts {
		return Record{}, fmt.Errorf("%w: %d parts, at most %d are possible", ErrEntry, len(e.Parts), maxParts)
	}
	parts := append([]Part(nil), e.Parts...)
	sort.Slice(parts, func(i, j int) bool { return lessUTF16(parts[i].Name, parts[j].Name) })
	h := Header{Columns: cols, Tree: tree, Seq: seq}
	total := 0
	for i := range parts {
		p := &parts[i]
		if !partName(p.Name) || i > 0 && parts[i-1].Name == p.Name {
			return Record{}, fmt.Errorf("%w: part name %q is empty, odd or given twice", ErrEntry, p.Name)
		}
		if total += len(p.Body); len(p.Body) > MaxPart || total > MaxParts {
			return Record{}, fmt.Errorf("%w: its parts up to %s have %d bytes; %d for one and %d for all are possible; shorten them and say so in the text", ErrEntry, p.Name, total, MaxPart, MaxParts)
		}
		if p.Salt == [32]byte{} {
			if _, err := io.ReadFull(random, p.Salt[:]); err != nil {
				return Record{}, fmt.Errorf("draw salt: %w", err)
			}
		}
		h.Parts = append(h.Parts, PartRef{p.Name, p.Commitment()})
	}
	if len(e.Data) > 0 {
		data, err := Canonical(cleaned(e.Data, 0))
		if err != nil {
			return Record{}, fmt.Errorf("%w: %w", ErrEntry, err)
		}
		h.Data = data
	}
	header, err := h.encode()
	if err != nil {
		return Record{}, fmt.Errorf("%w: %w", ErrEntry, err)
	}
	if len(header) > MaxHeader {
		return Record{}, fmt.Errorf("%w: its header has %d bytes, at most %d are possible; put long text into a part", ErrEntry, len(header), MaxHeader)
	}
	parts = slices.DeleteFunc(parts, func(p Part) bool { return p.Withheld })
	return Record{Index: seq, Header: header, Columns: cols, Parts: parts}, nil
}

// clip makes any text fit for a column: valid, bounded. Text from outside must
// never keep a record from being written.
func clip(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= MaxColumn {
		return s
	}
	cut := MaxColumn - len("…")
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}

func cleaned(v any, depth int) any {
	if depth > maxDepth {
		return v
	}
	switch v := v.(type) {
	case string:
		return strings.ToValidUTF8(v, "\uFFFD")
	case []string:
		out := make([]any, len(v))
		for i := range v {
			out[i] = cleaned(v[i], depth+1)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = cleaned(v[i], depth+1)
		}
		return out
	case map[string]string:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[strings.ToValidUTF8(k, "\uFFFD")] = cleaned(e, depth+1)
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[strings.ToValidUTF8(k, "\uFFFD")] = cleaned(e, depth+1)
		}
		return out
	}
	return v
}

func partName(s string) bool {
	if s == "" || len(s) > 64 {
		return false
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_' || c == '.' || c == '-') {
			return false
		}
	}
	return true
}
