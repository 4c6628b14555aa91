package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"castellan/internal/gate"
	"castellan/internal/ledger"
)

// group lets updates of several goroutines share one transaction, and so its one wait for the disk. Whoever comes
// first leads: it carries out its own update and those that have queued by then, commits, and hands the lead on.
type group struct {
	mu    sync.Mutex
	queue []*job
	led   bool
}

type job struct {
	ctx   context.Context
	f     func(gate.Tx) error
	err   error
	panic any
	ended chan struct{} // closed when carried out by another
	lead  chan struct{} // closed when it is this job's turn to lead
}

const (
	maxBatch  = 128
	batchTime = 50 * time.Millisecond // no further job joins a transaction that has taken this long
)

// Update runs f in one transaction; an error rolls back everything that f did, records included. It returns when the
// transaction is durable. The caller's context ends the waiting for a turn, not a transaction that has begun. While f
// runs nobody else writes: it must not wait for anything but the store.
//
// Before, the ledger is proven to go on from what its anchors hold, which is read anew every few seconds.
func (s *Store) Update(ctx context.Context, f func(gate.Tx) error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("update store: %w", err)
	}
	if err := s.checkStart(ctx); err != nil {
		return err
	}
	if err := s.checkAnchors(ctx); err != nil {
		return err
	}
	return s.update(ctx, f)
}

// update is Update without the look at the anchors.
func (s *Store) update(ctx context.Context, f func(gate.Tx) error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("update store: %w", err)
	}
	if err := s.checkStart(ctx); err != nil {
		return err
	}
	j := &job{ctx: ctx, f: f, ended: make(chan struct{}), lead: make(chan struct{})}
	g := &s.group
	g.mu.Lock()
	if g.led {
		g.queue = append(g.queue, j)
		g.mu.Unlock()
		select {
		case <-j.ended:
			return j.result()
		case <-j.lead:
		case <-ctx.Done():
			if g.leave(j) {
				return fmt.Errorf("update store: %w", ctx.Err())
			}
			// It is being carried out, or it leads.
			select {
			case <-j.ended:
				return j.result()
			case <-j.lead:
			}
		}
	} else {
		g.led = true
		g.mu.Unlock()
	}
	defer g.handOn()
	s.batch(j)
	return j.result()
}

func (j *job) result() error {
	if j.panic != nil {
		panic(j.panic)
	}
	return j.err
}

func (g *group) leave(j *job) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, q := range g.queue {
		if q == j {
			g.queue = append(g.queue[:i], g.queue[i+1:]...)
			return true
		}
	}
	return false
}

func (g *group) next() *job {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.queue) == 0 {
		return nil
	}
	j := g.queue[0]
	g.queue = g.queue[1:]
	return j
}

func (g *group) handOn() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.queue) == 0 {
		g.led = false
		return
	}
	j := g.queue[0]
	g.queue = g.queue[1:]
	close(j.lead)
}

// batch is one writing transaction with the records that it will append. They are signed once, at its end.
type batch struct {
	s       *Store
	q       *session
	ctx     context.Context
	now     time.Time
	size    int64 // of the write tree before it
	clock   time.Time
	entries []ledger.Entry
	back    []func()
	broken  error // a savepoint could not be undone: the whole must not be committed
}

var errAbandoned = errors.New("update store: the transaction was abandoned")

// batch carries out the job and those that queue meanwhile in one transaction.
func (s *Store) batch(first *job) {
	jobs := []*job{first}
	var note ledger.Receipt
	committed := false
	var b *batch
	err := errAbandoned
	defer func() {
		if !committed {
			if b != nil {
				undo(b.back)
			}
			for _, j := range jobs {
				if j.err == nil && j.panic == nil {
					j.err = err
				}
			}
		}
		for _, j := range jobs {
			if j != first {
				close(j.ended)
			}
		}
	}()
	start := time.Now()
	err = s.db.write(func(ctx context.Context, q *session) error {
		var err error
		if b, err = s.begin(ctx, q); err != nil {
			return err
		}
		// The first needs no savepoint: while it is alone, its failure is that of the transaction.
		if b.work(first, false); first.err != nil || first.panic != nil {
			return errNothing
		}
		for len(jobs) < maxBatch && time.Since(start) < batchTime {
			j := s.group.next()
			if j == nil {
				break
			}
			jobs = append(jobs, j)
			if err := j.ctx.Err(); err != nil {
				j.err = fmt.Errorf("update store: %w", err)
				continue
			}
			if b.work(j, true); b.broken != nil {
				return b.broken
			}
		}
		note, err = b.append()
		return err
	})
	switch {
	case err == nil:
		committed = true
		if note.Note != "" {
			s.committed(note.Checkpoint)
		}
		s.state.wrote()
	case errors.Is(err, errNothing):
	default:
		err = s.refusal(err)
	}
}

// errNothing ends a transaction in which every job failed.
var errNothing = errors.New("update store: nothing to commit")

func undo(back []func()) {
	for i := len(back) - 1; i >= 0; i-- {
		back[i]()
	}
}

// begin reads the head, which in a database of several writers also waits for the others.
func (s *Store) begin(ctx context.Context, q *session) (*batch, error) {
	b := &batch{s: s, q: q, ctx: ctx, now: s.clock()}
	var clock int64
	found, err := q.one(ctx, []any{&b.size, &clock}, `SELECT size, clock FROM heads WHERE tree = 'write'`+q.kind.lockHead())
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, errors.New("the head of the ledger is missing; restore a backup")
	}
	b.clock = time.UnixMicro(clock)
	return b, s.checkClock(b.now, b.clock)
}

// work runs one job so that its error undoes what it did and nothing else.
func (b *batch) work(j *job, apart bool) {
	t := &tx{ctx: b.ctx, q: b.q, now: b.now, batch: b}
	entries := len(b.entries)
	if apart {
		if _, err := b.q.exec(b.ctx, "SAVEPOINT job"); err != nil {
			j.err = b.s.refusal(err)
			return
		}
	}
	finished := false
	defer func() {
		if !finished {
			if j.panic = recover(); j.panic == nil {
				j.panic = errAbandoned // the goroutine was ended from within f
			}
		}
		failed := j.err != nil || j.panic != nil
		t.batch, t.q = nil, nil // a transaction kept beyond its end writes nothing
		if failed {
			undo(t.back)
			b.entries = b.entries[:entries]
		} else {
			b.back = append(b.back, t.back...)
		}
		if !apart {
			return
		}
		if failed {
			if _, err := b.q.exec(b.ctx, "ROLLBACK TO job"); err != nil {
				b.broken = err
			}
		}
		if _, err := b.q.exec(b.ctx, "RELEASE job"); err != nil {
			b.broken = err
		}
	}()
	if err := j.f(t); err != nil {
		j.err = err
		if b.q.kind.unwritable(err) != "" {
			j.err = b.s.refusal(err)
		}
	}
	finished = true
}

// append signs and stores the records of all jobs.
func (b *batch) append() (ledger.Receipt, error) {
	if len(b.entries) == 0 {
		return ledger.Receipt{}, nil
	}
	receipts, err := b.s.led.Append(b.ctx, &rows{ctx: b.ctx, q: b.q, clock: later(b.now, b.clock)}, ledger.Write, b.entries...)
	if err != nil {
		return ledger.Receipt{}, err
	}
	if receipts[0].Index != b.size {
		return ledger.Receipt{}, fmt.Errorf("append record: it would stand at %d and not at %d", receipts[0].Index, b.size)
	}
	return receipts[len(receipts)-1], nil
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
