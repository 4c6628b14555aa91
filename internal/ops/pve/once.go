package pve

import (
	"context"
	"encoding/json"
	"sync"

	"castellan/internal/gate"
)

// once answers a read that was made already during one call with that answer: parts of a round ask for the same.
type once struct {
	gate.View
	mu   sync.Mutex
	made map[string]*onceRead
}

type onceRead struct {
	done   chan struct{}
	answer gate.Answer
	err    error
}

func newOnce(v gate.View) *once { return &once{View: v, made: map[string]*onceRead{}} }

// Read waits for the one that asks the same already. An error is nobody else's: they ask for themselves.
func (o *once) Read(ctx context.Context, target string, r gate.Read) (gate.Answer, error) {
	key, err := json.Marshal([]any{target, r})
	if err != nil {
		return o.View.Read(ctx, target, r)
	}
	o.mu.Lock()
	e := o.made[string(key)]
	if e == nil {
		e = &onceRead{done: make(chan struct{})}
		o.made[string(key)] = e
		o.mu.Unlock()
		e.answer, e.err = o.View.Read(ctx, target, r)
		if e.err != nil {
			o.mu.Lock()
			delete(o.made, string(key))
			o.mu.Unlock()
		}
		close(e.done)
		return e.answer, e.err
	}
	o.mu.Unlock()
	select {
	case <-e.done:
	case <-ctx.Done():
		return gate.Answer{}, ctx.Err()
	}
	if e.err != nil {
		return o.View.Read(ctx, target, r)
	}
	return e.answer, nil
}

// SawFreeText passes on that an answer from elsewhere held text of outsiders.
func (o *once) SawFreeText() {
	if call, ok := o.View.(interface{ SawFreeText() }); ok {
		call.SawFreeText()
	}
}
