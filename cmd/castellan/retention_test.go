package main

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"castellan/internal/gate"
	"castellan/internal/ledger"
	"castellan/internal/store"
	"castellan/internal/store/storetest"
)

func TestRetentionSetting(t *testing.T) {
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{"": 0, "1d": day, "365d": 365 * day, "52w": 364 * day, "720h": 720 * time.Hour} {
		if got, err := retentionOf(text); got != want || err != nil {
			t.Errorf("%q: %s, %v", text, got, err)
		}
	}
	for _, text := range []string{"0d", "-1d", "+1d", "1h", "d", "365", "1y", "1.5d", " 1d", "1d ", "999999w", "999999999999d", "∞d"} {
		if got, err := retentionOf(text); err == nil {
			t.Errorf("%q: %s", text, got)
		}
	}
}

func TestNextSweep(t *testing.T) {
	for now, want := range map[string]string{
		"2026-06-01T04:16:59Z": "2026-06-01T04:17:00Z", "2026-06-01T04:17:00Z": "2026-06-02T04:17:00Z", "2026-06-01T23:00:00-07:00": "2026-06-03T04:17:00Z",
		"2026-12-31T12:00:00Z": "2027-01-01T04:17:00Z",
	} {
		at, err := time.Parse(time.RFC3339, now)
		if err != nil {
			t.Fatal(err)
		}
		if got := nextSweep(at).Format(time.RFC3339); got != want {
			t.Errorf("after %s comes %s, want %s", now, got, want)
		}
	}
}

// TestNightlySweep: of several processes on one store one sweeps, night after night, and one that cannot is stood in for.
func TestNightlySweep(t *testing.T) {
	ctx := context.Background()
	var mu sync.Mutex
	now := time.Now().UTC().Truncate(time.Second)
	clock := func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	set := func(at time.Time) { mu.Lock(); defer mu.Unlock(); now = at }
	url := filepath.Join(t.TempDir(), "own", "state.db")
	open := func() *lateStore {
		l := newLateStore(store.Config{URL: url, Signer: storetest.Key(), Clock: clock})
		if _, err := l.get(ctx); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	one, two := open(), open()
	if err := one.Update(ctx, func(tx gate.Tx) error {
		for i := range 5 {
			r := storetest.Record(i)
			r.At = now
			if _, err := tx.Append(r); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	keep := 2 * 24 * time.Hour
	sweepers := []*sweeper{newSweeper(one, keep, slog.New(slog.DiscardHandler)), newSweeper(two, keep, slog.New(slog.DiscardHandler))}
	count := func(q ledger.Query) int {
		t.Helper()
		page, err := one.store.Search(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		return len(page.Records)
	}
	for night := range 4 {
		at := nextSweep(clock())
		set(at.Add(time.Second))
		done := 0
		for _, w := range sweepers {
			if w.night(ctx, w.store.store, at, 0) {
				done++
			}
		}
		if done == 0 {
			t.Errorf("night %d: nobody swept", night)
		}
		for _, w := range sweepers { // those that only saw the claim look again
			if !w.night(ctx, w.store.store, at, 1) {
				t.Errorf("night %d: it was swept, and one tries on", night)
			}
		}
	}
	if n := count(ledger.Query{Op: "retention"}); n != 1 {
		t.Errorf("the setting was recorded %d times", n)
	}
	// The first records go in one night, what the first night recorded in another.
	if n := count(ledger.Query{Kind: "step"}); n != 0 {
		t.Errorf("%d old records are left", n)
	}
	if n := count(ledger.Query{Kind: ledger.KindSweep}); n == 0 || n > 3 {
		t.Errorf("%d sweeps", n)
	}
	r, err := one.store.Verify(ctx)
	if err != nil || !r.OK || r.Trees[ledger.Write].Withheld.Records != 5 {
		t.Errorf("%+v %v", r, err)
	}
	// run waits for the store, notes the setting, sweeps, and ends with its context.
	w := newSweeper(two, 3*24*time.Hour, slog.New(slog.DiscardHandler))
	w.clock = clock
	nights := 0
	run, stop := context.WithCancel(ctx)
	w.wait = func(ctx context.Context, until time.Time) error {
		if nights++; nights > 2 {
			stop()
			return ctx.Err()
		}
		set(until)
		return nil
	}
	w.run(run)
	if n := count(ledger.Query{Op: "retention"}); n != 2 {
		t.Errorf("a changed setting: %d records", n)
	}
	v := ""
	if err := one.View(ctx, func(tx gate.Tx) (err error) { v, err = tx.Get("sweep/done"); return err }); err != nil || v != clock().Format(time.DateOnly) {
		t.Errorf("last sweep %q, %v", v, err)
	}
}
