//go:build linux

package hostapt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"castellan/internal/patch"
)

// Config is what a Host is made of.
type Config struct {
	// Dir is a folder of root's alone, for what is made for a while.
	Dir string
	// Tool finds a program of the host by name.
	Tool func(name string) (string, error)
}

// Host is the machine that this runs on.
type Host struct {
	dir  string
	tool func(name string) (string, error)
}

// New makes a Host.
func New(c Config) (*Host, error) {
	if c.Dir == "" || c.Tool == nil {
		return nil, errors.New("make host: a folder, and what finds programs, are needed")
	}
	return &Host{dir: c.Dir, tool: c.Tool}, nil
}

// environment of the host's programs: nobody is asked anything, no words of another language.
func environment() []string {
	return []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C.UTF-8", "LANG=C.UTF-8", "TERM=dumb", "DEBIAN_FRONTEND=noninteractive",
		"DEBCONF_NONINTERACTIVE_SEEN=true", "APT_LISTCHANGES_FRONTEND=none", "NEEDRESTART_SUSPEND=1", "NEEDRESTART_MODE=l", "UCF_FORCE_CONFFOLD=1", "PAGER=cat"}
}

const mostOutput = 16 << 20

// bounded takes what a program prints, up to a size.
type bounded struct {
	bytes.Buffer
	over bool
}

func (b *bounded) Write(p []byte) (int, error) {
	if room := mostOutput - b.Len(); room < len(p) {
		b.over = true
		b.Buffer.Write(p[:max(room, 0)])
		return len(p), nil
	}
	return b.Buffer.Write(p)
}

// ran is what a program printed, and its exit code.
type ran struct {
	out, err string
	code     int
}

// run starts one of the host's programs and waits for it. An error is a program that did not run to its end.
func (h *Host) run(ctx context.Context, limit time.Duration, argv ...string) (ran, error) {
	path, err := h.tool(argv[0])
	if err != nil {
		return ran{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, argv[1:]...)
	var out, errs bounded
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = environment(), "/", &out, &errs, 2*time.Second
	err = cmd.Run()
	r := ran{out: strings.ToValidUTF8(out.String(), "?"), err: strings.ToValidUTF8(errs.String(), "?")}
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return r, fmt.Errorf("run %s: not at its end after %s", argv[0], limit)
	case out.over:
		return r, fmt.Errorf("run %s: it printed more than %d bytes", argv[0], mostOutput)
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		r.code = exit.ExitCode()
	case err != nil:
		return r, fmt.Errorf("run %s: %w", argv[0], err)
	}
	return r, nil
}

// text is the output of a program that has to end well.
func (h *Host) text(ctx context.Context, limit time.Duration, argv ...string) (string, error) {
	r, err := h.run(ctx, limit, argv...)
	if err == nil && r.code != 0 {
		err = fmt.Errorf("run %s: exit code %d: %s", argv[0], r.code, firstLines(r.err+r.out, 3))
	}
	return r.out, err
}

func firstLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return clip(strings.Join(lines[:min(n, len(lines))], " / "), 600)
}

func clip(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n]) + "…"
	}
	return s
}

// kernel is the release that runs.
func kernel() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

// BootID tells one boot from another.
func BootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// system reads what the machine is.
func system(all inventory) patch.System {
	s := patch.System{Family: patch.APT}
	b, err := os.ReadFile("/etc/os-release")
	if err != nil {
		s.Why = "what system it is cannot be read"
		return s
	}
	for line := range strings.Lines(string(b)) {
		k, v, _ := strings.Cut(strings.TrimSpace(line), "=")
		v = strings.Trim(v, `"'`)
		switch k {
		case "ID":
			s.ID = v
		case "VERSION_ID":
			s.Version = v
		case "VERSION_CODENAME":
			s.Codename = v
		case "PRETTY_NAME":
			s.Name = v
		}
	}
	for _, p := range products {
		if _, ok := all.find(p.name, ""); ok {
			s.Kind = p.kind
			break
		}
	}
	switch {
	case s.ID != "debian" || s.Codename == "":
		s.Why = "a Proxmox host is a Debian with a codename; this is " + s.Name
	case s.Kind == "":
		s.Why = "none of the packages is there that make a Proxmox host (proxmox-ve, pve-manager, proxmox-backup-server, …)"
	default:
		s.Supported = true
	}
	return s
}

func (h *Host) inventory(ctx context.Context) (inventory, error) {
	text, err := h.text(ctx, time.Minute, "dpkg-query", "-W", "-f", inventoryFormat)
	if err != nil {
		return nil, err
	}
	if out := parseInventory(text); len(out) > 0 {
		return out, nil
	}
	return nil, errors.New("read packages: dpkg knows of none")
}

// later compares two versions as dpkg does.
func (h *Host) later(ctx context.Context) func(a, b string) bool {
	return func(a, b string) bool {
		r, err := h.run(ctx, 10*time.Second, "dpkg", "--compare-versions", a, "gt", b)
		return err == nil && r.code == 0
	}
}

// aptOptions are what every call of apt gets: what the administrator set for apt to do by itself beside an upgrade is off.
func aptOptions(preferences string) []string {
	o := []string{"-q", "-o", "APT::Get::AutomaticRemove=false", "-o", "APT::Get::Purge=false", "-o", "APT::Get::AllowUnauthenticated=false", "-o", "APT::Get::allow-downgrades=false",
		"-o", "APT::Get::allow-remove-essential=false", "-o", "APT::Get::allow-change-held-packages=false", "-o", "APT::Get::force-yes=false", "-o", "APT::Color=false", "-o", "Dpkg::Use-Pty=false",
		"-o", "Dpkg::Progress-Fancy=false", "-o", "DPkg::Lock::Timeout=0"}
	if preferences != "" {
		o = append(o, "-o", "Dir::Etc::preferences=/dev/null", "-o", "Dir::Etc::preferencesparts="+preferences+"/")
	}
	return o
}

// preferences puts the host's own pins, and before them those that shut out what is not official, into a folder.
func (h *Host) preferences(all []source, codename string) (dir string, remove func(), err error) {
	dir, err = os.MkdirTemp(h.dir, "pins-")
	if err != nil {
		return "", nil, fmt.Errorf("make pins: %w", err)
	}
	remove = func() { _ = os.RemoveAll(dir) }
	defer func() {
		if err != nil {
			remove()
		}
	}()
	if err = os.WriteFile(filepath.Join(dir, "00-castellan.pref"), []byte(pins(all, codename)), 0o644); err != nil {
		return "", nil, fmt.Errorf("make pins: %w", err)
	}
	if err := copyFile("/etc/apt/preferences", filepath.Join(dir, "10-preferences.pref")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", nil, fmt.Errorf("make pins: %w", err)
	}
	parts, err := filepath.Glob("/etc/apt/preferences.d/*")
	if err != nil {
		return "", nil, err
	}
	for _, p := range parts {
		name := filepath.Base(p)
		if ext := filepath.Ext(name); ext != "" && ext != ".pref" {
			continue // apt leaves it out as well
		}
		if err := copyFile(p, filepath.Join(dir, "20-"+strings.TrimSuffix(name, ".pref")+".pref")); err != nil {
			return "", nil, fmt.Errorf("make pins: %w", err)
		}
	}
	return dir, remove, nil
}

func copyFile(from, to string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return errors.Join(err, fmt.Errorf("%s is no regular file", from))
	}
	b, err := io.ReadAll(io.LimitReader(f, 1<<20))
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o644)
}

// holder says who holds dpkg's lock; nil = nobody.
func holder() *patch.Lock {
	for _, path := range []string{"/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock"} {
		f, err := os.Open(path)
		if err != nil {
			continue
		}
		l := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
		err = unix.FcntlFlock(f.Fd(), unix.F_GETLK, &l)
		f.Close()
		if err == nil && l.Type != unix.F_UNLCK {
			lock := &patch.Lock{PID: int(l.Pid)}
			if b, err := os.ReadFile("/proc/" + strconv.Itoa(int(l.Pid)) + "/comm"); err == nil {
				lock.Program = clip(strings.TrimSpace(string(b)), 40)
			}
			return lock
		}
	}
	return nil
}

// database says how dpkg's records are.
func (h *Host) database(ctx context.Context) (patch.State, error) {
	s := patch.State{}
	audit, err := h.run(ctx, time.Minute, "dpkg", "--audit")
	if err != nil {
		return s, err
	}
	all, err := h.inventory(ctx)
	if err != nil {
		return s, err
	}
	for _, p := range all {
		if len(p.status) > 1 && p.status[1] != 'i' || len(p.status) > 2 && p.status[2] == 'R' {
			s.Problems = append(s.Problems, fmt.Sprintf("%s %s is not whole (%s)", p.name, p.version, p.status))
		}
	}
	if len(s.Problems) == 0 && strings.TrimSpace(audit.out) != "" {
		s.Problems = append(s.Problems, firstLines(audit.out, 4))
	}
	if entries, err := os.ReadDir("/var/lib/dpkg/updates"); err == nil && slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name()[0] >= '0' && e.Name()[0] <= '9' }) {
		s.Problems = append(s.Problems, "dpkg was interrupted")
	}
	s.Repair = len(s.Problems) > 0
	check, err := h.run(ctx, time.Minute, append(append([]string{"apt-get"}, aptOptions("")...), "check")...)
	switch {
	case err != nil:
		return s, err
	case check.code != 0 && len(s.Problems) == 0:
		s.Problems = append(s.Problems, "unmet: "+firstLines(check.err, 4))
	}
	slices.Sort(s.Problems)
	s.Problems = s.Problems[:min(len(s.Problems), 50)]
	s.Clean = len(s.Problems) == 0
	return s, nil
}
