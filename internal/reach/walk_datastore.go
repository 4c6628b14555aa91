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
		return slices.ContainsFunc([]string{"keep-last", "keep-hourly", "keep-daily", "keep-weekly", "keep-monthly", "keep-yearly"}, func(k string) bool { return number(has(k)) > 0 })
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
	case "POST /admin/sync/{id}/run", "POST /admin/prune/{id}/run":
		return w.takenByJob(r)
	default:
		return taken{}, false
	}
	return t, true
}

// takenByJob reads what a run of a job deletes from its settings; those that cannot be read are of any datastore.
func (w *walk) takenByJob(r gate.Request) (t taken, known bool) {
	kind := strings.Split(r.Operation, "/")[2]
	rows, ok := w.s.Rows(estate.PartSnaps, kind+"/"+r.Text("id"), gate.Read{Operation: "GET /config/" + kind + "/{id}", Params: map[string]string{"id": r.Text("id")}})
	if !ok || len(rows) == 0 {
		w.missing(object(gate.ObjectJob, r.Text("id")), "what a run of the job deletes", losesArchive)
		return taken{}, false
	}
	job := rows[0]
	t = taken{store: job["store"], ns: job["ns"], below: job["max-depth"] != "0", unsure: true, keeps: true, how: "pruned, as far as the numbers to keep tell"}
	if kind == "sync" {
		t.keeps, t.how = false, "removed where the source does not have it any more"
		return t, job.On("remove-vanished") && job["sync-direction"] != "push"
	}
	return t, true
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
	spaces := []string{t.ns}
	if t.below {
		params := map[string]string{"store": t.store}
		if t.ns != "" {
			params["parent"] = t.ns
		}
		rows, ok := w.s.Rows(estate.PartSnaps, t.store+"/namespaces/"+t.ns, gate.Read{Operation: "GET /admin/datastore/{store}/namespace", Params: params})
		if !ok {
			w.missing(o, "which namespaces datastore "+clean(t.store)+" has", losesArchive)
		}
		for _, r := range rows {
			if !slices.Contains(spaces, r["ns"]) {
				spaces = append(spaces, r["ns"])
			}
		}
	}
	told := 0
	for _, ns := range spaces {
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
				h.Text = fmt.Sprintf("group %s keeps no backup in %s (%s: %s)", clean(name), where, plural(gone+may, "backup", "backups"), t.how)
			}
			if t.id != "" && gone > 0 { // one that is made meanwhile would go with its group, and was not counted
				h.Matter = "up to " + newest
			}
			w.hit(h)
		}
	}
}
