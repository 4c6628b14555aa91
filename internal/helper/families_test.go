package helper

import (
	"os/exec"
	"strings"
	"testing"

	"castellan/internal/patch"
)

// The helper and the script of enrolment of each family are shell that any sh reads, and small enough for every way in.
func TestFamilies(t *testing.T) {
	for _, family := range []patch.Family{patch.DNF, patch.Pacman, patch.Zypper, patch.APK} {
		text, err := Text(family)
		if err != nil {
			t.Fatal(err)
		}
		install, err := Install(InstallConfig{PublicKey: testKey, From: "192.0.2.1", Family: family})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range []string{"name", "lock", "database", "reboot", "automatic", "check", "packages", "ready", "install", "repair", "kept"} {
			if !strings.Contains(text, "\nfam_"+f+"() ") {
				t.Errorf("%s has no fam_%s", family, f)
			}
		}
		for name, s := range map[string]string{"helper": text, "install": install} {
			if len(s) > 60<<10 {
				t.Errorf("%s of %s has %d bytes, and a guest agent takes 60 KiB at once", name, family, len(s))
			}
			for _, shell := range []string{"dash", "bash", "busybox"} {
				sh, err := exec.LookPath(shell)
				if err != nil {
					continue
				}
				cmd := exec.Command(sh, "-n")
				if shell == "busybox" {
					cmd = exec.Command(sh, "sh", "-n")
				}
				cmd.Stdin = strings.NewReader(s)
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("%s of %s with %s: %v %s", name, family, shell, err, out)
				}
			}
		}
	}
}
