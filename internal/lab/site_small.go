package lab

import (
	"fmt"
	"sort"
	"time"
)

// standardAccess gives a site its four tokens: auditor (reads all), operator (runs guests), admin (everything but
// being root), limited (one guest).
func (s *state) standardAccess(limitedTo int) map[string]string {
	tokens := map[string]string{}
	s.addUser("castellan@pve")
	s.users["root@pam"].password = "labroot123"
	tokens["admin"] = s.addToken("root@pam", "admin", "aaaaaaaa-1111-4111-8111-aaaaaaaaaaaa", false)
	for _, t := range []struct{ user, name, secret string }{
		{"auditor@pve", "auditor", "bbbbbbbb-2222-4222-8222-bbbbbbbbbbbb"}, {"operator@pve", "operator", "cccccccc-3333-4333-8333-cccccccccccc"}, {"limited@pve", "limited", "dddddddd-4444-4444-8444-dddddddddddd"},
	} {
		s.addUser(t.user)
		tokens[t.name] = s.addToken(t.user, t.name, t.secret, false)
	}
	s.grant("/", "user", "auditor@pve", "PVEAuditor", true)
	s.roles["Operator"] = &role{privs: map[string]bool{}}
	for _, r := range []string{"PVEVMAdmin", "PVEDatastoreUser", "PVEPoolUser", "PVESDNUser"} {
		for p := range s.roles[r].privs {
			s.roles["Operator"].privs[p] = true
		}
	}
	s.roles["Operator"].privs["Sys.Audit"] = true
	s.grant("/", "user", "operator@pve", "Operator", true)
	s.grant(fmt.Sprintf("/vms/%d", limitedTo), "user", "limited@pve", "PVEVMUser", true)
	return tokens
}

// vm and ct are guest configurations with the usual keys.
func (s *state) vmConf(name string, extra map[string]string) map[string]string {
	m := map[string]string{"name": name, "memory": "2048", "cores": "2", "sockets": "1", "cpu": "x86-64-v2-AES", "ostype": "l26", "scsihw": "virtio-scsi-single", "boot": "order=scsi0;net0",
		"smbios1": "uuid=" + newUUID(), "vmgenid": newUUID(), "meta": fmt.Sprintf("creation-qemu=10.1.2,ctime=%d", s.now.Add(-90*24*time.Hour).Unix()), "net0": "virtio=" + newMAC() + ",bridge=vmbr0,firewall=1"}
	for k, v := range extra {
		m[k] = v
	}
	return m
}

func (s *state) ctConf(name string, extra map[string]string) map[string]string {
	m := map[string]string{"hostname": name, "memory": "1024", "swap": "512", "cores": "1", "arch": "amd64", "ostype": "debian", "unprivileged": "1", "net0": "name=eth0,bridge=vmbr0,hwaddr=" + newMAC() + ",ip=dhcp,type=veth"}
	for k, v := range extra {
		m[k] = v
	}
	return m
}

// smallSite has three nodes, five kinds of storage and some fourteen guests of every sort.
func smallSite(s *state) map[string]string {
	s.cluster, s.version = "small", 3
	const gib = int64(1) << 30
	n1 := s.addNode("pve1", "10.10.10.1", 8, 32*gib, 100*gib)
	n2 := s.addNode("pve2", "10.10.10.2", 8, 32*gib, 100*gib)
	s.addNode("pve3", "10.10.10.3", 8, 32*gib, 100*gib)
	s.addStorage("local", M{"type": "dir", "path": "/var/lib/vz", "content": "iso,vztmpl,backup,snippets,import", "prune-backups": "keep-last=5"}, 100*gib, 8*gib)
	s.addStorage("local-lvm", M{"type": "lvmthin", "vgname": "pve", "thinpool": "data", "content": "images,rootdir"}, 400*gib, 0)
	s.addStorage("tank", M{"type": "zfspool", "pool": "tank", "content": "images,rootdir", "sparse": 1, "mountpoint": "/tank", "nodes": "pve1,pve2"}, 800*gib, 0)
	s.addStorage("nas", M{"type": "nfs", "server": "10.10.10.20", "export": "/export/pve", "path": "/mnt/pve/nas", "content": "images,rootdir,backup,iso", "options": "vers=4.2"}, 2000*gib, 300*gib)
	s.addStorage("pbs1", M{"type": "pbs", "server": "10.10.10.30", "datastore": "main", "username": "pve@pbs", "fingerprint": fingerprintOf([]byte("pbs1")), "content": "backup", "prune-backups": "keep-all=1"}, 4000*gib, 900*gib)
	for _, n := range s.nodes {
		s.addVol(n.name, &volume{id: "local:vztmpl/debian-13-standard_13.1-2_amd64.tar.zst", content: "vztmpl", format: "tzst", size: 120 << 20})
		s.addVol(n.name, &volume{id: "local:iso/debian-13.1.0-amd64-netinst.iso", content: "iso", format: "iso", size: 780 << 20})
	}

	day := 24 * time.Hour
	web := s.addGuest(101, kindQemu, "pve1", s.vmConf("web", map[string]string{"scsi0": "local-lvm:vm-101-disk-0,size=20G", "agent": "1", "tags": "prod;web", "onboot": "1", "description": "front web server"}))
	s.up(web, 12*day)
	db := s.addGuest(102, kindQemu, "pve1", s.vmConf("db", map[string]string{"scsi0": "tank:vm-102-disk-0,size=32G", "scsi1": "tank:vm-102-disk-1,size=100G", "agent": "enabled=1,fstrim_cloned_disks=1", "memory": "8192", "cores": "4", "tags": "db;prod", "protection": "1", "onboot": "1"}))
	s.up(db, 30*day)
	s.snapAt(db, "before-upgrade", "before the upgrade to 17", 9*day)
	s.addGuest(103, kindQemu, "pve1", s.vmConf("old-app", map[string]string{"scsi0": "nas:103/vm-103-disk-0.qcow2,size=16G", "tags": "legacy"}))
	s.addGuest(104, kindQemu, "pve1", s.vmConf("debian-template", map[string]string{"template": "1", "scsi0": "local-lvm:base-104-disk-0,size=8G", "ide2": "local-lvm:vm-104-cloudinit,media=cdrom", "ciuser": "debian", "ipconfig0": "ip=dhcp", "tags": "template"}))
	locked := s.addGuest(105, kindQemu, "pve2", s.vmConf("mail", map[string]string{"scsi0": "local-lvm:vm-105-disk-0,size=40G", "tags": "prod", "lock": "backup"}))
	s.up(locked, 3*day)
	haVM := s.addGuest(106, kindQemu, "pve2", s.vmConf("gateway", map[string]string{"scsi0": "nas:106/vm-106-disk-0.qcow2,size=10G", "agent": "1", "tags": "net;prod"}))
	s.up(haVM, 5*day)
	web2 := s.addGuest(107, kindQemu, "pve2", s.vmConf("web", map[string]string{"scsi0": "local-lvm:vm-107-disk-0,size=20G", "tags": "staging;web"}))
	s.up(web2, 2*day)
	win := s.addGuest(108, kindQemu, "pve3", s.vmConf("win11", map[string]string{"scsi0": "local-lvm:vm-108-disk-0,size=64G", "ostype": "win11", "machine": "pc-q35-10.1", "bios": "ovmf", "efidisk0": "local-lvm:vm-108-disk-1,efitype=4m,pre-enrolled-keys=1,size=4M", "agent": "1", "memory": "8192", "tags": "desktop"}))
	s.up(win, day)
	win.noAgent, win.shutFail = true, true
	ct1 := s.addGuest(201, kindLXC, "pve1", s.ctConf("dns", map[string]string{"rootfs": "local-lvm:vm-201-disk-0,size=4G", "tags": "net;prod", "onboot": "1"}))
	s.up(ct1, 40*day)
	s.snapAt(ct1, "clean", "", 20*day)
	ct2 := s.addGuest(202, kindLXC, "pve1", s.ctConf("media", map[string]string{"rootfs": "tank:subvol-202-disk-0,size=16G", "unprivileged": "0", "mp0": "/tank/media,mp=/media", "features": "nesting=1", "tags": "home"}))
	delete(ct2.conf, "unprivileged")
	s.up(ct2, 7*day)
	s.addGuest(203, kindLXC, "pve2", s.ctConf("build", map[string]string{"rootfs": "tank:subvol-203-disk-0,size=32G", "mp0": "tank:subvol-203-disk-1,mp=/var/cache,backup=1,size=50G", "tags": "dev"}))
	ct4 := s.addGuest(204, kindLXC, "pve3", s.ctConf("monitor", map[string]string{"rootfs": "local-lvm:vm-204-disk-0,size=8G", "tags": "prod"}))
	s.up(ct4, 11*day)
	s.addGuest(205, kindLXC, "pve2", s.ctConf("alpine-template", map[string]string{"template": "1", "ostype": "alpine", "rootfs": "local-lvm:base-205-disk-0,size=1G", "tags": "template"}))
	ct6 := s.addGuest(206, kindLXC, "pve3", s.ctConf("proxy", map[string]string{"rootfs": "nas:206/vm-206-disk-0.raw,size=4G", "tags": "net"}))
	s.up(ct6, 6*day)

	s.pools["prod"] = &pool{comment: "production", storages: map[string]bool{}}
	s.pools["prod/db"] = &pool{comment: "data bases", storages: map[string]bool{"tank": true}}
	s.pools["dev"] = &pool{storages: map[string]bool{}}
	for id, p := range map[int]string{101: "prod", 105: "prod", 102: "prod/db", 203: "dev", 107: "dev"} {
		s.guestPool[id] = p
	}
	s.jobs["nightly"] = M{"enabled": 1, "schedule": "02:30", "storage": "pbs1", "mode": "snapshot", "all": 1, "exclude": "104,205", "comment": "all guests", "notes-template": "{{guestname}}"}
	s.jobs["db-hourly"] = M{"enabled": 1, "schedule": "*:00", "storage": "nas", "mode": "snapshot", "vmid": "102", "compress": "zstd", "prune-backups": M{"keep-last": "6"}}
	s.jobOrder = []string{"nightly", "db-hourly"}
	root := caller{user: "root@pam"}
	night := s.now.UTC().Truncate(day).Add(2*time.Hour + 30*time.Minute) // of the nightly job's last run
	if night.After(s.now.Add(-10 * time.Minute)) {
		night = night.Add(-day)
	}
	for back := 2; back >= 0; back-- {
		at := night.Add(-time.Duration(back) * day)
		s.pastDump(n1, s.storages["pbs1"], root, at, 4*time.Minute, []int{101, 102, 201}, nil)
		s.pastDump(n2, s.storages["pbs1"], root, at, 3*time.Minute, []int{203}, map[int]string{105: "VM is locked (backup)"})
	}
	for _, hours := range []int{2, 1} {
		made := s.pastDump(n1, s.storages["nas"], root, s.now.Add(-time.Duration(hours)*time.Hour), 30*time.Second, []int{102}, nil)
		if hours == 2 {
			made[0].protected, made[0].notes = true, "db"
		}
	}
	s.newBackup("pve1", s.storages["local"], web, s.now.Add(-30*day), "zstd")

	cl := newFirewall()
	cl.options = M{"enable": 1, "policy_in": "DROP"}
	cl.aliases["lan"] = M{"name": "lan", "cidr": "10.10.10.0/24", "ipversion": 4}
	cl.ipsets["management"] = &ipset{members: []M{{"cidr": "10.10.10.5"}, {"cidr": "10.10.10.6"}}}
	cl.rules = []M{{"type": "in", "action": "ACCEPT", "enable": 1, "proto": "tcp", "dport": "8006,22", "source": "+management"}}
	s.fw["cluster"] = cl
	s.fwGroups["webserver"] = &fwGroup{comment: "http and https", rules: []M{{"type": "in", "action": "ACCEPT", "macro": "HTTPS", "enable": 1}, {"type": "in", "action": "ACCEPT", "macro": "HTTP", "enable": 1}}}
	gfw := newFirewall()
	gfw.options = M{"enable": 1}
	gfw.rules = []M{{"type": "group", "action": "webserver", "enable": 1}}
	s.fw["guest/101"] = gfw

	s.sdn.put("zones", "lab", M{"type": "simple", "ipam": "pve"})
	s.sdn.put("vnets", "vlab", M{"zone": "lab", "alias": "lab network"})
	s.sdn.put("subnets", "lab-10.60.0.0-24", M{"vnet": "vlab", "zone": "lab", "gateway": "10.60.0.1", "snat": 1})
	s.sdn.put("ipams", "pve", M{"type": "pve"})
	for kind, objs := range s.sdn.conf {
		s.sdn.running[kind] = map[string]M{}
		for id, m := range objs {
			s.sdn.running[kind][id] = copyM(m)
		}
	}
	s.ha.resources["vm:106"] = &haResource{sid: "vm:106", request: "started", crm: "started", running: true, node: "pve2", maxRestart: 1, maxRelocate: 1, failback: 1, explicit: map[string]bool{}}
	s.ha.rules["gateway-nodes"] = M{"type": "node-affinity", "resources": "vm:106", "nodes": "pve1,pve2"}
	s.ha.master = "pve1"
	s.ha.active["pve2"] = true

	tokens := s.standardAccess(201)
	s.groups["ops"] = &group{comment: "operators"}
	joe := s.addUser("joe@pve")
	joe.email, joe.first, joe.password, joe.groups["ops"] = "joe@example.com", "Joe", "labpass123", true
	ann := s.addUser("ann@pve")
	ann.first, ann.password = "Ann", "labpass123"
	ann.totp = "3132333435363738393031323334353637383930"
	ann.tfa = []*tfaEntry{{id: "recovery", kind: "recovery", codes: map[string]bool{"1111-2222-3333-4444": true, "5555-6666-7777-8888": true}}}
	s.grant("/pool/dev", "group", "ops", "PVEVMAdmin", true)
	s.grant("/pool/dev", "user", "ann@pve", "PVEVMUser", true)

	s.past(n1, "qmstart", "101", root, 12*day, 2*time.Second, "OK")
	return tokens
}

// pastDump is a backup run of some time ago, with the archives that it made and the log that it left.
func (s *state) pastDump(n *node, st *storage, who caller, at time.Time, took time.Duration, ids []int, failed map[int]string) []*volume {
	id, exit := "", "OK"
	if len(ids)+len(failed) == 1 {
		id = fmt.Sprint(ids[0])
	}
	if len(failed) > 0 {
		exit = "job errors"
	}
	t := s.past(n, "vzdump", id, who, s.now.Sub(at), took, exit)
	last := t.log
	t.log = []string{"INFO: starting new backup job: vzdump --storage " + st.id + " --mode snapshot"}
	var made []*volume
	for i, guest := range ids {
		g := s.guests[guest]
		v := s.newBackup(n.name, st, g, at.Add(time.Duration(i+1)*2*time.Second), "zstd")
		made = append(made, v)
		t.log = append(t.log, fmt.Sprintf("INFO: Starting Backup of VM %d (%s)", guest, g.kind), s.creatingLine(st, v), fmt.Sprintf("INFO: Finished Backup of VM %d (00:00:30)", guest))
	}
	for _, guest := range sortedInts(failed) {
		t.log = append(t.log, fmt.Sprintf("ERROR: Backup of VM %d failed - %s", guest, failed[guest]))
	}
	end := "INFO: Backup job finished successfully"
	if len(failed) > 0 {
		end = "INFO: Backup job finished with errors"
	}
	t.log = append(append(t.log, end), last...)
	return made
}

func sortedInts(m map[int]string) []int {
	out := make([]int, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	sort.Ints(out)
	return out
}

// snapAt gives a guest a snapshot made some time ago.
func (s *state) snapAt(g *guest, name, desc string, ago time.Duration) {
	conf := cloneMap(g.conf)
	delete(conf, "description")
	g.snaps = append(g.snaps, &snapshot{name: name, desc: desc, parent: g.parent, time: s.now.Add(-ago).Unix(), conf: conf})
	g.parent = name
}
