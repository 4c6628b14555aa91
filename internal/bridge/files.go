//go:build linux

package bridge

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"castellan/internal/frame"
)

const fileLimit = 20 * time.Second

// file reads or writes one file of a guest.
func (b *Bridge) file(ctx context.Context, ask frame.Ask) (frame.Tell, error) {
	f := ask.File
	if err := filePath(f.Path); err != nil {
		return frame.Tell{}, err
	}
	if !slices.Contains(b.set.Files, string(ask.Verb)) {
		return frame.Tell{}, refuse(b.set.hint("files", fmt.Sprintf("add %q", ask.Verb)), "the bridge does not %s files of guests", ask.Verb)
	}
	g, err := b.prove(ask.Place)
	if err != nil {
		return frame.Tell{}, err
	}
	if g == nil {
		return frame.Tell{}, refuse("", "files of the node itself are not read or written")
	}
	if err := b.enter(ctx, g); err != nil {
		return frame.Tell{}, err
	}
	if err := g.judgePrivilege(); err != nil {
		return frame.Tell{}, err
	}
	if ask.Verb == frame.Write && g.privileged && !slices.Contains(b.set.Lanes.Host, string(frame.Script)) {
		return frame.Tell{}, refuse(b.set.hint("lanes.host", `add "script"`), "container %d is privileged: to write its files counts as a script of the host", g.id)
	}
	if err := b.rec.write(entryOf(ask, frame.Tell{}).rooted(g.privileged)); err != nil {
		return frame.Tell{}, refuse("Look at the file of the setting log on the node.", "nothing is done that cannot be recorded: %v", err)
	}
	leave, err := b.filesOf(g.id)
	if err != nil {
		return frame.Tell{}, err
	}
	var h *held
	if ask.Verb == frame.Write {
		var known frame.Tell
		if h, known, err = b.begin(ask, "", "", fileLimit, true); h == nil {
			leave()
			if err == nil {
				b.rec.note(entryOf(ask, known).rooted(g.privileged))
			}
			return known, err
		}
	}
	found, err := within(fileLimit, func() (*frame.Found, error) { // a file system may never answer: its place stays taken
		defer leave()
		t, err := openTree(g.init)
		if err != nil {
			return nil, refuse("", "%v", err)
		}
		defer t.close()
		if ask.Verb == frame.Read {
			return t.read(f, b.set.Limits.File)
		}
		return t.write(f, b.set.Limits.File)
	}, nil)
	last := frame.Tell{Ending: frame.Done, File: found}
	switch {
	case errors.Is(err, errSilent) && ask.Verb == frame.Write:
		last = frame.Tell{Ending: frame.Unknown, Reason: "the guest's file system did not answer: whether the file was written is not known"}
	case err != nil:
		last = ending(ask.ID, err)
	}
	if h != nil {
		kept := last
		if found != nil && len(found.Content) > 0 { // what was replaced goes to whoever asked, and stays nowhere on the node
			f := *found
			f.Content, f.Cut = nil, true
			kept.File = &f
		}
		b.finish(h, &kept)
	}
	b.rec.note(entryOf(ask, last).rooted(g.privileged))
	return last, nil
}

// mostFiles is how much may be done at once with the files of one guest.
const mostFiles = 8

// filesOf waits for a place among what is done with the files of a guest. What its file system never answers keeps its
// place, so that no guest takes all of them, nor a thread of this program for each time that it is asked.
func (b *Bridge) filesOf(id int) (leave func(), err error) {
	b.mu.Lock()
	places := b.files[id]
	if places == nil {
		places = make(chan struct{}, mostFiles)
		b.files[id] = places
	}
	b.mu.Unlock()
	select {
	case places <- struct{}{}:
		return func() { <-places }, nil
	case <-time.After(fileLimit):
		return nil, refuse("Look into the guest: what is mounted there may never answer.", "%d things are being done with the files of guest %d, and none of them has ended for %s: nothing was begun", mostFiles, id, fileLimit)
	}
}

// errSilent is a file system of a guest that does not answer.
var errSilent = errors.New("the guest's file system did not answer")

// within waits for f, not longer than the limit; late is called with what comes after it.
func within[T any](limit time.Duration, f func() (T, error), late func(T)) (T, error) {
	type outcome struct {
		value T
		err   error
	}
	done := make(chan outcome, 1)
	go func() {
		v, err := f()
		done <- outcome{v, err}
	}()
	select {
	case o := <-done:
		return o.value, o.err
	case <-time.After(limit):
		if late != nil {
			go func() {
				if o := <-done; o.err == nil {
					late(o.value)
				}
			}()
		}
		var none T
		return none, errSilent
	}
}

// describe makes what is told of a file.
func (t *tree) describe(name string, st unix.Stat_t) *frame.Found {
	return &frame.Found{Path: name, Size: st.Size, Mode: st.Mode & 0o7777, UID: t.uids.in(int(st.Uid)), GID: t.gids.in(int(st.Gid))}
}

// missing tells a file that is not there from one that cannot be reached.
func missing(err error) bool { return errors.Is(err, unix.ENOENT) }

func unreachable(name string, err error) error {
	var r *refusal
	if errors.As(err, &r) {
		return err
	}
	return refuse("", "%.200q cannot be opened: %v", name, err)
}

func (t *tree) read(f *frame.File, limit int) (*frame.Found, error) {
	if len(f.Content) > 0 || f.Expect != "" || f.Mode != 0 {
		return nil, refuse("", "a read brings no content, mode or expectation")
	}
	most := f.Max
	switch {
	case most == 0:
		most = limit
	case most < 0 || most > limit:
		return nil, refuse("", "max is from 1 to %d bytes", limit)
	}
	h, st, err := t.regular(f.Path)
	if missing(err) {
		return &frame.Found{Path: f.Path, Absent: true}, nil
	}
	if err != nil {
		return nil, unreachable(f.Path, err)
	}
	defer h.Close()
	out := t.describe(f.Path, st)
	if out.Content, err = io.ReadAll(io.LimitReader(h, int64(most)+1)); err != nil {
		return nil, fmt.Errorf("read file: %w", err)
	}
	if len(out.Content) > most {
		out.Content, out.Cut = out.Content[:most], true
		return out, nil
	}
	sum := sha256.Sum256(out.Content)
	out.SHA256, out.Size = hex.EncodeToString(sum[:]), int64(len(out.Content))
	return out, nil
}

func (t *tree) write(f *frame.File, limit int) (*frame.Found, error) {
	switch {
	case len(f.Content) > limit:
		return nil, refuse("", "the content is longer than %d bytes", limit)
	case f.Mode&^0o777 != 0:
		return nil, refuse("", "the mode %04o is not within 0777", f.Mode)
	case f.Max != 0:
		return nil, refuse("", "a write has no max")
	case f.Expect != "" && f.Expect != "absent" && !isSum(f.Expect):
		return nil, refuse("", "expect is a SHA-256 in hex, or absent")
	}
	dir, err := t.open(path.Dir(f.Path), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return nil, refuse("Make the folder first.", "the folder of %.200q cannot be opened: %v", f.Path, err)
	}
	defer dir.Close()
	if err := t.folder(dir, path.Dir(f.Path)); err != nil {
		return nil, err
	}
	base := path.Base(f.Path)
	old, st, err := t.replaced(dir, base, f)
	was := old.SHA256
	if err != nil {
		return nil, err
	}
	out := &frame.Found{Path: f.Path, Absent: true}
	uid, e1 := t.uids.out(0)
	gid, e2 := t.gids.out(0)
	mode := f.Mode
	if mode == 0 {
		mode = 0o644
	}
	if was != "" {
		out = t.describe(f.Path, st)
		out.SHA256, out.Content, out.Cut = was, old.Content, old.Cut
		uid, gid, mode = int(st.Uid), int(st.Gid), st.Mode&0o777
	} else if err := errors.Join(e1, e2); err != nil {
		return nil, refuse("", "%v", err)
	}
	name, err := putBeside(int(dir.Fd()), base, f.Content, uid, gid, mode)
	if err != nil {
		return nil, refuse("", "nothing was changed: %v", err)
	}
	if err := swap(int(dir.Fd()), name, base, was != "", st); err != nil {
		_ = unix.Unlinkat(int(dir.Fd()), name, 0) // random name; what was there is still there
		return nil, err
	}
	if err := syncAt(int(dir.Fd())); err != nil {
		return nil, fmt.Errorf("write file: it is in its place, and may be lost with a loss of power now: %w", err)
	}
	return out, nil
}

func isSum(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == sha256.Size
}

// replaced looks at what a write would replace and refuses what is not as expected. It gives its hash and its content, as
// much as an answer takes; neither when nothing is there.
func (t *tree) replaced(dir *os.File, base string, f *frame.File) (old frame.Found, st unix.Stat_t, err error) {
	err = unix.Fstatat(int(dir.Fd()), base, &st, unix.AT_SYMLINK_NOFOLLOW)
	if missing(err) {
		if f.Expect != "" && f.Expect != "absent" {
			return old, st, refuse("Read it again and plan anew.", "%.200q is not there any more", f.Path)
		}
		return old, st, nil
	}
	if err != nil {
		return old, st, unreachable(f.Path, err)
	}
	switch kind := st.Mode & unix.S_IFMT; {
	case kind != unix.S_IFREG:
		return old, st, refuse("Name the file itself.", "%.200q is a %s", f.Path, kindOf(kind))
	case f.Expect == "absent":
		return old, st, refuse("Read it again and plan anew.", "%.200q is there, and was to be new", f.Path)
	case st.Mode&(unix.S_ISUID|unix.S_ISGID) != 0:
		return old, st, refuse("", "%.200q runs with the rights of its owner: it is not replaced", f.Path)
	case st.Nlink > 1:
		return old, st, refuse("Change it by a command in the guest.", "%.200q has %d names, which replacing would part", f.Path, st.Nlink)
	}
	h, again, err := (&tree{root: dir, uids: t.uids, gids: t.gids}).regular(base)
	if err != nil {
		return old, st, unreachable(f.Path, err)
	}
	defer h.Close()
	if again.Ino != st.Ino || again.Dev != st.Dev {
		return old, st, refuse("Try again.", "%.200q changed meanwhile", f.Path)
	}
	kept := &limited{most: frame.MaxFile}
	sum, size, whole, err := sumOf(io.TeeReader(h, kept), 1<<30)
	switch {
	case err != nil:
		return old, st, fmt.Errorf("read file: %w", err)
	case !whole:
		return old, st, refuse("", "%.200q is too large to be replaced", f.Path)
	case f.Expect != "" && sum != f.Expect:
		return old, st, refuse("Read it again and plan anew.", "%.200q is not what was expected: its SHA-256 is %s", f.Path, sum)
	}
	return frame.Found{SHA256: sum, Content: kept.b, Cut: size > frame.MaxFile}, st, nil
}

// limited keeps the begin of what is written to it.
type limited struct {
	most int
	b    []byte
}

func (l *limited) Write(p []byte) (int, error) {
	l.b = append(l.b, p[:min(len(p), l.most-len(l.b))]...)
	return len(p), nil
}

// swap puts the new file in its place. A file that came or changed meanwhile stays.
func swap(dir int, name, base string, replaces bool, was unix.Stat_t) error {
	if !replaces {
		err := unix.Renameat2(dir, name, dir, base, unix.RENAME_NOREPLACE)
		if errors.Is(err, unix.EEXIST) {
			return refuse("Read it again and plan anew.", "the file came into being meanwhile")
		}
		if err != nil {
			return refuse("", "nothing was changed: %v", err)
		}
		return nil
	}
	if err := unix.Renameat2(dir, name, dir, base, unix.RENAME_EXCHANGE); err != nil {
		return refuse("", "nothing was changed: %v", err)
	}
	var now unix.Stat_t
	err := unix.Fstatat(dir, name, &now, unix.AT_SYMLINK_NOFOLLOW)
	if err != nil || now.Ino != was.Ino || now.Dev != was.Dev || now.Size != was.Size || now.Mtim != was.Mtim {
		if back := unix.Renameat2(dir, name, dir, base, unix.RENAME_EXCHANGE); back != nil {
			return fmt.Errorf("write file: it changed meanwhile and could not be put back; what was there is %s beside it: %w", name, back)
		}
		return refuse("Read it again and plan anew.", "the file changed meanwhile; it was put back")
	}
	if err := unix.Unlinkat(dir, name, 0); err != nil {
		return fmt.Errorf("write file: it is written, and what was there is left as %s beside it: %w", name, err)
	}
	return nil
}

// syncAt makes a folder that is held by a path handle durable.
func syncAt(dir int) error {
	fd, err := unix.Openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Fsync(fd)
}
