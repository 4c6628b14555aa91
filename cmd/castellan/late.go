package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"castellan/internal/gate"
	"castellan/internal/store"
)

// lateStore opens the store for the first call that needs it, which waits: a handshake and a list of tools do without.
type lateStore struct {
	config store.Config
	once   sync.Once
	opened chan struct{}
	store  *store.Store
	err    error
}

func newLateStore(c store.Config) *lateStore {
	return &lateStore{config: c, opened: make(chan struct{})}
}

// get opens the store, once, and waits for it. A caller that gives up does not keep others from it.
func (l *lateStore) get(ctx context.Context) (*store.Store, error) {
	l.once.Do(func() {
		go func() {
			defer close(l.opened)
			l.store, l.err = store.Open(context.WithoutCancel(ctx), l.config)
		}()
	})
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

// Run flushes the read tree until ctx ends, once somebody had the store opened.
func (l *lateStore) Run(ctx context.Context) error {
	select {
	case <-l.opened:
	case <-ctx.Done():
		return nil
	}
	if l.err != nil {
		return l.err
	}
	return l.store.Run(ctx)
}

// Close ends the store; one that was never opened stays so.
func (l *lateStore) Close() error {
	l.once.Do(func() {
		l.err = errors.New("open store: castellan is ending")
		close(l.opened)
	})
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
