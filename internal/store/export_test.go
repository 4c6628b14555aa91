package store

import (
	"context"
	"time"

	"castellan/internal/ledger/ledgertest"
)

// LedgerRows is the store as the ledger's contract wants it.
type LedgerRows struct{ *Store }

func (s LedgerRows) Update(ctx context.Context, fn func(ledgertest.Rows) error) error {
	return s.db.write(func(ctx context.Context, q *session) error {
		return fn(&rows{ctx: ctx, q: q, clock: time.Now()})
	})
}

func (s LedgerRows) View(ctx context.Context, fn func(ledgertest.Rows) error) error {
	return s.db.read(ctx, func(q *session) error { return fn(&rows{ctx: ctx, q: q}) })
}
