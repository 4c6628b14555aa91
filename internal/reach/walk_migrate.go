package reach

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

// walkGuestMoved is a migration.
func walkGuestMoved(w *walk, c change) {
	blocked := dim{ClassBlocked, gate.WeightNote, nil}
	moved := dim{ClassMoves, gate.WeightNote, nil}
	stop := dim{ClassStops, gate.WeightCaution, nil}
	net := dim{ClassNetwork, gate.WeightCaution, nil}
	ha := dim{ClassHA, gate.WeightCaution, nil}
	memory := dim{ClassSpace, gate.WeightCaution, nil}
	if c.detail["named"] == "no" {
		stop = dim{ClassStops, gate.WeightDanger, outage}
	}
	dims := []dim{blocked, moved, stop, net, ha, memory, noSpace, losesDisk, losesBackup, {ClassMoves, gate.WeightCaution, nil}, alsoLoses}
	if c.detail["type"] == "lxc" && c.detail["restart"] != "" {
		dims = append(dims, w.startDims("lxc")...)
	}
	if c.detail["away"] != "" && c.detail["delete"] != "" {
		dims = append(dims, dim{ClassMoves, gate.WeightDanger, nil})
	}
	g, found := w.one(c.object.ID, dims...)
	if !found {
		return
	}
	to := c.detail["to"]
	refuse := func(o gate.Object, text string) {
		w.hit(gate.Hit{Class: ClassBlocked, Weight: gate.WeightNote, Object: o, Blocks: true, Text: text})
	}
	runs := w.runs(g.Guest)
	switch {
	case g.Kind == estate.CT && runs:
		text := title(g.Guest) + " is shut down, copied and started on the other node"
		if c.detail["restart"] == "" {
			refuse(c.object, title(g.Guest)+" runs: a container moves with restart only")
			text = "a running container moves with a restart only: " + text
		}
		h := gate.Hit{Class: ClassStops, Weight: gate.WeightCaution, Object: c.object, Text: text}
		if c.detail["named"] == "no" {
			h.Weight, h.Kinds = gate.WeightDanger, outage
		}
		w.hit(h)
	case runs && c.detail["online"] == "":
		refuse(c.object, title(g.Guest)+" runs, and online is not given")
	}
	if g.Lock != "" {
		refuse(c.object, title(g.Guest)+" is locked ("+clean(g.Lock)+")")
	}
	if c.detail["away"] != "" {
		text := title(g.Guest) + " goes to another site: its backup jobs, HA, replication, pool, rights and firewall rules here stay behind"
		weight := gate.WeightCaution
		if c.detail["delete"] != "" {
			text += ", and what is here of it is deleted"
			weight = gate.WeightDanger
		}
		w.hit(gate.Hit{Class: ClassMoves, Weight: weight, Object: c.object, Text: text})
		if c.detail["delete"] != "" {
			w.alsoOf(g, "it is copied to the other site and deleted here", drives(g.config)...)
		}
		for _, d := range drives(g.config) {
			w.staysBehind(g, d)
		}
		return
	}
	inv, _ := w.listing() // its gap was reported with the guest
	switch n, err := inv.Node(to); {
	case err != nil:
		refuse(object(gate.ObjectNode, to), "there is no node "+clean(to))
	case n.Status != "online":
		refuse(object(gate.ObjectNode, to), "node "+to+" is not online")
	case to == g.Node:
		refuse(object(gate.ObjectNode, to), title(g.Guest)+" is on "+to+" already")
	case runs:
		w.memoryThere(g.Guest, to, "it runs there")
	}
	w.movedRules(c.object, g.Guest, to)
	if g.config == nil {
		return
	}
	w.movedDisks(c, g, to)
	if g.Kind == estate.CT && runs {
		w.serving(c.object, g)
		if c.detail["restart"] != "" {
			w.begins(c.object, g, beginning{node: to, when: "when it is started on the other node", ran: true})
		}
	}
	w.bridgesThere(to, c.object, g.config)
	w.passedThrough(c.object, g)
	w.movedReplication(c.object, g, to)
}

// targetStorage is where a disk goes by the mapping that a migration names: "from:to" pairs, or one for all.
func targetStorage(mapping, from string) string {
	for _, m := range words(mapping) {
		a, b, pair := strings.Cut(m, ":")
		switch {
		case !pair && m != "1":
			return m
		case pair && a == from:
			return b
		}
	}
	return from
}

// movedDisks says where the disks live and what is copied.
func (w *walk) movedDisks(c change, g held, to string) {
	defs, ok := w.s.Storages()
	blocked := dim{ClassBlocked, gate.WeightNote, nil}
	unlisted := func(d drive) bool {
		return d.storage != "" && !slices.ContainsFunc(defs, func(x estate.Config) bool { return x["storage"] == d.storage })
	}
	switch {
	case ok:
	case w.narrow(estate.PartStorages) && !slices.ContainsFunc(drives(g.config), unlisted): // where its disks lie is seen; as in ownToo
		w.out.Unread = union(w.out.Unread, []string{"the move of " + title(g.Guest) + ": not looked at are storages that castellan's token may not see"})
	default:
		w.missing(c.object, "the definitions of storages", blocked, dim{ClassMoves, gate.WeightNote, nil}, noSpace, alsoLoses)
	}
	need := map[string]int64{}
	var shared, local []string
	var copied []drive
	for _, d := range drives(g.config) {
		i := slices.IndexFunc(defs, func(x estate.Config) bool { return x["storage"] == d.storage })
		switch {
		case d.storage == "":
			w.hit(gate.Hit{Class: ClassBlocked, Weight: gate.WeightNote, Object: c.object, Blocks: true, Text: fmt.Sprintf("%s of %s is a path of node %s itself", d.key, title(g.Guest), g.Node)})
			continue
		case i < 0:
			if ok {
				w.hit(gate.Hit{Class: ClassBlocked, Weight: gate.WeightNote, Object: d.object(), Blocks: true, Text: d.key + " is on storage " + d.storage + ", which is not defined"})
				continue
			}
			copied = append(copied, d) // or it is shared, and stays
			continue
		}
		def := defs[i]
		target := targetStorage(c.detail["storage"], d.storage)
		j := slices.IndexFunc(defs, func(x estate.Config) bool { return x["storage"] == target })
		if j >= 0 && !onNode(defs[j], to) {
			w.hit(gate.Hit{Class: ClassBlocked, Weight: gate.WeightNote, Object: d.object(), Blocks: true, Text: fmt.Sprintf("%s needs storage %s, which node %s does not have", d.key, target, to)})
		}
		if isShared(def) {
			shared = append(shared, d.key)
			continue
		}
		if d.medium {
			w.hit(gate.Hit{Class: ClassBlocked, Weight: gate.WeightNote, Object: d.object(), Blocks: true, Text: fmt.Sprintf("%s holds an image of storage %s, which only node %s sees", d.key, d.storage, g.Node)})
			continue
		}
		local, copied = append(local, d.key), append(copied, d)
		w.staysBehind(g, d)
		if g.Kind == estate.VM && w.runs(g.Guest) && c.detail["disks"] == "" {
			w.hit(gate.Hit{Class: ClassBlocked, Weight: gate.WeightNote, Object: d.object(), Blocks: true, Text: d.key + " is local, and with-local-disks is not given"})
		}
		need[target] += d.size
	}
	w.alsoOf(g, "it is copied to "+to+" and deleted on "+g.Node, copied...)
	text := "its disks are on shared storage (" + names(shared) + "): nothing is copied"
	if len(local) > 0 {
		sum := int64(0)
		for _, n := range need {
			sum += n
		}
		text = fmt.Sprintf("%s lie on storage of node %s itself: %s are copied to %s", names(local), g.Node, gib(sum), to)
		if len(shared) > 0 {
			text += "; " + names(shared) + " are shared and stay"
		}
	} else if len(shared) == 0 {
		text = "it has no disks to copy"
	}
	w.hit(gate.Hit{Class: ClassMoves, Weight: gate.WeightNote, Object: c.object, Text: text})
	for _, storage := range slices.Sorted(maps.Keys(need)) {
		w.takes(storage, to, need[storage], "the copy of "+title(g.Guest))
	}
}

// staysBehind: Proxmox copies no disk to another node or site that is another guest's by its name, and so not the guest.
func (w *walk) staysBehind(g held, d drive) {
	if by := d.owner(); by != "" && by != g.ID && !d.seed && !d.medium {
		w.hit(gate.Hit{Class: ClassBlocked, Weight: gate.WeightNote, Object: d.object(), Way: []gate.Object{object(gate.ObjectGuest, g.ID), d.object(), object(gate.ObjectGuest, by)}, Blocks: true,
			Text: fmt.Sprintf("%s of %s (%s) is a disk of guest %s by its name: Proxmox does not copy it along", d.key, title(g.Guest), clean(d.volume), by)})
	}
}

// passedThrough: what is of one node's hardware stays behind.
func (w *walk) passedThrough(o gate.Object, g held) {
	for _, key := range slices.Sorted(maps.Keys(g.config)) {
		base, number := fold(key)
		p := properties(g.config[key])
		host := p[""] + p["host"]
		switch {
		case number == "" || base != "hostpci" && base != "usb" && base != "dev" && base != "parallel" && base != "serial":
		case base == "serial" && p[""] == "socket", base == "usb" && strings.EqualFold(host, "spice"):
		case p["mapping"] != "":
			w.hit(gate.Hit{Class: ClassBlocked, Weight: gate.WeightNote, Object: o, Unknown: true, Text: fmt.Sprintf("%s uses mapping %s: it moves only where that is set up on the other node, and not while it runs", key, clean(p["mapping"]))})
		default:
			w.hit(gate.Hit{Class: ClassBlocked, Weight: gate.WeightNote, Object: o, Blocks: true, Text: fmt.Sprintf("%s is a device of node %s (%s)", key, g.Node, clean(g.config[key]))})
		}
	}
}

func (w *walk) movedReplication(o gate.Object, g held, to string) {
	rows, ok := w.s.Replication()
	if !ok {
		w.missing(o, "the replication jobs", dim{ClassHA, gate.WeightNote, nil})
	}
	for _, r := range rows {
		if r["guest"] != g.ID {
			continue
		}
		text := fmt.Sprintf("replication %s to %s goes on from %s and copies everything anew where %s has no copy", clean(r["id"]), clean(r["target"]), to, to)
		if r["target"] == to {
			text = fmt.Sprintf("replication %s turns round: %s has a copy already, only what changed is copied", clean(r["id"]), to)
		}
		w.hit(gate.Hit{Class: ClassHA, Weight: gate.WeightNote, Object: object(gate.ObjectReplication, r["id"]), Text: text})
	}
}

// movedRules says what HA makes of a move.
func (w *walk) movedRules(o gate.Object, g estate.Guest, to string) {
	if g.HA == "" {
		return
	}
	w.hit(gate.Hit{Class: ClassHA, Weight: gate.WeightNote, Object: o, Text: fmt.Sprintf("HA manages %s (state %s) and carries the move out", title(g), clean(g.HA))})
	w.rulesOfMove(o, g, to)
}

// rulesOfMove says what the rules of HA make of a move of a guest that it looks after.
func (w *walk) rulesOfMove(o gate.Object, g estate.Guest, to string) {
	ha := dim{ClassHA, gate.WeightCaution, nil}
	together := dim{ClassMoves, gate.WeightCaution, nil}
	rules, ok := w.s.Rows(estate.PartHA, "rules", gate.Read{Operation: "GET /cluster/ha/rules"})
	if !ok {
		w.missing(o, "the HA rules", append(w.startDims("lxc"), ha, together, dim{ClassStops, gate.WeightCaution, nil})...)
	}
	for _, r := range rules {
		if !slices.Contains(words(r["resources"]), haID(g)) || r.On("disable") {
			continue
		}
		rule := object(gate.ObjectHARule, r["rule"])
		switch {
		case r["type"] == "node-affinity":
			var nodes []string
			for _, n := range words(r["nodes"]) {
				name, _, _ := strings.Cut(n, ":")
				nodes = append(nodes, name)
			}
			if !slices.Contains(nodes, to) {
				text := fmt.Sprintf("rule %s prefers nodes %s: HA moves it back from %s", clean(r["rule"]), names(nodes), to)
				if r.On("strict") {
					text = fmt.Sprintf("rule %s binds it to nodes %s: HA does not let it run on %s", clean(r["rule"]), names(nodes), to)
				}
				w.hit(gate.Hit{Class: ClassHA, Weight: gate.WeightCaution, Object: rule, Text: text})
			}
		case r["affinity"] == "positive": // below, with those that others bind to it
		case r["affinity"] == "negative":
			w.hit(gate.Hit{Class: ClassHA, Weight: gate.WeightCaution, Object: rule, Text: fmt.Sprintf("rule %s keeps it apart from %s: HA refuses a node where one of them is", clean(r["rule"]), clean(r["resources"]))})
		}
	}
	w.movesAlong(o, rules, haID(g))
}

// movesAlong names the guests that rules keep together with one that moves, and with those.
func (w *walk) movesAlong(o gate.Object, rules []estate.Config, sid string) {
	bound := []string{sid}
	for i := 0; i < len(bound); i++ {
		for _, r := range rules {
			all := words(r["resources"])
			if r["affinity"] != "positive" || r.On("disable") || !slices.Contains(all, bound[i]) {
				continue
			}
			for _, other := range all {
				_, id, _ := strings.Cut(other, ":")
				if id == "" || slices.Contains(bound, other) {
					continue
				}
				bound = append(bound, other)
				it := object(gate.ObjectGuest, id)
				w.hit(gate.Hit{Class: ClassMoves, Weight: gate.WeightCaution, Object: it, Way: []gate.Object{o, object(gate.ObjectHARule, r["rule"]), it},
					Text: fmt.Sprintf("rule %s keeps guest %s together with %s: HA moves it too", clean(r["rule"]), clean(id), clean(map[bool]string{true: "it", false: bound[i]}[i == 0]))})
				w.movedByHA(other, true)
			}
		}
	}
}
