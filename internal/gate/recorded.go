package gate

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// A row of the store may be an older one that somebody put back: its seal is good. What the ledger says happened since is
// what tells, so whatever can be used up, ended or switched is looked up there.

// errSentBefore says that the ledger has a step as started that the plan's row calls pending.
var errSentBefore = errors.New("the ledger says that this step was sent before: the plan's row in the store is an older one that was put back")

// maxPages bounds a walk over records: 100,000 of them.
const maxPages = 100

// Walk calls enough with the records that match, newest first, until that has enough.
func Walk(tx Tx, f RecordFilter, enough func(Recorded) bool) error {
	f.Limit = 1000
	for range maxPages {
		page, err := tx.Recorded(f)
		if err != nil {
			return err
		}
		for _, r := range page {
			if enough(r) {
				return nil
			}
		}
		if len(page) < f.Limit {
			return nil
		}
		if f.Below = page[len(page)-1].Index; f.Below == 0 {
			return nil
		}
	}
	return fmt.Errorf("look for records of kind %s: there are more than %d", f.Kind, maxPages*1000)
}

// unsent refuses a step that was sent before.
func unsent(tx Tx, plan string, step int) error {
	sent := false
	err := Walk(tx, RecordFilter{Kind: "step", Plan: plan}, func(r Recorded) bool {
		sent = r.Step == step
		return sent
	})
	if err == nil && sent {
		return errSentBefore
	}
	return err
}

// unended refuses a plan that the ledger knows to have ended.
func unended(tx Tx, plan string) error {
	ended := ""
	err := Walk(tx, RecordFilter{Kind: "plan_end", Plan: plan}, func(r Recorded) bool {
		if PlanState(r.Status).Ended() {
			ended = r.Status
		}
		return ended != ""
	})
	if err == nil && ended != "" {
		return Fail(ErrStale, "Plan anew, and look at audit_verify.", "the ledger says that plan %s is %s: its row in the store is an older one that was put back", plan, ended)
	}
	return err
}

// unspent refuses a mandate whose row does not know of its latest use.
func unspent(tx Tx, m *Mandate) error {
	last, known := "", ""
	err := Walk(tx, RecordFilter{Kind: "approval", From: m.Record}, func(r Recorded) bool {
		if r.Marks["mandate"] == m.ID {
			last = r.Plan
		}
		return last != ""
	})
	if n := len(m.Uses); n > 0 {
		known = m.Uses[n-1].Plan
	}
	if err == nil && last != "" && last != known {
		return Fail(ErrDenied, "Revoke it and give another; look at audit_verify.", "mandate %s in the store is an older row that was put back: the ledger knows of a later use", m.ID)
	}
	return err
}

// revoked is by whom the ledger says that a mandate was revoked.
func revoked(tx Tx, m *Mandate) (string, error) {
	by := ""
	err := Walk(tx, RecordFilter{Kind: "mandate", Status: "revoked", From: m.Record}, func(r Recorded) bool {
		if r.Marks["mandate"] == m.ID {
			by = "by " + r.Actor + " at " + r.At.UTC().Format(time.RFC3339)
		}
		return by != ""
	})
	return by, err
}

// turned remembers the latest record of each switch, so that only later ones are looked at.
type turned struct {
	mu   sync.Mutex
	from uint64 // all before were looked at
	last map[string]Record
}

// read gives the value that the ledger has of a switch, "" for off; found is false when it was never turned.
// tx must be one that only reads.
func (t *turned) read(tx Tx, operation string) (value string, found bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	newest, err := tx.Recorded(RecordFilter{Limit: 1})
	if err != nil {
		return "", false, err
	}
	if len(newest) > 0 && newest[0].Index >= t.from {
		seen := map[string]bool{}
		err := Walk(tx, RecordFilter{Kind: "settings", From: t.from}, func(r Recorded) bool {
			if !seen[r.Operation] && (r.Operation == "kill" || r.Operation == "arm") {
				seen[r.Operation], t.last[r.Operation] = true, r.Record
			}
			return false
		})
		if err != nil {
			return "", false, err
		}
		t.from = newest[0].Index + 1
	}
	r, found := t.last[operation]
	if r.Status == "on" {
		value = orText(r.Marks["value"], "on")
	}
	return value, found, nil
}
