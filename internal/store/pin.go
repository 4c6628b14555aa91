package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"castellan/internal/gate"
	"castellan/internal/ledger"
)

// pin is the head that somebody wrote down, and whether the ledger was found to contain it.
type pin struct {
	mu   sync.Mutex
	head *ledger.Checkpoint
	text string
	good atomic.Bool
}

func (p *pin) set(text string) error {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	cp, err := ledger.ParseCheckpoint(tidyHead(text))
	if err != nil {
		return err
	}
	p.head, p.text = &cp, text
	return nil
}

// tidyHead is a head as it was written, whatever a file or a form made of its line ends.
func tidyHead(s string) string {
	return strings.TrimSpace(strings.ReplaceAll(s, "\r\n", "\n")) + "\n"
}

// tailRecords is how many of the newest records are looked at before the first write.
const tailRecords = 256

// checkStart proves, before the first write, that the ledger contains the pinned head, and that heads and newest records are as they
// were signed.
func (s *Store) checkStart(ctx context.Context) error {
	p := &s.pin
	if p.good.Load() {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.good.Load() {
		return nil
	}
	if p.head != nil {
		if err := s.contains(ctx, *p.head, pinnedHead); err != nil {
			var pinned *pinError
			if errors.As(err, &pinned) {
				s.state.broke(pinned.reason)
			}
			return err
		}
	}
	var res ledger.Result
	err := s.db.read(ctx, func(q *session) error {
		var err error
		res, err = s.led.VerifyTail(ctx, &rows{ctx: ctx, q: q}, ledger.Options{Keys: s.keys()}, tailRecords)
		return err
	})
	if err != nil {
		return fmt.Errorf("look at the newest records: %w", err)
	}
	if !res.OK {
		reason := fmt.Sprintf("the ledger is broken at record %d of the %s tree (%s); run castellan audit verify, and restore a backup", res.Broken.Index, res.Broken.Tree, res.Broken.Reason)
		s.state.broke(reason)
		return fmt.Errorf("%w: %s", gate.ErrReadOnlyStore, reason)
	}
	p.good.Store(true)
	return nil
}

// CheckHead proves that the ledger still contains the head (a checkpoint's three lines, or the signed note) of the
// write tree. The error says whether it was cut off, rewritten or replaced.
func (s *Store) CheckHead(ctx context.Context, head string) error {
	cp, err := ledger.ParseCheckpoint(tidyHead(head))
	if err != nil {
		return fmt.Errorf("check head: %w", err)
	}
	return s.contains(ctx, cp, pinnedHead)
}

// pinError says that the ledger is not a continuation of a head that was written down.
type pinError struct{ reason string }

func (e *pinError) Error() string { return gate.ErrReadOnlyStore.Error() + ": " + e.reason }

func (e *pinError) Unwrap() []error { return []error{gate.ErrReadOnlyStore, ledger.ErrRewound} }

// origin of a head that is compared: how it is called, and what to do when the ledger lacks it.
type origin struct{ what, next string }

// pinnedHead is the head of the configuration.
var pinnedHead = origin{"the pinned head", "restore the newer state, or, if this is meant, pin the present head"}

func (s *Store) contains(ctx context.Context, old ledger.Checkpoint, from origin) error {
	refuse := func(format string, args ...any) error {
		return &pinError{fmt.Sprintf(format, args...) + "; " + from.next}
	}
	tree := old.Tree()
	if old.Store() != s.id {
		return refuse("%s is one of store %q and this is store %q: the ledger was replaced", from.what, old.Store(), s.id)
	}
	var at ledger.Checkpoint
	err := s.db.read(ctx, func(q *session) error {
		r := &rows{ctx: ctx, q: q}
		var err error
		if at, _, err = s.led.Head(ctx, r, tree); err != nil {
			return s.refusal(err)
		}
		switch {
		case at.Size < old.Size:
			return refuse("the ledger has %d records and %s %d: it was put back to an older state or cut off", at.Size, from.what, old.Size)
		case at.Size == old.Size && at.Root != old.Root:
			return refuse("the ledger has %d records like %s, but others: it was rewritten", at.Size, from.what)
		case at.Size == old.Size || old.Size == 0:
			return nil
		}
		if _, err := s.led.ProveGrowth(ctx, r, at, old); err != nil {
			return refuse("the first %d records are not those of %s: the ledger was rewritten (%v)", old.Size, from.what, err)
		}
		return nil
	})
	if err == nil && tree == ledger.Write {
		s.led.Committed(at)
	}
	return err
}
