package main

import (
	"context"
	"fmt"
	"io"

	"castellan/internal/gate"
	"castellan/internal/store"
)

// lateStore opens the store beside the first handshake with a client; the first call that needs it waits.
type lateStore struct {
	opened chan struct{}
	store  *store.Store
	err    error
}

func openLate(ctx context.Context, c store.Config) *lateStore {
	l := &lateStore{opened: make(chan struct{})}
	go func() {
		defer close(l.opened)
		l.store, l.err = store.Open(context.WithoutCancel(ctx), c)
	}()
	return l
}

// get waits for the store.
func (l *lateStore) get(ctx context.Context) (*store.Store, error) {
	select {
	case <-l.opened:
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the store: %w", ctx.Err())
	}
	return l.store, l.err
}

// Update runs f in one transaction of the store.
func (l *lateStore) Update(ctx context.Context, f func(gate.Tx) error) error {
	s, err := l.get(ctx)
	if err != nil {
		return err
	}
	return s.Update(ctx, f)
}

// View runs f on a snapshot.
func (l *lateStore) View(ctx context.Context, f func(gate.Tx) error) error {
	s, err := l.get(ctx)
	if err != nil {
		return err
	}
	return s.View(ctx, f)
}

// Observe queues a read record; with no store it is lost, which Ready says.
func (l *lateStore) Observe(r gate.Record) {
	if s, err := l.get(context.Background()); err == nil {
		s.Observe(r)
	}
}

// Position finds a record.
func (l *lateStore) Position(ctx context.Context, index uint64) (*gate.LedgerPosition, error) {
	s, err := l.get(ctx)
	if err != nil {
		return nil, err
	}
	return s.Position(ctx, index)
}

// Ready says whether writes can be recorded.
func (l *lateStore) Ready(ctx context.Context) error {
	s, err := l.get(ctx)
	if err != nil {
		return err
	}
	return s.Ready(ctx)
}

// Run flushes the read tree until ctx ends.
func (l *lateStore) Run(ctx context.Context) error {
	s, err := l.get(ctx)
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

// Close ends the store.
func (l *lateStore) Close() error {
	<-l.opened
	if l.store == nil {
		return nil
	}
	return l.store.Close()
}

var (
	_ gate.Store = (*lateStore)(nil)
	_ io.Closer  = (*lateStore)(nil)
)
