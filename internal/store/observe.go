package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"castellan/internal/gate"
	"castellan/internal/ledger"
)

// reads is the queue of the read tree.
type reads struct {
	queue   *ledger.Queue
	taken   atomic.Int64 // since the start
	dropped atomic.Int64
	ran     atomic.Bool
}

func (s *Store) newQueue() (*ledger.Queue, error) {
	host, err := os.Hostname()
	if err != nil {
		host = "" // no other process is then known to be on this machine
	}
	return ledger.NewQueue(ledger.QueueConfig{Log: s.led, Host: host, PID: os.Getpid(), Update: s.updateReads,
		Alive: func(o ledger.Session) (alive, known bool) {
			// A process that is there may be another one by now: then its silence decides.
			return false, host != "" && o.Host == host && !processExists(o.PID)
		}})
}

func (s *Store) updateReads(_ context.Context, f func(ledger.SessionRows) error) error {
	err := s.db.write(func(ctx context.Context, q *session) error {
		r := &rows{ctx: ctx, q: q, clock: s.clock()}
		// The head comes first, always: whoever holds it waits for nobody.
		if _, err := r.Head(ctx, ledger.Read); err != nil {
			return err
		}
		return f(r)
	})
	if err != nil {
		if errors.Is(err, ledger.ErrEntry) {
			return err
		}
		return s.refusal(err)
	}
	return nil // whether changes can be recorded is not for reads to say
}

// Observe queues a record of the read tree. It never blocks and never fails a call: what does not fit is dropped and
// counted.
func (s *Store) Observe(r gate.Record) {
	e, err := entry(r, s.clock())
	if err != nil || !s.reads.queue.Add(e) {
		s.reads.dropped.Add(1)
		return
	}
	s.reads.taken.Add(1)
}

// Run proves the pinned head, those that anchors hold, and that the ledger can be written, then flushes the read tree, within a second or 256
// records, until ctx ends, and once more then. It runs once.
func (s *Store) Run(ctx context.Context) error {
	if s.reads.ran.Swap(true) {
		return errors.New("run store: it ran before")
	}
	err := s.checkStart(ctx)
	if err == nil {
		err = s.checkAnchors(ctx)
	}
	if err == nil {
		err = s.Ready(ctx)
	}
	if err != nil && ctx.Err() == nil {
		s.log.Warn("no change can be recorded", "error", err)
	}
	if err := s.reads.queue.Run(ctx); err != nil {
		return fmt.Errorf("run store: %w", err)
	}
	return nil
}

// flushRest writes what was observed by a process that never ran the queue, such as a single command.
func (s *Store) flushRest() {
	if s.reads.queue == nil || s.reads.taken.Load() == 0 || s.reads.ran.Swap(true) {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // Run ends at once, after writing
	if err := s.reads.queue.Run(ctx); err != nil {
		s.log.Warn("read records lost", "error", err)
	}
}
