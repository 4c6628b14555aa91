package store_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"castellan/internal/gate"
	"castellan/internal/store/storetest"
)

func TestRecorded(t *testing.T) {
	st := storetest.Open(t, filepath.Join(t.TempDir(), "state", "s.db"))
	ctx := t.Context()
	add := func(f func(tx gate.Tx), kinds ...string) {
		t.Helper()
		err := st.Update(ctx, func(tx gate.Tx) error {
			for n, kind := range kinds {
				if _, err := tx.Append(gate.Record{At: time.Now(), Kind: kind, Operation: "op", Plan: "p-" + kind, Status: "on", Step: n + 1, Marks: map[string]string{"value": kind}}); err != nil {
					return err
				}
			}
			f(tx)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	found := func(tx gate.Tx, f gate.RecordFilter) string {
		t.Helper()
		rs, err := tx.Recorded(f)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, r := range rs {
			if r.Marks["value"] != r.Kind || r.Plan != "p-"+r.Kind || r.Step == 0 || r.At.IsZero() {
				t.Errorf("%+v", r)
			}
			out = append(out, r.Kind)
		}
		return strings.Join(out, " ")
	}
	add(func(gate.Tx) {}, "a", "b")
	add(func(tx gate.Tx) { // what the transaction is about to append counts too
		for want, f := range map[string]gate.RecordFilter{"c a b a": {}, "c a": {From: 2}, "b a": {Below: 2}, "a a": {Kind: "a"}, "c": {Limit: 1}, "b": {Plan: "p-b"}, "": {Status: "off"}} {
			if got := found(tx, f); got != want {
				t.Errorf("%+v: %q, want %q", f, got, want)
			}
		}
	}, "a", "c")
	err := st.View(ctx, func(tx gate.Tx) error {
		if got := found(tx, gate.RecordFilter{Operation: "op", From: 1, Below: 3}); got != "a b" {
			t.Error(got)
		}
		n := 0
		err := gate.Walk(tx, gate.RecordFilter{}, func(gate.Recorded) bool { n++; return false })
		if n != 4 {
			t.Errorf("walked over %d", n)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
