package estate

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"castellan/internal/gate"
	"castellan/internal/lab"
	"castellan/internal/ops/opstest"
)

func TestGraphOfASite(t *testing.T) {
	v := newLab(t, "small")
	g := survey(t, New(), v, time.Minute).Graph(all()...)
	if len(g.Gaps) > 0 {
		t.Fatalf("gaps: %+v", g.Gaps)
	}
	got := lines(g)
	for _, want := range []string{
		"guest/101 runs_on node/pve1", "guest/102 disk volume/tank:vm-102-disk-1 scsi1", "volume/tank:vm-102-disk-1 stored_on storage/tank pve1", "storage/tank provided_by node/pve2",
		"guest/101 nic bridge/pve1/vmbr0 net0", "bridge/pve1/vmbr0 carried_by interface/pve1/eth0 bridge_ports", "vnet/vlab carried_by zone/lab zone", "zone/lab carried_by node/pve3",
		"guest/102 member_of pool/prod/db pool", "pool/prod/db member_of pool/prod", "storage/tank member_of pool/prod/db pool", "ha/vm:106 manages guest/106",
		"ha_rule/gateway-nodes manages ha/vm:106 resources", "ha_rule/gateway-nodes manages node/pve2 nodes", "job/nightly backs_up guest/101 all", "job/nightly backs_up storage/pbs1 storage",
		"job/db-hourly backs_up guest/102 vmid", "snapshot/102/before-upgrade snapshot_of guest/102", "guest/202 passthrough volume/pve1:/tank/media mp0", "guest/104 disk volume/local-lvm:vm-104-cloudinit ide2",
		"volume/local-lvm:vm-101-disk-0 clone_of volume/local-lvm:base-104-disk-0 ?", "acl//pool/dev grants user/ops PVEVMAdmin", "acl//vms/201 grants guest/201 path", "user/joe@pve member_of user/ops group",
		"user/operator@pve!operator member_of user/operator@pve token",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("%s is missing", want)
		}
	}
	for _, not := range []string{"job/nightly backs_up guest/104 all", "storage/tank provided_by node/pve3", "volume/local-lvm:vm-201-disk-0 clone_of volume/local-lvm:base-104-disk-0 ?"} {
		if slices.Contains(got, not) {
			t.Errorf("%s is there", not)
		}
	}
	if n := slices.IndexFunc(got, func(l string) bool {
		return strings.HasPrefix(l, "archive/pbs1:backup/ct/201/") && strings.HasSuffix(l, "archive_of guest/201")
	}); n < 0 {
		t.Error("no archive of 201")
	}
}

func TestLinkedClones(t *testing.T) {
	v := newLab(t, "rig")
	v.token = "full"
	g := survey(t, New(), v, time.Minute).Graph(PartConfig)
	if got := lines(g, EdgeClone); !slices.Contains(got, "volume/local:101/base-101-disk-0.raw/102/vm-102-disk-0.qcow2 clone_of volume/local:101/base-101-disk-0.raw") {
		t.Errorf("%q", got)
	}
}

// written is a site written down, with what a test adds.
func written(t *testing.T, more string) *opstest.View {
	t.Helper()
	v, err := opstest.New(`GET /cluster/resources [{"type":"node","node":"n1","status":"online"},{"type":"node","node":"n2","status":"online"},{"type":"qemu","vmid":101,"node":"n1","status":"running","name":"a","pool":"p/q"},{"type":"lxc","vmid":102,"node":"n2","status":"stopped","name":"b","pool":"p"},{"type":"storage","storage":"s","node":"n1","plugintype":"dir","status":"available","content":"images"}]
GET /cluster/tasks []
` + more)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestEdgesOfWrittenSites(t *testing.T) {
	for name, c := range map[string]struct {
		site  string
		parts []Part
		want  []string
		not   []string
	}{
		"two storages with one path": {`GET /storage [{"storage":"s","type":"dir","path":"/srv/x/"},{"storage":"z","type":"dir","path":"/srv//x"},{"storage":"other","type":"dir","path":"/srv/xy"},{"storage":"below","type":"dir","path":"/srv/x/y","nodes":"n1"}]`,
			[]Part{PartResources, PartStorages}, []string{"storage/s same_as storage/z", "storage/z same_as storage/s", "storage/below backed_by storage/s path"}, []string{"storage/other backed_by storage/s path", "storage/s same_as storage/other"}},
		"nothing to compare": {`GET /storage [{"storage":"a","type":"nfs"},{"storage":"b","type":"nfs"},{"storage":"c","type":"dir"},{"storage":"d","type":"dir"}]`,
			[]Part{PartStorages}, nil, []string{"storage/a same_as storage/b", "storage/c same_as storage/d"}},
		"nodes and disable": {`GET /storage [{"storage":"a","type":"dir","path":"/a","nodes":"n2"},{"storage":"b","type":"dir","path":"/b","disable":1},{"storage":"c","type":"dir","path":"/c"}]`,
			[]Part{PartResources, PartStorages}, []string{"storage/a provided_by node/n2 nodes", "storage/c provided_by node/n1", "storage/c provided_by node/n2"}, []string{"storage/a provided_by node/n1 nodes", "storage/b provided_by node/n1"}},
		"groups of an older site": {`GET /cluster/ha/resources [{"sid":"vm:101","group":"g","state":"started"}]
GET /cluster/ha/groups [{"group":"g","nodes":"n1:2,n2","restricted":1}]`,
			[]Part{PartHA}, []string{"ha/vm:101 manages guest/101", "ha_rule/g manages ha/vm:101 group", "ha_rule/g manages node/n1 nodes", "ha_rule/g manages node/n2 nodes"}, nil},
		"jobs": {`GET /cluster/backup [{"id":"j1","pool":"p","storage":"s","node":""},{"id":"j2","all":1,"exclude":"102, 999","node":"n1"},{"id":"j3","vmid":"101;102 555","node":"n2"}]`,
			[]Part{PartResources, PartJobs}, []string{"job/j1 backs_up guest/102 pool", "job/j1 backs_up guest/101 pool ?", "job/j1 backs_up pool/p pool", "job/j2 backs_up guest/101 all", "job/j3 backs_up guest/102 vmid", "job/j3 backs_up guest/555 vmid"},
			[]string{"job/j2 backs_up guest/102 all", "job/j3 backs_up guest/101 vmid", "job/j1 backs_up guest/101 pool"}},
		"settings of a guest": {`GET /nodes/n1/qemu/101/config {"scsi0":"file=s:101/vm-101-disk-0.qcow2,size=1G","ide2":"none,media=cdrom","sata1":"s:iso/x.iso,media=cdrom","unused3":"s:101/vm-101-disk-9.raw","virtio1":"/dev/sdb","net0":"virtio=BC:24:11:00:00:01,bridge=v1","net1":"model=e1000,bridge=vmbr9","hostpci0":"mapping=gpu,pcie=1","usb0":"host=1234:5678","usb1":"spice","hookscript":"s:snippets/h.pl","cicustom":"user=s:snippets/u.yml","efidisk0":"s:101/vm-101-disk-1.raw,efitype=4m","serial0":"socket","vmstate":"s:101/vm-101-state-x.raw","scsihw":"virtio-scsi-pci","netdev":"x"}
GET /nodes/n2/lxc/102/config {"rootfs":"volume=z:subvol-102-disk-0,size=1G","mp0":"/srv/data,mp=/data","mp1":"z:basevol-900-disk-0/subvol-102-disk-1,mp=/x","dev0":"/dev/dri/card0,gid=44","net0":"name=eth0,type=veth"}
GET /cluster/sdn/vnets?pending=1 [{"vnet":"v1","zone":"z9"}]`,
			[]Part{PartResources, PartVNets, PartConfig}, []string{"guest/101 disk volume/s:101/vm-101-disk-0.qcow2 scsi0", "guest/101 media volume/s:iso/x.iso sata1", "guest/101 unused volume/s:101/vm-101-disk-9.raw unused3", "guest/101 passthrough volume/n1:/dev/sdb virtio1",
				"guest/101 nic vnet/v1 net0", "guest/101 nic bridge/n1/vmbr9 net1", "guest/101 passthrough unknown/n1/mapping gpu hostpci0", "guest/101 passthrough unknown/n1/1234:5678 usb0", "guest/101 media volume/s:snippets/h.pl hookscript",
				"guest/101 media volume/s:snippets/u.yml cicustom", "guest/101 disk volume/s:101/vm-101-state-x.raw vmstate", "guest/102 disk volume/z:subvol-102-disk-0 rootfs", "guest/102 passthrough volume/n2:/srv/data mp0",
				"volume/z:basevol-900-disk-0/subvol-102-disk-1 clone_of volume/z:basevol-900-disk-0", "guest/102 passthrough unknown/n2//dev/dri/card0 dev0"}, []string{"guest/101 passthrough unknown/n1/spice usb1", "guest/101 passthrough unknown/n1/socket serial0"}},
		"networks of a node": {`GET /nodes/n1/network [{"iface":"bond0","type":"bond","slaves":"eno1 eno2"},{"iface":"eno1","type":"eth"},{"iface":"eno2","type":"eth"},{"iface":"bond0.7","type":"vlan","vlan-raw-device":"bond0"},{"iface":"vmbr0","type":"bridge","bridge_ports":"bond0.7"},{"iface":"vmbr0.9","type":"vlan"},{"iface":"vmbr1","type":"OVSBridge","ovs_ports":"t0"},{"iface":"t0","type":"OVSIntPort","ovs_bridge":"vmbr1"},{"iface":"vmbr2","type":"bridge","bridge_ports":"none"}]
GET /nodes/n2/network []`,
			[]Part{PartResources, PartNetwork}, []string{"bridge/n1/vmbr0 carried_by interface/n1/bond0.7 bridge_ports", "interface/n1/bond0.7 carried_by interface/n1/bond0 vlan-raw-device", "interface/n1/bond0 carried_by interface/n1/eno2 slaves",
				"interface/n1/vmbr0.9 carried_by bridge/n1/vmbr0 vlan-raw-device", "bridge/n1/vmbr1 carried_by interface/n1/t0 ovs_ports", "interface/n1/t0 carried_by bridge/n1/vmbr1 ovs_bridge", "bridge/n1/vmbr2 carried_by node/n1 node"},
			[]string{"bridge/n1/vmbr2 carried_by interface/n1/none bridge_ports"}},
		"names with spaces and others": {`GET /pools [{"poolid":"Büro Süd"}]
GET /cluster/backup [{"id":"täglich 1","storage":"na\u0000s","vmid":"101"}]`,
			[]Part{PartPools, PartJobs}, []string{"job/täglich 1 backs_up guest/101 vmid"}, nil},
		"a pool in itself": {`GET /pools [{"poolid":"a/b"},{"poolid":"/"},{"poolid":""}]
GET /pools?poolid=a/b [{"poolid":"a/b","members":[{"type":"storage","storage":"s"},{"type":"qemu","vmid":101},{"type":"odd"}]}]`,
			[]Part{PartPools, PartMembers}, []string{"pool/a/b member_of pool/a", "storage/s member_of pool/a/b pool", "guest/101 member_of pool/a/b pool"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			v := written(t, c.site)
			if strings.Contains(name, "older") {
				v.Info.Version = "8.4.1"
			}
			got := lines(survey(t, New(), v, time.Minute).Graph(c.parts...))
			for _, w := range c.want {
				if !slices.Contains(got, w) {
					t.Errorf("%s is missing in\n%s", w, strings.Join(got, "\n"))
				}
			}
			for _, n := range c.not {
				if slices.Contains(got, n) {
					t.Errorf("%s is there", n)
				}
			}
		})
	}
}

func TestUsersUnderAnotherName(t *testing.T) {
	v := written(t, `GET /storage [{"storage":"s","type":"dir","path":"/srv/x"},{"storage":"z","type":"dir","path":"/srv/x"}]
GET /nodes/n1/qemu/101/config {"scsi0":"s:101/vm-101-disk-0.raw"}
GET /nodes/n2/lxc/102/config {}`)
	g := survey(t, New(), v, time.Minute).Graph(PartStorages, PartConfig)
	users := g.Users(volumeObject("z:101/vm-101-disk-0.raw"))
	if len(users) != 1 || users[0].From != guestObject("101") {
		t.Errorf("users: %+v", users)
	}
}

func TestCycles(t *testing.T) {
	g := NewGraph()
	o := func(i int) gate.Object { return volumeObject(fmt.Sprint(i)) }
	for i := range 50 {
		g.Connect(Edge{From: o(i), To: o((i + 1) % 50), Kind: EdgeClone})
		g.Connect(Edge{From: o(i), To: o(i), Kind: EdgeClone})
	}
	n := 0
	for range g.Against(o(0)) {
		n++
	}
	if n != 49 {
		t.Errorf("%d things depend on it", n)
	}
	for i := range 200 { // many edges of one thing are told apart as well
		g.Connect(Edge{From: o(0), To: o(1000 + i%100), Kind: EdgeDisk})
	}
	if got := len(g.Needs(o(0), EdgeDisk)); got != 100 {
		t.Errorf("%d edges", got)
	}
}

// TestPartialLists: what the token may not see is a gap, not an empty list.
func TestPartialLists(t *testing.T) {
	full := New()
	for _, c := range []struct {
		token, user string
		gaps        []Part
	}{
		{"admin", "root@pam!admin", nil},
		{"auditor", "auditor@pve!auditor", nil},
		{"limited", "limited@pve!limited", []Part{PartACL, PartPools, PartReplication, PartResources, PartStorages, PartUsers, PartVNets, PartZones}},
	} {
		v := newLab(t, "small")
		v.token, v.user = c.token, c.user
		s := survey(t, full, v, time.Minute)
		s.Graph(PartResources, PartPools, PartStorages, PartReplication, PartACL, PartUsers, PartZones, PartVNets)
		var got []Part
		for _, g := range s.Gaps() {
			got = append(got, g.Part)
		}
		if d := cmp.Diff(c.gaps, got); d != "" {
			t.Errorf("%s (-want +got)\n%s", c.token, d)
		}
	}
	v := newLab(t, "small") // a right taken away below
	v.change(t, "PUT", "/access/acl", url.Values{"path": {"/vms/105"}, "users": {"auditor@pve"}, "roles": {"NoAccess"}})
	v.token, v.user = "auditor", "auditor@pve!auditor"
	s := survey(t, New(), v, time.Minute)
	if s.Inventory(); len(s.Gaps(PartResources)) != 1 {
		t.Errorf("gaps: %+v", s.Gaps())
	}
	v.hide = func(path string) bool { return path == "/access/permissions" }
	s = survey(t, New(), v, time.Minute)
	if s.Storages(); len(s.Gaps(PartStorages)) != 1 {
		t.Errorf("rights that cannot be read: gaps %+v", s.Gaps())
	}
}

func TestKeptAnswers(t *testing.T) {
	v := newLab(t, "small")
	e := New()
	read := func(age time.Duration) (calls int) {
		v.count()
		s := survey(t, e, v, age)
		s.Configs(s.Inventory().Guests)
		return v.askedFor("/config")
	}
	if n := read(5 * time.Minute); n != 14 {
		t.Fatalf("%d settings read at first", n)
	}
	if n := read(5 * time.Minute); n != 0 {
		t.Errorf("%d settings read again at once", n)
	}
	v.clock = v.clock.Add(20 * time.Second)
	if n := read(15 * time.Second); n != 14 {
		t.Errorf("a fresh survey reads %d settings", n)
	}
	v.clock = v.clock.Add(time.Minute)
	if n := read(5 * time.Minute); n != 0 {
		t.Errorf("%d settings read after a minute in which nothing was done", n)
	}
	v.change(t, "POST", "/nodes/pve1/qemu/103/snapshot", url.Values{"snapname": {"s1"}})
	v.Drain()
	v.clock = v.clock.Add(time.Minute)
	if n := read(5 * time.Minute); n != 1 {
		t.Errorf("%d settings read after a task on one guest", n)
	}
	e.Forget("lab", []gate.Object{guestObject("101")})
	if n := read(5 * time.Minute); n != 1 {
		t.Errorf("%d settings read after a change of our own", n)
	}
	v.clock = v.clock.Add(6 * time.Minute)
	if n := read(5 * time.Minute); n != 14 {
		t.Errorf("%d settings read when all are too old", n)
	}
	v.scoped = true
	if n := read(5 * time.Minute); n != 14 {
		t.Errorf("a scoped caller reads %d settings itself", n)
	}
	v.scoped = false
	v.clock = v.clock.Add(time.Minute)
	v.hide = func(path string) bool { return path == "/cluster/tasks" }
	if n := read(5 * time.Minute); n != 14 {
		t.Errorf("%d settings read when nobody tells what was done", n)
	}
	v.user = "other@pve!x"
	v.hide = nil
	if n := read(5 * time.Minute); n != 14 {
		t.Errorf("%d settings read as somebody else", n)
	}
}

// TestScopedCallersFillNothing: what they read is cut, so nobody else gets it.
func TestScopedCallersFillNothing(t *testing.T) {
	v := newLab(t, "small")
	v.scoped = true
	e := New()
	s := survey(t, e, v, time.Minute)
	s.Graph(all()...)
	if len(e.sites) != 0 {
		t.Error("something was kept")
	}
}

func TestMovedAndVanishedGuests(t *testing.T) {
	v := newLab(t, "small")
	s := survey(t, New(), v, time.Minute)
	guests := s.Inventory().Guests
	byID := func(id string) Guest {
		g, _ := s.Inventory().ByID(id)
		return g
	}
	gone, moved := byID("103"), byID("203")
	v.change(t, "DELETE", "/nodes/pve1/qemu/103", nil)
	v.change(t, "POST", "/nodes/pve2/lxc/203/migrate", url.Values{"target": {"pve1"}})
	v.Drain()
	if _, ok := s.Config(gone); ok {
		t.Error("a guest that is gone has settings")
	}
	if c, ok := s.Config(moved); !ok || c["hostname"] != "build" {
		t.Errorf("a guest that moved was not found: %v", s.Gaps())
	}
	gaps := s.Gaps(PartConfig)
	if len(gaps) != 1 || !strings.Contains(gaps[0].Why, "gone since") {
		t.Errorf("gaps %+v", gaps)
	}
	known := s.Configs(guests)
	if len(known) != len(guests)-1 {
		t.Errorf("%d of %d known", len(known), len(guests))
	}
}

func TestLanes(t *testing.T) {
	v := newLab(t, "2000")
	v.wait = func(path string) {
		if strings.HasSuffix(path, "/config") {
			time.Sleep(time.Millisecond)
		}
	}
	s := survey(t, New(), v, time.Minute)
	s.Configs(s.Inventory().Guests)
	for node, n := range v.most {
		if node != "*" && node != "" && n > lanesPerNode {
			t.Errorf("%d at a time on %s", n, node)
		}
	}
	if n := v.most["*"]; n > lanesInAll || n < 4 {
		t.Errorf("%d at a time in all", n)
	}
}

func TestNodesThatAreOff(t *testing.T) {
	v := newLab(t, "small")
	if err := v.SetNode("pve3", lab.NodeOff); err != nil {
		t.Fatal(err)
	}
	s := survey(t, New(), v, time.Minute)
	inv := s.Inventory()
	known := s.Configs(inv.Guests)
	if len(known) != len(inv.Guests)-len(s.GuestsOn("pve3")) || len(s.Gaps(PartConfig)) != len(s.GuestsOn("pve3")) {
		t.Errorf("%d known, gaps %+v", len(known), s.Gaps())
	}
	if v.askedFor("/nodes/pve3/") != 0 {
		t.Error("a node that is off was asked")
	}
}

func TestNoTime(t *testing.T) {
	v := newLab(t, "small")
	ctx, cancel := context.WithCancel(t.Context())
	s, err := New().Survey(ctx, v, "lab", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	guests := s.Inventory().Guests
	cancel()
	if known := s.Configs(guests); len(known) != 0 || len(s.Gaps(PartConfig)) != len(guests) {
		t.Errorf("%d known, %d gaps", len(known), len(s.Gaps(PartConfig)))
	}
	s.Graph(all()...)
}

func TestAround(t *testing.T) {
	g := survey(t, New(), newLab(t, "small"), time.Minute).Graph(all()...)
	has := func(of gate.Object, hops int, want ...string) {
		t.Helper()
		in := g.Around(of, hops)
		for _, w := range want {
			not := strings.HasPrefix(w, "-")
			w = strings.TrimPrefix(w, "-")
			found := false
			for o := range in {
				found = found || o.String() == w
			}
			if found == not {
				t.Errorf("around %s: %s is there: %v", of, w, found)
			}
		}
	}
	has(guestObject("106"), 2, "guest/106", "node/pve2", "ha/vm:106", "ha_rule/gateway-nodes", "storage/nas", "-guest/103", "job/nightly")
	has(nodeObject("pve3"), 1, "guest/108", "guest/206", "storage/local", "bridge/pve3/vmbr0", "-guest/101", "-node/pve1")
	has(storageObject("nas"), 2, "guest/103", "guest/106", "guest/206", "volume/nas:103/vm-103-disk-0.qcow2", "-guest/101")
	if len(g.Around(guestObject("999"), 2)) != 0 {
		t.Error("something is around nothing")
	}
}

func TestWithin(t *testing.T) {
	s := survey(t, New(), newLab(t, "small"), time.Minute)
	g := s.Graph(all()...)
	mine, _ := s.Inventory().ByID("102")
	for o := range g.Within([]Guest{mine}) {
		if o.Kind == gate.ObjectGuest && o.ID != "102" || o.Kind == gate.ObjectJob || o.Kind == gate.ObjectACL || o.Kind == gate.ObjectUser {
			t.Errorf("%s is shown", o)
		}
	}
}

// FuzzGraph builds graphs from settings that nobody would write.
func FuzzGraph(f *testing.F) {
	f.Add("scsi0", "s:101/vm-101-disk-0.raw,size=1G", "vmbr0", "n1")
	f.Add("mp0", ":/:,,==", "/", "")
	f.Add("net0", "bridge=", "..", "a\x00b")
	f.Add("rootfs", "base-1/base-2/base-3/base-4", "x.y.z", "ü")
	f.Fuzz(func(t *testing.T, key, value, name, node string) {
		d := &drawing{Graph: NewGraph(), inv: &Inventory{}, types: map[string]string{}, on: map[string]string{"101": node}}
		at := time.Time{}
		c := Config{key: value, "iface": name, "type": value, "bridge_ports": value, "storage": name, "path": value, "volid": value, "vmid": name, "content": "backup", "parent": value, "base": value,
			"poolid": name, "members": value, "sid": value, "rule": name, "resources": value, "nodes": node, "id": name, "pool": value, "ugid": name, "userid": name, "groups": value, "tokens": value,
			"pending": value, "zone": name, "vnet": name, "roleid": key, "name": name, "mon": value, "osd": value}
		d.guestConfig("101", c, at)
		d.network(node, []Config{c}, at)
		d.storages([]Config{c, {"storage": key, "type": "dir", "path": value}}, at)
		for _, draw := range []func(Config, time.Time){d.status, d.pool, d.haResource, d.haRule, d.replication, d.job, d.acl, d.user, d.zone, d.vnet} {
			draw(c, at)
		}
		d.snapshot("101", c, at)
		d.volume(node, name, c, at)
		d.ceph(key2(key), []Config{c}, at)
		d.connectHidden()
		for _, v := range d.Vertices() {
			for range d.Against(v.Object) {
			}
			d.Around(v.Object, 3)
		}
	})
}

func key2(op string) key { return ofSite("", op) }

// TestTaskOfTwoGuests: a task that gives a guest's disk to another one names both, and none by its number alone.
func TestTaskOfTwoGuests(t *testing.T) {
	for _, id := range []string{"103-scsi1>101-scsi3", "103-unused0>101-unused1", "103-mp0>101-mp12"} {
		v := newLab(t, "small")
		e := New()
		s := survey(t, e, v, time.Minute)
		s.Configs(s.Inventory().Guests)
		kept := e.sites["lab"].kept
		has := func(id string) bool {
			for k := range kept.answers.each() {
				if k.what().part == PartConfig && strings.TrimPrefix(k.object, "guest/") == id {
					return true
				}
			}
			return false
		}
		if !has("101") || !has("102") || !has("103") {
			t.Fatal("settings are not kept at all")
		}
		old := Config{"upid": "UPID:old", "node": "pve1", "id": "102", "type": "qmstart", "status": "OK", "endtime": "1"}
		kept.unwatched()
		kept.look([]Config{old}, v.Now())
		kept.look([]Config{old, {"upid": "UPID:x", "node": "pve1", "id": id, "type": "qmmove", "status": "OK", "endtime": "1"}}, v.Now())
		if has("101") || has("103") {
			t.Errorf("after task %q old settings are kept of who gave or got a disk", id)
		}
		if !has("102") {
			t.Errorf("task %q made the settings of others forgotten", id)
		}
	}
}
