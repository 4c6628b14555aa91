package lab

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// newLab is a site without delays.
func newLab(t *testing.T, site string) *Lab {
	t.Helper()
	l, err := New(Config{Site: site})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// reply is one decoded answer.
type reply struct {
	Status int
	Reason string
	Data   any
	Total  any
	Errors map[string]string
	Raw    string
}

// ask sends a call in process, as a token by its name or as itself; form holds names and values by turns.
func ask(t *testing.T, l *Lab, token, method, path string, form ...string) reply {
	t.Helper()
	h := http.Header{}
	if name, known := l.Tokens()[token]; known {
		token = name
	}
	if token != "" {
		h.Set("Authorization", token)
	}
	vals := url.Values{}
	for i := 0; i+1 < len(form); i += 2 {
		vals.Add(form[i], form[i+1])
	}
	target, body := "/api2/json"+path, []byte(nil)
	if len(vals) > 0 {
		if method == "GET" || method == "DELETE" {
			target += "?" + vals.Encode()
		} else {
			body = []byte(vals.Encode())
			h.Set("Content-Type", "application/x-www-form-urlencoded")
		}
	}
	st, reason, raw := l.Do(context.Background(), method, target, h, body)
	r := reply{Status: st, Reason: reason, Raw: string(raw)}
	var m struct {
		Data, Total any
		Errors      map[string]string
	}
	if json.Unmarshal(raw, &m) == nil {
		r.Data, r.Total, r.Errors = m.Data, m.Total, m.Errors
	}
	return r
}

func TestServeOverTLS(t *testing.T) {
	l := newLab(t, "small")
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.Serve(ctx, ln) }()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(l.CAPEM()) {
		t.Fatal("no authority")
	}
	cl := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	get := func(path, auth string) (*http.Response, string) {
		req, err := http.NewRequest("GET", "https://"+ln.Addr().String()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", auth)
		res, err := cl.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res, string(b)
	}
	for i := 0; i < 3; i++ { // on one connection
		res, body := get("/api2/json/nodes/pve1/lxc/999/config", l.Tokens()["admin"])
		if want := "500 Configuration file 'nodes/pve1/lxc/999.conf' does not exist"; res.Status != want {
			t.Errorf("status %q, want %q", res.Status, want)
		}
		if !strings.Contains(body, `.conf' does not exist\n"`) {
			t.Errorf("body %s", body)
		}
		if res.Header.Get("Server") != "pve-api-daemon/3.0" {
			t.Errorf("server %q", res.Header.Get("Server"))
		}
	}
	if res, body := get("/api2/json/version", "PVEAPIToken=x@pve!y=z"); res.Status != "401 Authentication failed!" || body != "" {
		t.Errorf("wrong token: %s %q", res.Status, body)
	}
	res, err := cl.Get("http://" + ln.Addr().String() + "/api2/json/version")
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != 301 || !strings.HasPrefix(res.Header.Get("Location"), "https://") {
		t.Errorf("plain http: %s %s", res.Status, res.Header.Get("Location"))
	}
	cancel()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(5 * time.Second):
		t.Error("Serve does not end")
	}
}

func TestSmallSiteLife(t *testing.T) {
	l := newLab(t, "small")
	if r := ask(t, l, "auditor", "GET", "/cluster/resources", "type", "vm"); r.Status != 200 || len(r.Data.([]any)) != 14 {
		t.Fatalf("guests: %d %s %d", r.Status, r.Reason, len(r.Data.([]any)))
	}
	task := func(r reply) string {
		t.Helper()
		upid, _ := r.Data.(string)
		if r.Status != 200 || !strings.HasPrefix(upid, "UPID:") {
			t.Fatalf("no task: %d %s %s", r.Status, r.Reason, r.Raw)
		}
		st := ask(t, l, "operator", "GET", "/nodes/"+strings.Split(upid, ":")[1]+"/tasks/"+url.PathEscape(upid)+"/status")
		m, _ := st.Data.(map[string]any)
		exit, _ := m["exitstatus"].(string)
		return exit
	}
	if e := task(ask(t, l, "operator", "POST", "/nodes/pve1/qemu/103/status/start")); e != "OK" {
		t.Errorf("start: %s", e)
	}
	if e := task(ask(t, l, "operator", "POST", "/nodes/pve1/qemu/101/snapshot", "snapname", "s1")); e != "OK" {
		t.Errorf("snapshot: %s", e)
	}
	if e := task(ask(t, l, "operator", "POST", "/nodes/pve1/qemu/101/snapshot/s1/rollback")); e != "OK" {
		t.Errorf("rollback: %s", e)
	}
	if e := task(ask(t, l, "operator", "POST", "/nodes/pve1/vzdump", "vmid", "101", "storage", "pbs1")); e != "OK" {
		t.Errorf("backup: %s", e)
	}
	if e := task(ask(t, l, "operator", "POST", "/nodes/pve1/qemu/104/clone", "newid", "300", "name", "fresh", "full", "1")); e != "OK" {
		t.Errorf("clone: %s", e)
	}
	if e := task(ask(t, l, "operator", "DELETE", "/nodes/pve1/qemu/300")); e != "OK" {
		t.Errorf("delete: %s", e)
	}
	if r := ask(t, l, "limited", "POST", "/nodes/pve1/qemu/101/status/stop"); r.Reason != "Permission check failed (/vms/101, VM.PowerMgmt)" {
		t.Errorf("limited: %d %s", r.Status, r.Reason)
	}
	if err := l.SetNode("pve3", NodeOff); err != nil {
		t.Fatal(err)
	}
	if r := ask(t, l, "operator", "GET", "/nodes/pve3/qemu"); r.Status != 595 || r.Reason != "No route to host" {
		t.Errorf("offline node: %d %s", r.Status, r.Reason)
	}
}
