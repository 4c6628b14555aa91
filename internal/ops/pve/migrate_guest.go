package pve

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

type migrateGuestIn struct {
	Guest   string `json:"guest" jsonschema:"id or unique name"`
	Node    string `json:"node"`
	Storage string `json:"storage,omitempty" jsonschema:"for local disks"`
	Target  string `json:"target,omitempty"`
}

func migrateGuest() *gate.Operation {
	return gate.Change(gate.Declaration{
		Name: "migrate_guest", Summary: "Move a guest to another node. Write; running VMs move live, CTs restart; undo: move back", Product: "pve", Effect: gate.EffectChange,
		Kinds: []gate.Kind{gate.KindMigrate}, Undo: "migrate it back", Keywords: "live migration relocate evacuate other host online",
		Toolset: "full", Bounded: true, Guest: "guest",
	}, planMigrate)
}

func planMigrate(ctx context.Context, v gate.View, in migrateGuestIn) (*gate.Draft, error) {
	s, err := open(ctx, v, in.Target)
	if err != nil {
		return nil, err
	}
	g, err := s.guest(ctx, in.Guest)
	if err != nil {
		return nil, err
	}
	to, err := s.inv.Node(in.Node)
	if err != nil {
		return nil, err
	}
	if to.Name == g.Node {
		return nothing(g.Title() + " is on " + to.Name + " already."), nil
	}
	if to.Status != "online" {
		return nil, gate.Fail(gate.ErrUnavailable, "Choose a node that is online: "+strings.Join(s.inv.Online(), ", "), "node %s is %s", to.Name, to.Status)
	}
	if err := g.notLocked(ctx); err != nil {
		return nil, err
	}
	params := map[string]any{"target": to.Name}
	note := g.nameNote(in.Guest) + g.haNote()
	if g.Kind == estate.VM {
		more, err := g.vmMove(ctx, to.Name, params)
		if err != nil {
			return nil, err
		}
		note += more
		if in.Storage != "" {
			params["targetstorage"], params["with-local-disks"] = in.Storage, true
		}
	} else {
		for k, val := range g.config {
			if p := properties(k, val); strings.HasPrefix(base(k), "mp") && strings.HasPrefix(p["volume"], "/") && p["shared"] != "1" {
				return nil, gate.Fail(gate.ErrInvalid, "Move it by backup and restore, or mark the mount as shared if every node has it.",
					"%s has the bind mount %s of %s, which no other node has", g.Title(), k, clip(p["volume"], 80))
			}
		}
		if g.running() {
			params["restart"] = true
			note += "A running container is not moved live: it is shut down, moved, and started again. "
		}
		if in.Storage != "" {
			params["target-storage"] = in.Storage
		}
	}
	step, err := g.step(ctx, "POST", "/migrate", params)
	if err != nil {
		return nil, err
	}
	step.Wait = gate.Wait{Kind: gate.WaitTask, Limit: 12 * time.Hour}
	if g.managed {
		step.Wait = gate.Wait{Kind: gate.WaitVerify, Limit: time.Hour}
	}
	where := gate.Condition{Name: g.short() + " is on node " + to.Name, Read: gate.Read{Operation: "GET /cluster/resources", Params: map[string]string{"type": "vm"}},
		Where: map[string]string{"vmid": g.ID}, Pointer: "/node", Rule: gate.RuleEquals, Value: text(to.Name)}
	elsewhere := where
	elsewhere.Name, elsewhere.Rule = g.short()+" is not on node "+to.Name+" yet", gate.RuleDiffers
	step.Require = append(step.Require, g.inState(g.Status), elsewhere)
	step.Verify = []gate.Condition{where}
	step.Undo.How = "move it back to " + g.Node
	back := map[string]any{"target": g.Node}
	for _, k := range []string{"online", "restart", "with-local-disks"} {
		if val, ok := params[k]; ok {
			back[k] = val
		}
	}
	if step.Undo.Call, err = g.request("POST", "/migrate", back); err != nil {
		return nil, err
	}
	return &gate.Draft{Target: s.target(), Steps: []gate.Step{step}, Note: strings.TrimSpace(note), Phrase: g.ID}, nil
}

// vmMove looks at what ties a VM to its node and adds the flags that moving it takes.
func (g *guest) vmMove(ctx context.Context, to string, params map[string]any) (note string, err error) {
	if g.running() {
		params["online"] = true
	}
	var pre struct {
		Disks     []json.RawMessage          `json:"local_disks"`
		Resources []json.RawMessage          `json:"local_resources"`
		Allowed   []string                   `json:"allowed_nodes"`
		Not       map[string]json.RawMessage `json:"not_allowed_nodes"`
	}
	if _, err := g.site.read(ctx, &pre, g.at("GET", "/migrate"), g.params(map[string]string{"target": to})); err != nil {
		return "What ties it to its node could not be read; the server checks that itself. ", nil
	}
	if len(pre.Resources) > 0 {
		return "", gate.Fail(gate.ErrInvalid, "Take the local devices away first, or stop it and move it then.", "%s uses devices of node %s: %s", g.Title(), g.Node, clip(string(join(pre.Resources)), 200))
	}
	if why, no := pre.Not[to]; no && len(pre.Allowed) > 0 && !slices.Contains(pre.Allowed, to) {
		return "", gate.Fail(gate.ErrInvalid, "Choose one of: "+strings.Join(pre.Allowed, ", "), "%s cannot go to node %s: %s", g.Title(), to, clip(string(why), 200))
	}
	if len(pre.Disks) > 0 {
		params["with-local-disks"] = true
		return fmt.Sprintf("%s on local storage is copied along, which takes time. ", plural(len(pre.Disks), "disk", "disks")), nil
	}
	return "", nil
}

func join(parts []json.RawMessage) []byte {
	var out []byte
	for i, p := range parts {
		if i > 0 {
			out = append(out, ", "...)
		}
		out = append(out, p...)
	}
	return out
}
