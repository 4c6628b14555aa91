package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"castellan/internal/bridge"
	"castellan/internal/frame"
	"castellan/internal/lab"
	"castellan/internal/seal"
)

// tunnel is what stands before a bridge that is a service: it ends TLS, lets through only who shows the token of an access
// service, and hands on without it.
type tunnel struct {
	*httptest.Server
	pin string

	mu      sync.Mutex
	bodies  []string    // of the newest asks that were let through
	header  http.Header // of the newest
	refused int
}

func newTunnel(t *testing.T, to, id, secret string) *tunnel {
	t.Helper()
	at, err := url.Parse("http://" + to)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(at)
	proxy.FlushInterval = -1
	x := &tunnel{}
	x.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("CF-Access-Client-Id") != id || r.Header.Get("CF-Access-Client-Secret") != secret {
			x.mu.Lock()
			x.refused++
			x.mu.Unlock()
			http.Redirect(w, r, "https://team.access.example/cdn-cgi/access/login", http.StatusFound)
			return
		}
		body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		r.Header.Del("CF-Access-Client-Id")
		r.Header.Del("CF-Access-Client-Secret")
		r.Header.Set("Cf-Access-Jwt-Assertion", "signed by the access service")
		x.mu.Lock()
		x.bodies, x.header = append(x.bodies, string(body)), r.Header.Clone()
		x.mu.Unlock()
		proxy.ServeHTTP(w, r)
	}))
	x.EnableHTTP2 = true
	x.StartTLS()
	t.Cleanup(x.Close)
	sum := sha256.Sum256(x.Certificate().Raw)
	x.pin = hex.EncodeToString(sum[:])
	return x
}

// asked finds the newest ask that holds this text, as it went over the wire.
func (x *tunnel) asked(part string) (string, http.Header) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for n := len(x.bodies) - 1; n >= 0; n-- {
		if strings.Contains(x.bodies[n], part) {
			return x.bodies[n], x.header.Clone()
		}
	}
	return "", nil
}

// service is a bridge that is a service, as a process of its own, for the node pve1 of a simulated site.
type service struct {
	dir, listen, secret string
	errs                *lockedBuffer
}

func newService(t *testing.T, l *lab.Lab, more string) *service {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir()) // the bridge follows no links
	if err != nil {
		t.Fatal(err)
	}
	for at := dir; at != "/" && at != "/tmp"; at = filepath.Dir(at) { // the account of the host's commands looks into it
		if err := os.Chmod(at, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &service{dir: dir, listen: free.Addr().String(), errs: &lockedBuffer{}}
	_ = free.Close() // the bridge takes it in a moment
	secret, kept := bridge.NewSecret()
	s.secret = secret
	cluster, err := clusterOf(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"pve", "out"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(dir, "out"), 0o777); err != nil {
		t.Fatal(err)
	}
	s.keep(t, kept)
	at := func(name string) string { return strconv.Quote(filepath.Join(dir, name)) }
	for name, text := range map[string]string{
		"pve/pve-root-ca.pem": string(l.CAPEM()), "pve/corosync.conf": "totem {\n  cluster_name: " + cluster + "\n}\n",
		"bridge.toml": "account = \"nobody\"\nnode = \"pve1\"\nstate = " + at("state") + "\nlog = " + at("log") + "\n[lanes]\nhost = [\"probe\", \"command\", \"script\"]\n[[rules.commands]]\nnodes = [\"pve1\"]\nargv = \"uname -sr\"\n" +
			"[paths]\npve = " + at("pve") + "\n[service]\nlisten = " + strconv.Quote(s.listen) + "\nsecret = " + at("secret.hash") + "\n[service.headers]\nCf-Access-Jwt-Assertion = \"*\"\n" + more,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := command(t, nil, "bridge", "--config", filepath.Join(dir, "bridge.toml"), "serve")
	cmd.Stderr = s.errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			t.Errorf("the bridge ended so: %v %s", err, s.errs)
		}
	})
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		c, err := net.Dial("tcp", s.listen)
		if err == nil {
			_ = c.Close()
			return s
		}
		if time.Now().After(end) {
			t.Fatalf("the bridge does not listen: %v %s", err, s.errs)
		}
	}
}

// keep puts another hash of a secret on the node.
func (s *service) keep(t *testing.T, line string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, "secret.hash"), []byte(line+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (s *service) out(name string) string {
	b, _ := os.ReadFile(filepath.Join(s.dir, "out", name)) // none yet is an empty one
	return string(b)
}

// TestBridgeOverHTTP is the way to a node by `castellan bridge serve`: a process of its own on loopback, behind a proxy that
// ends TLS and asks for the token of an access service. The proxy is in the hands of whoever runs it: it may cut, and may
// send again what it has seen.
func TestBridgeOverHTTP(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("a bridge runs as root")
	}
	t.Parallel()
	x := newSite(t, lab.Config{}, "")
	s := newService(t, x.lab, "[limits]\nrequests = 6\n")
	const accessID, accessSecret = "castellan.access.example", "an-access-secret-9c1d77b2"
	tun := newTunnel(t, s.listen, accessID, accessSecret)
	file := func(name, text string) string {
		t.Helper()
		path := filepath.Join(x.dir, name)
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
		if err := seal.Create(path, []byte(text+"\n")); err != nil {
			t.Fatal(err)
		}
		return path
	}
	_, otherLine := bridge.NewSecret()
	wrong, _ := bridge.NewSecret()
	id, access := file("access.id", accessID), file("access.secret", accessSecret)
	good := fmt.Sprintf("url = %q\nsecret_file = %q\naccess_id_file = %q\naccess_secret_file = %q\npins = [%q]\n", tun.URL, file("bridge.secret", s.secret), id, access, tun.pin)
	settings := strings.Replace(x.text(t), "[policy]\n", "[policy]\ncapabilities = [\"host_probe\", \"host_command\", \"host\", \"exec\"]\nstand_in = \"phrase\"\n", 1)
	use := func(way string) {
		x.write(t, settings+"\n[[lanes.commands]]\nnodes = [\"pve1\"]\nargv = \"uname -sr\"\n[lanes.scripts]\nnodes = [\"pve1\"]\n[[bridge]]\ntarget = \"lab\"\nnode = \"pve1\"\n"+way)
	}
	var told strings.Builder // all that castellan says
	call := func(t *testing.T, args ...string) (string, int) {
		t.Helper()
		out, errs, code := castellan(t, x.env(), "", append([]string{"call"}, args...)...)
		told.WriteString(out + errs)
		return out + errs, code
	}
	t.Run("the node by its place in the line", func(t *testing.T) {
		use(good)
		if out, code := call(t, "probe_node", "pve1", "--probe", "load"); code != 0 || !strings.Contains(out, "up") {
			t.Errorf("%d %s", code, out)
		}
		if out, code := call(t, "run_on_node", "pve1", "--command", "uname", "--command=-sr", "--plan-only"); code != 8 || !strings.Contains(out, "[uname, -sr]") || !strings.Contains(out, "pve1") {
			t.Errorf("%d %s", code, out)
		}
		for _, args := range [][]string{{"probe_node", "pve1", "--node", "pve2", "--probe", "load"}, {"probe_node", "pve1", "pve2", "--probe", "load"}, {"probe_node", "pve1", "--args", `{"node":"pve2","probe":"load"}`}, {"probe_node", "--probe", "load"}, {"run_on_node", "-x", "--script", "id"}} {
			if out, code := call(t, args...); code == 0 {
				t.Errorf("%q: %s", args, out)
			}
		}
		if strings.Contains(s.out("../log"), "uname") {
			t.Error("a plan alone has run it")
		}
	})
	t.Run("turned away", func(t *testing.T) {
		for name, c := range map[string]struct{ way, want string }{
			"another certificate": {strings.Replace(good, tun.pin, strings.Repeat("ab", 32), 1), "not among pins"},
			"no pin at all":       {good[:strings.Index(good, "pins")], "certificate"},
			"another secret":      {strings.Replace(good, "bridge.secret", "wrong.secret", 1), "service.secret"},
			"no access token":     {good[:strings.Index(good, "access_id")] + good[strings.Index(good, "pins"):], "access_id_file"},
			"past the tunnel":     {fmt.Sprintf("url = %q\nsecret_file = %q\n", "http://"+s.listen, filepath.Join(x.dir, "bridge.secret")), "service.headers"},
		} {
			file("wrong.secret", wrong)
			use(c.way)
			out, code := call(t, "probe_node", "pve1", "--probe", "load")
			if code == 0 || !strings.Contains(out, c.want) || !strings.Contains(out, "Nothing was started") {
				t.Errorf("%s: %d %s", name, code, out)
			}
		}
		if tun.refused == 0 {
			t.Error("the access service was not asked")
		}
	})
	use(good)
	raw := startRaw(t, append(x.env(), beatEvery+"=200ms"), "serve", "--toolset", "everything")
	raw.initialize("2025-06-18")
	script := func(t *testing.T, text string) *planSeen {
		t.Helper()
		raw.t = t
		a := raw.call("run_on_node", map[string]any{"node": "pve1", "script": text})
		told.WriteString(said(a))
		if a.Structured.Plan == nil {
			t.Fatalf("%s", said(a))
		}
		return a.Structured.Plan
	}
	confirm := func(t *testing.T, p *planSeen) answer {
		t.Helper()
		raw.t = t
		a := raw.call("apply_plan", apply(p))
		told.WriteString(said(a))
		return a
	}
	ran := filepath.Join(s.dir, "out")
	t.Run("cut in the middle of a run", func(t *testing.T) {
		p := script(t, "echo begun >>"+ran+"/cut\nsleep 3\necho the-end\n")
		go func() {
			for end := time.Now().Add(patience); s.out("cut") == "" && time.Now().Before(end); {
				time.Sleep(10 * time.Millisecond)
			}
			tun.CloseClientConnections()
		}()
		a := confirm(t, p)
		if text := said(a); a.IsError || !strings.Contains(text, "the-end") || !strings.Contains(text, "broke") || s.out("cut") != "begun\n" {
			t.Errorf("%q %s", s.out("cut"), text)
		}
	})
	t.Run("sent again by whoever stands in between", func(t *testing.T) {
		body, header := tun.asked("/cut")
		if body == "" {
			t.Fatal("the ask was not seen")
		}
		for _, change := range []func(string) string{
			func(b string) string { return b },
			func(b string) string { return strings.Replace(b, "begun", "again", 1) },
			func(b string) string { return b + b },
		} {
			status, tells := s.post(t, header, change(body))
			if status != http.StatusOK || len(tells) == 0 || tells[0].Ending != frame.Unknown || !strings.Contains(tells[0].Reason, "begun before") {
				t.Errorf("%d %+v", status, tells)
			}
		}
		if s.out("cut") != "begun\n" {
			t.Errorf("it ran again: %q", s.out("cut"))
		}
	})
	t.Run("more at once than it takes", func(t *testing.T) {
		header := http.Header{"Cf-Access-Jwt-Assertion": {"x"}}
		var hold []func()
		for range 6 { // each has the secret, and says nothing
			r, w := io.Pipe()
			resp, err := s.send(t.Context(), header, r)
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Fatal(resp, err)
			}
			hold = append(hold, func() {
				_ = w.Close()
				_, _ = io.Copy(io.Discard, resp.Body) // until the request has ended
				_ = resp.Body.Close()
			})
		}
		if status, _ := s.post(t, header, `{"v":1,"id":"full","verb":"look"}`+"\n"); status != http.StatusTooManyRequests {
			t.Errorf("one more: %d", status)
		}
		p := script(t, "echo x >>"+ran+"/full\n")
		a := confirm(t, p)
		if text := said(a); !strings.Contains(text, "6 requests are under way") || !strings.Contains(text, "limits.requests") || s.out("full") != "" {
			t.Errorf("%s", text)
		}
		for _, leave := range hold {
			leave()
		}
		a = confirm(t, script(t, "echo y >>"+ran+"/full\n"))
		if a.IsError || s.out("full") != "y\n" {
			t.Errorf("afterwards: %q %s", s.out("full"), said(a))
		}
	})
	t.Run("another secret while castellan runs", func(t *testing.T) {
		s.keep(t, otherLine)
		a := confirm(t, script(t, "echo x >>"+ran+"/old\n"))
		if s.out("old") != "" || !strings.Contains(said(a), "service.secret") {
			t.Errorf("the old one is still good: %s", said(a))
		}
		secret, line := bridge.NewSecret()
		s.keep(t, line)
		s.secret = secret
		file("bridge.secret", secret)
		for end := time.Now().Add(patience); ; time.Sleep(time.Second) { // castellan waits a moment after a failure
			a = confirm(t, script(t, "echo x >>"+ran+"/new\n"))
			if !a.IsError && s.out("new") != "" {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("the new one is not: %s", said(a))
			}
		}
	})
	raw.end()
	// Nothing that is a secret is kept or said, by either end.
	log, errs := s.out("../log"), s.errs.String()+raw.errs.String()
	all := []string{told.String(), log, errs, strings.Join(raw.seen, "\n")}
	err := filepath.WalkDir(filepath.Join(x.dir, "state"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			var b []byte
			b, err = os.ReadFile(path)
			all = append(all, string(b))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	record, _, code := castellan(t, x.env(), "", "audit", "search", "--payloads", "--limit", "500", "--json")
	if code != 0 || !strings.Contains(record, "run_on_node") {
		t.Errorf("the ledger: %d %.300s", code, record)
	}
	for _, text := range append(all, record) {
		for _, secret := range []string{s.secret, accessSecret, wrong} {
			if strings.Contains(text, secret) {
				t.Errorf("a secret is in %.200q", text)
			}
		}
	}
	if !strings.Contains(log, "a request with a wrong secret") {
		t.Errorf("who was turned away is not in the record: %s", log)
	}
}

// send posts to the bridge itself, past the proxy.
func (s *service) send(ctx context.Context, header http.Header, body io.Reader) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.listen+bridge.AsksPath, body)
	if err != nil {
		return nil, err
	}
	r.Header = header.Clone()
	r.Header.Set(bridge.SecretHeader, s.secret)
	return http.DefaultClient.Do(r)
}

func (s *service) post(t *testing.T, header http.Header, body string) (int, []frame.Tell) {
	t.Helper()
	resp, err := s.send(t.Context(), header, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var tells []frame.Tell
	for d := json.NewDecoder(resp.Body); resp.StatusCode == http.StatusOK; {
		var tell frame.Tell
		if d.Decode(&tell) != nil {
			break
		}
		tells = append(tells, tell)
	}
	return resp.StatusCode, tells
}
