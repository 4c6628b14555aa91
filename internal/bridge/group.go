//go:build linux

package bridge

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// group is a control group that holds a run: nothing that it starts can leave it, however it forks, cleans its environment
// or changes its session.
type group struct {
	dir string
	f   *os.File
	fd  int
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

// newGroup makes one.
func newGroup(dir string) (*group, error) {
	if dir == "" {
		return nil, errors.New("make control group: version 2 is not mounted, or the container's is not known")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make control group: %w", err)
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("make control group: %w", err)
	}
	return &group{dir: dir, f: f, fd: int(f.Fd())}, nil
}

// empty says whether no process is in it.
func (g *group) empty() bool {
	b, err := os.ReadFile(filepath.Join(g.dir, "cgroup.events"))
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

// close removes it where it is empty.
func (g *group) close() {
	g.f.Close()
	_ = os.Remove(g.dir) // a process that was left keeps it
}
