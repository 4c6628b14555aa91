//go:build unix

package store_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
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
