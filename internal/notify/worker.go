package notify

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"
)

// delivery is one message on its way to all sinks.
type delivery struct {
	message *message
	mu      sync.Mutex
	left    int
	ok      bool
	done    func(ok bool)
}

func (d *delivery) ended(ok bool) {
	d.mu.Lock()
	d.left--
	d.ok = d.ok || ok
	last := d.left == 0
	ok = d.ok
	d.mu.Unlock()
	if last && d.done != nil {
		d.done(ok)
	}
}

// worker brings messages to one sink, one after another, so that a slow one holds up no other.
type worker struct {
	sink  sink
	queue chan *delivery
	clock func() time.Time
	log   *slog.Logger

	mu    sync.Mutex
	state State
}

// State is how one way of telling is.
type State struct {
	Name    string    `json:"name"`
	Sent    int       `json:"sent"`
	Failed  int       `json:"failed"`            // given up after all tries
	At      time.Time `json:"at,omitzero"`       // when something was sent last
	Trouble string    `json:"trouble,omitempty"` // why the last one was not
}

const backlog = 32

// pauses between the tries for one message.
func pauses() []time.Duration {
	return []time.Duration{2 * time.Second, 10 * time.Second, 30 * time.Second}
}

func newWorker(s sink, clock func() time.Time, log *slog.Logger) *worker {
	return &worker{sink: s, queue: make(chan *delivery, backlog), clock: clock, log: log, state: State{Name: s.name()}}
}

// add queues a message; one that does not fit is given up.
func (w *worker) add(d *delivery) {
	select {
	case w.queue <- d:
	default:
		w.failed(d, errors.New("too many messages wait to be sent"))
	}
}

func (w *worker) end() { close(w.queue) }

func (w *worker) run(ctx context.Context) {
	for d := range w.queue {
		w.deliver(ctx, d)
	}
}

func (w *worker) deliver(ctx context.Context, d *delivery) {
	var err error
	for try := 0; ; try++ {
		if err = w.sink.send(ctx, d.message); err == nil || errors.Is(err, errSome) {
			break
		}
		var final permanent
		if ctx.Err() != nil || errors.As(err, &final) || try == len(pauses()) {
			w.failed(d, err)
			return
		}
		pause := pauses()[try]
		t := time.NewTimer(pause + rand.N(pause/4))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			w.failed(d, err)
			return
		}
	}
	w.mu.Lock()
	w.state.Sent++
	w.state.At, w.state.Trouble = w.clock(), ""
	if err != nil {
		w.state.Trouble = short(err)
	}
	w.mu.Unlock()
	if err != nil {
		w.log.Warn("not everybody was told", "by", w.sink.name(), "error", err)
	}
	d.ended(true)
}

func (w *worker) failed(d *delivery, err error) {
	w.mu.Lock()
	w.state.Failed++
	w.state.Trouble = short(err)
	w.mu.Unlock()
	w.log.Warn("people could not be told", "by", w.sink.name(), "error", err)
	d.ended(false)
}

func short(err error) string {
	s := oneLine(err.Error())
	if len(s) > 300 {
		s = s[:300] + "…"
	}
	return s
}

// States tell how each way of telling is; empty when none is configured.
func (n *Notifier) States() []State {
	out := make([]State, 0, len(n.sinks))
	for _, w := range n.sinks {
		w.mu.Lock()
		out = append(out, w.state)
		w.mu.Unlock()
	}
	return out
}

// Lost is how many notices did not fit since the start.
func (n *Notifier) Lost() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.lost
}
