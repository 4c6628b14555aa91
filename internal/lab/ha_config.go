package lab

import (
	"fmt"
	"sort"
	"strings"
)

func (r *haResource) conf() M {
	kind, _, _ := strings.Cut(r.sid, ":")
	m := M{"sid": r.sid, "type": kind}
	if r.request != "" {
		m["state"] = r.request
	}
	if r.comment != "" {
		m["comment"] = r.comment
	}
	if r.group != "" {
		m["group"] = r.group
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
	if c.has("group") && c.s.rel.major >= 9 {
		return nil, die("create resource failed: ha groups have been migrated to rules")
	}
	r := &haResource{sid: sid, request: firstNonEmpty(c.str("state"), "started"), node: g.node, maxRestart: 1, maxRelocate: 1, failback: 1, explicit: map[string]bool{}}
	c.fillHA(r)
	c.s.ha.resources[sid] = r
	c.s.haKick()
	return nil, nil
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
	if c.has("group") {
		r.group = c.str("group")
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
		r.request = w
		c.s.haKick()
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
	if c.s.node(target) == nil {
		return nil, die("unknown node '%s'", target)
	}
	c.s.ha.commands = append(c.s.ha.commands, haCommand{r.sid, "migrate", target})
	c.s.haKick()
	return M{"sid": r.sid, "requested-node": target}, nil
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
