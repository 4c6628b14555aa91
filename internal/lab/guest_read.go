package lab

import (
	"fmt"
	"strings"
	"time"
)

const (
	kindQemu = "qemu"
	kindLXC  = "lxc"
)

// Figures of the simulated guests: constant, so that tests can rely on them.
const (
	vmMem   = 42393600
	ctMem   = 3112960
	ctDisk  = 2117632
	overlay = 53039104 // what a file system takes of a container's disk
)

func (s *state) cpus(g *guest, conf map[string]string) float64 {
	cores := float64(atoi(conf["cores"]))
	if g.kind == kindLXC {
		if cores == 0 {
			if n := s.node(g.node); n != nil {
				cores = float64(n.cpus)
			}
		}
		return cores
	}
	if cores == 0 {
		cores = 1
	}
	if n := atoi(conf["sockets"]); n > 1 {
		cores *= float64(n)
	}
	return cores
}

func (s *state) maxMem(g *guest, conf map[string]string) int64 {
	v := conf["memory"]
	if c := option(v, "current"); c != "" {
		v = c
	}
	n := int64(atoi(v))
	if n == 0 {
		n = 512
	}
	return n << 20
}

func (s *state) rootSize(g *guest, conf map[string]string) int64 {
	key := "rootfs"
	if g.kind == kindQemu {
		key = ""
		order := strings.FieldsFunc(option(conf["boot"], "order"), func(r rune) bool { return r == ';' })
		for _, k := range append(order, g.diskKeys(conf)...) {
			if isDiskKey(g.kind, k) && !strings.HasPrefix(k, "unused") && volumeOf(conf[k]) != "" && !isCDROM(conf[k]) {
				key = k
				break
			}
		}
	}
	return parseSize(option(conf[key], "size"), 1)
}

func (s *state) uptime(g *guest) int64 {
	if !g.running {
		return 0
	}
	return int64(s.now.Sub(g.started) / time.Second)
}

// status is what the node itself says of a guest; the base of lists and status/current.
func (s *state) status(g *guest) M {
	m := s.plainStatus(g)
	s.showIll(g, m)
	if s.rel.major < 9 { // that knows no pressure, and not what the host spends on a VM
		delete(m, "memhost")
		for _, w := range (guestLoad{}).waiting() {
			delete(m, "pressure"+w.key)
		}
	}
	return m
}

func (s *state) plainStatus(g *guest) M {
	conf := g.conf
	if g.running && g.live != nil {
		conf = g.live
	}
	maxmem := s.maxMem(g, conf)
	m := M{
		"vmid": g.id, "status": "stopped", "name": g.name(), "cpus": numeric(s.cpus(g, conf)), "maxmem": maxmem, "mem": 0,
		"maxdisk": s.rootSize(g, g.conf), "disk": 0, "uptime": s.uptime(g), "cpu": 0, "netin": 0, "netout": 0,
	}
	if t := strings.TrimSpace(g.conf["tags"]); t != "" {
		m["tags"] = g.conf["tags"]
	}
	if l := g.conf["lock"]; l != "" {
		m["lock"] = l
	}
	if g.template() {
		m["template"] = 1
	}
	if g.kind == kindQemu {
		m["memhost"] = 0
	} else {
		m["type"] = kindLXC
		swap := int64(512)
		if v := g.conf["swap"]; v != "" {
			swap = int64(atoi(v))
		}
		m["maxswap"], m["swap"], m["diskread"], m["diskwrite"] = swap<<20, 0, 0, 0
	}
	if !g.running {
		return m
	}
	m["status"], m["pid"] = "running", g.pid
	if g.kind == kindQemu {
		m["mem"], m["memhost"] = vmMem, vmMem
		m["netin"], m["netout"] = 42, 0
		for _, k := range []string{"cpufull", "cpusome", "iofull", "iosome", "memoryfull", "memorysome"} {
			m["pressure"+k] = 0
		}
		return m
	}
	m["mem"], m["disk"] = ctMem, ctDisk
	if size, ok := m["maxdisk"].(int64); ok && size > overlay {
		m["maxdisk"] = size - overlay
	}
	for _, k := range []string{"cpufull", "cpusome", "iofull", "iosome", "memoryfull", "memorysome"} {
		m["pressure"+k] = "0.00"
	}
	return m
}

func numeric(f float64) any {
	if f == float64(int64(f)) {
		return int64(f)
	}
	return f
}

func (s *state) qemuVersion() string {
	if s.nested {
		return "7.2.22"
	}
	return "10.1.2"
}

// full adds what a running VM's monitor tells.
func (s *state) full(g *guest, m M, current bool) {
	if g.kind != kindQemu {
		return
	}
	m["qmpstatus"] = "stopped"
	if !g.running {
		return
	}
	m["qmpstatus"] = "running"
	if g.paused {
		m["qmpstatus"] = "paused"
	}
	blocks := M{}
	for _, k := range g.diskKeys(g.conf) {
		if strings.HasPrefix(k, "unused") {
			continue
		}
		b := M{"account_failed": true, "account_invalid": true, "timed_stats": []any{}}
		for _, n := range []string{"failed_flush_operations", "failed_rd_operations", "failed_unmap_operations", "failed_wr_operations", "failed_zone_append_operations",
			"flush_operations", "flush_total_time_ns", "idle_time_ns", "invalid_flush_operations", "invalid_rd_operations", "invalid_unmap_operations",
			"invalid_wr_operations", "rd_bytes", "rd_merged", "rd_operations", "rd_total_time_ns", "unmap_bytes", "unmap_merged", "unmap_operations",
			"unmap_total_time_ns", "wr_bytes", "wr_highest_offset", "wr_merged", "wr_operations", "wr_total_time_ns"} {
			b[n] = 0
		}
		delete(b, "failed_zone_append_operations")
		b["rd_bytes"], b["rd_operations"] = 512, 1
		blocks[k] = b
	}
	m["blockstat"] = blocks
	nics := M{}
	for k := range g.conf {
		if strings.HasPrefix(k, "net") && k != "net" {
			nics[fmt.Sprintf("tap%di%s", g.id, k[3:])] = M{"netin": 42, "netout": 0}
		}
	}
	m["nics"] = nics
	if _, ill := s.illAt(g.id, s.now); !ill {
		m["diskread"], m["diskwrite"] = 2560, 0
	}
	m["running-machine"], m["running-qemu"] = "pc-i440fx-10.1+pve0", s.qemuVersion()
	if s.nested {
		m["running-machine"] = "pc-i440fx-7.2"
		m["proxmox-support"] = M{"pbs-dirty-bitmap": false, "query-bitmap-info": false, "pbs-library-version": "0 (lab)"}
		return
	}
	m["proxmox-support"] = M{"pbs-dirty-bitmap": true, "query-bitmap-info": true, "pbs-dirty-bitmap-migration": true, "pbs-dirty-bitmap-savevm": true, "pbs-library-version": "1.5.1 (UNKNOWN)", "backup-max-workers": true, "pbs-masterkey": true, "backup-fleecing": true}
	if atoi(g.conf["balloon"]) > 0 || g.conf["balloon"] == "" {
		if _, set := g.conf["balloon"]; set {
			m["balloon"], m["balloon_min"] = s.maxMem(g, g.conf), int64(atoi(g.conf["balloon"]))<<20
		}
	}
}

func guestList(kind string) handler {
	return func(c *call) (any, error) {
		out := []M{}
		for _, id := range c.s.sortedIDs() {
			g := c.s.guests[id]
			if g.kind != kind || g.node != c.node.name || !c.can(fmt.Sprintf("/vms/%d", id), "VM.Audit") {
				continue
			}
			m := c.s.status(g)
			if c.flag("full") {
				c.s.full(g, m, false)
			}
			out = append(out, m)
		}
		return out, nil
	}
}

func guestStatus(c *call) (any, error) {
	g, err := c.guestOf()
	if err != nil {
		return nil, err
	}
	m := c.s.status(g)
	c.s.full(g, m, true)
	m["ha"] = c.s.haStatus(g)
	if g.kind == kindQemu {
		if a := g.conf["agent"]; a != "" {
			m["agent"] = b2i(agentOn(a))
		}
		if sp := g.conf["vga"]; strings.HasPrefix(sp, "qxl") {
			m["spice"] = 1
		}
	}
	return m, nil
}

func agentOn(v string) bool {
	first, _, _ := strings.Cut(v, ",")
	return first == "1" || first == "enabled=1" || first == "enabled=on"
}

func guestConfig(c *call) (any, error) {
	g, err := c.guestOf()
	if err != nil {
		return nil, err
	}
	conf := c.s.merged(g)
	if c.has("snapshot") {
		if c.flag("current") {
			return nil, bad("snapshot", "cannot use 'snapshot' parameter with 'current'")
		}
		sn := g.snap(c.str("snapshot"))
		if sn == nil {
			return nil, die("snapshot '%s' does not exist", c.str("snapshot"))
		}
		m := c.s.snapConfig(g, sn)
		m["digest"] = g.digest()
		return m, nil
	}
	if c.flag("current") {
		conf = g.conf
	}
	m := c.s.shown(g, conf)
	if g.parent != "" {
		m["parent"] = g.parent
	}
	m["digest"] = g.digest()
	return m, nil
}

func guestPending(c *call) (any, error) {
	g, err := c.guestOf()
	if err != nil {
		return nil, err
	}
	out := []M{}
	now := c.s.shown(g, g.conf)
	next := c.s.shown(g, g.pend)
	for _, k := range sortedKeys(now) {
		m := M{"key": k, "value": now[k]}
		if v, ok := next[k]; ok {
			m["pending"] = v
		}
		if force, ok := g.pdel[k]; ok {
			m["delete"] = 1 + b2i(force)
		}
		out = append(out, m)
	}
	for _, k := range sortedKeys(next) {
		if _, ok := now[k]; !ok {
			out = append(out, M{"key": k, "pending": next[k]})
		}
	}
	for _, k := range sortedKeys(g.pdel) {
		_, set := now[k]
		if _, pend := next[k]; !set && !pend {
			out = append(out, M{"key": k, "delete": 1 + b2i(g.pdel[k])})
		}
	}
	if g.parent != "" {
		out = append(out, M{"key": "parent", "value": g.parent})
	}
	return append(out, M{"key": "digest", "value": g.digest()}), nil
}

// statLag is the least time that a change needs to be seen by the whole cluster; a new guest needs longer.
const (
	statLag    = 4 * time.Second
	newbornLag = 8 * time.Second
)

// touch marks a guest for the next round of the statistics daemon.
func (s *state) touch(g *guest) {
	if _, waits := s.dirty[g.id]; !waits {
		s.dirty[g.id] = s.now.Add(statLag)
	}
	if !s.delays {
		s.publish(g)
	}
}

func (s *state) publish(g *guest) {
	conf := g.conf
	g.pub = published{known: true, name: g.name(), running: g.running, started: g.started, cpus: s.cpus(g, conf), mem: s.maxMem(g, conf), disk: s.rootSize(g, conf)}
}

func (s *state) publishDirty() {
	for id, due := range s.dirty {
		if s.delays && due.After(s.now) {
			continue
		}
		if g := s.guests[id]; g != nil {
			if n := s.node(g.node); n != nil && n.up() {
				s.publish(g)
			}
		}
		delete(s.dirty, id)
	}
}

func (s *state) publishAll() {
	for _, g := range s.guests {
		if n := s.node(g.node); n != nil && n.up() {
			s.publish(g)
		}
	}
	s.dirty = map[int]time.Time{}
}
