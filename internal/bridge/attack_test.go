//go:build linux

package bridge

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"castellan/internal/frame"
)

// sleepers lists processes of this machine that sleep so many seconds.
func sleepers(seconds string) (out []int) {
	for _, pid := range everyPid() {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil {
			continue
		}
		if s, err := readStat(pid); err == nil && s.state != 'Z' && strings.HasSuffix(string(b), "sleep\x00"+seconds+"\x00") {
			out = append(out, pid)
		}
	}
	return out
}

// A process that cleans its environment, leaves its session and loses its parents within a moment is still the run's.
func TestNobodyLeavesARun(t *testing.T) {
	h := newHouse(t)
	l := dial(t, h.bridge())
	for n, body := range []string{
		"(env -i /bin/setsid /bin/sleep 7001 &) ; sleep 1000",
		"env -i /bin/sh -c '/bin/setsid /bin/sh -c \"/bin/setsid /bin/sleep 7001 & exit\" & exit' ; exit 0",
		"trap '' TERM; (trap '' TERM HUP; env -i /bin/setsid /bin/sleep 7001 &); kill -STOP $$; sleep 1000",
	} {
		for _, p := range []frame.Place{h.ct(), h.host()} {
			a := script(fmt.Sprintf("n%d-%s", n, p.Where), p, body)
			a.Run.Limit = 1500 * time.Millisecond
			r := done(t, l.ask(a))
			left := sleepers("7001")
			if len(left) > 0 == r.Gone || r.TimedOut && len(left) > 0 {
				t.Errorf("%s: %s: %+v, left %v", p.Where, body, r, left)
			}
			for _, pid := range left {
				p, _ := readStat(pid)
				p.signal(9)
			}
		}
	}
}

// What root of the container may not touch, the bridge does not touch for it: files of the node that are mounted into it.
func TestFilesOfTheNodeWithinAContainer(t *testing.T) {
	h := newHouse(t)
	shared := filepath.Join(h.root, "srv/shared")
	if err := os.Mkdir(shared, 0o755); err != nil {
		t.Fatal(err)
	}
	h.put("ct/srv/shared/secret", "of the node")
	h.put("ct/srv/secret", "of the node")
	if err := os.Chmod(filepath.Join(h.root, "srv/secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	l := dial(t, h.bridge())
	for n, a := range []frame.Ask{
		{Verb: frame.Read, File: &frame.File{Path: "/srv/secret"}},
		{Verb: frame.Read, File: &frame.File{Path: "/srv/shared/secret"}},
		{Verb: frame.Write, File: &frame.File{Path: "/srv/secret", Content: []byte("x")}},
		{Verb: frame.Write, File: &frame.File{Path: "/srv/shared/secret", Content: []byte("x")}},
		{Verb: frame.Write, File: &frame.File{Path: "/srv/shared/new", Content: []byte("x"), Expect: "absent"}},
	} {
		a.ID, a.Place = fmt.Sprintf("f%d", n), h.ct()
		if tell := l.ask(a); tell.Ending != frame.Refused || !strings.Contains(tell.Reason, "of the node") {
			t.Errorf("%s %s: %+v", a.Verb, a.File.Path, tell)
		}
	}
	if b, err := os.ReadFile(filepath.Join(shared, "secret")); err != nil || string(b) != "of the node" {
		t.Errorf("%q %v", b, err)
	}
}
