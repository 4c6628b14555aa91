package lab

import (
	"fmt"
	"sort"
	"strconv"
)

// cell and row are an object with its keys in order: lists of thousands are cheaper as rows than as maps.
type cell struct {
	key string
	val any
}

type row []cell

// without leaves keys out.
func (r row) without(keys ...string) row {
	out := make(row, 0, len(r))
	for _, c := range r {
		if !contains(keys, c.key) {
			out = append(out, c)
		}
	}
	return out
}

// resource is a guest's line in /cluster/resources.
func (s *state) resource(g *guest, n *node, showPool bool) row {
	known := g.pub.known && n != nil && n.up()
	status := "unknown"
	r := make(row, 0, 26)
	r = append(r, cell{"id", g.kind + "/" + strconv.Itoa(g.id)}, cell{"type", g.kind}, cell{"vmid", g.id}, cell{"node", g.node})
	if g.pub.known {
		r = append(r, cell{"template", b2i(g.template())})
	}
	if t := g.conf["tags"]; t != "" && t != " " {
		r = append(r, cell{"tags", t})
	}
	if l := g.conf["lock"]; l != "" {
		r = append(r, cell{"lock", l})
	}
	if showPool {
		if p := s.guestPool[g.id]; p != "" {
			r = append(r, cell{"pool", p})
		}
	}
	if len(s.ha.resources) > 0 {
		if h := s.ha.resources[g.sid()]; h != nil {
			r = append(r, cell{"hastate", firstNonEmpty(h.crm, "queued")})
		}
	}
	if !known {
		return append(r, cell{"status", status})
	}
	status = "stopped"
	mem, disk, netin, diskread, diskwrite, maxdisk, uptime := int64(0), int64(0), 0, int64(0), int64(0), g.pub.disk, int64(0)
	var cpu any = 0
	if g.pub.running {
		status, cpu, uptime = "running", 0.005, int64(s.now.Sub(g.pub.started).Seconds())
		if g.kind == kindQemu {
			mem, netin, diskread = vmMem, 42, 2560
		} else {
			mem, disk = ctMem, ctDisk
			if maxdisk > overlay {
				maxdisk -= overlay
			}
		}
		if _, ill := s.illAt(g.id, s.now); ill {
			m := M{"maxdisk": maxdisk}
			s.showIll(g, m)
			cpu, mem, diskread, diskwrite = m["cpu"], toInt(m["mem"]), toInt(m["diskread"]), toInt(m["diskwrite"])
			if g.kind == kindLXC {
				disk = toInt(m["disk"])
			}
		}
	}
	memhost := mem
	if g.kind == kindLXC {
		memhost = 0
	}
	return append(r, cell{"status", status}, cell{"name", g.pub.name}, cell{"maxcpu", numeric(g.pub.cpus)}, cell{"maxmem", g.pub.mem}, cell{"maxdisk", maxdisk}, cell{"cpu", cpu}, cell{"mem", mem}, cell{"memhost", memhost},
		cell{"disk", disk}, cell{"diskread", diskread}, cell{"diskwrite", diskwrite}, cell{"netin", netin}, cell{"netout", 0}, cell{"uptime", uptime})
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
		m["cpu"], m["maxcpu"], m["mem"], m["maxmem"] = c.s.nodeLoadAt(n, c.s.now).cpu, n.cpus, n.mem/4, n.mem
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
	out := make([]any, 0, len(s.guests)+64)
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
			out = append(out, s.resource(g, nodes[g.node], seePool[s.guestPool[vmid]]))
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
		for _, m := range c.sdnLines() {
			out = append(out, m)
		}
	}
	if want == "" || want == "network" {
		for _, m := range c.networkLines() {
			out = append(out, m)
		}
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
