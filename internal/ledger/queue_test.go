package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"castellan/internal/ledger"
	"castellan/internal/ledger/ledgertest"
)

// gatedDB lets a test make the store fail.
type gatedDB struct {
	*ledgertest.Memory
	mu  sync.Mutex
	err error
}

func (g *gatedDB) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.err = err
}

func (g *gatedDB) update(ctx context.Context, fn func(ledger.SessionRows) error) error {
	g.mu.Lock()
	err := g.err
	g.mu.Unlock()
	if err != nil {
		return err
	}
	return g.Update(ctx, func(r ledgertest.Rows) error { return fn(r) })
}

func readLog(t *testing.T) *ledger.Log {
	t.Helper()
	l, err := ledger.New(ledger.Config{Store: "test", Signer: ledgertest.Key("test")}) // the clock of the bubble
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func newQueue(t *testing.T, db *gatedDB, c ledger.QueueConfig) *ledger.Queue {
	t.Helper()
	c.Log, c.Update = readLog(t), db.update
	q, err := ledger.NewQueue(c)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func gaps(t *testing.T, db ledgertest.DB) (reads int, found []map[string]any) {
	t.Helper()
	for _, r := range ledgertest.Records(t, db, ledger.Read) {
		h, err := ledger.ParseHeader(r.Header)
		if err != nil {
			t.Fatal(err)
		}
		if h.Kind != ledger.KindGap {
			reads++
			continue
		}
		m, err := h.Fields()
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, m)
	}
	return reads, found
}

func count(t *testing.T, db ledgertest.DB) int { return len(ledgertest.Records(t, db, ledger.Read)) }

func TestQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &gatedDB{Memory: ledgertest.NewMemory()}
		q := newQueue(t, db, ledger.QueueConfig{})
		ctx, stop := context.WithCancel(background)
		done := make(chan error)
		go func() { done <- q.Run(ctx) }()

		q.Add(ledgertest.Entry(1))
		time.Sleep(999 * time.Millisecond)
		if n := count(t, db); n != 0 {
			t.Errorf("%d records before the interval is over", n)
		}
		time.Sleep(2 * time.Millisecond)
		if n := count(t, db); n != 1 {
			t.Errorf("%d records after a second, want 1", n)
		}

		for i := range 256 {
			q.Add(ledgertest.Entry(i))
		}
		synctest.Wait()
		if n := count(t, db); n != 257 {
			t.Errorf("%d records after a full batch, want 257", n)
		}

		time.Sleep(time.Minute) // heartbeats add no records
		for i := range 700 {
			q.Add(ledgertest.Entry(i))
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if n := count(t, db); n != 957 {
			t.Errorf("%d records after a clean stop, want 957", n)
		}
		if q.Add(ledgertest.Entry(1)) {
			t.Error("a record was taken after the stop")
		}
		if res := verify(t, db); !res.OK {
			t.Error(res.Broken)
		}

		// A clean stop leaves no gap for the next start.
		q = newQueue(t, db, ledger.QueueConfig{Alive: func(ledger.Session) (bool, bool) { return false, true }})
		ctx, stop = context.WithCancel(background)
		stop()
		if err := q.Run(ctx); err != nil {
			t.Error(err)
		}
		if _, g := gaps(t, db); len(g) != 0 {
			t.Errorf("gaps after clean stops: %v", g)
		}
	})
}

func TestQueueRecordsTheGapOfAKill(t *testing.T) {
	for _, known := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			db := &gatedDB{Memory: ledgertest.NewMemory()}
			killed := newQueue(t, db, ledger.QueueConfig{Host: "h", PID: 42})
			ctx, kill := context.WithCancel(background)
			go killed.Run(ctx)
			killed.Add(ledgertest.Entry(1))
			time.Sleep(2 * time.Second)
			killed.Add(ledgertest.Entry(2))
			db.fail(errors.New("the process is gone")) // nothing of it reaches the store any more
			kill()
			synctest.Wait()
			db.fail(nil)

			alive := func(s ledger.Session) (bool, bool) { return s.PID != 42, known }
			two := make(chan error, 2)
			run, stop := context.WithCancel(background)
			for range 2 { // two processes start at once: one of them records it
				q := newQueue(t, db, ledger.QueueConfig{Host: "h", PID: 43, Alive: alive})
				go func() { two <- q.Run(run) }()
			}
			synctest.Wait()
			reads, g := gaps(t, db)
			if known && len(g) != 1 || !known && len(g) != 0 {
				t.Errorf("known=%v: gaps at the next start: %v", known, g)
			}
			time.Sleep(time.Minute) // those two stay alive and are not taken for dead
			reads, g = gaps(t, db)
			if reads != 1 || len(g) != 1 || g[0]["host"] != "h" || g[0]["seen"] == nil {
				t.Errorf("known=%v: %d reads, gaps %v", known, reads, g)
			}
			stop()
			if err := errors.Join(<-two, <-two); err != nil {
				t.Error(err)
			}
			if _, g := gaps(t, db); len(g) != 1 {
				t.Errorf("gaps after clean stops: %v", g)
			}
		})
	}
}

func TestQueueCountsWhatItDrops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &gatedDB{Memory: ledgertest.NewMemory(), err: errors.New("disk full")}
		q := newQueue(t, db, ledger.QueueConfig{Batch: 10, Capacity: 50})
		ctx, stop := context.WithCancel(background)
		done := make(chan error)
		go func() { done <- q.Run(ctx) }()
		taken := 0
		for i := range 80 {
			if q.Add(ledgertest.Entry(i)) {
				taken++
			}
		}
		time.Sleep(5 * time.Second)
		if q.Err() == nil {
			t.Error("the queue does not say that it cannot write")
		}
		db.fail(nil)
		time.Sleep(2 * time.Second)
		if q.Err() != nil {
			t.Errorf("the queue still complains: %v", q.Err())
		}
		reads, g := gaps(t, db)
		if taken != 50 || reads != 50 || len(g) != 1 || fmt.Sprint(g[0]["dropped"]) != "30" {
			t.Errorf("taken %d, recorded %d, gaps %v; want 50, 50 and one of 30", taken, reads, g)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestQueueIsNotHeldUpByABadRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &gatedDB{Memory: ledgertest.NewMemory()}
		q := newQueue(t, db, ledger.QueueConfig{})
		ctx, stop := context.WithCancel(background)
		done := make(chan error)
		go func() { done <- q.Run(ctx) }()
		bad := ledgertest.Entry(2)
		bad.Data = map[string]any{"f": 1.5}
		for _, e := range []ledger.Entry{ledgertest.Entry(1), bad, ledgertest.Entry(3)} {
			q.Add(e)
		}
		time.Sleep(5 * time.Second)
		reads, g := gaps(t, db)
		if reads != 2 || len(g) != 1 || fmt.Sprint(g[0]["dropped"]) != "1" || q.Err() != nil {
			t.Errorf("%d reads, gaps %v, error %v", reads, g, q.Err())
		}
		q.Add(bad)
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if _, g := gaps(t, db); len(g) != 2 {
			t.Errorf("gaps %v", g)
		}
	})
}
