package storetest

import (
	"context"
	"testing"
	"time"

	"castellan/internal/gate"
	"castellan/internal/ledger"
	"castellan/internal/store"
)

func size(t *testing.T, s *store.Store, want int64) {
	t.Helper()
	h, err := s.Health(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if h.Size != want {
		t.Errorf("the write tree has %d records, want %d", h.Size, want)
	}
}

func verify(t *testing.T, s *store.Store) {
	t.Helper()
	r, err := s.Verify(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if !r.OK {
		t.Errorf("ledger is broken: %+v", r.Broken)
	}
}

func runAudit(t *testing.T, open func(*testing.T) *store.Store) {
	ctx := context.Background()

	t.Run("reads are flushed", func(t *testing.T) {
		s := open(t)
		for i := range 600 {
			r := Record(i)
			r.Kind, r.Effect = "read", gate.EffectRead
			s.Observe(r)
		}
		run, stop := context.WithCancel(ctx)
		done := make(chan error)
		go func() { done <- s.Run(run) }()
		time.Sleep(10 * time.Millisecond)
		stop()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		h, err := s.Health(ctx)
		if err != nil || h.Reads != 600 || h.Size != 0 || h.Dropped != 0 {
			t.Errorf("health %+v, %v", h, err)
		}
		verify(t, s)
	})

	t.Run("a search that is given up", func(t *testing.T) {
		s := open(t)
		for range 4 {
			if err := s.Update(ctx, func(tx gate.Tx) error {
				for i := range 1000 {
					if _, err := tx.Append(Record(i)); err != nil {
						return err
					}
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 20 {
			short, cancel := context.WithTimeout(ctx, time.Duration(i)*time.Millisecond/2)
			if _, err := s.Search(short, ledger.Query{Text: "not there"}); err != nil && short.Err() == nil {
				t.Errorf("search: %v", err)
			}
			cancel()
			if err := s.View(ctx, func(tx gate.Tx) error { _, err := tx.Get("kill"); return err }); err != nil {
				t.Fatalf("a view after a search that was given up: %v", err)
			}
		}
	})

	t.Run("search", func(t *testing.T) {
		s := open(t)
		start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
		err := s.Update(ctx, func(tx gate.Tx) error {
			for i := range 60 {
				r := Record(i)
				r.At = start.Add(time.Duration(i) * time.Minute)
				if i%3 == 0 {
					r.Operation = "snapshot_guest"
				}
				if i == 17 {
					r.Parts["error"] = "100% wrong_name' OR 1=1 --"
					r.Target = "a%_\x00b"
				}
				if _, err := tx.Append(r); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		count := func(q ledger.Query) (seqs []int64) {
			t.Helper()
			for range 100 {
				page, err := s.Search(ctx, q)
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range page.Records {
					seqs = append(seqs, r.Seq)
				}
				if q.Cursor = page.Next; q.Cursor == "" {
					return seqs
				}
			}
			t.Fatal("no end")
			return nil
		}
		all := count(ledger.Query{Limit: 7})
		if len(all) != 60 || all[0] != 59 || all[59] != 0 {
			t.Errorf("all records: %v", all)
		}
		for _, c := range []struct {
			name string
			q    ledger.Query
			want int
		}{
			{"operation", ledger.Query{Op: "snapshot_guest", Limit: 3}, 20},
			{"plan", ledger.Query{Plan: "p17"}, 1},
			{"window", ledger.Query{Since: start.Add(10 * time.Minute), Until: start.Add(20 * time.Minute)}, 10},
			{"status", ledger.Query{Status: "denied"}, 0},
			{"kind and effect", ledger.Query{Kind: "step", Effect: "change"}, 60},
			{"text", ledger.Query{Text: "100% WRONG_name' OR 1=1"}, 1},
			{"wildcards are text", ledger.Query{Text: "100%wrong"}, 0},
			{"a wildcard alone", ledger.Query{Text: "%"}, 1},
			{"target", ledger.Query{Target: "%_"}, 1},
			{"quotes", ledger.Query{Op: "' OR 1=1 --"}, 0},
			{"part of a target", ledger.Query{Target: "pv"}, 59},
		} {
			if got := count(c.q); len(got) != c.want {
				t.Errorf("%s: %d found, want %d: %v", c.name, len(got), c.want, got)
			}
		}
	})
}

// Gaps finds the records that say where reads may be missing.
func Gaps() ledger.Query { return ledger.Query{Tree: ledger.Read, Kind: ledger.KindGap} }
