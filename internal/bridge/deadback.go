//go:build linux

package bridge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"castellan/internal/frame"
)

// guarded lists the files of firewall or network, also those that may come into being; of one guest, that one's alone.
func (b *Bridge) guarded(what, guest, node string) ([]string, error) {
	if guest != "" {
		if conf, err := b.configOf(guest); err != nil || conf == "" {
			return nil, errors.Join(err, fmt.Errorf("there is no guest %s in the cluster", guest))
		}
		return []string{filepath.Join(b.set.Paths.PVE, "firewall", guest+".fw")}, nil
	}
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

// configOf finds the configuration of a guest, on whichever node it is; "" where there is no guest of that id.
func (b *Bridge) configOf(guest string) (string, error) {
	if rows, err := os.ReadDir(filepath.Join(b.set.Paths.PVE, "nodes")); err != nil || len(rows) == 0 {
		return "", errors.Join(err, errors.New("the guests of the cluster cannot be listed"))
	}
	for _, kind := range []string{"lxc", "qemu-server"} {
		found, err := filepath.Glob(filepath.Join(b.set.Paths.PVE, "nodes", "*", kind, guest+".conf"))
		if err != nil || len(found) > 0 {
			return strings.Join(found[:min(1, len(found))], ""), err
		}
	}
	return "", nil
}

// guestOf is the id of the guest whose firewall a file holds, "" where it is none's.
func (b *Bridge) guestOf(path string) string {
	name, ends := strings.CutSuffix(filepath.Base(path), ".fw")
	if _, err := guestID(name); !ends || err != nil || filepath.Dir(path) != filepath.Join(b.set.Paths.PVE, "firewall") {
		return ""
	}
	return name
}

// marksOf reads what tells the guests of these files: each has several, of which some stay when a disk is moved, a card
// exchanged or a snapshot rolled back.
func (b *Bridge) marksOf(paths []string) (map[string][]string, error) {
	out := map[string][]string{}
	for _, p := range paths {
		guest := b.guestOf(p)
		if guest == "" {
			continue
		}
		conf, err := b.configOf(guest)
		if err != nil {
			return nil, err
		}
		if conf == "" {
			continue // a file without a guest
		}
		marks, err := marksIn(conf)
		if err != nil {
			return nil, err
		}
		out[guest] = marks
	}
	return out, nil
}

func marksIn(path string) ([]string, error) {
	text, err := readBounded(path, 1<<20)
	if err != nil {
		return nil, err
	}
	conf, err := currentSection(text)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	var out []string
	for key, value := range conf {
		first, _, _ := strings.Cut(value, ",")
		number := strings.TrimLeft(key, "abcdefghijklmnopqrstuvwxyz")
		switch kind := strings.TrimSuffix(key, number); {
		case key == "rootfs", number != "" && slices.Contains([]string{"scsi", "virtio", "sata", "ide", "efidisk", "tpmstate"}, kind):
			if volume := strings.TrimPrefix(strings.TrimPrefix(first, "volume="), "file="); volume != "none" && !strings.Contains(value, "media=cdrom") {
				out = append(out, "volume "+volume)
			}
		case key == "smbios1":
			out = append(out, "smbios "+value)
		case number != "" && kind == "net":
			for part := range strings.SplitSeq(value, ",") {
				if _, address, ok := strings.Cut(part, "="); ok && len(address) == 17 && strings.Count(address, ":") == 5 {
					out = append(out, "card "+strings.ToUpper(address))
				}
			}
		}
	}
	slices.Sort(out)
	return out, nil
}

// another says whether a file that is kept is of a guest that is gone: there is none of its id, or one that was made anew.
func (a armed) another(b *Bridge, path string) (bool, error) {
	guest := b.guestOf(path)
	marks := a.Marks[guest]
	if guest == "" || len(marks) == 0 { // none's, or nothing tells it from others
		return false, nil
	}
	conf, err := b.configOf(guest)
	if err != nil || conf == "" {
		return err == nil, err
	}
	now, err := marksIn(conf)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	return err == nil && len(now) > 0 && !slices.ContainsFunc(now, func(m string) bool { return slices.Contains(marks, m) }), err
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
		k.Content, err = readBounded(path, mostFile)
	}
	return k, err
}

// covers says of which folders new files go again. A guest that came after has a firewall that shut nobody out, and to take it
// away would open that guest: whose guests there were is kept.
func (b *Bridge) covers(what string) (dirs []covered, guests []string) {
	if what == "network" {
		return []covered{{Path: filepath.Join(filepath.Dir(b.set.Paths.Network), "interfaces.d")}}, nil
	}
	for _, kind := range []string{"lxc", "qemu-server"} {
		found, _ := filepath.Glob(filepath.Join(b.set.Paths.PVE, "nodes", "*", kind, "*.conf")) // the pattern is sound
		for _, f := range found {
			guests = append(guests, strings.TrimSuffix(filepath.Base(f), ".conf"))
		}
	}
	return []covered{{Path: filepath.Join(b.set.Paths.PVE, "firewall"), Ends: ".fw"}}, guests
}

// detachRevert starts what waits. systemd starts it anew when it is killed.
func (b *Bridge) detachRevert(ctx context.Context, id string) (way string, err error) {
	return b.detach(ctx, "castellan-deadman-"+id, "revert", id, "--property=Restart=on-abnormal", "--property=RestartSec=1s")
}

// takeUp starts what is to wait for switches that nothing waits for any more: it was killed, or stopped, without a restart of the node.
func (b *Bridge) takeUp(ctx context.Context) {
	for _, a := range append(b.state.armed(), b.state.switches(deadReverting)...) {
		lock, err := b.state.waitLock(a.ID)
		if err != nil {
			continue
		}
		lock.Close()
		if _, err := b.detachRevert(ctx, a.ID); err != nil { // it may be about to take the lock
			b.log.Warn("take up dead man's switch", "id", a.ID, "err", err)
		}
	}
}

// waitLock is held by the process that waits for a switch. To close it is to give it up.
func (s *state) waitLock(id string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(s.deadDir(id), "waits"), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
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

// left is how long a process that begins now still waits: until the time that was said, and never for longer than was asked for.
func (a armed) left(now time.Time) time.Duration {
	most := mostDead
	if a.Seconds > 0 {
		most = min(a.Seconds, mostDead)
	}
	return max(0, min(a.Until.Sub(now), time.Duration(most)*time.Second))
}

func (b *Bridge) revert(ctx context.Context, a armed) error {
	dir := b.state.deadDir(a.ID)
	from, on, to := filepath.Join(dir, deadArmed), filepath.Join(dir, deadReverting), filepath.Join(dir, deadReverted)
	lock, err := b.state.waitLock(a.ID)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil // another process waits for it
	}
	if err != nil {
		return fmt.Errorf("revert: %w", err)
	}
	defer lock.Close()
	// From here on a clock that runs evenly counts: one that is set meanwhile, forward or back, changes nothing.
	end := time.NewTimer(a.left(time.Now()))
	defer end.Stop()
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for over := false; !over && exists(from); {
		select {
		case <-ctx.Done():
			return ctx.Err() // armed still: the next start takes it up
		case <-end.C:
			over = true
		case <-look.C:
		}
	}
	if err := os.Rename(from, on); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("revert: %w", err)
	}
	if !exists(on) {
		return nil // confirmed, or put back
	}
	err = b.putBack(ctx, a)
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
	back, gone, loaded := map[string]bool{}, map[string]bool{}, 0
	for try := 0; try < 60; try++ { // a cluster without quorum takes no writes for a while
		failed = nil
		for _, k := range a.Files {
			if other, err := a.another(b, k.Path); other || err != nil {
				failed = errors.Join(failed, err)
				continue
			}
			did, err := k.restore(b.state.deadDir(a.ID))
			if did && err == nil {
				back[k.Path] = true
			}
			failed = errors.Join(failed, err)
		}
		fresh, err := a.fresh()
		failed = errors.Join(failed, err)
		for _, path := range fresh {
			if other, err := a.another(b, path); other || err != nil {
				failed = errors.Join(failed, err)
				continue
			}
			err := takeAway(path, b.state.deadDir(a.ID))
			if err == nil {
				gone[path] = true
			}
			failed = errors.Join(failed, err)
		}
		if failed == nil {
			break
		}
		// One file that cannot be put back keeps the node from no network that the others bring.
		if n := len(back) + len(gone); a.What == "network" && n > loaded && b.reload(ctx) == nil {
			loaded = n
		}
		select {
		case <-ctx.Done():
			return errors.Join(failed, ctx.Err())
		case <-time.After(5 * time.Second):
		}
	}
	if a.What == "network" && len(back)+len(gone) > loaded {
		failed = errors.Join(failed, b.reload(ctx))
	}
	e := entry{ID: a.ID, Verb: "revert", Word: wordDeadMan, Root: true, Ending: string(frame.Done), Reason: fmt.Sprintf("it was not confirmed: %d files were put back, %d that were new taken away (copies of both: %s)", len(back), len(gone), b.state.deadDir(a.ID))}
	if failed != nil {
		e.Ending, e.Reason = string(frame.Failed), short(failed.Error())
	}
	b.rec.note(e)
	return failed
}

// fresh lists the files of the folders that were not there when it was armed.
func (a armed) fresh() ([]string, error) {
	var out []string
	var failed error
	for _, d := range a.Dirs {
		entries, err := os.ReadDir(d.Path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = errors.Join(failed, err)
		}
		for _, e := range entries {
			path := filepath.Join(d.Path, e.Name())
			name, counts := strings.CutSuffix(e.Name(), d.Ends)
			known := slices.ContainsFunc(a.Files, func(k kept) bool { return k.Path == path })
			if known || !counts || e.IsDir() || laterGuest(name, a.Guests, d.Ends) {
				continue
			}
			out = append(out, path)
		}
	}
	return out, failed
}

// laterGuest: a firewall of a guest that was not there.
func laterGuest(name string, guests []string, ends string) bool {
	return ends != "" && strings.Trim(name, "0123456789") == "" && !slices.Contains(guests, name)
}

// takeAway removes a file and keeps a copy of it.
func takeAway(path, to string) error {
	copyOf(path, to, "new-")
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// copyOf keeps what a file holds before it goes: whoever wrote it meanwhile, it need not be who armed the switch. The way back is
// worth more than the copy. One that is there already is of the first try, and stays.
func copyOf(path, to, mark string) {
	from, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return
	}
	defer from.Close()
	if info, err := from.Stat(); err != nil || !info.Mode().IsRegular() {
		return
	}
	name := filepath.Join(to, mark+filepath.Base(path))
	out, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return
	}
	_, err = io.Copy(out, io.LimitReader(from, mostKept))
	if err = errors.Join(err, out.Close()); err != nil {
		_ = os.Remove(name) // half of it is no copy
	}
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

// restore puts a file back where it differs; what is taken away leaves a copy in a folder.
func (k kept) restore(copies string) (changed bool, err error) {
	var now []byte
	info, err := os.Stat(k.Path)
	odd := err == nil && !info.Mode().IsRegular() // what was kept was a file: a pipe is not read, it could keep all of it waiting
	if err == nil && !odd {
		now, err = readBounded(k.Path, mostFile)
	}
	absent, larger := errors.Is(err, fs.ErrNotExist), errors.Is(err, errLarger) // what has grown beyond what is kept is another one surely
	switch {
	case err != nil && !absent && !larger:
		return false, err
	case k.Absent && absent, !k.Absent && err == nil && !odd && string(now) == string(k.Content):
		return false, nil
	case k.Absent:
		return true, takeAway(k.Path, copies)
	}
	copyOf(k.Path, copies, "was-")
	tmp := k.Path + ".castellan"
	if err := writeNew(tmp, k.Content); err != nil {
		return true, err
	}
	_ = os.Chmod(tmp, os.FileMode(k.Mode)) // the cluster's file system has modes of its own
	if err := os.Rename(tmp, k.Path); err != nil {
		return true, errors.Join(err, os.Remove(tmp))
	}
	return true, nil
}

// writeNew writes a file that was not there: what lies at the name (of a run that was cut off, or a link) goes, and is not written through.
func writeNew(path string, content []byte) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o640)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Close())
}
