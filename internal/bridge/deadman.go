//go:build linux

package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"castellan/internal/frame"
)

// A dead man's switch keeps what firewall or network were, and puts it back unless it is confirmed in time. What puts it
// back is a process of its own: the end of the bridge, of the connection or of sshd does not end it.
//
// Its folder holds the saved files and one of the names below; whoever renames "armed" first decides.
const (
	deadArmed     = "armed"
	deadConfirmed = "confirmed"
	deadReverting = "reverting" // it is being put back, or that was cut off
	deadReverted  = "reverted"
)

// armed is what a switch is to do.
type armed struct {
	ID    string    `json:"id"`
	What  string    `json:"what"`
	Until time.Time `json:"until"`
	Files []kept    `json:"files"`
}

// kept is a file as it was.
type kept struct {
	Path    string `json:"path"`
	Absent  bool   `json:"absent,omitempty"`
	Mode    uint32 `json:"mode,omitempty"`
	Content []byte `json:"content,omitempty"`
}

func (b *Bridge) deadMan(ctx context.Context, ask frame.Ask) (string, error) {
	args := ask.Word.Args
	action, err := oneOf(args, "action", "arm", "confirm")
	if err != nil {
		return "", err
	}
	what, err := oneOf(args, "what", "firewall", "network")
	if err != nil {
		return "", err
	}
	// The id of a run is PLAN.STEP: a switch belongs to the plan that armed it, and no other can name it.
	plan, _, _ := cutLast(ask.ID, ".")
	id := plan + "." + what
	if action == "confirm" {
		if err := only(args, "action", "what"); err != nil {
			return "", err
		}
		return b.confirm(ctx, id)
	}
	if err := only(args, "action", "what", "seconds"); err != nil {
		return "", err
	}
	seconds, err := strconv.Atoi(args["seconds"])
	if err != nil || seconds < leastDead || seconds > mostDead || strconv.Itoa(seconds) != args["seconds"] {
		return "", refuse("", "seconds is from %d to %d", leastDead, mostDead)
	}
	return b.arm(ctx, id, what, ask.Place.Node, time.Duration(seconds)*time.Second)
}

// Limits of a switch, in seconds.
const (
	leastDead = 10
	mostDead  = 3600
)

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

func (s *state) deadDir(id string) string { return filepath.Join(s.dir, "deadman-"+id) }

// armLock lets one bridge of the node after the other arm: two switches for the same would each put back what the other
// knows nothing of. To close it is to give it up.
func (s *state) armLock() (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(s.dir, "arming"), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("another bridge of this node arms one now: %w", err)
	}
	return f, nil
}

// arm saves the files, starts what will put them back, and says so only when both are done.
func (b *Bridge) arm(ctx context.Context, id, what, node string, after time.Duration) (string, error) {
	lock, err := b.state.armLock()
	if err != nil {
		return "", refuse("Try again.", "nothing was armed: %v", err)
	}
	defer lock.Close()
	for _, other := range append(b.state.armed(), b.state.switches(deadReverting)...) {
		if other.What == what {
			return "", refuse("Confirm it, or wait until it has put things back.", "the dead man's switch %s for the %s is armed until %s", other.ID, what, other.Until.Format(time.RFC3339))
		}
	}
	a := armed{ID: id, What: what, Until: time.Now().UTC().Add(after).Truncate(time.Second)}
	if what == "network" { // what cannot be brought into force is no way back
		if _, err := tool(b.set.Paths.IfReload, "ifreload"); err != nil {
			return "", refuse("apt-get install ifupdown2", "nothing was armed: %v, and without it the network would not be brought back", err)
		}
	}
	paths, err := b.guarded(what, node)
	if err != nil {
		return "", refuse("", "the files of the %s cannot be listed: %v", what, err)
	}
	for _, p := range paths {
		k, err := keep(p)
		if err != nil {
			return "", refuse("", "nothing was armed: %v", err)
		}
		a.Files = append(a.Files, k)
	}
	text, err := json.Marshal(a)
	if err != nil {
		return "", fmt.Errorf("arm dead man's switch: %w", err)
	}
	dir := b.state.deadDir(id)
	if err := os.Mkdir(dir, 0o700); errors.Is(err, fs.ErrExist) {
		return "", refuse("Take another id.", "there was a dead man's switch %s before", id)
	} else if err != nil {
		return "", refuse("", "nothing was armed: %v", err)
	}
	if err := writeDurable(filepath.Join(dir, deadArmed), text); err != nil {
		_ = os.RemoveAll(dir) // nothing waits on it yet
		return "", refuse("", "nothing was armed: %v", err)
	}
	way, err := b.detach(ctx, "castellan-deadman-"+a.ID, "revert", a.ID)
	if err != nil {
		_ = os.RemoveAll(dir) // nothing waits on it yet
		return "", refuse("", "nothing was armed: %v", err)
	}
	return fmt.Sprintf("armed %s: unless it is confirmed before %s, what changed in these files is put back (%s): %s", id, a.Until.Format(time.RFC3339), way, strings.Join(paths, " ")), nil
}

// guarded lists the files of firewall or network, also those that may come into being.
func (b *Bridge) guarded(what, node string) ([]string, error) {
	if what == "network" {
		paths := []string{b.set.Paths.Network}
		more, err := filepath.Glob(filepath.Join(filepath.Dir(b.set.Paths.Network), "interfaces.d", "*"))
		if sdn := filepath.Join(filepath.Dir(b.set.Paths.Network), "interfaces.d", "sdn"); !slices.Contains(more, sdn) {
			more = append(more, sdn) // it comes into being with the first zone that is applied
		}
		return append(paths, more...), err
	}
	paths := []string{filepath.Join(b.set.Paths.PVE, "firewall", "cluster.fw"), filepath.Join(b.set.Paths.PVE, "nodes", node, "host.fw")}
	more, err := filepath.Glob(filepath.Join(b.set.Paths.PVE, "firewall", "*.fw"))
	for _, p := range more {
		if !slices.Contains(paths, p) {
			paths = append(paths, p)
		}
	}
	// A guest's file comes into being with its first rule: those of this node's guests are kept as absent.
	for _, kind := range []string{"lxc", "qemu-server"} {
		guests, e := filepath.Glob(filepath.Join(b.set.Paths.PVE, "nodes", node, kind, "*.conf"))
		err = errors.Join(err, e)
		for _, g := range guests {
			p := filepath.Join(b.set.Paths.PVE, "firewall", strings.TrimSuffix(filepath.Base(g), ".conf")+".fw")
			if !slices.Contains(paths, p) {
				paths = append(paths, p)
			}
		}
	}
	return paths, err
}

func keep(path string) (kept, error) {
	k := kept{Path: path}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		k.Absent = true
		return k, nil
	}
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file", path)
	}
	if err == nil {
		k.Mode = uint32(info.Mode().Perm())
		k.Content, err = readBounded(path, 1<<20)
	}
	return k, err
}

func writeDurable(path string, content []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = syncDir(filepath.Dir(path))
	}
	return err
}

// detach starts a command of this program that outlives whoever started it: as a service of systemd, or where that does not run
// as a process of its own session.
func (b *Bridge) detach(ctx context.Context, unit, command, id string) (way string, err error) {
	if len(b.program) == 0 {
		return "", errors.New("this bridge does not know its own program")
	}
	argv := append(slices.Clone(b.program), command, "--", id) // an id may begin as an option does
	if info, err := os.Stat("/run/systemd/system"); err == nil && info.IsDir() {
		path, err := tool("", "systemd-run")
		if err != nil {
			return "", err
		}
		// A service of its own, started at once, that waits itself: it needs no timer, and it outlives whoever started it.
		args := append([]string{"--quiet", "--collect", "--no-block", "--unit=" + unit, "--property=KillMode=process", "--"}, argv...)
		if _, err := own(ctx, path, args...); err != nil {
			return "", fmt.Errorf("systemd-run: %w", err)
		}
		return "a service of systemd waits", nil
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env, cmd.Dir = cleanEnv(), "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	go func() { _ = cmd.Wait() }() // while this bridge lives
	return "a process of its own waits", nil
}

// confirm keeps what is.
func (b *Bridge) confirm(_ context.Context, id string) (string, error) {
	dir := b.state.deadDir(id)
	err := os.Rename(filepath.Join(dir, deadArmed), filepath.Join(dir, deadConfirmed))
	if err == nil {
		return "confirmed " + id + ": what is stays, nothing is put back", syncDir(dir)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("confirm dead man's switch: %w", err)
	}
	switch {
	case exists(filepath.Join(dir, deadConfirmed)):
		return "confirmed " + id + " before: what is stays", nil
	case exists(filepath.Join(dir, deadReverted)), exists(filepath.Join(dir, deadReverting)):
		return "", refuse("Look at the state and plan anew.", "too late: the dead man's switch %s has put things back", id)
	}
	return "", refuse("", "there is no dead man's switch %s", id)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// armed lists the switches that wait.
func (s *state) armed() []armed { return s.switches(deadArmed) }

// switches lists those that are in a state, which is a file of that name.
func (s *state) switches(in string) []armed {
	found, err := filepath.Glob(filepath.Join(s.dir, "deadman-*", in))
	if err != nil {
		return nil
	}
	var out []armed
	for _, p := range found {
		var a armed
		if b, err := readBounded(p, 64<<20); err == nil && json.Unmarshal(b, &a) == nil {
			out = append(out, a)
		}
	}
	return out
}

// Revert waits for a dead man's switch and puts back what was, unless it is confirmed before. An empty id is every switch
// that is armed, each by its own time, and each that was cut off while it put things back: after a reboot they are taken up.
func (b *Bridge) Revert(ctx context.Context, id string) error {
	var group sync.WaitGroup
	var mu sync.Mutex
	var all error
	for _, a := range append(b.state.armed(), b.state.switches(deadReverting)...) {
		if id == "" || a.ID == id {
			group.Go(func() {
				err := b.revert(ctx, a)
				mu.Lock()
				defer mu.Unlock()
				all = errors.Join(all, err)
			})
		}
	}
	group.Wait()
	return all
}

func (b *Bridge) revert(ctx context.Context, a armed) error {
	dir := b.state.deadDir(a.ID)
	from, on, to := filepath.Join(dir, deadArmed), filepath.Join(dir, deadReverting), filepath.Join(dir, deadReverted)
	// A clock that is set back does not make it wait for longer than was left when the waiting began.
	latest := time.Now().Add(min(time.Until(a.Until), mostDead*time.Second))
	for now := time.Now(); now.Before(a.Until) && now.Before(latest) && exists(from); now = time.Now() {
		select {
		case <-ctx.Done():
			return ctx.Err() // armed still: the next start takes it up
		case <-time.After(min(time.Until(a.Until)+time.Millisecond, time.Second)):
		}
	}
	if err := os.Rename(from, on); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("revert: %w", err)
	}
	if !exists(on) {
		return nil // confirmed, or put back
	}
	err := b.putBack(ctx, a)
	if ctx.Err() != nil {
		return err // the next start goes on with it
	}
	if e := os.Rename(on, to); e != nil && !errors.Is(e, fs.ErrNotExist) { // another process has done the same
		err = errors.Join(err, e)
	}
	return errors.Join(err, syncDir(dir))
}

// putBack brings the files to what they were; doing it twice does no harm.
func (b *Bridge) putBack(ctx context.Context, a armed) error {
	var failed error
	changed := 0
	for try := 0; try < 60; try++ { // a cluster without quorum takes no writes for a while
		failed, changed = nil, 0
		for _, k := range a.Files {
			did, err := k.restore()
			if did {
				changed++
			}
			failed = errors.Join(failed, err)
		}
		if failed == nil {
			break
		}
		select {
		case <-ctx.Done():
			return errors.Join(failed, ctx.Err())
		case <-time.After(5 * time.Second):
		}
	}
	if a.What == "network" && changed > 0 {
		failed = errors.Join(failed, b.reload(ctx))
	}
	e := entry{ID: a.ID, Verb: "revert", Word: wordDeadMan, Root: true, Ending: string(frame.Done), Reason: fmt.Sprintf("it was not confirmed: %d files were put back", changed)}
	if failed != nil {
		e.Ending, e.Reason = string(frame.Failed), short(failed.Error())
	}
	b.rec.note(e)
	return failed
}

// reload brings the network's settings into force. What it fails at once may be over in a moment: another reload, a link that
// is not up yet.
func (b *Bridge) reload(ctx context.Context) error {
	path, err := tool(b.set.Paths.IfReload, "ifreload")
	if err != nil {
		return err
	}
	for try := 0; ; try++ {
		if _, err = own(context.WithoutCancel(ctx), path, "-a"); err == nil || try >= 4 || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(3 * time.Second):
		}
	}
}

// restore puts a file back where it differs.
func (k kept) restore() (changed bool, err error) {
	now, err := readBounded(k.Path, 1<<20)
	absent := errors.Is(err, fs.ErrNotExist)
	switch {
	case err != nil && !absent:
		return false, err
	case k.Absent && absent, !k.Absent && !absent && string(now) == string(k.Content):
		return false, nil
	case k.Absent:
		return true, os.Remove(k.Path)
	}
	tmp := k.Path + ".castellan"
	if err := os.WriteFile(tmp, k.Content, 0o640); err != nil {
		return true, err
	}
	_ = os.Chmod(tmp, os.FileMode(k.Mode)) // the cluster's file system has modes of its own
	if err := os.Rename(tmp, k.Path); err != nil {
		return true, errors.Join(err, os.Remove(tmp))
	}
	return true, nil
}
