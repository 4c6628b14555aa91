package proxmox

import (
	"context"
	"fmt"
	"sync"
	"time"

	"castellan/internal/gate"
)

const (
	manyAtOnce = 8
	manyEach   = 12 * time.Second
)

// ReadMany asks one target several things side by side, at most eight at once, each with a deadline of its own, so
// that one dead storage or node does not hold up the rest. Answers stand in the order of the requests; where one
// could not be had it is empty and missing says which and why. An error is returned when nothing can be had at all.
func (c *Client) ReadMany(ctx context.Context, name string, requests []gate.Request) (answers []gate.Answer, missing []string, err error) {
	t, err := c.target(name)
	if err != nil {
		return nil, nil, err
	}
	answers = make([]gate.Answer, len(requests))
	failed := make([]error, len(requests))
	slots := make(chan struct{}, manyAtOnce)
	var all sync.WaitGroup
	for i, r := range requests {
		all.Go(func() {
			select {
			case slots <- struct{}{}:
				defer func() { <-slots }()
			case <-ctx.Done():
				failed[i] = ctx.Err()
				return
			}
			each, stop := context.WithTimeout(ctx, manyEach)
			defer stop()
			answers[i], failed[i] = c.read(each, t, r)
		})
	}
	all.Wait()
	bad := 0
	for i, err := range failed {
		if err == nil {
			continue
		}
		bad++
		if e := asUpstream(err); e != nil && e.Auth {
			return nil, nil, err
		}
		missing = append(missing, fmt.Sprintf("%s: %v", subject(requests[i]), err))
	}
	if bad == len(requests) && bad > 0 {
		return answers, missing, failed[0]
	}
	return answers, missing, nil
}

// subject names a request by what distinguishes it.
func subject(r gate.Request) string {
	out := r.Operation
	for _, p := range r.Params {
		if v := r.Text(p.Name); v != "" && len(p.Values) == 1 && p.Values[0].Secret == nil {
			out += " " + p.Name + "=" + clean(v, 60)
		}
	}
	return out
}
