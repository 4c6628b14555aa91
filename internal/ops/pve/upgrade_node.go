package pve

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"castellan/internal/catalog"
	"castellan/internal/estate"
	"castellan/internal/gate"
	"castellan/internal/patch"
)

type upgradeNodeIn struct {
	Node   string   `json:"node"`
	Guests string   `json:"guests,omitempty" enum:"stay,move,return" jsonschema:"running guests: stay where they are (the default), are moved to other nodes first, or are moved and come back afterwards"`
	Reboot bool     `json:"reboot,omitempty" jsonschema:"reboot the node afterwards"`
	Stop   []string `json:"stop,omitempty" jsonschema:"ids of guests that may stop with the reboot"`
	Target string   `json:"target,omitempty"`
}

func upgradeNode() *gate.Operation {
	return gate.Change(gate.Declaration{
		Name: "upgrade_node", Summary: "Full upgrade of one Proxmox node through its bridge: evacuate, upgrade, verify, reboot if asked. Write; no undo", Product: "pve", Effect: gate.EffectChange,
		Kinds: []gate.Kind{gate.KindHostUpgrade, gate.KindUpdates, gate.KindMigrate, gate.KindPower, gate.KindGuard}, Undo: "none: a node has no snapshot; packages can be installed in older versions by hand",
		Keywords: "host hypervisor apt dist-upgrade full-upgrade patch updates security kernel reboot maintenance evacuate rolling pveupgrade", Toolset: "full",
	}, planUpgradeNode)
}

const (
	upgradeSeconds = 7200
	bootSeconds    = 1800
)

func planUpgradeNode(ctx context.Context, v gate.View, in upgradeNodeIn) (*gate.Draft, error) {
	s, err := open(ctx, v, in.Target)
	if err != nil {
		return nil, err
	}
	node, err := s.pickNode(in.Node)
	if err != nil {
		return nil, err
	}
	if len(in.Stop) > 0 && !in.Reboot {
		return nil, gate.Fail(gate.ErrInvalid, "Leave stop out, or add reboot=true.", "no guest stops without a reboot")
	}
	h, err := s.lookAtHost(ctx, node)
	if err != nil {
		return nil, err
	}
	if len(h.report.All) == 0 && len(h.against) == 0 {
		return nothing("Node " + node + " has nothing to upgrade. " + fmt.Sprintf("%d newer packages are not installed; check_node_updates says why.", len(h.report.Pending))), nil
	}
	h.comeBack = in.Guests == "return"
	u := &upgrade{hostLook: h, in: in}
	if err := u.prepare(ctx); err != nil {
		return nil, err
	}
	return u.draft()
}

// upgrade is the plan of a node's upgrade under way.
type upgrade struct {
	*hostLook
	in     upgradeNodeIn
	ev     evacuation
	maint  bool // HA maintenance around it
	stops  []string
	stays  []string
	reboot []string // what only a reboot brings into force
}

// prepare finds out what becomes of the guests, and refuses with all that stands against the whole at once.
func (u *upgrade) prepare(ctx context.Context) error {
	u.reboot = bootsKernel(u.report.All)
	ok, votes := u.majority(ctx)
	managed := slices.ContainsFunc(u.inv.Guests, func(g estate.Guest) bool { return g.HA != "" })
	switch {
	case ok && votes != "":
		u.note("%s: a majority", votes)
	case votes != "" && u.in.Reboot && managed:
		u.no("%s, no majority while it reboots: with guests under HA the other nodes restart themselves then", votes)
	case votes != "":
		u.note("%s, no majority: while corosync restarts or the node reboots no configuration can be written", votes)
	}
	if u.ceph.last && u.in.Reboot {
		u.no("Ceph has no majority of monitors while %s reboots", u.node)
	} else if u.ceph.last {
		u.note("Ceph has no majority of monitors while those of %s restart", u.node)
	}
	if u.moves() {
		u.ev = u.evacuate(ctx)
		u.maint = len(u.ev.byHA) > 0
	}
	moved := map[string]bool{}
	for _, id := range u.ev.ids {
		moved[id] = true
	}
	for _, g := range u.ev.byHA {
		moved[g.ID] = u.ev.stuck[g.ID] == ""
	}
	for _, g := range u.inv.Guests {
		if g.Node != u.node || g.Template || g.Status == "stopped" || moved[g.ID] {
			continue
		}
		why := u.ev.stuck[g.ID]
		if why == "" {
			why = g.Title()
		}
		switch {
		case !u.in.Reboot:
			u.stays = append(u.stays, why)
		case slices.Contains(u.in.Stop, g.ID):
			u.stops = append(u.stops, why)
		case u.moves():
			u.no("%s: it cannot be moved away, and would stop with the reboot", why)
		default:
			u.no("%s would stop with the reboot: guests=move moves it, or its id in stop lets it", why)
		}
	}
	for _, id := range u.in.Stop {
		if !slices.ContainsFunc(u.inv.Guests, func(g estate.Guest) bool { return g.ID == id && g.Node == u.node }) {
			u.no("guest %s of stop is not on node %s", clip(id, 20), u.node)
		}
	}
	if u.moves() && !u.in.Reboot {
		for _, text := range u.stays {
			u.note("stays: %s", text)
		}
	}
	if len(u.against) > 0 {
		return gate.Fail(gate.ErrUnavailable, "Put these right, then call again. check_node_updates shows them too.", "node %s is not upgraded, for %s; nothing was changed: %s", u.node, plural(len(u.against), "reason", "reasons"), clip(strings.Join(u.against, "; "), 3000))
	}
	return nil
}

// moves says whether running guests are moved away first.
func (u *upgrade) moves() bool { return u.in.Guests == "move" || u.in.Guests == "return" }

func (u *upgrade) request(operation string, params map[string]any) (*gate.Request, error) {
	r, err := gate.NewRequest("pve", operation, params)
	if err != nil {
		return nil, gate.Fail(gate.ErrInvalid, "Correct the arguments.", "%v", err)
	}
	return &r, nil
}

// together are the conditions that the rest of the cluster is there, read anew just before a step.
func (u *upgrade) together() []gate.Condition {
	var out []gate.Condition
	for _, n := range u.others {
		out = append(out, online(n))
		if u.ha[n] != "" {
			out = append(out, gate.Condition{Name: "the HA manager has node " + n + " online", Read: gate.Read{Operation: "GET /cluster/ha/status/manager_status"}, Pointer: haPath + n, Rule: gate.RuleEquals, Value: text("online")})
		}
	}
	if u.cluster {
		out = append(out, u.quorate())
	}
	return append(out, gate.Condition{Name: "no backup runs on node " + u.node, Read: gate.Read{Operation: "GET /nodes/{node}/tasks", Params: map[string]string{"node": u.node, "source": "active", "limit": "500"}},
		Where: map[string]string{"type": "vzdump"}, Rule: gate.RuleAbsent})
}

func (u *upgrade) quorate() gate.Condition {
	return gate.Condition{Name: "the cluster has its majority", Read: gate.Read{Operation: "GET /cluster/status"}, Where: map[string]string{"type": "cluster"}, Pointer: "/quorate", Rule: gate.RuleEquals, Value: text("1")}
}

// healthy are the conditions that the node is back and in service.
func (u *upgrade) healthy() []gate.Condition {
	out := []gate.Condition{online(u.node)}
	daemons := []string{"pve-cluster", "pvedaemon", "pveproxy", "pvestatd"}
	if u.cluster {
		out, daemons = append(out, u.quorate()), append(daemons, "corosync")
	}
	for _, d := range daemons {
		out = append(out, gate.Condition{Name: d + " runs on node " + u.node, Read: gate.Read{Operation: "GET /nodes/{node}/services", Params: map[string]string{"node": u.node}},
			Where: map[string]string{"service": d}, Pointer: "/state", Rule: gate.RuleEquals, Value: text("running")})
	}
	if len(u.ceph.here) > 0 {
		for _, check := range []string{"OSD_DOWN", "OSD_HOST_DOWN", "MON_DOWN"} {
			out = append(out, gate.Condition{Name: "Ceph does not report " + check, Read: gate.Read{Operation: "GET /cluster/ceph/status"}, Pointer: "/health/checks/" + check, Rule: gate.RuleAbsent})
		}
	}
	if i := slices.IndexFunc(u.report.All, func(c patch.Change) bool { return c.Name == "pve-manager" && c.Action == patch.Upgrade }); i >= 0 {
		out = append(out, gate.Condition{Name: "pve-manager is " + u.report.All[i].New + " on node " + u.node, Read: gate.Read{Operation: "GET /nodes/{node}/apt/versions", Params: map[string]string{"node": u.node}},
			Where: map[string]string{"Package": "pve-manager"}, Pointer: "/OldVersion", Rule: gate.RuleEquals, Value: text(u.report.All[i].New), Soft: true, Else: "the API tells another version of pve-manager, an older one still or a newer one that was allowed"})
	}
	return out
}

func (u *upgrade) noout(on bool) (gate.Step, error) {
	r, err := u.request("PUT /cluster/ceph/flags/{flag}", map[string]any{"flag": "noout", "value": on})
	if err != nil {
		return gate.Step{}, err
	}
	step := gate.Step{API: r, Undo: gate.Undo{How: "set the flag noout back"}}
	if back, err := u.request("PUT /cluster/ceph/flags/{flag}", map[string]any{"flag": "noout", "value": !on}); err == nil {
		step.Undo.Call = back
	}
	if on {
		step.Require = []gate.Condition{{Name: "Ceph is " + u.ceph.health, Read: gate.Read{Operation: "GET /cluster/ceph/status"}, Pointer: "/health/status", Rule: gate.RuleEquals, Value: text(u.ceph.health)}}
	}
	return step, nil
}

// maintenance is the step into HA's maintenance or out of it.
func (u *upgrade) maintenance(enable bool) (gate.Step, error) {
	mode, other, want, was := "enable", "disable", "maintenance", "online"
	if !enable {
		mode, other, want, was = "disable", "enable", "online", "maintenance"
	}
	r, err := u.request(catalog.MethodRun+" /nodes/{node}/maintenance", map[string]any{"node": u.node, "mode": mode})
	if err != nil {
		return gate.Step{}, err
	}
	back, err := u.request(catalog.MethodRun+" /nodes/{node}/maintenance", map[string]any{"node": u.node, "mode": other})
	if err != nil {
		return gate.Step{}, err
	}
	state := func(name, value string) gate.Condition {
		return gate.Condition{Name: name, Read: gate.Read{Operation: "GET /cluster/ha/status/manager_status"}, Pointer: haPath + u.node, Rule: gate.RuleEquals, Value: text(value)}
	}
	step := gate.Step{API: r, Require: []gate.Condition{online(u.node), state("the HA manager has node "+u.node+" as "+was, was)}, Verify: []gate.Condition{state("the HA manager has node "+u.node+" as "+want, want)},
		Wait: gate.Wait{Kind: gate.WaitVerify, Limit: 10 * time.Minute}, Undo: gate.Undo{How: other + " maintenance again", Call: back}}
	if !enable && u.comeBack {
		step.Wait.Limit = time.Hour
		for _, g := range u.ev.byHA {
			if u.ev.stuck[g.ID] == "" {
				step.Verify = append(step.Verify, u.back(g.ID))
			}
		}
	}
	if enable {
		step.Wait.Limit = time.Hour
		for _, g := range u.ev.byHA {
			if u.ev.stuck[g.ID] == "" {
				step.Verify = append(step.Verify, u.away(g.ID))
			}
		}
	}
	return step, nil
}

// away holds while a guest is on another node.
func (u *upgrade) away(id string) gate.Condition {
	return gate.Condition{Name: "guest " + id + " is not on node " + u.node, Read: gate.Read{Operation: "GET /cluster/resources", Params: map[string]string{"type": "vm"}}, Where: map[string]string{"vmid": id}, Pointer: "/node", Rule: gate.RuleDiffers, Value: text(u.node)}
}

// back holds while a guest is on its node.
func (u *upgrade) back(id string) gate.Condition {
	c := u.away(id)
	c.Name, c.Rule = "guest "+id+" is on node "+u.node, gate.RuleEquals
	return c
}

func (u *upgrade) look(word string, more map[string]any) (gate.Step, error) {
	params := map[string]any{"node": u.node, "word": word}
	for k, val := range more {
		params[k] = val
	}
	r, err := u.request(catalog.MethodRun+" /nodes/{node}/updates", params)
	return gate.Step{API: r, Undo: gate.Undo{None: "it only looks"}}, err
}

func (u *upgrade) verify() (gate.Step, error) {
	step, err := u.look("verify", map[string]any{"timeout": 600})
	step.Verify, step.Wait = u.healthy(), gate.Wait{Kind: gate.WaitVerify, Limit: 10 * time.Minute}
	return step, err
}

// draft makes the plan: around the upgrade, what goes before is what comes back after it.
func (u *upgrade) draft() (*gate.Draft, error) {
	d := &gate.Draft{Target: u.target(), Phrase: u.node}
	var failed error
	add := func(s gate.Step, err error) {
		if err != nil && failed == nil {
			failed = err
		}
		d.Steps = append(d.Steps, s)
	}
	flag := len(u.ceph.here) > 0 && !u.ceph.noout
	if flag {
		add(u.noout(true))
	}
	if u.maint {
		add(u.maintenance(true))
	}
	d.Steps = append(d.Steps, u.ev.steps...)
	add(u.install())
	add(u.verify())
	if u.in.Reboot {
		add(u.look("status", map[string]any{"timeout": 30})) // a boot between plan and now is not taken for this one
		seen := len(d.Steps)
		add(u.restart())
		look, err := u.look("status", map[string]any{"other-than": u.report.BootID, "timeout": bootSeconds})
		if err == nil {
			otherBoot(look.API, seen)
		}
		add(look, err)
		add(u.verify())
	}
	if u.maint {
		add(u.maintenance(false))
	}
	d.Steps = append(d.Steps, u.returns()...)
	if flag {
		add(u.noout(false))
	}
	if failed != nil {
		return nil, failed
	}
	if u.in.Reboot { // before anything is touched, too: what came meanwhile is found while the node is in service
		first := &d.Steps[0]
		first.Require = append(first.Require, u.nobodyBut("those whose move or stop is planned", u.planned()))
	}
	u.between(d.Steps)
	d.Diff = append(d.Diff, u.whereabouts()...)
	for _, c := range u.report.All {
		d.Diff = append(d.Diff, gate.Difference{Object: "node " + u.node, Key: c.Name, Old: c.Old, New: orGone(c), Note: c.Archive})
	}
	d.Note = u.words()
	for _, p := range u.report.Pending {
		if p.Why != "" && len(d.Skip) < 20 {
			d.Skip = append(d.Skip, clip(fmt.Sprintf("%s %s stays (%s is there): %s %s", p.Name, p.Installed, orDash(p.Available), p.Why, p.Note), 200))
		}
	}
	for _, text := range u.heed {
		d.Skip = append(d.Skip, clip("heed: "+text, 300))
	}
	return d, nil
}

// returns are the moves back, the last one away first.
func (u *upgrade) returns() []gate.Step {
	if !u.comeBack {
		return nil
	}
	out := slices.Clone(u.ev.back)
	slices.Reverse(out)
	return out
}

// whereabouts name each guest that is moved, or stops: notes are short, and this list is not.
func (u *upgrade) whereabouts() (out []gate.Difference) {
	for i, id := range u.ev.ids {
		d := gate.Difference{Object: "guest/" + id, Key: "node", Old: u.node, New: u.node, Note: "moved away and back: " + u.ev.moved[i] + ", then to " + u.node + " again"}
		if !u.comeBack {
			d.New, d.Note = u.ev.steps[i].API.Text("target"), "moved away: "+u.ev.moved[i]+"; it is not moved back"
		}
		out = append(out, d)
	}
	for _, g := range u.ev.byHA {
		switch {
		case u.ev.stuck[g.ID] != "":
		case u.comeBack:
			out = append(out, gate.Difference{Object: "guest/" + g.ID, Key: "node", Old: u.node, New: u.node, Note: "moved away and back by HA"})
		default:
			out = append(out, gate.Difference{Object: "guest/" + g.ID, Key: "node", Old: u.node, New: "where HA moves it", Note: "moved away by HA in maintenance, and back where its rules say so"})
		}
	}
	for _, text := range u.stops {
		_, id, _ := strings.Cut(text, " ")
		id, _, _ = strings.Cut(id, " ")
		out = append(out, gate.Difference{Object: "guest/" + strings.TrimSuffix(id, ":"), Key: "status", Old: "running", New: "STOPS with the reboot of " + u.node, Note: clip(text, 200)})
	}
	return out
}

// between has the first step look at the cluster as an upgrade does, and the last one wait for Ceph to be as it was: what comes
// after this node finds what it was planned on.
func (u *upgrade) between(steps []gate.Step) {
	first, last := &steps[0], &steps[len(steps)-1]
	for _, c := range append(u.together(), online(u.node)) {
		if !slices.ContainsFunc(first.Require, func(o gate.Condition) bool { return o.Name == c.Name }) {
			first.Require = append(first.Require, c)
		}
	}
	if u.ceph.health == "" {
		return
	}
	healthy := gate.Condition{Name: "Ceph is " + u.ceph.health, Read: gate.Read{Operation: "GET /cluster/ceph/status"}, Pointer: "/health/status", Rule: gate.RuleEquals, Value: text(u.ceph.health)}
	if !slices.ContainsFunc(first.Require, func(o gate.Condition) bool { return o.Name == healthy.Name }) {
		first.Require = append(first.Require, healthy)
	}
	if last.Wait.Kind == gate.WaitNone {
		last.Wait = gate.Wait{Kind: gate.WaitVerify, Limit: time.Hour}
	}
	if last.Wait.Kind == gate.WaitVerify {
		last.Verify = append(last.Verify, healthy)
	}
}

func orGone(c patch.Change) string {
	if c.Action == patch.Remove {
		return "(removed)"
	}
	return c.New
}

// install is the step that everything else is around.
func (u *upgrade) install() (gate.Step, error) {
	params := map[string]any{"node": u.node, "mode": "full", "package": u.report.All.Texts(), "timeout": upgradeSeconds}
	r, err := u.request(catalog.MethodRun+" /nodes/{node}/upgrade", params)
	if err != nil {
		return gate.Step{}, err
	}
	step := gate.Step{API: r, Require: append([]gate.Condition{online(u.node)}, u.together()...), Undo: gate.Undo{None: "packages of a node are not taken back: it has no snapshot"},
		Note: "the bridge recomputes this on the node and refuses what differs; nothing is begun while another node of the cluster is upgraded by its bridge"}
	for _, id := range u.ev.ids {
		step.Require = append(step.Require, u.away(id))
	}
	return step, nil
}

// restart reboots the node; what runs on it stops.
func (u *upgrade) restart() (gate.Step, error) {
	r, err := u.request("POST /nodes/{node}/status", map[string]any{"node": u.node, "command": "reboot"})
	if err != nil {
		return gate.Step{}, err
	}
	step := gate.Step{API: r, Require: u.together(), Undo: gate.Undo{None: "a reboot is not taken back"}}
	for _, id := range u.ev.ids {
		step.Require = append(step.Require, u.away(id))
	}
	step.Require = append(step.Require, u.nobodyBut("those that may stop", u.in.Stop))
	return step, nil
}

// nobodyBut holds while no guest but these runs on the node, or is not known not to: a reboot stops whoever came after the plan.
func (u *upgrade) nobodyBut(who string, ids []string) gate.Condition {
	but := map[string][]string{"status": {"stopped"}, "template": {"1"}}
	if len(ids) > 0 {
		but["vmid"] = slices.Clone(ids)
	}
	return gate.Condition{Name: "no guest runs on node " + u.node + " but " + who, Read: gate.Read{Operation: "GET /cluster/resources", Params: map[string]string{"type": "vm"}},
		Where: map[string]string{"node": u.node}, Except: but, Pointer: "/id", Rule: gate.RuleAbsent}
}

// planned are the guests of the node that are moved away or may stop.
func (u *upgrade) planned() []string {
	ids := append(slices.Clone(u.ev.ids), u.in.Stop...)
	for _, g := range u.ev.byHA {
		if u.ev.stuck[g.ID] == "" {
			ids = append(ids, g.ID)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// words tell the approver what the steps do not.
func (u *upgrade) words() string {
	var out []string
	installs, removes := 0, 0
	for _, c := range u.report.All {
		switch c.Action {
		case patch.Install:
			installs++
		case patch.Remove:
			removes++
		}
	}
	out = append(out, fmt.Sprintf("Full upgrade of node %s: %d packages, %d of them new, %d removed, %d from security archives.", u.node, len(u.report.All), installs, removes, len(u.report.Security)))
	switch {
	case len(u.stops) > 0:
		out = append(out, "STOPS with the reboot: "+clip(strings.Join(u.stops, "; "), 250)+".")
	case len(u.stays) > 0 && !u.moves():
		out = append(out, fmt.Sprintf("%s on the node and keep running.", plural(len(u.stays), "running guest stays", "running guests stay")))
	}
	if len(u.ev.moved) > 0 {
		out = append(out, "Moved first: "+clip(strings.Join(u.ev.moved, ", "), 200)+map[bool]string{true: "; all of them are moved back afterwards.", false: "; they are not moved back."}[u.comeBack])
	}
	if u.maint {
		text := fmt.Sprintf("HA moves %s in maintenance, and back afterwards where its rules say so.", plural(len(u.ev.byHA), "guest", "guests"))
		if u.comeBack {
			text = fmt.Sprintf("HA moves %s in maintenance, and back afterwards, which is waited for.", plural(len(u.ev.byHA), "guest", "guests"))
		}
		out = append(out, text)
	}
	if len(u.reboot) > 0 && !u.in.Reboot {
		out = append(out, "A reboot is needed afterwards, and not part of this: "+clip(strings.Join(u.reboot, ", "), 150)+".")
	}
	var left []string
	if len(u.ceph.here) > 0 && !u.ceph.noout {
		left = append(left, "Ceph's flag noout set")
	}
	if u.maint {
		left = append(left, "the node in maintenance")
	}
	if len(left) > 0 {
		out = append(out, "Should it fail, it leaves "+strings.Join(left, " and ")+".")
	}
	return strings.Join(out, " ")
}
