package lab

import (
	"fmt"
	"time"
)

// addNode puts a node into the cluster.
func (s *state) addNode(name, ip string, cpus int, mem, disk int64) *node {
	n := &node{name: name, ip: ip, id: len(s.nodes) + 1, cpus: cpus, mem: mem, disk: disk, boot: s.boot, fingerprint: fingerprintOf([]byte("certificate of " + name))}
	s.nodes = append(s.nodes, n)
	return n
}

func (s *state) addUser(id string) *user {
	u := &user{id: id, enable: true, groups: map[string]bool{}, tokens: map[string]*token{}}
	s.users[id] = u
	return u
}

// addToken makes a token and gives the header value that uses it.
func (s *state) addToken(userid, name, secret string, privsep bool) string {
	s.users[userid].tokens[name] = &token{secret: secret, privsep: privsep}
	return "PVEAPIToken=" + userid + "!" + name + "=" + secret
}

func (s *state) addStorage(id string, conf M, total, base int64) *storage {
	st := &storage{id: id, conf: conf, total: total, base: base}
	s.storages[id] = st
	s.storOrder = append(s.storOrder, id)
	return st
}

// addGuest puts a guest with its configuration in place; disks named are made as volumes.
func (s *state) addGuest(id int, kind, node string, conf map[string]string) *guest {
	g := &guest{id: id, kind: kind, node: node, conf: conf, pend: map[string]string{}, pdel: map[string]bool{}, created: s.now}
	s.guests[id] = g
	for _, k := range g.diskKeys(conf) {
		vol := volumeOf(conf[k])
		if vol == "" || isCDROM(conf[k]) || s.vol(node, vol) != nil {
			continue
		}
		v := &volume{id: vol, content: "images", format: formatOf(s.storages[storeOf(vol)], kind, vol), size: parseSize(option(conf[k], "size"), 1), used: 4096, vmid: id}
		if kind == kindLXC {
			v.content, v.used = "rootdir", 36401152
		}
		s.addVol(node, v)
	}
	return g
}

func formatOf(st *storage, kind, vol string) string {
	for _, f := range []string{"raw", "qcow2", "vmdk"} {
		if len(vol) > len(f) && vol[len(vol)-len(f)-1:] == "."+f {
			return f
		}
	}
	if st != nil && st.typ() == "zfspool" && kind == kindLXC {
		return "subvol"
	}
	return "raw"
}

func (s *state) up(g *guest, since time.Duration) {
	g.running, g.started = true, s.now.Add(-since)
	s.pid += 13
	g.pid = s.pid
	g.live = cloneMap(g.conf)
}

// past records a task that ended before the site is looked at.
func (s *state) past(n *node, typ, id string, who caller, ago, took time.Duration, exit string) *task {
	now := s.now
	s.now = now.Add(-ago)
	t := s.newTask(n, typ, id, who)
	s.now = s.now.Add(took)
	failure := exit
	if exit == "OK" {
		failure = ""
	}
	s.finish(t, failure)
	s.now = now
	return t
}

// rigSite is the small three-node cluster whose genuine answers are the measure of this package.
func rigSite(s *state) map[string]string {
	s.cluster, s.version = "labcl", 3
	const gib = int64(1) << 30
	n1 := s.addNode("pve1", "10.10.10.1", 2, 25276502016, 270553174016)
	s.addNode("pve2", "10.10.10.2", 2, 25276502016, 270553174016)
	s.addNode("pve3", "10.10.10.3", 2, 25276502016, 270553174016).state = NodeNoDaemon
	s.ha.master, s.nested = "pve2", true
	s.ha.active["pve1"] = true

	s.addStorage("local", M{"type": "dir", "path": "/var/lib/vz", "content": "iso,vztmpl,backup,snippets,import,images,rootdir"}, 270553174016, 27097473024)
	s.addStorage("shared", M{"type": "dir", "path": "/mnt/shared", "content": "backup,images,rootdir", "shared": 1}, 270553174016, 27097473024)
	s.addStorage("bt1", M{"type": "btrfs", "path": "/mnt/bt1", "content": "images,rootdir", "nodes": "pve1"}, 3221225472, 6062080)
	s.addStorage("dead-nfs", M{"type": "nfs", "path": "/mnt/pve/dead-nfs", "server": "192.0.2.1", "export": "/x", "content": "backup", "disable": 1}, 0, 0)
	for _, n := range []string{"pve1", "pve2"} {
		s.addVol(n, &volume{id: "local:iso/lab.iso", content: "iso", format: "iso", size: 1048576})
		s.addVol(n, &volume{id: "local:vztmpl/lab-alpine_3.20_amd64.tar.gz", content: "vztmpl", format: "tgz", size: 1032723})
	}

	meta := fmt.Sprintf("creation-qemu=7.2.22,ctime=%d", s.now.Add(-30*time.Second).Unix())
	smbios := func() string { return "uuid=" + newUUID() }
	vm100 := s.addGuest(100, kindQemu, "pve1", map[string]string{"name": "vm100", "memory": "256", "cores": "1", "kvm": "0", "scsihw": "virtio-scsi-single", "ostype": "l26", "tags": "db;lab", "boot": "order=scsi0;ide2;net0",
		"scsi0": "local:100/vm-100-disk-0.raw,size=1G", "ide2": "local:iso/lab.iso,media=cdrom,size=1M", "net0": "virtio=BC:24:11:FB:EB:1C,bridge=vmbr0,firewall=1", "smbios1": smbios(), "vmgenid": newUUID(), "meta": meta})
	s.addGuest(101, kindQemu, "pve1", map[string]string{"name": "tmpl101", "memory": "128", "kvm": "0", "template": "1", "boot": "order=scsi0", "scsi0": "local:101/base-101-disk-0.raw,size=1G", "smbios1": smbios(), "vmgenid": newUUID(), "meta": meta})
	s.addVol("pve1", &volume{id: "local:101/base-101-disk-0.raw/102/vm-102-disk-0.qcow2", content: "images", format: "qcow2", size: gib, used: 397312, vmid: 102, parent: "local:101/base-101-disk-0.raw"})
	s.addGuest(102, kindQemu, "pve1", map[string]string{"name": "clone102", "memory": "128", "kvm": "0", "boot": "order=scsi0", "scsi0": "local:101/base-101-disk-0.raw/102/vm-102-disk-0.qcow2,size=1G", "smbios1": smbios(), "vmgenid": newUUID(), "meta": meta})
	s.addGuest(110, kindQemu, "pve2", map[string]string{"name": "vm110", "memory": "128", "kvm": "0", "boot": "order=scsi0", "scsi0": "shared:110/vm-110-disk-0.qcow2,size=1G", "smbios1": smbios(), "vmgenid": newUUID(), "meta": meta})
	ct200 := s.addGuest(200, kindLXC, "pve1", map[string]string{"hostname": "ct200", "memory": "256", "swap": "0", "arch": "amd64", "ostype": "alpine", "unprivileged": "1", "tags": "lab;web",
		"rootfs": "local:200/vm-200-disk-0.raw,size=1G", "net0": "name=eth0,bridge=vmbr0,gw=10.10.10.254,hwaddr=BC:24:11:7B:08:67,ip=10.10.10.200/24,type=veth"})
	s.addGuest(201, kindLXC, "pve1", map[string]string{"hostname": "ct201", "memory": "128", "swap": "0", "arch": "amd64", "ostype": "alpine", "unprivileged": "1", "tags": "shared;web", "rootfs": "shared:201/vm-201-disk-0.raw,size=1G"})
	s.addGuest(210, kindLXC, "pve2", map[string]string{"hostname": "ct210", "memory": "128", "swap": "0", "arch": "amd64", "ostype": "alpine", "unprivileged": "1", "rootfs": "local:210/vm-210-disk-0.raw,size=1G"})
	for _, g := range s.guests {
		g.shutFail = g.kind == kindQemu
	}
	s.up(vm100, 38*time.Second)
	s.up(ct200, 39*time.Second)

	s.pools["lab"] = &pool{comment: "lab pool", storages: map[string]bool{"local": true}}
	s.guestPool[100], s.guestPool[200] = "lab", "lab"

	s.jobs["backup-lab-1"] = M{"enabled": 1, "schedule": "mon..fri 02:30", "storage": "local", "mode": "snapshot", "compress": "zstd", "vmid": "200,201", "prune-backups": M{"keep-last": "3"}, "comment": "nightly"}
	s.jobs["backup-lab-2"] = M{"enabled": 0, "schedule": "sun 01:00", "storage": "local", "pool": "lab", "notes-template": "{{guestname}}"}
	s.jobOrder = []string{"backup-lab-1", "backup-lab-2"}

	cl := newFirewall()
	cl.aliases["lan"] = M{"name": "lan", "cidr": "10.10.10.0/24", "ipversion": 4}
	cl.ipsets["mgmt"] = &ipset{comment: "management", members: []M{{"cidr": "10.10.10.5"}}}
	cl.rules = []M{{"type": "in", "action": "ACCEPT", "enable": 1, "proto": "tcp", "dport": "8006", "source": "+mgmt"}}
	s.fw["cluster"] = cl
	s.fwGroups["websrv"] = &fwGroup{comment: "web servers", rules: []M{{"type": "in", "action": "ACCEPT", "macro": "HTTPS", "comment": "https in", "enable": 1}}}
	ctfw := newFirewall()
	ctfw.options = M{"enable": 1, "policy_in": "DROP"}
	ctfw.rules = []M{{"type": "group", "action": "websrv", "enable": 1}, {"type": "in", "action": "DROP", "source": "192.0.2.0/24", "enable": 1, "comment": "block doc net"}}
	s.fw["guest/200"] = ctfw

	s.sdn.put("zones", "z1", M{"type": "simple"})
	s.sdn.put("vnets", "vn1", M{"zone": "z1", "alias": "lab net"})
	s.sdn.put("subnets", "z1-10.50.0.0-24", M{"vnet": "vn1", "zone": "z1", "gateway": "10.50.0.1"})
	s.sdn.put("ipams", "pve", M{"type": "pve"})

	s.ha.resources["ct:201"] = &haResource{sid: "ct:201", request: "stopped", crm: "stopped", comment: "ha ct", node: "pve1", maxRestart: 1, maxRelocate: 1, failback: 1, explicit: map[string]bool{}}
	s.ha.rules["prefer-pve1"] = M{"type": "node-affinity", "resources": "ct:201", "nodes": "pve1:2,pve2:1"}

	tokens := map[string]string{}
	s.users["root@pam"].email = ""
	tokens["full"] = s.addToken("root@pam", "full", "11111111-1111-4111-8111-111111111111", false)
	tokens["sep"] = s.addToken("root@pam", "sep", "66666666-6666-4666-8666-666666666666", true)
	for _, t := range []struct{ user, name, secret string }{
		{"audit@pve", "ro", "22222222-2222-4222-8222-222222222222"}, {"vmadmin@pve", "vm", "33333333-3333-4333-8333-333333333333"},
		{"limited@pve", "one", "44444444-4444-4444-8444-444444444444"}, {"nobody@pve", "none", "55555555-5555-4555-8555-555555555555"},
	} {
		s.addUser(t.user)
		tokens[t.name] = s.addToken(t.user, t.name, t.secret, false)
	}
	s.groups["ops"] = &group{comment: "operators"}
	joe := s.addUser("joe@pve")
	joe.email, joe.first, joe.password, joe.groups["ops"] = "joe@lab.test", "Joe", "labpass123", true
	joe.tokens["t1"] = &token{secret: newUUID(), privsep: true, comment: "first"}
	admin := s.addUser("root2@pve")
	admin.comment, admin.email = "second admin", "a@lab.test"
	s.roles["LabOps"] = &role{privs: map[string]bool{"VM.Audit": true, "VM.PowerMgmt": true, "VM.Snapshot": true}}
	s.grant("/", "user", "audit@pve", "PVEAuditor", true)
	s.grant("/nodes", "token", "root@pam!sep", "PVEAuditor", true)
	s.grant("/pool/lab", "group", "ops", "LabOps", true)
	s.grant("/vms", "user", "vmadmin@pve", "PVEVMAdmin", true)
	s.grant("/vms/200", "user", "limited@pve", "PVEVMUser", true)

	root := caller{user: "root@pam"}
	full := caller{user: "root@pam", token: "root@pam!full"}
	n2 := s.nodes[1]
	s.past(n2, "vzcreate", "210", full, 26*time.Second, time.Second, "OK")
	s.past(n2, "qmcreate", "110", full, 26*time.Second, time.Second, "OK")
	for _, p := range []struct {
		typ, id string
		who     caller
		ago     time.Duration
		exit    string
	}{
		{"vzcreate", "200", root, 33, "OK"}, {"qmcreate", "100", root, 32, "OK"}, {"vzstart", "200", root, 30, "OK"}, {"qmstart", "100", root, 29, "OK"}, {"vzcreate", "201", full, 27, "OK"},
		{"qmcreate", "101", full, 25, "OK"}, {"qmclone", "101", full, 24, "OK"}, {"vzsnapshot", "200", full, 23, "snapshot feature is not available"}, {"qmsnapshot", "100", full, 23, "snapshot feature is not available"},
	} {
		s.past(n1, p.typ, p.id, p.who, p.ago*time.Second, time.Second, p.exit)
	}
	return tokens
}
