//go:build linux

package guestlab

import (
	"strings"
	"testing"
)

// Every sort of update is pending, from the archive that its name says.
func TestPendingUpdates(t *testing.T) {
	t.Parallel()
	c := Open(t).Start(t, Guest{Unprivileged: true, Packages: []string{"demo-lib", "demo-app", "demo-point", "demo-backport", "demo-shadow", "demo-svc", "demo-new", "demo-old", "demo-repl",
		"docker-demo", "linux-image-6.1.0-98-amd64", "linux-image-amd64"}})
	if got := c.Run(t, "systemctl", "is-active", "demo-svc"); got != "active" {
		t.Errorf("demo-svc in its first version: %s", got)
	}
	c.Run(t, "apt-get", "-o", "APT::Update::Error-Mode=any", "update")
	list := c.Run(t, "apt", "list", "--upgradable")
	for _, want := range []string{
		"demo-lib/oldstable-security 1.1 all [upgradable from: 1.0]",
		"demo-app/oldstable-updates 1.1 all",
		"demo-point/oldstable 1.1 all",
		"docker-demo/bookworm 1.1 all",
		"demo-svc/oldstable-security 1.2 all",
		"linux-image-amd64/oldstable-security 6.1.99-1 all",
	} {
		if !strings.Contains(list, want) {
			t.Errorf("no %q in\n%s", want, list)
		}
	}
	if strings.Contains(list, "demo-backport") {
		t.Errorf("a backport is offered:\n%s", list)
	}
	if out := c.Run(t, "unattended-upgrade", "--dry-run", "-v"); !strings.Contains(out, "demo-lib") || strings.Contains(out, "docker-demo ") {
		t.Errorf("what unattended-upgrade would take: %s", out)
	}
	c.Run(t, "apt-get", "-y", "-q", "install", "demo-svc", "linux-image-amd64")
	if got := c.Exec(t, "sh", "-c", "sleep 1; systemctl is-active demo-svc").Stdout; strings.TrimSpace(string(got)) == "active" {
		t.Error("demo-svc runs in the version that dies")
	}
	if got := c.Run(t, "cat", "/run/reboot-required.pkgs"); !strings.Contains(got, "linux-image-6.1.0-99-amd64") {
		t.Errorf("after a new kernel a reboot is due: %q", got)
	}
}

func TestUnknownPackage(t *testing.T) {
	if _, err := firstVersions(t.TempDir(), []string{"demo-none"}); err == nil || !strings.Contains(err.Error(), "demo-none") {
		t.Errorf("a package that there is not: %v", err)
	}
}

// The other trees boot, and say what they are.
func TestSuites(t *testing.T) {
	lab := Open(t)
	for suite, want := range map[string]string{"trixie": "VERSION_ID=\"13\"", "noble": "VERSION_ID=\"24.04\""} {
		t.Run(suite, func(t *testing.T) {
			t.Parallel()
			c := lab.Start(t, Guest{Suite: suite, Packages: []string{"demo-lib"}})
			if got := c.Run(t, "cat", "/etc/os-release"); !strings.Contains(got, want) {
				t.Errorf("it says that it is %s", got)
			}
			if got := c.Run(t, "apt-cache", "policy", "demo-lib"); !strings.Contains(got, "Candidate: 1.1") || !strings.Contains(got, suite+"-security") {
				t.Errorf("demo-lib: %s", got)
			}
		})
	}
}
