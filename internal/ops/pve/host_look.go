package pve

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"castellan/internal/catalog"
	"castellan/internal/estate"
	"castellan/internal/gate"
	"castellan/internal/hostapt"
	"castellan/internal/patch"
)

// hostLook is what was found about a node whose packages are to be looked at or upgraded.
type hostLook struct {
	*site
	node    string
	report  patch.Report
	against []string // what stands against upgrading now
	heed    []string // what an approver should know
	nodes   []string // all of the cluster
	others  []string // of them, those beside this one
	cluster bool
	ha      map[string]string // state of each node, as the HA manager has it
	ceph    cephLook
	// comeBack: guests that are moved away are moved back afterwards; one of which that cannot be promised is not moved.
	comeBack bool
}

// cephLook is what Ceph is here.
type cephLook struct {
	here   []string // daemons on this node
	health string
	noout  bool // set already
	last   bool // without this node's monitors there is no majority
}

func (h *hostLook) say(list *[]string, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !slices.Contains(*list, text) && len(*list) < 60 {
		*list = append(*list, text)
	}
}

func (h *hostLook) no(format string, args ...any)   { h.say(&h.against, format, args...) }
func (h *hostLook) note(format string, args ...any) { h.say(&h.heed, format, args...) }

// rows reads a list of a site; what cannot be read stands against an upgrade.
func (h *hostLook) rows(ctx context.Context, what, operation string, params map[string]string) ([]estate.Config, bool) {
	a, err := h.read(ctx, nil, operation, params)
	if err == nil && len(a.Missing) > 0 {
		err = fmt.Errorf("the answer is incomplete: %s", strings.Join(a.Missing, "; "))
	}
	var raw []json.RawMessage
	if err == nil {
		err = json.Unmarshal(a.Data, &raw)
	}
	if err != nil {
		h.no("%s could not be read: %s", what, clip(gate.Clean(err.Error()), 200))
		return nil, false
	}
	out := make([]estate.Config, 0, len(raw))
	for _, r := range raw {
		c, err := estate.ParseConfig(r)
		if err != nil {
			h.no("%s could not be read: %s", what, clip(err.Error(), 200))
			return nil, false
		}
		out = append(out, c)
	}
	return out, true
}

// lookAtHost asks the node's bridge what a full upgrade would do, and the site what speaks against it.
func (s *site) lookAtHost(ctx context.Context, node string) (*hostLook, error) {
	h := &hostLook{site: s, node: node}
	res, err := s.v.Run(ctx, s.target(), catalog.MethodRun+" /nodes/{node}/updates", map[string]any{"node": node, "word": "check", "timeout": 180})
	if err != nil {
		return h, err
	}
	if err := json.Unmarshal(res.Report, &h.report); err != nil {
		return h, gate.Fail(gate.ErrUnavailable, "Look at the bridge with castellan bridge check on the node.", "what node %s reports of its packages cannot be read: %v", node, err)
	}
	h.packages()
	h.members(ctx)
	h.highlyAvailable(ctx)
	h.storageCluster(ctx)
	h.busy(ctx)
	h.subscription(ctx)
	return h, nil
}

// packages says what of the report itself stands against an upgrade.
func (h *hostLook) packages() {
	for _, why := range h.report.Ready("full") {
		h.no("%s", why)
	}
	if h.report.System.Kind != "pve" {
		h.no("node %s does not report itself as a host of Proxmox VE (%s)", h.node, orDash(h.report.System.Kind))
	}
	for _, why := range hostapt.Forbidden(h.report.All, "", nil) {
		h.no("%s", why)
	}
	for _, text := range h.report.Unread {
		h.note("%s", clip(text, 200))
	}
	if h.report.Automatic.State == "on" {
		h.note("%s installs updates on the node by itself as well", orDash(h.report.Automatic.By))
	}
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// members looks at the cluster: its majority, and that no other node is away.
func (h *hostLook) members(ctx context.Context) {
	rows, ok := h.rows(ctx, "the state of the cluster", "GET /cluster/status", nil)
	if !ok {
		return
	}
	for _, r := range rows {
		switch r["type"] {
		case "cluster":
			h.cluster = true
			if r["quorate"] == "0" {
				h.no("the cluster has no majority: nothing is upgraded then")
			}
		case "node":
			h.nodes = append(h.nodes, r["name"])
			if r["name"] == h.node {
				continue
			}
			h.others = append(h.others, r["name"])
			if !r.On("online") {
				h.no("node %s is offline: one node at a time, with all others there", r["name"])
			}
		}
	}
	slices.Sort(h.nodes)
	slices.Sort(h.others)
}

// majority says whether the others are one without this node; a quorum device counts as a vote.
func (h *hostLook) majority(ctx context.Context) (ok bool, text string) {
	if len(h.nodes) < 2 {
		return true, ""
	}
	votes, left := len(h.nodes), len(h.others)
	device := ""
	var q map[string]json.RawMessage
	if _, err := h.read(ctx, &q, "GET /cluster/config/qdevice", nil); err == nil && len(q) > 0 {
		votes, left, device = votes+1, left+1, ", the quorum device among them"
	}
	return left >= votes/2+1, fmt.Sprintf("without %s %d of %d votes are left%s", h.node, left, votes, device)
}

// highlyAvailable reads what the HA manager has of the nodes and its resources.
func (h *hostLook) highlyAvailable(ctx context.Context) {
	var status struct {
		Manager struct {
			Nodes map[string]string `json:"node_status"`
		} `json:"manager_status"`
	}
	if _, err := h.read(ctx, &status, "GET /cluster/ha/status/manager_status", nil); err != nil {
		h.no("the state of HA could not be read: %s", clip(gate.Clean(err.Error()), 200))
		return
	}
	h.ha = status.Manager.Nodes
	for _, n := range slices.Sorted(maps.Keys(h.ha)) {
		if state := h.ha[n]; n != h.node && state != "online" {
			h.no("HA has node %s as %s: one node at a time, with all others in service", clip(n, 60), clip(state, 20))
		}
	}
	for _, g := range h.inv.Guests {
		if g.HA == "error" || g.HA == "fence" || g.HA == "recovery" {
			h.no("HA has %s in state %s", g.Title(), g.HA)
		}
	}
}

// harmless are Ceph's warnings that say nothing against taking a node away for a while.
var harmless = []string{"AUTH_INSECURE_GLOBAL_ID_RECLAIM", "AUTH_INSECURE_GLOBAL_ID_RECLAIM_ALLOWED", "BLUESTORE_NO_PER_POOL_OMAP", "BLUESTORE_NO_PER_PG_OMAP", "OLD_CRUSH_TUNABLES", "OLD_CRUSH_STRAW_CALC_VERSION",
	"POOL_APP_NOT_ENABLED", "RECENT_CRASH", "RECENT_MGR_MODULE_CRASH", "TELEMETRY_CHANGED", "TOO_FEW_PGS", "POOL_TOO_FEW_PGS", "POOL_TOO_MANY_PGS"}

// noCeph says whether an error tells that there is no Ceph.
func noCeph(err error) bool {
	text := err.Error()
	return strings.Contains(text, "binary not installed") || strings.Contains(text, "not initialized") || strings.Contains(text, "not fully configured")
}

// storageCluster looks at Ceph.
func (h *hostLook) storageCluster(ctx context.Context) {
	var st struct {
		Health struct {
			Status string `json:"status"`
			Checks map[string]struct {
				Summary struct {
					Message string `json:"message"`
				} `json:"summary"`
			} `json:"checks"`
		} `json:"health"`
	}
	if _, err := h.read(ctx, &st, "GET /cluster/ceph/status", nil); err != nil {
		if !noCeph(err) {
			h.no("the health of Ceph could not be read: %s", clip(gate.Clean(err.Error()), 200))
		}
		return
	}
	h.ceph.health = clip(gate.Clean(st.Health.Status), 20)
	for _, name := range slices.Sorted(maps.Keys(st.Health.Checks)) {
		message := strings.TrimSpace(gate.Clean(st.Health.Checks[name].Summary.Message))
		switch {
		case name == "OSDMAP_FLAGS" && message == "noout flag(s) set":
			h.note("Ceph: the flag noout is set already, and stays set")
		case slices.Contains(harmless, name):
			h.note("Ceph warns, harmlessly here: %s (%s)", clip(message, 120), clip(name, 40))
		default:
			h.no("Ceph is not healthy: %s (%s)", clip(message, 160), clip(gate.Clean(name), 40))
		}
	}
	if h.ceph.health != "HEALTH_OK" && len(st.Health.Checks) == 0 {
		h.no("Ceph is not healthy: %s", orDash(h.ceph.health))
	}
	h.daemons(ctx)
	flags, ok := h.rows(ctx, "Ceph's flags", "GET /cluster/ceph/flags", nil)
	h.ceph.noout = ok && slices.ContainsFunc(flags, func(f estate.Config) bool { return f["name"] == "noout" && f.On("value") })
}

// daemons names Ceph's daemons on the node, as its metadata has them: objects by "name@host" in each kind.
func (h *hostLook) daemons(ctx context.Context) {
	var meta map[string]json.RawMessage
	if _, err := h.read(ctx, &meta, "GET /cluster/ceph/metadata", nil); err != nil {
		h.no("which Ceph daemons run on node %s could not be read: %s", h.node, clip(gate.Clean(err.Error()), 200))
		return
	}
	type daemon struct {
		Host string      `json:"hostname"`
		ID   estate.Text `json:"id"`
	}
	mons, left := 0, 0
	for _, kind := range []string{"mon", "mgr", "mds", "osd"} {
		found := map[string]daemon{}
		if json.Unmarshal(meta[kind], &found) != nil {
			var list []daemon
			if json.Unmarshal(meta[kind], &list) != nil && len(meta[kind]) > 0 {
				h.no("which Ceph daemons run on node %s could not be read", h.node)
				return
			}
			for _, d := range list {
				found[string(d.ID)] = d
			}
		}
		for id, d := range found {
			name, at, _ := strings.Cut(id, "@")
			if d.Host == "" {
				d.Host = at
			}
			if kind == "mon" {
				mons++
				if d.Host != h.node {
					left++
				}
			}
			if d.Host == h.node {
				h.ceph.here = append(h.ceph.here, kind+"."+clip(gate.Clean(name), 40))
			}
		}
	}
	slices.Sort(h.ceph.here)
	h.ceph.last = mons > 0 && left <= mons/2
}

// busy names tasks of the node, and replication, that an upgrade would fall into.
func (h *hostLook) busy(ctx context.Context) {
	rows, ok := h.rows(ctx, "the running tasks of node "+h.node, "GET /nodes/{node}/tasks", map[string]string{"node": h.node, "source": "active", "limit": "500"})
	if ok {
		for _, r := range rows {
			if r["endtime"] != "" || r["type"] == "vncproxy" || r["type"] == "vncshell" || r["type"] == "spiceproxy" {
				continue
			}
			h.no("a task runs on the node: %s %s (%s)", clip(gate.Clean(r["type"]), 30), clip(gate.Clean(r["id"]), 30), clip(gate.Clean(r["upid"]), 120))
		}
	}
	rows, ok = h.rows(ctx, "the replication of node "+h.node, "GET /nodes/{node}/replication", map[string]string{"node": h.node})
	if !ok {
		return
	}
	for _, r := range rows {
		switch {
		case r["pid"] != "" && r["pid"] != "0":
			h.no("replication %s runs now", clip(gate.Clean(r["id"]), 30))
		case r["error"] != "" || r["fail_count"] != "" && r["fail_count"] != "0":
			h.note("replication %s failed last: %s", clip(gate.Clean(r["id"]), 30), clip(gate.Clean(r["error"]), 120))
		}
	}
}

// subscription says where the node's packages come from, and what a missing subscription does.
func (h *hostLook) subscription(ctx context.Context) {
	var sub struct {
		Status estate.Text `json:"status"`
	}
	if _, err := h.read(ctx, &sub, "GET /nodes/{node}/subscription", map[string]string{"node": h.node}); err != nil {
		h.note("the subscription could not be read: %s", clip(gate.Clean(err.Error()), 160))
		return
	}
	var repos struct {
		Standard []struct {
			Handle string       `json:"handle"`
			Name   string       `json:"name"`
			Status *estate.Bool `json:"status"`
		} `json:"standard-repos"`
	}
	if _, err := h.read(ctx, &repos, "GET /nodes/{node}/apt/repositories", map[string]string{"node": h.node}); err != nil {
		h.note("the repositories could not be read: %s", clip(gate.Clean(err.Error()), 160))
		return
	}
	active := strings.EqualFold(string(sub.Status), "active")
	for _, r := range repos.Standard {
		on := r.Status != nil && bool(*r.Status)
		if on && strings.HasSuffix(r.Handle, "enterprise") && !active {
			why := fmt.Sprintf("the repository %s is switched on, and the node has no active subscription (%s): it answers 401. Enter a key, or switch it off and the no-subscription one on", clip(gate.Clean(r.Handle), 40), clip(gate.Clean(string(sub.Status)), 20))
			if h.report.Fresh {
				h.note("%s; the package lists were read all the same", why)
			} else {
				h.no("%s", why)
			}
		}
	}
}

// bootsKernel says whether an upgrade brings what only a reboot brings into force.
func bootsKernel(t patch.Transaction) (why []string) {
	for _, c := range t {
		if c.Action == patch.Remove {
			continue
		}
		for _, prefix := range []string{"proxmox-kernel-", "pve-kernel-", "linux-image-", "intel-microcode", "amd64-microcode", "libc6", "systemd", "dbus", "zfs"} {
			if rest, ok := strings.CutPrefix(c.Name, prefix); ok && c.Name != "proxmox-kernel-helper" && (rest == "" || strings.HasSuffix(prefix, "-") || prefix == "zfs") {
				why = append(why, c.Name+" "+c.New)
				break
			}
		}
	}
	return why
}
