//go:build linux

package bridge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"castellan/internal/frame"
	"castellan/internal/guestlab"
)

// caller asks a service as castellan does.
type caller struct {
	t      *testing.T
	url    string
	secret string
	client *http.Client
}

func (c caller) ask(a frame.Ask) (tell frame.Tell, status int, err error) {
	c.t.Helper()
	a.V = frame.Version
	body, err := json.Marshal(a)
	if err != nil {
		c.t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, c.url+AsksPath, bytes.NewReader(append(body, '\n')))
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set(SecretHeader, c.secret)
	res, err := c.client.Do(r)
	if err != nil {
		return tell, 0, err
	}
	defer res.Body.Close()
	for read := frame.NewReader(res.Body); res.StatusCode == http.StatusOK; {
		var next frame.Tell
		if read.Next(&next) != nil {
			break
		}
		if tell = next; tell.Ending != "" || tell.Hello != nil {
			break
		}
	}
	return tell, res.StatusCode, nil
}

// hello asks until it answers.
func (c caller) hello() *frame.Self {
	c.t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(200 * time.Millisecond) {
		tell, status, err := c.ask(frame.Ask{ID: "hello", Verb: frame.Hello})
		if tell.Hello != nil {
			return tell.Hello
		}
		if time.Now().After(end) {
			c.t.Fatalf("the service does not answer: %d %v %+v", status, err, tell)
		}
	}
}

// inNetworkOf dials from another network namespace; the connection stays in it.
func inNetworkOf(pid int) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		type dialled struct {
			conn net.Conn
			err  error
		}
		out := make(chan dialled, 1)
		go func() {
			runtime.LockOSThread() // never given back: the thread ends with this
			f, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
			if err == nil {
				err = errors.Join(unix.Setns(int(f.Fd()), unix.CLONE_NEWNET), f.Close())
			}
			if err != nil {
				out <- dialled{nil, err}
				return
			}
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				out <- dialled{nil, err}
				return
			}
			host, port, _ := net.SplitHostPort(address)
			number, _ := strconv.Atoi(port)
			if err = unix.Connect(fd, &unix.SockaddrInet4{Port: number, Addr: [4]byte(net.ParseIP(host).To4())}); err != nil {
				out <- dialled{nil, errors.Join(err, unix.Close(fd))}
				return
			}
			file := os.NewFile(uintptr(fd), "connection")
			defer file.Close()
			conn, err := net.FileConn(file)
			out <- dialled{conn, err}
		}()
		d := <-out
		return d.conn, d.err
	}
}

// The service under a real systemd: installed, started with its secret, closed as its unit says, asked, started anew, and
// removed without a trace.
func TestTheServiceUnderSystemd(t *testing.T) {
	if testing.Short() {
		t.Skip("it boots a machine")
	}
	m := newMachine(t, "[lanes]\nhost = [\"probe\", \"script\"]\n")
	m.Run(t, "/root/castellan", "bridge", "install", "--service", "--yes")
	show := func(keys ...string) map[string]string {
		t.Helper()
		out := map[string]string{}
		for line := range strings.Lines(m.Run(t, "systemctl", "show", serviceUnit, "--property="+strings.Join(keys, ","))) {
			k, v, _ := strings.Cut(strings.TrimSpace(line), "=")
			out[k] = v
		}
		return out
	}
	if got := show("ActiveState", "UnitFileState"); got["ActiveState"] != "inactive" || got["UnitFileState"] != "enabled" {
		t.Errorf("without a secret it would only fail: %v", got)
	}
	secret, line := NewSecret()
	settings := fmt.Sprintf("node = %q\n[lanes]\nhost = [\"probe\", \"script\"]\n[service]\nsecret = \"/etc/castellan-bridge/service-secret\"\n", guestlab.Node)
	m.put(t, "etc/castellan-bridge/service-secret", line)
	m.put(t, "etc/castellan-bridge/bridge.toml", settings)
	m.Run(t, "chmod", "600", "/etc/castellan-bridge/service-secret", "/etc/castellan-bridge/bridge.toml")
	m.Run(t, "systemctl", "restart", "castellan-bridge")
	transport := &http.Transport{DialContext: inNetworkOf(m.Init()), DisableKeepAlives: true}
	c := caller{t: t, url: "http://127.0.0.1:8129", secret: secret, client: &http.Client{Transport: transport, Timeout: time.Minute}}
	at := frame.Place{Site: c.hello().Site, Node: guestlab.Node, Where: frame.Host}
	probe := func(id string) {
		t.Helper()
		tell, status, err := c.ask(frame.Ask{ID: id, Verb: frame.Exec, Place: at, Run: &frame.Run{Lane: frame.Probe, Probe: "disk", Limit: 20 * time.Second, MaxOutput: 40000}})
		if err != nil || status != http.StatusOK {
			t.Fatalf("%d %v %+v", status, err, tell)
		}
		if r := done(t, tell); *r.Code != 0 || !strings.Contains(text(r.Out), "/") {
			t.Errorf("%d %s", *r.Code, text(r.Err))
		}
	}
	probe("one")
	wrong := c
	wrong.secret = "x"
	if _, status, err := wrong.ask(frame.Ask{ID: "wrong", Verb: frame.Hello}); err != nil || status != http.StatusUnauthorized {
		t.Errorf("with another secret: %d %v", status, err)
	}
	// It listens on loopback alone.
	if conn, err := net.DialTimeout("tcp", net.JoinHostPort(m.Address, "8129"), time.Second); err == nil {
		conn.Close()
		t.Error("it is reached from outside")
	}
	got := show("ProtectSystem", "ProtectHome", "ReadWritePaths", "NoNewPrivileges", "PrivateTmp", "RestrictAddressFamilies", "CapabilityBoundingSet", "UMask", "MainPID", "KillMode")
	for k, want := range map[string]string{"ProtectSystem": "full", "ProtectHome": "read-only", "ReadWritePaths": "-/etc/pve", "NoNewPrivileges": "no", "PrivateTmp": "no", "UMask": "0077", "KillMode": "mixed"} {
		if got[k] != want {
			t.Errorf("%s is %q, want %q", k, got[k], want)
		}
	}
	for _, family := range []string{"AF_UNIX", "AF_INET6", "AF_NETLINK"} {
		if !strings.Contains(got["RestrictAddressFamilies"], family) || strings.Contains(got["RestrictAddressFamilies"], "AF_BLUETOOTH") {
			t.Errorf("families: %q", got["RestrictAddressFamilies"])
		}
	}
	if caps := got["CapabilityBoundingSet"]; strings.Contains(caps, "cap_sys_module") || strings.Contains(caps, "cap_sys_time") || !strings.Contains(caps, "cap_sys_admin") || !strings.Contains(caps, "cap_sys_ptrace") {
		t.Errorf("capabilities: %q", caps)
	}
	// And it is so: as the process itself sees it.
	for _, dir := range []string{"/usr", "/etc", "/root"} {
		name := dir + "/castellan-writes"
		if out := m.Exec(t, "nsenter", "-t", got["MainPID"], "-m", "touch", name); out.Code == 0 || !strings.Contains(string(out.Stderr), "Read-only") {
			t.Errorf("%s: %d %s", name, out.Code, out.Stderr)
		}
	}
	for _, name := range []string{"/etc/pve/castellan-writes", "/var/lib/castellan-bridge/writes", "/var/log/castellan-writes"} {
		if out := m.Exec(t, "nsenter", "-t", got["MainPID"], "-m", "sh", "-c", "touch "+name+" && rm "+name); out.Code != 0 {
			t.Errorf("%s: %d %s", name, out.Code, out.Stderr)
		}
	}
	if out := m.Exec(t, ProgramPath, "bridge", "check"); out.Code != 0 {
		t.Errorf("check: %s %s", out.Stdout, out.Stderr)
	}
	// A run outlives a restart or is ended by it, and the service answers again.
	m.Run(t, "systemctl", "restart", "castellan-bridge")
	c.hello()
	probe("two")
	if now := show("MainPID", "NRestarts"); now["MainPID"] == got["MainPID"] || now["MainPID"] == "0" || now["NRestarts"] != "0" {
		t.Errorf("%v", now)
	}
	// It is started anew when it dies.
	m.Run(t, "systemctl", "kill", "--signal=KILL", "castellan-bridge")
	c.hello()
	// Scripts as root of the node find the node as it is: then the unit is another, and check says so until it is.
	_, root := NewSecret()
	m.put(t, "etc/castellan-bridge/root-secret", root)
	m.put(t, "etc/castellan-bridge/bridge.toml", settings+"[root]\nenabled = true\nsecret = \"/etc/castellan-bridge/root-secret\"\n")
	m.Run(t, "chmod", "600", "/etc/castellan-bridge/root-secret")
	if out := m.Exec(t, ProgramPath, "bridge", "check"); out.Code == 0 || !strings.Contains(string(out.Stdout), "not the one for these settings") {
		t.Errorf("check: %d %s", out.Code, out.Stdout)
	}
	m.Run(t, ProgramPath, "bridge", "install", "--service", "--yes")
	if now := show("ProtectSystem", "ProtectHome", "RestrictAddressFamilies"); now["ProtectSystem"] != "no" || now["ProtectHome"] != "no" || now["RestrictAddressFamilies"] == "" {
		t.Errorf("%v", now)
	}
	m.Run(t, "/root/castellan", "bridge", "uninstall", "--yes")
	for _, p := range []string{settingsDir, sudoersPath, doorHome, runnerHome, "/var/lib/castellan-bridge", "/var/log/castellan-bridge.log", "/run/castellan-bridge", ProgramPath, filepath.Join(unitDir, serviceUnit), filepath.Join(unitDir, "multi-user.target.wants", serviceUnit), filepath.Join(unitDir, revertUnit)} {
		if exists(filepath.Join(m.Root, p)) {
			t.Errorf("left: %s", p)
		}
	}
	if out := m.Exec(t, "sh", "-c", "grep castellan /etc/passwd /etc/group /etc/shadow; systemctl list-units --all --plain --no-legend 'castellan*'; pgrep -a castellan"); len(bytes.TrimSpace(out.Stdout)) > 0 {
		t.Errorf("left: %s", out.Stdout)
	}
}

// closedService runs the service as its unit closes it, beside a real container: what it runs there finds all as over SSH.
func (n *node) closedService(t *testing.T, w *wire) {
	secret, line := NewSecret()
	kept := filepath.Join(settingsDir, "service-secret")
	if err := os.WriteFile(kept, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	plain := strings.ReplaceAll(nodeSettings, "GUEST", strconv.Itoa(n.guest.ID))
	n.settings(t, plain+fmt.Sprintf("[service]\nlisten = %q\nsecret = %q\n", address, kept))
	defer n.settings(t, plain)
	closing := "mount --make-rprivate /; for d in /usr /boot /etc /home /root; do mount --rbind $d $d && mount -o remount,bind,ro $d || exit; done\n" +
		"exec setpriv --bounding-set=-sys_module,-sys_time,-mac_admin,-mac_override -- " + ProgramPath + " bridge serve"
	cmd := exec.Command("unshare", "-m", "sh", "-c", closing)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Signal(unix.SIGTERM)
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(said.String())
		}
	}()
	c := caller{t: t, url: "http://" + address, secret: secret, client: &http.Client{Timeout: time.Minute}}
	c.hello()
	const look = "set -e\ngrep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status; cat /proc/self/uid_map; cut -d' ' -f5,6 /proc/self/mountinfo | sort; id; umask; " +
		"touch /usr/x /etc/x /root/x /home/x; chmod u+s /usr/x; rm /usr/x /etc/x /root/x /home/x; systemctl is-active ssh; runuser -u nobody -- id -u"
	bySSH := done(t, w.ask(script("closed-ssh", n.ct(), look)))
	tell, status, err := c.ask(script("closed-http", n.ct(), look))
	if err != nil || status != http.StatusOK {
		t.Fatalf("%d %v %+v", status, err, tell)
	}
	if got := done(t, tell); *bySSH.Code != 0 || *got.Code != 0 || text(got.Out) != text(bySSH.Out) {
		t.Errorf("in the container, by SSH: %d %s%s\nby the service: %d %s%s", *bySSH.Code, text(bySSH.Out), text(bySSH.Err), *got.Code, text(got.Out), text(got.Err))
	}
	f := frame.File{Path: "/etc/castellan-closed", Content: []byte("x\n"), Expect: "absent"}
	if tell, _, err := c.ask(frame.Ask{ID: "closed-file", Verb: frame.Write, Place: n.ct(), File: &f}); err != nil || tell.Ending != frame.Done {
		t.Errorf("a file of the container: %v %+v", err, tell)
	}
	tell, _, err = c.ask(script("closed-host", n.at(), "id -un; touch /etc/x 2>&1; true"))
	if err != nil {
		t.Fatal(err)
	}
	if got := done(t, tell); !strings.HasPrefix(text(got.Out), "castellan-run\n") || !strings.Contains(text(got.Out), "Read-only") {
		t.Errorf("on the host: %s", text(got.Out))
	}
}
