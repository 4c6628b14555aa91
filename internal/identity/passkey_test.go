package identity_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"castellan/internal/gate"
	"castellan/internal/identity"
)

// approval makes what a gate would: the parts of a challenge, signed.
func approval(approver string, random []byte) gate.Assertion {
	return gate.Assertion{Purpose: "castellan approval v1", Verdict: "approve", Plan: "p1", Digest: "sha256:1", Approver: approver, Random: random}
}

func TestPasskeyFromEnrolmentToApproval(t *testing.T) {
	for _, alg := range []string{"ES256", "EdDSA", "RS256"} {
		t.Run(alg, func(t *testing.T) {
			r := newRig(t)
			r.account("ann", "approver")
			token := r.signIn("ann")
			code, err := r.EnrolmentCode(r.ctx, root, "ann")
			r.ok(err)
			k := newKey(t, alg)
			k.counter = 1
			o, ticket, err := r.EnrolStart(r.ctx, token, code)
			r.ok(err)
			r.ok(r.another().EnrolFinish(r.ctx, token, ticket, k.create(o), "laptop")) // any process can finish

			s, err := r.passkeySignIn(k)
			r.ok(err)
			p, err := r.Session(r.ctx, s.Token)
			r.ok(err)
			if p.Person != "ann" || p.Strength != gate.StrengthPasskey || p.WayIn != "console" || !slices.Equal(p.Roles, []string{"approver"}) {
				t.Errorf("signed in as %+v", p)
			}
			a := approval("ann", challenge())
			options, err := r.RequestOptions(r.ctx, "ann", a.ChallengeBytes())
			r.ok(err)
			a.Proof, err = r.Assertion(r.ctx, "ann", a.ChallengeBytes(), k.get(options)) // the first of all does not wait
			r.ok(err)
			r.ok(identity.VerifyProof(a))

			text, err := json.Marshal(a)
			r.ok(err)
			for name, bend := range map[string]func(*gate.Assertion){
				"verdict":   func(a *gate.Assertion) { a.Verdict = "deny" },
				"plan":      func(a *gate.Assertion) { a.Plan = "p2" },
				"digest":    func(a *gate.Assertion) { a.Digest = "sha256:2" },
				"approver":  func(a *gate.Assertion) { a.Approver = "eve" },
				"random":    func(a *gate.Assertion) { a.Random[0]++ },
				"shifted":   func(a *gate.Assertion) { a.Plan, a.Digest = "p1\x00sha256:1", "x" },
				"purpose":   func(a *gate.Assertion) { a.Purpose = "castellan sign-in v1" },
				"origin":    func(a *gate.Assertion) { a.Proof.Origin = "https://castellan.example" },
				"key":       func(a *gate.Assertion) { a.Proof.PublicKey = newKey(t, "ES256").cose },
				"id":        func(a *gate.Assertion) { a.Proof.CredentialID[0]++ },
				"signature": func(a *gate.Assertion) { a.Proof.Signature[len(a.Proof.Signature)-1]++ },
				"flags":     func(a *gate.Assertion) { a.Proof.AuthenticatorData[32] &^= verified },
				"counter":   func(a *gate.Assertion) { a.Proof.AuthenticatorData[36]++ },
			} {
				var b gate.Assertion
				r.ok(json.Unmarshal(text, &b))
				bend(&b)
				if identity.VerifyProof(b) == nil {
					t.Errorf("verifies with another %s", name)
				}
			}
		})
	}
}

func TestAssertionRefusals(t *testing.T) {
	for _, tt := range []struct {
		name, says string
		bend       func(k *key)
	}{
		{"origin without port", "it was given at", func(k *key) { k.origin = "https://castellan.example" }},
		{"origin of another port", "it was given at", func(k *key) { k.origin = "https://castellan.example:8444" }},
		{"origin over http", "it was given at", func(k *key) { k.origin = "http://castellan.example:8443" }},
		{"origin below", "it was given at", func(k *key) { k.origin = "https://evil.castellan.example:8443" }},
		{"in a frame of others", "it was given at", func(k *key) { k.cross = true }},
		{"relying party", "another host", func(k *key) { k.rp = "example" }},
		{"another challenge", "another challenge", func(k *key) { k.challenge = challenge() }},
		{"a creation", "not a \"webauthn.get\"", func(k *key) { k.kind = "webauthn.create" }},
		{"not verified", "did not verify", func(k *key) { k.flags = present }},
		{"not present", "nobody was present", func(k *key) { k.flags = verified }},
		{"another key", "signature", func(k *key) { k.signer = newKey(k.t, "ES256").signer }},
		{"unknown credential", "not enrolled", func(k *key) { k.id = []byte("of somewhere else") }},
		{"handle of another", "whose it is", func(k *key) { k.handle = make([]byte, 32) }},
		{"signature of zeros", "signature", func(k *key) {
			k.spoil = func(c, a, s []byte) ([]byte, []byte, []byte) { return c, a, make([]byte, len(s)) }
		}},
		{"bytes after", "malformed", func(k *key) {
			k.spoil = func(c, a, s []byte) ([]byte, []byte, []byte) { return c, append(a, 0), s }
		}},
		{"counter not moved", "went back", func(k *key) { k.counter-- }},
		{"counter far back", "went back", func(k *key) { k.counter = 1 }},
		{"counter gone", "went back", func(k *key) { k.counter = 0 }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			r.account("ann", "approver")
			k := r.enrol("ann")
			k.counter = 10
			_, err := r.Assertion(r.ctx, "ann", []byte("a challenge of thirty-two bytes!"), k.sign([]byte("a challenge of thirty-two bytes!")))
			r.ok(err)
			tt.bend(k)
			c := challenge()
			response := k.sign(c)
			_, err = r.Assertion(r.ctx, "ann", c, response)
			r.no(err, tt.says)
			if n := len(r.records("assertion_fail")); n != 1 {
				t.Errorf("%d records of it", n)
			}
			if strings.HasPrefix(tt.name, "counter") && !slices.Contains(r.told(), "counter_back") {
				t.Error("nobody was told of the counter")
			}
			// The same in a sign-in.
			if strings.HasPrefix(tt.name, "counter") || tt.name == "another challenge" {
				return
			}
			_, err = r.passkeySignIn(k)
			r.no(err, tt.says)
			if n := len(r.records("signin_fail")); n != 1 {
				t.Errorf("%d records of the sign-in", n)
			}
		})
	}
}

func TestSignInAndApprovalAreApart(t *testing.T) {
	r := newRig(t)
	r.account("ann", "approver")
	k := r.enrol("ann")
	// What a passkey signed to sign in is no approval.
	o, ticket, err := r.PasskeyStart(r.ctx)
	r.ok(err)
	signIn := k.get(o)
	_, err = r.Assertion(r.ctx, "ann", challenge(), signIn)
	r.no(err, "another challenge")
	// An approval does not sign in.
	_, err = r.PasskeyFinish(r.ctx, ticket, k.sign(challenge()), remote)
	r.no(err, "another challenge")
	// The ticket is used up by that.
	_, err = r.PasskeyFinish(r.ctx, ticket, signIn, remote)
	r.no(err, "finished before")
	// Nor is a ticket of another ceremony, an old one, or a bent one good.
	o, ticket, err = r.PasskeyStart(r.ctx)
	r.ok(err)
	_, err = r.PasskeyFinish(r.ctx, ticket+"A", k.get(o), remote)
	r.no(err, "none of ours")
	token := r.signIn("ann")
	_, vouch, err := r.VouchStart(r.ctx, token, "ann")
	r.ok(err)
	_, err = r.PasskeyFinish(r.ctx, vouch, k.get(o), remote)
	r.no(err, "another ceremony")
	r.wait(5 * time.Minute)
	_, err = r.PasskeyFinish(r.ctx, ticket, k.get(o), remote)
	r.no(err, "older than")
}

func TestAnotherPersonsPasskey(t *testing.T) {
	r := newRig(t)
	r.account("ann", "approver")
	r.account("bob", "approver")
	a := r.enrol("ann")
	r.enrol("bob")
	r.wait(2 * time.Hour)
	c := challenge()
	_, err := r.Assertion(r.ctx, "bob", c, a.sign(c))
	r.no(err, "another person's")
}

func TestWaitingTime(t *testing.T) {
	r := newRig(t)
	r.account("ann", "approver")
	r.account("bob", "approver")
	r.enrol("ann")
	b := r.enrol("bob")
	c := challenge()
	_, err := r.Assertion(r.ctx, "bob", c, b.sign(c))
	r.no(err, "this passkey is new")
	_, err = r.passkeySignIn(b) // signing in works at once
	r.ok(err)
	r.wait(time.Hour - time.Second)
	_, err = r.Assertion(r.ctx, "bob", c, b.sign(c))
	r.no(err, "this passkey is new")
	r.wait(2 * time.Second)
	_, err = r.Assertion(r.ctx, "bob", c, b.sign(c))
	r.ok(err)
}

// TestFailuresDoNotFillTheLedger: who is signed in may fail as often as they like; it is not kept for ever.
func TestFailuresDoNotFillTheLedger(t *testing.T) {
	r := newRig(t)
	r.account("ann", "approver")
	k := r.enrol("ann")
	for range 60 {
		_, err := r.Assertion(r.ctx, "ann", challenge(), k.sign(challenge()))
		r.no(err, "another challenge")
	}
	if n := len(r.records("assertion_fail")); n != 50 {
		t.Errorf("%d records", n)
	}
}
