package identity

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"
)

// Tokens of outside providers: signed JSON (JWS in its compact form) with RS256 or ES256, and nothing else.

const maxJWT = 16 << 10

var (
	errJWT       = errors.New("the token is malformed")
	errJWTKey    = errors.New("no key of the provider fits the token")
	errJWTClaims = errors.New("the token's claims are malformed")
)

// jwt is a token that was taken apart, not yet verified.
type jwt struct {
	alg, kid  string
	signed    []byte
	signature []byte
	claims    map[string]json.RawMessage
}

// parseJWT takes a token apart. An algorithm that is not in the list is refused here, before any key is looked at.
func parseJWT(text string) (*jwt, error) {
	part := strings.Split(text, ".")
	if len(text) > maxJWT || len(part) != 3 {
		return nil, errJWT
	}
	var raw [3][]byte
	for n, p := range part {
		var err error
		if raw[n], err = base64.RawURLEncoding.Strict().DecodeString(p); err != nil || len(raw[n]) == 0 {
			return nil, errJWT
		}
	}
	head, err := members(raw[0])
	if err != nil {
		return nil, errJWT
	}
	t := &jwt{signed: []byte(part[0] + "." + part[1]), signature: raw[2]}
	if json.Unmarshal(head["alg"], &t.alg) != nil || t.alg != "RS256" && t.alg != "ES256" {
		return nil, fmt.Errorf("%w: it is signed with %q, not with RS256 or ES256", errJWT, clip(t.alg, 20))
	}
	if v, ok := head["kid"]; ok && (json.Unmarshal(v, &t.kid) != nil || len(t.kid) > 256) {
		return nil, errJWT
	}
	if _, ok := head["crit"]; ok {
		return nil, fmt.Errorf("%w: it asks for extensions that are not known", errJWT)
	}
	if t.claims, err = members(raw[1]); err != nil {
		return nil, errJWT
	}
	return t, nil
}

func (t *jwt) fits(k jwk) bool {
	if k.alg != t.alg || t.kid != "" && k.kid != t.kid {
		return false
	}
	sum := sha256.Sum256(t.signed)
	switch key := k.key.(type) {
	case *rsa.PublicKey:
		return rsa.VerifyPKCS1v15(key, crypto.SHA256, sum[:], t.signature) == nil
	case *ecdsa.PublicKey:
		if len(t.signature) != 64 {
			return false
		}
		return ecdsa.Verify(key, sum[:], new(big.Int).SetBytes(t.signature[:32]), new(big.Int).SetBytes(t.signature[32:]))
	}
	return false
}

// text is a claim that is a string; empty when it is not there.
func (t *jwt) text(name string) (string, error) {
	v := t.claims[name]
	if len(v) == 0 || string(v) == "null" {
		return "", nil
	}
	var s string
	if json.Unmarshal(v, &s) != nil || len(s) > 1024 {
		return "", errJWTClaims
	}
	return s, nil
}

// list is a claim that is a string or a list of strings.
func (t *jwt) list(name string) ([]string, error) {
	v := t.claims[name]
	if len(v) == 0 || string(v) == "null" {
		return nil, nil
	}
	var s string
	if json.Unmarshal(v, &s) == nil {
		return []string{s}, nil
	}
	var l []string
	if json.Unmarshal(v, &l) != nil || len(l) > 1000 {
		return nil, errJWTClaims
	}
	return l, nil
}

// moment is a claim that is a time in seconds; zero when it is not there.
func (t *jwt) moment(name string) (time.Time, error) {
	v, ok := t.claims[name]
	if !ok {
		return time.Time{}, nil
	}
	var f float64
	if json.Unmarshal(v, &f) != nil || f < 1 || f > 1<<40 {
		return time.Time{}, errJWTClaims
	}
	return time.Unix(int64(f), 0).UTC(), nil
}

const jwtSkew = time.Minute

// check says whether the token is from this issuer, for one of these audiences, and good now. It returns its end.
func (t *jwt) check(issuer string, audience []string, now time.Time) (time.Time, error) {
	iss, err := t.text("iss")
	if err != nil || iss != issuer {
		return time.Time{}, fmt.Errorf("the token is from %q, not from %q", clip(iss, 200), issuer)
	}
	aud, err := t.list("aud")
	if err != nil || !slices.ContainsFunc(aud, func(a string) bool { return a != "" && slices.Contains(audience, a) }) {
		return time.Time{}, errors.New("the token is for somebody else")
	}
	exp, err := t.moment("exp")
	nbf, err1 := t.moment("nbf")
	iat, err2 := t.moment("iat")
	if err := firstOf(err, err1, err2); err != nil {
		return time.Time{}, err
	}
	switch {
	case exp.IsZero():
		return time.Time{}, errors.New("the token does not say until when it is good")
	case !now.Before(exp.Add(jwtSkew)):
		return time.Time{}, errors.New("the token has expired")
	case nbf.After(now.Add(jwtSkew)) || iat.After(now.Add(jwtSkew)):
		return time.Time{}, errors.New("the token is from the future")
	}
	return exp, nil
}

// jwk is a public key of a provider.
type jwk struct {
	kid, alg string
	key      crypto.PublicKey
}

const maxKeys = 64

// parseKeys reads a key set (RFC 7517). Keys that are not for RS256 or ES256 signatures are left out.
func parseKeys(b []byte) ([]jwk, error) {
	var set struct {
		Keys []struct{ Kty, Kid, Use, Alg, Crv, N, E, X, Y string }
	}
	if len(b) > maxOutside || json.Unmarshal(b, &set) != nil {
		return nil, errors.New("the provider's key set is malformed")
	}
	if len(set.Keys) > maxKeys {
		return nil, fmt.Errorf("the provider's key set has more than %d keys", maxKeys)
	}
	var out []jwk
	for _, k := range set.Keys {
		if k.Use != "" && k.Use != "sig" || len(k.Kid) > 256 {
			continue
		}
		num := func(s string) []byte {
			b, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(s, "="))
			if err != nil {
				return nil
			}
			return b
		}
		switch {
		case k.Kty == "RSA" && (k.Alg == "" || k.Alg == "RS256"):
			n, e := new(big.Int).SetBytes(num(k.N)), new(big.Int).SetBytes(num(k.E))
			if n.BitLen() < 2048 || n.BitLen() > 8192 || n.Bit(0) == 0 || !e.IsInt64() || e.Int64() < 3 || e.Int64() > 1<<31-1 || e.Bit(0) == 0 {
				continue
			}
			out = append(out, jwk{k.Kid, "RS256", &rsa.PublicKey{N: n, E: int(e.Int64())}})
		case k.Kty == "EC" && k.Crv == "P-256" && (k.Alg == "" || k.Alg == "ES256"):
			x, y := num(k.X), num(k.Y)
			if len(x) != 32 || len(y) != 32 {
				continue
			}
			key, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), slices.Concat([]byte{4}, x, y))
			if err != nil {
				continue
			}
			out = append(out, jwk{k.Kid, "ES256", key})
		}
	}
	if len(out) == 0 {
		return nil, errors.New("the provider's key set has no key for RS256 or ES256")
	}
	return out, nil
}
