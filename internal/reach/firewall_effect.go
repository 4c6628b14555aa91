package reach

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

// effective lists the rules of a direction ("in", "out", "forward") that are in force, with groups written out in place
// and names of addresses replaced by what they stand for: two rulesets with the same lines do the same.
func (f *ruleset) effective(direction string) (out []effectiveRule) {
	if !f.on {
		return nil
	}
	for _, r := range f.rules {
		if !r.On("enable") || r["errors"] != "" {
			continue
		}
		if r["type"] != "group" {
			if r["type"] == direction {
				out = append(out, f.effect(r, nil))
			}
			continue
		}
		for _, inner := range f.groups[r["action"]] {
			if inner["type"] == direction && inner.On("enable") && inner["errors"] == "" {
				out = append(out, f.effect(inner, r))
			}
		}
	}
	return out
}

// effectiveRule is a rule that is in force.
type effectiveRule struct {
	line   string
	action string
	dest   []span
	all    bool // every destination, or one that is not known
}

func (r effectiveRule) shuts() bool { return r.action != "ACCEPT" }

func (r effectiveRule) reaches(a netip.Addr) bool {
	return r.all || slices.ContainsFunc(r.dest, func(s span) bool { return s.has(a) })
}

// effect writes a rule out; outer is the rule that names its group.
func (f *ruleset) effect(r, outer estate.Config) effectiveRule {
	out := effectiveRule{action: strings.ToUpper(r["action"]), all: r["dest"] == ""}
	var b strings.Builder
	for _, rule := range []estate.Config{outer, r} {
		for _, key := range []string{"action", "macro", "proto", "dport", "sport", "iface", "icmp-type"} {
			fmt.Fprintf(&b, "%s=%q ", key, rule[key])
		}
		for _, key := range []string{"source", "dest"} {
			spans, known := f.sets.all(rule[key])
			fmt.Fprintf(&b, "%s=%v/%v/%v ", key, rule[key] == "", known, spans)
			if key == "dest" && rule[key] != "" {
				out.dest = append(out.dest, spans...)
				out.all = out.all || !known
			}
		}
	}
	out.line = b.String()
	return out
}

// all lists what a rule's source or dest stands for, exceptions of sets included; known is false when a name stands for
// nothing that is known.
func (a *addressSets) all(text string) (out []span, known bool) {
	known = true
	for _, e := range list(text) {
		name, isSet := strings.CutPrefix(e, "+")
		if !isSet {
			s, ok := a.spanOf(e)
			known = known && ok
			out = append(out, s)
			continue
		}
		members, ok := a.set(name)
		known = known && ok
		for _, m := range members {
			s, ok := a.spanOf(m.cidr)
			known = known && ok && !m.not
			out = append(out, s)
		}
	}
	return out, known
}

// same says whether two rulesets do the same with everything.
func same(was, is *ruleset) bool {
	if was.on != is.on {
		return false
	}
	if !was.on {
		return true
	}
	for _, d := range []string{"in", "out", "forward"} {
		if !slices.Equal(lines(was.effective(d)), lines(is.effective(d))) {
			return false
		}
	}
	return strings.EqualFold(orText(was.policy, "DROP"), orText(is.policy, "DROP")) && was.outward() == is.outward()
}

func (f *ruleset) outward() string { return strings.ToUpper(orText(f.policyOut, "ACCEPT")) }

func lines(rules []effectiveRule) (out []string) {
	for _, r := range rules {
		out = append(out, r.line)
	}
	return out
}

// tightened lists the rules of a direction by which less passes than before: those that came and refuse, those that let
// something through and went where something is left that refuses, and, where only the order changed, all that refuse.
func tightened(was, is []effectiveRule, refuses bool) (out []effectiveRule) {
	had, has := lines(was), lines(is)
	for _, r := range is {
		refuses = refuses || r.shuts()
		if r.shuts() && !slices.Contains(had, r.line) {
			out = append(out, r)
		}
	}
	for _, r := range was {
		if refuses && !r.shuts() && !slices.Contains(has, r.line) {
			out = append(out, r)
		}
	}
	if len(out) > 0 || slices.Equal(had, has) || len(had) > len(has) {
		return out
	}
	var left []string // what was there before, in its order now
	for _, l := range has {
		if slices.Contains(had, l) {
			left = append(left, l)
		}
	}
	if slices.Equal(left, had) {
		return nil
	}
	for _, r := range is {
		if r.shuts() {
			out = append(out, r)
		}
	}
	return out
}

// sends looks at what a node may send: other nodes, by which castellan's requests go on, and storages. How far a rule
// goes is not computed: one that may meet them counts.
func (w *walk) sends(c change, node string, was, is *ruleset) {
	shut := tightened(was.effective("out"), is.effective("out"), is.outward() != "ACCEPT")
	if len(shut) == 0 {
		return
	}
	meets := func(a netip.Addr) bool {
		return slices.ContainsFunc(shut, func(r effectiveRule) bool { return r.reaches(a) })
	}
	o := object(gate.ObjectNode, node)
	w.hit(gate.Hit{Class: ClassNetwork, Weight: gate.WeightCaution, Object: o, Text: node + " may not send some of what it sends now"})
	status, ok := w.s.Status()
	if !ok {
		w.unread(ClassLockout, gate.WeightDanger, o, "the addresses of the cluster's members", gate.KindLockout)
		w.unread(ClassHA, gate.WeightDanger, o, "the addresses of the cluster's members", gate.KindOutage)
	}
	for _, s := range status {
		a, err := netip.ParseAddr(s["ip"])
		if s["type"] != "node" || s["name"] == node || err == nil && !meets(a) {
			continue
		}
		w.hit(gate.Hit{Class: ClassHA, Weight: gate.WeightDanger, Object: o, Unknown: true, Kinds: []gate.Kind{gate.KindOutage}, Text: node + " may not get through to " + s["name"] + " any more: moves, replication, the cluster's own traffic"})
		w.hit(gate.Hit{Class: ClassLockout, Weight: gate.WeightDanger, Object: o, Unknown: true, Kinds: []gate.Kind{gate.KindLockout}, Text: "whoever reaches the cluster by " + node + " may not get on to " + s["name"]})
		break
	}
	rows, ok := w.s.Storages()
	if !ok {
		w.unread(ClassLosesDisk, gate.WeightDanger, c.object, "which storages are reached over the network", gate.KindOutage)
		w.unreadSelf(c.object, "which storages are reached over the network")
	}
	for _, s := range rows {
		server := s["server"] + s["portal"] + s["monhost"]
		if server == "" || s.On("disable") || s["nodes"] != "" && !slices.Contains(list(s["nodes"]), node) {
			continue
		}
		if a, err := netip.ParseAddr(server); err == nil && !meets(a) {
			continue
		}
		w.hit(gate.Hit{Class: ClassLosesDisk, Weight: gate.WeightDanger, Object: object(gate.ObjectStorage, s["storage"]), Unknown: true, Kinds: []gate.Kind{gate.KindOutage},
			Text: "nodes may not get through to storage " + s["storage"] + " any more"})
	}
}

// passesOn looks at what a node forwards between networks: guests behind it, in a zone or a network of its own, lose it.
func (w *walk) passesOn(node string, was, is *ruleset) {
	policy := func(f *ruleset) bool {
		p := strings.ToUpper(orText(f.policyForward, "ACCEPT"))
		return f.on && p != "ACCEPT"
	}
	shut := tightened(was.effective("forward"), is.effective("forward"), policy(is))
	if len(shut) == 0 && (policy(was) || !policy(is)) {
		return
	}
	o := object(gate.ObjectNode, node)
	w.hit(gate.Hit{Class: ClassNetwork, Weight: gate.WeightDanger, Object: o, Unknown: true, Kinds: []gate.Kind{gate.KindOutage}, Text: node + " may not pass on what guests send and receive through it"})
	w.unreadSelf(o, "whether something that castellan depends on sends through "+node)
}
