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
	c = n.host.Dial(t, door, n.lab.Signer) // the one before was cut
	w = n.open(t, c, "")
	t.Run("what hides is not said to be gone", func(t *testing.T) {
		a := script("hide", n.ct(), "python3 - <<'END'\nimport os,time\nif os.fork()==0:\n os.setsid()\n if os.fork()==0:\n  os.execve('/bin/sleep',['sleep','5151'],{})\n os._exit(0)\nEND\nsleep 60\n")
		a.Run.Limit = 2 * time.Second
		tell := w.ask(a)
		if tell.Ending == frame.Refused {
			t.Skip(tell.Reason)
		}
		r := done(t, tell)
		left := n.guest.Run(t, "sh", "-c", "ps -eo args | grep -c '[s]leep 5151' || true")
		t.Logf("gone %v, left %s", r.Gone, left)
		if r.Gone && left != "0" {
			t.Errorf("it is said to be gone, and is left")
		}
		n.guest.Run(t, "sh", "-c", "pkill -f '[s]leep 5151' || true")
	})
	t.Run("a hostile guest", func(t *testing.T) {
		n.guest.Run(t, "sh", "-c", "mkfifo /root/fifo; ln -s /etc/shadow /root/link; ln -sfn /proc/1/root /root/up; ln -s ../../../../../../../../etc/castellan-bridge/bridge.toml /root/out; mkdir /root/d; mv /run/lock /run/lock.old 2>/dev/null; true")
		read := func(id, path string) frame.Tell {
			return w.ask(frame.Ask{ID: id, Verb: frame.Read, Place: n.ct(), File: &frame.File{Path: path}})
		}
		for i, path := range []string{"/root/fifo", "/dev/zero", "/root/up/etc/hostname", "/root/out", "/proc/1/environ", "/dev/console"} {
			if tell := read(fmt.Sprintf("hf%d", i), path); tell.Ending == frame.Done && !tell.File.Absent {
				t.Errorf("%s: %+v %q", path, tell, tell.File.Content)
			}
		}
		if tell := read("hl", "/root/link"); tell.Ending != frame.Done || string(tell.File.Content) != n.guest.Run(t, "cat", "/etc/shadow")+"\n" {
			t.Errorf("a link within the guest is the guest's: %+v %q", tell, tell.File.Content)
		}
		began := time.Now()
		tell := w.ask(script("flood", n.ct(), "cat /dev/zero"))
		if r := done(t, tell); !r.Gone || r.Out.Total < 1<<30 && !r.TimedOut {
			t.Errorf("%+v after %s", r.Gone, time.Since(began))
		}
		tell = w.ask(script("escape", n.ct(), "printf '\\033]0;x\\007\\033[2J'"))
		if r := done(t, tell); string(r.Out.Head) != "\x1b]0;x\x07\x1b[2J" {
			t.Errorf("bytes are bytes: %q", r.Out.Head)
		}
		p := n.ct()
		p.MAC = "02:00:00:00:00:01"
		if tell := w.ask(script("other", p, "id")); tell.Ending != frame.Refused {
			t.Errorf("%+v", tell)
		}
		f := frame.File{Path: "/etc/castellan-test", Content: []byte("x\n"), Expect: "absent"}
		if tell := w.ask(frame.Ask{ID: "wf", Verb: frame.Write, Place: n.ct(), File: &f}); tell.Ending != frame.Done {
			t.Errorf("%+v", tell)
		}
		if out := n.guest.Run(t, "stat", "-c", "%u %g %a", "/etc/castellan-test"); out != "0 0 644" {
			t.Errorf("as the guest sees it: %s", out)
		}
		w.tells["wf"] = nil
		if tell := w.ask(frame.Ask{ID: "wf", Verb: frame.Write, Place: n.ct(), File: &f}); tell.Ending != frame.Unknown {
			t.Errorf("a second time: %+v", tell)
		}
	})
	t.Run("a privileged container is the host", func(t *testing.T) {
		other := n.lab.Start(t, guestlab.Guest{})
		text := strings.Replace(strings.ReplaceAll(nodeSettings, "GUEST", strconv.Itoa(n.guest.ID)), "guests = [", fmt.Sprintf("guests = [%q,", strconv.Itoa(other.ID)), 1)
		n.settings(t, strings.Replace(text, `host = ["probe", "command", "script"]`, `host = ["probe"]`, 1))
		defer n.settings(t, strings.ReplaceAll(nodeSettings, "GUEST", strconv.Itoa(n.guest.ID)))
		w := n.open(t, c, "")
		p := n.ct()
		p.VMID, p.Root, p.MAC = other.ID, other.Volume, other.MAC
		if tell := w.ask(script("priv1", p, "id")); tell.Ending != frame.Refused || !strings.Contains(tell.Reason, "privileged") {
			t.Errorf("%+v", tell)
		}
		// What its configuration says does not make it less.
		conf, err := os.ReadFile(other.ConfigFile())
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(other.ConfigFile(), append([]byte("unprivileged: 1\n"), bytes.ReplaceAll(conf, []byte("unprivileged: 0\n"), nil)...), 0o640); err != nil {
			t.Fatal(err)
		}
		if tell := w.ask(script("priv2", p, "id")); tell.Ending != frame.Refused || !strings.Contains(tell.Reason, "privileged") {
			t.Errorf("%+v", tell)
		}
		q := frame.Ask{ID: "priv3", Verb: frame.Exec, Place: p, Run: &frame.Run{Lane: frame.Probe, Probe: "mounts", Limit: 10 * time.Second, MaxOutput: 40000}}
		done(t, w.ask(q))
	})
	t.Run("as a service, closed as its unit closes it", func(t *testing.T) {
		n.closedService(t, w)
	})
	t.Run("a dead man's switch outlives the bridge", func(t *testing.T) {
		word := func(w *wire, id string, args map[string]string) frame.Tell {
			return w.ask(frame.Ask{ID: id, Verb: frame.Manage, Place: n.at(), Word: &frame.Word{Name: "dead_man", Args: args}})
		}
		fw := filepath.Join(guestlab.PVE, "firewall/cluster.fw")
		before, err := os.ReadFile(fw)
		if err != nil {
			t.Fatal(err)
		}
		d := n.host.Dial(t, door, n.lab.Signer)
		w := n.open(t, d, "")
		if tell := word(w, "dm1.1", map[string]string{"action": "arm", "what": "firewall", "seconds": "10"}); tell.Ending != frame.Done {
			t.Fatalf("%+v", tell)
		}
		if err := os.WriteFile(fw, []byte("[OPTIONS]\nenable: 1\n"), 0o640); err != nil {
			t.Fatal(err)
		}
		d.Close()
		n.host.CutSessions()
		for end := time.Now().Add(40 * time.Second); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
			if now, err := os.ReadFile(fw); err == nil && bytes.Equal(now, before) {
				return
			}
		}
		t.Error("it was not put back")
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
		if e.Verb == string(frame.Exec) && !strings.Contains(e.Peer, "10.99.0.") && e.Peer != "http" {
			t.Errorf("it does not say from where: %q", l)
			break
		}
	}
}
