//go:build linux

package bridge

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"

	"castellan/internal/frame"
	"castellan/internal/guestlab"
)

// hostileContainer is a container whose root does what it can to what comes in.
func (n *node) hostileContainer(t *testing.T, w *wire) {
	probe := func(id, name string) frame.Ask {
		return frame.Ask{ID: id, Verb: frame.Exec, Place: n.ct(), Run: &frame.Run{Lane: frame.Probe, Probe: name, Limit: 5 * time.Second, MaxOutput: 40000}}
	}

	t.Run("it looks into what comes in", func(t *testing.T) {
		helperProgram(t, filepath.Join(n.guest.Root, "usr/local/bin/peer-of-all"), 100000)
		var said bytes.Buffer
		cmd := exec.Command("lxc-attach", "-n", strconv.Itoa(n.guest.ID), "--clear-env", "--", "/usr/local/bin/peer-of-all")
		cmd.Stdout = &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for i := range 20 {
			w.ask(probe(fmt.Sprintf("peer%d", i), "mounts"))
		}
		for _, pid := range everyPid() { // from outside: it would trace what came in for that
			if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && strings.HasPrefix(string(b), "/usr/local/bin/peer-of-all") {
				if s, err := readStat(pid); err == nil {
					s.process.signal(unix.SIGKILL)
				}
			}
		}
		_ = cmd.Wait()
		if strings.Contains(said.String(), "node:") {
			t.Errorf("%.3000s", said.String())
		}
	})
	t.Run("its own programs in place of all", func(t *testing.T) {
		other := n.lab.Start(t, guestlab.Guest{Unprivileged: true})
		p := n.of(other)
		evil := "#!/usr/bin/python3\nimport os,sys\nfor f in sorted(os.listdir('/proc/self/fd')):\n  try: print(f, os.readlink('/proc/self/fd/'+f))\n  except OSError: pass\nprint(sorted(os.environ))\nprint(os.getcwd(), os.getpgid(0)==os.getpid(), sys.argv)\nfor fd in range(3,200):\n  try:\n    os.write(fd,b'x'); print('wrote', fd)\n  except OSError: pass\nsys.stdout.flush()\nif os.fork()==0:\n  os.setsid()\n  while True:\n    try: os.write(1,b'y'*65536)\n    except OSError: break\n  import time\n  time.sleep(1000)\n"
		if err := os.WriteFile(filepath.Join(other.Root, "usr/local/bin/evil"), []byte(evil), 0o755); err != nil {
			t.Fatal(err)
		}
		other.Run(t, "sh", "-c", "chown 0:0 /usr/local/bin/evil 2>/dev/null; for p in cat df env sh; do cp /usr/local/bin/evil /usr/bin/$p.new; done; for p in cat df env sh; do mv -f /usr/bin/$p.new /usr/bin/$p; done")
		ask := func(id string, r frame.Run) {
			t.Helper()
			r.Limit, r.MaxOutput = 3*time.Second, 100000
			began := time.Now()
			tell := w.ask(frame.Ask{ID: id, Verb: frame.Exec, Place: p, Run: &r})
			if tell.Result == nil {
				t.Fatalf("%s: %+v", id, tell)
			}
			out := string(tell.Result.Out.Head)
			if i := strings.Index(out, "yyyy"); i >= 0 {
				out = out[:i]
			}
			if time.Since(began) > 3*time.Second+graceTerm || tell.Result.Gone || len(out) < 100 {
				t.Errorf("%s: after %s gone %v: %.500s", id, time.Since(began), tell.Result.Gone, out)
			}
			if strings.Contains(out, "wrote") || strings.Contains(out, "SSH") || strings.Contains(out, "SUDO") {
				t.Errorf("%s: it has more of the node than its outputs", id)
			}
		}
		ask("evil1", frame.Run{Lane: frame.Probe, Probe: "mounts"})
		ask("evil2", frame.Run{Lane: frame.Script, Script: "true", Interpreter: "sh"})
		ask("evil3", frame.Run{Lane: frame.Script, Script: "true", Interpreter: "python3", Dir: "/srv", Input: []byte("secret")})
	})
	t.Run("control groups", func(t *testing.T) {
		a := script("cg", n.ct(), "cat /proc/self/cgroup; ls -ld /sys/fs/cgroup; for f in $(find /sys/fs/cgroup -name cgroup.procs | head -50); do echo $$ >$f && echo MOVED $f; done 2>/dev/null; mkdir /tmp/cg && mount -t cgroup2 none /tmp/cg && for f in $(find /tmp/cg -name cgroup.procs | head -50); do echo $$ >$f && echo MOVED $f; done 2>/dev/null; umount /tmp/cg; (setsid sleep 7171 &); sleep 60")
		a.Run.Limit = 3 * time.Second
		r := done(t, w.ask(a))
		if !strings.Contains(text(r.Out), "castellan-") || strings.Contains(text(r.Out), "MOVED") || !r.Gone || n.guest.Run(t, "sh", "-c", "ps -eo args | grep -c '[s]leep 7171' || true") != "0" {
			t.Errorf("%+v", r)
		}
	})
	t.Run("a process whose first thread has ended", func(t *testing.T) {
		body := "python3 - <<'END' &\nimport threading,ctypes,time,os\ndef f():\n  while True: time.sleep(1)\nthreading.Thread(target=f).start()\nlibc=ctypes.CDLL(None)\nlibc.syscall(60,0)\nEND\nsleep 1; echo end\n"
		for i, p := range []frame.Place{n.ct(), n.at()} {
			a := script(fmt.Sprintf("lead%d", i), p, body)
			r := done(t, w.ask(a))
			if i == 0 && r.Gone || i == 1 && !r.Gone {
				t.Errorf("%s: gone %v %s", p.Where, r.Gone, text(r.Err))
			}
			a = script(fmt.Sprintf("lead2%d", i), p, body+"sleep 60\n")
			a.Run.Limit = 3 * time.Second
			if r := done(t, w.ask(a)); !r.Gone {
				t.Errorf("%s: %+v", p.Where, r)
			}
		}
		n.guest.Run(t, "sh", "-c", "pkill -9 python3 || true")
	})
	t.Run("it forks as fast as it can", func(t *testing.T) {
		a := script("forks", n.ct(), "f() { while :; do (exec /bin/true) & (setsid sh -c 'sleep 0.1; exec sleep 8181' &) ; sleep 0.05; done; }; for i in 1 2 3 4 5 6 7 8; do f & done; wait")
		a.Run.Limit = 2 * time.Second
		began := time.Now()
		r := done(t, w.ask(a))
		if !r.Gone || !r.TimedOut || time.Since(began) > 12*time.Second {
			t.Errorf("after %s: %+v", time.Since(began), r)
		}
		if left := n.guest.Run(t, "sh", "-c", "ps -eo args | grep -c '[s]leep 8181' || true"); left != "0" {
			t.Errorf("left: %s", left)
		}
	})
	t.Run("mounts over its own /proc", func(t *testing.T) {
		other := n.lab.Start(t, guestlab.Guest{Unprivileged: true})
		p := n.of(other)
		other.Run(t, "sh", "-c", "mount -t tmpfs none /proc; mkdir -p /proc/1 /proc/self; echo '0 0 4294967295' >/proc/1/uid_map; ln -s / /proc/1/root")
		for i, r := range []frame.Run{{Lane: frame.Probe, Probe: "mounts"}, {Lane: frame.Script, Script: "sleep 60 & echo end", Interpreter: "sh"}} {
			r.Limit, r.MaxOutput = 3*time.Second, 4000
			tell := w.ask(frame.Ask{ID: fmt.Sprintf("proc%d", i), Verb: frame.Exec, Place: p, Run: &r})
			if tell.Ending == frame.Done && (tell.Result == nil || i == 1 && tell.Result.Gone) { // a process is left
				t.Errorf("%+v %+v", tell, tell.Result)
			}
		}
		if tell := w.ask(frame.Ask{ID: "procr", Verb: frame.Read, Place: p, File: &frame.File{Path: "/proc/1/root/etc/shadow"}}); tell.Ending == frame.Done {
			shadow, _ := os.ReadFile("/etc/shadow")
			if bytes.Equal(tell.File.Content, shadow) {
				t.Error("the node's file")
			}
		}
	})
}

// hostileAccounts are the accounts of the node, and whoever has castellan's key.
func (n *node) hostileAccounts(t *testing.T, c *ssh.Client, w *wire) {
	as := func(account, shell string) string {
		t.Helper()
		u, err := user.Lookup(account)
		if err != nil {
			t.Fatal(err)
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", shell)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid), Groups: []uint32{}}}
		cmd.Env, cmd.Dir = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}, "/"
		out, _ := cmd.CombinedOutput()
		return string(out)
	}
	a := script("long", n.ct(), "cat >/dev/null; sleep 20")
	a.Run.Input, a.Run.Env = []byte("INPUT-SECRET"), nil
	w.put(a)
	b := script("longhost", n.at(), "sleep 20; echo HOST-SECRET")
	b.Run.Input = []byte("INPUT-SECRET")
	w.put(b)
	time.Sleep(time.Second)
	for _, account := range []string{"mallory", "nobody"} {
		out := as(account, `sudo -n -l; sudo -n /usr/local/sbin/castellan bridge run </dev/null; for f in /etc/castellan-bridge /etc/castellan-bridge/bridge.toml /etc/sudoers.d/castellan-bridge /var/lib/castellan-bridge /var/lib/castellan-run /var/log/castellan-bridge.log /run/castellan-bridge; do [ -d $f ] && ls $f 2>/dev/null && echo "LISTED $f"; cat $f 2>/dev/null && echo "READ $f"; echo x 2>/dev/null >>$f && echo "WROTE $f"; touch $f/x 2>/dev/null && echo "MADE $f"; done
for p in /proc/[0-9]*; do cat $p/environ 2>/dev/null | tr '\0' '\n' | grep -q CASTELLAN_RUN && echo "ENVIRON $p"; for f in $p/fd/*; do [ -e $f ] && readlink $f >/dev/null 2>&1 && [ "$(stat -c %U $p)" != "`+account+`" ] && echo "FD $f"; done; done; cat /proc/[0-9]*/cmdline | tr "\\0" " " | grep [S]ECRET; kill -9 -1 2>/dev/null; true`)
		for _, bad := range []string{"READ", "WROTE", "MADE", "LISTED", "ENVIRON", "FD /", "may run", "SECRET"} {
			if strings.Contains(out, bad) {
				t.Errorf("%s: %s:\n%s", account, bad, out)
				break
			}
		}
	}
	out := as(runner, `for f in /run/castellan-bridge/*/script; do cat $f && echo READ; done 2>/dev/null; sudo -n -l; sudo -n /usr/local/sbin/castellan bridge run </dev/null; crontab -l; echo '* * * * * touch /tmp/x' | crontab - && echo CRON; echo 'touch /tmp/x' | at now && echo AT; systemd-run --user sleep 100 && echo UNIT; loginctl enable-linger && echo LINGER`)
	for _, bad := range []string{"may run", "CRON", "AT\n", "UNIT", "LINGER"} {
		if strings.Contains(out, bad) {
			t.Errorf("%s: %s:\n%s", runner, bad, out)
		}
	}
	out = as(door, `cd /; for a in "bridge run --config /tmp/x" "bridge run x" "bridge run --" "bridge revert" "bridge serve" "bridge secret" "--help" "bridge check" "bridge"; do sudo -n /usr/local/sbin/castellan $a </dev/null 2>/dev/null && echo "RAN $a"; done
sudo -n -u castellan-run id && echo RAN; sudo -n -s </dev/null && echo RAN; sudo -n -E /usr/local/sbin/castellan bridge run </dev/null 2>&1 && echo "KEPT -E"; sudo -n CASTELLAN_CONFIG=/tmp/x /usr/local/sbin/castellan bridge run </dev/null && echo "KEPT VAR"; ln -s /usr/local/sbin/castellan /tmp/castellan-link; sudo -n /tmp/castellan-link bridge run </dev/null && echo RAN; sudo -n -D /tmp /usr/local/sbin/castellan bridge run </dev/null && echo "KEPT dir"; sudo -n -C 100 /usr/local/sbin/castellan bridge run </dev/null && echo "KEPT fds"; ls -la /var/lib/castellan-door/.ssh; echo x >>/var/lib/castellan-door/.ssh/authorized_keys && echo WROTE; touch /var/lib/castellan-door/.ssh/rc /var/lib/castellan-door/x && echo WROTE`)
	for _, bad := range []string{"RAN", "KEPT", "WROTE"} {
		if strings.Contains(out, bad) {
			t.Errorf("%s: %s:\n%s", door, bad, out)
			break
		}
	}
	os.Remove("/tmp/castellan-link")
	w.ask(frame.Ask{ID: "long", Verb: frame.Kill})
	w.ask(frame.Ask{ID: "longhost", Verb: frame.Kill})

	t.Run("what SSH offers beside", func(t *testing.T) {
		s, err := c.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Setenv("LD_PRELOAD", "/tmp/x"); err == nil {
			t.Error("it takes any variable")
		}
		in, _ := s.StdinPipe()
		var got bytes.Buffer
		s.Stdout = &got
		if err := s.RequestSubsystem("sftp"); err == nil {
			fmt.Fprintf(in, "\x00\x00\x00\x05\x01\x00\x00\x00\x03")
			in.Close()
			_ = s.Wait()
			if bytes.HasPrefix(got.Bytes(), []byte{0, 0, 0}) {
				t.Error("sftp answers")
			}
		}
		if conn, err := c.Dial("unix", "/run/dbus/system_bus_socket"); err == nil {
			conn.Close()
			t.Error("it forwards to sockets")
		}
		if l, err := c.Listen("tcp", "127.0.0.1:0"); err == nil {
			l.Close()
			t.Error("it listens")
		}
		if l, err := c.ListenUnix("/tmp/castellan-listens"); err == nil {
			l.Close()
			t.Error("it listens")
		}
		for _, kind := range []string{"x11-req", "auth-agent-req@openssh.com"} {
			s, err := c.NewSession()
			if err != nil {
				t.Fatal(err)
			}
			payload := []byte(nil)
			if kind == "x11-req" {
				payload = append([]byte{0}, []byte("\x00\x00\x00\x12MIT-MAGIC-COOKIE-1\x00\x00\x00\x04abcd\x00\x00\x00\x00")...)
			}
			if ok, err := s.SendRequest(kind, true, payload); ok && err == nil {
				t.Errorf("it takes %s", kind)
			}
			s.Close()
		}
	})
	t.Run("lines that are none", func(t *testing.T) {
		place := fmt.Sprintf(`{"site":%q,"node":"pve1","where":"lxc","vmid":%d,"root":%q}`, n.site, n.guest.ID, n.guest.Volume)
		run := `"run":{"lane":"script","script":"touch /srv/castellan-ran","interpreter":"sh","limit":5000000000,"max_output":100`
		for i, l := range []string{
			`{"v":1,"id":"ID","verb":"exec","place":` + strings.Replace(place, fmt.Sprint(n.guest.ID), fmt.Sprintf("0%d", n.guest.ID), 1) + `,` + run + `}}`,
			`{"v":1,"id":"ID","verb":"exec","place":` + strings.Replace(place, fmt.Sprint(n.guest.ID), fmt.Sprintf("\"%d -- sh\"", n.guest.ID), 1) + `,` + run + `}}`,
			`{"v":1,"id":"ID","verb":"exec","place":` + strings.Replace(place, fmt.Sprint(n.guest.ID), fmt.Sprintf("%d.0", n.guest.ID), 1) + `,` + run + `}}`,
			`{"v":1,"id":"ID","verb":"exec","place":` + place + `,` + run + `},"file":{"path":"/etc/shadow"}}`,
			`{"v":1,"id":"ID","verb":"look","place":` + place + `,` + run + `}}`,
			`{"v":1,"id":"ID","verb":"Exec","place":` + place + `,` + run + `}}`,
			`{"v":1,"id":"ID","verb":"exec","place":` + place + `,` + run + `,"sudo":true}}`,
			`{"v":1,"id":"ID","verb":"exec","place":` + place + `,` + run + `,"root":true}}`,
			`{"v":1,"id":"ID","verb":"exec","place":` + place + `,` + run + `,"argv":["id"]}}`,
			`{"v":1,"id":"ID","verb":"exec","place":` + place + `,` + run + `,"probe":"disk"}}`,
			`{"v":1,"id":"ID","verb":"exec","place":` + place + `,` + run + `,"env":["LD_PRELOAD=/x"]}}`,
			`{"v":1,"id":"ID","verb":"exec","place":` + place + `,` + run + `,"env":["A"]}}`,
			`{"v":1,"id":"ID","verb":"exec","place":` + place + `,` + run + `,"env":["BASH_ENV=/x"]}}`,
			`{"v":1,"id":"ID","verb":"exec","place":` + place + `,` + run + `,"env":["CASTELLAN_RUN=x"]}}`,
			`{"v":1,"id":"ID","verb":"exec","place":` + place + `,` + run + `,"dir":"../x"}}`,
			`{"v":1,"id":"ID","verb":"exec","place":` + place + `,` + strings.Replace(run, `"sh"`, `"/bin/sh"`, 1) + `}}`,
			`{"v":1,"id":"ID","verb":"exec","place":` + place + `,` + strings.Replace(run, `"sh"`, `"sh\u0000"`, 1) + `}}`,
			`{"v":1,"id":"ID","verb":"exec","place":` + place + `,` + strings.Replace(run, `"sh"`, `"ѕh"`, 1) + `}}`,
			`{"v":1,"id":"ID","verb":"exec","place":` + place + `,` + strings.Replace(run, `5000000000`, `99999999999999999`, 1) + `}}`,
			`{"v":1,"id":"ID","verb":"exec","place":` + place + `,` + strings.Replace(run, `5000000000`, `-1`, 1) + `}}`,
			`{"v":1,"id":"ID","verb":"exec","place":` + place + `,` + strings.Replace(run, `"max_output":100`, `"max_output":9223372036854775807`, 1) + `}}`,
			`{"v":1,"id":"../ID","verb":"exec","place":` + place + `,` + run + `}}`,
			`{"v":1,"id":"ID","verb":"exec","place":` + place + `,` + run + `}}} {"v":1,"id":"ID2","verb":"hello"}`,
			`[{"v":1,"id":"ID","verb":"exec","place":` + place + `,` + run + `}}]`,
			`{"v":2,"id":"ID","verb":"exec","place":` + place + `,` + run + `}}`,
			`{"v":1,"id":"ID","verb":"exec","place":` + strings.Replace(place, `"lxc"`, `"host"`, 1) + `,` + run + `}}`,
			`{"v":1,"id":"ID","verb":"exec","place":` + strings.Replace(place, `"lxc"`, `"qemu"`, 1) + `,` + run + `}}`,
		} {
			s, err := c.NewSession()
			if err != nil {
				t.Fatal(err)
			}
			s.Stdin = strings.NewReader(strings.ReplaceAll(l, "ID", fmt.Sprintf("line%d", i)) + "\n")
			out, _ := s.Output("")
			if !bytes.Contains(out, []byte(`"ending":"refused"`)) || bytes.Contains(out, []byte(`"ending":"done"`)) {
				t.Errorf("%s: %s", l, out)
			}
			s.Close()
		}
		if out := n.guest.Run(t, "ls", "/srv"); strings.Contains(out, "castellan-ran") || exists("/srv/castellan-ran") {
			t.Error("one of them ran")
		}
	})
	t.Run("each says no by itself", func(t *testing.T) {
		for text, ask := range map[string]frame.Ask{
			"lanes":  script("no1", n.ct(), "true"),
			"guests": script("no2", n.ct(), "true"),
			"files":  {ID: "no3", Verb: frame.Read, Place: n.ct(), File: &frame.File{Path: "/etc/hostname"}},
			"words":  {ID: "no4", Verb: frame.Manage, Place: n.at(), Word: &frame.Word{Name: "maintenance", Args: map[string]string{"mode": "enable"}}},
		} {
			set := strings.ReplaceAll(nodeSettings, "GUEST", strconv.Itoa(n.guest.ID))
			for _, line := range strings.Split(set, "\n") {
				if strings.HasPrefix(line, text) || text == "lanes" && strings.HasPrefix(line, "lxc") {
					set = strings.Replace(set, line+"\n", "", 1)
					break
				}
			}
			n.settings(t, set)
			defer n.settings(t, strings.ReplaceAll(nodeSettings, "GUEST", strconv.Itoa(n.guest.ID)))
			w := n.open(t, c, "")
			if tell := w.ask(ask); tell.Ending != frame.Refused || !strings.Contains(tell.Hint, "bridge.toml") {
				t.Errorf("%s: %+v", text, tell)
			}
		}
	})
}

// A file system of a guest that never answers takes no more than that guest's own places.
func TestFilesThatAreNeverRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &Bridge{files: map[int]chan struct{}{}}
		var last func()
		for range mostFiles {
			leave, err := b.filesOf(101)
			if err != nil {
				t.Fatal(err)
			}
			last = leave
		}
		if _, err := b.filesOf(101); err == nil || !strings.Contains(err.Error(), "nothing was begun") {
			t.Errorf("one more: %v", err)
		}
		if _, err := b.filesOf(102); err != nil {
			t.Errorf("another guest: %v", err)
		}
		go func() { time.Sleep(time.Second); last() }()
		if _, err := b.filesOf(101); err != nil {
			t.Errorf("a place that came free: %v", err)
		}
	})
}
