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
	if err := private(dir, d, "700"); err != nil {
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
