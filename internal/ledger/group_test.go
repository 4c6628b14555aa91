package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// groupConfig of a group over transactions of type T.
type groupConfig[T any] struct {
	// Update runs fn in one durable transaction: committed when fn returns nil,
	// rolled back otherwise.
	Update func(ctx context.Context, fn func(T) error) error
	// Nest runs fn within tx so that an error undoes what fn did and nothing
	// else (a savepoint).
	Nest func(ctx context.Context, tx T, fn func() error) error
	// Max callers of one transaction; 0 means 64.
	Max int
}

// group lets concurrent callers share a transaction, and so its one wait for
// the disk: while one transaction commits, the next callers gather, and one of
// them runs all. A caller alone waits for nobody.
type group[T any] struct {
	c    groupConfig[T]
	lead chan struct{}

	mu    sync.Mutex
	queue []*groupCall[T]
}

type groupCall[T any] struct {
	ctx  context.Context
	fn   func(T) error
	err  error
	done chan struct{}
}

// newGroup makes a group.
func newGroup[T any](c groupConfig[T]) (*group[T], error) {
	if c.Update == nil || c.Nest == nil {
		return nil, errors.New("make commit group: Update and Nest are both needed")
	}
	if c.Max <= 0 {
		c.Max = 64
	}
	return &group[T]{c: c, lead: make(chan struct{}, 1)}, nil
}

// Do runs fn in a transaction that it may share with other callers and returns
// when that is committed. An error of fn undoes fn alone and is returned; an
// error of the commit is returned to all that shared it. When ctx ends before
// fn was begun, fn never runs.
func (g *group[T]) Do(ctx context.Context, fn func(T) error) error {
	call := &groupCall[T]{ctx: ctx, fn: fn, done: make(chan struct{})}
	g.mu.Lock()
	g.queue = append(g.queue, call)
	g.mu.Unlock()
	select {
	case <-call.done:
		return call.err
	case g.lead <- struct{}{}:
		defer func() { <-g.lead }()
		select {
		case <-call.done:
			return call.err
		default:
		}
		g.run(ctx)
		// More than Max may have queued before this call.
		for {
			select {
			case <-call.done:
				return call.err
			default:
				g.run(ctx)
			}
		}
	case <-ctx.Done():
		if g.withdraw(call) {
			return fmt.Errorf("wait for transaction: %w", context.Cause(ctx))
		}
		<-call.done
		return call.err
	}
}

// withdraw takes a call out of the queue, false when it has already been taken.
func (g *group[T]) withdraw(call *groupCall[T]) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, c := range g.queue {
		if c == call {
			g.queue = append(g.queue[:i], g.queue[i+1:]...)
			return true
		}
	}
	return false
}

// run carries out one transaction for the callers at the front of the queue.
func (g *group[T]) run(ctx context.Context) {
	g.mu.Lock()
	n := min(len(g.queue), g.c.Max)
	batch := append([]*groupCall[T](nil), g.queue[:n]...)
	g.queue = append(g.queue[:0], g.queue[n:]...)
	g.mu.Unlock()
	failed := errors.New("the transaction was abandoned")
	defer func() { // also when fn panics: the others must not wait for ever
		for _, c := range batch {
			if c.err == nil {
				c.err = failed
			}
			close(c.done)
		}
	}()
	// The leader's own deadline must not undo the work of the others.
	err := g.c.Update(context.WithoutCancel(ctx), func(tx T) error {
		for _, c := range batch {
			if err := c.ctx.Err(); err != nil {
				c.err = fmt.Errorf("wait for transaction: %w", context.Cause(c.ctx))
				continue
			}
			c.err = g.c.Nest(context.WithoutCancel(c.ctx), tx, func() error { return c.fn(tx) })
		}
		return nil
	})
	failed = err
}
