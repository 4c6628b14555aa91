//go:build unix

package notify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"castellan/internal/gate"
	"castellan/internal/store"
	"castellan/internal/store/storetest"
)

// TestMain lets the test binary be one of several processes on one store.
func TestMain(m *testing.M) {
	if url := os.Getenv("NOTIFY_TEST_STORE"); url != "" {
		if err := process(url, os.Getenv("NOTIFY_TEST_HOOK")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// proposed lists the plans of a store that wait.
type proposed struct{ *store.Store }

func (p proposed) Waiting(ctx context.Context) (out []*gate.PlanRecord, err error) {
	err = p.View(ctx, func(t gate.Tx) error {
		out, _, err = t.ListPlans(gate.PlanFilter{States: []gate.PlanState{gate.PlanProposed}, Limit: 200})
		return err
	})
	return out, err
}

// process tells of the store's plans until its standard input ends.
func process(url, hook string) error {
	s, err := store.Open(context.Background(), store.Config{URL: url, Signer: storetest.Key()})
	if err != nil {
		return err
	}
	defer s.Close()
	n, err := New(Config{Settings: Settings{Window: "2s", Webhook: Webhook{URL: hook}}, Source: proposed{s}, Store: s})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	return n.Run(ctx)
}

// TestProcessesOnOneStore: three processes, one of them killed in between, tell of each plan once.
func TestProcessesOnOneStore(t *testing.T) {
	if testing.Short() {
		t.Skip("runs for seconds")
	}
	var mu sync.Mutex
	told, messages := map[string]int{}, 0
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var m message
		err := json.NewDecoder(r.Body).Decode(&m)
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			t.Error(err)
		}
		messages++
		for _, w := range m.Plans {
			told[w.ID]++
		}
	}))
	defer srv.Close()
	url := filepath.Join(t.TempDir(), "own", "state.db")
	s := storetest.Open(t, url)
	propose := func(from, to int) {
		t.Helper()
		err := s.Update(context.Background(), func(tx gate.Tx) error {
			var errs []error
			for i := from; i < to; i++ {
				p := storetest.Plan(fmt.Sprintf("p-%02d", i), time.Now())
				p.Plan.Decision = gate.Decision{Verdict: gate.VerdictNeeds, Rung: gate.RungPerson}
				errs = append(errs, tx.InsertPlan(p))
			}
			return errors.Join(errs...)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	var all []*exec.Cmd
	var ins []io.Closer
	for range 3 {
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), "NOTIFY_TEST_STORE="+url, "NOTIFY_TEST_HOOK="+srv.URL)
		c.Stderr = os.Stderr
		in, err := c.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		all, ins = append(all, c), append(ins, in)
	}
	await := func(n int) {
		t.Helper()
		for end := time.Now().Add(60 * time.Second); ; time.Sleep(50 * time.Millisecond) {
			mu.Lock()
			have := len(told)
			mu.Unlock()
			if have == n {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%d of %d plans were told within a minute", have, n)
			}
		}
	}
	propose(0, 10)
	await(10)
	noted(t, s, 10) // who is killed between telling and noting is told again by another: better twice than never
	_ = all[0].Process.Kill()
	_ = all[0].Wait()
	propose(10, 20)
	await(20)
	time.Sleep(5 * time.Second) // time enough to tell again
	for i := range ins[1:] {
		_ = ins[i+1].Close()
		if err := all[i+1].Wait(); err != nil {
			t.Error(err)
		}
	}
	for id, n := range told {
		if n != 1 {
			t.Errorf("plan %s was told %d times", id, n)
		}
	}
	if messages > 4 {
		t.Errorf("%d messages for two bursts", messages)
	}
}

// noted waits until the first n plans are marked as told.
func noted(t *testing.T, s gate.Store, n int) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		sent := 0
		err := s.View(context.Background(), func(tx gate.Tx) error {
			sent = 0
			for i := range n {
				_, m, err := readMark(tx, fmt.Sprintf("plan/p-%02d", i))
				if err != nil {
					return err
				}
				if m.Sent {
					sent++
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if sent == n {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d of %d plans were noted as told", sent, n)
		}
	}
}
