package health

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

// Checks are the groups of checks of a round over a site, by name.
func Checks() []string {
	return []string{"backups", "ceph", "certificates", "guests", "ha", "locks", "nodes", "pools", "replication", "services", "snapshots", "storages", "tasks", "time", "updates", "versions"}
}

// Bounds of one round over a site.
const (
	guestsARound = 150 // whose snapshots, or settings where they are stopped, are looked at in one round
	nodesForApt  = 20  // up to so many nodes are asked for packages without being told to
	shownPer     = 8   // lines of one check
	shownAll     = 70
)

// SiteAsk says what a round looks at.
type SiteAsk struct {
	Checks []string // empty = all
	Node   string   // only this node and what is on it
	From   string   // guest id from which on snapshots are looked at; empty = the page of the day
	// Backups adds what is known of the ages of backups; nil = only what the site says of jobs. It runs beside the other
	// reads and is left behind when it takes longer than they may.
	Backups func(ctx context.Context) ([]Flag, []Unread)
}

// SiteReport is the answer of a round.
type SiteReport struct {
	Verdict
	Answer   string         `json:"answer"`
	Findings []Flag         `json:"findings"` // worst first
	Unread   []Unread       `json:"unread"`   // what could not be read: each a flag of its own
	Counts   map[string]int `json:"counts"`   // findings by level, shown or not
	More     string         `json:"more,omitempty"`
	Nodes    int            `json:"nodes"`
	Guests   int            `json:"guests"`
	LookedAt []string       `json:"looked_at"` // groups of checks
	Reads    int            `json:"reads"`
}

// round is one round over a site.
type round struct {
	ask    SiteAsk
	v      gate.View
	inv    *estate.Inventory
	r      *reader
	now    time.Time
	scoped bool
	b      *bag
	un     []Unread
	asks   []*ask // all reads so far, for what could not be read

	rights, status, tasks, ha, repl, jobs, uncovered, ceph *ask
	node                                                   map[string]*nodeAsks
	configs                                                map[string]*ask // by guest id
	snaps                                                  map[string]*ask
	page                                                   string // which guests were looked at, where not all
}

// nodeAsks are the reads of one node.
type nodeAsks struct {
	name                                                                               string
	failed, active, zfs, thin, repl, services, time, certs, status, updates, installed *ask
	later                                                                              []*ask // runs after a failure
}

func (n *nodeAsks) all() []*ask {
	return append([]*ask{n.failed, n.active, n.zfs, n.thin, n.repl, n.services, n.time, n.certs, n.status, n.updates, n.installed}, n.later...)
}

// Site makes a round over a site: a few reads for the whole, some for each node, and some for a bounded number of guests.
func Site(ctx context.Context, v gate.View, inv *estate.Inventory, a SiteAsk) SiteReport {
	c := &round{ask: a, v: v, inv: inv, r: newReader(v, inv.Target.Name), now: v.Now(), scoped: v.Scoped(), b: &bag{},
		node: map[string]*nodeAsks{}, configs: map[string]*ask{}, snaps: map[string]*ask{}}
	c.r.reads++ // the listing
	late := c.backups(ctx)
	c.prepare()
	c.read(ctx, c.rights, c.status, c.tasks, c.ha, c.repl, c.jobs, c.uncovered, c.ceph)
	var each []*ask
	for _, n := range c.nodes() {
		each = append(each, c.lookAt(n).all()...)
	}
	for _, g := range c.guests() {
		each = append(each, c.configs[g.ID], c.snaps[g.ID])
	}
	c.read(ctx, each...)
	c.read(ctx, c.later()...)
	c.judge()
	late()
	return c.report()
}

// backups starts to look at the ages of backups; what it returns waits for that.
func (c *round) backups(ctx context.Context) (wait func()) {
	if c.ask.Backups == nil || !c.on("backups") {
		return func() {}
	}
	type found struct {
		flags  []Flag
		unread []Unread
	}
	ctx, stop := context.WithTimeout(ctx, perRound)
	done := make(chan found, 1)
	go func() {
		flags, un := c.ask.Backups(ctx)
		done <- found{flags, un}
	}()
	return func() {
		defer stop()
		select {
		case f := <-done:
			c.b.flags, c.un = append(c.b.flags, f.flags...), append(c.un, f.unread...)
		case <-ctx.Done():
			c.un = append(c.un, Unread{Part: "ages of backups", Why: fmt.Sprintf("no answer within %s", perRound), Hides: Warning})
		}
	}
}

func (c *round) read(ctx context.Context, asks ...*ask) {
	asks = slices.DeleteFunc(asks, func(a *ask) bool { return a == nil })
	c.asks = append(c.asks, asks...)
	c.r.all(ctx, asks...)
}

// on says whether a group of checks is wanted.
func (c *round) on(names ...string) bool {
	return len(c.ask.Checks) == 0 || slices.ContainsFunc(names, func(n string) bool { return slices.Contains(c.ask.Checks, n) })
}

func siteAsk(part string, hides Level, operation string) *ask {
	return &ask{part: part, hides: hides, read: gate.Read{Operation: operation}}
}

// prepare makes the reads of the whole site.
func (c *round) prepare() {
	c.rights = siteAsk("castellan's own rights", Critical, "GET /access/permissions")
	if c.on("nodes") {
		c.status = siteAsk("quorum", Critical, "GET /cluster/status")
	}
	if c.on("tasks") {
		c.tasks = siteAsk("recent tasks of the site", Warning, "GET /cluster/tasks")
	}
	if c.on("ha") {
		c.ha = siteAsk("HA state", Critical, "GET /cluster/ha/status/current")
	}
	if c.on("replication") {
		c.repl = siteAsk("replication jobs", Critical, "GET /cluster/replication")
	}
	if c.on("backups") {
		c.jobs = siteAsk("backup jobs", Warning, "GET /cluster/backup")
		c.uncovered = siteAsk("guests in no backup job", Warning, "GET /cluster/backup-info/not-backed-up")
	}
	if c.on("ceph") && (!c.scoped || slices.ContainsFunc(c.inv.Storages, func(s estate.Storage) bool { return s.Type == "rbd" || s.Type == "cephfs" })) {
		c.ceph = siteAsk("Ceph", Critical, "GET /cluster/ceph/status")
		c.ceph.none = noCeph
	}
}

// noCeph says that the site answers that it has no Ceph.
func noCeph(err error) bool {
	t := err.Error()
	return strings.Contains(t, "binary not installed") || strings.Contains(t, "not initialized") || strings.Contains(t, "not fully configured")
}

// nodes are those to look at: online, and for a scoped caller those that its guests are on.
func (c *round) nodes() []estate.Node {
	home := map[string]bool{}
	for _, g := range c.inv.Guests {
		home[g.Node] = true
	}
	var out []estate.Node
	for _, n := range c.inv.Nodes {
		if n.Status == "online" && (c.ask.Node == "" || n.Name == c.ask.Node) && (!c.scoped || home[n.Name]) {
			out = append(out, n)
		}
	}
	return out
}

// lookAt makes the reads of one node: only those that something there calls for.
func (c *round) lookAt(n estate.Node) *nodeAsks {
	x := &nodeAsks{name: n.Name}
	c.node[n.Name] = x
	get := func(part, operation string, hides Level, params map[string]string) *ask {
		return onNode(part, n.Name, operation, hides, params)
	}
	if c.on("tasks") {
		x.failed = get("failed tasks of the node", "GET /nodes/{node}/tasks", Warning, map[string]string{"errors": "1", "limit": "500", "since": fmt.Sprint(c.now.Add(-lastDay).Unix())})
	}
	locked := func(g estate.Guest) bool { return g.Node == n.Name && g.Lock != "" && g.Lock != "suspended" }
	if c.on("locks") && slices.ContainsFunc(c.inv.Guests, locked) {
		x.active = get("running tasks of the node", "GET /nodes/{node}/tasks", Warning, map[string]string{"source": "active", "limit": "500"})
	}
	replicates := func(r estate.Config) bool { g, ok := c.inv.ByID(r["guest"]); return ok && g.Node == n.Name }
	if c.on("replication") && (!c.repl.ok() || slices.ContainsFunc(c.repl.rows, replicates)) {
		x.repl = get("replication state of the node", "GET /nodes/{node}/replication", Critical, nil)
	}
	if c.on("pools") {
		if !c.scoped || hasStorage(c.inv, n.Name, "zfspool") {
			x.zfs = get("ZFS pools of the node", "GET /nodes/{node}/disks/zfs", Critical, nil)
			x.zfs.none = noTool
		}
		if hasStorage(c.inv, n.Name, "lvmthin") {
			x.thin = get("thin pools of the node", "GET /nodes/{node}/disks/lvmthin", Critical, nil)
		}
	}
	if c.on("nodes", "versions", "updates") {
		x.status = get("state of the node", "GET /nodes/{node}/status", Critical, nil)
	}
	if c.scoped { // what its guests do not rest on is not this caller's to see
		return x
	}
	if c.on("services") {
		x.services = get("services of the node", "GET /nodes/{node}/services", Critical, nil)
	}
	if c.on("time") {
		x.time = get("clock of the node", "GET /nodes/{node}/time", Critical, nil)
	}
	if c.on("certificates") {
		x.certs = get("certificates of the node", "GET /nodes/{node}/certificates/info", Critical, nil)
	}
	if c.on("updates") && (len(c.ask.Checks) > 0 || c.ask.Node != "" || len(c.inv.Online()) <= nodesForApt) {
		x.installed = get("installed packages of the node", "GET /nodes/{node}/apt/versions", Info, nil)
		if g, ok := grantsOf(c.rights); !ok || g.has("/nodes/"+n.Name, "Sys.Modify") {
			x.updates = get("pending updates of the node", "GET /nodes/{node}/apt/update", Info, nil)
		} else {
			c.un = append(c.un, Unread{Part: "pending updates of the node", Where: whereNode(n.Name), Why: "castellan's user lacks a privilege", Missing: "Sys.Modify on /nodes/" + n.Name, Hides: Info})
		}
	}
	return x
}

// guests are those whose snapshots are looked at, and whose settings where they are stopped: all of a small site, one page
// of a large one. There is no call that reads them all.
func (c *round) guests() []estate.Guest {
	if !c.on("snapshots", "guests", "storages") {
		return nil
	}
	var all []estate.Guest
	for _, g := range c.inv.Guests {
		if !g.NodeOff && !g.Template && (c.ask.Node == "" || g.Node == c.ask.Node) && g.Status != "unknown" {
			all = append(all, g)
		}
	}
	from := 0
	if len(all) > guestsARound {
		pages := (len(all) + guestsARound - 1) / guestsARound
		from = int(c.now.Unix()/86400) % pages * guestsARound
		if c.ask.From != "" {
			from = len(all)
			if i := slices.IndexFunc(all, func(g estate.Guest) bool { return g.ID == c.ask.From }); i >= 0 {
				from = i
			}
		}
	}
	some := all[from:min(len(all), from+guestsARound)]
	if rest := len(all) - len(some); rest > 0 {
		c.page = "none"
		if len(some) > 0 {
			c.page = some[0].ID + " to " + some[len(some)-1].ID
		}
		c.un = append(c.un, Unread{Part: "snapshots, and settings of stopped guests", Hides: Warning,
			Why: fmt.Sprintf("each takes a read of its own: this round looked at %d of %d guests (%s); give snapshots_from for others", len(some), len(all), c.page)})
	}
	for _, g := range some {
		if c.on("snapshots") {
			c.snaps[g.ID] = onGuest("snapshots", g, "/snapshot", Warning, nil)
		}
		if c.on("guests") && g.Status == "stopped" || c.scoped && c.on("storages", "pools") {
			c.configs[g.ID] = onGuest("settings", g, "/config", Info, map[string]string{"current": "1"})
		}
	}
	return some
}

// later looks for runs after the failures that went well: the last state of a job counts, not each run.
func (c *round) later() []*ask {
	var out []*ask
	for _, name := range sortedNodes(c.node) {
		n := c.node[name]
		if n.failed == nil {
			continue
		}
		first := map[string]int64{}
		for _, t := range tasksOf(n.failed.rows) {
			if t.bad() && (first[t.kind] == 0 || t.start < first[t.kind]) {
				first[t.kind] = t.start
			}
		}
		kinds := make([]string, 0, len(first))
		for k := range first {
			kinds = append(kinds, k)
		}
		slices.Sort(kinds)
		for _, k := range kinds[:min(len(kinds), 4)] {
			a := onNode("later runs of failed tasks", name, "GET /nodes/{node}/tasks", Info, map[string]string{"typefilter": k, "limit": "500", "since": fmt.Sprint(first[k])})
			n.later = append(n.later, a)
			if out = append(out, a); len(out) == 40 {
				return out
			}
		}
	}
	return out
}

func sortedNodes(m map[string]*nodeAsks) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// report ranks and bounds what was found.
func (c *round) report() SiteReport {
	rep := SiteReport{Findings: c.b.flags, Counts: map[string]int{}, Nodes: len(c.inv.Nodes), Guests: len(c.inv.Guests), LookedAt: c.ask.Checks, Reads: c.r.reads}
	if len(rep.LookedAt) == 0 {
		rep.LookedAt = Checks()
	}
	rank(rep.Findings)
	rep.Unread = merge(append(c.un, unread(c.asks...)...))
	rep.Verdict = Judge(rep.Findings, rep.Unread)
	for _, f := range rep.Findings {
		rep.Counts[string(f.Level)]++
	}
	total := len(rep.Findings)
	per, most := shownPer, shownAll
	if len(c.ask.Checks) == 1 {
		per = most
	}
	shown, left := map[string]int{}, map[string]int{}
	rep.Findings = slices.DeleteFunc(rep.Findings, func(f Flag) bool {
		if shown[f.Check] >= per || len(shown) > 0 && sumOf(shown) >= most {
			left[f.Check]++
			return true
		}
		shown[f.Check]++
		return false
	})
	if n := sumOf(left); n > 0 {
		var kinds []string
		for k, n := range left {
			kinds = append(kinds, fmt.Sprintf("%s %d", k, n))
		}
		slices.Sort(kinds)
		rep.More = fmt.Sprintf("%d more lines are not shown (%s): ask for one group with checks, or for one node", n, strings.Join(kinds, ", "))
	}
	rep.Answer = c.answer(rep, total)
	if rep.Findings == nil {
		rep.Findings = []Flag{}
	}
	if rep.Unread == nil {
		rep.Unread = []Unread{}
	}
	return rep
}

func sumOf(m map[string]int) (n int) {
	for _, v := range m {
		n += v
	}
	return n
}

func (c *round) answer(rep SiteReport, total int) string {
	var b strings.Builder
	if total == 0 {
		b.WriteString("Nothing was found that needs a look")
	} else {
		fmt.Fprintf(&b, "%d critical, %d warning, %d info; first: %s (%s)", rep.Counts[string(Critical)], rep.Counts[string(Warning)], rep.Counts[string(Info)], rep.Findings[0].What, rep.Findings[0].Where)
	}
	b.WriteString(".")
	if n := len(rep.Unread); n > 0 {
		fmt.Fprintf(&b, " %s could not be read or looked at", plural(n, "part", "parts"))
		if rep.CouldBe != "" {
			fmt.Fprintf(&b, ": something %s may hide there", cmp.Or(string(rep.CouldBe), "bad"))
		}
		b.WriteString(".")
	}
	if c.scoped {
		b.WriteString(" Only this caller's guests and what they rest on were looked at.")
	}
	return b.String()
}
