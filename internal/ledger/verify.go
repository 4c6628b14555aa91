package ledger

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"math"
	"strings"

	"golang.org/x/mod/sumdb/tlog"
)

// Options of Verify and its kin.
type Options struct {
	// Keys that are trusted. Key rotations signed by one of them extend them.
	Keys []ed25519.PublicKey
	// Store id that is expected, "" for whichever the heads name.
	Store string
	// Heads are checkpoints of either tree that were kept elsewhere: the log
	// must contain each. Only they can show that records were cut off the end,
	// or that the whole log was put back or replaced. A signature on one is
	// checked; without one, that it was kept is all there is to trust.
	Heads []string
}

// Fault is the kind of a break.
type Fault string

// The faults that Verify tells apart.
const (
	Edit         Fault = "edit"
	Reorder      Fault = "reorder"
	Insertion    Fault = "insertion"
	Removal      Fault = "removal"
	ForgedAppend Fault = "forged append"
	WrongKey     Fault = "wrong key"
	Truncation   Fault = "truncation"
	Replacement  Fault = "replacement"
	Rewind       Fault = "rewind"
)

// Broken names the first record that is not what was signed, and why.
type Broken struct {
	Tree Tree `json:"tree"`
	// Index of the record; for a truncation that of the first missing one; -1
	// when the log as a whole is wrong.
	Index int64 `json:"index"`
	Fault Fault `json:"fault"`
	// Reason in words, beginning with the fault.
	Reason string `json:"reason"`
}

// Withheld counts what is lawfully absent; the commitments still bind it.
type Withheld struct {
	Records int64 `json:"records"`
	Parts   int64 `json:"parts"`
}

// TreeResult is what was found in one tree.
type TreeResult struct {
	Size     int64    `json:"size"` // records found
	Head     string   `json:"head"` // signed checkpoint, "" for an empty tree
	Broken   *Broken  `json:"broken"`
	Withheld Withheld `json:"withheld"`
}

// Result of a verification.
type Result struct {
	OK bool `json:"ok"`
	// Size, Broken and Head are those of the write tree; Broken is that of the
	// read tree when only that is broken.
	Size   int64               `json:"size"`
	Broken *Broken             `json:"broken"`
	Head   string              `json:"head"`
	Trees  map[Tree]TreeResult `json:"trees"`
}

// Verify reads both trees whole and compares them with their signed heads. A
// broken log is a result, not an error; an error means that it could not be
// read or that the options make no sense.
func Verify(ctx context.Context, rows Rows, o Options) (Result, error) {
	v, err := newVerification(o)
	if err != nil {
		return Result{}, err
	}
	var checkers []*checker
	for _, tree := range Trees() {
		head, err := rows.Head(ctx, tree)
		if err != nil {
			return Result{}, fmt.Errorf("verify %s tree: %w", tree, err)
		}
		checkers = append(checkers, v.checker(tree, head.Note, &head))
	}
	for _, c := range checkers {
		tree := c.tree
		if err := rows.Scan(ctx, tree, math.MinInt64, math.MaxInt64, c.record); err != nil {
			return Result{}, fmt.Errorf("verify %s tree: %w", tree, err)
		}
		c.sigs = func(from, to int64, fn func(size int64, sig []byte)) error {
			return rows.Scan(ctx, tree, from, to, func(r *Record) error {
				if len(r.Sig) == sigLen {
					fn(r.Index+1, r.Sig)
				}
				return nil
			})
		}
	}
	return v.result(checkers)
}

// VerifyTail is the quick check for a start: signature and frontier of both
// heads, the newest tail records, that nothing stands beyond them, and that the
// tree contains every one of o.Heads. It trusts the keys of o as they are (the
// heads are re-signed when the key is rotated).
func (l *Log) VerifyTail(ctx context.Context, rows Rows, o Options, tail int64) (Result, error) {
	o.Store = l.store
	v, err := newVerification(o)
	if err != nil {
		return Result{}, err
	}
	res := Result{OK: true, Trees: map[Tree]TreeResult{}}
	for _, tree := range Trees() {
		tr, err := v.tail(ctx, rows, tree, tail)
		if err != nil {
			return Result{}, fmt.Errorf("verify newest records of %s tree: %w", tree, err)
		}
		res.add(tree, tr)
	}
	return res, nil
}

func (res *Result) add(tree Tree, tr TreeResult) {
	res.Trees[tree] = tr
	if tree == Write {
		res.Size, res.Head = tr.Size, tr.Head
	}
	if tr.Broken != nil {
		res.OK = false
		if res.Broken == nil {
			res.Broken = tr.Broken
		}
	}
}

// verification is the state that both trees share.
type verification struct {
	o      Options
	store  string // expected, else the one that the first head names
	pinned map[Tree][]pin
	keys   keyring
	// What retention said it removed: records below an index, and how many.
	below, dropped map[Tree]int64
}

type pin struct {
	Checkpoint
	note string
	root *tlog.Hash // of the log at that size, nil when it never had it
}

func newVerification(o Options) (*verification, error) {
	if len(o.Keys) == 0 {
		return nil, errors.New("verify ledger: no public key is given")
	}
	for _, k := range o.Keys {
		if len(k) != ed25519.PublicKeySize {
			return nil, errors.New("verify ledger: a public key is not 32 bytes long")
		}
	}
	v := &verification{o: o, store: o.Store, pinned: map[Tree][]pin{}, below: map[Tree]int64{}, dropped: map[Tree]int64{}}
	v.keys.trust(o.Keys...)
	for _, h := range o.Heads {
		// People keep them in files and settings, where line ends suffer.
		h = strings.TrimSpace(strings.ReplaceAll(h, "\r\n", "\n")) + "\n"
		c, err := ParseCheckpoint(h)
		if err != nil {
			return nil, fmt.Errorf("verify ledger: given head: %w", err)
		}
		v.pinned[c.Tree()] = append(v.pinned[c.Tree()], pin{Checkpoint: c, note: h})
	}
	return v, nil
}

// checker of a tree; stored is nil for an export, which has only the note.
func (v *verification) checker(tree Tree, note string, stored *Head) *checker {
	c := &checker{v: v, tree: tree, note: note, stored: stored, pins: v.pinned[tree]}
	if cp, err := ParseCheckpoint(note); err == nil {
		c.headSize = cp.Size
		if v.store == "" {
			v.store = cp.Store()
		}
	}
	return c
}

func (v *verification) result(checkers []*checker) (Result, error) {
	res := Result{OK: true, Trees: map[Tree]TreeResult{}}
	for _, c := range checkers {
		broken, err := c.finish()
		if err != nil {
			return Result{}, err
		}
		if broken != nil {
			broken.Reason = string(broken.Fault) + ": " + broken.Reason
		}
		res.add(c.tree, TreeResult{Size: c.count, Head: c.note, Broken: broken, Withheld: c.withheld})
	}
	return res, nil
}

// pinFault compares the log with the heads kept elsewhere. It is asked only of
// a tree that is sound in itself.
func (c *checker) pinFault() *Broken {
	for _, p := range c.pins {
		switch store, _ := p.split(); {
		case c.store != "" && store != c.store:
			return c.broken(-1, Replacement, "the given head is of store %s, this log is of store %s", store, c.store)
		case strings.Contains(p.note, "\n\n") && !c.v.keys.signed(p.note, true):
			return c.broken(-1, WrongKey, "the given head is not signed by a trusted key")
		case p.Size > c.f.size:
			return c.broken(c.f.size, Truncation, "the given head covers %d records, the log ends after %d and its own head is of that size: it was cut off at the end, or put back (rewind) to an older state", p.Size, c.f.size)
		case p.root == nil || *p.root != p.Root:
			return c.broken(-1, Replacement, "the first %d records are not those that the given head covers: the log was replaced, or put back (rewind) to an older state and continued from there", p.Size)
		}
	}
	return nil
}

// tail checks the end of a tree with a few reads.
func (v *verification) tail(ctx context.Context, rows Rows, tree Tree, n int64) (TreeResult, error) {
	head, err := rows.Head(ctx, tree)
	if err != nil {
		return TreeResult{}, err
	}
	c := v.checker(tree, head.Note, &head)
	tr := TreeResult{Size: head.Size, Head: head.Note}
	fail := func(b *Broken) (TreeResult, error) {
		b.Reason = string(b.Fault) + ": " + b.Reason
		tr.Broken = b
		return tr, nil
	}
	f, err := parseFrontier(head.Size, head.Frontier)
	if err != nil {
		return fail(c.broken(-1, Edit, "the stored head is damaged: %v", err))
	}
	if b := c.headFault(); b != nil {
		return fail(b)
	}
	root := f.root()
	if head.Size > 0 && root != c.head.Root {
		return fail(c.broken(-1, Edit, "the stored head does not belong to its signature"))
	}
	// The hashes are authenticated by the root, so none of them is kept from or
	// for anybody else.
	r := &hashReader{ctx: ctx, rows: rows, tree: tree, cache: &hashCache{max: 64}}
	first := max(0, head.Size-max(n, 1))
	if first > 0 {
		if c.f, err = frontierAt(first, r); err != nil {
			if errors.Is(err, ErrTampered) {
				return fail(c.broken(-1, Edit, "%v", err))
			}
			return TreeResult{}, err
		}
	}
	c.next, c.count, c.lastSig = first, first, first
	if err := rows.Scan(ctx, tree, first, math.MaxInt64, c.record); err != nil {
		return TreeResult{}, err
	}
	if b := c.tailFault(root); b != nil {
		return fail(b)
	}
	for i := range c.pins {
		p := &c.pins[i]
		if p.Size == 0 || p.Size > head.Size {
			continue
		}
		at := Checkpoint{Origin: c.head.Origin, Size: head.Size, Root: root}
		path, err := tlog.ProveTree(head.Size, p.Size, r)
		if err != nil && !errors.Is(err, ErrTampered) {
			return TreeResult{}, err
		}
		if err == nil && CheckGrowth(path, at, Checkpoint{Origin: at.Origin, Size: p.Size, Root: p.Root}) == nil {
			p.root = &p.Root
		}
	}
	if b := c.pinFault(); b != nil {
		return fail(b)
	}
	return tr, nil
}

// tailFault is finish for a partial scan: what it finds is exact only when the
// break lies within the scanned records.
func (c *checker) tailFault(root tlog.Hash) *Broken {
	switch {
	case c.head.Size < c.count:
		return c.broken(c.head.Size, ForgedAppend, "records from %d on are beyond the signed head", c.head.Size)
	case c.suspect != nil:
		return c.blame()
	case c.f.size != c.head.Size:
		return c.broken(c.f.size, Truncation, "the signed head covers %d records, the log ends after %d", c.head.Size, c.f.size)
	case c.f.root() != root:
		return c.broken(-1, Edit, "the stored hashes do not lead to the signed head; a full verification will name the record")
	}
	return nil
}

func frontierAt(size int64, r tlog.HashReader) (frontier, error) {
	var indexes []int64
	for lo, bit := int64(0), int64(1)<<62; bit > 0; bit >>= 1 {
		if size&bit != 0 {
			level := 0
			for 1<<level < bit {
				level++
			}
			indexes = append(indexes, tlog.StoredHashIndex(level, lo>>level))
			lo += bit
		}
	}
	nodes, err := r.ReadHashes(indexes)
	return frontier{size: size, nodes: nodes}, err
}
