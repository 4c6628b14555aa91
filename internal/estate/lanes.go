package estate

import (
	"context"
	"fmt"
	"sync"
)

// A node's API daemon has three workers, and people use them too.
const (
	lanesPerNode = 2
	lanesInAll   = 16
)

// lanes hold reads to a few at a time, on one node and in all.
type lanes struct {
	all chan struct{}

	mu    sync.Mutex
	nodes map[string]chan struct{}
}

func newLanes() *lanes {
	return &lanes{all: make(chan struct{}, lanesInAll), nodes: map[string]chan struct{}{}}
}

func (l *lanes) of(node string) chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.nodes[node]
	if c == nil {
		c = make(chan struct{}, lanesPerNode)
		l.nodes[node] = c
	}
	return c
}

// enter waits for a lane to a node (empty = the site as a whole); leave gives it back.
func (l *lanes) enter(ctx context.Context, node string) (leave func(), err error) {
	own := l.all
	if node != "" {
		own = l.of(node)
		select {
		case own <- struct{}{}:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for node %s: %w", node, ctx.Err())
		}
	}
	select {
	case l.all <- struct{}{}:
	case <-ctx.Done():
		if node != "" {
			<-own
		}
		return nil, fmt.Errorf("wait for the site: %w", ctx.Err())
	}
	return func() {
		<-l.all
		if node != "" {
			<-own
		}
	}, nil
}

// each runs f for every item, in an order that takes turns between nodes, with as many at a time as the lanes allow.
func each[T any](s *Survey, items []T, node func(T) string, f func(T)) {
	if len(items) < 2 {
		for _, x := range items {
			f(x)
		}
		return
	}
	turns := interleave(items, node)
	work := make(chan T)
	var group sync.WaitGroup
	for range min(lanesInAll, len(items)) {
		group.Go(func() {
			for x := range work {
				f(x)
			}
		})
	}
	for _, x := range turns {
		work <- x
	}
	close(work)
	group.Wait()
}

// interleave orders items so that neighbours are of different nodes where that can be.
func interleave[T any](items []T, node func(T) string) []T {
	by, names := map[string][]T{}, []string{}
	for _, x := range items {
		n := node(x)
		if by[n] == nil {
			names = append(names, n)
		}
		by[n] = append(by[n], x)
	}
	out := make([]T, 0, len(items))
	for round := 0; len(out) < len(items); round++ {
		for _, n := range names {
			if round < len(by[n]) {
				out = append(out, by[n][round])
			}
		}
	}
	return out
}
