//go:build linux

package bridge

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"castellan/internal/frame"
	"castellan/internal/guestlab"
)

// machine is a node that is a whole system: systemd as its first process, ifupdown2, sudo and an sshd of its own, with the
// program installed by its installer. What happens to its network happens to nobody else's.
type machine struct {
	*guestlab.Container
	lab  *guestlab.Lab
	site string
}

func newMachine(t *testing.T, settings string, install ...string) *machine {
	t.Helper()
	lab := guestlab.Open(t)
	program := buildProgram(t)
	m := &machine{lab: lab, Container: lab.Start(t, guestlab.Guest{Debs: []string{"ifupdown2"}, Prepare: func(root string) error {
		text, err := os.ReadFile(program)
		if err != nil {
			return err
		}
		if err := os.CopyFS(filepath.Join(root, "etc/pve"), os.DirFS(guestlab.PVE)); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(root, "root/castellan"), text, 0o755)
	}})}
	m.put(t, "etc/network/interfaces", m.interfaces(m.Address))
	m.Run(t, "systemctl", "start", "networking")
	m.reload(t)
	key := string(ssh.MarshalAuthorizedKey(lab.Signer.PublicKey()))
	m.Run(t, append([]string{"/root/castellan", "bridge", "install", "--key", key, "--from", "10.99.0.0/16", "--yes"}, install...)...)
	m.put(t, "etc/castellan-bridge/bridge.toml", fmt.Sprintf("node = %q\nwords = [\"dead_man\"]\n%s", guestlab.Node, settings))
	m.Run(t, "chmod", "600", "/etc/castellan-bridge/bridge.toml")
	if out := m.Exec(t, ProgramPath, "bridge", "check"); out.Code != 0 {
		t.Fatalf("check: %s %s", out.Stdout, out.Stderr)
	}
	return m
}

func (m *machine) interfaces(address string) string {
	return fmt.Sprintf("auto lo\niface lo inet loopback\n\nauto eth0\niface eth0 inet static\n\taddress %s/16\n", address)
}

// reload brings its interfaces into force, once nobody else does.
func (m *machine) reload(t *testing.T) {
	t.Helper()
	for range 50 {
		switch out := m.Exec(t, "ifreload", "-a"); {
		case out.Code == 0:
			return
		case !strings.Contains(string(out.Stderr)+string(out.Stdout), "already running"):
			t.Fatalf("ifreload: %s%s", out.Stdout, out.Stderr)
		}
		time.Sleep(200 * time.Millisecond)
	}
	t.Fatalf("ifreload runs and does not end: %s\n%s", m.Exec(t, "ps", "axf").Stdout, m.Exec(t, "sh", "-c", "ls -la /run/network; systemctl status networking; journalctl -n 30 --no-pager").Stdout)
}

func (m *machine) put(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(m.Root, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (m *machine) read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(m.Root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// asks opens a session as castellan does and asks over it.
func (m *machine) asks(t *testing.T) func(id string, args map[string]string) frame.Tell {
	t.Helper()
	c, err := ssh.Dial("tcp", net.JoinHostPort(m.Address, "22"), &ssh.ClientConfig{User: door, Auth: []ssh.AuthMethod{ssh.PublicKeys(m.lab.Signer)}, HostKeyCallback: ssh.FixedHostKey(m.HostKey), Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	n := &node{}
	w := n.open(t, c, "")
	m.site = n.site
	return func(id string, args map[string]string) frame.Tell {
		return w.ask(frame.Ask{ID: id, Verb: frame.Manage, Place: frame.Place{Site: m.site, Node: guestlab.Node, Where: frame.Host}, Word: &frame.Word{Name: wordDeadMan, Args: args}})
	}
}

func (m *machine) reached() bool {
	c, err := net.DialTimeout("tcp", net.JoinHostPort(m.Address, "22"), 300*time.Millisecond)
	if err != nil {
		return false
	}
	return c.Close() == nil
}

// back waits until the machine is reached again.
func (m *machine) back(t *testing.T, within time.Duration) {
	t.Helper()
	for end := time.Now().Add(within); !m.reached(); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it is not reached again: %s\n%s", m.Exec(t, "ip", "-br", "address").Stdout, m.Exec(t, "journalctl", "-n", "50", "--no-pager").Stdout)
		}
	}
}

// cut changes the network as apply_network does, so that nobody gets in by the old way.
func (m *machine) cut(t *testing.T) {
	t.Helper()
	m.put(t, "etc/network/interfaces", m.interfaces("10.99.250.250"))
	m.reload(t)
	if m.reached() {
		t.Fatal("the change does not cut the way")
	}
}

func TestADeadMansSwitchOnAWholeSystem(t *testing.T) {
	if testing.Short() {
		t.Skip("it boots a machine and waits")
	}
	m := newMachine(t, "")
	before := m.interfaces(m.Address)
	arm := func(what string, seconds string) map[string]string {
		return map[string]string{"action": "arm", "what": what, "seconds": seconds}
	}
	t.Run("a way that was cut is put back in time", func(t *testing.T) {
		word := m.asks(t)
		began := time.Now()
		if tell := word("plan1.1", arm("network", "10")); tell.Ending != frame.Done || !strings.Contains(tell.Text, "systemd") {
			t.Fatalf("%+v", tell)
		}
		if out := m.Run(t, "systemctl", "list-units", "--plain", "--no-legend", "castellan-deadman-*"); !strings.Contains(out, "castellan-deadman-plan1.network.service") {
			t.Errorf("who waits: %q", out)
		}
		m.Run(t, "systemctl", "kill", "--signal=KILL", "castellan-deadman-plan1.network.service") // it is started anew
		m.put(t, "etc/network/interfaces.d/new", "# a new one\n")
		m.cut(t)
		m.back(t, 30*time.Second)
		if took := time.Since(began); took < 9*time.Second || m.read(t, "etc/network/interfaces") != before {
			t.Errorf("after %s: %s", took, m.read(t, "etc/network/interfaces"))
		}
		if exists(filepath.Join(m.Root, "etc/network/interfaces.d/new")) || m.read(t, "var/lib/castellan-bridge/deadman-plan1.network/new-new") == "" {
			t.Error("a new file stays, or left no copy")
		}
		if tell := m.asks(t)("plan1.4", map[string]string{"action": "confirm", "what": "network"}); tell.Ending != frame.Refused || !strings.Contains(tell.Reason, "too late") {
			t.Errorf("%+v", tell)
		}
	})
	t.Run("what was confirmed stays", func(t *testing.T) {
		word := m.asks(t)
		if tell := word("plan2.1", arm("network", "10")); tell.Ending != frame.Done {
			t.Fatalf("%+v", tell)
		}
		after := before + "\n# kept\n"
		m.put(t, "etc/network/interfaces", after)
		if tell := m.asks(t)("plan3.4", map[string]string{"action": "confirm", "what": "network"}); tell.Ending != frame.Refused {
			t.Errorf("another plan confirms it: %+v", tell)
		}
		if tell := m.asks(t)("plan2.4", map[string]string{"action": "confirm", "what": "network"}); tell.Ending != frame.Done {
			t.Fatalf("%+v", tell)
		}
		time.Sleep(12 * time.Second)
		if got := m.read(t, "etc/network/interfaces"); got != after {
			t.Errorf("%s", got)
		}
		m.put(t, "etc/network/interfaces", before)
	})
	t.Run("it outlives a restart of the node", func(t *testing.T) {
		if tell := m.asks(t)("plan4.1", arm("network", "12")); tell.Ending != frame.Done {
			t.Fatalf("%+v", tell)
		}
		m.put(t, "etc/network/interfaces", m.interfaces("10.99.250.250"))
		m.PowerLoss(t)
		m.Boot(t) // LXC gives it its address; what the file says comes with the next reload
		for end := time.Now().Add(40 * time.Second); m.read(t, "etc/network/interfaces") != before; time.Sleep(200 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s\n%s", m.read(t, "etc/network/interfaces"), m.Exec(t, "journalctl", "-n", "50", "--no-pager").Stdout)
			}
		}
		m.back(t, 20*time.Second)
	})
	t.Run("a firewall is put back too", func(t *testing.T) {
		fw := m.read(t, "etc/pve/firewall/cluster.fw")
		if tell := m.asks(t)("plan5.1", arm("firewall", "10")); tell.Ending != frame.Done {
			t.Fatalf("%+v", tell)
		}
		m.put(t, "etc/pve/firewall/cluster.fw", "[OPTIONS]\nenable: 1\npolicy_in: DROP\n")
		// Whoever waits is gone, and the node was not restarted: the next connection sees to it.
		m.Run(t, "systemctl", "stop", "castellan-deadman-plan5.firewall.service")
		if tell := m.asks(t)("plan6.1", arm("firewall", "10")); tell.Ending != frame.Refused {
			t.Errorf("%+v", tell)
		}
		for end := time.Now().Add(30 * time.Second); m.read(t, "etc/pve/firewall/cluster.fw") != fw; time.Sleep(200 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal(m.read(t, "etc/pve/firewall/cluster.fw"))
			}
		}
	})
}
