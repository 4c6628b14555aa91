package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTheUnitIsGood: systemd reads the unit without a word, and it gives the daemon no more than it needs.
func TestTheUnitIsGood(t *testing.T) {
	text, err := os.ReadFile("../../deploy/castellan.service")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"User=castellan", "Type=notify", "NoNewPrivileges=yes", "CapabilityBoundingSet=", "ProtectSystem=strict", "UMask=0077", "StateDirectoryMode=0700", "LimitCORE=0"} {
		if !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(line) + `$`).Match(text) {
			t.Errorf("the unit does not say %s", line)
		}
	}
	users, err := os.ReadFile("../../deploy/castellan.sysusers")
	if err != nil || !strings.Contains(string(users), "/usr/sbin/nologin") {
		t.Errorf("the account has a login shell: %s %v", users, err)
	}
	places, err := os.ReadFile("../../deploy/castellan.tmpfiles")
	for _, line := range []string{"d /etc/castellan 0700 castellan castellan", "d /var/lib/castellan 0700 castellan castellan"} {
		if err != nil || !strings.Contains(string(places), line) {
			t.Errorf("the folders of configuration and store are not closed and there from the start: %s %v", places, err)
		}
	}
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not there: the unit was read as text only")
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "castellan")
	renew, err := os.ReadFile("../../deploy/castellan-certificate.service")
	if err != nil {
		t.Fatal(err)
	}
	timer, err := os.ReadFile("../../deploy/castellan-certificate.timer")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"castellan-certificate.service": []byte(strings.ReplaceAll(string(renew), "/usr/local/bin/castellan", program)), "castellan-certificate.timer": timer} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.ReplaceAll(string(text), "Documentation=file:///usr/share/doc/castellan/daemon.md\n", "")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	unit := filepath.Join(dir, "castellan.service")
	// The account and the program need not be on this machine.
	here := strings.NewReplacer("/usr/local/bin/castellan", program, "User=castellan", "User=daemon", "Group=castellan\n", "", "Documentation=file:///usr/share/doc/castellan/daemon.md\n", "").Replace(string(text))
	if err := os.WriteFile(unit, []byte(here), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(analyze, "verify", "--man=no", "--recursive-errors=no", unit).CombinedOutput()
	if err != nil || strings.Contains(string(out), "castellan.service:") {
		t.Errorf("systemd-analyze verify: %v %s", err, out)
	}
	for _, name := range []string{"castellan-certificate.service", "castellan-certificate.timer"} {
		out, err := exec.Command(analyze, "verify", "--man=no", "--recursive-errors=no", filepath.Join(dir, name)).CombinedOutput()
		if err != nil || strings.Contains(string(out), "castellan-certificate") {
			t.Errorf("systemd-analyze verify %s: %v %s", name, err, out)
		}
	}
	out, err = exec.Command(analyze, "security", "--offline=true", "--threshold=20", unit).CombinedOutput()
	if err != nil {
		t.Errorf("systemd-analyze security: %v %s", err, out)
	}
}
