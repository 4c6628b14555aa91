package identity_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"testing"
)

// key is an authenticator in software with one credential.
type key struct {
	t       testing.TB
	signer  crypto.Signer
	id      []byte
	handle  []byte
	cose    []byte
	counter uint32
	// What it says when asked; tests bend it.
	origin, rp, kind string
	cross            bool
	flags            byte
	challenge        []byte // instead of the one that it is asked for
	spoil            func(client, auth, sig []byte) ([]byte, []byte, []byte)
}

const (
	present, verified, attested = 1, 4, 64
	origin                      = "https://castellan.example:8443"
	host                        = "castellan.example"
)

func cborHead(major byte, n int) []byte {
	switch {
	case n < 24:
		return []byte{major<<5 | byte(n)}
	case n < 256:
		return []byte{major<<5 | 24, byte(n)}
	}
	return []byte{major<<5 | 25, byte(n >> 8), byte(n)}
}

func cborInt(n int) []byte {
	if n < 0 {
		return cborHead(1, -1-n)
	}
	return cborHead(0, n)
}

func cborBytes(b []byte) []byte { return append(cborHead(2, len(b)), b...) }
func cborText(s string) []byte  { return append(cborHead(3, len(s)), s...) }

func cborMap(pairs ...[]byte) []byte {
	out := cborHead(5, len(pairs)/2)
	for _, p := range pairs {
		out = append(out, p...)
	}
	return out
}

func newKey(t testing.TB, alg string) *key {
	t.Helper()
	k := &key{t: t, id: make([]byte, 32), flags: present | verified, origin: origin, rp: host}
	_, _ = rand.Read(k.id)
	switch alg {
	case "ES256":
		s, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		k.signer = s
		k.cose = cborMap(cborInt(1), cborInt(2), cborInt(3), cborInt(-7), cborInt(-1), cborInt(1),
			cborInt(-2), cborBytes(s.X.FillBytes(make([]byte, 32))), cborInt(-3), cborBytes(s.Y.FillBytes(make([]byte, 32))))
	case "EdDSA":
		pub, s, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		k.signer = s
		k.cose = cborMap(cborInt(1), cborInt(1), cborInt(3), cborInt(-8), cborInt(-1), cborInt(6), cborInt(-2), cborBytes(pub))
	case "RS256":
		s, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			t.Fatal(err)
		}
		k.signer = s
		k.cose = cborMap(cborInt(1), cborInt(3), cborInt(3), cborInt(-257), cborInt(-1), cborBytes(s.N.Bytes()), cborInt(-2), cborBytes([]byte{1, 0, 1}))
	}
	return k
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func unb64(t testing.TB, s string) []byte {
	t.Helper()
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (k *key) client(kind string, challenge []byte) []byte {
	if k.kind != "" {
		kind = k.kind
	}
	if k.challenge != nil {
		challenge = k.challenge
	}
	b, err := json.Marshal(map[string]any{"type": kind, "challenge": b64(challenge), "origin": k.origin, "crossOrigin": k.cross})
	if err != nil {
		k.t.Fatal(err)
	}
	return b
}

func (k *key) auth(extra byte, more ...[]byte) []byte {
	rp := sha256.Sum256([]byte(k.rp))
	b := append(rp[:], k.flags|extra)
	b = binary.BigEndian.AppendUint32(b, k.counter)
	for _, m := range more {
		b = append(b, m...)
	}
	return b
}

// create answers navigator.credentials.create.
func (k *key) create(options json.RawMessage) json.RawMessage {
	k.t.Helper()
	var o struct {
		Challenge string
		User      struct{ ID string }
		Selection struct{ UserVerification, ResidentKey string } `json:"authenticatorSelection"`
		RP        struct{ ID string }
	}
	if err := json.Unmarshal(options, &o); err != nil {
		k.t.Fatal(err)
	}
	if o.Selection.UserVerification != "required" || o.Selection.ResidentKey != "required" || o.RP.ID != host {
		k.t.Errorf("creation options %s", options)
	}
	k.handle = unb64(k.t, o.User.ID)
	client := k.client("webauthn.create", unb64(k.t, o.Challenge))
	auth := k.auth(attested, make([]byte, 16), binary.BigEndian.AppendUint16(nil, uint16(len(k.id))), k.id, k.cose)
	att := cborMap(cborText("fmt"), cborText("none"), cborText("attStmt"), cborMap(), cborText("authData"), cborBytes(auth))
	return k.json(map[string]any{"clientDataJSON": b64(client), "attestationObject": b64(att), "transports": []string{"internal"}})
}

func (k *key) json(response map[string]any) json.RawMessage {
	b, err := json.Marshal(map[string]any{"type": "public-key", "id": b64(k.id), "rawId": b64(k.id), "response": response, "clientExtensionResults": map[string]any{}})
	if err != nil {
		k.t.Fatal(err)
	}
	return b
}

// get answers navigator.credentials.get.
func (k *key) get(options json.RawMessage) json.RawMessage {
	k.t.Helper()
	var o struct{ Challenge, UserVerification, RPID string }
	if err := json.Unmarshal(options, &o); err != nil {
		k.t.Fatal(err)
	}
	if o.UserVerification != "required" || o.RPID != host {
		k.t.Errorf("request options %s", options)
	}
	return k.sign(unb64(k.t, o.Challenge))
}

func (k *key) sign(challenge []byte) json.RawMessage {
	k.t.Helper()
	if k.counter > 0 {
		k.counter++
	}
	client, auth := k.client("webauthn.get", challenge), k.auth(0)
	sum := sha256.Sum256(client)
	message := append(append([]byte{}, auth...), sum[:]...)
	var sig []byte
	var err error
	if _, ok := k.signer.(ed25519.PrivateKey); ok {
		sig, err = k.signer.Sign(rand.Reader, message, crypto.Hash(0))
	} else {
		digest := sha256.Sum256(message)
		sig, err = k.signer.Sign(rand.Reader, digest[:], crypto.SHA256)
	}
	if err != nil {
		k.t.Fatal(err)
	}
	if k.spoil != nil {
		client, auth, sig = k.spoil(client, auth, sig)
	}
	r := map[string]any{"clientDataJSON": b64(client), "authenticatorData": b64(auth), "signature": b64(sig)}
	if k.handle != nil {
		r["userHandle"] = b64(k.handle)
	}
	return k.json(r)
}
