//go:build unix

package seal

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string, mode os.FileMode) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(p, mode); err != nil {
			t.Fatal(err)
		}
		return p
	}
	good := file("good", "s3cret value\n", 0o600)
	link := filepath.Join(dir, "link")
	if err := os.Symlink(good, link); err != nil {
		t.Fatal(err)
	}
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, path, want, err string
		is                    error
	}{
		{"plain", good, "s3cret value", "", nil},
		{"read only", file("ro", "x", 0o400), "x", "", nil},
		{"crlf", file("crlf", "x\r\n", 0o600), "x", "", nil},
		{"inner newlines stay", file("nl", "a\nb\n\n", 0o600), "a\nb\n", "", nil},
		{"group may read", file("group", "x", 0o640), "", "chmod 600", ErrExposed},
		{"others may write", file("other", "x", 0o602), "", "chmod 600", ErrExposed},
		{"link", link, "", "symbolic link", nil},
		{"dangling link", func() string { p := filepath.Join(dir, "dangling"); os.Symlink("/nowhere", p); return p }(), "", "symbolic link", nil},
		{"pipe", pipe, "", "not a regular file", nil},
		{"directory", dir, "", "not a regular file", nil},
		{"empty", file("empty", "", 0o600), "", "empty", ErrEmpty},
		{"blank", file("blank", " \n", 0o600), "", "empty", ErrEmpty},
		{"too long", file("long", strings.Repeat("x", MaxFile+1), 0o600), "", "longer than", nil},
		{"missing", filepath.Join(dir, "missing"), "", "no such file", fs.ErrNotExist},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := Open(tt.path)
			if tt.err == "" {
				if err != nil || s.Reveal() != tt.want {
					t.Errorf("got %q, %v", s.Reveal(), err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.err) || !strings.Contains(err.Error(), tt.path) || tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("got %v", err)
			}
		})
	}
	t.Run("another's file", func(t *testing.T) {
		if os.Geteuid() != 0 {
			t.Skip("only root can give a file away")
		}
		p := file("theirs", "x", 0o600)
		if err := os.Chown(p, 12345, 12345); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(p); !errors.Is(err, ErrExposed) || !strings.Contains(err.Error(), "12345") {
			t.Errorf("got %v", err)
		}
	})
}
