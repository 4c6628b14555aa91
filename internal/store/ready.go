package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"castellan/internal/gate"
	"castellan/internal/ledger"
)

// condition is what is known of whether the ledger can be written.
type condition struct {
	mu     sync.Mutex
	tried  bool      // whether anything has been written, or tried, by this process
	reason string    // why not, "" when it can
	probed time.Time // the last try
}

// probeAfter is how long a reason stands before writing is tried again.
const probeAfter = time.Second

func (c *condition) wrote() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tried, c.reason = true, ""
}

func (c *condition) broke(reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tried, c.reason = true, reason
	c.probed = time.Now()
}

func (c *condition) due() (reason string, probe bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.tried {
		return "", true
	}
	if c.reason != "" && time.Since(c.probed) >= probeAfter {
		c.probed = time.Now()
		return c.reason, true
	}
	return c.reason, false
}

// Ready says whether writes can be recorded now; the error, which wraps gate.ErrReadOnlyStore, says why not and what
// to do. The first call writes a mark, compares the pinned head and looks at the newest records; later ones cost next to nothing unless something
// is wrong.
func (s *Store) Ready(ctx context.Context) error {
	if err := s.checkStart(ctx); err != nil {
		return err
	}
	reason, probe := s.state.due()
	if probe {
		return s.Probe(ctx)
	}
	if reason != "" {
		return fmt.Errorf("%w: %s", gate.ErrReadOnlyStore, reason)
	}
	return nil
}

// Probe tries to write, durably, and proves the head of the ledger.
func (s *Store) Probe(ctx context.Context) error {
	return s.Update(ctx, func(g gate.Tx) error {
		t := g.(*tx)
		if _, _, err := s.led.Head(t.ctx, &rows{ctx: t.ctx, q: t.q, clock: t.now}, ledger.Write); err != nil {
			return s.refusal(err)
		}
		return setMark(t.ctx, t.q, markProbe, t.now.UTC().Format(ledger.TimeLayout))
	})
}

// refusal names the reason when nothing can be written, and remembers it.
func (s *Store) refusal(err error) error {
	if errors.Is(err, gate.ErrReadOnlyStore) {
		return err
	}
	reason := ""
	switch {
	case errors.Is(err, ledger.ErrTampered):
		reason = "the ledger was changed from outside; run castellan audit verify, which names the record, and restore a backup"
	case errors.Is(err, ledger.ErrRewound):
		reason = "the ledger was put back to an older state; restore the newer one"
	default:
		if reason = s.db.kind.unwritable(err); reason == "" {
			return fmt.Errorf("update store: %w", err)
		}
	}
	s.state.broke(reason)
	return fmt.Errorf("%w: %s: %w", gate.ErrReadOnlyStore, reason, err)
}

// clockSlack is how far the clock may stand behind the newest record: clocks of several machines differ.
const clockSlack = 2 * time.Minute

// checkClock refuses to write while the clock stands before the newest record: an approval or a kill switch that
// had run out would hold again.
func (s *Store) checkClock(now, mark time.Time) error {
	if !now.Before(mark.Add(-clockSlack)) {
		return nil
	}
	reason := fmt.Sprintf("the clock says %s, but the ledger has a record of %s; set the clock right (or, if that record's time was wrong, have the operator accept the present time)",
		now.UTC().Format(time.RFC3339), mark.UTC().Format(time.RFC3339))
	s.state.broke(reason)
	return fmt.Errorf("%w: %s", gate.ErrReadOnlyStore, reason)
}

// AcceptClock takes the present time as right although the ledger has later records, and records that.
func (s *Store) AcceptClock(ctx context.Context, by gate.Principal) error {
	if err := s.checkStart(ctx); err != nil {
		return err
	}
	now := s.clock()
	e, err := entry(gate.Record{At: now, Kind: "settings", Operation: "accept_clock", Actor: by.Key(), WayIn: by.WayIn, Status: "ok", Effect: gate.EffectChange}, now)
	if err != nil {
		return fmt.Errorf("accept the clock: %w", err)
	}
	var got []ledger.Receipt
	err = s.db.write(func(ctx context.Context, q *session) error {
		var err error
		got, err = s.led.Append(ctx, &rows{ctx: ctx, q: q, clock: now}, ledger.Write, e) // which also sets the mark
		return err
	})
	if err != nil {
		return s.refusal(err)
	}
	s.led.Committed(got[0].Checkpoint)
	s.state.wrote()
	return nil
}
