//go:build linux

package guest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	nodeside "castellan/internal/bridge"
	"castellan/internal/gate"
	"castellan/internal/guestlab"
	"castellan/internal/lab"
	"castellan/internal/seal"
)

// bridgeFlag makes this binary a bridge: the forced command of the node's sshd.
const bridgeFlag = "be-a-bridge"

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == bridgeFlag {
		os.Exit(beBridge(os.Args[2]))
	}
	os.Exit(guestlab.Main(m))
}

func beBridge(settings string) int {
	s, err := nodeside.LoadSettings(settings)
	if err == nil {
		var b *nodeside.Bridge
		if b, err = nodeside.New(nodeside.Config{Settings: s, Build: "test", Peer: "test"}); err == nil {
			defer b.Close()
			err = b.Serve(context.Background(), os.Stdin, os.Stdout)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// real is a node with a real sshd and a real bridge, and a container on it.
type real struct {
	ct      *guestlab.Container
	host    *guestlab.Host
	bridges *Bridges
	runner  *Runner
	site    *site
}

func newReal(t testing.TB) *real {
	t.Helper()
	return newRealGuest(t, guestlab.Guest{Unprivileged: true})
}

func newRealGuest(t testing.TB, g guestlab.Guest) *real {
	t.Helper()
	return newRealGuests(t, `"probe"`, g)[0]
}

// newRealGuests is one node with several containers, each with a runner of its own over the same bridge, which opens these lanes
// of the host.
func newRealGuests(t testing.TB, host string, guests ...guestlab.Guest) []*real {
	t.Helper()
	l := guestlab.Open(t)
	var cts []*guestlab.Container
	var ids []string
	for _, g := range guests {
		ct := l.Start(t, g)
		cts, ids = append(cts, ct), append(ids, strconv.Quote(strconv.Itoa(ct.ID)))
	}
	settings := filepath.Join("/etc", "castellan-bridge-test", strconv.Itoa(cts[0].ID)+".toml")
	text := fmt.Sprintf("guests = [%s]\nwords = [\"enrol\"]\nfiles = [\"read\", \"write\"]\naccount = \"nobody\"\nstate = %q\nlog = %q\n[lanes]\nhost = [%s]\nlxc = [\"probe\", \"command\", \"script\"]\n[limits]\nruns = 64\n"+
		"[rules]\n[[rules.commands]]\nguests = [\"*\"]\nargv = \"sleep <number:1-5>\"\n[[rules.commands]]\nguests = [\"*\"]\nargv = \"echo <word...>\"\n[[rules.commands]]\nguests = [\"*\"]\nargv = \"cat\"\n[[rules.commands]]\nguests = [\"*\"]\nargv = \"true\"\n",
		strings.Join(ids, ", "), "/var/lib/castellan-bridge-test", bridgeLog, host)
	if err := errors.Join(os.MkdirAll(filepath.Dir(settings), 0o755), os.WriteFile(settings, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	sshd := l.Host(t, guestlab.HostConfig{AuthorizedKeys: map[string][]string{"root": {guestlab.AuthorizedKey(fmt.Sprintf(`restrict,command="%s %s %s"`, self, bridgeFlag, settings), l.Signer.PublicKey())}}})
	key, err := os.ReadFile(l.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	b, err := NewBridges(BridgesConfig{Settings: Settings{Bridges: []BridgeSettings{{Target: "lab", Node: guestlab.Node, Address: sshd.Address, User: "root", KeyFile: "key", Parallel: 64, HostKey: []string{ssh.FingerprintSHA256(sshd.HostKey)}}}},
		Targets: []string{"lab"}, Secrets: func(string) (seal.Secret, error) { return seal.NewSecret(key), nil }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	var out []*real
	for _, ct := range cts {
		s := newSite()
		s.name = siteName(t)
		s.id = strconv.Itoa(ct.ID)
		s.conf = map[string]string{"rootfs": ct.Volume + ",size=8G", "net0": "name=eth0,bridge=vmbr0,hwaddr=" + ct.MAC}
		if ct.Unprivileged {
			s.conf["unprivileged"] = "1"
		}
		out = append(out, &real{ct, sshd, b, runnerTo(t, s, b), s})
	}
	return out
}

// bridgeLog is the record of the bridges of these tests.
const bridgeLog = "/var/log/castellan-bridge-test.log"

// siteName is how the API would name the site of the node.
func siteName(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile(guestlab.PVE + "/pve-root-ca.pem")
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	sum := sha256.Sum256(block.Bytes)
	return "guestlab-" + hex.EncodeToString(sum[:8])
}

func sumOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func (r *real) request(t testing.TB, word string, params map[string]any) gate.Request {
	params["node"], params["vmid"] = guestlab.Node, strconv.Itoa(r.ct.ID)
	return request(t, "lxc/{vmid}/"+word, params)
}

var count int
var countMu sync.Mutex

func nextID() string {
	countMu.Lock()
	defer countMu.Unlock()
	count++
	return fmt.Sprintf("t%d.%d", os.Getpid(), count)
}

func TestRealBridge(t *testing.T) {
	r := newReal(t)
	for _, c := range []struct {
		name   string
		word   string
		params map[string]any
		want   func(gate.RunResult, error) bool
	}{
		{"a command", "command", map[string]any{"command": []string{"echo", "a", "b.c"}}, func(x gate.RunResult, err error) bool { return err == nil && x.OK && x.Stdout == "a b.c\n" }},
		{"input", "command", map[string]any{"command": []string{"cat"}, "input": "ü€\x00\n"}, func(x gate.RunResult, err error) bool { return err == nil && x.Stdout64 == "w7zigqwACg==" }},
		{"no output", "command", map[string]any{"command": []string{"true"}}, func(x gate.RunResult, err error) bool { return err == nil && x.OK && x.Stdout == "" && x.Gone }},
		{"not on the bridge's list", "command", map[string]any{"command": []string{"id"}}, func(_ gate.RunResult, err error) bool { return notStarted(err) }},
		{"exit code", "script", map[string]any{"script": "echo out; echo err >&2; exit 7\n"}, func(x gate.RunResult, err error) bool {
			return err == nil && !x.OK && *x.ExitCode == 7 && x.Stdout == "out\n" && x.Stderr == "err\n"
		}},
		{"signal", "script", map[string]any{"script": "kill -9 $$\n"}, func(x gate.RunResult, err error) bool {
			return err == nil && !x.OK && (x.Signal == "KILL" || *x.ExitCode == 137)
		}},
		{"timed out", "script", map[string]any{"script": "sleep 100 & sleep 100\n", "timeout": "1"}, func(x gate.RunResult, err error) bool { return err == nil && x.TimedOut && x.Gone && !x.OK }},
		{"hidden from its run", "script", map[string]any{"script": "(trap '' TERM HUP; env -i /usr/bin/setsid /bin/sleep 7003 &); for g in $(find /sys/fs/cgroup -name cgroup.procs); do echo $$ >$g; done 2>/dev/null; sleep 100\n", "timeout": "1"}, func(x gate.RunResult, err error) bool {
			return err == nil && x.TimedOut && x.Gone && r.ct.Exec(t, "pgrep", "-f", "sleep 7003").Code != 0
		}},
		{"much output", "script", map[string]any{"script": "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done\n", "max-output": "2000"}, func(x gate.RunResult, err error) bool {
			return err == nil && x.Cut && strings.Contains(x.Stdout, "bytes left out") && strings.HasPrefix(x.Stdout, "line 0\n") && strings.HasSuffix(x.Stdout, "line 19999\n") && x.StdoutBytes > 100000
		}},
		{"a probe", "probe", map[string]any{"probe": "load"}, func(x gate.RunResult, err error) bool { return err == nil && x.OK && x.Stdout != "" }},
		{"a file", "write-file", map[string]any{"path": "/root/note", "content": "ü\n", "expect": "absent", "mode": "0600"}, func(x gate.RunResult, err error) bool { return err == nil && x.File.Absent }},
		{"read back", "read-file", map[string]any{"path": "/root/note"}, func(x gate.RunResult, err error) bool {
			return err == nil && x.File.Content == "ü\n" && x.File.Mode == "0600" && x.File.UID == 0
		}},
		{"what was replaced", "write-file", map[string]any{"path": "/root/note", "content": "other\n", "expect": "9a7f0dbfbba8bf8ea0e2b6f8d4b0d1d0"}, func(_ gate.RunResult, err error) bool { return notStarted(err) }},
		{"what was replaced", "write-file", map[string]any{"path": "/root/note", "content": "other\n", "expect": sumOf("ü\n")}, func(x gate.RunResult, err error) bool {
			return err == nil && x.File.Content == "ü\n" && !x.File.Cut && x.File.SHA256 == sumOf("ü\n")
		}},
	} {
		res, err := carry(t, r.runner, r.request(t, c.word, c.params), nextID())
		if !c.want(res, err) {
			t.Errorf("%s: %+v %v", c.name, res, err)
		}
	}
	// Sessions that break do not end a run: it is found, and was not sent twice.
	mark := r.request(t, "script", map[string]any{"script": "echo x >>/root/ran; sleep 2; cat /root/ran\n"})
	go func() { time.Sleep(700 * time.Millisecond); r.host.CutSessions() }()
	res, err := carry(t, r.runner, mark, nextID())
	if err != nil || res.Stdout != "x\n" || !strings.Contains(res.Note, "broke") {
		t.Errorf("after a cut: %+v %v", res, err)
	}
}

// TestRealSpeed measures commands through the bridge beside the same ones entered into the container on the node. Only a
// wrong answer fails it; make bench prints its figures.
func TestRealSpeed(t *testing.T) {
	if testing.Short() {
		t.Skip("it measures time")
	}
	one := guestlab.Guest{Unprivileged: true}
	all := newRealGuests(t, `"probe"`, one, one, one, one)
	r := all[0]
	took := func(n int, f func()) time.Duration {
		f() // the first one connects
		var each []time.Duration
		for range n {
			began := time.Now()
			f()
			each = append(each, time.Since(began))
		}
		return median(each)
	}
	probe := took(15, func() {
		res, err := carry(t, r.runner, r.request(t, "command", map[string]any{"command": []string{"true"}}), nextID())
		if err != nil || !res.OK {
			t.Fatalf("true: %+v %v", res, err)
		}
	})
	bare := took(15, func() { r.ct.Run(t, "true") })
	t.Logf("figure probe_ms %.1f %.1f", float64(probe.Microseconds())/1000, float64(bare.Microseconds())/1000)
	many := func(f func(*real)) time.Duration {
		began := time.Now()
		var group sync.WaitGroup
		for i := range 50 {
			group.Go(func() { f(all[i%len(all)]) })
		}
		group.Wait()
		return time.Since(began)
	}
	sleeps := many(func(r *real) {
		if res, err := carry(t, r.runner, r.request(t, "command", map[string]any{"command": []string{"sleep", "1"}}), nextID()); err != nil || !res.OK {
			t.Errorf("sleep: %+v %v", res, err)
		}
	})
	entered := many(func(r *real) { r.ct.Run(t, "sleep", "1") })
	t.Logf("figure fifty_s %.2f %.2f", sleeps.Seconds(), entered.Seconds())
}

func median(d []time.Duration) time.Duration {
	s := append([]time.Duration(nil), d...)
	for i := range s {
		for j := i; j > 0 && s[j] < s[j-1]; j-- {
			s[j], s[j-1] = s[j-1], s[j]
		}
	}
	return s[len(s)/2]
}

// The guest agent of the real kind, spoken to through the API as the simulated site gives it.
func TestRealAgent(t *testing.T) {
	l := guestlab.Open(t)
	ct := l.Start(t, guestlab.Guest{Unprivileged: true})
	ct.Run(t, "systemd-run", "-q", "--unit=qga", "/usr/sbin/qemu-ga", "--method=unix-listen", "--path=/var/lib/qga.sock")
	socket := fmt.Sprintf("/proc/%d/root/var/lib/qga.sock", ct.Init())
	dial := func(vmid int) (net.Conn, error) {
		if vmid != 101 {
			return nil, nil
		}
		return net.DialTimeout("unix", socket, 2*time.Second)
	}
	for range 100 {
		if c, err := dial(101); err == nil {
			c.Close()
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	h := newHouse(t, "admin", LaneSettings{Scripts: everywhere().Scripts, Files: everywhere().Files, Commands: everywhere().Commands}, func(c *lab.Config) { c.Agent = dial })
	for _, c := range []struct {
		name   string
		word   string
		params map[string]any
		want   func(gate.RunResult, error) bool
	}{
		{"a command", "command", map[string]any{"command": []string{"echo", "a", "b.c"}}, func(x gate.RunResult, err error) bool { return err == nil && x.OK && x.Stdout == "a b.c\n" && x.Gone }},
		{"input", "command", map[string]any{"command": []string{"cat"}, "input": "€ and ü\n"}, func(x gate.RunResult, err error) bool { return err == nil && x.Stdout == "€ and ü\n" }},
		{"bytes", "script", map[string]any{"script": "printf '\\377\\000x'\n"}, func(x gate.RunResult, err error) bool { return err == nil && x.Stdout64 == "/wB4" }},
		{"a program that is not there", "command", map[string]any{"command": []string{"nosuch"}}, func(x gate.RunResult, err error) bool { return err == nil && *x.ExitCode == 127 }},
		{"exit code", "script", map[string]any{"script": "echo out\necho err >&2\nexit 7\n"}, func(x gate.RunResult, err error) bool {
			return err == nil && !x.OK && *x.ExitCode == 7 && x.Stdout == "out\n" && x.Stderr == "err\n" && x.Note == ""
		}},
		{"quoting", "script", map[string]any{"script": "printf '[%s]' \"a; b | c\" 'd \"e\"' '$x'\n", "interpreter": "bash"}, func(x gate.RunResult, err error) bool { return err == nil && x.Stdout == `[a; b | c][d "e"][$x]` }},
		{"environment", "script", map[string]any{"script": "env\npwd\n", "env": []string{"A=b c"}, "dir": "/tmp"}, func(x gate.RunResult, err error) bool {
			return err == nil && strings.Contains(x.Stdout, "A=b c\n") && strings.HasSuffix(x.Stdout, "/tmp\n") && !strings.Contains(x.Stdout, "INVOCATION_ID")
		}},
		{"signal", "script", map[string]any{"script": "kill -9 $$\n"}, func(x gate.RunResult, err error) bool {
			return err == nil && !x.OK && (x.Signal == "KILL" || *x.ExitCode == 137)
		}},
		{"timed out", "script", map[string]any{"script": "trap '' TERM\nsleep 71 &\nsleep 72\n", "timeout": "1"}, func(x gate.RunResult, err error) bool { return err == nil && x.TimedOut && x.Gone && !x.OK }},
		{"no output", "script", map[string]any{"script": "true\n"}, func(x gate.RunResult, err error) bool { return err == nil && x.OK && x.Stdout == "" && !x.Cut }},
		{"more than the agent keeps", "script", map[string]any{"script": "head -c 17000000 /dev/zero | tr '\\0' x\n"}, func(x gate.RunResult, err error) bool {
			return err == nil && x.Cut && strings.Contains(x.Note, "all that the guest agent keeps") && len(x.Stdout) < 200000
		}},
		{"a binary file", "read-file", map[string]any{"path": "/root/binary"}, func(x gate.RunResult, err error) bool {
			return err == nil && x.File.Content == "" && x.File.Content64 == "/wB4"
		}},
		{"a FIFO", "read-file", map[string]any{"path": "/root/fifo"}, func(_ gate.RunResult, err error) bool { return notStarted(err) }},
		{"a file", "write-file", map[string]any{"path": "/root/note", "content": "ü€\n", "expect": "absent", "mode": "0600"}, func(x gate.RunResult, err error) bool { return err == nil && x.File.Absent }},
		{"read back", "read-file", map[string]any{"path": "/root/note"}, func(x gate.RunResult, err error) bool {
			return err == nil && x.File.Content == "ü€\n" && x.File.Mode == "0600"
		}},
	} {
		if c.name == "a FIFO" {
			ct.Run(t, "mkfifo", "/root/fifo")
		}
		if c.name == "a binary file" {
			ct.Run(t, "sh", "-c", "printf '\\377\\000x' >/root/binary")
		}
		res, err := h.do(inGuest(t, c.word, c.params))
		if !c.want(res, err) {
			t.Errorf("%s: %+v %v", c.name, res, err)
		}
	}
	// A process number is that command's as long as the agent has run since before it; with a younger agent it proves nothing.
	sleeps := inGuest(t, "script", map[string]any{"script": "sleep 4\n"})
	ended := make(chan error, 1)
	h.mu.Lock()
	h.handle = ""
	h.mu.Unlock()
	go func() { _, err := h.do(sleeps); ended <- err }()
	handle := ""
	for range 300 {
		h.mu.Lock()
		handle = h.handle
		h.mu.Unlock()
		if handle != "" {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if _, running, err := h.Look(t.Context(), "lab", sleeps, "p.1", handle); err != nil || !running {
		t.Errorf("%q: %v %v", handle, running, err)
	}
	pid, _, _ := strings.Cut(handle, " at ")
	for _, other := range []string{pid, pid + " at " + strconv.FormatInt(time.Now().Add(-1000*time.Hour).Unix(), 10)} {
		if res, running, err := h.Look(t.Context(), "lab", sleeps, "p.1", other); err == nil {
			t.Errorf("%q is believed: %+v %v", other, res, running)
		}
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if out := ct.Exec(t, "pgrep", "-f", "sleep 7[12]"); out.Code == 0 {
		t.Errorf("what was timed out still runs: %s", out.Stdout)
	}
	if out := ct.Run(t, "ls", "/run"); strings.Contains(out, "castellan-") {
		t.Errorf("scripts were left in the guest: %s", out)
	}
	// Some distributions have the agent refuse to run anything, which is told as what it is.
	ct.Run(t, "systemctl", "stop", "qga")
	ct.Run(t, "sh", "-c", "rm -f /var/lib/qga.sock; systemd-run -q --unit=qga-strict /usr/sbin/qemu-ga --method=unix-listen --path=/var/lib/qga.sock -b guest-exec,guest-exec-status")
	for range 100 {
		if c, err := dial(101); err == nil {
			c.Close()
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	_, err := h.do(inGuest(t, "command", map[string]any{"command": []string{"hostname"}}))
	var u *gate.UpstreamError
	if !errors.As(err, &u) || !notStarted(err) || !strings.Contains(u.Message, "guest-exec has been disabled") || !strings.Contains(u.Hint, "policy of the guest itself") {
		t.Errorf("an agent that runs nothing: %v, %+v", err, u)
	}
}
