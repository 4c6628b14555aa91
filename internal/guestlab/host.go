//go:build linux

package guestlab

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"
)

//go:embed node
var nodeFiles embed.FS

// writeCommands puts the stand-ins where a node has the real ones.
func writeCommands(lab string) error {
	rows, err := nodeFiles.ReadDir("node")
	if err != nil {
		return fmt.Errorf("write the node's commands: %w", err)
	}
	for _, r := range rows {
		text, err := nodeFiles.ReadFile("node/" + r.Name())
		if err == nil {
			err = os.WriteFile(filepath.Join("/usr/sbin", r.Name()), bytes.ReplaceAll(text, []byte("@LAB@"), []byte(lab)), 0o755)
		}
		if err != nil {
			return fmt.Errorf("write the node's commands: %w", err)
		}
	}
	// What a session of a node's sshd goes through, without the parts that ask a systemd of the node.
	pam := "auth required pam_unix.so\naccount required pam_unix.so\nsession required pam_unix.so\n"
	if err := errors.Join(os.MkdirAll("/etc/pam.d", 0o755), os.WriteFile("/etc/pam.d/sshd", []byte(pam), 0o644)); err != nil {
		return fmt.Errorf("write the node's commands: %w", err)
	}
	return nil
}

// HostConfig says who may come in to the node's sshd.
type HostConfig struct {
	// AuthorizedKeys are the lines for each account; see Lab.Account for accounts. "root" is there.
	AuthorizedKeys map[string][]string
	Lines          []string // more of sshd_config, "Keyword value"
}

// Host is a running sshd of the node.
type Host struct {
	Address string // "10.99.0.1:2200"; guests reach it too, and 127.0.0.1 has it as well
	HostKey ssh.PublicKey
	dir     string
	cmd     *exec.Cmd
	argv    []string
}

// Host starts an sshd of the node. It ends with the test, as its sessions do.
func (l *Lab) Host(t testing.TB, cfg HostConfig) *Host {
	t.Helper()
	port := l.take(t, "port", 0, 2200, 2999)
	h := &Host{Address: fmt.Sprintf("10.99.0.1:%d", port), dir: filepath.Join(l.dir, fmt.Sprintf("host-%d", port))}
	keys := filepath.Join(h.dir, "keys")
	if err := errors.Join(os.MkdirAll(keys, 0o755), writeKey(filepath.Join(h.dir, "host_key"))); err != nil {
		t.Fatalf("guestlab: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(h.dir) }) // on a tmpfs that ends with the lab
	public, err := os.ReadFile(filepath.Join(h.dir, "host_key.pub"))
	if err == nil {
		h.HostKey, _, _, _, err = ssh.ParseAuthorizedKey(public)
	}
	if err != nil {
		t.Fatalf("guestlab: %v", err)
	}
	for account, lines := range cfg.AuthorizedKeys {
		if err := os.WriteFile(filepath.Join(keys, account), []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
			t.Fatalf("guestlab: %v", err)
		}
	}
	conf := fmt.Sprintf("Port %d\nHostKey %s/host_key\nAuthorizedKeysFile %s/%%u\nPidFile none\nUsePAM yes\nStrictModes no\nUseDNS no\nPasswordAuthentication no\n"+
		"KbdInteractiveAuthentication no\nMaxStartups 100:30:200\nMaxSessions 100\nAcceptEnv LANG LC_*\nSubsystem sftp internal-sftp\n%s\n", port, h.dir, keys, strings.Join(cfg.Lines, "\n"))
	if err := os.WriteFile(filepath.Join(h.dir, "sshd_config"), []byte(conf), 0o644); err != nil {
		t.Fatalf("guestlab: %v", err)
	}
	sshd, err := exec.LookPath("sshd")
	if err != nil {
		t.Fatalf("guestlab: %v", err)
	}
	h.argv = []string{sshd, "-D", "-f", filepath.Join(h.dir, "sshd_config"), "-E", filepath.Join(h.dir, "log")}
	h.Up(t)
	t.Cleanup(h.Down)
	return h
}

// Up starts the sshd again after Down.
func (h *Host) Up(t testing.TB) {
	t.Helper()
	h.cmd = exec.Command(h.argv[0], h.argv[1:]...) // sshd insists on an absolute path
	h.cmd.Dir = "/"
	h.cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	if err := h.cmd.Start(); err != nil {
		t.Fatalf("guestlab: start sshd: %v", err)
	}
	for range 200 {
		conn, err := net.DialTimeout("tcp", h.Address, 200*time.Millisecond)
		if err == nil {
			conn.Close()
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("guestlab: the node's sshd does not answer: %s", h.Log())
}

// Down ends the sshd and its sessions. What the sessions had started is left to see that by itself.
func (h *Host) Down() {
	if h.cmd == nil {
		return
	}
	h.CutSessions()
	_ = h.cmd.Process.Signal(syscall.SIGTERM)
	_ = h.cmd.Wait() // ended by a signal, which is no news
	h.cmd = nil
}

// CutSessions ends the processes that serve the sessions of this sshd, as a network that breaks does in the end.
func (h *Host) CutSessions() {
	if h.cmd == nil {
		return
	}
	servers := []int{h.cmd.Process.Pid}
	for i := 0; i < len(servers); i++ { // a session of an account has two of them, one below the other
		children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", servers[i], servers[i])) // one that is gone has none
		for _, f := range strings.Fields(string(children)) {
			name, _ := os.ReadFile("/proc/" + f + "/comm")
			if pid, err := strconv.Atoi(f); err == nil && strings.HasPrefix(string(name), "sshd") {
				servers = append(servers, pid)
			}
		}
	}
	for _, pid := range servers[1:] {
		_ = syscall.Kill(pid, syscall.SIGKILL) // gone already is what is wanted
	}
}

// Log is what the sshd has logged.
func (h *Host) Log() string {
	b, _ := os.ReadFile(filepath.Join(h.dir, "log")) // none yet is an empty one
	return string(b)
}

// Dial connects to the node's sshd with the key that the account's line names.
func (h *Host) Dial(t testing.TB, account string, key ssh.Signer) *ssh.Client {
	t.Helper()
	c, err := ssh.Dial("tcp", h.Address, &ssh.ClientConfig{User: account, Auth: []ssh.AuthMethod{ssh.PublicKeys(key)}, HostKeyCallback: ssh.FixedHostKey(h.HostKey), Timeout: 10 * time.Second})
	if err != nil {
		t.Fatalf("guestlab: dial the node as %s: %v\n%s", account, err, tail([]byte(h.Log()), 1000))
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// AuthorizedKey is the line for a key, with options before it ("restrict,command=\"…\"") or without.
func AuthorizedKey(options string, key ssh.PublicKey) string {
	line := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
	if options == "" {
		return line
	}
	return options + " " + line
}

// Account makes a system account of the node with a home folder, until the test ends. There is one /etc for all tests of a binary.
func (l *Lab) Account(t testing.TB, name string) {
	t.Helper()
	if err := withAccounts(func() error {
		_, err := must(t.Context(), 20*time.Second, "useradd", "--system", "--create-home", "--home-dir", "/var/lib/"+name, "--shell", "/bin/sh", name)
		return err
	}); err != nil {
		t.Fatalf("guestlab: %v", err)
	}
	t.Cleanup(func() {
		if err := withAccounts(func() error {
			r, err := run(context.Background(), 20*time.Second, nil, "userdel", "--remove", "--force", name)
			if err == nil && r.Code != 0 {
				err = fmt.Errorf("exit code %d: %s", r.Code, r.Stderr)
			}
			return err
		}); err != nil {
			t.Logf("guestlab: remove account %s: %v", name, err)
		}
	})
}

// withAccounts keeps others from changing the accounts: useradd gives up at once where the files are locked.
func withAccounts(do func() error) error {
	f, err := os.OpenFile("/run/lock/guestlab-accounts", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return err
	}
	return do()
}
