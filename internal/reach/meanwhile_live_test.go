package reach_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestMeanwhile changes what a name in a plan stands for after it was planned: what is carried out is what was approved, or nothing.
func TestMeanwhile(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole castellan before a simulated site")
	}
	type f = map[string]string
	type change struct {
		method, path string
		form         f
	}
	for _, c := range []struct {
		name    string
		op      string
		params  m
		before  []change
		between []change
		want    string
	}{
		{"an alias becomes everything", "POST /cluster/firewall/rules", m{"type": "in", "action": "ACCEPT", "source": "dc/made", "enable": 1},
			[]change{{"POST", "/cluster/firewall/aliases", f{"name": "made", "cidr": "10.1.0.0/24"}}},
			[]change{{"PUT", "/cluster/firewall/aliases/made", f{"cidr": "0.0.0.0/0"}}}, "hit more than was approved"},
		{"a storage lies elsewhere", "POST /nodes/{node}/qemu/{vmid}/move_disk", m{"node": "pve1", "vmid": 103, "disk": "scsi0", "storage": "made", "delete": 1},
			[]change{{"POST", "/storage", f{"storage": "made", "type": "dir", "path": "/mnt/made", "content": "images"}}},
			[]change{{"DELETE", "/storage/made", nil}, {"POST", "/storage", f{"storage": "made", "type": "nfs", "server": "203.0.113.9", "export": "/x", "content": "images"}}}, "storage made is still dir /mnt/made"},
		{"a storage that a curated operation names", "clone_guest", m{"guest": "103", "storage": "made"},
			[]change{{"POST", "/storage", f{"storage": "made", "type": "dir", "path": "/mnt/made", "content": "images"}}},
			[]change{{"DELETE", "/storage/made", nil}, {"POST", "/storage", f{"storage": "made", "type": "dir", "path": "/mnt/other", "content": "images"}}}, "storage made is still dir /mnt/made"},
		{"a device is another one", "PUT /nodes/{node}/qemu/{vmid}/config", m{"node": "pve1", "vmid": 103, "hostpci0": "mapping=made"},
			[]change{{"POST", "/cluster/mapping/pci", f{"id": "made", "map": "node=pve1,path=0000:01:00.0,id=8086:1234"}}},
			[]change{{"PUT", "/cluster/mapping/pci/made", f{"map": "node=pve1,path=0000:00:1f.2,id=8086:9999"}}}, "pci mapping made still stands for"},
		{"a folder is another one", "PUT /nodes/{node}/qemu/{vmid}/config", m{"node": "pve1", "vmid": 103, "virtiofs0": "made"},
			[]change{{"POST", "/cluster/mapping/dir", f{"id": "made", "map": "node=pve1,path=/srv/public"}}},
			[]change{{"PUT", "/cluster/mapping/dir/made", f{"map": "node=pve1,path=/etc"}}}, "dir mapping made still stands for"},
		{"nothing happens", "POST /nodes/{node}/qemu/{vmid}/move_disk", m{"node": "pve1", "vmid": 103, "disk": "scsi0", "storage": "local-lvm", "delete": 1},
			[]change{{"PUT", "/storage/local-lvm", f{"content": "images"}}}, []change{{"PUT", "/storage/local-lvm", f{"content": "images,rootdir"}}}, ""},
		{"guests join the pool on which rights are given", "PUT /access/acl", m{"path": "/pool/made", "users": "carol@pve", "roles": "PVEVMUser"},
			[]change{{"POST", "/access/users", f{"userid": "carol@pve"}}, {"POST", "/pools", f{"poolid": "made"}}, {"PUT", "/pools", f{"poolid": "made", "vms": "103"}}},
			[]change{{"PUT", "/pools", f{"poolid": "made", "vms": "102", "allow-move": "1"}}}, "hit more than was approved: carol@pve gains"},
		{"guests join the pool of a group's rights", "PUT /access/users/{userid}", m{"userid": "carol@pve", "groups": "made"},
			[]change{{"POST", "/access/users", f{"userid": "carol@pve"}}, {"POST", "/access/groups", f{"groupid": "made"}}, {"POST", "/pools", f{"poolid": "made"}}, {"PUT", "/pools", f{"poolid": "made", "vms": "103"}},
				{"PUT", "/access/acl", f{"path": "/pool/made", "groups": "made", "roles": "PVEVMUser"}}},
			[]change{{"PUT", "/pools", f{"poolid": "made", "vms": "102", "allow-move": "1"}}}, "hit more than was approved: carol@pve gains"},
		{"guests join the pool of rights on everything", "PUT /access/acl", m{"path": "/vms", "users": "carol@pve", "roles": "PVEVMUser"},
			[]change{{"POST", "/access/users", f{"userid": "carol@pve"}}, {"POST", "/pools", f{"poolid": "made"}}},
			[]change{{"PUT", "/pools", f{"poolid": "made", "vms": "102", "allow-move": "1"}}}, ""},
		{"guests join the pool of a guest that is started", "guest_power", m{"guest": "103", "action": "start"},
			[]change{{"POST", "/pools", f{"poolid": "made"}}, {"PUT", "/pools", f{"poolid": "made", "vms": "103"}}},
			[]change{{"PUT", "/pools", f{"poolid": "made", "vms": "102", "allow-move": "1"}}}, ""},
		{"guests join the pool into which a guest is put", "PUT /pools", m{"poolid": "made", "vms": "103", "allow-move": 1},
			[]change{{"POST", "/pools", f{"poolid": "made"}}},
			[]change{{"PUT", "/pools", f{"poolid": "made", "vms": "102", "allow-move": "1"}}}, ""},
		{"a job that is switched on stops guests now", "PUT /cluster/backup/{id}", m{"id": "made", "enabled": 1},
			[]change{{"POST", "/cluster/backup", f{"id": "made", "vmid": "103", "schedule": "sat 03:00", "enabled": "0", "storage": "local", "mode": "snapshot"}}},
			[]change{{"PUT", "/cluster/backup/made", f{"mode": "stop"}}}, "backup made is as it was (found: now mode=stop"},
		{"a job that is switched on is of other guests", "PUT /cluster/backup/{id}", m{"id": "made", "enabled": 1},
			[]change{{"POST", "/cluster/backup", f{"id": "made", "vmid": "103", "schedule": "sat 03:00", "enabled": "0", "storage": "local"}}},
			[]change{{"PUT", "/cluster/backup/made", f{"vmid": "101,102"}}}, "backup made is as it was (found: now vmid=101,102"},
		{"a job that is switched on prunes", "PUT /cluster/backup/{id}", m{"id": "made", "enabled": 1},
			[]change{{"POST", "/cluster/backup", f{"id": "made", "vmid": "103", "schedule": "sat 03:00", "enabled": "0", "storage": "local"}}},
			[]change{{"PUT", "/cluster/backup/made", f{"prune-backups": "keep-last=1"}}}, "backup made is as it was"},
		{"a job that is switched on is described otherwise", "PUT /cluster/backup/{id}", m{"id": "made", "enabled": 1},
			[]change{{"POST", "/cluster/backup", f{"id": "made", "vmid": "103", "schedule": "sat 03:00", "enabled": "0", "storage": "local"}}},
			[]change{{"PUT", "/cluster/backup/made", f{"comment": "of the others"}}}, ""},
		{"guests join the pool of a job that is switched on", "PUT /cluster/backup/{id}", m{"id": "made", "enabled": 1},
			[]change{{"POST", "/pools", f{"poolid": "made"}}, {"POST", "/cluster/backup", f{"id": "made", "pool": "made", "schedule": "sat 03:00", "enabled": "0", "storage": "local"}}},
			[]change{{"PUT", "/pools", f{"poolid": "made", "vms": "102", "allow-move": "1"}}}, "pool made holds the same members (found: now id=qemu/102"},
		{"guests join the pool below that of a backup", "POST /nodes/{node}/vzdump", m{"node": "pve1", "pool": "made", "storage": "local"},
			[]change{{"POST", "/pools", f{"poolid": "made"}}, {"POST", "/pools", f{"poolid": "made/sub"}}},
			[]change{{"PUT", "/pools", f{"poolid": "made/sub", "vms": "102", "allow-move": "1"}}}, "pool made/sub holds the same members"},
		{"a group is filled while nothing is filtered", "POST /nodes/{node}/qemu/{vmid}/firewall/rules", m{"node": "pve1", "vmid": 103, "type": "group", "action": "made", "enable": 1},
			[]change{{"POST", "/cluster/firewall/groups", f{"group": "made"}}},
			[]change{{"POST", "/cluster/firewall/groups/made", f{"type": "in", "action": "ACCEPT", "enable": "1"}}}, "security group made has the same rules (found: now action=ACCEPT"},
		{"a set is filled while nothing is filtered", "POST /nodes/{node}/qemu/{vmid}/firewall/rules", m{"node": "pve1", "vmid": 103, "type": "in", "action": "ACCEPT", "source": "+made", "enable": 1},
			[]change{{"POST", "/cluster/firewall/ipset", f{"name": "made"}}},
			[]change{{"POST", "/cluster/firewall/ipset/made", f{"cidr": "203.0.113.0/24"}}}, "ipset made has the same entries"},
		{"a guest's own alias takes the place of the site's", "POST /nodes/{node}/qemu/{vmid}/firewall/rules", m{"node": "pve1", "vmid": 103, "type": "in", "action": "ACCEPT", "source": "made", "enable": 1},
			[]change{{"POST", "/cluster/firewall/aliases", f{"name": "made", "cidr": "10.1.0.0/24"}}},
			[]change{{"POST", "/nodes/pve1/qemu/103/firewall/aliases", f{"name": "made", "cidr": "203.0.113.0/24"}}}, "alias made of guest 103 stands for the same"},
		{"an alias in a set in a group", "POST /nodes/{node}/qemu/{vmid}/firewall/rules", m{"node": "pve1", "vmid": 103, "type": "group", "action": "made", "enable": 1},
			[]change{{"POST", "/cluster/firewall/aliases", f{"name": "made", "cidr": "10.1.0.0/24"}}, {"POST", "/cluster/firewall/ipset", f{"name": "made"}}, {"POST", "/cluster/firewall/ipset/made", f{"cidr": "dc/made"}},
				{"POST", "/cluster/firewall/groups", f{"group": "made"}}, {"POST", "/cluster/firewall/groups/made", f{"type": "in", "action": "ACCEPT", "source": "+dc/made", "enable": "1"}}},
			[]change{{"PUT", "/cluster/firewall/aliases/made", f{"cidr": "203.0.113.0/24"}}}, "alias made stands for the same (found: now cidr=203.0.113.0/24"},
		{"another group is filled", "POST /nodes/{node}/qemu/{vmid}/firewall/rules", m{"node": "pve1", "vmid": 103, "type": "group", "action": "made", "enable": 1},
			[]change{{"POST", "/cluster/firewall/groups", f{"group": "made"}}, {"POST", "/cluster/firewall/groups", f{"group": "other"}}},
			[]change{{"POST", "/cluster/firewall/groups/other", f{"type": "in", "action": "ACCEPT", "enable": "1"}}}, ""},
		{"a clone's source gets a hook script", "clone_guest", m{"guest": "103"}, nil,
			[]change{{"PUT", "/nodes/pve1/qemu/103/config", f{"hookscript": "local:snippets/x.pl"}}}, "hookscript comes along"},
		{"a clone's source gets files of its own", "POST /nodes/{node}/qemu/{vmid}/clone", m{"node": "pve1", "vmid": 103, "newid": 700}, nil,
			[]change{{"PUT", "/nodes/pve1/qemu/103/config", f{"cicustom": "user=local:snippets/x.yaml"}}}, "the settings of VM 103 are as they were (found: now cicustom="},
		{"a clone's source is described otherwise", "clone_guest", m{"guest": "103"}, nil,
			[]change{{"PUT", "/nodes/pve1/qemu/103/config", f{"description": "soon more"}}}, ""},
		{"a disk that is moved is another one", "POST /nodes/{node}/qemu/{vmid}/move_disk", m{"node": "pve1", "vmid": 103, "disk": "scsi1", "storage": "local-lvm"},
			[]change{{"PUT", "/nodes/pve1/qemu/103/config", f{"scsi1": "nas:1"}}},
			[]change{{"PUT", "/nodes/pve1/qemu/103/config", f{"delete": "scsi1"}}, {"PUT", "/nodes/pve1/qemu/103/config", f{"scsi1": "nas:2"}}}, "scsi1 of VM 103 is still nas:103/vm-103-disk-"},
		{"a disk that grows is another one", "PUT /nodes/{node}/qemu/{vmid}/resize", m{"node": "pve1", "vmid": 103, "disk": "scsi1", "size": "+1G"},
			[]change{{"PUT", "/nodes/pve1/qemu/103/config", f{"scsi1": "nas:1"}}},
			[]change{{"PUT", "/nodes/pve1/qemu/103/config", f{"delete": "scsi1"}}, {"PUT", "/nodes/pve1/qemu/103/config", f{"scsi1": "nas:2"}}}, "scsi1 of VM 103 is still nas:103/vm-103-disk-"},
		{"a disk that is taken off is another one", "PUT /nodes/{node}/qemu/{vmid}/config", m{"node": "pve1", "vmid": 103, "delete": "net7,scsi1"},
			[]change{{"PUT", "/nodes/pve1/qemu/103/config", f{"scsi1": "nas:1"}}},
			[]change{{"PUT", "/nodes/pve1/qemu/103/config", f{"delete": "scsi1"}}, {"PUT", "/nodes/pve1/qemu/103/config", f{"scsi1": "nas:2"}}}, "scsi1 is nas:103/vm-103-disk-1.raw,size=1G (found: nas:103/vm-103-disk-2.raw"},
		{"a disk that is unlinked is another one", "PUT /nodes/{node}/qemu/{vmid}/unlink", m{"node": "pve1", "vmid": 103, "idlist": "scsi1"},
			[]change{{"PUT", "/nodes/pve1/qemu/103/config", f{"scsi1": "nas:1"}}},
			[]change{{"PUT", "/nodes/pve1/qemu/103/config", f{"delete": "scsi1"}}, {"PUT", "/nodes/pve1/qemu/103/config", f{"scsi1": "nas:2"}}}, "scsi1 of VM 103 is still nas:103/vm-103-disk-"},
		{"an unused disk that is deleted is another one", "PUT /nodes/{node}/qemu/{vmid}/config", m{"node": "pve1", "vmid": 103, "delete": "unused0"},
			[]change{{"PUT", "/nodes/pve1/qemu/103/config", f{"scsi1": "nas:1"}}, {"PUT", "/nodes/pve1/qemu/103/config", f{"delete": "scsi1"}}},
			[]change{{"PUT", "/nodes/pve1/qemu/103/config", f{"delete": "unused0"}}, {"PUT", "/nodes/pve1/qemu/103/config", f{"scsi2": "nas:2"}}, {"PUT", "/nodes/pve1/qemu/103/config", f{"scsi3": "nas:2"}}, {"PUT", "/nodes/pve1/qemu/103/config", f{"delete": "scsi3"}}}, "stale: it would now hit more than was approved: unused0 (nas:103/vm-103-disk-2.raw)"},
		{"a key that was free has a disk when one is put there", "POST /nodes/{node}/qemu/{vmid}/config", m{"node": "pve1", "vmid": 103, "scsi1": "nas:1"}, nil,
			[]change{{"PUT", "/nodes/pve1/qemu/103/config", f{"scsi1": "nas:2"}}}, "VM 103 has no scsi1 (found: nas:103/vm-103-disk-"},
		{"the key of who gets a disk is not free any more", "POST /nodes/{node}/qemu/{vmid}/move_disk", m{"node": "pve1", "vmid": 103, "disk": "scsi1", "target-vmid": 102, "target-disk": "scsi5"},
			[]change{{"PUT", "/nodes/pve1/qemu/103/config", f{"scsi1": "nas:1"}}},
			[]change{{"PUT", "/nodes/pve1/qemu/102/config", f{"scsi5": "nas:2"}}}, "VM 102 has no scsi5 (found: nas:102/vm-102-disk-"},
		{"a disk that is moved has grown", "POST /nodes/{node}/qemu/{vmid}/move_disk", m{"node": "pve1", "vmid": 103, "disk": "scsi0", "storage": "local-lvm"}, nil,
			[]change{{"PUT", "/nodes/pve1/qemu/103/resize", f{"disk": "scsi0", "size": "+1G"}}, {"PUT", "/nodes/pve1/qemu/103/config", f{"scsi6": "nas:1"}}}, ""},
		{"a mount point that is moved is another one", "POST /nodes/{node}/lxc/{vmid}/move_volume", m{"node": "pve3", "vmid": 204, "volume": "mp5", "storage": "nas"},
			[]change{{"PUT", "/nodes/pve3/lxc/204/config", f{"mp5": "local-lvm:1,mp=/x"}}},
			[]change{{"PUT", "/nodes/pve3/lxc/204/config", f{"delete": "mp5"}}, {"PUT", "/nodes/pve3/lxc/204/config", f{"mp5": "local-lvm:1,mp=/x"}}}, "mp5 of CT 204 is still local-lvm:vm-204-disk-"},
		{"a zone is another one when its vnet is made", "POST /cluster/sdn/vnets", m{"vnet": "made", "zone": "made", "tag": 7},
			[]change{{"POST", "/cluster/sdn/zones", f{"zone": "made", "type": "vlan", "bridge": "vmbr0"}}},
			[]change{{"PUT", "/cluster/sdn/zones/made", f{"bridge": "vmbr1"}}}, "SDN zone made is as it was (found: now bridge=vmbr1"},
		{"a vnet is in another zone when it gets a subnet", "POST /cluster/sdn/vnets/{vnet}/subnets", m{"vnet": "made", "subnet": "10.9.0.0/24", "type": "subnet"},
			[]change{{"POST", "/cluster/sdn/zones", f{"zone": "made", "type": "vlan", "bridge": "vmbr0"}}, {"POST", "/cluster/sdn/vnets", f{"vnet": "made", "zone": "made", "tag": "7"}}},
			[]change{{"PUT", "/cluster/sdn/vnets/made", f{"tag": "8"}}}, "vnets made is as it was"},
		{"a vnet has another tag when a guest is put on it", "set_guest_config", m{"guest": "103", "set": m{"net1": "virtio,bridge=made"}},
			[]change{{"POST", "/cluster/sdn/zones", f{"zone": "made", "type": "vlan", "bridge": "vmbr0"}}, {"POST", "/cluster/sdn/vnets", f{"vnet": "made", "zone": "made", "tag": "7"}}},
			[]change{{"PUT", "/cluster/sdn/vnets/made", f{"tag": "8"}}}, "vnet made is as it was (found: now tag=8"},
		{"a realm is another directory's when it is synchronised", "POST /access/domains/{realm}/sync", m{"realm": "made", "scope": "both"},
			[]change{{"POST", "/access/domains", f{"realm": "made", "type": "ldap", "server1": "ldap.example", "base_dn": "dc=example", "user_attr": "uid"}}},
			[]change{{"PUT", "/access/domains/made", f{"server1": "203.0.113.9"}}}, "domains made is as it was (found: now server1=203.0.113.9"},
		{"a realm is another directory's when it is changed", "PUT /access/domains/{realm}", m{"realm": "made", "default": 1},
			[]change{{"POST", "/access/domains", f{"realm": "made", "type": "ldap", "server1": "ldap.example", "base_dn": "dc=example", "user_attr": "uid"}}},
			[]change{{"PUT", "/access/domains/made", f{"server1": "203.0.113.9"}}}, "is as it was (found: now server1=203.0.113.9"},
		{"a bridge gets a guest before it is removed", "DELETE /nodes/{node}/network/{iface}", m{"node": "pve1", "iface": "vmbr9"},
			[]change{{"POST", "/nodes/pve1/network", f{"iface": "vmbr9", "type": "bridge", "autostart": "1"}}, {"PUT", "/nodes/pve1/network", nil}},
			[]change{{"PUT", "/nodes/pve1/qemu/103/config", f{"net1": "virtio,bridge=vmbr9"}}}, "hit more than was approved"},
		{"an HA rule is of other guests when it is switched on", "PUT /cluster/ha/rules/{rule}", m{"rule": "made", "type": "resource-affinity", "disable": 0},
			[]change{{"POST", "/cluster/ha/resources", f{"sid": "vm:103"}}, {"POST", "/cluster/ha/resources", f{"sid": "vm:102"}}, {"POST", "/cluster/ha/resources", f{"sid": "vm:101"}},
				{"POST", "/cluster/ha/rules", f{"rule": "made", "type": "resource-affinity", "resources": "vm:103,vm:102", "affinity": "positive", "disable": "1"}}},
			[]change{{"PUT", "/cluster/ha/rules/made", f{"type": "resource-affinity", "affinity": "negative"}}}, "is as it was (found: now affinity=negative"},
		{"a storage comes to keep fewer backups", "POST /nodes/{node}/vzdump", m{"node": "pve1", "vmid": "101", "storage": "local"}, nil,
			[]change{{"PUT", "/storage/local", f{"prune-backups": "keep-last=1"}}}, "storage local keeps backups as it did (found: now prune-backups=keep-last=1"},
		{"the storage of a job that is switched on comes to keep fewer backups", "PUT /cluster/backup/{id}", m{"id": "made", "enabled": 1},
			[]change{{"POST", "/cluster/backup", f{"id": "made", "vmid": "101", "schedule": "sat 03:00", "enabled": "0", "storage": "local"}}},
			[]change{{"PUT", "/storage/local", f{"prune-backups": "keep-last=1"}}}, "storage local keeps backups as it did"},
		{"a job that has numbers of its own", "PUT /cluster/backup/{id}", m{"id": "made", "enabled": 1},
			[]change{{"POST", "/cluster/backup", f{"id": "made", "vmid": "101", "schedule": "sat 03:00", "enabled": "0", "storage": "local", "prune-backups": "keep-last=3"}}},
			[]change{{"PUT", "/storage/local", f{"prune-backups": "keep-last=1"}}}, ""},
		{"a pruning comes to take more", "DELETE /nodes/{node}/storage/{storage}/prunebackups", m{"node": "pve1", "storage": "local"},
			[]change{{"POST", "/nodes/pve1/vzdump", f{"vmid": "103", "storage": "local", "remove": "0"}}, {"POST", "/nodes/pve1/vzdump", f{"vmid": "103", "storage": "local", "remove": "0"}}, {"POST", "/nodes/pve1/vzdump", f{"vmid": "103", "storage": "local", "remove": "0"}}, {"PUT", "/storage/local", f{"prune-backups": "keep-last=2"}}},
			[]change{{"PUT", "/storage/local", f{"prune-backups": "keep-last=1"}}}, "hit more than was approved: the backup of guest 103 is deleted"},
		{"a directory is looked into from another place", "PUT /access/domains/{realm}", m{"realm": "made", "default": 1},
			[]change{{"POST", "/access/domains", f{"realm": "made", "type": "ldap", "server1": "ldap.example", "base_dn": "ou=staff,ou=old,dc=example", "user_attr": "uid"}}},
			[]change{{"PUT", "/access/domains/made", f{"base_dn": "ou=old,ou=staff,dc=example"}}}, "is as it was (found: now base_dn=ou=old,ou=staff,dc=example"},
		{"the time goes on", "PUT /nodes/{node}/time", m{"node": "pve1", "timezone": "Europe/Berlin"}, nil, []change{{"WAIT", "1100ms", nil}}, ""},
		{"a guest gets a new tag while options are changed", "PUT /cluster/options", m{"keyboard": "de"}, nil, []change{{"PUT", "/nodes/pve1/qemu/103/config", f{"tags": "brandnew"}}}, ""},
		{"two guests are changed at once", "set_guest_config", m{"guest": "103", "set": m{"cores": 3}}, nil,
			[]change{{"PUT", "/nodes/pve1/qemu/102/config", f{"description": "beside"}}, {"PUT", "/nodes/pve1/qemu/103/config", f{"description": "beside"}}}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := open(t)
			for _, b := range c.before {
				h.behind(b.method, b.path, b.form)
			}
			ask, args := "call_operation", m{"operation": c.op, "params": c.params}
			if !strings.Contains(c.op, " ") {
				ask, args = c.op, c.params
			}
			out, err := h.Plan(t.Context(), ask, args)
			if err != nil {
				t.Fatal(err)
			}
			p := out.Plan
			for _, b := range c.between {
				if wait, err := time.ParseDuration(b.path); err == nil {
					time.Sleep(wait)
					continue
				}
				h.behind(b.method, b.path, b.form)
			}
			out, err = h.Apply(t.Context(), p)
			got := fmt.Sprint(err)
			if err == nil {
				got = fmt.Sprint(out.Status, out.Receipt.Steps)
			}
			if c.want == "" && !strings.HasPrefix(got, "done") || !strings.Contains(got, c.want) {
				t.Errorf("%s, want %q", got, c.want)
			}
		})
	}
}

// TestMeanwhileWithinAPlan: what an earlier step changes does not let a later one off for what others change, and does not
// hold it up either.
func TestMeanwhileWithinAPlan(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole castellan before a simulated site")
	}
	type f = map[string]string
	type change struct {
		method, path string
		form         f
	}
	call := func(op string, params m) m {
		return m{"operation": "call_operation", "args": m{"operation": op, "params": params}}
	}
	job := change{"POST", "/cluster/backup", f{"id": "made", "vmid": "103", "schedule": "sat 03:00", "enabled": "0", "storage": "local"}}
	comment := call("PUT /cluster/backup/{id}", m{"id": "made", "comment": "x"})
	enable := call("PUT /cluster/backup/{id}", m{"id": "made", "enabled": 1})
	clone := call("POST /nodes/{node}/qemu/{vmid}/clone", m{"node": "pve1", "vmid": 103, "newid": 700})
	for _, c := range []struct {
		name    string
		calls   []m
		before  []change
		between []change
		last    string // how the last step ends
	}{
		{"a job is described, then switched on", []m{comment, enable}, []change{job}, nil, "done ok"},
		{"a job is described, then switched on, and is of others", []m{comment, enable}, []change{job}, []change{{"PUT", "/cluster/backup/made", f{"vmid": "101"}}}, "backup made is as it was (found: now vmid=101"},
		{"a guest is started, then copied, and has files of its own by then", []m{call("POST /nodes/{node}/qemu/{vmid}/status/start", m{"node": "pve1", "vmid": 103}), clone}, nil,
			[]change{{"PUT", "/nodes/pve1/qemu/103/config", f{"cicustom": "user=local:snippets/x.yaml"}}}, "the settings of VM 103 are as they were (found: now cicustom="},
		{"a guest is made, then a job is switched on that stops guests by then", []m{call("POST /nodes/{node}/qemu", m{"node": "pve1", "vmid": 700}), enable}, []change{job},
			[]change{{"PUT", "/cluster/backup/made", f{"mode": "stop"}}}, "backup made is as it was (found: now mode=stop"},
		{"a storage is changed, then used, and lies elsewhere by then", []m{call("PUT /storage/{storage}", m{"storage": "made", "content": "images,iso"}), call("POST /nodes/{node}/qemu/{vmid}/move_disk", m{"node": "pve1", "vmid": 103, "disk": "scsi0", "storage": "made"})},
			[]change{{"POST", "/storage", f{"storage": "made", "type": "dir", "path": "/mnt/made", "content": "images"}}},
			[]change{{"DELETE", "/storage/made", nil}, {"POST", "/storage", f{"storage": "made", "type": "dir", "path": "/mnt/other", "content": "images"}}}, "storage made is still dir /mnt/made"},
		{"a pool of a role's name is made, and the role can do more by then", []m{call("POST /pools", m{"poolid": "ops"}), call("PUT /access/acl", m{"path": "/vms/103", "users": "carol@pve", "roles": "ops"})},
			[]change{{"POST", "/access/users", f{"userid": "carol@pve"}}, {"POST", "/access/roles", f{"roleid": "ops", "privs": "VM.Audit"}}}, []change{{"PUT", "/access/roles/ops", f{"privs": "VM.Audit,VM.Config.CDROM"}}}, "stale"},
		{"a disk is added, moved and taken off by one plan", []m{call("PUT /nodes/{node}/qemu/{vmid}/config", m{"node": "pve1", "vmid": 103, "scsi1": "nas:1"}),
			call("POST /nodes/{node}/qemu/{vmid}/move_disk", m{"node": "pve1", "vmid": 103, "disk": "scsi1", "storage": "local-lvm", "delete": 1}), call("PUT /nodes/{node}/qemu/{vmid}/config", m{"node": "pve1", "vmid": 103, "delete": "scsi1"})}, nil, nil, "done ok"},
		{"a snapshot is taken, then copied", []m{call("POST /nodes/{node}/qemu/{vmid}/snapshot", m{"node": "pve1", "vmid": 103, "snapname": "s1"}),
			call("POST /nodes/{node}/qemu/{vmid}/clone", m{"node": "pve1", "vmid": 103, "newid": 700, "snapname": "s1", "full": 1})}, nil, nil, "done ok"},
		{"a snapshot is taken, then copied, and another one has its name by then", []m{call("POST /nodes/{node}/qemu/{vmid}/snapshot", m{"node": "pve1", "vmid": 103, "snapname": "s1"}),
			call("POST /nodes/{node}/qemu/{vmid}/clone", m{"node": "pve1", "vmid": 103, "newid": 700, "snapname": "s1", "full": 1})}, nil,
			[]change{{"POST", "/nodes/pve1/qemu/103/snapshot", f{"snapname": "s1"}}}, "stale"},
		{"a pool is made, filled and given rights on", []m{call("POST /pools", m{"poolid": "made"}), call("PUT /pools", m{"poolid": "made", "vms": "103", "allow-move": 1}),
			call("POST /cluster/backup", m{"pool": "made", "schedule": "sat 03:00", "storage": "local"}), call("PUT /access/acl", m{"path": "/pool/made", "users": "carol@pve", "roles": "PVEVMUser"})},
			[]change{{"POST", "/access/users", f{"userid": "carol@pve"}}}, nil, "done ok"},
		{"a zone with a vnet and a guest on it", []m{call("POST /cluster/sdn/zones", m{"zone": "made", "type": "vlan", "bridge": "vmbr0"}), call("POST /cluster/sdn/vnets", m{"vnet": "made", "zone": "made", "tag": 7}),
			call("POST /cluster/sdn/vnets/{vnet}/subnets", m{"vnet": "made", "subnet": "10.9.0.0/24", "type": "subnet"}), call("PUT /cluster/sdn", m{}), call("PUT /nodes/{node}/qemu/{vmid}/config", m{"node": "pve1", "vmid": 103, "net1": "virtio,bridge=made"})}, nil, nil, "done ok"},
		{"rules are deleted one after the other", []m{call("DELETE /nodes/{node}/qemu/{vmid}/firewall/rules/{pos}", m{"node": "pve1", "vmid": 103, "pos": 1}), call("DELETE /nodes/{node}/qemu/{vmid}/firewall/rules/{pos}", m{"node": "pve1", "vmid": 103, "pos": 0})},
			[]change{{"POST", "/nodes/pve1/qemu/103/firewall/rules", f{"type": "in", "action": "DROP", "enable": "1"}}, {"POST", "/nodes/pve1/qemu/103/firewall/rules", f{"type": "in", "action": "DROP", "enable": "1", "source": "10.0.0.1"}}}, nil, "done ok"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := open(t)
			for _, b := range c.before {
				h.behind(b.method, b.path, b.form)
			}
			out, err := h.Plan(t.Context(), "plan_many", m{"calls": c.calls})
			if err != nil {
				t.Fatal(err)
			}
			p := out.Plan
			for _, b := range c.between {
				h.behind(b.method, b.path, b.form)
			}
			if out, err = h.Apply(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			last := out.Receipt.Steps[len(out.Receipt.Steps)-1]
			if got := fmt.Sprint(last.State, " ", last.Result); !strings.Contains(got, c.last) {
				t.Errorf("%s, want %q", got, c.last)
			}
		})
	}
}
