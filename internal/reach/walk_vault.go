package reach

import (
	"fmt"
	"slices"
	"strings"

	"castellan/internal/estate"
	"castellan/internal/gate"
	"castellan/internal/regex"
)

// What is done at a Backup Server besides deleting backups, which walk_datastore.go tells: by its operation.
var vault = map[string]func(w *walk, r gate.Request){
	"POST /admin/datastore/{store}/gc":                  (*walk).collects,
	"POST /admin/datastore/{store}/move-group":          (*walk).movesGroups,
	"POST /admin/datastore/{store}/move-namespace":      (*walk).movesGroups,
	"POST /admin/datastore/{store}/change-owner":        (*walk).changesOwner,
	"PUT /admin/datastore/{store}/protected":            (*walk).unprotects,
	"DELETE /admin/datastore/{store}/namespace":         quiet, // with what lies in it: see takenBy; else only an empty one goes
	"DELETE /config/datastore/{name}":                   (*walk).datastoreGone,
	"DELETE /config/encryption-keys/{id}":               (*walk).keyGone,
	"DELETE /config/tape-encryption-keys/{fingerprint}": (*walk).tapeKeyGone,
	"DELETE /config/media-pool/{name}":                  (*walk).mediaPoolGone,
	"PUT /config/media-pool/{name}":                     (*walk).mediaPoolChanged,
	"DELETE /config/remote/{name}":                      (*walk).remoteGone,
	"PUT /config/remote/{name}":                         (*walk).remoteChanged,
	"PUT /config/datastore/{name}":                      (*walk).datastoreChanged,
	"DELETE /config/s3/{id}":                            (*walk).bucketGone,
	"POST /pull":                                        quiet, // what it removes: see takenBy
	"POST /push":                                        (*walk).pushes,
	"POST /admin/sync/{id}/run":                         (*walk).syncRuns,
	"POST /config/sync":                                 (*walk).syncRuns,
	"PUT /config/sync/{id}":                             (*walk).syncRuns,
	"DELETE /config/sync/{id}":                          (*walk).vaultJobGone,
	"DELETE /config/verify/{id}":                        (*walk).vaultJobGone,
	"DELETE /config/prune/{id}":                         (*walk).vaultJobGone,
	"DELETE /config/tape-backup-job/{id}":               (*walk).vaultJobGone,
	"POST /config/prune":                                quiet, // what it would prune: see takenBy
	"PUT /config/prune/{id}":                            (*walk).vaultJobAltered,
	"PUT /config/verify/{id}":                           (*walk).vaultJobAltered,
	"PUT /config/tape-backup-job/{id}":                  (*walk).vaultJobAltered,
	"POST /config/traffic-control":                      (*walk).limits,
	"PUT /config/traffic-control/{name}":                (*walk).limits,
	"DELETE /config/traffic-control/{name}":             (*walk).limits,
	"POST /tape/drive/{drive}/format-media":             (*walk).erasesTape,
	"POST /tape/drive/{drive}/label-media":              quiet, // a tape that is not empty is refused
	"POST /tape/drive/{drive}/barcode-label-media":      quiet,
}

func quiet(*walk, gate.Request) {}

func readVault(_ *walk, r gate.Request) ([]change, bool) {
	walk := vault[r.Operation]
	if r.Product != "pbs" || walk == nil {
		return nil, false
	}
	return []change{{verb: direct, own: walk}}, true
}

// vaultRows reads a list, or one object, of a Backup Server.
func (w *walk) vaultRows(operation string, params map[string]string) ([]estate.Config, bool) {
	return w.s.Rows(estate.PartSnaps, operation+" "+joined(params), gate.Read{Operation: operation, Params: params})
}

func joined(params map[string]string) string {
	var out []string
	for k, v := range params {
		out = append(out, k+"="+v)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// spaces are the namespaces at which a request looks.
func (w *walk) spaces(store, ns string, below bool, dims ...dim) []string {
	out := []string{ns}
	if !below {
		return out
	}
	params := map[string]string{"store": store}
	if ns != "" {
		params["parent"] = ns
	}
	rows, ok := w.s.Rows(estate.PartSnaps, store+"/namespaces/"+ns, gate.Read{Operation: "GET /admin/datastore/{store}/namespace", Params: params})
	if !ok {
		w.missing(object(gate.ObjectStorage, store), "which namespaces datastore "+clean(store)+" has", dims...)
	}
	for _, r := range rows {
		if !slices.Contains(out, r["ns"]) {
			out = append(out, r["ns"])
		}
	}
	return out
}

// group is one group of backups in its place.
type group struct {
	store, ns, name, owner string
	backups                int
}

func (g group) where() string { return placeText(g.store, g.ns) }

// object is the guest whose backups they are by their name, or else the group.
func (g group) object() gate.Object {
	if kind, id, _ := strings.Cut(g.name, "/"); kind == "vm" || kind == "ct" {
		return object(gate.ObjectGuest, id)
	}
	return object(gate.ObjectArchive, g.store+":"+g.name)
}

func placeText(store, ns string) string {
	out := "datastore " + clean(store)
	if ns != "" {
		out += ", namespace " + clean(ns)
	}
	return out
}

// groups lists those in a namespace, and below; for what cannot be read the dimensions are unread.
func (w *walk) groups(store, ns string, below bool, dims ...dim) (out []group) {
	for _, at := range w.spaces(store, ns, below, dims...) {
		params := map[string]string{"store": store}
		if at != "" {
			params["ns"] = at
		}
		rows, ok := w.vaultRows("GET /admin/datastore/{store}/groups", params)
		if !ok {
			w.missing(object(gate.ObjectStorage, store), "which groups lie in "+placeText(store, at), dims...)
		}
		for _, r := range rows {
			out = append(out, group{store, at, r["backup-type"] + "/" + r["backup-id"], r["owner"], int(number(r["backup-count"]))})
		}
	}
	slices.SortFunc(out, func(a, b group) int { return strings.Compare(a.ns+"\x00"+a.name, b.ns+"\x00"+b.name) })
	return out
}

// eachGroup goes over groups to name each; beyond some the dimensions are unread.
func (w *walk) eachGroup(all []group, dims ...dim) []group {
	if len(all) > most {
		w.missing(object(gate.ObjectStorage, all[0].store), fmt.Sprintf("what becomes of %d more groups", len(all)-most), dims...)
		return all[:most]
	}
	return all
}

// ofName are those groups that a request names.
func ofName(all []group, r gate.Request) []group {
	return slices.DeleteFunc(all, func(g group) bool { return g.name != r.Text("backup-type")+"/"+r.Text("backup-id") })
}

func (w *walk) collects(r gate.Request) {
	text := "chunks that no backup in datastore " + clean(r.Text("store")) + " refers to any more are deleted: of what was deleted or pruned before nothing can be got back afterwards"
	if rows, ok := w.vaultRows("GET /admin/datastore/{store}/gc", map[string]string{"store": r.Text("store")}); ok && len(rows) > 0 && number(rows[0]["pending-bytes"]) > 0 {
		text += fmt.Sprintf("; the last run left %d MiB for later", number(rows[0]["pending-bytes"])>>20)
	}
	w.hit(gate.Hit{Class: ClassLosesWay, Weight: gate.WeightNote, Object: object(gate.ObjectStorage, r.Text("store")), Text: text})
}

// movesGroups: jobs and storages look for a group in its namespace, and what prunes the new one counts from then on.
func (w *walk) movesGroups(r gate.Request) {
	store, from, to := r.Text("store"), r.Text("ns"), r.Text("target-ns")
	one := strings.HasSuffix(r.Operation, "/move-group")
	moved := dim{ClassLosesBackup, gate.WeightCaution, nil}
	there := map[string]bool{}
	for _, g := range w.groups(store, to, !one, moved) {
		there[g.ns+"\x00"+g.name] = true
	}
	goes := w.groups(store, from, !one && r.Text("max-depth") != "0", moved)
	if one {
		goes = ofName(goes, r)
	}
	for _, g := range w.eachGroup(goes, moved) {
		below := strings.TrimPrefix(strings.TrimPrefix(g.ns, from), "/")
		into := strings.Trim(to+"/"+below, "/")
		text := fmt.Sprintf("group %s with %s goes from %s to %s: backups of Proxmox VE begin a new group where it was, and are not seen by a storage with the old namespace", clean(g.name), plural(g.backups, "backup", "backups"), g.where(), orRoot(into))
		if there[into+"\x00"+g.name] {
			text += "; a group of that name is there and is merged with it, or stops the move"
		}
		w.hit(gate.Hit{Class: ClassLosesBackup, Weight: gate.WeightCaution, Object: g.object(), Way: []gate.Object{object(gate.ObjectStorage, store), g.object()}, Text: text})
	}
	for _, kind := range []string{"prune", "sync"} {
		jobs, ok := w.vaultRows("GET /config/"+kind, nil)
		if !ok {
			w.missing(object(gate.ObjectStorage, store), "which "+kind+" jobs delete in namespace "+orRoot(to), moved)
		}
		for _, j := range jobs {
			below := j["max-depth"] != "0"
			if j["store"] != store || !inNamespace(to, j["ns"], below) || inNamespace(from, j["ns"], below) || kind == "sync" && !j.On("remove-vanished") {
				continue
			}
			text := fmt.Sprintf("prune job %s, which counts there and not where they were, deletes of them what its numbers do not keep", clean(j["id"]))
			if kind == "sync" {
				text = fmt.Sprintf("sync job %s deletes there what its source does not have: what is moved there is gone with its next run", clean(j["id"]))
			}
			w.hit(gate.Hit{Class: ClassLosesBackup, Weight: gate.WeightCaution, Object: object(gate.ObjectJob, j["id"]), Text: text})
		}
	}
}

func orRoot(ns string) string {
	if ns == "" {
		return "the root namespace"
	}
	return "namespace " + clean(ns)
}

func (w *walk) changesOwner(r gate.Request) {
	lost, gained := dim{ClassLosesAccess, gate.WeightCaution, nil}, dim{ClassGains, gate.WeightCaution, nil}
	for _, g := range ofName(w.groups(r.Text("store"), r.Text("ns"), false, lost, gained), r) {
		if g.owner == r.Text("new-owner") {
			continue
		}
		w.hit(gate.Hit{Class: ClassLosesAccess, Weight: gate.WeightCaution, Object: g.object(), Text: fmt.Sprintf("%s can no longer back up to group %s in %s, nor restore from it without further rights", clean(orNothing(g.owner)), clean(g.name), g.where())})
		w.hit(gate.Hit{Class: ClassGains, Weight: gate.WeightCaution, Object: g.object(), Text: fmt.Sprintf("%s can read, restore and prune the %s of group %s in %s", clean(r.Text("new-owner")), plural(g.backups, "backup", "backups"), clean(g.name), g.where())})
	}
}

func (w *walk) unprotects(r gate.Request) {
	if !off(r, "protected") {
		return
	}
	g := group{store: r.Text("store"), ns: r.Text("ns"), name: r.Text("backup-type") + "/" + r.Text("backup-id")}
	w.hit(gate.Hit{Class: ClassLosesBackup, Weight: gate.WeightCaution, Object: g.object(), Kinds: []gate.Kind{gate.KindGuard},
		Text: fmt.Sprintf("the backup of group %s in %s is protected no longer: prunings may take it", clean(g.name), g.where())})
}

// datastoreGone: without its data destroyed it lies where it is, and nothing there is to be had.
func (w *walk) datastoreGone(r gate.Request) {
	store := r.Text("name")
	if !on(r, "destroy-data") {
		out := dim{ClassLosesBackup, gate.WeightCaution, nil}
		for _, g := range w.eachGroup(w.groups(store, "", true, out), out) {
			w.hit(gate.Hit{Class: ClassLosesBackup, Weight: gate.WeightCaution, Object: g.object(), Way: []gate.Object{object(gate.ObjectStorage, store), g.object()},
				Text: fmt.Sprintf("%s of group %s in %s cannot be reached until the datastore is added again; the data stays on the disk", plural(g.backups, "backup", "backups"), clean(g.name), g.where())})
		}
	}
	become := "goes with the datastore"
	if on(r, "keep-job-configs") {
		become = "stays and fails"
	}
	for _, kind := range []string{"sync", "prune", "verify", "tape-backup-job"} {
		params := map[string]string{}
		if kind == "sync" {
			params["sync-direction"] = "all"
		}
		jobs, ok := w.vaultRows("GET /config/"+kind, params)
		if !ok {
			w.unread(ClassReferences, gate.WeightNote, object(gate.ObjectStorage, store), "which jobs ("+kind+") use the datastore")
		}
		for _, j := range jobs {
			if j["store"] == store || kind == "sync" && j["remote"] == "" && j["remote-store"] == store {
				w.hit(gate.Hit{Class: ClassReferences, Weight: gate.WeightNote, Object: object(gate.ObjectJob, j["id"]), Text: kind + " job " + clean(j["id"]) + " " + become})
			}
		}
	}
}

// keyGone: what a sync job encrypted with a key is read with that key alone.
func (w *walk) keyGone(r gate.Request) {
	id := r.Text("id")
	w.hit(gate.Hit{Class: ClassSecret, Weight: gate.WeightDanger, Object: object(gate.ObjectSite, ""),
		Text: "encryption key " + clean(id) + " goes: backups that were encrypted with it can be read by nobody who has no copy of it elsewhere, and whether there is one is not known"})
	jobs, ok := w.vaultRows("GET /config/sync", map[string]string{"sync-direction": "all"})
	if !ok {
		w.unread(ClassReferences, gate.WeightCaution, object(gate.ObjectSite, ""), "which sync jobs use the key")
	}
	for _, j := range jobs {
		if j["active-encryption-key"] != id && !slices.ContainsFunc(words(strings.Trim(j["associated-key"], "[]")), func(k string) bool { return strings.Trim(k, `"`) == id }) {
			continue
		}
		w.hit(gate.Hit{Class: ClassReferences, Weight: gate.WeightCaution, Object: object(gate.ObjectJob, j["id"]),
			Text: fmt.Sprintf("sync job %s (%s) uses it, and fails or is refused without", clean(j["id"]), jobPlace(j))})
	}
}

// jobPlace says between which places a sync job copies.
func jobPlace(j estate.Config) string {
	here, far := placeText(j["store"], j["ns"]), placeText(j["remote-store"], j["remote-ns"])
	if j["remote"] != "" {
		far += " of remote " + clean(j["remote"])
	}
	if j["sync-direction"] == "push" {
		return here + " to " + far
	}
	return far + " to " + here
}

func (w *walk) tapeKeyGone(r gate.Request) {
	key, site := r.Text("fingerprint"), object(gate.ObjectSite, "")
	w.hit(gate.Hit{Class: ClassSecret, Weight: gate.WeightDanger, Object: site,
		Text: "tape key " + clean(key) + " goes: tapes that were written with it can be read by nobody who has no copy of it, on a tape with its password or on paper"})
	pools, ok := w.vaultRows("GET /config/media-pool", nil)
	if !ok {
		w.unread(ClassReferences, gate.WeightCaution, site, "which media pools use the key")
	}
	for _, p := range pools {
		if p["encrypt"] == key {
			w.hit(gate.Hit{Class: ClassReferences, Weight: gate.WeightCaution, Object: object(gate.ObjectStorage, p["name"]), Text: "media pool " + clean(p["name"]) + " encrypts with it: " + w.tapesOf(p["name"]) + ", and its next backup fails"})
		}
	}
}

// tapesOf says how many tapes a pool has.
func (w *walk) tapesOf(pool string) string {
	rows, ok := w.vaultRows("GET /tape/media/list", map[string]string{"pool": pool, "update-status": "0"})
	if !ok {
		return "how many tapes it has could not be read"
	}
	return "it has " + plural(len(rows), "tape", "tapes")
}

func (w *walk) mediaPoolGone(r gate.Request) {
	pool := r.Text("name")
	o := object(gate.ObjectStorage, pool)
	w.hit(gate.Hit{Class: ClassLosesBackup, Weight: gate.WeightCaution, Object: o, Text: "media pool " + clean(pool) + " goes: " + w.tapesOf(pool) + ", which can be restored from while the catalogues are there, and are protected by no retention any more"})
	jobs, ok := w.vaultRows("GET /config/tape-backup-job", nil)
	if !ok {
		w.unread(ClassReferences, gate.WeightCaution, o, "which tape jobs write to it")
	}
	for _, j := range jobs {
		if j["pool"] == pool {
			w.hit(gate.Hit{Class: ClassReferences, Weight: gate.WeightCaution, Object: object(gate.ObjectJob, j["id"]), Text: fmt.Sprintf("tape job %s of %s writes to it and fails", clean(j["id"]), placeText(j["store"], j["ns"]))})
		}
	}
}

// removesLater is the worst of what a later run of something deletes, where the request itself deletes nothing.
var removesLater = dim{ClassLosesBackup, gate.WeightDanger, []gate.Kind{gate.KindData}}

// secondsOf is a time such as "2 weeks 3 days" in seconds; 0 = it is none.
func secondsOf(text string) (out int64) {
	for _, part := range spanPart.FindAllStringSubmatch(text, -1) {
		n, unit := number(part[1]), part[2]
		switch {
		case unit == "" || strings.HasPrefix(unit, "s"):
		case unit == "M" || strings.HasPrefix(unit, "mo"):
			n *= 2630016
		case strings.HasPrefix(unit, "m") && unit != "ms" && unit != "msec":
			n *= 60
		case strings.HasPrefix(unit, "h"):
			n *= 3600
		case strings.HasPrefix(unit, "d"):
			n *= 86400
		case strings.HasPrefix(unit, "w"):
			n *= 604800
		case strings.HasPrefix(unit, "y"):
			n *= 31557600
		default:
			return 0
		}
		out += n
	}
	return out
}

var spanPart = &regex.Lazy{Expr: `([0-9]+) *([A-Za-z]*)`}

// mediaPoolChanged: for how long a tape is kept from being written anew.
func (w *walk) mediaPoolChanged(r gate.Request) {
	next := r.Text("retention") // with none tapes are kept for ever
	if next == "" || next == "keep" {
		return
	}
	pool := r.Text("name")
	o := object(gate.ObjectStorage, pool)
	rows, ok := w.vaultRows("GET /config/media-pool/{name}", map[string]string{"name": pool})
	if !ok || len(rows) == 0 {
		w.missing(o, "how long tapes are kept now", removesLater)
		return
	}
	now := orText(rows[0]["retention"], "keep")
	if now == next || now == "overwrite" || now != "keep" && secondsOf(now) > 0 && secondsOf(next) >= secondsOf(now) {
		return
	}
	text := fmt.Sprintf("tapes of media pool %s may be written anew after %s, now after %s: ", clean(pool), clean(next), clean(now))
	if next == "overwrite" {
		text = fmt.Sprintf("tapes of media pool %s may be written anew at once, now after %s: ", clean(pool), clean(now))
	}
	text = strings.Replace(text, "now after keep", "now never", 1)
	w.hit(gate.Hit{Class: ClassLosesBackup, Weight: gate.WeightDanger, Object: o, Unknown: true, Kinds: []gate.Kind{gate.KindData},
		Text: text + w.tapesOf(pool) + ", and the next tape backup takes which it needs of those that are older"})
}

// datastoreChanged: what of it decides over backups.
func (w *walk) datastoreChanged(r gate.Request) {
	store := r.Text("name")
	o := object(gate.ObjectStorage, store)
	switch mode := orText(property(r.Text("maintenance-mode"), "type"), property(r.Text("maintenance-mode"), "")); mode {
	case "":
	case "read-only":
		w.hit(gate.Hit{Class: ClassLosesBackup, Weight: gate.WeightCaution, Object: o, Kinds: []gate.Kind{gate.KindGuard}, Text: "no backup is written to datastore " + clean(store) + " meanwhile: jobs fail"})
	default:
		w.hit(gate.Hit{Class: ClassLosesBackup, Weight: gate.WeightCaution, Object: o, Kinds: []gate.Kind{gate.KindGuard}, Text: "datastore " + clean(store) + " can neither be written to nor restored from meanwhile (" + clean(mode) + ")"})
	}
	const standard = 1445 // minutes
	tuning := r.Text("tuning")
	check, cutoff := property(tuning, "gc-atime-safety-check"), property(tuning, "gc-atime-cutoff")
	if off1(check) || check == "false" || check == "off" || check == "no" || cutoff != "" && number(cutoff) < standard {
		w.hit(gate.Hit{Class: ClassLosesBackup, Weight: gate.WeightDanger, Object: o, Unknown: true, Kinds: []gate.Kind{gate.KindData},
			Text: "a collection of garbage in datastore " + clean(store) + " may then take chunks that backups still need, where the file system does not keep the time of their use or a backup is being written"})
	}
}

// remoteChanged: with another server at the other end a sync job takes what that one lacks for vanished.
func (w *walk) remoteChanged(r gate.Request) {
	if len(settingNames(r, "name", "comment", "digest", "password", "fingerprint", "delete", "use-node-proxy")) == 0 {
		return
	}
	jobs, ok := w.vaultRows("GET /config/sync", map[string]string{"sync-direction": "all"})
	if !ok {
		w.missing(object(gate.ObjectSite, ""), "which sync jobs use the remote", removesLater, dim{ClassReferences, gate.WeightNote, nil})
	}
	for _, j := range jobs {
		if j["remote"] != r.Text("name") {
			continue
		}
		o := object(gate.ObjectJob, j["id"])
		if !j.On("remove-vanished") {
			w.hit(gate.Hit{Class: ClassReferences, Weight: gate.WeightNote, Object: o, Text: fmt.Sprintf("sync job %s (%s) uses it", clean(j["id"]), jobPlace(j))})
			continue
		}
		text := "backups here that are not there"
		if j["sync-direction"] == "push" {
			text = "backups there that are not here"
		}
		w.hit(gate.Hit{Class: ClassLosesBackup, Weight: gate.WeightDanger, Object: o, Unknown: true, Kinds: []gate.Kind{gate.KindData},
			Text: fmt.Sprintf("sync job %s (%s) uses it, and where it leads to another server or sees other groups the next run removes %s", clean(j["id"]), jobPlace(j), text)})
	}
}

func (w *walk) remoteGone(r gate.Request) {
	jobs, ok := w.vaultRows("GET /config/sync", map[string]string{"sync-direction": "all"})
	if !ok {
		w.missing(object(gate.ObjectSite, ""), "which sync jobs use the remote", losesBackup)
	}
	for _, j := range jobs {
		if j["remote"] == r.Text("name") {
			w.hit(gate.Hit{Class: ClassLosesBackup, Weight: gate.WeightCaution, Object: object(gate.ObjectJob, j["id"]), Kinds: []gate.Kind{gate.KindGuard}, Text: fmt.Sprintf("sync job %s (%s) uses it and copies nothing any more", clean(j["id"]), jobPlace(j))})
		}
	}
}

// bucketGone: a datastore whose chunks lie in an object store reads nothing without its endpoint.
func (w *walk) bucketGone(r gate.Request) {
	stores, ok := w.vaultRows("GET /config/datastore", nil)
	if !ok {
		w.missing(object(gate.ObjectSite, ""), "which datastores lie at the endpoint", losesArchive)
	}
	for _, d := range stores {
		if !slices.Contains(strings.Split(d["backend"], ","), "client="+r.Text("id")) {
			continue
		}
		for _, g := range w.eachGroup(w.groups(d["name"], "", true, losesArchive), losesArchive) {
			w.hit(gate.Hit{Class: ClassLosesBackup, Weight: gate.WeightDanger, Object: g.object(), Way: []gate.Object{object(gate.ObjectStorage, d["name"]), g.object()},
				Text: fmt.Sprintf("%s of group %s in %s lie at the endpoint and cannot be reached until it is there again", plural(g.backups, "backup", "backups"), clean(g.name), g.where())})
		}
	}
}

func (w *walk) pushes(r gate.Request) { w.pushesTo(sent(r)) }

// sent are the parameters of a request as settings.
func sent(r gate.Request) estate.Config {
	out := estate.Config{}
	for _, p := range r.Params {
		out[p.Name] = strings.Join(values(r, p.Name), ",")
	}
	for _, name := range []string{"remove-vanished", "disable", "run-on-mount"} {
		if r.Get(name) != nil {
			out[name] = bit(on(r, name))
		}
	}
	return out
}

// pushesTo: what lies at the other end cannot be looked at from here.
func (w *walk) pushesTo(j estate.Config) {
	o := object(gate.ObjectStorage, j["store"])
	far := placeText(j["remote-store"], j["remote-ns"]) + " of remote " + clean(j["remote"])
	w.hit(gate.Hit{Class: ClassTime, Weight: gate.WeightNote, Object: o, Text: "backups in " + placeText(j["store"], j["ns"]) + " are copied to " + far})
	if j.On("remove-vanished") {
		w.hit(gate.Hit{Class: ClassLosesBackup, Weight: gate.WeightDanger, Object: o, Unknown: true, Text: "in " + far + " all backups are removed that are not here any more; which they are is not known here"})
	}
}

// syncRuns: what a pull removes is told by takenBy; here what else a sync job does.
func (w *walk) syncRuns(r gate.Request) {
	j, was, ok := w.syncJob(r)
	if strings.HasPrefix(r.Operation, "PUT ") {
		w.vaultJobAltered(r)
	}
	switch {
	case !ok:
		w.missing(object(gate.ObjectJob, r.Text("id")), "what the sync job does", losesArchive, dim{ClassTime, gate.WeightNote, nil})
	case strings.HasPrefix(r.Operation, "PUT ") && (removesAsBefore(was, j) || !j.On("remove-vanished")): // it removes no more than it did
	case j["sync-direction"] == "push":
		w.pushesTo(j)
	default:
		w.hit(gate.Hit{Class: ClassTime, Weight: gate.WeightNote, Object: object(gate.ObjectJob, r.Text("id")), Text: "backups are copied from " + jobPlace(j)})
	}
}

// syncJob is a sync job as it is after a request for it, and as it was; ok is false where what it was cannot be read.
func (w *walk) syncJob(r gate.Request) (is, was estate.Config, ok bool) {
	if r.Operation == "POST /config/sync" {
		return sent(r), nil, true
	}
	rows, ok := w.vaultRows("GET /config/sync/{id}", map[string]string{"id": r.Text("id")})
	if !ok || len(rows) == 0 {
		return nil, nil, false
	}
	was = rows[0]
	return merged(was, r), was, true
}

// merged is an object with what a request sets and deletes of it.
func merged(was estate.Config, r gate.Request) estate.Config {
	is := estate.Config{}
	for k, v := range was {
		is[k] = v
	}
	if strings.HasPrefix(r.Operation, "PUT ") {
		for k, v := range sent(r) {
			is[k] = v
		}
		for _, k := range listOf(r, "delete") {
			delete(is, k)
		}
	}
	return is
}

// vaultJobAltered: a job that is switched off, or loses its schedule, does as little as one that is deleted.
func (w *walk) vaultJobAltered(r gate.Request) {
	kind := strings.Split(r.Operation, "/")[2]
	stops := r.Get("disable") != nil && on(r, "disable") || r.Get("schedule") != nil && r.Text("schedule") == "" || off(r, "run-on-mount") ||
		slices.ContainsFunc(listOf(r, "delete"), func(k string) bool { return k == "schedule" || k == "run-on-mount" })
	if !stops {
		return
	}
	rows, ok := w.vaultRows("GET /config/"+kind+"/{id}", map[string]string{"id": r.Text("id")})
	if ok && len(rows) > 0 && (!byItself(kind, rows[0]) || byItself(kind, merged(rows[0], r))) {
		return
	}
	w.vaultJobGone(r)
}

func (w *walk) vaultJobGone(r gate.Request) {
	kind := strings.Split(r.Operation, "/")[2]
	o := object(gate.ObjectJob, r.Text("id"))
	rows, ok := w.vaultRows("GET /config/"+kind+"/{id}", map[string]string{"id": r.Text("id")})
	where := "what it works on could not be read"
	if ok && len(rows) > 0 {
		where = placeText(rows[0]["store"], rows[0]["ns"])
		if kind == "sync" {
			where = jobPlace(rows[0])
		}
	}
	guard := []gate.Kind{gate.KindGuard}
	switch kind {
	case "sync":
		w.hit(gate.Hit{Class: ClassLosesBackup, Weight: gate.WeightCaution, Object: o, Kinds: guard, Text: "backups are not copied any more by job " + clean(o.ID) + ": " + where})
	case "tape-backup-job":
		w.hit(gate.Hit{Class: ClassLosesBackup, Weight: gate.WeightCaution, Object: o, Kinds: guard, Text: "backups are not written to tape any more by job " + clean(o.ID) + ": " + where})
	case "verify":
		w.hit(gate.Hit{Class: ClassSetting, Weight: gate.WeightCaution, Object: o, Kinds: guard, Text: "backups are not verified any more by job " + clean(o.ID) + ": " + where})
	default:
		w.hit(gate.Hit{Class: ClassSpace, Weight: gate.WeightNote, Object: o, Text: "old backups are not pruned any more by job " + clean(o.ID) + ": " + where})
	}
}

// limits: a limit slows backups and restores of whom it is for, and so how long they take.
func (w *walk) limits(r gate.Request) {
	name := r.Text("name")
	rows, ok := w.vaultRows("GET /config/traffic-control", nil)
	if !ok {
		w.unread(ClassTime, gate.WeightCaution, object(gate.ObjectSite, ""), "which limits there are")
	}
	rule := estate.Config{}
	for _, x := range rows {
		if x["name"] == name {
			rule = x
		}
	}
	method, _, _ := strings.Cut(r.Operation, " ")
	rule = merged(rule, r)
	if method == "POST" {
		rule = sent(r)
	}
	whom := "networks " + clean(orNothing(strings.Trim(strings.ReplaceAll(rule["network"], `"`, ""), "[]")))
	h := gate.Hit{Class: ClassTime, Weight: gate.WeightCaution, Object: object(gate.ObjectSite, ""),
		Text: fmt.Sprintf("backups from and restores to %s run at %s in and %s out", whom, orUnlimited(rule["rate-in"]), orUnlimited(rule["rate-out"]))}
	if method == "DELETE" {
		h.Weight, h.Text = gate.WeightNote, "limit "+clean(name)+" of "+whom+" goes: they may take the whole line"
	}
	w.hit(h)
}

func orUnlimited(rate string) string {
	if rate == "" {
		return "full speed"
	}
	return clean(rate)
}

// erasesTape names what was written to a tape; of which tape lies in the drive nothing is known without a look into it.
func (w *walk) erasesTape(r gate.Request) {
	label := r.Text("label-text")
	o := object(gate.ObjectArchive, "tape/"+orText(label, r.Text("drive")))
	if label == "" {
		w.hit(gate.Hit{Class: ClassLosesBackup, Weight: gate.WeightDanger, Object: o, Unknown: true, Text: "what lies on the tape that is erased is lost; which tape is in drive " + clean(r.Text("drive")) + " was not looked at"})
		return
	}
	rows, ok := w.vaultRows("GET /tape/media/content", map[string]string{"label-text": label})
	if !ok {
		w.missing(o, "what lies on tape "+clean(label), losesArchive)
		return
	}
	var groups []string
	for _, x := range rows {
		kind, rest, _ := strings.Cut(x["snapshot"], "/")
		id, _, _ := strings.Cut(rest, "/")
		if name := clean(x["store"] + ":" + kind + "/" + id); !slices.Contains(groups, name) {
			groups = append(groups, name)
		}
	}
	h := gate.Hit{Class: ClassLosesBackup, Weight: gate.WeightCaution, Object: o, Text: "tape " + clean(label) + " is erased; it holds no backup of which the catalogue here knows"}
	if len(rows) > 0 {
		slices.Sort(groups)
		h.Weight, h.Text = gate.WeightDanger, fmt.Sprintf("tape %s with %s of %s is erased; other tapes of its set are of little use without it", clean(label), plural(len(rows), "backup", "backups"), names(groups))
	}
	w.hit(h)
}
