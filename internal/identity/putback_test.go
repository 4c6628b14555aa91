package identity_test

import (
	"slices"
	"testing"
	"time"

	"castellan/internal/gate"
)

// TestAnAccountPutBack: a row as it was before a role, a password or the account went is genuine in itself, and counts for
// nothing.
func TestAnAccountPutBack(t *testing.T) {
	for name, take := range map[string]func(r *rig){
		"its role":     func(r *rig) { r.ok(r.SetRoles(r.ctx, root, "ann", []string{"viewer"}, time.Time{})) },
		"its password": func(r *rig) { r.ok(r.SetPassword(r.ctx, root, "ann", "another long pass phrase")) },
		"its use":      func(r *rig) { r.ok(r.Disable(r.ctx, root, "ann", true)) },
		"all of it":    func(r *rig) { r.ok(r.RemoveAccount(r.ctx, root, "ann")) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.account("ann", "administrator")
			r.account("bob", "viewer")
			body, version := r.text(`SELECT hex(body) FROM docs WHERE kind = 'account' AND id = 'ann'`), r.text(`SELECT CAST(version AS TEXT) FROM docs WHERE kind = 'account' AND id = 'ann'`)
			r.signIn("ann")
			take(r)
			r.sql(`INSERT OR REPLACE INTO docs (kind, id, owner, expires, version, body) VALUES ('account', 'ann', '', 0, CAST(? AS INTEGER), unhex(?))`, version, body)
			for _, i := range []func() error{
				func() error { _, err := r.Password(r.ctx, "ann", secret, remote); return err },
				func() error { _, err := r.another().Password(r.ctx, "ann", secret, remote); return err },
				func() error {
					_, err := r.Standing(r.ctx, gate.Principal{Person: "ann", Strength: gate.StrengthSession, Roles: []string{"administrator"}})
					return err
				},
			} {
				if err := i(); err == nil {
					t.Error("the row that was put back was believed")
				}
			}
			all, err := r.Accounts(r.ctx)
			r.ok(err)
			if len(all) != 2 || !all[0].Damaged || all[1].Damaged {
				t.Errorf("%+v %+v", all[0], all[1])
			}
			r.signIn("bob")
			r.ok(r.RemoveAccount(r.ctx, root, "ann"))
			r.account("ann", "viewer")
			r.signIn("ann")
		})
	}
}

// TestAPasskeyThatWaits signs in, and counts as no more than a password: else it could give away at once what it may not
// yet approve.
func TestAPasskeyThatWaits(t *testing.T) {
	r := newRig(t)
	r.account("ann", "administrator")
	r.account("bob", "viewer")
	first := r.enrol("ann")
	s, err := r.passkeySignIn(first)
	r.ok(err)
	if s.Principal.Strength != gate.StrengthPasskey {
		t.Errorf("the first passkey: %+v", s.Principal)
	}
	reset := r.enrol("ann") // by a code of root, as when the first is lost
	s, err = r.passkeySignIn(reset)
	r.ok(err)
	if s.Principal.Strength != gate.StrengthSession {
		t.Errorf("one that waits: %+v", s.Principal)
	}
	r.no(r.SetRoles(r.ctx, s.Principal, "bob", []string{"approver"}, time.Time{}), "signed in with one")
	r.wait(2 * time.Hour)
	s, err = r.passkeySignIn(reset)
	r.ok(err)
	r.ok(r.SetRoles(r.ctx, s.Principal, "bob", []string{"approver"}, time.Time{}))
}

// TestPasskeysWhoseRowsAreGone: that there were passkeys stands in the ledger, so a new one waits all the same.
func TestPasskeysWhoseRowsAreGone(t *testing.T) {
	r := newRig(t)
	r.account("ann", "administrator")
	r.account("bob", "viewer")
	r.enrol("ann")
	r.sql(`DELETE FROM docs WHERE kind IN ('credential', 'credential_gone')`)
	ever, err := r.Enrolled(r.ctx)
	r.ok(err)
	if !ever {
		t.Error("no passkey was ever enrolled")
	}
	r.no(r.SetRoles(r.ctx, gate.Principal{Person: "ann", Strength: gate.StrengthSession, Roles: []string{"administrator"}}, "bob", []string{"approver"}, time.Time{}), "signed in with one")
	r.enrol("ann")
	list, err := r.Credentials(r.ctx, "ann")
	r.ok(err)
	if len(list) != 1 || !slices.ContainsFunc(r.told(), func(k string) bool { return k == "credential_enrolled" }) || !list[0].MayApprove.After(r.now().Add(time.Hour-time.Minute)) {
		t.Errorf("%+v", list)
	}
}
