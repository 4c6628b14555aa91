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
		if len(lost) == 0 {
			continue
		}
		hit := gate.Hit{Class: ClassNetwork, Weight: gate.WeightCaution, Object: o, Unknown: unsure, Text: g.Title() + " is not reached any more: " + lost[0]}
		if unsure {
			hit.Text = g.Title() + " may not be reached any more: " + lost[0]
		}
		if !named {
			hit.Weight, hit.Kinds = gate.WeightDanger, []gate.Kind{gate.KindOutage}
		}
		w.hit(hit)
		if own != no {
			w.hit(gate.Hit{Class: ClassLockout, Weight: gate.WeightDanger, Object: o, Unknown: true, Kinds: []gate.Kind{gate.KindLockout}, Text: "approvers may not get to castellan any more: " + lost[0]})
		}
	}
	if len(gap) > 0 {
		w.firewallUnread(c, "the rules or settings of guests "+names(gap))
	}
}

// shuts tells, per port that matters, from where a side is not reached any more; when that is sure of no port, unsure
// tells from where it may not be.
func (w *walk) shuts(was, is *ruleset) (out []string, unsure bool) {
	cells := atoms(append(was.spans(), is.spans()...))
	var perhaps []string
	for _, port := range portsOf(was, is) {
		var lost, may []span
		for _, cell := range cells {
			switch a, b := was.judge(cell.from, port), is.judge(cell.from, port); {
			case a&accepted != 0 && b == refused:
				lost = append(lost, cell)
			case a == accepted && b&refused != 0:
				may = append(may, cell)
			}
		}
		if len(lost) > 0 {
			out = append(out, fmt.Sprintf("port %d from %s", port, spansText(lost)))
		}
		if len(may) > 0 {
			perhaps = append(perhaps, fmt.Sprintf("port %d from %s", port, spansText(may)))
		}
	}
	if len(out) == 0 {
		return perhaps, true
	}
	return out, false
}

// portsOf are the sensitive ports, those that rules name, and one that none names.
func portsOf(sets ...*ruleset) []uint16 {
	out := append(slices.Clone(sensitivePorts), 80, 443, 61234)
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
	type opened struct {
		ports []string
		wide  bool
	}
	found := map[string]*opened{}
	var order []string
	weight := gate.WeightCaution
	for _, port := range portsOf(was, is) {
		var more []span
		for _, cell := range cells {
			if was.judge(cell.from, port) == refused && is.judge(cell.from, port)&accepted != 0 {
				more = append(more, cell)
			}
		}
		if len(more) == 0 {
			continue
		}
		key := spansText(more)
		if found[key] == nil {
			found[key] = &opened{}
			order = append(order, key)
		}
		found[key].ports = append(found[key].ports, fmt.Sprint(port))
		if slices.Contains(sensitivePorts, port) && slices.ContainsFunc(join(more), span.wide) {
			weight = gate.WeightDanger
		}
	}
	if len(order) == 0 {
		return
	}
	key := order[0]
	for _, k := range order {
		if len(found[k].ports) > len(found[key].ports) {
			key = k
		}
	}
	text := fmt.Sprintf("%s is reached on ports %s from %s", title, names(found[key].ports), key)
	if len(order) > 1 {
		text += fmt.Sprintf(", and on others from %d other sets of addresses", len(order)-1)
	}
	var all []string // what an alias, a set or a group stands for may change until the step comes: then it opens something else
	for _, k := range order {
		all = append(all, fmt.Sprint(k, " ", found[k].ports))
	}
	slices.Sort(all)
	w.hit(gate.Hit{Class: ClassOpens, Weight: weight, Object: o, Text: text, Matter: fmt.Sprintf("opens %x", sha256.Sum256([]byte(strings.Join(all, "\n"))))})
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
	w.hit(gate.Hit{Class: ClassNetwork, Weight: gate.WeightNote, Object: object(gate.ObjectNode, node), Text: fmt.Sprintf("node %s, from its own network %s: %s", node, spansText(is.local), strings.Join(parts, ", "))})
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
