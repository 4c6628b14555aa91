//go:build linux

package bridge

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"castellan/internal/frame"
)

// deadHouse is a bridge that may arm, what waits being a program of the test's choice.
func deadHouse(t *testing.T, program string) (h *house, b *Bridge, arm func(plan, what string) frame.Tell) {
	t.Helper()
	h = newHouse(t)
	h.set.Words = []string{"dead_man"}
	for _, name := range []string{"pve/firewall", "net/interfaces.d", "bin"} {
		if err := os.MkdirAll(filepath.Join(h.dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	h.put("bin/ifreload", "#!/bin/sh\n")
	h.put("bin/waits", "#!/bin/sh\n"+program+"\n")
	for _, name := range []string{"bin/ifreload", "bin/waits"} {
		if err := os.Chmod(filepath.Join(h.dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	h.set.Paths.IfReload, h.set.Paths.Network = filepath.Join(h.dir, "bin/ifreload"), filepath.Join(h.dir, "net/interfaces")
	b = h.bridge()
	b.program = []string{filepath.Join(h.dir, "bin/waits")}
	l := dial(t, b)
	return h, b, func(plan, what string) frame.Tell {
		t.Helper()
		return l.ask(frame.Ask{ID: plan + ".1", Verb: frame.Manage, Place: h.host(), Word: &frame.Word{Name: "dead_man", Args: map[string]string{"action": "arm", "what": what, "seconds": "600"}}})
	}
}

func (h *house) has(t *testing.T, name, want string) {
	t.Helper()
	got, err := os.ReadFile(filepath.Join(h.dir, name))
	if want == "" && err == nil || want != "" && string(got) != want {
		t.Errorf("%s: %.60q %v, want %.60q", name, got, err, want)
	}
}

// All of what it covers is as it was: what has grown out of bounds, what is new, what is gone.
func TestWhatIsPutBackIsWhole(t *testing.T) {
	h, b, arm := deadHouse(t, "exit 0")
	big := strings.Repeat("# x\n", 1<<19)
	h.put("pve/firewall/cluster.fw", "before\n")
	h.put("pve/firewall/900.fw", "other\n")
	h.put("pve/nodes/pve1/lxc/101.conf", "arch: amd64\n")
	h.put("pve/nodes/pve2/qemu-server/300.conf", "name: x\n")
	h.put("net/interfaces", "auto lo\n")
	h.put("net/interfaces.d/a", "# a\n")
	h.put("net/interfaces.d/p", "# p\n")
	back := func(plan, what string) {
		t.Helper()
		if tell := arm(plan, what); tell.Ending != frame.Done {
			t.Fatalf("%+v", tell)
		}
		waiting := b.state.armed()
		if len(waiting) != 1 {
			t.Fatalf("%+v", waiting)
		}
		switch what {
		case "firewall":
			h.put("pve/firewall/cluster.fw", big)
			h.put("pve/firewall/101.fw", "new of a guest of this node\n")
			h.put("pve/firewall/300.fw", "new of a guest of another node\n")
			h.put("pve/firewall/555.fw", "of a guest that came later\n")
			h.put("pve/firewall/note.txt", "no firewall\n")
			if err := os.Remove(filepath.Join(h.dir, "pve/firewall/900.fw")); err != nil {
				t.Fatal(err)
			}
		case "network":
			h.put("net/interfaces", "auto lo\n"+big)
			h.put("net/interfaces.d/a", "# b, of somebody else\n")
			if err := os.Remove(filepath.Join(h.dir, "net/interfaces.d/p")); err != nil {
				t.Fatal(err)
			}
			pipe(t, filepath.Join(h.dir, "net/interfaces.d/p"))
			pipe(t, filepath.Join(h.dir, "net/interfaces.d/q"))
			h.put("victim", "not to be written\n")
			if err := os.Symlink(filepath.Join(h.dir, "victim"), filepath.Join(h.dir, "net/interfaces.castellan")); err != nil {
				t.Fatal(err)
			}
			h.put("net/interfaces.d/new", "auto eth9\n")
			h.put("net/interfaces.d/huge", big)
			if err := os.Symlink("/etc/passwd", filepath.Join(h.dir, "net/interfaces.d/link")); err != nil {
				t.Fatal(err)
			}
		}
		waiting[0].Until = time.Now()
		if err := b.revert(context.Background(), waiting[0]); err != nil {
			t.Fatal(err)
		}
	}
	back("one", "firewall")
	h.has(t, "pve/firewall/cluster.fw", "before\n")
	h.has(t, "pve/firewall/900.fw", "other\n")
	h.has(t, "pve/firewall/101.fw", "")
	h.has(t, "pve/firewall/300.fw", "")
	h.has(t, "pve/firewall/555.fw", "of a guest that came later\n")
	h.has(t, "pve/firewall/note.txt", "no firewall\n")
	if got, err := os.ReadFile(filepath.Join(b.state.deadDir("one.firewall"), "new-300.fw")); err != nil || !strings.Contains(string(got), "another node") {
		t.Errorf("what was taken away left no copy: %q %v", got, err)
	}
	back("two", "network")
	h.has(t, "net/interfaces", "auto lo\n")
	h.has(t, "net/interfaces.d/a", "# a\n")
	h.has(t, "net/interfaces.d/p", "# p\n")
	h.has(t, "victim", "not to be written\n")
	// What goes need not be of who armed it: all of it is there to be had again.
	for name, want := range map[string]string{"was-a": "# b, of somebody else\n", "was-interfaces": "auto lo\n" + big, "new-huge": big, "new-new": "auto eth9\n"} {
		if got, err := os.ReadFile(filepath.Join(b.state.deadDir("two.network"), name)); err != nil || string(got) != want {
			t.Errorf("copy %s: %d bytes, %v", name, len(got), err)
		}
	}
	for _, name := range []string{"new", "huge", "link", "q"} {
		h.has(t, "net/interfaces.d/"+name, "")
	}
	if exists(filepath.Join(b.state.deadDir("two.network"), "new-link")) {
		t.Error("a link was read")
	}
	// What could not be put back is not armed.
	h.put("pve/firewall/900.fw", big)
	if tell := arm("three", "firewall"); tell.Ending != frame.Refused || !strings.Contains(tell.Reason, "900.fw") || !strings.Contains(tell.Reason, "larger than 1048576") {
		t.Errorf("%+v", tell)
	}
	if len(b.state.armed()) > 0 {
		t.Error("it was armed")
	}
}

// pipe makes one that somebody holds open and writes nothing to.
func pipe(t *testing.T, path string) {
	t.Helper()
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
}

// A clock that is set makes nobody wait for longer than was asked for.
func TestAClockThatIsSet(t *testing.T) {
	at := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	a := armed{Until: at.Add(3 * time.Minute), Seconds: 180}
	for now, want := range map[time.Time]time.Duration{
		at: 3 * time.Minute, at.Add(time.Minute): 2 * time.Minute, at.Add(3 * time.Minute): 0, at.Add(time.Hour): 0,
		at.Add(-time.Hour): 3 * time.Minute, time.Unix(0, 0): 3 * time.Minute, // set back, or the clock of a board without a battery
	} {
		if got := a.left(now); got != want {
			t.Errorf("at %s: %s, want %s", now, got, want)
		}
	}
	if got := (armed{Until: at.Add(24 * time.Hour)}).left(at); got != time.Hour {
		t.Errorf("one that does not say how long: %s", got)
	}
	// And the whole of it: as the clock stands, it were to wait for two hours.
	h, b, arm := deadHouse(t, "exit 0")
	h.put("pve/firewall/cluster.fw", "before\n")
	if tell := arm("one", "firewall"); tell.Ending != frame.Done {
		t.Fatalf("%+v", tell)
	}
	h.put("pve/firewall/cluster.fw", "after\n")
	set := b.state.armed()[0]
	set.Until, set.Seconds = time.Now().Add(2*time.Hour), 1
	began := time.Now()
	if err := b.revert(context.Background(), set); err != nil || time.Since(began) > 10*time.Second {
		t.Errorf("%v after %s", err, time.Since(began))
	}
	h.has(t, "pve/firewall/cluster.fw", "before\n")
}

// A switch that nobody waits for any more is taken up by the next connection, and one that somebody waits for is not.
func TestASwitchWithoutAWaiterIsTakenUp(t *testing.T) {
	started := filepath.Join(t.TempDir(), "started")
	h, b, arm := deadHouse(t, "echo \"$@\" >>"+started)
	h.put("pve/firewall/cluster.fw", "before\n")
	if tell := arm("cut", "firewall"); tell.Ending != frame.Done {
		t.Fatalf("%+v", tell)
	}
	count := func(want int) {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			text, _ := os.ReadFile(started) // it comes when it comes
			if got := strings.Count(string(text), "revert -- cut.firewall\n"); got == want {
				return
			} else if time.Now().After(end) || got > want {
				t.Fatalf("%d were started, want %d: %s", got, want, text)
			}
		}
	}
	count(1) // by arming; it has ended at once, and puts nothing back
	dir := b.state.deadDir("cut.firewall")
	if err := os.Rename(filepath.Join(dir, deadArmed), filepath.Join(dir, deadReverting)); err != nil {
		t.Fatal(err)
	}
	b.takeUp(t.Context())
	count(2)
	lock, err := b.state.waitLock("cut.firewall")
	if err != nil {
		t.Fatal(err)
	}
	b.takeUp(t.Context())
	if err := b.Revert(t.Context(), "cut.firewall"); err != nil || !exists(filepath.Join(dir, deadReverting)) {
		t.Errorf("two at once: %v", err)
	}
	lock.Close()
	time.Sleep(200 * time.Millisecond)
	count(2)
	if tell := arm("other", "firewall"); tell.Ending != frame.Refused || !strings.Contains(tell.Reason, "puts back") {
		t.Errorf("%+v", tell)
	}
	count(3)
}

// A guest that was made anew under the id of one that is gone gets nothing of its firewall, and a switch for one guest keeps and
// puts back that one's alone.
func TestAFirewallIsPutBackToItsGuest(t *testing.T) {
	h, b, arm := deadHouse(t, "exit 0")
	h.put("pve/firewall/cluster.fw", "before\n")
	conf := func(node, id, mark string) string {
		name := "pve/nodes/" + node + "/qemu-server/" + id + ".conf"
		h.put(name, "name: x\nnet0: virtio=BC:24:11:00:00:"+mark+",bridge=vmbr0\nscsi0: local:vm-"+id+"-disk-0,size=1G\nsmbios1: uuid="+mark+"\n")
		return name
	}
	put := func(id, text string) { h.put("pve/firewall/"+id+".fw", text) }
	for n, id := range []string{"301", "302", "303", "304"} {
		conf("pve1", id, fmt.Sprintf("0%d", n))
		put(id, "before of "+id+"\n")
	}
	conf("pve2", "401", "41")
	conf("pve2", "402", "42")
	revert := func() {
		t.Helper()
		waiting := b.state.armed()
		if len(waiting) != 1 {
			t.Fatalf("%+v", waiting)
		}
		waiting[0].Until = time.Now()
		if err := b.revert(context.Background(), waiting[0]); err != nil {
			t.Fatal(err)
		}
	}
	if tell := arm("one", "firewall"); tell.Ending != frame.Done {
		t.Fatalf("%+v", tell)
	}
	for _, id := range []string{"301", "302", "303", "304", "401", "402"} {
		put(id, "now of "+id+"\n")
	}
	h.put("pve/nodes/pve1/qemu-server/301.conf", "name: new\nscsi0: local:vm-301-disk-7\nsmbios1: uuid=99\n") // made anew
	if err := errors.Join(os.Remove(filepath.Join(h.dir, "pve/nodes/pve1/qemu-server/302.conf")), os.Remove(filepath.Join(h.dir, "pve/nodes/pve1/qemu-server/304.conf"))); err != nil {
		t.Fatal(err)
	}
	conf("pve2", "304", "03") // moved to another node
	h.put("pve/nodes/pve2/qemu-server/401.conf", "name: new\nsmbios1: uuid=98\n")
	revert()
	for id, want := range map[string]string{"301": "now of 301\n", "302": "now of 302\n", "303": "before of 303\n", "304": "before of 304\n", "401": "now of 401\n", "402": ""} {
		h.has(t, "pve/firewall/"+id+".fw", want)
	}

	l := dial(t, b)
	of := func(id, what, guest string) frame.Tell {
		return l.ask(frame.Ask{ID: id, Verb: frame.Manage, Place: h.host(), Word: &frame.Word{Name: "dead_man", Args: map[string]string{"action": "arm", "what": what, "seconds": "600", "guest": guest}}})
	}
	for i, bad := range [][2]string{{"firewall", "0303"}, {"firewall", "303/../cluster"}, {"firewall", "999"}, {"network", "303"}} {
		if tell := of(fmt.Sprintf("bad%d.1", i), bad[0], bad[1]); tell.Ending != frame.Refused {
			t.Errorf("%q: %+v", bad, tell)
		}
	}
	if tell := of("two.1", "firewall", "303"); tell.Ending != frame.Done || strings.Contains(tell.Text, "cluster.fw") {
		t.Fatalf("%+v", tell)
	}
	h.put("pve/firewall/cluster.fw", "of somebody else\n")
	put("303", "now of 303\n")
	put("402", "new of 402\n")
	revert()
	for name, want := range map[string]string{"303": "before of 303\n", "402": "new of 402\n", "cluster": "of somebody else\n"} {
		h.has(t, "pve/firewall/"+name+".fw", want)
	}
	if n := strings.Count(h.log(), `"verb":"manage"`); n != strings.Count(h.log(), `"root_on_host":true`)-strings.Count(h.log(), `"verb":"revert"`) {
		t.Errorf("of %d lines of the word not all are marked:\n%s", n, h.log())
	}
}
