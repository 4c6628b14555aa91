package helper

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Anybody may lock a file whose name reads like that of a package manager's lock: it keeps no update away. The file itself is
// known whatever it is called.
func TestALockThatReadsAlikeIsNone(t *testing.T) {
	run := func(what string) (string, error) {
		out, err := exec.Command("sh", "-c", script("common.sh")+"\n"+script("family_apt.sh")+"\n"+what+"\n").CombinedOutput()
		return string(out), err
	}
	for _, folder := range []string{"x ", "y\n", "z -> "} {
		name := filepath.Join(t.TempDir(), folder, "var/lib/dpkg/lock")
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
		if out, err := run("fam_lock"); err != nil || out != "" {
			t.Errorf("%q: %v: %q", folder, err, out)
		}
		other := filepath.Join(t.TempDir(), "other")
		if err := os.Symlink(name, other); err != nil {
			t.Fatal(err)
		}
		if out, err := run(fmt.Sprintf("has_open %d /nonexistent '%s'", os.Getpid(), other)); err != nil {
			t.Errorf("%q: it is not found by another name: %v %s", folder, err, out)
		}
		if out, err := run(fmt.Sprintf("! has_open %d /etc/passwd /nonexistent && ! has_open %d /nonexistent", os.Getpid(), os.Getpid())); err != nil {
			t.Errorf("%v %s", err, out)
		}
	}
}
