package guest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"castellan/internal/channel"
	"castellan/internal/gate"
	"castellan/internal/patch"
)

// keepCheck is how long what a guest answered is kept for who asks again.
const keepCheck = 5 * time.Minute

// checks are the looks at package lists under way, by guest. A guest may take longer for that than one call has: the look goes on
// then, and who asks again gets what comes of it.
type checks struct {
	mu    sync.Mutex
	under map[string]*checking
}

// checking is one look.
type checking struct {
	began  time.Time
	done   chan struct{}
	report patch.Report // when done
	err    error
	ended  time.Time
}

// join gives the look at this guest that is under way or has just ended, and begins one where there is none.
func (k *checks) join(guest string, look func() (patch.Report, error)) *checking {
	k.mu.Lock()
	defer k.mu.Unlock()
	for id, c := range k.under {
		if c.over() && time.Since(c.ended) > keepCheck {
			delete(k.under, id)
		}
	}
	if c := k.under[guest]; c != nil {
		return c
	}
	c := &checking{began: time.Now(), done: make(chan struct{})}
	if k.under == nil {
		k.under = map[string]*checking{}
	}
	k.under[guest] = c
	go func() {
		c.report, c.err = look()
		c.ended = time.Now()
		close(c.done)
	}()
	return c
}

func (c *checking) over() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// take ends the keeping of a look: its answer is given once.
func (k *checks) take(guest string, c *checking) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.under[guest] == c {
		delete(k.under, guest)
	}
}

// forget ends the keeping of whatever look there is: what it tells will not be so any more.
func (k *checks) forget(guest string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.under, guest)
}

// check asks what could be installed, for as long as this call may take; the guest goes on for who asks again.
func (c *task) check(ctx context.Context, e *channel.Entry, limit time.Duration) (gate.RunResult, error) {
	k := &c.r.checks
	guest := e.ID()
	base := context.WithoutCancel(ctx)
	look := k.join(guest, func() (report patch.Report, err error) {
		err = c.ask(base, e, patch.Check, checkLimit, func(b []byte) (err error) {
			if report, err = patch.ParseCheck(b, time.Now()); err == nil {
				err = c.same(base, report.Cards, &report.Unread)
			}
			return err
		})
		return report, err
	})
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-look.done:
	case <-ctx.Done():
		return gate.RunResult{}, ctx.Err()
	case <-timer.C:
		return gate.RunResult{}, refused(gate.ErrUnavailable, fmt.Sprintf("Nothing was changed. What it finds is kept for %d minutes by the process that asked, and used by the next call.", int(keepCheck.Minutes())),
			"%s is still reading its package lists after %s; it goes on with that, so ask again in a minute", c.o, time.Since(look.began).Round(time.Second))
	}
	k.take(guest, look)
	if look.err != nil {
		return gate.RunResult{}, c.told(e, look.err, false)
	}
	return answer(look.report, "")
}
