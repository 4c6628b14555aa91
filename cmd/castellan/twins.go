package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"castellan/internal/catalog"
	"castellan/internal/estate"
	"castellan/internal/gate"
	"castellan/internal/guest"
)

// twins looks for guests that share hardware addresses, with castellan's own eyes: whoever asks, it is about who answers. One look
// at a site serves all who asked before it began.
type twins struct {
	estate *estate.Estate
	view   ownView

	mu    sync.Mutex
	sites map[string]*siteLooks // by target
}

// siteLooks are the looks at one target's site: one at a time.
type siteLooks struct {
	turn chan struct{}
	next *look // has not begun; nil = there is none
}

// look is one look, with those who asked for it. What it found is there once done is closed.
type look struct {
	asked []estate.Cards
	done  chan struct{}
	found []estate.Sharing
	err   error
}

// lookLimit is how long one look may take. It goes on when those who asked have stopped waiting: what it has read is there for the next.
const lookLimit = 3 * time.Minute

func newTwins(e *estate.Estate, d gate.Driver, c *catalog.Catalog) *twins {
	return &twins{estate: e, view: ownView{driver: d, catalog: c.Guide()}, sites: map[string]*siteLooks{}}
}

// Twins implements guest.Twins.
func (t *twins) Twins(ctx context.Context, target string, vmid int, cards []string, fresh bool) (guest.Shared, error) {
	l, place := t.join(ctx, target, estate.Cards{ID: strconv.Itoa(vmid), Cards: cards, Fresh: fresh})
	select {
	case <-l.done:
	case <-ctx.Done():
		return guest.Shared{}, fmt.Errorf("look for guests with the same hardware addresses, which goes on: %w", ctx.Err())
	}
	if l.err != nil {
		return guest.Shared{}, l.err
	}
	found := l.found[place]
	out := guest.Shared{Unread: found.Unread, Unseen: found.Unseen}
	for _, g := range found.Up {
		out.With = append(out.With, strings.ToUpper(g.Kind)+" "+g.ID) // its name may be out of the caller's sight
	}
	return out, nil
}

// join adds a question to the next look at a site, which begins when the one before it has ended: who asks for what is so now gets
// what was read after it was asked.
func (t *twins) join(ctx context.Context, target string, q estate.Cards) (*look, int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	site := t.sites[target]
	if site == nil {
		site = &siteLooks{turn: make(chan struct{}, 1)}
		t.sites[target] = site
	}
	if site.next == nil {
		site.next = &look{done: make(chan struct{})}
		go t.run(context.WithoutCancel(ctx), target, site, site.next)
	}
	site.next.asked = append(site.next.asked, q)
	return site.next, len(site.next.asked) - 1
}

// run carries out one look.
func (t *twins) run(ctx context.Context, target string, site *siteLooks, l *look) {
	site.turn <- struct{}{}
	defer func() { <-site.turn }()
	defer close(l.done)
	t.mu.Lock()
	site.next = nil
	t.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	l.found, l.err = t.estate.SharingOf(ctx, t.view, target, l.asked...)
}

// ownView is castellan's own look at its targets, for what no caller asks. It reads what the catalogue calls a read, and nothing else.
type ownView struct {
	driver  gate.Driver
	catalog gate.Catalog
}

var _ gate.View = ownView{}

func (v ownView) Read(ctx context.Context, target string, r gate.Read) (gate.Answer, error) {
	t, err := v.Target(target)
	if err != nil {
		return gate.Answer{}, err
	}
	args := map[string]any{}
	for name, text := range r.Params {
		args[name] = text
	}
	req, problems := v.catalog.Check(t.Product, r.Operation, args)
	if len(problems) > 0 {
		return gate.Answer{}, fmt.Errorf("read %s: %s", r.Operation, problems[0].Message)
	}
	if j := v.catalog.Judge(req); j.Effect != gate.EffectRead || req.IsRun() {
		return gate.Answer{}, fmt.Errorf("read %s: it is no read", r.Operation)
	}
	a, err := v.driver.Read(ctx, t.Name, req)
	if err != nil {
		return gate.Answer{}, fmt.Errorf("read %s: %w", r.Operation, err)
	}
	a.Data = v.catalog.Scrub(req, a.Data)
	a.Untrusted = a.Untrusted || len(v.catalog.Outside(req, a.Data)) > 0
	return a, nil
}

func (v ownView) Targets() []gate.TargetInfo { return v.driver.Targets() }

func (v ownView) Target(name string) (gate.TargetInfo, error) {
	for _, t := range v.Targets() {
		if t.Name == name {
			return t, nil
		}
	}
	return gate.TargetInfo{}, gate.Fail(gate.ErrNotFound, "", "there is no target %q", name)
}

func (ownView) Run(context.Context, string, string, map[string]any) (gate.RunResult, error) {
	return gate.RunResult{}, gate.Fail(gate.ErrInternal, "", "castellan's own look runs nothing")
}

func (ownView) Plan(context.Context, string, json.RawMessage) (*gate.Draft, error) {
	return nil, gate.Fail(gate.ErrInternal, "", "castellan's own look plans nothing")
}

func (ownView) Query(context.Context, string, json.RawMessage) (json.RawMessage, error) {
	return nil, gate.Fail(gate.ErrInternal, "", "castellan's own look asks no operation")
}

func (ownView) Sees(context.Context, string, gate.ObjectFacts) bool { return true }
func (ownView) Scoped() bool                                        { return false }
func (ownView) Principal() gate.Principal                           { return gate.Principal{} }
func (ownView) Now() time.Time                                      { return time.Now() }

// SawFreeText needs no keeping: of what is read nothing but ids and hardware addresses leaves.
func (ownView) SawFreeText() {}
