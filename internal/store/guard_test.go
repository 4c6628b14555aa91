//go:build unix

package store_test

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"castellan/internal/gate"
	"castellan/internal/ledger"
	"castellan/internal/store"
	"castellan/internal/store/storetest"
)

func tryOpen(c store.Config) error {
	if c.Signer == nil {
		c.Signer = storetest.Key()
	}
	s, err := store.Open(context.Background(), c)
	if err != nil {
		return err
	}
	return s.Close()
}

func TestFileGuard(t *testing.T) {
	fresh := func() string {
		path := sqliteFile(t)
		if err := tryOpen(store.Config{URL: path}); err != nil {
			t.Fatal(err)
		}
		return path
	}
	path := fresh()
	for name, want := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700} {
		if i, err := os.Stat(name); err != nil || i.Mode().Perm() != want {
			t.Errorf("%s has mode %v, %v", name, i.Mode(), err)
		}
	}
	odd := filepath.Join(filepath.Dir(path), "a b?c#d%e&mode=ro.db")
	if err := tryOpen(store.Config{URL: odd}); err != nil {
		t.Errorf("a path with signs in it: %v", err)
	}
	if _, err := os.Stat(odd); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		name string
		do   func(path string) string // returns what to open
		want string
	}{
		{"file that others may read", func(p string) string { os.Chmod(p, 0o640); return p }, "chmod 600"},
		{"folder that others may enter", func(p string) string { os.Chmod(filepath.Dir(p), 0o750); return p }, "chmod 700"},
		{"folder for everybody", func(p string) string { os.Chmod(filepath.Dir(p), 0o777|os.ModeSticky); return p }, "a folder of its own"},
		{"symbolic link", func(p string) string {
			l := filepath.Join(filepath.Dir(p), "link.db")
			os.Symlink(p, l)
			return l
		}, "symbolic link"},
		{"link in place of the write-ahead log", func(p string) string { os.Symlink("/dev/null", p+"-wal"); return p }, "symbolic link"},
		{"a folder in place of the file", func(p string) string { return filepath.Dir(p) }, ""},
		{"no name", func(string) string { return " " }, "no address is named"},
		{"a file that is no database", func(p string) string {
			q := filepath.Join(filepath.Dir(p), "text.db")
			os.WriteFile(q, []byte(strings.Repeat("this is no database ", 100)), 0o600)
			return q
		}, "not a database"},
		{"an address that cannot be read", func(string) string { return "postgres://user:secret@[::1" }, "postgres://user@host"},
	} {
		err := tryOpen(store.Config{URL: c.do(fresh())})
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestMigrations(t *testing.T) {
	path := sqliteFile(t)
	// Several processes meet an empty file; in one process it is the same race.
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			if err := tryOpen(store.Config{URL: path}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var n int
	if err := db.QueryRow("SELECT count(*) FROM marks WHERE name = 'store/id'").Scan(&n); err != nil || n != 1 {
		t.Errorf("%d store ids, %v", n, err)
	}
	if _, err := db.Exec("PRAGMA user_version = 999"); err != nil {
		t.Fatal(err)
	}
	if err := tryOpen(store.Config{URL: path}); err == nil || !strings.Contains(err.Error(), "version 999") {
		t.Errorf("a newer schema: %v", err)
	}
}

func TestPinnedHead(t *testing.T) {
	ctx := context.Background()
	path := sqliteFile(t)
	appendTo := func(s *store.Store, n int) string {
		t.Helper()
		for i := range n {
			if err := s.Update(ctx, func(tx gate.Tx) error { _, err := tx.Append(storetest.Record(i)); return err }); err != nil {
				t.Fatal(err)
			}
		}
		h, err := s.Health(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return h.Head
	}
	s := storetest.Open(t, path)
	five := appendTo(s, 5)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	old, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s = storetest.OpenWith(t, store.Config{URL: path, Head: five})
	if err := s.Ready(ctx); err != nil {
		t.Errorf("the head itself: %v", err)
	}
	nine := appendTo(s, 4)
	for _, head := range []string{five, nine} {
		if err := s.CheckHead(ctx, head); err != nil {
			t.Errorf("a head it contains: %v", err)
		}
	}
	lines := strings.Split(five, "\n\n")[0] // unsigned, and without the last line's end
	for _, head := range []string{five, lines, strings.ReplaceAll(nine, "\n", "\r\n"), " " + lines + "\n\n"} {
		if r, err := s.Verify(ctx, head); err != nil || !r.OK {
			t.Errorf("verify with head %q: %+v, %v", head, r.Broken, err)
		}
	}
	bent := strings.Replace(lines, "5", "4", 1)
	if r, err := s.Verify(ctx, bent); err != nil || r.OK || r.Broken.Fault != ledger.Replacement {
		t.Errorf("verify with another head: %+v, %v", r.Broken, err)
	}
	if err := s.Ready(ctx); err != nil {
		t.Errorf("ready after having been asked about another head: %v", err)
	}
	s.Close()
	refused := func(path, head, want string, fault ledger.Fault) {
		t.Helper()
		s := storetest.OpenWith(t, store.Config{URL: path, Head: head})
		if err := s.Ready(ctx); !errors.Is(err, gate.ErrReadOnlyStore) || !strings.Contains(err.Error(), want) {
			t.Errorf("ready: %v", err)
		}
		if err := s.Update(ctx, func(tx gate.Tx) error { _, err := tx.Append(storetest.Record(1)); return err }); !errors.Is(err, gate.ErrReadOnlyStore) {
			t.Errorf("update: %v", err)
		}
		if h, err := s.Health(ctx); err != nil || !strings.Contains(h.Trouble, want) {
			t.Errorf("health: %+v, %v", h, err)
		}
		if r, err := s.Verify(ctx); err != nil || r.OK || r.Broken.Fault != fault {
			t.Errorf("verify: %+v, %v", r.Broken, err)
		}
	}
	rewound := filepath.Join(filepath.Dir(path), "old.db")
	if err := os.WriteFile(rewound, old, 0o600); err != nil {
		t.Fatal(err)
	}
	refused(rewound, nine, "put back to an older state", ledger.Truncation)
	other := sqliteFile(t)
	o := storetest.Open(t, other)
	appendTo(o, 9)
	o.Close()
	refused(other, nine, "replaced", ledger.Replacement)
	// The same store, grown differently after having been put back.
	f := storetest.Open(t, rewound)
	if err := f.Update(ctx, func(tx gate.Tx) error {
		for range 4 {
			if _, err := tx.Append(gate.Record{Kind: "step", Operation: "other"}); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	f.Close()
	refused(rewound, nine, "rewritten", ledger.Replacement)
	f = storetest.Open(t, rewound)
	appendTo(f, 3)
	f.Close()
	refused(rewound, nine, "rewritten", ledger.Replacement)
	if err := tryOpen(store.Config{URL: path, Head: "nonsense"}); err == nil || !strings.Contains(err.Error(), "pinned head") {
		t.Errorf("a head that cannot be read: %v", err)
	}
}

func TestTampering(t *testing.T) {
	ctx := context.Background()
	path := sqliteFile(t)
	s := storetest.Open(t, path)
	for i := range 20 {
		if err := s.Update(ctx, func(tx gate.Tx) error { _, err := tx.Append(storetest.Record(i)); return err }); err != nil {
			t.Fatal(err)
		}
	}
	db, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec("UPDATE write_records SET header = CAST(replace(CAST(header AS TEXT), '\"ok\"', '\"no\"') AS BLOB) WHERE idx = 7"); err != nil {
		t.Fatal(err)
	}
	r, err := s.Verify(ctx)
	if err != nil || r.OK || r.Broken.Index != 7 || r.Broken.Fault != ledger.Edit {
		t.Errorf("an edited record: %+v, %v", r.Broken, err)
	}
	fresh := storetest.Open(t, path)
	if err := fresh.Ready(ctx); !errors.Is(err, gate.ErrReadOnlyStore) || !strings.Contains(err.Error(), "record 7") {
		t.Errorf("ready with an edited record among the newest: %v", err)
	}
	if _, err := db.Exec("UPDATE heads SET size = size - 1 WHERE tree = 'write'"); err != nil {
		t.Fatal(err)
	}
	if err := s.Update(ctx, func(tx gate.Tx) error { _, err := tx.Append(storetest.Record(1)); return err }); !errors.Is(err, gate.ErrReadOnlyStore) || !errors.Is(err, ledger.ErrTampered) {
		t.Errorf("appending to a head that nobody signed: %v", err)
	}
	if err := s.Ready(ctx); err == nil {
		t.Error("ready with a head that nobody signed")
	}
}

func TestClockGoesBack(t *testing.T) {
	ctx := context.Background()
	now := time.Date(2026, 5, 5, 12, 0, 0, 0, time.UTC)
	c := store.Config{URL: sqliteFile(t), Clock: func() time.Time { return now }}
	s := storetest.OpenWith(t, c)
	add := func() error {
		return s.Update(ctx, func(tx gate.Tx) error { _, err := tx.Append(storetest.Record(1)); return err })
	}
	if err := add(); err != nil {
		t.Fatal(err)
	}
	now = now.Add(-time.Minute)
	if err := add(); err != nil {
		t.Errorf("a minute back: %v", err)
	}
	now = now.Add(-time.Hour)
	if err := add(); !errors.Is(err, gate.ErrReadOnlyStore) || !strings.Contains(err.Error(), "clock") {
		t.Errorf("an hour back: %v", err)
	}
	if err := s.View(ctx, func(tx gate.Tx) error { _, err := tx.Get("x"); return err }); err != nil {
		t.Errorf("reading: %v", err)
	}
	if err := s.AcceptClock(ctx, gate.Principal{Person: "ann"}); err != nil {
		t.Fatal(err)
	}
	if err := add(); err != nil {
		t.Errorf("after accepting the time: %v", err)
	}
	verified, err := s.Verify(ctx)
	if err != nil || !verified.OK {
		t.Errorf("verify: %+v, %v", verified.Broken, err)
	}
}

// TestShippedMigrations keeps what has shipped from being edited: a change of the schema is a new file, and a new line.
func TestShippedMigrations(t *testing.T) {
	shipped := map[string]string{
		"postgres/0001_start.sql":       "a1223b5c2365a1fedd895c3502b362b69e6fc981cba54b5c7e650e5adefc66dc",
		"postgres/0002_docs.sql":        "5592de4f3c0de002e0827f15db9a8d2b471a13d1bc284b35c19f7cdfaf47ec36",
		"postgres/0003_credentials.sql": "366a55502b83bcb023a3e0437762f39da12b6f5587329d31a2db026e018ae30c",
		"sqlite/0001_start.sql":         "0f7715381c59a4ce4190103ff7f1b9871cf0e32925fe51afb7f1bab92b7361ac",
		"sqlite/0002_docs.sql":          "f737cb595fcb968fd54fdd791e8de9920f129c4ad4ceb2f8474b4973b5557d5e",
		"sqlite/0003_credentials.sql":   "366a55502b83bcb023a3e0437762f39da12b6f5587329d31a2db026e018ae30c",
	}
	files, err := filepath.Glob("schema/*/*.sql")
	if err != nil || len(files) != len(shipped) {
		t.Errorf("%d migrations, %d listed here, %v", len(files), len(shipped), err)
	}
	for name, want := range shipped {
		text, err := os.ReadFile("schema/" + name)
		if got := fmt.Sprintf("%x", sha256.Sum256(text)); err != nil || got != want {
			t.Errorf("%s has the digest %s, it shipped with %s, %v", name, got, want, err)
		}
	}
}
