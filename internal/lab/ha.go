package lab

import (
	"fmt"
	"sort"
	"strings"
	"time"
)

// haState is the HA stack: resources, rules, and the manager's rounds.
type haState struct {
	resources map[string]*haResource
	rules     map[string]M
	order     []string
	master    string
}

// haResource is one managed guest. request is what the configuration asks for, state the manager's word.
type haResource struct {
	sid, request, state, comment string
	crm                          string // empty while queued
	node                         string
	maxRestart, maxRelocate      int
	failback                     int
	gen                          int // outdates scheduled rounds
	explicit                     map[string]bool
}

func newHA() *haState { return &haState{resources: map[string]*haResource{}, rules: map[string]M{}} }

// haRound is the time between two rounds of the manager.
const haRound = 10 * time.Second

func (s *state) managed(g *guest) bool {
	r := s.ha.resources[g.sid()]
	return r != nil && r.request != "ignored"
}

func (s *state) haStatus(g *guest) M {
	r := s.ha.resources[g.sid()]
	if r == nil || r.request == "ignored" {
		return M{"managed": 0}
	}
	m := M{"managed": 1}
	if r.request != "" {
		m["state"] = r.request
	}
	return m
}

func (s *state) guestBySID(sid string) *guest {
	kind, id, _ := strings.Cut(sid, ":")
	g := s.guests[atoi(id)]
	if g == nil || kind == "vm" && g.kind != kindQemu || kind == "ct" && g.kind != kindLXC {
		return nil
	}
	return g
}

// sidOf resolves a resource id; a bare guest id is enough.
func (c *call) sidOf() string {
	sid := c.str("sid")
	if !strings.Contains(sid, ":") {
		if g := c.s.guests[atoi(sid)]; g != nil {
			return g.sid()
		}
		return "vm:" + sid
	}
	return sid
}

// haRequest is a guest power call on a managed guest: the task only hands the request on.
func (c *call) haRequest(g *guest, verb, want string) any {
	typ := "hastart"
	if verb == "stop" {
		typ = "hastop"
	}
	return c.quick(typ, fmt.Sprint(g.id), 800*time.Millisecond, func(t *task) error {
		t.say("Requesting HA %s for %s %d", verb, g.word(), g.id)
		c.s.haWant(c.s.ha.resources[g.sid()], want)
		return nil
	})
}

func (c *call) haMigrate(g *guest, target string) any {
	return c.quick("hamigrate", fmt.Sprint(g.id), 800*time.Millisecond, func(t *task) error {
		t.say("Requesting HA migration for %s %d to node %s", g.word(), g.id, target)
		c.s.haMove(c.s.ha.resources[g.sid()], target)
		return nil
	})
}

// haWant changes the wish and lets the manager work on it in its rounds.
func (s *state) haWant(r *haResource, want string) {
	if r == nil {
		return
	}
	r.request = want
	r.gen++
	gen := r.gen
	step := func(d time.Duration, do func(g *guest)) {
		s.after(d, func() {
			g := s.guestBySID(r.sid)
			if r.gen == gen && s.ha.resources[r.sid] == r && g != nil {
				do(g)
			}
		})
	}
	switch want {
	case "started", "enabled":
		step(haRound*7/10, func(g *guest) {
			r.crm, r.state = "started", "starting"
			if g.running {
				r.state = "started"
			}
		})
		step(haRound*13/10, func(g *guest) {
			if !g.running && s.startable(g) == nil {
				s.bootGuest(g)
			}
			r.state = "started"
		})
	case "stopped", "disabled":
		step(haRound*7/10, func(g *guest) {
			r.crm, r.state = "request_stop", "stopping"
			if !g.running {
				r.crm, r.state = "stopped", want
			}
		})
		step(haRound*16/10, func(g *guest) {
			if g.running {
				s.haltGuest(g)
			}
			r.crm, r.state = "stopped", want
		})
	case "ignored":
		step(haRound, func(*guest) { r.state, r.crm = "ignored", "ignored" })
	}
}

func (s *state) haMove(r *haResource, target string) {
	if r == nil {
		return
	}
	r.gen++
	gen := r.gen
	s.after(haRound, func() {
		if r.gen == gen {
			r.crm, r.state = "migrate", "migrate"
		}
	})
	s.after(2*haRound, func() {
		g := s.guestBySID(r.sid)
		if r.gen != gen || g == nil {
			return
		}
		for _, k := range g.diskKeys(g.conf) {
			if x := s.vol(g.node, volumeOf(g.conf[k])); x != nil && x.node != "" {
				s.dropVol(x)
				s.addVol(target, x)
			}
		}
		g.node, r.node = target, target
		r.crm, r.state = r.request, r.request
		s.touch(g)
	})
}

func (s *state) haRemove(sid string) {
	if s.ha.resources[sid] == nil {
		return
	}
	delete(s.ha.resources, sid)
	for id, r := range s.ha.rules {
		list, _ := r["resources"].(string)
		var keep []string
		for _, x := range splitList(list) {
			if x != sid {
				keep = append(keep, x)
			}
		}
		if len(keep) == 0 {
			delete(s.ha.rules, id)
			continue
		}
		r["resources"] = strings.Join(keep, ",")
	}
}

func (r *haResource) conf() M {
	kind, _, _ := strings.Cut(r.sid, ":")
	m := M{"sid": r.sid, "type": kind}
	if r.request != "" {
		m["state"] = r.request
	}
	if r.comment != "" {
		m["comment"] = r.comment
	}
	for k, v := range map[string]int{"max_restart": r.maxRestart, "max_relocate": r.maxRelocate, "failback": r.failback} {
		if r.explicit[k] {
			m[k] = v
		}
	}
	return m
}

func (s *state) haDigest() string {
	var b strings.Builder
	for _, sid := range sortedKeys(s.ha.resources) {
		b.WriteString(digestMap(s.ha.resources[sid].conf()))
	}
	return digestOf(b.String())
}

func listHA(c *call) (any, error) {
	out := []M{}
	for _, sid := range sortedKeys(c.s.ha.resources) {
		m := c.s.ha.resources[sid].conf()
		if t := c.str("type"); t != "" && m["type"] != t {
			continue
		}
		m["digest"] = c.s.haDigest()
		out = append(out, m)
	}
	return out, nil
}

func (c *call) haOf() (*haResource, error) {
	r := c.s.ha.resources[c.sidOf()]
	if r == nil {
		return nil, die("no such resource '%s'", c.sidOf())
	}
	return r, nil
}

func getHA(c *call) (any, error) {
	r, err := c.haOf()
	if err != nil {
		return nil, err
	}
	m := r.conf()
	m["digest"] = c.s.haDigest()
	return m, nil
}

func createHA(c *call) (any, error) {
	sid := c.sidOf()
	g := c.s.guestBySID(sid)
	if g == nil {
		return nil, die("resource '%s' does not exist in cluster", sid)
	}
	if c.s.ha.resources[sid] != nil {
		return nil, die("create resource failed: resource ID '%s' already defined", sid)
	}
	if c.has("group") {
		return nil, die("create resource failed: ha groups have been migrated to rules")
	}
	r := &haResource{sid: sid, request: firstNonEmpty(c.str("state"), "started"), state: "queued", node: g.node, maxRestart: 1, maxRelocate: 1, failback: 1, explicit: map[string]bool{}, comment: c.str("comment")}
	c.fillHA(r)
	c.s.ha.resources[sid] = r
	want := r.request
	r.request = want
	c.s.haAdopt(r)
	return nil, nil
}

// haAdopt is how the manager takes up a new resource.
func (s *state) haAdopt(r *haResource) {
	r.gen++
	gen := r.gen
	live := func(do func(g *guest)) func() {
		return func() {
			if g := s.guestBySID(r.sid); r.gen == gen && g != nil && s.ha.resources[r.sid] == r {
				do(g)
			}
		}
	}
	s.after(haRound, live(func(g *guest) {
		switch r.request {
		case "started", "enabled":
			r.crm, r.state = "started", "starting"
			if g.running {
				r.state = "started"
			}
		case "ignored":
			r.crm, r.state = "ignored", "ignored"
		default:
			r.crm, r.state = "request_stop", "stopping"
		}
	}))
	s.after(haRound*13/10, live(func(g *guest) {
		switch r.request {
		case "started", "enabled":
			if !g.running && s.startable(g) == nil {
				s.bootGuest(g)
			}
			r.state = "started"
		case "stopped", "disabled":
			if g.running {
				s.haltGuest(g)
			}
			r.crm, r.state = "stopped", r.request
		}
	}))
}

func (c *call) fillHA(r *haResource) {
	for k, p := range map[string]*int{"max_restart": &r.maxRestart, "max_relocate": &r.maxRelocate, "failback": &r.failback} {
		if c.has(k) {
			*p = c.num(k)
			r.explicit[k] = true
		}
	}
	if c.has("comment") {
		r.comment = c.str("comment")
	}
}

func updateHA(c *call) (any, error) {
	r, err := c.haOf()
	if err != nil {
		return nil, err
	}
	if d := c.str("digest"); d != "" && d != c.s.haDigest() {
		return nil, die("update resources config failed: %s", msgModified)
	}
	for _, k := range splitList(c.str("delete")) {
		switch k {
		case "comment":
			r.comment = ""
		case "state":
			r.request = "started"
		default:
			delete(r.explicit, k)
		}
	}
	c.fillHA(r)
	if w := c.str("state"); w != "" && w != r.request {
		c.s.haWant(r, w)
	}
	return nil, nil
}

func deleteHA(c *call) (any, error) {
	r, err := c.haOf()
	if err != nil {
		return nil, die("cannot delete service '%s', not HA managed!", c.sidOf())
	}
	c.s.haRemove(r.sid)
	return nil, nil
}

func migrateHA(c *call) (any, error) {
	r, err := c.haOf()
	if err != nil {
		return nil, err
	}
	target := c.str("node")
	c.s.haMove(r, target)
	return M{"sid": r.sid, "requested-node": target}, nil
}

func haCurrent(c *call) (any, error) {
	s := c.s
	stamp := func(t time.Time) string { return t.UTC().Format("Mon Jan _2 15:04:05 2006") }
	out := []M{{"id": "quorum", "type": "quorum", "node": c.local.name, "quorate": b2i(!s.noQuorum), "status": map[bool]string{false: "OK", true: "No quorum!"}[s.noQuorum]}}
	if len(s.ha.resources) == 0 && s.ha.master == "" {
		return out, nil
	}
	master := firstNonEmpty(s.ha.master, s.nodes[0].name)
	out = append(out, M{"id": "master", "type": "master", "node": master, "status": master + " (active, " + stamp(s.now) + ")", "timestamp": s.now.Unix()})
	out = append(out, M{"id": "fencing", "type": "fencing", "node": master, "armed-state": "armed", "status": "armed (CRM watchdog active)"})
	active := map[string]bool{}
	for _, r := range s.ha.resources {
		if g := s.guestBySID(r.sid); g != nil {
			active[g.node] = true
		}
	}
	for _, n := range s.nodes {
		word := "idle, watchdog standby"
		if active[n.name] {
			word = "active, watchdog active"
		}
		if n.state == NodeOff || n.state == NodeHanging {
			word = "old timestamp - dead?"
		}
		out = append(out, M{"id": "lrm:" + n.name, "type": "lrm", "node": n.name, "status": n.name + " (" + word + ", " + stamp(s.now) + ")", "timestamp": s.now.Unix()})
	}
	for _, sid := range sortedKeys(s.ha.resources) {
		r := s.ha.resources[sid]
		node := r.node
		if g := s.guestBySID(sid); g != nil {
			node = g.node
		}
		m := M{"id": "service:" + sid, "type": "service", "sid": sid, "node": node, "state": r.state, "status": sid + " (" + node + ", " + r.state + ")", "request_state": r.request,
			"max_restart": r.maxRestart, "max_relocate": r.maxRelocate, "failback": r.failback}
		if r.crm != "" {
			m["crm_state"] = r.crm
		}
		if r.comment != "" {
			m["comment"] = r.comment
		}
		out = append(out, m)
	}
	return out, nil
}

func haManager(c *call) (any, error) {
	s := c.s
	services := M{}
	for sid, r := range s.ha.resources {
		services[sid] = M{"node": r.node, "state": firstNonEmpty(r.crm, "queued"), "uid": digestOf(sid)[:22], "running": b2i(r.state == "started")}
	}
	nodes := M{}
	for _, n := range s.nodes {
		nodes[n.name] = "online"
	}
	master := firstNonEmpty(s.ha.master, s.nodes[0].name)
	return M{"manager_status": M{"master_node": master, "node_status": nodes, "service_status": services, "timestamp": s.now.Unix()}, "quorum": M{"node": c.local.name, "quorate": "1"}, "lrm_status": M{}}, nil
}

func noHAGroups(c *call) (any, error) {
	if c.op.Method == "GET" && c.op.Path == "/cluster/ha/groups" {
		return nil, die("cannot index groups: ha groups have been migrated to rules")
	}
	return nil, die("ha groups have been migrated to rules")
}

func (s *state) ruleDigest() string {
	var b strings.Builder
	for _, id := range sortedKeys(s.ha.rules) {
		b.WriteString(id + digestMap(s.ha.rules[id]))
	}
	return digestOf(b.String())
}

func listHARules(c *call) (any, error) {
	out := []M{}
	for i, id := range sortedKeys(c.s.ha.rules) {
		r := c.s.ha.rules[id]
		if t := c.str("type"); t != "" && r["type"] != t {
			continue
		}
		if w := c.str("resource"); w != "" && !contains(splitList(fmt.Sprint(r["resources"])), w) {
			continue
		}
		m := copyM(r)
		m["rule"], m["digest"], m["order"] = id, c.s.ruleDigest(), i+1
		out = append(out, m)
	}
	return out, nil
}

func getHARule(c *call) (any, error) {
	r := c.s.ha.rules[c.str("rule")]
	if r == nil {
		return nil, die("no such ha rule '%s'", c.str("rule"))
	}
	m := copyM(r)
	keys := sortedKeys(c.s.ha.rules)
	m["rule"], m["digest"], m["order"] = c.str("rule"), c.s.ruleDigest(), sort.SearchStrings(keys, c.str("rule"))+1
	return m, nil
}

func createHARule(c *call) (any, error) {
	id := c.str("rule")
	if c.s.ha.rules[id] != nil {
		return nil, die("create ha rule failed: HA rule '%s' already defined", id)
	}
	m := M{}
	for k := range c.p {
		if k != "rule" {
			m[k] = c.typedParam(k)
		}
	}
	for _, sid := range splitList(fmt.Sprint(m["resources"])) {
		if c.s.ha.resources[sid] == nil {
			return nil, die("create ha rule failed: cannot use unmanaged resource(s) %s.", sid)
		}
	}
	c.s.ha.rules[id] = m
	return nil, nil
}

func updateHARule(c *call) (any, error) {
	r := c.s.ha.rules[c.str("rule")]
	if r == nil {
		return nil, die("update HA rules failed: HA rule '%s' does not exist", c.str("rule"))
	}
	if d := c.str("digest"); d != "" && d != c.s.ruleDigest() {
		return nil, die("update HA rules failed: %s", msgModified)
	}
	for _, k := range splitList(c.str("delete")) {
		delete(r, k)
	}
	for k := range c.p {
		switch k {
		case "rule", "digest", "delete", "type":
		default:
			r[k] = c.typedParam(k)
		}
	}
	return nil, nil
}

func deleteHARule(c *call) (any, error) {
	delete(c.s.ha.rules, c.str("rule"))
	return nil, nil
}
