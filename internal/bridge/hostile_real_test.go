//go:build linux

package bridge

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"castellan/internal/frame"
	"castellan/internal/guestlab"
	"castellan/internal/lane"
)

// feign is a process of an account without rights that answers in place of a container's monitor: the name is free to all
// while the container is stopped. It says that the first process is its own child, which has namespaces of its own.
func feign() {
	child := &exec.Cmd{Path: "/bin/sleep", Args: []string{"sleep", "600"}, SysProcAttr: &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC | syscall.CLONE_NEWCGROUP | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}, GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}, Pdeathsig: syscall.SIGKILL}}
	if err := child.Start(); err != nil {
		fmt.Println("child:", err)
		os.Exit(1)
	}
	l, err := net.Listen("unix", "@/var/lib/lxc/"+os.Args[1]+"/command")
	if err != nil {
		fmt.Println("listen:", err)
		os.Exit(1)
	}
	fmt.Println("feigning", child.Process.Pid)
	for {
		c, err := l.Accept()
		if err != nil {
			os.Exit(1)
		}
		go func() {
			defer c.Close()
			for {
				var req [16]byte
				if _, err := io.ReadFull(c, req[:]); err != nil {
					return
				}
				if n := binary.LittleEndian.Uint32(req[4:]); n > 0 && n < 1<<16 {
					_, _ = io.CopyN(io.Discard, c, int64(n))
				}
				var rsp [16]byte
				switch binary.LittleEndian.Uint32(req[:]) {
				case 3: // the state: it runs
					binary.LittleEndian.PutUint64(rsp[8:], 2)
				case 4: // its first process
					binary.LittleEndian.PutUint64(rsp[8:], uint64(child.Process.Pid))
				default:
					binary.LittleEndian.PutUint32(rsp[:], 0xffffffff)
				}
				if _, err := c.Write(rsp[:]); err != nil {
					return
				}
			}
		}()
	}
}

// exchange is a process of a container that mounts a folder of the node's over each that the bridge makes for a script.
func exchange() {
	for {
		for _, top := range []string{"/run", "/root", "/tmp"} {
			rows, err := os.ReadDir(top)
			if err != nil {
				os.Exit(1)
			}
			for _, r := range rows {
				if name := filepath.Join(top, r.Name()); strings.HasPrefix(r.Name(), "castellan-") && unix.Mount("/root/theirs", name, "", unix.MS_BIND, "") == nil {
					time.Sleep(30 * time.Millisecond)
					_ = unix.Unmount(name, unix.MNT_DETACH)
				}
			}
		}
	}
}

// peer is a process of a container that looks into each process that comes into it, for what would be the node's.
func peer() {
	seen := map[string]bool{}
	for {
		rows, _ := os.ReadDir("/proc")
		for _, r := range rows {
			if _, err := strconv.Atoi(r.Name()); err != nil || seen[r.Name()] || r.Name() == strconv.Itoa(os.Getpid()) {
				continue
			}
			at := "/proc/" + r.Name()
			exe, _ := os.Readlink(at + "/exe")
			for _, path := range []string{"/root/etc/castellan-bridge/bridge.toml", "/cwd/etc/castellan-bridge/bridge.toml"} {
				if _, err := os.Stat(at + path); err == nil {
					fmt.Println("node: the root of", exe, path)
				}
			}
			if f, err := os.OpenFile(at+"/exe", os.O_WRONLY, 0); err == nil {
				fmt.Println("node: can write", exe)
				f.Close()
			}
			fds, _ := os.ReadDir(at + "/fd")
			for _, fd := range fds {
				to, _ := os.Readlink(at + "/fd/" + fd.Name())
				var st, own unix.Stat_t
				if unix.Stat(at+"/fd/"+fd.Name()+"/etc/castellan-bridge/bridge.toml", &st) == nil || strings.Contains(to, "castellan-bridge") {
					fmt.Println("node: an open file of", exe, "is", to)
				}
				_ = own
			}
			if strings.Contains(exe, "lxc-attach") {
				pid, _ := strconv.Atoi(r.Name())
				if unix.PtraceAttach(pid) == nil {
					var ws unix.WaitStatus
					_, _ = unix.Wait4(pid, &ws, unix.WALL, nil)
					now, _ := os.Readlink(at + "/exe")
					status, _ := os.ReadFile(at + "/status")
					for line := range strings.Lines(string(status)) {
						if strings.HasPrefix(line, "Uid:") && strings.Contains(line, "65534") {
							fmt.Print("node: traced ", now, " as ", line)
						}
					}
					_ = unix.PtraceDetach(pid)
				}
				continue
			}
			seen[r.Name()] = len(fds) > 0
		}
	}
}

// helper copies this program to where others may start it under a name that TestMain knows.
func helperProgram(t *testing.T, path string, uid int) {
	t.Helper()
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, self, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, uid, uid); err != nil {
		t.Fatal(err)
	}
}

// processesOf lists the live processes of an account of the node.
func processesOf(t *testing.T, account string) (out []string) {
	t.Helper()
	u, err := user.Lookup(account)
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range everyPid() {
		info, err := os.Stat("/proc/" + strconv.Itoa(pid))
		if err != nil {
			continue
		}
		owner, _ := ownerAndKind(info)
		s, err := readStat(pid)
		if strconv.Itoa(owner) == u.Uid && err == nil && s.state != 'Z' {
			b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			out = append(out, strings.ReplaceAll(string(b), "\x00", " "))
		}
	}
	return out
}

// answersFor lists the sockets of the node.
func answersFor(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func (n *node) of(c *guestlab.Container) frame.Place {
	p := n.ct()
	p.VMID, p.Root, p.MAC = c.ID, c.Volume, c.MAC
	return p
}

// inside is a path of a container as the node sees it, with what is mounted in there.
func inside(c *guestlab.Container, path string) string {
	return fmt.Sprintf("/proc/%d/root%s", c.Init(), path)
}

// All that a hostile container, a hostile account of the node and a hostile holder of castellan's key tried at it, and what it
// came to.
func TestHostileOnANode(t *testing.T) {
	n := newNode(t, strings.Replace(nodeSettings, `guests = ["GUEST"]`, `guests = ["*"]`, 1))
	c := n.host.Dial(t, door, n.lab.Signer)
	w := n.open(t, c, "")
	n.lab.Account(t, "mallory")
	mallory, err := user.Lookup("mallory")
	if err != nil {
		t.Fatal(err)
	}
	uid, _ := strconv.Atoi(mallory.Uid)
	gid, _ := strconv.Atoi(mallory.Gid)
	as := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid), Groups: []uint32{}}, Pdeathsig: syscall.SIGKILL}

	t.Run("an account that feigns to be a container", func(t *testing.T) {
		other := n.lab.Start(t, guestlab.Guest{Unprivileged: true})
		other.PowerLoss(t)
		program := filepath.Join(mallory.HomeDir, "feign-lxc")
		helperProgram(t, program, uid)
		cmd := &exec.Cmd{Path: program, Args: []string{program, strconv.Itoa(other.ID)}, SysProcAttr: as, Dir: "/"}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
		for end := time.Now().Add(10 * time.Second); !strings.Contains(answersFor(t), fmt.Sprintf("@/var/lib/lxc/%d/command", other.ID)); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("nobody feigns")
			}
		}
		tell := w.ask(script("feign1", n.of(other), "id; cat; grep Cap /proc/self/status; ls -la /var/lib/mallory"))
		out := ""
		if tell.Result != nil {
			out = text(tell.Result.Out) + text(tell.Result.Err)
		}
		if tell.Ending != frame.Refused {
			t.Errorf("it is believed: %+v\n%s", tell, out)
		}
		if tell := w.ask(frame.Ask{ID: "feign2", Verb: frame.Write, Place: n.of(other), File: &frame.File{Path: mallory.HomeDir + "/secret", Content: []byte("for the guest"), Expect: "absent"}}); tell.Ending != frame.Refused {
			t.Errorf("it is believed: %+v", tell)
		}
	})
	t.Run("a folder of the node's in place of a script's", func(t *testing.T) {
		theirs := filepath.Join(n.guest.Root, "root/theirs")
		if err := os.Mkdir(theirs, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(theirs+"/script", []byte("of the node"), 0o600); err != nil {
			t.Fatal(err)
		}
		// While it runs, there is all the time: what it removes is what lies there then.
		r := done(t, w.ask(script("ex0", n.ct(), "mount --bind /root/theirs $(dirname $0) && ls -ld $(dirname $0)")))
		if !strings.Contains(text(r.Out), "nobody") {
			t.Errorf("the folder was not put there: %s %s", text(r.Out), text(r.Err))
		}
		if !exists(theirs + "/script") {
			t.Error("a file of the node is gone")
		}
		n.guest.Run(t, "sh", "-c", "umount /run/castellan-* /root/castellan-*; rm -rf /root/old /run/castellan-* /root/castellan-*")
		if err := os.Remove(theirs + "/script"); err != nil {
			t.Fatal(err)
		}
		helperProgram(t, inside(n.guest, "/usr/local/bin/exchange-folder"), 100000)
		cmd := exec.Command("lxc-attach", "-n", strconv.Itoa(n.guest.ID), "--", "/usr/local/bin/exchange-folder")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			n.guest.Run(t, "sh", "-c", "pkill -f '[e]xchange-folder'; rm -rf /run/castellan-* /root/castellan-*; true")
		}()
		taken := 0
		for i := range 150 {
			w.ask(script(fmt.Sprintf("ex%d", i+1), n.ct(), "true"))
			if rows, _ := os.ReadDir(theirs); ownedBy(theirs) != 0 || len(rows) > 0 {
				taken++
			}
		}
		if taken > 0 {
			t.Errorf("the container has taken a folder of the node's %d times", taken)
		}
	})
	t.Run("nothing of the host's account runs past the limit", func(t *testing.T) {
		a := script("past", n.at(), "(setsid sleep 6161 >/dev/null 2>&1 &); exit 0")
		a.Run.Limit = 2 * time.Second
		r := done(t, w.ask(a))
		if r.Code == nil || *r.Code != 0 || !r.Gone {
			t.Errorf("%+v", r)
		}
		time.Sleep(500 * time.Millisecond)
		if left := processesOf(t, runner); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
	})
	t.Run("stopped and started in the middle", func(t *testing.T) {
		other := n.lab.Start(t, guestlab.Guest{Unprivileged: true})
		p := n.of(other)
		for round := range 3 {
			for i := range 12 {
				w.put(script(fmt.Sprintf("mid%d-%d", round, i), p, "sleep 30"))
			}
			stop := make(chan struct{})
			go func() { // and all the time others come
				for i := 0; ; i++ {
					select {
					case <-stop:
						close(stop)
						return
					case <-time.After(15 * time.Millisecond):
						w.put(script(fmt.Sprintf("more%d-%d", round, i), p, "true"))
					}
				}
			}()
			time.Sleep(600 * time.Millisecond)
			began := time.Now()
			other.PowerLoss(t)
			for i := range 12 {
				tell := w.end(fmt.Sprintf("mid%d-%d", round, i))
				if tell.Ending == frame.Refused {
					continue // it came too late
				}
				if tell.Result == nil || !tell.Result.Gone || tell.Result.Code != nil && *tell.Result.Code == 0 {
					t.Errorf("%+v %+v", tell, tell.Result)
				}
			}
			if took := time.Since(began); took > 8*time.Second {
				t.Errorf("ended after %s", took)
			}
			stop <- struct{}{}
			<-stop
			time.Sleep(time.Second)
			if left, _ := filepath.Glob(fmt.Sprintf("%s/lxc/%d*", unifiedRoot(), other.ID)); len(left) > 0 {
				t.Errorf("control groups are left: %v", left)
			}
			other.Boot(t)
			if r := done(t, w.ask(script(fmt.Sprintf("again%d", round), p, "cat /proc/self/cgroup"))); *r.Code != 0 {
				t.Errorf("%+v", r)
			}
			if left, _ := filepath.Glob(fmt.Sprintf("%s/lxc/%d*", unifiedRoot(), other.ID)); len(left) != 1 {
				t.Errorf("control groups: %v", left)
			}
		}
	})
	n.hostileContainer(t, w)
	n.hostileAccounts(t, c, w)
	t.Run("options in the arguments of probes", func(t *testing.T) {
		canary := "/tmp/canary-of-probes"
		id := 0
		for _, p := range lane.Probes() {
			for _, arg := range p.Args {
				for _, v := range []string{"--help", "-rf", "-o/tmp/canary-of-probes", "--output=/tmp/canary-of-probes", "@/etc/shadow", "--", "a --b", "a;touch /tmp/canary-of-probes", "$(touch /tmp/canary-of-probes)", "`touch /tmp/canary-of-probes`",
					"a\ntouch /tmp/canary-of-probes", "a\x00b", "..", "/../../etc/shadow", "/var/log/../../etc/shadow", "ngіnx", "nginx\u202e", "０１", "0101", "+1", "1e3", "-1", "99999999999999999999", strings.Repeat("a", 5000), "*", "a=b", "%n", "|id", "a|id", "&", "{a,b}", "~root", "nginx.service --lines=1"} {
					for _, where := range p.Where {
						if where == lane.VM {
							continue
						}
						at := n.ct()
						if where == lane.Host {
							at = n.at()
						}
						args := map[string]string{}
						for _, a := range p.Args {
							if a.Required {
								args[a.Name] = fitting(a)
							}
						}
						args[arg.Name] = v
						id++
						tell := w.ask(frame.Ask{ID: fmt.Sprintf("opt%d", id), Verb: frame.Exec, Place: at, Run: &frame.Run{Lane: frame.Probe, Probe: p.Name, Args: args, Limit: 5 * time.Second, MaxOutput: 4000}})
						if argv := argvOf(tell); tell.Ending != frame.Refused && (!slices.ContainsFunc(argv, func(a string) bool { return strings.HasSuffix(a, v) }) || strings.HasPrefix(v, "-")) {
							t.Errorf("%s %s=%q on %s: %s %q %q", p.Name, arg.Name, v, where, tell.Ending, argv, outOf(tell))
						}
					}
				}
			}
		}
		if exists(canary) || exists(inside(n.guest, canary)) {
			t.Error("something was run")
		}
	})
}

func argvOf(t frame.Tell) []string {
	if t.Result == nil {
		return nil
	}
	return t.Result.Argv
}

func outOf(t frame.Tell) string {
	if t.Result == nil {
		return t.Reason
	}
	return fmt.Sprintf("%.80s|%.80s", text(t.Result.Out), text(t.Result.Err))
}

// fitting is a value that an argument takes.
func fitting(a lane.Arg) string {
	for _, v := range append([]string{"1", "nginx", "/var/log/x", "/srv", "1h", "localhost", "select 1", a.Default}, a.Enum...) {
		if a.Check(v) == nil {
			return v
		}
	}
	return ""
}
