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

// patient is what was read of a guest, and what it rests on.
type patient struct {
	g     estate.Guest
	where string
	now   time.Time
	inv   *estate.Inventory
	host  *host

	config, status, pending, snaps, hour, day, tasks   *ask
	disks, firewall, cluster, agent, ha, repl, storage *ask
	near                                               []neighbour
}

func onGuest(part string, g estate.Guest, suffix string, hides Level, params map[string]string) *ask {
	p := map[string]string{"node": g.Node, "vmid": g.ID}
	for k, v := range params {
		p[k] = v
	}
	return &ask{part: part, where: strings.ToUpper(g.Kind) + " " + g.ID, node: g.Node, hides: hides,
		read: gate.Read{Operation: "GET /nodes/{node}/" + g.Path() + "/{vmid}" + suffix, Params: p}}
}

// Guest diagnoses a guest.
func Guest(ctx context.Context, v gate.View, inv *estate.Inventory, g estate.Guest) Report {
	r := newReader(v, inv.Target.Name)
	r.reads++ // the listing
	node, err := inv.Node(g.Node)
	if err != nil {
		node = estate.Node{Name: g.Node, Status: "unknown"}
	}
	if g.NodeOff || node.Status != "online" {
		rep := offline(node, r.reads)
		rep.Unread[0].Part = "everything about " + strings.ToUpper(g.Kind) + " " + g.ID
		rep.close(strings.ToUpper(g.Kind)+" "+g.ID, v.Scoped())
		return rep
	}
	p := &patient{g: g, where: strings.ToUpper(g.Kind) + " " + g.ID, now: v.Now(), inv: inv, host: lookAtHost(inv, node, v.Now(), false)}
	p.config = onGuest("settings of the guest", g, "/config", Critical, map[string]string{"current": "1"})
	p.status = onGuest("state of the guest", g, "/status/current", Critical, nil)
	p.pending = onGuest("pending changes of the guest", g, "/pending", Info, nil)
	p.snaps = onGuest("snapshots of the guest", g, "/snapshot", Warning, nil)
	p.hour = onGuest("load history of the guest", g, "/rrddata", Critical, map[string]string{"timeframe": "hour", "cf": "AVERAGE"})
	p.day = onGuest("load history of the guest, last day", g, "/rrddata", Info, map[string]string{"timeframe": "day", "cf": "AVERAGE"})
	p.tasks = onNode("tasks of the guest", g.Node, "GET /nodes/{node}/tasks", Warning, map[string]string{"vmid": g.ID, "limit": "200", "since": fmt.Sprint(p.now.Add(-lastWeek).Unix())})
	p.firewall = onGuest("firewall of the guest", g, "/firewall/options", Warning, nil)
	p.cluster = &ask{part: "firewall of the site", hides: Warning, read: gate.Read{Operation: "GET /cluster/firewall/options"}}
	p.repl = onNode("replication of the guest", g.Node, "GET /nodes/{node}/replication", Critical, map[string]string{"guest": g.ID})
	p.storage = &ask{part: "storage definitions", hides: Critical, read: gate.Read{Operation: "GET /storage"}}
	if g.HA != "" {
		p.ha = &ask{part: "HA state", hides: Critical, read: gate.Read{Operation: "GET /cluster/ha/status/current"}}
	}
	first := append(p.host.asks(), p.config, p.status, p.pending, p.snaps, p.hour, p.day, p.tasks, p.firewall, p.cluster, p.repl, p.storage, p.ha)
	r.all(ctx, first...)
	second := p.follow()
	r.all(ctx, second...)
	rep := p.report(v.Scoped())
	if p.running() && !p.paused() {
		in := &interior{v: v, target: inv.Target.Name, run: "RUN /nodes/{node}/" + g.Path() + "/{vmid}/probe", params: map[string]any{"node": gate.NodeOf(g.ID), "vmid": g.ID}, where: p.where, kind: g.Kind,
			next: Next{Operation: "probe_guest", Arguments: map[string]string{"guest": g.ID}}}
		rep.within(ctx, in)
	}
	rep.Unread = append(rep.Unread, unread(slices.Concat(first, second)...)...)
	rep.Reads += r.reads
	rep.close(p.where, v.Scoped())
	return rep
}

// follow are the reads that the first ones lead to: the pools under its disks, its agent, its neighbours.
func (p *patient) follow() []*ask {
	var out []*ask
	kinds := map[string]bool{}
	shared := false
	for name := range p.storages() {
		for _, s := range p.inv.Storages {
			if s.Name == name && s.Node == p.g.Node {
				kinds[s.Type] = true
				shared = shared || s.Shared
			}
		}
	}
	if kinds["lvmthin"] {
		p.host.thin = onNode("thin pools of the node", p.g.Node, "GET /nodes/{node}/disks/lvmthin", Critical, nil)
		out = append(out, p.host.thin)
	}
	if kinds["zfspool"] {
		p.host.zfs = onNode("ZFS pools of the node", p.g.Node, "GET /nodes/{node}/disks/zfs", Critical, nil)
		out = append(out, p.host.zfs)
	}
	running := p.running()
	if p.g.Kind == estate.VM && running && p.config.row().On("agent") && !p.paused() {
		p.agent = onGuest("file systems, from the guest agent", p.g, "/agent/get-fsinfo", Critical, nil)
		out = append(out, p.agent)
	}
	if running {
		p.near = candidates(p.inv, p.g, shared)
		for _, n := range p.near {
			out = append(out, n.hour, n.config)
		}
	}
	return out
}

func (p *patient) running() bool { return cmp.Or(p.status.row()["status"], p.g.Status) == "running" }
func (p *patient) paused() bool {
	return p.running() && p.status.row()["qmpstatus"] == "paused"
}

// storages are those that hold its disks.
func (p *patient) storages() map[string]bool {
	out := map[string]bool{}
	for _, d := range disksOf(p.config.row()) {
		out[d.storage] = true
	}
	return out
}

func (p *patient) next(operation string) *Next {
	return &Next{Operation: operation, Arguments: map[string]string{"guest": p.g.ID}}
}

func (p *patient) report(scoped bool) Report {
	causes, flags := &bag{}, &bag{}
	p.state(causes, flags)
	var rep Report
	if p.running() {
		p.processors(causes)
		p.memory(causes)
		p.disk(causes)
		p.pressures(causes)
		p.limits(causes)
		p.host.load(causes, &Next{Operation: "diagnose_node", Arguments: map[string]string{"node": p.g.Node}})
		p.host.busyTasks(causes, p.g.ID, p.visible(scoped))
		busyGuests(causes, p.inv, p.host.node, p.g.ID, scoped)
		sharing(causes, p.near, p.storages(), p.traffic())
		promised := &bag{}
		p.host.promised(promised, p.inv, scoped)
		for _, f := range promised.flags {
			if f.Confidence != "" {
				causes.add(f)
			} else {
				flags.add(f)
			}
		}
		rep.Unread = append(rep.Unread, p.histories()...)
	}
	p.rests(causes, flags)
	p.work(causes, flags)
	p.settings(causes, flags)
	p.snapshots(causes, flags)
	p.network(causes, flags)
	p.highAvailability(causes, flags)
	p.replication(flags)
	rep.Unread = append(rep.Unread, p.host.cut()...)
	rep.Causes, rep.Flags = causes.flags, flags.flags
	rep.Figures = p.figures()
	rep.Unseen = p.unseen()
	return rep
}

func (p *patient) visible(scoped bool) func(task) bool {
	return func(t task) bool {
		_, mine := p.inv.ByID(t.id)
		return !scoped || mine
	}
}

// histories reports load histories without figures: an hour that tells nothing is not a good hour.
func (p *patient) histories() []Unread {
	out := p.host.history()
	if p.hour.ok() {
		if len(p.hour.series().points) == 0 {
			out = append(out, Unread{Part: p.hour.part, Where: p.where, Why: "the history of the last hour holds no figures", Hides: Critical})
		}
	}
	return out
}

// state: what keeps it from working whatever its load.
func (p *patient) state(causes, flags *bag) {
	st, conf := p.status.row(), p.config.row()
	source := p.status.source()
	lock := cmp.Or(st["lock"], conf["lock"], p.g.Lock)
	status := cmp.Or(st["status"], p.g.Status)
	switch {
	case p.g.Template || conf["template"] == "1":
		flags.add(Flag{Level: Info, Check: "template", Where: p.where, What: "it is a template: it does not run", Next: p.next("clone_guest")})
	case p.paused():
		causes.add(Flag{Level: Critical, Check: "paused", Where: p.where, What: "the VM is paused: its processors stand still", Confidence: Certain, Next: p.next("guest_power"),
			Evidence: []Evidence{{Figure: "state", Value: "paused", Threshold: "running", Source: source}}})
	case st["qmpstatus"] == "io-error" || st["qmpstatus"] == "internal-error":
		causes.add(Flag{Level: Critical, Check: "io_error", Where: p.where, What: "the VM was stopped by an I/O error: its storage failed a write or is full", Confidence: Certain, Next: &Next{Operation: "list_storage"},
			Evidence: []Evidence{{Figure: "state", Value: clean(st["qmpstatus"], 30), Threshold: "running", Source: source}}})
	case status == "stopped":
		f := Flag{Level: Info, Check: "stopped", Where: p.where, What: "it is not running", Confidence: Certain, Next: p.next("guest_power"),
			Evidence: []Evidence{{Figure: "state", Value: "stopped", Threshold: "running", Source: source}}}
		if lock == "suspended" {
			f.What = "it is suspended to disk: it is not running"
		}
		if conf.On("onboot") {
			f.What += ", though it starts with its node"
		}
		causes.add(f)
	case status == "":
	case status != "running":
		causes.add(Flag{Level: Warning, Check: "state_unknown", Where: p.where, What: "its state is " + clean(status, 30), Confidence: Possible, Next: p.next("guest_status"),
			Evidence: []Evidence{{Figure: "state", Value: clean(status, 30), Threshold: "running", Source: source}}})
	}
	if lock != "" && lock != "suspended" {
		p.locked(causes, lock)
	}
	if up := time.Duration(whole(st, "uptime")) * time.Second; p.running() && up > 0 && up < freshStart {
		flags.add(Flag{Level: Info, Check: "restarted", Where: p.where, What: "it started " + span(up) + " ago", Since: stamp(p.now.Add(-up).Unix()), Next: &Next{Operation: "list_tasks", Arguments: map[string]string{"guest": p.g.ID}},
			Evidence: []Evidence{{Figure: "uptime", Value: span(up), Threshold: "below " + span(freshStart), Source: source}}})
	}
}

// locked: a lock with the task that holds it, or a lock that nobody holds.
func (p *patient) locked(causes *bag, lock string) {
	f := Flag{Level: Warning, Check: "locked", Where: p.where, Confidence: Possible, Next: &Next{Operation: "list_tasks", Arguments: map[string]string{"guest": p.g.ID}},
		What: "it is locked (" + clean(lock, 30) + ")", Evidence: []Evidence{{Figure: "lock", Value: clean(lock, 30), Threshold: "none", Source: p.status.source()}}}
	switch holder := holderOf(tasksOf(p.host.active.rows), p.g.ID, lock); {
	case holder != nil:
		f.Level, f.Since, f.Next = Info, stamp(holder.start), holder.next()
		f.What += fmt.Sprintf(", held by a running %s", holder.title())
		f.Evidence = append(f.Evidence, Evidence{Figure: "task", Value: clean(holder.upid, 120), Source: p.host.active.source()})
	case p.host.active.ok():
		f.Check, f.What = "lock_stuck", f.What+", and no running task that would hold it is seen on its node: it may be left over from one that died"
	default:
		f.What += "; whether a task still holds it could not be read"
	}
	causes.add(f)
}

// holderOf finds the running task that may hold a guest's lock.
func holderOf(active []task, id, lock string) *task {
	for i, t := range active {
		if t.running && (t.id == id || t.id == "" && t.kind == "vzdump" && lock == "backup") {
			return &active[i]
		}
	}
	return nil
}

// work: what its tasks tell.
func (p *patient) work(causes, flags *bag) {
	for _, t := range tasksOf(p.host.active.rows) {
		if t.running && t.id == p.g.ID {
			causes.add(Flag{Level: Info, Check: "task_running", Where: p.where, What: fmt.Sprintf("a %s of it is running now", t.title()), Confidence: Possible, Since: stamp(t.start), Next: t.next(), excess: 1,
				Evidence: []Evidence{{Figure: "task", Value: clean(t.upid, 120), Source: p.host.active.source()}}})
		}
	}
	all := tasksOf(p.tasks.rows)
	starts := 0
	for _, t := range all {
		if slices.Contains([]string{"qmstart", "vzstart", "hastart", "qmreboot", "vzreboot", "qmreset"}, t.kind) && age(p.now, t.start) <= lastDay {
			starts++
		}
	}
	if starts >= manyStarts {
		causes.add(Flag{Level: Warning, Check: "restarts", Where: p.where, What: "it was started again and again within a day", Confidence: Possible, excess: float64(starts) / manyStarts,
			Next:     &Next{Operation: "list_tasks", Arguments: map[string]string{"guest": p.g.ID, "since": "24h"}},
			Evidence: []Evidence{{Figure: "starts and restarts within 24 hours", Value: fmt.Sprint(starts), Threshold: fmt.Sprintf("from %d", manyStarts), Source: p.tasks.source()}}})
	}
	for _, j := range jobsOf(all, all) {
		f := jobFlag(j, p.tasks.source())
		f.Where = p.where
		if outOfMemory(j.exit) {
			f.Check, f.Confidence, f.What = "out_of_memory", Possible, f.What+"; its exit status speaks of memory"
			causes.add(f)
			continue
		}
		flags.add(f)
	}
}

// outOfMemory looks for the words of the kernel and of QEMU in an exit status.
func outOfMemory(exit string) bool {
	t := strings.ToLower(exit)
	return strings.Contains(t, "out of memory") || strings.Contains(t, "oom") && (strings.Contains(t, "kill") || strings.Contains(t, "oom-")) || strings.Contains(t, "cannot allocate memory") || strings.Contains(t, "cannot set up guest memory")
}

// settings: what waits for a restart, what starts with the node, the agent.
func (p *patient) settings(causes, flags *bag) {
	var keys []string
	for _, r := range p.pending.rows {
		if _, waits := r["pending"]; waits || r["delete"] != "" && r["delete"] != "0" {
			keys = append(keys, clean(r["key"], 30))
		}
	}
	if len(keys) > 0 {
		slices.Sort(keys)
		f := Flag{Level: Info, Check: "pending_changes", Where: p.where, What: "changed settings wait for its next start: " + some(keys, 8), Next: p.next("guest_config"),
			Evidence: []Evidence{{Figure: "settings that wait", Value: fmt.Sprint(len(keys)), Threshold: "0", Source: p.pending.source()}}}
		if slices.ContainsFunc(keys, func(k string) bool {
			return slices.Contains([]string{"memory", "cores", "sockets", "vcpus", "cpulimit", "cpuunits", "balloon", "swap"}, k)
		}) {
			f.Confidence = Possible
			f.What += "; the guest still works with what it had before"
			causes.add(f)
		} else {
			flags.add(f)
		}
	}
	conf := p.config.row()
	if p.agent != nil && p.agent.unread != nil && p.agent.unread.Missing == "" {
		flags.add(Flag{Level: Warning, Check: "agent_silent", Where: p.where, What: "the guest agent is switched on and does not answer: backups are not consistent then, and a shutdown may hang", Next: p.next("guest_config"),
			Evidence: []Evidence{{Figure: "answer", Value: p.agent.unread.Why, Threshold: "an answer", Source: p.agent.source()}}})
	}
	if conf != nil && p.running() && !conf.On("onboot") && p.g.HA == "" && !p.g.Template {
		flags.add(Flag{Level: Info, Check: "onboot_off", Where: p.where, What: "it does not start with its node, and HA does not manage it", Next: p.next("set_guest_config"),
			Evidence: []Evidence{{Figure: "onboot", Value: cmp.Or(conf["onboot"], "not set"), Threshold: "1", Source: p.config.source()}}})
	}
}

func (p *patient) unseen() []string {
	out := []string{"steal time and disk latency are not in this API"}
	if p.g.Kind == estate.VM {
		out = append(out, "swap inside a VM is not in this API")
		if p.agent == nil {
			out = append(out, "how full a VM's file systems are is known only to its guest agent, which is off")
		}
	}
	if s := p.hour.series(); len(s.points) > 0 && !s.has("pressurecpusome") {
		out = append(out, "this version keeps no history of pressure: only use can be judged, not waiting")
	}
	return out
}
