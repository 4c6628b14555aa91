package ledger

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"math/bits"
	"sync"

	"golang.org/x/mod/sumdb/tlog"
)

// Proof shows, with nothing but a public key, that a record stands in the tree
// of a signed checkpoint.
type Proof struct {
	Index int64       `json:"index"`
	Size  int64       `json:"size"`
	Leaf  tlog.Hash   `json:"leaf"`
	Path  []tlog.Hash `json:"path"`
	Note  string      `json:"checkpoint,omitempty"`
}

// Check verifies the proof of the record with that header. Note must be signed
// by one of keys.
func (p Proof) Check(header []byte, keys ...ed25519.PublicKey) error {
	cp, err := OpenCheckpoint(p.Note, keys...)
	if err != nil {
		return fmt.Errorf("check proof: %w", err)
	}
	if cp.Size != p.Size || p.Index < 0 || p.Index >= p.Size || tlog.RecordHash(header) != p.Leaf {
		return errors.New("check proof: record, size and checkpoint do not belong together")
	}
	if err := tlog.CheckRecord(p.Path, cp.Size, cp.Root, p.Index, p.Leaf); err != nil {
		return fmt.Errorf("check proof: %w", err)
	}
	return nil
}

// Prove returns the proof that record index stands in the tree of checkpoint
// at. It reads what it needs of the hashes once and keeps them; a proof is
// checked against at before it is returned, so stale or altered hashes give an
// error wrapping ErrTampered, never a wrong proof. The caller adds the Note.
func (l *Log) Prove(ctx context.Context, rows Rows, at Checkpoint, index int64) (Proof, error) {
	tree := at.Tree()
	if at.Origin != l.Origin(tree) {
		return Proof{}, fmt.Errorf("prove record %d: checkpoint is of %q, this is %q", index, at.Origin, l.store)
	}
	if index < 0 || index >= at.Size {
		return Proof{}, fmt.Errorf("prove record %d: the tree has %d records", index, at.Size)
	}
	for attempt := 0; ; attempt++ {
		r := &hashReader{ctx: ctx, rows: rows, tree: tree, cache: &l.cache}
		path, leaf, root, err := r.path(at.Size, index)
		if err != nil {
			return Proof{}, fmt.Errorf("prove record %d: %w", index, err)
		}
		if root == at.Root {
			return Proof{Index: index, Size: at.Size, Leaf: leaf, Path: path}, nil
		}
		// The hashes kept may be those of a transaction that was rolled back.
		l.cache.drop(tree)
		if attempt > 0 {
			return Proof{}, fmt.Errorf("prove record %d: %w: its hashes do not lead to the root", index, ErrTampered)
		}
	}
}

// ProveGrowth returns the proof that the tree of checkpoint at begins with the
// whole tree of old.
func (l *Log) ProveGrowth(ctx context.Context, rows Rows, at, old Checkpoint) ([]tlog.Hash, error) {
	tree := at.Tree()
	if at.Origin != l.Origin(tree) || old.Origin != at.Origin {
		return nil, errors.New("prove growth: the checkpoints are of different trees")
	}
	if old.Size < 1 || old.Size > at.Size {
		return nil, fmt.Errorf("prove growth: no proof from %d to %d records", old.Size, at.Size)
	}
	for attempt := 0; ; attempt++ {
		path, err := tlog.ProveTree(at.Size, old.Size, &hashReader{ctx: ctx, rows: rows, tree: tree, cache: &l.cache})
		if err != nil {
			return nil, fmt.Errorf("prove growth: %w", err)
		}
		if CheckGrowth(path, at, old) == nil {
			return path, nil
		}
		l.cache.drop(tree)
		if attempt > 0 {
			return nil, fmt.Errorf("prove growth: %w: the tree is not a continuation of the older one", ErrTampered)
		}
	}
}

// CheckGrowth verifies a proof of ProveGrowth. Both checkpoints must have been
// opened with OpenCheckpoint.
func CheckGrowth(path []tlog.Hash, at, old Checkpoint) error {
	if at.Origin != old.Origin {
		return errors.New("check growth: the checkpoints are of different trees")
	}
	if err := tlog.CheckTree(path, at.Size, at.Root, old.Size, old.Root); err != nil {
		return fmt.Errorf("check growth: %w", err)
	}
	return nil
}

// blockRecords is how many records' hashes are read at once: all nodes of the
// eight lowest levels of a proof lie in one block.
const (
	blockLevels  = 8
	blockRecords = 1 << blockLevels
)

type blockKey struct {
	tree  Tree
	block int64
}

// hashCache keeps stored hashes, which never change once committed. blocks
// holds those of blockRecords records each, strung together as far as read;
// upper holds the rows that complete larger subtrees.
type hashCache struct {
	mu     sync.RWMutex
	max    int
	blocks map[blockKey][]byte
	upper  map[blockKey][]byte
}

func (c *hashCache) get(upper bool, k blockKey) []byte {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if upper {
		return c.upper[k]
	}
	return c.blocks[k]
}

func (c *hashCache) put(upper bool, k blockKey, b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.blocks == nil {
		c.blocks, c.upper = map[blockKey][]byte{}, map[blockKey][]byte{}
	}
	m, max := c.blocks, c.max
	if upper {
		// 64 rows of two or three hundred bytes weigh as much as one block.
		m, max = c.upper, c.max*64
	}
	if _, there := m[k]; !there && len(m) >= max {
		for old := range m { // any will do: proofs have no order worth modelling
			delete(m, old)
			break
		}
	}
	m[k] = b
}

func (c *hashCache) drop(tree Tree) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range []map[blockKey][]byte{c.blocks, c.upper} {
		for k := range m {
			if k.tree == tree {
				delete(m, k)
			}
		}
	}
}

// hashReader serves hashes from the cache and, for what is missing, from rows.
type hashReader struct {
	ctx   context.Context
	rows  Rows
	tree  Tree
	cache *hashCache
	// The block used last: the lower half of a proof lies in one.
	last      blockKey
	lastBlock []byte
}

// path returns the audit path of record n in the tree of the first size
// records, as tlog.ProveRecord does, with the leaf and the root it leads to.
func (r *hashReader) path(size, n int64) (path []tlog.Hash, leaf, root tlog.Hash, err error) {
	if leaf, err = r.node(0, n); err != nil {
		return nil, leaf, root, err
	}
	path = make([]tlog.Hash, 0, bits.Len64(uint64(size-1)))
	root = leaf
	level := 0
	// at is the node above n, end the last node of its level.
	for at, end := n, size-1; end > 0; at, end, level = at>>1, end>>1, level+1 {
		var h tlog.Hash
		switch {
		case at&1 == 1:
			if h, err = r.node(level, at-1); err == nil {
				root = tlog.NodeHash(h, root)
			}
		case at == end:
			continue // no sibling: the node moves up as it is
		default:
			if (at+2)<<level <= size {
				h, err = r.node(level, at+1)
			} else {
				h, err = r.edge((at+1)<<level, size)
			}
			if err == nil {
				root = tlog.NodeHash(root, h)
			}
		}
		if err != nil {
			return nil, leaf, root, err
		}
		path = append(path, h)
	}
	return path, leaf, root, nil
}

// edge is the root over the records from ≤ i < to, where to is the end of the
// tree and from a multiple of the largest power of two that fits.
func (r *hashReader) edge(from, to int64) (tlog.Hash, error) {
	var nodes [64]tlog.Hash
	n := 0
	for from < to {
		level := bits.Len64(uint64(to-from)) - 1
		h, err := r.node(level, from>>level)
		if err != nil {
			return h, err
		}
		nodes[n] = h
		n++
		from += 1 << level
	}
	h := nodes[n-1]
	for i := n - 2; i >= 0; i-- {
		h = tlog.NodeHash(nodes[i], h)
	}
	return h, nil
}

// ReadHashes implements tlog.HashReader.
func (r *hashReader) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	out := make([]tlog.Hash, len(indexes))
	for i, x := range indexes {
		level, n := tlog.SplitStoredHashIndex(x)
		h, err := r.node(level, n)
		if err != nil {
			return nil, err
		}
		out[i] = h
	}
	return out, nil
}

// storedIndex is tlog.StoredHashIndex(0, n) in closed form.
func storedIndex(n int64) int64 { return 2*n - int64(bits.OnesCount64(uint64(n))) }

// node returns the n-th hash of a level of the tree.
func (r *hashReader) node(level int, n int64) (tlog.Hash, error) {
	record := (n+1)<<level - 1 // the record that completed this node
	if level > blockLevels {
		b, err := r.load(true, blockKey{r.tree, record}, record, record+1, (level+1)*tlog.HashSize)
		if err != nil {
			return tlog.Hash{}, err
		}
		return tlog.Hash(b[level*tlog.HashSize:]), nil
	}
	first := record &^ (blockRecords - 1)
	at := int(storedIndex(record)-storedIndex(first))*tlog.HashSize + level*tlog.HashSize
	if r.last.block != first || len(r.lastBlock) < at+tlog.HashSize {
		b, err := r.load(false, blockKey{r.tree, first}, first, first+blockRecords, at+tlog.HashSize)
		if err != nil {
			return tlog.Hash{}, err
		}
		r.last, r.lastBlock = blockKey{r.tree, first}, b
	}
	return tlog.Hash(r.lastBlock[at:]), nil
}

// load returns at least need bytes of the hashes of records from ≤ i < to.
func (r *hashReader) load(upper bool, k blockKey, from, to int64, need int) ([]byte, error) {
	if b := r.cache.get(upper, k); len(b) >= need {
		return b, nil
	}
	b, err := r.rows.Hashes(r.ctx, r.tree, from, to)
	if err != nil {
		return nil, fmt.Errorf("read hashes of records %d to %d: %w", from, to-1, err)
	}
	if len(b) < need {
		return nil, fmt.Errorf("read hashes of records %d to %d: %w: only %d bytes are there", from, to-1, ErrTampered, len(b))
	}
	r.cache.put(upper, k, b)
	return b, nil
}
