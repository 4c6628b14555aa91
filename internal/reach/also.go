package reach

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

// alsoLoses is the worst that another guest with the same disk may come to.
var alsoLoses = dim{ClassLosesData, gate.WeightDanger, []gate.Kind{gate.KindOutage, gate.KindData}}

// alsoOf names who else has the volumes of a guest's drives in their settings: what is done to a volume is done to them. does
// says what, where it is more than that the guest writes there. Of a volume that is not the guest's own by name and settings
// everybody is looked at anew; of its own ones, with which it runs day by day, by what is kept: see docs/decisions/0028.
func (w *walk) alsoOf(g held, does string, ds ...drive) {
	var own []drive
	for _, d := range ds {
		switch {
		case d.medium || d.seed && (d.owner() == "" || d.owner() == g.ID):
		case d.storage == "":
			w.atPath(g, does, d)
		case w.own(g, d):
			own = append(own, d)
		default:
			w.ofAnother(g, does, d)
		}
	}
	if len(own) > 0 {
		w.ownToo(g, does, own)
	}
}

// byName is alsoOf for a volume that a path leads to, which the guest has already or not.
func (w *walk) byName(g held, does string, d drive, has bool) {
	if has && (d.owner() == g.ID || d.owner() == "") {
		w.ownToo(g, does, []drive{d})
		return
	}
	w.ofAnother(g, does, d)
}

// own says whether a volume is the guest's by its name, or by nobody's, and the guest has it already.
func (w *walk) own(g held, d drive) bool {
	return (d.owner() == g.ID || d.owner() == "") && w.names(g, d)
}

// names says whether a guest's settings name a volume already.
func (w *walk) names(g held, d drive) bool {
	return slices.ContainsFunc(drives(g.config), func(x drive) bool { return x.volume == d.volume })
}

// ofAnother is a volume whose name gives it to another guest, or that comes to a guest.
func (w *walk) ofAnother(g held, does string, d drive) {
	storage, name, _ := strings.Cut(d.volume, ":")
	same := w.sameVolumes(storage, name, alsoLoses)
	w.standing(g, d, same)
	users := 0
	for other := range w.guests(d.object(), func(x *estate.Guest) bool { return x.ID != g.ID }, alsoLoses) {
		if other.mentions(same.allTexts()...) {
			users += w.has(g, does, d, same, other)
		}
	}
	if users > 0 {
		return
	}
	inv, _ := w.listing() // its gap was reported with the guests
	if owner, ok := inv.ByID(d.owner()); ok && owner.ID != g.ID {
		w.hit(gate.Hit{Class: ClassLosesData, Weight: gate.WeightDanger, Object: object(gate.ObjectGuest, owner.ID), Kinds: alsoLoses.kinds,
			Text: fmt.Sprintf("%s belongs to %s by its name, though its settings do not name it; it is deleted with that guest", d.volume, title(owner))})
	}
}

// has says in how many of its disks another guest has a volume, and hits it.
func (w *walk) has(g held, does string, d drive, same aliases, other held) (n int) {
	for _, theirs := range drives(other.config) {
		is, clone, below := same.answers(theirs.volume), same.under(theirs.volume), same.below(theirs.volume)
		most := max(is, clone, below)
		if most == no {
			continue
		}
		n++
		text := ""
		switch {
		case is != no:
		case clone != no:
			text = fmt.Sprintf("%s of %s is a linked clone of %s", theirs.key, title(other.Guest), d.volume)
		default:
			text = rests(d, theirs, other)
		}
		w.sharedBy(g, does, d, theirs, other, most, text)
	}
	return n
}

// sharedBy hits a guest that has a disk of another too; text says how where it is not simply the same.
func (w *walk) sharedBy(g held, does string, d, theirs drive, other held, is answer, text string) {
	o := object(gate.ObjectGuest, other.ID)
	if text == "" {
		text = fmt.Sprintf("%s is %s of %s", clean(d.volume), theirs.key, title(other.Guest))
	}
	runs := w.runs(other.Guest)
	if runs {
		text += ", which runs"
	}
	switch {
	case does != "":
		text += ": " + does
	case runs:
		text += ": two that write to one disk destroy what is on it"
	default:
		text += ": what is done with it here is done to that guest"
	}
	h := gate.Hit{Class: ClassLosesData, Weight: gate.WeightDanger, Object: o, Kinds: alsoLoses.kinds, Way: []gate.Object{object(gate.ObjectGuest, g.ID), d.object(), o}, Text: text}
	is.unsure(&h)
	w.hit(h)
}

// ownToo looks for others with a guest's own volumes, among those that can have them.
func (w *walk) ownToo(g held, does string, own []drive) {
	if t, manager := w.v.(through); manager { // nothing is kept of such a site, and everybody would be read each time
		w.out.Unread = union(w.out.Unread, []string{"who else of " + clean(t.site()) + " has the disks of " + title(g.Guest) + ": that is not looked for through a Datacenter Manager"})
		return
	}
	o := object(gate.ObjectGuest, g.ID)
	var beyond []string // what is out of sight by the site's own answer: the plan says so, and nothing is made heavier for it
	worst := []dim{alsoLoses}
	if _, ok := w.s.Storages(); !ok && w.narrow(estate.PartStorages) {
		worst, beyond = nil, append(beyond, "the same places under storages that castellan's token may not see")
	}
	same := make([]aliases, len(own))
	apart := g.Node != ""
	for i, d := range own {
		storage, name, _ := strings.Cut(d.volume, ":")
		same[i] = w.sameVolumes(storage, name, worst...)
		w.standing(g, d, same[i])
		apart = apart && same[i].apart
	}
	node := ""
	if apart {
		node = g.Node
	}
	switch _, ok := w.listing(); {
	case ok:
	case w.narrow(estate.PartResources):
		beyond = append(beyond, "guests that castellan's token may not see")
	default:
		w.missing(o, "the list of guests", alsoLoses)
	}
	all := w.kept.of(w, node)
	for _, other := range all.known {
		if other.ID == g.ID {
			continue
		}
		for i, d := range own {
			if (!same[i].apart || other.Node == g.Node) && other.mentions(same[i].allTexts()...) {
				w.has(g, does, d, same[i], other)
			}
		}
	}
	w.onItsDisk(g, does, own, same, all)
	for _, n := range all.off {
		beyond = append(beyond, "guests of node "+clean(n)+", which is off")
	}
	if len(beyond) > 0 {
		w.out.Unread = union(w.out.Unread, []string{"who else has the disks of " + title(g.Guest) + ": not looked for are " + names(beyond)})
	}
	w.blindTo(g, all.blind)
}

// blindTo says in one sentence whose settings could not be read: there may be many, and none of them is what the step is about.
func (w *walk) blindTo(g held, all []estate.Guest) {
	var blind []string
	for _, other := range all {
		if other.ID == g.ID {
			continue
		}
		if blind = append(blind, title(other)); w.ownGuest(other) != no {
			w.missing(object(gate.ObjectGuest, other.ID), "the settings of "+title(other), alsoLoses)
		}
	}
	if len(blind) > 0 {
		w.missing(object(gate.ObjectGuest, g.ID), "the settings of "+names(blind)+", and so whether a disk of "+title(g.Guest)+" is also theirs,", alsoLoses)
	}
}

// kept is what a walk knows of everybody's settings for the question who else has a disk. It is one look for all steps and
// disks, and may be older than what else counts: the question is asked with every start, and a site has no call that tells
// everybody's settings.
type kept struct {
	s    *estate.Survey
	from map[string]roster // by node, or "" for all
}

// roster are guests with their settings, and those whose settings could not be read.
type roster struct {
	known []held
	blind []estate.Guest
	off   []string // nodes that are off: nothing runs there, and nobody can be read there
}

// keptAge is how old settings may be for it: they are read anew with each task on the guest, and when the listing shows it
// changed. What is left is what somebody changed by hand and without a task. A large site takes long to read.
func keptAge(guests int) time.Duration {
	return max(planAge, time.Duration(guests)*360*time.Millisecond)
}

// of reads the guests of a node, or of all.
func (k *kept) of(w *walk, node string) roster {
	if r, had := k.from[node]; had {
		return r
	}
	if k.s == nil {
		k.s = w.s.Older(keptAge(len(w.s.Inventory().Guests)))
		k.from = map[string]roster{}
	}
	guests := w.s.Inventory().Guests
	var wanted []*estate.Guest
	var r roster
	for i := range guests {
		switch of := &guests[i]; {
		case node != "" && of.Node != node:
		case of.NodeOff:
			r.off = union(r.off, []string{of.Node})
		default:
			wanted = append(wanted, of)
		}
	}
	for i, c := range k.s.Settings(wanted) {
		if c.Config == nil {
			r.blind = append(r.blind, *wanted[i])
			continue
		}
		r.known = append(r.known, hold(*wanted[i], c))
	}
	k.from[node] = r
	return r
}
