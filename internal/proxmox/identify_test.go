package proxmox

import (
	"strings"
	"sync/atomic"
	"testing"
)

func TestIdentify(t *testing.T) {
	const nodes = `[{"node":"pve2","ssl_fingerprint":"BB:02"},{"node":"pve1","ssl_fingerprint":"AA:01"}]`
	ca := strings.Repeat("CD:", 31) + "CD"
	denied := raw("403 Permission check failed (/, Sys.Audit)", "", "")
	info := ok(`[{"filename":"pve-ssl.pem","fingerprint":"11"},{"filename":"pve-root-ca.pem","fingerprint":"` + ca + `"}]`)
	tests := []struct {
		name                 string
		nodes, status, certs string
		want                 string
		fails                bool
	}{
		{"cluster", ok(nodes), ok(`[{"type":"node","name":"pve1","local":1},{"type":"cluster","name":"lab"}]`), info, "lab-cdcdcdcdcdcdcdcd", false},
		{"single node", ok(`[{"node":"pve1","ssl_fingerprint":"AA:01"}]`), ok(`[{"type":"node","name":"pve1","local":1}]`), info, "pve1-cdcdcdcdcdcdcdcd", false},
		{"no CA to be seen", ok(nodes), ok(`[{"type":"cluster","name":"lab"}]`), denied, "lab-aa01", false},
		{"limited token", ok(nodes), denied, info, "pve-cdcdcdcdcdcdcdcd", false},
		{"nothing to be seen", denied, denied, denied, "", false},
		{"not now", ok(nodes), raw("595 Connection refused", "", ""), info, "", true},
		{"no node answers now", ok(nodes), ok(`[{"type":"cluster","name":"lab"}]`), raw("595 No route to host", "", ""), "", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var asked atomic.Int32
			f := newFake(t, func(_ int, r seen) string {
				asked.Add(1)
				switch {
				case r.line == "GET /api2/json/nodes":
					return tt.nodes
				case r.line == "GET /api2/json/cluster/status":
					return tt.status
				case strings.HasSuffix(r.line, "/certificates/info"):
					return tt.certs
				}
				return raw("501 no", "", "")
			})
			set, secrets := tokenTarget(f)
			c := newClient(t, set, secrets)
			got, err := c.Identify(t.Context(), "")
			if got != tt.want || (err != nil) != tt.fails {
				t.Fatalf("got %q, %v", got, err)
			}
			before := asked.Load()
			if again, _ := c.Identify(t.Context(), ""); again != got || tt.want != "" && asked.Load() != before {
				t.Errorf("the second time %q, %d requests", again, asked.Load()-before)
			}
			if c.Targets()[0].Site != tt.want {
				t.Errorf("the target says %q", c.Targets()[0].Site)
			}
		})
	}
}

func TestIdentifyOtherProducts(t *testing.T) {
	f := newFake(t, func(int, seen) string { return ok(`{"version":"4.2.0","release":"1"}`) })
	c := newClient(t, Target{Name: "b", Kind: "pbs", Addresses: []string{f.addr}, TokenFile: "t", CAFile: "ca"}, files{"t": "root@pam!x:y-z", "ca": f.ca})
	got, err := c.Identify(t.Context(), "")
	want := "pbs-" + strings.ToLower(strings.ReplaceAll(fingerprint(f.leaf), ":", ""))[:16]
	if err != nil || got != want || c.Targets()[0].Version != "4.2.0" {
		t.Errorf("got %q, %v, %+v; want %q", got, err, c.Targets()[0], want)
	}
}
