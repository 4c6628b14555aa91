package reach

import (
	"crypto/sha256"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

func firewallRules() []rule {
	return []rule{{filters, gate.ObjectFirewall, (*walk).firewall}}
}

// sensitivePorts are those that give away a host, a data base or a file share when anybody can come to them.
var sensitivePorts = []uint16{22, 23, 111, 135, 139, 389, 445, 636, 2375, 2376, 3128, 3306, 3389, 5432, 5900, 5901, 5950, 5985, 5986, 5999, 6379, 8006, 9200, 27017}

// maxGuestsScanned bounds how many guests' rules are read for a change of what they may share.
const maxGuestsScanned = 400

// firewall walks a change of rules, options or sets: it evaluates the rules as they are and as they would be.
func (w *walk) firewall(c change) {
	kind, id, _ := strings.Cut(c.object.ID, "/")
	if kind == "vnet" {
		w.vnetFirewall(c, id)
		return
	}
	before := w.readSiteFirewall()
	for _, s := range w.before {
		if earlier, known := readFirewall(w, *s.API); known {
			for _, e := range earlier {
				before = before.change(e)
			}
		}
	}
	if before.gap {
		w.firewallUnread(c, "the rules of the site")
		return
	}
	after := before.change(c)
	w.notEmpty(c, before)
	defer w.told(c, before, after)
	switch kind {
	case "node":
		w.hosts(c, before, after, []string{id})
	case "guest":
		if g, ok := w.guest(id); ok {
			w.guestsFiltered(c, before, after, []estate.Guest{g})
		} else if len(w.s.Gaps(estate.PartResources)) > 0 {
			w.firewallUnread(c, "the guest")
		}
	default:
		w.outgoing(c, before, after)
		inv := w.s.Inventory()
		if len(w.s.Gaps(estate.PartResources)) > 0 {
			w.firewallUnread(c, "the list of nodes and guests")
		}
		if before.cluster.options.On("enable") || after.cluster.options.On("enable") {
			var nodes []string
			for _, n := range inv.Nodes {
				nodes = append(nodes, n.Name)
			}
			each(len(nodes), func(i int) { before.node(nodes[i]) })
			after = before.change(c)
			w.hosts(c, before, after, nodes)
			if c.detail["what"] != "rules" { // the site's own rules are for nodes
				w.guestsFiltered(c, before, after, inv.Guests)
			}
		}
	}
}

func (w *walk) firewallUnread(c change, what string) {
	w.unread(ClassLockout, gate.WeightDanger, c.object, what, gate.KindLockout)
	w.unread(ClassOpens, gate.WeightDanger, c.object, what)
	w.unread(ClassNetwork, gate.WeightDanger, c.object, what, gate.KindOutage)
	w.unread(ClassSelf, gate.WeightDanger, c.object, what, gate.KindGoverns)
	w.unread(ClassReferences, gate.WeightCaution, c.object, what)
	w.unread(ClassLosesDisk, gate.WeightDanger, c.object, what, gate.KindOutage)
	w.unread(ClassSetting, gate.WeightCaution, c.object, what)
	w.unread(ClassHA, gate.WeightDanger, c.object, what, gate.KindOutage)
	if group, set := deletesList(c); group || set {
		w.unread(ClassBlocked, gate.WeightNote, c.object, what)
	}
}

// deletesList says whether a request deletes a security group, or a set of addresses without being forced to: Proxmox wants
// them to be empty.
func deletesList(c change) (group, set bool) {
	d := c.detail
	return d["what"] == "groups" && d["rest"] == "{group}" && d["method"] == "DELETE",
		d["what"] == "ipset" && d["rest"] == "{name}" && d["method"] == "DELETE" && !estate.Config(c.keys).On("force")
}

// notEmpty says that such a list has something in it.
func (w *walk) notEmpty(c change, f *siteFirewall) {
	text := ""
	switch group, set := deletesList(c); {
	case group && len(f.groups[c.detail["group"]]) > 0:
		text = "security group " + clean(c.detail["group"]) + " has " + plural(len(f.groups[c.detail["group"]]), "rule", "rules")
	case set:
		s := f.cluster
		if kind, id, _ := strings.Cut(c.object.ID, "/"); kind == "guest" {
			g, ok := w.guest(id)
			if !ok {
				return
			}
			s = f.guest(g)
		}
		if n := len(s.sets.sets[c.detail["name"]]); n > 0 {
			text = "set " + clean(c.detail["name"]) + " has " + plural(n, "entry", "entries") + ", and force is not given"
		}
	}
	if text != "" {
		w.hit(gate.Hit{Class: ClassBlocked, Weight: gate.WeightNote, Object: c.object, Blocks: true, Text: text + ": Proxmox does not delete it before it is empty"})
	}
}

// told says what is known without evaluating: that nothing is filtered yet, and what goes on naming what is gone.
func (w *walk) told(c change, before, after *siteFirewall) {
	if !before.cluster.options.On("enable") && !after.cluster.options.On("enable") {
		w.hit(gate.Hit{Class: ClassSetting, Weight: gate.WeightNote, Object: c.object, Text: "the firewall of the site is off: nothing of it is in force until it is switched on"})
	}
	if c.object.ID == "cluster" {
		w.vnetsNaming(c)
	}
	gone := ""
	switch d := c.detail; {
	case d["what"] == "aliases" && (d["method"] == "DELETE" || c.keys["rename"] != ""):
		gone = d["name"]
	case d["what"] == "ipset" && d["rest"] == "{name}" && d["method"] == "DELETE":
		gone = "+" + d["name"]
	case d["what"] == "ipset" && d["rest"] == "" && c.keys["rename"] != "" && c.keys["rename"] != d["name"]:
		gone = "+" + c.keys["rename"]
	case d["what"] == "groups" && d["rest"] == "{group}" && d["method"] == "DELETE":
		gone = "group " + d["group"]
	default:
		return
	}
	count := 0
	for scope, s := range before.all() {
		for _, r := range s {
			if r["type"] == "group" && "group "+r["action"] == gone || slices.ContainsFunc(append(list(r["source"]), list(r["dest"])...), func(e string) bool { return sameName(e, gone) }) {
				count++
				w.hit(gate.Hit{Class: ClassReferences, Weight: gate.WeightCaution, Object: object(gate.ObjectFirewall, scope), Text: "a rule of " + scope + " names " + gone + " and does nothing any more"})
			}
		}
	}
	if count == 0 {
		w.hit(gate.Hit{Class: ClassReferences, Weight: gate.WeightNote, Object: c.object, Text: "no rule that was looked at names " + gone})
	}
}

func sameName(e, gone string) bool {
	plain := func(s string) string {
		set := strings.HasPrefix(s, "+")
		s = strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(s, "+"), "dc/"), "guest/")
		if set {
			return "+" + s
		}
		return strings.ToLower(s)
	}
	return plain(e) == plain(gone)
}

// all lists the rules that have been read, by scope.
func (f *siteFirewall) all() map[string][]estate.Config {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[string][]estate.Config{"cluster": f.cluster.rules}
	for name, g := range f.groups {
		out["group/"+name] = g
	}
	for name, s := range f.scopes {
		out[name] = s.rules
	}
	return out
}

// hosts compares the rulesets of nodes.
func (w *walk) hosts(c change, before, after *siteFirewall, nodes []string) {
	var gap []string
	for _, node := range nodes {
		was, ok1 := before.hostRules(node)
		is, ok2 := after.hostRules(node)
		if !ok1 || !ok2 || was.nolan && (was.on || is.on) {
			gap = append(gap, node)
			continue
		}
		w.lockouts(c, object(gate.ObjectNode, node), "node "+node, was, is)
		w.opens(object(gate.ObjectNode, node), "node "+node, was, is)
		w.sends(c, node, was, is)
		w.passesOn(node, was, is)
		w.stays(node, c, is)
	}
	if len(gap) > 0 {
		what := "the rules or networks of " + names(gap)
		w.unread(ClassLockout, gate.WeightDanger, c.object, what, gate.KindLockout)
		w.unread(ClassOpens, gate.WeightDanger, c.object, what)
		w.unread(ClassNetwork, gate.WeightDanger, c.object, what, gate.KindOutage)
		w.unread(ClassHA, gate.WeightDanger, c.object, what, gate.KindOutage)
		w.unread(ClassLosesDisk, gate.WeightDanger, c.object, what, gate.KindOutage)
		w.unreadSelf(c.object, what)
		w.unread(ClassReferences, gate.WeightCaution, c.object, what)
		if c.detail["what"] == "options" {
			w.unread(ClassSetting, gate.WeightNote, c.object, what)
		}
	}
}

// guestsFiltered compares the rulesets of guests.
func (w *walk) guestsFiltered(c change, before, after *siteFirewall, guests []estate.Guest) {
	if len(guests) > maxGuestsScanned {
		w.firewallUnread(c, fmt.Sprintf("the rules of %d guests beyond the first %d", len(guests)-maxGuestsScanned, maxGuestsScanned))
		guests = guests[:maxGuestsScanned]
	}
	each(len(guests), func(i int) { before.guest(guests[i]); w.s.Config(guests[i]) })
	after = before.change(c)
	named := len(guests) == 1
	var gap []string
	for _, g := range guests {
		conf, ok := w.s.Config(g)
		filtered := false
		for key, text := range conf {
			v, _ := gate.PropertyValue(text, "firewall")
			filtered = filtered || strings.HasPrefix(key, "net") && v == "1"
		}
		was, ok1 := before.guestRules(g, filtered)
		is, ok2 := after.guestRules(g, filtered)
		if !ok || !ok1 || !ok2 {
			gap = append(gap, g.ID)
			continue
		}
		if named && !filtered {
			w.hit(gate.Hit{Class: ClassSetting, Weight: gate.WeightNote, Object: object(gate.ObjectGuest, g.ID), Text: g.Title() + ": none of its interfaces is filtered (firewall=1 is set on none)"})
		}
		o := object(gate.ObjectGuest, g.ID)
		w.opens(o, g.Title(), was, is)
		lost, unsure := w.shuts(was, is)
		own := w.ownGuest(g)
		if own != no && !same(was, is) {
			w.hit(gate.Hit{Class: ClassSelf, Weight: gate.WeightDanger, Object: o, Unknown: own == perhaps, Kinds: []gate.Kind{gate.KindGoverns}, Text: "what the firewall does for " + g.Title() + ", which castellan depends on, changes"})
		}
		shut := tightened(was.effective("out"), is.effective("out"), is.outward() != "ACCEPT")
		if is.on && is.outward() != "ACCEPT" && (!was.on || was.outward() == "ACCEPT") || len(shut) > 0 {
			w.hit(gate.Hit{Class: ClassNetwork, Weight: gate.WeightCaution, Object: o, Unknown: true, Text: g.Title() + " may not send some of what it sends now"})
			if own != no {
				w.hit(gate.Hit{Class: ClassLockout, Weight: gate.WeightDanger, Object: o, Unknown: true, Kinds: []gate.Kind{gate.KindLockout}, Text: "castellan may not get out of " + g.Title() + " any more"})
			}
		}
		if lost == "" {
			continue
		}
		hit := gate.Hit{Class: ClassNetwork, Weight: gate.WeightCaution, Object: o, Unknown: unsure, Text: g.Title() + " is not reached any more: " + lost}
		if unsure {
			hit.Text = g.Title() + " may not be reached any more: " + lost
		}
		if !named {
			hit.Weight, hit.Kinds = gate.WeightDanger, []gate.Kind{gate.KindOutage}
		}
		w.hit(hit)
		if own != no {
			w.hit(gate.Hit{Class: ClassLockout, Weight: gate.WeightDanger, Object: o, Unknown: true, Kinds: []gate.Kind{gate.KindLockout}, Text: "approvers may not get to castellan any more: " + lost})
		}
	}
	if len(gap) > 0 {
		w.firewallUnread(c, "the rules or settings of guests "+names(gap))
	}
}

// shuts tells on which ports and from where a side is not reached any more; when that is sure of no port, unsure tells where it
// may not be. Empty: nothing changes.
func (w *walk) shuts(was, is *ruleset) (text string, unsure bool) {
	cells := atoms(append(was.spans(), is.spans()...))
	lost, perhaps := &portsFrom{sets: []*ruleset{was, is}}, &portsFrom{sets: []*ruleset{was, is}}
	for _, port := range portsOf(was, is) {
		var gone, may []span
		for _, cell := range cells {
			switch a, b := was.judge(cell.from, port), is.judge(cell.from, port); {
			case a&accepted != 0 && b == refused:
				gone = append(gone, cell)
			case a == accepted && b&refused != 0:
				may = append(may, cell)
			}
		}
		lost.add(port, gone)
		perhaps.add(port, may)
	}
	if len(lost.order) == 0 {
		return perhaps.String(), true
	}
	lost.whole(func(from netip.Addr, port uint16) bool { return is.judge(from, port) == refused })
	return lost.String(), false
}

// portsFrom are ports by the addresses from which something is so.
type portsFrom struct {
	sets  []*ruleset
	order []string
	ports map[string][]uint16
	spans map[string][]span
}

func (p *portsFrom) add(port uint16, from []span) {
	if len(from) == 0 {
		return
	}
	key := spansText(from)
	if p.ports == nil {
		p.ports, p.spans = map[string][]uint16{}, map[string][]span{}
	}
	if p.ports[key] == nil {
		p.order, p.spans[key] = append(p.order, key), from
	}
	p.ports[key] = append(p.ports[key], port)
}

// whole counts all ports where it comes to be so of nearly all and is of each in the end, as it may be of some now already; what lies within
// those addresses is told with them.
func (p *portsFrom) whole(so func(netip.Addr, uint16) bool) {
	all := portsOf(p.sets...)
	for _, key := range slices.Clone(p.order) {
		if !slices.Contains(p.ports[key], otherPort) || slices.ContainsFunc(p.spans[key], func(s span) bool {
			return slices.ContainsFunc(all, func(port uint16) bool { return !so(s.from, port) })
		}) {
			continue
		}
		p.ports[key] = all
		p.order = slices.DeleteFunc(p.order, func(k string) bool { return k != key && spansIn(p.spans[k], p.spans[key]) })
	}
}

func spansIn(inner, outer []span) bool {
	return !slices.ContainsFunc(inner, func(a span) bool {
		return !slices.ContainsFunc(outer, func(b span) bool {
			return a.from.BitLen() == b.from.BitLen() && !a.from.Less(b.from) && !b.to.Less(a.to)
		})
	})
}

// String tells of the addresses with the most ports first.
func (p *portsFrom) String() string {
	const most = 3
	order := slices.Clone(p.order)
	slices.SortStableFunc(order, func(a, b string) int { return len(p.ports[b]) - len(p.ports[a]) })
	var out []string
	for _, from := range order[:min(most, len(order))] {
		out = append(out, portsText(p.ports[from], p.sets...)+" from "+from)
	}
	text := strings.Join(out, ", and ")
	if n := len(order) - most; n > 0 {
		text += fmt.Sprintf(", and on others from %d other sets of addresses", n)
	}
	return text
}

// portsText names ports among those that portsOf looks at: where the one that no rule names is of them, those that are not.
func portsText(ports []uint16, sets ...*ruleset) string {
	var in, out []string
	for _, port := range portsOf(sets...) {
		if slices.Contains(ports, port) {
			in = append(in, fmt.Sprint(port))
		} else {
			out = append(out, fmt.Sprint(port))
		}
	}
	switch {
	case len(out) == 0:
		return "every port"
	case slices.Contains(ports, otherPort):
		return "nearly every port (not " + names(out) + ")"
	case len(in) == 1:
		return "port " + in[0]
	}
	return "ports " + names(in)
}

// otherPort stands for those that no rule names.
const otherPort = 61234

// portsOf are the sensitive ports, those that rules name, and one that none names.
func portsOf(sets ...*ruleset) []uint16 {
	out := slices.Concat(sensitivePorts, []uint16{80, 443, otherPort})
	for _, f := range sets {
		for _, rules := range append([][]estate.Config{f.rules}, valuesOf(f.groups)...) {
			for _, r := range rules {
				for _, p := range list(r["dport"]) {
					first, _, _ := strings.Cut(p, ":")
					if n, ok := portOf(first); ok && n > 0 && n < 65536 {
						out = append(out, uint16(n))
					}
				}
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func valuesOf(m map[string][]estate.Config) (out [][]estate.Config) {
	for _, v := range m {
		out = append(out, v)
	}
	return out
}

// opens says what becomes reachable.
func (w *walk) opens(o gate.Object, title string, was, is *ruleset) {
	cells := atoms(append(was.spans(), is.spans()...))
	found := &portsFrom{sets: []*ruleset{was, is}}
	weight := gate.WeightCaution
	for _, port := range portsOf(was, is) {
		var more []span
		for _, cell := range cells {
			if was.judge(cell.from, port) == refused && is.judge(cell.from, port)&accepted != 0 {
				more = append(more, cell)
			}
		}
		found.add(port, more)
		if slices.Contains(sensitivePorts, port) && slices.ContainsFunc(join(more), span.wide) {
			weight = gate.WeightDanger
		}
	}
	if len(found.order) == 0 {
		return
	}
	var all []string // what an alias, a set or a group stands for may change until the step comes: then it opens something else
	for _, k := range found.order {
		all = append(all, fmt.Sprint(k, " ", found.ports[k]))
	}
	slices.Sort(all)
	found.whole(func(from netip.Addr, port uint16) bool { return is.judge(from, port) == accepted })
	w.hit(gate.Hit{Class: ClassOpens, Weight: weight, Object: o, Text: title + " is reached on " + found.String(), Matter: fmt.Sprintf("opens %x", sha256.Sum256([]byte(strings.Join(all, "\n"))))})
}

// stays says for a node whether its management ports stay reachable from its own cluster network.
func (w *walk) stays(node string, c change, is *ruleset) {
	if c.detail["what"] != "options" || len(is.local) == 0 {
		return
	}
	var parts []string
	for _, port := range []uint16{22, 8006} {
		parts = append(parts, fmt.Sprintf("%d %s", port, is.judge(is.local[0].from.Next(), port)))
	}
	w.hit(gate.Hit{Class: ClassSetting, Weight: gate.WeightNote, Object: object(gate.ObjectNode, node), Text: fmt.Sprintf("node %s, from its own network %s: %s", node, spansText(is.local), strings.Join(parts, ", "))})
}

// outgoing looks at a policy that stops what nodes send: storage servers are reached over the network.
func (w *walk) outgoing(c change, before, after *siteFirewall) {
	shut := func(f *siteFirewall) bool {
		p := strings.ToUpper(f.cluster.options["policy_out"])
		return f.cluster.options.On("enable") && (p == "DROP" || p == "REJECT")
	}
	if shut(before) || !shut(after) {
		return
	}
	rows, ok := w.s.Storages()
	if !ok {
		w.unread(ClassLosesDisk, gate.WeightDanger, c.object, "which storages are reached over the network", gate.KindOutage)
	}
	for _, s := range rows {
		if server := s["server"] + s["portal"] + s["monhost"]; server != "" && !s.On("disable") {
			w.hit(gate.Hit{Class: ClassLosesDisk, Weight: gate.WeightDanger, Object: object(gate.ObjectStorage, s["storage"]), Unknown: true, Kinds: []gate.Kind{gate.KindOutage},
				Text: "nodes send nothing out any more but what rules let through: storage " + s["storage"] + " is reached over the network"})
		}
	}
	w.hit(gate.Hit{Class: ClassNetwork, Weight: gate.WeightDanger, Object: object(gate.ObjectSite, ""), Unknown: true, Kinds: []gate.Kind{gate.KindOutage},
		Text: "name resolution, time, updates, mail and backups of every node go out only where rules let them through"})
}

// vnetFirewall: forwarded traffic of a vnet is filtered at every node that has it.
func (w *walk) vnetFirewall(c change, vnet string) {
	closing := c.detail["what"] == "rules" || c.keys["enable"] == "1" || strings.EqualFold(c.keys["policy_forward"], "DROP")
	fresh := c.detail["what"] == "rules" && c.detail["method"] == "POST"
	if !closing || fresh && (c.keys["action"] == "ACCEPT" || c.keys["enable"] != "1") {
		w.hit(gate.Hit{Class: ClassOpens, Weight: gate.WeightCaution, Object: c.object, Text: "vnet " + vnet + " lets through more"})
		return
	}
	if c.detail["what"] == "rules" && !fresh { // a rule that goes or changes may have been what kept others out
		w.hit(gate.Hit{Class: ClassOpens, Weight: gate.WeightCaution, Object: c.object, Unknown: true, Text: "vnet " + vnet + " may let through more"})
	}
	w.attached("", []string{vnet}, c.object, gate.WeightCaution, nil, func(g estate.Guest, _ string) {
		w.hit(gate.Hit{Class: ClassNetwork, Weight: gate.WeightCaution, Object: object(gate.ObjectGuest, g.ID), Unknown: true, Text: g.Title() + " is on vnet " + vnet + ", whose traffic would be filtered otherwise"})
	})
}

// apiPort is where the API is reached.
const apiPort = 8006

// lockouts compares for castellan, approvers and operators; of whom no address is known, every address is compared.
func (w *walk) lockouts(c change, o gate.Object, title string, was, is *ruleset) {
	cells := atoms(append(was.spans(), is.spans()...))
	for _, who := range w.people() {
		where := who.spans
		if len(where) == 0 {
			where = cells
		}
		for _, port := range who.ports {
			var lost, perhapsLost []span
			for _, cell := range slicesOf(cells, where) {
				a, b := was.judge(cell.from, port), is.judge(cell.from, port)
				switch {
				case a&accepted != 0 && b == refused:
					lost = append(lost, cell)
				case a == accepted && b&refused != 0:
					perhapsLost = append(perhapsLost, cell)
				}
			}
			unknown := len(who.spans) == 0
			if len(lost) == 0 {
				lost, unknown = perhapsLost, true
			}
			if len(lost) == 0 {
				continue
			}
			text := fmt.Sprintf("%s would not let %s in on port %d from %s", title, who.name, port, spansText(lost))
			if len(who.spans) == 0 {
				text += " (no address of " + who.name + " is known)"
			}
			w.hit(gate.Hit{Class: ClassLockout, Weight: gate.WeightDanger, Object: o, Unknown: unknown, Kinds: []gate.Kind{gate.KindLockout}, Text: text})
			break
		}
	}
}

// person is somebody who has to keep getting in.
type person struct {
	name  string
	spans []span // none: not known
	ports []uint16
}

func (w *walk) people() []person {
	var own, approvers, operators []span
	if w.self.Own != nil {
		for _, a := range w.self.Own(w.ctx, w.s.Target().Name) {
			own = append(own, span{a.Unmap(), a.Unmap()})
		}
	}
	if w.self.Approvers != nil {
		for _, a := range w.self.Approvers(w.ctx) {
			if a.IsLoopback() { // they come by the machine that castellan runs on, or through it
				continue
			}
			approvers = append(approvers, span{a.Unmap(), a.Unmap()})
		}
	}
	for _, p := range w.self.Operators {
		operators = append(operators, spanOf(p))
	}
	out := []person{{"castellan itself", own, []uint16{apiPort}}}
	if len(approvers) > 0 {
		out = append(out, person{"an approver", approvers, []uint16{apiPort, 22}})
	}
	if len(operators) > 0 || len(approvers) == 0 {
		out = append(out, person{"operators", operators, []uint16{apiPort, 22}})
	}
	return out
}

// slicesOf are the parts of the cells that lie in one of the spans.
func slicesOf(cells, within []span) (out []span) {
	for _, c := range cells {
		for _, s := range within {
			if s.from.BitLen() != c.from.BitLen() {
				continue
			}
			from, to := later(c.from, s.from), c.to
			if s.to.Less(to) {
				to = s.to
			}
			if from.Compare(to) <= 0 {
				out = append(out, span{from, to})
			}
		}
	}
	return out
}

func later(a, b netip.Addr) netip.Addr {
	if a.Less(b) {
		return b
	}
	return a
}
