//go:build unix

package anchor

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// openAnchor opens the file for appending (and reading), or only for reading. It follows no link in the last element;
// the file must be this user's (or root's) and nobody else's to write.
func openAnchor(path string, write bool) (*os.File, error) {
	flags := os.O_RDONLY
	if write {
		flags = os.O_RDWR | os.O_APPEND | os.O_CREATE
	}
	f, err := os.OpenFile(path, flags|syscall.O_NOFOLLOW|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0o600)
	if errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.EMLINK) {
		return nil, fmt.Errorf("%s is a symbolic link; give the file itself", path)
	}
	if err != nil {
		return nil, err
	}
	if err := checkAnchor(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func checkAnchor(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file", f.Name())
	case !ok:
		return fmt.Errorf("the owner of %s cannot be told", f.Name())
	case int(st.Uid) != os.Geteuid() && st.Uid != 0:
		return fmt.Errorf("%s belongs to user %d, this program runs as %d", f.Name(), st.Uid, os.Geteuid())
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("others may write to %s (mode %04o); run chmod go-w on it", f.Name(), info.Mode().Perm())
	}
	return nil
}

func lockFile(f *os.File) (func(), error) {
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return nil, err
	}
	return func() { _ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN) }, nil // closing unlocks too
}
