//go:build linux

package bridge

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// group is a control group that holds a run of the host: nothing that it starts can leave it.
type group struct {
	dir string
	f   *os.File
	fd  int
}

// newGroup makes one; an error means that runs of the host are found by their nonce alone.
func newGroup(nonce string) (*group, error) {
	root := unifiedRoot()
	if root == "" {
		return nil, fmt.Errorf("make control group: version 2 is not mounted")
	}
	dir := filepath.Join(root, "castellan-bridge", nonce)
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
