package identity

import (
	"fmt"
	"slices"
	"sync"

	"castellan/internal/gate"
)

// changes knows the ledger's latest record of each account's change. An account's row that was put back from earlier is
// genuine in itself: only this tells that a role, a password or the account was taken away since.
type changes struct {
	mu   sync.Mutex
	from uint64 // all records before were looked at
	last map[string]uint64
}

// changing are the events that write an account, or remove it.
var changing = []string{"account_added", "roles_set", "account_disabled", "password_set", "password_changed", "logins_set", "account_removed"}

// latestOf collects the latest change of each account from an index on.
func latestOf(tx gate.Tx, from uint64, into map[string]uint64) error {
	note := func(r gate.Recorded) bool {
		if p := r.Marks["person"]; p != "" && r.Status == "ok" && slices.Contains(changing, r.Operation) {
			into[p] = max(into[p], r.Index)
		}
		return false
	}
	if from > 0 {
		return gate.Walk(tx, gate.RecordFilter{Kind: recordAuth, From: from}, note)
	}
	for _, op := range changing { // the first time most records are sign-ins, which need not be read
		if err := gate.Walk(tx, gate.RecordFilter{Kind: recordAuth, Operation: op}, note); err != nil {
			return err
		}
	}
	return nil
}

// follow takes up what was recorded since; tx must be one that only reads.
func (c *changes) follow(tx gate.Tx) error {
	newest, err := tx.Recorded(gate.RecordFilter{Limit: 1})
	if err != nil || len(newest) == 0 {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if newest[0].Index < c.from {
		return nil
	}
	if err := latestOf(tx, c.from, c.last); err != nil {
		return err
	}
	c.from = newest[0].Index + 1
	return nil
}

// latest is the index of the latest change of an account; false when the ledger has none.
func (c *changes) latest(tx gate.Tx, name string) (uint64, bool, error) {
	c.mu.Lock()
	from := c.from
	index, found := c.last[name]
	c.mu.Unlock()
	since := map[string]uint64{}
	if err := latestOf(tx, from, since); err != nil {
		return 0, false, err
	}
	if later, ok := since[name]; ok {
		return later, true, nil
	}
	return index, found, nil
}

// current refuses an account's row that is not of its latest change. What retention took from the ledger cannot tell.
func (i *Identity) current(tx gate.Tx, a *account) error {
	index, found, err := i.changes.latest(tx, a.Name)
	if err != nil {
		return err
	}
	if found && a.Record != 0 && a.Record != index+1 {
		return fmt.Errorf("read account: %w: the ledger knows of a later change", errForged)
	}
	return nil
}

// appendChange records the change of an account; the result goes into its row.
func (i *Identity) appendChange(tx gate.Tx, e event) (uint64, error) {
	index, err := i.append(tx, e)
	return index + 1, err
}
