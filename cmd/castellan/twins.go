package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"castellan/internal/catalog"
	"castellan/internal/estate"
	"castellan/internal/gate"
	"castellan/internal/guest"
)

// twins looks for guests that share hardware addresses, with castellan's own eyes: whoever asks, it is about who answers.
type twins struct {
	estate *estate.Estate
	view   ownView
	turn   chan struct{} // one at a time reads a site's settings; the others find them read
}

func newTwins(e *estate.Estate, d gate.Driver, c *catalog.Catalog) *twins {
	return &twins{estate: e, view: ownView{driver: d, catalog: c.Guide()}, turn: make(chan struct{}, 1)}
}

// Twins implements guest.Twins.
func (t *twins) Twins(ctx context.Context, target string, vmid int, cards []string, fresh bool) (guest.Shared, error) {
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	case <-ctx.Done():
		return guest.Shared{}, fmt.Errorf("look for guests with the same hardware addresses: %w", ctx.Err())
	}
	found, err := t.estate.Sharing(ctx, t.view, target, estate.Cards{ID: strconv.Itoa(vmid), Cards: cards, Fresh: fresh})
	if err != nil {
		return guest.Shared{}, err
	}
	out := guest.Shared{Unread: found.Unread, Unseen: found.Unseen}
	for _, g := range found.Up {
		out.With = append(out.With, strings.ToUpper(g.Kind)+" "+g.ID) // its name may be out of the caller's sight
	}
	return out, nil
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
