package pve

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

// evacuation is where the running guests of a node go, and which cannot.
type evacuation struct {
	steps []gate.Step
	back  []gate.Step // each guest that is moved, back again
	moved []string    // "VM 101 → pve2", for the reader
	ids   []string
	byHA  []estate.Guest // HA moves them in maintenance
	stuck map[string]string
	notes []string
}

// room is what a node can still take.
type room struct {
	name   string
	free   int64 // bytes of memory
	model  string
	stores map[string]bool
}

// evacuate plans the moves of a node's running guests to the others.
func (h *hostLook) evacuate(ctx context.Context) evacuation {
	e := evacuation{stuck: map[string]string{}}
	rooms := h.rooms(ctx)
	model := h.model(ctx, h.node)
	var here []estate.Guest
	for _, g := range h.inv.Guests {
		if g.Node == h.node && !g.Template && g.Status != "stopped" {
			here = append(here, g)
		}
	}
	slices.SortFunc(here, func(a, b estate.Guest) int { return int(min(max(b.MaxMem-a.MaxMem, -1), 1)) }) // the largest first
	for _, g := range here {
		if g.HA != "" && g.HA != "ignored" && h.ha[h.node] != "" {
			e.byHA = append(e.byHA, g)
			e.byManager(ctx, h, g, rooms)
			continue
		}
		e.move(ctx, h, g, rooms, model)
	}
	return e
}

// byManager says of a guest that HA moves whether there is a node to which it can: HA itself tries until somebody ends it.
func (e *evacuation) byManager(ctx context.Context, h *hostLook, g estate.Guest, rooms []*room) {
	full, err := h.guest(ctx, g.ID)
	if err != nil {
		e.stuck[g.ID] = g.Title() + ": " + clip(err.Error(), 200)
		return
	}
	var why []string
	r := fitting(rooms, g.MaxMem, func(r *room) bool {
		if lacks := r.lacks(full); lacks != "" {
			why = append(why, lacks)
			return false
		}
		if _, err := planMigrate(ctx, h.v, migrateGuestIn{Guest: g.ID, Node: r.name, Target: h.target()}); err != nil {
			why = append(why, r.name+": "+clip(err.Error(), 200))
			return false
		}
		return true
	})
	if r == nil {
		if len(why) == 0 {
			why = append(why, "no other node has the memory for it that HA would need")
		}
		slices.Sort(why)
		e.stuck[g.ID] = g.Title() + ": HA could not move it: " + clip(strings.Join(slices.Compact(why), "; "), 400)
		return
	}
	r.free -= g.MaxMem
	if h.copied(full) {
		h.note("%s is moved by HA, and has disks on storage of node %s: that works where they are replicated, else the node may stay in maintenance", g.Title(), h.node)
	}
}

// lacks names a storage of the guest's disks that the node does not have; empty where it has all.
func (r *room) lacks(g *guest) string {
	for _, volume := range g.disks() {
		if storage, _, _ := strings.Cut(volume, ":"); !r.stores[storage] {
			return r.name + " has no storage " + storage
		}
	}
	return ""
}

// move plans one guest's move to where it fits best.
func (e *evacuation) move(ctx context.Context, h *hostLook, g estate.Guest, rooms []*room, model string) {
	full, err := h.guest(ctx, g.ID)
	if err != nil {
		e.stuck[g.ID] = g.Title() + ": " + clip(err.Error(), 200)
		return
	}
	var why []string
	fits := func(r *room) bool {
		if lacks := r.lacks(full); lacks != "" {
			why = append(why, lacks)
			return false
		}
		if cpu, _ := gate.PropertyValue(full.config["cpu"], "-"); g.Kind == estate.VM && full.running() && (cpu == "host" || cpu == "max" || strings.Contains(full.config["cpu"], "cputype=host")) && (model == "" || r.model != model) {
			why = append(why, fmt.Sprintf("its processor type is host, and %s has another processor (%s)", r.name, orDash(r.model)))
			return false
		}
		return true
	}
	tried := map[string]bool{}
	for {
		r := fitting(rooms, g.MaxMem, func(r *room) bool { return !tried[r.name] && fits(r) })
		if r == nil {
			break
		}
		tried[r.name] = true
		draft, err := planMigrate(ctx, h.v, migrateGuestIn{Guest: g.ID, Node: r.name, Target: h.target()})
		if err != nil {
			why = append(why, r.name+": "+clip(err.Error(), 200))
			continue
		}
		if h.comeBack && (h.copied(full) || draft.Steps[0].API.Text("with-local-disks") != "") {
			why = append(why, "its local disks would be copied away and back, so that it comes back is not promised")
			continue
		}
		r.free -= g.MaxMem
		e.steps = append(e.steps, draft.Steps...)
		e.back = append(e.back, h.returning(full, draft.Steps[0]))
		e.ids = append(e.ids, g.ID)
		text := full.short() + " to " + r.name
		if g.Kind == estate.CT && full.running() {
			text += " (it stops and starts)"
		}
		if strings.Contains(draft.Note, "local storage") {
			text += " (its local disks are copied)"
		}
		e.moved = append(e.moved, text)
		return
	}
	if len(why) == 0 {
		why = append(why, fmt.Sprintf("no other node has %d MiB of memory free", g.MaxMem>>20))
	}
	slices.Sort(why)
	e.stuck[g.ID] = g.Title() + ": " + clip(strings.Join(slices.Compact(why), "; "), 400)
}

// copied says whether a guest has disks on storages that are the node's own, or of which that is not known.
func (h *hostLook) copied(g *guest) bool {
	return slices.ContainsFunc(g.disks(), func(volume string) bool {
		name, _, _ := strings.Cut(volume, ":")
		return !slices.ContainsFunc(h.inv.Storages, func(s estate.Storage) bool { return s.Name == name && s.Node == h.node && s.Shared })
	})
}

// returning is the move of a guest back to its node, made of the one away from it.
func (h *hostLook) returning(g *guest, away gate.Step) gate.Step {
	there := gate.Condition{Name: g.short() + " is on node " + h.node, Read: away.Verify[0].Read, Where: away.Verify[0].Where, Pointer: away.Verify[0].Pointer, Rule: gate.RuleEquals, Value: text(h.node)}
	elsewhere := there
	elsewhere.Name, elsewhere.Rule = g.short()+" is not on node "+h.node+" yet", gate.RuleDiffers
	call := *away.Undo.Call // it starts from where the guest is by then, which was planned just now
	call.Params = slices.Clone(call.Params)
	for i, p := range call.Params {
		if len(p.Values) == 1 && p.Values[0].Ref != nil && p.Name == "node" {
			ref := *p.Values[0].Ref
			ref.Plan = away.API.Text("target")
			call.Params[i].Values = []gate.Value{{Ref: &ref}}
		}
	}
	back := gate.Step{API: &call, Wait: away.Wait, Verify: []gate.Condition{there}, Undo: gate.Undo{How: "move it to the other node again", Call: away.API}, Note: "back, before anything else is begun"}
	back.Require = append(slices.Clone(away.Require[:len(away.Require)-1]), elsewhere, online(h.node))
	return back
}

// fitting is the node with the most memory left that takes a guest of this size.
func fitting(rooms []*room, mem int64, also func(*room) bool) *room {
	sorted := slices.Clone(rooms)
	slices.SortFunc(sorted, func(a, b *room) int { return int(min(max(b.free-a.free, -1), 1)) })
	for _, r := range sorted {
		if r.free >= mem && (also == nil || also(r)) {
			return r
		}
	}
	return nil
}

// rooms are the other nodes that can take guests.
func (h *hostLook) rooms(ctx context.Context) []*room {
	var out []*room
	for _, n := range h.inv.Nodes {
		if n.Name == h.node || n.Status != "online" || h.ha[n.Name] != "" && h.ha[n.Name] != "online" || !n.Figures {
			continue
		}
		r := &room{name: n.Name, free: n.MaxMem - n.Mem - n.MaxMem/20, model: h.model(ctx, n.Name), stores: map[string]bool{}}
		for _, s := range h.inv.Storages {
			if s.Node == n.Name && s.Status != "unknown" {
				r.stores[s.Name] = true
			}
		}
		out = append(out, r)
	}
	return out
}

// model is the processor of a node.
func (h *hostLook) model(ctx context.Context, node string) string {
	var st struct {
		Info struct {
			Model estate.Text `json:"model"`
		} `json:"cpuinfo"`
	}
	if _, err := h.read(ctx, &st, "GET /nodes/{node}/status", map[string]string{"node": node}); err != nil {
		return ""
	}
	return clip(gate.Clean(string(st.Info.Model)), 80)
}
