package estate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"castellan/internal/gate"
)

// ResourceParts are the parts that the site tells as a whole, one call each.
func ResourceParts() []Part {
	return []Part{PartResources, PartStatus, PartStorages, PartPools, PartHA, PartReplication, PartJobs, PartOptions, PartACL, PartUsers, PartGroups, PartRoles,
		PartZones, PartVNets, PartCeph}
}

// ConfigParts are those that are read per guest, node, storage and pool.
func ConfigParts() []Part {
	return []Part{PartConfig, PartSnaps, PartNetwork, PartContent, PartMembers, PartCephNode}
}

// Graph is what is known of the site after these parts were read whole: their things and edges, and those of everything
// else that this survey has read. With none given nothing more is read. Its Gaps say what is missing. Graphs are shared:
// callers only read them.
func (s *Survey) Graph(parts ...Part) *Graph {
	s.readAll(parts)
	if s.site != nil {
		if g := s.site.same(s); g != nil {
			out := *g
			out.Gaps = s.Gaps()
			return &out
		}
	}
	answers := s.answers()
	change := s.site.changes()
	g := s.build(answers)
	if s.site != nil {
		s.site.remember(&drawn{answers, g, change, s.Oldest()}, s.v.Now().Add(-s.maxAge))
	}
	return g
}

// drawn is the graph that was built last, and of which answers.
type drawn struct {
	of     map[key]*answer
	g      *Graph
	change int
	oldest time.Time
}

// same finds a graph that holds all that a survey has read, and nothing that is too old or was forgotten since.
func (t *memory) same(s *Survey) *Graph {
	t.mu.Lock()
	d, change := t.drawn, t.change
	t.mu.Unlock()
	if d == nil || d.change != change || d.oldest.Before(s.v.Now().Add(-s.maxAge)) {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.moved != nil {
		return nil
	}
	for k, p := range s.slots.each() {
		if a := p.a.Load(); a != nil && !a.tellsNothing() && d.of[k] != a {
			return nil
		}
	}
	return d.g
}

// remember keeps the larger graph, as long as it is good.
func (t *memory) remember(d *drawn, from time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if old := t.drawn; old == nil || old.change != t.change || old.oldest.Before(from) || len(old.of) <= len(d.of) {
		t.drawn = d
	}
}

func (a *answer) tellsNothing() bool { return a.rows == nil && a.inv == nil }

func (s *Survey) readAll(parts []Part) {
	var jobs []func()
	for _, p := range parts {
		switch p {
		case PartResources:
			jobs = append(jobs, func() { s.Inventory() })
		case PartStatus:
			jobs = append(jobs, func() { s.Status() })
		case PartStorages:
			jobs = append(jobs, func() { s.Storages() })
		case PartPools:
			jobs = append(jobs, func() { s.Pools() })
		case PartHA:
			jobs = append(jobs, func() { s.HAResources() }, func() { s.HARules() })
		case PartReplication:
			jobs = append(jobs, func() { s.Replication() })
		case PartJobs:
			jobs = append(jobs, func() { s.Jobs() })
		case PartOptions:
			jobs = append(jobs, func() { s.Options() })
		case PartACL:
			jobs = append(jobs, func() { s.ACL() })
		case PartUsers:
			jobs = append(jobs, func() { s.Users() })
		case PartGroups:
			jobs = append(jobs, func() { s.Groups() })
		case PartRoles:
			jobs = append(jobs, func() { s.Roles() })
		case PartZones:
			jobs = append(jobs, func() { s.Zones() })
		case PartVNets:
			jobs = append(jobs, func() { s.VNets() })
		case PartCeph:
			jobs = append(jobs, func() { s.Ceph() })
		}
	}
	each(s, jobs, func(func()) string { return "" }, func(f func()) { f() })
	for _, p := range parts {
		s.readEach(p)
	}
}

func (s *Survey) readEach(p Part) {
	guests := s.Inventory().Guests
	var nodes []string
	for _, n := range s.Inventory().Nodes {
		nodes = append(nodes, n.Name)
	}
	self := func(n string) string { return n }
	switch p {
	case PartConfig:
		s.Configs(guests)
	case PartSnaps:
		s.SnapshotsOf(guests)
	case PartNetwork:
		each(s, nodes, self, func(n string) { s.Network(n) })
	case PartContent:
		each(s, s.Places(), func(p Place) string { return p.Node }, func(p Place) { s.Content(p.Node, p.Storage) })
	case PartMembers:
		rows, _ := s.Pools()
		each(s, rows, func(Config) string { return "" }, func(r Config) { s.members(r["poolid"]) })
	case PartCephNode:
		if c, ok := s.Ceph(); !ok || len(c) > 0 {
			each(s, nodes, self, func(n string) { s.CephPools(n) })
		}
	}
}

// drawing builds a graph from answers.
type drawing struct {
	*Graph
	inv   *Inventory
	nodes []string
	types map[string]string // storage → type
	on    map[string]string // guest → node

	hidden []hiddenClone
}

// build draws what the answers tell. The listing and the storages come first: other parts look things up in them.
func (s *Survey) build(answers map[key]*answer) *Graph {
	d := &drawing{Graph: NewGraph(), inv: &Inventory{}, types: map[string]string{}, on: map[string]string{}}
	keys := slices.SortedFunc(maps.Keys(answers), func(a, b key) int {
		p, q := a.what(), b.what()
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), cmp.Compare(p.part, q.part), cmp.Compare(a.object, b.object), cmp.Compare(p.op, q.op), cmp.Compare(p.params, q.params))
	})
	s.mu.Lock()
	moved := s.moved
	s.mu.Unlock()
	for _, k := range keys {
		a := answers[k]
		if a.gap != nil {
			d.Gaps = append(d.Gaps, *a.gap)
		}
		if k.what().part == PartResources && a.inv != nil {
			d.listing(cmp.Or(moved, a.inv), a.at)
			continue
		}
		d.part(k, a)
	}
	d.connectHidden()
	d.Gaps = slices.Compact(d.Gaps)
	return d.Graph
}

func (k key) rank() int {
	switch {
	case k.what().part == PartResources:
		return 0
	case !k.single():
		return 1
	case k.what().part == PartConfig:
		return 2
	}
	return 3
}

// part draws one answer by the call that gave it.
func (d *drawing) part(k key, a *answer) {
	rows := func(f func(Config, time.Time)) {
		for _, r := range a.rows {
			f(r, a.at)
		}
	}
	switch k.what().op {
	case "GET /cluster/status":
		rows(d.status)
	case "GET /storage":
		d.storages(a.rows, a.at)
	case "GET /pools":
		rows(d.pool)
	case "GET /cluster/ha/resources":
		rows(d.haResource)
	case "GET /cluster/ha/rules", "GET /cluster/ha/groups":
		rows(d.haRule)
	case "GET /cluster/replication":
		rows(d.replication)
	case "GET /cluster/backup":
		rows(d.job)
	case "GET /access/acl":
		rows(d.acl)
	case "GET /access/users":
		rows(d.user)
	case "GET /cluster/sdn/zones":
		rows(d.zone)
	case "GET /cluster/sdn/vnets":
		rows(d.vnet)
	case "GET /nodes/{node}/qemu/{vmid}/config", "GET /nodes/{node}/lxc/{vmid}/config":
		if len(a.rows) == 1 {
			d.guestConfig(k.object, a.rows[0], a.at)
		}
	case "GET /nodes/{node}/qemu/{vmid}/snapshot", "GET /nodes/{node}/lxc/{vmid}/snapshot":
		rows(func(r Config, at time.Time) { d.snapshot(k.object, r, at) })
	case "GET /nodes/{node}/network":
		d.network(k.object, a.rows, a.at)
	case "GET /nodes/{node}/storage/{storage}/content":
		node, storage, _ := strings.Cut(k.object, "/")
		rows(func(r Config, at time.Time) { d.volume(node, storage, r, at) })
	case "GET /cluster/ceph/status", "GET /cluster/ceph/metadata", "GET /nodes/{node}/ceph/pool":
		d.ceph(k, a.rows, a.at)
	}
}

func object(kind gate.ObjectKind, id string) gate.Object { return gate.Object{Kind: kind, ID: id} }

func guestObject(id string) gate.Object  { return object(gate.ObjectGuest, id) }
func nodeObject(n string) gate.Object    { return object(gate.ObjectNode, n) }
func storageObject(n string) gate.Object { return object(gate.ObjectStorage, n) }
func volumeObject(id string) gate.Object { return object(gate.ObjectVolume, id) }
func siteObject() gate.Object            { return object(gate.ObjectSite, "") }
func (d *drawing) edge(from, to gate.Object, kind EdgeKind, key string) {
	d.Connect(Edge{From: from, To: to, Kind: kind, Key: key})
}

// listing draws guests, nodes, storages and pools of the site's listing.
func (d *drawing) listing(inv *Inventory, at time.Time) {
	d.inv = inv
	for _, n := range inv.Nodes {
		d.Add(Vertex{Object: nodeObject(n.Name), Title: "node " + n.Name, Read: at, Facts: Config{"status": n.Status}})
		d.nodes = append(d.nodes, n.Name)
	}
	for i := range inv.Guests {
		g := &inv.Guests[i]
		facts := Config{"status": g.Status, "type": g.Kind, "node": g.Node}
		for k, text := range map[string]string{"name": g.Name, "lock": g.Lock, "tags": strings.Join(g.Tags, ";"), "pool": g.Pool, "ha": g.HA} {
			if text != "" {
				facts[k] = text
			}
		}
		if g.Template {
			facts["template"] = "1"
		}
		d.on[g.ID] = g.Node
		d.Add(Vertex{Object: guestObject(g.ID), Title: clipTo(g.Title(), 80), Read: at, Facts: facts})
		d.edge(guestObject(g.ID), nodeObject(g.Node), EdgeRunsOn, "")
		if g.Pool != "" {
			d.edge(guestObject(g.ID), object(gate.ObjectPool, g.Pool), EdgeMember, "pool")
		}
	}
	for _, st := range inv.Storages {
		d.types[st.Name] = st.Type
		facts := Config{"type": st.Type, "content": sortedList(st.Content)}
		if st.Shared {
			facts["shared"] = "1"
		}
		d.Add(Vertex{Object: storageObject(st.Name), Title: "storage " + st.Name, Read: at, Facts: facts})
		d.edge(storageObject(st.Name), nodeObject(st.Node), EdgeProvided, "")
	}
	for _, p := range inv.Pools {
		d.addPool(p, at)
	}
	for _, z := range inv.Zones {
		if z.Type == "sdn" || z.Type == "zone" {
			d.Add(Vertex{Object: object(gate.ObjectZone, z.Name), Title: "zone " + z.Name, Read: at})
			d.edge(object(gate.ObjectZone, z.Name), nodeObject(z.Node), EdgeCarries, "")
		}
	}
}

func sortedList(list string) string {
	parts := fields(list)
	slices.Sort(parts)
	return strings.Join(parts, ",")
}

// fields splits a list as Proxmox does.
func fields(list string) []string { return gate.SplitList(list) }

func (d *drawing) addPool(name string, at time.Time) {
	o := object(gate.ObjectPool, name)
	d.Add(Vertex{Object: o, Title: "pool " + clip(name), Read: at})
	if i := strings.LastIndexByte(name, '/'); i > 0 {
		d.edge(o, object(gate.ObjectPool, name[:i]), EdgeMember, "")
	}
}

// status draws what the cluster says of its members.
func (d *drawing) status(r Config, at time.Time) {
	switch r["type"] {
	case "node":
		facts := Config{"online": r["online"]}
		for _, k := range []string{"ip", "nodeid", "local"} {
			if r[k] != "" {
				facts[k] = r[k]
			}
		}
		d.Add(Vertex{Object: nodeObject(r["name"]), Title: "node " + r["name"], Read: at, Facts: facts})
	case "cluster":
		d.Add(Vertex{Object: siteObject(), Title: "cluster " + clip(r["name"]), Read: at, Facts: Config{"name": r["name"], "quorate": r["quorate"], "nodes": r["nodes"]}})
	}
}

// storages draws the storages as they are configured, those that lie on others, and those that are one place.
func (d *drawing) storages(rows []Config, at time.Time) {
	type placed struct {
		name, path, kind string
		nodes            []string
	}
	places := map[string][]string{}
	var paths []placed
	for _, r := range rows {
		name, kind := r["storage"], r["type"]
		o := storageObject(name)
		facts := Config{"type": kind, "content": sortedList(r["content"])}
		for _, k := range []string{"shared", "disable", "nodes", "path", "pool", "vgname", "thinpool", "server", "export", "datastore", "namespace", "share", "base", "portal", "target"} {
			if r[k] != "" {
				facts[k] = r[k]
			}
		}
		d.types[name] = kind
		d.Add(Vertex{Object: o, Title: "storage " + name, Read: at, Facts: facts})
		restricted := fields(r["nodes"])
		on := restricted
		if len(on) == 0 {
			on = d.nodes
		}
		if !r.On("disable") {
			for _, n := range on {
				if len(d.Needs(o, EdgeProvided)) > 0 && hasTo(d.Needs(o, EdgeProvided), nodeObject(n)) {
					continue
				}
				key := ""
				if len(restricted) > 0 {
					key = "nodes"
				}
				d.edge(o, nodeObject(n), EdgeProvided, key)
			}
		}
		if same := place(r); same != "" {
			places[same] = append(places[same], name)
		}
		if p := cmp.Or(r["path"], r["mountpoint"]); strings.HasPrefix(p, "/") {
			paths = append(paths, placed{name, path.Clean(p), kind, restricted})
		}
		if base, _, ok := strings.Cut(r["base"], ":"); ok && base != "" {
			d.edge(o, storageObject(base), EdgeBacking, "base")
		}
		if (kind == "rbd" || kind == "cephfs") && r["monhost"] == "" {
			pool := cmp.Or(r["pool"], "rbd")
			if kind == "cephfs" {
				pool = cmp.Or(r["fs-name"], "cephfs")
			}
			d.edge(o, object(gate.ObjectCeph, "pool/"+pool), EdgeBacking, "pool")
		}
	}
	for _, names := range places {
		for _, a := range names {
			for _, b := range names {
				if a != b {
					d.edge(storageObject(a), storageObject(b), EdgeSame, "")
				}
			}
		}
	}
	for _, a := range paths { // a folder below another storage's
		for _, b := range paths {
			if a.name != b.name && a.path != b.path && (b.path == "/" || strings.HasPrefix(a.path, b.path+"/")) && meet(a.nodes, b.nodes) {
				d.edge(storageObject(a.name), storageObject(b.name), EdgeBacking, "path")
			}
		}
	}
}

func meet(a, b []string) bool {
	return len(a) == 0 || len(b) == 0 || slices.ContainsFunc(a, func(n string) bool { return slices.Contains(b, n) })
}

func hasTo(edges []Edge, o gate.Object) bool {
	return slices.ContainsFunc(edges, func(e Edge) bool { return e.To == o })
}

// place says where a storage's data is; equal places are one. Empty = nothing to compare.
func place(r Config) string {
	folder := func(p string) string {
		if p == "" {
			return ""
		}
		return path.Clean("/" + p)
	}
	join := func(must ...string) string {
		if slices.Contains(must, "") {
			return ""
		}
		return strings.Join(must, " ")
	}
	with := func(base string, may ...string) string {
		if base == "" {
			return ""
		}
		return base + " " + strings.Join(may, " ")
	}
	switch r["type"] {
	case "dir", "btrfs":
		return join("path", folder(r["path"]))
	case "nfs":
		return with(join("nfs", r["server"], folder(r["export"])), folder(r["subdir"]))
	case "cifs":
		return with(join("cifs", r["server"], r["share"]), folder(r["subdir"]))
	case "zfspool":
		return join("zfs", r["pool"])
	case "lvm":
		return join("lvm", r["vgname"])
	case "lvmthin":
		return join("lvm", r["vgname"], r["thinpool"])
	case "rbd":
		return with("rbd", r["monhost"], cmp.Or(r["pool"], "rbd"), r["namespace"])
	case "cephfs":
		return with("cephfs", r["monhost"], r["fs-name"], folder(r["subdir"]))
	case "pbs":
		return with(join("pbs", r["server"], r["datastore"]), r["port"], r["namespace"])
	case "iscsi", "iscsidirect":
		return join("iscsi", r["portal"], r["target"])
	}
	return ""
}

func (d *drawing) pool(r Config, at time.Time) {
	d.addPool(r["poolid"], at)
	var members []Config
	if rows, err := rowsOf(json.RawMessage(cmp.Or(r["members"], "[]"))); err == nil {
		members = rows
	}
	for _, m := range members {
		o := storageObject(m["storage"])
		if m["vmid"] != "" {
			o = guestObject(m["vmid"])
		} else if m["storage"] == "" {
			continue
		}
		d.edge(o, object(gate.ObjectPool, r["poolid"]), EdgeMember, "pool")
	}
}

// haGuest is the guest behind an HA resource's id ("vm:101", "ct:201", "101").
func haGuest(sid string) string {
	_, id, ok := strings.Cut(sid, ":")
	if !ok {
		id = sid
	}
	return id
}

func (d *drawing) haSID(sid string) string {
	if strings.Contains(sid, ":") {
		return sid
	}
	if g, ok := d.inv.ByID(sid); ok && g.Kind == CT {
		return "ct:" + sid
	}
	return "vm:" + sid
}

func (d *drawing) haResource(r Config, at time.Time) {
	sid := d.haSID(r["sid"])
	o := object(gate.ObjectHA, sid)
	d.Add(Vertex{Object: o, Title: "HA resource " + sid, Read: at, Facts: Config{"state": r["state"], "type": r["type"]}})
	d.edge(o, guestObject(haGuest(sid)), EdgeManages, "")
	if g := r["group"]; g != "" {
		d.edge(object(gate.ObjectHARule, g), o, EdgeManages, "group")
	}
}

// haRule draws a rule, or a group as PVE 8 has it.
func (d *drawing) haRule(r Config, at time.Time) {
	id := cmp.Or(r["rule"], r["group"])
	o := object(gate.ObjectHARule, id)
	facts := Config{"type": cmp.Or(r["type"], "group")}
	for _, k := range []string{"affinity", "strict", "restricted", "disable", "nofailback"} {
		if r[k] != "" {
			facts[k] = r[k]
		}
	}
	d.Add(Vertex{Object: o, Title: "HA rule " + id, Read: at, Facts: facts})
	for _, sid := range fields(r["resources"]) {
		d.edge(o, object(gate.ObjectHA, d.haSID(sid)), EdgeManages, "resources")
	}
	for _, n := range fields(r["nodes"]) {
		name, _, _ := strings.Cut(n, ":")
		d.edge(o, nodeObject(name), EdgeManages, "nodes")
	}
}

func (d *drawing) replication(r Config, at time.Time) {
	o := object(gate.ObjectReplication, r["id"])
	d.Add(Vertex{Object: o, Title: "replication " + r["id"], Read: at, Facts: Config{"schedule": r["schedule"], "disable": r["disable"], "source": r["source"]}})
	guest := r["guest"]
	if guest == "" {
		guest, _, _ = strings.Cut(r["id"], "-")
	}
	d.edge(o, guestObject(guest), EdgeReplicates, "guest")
	if r["target"] != "" {
		d.edge(o, nodeObject(r["target"]), EdgeReplicates, "target")
	}
}

// job draws a backup job and the guests that it takes.
func (d *drawing) job(r Config, at time.Time) {
	o := object(gate.ObjectJob, r["id"])
	facts := Config{}
	for _, k := range []string{"enabled", "schedule", "all", "pool", "exclude", "node", "mode"} {
		if r[k] != "" {
			facts[k] = r[k]
		}
	}
	d.Add(Vertex{Object: o, Title: "backup job " + clip(r["id"]), Read: at, Facts: facts})
	if st := r["storage"]; st != "" {
		d.edge(o, storageObject(st), EdgeBacksUp, "storage")
	}
	takes := func(g *Guest) bool { return r["node"] == "" || g.Node == r["node"] }
	switch {
	case r.On("all"):
		out := fields(r["exclude"])
		d.edge(o, siteObject(), EdgeBacksUp, "all")
		for i := range d.inv.Guests {
			if g := &d.inv.Guests[i]; takes(g) && !slices.Contains(out, g.ID) {
				d.edge(o, guestObject(g.ID), EdgeBacksUp, "all")
			}
		}
	case r["pool"] != "":
		d.edge(o, object(gate.ObjectPool, r["pool"]), EdgeBacksUp, "pool")
		for i := range d.inv.Guests {
			g := &d.inv.Guests[i]
			if !takes(g) {
				continue
			}
			if g.Pool == r["pool"] {
				d.edge(o, guestObject(g.ID), EdgeBacksUp, "pool")
			} else if strings.HasPrefix(g.Pool, r["pool"]+"/") { // whether a job on a pool takes those below differs by version
				d.Connect(Edge{From: o, To: guestObject(g.ID), Kind: EdgeBacksUp, Key: "pool", Unknown: true})
			}
		}
	default:
		for _, id := range fields(r["vmid"]) {
			if g, ok := d.inv.ByID(id); ok && !takes(&g) {
				continue
			}
			d.edge(o, guestObject(id), EdgeBacksUp, "vmid")
		}
	}
}

// acl draws one entry: the vertex is the path, the edges are its entries.
func (d *drawing) acl(r Config, at time.Time) {
	p := r["path"]
	o := object(gate.ObjectACL, p)
	d.Add(Vertex{Object: o, Title: "rights on " + clip(p), Read: at})
	key := r["roleid"]
	if r["propagate"] == "0" {
		key += " (this path only)"
	}
	d.edge(o, object(gate.ObjectUser, r["ugid"]), EdgeGrants, key)
	d.edge(o, object(gate.ObjectUser, r["roleid"]), EdgeGrants, "role")
	if target, ok := aclObject(p); ok {
		d.edge(o, target, EdgeGrants, "path")
	}
}

func aclObject(p string) (gate.Object, bool) {
	if p == "/" {
		return siteObject(), true
	}
	top, rest, _ := strings.Cut(strings.TrimPrefix(p, "/"), "/")
	kinds := map[string]gate.ObjectKind{"vms": gate.ObjectGuest, "storage": gate.ObjectStorage, "nodes": gate.ObjectNode, "pool": gate.ObjectPool}
	if kind, ok := kinds[top]; ok && rest != "" {
		return object(kind, rest), true
	}
	if top == "sdn" {
		parts := strings.Split(rest, "/")
		switch {
		case len(parts) >= 3 && parts[0] == "zones":
			return object(gate.ObjectVNet, parts[2]), true
		case len(parts) == 2 && parts[0] == "zones":
			return object(gate.ObjectZone, parts[1]), true
		}
	}
	return gate.Object{}, false
}

func (d *drawing) user(r Config, at time.Time) {
	o := object(gate.ObjectUser, r["userid"])
	facts := Config{}
	for _, k := range []string{"enable", "expire", "realm-type"} {
		if r[k] != "" {
			facts[k] = r[k]
		}
	}
	d.Add(Vertex{Object: o, Title: "user " + clip(r["userid"]), Read: at, Facts: facts})
	groups := fields(r["groups"])
	if strings.HasPrefix(r["groups"], "[") {
		groups = nil
		_ = json.Unmarshal([]byte(r["groups"]), &groups)
	}
	for _, g := range groups {
		d.edge(o, object(gate.ObjectUser, g), EdgeMember, "group")
	}
	var tokens []struct {
		ID Text `json:"tokenid"`
	}
	if json.Unmarshal([]byte(r["tokens"]), &tokens) == nil {
		for _, t := range tokens {
			id := fmt.Sprintf("%s!%s", r["userid"], t.ID)
			d.Add(Vertex{Object: object(gate.ObjectUser, id), Title: "token " + clip(id), Read: at})
			d.edge(object(gate.ObjectUser, id), o, EdgeMember, "token")
		}
	}
}
