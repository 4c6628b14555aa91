//go:build linux

package bridge

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// laid is a script that lies in a folder of its own which nobody but who runs it can look into.
type laid struct {
	path   string // as who runs it sees it
	remove func()
}

func nothing() {}

// layScript writes the script where it is to run; nil where there is none.
func (b *Bridge) layScript(g *guest, act action, nonce string) (*laid, error) {
	if act.script == "" {
		return &laid{remove: nothing}, nil
	}
	if g != nil {
		leave, err := b.filesOf(g.id)
		if err != nil {
			return nil, err
		}
		return within(fileLimit, func() (*laid, error) { defer leave(); return inContainer(g, act.script, nonce) }, func(l *laid) { l.remove() })
	}
	uid, gid := 0, 0
	if !act.root {
		uid, gid = act.account.uid, act.account.gid
	}
	return onNode(act.script, nonce, uid, gid)
}

// onNode lays it below /run. Folders above are closed to reading, and its name is random.
func onNode(text, nonce string, uid, gid int) (*laid, error) {
	const top = "/run/castellan-bridge"
	if err := os.Mkdir(top, 0o711); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, refuse("", "the script cannot be laid down: %v", err)
	}
	var st unix.Stat_t
	if err := unix.Lstat(top, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0 {
		return nil, refuse("Remove it on the node.", "%s is no folder that only root can write", top)
	}
	dir := filepath.Join(top, nonce)
	l := &laid{path: filepath.Join(dir, "script"), remove: func() { _ = os.RemoveAll(dir) }} // on a file system of memory
	if err := os.Mkdir(dir, 0o711); err != nil {
		return nil, refuse("", "the script cannot be laid down: %v", err)
	}
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err == nil {
		err = layAt(fd, text, uid, gid)
		unix.Close(fd)
	}
	if err != nil {
		l.remove()
		return nil, refuse("", "the script cannot be laid down: %v", err)
	}
	return l, nil
}

// layAt writes the file "script" into a folder that was just made.
func layAt(dir int, text string, uid, gid int) error {
	fd, err := unix.Openat(dir, "script", unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), "script")
	_, err = f.WriteString(text)
	if err == nil {
		err = unix.Fchown(fd, uid, gid)
	}
	if err == nil {
		err = unix.Fchmod(fd, 0o400)
	}
	return errors.Join(err, f.Close())
}

// inContainer lays it into a container, from outside: no link in the container leads the file elsewhere.
func inContainer(g *guest, text, nonce string) (*laid, error) {
	t, err := openTree(g.init)
	if err != nil {
		return nil, refuse("", "the script cannot be laid down: %v", err)
	}
	uid, e1 := t.uids.out(0)
	gid, e2 := t.gids.out(0)
	if err := errors.Join(e1, e2); err != nil {
		t.close()
		return nil, refuse("", "the script cannot be laid down: %v", err)
	}
	name := "castellan-" + nonce
	var last error
	for _, top := range []string{"/run", "/root", "/tmp"} {
		parent, err := t.open(top, unix.O_PATH|unix.O_DIRECTORY)
		if err != nil {
			last = err
			continue
		}
		if last = t.folder(parent, top); last == nil {
			last = asOwner(uid, gid, func() error { return layBelow(int(parent.Fd()), name, text, uid, gid) })
		}
		if last != nil {
			parent.Close()
			continue
		}
		return &laid{path: top + "/" + name + "/script", remove: func() {
			_, _ = within(fileLimit, func() (struct{}, error) {
				defer t.close()
				defer parent.Close()
				return struct{}{}, asOwner(uid, gid, func() error { removeLaid(int(parent.Fd()), name); return nil })
			}, nil)
		}}, nil
	}
	t.close()
	return nil, refuse("", "the script cannot be laid down in container %d: %v", g.id, last)
}

// asOwner does something with files as an account of the node: the kernel lets it do there what that account may, and no more.
// Whatever a container puts in the place of what was made a moment ago is touched with the rights of its own root alone.
func asOwner(uid, gid int, do func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if _, _, e := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); e != 0 {
			done <- fmt.Errorf("give up groups: %w", e)
			return
		}
		_ = unix.Setfsgid(gid) // says nothing: asked below
		_ = unix.Setfsuid(uid)
		if is, err := unix.SetfsuidRetUid(-1); err != nil || is != uid {
			done <- errors.New("take the account of the container's root: it was not granted")
			return
		}
		if is, err := unix.SetfsgidRetGid(-1); err != nil || is != gid {
			done <- errors.New("take the group of the container's root: it was not granted")
			return
		}
		done <- do()
	}()
	return <-done
}

// removeLaid removes the folder of a script, if it is what it was.
func removeLaid(parent int, name string) {
	if dir, err := unix.Openat(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0); err == nil {
		_ = unix.Unlinkat(dir, "script", 0) // the guest may have removed it
		unix.Close(dir)
	}
	_ = unix.Unlinkat(parent, name, unix.AT_REMOVEDIR)
}

func layBelow(parent int, name, text string, uid, gid int) error {
	if err := unix.Mkdirat(parent, name, 0o700); err != nil {
		return err
	}
	dir, err := unix.Openat(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err == nil {
		err = layAt(dir, text, uid, gid)
		unix.Close(dir)
	}
	if err != nil {
		removeLaid(parent, name)
	}
	return err
}
