//go:build linux

package guestlab

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

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
