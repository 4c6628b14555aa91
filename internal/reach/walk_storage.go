package reach

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

// storageGone walks a storage that cannot be used any more, on all nodes or on those that lose it.
type storageGone struct {
	name    string
	how     string                 // "is removed", "is disabled"
	lost    func(node string) bool // nil = all nodes
	content []string               // the types of content that go; nil = all
	removed bool                   // the definition goes, with what is kept beside it
}

func walkStorageRemoved(w *walk, c change) {
	w.storageGone(storageGone{name: c.object.ID, how: "is removed", removed: true})
}

func walkStorageDisabled(w *walk, c change) {
	w.storageGone(storageGone{name: c.object.ID, how: "is disabled"})
}

// walkStorageRestricted finds the nodes that lose the storage: those that have it now and are not in the new list.
func walkStorageRestricted(w *walk, c change) {
	keep := words(c.detail["nodes"])
	w.storageGone(storageGone{name: c.object.ID, how: "is withdrawn", lost: func(node string) bool { return !slices.Contains(keep, node) }})
}

// elsewhere are the options that say where a storage's contents are: with another value it shows others.
var elsewhere = []string{"server", "server2", "export", "share", "portal", "target", "pool", "vgname", "thinpool", "datastore", "namespace", "path", "monhost", "subdir",
	"base", "iscsiprovider", "data-pool", "fs-name", "username", "password", "keyring", "fingerprint", "domain", "port", "volume", "content-dirs", "zfs-base-path", "mountpoint"}

// walkStorageAltered walks options one by one.
func walkStorageAltered(w *walk, c change) {
	o := c.object
	def, ok := w.storage(o.ID)
	if !ok {
		w.missing(o, "the definition of storage "+o.ID, dim{ClassSetting, gate.WeightCaution, nil}, dim{ClassSecret, gate.WeightDanger, []gate.Kind{gate.KindData}})
	}
	var moved []string
	for _, key := range slices.Sorted(maps.Keys(c.keys)) {
		now, next := def[key], c.keys[key]
		if ok && now == next && key != "password" && key != "keyring" && key != "encryption-key" {
			continue
		}
		switch {
		case key == "content":
			var gone []string
			for _, t := range []string{"images", "rootdir", "backup", "iso", "vztmpl", "snippets", "import"} {
				if !slices.Contains(words(next), t) && (!ok || serves(def, t)) {
					gone = append(gone, t)
				}
			}
			if len(gone) > 0 {
				w.storageGone(storageGone{name: o.ID, how: "no longer serves " + strings.Join(gone, ", "), content: gone})
			}
		case key == "encryption-key":
			if !ok || now != "" {
				w.hit(gate.Hit{Class: ClassSecret, Weight: gate.WeightDanger, Object: o, Kinds: []gate.Kind{gate.KindData}, Unknown: !ok,
					Text: "the encryption key of storage " + o.ID + " that is kept on the site is replaced or destroyed: backups made with it cannot be read without another copy of it"})
			}
		case key == "prune-backups" || key == "max-protected-backups":
			w.hit(gate.Hit{Class: ClassLosesBackup, Weight: gate.WeightCaution, Object: o, Kinds: []gate.Kind{gate.KindData},
				Text: fmt.Sprintf("from the next backup on, storage %s keeps %s; now it is %s", o.ID, orNothing(next), orNothing(now))})
		case slices.Contains(elsewhere, key):
			moved = append(moved, key)
		case key == "shared":
			w.hit(gate.Hit{Class: ClassSetting, Weight: gate.WeightCaution, Object: o, Text: "storage " + o.ID + " counts as shared or no longer so: migrations will look for disks accordingly, and copy nothing from a shared one"})
		default:
			w.hit(gate.Hit{Class: ClassSetting, Weight: gate.WeightNote, Object: o, Text: fmt.Sprintf("%s of storage %s: %s, now %s", clean(key), o.ID, orNothing(next), orNothing(now))})
		}
	}
	if len(moved) > 0 {
		w.storageGone(storageGone{name: o.ID, how: "is looked for elsewhere (" + strings.Join(moved, ", ") + ")"})
	}
}

func orNothing(text string) string {
	if text == "" {
		return "nothing"
	}
	return clean(text)
}

func (s storageGone) lacks(content ...string) bool {
	return s.content == nil || slices.ContainsFunc(content, func(c string) bool { return slices.Contains(s.content, c) })
}

func (s storageGone) loses(node string) bool { return s.lost == nil || s.lost(node) }

func (w *walk) storageGone(s storageGone) {
	o := object(gate.ObjectStorage, s.name)
	secret := dim{ClassSecret, gate.WeightDanger, []gate.Kind{gate.KindData}}
	defs, ok := w.s.Storages()
	if !ok {
		w.missing(o, "the definitions of storages", losesDisk, losesBackup, losesArchive, dim{ClassReferences, gate.WeightNote, nil}, dim{ClassBlocked, gate.WeightNote, nil})
		if s.removed {
			w.missing(o, "the definitions of storages", secret)
		}
	}
	i := slices.IndexFunc(defs, func(d estate.Config) bool { return d["storage"] == s.name })
	var def estate.Config
	if i >= 0 {
		def = defs[i]
	} else if ok {
		w.hit(gate.Hit{Class: ClassBlocked, Weight: gate.WeightNote, Object: o, Blocks: true, Text: "there is no storage " + s.name})
		return
	}
	if def.On("disable") && s.lost == nil && !s.removed && s.content == nil {
		w.hit(gate.Hit{Class: ClassSetting, Weight: gate.WeightNote, Object: o, Text: "storage " + s.name + " is disabled already"})
	}
	names := []string{s.name}
	if s.content == nil {
		names = append(names, standingOn(defs, s.name)...)
	}
	for _, name := range names[1:] {
		w.hit(gate.Hit{Class: ClassLosesDisk, Weight: gate.WeightDanger, Object: object(gate.ObjectStorage, name), Kinds: outage, Way: []gate.Object{o, object(gate.ObjectStorage, name)},
			Text: fmt.Sprintf("storage %s lies on storage %s, which %s", name, s.name, s.how)})
	}
	for _, twin := range twins(defs, def) {
		text := fmt.Sprintf("storage %s %s", twin.name, twin.shows(s.name))
		if twin.sure && !twin.nested {
			text += fmt.Sprintf(": what lies there stays reachable under its name, but not for settings that name %s", s.name)
		}
		w.hit(gate.Hit{Class: ClassReferences, Weight: gate.WeightNote, Object: object(gate.ObjectStorage, twin.name), Unknown: !twin.sure, Text: text})
	}
	users := w.storageUsers(s, o, names)
	w.storageBackups(s, o, def)
	w.storageJobs(s, o)
	w.storageReplication(s, o, users)
	w.storageTasks(s, o)
	if s.removed {
		w.storageSecrets(o, def)
		if isShared(def) {
			w.hit(gate.Hit{Class: ClassReferences, Weight: gate.WeightNote, Object: o, Text: "the definition goes for all nodes; what lies on the storage itself stays there"})
		}
	}
}

// standingOn lists the storages whose disks or folders lie on this one, and those on them.
func standingOn(defs []estate.Config, name string) []string {
	var out []string
	for todo := []string{name}; len(todo) > 0; todo = todo[1:] {
		var place string
		for _, d := range defs {
			if d["storage"] == todo[0] {
				place = strings.TrimRight(d["path"], "/")
			}
		}
		for _, d := range defs {
			id, path := d["storage"], d["path"]
			base, _, _ := strings.Cut(d["base"], ":")
			below := place != "" && strings.HasPrefix(path, place+"/") || strings.HasPrefix(path, "/mnt/pve/"+todo[0]+"/")
			if id != name && (base == todo[0] || below) && !slices.Contains(out, id) {
				out, todo = append(out, id), append(todo, id)
			}
		}
	}
	return out
}

// storageUsers names every guest that has something on the storage; it returns the ids of those with disks there.
func (w *walk) storageUsers(s storageGone, o gate.Object, names []string) (users []string) {
	all := w.guests(o, func(g *estate.Guest) bool { return s.loses(g.Node) }, losesDisk, dim{ClassHA, gate.WeightCaution, nil})
	prefixes := make([]string, 0, len(names))
	for _, n := range names {
		prefixes = append(prefixes, n+":")
	}
	for g := range all {
		if !g.mentions(prefixes...) {
			continue
		}
		var disks, kept, media []drive
		for _, d := range g.drivesNaming(prefixes...) {
			if !slices.Contains(names, d.storage) {
				continue
			}
			switch {
			case d.medium && s.lacks("iso"):
				media = append(media, d)
			case d.unused && s.lacks("images", "rootdir"):
				kept = append(kept, d)
			case !d.medium && !d.unused && (s.content == nil || s.lacks(contentOf(g.Kind))):
				disks = append(disks, d)
			}
		}
		self := object(gate.ObjectGuest, g.ID)
		if len(disks) > 0 {
			users = append(users, g.ID)
			text := fmt.Sprintf("%s has %s on storage %s, which %s: ", title(g.Guest), keysIn(disks), s.name, s.how)
			switch {
			case g.Template:
				text += "it can be cloned no more"
			case w.runs(g.Guest):
				text += "once it stops it cannot start again, and meanwhile it can be neither migrated, backed up nor put to a snapshot"
			default:
				text += "it cannot start, be migrated or backed up"
			}
			if g.HA != "" {
				text += "; HA (state " + clean(g.HA) + ") will try to start it and end in an error"
			}
			w.hit(gate.Hit{Class: ClassLosesDisk, Weight: gate.WeightDanger, Object: self, Kinds: outage, Way: []gate.Object{o, disks[0].object(), self}, Text: text})
		}
		if len(kept) > 0 {
			w.hit(gate.Hit{Class: ClassLosesDisk, Weight: gate.WeightCaution, Object: kept[0].object(), Way: []gate.Object{o, kept[0].object(), self},
				Text: fmt.Sprintf("%s keeps %s on it as unused: out of reach until the storage is back", title(g.Guest), keysIn(kept))})
		}
		if len(media) > 0 && len(disks) == 0 {
			w.hit(gate.Hit{Class: ClassLosesDisk, Weight: gate.WeightCaution, Object: self, Way: []gate.Object{o, media[0].object(), self},
				Text: fmt.Sprintf("%s has an image of storage %s in %s: it does not start until the drive is emptied", title(g.Guest), s.name, keysIn(media))})
		}
		for _, key := range []string{"hookscript", "cicustom"} {
			if s.lacks("snippets") && len(disks) == 0 && strings.Contains(","+g.config[key], s.name+":") {
				w.hit(gate.Hit{Class: ClassLosesDisk, Weight: gate.WeightCaution, Object: self, Text: fmt.Sprintf("%s has its %s on storage %s: it does not start without it", title(g.Guest), key, s.name)})
			}
		}
	}
	return users
}

func contentOf(kind string) string {
	if kind == estate.CT {
		return "rootdir"
	}
	return "images"
}

func keysIn(ds []drive) string {
	var out []string
	for _, d := range ds {
		out = append(out, d.key)
	}
	return names(out)
}

// storageBackups says which guests have backups there, and who has none elsewhere.
func (w *walk) storageBackups(s storageGone, o gate.Object, def estate.Config) {
	if def != nil && !serves(def, "backup") || !s.lacks("backup") {
		return
	}
	all, blind := w.archives()
	count, elsewhere := map[string]int{}, map[string]bool{}
	here := 0
	for _, a := range all {
		if a.storage != s.name || !isShared(def) && !s.loses(a.node) || isShared(def) && s.lost != nil {
			elsewhere[a.guest] = true
			continue
		}
		count[a.guest]++
		here++
	}
	if len(blind) > 0 {
		w.missing(o, "what backups lie on "+names(blind), losesBackup, losesArchive)
	}
	if here == 0 {
		return
	}
	var only []string
	for _, id := range slices.Sorted(maps.Keys(count)) {
		if !elsewhere[id] {
			only = append(only, id)
		}
	}
	text := fmt.Sprintf("%s on it, of guests %s, cannot be read, restored or pruned any more", plural(here, "backup", "backups"), names(slices.Sorted(maps.Keys(count))))
	if len(only) > 0 {
		text += "; guests " + names(only) + " have no other"
	}
	w.hit(gate.Hit{Class: ClassLosesBackup, Weight: gate.WeightCaution, Object: o, Text: text})
}

// storageJobs names the jobs that write there: they fail from now on.
func (w *walk) storageJobs(s storageGone, o gate.Object) {
	if !s.lacks("backup") {
		return
	}
	jobs, ok := w.s.Jobs()
	if !ok {
		w.missing(o, "the backup jobs", losesBackup)
	}
	for _, j := range jobs {
		if j["storage"] != s.name || off1(j["enabled"]) || s.lost != nil && j["node"] != "" && !s.lost(j["node"]) {
			continue
		}
		job := object(gate.ObjectJob, j["id"])
		w.hit(gate.Hit{Class: ClassLosesBackup, Weight: gate.WeightCaution, Object: job, Way: []gate.Object{o, job}, Kinds: []gate.Kind{gate.KindGuard},
			Text: fmt.Sprintf("backup job %s (%s) writes to storage %s, which %s: its runs fail", clean(j["id"]), jobSelection(j), s.name, s.how)})
	}
}

// off1 says whether a switch that is on where it is absent is off.
func off1(text string) bool { return text == "0" }

func (w *walk) storageReplication(s storageGone, o gate.Object, users []string) {
	if !s.lacks("images", "rootdir") {
		return
	}
	rows, ok := w.s.Replication()
	if !ok {
		w.missing(o, "the replication jobs", dim{ClassHA, gate.WeightCaution, nil})
	}
	for _, r := range rows {
		if !slices.Contains(users, r["guest"]) && (s.lost == nil || !s.lost(r["target"])) {
			continue
		}
		job := object(gate.ObjectReplication, r["id"])
		w.hit(gate.Hit{Class: ClassHA, Weight: gate.WeightCaution, Object: job, Text: fmt.Sprintf("replication %s of guest %s to %s may fail: storage %s %s", clean(r["id"]), clean(r["guest"]), clean(r["target"]), s.name, s.how)})
	}
}

// storageTasks looks for backups that run now.
func (w *walk) storageTasks(s storageGone, o gate.Object) {
	if !s.lacks("backup") {
		return
	}
	running := dim{ClassStops, gate.WeightCaution, nil}
	rows, ok := w.s.Tasks()
	if !ok {
		w.missing(o, "the tasks that run", running)
		return
	}
	for _, r := range rows {
		if r["type"] != "vzdump" && !strings.HasSuffix(r["type"], "restore") || r["status"] != "" || r["endtime"] != "" {
			continue
		}
		to, ok := w.taskStorage(r)
		if ok && to != "" && to != s.name {
			continue
		}
		w.hit(gate.Hit{Class: ClassStops, Weight: gate.WeightCaution, Object: o, Unknown: to == "",
			Text: fmt.Sprintf("a task %s runs on %s; it may be using storage %s, and would fail", strings.TrimSpace(clean(r["type"])+" "+clean(r["id"])), clean(r["node"]), s.name)})
	}
}

// taskStorage reads from a running backup's log to which storage it writes; empty = the log does not say.
func (w *walk) taskStorage(r estate.Config) (string, bool) {
	lines, ok := w.s.Rows(estate.PartTasks, r["upid"], gate.Read{Operation: "GET /nodes/{node}/tasks/{upid}/log", Params: map[string]string{"node": r["node"], "upid": r["upid"], "limit": "20"}})
	for _, l := range lines {
		if !strings.Contains(l["t"], "starting new backup job") {
			continue
		}
		f := strings.Fields(l["t"])
		for i, x := range f {
			if x == "--storage" && i+1 < len(f) {
				return f[i+1], ok
			}
		}
	}
	return "", ok
}

// storageSecrets names the keys and passwords that go with a definition.
func (w *walk) storageSecrets(o gate.Object, def estate.Config) {
	switch def["type"] {
	case "pbs":
		if def["encryption-key"] != "" {
			w.hit(gate.Hit{Class: ClassSecret, Weight: gate.WeightDanger, Object: o, Kinds: []gate.Kind{gate.KindData},
				Text: "the encryption key of storage " + o.ID + " is destroyed with it: its backups cannot be read without another copy of the key"})
		}
		w.hit(gate.Hit{Class: ClassReferences, Weight: gate.WeightNote, Object: object(gate.ObjectUser, clean(def["username"])), Text: "the password by which the site signs in at storage " + o.ID + " is destroyed and has to be typed again"})
	case "cifs", "rbd", "cephfs", "esxi":
		w.hit(gate.Hit{Class: ClassSecret, Weight: gate.WeightCaution, Object: o, Text: "the password or keyring of storage " + o.ID + " is destroyed with it and has to be given again"})
	}
}

// walkStorageCreated looks for one that shows the same place already.
func walkStorageCreated(w *walk, c change) {
	def := estate.Config(maps.Clone(c.keys))
	def["storage"] = c.object.ID
	defs, ok := w.s.Storages()
	if !ok {
		w.missing(c.object, "the definitions of storages", dim{ClassReferences, gate.WeightCaution, nil})
	}
	for _, twin := range twins(defs, def) {
		w.hit(gate.Hit{Class: ClassReferences, Weight: gate.WeightCaution, Object: object(gate.ObjectStorage, twin.name), Unknown: !twin.sure,
			Text: fmt.Sprintf("storage %s %s: each can overwrite and delete what the other holds, and counts its space once more", twin.name, twin.shows("it"))})
	}
}
