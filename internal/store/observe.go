package store

import (
	"context"
	"errors"
	"sync"
	"time"

	"castellan/internal/gate"
	"castellan/internal/ledger"
)

// readQueue holds records of the read tree until they are flushed.
type readQueue struct {
	mu      sync.Mutex
	entries []ledger.Entry
	dropped int64
	full    chan struct{}
}

const (
	flushEvery = time.Second
	flushAt    = 256
	maxQueued  = 8192
)

// Observe queues a record of the read tree. It never blocks and never fails a call: when the queue is full, the
// record is dropped and counted.
func (s *Store) Observe(r gate.Record) {
	e, err := entry(r, s.clock())
	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	if err != nil || len(s.queue.entries) >= maxQueued {
		s.queue.dropped++
		return
	}
	s.queue.entries = append(s.queue.entries, e)
	if len(s.queue.entries) >= flushAt {
		select {
		case s.queue.wake() <- struct{}{}:
		default:
		}
	}
}

func (q *readQueue) wake() chan struct{} {
	if q.full == nil {
		q.full = make(chan struct{}, 1)
	}
	return q.full
}

func (q *readQueue) take() []ledger.Entry {
	q.mu.Lock()
	defer q.mu.Unlock()
	out := q.entries
	q.entries = nil
	return out
}

// Run flushes the read tree until ctx ends, and once more then.
func (s *Store) Run(ctx context.Context) error {
	s.queue.mu.Lock()
	full := s.queue.wake()
	s.queue.mu.Unlock()
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return s.Flush(context.WithoutCancel(ctx))
		case <-tick.C:
		case <-full:
		}
		if err := s.Flush(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("read records wait: the ledger cannot be written", "error", err)
		}
	}
}

// Flush appends what is queued now.
func (s *Store) Flush(ctx context.Context) error {
	entries := s.queue.take()
	if len(entries) == 0 {
		return nil
	}
	var got []ledger.Receipt
	err := s.db.write(func(ctx context.Context, q *session) error {
		var err error
		got, err = s.led.Append(ctx, &rows{ctx: ctx, q: q, clock: s.clock()}, ledger.Read, entries...)
		return err
	})
	if err != nil {
		s.queue.mu.Lock()
		s.queue.entries = append(entries, s.queue.entries...)
		if over := len(s.queue.entries) - maxQueued; over > 0 {
			s.queue.dropped += int64(over)
			s.queue.entries = s.queue.entries[over:]
		}
		s.queue.mu.Unlock()
		return s.refusal(err)
	}
	s.led.Committed(got[len(got)-1].Checkpoint)
	return nil
}

func (s *Store) closeQueue(ctx context.Context) error {
	err := s.Flush(ctx)
	if errors.Is(err, gate.ErrReadOnlyStore) {
		s.log.Warn("read records lost: the ledger cannot be written", "error", err)
		return nil
	}
	return err
}
