package mcpserver

import (
	"bytes"
	"context"
	"encoding/json"
	"sync"
	"time"
)

// pending counts the client's requests that have no answer yet.
type pending struct {
	mu    sync.Mutex
	count int
	none  chan struct{} // closed when count falls to nothing while somebody waits
}

func (p *pending) add(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count += n
	if p.count <= 0 && p.none != nil {
		close(p.none)
		p.none = nil
	}
}

// wait returns when nothing is pending, after limit, or with ctx. One may wait.
func (p *pending) wait(ctx context.Context, limit time.Duration) {
	p.mu.Lock()
	if p.count <= 0 {
		p.mu.Unlock()
		return
	}
	none := make(chan struct{})
	p.none = none
	p.mu.Unlock()
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-none:
	case <-t.C:
	case <-ctx.Done():
	}
}

// answering passes messages on and counts the answers among them, one message a write.
type answering struct {
	w    *lockedWriter
	open *pending
}

func (a answering) Write(b []byte) (int, error) {
	n, err := a.w.Write(b)
	if _, answers := kindOf(b); answers {
		a.open.add(-1)
	}
	return n, err
}

func (a answering) Close() error { return a.w.Close() }

// kindOf tells a request (method and id) and an answer (result or error) by the keys of the message, without reading
// what they hold: answers are large, and their kind stands near their beginning.
func kindOf(message []byte) (request, answer bool) {
	d := json.NewDecoder(bytes.NewReader(message))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return false, false
	}
	var method, id bool
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return false, false
		}
		switch t {
		case "result", "error":
			return false, true
		case "method":
			method = true
		case "id":
			id = true
		}
		if method && id {
			return true, false
		}
		var skip json.RawMessage
		if err := d.Decode(&skip); err != nil {
			return false, false
		}
	}
	return false, false
}
