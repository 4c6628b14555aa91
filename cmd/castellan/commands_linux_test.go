package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"castellan/internal/gate"
	"castellan/internal/guestlab"
	"castellan/internal/lab"
)

// asNode makes the test binary run its one story about commands on a node of real guests, in namespaces of its own.
const asNode = "CASTELLAN_TEST_AS_NODE"

func onNode(m *testing.M) int { return guestlab.Main(m) }

// TestCommands is the whole of it about commands: the real program with its settings, an API whose container 201 is a real
// container, behind a real sshd whose forced command is the real bridge; and a VM whose guest agent is the genuine one.
func TestCommands(t *testing.T) {
	if !aloneOnNode(t) {
		return
	}
	c := newNodeStory(t)
	t.Run("probe", c.probe)
	t.Run("command", c.command)
	t.Run("refused", c.refused)
	t.Run("script", c.script)
	t.Run("timeout", c.timeout)
	t.Run("file", c.file)
	t.Run("replaced", c.replaced)
	t.Run("killed", c.killed)
	t.Run("vm", c.vm)
	t.Run("diagnosis", c.diagnosis)
	t.Run("dead man", c.deadMan)
	c.raw.t = t
	c.raw.end()
	if out, errs, code := castellan(t, c.site.env(), "", "audit", "verify", "--json"); code != 0 || !strings.Contains(out, `"ok": true`) {
		t.Errorf("the ledger does not verify: %d %s %s", code, out, errs)
	}
	b, err := os.ReadFile(nodeLog)
	if err != nil || !strings.Contains(string(b), `"verb":"exec"`) || strings.Contains(string(b), "story-marks") {
		t.Errorf("the bridge's record: %v\n%.2000s", err, b)
	}
}

const (
	nodeSettings = "/etc/castellan-story/bridge.toml"
	nodeLog      = "/var/log/castellan-story.log"
	nodeID       = "201"
	nodeVM       = "101"
)

// nodeStory is a castellan with a node.
type nodeStory struct {
	t    *testing.T // of the whole story: what is started ends with it
	site *site
	ct   *guestlab.Container
	vmCT *guestlab.Container
	host *guestlab.Host
	raw  *raw
}

func newNodeStory(t *testing.T) *nodeStory {
	t.Helper()
	l := guestlab.Open(t)
	c := &nodeStory{t: t, ct: l.Start(t, guestlab.Guest{ID: 201, Unprivileged: true}), vmCT: l.Start(t, guestlab.Guest{Unprivileged: true})}
	agent := l.Agent(t, c.vmCT)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Executable()
	must(err)
	must(os.MkdirAll(filepath.Dir(nodeSettings), 0o755))
	must(os.WriteFile(nodeSettings, []byte(fmt.Sprintf("guests = [%q]\nfiles = [\"read\", \"write\"]\nwords = [\"dead_man\"]\naccount = \"nobody\"\nstate = \"/var/lib/castellan-story\"\nlog = %q\n[lanes]\nlxc = [\"probe\", \"command\", \"script\"]\n"+
		"[[rules.commands]]\nguests = [%q]\nargv = \"systemctl restart <unit:story>\"\n", nodeID, nodeLog, nodeID)), 0o644))
	host := l.Host(t, guestlab.HostConfig{AuthorizedKeys: map[string][]string{"root": {guestlab.AuthorizedKey(fmt.Sprintf(`restrict,command="/usr/bin/env %s=1 %s bridge --config %s run"`, asProgram, self, nodeSettings), l.Signer.PublicKey())}}})
	c.host = host
	c.site = newSite(t, lab.Config{Agent: func(vmid int) (net.Conn, error) {
		if vmid != 101 {
			return nil, nil
		}
		ctx, stop := context.WithTimeout(context.Background(), 2*time.Second)
		defer stop()
		return agent.Dial(ctx)
	}}, fmt.Sprintf(`capabilities = ["probe", "command", "exec", "file", "read_file", "snapshot", "settings", "network", "guard"]
stand_in = "phrase"

[[bridge]]
target = "lab"
node = "pve1"
address = %q
user = "root"
key_file = %q
host_key = [%q]

[[lanes.commands]]
guests = [%q]
argv = "systemctl restart <unit:story>"

[[lanes.commands]]
guests = [%q]
argv = "uname -n"

[lanes.scripts]
guests = [%q]

[lanes.files]
guests = [%q, %q]
`, host.Address, l.KeyFile, ssh.FingerprintSHA256(host.HostKey), nodeID, nodeVM, nodeID, nodeID, nodeVM))
	// The API and the node speak of one cluster and one container.
	must(os.WriteFile(guestlab.PVE+"/pve-root-ca.pem", c.site.lab.CAPEM(), 0o644))
	conf, err := os.ReadFile(guestlab.PVE + "/corosync.conf")
	must(err)
	must(os.WriteFile(guestlab.PVE+"/corosync.conf", []byte(strings.Replace(string(conf), "cluster_name: guestlab", "cluster_name: small", 1)), 0o644))
	c.onNode(t, c.ct.Volume, "local-lvm:vm-201-disk-0")
	c.setMAC(t, c.ct.MAC)
	must(os.WriteFile(filepath.Join(c.ct.Root, "etc/systemd/system/story.service"), []byte("[Service]\nExecStart=/bin/sleep infinity\n"), 0o644))
	c.ct.Run(t, "systemctl", "daemon-reload")
	c.ct.Run(t, "systemctl", "start", "story")
	c.start(t)
	return c
}

func (c *nodeStory) start(t *testing.T) {
	t.Helper()
	c.raw = startRaw(c.t, append(c.site.env(), beatEvery+"=200ms"), "serve", "--toolset", "everything")
	c.raw.t = t
	c.raw.initialize("2025-06-18")
}

// onNode changes the container's configuration on the node.
func (c *nodeStory) onNode(t *testing.T, old, now string) { t.Helper(); onNodeOf(t, c.ct, old, now) }

func onNodeOf(t *testing.T, ct *guestlab.Container, old, now string) {
	t.Helper()
	b, err := os.ReadFile(ct.ConfigFile())
	if err != nil || !strings.Contains(string(b), old) {
		t.Fatalf("the node has no %s: %v %s", old, err, b)
	}
	if err := os.WriteFile(ct.ConfigFile(), []byte(strings.ReplaceAll(string(b), old, now)), 0o640); err != nil {
		t.Fatal(err)
	}
}

// setMAC is somebody else at the API.
func (c *nodeStory) setMAC(t *testing.T, mac string) {
	t.Helper()
	form := url.Values{"net0": {"name=eth0,bridge=vmbr0,hwaddr=" + mac + ",type=veth"}}
	status, reason, answer := c.site.lab.Do(t.Context(), "PUT", "/api2/json/nodes/pve1/lxc/"+nodeID+"/config",
		http.Header{"Authorization": {c.site.lab.Tokens()["admin"]}, "Content-Type": {"application/x-www-form-urlencoded"}}, []byte(form.Encode()))
	if status != http.StatusOK {
		t.Fatalf("%d %s %s", status, reason, answer)
	}
	c.site.lab.Drain()
}

// apply is what confirms a waiting plan.
func apply(p *planSeen) map[string]any {
	return map[string]any{"plan": p.ID, "sentence": p.Sentence, "token": p.Token, "phrase": p.Phrase}
}

// do calls an operation and applies its plan where it waits.
func (c *nodeStory) do(t *testing.T, tool string, args map[string]any) answer {
	t.Helper()
	c.raw.t = t
	a := c.raw.call(tool, args)
	if a.Structured.Error == nil && a.Structured.Plan != nil && a.Structured.Plan.Token != "" {
		return c.raw.call("apply_plan", apply(a.Structured.Plan))
	}
	return a
}

func said(a answer) string {
	b, _ := json.Marshal(a) // it was read from JSON
	return string(b)
}

func (c *nodeStory) probe(t *testing.T) {
	a := c.do(t, "probe_guest", map[string]any{"guest": nodeID, "probe": "disk"})
	if a.IsError || !strings.Contains(said(a), "overlay") && !strings.Contains(said(a), "guestlab") {
		t.Errorf("%s", said(a))
	}
}

func (c *nodeStory) pid(t *testing.T) string {
	return c.ct.Run(t, "systemctl", "show", "-p", "MainPID", "--value", "story")
}

func (c *nodeStory) command(t *testing.T) {
	before := c.pid(t)
	a := c.do(t, "run_command", map[string]any{"guest": nodeID, "command": []string{"systemctl", "restart", "story"}})
	if after := c.pid(t); a.IsError || after == before || after == "0" {
		t.Errorf("restarted from %s to %s: %s", before, after, said(a))
	}
}

func (c *nodeStory) refused(t *testing.T) {
	for _, argv := range [][]string{{"systemctl", "restart", "ssh"}, {"systemctl", "stop", "story"}, {"uname", "-n"}, {"sh", "-c", "id"}} {
		a := c.do(t, "run_command", map[string]any{"guest": nodeID, "command": argv})
		if e := a.Structured.Error; !a.IsError || e == nil || e.Changed != "nothing" || !strings.Contains(said(a), "[lanes]") && argv[0] != "sh" {
			t.Errorf("%v: %s", argv, said(a))
		}
	}
}

func (c *nodeStory) script(t *testing.T) {
	a := c.do(t, "run_script", map[string]any{"guest": nodeID, "script": "echo story-marks\ncat /etc/hostname\nexit 0\n"})
	if a.IsError || !strings.Contains(said(a), c.ct.Name) {
		t.Errorf("%s", said(a))
	}
	a = c.do(t, "run_script", map[string]any{"guest": nodeID, "script": "exit 7\n"})
	if !strings.Contains(said(a), "7") || a.Structured.Receipt != nil && a.Structured.Receipt.State == "done" {
		t.Errorf("%s", said(a))
	}
}

func (c *nodeStory) timeout(t *testing.T) {
	began := time.Now()
	a := c.do(t, "run_script", map[string]any{"guest": nodeID, "script": "trap '' TERM\nsleep 7771 &\nsleep 7772\n", "timeout": 1})
	if took := time.Since(began); !a.IsError && (a.Structured.Receipt == nil || a.Structured.Receipt.State == "done") || took > time.Minute || !strings.Contains(said(a), "timed") {
		t.Errorf("%s: %s", took, said(a))
	}
	if out := c.ct.Exec(t, "pgrep", "-f", "sleep 777[12]"); out.Code == 0 {
		t.Errorf("it still runs: %s", out.Stdout)
	}
}

func (c *nodeStory) file(t *testing.T) {
	c.ct.Run(t, "sh", "-c", "echo before >/etc/story")
	sum, _, _ := strings.Cut(c.ct.Run(t, "sha256sum", "/etc/story"), " ")
	a := c.do(t, "write_guest_file", map[string]any{"guest": nodeID, "path": "/etc/story", "content": "after\n", "expect": sum})
	if got := c.ct.Run(t, "cat", "/etc/story"); a.IsError || got != "after" || a.Structured.Receipt == nil {
		t.Fatalf("%q: %s", got, said(a))
	}
	a = c.do(t, "undo", map[string]any{"plan": a.Structured.Receipt.Plan})
	if got := c.ct.Run(t, "cat", "/etc/story"); a.IsError || got != "before" {
		t.Errorf("%q: %s", got, said(a))
	}
}

// replaced has another container at its number when the plan is applied: once only the node knows of it, once the API too.
func (c *nodeStory) replaced(t *testing.T) {
	const other = "02:00:00:63:EE:EE"
	for _, api := range []bool{false, true} {
		c.raw.t = t
		a := c.raw.call("run_script", map[string]any{"guest": nodeID, "script": "touch /root/replaced\n"})
		if a.Structured.Plan == nil {
			t.Fatalf("%s", said(a))
		}
		c.onNode(t, c.ct.MAC, other)
		if api {
			c.setMAC(t, other)
		}
		a = c.raw.call("apply_plan", apply(a.Structured.Plan))
		c.onNode(t, other, c.ct.MAC)
		if api {
			c.setMAC(t, c.ct.MAC)
		}
		if !a.IsError && (a.Structured.Receipt == nil || a.Structured.Receipt.State == "done") {
			t.Errorf("api %v: %s", api, said(a))
		}
		if out := c.ct.Exec(t, "test", "-e", "/root/replaced"); out.Code == 0 {
			t.Errorf("api %v: it was run in another container: %s", api, said(a))
		}
	}
}

// killed ends castellan while a script runs. The next one finds its end and does not run it again.
func (c *nodeStory) killed(t *testing.T) {
	c.raw.t = t
	a := c.raw.call("run_script", map[string]any{"guest": nodeID, "script": "echo x >>/root/ran\nsleep 4\necho ended >>/root/ran\n"})
	if a.Structured.Plan == nil {
		t.Fatalf("%s", said(a))
	}
	plan := a.Structured.Plan
	args, err := json.Marshal(apply(plan))
	if err != nil {
		t.Fatal(err)
	}
	c.raw.send(`{"jsonrpc":"2.0","id":9999,"method":"tools/call","params":{"name":"apply_plan","arguments":` + string(args) + `}}`)
	for end := time.Now().Add(patience); c.ct.Exec(t, "test", "-e", "/root/ran").Code != 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the script did not start")
		}
	}
	if err := c.raw.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.raw.cmd.Wait() // it was killed
	c.start(t)
	for end := time.Now().Add(2 * patience); ; {
		a = c.raw.call("show_plan", map[string]any{"plan": plan.ID, "wait": 5})
		var view planSeen
		if err := json.Unmarshal(a.Structured.Answer, &view); err != nil {
			t.Fatalf("%v: %s", err, said(a))
		}
		if view.State == string(gate.PlanDone) {
			break
		}
		if time.Now().After(end) || view.State != string(gate.PlanApplying) {
			t.Fatalf("the plan is %s: %s", view.State, said(a))
		}
	}
	if got := c.ct.Run(t, "cat", "/root/ran"); got != "x\nended" {
		t.Errorf("it was run so: %q", got)
	}
}

func (c *nodeStory) vm(t *testing.T) {
	a := c.do(t, "run_command", map[string]any{"guest": nodeVM, "command": []string{"uname", "-n"}})
	if a.IsError || !strings.Contains(said(a), c.vmCT.Name) {
		t.Errorf("%s", said(a))
	}
	a = c.do(t, "read_guest_file", map[string]any{"guest": nodeVM, "path": "/etc/hostname"})
	if a.IsError || !strings.Contains(said(a), c.vmCT.Name) {
		t.Errorf("%s", said(a))
	}
}

// diagnosis looks inside by itself.
func (c *nodeStory) diagnosis(t *testing.T) {
	c.ct.Exec(t, "systemd-run", "--unit=broken", "--quiet", "/bin/false")
	for end := time.Now().Add(patience); !strings.Contains(c.ct.Run(t, "systemctl", "list-units", "--state=failed", "--no-legend"), "broken"); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the unit did not fail")
		}
	}
	a := c.do(t, "diagnose_guest", map[string]any{"guest": nodeID})
	for _, want := range []string{"unit_failed_inside", "broken.service", "memory of process"} {
		if a.IsError || !strings.Contains(said(a), want) {
			t.Errorf("no %s: %s", want, said(a))
		}
	}
	// Not every machine hands the controller of memory on to containers within one.
	if _, rest, lacks := strings.Cut(strings.ReplaceAll(said(a), "inside, probe memory_limits", ""), "inside, probe"); lacks {
		t.Errorf("a probe gave nothing: %.300s", rest)
	}
	a = c.do(t, "diagnose_node", map[string]any{"node": "pve1"})
	if a.IsError || !strings.Contains(said(a), "was not looked at") || strings.Contains(said(a), "inside, probe") {
		t.Errorf("the lane of the node is closed: %s", said(a))
	}
}

// deadMan changes the firewall within a switch, once so that castellan gets in afterwards and once so that it does not.
func (c *nodeStory) deadMan(t *testing.T) {
	fw := filepath.Join(guestlab.PVE, "firewall/cluster.fw")
	before, err := os.ReadFile(fw)
	if err != nil {
		t.Fatal(err)
	}
	call := func(enable int) map[string]any {
		return map[string]any{"operation": "call_operation", "seconds": 60, "params": map[string]any{"operation": "PUT /nodes/pve1/firewall/options", "params": map[string]any{"enable": enable}}}
	}
	a := c.do(t, "with_dead_man", call(1))
	if a.IsError || a.Structured.Receipt == nil || a.Structured.Receipt.State != "done" {
		t.Fatalf("%s", said(a))
	}
	if found, err := filepath.Glob("/var/lib/castellan-story/deadman-" + a.Structured.Receipt.Plan + ".firewall/confirmed"); err != nil || len(found) != 1 {
		t.Errorf("it was not confirmed: %v %v", found, err)
	}
	c.raw.t = t
	a = c.raw.call("with_dead_man", call(0))
	if a.Structured.Plan == nil {
		t.Fatalf("%s", said(a))
	}
	armed := "/var/lib/castellan-story/deadman-" + a.Structured.Plan.ID + ".firewall/armed"
	go func() { // what the API changed on the node shuts castellan's way to the bridge
		for range 500 {
			if _, err := os.Stat(armed); err == nil {
				time.Sleep(3 * time.Second)
				_ = os.WriteFile(fw, []byte("[OPTIONS]\nenable: 1\npolicy_in: DROP\n"), 0o640)
				c.host.Down()
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	}()
	a = c.raw.call("apply_plan", apply(a.Structured.Plan))
	if a.Structured.Plan != nil {
		a = c.raw.call("show_plan", map[string]any{"plan": a.Structured.Plan.ID, "wait": 45})
	}
	if s := said(a); !strings.Contains(s, "failed") || !strings.Contains(s, "cannot be reached") {
		t.Errorf("%s", s)
	}
	for end := time.Now().Add(90 * time.Second); ; time.Sleep(200 * time.Millisecond) {
		if now, err := os.ReadFile(fw); err == nil && string(now) == string(before) {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the node did not put it back")
		}
	}
	c.host.Up(t)
}
