package self

import (
	"net/url"
	"strings"
	"testing"

	"castellan/internal/gate"
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
		{"a security group is in a rule", nil, change{"POST /cluster/firewall/groups", m{"group": "made"}}, []others{{"POST", "/nodes/pve1/qemu/103/firewall/rules", url.Values{"type": {"group"}, "action": {"made"}}}}},
		{"a group has a member", nil, change{"POST /access/groups", m{"groupid": "made"}}, []others{{"POST", "/access/users", url.Values{"userid": {"new@pve"}, "groups": {"made"}}}}},
		{"a role is given", nil, change{"POST /access/roles", m{"roleid": "Made", "privs": "VM.Audit"}}, []others{{"PUT", "/access/acl", url.Values{"path": {"/vms"}, "roles": {"Made"}, "users": {"root@pam"}}}}},
		{"a user has rights", nil, change{"POST /access/users", m{"userid": "made@pve"}}, []others{{"PUT", "/access/acl", url.Values{"path": {"/vms"}, "roles": {"PVEAuditor"}, "users": {"made@pve"}}}}},
		{"a bridge has a guest", nil, change{"POST /nodes/pve1/network", m{"iface": "vmbr7", "type": "bridge"}}, []others{{"PUT", "/nodes/pve1/qemu/103/config", url.Values{"net1": {"virtio,bridge=vmbr7"}}}}},
		{"an endpoint has a matcher", nil, change{"POST /cluster/notifications/endpoints/sendmail", m{"name": "made", "mailto": "a@example.org"}}, []others{{"POST", "/cluster/notifications/matchers", url.Values{"name": {"theirs"}, "target": {"made"}}}}},
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
