//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"castellan/internal/gate"
	"castellan/internal/lab"
	"castellan/internal/local"
)

// castle is a daemon under an account of its own, and accounts that it serves and does not.
type castle struct {
	*keep
	program         string // castellan, where everybody may run it
	own, ann, other account
}

type account struct {
	name     string
	uid, gid uint32
}

// threeAccounts are system accounts of this machine that nobody can become.
func threeAccounts(t *testing.T) []account {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can start processes of several accounts; run the tests as root to see this one")
	}
	var out []account
	for _, name := range []string{"uucp", "news", "games", "irc", "list", "man", "lp", "mail", "proxy", "backup"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uerr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gerr := strconv.ParseUint(u.Gid, 10, 32)
		if uerr == nil && gerr == nil && uid > 0 && uid < 1000 {
			out = append(out, account{name, uint32(uid), uint32(gid)})
		}
	}
	if len(out) < 3 {
		t.Skip("this machine has fewer than three of the usual system accounts")
	}
	return out[:3]
}

func newCastle(t *testing.T, accounts string) *castle {
	t.Helper()
	if testing.Short() {
		t.Skip("starts programs")
	}
	who := threeAccounts(t)
	c := &castle{own: who[0], ann: who[1], other: who[2]}
	g := newGround(t, lab.Config{})
	base, err := os.MkdirTemp("", "castle")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	if err := os.Chmod(base, 0o755); err != nil {
		t.Fatal(err)
	}
	c.keep = &keep{ground: g, address: freeAddress(t), socket: filepath.Join(base, "run", "s")}
	c.program = filepath.Join(base, "castellan")
	copyFile(t, os.Args[0], c.program)
	text, err := os.ReadFile(g.config)
	if err != nil {
		t.Fatal(err)
	}
	etc := filepath.Join(base, "etc")
	if err := os.Rename(g.dir, etc); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(g.dir, 0o700); err != nil { // for the test's own clean-up
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(base, "run"), 0o755); err != nil {
		t.Fatal(err)
	}
	text = bytes.ReplaceAll(text, []byte(g.dir), []byte(etc))
	g.dir, g.config = etc, filepath.Join(etc, "castellan.toml")
	g.write("castellan.toml", strings.Replace(string(text), "stand_in = \"phrase\"\n", "", 1)+fmt.Sprintf("\n[daemon]\nlisten = [%q]\nsocket = %q\naccount = %q\naccounts = [%s]\n", c.address, c.socket, c.own.name,
		strings.ReplaceAll(accounts, "ANN", c.ann.name)))
	for _, dir := range []string{etc, filepath.Join(base, "run")} {
		err := filepath.Walk(dir, func(path string, _ os.FileInfo, err error) error {
			return errors.Join(err, os.Chown(path, int(c.own.uid), int(c.own.gid)))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}

// start begins the daemon as root, who becomes the daemon's account.
func (c *castle) start() {
	c.keep.command = func(args ...string) *exec.Cmd { return c.as(nil, args...) }
	c.keep.start()
}

// as prepares castellan in a process of an account; nil is root with the daemon's configuration.
func (c *castle) as(who *account, args ...string) *exec.Cmd {
	cmd := exec.Command(c.program, args...)
	cmd.Dir = "/"
	cmd.Env = []string{asProgram + "=1", "PATH=/usr/bin:/bin", "HOME=/nonexistent", beatEvery + "=200ms"}
	if who == nil {
		cmd.Env = append(cmd.Env, "CASTELLAN_CONFIG="+c.config)
		return cmd
	}
	cmd.Env = append(cmd.Env, "CASTELLAN_SOCKET="+c.socket)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: who.uid, Gid: who.gid}}
	return cmd
}

func (c *castle) do(who *account, more []string, args ...string) (string, string, int) {
	c.t.Helper()
	cmd := c.as(who, args...)
	cmd.Env = append(cmd.Env, more...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	timer := time.AfterFunc(90*time.Second, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	_ = cmd.Wait() // the exit code says it
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// dial connects to the socket by hand, as an account: the kernel keeps credentials by thread.
func (c *castle) dial(who account) *local.Client {
	c.t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	keep := ^uintptr(0)
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, keep, uintptr(who.uid), keep); errno != 0 {
		c.t.Fatal(errno)
	}
	defer func() { _, _, _ = syscall.RawSyscall(syscall.SYS_SETRESUID, keep, 0, keep) }() // root stays the real one
	s, err := local.Connect(c.t.Context(), c.socket)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = s.Close() })
	return s
}

// onPTY runs castellan on a terminal of its own, in a process of an account.
func (c *castle) onPTY(who *account, args ...string) *terminal {
	c.t.Helper()
	cmd := c.as(who, args...)
	f, err := pty.StartWithAttrs(cmd, nil, &syscall.SysProcAttr{Setsid: true, Setctty: true, Credential: cmd.SysProcAttr.Credential})
	if err != nil {
		c.t.Fatal(err)
	}
	return readTerminal(c.t, cmd, f)
}

// health reads what the daemon says of itself.
func (c *castle) separate() (ok bool, highest, text string) {
	_, text = c.get("/health")
	var h struct {
		Separate struct {
			OK      bool
			Highest string `json:"highest_approval"`
		}
	}
	if err := json.Unmarshal([]byte(text), &h); err != nil {
		c.t.Fatal(err)
	}
	return h.Separate.OK, h.Separate.Highest, text
}

// connect starts serve in a process of an account and connects a real client to it.
func (c *castle) connect(who *account, more ...string) *mcp.ClientSession {
	c.t.Helper()
	cmd := c.as(who, "serve")
	cmd.Env = append(cmd.Env, more...)
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	s, err := client.Connect(ctx, &mcp.CommandTransport{Command: cmd, TerminateDuration: 3 * time.Second}, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = s.Close() })
	return s
}

// TestInitForTheDaemon: root sets up, all of it belongs to the daemon's account, and counts as separate at once.
func TestInitForTheDaemon(t *testing.T) {
	c := newCastle(t, `"ANN=claude"`)
	base := filepath.Dir(c.program)
	dir := filepath.Join(base, "fresh")
	config, token := filepath.Join(dir, "castellan.toml"), filepath.Join(base, "token")
	for _, err := range []error{os.Mkdir(dir, 0o700), os.WriteFile(token, []byte(strings.TrimPrefix(c.lab.Tokens()["admin"], "PVEAPIToken=")), 0o600), os.Chown(dir, int(c.own.uid), int(c.own.gid)), os.Chown(token, int(c.own.uid), int(c.own.gid))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	there, err := os.ReadFile(c.config)
	if err != nil {
		t.Fatal(err)
	}
	address := regexp.MustCompile(`addresses = \["([^"]*)"`).FindStringSubmatch(string(there))[1]
	more := []string{"CASTELLAN_CONFIG=" + config, "CASTELLAN_STORE_URL=" + filepath.Join(dir, "castellan.db")}
	page, err := os.ReadFile("../../docs/daemon.md")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^castellan --config /etc/castellan/castellan.toml (init .*)$`).FindSubmatch(page)
	if line == nil {
		t.Fatal("the page has no line for init")
	}
	args := strings.Fields(strings.NewReplacer(" castellan ", " "+c.own.name+" ", "alice=", c.ann.name+"=").Replace(string(line[1])))
	out, errs, code := c.do(nil, more, append(args, "--address", address, "--fingerprint", c.lab.Fingerprint(), "--allow", "everyday", "--token-file", token)...)
	if code != 0 || !strings.Contains(errs, "pve1 is online") || !strings.Contains(out, "daemon check") {
		t.Fatalf("init: exit %d: %s%s", code, out, errs)
	}
	text, err := os.ReadFile(config)
	if err != nil || bytes.Contains(text, []byte("stand_in")) || bytes.Count(text, []byte("[store]")) != 1 {
		t.Errorf("the configuration: %v\n%s", err, text)
	}
	for _, name := range []string{"castellan.toml", "pve.token", "keys/ledger.pem", "castellan.db"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Sys().(*syscall.Stat_t).Uid != c.own.uid || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, err, info)
		}
	}
	if out, errs, code := c.do(nil, more, "daemon", "check"); code != 0 || !strings.Contains(out, "separate: true") {
		t.Errorf("daemon check: exit %d: %s%s", code, out, errs)
	}
	if _, errs, code := c.do(&c.ann, nil, "people", "list"); code == 0 || !strings.Contains(errs, c.socket) || strings.Contains(errs, "init") {
		t.Errorf("the accounts, from the agent's side: exit %d: %s", code, errs)
	}
}

// TestAnAccountOfItsOwn: the daemon runs as an account that the agent's cannot become, so a person's approval counts, and
// nothing on the agent's side can stand in for it.
func TestAnAccountOfItsOwn(t *testing.T) {
	c := newCastle(t, `"ANN=claude"`)
	c.start()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.daemon.Process.Pid))
	if err != nil || !strings.Contains(string(status), fmt.Sprintf("\nUid:\t%d\t%d\t", c.own.uid, c.own.uid)) {
		t.Errorf("the daemon does not run as %s: %s %v", c.own.name, status, err)
	}
	if ok, highest, text := c.separate(); !ok || highest != "two_passkeys" {
		t.Fatalf("not separate: %s", text)
	}

	// Who is served, and as whom.
	out, errs, code := c.do(&c.ann, nil, "call", "list_guests", "--json")
	if code != 0 || !strings.Contains(out, `"answer"`) {
		t.Errorf("list_guests as %s: %d %s", c.ann.name, code, errs)
	}
	if out, errs, code = c.do(&c.other, nil, "call", "list_guests"); code != 3 || !strings.Contains(errs, "not served") {
		t.Errorf("%s is served: %d %s %s", c.other.name, code, out, errs)
	}
	if out, errs, code = c.do(nil, nil, "plans"); code != 3 || out != "" {
		t.Errorf("root is served: %d %s %s", code, out, errs)
	}
	if _, errs, code = c.do(nil, nil, "serve"); code == 0 || !strings.Contains(errs, "not served") {
		t.Errorf("root serves an agent: %d %s", code, errs)
	}

	// An agent wants to cut the power of a guest; a loosening environment beside it is not heard.
	agent := c.connect(&c.ann, "CASTELLAN_POLICY_RUNGS=", "CASTELLAN_POLICY_STAND_IN=dialog", "CASTELLAN_POLICY_CAPABILITIES=power", "CASTELLAN_AGENT=root", "CASTELLAN_DAEMON_ACCOUNT=")
	o, e := ask(t, agent, "guest_power", map[string]any{"guest": "101", "action": "stop"})
	if e != nil || o.Status != gate.StatusWaiting || o.Plan.Rung != gate.RungPerson {
		t.Fatalf("stop: %+v %+v", o, e)
	}
	plan := o.Plan.ID
	if _, e := ask(t, agent, "apply_plan", map[string]any{"plan": plan, "sentence": o.Plan.Sentence, "token": o.Plan.Token}); e == nil || e.Kind != gate.ErrNeedsApproval && e.Kind != gate.ErrDenied {
		t.Errorf("apply without a person: %+v", e)
	}

	// A yes of a terminal, said by a program of the agent's own account. The command itself does not even ask.
	hand := c.dial(c.ann)
	var no *gate.Error
	if o, err := hand.Confirm(t.Context(), gate.Principal{}, plan, gate.Evidence{Kind: "terminal"}, nil); !errors.As(err, &no) || no.Kind != gate.ErrNeedsApproval && no.Kind != gate.ErrDenied || c.writes("POST", "/status/stop") != 0 {
		t.Fatalf("a yes of a terminal approved it: %+v %v", o, err)
	}
	pt := c.onPTY(&c.ann, "apply", plan)
	pt.shows("castellan approve " + plan)
	if code := pt.ends(); code != 8 || strings.Contains(pt.all.String(), "Type") {
		t.Fatalf("apply on a terminal: %d %s", code, pt.all)
	}
	if _, errs, code := c.do(&c.ann, nil, "approve", plan); code != 8 || !strings.Contains(errs, "terminal") {
		t.Errorf("approve without a terminal: %d %s", code, errs)
	}

	// A person who knows the password.
	secret := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(secret, []byte("correct horse battery\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, errs, code := c.do(nil, nil, "people", "add", "bea", "--role", "approver", "--password-file", secret); code != 0 {
		t.Fatalf("people add: %d %s %s", code, out, errs)
	}
	pt = c.onPTY(&c.ann, "approve", plan, "--person", "bea")
	pt.shows("Password of bea")
	pt.types("not the password")
	if code := pt.ends(); code == 0 {
		t.Errorf("a wrong password approved it: %s", pt.all)
	}
	pt = c.onPTY(&c.ann, "approve", plan, "--person", "bea")
	pt.shows("Password of bea")
	pt.types("correct horse battery")
	pt.shows(plan)
	pt.shows("Type")
	pt.types("y")
	if code := pt.ends(); code != 8 {
		t.Errorf("y is taken for yes: %d %s", code, pt.all)
	}
	pt = c.onPTY(&c.ann, "approve", plan, "--person", "bea")
	pt.shows("Password of bea")
	pt.types("correct horse battery")
	pt.shows("Type")
	pt.types("yes")
	if code := pt.ends(); code != 0 || strings.Contains(pt.all.String(), "correct horse") {
		t.Fatalf("approve: %d %s", code, pt.all)
	}
	if c.writes("POST", "/status/stop") != 0 {
		t.Error("an approval started the plan")
	}
	if o, e = ask(t, agent, "apply_plan", map[string]any{"plan": plan}); e != nil || o.Status != gate.StatusDone {
		t.Fatalf("apply after the approval: %+v %+v", o, e)
	}
	if c.writes("POST", "/status/stop") != 1 {
		t.Errorf("stop was sent %d times", c.writes("POST", "/status/stop"))
	}

	// A plan that a person denies.
	if o, e = ask(t, agent, "guest_power", map[string]any{"guest": "102", "action": "stop"}); e != nil || o.Plan == nil {
		t.Fatalf("stop: %+v %+v", o, e)
	}
	pt = c.onPTY(&c.ann, "deny", o.Plan.ID, "not", "now", "--person", "bea")
	pt.shows("Password of bea")
	pt.types("correct horse battery")
	if code := pt.ends(); code != 0 {
		t.Errorf("deny: %d %s", code, pt.all)
	}
	if _, e = ask(t, agent, "apply_plan", map[string]any{"plan": o.Plan.ID}); e == nil {
		t.Error("a denied plan was carried out")
	}

	// The switch: anybody served may turn it on; off is root's.
	if _, errs, code := c.do(&c.ann, nil, "contain", "on"); code != 0 {
		t.Errorf("contain on: %d %s", code, errs)
	}
	if _, errs, code := c.do(&c.ann, nil, "contain", "off"); code != 3 {
		t.Errorf("contain off over the socket: %d %s", code, errs)
	}
	if _, errs, code := c.do(nil, nil, "contain", "off"); code != 0 {
		t.Errorf("contain off as root: %d %s", code, errs)
	}
	if out, errs, code := c.do(nil, nil, "audit", "verify", "--json"); code != 0 || !strings.Contains(out, `"ok": true`) {
		t.Errorf("audit verify as root: %d %s %s", code, out, errs)
	}
	_ = filepath.Walk(c.dir, func(path string, info os.FileInfo, err error) error {
		if err == nil && info.Sys().(*syscall.Stat_t).Uid != c.own.uid {
			t.Errorf("%s does not belong to the daemon's account", path)
		}
		return nil
	})
}

// TestNotSeparate: each thing that lets an agent reach the keys is seen and said, and a dialog is then the most.
func TestNotSeparate(t *testing.T) {
	c := newCastle(t, `"root", "ANN"`)
	c.start()
	if ok, highest, text := c.separate(); ok || highest != "dialog" || !strings.Contains(text, "serves root") {
		t.Errorf("with root on the socket: %s", text)
	}
	out, errs, code := c.do(nil, nil, "daemon", "check")
	if code != 0 || !strings.Contains(out, "separate: false") || !strings.Contains(out, `"root"`) {
		t.Errorf("daemon check: %d %s %s", code, out, errs)
	}
}
