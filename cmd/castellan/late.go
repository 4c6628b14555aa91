package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"castellan/internal/gate"
	"castellan/internal/store"
)

// lateStore opens the store for the first call that needs it, which waits: a handshake and a list of tools do without. A
// store that could not be opened is tried again by a later call: its server may only be slower to start than castellan.
type lateStore struct {
	config store.Config
	again  time.Duration // the least time between two tries
	opened chan struct{} // closed once the store is open, or castellan is ending; store and err do not change any more then
	store  *store.Store
	err    error

	mu     sync.Mutex
	trying chan struct{} // closed when the try under way ends; nil while there is none
	failed error         // of the last try
	tried  time.Time     // its end
	ended  bool
}

func newLateStore(c store.Config) *lateStore {
	return &lateStore{config: c, again: 5 * time.Second, opened: make(chan struct{})}
}

// get waits for the store to be opened. A caller that gives up does not keep others from it.
func (l *lateStore) get(ctx context.Context) (*store.Store, error) {
	trying := l.try(ctx)
	select {
	case <-l.opened:
		return l.store, l.err
	case <-trying:
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the store: %w", ctx.Err())
	}
	select {
	case <-l.opened:
		return l.store, l.err
	default:
		return nil, l.lastFault()
	}
}

// lastFault is what the last try came to; nil before the first and once the store is open.
func (l *lateStore) lastFault() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed
}

// try begins to open the store where nobody does and it is time to. The channel is closed when there is something to say.
func (l *lateStore) try(ctx context.Context) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.trying != nil {
		return l.trying
	}
	done := make(chan struct{})
	if l.store != nil || l.ended || l.failed != nil && time.Since(l.tried) < l.again {
		close(done)
		return done
	}
	l.trying = done
	go func() {
		s, err := store.Open(context.WithoutCancel(ctx), l.config)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.trying, l.failed, l.tried = nil, err, time.Now()
		if err == nil {
			l.store = s
			close(l.opened)
		}
		close(done)
	}()
	return done
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
	l.mu.Lock()
	l.ended = true
	trying := l.trying
	l.mu.Unlock()
	if trying != nil {
		<-trying
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.store == nil {
		select {
		case <-l.opened:
		default:
			l.err = errors.New("open store: castellan is ending")
			close(l.opened)
		}
		return nil
	}
	return l.store.Close()
}

var (
	_ gate.Store = (*lateStore)(nil)
	_ io.Closer  = (*lateStore)(nil)
)
