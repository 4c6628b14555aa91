package ledger

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/binary"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"
)

// keyring is the set of trusted keys with the rotations among them.
type keyring struct {
	all     []ed25519.PublicKey
	retired []ed25519.PublicKey
	pending []rotation
}

func (k *keyring) trust(keys ...ed25519.PublicKey) {
	for _, key := range keys {
		if !contains(k.all, key) {
			k.all = append(k.all, key)
		}
	}
}

func contains(keys []ed25519.PublicKey, key ed25519.PublicKey) bool {
	for _, k := range keys {
		if k.Equal(key) {
			return true
		}
	}
	return false
}

// rotate takes up a rotation. Both keys have signed it, so trust reaches from
// either to the other; the old one may sign no further head.
func (k *keyring) rotate(r rotation) {
	k.pending = append(k.pending, r)
	for again := true; again; {
		again = false
		rest := k.pending[:0]
		for _, r := range k.pending {
			if contains(k.all, r.old) || contains(k.all, r.new) {
				k.trust(r.old, r.new)
				k.retired = append(k.retired, r.old)
				again = true
			} else {
				rest = append(rest, r)
			}
		}
		k.pending = rest
	}
}

// current are the keys that may sign a head now.
func (k *keyring) current() []ed25519.PublicKey {
	var out []ed25519.PublicKey
	for _, key := range k.all {
		if !contains(k.retired, key) {
			out = append(out, key)
		}
	}
	return out
}

// signed reports whether note is signed by a current key, or by any trusted one.
func (k *keyring) signed(note string, any bool) bool {
	keys := k.current()
	if any {
		keys = k.all
	}
	_, err := OpenCheckpoint(note, keys...)
	return err == nil
}

// sigKeyID is the key id in the compact signature, as text.
func sigKeyID(sig []byte) string {
	return fmt.Sprintf("%08x", binary.BigEndian.Uint32(sig[tlog.HashSize:]))
}

func shortKey(k ed25519.PublicKey) string { return base64.StdEncoding.EncodeToString(k)[:12] + "…" }
