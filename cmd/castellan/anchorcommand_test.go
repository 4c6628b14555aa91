//go:build unix

package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"castellan/internal/lab"
)

// TestAcceptRewind: a store that was put back is refused until a person at a terminal says how far back it is.
func TestAcceptRewind(t *testing.T) {
	s := newSite(t, lab.Config{}, `capabilities = ["snapshot"]`)
	heads := filepath.Join(t.TempDir(), "heads")
	s.write(t, s.text(t)+fmt.Sprintf("\n[[anchor]]\nname = \"shelf\"\nkind = \"file\"\npath = %q\n", heads))
	db := filepath.Join(s.dir, "state", "castellan.db")
	run := func(want int, args ...string) string {
		t.Helper()
		out, errs, code := castellan(t, s.env(), "", args...)
		if code != want {
			t.Fatalf("castellan %s: exit code %d\n%s%s", strings.Join(args, " "), code, out, errs)
		}
		return out + errs
	}
	run(0, "kill", "on")
	run(0, "audit", "anchors", "--put")
	for _, end := range []string{"", "-wal"} {
		if b, err := os.ReadFile(db + end); err == nil {
			if err := os.WriteFile(db+end+".old", b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	run(0, "kill", "off")
	run(0, "audit", "anchors", "--put")
	for _, end := range []string{"-wal", "-shm"} {
		_ = os.Remove(db + end)
	}
	for _, end := range []string{"", "-wal"} {
		if b, err := os.ReadFile(db + end + ".old"); err == nil {
			if err := os.WriteFile(db+end, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if text := run(1, "audit", "verify"); !strings.Contains(text, "BROKEN") {
		t.Errorf("verify says %s", text)
	}
	run(6, "kill", "off")
	before := read(t, heads)

	r := onTerminal(t, s.env(), "audit", "accept-rewind")
	r.shows("NOT a continuation")
	r.shows("go on with it:")
	r.types("yes")
	if code := r.ends(); code != 2 {
		t.Errorf("exit code %d after something else than the number", code)
	}
	if read(t, heads) != before {
		t.Error("the anchor was changed")
	}
	r = onTerminal(t, s.env(), "audit", "accept-rewind")
	r.shows("Type ")
	rest := r.all.String()[r.from:]
	for !strings.Contains(rest, " to go on") {
		r.shows(" ")
		rest = r.all.String()[strings.LastIndex(r.all.String(), "Type ")+5:]
	}
	number, _, _ := strings.Cut(rest, " ")
	r.types(number)
	r.shows("accepted at")
	if code := r.ends(); code != 0 {
		t.Errorf("exit code %d:\n%s", code, r.all)
	}
	run(0, "kill", "off")
	run(0, "audit", "verify")
	if text := run(0, "call", "audit_search", "--operation", "accept_rewind", "--json"); !strings.Contains(text, `"shelf"`) {
		t.Errorf("the record: %s", text)
	}
	r = onTerminal(t, s.env(), "audit", "accept-rewind")
	r.shows("nothing to accept")
	if code := r.ends(); code != 2 {
		t.Errorf("exit code %d", code)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
