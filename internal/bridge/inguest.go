//go:build linux

package bridge

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// tree is the file tree of a container, reached from outside: every path is resolved beneath its root, whatever links it
// holds, and no link of /proc leads out of it.
type tree struct {
	root       *os.File
	uids, gids idMap
}

func openTree(p process) (*tree, error) {
	uids, err := mapOf(p, "uid_map")
	if err != nil {
		return nil, err
	}
	gids, err := mapOf(p, "gid_map")
	if err != nil {
		return nil, err
	}
	root, err := rootOf(p)
	if err != nil {
		return nil, err
	}
	return &tree{root: root, uids: uids, gids: gids}, nil
}

func (t *tree) close() { t.root.Close() }

// open resolves a path beneath the root. Flags are those of open.
func (t *tree) open(name string, flags uint64) (*os.File, error) {
	for try := 0; ; try++ {
		fd, err := unix.Openat2(int(t.root.Fd()), name, &unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS})
		if errors.Is(err, unix.EAGAIN) && try < 32 { // something was renamed meanwhile
			continue
		}
		if err != nil {
			return nil, err
		}
		return os.NewFile(uintptr(fd), name), nil
	}
}

// filePath checks a path as the guest sees it.
func filePath(p string) error {
	switch {
	case !strings.HasPrefix(p, "/") || len(p) > 4096 || strings.ContainsRune(p, 0):
		return refuse("", "a path is absolute, at most 4096 bytes, without NUL")
	case p != path.Clean(p) || p == "/":
		return refuse("", "the path %.100q holds parts like . or .., double slashes or a slash at its end", p)
	}
	return nil
}

// foreign says why a file system is none for files: what lies on it is made by the kernel, or by a program that may never
// answer.
func foreign(fd int) error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil {
		return fmt.Errorf("read file system: %w", err)
	}
	switch st.Type {
	case unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC, unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC, unix.SECURITYFS_MAGIC, unix.SELINUX_MAGIC, unix.BPF_FS_MAGIC, unix.PSTOREFS_MAGIC,
		unix.EFIVARFS_MAGIC, unix.DEVPTS_SUPER_MAGIC, unix.BINFMTFS_MAGIC, unix.NSFS_MAGIC, 0x19800202 /* mqueue */, 0x62656570 /* configfs */ :
		return refuse("Use a probe.", "the file is one that the kernel makes up")
	case 0x65735546: // FUSE
		return refuse("Read it by a command in the guest.", "the file lies on a file system that a program makes up, which may never answer")
	}
	return nil
}

// ours refuses what belongs to nobody of the container: its own root has no rights over that, and this program, which is root
// of the node, must not lend it any. So are files of the host that are mounted into a container.
func (t *tree) ours(name string, st *unix.Stat_t) error {
	if t.uids.has(int(st.Uid)) && t.gids.has(int(st.Gid)) {
		return nil
	}
	return refuse("Reach it by a command in the guest, if its own accounts may.", "%.200q belongs to an account of the node, not of the container", name)
}

// folder refuses one in which nothing may be made from here.
func (t *tree) folder(dir *os.File, name string) error {
	if err := foreign(int(dir.Fd())); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return fmt.Errorf("read folder: %w", err)
	}
	return t.ours(name, &st)
}

// regular opens a file for reading and refuses whatever is no regular one: it is looked at by a handle that opens
// nothing, since to open a device or a FIFO is to do something.
func (t *tree) regular(name string) (*os.File, unix.Stat_t, error) {
	var st unix.Stat_t
	look, err := t.open(name, unix.O_PATH)
	if err != nil {
		return nil, st, err
	}
	defer look.Close()
	if err := unix.Fstat(int(look.Fd()), &st); err != nil {
		return nil, st, err
	}
	if kind := st.Mode & unix.S_IFMT; kind != unix.S_IFREG {
		return nil, st, refuse("Only regular files are read and written.", "%.200q is a %s", name, kindOf(kind))
	}
	if err := foreign(int(look.Fd())); err != nil {
		return nil, st, err
	}
	if err := t.ours(name, &st); err != nil {
		return nil, st, err
	}
	f, err := os.OpenFile("/proc/self/fd/"+strconv.Itoa(int(look.Fd())), os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, st, err
	}
	return f, st, nil
}

func kindOf(kind uint32) string {
	switch kind {
	case unix.S_IFDIR:
		return "folder"
	case unix.S_IFLNK:
		return "symbolic link"
	case unix.S_IFIFO:
		return "FIFO"
	case unix.S_IFSOCK:
		return "socket"
	case unix.S_IFBLK, unix.S_IFCHR:
		return "device"
	}
	return "file of another kind"
}

// sumOf reads a file to its end, or to most bytes, and gives its SHA-256; whole says whether that was all.
func sumOf(f io.Reader, most int64) (sum string, size int64, whole bool, err error) {
	h := sha256.New()
	n, err := io.Copy(h, io.LimitReader(f, most+1))
	if err != nil {
		return "", n, false, err
	}
	return hex.EncodeToString(h.Sum(nil)), n, n <= most, nil
}

// put writes a new file beside its place, for good, and returns its name there. Owner and group are the host's numbers.
func putBeside(dir int, base string, content []byte, uid, gid int, mode uint32) (string, error) {
	if len(base) > 200 {
		base = base[:200]
	}
	name := "." + base + "." + newNonce()[:12]
	fd, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return "", fmt.Errorf("make %s: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	_, err = f.Write(content)
	for _, step := range []func() error{func() error { return unix.Fchown(fd, uid, gid) }, func() error { return unix.Fchmod(fd, mode) }, f.Sync} {
		if err == nil {
			err = step()
		}
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		_ = unix.Unlinkat(dir, name, 0) // best effort: the name is random
		return "", fmt.Errorf("write %s: %w", name, err)
	}
	return name, nil
}
