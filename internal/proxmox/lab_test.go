package proxmox

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"castellan/internal/gate"
	"castellan/internal/lab"
)

// labClient serves a simulated site and gives a client for it.
func labClient(tb testing.TB, site, token string) (*lab.Lab, *Client, string) {
	tb.Helper()
	l, err := lab.New(lab.Config{Site: site})
	if err != nil {
		tb.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = l.Serve(ctx, ln) }()
	tb.Cleanup(func() { stop(); <-done })
	header, ok := l.Tokens()[token]
	if !ok {
		tb.Fatalf("the lab has no token %q: %v", token, l.Tokens())
	}
	secrets := files{"token": header}
	c, err := New(Config{Catalog: realCatalogue(tb), Secrets: secrets.Open, ReadFile: secrets.Read, Settings: Settings{Targets: []Target{
		{Name: "lab", Kind: "pve", Addresses: []string{ln.Addr().String()}, TokenFile: "token", Pins: []string{l.Fingerprint()}}}}})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(c.Close)
	return l, c, ln.Addr().String()
}

func TestAgainstLab(t *testing.T) {
	_, c, _ := labClient(t, "small", "admin")
	site, err := c.Identify(t.Context(), "lab")
	if err != nil || site == "" {
		t.Fatalf("site %q, %v", site, err)
	}
	a, err := readOne(t, c, "GET /cluster/resources", map[string]any{"type": "vm"})
	if err != nil {
		t.Fatal(err)
	}
	var guests []struct {
		VMID   int    `json:"vmid"`
		Node   string `json:"node"`
		Type   string `json:"type"`
		Status string `json:"status"`
	}
	if err := json.Unmarshal(a.Data, &guests); err != nil || len(guests) == 0 {
		t.Fatalf("%d guests, %v", len(guests), err)
	}
	// A guest is stopped or started: a task, its end, and its place in the list.
	var upid string
	began := time.Now()
	for _, g := range guests {
		if g.Type != "qemu" || g.Status != "running" {
			continue
		}
		a, fail := sendOne(t, c, "POST /nodes/{node}/qemu/{vmid}/status/stop", map[string]any{"node": g.Node, "vmid": fmt.Sprint(g.VMID)})
		if fail != nil {
			continue
		}
		if err := json.Unmarshal(a.Data, &upid); err != nil {
			t.Fatal(err)
		}
		break
	}
	if upid == "" {
		t.Fatal("no guest could be stopped")
	}
	s, err := c.Task(t.Context(), "lab", upid)
	if err != nil || !s.OK || s.Type != "qmstop" {
		t.Errorf("got %+v, %v", s, err)
	}
	found, err := c.FindTasks(t.Context(), "lab", s.Node, began)
	if err != nil || len(found) != 1 || found[0].UPID != upid {
		t.Errorf("found %+v, %v", found, err)
	}
	if _, err := c.Task(t.Context(), "lab", strings.Replace(upid, "qmstop", "qmstart", 1)); asUpstream(err) == nil || asUpstream(err).Kind != gate.ErrNotFound {
		t.Errorf("an unknown task gave %v", err)
	}
	_, err = readOne(t, c, "GET /nodes/{node}/qemu/{vmid}/config", map[string]any{"node": s.Node, "vmid": "99999"})
	if u := asUpstream(err); u == nil || u.Kind != gate.ErrNotFound {
		t.Errorf("an absent guest gave %v", err)
	}
}

// labNodes gives the contacted node and the others.
func labNodes(t *testing.T, c *Client) (local string, others []string) {
	t.Helper()
	a, err := readOne(t, c, "GET /cluster/status", nil)
	if err != nil {
		t.Fatal(err)
	}
	var rows []struct {
		Type  string `json:"type"`
		Name  string `json:"name"`
		Local int    `json:"local"`
	}
	if err := json.Unmarshal(a.Data, &rows); err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		switch {
		case r.Type == "node" && r.Local == 1:
			local = r.Name
		case r.Type == "node":
			others = append(others, r.Name)
		}
	}
	if local == "" || len(others) == 0 {
		t.Fatalf("nodes: %q, %q", local, others)
	}
	return local, others
}

func TestLabNodeOff(t *testing.T) {
	l, c, _ := labClient(t, "small", "admin")
	local, others := labNodes(t, c)
	if err := l.SetNode(others[0], lab.NodeOff); err != nil {
		t.Fatal(err)
	}
	for _, n := range append([]string{local}, others...) {
		a, err := c.Read(t.Context(), "lab", request(t, "GET /nodes/{node}/qemu", map[string]any{"node": n}))
		if (err != nil) != (n == others[0]) || err != nil && !strings.Contains(err.Error(), "node "+n+" cannot be reached (595 No route to host)") {
			t.Errorf("%s: %s, %v", n, a.Data, err)
		}
	}
}

// The rows of 595 against a whole site.
func TestLabUnreachableWrites(t *testing.T) {
	for _, tt := range []struct {
		name  string
		own   bool
		state lab.NodeState
		want  gate.Delivery
	}{
		{"other node refuses", false, lab.NodeNoDaemon, gate.NotCarriedOut},
		{"other node cut off", false, lab.NodeOff, gate.MaybeDone},
		{"own daemon down", true, lab.NodeBackendDown, gate.MaybeDone},
	} {
		l, c, _ := labClient(t, "small", "admin")
		local, others := labNodes(t, c)
		node := others[0]
		if tt.own {
			node = local
		}
		if err := l.SetNode(node, tt.state); err != nil {
			t.Fatal(err)
		}
		_, fail := sendOne(t, c, "POST /nodes/{node}/startall", map[string]any{"node": node})
		if fail == nil || fail.Status != statusUnreachable || fail.Delivery != tt.want {
			t.Errorf("%s: %+v", tt.name, fail)
		}
	}
}

// Every scripted failure of the site: no write is sent twice, and none is called undone that may have been done.
func TestLabFaults(t *testing.T) {
	for _, tt := range []struct {
		fault lab.Fault
		want  gate.Delivery
	}{
		{lab.Fault{Kind: "before the effect"}, gate.MaybeDone},
		{lab.Fault{Kind: "after the effect"}, gate.MaybeDone},
		{lab.Fault{Kind: "cut"}, gate.MaybeDone},
		{lab.Fault{Kind: "html"}, gate.MaybeDone},
		{lab.Fault{Kind: "status", Status: 596, Reason: "Connection timed out"}, gate.MaybeDone},
		{lab.Fault{Kind: "status", Status: 500, Reason: "got timeout"}, gate.MaybeDone},
		{lab.Fault{Kind: "status", Status: 401, Reason: "Authentication failed!"}, gate.NotCarriedOut},
	} {
		l, c, _ := labClient(t, "small", "admin")
		tt.fault.Method = "POST"
		l.SetFaults([]lab.Fault{tt.fault})
		_, fail := sendOne(t, c, "POST /pools", map[string]any{"poolid": "made"})
		if fail == nil || fail.Delivery != tt.want {
			t.Errorf("%+v: %+v", tt.fault, fail)
		}
		sent := 0
		for _, r := range l.Requests() {
			if r.Method == "POST" {
				sent++
			}
		}
		if sent != 1 {
			t.Errorf("%+v: sent %d times", tt.fault, sent)
		}
	}
}

func TestLabRights(t *testing.T) {
	_, c, _ := labClient(t, "small", "auditor")
	var guests []struct {
		VMID int    `json:"vmid"`
		Node string `json:"node"`
		Type string `json:"type"`
	}
	a, err := readOne(t, c, "GET /cluster/resources", map[string]any{"type": "vm"})
	if err != nil || json.Unmarshal(a.Data, &guests) != nil || len(guests) == 0 {
		t.Fatal(err)
	}
	g := guests[0]
	_, fail := sendOne(t, c, "POST /nodes/{node}/"+g.Type+"/{vmid}/status/stop", map[string]any{"node": g.Node, "vmid": fmt.Sprint(g.VMID)})
	if fail == nil || fail.Kind != gate.ErrDenied || fail.Delivery != gate.NotCarriedOut || !strings.Contains(fail.Hint, "pveum acl modify /vms/") || !strings.Contains(fail.Hint, "VM.PowerMgmt") {
		t.Errorf("got %+v", fail)
	}
}

// BenchmarkRead compares a read through the client with one by a bare http.Client on the same site.
func BenchmarkRead(b *testing.B) {
	l, c, addr := labClient(b, "small", "auditor")
	for _, read := range []struct {
		name, operation, path string
	}{
		{"version", "GET /version", "/version"},
		{"resources", "GET /cluster/resources", "/cluster/resources"},
	} {
		b.Run(read.name+"/client", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Read(b.Context(), "lab", gate.Request{Product: "pve", Operation: read.operation}); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(read.name+"/bare", func(b *testing.B) {
			bare := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
			b.ReportAllocs()
			for b.Loop() {
				req, _ := http.NewRequestWithContext(b.Context(), http.MethodGet, "https://"+addr+"/api2/json"+read.path, nil)
				req.Header.Set("Authorization", l.Tokens()["auditor"])
				res, err := bare.Do(req)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, res.Body); err != nil {
					b.Fatal(err)
				}
				res.Body.Close()
			}
		})
	}
}
