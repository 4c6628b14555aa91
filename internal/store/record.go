package store

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"castellan/internal/gate"
	"castellan/internal/ledger"
)

// Append adds a record to the write tree. Its index is certain once Update has returned without an error.
func (t *tx) Append(r gate.Record) (uint64, error) {
	if err := t.writable(); err != nil {
		return 0, err
	}
	e, err := entry(r, t.now)
	if err != nil {
		return 0, fmt.Errorf("append record: %w", err)
	}
	index := t.batch.size + int64(len(t.batch.entries))
	t.batch.entries = append(t.batch.entries, e)
	return uint64(index), nil
}

// Bounds that keep a header below what the ledger takes, whatever others have written into it: one oversized record
// must not keep those from being appended that share its transaction.
const (
	maxShort   = 512
	maxObjects = 12 << 10 // bytes of all object names together
	maxSizes   = 32
	maxParts   = 32
)

// entry turns what the gate tells into what the ledger keeps.
func entry(r gate.Record, now time.Time) (ledger.Entry, error) {
	if r.Kind == "" {
		return ledger.Entry{}, fmt.Errorf("it has no kind")
	}
	e := ledger.Entry{Time: r.At, Columns: ledger.Columns{
		Kind: tidy(r.Kind, maxShort), Op: tidy(r.Operation, ledger.MaxColumn), Actor: tidy(r.Actor, ledger.MaxColumn),
		Client: tidy(r.Client, ledger.MaxColumn), Target: tidy(r.Target, ledger.MaxColumn), Status: tidy(r.Status, maxShort),
		Effect: tidy(string(r.Effect), maxShort), Plan: tidy(r.Plan, maxShort),
	}}
	if y := r.At.UTC().Year(); r.At.IsZero() || y < 1970 || y > 9999 {
		e.Time = now
	}
	data := map[string]any{}
	for name, text := range map[string]string{"way_in": r.WayIn, "digest": r.Digest, "upid": r.UPID} {
		if text != "" {
			data[name] = tidy(text, maxShort)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Marks)) {
		if _, own := data[name]; !own && partName(name) && len(data) < maxParts && r.Marks[name] != "" {
			data[name] = tidy(r.Marks[name], maxShort)
		}
	}
	if r.Step != 0 {
		data["step"] = r.Step
	}
	if r.Duration != 0 {
		data["duration_ms"] = r.Duration.Milliseconds()
	}
	var objects []string
	bytes := 0
	for _, o := range r.Objects {
		o = tidy(o, maxShort)
		if bytes += len(o); bytes > maxObjects {
			break
		}
		objects = append(objects, o)
	}
	if len(objects) > 0 {
		data["objects"] = objects
	}
	if left := len(r.Objects) - len(objects); left > 0 {
		data["objects_left_out"] = left
	}
	sizes := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(r.Sizes)) {
		if len(sizes) < maxSizes {
			sizes[tidy(name, 64)] = r.Sizes[name]
		}
	}
	if len(r.Parts) > maxParts {
		return ledger.Entry{}, fmt.Errorf("it has %d parts, at most %d are possible", len(r.Parts), maxParts)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Parts)) {
		if !partName(name) {
			return ledger.Entry{}, fmt.Errorf("part name %q is not made of a-z, 0-9, _, . and -", name)
		}
		body := r.Parts[name]
		if len(body) > ledger.MaxPart {
			sizes[name] = len(body)
			body = strings.ToValidUTF8(body[:ledger.MaxPart], "")
		}
		e.Parts = append(e.Parts, ledger.Part{Name: name, Body: []byte(body), Withheld: r.Withhold})
	}
	if len(sizes) > 0 {
		data["sizes"] = sizes
	}
	if len(data) > 0 {
		e.Data = data
	}
	return e, nil
}

func partName(s string) bool {
	return s != "" && len(s) <= 64 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789_.-") == ""
}

// tidy bounds a text of a header: control characters, which JSON writes six times as long, are replaced.
func tidy(s string, limit int) string {
	clean := true
	for i := 0; i < len(s) && clean; i++ {
		clean = s[i] >= 0x20 && s[i] != 0x7f && s[i] < 0x80
	}
	if !clean {
		s = strings.Map(func(r rune) rune {
			if r < 0x20 || r == 0x7f {
				return '\uFFFD'
			}
			return r
		}, s) // which also replaces invalid bytes
	}
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit-len("…")], "") + "…"
}
