package lab

import (
	"fmt"
	"strings"
)

func (c *call) poolMembers(name, kind string) []any {
	s, out := c.s, []any{}
	for _, id := range s.sortedIDs() {
		if s.guestPool[id] != name {
			continue
		}
		g := s.guests[id]
		if kind != "" && kind != g.kind {
			continue
		}
		out = append(out, s.resource(g, s.node(g.node), false).without("tags", "hastate", "lock"))
	}
	if kind == "" || kind == "storage" {
		for _, id := range sortedKeys(s.pools[name].storages) {
			st := s.storages[id]
			if st == nil || st.disabled() {
				continue
			}
			for _, n := range s.nodes {
				if st.on(n.name) && (n == c.local || st.shared()) {
					out = append(out, c.storageLine(st, n))
					break
				}
			}
		}
	}
	return out
}

func (c *call) poolShow(name, kind string) (M, error) {
	p := c.s.pools[name]
	if p == nil {
		return nil, die("pool '%s' does not exist", name)
	}
	m := M{"poolid": name, "members": c.poolMembers(name, kind)}
	if p.comment != "" {
		m["comment"] = p.comment
	}
	return m, nil
}

func listPools(c *call) (any, error) {
	if c.has("poolid") {
		name := c.str("poolid")
		if err := c.need("/pool/"+name, "Pool.Audit"); err != nil {
			return nil, err
		}
		m, err := c.poolShow(name, c.str("type"))
		if err != nil {
			return nil, err
		}
		return []M{m}, nil
	}
	out := []M{}
	for _, name := range sortedKeys(c.s.pools) {
		if !c.s.mayAny(c.user.id(), "/pool/"+name, "Pool.Audit", "Pool.Allocate") {
			continue
		}
		m := M{"poolid": name}
		if t := c.s.pools[name].comment; t != "" {
			m["comment"] = t
		}
		out = append(out, m)
	}
	return out, nil
}

func getPool(c *call) (any, error) { return c.poolShowAny() }

func (c *call) poolShowAny() (any, error) {
	m, err := c.poolShow(c.str("poolid"), c.str("type"))
	if err != nil {
		return nil, err
	}
	return m, nil
}

func createPool(c *call) (any, error) {
	id := c.str("poolid")
	if c.s.pools[id] != nil {
		return nil, die("create pool failed: pool '%s' already exists", id)
	}
	if i := strings.LastIndex(id, "/"); i >= 0 && c.s.pools[id[:i]] == nil {
		return nil, die("create pool failed: parent '%s' of pool '%s' does not exist", id[:i], id)
	}
	c.s.pools[id] = &pool{comment: c.str("comment"), storages: map[string]bool{}}
	c.s.rightsChanged()
	return nil, nil
}

func updatePool(c *call) (any, error) {
	id := c.str("poolid")
	fail := func(format string, args ...any) error {
		return die("update pools failed: "+format, args...)
	}
	p := c.s.pools[id]
	if p == nil {
		return nil, fail("pool '%s' does not exist", id)
	}
	del := c.flag("delete")
	for _, v := range splitList(c.str("vms")) {
		vm := atoi(v)
		if err := c.need(fmt.Sprintf("/vms/%d", vm), "VM.Allocate"); err != nil && !c.can("/pool/"+id, "Pool.Allocate") {
			return nil, err
		}
		now := c.s.guestPool[vm]
		switch {
		case del && now != id:
			return nil, fail("VM %d is not a pool member", vm)
		case del:
			delete(c.s.guestPool, vm)
			continue
		case now == id:
			return nil, fail("VM %d is already a pool member", vm)
		case now != "" && !c.flag("allow-move"):
			return nil, fail("VM %d belongs already to pool '%s' and 'allow-move' is not set", vm, now)
		}
		c.s.guestPool[vm] = id
	}
	for _, st := range splitList(c.str("storage")) {
		if err := c.need("/storage/"+st, "Datastore.Allocate"); err != nil {
			return nil, err
		}
		switch {
		case del && !p.storages[st]:
			return nil, fail("Storage '%s' is not a pool member", st)
		case del:
			delete(p.storages, st)
		case p.storages[st]:
			return nil, fail("Storage '%s' is already a pool member", st)
		default:
			p.storages[st] = true
		}
	}
	if c.has("comment") {
		p.comment = c.str("comment")
	}
	c.s.rightsChanged()
	return nil, nil
}

func deletePool(c *call) (any, error) {
	id := c.str("poolid")
	p := c.s.pools[id]
	if p == nil {
		return nil, die("delete pool failed: pool '%s' does not exist", id)
	}
	for _, name := range sortedKeys(c.s.pools) {
		if strings.HasPrefix(name, id+"/") {
			return nil, die("delete pool failed: pool '%s' is not empty (contains pool '%s')", id, name)
		}
	}
	for _, vm := range c.s.sortedIDs() {
		if c.s.guestPool[vm] == id {
			return nil, die("delete pool failed: pool '%s' is not empty (contains VM %d)", id, vm)
		}
	}
	for _, st := range sortedKeys(p.storages) {
		if c.s.storages[st] != nil {
			return nil, die("delete pool failed: pool '%s' is not empty (contains storage '%s')", id, st)
		}
	}
	for vm, name := range c.s.guestPool {
		if name == id {
			delete(c.s.guestPool, vm)
		}
	}
	delete(c.s.pools, id)
	delete(c.s.acl, "/pool/"+id)
	c.s.rightsChanged()
	return nil, nil
}
