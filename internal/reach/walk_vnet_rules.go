package reach

import (
	"fmt"
	"slices"
	"strings"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

// vnetsNaming names the rules of vnets in which an alias, set or group of the site stands that goes or changes. What such a rule lets
// through is not evaluated.
func (w *walk) vnetsNaming(c change) {
	name, d := "", c.detail
	switch {
	case d["what"] == "aliases" && d["method"] == "POST": // nothing can name it yet
		return
	case d["what"] == "aliases" && d["name"] != "":
		name = d["name"]
	case d["what"] == "ipset" && d["rest"] == "" && c.keys["rename"] != "":
		name = "+" + c.keys["rename"]
	case d["what"] == "ipset" && d["name"] != "":
		name = "+" + d["name"]
	case d["what"] == "groups" && d["group"] != "":
		name = "group " + d["group"]
	default:
		return
	}
	unread := func(what string) { w.unread(ClassReferences, gate.WeightCaution, c.object, what) }
	vnets, ok := w.s.VNets()
	if !ok {
		unread("the vnets, and whether a rule of one names " + clean(name))
	}
	if len(vnets) > most {
		unread(fmt.Sprintf("the rules of %d more vnets", len(vnets)-most))
		vnets = vnets[:most]
	}
	const rules = "GET /cluster/sdn/vnets/{vnet}/firewall/rules"
	of := make([][]estate.Config, len(vnets))
	said := make([]bool, len(vnets))
	each(len(vnets), func(i int) {
		of[i], said[i] = w.s.Rows(estate.PartFirewall, "vnet/"+vnets[i]["vnet"], gate.Read{Operation: rules, Params: map[string]string{"vnet": vnets[i]["vnet"]}})
	})
	if i := slices.Index(said, false); i >= 0 && w.without(rules, map[string]string{"vnet": vnets[i]["vnet"]}) {
		return // its version has none
	}
	for i, v := range vnets {
		o := object(gate.ObjectVNet, v["vnet"])
		if !said[i] {
			unread("the rules of vnet " + clean(v["vnet"]))
		}
		for _, r := range of[i] {
			if r["type"] == "group" && "group "+r["action"] == name || slices.ContainsFunc(append(list(r["source"]), list(r["dest"])...), func(e string) bool { return sameName(e, name) }) {
				w.hit(gate.Hit{Class: ClassReferences, Weight: gate.WeightCaution, Object: o, Way: []gate.Object{c.object, o}, Text: "a rule of vnet " + clean(v["vnet"]) + " names " + clean(name) + ": it lets through something else, or does nothing any more"})
			}
		}
	}
}

// without says whether the site's version lacks a read altogether.
func (w *walk) without(operation string, params map[string]string) bool {
	_, err := w.v.Read(w.ctx, w.s.Target().Name, gate.Read{Operation: operation, Params: params})
	return err != nil && strings.Contains(err.Error(), "not implemented")
}
