//go:build unix

package store_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"castellan/internal/gate"
	"castellan/internal/ledger"
	"castellan/internal/store"
	"castellan/internal/store/storetest"
)

const day = 24 * time.Hour

// verifiers lets the own verifier and the second one, in another language, judge the store's export.
func verifiers(t *testing.T, s *store.Store, keys ...ed25519.PublicKey) ledger.Result {
	t.Helper()
	ctx := context.Background()
	live, err := s.Verify(ctx)
	if err != nil || !live.OK {
		t.Fatalf("verify: %+v, %v", live.Broken, err)
	}
	var b bytes.Buffer
	if err := s.Export(ctx, &b); err != nil {
		t.Fatal(err)
	}
	res, err := ledger.VerifyExport(bytes.NewReader(b.Bytes()), ledger.Options{Keys: keys})
	if err != nil || !res.OK {
		t.Fatalf("verify export: %+v, %v", res.Broken, err)
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Log("no python3 here: the second verifier was not run")
		return res
	}
	path := filepath.Join(t.TempDir(), "export")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"../ledger/testdata/verify.py"}
	for _, k := range keys {
		args = append(args, "--key", ledger.FormatKey(s.ID(), ledger.Write, k))
	}
	out, err := exec.Command(python, append(args, path)...).Output()
	var second ledger.Result
	if e := json.Unmarshal(out, &second); err != nil || e != nil || !second.OK || second.Head != res.Head || second.Size != res.Size {
		t.Fatalf("the second verifier says %s (%v, %v)", out, err, e)
	}
	return res
}

func public(k ed25519.PrivateKey) ed25519.PublicKey { return k.Public().(ed25519.PublicKey) }

// history is a store that was written to, every ten days, for so many days before now.
func history(t *testing.T, url string, now *time.Time, days int, anchors store.Anchors) *store.Store {
	t.Helper()
	ctx := context.Background()
	end := *now
	s := storetest.OpenWith(t, store.Config{URL: url, Anchors: anchors, Clock: func() time.Time { return *now }})
	run, stop := context.WithCancel(ctx)
	ran := make(chan error, 1)
	go func() { ran <- s.Run(run) }()
	for d := days; d >= 0; d -= 10 {
		*now = end.Add(-time.Duration(d) * day)
		err := s.Update(ctx, func(tx gate.Tx) error {
			for i := range 4 {
				r := storetest.Record(i)
				r.At = *now
				if i == 0 {
					r.Kind = []string{"settings", "credential", "mandate", "state"}[d/10%4]
				}
				if _, err := tx.Append(r); err != nil {
					return err
				}
			}
			p := storetest.Plan(fmt.Sprintf("p-%d", d), *now)
			if p.State = gate.PlanDone; d == days {
				p.State = gate.PlanPaused
			}
			return errors.Join(tx.InsertPlan(p), tx.PutSealed(p.Plan.ID, "h", []byte("x")))
		})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			s.Observe(gate.Record{At: *now, Kind: "read", Operation: "list", Actor: "agent|ann", Parts: map[string]string{"args": "{}"}})
		}
	}
	*now = end
	stop()
	if err := <-ran; err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSweepStore(t *testing.T) { sweepStore(t, sqliteFile(t)) } // TestPostgreSQL has the other

func sweepStore(t *testing.T, url string) {
	ctx := context.Background()
	by := gate.Principal{Person: "ann", WayIn: "cli"}
	now := time.Date(2026, 6, 1, 4, 17, 0, 0, time.UTC)
	var a shelf
	s := history(t, url, &now, 200, &a) // 21 times 4 records, and 3 reads
	if changed, err := s.NoteRetention(ctx, 90*day, by); !changed || err != nil {
		t.Fatalf("%v %v", changed, err)
	}
	if changed, err := s.NoteRetention(ctx, 90*day, by); changed || err != nil {
		t.Fatalf("the same again: %v %v", changed, err)
	}
	a.set("", errors.New("anchor shelf: no answer"))
	if got, err := s.Sweep(ctx, store.Retention{For: 90 * day, By: by}); err == nil || got.Records+got.Parts+got.Plans > 0 || !strings.Contains(err.Error(), "nothing was removed") {
		t.Fatalf("without its anchor: %+v %v", got, err)
	}
	a.set("", nil)
	got, err := s.Sweep(ctx, store.Retention{For: 90 * day, By: by, Chunk: 7, Pause: time.Microsecond})
	if err != nil {
		t.Fatal(err)
	}
	// Older than 90 days are those of 200, 190, … 100 days ago: eleven times.
	if got.Records != 11*3+11*3 || got.Parts < 11*7 || got.Plans != 10 || got.More {
		t.Errorf("swept %+v", got)
	}
	if a.heads["shelf"] == "" {
		t.Error("the head was not anchored before")
	}
	res := verifiers(t, s, public(storetest.Key()))
	if w, r := res.Trees[ledger.Write].Withheld, res.Trees[ledger.Read].Withheld; w.Records != 33 || r.Records != 33 || w.Parts != 11 {
		t.Errorf("withheld %+v and %+v", w, r)
	}
	for op, want := range map[string]int{"retention": 1, "sweep_plans": 1} {
		if page, err := s.Search(ctx, ledger.Query{Op: op}); err != nil || len(page.Records) != want {
			t.Errorf("%d records %s, %v", len(page.Records), op, err)
		}
	}
	if page, err := s.Search(ctx, ledger.Query{Kind: ledger.KindSweep}); err != nil || len(page.Records) < 10 {
		t.Errorf("%d sweeps recorded: they go in chunks; %v", len(page.Records), err)
	}
	err = s.View(ctx, func(tx gate.Tx) error {
		if _, err := tx.Plan("p-200"); err != nil {
			t.Errorf("a plan that has not ended: %v", err)
		}
		if _, err := tx.Plan("p-190"); !errors.Is(err, gate.ErrStoreNotFound) {
			t.Errorf("an old plan: %v", err)
		}
		if _, err := tx.Sealed("p-190", "h"); !errors.Is(err, gate.ErrStoreNotFound) {
			t.Errorf("a sealed value of an old plan: %v", err)
		}
		_, err := tx.Plan("p-80")
		return err
	})
	if err != nil {
		t.Error(err)
	}
	size := res.Size
	if got, err := s.Sweep(ctx, store.Retention{For: 90 * day, By: by}); err != nil || got.Records+got.Parts+got.Plans > 0 {
		t.Errorf("the same again: %+v, %v", got, err)
	}
	if h, _ := s.Health(ctx); h.Size != size {
		t.Errorf("a sweep of nothing made %d records", h.Size-size)
	}
	if err := appendRecords(t, s, 1); err != nil {
		t.Error(err)
	}
}

// TestSweepRefusesTimeJumps: a clock that went wrong, even if records were written since, removes nothing until a person says so.
func TestSweepRefusesTimeJumps(t *testing.T) {
	ctx := context.Background()
	now := time.Date(2026, 6, 1, 4, 17, 0, 0, time.UTC)
	s := history(t, sqliteFile(t), &now, 30, nil)
	if _, err := s.NoteRetention(ctx, 365*day, gate.Principal{}); err != nil {
		t.Fatal(err)
	}
	now = now.Add(2 * 365 * day)
	if err := appendRecords(t, s, 300); err != nil {
		t.Fatal(err)
	}
	r := store.Retention{For: 365 * day}
	before, _ := s.Health(ctx)
	if got, err := s.Sweep(ctx, r); !errors.Is(err, ledger.ErrClock) || got.Records+got.Parts+got.Plans > 0 || !strings.Contains(err.Error(), "sweep --now") {
		t.Fatalf("after a jump: %+v %v", got, err)
	}
	if after, _ := s.Health(ctx); after.Size != before.Size {
		t.Error("a refused sweep wrote something")
	}
	r.Sure = true
	if got, err := s.Sweep(ctx, r); err != nil || got.Records == 0 {
		t.Fatalf("by a person: %+v %v", got, err)
	}
	now, r.Sure = now.Add(day), false
	if _, err := s.Sweep(ctx, r); err != nil {
		t.Errorf("the night after: %v", err)
	}
	verifiers(t, s, public(storetest.Key()))
	for _, keep := range []time.Duration{0, time.Hour} {
		if _, err := s.Sweep(ctx, store.Retention{For: keep, Sure: true}); err == nil {
			t.Errorf("a retention of %s was taken", keep)
		}
	}
}

func TestRotateStore(t *testing.T) { rotateStore(t, sqliteFile(t)) }

func rotateStore(t *testing.T, path string) {
	ctx := context.Background()
	s := storetest.Open(t, path)
	if err := appendRecords(t, s, 5); err != nil {
		t.Fatal(err)
	}
	another := storetest.Open(t, path) // of another process
	if err := appendRecords(t, another, 1); err != nil {
		t.Fatal(err)
	}
	next := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{9}, 32))
	head, err := s.Rotate(ctx, next, gate.Principal{Person: "ann", WayIn: "cli"})
	if err != nil {
		t.Fatal(err)
	}
	for name, old := range map[string]*store.Store{"itself": s, "another": another} {
		if err := appendRecords(t, old, 1); !errors.Is(err, gate.ErrReadOnlyStore) || !strings.Contains(err.Error(), "restart this process") {
			t.Errorf("%s: %v", name, err)
		}
	}
	n := storetest.OpenWith(t, store.Config{URL: path, Signer: next, Head: head})
	if err := appendRecords(t, n, 3); err != nil {
		t.Fatal(err)
	}
	verifiers(t, n, public(storetest.Key()))
	verifiers(t, n, public(next))
	if page, err := n.Search(ctx, ledger.Query{Kind: ledger.KindKey}); err != nil || len(page.Records) != 1 || page.Records[0].Actor != "|ann" {
		t.Errorf("%+v, %v", page.Records, err)
	}
	if _, err := n.Rotate(ctx, next, gate.Principal{}); err == nil {
		t.Error("rotated to the same key")
	}
}
