package self

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"castellan/internal/gate"
	"castellan/internal/lab"
	"castellan/internal/ops/housetest"
)

// TestUndoOfWhatIsUsed: what a plan made is not deleted when somebody has come to use it, in whatever way it is used.
func TestUndoOfWhatIsUsed(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole castellan before a simulated site")
	}
	type m = map[string]any
	type others struct {
		method, path string
		form         url.Values
	}
	vnet := []others{{"POST", "/cluster/sdn/zones", url.Values{"zone": {"theirz"}, "type": {"simple"}}}, {"POST", "/cluster/sdn/vnets", url.Values{"vnet": {"theirs"}, "zone": {"theirz"}}}}
	for _, c := range []struct {
		name   string
		before []others
		change change
		use    []others
	}{
		{"a guest gets a disk", nil, change{"POST /nodes/pve1/qemu", m{"vmid": 600, "name": "x"}}, []others{{"PUT", "/nodes/pve1/qemu/600/config", url.Values{"scsi1": {"local-lvm:1"}}}}},
		{"a storage has a backup job", nil, change{"POST /storage", m{"storage": "made", "type": "dir", "path": "/mnt/made", "content": "backup,images"}}, []others{{"POST", "/cluster/backup", url.Values{"vmid": {"103"}, "storage": {"made"}, "schedule": {"01:00"}}}}},
		{"a pool has a backup job", nil, change{"POST /pools", m{"poolid": "made"}}, []others{{"POST", "/cluster/backup", url.Values{"pool": {"made"}, "storage": {"local"}, "schedule": {"01:00"}}}}},
		{"a pool has a pool below", nil, change{"POST /pools", m{"poolid": "made"}}, []others{{"POST", "/pools", url.Values{"poolid": {"made/below"}}}}},
		{"a pool has rights", nil, change{"POST /pools", m{"poolid": "made"}}, []others{{"PUT", "/access/acl", url.Values{"path": {"/pool/made"}, "roles": {"PVEAuditor"}, "users": {"root@pam"}}}}},
		{"an alias is in a set", []others{{"POST", "/cluster/firewall/ipset", url.Values{"name": {"theirs"}}}}, change{"POST /cluster/firewall/aliases", m{"name": "made", "cidr": "10.1.0.0/24"}}, []others{{"POST", "/cluster/firewall/ipset/theirs", url.Values{"cidr": {"dc/made"}}}}},
		{"an alias is in a guest's set", []others{{"POST", "/nodes/pve1/qemu/103/firewall/ipset", url.Values{"name": {"theirs"}}}}, change{"POST /cluster/firewall/aliases", m{"name": "made", "cidr": "10.1.0.0/24"}}, []others{{"POST", "/nodes/pve1/qemu/103/firewall/ipset/theirs", url.Values{"cidr": {"dc/made"}}}}},
		{"an alias is in a guest's rule", nil, change{"POST /cluster/firewall/aliases", m{"name": "made", "cidr": "10.1.0.0/24"}}, []others{{"POST", "/nodes/pve1/qemu/103/firewall/rules", url.Values{"type": {"in"}, "action": {"ACCEPT"}, "source": {"dc/made"}}}}},
		{"an alias is in a vnet's rule", vnet, change{"POST /cluster/firewall/aliases", m{"name": "made", "cidr": "10.1.0.0/24"}}, []others{{"POST", "/cluster/sdn/vnets/theirs/firewall/rules", url.Values{"type": {"forward"}, "action": {"ACCEPT"}, "source": {"dc/made"}}}}},
		{"a set is in a vnet's rule", vnet, change{"POST /cluster/firewall/ipset", m{"name": "made"}}, []others{{"POST", "/cluster/sdn/vnets/theirs/firewall/rules", url.Values{"type": {"forward"}, "action": {"DROP"}, "dest": {"+dc/made"}}}}},
		{"a security group is in a vnet's rule", vnet, change{"POST /cluster/firewall/groups", m{"group": "made"}}, []others{{"POST", "/cluster/sdn/vnets/theirs/firewall/rules", url.Values{"type": {"group"}, "action": {"made"}}}}},
		{"a security group is in a rule", nil, change{"POST /cluster/firewall/groups", m{"group": "made"}}, []others{{"POST", "/nodes/pve1/qemu/103/firewall/rules", url.Values{"type": {"group"}, "action": {"made"}}}}},
		{"a group has a member", nil, change{"POST /access/groups", m{"groupid": "made"}}, []others{{"POST", "/access/users", url.Values{"userid": {"new@pve"}, "groups": {"made"}}}}},
		{"a role is given", nil, change{"POST /access/roles", m{"roleid": "Made", "privs": "VM.Audit"}}, []others{{"PUT", "/access/acl", url.Values{"path": {"/vms"}, "roles": {"Made"}, "users": {"root@pam"}}}}},
		{"a user has rights", nil, change{"POST /access/users", m{"userid": "made@pve"}}, []others{{"PUT", "/access/acl", url.Values{"path": {"/vms"}, "roles": {"PVEAuditor"}, "users": {"made@pve"}}}}},
		{"a bridge has a guest", nil, change{"POST /nodes/pve1/network", m{"iface": "vmbr7", "type": "bridge"}}, []others{{"PUT", "/nodes/pve1/qemu/103/config", url.Values{"net1": {"virtio,bridge=vmbr7"}}}}},
		{"an endpoint has a matcher", nil, change{"POST /cluster/notifications/endpoints/sendmail", m{"name": "made", "mailto": "a@example.org"}}, []others{{"POST", "/cluster/notifications/matchers", url.Values{"name": {"theirs"}, "target": {"made"}}}}},
		{"a guest has rights", nil, change{"POST /nodes/pve1/qemu", m{"vmid": 600, "name": "x"}}, []others{{"PUT", "/access/acl", url.Values{"path": {"/vms/600"}, "roles": {"PVEAuditor"}, "users": {"root@pam"}}}}},
		{"a guest is in a pool", []others{{"POST", "/pools", url.Values{"poolid": {"theirs"}}}}, change{"POST /nodes/pve1/qemu", m{"vmid": 600, "name": "x"}}, []others{{"PUT", "/pools", url.Values{"poolid": {"theirs"}, "vms": {"600"}}}}},
		{"a guest is in a backup job", nil, change{"POST /nodes/pve1/qemu", m{"vmid": 600, "name": "x"}}, []others{{"POST", "/cluster/backup", url.Values{"vmid": {"103,600"}, "storage": {"local"}, "schedule": {"01:00"}}}}},
		{"a guest is an HA resource", nil, change{"POST /nodes/pve1/qemu", m{"vmid": 600, "name": "x"}}, []others{{"POST", "/cluster/ha/resources", url.Values{"sid": {"vm:600"}, "state": {"stopped"}}}}},
		{"a storage has rights", nil, change{"POST /storage", m{"storage": "made", "type": "dir", "path": "/mnt/made", "content": "images"}}, []others{{"PUT", "/access/acl", url.Values{"path": {"/storage/made"}, "roles": {"PVEAuditor"}, "users": {"root@pam"}}}}},
		{"a storage is in a pool", []others{{"POST", "/pools", url.Values{"poolid": {"theirs"}}}}, change{"POST /storage", m{"storage": "made", "type": "dir", "path": "/mnt/made", "content": "images"}}, []others{{"PUT", "/pools", url.Values{"poolid": {"theirs"}, "storage": {"made"}}}}},
		{"a storage is what backups are held back on", nil, change{"POST /storage", m{"storage": "made", "type": "dir", "path": "/mnt/made", "content": "images"}}, []others{{"POST", "/cluster/backup", url.Values{"vmid": {"103"}, "storage": {"local"}, "fleecing": {"enabled=1,storage=made"}, "schedule": {"01:00"}}}}},
		{"a folder has a guest", nil, change{"POST /cluster/mapping/dir", m{"id": "made", "map": []string{"node=pve1,path=/srv"}}}, []others{{"PUT", "/nodes/pve1/qemu/103/config", url.Values{"virtiofs0": {"made,cache=auto"}}}}},
		{"a folder has a guest by its key", nil, change{"POST /cluster/mapping/dir", m{"id": "made", "map": []string{"node=pve1,path=/srv"}}}, []others{{"PUT", "/nodes/pve1/qemu/103/config", url.Values{"virtiofs0": {"dirid=made"}}}}},
		{"a controller has a zone", nil, change{"POST /cluster/sdn/controllers", m{"controller": "made", "type": "evpn", "asn": 65000, "peers": "10.0.0.1"}}, []others{{"POST", "/cluster/sdn/zones", url.Values{"zone": {"theirz"}, "type": {"evpn"}, "controller": {"made"}, "vrf-vxlan": {"100"}}}}},
		{"an address book has a zone", nil, change{"POST /cluster/sdn/ipams", m{"ipam": "made", "type": "pve"}}, []others{{"POST", "/cluster/sdn/zones", url.Values{"zone": {"theirz"}, "type": {"simple"}, "ipam": {"made"}}}}},
		{"a realm has a job", nil, change{"POST /access/domains", m{"realm": "made", "type": "ldap", "server1": "ldap.example", "base_dn": "dc=x", "user_attr": "uid"}}, []others{{"POST", "/cluster/jobs/realm-sync/theirs", url.Values{"realm": {"made"}, "schedule": {"01:00"}}}}},
		{"a device has a guest", nil, change{"POST /cluster/mapping/pci", m{"id": "made", "map": []string{"node=pve1,path=0000:01:00.0,id=8086:1234"}}}, []others{{"PUT", "/nodes/pve1/qemu/103/config", url.Values{"hostpci0": {"mapping=made"}}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := openWith(t, "small", "admin", func(p gate.Policy) gate.Policy { return lenient{p} })
			for _, o := range c.before {
				l.other(o.method, o.path, o.form)
			}
			made := l.api(c.change.op, c.change.params)
			for _, o := range c.use {
				l.other(o.method, o.path, o.form)
				l.lab.Advance(15e9)
			}
			out, err := l.run("undo", text(map[string]any{"plan": made.Receipt.Plan}))
			if err == nil || !strings.Contains(err.Error(), "in use since it was made") {
				t.Errorf("it is deleted: %v %.600s", err, text(out))
			}
		})
	}
}

// TestUndoOnOlderVersions: what a version does not have is not what an undo waits for: rules of HA, rules of vnets.
func TestUndoOnOlderVersions(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole castellan before a simulated site")
	}
	type m = map[string]any
	older := &without{calls: "/cluster/sdn/vnets/{vnet}/firewall/"}
	l := openHouse(t, housetest.Config{Rules: func(p gate.Policy) gate.Policy { return lenient{p} }, Lab: func(c *lab.Config) { c.Version = "8" },
		Through: func(d gate.Driver) gate.Driver { older.Driver = d; return older }})
	l.other("POST", "/cluster/sdn/zones", url.Values{"zone": {"theirz"}, "type": {"simple"}})
	l.other("POST", "/cluster/sdn/vnets", url.Values{"vnet": {"theirs"}, "zone": {"theirz"}})
	for _, c := range []struct {
		change
		read, gone string
	}{
		{change{"POST /cluster/ha/resources", m{"sid": "vm:103", "state": "stopped"}}, "GET /cluster/ha/resources", "vm:103"},
		{change{"POST /cluster/firewall/aliases", m{"name": "made", "cidr": "10.1.0.0/24"}}, "GET /cluster/firewall/aliases", "made"},
	} {
		made := l.api(c.op, c.params)
		if !strings.Contains(l.seen(c.read), c.gone) {
			t.Fatalf("%s made nothing", c.op)
		}
		out, err := l.run("undo", text(m{"plan": made.Receipt.Plan}))
		if err != nil || out.Status != gate.StatusDone {
			t.Errorf("%s: %v %.600s", c.op, err, text(out))
		}
		if strings.Contains(l.seen(c.read), c.gone) {
			t.Errorf("%s is not undone", c.op)
		}
	}
	if older.asked == 0 {
		t.Error("the rules of vnets were not asked for")
	}
}

// without is a site that does not have some calls.
type without struct {
	gate.Driver
	calls string
	asked int
}

func (d *without) Read(ctx context.Context, target string, r gate.Request) (gate.Answer, error) {
	if strings.Contains(r.Operation, d.calls) {
		d.asked++
		return gate.Answer{}, &gate.UpstreamError{Kind: gate.ErrInvalid, Status: http.StatusNotImplemented, Message: "Method not implemented"}
	}
	return d.Driver.Read(ctx, target, r)
}

// TestUndoOnASuccessor: a guest that came to have the id of the one that the plan changed is left alone, though the plan's value
// stands in it.
func TestUndoOnASuccessor(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole castellan before a simulated site")
	}
	type m = map[string]any
	for _, kind := range []string{"qemu", "lxc"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			l := openWith(t, "small", "admin", func(p gate.Policy) gate.Policy { return lenient{p} })
			path := "/nodes/pve1/" + kind
			make := func(memory string) {
				form := url.Values{"vmid": {"600"}, "memory": {memory}, "net0": {"virtio,bridge=vmbr0"}}
				if kind == "lxc" {
					form.Set("net0", "name=eth0,bridge=vmbr0")
					form.Set("ostemplate", "local:vztmpl/debian-13-standard_13.1-2_amd64.tar.zst")
					form.Set("rootfs", "local-lvm:1")
				}
				l.other("POST", path, form)
				l.lab.Advance(15 * time.Second)
			}
			make("512")
			same := l.api("PUT "+path+"/600/config", m{"description": "a"})
			if out, err := l.run("undo", text(m{"plan": same.Receipt.Plan})); err != nil || out.Status != gate.StatusDone {
				t.Errorf("of the same guest: %v %.600s", err, text(out))
			}
			made := l.api("PUT "+path+"/600/config", m{"memory": "1024"})
			l.other("DELETE", path+"/600", url.Values{})
			l.lab.Advance(15 * time.Second)
			make("1024")
			if out, err := l.run("undo", text(m{"plan": made.Receipt.Plan})); err == nil || !strings.Contains(err.Error(), "another one now") {
				t.Errorf("another guest is changed: %v %.600s", err, text(out))
			}
		})
	}
}
