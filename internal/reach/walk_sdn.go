package reach

import (
	"fmt"
	"slices"
	"strings"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

func sdnRules() []rule {
	out := []rule{{bringsIn, gate.ObjectSite, (*walk).applySDN}, {cuts, gate.ObjectSite, (*walk).dropSDN}}
	for _, v := range []verb{creates, alters, removes} {
		out = append(out, rule{v, gate.ObjectZone, (*walk).stageSDN}, rule{v, gate.ObjectVNet, (*walk).stageSDN})
	}
	return out
}

// staged is one thing of the site's network that waits to be applied.
type staged struct {
	kind  string // zone, vnet, subnet, controller, ...
	id    string
	state string // new, changed, deleted
	keys  []string
	row   estate.Config
}

func (s staged) String() string {
	out := s.kind + " " + s.id + " " + s.state
	if s.state == "changed" && len(s.keys) > 0 {
		out += " (" + names(s.keys) + ")"
	}
	return out
}

// matter tells what is staged from something else that is staged of the same thing. What the plan itself stages first is
// not there yet when it is planned.
func (s staged) matter(own int) string {
	if own > 0 {
		return ""
	}
	return digestOf([]string{s.state, s.row["pending"]})
}

// sdnParts are the lists of things that can be staged.
func sdnParts() map[string]string {
	return map[string]string{"zone": "GET /cluster/sdn/zones", "vnet": "GET /cluster/sdn/vnets", "controller": "GET /cluster/sdn/controllers",
		"fabric": "GET /cluster/sdn/fabrics/fabric", "fabric node": "GET /cluster/sdn/fabrics/node", "prefix list": "GET /cluster/sdn/prefix-lists", "route map": "GET /cluster/sdn/route-maps/entries"}
}

// stagedSDN lists everything that waits. What an older version does not have is no gap.
func (w *walk) stagedSDN() (all []staged, gap []string) {
	take := func(kind string, rows []estate.Config) {
		for _, r := range rows {
			if r["state"] == "" || r["state"] == "unchanged" {
				continue
			}
			keys := []string{}
			if p, err := estate.ParseConfig([]byte(r["pending"])); err == nil {
				for k := range p {
					keys = append(keys, k)
				}
			}
			slices.Sort(keys)
			all = append(all, staged{kind: kind, id: firstOf(r, strings.ReplaceAll(kind, " ", "_"), "id", "subnet", "zone", "vnet", "fabric_id"), state: r["state"], keys: keys, row: r})
		}
	}
	for _, kind := range []string{"zone", "vnet", "controller", "fabric", "fabric node", "prefix list", "route map"} {
		part := estate.PartZones
		if kind == "vnet" {
			part = estate.PartVNets
		}
		rows, ok := w.s.Rows(part, "", gate.Read{Operation: sdnParts()[kind], Params: map[string]string{"pending": "1"}})
		if !ok && !w.without(sdnParts()[kind], map[string]string{"pending": "1"}) {
			gap = append(gap, kind+"s")
		}
		take(kind, rows)
		if kind != "vnet" {
			continue
		}
		for _, v := range rows {
			subnets, ok := w.s.Rows(part, v["vnet"], gate.Read{Operation: "GET /cluster/sdn/vnets/{vnet}/subnets", Params: map[string]string{"vnet": v["vnet"], "pending": "1"}})
			if !ok && v["state"] != "deleted" {
				gap = append(gap, "subnets of "+v["vnet"])
			}
			take("subnet", subnets)
		}
	}
	return all, gap
}

func firstOf(c estate.Config, keys ...string) string {
	for _, k := range keys {
		if c[k] != "" {
			return c[k]
		}
	}
	return ""
}

// mildKeys of a vnet or zone change no traffic.
var mildKeys = []string{"alias", "digest", "ipam", "dns", "dnszone", "reversedns", "comment"}

// applySDN walks the apply: everything that is staged, by whomever, comes into force on every node, and with it what is
// staged of the nodes' own interfaces.
func (w *walk) applySDN(c change) {
	if c.detail["what"] != "sdn" {
		return
	}
	o := c.object
	all, gap := w.stagedSDN()
	if len(gap) > 0 {
		what := "what is staged of " + names(gap)
		w.unread(ClassSetting, gate.WeightDanger, o, what)
		w.unread(ClassNetwork, gate.WeightDanger, o, what, gate.KindOutage)
		w.unread(ClassLockout, gate.WeightDanger, o, what, gate.KindLockout) // it may take over an address
		w.unreadSelf(o, what)
	}
	own := 0
	for _, s := range w.before {
		if _, known := readNetwork(w, *s.API); known && strings.Contains(s.API.Operation, "/cluster/sdn/") && !strings.HasSuffix(s.API.Operation, "/lock") {
			own++
		}
	}
	if len(all) == 0 && own == 0 && len(gap) == 0 {
		w.hit(gate.Hit{Class: ClassSetting, Weight: gate.WeightNote, Object: o, Text: "nothing is staged: the network of every node is read anew as it is"})
	}
	var lost, shaken []string
	vnets, _ := w.s.VNets()
	for _, s := range all {
		weight := gate.WeightCaution
		mild := !slices.ContainsFunc(s.keys, func(k string) bool { return !slices.Contains(mildKeys, k) })
		switch {
		case s.state == "new" || s.state == "changed" && mild && s.kind != "fabric":
			weight = gate.WeightNote
		case s.state == "deleted":
			weight = gate.WeightDanger
		}
		w.hit(gate.Hit{Class: ClassSetting, Weight: weight, Object: object(gate.ObjectZone, s.kind+" "+s.id), Matter: s.matter(own), Text: "comes into force, whoever staged it: " + s.String()})
		w.takesOver(object(gate.ObjectSite, "sdn"), s.kind+" "+s.id, stagedWays(s), nil, gate.WeightDanger, "once it is applied")
		if weight == gate.WeightNote {
			continue
		}
		add := func(vnet string) {
			if s.state == "deleted" {
				lost = append(lost, vnet)
			} else {
				shaken = append(shaken, vnet)
			}
		}
		switch s.kind {
		case "vnet":
			add(s.id)
		case "subnet":
			add(s.row["vnet"])
		default:
			for _, v := range vnets {
				if s.kind != "zone" || v["zone"] == s.id || strings.Contains(v["pending"], `"`+s.id+`"`) {
					add(v["vnet"])
				}
			}
		}
	}
	slices.Sort(lost)
	slices.Sort(shaken)
	w.attached("", append(slices.Compact(lost), slices.Compact(shaken)...), o, gate.WeightDanger, []gate.Kind{gate.KindOutage}, func(g estate.Guest, vnet string) {
		text := g.Title() + " is on vnet " + vnet + ", which changes"
		if slices.Contains(lost, vnet) {
			text = g.Title() + " loses its network: vnet " + vnet + " goes"
		}
		w.hit(gate.Hit{Class: ClassNetwork, Weight: gate.WeightDanger, Object: object(gate.ObjectGuest, g.ID), Kinds: []gate.Kind{gate.KindOutage}, Way: []gate.Object{object(gate.ObjectVNet, vnet)}, Text: text})
		if own := w.ownGuest(g); own != no {
			w.hit(gate.Hit{Class: ClassSelf, Weight: gate.WeightDanger, Object: object(gate.ObjectGuest, g.ID), Unknown: own == perhaps, Kinds: []gate.Kind{gate.KindGoverns}, Text: g.Title() + ", which castellan depends on, is on vnet " + vnet})
		}
	})
	inv := w.s.Inventory()
	if len(w.s.Gaps(estate.PartResources)) > 0 {
		what := "which nodes there are, and what is staged of their interfaces"
		w.unread(ClassSetting, gate.WeightDanger, o, what)
		w.unread(ClassLockout, gate.WeightDanger, o, what, gate.KindLockout)
		w.unread(ClassLosesDisk, gate.WeightDanger, o, what, gate.KindOutage)
	}
	for _, n := range inv.Nodes {
		if n.Status == "online" {
			w.applyNode(c, n.Name, true)
		}
	}
}

// stageSDN walks a change of a zone, a vnet or the like: it waits for the next apply.
func (w *walk) stageSDN(c change) {
	o := c.object
	w.hit(gate.Hit{Class: ClassSetting, Weight: gate.WeightNote, Object: o, Text: "it waits for the next apply of the site's network, whoever calls it"})
	if c.verb != removes {
		row := c.keys
		switch id := c.detail["subnet"]; {
		case c.detail["what"] != "subnet":
			w.takesOver(o, strings.TrimSpace(string(o.Kind)+" "+o.ID), networksIn(row), nil, gate.WeightCaution, "once it is applied")
		case id != "":
			row = map[string]string{"subnet": id, "gateway": c.keys["gateway"]}
			fallthrough
		default:
			w.takesOver(o, "vnet "+o.ID, subnetOf(row, row["gateway"]), nil, gate.WeightCaution, "once it is applied")
		}
	}
	if c.verb == creates {
		return
	}
	mild := c.verb == alters
	for k := range c.keys {
		mild = mild && slices.Contains(mildKeys, k)
	}
	if mild {
		return
	}
	rows, ok := w.s.VNets()
	if !ok {
		w.unread(ClassNetwork, gate.WeightCaution, o, "which vnets there are")
		w.unread(ClassBlocked, gate.WeightCaution, o, "which vnets there are")
		w.unreadSelf(o, "which vnets there are")
	}
	var vnets []string
	for _, v := range rows {
		if o.Kind == gate.ObjectVNet && v["vnet"] == o.ID || o.Kind == gate.ObjectZone && v["zone"] == o.ID {
			vnets = append(vnets, v["vnet"])
		}
	}
	if c.verb == removes && c.detail["what"] == "zone" && len(vnets) > 0 {
		w.hit(gate.Hit{Class: ClassBlocked, Weight: gate.WeightCaution, Object: o, Blocks: true, Text: fmt.Sprintf("zone %s is used by vnets %s: Proxmox refuses", o.ID, names(vnets))})
	}
	if o.Kind == gate.ObjectVNet && len(vnets) == 0 {
		vnets = []string{o.ID}
	}
	w.attached("", vnets, o, gate.WeightCaution, nil, func(g estate.Guest, vnet string) {
		w.hit(gate.Hit{Class: ClassNetwork, Weight: gate.WeightCaution, Object: object(gate.ObjectGuest, g.ID), Way: []gate.Object{object(gate.ObjectVNet, vnet)}, Text: g.Title() + " is on vnet " + vnet + " and may lose its network once it is applied"})
		if own := w.ownGuest(g); own != no {
			w.hit(gate.Hit{Class: ClassSelf, Weight: gate.WeightDanger, Object: object(gate.ObjectGuest, g.ID), Unknown: own == perhaps, Kinds: []gate.Kind{gate.KindGoverns}, Text: g.Title() + ", which castellan depends on, is on vnet " + vnet})
		}
	})
}

// dropSDN walks the drop of what is staged, and of somebody's lock.
func (w *walk) dropSDN(c change) {
	if c.detail["what"] == "unlock" {
		w.hit(gate.Hit{Class: ClassSetting, Weight: gate.WeightCaution, Object: c.object, Text: "whoever holds the lock of the site's network loses it in the middle of a change"})
		return
	}
	all, gap := w.stagedSDN()
	if len(gap) > 0 {
		w.unread(ClassSetting, gate.WeightCaution, c.object, "what is staged of "+names(gap))
	}
	for _, s := range all {
		w.hit(gate.Hit{Class: ClassSetting, Weight: gate.WeightCaution, Object: object(gate.ObjectZone, s.kind+" "+s.id), Text: "is dropped, whoever staged it: " + s.String()})
	}
}
