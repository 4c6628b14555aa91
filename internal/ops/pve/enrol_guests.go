package pve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"castellan/internal/backups"
	"castellan/internal/estate"
	"castellan/internal/gate"
)

type enrolGuestsIn struct {
	Guests    []string `json:"guests,omitempty" jsonschema:"ids or unique names; they are enrolled anew where they are already"`
	Pool      string   `json:"pool,omitempty" jsonschema:"or all of a pool that are not"`
	Tag       string   `json:"tag,omitempty" jsonschema:"or all with a tag that are not"`
	Automatic string   `json:"automatic,omitempty" enum:"keep,off,on" jsonschema:"what becomes of their own automatic updates; keep if absent"`
	From      string   `json:"from,omitempty" jsonschema:"castellan's address as they see it; the one of the route to each if absent"`
	Target    string   `json:"target,omitempty"`
}

// Bounds of one plan: guests in it, asked about and enrolled at the same time.
const (
	mostEnrolled    = 50
	enrolAtOnce     = 4
	enrolAskedTimes = 8
)

func enrolGuests(e *estate.Estate, roll Roll) *gate.Operation {
	return gate.Change(gate.Declaration{
		Name: "enrol_guests", Summary: "Let castellan look after the packages of many guests: one plan, a part for each. Write; undo: unenrol_guest of each", Product: "pve", Effect: gate.EffectChange,
		Kinds: []gate.Kind{gate.KindEnrol}, Undo: "unenrol_guest of each removes every trace",
		Keywords: "enroll register many all guests pool tag channel patch updates automatic onboard fleet", Toolset: "full", Wide: true,
	}, func(ctx context.Context, v gate.View, in enrolGuestsIn) (*gate.Draft, error) {
		return planEnrolGuests(ctx, v, e, in, roll)
	})
}

func planEnrolGuests(ctx context.Context, v gate.View, e *estate.Estate, in enrolGuestsIn, roll Roll) (*gate.Draft, error) {
	s, err := open(ctx, v, in.Target)
	if err != nil {
		return nil, err
	}
	chosen, err := s.wavers(ctx, patchWaveIn{Guests: in.Guests, Pool: in.Pool, Tag: in.Tag})
	if err != nil {
		return nil, err
	}
	known, err := s.enrolled(ctx, roll)
	if err != nil {
		return nil, err
	}
	for _, w := range chosen {
		w.leaveOut(ahead{})
		_, is := known[w.Number]
		named := slices.ContainsFunc(in.Guests, func(name string) bool { return name == w.ID || name == w.Name })
		if w.why == "" && is && !named {
			w.why = "enrolled already"
		}
	}
	if !v.Scoped() { // the parts find the settings of others read; what could not be read they say
		if _, err := e.Sharing(ctx, v, s.target(), estate.Cards{Stopped: true}); err != nil {
			return nil, err
		}
	}
	var group sync.WaitGroup
	slots := make(chan struct{}, enrolAskedTimes)
	for _, w := range chosen {
		if w.why != "" {
			continue
		}
		group.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			w.enrolPlan(ctx, v, s.target(), in)
		})
	}
	group.Wait()
	draft := &gate.Draft{Target: s.target(), Parallel: enrolAtOnce}
	for _, w := range chosen {
		if w.why == "" && len(draft.Children) >= mostEnrolled {
			w.why = fmt.Sprintf("one plan takes %d guests: call again afterwards", mostEnrolled)
		}
		if w.why != "" {
			draft.Skip = append(draft.Skip, w.Title()+": "+w.why)
			continue
		}
		child := w.draft
		child.Target, child.Batch = orText(child.Target, s.target()), 1
		for _, text := range child.Skip {
			draft.Skip = append(draft.Skip, w.Title()+": "+text)
		}
		child.Skip = nil
		draft.Children = append(draft.Children, child)
	}
	if len(draft.Children) == 0 {
		draft.Parallel = 0
		if left := slices.DeleteFunc(slices.Clone(chosen), func(w *waver) bool { return w.why == "enrolled already" }); len(left) > 0 {
			hint := "Mend what is named, or name other guests."
			for _, w := range chosen {
				if w.hint != "" {
					hint = w.hint
					break
				}
			}
			return nil, gate.Fail(gate.ErrInvalid, hint, "no guest can be enrolled now: %s", clip(strings.Join(draft.Skip, "; "), 800))
		}
		draft.Note = fmt.Sprintf("Of %s all are enrolled. One that is named is enrolled anew.", counted(len(chosen), "guest"))
		return draft, nil
	}
	draft.Phrase = counted(len(draft.Children), "guest")
	draft.Note = fmt.Sprintf("%s, at most %d at the same time, each with a key of its own; one that fails ends none of the others. Their own automatic updates: %s. A guest whose key was tried is kept; what was begun and does not work is taken away again. wave_result with this plan has a row for each.", counted(len(draft.Children), "guest"), enrolAtOnce, orText(in.Automatic, "keep"))
	return draft, nil
}

// enrolled are the guests of this site that are, by number.
func (s *site) enrolled(ctx context.Context, roll Roll) (map[int64]Enrolled, error) {
	out := map[int64]Enrolled{}
	if roll == nil {
		return out, nil
	}
	site, err := roll.Site(ctx, s.target())
	if err != nil {
		return nil, err
	}
	all, err := roll.Enrolled(ctx)
	if err != nil {
		return nil, err
	}
	for _, e := range all {
		if e.Site == site && e.Bad == "" {
			out[e.VMID] = e
		}
	}
	return out, nil
}

// enrolPlan has the part of one guest planned, or says why it has none.
func (w *waver) enrolPlan(ctx context.Context, v gate.View, target string, in enrolGuestsIn) {
	if ctx.Err() != nil {
		w.why = "it was not looked at in time: call again for it"
		return
	}
	args := map[string]any{"guest": w.ID, "target": target}
	for name, value := range map[string]string{"automatic": in.Automatic, "from": in.From} {
		if value != "" {
			args[name] = value
		}
	}
	text, err := json.Marshal(args)
	if err == nil {
		w.draft, err = v.Plan(ctx, "enrol_guest", text)
	}
	var e *gate.Error
	switch {
	case errors.As(err, &e):
		w.why, w.hint = clip(strings.TrimPrefix(e.Message, w.Title()+" "), 300), e.Hint
	case err != nil:
		w.why = clip(err.Error(), 300)
	}
}

// mayEnrol refuses where castellan's token surely lacks what the way into the guest takes, before a person is asked. What cannot
// be read about it is left to the server.
func (g *guest) mayEnrol(ctx context.Context, in enrolGuestIn) error {
	type need struct {
		path string
		any  []string
	}
	var needs []need
	if in.Way == "" && g.Kind == estate.VM { // version 8 has one privilege for all of the agent
		needs = append(needs, need{"/vms/" + g.ID, []string{"VM.GuestAgent.Unrestricted", "VM.Monitor"}})
	}
	if in.Pool != "" && in.Pool != g.Pool {
		needs = append(needs, need{"/pool/" + in.Pool, []string{"Pool.Allocate"}})
	}
	if len(in.Tags) > 0 {
		needs = append(needs, need{"/vms/" + g.ID, []string{"VM.Config.Options"}})
	}
	var lacks []backups.Grant
	for _, n := range needs {
		var held map[string]map[string]estate.Int
		if _, err := g.site.read(ctx, &held, "GET /access/permissions", map[string]string{"path": n.path}); err != nil {
			continue
		}
		here, told := held[n.path]
		if told && !slices.ContainsFunc(n.any, func(p string) bool { _, has := here[p]; return has }) {
			lacks = append(lacks, backups.Grant{Path: n.path, Privilege: n.any[0]})
		}
	}
	if len(lacks) == 0 {
		return nil
	}
	give := &granting{ctx: ctx, v: g.site.v, t: g.site.inv.Target}
	missing, command, limited := give.of(lacks)
	hint := "A person grants it: castellan capability on enrol, then castellan mint --target " + g.site.target() + "."
	if !g.site.v.Scoped() && limited {
		hint += " " + give.limit() + "."
	} else if !g.site.v.Scoped() && command != "" {
		hint += " Or on a node: " + clip(command, 400)
	}
	return gate.Fail(gate.ErrDenied, hint, "%s cannot be enrolled: castellan's token lacks %s", g.Title(), missing)
}
