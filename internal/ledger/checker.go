package ledger

import (
	"fmt"
	"strings"

	"golang.org/x/mod/sumdb/tlog"
)

// checker walks the records of one tree in index order and compares each with
// all that is known of it. The first difference becomes the suspect; the walk
// then goes on, since what follows tells an edit from a removal.
type checker struct {
	v        *verification
	tree     Tree
	note     string
	stored   *Head // nil when reading an export
	headSize int64 // records that the signed head covers
	pins     []pin

	store string     // from the head, once parsed
	head  Checkpoint // zero until headFault
	sigs  func(from, to int64, fn func(size int64, sig []byte)) error
	onSig func(size int64, sig []byte) // nil, or called for each signature whose root agreed

	f        frontier // of the headers as they are
	torn     bool     // an index is missing: the frontier means nothing any more
	next     int64    // index expected now
	count    int64    // one more than the highest index
	lastSig  int64    // records covered by the last signature whose root agreed
	withheld Withheld
	swept    [][2]int64 // runs of withheld records

	atHead  *tlog.Hash // root when the walk had the size of the head
	suspect *suspect
}

// suspect is the first record that differs.
type suspect struct {
	index int64
	seq   int64  // what its header says, -1 when there is none
	first int64  // first record that the finding covers
	text  string // the finding
	fault Fault  // when it is already clear
	// beside: only copies beside the record differ (columns, parts, hashes); it
	// is the record itself that the signed head decides about.
	beside bool
	// sig is set when the finding is a signature over other records. Whether it
	// is genuine is judged at the end, when all keys are known; then all records
	// after lastSig are in question.
	sig     []byte
	lastSig int64
	// Seen afterwards: where a record says that it is number index, and where
	// one says the same number as the suspect. -1 when nowhere.
	moved, twin int64
}

func (c *checker) broken(index int64, f Fault, format string, args ...any) *Broken {
	return &Broken{Tree: c.tree, Index: index, Fault: f, Reason: fmt.Sprintf(format, args...)}
}

func (c *checker) suspectAt(s suspect, format string, args ...any) {
	if c.suspect != nil {
		return
	}
	s.text = fmt.Sprintf(format, args...)
	s.moved, s.twin = -1, -1
	c.suspect = &s
}

// record is called for every stored record in order.
func (c *checker) record(r *Record) error {
	// Roots at the sizes of kept heads are taken before the record that follows.
	c.mark()
	seq := int64(-1)
	before := c.suspect
	if r.Index < c.next {
		if s := c.suspect; s != nil && s.fault == Removal && s.index == r.Index {
			// Only a stream can give records out of order.
			s.fault, s.text = Reorder, fmt.Sprintf("record %d comes after record %d", r.Index, c.next-1)
		}
		c.suspectAt(suspect{index: r.Index, first: r.Index, seq: -1, fault: Insertion}, "a record stands at the impossible index %d", r.Index)
		c.torn = true
		return nil
	}
	if r.Index > c.next {
		c.suspectAt(suspect{index: c.next, first: c.next, seq: -1, fault: Removal}, "record %d is missing", c.next)
		c.torn = true
		c.next = r.Index
	}
	c.next++
	c.count = c.next
	var leaf tlog.Hash
	if r.Header == nil {
		leaf = c.withheldRecord(r)
		c.nodes(r, leaf, seq)
	} else {
		leaf = tlog.RecordHash(r.Header)
		h := c.header(r)
		seq = h.Seq
		c.nodes(r, leaf, seq)
		c.copies(r, &h)
	}
	if before != nil && seq >= 0 {
		if seq == before.index && r.Index != before.index && before.moved < 0 {
			before.moved = r.Index
		}
		if seq == before.seq && before.twin < 0 {
			before.twin = r.Index
		}
	}
	return nil
}

// mark notes the root where the size of a kept head is reached.
func (c *checker) mark() {
	if c.torn {
		return
	}
	for i := range c.pins {
		if p := &c.pins[i]; p.root == nil && p.Size == c.f.size {
			root := c.f.root()
			p.root = &root
		}
	}
	if c.f.size == c.headSize {
		root := c.f.root()
		c.atHead = &root
	}
}

func (c *checker) withheldRecord(r *Record) (leaf tlog.Hash) {
	if len(r.Hashes) < tlog.HashSize {
		c.suspectAt(suspect{index: r.Index, first: r.Index, seq: -1, fault: Removal}, "record %d is missing with its hash", r.Index)
		return leaf
	}
	copy(leaf[:], r.Hashes)
	c.withheld.Records++
	if n := len(c.swept); n > 0 && c.swept[n-1][1] == r.Index {
		c.swept[n-1][1]++
	} else {
		c.swept = append(c.swept, [2]int64{r.Index, r.Index + 1})
	}
	if len(r.Parts) > 0 || r.Columns != (Columns{}) {
		c.suspectAt(suspect{index: r.Index, first: r.Index, seq: -1, fault: Edit, beside: true}, "record %d is removed, yet fields or parts are there that nothing vouches for", r.Index)
	}
	return leaf
}

// header checks what a record says of itself.
func (c *checker) header(r *Record) Header {
	h, err := ParseHeader(r.Header)
	if err != nil {
		c.suspectAt(suspect{index: r.Index, first: r.Index, seq: -1, fault: Edit}, "record %d is unreadable (%v)", r.Index, err)
		return Header{Seq: -1}
	}
	at := suspect{index: r.Index, first: r.Index, seq: h.Seq}
	switch {
	case h.Seq != r.Index:
		c.suspectAt(at, "at place %d stands a record that was written as number %d", r.Index, h.Seq)
	case h.Tree != c.tree:
		at.fault = Insertion
		c.suspectAt(at, "record %d was written for the %s tree", r.Index, h.Tree)
	case c.tree == Write:
		c.control(&h)
	}
	return h
}

// copies compares the columns and parts beside a record with it.
func (c *checker) copies(r *Record, h *Header) {
	if h.Seq < 0 {
		return
	}
	at := suspect{index: r.Index, first: r.Index, seq: h.Seq, fault: Edit, beside: true}
	if c.stored != nil && r.Columns != h.Columns {
		c.suspectAt(at, "the field %s beside record %d is not what the record says", differing(r.Columns, h.Columns), r.Index)
	}
	for _, p := range r.Parts {
		ref, ok := h.part(p.Name)
		switch {
		case !ok:
			c.suspectAt(at, "record %d has no part %q, yet one is stored", r.Index, clip(p.Name))
		case ref.Commitment != p.Commitment():
			c.suspectAt(at, "part %s of record %d is not what the record committed to", p.Name, r.Index)
		}
	}
	if n := len(h.Parts) - len(r.Parts); n > 0 {
		c.withheld.Parts += int64(n)
	}
}

// control takes up the records that change what verification accepts.
func (c *checker) control(h *Header) {
	switch h.Kind {
	case KindKey:
		if r, ok := parseRotation(h); ok {
			c.v.keys.rotate(r)
		}
	case KindSweep:
		if s, ok := parseSweep(h); ok {
			c.v.below[s.Tree] = max(c.v.below[s.Tree], s.RecordsBelow)
			c.v.dropped[s.Tree] += s.Dropped
		}
	}
}

func differing(a, b Columns) string {
	fa, fb := a.fields(), b.fields()
	var names []string
	for i := range fa {
		if *fa[i].v != *fb[i].v {
			names = append(names, fa[i].name)
		}
	}
	return strings.Join(names, ", ")
}

// nodes adds the leaf and compares the hashes and the signature stored with it.
func (c *checker) nodes(r *Record, leaf tlog.Hash, seq int64) {
	if c.torn {
		return
	}
	at := suspect{index: r.Index, first: r.Index, seq: seq}
	stored := r.Hashes
	level, same := 0, true
	c.f.add(leaf, func(h tlog.Hash) {
		if c.stored != nil && (len(stored) < tlog.HashSize || string(stored[:tlog.HashSize]) != string(h[:])) {
			if same {
				same = false
				if level == 0 {
					c.suspectAt(at, "record %d has not the hash that was stored for it", r.Index)
				} else {
					at.beside = true
					c.suspectAt(at, "the tree hashes stored with record %d are not those of the records", r.Index)
				}
			}
		}
		stored = stored[min(tlog.HashSize, len(stored)):]
		level++
	})
	if c.stored != nil && same && len(stored) > 0 {
		at.beside = true
		c.suspectAt(at, "record %d has more tree hashes than its place allows", r.Index)
	}
	if r.Sig == nil {
		return
	}
	root := c.f.root()
	if len(r.Sig) == sigLen && string(r.Sig[:tlog.HashSize]) == string(root[:]) {
		if c.suspect == nil {
			c.lastSig = c.f.size
			if c.onSig != nil {
				c.onSig(c.f.size, r.Sig)
			}
		}
		return
	}
	if c.suspect == nil {
		at.sig, at.lastSig = append([]byte{}, r.Sig...), c.lastSig
		c.suspectAt(at, "the head signed with record %d is not that of the records up to it", r.Index)
	}
}

// settle judges a suspect signature: genuine for its place, genuine for the
// place that it had before others were removed or put in, or damaged.
func (c *checker) settle() {
	s := c.suspect
	if s == nil || s.sig == nil {
		return
	}
	moved := c.headSize - c.count
	switch {
	case c.genuine(s.index+1, s.sig):
		s.first = s.lastSig
	case moved != 0 && c.genuine(s.index+1+moved, s.sig):
		s.first, s.fault = s.lastSig, Removal
		s.text = fmt.Sprintf("%d records were signed, %d are there: at or after %d some were removed and the rest renumbered", c.headSize, c.count, s.first)
		if moved < 0 {
			s.fault = Insertion
			s.text = fmt.Sprintf("%d records were signed, %d are there: at or after %d some were put in and the rest renumbered", c.headSize, c.count, s.first)
		}
	default:
		s.beside = true
	}
	s.sig = nil
}

// genuine reports whether a trusted key signed sig for that size.
func (c *checker) genuine(size int64, sig []byte) bool {
	return checkSig(c.origin(), size, sig, c.v.keys.all)
}

func (c *checker) origin() string { return origin(c.v.store, c.tree) }
