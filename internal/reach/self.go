package reach

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

// ownGuest says whether castellan depends on a guest: it is configured so, has a network card of the machine that castellan
// runs on, or the fixed address of something that castellan's settings name.
func (w *walk) ownGuest(g estate.Guest) answer {
	own := no
	for _, id := range w.self.Guests {
		target, plain, scoped := strings.Cut(id, ":")
		switch {
		case !scoped && id == g.ID:
			return yes
		case !scoped || plain != g.ID || !w.here(target):
		case w.anothers(target):
			own = perhaps
		default:
			return yes
		}
	}
	uses := w.uses()
	if len(w.self.MACs)+len(uses) == 0 {
		return own
	}
	conf, ok := w.s.Config(g)
	if !ok {
		return perhaps
	}
	for _, text := range fixedAddresses(conf) {
		if a, err := netip.ParseAddr(text); err == nil && slices.Contains(uses, a.Unmap()) {
			return yes
		}
	}
	for key, text := range conf {
		if strings.HasPrefix(key, "net") && slices.ContainsFunc(w.self.MACs, func(mac string) bool { return strings.Contains(strings.ToUpper(text), strings.ToUpper(mac)) }) {
			return yes
		}
	}
	return own
}

// uses are the addresses of what castellan's settings name.
func (w *walk) uses() []netip.Addr {
	if w.self.Uses == nil {
		return nil
	}
	return w.self.Uses(w.ctx)
}

// here says whether a configured target is the one that is walked, or another way to the same site.
func (w *walk) here(target string) bool {
	own := w.s.Target()
	if target == own.Name {
		return true
	}
	t, err := w.v.Target(target)
	return err == nil && (t.Site == own.Site || t.Site == "" || own.Site == "") // one that is not known may be this one
}

// unreadSelf says that something castellan depends on may be among what could not be read, where it depends on any guest.
func (w *walk) unreadSelf(o gate.Object, what string) {
	if len(w.self.Guests)+len(w.self.MACs)+len(w.self.Nodes)+len(w.uses()) > 0 {
		w.unread(ClassSelf, gate.WeightDanger, o, what, gate.KindGoverns)
	}
}

// harmlessToSelf are kinds of requests that leave what a guest is and does as it is.
var harmlessToSelf = []gate.Kind{gate.KindRead, gate.KindPrivate, gate.KindSnapshot, gate.KindBackup, gate.KindStart, gate.KindResume}

// hurts are classes of hits that take something away from a guest or storage.
var hurts = []string{ClassStops, ClassLosesDisk, ClassLosesData, ClassNetwork, ClassMoves, ClassLosesWay}

// touchesSelf looks at everything that the step acts on or hits: what castellan depends on among it governs. To take back
// the state of castellan's own guest would take back plans, approvals and ledger, and is never done.
func (w *walk) touchesSelf() {
	governs := func(o gate.Object, unknown bool, format string, args ...any) {
		w.hit(gate.Hit{Class: ClassSelf, Weight: gate.WeightDanger, Object: o, Unknown: unknown, Kinds: []gate.Kind{gate.KindGoverns}, Text: fmt.Sprintf(format, args...)})
	}
	harmless := true
	for _, k := range w.step.Judgement.Kinds {
		harmless = harmless && slices.Contains(harmlessToSelf, k)
	}
	w.copiesSelf(governs)
	for _, r := range w.step.Judgement.References {
		if r.Use != gate.UseActs || harmless {
			continue
		}
		switch r.Object.Kind {
		case gate.ObjectGuest:
			own := w.ownID(r.Object.ID)
			if own == no {
				continue
			}
			governs(object(gate.ObjectGuest, r.Object.ID), own == perhaps, "guest %s: castellan depends on it", r.Object.ID)
			if slices.Contains(w.step.Judgement.Kinds, gate.KindRollback) || (w.step.API.Get("archive") != nil || on(*w.step.API, "restore")) && on(*w.step.API, "force") {
				w.hit(gate.Hit{Class: ClassBlocked, Weight: gate.WeightDanger, Object: object(gate.ObjectGuest, r.Object.ID), Unknown: own == perhaps, Refused: own == yes, Kinds: []gate.Kind{gate.KindGoverns},
					Text: "guest " + r.Object.ID + " is one that castellan depends on: to take back its state would take back plans, approvals and records"})
			}
		case gate.ObjectStorage:
			if own := w.ownStorage(r.Object.ID); own != no {
				governs(object(gate.ObjectStorage, r.Object.ID), own == perhaps, "storage %s holds what castellan keeps", r.Object.ID)
			}
		}
	}
	for i := range len(w.out.Hits) { // what is added meanwhile is of this class, and not looked at
		h := w.out.Hits[i]
		copies := h.Class == ClassGains && h.Object.Kind == gate.ObjectGuest // others get its data
		if h.Step != w.step.Number || h.Weight == gate.WeightNote || !copies && !slices.Contains(hurts, h.Class) {
			continue
		}
		id := h.Object.ID
		if h.Object.Kind == gate.ObjectSnapshot {
			id, _, _ = strings.Cut(id, "/")
		}
		own := no
		if h.Object.Kind == gate.ObjectGuest || h.Object.Kind == gate.ObjectSnapshot {
			own = w.ownID(id)
		}
		switch {
		case own != no:
			governs(object(gate.ObjectGuest, id), own == perhaps || h.Unknown, "guest %s, which castellan depends on: %s", id, h.Text)
		case h.Object.Kind == gate.ObjectGuest || h.Object.Kind == gate.ObjectSnapshot:
			// What one guest names may be another's: that its settings could not be read is said of it, and may concern any.
			if h.Weight == gate.WeightDanger && (h.Class == ClassLosesDisk || h.Class == ClassLosesData) && w.lost[h.Object] {
				w.unreadSelf(h.Object, "whether something that castellan depends on is among it")
			}
		case h.Object.Kind == gate.ObjectStorage && w.ownStorage(h.Object.ID) != no:
			governs(h.Object, h.Unknown || w.ownStorage(h.Object.ID) == perhaps, "storage %s holds what castellan keeps: %s", h.Object.ID, h.Text)
		case h.Object.Kind == gate.ObjectNode && slices.Contains(w.self.Nodes, h.Object.ID):
			governs(h.Object, h.Unknown, "castellan runs on node %s: %s", h.Object.ID, h.Text)
		case h.Unknown && h.Class == ClassLosesDisk && h.Object.Kind == gate.ObjectVolume && w.sparesSelf(h.Object.ID): // linked clones of others, at most
		case h.Unknown:
			w.unreadSelf(h.Object, "whether something that castellan depends on is among it")
		}
	}
}

// sparesSelf proves that no guest that castellan depends on has a linked clone of a base volume, whatever the others have: such
// a clone lies on the storage of its base, and all that those guests have, their snapshots too, lies elsewhere.
func (w *walk) sparesSelf(base string) bool {
	storage, name, _ := strings.Cut(base, ":")
	def, ok := w.storage(storage)
	inv, listed := w.listing()
	if !isBase(name) || !ok || def == nil || !listed || w.ownStorage(storage) != no {
		return false
	}
	same := w.sameVolumes(storage, name)
	for _, g := range inv.Guests {
		if w.ownGuest(g) == no || same.apart && g.Node != w.step.API.Text("node") {
			continue
		}
		conf, ok := w.s.Config(g)
		snaps, told := w.s.Snapshots(g)
		if !ok || !told {
			return false
		}
		all := drives(conf)
		for _, s := range snaps {
			then, ok := w.snapshotConfig(g, s["name"])
			if !ok {
				return false
			}
			all = append(all, drives(then)...)
		}
		if slices.ContainsFunc(all, func(d drive) bool { return d.storage == "" || same.beside(d.volume) != no }) {
			return false
		}
	}
	return true
}

// copiesSelf: a volume or an archive of a guest that castellan depends on holds its keys and records. To name one in a
// request makes a copy of them, or gives them to another guest, even where that guest itself stays as it is.
func (w *walk) copiesSelf(governs func(o gate.Object, unknown bool, format string, args ...any)) {
	volumes := map[string]string{}
	for _, r := range w.step.Judgement.References {
		if r.Object.Kind == gate.ObjectVolume || r.Object.Kind == gate.ObjectArchive {
			volumes[r.Param] = r.Object.ID
		}
	}
	for _, r := range w.step.Judgement.References {
		volume, named := volumes[r.Param]
		if r.Object.Kind != gate.ObjectGuest || r.Use == gate.UseActs || !named {
			continue
		}
		if own := w.ownID(r.Object.ID); own != no {
			governs(object(gate.ObjectGuest, r.Object.ID), own == perhaps, "%s is of guest %s, which castellan depends on: whoever has it has what castellan keeps", clean(volume), r.Object.ID)
		}
	}
}

// ownStorage says whether castellan keeps something on a storage, by its own name or by another that shows the same place.
func (w *walk) ownStorage(name string) answer {
	if slices.Contains(w.self.Storages, name) {
		return yes
	}
	if len(w.self.Storages) == 0 {
		return no
	}
	defs, ok := w.s.Storages()
	own := no
	for _, d := range defs {
		if d["storage"] != name {
			continue
		}
		for _, t := range twins(defs, d) {
			switch {
			case !slices.Contains(w.self.Storages, t.name):
			case t.sure:
				return yes
			default:
				own = perhaps
			}
		}
	}
	if !ok {
		return perhaps
	}
	return own
}

// ownID is ownGuest for a guest known by its id alone.
func (w *walk) ownID(id string) answer {
	g, ok := w.guest(id)
	if !ok {
		g = estate.Guest{ID: id}
		if named := (&walk{ctx: w.ctx, v: w.v, self: Self{Guests: w.self.Guests}, s: w.s}).ownGuest(g); named == yes || len(w.self.MACs)+len(w.uses()) == 0 || len(w.s.Gaps(estate.PartResources)) == 0 {
			return named
		}
		return perhaps
	}
	return w.ownGuest(g)
}
