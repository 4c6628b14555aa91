//go:build unix

package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// guardFile makes the folder (0700) and the file (0600) when they are missing, and refuses what others could read
// or swap. The file is never opened when it exists: closing it again would take this process' locks away from
// another connection.
func guardFile(path string) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make folder of the store: %w", err)
	}
	d, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("look at folder of the store: %w", err)
	}
	if !d.IsDir() {
		return fmt.Errorf("%s is no folder", dir)
	}
	if err := privateFolder(dir, d); err != nil {
		return err
	}
	for _, name := range []string{path, path + "-wal", path + "-shm"} {
		f, err := os.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			if name == path {
				if err := create(path); err != nil {
					return err
				}
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("look at the store: %w", err)
		}
		if f.Mode()&fs.ModeSymlink != 0 {
			return fmt.Errorf("%s is a symbolic link; the store must be a plain file: name the file itself", name)
		}
		if !f.Mode().IsRegular() {
			return fmt.Errorf("%s is no plain file; name another path for the store", name)
		}
		if err := private(name, f, "600"); err != nil {
			return err
		}
	}
	return nil
}

// privateFolder refuses folders that others can enter. One that is meant for many (another user's, or sticky like
// /tmp) is not to be closed for the store's sake.
func privateFolder(dir string, i fs.FileInfo) error {
	st, ok := i.Sys().(*syscall.Stat_t)
	if ok && int(st.Uid) != os.Geteuid() || i.Mode()&fs.ModeSticky != 0 {
		return fmt.Errorf("the folder %s is shared with others; put the store into a folder of its own below it, such as %q, which castellan makes by itself", dir, filepath.Join(dir, "castellan", "state.db"))
	}
	return private(dir, i, "700")
}

func private(name string, i fs.FileInfo, mode string) error {
	if st, ok := i.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s belongs to user %d and not to the one that runs castellan (%d): run it as that user, or: chown %d %q", name, st.Uid, os.Geteuid(), os.Geteuid(), name)
	}
	if i.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("%s can be used by others (mode %04o): chmod %s %q", name, i.Mode().Perm(), mode, name)
	}
	return nil
}

func create(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil // another process was first; it made it the same way
	}
	if err != nil {
		return fmt.Errorf("create the store: %w", err)
	}
	return f.Close()
}
