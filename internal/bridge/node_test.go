//go:build linux

package bridge

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"castellan/internal/frame"
	"castellan/internal/guestlab"
)

// node is a real node's userland: sshd, sudo, accounts, a container, and the program installed by its own installer.
type node struct {
	lab   *guestlab.Lab
	host  *guestlab.Host
	guest *guestlab.Container
	site  string
}

// castellan runs the installed program, or another build of it.
func castellan(t *testing.T, program string, args ...string) (string, error) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
	return string(out), err
}

// buildProgram builds castellan, as it is released.
func buildProgram(t *testing.T) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "castellan")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", out, "castellan/cmd/castellan")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, text)
	}
	return out
}

func newNode(t *testing.T, settings string) *node {
	t.Helper()
	lab := guestlab.Open(t)
	if _, err := exec.LookPath("sudo"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("sudo is not installed")
		}
		t.Skip("sudo is not installed")
	}
	program := buildProgram(t)
	key := string(ssh.MarshalAuthorizedKey(lab.Signer.PublicKey()))
	install := []string{"bridge", "install", "--key", key, "--from", "10.99.0.0/16,127.0.0.1", "--yes"}
	if out, err := castellan(t, program, append(install[:5:5], "not an address")...); err == nil || exists(settingsDir) {
		t.Fatalf("installed without an address: %s", out)
	}
	out, err := castellan(t, program, install[:len(install)-1]...)
	if err == nil || !strings.Contains(out, "+ system account castellan-bridge") || exists(settingsDir) {
		t.Fatalf("without a yes: %v\n%s", err, out)
	}
	if out, err = castellan(t, program, install...); err != nil {
		t.Fatalf("install: %v\n%s", err, out)
	}
	if out, err = castellan(t, program, install...); err != nil || !strings.Contains(out, "nothing was changed") {
		t.Errorf("a second time: %v\n%s", err, out)
	}
	n := &node{lab: lab, guest: lab.Start(t, guestlab.Guest{Unprivileged: true})}
	n.settings(t, strings.ReplaceAll(settings, "GUEST", strconv.Itoa(n.guest.ID)))
	if out, err := castellan(t, ProgramPath, "bridge", "check"); err != nil {
		t.Errorf("check: %v\n%s", err, out)
	}
	line, err := os.ReadFile(doorHome + "/.ssh/authorized_keys")
	if err != nil {
		t.Fatal(err)
	}
	n.host = lab.Host(t, guestlab.HostConfig{AuthorizedKeys: map[string][]string{door: {strings.TrimSpace(string(line))}}})
	t.Cleanup(func() {
		if out, err := exec.Command(ProgramPath, "bridge", "uninstall", "--yes").CombinedOutput(); err != nil {
			t.Errorf("uninstall: %v\n%s", err, out)
		}
		passwd, err := os.ReadFile("/etc/passwd")
		if err != nil || strings.Contains(string(passwd), "castellan") {
			t.Errorf("accounts are left: %v", err)
		}
		for _, p := range []string{settingsDir, sudoersPath, doorHome, runnerHome, "/var/lib/castellan-bridge", "/var/log/castellan-bridge.log", ProgramPath, filepath.Join(unitDir, revertUnit), filepath.Join(unitDir, "multi-user.target.wants", revertUnit)} {
			if exists(p) {
				t.Errorf("left: %s", p)
			}
		}
	})
	return n
}

func (n *node) settings(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(DefaultPath, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (n *node) ct() frame.Place {
	return frame.Place{Site: n.site, Node: guestlab.Node, Where: frame.CT, VMID: n.guest.ID, Root: n.guest.Volume, MAC: n.guest.MAC}
}

func (n *node) at() frame.Place {
	return frame.Place{Site: n.site, Node: guestlab.Node, Where: frame.Host}
}

// wire is one session with the bridge over SSH.
type wire struct {
	*line
	session *ssh.Session
	errs    bytes.Buffer
}

func (n *node) open(t *testing.T, c *ssh.Client, command string) *wire {
	t.Helper()
	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{session: s}
	in, e1 := s.StdinPipe()
	out, e2 := s.StdoutPipe()
	s.Stderr = &w.errs
	if e1 != nil || e2 != nil {
		t.Fatal(e1, e2)
	}
	if err := s.Start(command); err != nil {
		t.Fatal(err)
	}
	w.line = &line{t: t, w: frame.NewWriter(in), tells: map[string][]frame.Tell{}, news: make(chan struct{}, 1000)}
	go w.listen(out)
	t.Cleanup(func() { s.Close() })
	hello := w.ask(frame.Ask{ID: "hello", Verb: frame.Hello})
	if hello.Hello == nil {
		t.Fatalf("hello: %+v; %s", hello, w.errs.String())
	}
	n.site = hello.Hello.Site
	return w
}

func (l *line) listen(out io.Reader) {
	r := frame.NewReader(out)
	for {
		var tell frame.Tell
		if r.Next(&tell) != nil {
			return
		}
		l.mu.Lock()
		l.tells[tell.ID] = append(l.tells[tell.ID], tell)
		l.mu.Unlock()
		select {
		case l.news <- struct{}{}:
		default:
		}
	}
}

const nodeSettings = `
guests = ["GUEST"]
files = ["read", "write"]
words = ["maintenance", "dead_man"]
[lanes]
host = ["probe", "command", "script"]
lxc = ["probe", "command", "script"]
[limits]
runs = 64
[[rules.commands]]
guests = ["GUEST"]
argv = "systemctl is-active <unit>"
[[rules.commands]]
guests = ["GUEST"]
argv = "sleep <number:1-60>"
`

func TestOnANode(t *testing.T) {
	n := newNode(t, nodeSettings)
	c := n.host.Dial(t, door, n.lab.Signer)
	w := n.open(t, c, "")
	t.Run("what a run did is told as it was", func(t *testing.T) {
		for i, tt := range []struct {
			text, out, err string
			code           int
		}{
			{"echo out; echo err >&2; exit 3", "out\n", "err\n", 3},
			{"true", "", "", 0},
			{"printf '\\377\\000x'", "\xff\x00x", "", 0},
			{"cat", "€ in\n", "", 0},
			{"pwd; echo $FOO; locale charmap 2>/dev/null || true", "/srv\nb c\nUTF-8\n", "", 0},
			{"env | grep -cE 'SSH|SUDO|LS_COLORS' || true", "0\n", "", 0},
			{"kill -SEGV $$", "", "", 139},
			{"no-such-program", "", "", 127},
		} {
			a := script(fmt.Sprintf("r%d", i), n.ct(), tt.text)
			a.Run.Input, a.Run.Env, a.Run.Dir = []byte("€ in\n"), []string{"FOO=b c"}, "/srv"
			r := done(t, w.ask(a))
			if r.Code == nil || *r.Code != tt.code || text(r.Out) != tt.out || tt.err != "" && text(r.Err) != tt.err || !r.Gone {
				t.Errorf("%s: %+v out %q err %q", tt.text, r, text(r.Out), text(r.Err))
			}
		}
		a := script("bash", n.ct(), "set -o pipefail; false | true")
		a.Run.Interpreter = "bash"
		if r := done(t, w.ask(a)); *r.Code != 1 {
			t.Errorf("%+v", r)
		}
		if r := done(t, w.ask(script("host", n.at(), "id -un; id -Gn; cat /etc/shadow /etc/castellan-bridge/bridge.toml; sudo -n id"))); !strings.HasPrefix(text(r.Out), "castellan-run\ncastellan-run\n") || strings.Contains(text(r.Out), "root") {
			t.Errorf("%q %q", text(r.Out), text(r.Err))
		}
	})
	t.Run("nothing is left after the limit", func(t *testing.T) {
		a := script("limit", n.ct(), "nohup sleep 4242 >/dev/null 2>&1 &\nsetsid sleep 4242 &\ntrap '' TERM\nsleep 4242\n")
		a.Run.Limit = time.Second
		if r := done(t, w.ask(a)); !r.TimedOut || !r.Gone {
			t.Errorf("%+v", r)
		}
		if out := n.guest.Run(t, "sh", "-c", "ps -eo args | grep -c '[s]leep 4242' || true"); out != "0" {
			t.Errorf("left: %s", out)
		}
	})
	t.Run("the key opens the forced command alone", func(t *testing.T) {
		for _, line := range []string{"id", "sh -c id", "castellan bridge run --config /tmp/x", "sftp-server", "x; touch /tmp/castellan-escaped", "$(touch /tmp/castellan-escaped)", "\ntouch /tmp/castellan-escaped\n"} {
			n.open(t, c, line) // says hello, whatever was asked for
		}
		if exists("/tmp/castellan-escaped") {
			t.Error("a command of the client's ran")
		}
		s, err := c.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		if s.RequestPty("xterm", 24, 80, nil) == nil {
			t.Error("it gives a terminal")
		}
		s.Close()
		if conn, err := c.Dial("tcp", n.host.Address); err == nil {
			conn.Close()
			t.Error("it forwards")
		}
		for _, args := range [][]string{{ProgramPath, "bridge", "run", "--config", "/tmp/x"}, {ProgramPath, "bridge", "install"}, {"/bin/sh"}, {"-s"}, {ProgramPath, "bridge"}} {
			cmd := exec.CommandContext(t.Context(), "setpriv", append([]string{"--reuid", door, "--regid", door, "--clear-groups", "sudo", "-n"}, args...)...)
			if out, err := cmd.CombinedOutput(); err == nil {
				t.Errorf("sudo %q: %s", args, out)
			}
		}
	})
	t.Run("a run outlives its connection", func(t *testing.T) {
		c := n.host.Dial(t, door, n.lab.Signer)
		w := n.open(t, c, "")
		w.put(script("cut", n.ct(), "sleep 2; echo end"))
		time.Sleep(500 * time.Millisecond)
		n.host.CutSessions()
		c = n.host.Dial(t, door, n.lab.Signer)
		w = n.open(t, c, "")
		if tell := w.ask(frame.Ask{ID: "cut", Verb: frame.Look}); !tell.Running {
			t.Errorf("%+v", tell)
		}
		time.Sleep(2500 * time.Millisecond)
		w.tells = map[string][]frame.Tell{}
		if r := done(t, w.ask(frame.Ask{ID: "cut", Verb: frame.Look})); text(r.Out) != "end\n" {
			t.Errorf("%+v", r)
		}
		w.put(script("lost", n.ct(), "sleep 777"))
		time.Sleep(500 * time.Millisecond)
		for _, pid := range everyPid() { // the bridge itself dies
			if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && strings.HasPrefix(string(b), ProgramPath+"\x00bridge\x00run") {
				if s, err := readStat(pid); err == nil {
					s.process.signal(9)
				}
			}
		}
		w = n.open(t, n.host.Dial(t, door, n.lab.Signer), "")
		if tell := w.ask(frame.Ask{ID: "lost", Verb: frame.Look}); tell.Ending != frame.Unknown || !tell.Running {
			t.Errorf("%+v", tell)
		}
		w.tells = map[string][]frame.Tell{}
		if tell := w.ask(frame.Ask{ID: "lost", Verb: frame.Kill}); tell.Ending != frame.Unknown || tell.Running {
			t.Errorf("%+v", tell)
		}
		if out := n.guest.Run(t, "sh", "-c", "ps -eo args | grep -c '[s]leep 777' || true"); out != "0" {
			t.Errorf("left: %s", out)
		}
	})
	t.Run("it is quick", func(t *testing.T) {
		w := n.open(t, n.host.Dial(t, door, n.lab.Signer), "")
		probe := func(id string) frame.Ask {
			return frame.Ask{ID: id, Verb: frame.Exec, Place: n.ct(), Run: &frame.Run{Lane: frame.Probe, Probe: "mounts", Limit: 10 * time.Second, MaxOutput: 40000}}
		}
		done(t, w.ask(probe("warm")))
		const times = 30
		began := time.Now()
		for i := range times {
			done(t, w.ask(probe(fmt.Sprintf("p%d", i))))
		}
		probing := time.Since(began) / times
		began = time.Now()
		for range times {
			if out, err := exec.CommandContext(t.Context(), "lxc-attach", "-n", strconv.Itoa(n.guest.ID), "--", "cat", "/proc/self/mounts").CombinedOutput(); err != nil {
				t.Fatal(err, string(out))
			}
		}
		bare := time.Since(began) / times
		began = time.Now()
		for range times {
			n.guest.Run(t, "cat", "/proc/self/mounts")
		}
		t.Logf("a probe takes %s, lxc-attach alone %s", probing, bare)
		var all sync.WaitGroup
		began = time.Now()
		for i := range 50 {
			all.Go(func() {
				a := frame.Ask{ID: fmt.Sprintf("s%d", i), Verb: frame.Exec, Place: n.ct(), Run: &frame.Run{Lane: frame.Command, Argv: []string{"sleep", "1"}, Limit: 10 * time.Second, MaxOutput: 4000}}
				w.put(a)
				if r := done(t, w.end(a.ID)); *r.Code != 0 || !r.Gone {
					t.Errorf("%+v", r)
				}
			})
		}
		all.Wait()
		t.Logf("50 runs of 1 s at once took %s", time.Since(began))
	})
	log, err := os.ReadFile("/var/log/castellan-bridge.log")
	if err != nil {
		t.Fatal(err)
	}
	for l := range bytes.Lines(log) {
		var e entry
		if err := json.Unmarshal(l, &e); err != nil || e.Verb == "" {
			t.Fatalf("record: %v %q", err, l)
		}
		if e.Verb == string(frame.Exec) && !strings.Contains(e.Peer, "10.99.0.") {
			t.Errorf("it does not say from where: %q", l)
			break
		}
	}
}
