package identity

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// authenticatorData is what an authenticator says and signs.
type authenticatorData struct {
	rpHash  [32]byte
	flags   byte
	counter uint32
	// Of a new credential only.
	aaguid    []byte
	id        []byte
	publicKey []byte // COSE
}

const (
	flagPresent    = 1 << 0
	flagVerified   = 1 << 2
	flagEligible   = 1 << 3 // may be copied to other devices
	flagBackedUp   = 1 << 4
	flagCredential = 1 << 6
	flagExtensions = 1 << 7

	maxCredentialID = 1023
)

var errAuthenticator = errors.New("the authenticator's data is malformed")

// parseAuthenticatorData reads it whole: bytes that belong to nothing are refused.
func parseAuthenticatorData(b []byte) (*authenticatorData, error) {
	if len(b) < 37 {
		return nil, errAuthenticator
	}
	d := &authenticatorData{flags: b[32], counter: binary.BigEndian.Uint32(b[33:37])}
	copy(d.rpHash[:], b)
	rest := b[37:]
	if d.flags&flagBackedUp != 0 && d.flags&flagEligible == 0 {
		return nil, errAuthenticator
	}
	if d.flags&flagCredential != 0 {
		if len(rest) < 18 {
			return nil, errAuthenticator
		}
		n := int(binary.BigEndian.Uint16(rest[16:18]))
		if n == 0 || n > maxCredentialID || len(rest) < 18+n {
			return nil, errAuthenticator
		}
		d.aaguid, d.id = rest[:16], rest[18:18+n]
		keyed := rest[18+n:]
		_, after, err := cborValue(keyed)
		if err != nil {
			return nil, errAuthenticator
		}
		d.publicKey, rest = keyed[:len(keyed)-len(after)], after
	}
	if d.flags&flagExtensions != 0 {
		v, after, err := cborValue(rest)
		if _, ok := v.(map[any]any); err != nil || !ok {
			return nil, errAuthenticator
		}
		rest = after
	}
	if len(rest) > 0 {
		return nil, errAuthenticator
	}
	return d, nil
}

// clientData is what the browser says, and the authenticator signs with its own.
type clientData struct {
	kind, challenge, origin string
	cross                   bool
}

const (
	kindGet    = "webauthn.get"
	kindCreate = "webauthn.create"
)

var errClientData = errors.New("the browser's data is malformed")

// parseClientData reads the members that count. Names are compared exactly, and none may come twice.
func parseClientData(b []byte) (clientData, error) {
	var c clientData
	m, err := members(b)
	if err != nil {
		return c, errClientData
	}
	for name, into := range map[string]*string{"type": &c.kind, "challenge": &c.challenge, "origin": &c.origin} {
		if json.Unmarshal(m[name], into) != nil || *into == "" {
			return clientData{}, errClientData
		}
	}
	if v, ok := m["crossOrigin"]; ok && string(v) != "null" && json.Unmarshal(v, &c.cross) != nil {
		return clientData{}, errClientData
	}
	if v, ok := m["topOrigin"]; ok && string(v) != "null" {
		c.cross = true // only pages within pages of others have one
	}
	return c, nil
}

// members splits a JSON object. encoding/json takes names without regard to case and the last of several; here each
// stands for itself, once.
func members(b []byte) (map[string]json.RawMessage, error) {
	if !json.Valid(b) {
		return nil, errors.New("not JSON")
	}
	d := json.NewDecoder(bytes.NewReader(b))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("not an object")
	}
	m := map[string]json.RawMessage{}
	for d.More() {
		t, err := d.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return nil, errors.New("not an object")
		}
		if _, twice := m[name]; twice || len(m) >= 64 {
			return nil, fmt.Errorf("member %q comes twice", clip(name, 40))
		}
		var v json.RawMessage
		if err := d.Decode(&v); err != nil {
			return nil, err
		}
		m[name] = v
	}
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("something follows")
	}
	return m, nil
}

// answer is the JSON of a PublicKeyCredential, of navigator.credentials.get or create.
type answer struct {
	id         []byte
	clientData []byte
	// get
	authData, signature, userHandle []byte
	// create
	attestation []byte
	transports  []string
}

const maxAnswer = 64 << 10

var errAnswer = errors.New("the answer is not the JSON of a passkey's answer")

// parseAnswer reads what PublicKeyCredential.toJSON gives.
func parseAnswer(b []byte) (*answer, error) {
	if len(b) == 0 || len(b) > maxAnswer {
		return nil, errAnswer
	}
	m, err := members(b)
	if err != nil {
		return nil, errAnswer
	}
	var kind string
	if json.Unmarshal(m["type"], &kind) != nil || kind != "public-key" {
		return nil, errAnswer
	}
	r, err := members(m["response"])
	if err != nil {
		return nil, errAnswer
	}
	a := new(answer)
	read := func(v json.RawMessage, into *[]byte) bool {
		var s string
		if len(v) == 0 || string(v) == "null" {
			return true
		}
		if json.Unmarshal(v, &s) != nil {
			return false
		}
		var err error
		*into, err = base64.RawURLEncoding.DecodeString(strings.TrimRight(s, "="))
		return err == nil
	}
	var id []byte
	ok := read(m["rawId"], &a.id) && read(m["id"], &id) && read(r["clientDataJSON"], &a.clientData) && read(r["authenticatorData"], &a.authData) &&
		read(r["signature"], &a.signature) && read(r["userHandle"], &a.userHandle) && read(r["attestationObject"], &a.attestation)
	if a.id == nil {
		a.id = id
	}
	if !ok || len(a.id) == 0 || len(a.id) > maxCredentialID || len(a.clientData) == 0 || id != nil && !bytes.Equal(id, a.id) {
		return nil, errAnswer
	}
	if v := r["transports"]; len(v) > 0 && string(v) != "null" {
		if json.Unmarshal(v, &a.transports) != nil || len(a.transports) > 16 {
			return nil, errAnswer
		}
		for _, t := range a.transports {
			if !isRole(t) { // words of small letters
				return nil, errAnswer
			}
		}
	}
	return a, nil
}

// parseAttestation takes the authenticator's data out of an attestation object. What a maker attests is not asked for
// and not looked at: the one-time code, or another passkey, says that this one is the person's.
func parseAttestation(b []byte) (*authenticatorData, error) {
	v, rest, err := cborValue(b)
	m, ok := v.(map[any]any)
	if err != nil || !ok || len(rest) > 0 {
		return nil, errAuthenticator
	}
	data, ok := m["authData"].([]byte)
	if !ok {
		return nil, errAuthenticator
	}
	d, err := parseAuthenticatorData(data)
	if err != nil || d.flags&flagCredential == 0 {
		return nil, errAuthenticator
	}
	if _, err := parseKey(d.publicKey); err != nil {
		return nil, err
	}
	return d, nil
}
