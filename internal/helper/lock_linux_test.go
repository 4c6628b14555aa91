package helper

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Anybody may lock a file whose name ends as that of dpkg's lock: it keeps no update away.
func TestALockOfTheSameEndingIsNone(t *testing.T) {
	name := filepath.Join(t.TempDir(), "x ", "var/lib/dpkg/lock")
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}); err != nil {
		t.Skipf("no lock can be taken here: %v", err)
	}
	out, err := exec.Command("sh", "-c", script("common.sh")+"\n"+script("family_apt.sh")+"\nfam_lock\n").CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("%v: %q", err, out)
	}
}
