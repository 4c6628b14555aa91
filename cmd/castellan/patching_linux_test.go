package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"castellan/internal/gate"
	"castellan/internal/guestlab"
	"castellan/internal/lab"
)

// aloneOnNode runs the calling test once more in namespaces of its own, beside the others, and says whether this is that run.
func aloneOnNode(t *testing.T) bool {
	t.Helper()
	if os.Getenv(asNode) != "" {
		return true
	}
	if testing.Short() {
		t.Skip("it boots guests")
	}
	t.Parallel() // most of it waits
	ctx, stop := context.WithTimeout(t.Context(), 14*time.Minute)
	defer stop()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=13m")
	cmd.Env = append(os.Environ(), asNode+"=1")
	out, err := cmd.CombinedOutput()
	switch {
	case err != nil:
		t.Fatalf("%v\n%s", err, out)
	case strings.Contains(string(out), "--- SKIP: "+t.Name()+" "):
		t.Skipf("%s", out)
	case !strings.Contains(string(out), "--- PASS: "+t.Name()+" "):
		t.Fatalf("it was not run:\n%s", out)
	}
	t.Logf("%s", out)
	return false
}

// TestPatching is the whole of it about updates: the real program over MCP, an API whose container 201 is a real Debian with real
// sshd, sudo and apt and with updates pending, and the real bridge, by which castellan is let into it.
func TestPatching(t *testing.T) {
	if !aloneOnNode(t) {
		return
	}
	c := newPatchStory(t)
	if !t.Run("enrol", c.enrolled) {
		return
	}
	t.Run("check", c.checked)
	t.Run("install", c.installed)
	t.Run("service", c.brokenService)
	t.Run("rollback", c.rolledBack)
	t.Run("killed", c.killedInTheMiddle)
	c.raw.t = t
	c.raw.end()
	if out, errs, code := castellan(t, c.site.env(), "", "audit", "verify", "--json"); code != 0 || !strings.Contains(out, `"ok": true`) {
		t.Errorf("the ledger does not verify: %d %s %s", code, out, errs)
	}
}

type patchStory struct{ *nodeStory }

func newPatchStory(t *testing.T) *patchStory {
	t.Helper()
	l := guestlab.Open(t)
	c := newPatchHouse(t, l, l.Start(t, guestlab.Guest{ID: 201, Unprivileged: true, Packages: []string{"demo-lib", "demo-app", "demo-held", "docker-demo", "demo-svc", "demo-slow"}}))
	onNodeOf(t, c.ct, c.ct.Volume, "local-lvm:vm-201-disk-0")
	c.behind(t, "PUT", "/config", url.Values{"net0": {"name=eth0,bridge=vmbr0,hwaddr=" + c.ct.MAC + ",ip=" + c.ct.Address + "/24,type=veth"}})
	c.ct.Run(t, "apt-mark", "hold", "demo-held")
	c.start(t)
	return c
}

// newPatchHouse is a castellan whose node has these containers, by the real bridge. It is not started.
func newPatchHouse(t *testing.T, l *guestlab.Lab, guests ...*guestlab.Container) *patchStory {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	c := &patchStory{&nodeStory{t: t, ct: guests[0]}}
	var ids []string
	for _, g := range guests {
		ids = append(ids, strconv.Quote(strconv.Itoa(g.ID)))
	}
	self, err := os.Executable()
	must(err)
	must(os.MkdirAll(filepath.Dir(nodeSettings), 0o755))
	must(os.WriteFile(nodeSettings, []byte(fmt.Sprintf("guests = [%s]\nwords = [\"enrol\"]\naccount = \"nobody\"\nstate = \"/var/lib/castellan-story\"\nlog = %q\n", strings.Join(ids, ", "), nodeLog)), 0o644))
	host := l.Host(t, guestlab.HostConfig{AuthorizedKeys: map[string][]string{"root": {guestlab.AuthorizedKey(fmt.Sprintf(`restrict,command="/usr/bin/env %s=1 %s bridge --config %s run"`, asProgram, self, nodeSettings), l.Signer.PublicKey())}}})
	c.site = newSite(t, lab.Config{}, fmt.Sprintf(`capabilities = ["updates", "upgrade", "enrol", "snapshot", "rollback", "power"]
stand_in = "phrase"

[patching]
settle = "8s"

[[bridge]]
target = "lab"
node = "pve1"
address = %q
user = "root"
key_file = %q
host_key = [%q]
`, host.Address, l.KeyFile, ssh.FingerprintSHA256(host.HostKey)))
	must(os.WriteFile(guestlab.PVE+"/pve-root-ca.pem", c.site.lab.CAPEM(), 0o644))
	conf, err := os.ReadFile(guestlab.PVE + "/corosync.conf")
	must(err)
	must(os.WriteFile(guestlab.PVE+"/corosync.conf", []byte(strings.Replace(string(conf), "cluster_name: guestlab", "cluster_name: small", 1)), 0o644))
	return c
}

// behind is somebody else at the API, about the container of the story.
func (c *patchStory) behind(t *testing.T, method, path string, form url.Values) json.RawMessage {
	t.Helper()
	return c.atAPI(t, method, fmt.Sprintf("/nodes/pve1/lxc/%d%s", c.ct.ID, path), form)
}

// atAPI is somebody else at the API.
func (c *patchStory) atAPI(t *testing.T, method, path string, form url.Values) json.RawMessage {
	t.Helper()
	status, reason, answer := c.site.lab.Do(t.Context(), method, "/api2/json"+path,
		http.Header{"Authorization": {c.site.lab.Tokens()["admin"]}, "Content-Type": {"application/x-www-form-urlencoded"}}, []byte(form.Encode()))
	if status != http.StatusOK {
		t.Fatalf("%s %s: %d %s %s", method, path, status, reason, answer)
	}
	c.site.lab.Drain()
	return answer
}

// version is what the guest itself has installed.
func (c *patchStory) version(t *testing.T, name string) string {
	t.Helper()
	return c.ct.Run(t, "dpkg-query", "-W", "-f", "${Version} ${db:Status-Status}", name)
}

// answered reads what a query answered.
func answered[T any](t *testing.T, a answer) (out T) {
	t.Helper()
	if a.IsError {
		t.Fatalf("%s", said(a))
	}
	if err := json.Unmarshal(a.Structured.Answer, &out); err != nil {
		t.Fatalf("%v: %s", err, said(a))
	}
	return out
}

// ended waits until a plan has ended and says how.
func (c *patchStory) ended(t *testing.T, plan string) string {
	t.Helper()
	c.raw.t = t
	for end := time.Now().Add(4 * time.Minute); ; {
		view := answered[planSeen](t, c.raw.call("show_plan", map[string]any{"plan": plan, "wait": 10}))
		if gate.PlanState(view.State).Ended() {
			return view.State
		}
		if time.Now().After(end) {
			t.Fatalf("plan %s is %s", plan, view.State)
		}
	}
}

// planned calls an operation, which must have made a plan that waits.
func (c *patchStory) planned(t *testing.T, tool string, args map[string]any) *planSeen {
	t.Helper()
	c.raw.t = t
	a := c.raw.call(tool, args)
	if a.IsError || a.Structured.Plan == nil || a.Structured.Plan.Token == "" {
		t.Fatalf("%s: %s", tool, said(a))
	}
	return a.Structured.Plan
}

// applied plans, approves and waits for the end.
func (c *patchStory) applied(t *testing.T, tool string, args map[string]any) (plan, state string) {
	t.Helper()
	p := c.planned(t, tool, args)
	if a := c.raw.call("apply_plan", apply(p)); a.Structured.Error != nil {
		t.Fatalf("%s: %s", tool, said(a))
	}
	return p.ID, c.ended(t, p.ID)
}

type outcomeSeen struct {
	Plan    string   `json:"plan"`
	State   string   `json:"state"`
	Verdict string   `json:"verdict"`
	Why     []string `json:"why"`
	Changed []string `json:"changed"`
	Next    string   `json:"next"`
	Log     string   `json:"log"`
}

func (c *patchStory) outcome(t *testing.T, plan string) outcomeSeen {
	t.Helper()
	return answered[outcomeSeen](t, c.raw.call("update_result", map[string]any{"plan": plan, "wait_seconds": 30, "log": true}))
}

// snapshots are castellan's own at the API.
func (c *patchStory) snapshots(t *testing.T) (out []string) {
	t.Helper()
	var rows []struct {
		Name string `json:"name"`
	}
	var whole struct {
		Data json.RawMessage `json:"data"`
	}
	raw := c.behind(t, "GET", "/snapshot", nil)
	if json.Unmarshal(raw, &whole) == nil && len(whole.Data) > 0 {
		raw = whole.Data
	}
	if err := json.Unmarshal(raw, &rows); err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	for _, r := range rows {
		if strings.HasPrefix(r.Name, gate.UndoPointPrefix) {
			out = append(out, r.Name)
		}
	}
	return out
}

func (c *patchStory) enrolled(t *testing.T) {
	c.raw.t = t
	if a := c.raw.call("check_updates", map[string]any{"guests": []string{nodeID}}); a.IsError || !strings.Contains(said(a), "castellan enrol 201") {
		t.Errorf("before: %s", said(a))
	}
	if _, state := c.applied(t, "enrol_guest", map[string]any{"guest": nodeID, "automatic": "off", "from": "10.99.0.1"}); state != "done" {
		t.Fatalf("enrol: %s", state)
	}
}

func (c *patchStory) checked(t *testing.T) {
	c.raw.t = t
	a := c.raw.call("check_updates", map[string]any{"guest": nodeID})
	seen := answered[struct {
		Counts   map[string]int `json:"counts"`
		Packages []struct {
			Package string `json:"package"`
			In      string `json:"installs_in"`
			Why     string `json:"why_not"`
		} `json:"packages"`
	}](t, a)
	if seen.Counts["security"] != 1 {
		t.Errorf("%s", said(a))
	}
	got := map[string]string{}
	for _, p := range seen.Packages {
		got[p.Package] = p.In + p.Why
	}
	for name, want := range map[string]string{"demo-lib": "security, all", "demo-app": "all", "demo-held": "held", "docker-demo": "from a third-party archive"} {
		if got[name] != want {
			t.Errorf("%s: %q, want %q", name, got[name], want)
		}
	}
	a = c.raw.call("check_services", map[string]any{"guest": nodeID})
	if a.IsError || !regexp.MustCompile(`tcp [^"]* port 22\b[^"]*, reached`).MatchString(said(a)) {
		t.Errorf("%s", said(a))
	}
}

func (c *patchStory) installed(t *testing.T) {
	manual := c.ct.Run(t, "apt-mark", "showmanual")
	plan, state := c.applied(t, "apply_updates", map[string]any{"guest": nodeID, "mode": "all", "packages": []string{"demo-lib", "demo-app"}})
	o := c.outcome(t, plan)
	if state != "done" || o.Verdict != "well" || o.Plan != plan || len(o.Changed) != 2 || o.Log == "" {
		t.Errorf("%s: %+v", state, o)
	}
	for name, want := range map[string]string{"demo-lib": "1.1 installed", "demo-app": "1.1 installed", "demo-held": "1.0 installed", "docker-demo": "1.0 installed", "demo-svc": "1.0 installed"} {
		if got := c.version(t, name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	if now := c.ct.Run(t, "apt-mark", "showmanual"); now != manual {
		t.Errorf("manual marks: %q, before %q", now, manual)
	}
	if n := len(c.snapshots(t)); n != 1 {
		t.Errorf("%d snapshots", n)
	}
	if a := c.raw.call("apply_updates", map[string]any{"guest": nodeID, "mode": "all", "packages": []string{"demo-lib"}}); !a.IsError || !strings.Contains(said(a), "no update of") {
		t.Errorf("again: %s", said(a))
	}
	if a := c.raw.call("apply_updates", map[string]any{"guest": nodeID, "mode": "all", "packages": []string{"demo-held"}}); !a.IsError || !strings.Contains(said(a), "held") {
		t.Errorf("held: %s", said(a))
	}
}

// brokenService: the check fails, the way back is offered and taken.
func (c *patchStory) brokenService(t *testing.T) {
	c.ct.Run(t, "systemctl", "is-active", "demo-svc")
	plan, state := c.applied(t, "apply_updates", map[string]any{"guest": nodeID, "packages": []string{"demo-svc"}})
	o := c.outcome(t, plan)
	point := c.snapshots(t)[len(c.snapshots(t))-1]
	if state != "failed" || o.Verdict != "worse" || !strings.Contains(strings.Join(o.Why, " "), "demo-svc") || !strings.Contains(o.Next, "rollback_guest") || !strings.Contains(o.Next, point) {
		t.Errorf("%s: %+v; the snapshots are %v", state, o, c.snapshots(t))
	}
	if a := c.raw.call("check_services", map[string]any{"guest": nodeID}); a.IsError || !strings.Contains(said(a), "demo-svc") {
		t.Errorf("%s", said(a))
	}
	p := c.planned(t, "rollback_guest", map[string]any{"guest": nodeID})
	if a := c.raw.call("show_plan", map[string]any{"plan": p.ID}); !strings.Contains(said(a), "EVERYTHING written") || !strings.Contains(said(a), point) {
		t.Errorf("%s", said(a))
	}
	if a := c.raw.call("apply_plan", apply(p)); a.Structured.Error != nil || c.ended(t, p.ID) != "done" {
		t.Errorf("%s", said(a))
	}
}

// rolledBack: the same, with the way back approved beforehand. The simulated storage keeps no disk: what the rollback would have
// brought back is brought back here.
func (c *patchStory) rolledBack(t *testing.T) {
	c.ct.Run(t, "sh", "-c", "dpkg --install --force-downgrade --force-unsafe-io /srv/guestlab/debian/pool/base/demo-svc_1.0_all.deb && systemctl reset-failed demo-svc; systemctl restart demo-svc && systemctl is-active demo-svc")
	plan, state := c.applied(t, "apply_updates", map[string]any{"guest": nodeID, "packages": []string{"demo-svc"}, "rollback_if_worse": true})
	own := c.snapshots(t)
	o := c.outcome(t, plan)
	if state != "failed" || o.Verdict != "worse" || !strings.Contains(o.Next, "was put back to snapshot") {
		t.Errorf("%s: %+v", state, o)
	}
	var rows []struct {
		Name   string `json:"name"`
		Parent string `json:"parent"`
	}
	var whole struct {
		Data json.RawMessage `json:"data"`
	}
	raw := c.behind(t, "GET", "/snapshot", nil)
	if json.Unmarshal(raw, &whole) == nil && len(whole.Data) > 0 {
		raw = whole.Data
	}
	if err := json.Unmarshal(raw, &rows); err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if r.Name == "current" && !slices.Contains(own, r.Parent) {
			t.Errorf("the guest builds on %q, the snapshots are %v", r.Parent, own)
		}
	}
	c.ct.Run(t, "sh", "-c", "dpkg --install --force-downgrade --force-unsafe-io /srv/guestlab/debian/pool/base/demo-svc_1.0_all.deb && systemctl reset-failed demo-svc; systemctl restart demo-svc")
}

// killedInTheMiddle cuts the connection and ends castellan while packages are installed. The next one finds how it went, and
// installs nothing twice.
func (c *patchStory) killedInTheMiddle(t *testing.T) {
	c.ct.Run(t, "sh", "-c", "echo 8 >/etc/demo-slow; rm -f /run/demo-slow.done")
	p := c.planned(t, "apply_updates", map[string]any{"guest": nodeID, "packages": []string{"demo-slow"}})
	args, err := json.Marshal(apply(p))
	if err != nil {
		t.Fatal(err)
	}
	c.raw.send(`{"jsonrpc":"2.0","id":9999,"method":"tools/call","params":{"name":"apply_plan","arguments":` + string(args) + `}}`)
	for end := time.Now().Add(2 * patience); c.ct.Exec(t, "pgrep", "-f", "demo-slow.postinst").Code != 0; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the installation did not start")
		}
	}
	c.ct.Cut(t)
	if err := c.raw.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.raw.cmd.Wait() // it was killed
	for end := time.Now().Add(2 * patience); c.ct.Exec(t, "test", "-e", "/run/demo-slow.done").Code != 0; time.Sleep(200 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the installation did not go on without a connection")
		}
	}
	c.ct.Join(t)
	c.start(t)
	state := c.ended(t, p.ID)
	o := c.outcome(t, p.ID)
	if state != "done" || o.Verdict != "well" || o.Plan != p.ID {
		t.Errorf("%s: %+v", state, o)
	}
	if got := c.version(t, "demo-slow"); got != "1.1 installed" {
		t.Errorf("demo-slow is %s", got)
	}
	if n := strings.Count(c.ct.Run(t, "cat", "/var/log/dpkg.log"), " upgrade demo-slow:"); n != 1 {
		t.Errorf("it was installed %d times", n)
	}
}
