//go:build linux

package bridge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// group is a control group that holds a run: nothing that it starts can leave it, however it forks, cleans its environment
// or changes its session.
type group struct {
	dir   string
	f     *os.File
	fd    int
	init  process     // first process of the container; none on the host
	above unix.Stat_t // of the group that it is in
}

// groupDir names the control group of a run: of the host beside others, of a container beside what its own first process
// may write, so that its limits hold and root in it cannot move anything out. "" where there is none: then runs are found by
// nonce, descent and session alone.
func groupDir(g *guest, nonce string) string {
	if g != nil {
		for _, dir := range groupsOf(g.init, g.id) {
			return filepath.Join(dir, "castellan-"+nonce)
		}
		return ""
	}
	if root := unifiedRoot(); root != "" {
		return filepath.Join(root, "castellan-bridge", nonce)
	}
	return ""
}

// newGroup makes one. That of a container is made beneath the one that it has, never with it: a container that has ended could
// not be started again, since its control group would be there already.
func newGroup(dir string, init process) (*group, error) {
	if dir == "" {
		return nil, errors.New("make control group: version 2 is not mounted, or the container's is not known")
	}
	g := &group{dir: dir, init: init}
	if init.pid == 0 {
		if err := os.Mkdir(filepath.Dir(dir), 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return nil, fmt.Errorf("make control group: %w", err)
		}
	}
	if err := unix.Stat(filepath.Dir(dir), &g.above); err != nil {
		return nil, fmt.Errorf("make control group: %w", err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make control group: %w", err)
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("make control group: %w", err)
	}
	g.f, g.fd = f, int(f.Fd())
	return g, nil
}

// release takes the process that leads into a container out of the group, as soon as what it leads in there is in it: all
// that is in there ends with the container, which LXC then takes away with its control groups; a process of the node in one
// of them would be in the way of that, and of the container's next start.
func (g *group) release(ctx context.Context, leader int) {
	if g == nil || g.init.pid == 0 {
		return
	}
	led, err := readStat(leader)
	if err != nil {
		return
	}
	for wait := time.Millisecond; ; wait = min(wait*3/2, 50*time.Millisecond) {
		if b, err := os.ReadFile(filepath.Join(g.dir, "cgroup.procs")); err != nil {
			return
		} else if bytes.Count(b, []byte("\n")) > 1 {
			break
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return // it stays where it is, as long as it lasts
	}
	for line := range strings.Lines(string(own)) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok && led.alive() {
			_ = os.WriteFile(filepath.Join(unifiedRoot(), path, "cgroup.procs"), []byte(strconv.Itoa(leader)), 0) // the same
		}
	}
}

// empty says whether no process is in it. One that is not there any more had none when it was removed, with its container.
func (g *group) empty() bool {
	b, err := os.ReadFile(filepath.Join(g.dir, "cgroup.events"))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return true
	}
	return err == nil && strings.Contains(string(b), "populated 0")
}

// kill ends all that is in it, and says whether it is empty then.
func (g *group) kill() bool {
	_ = os.WriteFile(filepath.Join(g.dir, "cgroup.kill"), []byte("1"), 0) // of an older kernel: the hunter did it
	for end := time.Now().Add(3 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if g.empty() {
			return true
		}
		if time.Now().After(end) {
			return false
		}
	}
}

// close removes it where it is empty. Where the container ended meanwhile, LXC may have found it in the way: then what it
// left is removed too.
func (g *group) close() {
	g.f.Close()
	_ = os.Remove(g.dir) // a process that was left keeps it
	if g.init.pid == 0 || g.init.alive() {
		return
	}
	var now unix.Stat_t
	if top := filepath.Dir(g.dir); unix.Stat(top, &now) == nil && now.Ino == g.above.Ino && now.Dev == g.above.Dev {
		removeEmpty(top, 0)
	}
}

// removeEmpty removes control groups without processes, from below.
func removeEmpty(dir string, depth int) {
	if rows, err := os.ReadDir(dir); err == nil && depth < 24 {
		for _, r := range rows {
			if r.IsDir() {
				removeEmpty(filepath.Join(dir, r.Name()), depth+1)
			}
		}
	}
	_ = os.Remove(dir) // one that is in use stays
}
