package health

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"castellan/internal/estate"
)

// judge turns what was read into flags.
func (c *round) judge() {
	c.judgeNodes()
	c.judgeTasks()
	c.judgeReplication()
	c.judgeHA()
	c.judgeCeph()
	c.judgeBackups()
	c.judgeGuests()
	c.judgeVersions()
	for _, name := range sortedNodes(c.node) {
		n := c.node[name]
		thinPools(c.b, n.thin, name)
		zfsPools(c.b, n.zfs, name)
		failedServices(c.b, n.services, name)
		c.certificates(n)
		c.packages(n)
	}
	c.judgeStorages()
	c.clocks()
	c.cut()
}

// judgeNodes: nodes that are off, and quorum.
func (c *round) judgeNodes() {
	home := map[string]int{}
	for _, g := range c.inv.Guests {
		home[g.Node]++
	}
	for _, n := range c.inv.Nodes {
		if n.Status == "online" || c.ask.Node != "" && n.Name != c.ask.Node || c.scoped && home[n.Name] == 0 {
			continue
		}
		c.un = append(c.un, Unread{Part: "everything on the node", Where: whereNode(n.Name), Why: "the node is " + n.Status, Hides: Critical})
		if c.on("nodes") {
			c.b.add(Flag{Level: Critical, Check: "node_offline", Where: whereNode(n.Name), What: fmt.Sprintf("the node is %s, and with it its %s", n.Status, plural(home[n.Name], "guest", "guests")), excess: float64(1 + home[n.Name]),
				Evidence: []Evidence{{Figure: "state", Value: n.Status, Threshold: "online", Source: "GET /cluster/resources"}}, Next: &Next{Operation: "diagnose_node", Arguments: map[string]string{"node": n.Name}}})
		}
	}
	if !c.on("nodes") {
		return
	}
	for _, r := range c.status.rowsOr() {
		if r["type"] == "cluster" && r["quorate"] != "1" {
			c.b.add(Flag{Level: Critical, Check: "no_quorum", Where: "cluster " + clean(r["name"], 60), What: "the cluster has no quorum: nothing can be changed or started", excess: 1000,
				Evidence: []Evidence{{Figure: "quorate", Value: cmp.Or(r["quorate"], "not told"), Threshold: "1", Source: c.status.source()}}, Next: &Next{Operation: "cluster_overview"}})
		}
	}
	for _, name := range sortedNodes(c.node) {
		n := c.node[name]
		if !n.status.ok() {
			continue
		}
		if u, t, ok := usedOf(sub(n.status.row(), "rootfs")); ok {
			if f, yes := fill(Flag{Check: "root_disk", Where: whereNode(name), What: "the node's own disk is nearly full: services and backups fail when it is"}, u, t, diskFull, diskFullBad, "root disk", n.status.source()); yes {
				f.Next = &Next{Operation: "node_status", Arguments: map[string]string{"node": name}}
				c.b.add(f)
			}
		}
		if u, t, ok := used(sub(n.status.row(), "memory")); ok {
			if f, yes := fill(Flag{Check: "node_memory", Where: whereNode(name), What: "the node's memory is nearly used up"}, u, t, nodeMemory, nodeMemoryBad, "memory", n.status.source()); yes {
				f.Next = &Next{Operation: "diagnose_node", Arguments: map[string]string{"node": name}}
				c.b.add(f)
			}
		}
	}
}

// rowsOr are the rows of a read that may not have been made.
func (a *ask) rowsOr() []estate.Config {
	if a == nil {
		return nil
	}
	return a.rows
}

// judgeTasks groups failures by job and tells the last state of each.
func (c *round) judgeTasks() {
	if !c.on("tasks") {
		return
	}
	site := tasksOf(c.tasks.rowsOr())
	all := slices.Clone(site)
	var failed []task
	var source string
	for _, name := range sortedNodes(c.node) {
		n := c.node[name]
		failed = append(failed, tasksOf(n.failed.rowsOr())...)
		for _, a := range n.later {
			all = append(all, tasksOf(a.rowsOr())...)
		}
		if source == "" && n.failed != nil {
			source = "GET /nodes/{node}/tasks"
		}
	}
	since := c.now.Add(-lastDay).Unix()
	for _, t := range site { // the site's own list has failures of nodes whose list could not be read
		if t.bad() && t.start >= since && (c.ask.Node == "" || t.node == c.ask.Node) {
			failed = append(failed, t)
		}
	}
	seen := map[string]bool{}
	failed = slices.DeleteFunc(failed, func(t task) bool {
		twice := seen[t.upid]
		seen[t.upid] = true
		return twice && t.upid != ""
	})
	for _, j := range jobsOf(failed, all) {
		g, known := c.inv.ByID(j.id)
		if c.scoped && !known {
			continue
		}
		f := jobFlag(j, cmp.Or(source, "GET /cluster/tasks"))
		switch {
		case known:
			f.Where = g.Title() + " on node " + g.Node
		case isNumber(j.id) && f.Level == Warning && c.wouldSee(j.id):
			f.Level, f.What = Info, f.What+"; there is no such guest any more"
		}
		if slices.Contains([]string{"vzdump", "replication", "qmrestore", "vzrestore"}, j.kind) {
			f.excess += 100 // a backup that failed goes before a console that did
		}
		if slices.Contains([]string{"vncproxy", "vncshell", "termproxy", "spiceproxy", "spiceshell"}, j.kind) {
			f.Level = Info // a console that was closed is no failure of the site
		}
		c.b.add(f)
	}
}

func isNumber(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

func (c *round) judgeStorages() {
	if !c.on("storages") {
		return
	}
	mine := map[string]bool{}
	if c.scoped {
		for _, a := range c.configs {
			for _, d := range disksOf(a.row()) {
				mine[d.storage] = true
			}
		}
	}
	storageFlags(c.b, shares(c.inv), func(s share) bool {
		return (!c.scoped || mine[s.name]) && (c.ask.Node == "" || slices.Contains(s.nodes, c.ask.Node))
	})
}

func (c *round) judgeReplication() {
	if !c.on("replication") {
		return
	}
	told := map[string]bool{}
	for _, name := range sortedNodes(c.node) {
		a := c.node[name].repl
		if !a.ok() {
			continue
		}
		for _, r := range a.rows {
			told[r["id"]] = true
		}
		replicationFlags(c.b, a, c.now, func(guest string) bool { _, ok := c.inv.ByID(guest); return ok || !c.scoped })
	}
	for _, r := range c.repl.rowsOr() {
		g, known := c.inv.ByID(r["guest"])
		if told[r["id"]] || r["disable"] == "1" || !known || g.NodeOff || c.ask.Node != "" && g.Node != c.ask.Node {
			continue
		}
		if n := c.node[g.Node]; n != nil && n.repl.ok() {
			c.b.add(Flag{Level: Warning, Check: "replication_idle", Where: "replication " + clean(r["id"], 30), What: fmt.Sprintf("the job is defined, and node %s does not list it", g.Node),
				Next: &Next{Operation: "call_operation", Arguments: map[string]string{"operation": "GET /nodes/" + g.Node + "/replication"}}, Evidence: []Evidence{{Figure: "jobs of that id on the node", Value: "0", Threshold: "1", Source: n.repl.source()}}})
		}
	}
}

func (c *round) judgeHA() {
	rows := c.ha.rowsOr()
	off := map[string]bool{}
	for _, n := range c.inv.Nodes {
		off[n.Name] = n.Status != "online"
	}
	services, master := 0, false
	var hidden []string // guests that HA manages, and that castellan's user would not be shown
	for _, r := range rows {
		switch r["type"] {
		case "master":
			master = true
		case "service":
			services++
		}
	}
	for _, r := range rows {
		text := cmp.Or(haWords(r["status"]), clean(r["type"], 20)+" as reported")
		f := Flag{Where: whereNode(clean(r["node"], 40)), Next: &Next{Operation: "call_operation", Arguments: map[string]string{"operation": "GET /cluster/ha/status/current"}},
			Evidence: []Evidence{{Figure: "status", Value: text, Source: c.ha.source()}}}
		switch r["type"] {
		case "service":
			sid := clean(r["sid"], 30)
			_, id, _ := strings.Cut(r["sid"], ":")
			_, known := c.inv.ByID(id)
			if c.scoped && !known || c.ask.Node != "" && r["node"] != c.ask.Node {
				continue
			}
			f.Where, f.Next = "HA resource "+sid, &Next{Operation: "guest_status", Arguments: map[string]string{"guest": id}}
			switch state := cmp.Or(r["crm_state"], r["state"]); {
			case state == "error":
				f.Level, f.Check, f.What = Critical, "ha_error", "HA has given it up (error): it is not restarted until the error is cleared"
			case state == "fence" || state == "recovery":
				f.Level, f.Check, f.What = Critical, "ha_fence", "its node is being fenced, or it is being recovered from one ("+state+")"
			case !known && isNumber(id) && !c.wouldSee(id):
				hidden = append(hidden, id)
			case !known && isNumber(id):
				f.Level, f.Check, f.What = Warning, "ha_orphan", "HA manages a guest that is not listed"
			case r["request_state"] == "started" && (state == "stopped" || state == "freeze"):
				f.Level, f.Check, f.What = Warning, "ha_mismatch", "HA is asked to have it started, and it is "+state
			}
		case "lrm":
			if c.scoped {
				continue
			}
			if strings.Contains(r["status"], "old timestamp") && !off[r["node"]] {
				f.Level, f.Check, f.What = Critical, "ha_lrm", "the node's local HA manager does not report any more"
			} else if strings.Contains(r["status"], "maintenance") {
				f.Level, f.Check, f.What = Info, "ha_maintenance", "the node is in maintenance mode: HA keeps guests away from it"
			}
		case "master":
			if strings.Contains(r["status"], "old timestamp") {
				f.Level, f.Check, f.What = Critical, "ha_master", "the HA manager does not report any more: nothing is restarted or recovered"
			}
		case "fencing":
			if s := r["armed-state"]; services > 0 && (s == "disarmed" || s == "disarming") {
				f.Level, f.Check, f.What = Warning, "ha_disarmed", "HA is disarmed: lost nodes are not fenced, their guests not recovered"
			}
		case "quorum":
			if r["quorate"] != "" && r["quorate"] != "1" {
				f.Level, f.Check, f.What = Critical, "no_quorum", "HA has no quorum"
			}
		}
		if f.Check != "" {
			c.b.add(f)
		}
	}
	if len(hidden) > 0 {
		c.un = append(c.un, Unread{Part: "whether guests that HA manages are still there", Where: some(hidden, 6), Why: "castellan's user would not be shown them", Missing: "VM.Audit on /vms", Hides: Warning})
	}
	if c.ha.ok() && services > 0 && !master && !c.scoped {
		c.b.add(Flag{Level: Critical, Check: "ha_master", Where: "HA", What: "HA manages guests, and no manager is active", Next: &Next{Operation: "cluster_overview"},
			Evidence: []Evidence{{Figure: "active managers", Value: "0", Threshold: "1", Source: c.ha.source()}}})
	}
}

// wouldSee says whether a guest that is not listed would be, if it were there.
func (c *round) wouldSee(id string) bool {
	g, ok := grantsOf(c.rights)
	return ok && g.has("/vms/"+id, "VM.Audit")
}

// haWords is the state in the manager's sentence ("pve1 (active, …)").
func haWords(status string) string {
	for _, w := range []string{"old timestamp", "maintenance", "active", "idle", "disarmed", "started", "stopped", "error", "fence", "recovery", "freeze", "queued", "migrate", "relocate", "OK"} {
		if strings.Contains(status, w) {
			return w
		}
	}
	return ""
}

// cephSeverity is how bad one of Ceph's checks is, and how much it counts.
func cephSeverity(check estate.Config) string {
	severity := check["severity"]
	if !nameForm.MatchString(severity) {
		return ""
	}
	if n, ok := num(sub(check, "summary"), "count"); ok && n > 0 {
		severity += ", " + plain(n)
	}
	return severity
}

func (c *round) judgeCeph() {
	if !c.ceph.ok() || c.ceph.row() == nil {
		return
	}
	row := c.ceph.row()
	health := sub(row, "health")
	state := health["status"]
	next := &Next{Operation: "call_operation", Arguments: map[string]string{"operation": "GET /cluster/ceph/status"}}
	if state != "" && state != "HEALTH_OK" {
		f := Flag{Level: Warning, Check: "ceph_health", Where: "Ceph", What: "Ceph is not healthy", Next: next, Evidence: []Evidence{{Figure: "health", Value: clean(state, 30), Threshold: "HEALTH_OK", Source: c.ceph.source()}}}
		if state == "HEALTH_ERR" {
			f.Level = Critical
		}
		checks := sub(health, "checks")
		names := make([]string, 0, len(checks))
		for k := range checks {
			if sub(checks, k)["muted"] != "true" {
				names = append(names, k)
			}
		}
		slices.Sort(names)
		for _, k := range names[:min(len(names), 6)] {
			one := sub(checks, k)
			f.Evidence = append(f.Evidence, Evidence{Figure: clean(k, 40), Value: cmp.Or(cephSeverity(one), "not told"), Threshold: "none", Source: c.ceph.source()})
		}
		c.b.add(f)
	}
	pg := sub(row, "pgmap")
	u, okU := num(pg, "bytes_used")
	t, okT := num(pg, "bytes_total")
	if f, yes := fill(Flag{Check: "ceph_full", Where: "Ceph", What: "Ceph is filling up; it stops writes when OSDs are full", Next: next}, u, t, poolFull, poolFullBad, "use", c.ceph.source()); okU && okT && yes {
		c.b.add(f)
	}
}

// judgeBackups: guests that no job covers, and sites without a job.
func (c *round) judgeBackups() {
	if !c.on("backups") || !c.uncovered.ok() || c.node == nil {
		return
	}
	var live, parked []string
	for _, r := range c.uncovered.rows {
		g, known := c.inv.ByID(r["vmid"])
		switch {
		case !known || g.Template || c.ask.Node != "" && g.Node != c.ask.Node:
		case g.Status == "running":
			live = append(live, g.ID)
		default:
			parked = append(parked, g.ID)
		}
	}
	enabled := 0
	for _, r := range c.jobs.rowsOr() {
		if r["enabled"] != "0" {
			enabled++
		}
	}
	next := &Next{Operation: "call_operation", Arguments: map[string]string{"operation": "GET /cluster/backup-info/not-backed-up"}}
	for _, x := range []struct {
		ids   []string
		level Level
		what  string
	}{{live, Warning, "running and in no backup job"}, {parked, Info, "stopped and in no backup job"}} {
		if len(x.ids) == 0 {
			continue
		}
		f := Flag{Level: x.level, Check: "not_backed_up", Where: plural(len(x.ids), "guest", "guests"), What: x.what + ": " + some(x.ids, 20), Next: next, excess: float64(len(x.ids)),
			Evidence: []Evidence{{Figure: "guests", Value: fmt.Sprint(len(x.ids)), Threshold: "0", Source: c.uncovered.source()}}}
		if c.jobs.ok() {
			f.Evidence = append(f.Evidence, Evidence{Figure: "backup jobs that are on", Value: fmt.Sprint(enabled), Source: c.jobs.source()})
		}
		c.b.add(f)
	}
}

// judgeGuests: locks that nobody holds, snapshots, guests that should run.
func (c *round) judgeGuests() {
	for _, g := range c.inv.Guests {
		n := c.node[g.Node]
		if c.on("locks") && g.Lock != "" && g.Lock != "suspended" && n != nil && n.active.ok() && holderOf(tasksOf(n.active.rows), g.ID, g.Lock) == nil {
			c.b.add(Flag{Level: Warning, Check: "lock_stuck", Where: g.Title() + " on node " + g.Node, What: "it is locked (" + clean(g.Lock, 30) + ") and no running task holds it: most actions on it fail", Next: &Next{Operation: "list_tasks", Arguments: map[string]string{"guest": g.ID}},
				Evidence: []Evidence{{Figure: "lock", Value: clean(g.Lock, 30), Threshold: "none", Source: "GET /cluster/resources"}, {Figure: "running tasks of the guest", Value: "0", Source: n.active.source()}}})
		}
		if a := c.configs[g.ID]; a.ok() && c.on("guests") && g.Status == "stopped" && a.row().On("onboot") && g.HA == "" {
			c.b.add(Flag{Level: Info, Check: "onboot_stopped", Where: g.Title() + " on node " + g.Node, What: "it starts with its node and is stopped", Next: &Next{Operation: "list_tasks", Arguments: map[string]string{"guest": g.ID}},
				Evidence: []Evidence{{Figure: "onboot", Value: clean(a.row()["onboot"], 10), Source: a.source()}, {Figure: "state", Value: "stopped", Source: "GET /cluster/resources"}}})
		}
		c.oldSnapshots(g)
	}
}

func (c *round) oldSnapshots(g estate.Guest) {
	a := c.snaps[g.ID]
	if !a.ok() {
		return
	}
	var oldest estate.Config
	n := 0
	for _, r := range a.rows {
		if t := whole(r, "snaptime"); r["name"] != "current" && t > 0 {
			n++
			if oldest == nil || t < whole(oldest, "snaptime") {
				oldest = r
			}
		}
	}
	next := &Next{Operation: "list_snapshots", Arguments: map[string]string{"guest": g.ID}}
	where := g.Title() + " on node " + g.Node
	if oldest != nil && age(c.now, whole(oldest, "snaptime")) >= oldSnapshot {
		f := snapshotFlag(where, oldest, c.now.Unix(), a.source(), next)
		f.Evidence = append(f.Evidence, Evidence{Figure: "snapshots", Value: fmt.Sprint(n), Source: a.source()})
		if g.Status != "running" { // of a guest that is parked it grows no more
			f.Level, f.What = Info, "snapshot "+clean(oldest["name"], 40)+" of the stopped guest is old"
		}
		c.b.add(f)
	}
}

// replicationFlags: jobs that fail, or that are late.
func replicationFlags(b *bag, a *ask, now interface{ Unix() int64 }, wanted func(guest string) bool) {
	if !a.ok() {
		return
	}
	for _, r := range a.rows {
		if !wanted(r["guest"]) || r["disable"] == "1" {
			continue
		}
		where := fmt.Sprintf("replication %s of guest %s to node %s", clean(r["id"], 30), clean(r["guest"], 12), clean(r["target"], 40))
		next := &Next{Operation: "call_operation", Arguments: map[string]string{"operation": fmt.Sprintf("GET /nodes/%s/replication/%s/log", a.node, clean(r["id"], 30))}}
		last := whole(r, "last_sync")
		if fails := whole(r, "fail_count"); fails > 0 || r["error"] != "" {
			f := Flag{Level: Warning, Check: "replication_failed", Where: where, What: fmt.Sprintf("replication fails, %s in a row", times(int(max(fails, 1)))), Since: stamp(last), Next: next, excess: float64(max(fails, 1)),
				Evidence: []Evidence{{Figure: "failures in a row", Value: strconv.FormatInt(fails, 10), Threshold: "from 1", Source: a.source()}}}
			if fails >= 3 {
				f.Level = Critical
			}
			if r["error"] != "" {
				f.Evidence = append(f.Evidence, Evidence{Figure: "error", Value: cmp.Or(said(r["error"]), "its own words are in its log"), Source: a.source()})
			}
			if last > 0 {
				f.Evidence = append(f.Evidence, Evidence{Figure: "last good run", Value: stamp(last), Source: a.source()})
			}
			b.add(f)
			continue
		}
		if due := whole(r, "next_sync"); due > 0 && r["pid"] == "" && now.Unix()-due > int64(replicationLate.Seconds()) {
			b.add(Flag{Level: Warning, Check: "replication_late", Where: where, What: "replication is overdue", Since: stamp(due), Next: next,
				Evidence: []Evidence{{Figure: "overdue for", Value: fmt.Sprintf("%d minutes", (now.Unix()-due)/60), Threshold: "from " + span(replicationLate), Source: a.source()}}})
		}
	}
}
