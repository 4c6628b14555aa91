package reach

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

func networkRules() []rule {
	return []rule{
		{creates, gate.ObjectInterface, (*walk).stageInterface}, {alters, gate.ObjectInterface, (*walk).stageInterface}, {removes, gate.ObjectInterface, (*walk).stageInterface},
		{cuts, gate.ObjectNode, (*walk).cutNode}, {alters, gate.ObjectNode, (*walk).alterNode},
	}
}

// attached calls f for every guest of a node ("" = of all) with a network card on one of the bridges or vnets. What
// cannot be read is said with the worst weight that f would give.
func (w *walk) attached(node string, bridges []string, o gate.Object, worst gate.Weight, kinds []gate.Kind, f func(g estate.Guest, bridge string)) {
	var guests []estate.Guest
	for _, g := range w.s.Inventory().Guests {
		if node == "" || g.Node == node {
			guests = append(guests, g)
		}
	}
	if len(w.s.Gaps(estate.PartResources)) > 0 {
		w.unread(ClassNetwork, worst, o, "which guests there are", kinds...)
		w.unreadSelf(o, "which guests there are")
	}
	if len(bridges) == 0 {
		return
	}
	known := w.s.Configs(guests)
	var gap []string
	for _, g := range guests {
		conf, ok := known[g.ID]
		if !ok {
			gap = append(gap, g.ID)
			if w.ownGuest(g) != no {
				w.unreadSelf(object(gate.ObjectGuest, g.ID), "the network cards of "+g.Title())
			}
			continue
		}
		for key, text := range conf {
			if on, _ := gate.PropertyValue(text, "bridge"); strings.HasPrefix(key, "net") && slices.Contains(bridges, on) {
				f(g, on)
				break
			}
		}
	}
	if len(gap) > 0 {
		w.unread(ClassNetwork, worst, o, "the network cards of guests "+names(gap), kinds...)
	}
}

// wiring is how a node's interfaces hang together.
type wiring struct {
	rows  map[string]estate.Config
	below map[string][]string // interface → those that it is carried by
	main  []string            // those that carry the address by which the cluster knows the node
	known bool                // main is known
}

func (w *walk) wiring(node string) (*wiring, bool) {
	rows, ok := w.s.Network(node)
	n := &wiring{rows: map[string]estate.Config{}, below: map[string][]string{}}
	for _, r := range rows {
		name := r["iface"]
		n.rows[name] = r
		for _, key := range []string{"bridge_ports", "slaves", "ovs_ports", "ovs_bonds", "vlan-raw-device", "ovs_bridge"} {
			for _, port := range strings.Fields(strings.ReplaceAll(r[key], ",", " ")) {
				if key == "ovs_bridge" { // an OVS port is carried by what its bridge is carried by
					continue
				}
				n.below[name] = append(n.below[name], port)
			}
		}
		if parent, _, vlan := strings.Cut(name, "."); vlan && r["vlan-raw-device"] == "" {
			n.below[name] = append(n.below[name], parent)
		}
	}
	status, ok2 := w.s.Status()
	for _, s := range status {
		if s["type"] != "node" || s["name"] != node {
			continue
		}
		main, err := netip.ParseAddr(s["ip"])
		for name, r := range n.rows {
			for _, key := range []string{"cidr", "cidr6", "address", "address6"} {
				if a, _, _ := strings.Cut(r[key], "/"); err == nil && a == main.String() {
					n.main, n.known = n.chain(name), true
				}
			}
		}
	}
	return n, ok && ok2
}

// chain lists an interface and everything that carries it.
func (n *wiring) chain(name string) []string {
	out := []string{name}
	for i := 0; i < len(out); i++ {
		for _, b := range n.below[out[i]] {
			if !slices.Contains(out, b) {
				out = append(out, b)
			}
			// eno1.100 under a bridge is carried by eno1, whether eno1 has a row of its own or not
			if parent, _, vlan := strings.Cut(b, "."); vlan && !slices.Contains(out, parent) {
				out = append(out, parent)
			}
		}
	}
	return out
}

// above lists an interface and everything that it carries.
func (n *wiring) above(name string) []string {
	out := []string{name}
	for other := range n.rows {
		if other != name && slices.Contains(n.chain(other), name) {
			out = append(out, other)
		}
	}
	slices.Sort(out)
	return out
}

// stageInterface walks a change of an interface that waits for the next apply or start of the node.
func (w *walk) stageInterface(c change) {
	node, name := c.detail["node"], c.detail["iface"]
	if !slices.ContainsFunc(slices.Collect(keysOf(c.keys)), func(k string) bool { return !strings.HasPrefix(k, "comments") && k != "type" && k != "iface" }) && c.verb == alters {
		w.hit(gate.Hit{Class: ClassSetting, Weight: gate.WeightNote, Object: c.object, Text: "only words beside the interface change"})
		return
	}
	w.hit(gate.Hit{Class: ClassSetting, Weight: gate.WeightNote, Object: c.object, Text: "it waits: it comes into force when the node's network is applied, with SDN's next apply, or when the node starts"})
	n, ok := w.wiring(node)
	touched := []string{name}
	if c.verb == creates || c.verb == alters {
		for _, key := range []string{"bridge_ports", "slaves", "ovs_ports", "ovs_bonds", "vlan-raw-device"} {
			touched = append(touched, strings.Fields(strings.ReplaceAll(c.keys[key], ",", " "))...)
		}
	}
	w.cut(c, node, n, ok, touched, false)
}

func keysOf(m map[string]string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// cut says what hangs on interfaces that change: the node's own way in, guests, and storages reached by them.
func (w *walk) cut(c change, node string, n *wiring, ok bool, touched []string, now bool) {
	weight, kinds, when := gate.WeightCaution, []gate.Kind(nil), "once it is applied"
	if now {
		weight, kinds, when = gate.WeightDanger, []gate.Kind{gate.KindOutage}, "while it is applied, and after it if the change is wrong"
	}
	o := object(gate.ObjectNode, node)
	if !ok {
		w.unread(ClassLockout, gate.WeightDanger, o, "by which interface the node is reached", gate.KindLockout)
		w.unread(ClassNetwork, weight, o, "how the node's interfaces hang together", kinds...)
		w.unread(ClassLosesDisk, weight, o, "how the node's interfaces hang together", kinds...)
		w.unreadSelf(o, "how the node's interfaces hang together")
	}
	if !n.known && ok {
		w.hit(gate.Hit{Class: ClassLockout, Weight: gate.WeightDanger, Object: o, Unknown: true, Kinds: []gate.Kind{gate.KindLockout}, Text: "no interface of " + node + " shows the address by which the cluster knows it: its way in may be among what changes"})
	}
	w.newWays(c, node, n, touched, weight, when)
	var up []string
	for _, name := range touched {
		if slices.Contains(n.main, name) {
			w.hit(gate.Hit{Class: ClassLockout, Weight: gate.WeightDanger, Object: o, Kinds: []gate.Kind{gate.KindLockout}, Text: fmt.Sprintf("%s carries the address by which %s is reached: castellan, approvers and operators may not get in %s", name, node, when)})
			if slices.Contains(w.self.Nodes, node) {
				w.hit(gate.Hit{Class: ClassSelf, Weight: gate.WeightDanger, Object: o, Kinds: []gate.Kind{gate.KindGoverns}, Text: "castellan runs on " + node})
			}
		}
		for _, a := range n.above(name) {
			if !slices.Contains(up, a) {
				up = append(up, a)
			}
		}
	}
	w.attached(node, up, o, weight, kinds, func(g estate.Guest, bridge string) {
		if g.Status != "running" && now {
			w.hit(gate.Hit{Class: ClassNetwork, Weight: gate.WeightNote, Object: object(gate.ObjectGuest, g.ID), Text: fmt.Sprintf("%s is on %s, and is %s", g.Title(), bridge, g.Status)})
			return
		}
		w.hit(gate.Hit{Class: ClassNetwork, Weight: weight, Object: object(gate.ObjectGuest, g.ID), Kinds: kinds, Matter: "on " + bridge, Way: []gate.Object{o, object(gate.ObjectBridge, bridge)},
			Text: fmt.Sprintf("%s is on %s and may lose its network %s", g.Title(), bridge, when)})
		if own := w.ownGuest(g); own != no {
			w.hit(gate.Hit{Class: ClassSelf, Weight: gate.WeightDanger, Object: object(gate.ObjectGuest, g.ID), Unknown: own == perhaps, Kinds: []gate.Kind{gate.KindGoverns}, Text: g.Title() + ", which castellan depends on, is on " + bridge})
		}
	})
	storages, read := w.s.Storages()
	if !read {
		w.unread(ClassLosesDisk, weight, o, "which storages are reached over the network", kinds...)
	}
	for _, s := range storages {
		server, err := netip.ParseAddr(s["server"])
		if err != nil || s.On("disable") || s["nodes"] != "" && !slices.Contains(list(s["nodes"]), node) {
			continue
		}
		for _, name := range up {
			for _, key := range []string{"cidr", "cidr6"} {
				if p, err := netip.ParsePrefix(n.rows[name][key]); err == nil && p.Contains(server) {
					w.hit(gate.Hit{Class: ClassLosesDisk, Weight: weight, Object: object(gate.ObjectStorage, s["storage"]), Kinds: kinds, Way: []gate.Object{o, object(gate.ObjectInterface, node+"/"+name)},
						Text: fmt.Sprintf("storage %s is reached by %s: %s may lose it %s", s["storage"], name, node, when)})
				}
			}
		}
	}
}

// cutNode walks the apply of what is staged for a node, and its drop.
func (w *walk) cutNode(c change) {
	w.applyNode(c, c.detail["node"], c.detail["what"] == "apply")
}

func (w *walk) applyNode(c change, node string, apply bool) {
	o := object(gate.ObjectNode, node)
	boots := c.verb == restarts // a node that boots takes up what is staged
	n, ok := w.wiring(node)
	changed, all, matter, read := w.stagedOn(node)
	for _, s := range w.before { // what the plan itself stages
		if s.API.Text("node") == node && strings.Contains(s.API.Operation, "/nodes/{node}/network") && s.API.Text("iface") != "" {
			changed, matter = append(changed, s.API.Text("iface")), ""
		}
	}
	switch {
	case !read:
		w.unread(ClassSetting, gate.WeightDanger, o, "what is staged on "+node)
		changed, all = nil, true
	case len(changed) == 0 && !all && boots:
		return
	case len(changed) == 0 && !all:
		w.hit(gate.Hit{Class: ClassSetting, Weight: gate.WeightNote, Object: o, Text: "nothing is staged on " + node})
		return
	case !apply:
		w.hit(gate.Hit{Class: ClassSetting, Weight: gate.WeightCaution, Object: o, Text: "staged changes are dropped, whoever made them: " + orText(names(changed), "some that could not be told to belong to one interface")})
		return
	default:
		what := "staged changes come into force"
		if boots {
			what = "staged changes of its network come into force when " + node + " starts again"
		}
		w.hit(gate.Hit{Class: ClassSetting, Weight: gate.WeightDanger, Object: o, Matter: matter, Text: what + ", whoever made them: " + orText(names(changed), "some that could not be told to belong to one interface")})
	}
	if !apply {
		return
	}
	if all {
		for name := range n.rows {
			changed = append(changed, name)
		}
		slices.Sort(changed)
		changed = slices.Compact(changed)
	}
	if !read { // each could be changed
		w.unread(ClassLockout, gate.WeightDanger, o, "what is staged on "+node, gate.KindLockout)
		w.unread(ClassNetwork, gate.WeightDanger, o, "what is staged on "+node, gate.KindOutage)
		w.unread(ClassLosesDisk, gate.WeightDanger, o, "what is staged on "+node, gate.KindOutage)
		w.unreadSelf(o, "what is staged on "+node)
	}
	w.cut(c, node, n, ok, changed, true)
}

// stagedOn lists the interfaces whose settings wait on a node, and what tells their changes from others. all: some change
// could not be told to belong to one.
func (w *walk) stagedOn(node string) (changed []string, all bool, matter string, ok bool) {
	a, err := w.v.Read(w.ctx, w.s.Target().Name, gate.Read{Operation: "GET /nodes/{node}/network", Params: map[string]string{"node": node}})
	if err != nil {
		return nil, true, "", false
	}
	text := string(a.Siblings["changes"])
	if text == "" || text == "null" {
		return nil, false, "", true
	}
	var lines []string
	for line := range strings.Lines(unquoted(text)) {
		if (line[0] == '+' || line[0] == '-') && !strings.HasPrefix(line, "+++") && !strings.HasPrefix(line, "---") {
			lines = append(lines, line)
		}
	}
	changed, all = stagedIn(unquoted(text))
	return changed, all, digestOf(lines), true
}

// stagedIn reads the difference between two interface files.
func stagedIn(diff string) (changed []string, all bool) {
	at := ""
	for line := range strings.Lines(diff) {
		line = strings.TrimRight(line, "\r\n")
		switch {
		case strings.HasPrefix(line, "+++") || strings.HasPrefix(line, "---"):
			continue
		case strings.HasPrefix(line, "@@"):
			at = ""
			continue
		case line == "":
			continue
		}
		mark, rest := line[0], strings.Fields(line[1:])
		if len(rest) == 0 {
			continue
		}
		switch word := rest[0]; {
		case len(rest) > 1 && (word == "iface" || word == "auto" || strings.HasPrefix(word, "allow-")):
			at = rest[1]
		case strings.HasPrefix(word, "#") || word == "source":
			if mark != ' ' && word == "source" {
				all = true
			}
			continue
		}
		if mark != '+' && mark != '-' {
			continue
		}
		if at == "" {
			all = true
			continue
		}
		if !slices.Contains(changed, at) {
			changed = append(changed, at)
		}
	}
	return changed, all
}

// alterNode walks settings of a node that guests and others rest on.
func (w *walk) alterNode(c change) {
	o, node := c.object, c.detail["node"]
	switch c.detail["what"] {
	case "dns":
		w.hit(gate.Hit{Class: ClassNetwork, Weight: gate.WeightCaution, Object: o, Text: node + " resolves names by others: storages, backups, updates and mail that go by name depend on it"})
	case "hosts":
		w.hit(gate.Hit{Class: ClassNetwork, Weight: gate.WeightDanger, Object: o, Text: "the names that " + node + " knows by itself are replaced as a whole: the cluster finds its members by them"})
		status, ok := w.s.Status()
		if !ok {
			w.unread(ClassHA, gate.WeightDanger, o, "the addresses of the cluster's members", gate.KindOutage)
			w.unread(ClassNetwork, gate.WeightDanger, o, "the addresses of the cluster's members", gate.KindOutage)
		}
		for _, s := range status {
			if s["type"] == "node" && s["name"] == node && s["ip"] != "" && !strings.Contains(c.keys["data"], s["ip"]) {
				w.hit(gate.Hit{Class: ClassHA, Weight: gate.WeightDanger, Object: o, Kinds: []gate.Kind{gate.KindOutage}, Text: "its own address " + s["ip"] + " is not among them: its cluster services would not start again"})
			}
		}
	case "time":
		w.hit(gate.Hit{Class: ClassTime, Weight: gate.WeightNote, Object: o, Text: "jobs of " + node + " run by another time zone"})
	case "config":
		w.nodeConfig(c)
	}
}
