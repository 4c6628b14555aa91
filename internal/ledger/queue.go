package ledger

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// QueueConfig of a Queue. Zero durations and counts take the defaults named.
type QueueConfig struct {
	Log *Log
	// Update runs fn in one durable transaction.
	Update func(ctx context.Context, fn func(SessionRows) error) error
	// Host and PID tell whose session it is.
	Host string
	PID  int
	// Alive judges another session at once when it can (known); otherwise the
	// session counts as dead when it gave no sign of life for Stale.
	Alive func(Session) (alive, known bool)

	Interval  time.Duration // longest wait of a record, 1 s
	Batch     int           // records that are flushed without waiting, 256
	Capacity  int           // records held while the store is busy, 8192
	Heartbeat time.Duration // 10 s
	Stale     time.Duration // 30 s
}

// Queue takes records of reads without making the reader wait for the disk. Run
// must be running. It flushes within Interval or Batch records; a clean stop
// loses none; after a kill the next start records that reads may be missing;
// what does not fit while the store is busy is dropped, counted, and the count
// is recorded.
type Queue struct {
	c    QueueConfig
	sess Session
	wake chan struct{}
	full chan struct{}

	mu      sync.Mutex
	items   []Entry
	dropped int64
	closed  bool
	err     error
}

// NewQueue makes a Queue.
func NewQueue(c QueueConfig) (*Queue, error) {
	if c.Log == nil || c.Update == nil {
		return nil, errors.New("make read queue: Log and Update are both needed")
	}
	set := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	set(&c.Interval, time.Second)
	set(&c.Heartbeat, 10*time.Second)
	set(&c.Stale, 30*time.Second)
	if c.Batch <= 0 {
		c.Batch = 256
	}
	if c.Capacity < c.Batch {
		c.Capacity = max(8192, c.Batch)
	}
	id := make([]byte, 12)
	if _, err := io.ReadFull(rand.Reader, id); err != nil {
		return nil, fmt.Errorf("make read queue: %w", err)
	}
	return &Queue{c: c, sess: Session{ID: hex.EncodeToString(id), Host: c.Host, PID: c.PID},
		wake: make(chan struct{}, 1), full: make(chan struct{}, 1)}, nil
}

// Add queues a record and reports whether it was taken; if not, it is counted
// as dropped. It never waits.
func (q *Queue) Add(e Entry) bool {
	if e.Time.IsZero() {
		e.Time = q.c.Log.now()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || len(q.items) >= q.c.Capacity {
		q.dropped++
		return false
	}
	q.items = append(q.items, e)
	signal(q.wake)
	if len(q.items) >= q.c.Batch {
		signal(q.full)
	}
	return true
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Err is the error of the last flush, nil when it went well: while it is not,
// reads are not being recorded.
func (q *Queue) Err() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.err
}

// Run flushes until ctx ends, then flushes the rest and returns. Its error is
// that of the last flush, when records were lost by it.
func (q *Queue) Run(ctx context.Context) error {
	beat := time.NewTicker(q.c.Heartbeat)
	defer beat.Stop()
	q.note(q.open(ctx))
	for {
		select {
		case <-ctx.Done():
			return q.close(ctx)
		case <-beat.C:
			q.note(q.open(ctx))
			continue
		case <-q.wake:
		}
		wait := time.NewTimer(q.c.Interval)
		select {
		case <-wait.C:
		case <-q.full:
		case <-ctx.Done():
		}
		wait.Stop()
		for {
			n, err := q.flush(ctx, false)
			q.note(err)
			if err != nil || n == 0 {
				break
			}
		}
	}
}

func (q *Queue) note(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.err = err
	if err != nil && len(q.items) > 0 {
		signal(q.wake) // try again after the next interval
	}
}

// open gives a sign of life and records the gaps of sessions that ended
// without closing.
func (q *Queue) open(ctx context.Context) error {
	now := q.c.Log.now()
	err := q.c.Update(ctx, func(rows SessionRows) error {
		s := q.sess
		if s.Opened.IsZero() {
			s.Opened = now
		}
		s.Seen = now
		if err := rows.PutSession(ctx, s); err != nil {
			return fmt.Errorf("note session: %w", err)
		}
		others, err := rows.Sessions(ctx)
		if err != nil {
			return fmt.Errorf("read sessions: %w", err)
		}
		for _, o := range others {
			if o.ID == s.ID || !q.dead(o, now) {
				continue
			}
			was, err := rows.DropSession(ctx, o.ID)
			if err != nil {
				return fmt.Errorf("close session %s: %w", o.ID, err)
			}
			if !was {
				continue // another process was first
			}
			if _, err := q.c.Log.Append(ctx, rows, Read, Entry{Time: now, Columns: Columns{Kind: KindGap, Status: "gap"}, Data: map[string]any{
				"reason": "a process ended without closing its queue; reads that it answered after the time in seen may be missing",
				"host":   o.Host, "pid": o.PID, "session": o.ID, "seen": o.Seen.UTC().Format(TimeLayout),
			}}); err != nil {
				return fmt.Errorf("record gap: %w", err)
			}
		}
		q.sess = s
		return nil
	})
	if err != nil {
		return fmt.Errorf("open read queue: %w", err)
	}
	return nil
}

func (q *Queue) dead(s Session, now time.Time) bool {
	if q.c.Alive != nil {
		if alive, known := q.c.Alive(s); known {
			return !alive
		}
	}
	return now.Sub(s.Seen) > q.c.Stale
}

// flush writes one batch and returns how many records that was.
func (q *Queue) flush(ctx context.Context, last bool) (int, error) {
	q.mu.Lock()
	n := min(len(q.items), q.c.Batch)
	batch := append([]Entry(nil), q.items[:n]...)
	dropped := q.dropped
	q.mu.Unlock()
	if n == 0 && dropped == 0 && !last {
		return 0, nil
	}
	if dropped > 0 {
		batch = append(batch, Entry{Time: q.c.Log.now(), Columns: Columns{Kind: KindGap, Status: "gap"}, Data: map[string]any{
			"reason": "reads came faster than they could be recorded", "dropped": dropped, "session": q.sess.ID,
		}})
	}
	err := q.c.Update(ctx, func(rows SessionRows) error {
		if _, err := q.c.Log.Append(ctx, rows, Read, batch...); err != nil {
			return err
		}
		if last {
			_, err := rows.DropSession(ctx, q.sess.ID)
			return err
		}
		s := q.sess
		s.Seen = q.c.Log.now()
		return rows.PutSession(ctx, s)
	})
	if errors.Is(err, ErrEntry) {
		// One that can never be written must not hold up the rest.
		q.discard(n)
	}
	if err != nil {
		return 0, fmt.Errorf("flush read queue: %w", err)
	}
	q.mu.Lock()
	q.items = append(q.items[:0], q.items[n:]...)
	q.dropped -= dropped
	q.mu.Unlock()
	return n, nil
}

// discard drops and counts those of the first n records that cannot be encoded.
func (q *Queue) discard(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	keep := q.items[:0]
	for i, e := range q.items {
		if i < n {
			if _, err := makeRecord(Read, 0, e, e.Time, rand.Reader); err != nil {
				q.dropped++
				continue
			}
		}
		keep = append(keep, e)
	}
	q.items = keep
}

// close takes no more records and writes the rest. The context has ended, so
// the writing gets ten seconds of its own.
func (q *Queue) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	for {
		q.mu.Lock()
		last := len(q.items) <= q.c.Batch
		q.mu.Unlock()
		if _, err := q.flush(ctx, last); errors.Is(err, ErrEntry) {
			continue // those have been discarded
		} else if err != nil {
			q.note(err)
			return err
		}
		if last {
			q.note(nil)
			return nil
		}
	}
}
