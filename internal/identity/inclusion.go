package identity

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"

	"castellan/internal/gate"
)

// leadsToRoot checks the inclusion proof of a record (RFC 6962) with the standard library: hashing the header up its path
// gives the root. That the root is signed is the store's business, and a verifier's.
func leadsToRoot(p *gate.LedgerPosition) bool {
	root, err := base64.StdEncoding.DecodeString(p.Root)
	if err != nil || len(root) != sha256.Size || p.Index >= p.Size || len(p.Proof) > 64 {
		return false
	}
	hash := sha256.Sum256(append([]byte{0}, p.Leaf...))
	at, last := p.Index, p.Size-1
	for _, text := range p.Proof {
		side, err := base64.StdEncoding.DecodeString(text)
		if err != nil || len(side) != sha256.Size || last == 0 {
			return false
		}
		if at%2 == 1 || at == last {
			hash = sha256.Sum256(append(append([]byte{1}, side...), hash[:]...))
			for at%2 == 0 && at != 0 {
				at, last = at/2, last/2
			}
		} else {
			hash = sha256.Sum256(append(append([]byte{1}, hash[:]...), side...))
		}
		at, last = at/2, last/2
	}
	return last == 0 && bytes.Equal(hash[:], root)
}
