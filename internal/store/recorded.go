package store

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"castellan/internal/gate"
	"castellan/internal/ledger"
)

const (
	defaultRecorded = 50
	maxRecorded     = 1000
)

// Recorded finds records of the write tree, newest first; those that this transaction, or another that shares it, is about
// to append come first. A row that is not what its hash says is an error.
func (t *tx) Recorded(f gate.RecordFilter) ([]gate.Recorded, error) {
	limit := f.Limit
	if limit <= 0 {
		limit = defaultRecorded
	}
	limit = min(limit, maxRecorded)
	below := int64(math.MaxInt64)
	if f.Below > 0 && f.Below < math.MaxInt64 {
		below = int64(f.Below)
	}
	from := int64(min(f.From, math.MaxInt64))
	q := ledger.Query{Kind: f.Kind, Op: f.Operation, Status: f.Status, Plan: f.Plan}
	var out []gate.Recorded
	if t.batch != nil {
		for n, e := range slices.Backward(t.batch.entries) {
			index := t.batch.size + int64(n)
			if len(out) == limit || index < from {
				return out, nil
			}
			if index >= below || !q.MatchColumns(e.Columns) {
				continue
			}
			data, err := ledger.Canonical(e.Data)
			if err != nil {
				return nil, fmt.Errorf("look at record %d: %w", index, err)
			}
			r, err := recorded(index, e.Time, e.Columns, data)
			if err != nil {
				return nil, err
			}
			out = append(out, r)
		}
	}
	rows, err := (&rows{ctx: t.ctx, q: t.q}).between(t.ctx, ledger.Write, q, from, below, limit-len(out))
	if err != nil {
		return nil, fmt.Errorf("look for records: %w", err)
	}
	for _, row := range rows {
		h, err := ledger.ParseHeader(row.Header)
		leaf := tlog.RecordHash(row.Header)
		if err != nil || h.Columns != row.Columns || h.Seq != row.Index || !bytes.HasPrefix(row.Hashes, leaf[:]) {
			return nil, fmt.Errorf("look for records: record %d was changed: castellan audit verify", row.Index)
		}
		at, err := time.Parse(ledger.TimeLayout, h.TS)
		if err != nil {
			return nil, fmt.Errorf("look at record %d: %w", row.Index, err)
		}
		r, err := recorded(row.Index, at, h.Columns, h.Data)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

func recorded(index int64, at time.Time, c ledger.Columns, data json.RawMessage) (gate.Recorded, error) {
	r := gate.Recorded{Index: uint64(index), Record: gate.Record{At: at, Kind: c.Kind, Operation: c.Op, Actor: c.Actor, Client: c.Client, Target: c.Target,
		Status: c.Status, Effect: gate.Effect(c.Effect), Plan: c.Plan, Marks: map[string]string{}}}
	var fields map[string]json.RawMessage
	if len(data) > 0 {
		if err := json.Unmarshal(data, &fields); err != nil {
			return r, fmt.Errorf("look at record %d: %w", index, err)
		}
	}
	for name, raw := range fields {
		var text string
		if json.Unmarshal(raw, &text) == nil {
			r.Marks[name] = text
		}
	}
	if raw := fields["step"]; raw != nil {
		if err := json.Unmarshal(raw, &r.Step); err != nil {
			return r, fmt.Errorf("look at record %d: %w", index, err)
		}
	}
	r.WayIn, r.Digest, r.UPID = r.Marks["way_in"], r.Marks["digest"], r.Marks["upid"]
	return r, nil
}
