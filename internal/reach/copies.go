package reach

import (
	"fmt"
	"slices"
	"strings"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

// copyGains is the worst that a copy's place can bring: others than those of the source come to it.
var copyGains = dim{ClassGains, gate.WeightDanger, []gate.Kind{gate.KindIdent}}

// aCopy is what a guest that is made of another one has of it.
const aCopy = "a copy"

// copied: whoever has rights on a guest that gets another one's data, or is made of it, has them by it: what is "a copy", or a
// volume of the source. pool is the one that the new guest comes into, or empty where it stays in what it is in. castellan's own
// rights are left out: what its callers may do with the copy is policy's to say, and they had to be allowed the source.
func (w *walk) copied(made, source, pool, what string) {
	if source == "" || made == source && pool == "" {
		return
	}
	o := object(gate.ObjectGuest, made)
	r, ok := w.readRights()
	if !ok {
		w.missing(o, "who has which rights, and so who gets a copy,", copyGains)
	}
	for _, s := range w.before { // the plan's own earlier steps
		if earlier, known := readAccess(w, *s.API); known {
			for _, e := range earlier {
				r, _ = r.change(e, w.s.Now())
			}
		}
	}
	inv, _ := w.listing() // its gap was reported before
	of, template := "guest "+clean(source), false
	if g, there := inv.ByID(source); there {
		of, template = title(g), g.Template
	}
	after := r.clone()
	if pool != "" {
		after.guests[made] = pool
	}
	for _, id := range r.everybody() {
		user, _, _ := strings.Cut(id, "!")
		if user == superuser || user == w.ownUser() {
			continue
		}
		more := without(after.on(id, "/vms/"+made), r.on(id, "/vms/"+source))
		if len(more) == 0 {
			continue
		}
		h := gate.Hit{Class: ClassGains, Weight: gate.WeightCaution, Object: object(gate.ObjectUser, id), Way: []gate.Object{object(gate.ObjectGuest, source), o},
			Kinds: []gate.Kind{gate.KindIdent}, Text: fmt.Sprintf("%s gains %s on %s of %s: guest %s", id, names(more), clean(what), of, made)}
		h.Matter = digestOf(more)
		switch in := after.guests[made]; {
		case in != "":
			h.Text += " is in pool " + clean(in)
		case what != aCopy:
			h.Text += " gets it"
		}
		switch {
		case template && what == aCopy: // it is there to be copied
			h.Weight, h.Kinds = gate.WeightNote, nil
		case slices.ContainsFunc(more, func(p string) bool { return slices.Contains(strong, p) }):
			h.Weight = gate.WeightDanger
		}
		w.hit(h)
	}
}

// owner is a guest whose data a volume holds: by the volume's name, or as the one that has it under a key.
type owner struct {
	guest estate.Guest // where it is by the name alone, perhaps only with its id
	key   string       // "" = by the name
	is    answer
}

// nobodys are the folders of a storage in which files lie that are no guest's, whatever they are called.
var nobodys = []string{"iso", "vztmpl", "snippets", "import"}

// namedOwner is the guest that a volume's name gives it to; empty = none.
func namedOwner(volume string) string {
	storage, name, ok := strings.Cut(volume, ":")
	if folder, _, in := strings.Cut(name, "/"); !ok || storage == "" || strings.HasPrefix(volume, "/") || in && slices.Contains(nobodys, folder) {
		return ""
	}
	return estate.OwnerOf(name)
}

// known is a guest as the site shows it, or with its id alone.
func (w *walk) known(id string) estate.Guest {
	if g, ok := w.s.Inventory().ByID(id); ok {
		return g
	}
	return estate.Guest{ID: id}
}

// called names a guest that perhaps is not there.
func called(g estate.Guest) string {
	if g.Kind == "" {
		return "guest " + clean(g.ID)
	}
	return title(g)
}

// copyGuest is a guest that is made of another one.
func copyGuest(id string, of estate.Guest) estate.Guest { return estate.Guest{ID: id, Kind: of.Kind} }

func kindOf(path string) string {
	if path == "lxc" {
		return estate.CT
	}
	return estate.VM
}

// whose says whose data a volume holds beside what is of one guest: of the guest that its name says, and of those that have it
// in their settings.
func (w *walk) whose(volume, but string) (out []owner) {
	if strings.HasPrefix(volume, "/") { // by its path on a node
		defs, ok := w.s.Storages()
		if !ok {
			w.missing(object(gate.ObjectVolume, volume), "the definitions of storages", copyGains)
		}
		for _, v := range volumesAt(defs, volume) {
			for _, x := range w.whose(v, but) {
				if !slices.ContainsFunc(out, func(o owner) bool { return o.guest.ID == x.guest.ID }) {
					out = append(out, x)
				}
			}
		}
		return out
	}
	storage, name, named := strings.Cut(volume, ":")
	folder, _, _ := strings.Cut(name, "/")
	if _, _, made := allocation(volume); made || !named || slices.Contains(nobodys, folder) {
		return nil
	}
	by := namedOwner(volume)
	if by != "" && by != but {
		out = append(out, owner{guest: w.known(by), is: yes})
	}
	same := w.sameVolumes(storage, name, copyGains)
	for g := range w.guests(object(gate.ObjectVolume, volume), func(x *estate.Guest) bool { return x.ID != but && x.ID != by }, copyGains) {
		if !g.mentions(same.texts...) {
			continue
		}
		for _, d := range drives(g.config) {
			if is := same.answers(d.volume); is != no && !d.medium {
				out = append(out, owner{g.Guest, d.key, is})
			}
		}
	}
	return out
}

// hasDataOf: with a volume its data comes to a guest, and to all who have rights on that.
func (w *walk) hasDataOf(g held, d drive, pool string) {
	if own := d.owner() == g.ID; d.medium || own && (d.seed || w.names(g, d)) || d.seed && d.owner() == "" {
		return
	}
	for _, o := range w.whose(d.volume, g.ID) {
		w.copied(g.ID, o.guest.ID, pool, d.volume)
	}
	w.hasFolderOf(g, d, pool)
}

// givenAway: a guest's disk comes to another one.
func (w *walk) givenAway(g held, d drive, to string) {
	w.copied(to, g.ID, "", d.volume)
	if d.owner() == g.ID {
		return
	}
	for _, x := range w.whose(d.volume, g.ID) {
		if x.guest.ID != to {
			w.copied(to, x.guest.ID, "", d.volume)
		}
	}
}

// copyOf: a guest gets a copy of a volume that holds another's data, in its settings or by its name. from are the places by
// which it comes.
func (w *walk) copyOf(made estate.Guest, volume, pool string, from ...gate.Object) {
	for _, x := range w.whose(volume, made.ID) {
		w.copyHolds(made, volume, pool, x, from...)
	}
}

func (w *walk) copyHolds(made estate.Guest, volume, pool string, x owner, from ...gate.Object) {
	o := object(gate.ObjectGuest, x.guest.ID)
	of := "a disk of guest " + clean(x.guest.ID)
	if x.key != "" {
		of = fmt.Sprintf("which is %s of %s", x.key, title(x.guest))
	}
	h := gate.Hit{Class: ClassGains, Weight: gate.WeightDanger, Object: o, Way: append(from, object(gate.ObjectVolume, volume), o),
		Text: fmt.Sprintf("%s gets a copy of %s, %s, with all that is on it", called(made), clean(volume), of)}
	x.is.unsure(&h)
	w.hit(h)
	w.copied(made.ID, x.guest.ID, pool, aCopy)
}

// copiedDisks: a copy of a guest holds the disks that it has of others. Those whose name is its own are not looked for at
// others, as for what is done with the guest itself.
func (w *walk) copiedDisks(source held, made estate.Guest, pool string) {
	for _, d := range othersDisks(source) {
		for _, x := range w.whose(d.volume, source.ID) {
			if x.guest.ID != made.ID {
				w.copyHolds(made, d.volume, pool, x, object(gate.ObjectGuest, source.ID))
			}
		}
	}
}

// othersDisks are the disks that a guest works with and whose name is not its own.
func othersDisks(g held) []drive {
	return slices.DeleteFunc(drives(g.config), func(d drive) bool { return !d.inUse() || isVMState(d.key) || d.owner() == g.ID })
}

// backedUpDisks names the disks of others that backups of these guests hold. Who may do something with such a guest has those
// disks by it already, so it is asked of names alone, and of nobody's rights.
func (w *walk) backedUpDisks(of gate.Object, guests []estate.Guest, where string) {
	holds := dim{ClassGains, gate.WeightCaution, nil}
	wanted := make([]*estate.Guest, len(guests))
	for i := range guests {
		wanted[i] = &guests[i]
	}
	var blind []string
	self := false // what is on a node that is off is not backed up now
	for i, s := range w.s.Settings(wanted) {
		if s.Config == nil {
			n, err := w.s.Inventory().Node(guests[i].Node)
			blind, self = append(blind, title(guests[i])), self || err != nil || n.Status == "online"
			continue
		}
		for _, d := range drives(s.Config) {
			if by := d.owner(); by != "" && by != guests[i].ID && archivedData(d) {
				o := object(gate.ObjectGuest, by)
				w.hit(gate.Hit{Class: ClassGains, Weight: gate.WeightCaution, Object: o, Way: []gate.Object{object(gate.ObjectGuest, guests[i].ID), d.object(), o},
					Text: fmt.Sprintf("a backup of %s holds %s (%s), a disk of guest %s, for all who may read it on storage %s", title(guests[i]), d.key, clean(d.volume), by, clean(where))})
			}
		}
	}
	if len(blind) > 0 {
		w.missing(of, "the settings of "+names(blind)+", and so whether a backup holds disks of others,", holds)
	}
	if self {
		w.unreadSelf(of, "whether a disk of a guest that castellan depends on is among what is backed up")
	}
}

// blindCopy says that what a copy takes along could not be read: it may be anybody's, castellan's too.
func (w *walk) blindCopy(o gate.Object, what string) {
	w.missing(o, what, copyGains)
	w.unreadSelf(o, "whether a disk of a guest that castellan depends on is among what is copied")
}

// sourcesOf are the guests whose data a request to make a guest takes: by an archive, or disk by disk.
func (w *walk) sourcesOf(made string, keys map[string]string, archive string) (out []string) {
	if archive != "" {
		out = append(out, namedOwner(archive))
	}
	for key, text := range keys {
		if d, ok := driveOf(key, text); ok {
			for _, volume := range []string{d.volume, property(text, "import-from")} {
				for _, x := range w.whose(volume, made) {
					out = append(out, x.guest.ID)
				}
			}
		}
	}
	slices.Sort(out)
	return slices.DeleteFunc(slices.Compact(out), func(id string) bool { return id == "" })
}

// madeOf are the guests of whose data an earlier step of the plan makes this one.
func (w *walk) madeOf(id string) []string {
	for _, s := range w.before {
		if !strings.HasPrefix(s.API.Operation, "POST /nodes/{node}/") {
			continue
		}
		if strings.HasSuffix(s.API.Operation, "/{vmid}/clone") && s.API.Text("newid") == id {
			return w.clonedOf(s.API.Text("vmid"), s.API.Text("snapname"))
		}
		changes, known := readNewGuest(w, *s.API)
		if !known || s.API.Text("vmid") != id {
			continue
		}
		for _, c := range changes {
			return w.sourcesOf(id, c.keys, orText(c.detail["archive"], c.detail["template"]))
		}
	}
	return nil
}

// clonedOf are the guests of whose data a clone of one is made: that one, and those whose disks it has.
func (w *walk) clonedOf(id, snap string) []string {
	out := []string{id}
	g, _ := w.one(id, copyGains)
	if g.config != nil && snap != "" {
		then, ok := w.snapshotConfig(g.Guest, snap)
		if !ok {
			w.missing(object(gate.ObjectSnapshot, id+"/"+snap), "the settings in snapshot "+clean(snap), copyGains)
		}
		g.config = then
	}
	for _, d := range othersDisks(g) {
		for _, x := range w.whose(d.volume, id) {
			out = append(out, x.guest.ID)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// takenOver are keys by which a guest reaches into its host: a copy of the guest reaches there too.
var takenOver = []string{"hookscript", "args", "hostpci", "usb", "virtiofs", "dev", "parallel", "serial", "features", "lxc"}

// alongHost judges what a copy of a guest takes over that reaches into the host, as if it were set there.
func (w *walk) alongHost(made gate.Object, kind, node, source, pool string, settings estate.Config, but ...string) {
	then := estate.Config{}
	for key, value := range settings {
		base, _ := fold(key)
		if p := properties(value); key == "features" && settings.On("unprivileged") && len(p) == 1 && p["nesting"] != "" {
			continue // as Proxmox's own form makes them all
		}
		d, isVolume := driveOf(key, value)
		if slices.Contains(takenOver, base) || strings.HasPrefix(key, "lxc.") || isVolume && kind == "lxc" && d.storage == "" {
			then[key] = value
		}
	}
	w.bring(brought{guest: made, kind: kind, node: node, id: source, now: estate.Config{}, then: then, how: "comes along with what is copied", fresh: true, but: but, pool: pool})
}
