package reach

import (
	"slices"
	"strings"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

// ownGuest says whether castellan depends on a guest: it is configured so, or has a network card of the machine that
// castellan runs on.
func (w *walk) ownGuest(g estate.Guest) answer {
	for _, id := range w.self.Guests {
		target, plain, scoped := strings.Cut(id, ":")
		if !scoped && id == g.ID || scoped && plain == g.ID && target == w.s.Target().Name {
			return yes
		}
	}
	if len(w.self.MACs) == 0 {
		return no
	}
	conf, ok := w.s.Config(g)
	if !ok {
		return perhaps
	}
	for key, text := range conf {
		if strings.HasPrefix(key, "net") && slices.ContainsFunc(w.self.MACs, func(mac string) bool { return strings.Contains(strings.ToUpper(text), strings.ToUpper(mac)) }) {
			return yes
		}
	}
	return no
}

// unreadSelf says that something castellan depends on may be among what could not be read, where it depends on any guest.
func (w *walk) unreadSelf(o gate.Object, what string) {
	if len(w.self.Guests)+len(w.self.MACs)+len(w.self.Nodes) > 0 {
		w.unread(ClassSelf, gate.WeightDanger, o, what, gate.KindGoverns)
	}
}
