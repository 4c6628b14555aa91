package reach

import (
	"strings"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

// nicAltered says how a guest may lose the network that a card of it has now: by another bridge, VLAN, hardware or fixed address, or
// because its link is taken down.
func (w *walk) nicAltered(o gate.Object, g held, key, value string) {
	if g.config[key] == "" {
		return
	}
	was, is := properties(g.config[key]), properties(value)
	var how []string
	differs := func(name, what string) {
		if was[name] != is[name] {
			how = append(how, what+" "+orNothing(is[name])+", now "+orNothing(was[name]))
		}
	}
	differs("bridge", "bridge")
	differs("tag", "VLAN")
	differs("trunks", "VLANs")
	if (estate.Config{"v": is["link_down"]}).On("v") && !(estate.Config{"v": was["link_down"]}).On("v") {
		how = append(how, "its link is down")
	}
	switch a, b := hardwareAddress(was), hardwareAddress(is); {
	case a == "" || a == b:
	case b == "":
		how = append(how, "a new hardware address in place of "+clean(a))
	default:
		how = append(how, "hardware address "+clean(b)+", now "+clean(a))
	}
	for _, name := range []string{"ip", "ip6", "gw", "gw6"} {
		differs(name, name)
	}
	if len(how) > 0 {
		w.hit(gate.Hit{Class: ClassNetwork, Weight: gate.WeightCaution, Object: o, Text: title(g.Guest) + " may not be reached any more over " + clean(key) + ": " + strings.Join(how, ", ")})
	}
}

// hardwareAddress is the one that a network card is given, under its model or by name.
func hardwareAddress(card map[string]string) string {
	for _, v := range card {
		if len(v) == 17 && strings.Count(v, ":") == 5 {
			return strings.ToUpper(v)
		}
	}
	return ""
}
