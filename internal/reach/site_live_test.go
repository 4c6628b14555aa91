package reach_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"castellan/internal/catalog"
	"castellan/internal/catalog/facts"
	"castellan/internal/estate"
	"castellan/internal/gate"
	"castellan/internal/lab"
	"castellan/internal/ops/pve"
	"castellan/internal/ops/self"
	"castellan/internal/policy"
	"castellan/internal/proxmox"
	"castellan/internal/reach"
	"castellan/internal/seal"
	"castellan/internal/store"
)

// site is a whole gate in front of a simulated site.
type site struct {
	t      *testing.T
	lab    *lab.Lab
	gate   *gate.Gate
	client *proxmox.Client
}

func openSite(t *testing.T, me reach.Self) *site {
	t.Helper()
	l, err := lab.New(lab.Config{Site: "small", Facts: facts.Open()})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served, ran := make(chan struct{}), make(chan struct{})
	go func() { defer close(served); _ = l.Serve(ctx, listener) }() // ends with the test
	c, err := catalog.New(catalog.Config{Facts: facts.Open()})
	if err != nil {
		t.Fatal(err)
	}
	_, secret, _ := strings.Cut(l.Tokens()["admin"], "PVEAPIToken=")
	client, err := proxmox.New(proxmox.Config{Settings: proxmox.Settings{Targets: []proxmox.Target{{Name: "lab", Kind: "pve", Addresses: []string{listener.Addr().String()},
		TokenFile: "token", Pins: []string{l.Fingerprint()}}}}, Catalog: c.Guide(), Secrets: func(string) (seal.Secret, error) { return seal.NewSecret([]byte(secret)), nil }})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(ctx, store.Config{URL: filepath.Join(dir, "state", "castellan.db"), Signer: key})
	if err != nil {
		t.Fatal(err)
	}
	p, err := policy.New(policy.Config{Settings: policy.Settings{Capabilities: gate.Capabilities(), StandIn: "phrase"}, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	e := estate.New()
	me.Own = func(_ context.Context, target string) []netip.Addr { return client.Own(target) }
	walker, err := reach.New(reach.Config{Estate: e, Catalog: c, Self: me})
	if err != nil {
		t.Fatal(err)
	}
	g, err := gate.New(gate.Config{Operations: slices.Concat(pve.Operations(), self.Operations(self.Config{Catalog: c, Estate: e})), Catalog: c.Guide(), Driver: client, Policy: p,
		Store: st, Estate: e, Walker: walker, Sealer: sealer{}, PollFirst: 20 * time.Millisecond, Soak: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	go func() { defer close(ran); _ = g.Run(ctx) }() // ends with the test
	g.AwaitRunning()
	t.Cleanup(func() {
		cancel()
		<-ran
		_ = listener.Close() // Serve may have closed it
		<-served
		client.Close()
		_ = st.Close() // the folder goes with the test
	})
	return &site{t, l, g, client}
}

// plan asks for a change by catalogue, and for its plan alone.
func (h *site) plan(operation string, params map[string]any) (*gate.Outcome, error) {
	h.t.Helper()
	args, err := json.Marshal(map[string]any{"operation": operation, "params": params})
	if err != nil {
		h.t.Fatal(err)
	}
	return h.gate.Do(h.t.Context(), gate.Call{Operation: "call_operation", Args: args, PlanOnly: true,
		Principal: gate.Principal{Agent: "test", Person: "ann", WayIn: "test", Strength: gate.StrengthAccount}}, nil)
}

// TestClassesThroughTheGate plans one change of each class on a simulated site, through everything that a call goes through.
func TestClassesThroughTheGate(t *testing.T) {
	h := openSite(t, reach.Self{Guests: []string{"106"}, Operators: []netip.Prefix{netip.MustParsePrefix("10.10.10.0/24")}})
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
		out, err := h.plan(x.operation, x.params)
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
	if own := h.client.Own("lab"); len(own) != 1 || !own[0].IsLoopback() {
		t.Errorf("castellan comes from %v", own)
	}
}

// run calls and applies as the answer says.
func (h *site) run(operation, args string) (*gate.Outcome, error) {
	h.t.Helper()
	who := gate.Principal{Agent: "test", Person: "ann", WayIn: "test", Strength: gate.StrengthAccount}
	out, err := h.gate.Do(h.t.Context(), gate.Call{Operation: operation, Args: json.RawMessage(args), Principal: who}, nil)
	if err != nil || out.Status != gate.StatusWaiting {
		return out, err
	}
	raw, err := json.Marshal(map[string]string{"plan": out.Plan.ID, "sentence": out.Plan.Sentence, "token": out.Plan.Token, "phrase": out.Plan.Phrase})
	if err != nil {
		h.t.Fatal(err)
	}
	return h.gate.Do(h.t.Context(), gate.Call{Operation: "apply_plan", Args: raw, Principal: who}, nil)
}

// sent lists the writes that the site got, as method and path.
func (h *site) sent() (out []string) {
	for _, r := range h.lab.Requests() {
		if r.Method != "GET" {
			path, _, _ := strings.Cut(r.Path, "?")
			out = append(out, r.Method+" "+strings.TrimPrefix(path, "/api2/json"))
		}
	}
	return out
}

// TestSDNIsAppliedUnderItsLock: the lock is taken, the apply carries its token and gives it back; while somebody else has
// it nothing is applied.
func TestSDNIsAppliedUnderItsLock(t *testing.T) {
	h := openSite(t, reach.Self{})
	for range 2 { // the second would fail if the first had kept the lock
		h.lab.ResetRequests()
		out, err := h.run("apply_sdn", "{}")
		if err != nil || out.Status != gate.StatusDone {
			t.Fatalf("%+v, %v", out, err)
		}
		if got := h.sent(); !slices.Equal(got, []string{"POST /cluster/sdn/lock", "PUT /cluster/sdn"}) {
			t.Errorf("sent %v", got)
		}
	}
	if _, err := h.run("call_operation", `{"operation":"POST /cluster/sdn/lock","params":{}}`); err != nil {
		t.Fatal(err)
	}
	h.lab.ResetRequests()
	out, err := h.run("apply_sdn", "{}")
	if err != nil || out.Status == gate.StatusDone || slices.Contains(h.sent(), "PUT /cluster/sdn") {
		t.Errorf("%+v, %v, sent %v", out, err, h.sent())
	}
}

// TestAFirewallChangeIsConfirmed: after what may lock somebody out, castellan must get in once more before it is done.
func TestAFirewallChangeIsConfirmed(t *testing.T) {
	h := openSite(t, reach.Self{Operators: []netip.Prefix{netip.MustParsePrefix("10.10.10.0/24")}})
	out, err := h.run("call_operation", `{"operation":"POST /cluster/firewall/rules","params":{"type":"in","action":"DROP","enable":1,"source":"10.10.10.0/24"}}`)
	if err != nil || out.Status != gate.StatusDone {
		t.Fatalf("%+v, %v", out, err)
	}
	reqs := h.lab.Requests()
	write := slices.IndexFunc(reqs, func(r lab.Request) bool { return r.Method == "POST" })
	if write < 0 || !slices.ContainsFunc(reqs[write:], func(r lab.Request) bool { return strings.HasSuffix(r.Path, "/version") }) {
		t.Errorf("nobody looked whether castellan still gets in, after the write at %d of %d", write, len(reqs))
	}
}
