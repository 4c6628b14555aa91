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

// Report is what was found about one guest or node.
type Report struct {
	Verdict
	Answer  string     `json:"answer"` // one sentence
	Causes  []Flag     `json:"causes"` // what explains slowness or failure, ranked: surest first
	Flags   []Flag     `json:"flags"`  // what else is worth knowing, worst first
	Unread  []Unread   `json:"unread"` // what could not be read: each a flag of its own
	Figures []Evidence `json:"figures,omitempty"`
	Fine    []string   `json:"fine,omitempty"` // checks that were made and found nothing
	Unseen  []string   `json:"unseen,omitempty"`
	Reads   int        `json:"reads"`
}

// host is what was read of a node.
type host struct {
	node                                               estate.Node
	where                                              string
	status, hour, day, active, failed, recent, defined *ask
	zfs, thin, services, network                       *ask
	rights                                             *ask
}

func whereNode(name string) string { return "node " + name }

func onNode(part, node, operation string, hides Level, params map[string]string) *ask {
	p := map[string]string{"node": node}
	for k, v := range params {
		p[k] = v
	}
	return &ask{part: part, where: whereNode(node), node: node, hides: hides, read: gate.Read{Operation: operation, Params: p}}
}

func (h *host) asks() []*ask {
	return []*ask{h.status, h.hour, h.day, h.active, h.failed, h.recent, h.defined, h.zfs, h.thin, h.services, h.network, h.rights}
}

// lookAtHost prepares the reads of a node. whole adds what only the node's own diagnosis needs.
func lookAtHost(inv *estate.Inventory, n estate.Node, now time.Time, whole bool) *host {
	h := &host{node: n, where: whereNode(n.Name)}
	h.status = onNode("state of the node", n.Name, "GET /nodes/{node}/status", Critical, nil)
	h.hour = onNode("load history of the node", n.Name, "GET /nodes/{node}/rrddata", Critical, map[string]string{"timeframe": "hour", "cf": "AVERAGE"})
	h.active = onNode("running tasks of the node", n.Name, "GET /nodes/{node}/tasks", Warning, map[string]string{"source": "active", "limit": "500"})
	h.failed = onNode("failed tasks of the node", n.Name, "GET /nodes/{node}/tasks", Warning, map[string]string{"errors": "1", "limit": "200", "since": fmt.Sprint(now.Add(-lastDay).Unix())})
	h.rights = &ask{part: "castellan's own rights", hides: Critical, read: gate.Read{Operation: "GET /access/permissions"}}
	h.network = onNode("network of the node", n.Name, "GET /nodes/{node}/network", Critical, nil)
	if whole {
		h.day = onNode("load history of the node, last day", n.Name, "GET /nodes/{node}/rrddata", Info, map[string]string{"timeframe": "day", "cf": "AVERAGE"})
		h.recent = onNode("recent tasks of the node", n.Name, "GET /nodes/{node}/tasks", Warning, map[string]string{"limit": "500", "since": fmt.Sprint(now.Add(-lastDay).Unix())})
		h.services = onNode("services of the node", n.Name, "GET /nodes/{node}/services", Critical, nil)
		h.zfs = onNode("ZFS pools of the node", n.Name, "GET /nodes/{node}/disks/zfs", Critical, nil)
		h.zfs.none = noTool
		if hasStorage(inv, n.Name, "lvmthin") {
			h.thin = onNode("thin pools of the node", n.Name, "GET /nodes/{node}/disks/lvmthin", Critical, nil)
		}
	}
	return h
}

// noTool says that a node answers that it has no ZFS.
func noTool(err error) bool {
	t := err.Error()
	return strings.Contains(t, "binary not installed") || strings.Contains(t, "no such file or directory") && strings.Contains(t, "zpool")
}

func hasStorage(inv *estate.Inventory, node string, types ...string) bool {
	return slices.ContainsFunc(inv.Storages, func(s estate.Storage) bool { return s.Node == node && slices.Contains(types, s.Type) })
}

// load judges processors, memory, swap, disks' waiting and pressure of a node.
func (h *host) load(b *bag, next *Next) {
	st := h.status.row()
	hour := h.hour.series()
	var day series
	if h.day != nil {
		day = h.day.series()
	}
	src, hist, days := h.status.source(), h.hour.source(), h.days()
	one := func(check, what, figureName string, now float64, known bool, warn, bad float64, f func(point) (float64, bool), write func(float64) string, measured bool, hint string) {
		b.gauge(gauge{check: check, where: h.where, what: what, figure: figureName, now: now, known: known, warn: warn, bad: bad, hour: hour.over(warn, f), day: day.over(warn, f),
			write: write, measured: measured, source: src, history: hist, days: days, next: next, hint: hint})
	}
	cpu, known := num(st, "cpu")
	one("node_cpu", "the node's processors are busy", "processor use", cpu, known, nodeCPU, nodeCPUFull, figure("cpu"), pct, false, "")
	wait, known := num(st, "wait")
	one("node_io_wait", "the node's processors wait for disks", "waiting for disks", wait, known, waitIO, waitIOBad, figure("iowait"), pct, true, "")
	cpus, _ := num(sub(st, "cpuinfo"), "cpus")
	if cpus == 0 {
		cpus = float64(h.node.CPUs)
	}
	if cpus > 0 {
		var averages []string
		loadNow, loadKnown := 0.0, false
		if averages = listOf(st["loadavg"]); len(averages) > 0 {
			loadNow, loadKnown = number(averages[0])
		}
		per := func(p point) (float64, bool) { l, ok := p.figures["loadavg"]; return l / cpus, ok }
		one("node_load", "more work is ready than the node has processors", "load per processor", loadNow/cpus, loadKnown, loadPerCPU, loadPerCPUBad, per, short, false,
			fmt.Sprintf("%s processors", plain(cpus)))
	}
	mem := sub(st, "memory")
	used, total, known := used(mem)
	if known {
		one("node_memory", "the node's memory is nearly used up", "memory use", used/total, true, nodeMemory, nodeMemoryBad, memoryOf(hour), pct, false, h.ksm(st))
	} else {
		one("node_memory", "the node's memory is nearly used up", "memory use", 0, false, nodeMemory, nodeMemoryBad, memoryOf(hour), pct, false, "")
	}
	su, so, known := usedOf(sub(st, "swap"))
	if known || hour.has("swaptotal") {
		share := 0.0
		if so > 0 {
			share = su / so
		}
		one("node_swap", "the node has swapped memory out", "swap use", share, known && so > 0, swapUsed, swapUsedBad, ratio("swapused", "swaptotal"), pct, false, "")
	}
	h.pressure(b, hour, day, next)
}

func (h *host) days() string {
	if h.day == nil {
		return ""
	}
	return h.day.source()
}

// memoryOf prefers what counts as available over used: a cache that can be given up is no shortage.
func memoryOf(s series) func(point) (float64, bool) {
	if s.has("memavailable") {
		return func(p point) (float64, bool) {
			a, okA := p.figures["memavailable"]
			t, okT := p.figures["memtotal"]
			if !okA || !okT || t <= 0 {
				return 0, false
			}
			return 1 - a/t, true
		}
	}
	return ratio("memused", "memtotal")
}

func used(mem estate.Config) (part, whole float64, known bool) {
	if a, ok := num(mem, "available"); ok {
		if t, ok := num(mem, "total"); ok && t > 0 {
			return t - a, t, true
		}
	}
	return usedOf(mem)
}

func usedOf(c estate.Config) (part, whole float64, known bool) {
	u, okU := num(c, "used")
	t, okT := num(c, "total")
	return u, t, okU && okT && t > 0
}

func (h *host) ksm(st estate.Config) string {
	if shared, ok := num(sub(st, "ksm"), "shared"); ok && shared > 0 {
		return "KSM shares " + size(shared)
	}
	return ""
}

// pressure is how long tasks waited, as PVE 9 and later measure it; PVE 8 keeps no such history.
func (h *host) pressure(b *bag, hour, day series, next *Next) {
	for _, p := range []struct {
		key, check, what string
		warn, bad        float64
	}{
		{"pressurecpusome", "node_cpu_pressure", "work on the node waits for processors", pressureSome * 2, pressureSomeBad * 1.5},
		{"pressureiosome", "node_io_pressure", "work on the node waits for disks", pressureSome * 2, pressureSomeBad},
		{"pressureiofull", "node_io_stall", "all work on the node stands still for disks at times", pressureFull * 2, pressureFullBad},
		{"pressurememorysome", "node_memory_pressure", "work on the node waits for memory", pressureMem, pressureMemBad},
		{"pressurememoryfull", "node_memory_stall", "all work on the node stands still for memory at times", pressureMem, pressureMemBad},
	} {
		if !hour.has(p.key) {
			continue
		}
		s := hour.over(p.warn, figure(p.key))
		b.gauge(gauge{check: p.check, where: h.where, what: p.what, figure: p.key, now: s.last, known: s.n > 0, warn: p.warn, bad: p.bad, hour: s, day: day.over(p.warn, figure(p.key)),
			write: points, measured: true, source: h.hour.source(), history: h.hour.source(), days: h.days(), next: next})
	}
}

// promised compares what running guests were promised with what the node has.
func (h *host) promised(b *bag, inv *estate.Inventory, scoped bool) {
	if !h.node.Figures || h.node.MaxMem <= 0 {
		return
	}
	mem, cpus, n := 0.0, 0.0, 0
	for _, g := range inv.Guests {
		if g.Node == h.node.Name && g.Status == "running" {
			mem, cpus, n = mem+float64(g.MaxMem), cpus+float64(g.CPUs), n+1
		}
	}
	note := ""
	if scoped {
		note = " (guests outside of this caller's scope are not counted)"
	}
	next := &Next{Operation: "list_guests", Arguments: map[string]string{"node": h.node.Name, "status": "running"}}
	used := float64(h.node.Mem) / float64(h.node.MaxMem)
	if share := mem / float64(h.node.MaxMem); share >= overcommit {
		f := Flag{Level: Info, Check: "memory_overcommit", Where: h.where, Next: next, excess: share / overcommit,
			What: fmt.Sprintf("%s were promised more memory than the node has%s", plural(n, "running guest", "running guests"), note),
			Evidence: []Evidence{{Figure: "memory promised per memory there is", Value: short(share) + " (" + size(mem) + " of " + size(float64(h.node.MaxMem)) + ")", Threshold: "from " + short(overcommit), Source: "GET /cluster/resources"},
				{Figure: "memory use", Value: pct(used), Threshold: "from " + pct(nodeMemory) + " it counts as a cause", Source: "GET /cluster/resources"}}}
		if used >= nodeMemory {
			f.Level, f.Confidence = Warning, Possible
		}
		b.add(f)
	}
	if h.node.CPUs > 0 && cpus/float64(h.node.CPUs) >= processorsOver {
		b.add(Flag{Level: Info, Check: "cpu_overcommit", Where: h.where, Next: next, excess: cpus / float64(h.node.CPUs) / processorsOver,
			What:     fmt.Sprintf("%s were promised many more processors than the node has%s", plural(n, "running guest", "running guests"), note),
			Evidence: []Evidence{{Figure: "processors promised per processor", Value: short(cpus / float64(h.node.CPUs)), Threshold: "from " + short(processorsOver), Source: "GET /cluster/resources"}}})
	}
}

// busyTasks are tasks that load the node now.
func (h *host) busyTasks(b *bag, except string, visible func(task) bool) {
	for _, t := range tasksOf(h.active.rows) {
		if !t.running || !t.heavy() || except != "" && t.id == except {
			continue
		}
		what, of := fmt.Sprintf("a %s runs on the node", t.title()), clean(t.id, 40)
		if of != "" && visible(t) {
			what = fmt.Sprintf("a %s of %s runs on the node", t.title(), of)
		}
		b.add(Flag{Level: Info, Check: "task_running", Where: h.where, What: what, Confidence: Possible, Since: stamp(t.start), Next: t.next(),
			Evidence: []Evidence{{Figure: "task", Value: clean(t.upid, 120), Source: h.active.source()}}})
		if len(b.flags) > 200 {
			return
		}
	}
}

func (h *host) rootDisk(b *bag) {
	u, t, ok := usedOf(sub(h.status.row(), "rootfs"))
	if !ok {
		u, t = float64(h.node.Disk), float64(h.node.MaxDisk)
	}
	if f, yes := fill(Flag{Check: "root_disk", Where: h.where, What: "the node's own disk is nearly full: services and backups fail when it is"}, u, t, diskFull, diskFullBad, "root disk", h.status.source()); yes {
		f.Next = &Next{Operation: "node_status", Arguments: map[string]string{"node": h.node.Name}}
		b.add(f)
	}
}

func listOf(text string) []string {
	text = strings.Trim(text, "[] ")
	var out []string
	for _, part := range strings.Split(text, ",") {
		if p := strings.Trim(strings.TrimSpace(part), `"`); p != "" {
			out = append(out, p)
		}
	}
	return out
}

// Node diagnoses a node.
func Node(ctx context.Context, v gate.View, inv *estate.Inventory, n estate.Node) Report {
	r := newReader(v, inv.Target.Name)
	r.reads++ // the listing
	if n.Status != "online" {
		return offline(n, r.reads)
	}
	h := lookAtHost(inv, n, v.Now(), true)
	r.all(ctx, h.asks()...)
	causes, flags := &bag{}, &bag{}
	un := unread(h.asks()...)
	un = append(un, h.history()...)
	un = append(un, h.cut()...)
	h.load(causes, &Next{Operation: "list_guests", Arguments: map[string]string{"node": n.Name, "status": "running"}})
	promised := &bag{}
	h.promised(promised, inv, v.Scoped())
	for _, f := range promised.flags {
		if f.Confidence != "" {
			causes.add(f)
		} else {
			flags.add(f)
		}
	}
	mine := map[string]bool{}
	for _, g := range inv.Guests {
		mine[g.ID] = true
	}
	visible := func(t task) bool { return !v.Scoped() || mine[t.id] }
	h.busyTasks(causes, "", visible)
	busyGuests(causes, inv, n, "", v.Scoped())
	h.rootDisk(flags)
	h.failures(flags, v.Scoped(), mine)
	failedServices(flags, h.services, n.Name)
	thinPools(flags, h.thin, n.Name)
	zfsPools(flags, h.zfs, n.Name)
	nodeStorages(flags, inv, n.Name)
	downInterfaces(flags, h.network, n.Name)
	if up := time.Duration(n.Uptime) * time.Second; n.Uptime > 0 && up < freshStart {
		flags.add(Flag{Level: Info, Check: "restarted", Where: h.where, What: "the node started " + span(up) + " ago", Since: stamp(v.Now().Add(-up).Unix()),
			Evidence: []Evidence{{Figure: "uptime", Value: span(up), Threshold: "below " + span(freshStart), Source: "GET /cluster/resources"}}})
	}
	rep := Report{Causes: causes.flags, Flags: flags.flags, Unread: un, Figures: h.figures(), Reads: r.reads,
		Unseen: []string{"steal time, disk latency and SMART values are not in this API, or reading them wakes disks"}}
	rep.within(ctx, &interior{v: v, target: inv.Target.Name, run: "RUN /nodes/{node}/probe", params: map[string]any{"node": n.Name}, where: h.where, kind: "node",
		next: Next{Operation: "probe_node", Arguments: map[string]string{"node": n.Name}}})
	rep.close("node "+n.Name, v.Scoped())
	return rep
}

// within adds what probes find where the lane and the way there are open.
func (rep *Report) within(ctx context.Context, in *interior) {
	causes, flags := &bag{rep.Causes}, &bag{rep.Flags}
	figures, closed := in.look(ctx, causes, flags)
	rep.Causes, rep.Flags = causes.flags, flags.flags
	rep.Figures = append(rep.Figures, figures...)
	rep.Unread = append(rep.Unread, in.unread...)
	if closed != "" {
		rep.Unseen = append(rep.Unseen, closed)
		return
	}
	rep.Reads += in.asked
}

func offline(n estate.Node, reads int) Report {
	rep := Report{Reads: reads}
	rep.Causes = []Flag{{Level: Critical, Check: "node_offline", Where: whereNode(n.Name), What: "the node is " + n.Status + ": it does not answer the cluster", Confidence: Certain,
		Evidence: []Evidence{{Figure: "state", Value: n.Status, Threshold: "online", Source: "GET /cluster/resources"}}, Next: &Next{Operation: "cluster_overview"}}}
	rep.Unread = []Unread{{Part: "everything on the node", Where: whereNode(n.Name), Why: "the node is " + n.Status, Hides: Critical}}
	rep.close("node "+n.Name, false)
	return rep
}

// history reports a load history without figures.
func (h *host) history() []Unread {
	if h.hour == nil || !h.hour.ok() {
		return nil
	}
	if len(h.hour.series().points) == 0 {
		return []Unread{{Part: "load history of the node", Where: h.where, Why: "the history of the last hour holds no figures", Hides: Critical}}
	}
	return nil
}

// cut reports lists that are short because castellan may not see all.
func (h *host) cut() []Unread {
	g, ok := grantsOf(h.rights)
	if !ok {
		return nil // reported as unread itself
	}
	var out []Unread
	if h.active.ok() || h.failed.ok() {
		out = append(out, g.whole("tasks of others", h.where, Warning, "/nodes/"+h.node.Name, "Sys.Audit")...)
	}
	out = append(out, g.whole("guests", "", Warning, "/vms", "VM.Audit")...)
	return append(out, g.whole("storages", "", Critical, "/storage", "Datastore.Audit", "Datastore.AllocateSpace")...)
}

func (h *host) failures(b *bag, scoped bool, mine map[string]bool) {
	failed := tasksOf(h.failed.rows)
	var all []task
	if h.recent != nil {
		all = tasksOf(h.recent.rows)
	}
	for _, j := range jobsOf(failed, all) {
		if scoped && !mine[j.id] {
			continue
		}
		b.add(jobFlag(j, h.failed.source()))
	}
}

// jobFlag tells the last state of a job, not each run.
func jobFlag(j job, source string) Flag {
	of := ""
	if j.id != "" {
		of = " of " + clean(j.id, 40)
	}
	f := Flag{Level: Warning, Check: "task_failed", Where: whereNode(j.node), Since: stamp(j.first), Next: j.next(), excess: float64(j.failures),
		What:     fmt.Sprintf("%s%s failed %s", j.title(), of, times(j.failures)),
		Evidence: []Evidence{{Figure: "last failure, " + stamp(j.start), Value: cmp.Or(said(j.exit), "its own words are with task_status"), Source: source}}}
	if j.state() == "unknown" {
		f.What = fmt.Sprintf("%s%s ended without a result %s: its worker died or the node stopped", j.title(), of, times(j.failures))
		f.Evidence[0].Value = "no exit status"
	}
	switch {
	case j.newer != nil:
		f.Level, f.What = Info, f.What+", and went well later"
		f.Evidence = append(f.Evidence, Evidence{Figure: "later run", Value: "OK at " + stamp(j.newer.start), Source: source})
	case j.stillGoing:
		f.What += "; another run is under way"
	}
	return f
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// figures are the plain numbers beside the flags.
func (h *host) figures() []Evidence {
	st := h.status.row()
	var out []Evidence
	add := func(name, value string) {
		out = append(out, Evidence{Figure: name, Value: value, Source: h.status.source()})
	}
	if f, ok := num(st, "cpu"); ok {
		add("processor use now", pct(f))
	}
	if f, ok := num(st, "wait"); ok {
		add("waiting for disks now", pct(f))
	}
	if l := listOf(st["loadavg"]); len(l) > 0 {
		add("load average (1, 5, 15 minutes)", clean(strings.Join(l, ", "), 40))
	}
	if u, t, ok := used(sub(st, "memory")); ok {
		add("memory used", size(u)+" of "+size(t)+" ("+pct(u/t)+")")
	}
	if u, t, ok := usedOf(sub(st, "swap")); ok {
		add("swap used", size(u)+" of "+size(t)+" ("+pct(u/t)+")")
	}
	if f, ok := num(sub(st, "ksm"), "shared"); ok && f > 0 {
		add("memory shared by KSM", size(f))
	}
	hour := h.hour.series()
	for _, k := range []string{"pressurecpusome", "pressureiosome", "pressureiofull", "pressurememorysome"} {
		if s := hour.over(0, figure(k)); s.n > 0 {
			out = append(out, Evidence{Figure: k + ", last hour, mean and highest", Value: points(s.mean) + ", " + points(s.max), Source: h.hour.source()})
		}
	}
	return out
}
