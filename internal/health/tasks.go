package health

import (
	"cmp"
	"slices"
	"strings"

	"castellan/internal/estate"
)

// task is one row of a task list, where status is the exit status. PBS and PDM say worker_type and worker_id where PVE
// says type and id.
type task struct {
	upid, kind, id, node, exit string
	start, end                 int64
	running                    bool
}

func tasksOf(rows []estate.Config) []task {
	at := map[string]int{}
	var out []task
	for _, r := range rows {
		t := task{upid: r["upid"], kind: cmp.Or(r["type"], r["worker_type"]), id: cmp.Or(r["id"], r["worker_id"]), node: r["node"], exit: r["status"],
			start: whole(r, "starttime"), end: whole(r, "endtime")}
		t.running = t.end == 0
		if t.running && (t.exit == "RUNNING" || t.exit == "running") {
			t.exit = ""
		}
		if i, twice := at[t.upid]; twice && t.upid != "" {
			if !t.running {
				out[i] = t
			}
			continue
		}
		at[t.upid] = len(out)
		out = append(out, t)
	}
	slices.SortStableFunc(out, func(a, b task) int { return cmp.Or(cmp.Compare(b.start, a.start), cmp.Compare(b.upid, a.upid)) })
	return out
}

// state sorts an exit status: what ended without one is unknown, never ok; warnings are a success.
func (t task) state() string {
	switch {
	case t.running:
		return "running"
	case t.exit == "OK":
		return "ok"
	case strings.HasPrefix(t.exit, "WARNINGS"):
		return "warnings"
	case t.exit == "" || t.exit == "unexpected status" || t.exit == "unknown":
		return "unknown"
	}
	return "failed"
}

func (t task) bad() bool { s := t.state(); return s == "failed" || s == "unknown" }

// title names what a task did, in plain words where they are known.
func (t task) title() string {
	name := map[string]string{"vzdump": "backup", "qmigrate": "migration", "vzmigrate": "migration", "qmsnapshot": "snapshot", "vzsnapshot": "snapshot", "qmdelsnapshot": "snapshot deletion",
		"vzdelsnapshot": "snapshot deletion", "qmrollback": "rollback", "vzrollback": "rollback", "qmstart": "start", "vzstart": "start", "hastart": "HA start", "qmstop": "stop", "vzstop": "stop",
		"qmshutdown": "shutdown", "vzshutdown": "shutdown", "qmreboot": "reboot", "vzreboot": "reboot", "qmrestore": "restore", "vzrestore": "restore", "qmclone": "clone", "vzclone": "clone",
		"qmmove": "disk move", "move_volume": "volume move", "qmcreate": "creation", "vzcreate": "creation", "aptupdate": "package list update", "imgcopy": "upload", "download": "download",
		"hamigrate": "HA migration", "qmigrateall": "migration of all", "replication": "replication", "garbage_collection": "garbage collection", "imgdel": "volume deletion"}[t.kind]
	if name == "" {
		name = clean(t.kind, 40)
	}
	return name
}

// heavy says whether a running task loads disks or network.
func (t task) heavy() bool {
	return slices.Contains([]string{"vzdump", "qmigrate", "vzmigrate", "qmrestore", "vzrestore", "qmclone", "vzclone", "qmmove", "move_volume", "qmdelsnapshot", "vzdelsnapshot", "qmsnapshot", "vzsnapshot",
		"qmrollback", "vzrollback", "imgcopy", "download", "qmcreate", "vzcreate", "qmtemplate", "replication", "zfscreate", "migrateall", "garbage_collection", "verificationjob", "prune"}, t.kind)
}

func (t task) next() *Next {
	if t.upid == "" {
		return &Next{Operation: "list_tasks"}
	}
	return &Next{Operation: "task_status", Arguments: map[string]string{"upid": t.upid}}
}

// job is all runs of one kind on one object.
type job struct {
	task       // the newest that failed
	failures   int
	first      int64 // start of the earliest failure
	newer      *task // a later run that went well
	newerRuns  int
	stillGoing bool // a later run is under way
}

// jobsOf groups the failures by kind and object, and looks in the other runs for a later success.
func jobsOf(failed, all []task) []job {
	at := map[string]int{}
	var out []job
	for _, t := range failed {
		if !t.bad() {
			continue
		}
		k := t.kind + "\x00" + t.id
		if t.id == "" {
			k += "\x00" + t.node
		}
		i, again := at[k]
		if !again {
			at[k] = len(out)
			out = append(out, job{task: t, failures: 1, first: t.start})
			continue
		}
		out[i].failures++
		out[i].first = min(out[i].first, t.start)
		if t.start > out[i].start {
			out[i].task = t
		}
	}
	for _, t := range all {
		i, known := at[t.kind+"\x00"+t.id]
		if t.id == "" {
			i, known = at[t.kind+"\x00"+t.id+"\x00"+t.node]
		}
		if !known || t.start <= out[i].start {
			continue
		}
		switch t.state() {
		case "ok", "warnings":
			out[i].newerRuns++
			if out[i].newer == nil || t.start > out[i].newer.start {
				out[i].newer = &t
			}
		case "running":
			out[i].stillGoing = true
		}
	}
	return out
}
