package ledger

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"
)

// Tree names one of the two logs of a store.
type Tree string

// Write is durable before the answer; Read is queued (see Queue). They are kept
// apart so that looking at the estate never moves the head somebody has pinned.
const (
	Write Tree = "write"
	Read  Tree = "read"
)

// Trees are all trees, in the order in which they are verified.
func Trees() []Tree { return []Tree{Write, Read} }

func (t Tree) valid() bool { return t == Write || t == Read }

// TimeLayout is the form of a record's time: UTC, microseconds, fixed width, so
// that text order is time order.
const TimeLayout = "2006-01-02T15:04:05.000000Z"

// Columns are the fields of a record that can be filtered on. All are also in
// the signed header; the copies beside it only make searching fast and are
// compared with the header by Verify. An absent field is "".
type Columns struct {
	TS     string // TimeLayout
	Kind   string // what sort of record: "plan", "step", "read", …
	Op     string // operation or tool
	Actor  string // who acts
	Client string // through which client
	Target string // on what
	Status string // how it ended
	Effect string // read, change, destroy, expose, execute
	Plan   string // plan id
}

// Entry is one record to append.
type Entry struct {
	Time    time.Time // zero: now
	Columns           // TS is set from Time
	// Data holds further fields that are never dropped: digests, decision,
	// rung, step number. Values as Canonical takes them.
	Data map[string]any
	// Parts are droppable: only salted commitments of them enter the tree.
	Parts []Part
}

// Part is a droppable piece of a record: arguments, script, output, free text.
type Part struct {
	Name string
	// Salt is drawn by Append when all zero; give it when the same commitment
	// already stands elsewhere, for instance in a plan digest.
	Salt [32]byte
	Body []byte
	// Withheld parts are committed to and never kept: the record verifies as one whose part was dropped.
	Withheld bool
}

// Commitment is SHA-256(salt ‖ body). The salt has a fixed length, so the two
// cannot be shifted against each other, and it keeps a short body from being
// guessed once it has been dropped.
func Commitment(salt [32]byte, body []byte) [32]byte {
	h := sha256.New()
	h.Write(salt[:])
	h.Write(body)
	var sum [32]byte
	h.Sum(sum[:0])
	return sum
}

// Commitment of the part, see the function of that name.
func (p Part) Commitment() [32]byte { return Commitment(p.Salt, p.Body) }

// Bounds on what one record may hold. Longer column texts are cut and marked;
// a larger header and more bytes of parts are errors.
const (
	MaxColumn = 1 << 10
	MaxHeader = 64 << 10
	MaxPart   = 16 << 20 // bytes of a part
	MaxParts  = 24 << 20 // bytes of all parts of a record
	maxParts  = 64       // parts of a record
)

const version = 1

// Header is the part of a record that is hashed into the tree.
type Header struct {
	Columns
	Tree  Tree
	Seq   int64
	Data  json.RawMessage // canonical object or nil
	Parts []PartRef
}

// PartRef names a part and its commitment.
type PartRef struct {
	Name       string
	Commitment [32]byte
}

func (h *Header) part(name string) (PartRef, bool) {
	for _, p := range h.Parts {
		if p.Name == name {
			return p, true
		}
	}
	return PartRef{}, false
}

func (c *Columns) fields() [9]struct {
	name string
	v    *string
} {
	type f = struct {
		name string
		v    *string
	}
	return [9]f{
		{"actor", &c.Actor}, {"client", &c.Client}, {"effect", &c.Effect}, {"kind", &c.Kind}, {"op", &c.Op},
		{"plan", &c.Plan}, {"status", &c.Status}, {"target", &c.Target}, {"ts", &c.TS},
	}
}

// encode writes the canonical form: keys in order, absent fields left out.
func (h *Header) encode() ([]byte, error) {
	b := make([]byte, 0, 256+len(h.Data)+96*len(h.Parts))
	b = append(b, '{')
	var err error
	field := func(name, v string) {
		if v == "" || err != nil {
			return
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(append(append(b, '"'), name...), '"', ':')
		b, err = appendString(b, v)
	}
	raw := func(name string) {
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(append(append(b, '"'), name...), '"', ':')
	}
	field("actor", h.Actor)
	field("client", h.Client)
	if len(h.Data) > 0 && err == nil {
		raw("data")
		b = append(b, h.Data...)
	}
	field("effect", h.Effect)
	field("kind", h.Kind)
	field("op", h.Op)
	if len(h.Parts) > 0 && err == nil {
		raw("parts")
		b = append(b, '{')
		for i, p := range h.Parts {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(append(append(b, '"'), p.Name...), `":"`...)
			b = hex.AppendEncode(b, p.Commitment[:])
			b = append(b, '"')
		}
		b = append(b, '}')
	}
	field("plan", h.Plan)
	if err == nil {
		raw("seq")
		b = strconv.AppendInt(b, h.Seq, 10)
	}
	field("status", h.Status)
	field("target", h.Target)
	field("tree", string(h.Tree))
	field("ts", h.TS)
	if err != nil {
		return nil, err
	}
	raw("v")
	b = strconv.AppendInt(b, version, 10)
	return append(b, '}'), nil
}

// ParseHeader reads a canonical header. Any other spelling of the same JSON is
// refused, so that a header has one hash only.
func ParseHeader(b []byte) (Header, error) {
	var h Header
	if len(b) > MaxHeader {
		return h, fmt.Errorf("parse header: %d bytes, at most %d are possible", len(b), MaxHeader)
	}
	s := scanner{b: b}
	v := int64(-1)
	h.Seq = -1
	err := s.object(func(key []byte, escaped bool) error {
		if escaped {
			return errCanonical
		}
		var dst *string
		switch string(key) {
		case "actor":
			dst = &h.Actor
		case "client":
			dst = &h.Client
		case "data":
			from := s.i
			if s.next() != '{' {
				return errCanonical
			}
			if err := s.value(1); err != nil {
				return err
			}
			h.Data = json.RawMessage(b[from:s.i])
			return nil
		case "effect":
			dst = &h.Effect
		case "kind":
			dst = &h.Kind
		case "op":
			dst = &h.Op
		case "parts":
			return s.object(func(name []byte, escaped bool) error {
				if escaped || !partName(string(name)) || len(h.Parts) == maxParts {
					return errCanonical
				}
				raw, esc, err := s.str()
				if err != nil || esc || len(raw) != 64 {
					return errCanonical
				}
				ref := PartRef{Name: string(name)}
				for _, c := range raw {
					if c >= 'A' && c <= 'F' {
						return errCanonical
					}
				}
				if _, err := hex.Decode(ref.Commitment[:], raw); err != nil {
					return errCanonical
				}
				h.Parts = append(h.Parts, ref)
				return nil
			})
		case "plan":
			dst = &h.Plan
		case "seq":
			n, err := s.int()
			h.Seq = n
			return err
		case "status":
			dst = &h.Status
		case "target":
			dst = &h.Target
		case "tree":
			raw, _, err := s.str()
			switch string(raw) {
			case string(Write):
				h.Tree = Write
			case string(Read):
				h.Tree = Read
			default:
				return errCanonical
			}
			return err
		case "ts":
			dst = &h.TS
		case "v":
			n, err := s.int()
			v = n
			return err
		default:
			return fmt.Errorf("unknown field %q", key)
		}
		raw, esc, err := s.str()
		if err != nil || len(raw) == 0 {
			return errCanonical
		}
		*dst = text(raw, esc)
		return nil
	})
	if err != nil {
		return Header{}, fmt.Errorf("parse header: %w", err)
	}
	switch {
	case s.i != len(b):
		return Header{}, fmt.Errorf("parse header: %w", errCanonical)
	case v != version:
		return Header{}, fmt.Errorf("parse header: format version %d, this program knows %d", v, version)
	case h.Seq < 0 || h.Kind == "" || h.Tree == "" || len(h.TS) != len(TimeLayout):
		return Header{}, errors.New("parse header: seq, kind, tree or ts is missing or malformed")
	}
	return h, nil
}

// Fields returns Data as a map (nil when there is none).
func (h *Header) Fields() (map[string]any, error) {
	if len(h.Data) == 0 {
		return nil, nil
	}
	d := json.NewDecoder(bytes.NewReader(h.Data))
	d.UseNumber()
	var m map[string]any
	if err := d.Decode(&m); err != nil {
		return nil, fmt.Errorf("parse data of record %d: %w", h.Seq, err)
	}
	return m, nil
}

func randomOr(r io.Reader) io.Reader {
	if r == nil {
		return rand.Reader
	}
	return r
}
