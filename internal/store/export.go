package store

import (
	"context"
	"fmt"
	"io"

	"castellan/internal/ledger"
)

// Export writes the whole ledger, as it is at one moment, in the published form: JSON lines that a verifier can check
// with nothing but the public key.
func (s *Store) Export(ctx context.Context, w io.Writer) error {
	err := s.db.read(ctx, func(q *session) error {
		return s.led.Export(ctx, &rows{ctx: ctx, q: q}, w, ledger.ExportOptions{})
	})
	if err != nil {
		return fmt.Errorf("export ledger: %w", err)
	}
	return nil
}
