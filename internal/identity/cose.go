package identity

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/big"
)

// The algorithms that passkeys may sign with (COSE numbers).
const (
	algES256 = -7
	algEdDSA = -8
	algRS256 = -257
)

var (
	errKey       = errors.New("the public key is malformed")
	errSignature = errors.New("the signature does not fit")
)

// parseKey reads a COSE key: ES256 on P-256, EdDSA on Ed25519, or RS256 with 2048 to 8192 bits. Nothing may follow it.
func parseKey(cose []byte) (crypto.PublicKey, error) {
	v, rest, err := cborValue(cose)
	if err != nil || len(rest) > 0 {
		return nil, errKey
	}
	m, ok := v.(map[any]any)
	if !ok {
		return nil, errKey
	}
	num := func(k int64) int64 { n, _ := m[k].(int64); return n }
	text := func(k int64) []byte { b, _ := m[k].([]byte); return b }
	switch kty, alg := num(1), num(3); {
	case kty == 2 && alg == algES256 && num(-1) == 1:
		x, y := text(-2), text(-3)
		if len(x) != 32 || len(y) != 32 {
			return nil, errKey
		}
		key, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), append(append([]byte{4}, x...), y...))
		if err != nil {
			return nil, errKey
		}
		return key, nil
	case kty == 1 && alg == algEdDSA && num(-1) == 6:
		x := text(-2)
		if len(x) != ed25519.PublicKeySize {
			return nil, errKey
		}
		return ed25519.PublicKey(x), nil
	case kty == 3 && alg == algRS256:
		n, e := new(big.Int).SetBytes(text(-1)), new(big.Int).SetBytes(text(-2))
		if n.BitLen() < 2048 || n.BitLen() > 8192 || !e.IsInt64() || e.Int64() < 3 || e.Int64() > 1<<31-1 || e.Bit(0) == 0 || n.Bit(0) == 0 {
			return nil, errKey
		}
		return &rsa.PublicKey{N: n, E: int(e.Int64())}, nil
	default:
		return nil, fmt.Errorf("%w: kind %d with algorithm %d is not one of ES256, EdDSA and RS256", errKey, kty, alg)
	}
}

// verifySignature checks a passkey's signature over message.
func verifySignature(cose, message, signature []byte) error {
	key, err := parseKey(cose)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(message)
	ok := false
	switch k := key.(type) {
	case *ecdsa.PublicKey:
		ok = ecdsa.VerifyASN1(k, sum[:], signature)
	case ed25519.PublicKey:
		ok = ed25519.Verify(k, message, signature)
	case *rsa.PublicKey:
		ok = rsa.VerifyPKCS1v15(k, crypto.SHA256, sum[:], signature) == nil
	}
	if !ok {
		return errSignature
	}
	return nil
}
