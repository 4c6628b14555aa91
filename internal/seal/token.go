package seal

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
)

func randomText(n int) (string, error) {
	b := make([]byte, n)
	if _, err := io.ReadFull(rand.Reader, b); err != nil {
		return "", fmt.Errorf("draw random bytes: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(b), nil
}

// NewToken draws a token of 144 bits, 24 characters of A-Z a-z 0-9 - _, for one
// purpose and bound to texts (a plan id and its digest, say). Only the hash is
// to be stored; who stores it also sees to it that it is used once.
func NewToken(purpose string, bound ...string) (token Secret, hash string, err error) {
	t, err := randomText(18)
	if err != nil {
		return Secret{}, "", fmt.Errorf("make token: %w", err)
	}
	return NewSecret([]byte(t)), HashToken(t, purpose, bound...), nil
}

// HashToken returns the stored form of a token, hexadecimal.
func HashToken(token, purpose string, bound ...string) string {
	sum := sha256.Sum256(joined("castellan token: "+purpose, append([]string{token}, bound...)))
	return hex.EncodeToString(sum[:])
}

// CheckToken compares in constant time.
func CheckToken(token, hash, purpose string, bound ...string) bool {
	return subtle.ConstantTimeCompare([]byte(HashToken(token, purpose, bound...)), []byte(hash)) == 1
}

// Commitment binds to a value without telling it: Sum is SHA-256(Salt ‖ value).
type Commitment struct {
	Salt [32]byte
	Sum  [32]byte
}

// Commit draws a salt and commits to value.
func Commit(value []byte) (Commitment, error) {
	var c Commitment
	if _, err := io.ReadFull(rand.Reader, c.Salt[:]); err != nil {
		return c, fmt.Errorf("draw salt: %w", err)
	}
	c.Sum = saltedSum(c.Salt, value)
	return c, nil
}

// Opens reports whether value is the one committed to.
func (c Commitment) Opens(value []byte) bool {
	sum := saltedSum(c.Salt, value)
	return subtle.ConstantTimeCompare(sum[:], c.Sum[:]) == 1
}

func saltedSum(salt [32]byte, value []byte) [32]byte {
	h := sha256.New()
	h.Write(salt[:])
	h.Write(value)
	var sum [32]byte
	h.Sum(sum[:0])
	return sum
}
