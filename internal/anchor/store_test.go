//go:build unix

package anchor_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"castellan/internal/anchor"
	"castellan/internal/gate"
	"castellan/internal/ledger"
	"castellan/internal/store"
	"castellan/internal/store/storetest"
)

// late is a store that comes after its anchors.
type late struct{ *store.Store }

// process is what one castellan has: a store with anchors that follow it.
type process struct {
	t     *testing.T
	store *store.Store
	stop  func()
}

func start(t *testing.T, url string, clock func() time.Time, s ...anchor.Settings) *process {
	t.Helper()
	l := &late{}
	a := open(t, anchor.Config{Settings: s, Source: l, Clock: clock})
	var err error
	if l.Store, err = store.Open(background, store.Config{URL: url, Signer: storetest.Key(), Anchors: a}); err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(background)
	done := make(chan error, 2)
	go func() { done <- a.Run(ctx) }()
	go func() { done <- l.Run(ctx) }()
	ended := false
	p := &process{t, l.Store, func() {
		if ended {
			return
		}
		ended = true
		end()
		if err := errors.Join(<-done, <-done, l.Close()); err != nil {
			t.Error(err)
		}
	}}
	t.Cleanup(p.stop)
	return p
}

func (p *process) write() error {
	return p.store.Update(background, func(tx gate.Tx) error { _, err := tx.Append(storetest.Record(1)); return err })
}

func duplicate(t *testing.T, from, to string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, end := range []string{"", "-wal", "-shm"} {
		os.Remove(to + end)
		in, err := os.Open(from + end)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		out, err := os.OpenFile(to+end, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(out, in); err != nil {
			t.Fatal(err)
		}
		in.Close()
		out.Close()
	}
}

// TestARewoundStoreIsRefused plays it with a real store and a real server: put back while nobody runs, and, as when a
// machine is put back with its memory, under a process that goes on.
func TestARewoundStoreIsRefused(t *testing.T) {
	w := &witness{}
	srv := httptest.NewServer(w)
	defer srv.Close()
	s := anchor.Settings{Name: "far", Kind: "http", URL: srv.URL, Every: "1s"}
	dir := t.TempDir()
	url, kept := filepath.Join(dir, "own", "state.db"), filepath.Join(dir, "kept", "state.db")
	size := func() int64 {
		w.mu.Lock()
		defer w.mu.Unlock()
		c, err := ledger.ParseCheckpoint(w.head)
		if err != nil {
			return 0
		}
		return c.Size
	}
	p := start(t, url, nil, s)
	for range 3 {
		if err := p.write(); err != nil {
			t.Fatal(err)
		}
	}
	await(t, "the anchor", func() bool { return size() == 3 })
	p.stop()
	duplicate(t, url, kept)
	p = start(t, url, nil, s)
	if err := p.write(); err != nil {
		t.Fatal(err)
	}
	p.stop() // a clean stop brings the head there
	if size() != 4 {
		t.Fatalf("the anchor has %d records", size())
	}

	// At the start.
	duplicate(t, kept, url)
	p = start(t, url, nil, s)
	err := p.write()
	if !errors.Is(err, gate.ErrReadOnlyStore) || !strings.Contains(err.Error(), "the ledger has 3 records and the head at anchor far 4") {
		t.Fatalf("at the start: %v", err)
	}
	time.Sleep(2500 * time.Millisecond) // time for the anchor to be put wrongly
	if size() != 4 {
		t.Fatal("the evidence was covered up")
	}
	p.stop()

	// Two that both go on from one state: the second is refused when it wants to write, though it was proven at its start.
	// A clock that goes faster spares the wait of two seconds.
	shift := time.Duration(0)
	fast := func() time.Time { shift += 5 * time.Second; return time.Now().Add(shift) }
	w.set("", 0)
	twin := filepath.Join(dir, "twin", "state.db")
	duplicate(t, kept, twin)
	second := start(t, twin, fast, s)
	if err := second.write(); err != nil {
		t.Fatal(err)
	}
	second.stop()
	duplicate(t, twin, url) // the machine as it was, with what it has anchored
	first := start(t, url, nil, s)
	for range 2 {
		if err := first.write(); err != nil {
			t.Fatal(err)
		}
	}
	await(t, "the anchor", func() bool { return size() == 6 })
	clone := start(t, twin, nil, s)
	if err := clone.write(); !errors.Is(err, ledger.ErrRewound) {
		t.Errorf("a copy beside the original: %v", err)
	}
	if err := first.write(); err != nil {
		t.Errorf("the original: %v", err)
	}

	// The anchor cannot be reached: writes go on unless it is required.
	first.stop()
	clone.stop()
	w.set(w.head, http.StatusBadGateway)
	p = start(t, url, nil, s)
	if err := p.write(); err != nil {
		t.Errorf("an anchor that is away: %v", err)
	}
	p.stop()
	s.Required = true
	p = start(t, url, nil, s)
	if err := p.write(); !errors.Is(err, gate.ErrReadOnlyStore) || !strings.Contains(err.Error(), "required") {
		t.Errorf("a required anchor that is away: %v", err)
	}
}
