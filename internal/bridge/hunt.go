//go:build linux

package bridge

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// nonceName is the variable by which the processes of a run are found again.
const nonceName = "CASTELLAN_RUN"

func newNonce() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// sight remembers which nonce each process was first seen with, for all runs: to read the environment of every process of
// a guest costs more than the rest of a look.
type sight struct {
	mu   sync.Mutex
	seen map[process]string
}

// nonce is that of a process, "" where it has none. What has none when it is first seen does not get one: it is passed on
// at the start alone.
func (s *sight) nonce(p process) string {
	s.mu.Lock()
	n, ok := s.seen[p]
	s.mu.Unlock()
	if ok {
		return n
	}
	n, ok = environValue(p.pid, nonceName)
	if !ok {
		return "" // it is ending, or just turning into another program: it is looked at again
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.seen) > 50_000 {
		s.seen = map[process]string{}
	}
	s.seen[p] = n
	return n
}

// scans are the scans that runs share, by the folders that they look in. Its zero value has none.
type scans struct {
	mu  sync.Mutex
	all map[string]*scan
}

// of is the scan that all runs of these groups share.
func (s *scans) of(groups []string) *scan {
	key := strings.Join(groups, "\x00")
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[key] == nil {
		if s.all == nil {
			s.all = map[string]*scan{}
		}
		s.all[key] = &scan{groups: groups}
	}
	return s.all[key]
}

// scan lists processes for many runs at once. Whoever asks gets a list that was begun after it asked; those who wait for one
// share the next. Fifty runs in a container would otherwise each read all processes of all fifty.
type scan struct {
	groups []string // folders of control groups to look in; empty: all processes
	begun  atomic.Uint64

	turn sync.Mutex
	last map[int]stat // of the newest scan
}

// now lists the processes that are alive, by number, in a map of the caller's own.
func (c *scan) now() map[int]stat {
	before := c.begun.Load()
	c.turn.Lock()
	defer c.turn.Unlock()
	if c.begun.Load() == before { // else it began while this one waited for its turn, and has ended
		c.begun.Add(1)
		c.last = map[int]stat{}
		for _, pid := range c.candidates() {
			if s, err := readStat(pid); err == nil && !s.over() {
				c.last[pid] = s
			}
		}
	}
	return maps.Clone(c.last)
}

func (c *scan) candidates() []int {
	if len(c.groups) == 0 {
		return everyPid()
	}
	var out []int
	for _, g := range c.groups {
		out = cgroupPids(g, out, 0)
	}
	return out
}

// hunter finds what a run has started: by the nonce in the environment, by descent from what is known to belong to it, and
// by the session that it was started in. What it has seen once it knows again, so a process that cleans its environment
// and leaves its session is found when it was looked at before it did both. Where the run has a control group of its own,
// all that is in it belongs to the run, and nothing else in a guest needs to be asked: reading the environment of a
// process waits for whatever lies behind its memory.
type hunter struct {
	nonce string
	sight *sight // nil: environments are not read
	scan  *scan  // of the processes among which it looks
	whole string // folder of the run's own control group; "" where it has none

	mu    sync.Mutex
	known map[process]bool
	own   map[process]bool // of the host: not counted as left over
	began uint64           // when its first process began, in clock ticks since boot
	leaf  string           // control group that lxc puts what enters a container into, once it was seen
}

func newHunter(nonce string, among *scan, whole string, s *sight) *hunter {
	return &hunter{nonce: nonce, sight: s, scan: among, whole: whole, known: map[process]bool{}, own: map[process]bool{}}
}

// root is the process that the run was started as; counted says whether it is the run's own.
func (h *hunter) root(pid int, counted bool) {
	s, err := readStat(pid)
	if err != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.known[s.process] = true
	if h.began == 0 {
		h.began = s.started
	}
	if !counted {
		h.own[s.process] = true
	}
}

// look lists the processes of the run that are alive.
func (h *hunter) look() []process {
	all := h.scan.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	// A number stands for a known process only while that very process has it, or nobody: numbers of sessions and groups
	// are not given anew while they have members.
	numbers := map[int]bool{}
	for p := range h.known {
		if !numbers[p.pid] {
			s, err := readStat(p.pid)
			numbers[p.pid] = err != nil || s.started == p.started
		}
	}
	mine := map[int]bool{}
	if h.whole != "" {
		for _, pid := range cgroupPids(h.whole, nil, 0) {
			if s, err := readStat(pid); err == nil && !s.over() {
				all[pid], mine[pid] = s, true
			}
		}
	}
	for pid, s := range all {
		if mine[pid] {
			continue
		}
		if h.known[s.process] || numbers[s.leader] || numbers[s.group] || h.sight != nil && h.sight.nonce(s.process) == h.nonce {
			mine[pid] = true
		}
	}
	for grew := true; grew; {
		grew = false
		for pid, s := range all {
			if !mine[pid] && (mine[s.parent] || numbers[s.parent]) {
				mine[pid], grew = true, true
			}
		}
	}
	var out []process
	self := os.Getpid()
	for pid := range mine {
		s := all[pid]
		if pid == self || pid == 1 {
			continue
		}
		h.known[s.process] = true
		if h.whole == "" && h.leaf == "" && len(h.scan.groups) > 0 {
			h.leaf = leafOf(pid)
		}
		if !h.own[s.process] {
			out = append(out, s.process)
		}
	}
	return out
}

// leafOf is the control group of a process where it is one that lxc made for what enters a container.
func leafOf(pid int) string {
	b, err := readBounded("/proc/"+strconv.Itoa(pid)+"/cgroup", 64<<10)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok && strings.HasPrefix(filepath.Base(path), ".lxc") && !strings.Contains(path, "..") {
			return filepath.Join(unifiedRoot(), path)
		}
	}
	return ""
}

// strangers says whether processes are seen that came into the container as the run did, after it began, and show of no run
// that they are its: they may be this one's, hidden, and are not killed, since they may be somebody else's.
func (h *hunter) strangers() bool {
	h.mu.Lock()
	leaf, began := h.leaf, h.began
	h.mu.Unlock()
	if leaf == "" || h.sight == nil {
		return false
	}
	for _, pid := range cgroupPids(leaf, nil, 0) {
		s, err := readStat(pid)
		if err == nil && !s.over() && s.started >= began && h.sight.nonce(s.process) == "" {
			return true
		}
	}
	return false
}

// follow looks now and then until the context ends.
func (h *hunter) follow(ctx context.Context) {
	wait := 50 * time.Millisecond
	if h.whole == "" { // what is not seen in time is not found
		wait = 2 * time.Millisecond
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
			h.look()
		}
		wait = min(wait*2, time.Second)
	}
}

// settled looks a few times, since what was told to end needs a moment; true when nothing is left.
func (h *hunter) settled(within time.Duration) bool {
	end := time.Now().Add(within)
	for wait := 2 * time.Millisecond; ; wait = min(wait*2, 50*time.Millisecond) {
		if len(h.look()) == 0 {
			return true
		}
		if time.Now().After(end) {
			return false
		}
		time.Sleep(wait)
	}
}

// kill ends all of the run: first in good order, then not. It says whether none is left.
func (h *hunter) kill(grace time.Duration) bool {
	for _, p := range h.look() {
		p.signal(unix.SIGTERM)
		p.signal(unix.SIGCONT)
	}
	if h.settled(grace) {
		return true
	}
	end := time.Now().Add(5 * time.Second)
	for time.Now().Before(end) {
		left := h.look()
		if len(left) == 0 {
			return h.settled(20 * time.Millisecond)
		}
		for _, p := range left { // stopped first, so that none of them forks while the others are killed
			p.signal(unix.SIGSTOP)
		}
		for _, p := range append(left, h.look()...) {
			p.signal(unix.SIGKILL)
		}
		time.Sleep(5 * time.Millisecond)
	}
	return len(h.look()) == 0
}

// groupsOf lists the folders of the control groups that hold all of a container; none where they cannot be told.
func groupsOf(init process, id int) []string {
	b, err := readBounded("/proc/"+strconv.Itoa(init.pid)+"/cgroup", 64<<10)
	if err != nil {
		return nil
	}
	root := unifiedRoot()
	if root == "" {
		return nil
	}
	for line := range strings.Lines(string(b)) {
		path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !ok || strings.Contains(path, "..") {
			continue
		}
		parts := strings.Split(path, "/")
		for n, part := range parts {
			own := part == strconv.Itoa(id) && n > 0 && parts[n-1] == "lxc" || part == "lxc.payload."+strconv.Itoa(id)
			if !own {
				continue
			}
			dir := filepath.Join(root, filepath.Join(parts[:n+1]...))
			if madeByRoot(root, dir) {
				return []string{dir}
			}
		}
	}
	return nil
}

// madeByRoot says whether nobody but this program's account can have made a control group: some accounts have parts of the
// tree, in which they may make groups of any name.
func madeByRoot(root, dir string) bool {
	for {
		var st unix.Stat_t
		if err := unix.Lstat(dir, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0 {
			return false
		}
		if len(dir) <= len(root) {
			return true
		}
		dir = filepath.Dir(dir)
	}
}

// unifiedRoot is where the control groups of version 2 are mounted.
func unifiedRoot() string {
	for _, dir := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		var st unix.Statfs_t
		if unix.Statfs(dir, &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC {
			return dir
		}
	}
	return ""
}
