//go:build linux

package helper

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"castellan/internal/guestlab"
	"castellan/internal/patch"
)

// Packages that ask by debconf, and by reading what is there to read, and a needrestart that is set to ask: nobody is waited for,
// with sudo in between, which lets no environment through.
func TestNobodyIsAsked(t *testing.T) {
	t.Parallel()
	h := enrol(t, guestlab.Guest{Packages: []string{"demo-lib"}})
	key := newSigner(t)
	h.trusted(t, key, true)
	pool := "srv/guestlab/debian-security/pool/security"
	h.pack(t, "srv/first", "demo-ask", "1.0", nil)
	h.pack(t, "srv/first", "demo-read", "1.0", nil)
	h.pack(t, pool, "demo-ask", "1.1", map[string]string{
		"templates": "Template: demo-ask/colour\nType: string\nDescription: Which colour shall it be?\n It has to know.\n",
		"config":    "#!/bin/sh\nset -e\n. /usr/share/debconf/confmodule\ndb_input critical demo-ask/colour || true\ndb_go\n",
		"postinst":  "#!/bin/sh\nset -e\n. /usr/share/debconf/confmodule\ndb_input high demo-ask/colour || true\ndb_go\ndb_get demo-ask/colour\necho \"<$RET>\" >/run/demo-ask\n",
	}, "Depends: debconf")
	h.pack(t, pool, "demo-read", "1.1", map[string]string{
		"postinst": "#!/bin/sh\nif read -r answer; then echo \"read $answer\"; else echo nothing; fi >/run/demo-read\nif (: </dev/tty) 2>/dev/null; then echo terminal; else echo 'no terminal'; fi >>/run/demo-read\n",
	})
	h.publish(t, key, "debian-security", "bookworm-security", "security", "", "", "", nil)
	h.Run(t, "sh", "-c", "dpkg -i /srv/first/*.deb")
	// A service whose program is replaced under it, and a needrestart that asks about each.
	h.write(t, "etc/needrestart/conf.d/ask.conf", []byte("$nrconf{restart} = 'i';\n$nrconf{ui} = 'NeedRestart::UI::stdio';\n$nrconf{kernelhints} = 1;\n"))
	h.Run(t, "sh", "-c", "cp /bin/sleep /usr/local/bin/napper && systemd-run -q --unit=napper /usr/local/bin/napper infinity && cp /bin/sleep /usr/local/bin/n && mv /usr/local/bin/n /usr/local/bin/napper")
	napper := h.Run(t, "systemctl", "show", "-P", "MainPID", "napper")

	// Somebody at a terminal is asked, so there is something to be asked.
	h.asks(t, "needrestart", "napper")

	r := h.check(t)
	h.startByGate(t, patch.UpgradeSecurity, "ask.1", pick(t, r.Security, "demo-ask", "demo-read", "demo-lib"))
	o := h.wait(t, "ask.1")
	if ok, why := o.Verdict(); !ok || len(o.Done) != 3 {
		t.Fatalf("%q %+v", why, o)
	}
	if took := o.Ended.Sub(o.Began); took > 60*time.Second {
		t.Errorf("it took %s", took)
	}
	if got := h.Run(t, "cat", "/run/demo-ask", "/run/demo-read"); got != "<>\nnothing\nno terminal" {
		t.Errorf("they were answered: %q", got)
	}
	if strings.Contains(o.Log, "Which colour") {
		t.Errorf("somebody was asked:\n%s", o.Log)
	}
	contains(t, "what waits for a restart", o.Note, "until they are restarted: napper.service", "not checked", "is older than 3.8 and is not run")
	if got := h.Run(t, "systemctl", "show", "-P", "MainPID", "napper"); got != napper {
		t.Error("a service was restarted by needrestart, which nobody decided")
	}
	h.asks(t, "dpkg-reconfigure -freadline demo-ask", "Which colour")
	if r = h.check(t); len(r.Security) != 0 || !r.Packages.Clean {
		t.Errorf("afterwards: %+v", r)
	}
}

// asks runs a command at a terminal until it asks; then the terminal goes away.
func (h *house) asks(t *testing.T, command, question string) {
	t.Helper()
	s, err := h.Dial(t).NewSession()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.RequestPty("dumb", 40, 120, ssh.TerminalModes{}); err != nil {
		t.Fatal(err)
	}
	out, err := s.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(command); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(30*time.Second, func() { s.Close() })
	defer late.Stop()
	var said bytes.Buffer
	b := make([]byte, 4096)
	for !strings.Contains(said.String(), question) {
		n, err := out.Read(b)
		said.Write(b[:n])
		if err != nil {
			t.Errorf("%s asks nobody: %v %q", command, err, said.String())
			return
		}
	}
	quiet := make(chan struct{})
	go func() { defer close(quiet); _, _ = io.Copy(io.Discard, out) }() // it ends with the session
	select {
	case <-quiet:
		t.Errorf("%s does not wait for an answer: %q", command, said.String())
	case <-time.After(2 * time.Second):
	}
}

// pack makes a package with scripts and other control files of its own.
func (h *house) pack(t *testing.T, dir, name, version string, control map[string]string, fields ...string) {
	t.Helper()
	stage := t.TempDir()
	if err := os.Mkdir(filepath.Join(stage, "DEBIAN"), 0o755); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{"control": "Package: " + name + "\nVersion: " + version + "\nArchitecture: all\nMaintainer: Guest Lab <lab@example.invalid>\n" + strings.Join(append(fields, ""), "\n") + "Description: package " + name + " for tests\n"}
	for k, text := range control {
		files[k] = text
	}
	for k, text := range files {
		if err := os.WriteFile(filepath.Join(stage, "DEBIAN", k), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	full := filepath.Join(h.Root, dir)
	if err := os.MkdirAll(full, 0o755); err != nil {
		t.Fatal(err)
	}
	shell(t, full, "dpkg-deb -Znone --root-owner-group --build "+stage+" "+name+"_"+version+"_all.deb")
}
