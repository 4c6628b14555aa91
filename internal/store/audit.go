package store

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"

	"castellan/internal/gate"
	"castellan/internal/ledger"
)

// Position returns where a write record stands, with the proof that it is in the tree of the present signed head.
func (s *Store) Position(ctx context.Context, index uint64) (*gate.LedgerPosition, error) {
	var out *gate.LedgerPosition
	err := s.db.read(ctx, func(q *session) error {
		r := &rows{ctx: ctx, q: q}
		at, note, err := s.led.Head(ctx, r, ledger.Write)
		if err != nil {
			return err
		}
		if at.Size <= 0 || index >= uint64(at.Size) {
			return fmt.Errorf("%w: the ledger has %d records", gate.ErrStoreNotFound, at.Size)
		}
		p, err := s.led.Prove(ctx, r, at, int64(index))
		if err != nil {
			return err
		}
		out = &gate.LedgerPosition{Index: index, Size: uint64(at.Size), Root: base64.StdEncoding.EncodeToString(at.Root[:]), Checkpoint: note}
		err = r.Scan(ctx, ledger.Write, int64(index), int64(index)+1, func(rec *ledger.Record) error {
			out.Leaf = string(rec.Header) // empty once retention has taken the row
			return nil
		})
		if err != nil {
			return err
		}
		for _, h := range p.Path {
			out.Proof = append(out.Proof, base64.StdEncoding.EncodeToString(h[:]))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("prove record %d: %w", index, err)
	}
	return out, nil
}

// Search finds records, newest first, in bounded time.
func (s *Store) Search(ctx context.Context, q ledger.Query) (ledger.Page, error) {
	var page ledger.Page
	err := s.db.read(ctx, func(c *session) error {
		var err error
		page, err = ledger.Search(ctx, &rows{ctx: ctx, q: c}, q)
		return err
	})
	return page, err
}

// Verify reads the whole ledger and compares it with its signed heads, the key of this store, the pinned head, those that anchors hold, and heads
// that are given (signed or not). A broken ledger is a result, not an error.
func (s *Store) Verify(ctx context.Context, heads ...string) (ledger.Result, error) {
	o := ledger.Options{Keys: s.keys(), Store: s.id, Heads: heads}
	if s.pin.head != nil {
		o.Heads = append([]string{s.pin.text}, heads...)
	}
	if s.anchors != nil {
		kept, _ := s.anchors.Heads(ctx) // what cannot be read proves nothing, here as elsewhere
		for _, name := range slices.Sorted(maps.Keys(kept)) {
			o.Heads = append(o.Heads, kept[name])
		}
	}
	var res ledger.Result
	err := s.db.read(ctx, func(q *session) error {
		var err error
		res, err = ledger.Verify(ctx, &rows{ctx: ctx, q: q}, o)
		return err
	})
	return res, err
}

func (s *Store) keys() []ed25519.PublicKey { return []ed25519.PublicKey{s.led.Key()} }

// Health tells how the store is.
type Health struct {
	Store   string // id
	Kind    string // "sqlite" or "postgresql"
	Size    int64  // records of the write tree
	Head    string // its signed checkpoint, "" when it is empty
	Reads   int64  // records of the read tree
	Dropped int64  // read records lost to overload since this process started
	Trouble string // why nothing can be written, "" when it can, as last seen
}

// Health looks at the heads; it writes nothing.
func (s *Store) Health(ctx context.Context) (Health, error) {
	h := Health{Store: s.id, Kind: s.db.kind.name()}
	h.Dropped = s.reads.dropped.Load()
	s.state.mu.Lock()
	h.Trouble = s.state.reason
	s.state.mu.Unlock()
	if why := s.kept.why(); why != "" {
		h.Trouble = why
	}
	err := s.db.read(ctx, func(q *session) error {
		r := &rows{ctx: ctx, q: q}
		at, note, err := s.led.Head(ctx, r, ledger.Write)
		if err != nil {
			return err
		}
		h.Size, h.Head = at.Size, note
		at, _, err = s.led.Head(ctx, r, ledger.Read)
		h.Reads = at.Size
		return err
	})
	if err != nil {
		return h, fmt.Errorf("look at the ledger: %w", err)
	}
	return h, nil
}
