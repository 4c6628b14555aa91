package ledger

import (
	"fmt"
	"strings"
)

// headFault opens the signed head of the tree. It leaves c.head and c.store
// set, as far as they can be read.
func (c *checker) headFault() *Broken {
	c.store = c.v.store
	if c.note == "" {
		if c.stored != nil && c.stored.Size != 0 {
			return c.broken(-1, ForgedAppend, "the head of %d records is not signed", c.stored.Size)
		}
		c.head = Checkpoint{Origin: origin(c.store, c.tree)}
		c.head.Root = (&frontier{}).root()
		return nil
	}
	cp, err := ParseCheckpoint(c.note)
	if err != nil {
		return c.broken(-1, ForgedAppend, "the signed head is unreadable (%v)", err)
	}
	c.head = cp
	switch {
	case cp.Tree() != c.tree:
		return c.broken(-1, Replacement, "the head is of the %s tree", cp.Tree())
	case c.store != "" && cp.Store() != c.store:
		return c.broken(-1, Replacement, "the log is of store %s, expected is store %s", cp.Store(), c.store)
	}
	c.store = cp.Store()
	if !c.v.keys.signed(c.note, false) {
		why := "is signed by key " + noteKeyIDs(c.note)
		if c.v.keys.signed(c.note, true) {
			why = "is signed by a key that was retired before"
		}
		return c.broken(-1, WrongKey, "the head of %d records %s; trusted is %s", cp.Size, why, c.keyIDs())
	}
	if c.stored == nil {
		return nil
	}
	if c.stored.Size != cp.Size {
		return c.broken(-1, Edit, "the stored head says %d records, its signature %d", c.stored.Size, cp.Size)
	}
	return nil
}

func (c *checker) keyIDs() string {
	var ids []string
	for _, k := range c.v.keys.current() {
		ids = append(ids, fmt.Sprintf("%08x (%s)", keyHash(c.head.Origin, k), shortKey(k)))
	}
	return strings.Join(ids, ", ")
}

// noteKeyIDs lists the ids of the keys that claim to have signed the note.
func noteKeyIDs(msg string) string {
	var ids []string
	_, sigs, _ := strings.Cut(msg, "\n\n")
	for line := range strings.Lines(sigs) {
		if sig := compactSig(line); sig != nil {
			ids = append(ids, sigKeyID(sig))
		}
	}
	if len(ids) == 0 {
		return "(none)"
	}
	return strings.Join(ids, ", ")
}

// finish judges a whole walk.
func (c *checker) finish() (*Broken, error) {
	c.mark()
	c.settle()
	headFault := c.headFault()
	if headFault == nil && !c.torn && c.f.size == c.head.Size && c.f.root() == c.head.Root {
		// Records and order are those that were signed.
		if s := c.suspect; s != nil {
			return c.broken(s.index, Edit, "%s (all records agree with the signed head)", s.text), nil
		}
		for _, run := range c.swept {
			if below := c.v.below[c.tree]; run[1] > below {
				i := max(run[0], below)
				return c.broken(i, Removal, "record %d was removed, and no retention sweep is recorded that did it", i), nil
			}
		}
		if gone, said := c.withheld.Records, c.v.dropped[c.tree]; gone > said {
			return c.broken(-1, Removal, "%d records were removed, the recorded retention sweeps removed %d", gone, said), nil
		}
		if c.stored != nil {
			if f, err := parseFrontier(c.stored.Size, c.stored.Frontier); err != nil || f.root() != c.head.Root {
				return c.broken(-1, Edit, "the subtree roots stored with the head do not lead to the signed root (all records agree with it)"), nil
			}
		}
		return c.pinFault(), nil
	}
	if s := c.suspect; s != nil && (headFault != nil || s.first < c.head.Size || c.head.Size == 0) {
		if headFault != nil && headFault.Fault == Replacement {
			return headFault, nil
		}
		if headFault != nil {
			// A log of another's key differs everywhere; say that first.
			good, err := c.lastGood()
			if err != nil {
				return nil, err
			}
			if good == 0 && headFault.Fault == WrongKey && c.lastSig > 0 {
				return headFault, nil
			}
		}
		return c.blame(), nil
	}
	if headFault != nil {
		return c.blameHead(headFault)
	}
	switch {
	case c.count < c.head.Size:
		return c.broken(c.count, Truncation, "the signed head covers %d records, the log ends after %d", c.head.Size, c.count), nil
	case c.atHead != nil && *c.atHead == c.head.Root && c.count > c.head.Size:
		good, err := c.lastGood()
		if err != nil {
			return nil, err
		}
		if good > c.head.Size {
			return c.broken(c.head.Size, Rewind, "the stored head was put back to %d records, but records up to %d bear genuine signatures", c.head.Size, good-1), nil
		}
		return c.broken(c.head.Size, ForgedAppend, "records from %d on are not covered by the signed head", c.head.Size), nil
	}
	// Everything that could be altered was made to agree; only the signature
	// could not. Narrow it down to the last signature that still holds.
	good, err := c.lastGood()
	if err != nil {
		return nil, err
	}
	fault := Edit
	if c.count > c.head.Size {
		fault = Insertion
	}
	return c.broken(good, fault, "from record %d on (%d to %d are in question) the records are not those that were signed, and the hashes and signatures between were altered or removed with them", good, good, c.count-1), nil
}

// blameHead explains a head that is not acceptable over records that agree with
// each other.
func (c *checker) blameHead(fault *Broken) (*Broken, error) {
	if fault.Fault == Replacement {
		return fault, nil
	}
	good, err := c.lastGood()
	if err != nil {
		return nil, err
	}
	switch {
	case good > 0 && good < c.count:
		return c.broken(good, ForgedAppend, "records from %d on are not covered by a head of a trusted key: %s", good, fault.Reason), nil
	case good > 0:
		return c.broken(-1, fault.Fault, "%s; the signature stored with the last record is genuine, so only the head itself was altered", fault.Reason), nil
	}
	return fault, nil
}

// blame tells from what followed the suspect what was done to the log.
func (c *checker) blame() *Broken {
	c.settle()
	s := c.suspect
	span := fmt.Sprintf("record %d", s.index)
	if s.first < s.index {
		span = fmt.Sprintf("one of the records %d to %d", s.first, s.index)
	}
	switch {
	case s.seq >= 0 && s.seq != s.index: // the number does not fit the place
		switch {
		case s.seq < s.index && s.seq == s.index-1 && s.seq >= c.lastSig:
			// The record before claims the same number, and no signature
			// vouches for that one.
			return c.broken(s.seq, Insertion, "a record was put in at %d: from %d on every record stands one place too far", s.seq, s.index)
		case s.moved >= 0 && (s.twin >= 0 || s.seq < s.index):
			return c.broken(s.index, Insertion, "a copy of record %d was put in at %d", s.seq, s.index)
		case s.moved >= 0:
			return c.broken(s.index, Reorder, "%s; record %d stands at place %d", s.text, s.index, s.moved)
		case s.seq > s.index && s.twin < 0:
			return c.broken(s.index, Removal, "record %d is missing: %s", s.index, s.text)
		}
		return c.broken(s.index, Edit, "record %d was replaced by one that says it is number %d", s.index, s.seq)
	case s.fault == Removal && s.moved >= 0:
		return c.broken(s.index, Reorder, "record %d stands at place %d", s.index, s.moved)
	case s.fault != "":
		return c.broken(s.first, s.fault, "%s", s.text)
	case s.moved >= 0:
		return c.broken(s.index, Insertion, "a record was put in at %d: the one written as number %d stands at %d", s.index, s.index, s.moved)
	}
	return c.broken(s.first, Edit, "%s was altered: %s", span, s.text)
}

// lastGood returns the largest size for which a trusted key's signature agrees
// with the records as they are, 0 when there is none. It looks backward, in
// pieces.
func (c *checker) lastGood() (int64, error) {
	if c.sigs == nil || c.lastSig == 0 {
		return 0, nil
	}
	const piece = 1024
	for to := c.lastSig; to > 0; to -= piece {
		type found struct {
			size int64
			sig  []byte
		}
		var sigs []found
		if err := c.sigs(max(0, to-piece), to, func(size int64, sig []byte) {
			sigs = append(sigs, found{size, append([]byte(nil), sig...)})
		}); err != nil {
			return 0, fmt.Errorf("look for the last good signature: %w", err)
		}
		for i := len(sigs) - 1; i >= 0; i-- {
			// Up to lastSig each root was compared when it was passed.
			if c.genuine(sigs[i].size, sigs[i].sig) {
				return sigs[i].size, nil
			}
		}
	}
	return 0, nil
}
