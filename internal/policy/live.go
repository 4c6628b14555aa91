package policy

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"castellan/internal/gate"
)

// LiveConfig of a Live policy.
type LiveConfig struct {
	// Policy is the one to begin with.
	Policy *Policy
	// Load is called before each decision; it looks whether the settings have changed and returns the new policy, nil
	// when nothing has, an error when what is there now cannot be used. It should be cheap, and is never called twice at
	// the same time.
	Load func() (*Policy, error)
	// Contained says why every write is refused, whatever policy says: a file that somebody put there. Empty, or nil: it is
	// not.
	Contained func() string
}

// Live is a policy that takes up changed settings at the next call. Broken ones leave the old in force, and the limits
// carry a notice that says so.
type Live struct {
	load      func() (*Policy, error)
	contained func() string

	mu     sync.Mutex
	policy *Policy
	notice string
}

var _ gate.Policy = (*Live)(nil)

// NewLive makes one.
func NewLive(c LiveConfig) (*Live, error) {
	if c.Policy == nil || c.Load == nil {
		return nil, errors.New("make live policy: a policy to begin with and a way to load another are both needed")
	}
	return &Live{policy: c.Policy, load: c.Load, contained: c.Contained}, nil
}

// Current is the policy in force now.
func (l *Live) Current() *Policy {
	p, _ := l.current()
	return p
}

func (l *Live) current() (*Policy, string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch p, err := l.load(); {
	case err != nil:
		l.notice = fmt.Sprintf("The changed configuration was not taken up, the earlier one stays in force: %v", err)
	case p != nil:
		l.policy, l.notice = p, ""
	}
	return l.policy, l.notice
}

// Digest identifies the policy set in force.
func (l *Live) Digest() string { return l.Current().Digest() }

// Call decides as the policy in force does.
func (l *Live) Call(ctx context.Context, q gate.CallQuestion) gate.Decision {
	return l.Current().Call(ctx, q)
}

// Offers answers from the policy that was last taken up, without looking for another: for lists, which must not wait for
// the store.
func (l *Live) Offers(ctx context.Context, q gate.CallQuestion) gate.Decision {
	return l.last().Call(ctx, q)
}

// Plan decides as the policy in force does.
func (l *Live) Plan(ctx context.Context, q gate.PlanQuestion) gate.Decision {
	return l.Current().Plan(ctx, q)
}

// Approve decides as the policy in force does.
func (l *Live) Approve(ctx context.Context, q gate.PlanQuestion, approver gate.Principal, rung gate.Rung) gate.Decision {
	return l.Current().Approve(ctx, q, approver, rung)
}

// Sees asks the policy that was last taken up: rows of one answer are all judged by the same.
func (l *Live) Sees(p gate.Principal, target string, o gate.ObjectFacts) bool {
	return l.last().Sees(p, target, o)
}

// Scoped asks the policy that was last taken up.
func (l *Live) Scoped(p gate.Principal) bool { return l.last().Scoped(p) }

// GovernedScope asks the policy in force.
func (l *Live) GovernedScope() (pools, tags []string) { return l.Current().GovernedScope() }

// Depends asks the policy in force.
func (l *Live) Depends() (pools, tags, titles []string) { return l.Current().Depends() }

// Limits are those in force, with a notice when changed settings could not be taken up.
func (l *Live) Limits() gate.Limits {
	p, notice := l.current()
	out := p.Limits()
	if l.contained != nil {
		out.Contained = l.contained()
	}
	if notice != "" {
		out.Notices = append(out.Notices, notice)
	}
	return out
}

func (l *Live) last() *Policy {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.policy
}
