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
	if reason := s.kept.why(); reason != "" {
		return fmt.Errorf("%w: %s", gate.ErrReadOnlyStore, reason)
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

// Probe tries to write, durably, and proves the head of the ledger. It asks no anchor: Ready is called by reads too.
func (s *Store) Probe(ctx context.Context) error {
	return s.update(ctx, func(g gate.Tx) error {
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
	case errors.Is(err, ledger.ErrTampered) && s.replaced():
		reason = "the key that signs the ledger was replaced; restart this process, so that it uses the new one"
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

// replaced says whether the ledger has another key by now, as its records tell.
func (s *Store) replaced() bool {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	yes := false
	err := s.db.read(ctx, func(q *session) error {
		var err error
		yes, err = s.led.Replaced(ctx, &rows{ctx: ctx, q: q})
		return err
	})
	return err == nil && yes
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
	if _, err := s.record(true, gate.Record{Kind: "settings", Operation: "accept_clock", Actor: by.Key(), WayIn: by.WayIn, Status: "ok", Effect: gate.EffectChange}); err != nil {
		return fmt.Errorf("accept the clock: %w", err)
	}
	return nil
}
