//go:build unix

package store_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
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

// TestMain lets the test binary be one of several processes on one store.
func TestMain(m *testing.M) {
	if url := os.Getenv("STORE_TEST_WORKER"); url != "" {
		if err := worker(url, os.Getenv("STORE_TEST_NAME")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// worker appends, moves one shared plan on by compare and swap, and reads, until its standard input ends. It prints a
// line for each append that it was told is durable.
func worker(url, name string) error {
	ctx := context.Background()
	s, err := store.Open(ctx, store.Config{URL: url, Signer: storetest.Key()})
	if err != nil {
		return err
	}
	defer s.Close()
	stop := make(chan struct{})
	go func() {
		bufio.NewReader(os.Stdin).ReadString('\n')
		close(stop)
	}()
	run, end := context.WithCancel(ctx)
	defer end()
	ran := make(chan error, 1)
	go func() { ran <- s.Run(run) }()
	for i := 0; ; i++ {
		select {
		case <-stop:
			end()
			return <-ran
		default:
		}
		var index uint64
		moved := false
		err := s.Update(ctx, func(tx gate.Tx) error {
			r, err := tx.Plan("shared")
			if err != nil {
				return err
			}
			r.Intent++
			if err := tx.UpdatePlan(r); err != nil {
				return err
			}
			moved = true
			rec := storetest.Record(i)
			rec.Actor = name
			index, err = tx.Append(rec)
			return err
		})
		if err != nil && !errors.Is(err, gate.ErrStoreConflict) {
			return err
		}
		if err == nil && moved {
			fmt.Printf("%d\n", index)
		}
		s.Observe(gate.Record{Kind: "read", Operation: "list", Actor: name})
	}
}

func TestManyProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("runs for seconds")
	}
	manyProcesses(t, sqliteFile(t)) // TestPostgreSQL has the other
}

func manyProcesses(t *testing.T, url string) {
	ctx := context.Background()
	s := storetest.Open(t, url)
	p := storetest.Plan("shared", time.Now())
	p.Intent = 0
	if err := s.Update(ctx, func(tx gate.Tx) error { return tx.InsertPlan(p) }); err != nil {
		t.Fatal(err)
	}
	type process struct {
		cmd  *exec.Cmd
		in   interface{ Close() error }
		told chan []string
		went chan struct{} // closed when it has appended ten records
		name string
	}
	start := func(name string) *process {
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), "STORE_TEST_WORKER="+url, "STORE_TEST_NAME="+name)
		c.Stderr = os.Stderr
		in, err := c.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		told, went := make(chan []string, 1), make(chan struct{})
		go func() {
			var lines []string
			for sc := bufio.NewScanner(out); sc.Scan(); {
				if lines = append(lines, sc.Text()); len(lines) == 10 {
					close(went)
				}
			}
			told <- lines
		}()
		return &process{c, in, told, went, name}
	}
	var all []*process
	for i := range 4 {
		all = append(all, start(fmt.Sprintf("worker-%d", i)))
	}
	for _, p := range all {
		select {
		case <-p.went:
		case <-time.After(30 * time.Second):
			t.Fatalf("%s has not appended ten records within 30 s", p.name)
		}
	}
	all[0].cmd.Process.Signal(syscall.SIGKILL)
	time.Sleep(500 * time.Millisecond)
	for _, p := range all[1:] {
		p.in.Close()
	}
	durable := map[string]string{} // index → by whom
	total := 0
	for i, p := range all {
		lines := <-p.told
		if err := p.cmd.Wait(); (err != nil) != (i == 0) {
			t.Errorf("%s: %v", p.name, err)
		}
		for _, l := range lines {
			if by, twice := durable[l]; twice {
				t.Errorf("record %s was told to %s and %s", l, by, p.name)
			}
			durable[l] = p.name
			total++
		}
	}
	h, err := s.Health(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d appends were told durable, the write tree has %d, the read tree %d", total, h.Size, h.Reads)
	// The killed process may have committed one more than it could tell.
	if total == 0 || h.Size < int64(total) || h.Size > int64(total)+1 {
		t.Errorf("%d appends were told durable, the ledger has %d", total, h.Size)
	}
	var got *gate.PlanRecord
	if err := s.View(ctx, func(tx gate.Tx) (err error) { got, err = tx.Plan("shared"); return err }); err != nil {
		t.Fatal(err)
	}
	if int64(got.Intent) != h.Size || got.Version != h.Size+1 {
		t.Errorf("the plan was moved %d times to version %d, with %d records", got.Intent, got.Version, h.Size)
	}
	r, err := s.Verify(ctx)
	if err != nil || !r.OK {
		t.Errorf("verify: %+v, %v", r.Broken, err)
	}
	// The next start records that reads of the killed process may be missing.
	run, end := context.WithCancel(ctx)
	ran := make(chan error, 1)
	go func() { ran <- s.Run(run) }()
	time.Sleep(300 * time.Millisecond)
	end()
	if err := <-ran; err != nil {
		t.Fatal(err)
	}
	page, err := s.Search(ctx, storetest.Gaps())
	if err != nil || len(page.Records) != 1 {
		t.Errorf("%d gaps recorded, want 1: %v", len(page.Records), err)
	}
}

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
