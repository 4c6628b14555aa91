package pve

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"castellan/internal/gate"
	"castellan/internal/patch"
)

type upgradeNodesIn struct {
	Nodes  []string `json:"nodes,omitempty" jsonschema:"in the order in which they are done; all of the cluster by name if absent"`
	Guests string   `json:"guests,omitempty" enum:"return,stay" jsonschema:"running guests: are moved away and come back before the next node (the default), or stay where they are"`
	Reboot bool     `json:"reboot,omitempty" jsonschema:"reboot each node after its upgrade"`
	Stop   []string `json:"stop,omitempty" jsonschema:"ids of guests that may stop with the reboot of their node"`
	Target string   `json:"target,omitempty"`
}

func upgradeNodes() *gate.Operation {
	return gate.Change(gate.Declaration{
		Name: "upgrade_nodes", Summary: "Rolling upgrade of a cluster's nodes, one after the other; guests move away and come back. Write; no undo", Product: "pve", Effect: gate.EffectChange,
		Kinds: []gate.Kind{gate.KindHostUpgrade, gate.KindUpdates, gate.KindMigrate, gate.KindPower, gate.KindGuard}, Undo: "none: a node has no snapshot; packages can be installed in older versions by hand",
		Keywords: "hosts hypervisors all nodes cluster rolling apt dist-upgrade full-upgrade patch updates security kernel reboot maintenance evacuate one by one", Toolset: "full",
	}, planUpgradeNodes)
}

// Bounds of one plan: nodes in it, and asked at the same time.
const (
	mostNodes    = 16
	nodesAtATime = 4
)

// nodePart is one node of a rolling upgrade.
type nodePart struct {
	name  string
	stop  []string
	draft *gate.Draft
	todo  []string // its packages, each as the request has it
	err   error
}

func planUpgradeNodes(ctx context.Context, v gate.View, in upgradeNodesIn) (*gate.Draft, error) {
	s, err := open(ctx, v, in.Target)
	if err != nil {
		return nil, err
	}
	parts, err := s.nodeParts(in)
	if err != nil {
		return nil, err
	}
	var group sync.WaitGroup
	slots := make(chan struct{}, nodesAtATime)
	for _, p := range parts {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			p.plan(ctx, v, s.target(), in)
		})
	}
	group.Wait()
	draft := &gate.Draft{Target: s.target()}
	var against []string
	var done []*nodePart
	hint := ""
	for _, p := range parts {
		switch {
		case p.err != nil:
			var e *gate.Error
			if errors.As(p.err, &e) {
				hint = cmp.Or(hint, e.Hint)
			}
			against = append(against, fmt.Sprintf("%s: %s", p.name, clip(p.err.Error(), 1200)))
		case len(p.draft.Steps) == 0:
			draft.Skip = append(draft.Skip, "node "+p.name+": nothing to upgrade")
		default:
			done = append(done, p)
		}
	}
	if skew := skewed(done); len(against) == 0 && skew != "" {
		return nil, gate.Fail(gate.ErrUnavailable, "Bring the nodes' package sources in line (check_node_updates shows each), then call again.", "no node is upgraded; nothing was changed: the nodes would end with different versions: %s", skew)
	}
	if len(against) > 0 {
		return nil, gate.Fail(gate.ErrUnavailable, clip(strings.TrimSpace("Put these right, or leave the node out with nodes, then call again. "+hint), 600), "no node is upgraded; nothing was changed. %s", clip(strings.Join(against, " | "), 3500))
	}
	if len(done) == 0 {
		draft.Note = "No node has anything to upgrade."
		return draft, nil
	}
	draft.Parallel, draft.StopAfter = 1, 1
	for i, p := range done {
		for _, text := range p.draft.Skip {
			draft.Skip = append(draft.Skip, "node "+p.name+": "+text)
		}
		if p.draft.Note != "" { // a part's note is shown nowhere: what it leaves at a failure, and that it needs a reboot, stands here
			draft.Diff = append(draft.Diff, gate.Difference{Object: "node " + p.name, Key: "course", Note: p.draft.Note})
		}
		for _, d := range p.draft.Diff {
			if strings.HasPrefix(d.Object, "guest/") {
				draft.Diff = append(draft.Diff, d)
			}
		}
		p.draft.Target, p.draft.Batch, p.draft.Diff, p.draft.Skip = cmp.Or(p.draft.Target, s.target()), i+1, nil, nil
		draft.Children = append(draft.Children, p.draft)
	}
	draft.Skip = someOf(draft.Skip, 60)
	draft.Diff = append(draft.Diff, nodeDifferences(done)...)
	draft.Phrase = fmt.Sprintf("%d nodes", len(done))
	draft.Note = rollingNote(in, done)
	return draft, nil
}

// nodeParts are the nodes that are meant, in order, each with those of its guests that may stop.
func (s *site) nodeParts(in upgradeNodesIn) (out []*nodePart, err error) {
	if len(in.Stop) > 0 && !in.Reboot {
		return nil, gate.Fail(gate.ErrInvalid, "Leave stop out, or add reboot=true.", "no guest stops without a reboot")
	}
	names := in.Nodes
	if len(names) == 0 {
		for _, n := range s.inv.Nodes {
			names = append(names, n.Name)
		}
	}
	if len(names) > mostNodes {
		return nil, gate.Fail(gate.ErrInvalid, fmt.Sprintf("Give nodes: up to %d; the others are another plan afterwards.", mostNodes), "one plan takes %d nodes, and %d are meant", mostNodes, len(names))
	}
	at := map[string]*nodePart{}
	for _, name := range names {
		if name, err = s.pickNode(name); err != nil {
			return nil, err
		}
		if at[name] != nil {
			return nil, gate.Fail(gate.ErrInvalid, "Name each node once.", "node %s is named twice", name)
		}
		at[name] = &nodePart{name: name}
		out = append(out, at[name])
	}
	for _, id := range in.Stop {
		g, ok := s.inv.ByID(id)
		if !ok || at[g.Node] == nil {
			return nil, gate.Fail(gate.ErrInvalid, "Give ids of guests that run on the nodes that are upgraded.", "guest %s of stop is on none of them", clip(id, 20))
		}
		at[g.Node].stop = append(at[g.Node].stop, id)
	}
	return out, nil
}

// plan has the part of one node planned.
func (p *nodePart) plan(ctx context.Context, v gate.View, target string, in upgradeNodesIn) {
	args := map[string]any{"node": p.name, "guests": orText(in.Guests, "return"), "target": target}
	if in.Reboot {
		args["reboot"] = true
	}
	if len(p.stop) > 0 {
		args["stop"] = p.stop
	}
	text, err := json.Marshal(args)
	if err == nil {
		p.draft, err = v.Plan(ctx, "upgrade_node", text)
	}
	if p.err = err; err != nil {
		return
	}
	for _, s := range p.draft.Steps {
		if s.API != nil && s.API.IsRun() && strings.HasSuffix(s.API.Operation, "/upgrade") {
			for _, value := range s.API.Get("package") {
				p.todo = append(p.todo, value.Text)
			}
		}
	}
}

// skewed tells which packages of Proxmox would end in different versions; empty where none would.
func skewed(parts []*nodePart) string {
	versions := map[string]map[string][]string{} // package → version → nodes
	var names []string
	for _, p := range parts {
		todo, err := patch.ParseTransaction(p.todo)
		if err != nil {
			return fmt.Sprintf("what node %s would install cannot be read: %v", p.name, err)
		}
		for _, c := range todo {
			if c.Action == patch.Remove || !strings.HasPrefix(c.Archive, "Proxmox") && !strings.HasPrefix(c.Archive, "Ceph") {
				continue
			}
			if versions[c.Name] == nil {
				versions[c.Name] = map[string][]string{}
				names = append(names, c.Name)
			}
			versions[c.Name][c.New] = append(versions[c.Name][c.New], p.name)
		}
	}
	var out []string
	for _, name := range names {
		if len(versions[name]) < 2 {
			continue
		}
		var each []string
		for version, nodes := range versions[name] {
			each = append(each, fmt.Sprintf("%s on %s", version, strings.Join(nodes, ", ")))
		}
		slices.Sort(each)
		out = append(out, name+" ("+strings.Join(each, "; ")+")")
	}
	return strings.Join(someOf(out, 8), ", ")
}

// nodeDifferences tell each package once for all nodes with the same transaction.
func nodeDifferences(parts []*nodePart) (out []gate.Difference) {
	groups := map[string][]string{}
	for _, p := range parts {
		key := strings.Join(p.todo, "\n")
		groups[key] = append(groups[key], p.name)
	}
	for _, p := range parts {
		key := strings.Join(p.todo, "\n")
		nodes := groups[key]
		if len(nodes) == 0 {
			continue
		}
		delete(groups, key)
		who := "node " + nodes[0]
		if len(nodes) > 1 {
			who = "nodes " + strings.Join(nodes, ", ")
		}
		for i, text := range p.todo {
			if len(out) >= mostShownInAll {
				return append(out, gate.Difference{Object: who, Key: fmt.Sprintf("%d more packages", len(p.todo)-i), Note: "the steps name them"})
			}
			out = append(out, packageLine(who, text))
		}
	}
	return out
}

// rollingNote tells the approver the whole course.
func rollingNote(in upgradeNodesIn, parts []*nodePart) string {
	var names []string
	same := map[string]bool{}
	for _, p := range parts {
		names = append(names, p.name)
		same[strings.Join(p.todo, "\n")] = true
	}
	note := fmt.Sprintf("One node after the other: %s. %s. ", strings.Join(names, ", "), plural(len(same), "transaction for all of them", "different transactions"))
	if in.Guests != "stay" {
		note += "Guests that are moved away come back before the next node is begun, and a running container stops and starts each time. "
	}
	if in.Reboot {
		note += "Each node is rebooted after its upgrade. "
	}
	note += "Before each node the others must be online and in service, the cluster must have its majority, and Ceph must be as it is now. At the first failure nothing else begins: that node may then be in maintenance, with noout set and its guests elsewhere, which the plan says of each node. "
	note += "A node on which something else would be installed by then than is listed here is not upgraded. "
	return strings.TrimSpace(note)
}
