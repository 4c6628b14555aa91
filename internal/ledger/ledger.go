// Package ledger is a tamper-evident log. Records are hashed into Merkle trees
// (RFC 6962, by way of golang.org/x/mod/sumdb/tlog) whose signed heads bind all
// of them; docs/ledger-format.md is the specification.
//
// The package knows nothing of operations and owns no database: it writes
// through Rows, which stands for one transaction of whoever owns the state.
package ledger

import (
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/mod/sumdb/tlog"
)

// Config of a Log.
type Config struct {
	// Store id: [a-z0-9-], at most 64 characters, one for the life of the store.
	Store string
	// Signer is the Ed25519 key of the ledger.
	Signer crypto.Signer
	// Now is the clock, time.Now when nil.
	Now func() time.Time
	// Rand draws salts, crypto/rand when nil.
	Rand io.Reader
	// CacheBlocks bounds the hashes kept in memory for proofs: about 16 KiB per
	// block of 256 records; 0 means 1024.
	CacheBlocks int
}

// Log appends to and proves from the two trees of one store. It is safe for
// use by many goroutines, and many processes may append to one store: what
// makes it right is the transaction behind Rows.
type Log struct {
	store  string
	signer crypto.Signer
	key    ed25519.PublicKey
	now    func() time.Time
	rand   io.Reader

	mu      sync.Mutex
	checked map[Tree]Head // last head of each tree that was found good
	floor   map[Tree]Checkpoint
	cache   hashCache
}

// New makes a Log.
func New(c Config) (*Log, error) {
	if !storeName(c.Store) {
		return nil, fmt.Errorf("open ledger: store id %q is not 1 to 64 characters of a-z, 0-9 and -", c.Store)
	}
	l := &Log{store: c.Store, signer: c.Signer, now: c.Now, rand: randomOr(c.Rand),
		checked: map[Tree]Head{}, floor: map[Tree]Checkpoint{}}
	l.cache.max = c.CacheBlocks
	if l.cache.max <= 0 {
		l.cache.max = 1024
	}
	if l.now == nil {
		l.now = time.Now
	}
	if c.Signer == nil {
		return nil, errors.New("open ledger: there is no signing key")
	}
	key, ok := c.Signer.Public().(ed25519.PublicKey)
	if !ok {
		return nil, errors.New("open ledger: the signing key is not Ed25519")
	}
	l.key = key
	return l, nil
}

// Key is the public key.
func (l *Log) Key() ed25519.PublicKey { return l.key }

// Origin is the first line of the checkpoints of tree.
func (l *Log) Origin(tree Tree) string { return origin(l.store, tree) }

// Receipt says where a record stands.
type Receipt struct {
	Tree  Tree
	Index int64
	Leaf  tlog.Hash
	// Checkpoint is the head that this append made; Note is its signed form.
	Checkpoint Checkpoint
	Note       string
}

// Errors that say why an append or a proof was refused. Nothing was changed.
var (
	// ErrTampered: the stored head is not one that our key signed, or the
	// hashes beside it do not belong to it. Signing on would vouch for it.
	ErrTampered = errors.New("the ledger was changed from outside")
	// ErrRewound: the stored head is older than one that this process has seen.
	ErrRewound = errors.New("the ledger was put back to an older state")
)

// Append adds entries to tree within the transaction behind rows and signs the
// new head; all become durable when that transaction commits. The receipts are
// in the order of the entries.
//
// Before it signs, Append proves that the head it continues is one that the
// same key signed, so a tree that was rewritten in the database is never
// vouched for.
func (l *Log) Append(ctx context.Context, rows Rows, tree Tree, entries ...Entry) ([]Receipt, error) {
	if !tree.valid() {
		return nil, fmt.Errorf("append record: no tree %q", tree)
	}
	if len(entries) == 0 {
		return nil, nil
	}
	_, f, err := l.lastHead(ctx, rows, tree)
	if err != nil {
		return nil, fmt.Errorf("append record to %s tree: %w", tree, err)
	}
	now := l.now()
	records := make([]Record, len(entries))
	receipts := make([]Receipt, len(entries))
	for i, e := range entries {
		r, err := makeRecord(tree, f.size, e, now, l.rand)
		if err != nil {
			return nil, fmt.Errorf("append to %s tree: %w", tree, err)
		}
		leaf := tlog.RecordHash(r.Header)
		r.Hashes = make([]byte, 0, storedHashes(f.size)*tlog.HashSize)
		f.add(leaf, func(h tlog.Hash) { r.Hashes = append(r.Hashes, h[:]...) })
		records[i] = r
		receipts[i] = Receipt{Tree: tree, Index: r.Index, Leaf: leaf}
	}
	head, sig, err := l.sign(tree, &f)
	if err != nil {
		return nil, fmt.Errorf("append record to %s tree: %w", tree, err)
	}
	records[len(records)-1].Sig = sig
	if err := rows.Insert(ctx, tree, records); err != nil {
		return nil, fmt.Errorf("append record to %s tree: %w", tree, err)
	}
	if err := rows.SetHead(ctx, tree, head); err != nil {
		return nil, fmt.Errorf("append record to %s tree: %w", tree, err)
	}
	l.remember(tree, head)
	cp := Checkpoint{Origin: l.Origin(tree), Size: f.size, Root: f.root()}
	for i := range receipts {
		receipts[i].Checkpoint, receipts[i].Note = cp, head.Note
	}
	return receipts, nil
}

func (l *Log) sign(tree Tree, f *frontier) (Head, []byte, error) {
	cp := Checkpoint{Origin: l.Origin(tree), Size: f.size, Root: f.root()}
	msg, sig, err := signNote(cp, func(b []byte) ([]byte, error) {
		return l.signer.Sign(rand.Reader, b, crypto.Hash(0))
	}, l.key)
	return Head{Size: f.size, Frontier: f.bytes(), Note: msg}, sig, err
}

// lastHead is goodHead for a transaction that may write: its head is the latest
// one, since it holds the lock. (One that only reads may see an older state.)
func (l *Log) lastHead(ctx context.Context, rows Rows, tree Tree) (Head, frontier, error) {
	head, f, err := l.goodHead(ctx, rows, tree)
	if err != nil {
		return head, f, err
	}
	l.mu.Lock()
	floor, seen := l.floor[tree]
	l.mu.Unlock()
	if seen && (head.Size < floor.Size || head.Size == floor.Size && f.root() != floor.Root) {
		return Head{}, frontier{}, fmt.Errorf("%w: it has %d records, %d were seen before", ErrRewound, head.Size, floor.Size)
	}
	return head, f, nil
}

// goodHead reads the head and proves it: signed by our key, for this tree and
// size, and with a frontier whose root is the signed one.
func (l *Log) goodHead(ctx context.Context, rows Rows, tree Tree) (Head, frontier, error) {
	head, err := rows.Head(ctx, tree)
	if err != nil {
		return Head{}, frontier{}, fmt.Errorf("read head: %w", err)
	}
	f, err := parseFrontier(head.Size, head.Frontier)
	if err != nil {
		return Head{}, frontier{}, fmt.Errorf("%w: %w", ErrTampered, err)
	}
	l.mu.Lock()
	known := l.checked[tree]
	l.mu.Unlock()
	if head.Size == 0 && head.Note == "" {
		return head, f, nil // nobody has written yet
	}
	if known.Size == head.Size && known.Note == head.Note && string(known.Frontier) == string(head.Frontier) {
		return head, f, nil
	}
	cp, err := OpenCheckpoint(head.Note, l.key)
	if err != nil {
		return Head{}, frontier{}, fmt.Errorf("%w: %w", ErrTampered, err)
	}
	if cp.Origin != l.Origin(tree) || cp.Size != head.Size || cp.Root != f.root() {
		return Head{}, frontier{}, fmt.Errorf("%w: the signed head is not that of the stored tree", ErrTampered)
	}
	l.remember(tree, head)
	return head, f, nil
}

// remember saves the next append the check of a head made or checked here. It
// says nothing of commits: a rolled-back head is simply never met again.
func (l *Log) remember(tree Tree, head Head) {
	l.mu.Lock()
	l.checked[tree] = head
	l.mu.Unlock()
}

// Committed tells the Log that a head is durable: from now on it refuses to
// append to anything older. Call it after the commit.
func (l *Log) Committed(cp Checkpoint) {
	tree := cp.Tree()
	l.mu.Lock()
	defer l.mu.Unlock()
	if cp.Origin == l.Origin(tree) && cp.Size > l.floor[tree].Size {
		l.floor[tree] = cp
	}
}

// Head returns the signed head of tree after checking it against the key; a
// Checkpoint of size 0 and "" for an empty tree.
func (l *Log) Head(ctx context.Context, rows Rows, tree Tree) (Checkpoint, string, error) {
	head, f, err := l.goodHead(ctx, rows, tree)
	if err != nil {
		return Checkpoint{}, "", fmt.Errorf("read head of %s tree: %w", tree, err)
	}
	return Checkpoint{Origin: l.Origin(tree), Size: f.size, Root: f.root()}, head.Note, nil
}
