//go:build linux

package bridge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// tool finds a program of the node at the places where root keeps them: a shell without login has no path to them.
func tool(set, name string) (string, error) {
	if set != "" {
		return set, nil
	}
	for _, dir := range []string{"/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/local/sbin", "/usr/local/bin"} {
		p := filepath.Join(dir, name)
		if info, err := os.Stat(p); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return p, nil
		}
	}
	return "", fmt.Errorf("find %s: it is not installed on this node", name)
}

// enter finds the first process of a running container.
func (b *Bridge) enter(ctx context.Context, g *guest) error {
	if err := b.monitored(g.id); err != nil {
		return err
	}
	if p, ok := b.remembered(g.id); ok {
		g.init = p
		return nil
	}
	path, err := tool(b.set.Paths.LXCInfo, "lxc-info")
	if err != nil {
		return refuse("", "%v", err)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, b.lxc(g.id, "-p", "-H")...)
	cmd.Env, cmd.Dir = cleanEnv(), "/"
	out, err := cmd.Output()
	pid, e := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil || e != nil || pid <= 1 {
		return refuse("Start it, then plan anew.", "container %d does not run", g.id)
	}
	s, err := readStat(pid)
	if err != nil {
		return refuse("Start it, then plan anew.", "container %d does not run", g.id)
	}
	if unifiedRoot() != "" && len(groupsOf(s.process, g.id)) == 0 {
		return refuse("Look on the node who answers for it: lxc-info -n "+strconv.Itoa(g.id)+".", "what answers for container %d names a process (%d) that is in no control group of the container", g.id, pid)
	}
	g.init = s.process
	b.remember(g.id, s.process)
	return nil
}

// monitored proves that what answers for a container is a process of root's: the name that LXC's programs ask by is free to
// every account of the node while the container does not run, and they believe whoever has it.
func (b *Bridge) monitored(id int) error {
	top := b.set.Paths.LXC
	if top == "" {
		top = "/var/lib/lxc"
	}
	name := filepath.Join(top, strconv.Itoa(id), "command")
	if len(name) > 106 { // LXC makes a sum of it
		return refuse(b.set.hint("paths.lxc", "give a shorter one"), "the name of %q is too long for a socket", name)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return refuse("", "it cannot be asked who answers for container %d: %v", id, err)
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: "@" + name}); err != nil {
		return refuse("Start it, then plan anew.", "container %d does not run: nobody answers for it (%v)", id, err)
	}
	who, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil || int(who.Uid) != os.Geteuid() {
		return refuse("Look on the node whose it is.", "a process that is not root's answers for container %d", id)
	}
	return nil
}

// lxc makes the arguments of a program of lxc.
func (b *Bridge) lxc(id int, more ...string) []string {
	out := []string{"-n", strconv.Itoa(id)}
	if b.set.Paths.LXC != "" {
		out = append(out, "-P", b.set.Paths.LXC)
	}
	return append(out, more...)
}

// remembered is a container's first process of an earlier ask, while that very process lives: it is the same run of it.
func (b *Bridge) remembered(id int) (process, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p, ok := b.inits[id]
	if ok && p.alive() {
		return p, true
	}
	delete(b.inits, id)
	return process{}, false
}

func (b *Bridge) remember(id int, p process) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.inits[id] = p
}

// attach is the command that enters a container: its path, its arguments, and its environment, which is the one that
// arrives in the container. Variables that an ask brought are arguments of it, unless quiet_env names them: they could
// otherwise change how the program itself loads, as root of the node. Where the run was started in a control group of its
// own within the container's, it stays there.
func (b *Bridge) attach(g *guest, argv, own, asked []string, grouped bool) (path string, args, environ []string, err error) {
	if path, err = tool(b.set.Paths.LXCAttach, "lxc-attach"); err != nil {
		return "", nil, nil, err
	}
	args = append([]string{path}, b.lxc(g.id, "--keep-env")...)
	if grouped {
		args = append(args, "--elevated-privileges=CGROUP") // of all privileges, not to be moved is the only one
	}
	environ = append([]string{"container=lxc"}, own...)
	for _, e := range asked {
		name, _, _ := strings.Cut(e, "=")
		if slices.Contains(b.set.QuietEnv, name) {
			environ = append(environ, e)
		} else {
			args = append(args, "-v", e)
		}
	}
	return path, append(append(args, "--"), argv...), environ, nil
}

// cleanEnv is the environment of the node's own programs.
func cleanEnv() []string {
	return []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", "HOME=/root"}
}

// idMap translates ids between the host and a container.
type idMap []struct{ inside, outside, count int }

// mapOf reads "uid_map" or "gid_map" of a process.
func mapOf(p process, name string) (idMap, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(p.pid) + "/" + name)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	var m idMap
	for line := range bytes.Lines(b) {
		var r struct{ inside, outside, count int }
		if n, err := fmt.Sscan(string(line), &r.inside, &r.outside, &r.count); err != nil || n != 3 {
			return nil, fmt.Errorf("read %s: no three numbers", name)
		}
		m = append(m, r)
	}
	if len(m) == 0 {
		return nil, fmt.Errorf("read %s: it is empty", name)
	}
	return m, nil
}

// out is the host's number of an id of the container.
func (m idMap) out(id int) (int, error) {
	for _, r := range m {
		if id >= r.inside && id-r.inside < r.count {
			return r.outside + id - r.inside, nil
		}
	}
	return 0, fmt.Errorf("the container has no id %d", id)
}

// has says whether an id of the host is one of the container.
func (m idMap) has(id int) bool {
	for _, r := range m {
		if id >= r.outside && id-r.outside < r.count {
			return true
		}
	}
	return false
}

// in is the container's number of an id of the host; what it does not have is shown to it as nobody.
func (m idMap) in(id int) int {
	for _, r := range m {
		if id >= r.outside && id-r.outside < r.count {
			return r.inside + id - r.outside
		}
	}
	return 65534
}

// judgePrivilege believes the kernel over the configuration: where anybody inside is root outside, it is privileged.
func (g *guest) judgePrivilege() error {
	for _, name := range []string{"uid_map", "gid_map"} {
		m, err := mapOf(g.init, name)
		if err != nil {
			return refuse("", "container %d cannot be looked into: %v", g.id, err)
		}
		if _, err := m.out(0); err != nil || m.has(0) { // whatever it is called inside
			g.privileged = true
		}
	}
	return nil
}

// rootOf opens the root folder of a container as its first process sees it; the handle stays with that very process.
func rootOf(p process) (*os.File, error) {
	fd, err := unix.Open("/proc/"+strconv.Itoa(p.pid)+"/root", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the root of the container: %w", err)
	}
	f := os.NewFile(uintptr(fd), "root of the container")
	if !p.alive() { // then the number may be another's already
		f.Close()
		return nil, errors.New("open the root of the container: it has ended")
	}
	return f, nil
}
