package pve

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"castellan/internal/catalog"
	"castellan/internal/estate"
	"castellan/internal/gate"
	"castellan/internal/lane"
)

// run makes a step that runs something inside the guest: it relies on the guest being the same one, not locked and running.
func (g *guest) run(ctx context.Context, what string, params map[string]any) (gate.Step, error) {
	s, err := g.step(ctx, catalog.MethodRun, "/"+what, params)
	if err != nil {
		return gate.Step{}, err
	}
	s.Require = append(s.Require, g.inState("running"))
	if g.Kind == estate.VM {
		s.Require = append(s.Require, gate.Condition{Name: g.short() + " is not paused", Read: g.fresh("/status/current", nil), Pointer: "/qmpstatus", Rule: gate.RuleDiffers, Value: text("paused")})
	}
	return s, nil
}

// inside finds a guest in which something can run now.
func (s *site) inside(ctx context.Context, name string) (*guest, error) {
	g, err := s.guest(ctx, name)
	if err != nil {
		return nil, err
	}
	if err := g.notTemplate("used to run anything"); err != nil {
		return nil, err
	}
	if err := g.notLocked(ctx); err != nil {
		return nil, err
	}
	switch {
	case !g.running():
		return nil, gate.Fail(gate.ErrInvalid, "Start it with guest_power first, if it is to run.", "%s is %s: nothing runs in it", g.Title(), cleared(g.Status))
	case g.paused():
		return nil, gate.Fail(gate.ErrInvalid, "Resume it with guest_power first.", "%s is paused: nothing in it would answer", g.Title())
	}
	return g, nil
}

// cleared is a state as it is told, never empty.
func cleared(status string) string {
	if status == "" {
		return "in an unknown state"
	}
	return clip(status, 20)
}

// after puts a snapshot before the steps of a draft, where one is wanted: without it the rest is not done.
func (g *guest) after(ctx context.Context, snapshot bool, draft *gate.Draft) (*gate.Draft, error) {
	if !snapshot {
		return draft, nil
	}
	point, err := planUndoPoint(ctx, g.site.v, undoPointIn{Guest: g.ID, Target: g.site.target()})
	if err != nil {
		return nil, err
	}
	draft.Steps = append(point.Steps, draft.Steps...)
	draft.Note = strings.TrimSpace(strings.TrimSpace(point.Note+" Without the snapshot the rest is not done.") + " " + draft.Note)
	return draft, nil
}

// noWayBack says why what was run is not taken back, and what would have been a way.
func noWayBack(what string, snapshot bool, place string) gate.Undo {
	if snapshot {
		return gate.Undo{None: what + " is not taken back; rollback_snapshot goes back to the snapshot taken first"}
	}
	if place == "" {
		return gate.Undo{None: what + " is not taken back; on a node there is no snapshot to go back to"}
	}
	return gate.Undo{None: what + " is not taken back; with snapshot=true there would be a snapshot to go back to"}
}

// runIn are what commands and scripts have in common.
type runIn struct {
	Input     string            `json:"input,omitempty" jsonschema:"standard input"`
	Env       map[string]string `json:"env,omitempty" jsonschema:"more environment; that of the node is not passed on"`
	Dir       string            `json:"dir,omitempty" jsonschema:"absolute; / if absent"`
	Timeout   int64             `json:"timeout,omitempty" jsonschema:"seconds, 30 if absent, at most 300; then it is killed"`
	MaxOutput int64             `json:"max_output,omitempty" jsonschema:"bytes kept of each output, 40000 if absent, at most 200000"`
}

const (
	mostRunSeconds = 300
	leastOutput    = 1000
	mostOutput     = 200_000
)

// params gives what is set, by the names of the request.
func (in runIn) params() (map[string]any, error) {
	p := map[string]any{}
	switch {
	case in.Timeout < 0 || in.Timeout > mostRunSeconds:
		return nil, gate.Fail(gate.ErrInvalid, "Give 1 to 300; for longer work start a service or timer in the guest and look at it later.", "timeout is %d", in.Timeout)
	case in.MaxOutput != 0 && (in.MaxOutput < leastOutput || in.MaxOutput > mostOutput):
		return nil, gate.Fail(gate.ErrInvalid, "Give 1000 to 200000, or leave it out for 40000.", "max_output is %d", in.MaxOutput)
	case in.Dir != "" && !strings.HasPrefix(in.Dir, "/"):
		return nil, gate.Fail(gate.ErrInvalid, "Give it from the root, as /srv/app.", "dir %q is not absolute", clip(in.Dir, 60))
	}
	if in.Timeout > 0 {
		p["timeout"] = in.Timeout
	}
	if in.MaxOutput > 0 {
		p["max-output"] = in.MaxOutput
	}
	if in.Dir != "" {
		p["dir"] = in.Dir
	}
	if in.Input != "" {
		p["input"] = in.Input
	}
	var env []string
	for _, name := range slices.Sorted(maps.Keys(in.Env)) {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			return nil, gate.Fail(gate.ErrInvalid, "Name it with letters, digits and _.", "env holds the name %q", clip(name, 40))
		}
		env = append(env, name+"="+in.Env[name])
	}
	if len(env) > 0 {
		p["env"] = env
	}
	return p, nil
}

// probeAnswer is what a probe found.
type probeAnswer struct {
	Guest    int64  `json:"vmid,omitempty"`
	Node     string `json:"node"`
	Probe    string `json:"probe"`
	OK       bool   `json:"ok" jsonschema:"it ended by itself with an exit code that is an answer"`
	ExitCode *int   `json:"exit_code,omitempty"`
	Signal   string `json:"signal,omitempty"`
	TimedOut bool   `json:"timed_out,omitempty"`
	Stdout   string `json:"stdout"`
	Stderr   string `json:"stderr,omitempty"`
	Stdout64 string `json:"stdout64,omitempty" jsonschema:"what is no text"`
	Stderr64 string `json:"stderr64,omitempty"`
	Printed  int64  `json:"stdout_bytes,omitempty" jsonschema:"of stdout before its middle was cut out"`
	Way      string `json:"way"`
	User     string `json:"user,omitempty"`
	Note     string `json:"note,omitempty"`
}

func answerOf(res gate.RunResult, guest int64, node, probe string) probeAnswer {
	a := probeAnswer{Guest: guest, Node: node, Probe: probe, OK: res.OK, ExitCode: res.ExitCode, Signal: res.Signal, TimedOut: res.TimedOut, Stdout: res.Stdout, Stderr: res.Stderr,
		Stdout64: res.Stdout64, Stderr64: res.Stderr64, Way: res.Way, User: res.User, Note: res.Note}
	if res.Cut {
		a.Printed = res.StdoutBytes
	}
	return a
}

// probeParams writes a probe as a request has it. What is wrong with it is said here, before anything is asked.
func probeParams(where lane.Where, name string, args map[string]any) (map[string]any, error) {
	p, ok := lane.Find(name)
	if !ok || !p.Runs(where) {
		var names []string
		for _, other := range lane.Probes() {
			if other.Runs(where) {
				names = append(names, other.Name)
			}
		}
		hint := "list_probes tells them all."
		if near := gate.Nearest(name, names); near != "" {
			hint = "Did you mean " + near + "? " + hint
		}
		if ok {
			return nil, gate.Fail(gate.ErrInvalid, hint, "the probe %s is not for a %s", name, placeWords[where])
		}
		return nil, gate.Fail(gate.ErrInvalid, hint, "there is no probe %q", clip(name, 40))
	}
	texts := map[string]string{}
	for k, v := range args {
		switch x := v.(type) {
		case string:
			texts[k] = x
		case bool:
			texts[k] = map[bool]string{true: "yes", false: "no"}[x]
		default:
			texts[k] = fmt.Sprint(x)
		}
	}
	if _, err := p.Command(texts); err != nil {
		return nil, gate.Fail(gate.ErrInvalid, fmt.Sprintf("list_probes with probe=%s tells its arguments.", name), "%v", err)
	}
	out := map[string]any{"probe": name}
	var list []any
	for _, k := range slices.Sorted(maps.Keys(texts)) {
		list = append(list, k+"="+texts[k])
	}
	if len(list) > 0 {
		out["arg"] = list
	}
	return out, nil
}

var placeWords = map[lane.Where]string{lane.Host: "node", lane.CT: "container", lane.VM: "VM"}

// probeGuest looks with a probe inside a guest.
func (s *site) probeGuest(ctx context.Context, name, probe string, args map[string]any) (probeAnswer, error) {
	g, err := s.inv.Guest(ctx, s.v, name)
	if err != nil {
		return probeAnswer{}, err
	}
	if g.NodeOff {
		return probeAnswer{}, gate.Fail(gate.ErrUnavailable, "Wait until the node is back; list_nodes shows it.", "%s is on node %s, which is not online", g.Title(), g.Node)
	}
	if g.Status != "running" {
		return probeAnswer{}, gate.Fail(gate.ErrInvalid, "A probe looks into a guest that runs; guest_status and diagnose_guest tell what is known from outside.", "%s is %s: nothing runs in it", g.Title(), cleared(g.Status))
	}
	params, err := probeParams(laneOf(g.Kind), probe, args)
	if err != nil {
		return probeAnswer{}, err
	}
	params["node"], params["vmid"] = gate.NodeOf(g.ID), g.ID
	res, err := s.v.Run(ctx, s.target(), catalog.MethodRun+" /nodes/{node}/"+g.Path()+"/{vmid}/probe", params)
	if err != nil {
		return probeAnswer{}, err
	}
	return answerOf(res, g.Number, g.Node, probe), nil
}

// probeNode looks with a probe on a node itself.
func (s *site) probeNode(ctx context.Context, node, probe string, args map[string]any) (probeAnswer, error) {
	params, err := probeParams(lane.Host, probe, args)
	if err != nil {
		return probeAnswer{}, err
	}
	params["node"] = node
	res, err := s.v.Run(ctx, s.target(), catalog.MethodRun+" /nodes/{node}/probe", params)
	if err != nil {
		return probeAnswer{}, err
	}
	return answerOf(res, 0, node, probe), nil
}

func laneOf(kind string) lane.Where {
	if kind == estate.CT {
		return lane.CT
	}
	return lane.VM
}
