package lab

import (
	"fmt"
	"strings"
)

func listRepl(c *call) (any, error) {
	out := []M{}
	for _, id := range sortedKeys(c.s.repl) {
		r := c.s.repl[id]
		if c.can(fmt.Sprintf("/vms/%v", r["guest"]), "VM.Audit") {
			m := copyM(r)
			m["id"] = id
			out = append(out, m)
		}
	}
	return out, nil
}

func getRepl(c *call) (any, error) {
	r := c.s.repl[c.str("id")]
	if err := c.need("/vms/"+strings.SplitN(c.str("id"), "-", 2)[0], "VM.Audit"); err != nil {
		return nil, err
	}
	if r == nil {
		return nil, die("no such replication job '%s'", c.str("id"))
	}
	m := copyM(r)
	m["id"], m["digest"] = c.str("id"), digestMap(r)
	return m, nil
}

func createRepl(c *call) (any, error) {
	id := c.str("id")
	vm, num, _ := strings.Cut(id, "-")
	if err := c.need("/vms/"+vm, "VM.Replicate"); err != nil {
		return nil, err
	}
	if c.s.repl[id] != nil {
		return nil, die("replication job '%s' already exists", id)
	}
	g := c.s.guests[atoi(vm)]
	if g == nil {
		return nil, die("guest '%s' does not exist", vm)
	}
	target := c.str("target")
	if g.node == target {
		return nil, die("source and target are identical")
	}
	if c.s.node(target) == nil {
		return nil, die("unknown target node '%s'", target)
	}
	for _, k := range g.diskKeys(g.conf) {
		vol := volumeOf(g.conf[k])
		if x := c.s.vol(g.node, vol); x == nil || x.node == "" || isCDROM(g.conf[k]) {
			continue
		}
		if st := c.s.storages[storeOf(vol)]; st.typ() != "zfspool" {
			return nil, die("missing replicate feature on volume '%s'", vol)
		}
	}
	m := M{"type": "local", "guest": atoi(vm), "jobnum": atoi(num), "target": target}
	for k := range c.p {
		if k != "id" {
			m[k] = c.typedParam(k)
		}
	}
	c.s.repl[id] = m
	return nil, nil
}

func updateRepl(c *call) (any, error) {
	id := c.str("id")
	if err := c.need("/vms/"+strings.SplitN(id, "-", 2)[0], "VM.Replicate"); err != nil {
		return nil, err
	}
	r := c.s.repl[id]
	if r == nil {
		return nil, die("no such replication job '%s'", id)
	}
	if d := c.str("digest"); d != "" && d != digestMap(r) {
		return nil, die(msgModified)
	}
	for _, k := range splitList(c.str("delete")) {
		delete(r, k)
	}
	for k := range c.p {
		if k != "id" && k != "digest" && k != "delete" {
			r[k] = c.typedParam(k)
		}
	}
	return nil, nil
}

func deleteRepl(c *call) (any, error) {
	id := c.str("id")
	if err := c.need("/vms/"+strings.SplitN(id, "-", 2)[0], "VM.Replicate"); err != nil {
		return nil, err
	}
	if c.s.repl[id] == nil {
		return nil, die("no such replication job '%s'", id)
	}
	delete(c.s.repl, id)
	return nil, nil
}

func nodeRepl(c *call) (any, error) {
	out := []M{}
	for _, id := range sortedKeys(c.s.repl) {
		r := c.s.repl[id]
		vm, _ := r["guest"].(int)
		g := c.s.guests[vm]
		if g == nil || g.node != c.node.name || c.has("guest") && vm != c.num("guest") || !c.can(fmt.Sprintf("/vms/%d", vm), "VM.Audit") {
			continue
		}
		m := copyM(r)
		m["id"], m["vmtype"], m["source"], m["last_sync"], m["last_try"], m["next_sync"], m["fail_count"] = id, g.kind, g.node, 0, 0, c.s.now.Unix(), 0
		out = append(out, m)
	}
	return out, nil
}

// Bulk actions and the node's *all calls.
