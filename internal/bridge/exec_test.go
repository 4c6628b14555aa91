//go:build linux

package bridge

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"castellan/internal/frame"
	"castellan/internal/lane"
)

func done(t *testing.T, tell frame.Tell) *frame.Result {
	t.Helper()
	if tell.Ending != frame.Done || tell.Result == nil {
		t.Fatalf("ending %s: %s", tell.Ending, tell.Reason)
	}
	return tell.Result
}

func TestScriptInAContainerWithoutBash(t *testing.T) {
	h := newHouse(t)
	l := dial(t, h.bridge())
	a := script("s1", h.ct(), "cat; echo \"$0\"; echo err >&2; id -u; pwd; echo $FOO; exit 3")
	a.Run.Input, a.Run.Env, a.Run.Dir = []byte("from €\n"), []string{"FOO=a b;c"}, "/srv"
	r := done(t, l.ask(a))
	if r.Code == nil || *r.Code != 3 || !r.Gone || r.TimedOut {
		t.Errorf("result %+v", r)
	}
	out := strings.Split(text(r.Out), "\n")
	if len(out) != 6 || out[0] != "from €" || !strings.HasPrefix(out[1], "/run/castellan-") || out[2] != "0" || out[3] != "/srv" || out[4] != "a b;c" {
		t.Errorf("printed %q", out)
	}
	if text(r.Err) != "err\n" {
		t.Errorf("stderr %q", text(r.Err))
	}
	if rest, _ := filepath.Glob(filepath.Join(h.root, "run/castellan-*")); len(rest) > 0 {
		t.Errorf("left in the container: %v", rest)
	}
	if strings.Contains(h.log(), "exit 3") || !strings.Contains(h.log(), `"script_sha256":"`+sumText(a.Run.Script)) {
		t.Errorf("log: %s", h.log())
	}
	for name := range strings.SplitSeq("PATH HOME LANG", " ") {
		if r := done(t, l.ask(script("e"+name, h.ct(), "env"))); !strings.Contains(text(r.Out), name+"=") || strings.Contains(text(r.Out), "SSH_") {
			t.Errorf("environment: %s", text(r.Out))
		}
	}
	if r := done(t, l.ask(script("quiet", h.ct(), "true"))); *r.Code != 0 || r.Out.Total != 0 {
		t.Errorf("empty output: %+v", r)
	}
}

func TestNothingIsLeftAfterTheLimit(t *testing.T) {
	h := newHouse(t)
	l := dial(t, h.bridge())
	for n, body := range []string{
		"sleep 1000",
		"trap '' TERM HUP INT; while :; do sleep 1; done",
		"sleep 2000 & sleep 2001 & wait",
		"(setsid env -i /bin/sleep 3000 &) ; env -i /bin/setsid /bin/sleep 3001 & sleep 1000",
	} {
		a := script(fmt.Sprintf("t%d", n), h.ct(), body)
		a.Run.Limit = 1500 * time.Millisecond
		began := time.Now()
		r := done(t, l.ask(a))
		if !r.TimedOut || !r.Gone || r.Code != nil || r.Signal == "" {
			t.Errorf("%s: %+v", body, r)
		}
		if took := time.Since(began); took > 8*time.Second {
			t.Errorf("%s took %s", body, took)
		}
		for _, mark := range []string{"1000", "2000", "2001", "3000", "3001"} {
			for _, pid := range everyPid() {
				if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && strings.Contains(string(b), "sleep\x00"+mark) && !strings.Contains(string(b), "while") && inits(h, pid) {
					t.Errorf("%s: left %d: %q", body, pid, b)
				}
			}
		}
	}
}

// inits tells processes of the run from the one that the container's first process sleeps in.
func inits(h *house, pid int) bool {
	s, err := readStat(pid)
	return err == nil && s.parent != h.init
}

func TestHostRunsAsTheAccountAlone(t *testing.T) {
	h := newHouse(t)
	l := dial(t, h.bridge())
	a := script("h1", h.host(), "id; cat /proc/self/status | grep -E 'NoNewPrivs|Groups'; cat \"$0\"; cat /etc/shadow; env; sleep 0.1")
	r := done(t, l.ask(a))
	out := text(r.Out)
	if !strings.Contains(out, "uid=65534(nobody)") || !strings.Contains(out, "NoNewPrivs:\t1") || strings.Contains(out, "root:") || strings.Contains(out, "groups=0") || r.User != "nobody" {
		t.Errorf("printed %s", out)
	}
	if !r.Gone {
		t.Error("it is said to be left")
	}
	a = script("h2", h.host(), "setsid sleep 4000 & (trap '' TERM; sleep 4001) & sleep 1000")
	a.Run.Limit = time.Second
	if r := done(t, l.ask(a)); !r.TimedOut || !r.Gone {
		t.Errorf("%+v", r)
	}
	a = script("h3", h.host(), "id")
	a.Run.Root, a.Run.Secret = true, "guess"
	if tell := l.ask(a); tell.Ending != frame.Refused || !strings.Contains(tell.Hint, "root.enabled") || !strings.Contains(tell.Hint, "bridge.toml") {
		t.Errorf("%+v", tell)
	}
}

func TestRootOnTheHostTakesItsSecret(t *testing.T) {
	h := newHouse(t)
	secret, kept := NewSecret()
	h.put("secret", kept+"\n")
	if err := os.Chmod(filepath.Join(h.dir, "secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.set.Root = Root{Enabled: true, Secret: filepath.Join(h.dir, "secret")}
	l := dial(t, h.bridge())
	a := script("r1", h.host(), "id -u")
	a.Run.Root, a.Run.Secret = true, secret
	if r := done(t, l.ask(a)); text(r.Out) != "0\n" || r.User != "root" {
		t.Errorf("%+v", r)
	}
	if !strings.Contains(h.log(), `"root_on_host":true`) || strings.Contains(h.log(), secret) {
		t.Errorf("log: %s", h.log())
	}
	for n := range guessesMost + 2 {
		a.ID, a.Run.Secret = fmt.Sprintf("w%d", n), strings.Repeat("0", 64)
		if tell := l.ask(a); tell.Ending != frame.Refused {
			t.Errorf("%+v", tell)
		}
	}
	a.ID, a.Run.Secret = "r2", secret
	if tell := l.ask(a); tell.Ending != frame.Refused || !strings.Contains(tell.Reason, "too many") {
		t.Errorf("after many wrong ones: %+v", tell)
	}
}

func TestOutputIsCutInItsMiddleAndBounded(t *testing.T) {
	h := newHouse(t)
	h.set.Limits.Total = 50 << 20
	l := dial(t, h.bridge())
	a := script("o1", h.ct(), "seq 1 100000")
	a.Run.MaxOutput = 1000
	r := done(t, l.ask(a))
	if r.Out.Total != 588895 || len(r.Out.Head) != 500 || len(r.Out.Tail) != 500 || !strings.HasPrefix(string(r.Out.Head), "1\n2\n") || !strings.HasSuffix(string(r.Out.Tail), "99999\n100000\n") {
		t.Errorf("total %d head %d tail %d", r.Out.Total, len(r.Out.Head), len(r.Out.Tail))
	}
	a = script("o2", h.ct(), "yes")
	tell := l.ask(a)
	if r := done(t, tell); !r.Gone || r.TimedOut || r.Out.Total < 50<<20 || !strings.Contains(tell.Reason, "limits.total") {
		t.Errorf("%+v %s", r.Gone, tell.Reason)
	}
	a = script("o3", h.ct(), "for i in 1 2 3 4 5 6; do echo $i; sleep 0.15; done")
	a.Run.Stream = true
	done(t, l.ask(a))
	got := ""
	for _, tell := range l.tells["o3"] {
		got += string(tell.Out)
	}
	if !strings.HasPrefix("1\n2\n3\n4\n5\n6\n", got) || len(got) < 6 || len(l.tells["o3"]) > 9 {
		t.Errorf("streamed %q in %d", got, len(l.tells["o3"]))
	}
}

func TestARunOutlivesItsConnection(t *testing.T) {
	h := newHouse(t)
	l := dial(t, h.bridge())
	a := script("c1", h.ct(), "sleep 1; echo end; exit 7")
	l.put(a)
	for limit := time.Now().Add(5 * time.Second); time.Now().Before(limit); time.Sleep(5 * time.Millisecond) {
		l.mu.Lock()
		n := len(l.tells["c1"])
		l.mu.Unlock()
		if n > 0 {
			break
		}
	}
	l.in.Close()
	other := dial(t, h.bridge())
	look := frame.Ask{ID: "c1", Verb: frame.Look}
	if tell := other.ask(look); tell.Ending != frame.Unknown || !tell.Running {
		t.Errorf("while it runs: %+v", tell)
	}
	again := a
	other.tells = map[string][]frame.Tell{}
	if tell := other.ask(again); tell.Ending != frame.Unknown || !strings.Contains(tell.Reason, "begun before") {
		t.Errorf("the same id again: %+v", tell)
	}
	<-l.done
	other.tells = map[string][]frame.Tell{}
	r := done(t, other.ask(look))
	if *r.Code != 7 || text(r.Out) != "end\n" {
		t.Errorf("%+v", r)
	}
	if tell := other.ask(frame.Ask{ID: "never", Verb: frame.Look}); tell.Ending != frame.Unknown || tell.Running {
		t.Errorf("%+v", tell)
	}
	b := script("k1", h.ct(), "sleep 1000")
	other.put(b)
	time.Sleep(300 * time.Millisecond)
	third := dial(t, h.bridge())
	if tell := third.ask(frame.Ask{ID: "k1", Verb: frame.Kill}); tell.Ending != frame.Done || !tell.Result.Gone {
		t.Errorf("killed from elsewhere: %+v", tell)
	}
}

func TestWhatIsMeantIsProved(t *testing.T) {
	h := newHouse(t)
	l := dial(t, h.bridge())
	n := 0
	refused := func(want string, change func(p *frame.Place)) {
		t.Helper()
		p := h.ct()
		change(&p)
		n++
		tell := l.ask(script(fmt.Sprintf("p%d", n), p, "touch /srv/was-here"))
		if tell.Ending != frame.Refused || !strings.Contains(tell.Reason, want) {
			t.Errorf("%s: %+v", want, tell)
		}
	}
	refused("the site", func(p *frame.Place) { p.Site = "house-0000000000000000" })
	refused("the node", func(p *frame.Place) { p.Node = "pve2" })
	refused("root volume", func(p *frame.Place) { p.Root = "local:101/vm-101-disk-1.raw" })
	refused("hardware address", func(p *frame.Place) { p.MAC = "BC:24:11:00:00:66" })
	refused("nothing that tells", func(p *frame.Place) { p.Root, p.MAC = "", "" })
	refused("does not serve", func(p *frame.Place) { p.VMID = 102 })
	refused("no id", func(p *frame.Place) { p.VMID = -101 })
	refused("no place", func(p *frame.Place) { p.Where = "lxc " })
	refused("VMs", func(p *frame.Place) { p.Where = frame.VM })
	refused("SMBIOS", func(p *frame.Place) { p.UUID = "x" })
	h.put("pve/nodes/pve1/lxc/101.conf", "rootfs: "+testRoot+"\nlock: backup\nunprivileged: 1\n")
	refused("locked", func(p *frame.Place) { p.MAC = "" })
	h.put("pve/nodes/pve1/lxc/101.conf", "rootfs: "+testRoot+"\ntemplate: 1\nunprivileged: 1\n")
	refused("template", func(p *frame.Place) { p.MAC = "" })
	h.put("pve/nodes/pve1/lxc/101.conf", "rootfs: "+testRoot+"\nrootfs: other\n")
	refused("twice", func(p *frame.Place) { p.MAC = "" })
	if err := os.Remove(filepath.Join(h.dir, "pve/nodes/pve1/lxc/101.conf")); err != nil {
		t.Fatal(err)
	}
	refused("no container 101", func(p *frame.Place) {})
	if _, err := os.Stat(filepath.Join(h.root, "srv/was-here")); err == nil {
		t.Error("one of them ran")
	}
}

func TestAPrivilegedContainerIsTheHost(t *testing.T) {
	h := newHouse(t)
	h.put("pve/nodes/pve1/lxc/101.conf", "rootfs: "+testRoot+"\n")
	h.set.Lanes.Host = []string{"probe"}
	l := dial(t, h.bridge())
	p := h.ct()
	p.MAC = ""
	if tell := l.ask(script("x1", p, "id")); tell.Ending != frame.Refused || !strings.Contains(tell.Reason, "privileged") || !strings.Contains(tell.Hint, "lanes.host") {
		t.Errorf("%+v", tell)
	}
}

func TestProbes(t *testing.T) {
	h := newHouse(t)
	l := dial(t, h.bridge())
	probe := func(id string, p frame.Place, name string, args map[string]string) frame.Tell {
		t.Helper()
		return l.ask(frame.Ask{ID: id, Verb: frame.Exec, Place: p, Run: &frame.Run{Lane: frame.Probe, Probe: name, Args: args, Limit: 10 * time.Second, MaxOutput: 40000}})
	}
	if r := done(t, probe("q1", h.ct(), "mounts", nil)); !strings.Contains(text(r.Out), "proc /proc") {
		t.Errorf("%+v %s", r, text(r.Out))
	}
	if r := done(t, probe("q2", h.host(), "disk", nil)); r.Code == nil || *r.Code > 1 || !strings.Contains(text(r.Out), "Filesystem") {
		t.Errorf("%+v %s", r, text(r.Out))
	}
	if tell := probe("q3", h.ct(), "disk_top", map[string]string{"path": "--help"}); tell.Ending != frame.Refused {
		t.Errorf("%+v", tell)
	}
	if tell := probe("q4", h.ct(), "nonesuch", nil); tell.Ending != frame.Refused {
		t.Errorf("%+v", tell)
	}
}

func TestCommandsPassTheBridgesOwnRules(t *testing.T) {
	h := newHouse(t)
	h.set.Rules.Commands = []lane.Rule{{Guests: []string{"101"}, Argv: "ls -l <path:/etc>"}, {Guests: []string{"101"}, Argv: "echo <word...>"}, {Nodes: []string{"*"}, Argv: "uname -r"}}
	h.set.Lanes.Host = append(h.set.Lanes.Host, "command")
	l := dial(t, h.bridge())
	n := 0
	command := func(p frame.Place, argv ...string) frame.Tell {
		t.Helper()
		n++
		return l.ask(frame.Ask{ID: fmt.Sprintf("m%d", n), Verb: frame.Exec, Place: p, Run: &frame.Run{Lane: frame.Command, Argv: argv, Limit: 5 * time.Second, MaxOutput: 4000}})
	}
	if r := done(t, command(h.ct(), "ls", "-l", "/etc/motd")); *r.Code != 0 || !strings.Contains(text(r.Out), "motd") {
		t.Errorf("%+v", r)
	}
	if r := done(t, command(h.host(), "uname", "-r")); *r.Code != 0 || r.User != "nobody" {
		t.Errorf("%+v", r)
	}
	if r := done(t, command(h.ct(), "echo", "a", "b")); text(r.Out) != "a b\n" {
		t.Errorf("%q", text(r.Out))
	}
	for _, argv := range [][]string{{"ls", "-l", "/etc;id"}, {"ls", "-l", "/etc/$(id)"}, {"ls", "-l", "/etc/\nx"}, {"ls", "-l", "/etc/a\x00b"}, {"ls", "-l", "/proc"}, {"/bin/ls", "-l", "/etc"}, {"busybox", "ls", "-l", "/etc"}, {"ls", "-l", "--", "/etc"},
		{"ls", "-lR", "/etc"}, {"ls", "-l", "-R"}, {"echo", "-n"}, {"echo", "@file|sh"}, {"ｌs", "-l", "/etc"}, {"ls", "-l", "/etc/" + strings.Repeat("a", 5000)}, {""}, nil, {"sh", "-c", "id"}} {
		if tell := command(h.ct(), argv...); tell.Ending != frame.Refused || tell.Reason == "" {
			t.Errorf("%q: %+v", argv, tell)
		}
	}
	if tell := command(h.host(), "ls", "-l", "/etc"); tell.Ending != frame.Refused || !strings.Contains(tell.Hint, "bridge.toml") {
		t.Errorf("%+v", tell)
	}
}

func TestFilesOfAContainer(t *testing.T) {
	h := newHouse(t)
	b := h.bridge()
	l := dial(t, b)
	n := 0
	file := func(v frame.Verb, f frame.File) frame.Tell {
		t.Helper()
		n++
		return l.ask(frame.Ask{ID: fmt.Sprintf("f%d", n), Verb: v, Place: h.ct(), File: &f})
	}
	found := func(tell frame.Tell) *frame.Found {
		t.Helper()
		if tell.Ending != frame.Done || tell.File == nil {
			t.Fatalf("%+v", tell)
		}
		return tell.File
	}
	if f := found(file(frame.Read, frame.File{Path: "/etc/motd"})); string(f.Content) != "hello from 101\n" || f.SHA256 != sumText("hello from 101\n") || f.UID != 0 || f.Cut {
		t.Errorf("%+v", f)
	}
	if f := found(file(frame.Read, frame.File{Path: "/etc/motd", Max: 5})); string(f.Content) != "hello" || !f.Cut {
		t.Errorf("%+v", f)
	}
	if f := found(file(frame.Read, frame.File{Path: "/etc/none"})); !f.Absent {
		t.Errorf("%+v", f)
	}
	h.put("outside", "of the node")
	for name, to := range map[string]string{"abs": filepath.Join(h.dir, "outside"), "up": "../../../../../../../.." + filepath.Join(h.dir, "outside"), "shadow": "/etc/shadow", "init": "/proc/1/root/etc/motd", "loop": "loop"} {
		if err := os.Symlink(to, filepath.Join(h.root, "srv", name)); err != nil {
			t.Fatal(err)
		}
		tell := file(frame.Read, frame.File{Path: "/srv/" + name})
		if tell.Ending == frame.Done && !tell.File.Absent {
			t.Errorf("%s led to %q", name, tell.File.Content)
		}
		if tell := file(frame.Write, frame.File{Path: "/srv/" + name, Content: []byte("x")}); tell.Ending != frame.Refused {
			t.Errorf("write over a link: %+v", tell)
		}
	}
	if b, err := os.ReadFile(filepath.Join(h.dir, "outside")); err != nil || string(b) != "of the node" {
		t.Errorf("outside: %q %v", b, err)
	}
	if err := os.Symlink("/etc", filepath.Join(h.root, "srv/inside")); err != nil {
		t.Fatal(err)
	}
	if f := found(file(frame.Read, frame.File{Path: "/srv/inside/motd"})); string(f.Content) != "hello from 101\n" {
		t.Errorf("a link within the container: %+v", f)
	}
	if err := unix.Mkfifo(filepath.Join(h.root, "srv/fifo"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/srv/fifo", "/dev/zero", "/etc", "/proc/1/environ", "/proc/kcore", "/proc/self/root/etc/motd", "etc/motd", "/etc/../etc/motd", "/", "/etc/motd/", "//etc/motd"} {
		for _, v := range []frame.Verb{frame.Read, frame.Write} {
			f := frame.File{Path: path}
			if tell := file(v, f); tell.Ending != frame.Refused && (v == frame.Write || tell.File == nil || !tell.File.Absent) {
				t.Errorf("%s %s: %+v", v, path, tell)
			}
		}
	}
	f := found(file(frame.Write, frame.File{Path: "/etc/new", Content: []byte("one"), Expect: "absent", Mode: 0o640}))
	st, err := os.Stat(filepath.Join(h.root, "etc/new"))
	if err != nil || !f.Absent || st.Mode().Perm() != 0o640 || st.Sys().(*syscall.Stat_t).Uid != 100000 {
		t.Errorf("%+v %v %v", f, st, err)
	}
	if err := os.Chown(filepath.Join(h.root, "etc/new"), 100033, 100034); err != nil {
		t.Fatal(err)
	}
	if f := found(file(frame.Write, frame.File{Path: "/etc/new", Content: []byte("two"), Expect: sumText("one")})); f.SHA256 != sumText("one") || f.UID != 33 || f.GID != 34 {
		t.Errorf("%+v", f)
	}
	if st, err = os.Stat(filepath.Join(h.root, "etc/new")); err != nil || st.Mode().Perm() != 0o640 || st.Sys().(*syscall.Stat_t).Uid != 100033 {
		t.Errorf("%v %v", st, err)
	}
	for _, f := range []frame.File{{Path: "/etc/new", Expect: sumText("one")}, {Path: "/etc/new", Expect: "absent"}, {Path: "/etc/none", Expect: sumText("one")}, {Path: "/etc/new2", Mode: 0o4755}, {Path: "/none/new"}, {Path: "/etc/new", Expect: "zz"}} {
		if tell := file(frame.Write, f); tell.Ending != frame.Refused {
			t.Errorf("%+v: %+v", f, tell)
		}
	}
	if b, err := os.ReadFile(filepath.Join(h.root, "etc/new")); string(b) != "two" {
		t.Errorf("%q %v", b, err)
	}
	if rest, _ := filepath.Glob(filepath.Join(h.root, "etc/.new*")); len(rest) > 0 {
		t.Errorf("left beside it: %v", rest)
	}
	if tell := l.ask(frame.Ask{ID: "fh", Verb: frame.Read, Place: h.host(), File: &frame.File{Path: "/etc/hostname"}}); tell.Ending != frame.Refused {
		t.Errorf("%+v", tell)
	}
}
