package reach

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

// walkRestore makes a guest of an archive, in place of one that is there if force is given.
func (w *walk) walkRestore(c change) {
	id := c.object.ID
	o := object(gate.ObjectArchive, c.detail["archive"])
	settings := w.unjudged(c.detail["type"])
	blocked := dim{ClassBlocked, gate.WeightNote, nil}
	lost := alsoLoses
	time := dim{ClassTime, gate.WeightDanger, nil}
	inv, ok := w.listing()
	_, over := inv.ByID(id)
	switch {
	case ok:
	case len(inv.Nodes) == 0 || c.detail["force"] != "" && !over:
		w.lost[c.object] = c.detail["force"] != ""
		w.missing(c.object, "the list of guests", settings, blocked, lost, time, dim{ClassLosesWay, gate.WeightCaution, nil}, dim{ClassHA, gate.WeightCaution, nil}, dim{ClassNetwork, gate.WeightCaution, nil}, losesAny, dim{ClassReferences, gate.WeightNote, nil})
	default: // without force nothing that is not seen is overwritten
		w.missing(c.object, "the list of guests", blocked, dim{ClassNetwork, gate.WeightCaution, nil})
	}
	kept, read := w.archiveConfig(c.detail["node"], c.detail["archive"])
	var was held
	if over {
		was, _ = w.one(id, settings, blocked, lost, time)
		w.overwritten(c, was, kept)
	}
	w.leftBehind(c, was, over)
	defer w.archivedRules(c, over) // said last, and also where the settings cannot be read
	if c.detail["live"] != "" {
		w.hit(gate.Hit{Class: ClassTime, Weight: gate.WeightCaution, Object: c.object, Text: "it runs while it is restored: should that fail, what it wrote meanwhile is lost"})
	}
	from := estate.OwnerOf(strings.TrimPrefix(c.detail["archive"], c.detail["archive"][:strings.IndexByte(c.detail["archive"]+":", ':')]))
	if pool := c.detail["pool"]; pool != "" || from != id {
		if !ok {
			w.missing(c.object, "the list of guests", copyGains)
		}
		w.copied(id, orText(from, "unknown"), pool, aCopy)
	}
	if c.detail["type"] == "lxc" { // what is restored is written into volumes that the request names
		g := held{Guest: estate.Guest{ID: id, Node: c.detail["node"], Kind: estate.CT}, config: estate.Config{}}
		for _, d := range drives(c.keys) {
			if _, _, made := allocation(d.volume); !made {
				w.alsoOf(g, "", d)
				w.hasDataOf(g, d, c.detail["pool"])
			}
		}
	}
	if !read {
		w.missing(o, "the settings in the archive", settings, noSpace, dim{ClassNetwork, gate.WeightCaution, nil}, dim{ClassSecret, gate.WeightNote, nil},
			dim{ClassLosesData, gate.WeightDanger, []gate.Kind{gate.KindOutage, gate.KindData}})
		w.blindCopy(o, "the settings in the archive")
		if c.detail["start"] != "" || over && keptUp(was.HA) {
			w.missing(c.object, "the settings in the archive with which it starts", w.takesDims(c.detail["type"])...)
		}
		return
	}
	if kept.unread {
		w.missing(o, "all the ways in which the archive's settings may be read", settings, dim{ClassLosesData, gate.WeightDanger, []gate.Kind{gate.KindOutage, gate.KindData}})
		w.blindCopy(o, "the settings in the archive")
	}
	for _, then := range kept.readings {
		as := kept
		as.settings = then
		w.restoredAs(c, was, over, from, as)
	}
	w.restoredDisks(c, kept.settings)
}

// restoredAs judges one reading of the settings that an archive brings into force.
func (w *walk) restoredAs(c change, was held, over bool, from string, kept archived) {
	id, then, settings := c.object.ID, kept.settings, w.unjudged(c.detail["type"])
	inv, _ := w.listing() // its gap was reported before
	now, _ := inv.ByID(id)
	b := brought{guest: c.object, kind: c.detail["type"], node: c.detail["node"], id: from, now: was.config, then: withoutVolumes(then), how: "comes into force with the archive", but: slices.Collect(maps.Keys(c.keys)), pool: c.detail["pool"]}
	if b.id == "" {
		b.id = id
	}
	switch source, there := inv.ByID(from); {
	case over:
		b.now, b.node = withoutVolumes(was.config), now.Node
		if there && from != id {
			w.sameMACs(c, source)
		}
	case there: // compared with the guest that it is of, but for what reaches into the host: there are two of them then
		if src, _ := w.one(from, settings); src.config != nil {
			b.now = withoutVolumes(src.config)
		} else {
			b.fresh = true
		}
		var differs []string // judged below
		for key := range keysOfBoth(b.now, b.then) {
			if !sameSetting(key, b.now[key], b.then[key]) {
				differs = append(differs, key)
			}
		}
		w.alongHost(c.object, b.kind, b.node, from, c.detail["pool"], b.then, slices.Concat(b.but, differs)...)
		w.sameMACs(c, source)
	default:
		b.fresh = true
	}
	w.bring(b)
	if v, set := c.keys["unprivileged"]; b.kind == "lxc" {
		if !set {
			v = then["unprivileged"]
		}
		if !(estate.Config{"unprivileged": v}).On("unprivileged") && (b.fresh || set && b.now.On("unprivileged")) {
			w.privileged(c.object)
		}
	}
	if name := then["name"] + then["hostname"]; !over && name != "" && !slices.Contains(b.but, "name") && !slices.Contains(b.but, "hostname") {
		w.hit(gate.Hit{Class: ClassSetting, Weight: gate.WeightNote, Object: c.object, Renamed: []string{name}, Text: "it is called " + clean(name)})
	}
	if !over { // with the guest that it is of, no tag differs
		w.tagsAlong(then, c.object.ID, b.but)
	}
	w.carriedDisks(c, was, kept)
	w.archivedOthers(c, was, from, kept)
	w.keptStates(c, b, was, kept)
	switch {
	case c.detail["start"] != "":
		w.startsNew(c, with(then, c.keys), "with its start")
	case over && keptUp(was.HA):
		w.startsNew(c, with(then, c.keys), "when HA starts it after the restore")
	}
}

// archivedRules: an archive holds the guest's firewall too, which comes into force with a restore, and which Proxmox shows to
// nobody. What it opens of a guest that was not there is that guest's own.
func (w *walk) archivedRules(c change, over bool) {
	switch {
	case !over:
		w.hit(gate.Hit{Class: ClassSetting, Weight: gate.WeightNote, Object: c.object, Text: "it gets the firewall options and rules that the archive holds, which cannot be read"})
	case c.detail["force"] != "":
		w.hit(gate.Hit{Class: ClassSetting, Weight: gate.WeightCaution, Object: c.object, Unknown: true, Kinds: []gate.Kind{gate.KindGuard, gate.KindNet},
			Text: "its firewall options and rules are replaced by those that the archive holds, which cannot be read; if it holds none, those of now stay"})
	}
}

// withoutVolumes leaves out the volumes, which a restore makes anew; a path of the host stays.
func withoutVolumes(c estate.Config) estate.Config {
	out := estate.Config{}
	for key, value := range c {
		if d, ok := driveOf(key, value); ok && d.storage != "" {
			continue
		}
		if base, _ := fold(key); base == "unused" || base == "vmstate" {
			continue
		}
		out[key] = value
	}
	return out
}

// sameMACs: what is restored of a guest that is there too has its MAC addresses.
func (w *walk) sameMACs(c change, source estate.Guest) {
	if c.detail["unique"] != "" {
		return
	}
	text := title(source)
	if w.runs(source) {
		text += ", which runs,"
	}
	w.hit(gate.Hit{Class: ClassNetwork, Weight: gate.WeightCaution, Object: object(gate.ObjectGuest, source.ID),
		Text: text + " has the same MAC addresses as what is restored, unless unique is given: they cannot both run in one network"})
}

// overwritten says what becomes of the guest in whose place another one comes. Of a VM's own disks Proxmox destroys those that
// the archive has something for; all of a container's go. An archive without a word of its disks counts as having all.
func (w *walk) overwritten(c change, was held, a archived) {
	if c.detail["force"] == "" {
		w.hit(gate.Hit{Class: ClassBlocked, Weight: gate.WeightNote, Object: c.object, Blocks: true, Text: title(was.Guest) + " is there already, and force is not given"})
		return
	}
	switch {
	case w.runs(was.Guest):
		w.hit(gate.Hit{Class: ClassBlocked, Weight: gate.WeightNote, Object: c.object, Blocks: true, Text: title(was.Guest) + " runs: Proxmox does not restore over it"})
	case was.config.On("protection"):
		w.hit(gate.Hit{Class: ClassBlocked, Weight: gate.WeightNote, Object: c.object, Blocks: true, Text: title(was.Guest) + " is protected: Proxmox does not restore over it"})
	}
	var gone, kept, others []string
	var own []drive
	for _, d := range drives(was.config) {
		text := d.key + " (" + clean(d.volume) + ")"
		switch {
		case d.medium || d.storage == "":
		case d.owner() != was.ID:
			others = append(others, text)
		case was.Kind == estate.VM && len(a.mapped) > 0 && !slices.Contains(a.mapped, d.key) && !a.reseeds(d.key):
			kept = append(kept, text)
		default:
			gone, own = append(gone, text), append(own, d)
		}
	}
	if was.Kind == estate.CT { // it is destroyed as a whole
		waiting, ok := w.ownWaiting(was.Guest)
		if !ok {
			w.lost[c.object] = true
			w.missing(c.object, "the changes that wait for the next start of "+title(was.Guest), alsoLoses)
		}
		for _, d := range waiting {
			if !slices.ContainsFunc(own, func(x drive) bool { return x.volume == d.volume }) {
				gone, own = append(gone, d.key+" ("+clean(d.volume)+"), which waits"), append(own, d)
			}
		}
	}
	w.alsoOf(was, "it is destroyed with the guest that is overwritten", own...)
	if len(gone) > 0 || was.config == nil {
		w.hit(gate.Hit{Class: ClassLosesData, Weight: gate.WeightDanger, Object: c.object, Matter: digestOf(gone), Text: "the disks that " + title(was.Guest) + " has now are destroyed: " + names(gone)})
	}
	if len(kept) > 0 {
		w.hit(gate.Hit{Class: ClassReferences, Weight: gate.WeightNote, Object: c.object, Text: "the archive has nothing in place of " + names(kept) + ": kept as unused disks"})
	}
	if len(others) > 0 {
		w.hit(gate.Hit{Class: ClassReferences, Weight: gate.WeightNote, Object: c.object, Text: names(others) + " of " + title(was.Guest) + " are not its own by their names: they leave its settings and stay where they are"})
	}
	in := "pool " + clean(was.Pool) + ", "
	switch pool := c.detail["pool"]; {
	case pool != "" && pool != was.Pool:
		in = ""
		text := "it comes into pool " + clean(pool)
		if was.Pool != "" {
			text += " and leaves pool " + clean(was.Pool)
		}
		w.hit(gate.Hit{Class: ClassReferences, Weight: gate.WeightNote, Object: c.object, Text: text})
	case was.Pool == "":
		in = ""
	}
	w.hit(gate.Hit{Class: ClassReferences, Weight: gate.WeightNote, Object: c.object, Text: fmt.Sprintf("what goes by the number %s (%srights, HA, backup jobs, replication, backups) is from then on that of the one that takes its place", was.ID, in)})
	w.timeLost(c, was)
	snaps, ok := w.s.Snapshots(was.Guest)
	if !ok {
		w.missing(c.object, "the snapshots of "+title(was.Guest), dim{ClassLosesWay, gate.WeightCaution, nil})
	}
	if len(snaps) > 0 {
		w.hit(gate.Hit{Class: ClassLosesWay, Weight: gate.WeightCaution, Object: c.object, Text: plural(len(snaps), "snapshot", "snapshots") + " of it go"})
	}
	if was.Kind == estate.VM {
		w.memoriesGone(c, was.Guest, snaps, ok)
	}
	if was.HA != "" {
		w.hit(gate.Hit{Class: ClassHA, Weight: gate.WeightCaution, Object: c.object, Text: "HA manages it (state " + clean(was.HA) + ") and may start it as soon as it is restored"})
	}
}

// memoriesGone: with a VM that is overwritten go its snapshots, and their memory with them.
func (w *walk) memoriesGone(c change, g estate.Guest, snaps []estate.Config, ok bool) {
	blind := func(what string) {
		w.lost[c.object] = true
		w.missing(c.object, what, alsoLoses)
	}
	if !ok {
		blind("the snapshots of " + title(g) + ", and so whose volumes go with their memory,")
	}
	for _, s := range snaps {
		if !s.On("vmstate") {
			continue
		}
		then, ok := w.snapshotConfig(g, s["name"])
		if !ok {
			blind("the settings in snapshot " + clean(s["name"]) + ", and so whose volume goes with its memory,")
		}
		w.memoryGone(held{Guest: g, config: then}, s["name"])
	}
}

// timeLost says what does not come back: of the archive's own guest what it wrote since, of any other all of it.
func (w *walk) timeLost(c change, was held) {
	_, name, _ := strings.Cut(c.detail["archive"], ":")
	from := estate.OwnerOf(name)
	if from == was.ID {
		w.hit(gate.Hit{Class: ClassTime, Weight: gate.WeightDanger, Object: c.object, Text: "all that " + title(was.Guest) + " wrote" + w.archiveAge(c.detail["archive"]) + " is lost"})
		return
	}
	text := "all that " + title(was.Guest) + " ever wrote is lost"
	switch {
	case name == "": // made anew, of no archive
	case from == "":
		text = "all that " + title(was.Guest) + " ever wrote may be lost: the archive's name does not tell of which guest it is"
	default:
		text += ": the archive is of guest " + from + ", not of " + was.ID
	}
	w.hit(gate.Hit{Class: ClassTime, Weight: gate.WeightDanger, Object: c.object, Text: text})
	all, blind := w.archives()
	if len(archivesOf(all, was.ID)) == 0 {
		w.hit(gate.Hit{Class: ClassLosesBackup, Weight: gate.WeightCaution, Object: c.object, Unknown: len(blind) > 0, Text: "there is no backup of " + title(was.Guest) + " that could bring it back" + unlessOn(blind)})
	}
}

// archiveAge reads from an archive's name when it was made.
func (w *walk) archiveAge(volume string) string {
	for part := range strings.SplitSeq(volume, "/") {
		if len(part) == 20 && part[4] == '-' && part[10] == 'T' {
			return " since the backup of " + clean(part)
		}
		if _, rest, ok := strings.Cut(part, "vzdump-"); ok {
			if f := strings.SplitN(rest, "-", 3); len(f) == 3 {
				stamp, _, _ := strings.Cut(f[2], ".")
				return " since the backup of " + clean(stamp) + " (node's time)"
			}
		}
	}
	return ""
}

func (w *walk) restoredDisks(c change, then estate.Config) {
	need := map[string]int64{}
	for _, d := range drives(then) {
		if !d.inUse() || isVMState(d.key) {
			continue
		}
		to := c.detail["storage"]
		if to == "" {
			to = d.storage
		}
		need[to] += d.size
	}
	for _, storage := range slices.Sorted(maps.Keys(need)) {
		w.takes(storage, c.detail["node"], need[storage], "the restored guest")
	}
	if node := c.detail["node"]; node != "" {
		w.bridgesThere(node, object(gate.ObjectGuest, c.object.ID), then)
	}
}
