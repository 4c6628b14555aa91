//go:build linux

package bridge

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"castellan/internal/frame"
	"castellan/internal/guestlab"
)

// TestMain lets this program stand in for lxc-info and lxc-attach, and for the first process of a container.
func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case "lxc-info":
		standInInfo()
	case "lxc-attach":
		standInAttach()
	case "feign-lxc":
		feign()
	case "exchange-folder":
		exchange()
	case "peer-of-all":
		peer()
	}
	os.Exit(guestlab.Main(m))
}

func flags(args []string) (id string, env, rest []string) {
	for n := 1; n < len(args); n++ {
		switch args[n] {
		case "-n", "-P", "-v":
			if args[n] == "-n" {
				id = args[n+1]
			}
			if args[n] == "-v" {
				env = append(env, args[n+1])
			}
			n++
		case "--":
			return id, env, args[n+1:]
		}
	}
	return id, env, nil
}

func standInInfo() {
	id, _, _ := flags(os.Args)
	b, err := os.ReadFile(filepath.Join(filepath.Dir(os.Args[0]), id+".pid"))
	if err != nil {
		fmt.Fprintln(os.Stderr, id+" does not exist")
		os.Exit(1)
	}
	os.Stdout.Write(b)
	os.Exit(0)
}

// standInAttach really enters the container: nsenter joins its namespaces and its root.
func standInAttach() {
	id, env, rest := flags(os.Args)
	pid, err := os.ReadFile(filepath.Join(filepath.Dir(os.Args[0]), id+".pid"))
	if err != nil {
		os.Exit(255)
	}
	argv := append([]string{"nsenter", "-t", strings.TrimSpace(string(pid)), "-U", "-m", "-p", "-u", "-r", "-w", "-S", "0", "-G", "0", "--"}, rest...)
	path, _ := exec.LookPath("/usr/bin/nsenter")
	cmd := &exec.Cmd{Path: path, Args: argv, Env: append(os.Environ(), env...), Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	err = cmd.Run()
	if s, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		os.Exit(128 + int(s.Signal()))
	}
	if err != nil && cmd.ProcessState.ExitCode() < 0 {
		os.Exit(255)
	}
	os.Exit(cmd.ProcessState.ExitCode())
}

const (
	testMAC  = "BC:24:11:00:00:65"
	testRoot = "local:101/vm-101-disk-0.raw"
)

// house is a node with one container, number 101, of busybox alone: it has no bash.
type house struct {
	t    *testing.T
	dir  string
	root string // of the container
	site string
	set  Settings
	init int
}

func newHouse(t *testing.T) *house {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("containers and accounts take root")
	}
	if _, err := os.Stat("/usr/bin/busybox"); err != nil {
		t.Skip("busybox is not installed")
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for at := dir; at != "/" && at != "/tmp"; at = filepath.Dir(at) {
		if err := os.Chmod(at, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	h := &house{t: t, dir: dir, root: filepath.Join(dir, "ct")}
	h.put("pve/pve-root-ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("the root of " + t.Name())})))
	h.put("pve/corosync.conf", "totem {\n  cluster_name: house\n}\n")
	h.put("pve/nodes/pve1/lxc/101.conf", "arch: amd64\nrootfs: "+testRoot+",size=1G\nnet0: name=eth0,bridge=vmbr0,hwaddr="+testMAC+",type=veth\nunprivileged: 1\n\n[before]\nrootfs: other\n")
	h.set = Settings{Guests: []string{"101"}, Node: "pve1", Account: "nobody", State: filepath.Join(dir, "state"), Log: filepath.Join(dir, "log"), path: filepath.Join(dir, "bridge.toml"),
		Lanes: Lanes{Host: []string{"probe", "script"}, LXC: []string{"probe", "command", "script"}}, Files: []string{"read", "write"},
		Paths: Paths{PVE: filepath.Join(dir, "pve"), LXC: filepath.Join(dir, "lxc"), LXCInfo: filepath.Join(dir, "bin/lxc-info"), LXCAttach: filepath.Join(dir, "bin/lxc-attach")}}
	if err := os.MkdirAll(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"lxc-info", "lxc-attach"} {
		if err := os.Symlink(self, filepath.Join(dir, "bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	h.container()
	return h
}

func (h *house) put(name, text string) {
	h.t.Helper()
	p := filepath.Join(h.dir, name)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
		h.t.Fatal(err)
	}
}

// container starts 101: namespaces of its own, root of it is 100000 outside.
func (h *house) container() {
	h.t.Helper()
	unix.Umask(0o022)
	for _, d := range []string{"bin", "etc", "proc", "run", "tmp", "root", "srv", "dev"} {
		if err := os.MkdirAll(filepath.Join(h.root, d), 0o755); err != nil {
			h.t.Fatal(err)
		}
	}
	b, err := os.ReadFile("/usr/bin/busybox")
	if err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(h.root, "bin/busybox"), b, 0o755); err != nil {
		h.t.Fatal(err)
	}
	for _, n := range []string{"sh", "cat", "echo", "sleep", "env", "kill", "ls", "head", "mkfifo", "ln", "pwd", "id", "mount", "yes", "dd", "df", "touch", "setsid", "true", "false", "seq", "ps", "rm", "date", "uptime"} {
		if err := os.Symlink("busybox", filepath.Join(h.root, "bin", n)); err != nil {
			h.t.Fatal(err)
		}
	}
	for n, name := range []string{"null", "zero"} {
		if err := unix.Mknod(filepath.Join(h.root, "dev", name), unix.S_IFCHR|0o666, int(unix.Mkdev(1, uint32(3+2*n)))); err != nil {
			h.t.Fatal(err)
		}
	}
	h.put("ct/etc/motd", "hello from 101\n")
	if out, err := exec.Command("chown", "-hR", "100000:100000", h.root).CombinedOutput(); err != nil {
		h.t.Fatal(string(out))
	}
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 100000, Size: 65536}}
	cmd := exec.Command("/bin/sh", "-c", "/bin/mount -t proc proc /proc && echo up && trap : TERM && while :; do /bin/sleep 1000 & wait; done")
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: h.root, Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS, UidMappings: ids, GidMappings: ids, Credential: &syscall.Credential{}}
	cmd.Env, cmd.Dir = []string{"PATH=/bin"}, "/"
	if root := unifiedRoot(); root != "" { // where Proxmox has it
		top := filepath.Join(root, "house-"+newNonce()[:8])
		if err := os.MkdirAll(filepath.Join(top, "lxc"), 0o755); err != nil {
			h.t.Fatal(err)
		}
		g, err := newGroup(filepath.Join(top, "lxc", "101"), process{})
		if err != nil {
			h.t.Fatal(err)
		}
		h.t.Cleanup(func() {
			g.kill()
			g.close()
			_ = os.Remove(filepath.Join(top, "lxc"))
			_ = os.Remove(top)
		})
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, g.fd
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		h.t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		h.t.Fatal("start the container: ", err)
	}
	h.init = cmd.Process.Pid
	h.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if n, err := out.Read(make([]byte, 3)); err != nil || n == 0 {
		h.t.Fatal("the container did not come up: ", err)
	}
	h.put("bin/101.pid", strconv.Itoa(h.init)+"\n")
	monitor, err := net.Listen("unix", "@"+filepath.Join(h.dir, "lxc/101/command"))
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { monitor.Close() })
}

// bridge opens a bridge with the settings as they are now.
func (h *house) bridge() *Bridge {
	h.t.Helper()
	s := h.set
	if err := s.complete(); err != nil {
		h.t.Fatal(err)
	}
	b, err := New(Config{Settings: s, Build: "test", Peer: "test"})
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { b.Close() })
	if h.site, _, err = b.self(); err != nil {
		h.t.Fatal(err)
	}
	return b
}

func (h *house) ct() frame.Place {
	return frame.Place{Site: h.site, Node: "pve1", Where: frame.CT, VMID: 101, Root: testRoot, MAC: testMAC}
}

func (h *house) host() frame.Place {
	return frame.Place{Site: h.site, Node: "pve1", Where: frame.Host}
}

func (h *house) log() string {
	b, err := os.ReadFile(filepath.Join(h.dir, "log"))
	if err != nil {
		h.t.Fatal(err)
	}
	return string(b)
}

// line is one connection to a bridge.
type line struct {
	t    *testing.T
	in   *io.PipeWriter
	w    *frame.Writer
	done chan error
	cut  chan struct{}

	mu    sync.Mutex
	tells map[string][]frame.Tell
	news  chan struct{}
}

func dial(t *testing.T, b *Bridge) *line {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	l := &line{t: t, in: inW, w: frame.NewWriter(inW), done: make(chan error, 1), tells: map[string][]frame.Tell{}, news: make(chan struct{}, 1000)}
	go func() {
		err := b.Serve(context.Background(), inR, outW)
		outW.Close()
		l.done <- err
	}()
	go func() {
		r := frame.NewReader(outR)
		for {
			var tell frame.Tell
			if r.Next(&tell) != nil {
				return
			}
			l.mu.Lock()
			l.tells[tell.ID] = append(l.tells[tell.ID], tell)
			l.mu.Unlock()
			select {
			case l.news <- struct{}{}:
			default:
			}
		}
	}()
	t.Cleanup(func() { inW.Close() })
	return l
}

// end waits for the last Tell of an id.
func (l *line) end(id string) frame.Tell {
	l.t.Helper()
	for limit := time.After(30 * time.Second); ; {
		l.mu.Lock()
		tells := l.tells[id]
		l.mu.Unlock()
		if n := len(tells); n > 0 && tells[n-1].Ending != "" {
			return tells[n-1]
		}
		select {
		case <-l.news:
		case <-time.After(50 * time.Millisecond):
		case <-limit:
			l.t.Fatalf("no end of %s", id)
		}
	}
}

func (l *line) put(a frame.Ask) {
	l.t.Helper()
	if a.V == 0 {
		a.V = frame.Version
	}
	if err := l.w.Put(a); err != nil {
		l.t.Fatal(err)
	}
}

func (l *line) ask(a frame.Ask) frame.Tell {
	l.t.Helper()
	l.put(a)
	return l.end(a.ID)
}

// script is an ask that runs a text by sh.
func script(id string, p frame.Place, text string) frame.Ask {
	return frame.Ask{ID: id, Verb: frame.Exec, Place: p, Run: &frame.Run{Lane: frame.Script, Script: text, Interpreter: "sh", Limit: 10 * time.Second, MaxOutput: 40000}}
}

func text(o frame.Output) string {
	if len(o.Tail) == 0 {
		return string(o.Head)
	}
	return string(o.Head) + "…" + string(o.Tail)
}
