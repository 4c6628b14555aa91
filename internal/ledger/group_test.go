package ledger_test

import "sync"

// group lets concurrent callers share a transaction, as a store does: while one
// transaction commits, the next callers gather, and one of them runs all.
type group struct {
	update func(func(*sqliteTx) error) error
	lead   chan struct{}

	mu    sync.Mutex
	queue []*groupCall
}

type groupCall struct {
	fn   func(*sqliteTx) error
	err  error
	done chan struct{}
}

func (g *group) do(fn func(*sqliteTx) error) error {
	c := &groupCall{fn: fn, done: make(chan struct{})}
	g.mu.Lock()
	g.queue = append(g.queue, c)
	g.mu.Unlock()
	select {
	case <-c.done:
	case g.lead <- struct{}{}:
		g.run()
		<-g.lead
		<-c.done // it was in this batch or in one before
	}
	return c.err
}

func (g *group) run() {
	g.mu.Lock()
	batch := g.queue
	g.queue = nil
	g.mu.Unlock()
	if len(batch) == 0 {
		return
	}
	err := g.update(func(x *sqliteTx) error {
		for _, c := range batch {
			c.err = c.fn(x)
		}
		return nil
	})
	for _, c := range batch {
		if err != nil {
			c.err = err
		}
		close(c.done)
	}
}
