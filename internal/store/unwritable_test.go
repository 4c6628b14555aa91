//go:build linux

package store_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"castellan/internal/gate"
	"castellan/internal/store"
	"castellan/internal/store/storetest"
)

// TestUnwritable is about a ledger that cannot be written: reads go on, writes and Ready say why.
func TestUnwritable(t *testing.T) {
	ctx := context.Background()
	t.Run("read-only file", func(t *testing.T) {
		if os.Getuid() == 0 {
			t.Run("as another user", asNobody)
			return
		}
		path := sqliteFile(t)
		s := storetest.Open(t, path)
		if err := s.Update(ctx, func(tx gate.Tx) error { _, err := tx.Append(storetest.Record(1)); return err }); err != nil {
			t.Fatal(err)
		}
		s.Close()
		for _, name := range []string{path, path + "-wal", path + "-shm"} {
			os.Chmod(name, 0o400)
		}
		r := storetest.Open(t, path)
		unwritable(t, r, "cannot be written")
		os.Chmod(path, 0o600)
	})
	t.Run("full disk", func(t *testing.T) {
		dir := t.TempDir()
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=2m,mode=0700"); err != nil {
			t.Skipf("a small file system cannot be mounted here: %v", err)
		}
		t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
		s := storetest.Open(t, filepath.Join(dir, "state.db"))
		var err error
		for i := range 10_000 {
			rec := storetest.Record(i)
			rec.Parts["answer"] = strings.Repeat("x", 20_000)
			if err = s.Update(ctx, func(tx gate.Tx) error { _, err := tx.Append(rec); return err }); err != nil {
				break
			}
		}
		if !errors.Is(err, gate.ErrReadOnlyStore) || !strings.Contains(err.Error(), "disk is full") {
			t.Fatalf("appending on a full disk: %v", err)
		}
		unwritable(t, s, "disk is full")
		r, err := s.Verify(ctx)
		if err != nil || !r.OK {
			t.Errorf("verify: %+v, %v", r.Broken, err)
		}
		if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, "size=20m,mode=0700"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(1100 * time.Millisecond)
		if err := s.Ready(ctx); err != nil {
			t.Errorf("ready with room again: %v", err)
		}
	})
}

func unwritable(t *testing.T, s *store.Store, want string) {
	t.Helper()
	ctx := context.Background()
	if err := s.Ready(ctx); !errors.Is(err, gate.ErrReadOnlyStore) || !strings.Contains(err.Error(), want) {
		t.Errorf("ready: %v", err)
	}
	if err := s.Update(ctx, func(tx gate.Tx) error { return tx.Set("big", strings.Repeat("x", 200_000)) }); !errors.Is(err, gate.ErrReadOnlyStore) {
		t.Errorf("update: %v", err)
	}
	if err := s.View(ctx, func(tx gate.Tx) error { _, err := tx.Get("kill"); return err }); err != nil {
		t.Errorf("view: %v", err)
	}
	if h, err := s.Health(ctx); err != nil || h.Size == 0 || !strings.Contains(h.Trouble, want) {
		t.Errorf("health: %+v, %v", h, err)
	}
	if _, err := s.Position(ctx, 0); err != nil {
		t.Errorf("position: %v", err)
	}
}

// asNobody runs the test again as a user whom file modes bind.
func asNobody(t *testing.T) {
	dir, err := os.MkdirTemp("", "store")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	const nobody = 65534
	exe := filepath.Join(dir, "test")
	b, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(exe, b, 0o755), os.Chown(dir, nobody, nobody)); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(exe, "-test.run", "TestUnwritable/read-only_file", "-test.v")
	c.Dir, c.Env = dir, append(os.Environ(), "TMPDIR="+dir, "HOME="+dir)
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := c.CombinedOutput()
	if errors.Is(err, syscall.EPERM) {
		t.Skip("another user cannot be used here")
	}
	if err != nil || !strings.Contains(string(out), "--- PASS: TestUnwritable/read-only_file") {
		t.Errorf("%v\n%s", err, out)
	}
}
