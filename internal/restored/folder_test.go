package restored

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"castellan/internal/gate"
)

func folder(t *testing.T, limit int64) (*Folder, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "restored")
	f, err := New(Config{Dir: dir, Limit: limit})
	if err != nil {
		t.Fatal(err)
	}
	return f, dir
}

func TestTakenName(t *testing.T) {
	f, dir := folder(t, 100)
	if _, err := f.Save("p-1", gate.Download{Name: "a"}, -1, strings.NewReader("first")); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Save("p-1", gate.Download{Name: "a"}, -1, strings.NewReader("second")); err == nil {
		t.Error("a file was replaced")
	}
	if b, err := os.ReadFile(filepath.Join(dir, "p-1-a")); err != nil || string(b) != "first" {
		t.Errorf("%q %v", b, err)
	}
	outside := filepath.Join(filepath.Dir(dir), "outside")
	for _, to := range []string{outside, filepath.Join(dir, "p-1-a")} {
		link := filepath.Join(dir, "p-2-a")
		if err := os.Symlink(to, link); err != nil {
			t.Skip("no links here")
		}
		if _, err := f.Save("p-2", gate.Download{Name: "a"}, -1, strings.NewReader("second")); err == nil {
			t.Error("a link was followed")
		}
		if _, err := os.Lstat(link); err != nil {
			t.Error("the link is gone")
		}
		if err := os.Remove(link); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Lstat(outside); err == nil {
		t.Error("something was made outside")
	}
}

func TestFolderIsALink(t *testing.T) {
	f, dir := folder(t, 100)
	if err := os.Symlink(t.TempDir(), dir); err != nil {
		t.Skip("no links here")
	}
	if _, err := f.Save("p-1", gate.Download{Name: "a"}, -1, strings.NewReader("x")); err == nil {
		t.Error("a folder that is a link was used")
	}
}

func TestBounds(t *testing.T) {
	size := int64(4)
	for name, c := range map[string]struct {
		d      gate.Download
		length int64
		text   string
		want   string
	}{
		"full":         {gate.Download{}, -1, "0123456789", ""},
		"too large":    {gate.Download{}, -1, "0123456789a", "more than 10"},
		"told":         {gate.Download{}, 11, "0123456789a", "11 bytes"},
		"short":        {gate.Download{Size: &size}, -1, "012", "3 bytes came"},
		"long":         {gate.Download{Size: &size}, -1, "01234", "5 bytes came"},
		"no zip":       {gate.Download{Zip: true}, -1, "PK", "no end"},
		"fits exactly": {gate.Download{Size: &size}, -1, "0123", ""},
	} {
		f, dir := folder(t, 10)
		_, err := f.Save("p-1", c.d, c.length, strings.NewReader(c.text))
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if left, _ := os.ReadDir(dir); err != nil && len(left) > 0 {
			t.Errorf("%s: left behind", name)
		}
	}
}

func FuzzLocalName(f *testing.F) {
	for _, s := range []string{"../../etc/passwd", "/", "..", "", "C:\\x", "a\x00b", "\xff", "…"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		name := localName("p-1", gate.Download{Name: s})
		if filepath.Base(name) != name || len(name) > 100 || !strings.HasPrefix(name, "p-1-") || strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") != "" || strings.HasSuffix(name, ".") {
			t.Errorf("%q becomes %q", s, name)
		}
	})
}
