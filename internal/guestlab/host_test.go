//go:build linux

package guestlab

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

// over runs a line on the node through its sshd.
func over(t *testing.T, c *ssh.Client, line string) (code int, stdout, stderr string) {
	t.Helper()
	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var out, errs bytes.Buffer
	s.Stdout, s.Stderr = &out, &errs
	err = s.Run(line)
	var exit *ssh.ExitError
	if errors.As(err, &exit) {
		return exit.ExitStatus(), out.String(), errs.String()
	}
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return 0, out.String(), errs.String()
}

func TestPct(t *testing.T) {
	t.Parallel()
	lab := Open(t)
	g := lab.Start(t, Guest{Unprivileged: true})
	host := lab.Host(t, HostConfig{AuthorizedKeys: map[string][]string{"root": {AuthorizedKey("", lab.Signer.PublicKey())}}})
	c := host.Dial(t, "root", lab.Signer)
	id := g.Name[2:]
	for _, tt := range []struct {
		line           string
		code           int
		stdout, stderr string // parts
	}{
		{"hostname", 0, Node, ""},
		{"pct status " + id, 0, "status: running", ""},
		{"pct list", 0, g.Name, ""},
		{"pct config " + id, 0, "hwaddr=" + g.MAC, ""},
		{"pct exec " + id + " -- hostname", 0, g.Name, ""},
		{"pct exec " + id + " -- sh -c 'exit 7'", 7, "", ""},
		{"pct exec " + id + " -- sh -c 'kill -9 $$'", 137, "", ""},
		{"pct exec " + id + " -- no-such-program", 127, "", ""},
		{"pct exec " + id + " -- /etc/passwd", 126, "", ""},
		{"pct exec " + id + " -- printf '[%s]' 'a b' '$x;' ''", 0, "[a b][$x;][]", ""},
		{"LEAK=1 pct exec " + id + " -- env", 0, "LEAK=1", ""},
		{"LEAK=1 pct exec --keep-env 0 " + id + " -- env", 0, "container=lxc", ""},
		{"pct exec 4242 -- id", 255, "", "does not exist"},
		{"pct exec 0" + id + " -- id", 255, "", "type check"},
		{"pct nonsense", 255, "", "unknown command"},
		{"ha-manager crm-command node-maintenance enable " + Node + " && ha-manager status", 0, "maintenance mode", ""},
		{"ha-manager crm-command node-maintenance disable " + Node + " && ha-manager status", 0, "(idle", ""},
	} {
		code, stdout, stderr := over(t, c, tt.line)
		if code != tt.code || !strings.Contains(stdout, tt.stdout) || !strings.Contains(stderr, tt.stderr) {
			t.Errorf("%s: %d %q %q, want %d with %q and %q", tt.line, code, stdout, stderr, tt.code, tt.stdout, tt.stderr)
		}
	}
	if _, stdout, _ := over(t, c, "LEAK=1 pct exec --keep-env 0 "+id+" -- env"); strings.Contains(stdout, "LEAK") {
		t.Errorf("an environment that was not to be kept reached the guest: %q", stdout)
	}
	if code, _, stderr := over(t, c, "pct stop "+id+" && pct exec "+id+" -- id"); code != 255 || !strings.Contains(stderr, "not running") {
		t.Errorf("exec in a stopped guest: %d %q", code, stderr)
	}
}

func TestSnapshot(t *testing.T) {
	t.Parallel()
	lab := Open(t)
	g := lab.Start(t, Guest{Unprivileged: true})
	id := g.Name[2:]
	pct := func(args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), "pct", args...).CombinedOutput()
		if err != nil {
			t.Fatalf("pct %v: %v: %s", args, err, out)
		}
		return string(out)
	}
	g.Run(t, "sh", "-c", "echo before >/root/mark; rm /etc/issue")
	pct("snapshot", id, "one")
	g.Run(t, "sh", "-c", "echo after >/root/mark; touch /root/more; echo back >/etc/issue")
	if out := pct("listsnapshot", id); !strings.Contains(out, "one") || !strings.Contains(out, "You are here!") {
		t.Errorf("listsnapshot: %q", out)
	}
	if out := pct("config", id); !strings.Contains(out, "parent: one") {
		t.Errorf("config: %q", out)
	}
	pct("rollback", id, "one")
	if g.Running() {
		t.Error("a rolled back guest runs")
	}
	pct("start", id)
	if got := g.Run(t, "sh", "-c", "cat /root/mark; ls /root/more /etc/issue 2>&1 | wc -l"); got != "before\n2" {
		t.Errorf("after the rollback: %q", got)
	}
	pct("delsnapshot", id, "one")
	text, err := os.ReadFile(g.ConfigFile())
	if err != nil || strings.Contains(string(text), "one") {
		t.Errorf("configuration after the last snapshot: %v\n%s", err, text)
	}
	if err := exec.CommandContext(t.Context(), "pct", "rollback", id, "one").Run(); err == nil {
		t.Error("a removed snapshot was rolled back to")
	}
}

func TestAccountOfTheNode(t *testing.T) {
	t.Parallel()
	lab := Open(t)
	lab.Account(t, "visitor")
	if err := os.WriteFile("/etc/sudoers.d/visitor", []byte("visitor ALL=(root) NOPASSWD: /usr/sbin/pct list\n"), 0o440); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove("/etc/sudoers.d/visitor") }) // in the lab's own /etc
	forced := `restrict,from="10.99.0.1",command="echo \"$SSH_ORIGINAL_COMMAND\"; id -un; sudo -n pct list; sudo -n id -u; sleep 60"`
	host := lab.Host(t, HostConfig{AuthorizedKeys: map[string][]string{"visitor": {AuthorizedKey(forced, lab.Signer.PublicKey())}}})
	c := host.Dial(t, "visitor", lab.Signer)
	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	var out, errs lockedBuffer
	s.Stdout, s.Stderr = &out, &errs
	if err := s.Start("rm -rf /"); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); !strings.Contains(errs.String(), "password"); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("sudo did not refuse: %q %q", out.String(), errs.String())
		}
	}
	if got := out.String(); !strings.HasPrefix(got, "rm -rf /\nvisitor\nVMID ") || strings.Contains(got, "\n0\n") {
		t.Errorf("the forced command: %q", got)
	}
	if _, err := c.Dial("tcp", "127.0.0.1:22"); err == nil {
		t.Error("a restricted key forwards")
	}
	begun := time.Now()
	host.CutSessions()
	if err := s.Wait(); err == nil || time.Since(begun) > 5*time.Second {
		t.Errorf("a session that was cut ended with %v after %s", err, time.Since(begun))
	}
}

// lockedBuffer is a buffer that is read while it is written to.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
