package reach

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

// guestRules walk what guestReaders read.
func guestRules() []rule {
	return []rule{
		{removes, gate.ObjectStorage, walkStorageRemoved}, {disables, gate.ObjectStorage, walkStorageDisabled}, {restricts, gate.ObjectStorage, walkStorageRestricted},
		{alters, gate.ObjectStorage, walkStorageAltered}, {creates, gate.ObjectStorage, walkStorageCreated}, {fills, gate.ObjectStorage, walkFill}, {frees, gate.ObjectStorage, walkPrune},
		{frees, gate.ObjectVolume, walkVolumeFreed}, {alters, gate.ObjectVolume, walkVolumeAltered}, {moves, gate.ObjectVolume, walkDiskMoved}, {alters, gate.ObjectArchive, walkArchiveAltered}, {frees, gate.ObjectArchive, walkGroupsFreed}, {direct, "", func(w *walk, c change) { c.own(w, *w.step.API) }},
		{removes, gate.ObjectGuest, walkGuestRemoved}, {stops, gate.ObjectGuest, walkGuestStopped}, {restarts, gate.ObjectGuest, walkGuestStopped}, {starts, gate.ObjectGuest, walkGuestStarted},
		{moves, gate.ObjectGuest, walkGuestMoved}, {alters, gate.ObjectGuest, walkGuestAltered}, {creates, gate.ObjectGuest, walkGuestCreated}, {bringsIn, gate.ObjectGuest, walkBrought},
		{creates, gate.ObjectSnapshot, walkSnapshotMade}, {removes, gate.ObjectSnapshot, walkSnapshotRemoved},
		{removes, gate.ObjectPool, walkPoolRemoved}, {alters, gate.ObjectPool, walkPoolAltered},
		{removes, gate.ObjectJob, walkJobGone}, {alters, gate.ObjectJob, walkJobAltered}, {creates, gate.ObjectJob, walkJobCreated},
		{creates, gate.ObjectArchive, walkBackup},
	}
}

// walkGuestRemoved is the destruction of a guest.
func walkGuestRemoved(w *walk, c change) {
	id, purge := c.object.ID, c.detail["purge"] != ""
	blocked := dim{ClassBlocked, gate.WeightNote, nil}
	data := dim{ClassLosesData, gate.WeightDanger, nil}
	left := dim{ClassReferences, gate.WeightNote, nil}
	g, found := w.one(id, blocked, data, left, losesDisk, dim{ClassLosesBackup, gate.WeightCaution, nil}, dim{ClassHA, gate.WeightNote, nil}, dim{ClassLosesWay, gate.WeightCaution, nil})
	if !found {
		return
	}
	refuse := func(text string) {
		w.hit(gate.Hit{Class: ClassBlocked, Weight: gate.WeightNote, Object: c.object, Blocks: true, Text: title(g.Guest) + " " + text})
	}
	switch {
	case g.config.On("protection"):
		refuse("is protected: it is not destroyed")
	case g.Lock != "":
		refuse("is locked (" + clean(g.Lock) + ")")
	case w.runs(g.Guest) && c.detail["force"] == "":
		refuse("runs: it is not destroyed before it stops")
	case g.HA != "" && !purge:
		refuse("is managed by HA, and purge is not given")
	}
	own := map[string]bool{}
	for _, d := range drives(g.config) {
		switch {
		case d.medium || d.storage == "":
		case d.owner() == id:
			own[d.volume] = true
			word := d.key
			if d.unused {
				word += ", kept as unused,"
			}
			w.hit(gate.Hit{Class: ClassLosesData, Weight: gate.WeightDanger, Object: d.object(), Unknown: d.unnamed(), Way: []gate.Object{c.object, d.object()}, Text: fmt.Sprintf("%s (%s) is destroyed with %s", word, sizeOf(d), title(g.Guest))})
		default:
			w.hit(gate.Hit{Class: ClassReferences, Weight: gate.WeightNote, Object: d.object(), Text: fmt.Sprintf("%s is not its own by its name and stays", d.key)})
		}
	}
	waiting, told := w.ownWaiting(g.Guest)
	if !told {
		w.missing(c.object, "the changes that wait for the next start of "+title(g.Guest), data)
	}
	for _, d := range waiting {
		if !own[d.volume] {
			own[d.volume] = true
			w.hit(gate.Hit{Class: ClassLosesData, Weight: gate.WeightDanger, Object: d.object(), Unknown: d.unnamed(), Way: []gate.Object{c.object, d.object()}, Text: fmt.Sprintf("%s, which waits for the next start, (%s) is destroyed with %s", d.key, sizeOf(d), title(g.Guest))})
		}
	}
	if c.detail["unreferenced"] != "" {
		told = w.unreferenced(c.object, id, own) && told
	}
	w.otherUsers(c.object, g, own, told && g.config != nil)
	snaps, ok := w.s.Snapshots(g.Guest)
	if !ok {
		w.missing(c.object, "the snapshots of "+title(g.Guest), dim{ClassLosesWay, gate.WeightCaution, nil})
	}
	if len(snaps) > 0 {
		w.hit(gate.Hit{Class: ClassLosesWay, Weight: gate.WeightCaution, Object: c.object, Text: plural(len(snaps), "snapshot goes", "snapshots go") + " with it"})
	}
	all, blind := w.archives()
	switch mine := archivesOf(all, id); {
	case len(mine) > 0:
		_, when := w.ago(mine[0].made)
		w.hit(gate.Hit{Class: ClassReferences, Weight: gate.WeightNote, Object: object(gate.ObjectArchive, mine[0].volume), Text: fmt.Sprintf("%s of it stay without a guest, the newest of %s", plural(len(mine), "backup", "backups"), when)})
	default:
		w.hit(gate.Hit{Class: ClassLosesBackup, Weight: gate.WeightCaution, Object: c.object, Unknown: len(blind) > 0, Text: "there is no backup of it" + unlessOn(blind)})
	}
	if len(blind) > 0 {
		w.missing(c.object, "what backups lie on "+names(blind), left)
	}
	w.namedStill(c.object, g, purge)
	if g.config != nil {
		w.serving(c.object, g)
	}
}

func sizeOf(d drive) string {
	if d.size == 0 {
		return d.volume
	}
	return d.volume + ", " + gib(d.size)
}

// ownWaiting are the volumes of a guest by its own name that changes of its settings name which wait: Proxmox destroys them with
// the guest as it does those that it has.
func (w *walk) ownWaiting(g estate.Guest) (out []drive, ok bool) {
	rows, ok := w.s.Pending(g)
	for _, r := range rows {
		if d, is := driveOf(r["key"], r["pending"]); is && !d.medium && d.storage != "" && d.owner() == g.ID {
			out = append(out, d)
		}
	}
	return out, ok
}

// otherUsers names guests whose settings name a volume that goes with this one, its linked clones among them. Where it was not
// told what all goes, any that is this one's by its name may.
func (w *walk) otherUsers(o gate.Object, g held, own map[string]bool, told bool) {
	blocked := dim{ClassBlocked, gate.WeightNote, nil}
	same := map[string]aliases{}
	for v := range own {
		storage, name, _ := strings.Cut(v, ":")
		same[v] = w.sameVolumes(storage, name, losesDisk, blocked)
	}
	for other := range w.guests(o, func(x *estate.Guest) bool { return x.ID != g.ID }, losesDisk, blocked) {
		if !other.mentions(g.ID) {
			continue
		}
		it := object(gate.ObjectGuest, other.ID)
		for _, d := range drives(other.config) {
			base, is := "", no
			for v, a := range same {
				if a.under(d.volume) != no {
					base = v
				}
				is = max(is, a.answers(d.volume))
			}
			switch {
			case base != "":
				w.hit(gate.Hit{Class: ClassBlocked, Weight: gate.WeightNote, Object: it, Blocks: true, Way: []gate.Object{o, object(gate.ObjectVolume, base), it},
					Text: fmt.Sprintf("%s is a linked clone (%s): Proxmox does not destroy the base of it", title(other.Guest), d.key)})
			case is != no || d.owner() == g.ID && !d.medium && !told:
				h := gate.Hit{Class: ClassLosesDisk, Weight: gate.WeightDanger, Object: it, Kinds: outage, Way: []gate.Object{o, d.object(), it},
					Text: fmt.Sprintf("%s has %s as %s: it is destroyed with %s", title(other.Guest), d.volume, d.key, title(g.Guest))}
				is.unsure(&h)
				if is == no {
					h.Unknown, h.Text = true, fmt.Sprintf("%s has %s as %s: it may be destroyed with %s, whose it is by its name", title(other.Guest), d.volume, d.key, title(g.Guest))
				}
				w.hit(h)
			case d.owner() == g.ID && !d.medium:
				w.hit(gate.Hit{Class: ClassReferences, Weight: gate.WeightNote, Object: it, Text: fmt.Sprintf("%s has %s as %s, which is %s's by its name", title(other.Guest), d.volume, d.key, title(g.Guest))})
			}
		}
	}
	for v := range own {
		storage, name, _ := strings.Cut(v, ":")
		if g.Template || strings.Contains(name, "base-") {
			w.hiddenClones(object(gate.ObjectVolume, v), storage, name)
		}
	}
}

// unreferenced: volumes that bear the guest's id and that its settings do not name go too. told is false when not all could be read.
func (w *walk) unreferenced(o gate.Object, id string, own map[string]bool) (told bool) {
	defs, ok := w.s.Storages()
	inv, listed := w.listing()
	data := dim{ClassLosesData, gate.WeightDanger, nil}
	if told = ok && listed; !told {
		w.missing(o, "what lies on the storages", data)
	}
	g, _ := inv.ByID(id)
	for _, d := range defs {
		if !onNode(d, g.Node) || !serves(d, "images") && !serves(d, "rootdir") {
			continue
		}
		rows, ok := w.s.Content(g.Node, d["storage"])
		if !ok {
			told = false
			w.missing(object(gate.ObjectStorage, d["storage"]), "what lies on storage "+d["storage"], data)
		}
		for _, r := range rows {
			if r["vmid"] == id && (r["content"] == "images" || r["content"] == "rootdir") && !own[r["volid"]] {
				own[r["volid"]] = true
				w.hit(gate.Hit{Class: ClassLosesData, Weight: gate.WeightDanger, Object: object(gate.ObjectVolume, r["volid"]), Text: "it bears the id of the guest, is not in its settings, and is destroyed too"})
			}
		}
	}
	return told
}

// namedStill lists what goes on naming a guest that is gone, or is cleared of it.
func (w *walk) namedStill(o gate.Object, g held, purge bool) {
	left := dim{ClassReferences, gate.WeightNote, nil}
	say := func(class string, of gate.Object, text string) {
		w.hit(gate.Hit{Class: class, Weight: gate.WeightNote, Object: of, Text: text})
	}
	verbs := map[bool]string{true: "is taken out of", false: "stays named in"}[purge]
	if g.HA != "" {
		say(ClassHA, object(gate.ObjectHA, haID(g.Guest)), "HA no longer manages it")
	}
	jobs, ok := w.s.Jobs()
	if !ok {
		w.missing(o, "the backup jobs", left)
	}
	for _, j := range jobs {
		if slices.Contains(words(j["vmid"]), g.ID) {
			say(ClassReferences, object(gate.ObjectJob, j["id"]), "it "+verbs+" backup job "+clean(j["id"]))
		}
	}
	rows, ok := w.s.Replication()
	if !ok {
		w.missing(o, "the replication jobs", left)
	}
	for _, r := range rows {
		if r["guest"] == g.ID {
			text := "replication " + clean(r["id"]) + " stays and fails"
			if purge {
				text = "replication " + clean(r["id"]) + " to " + clean(r["target"]) + " is removed"
			}
			say(ClassReferences, object(gate.ObjectReplication, r["id"]), text)
		}
	}
	if g.Pool != "" {
		say(ClassReferences, object(gate.ObjectPool, g.Pool), "it leaves pool "+clean(g.Pool))
	}
	entries, ok := w.s.ACL()
	if !ok {
		w.missing(o, "the access list", left)
	}
	n := 0
	for _, e := range entries {
		if e["path"] == "/vms/"+g.ID {
			n++
		}
	}
	if n > 0 {
		say(ClassReferences, object(gate.ObjectACL, "/vms/"+g.ID), plural(n, "access entry for it goes", "access entries for it go")+" with it, as do its firewall rules")
	}
}

func haID(g estate.Guest) string { return g.Kind + ":" + g.ID }

// walkGuestStopped is a stop, shutdown, reset, suspension or restart.
func walkGuestStopped(w *walk, c change) {
	id := c.object.ID
	pends := c.detail["suspend"] == "" && c.detail["again"] == "" && c.detail["inside"] == ""
	dims := []dim{{ClassStops, gate.WeightNote, nil}, {ClassHA, gate.WeightCaution, nil}, {ClassBlocked, gate.WeightNote, nil}, losesDisk, losesBackup}
	again := c.verb == restarts || c.detail["inside"] != ""
	switch {
	case again:
		dims = append(dims, w.startDims(c.detail["type"])...)
	case pends:
		dims = append(dims, w.unjudged(c.detail["type"]), alsoLoses)
	}
	if c.detail["named"] == "no" {
		dims = append(dims, dim{ClassStops, gate.WeightDanger, outage})
	}
	if c.detail["todisk"] != "" {
		dims = append(dims, noSpace)
	}
	g, found := w.one(id, dims...)
	if !found {
		return
	}
	if w.runs(g.Guest) {
		h := gate.Hit{Class: ClassStops, Weight: gate.WeightNote, Object: c.object, Text: title(g.Guest) + " " + c.howStopped()}
		if c.detail["named"] == "no" { // a set that the server chooses: the request does not say who
			h.Weight, h.Kinds = gate.WeightDanger, outage
		}
		w.hit(h)
	}
	if g.HA != "" {
		switch {
		case c.detail["inside"] != "":
			w.hit(gate.Hit{Class: ClassHA, Weight: gate.WeightCaution, Object: c.object, Text: fmt.Sprintf("HA manages %s (state %s) and starts it again when it stops by itself", title(g.Guest), clean(g.HA))})
		case c.verb == stops && c.detail["suspend"] == "":
			w.hit(gate.Hit{Class: ClassHA, Weight: gate.WeightNote, Object: c.object, Text: "HA carries it out: it keeps the guest stopped until it is started again"})
		}
	}
	if g.Lock != "" && w.runs(g.Guest) {
		w.hit(gate.Hit{Class: ClassBlocked, Weight: gate.WeightNote, Object: c.object, Text: title(g.Guest) + " is locked (" + clean(g.Lock) + "): Proxmox may refuse until that ends"})
	}
	if c.detail["todisk"] != "" && w.runs(g.Guest) {
		w.memoryKept(g.ID, c.detail["state"])
	}
	if g.config == nil {
		return
	}
	w.serving(c.object, g)
	switch to := c.detail["to"]; {
	case !w.runs(g.Guest):
	case c.verb == restarts && to != "":
		w.begins(c.object, g, beginning{node: to, when: "when it starts on " + to})
	case c.verb == restarts:
		w.begins(c.object, g, beginning{node: g.Node, when: "with its restart", ran: true})
	case c.detail["inside"] != "" && keptUp(g.HA):
		w.begins(c.object, g, beginning{node: g.Node, when: "when HA starts it again", ran: true})
	case pends:
		w.waiting(c, g, "waited until it stops and comes into force")
	}
}

// keptUp says whether HA, by its state of a guest, keeps it running.
func keptUp(state string) bool {
	return state != "" && state != "stopped" && state != "disabled" && state != "ignored"
}

func (c change) howStopped() string {
	switch {
	case c.verb == restarts:
		return "is shut down and started again"
	case c.detail["again"] != "":
		return "is reset: what it holds in memory is lost"
	case c.detail["suspend"] != "":
		return "stands still until it is resumed"
	case c.detail["hard"] != "":
		return "is stopped hard: what it holds in memory is lost"
	}
	return "stops"
}

// serving: a guest may itself hold a storage of the site; its fixed addresses tell.
func (w *walk) serving(o gate.Object, g held) {
	addresses := fixedAddresses(g.config)
	if len(addresses) == 0 {
		return
	}
	defs, ok := w.s.Storages()
	if !ok {
		w.missing(o, "the definitions of storages", losesDisk, losesBackup)
	}
	for _, d := range defs {
		if !slices.Contains(addresses, d["server"]) && !slices.Contains(addresses, d["portal"]) || d.On("disable") {
			continue
		}
		for other := range w.guests(o, func(x *estate.Guest) bool { return x.ID != g.ID }, losesDisk) {
			if !other.mentions(d["storage"] + ":") {
				continue
			}
			for _, x := range drives(other.config) {
				if x.storage == d["storage"] && x.inUse() && w.runs(other.Guest) {
					it := object(gate.ObjectGuest, other.ID)
					w.hit(gate.Hit{Class: ClassLosesDisk, Weight: gate.WeightDanger, Object: it, Kinds: outage, Way: []gate.Object{o, object(gate.ObjectStorage, d["storage"]), x.object(), it},
						Text: fmt.Sprintf("%s has %s on storage %s, which %s serves (%s)", title(other.Guest), x.key, d["storage"], title(g.Guest), d["server"]+d["portal"])})
				}
			}
		}
		if !serves(d, "images") && !serves(d, "rootdir") {
			w.hit(gate.Hit{Class: ClassLosesBackup, Weight: gate.WeightCaution, Object: object(gate.ObjectStorage, d["storage"]), Text: fmt.Sprintf("%s serves storage %s: nothing is read from it or written to it meanwhile", title(g.Guest), d["storage"])})
			continue
		}
		w.hit(gate.Hit{Class: ClassLosesDisk, Weight: gate.WeightDanger, Object: object(gate.ObjectStorage, d["storage"]), Kinds: outage, Way: []gate.Object{o, object(gate.ObjectStorage, d["storage"])},
			Text: fmt.Sprintf("%s serves storage %s: it is gone with it", title(g.Guest), d["storage"])})
	}
}

// walkGuestStarted is a start or a resumption.
func walkGuestStarted(w *walk, c change) {
	begins := beginning{when: "with its start", asked: true}
	runs, told := w.left(c.object.ID)
	if made, ok, rolled := w.starting(c.object.ID); ok && runs != yes {
		begins.node = made.Node
		if rolled {
			w.startsBack(c.object, made, made.config, begins)
		} else {
			w.takesUp(c.object, made, made.config, made.config, begins)
		}
		return
	}
	// One that is suspended to its disk is started when it is resumed, with all that a start brings.
	g, found := w.one(c.object.ID, append(w.startDims(c.detail["type"]), dim{ClassBlocked, gate.WeightNote, nil})...)
	if !found || told && runs == yes || !told && (g.Status == "running" || c.detail["resume"] != "" && g.Status == "paused") {
		return
	}
	refuse := func(text string) {
		w.hit(gate.Hit{Class: ClassBlocked, Weight: gate.WeightNote, Object: c.object, Blocks: true, Text: title(g.Guest) + " " + text})
	}
	switch {
	case g.Template:
		refuse("is a template: it does not start")
	case g.Lock != "" && g.Lock != "suspended":
		refuse("is locked (" + clean(g.Lock) + ")")
	}
	begins.node = g.Node
	w.begins(c.object, g, begins)
}

// memoryThere compares what a guest may take with what the node has free.
func (w *walk) memoryThere(g estate.Guest, node, how string) {
	w.memoryFor(node, g.MaxMem, g, "when "+how)
}

// memoryFor compares what a guest takes of memory with what a node has free.
func (w *walk) memoryFor(node string, need int64, g estate.Guest, how string) {
	o := object(gate.ObjectNode, node)
	n, err := w.s.Inventory().Node(node)
	if err != nil || !n.Figures {
		w.missing(o, "the memory of node "+node, dim{ClassSpace, gate.WeightCaution, nil})
		return
	}
	others := w.spoken[node] + w.memoryBefore(node, g.ID)
	w.spoken[node] += need
	if free := n.MaxMem - n.Mem - others; need > free {
		left := map[bool]string{true: "left after what this plan starts and moves there first", false: "free"}[others > 0]
		w.hit(gate.Hit{Class: ClassSpace, Weight: gate.WeightCaution, Object: o, Text: fmt.Sprintf("%s may take %s %s, and node %s has %s of %s %s: the host may run out of memory and end guests", title(g), gib(need), how, node, gib(max(free, 0)), gib(n.MaxMem), left)})
	}
}

// walkGuestAltered is a change of a guest's settings.
func walkGuestAltered(w *walk, c change) {
	var disks, nics bool
	for key, value := range c.keys {
		base, _ := fold(key)
		disks = disks || isDrive(key)
		nics = nics || base == "net" && value != ""
	}
	template := c.keys["template"] != "" && c.keys["template"] != "0"
	net := dim{ClassNetwork, gate.WeightCaution, nil}
	dims := []dim{{ClassSetting, gate.WeightNote, nil}}
	if !template {
		dims = append(dims, w.unjudged(c.detail["type"]), dim{ClassLosesData, gate.WeightDanger, []gate.Kind{gate.KindOutage, gate.KindData}})
	}
	if _, ok := c.keys["template"]; ok && !template {
		dims = append(dims, losesDisk)
	}
	if disks {
		dims = append(dims, losesDisk, noSpace, dim{ClassLosesData, gate.WeightDanger, []gate.Kind{gate.KindOutage, gate.KindData}}, losesBackup, dim{ClassBlocked, gate.WeightNote, nil},
			dim{ClassLosesWay, gate.WeightDanger, outage}, copyGains, dim{ClassReferences, gate.WeightNote, nil})
	}
	for key := range c.keys {
		if base, _ := fold(key); base == "net" {
			dims = append(dims, net)
			break
		}
	}
	if template {
		dims = append(dims, dim{ClassBlocked, gate.WeightNote, nil}, dim{ClassLosesWay, gate.WeightDanger, nil}, alsoLoses)
	}
	g, found := w.one(c.object.ID, dims...)
	if !found && w.made(c.object.ID) { // it has what its making gave it, and gets the disks that are set
		w.drivesAltered(held{Guest: estate.Guest{ID: c.object.ID, Kind: kindOf(c.detail["type"]), Node: c.detail["node"]}, config: estate.Config{}}, c.keys, false, "")
		return
	}
	if !found || g.config == nil {
		return
	}
	w.toldSettings(c, g)
	if !template {
		w.swept(c, g)
		if seedsAtOnce(c, g) && w.runs(g.Guest) { // the image is made anew at once
			w.seedsBut(c, g.Guest, "was set since the last cloud-init image and comes into the guest with it", func(key string) bool { _, set := c.keys[key]; return set })
		}
	}
	w.drivesAltered(g, c.keys, c.detail["force"] != "", "")
	then := estate.Config{}
	for key, value := range c.keys {
		base, number := fold(key)
		switch {
		case base != "net" || number == "":
		case value == "" && g.config[key] != "":
			h := gate.Hit{Class: ClassNetwork, Weight: gate.WeightCaution, Object: c.object, Text: title(g.Guest) + " loses " + key + " (" + clean(properties(g.config[key])["bridge"]) + ")"}
			w.hit(h)
		default:
			then[key] = value
		}
	}
	if nics {
		w.bridgesThere(g.Node, c.object, then)
	}
	for _, key := range slices.Sorted(maps.Keys(then)) {
		w.nicAltered(c.object, g, key, then[key])
	}
	if template {
		w.templateMade(c.object, g)
	}
	if v, ok := c.keys["template"]; ok && !template && (g.Template || g.config.On("template")) {
		w.templateUsed(c.object, g, v)
	}
}

// templateUsed: a template that is one no more can be started, and then writes to what its linked clones rest on.
func (w *walk) templateUsed(o gate.Object, g held, value string) {
	for _, d := range drives(g.config) {
		if !d.inUse() {
			continue
		}
		storage, name, _ := strings.Cut(d.volume, ":")
		same := w.sameVolumes(storage, name, losesDisk)
		for other := range w.guests(o, func(x *estate.Guest) bool { return x.ID != g.ID }, losesDisk) {
			for _, x := range drives(other.config) {
				is := same.under(x.volume)
				if is == no {
					continue
				}
				it := object(gate.ObjectGuest, other.ID)
				h := gate.Hit{Class: ClassLosesDisk, Weight: gate.WeightDanger, Object: it, Kinds: outage, Way: []gate.Object{o, d.object(), it},
					Text: fmt.Sprintf("%s of %s is a linked clone of %s: it is destroyed when %s, no template any more (template=%s), is started and writes there", x.key, title(other.Guest), d.volume, title(g.Guest), clean(value))}
				is.unsure(&h)
				w.hit(h)
			}
		}
		w.hiddenClones(d.object(), storage, name)
	}
}

// atOnce are keys that take effect while a guest runs.
var atOnce = []string{"name", "hostname", "tags", "onboot", "description", "protection", "startup", "autostart", "hookscript", "lock", "nameserver", "searchdomain"}

// toldSettings says which keys get which values, and which of them wait for the next start.
func (w *walk) toldSettings(c change, g held) {
	var lines, waits []string
	for _, key := range slices.Sorted(maps.Keys(c.keys)) {
		now, then := g.config[key], c.keys[key]
		if sameSetting(key, now, then) || key == "description" {
			continue
		}
		lines = append(lines, clean(key)+": "+shown(key, then)+", now "+shown(key, now))
		if !slices.Contains(atOnce, key) && w.runs(g.Guest) {
			waits = append(waits, clean(key))
		}
	}
	if len(lines) == 0 {
		return
	}
	text := strings.Join(lines, "; ")
	if len(waits) > 0 {
		text += "; it runs: what cannot be changed meanwhile of " + names(waits) + " waits for its next start"
	}
	w.hit(gate.Hit{Class: ClassSetting, Weight: gate.WeightNote, Object: c.object, Text: text})
}

// templateMade: a template starts no more. That it is one can be taken back; that its disks are bases cannot.
func (w *walk) templateMade(o gate.Object, g held) {
	refuse := func(text string) {
		w.hit(gate.Hit{Class: ClassBlocked, Weight: gate.WeightNote, Object: o, Blocks: true, Text: title(g.Guest) + " " + text})
	}
	if w.runs(g.Guest) {
		refuse("runs: it is not made a template")
	}
	snaps, ok := w.s.Snapshots(g.Guest)
	if !ok {
		w.missing(o, "the snapshots of "+title(g.Guest), dim{ClassBlocked, gate.WeightNote, nil})
	}
	if len(snaps) > 0 {
		refuse("has snapshots: it is not made a template")
	}
	w.alsoOf(g, "it becomes a base under another name, and settings that name it find nothing more", drives(g.config)...)
	w.hit(gate.Hit{Class: ClassLosesWay, Weight: gate.WeightDanger, Object: o, Text: title(g.Guest) + " starts no more, and no call makes its base disks ordinary ones again"})
}

// bridgesThere looks whether a node has the bridges that a guest's settings name.
func (w *walk) bridgesThere(node string, o gate.Object, c estate.Config) {
	lost := dim{ClassNetwork, gate.WeightCaution, nil}
	var wanted []string
	for key, value := range c {
		if base, number := fold(key); base == "net" && number != "" {
			if b := properties(value)["bridge"]; b != "" && !slices.Contains(wanted, b) {
				wanted = append(wanted, b)
			}
		}
	}
	if len(wanted) == 0 {
		return
	}
	slices.Sort(wanted)
	rows, ok := w.s.Network(node)
	if !ok {
		w.missing(o, "the networks of node "+node, lost)
		return
	}
	for _, b := range wanted {
		if slices.ContainsFunc(rows, func(r estate.Config) bool { return r["iface"] == b }) {
			continue
		}
		vnets, ok := w.s.Rows(estate.PartVNets, "", gate.Read{Operation: "GET /cluster/sdn/vnets"})
		if !ok {
			w.missing(o, "the virtual networks", lost)
			continue
		}
		if slices.ContainsFunc(vnets, func(r estate.Config) bool { return r["vnet"] == b }) {
			continue
		}
		w.hit(gate.Hit{Class: ClassNetwork, Weight: gate.WeightCaution, Object: o, Way: []gate.Object{object(gate.ObjectBridge, node+"/"+b), o},
			Text: fmt.Sprintf("node %s has no network %s: the guest does not start there", node, clean(b))})
	}
}

// losesAny: the backups of a guest that is overwritten.
var losesAny = dim{ClassLosesBackup, gate.WeightCaution, nil}

// walkGuestCreated is a new guest.
func walkGuestCreated(w *walk, c change) {
	node := c.detail["node"]
	inv, ok := w.listing()
	blocked := dim{ClassBlocked, gate.WeightNote, nil}
	if !ok {
		w.missing(c.object, "the list of guests", blocked)
		if c.detail["force"] != "" {
			w.lost[c.object] = true
			w.missing(c.object, "the list of guests", alsoLoses, dim{ClassTime, gate.WeightDanger, nil}, losesAny, dim{ClassLosesWay, gate.WeightCaution, nil}, dim{ClassHA, gate.WeightCaution, nil}, dim{ClassReferences, gate.WeightNote, nil})
		}
	}
	switch old, there := inv.ByID(c.object.ID); {
	case there && c.detail["force"] != "":
		if was, _ := w.one(old.ID, alsoLoses, dim{ClassTime, gate.WeightDanger, nil}, losesAny, blocked, dim{ClassReferences, gate.WeightNote, nil}); was.config != nil {
			w.overwritten(c, was, archived{})
		}
	case there:
		w.hit(gate.Hit{Class: ClassBlocked, Weight: gate.WeightNote, Object: c.object, Blocks: true, Text: title(old) + " has this id already"})
	}
	g := held{Guest: estate.Guest{ID: c.object.ID, Node: node, Kind: estate.VM}, config: estate.Config{}}
	if c.detail["type"] == "lxc" {
		g.Kind = estate.CT
	}
	w.drivesAltered(g, c.keys, false, c.detail["pool"])
	if source := namedOwner(c.detail["template"]); source != "" { // an archive in place of a template
		w.copied(c.object.ID, source, c.detail["pool"], aCopy)
	}
	if g.Kind == estate.CT && !estate.Config(c.keys).On("unprivileged") {
		w.privileged(c.object)
	}
	w.bridgesThere(node, c.object, c.keys)
	if c.detail["start"] != "" {
		w.startsNew(c, c.keys, "with its start")
	}
}

// privileged: what opens the host to a container does so from its first start.
func (w *walk) privileged(o gate.Object) {
	w.hit(gate.Hit{Class: ClassSetting, Weight: gate.WeightCaution, Object: o, Kinds: []gate.Kind{gate.KindGuard}, Text: "it is privileged (unprivileged is not on): root in it is root of the node, but for what holds it in"})
}

// walkSnapshotMade is routine; with the memory the guest stands still meanwhile.
func walkSnapshotMade(w *walk, c change) {
	w.snapshotInside(c.detail["vmid"], "is made")
	if c.detail["ram"] != "" {
		w.memoryKept(c.detail["vmid"], "")
		w.hit(gate.Hit{Class: ClassTime, Weight: gate.WeightNote, Object: object(gate.ObjectGuest, c.detail["vmid"]), Text: "its memory is saved too: it runs on, slowed, and stands still for a moment at the end"})
	}
}

// snapshotInside: a snapshot lies in the disk's own file, or beside it in a chain, where the format is qcow2. Whoever else writes
// to that disk knows nothing of it. On other storages it is the storage that keeps it apart.
func (w *walk) snapshotInside(id, how string) {
	if g, found := w.one(id, alsoLoses); found && g.config != nil {
		w.insideOf(g, how)
	}
}

func (w *walk) insideOf(g held, how string) {
	inside := slices.DeleteFunc(drives(g.config), func(d drive) bool { return !d.inUse() || isVMState(d.key) || !strings.HasSuffix(d.volume, ".qcow2") })
	w.alsoOf(g, "a snapshot "+how+" in a file that both of them write to", inside...)
}

// snapshotTaken: Proxmox takes a snapshot away from the volumes that it names, which need not be those that the guest has now: one
// of that name on a disk of another guest is lost to that guest.
func (w *walk) snapshotTaken(g estate.Guest, name string) {
	then, ok := w.snapshotConfig(g, name)
	if !ok {
		o := object(gate.ObjectSnapshot, g.ID+"/"+name)
		w.lost[o] = true
		w.missing(o, "the disks that the snapshot names", alsoLoses)
	}
	was := held{Guest: g, config: then}
	w.insideOf(was, "is taken away")
	for _, d := range drives(then) {
		if by := d.owner(); d.inUse() && !isVMState(d.key) && by != "" && by != g.ID && !strings.HasSuffix(d.volume, ".qcow2") {
			w.alsoOf(was, "snapshot "+clean(name)+" is taken away from it", d)
		}
	}
	w.memoryGone(was, name)
}

// memoryGone: the memory of a snapshot is a volume of its own, which Proxmox destroys with it and does not ask whose it is.
func (w *walk) memoryGone(was held, name string) {
	if d, ok := driveOf("vmstate", was.config["vmstate"]); ok {
		w.alsoOf(was, "it is destroyed with snapshot "+clean(name)+", which names it as its memory", d)
	}
}

// memoryKept: the memory of a guest goes to a storage, where it may fill up what others live on.
func (w *walk) memoryKept(id, storage string) {
	g, found := w.one(id, noSpace)
	if !found || storage == "" && g.config == nil {
		return
	}
	if storage == "" {
		storage = g.config["vmstatestorage"]
	}
	if storage == "" {
		storage = w.besideDisks(g)
	}
	w.takes(storage, g.Node, g.MaxMem, "the memory of "+title(g.Guest))
}

// besideDisks is the storage that Proxmox chooses for what belongs to a guest's disks: a shared one of theirs, else one of
// theirs.
func (w *walk) besideDisks(g held) string {
	out := "local"
	for _, d := range drives(g.config) {
		if !d.inUse() {
			continue
		}
		def, ok := w.storage(d.storage)
		if !ok {
			w.missing(object(gate.ObjectGuest, g.ID), "the definitions of storages", noSpace)
		}
		if out = d.storage; def != nil && isShared(def) {
			break
		}
	}
	return out
}

// walkSnapshotRemoved: what builds on it is kept; the way back goes.
func walkSnapshotRemoved(w *walk, c change) {
	id, name := c.detail["vmid"], c.detail["snapshot"]
	way := dim{ClassLosesWay, gate.WeightNote, nil}
	g, there := w.s.Inventory().ByID(id)
	if !there {
		w.lost[c.object] = true
		w.missing(c.object, "the list of guests", way, dim{ClassReferences, gate.WeightNote, nil}, alsoLoses)
		return
	}
	snaps, ok := w.s.Snapshots(g)
	if !ok {
		w.missing(c.object, "the snapshots of "+title(g), way, dim{ClassReferences, gate.WeightNote, nil})
	}
	if ok && !slices.ContainsFunc(snaps, func(s estate.Config) bool { return s["name"] == name }) { // the plan itself takes it, of what the guest has
		w.snapshotInside(id, "is taken away")
	} else {
		w.snapshotTaken(g, name)
	}
	for _, s := range snaps {
		switch {
		case s["name"] == name:
			_, when := w.ago(s["snaptime"])
			w.hit(gate.Hit{Class: ClassLosesWay, Weight: gate.WeightNote, Object: c.object, Text: "there is no way back to " + when + " any more"})
		case s["parent"] == name:
			w.hit(gate.Hit{Class: ClassReferences, Weight: gate.WeightNote, Object: object(gate.ObjectSnapshot, id+"/"+s["name"]), Text: "snapshot " + clean(s["name"]) + " was made after it and stays"})
		}
	}
}
