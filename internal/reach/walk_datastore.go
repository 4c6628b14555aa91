package reach

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

// A Backup Server knows groups of snapshots (vm/101) in namespaces of its datastores. What a request deletes of them is told
// group by group, and of which nothing is left there.

// taken is a request that deletes backups: all that lies in a datastore or in a namespace and below, or a part of it.
type taken struct {
	store, ns string
	below     bool   // namespaces below, too
	kind, id  string // of one group; empty = of all
	time      string // of one snapshot; empty = of all
	keeps     bool   // at least the newest of each group is kept
	unsure    bool   // which they are is not known beforehand
	protected bool   // those that are protected go too
	how       string
}

// takenBy reads what a request to a Backup Server deletes; known is false for one that deletes none.
func (w *walk) takenBy(r gate.Request) (t taken, known bool) {
	if r.Product != "pbs" {
		return taken{}, false
	}
	t = taken{store: r.Text("store"), ns: r.Text("ns"), kind: r.Text("backup-type"), id: r.Text("backup-id"), time: r.Text("backup-time")}
	kept := func(has func(name string) string) bool {
		return slices.ContainsFunc(keeping, func(k string) bool { return number(has(k)) > 0 })
	}
	switch r.Operation {
	case "DELETE /admin/datastore/{store}/snapshots", "DELETE /admin/datastore/{store}/groups":
		t.how = "deleted"
	case "DELETE /admin/datastore/{store}/namespace":
		t.below, t.protected, t.how = true, true, "deleted with the namespace"
		return t, on(r, "delete-groups")
	case "DELETE /config/datastore/{name}":
		t.store, t.below, t.protected, t.how = r.Text("name"), true, true, "destroyed with the datastore"
		return t, on(r, "destroy-data")
	case "POST /admin/datastore/{store}/prune":
		t.unsure, t.keeps, t.how = true, kept(r.Text), "pruned, as far as the numbers to keep tell"
		return t, !on(r, "dry-run") && t.keeps // without a number to keep it prunes nothing
	case "POST /admin/datastore/{store}/prune-datastore":
		t.below = r.Text("max-depth") != "0"
		t.unsure, t.keeps, t.how = true, kept(r.Text), "pruned, as far as the numbers to keep tell"
		return t, !on(r, "dry-run") && t.keeps
	case "POST /pull":
		t.below, t.unsure, t.how = r.Text("max-depth") != "0", true, "removed where the source does not have it any more"
		return t, on(r, "remove-vanished")
	case "POST /admin/sync/{id}/run", "POST /config/sync", "PUT /config/sync/{id}":
		return w.takenBySync(r)
	case "POST /admin/prune/{id}/run", "POST /config/prune", "PUT /config/prune/{id}":
		return w.takenByPrune(r)
	default:
		return taken{}, false
	}
	return t, true
}

// takenBySync reads what a sync job removes: when it is run, or at each of its runs when it is made or changed so that it removes
// more than it did. One whose settings cannot be read is of any datastore.
func (w *walk) takenBySync(r gate.Request) (t taken, known bool) {
	job, was, ok := w.syncJob(r)
	if !ok {
		w.missing(object(gate.ObjectJob, r.Text("id")), "what a run of the job deletes", losesArchive)
		return taken{}, false
	}
	t = taken{store: job["store"], ns: job["ns"], below: job["max-depth"] != "0", unsure: true, how: "removed where the source does not have it any more"}
	if later := strings.Contains(r.Operation, "/config/"); later {
		t.how += ", at each run of job " + clean(r.Text("id"))
		if removesAsBefore(was, job) {
			return t, false
		}
	}
	return t, job.On("remove-vanished") && job["sync-direction"] != "push"
}

// removesAsBefore says whether a changed sync job removes the same as it did, no sooner and nowhere else: whose groups they are
// decides which it takes for its own, and one without a time of its own runs only by hand.
func removesAsBefore(was, job estate.Config) bool {
	begins := was["schedule"] == "" && job["schedule"] != "" || job.On("run-on-mount") && !was.On("run-on-mount")
	return was.On("remove-vanished") && !begins && sameIn(was, job, "store", "ns", "max-depth", "remote", "remote-store", "remote-ns", "group-filter", "sync-direction", "owner")
}

// takenByPrune is the same of a prune job.
func (w *walk) takenByPrune(r gate.Request) (t taken, known bool) {
	var job, was estate.Config
	if r.Operation == "POST /config/prune" {
		job = sent(r)
	} else {
		rows, ok := w.vaultRows("GET /config/prune/{id}", map[string]string{"id": r.Text("id")})
		if !ok || len(rows) == 0 {
			w.missing(object(gate.ObjectJob, r.Text("id")), "what a run of the job deletes", losesArchive)
			return taken{}, false
		}
		was, job = rows[0], merged(rows[0], r)
	}
	t = taken{store: job["store"], ns: job["ns"], below: job["max-depth"] != "0", unsure: true, keeps: true, how: "pruned, as far as the numbers to keep tell"}
	if strings.Contains(r.Operation, "/config/") {
		t.how += ", at each run of job " + clean(r.Text("id"))
		enabled := was.On("disable") && !job.On("disable")
		if was != nil && !enabled && sameIn(was, job, append([]string{"store", "ns", "max-depth"}, keeping...)...) {
			return t, false
		}
	}
	return t, slices.ContainsFunc(keeping, func(k string) bool { return number(job[k]) > 0 }) // without a number to keep it prunes nothing
}

// keeping are the numbers that a pruning keeps.
var keeping = []string{"keep-last", "keep-hourly", "keep-daily", "keep-weekly", "keep-monthly", "keep-yearly"}

// byItself says whether a job runs without being told to each time.
func byItself(kind string, job estate.Config) bool {
	return !job.On("disable") && (job["schedule"] != "" || kind == "sync" && job.On("run-on-mount"))
}

func sameIn(a, b estate.Config, keys ...string) bool {
	return !slices.ContainsFunc(keys, func(k string) bool { return a[k] != b[k] })
}

func inNamespace(ns, at string, below bool) bool {
	return ns == at || below && (at == "" || strings.HasPrefix(ns, at+"/"))
}

// takes says whether a snapshot goes; newest is whether it is its group's.
func (t taken) takes(store, ns string, row estate.Config, newest bool) answer {
	switch {
	case t.store != store || !inNamespace(ns, t.ns, t.below):
	case t.kind != "" && t.kind != row["backup-type"] || t.id != "" && t.id != row["backup-id"] || t.time != "" && t.time != row["backup-time"]:
	case row.On("protected") && !t.protected && !t.unsure, t.keeps && (newest || row.On("protected")):
	case t.unsure:
		return perhaps
	default:
		return yes
	}
	return no
}

func readDatastore(w *walk, r gate.Request) ([]change, bool) {
	if r.Product != "pbs" {
		return nil, false
	}
	if _, known := w.takenBy(r); !known {
		return nil, false
	}
	return []change{{verb: frees, object: object(gate.ObjectArchive, "")}}, true
}

// walkGroupsFreed names the groups that lose backups, those first of which nothing is left.
func walkGroupsFreed(w *walk, _ change) {
	t, _ := w.takenBy(*w.step.API)
	o := object(gate.ObjectStorage, t.store)
	earlier := []taken{}
	for _, s := range w.before {
		if e, known := w.takenBy(*s.API); known {
			earlier = append(earlier, e)
		}
	}
	told := 0
	var bare []group // of which nothing is left in its place
	for _, ns := range w.spaces(t.store, t.ns, t.below, losesArchive) {
		params := map[string]string{"store": t.store}
		where := "datastore " + clean(t.store)
		if ns != "" {
			params["ns"] = ns
			where += ", namespace " + clean(ns)
		}
		rows, ok := w.s.Rows(estate.PartSnaps, t.store+"/"+ns, gate.Read{Operation: "GET /admin/datastore/{store}/snapshots", Params: params})
		if !ok {
			w.missing(o, "what backups lie in "+where, losesArchive)
		}
		groups := map[string][]estate.Config{}
		for _, r := range rows {
			name := r["backup-type"] + "/" + r["backup-id"]
			groups[name] = append(groups[name], r)
		}
		for _, name := range slices.Sorted(maps.Keys(groups)) {
			of := groups[name]
			slices.SortStableFunc(of, func(a, b estate.Config) int {
				return int(min(1, max(-1, number(b["backup-time"])-number(a["backup-time"]))))
			})
			gone, may, left := 0, 0, 0
			newest := ""
			for i, r := range of {
				before := no
				for _, e := range earlier {
					before = max(before, e.takes(t.store, ns, r, i == 0))
				}
				if before == yes {
					continue
				}
				switch now := t.takes(t.store, ns, r, i == 0); {
				case now == yes:
					if gone++; gone == 1 {
						newest = r["backup-time"]
					}
				case now == perhaps:
					may++
				case before == no:
					left++
				}
			}
			if gone+may == 0 {
				continue
			}
			if told++; told > most {
				w.missing(o, "what is left of further groups in "+where, losesArchive)
				w.elsewhere(o, bare)
				return
			}
			kind, id, _ := strings.Cut(name, "/")
			it := object(gate.ObjectArchive, t.store+":"+name)
			if kind == "vm" || kind == "ct" {
				it = object(gate.ObjectGuest, id)
			}
			h := gate.Hit{Class: ClassLosesBackup, Weight: gate.WeightCaution, Object: it, Way: []gate.Object{o, it}, Unknown: gone == 0,
				Text: fmt.Sprintf("%s of group %s in %s: %s; %d stay", plural(gone+may, "backup", "backups"), clean(name), where, t.how, left)}
			if left == 0 {
				h.Weight = gate.WeightDanger
				bare = append(bare, group{store: t.store, ns: ns, name: name})
				h.Text = fmt.Sprintf("group %s keeps no backup in %s (%s: %s)", clean(name), where, plural(gone+may, "backup", "backups"), t.how)
			}
			if t.id != "" && gone > 0 { // one that is made meanwhile would go with its group, and was not counted
				h.Matter = "up to " + newest
			}
			w.hit(h)
		}
	}
	w.elsewhere(o, bare)
}

// elsewhere says which other copies of groups the Backup Server's sync jobs tell of. What lies on another server or on tape
// is not looked at, so nothing is taken for safe because of it.
func (w *walk) elsewhere(o gate.Object, bare []group) {
	if len(bare) == 0 {
		return
	}
	note := func(o gate.Object, format string, args ...any) {
		w.hit(gate.Hit{Class: ClassLosesBackup, Weight: gate.WeightNote, Object: o, Text: fmt.Sprintf(format, args...)})
	}
	jobs, ok := w.vaultRows("GET /config/sync", map[string]string{"sync-direction": "all"})
	if !ok {
		note(o, "whether sync jobs copy what goes elsewhere could not be read; nor is it known what lies on other servers and on tape")
		return
	}
	for _, j := range jobs {
		job := object(gate.ObjectJob, j["id"])
		here := slices.DeleteFunc(slices.Clone(bare), func(g group) bool {
			return g.store != j["store"] || !inNamespace(g.ns, j["ns"], j["max-depth"] != "0")
		})
		source := slices.DeleteFunc(slices.Clone(bare), func(g group) bool {
			return j["remote"] != "" || j["sync-direction"] == "push" || g.store != j["remote-store"] || !inNamespace(g.ns, j["remote-ns"], j["max-depth"] != "0")
		})
		switch {
		case len(here) > 0 && j["sync-direction"] == "push":
			note(job, "sync job %s copies %s to %s of remote %s: what is there now is not known here", clean(j["id"]), groupNames(here), placeText(j["remote-store"], j["remote-ns"]), clean(j["remote"]))
		case len(here) > 0 && j["remote"] != "":
			note(job, "sync job %s gets %s from %s of remote %s: what is there now is not known here", clean(j["id"]), groupNames(here), placeText(j["remote-store"], j["remote-ns"]), clean(j["remote"]))
		case len(here) > 0:
			w.copiesAt(job, j, here, j["ns"], j["remote-store"], j["remote-ns"])
		}
		if len(source) > 0 {
			w.copiesAt(job, j, source, j["remote-ns"], j["store"], j["ns"])
		}
	}
	note(o, "other copies of what goes, on another server or on tape, are known here only as far as sync jobs tell of them")
}

// copiesAt looks for groups at the other end of a sync job between two places of this server.
func (w *walk) copiesAt(job gate.Object, j estate.Config, of []group, from, store, to string) {
	var has, not []string
	for _, g := range of {
		ns := strings.Trim(to+"/"+strings.Trim(strings.TrimPrefix(g.ns, from), "/"), "/")
		params := map[string]string{"store": store}
		if ns != "" {
			params["ns"] = ns
		}
		rows, ok := w.vaultRows("GET /admin/datastore/{store}/groups", params)
		count := int64(0)
		for _, r := range rows {
			if r["backup-type"]+"/"+r["backup-id"] == g.name {
				count = number(r["backup-count"])
			}
		}
		switch {
		case !ok:
			not = append(not, clean(g.name)+" (could not be read)")
		case count == 0:
			not = append(not, clean(g.name))
		default:
			has = append(has, fmt.Sprintf("%s (%d)", clean(g.name), count))
		}
	}
	var parts []string
	if len(has) > 0 {
		parts = append(parts, "has backups of "+names(has))
	}
	if len(not) > 0 {
		parts = append(parts, "shows none of "+names(not))
	}
	text := fmt.Sprintf("%s, the other end of sync job %s, %s", placeText(store, to), clean(j["id"]), strings.Join(parts, " and "))
	if j.On("remove-vanished") && j["store"] == store {
		text += "; its next run removes there what is gone here"
	}
	w.hit(gate.Hit{Class: ClassLosesBackup, Weight: gate.WeightNote, Object: job, Text: text})
}

func groupNames(of []group) string {
	var out []string
	for _, g := range of {
		out = append(out, clean(g.name))
	}
	return names(out)
}
