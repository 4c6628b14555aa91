package storetest

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ed25519"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"castellan/internal/gate"
	"castellan/internal/store"

	"github.com/google/go-cmp/cmp"
)

// Backup holds a database to bringing back what another one, or itself, has backed up.
func Backup(t *testing.T, from, to func(testing.TB) string) {
	ctx := context.Background()
	by := gate.Principal{Person: "ann", WayIn: "cli"}
	now := time.Now().UTC().Truncate(time.Microsecond)
	s := Open(t, from(t))
	if err := s.Update(ctx, func(tx gate.Tx) error {
		for i, state := range []gate.PlanState{gate.PlanProposed, gate.PlanApplying, gate.PlanDone} {
			p := Plan(string(state), now.Add(time.Duration(i)))
			p.State, p.TokenHash = state, "hash"
			if err := errors.Join(tx.InsertPlan(p), tx.PutSealed(p.Plan.ID, "h", []byte{1, 0, 255})); err != nil {
				return err
			}
			if _, err := tx.Lock("guest/"+string(state), p.Plan.ID, now); err != nil {
				return err
			}
		}
		for i := range 300 {
			if _, err := tx.Append(Record(i)); err != nil {
				return err
			}
		}
		odd := Record(300)
		odd.Target = "a\x01b\xffc"
		if _, err := tx.Append(odd); err != nil {
			return err
		}
		return errors.Join(tx.UseNonce("used", now.Add(time.Hour)), tx.Set("kill", "on\x00\xff"), tx.Hit("write/pve", now))
	}); err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	saved, err := s.Backup(ctx, &file, by)
	if err != nil || !saved.Recorded || saved.Size != 302 {
		t.Fatalf("backup: %+v, %v", saved, err)
	}
	whole := file.Bytes()

	url := to(t)
	back, err := store.Restore(ctx, store.Config{URL: url, Signer: Key()}, bytes.NewReader(whole), by)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"applying", "proposed"}, back.Closed); d != "" || back.Size != 303 || back.Store != s.ID() {
		t.Errorf("restored %+v\n%s", back, d)
	}
	r := Open(t, url)
	if r.ID() != s.ID() {
		t.Errorf("store id %q, want %q", r.ID(), s.ID())
	}
	verify(t, r)
	if err := r.CheckHead(ctx, saved.Head); err != nil {
		t.Errorf("the head of the backup: %v", err)
	}
	view(t, r, func(tx gate.Tx) error {
		for id, want := range map[string]gate.PlanState{"proposed": gate.PlanStale, "applying": gate.PlanUnknown, "done": gate.PlanDone} {
			p, err := tx.Plan(id)
			if err != nil || p.State != want || want != gate.PlanDone && p.TokenHash != "" {
				t.Errorf("plan %s: %+v, %v", id, p, err)
			}
			if _, err := tx.Sealed(id, "h"); errors.Is(err, gate.ErrStoreNotFound) != (want != gate.PlanDone) {
				t.Errorf("sealed value of %s: %v", id, err)
			}
		}
		if v, err := tx.Get("kill"); v != "on\x00\xff" || err != nil {
			t.Errorf("kill switch %q, %v", v, err)
		}
		if n, err := tx.Count("write/pve", now.Add(-time.Minute)); n != 1 || err != nil {
			t.Errorf("%d hits, %v", n, err)
		}
		return nil
	})
	if err := r.Update(ctx, func(tx gate.Tx) error { return tx.UseNonce("used", now.Add(time.Hour)) }); !errors.Is(err, gate.ErrNonceUsed) {
		t.Errorf("a nonce that was used before the backup: %v", err)
	}
	if err := r.Update(ctx, func(tx gate.Tx) error { _, err := tx.Append(Record(1)); return err }); err != nil {
		t.Error(err)
	}
	verify(t, r)

	edit := func(f func(string) string) []byte {
		z, err := gzip.NewReader(bytes.NewReader(whole))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(z)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		w := gzip.NewWriter(&out)
		io.WriteString(w, f(string(text)))
		w.Close()
		return out.Bytes()
	}
	other := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, 32))
	empty := to(t)
	for _, c := range []struct {
		name string
		file []byte
		key  ed25519.PrivateKey
		want string
	}{
		{"cut off", whole[:len(whole)/2], Key(), "cut off"},
		{"a row changed", edit(func(s string) string { return strings.Replace(s, `"kill"`, `"kilt"`, 1) }), Key(), "was changed"},
		{"a row left out", edit(func(s string) string {
			lines := strings.SplitAfter(s, "\n")
			return strings.Join(append(lines[:3:3], lines[4:]...), "")
		}), Key(), "was changed"},
		{"the end left out", edit(func(s string) string { return s[:strings.LastIndex(s, "{")] }), Key(), "cut off"},
		{"something added", edit(func(s string) string { return s + "x" }), Key(), "something follows"},
		{"another table", edit(func(s string) string { return strings.Replace(s, `["marks"`, `["sqlite_master"`, 1) }), Key(), "no table"},
		{"another key", whole, other, "not signed by"},
		{"not a backup", []byte("hello"), Key(), "no backup"},
	} {
		_, err := store.Restore(ctx, store.Config{URL: empty, Signer: c.key}, bytes.NewReader(c.file), by)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if _, err := store.Restore(ctx, store.Config{URL: url, Signer: Key()}, bytes.NewReader(whole), by); err == nil || !strings.Contains(err.Error(), "a state already") {
		t.Errorf("over another state: %v", err)
	}
	if _, err := store.Restore(ctx, store.Config{URL: empty, Signer: Key()}, bytes.NewReader(whole), by); err != nil {
		t.Errorf("after the refusals: %v", err)
	}
}
