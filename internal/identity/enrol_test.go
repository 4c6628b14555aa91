package identity_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"castellan/internal/gate"
	"castellan/internal/identity"
)

// vouch confirms with a passkey that somebody may enrol one.
func (r *rig) vouch(token string, k *key, name string) (string, error) {
	r.t.Helper()
	o, ticket, err := r.VouchStart(r.ctx, token, name)
	r.ok(err)
	return r.VouchFinish(r.ctx, token, ticket, k.get(o))
}

func TestEnrolmentNeedsMoreThanASession(t *testing.T) {
	r := newRig(t)
	r.account("ann", "approver")
	r.account("bob", "operator")
	token, other := r.signIn("ann"), r.signIn("bob")
	_, _, err := r.EnrolStart(r.ctx, token, "")
	r.no(err, "needs a one-time code")
	_, _, err = r.EnrolStart(r.ctx, token, strings.Repeat("A", 24))
	r.no(err, "code is wrong")
	_, _, err = r.EnrolStart(r.ctx, "", "")
	r.no(err, "needs a one-time code")

	// A code is root's to make, for its person, once, for an hour.
	for _, who := range []gate.Principal{{Person: "ann", Strength: gate.StrengthSession, Roles: []string{"administrator"}}, {Person: "x", Strength: gate.StrengthPeer},
		{Agent: "claude", Person: "root", Strength: gate.StrengthAccount}, {Person: "ann", Strength: gate.StrengthToken, Roles: []string{"administrator"}}, {}} {
		_, err = r.EnrolmentCode(r.ctx, who, "ann")
		r.no(err, "made by root")
	}
	old, err := r.EnrolmentCode(r.ctx, root, "ann")
	r.ok(err)
	code, err := r.EnrolmentCode(r.ctx, root, "ann")
	r.ok(err)
	_, _, err = r.EnrolStart(r.ctx, token, old)
	r.no(err, "code is wrong") // void since there is another
	_, _, err = r.EnrolStart(r.ctx, other, code)
	r.no(err, "another person's")
	_, _, err = r.EnrolStart(r.ctx, "", code)
	r.no(err, "signs in before")
	o, ticket, err := r.EnrolStart(r.ctx, token, " "+code+"\n")
	r.ok(err)
	k := newKey(t, "ES256")
	// Another session cannot finish it, nor one without a session.
	for _, s := range []string{other, "", r.signIn("ann")} {
		r.no(r.EnrolFinish(r.ctx, s, ticket, k.create(o), "x"), "another session")
	}
	r.ok(r.EnrolFinish(r.ctx, token, ticket, k.create(o), "x"))
	r.no(r.EnrolFinish(r.ctx, token, ticket, k.create(o), "x"), "finished before")
	_, _, err = r.EnrolStart(r.ctx, token, code)
	r.no(err, "code is wrong")
	late, err := r.EnrolmentCode(r.ctx, root, "bob")
	r.ok(err)
	r.wait(time.Hour)
	_, _, err = r.EnrolStart(r.ctx, r.signIn("bob"), late)
	r.no(err, "code is wrong")
	for _, want := range []string{"enrolment_code", "credential_enrolled"} {
		if !slices.Contains(r.told(), want) {
			t.Errorf("nobody was told of %s: %v", want, r.told())
		}
	}
	rec := r.records("credential_enrolled")
	if len(rec) != 1 || rec[0].Kind != "credential" || rec[0].Status != "enrolled" || rec[0].Target != identity.Fingerprint(k.id, k.cose) || !strings.Contains(string(rec[0].Data), `"person":"ann"`) {
		t.Errorf("records %+v", rec)
	}
}

func TestEnrolmentRefusals(t *testing.T) {
	for _, tt := range []struct {
		name, says string
		bend       func(k *key)
	}{
		{"origin", "it was given at", func(k *key) { k.origin = "https://castellan.example" }},
		{"relying party", "another host", func(k *key) { k.rp = "castellan.example:8443" }},
		{"challenge", "another challenge", func(k *key) { k.challenge = challenge() }},
		{"an assertion", "not a \"webauthn.create\"", func(k *key) { k.kind = "webauthn.get" }},
		{"not verified", "did not verify", func(k *key) { k.flags = present }},
		{"algorithm", "not one of", func(k *key) { k.cose[4] = 0x38; k.cose = slices.Insert(k.cose, 5, byte(34)) }}, // -35: ES384
		{"key off the curve", "malformed", func(k *key) { k.cose[len(k.cose)-1]++ }},
		{"no id", "malformed", func(k *key) { k.id = nil }},
		{"long id", "malformed", func(k *key) { k.id = make([]byte, 1024) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			r.account("ann", "approver")
			token := r.signIn("ann")
			code, err := r.EnrolmentCode(r.ctx, root, "ann")
			r.ok(err)
			o, ticket, err := r.EnrolStart(r.ctx, token, code)
			r.ok(err)
			k := newKey(t, "ES256")
			tt.bend(k)
			err = r.EnrolFinish(r.ctx, token, ticket, k.create(o), "x")
			var e *gate.Error
			if !errors.As(err, &e) || !strings.Contains(err.Error(), tt.says) && !strings.Contains(err.Error(), "is not the JSON") {
				t.Errorf("got %v", err)
			}
			if list, err := r.Credentials(r.ctx, "ann"); err != nil || len(list) != 0 {
				t.Errorf("enrolled %v, %v", list, err)
			}
			// The code is good for another try.
			o, ticket, err = r.EnrolStart(r.ctx, token, code)
			r.ok(err)
			r.ok(r.EnrolFinish(r.ctx, token, ticket, newKey(t, "ES256").create(o), "x"))
		})
	}
}

func TestFurtherPasskey(t *testing.T) {
	r := newRig(t)
	r.account("ann", "approver")
	first := r.enrol("ann")
	r.wait(5 * time.Minute)
	token := r.signIn("ann")
	_, _, err := r.EnrolStart(r.ctx, token, "")
	r.no(err, "needs a one-time code")
	voucher, err := r.vouch(token, first, "ann")
	r.ok(err)
	_, _, err = r.EnrolStart(r.ctx, r.signIn("ann"), voucher)
	r.no(err, "another person or session")
	o, ticket, err := r.EnrolStart(r.ctx, token, voucher)
	r.ok(err)
	second := newKey(t, "ES256")
	r.ok(r.EnrolFinish(r.ctx, token, ticket, second.create(o), "spare"))
	// The voucher is used up, although it is not old.
	o, ticket, err = r.EnrolStart(r.ctx, token, voucher)
	r.ok(err)
	r.no(r.EnrolFinish(r.ctx, token, ticket, newKey(t, "ES256").create(o), "third"), "finished before")
	// The new one waits, and does not vouch before.
	_, err = r.vouch(token, second, "ann")
	r.no(err, "this passkey is new")
	// An old voucher is none; what rests on it does not outlive it.
	voucher, err = r.vouch(token, first, "ann")
	r.ok(err)
	r.wait(4 * time.Minute)
	o, ticket, err = r.EnrolStart(r.ctx, token, voucher)
	r.ok(err)
	r.wait(time.Minute)
	r.no(r.EnrolFinish(r.ctx, token, ticket, newKey(t, "ES256").create(o), "third"), "older than")
	_, _, err = r.EnrolStart(r.ctx, token, voucher)
	r.no(err, "older than")
	// A voucher of a passkey that was removed meanwhile is none.
	voucher, err = r.vouch(token, first, "ann")
	r.ok(err)
	o, ticket, err = r.EnrolStart(r.ctx, token, voucher)
	r.ok(err)
	r.ok(r.DropCredential(r.ctx, root, identity.Fingerprint(first.id, first.cose)))
	r.no(r.EnrolFinish(r.ctx, token, ticket, newKey(t, "ES256").create(o), "third"), "was removed")
}

func TestInvitation(t *testing.T) {
	r := newRig(t)
	r.account("ann", "administrator")
	r.account("bob", "approver")
	r.account("eve", "approver")
	k := r.enrol("ann")
	eve := r.enrol("eve")
	r.wait(2 * time.Hour)
	s, err := r.passkeySignIn(k)
	r.ok(err)
	voucher, err := r.vouch(s.Token, k, "bob")
	r.ok(err)
	_, err = r.Invite(r.ctx, s.Token, voucher, "eve")
	r.no(err, "another person")
	_, _, err = r.EnrolStart(r.ctx, s.Token, voucher) // not for oneself
	r.no(err, "another person")
	code, err := r.Invite(r.ctx, s.Token, voucher, "bob")
	r.ok(err)
	_, err = r.Invite(r.ctx, s.Token, voucher, "bob")
	r.no(err, "finished before")
	token := r.signIn("bob")
	o, ticket, err := r.EnrolStart(r.ctx, token, code)
	r.ok(err)
	b := newKey(t, "ES256")
	r.ok(r.EnrolFinish(r.ctx, token, ticket, b.create(o), "bob's"))
	c := challenge()
	_, err = r.Assertion(r.ctx, "bob", c, b.sign(c))
	r.no(err, "this passkey is new")
	// An approver who administers nothing invites nobody; nobody resets another's by invitation.
	s2, err := r.passkeySignIn(eve)
	r.ok(err)
	voucher, err = r.vouch(s2.Token, eve, "bob")
	r.ok(err)
	_, err = r.Invite(r.ctx, s2.Token, voucher, "bob")
	r.no(err, "only an administrator")
	voucher, err = r.vouch(s.Token, k, "bob")
	r.ok(err)
	_, err = r.Invite(r.ctx, s.Token, voucher, "bob")
	r.no(err, "has a passkey")
}

func TestResetRemovesWhatWasLost(t *testing.T) {
	r := newRig(t)
	r.account("ann", "approver")
	lost := r.enrol("ann")
	found := r.enrol("ann") // by another code of root
	c := challenge()
	_, err := r.Assertion(r.ctx, "ann", c, lost.sign(c))
	r.no(err, "not enrolled")
	_, err = r.passkeySignIn(lost)
	r.no(err, "not enrolled")
	_, err = r.Assertion(r.ctx, "ann", c, found.sign(c))
	r.no(err, "this passkey is new")
	r.wait(time.Hour + time.Second)
	_, err = r.Assertion(r.ctx, "ann", c, found.sign(c))
	r.ok(err)
	if !slices.Contains(r.told(), "credential_reset") || !slices.Contains(r.told(), "credential_removed") {
		t.Errorf("told %v", r.told())
	}
	// A removed passkey is not taken again.
	token := r.signIn("ann")
	voucher, err := r.vouch(token, found, "ann")
	r.ok(err)
	o, ticket, err := r.EnrolStart(r.ctx, token, voucher)
	r.ok(err)
	r.no(r.EnrolFinish(r.ctx, token, ticket, lost.create(o), "again"), "is or was enrolled")
}

// TestNoPasswordNeedsNoSession: who has nothing else signs in with the passkey that the code gives.
func TestNoPasswordNeedsNoSession(t *testing.T) {
	r := newRig(t)
	_, err := r.AddAccount(r.ctx, root, identity.NewAccount{Name: "ann", Roles: []string{"viewer"}})
	r.ok(err)
	code, err := r.EnrolmentCode(r.ctx, root, "ann")
	r.ok(err)
	o, ticket, err := r.EnrolStart(r.ctx, "", code)
	r.ok(err)
	k := newKey(t, "ES256")
	r.ok(r.EnrolFinish(r.ctx, "", ticket, k.create(o), ""))
	_, err = r.passkeySignIn(k)
	r.ok(err)
}

func TestTamperedCredentials(t *testing.T) {
	for _, tt := range []struct {
		name, says string
		tamper     func(r *rig, a, b *key)
	}{
		{"bodies swapped", "changed in the database", func(r *rig, a, b *key) {
			r.sql(`UPDATE docs SET body = (SELECT body FROM docs d WHERE d.kind = 'credential' AND d.owner = 'bob') WHERE kind = 'credential' AND owner = 'ann'`)
		}},
		{"owner changed", "changed in the database", func(r *rig, a, b *key) {
			r.sql(`UPDATE docs SET owner = 'bob' WHERE kind = 'credential' AND owner = 'ann'`)
		}},
		{"version changed", "changed in the database", func(r *rig, a, b *key) {
			r.sql(`UPDATE docs SET version = version + 1 WHERE kind = 'credential' AND owner = 'ann'`)
		}},
		{"body bent", "changed in the database", func(r *rig, a, b *key) {
			r.sql(`UPDATE docs SET body = CAST(replace(CAST(body AS TEXT), '"counter":0', '"counter":9') AS BLOB) WHERE kind = 'credential' AND owner = 'ann'`)
		}},
		{"put back after removal", "was removed", func(r *rig, a, b *key) {
			r.sql(`INSERT INTO marks (name, value) SELECT 'keep', hex(body) FROM docs WHERE kind = 'credential' AND owner = 'ann'`)
			id := r.text(`SELECT id || ' ' || version FROM docs WHERE kind = 'credential' AND owner = 'ann'`)
			r.ok(r.DropCredential(r.ctx, root, identity.Fingerprint(a.id, a.cose)))
			r.sql(`INSERT INTO docs (kind, id, owner, expires, version, body) SELECT 'credential', ?, 'ann', 0, ?, unhex(value) FROM marks WHERE name = 'keep'`, strings.Fields(id)[0], strings.Fields(id)[1])
		}},
		{"put back, and the mark of its removal taken out", "the ledger says that it was removed", func(r *rig, a, b *key) {
			r.sql(`INSERT INTO marks (name, value) SELECT 'keep', hex(body) FROM docs WHERE kind = 'credential' AND owner = 'ann'`)
			id := r.text(`SELECT id || ' ' || version FROM docs WHERE kind = 'credential' AND owner = 'ann'`)
			r.ok(r.DropCredential(r.ctx, root, identity.Fingerprint(a.id, a.cose)))
			r.sql(`INSERT INTO docs (kind, id, owner, expires, version, body) SELECT 'credential', ?, 'ann', 0, ?, unhex(value) FROM marks WHERE name = 'keep'`, strings.Fields(id)[0], strings.Fields(id)[1])
			r.sql(`DELETE FROM docs WHERE kind = 'credential_gone'`)
		}},
		{"account row swapped", "does not answer as it should", func(r *rig, a, b *key) {
			r.sql(`UPDATE docs SET body = (SELECT body FROM docs d WHERE d.kind = 'account' AND d.id = 'bob') WHERE kind = 'account' AND id = 'ann'`)
		}},
		{"the record's header changed", "does not lead to the ledger's root", func(r *rig, a, b *key) {
			r.sql(`UPDATE write_records SET header = CAST(replace(CAST(header AS TEXT), '"may_approve":"2027', '"may_approve":"2020') AS BLOB) WHERE CAST(header AS TEXT) LIKE '%credential_enrolled%' AND CAST(header AS TEXT) LIKE '%"person":"ann"%'`)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var r *rig
			r = newRig(t, func(c *identity.Config) {
				c.Removed = func(_ ctx, fingerprint string) (bool, error) {
					for _, h := range r.records("credential_removed") {
						if h.Target == fingerprint {
							return true, nil
						}
					}
					return false, nil
				}
			})
			r.account("ann", "approver")
			r.account("bob", "approver")
			a, b := r.enrol("ann"), r.enrol("bob")
			r.wait(2 * time.Hour)
			c := challenge()
			_, err := r.Assertion(r.ctx, "ann", c, a.sign(c))
			r.ok(err)
			tt.tamper(r, a, b)
			_, err = r.Assertion(r.ctx, "ann", c, a.sign(c))
			r.no(err, tt.says)
			_, err = r.Assertion(r.ctx, "bob", c, a.sign(c))
			r.no(err, "")
			_, err = r.passkeySignIn(a)
			r.no(err, tt.says)
		})
	}
}
