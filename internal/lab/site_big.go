package lab

import (
	"fmt"
	"strings"
	"time"
)

// bigSite is generated: the same for the same numbers, apart from addresses and keys. Its guests differ as those of a
// grown site do: local and shared disks, second and unused ones, two bridges and a vnet, templates with linked clones,
// snapshots, HA, replication, and backup jobs of each sort.
func bigSite(s *state, nodes, guests int) map[string]string {
	s.cluster, s.version = "big", nodes
	const gib = int64(1) << 30
	for i := 0; i < nodes; i++ {
		n := s.addNode(fmt.Sprintf("node%03d", i+1), fmt.Sprintf("10.20.%d.%d", i/250, i%250+1), 64, 512*gib, 500*gib)
		s.ifaces[n.name] = bigNetwork(n)
	}
	s.addStorage("local", M{"type": "dir", "path": "/var/lib/vz", "content": "iso,vztmpl,backup"}, 500*gib, 20*gib)
	s.addStorage("local-lvm", M{"type": "lvmthin", "vgname": "pve", "thinpool": "data", "content": "images,rootdir"}, 4000*gib, 0)
	s.addStorage("nas", M{"type": "nfs", "server": "10.20.250.20", "export": "/export/pve", "path": "/mnt/pve/nas", "content": "images,rootdir,backup,iso"}, 100000*gib, 300*gib)
	s.addStorage("tank", M{"type": "zfspool", "pool": "tank", "content": "images,rootdir", "sparse": 1, "mountpoint": "/tank"}, 8000*gib, 0)
	s.addStorage("pbs", M{"type": "pbs", "server": "10.20.250.30", "datastore": "main", "username": "pve@pbs", "fingerprint": fingerprintOf([]byte("pbs")), "content": "backup", "prune-backups": "keep-all=1"}, 200000*gib, 900*gib)
	for _, n := range s.nodes {
		s.addVol(n.name, &volume{id: "local:iso/debian-13.1.0-amd64-netinst.iso", content: "iso", format: "iso", size: 780 << 20})
	}
	s.sdn.put("zones", "tenants", M{"type": "vxlan", "peers": "10.20.0.1,10.20.0.2"})
	s.sdn.put("vnets", "tenant1", M{"zone": "tenants", "tag": 100})
	for kind, objs := range s.sdn.conf {
		s.sdn.running[kind] = map[string]M{}
		for id, m := range objs {
			s.sdn.running[kind][id] = copyM(m)
		}
	}
	roles := []string{"web", "db", "app", "cache", "queue", "mail", "dns", "build"}
	envs := []string{"prod", "staging", "dev"}
	for _, e := range envs {
		s.pools[e] = &pool{comment: e, storages: map[string]bool{}}
	}
	s.pools["prod/critical"] = &pool{comment: "what must not stop", storages: map[string]bool{}}
	for i := 0; i < guests; i++ {
		role, env := roles[i%len(roles)], envs[i%len(envs)]
		g := s.bigGuest(i, s.nodes[i%nodes].name, fmt.Sprintf("%s-%05d", role, i), role, env, nodes)
		s.guestPool[g.id] = env
		if env == "prod" && i%7 == 0 {
			s.guestPool[g.id] = "prod/critical"
		}
		switch {
		case g.template():
		case i%5 != 0:
			s.up(g, time.Duration(i%1000+1)*time.Hour)
		}
		if i%10 == 4 {
			s.snapAt(g, "before-update", "", time.Duration(i%60+1)*24*time.Hour)
		}
		if i%50 == 6 && !g.template() {
			sid := g.sid()
			s.ha.resources[sid] = &haResource{sid: sid, request: "started", crm: "started", running: g.running, node: g.node, maxRestart: 1, maxRelocate: 1, failback: 1, explicit: map[string]bool{}}
		}
		if i%500 == 7 {
			target := s.nodes[(i+1)%nodes].name
			id := fmt.Sprintf("%d-0", g.id)
			s.repl[id] = M{"id": id, "type": "local", "guest": g.id, "jobnum": 0, "target": target, "source": g.node, "schedule": "*/15"}
		}
	}
	s.ha.rules["near"] = M{"type": "node-affinity", "resources": "vm:106", "nodes": "node007,node008"}
	s.jobs["nightly"] = M{"enabled": 1, "schedule": "02:30", "storage": "nas", "mode": "snapshot", "all": 1}
	s.jobs["critical"] = M{"enabled": 1, "schedule": "*/4:00", "storage": "pbs", "mode": "snapshot", "pool": "prod/critical"}
	s.jobs["some"] = M{"enabled": 1, "schedule": "sun 01:00", "storage": "pbs", "mode": "snapshot", "vmid": "101,102,103"}
	s.jobOrder = []string{"nightly", "critical", "some"}
	return s.standardAccess(100)
}

// bigGuest is the i-th guest of a generated site.
func (s *state) bigGuest(i int, node, name, role, env string, nodes int) *guest {
	id := 100 + i
	tags := env + ";" + role
	if role < env {
		tags = role + ";" + env
	}
	bridge := []string{"vmbr0", "vmbr0", "vmbr1", "tenant1"}[i/nodes%4]
	if i%4 == 3 {
		rootfs := fmt.Sprintf("local-lvm:vm-%d-disk-0,size=8G", id)
		switch {
		case i%500 == 7: // replicated, which takes ZFS
			rootfs = fmt.Sprintf("tank:subvol-%d-disk-0,size=8G", id)
		case i%24 == 3:
			rootfs = fmt.Sprintf("nas:%d/vm-%d-disk-0.raw,size=8G", id, id)
		}
		return s.addGuest(id, kindLXC, node, s.ctConf(name, map[string]string{"rootfs": rootfs, "tags": tags,
			"net0": "name=eth0,bridge=" + bridge + ",hwaddr=" + newMAC() + ",ip=dhcp,type=veth"}))
	}
	conf := map[string]string{"tags": tags, "agent": "1", "net0": "virtio=" + newMAC() + ",bridge=" + bridge + ",firewall=1"}
	disk := fmt.Sprintf("local-lvm:vm-%d-disk-0,size=32G", id)
	base := i - i%100 // the template of this node's row
	switch {
	case i%100 == 0:
		conf["template"] = "1"
		disk = fmt.Sprintf("nas:%d/base-%d-disk-0.qcow2,size=32G", id, id)
	case i%100 == 8 || i%100 == 9:
		disk = fmt.Sprintf("nas:%d/base-%d-disk-0.qcow2/%d/vm-%d-disk-0.qcow2,size=32G", 100+base, 100+base, id, id)
		v, _, _ := strings.Cut(disk, ",")
		s.addVol(node, &volume{id: v, content: "images", format: "qcow2", size: 32 << 30, used: 397312, vmid: id, parent: fmt.Sprintf("nas:%d/base-%d-disk-0.qcow2", 100+base, 100+base)})
	case i%6 == 2:
		disk = fmt.Sprintf("nas:%d/vm-%d-disk-0.qcow2,size=32G", id, id)
	}
	conf["scsi0"] = disk
	if i%5 == 1 {
		conf["scsi1"] = fmt.Sprintf("local-lvm:vm-%d-disk-1,size=100G", id)
	}
	if i%25 == 2 {
		conf["unused0"] = fmt.Sprintf("local-lvm:vm-%d-disk-2", id)
		s.addVol(node, &volume{id: conf["unused0"], content: "images", format: "raw", size: 8 << 30, used: 4096, vmid: id})
	}
	if i%20 == 5 {
		conf["ide2"] = "local:iso/debian-13.1.0-amd64-netinst.iso,media=cdrom,size=780M"
	}
	return s.addGuest(id, kindQemu, node, s.vmConf(name, conf))
}

// bigNetwork is a node with two bonded cards under one bridge and a second bridge of its own.
func bigNetwork(n *node) *network {
	card := func(name string) M {
		return M{"iface": name, "type": "eth", "active": 1, "exists": 1, "families": []string{"inet"}, "method": "manual", "method6": "manual", "priority": 3}
	}
	return &network{now: []M{card("eno1"), card("eno2"), card("eno3"),
		{"iface": "bond0", "type": "bond", "active": 1, "autostart": 1, "slaves": "eno1 eno2", "bond_mode": "802.3ad", "families": []string{"inet"}, "method": "manual", "method6": "manual", "priority": 6},
		{"iface": "vmbr0", "type": "bridge", "active": 1, "autostart": 1, "address": n.ip, "netmask": "16", "cidr": n.ip + "/16", "gateway": "10.20.255.254", "bridge_ports": "bond0", "bridge_stp": "off", "bridge_fd": "0", "families": []string{"inet"}, "method": "static", "method6": "manual", "priority": 7},
		{"iface": "vmbr1", "type": "bridge", "active": 1, "autostart": 1, "bridge_ports": "eno3", "bridge_stp": "off", "bridge_fd": "0", "bridge_vlan_aware": 1, "families": []string{"inet"}, "method": "manual", "method6": "manual", "priority": 8},
	}}
}
