//go:build unix

package seal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// openPrivate opens without following a link in the last element, and without
// waiting should it be a pipe.
func openPrivate(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.EMLINK) {
		return nil, errors.New("it is a symbolic link; give the file itself")
	}
	return f, err
}

func createPrivate(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0o600)
}

func makePrivateDir(path string) error { return os.Mkdir(path, 0o700) }

func checkPrivate(f *os.File, info fs.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return errors.New("its owner cannot be told on this system")
	}
	if me := os.Geteuid(); int(st.Uid) != me && st.Uid != 0 {
		return fmt.Errorf("%w: it belongs to user %d, this program runs as %d; chown it", ErrExposed, st.Uid, me)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		want := "600"
		if info.IsDir() {
			want = "700"
		}
		return fmt.Errorf("%w: its mode is %04o; run chmod %s on it", ErrExposed, mode, want)
	}
	return nil
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("flush directory %s: %w", path, err)
	}
	defer d.Close()
	// Some file systems refuse to flush a directory; the file itself is safe.
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOTSUP) {
		return fmt.Errorf("flush directory %s: %w", path, err)
	}
	return nil
}
