package ledgertest

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"castellan/internal/ledger"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// Key returns a fixed signing key for tests.
func Key(name string) ed25519.PrivateKey {
	seed := sha256.Sum256([]byte(name))
	return ed25519.NewKeyFromSeed(seed[:])
}

// Log returns a Log of store "test" with Key("test") and a clock that moves one
// second on at each look.
func Log(t testing.TB) *ledger.Log {
	t.Helper()
	var mu sync.Mutex
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	l, err := ledger.New(ledger.Config{Store: "test", Signer: Key("test"), Now: func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(time.Second)
		return now
	}})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Entry returns the n-th of a varied series of entries.
func Entry(n int) ledger.Entry {
	e := ledger.Entry{
		Columns: ledger.Columns{
			Kind: []string{"plan", "step", "receipt"}[n%3], Op: []string{"guest_power", "snapshot_guest"}[n%2],
			Actor: fmt.Sprintf("agent-%d", n%4), Client: "test", Target: fmt.Sprintf("pve/site/vm/%d", 100+n%7),
			Status: []string{"ok", "denied"}[n%5/4], Effect: []string{"change", "destroy"}[n%2], Plan: fmt.Sprintf("p%d", n/3),
		},
		Data: map[string]any{"digest": fmt.Sprintf("%064x", n), "rung": "none", "step": n},
	}
	if n%2 == 0 {
		e.Parts = append(e.Parts, ledger.Part{Name: "args", Body: fmt.Appendf(nil, `{"n":%d}`, n)})
	}
	if n%3 == 0 {
		e.Parts = append(e.Parts, ledger.Part{Name: "output", Body: fmt.Appendf(nil, "output of %d: %%_'\" \u00e4", n)})
	}
	return e
}

// Fill appends n entries in one transaction, each signed for itself.
func Fill(t testing.TB, db DB, l *ledger.Log, tree ledger.Tree, n int) {
	t.Helper()
	ctx := context.Background()
	if err := db.Update(ctx, func(r Rows) error {
		for i := range n {
			if _, err := l.Append(ctx, r, tree, Entry(i)); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// Records returns deep copies of all records of a tree.
func Records(t testing.TB, db DB, tree ledger.Tree) []ledger.Record {
	t.Helper()
	ctx := context.Background()
	var out []ledger.Record
	if err := db.View(ctx, func(r Rows) error {
		return r.Scan(ctx, tree, math.MinInt64, math.MaxInt64, func(rec *ledger.Record) error {
			out = append(out, clone(*rec))
			return nil
		})
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

func clone(r ledger.Record) ledger.Record {
	r.Header, r.Hashes, r.Sig = bytes.Clone(r.Header), bytes.Clone(r.Hashes), bytes.Clone(r.Sig)
	r.Parts = slices.Clone(r.Parts)
	for i := range r.Parts {
		r.Parts[i].Body = bytes.Clone(r.Parts[i].Body)
	}
	return r
}

// Run holds the implementation behind open to the contract of the row
// interfaces. open returns a new, empty DB.
func Run(t *testing.T, open func(t *testing.T) DB) {
	ctx := context.Background()
	update := func(t *testing.T, db DB, fn func(Rows) error) {
		t.Helper()
		if err := db.Update(ctx, fn); err != nil {
			t.Fatal(err)
		}
	}
	same := func(t *testing.T, what string, want, got any) {
		t.Helper()
		if reflect.DeepEqual(want, got) {
			return
		}
		if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
			t.Errorf("%s (-want +got):\n%s", what, d)
		}
	}

	t.Run("an empty store has zero heads and no rows", func(t *testing.T) {
		db := open(t)
		for _, tree := range ledger.Trees() {
			update(t, db, func(r Rows) error {
				h, err := r.Head(ctx, tree)
				same(t, "head", ledger.Head{}, h)
				b, err2 := r.Hashes(ctx, tree, 0, 100)
				same(t, "hashes", []byte(nil), b)
				return errors.Join(err, err2)
			})
			same(t, "records", []ledger.Record(nil), Records(t, db, tree))
		}
	})

	t.Run("records come back as they were put", func(t *testing.T) {
		db := open(t)
		records := []ledger.Record{
			{Index: 0, Header: []byte(`{"a":"ä"}`), Hashes: bytes.Repeat([]byte{1}, 32), Columns: ledger.Columns{TS: "2026-01-01T00:00:00.000000Z", Kind: "k"}},
			{Index: 1, Header: []byte(`{}`), Hashes: bytes.Repeat([]byte{2}, 64), Sig: bytes.Repeat([]byte{3}, 100),
				Columns: ledger.Columns{TS: "2026-01-01T00:00:01.000000Z", Kind: "k", Op: "o", Actor: "a'b", Client: "c", Target: "t%_\\", Status: "s", Effect: "e", Plan: "p"},
				Parts:   []ledger.Part{{Name: "a", Salt: [32]byte{9}, Body: []byte("x\x00y")}, {Name: "b", Salt: [32]byte{8}, Body: []byte{}}}},
		}
		head := ledger.Head{Size: 2, Frontier: bytes.Repeat([]byte{7}, 32), Note: "line\n\n— x y\n"}
		update(t, db, func(r Rows) error {
			return errors.Join(r.Insert(ctx, ledger.Write, records), r.SetHead(ctx, ledger.Write, head))
		})
		same(t, "records", records, Records(t, db, ledger.Write))
		same(t, "other tree", []ledger.Record(nil), Records(t, db, ledger.Read))
		update(t, db, func(r Rows) error {
			h, err := r.Head(ctx, ledger.Write)
			same(t, "head", head, h)
			return err
		})
	})

	t.Run("ranges are half open", func(t *testing.T) {
		db, l := open(t), Log(t)
		Fill(t, db, l, ledger.Write, 600)
		all := Records(t, db, ledger.Write)
		for _, w := range [][2]int64{{0, 0}, {0, 1}, {1, 2}, {255, 513}, {599, 700}, {-5, 3}, {600, 601}, {5, 2}, {math.MinInt64, math.MaxInt64}} {
			var want, got []int64
			var wantHashes, gotHashes []byte
			for _, r := range all {
				if r.Index >= w[0] && r.Index < w[1] {
					want = append(want, r.Index)
					wantHashes = append(wantHashes, r.Hashes...)
				}
			}
			update(t, db, func(r Rows) (err error) {
				if err := r.Scan(ctx, ledger.Write, w[0], w[1], func(r *ledger.Record) error {
					got = append(got, r.Index)
					same(t, "record", all[r.Index], *r)
					return nil
				}); err != nil {
					return err
				}
				gotHashes, err = r.Hashes(ctx, ledger.Write, w[0], w[1])
				return err
			})
			same(t, fmt.Sprint("scan ", w), want, got)
			same(t, fmt.Sprint("hashes ", w), wantHashes, gotHashes)
		}
		stop := errors.New("stop")
		err := db.View(ctx, func(r Rows) error {
			n := 0
			return r.Scan(ctx, ledger.Write, 0, 600, func(*ledger.Record) error {
				if n++; n == 3 {
					return stop
				}
				return nil
			})
		})
		if !errors.Is(err, stop) {
			t.Errorf("scan returned %v, not the callback's error", err)
		}
	})

	t.Run("a taken index is refused", func(t *testing.T) {
		db, l := open(t), Log(t)
		Fill(t, db, l, ledger.Write, 3)
		before := Records(t, db, ledger.Write)
		if err := db.Update(ctx, func(r Rows) error { return r.Insert(ctx, ledger.Write, before[1:2]) }); err == nil {
			t.Error("index 1 was inserted twice")
		}
		same(t, "records", before, Records(t, db, ledger.Write))
	})

	t.Run("what fails changes nothing", func(t *testing.T) {
		db, l := open(t), Log(t)
		Fill(t, db, l, ledger.Write, 5)
		before := Records(t, db, ledger.Write)
		no := errors.New("no")
		if err := db.Update(ctx, func(r Rows) error {
			_, err := l.Append(ctx, r, ledger.Write, Entry(5), Entry(6))
			_, err2 := r.DropRecords(ctx, ledger.Write, 0, 2)
			return errors.Join(no, err, err2, r.PutSession(ctx, ledger.Session{ID: "x"}))
		}); !errors.Is(err, no) {
			t.Fatal(err)
		}
		same(t, "records", before, Records(t, db, ledger.Write))
		Fill(t, db, l, ledger.Write, 2)
		if got := Records(t, db, ledger.Write); len(got) != 7 || got[6].Index != 6 {
			t.Errorf("%d records after the roll-back and two more, want 7", len(got))
		}
		update(t, db, func(r Rows) error {
			s, err := r.Sessions(ctx)
			same(t, "sessions", []ledger.Session(nil), s)
			return err
		})
	})

	t.Run("appenders do not collide", func(t *testing.T) {
		db := open(t)
		var wg sync.WaitGroup
		for w := range 4 {
			l := Log(t) // as if each were a process of its own
			wg.Go(func() {
				for i := range 15 {
					if err := db.Update(ctx, func(r Rows) error { _, err := l.Append(ctx, r, ledger.Write, Entry(w*100+i)); return err }); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		recs := Records(t, db, ledger.Write)
		if len(recs) != 60 {
			t.Fatalf("%d records, want 60", len(recs))
		}
		for i, r := range recs {
			if r.Index != int64(i) {
				t.Fatalf("record %d has index %d", i, r.Index)
			}
		}
	})

	t.Run("select agrees with MatchColumns", func(t *testing.T) {
		db, l := open(t), Log(t)
		Fill(t, db, l, ledger.Write, 120)
		update(t, db, func(r Rows) error { _, err := r.DropRecords(ctx, ledger.Write, 3, 6); return err })
		all := Records(t, db, ledger.Write)
		rng := rand.New(rand.NewPCG(1, 2))
		odd := []string{"%", "_", "'", "\\", "\"", "100' OR '1'='1", "PVE", "*"}
		for n := range 300 {
			var q ledger.Query
			pick := all[rng.IntN(len(all))].Columns
			for _, f := range []struct {
				dst *string
				v   string
			}{{&q.Kind, pick.Kind}, {&q.Op, pick.Op}, {&q.Actor, pick.Actor}, {&q.Client, pick.Client}, {&q.Status, pick.Status}, {&q.Effect, pick.Effect}, {&q.Plan, pick.Plan}} {
				switch rng.IntN(5) {
				case 0:
					*f.dst = f.v
				case 1:
					if n%10 == 0 {
						*f.dst = odd[rng.IntN(len(odd))]
					}
				}
			}
			switch rng.IntN(4) {
			case 0:
				q.Target = odd[rng.IntN(len(odd))]
			case 1:
				q.Target = "vm/10"
			}
			if rng.IntN(3) == 0 {
				q.Since = time.Date(2026, 1, 2, 3, 4, rng.IntN(90), rng.IntN(2)*500, time.UTC)
			}
			if rng.IntN(3) == 0 {
				q.Until = time.Date(2026, 1, 2, 3, 5, rng.IntN(90), rng.IntN(2), time.UTC)
			}
			below, limit := int64(rng.IntN(130)), 1+rng.IntN(40)
			var want []int64
			for _, rec := range slices.Backward(all) {
				if len(want) < limit && rec.Index < below && rec.Header != nil && q.MatchColumns(rec.Columns) {
					want = append(want, rec.Index)
				}
			}
			var got []int64
			if err := db.View(ctx, func(r Rows) error {
				recs, err := r.Select(ctx, ledger.Write, q, below, limit)
				for _, rec := range recs {
					got = append(got, rec.Index)
					same(t, "selected record", all[rec.Index], rec)
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
			same(t, fmt.Sprintf("%+v below %d limit %d", q, below, limit), want, got)
		}
	})

	t.Run("dropping keeps hashes and signatures", func(t *testing.T) {
		db, l := open(t), Log(t)
		Fill(t, db, l, ledger.Write, 12)
		want := Records(t, db, ledger.Write)
		update(t, db, func(r Rows) error {
			n, err := r.DropParts(ctx, ledger.Write, 0, 4, []string{"output", "nothing"})
			same(t, "parts dropped by name", int64(2), n)
			m, err2 := r.DropParts(ctx, ledger.Write, 6, 7, nil)
			same(t, "parts dropped", int64(2), m)
			k, err3 := r.DropRecords(ctx, ledger.Write, 8, 10)
			same(t, "records dropped", int64(2), k)
			k, err4 := r.DropRecords(ctx, ledger.Write, 8, 10)
			same(t, "records dropped again", int64(0), k)
			return errors.Join(err, err2, err3, err4)
		})
		for i := range want {
			switch {
			case i < 4:
				want[i].Parts = slices.DeleteFunc(want[i].Parts, func(p ledger.Part) bool { return p.Name == "output" })
			case i == 6:
				want[i].Parts = nil
			case i == 8 || i == 9:
				want[i].Header, want[i].Parts, want[i].Columns = nil, nil, ledger.Columns{}
			}
		}
		got := Records(t, db, ledger.Write)
		same(t, "records", want, got)
		if got[8].Header != nil {
			t.Error("a swept header must come back as nil")
		}
	})

	t.Run("sessions", func(t *testing.T) {
		db := open(t)
		at := time.Date(2026, 1, 2, 3, 4, 5, 678000, time.UTC)
		a := ledger.Session{ID: "a", Host: "h", PID: 7, Opened: at, Seen: at.Add(time.Second)}
		b := ledger.Session{ID: "b", Opened: at, Seen: at}
		update(t, db, func(r Rows) error { return errors.Join(r.PutSession(ctx, b), r.PutSession(ctx, a)) })
		a.Seen = at.Add(time.Minute)
		update(t, db, func(r Rows) error { return r.PutSession(ctx, a) })
		update(t, db, func(r Rows) error {
			s, err := r.Sessions(ctx)
			same(t, "sessions", []ledger.Session{a, b}, s)
			was, err2 := r.DropSession(ctx, "b")
			again, err3 := r.DropSession(ctx, "b")
			same(t, "dropped", []bool{true, false}, []bool{was, again})
			return errors.Join(err, err2, err3)
		})
	})
}
