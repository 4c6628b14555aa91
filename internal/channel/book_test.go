package channel

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"castellan/internal/gate"
)

func TestBook(t *testing.T) {
	n, g := newGuests(), newGuest(t)
	st := newStore(t)
	c := newChannels(t, n, st)
	if _, err := c.Find(t.Context(), testSite, 101); !errors.Is(err, ErrNotEnrolled) {
		t.Errorf("nothing kept: %v", err)
	}
	e := enrolled(t, c, g, 101, "10.0.0.5")
	got, err := c.Find(t.Context(), testSite, 101)
	if err != nil || got.PublicKey != e.PublicKey || got.Plan != "p1" || got.Run != "p1.1" || string(got.key) != string(e.key) {
		t.Fatalf("%+v %v", got, err)
	}
	text := fmt.Sprintf("%v %+v", got, *got)
	b, _ := json.Marshal(got)
	if seed := string(e.key.Seed()); strings.Contains(string(b), "\"key\"") || strings.Contains(text, seed) {
		t.Error("the private key is told")
	}
	var old *gate.Doc
	if err := st.View(t.Context(), func(tx gate.Tx) error { old, err = tx.Doc(docKind, e.ID()); return err }); err != nil {
		t.Fatal(err)
	}
	// Enrolled anew: another key, and the document of before is refused when somebody puts it back.
	again := enrolled(t, c, g, 101, "10.0.0.7")
	if again.PublicKey == e.PublicKey {
		t.Error("the key is the same")
	}
	back := func() {
		t.Helper()
		err := st.Update(t.Context(), func(tx gate.Tx) error {
			if err := tx.DropDoc(docKind, e.ID()); err != nil {
				return err
			}
			return tx.PutDoc(&gate.Doc{Kind: docKind, ID: e.ID(), Body: old.Body})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	back()
	if _, err := c.Find(t.Context(), testSite, 101); !errors.Is(err, errForged) {
		t.Errorf("an older channel that was put back: %v", err)
	}
	if rows, err := c.List(t.Context()); err != nil || len(rows) != 1 || rows[0].Bad == "" || rows[0].VMID != 101 {
		t.Errorf("%+v %v", rows, err)
	}
	// Another process knows it too.
	if _, err := newChannels(t, n, st).Find(t.Context(), testSite, 101); !errors.Is(err, errForged) {
		t.Errorf("an older channel, by another process: %v", err)
	}
	if err := c.Forget(t.Context(), testSite, 101, "p9.1", "removed"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Find(t.Context(), testSite, 101); !errors.Is(err, ErrNotEnrolled) {
		t.Errorf("removed: %v", err)
	}
	if did, err := c.Forgot(t.Context(), testSite, 101, "p9.1"); !did || err != nil {
		t.Errorf("%v %v", did, err)
	}
	if did, _ := c.Forgot(t.Context(), testSite, 101, "p9.2"); did {
		t.Error("another run is said to have removed it")
	}
	back()
	if _, err := c.Find(t.Context(), testSite, 101); !errors.Is(err, errForged) {
		t.Errorf("a removed channel that was put back: %v", err)
	}
	// Nobody else's document opens under this id.
	if err := st.Update(t.Context(), func(tx gate.Tx) error {
		return tx.PutDoc(&gate.Doc{Kind: docKind, ID: ID(testSite, 102), Body: old.Body})
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Find(t.Context(), testSite, 102); !errors.Is(err, errForged) {
		t.Errorf("the channel of another guest: %v", err)
	}
}

func TestPending(t *testing.T) {
	c := newChannels(t, newGuests(), nil)
	first, err := New(testSite, 101, "lxc")
	if err != nil {
		t.Fatal(err)
	}
	second, _ := New(testSite, 101, "lxc")
	for _, e := range []*Entry{first, second} {
		if err := c.Pend(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	got, err := c.Pended(t.Context(), testSite, 101)
	if err != nil || got.PublicKey != second.PublicKey || string(got.key) != string(second.key) {
		t.Errorf("%+v %v", got, err)
	}
	if _, err := c.Pended(t.Context(), testSite, 102); !errors.Is(err, ErrNotEnrolled) {
		t.Errorf("%v", err)
	}
	type note struct{ Ports []int }
	if err := c.Note(t.Context(), "p1.2", note{[]int{80}}); err != nil {
		t.Fatal(err)
	}
	var back note
	if ok, err := c.Noted(t.Context(), "p1.2", &back); !ok || err != nil || len(back.Ports) != 1 {
		t.Errorf("%v %v %v", ok, err, back)
	}
	if ok, err := c.Noted(t.Context(), "p1.3", &back); ok || err != nil {
		t.Errorf("%v %v", ok, err)
	}
}

func TestHostKeys(t *testing.T) {
	key := newGuest(t).hostKey()
	if got, err := ParseHostKeys([]string{key + " root@web", "", key}); err != nil || len(got) != 1 || got[0] != key {
		t.Errorf("%v %v", got, err)
	}
	for _, bad := range [][]string{nil, {""}, {"ssh-ed25519 AAAA"}, {`command="x" ` + key}, {key + "\n" + key}, {"@cert-authority * " + key}, {key[:40]}} {
		if got, err := ParseHostKeys(bad); err == nil {
			t.Errorf("%q: %v", bad, got)
		}
	}
}
