package self

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"

	"castellan/internal/gate"
)

// other is somebody else at the same site.
func (l *live) other(method, path string, form url.Values) json.RawMessage {
	l.t.Helper()
	answer, err := l.Behind(l.t.Context(), method, path, form)
	if err != nil {
		l.t.Fatal(err)
	}
	return answer
}

// TestBetween changes the site between plan and apply: what moved is followed, what was replaced or changed is not touched.
func TestBetween(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole castellan before a simulated site")
	}
	for _, c := range []struct {
		name, op, args string
		between        func(l *live)
		want           string // "done", or part of why not
	}{
		{"moved", "guest_power", `{"guest":"203","action":"start"}`, func(l *live) {
			l.other("POST", "/nodes/pve2/lxc/203/migrate", url.Values{"target": {"pve1"}})
		}, "done"},
		{"moved, snapshot by its name", "delete_snapshot", `{"guest":"102","name":"before-upgrade"}`, func(l *live) {
			l.other("POST", "/nodes/pve1/qemu/102/migrate", url.Values{"target": {"pve2"}, "online": {"1"}, "with-local-disks": {"1"}})
		}, "done"},
		{"replaced", "guest_power", `{"guest":"103","action":"start"}`, func(l *live) {
			l.other("DELETE", "/nodes/pve1/qemu/103", nil)
			l.other("POST", "/nodes/pve1/qemu", url.Values{"vmid": {"103"}, "name": {"old-app"}, "memory": {"512"}})
		}, "VM 103 still has SMBIOS uuid"},
		{"replaced, of the other kind", "guest_power", `{"guest":"103","action":"start"}`, func(l *live) {
			l.other("DELETE", "/nodes/pve1/qemu/103", nil)
			l.other("POST", "/nodes/pve1/lxc", url.Values{"vmid": {"103"}, "hostname": {"x"}, "ostemplate": {"local:vztmpl/debian-13-standard_13.1-2_amd64.tar.zst"}, "rootfs": {"local-lvm:1"}})
		}, "VM 103"},
		{"gone", "guest_power", `{"guest":"103","action":"start"}`, func(l *live) { l.other("DELETE", "/nodes/pve1/qemu/103", nil) }, "103"},
		{"old value", "set_guest_config", `{"guest":"103","set":{"cores":4}}`, func(l *live) {
			l.other("PUT", "/nodes/pve1/qemu/103/config", url.Values{"cores": {"8"}})
		}, "cores is 2"},
		{"another value", "set_guest_config", `{"guest":"103","set":{"cores":4}}`, func(l *live) {
			l.other("PUT", "/nodes/pve1/qemu/103/config", url.Values{"description": {"somebody was here"}})
		}, "done"},
		{"state", "delete_guest", `{"guest":"103"}`, func(l *live) { l.other("POST", "/nodes/pve1/qemu/103/status/start", nil) }, "VM 103 is stopped"},
		{"protection", "delete_guest", `{"guest":"103"}`, func(l *live) {
			l.other("PUT", "/nodes/pve1/qemu/103/config", url.Values{"protection": {"1"}})
		}, "not protected"},
		{"snapshot replaced", "rollback_snapshot", `{"guest":"201","name":"clean","start":true}`, func(l *live) {
			l.other("DELETE", "/nodes/pve1/lxc/201/snapshot/clean", nil)
			l.lab.Advance(time.Minute)
			l.other("POST", "/nodes/pve1/lxc/201/snapshot", url.Values{"snapname": {"clean"}})
		}, "snapshot clean is the one of"},
		{"snapshot replaced, by the door", "call_operation", `{"operation":"POST /nodes/pve1/lxc/201/snapshot/clean/rollback"}`, func(l *live) {
			l.other("DELETE", "/nodes/pve1/lxc/201/snapshot/clean", nil)
			l.lab.Advance(time.Minute)
			l.other("POST", "/nodes/pve1/lxc/201/snapshot", url.Values{"snapname": {"clean"}})
		}, "snapshot clean is the one found"},
		{"snapshot replaced, cloned by the door", "call_operation", `{"operation":"POST /nodes/pve1/lxc/201/clone","params":{"newid":700,"snapname":"clean"}}`, func(l *live) {
			l.other("DELETE", "/nodes/pve1/lxc/201/snapshot/clean", nil)
			l.lab.Advance(time.Minute)
			l.other("POST", "/nodes/pve1/lxc/201/snapshot", url.Values{"snapname": {"clean"}})
		}, "snapshot clean is the one found"},
		{"snapshot, cloned", "clone_guest", `{"guest":"201","newid":700,"snapshot":"clean"}`, func(l *live) {
			l.other("DELETE", "/nodes/pve1/lxc/201/snapshot/clean", nil)
			l.lab.Advance(time.Minute)
			l.other("POST", "/nodes/pve1/lxc/201/snapshot", url.Values{"snapname": {"clean"}})
		}, "snapshot clean is the one of"},
		{"id taken, forced by the door", "call_operation", `{"operation":"POST /nodes/pve1/lxc","params":{"vmid":700,"force":1,"ostemplate":"local:vztmpl/debian-13-standard_13.1-2_amd64.tar.zst","rootfs":"local-lvm:1"}}`, func(l *live) {
			l.other("POST", "/nodes/pve1/lxc", url.Values{"vmid": {"700"}, "ostemplate": {"local:vztmpl/debian-13-standard_13.1-2_amd64.tar.zst"}, "rootfs": {"local-lvm:1"}})
		}, "no guest has the id 700"},
		{"id taken", "create_guest", `{"kind":"vm","node":"pve1","vmid":700}`, func(l *live) {
			l.other("POST", "/nodes/pve2/qemu", url.Values{"vmid": {"700"}})
		}, "no guest has the id 700"},
		{"rule moved", "call_operation", `{"operation":"PUT /cluster/firewall/rules/0","params":{"comment":"x"}}`, func(l *live) {
			l.other("POST", "/cluster/firewall/rules", url.Values{"type": {"in"}, "action": {"DROP"}, "enable": {"1"}})
		}, "no longer so"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := open(t, "small", "admin")
			out, err := l.gate.Do(t.Context(), gate.Call{Operation: c.op, Args: json.RawMessage(c.args), Principal: l.who, PlanOnly: true}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if out.Plan == nil {
				t.Fatalf("no plan: %s", text(out))
			}
			c.between(l)
			out, err = l.Apply(t.Context(), out.Plan)
			got := text(out)
			if err != nil {
				got = text(gate.AsError(err))
			}
			switch done := strings.Contains(got, `"status":"done"`); {
			case c.want == "done" && !done, c.want != "done" && (done || !strings.Contains(got, c.want)):
				t.Errorf("want %q: %s", c.want, got)
			}
		})
	}
}
