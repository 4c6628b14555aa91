package lab

import (
	"fmt"
	"net/netip"
	"sort"
	"strings"
	"time"
)

// network is a node's interfaces: those in force and, when changed, those waiting.
type network struct {
	now, next []M
	changed   bool
}

func listNodes(c *call) (any, error) {
	out := []M{}
	for _, n := range c.s.nodes {
		m := c.nodeLine(n)
		m["ssl_fingerprint"] = n.fingerprint
		out = append(out, m)
	}
	return out, nil
}

// nodeIndexNames and the like are indexes as the genuine server prints them.
func names(key string, list ...string) handler {
	return func(*call) (any, error) {
		out := []M{}
		for _, k := range list {
			out = append(out, M{key: k})
		}
		return out, nil
	}
}

const cpuFlags = "fpu vme de pse tsc msr pae mce cx8 apic sep mtrr pge mca cmov pat pse36 clflush mmx fxsr sse sse2 ht syscall nx pdpe1gb rdtscp lm constant_tsc nonstop_tsc cpuid pni pclmulqdq ssse3 fma cx16 sse4_1 sse4_2 x2apic movbe popcnt aes xsave avx f16c rdrand hypervisor lahf_lm abm avx2 bmi1 bmi2 sha_ni"

func nodeStatus(c *call) (any, error) {
	n := c.node
	up := int64(c.s.now.Sub(n.boot).Seconds())
	load := c.s.nodeLoadAt(n, c.s.now)
	return M{
		"boot-info": M{"mode": "legacy-bios"}, "cpu": load.cpu, "wait": load.wait, "idle": 0, "uptime": up,
		"cpuinfo":        M{"cores": n.cpus, "cpus": n.cpus, "family": "25", "flags": cpuFlags, "hvm": "", "mhz": "2596.128", "model": "AMD EPYC", "sockets": 1, "user_hz": 100, "vendor": "AuthenticAMD"},
		"current-kernel": M{"machine": "x86_64", "release": "6.17.2-2-pve", "sysname": "Linux", "version": "#1 SMP PREEMPT_DYNAMIC PMX 6.17.2-2"},
		"ksm":            M{"shared": 0}, "kversion": "Linux 6.17.2-2-pve #1 SMP PREEMPT_DYNAMIC PMX 6.17.2-2",
		"loadavg": []string{fmt.Sprintf("%.2f", load.load+0.06), fmt.Sprintf("%.2f", load.load), fmt.Sprintf("%.2f", max(0.3, load.load-0.06))}, "memory": M{"free": n.mem * 3 / 4, "total": n.mem, "used": n.mem / 4, "available": n.mem * 3 / 4},
		"pveversion": "pve-manager/" + c.s.rel.version + "/" + c.s.rel.repoid, "rootfs": M{"avail": n.disk * 9 / 10, "free": n.disk * 9 / 10, "total": n.disk, "used": n.disk / 10}, "swap": M{"free": 0, "total": 0, "used": 0},
	}, nil
}

func nodeTime(c *call) (any, error) {
	tz, _ := c.s.nodeConf[c.node.name]["timezone"].(string)
	return M{"time": c.s.now.Unix(), "localtime": c.s.now.Unix(), "timezone": firstNonEmpty(tz, "Etc/UTC")}, nil
}

func setNodeTime(c *call) (any, error) {
	c.nodeSettings()["timezone"] = c.str("timezone")
	return nil, nil
}

func (c *call) nodeSettings() M {
	m := c.s.nodeConf[c.node.name]
	if m == nil {
		m = M{}
		c.s.nodeConf[c.node.name] = m
	}
	return m
}

func nodeDNS(c *call) (any, error) {
	m := M{"search": "lab.test", "dns1": "10.10.10.254"}
	if d, ok := c.nodeSettings()["dns"].(M); ok {
		m = copyM(d)
	}
	return m, nil
}

func setNodeDNS(c *call) (any, error) {
	m := M{}
	for _, k := range []string{"search", "dns1", "dns2", "dns3"} {
		if c.has(k) {
			m[k] = c.str(k)
		}
	}
	c.nodeSettings()["dns"] = m
	return nil, nil
}

func (c *call) hostsText() string {
	if t, ok := c.nodeSettings()["hosts"].(string); ok {
		return t
	}
	var b strings.Builder
	b.WriteString("127.0.0.1 localhost\n")
	for _, n := range c.s.nodes {
		fmt.Fprintf(&b, "%s %s.lab.test %s\n", n.ip, n.name, n.name)
	}
	return b.String()
}

func nodeHosts(c *call) (any, error) {
	t := c.hostsText()
	return M{"data": t, "digest": digestOf(t)}, nil
}

func setNodeHosts(c *call) (any, error) {
	if d := c.str("digest"); d != "" && d != digestOf(c.hostsText()) {
		return nil, die(msgModified)
	}
	c.nodeSettings()["hosts"] = c.str("data")
	return nil, nil
}

// nodeConfigKeys are what the node's own configuration file may hold.
func (c *call) nodeFile() M {
	m, _ := c.nodeSettings()["config"].(M)
	return m
}

func nodeConfig(c *call) (any, error) {
	m := copyM(c.nodeFile())
	m["digest"] = digestOf("")
	if len(m) > 1 {
		m["digest"] = digestMap(m)
	}
	if p := c.str("property"); p != "" && p != "all" {
		out := M{"digest": m["digest"]}
		if v, ok := m[p]; ok {
			out[p] = v
		}
		return out, nil
	}
	return m, nil
}

func setNodeConfig(c *call) (any, error) {
	m := c.nodeFile()
	if d := c.str("digest"); d != "" && m != nil && len(m) > 0 && d != digestMap(m) {
		return nil, die(msgModified)
	}
	if m == nil {
		m = M{}
		c.nodeSettings()["config"] = m
	}
	for _, k := range splitList(c.str("delete")) {
		delete(m, k)
	}
	for k := range c.p {
		switch k {
		case "node", "digest", "delete":
		case "description":
			t := c.str(k)
			if t != "" && !strings.HasSuffix(t, "\n") {
				t += "\n"
			}
			m[k] = t
		default:
			m[k] = c.typedParam(k)
		}
	}
	return nil, nil
}

func (c *call) net() *network {
	n := c.s.ifaces[c.node.name]
	if n == nil {
		ip := c.node.ip
		n = &network{now: []M{
			{"iface": "eth0", "type": "eth", "active": 1, "families": []string{"inet"}, "method": "manual", "method6": "manual", "priority": 3},
			{"iface": "vmbr0", "type": "bridge", "active": 1, "autostart": 1, "address": ip, "netmask": "24", "cidr": ip + "/24", "gateway": "10.10.10.254", "bridge_ports": "eth0", "bridge_stp": "off", "bridge_fd": "0", "families": []string{"inet"}, "method": "static", "method6": "manual", "priority": 4},
		}}
		c.s.ifaces[c.node.name] = n
	}
	return n
}

func (n *network) view() []M {
	if n.changed {
		return n.next
	}
	return n.now
}

func (n *network) edit() {
	if n.changed {
		return
	}
	n.next = nil
	for _, m := range n.now {
		n.next = append(n.next, copyM(m))
	}
	n.changed = true
}

func listNetwork(c *call) (any, error) {
	n := c.net()
	out := []M{}
	for _, m := range n.view() {
		typ, _ := m["type"].(string)
		if want := c.str("type"); want != "" && want != typ && !(strings.HasPrefix(want, "any_") && strings.Contains(typ, "bridge")) && want != "include_sdn" {
			continue
		}
		name, _ := m["iface"].(string)
		if strings.Contains(strings.ToLower(typ), "bridge") && !c.s.mayAny(c.user.id(), c.s.bridgePath(name, ""), "SDN.Audit", "SDN.Use") {
			continue
		}
		out = append(out, copyM(m))
	}
	res := &result{data: out}
	if n.changed {
		res.changes = n.diff()
	}
	return res, nil
}

// diff is the waiting change as text.
func (n *network) diff() string {
	var b strings.Builder
	b.WriteString("--- /etc/network/interfaces\n+++ /etc/network/interfaces.new\n@@ -1,3 +1,14 @@\n")
	have := map[string]string{}
	for _, m := range n.now {
		have[m["iface"].(string)] = digestMap(m)
	}
	for _, m := range n.next {
		name := m["iface"].(string)
		if have[name] != digestMap(m) {
			fmt.Fprintf(&b, "+iface %s inet %v\n", name, m["method"])
			if a, ok := m["cidr"]; ok {
				fmt.Fprintf(&b, "+\taddress %v\n", a)
			}
		}
		delete(have, name)
	}
	for _, k := range sortedKeys(have) {
		fmt.Fprintf(&b, "-iface %s inet manual\n", k)
	}
	return b.String()
}

func findIface(list []M, name string) (M, int) {
	for i, m := range list {
		if m["iface"] == name {
			return m, i
		}
	}
	return nil, -1
}

func getIface(c *call) (any, error) {
	m, _ := findIface(c.net().view(), c.str("iface"))
	if m == nil {
		return nil, bad("iface", "interface does not exist")
	}
	out := copyM(m)
	delete(out, "iface")
	return out, nil
}

func (c *call) fillIface(m M) error {
	for k := range c.p {
		switch k {
		case "node", "delete":
		default:
			m[k] = c.typedParam(k)
		}
	}
	if cidr, ok := m["cidr"].(string); ok && cidr != "" {
		p, err := netip.ParsePrefix(cidr)
		if err != nil {
			return bad("cidr", "invalid CIDR")
		}
		m["address"], m["netmask"] = p.Addr().String(), fmt.Sprint(p.Bits())
	}
	m["method"], m["method6"], m["families"] = "manual", "manual", []string{"inet"}
	if m["address"] != nil {
		m["method"] = "static"
		if m["cidr"] == nil {
			m["cidr"] = fmt.Sprintf("%v/%v", m["address"], firstNonEmpty(fmt.Sprint(m["netmask"]), "24"))
		}
	}
	if m["type"] == "bridge" {
		for k, v := range map[string]string{"bridge_fd": "0", "bridge_stp": "off", "bridge_ports": ""} {
			if m[k] == nil {
				m[k] = v
			}
		}
	}
	return nil
}

func createIface(c *call) (any, error) {
	n := c.net()
	n.edit()
	if m, _ := findIface(n.next, c.str("iface")); m != nil {
		return nil, bad("iface", "interface already exists")
	}
	m := M{"priority": len(n.next) + 3}
	if err := c.fillIface(m); err != nil {
		return nil, err
	}
	n.next = append(n.next, m)
	return nil, nil
}

func updateIface(c *call) (any, error) {
	n := c.net()
	if m, _ := findIface(n.view(), c.str("iface")); m == nil {
		return nil, bad("iface", "interface does not exist")
	}
	n.edit()
	old, i := findIface(n.next, c.str("iface"))
	m := copyM(old)
	for _, k := range splitList(c.str("delete")) {
		delete(m, k)
	}
	if err := c.fillIface(m); err != nil {
		return nil, err
	}
	n.next[i] = m
	return nil, nil
}

func deleteIface(c *call) (any, error) {
	n := c.net()
	if m, _ := findIface(n.view(), c.str("iface")); m == nil {
		return nil, bad("iface", "interface does not exist")
	}
	n.edit()
	_, i := findIface(n.next, c.str("iface"))
	n.next = append(n.next[:i], n.next[i+1:]...)
	return nil, nil
}

func applyNetwork(c *call) (any, error) {
	return c.quick("srvreload", "networking", 500*time.Millisecond, func(*task) error {
		c.net().commit()
		return nil
	}), nil
}

// commit puts what waits into force.
func (n *network) commit() {
	if !n.changed {
		return
	}
	for _, m := range n.next {
		m["active"] = 1
	}
	n.now, n.next, n.changed = n.next, nil, false
}

func revertNetwork(c *call) (any, error) {
	n := c.net()
	n.next, n.changed = nil, false
	return nil, nil
}

// services of a node.
func serviceNames() map[string]string {
	return map[string]string{
		"pveproxy": "PVE API Proxy Server", "pvedaemon": "PVE API Daemon", "pvestatd": "PVE Status Daemon", "pve-cluster": "The Proxmox VE cluster filesystem", "pvescheduler": "Proxmox VE scheduler",
		"corosync": "Corosync Cluster Engine", "pve-firewall": "Proxmox VE firewall", "pve-ha-crm": "PVE Cluster HA Resource Manager Daemon", "pve-ha-lrm": "PVE Local HA Resource Manager Daemon", "pvefw-logger": "Proxmox VE firewall logger",
		"spiceproxy": "PVE SPICE Proxy Server", "sshd": "OpenBSD Secure Shell server", "cron": "Regular background program processing daemon", "postfix": "Postfix Mail Transport Agent (main/default instance)", "chrony": "chrony, an NTP client/server",
		"ksmtuned": "Kernel Samepage Merging (KSM) Tuning Daemon", "lxcfs": "FUSE filesystem for LXC", "qmeventd": "PVE Qemu Event Daemon", "rsyslog": "rsyslog.service", "systemd-journald": "Journal Service", "systemd-timesyncd": "systemd-timesyncd.service", "proxmox-firewall": "Proxmox nftables firewall",
	}
}

func (c *call) service(id string) M {
	state := "running"
	if st, ok := c.nodeSettings()["service:"+id].(string); ok {
		state = st
	}
	m := M{"service": id, "name": id, "desc": serviceNames()[id], "state": state, "active-state": "active", "unit-state": "enabled"}
	if id == "rsyslog" || id == "systemd-timesyncd" {
		m["state"], m["active-state"], m["unit-state"] = "dead", "inactive", "not-found"
	} else if state != "running" {
		m["active-state"] = "inactive"
	}
	return m
}

func listServices(c *call) (any, error) {
	out := []M{}
	for _, id := range sortedKeys(serviceNames()) {
		out = append(out, c.service(id))
	}
	return out, nil
}

func serviceState(c *call) (any, error) {
	id := c.str("service")
	if serviceNames()[id] == "" {
		return nil, die("no such service '%s'", id)
	}
	return c.service(id), nil
}

func serviceCommand(verb string) handler {
	return func(c *call) (any, error) {
		id := c.str("service")
		if verb == "stop" && contains([]string{"pveproxy", "pvedaemon"}, id) {
			return nil, die("unable to stop essential service '%s'", id)
		}
		return c.quick("srv"+verb, id, 500*time.Millisecond, func(*task) error {
			c.nodeSettings()["service:"+id] = map[string]string{"stop": "dead"}[verb]
			if verb != "stop" {
				c.nodeSettings()["service:"+id] = "running"
			}
			return nil
		}), nil
	}
}

func syslog(c *call) (any, error) {
	lines := []string{}
	for i, t := range c.s.tasks {
		if t.node == c.node.name && i > len(c.s.tasks)-200 {
			lines = append(lines, t.start.UTC().Format("Jan 02 15:04:05 ")+t.node+" pvedaemon["+fmt.Sprint(t.pid)+"]: starting task "+t.upid)
		}
	}
	if len(lines) == 0 {
		lines = append(lines, c.s.boot.UTC().Format("Jan 02 15:04:05 ")+c.node.name+" systemd[1]: Started pveproxy.service - PVE API Proxy Server.")
	}
	return &result{data: logPage(lines, c.num("start"), c.numOr("limit", 50)), total: len(lines)}, nil
}

func nodeSubscription(c *call) (any, error) {
	return M{"message": "There is no subscription key", "serverid": "0123456789ABCDEF0123456789ABCDEF", "status": "notfound", "url": "https://www.proxmox.com/en/proxmox-virtual-environment/pricing"}, nil
}

func disksList(c *call) (any, error) {
	return []M{{"devpath": "/dev/vda", "gpt": 0, "health": "UNKNOWN", "model": "unknown", "mounted": 1, "osdid": -1, "osdid-list": nil, "rpm": -1, "serial": "unknown", "size": int64(274877906944), "type": "unknown", "used": "mounted", "vendor": "0x1af4", "wearout": "N/A", "wwn": "unknown"}}, nil
}

func noCeph(c *call) (any, error) { return nil, die("binary not installed: /usr/bin/ceph-mon") }

func journal(c *call) (any, error) {
	return &result{raw: &response{status: 200, reason: "OK", ctype: "application/json", gzipped: true, body: c.l.zip([]byte{})}}, nil
}

func netstat(c *call) (any, error) {
	out := []M{}
	for _, id := range c.s.sortedIDs() {
		g := c.s.guests[id]
		if g.node != c.node.name || !g.running {
			continue
		}
		var devs []string
		for k := range g.conf {
			if strings.HasPrefix(k, "net") {
				devs = append(devs, k)
			}
		}
		sort.Strings(devs)
		for _, k := range devs {
			out = append(out, M{"vmid": fmt.Sprint(id), "dev": k, "in": "0", "out": "42"})
		}
	}
	return out, nil
}

// console mints the ticket for a console. Text consoles of a nested site never come up.
func console(c *call) (any, error) {
	port, typ, id := "5900", "vncproxy", ""
	text := strings.HasSuffix(c.op.Path, "/termproxy")
	if text {
		port = "5901"
	}
	vm := false
	if strings.Contains(c.op.Path, "{vmid}") {
		g, err := c.guestOf()
		if err != nil {
			return nil, err
		}
		vm, id = g.kind == kindQemu, fmt.Sprint(g.id)
	}
	if c.s.nested && (text || !vm) {
		f := die("Timeout while waiting for port '%s' to get ready!", port)
		f.delay = 10 * time.Second
		return nil, f
	}
	t := c.s.newTask(c.node, typ, id, c.user)
	c.s.work(t, 10*time.Second, func() error { return die("connection timed out") })
	ticket := c.s.ticketFor("PVEVNC", c.user.id())
	m := M{"port": port, "ticket": ticket, "upid": t.upid, "user": c.user.id()}
	if !text {
		m["cert"] = string(c.l.cert.caPEM)
	}
	if vm && !text {
		m["password"] = ticket[len(ticket)-8:]
	}
	return m, nil
}

func sendKey(c *call) (any, error) {
	g, err := c.guestOf()
	if err != nil {
		return nil, err
	}
	if !g.running {
		return nil, die("VM %d not running", g.id)
	}
	return nil, nil
}
