//go:build linux

package helper

import (
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"castellan/internal/guestlab"
	"castellan/internal/patch"
)

func TestMain(m *testing.M) { os.Exit(guestlab.Main(m)) }

// house is a guest that was enrolled.
type house struct {
	*guestlab.Container
	lab       *guestlab.Lab
	installed Installed
}

func enrol(t *testing.T, g guestlab.Guest) *house {
	t.Helper()
	lab := guestlab.Open(t)
	h := &house{Container: lab.Start(t, g), lab: lab}
	h.enrol(t, InstallConfig{})
	return h
}

func (h *house) enrol(t *testing.T, c InstallConfig) {
	t.Helper()
	c.PublicKey, c.From = string(ssh.MarshalAuthorizedKey(h.lab.Signer.PublicKey())), "10.99.0.1"
	script, err := Install(c)
	if err != nil {
		t.Fatal(err)
	}
	r := h.Feed(t, []byte(script), "sh")
	in, err := ParseInstalled(r.Stdout)
	if err != nil || in.Refused != "" || r.Code != 0 {
		t.Fatalf("enrol: %v, code %d, %+v\n%s\n%s", err, r.Code, in, r.Stdout, r.Stderr)
	}
	h.installed = in
}

// word runs the helper as root.
func (h *house) word(t *testing.T, word patch.Word, input string) []byte {
	t.Helper()
	r := h.Feed(t, []byte(input), Helper, string(word))
	if r.Code != 0 || len(r.Stderr) > 0 {
		t.Errorf("%s: code %d, %s", word, r.Code, r.Stderr)
	}
	return r.Stdout
}

func (h *house) check(t *testing.T) patch.Report {
	t.Helper()
	out := h.word(t, patch.Check, "")
	r, err := patch.ParseCheck(out, time.Now())
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return r
}

// start starts an installation and expects that it is.
func (h *house) start(t *testing.T, word patch.Word, id string, newer bool, tr patch.Transaction) {
	t.Helper()
	in, err := Input(id, newer, []string{strings.ToUpper(h.MAC)}, tr)
	if err != nil {
		t.Fatal(err)
	}
	out := h.word(t, word, string(in))
	s, err := patch.ParseStarted(out)
	if err != nil || s.ID != id || s.Already || s.Refused != "" {
		t.Fatalf("start %s: %+v %v\n%s", id, s, err, out)
	}
}

func (h *house) result(t *testing.T) patch.Outcome {
	t.Helper()
	out := h.word(t, patch.Result, "")
	o, err := patch.ParseResult(out)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return o
}

// wait waits for the end of an installation.
func (h *house) wait(t *testing.T, id string) patch.Outcome {
	t.Helper()
	for end := time.Now().Add(90 * time.Second); ; time.Sleep(200 * time.Millisecond) {
		o := h.result(t)
		if o.ID != id {
			t.Fatalf("the result is of %q, not of %q", o.ID, id)
		}
		if o.State != "running" {
			return o
		}
		if time.Now().After(end) {
			t.Fatalf("it still runs: %+v", o)
		}
	}
}

// upgrade installs packages by name, out of what a check found.
func (h *house) upgrade(t *testing.T, word patch.Word, id string, of patch.Transaction, names ...string) patch.Outcome {
	t.Helper()
	h.start(t, word, id, false, pick(t, of, names...))
	return h.wait(t, id)
}

func pick(t *testing.T, of patch.Transaction, names ...string) patch.Transaction {
	t.Helper()
	var out patch.Transaction
	for _, n := range names {
		found := false
		for _, c := range of {
			if c.Name == n {
				out, found = append(out, c), true
			}
		}
		if !found {
			t.Fatalf("%s is not among %v", n, of.Texts())
		}
	}
	return out
}

func why(r patch.Report, name string) string {
	for _, p := range r.Pending {
		if p.Name == name && p.Why != "" {
			return p.Why
		}
	}
	return ""
}

func well(t *testing.T, o patch.Outcome) {
	t.Helper()
	note := o.Note
	if strings.Contains(note, "is older than 3.8 and is not run") && !strings.Contains(note, ";") { // as it is in Debian 12
		note = ""
	}
	if ok, why := o.Verdict(); !ok || note != "" {
		t.Errorf("%s: %q, note %q\n%+v", o.ID, why, o.Note, o)
	}
}

func contains(t *testing.T, what, text string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("%s: no %q in %q", what, want, text)
		}
	}
}
