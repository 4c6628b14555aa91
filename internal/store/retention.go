package store

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"castellan/internal/gate"
	"castellan/internal/ledger"
)

// Retention says how long what is recorded is kept.
type Retention struct {
	// For is how long; at least a day.
	For time.Duration
	// By is who runs the sweep.
	By gate.Principal
	// Sure says that a person has looked at the clock: a jump since the last sweep is no reason to refuse.
	Sure bool
	// Chunk is how many records go in one transaction, 0: 500, an eighth of a second; Chunks how many transactions for each
	// tree, 0: 200. What is left goes with the next sweep.
	Chunk  int64
	Chunks int
	// Pause between two transactions lets others write; 0: 100 ms.
	Pause time.Duration
}

// Swept says what a sweep removed.
type Swept struct {
	Before  time.Time `json:"before"` // what is older goes
	Records int64     `json:"records"`
	Parts   int64     `json:"parts"`
	Plans   int64     `json:"plans"`
	More    bool      `json:"more"` // a bound was met: the next sweep goes on
}

// LeastRetention is the shortest time for which anything is kept.
const LeastRetention = 24 * time.Hour

const (
	markRetention  = "store/retention"   // the setting as recorded last, in Go's form of a duration
	markSweepClock = "store/sweep_clock" // when the clock was last known to be right for a sweep
	markSwept      = "store/swept/"      // + tree: records below were dealt with
	plansAtOnce    = 200
)

// keptKinds are records that no sweep removes (their parts it does): what they say holds on. A passkey that was enrolled
// long ago still approves, and each time its enrolment is looked up.
func keptKinds() []string {
	return []string{"settings", "state", "credential", "mandate", "channel"}
}

// NoteRetention records a change of how long things are kept; 0 is for ever. It says whether there was one.
func (s *Store) NoteRetention(ctx context.Context, keep time.Duration, by gate.Principal) (bool, error) {
	if keep != 0 && keep < LeastRetention {
		return false, fmt.Errorf("note retention: %s is shorter than %s", keep, LeastRetention)
	}
	changed := false
	err := s.View(ctx, func(t gate.Tx) error {
		var err error
		_, changed, err = retentionDiffers(t, keep)
		return err
	})
	if err != nil || !changed {
		return false, err
	}
	err = s.Update(ctx, func(t gate.Tx) error {
		var err error
		changed, err = s.NoteRetentionIn(t, keep, by)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("note retention: %w", err)
	}
	return changed, nil
}

// NoteRetentionIn is NoteRetention within a transaction of this store.
func (s *Store) NoteRetentionIn(g gate.Tx, keep time.Duration, by gate.Principal) (bool, error) {
	t, ok := g.(*tx)
	if !ok {
		return false, errors.New("note retention: the transaction is not one of this store")
	}
	old, differs, err := retentionDiffers(t, keep)
	if err != nil || !differs {
		return false, err
	}
	text := func(d string) string {
		if d == "" || d == "0s" {
			return "for ever"
		}
		return d
	}
	if _, err := t.Append(gate.Record{Kind: "settings", Operation: "retention", Actor: by.Key(), WayIn: by.WayIn, Status: "ok", Effect: gate.EffectChange,
		Marks: map[string]string{"old": text(old), "new": text(keep.String())}}); err != nil {
		return false, err
	}
	at, err := t.Get(markSweepClock)
	if err == nil && at == "" {
		err = setMark(t.ctx, t.q, markSweepClock, t.now.UTC().Format(ledger.TimeLayout))
	}
	if err != nil {
		return false, err
	}
	return true, setMark(t.ctx, t.q, markRetention, keep.String())
}

func retentionDiffers(t gate.Tx, keep time.Duration) (old string, yes bool, err error) {
	old, err = t.Get(markRetention)
	return old, old != keep.String() && (old != "" || keep != 0), err
}

// Sweep removes what is older than the retention: records and parts of both trees, a chunk in each transaction, and
// plans that have ended. Leaf hashes stay, so the ledger verifies as before and says "withheld". Each chunk is a record.
// With anchors, the heads of both trees are brought there first: what goes is known outside. Where that, or the clock,
// fails, nothing is removed.
func (s *Store) Sweep(ctx context.Context, r Retention) (Swept, error) {
	if r.For < LeastRetention {
		return Swept{}, fmt.Errorf("sweep store: the retention %s is shorter than %s; nothing was removed", r.For, LeastRetention)
	}
	if r.Chunk <= 0 {
		r.Chunk = 500
	}
	if r.Chunks <= 0 {
		r.Chunks = 200
	}
	if r.Pause <= 0 {
		r.Pause = 100 * time.Millisecond
	}
	out := Swept{Before: s.clock().Add(-r.For).UTC()}
	trusted, err := s.sweepClock(ctx, r)
	if err != nil {
		return out, fmt.Errorf("sweep store: %w; nothing was removed", err)
	}
	due, err := s.due(ctx, out.Before)
	if err != nil {
		return out, fmt.Errorf("sweep store: %w; nothing was removed", err)
	}
	if slices.Contains([]bool{due[ledger.Write], due[ledger.Read]}, true) {
		known, err := s.anchorBoth(ctx, r, out.Before)
		if err != nil {
			return out, fmt.Errorf("sweep store: %w; nothing was removed", err)
		}
		for _, tree := range ledger.Trees() {
			if due[tree] {
				if err := s.sweepTree(ctx, r, tree, trusted, known[tree], &out); err != nil {
					return out, fmt.Errorf("sweep store: %w", err)
				}
			}
		}
	}
	if err := s.sweepPlans(ctx, r, &out); err != nil {
		return out, fmt.Errorf("sweep store: %w", err)
	}
	return out, s.Update(ctx, func(g gate.Tx) error {
		t := g.(*tx)
		return setMark(t.ctx, t.q, markSweepClock, t.now.UTC().Format(ledger.TimeLayout))
	})
}

// sweepClock follows the clock since it was last known to be right.
func (s *Store) sweepClock(ctx context.Context, r Retention) (time.Time, error) {
	if r.Sure {
		return s.clock(), nil
	}
	var trusted time.Time
	err := s.db.read(ctx, func(q *session) error {
		text, err := getMark(ctx, q, markSweepClock)
		if err != nil {
			return err
		}
		if text != "" {
			if trusted, err = time.Parse(ledger.TimeLayout, text); err != nil {
				return fmt.Errorf("read the time of the last sweep: %w", err)
			}
		}
		return s.led.CheckClock(ctx, &rows{ctx: ctx, q: q}, trusted, 0)
	})
	if errors.Is(err, ledger.ErrClock) {
		err = fmt.Errorf("%w; when the present time is right, a person runs castellan audit sweep --now --clock-is-right", err)
	}
	return trusted, err
}

// due says in which trees something is old enough: time runs upward, so the first record that is left tells.
func (s *Store) due(ctx context.Context, before time.Time) (map[ledger.Tree]bool, error) {
	out := map[ledger.Tree]bool{}
	err := s.db.read(ctx, func(q *session) error {
		r := &rows{ctx: ctx, q: q}
		for _, tree := range ledger.Trees() {
			from, err := sweptBelow(ctx, q, tree)
			if err != nil {
				return err
			}
			if err := r.Scan(ctx, tree, from, from+1, func(rec *ledger.Record) error {
				out[tree] = rec.TS < before.Format(ledger.TimeLayout)
				return nil
			}); err != nil {
				return err
			}
		}
		return nil
	})
	return out, err
}

func sweptBelow(ctx context.Context, q *session, tree ledger.Tree) (int64, error) {
	text, err := getMark(ctx, q, markSwept+string(tree))
	if err != nil || text == "" {
		return 0, err
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, nil // looked at from the start again
	}
	return n, nil
}

// anchorBoth records the head of the read tree in the write tree, brings the head of that to the anchors, and returns
// how many records of each tree are then known outside.
func (s *Store) anchorBoth(ctx context.Context, r Retention, before time.Time) (map[ledger.Tree]int64, error) {
	var read, write ledger.Checkpoint
	var note string
	err := s.Update(ctx, func(g gate.Tx) error {
		t := g.(*tx)
		var err error
		if read, _, err = s.led.Head(t.ctx, &rows{ctx: t.ctx, q: t.q}, ledger.Read); err != nil {
			return err
		}
		_, err = t.Append(gate.Record{Kind: "state", Operation: "sweep", Actor: r.By.Key(), WayIn: r.By.WayIn, Status: "started", Effect: gate.EffectDestroy,
			Marks: map[string]string{"retention": r.For.String(), "before": before.Format(time.RFC3339), "read_size": strconv.FormatInt(read.Size, 10),
				"read_root": base64.StdEncoding.EncodeToString(read.Root[:])}})
		return err
	})
	if err != nil {
		return nil, err
	}
	if note, err = s.Head(ctx); err != nil {
		return nil, err
	}
	if write, err = ledger.ParseCheckpoint(note); err != nil {
		return nil, err
	}
	if s.anchors != nil {
		if err := s.anchors.Put(ctx, note); err != nil {
			return nil, fmt.Errorf("bring the head to the anchors first: %w", err)
		}
	}
	return map[ledger.Tree]int64{ledger.Write: write.Size, ledger.Read: read.Size}, nil
}

func (s *Store) sweepTree(ctx context.Context, r Retention, tree ledger.Tree, trusted time.Time, known int64, out *Swept) error {
	more := true
	for range r.Chunks {
		var did ledger.Swept
		err := s.db.write(func(ctx context.Context, q *session) error {
			b, err := s.begin(ctx, q) // the head first, as everywhere
			if err != nil {
				return err
			}
			from, err := sweptBelow(ctx, q, tree)
			if err != nil {
				return err
			}
			did, err = s.led.Sweep(ctx, &rows{ctx: ctx, q: q, clock: later(b.now, b.clock)}, ledger.Retention{Tree: tree, PartsBefore: out.Before, RecordsBefore: out.Before,
				Keep: keptKinds(), From: from, AnchoredSize: known, Trusted: trusted, MaxRecords: r.Chunk,
				Entry: ledger.Entry{Columns: ledger.Columns{Op: "sweep", Actor: tidy(r.By.Key(), ledger.MaxColumn), Status: "ok", Effect: string(gate.EffectDestroy)},
					Data: map[string]any{"before": out.Before.Format(time.RFC3339), "way_in": tidy(r.By.WayIn, maxShort)}}})
			if err != nil {
				return err
			}
			return setMark(ctx, q, markSwept+string(tree), strconv.FormatInt(did.Next, 10))
		})
		if err != nil {
			if errors.Is(err, ledger.ErrClock) {
				return err
			}
			return s.refusal(err)
		}
		if did.Receipt != nil {
			s.committed(did.Receipt.Checkpoint)
		}
		out.Records, out.Parts, more = out.Records+did.Records, out.Parts+did.Parts, did.More
		if !more {
			break
		}
		if err := pause(ctx, r.Pause); err != nil {
			return err
		}
	}
	out.More = out.More || more
	return nil
}

// sweepPlans removes plans that ended before the retention.
func (s *Store) sweepPlans(ctx context.Context, r Retention, out *Swept) error {
	ended := []any{}
	for _, st := range []gate.PlanState{gate.PlanDone, gate.PlanFailed, gate.PlanUnknown, gate.PlanDenied, gate.PlanExpired, gate.PlanWithdrawn, gate.PlanStale} {
		ended = append(ended, string(st))
	}
	old := func(t *tx) (ids []any, err error) {
		err = t.q.each(t.ctx, func(scan func(...any) error) error {
			var id string
			err := scan(&id)
			ids = append(ids, decode(id))
			return err
		}, `SELECT id FROM plans WHERE created < ? AND state IN (?`+strings.Repeat(", ?", len(ended)-1)+`) ORDER BY created, id LIMIT ?`,
			append(append([]any{micros(out.Before)}, ended...), plansAtOnce)...)
		return ids, err
	}
	for range r.Chunks {
		var n int
		if err := s.View(ctx, func(g gate.Tx) error {
			ids, err := old(g.(*tx))
			n = len(ids)
			return err
		}); err != nil || n == 0 {
			return err
		}
		if err := s.Update(ctx, func(g gate.Tx) error {
			t := g.(*tx)
			ids, err := old(t)
			if n = len(ids); err != nil || n == 0 {
				return err
			}
			for _, table := range []string{"sealed WHERE plan", "locks WHERE plan", "plans WHERE id"} {
				for _, id := range ids {
					if _, err := t.q.exec(t.ctx, `DELETE FROM `+table+` = ?`, id); err != nil {
						return err
					}
				}
			}
			_, err = t.Append(gate.Record{Kind: "state", Operation: "sweep_plans", Actor: r.By.Key(), WayIn: r.By.WayIn, Status: "ok", Effect: gate.EffectDestroy,
				Sizes: map[string]int{"plans": n}, Marks: map[string]string{"before": out.Before.Format(time.RFC3339)}})
			return err
		}); err != nil {
			return err
		}
		if out.Plans += int64(n); n < plansAtOnce {
			return nil
		}
		if err := pause(ctx, r.Pause); err != nil {
			return err
		}
	}
	out.More = true
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("pause between two chunks: %w", ctx.Err())
	}
}
