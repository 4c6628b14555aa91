// Package storetest is the contract that every database behind the store keeps.
package storetest

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"castellan/internal/gate"
	"castellan/internal/ledger"
	"castellan/internal/store"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// Key is the ledger's key in tests.
func Key() ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed([]byte("a seed of thirty-two bytes, once"))
}

// Open opens the store at url and closes it at the end of the test.
func Open(t testing.TB, url string) *store.Store {
	t.Helper()
	return OpenWith(t, store.Config{URL: url})
}

// OpenWith is Open with more than an address; the key is Key unless given.
func OpenWith(t testing.TB, c store.Config) *store.Store {
	t.Helper()
	if c.Signer == nil {
		c.Signer = Key()
	}
	s, err := store.Open(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// Plan makes a proposed plan.
func Plan(id string, created time.Time) *gate.PlanRecord {
	return &gate.PlanRecord{
		State: gate.PlanProposed,
		Plan: gate.Plan{ID: id, Operation: "guest_power", Args: json.RawMessage(`{"guest":"101","name":"<&>"}`),
			Requester: gate.Principal{Agent: "agent", Person: "ann", WayIn: "cli", Strength: gate.StrengthAccount},
			Created:   created, Expires: created.Add(time.Hour), Sentence: "start VM 101", EffectDigest: "e-" + id, Digest: "d-" + id,
			Facts: gate.Facts{Effect: gate.EffectChange, Kinds: []gate.Kind{gate.KindStart}}},
		Steps:  []gate.StepRecord{{State: gate.StepPending}},
		Intent: 7,
	}
}

// Record makes a record of the write tree.
func Record(n int) gate.Record {
	return gate.Record{Kind: "step", Operation: "guest_power", Actor: "agent|ann", Client: "test", WayIn: "cli", Target: "pve",
		Objects: []string{fmt.Sprintf("guest/%d", n)}, Status: "ok", Effect: gate.EffectChange, Plan: fmt.Sprintf("p%d", n), Step: 1,
		Digest: "d", Duration: time.Second, Parts: map[string]string{"args": fmt.Sprintf(`{"n":%d}`, n)}}
}

var errUndo = errors.New("undo this")

// Run holds a database to the contract; fresh gives the address of an empty one.
func Run(t *testing.T, fresh func(testing.TB) string) {
	ctx := context.Background()
	now := time.Now().UTC().Truncate(time.Microsecond)
	open := func(t *testing.T) *store.Store { t.Helper(); return Open(t, fresh(t)) }
	update := func(t *testing.T, s *store.Store, f func(gate.Tx) error) {
		t.Helper()
		if err := s.Update(ctx, f); err != nil {
			t.Fatal(err)
		}
	}

	t.Run("plans", func(t *testing.T) {
		s := open(t)
		want := Plan("one", now)
		update(t, s, func(tx gate.Tx) error { return tx.InsertPlan(want) })
		if want.Version != 1 {
			t.Errorf("version %d after inserting", want.Version)
		}
		if err := s.Update(ctx, func(tx gate.Tx) error { return tx.InsertPlan(Plan("one", now)) }); !errors.Is(err, gate.ErrStoreConflict) {
			t.Errorf("a second plan of one id: %v", err)
		}
		var got *gate.PlanRecord
		view(t, s, func(tx gate.Tx) (err error) { got, err = tx.Plan("one"); return err })
		if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
			t.Errorf("plan changed on its way:\n%s", d)
		}
		view(t, s, func(tx gate.Tx) error {
			if _, err := tx.Plan("none"); !errors.Is(err, gate.ErrStoreNotFound) {
				t.Errorf("an absent plan: %v", err)
			}
			return nil
		})

		stale := *got
		got.State = gate.PlanApproved
		update(t, s, func(tx gate.Tx) error { return tx.UpdatePlan(got) })
		if got.Version != 2 {
			t.Errorf("version %d after updating", got.Version)
		}
		if err := s.Update(ctx, func(tx gate.Tx) error { return tx.UpdatePlan(&stale) }); !errors.Is(err, gate.ErrStoreConflict) {
			t.Errorf("an update on an old version: %v", err)
		}
		if err := s.Update(ctx, func(tx gate.Tx) error { return tx.UpdatePlan(Plan("none", now)) }); !errors.Is(err, gate.ErrStoreNotFound) {
			t.Errorf("an update of an absent plan: %v", err)
		}
		err := s.Update(ctx, func(tx gate.Tx) error {
			if err := tx.UpdatePlan(got); err != nil {
				return err
			}
			return errUndo
		})
		if !errors.Is(err, errUndo) || got.Version != 2 {
			t.Errorf("after a rolled-back update: version %d, error %v", got.Version, err)
		}
		update(t, s, func(tx gate.Tx) error { return tx.UpdatePlan(got) })
	})

	t.Run("open plan", func(t *testing.T) {
		s := open(t)
		p := Plan("one", now)
		update(t, s, func(tx gate.Tx) error { return tx.InsertPlan(p) })
		find := func(digest, who string) error {
			return s.View(ctx, func(tx gate.Tx) error {
				got, err := tx.OpenPlan(digest, who)
				if err == nil && got.Plan.ID != "one" {
					t.Errorf("found %s", got.Plan.ID)
				}
				return err
			})
		}
		if err := find("e-one", p.Plan.Requester.Key()); err != nil {
			t.Error(err)
		}
		for _, miss := range [][2]string{{"e-two", p.Plan.Requester.Key()}, {"e-one", "agent|bob"}} {
			if err := find(miss[0], miss[1]); !errors.Is(err, gate.ErrStoreNotFound) {
				t.Errorf("open plan %v: %v", miss, err)
			}
		}
		p.State = gate.PlanDone
		update(t, s, func(tx gate.Tx) error { return tx.UpdatePlan(p) })
		if err := find("e-one", p.Plan.Requester.Key()); !errors.Is(err, gate.ErrStoreNotFound) {
			t.Errorf("a plan that is done is still open: %v", err)
		}
	})

	t.Run("list plans", func(t *testing.T) {
		s := open(t)
		var all []string
		update(t, s, func(tx gate.Tx) error {
			for i := range 25 {
				p := Plan(fmt.Sprintf("p%02d", i), now.Add(time.Duration(i/2)*time.Second)) // pairs of one time
				if i%5 == 0 {
					p.State = gate.PlanDone
				}
				if i%7 == 0 {
					p.Plan.Requester.Person = "bob"
				}
				all = append(all, p.Plan.ID)
				if err := tx.InsertPlan(p); err != nil {
					return err
				}
			}
			return nil
		})
		slices.Reverse(all)
		list := func(f gate.PlanFilter) []string {
			t.Helper()
			var ids []string
			for range 30 {
				view(t, s, func(tx gate.Tx) error {
					plans, cursor, err := tx.ListPlans(f)
					for _, p := range plans {
						ids = append(ids, p.Plan.ID)
					}
					f.Cursor = cursor
					return err
				})
				if f.Cursor == "" {
					break
				}
			}
			return ids
		}
		for _, limit := range []int{0, 1, 3, 25, 1000} {
			if d := cmp.Diff(all, list(gate.PlanFilter{Limit: limit})); d != "" {
				t.Errorf("pages of %d:\n%s", limit, d)
			}
		}
		if got := list(gate.PlanFilter{States: []gate.PlanState{gate.PlanDone, gate.PlanFailed}, Limit: 2}); len(got) != 5 {
			t.Errorf("done or failed: %v", got)
		}
		if got := list(gate.PlanFilter{Requester: "agent|bob"}); len(got) != 4 {
			t.Errorf("of bob: %v", got)
		}
		if got := list(gate.PlanFilter{Since: now.Add(10 * time.Second)}); len(got) != 5 {
			t.Errorf("since: %v", got)
		}
		view(t, s, func(tx gate.Tx) error {
			if _, _, err := tx.ListPlans(gate.PlanFilter{Cursor: "' OR 1=1 --"}); gate.AsError(err) == nil || gate.AsError(err).Kind != gate.ErrInvalid {
				t.Errorf("a made-up cursor: %v", err)
			}
			return nil
		})
	})

	t.Run("locks", func(t *testing.T) {
		s := open(t)
		lock := func(object, plan string) (holder string) {
			update(t, s, func(tx gate.Tx) (err error) { holder, err = tx.Lock(object, plan, now); return err })
			return holder
		}
		if h := lock("site/guest/101", "a"); h != "" {
			t.Errorf("a free object is held by %q", h)
		}
		if h := lock("site/guest/101", "b"); h != "a" {
			t.Errorf("held by %q, want a", h)
		}
		if h := lock("site/guest/101", "a"); h != "" {
			t.Errorf("locking again: held by %q", h)
		}
		update(t, s, func(tx gate.Tx) error { return tx.Unlock("a") })
		if h := lock("site/guest/101", "b"); h != "" {
			t.Errorf("after unlocking: held by %q", h)
		}
	})

	t.Run("nonces", func(t *testing.T) {
		s := open(t)
		use := func(n string, expires time.Time) error {
			return s.Update(ctx, func(tx gate.Tx) error { return tx.UseNonce(n, expires) })
		}
		if err := use("n", now.Add(time.Minute)); err != nil {
			t.Error(err)
		}
		if err := use("n", now.Add(time.Minute)); !errors.Is(err, gate.ErrNonceUsed) {
			t.Errorf("a second use: %v", err)
		}
		if err := use("", now); err == nil {
			t.Error("an empty nonce was taken")
		}
		err := s.Update(ctx, func(tx gate.Tx) error {
			if err := tx.UseNonce("m", now.Add(time.Minute)); err != nil {
				return err
			}
			return errUndo
		})
		if !errors.Is(err, errUndo) {
			t.Error(err)
		}
		if err := use("m", now.Add(time.Minute)); err != nil {
			t.Errorf("a use that was rolled back counts: %v", err)
		}
	})

	t.Run("hits", func(t *testing.T) {
		s := open(t)
		update(t, s, func(tx gate.Tx) error {
			for i := range 10 {
				if err := tx.Hit("write/pve", now.Add(-time.Duration(i)*10*time.Minute)); err != nil {
					return err
				}
			}
			return tx.Hit("write/other", now)
		})
		view(t, s, func(tx gate.Tx) error {
			n, err := tx.Count("write/pve", now.Add(-time.Hour))
			if n != 6 {
				t.Errorf("%d hits within the hour, want 6", n)
			}
			return err
		})
	})

	t.Run("sealed", func(t *testing.T) {
		s := open(t)
		box := []byte{0, 1, 2, 0xff}
		update(t, s, func(tx gate.Tx) error {
			return errors.Join(tx.PutSealed("p", "h", []byte("old")), tx.PutSealed("p", "h", box))
		})
		view(t, s, func(tx gate.Tx) error {
			got, err := tx.Sealed("p", "h")
			if !slices.Equal(got, box) {
				t.Errorf("sealed value %v", got)
			}
			return err
		})
		update(t, s, func(tx gate.Tx) error { return tx.DropSealed("p") })
		view(t, s, func(tx gate.Tx) error {
			if _, err := tx.Sealed("p", "h"); !errors.Is(err, gate.ErrStoreNotFound) {
				t.Errorf("a dropped value: %v", err)
			}
			return nil
		})
	})

	t.Run("marks take any text", func(t *testing.T) {
		s := open(t)
		texts := []string{"", "kill", "a\x00b", "\x01", "\x010", "\xff\xfe", "\uFFFD", "ä€\U0001F600", "' OR 1=1 --", "%_", strings.Repeat("x", 5000)}
		update(t, s, func(tx gate.Tx) error {
			for _, x := range texts {
				if err := tx.Set("k"+x, x); err != nil {
					return err
				}
			}
			return nil
		})
		view(t, s, func(tx gate.Tx) error {
			for _, x := range texts {
				if got, err := tx.Get("k" + x); got != x || err != nil {
					t.Errorf("mark %.40q came back as %.40q, %v", x, got, err)
				}
			}
			if got, err := tx.Get("absent"); got != "" || err != nil {
				t.Errorf("absent mark: %q, %v", got, err)
			}
			return nil
		})
		if err := s.Update(ctx, func(tx gate.Tx) error { return tx.Set("store/id", "x") }); err == nil {
			t.Error("a mark of the store itself was set")
		}
	})

	t.Run("removed credentials", func(t *testing.T) {
		s := open(t)
		update(t, s, func(tx gate.Tx) error {
			for _, r := range []gate.Record{{Kind: "credential", Status: "enrolled", Target: "a"}, {Kind: "credential", Status: "enrolled", Target: "b"}, {Kind: "credential", Status: "removed", Target: "b"}, {Kind: "auth", Status: "removed", Target: "a"}} {
				if _, err := tx.Append(r); err != nil {
					return err
				}
			}
			return nil
		})
		for fingerprint, want := range map[string]bool{"a": false, "b": true, "c": false} {
			if got, err := s.CredentialRemoved(ctx, fingerprint); got != want || err != nil {
				t.Errorf("%s: %t %v", fingerprint, got, err)
			}
		}
	})

	t.Run("documents", func(t *testing.T) {
		s := open(t)
		d := &gate.Doc{Kind: "account", ID: "ann", Owner: "ann", Body: []byte("one")}
		update(t, s, func(tx gate.Tx) error { return tx.PutDoc(d) })
		if err := s.Update(ctx, func(tx gate.Tx) error { return tx.PutDoc(&gate.Doc{Kind: "account", ID: "ann"}) }); !errors.Is(err, gate.ErrStoreConflict) {
			t.Errorf("inserted twice: %v", err)
		}
		stale := *d
		d.Body = []byte("two")
		update(t, s, func(tx gate.Tx) error { return tx.PutDoc(d) })
		if err := s.Update(ctx, func(tx gate.Tx) error { return tx.PutDoc(&stale) }); !errors.Is(err, gate.ErrStoreConflict) || stale.Version != 1 {
			t.Errorf("an old version was put: %v, %d", err, stale.Version)
		}
		update(t, s, func(tx gate.Tx) error {
			return errors.Join(tx.PutDoc(&gate.Doc{Kind: "session", ID: "gone", Owner: "ann", Expires: time.Now().Add(-time.Second)}),
				tx.PutDoc(&gate.Doc{Kind: "account", ID: "bob\x00", Owner: "bob", Expires: time.Now().Add(time.Hour)}))
		})
		view(t, s, func(tx gate.Tx) error {
			if got, err := tx.Doc("account", "ann"); err != nil || string(got.Body) != "two" || got.Version != 2 || !got.Expires.IsZero() {
				t.Errorf("%+v %v", got, err)
			}
			if _, err := tx.Doc("session", "gone"); !errors.Is(err, gate.ErrStoreNotFound) {
				t.Errorf("an expired document: %v", err)
			}
			all, err := tx.Docs(gate.DocFilter{Kind: "account"})
			if err != nil || len(all) != 2 || all[0].ID != "ann" || all[1].ID != "bob\x00" || all[1].Expires.IsZero() {
				t.Errorf("%+v %v", all, err)
			}
			if rest, err := tx.Docs(gate.DocFilter{Kind: "account", After: "ann", Limit: 1}); err != nil || len(rest) != 1 {
				t.Errorf("%+v %v", rest, err)
			}
			if own, err := tx.Docs(gate.DocFilter{Kind: "account", Owner: "ann"}); err != nil || len(own) != 1 {
				t.Errorf("%+v %v", own, err)
			}
			if err := tx.PutDoc(&gate.Doc{Kind: "account", ID: "eve"}); err == nil {
				t.Error("a view wrote")
			}
			return nil
		})
		update(t, s, func(tx gate.Tx) error {
			return errors.Join(tx.DropDoc("account", "ann"), tx.DropDoc("account", "nobody"))
		})
		view(t, s, func(tx gate.Tx) error {
			if _, err := tx.Doc("account", "ann"); !errors.Is(err, gate.ErrStoreNotFound) {
				t.Errorf("a dropped document: %v", err)
			}
			return nil
		})
	})

	t.Run("records go with their transaction", func(t *testing.T) {
		s := open(t)
		for i := range 3 {
			update(t, s, func(tx gate.Tx) error {
				for k := range 2 {
					index, err := tx.Append(Record(i))
					if err != nil {
						return err
					}
					if index != uint64(2*i+k) {
						t.Errorf("index %d, want %d", index, 2*i+k)
					}
				}
				return nil
			})
			err := s.Update(ctx, func(tx gate.Tx) error {
				if _, err := tx.Append(Record(99)); err != nil {
					return err
				}
				return errUndo
			})
			if !errors.Is(err, errUndo) {
				t.Error(err)
			}
		}
		size(t, s, 6)
		for i := range 6 {
			p, err := s.Position(ctx, uint64(i))
			if err != nil || p.Index != uint64(i) || p.Size != 6 || p.Checkpoint == "" {
				t.Errorf("position %d: %+v, %v", i, p, err)
			}
		}
		if _, err := s.Position(ctx, 6); !errors.Is(err, gate.ErrStoreNotFound) {
			t.Errorf("position beyond the end: %v", err)
		}
		verify(t, s)
	})

	t.Run("a view writes nothing", func(t *testing.T) {
		s := open(t)
		view(t, s, func(tx gate.Tx) error {
			if err := tx.Set("a", "b"); err == nil {
				t.Error("a mark was set in a view")
			}
			if _, err := tx.Append(Record(1)); err == nil {
				t.Error("a record was appended in a view")
			}
			return nil
		})
		var kept gate.Tx
		update(t, s, func(tx gate.Tx) error { kept = tx; return nil })
		if err := kept.Set("a", "b"); err == nil {
			t.Error("a transaction writes after its end")
		}
		if _, err := kept.Plan("x"); err == nil || errors.Is(err, gate.ErrStoreNotFound) {
			t.Errorf("a transaction reads after its end: %v", err)
		}
	})

	t.Run("a view is a snapshot", func(t *testing.T) {
		s := open(t)
		update(t, s, func(tx gate.Tx) error { return tx.Set("a", "1") })
		view(t, s, func(tx gate.Tx) error {
			first, _ := tx.Get("a")
			if err := s.Update(ctx, func(w gate.Tx) error { return w.Set("a", "2") }); err != nil {
				t.Error(err)
			}
			if again, _ := tx.Get("a"); first != "1" || again != "1" {
				t.Errorf("the view saw %q, then %q", first, again)
			}
			return nil
		})
	})

	t.Run("one failing update leaves the others", func(t *testing.T) {
		s := open(t)
		var wg sync.WaitGroup
		for i := range 40 {
			wg.Go(func() {
				err := s.Update(ctx, func(tx gate.Tx) error {
					if _, err := tx.Append(Record(i)); err != nil {
						return err
					}
					if err := tx.Set(fmt.Sprintf("m%d", i), "there"); err != nil {
						return err
					}
					if i%4 == 0 {
						return errUndo
					}
					return nil
				})
				if (i%4 == 0) != errors.Is(err, errUndo) {
					t.Errorf("update %d: %v", i, err)
				}
			})
		}
		wg.Wait()
		view(t, s, func(tx gate.Tx) error {
			for i := range 40 {
				got, err := tx.Get(fmt.Sprintf("m%d", i))
				if err != nil || (got == "there") == (i%4 == 0) {
					t.Errorf("mark %d is %q, %v", i, got, err)
				}
			}
			return nil
		})
		size(t, s, 30)
		verify(t, s)
	})

	t.Run("a panic stays with its caller", func(t *testing.T) {
		s := open(t)
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				defer func() {
					if r := recover(); (r != nil) != (i%4 == 0) {
						t.Errorf("update %d: panic %v", i, r)
					}
				}()
				if err := s.Update(ctx, func(tx gate.Tx) error {
					if _, err := tx.Append(Record(i)); err != nil {
						return err
					}
					if i%4 == 0 {
						panic("on purpose")
					}
					return nil
				}); err != nil {
					t.Errorf("update %d: %v", i, err)
				}
			})
		}
		wg.Wait()
		size(t, s, 12)
		verify(t, s)
	})

	t.Run("a caller who has gone", func(t *testing.T) {
		s := open(t)
		gone, cancel := context.WithCancel(ctx)
		cancel()
		if err := s.Update(gone, func(gate.Tx) error { t.Error("it ran"); return nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("update: %v", err)
		}
		if err := s.View(gone, func(gate.Tx) error { t.Error("it ran"); return nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("view: %v", err)
		}
	})

	t.Run("compare and swap among stores", func(t *testing.T) {
		url := fresh(t)
		a, b := Open(t, url), Open(t, url)
		update(t, a, func(tx gate.Tx) error { return tx.InsertPlan(Plan("one", now)) })
		var wg sync.WaitGroup
		var mu sync.Mutex
		won := 0
		for i := range 16 {
			s := a
			if i%2 == 1 {
				s = b
			}
			wg.Go(func() {
				err := s.Update(ctx, func(tx gate.Tx) error {
					r, err := tx.Plan("one")
					if err != nil {
						return err
					}
					if r.State != gate.PlanProposed {
						return errUndo
					}
					r.State = gate.PlanApplying
					if _, err := tx.Append(Record(i)); err != nil {
						return err
					}
					return tx.UpdatePlan(r)
				})
				if err == nil {
					mu.Lock()
					won++
					mu.Unlock()
				} else if !errors.Is(err, errUndo) && !errors.Is(err, gate.ErrStoreConflict) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if won != 1 {
			t.Errorf("%d won", won)
		}
		size(t, a, 1)
		verify(t, b)
	})

	t.Run("records from outside never fail", func(t *testing.T) {
		s := open(t)
		bad := Record(1)
		bad.Actor, bad.Target, bad.Operation = strings.Repeat("\x01", 5000), strings.Repeat("\"\\", 3000), "a\x00b\xff"
		bad.Client, bad.Plan, bad.Digest, bad.UPID = strings.Repeat("\x1b[31m", 900), strings.Repeat("\n", 4000), strings.Repeat("\xf0", 9000), strings.Repeat("ä", 900)
		bad.At = time.Date(-44, 3, 15, 0, 0, 0, 0, time.UTC)
		bad.Sizes = map[string]int{}
		for i := range 3000 {
			bad.Objects = append(bad.Objects, strings.Repeat("\\", 400))
			bad.Sizes[strings.Repeat("\"", 100)+fmt.Sprint(i)] = i
		}
		bad.Parts = map[string]string{"args": "\x00\xff" + strings.Repeat("x", ledger.MaxPart)}
		update(t, s, func(tx gate.Tx) error { _, err := tx.Append(bad); return err })
		if err := s.Update(ctx, func(tx gate.Tx) error { _, err := tx.Append(gate.Record{}); return err }); err == nil {
			t.Error("a record without a kind was taken")
		}
		size(t, s, 1)
		verify(t, s)
	})

	runAudit(t, open)
}

func view(t *testing.T, s *store.Store, f func(gate.Tx) error) {
	t.Helper()
	if err := s.View(context.Background(), f); err != nil {
		t.Fatal(err)
	}
}
