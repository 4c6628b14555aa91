package reach_test

import (
	"errors"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"

	"castellan/internal/gate"
	"castellan/internal/lab"
	"castellan/internal/reach"
)

// TestClassesThroughTheGate plans one change of each class on a simulated site, through everything that a call goes through.
func TestClassesThroughTheGate(t *testing.T) {
	h := openSelf(t, reach.Self{Guests: []string{"106"}, Operators: []netip.Prefix{netip.MustParsePrefix("10.10.10.0/24")}})
	if _, err := h.Behind(t.Context(), "POST", "/nodes/pve1/network", url.Values{"iface": {"vmbr9"}, "type": {"bridge"}}); err != nil { // something is staged
		t.Fatal(err)
	}
	for _, x := range []struct {
		operation string
		params    map[string]any
		class     string // of a hit that must be there
		object    string
		denied    string // what the refusal says, where there is one
	}{
		{"PUT /access/acl", map[string]any{"path": "/vms/101", "users": "joe@pve", "roles": "PVEVMAdmin"}, reach.ClassGains, "user/joe@pve", ""},
		{"PUT /access/acl", map[string]any{"path": "/vms/203", "users": "joe@pve", "roles": "NoAccess"}, reach.ClassLosesAccess, "user/joe@pve", ""},
		{"PUT /access/users/{userid}", map[string]any{"userid": "ann@pve", "enable": false}, reach.ClassLosesAccess, "user/ann@pve", ""},
		{"POST /cluster/firewall/rules", map[string]any{"type": "in", "action": "DROP", "enable": 1, "source": "10.10.10.0/24"}, reach.ClassLockout, "node/pve1", ""},
		{"POST /cluster/firewall/rules", map[string]any{"type": "in", "action": "ACCEPT", "enable": 1, "proto": "tcp", "dport": "3389"}, reach.ClassOpens, "node/pve1", ""},
		{"PUT /nodes/{node}/qemu/{vmid}/firewall/options", map[string]any{"node": "pve1", "vmid": 101, "policy_in": "ACCEPT"}, reach.ClassOpens, "guest/101", ""},
		{"PUT /nodes/{node}/network/{iface}", map[string]any{"node": "pve1", "iface": "vmbr0", "type": "bridge", "mtu": 9000}, reach.ClassLockout, "node/pve1", ""},
		{"PUT /nodes/{node}/network", map[string]any{"node": "pve1"}, reach.ClassSetting, "node/pve1", ""},
		{"PUT /cluster/sdn", map[string]any{}, reach.ClassSetting, "site/sdn", ""},
		{"POST /nodes/{node}/status", map[string]any{"node": "pve1", "command": "reboot"}, reach.ClassStops, "guest/101", ""},
		{"POST /nodes/{node}/services/{service}/stop", map[string]any{"node": "pve1", "service": "pveproxy"}, reach.ClassLockout, "node/pve1", ""},
		{"DELETE /cluster/ha/resources/{sid}", map[string]any{"sid": "vm:106"}, "", "", "castellan itself depends"},
		{"PUT /cluster/options", map[string]any{"fencing": "hardware"}, reach.ClassHA, "site", ""},
		{"DELETE /nodes/{node}/certificates/custom", map[string]any{"node": "pve1"}, reach.ClassLockout, "node/pve1", ""},
		{"POST /nodes/{node}/qemu/{vmid}/snapshot/{snapname}/rollback", map[string]any{"node": "pve2", "vmid": 106, "snapname": "s1"}, "", "", "take back"},
		{"POST /nodes/{node}/status", map[string]any{"node": "pve2", "command": "shutdown"}, "", "", "castellan itself depends"},
	} {
		out, err := h.Plan(t.Context(), "call_operation", m{"operation": x.operation, "params": x.params})
		var e *gate.Error
		switch {
		case x.denied != "":
			if !errors.As(err, &e) || e.Kind != gate.ErrDenied || !strings.Contains(e.Message, x.denied) {
				t.Errorf("%s %v: %v, want a refusal with %q", x.operation, x.params, err, x.denied)
			}
			continue
		case err != nil:
			t.Errorf("%s %v: %v", x.operation, x.params, err)
			continue
		}
		if !slices.ContainsFunc(out.Plan.Hits, func(hit gate.HitView) bool { return hit.Class == x.class && hit.Object == x.object }) {
			t.Errorf("%s %v: no %s of %s among %+v; unread %v", x.operation, x.params, x.class, x.object, out.Plan.Hits, out.Plan.Unread)
		}
	}
	if own := h.Client.Own("lab"); len(own) != 1 || !own[0].IsLoopback() {
		t.Errorf("castellan comes from %v", own)
	}
}

// TestSDNIsAppliedUnderItsLock: the lock is taken, the apply carries its token and gives it back; while somebody else has
// it nothing is applied.
func TestSDNIsAppliedUnderItsLock(t *testing.T) {
	h := openSelf(t, reach.Self{})
	for range 2 { // the second would fail if the first had kept the lock
		h.Lab.ResetRequests()
		out, err := h.Run(t.Context(), "apply_sdn", "{}")
		if err != nil || out.Status != gate.StatusDone {
			t.Fatalf("%+v, %v", out, err)
		}
		if got := h.Sent(); !slices.Equal(got, []string{"POST /cluster/sdn/lock", "PUT /cluster/sdn"}) {
			t.Errorf("sent %v", got)
		}
	}
	if _, err := h.Run(t.Context(), "call_operation", `{"operation":"POST /cluster/sdn/lock","params":{}}`); err != nil {
		t.Fatal(err)
	}
	h.Lab.ResetRequests()
	out, err := h.Run(t.Context(), "apply_sdn", "{}")
	if err != nil || out.Status == gate.StatusDone || slices.Contains(h.Sent(), "PUT /cluster/sdn") {
		t.Errorf("%+v, %v, sent %v", out, err, h.Sent())
	}
}

// TestAFirewallChangeIsConfirmed: after what may lock somebody out, castellan must get in once more before it is done.
func TestAFirewallChangeIsConfirmed(t *testing.T) {
	h := openSelf(t, reach.Self{Operators: []netip.Prefix{netip.MustParsePrefix("10.10.10.0/24")}})
	out, err := h.Run(t.Context(), "call_operation", `{"operation":"POST /cluster/firewall/rules","params":{"type":"in","action":"DROP","enable":1,"source":"10.10.10.0/24"}}`)
	if err != nil || out.Status != gate.StatusDone {
		t.Fatalf("%+v, %v", out, err)
	}
	reqs := h.Lab.Requests()
	write := slices.IndexFunc(reqs, func(r lab.Request) bool { return r.Method == "POST" })
	if write < 0 || !slices.ContainsFunc(reqs[write:], func(r lab.Request) bool { return strings.HasSuffix(r.Path, "/version") }) {
		t.Errorf("nobody looked whether castellan still gets in, after the write at %d of %d", write, len(reqs))
	}
}
