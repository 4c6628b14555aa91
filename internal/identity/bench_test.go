package identity_test

import (
	"fmt"
	"testing"

	"castellan/internal/gate"
)

func benchRig(b *testing.B) *rig {
	b.Helper()
	return newRig(b)
}

// BenchmarkSession is what each request of the console costs.
func BenchmarkSession(b *testing.B) {
	r := benchRig(b)
	r.account("ann", "operator")
	token := r.signIn("ann")
	for b.Loop() {
		_, err := r.Session(r.ctx, token)
		r.ok(err)
	}
}

// BenchmarkAssertion is what an approval by passkey costs, with a ledger of some length.
func BenchmarkAssertion(b *testing.B) {
	r := benchRig(b)
	r.account("ann", "approver")
	k := r.enrol("ann")
	for n := range 20 {
		r.ok(r.store.Update(r.ctx, func(tx gate.Tx) error {
			for m := range 500 {
				if _, err := tx.Append(gate.Record{Kind: "read", Operation: fmt.Sprint(n, m)}); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	c := challenge()
	response := k.sign(c)
	for b.Loop() {
		_, err := r.Assertion(r.ctx, "ann", c, response)
		r.ok(err)
	}
}

// BenchmarkPassword is one check at the usual cost.
func BenchmarkPassword(b *testing.B) {
	r := benchRig(b)
	i, err := newUsual(r)
	r.ok(err)
	_, err = i.AddAccount(r.ctx, root, annWithPassword())
	r.ok(err)
	for b.Loop() {
		_, err := i.Password(r.ctx, "ann", secret, remote)
		r.ok(err)
	}
}
