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
	// Seconds is how long it waits at most from whenever a process begins to wait: a clock that was set does not make it longer.
	Seconds int    `json:"seconds,omitempty"`
	Files   []kept `json:"files"`
	// Dirs are the folders of which files that were not there go again, Guests the cluster's guests at that time.
	Dirs   []covered `json:"dirs,omitempty"`
	Guests []string  `json:"guests,omitempty"`
	// Marks tell the guests whose firewall is kept from later ones of their ids.
	Marks map[string][]string `json:"marks,omitempty"`
}

// covered is a folder with the ending of the files in it that count.
type covered struct {
	Path string `json:"path"`
	Ends string `json:"ends,omitempty"`
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
	if err := only(args, "action", "what", "seconds", "guest"); err != nil {
		return "", err
	}
	guest := args["guest"]
	if guest != "" {
		if _, err := guestID(guest); err != nil || what != "firewall" {
			return "", refuse("", "guest is the id of one whose firewall alone is kept")
		}
	}
	seconds, err := strconv.Atoi(args["seconds"])
	if err != nil || seconds < leastDead || seconds > mostDead || strconv.Itoa(seconds) != args["seconds"] {
		return "", refuse("", "seconds is from %d to %d", leastDead, mostDead)
	}
	return b.arm(ctx, id, what, guest, ask.Place.Node, time.Duration(seconds)*time.Second)
}

// Limits of a switch, in seconds.
const (
	leastDead = 10
	mostDead  = 3600
)

// Bytes of one file that is kept, and of all.
const (
	mostFile = 1 << 20
	mostKept = 32 << 20
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
func (b *Bridge) arm(ctx context.Context, id, what, guest, node string, after time.Duration) (string, error) {
	lock, err := b.state.armLock()
	if err != nil {
		return "", refuse("Try again.", "nothing was armed: %v", err)
	}
	defer lock.Close()
	b.takeUp(ctx)
	for _, other := range b.state.switches(deadReverting) {
		if other.What == what {
			return "", refuse("Try again in a minute; /var/log/castellan-bridge.log on the node tells how it ended.", "the dead man's switch %s puts back the %s just now", other.ID, what)
		}
	}
	for _, other := range b.state.armed() {
		if other.What == what {
			return "", refuse("Confirm it, or wait until it has put things back.", "the dead man's switch %s for the %s is armed until %s", other.ID, what, other.Until.Format(time.RFC3339))
		}
	}
	a := armed{ID: id, What: what, Until: time.Now().UTC().Add(after).Truncate(time.Second), Seconds: int(after / time.Second)}
	if what == "network" { // what cannot be brought into force is no way back
		if _, err := tool(b.set.Paths.IfReload, "ifreload"); err != nil {
			return "", refuse("apt-get install ifupdown2", "nothing was armed: %v, and without it the network would not be brought back", err)
		}
	}
	paths, err := b.guarded(what, guest, node)
	if err != nil {
		return "", refuse("", "the files of the %s cannot be listed: %v", what, err)
	}
	total := 0
	for _, p := range paths {
		k, err := keep(p)
		if errors.Is(err, errLarger) {
			return "", refuse("Files of that size are no settings of a "+what+": move it away, then try again.", "nothing was armed, since not all of it could be put back: %v", err)
		}
		if total += len(k.Content); err == nil && total > mostKept {
			err = fmt.Errorf("the files of the %s hold more than %d bytes together", what, mostKept)
		}
		if err != nil {
			return "", refuse("", "nothing was armed: %v", err)
		}
		a.Files = append(a.Files, k)
	}
	if guest == "" {
		a.Dirs, a.Guests = b.covers(what)
	}
	known := slices.Clone(paths)
	for _, g := range a.Guests { // of other nodes too: what comes new is theirs, or of another guest
		if p := filepath.Join(b.set.Paths.PVE, "firewall", g+".fw"); !slices.Contains(known, p) {
			known = append(known, p)
		}
	}
	if a.Marks, err = b.marksOf(known); err != nil {
		return "", refuse("", "nothing was armed, since it cannot be told whose firewall is kept: %v", err)
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
	way, err := b.detachRevert(ctx, a.ID)
	if err != nil {
		_ = os.RemoveAll(dir) // nothing waits on it yet
		return "", refuse("", "nothing was armed: %v", err)
	}
	return fmt.Sprintf("armed %s: unless it is confirmed before %s, what changed in these files is put back, and what is new goes (%s): %s", id, a.Until.Format(time.RFC3339), way, strings.Join(paths, " ")), nil
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
func (b *Bridge) detach(ctx context.Context, unit, command, id string, properties ...string) (way string, err error) {
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
		args := append([]string{"--quiet", "--collect", "--no-block", "--unit=" + unit, "--property=KillMode=process"}, properties...)
		args = append(append(args, "--"), argv...)
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
