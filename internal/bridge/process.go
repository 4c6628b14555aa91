//go:build linux

package bridge

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// process is one of this kernel, told from a later one of its number by when it began.
type process struct {
	pid     int
	started uint64 // clock ticks since boot
}

// stat is what /proc says of a process, in the numbers of the host.
type stat struct {
	process
	state                 byte
	parent, group, leader int // leader: of its session
	threads               int
}

// over says whether a process has ended. One whose first thread has ended shows as a corpse while its others go on.
func (s stat) over() bool { return s.state == 'X' || s.state == 'Z' && s.threads <= 1 }

func readStat(pid int) (stat, error) {
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return stat{}, fmt.Errorf("read process %d: %w", pid, err)
	}
	defer unix.Close(fd)
	var b [1024]byte // a line of 52 numbers and a name of at most 64 bytes, given in one read
	n, err := unix.Read(fd, b[:])
	if err != nil {
		return stat{}, fmt.Errorf("read process %d: %w", pid, err)
	}
	return parseStat(pid, b[:n])
}

// parseStat reads what follows the name, which may hold anything.
func parseStat(pid int, b []byte) (stat, error) {
	at := bytes.LastIndexByte(b, ')')
	if at < 0 {
		return stat{}, fmt.Errorf("read process %d: no name", pid)
	}
	f := strings.Fields(string(b[at+1:]))
	if len(f) < 20 || len(f[0]) != 1 {
		return stat{}, fmt.Errorf("read process %d: too short", pid)
	}
	s := stat{process: process{pid: pid}, state: f[0][0]}
	var err error
	for i, to := range []*int{&s.parent, &s.group, &s.leader} {
		if *to, err = strconv.Atoi(f[1+i]); err != nil {
			return stat{}, fmt.Errorf("read process %d: %w", pid, err)
		}
	}
	if s.threads, err = strconv.Atoi(f[17]); err != nil {
		return stat{}, fmt.Errorf("read process %d: %w", pid, err)
	}
	if s.started, err = strconv.ParseUint(f[19], 10, 64); err != nil {
		return stat{}, fmt.Errorf("read process %d: %w", pid, err)
	}
	return s, nil
}

// alive says whether the very process is still there and no corpse.
func (p process) alive() bool {
	s, err := readStat(p.pid)
	return err == nil && s.started == p.started && !s.over()
}

// signal reaches the very process or none: the handle is opened, then it is looked at, then it is sent.
func (p process) signal(sig unix.Signal) {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if !p.alive() {
		return
	}
	_ = unix.PidfdSendSignal(fd, sig, nil, 0) // gone by now, or it could not be: the next look tells
}

// everyPid lists the processes of this machine.
func everyPid() []int {
	d, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer d.Close()
	var out []int
	for {
		names, err := d.Readdirnames(512)
		for _, n := range names {
			if pid, err := strconv.Atoi(n); err == nil {
				out = append(out, pid)
			}
		}
		if err != nil {
			return out
		}
	}
}

// cgroupPids lists the processes of a control group and all below it, as many as are looked at.
func cgroupPids(dir string, out []int, depth int) []int {
	const most, deepest = 100_000, 24
	if b, err := readBounded(filepath.Join(dir, "cgroup.procs"), 4<<20); err == nil {
		for line := range strings.Lines(string(b)) {
			if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil && pid > 0 && len(out) < most {
				out = append(out, pid)
			}
		}
	}
	if depth >= deepest {
		return out
	}
	rows, err := os.ReadDir(dir)
	if err != nil {
		return out
	}
	for _, r := range rows {
		if r.IsDir() && len(out) < most {
			out = cgroupPids(filepath.Join(dir, r.Name()), out, depth+1)
		}
	}
	return out
}

// environValue is the value of a variable in the environment of a process; false where no environment can be read.
func environValue(pid int, name string) (string, bool) {
	f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return "", false
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 4<<20))
	if err != nil || len(b) == 0 {
		return "", false
	}
	for part := range bytes.SplitSeq(b, []byte{0}) {
		if v, ok := bytes.CutPrefix(part, []byte(name+"=")); ok {
			return string(v), true
		}
	}
	return "", true
}
