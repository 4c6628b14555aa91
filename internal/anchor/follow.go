package anchor

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"castellan/internal/ledger"
)

const (
	firstRetry = time.Second
	lastRetry  = 5 * time.Minute
	endLimit   = 5 * time.Second // for the last head at a clean stop
	putLimit   = 30 * time.Second
)

// Run brings the source's head to each anchor as it moves, at most once within the anchor's time, until ctx ends, and
// once more then. An anchor that does not work is tried again, less and less often; the others do not wait for it.
func (a *Anchors) Run(ctx context.Context) error {
	if a.source == nil {
		return errors.New("run anchors: there is no source of heads")
	}
	var group sync.WaitGroup
	for _, o := range a.all {
		group.Go(func() { a.follow(ctx, o) })
	}
	group.Wait()
	return nil
}

func (a *Anchors) follow(ctx context.Context, o *one) {
	retry := time.Duration(0)
	for {
		wait := o.every
		if retry > 0 {
			wait = retry + rand.N(retry/4+1)
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			a.last(ctx, o)
			return
		case <-t.C:
		}
		head, err := a.source.Head(ctx)
		if err != nil || head == "" {
			continue // the store says what is wrong with it
		}
		if err := a.step(ctx, o, head); err != nil {
			retry = min(max(2*retry, firstRetry), lastRetry)
			continue
		}
		retry = 0
	}
}

// step puts the head where it is not there yet.
func (a *Anchors) step(ctx context.Context, o *one, head string) error {
	now := a.clock()
	o.mu.Lock()
	same := o.put == head && o.trouble == "" && o.rewound == ""
	switch {
	case same:
		o.putAt, o.behind = now, time.Time{}
	case o.behind.IsZero():
		o.behind = now
	}
	o.mu.Unlock()
	if same {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, putLimit)
	defer cancel()
	return a.putOne(ctx, o, head)
}

// last puts the head at a clean stop, where this process has to do with it.
func (a *Anchors) last(ctx context.Context, o *one) {
	if !a.source.Wrote() && o.lastPut() == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endLimit)
	defer cancel()
	head, err := a.source.Head(ctx)
	if err != nil || head == "" {
		return
	}
	_ = a.step(ctx, o, head) // noted; nobody is left to retry
}

func (o *one) lastPut() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.put
}

// State is how one anchor is.
type State struct {
	Name     string    `json:"name"`
	Kind     string    `json:"kind"`
	Readable bool      `json:"readable"`
	Required bool      `json:"required"`
	Outside  bool      `json:"outside"`           // what is put there lies on another machine
	Size     int64     `json:"size"`              // records that the head there covers; 0 when that is not known
	At       time.Time `json:"at,omitzero"`       // when it was last known to hold the ledger's head
	Behind   time.Time `json:"behind,omitzero"`   // since when it does not
	Trouble  string    `json:"trouble,omitempty"` // why, when it does not work
	Rewound  string    `json:"rewound,omitempty"` // why the ledger is not a continuation of what is there
}

// States tell how each anchor is, without asking it.
func (a *Anchors) States() []State {
	out := make([]State, 0, len(a.all))
	for _, o := range a.all {
		o.mu.Lock()
		s := State{Name: o.Name, Kind: o.Kind, Readable: o.sink.readable(), Required: o.Required, Outside: o.Outside || o.sink.away(),
			At: o.putAt, Behind: o.behind, Trouble: o.trouble, Rewound: o.rewound}
		note := o.put
		if note == "" {
			note = o.back
		}
		o.mu.Unlock()
		if c, err := ledger.ParseCheckpoint(note); err == nil {
			s.Size = c.Size
		}
		out = append(out, s)
	}
	return out
}

// Outside says whether some anchor that works lies on another machine; if not, why a rewind of this one would go unseen.
func (a *Anchors) Outside() (bool, string) {
	if len(a.all) == 0 {
		return false, "no anchor is configured: a ledger put back to an older state, with this machine, would go unnoticed"
	}
	for _, s := range a.States() {
		if s.Outside && s.Trouble == "" && !s.At.IsZero() {
			return true, ""
		}
	}
	return false, "no anchor outside this machine has the head of the ledger: a ledger put back together with this machine would go unnoticed"
}

// troubleAfter is how long an anchor may fail before every answer says so.
const troubleAfter = time.Minute

// Notices are what every answer should say: anchors that do not work, or hold what the ledger lacks.
func (a *Anchors) Notices() []string {
	now := a.clock()
	var out []string
	for _, o := range a.all {
		o.mu.Lock()
		switch {
		case o.rewound != "":
			out = append(out, "The ledger is not a continuation of what its anchor "+o.Name+" holds: "+oneLine(o.rewound))
		case o.trouble != "" && now.Sub(o.since) > troubleAfter:
			out = append(out, "The ledger's anchor "+o.Name+" does not work since "+o.since.UTC().Format(time.RFC3339)+": "+o.trouble)
		}
		o.mu.Unlock()
	}
	return out
}
