package reach

import (
	"strings"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

// attached calls f for every guest of a node ("" = of all) with a network card on a bridge or vnet. What cannot be read
// is said with the worst weight that f would give.
func (w *walk) attached(node, bridge string, f func(g estate.Guest), worst gate.Weight, kinds ...gate.Kind) {
	var guests []estate.Guest
	for _, g := range w.s.Inventory().Guests {
		if node == "" || g.Node == node {
			guests = append(guests, g)
		}
	}
	if len(w.s.Gaps(estate.PartResources)) > 0 {
		w.unread(ClassNetwork, worst, object(gate.ObjectBridge, bridge), "which guests there are", kinds...)
	}
	known := w.s.Configs(guests)
	var gap []string
	for _, g := range guests {
		conf, ok := known[g.ID]
		if !ok {
			gap = append(gap, g.ID)
			continue
		}
		for key, text := range conf {
			if on, _ := gate.PropertyValue(text, "bridge"); strings.HasPrefix(key, "net") && on == bridge {
				f(g)
				break
			}
		}
	}
	if len(gap) > 0 {
		w.unread(ClassNetwork, worst, object(gate.ObjectBridge, bridge), "the network cards of guests "+names(gap), kinds...)
	}
}
