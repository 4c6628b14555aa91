package identity_test

import (
	"testing"

	"castellan/internal/identity"
)

// TestDamagedRows: what somebody changed in the database grants nothing, is shown as such, and can be removed.
func TestDamagedRows(t *testing.T) {
	r := newRig(t)
	r.account("ann", "administrator")
	r.account("bob", "operator")
	k := r.enrol("ann")
	token := r.signIn("ann")
	r.ok(r.SignOut(r.ctx, r.signIn("bob")))
	r.sql(`UPDATE docs SET body = CAST(replace(CAST(body AS TEXT), '"ann"', '"eve"') AS BLOB), owner = CASE kind WHEN 'account' THEN owner ELSE 'bob' END WHERE id = 'ann' OR owner = 'ann'`)
	_, err := r.Session(r.ctx, token)
	r.no(err, "does not answer as it should")
	_, err = r.passkeySignIn(k)
	r.no(err, "changed in the database")

	accounts, err := r.Accounts(r.ctx)
	r.ok(err)
	if len(accounts) != 2 || !accounts[0].Damaged || accounts[0].Roles != nil || accounts[1].Damaged {
		t.Errorf("accounts %+v %+v", accounts[0], accounts[1])
	}
	sessions, err := r.Sessions(r.ctx, "")
	r.ok(err)
	for _, s := range sessions {
		if !s.Damaged || s.Strength != "" {
			t.Errorf("session %+v", s)
		}
		r.ok(r.EndSession(r.ctx, root, s.ID))
	}
	keys, err := r.Credentials(r.ctx, "")
	r.ok(err)
	if len(keys) != 1 || !keys[0].Damaged {
		t.Fatalf("passkeys %+v", keys)
	}
	bob := r.signIn("bob")
	r.no(r.RemoveCredential(r.ctx, bob, keys[0].ID), "only an administrator")
	r.ok(r.DropCredential(r.ctx, root, keys[0].ID))
	r.ok(r.RemoveAccount(r.ctx, root, "ann"))
	if accounts, err = r.Accounts(r.ctx); err != nil || len(accounts) != 1 {
		t.Errorf("accounts %+v, %v", accounts, err)
	}
	_, err = r.AddAccount(r.ctx, root, identity.NewAccount{Name: "ann", Roles: []string{"viewer"}})
	r.ok(err)
}
