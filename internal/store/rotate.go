package store

import (
	"context"
	"crypto"
	"fmt"

	"castellan/internal/gate"
	"castellan/internal/ledger"
)

// Rotate records that the ledger's key is replaced by next, whose signature the heads bear from then on. This store, and
// every process that holds the old key, then refuses to write: open it anew with the new key. It returns the new head.
func (s *Store) Rotate(ctx context.Context, next crypto.Signer, by gate.Principal) (string, error) {
	if err := s.checkStart(ctx); err != nil {
		return "", err
	}
	if err := s.checkAnchors(ctx); err != nil {
		return "", err
	}
	var got ledger.Receipt
	err := s.db.write(func(ctx context.Context, q *session) error {
		b, err := s.begin(ctx, q)
		if err != nil {
			return err
		}
		got, err = s.led.Rotate(ctx, &rows{ctx: ctx, q: q, clock: later(b.now, b.clock)}, next,
			ledger.Entry{Columns: ledger.Columns{Op: "rotate_key", Actor: tidy(by.Key(), ledger.MaxColumn), Status: "ok", Effect: string(gate.EffectChange)}, Data: map[string]any{"way_in": tidy(by.WayIn, maxShort)}})
		return err
	})
	if err != nil {
		return "", fmt.Errorf("rotate key: %w", s.refusal(err))
	}
	return got.Note, nil
}
