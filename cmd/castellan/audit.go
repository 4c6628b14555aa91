package main

import (
	"context"
	"encoding/json"
	"slices"

	"castellan/internal/ledger"
	"castellan/internal/ops/self"
)

// auditOf is the ledger as castellan's own operations ask it.
type auditOf struct{ store *lateStore }

var _ self.Audit = auditOf{}

// Search finds records, newest first, in bounded time.
func (a auditOf) Search(ctx context.Context, q self.AuditQuery) (self.AuditPage, error) {
	s, err := a.store.get(ctx)
	if err != nil {
		return self.AuditPage{}, err
	}
	page, err := s.Search(ctx, ledger.Query{Since: q.Since, Until: q.Until, Op: q.Operation, Actor: q.Actor, Target: q.Target, Status: q.Status,
		Effect: q.Effect, Text: q.Text, Limit: q.Limit, Cursor: q.Cursor})
	if err != nil {
		return self.AuditPage{}, err
	}
	out := self.AuditPage{Cursor: page.Next, Notice: page.Notice}
	for _, f := range page.Records {
		out.Records = append(out.Records, rowOf(f, q.Payloads))
	}
	return out, nil
}

func rowOf(f ledger.Found, payloads bool) self.AuditRow {
	row := self.AuditRow{Tree: string(f.Tree), Index: f.Seq, At: f.TS, Kind: f.Kind, Operation: f.Op, Actor: f.Actor, Client: f.Client, Target: f.Target,
		Status: f.Status, Effect: f.Effect, Plan: f.Plan}
	var data map[string]any
	if json.Unmarshal(f.Data, &data) == nil {
		for name, v := range data {
			text, ok := v.(string)
			switch {
			case !ok: // steps, sizes and objects
			case name == "upid":
				row.UPID = text
			case payloads:
				if row.Marks == nil {
					row.Marks = map[string]string{}
				}
				row.Marks[name] = text
			}
		}
	}
	for _, p := range f.Header.Parts {
		at := slices.IndexFunc(f.Parts, func(q ledger.Part) bool { return q.Name == p.Name })
		switch {
		case at < 0:
			row.Withheld = append(row.Withheld, p.Name)
		case payloads:
			if row.Parts == nil {
				row.Parts = map[string]string{}
			}
			row.Parts[p.Name] = string(f.Parts[at].Body)
		}
	}
	return row
}

// Verify checks the whole ledger.
func (a auditOf) Verify(ctx context.Context, head string) (self.AuditReport, error) {
	s, err := a.store.get(ctx)
	if err != nil {
		return self.AuditReport{}, err
	}
	var heads []string
	if head != "" {
		heads = []string{head}
	}
	r, err := s.Verify(ctx, heads...)
	if err != nil {
		return self.AuditReport{}, err
	}
	out := self.AuditReport{OK: r.OK, Size: uint64(max(0, r.Size)), Head: r.Head}
	if r.Broken != nil {
		out.Broken = &self.AuditBroken{Index: uint64(max(0, r.Broken.Index)), Reason: string(r.Broken.Tree) + " tree: " + r.Broken.Reason}
	}
	return out, nil
}
