package reach

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

// brought is a guest's settings that come into force otherwise than by a request for them: with a snapshot, an archive, a
// clone, or because they waited. What differs between now and then is judged as if it were set.
type brought struct {
	guest     gate.Object
	kind      string // qemu or lxc
	node      string
	id        string // the guest that the settings name as their own
	now, then estate.Config
	how       string // "comes back with snapshot x"
	fresh     bool   // for a guest that was not there: nothing that runs loses its network or its safeguards
	but       []string
	to, pool  string   // the guest that gets them, where it is another one, and the pool that it comes into
	destroyed []string // keys of disks that are taken away by force: their volumes go too
}

// aboutState are keys that are about a snapshot or the file, or that are not taken over.
var aboutState = []string{"digest", "snaptime", "parent", "vmstate", "snapstate", "description", "lock", "vmgenid", "runningmachine", "runningcpu",
	"running-nets-host-mtu", "meta", "vmid", "smbios1"}

// hiddenKeys hold secrets: they are named, never shown.
var hiddenKeys = []string{"cipassword", "password", "sshkeys", "ssh-public-keys", "env"}

const maskedValue = "**********"

// plainKinds are what an ordinary change of settings falls under; that such come along is what a rollback or clone is.
var plainKinds = []gate.Kind{gate.KindConfig, gate.KindRead, gate.KindGrow, gate.KindSettings}

// bring judges the keys that differ. It makes one hit for all, which names those first that matter.
func (w *walk) bring(b brought) {
	var heavy []heavyKey
	var plain, hidden, tags []string
	var kinds []gate.Kind
	var renamed []string
	for _, key := range slices.Sorted(maps.Keys(keysOfBoth(b.now, b.then))) {
		now, then := b.now[key], b.then[key]
		if slices.Contains(aboutState, key) || slices.Contains(b.but, key) {
			continue
		}
		if slices.Contains(hiddenKeys, key) && now == then && (now == maskedValue || strings.Contains(now, "withheld")) && now != "" {
			hidden = append(hidden, key)
			continue
		}
		if sameSetting(key, now, then) {
			continue
		}
		if key == "tags" {
			tags = differing(estate.Tags(now), estate.Tags(then))
		}
		if key == "name" || key == "hostname" {
			if renamed = []string{now, then}; b.fresh {
				renamed = renamed[1:]
			}
		}
		w.deviceGiven(held{Guest: estate.Guest{ID: orText(b.to, b.guest.ID), Node: b.node, Kind: kindOf(b.kind)}, config: b.now}, key, then, b.pool)
		k := w.judgeKey(b, key, then)
		k = slices.DeleteFunc(k, func(x gate.Kind) bool { return slices.Contains(plainKinds, x) })
		if b.fresh {
			k = slices.DeleteFunc(k, func(x gate.Kind) bool {
				return x == gate.KindNet || x == gate.KindGuard && key != "unprivileged" && key != "features" && !strings.HasPrefix(key, "hostpci") && !strings.HasPrefix(key, "usb") && !strings.HasPrefix(key, "virtiofs")
			})
		}
		text := clean(key) + ": " + shown(key, then) + ", now " + shown(key, now)
		if b.fresh {
			text = clean(key) + ": " + shown(key, then)
		}
		if slices.Contains(b.destroyed, key) {
			text += ", and its volume is destroyed"
		}
		if len(k) > 0 {
			heavy, kinds = append(heavy, heavyKey{text, rungOf(k), key + "\x00" + then}), union(kinds, k)
			continue
		}
		plain = append(plain, text)
	}
	if len(heavy)+len(plain) > 0 {
		weight := gate.WeightNote
		if len(kinds) > 0 {
			weight = gate.WeightCaution
		}
		if slices.ContainsFunc(kinds, grave) {
			weight = gate.WeightDanger
		}
		slices.SortStableFunc(heavy, func(x, y heavyKey) int { return int(y.rung) - int(x.rung) })
		var all []string
		for _, h := range heavy {
			all = append(all, h.text)
		}
		all = append(all, plain...)
		var keys []string
		for _, t := range all {
			key, _, _ := strings.Cut(t, ":")
			keys = append(keys, key)
		}
		text := fmt.Sprintf("%s %s: %s", keysNamed(keys), b.how, strings.Join(all, "; "))
		w.hit(gate.Hit{Class: ClassSetting, Weight: weight, Object: b.guest, Kinds: kinds, Text: text, Matter: matter(heavy), Renamed: renamed})
	}
	if len(hidden) > 0 {
		w.hit(gate.Hit{Class: ClassSecret, Weight: gate.WeightNote, Object: b.guest, Text: names(hidden) + " " + b.how + "; whether it differs is masked on both sides"})
	}
	for _, tag := range tags {
		w.hit(gate.Hit{Class: ClassSetting, Weight: gate.WeightNote, Object: object(gate.ObjectTag, tag), Text: "tag " + clean(tag) + " " + b.how + " (given or taken)"})
	}
}

// heavyKey is a key that takes more than an ordinary change of settings, and what it takes.
type heavyKey struct {
	text string
	rung gate.Rung
	what string
}

// matter tells apart what comes into force, the parts of it that are too long to be shown too.
func matter(heavy []heavyKey) string {
	if len(heavy) == 0 {
		return ""
	}
	var all []string
	for _, k := range heavy {
		all = append(all, k.what)
	}
	return digestOf(all)
}

// digestOf tells lists of texts apart.
func digestOf(texts []string) string {
	h := sha256.New()
	for _, t := range texts {
		fmt.Fprintf(h, "%q\n", t)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

func rungOf(kinds []gate.Kind) (most gate.Rung) {
	for _, k := range kinds {
		most = max(most, gate.RowOf(k).Rung)
	}
	return most
}

// keysNamed names keys so that none can hide behind many others: those of one sort together.
func keysNamed(keys []string) string {
	var order []string
	count := map[string]int{}
	for _, key := range keys {
		base, _ := fold(key)
		if strings.HasPrefix(key, "lxc.") {
			base = "lxc.*"
		}
		if count[base]++; count[base] == 1 {
			order = append(order, base)
		}
	}
	const most = 8
	if len(keys) <= most && !slices.ContainsFunc(keys, func(k string) bool { return len(k) > 40 }) {
		return strings.Join(keys, ", ")
	}
	for i, base := range order {
		if n := count[base]; n > 1 {
			order[i] = fmt.Sprintf("%s (%d of them)", base, n)
		}
	}
	return strings.Join(order, ", ")
}

func grave(k gate.Kind) bool {
	return k == gate.KindExec || k == gate.KindHost || k == gate.KindData || k == gate.KindUnknown
}

func keysOfBoth(a, b estate.Config) map[string]bool {
	all := map[string]bool{}
	for k := range a {
		all[k] = true
	}
	for k := range b {
		all[k] = true
	}
	return all
}

func shown(key, value string) string {
	if value == "" {
		return "not set"
	}
	if slices.Contains(hiddenKeys, key) {
		return "(hidden)"
	}
	return clean(value)
}

func differing(a, b []string) []string {
	var out []string
	for _, list := range [][]string{a, b} {
		for _, t := range list {
			if t = strings.ToLower(t); contains(a, t) != contains(b, t) && !slices.Contains(out, t) {
				out = append(out, t)
			}
		}
	}
	slices.Sort(out)
	return out
}

func contains(list []string, tag string) bool {
	return slices.ContainsFunc(list, func(t string) bool { return strings.EqualFold(t, tag) })
}

// judgeKey says under which rows a request would fall that sets this key to this value, or takes it away.
func (w *walk) judgeKey(b brought, key, value string) []gate.Kind {
	if key == "lxc" || strings.HasPrefix(key, "lxc.") { // raw settings, which no request can set: what they do is done on the host
		return []gate.Kind{gate.KindExec, gate.KindHost}
	}
	r := gate.Request{Product: "pve", Operation: "PUT /nodes/{node}/" + b.kind + "/{vmid}/config", Params: []gate.Param{
		{Name: "node", Values: []gate.Value{{Text: b.node}}}, {Name: "vmid", Values: []gate.Value{{Text: b.id}}}}}
	p := gate.Param{Name: key, Values: []gate.Value{{Text: value}}}
	if value == "" {
		p = gate.Param{Name: "delete", Values: []gate.Value{{Text: key}}}
	}
	r.Params = append(r.Params, p)
	if slices.Contains(b.destroyed, key) {
		r.Params = append(r.Params, gate.Param{Name: "force", Values: []gate.Value{{Text: "1"}}})
	}
	op, ok := w.cat.Lookup(r.Product, r.Operation)
	if !ok {
		return []gate.Kind{gate.KindUnknown}
	}
	return slices.Clone(w.cat.Judge(op, r).Kinds)
}

// unjudged is the worst that settings of a guest can bring.
func (w *walk) unjudged(kind string) dim {
	if d, had := w.worst[kind]; had {
		return d
	}
	kinds := union([]gate.Kind{gate.KindExec, gate.KindHost, gate.KindData, gate.KindGuard, gate.KindNet}, w.judgeKey(brought{kind: kind, id: "100"}, "no-such-key", "1"))
	kinds = slices.DeleteFunc(kinds, func(k gate.Kind) bool { return k == gate.KindUnknown || slices.Contains(plainKinds, k) })
	w.worst[kind] = dim{ClassSetting, gate.WeightDanger, kinds}
	return w.worst[kind]
}

// sameSetting says whether two values of a key mean the same to Proxmox.
func sameSetting(key, a, b string) bool {
	if a, b = strings.TrimSpace(a), strings.TrimSpace(b); a == b {
		return true
	}
	switch key {
	case "tags":
		return len(differing(estate.Tags(a), estate.Tags(b))) == 0
	case "onboot", "protection", "template", "autostart":
		return (a == "" || a == "0") && (b == "" || b == "0")
	}
	if x, err := strconv.ParseFloat(a, 64); err == nil {
		if y, err := strconv.ParseFloat(b, 64); err == nil {
			return x == y
		}
	}
	if a == "" || b == "" || !strings.Contains(a, "=") && !strings.Contains(a, ",") {
		return false
	}
	return maps.Equal(folded(key, a), folded(key, b))
}

// folded reads a property string so that two spellings of one meaning are equal.
func folded(key, text string) map[string]string {
	p := properties(text)
	for from, to := range map[string]string{"file": "", "volume": "", "enabled": ""} {
		if v, ok := p[from]; ok && p[to] == "" {
			delete(p, from)
			p[to] = v
		}
	}
	for name, v := range p {
		if strings.Count(v, ":") == 5 { // a MAC address
			p[name] = strings.ToUpper(v)
		}
	}
	if isDrive(key) {
		delete(p, "size") // told, not set
	}
	return p
}

// walkRollback puts a guest back to a snapshot.
func (w *walk) walkRollback(c change) {
	id, name := c.object.ID, c.detail["snapshot"]
	settings := w.unjudged(c.detail["type"])
	time := dim{ClassTime, gate.WeightDanger, nil}
	disk := dim{ClassLosesDisk, gate.WeightCaution, nil}
	stop := dim{ClassStops, gate.WeightCaution, nil}
	blocked := dim{ClassBlocked, gate.WeightNote, nil}
	ha := dim{ClassHA, gate.WeightCaution, nil}
	foreign := dim{ClassLosesData, gate.WeightDanger, []gate.Kind{gate.KindOutage, gate.KindData}}
	hidden := dim{ClassSecret, gate.WeightNote, nil}
	starts := append(w.takesDims(c.detail["type"]), dim{ClassStarts, gate.WeightCaution, nil})
	g, found := w.one(id, append(starts, settings, disk, stop, blocked, ha, foreign, copyGains, hidden, dim{ClassLosesWay, gate.WeightNote, nil}, time)...)
	if !found {
		return
	}
	o := object(gate.ObjectSnapshot, id+"/"+name)
	snaps, ok := w.s.Snapshots(g.Guest)
	if !ok {
		w.missing(o, "the snapshots of "+title(g.Guest), append(starts, settings, time, stop, blocked, dim{ClassLosesWay, gate.WeightNote, nil})...)
	}
	var snap estate.Config
	var younger []string
	runs := w.runs(g.Guest)
	for _, s := range snaps {
		if s["name"] == name {
			snap = s
		}
	}
	for _, s := range snaps {
		if snap != nil && bytesOf(s["snaptime"]) > bytesOf(snap["snaptime"]) {
			younger = append(younger, clean(s["name"]))
		}
	}
	taken := snap == nil && ok && w.snapshotted(id, name)
	if snap == nil && ok && !taken {
		w.hit(gate.Hit{Class: ClassBlocked, Weight: gate.WeightNote, Object: o, Blocks: true, Text: title(g.Guest) + " has no snapshot " + clean(name)})
		return
	}
	if taken {
		w.hit(gate.Hit{Class: ClassTime, Weight: gate.WeightDanger, Object: c.object, Text: fmt.Sprintf("all that %s wrote to its disks since %s, which this plan takes, is lost", title(g.Guest), clean(name))})
	}
	if snap != nil {
		_, when := w.ago(snap["snaptime"])
		w.hit(gate.Hit{Class: ClassTime, Weight: gate.WeightDanger, Object: c.object, Text: fmt.Sprintf("all that %s wrote to its disks since %s is lost", title(g.Guest), when)})
	}
	if len(younger) > 0 {
		w.hit(gate.Hit{Class: ClassLosesWay, Weight: gate.WeightNote, Object: c.object, Text: "younger snapshots stay as another branch: " + names(younger)})
	}
	memory := snap.On("vmstate") || taken && w.snapshottedWith(id, name, "vmstate")
	if runs {
		text := title(g.Guest) + " runs and is stopped hard for it"
		switch {
		case memory:
			text += "; it goes on from the memory that the snapshot holds"
		case c.detail["start"] != "":
			text += "; it is started afterwards"
		case keptUp(g.HA):
			text += "; HA starts it again"
		default:
			text += "; it stays stopped"
		}
		w.hit(gate.Hit{Class: ClassStops, Weight: gate.WeightCaution, Object: c.object, Text: text})
		w.stoppedFor(c, g)
	} else if memory {
		w.hit(gate.Hit{Class: ClassStarts, Weight: gate.WeightCaution, Object: c.object, Text: title(g.Guest) + " does not run, and runs afterwards: the snapshot holds its memory"})
	}
	if g.HA != "" {
		w.hit(gate.Hit{Class: ClassHA, Weight: gate.WeightCaution, Object: c.object, Text: fmt.Sprintf("HA manages %s (state %s) and may start it while it is rolled back", title(g.Guest), clean(g.HA))})
	}
	then, ok := g.config, true // of one that is taken a moment before
	if !taken {
		then, ok = w.snapshotConfig(g.Guest, name)
	}
	if !ok {
		w.lost[o] = true
		w.missing(o, "the settings in snapshot "+clean(name), append(starts, settings, disk, blocked, foreign, copyGains, hidden)...)
		return
	}
	if g.config == nil {
		return
	}
	switch {
	case memory || c.detail["start"] != "":
		w.startsBack(c.object, g, then, beginning{node: g.Node, when: "when it starts after the rollback", ran: runs})
	case keptUp(g.HA):
		w.startsBack(c.object, g, then, beginning{node: g.Node, when: "when HA starts it after the rollback", ran: runs})
	}
	w.bring(brought{guest: c.object, kind: c.detail["type"], node: g.Node, id: id, now: g.config, then: then, how: "comes back with snapshot " + clean(name), but: unusedKeys(g.config, then)})
	w.rolledDisks(c, g, then, len(younger) > 0)
}

// stoppedFor: what waits is dropped by a rollback, but for what the stop before it does at once.
func (w *walk) stoppedFor(c change, g held) {
	rows, ok := w.s.Pending(g.Guest)
	if !ok {
		w.missing(c.object, "the changes that wait until "+title(g.Guest)+" stops", alsoLoses)
	}
	now := estate.Config{}
	var destroyed []string
	for _, r := range rows {
		now[r["key"]] = r["value"]
		if byForce(g.Guest, r) && !w.asked(g.ID, r["key"], r) {
			destroyed = append(destroyed, r["key"])
		}
	}
	w.destroys(g, now, destroyed, "when it stops: that it is taken away waits for this")
}

// snapshotted says whether an earlier step of the plan takes this snapshot of a guest.
func (w *walk) snapshotted(id, name string) bool { return w.snapshottedWith(id, name, "snapname") }

// snapshottedWith says whether it does with this parameter.
func (w *walk) snapshottedWith(id, name, param string) bool {
	return slices.ContainsFunc(w.before, func(s gate.Step) bool {
		return on(*s.API, param) && strings.HasPrefix(s.API.Operation, "POST ") && strings.HasSuffix(s.API.Operation, "/{vmid}/snapshot") && s.API.Text("vmid") == id && s.API.Text("snapname") == name
	})
}

// rolledDisks: disks that came after the snapshot leave the settings, and those that it names come back.
func (w *walk) rolledDisks(c change, g held, then estate.Config, notNewest bool) {
	back := map[string]bool{}
	var rolled []drive
	for _, d := range drives(then) {
		if !d.unused {
			back[d.volume] = true
			rolled = append(rolled, d)
		}
	}
	w.alsoOf(g, "it goes back to the snapshot under that guest too", rolled...)
	for _, d := range rolled {
		if !w.names(g, d) {
			w.hasDataOf(g, d, "")
		}
	}
	for _, d := range drives(g.config) {
		if !back[d.volume] && d.inUse() {
			w.hit(gate.Hit{Class: ClassLosesDisk, Weight: gate.WeightCaution, Object: d.object(), Way: []gate.Object{c.object, d.object()},
				Text: fmt.Sprintf("%s (%s) was attached after the snapshot: it leaves the settings of %s, and its volume lies around", d.key, d.volume, title(g.Guest))})
		}
	}
	if !notNewest {
		return
	}
	defs, ok := w.s.Storages()
	if !ok {
		w.missing(c.object, "the definitions of storages", dim{ClassBlocked, gate.WeightNote, nil})
	}
	for _, d := range drives(g.config) {
		for _, def := range defs {
			if def["storage"] == d.storage && (def["type"] == "zfspool" || def["type"] == "zfs") && back[d.volume] {
				w.hit(gate.Hit{Class: ClassBlocked, Weight: gate.WeightNote, Object: d.object(), Blocks: true, Text: fmt.Sprintf("%s lies on ZFS, which goes back to its newest snapshot only; there are younger ones", d.key)})
			}
		}
	}
}

// walkBrought is a rollback, a clone or a restore.
func walkBrought(w *walk, c change) {
	switch c.detail["from"] {
	case "snapshot":
		w.walkRollback(c)
	case "clone":
		w.walkClone(c)
	case "archive":
		w.walkRestore(c)
	case "cloudinit":
		if g, found := w.one(c.object.ID, w.unjudged(c.detail["type"]), alsoLoses); found && g.config != nil {
			w.seeds(c, g.Guest, "was set since the last cloud-init image and comes into it now; the guest takes it up at its next start")
		}
	}
}

// walkClone makes a guest of another one, as it is now or as a snapshot has it.
func (w *walk) walkClone(c change) {
	id, snap := c.object.ID, c.detail["snapshot"]
	settings := w.unjudged(c.detail["type"])
	along := dim{ClassSetting, gate.WeightNote, nil}
	blocked := dim{ClassBlocked, gate.WeightNote, nil}
	addr := dim{ClassNetwork, gate.WeightNote, nil}
	dims := []dim{settings, along, blocked, addr, noSpace, copyGains, {ClassReferences, gate.WeightNote, nil}}
	var devices []dim // a container's may be disks of others
	if c.detail["type"] == "lxc" {
		devices = append(devices, alsoLoses)
	}
	dims = append(dims, devices...)
	w.copied(c.detail["new"], id, c.detail["pool"], aCopy)
	g, found := w.one(id, dims...)
	if g.config == nil {
		if found || !w.made(id) {
			w.blindCopy(c.object, "the settings of guest "+clean(id))
		}
		return
	}
	source := g.config
	made := object(gate.ObjectGuest, c.detail["new"])
	if snap != "" {
		then, ok := w.snapshotConfig(g.Guest, snap)
		if !ok {
			w.missing(object(gate.ObjectSnapshot, id+"/"+snap), "the settings in snapshot "+clean(snap), append(devices, settings, along, blocked, noSpace, addr)...)
			w.blindCopy(object(gate.ObjectSnapshot, id+"/"+snap), "the settings in snapshot "+clean(snap))
			return
		}
		w.bring(brought{guest: c.object, kind: c.detail["type"], node: g.Node, id: id, now: g.config, then: then, how: "comes into the clone with snapshot " + clean(snap), but: unusedKeys(g.config, then), to: made.ID, pool: c.detail["pool"]})
		source = then
	} else if g.Kind == estate.CT && w.runs(g.Guest) && !g.Template {
		w.hit(gate.Hit{Class: ClassBlocked, Weight: gate.WeightNote, Object: c.object, Blocks: true, Text: title(g.Guest) + " runs: a container is cloned stopped, or from a snapshot"})
	}
	w.tagsAlong(source, made.ID, nil)
	w.alongHost(made, c.detail["type"], orText(c.detail["to"], g.Node), id, c.detail["pool"], source)
	if g.Kind == estate.CT && !source.On("unprivileged") {
		w.privileged(made)
	}
	var kept []string
	for _, key := range slices.Sorted(maps.Keys(source)) {
		base, _ := fold(key)
		switch base {
		case "onboot", "protection", "cicustom", "cipassword", "sshkeys", "startup", "ciuser":
			kept = append(kept, key)
		}
	}
	if len(kept) > 0 {
		w.hit(gate.Hit{Class: ClassSetting, Weight: gate.WeightNote, Object: made, Text: "also takes over " + names(kept) + " of " + title(g.Guest)})
	}
	if a := fixedAddresses(source); len(a) > 0 {
		w.hit(gate.Hit{Class: ClassNetwork, Weight: gate.WeightNote, Object: made, Text: fmt.Sprintf("it has the fixed address %s of %s: they cannot both run in one network", names(a), title(g.Guest))})
	}
	rules := "has the firewall options and rules that " + title(g.Guest) + " has now"
	if snap != "" {
		rules += ", not those of the time of snapshot " + clean(snap)
	}
	w.hit(gate.Hit{Class: ClassSetting, Weight: gate.WeightNote, Object: made, Text: rules})
	w.clonedDisks(c, g, source)
	w.copiedDisks(held{Guest: g.Guest, config: source}, copyGuest(made.ID, g.Guest), c.detail["pool"])
}

// tagsAlong: a guest that is made of another one, or of an archive, has its tags.
func (w *walk) tagsAlong(source estate.Config, id string, but []string) {
	if slices.Contains(but, "tags") {
		return
	}
	for _, tag := range estate.Tags(source["tags"]) {
		w.hit(gate.Hit{Class: ClassSetting, Weight: gate.WeightNote, Object: object(gate.ObjectTag, tag), Text: fmt.Sprintf("tag %s comes along to guest %s", clean(tag), id)})
	}
}

func (w *walk) clonedDisks(c change, g held, source estate.Config) {
	full := c.detail["full"] == "1" || !g.Template // only of a template can a linked clone be made
	node := c.detail["to"]
	if node == "" {
		node = g.Node
	}
	need := map[string]int64{}
	for _, d := range drives(source) {
		if !d.inUse() || isVMState(d.key) {
			continue
		}
		to := c.detail["storage"]
		if to == "" {
			to = d.storage
		}
		if full {
			need[to] += d.size
		}
	}
	if !full {
		w.hit(gate.Hit{Class: ClassReferences, Weight: gate.WeightNote, Object: object(gate.ObjectGuest, c.detail["new"]), Text: fmt.Sprintf("a linked clone: its disks cannot be read without those of %s", title(g.Guest))})
	}
	for _, storage := range slices.Sorted(maps.Keys(need)) {
		w.takes(storage, node, need[storage], "the copy of "+title(g.Guest))
	}
	if node != g.Node {
		for _, d := range drives(source) {
			def, ok := w.storage(d.storage)
			if !ok {
				w.missing(c.object, "the definitions of storages", dim{ClassBlocked, gate.WeightNote, nil})
			}
			if def != nil && d.inUse() && !isShared(def) {
				w.hit(gate.Hit{Class: ClassBlocked, Weight: gate.WeightNote, Object: d.object(), Blocks: true, Text: fmt.Sprintf("%s lies on storage %s of node %s itself: it cannot be cloned to %s", d.key, d.storage, g.Node, node)})
			}
		}
	}
}

func isVMState(key string) bool { return key == "vmstate" }

// fixedAddresses are those that a guest's settings give it.
func fixedAddresses(c estate.Config) []string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(c)) {
		base, number := fold(key)
		if number == "" || base != "net" && base != "ipconfig" {
			continue
		}
		p := properties(c[key])
		for _, name := range []string{"ip", "ip6"} {
			if a, _, ok := strings.Cut(p[name], "/"); ok {
				out = append(out, a)
			}
		}
	}
	return out
}

// unusedKeys are the disks that are kept beside: a rollback leaves those of now as they are, and a clone has none.
func unusedKeys(all ...estate.Config) (out []string) {
	for _, c := range all {
		for key := range c {
			if base, _ := fold(key); base == "unused" {
				out = append(out, key)
			}
		}
	}
	return out
}
