package reach

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

func haRules() []rule {
	out := []rule{
		{moves, gate.ObjectHA, (*walk).moveHA}, {disables, gate.ObjectHA, (*walk).disarm}, {starts, gate.ObjectHA, (*walk).arm},
		{disables, gate.ObjectCeph, (*walk).ceph}, {removes, gate.ObjectCeph, (*walk).ceph}, {alters, gate.ObjectCeph, (*walk).ceph}, {creates, gate.ObjectCeph, (*walk).ceph}, {stops, gate.ObjectCeph, (*walk).ceph}, {restarts, gate.ObjectCeph, (*walk).ceph},
	}
	for _, v := range []verb{creates, alters, removes} {
		out = append(out, rule{v, gate.ObjectHA, (*walk).resource}, rule{v, gate.ObjectHARule, (*walk).haRule}, rule{v, gate.ObjectReplication, (*walk).replication})
	}
	return out
}

// resource walks the entry, change and removal of an HA resource.
func (w *walk) resource(c change) {
	id := haGuest(c.object.ID)
	g, ok := w.guest(id)
	o := object(gate.ObjectGuest, id)
	if !ok && len(w.s.Gaps(estate.PartResources)) > 0 {
		w.unread(ClassStops, gate.WeightDanger, o, "whether the guest runs", gate.KindOutage)
		w.unread(ClassStarts, gate.WeightCaution, o, "whether the guest runs")
		w.unread(ClassHA, gate.WeightCaution, o, "whether HA looks after the guest")
		w.unreadSelf(o, "whether the guest is one that castellan depends on")
	}
	title := orText(g.Title(), "guest "+id)
	if own := w.ownGuest(g); ok && own != no && c.verb != creates {
		w.hit(gate.Hit{Class: ClassSelf, Weight: gate.WeightDanger, Object: o, Unknown: own == perhaps, Kinds: []gate.Kind{gate.KindGoverns}, Text: title + ", which castellan depends on, is looked after by HA otherwise"})
	}
	if c.verb == removes {
		w.hit(gate.Hit{Class: ClassHA, Weight: gate.WeightCaution, Object: o, Text: title + " is not looked after by HA any more: it stays down when its node fails"})
		rules, ok := w.s.HARules()
		if !ok {
			w.unread(ClassReferences, gate.WeightCaution, c.object, "the rules that name it")
		}
		for _, r := range rules {
			if slices.Contains(list(r["resources"]), c.object.ID) {
				text := "rule " + r["rule"] + " names it no more"
				if len(list(r["resources"])) == 1 {
					text = "rule " + r["rule"] + " goes with it: it names nothing else"
				}
				w.hit(gate.Hit{Class: ClassReferences, Weight: gate.WeightCaution, Object: object(gate.ObjectHARule, r["rule"]), Text: text})
			}
		}
		return
	}
	// What HA does to the guest is what a request for it would do.
	does := change{object: o, detail: map[string]string{"node": g.Node, "type": g.Path()}}
	switch state := orText(c.keys["state"], map[bool]string{true: "started"}[c.verb == creates]); state {
	case "stopped", "disabled":
		does.verb = stops
		walkGuestStopped(w, does)
	case "started", "enabled":
		does.verb = starts
		walkGuestStarted(w, does)
	}
	switch state := c.keys["state"]; state {
	case "stopped", "disabled":
		w.hit(gate.Hit{Class: ClassStops, Weight: gate.WeightCaution, Object: o, Text: title + " is shut down by HA"})
	case "started", "enabled":
		w.hit(gate.Hit{Class: ClassStarts, Weight: gate.WeightNote, Object: o, Text: title + " is started by HA, and started again wherever it can be"})
	case "ignored":
		w.hit(gate.Hit{Class: ClassHA, Weight: gate.WeightCaution, Object: o, Text: title + " is left alone by HA"})
	case "":
		if c.verb == creates {
			w.hit(gate.Hit{Class: ClassStarts, Weight: gate.WeightNote, Object: o, Text: title + " comes under HA, which starts it"})
		}
	}
	if _, ok := c.keys["group"]; ok && c.verb == alters {
		w.hit(gate.Hit{Class: ClassMoves, Weight: gate.WeightCaution, Object: o, Text: "HA may move " + title + " to a node of its group"})
		w.movedByHA(c.object.ID, false)
	}
	failback, told := c.keys["failback"]
	if c.verb == creates || told && !off1(failback) {
		w.drawn(c.object, g, c.keys["group"])
	}
	if c.verb == creates {
		w.hit(gate.Hit{Class: ClassHA, Weight: gate.WeightCaution, Object: object(gate.ObjectNode, g.Node), Text: "a node with HA guests restarts itself when it loses the others"})
	}
}

// drawn: a guest that comes under HA, or that HA may take back, goes to where the rules want it.
func (w *walk) drawn(o gate.Object, g estate.Guest, group string) {
	rules, ok := w.s.HARules()
	if !ok {
		w.unread(ClassMoves, gate.WeightCaution, object(gate.ObjectGuest, haGuest(o.ID)), "what HA's rules want")
		w.missing(o, "what HA's rules want", append(w.startDims("lxc"), dim{ClassStops, gate.WeightCaution, nil})...)
	}
	if g.ID == "" && len(w.s.Gaps(estate.PartResources)) > 0 {
		w.unread(ClassMoves, gate.WeightCaution, object(gate.ObjectGuest, haGuest(o.ID)), "where the guest is")
		w.missing(o, "where the guest is", append(w.startDims("lxc"), dim{ClassStops, gate.WeightCaution, nil})...)
	}
	sid := haID(g)
	for _, r := range rules {
		if r.On("disable") || !slices.Contains(words(r["resources"]), sid) && (r["group"] == "" || r["group"] != group) || w.meetsRule(sid, r) {
			continue
		}
		w.hit(gate.Hit{Class: ClassMoves, Weight: gate.WeightCaution, Object: object(gate.ObjectGuest, g.ID), Text: fmt.Sprintf("HA may move %s: rule %s wants it elsewhere", title(g), clean(firstOf(r, "rule", "group")))})
		w.movedByHA(sid, false)
	}
}

func (w *walk) moveHA(c change) {
	id := haGuest(c.object.ID)
	g, ok := w.guest(id)
	title := "guest " + id
	if ok {
		title = g.Title()
	} else if len(w.s.Gaps(estate.PartResources)) > 0 {
		w.unread(ClassStops, gate.WeightCaution, object(gate.ObjectGuest, id), "what kind of guest it is")
		w.missing(object(gate.ObjectGuest, id), "what kind of guest it is", w.startDims("qemu", "lxc")...)
	}
	w.hit(gate.Hit{Class: ClassMoves, Weight: gate.WeightNote, Object: object(gate.ObjectGuest, id), Text: title + " moves to " + c.detail["to"]})
	if !ok { // the rules name it as the request does, or by its number alone
		g = estate.Guest{ID: id, Kind: map[bool]string{true: estate.CT, false: estate.VM}[strings.HasPrefix(c.object.ID, estate.CT+":")]}
	}
	w.rulesOfMove(object(gate.ObjectGuest, id), g, c.detail["to"])
	switch {
	case ok && !w.runs(g):
	case c.detail["what"] == "relocate" || g.Kind == estate.CT:
		w.hit(gate.Hit{Class: ClassStops, Weight: gate.WeightCaution, Object: object(gate.ObjectGuest, id), Text: title + " is stopped for the move"})
		walkGuestStopped(w, change{verb: restarts, object: object(gate.ObjectGuest, id), detail: map[string]string{"node": g.Node, "type": g.Path(), "to": c.detail["to"]}})
	case ok:
		w.memoryThere(g, c.detail["to"], "it runs there")
	}
}

// disarm: HA looks after nothing until it is armed again.
func (w *walk) disarm(c change) {
	rows, ok := w.s.HAResources()
	if !ok {
		w.unread(ClassHA, gate.WeightDanger, object(gate.ObjectSite, ""), "what HA looks after", gate.KindOutage)
	}
	for _, r := range rows {
		w.hit(gate.Hit{Class: ClassHA, Weight: gate.WeightDanger, Object: object(gate.ObjectHA, r["sid"]), Kinds: []gate.Kind{gate.KindOutage}, Text: "HA does not look after " + r["sid"] + " until it is armed again"})
	}
}

func (w *walk) arm(c change) {
	rows, ok := w.s.HAResources()
	if len(w.s.Inventory().Guests) == 0 || !ok {
		w.missing(c.object, "which guests HA starts", append(w.startDims("qemu", "lxc"), dim{ClassStarts, gate.WeightCaution, nil})...)
	}
	for _, r := range rows {
		g, there := w.guest(haGuest(r["sid"]))
		if there && keptUp(r["state"]) && !w.runs(g) {
			conf, _ := w.s.Config(g) // where it cannot be read, what it rests on says so
			w.waking(held{Guest: g, config: conf}, c.object, "does not run, and is started by HA", beginning{node: g.Node, when: "when HA starts it"})
		}
	}
	w.hit(gate.Hit{Class: ClassHA, Weight: gate.WeightNote, Object: c.object, Text: "HA acts again: what should run is started, nodes that lose the others restart themselves"})
}

// haRule walks a rule or group: who may have to move.
func (w *walk) haRule(c change) {
	rows, ok := w.s.HARules()
	if !ok && c.verb != creates {
		w.unread(ClassMoves, gate.WeightCaution, c.object, "which guests the rule names")
		w.unread(ClassStops, gate.WeightCaution, c.object, "which guests the rule names")
		w.missing(c.object, "which guests the rule names", w.startDims("lxc")...)
	}
	resources, strict := list(c.keys["resources"]), c.keys["strict"] == "1" || c.keys["restricted"] == "1"
	then := estate.Config(c.keys)
	for _, r := range rows {
		if firstOf(r, "rule", "group") == c.object.ID {
			then = with(r, c.keys)
			resources = append(resources, list(r["resources"])...)
			strict = strict || r.On("strict") || r.On("restricted")
		}
	}
	if c.detail["what"] == "group" {
		all, ok := w.s.HAResources()
		if !ok {
			w.unread(ClassMoves, gate.WeightCaution, c.object, "which guests are of the group")
			w.unread(ClassStops, gate.WeightCaution, c.object, "which guests are of the group")
			w.missing(c.object, "which guests are of the group", w.startDims("lxc")...)
		}
		for _, r := range all {
			if r["group"] == c.object.ID {
				resources = append(resources, r["sid"])
			}
		}
	}
	slices.Sort(resources)
	for _, sid := range slices.Compact(resources) {
		id := haGuest(sid)
		if own := w.ownID(id); own != no {
			w.hit(gate.Hit{Class: ClassSelf, Weight: gate.WeightDanger, Object: object(gate.ObjectGuest, id), Unknown: own == perhaps, Kinds: []gate.Kind{gate.KindGoverns}, Text: "where HA runs guest " + id + ", which castellan depends on, follows another rule"})
		}
		if c.verb == removes || !w.meetsRule(sid, then) {
			w.hit(gate.Hit{Class: ClassMoves, Weight: gate.WeightCaution, Object: object(gate.ObjectGuest, id), Text: "HA may move guest " + id + " to meet the rules"})
			w.movedByHA(sid, false)
		}
		if strict && c.verb != removes {
			w.hit(gate.Hit{Class: ClassStops, Weight: gate.WeightCaution, Object: object(gate.ObjectGuest, id), Unknown: true, Text: "guest " + id + " stays down when none of the nodes that the rule allows is there"})
		}
	}
}

// meetsRule says whether a guest is where a rule wants it already. What cannot be told does not.
func (w *walk) meetsRule(sid string, rule estate.Config) bool {
	g, ok := w.guest(haGuest(sid))
	if !ok || rule.On("disable") || len(w.s.Gaps(estate.PartResources)) > 0 {
		return false
	}
	if rule["affinity"] == "" {
		rank, best := map[string]int64{}, int64(0)
		for _, n := range words(rule["nodes"]) {
			name, priority, _ := strings.Cut(n, ":")
			rank[name] = 1 + number(priority)
			best = max(best, rank[name])
		}
		return best > 0 && rank[g.Node] == best
	}
	together := rule["affinity"] == "positive"
	all := words(rule["resources"])
	return slices.Contains(all, sid) && !slices.ContainsFunc(all, func(other string) bool {
		x, ok := w.guest(haGuest(other))
		return !ok || other != sid && (x.Node == g.Node) != together
	})
}

// movedBack names the guests that HA moved away from a node for its maintenance: they come back when that ends.
func (w *walk) movedBack(o gate.Object, node string) {
	back := func(sid string) {
		w.hit(gate.Hit{Class: ClassMoves, Weight: gate.WeightCaution, Object: object(gate.ObjectGuest, haGuest(sid)), Text: "guest " + clean(haGuest(sid)) + " is moved back to node " + node + " by HA"})
		w.movedByHA(sid, true)
	}
	rows, ok := w.s.Rows(estate.PartHA, "status", gate.Read{Operation: "GET /cluster/ha/status/manager_status"})
	if !ok {
		w.missing(o, "which guests HA moved away from node "+node, append(w.startDims("lxc"), dim{ClassMoves, gate.WeightCaution, nil}, dim{ClassStops, gate.WeightCaution, nil})...)
	}
	for _, r := range rows {
		services, _ := estate.ParseConfig([]byte(nestedOf(r["manager_status"], "service_status"))) // without any it is empty
		for _, sid := range slices.Sorted(maps.Keys(services)) {
			if nestedOf(services[sid], "maintenance_node") == node {
				back(sid)
			}
		}
	}
	for _, s := range w.before { // what the plan itself moves away first
		if s.API.Operation != "RUN /nodes/{node}/maintenance" || s.API.Text("node") != node || s.API.Text("mode") != "enable" {
			continue
		}
		resources, ok := w.s.HAResources()
		if !ok {
			w.unread(ClassMoves, gate.WeightCaution, o, "which guests HA looks after")
			w.unread(ClassStops, gate.WeightCaution, o, "which guests HA looks after")
		}
		for _, r := range resources {
			if g, there := w.guest(haGuest(r["sid"])); there && g.Node == node && r["state"] != "ignored" {
				back(r["sid"])
			}
		}
	}
}

// drawnBack names the guests elsewhere that HA's rules would rather have on a node that comes into service.
func (w *walk) drawnBack(o gate.Object, node string) {
	rules, ok := w.s.HARules()
	resources, ok2 := w.s.HAResources()
	if !ok || !ok2 || len(w.s.Gaps(estate.PartResources)) > 0 {
		w.missing(o, "which guests HA's rules bring to node "+node, append(w.startDims("lxc"), dim{ClassMoves, gate.WeightCaution, nil}, dim{ClassStops, gate.WeightCaution, nil})...)
	}
	for _, r := range rules {
		if r["type"] == "resource-affinity" || r.On("disable") || r.On("nofailback") {
			continue
		}
		rank := map[string]int64{}
		for _, n := range words(r["nodes"]) {
			name, priority, _ := strings.Cut(n, ":")
			rank[name] = 1 + number(priority)
		}
		for _, x := range resources {
			sid := x["sid"]
			g, there := w.guest(haGuest(sid))
			named := slices.Contains(words(r["resources"]), sid) || r["group"] != "" && x["group"] == r["group"]
			if !named || !there || x["state"] == "ignored" || off1(x["failback"]) || g.Node == node || rank[node] <= rank[g.Node] {
				continue
			}
			w.hit(gate.Hit{Class: ClassMoves, Weight: gate.WeightCaution, Object: object(gate.ObjectGuest, g.ID), Way: []gate.Object{o, object(gate.ObjectHARule, firstOf(r, "rule", "group"))},
				Text: fmt.Sprintf("%s is moved to node %s by HA: rule %s prefers it", title(g), node, clean(firstOf(r, "rule", "group")))})
			w.movedByHA(sid, true)
		}
	}
}

// replication walks a replication job.
func (w *walk) replication(c change) {
	id := c.object.ID
	guest, _, _ := strings.Cut(id, "-")
	switch {
	case c.verb == removes:
		text := "the copy of guest " + guest + " on the other node goes"
		if c.keys["keep"] == "1" {
			text = "guest " + guest + " is not replicated any more; its copy stays and grows old"
		}
		w.hit(gate.Hit{Class: ClassHA, Weight: gate.WeightCaution, Object: object(gate.ObjectReplication, id), Text: text})
	case c.keys["disable"] == "1" || c.keys["remove_job"] != "":
		w.hit(gate.Hit{Class: ClassHA, Weight: gate.WeightCaution, Object: object(gate.ObjectReplication, id), Text: "guest " + guest + " is not replicated any more"})
	case c.keys["target"] != "":
		w.hit(gate.Hit{Class: ClassSpace, Weight: gate.WeightNote, Object: object(gate.ObjectNode, c.keys["target"]), Text: "a copy of guest " + guest + " takes space on " + c.keys["target"]})
	}
}

// ceph walks what happens to Ceph's daemons, pools and flags.
func (w *walk) ceph(c change) {
	o, what := c.object, c.detail["what"]
	outage := []gate.Kind{gate.KindOutage}
	switch {
	case what == "flags":
		for k, v := range c.keys {
			switch {
			case k == "pause" && v == "1":
				w.hit(gate.Hit{Class: ClassStops, Weight: gate.WeightDanger, Object: o, Kinds: outage, Text: "nothing on Ceph can be read or written: every guest with a disk there stands still"})
			case v == "1":
				w.hit(gate.Hit{Class: ClassHA, Weight: gate.WeightCaution, Object: o, Text: "Ceph's flag " + k + " is set: it heals itself less until it is taken away"})
			default:
				w.hit(gate.Hit{Class: ClassHA, Weight: gate.WeightNote, Object: o, Text: "Ceph's flag " + k + " is taken away"})
			}
		}
		return
	case what == "pool" && c.verb == removes || what == "fs":
		w.cephPool(c)
		return
	case what == "pool" && c.verb == creates:
		w.cephPoolMade(c)
		return
	case what == "pool":
		for _, k := range []string{"size", "min_size"} {
			if v := c.keys[k]; v != "" {
				weight := gate.WeightCaution
				if number(v) <= 1 {
					weight = gate.WeightDanger
				}
				w.hit(gate.Hit{Class: ClassHA, Weight: weight, Object: o, Text: fmt.Sprintf("%s becomes %s: how many copies there are, or must be", k, v)})
			}
		}
		return
	}
	meta, ok := w.s.Ceph()
	if !ok {
		w.unread(ClassHA, gate.WeightDanger, o, "what is left of Ceph", gate.KindOutage)
		w.unread(ClassLosesData, gate.WeightDanger, o, "what is left of Ceph", gate.KindOutage)
	}
	osds, mons := len(daemonsIn(meta["osd"])), len(daemonsIn(meta["mon"]))
	left := func(n int) string { return fmt.Sprintf("%d left", max(0, n-1)) }
	switch {
	case what == "osd":
		h := gate.Hit{Class: ClassHA, Weight: gate.WeightCaution, Object: o, Text: "Ceph copies the data of " + o.ID + " to others (" + left(osds) + ")"}
		if osds < 4 {
			h.Weight, h.Kinds, h.Text = gate.WeightDanger, outage, h.Text+": with so few there may be no place for every copy"
		}
		if c.verb == removes {
			w.hit(gate.Hit{Class: ClassLosesData, Weight: gate.WeightDanger, Object: o, Kinds: outage, Text: "the data on " + o.ID + " goes; before Ceph has copied it elsewhere there is a copy less of it"})
		}
		w.hit(h)
	case what == "mon":
		h := gate.Hit{Class: ClassHA, Weight: gate.WeightCaution, Object: o, Text: "a monitor of Ceph goes (" + left(mons) + ")"}
		if mons <= 3 {
			h.Weight, h.Kinds, h.Text = gate.WeightDanger, outage, h.Text+": the next loss stops everything on Ceph"
		}
		w.hit(h)
	case what == "daemon":
		h := gate.Hit{Class: ClassHA, Weight: gate.WeightDanger, Object: o, Kinds: outage, Text: "Ceph's " + o.ID + " stands still: guests with disks there may too"}
		if c.verb == restarts && o.ID != "ceph.target" {
			h.Weight, h.Kinds = gate.WeightCaution, nil
		}
		w.hit(h)
	default:
		w.hit(gate.Hit{Class: ClassHA, Weight: gate.WeightCaution, Object: o, Text: "Ceph's " + o.ID + " goes"})
	}
}

// cephPoolMade: how much of its disks a new pool can lose, and the storages that come with it.
func (w *walk) cephPoolMade(c change) {
	o, k := c.object, c.keys
	if v := k["size"]; v != "" && number(v) <= 1 {
		w.hit(gate.Hit{Class: ClassHA, Weight: gate.WeightDanger, Object: o, Kinds: []gate.Kind{gate.KindGuard}, Text: "size is " + clean(v) + ": there is one copy of what comes onto it, and the first disk that fails takes it along"})
	} else if v == "2" {
		w.hit(gate.Hit{Class: ClassHA, Weight: gate.WeightCaution, Object: o, Text: "size is 2: while a disk or node is away there is no second copy of what comes onto it"})
	}
	if v := k["min_size"]; v != "" && number(v) <= 1 {
		w.hit(gate.Hit{Class: ClassHA, Weight: gate.WeightDanger, Object: o, Kinds: []gate.Kind{gate.KindGuard}, Text: "min_size is " + clean(v) + ": it goes on writing with one copy, and what is written then is lost with it"})
	}
	if (estate.Config{"on": k["add_storages"]}).On("on") || k["erasure-coding"] != "" && k["add_storages"] == "" {
		text := "storage " + o.ID[strings.LastIndexByte(o.ID, '/')+1:] + " comes with it, on every node"
		w.hit(gate.Hit{Class: ClassSetting, Weight: gate.WeightCaution, Object: o, Kinds: w.kindsOf("POST /storage", map[string]string{"storage": "x", "type": "rbd"}), Text: text})
	}
}

// kindsOf are the rows under which a request falls that another one does along.
func (w *walk) kindsOf(operation string, params map[string]string) []gate.Kind {
	op, ok := w.cat.Lookup("pve", operation)
	if !ok {
		return []gate.Kind{gate.KindUnknown}
	}
	r := gate.Request{Product: "pve", Operation: operation}
	for _, name := range slices.Sorted(maps.Keys(params)) {
		r.Params = append(r.Params, gate.Param{Name: name, Values: []gate.Value{{Text: params[name]}}})
	}
	return w.cat.Judge(op, r).Kinds
}

// cephPool names the storages and guests on a pool that goes.
func (w *walk) cephPool(c change) {
	_, name, _ := strings.Cut(c.object.ID, "/")
	w.hit(gate.Hit{Class: ClassLosesData, Weight: gate.WeightDanger, Object: c.object, Text: "everything in " + c.object.ID + " goes"})
	storages, ok := w.s.Storages()
	if !ok {
		w.unread(ClassLosesDisk, gate.WeightDanger, c.object, "which storages are on it", gate.KindOutage)
		w.unreadSelf(c.object, "which storages are on it")
	}
	for _, s := range storages {
		if s["type"] != "rbd" && s["type"] != "cephfs" || s["pool"] != name && s["data-pool"] != name && s["fs-name"] != name && (s["pool"] != "" || name != "rbd") {
			continue
		}
		w.hit(gate.Hit{Class: ClassLosesDisk, Weight: gate.WeightDanger, Object: object(gate.ObjectStorage, s["storage"]), Kinds: []gate.Kind{gate.KindOutage}, Text: "storage " + s["storage"] + " is on it"})
		for _, n := range w.s.Inventory().Nodes {
			w.usersOfStorage(c.object, n.Name, s["storage"])
		}
		if len(w.s.Gaps(estate.PartResources)) > 0 {
			w.usersOfStorage(c.object, "", s["storage"])
		}
	}
}
