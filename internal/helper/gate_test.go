//go:build linux

package helper

import (
	"bytes"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"castellan/internal/patch"
)

func dial(t *testing.T, h *house, from string) (*ssh.Client, error) {
	t.Helper()
	d := net.Dialer{Timeout: 10 * time.Second}
	if from != "" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
	}
	conn, err := d.Dial("tcp", h.Address+":22")
	if err != nil {
		t.Fatal(err)
	}
	c, chans, reqs, err := ssh.NewClientConn(conn, h.Address, &ssh.ClientConfig{User: Account, Auth: []ssh.AuthMethod{ssh.PublicKeys(h.lab.Signer)}, HostKeyCallback: ssh.FixedHostKey(keyOf(t, h.installed.HostKeys[0]))})
	if err != nil {
		conn.Close()
		return nil, err
	}
	client := ssh.NewClient(c, chans, reqs)
	t.Cleanup(func() { client.Close() })
	return client, nil
}

func session(t *testing.T, h *house) *ssh.Session {
	t.Helper()
	c, err := dial(t, h, "")
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// gate is what castellan's key opens in a guest, through its real sshd.
func gate(t *testing.T, h *house) {
	c, err := dial(t, h, "")
	if err != nil {
		t.Fatal(err)
	}
	run := func(command string, env ...string) (string, string, error) {
		t.Helper()
		s, err := c.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for _, name := range env {
			_ = s.Setenv(name, "/tmp/evil") // most are refused; what arrives has to do nothing
		}
		var out, errs bytes.Buffer
		s.Stdout, s.Stderr = &out, &errs
		err = s.Run(command)
		return out.String(), errs.String(), err
	}
	out, errs, err := run("status")
	if st, e := patch.ParseStatus([]byte(out), time.Now()); err != nil || e != nil || st.BootID == "" {
		t.Fatalf("status: %v %v %q %q", err, e, out, errs)
	}
	if out, errs, err = run("services", "LC_ALL", "LC_X", "LD_PRELOAD", "ENV", "PATH", "BASH_ENV", "SSH_ORIGINAL_COMMAND"); err != nil {
		t.Errorf("services: %v %q", err, errs)
	} else if house, err := patch.ParseServices([]byte(out)); err != nil || len(house.Units) < 3 || len(house.Ports) == 0 || len(house.Unread) > 0 {
		t.Errorf("services: %+v %v", house, err)
	}
	h.Run(t, "sh", "-c", "rm -rf /tmp/pwned; chmod 1777 /tmp")
	touch := "touch /tmp/pwned"
	for _, command := range []string{"", " ", "status;" + touch, "status; " + touch, "status && " + touch, "status | " + touch, "status & " + touch, "$(" + touch + ")", "`" + touch + "`", "status $(" + touch + ")",
		"status\n" + touch, "status\n", "\nstatus", " status", "status ", "status x", "status -- x", "stat*", "s?atus", "[s]tatus", "STATUS", "status>/tmp/pwned", "check|status", "hook", "detached", "sh", "sh -c '" + touch + "'",
		"/bin/sh", "/usr/local/sbin/castellan-helper status", "scp -t /tmp", "sftp", "internal-sftp", "/usr/lib/openssh/sftp-server", "rsync --server . /tmp", "-c status", "--", "status\r", "ѕtatus", "upgrade-full",
		"status" + strings.Repeat("x", 100_000), strings.Repeat("status ", 10_000)} {
		out, errs, err := run(command)
		if err == nil || out != "" {
			t.Errorf("%.60q was taken: %.200q %.200q", command, out, errs)
		}
	}
	if r := h.Exec(t, "test", "-e", "/tmp/pwned"); r.Code == 0 {
		t.Error("a command came through")
	}
	// Neither a shell, a terminal, another subsystem, nor a way on.
	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.RequestPty("xterm", 24, 80, nil); err == nil {
		t.Error("there is a terminal")
	}
	if err := s.RequestSubsystem("sftp"); err == nil {
		out, _ := io.ReadAll(io.LimitReader(pipe(t, s), 100)) // whatever comes
		if len(out) > 0 {
			t.Errorf("sftp answers %q", out)
		}
	}
	s.Close()
	if s, err = c.NewSession(); err != nil {
		t.Fatal(err)
	}
	if ok, err := s.SendRequest("x11-req", true, ssh.Marshal(struct {
		Single   bool
		Protocol string
		Cookie   string
		Screen   uint32
	}{false, "MIT-MAGIC-COOKIE-1", "00", 0})); err == nil && ok {
		t.Error("X11 is forwarded")
	}
	if ok, err := s.SendRequest("auth-agent-req@openssh.com", true, nil); err == nil && ok {
		t.Error("the agent is forwarded")
	}
	s.Close()
	if conn, err := c.Dial("tcp", "127.0.0.1:22"); err == nil {
		conn.Close()
		t.Error("ports are forwarded")
	}
	if l, err := c.Listen("tcp", "127.0.0.1:2222"); err == nil {
		l.Close()
		t.Error("ports are forwarded back")
	}
	shell(t, "/", "ip address add 10.99.250.1/32 dev vmbr0 2>/dev/null || true")
	if _, err := dial(t, h, "10.99.250.1"); err == nil {
		t.Error("the key is good from another address")
	}
	// As the account, without the gate: sudo takes the words and nothing else, and nothing of its own can be changed by it.
	as := func(command string) int {
		return h.Exec(t, "setpriv", "--reuid", Account, "--regid", Account, "--init-groups", "sh", "-c", command).Code
	}
	if as("sudo -n /usr/local/sbin/castellan-helper status >/dev/null") != 0 {
		t.Error("the account cannot have the helper run")
	}
	for _, command := range []string{"sudo -n id", "sudo -n /usr/local/sbin/castellan-helper", "sudo -n /usr/local/sbin/castellan-helper hook", "sudo -n /usr/local/sbin/castellan-helper detached", "sudo -n /usr/local/sbin/castellan-helper status x",
		"sudo -n -u daemon /usr/local/sbin/castellan-helper status", "sudo -n LD_PRELOAD=/tmp/x /usr/local/sbin/castellan-helper status", "sudo -n -E /usr/local/sbin/castellan-helper status",
		"echo x >>~castellan/.ssh/authorized_keys", "rm -f ~castellan/.ssh/authorized_keys", "mv ~castellan/.ssh ~castellan/x", "touch ~castellan/.ssh/rc", "touch ~castellan/.profile", "echo >>/usr/local/sbin/castellan-gate", "ls /var/lib/castellan/log"} {
		if as(command) == 0 {
			t.Errorf("the account may %q", command)
		}
	}
	// What castellan asks for is read strictly.
	for _, input := range []string{"", "id a\n", "id a\nnewer 0\nupgrade a:all 1 2 A:b\nend\n", "id a\nnewer 0\nguest \nupgrade a:all 1 2 A:b\nend\n", "id a\nnewer 0\nguest $(id)\nupgrade a:all 1 2 A:b\nend\n",
		"id a\nnewer 0\nguest .*\nupgrade a:all 1 2 A:b\nend\n", "id a\nnewer 0\nguest bc:24:11:00:00:0f\nupgrade a:all 1 2 A:b\nend\n", "id a\nnewer 0\nguest -\nend\n", "id a\nnewer 2\nguest -\nupgrade a:all 1 2 A:b\nend\n", "id ../a\nnewer 0\nguest -\nupgrade a:all 1 2 A:b\nend\n", "id a\nnewer 0\nguest -\nupgrade a:all 1 2 A:b\n", "id a\nnewer 0\nguest -\nremove a:all 1 - -\nend\n",
		"id a\nnewer 0\nguest -\nupgrade a:all 1 $(id) A:b\nend\n", "id a\nnewer 0\nguest -\nupgrade -o:all 1 2 A:b\nend\n", "id a\nnewer 0\nguest -\nupgrade a:all 1 2 A:b\nupgrade a:all 1 3 A:b\nend\n", "id a\nnewer 0\nguest -\nupgrade a:all 1 2 A:b\nend\nx\n", "id a\nnewer 0\nguest -\nupgrade a:all 1 2 A:b \nend\n",
		"id a\nnewer 0\nguest -\nupgrade a:all 1 2 A:b\x00\nend\n", "id a\nnewer 0\nguest -\nupgrade a:all  1 2 A:b\nend\n", "id a\nnewer 0\nguest -\n" + strings.Repeat("upgrade a:all 1 2 A:b\n", 30_000) + "end\n"} {
		st, err := patch.ParseStarted(h.word(t, patch.UpgradeAll, input))
		if err != nil || st.Refused == "" {
			t.Errorf("%.80q: %+v %v", input, st, err)
		}
	}
	// A copy of a guest has its keys, and what is meant for the one is not done in the other.
	for cards, want := range map[string]string{"bc:24:11:00:00:0f,bc:24:11:00:00:10": "another machine", "00:00:00:00:00:0": "another machine", h.MAC[:14]: "another machine", h.MAC + "0": "another machine"} {
		st, err := patch.ParseStarted(h.word(t, patch.UpgradeAll, "id copy.1\nnewer 0\nguest "+strings.ToLower(cards)+"\nupgrade a:all 1 2 A:b\nend\n"))
		if err != nil || !strings.Contains(st.Refused, want) {
			t.Errorf("meant for %s: %+v %v", cards, st, err)
		}
	}
	if o := h.result(t); o.State != "none" {
		t.Errorf("something was started: %+v", o)
	}
}

func pipe(t *testing.T, s *ssh.Session) io.Reader {
	t.Helper()
	p, err := s.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	return p
}
