package lab

import (
	"net/netip"
	"sort"
	"strings"
	"time"
)

// sdnState holds the written configuration and what was last applied.
type sdnState struct {
	conf    map[string]map[string]M // kind (zones, vnets, subnets, …) → id → keys
	running map[string]map[string]M
	applied bool
	lock    string
}

func newSDN() *sdnState {
	return &sdnState{conf: map[string]map[string]M{}, running: map[string]map[string]M{}}
}

func (d *sdnState) put(kind, id string, m M) {
	if d.conf[kind] == nil {
		d.conf[kind] = map[string]M{}
	}
	d.conf[kind][id] = m
}

// sdnKind describes one collection of SDN objects.
type sdnKind struct {
	kind, key, word string
	typ             string // fixed type, if any
}

func sdnKinds() []sdnKind {
	return []sdnKind{
		{"zones", "zone", "sdn zone object", ""}, {"vnets", "vnet", "sdn vnet object", "vnet"}, {"subnets", "subnet", "sdn subnet object", "subnet"},
		{"controllers", "controller", "sdn controller object", ""}, {"ipams", "ipam", "sdn ipam object", ""}, {"dns", "dns", "sdn dns object", ""},
	}
}

func (c *call) sdnKindOf() sdnKind {
	for _, k := range sdnKinds() {
		if k.kind != "subnets" && strings.HasPrefix(c.op.Path, "/cluster/sdn/"+k.kind) {
			if strings.Contains(c.op.Path, "/subnets") {
				continue
			}
			return k
		}
	}
	return sdnKinds()[2]
}

func (c *call) sdnID(k sdnKind) string {
	id := c.str(k.key)
	if k.kind == "subnets" {
		id = strings.ReplaceAll(strings.ReplaceAll(id, "/", "-"), "%2F", "-")
		vn := c.s.sdn.conf["vnets"][c.str("vnet")]
		if zone, _ := vn["zone"].(string); zone != "" && !strings.HasPrefix(id, zone+"-") {
			id = zone + "-" + id
		}
	}
	return id
}

func (c *call) maySDN(k sdnKind, id string, m M) bool {
	path := "/sdn/" + k.kind + "/" + id
	switch k.kind {
	case "vnets":
		zone, _ := m["zone"].(string)
		path = "/sdn/zones/" + zone + "/" + id
	case "subnets":
		zone, _ := m["zone"].(string)
		vnet, _ := m["vnet"].(string)
		path = "/sdn/zones/" + zone + "/" + vnet
	}
	return c.s.mayAny(c.user.id(), path, "SDN.Audit", "SDN.Allocate")
}

// sdnDigest covers the whole file of a kind.
func (s *state) sdnDigest(kind string) string {
	var b strings.Builder
	for _, id := range sortedKeys(s.sdn.conf[kind]) {
		b.WriteString(id + digestMap(s.sdn.conf[kind][id]))
	}
	return digestOf(b.String())
}

func (c *call) sdnShow(k sdnKind, id string, m M, digest any) M {
	out := copyM(m)
	out[k.key], out["digest"] = id, digest
	if k.typ != "" {
		out["type"] = k.typ
	}
	if k.kind == "subnets" {
		out["id"] = id
		out["subnet"] = id
		if p, err := netip.ParsePrefix(subnetCIDR(id)); err == nil {
			out["cidr"], out["network"], out["mask"] = p.String(), p.Addr().String(), subnetCIDR(id)[strings.Index(subnetCIDR(id), "/")+1:]
		}
		if _, ok := out["dhcp-range"]; !ok {
			out["dhcp-range"] = []any{}
		}
	}
	return out
}

func subnetCIDR(id string) string {
	_, rest, _ := strings.Cut(id, "-")
	i := strings.LastIndex(rest, "-")
	if i < 0 {
		return rest
	}
	return rest[:i] + "/" + rest[i+1:]
}

// pendingView merges what runs with what is written.
func (c *call) pendingView(k sdnKind, id string) M {
	run, conf := c.s.sdn.running[k.kind][id], c.s.sdn.conf[k.kind][id]
	fixed := map[string]bool{"type": true}
	if k.kind == "subnets" {
		fixed["vnet"] = true
	}
	var out M
	switch {
	case run == nil:
		out = M{"state": "new"}
		pend := M{}
		for key, v := range conf {
			if fixed[key] {
				out[key] = v
			} else {
				pend[key] = v
			}
		}
		if len(pend) == 0 {
			pend = M{}
		}
		out["pending"] = pend
	case conf == nil:
		out = copyM(run)
		out["state"], out["pending"] = "deleted", M{}
	default:
		out = copyM(run)
		pend := M{}
		for key, v := range conf {
			if run[key] != v {
				pend[key] = v
			}
		}
		for key := range run {
			if _, ok := conf[key]; !ok {
				pend[key] = "deleted"
			}
		}
		if len(pend) > 0 {
			out["state"], out["pending"] = "changed", pend
		}
	}
	out[k.key], out["digest"] = id, nil
	if k.typ != "" {
		out["type"] = k.typ
	}
	if k.kind == "subnets" {
		full := c.sdnShow(k, id, M{}, nil)
		for key, v := range full {
			if _, ok := out[key]; !ok {
				out[key] = v
			}
		}
	}
	return out
}

func (c *call) sdnIDs(kind string, sets ...map[string]map[string]M) []string {
	seen := map[string]bool{}
	for _, s := range sets {
		for id := range s[kind] {
			seen[id] = true
		}
	}
	out := sortedKeys(seen)
	sort.Strings(out)
	return out
}

func listSDN(c *call) (any, error) {
	k := c.sdnKindOf()
	d := c.s.sdn
	out := []M{}
	add := func(id string, m M, src M) {
		if k.kind == "subnets" && src["vnet"] != c.str("vnet") {
			return
		}
		if t := c.str("type"); t != "" && m["type"] != t {
			return
		}
		if c.maySDN(k, id, src) {
			out = append(out, m)
		}
	}
	switch {
	case c.flag("pending"):
		for _, id := range c.sdnIDs(k.kind, d.conf, d.running) {
			src := d.conf[k.kind][id]
			if src == nil {
				src = d.running[k.kind][id]
			}
			add(id, c.pendingView(k, id), src)
		}
	case c.flag("running"):
		for _, id := range c.sdnIDs(k.kind, d.running) {
			add(id, c.sdnShow(k, id, d.running[k.kind][id], nil), d.running[k.kind][id])
		}
	default:
		for _, id := range c.sdnIDs(k.kind, d.conf) {
			add(id, c.sdnShow(k, id, d.conf[k.kind][id], c.s.sdnDigest(k.kind)), d.conf[k.kind][id])
		}
	}
	return out, nil
}

func getSDN(c *call) (any, error) {
	k := c.sdnKindOf()
	id := c.sdnID(k)
	d := c.s.sdn
	m := d.conf[k.kind][id]
	if c.flag("pending") && (m != nil || d.running[k.kind][id] != nil) {
		return c.pendingView(k, id), nil
	}
	if c.flag("running") {
		if r := d.running[k.kind][id]; r != nil {
			return c.sdnShow(k, id, r, nil), nil
		}
		m = nil
	}
	if m == nil {
		if k.kind == "zones" || k.kind == "controllers" || k.kind == "ipams" || k.kind == "dns" {
			return nil, die("sdn '%s' does not exist", id)
		}
		return nil, die("sdn '%s' does not exist", id)
	}
	if !c.maySDN(k, id, m) {
		return nil, denied("/sdn/" + k.kind + "/" + id + ", SDN.Audit|SDN.Allocate")
	}
	return c.sdnShow(k, id, m, c.s.sdnDigest(k.kind)), nil
}

func createSDN(c *call) (any, error) {
	if err := c.sdnLock(); err != nil {
		return nil, err
	}
	k := c.sdnKindOf()
	id := c.sdnID(k)
	d := c.s.sdn
	fail := func(format string, args ...any) error {
		return die("create "+k.word+" failed: "+format, args...)
	}
	if d.conf[k.kind][id] != nil {
		return nil, fail("%s ID '%s' already defined", k.word, id)
	}
	m := M{}
	for key := range c.p {
		if key != k.key && key != "lock-token" && key != "delete" && key != "digest" {
			m[key] = c.typedParam(key)
		}
	}
	switch k.kind {
	case "vnets":
		zone := c.str("zone")
		if d.conf["zones"][zone] == nil {
			return nil, fail("cannot lookup undefined type! at /usr/share/perl5/PVE/API2/Network/SDN/Vnets.pm line 326.")
		}
		if err := c.vnetAllowed(zone, m); err != nil {
			return nil, prefixed("create "+k.word+" failed", err)
		}
		delete(m, "type")
	case "subnets":
		vnet := c.str("vnet")
		if d.conf["vnets"][vnet] == nil {
			return nil, fail("vnet %s does not exist", vnet)
		}
		m["vnet"], m["zone"] = vnet, d.conf["vnets"][vnet]["zone"]
		delete(m, "type")
	}
	d.put(k.kind, id, m)
	return nil, nil
}

// vnetAllowed applies what the kind of zone says to a vnet.
func (c *call) vnetAllowed(zone string, m M) error {
	typ, _ := c.s.sdn.conf["zones"][zone]["type"].(string)
	switch {
	case typ == "simple" && m["tag"] != nil:
		return wrapped(map[string]string{"tag": "vlan tag is not allowed on simple zone"})
	case typ != "simple" && m["tag"] == nil:
		return wrapped(map[string]string{"tag": "missing vlan tag"})
	}
	return nil
}

func updateSDN(c *call) (any, error) {
	if err := c.sdnLock(); err != nil {
		return nil, err
	}
	k := c.sdnKindOf()
	id := c.sdnID(k)
	m := c.s.sdn.conf[k.kind][id]
	if m == nil {
		if k.kind == "vnets" { // its rights hang on the zone, which is looked for first
			return nil, die("sdn '%s' does not exist", id)
		}
		return nil, die("update %s failed: sdn '%s' does not exist", k.word, id)
	}
	if dg := c.str("digest"); dg != "" && dg != c.s.sdnDigest(k.kind) {
		return nil, die("update %s failed: %s", k.word, msgModified)
	}
	for _, key := range splitList(c.str("delete")) {
		delete(m, key)
	}
	for key := range c.p {
		switch key {
		case k.key, "lock-token", "delete", "digest", "vnet":
		default:
			m[key] = c.typedParam(key)
		}
	}
	return nil, nil
}

func deleteSDN(c *call) (any, error) {
	if err := c.sdnLock(); err != nil {
		return nil, err
	}
	k := c.sdnKindOf()
	id := c.sdnID(k)
	d := c.s.sdn
	if d.conf[k.kind][id] == nil {
		if k.kind == "vnets" {
			return nil, die("sdn '%s' does not exist", id)
		}
		return nil, die("delete %s failed: sdn '%s' does not exist", k.word, id)
	}
	switch k.kind {
	case "zones":
		for _, v := range sortedKeys(d.conf["vnets"]) {
			if d.conf["vnets"][v]["zone"] == id {
				return nil, die("delete %s failed: zone %s is used by vnet %s at /usr/share/perl5/PVE/Network/SDN/Zones/Plugin.pm line 149.", k.word, id, v)
			}
		}
	case "vnets":
		for _, v := range d.conf["subnets"] {
			if v["vnet"] == id {
				return nil, prefixed("delete "+k.word+" failed", wrapped(map[string]string{"vnet": "Can't delete vnet if subnets exists"}))
			}
		}
	}
	delete(d.conf[k.kind], id)
	return nil, nil
}

// sdnLock refuses writes while somebody else holds the lock.
func (c *call) sdnLock() error {
	if l := c.s.sdn.lock; l != "" && c.str("lock-token") != l {
		return die("global configuration lock token does not match")
	}
	return nil
}

func applySDN(c *call) (any, error) {
	if err := c.sdnLock(); err != nil {
		return nil, err
	}
	if c.str("lock-token") != "" && c.flagOr("release-lock", true) {
		c.s.sdn.lock = ""
	}
	return c.quick("reloadnetworkall", "", 500*time.Millisecond, func(t *task) error {
		d := c.s.sdn
		d.running = map[string]map[string]M{}
		for kind, objs := range d.conf {
			d.running[kind] = map[string]M{}
			for id, m := range objs {
				d.running[kind][id] = copyM(m)
			}
		}
		d.applied = true
		for _, n := range c.s.nodes {
			t.say("%s: reloading network config", n.name)
			if !n.up() {
				t.say("proxy handler failed: ssh: connect to host %s port 22: Connection refused", n.ip)
				t.say("command 'pvesh set /nodes/%s/network --regenerate-frr 0' failed: exit code 255", n.name)
			}
		}
		return nil
	}), nil
}

func rollbackSDN(c *call) (any, error) {
	if err := c.sdnLock(); err != nil {
		return nil, err
	}
	d := c.s.sdn
	d.conf = map[string]map[string]M{}
	for kind, objs := range d.running {
		d.conf[kind] = map[string]M{}
		for id, m := range objs {
			d.conf[kind][id] = copyM(m)
		}
	}
	return nil, nil
}

func sdnIndex(c *call) (any, error) {
	out := []M{}
	for _, k := range []string{"vnets", "zones", "controllers", "ipams", "dns", "fabrics"} {
		out = append(out, M{"id": k})
	}
	return out, nil
}

// sdnLines and networkLines are the SDN part of /cluster/resources.
func (c *call) sdnLines() []M {
	out := []M{}
	for _, id := range sortedKeys(c.s.sdn.running["zones"]) {
		for _, n := range c.s.nodes {
			if c.s.mayAny(c.user.id(), "/sdn/zones/"+id, "SDN.Audit", "SDN.Use") {
				out = append(out, M{"id": "sdn/" + n.name + "/" + id, "type": "sdn", "sdn": id, "node": n.name, "status": "available"})
			}
		}
	}
	return out
}

func (c *call) networkLines() []M {
	out := []M{}
	if !c.s.mayAny(c.user.id(), "/sdn/zones/localnetwork", "SDN.Audit", "SDN.Use") {
		return out
	}
	for _, n := range c.s.nodes {
		out = append(out, M{"id": "network/" + n.name + "/zone/localnetwork", "type": "network", "network": "localnetwork", "network-type": "zone", "node": n.name, "status": "ok"})
	}
	return out
}

func nodeSDNZones(c *call) (any, error) {
	out := []M{}
	for _, id := range sortedKeys(c.s.sdn.running["zones"]) {
		if c.s.mayAny(c.user.id(), "/sdn/zones/"+id, "SDN.Audit", "SDN.Use") {
			out = append(out, M{"zone": id, "status": "available"})
		}
	}
	return out, nil
}
