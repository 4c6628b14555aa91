package mcpserver

import (
	"context"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
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

// asks says whether a message waits for an answer, answers whether it is one.
func asks(m jsonrpc.Message) bool {
	r, ok := m.(*jsonrpc.Request)
	return ok && r.IsCall()
}

func answers(m jsonrpc.Message) bool {
	_, ok := m.(*jsonrpc.Response)
	return ok
}
