package reach

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

// A storage is tight with less than this left, or less than a tenth of it.
const tight = 10 << 30

var noSpace = dim{ClassSpace, gate.WeightDanger, outage}

// takes says whether so many more bytes fit on a storage as a node sees it, and who else would stand still when it is
// full. Of size 0 it is not known how much comes.
func (w *walk) takes(storage, node string, size int64, what string) {
	o := object(gate.ObjectStorage, storage)
	inv, ok := w.listing()
	i := slices.IndexFunc(inv.Storages, func(s estate.Storage) bool { return s.Name == storage && s.Node == node })
	if i < 0 { // what is listed is told, whatever else is not
		switch {
		case w.madeStorage(storage):
			w.hit(gate.Hit{Class: ClassSpace, Weight: gate.WeightNote, Object: o, Unknown: true, Text: fmt.Sprintf("%s takes up to %s on storage %s, which this plan makes: what is free there is not known", what, gib(size), storage)})
		case !ok:
			w.missing(o, "the space on storage "+storage, noSpace, dim{ClassBlocked, gate.WeightNote, nil})
		default:
			w.hit(gate.Hit{Class: ClassBlocked, Weight: gate.WeightNote, Object: o, Blocks: true, Text: fmt.Sprintf("storage %s is not to be had on node %s", storage, node)})
		}
		return
	}
	s := inv.Storages[i]
	if s.Total <= 0 {
		w.missing(o, "the space on storage "+storage+" of "+node, noSpace)
		return
	}
	key := storage
	if !s.Shared {
		key += " of " + node
	}
	before := w.filled[key]
	if w.step.When == (gate.When{}) { // else it is perhaps not done
		w.filled[key] += size
	}
	free := max(s.Total-s.Used-before, 0)
	root := w.onRoot(inv, s)
	place := "storage " + storage
	if root {
		place += " (the root file system of " + node + ")"
	}
	if before > 0 {
		place += " (which this plan fills with " + gib(before) + " besides)"
	}
	h := gate.Hit{Class: ClassSpace, Weight: gate.WeightNote, Object: o}
	switch left := free - size; {
	case size == 0:
		h.Unknown = true
		h.Text = fmt.Sprintf("%s: it is not known beforehand how much it takes; %s has %s of %s free", what, place, gib(free), gib(s.Total))
		if root || free < tight || free < s.Total/10 {
			h.Weight = gate.WeightCaution
		}
	case left < 0:
		h.Weight = gate.WeightDanger
		h.Text = fmt.Sprintf("%s takes up to %s and does not fit: %s has %s of %s free", what, gib(size), place, gib(free), gib(s.Total))
		if root {
			h.Kinds = outage
		}
		w.sharers(&h, storage, node)
	case left < tight || left < s.Total/10:
		h.Weight = gate.WeightCaution
		h.Text = fmt.Sprintf("%s takes up to %s and fits tightly: %s then has %s of %s left", what, gib(size), place, gib(left), gib(s.Total))
		w.sharers(&h, storage, node)
	default:
		h.Text = fmt.Sprintf("%s takes up to %s of the %s that are free on %s", what, gib(size), gib(free), place)
	}
	w.hit(h)
}

// onRoot says whether a folder storage lies on the node's root file system: it is as large as that is.
func (w *walk) onRoot(inv *estate.Inventory, s estate.Storage) bool {
	return (s.Type == "dir" || s.Type == "btrfs") && slices.ContainsFunc(inv.Nodes, func(n estate.Node) bool { return n.Name == s.Node && n.MaxDisk > 0 && n.MaxDisk == s.Total })
}

// sharers names who else lives on a storage that fills up: their writes fail with it.
func (w *walk) sharers(h *gate.Hit, storage, node string) {
	rows, ok := w.s.Content(node, storage)
	var who []string
	for _, r := range rows {
		if id := r["vmid"]; id != "" && r["content"] != "backup" && !slices.Contains(who, id) {
			who = append(who, id)
		}
	}
	slices.Sort(who)
	switch {
	case !ok:
		h.Text += "; who else lives there could not be read"
	case len(who) > 0:
		h.Text += "; guests " + names(who) + " live there"
	}
	if h.Weight == gate.WeightDanger && (!ok || len(who) > 0) {
		h.Kinds = outage
	}
}

// walkFill is content that comes to a storage.
func walkFill(w *walk, c change) {
	size := bytesOf(c.detail["size"])
	if s := c.detail["size"]; s != "" && strings.Trim(s, "0123456789") == "" {
		size *= 1 << 10 // this call counts in KiB where no letter is given
	}
	what := "what is stored"
	if like := c.detail["like"]; like != "" {
		what = "the copy of " + clean(like)
		storage, _, _ := strings.Cut(like, ":")
		rows, ok := w.s.Content(c.detail["from"], storage)
		if !ok {
			w.missing(c.object, "the size of "+clean(like), noSpace)
		}
		for _, r := range rows {
			if r["volid"] == like {
				size = bytesOf(r["size"])
			}
		}
		if to := namedOwner(c.detail["target"]); to != "" { // it is that guest's from then on
			w.copyOf(w.known(to), like, "")
		}
	}
	w.takes(c.object.ID, c.detail["node"], size, what)
}

// walkVolumeAltered is a resize, or a file that takes the place of one of its name.
func walkVolumeAltered(w *walk, c change) {
	if c.detail["replaced"] != "" {
		w.contentUsers(c.object.ID, "is replaced where it exists already", false)
		return
	}
	id, key, _ := strings.Cut(c.object.ID, ":")
	g, found := w.one(id, noSpace, alsoLoses, dim{ClassBlocked, gate.WeightNote, nil})
	if !found || g.config == nil {
		return
	}
	d, ok := driveOf(key, g.config[key])
	if !ok {
		w.hit(gate.Hit{Class: ClassBlocked, Weight: gate.WeightNote, Object: object(gate.ObjectGuest, id), Blocks: true, Text: title(g.Guest) + " has no disk " + clean(key)})
		return
	}
	w.alsoOf(g, "it grows under that guest too", d)
	more := bytesOf(c.detail["size"])
	if !strings.HasPrefix(c.detail["size"], "+") {
		if more < d.size {
			w.hit(gate.Hit{Class: ClassBlocked, Weight: gate.WeightNote, Object: d.object(), Blocks: true, Text: fmt.Sprintf("%s has %s already; a disk cannot be made smaller", key, gib(d.size))})
			return
		}
		more -= d.size
	}
	if more > 0 {
		w.takes(d.storage, g.Node, more, "the growth of "+key)
	}
}

// walkDiskMoved moves a disk to another storage, or to another guest.
func walkDiskMoved(w *walk, c change) {
	id, key, _ := strings.Cut(c.object.ID, ":")
	self := object(gate.ObjectGuest, id)
	dims := []dim{alsoLoses, {ClassBlocked, gate.WeightNote, nil}}
	if c.detail["to"] != "" {
		dims = append(dims, noSpace, dim{ClassMoves, gate.WeightNote, nil}, dim{ClassHA, gate.WeightCaution, nil})
	}
	if c.detail["guest"] != "" {
		dims = append(dims, dim{ClassLosesDisk, gate.WeightCaution, nil}, copyGains)
	}
	g, found := w.one(id, dims...)
	if !found || g.config == nil {
		return
	}
	d, ok := driveOf(key, g.config[key])
	if !ok {
		w.hit(gate.Hit{Class: ClassBlocked, Weight: gate.WeightNote, Object: self, Blocks: true, Text: title(g.Guest) + " has no disk " + clean(key)})
		return
	}
	switch {
	case c.detail["guest"] != "":
		w.alsoOf(g, "it gets the name of a disk of guest "+clean(c.detail["guest"])+", and settings that name it find nothing more", d)
	case c.detail["delete"] != "":
		w.alsoOf(g, "it is deleted after the copy", d)
	case d.owner() != g.ID:
		w.alsoOf(g, "", d)
	}
	if c.detail["delete"] != "" || c.detail["guest"] != "" {
		w.heldBySnapshots(g, d)
	}
	if to := c.detail["guest"]; to != "" && to != id {
		w.reassigned(g, d, to, c.detail["key"])
	}
	if to := c.detail["to"]; to != "" {
		w.movedTo(g, d, to, c.detail["delete"] != "")
	}
}

// heldBySnapshots: a disk that snapshots hold is not taken away.
func (w *walk) heldBySnapshots(g held, d drive) {
	snaps, ok := w.s.Snapshots(g.Guest)
	if !ok {
		w.missing(d.object(), "the snapshots of "+title(g.Guest), dim{ClassBlocked, gate.WeightNote, nil})
	}
	if len(snaps) > 0 && !d.unused {
		w.hit(gate.Hit{Class: ClassBlocked, Weight: gate.WeightNote, Object: d.object(), Blocks: true, Text: fmt.Sprintf("%s of %s hold %s: Proxmox does not take it away while they exist", plural(len(snaps), "snapshot", "snapshots"), title(g.Guest), d.key)})
	}
}

func (w *walk) reassigned(g held, d drive, to, key string) {
	other := object(gate.ObjectGuest, to)
	w.hit(gate.Hit{Class: ClassLosesDisk, Weight: gate.WeightCaution, Object: d.object(), Way: []gate.Object{object(gate.ObjectGuest, g.ID), d.object(), other},
		Text: fmt.Sprintf("%s loses %s (%s) to guest %s", title(g.Guest), d.key, d.volume, clean(to))})
	w.givenAway(g, d, to)
	blocked := dim{ClassBlocked, gate.WeightNote, nil}
	if w.runs(g.Guest) && g.Kind == estate.CT {
		w.hit(gate.Hit{Class: ClassBlocked, Weight: gate.WeightNote, Object: object(gate.ObjectGuest, g.ID), Blocks: true, Text: title(g.Guest) + " runs: its volumes cannot be given away"})
	}
	taker, found := w.one(to, blocked)
	if found && key != "" && taker.config[key] != "" {
		w.hit(gate.Hit{Class: ClassBlocked, Weight: gate.WeightNote, Object: other, Blocks: true, Text: fmt.Sprintf("%s has a %s already", title(taker.Guest), clean(key))})
	}
}

func (w *walk) movedTo(g held, d drive, to string, deletes bool) {
	o := object(gate.ObjectStorage, to)
	def, ok := w.storage(to)
	if !ok {
		w.missing(o, "the definition of storage "+to, dim{ClassBlocked, gate.WeightNote, nil}, dim{ClassHA, gate.WeightCaution, nil})
	}
	if def != nil && (!onNode(def, g.Node) || !serves(def, contentOf(g.Kind)) || to == d.storage && g.Kind == estate.CT) {
		w.hit(gate.Hit{Class: ClassBlocked, Weight: gate.WeightNote, Object: o, Blocks: true, Text: fmt.Sprintf("storage %s does not take %s of %s on node %s", to, d.key, title(g.Guest), g.Node)})
	}
	w.takes(to, g.Node, d.size, fmt.Sprintf("%s of %s", d.key, title(g.Guest)))
	if from, ok := w.storage(d.storage); g.HA != "" && def != nil && !isShared(def) && (!ok || isShared(from)) {
		w.hit(gate.Hit{Class: ClassHA, Weight: gate.WeightCaution, Object: object(gate.ObjectGuest, g.ID), Text: fmt.Sprintf("HA manages %s (state %s) and cannot recover it on another node once %s is on storage of one node", title(g.Guest), clean(g.HA), d.key)})
	}
	text := fmt.Sprintf("%s is copied from %s to %s", gib(d.size), d.storage, to)
	if deletes {
		text += "; the old volume is deleted afterwards"
	} else {
		text += "; the old volume stays as unused"
	}
	w.hit(gate.Hit{Class: ClassMoves, Weight: gate.WeightNote, Object: d.object(), Text: text})
}

// walkVolumeFreed is the deletion of a file or volume on a storage.
func walkVolumeFreed(w *walk, c change) {
	_, name, _ := strings.Cut(c.object.ID, ":")
	if strings.HasPrefix(name, "backup/") { // a disk may be called like an archive
		w.archiveFreed(c.object.ID)
		return
	}
	if folder, _, ok := strings.Cut(name, "/"); ok && slices.Contains([]string{"iso", "vztmpl", "snippets", "import"}, folder) {
		w.contentUsers(c.object.ID, "is deleted", true)
		return
	}
	w.volumeFreed(c.object.ID, "")
}

// contentUsers names the guests that have an image, template or script in their settings.
func (w *walk) contentUsers(volume, how string, gone bool) {
	o := object(gate.ObjectVolume, volume)
	weight := gate.WeightCaution
	storage, name, _ := strings.Cut(volume, ":")
	script := strings.HasPrefix(name, "snippets/")
	uses := dim{ClassLosesDisk, weight, nil}
	if script {
		uses.kinds = []gate.Kind{gate.KindExec, gate.KindHost}
	}
	same := w.sameVolumes(storage, name, uses)
	for g := range w.guests(o, nil, uses) {
		if !g.mentions(same.texts...) {
			continue
		}
		self := object(gate.ObjectGuest, g.ID)
		for _, d := range drives(g.config) {
			if is := same.answers(d.volume); is != no {
				text := fmt.Sprintf("%s has it in %s, and it %s", title(g.Guest), d.key, how)
				if gone {
					text += ": it does not start until the drive is emptied"
				}
				h := gate.Hit{Class: ClassLosesDisk, Weight: weight, Object: self, Way: []gate.Object{o, self}, Text: text}
				is.unsure(&h)
				w.hit(h)
			}
		}
		for _, key := range []string{"hookscript", "cicustom"} {
			for part := range strings.SplitSeq(g.config[key], ",") {
				if _, value, ok := strings.Cut(part, "="); ok {
					part = value
				}
				is := same.answers(part)
				if is == no {
					continue
				}
				h := gate.Hit{Class: ClassLosesDisk, Weight: weight, Object: self, Way: []gate.Object{o, self}, Text: fmt.Sprintf("%s has it as %s, and it %s", title(g.Guest), key, how)}
				if !gone { // what runs on the host, or in the guest, is another script then
					h.Kinds = uses.kinds
				}
				is.unsure(&h)
				w.hit(h)
			}
		}
	}
}

// unsure marks a hit that rests on two storages being one place.
func (a answer) unsure(h *gate.Hit) {
	if a == perhaps {
		h.Unknown = true
		h.Text += " (whether its storage is the same place under another name cannot be told)"
	}
}

// volumeFreed names who uses a volume that is destroyed; but for the guest by whose request it goes.
func (w *walk) volumeFreed(volume, but string) {
	o := object(gate.ObjectVolume, volume)
	storage, name, _ := strings.Cut(volume, ":")
	way := dim{ClassLosesWay, gate.WeightDanger, outage}
	left := dim{ClassLosesData, gate.WeightCaution, nil}
	same := w.sameVolumes(storage, name, losesDisk, left)
	found := false
	var owner *held
	for g := range w.guests(o, nil, losesDisk, left, way) {
		self := object(gate.ObjectGuest, g.ID)
		if g.ID == estate.OwnerOf(name) {
			owner = &g
		}
		if !g.mentions(same.texts...) {
			continue
		}
		for _, d := range drives(g.config) {
			clone := same.under(d.volume) != no
			is := max(same.under(d.volume), same.answers(d.volume))
			if is == no {
				continue
			}
			found = true
			if g.ID == but && !clone {
				continue
			}
			h := gate.Hit{Class: ClassLosesDisk, Weight: gate.WeightDanger, Object: self, Kinds: outage, Way: []gate.Object{o, self}}
			switch {
			case clone:
				h.Text = fmt.Sprintf("%s of %s is a linked clone of it and cannot be read without it", d.key, title(g.Guest))
			case d.unused:
				h = gate.Hit{Class: ClassLosesData, Weight: gate.WeightCaution, Object: o, Way: []gate.Object{o, self}, Text: fmt.Sprintf("%s keeps it as %s", title(g.Guest), d.key)}
			case w.runs(g.Guest):
				h.Text = fmt.Sprintf("it is %s of %s, which runs; Proxmox does not keep it from being deleted", d.key, title(g.Guest))
			default:
				h.Text = fmt.Sprintf("it is %s of %s, which cannot start without it; Proxmox does not keep it from being deleted", d.key, title(g.Guest))
			}
			is.unsure(&h)
			w.hit(h)
		}
	}
	if owner != nil {
		found = w.snapshotsWith(*owner, same, way) || found
	}
	w.hiddenClones(o, storage, name)
	if !found {
		text := "no settings that could be read name it"
		if id := estate.OwnerOf(name); id != "" {
			text += "; by its name it belongs to guest " + id
		}
		w.hit(gate.Hit{Class: ClassReferences, Weight: gate.WeightNote, Object: o, Text: text})
	}
}

// isBase says whether a volume may be one that linked clones rest on.
func isBase(name string) bool {
	return strings.Contains(name, "base-") || strings.Contains(name, "basevol-")
}

// hiddenClones: of a base volume on LVM-thin no name tells its clones.
func (w *walk) hiddenClones(o gate.Object, storage, name string) {
	if !isBase(name) {
		return
	}
	def, ok := w.storage(storage)
	if !ok || def == nil || def["type"] == "lvmthin" || def["type"] == "btrfs" || def["type"] == "lvm" {
		w.hit(gate.Hit{Class: ClassLosesDisk, Weight: gate.WeightDanger, Object: o, Unknown: true, Kinds: outage,
			Text: "storage " + storage + " does not tell which disks are linked clones of this base: there may be some"})
	}
}

// snapshotsWith names the snapshots of a guest that hold one of the volumes.
func (w *walk) snapshotsWith(g held, same aliases, way dim) bool {
	snaps, ok := w.s.Snapshots(g.Guest)
	if !ok {
		w.missing(object(gate.ObjectGuest, g.ID), "the snapshots of "+title(g.Guest), way)
	}
	found := false
	for _, s := range snaps {
		o := object(gate.ObjectSnapshot, g.ID+"/"+s["name"])
		c, ok := w.snapshotConfig(g.Guest, s["name"])
		if !ok {
			w.missing(o, "what snapshot "+clean(s["name"])+" holds", way)
			continue
		}
		for _, d := range drives(c) {
			if is := same.answers(d.volume); is != no {
				found = true
				h := gate.Hit{Class: ClassLosesWay, Weight: gate.WeightDanger, Object: o, Kinds: outage, Way: []gate.Object{object(gate.ObjectVolume, d.volume), o},
					Text: fmt.Sprintf("snapshot %s of %s holds it as %s: there is no way back to it any more", clean(s["name"]), title(g.Guest), d.key)}
				is.unsure(&h)
				w.hit(h)
			}
		}
	}
	return found
}

// snapshotConfig reads the settings that a snapshot holds.
func (w *walk) snapshotConfig(g estate.Guest, name string) (estate.Config, bool) {
	rows, ok := w.s.Rows(estate.PartSnaps, g.ID, gate.Read{Operation: "GET /nodes/{node}/" + g.Path() + "/{vmid}/config", Params: map[string]string{"node": g.Node, "vmid": g.ID, "snapshot": name}})
	if !ok || len(rows) == 0 {
		return nil, false
	}
	return rows[0], true
}

// orderOf is what a guest boots from.
func orderOf(c estate.Config) []string {
	for part := range strings.SplitSeq(c["boot"], ",") {
		if order, ok := strings.CutPrefix(strings.TrimSpace(part), "order="); ok {
			return strings.Split(order, ";")
		}
	}
	if d := c["bootdisk"]; d != "" {
		return []string{d}
	}
	return nil
}

// drivesAltered walks the disks that a configuration request sets or takes away. pool is the one that a new guest comes into.
func (w *walk) drivesAltered(g held, keys map[string]string, force bool, pool string) {
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if !isDrive(key) {
			w.deviceGiven(g, key, keys[key], pool)
			continue
		}
		old, had := driveOf(key, g.config[key])
		if keys[key] == "" {
			if had {
				w.driveTaken(g, old, force)
			}
			continue
		}
		w.driveSet(g, key, keys[key], old, had, pool)
	}
}

func (w *walk) driveTaken(g held, d drive, force bool) {
	self := object(gate.ObjectGuest, g.ID)
	if d.medium || d.seed {
		return
	}
	if d.unused || force {
		w.hit(gate.Hit{Class: ClassLosesData, Weight: gate.WeightDanger, Object: d.object(), Way: []gate.Object{self, d.object()}, Text: fmt.Sprintf("%s (%s) of %s is destroyed", d.key, d.volume, title(g.Guest))})
		w.volumeFreed(d.volume, g.ID)
		if d.owner() != g.ID { // volumeFreed names who has it
			w.ofAnother(g, "it is destroyed", d)
		}
	}
	if d.unused {
		return
	}
	text := fmt.Sprintf("%s (%s) is taken from %s", d.key, d.volume, title(g.Guest))
	if w.runs(g.Guest) {
		text += ", which runs with it"
	}
	if d.key == "rootfs" || slices.Contains(orderOf(g.config), d.key) {
		text += "; it boots from it"
	}
	if !force {
		text += "; the volume is kept as unused"
	}
	w.hit(gate.Hit{Class: ClassLosesDisk, Weight: gate.WeightCaution, Object: d.object(), Way: []gate.Object{self, d.object()}, Text: text})
}

func (w *walk) driveSet(g held, key, value string, old drive, had bool, pool string) {
	self := object(gate.ObjectGuest, g.ID)
	p := properties(value)
	volume := p[""] + p["file"] + p["volume"]
	if storage, size, ok := allocation(volume); ok {
		if from := p["import-from"]; from != "" {
			w.imported(g, storage, from, pool)
		} else if size > 0 {
			w.takes(storage, g.Node, size, "a new "+key)
		}
	} else if d, ok := driveOf(key, value); ok && (!had || d.volume != old.volume) {
		w.alsoOf(g, "", d)
		w.hasDataOf(g, d, pool)
	}
	if had && volume != "" && old.volume != volume && !old.medium && !old.seed {
		w.hit(gate.Hit{Class: ClassLosesDisk, Weight: gate.WeightCaution, Object: old.object(), Way: []gate.Object{self, old.object()}, Text: fmt.Sprintf("%s of %s was %s, which is taken off and kept as unused", key, title(g.Guest), old.volume)})
	}
	if p["backup"] == "0" && (!had || property(old.text, "backup") != "0") {
		w.hit(gate.Hit{Class: ClassLosesBackup, Weight: gate.WeightCaution, Object: self, Kinds: []gate.Kind{gate.KindGuard}, Text: key + " of " + title(g.Guest) + " is left out of its backups"})
	}
}

// imported: a new disk is filled with a copy of another volume, of whichever guest that is by its name or by settings.
func (w *walk) imported(g held, storage, from, pool string) {
	w.takes(storage, g.Node, 0, "the copy of "+clean(from))
	st, _, _ := strings.Cut(from, ":")
	w.copyOf(g.Guest, from, pool, object(gate.ObjectStorage, st))
}
