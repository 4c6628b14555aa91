//go:build linux

package guestlab

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

func TestGuest(t *testing.T) {
	lab := Open(t)
	for name, g := range map[string]Guest{"privileged": {}, "unprivileged": {Unprivileged: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begun := time.Now()
			c := lab.Start(t, g)
			t.Logf("up after %s", time.Since(begun))
			if got := c.Run(t, "uname", "-n"); got != c.Name {
				t.Errorf("its name is %q", got)
			}
			if got := c.Run(t, "cat", "/proc/self/uid_map"); strings.Fields(got)[1] == "0" == g.Unprivileged {
				t.Errorf("its accounts: %q", got)
			}
			if r := c.Exec(t, "sh", "-c", "echo out; echo err >&2; exit 3"); r.Code != 3 || string(r.Stdout) != "out\n" || string(r.Stderr) != "err\n" {
				t.Errorf("exec: %+v", r)
			}
			if r := c.Exec(t, "sh", "-c", "kill -TERM $$"); r.Code != 128+15 {
				t.Errorf("a signal: %+v", r)
			}
			if got := c.Run(t, "env"); strings.Contains(got, "GUESTLAB") {
				t.Errorf("the environment of the tests is in the guest: %s", got)
			}
			if text, err := os.ReadFile(filepath.Join(c.Root, "etc/hostname")); err != nil || strings.TrimSpace(string(text)) != c.Name {
				t.Errorf("its root from outside: %q %v", text, err)
			}
			s, err := c.Dial(t).NewSession()
			if err != nil {
				t.Fatal(err)
			}
			if out, err := s.Output("id -u"); err != nil || string(out) != "0\n" {
				t.Errorf("over its sshd: %q %v", out, err)
			}
			pid := c.Init()
			if cg, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid)); err != nil || !strings.Contains(string(cg), fmt.Sprintf("0::/lxc/%d/ns/", c.ID)) {
				t.Errorf("its control group: %q %v", cg, err)
			}
		})
	}
}

func TestPower(t *testing.T) {
	t.Parallel()
	c := Open(t).Start(t, Guest{Unprivileged: true})
	first := c.BootID(t)
	c.Run(t, "sh", "-c", "echo kept >/root/kept; touch /run/lost")
	c.PowerLoss(t)
	if c.Running() || c.Init() != 0 {
		t.Error("it runs without power")
	}
	c.Boot(t)
	second := c.BootID(t)
	if got := c.Run(t, "sh", "-c", "cat /root/kept; ls /run/lost 2>/dev/null | wc -l"); got != "kept\n0" {
		t.Errorf("after a loss of power: %q", got)
	}
	begun := time.Now()
	c.Reboot(t)
	t.Logf("rebooted in %s", time.Since(begun))
	if third := c.BootID(t); first == second || second == third {
		t.Errorf("boot ids: %s %s %s", first, second, third)
	}
	c.Shutdown(t)
	if c.Running() {
		t.Error("it runs after a shutdown")
	}
}

func TestCut(t *testing.T) {
	t.Parallel()
	c := Open(t).Start(t, Guest{})
	c.Cut(t)
	if conn, err := net.DialTimeout("tcp", c.Address+":22", 300*time.Millisecond); err == nil {
		conn.Close()
		t.Error("it answers with its network cut")
	}
	c.Join(t)
	if err := c.answers(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestFullDisk(t *testing.T) {
	t.Parallel()
	c := Open(t).Start(t, Guest{Disk: "16m"})
	if r := c.Exec(t, "dd", "if=/dev/zero", "of=/root/fill", "bs=1M", "count=64"); r.Code == 0 || !strings.Contains(string(r.Stderr), "No space left") {
		t.Errorf("writing more than there is: %+v", r)
	}
}

// The machine that runs the tests must not see what is changed in the lab.
func TestPrivate(t *testing.T) {
	Open(t)
	for _, dir := range []string{"/etc", "/usr", "/run"} {
		var here, one unix.Stat_t
		if err := errors.Join(unix.Stat(dir, &here), unix.Stat("/", &one)); err != nil {
			t.Fatal(err)
		}
		if here.Dev == one.Dev {
			t.Errorf("%s is the machine's own", dir)
		}
	}
	links, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		if l.Name != "lo" && l.Name != "vmbr0" && !strings.HasPrefix(l.Name, "veth") && l.Flags&net.FlagUp != 0 {
			t.Errorf("%s is up in here", l.Name)
		}
	}
	if name, err := os.Hostname(); err != nil || name != Node {
		t.Errorf("the node is called %q %v", name, err)
	}
}

func TestSweep(t *testing.T) {
	tmp := t.TempDir()
	held := map[string]*os.File{}
	for _, name := range []string{"guestlab.left", "guestlab.held", "guestlab.new", "other"} {
		if err := os.Mkdir(filepath.Join(tmp, name), 0o755); err != nil {
			t.Fatal(err)
		}
		f, err := os.Create(filepath.Join(tmp, name, "held"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		held[name] = f
		if name != "guestlab.new" {
			old := time.Now().Add(-time.Hour)
			if err := os.Chtimes(f.Name(), old, old); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := unix.Flock(int(held["guestlab.held"].Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	sweep(tmp, filepath.Join(tmp, "groups"))
	rows, err := os.ReadDir(tmp)
	if err != nil || len(rows) != 3 || rows[0].Name() != "guestlab.held" || rows[1].Name() != "guestlab.new" || rows[2].Name() != "other" {
		t.Errorf("after sweeping: %v %v", rows, err)
	}
}
