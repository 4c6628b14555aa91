package pve

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"castellan/internal/catalog"
	"castellan/internal/gate"
)

type withDeadManIn struct {
	Operation string         `json:"operation" jsonschema:"what changes firewall or network"`
	Params    map[string]any `json:"params,omitempty" jsonschema:"its arguments"`
	Seconds   int64          `json:"seconds,omitempty" jsonschema:"until the node puts things back, 180 if absent, 60 to 3600"`
	Node      string         `json:"node,omitempty" jsonschema:"whose bridge keeps the firewall of the cluster; the first one online if absent"`
}

func withDeadMan() *gate.Operation {
	return gate.Change(gate.Declaration{
		Name: "with_dead_man", Summary: "Change firewall or network; the node puts it back by itself unless castellan still gets in afterwards", Product: "pve", Effect: gate.EffectDestroy,
		Undo: "as of the operation; without the confirmation the node puts the files back", Keywords: "dead man switch safety lock out revert rollback confirm timer firewall network interfaces apply", Toolset: "full",
	}, planWithDeadMan)
}

// Limits of a dead man's switch, in seconds.
const (
	leastGuard = 60 // two rounds of the firewall, the look afterwards, and the confirmation
	mostGuard  = 3600
	usualGuard = 180
)

func planWithDeadMan(ctx context.Context, v gate.View, in withDeadManIn) (*gate.Draft, error) {
	if in.Seconds == 0 {
		in.Seconds = usualGuard
	}
	if in.Seconds < leastGuard || in.Seconds > mostGuard {
		return nil, gate.Fail(gate.ErrInvalid, fmt.Sprintf("Give %d to %d, or leave it out for %d.", leastGuard, mostGuard, usualGuard), "seconds is %d", in.Seconds)
	}
	if in.Operation == "with_dead_man" {
		return nil, gate.Fail(gate.ErrInvalid, "Name the operation that changes firewall or network.", "a switch within a switch is none")
	}
	args := json.RawMessage("{}")
	if in.Params != nil {
		var err error
		if args, err = json.Marshal(in.Params); err != nil {
			return nil, gate.Fail(gate.ErrInvalid, "Correct params.", "params: %v", err)
		}
	}
	child, err := v.Plan(ctx, in.Operation, args)
	if err != nil {
		return nil, err
	}
	change := &gate.Draft{}
	if err := inOne(change, child, ""); err != nil {
		return nil, err
	}
	if len(change.Steps) == 0 {
		return nothing(strings.TrimSpace(in.Operation + ": nothing to do, so no switch is armed. " + child.Note)), nil
	}
	target := change.Steps[0].Target
	if slices.ContainsFunc(change.Steps, func(s gate.Step) bool { return s.Target != target }) {
		return nil, gate.Fail(gate.ErrInvalid, "Make a plan for each target.", "%s changes more than one target", in.Operation)
	}
	s, err := open(ctx, v, target)
	if err != nil {
		return nil, err
	}
	guards, err := s.guards(change.Steps, in)
	if err != nil {
		return nil, err
	}
	return s.guarded(change, child, guards, in)
}

// inOne puts all steps of a draft and of its parts into one order, so that whichever fails ends what comes after it.
func inOne(out, d *gate.Draft, target string) error {
	if d.Target != "" {
		target = d.Target
	}
	offset := len(out.Steps)
	for _, s := range d.Steps {
		if s.Target == "" {
			s.Target = target
		}
		if s.API == nil {
			return gate.Fail(gate.ErrInternal, "", "a step is no request")
		}
		out.Steps = append(out.Steps, behind(s, offset))
	}
	out.Diff, out.Skip = append(out.Diff, d.Diff...), append(out.Skip, d.Skip...)
	for _, c := range d.Children {
		if err := inOne(out, c, target); err != nil {
			return err
		}
	}
	return nil
}

// behind is a step whose references to earlier ones of its draft are moved by so many.
func behind(s gate.Step, by int) gate.Step {
	for _, n := range []*int{&s.When.StepFailed, &s.When.CheckFailed} {
		if *n > 0 {
			*n += by
		}
	}
	r := gate.Request{Product: s.API.Product, Operation: s.API.Operation}
	for _, p := range s.API.Params {
		p.Values = slices.Clone(p.Values)
		for i, value := range p.Values {
			if value.Ref != nil && value.Ref.Step > 0 {
				ref := *value.Ref
				ref.Step += by
				p.Values[i].Ref = &ref
			}
		}
		r.Params = append(r.Params, p)
	}
	s.API = &r
	return s
}

// guard is one switch: what it keeps, and where.
type guard struct{ node, what, guest string } // guest: whose firewall alone is kept

// joined adds a switch. A node has one for its firewall: where it is to keep that of more than one guest, it keeps all.
func joined(all []guard, g guard) []guard {
	for i, other := range all {
		if other.node == g.node && other.what == g.what {
			if other.guest != g.guest {
				all[i].guest = ""
			}
			return all
		}
	}
	return append(all, g)
}

// guards says which switches the steps need. A step that none would take back is refused.
func (s *site) guards(steps []gate.Step, in withDeadManIn) ([]guard, error) {
	var out []guard
	add := func(g guard) { out = joined(out, g) }
	inForce := false
	for i, step := range steps {
		method, path, _ := strings.Cut(step.API.Operation, " ")
		node := step.API.Text("node")
		switch {
		case method == "GET":
		case strings.HasPrefix(path, "/cluster/firewall/"):
			inForce = true
			if in.Node == "" && len(s.inv.Online()) > 0 {
				in.Node = s.inv.Online()[0]
			}
			name, err := s.pickNode(in.Node)
			if err != nil {
				return nil, err
			}
			add(guard{name, "firewall", ""})
		case strings.HasPrefix(path, "/nodes/{node}/firewall/"):
			inForce = true
			add(guard{node, "firewall", ""})
		case strings.HasPrefix(path, "/nodes/{node}/qemu/{vmid}/firewall/"), strings.HasPrefix(path, "/nodes/{node}/lxc/{vmid}/firewall/"):
			inForce = true
			add(guard{node, "firewall", step.API.Text("vmid")})
		case path == "/nodes/{node}/network", path == "/nodes/{node}/network/{iface}":
			inForce = inForce || method == "PUT" && path == "/nodes/{node}/network"
			add(guard{node, "network", ""})
		default:
			return nil, gate.Fail(gate.ErrInvalid, "Call it by itself, or give only the part that changes the firewall or a node's network.",
				"step %d (%s) changes neither the firewall of cluster, nodes and guests nor the interfaces of a node: a dead man's switch would not take it back", i+1, step.API.Operation)
		}
	}
	if !inForce {
		return nil, gate.Fail(gate.ErrInvalid, "Stage it without a switch, then guard what brings it into force: with_dead_man with operation apply_network.", "%s only stages changes, which come into force with apply_network", in.Operation)
	}
	for _, g := range out {
		if _, err := s.pickNode(g.node); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// guarded is the whole: arm, change, look by new connections, confirm.
func (s *site) guarded(change, child *gate.Draft, guards []guard, in withDeadManIn) (*gate.Draft, error) {
	out := &gate.Draft{Target: s.target(), Phrase: child.Phrase, Diff: change.Diff, Skip: change.Skip}
	word := func(g guard, action string) (gate.Step, error) {
		params := map[string]any{"node": g.node, "action": action, "what": g.what}
		if action == "arm" {
			params["seconds"] = in.Seconds
			if g.guest != "" {
				params["guest"] = g.guest
			}
		}
		r, err := gate.NewRequest("pve", catalog.MethodRun+" /nodes/{node}/dead-man", params)
		return gate.Step{Target: s.target(), API: &r, Require: []gate.Condition{online(g.node)}}, err
	}
	for _, g := range guards {
		step, err := word(g, "arm")
		if err != nil {
			return nil, err
		}
		step.Undo = gate.Undo{How: "nothing changes by it; it ends by itself"}
		out.Steps = append(out.Steps, step)
	}
	for _, step := range change.Steps {
		out.Steps = append(out.Steps, behind(step, len(guards)))
	}
	// The look is a read that is sent, waited on until the settings are surely in force, and made anew by a new connection.
	look, err := gate.NewRequest("pve", "GET /version", nil)
	if err != nil {
		return nil, err
	}
	check := gate.Step{Target: s.target(), API: &look, Wait: gate.Wait{Kind: gate.WaitSoak}, Verify: []gate.Condition{answers()}, Undo: gate.Undo{How: "it only looks"},
		Note: "then it is waited until the change is surely in force, and looked again by a connection of its own"}
	var nodes []string
	for _, g := range guards {
		if slices.Contains(nodes, g.node) {
			continue
		}
		nodes = append(nodes, g.node)
		check.Verify = append(check.Verify, gate.Condition{Name: "node " + g.node + " answers", Read: gate.Read{Operation: "GET /nodes/{node}/status", Params: map[string]string{"node": g.node}}, Pointer: "/uptime", Rule: gate.RulePresent})
	}
	out.Steps = append(out.Steps, check)
	for _, g := range guards {
		step, err := word(g, "confirm")
		if err != nil {
			return nil, err
		}
		step.Undo = gate.Undo{How: "nothing changes by it"}
		step.Note = "it is sent over a connection of its own: that one can be made is part of what is confirmed"
		out.Steps = append(out.Steps, step)
	}
	var what []string
	for _, g := range guards {
		if g.guest != "" {
			what = append(what, fmt.Sprintf("node %s puts back the firewall of guest %s", g.node, g.guest))
			continue
		}
		what = append(what, fmt.Sprintf("node %s puts back its %s files", g.node, g.what))
	}
	out.Note = strings.TrimSpace(fmt.Sprintf("%d seconds after it is armed, %s, whatever has changed in them since and by whom, unless this plan has confirmed by then. "+
		"It confirms only if new connections get in once the change is surely in force; a step that fails, and a castellan that is stopped or cut off, confirm nothing. ", in.Seconds, strings.Join(what, " and ")) + child.Note)
	return out, nil
}
