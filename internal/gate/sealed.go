package gate

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
)

// ErrChanged says that a plan's row is not what the gate wrote: whoever can write the database is not whom the gate obeys.
var ErrChanged = errors.New("the row was changed in the database, or put there by hand")

// sealing is a store whose plans carry a seal over all that their rows say, and over the version: digests alone can be
// computed by anybody. A row that was changed is refused; an older row of the same plan is caught by its version, or by
// what the ledger says of the plan's steps.
type sealing struct {
	Store
	sealer Sealer
	log    *slog.Logger
	told   *told
}

// told remembers the plans whose rows were complained of: once each is enough.
type told struct {
	mu  sync.Mutex
	ids map[string]bool
}

func (s sealing) complain(id string) {
	s.told.mu.Lock()
	before := s.told.ids[id]
	if len(s.told.ids) < 10_000 {
		s.told.ids[id] = true
	}
	s.told.mu.Unlock()
	if !before {
		s.log.Error("a plan in the store is not what was written; it is not used", "plan", clip(id, 40))
	}
}

func (s sealing) Update(ctx context.Context, f func(Tx) error) error {
	return s.Store.Update(ctx, func(tx Tx) error { return f(sealedTx{tx, s}) })
}

func (s sealing) View(ctx context.Context, f func(Tx) error) error {
	return s.Store.View(ctx, func(tx Tx) error { return f(sealedTx{tx, s}) })
}

type sealedTx struct {
	Tx
	s sealing
}

// writtenAs is what a seal covers. It is taken of the record as it comes back from a row, so that writing changes nothing.
func writtenAs(r *PlanRecord, version int64) ([]byte, error) {
	bare := *r
	bare.Seal = nil
	text, err := json.Marshal(bare)
	if err != nil {
		return nil, err
	}
	var back PlanRecord
	if err := json.Unmarshal(text, &back); err != nil {
		return nil, err
	}
	if text, err = json.Marshal(back); err != nil {
		return nil, err
	}
	sum := sha256.Sum256(fmt.Appendf(text, " version %d", version))
	return sum[:], nil
}

func (t sealedTx) seal(r *PlanRecord, version int64) error {
	sum, err := writtenAs(r, version)
	if err != nil {
		return fmt.Errorf("seal plan %s: %w", r.Plan.ID, err)
	}
	if r.Seal, err = t.s.sealer.Seal(sum, "plan/"+r.Plan.ID); err != nil {
		return fmt.Errorf("seal plan %s: %w", r.Plan.ID, err)
	}
	return nil
}

// whole says whether the record is the one that the gate wrote at this version.
func (t sealedTx) whole(r *PlanRecord) bool {
	was, err := t.s.sealer.Open(r.Seal, "plan/"+r.Plan.ID)
	if err != nil || len(r.Seal) == 0 || len(r.Steps) != len(r.Plan.Steps) {
		return false
	}
	sum, err := writtenAs(r, r.Version)
	return err == nil && subtle.ConstantTimeCompare(sum, was) == 1
}

func (t sealedTx) InsertPlan(r *PlanRecord) error {
	if err := t.seal(r, 1); err != nil {
		return err
	}
	return t.Tx.InsertPlan(r)
}

func (t sealedTx) UpdatePlan(r *PlanRecord) error {
	if err := t.seal(r, r.Version+1); err != nil {
		return err
	}
	return t.Tx.UpdatePlan(r)
}

func (t sealedTx) Plan(id string) (*PlanRecord, error) {
	r, err := t.Tx.Plan(id)
	if err != nil {
		return nil, err
	}
	if r.Plan.ID != id || !t.whole(r) {
		t.s.complain(id)
		return nil, &Error{Kind: ErrInternal, Message: fmt.Sprintf("plan %s in the store was not written by castellan, or changed since", clip(id, 40)), Changed: "nothing",
			Hint: "Plan anew, and look at audit_verify.", Cause: ErrChanged}
	}
	return r, nil
}

// OpenPlan takes a changed row for none: a new plan is made.
func (t sealedTx) OpenPlan(effectDigest, requester string) (*PlanRecord, error) {
	r, err := t.Tx.OpenPlan(effectDigest, requester)
	if err == nil && (!t.whole(r) || r.Plan.EffectDigest != effectDigest || r.Plan.Requester.Key() != requester) {
		return nil, ErrStoreNotFound
	}
	return r, err
}

// ListPlans shows a changed row as a plan of which nothing is known, where plans of every state are asked for, and leaves
// it out elsewhere.
func (t sealedTx) ListPlans(f PlanFilter) ([]*PlanRecord, string, error) {
	page, next, err := t.Tx.ListPlans(f)
	var out []*PlanRecord
	for _, r := range page {
		switch {
		case !t.whole(r):
			t.s.complain(r.Plan.ID)
			if len(f.States) == 0 {
				p := Plan{ID: clip(r.Plan.ID, 40), Sentence: "(" + ErrChanged.Error() + ")", Requester: r.Plan.Requester, Created: r.Plan.Created}
				out = append(out, &PlanRecord{Plan: p, State: PlanUnknown, Note: ErrChanged.Error()})
			}
		case len(f.States) == 0 || slices.Contains(f.States, r.State): // a column beside it may say otherwise
			out = append(out, r)
		}
	}
	return out, next, err
}
