package self

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"castellan/internal/gate"
)

// api carries a catalogued call out.
func (l *live) api(operation string, params map[string]any) *gate.Outcome {
	l.t.Helper()
	out, err := l.run("call_operation", text(map[string]any{"operation": operation, "params": params}))
	if err != nil {
		l.t.Fatalf("%s %v: %v", operation, params, err)
	}
	if out.Status != gate.StatusDone {
		l.t.Fatalf("%s %v: %.400s %s", operation, params, out.Next, text(out.Receipt.Steps))
	}
	l.lab.Advance(15 * time.Second)
	return out
}

// seen is what a read answers, digests and figures left out.
func (l *live) seen(operation string) string {
	l.t.Helper()
	out, err := l.do("call_operation", text(map[string]any{"operation": operation}))
	if err != nil {
		return "error: " + err.Error()
	}
	var v any
	if err := json.Unmarshal(out.Answer, &v); err != nil {
		l.t.Fatal(err)
	}
	if m, ok := v.(map[string]any); ok && !strings.Contains(operation, "/firewall/rules") {
		if rows, ok := m["data"].([]any); ok { // the order of other lists means nothing
			slices.SortFunc(rows, func(a, b any) int { return strings.Compare(text(a), text(b)) })
		}
	}
	b, err := json.MarshalIndent(strip(v), "", " ")
	if err != nil {
		l.t.Fatal(err)
	}
	return string(b)
}

func strip(v any) any {
	switch x := v.(type) {
	case map[string]any:
		for _, k := range []string{"digest", "also", "cpu", "mem", "disk", "maxdisk", "uptime", "netin", "netout", "diskread", "diskwrite", "pid", "memhost", "next-run", "ctime", "used", "pressurecpusome", "pressurecpufull", "pressureiosome", "pressureiofull", "pressurememorysome", "pressurememoryfull"} {
			delete(x, k)
		}
		for k := range x {
			x[k] = strip(x[k])
		}
	case []any:
		for i := range x {
			x[i] = strip(x[i])
		}
	}
	return v
}

// lenient allows every plan: what is looked at here is not who may.
type lenient struct{ gate.Policy }

func (p lenient) Plan(ctx context.Context, q gate.PlanQuestion) gate.Decision {
	return gate.Decision{Verdict: gate.VerdictAllow, Set: p.Digest()}
}

type change struct {
	op     string
	params map[string]any
}

// TestUndo changes a thing of each family and takes the change back: its configuration is as it was, byte for byte.
func TestUndo(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole castellan before a simulated site")
	}
	l := openWith(t, "small", "admin", func(p gate.Policy) gate.Policy { return lenient{p} })
	m := func(kv ...any) map[string]any {
		out := map[string]any{}
		for i := 0; i < len(kv); i += 2 {
			out[kv[i].(string)] = kv[i+1]
		}
		return out
	}
	for _, c := range []struct {
		name   string
		reads  []string
		before []change
		change change
	}{
		{"guest settings", []string{"GET /nodes/pve1/qemu/101/config", "GET /nodes/pve1/qemu/101/pending"}, nil,
			change{"PUT /nodes/pve1/qemu/101/config", m("cores", 4, "description", "x", "tags", "a;b", "net1", "virtio,bridge=vmbr0", "delete", "name")}},
		{"container settings", []string{"GET /nodes/pve1/lxc/201/config"}, nil, change{"PUT /nodes/pve1/lxc/201/config", m("memory", 1024, "description", "by the door", "hostname", "other")}},
		{"guest firewall options", []string{"GET /nodes/pve1/qemu/101/firewall/options"}, nil, change{"PUT /nodes/pve1/qemu/101/firewall/options", m("enable", 1, "policy_in", "DROP")}},
		{"cluster firewall options", []string{"GET /cluster/firewall/options"}, nil, change{"PUT /cluster/firewall/options", m("policy_out", "DROP", "log_ratelimit", "enable=1,rate=2/second")}},
		{"new rule", []string{"GET /cluster/firewall/rules"}, nil, change{"POST /cluster/firewall/rules", m("type", "in", "action", "DROP", "dport", "99", "proto", "tcp", "comment", "c", "enable", 1)}},
		{"changed rule", []string{"GET /cluster/firewall/rules"}, []change{{"POST /cluster/firewall/rules", m("type", "in", "action", "ACCEPT", "dport", "22", "proto", "tcp", "enable", 1)},
			{"POST /cluster/firewall/rules", m("type", "in", "action", "ACCEPT", "dport", "80", "proto", "tcp", "comment", "web")}, {"POST /cluster/firewall/rules", m("type", "out", "action", "DROP", "dest", "10.0.0.1")}},
			change{"PUT /cluster/firewall/rules/1", m("dport", "8080", "enable", 1, "delete", "comment")}},
		{"moved rule", []string{"GET /cluster/firewall/rules"}, nil, change{"PUT /cluster/firewall/rules/0", m("moveto", 3)}},
		{"deleted rule in the middle", []string{"GET /cluster/firewall/rules"}, nil, change{"DELETE /cluster/firewall/rules/1", nil}},
		{"deleted first rule", []string{"GET /cluster/firewall/rules"}, nil, change{"DELETE /cluster/firewall/rules/0", nil}},
		{"alias made", []string{"GET /cluster/firewall/aliases"}, nil, change{"POST /cluster/firewall/aliases", m("name", "office", "cidr", "10.1.0.0/24", "comment", "c")}},
		{"alias changed", []string{"GET /cluster/firewall/aliases"}, []change{{"POST /cluster/firewall/aliases", m("name", "branch", "cidr", "10.1.0.0/24", "comment", "c")}},
			change{"PUT /cluster/firewall/aliases/branch", m("cidr", "10.2.0.0/24")}},
		{"alias deleted", []string{"GET /cluster/firewall/aliases"}, nil, change{"DELETE /cluster/firewall/aliases/branch", nil}},
		{"alias renamed", []string{"GET /cluster/firewall/aliases"}, []change{{"POST /cluster/firewall/aliases", m("name", "first", "cidr", "10.7.0.0/24", "comment", "c")}},
			change{"PUT /cluster/firewall/aliases/first", m("rename", "second", "cidr", "10.7.0.0/24", "comment", "c")}},
		{"ipset renamed", []string{"GET /cluster/firewall/ipset", "GET /cluster/firewall/ipset/one", "GET /cluster/firewall/ipset/two"}, []change{{"POST /cluster/firewall/ipset", m("name", "one", "comment", "c")},
			{"POST /cluster/firewall/ipset/one", m("cidr", "10.0.0.0/8")}}, change{"POST /cluster/firewall/ipset", m("name", "two", "rename", "one")}},
		{"security group renamed", []string{"GET /cluster/firewall/groups", "GET /cluster/firewall/groups/gone", "GET /cluster/firewall/groups/gtwo"}, []change{{"POST /cluster/firewall/groups", m("group", "gone", "comment", "c")},
			{"POST /cluster/firewall/groups/gone", m("type", "in", "action", "ACCEPT", "dport", "22", "proto", "tcp")}}, change{"POST /cluster/firewall/groups", m("group", "gtwo", "rename", "gone")}},
		{"ipset made", []string{"GET /cluster/firewall/ipset"}, nil, change{"POST /cluster/firewall/ipset", m("name", "good", "comment", "c")}},
		{"ipset entry", []string{"GET /cluster/firewall/ipset/kept"}, []change{{"POST /cluster/firewall/ipset", m("name", "kept", "comment", "c")}}, change{"POST /cluster/firewall/ipset/kept", m("cidr", "10.0.0.0/8", "comment", "x")}},
		{"ipset deleted", []string{"GET /cluster/firewall/ipset", "GET /cluster/firewall/ipset/kept"}, []change{{"POST /cluster/firewall/ipset/kept", m("cidr", "10.3.0.0/16", "nomatch", 1)}, {"POST /cluster/firewall/ipset/kept", m("cidr", "10.4.0.1")}},
			change{"DELETE /cluster/firewall/ipset/kept", m("force", 1)}},
		{"security group made", []string{"GET /cluster/firewall/groups"}, nil, change{"POST /cluster/firewall/groups", m("group", "webs", "comment", "c")}},
		{"security group deleted", []string{"GET /cluster/firewall/groups"}, []change{{"POST /cluster/firewall/groups", m("group", "mails", "comment", "c")}}, change{"DELETE /cluster/firewall/groups/mails", nil}},
		{"zone made", []string{"GET /cluster/sdn/zones"}, nil, change{"POST /cluster/sdn/zones", m("zone", "lan", "type", "simple")}},
		{"zone changed", []string{"GET /cluster/sdn/zones", "GET /cluster/sdn/zones/dmz"}, []change{{"POST /cluster/sdn/zones", m("zone", "dmz", "type", "vlan", "bridge", "vmbr0", "mtu", 1400)}}, change{"PUT /cluster/sdn/zones/dmz", m("mtu", 1500, "nodes", "pve1")}},
		{"zone deleted", []string{"GET /cluster/sdn/zones", "GET /cluster/sdn/zones/dmz"}, nil, change{"DELETE /cluster/sdn/zones/dmz", nil}},
		{"vnet made", []string{"GET /cluster/sdn/vnets"}, nil, change{"POST /cluster/sdn/vnets", m("vnet", "vn1", "zone", "dmz", "tag", 7, "alias", "x")}},
		{"vnet changed", []string{"GET /cluster/sdn/vnets/vn2"}, []change{{"POST /cluster/sdn/vnets", m("vnet", "vn2", "zone", "dmz", "tag", 8)}}, change{"PUT /cluster/sdn/vnets/vn2", m("tag", 9, "alias", "y")}},
		{"subnet made", []string{"GET /cluster/sdn/vnets/vn2/subnets"}, nil, change{"POST /cluster/sdn/vnets/vn2/subnets", m("subnet", "10.9.0.0/24", "type", "subnet", "gateway", "10.9.0.1")}},
		{"subnet deleted", []string{"GET /cluster/sdn/vnets/vn2/subnets"}, []change{{"POST /cluster/sdn/vnets/vn2/subnets", m("subnet", "10.8.0.0/24", "type", "subnet", "gateway", "10.8.0.1")}}, change{"DELETE /cluster/sdn/vnets/vn2/subnets/dmz-10.8.0.0-24", nil}},
		{"storage made", []string{"GET /storage"}, nil, change{"POST /storage", m("storage", "extra", "type", "dir", "path", "/srv/extra", "content", "iso,backup")}},
		{"storage changed", []string{"GET /storage/local"}, nil, change{"PUT /storage/local", m("content", "iso", "nodes", "pve1", "disable", 1)}},
		{"storage deleted", []string{"GET /storage/other"}, []change{{"POST /storage", m("storage", "other", "type", "nfs", "server", "10.0.0.9", "export", "/x", "content", "iso,backup", "prune-backups", "keep-last=3,keep-daily=2", "options", "vers=4.2")}}, change{"DELETE /storage/other", nil}},
		{"pool made", []string{"GET /pools"}, nil, change{"POST /pools", m("poolid", "made", "comment", "c")}},
		{"pool changed", []string{"GET /pools?poolid=kept"}, []change{{"POST /pools", m("poolid", "kept", "comment", "c")}}, change{"PUT /pools", m("poolid", "kept", "comment", "other", "vms", "103", "storage", "local", "allow-move", 1)}},
		{"pool member out", []string{"GET /pools?poolid=kept"}, []change{{"PUT /pools", m("poolid", "kept", "vms", "104", "allow-move", 1)}}, change{"PUT /pools", m("poolid", "kept", "vms", "104", "delete", 1)}},
		{"pool comment unset", []string{"GET /pools"}, []change{{"POST /pools", m("poolid", "bare")}}, change{"PUT /pools", m("poolid", "bare", "comment", "new")}},
		{"pool deleted", []string{"GET /pools"}, nil, change{"DELETE /pools", m("poolid", "bare")}},
		{"acl given", []string{"GET /access/acl"}, []change{{"POST /access/users", m("userid", "agent@pve")}}, change{"PUT /access/acl", m("path", "/vms/101", "users", "agent@pve", "roles", "PVEAuditor", "propagate", 0)}},
		{"acl changed", []string{"GET /access/acl"}, []change{{"PUT /access/acl", m("path", "/vms/101", "users", "agent@pve", "roles", "PVEVMUser", "propagate", 0)}}, change{"PUT /access/acl", m("path", "/vms/101", "users", "agent@pve", "roles", "PVEVMUser", "propagate", 1)}},
		{"acl taken", []string{"GET /access/acl"}, nil, change{"PUT /access/acl", m("path", "/vms/101", "users", "agent@pve", "roles", "PVEVMUser", "delete", 1)}},
		{"user made", []string{"GET /access/users"}, nil, change{"POST /access/users", m("userid", "new@pve", "email", "a@b.example", "comment", "c")}},
		{"user changed", []string{"GET /access/users/kept@pve"}, []change{{"POST /access/groups", m("groupid", "g1", "comment", "c")}, {"POST /access/groups", m("groupid", "g2")}, {"POST /access/users", m("userid", "kept@pve", "email", "a@b.example", "groups", "g1")}}, change{"PUT /access/users/kept@pve", m("email", "c@d.example", "groups", "g2", "enable", 0, "firstname", "K")}},
		{"group made", []string{"GET /access/groups"}, nil, change{"POST /access/groups", m("groupid", "g3", "comment", "c")}},
		{"group deleted", []string{"GET /access/groups", "GET /access/users/kept@pve", "GET /access/acl"}, []change{{"PUT /access/acl", m("path", "/vms", "groups", "g1", "roles", "PVEAuditor")}}, change{"DELETE /access/groups/g1", nil}},
		{"user deleted", []string{"GET /access/users/kept@pve", "GET /access/acl"}, []change{{"PUT /access/acl", m("path", "/vms", "users", "kept@pve", "roles", "PVEAuditor")}}, change{"DELETE /access/users/kept@pve", nil}},
		{"role made", []string{"GET /access/roles"}, nil, change{"POST /access/roles", m("roleid", "Op", "privs", "VM.Audit,VM.PowerMgmt")}},
		{"role changed", []string{"GET /access/roles/Op2"}, []change{{"POST /access/roles", m("roleid", "Op2", "privs", "VM.Audit,VM.PowerMgmt")}}, change{"PUT /access/roles/Op2", m("privs", "Sys.Audit", "append", 1)}},
		{"role deleted", []string{"GET /access/roles/Op2"}, nil, change{"DELETE /access/roles/Op2", nil}},
		{"realm made", []string{"GET /access/domains"}, nil, change{"POST /access/domains", m("realm", "corp", "type", "ldap", "server1", "ldap.example", "base_dn", "dc=x", "user_attr", "uid")}},
		{"realm changed", []string{"GET /access/domains/corp2"}, []change{{"POST /access/domains", m("realm", "corp2", "type", "ldap", "server1", "ldap.example", "base_dn", "dc=x", "user_attr", "uid")}}, change{"PUT /access/domains/corp2", m("server1", "other.example", "comment", "c", "port", 636)}},
		{"HA resource made", []string{"GET /cluster/ha/resources"}, nil, change{"POST /cluster/ha/resources", m("sid", "vm:103", "state", "stopped", "comment", "c")}},
		{"HA resource changed", []string{"GET /cluster/ha/resources"}, []change{{"POST /cluster/ha/resources", m("sid", "vm:103", "state", "stopped", "comment", "c")}}, change{"PUT /cluster/ha/resources/vm:103", m("state", "ignored", "max_restart", 3, "delete", "comment")}},
		{"HA rule made", []string{"GET /cluster/ha/rules"}, nil, change{"POST /cluster/ha/rules", m("rule", "r1", "type", "node-affinity", "resources", "vm:103", "nodes", "pve1:2,pve2")}},
		{"HA resource deleted", []string{"GET /cluster/ha/resources", "GET /cluster/ha/rules"}, []change{{"POST /cluster/ha/rules", m("rule", "r2", "type", "node-affinity", "resources", "vm:103", "nodes", "pve1:2,pve2", "comment", "c")}}, change{"DELETE /cluster/ha/resources/vm:103", m("purge", 1)}},
		{"job made", []string{"GET /cluster/backup"}, nil, change{"POST /cluster/backup", m("schedule", "02:00", "storage", "local", "vmid", "101")}},
		{"job changed", []string{"GET /cluster/backup/j1"}, []change{{"POST /cluster/backup", m("id", "j1", "schedule", "02:00", "storage", "local", "vmid", "101", "prune-backups", "keep-last=2", "comment", "c")}}, change{"PUT /cluster/backup/j1", m("schedule", "03:00", "enabled", 0, "prune-backups", "keep-last=9", "delete", "comment")}},
		{"job deleted", []string{"GET /cluster/backup/j1"}, nil, change{"DELETE /cluster/backup/j1", nil}},
		{"replication made", []string{"GET /cluster/replication"}, nil, change{"POST /cluster/replication", m("id", "103-0", "type", "local", "target", "pve2", "schedule", "*/30")}},
		{"interface made", []string{"GET /nodes/pve1/network"}, nil, change{"POST /nodes/pve1/network", m("iface", "vmbr7", "type", "bridge", "cidr", "10.7.0.1/24", "autostart", 1, "comments", "c")}},
		{"interface changed", []string{"GET /nodes/pve1/network/vmbr8"}, []change{{"POST /nodes/pve1/network", m("iface", "vmbr8", "type", "bridge", "cidr", "10.8.0.1/24", "autostart", 1, "comments", "c")}}, change{"PUT /nodes/pve1/network/vmbr8", m("cidr", "10.9.0.1/24", "bridge_vlan_aware", 1)}},
		{"interface deleted", []string{"GET /nodes/pve1/network/vmbr8"}, nil, change{"DELETE /nodes/pve1/network/vmbr8", nil}},
		{"node options", []string{"GET /nodes/pve1/config"}, nil, change{"PUT /nodes/pve1/config", m("description", "rack 4", "startall-onboot-delay", 5)}},
		{"dns", []string{"GET /nodes/pve1/dns"}, nil, change{"PUT /nodes/pve1/dns", m("search", "example.org", "dns1", "10.0.0.53")}},
		{"datacenter options", []string{"GET /cluster/options"}, nil, change{"PUT /cluster/options", m("keyboard", "fr", "migration", "type=insecure", "registered-tags", "a;b", "next-id", "lower=200,upper=300")}},
		{"metrics made", []string{"GET /cluster/metrics/server"}, nil, change{"POST /cluster/metrics/server/g1", m("type", "graphite", "server", "10.0.0.5", "port", 2003)}},
		{"metrics changed", []string{"GET /cluster/metrics/server/g2"}, []change{{"POST /cluster/metrics/server/g2", m("type", "graphite", "server", "10.0.0.5", "port", 2003)}}, change{"PUT /cluster/metrics/server/g2", m("port", 2004, "server", "10.0.0.6", "path", "x")}},
		{"metrics deleted", []string{"GET /cluster/metrics/server/g2"}, nil, change{"DELETE /cluster/metrics/server/g2", nil}},
		{"endpoint made", []string{"GET /cluster/notifications/endpoints/sendmail"}, nil, change{"POST /cluster/notifications/endpoints/sendmail", m("name", "ops", "mailto", "a@b.example", "comment", "c")}},
		{"matcher changed", []string{"GET /cluster/notifications/matchers/m1"}, []change{{"POST /cluster/notifications/matchers", m("name", "m1", "match-severity", []any{"error", "warning"}, "comment", "c")}}, change{"PUT /cluster/notifications/matchers/m1", m("match-severity", []any{"error"}, "mode", "any", "delete", "comment")}},
		{"guest powered", []string{"GET /nodes/pve1/qemu/101/config"}, nil, change{"POST /nodes/pve1/qemu/101/snapshot", m("snapname", "s1")}},
	} {
		if *only != "" && *only != c.name {
			for _, b := range c.before {
				l.t = t
				l.api(b.op, b.params)
			}
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			l.t = t
			for _, b := range c.before {
				l.api(b.op, b.params)
			}
			look := func() (out string) {
				for _, r := range c.reads {
					out += r + "\n" + l.seen(r) + "\n"
				}
				return out
			}
			was := look()
			made := l.api(c.change.op, c.change.params)
			changed := look()
			if changed == was && !strings.Contains(c.change.op, "/snapshot") {
				t.Fatalf("nothing changed: %s", was)
			}
			if made.Receipt == nil || made.Receipt.UndoWith == "" {
				t.Fatalf("the receipt does not say how it is undone: %s", text(made.Receipt.Undo))
			}
			partial := strings.Contains(text(made), "must be typed again")
			out, err := l.run("undo", text(map[string]any{"plan": made.Receipt.Plan, "partial": partial}))
			if err != nil || out.Status != gate.StatusDone {
				t.Fatalf("undo: %v %.1500s", err, text(out))
			}
			l.lab.Advance(15 * time.Second)
			if d := cmp.Diff(was, look()); d != "" {
				t.Errorf("not as it was (-was +is):\n%s", d)
			}
			again, err := l.run("undo", text(map[string]any{"plan": made.Receipt.Plan, "partial": true}))
			if strings.Contains(c.name, "renamed") {
				if err == nil { // the server knows no such name any more
					t.Logf("the second undo: %s", again.Status)
				}
			} else if err == nil && again.Status != gate.StatusNothing || err == nil && !strings.Contains(again.Next, "is undone already") {
				t.Errorf("undone twice: %.800s", text(again))
			}
			if err != nil {
				t.Logf("the second undo: %v", err)
			}
			if strings.Contains(c.change.op, "/snapshot") || strings.HasPrefix(c.name, "ipset renamed") || strings.HasPrefix(c.name, "security group renamed") {
				return // renamed there and back, the comment is kept where the first renaming lost it
			}
			back, err := l.run("undo", text(map[string]any{"plan": out.Receipt.Plan, "partial": true}))
			if err != nil || back.Status != gate.StatusDone {
				t.Fatalf("undo the undo: %v %.1500s", err, text(back))
			}
			l.lab.Advance(15 * time.Second)
			if d := cmp.Diff(changed, look()); d != "" {
				t.Errorf("undo undone is not as changed (-changed +is):\n%s", d)
			}
			last, err := l.run("undo", text(map[string]any{"plan": back.Receipt.Plan, "partial": true}))
			if err != nil || last.Status != gate.StatusDone {
				t.Fatalf("undo a third time: %v %s", err, text(last))
			}
			l.lab.Advance(15 * time.Second)
			if d := cmp.Diff(was, look()); d != "" {
				t.Errorf("not as it was at last (-was +is):\n%s", d)
			}
		})
	}
	_ = fmt.Sprint
}
