//go:build unix

package store_test

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"testing"

	"castellan/internal/gate"
	"castellan/internal/ledger"
	"castellan/internal/store"
	"castellan/internal/store/storetest"
)

// shelf is an anchor that holds its heads in memory.
type shelf struct {
	mu    sync.Mutex
	heads map[string]string
	err   error
	looks int
}

func (s *shelf) Heads(context.Context) (map[string]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looks++
	out := map[string]string{}
	for k, v := range s.heads {
		out[k] = v
	}
	return out, s.err
}

func (s *shelf) Put(_ context.Context, note string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	s.heads = map[string]string{"shelf": note}
	return nil
}

func (s *shelf) Replace(ctx context.Context, note string) error { return s.Put(ctx, note) }

func (s *shelf) set(note string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heads, s.err = map[string]string{}, err
	if note != "" {
		s.heads["shelf"] = note
	}
}

func appendRecords(t testing.TB, s *store.Store, n int) error {
	t.Helper()
	return s.Update(context.Background(), func(tx gate.Tx) error {
		for i := range n {
			if _, err := tx.Append(storetest.Record(i)); err != nil {
				return err
			}
		}
		return nil
	})
}

func headOf(t testing.TB, s *store.Store) string {
	t.Helper()
	h, err := s.Head(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func copyFile(t testing.TB, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}

// putBack closes the store, keeps a copy of its file, lets it go on, and brings the copy back.
func putBack(t *testing.T, path string, anchors store.Anchors, meanwhile func(*store.Store)) {
	t.Helper()
	for _, end := range []string{"-wal", "-shm"} {
		os.Remove(path + end)
	}
	copyFile(t, path, path+".old")
	s, err := store.Open(context.Background(), store.Config{URL: path, Signer: storetest.Key(), Anchors: anchors})
	if err != nil {
		t.Fatal(err)
	}
	meanwhile(s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, end := range []string{"-wal", "-shm"} {
		os.Remove(path + end)
	}
	copyFile(t, path+".old", path)
}

func TestAnchors(t *testing.T) {
	ctx := context.Background()
	path := sqliteFile(t)
	var a shelf
	first := func() {
		s, err := store.Open(ctx, store.Config{URL: path, Signer: storetest.Key(), Anchors: &a})
		if err != nil {
			t.Fatal(err)
		}
		if err := appendRecords(t, s, 5); err != nil {
			t.Fatal(err)
		}
		a.Put(ctx, headOf(t, s))
		if err := errors.Join(appendRecords(t, s, 2), s.Close()); err != nil {
			t.Fatal(err)
		}
	}
	first()
	// The file as it was, brought back after more was recorded and anchored.
	putBack(t, path, &a, func(s *store.Store) {
		if err := appendRecords(t, s, 3); err != nil {
			t.Fatal(err)
		}
		a.Put(ctx, headOf(t, s))
	})
	s := storetest.OpenWith(t, store.Config{URL: path, Anchors: &a})
	if err := s.Ready(ctx); err != nil {
		t.Errorf("reads wait for no anchor: %v", err)
	}
	err := appendRecords(t, s, 1)
	if !errors.Is(err, gate.ErrReadOnlyStore) || !errors.Is(err, ledger.ErrRewound) || !strings.Contains(err.Error(), "put back to an older state") || !strings.Contains(err.Error(), "accept-rewind") {
		t.Fatalf("a write on a store that is older than its anchor: %v", err)
	}
	if err := s.Ready(ctx); !errors.Is(err, gate.ErrReadOnlyStore) {
		t.Errorf("ready says %v", err)
	}
	if h, err := s.Health(ctx); err != nil || !strings.Contains(h.Trouble, "put back") || h.Size != 7 {
		t.Errorf("health %+v, %v", h, err)
	}
	// A person accepts it; that is a record, and the anchor has the new head.
	lost, err := s.AcceptRewind(ctx, gate.Principal{Person: "ann", WayIn: "cli"})
	if err != nil || len(lost) != 1 || lost[0] != "shelf" {
		t.Fatalf("%v %v", lost, err)
	}
	if a.heads["shelf"] != headOf(t, s) {
		t.Error("the anchor has not the accepted head")
	}
	if err := errors.Join(appendRecords(t, s, 1), s.Ready(ctx)); err != nil {
		t.Error(err)
	}
	page, err := s.Search(ctx, ledger.Query{Kind: "settings", Op: "accept_rewind"})
	if err != nil || len(page.Records) != 1 || page.Records[0].Actor != "|ann" || !strings.Contains(string(page.Records[0].Data), `"lost_size":"10"`) {
		t.Errorf("%+v, %v", page.Records, err)
	}
	if _, err := s.AcceptRewind(ctx, gate.Principal{Person: "ann"}); err == nil || !strings.Contains(err.Error(), "nothing to accept") {
		t.Errorf("accepting again: %v", err)
	}
}

func TestAnchorsOfOthers(t *testing.T) {
	ctx := context.Background()
	var a shelf
	s := storetest.OpenWith(t, store.Config{URL: sqliteFile(t), Anchors: &a})
	if err := appendRecords(t, s, 5); err != nil {
		t.Fatal(err)
	}
	mine := headOf(t, s)
	other := storetest.Open(t, sqliteFile(t))
	if err := appendRecords(t, other, 3); err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(mine, "\n")
	lines[2] = strings.SplitAfter(headOf(t, other), "\n")[2]
	for _, c := range []struct{ name, note, want string }{
		{"another store", headOf(t, other), "replaced"},
		{"other records", strings.Join(lines, ""), "rewritten"},
		{"no head", "hello", "look at anchor shelf"},
	} {
		a.set(c.note, nil)
		if err := appendRecords(t, s, 1); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	a.set(mine, nil)
	if err := appendRecords(t, s, 1); err != nil {
		t.Errorf("after all is well again: %v", err)
	}
	a.set(mine, errors.New("anchor shelf: it is required and behind"))
	if err := appendRecords(t, s, 1); !errors.Is(err, gate.ErrReadOnlyStore) || !strings.Contains(err.Error(), "behind") {
		t.Errorf("a required anchor that is behind: %v", err)
	}
	a.set(mine, nil)
	if err := errors.Join(appendRecords(t, s, 1), s.Ready(ctx)); err != nil {
		t.Error(err)
	}
	none := storetest.Open(t, sqliteFile(t))
	if _, err := none.AcceptRewind(ctx, gate.Principal{}); err == nil {
		t.Error("a rewind was accepted without an anchor")
	}
}

// TestTheRestoreIsRefusedUntilAccepted: a restore brings an older state; the anchor says so until a person accepts it.
func TestTheRestoreIsRefusedUntilAccepted(t *testing.T) {
	ctx := context.Background()
	by := gate.Principal{Person: "ann", WayIn: "cli"}
	var a shelf
	s := storetest.OpenWith(t, store.Config{URL: sqliteFile(t), Anchors: &a})
	if err := appendRecords(t, s, 5); err != nil {
		t.Fatal(err)
	}
	var file strings.Builder
	if _, err := s.Backup(ctx, &file, by); err != nil {
		t.Fatal(err)
	}
	if err := appendRecords(t, s, 5); err != nil {
		t.Fatal(err)
	}
	a.Put(ctx, headOf(t, s))
	url := sqliteFile(t)
	st, err := store.Restore(ctx, store.Config{URL: url, Signer: storetest.Key(), Anchors: &a}, strings.NewReader(file.String()), by)
	if err != nil || !st.Recorded {
		t.Fatalf("%+v %v", st, err)
	}
	r := storetest.OpenWith(t, store.Config{URL: url, Anchors: &a})
	if page, err := r.Search(ctx, ledger.Query{Op: "state_restore"}); err != nil || len(page.Records) != 1 {
		t.Errorf("the restore is not recorded: %v", err)
	}
	if err := appendRecords(t, r, 1); !errors.Is(err, ledger.ErrRewound) {
		t.Errorf("a write after the restore: %v", err)
	}
	if _, err := r.AcceptRewind(ctx, by); err != nil {
		t.Error(err)
	}
	if err := appendRecords(t, r, 1); err != nil {
		t.Error(err)
	}
	// The store that was left behind now lacks what the anchor holds.
	if err := appendRecords(t, s, 1); !errors.Is(err, ledger.ErrRewound) {
		t.Errorf("a write on the store that was replaced: %v", err)
	}
}
