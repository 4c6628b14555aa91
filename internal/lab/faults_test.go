package lab

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// served runs a lab on loopback and gives a client for it and the base address.
func served(t *testing.T, l *Lab) (*http.Client, string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = l.Serve(ctx, ln) }()
	t.Cleanup(func() { cancel(); <-done })
	tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true} // the pin is tested elsewhere
	return &http.Client{Transport: tr, Timeout: 10 * time.Second}, "https://" + ln.Addr().String() + "/api2/json"
}

func TestScriptedFaults(t *testing.T) {
	l := newLab(t, "small")
	cl, base := served(t, l)
	call := func(method, path string) (int, string, error) {
		req, err := http.NewRequest(method, base+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", l.Tokens()["admin"])
		res, err := cl.Do(req)
		if err != nil {
			return 0, "", err
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		return res.StatusCode, string(b), err
	}
	running := func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.s.guests[103].running
	}

	l.SetFaults([]Fault{{Kind: "before the effect", Method: "POST", Path: "/nodes/*/qemu/*/status/start", Count: 1}})
	if _, _, err := call("POST", "/nodes/pve1/qemu/103/status/start"); err == nil || running() {
		t.Errorf("cut before: err %v, running %v", err, running())
	}
	if st, _, err := call("POST", "/nodes/pve1/qemu/103/status/start"); err != nil || st != 200 || !running() {
		t.Errorf("second call after a fault with count 1: %d %v, running %v", st, err, running())
	}
	l.SetFaults([]Fault{{Kind: "after the effect", Method: "POST", Path: "/nodes/**"}})
	if _, _, err := call("POST", "/nodes/pve1/qemu/103/status/stop"); err == nil || running() {
		t.Errorf("cut after: err %v, running %v", err, running())
	}
	l.SetFaults([]Fault{{Kind: "cut", Path: "/cluster/resources"}})
	if _, body, err := call("GET", "/cluster/resources"); err == nil || !strings.HasPrefix(body, `{"data"`) {
		t.Errorf("half an answer: err %v, body %.20s", err, body)
	}
	l.SetFaults([]Fault{{Kind: "html", Skip: 1}})
	if st, _, err := call("GET", "/version"); err != nil || st != 200 {
		t.Errorf("skipped: %d %v", st, err)
	}
	if st, body, err := call("GET", "/version"); err != nil || st != 502 || !strings.Contains(body, "<html>") {
		t.Errorf("html: %d %v %.40s", st, err, body)
	}
	l.SetFaults([]Fault{{Kind: "status", Status: 503, Reason: "Service Unavailable"}})
	if st, _, err := call("GET", "/version"); err != nil || st != 503 {
		t.Errorf("status: %d %v", st, err)
	}
	l.SetFaults([]Fault{{Kind: "slow", Delay: Duration(200 * time.Millisecond)}})
	start := time.Now()
	if st, _, err := call("GET", "/version"); err != nil || st != 200 || time.Since(start) < 200*time.Millisecond {
		t.Errorf("slow: %d %v after %v", st, err, time.Since(start))
	}
}

func TestFaultsFromFile(t *testing.T) {
	dir := t.TempDir()
	write := func(text string) string {
		f := filepath.Join(dir, "f.json")
		if err := os.WriteFile(f, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return f
	}
	got, err := FaultsFromFile(write(`[{"kind":"slow","method":"GET","path":"/nodes/**","delay":"1.5s","count":2}]`))
	if err != nil || len(got) != 1 || time.Duration(got[0].Delay) != 1500*time.Millisecond || got[0].Count != 2 {
		t.Errorf("read %+v, %v", got, err)
	}
	for _, bad := range []string{`[{"kind":"nonsense"}]`, `[{"kind":"slow","colour":"red"}]`, `{`} {
		if _, err := FaultsFromFile(write(bad)); err == nil {
			t.Errorf("%s: no error", bad)
		}
	}
}

func TestNodeStates(t *testing.T) {
	l := newLab(t, "small")
	set := func(name string, st NodeState) {
		t.Helper()
		if err := l.SetNode(name, st); err != nil {
			t.Fatal(err)
		}
	}
	set("pve1", NodeBackendDown)
	for path, want := range map[string]int{"/version": 200, "/nodes/pve1/qemu": 595, "/nodes/pve1/qemu/101/config": 200, "/cluster/resources": 200, "/nodes/pve1/tasks": 200, "/cluster/status": 595} {
		if r := ask(t, l, "admin", "GET", path); r.Status != want {
			t.Errorf("backend down: %s answers %d %s, want %d", path, r.Status, r.Reason, want)
		}
	}
	set("pve1", NodeBackendHangs)
	if r := ask(t, l, "admin", "PUT", "/nodes/pve1/qemu/101/config", "description", "late"); r.Status != 596 {
		t.Errorf("backend hangs: %d %s", r.Status, r.Reason)
	}
	set("pve1", NodeOn)
	r := ask(t, l, "admin", "GET", "/nodes/pve1/qemu/101/config")
	if m, _ := r.Data.(map[string]any); m["description"] != "late" {
		t.Errorf("the call that hung was not carried out later: %v", m["description"])
	}
	set("pve3", NodeOff)
	r = ask(t, l, "admin", "GET", "/cluster/resources")
	for _, x := range r.Data.([]any) {
		m := x.(map[string]any)
		if m["node"] != "pve3" {
			continue
		}
		switch m["type"] {
		case "node":
			if m["status"] != "offline" || m["maxmem"] != nil {
				t.Errorf("offline node shows %v", m)
			}
		case "qemu", "lxc":
			if m["status"] != "unknown" {
				t.Errorf("guest of an offline node shows %v", m)
			}
		}
	}
	l.SetQuorum(false)
	if r := ask(t, l, "admin", "POST", "/pools", "poolid", "x1"); r.Reason != "create pool failed: cfs-lock 'file-user_cfg' error: no quorum!" {
		t.Errorf("no quorum: %d %s", r.Status, r.Reason)
	}
	if r := ask(t, l, "admin", "POST", "/nodes/pve1/qemu/101/status/stop"); r.Status != 200 {
		t.Errorf("stop without quorum: %d %s", r.Status, r.Reason)
	}
}

func TestTicketLogin(t *testing.T) {
	l := newLab(t, "small")
	if r := ask(t, l, "", "POST", "/access/ticket", "username", "joe@pve", "password", "wrong"); r.Status != 401 || r.Reason != "authentication failure" {
		t.Errorf("wrong password: %d %s", r.Status, r.Reason)
	}
	login := func(form ...string) map[string]any {
		t.Helper()
		r := ask(t, l, "", "POST", "/access/ticket", form...)
		m, _ := r.Data.(map[string]any)
		if r.Status != 200 || m == nil {
			t.Fatalf("login: %d %s", r.Status, r.Reason)
		}
		return m
	}
	m := login("username", "joe", "realm", "pve", "password", "labpass123")
	send := func(method, path string, h http.Header) (int, string) {
		st, reason, _ := l.Do(context.Background(), method, "/api2/json"+path, h, nil)
		return st, reason
	}
	cookie := http.Header{"Cookie": {"PVEAuthCookie=" + strings.NewReplacer(":", "%3A", "+", "%2B", "=", "%3D").Replace(m["ticket"].(string))}}
	if st, reason := send("GET", "/version", cookie); st != 200 {
		t.Errorf("ticket: %d %s", st, reason)
	}
	if st, reason := send("PUT", "/access/password?userid=joe@pve&password=labpass456&confirmation-password=labpass123", cookie); st != 401 || reason != badCSRF {
		t.Errorf("write without token: %d %s", st, reason)
	}
	cookie.Set("CSRFPreventionToken", m["CSRFPreventionToken"].(string))
	if st, reason := send("PUT", "/access/password?userid=joe@pve&password=labpass456&confirmation-password=labpass123", cookie); st != 200 {
		t.Errorf("write: %d %s", st, reason)
	}
	l.Advance(3 * time.Hour)
	if st, reason := send("GET", "/version", cookie); st != 401 || reason != authFailed {
		t.Errorf("old ticket: %d %s", st, reason)
	}
	// The second factor: a challenge first, then a one-time or recovery code.
	half := login("username", "ann@pve", "password", "labpass123")
	challenge, _ := half["ticket"].(string)
	if half["NeedTFA"] != 1.0 || !strings.HasPrefix(challenge, "PVE:!tfa!") {
		t.Fatalf("no challenge: %v", half)
	}
	if r := ask(t, l, "", "POST", "/access/ticket", "username", "ann@pve", "tfa-challenge", challenge, "password", "totp:000000"); r.Status != 401 {
		t.Errorf("wrong code: %d %s", r.Status, r.Reason)
	}
	if got := login("username", "ann@pve", "tfa-challenge", challenge, "password", "recovery:1111-2222-3333-4444"); got["NeedTFA"] != nil {
		t.Errorf("recovery code: %v", got)
	}
	if r := ask(t, l, "", "POST", "/access/ticket", "username", "ann@pve", "tfa-challenge", challenge, "password", "recovery:1111-2222-3333-4444"); r.Status != 401 {
		t.Errorf("recovery code used twice: %d %s", r.Status, r.Reason)
	}
	code := totpCode(l.s.users["ann@pve"].totp, l.s.now.Unix()/30)
	login("username", "ann@pve", "tfa-challenge", challenge, "password", "totp:"+code)
}

// TestManyClients is for the race detector: readers, writers, faults and the clock at once.
func TestManyClients(t *testing.T) {
	l := newLab(t, "small")
	cl, base := served(t, l)
	calls := []struct{ method, path string }{
		{"GET", "/cluster/resources"},
		{"GET", "/nodes/pve1/qemu/103/config"},
		{"POST", "/nodes/pve1/qemu/103/status/start"},
		{"GET", "/cluster/tasks"},
		{"POST", "/nodes/pve1/qemu/103/status/stop"},
		{"GET", "/nodes/pve1/status"},
	}
	done := make(chan error, len(calls))
	for _, c := range calls {
		go func() {
			for range 10 {
				req, err := http.NewRequest(c.method, base+c.path, nil)
				if err != nil {
					done <- err
					return
				}
				req.Header.Set("Authorization", l.Tokens()["admin"])
				res, err := cl.Do(req)
				if err != nil {
					done <- err
					return
				}
				_, err = io.Copy(io.Discard, res.Body)
				res.Body.Close()
				if err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range 10 {
		l.Advance(time.Second)
		l.SetFaults(nil)
		l.SetStorageDead("nas", false)
		_ = l.Requests()
	}
	for range calls {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if n := len(l.Requests()); n != 10*len(calls) {
		t.Errorf("%d requests noted, want %d", n, 10*len(calls))
	}
}
