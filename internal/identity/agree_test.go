package identity_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"testing"

	"github.com/go-webauthn/webauthn/protocol"

	"castellan/internal/gate"
	"castellan/internal/identity"
)

// TestAgreesWithTheLibrary: what a well-known library says of an assertion, castellan says too, for good ones and bent ones.
// Where the two differ on purpose castellan is the stricter, never the other way round.
func TestAgreesWithTheLibrary(t *testing.T) {
	library := func(k *key, challenge []byte, response json.RawMessage) error {
		parsed, err := protocol.ParseCredentialRequestResponseBytes(response)
		if err != nil {
			return err
		}
		return parsed.Verify(base64.RawURLEncoding.EncodeToString(challenge), host, "", []string{origin}, nil, nil, protocol.TopOriginExplicitVerificationMode, false, true, true, k.cose, protocol.SignaturePolicy{})
	}
	for _, alg := range []string{"ES256", "EdDSA", "RS256"} {
		r := newRig(t)
		r.account("ann", "approver")
		token := r.signIn("ann")
		code, err := r.EnrolmentCode(r.ctx, root, "ann")
		r.ok(err)
		k := newKey(t, alg)
		o, ticket, err := r.EnrolStart(r.ctx, token, code)
		r.ok(err)
		r.ok(r.EnrolFinish(r.ctx, token, ticket, k.create(o), "laptop"))
		for name, bend := range map[string]func(k *key, challenge []byte) []byte{
			"good":              func(_ *key, c []byte) []byte { return c },
			"another challenge": func(_ *key, c []byte) []byte { return append(bytes.Clone(c[1:]), 7) },
			"another origin":    func(k *key, c []byte) []byte { k.origin = "https://castellan.example:1"; return c },
			"another party":     func(k *key, c []byte) []byte { k.rp = "example"; return c },
			"nobody verified":   func(k *key, c []byte) []byte { k.flags = present; return c },
			"nobody present":    func(k *key, c []byte) []byte { k.flags = verified; return c },
			"another key":       func(k *key, c []byte) []byte { k.signer = newKey(t, alg).signer; return c },
		} {
			bent := *k
			a := approval("ann", challenge())
			response := bent.sign(bend(&bent, a.ChallengeBytes()))
			theirs := library(k, a.ChallengeBytes(), response)
			proof, ours := r.Assertion(r.ctx, "ann", a.ChallengeBytes(), response)
			if (theirs == nil) != (ours == nil) || (ours == nil) != (name == "good") {
				t.Errorf("%s, %s: the library says %v, castellan %v", alg, name, theirs, ours)
			}
			if ours == nil {
				a.Proof = proof
				r.ok(identity.VerifyProof(a))
			}
		}
		var bits struct{ Response map[string]string }
		a := approval("ann", challenge())
		good := k.sign(a.ChallengeBytes())
		r.ok(json.Unmarshal(good, &bits))
		for _, part := range []string{"authenticatorData", "clientDataJSON", "signature"} {
			raw := unb64(t, bits.Response[part])
			for at := 0; at < len(raw); at += 1 + len(raw)/40 {
				flipped := bytes.Clone(raw)
				flipped[at] ^= 1
				response := json.RawMessage(bytes.Replace(good, []byte(bits.Response[part]), []byte(b64(flipped)), 1))
				if _, ours := r.Assertion(r.ctx, "ann", a.ChallengeBytes(), response); ours == nil {
					t.Errorf("%s: byte %d of %s is flipped and castellan takes it; the library says %v", alg, at, part, library(k, a.ChallengeBytes(), response))
				}
			}
		}
	}
}

var _ gate.Witness = (*identity.Identity)(nil)
