package ledger

import (
	"crypto/sha256"
	"fmt"
	"math/bits"

	"golang.org/x/mod/sumdb/tlog"
)

// frontier is the right edge of a tree: the roots of its complete subtrees,
// largest first. It is all that is needed to append and to name the root.
type frontier struct {
	size  int64
	nodes []tlog.Hash
}

func parseFrontier(size int64, b []byte) (frontier, error) {
	n := bits.OnesCount64(uint64(size))
	if size < 0 || len(b) != n*tlog.HashSize {
		return frontier{}, fmt.Errorf("parse frontier: %d bytes do not fit size %d", len(b), size)
	}
	f := frontier{size: size, nodes: make([]tlog.Hash, n, n+2)}
	for i := range f.nodes {
		copy(f.nodes[i][:], b[i*tlog.HashSize:])
	}
	return f, nil
}

func (f *frontier) bytes() []byte {
	b := make([]byte, 0, len(f.nodes)*tlog.HashSize)
	for i := range f.nodes {
		b = append(b, f.nodes[i][:]...)
	}
	return b
}

// add appends a leaf and calls node for each tree node that it completes,
// lowest first. These are the hashes that tlog.StoredHashes would return.
func (f *frontier) add(leaf tlog.Hash, node func(tlog.Hash)) {
	node(leaf)
	h := leaf
	for n := uint64(f.size); n&1 == 1; n >>= 1 {
		last := len(f.nodes) - 1
		h = tlog.NodeHash(f.nodes[last], h)
		f.nodes = f.nodes[:last]
		node(h)
	}
	f.nodes = append(f.nodes, h)
	f.size++
}

func (f *frontier) root() tlog.Hash {
	if len(f.nodes) == 0 {
		return sha256.Sum256(nil)
	}
	h := f.nodes[len(f.nodes)-1]
	for i := len(f.nodes) - 2; i >= 0; i-- {
		h = tlog.NodeHash(f.nodes[i], h)
	}
	return h
}

// storedHashes is how many hashes the record at index completes.
func storedHashes(index int64) int {
	return 1 + bits.TrailingZeros64(^uint64(index))
}
