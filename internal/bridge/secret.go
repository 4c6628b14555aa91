//go:build linux

package bridge

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// A secret is kept as "sha256:SALT:HASH", both in hex. It is made here, 32 random bytes long: no guessing reaches it, so a
// slow hash would gain nothing.
const secretKind = "sha256"

// NewSecret makes a secret and the line that is kept of it.
func NewSecret() (secret, line string) {
	b, salt := make([]byte, 32), make([]byte, 16)
	_, _ = rand.Read(b)    // never fails
	_, _ = rand.Read(salt) // never fails
	secret = hex.EncodeToString(b)
	return secret, secretKind + ":" + hex.EncodeToString(salt) + ":" + hashed(salt, secret)
}

func hashed(salt []byte, secret string) string {
	h := sha256.New()
	h.Write(salt)
	h.Write([]byte(secret))
	return hex.EncodeToString(h.Sum(nil))
}

// matches compares in constant time.
func matches(line, secret string) (bool, error) {
	part := strings.Split(strings.TrimSpace(line), ":")
	if len(part) != 3 || part[0] != secretKind {
		return false, errors.New("it does not hold sha256:SALT:HASH")
	}
	salt, err := hex.DecodeString(part[1])
	if err != nil || len(salt) < 8 || len(part[2]) != 2*sha256.Size {
		return false, errors.New("it does not hold sha256:SALT:HASH")
	}
	return subtle.ConstantTimeCompare([]byte(hashed(salt, secret)), []byte(strings.ToLower(part[2]))) == 1, nil
}

// secretFile compares a secret with the one whose hash lies in a file that only root can read.
func secretFile(path, secret string) (bool, error) {
	line, err := readGuarded(path, 4<<10, 0o077)
	if err != nil {
		return false, err
	}
	return matches(string(line), secret)
}

// guesses counts wrong secrets over all bridges of the node, in a file of the state.
const (
	guessesMost   = 10
	guessesWithin = 10 * time.Minute
)

func (s *state) guesses(name string) int {
	b, err := os.ReadFile(filepath.Join(s.dir, "wrong-"+name))
	if err != nil {
		return 0
	}
	n := 0
	for line := range strings.Lines(string(b)) {
		if at, err := time.Parse(time.RFC3339, strings.TrimSpace(line)); err == nil && time.Since(at) < guessesWithin {
			n++
		}
	}
	return n
}

func (s *state) guessed(name string) {
	path := filepath.Join(s.dir, "wrong-"+name)
	flags := os.O_WRONLY | os.O_CREATE | os.O_APPEND
	if info, err := os.Stat(path); err == nil && (info.Size() > 64<<10 || time.Since(info.ModTime()) > guessesWithin) {
		flags |= os.O_TRUNC
	}
	f, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		return
	}
	_, _ = f.WriteString(time.Now().UTC().Format(time.RFC3339) + "\n") // a guess of 256 bits more or less
	f.Close()
}

// rootSecret lets a script of the host run as root.
func (b *Bridge) rootSecret(secret string) error {
	if !b.set.Root.Enabled {
		return refuse(b.set.hint("root.enabled", "set it to true, and root.secret to the file with the hash of a secret (castellan bridge secret makes one)"), "this bridge runs nothing of a caller's as root on the host")
	}
	if b.state.guesses("root") >= guessesMost {
		return refuse("Wait ten minutes.", "too many wrong secrets for root on this host")
	}
	ok, err := secretFile(b.set.Root.Secret, secret)
	if err != nil {
		return refuse(b.set.hint("root.secret", "correct the file"), "the secret for root on this host cannot be compared: %v", err)
	}
	if !ok {
		b.state.guessed("root")
		return refuse("Give castellan the secret that castellan bridge secret printed on the node, in its setting for this bridge.", "the secret for root on this host is wrong")
	}
	return nil
}

// The words for the node.
const (
	wordMaintenance = "maintenance"
	wordDeadMan     = "dead_man"
	wordUpdates     = "updates"
	wordUpgrade     = "upgrade"
)

// only refuses arguments of a word that it does not have.
func only(args map[string]string, names ...string) error {
	for name := range args {
		known := false
		for _, n := range names {
			known = known || n == name
		}
		if !known {
			return refuse("", "the word has no argument %.40q; it has %s", name, strings.Join(names, ", "))
		}
	}
	return nil
}

// oneOf reads an argument that is one of a few.
func oneOf(args map[string]string, name string, values ...string) (string, error) {
	for _, v := range values {
		if args[name] == v {
			return v, nil
		}
	}
	return "", refuse("", "%s is one of %s", name, strings.Join(values, ", "))
}
