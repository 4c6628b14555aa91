package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"castellan/internal/gate"
)

func TestConsent(t *testing.T) {
	dir := t.TempDir()
	folder := filepath.Join(dir, consentFolder)
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	take := consent(dir, func() time.Time { return now }, slog.New(slog.DiscardHandler))
	p := &gate.Plan{ID: "p-abc", Digest: "d1"}
	put := func(text string, mode os.FileMode, at time.Time) {
		t.Helper()
		path := filepath.Join(folder, p.ID)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	if take(p) {
		t.Error("consent without a file")
	}
	for name, f := range map[string]func(){
		"another digest": func() { put("d2\n", 0o600, now) },
		"open to others": func() { put("d1\n", 0o644, now) },
		"too old":        func() { put("d1\n", 0o600, now.Add(-consentLife-time.Second)) },
		"of the future":  func() { put("d1\n", 0o600, now.Add(time.Hour)) },
		"empty":          func() { put("", 0o600, now) },
	} {
		if f(); take(p) {
			t.Errorf("%s was taken", name)
		}
	}
	put("d1\n", 0o600, now.Add(-time.Minute))
	if !take(p) || take(p) {
		t.Error("a good file is taken exactly once")
	}
	if take(&gate.Plan{ID: "../p-abc", Digest: "d1"}) {
		t.Error("a plan's id led out of the folder")
	}
}
