package identity

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"castellan/internal/gate"

	"golang.org/x/crypto/argon2"
)

// cost are the parameters of argon2id. They are kept with each hash, so that they can be raised later.
type cost struct {
	memory  uint32 // KiB
	passes  uint32
	threads uint8
}

func usualCost() cost { return cost{memory: 64 << 10, passes: 2, threads: 1} }

const (
	passwordSlots = 3 // checks at once: 192 MiB
	maxPassword   = 1024
	saltSize      = 16
	hashSize      = 32
)

// hash writes the usual text form: $argon2id$v=19$m=65536,t=2,p=1$salt$hash.
func (c cost) hash(password string) (string, error) {
	salt := make([]byte, saltSize)
	if _, err := rand.Read(salt); err != nil {
		return "", fmt.Errorf("hash password: %w", err)
	}
	return c.text(salt, argon2.IDKey([]byte(password), salt, c.passes, c.memory, c.threads, hashSize)), nil
}

func (c cost) text(salt, sum []byte) string {
	b := base64.RawStdEncoding
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, c.memory, c.passes, c.threads, b.EncodeToString(salt), b.EncodeToString(sum))
}

// dummyHash is one that no password has: its sum is drawn. Comparing with it takes as long as with any other.
func (c cost) dummyHash() string {
	salt, sum := make([]byte, saltSize), make([]byte, hashSize)
	_, _ = rand.Read(salt) // never fails: crypto/rand ends the process instead
	_, _ = rand.Read(sum)
	return c.text(salt, sum)
}

var errHash = errors.New("the stored password hash cannot be read")

// parseHash reads the text form and bounds what it may cost.
func parseHash(text string) (c cost, salt, sum []byte, err error) {
	f := strings.Split(text, "$")
	if len(f) != 6 || f[0] != "" || f[1] != "argon2id" || f[2] != "v="+strconv.Itoa(argon2.Version) {
		return c, nil, nil, errHash
	}
	params := strings.Split(f[3], ",")
	if len(params) != 3 {
		return c, nil, nil, errHash
	}
	var n [3]uint64
	for k, name := range []string{"m=", "t=", "p="} {
		v, ok := strings.CutPrefix(params[k], name)
		if n[k], err = strconv.ParseUint(v, 10, 32); !ok || err != nil {
			return c, nil, nil, errHash
		}
	}
	if n[0] < 8 || n[0] > 1<<20 || n[1] < 1 || n[1] > 16 || n[2] < 1 || n[2] > 16 {
		return c, nil, nil, errHash
	}
	salt, err1 := base64.RawStdEncoding.Strict().DecodeString(f[4])
	sum, err2 := base64.RawStdEncoding.Strict().DecodeString(f[5])
	if err1 != nil || err2 != nil || len(salt) < 8 || len(salt) > 64 || len(sum) < 16 || len(sum) > 64 {
		return c, nil, nil, errHash
	}
	return cost{memory: uint32(n[0]), passes: uint32(n[1]), threads: uint8(n[2])}, salt, sum, nil
}

// matches compares in constant time; again says that the hash should be made anew with the present cost.
func (c cost) matches(text, password string) (ok, again bool, err error) {
	was, salt, sum, err := parseHash(text)
	if err != nil {
		return false, false, err
	}
	got := argon2.IDKey([]byte(password), salt, was.passes, was.memory, was.threads, uint32(len(sum)))
	return subtle.ConstantTimeCompare(got, sum) == 1, was != c, nil
}

// turn waits for the right to check a password.
func (i *Identity) turn(ctx context.Context) (end func(), err error) {
	select {
	case i.slots <- struct{}{}:
		return func() { <-i.slots }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("check password: %w", ctx.Err())
	}
}

// checkPassword compares a password with a hash, or with the hash of nobody, which takes as long. The caller has its turn.
func (i *Identity) checkPassword(hash, password string) (ok, again bool, err error) {
	if len(password) > maxPassword {
		password = password[:maxPassword] // no hash is of a longer one
		hash = ""
	}
	known := hash != ""
	if !known {
		hash = i.dummy
	}
	ok, again, err = i.cost.matches(hash, password)
	return ok && known, again && known, err
}

// goodPassword refuses what is guessed first. It does not ask for kinds of characters: length is what counts.
func (i *Identity) goodPassword(name, password string) error {
	n, hint := utf8.RuneCountInString(password), "Choose a longer one, for instance several words."
	switch {
	case !utf8.ValidString(password) || strings.ContainsRune(password, 0):
		return gate.Fail(gate.ErrInvalid, "Choose one of ordinary characters.", "the password is not text")
	case n < i.set.PasswordMin:
		return gate.Fail(gate.ErrInvalid, hint, "the password has %d characters; at least %d are needed", n, i.set.PasswordMin)
	case len(password) > maxPassword:
		return gate.Fail(gate.ErrInvalid, "Choose a shorter one.", "the password is longer than %d bytes", maxPassword)
	case name != "" && len(strings.ReplaceAll(strings.ToLower(password), name, "")) < 8:
		return gate.Fail(gate.ErrInvalid, hint, "the password is little more than the account's name")
	}
	distinct := map[rune]bool{}
	for _, r := range password {
		distinct[r] = true
	}
	if len(distinct) < 5 {
		return gate.Fail(gate.ErrInvalid, hint, "the password repeats %d characters", len(distinct))
	}
	return nil
}

func (i *Identity) newHash(ctx context.Context, name, password string) (string, error) {
	if err := i.goodPassword(name, password); err != nil {
		return "", err
	}
	end, err := i.turn(ctx)
	if err != nil {
		return "", err
	}
	defer end()
	return i.cost.hash(password)
}
