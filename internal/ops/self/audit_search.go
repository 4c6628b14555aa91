package self

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"castellan/internal/gate"
	"castellan/internal/ops/table"
)

type auditSearchIn struct {
	Since     string `json:"since,omitempty" jsonschema:"7d or RFC 3339"`
	Until     string `json:"until,omitempty"`
	Operation string `json:"operation,omitempty"`
	Actor     string `json:"actor,omitempty"`
	Object    string `json:"object,omitempty" jsonschema:"e.g. guest/101"`
	Status    string `json:"status,omitempty"`
	Effect    string `json:"effect,omitempty"`
	Text      string `json:"text,omitempty" jsonschema:"literal"`
	Payloads  bool   `json:"payloads,omitempty"`
	Limit     int    `json:"limit,omitempty"`
	Cursor    string `json:"cursor,omitempty"`
}

type auditSearchOut struct {
	Records []AuditRow `json:"records"` // newest first
	Shown   int        `json:"shown"`
	Cursor  string     `json:"cursor,omitempty"`
	Notice  string     `json:"notice,omitempty"`
}

// HoldsFreeText: payloads bring what guests, logs and other callers said.
func (o auditSearchOut) HoldsFreeText() bool {
	for _, r := range o.Records {
		if len(r.Parts) > 0 {
			return true
		}
	}
	return false
}

func auditSearch(a Audit) *gate.Operation {
	return gate.Control(gate.Declaration{
		Name: "audit_search", Summary: "Who did what, from the ledger, newest first; default the last 7 days. Read", Kinds: []gate.Kind{gate.KindRead},
		Keywords: "audit log history record calls actor trail who did what when", Toolset: "full",
	}, func(ctx context.Context, desk gate.Desk, in auditSearchIn) (auditSearchOut, error) {
		if a == nil {
			return auditSearchOut{}, noAudit()
		}
		if in.Limit < 0 || in.Limit > 500 {
			return auditSearchOut{}, gate.Fail(gate.ErrInvalid, "Give 1 to 500, or nothing for 50.", "limit %d is out of range", in.Limit)
		}
		q := AuditQuery{Operation: in.Operation, Actor: in.Actor, Target: in.Object, Status: in.Status, Effect: in.Effect, Text: in.Text, Payloads: in.Payloads,
			Limit: in.Limit, Cursor: in.Cursor}
		var err error
		if q.Since, err = parseWhen(orElse(in.Since, "7d"), desk.Now()); err != nil {
			return auditSearchOut{}, err
		}
		if in.Until != "" {
			if q.Until, err = parseWhen(in.Until, desk.Now()); err != nil {
				return auditSearchOut{}, err
			}
		}
		notice := ""
		if desk.Scoped() { // what others did with guests beyond the scope is not this caller's to read
			q.Actor = desk.Principal().Key()
			notice = "Only this caller's own records are shown."
		}
		page, err := a.Search(ctx, q)
		if err != nil {
			return auditSearchOut{}, err
		}
		out := auditSearchOut{Records: page.Records, Cursor: page.Cursor, Notice: strings.TrimSpace(notice + " " + page.Notice)}
		if out.Records == nil {
			out.Records = []AuditRow{}
		}
		if out.Records, err = fit(out.Records); err != nil {
			return auditSearchOut{}, err
		}
		if len(out.Records) < len(page.Records) {
			out.Cursor = ""
			out.Notice = strings.TrimSpace(out.Notice + fmt.Sprintf(" %d of %d records fit into one answer: call again with limit=%d.", len(out.Records), len(page.Records), len(out.Records)))
		}
		out.Shown = len(out.Records)
		return out, nil
	})
}

// fit keeps as many rows as one answer may hold.
func fit(rows []AuditRow) ([]AuditRow, error) {
	size := 0
	for i, r := range rows {
		b, err := json.Marshal(r)
		if err != nil {
			return nil, fmt.Errorf("write record: %w", err)
		}
		if size += len(b) + 1; size > table.MaxBytes && i > 0 {
			return rows[:i], nil
		}
	}
	return rows, nil
}

func noAudit() error {
	return gate.Fail(gate.ErrUnavailable, "Use castellan audit on the command line.", "this process has no ledger to read")
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// parseWhen takes a moment, or a span back from now: 30m, 24h, 7d, 2w.
func parseWhen(s string, now time.Time) (time.Time, error) {
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, nil
		}
	}
	if s != "" {
		unit := map[byte]time.Duration{'m': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour, 'w': 7 * 24 * time.Hour}[s[len(s)-1]]
		var n int
		if _, err := fmt.Sscanf(s[:len(s)-1], "%d", &n); err == nil && unit > 0 && n > 0 && n < 100_000 && fmt.Sprint(n) == s[:len(s)-1] {
			return now.Add(-time.Duration(n) * unit), nil
		}
	}
	return time.Time{}, gate.Fail(gate.ErrInvalid, "Give it as 30m, 24h, 7d, 2w, or as 2026-01-31T00:00:00Z.", "the time %q is not understood", clip(s, 40))
}
