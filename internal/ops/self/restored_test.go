package self

import (
	"archive/zip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"castellan/internal/gate"
	"castellan/internal/lab"
	"castellan/internal/ops/housetest"
	"castellan/internal/restored"
)

// marker is in every file that the backups hold; nothing that castellan says or records may hold it.
const marker = "what-the-backup-holds"

func openRestored(t *testing.T, token string, limit int64, files map[string]string) (*live, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "restored")
	folder, err := restored.New(restored.Config{Dir: dir, Limit: limit})
	if err != nil {
		t.Fatal(err)
	}
	return openHouse(t, housetest.Config{Site: "small", Token: token, Sink: folder, Lab: func(c *lab.Config) { c.BackupFiles = files }}), dir
}

// backupOf finds the newest backup of a guest on the backup server.
func (l *live) backupOf(guest string) string {
	l.t.Helper()
	out, err := l.do("list_backups", `{"guest":"`+guest+`","storage":"pbs1","fields":["volid"],"limit":1}`)
	if err != nil {
		l.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(out.Answer), `"volid":"`)
	volume, _, ok := strings.Cut(rest, `"`)
	if !ok {
		l.t.Fatalf("guest %s has no backup: %s", guest, out.Answer)
	}
	return volume
}

func left(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestRestoreFiles(t *testing.T) {
	hostile := map[string]string{
		"control": "/srv/in\x1b[31m\nside", "long": "/srv/" + strings.Repeat("x", 250), "up": "/srv/..-..-etc", "back": `/srv/..\..\evil`, "no text": "/srv/\xff\xfe", "option": "/srv/--force", "dots": "/srv/...",
	}
	files := map[string]string{"/srv/plain": marker, "/srv/large": strings.Repeat(marker, 4000), "/srv/empty": ""}
	for _, name := range hostile {
		files[name] = marker
	}
	l, dir := openRestored(t, "admin", 60_000, files)
	archive := l.backupOf("201")
	root := "/root.pxar.didx"
	ask := func(p string) string { return text(map[string]string{"archive": archive, "path": p}) }
	fetched := func(t *testing.T, p string) gate.Saved {
		t.Helper()
		out, err := l.run("restore_files", ask(p))
		if err != nil {
			t.Fatal(err)
		}
		if out.Status != gate.StatusDone || len(out.Saved) != 1 {
			t.Fatalf("%s", text(out))
		}
		if strings.Contains(text(out), marker) {
			t.Errorf("the answer tells what the file holds: %s", text(out))
		}
		return out.Saved[0].Saved
	}
	t.Run("file", func(t *testing.T) {
		got := fetched(t, root+"/srv/plain")
		b, err := os.ReadFile(got.Path)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(b)
		if string(b) != marker || got.Size != int64(len(b)) || got.SHA256 != hex.EncodeToString(sum[:]) || !got.Whole || filepath.Dir(got.Path) != dir {
			t.Errorf("%+v holds %q", got, b)
		}
		info, err := os.Stat(got.Path)
		if err != nil {
			t.Fatal(err)
		}
		at, err := os.Stat(dir)
		if err != nil {
			t.Fatal(err)
		}
		if runtime.GOOS != "windows" && (info.Mode().Perm() != 0o600 || at.Mode().Perm() != 0o700) {
			t.Errorf("modes %v and %v", info.Mode(), at.Mode())
		}
	})
	t.Run("empty", func(t *testing.T) {
		if got := fetched(t, root+"/srv/empty"); got.Size != 0 || !got.Whole {
			t.Errorf("%+v", got)
		}
	})
	t.Run("folder", func(t *testing.T) {
		got := fetched(t, root+"/etc")
		z, err := zip.OpenReader(got.Path)
		if err != nil {
			t.Fatal(err)
		}
		defer z.Close()
		if len(z.File) != 3 || !got.Whole || !strings.HasSuffix(got.Path, ".zip") {
			t.Errorf("%+v holds %d files", got, len(z.File))
		}
	})
	t.Run("by guest and time", func(t *testing.T) {
		_, when, _ := strings.Cut(archive, "201/")
		out, err := l.run("restore_files", text(map[string]string{"archive": "201@" + when, "path": root + "/srv/plain"}))
		if err != nil || out.Status != gate.StatusDone {
			t.Fatal(text(out), err)
		}
	})
	for what, name := range hostile {
		t.Run("name "+what, func(t *testing.T) {
			got := fetched(t, base64.StdEncoding.EncodeToString([]byte(root+name)))
			if filepath.Dir(got.Path) != dir || strings.Trim(filepath.Base(got.Path), "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") != "" || len(filepath.Base(got.Path)) > 200 {
				t.Errorf("saved as %q", got.Path)
			}
		})
	}
	refused := func(t *testing.T, p, want string) {
		t.Helper()
		before := left(t, dir)
		out, err := l.run("restore_files", ask(p))
		if err != nil {
			t.Fatal(err)
		}
		if out.Status != gate.StatusFailed || len(out.Saved) > 0 || !strings.Contains(text(out), want) {
			t.Errorf("%s", text(out))
		}
		if after := left(t, dir); len(after) != len(before) {
			t.Errorf("left behind: %q", after)
		}
	}
	t.Run("too large", func(t *testing.T) { refused(t, root+"/srv/large", "the limit for a restored file is 60000") })
	t.Run("folder too large", func(t *testing.T) {
		small, err := restored.New(restored.Config{Dir: dir, Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		other := openHouse(t, housetest.Config{Site: "small", Sink: small})
		out, err := other.run("restore_files", text(map[string]string{"archive": other.backupOf("201"), "path": root + "/etc"}))
		if err != nil || out.Status != gate.StatusFailed || !strings.Contains(text(out), "more than 10 bytes") {
			t.Errorf("%s %v", text(out), err)
		}
	})
	t.Run("cut", func(t *testing.T) {
		defer l.lab.SetFaults(nil)
		l.lab.SetFaults([]lab.Fault{{Kind: "cut", Path: "/nodes/*/storage/*/file-restore/download"}})
		refused(t, root+"/srv/plain", "broke off")
		refused(t, root+"/etc", "broke off")
		l.lab.SetFaults([]lab.Fault{{Kind: "before the effect", Path: "/nodes/*/storage/*/file-restore/download"}})
		refused(t, root+"/srv/plain", "cut before an answer")
	})
	t.Run("a page in between", func(t *testing.T) {
		defer l.lab.SetFaults(nil)
		l.lab.SetFaults([]lab.Fault{{Kind: "html", Status: 200, Path: "/nodes/*/storage/*/file-restore/download", Body: "<html><title>Sign in</title></html>"}})
		refused(t, root+"/srv/plain", "web page")
	})
	t.Run("no folder of its own", func(t *testing.T) {
		if runtime.GOOS == "windows" {
			t.Skip("modes mean nothing there")
		}
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		refused(t, root+"/srv/plain", "open to others")
		if err := os.Chmod(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("browse", func(t *testing.T) {
		out, err := l.do("list_backup_files", ask(root+"/srv"))
		if err != nil || !out.Untrusted || strings.ContainsAny(string(out.Answer), "\x1b") || !strings.Contains(string(out.Answer), `"path64"`) {
			t.Errorf("%s %v", text(out), err)
		}
	})
}

func TestRestoreFilesWithoutRight(t *testing.T) {
	l, dir := openRestored(t, "admin", 0, nil)
	archive := l.backupOf("201")
	for _, token := range []string{"auditor", "limited"} {
		weak, _ := openRestored(t, token, 0, nil)
		if out, err := weak.run("restore_files", text(map[string]string{"archive": archive, "path": "/root.pxar.didx/etc/hosts"})); err == nil {
			t.Errorf("%s: %s", token, text(out))
		}
	}
	// A right that went between plan and apply: the server refuses.
	l.lab.SetFaults([]lab.Fault{{Kind: "status", Status: 403, Reason: "Permission check failed", Path: "/nodes/*/storage/*/file-restore/download"}})
	out, err := l.run("restore_files", text(map[string]string{"archive": archive, "path": "/root.pxar.didx/etc/hosts"}))
	if err != nil || out.Status != gate.StatusFailed || len(left(t, dir)) > 0 {
		t.Errorf("%s %v", text(out), err)
	}
}
