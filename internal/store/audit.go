package store

import (
	"context"
	"encoding/base64"
	"fmt"

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
