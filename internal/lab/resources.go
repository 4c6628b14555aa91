package lab

import (
	"fmt"
	"sort"
	"strconv"
	"strings"
)

// resource is a guest's line in /cluster/resources.
func (s *state) resource(g *guest, n *node) M {
	m := make(M, 28)
	m["id"], m["type"], m["vmid"], m["node"], m["template"], m["status"] = g.kind+"/"+strconv.Itoa(g.id), g.kind, g.id, g.node, b2i(g.template()), "unknown"
	if t := g.conf["tags"]; strings.TrimSpace(t) != "" {
		m["tags"] = t
	}
	if l := g.conf["lock"]; l != "" {
		m["lock"] = l
	}
	if p := s.guestPool[g.id]; p != "" {
		m["pool"] = p
	}
	if r := s.ha.resources[g.sid()]; r != nil {
		m["hastate"] = firstNonEmpty(r.crm, "queued")
	}
	if !g.pub.known || n == nil || !n.up() {
		if !g.pub.known {
			delete(m, "template")
		}
		return m
	}
	m["name"], m["status"] = g.pub.name, "stopped"
	m["maxcpu"], m["maxmem"], m["maxdisk"] = numeric(g.pub.cpus), g.pub.mem, g.pub.disk
	for _, k := range []string{"cpu", "mem", "memhost", "disk", "diskread", "diskwrite", "netin", "netout", "uptime"} {
		m[k] = 0
	}
	if g.pub.running {
		m["status"], m["cpu"] = "running", 0.005
		m["uptime"] = int64(s.now.Sub(g.pub.started).Seconds())
		if g.kind == kindQemu {
			m["mem"], m["memhost"], m["netin"], m["diskread"] = vmMem, vmMem, 42, 2560
		} else {
			m["mem"], m["disk"] = ctMem, ctDisk
			if g.pub.disk > overlay {
				m["maxdisk"] = g.pub.disk - overlay
			}
		}
	}
	return m
}

func (g *guest) sid() string {
	if g.kind == kindQemu {
		return fmt.Sprintf("vm:%d", g.id)
	}
	return fmt.Sprintf("ct:%d", g.id)
}

func (s *state) nodeStatus(n *node) string {
	switch n.state {
	case NodeOff, NodeHanging:
		return "offline"
	case NodeNoDaemon:
		return "unknown"
	}
	return "online"
}

func (c *call) nodeLine(n *node) M {
	m := M{"id": "node/" + n.name, "type": "node", "node": n.name, "status": c.s.nodeStatus(n)}
	if !n.up() {
		return m
	}
	m["level"] = ""
	if c.can("/nodes/"+n.name, "Sys.Audit") {
		m["cpu"], m["maxcpu"], m["mem"], m["maxmem"] = 0.042, n.cpus, n.mem/4, n.mem
		m["disk"], m["maxdisk"] = n.disk/10, n.disk
		m["uptime"] = int64(c.s.now.Sub(n.boot).Seconds())
	}
	return m
}

// storageLine is a storage's line in lists; it leaves the state to status.
func (c *call) storageLine(st *storage, n *node) M {
	m := M{"id": "storage/" + n.name + "/" + st.id, "type": "storage", "storage": st.id, "node": n.name, "plugintype": st.typ(),
		"content": shuffled(st.text("content")), "shared": b2i(st.shared()), "status": "unknown"}
	if n.up() && st.active(n.name) {
		m["status"], m["disk"], m["maxdisk"] = "available", c.s.used(n.name, st), st.total
	}
	return m
}

func clusterResources(c *call) (any, error) {
	s, want := c.s, c.str("type")
	id := c.user.id()
	out := make([]M, 0, len(s.guests)+64)
	nodes := map[string]*node{}
	for _, n := range s.nodes {
		nodes[n.name] = n
	}
	if want == "" || want == "pool" {
		var names []string
		for name := range s.pools {
			names = append(names, name)
		}
		sort.Strings(names)
		for _, name := range names {
			if !s.may(id, "/pool/"+name, "Pool.Audit") {
				continue
			}
			out = append(out, s.poolLine(name))
		}
	}
	if want == "" || want == "vm" {
		seePool := map[string]bool{}
		for name := range s.pools {
			seePool[name] = s.may(id, "/pool/"+name, "Pool.Audit")
		}
		for _, vmid := range s.sortedIDs() {
			if !s.may(id, "/vms/"+strconv.Itoa(vmid), "VM.Audit") {
				continue
			}
			g := s.guests[vmid]
			m := s.resource(g, nodes[g.node])
			if p := s.guestPool[vmid]; p != "" && !seePool[p] {
				delete(m, "pool")
			}
			out = append(out, m)
		}
	}
	if want == "" || want == "node" {
		for _, n := range s.nodes {
			m := c.nodeLine(n)
			m["hastate"] = "online"
			if n.up() {
				m["cgroup-mode"] = 2
			}
			if n.state == NodeOff || n.state == NodeHanging {
				m["hastate"] = "unknown"
			}
			out = append(out, m)
		}
	}
	if want == "" || want == "storage" {
		for _, st := range s.storOrder {
			stor := s.storages[st]
			if stor == nil || stor.disabled() || !s.mayAny(id, "/storage/"+st, "Datastore.Audit", "Datastore.AllocateSpace") {
				continue
			}
			for _, n := range s.nodes {
				if stor.on(n.name) {
					out = append(out, c.storageLine(stor, n))
				}
			}
		}
	}
	if want == "" || want == "sdn" {
		out = append(out, c.sdnLines()...)
	}
	if want == "" || want == "network" {
		out = append(out, c.networkLines()...)
	}
	return out, nil
}

// poolLine sums up the members' published figures.
func (s *state) poolLine(name string) M {
	m := M{"id": "/pool/" + name, "type": "pool", "pool": name}
	cpu, mem, maxmem, up, maxcpu := 0.0, int64(0), int64(0), int64(0), 0.0
	for id, p := range s.guestPool {
		g := s.guests[id]
		if p != name || g == nil {
			continue
		}
		if !g.pub.known {
			continue
		}
		maxcpu += g.pub.cpus
		maxmem += g.pub.mem
		if g.pub.running {
			cpu += 0.005 * g.pub.cpus
			mem += map[string]int64{kindQemu: vmMem, kindLXC: ctMem}[g.kind]
			if u := int64(s.now.Sub(g.pub.started).Seconds()); u > up {
				up = u
			}
		}
	}
	if maxcpu > 0 {
		m["cpu"], m["mem"], m["maxmem"], m["uptime"], m["maxcpu"] = cpu/maxcpu, mem, maxmem, up, numeric(maxcpu)
	}
	return m
}
