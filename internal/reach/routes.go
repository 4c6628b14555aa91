package reach

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

// A node answers by the most exact network that it knows. Whatever gives it one more (an address on an interface, the
// gateway of a subnet) takes over the way to everybody in it.

// networksIn reads addresses with their networks from settings: of an interface, a subnet or a part of a fabric.
func networksIn(c map[string]string) (out []netip.Prefix) {
	take := func(text string) {
		if p, err := netip.ParsePrefix(text); err == nil {
			out = append(out, p.Masked())
		}
	}
	for _, key := range []string{"cidr", "cidr6"} {
		take(c[key])
	}
	for _, keys := range [][2]string{{"address", "netmask"}, {"address6", "netmask6"}} {
		a, err := netip.ParseAddr(c[keys[0]])
		if err != nil {
			take(c[keys[0]])
			continue
		}
		bits := a.BitLen()
		if m, err := netip.ParseAddr(c[keys[1]]); err == nil && m.Is4() {
			bits = 0
			for _, b := range m.AsSlice() {
				for ; b&0x80 != 0; b <<= 1 {
					bits++
				}
			}
		} else if c[keys[1]] != "" {
			bits = int(number(c[keys[1]]))
		}
		take(fmt.Sprintf("%s/%d", a, bits))
	}
	for _, word := range strings.FieldsFunc(c["interfaces"], func(r rune) bool { return strings.ContainsRune(`,;"[] `, r) }) {
		if key, value, ok := strings.Cut(word, "="); ok && (key == "ip" || key == "ip6") {
			take(value)
		}
	}
	return out
}

// subnetOf reads the network of a subnet; it is given to nodes only where it has a gateway there.
func subnetOf(c map[string]string, gateway string) []netip.Prefix {
	if gateway == "" {
		return nil
	}
	for _, text := range []string{c["cidr"], c["subnet"], c["id"]} {
		if p, err := netip.ParsePrefix(text); err == nil {
			return []netip.Prefix{p.Masked()}
		}
		parts := strings.Split(text, "-") // "zone-10.0.0.0-24"
		if n := len(parts); n >= 2 {
			if p, err := netip.ParsePrefix(parts[n-2] + "/" + parts[n-1]); err == nil {
				return []netip.Prefix{p.Masked()}
			}
		}
	}
	return []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)}
}

// takesOver says who is behind networks that come to a node, or to all (o is the site then): castellan, approvers,
// operators, the cluster's members and storages would be looked for there. known are networks that the node has by
// others of its interfaces: what lies in a more exact one of them is not taken.
func (w *walk) takesOver(o gate.Object, by string, networks, known []netip.Prefix, weight gate.Weight, when string) {
	taken := func(net netip.Prefix, s span) bool {
		n := spanOf(net)
		if s.from.BitLen() != n.from.BitLen() {
			return false
		}
		overlap := span{later(s.from, n.from), s.to}
		if n.to.Less(overlap.to) {
			overlap.to = n.to
		}
		return overlap.from.Compare(overlap.to) <= 0 && !slices.ContainsFunc(known, func(k netip.Prefix) bool {
			return k.Bits() > net.Bits() && k.Contains(overlap.from) && k.Contains(overlap.to)
		})
	}
	for _, net := range networks {
		for _, who := range w.people() {
			text := fmt.Sprintf("%s gets %s: what is sent to %s goes there %s", by, net, who.name, when)
			switch {
			case slices.ContainsFunc(who.spans, func(s span) bool { return taken(net, s) }):
				w.hit(gate.Hit{Class: ClassLockout, Weight: gate.WeightDanger, Object: o, Kinds: []gate.Kind{gate.KindLockout}, Text: text + ", and not to where they are"})
			case len(who.spans) == 0 && net.Bits() == 0:
				w.hit(gate.Hit{Class: ClassLockout, Weight: gate.WeightDanger, Object: o, Unknown: true, Kinds: []gate.Kind{gate.KindLockout}, Text: text})
			}
		}
		w.takesSite(o, by, net, taken, weight, when)
	}
}

// takesSite looks at members and storages behind a network that comes.
func (w *walk) takesSite(o gate.Object, by string, net netip.Prefix, taken func(netip.Prefix, span) bool, weight gate.Weight, when string) {
	kinds := []gate.Kind(nil)
	if weight == gate.WeightDanger {
		kinds = []gate.Kind{gate.KindOutage}
	}
	at := func(text string) bool {
		a, err := netip.ParseAddr(text)
		return err == nil && taken(net, span{a, a})
	}
	status, ok := w.s.Status()
	if !ok {
		w.unread(ClassHA, weight, o, "the addresses of the cluster's members", kinds...)
	}
	for _, s := range status {
		if s["type"] == "node" && (o.Kind != gate.ObjectNode || s["name"] != o.ID) && at(s["ip"]) {
			w.hit(gate.Hit{Class: ClassHA, Weight: weight, Object: o, Kinds: kinds, Text: fmt.Sprintf("%s gets %s, in which %s is: the members of the cluster may lose each other %s", by, net, s["name"], when)})
			break
		}
	}
	storages, ok := w.s.Storages()
	if !ok {
		w.unread(ClassLosesDisk, weight, o, "which storages are reached over the network", kinds...)
		w.unreadSelf(o, "which storages are reached over the network")
	}
	for _, s := range storages {
		if !s.On("disable") && at(s["server"]) {
			w.hit(gate.Hit{Class: ClassLosesDisk, Weight: weight, Object: object(gate.ObjectStorage, s["storage"]), Kinds: kinds, Text: fmt.Sprintf("%s gets %s, in which the server of storage %s is", by, net, s["storage"])})
		}
	}
}

// newWays looks at the networks and gateways that the changed interfaces of a node have: those that a request gives, and
// those that wait. What carries the node's own address is looked at elsewhere.
func (w *walk) newWays(c change, node string, n *wiring, touched []string, weight gate.Weight, when string) {
	o := object(gate.ObjectNode, node)
	var known []netip.Prefix
	for name, r := range n.rows {
		if !slices.Contains(touched, name) {
			known = append(known, networksIn(r)...)
		}
	}
	look := func(name string, settings map[string]string) {
		w.takesOver(o, name+" on "+node, networksIn(settings), known, weight, when)
		if settings["gateway"] != "" || settings["gateway6"] != "" {
			w.hit(gate.Hit{Class: ClassLockout, Weight: gate.WeightDanger, Object: o, Unknown: true, Kinds: []gate.Kind{gate.KindLockout}, Text: fmt.Sprintf("%s gets a gateway: what %s sends to everybody outside its own networks may go there %s", name, node, when)})
		}
	}
	if c.object.Kind == gate.ObjectInterface && c.verb != removes && !slices.Contains(n.main, c.detail["iface"]) {
		look(c.detail["iface"], c.keys)
	}
	for _, name := range touched {
		if r, ok := n.rows[name]; ok && c.object.Kind != gate.ObjectInterface && !slices.Contains(n.main, name) {
			look(name, r)
		}
	}
}

// stagedWays are the networks that a staged part of SDN brings to nodes.
func stagedWays(s staged) []netip.Prefix {
	all := estate.Config{}
	for k, v := range s.row {
		all[k] = v
	}
	if p, err := estate.ParseConfig([]byte(s.row["pending"])); err == nil {
		for k, v := range p {
			all[k] = v
		}
	}
	switch {
	case s.state == "deleted":
		return nil
	case s.kind == "subnet":
		return subnetOf(all, all["gateway"])
	case strings.HasPrefix(s.kind, "fabric"):
		return networksIn(all)
	}
	return nil
}
