// Package notify tells people that plans wait for their approval, and of what changes who can approve: by webhook, ntfy
// and mail. A burst is one notification; several processes on one store send one. It never blocks whoever has
// something to tell, and what it sends holds typed fields only.
package notify

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"castellan/internal/gate"
)

// Source lists the plans that wait for a person.
type Source interface {
	Waiting(ctx context.Context) ([]*gate.PlanRecord, error)
}

// Store keeps what was told, for all processes on it.
type Store interface {
	Update(ctx context.Context, f func(gate.Tx) error) error
	View(ctx context.Context, f func(gate.Tx) error) error
}

// Config of a Notifier.
type Config struct {
	Settings Settings
	Source   Source
	// Store is shared with other processes; nil when there are none: then nothing is remembered over a restart.
	Store Store
	// Link gives the address of a plan's page, and of the page of all plans for ""; nil for none.
	Link func(plan string) string
	// Clock tells the time, time.Now when nil.
	Clock func() time.Time
	// Log takes warnings; nil discards them.
	Log *slog.Logger
}

// Notifier tells people. It is safe for use by many goroutines.
type Notifier struct {
	c     Config
	rules rules
	self  string // tells processes apart
	told  chan Notice
	sinks []*worker

	mu   sync.Mutex
	lost int // notices that did not fit

	// Of Run alone.
	heard  []Notice // not sent yet
	calm   []Notice // held back by quiet hours, where no store keeps them
	since  time.Time
	sentAt time.Time
	first  time.Time            // when the oldest plan that nobody was told of was first seen
	skip   map[string]time.Time // plan → do not try to claim it before
	later  time.Time            // when the store was last asked for what was held back
}

const (
	queued     = 256
	beat       = 500 * time.Millisecond
	look       = 3 * time.Second
	gather     = time.Second // urgent notices that come together are one
	laterEvery = time.Minute
	endLimit   = 5 * time.Second
)

// New makes a Notifier. It opens nothing but certificates.
func New(c Config) (*Notifier, error) {
	if err := c.Settings.Validate(); err != nil {
		return nil, fmt.Errorf("read settings: %w", err)
	}
	if c.Source == nil {
		return nil, errors.New("make notifier: there is no source of plans")
	}
	r, err := c.Settings.rules()
	if err != nil {
		return nil, fmt.Errorf("read settings: %w", err)
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	n := &Notifier{c: c, rules: r, self: newID(), told: make(chan Notice, queued), skip: map[string]time.Time{}}
	add := func(s sink, err error) error {
		if err != nil {
			return fmt.Errorf("make notifier: %w", err)
		}
		n.sinks = append(n.sinks, newWorker(s, c.Clock, c.Log))
		return nil
	}
	var errs []error
	if c.Settings.Webhook.URL != "" {
		w, err := newWebhook(c.Settings.Webhook)
		errs = append(errs, add(w, err))
	}
	if c.Settings.Ntfy.URL != "" {
		s, err := newNtfy(c.Settings.Ntfy)
		errs = append(errs, add(s, err))
	}
	if c.Settings.SMTP.given() {
		s, err := newMailer(c.Settings.SMTP)
		errs = append(errs, add(s, err))
	}
	return n, errors.Join(errs...)
}

// Tell hands over a notice; it never blocks. What does not fit is dropped, counted, and said in the log.
func (n *Notifier) Tell(x Notice) {
	if len(n.sinks) == 0 {
		return
	}
	if x.At.IsZero() {
		x.At = n.c.Clock()
	}
	select {
	case n.told <- x:
	default:
		n.mu.Lock()
		n.lost++
		n.mu.Unlock()
		n.c.Log.Warn("a notice was dropped: too many at once", "kind", clean(x.Kind))
	}
}

// Run tells people until ctx ends; what was handed over by then still goes out, within five seconds.
func (n *Notifier) Run(ctx context.Context) error {
	if len(n.sinks) == 0 {
		<-ctx.Done()
		return nil
	}
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var group sync.WaitGroup
	for _, w := range n.sinks {
		group.Go(func() { w.run(work) })
	}
	tick := time.NewTicker(beat)
	defer tick.Stop()
	looked := time.Time{}
	for ctx.Err() == nil {
		select {
		case x := <-n.told:
			n.hear(x)
		case <-tick.C:
			now := n.c.Clock()
			n.flush(ctx, now, false)
			if d := now.Sub(looked); d >= look || d < 0 {
				looked = now
				n.look(ctx, now)
			}
		case <-ctx.Done():
		}
	}
	limit := time.AfterFunc(endLimit, stop)
	defer limit.Stop()
	for len(n.told) > 0 {
		n.hear(<-n.told)
	}
	n.flush(work, n.c.Clock(), true)
	for _, w := range n.sinks {
		w.end()
	}
	group.Wait()
	return nil
}

func (n *Notifier) hear(x Notice) {
	if len(n.heard) == 0 {
		n.since = n.c.Clock()
	}
	if len(n.heard) >= queued {
		n.mu.Lock()
		n.lost++
		n.mu.Unlock()
		return
	}
	n.heard = append(n.heard, x.cleaned())
}

// flush sends the notices that were heard, once those that belong together had time to come.
func (n *Notifier) flush(ctx context.Context, now time.Time, end bool) {
	if len(n.heard) == 0 {
		return
	}
	var urgent, calm []Notice
	for _, x := range n.heard {
		if x.urgent() {
			urgent = append(urgent, x)
		} else {
			calm = append(calm, x)
		}
	}
	quiet := n.rules.silent(now)
	wait := n.rules.window
	if len(urgent) > 0 && now.Sub(n.sentAt) >= n.rules.window {
		wait = min(gather, wait)
	}
	if d := now.Sub(n.since); !end && d >= 0 && d < wait {
		return
	}
	n.heard = nil
	urgent, calm = n.others(ctx, now, urgent), n.others(ctx, now, calm)
	if quiet && len(calm) > 0 {
		n.keep(ctx, calm)
		calm = nil
	}
	if all := append(urgent, calm...); len(all) > 0 {
		n.sentAt = now
		n.send(newMessage(newID(), now, nil, all, n.c.Link), func(ok bool) {
			if !ok {
				n.store(context.Background(), all) // tried again, for days
			}
		})
	}
}

// send hands a message to all sinks; done hears whether one of them took it.
func (n *Notifier) send(m *message, done func(ok bool)) {
	d := &delivery{message: m, left: len(n.sinks), done: done}
	for _, w := range n.sinks {
		w.add(d)
	}
}

func newID() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	return hex.EncodeToString(b[:])
}
