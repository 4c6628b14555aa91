package identity

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"castellan/internal/gate"
)

// What comes from outside is read without a panic, and what is accepted holds what the rest relies on.

func FuzzCBOR(f *testing.F) {
	f.Add([]byte{0xa2, 0x01, 0x02, 0x20, 0x41, 0x00})
	f.Add([]byte{0x9f, 0xff})
	f.Add([]byte{0x5b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	f.Add(bytes.Repeat([]byte{0x81}, 100))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, rest, err := cborValue(b)
		if err == nil && !bytes.HasSuffix(b, rest) {
			t.Error("the rest is not the end")
		}
		if key, err := parseKey(b); err == nil && key == nil {
			t.Error("a key that is none")
		}
	})
}

func FuzzAuthenticatorData(f *testing.F) {
	f.Add(make([]byte, 37))
	f.Add(append(make([]byte, 32), 0x45, 0, 0, 0, 1))
	f.Fuzz(func(t *testing.T, b []byte) {
		if d, err := parseAuthenticatorData(b); err == nil && d.flags&flagCredential != 0 && (len(d.id) == 0 || len(d.publicKey) == 0) {
			t.Error("a credential without id or key")
		}
		_, _ = parseAttestation(b)
	})
}

func FuzzClientData(f *testing.F) {
	f.Add([]byte(`{"type":"webauthn.get","challenge":"x","origin":"https://a","crossOrigin":false}`))
	f.Add([]byte(`{"type":"webauthn.get","Type":"webauthn.create","type":"x","challenge":"x","origin":"o"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := parseClientData(b)
		if err == nil && (c.kind == "" || c.challenge == "" || c.origin == "" || !json.Valid(b)) {
			t.Errorf("accepted %q as %+v", b, c)
		}
	})
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`{"type":"public-key","id":"AA","rawId":"AA","response":{"clientDataJSON":"AA","transports":["usb"]}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if a, err := parseAnswer(b); err == nil && (len(a.id) == 0 || len(a.id) > maxCredentialID || len(a.clientData) == 0) {
			t.Errorf("accepted %q", b)
		}
	})
}

func FuzzJWT(f *testing.F) {
	f.Add("eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJ4In0.AAAA", []byte(`{"keys":[{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}]}`))
	f.Fuzz(func(t *testing.T, token string, keys []byte) {
		set, err := parseKeys(keys)
		if err == nil && len(set) == 0 {
			t.Error("a set without keys")
		}
		j, err := parseJWT(token)
		if err != nil {
			return
		}
		if j.alg != "RS256" && j.alg != "ES256" || strings.Count(token, ".") != 2 {
			t.Errorf("accepted %q", token)
		}
		for _, k := range set {
			j.fits(k)
		}
	})
}

func FuzzProvider(f *testing.F) {
	f.Add([]byte(`{"issuer":"https://a","authorization_endpoint":"https://a/x","token_endpoint":"https://a/t","jwks_uri":"https://a/k"}`))
	f.Add([]byte(`{"issuer":"https://a"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, err := parseProvider(b, "https://a"); err == nil && (p.Token == "" || p.Keys == "" || strings.HasPrefix(p.Token, "file:")) {
			t.Errorf("accepted %q", b)
		}
	})
}

func FuzzHash(f *testing.F) {
	f.Add("$argon2id$v=19$m=64,t=1,p=1$AAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")
	f.Add("$argon2id$v=19$m=4294967295,t=4294967295,p=255$AAAA$AAAA")
	f.Fuzz(func(t *testing.T, s string) {
		c, salt, sum, err := parseHash(s)
		if err == nil && (c.memory > 1<<20 || c.passes > 16 || c.threads > 16 || len(salt) < 8 || len(sum) < 16) {
			t.Errorf("accepted %q", s)
		}
	})
}

func FuzzEnrolment(f *testing.F) {
	f.Add(`{"data":{"credential":"c","may_approve":"2027-01-01T00:00:00Z","person":"ann"},"kind":"credential","seq":1,"status":"enrolled","target":"c","tree":"write"}`)
	f.Fuzz(func(t *testing.T, leaf string) {
		_, _ = parseEnrolment(leaf, &credential{Person: "ann", Fingerprint: "c", Record: 1})
		leadsToRoot(&gate.LedgerPosition{Leaf: leaf, Size: 1, Root: leaf})
	})
}
