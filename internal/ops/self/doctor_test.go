package self

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"castellan/internal/gate"
	"castellan/internal/proxmox"
	"castellan/internal/rights"
)

// bench is a process that doctor looks at: a client, and what it says of itself.
type bench struct {
	client  *proxmox.Client
	own     []Check
	enabled []string
	broken  error
}

func (b *bench) Contact(ctx context.Context, target string) ([]Contact, error) {
	all, err := b.client.Probe(ctx, target)
	out := make([]Contact, len(all))
	for i, c := range all {
		out[i] = Contact(c)
	}
	return out, err
}

func (b *bench) Own(context.Context) []Check { return b.own }

func (b *bench) Enabled(context.Context) ([]string, error) { return b.enabled, b.broken }

// narrow is a policy under which callers see some guests only.
type narrow struct{ gate.Policy }

func (narrow) Scoped(gate.Principal) bool { return true }

func (l *live) doctorSays(args string) (doctorOut, string) {
	l.t.Helper()
	out, err := l.do("doctor", args)
	if err != nil {
		l.t.Fatal(err)
	}
	var x doctorOut
	if err := json.Unmarshal(out.Answer, &x); err != nil {
		l.t.Fatal(err)
	}
	return x, string(out.Answer)
}

// TestDoctorShort: an agent learns what it can do, in few words, and what an empty list may mean.
func TestDoctorShort(t *testing.T) {
	l := open(t, "small", "limited")
	l.bench.enabled = []string{"power", "snapshot"}
	l.bench.own = []Check{{"files", CheckOK, "closed", ""}, {"ledger", CheckNote, "no anchor", ""}}
	x, text := l.doctorSays("{}")
	if len(text) > 12_000 || x.Verdict != "problems" || len(x.Good) > 0 || len(x.Targets) != 1 {
		t.Errorf("%d bytes: %s", len(text), text)
	}
	for _, want := range []string{"nothing there is seen", "limited@pve!limited", "pveum acl modify", `"limited":["power","snapshot"]`, "list_guests", "find_operation", "/vms/201", "not to be read with what is granted", "which archives of backups there are"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not said: %s", want, text)
		}
	}
	if _, full := l.doctorSays(`{"detail": "full"}`); len(full) <= len(text) || !strings.Contains(full, "bind mounts") {
		t.Errorf("full: %s", full)
	}
	if x, _ := l.doctorSays(`{"capability": "exec"}`); !strings.Contains(strings.Join(x.Targets[0].Commands, "\n"), "VM.GuestAgent.Unrestricted") {
		t.Errorf("the commands for one more capability: %q", x.Targets[0].Commands)
	}
	for args, want := range map[string]string{`{"capability": "exce"}`: "there is no capability", `{"target": "lba"}`: "did you mean lab"} {
		if _, err := l.do("doctor", args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", args, err)
		}
	}
	l.bench.broken = errors.New("line 3")
	if _, err := l.do("doctor", "{}"); err == nil || !strings.Contains(err.Error(), "settings cannot be read") {
		t.Errorf("broken settings: %v", err)
	}
}

// TestDoctorScoped: who sees some guests only learns nothing of others, nor of the machine.
func TestDoctorScoped(t *testing.T) {
	l := openWith(t, "small", "limited", func(p gate.Policy) gate.Policy { return narrow{p} })
	l.bench.enabled = []string{"power"}
	l.bench.own = []Check{{"files", CheckProblem, "/etc/castellan/keys has the mode 0755", ""}}
	_, text := l.doctorSays(`{"detail": "full"}`)
	for _, no := range []string{"/vms/201", "pveum", "/etc/castellan"} {
		if strings.Contains(text, no) {
			t.Errorf("%q is told: %s", no, text)
		}
	}
}

// TestDoctorOnce: a secret that is not taken is tried once, whatever follows.
func TestDoctorOnce(t *testing.T) {
	l := open(t, "small", "auditor")
	if status, _, _ := l.lab.Do(t.Context(), "DELETE", "/api2/json/access/users/auditor@pve/token/auditor", map[string][]string{"Authorization": {l.lab.Tokens()["admin"]}}, nil); status != 200 {
		t.Fatal(status)
	}
	l.lab.ResetRequests()
	for range 2 {
		x, text := l.doctorSays("{}")
		if x.Verdict != "problems" || !strings.Contains(text, "wrong token, wrong secret") || len(x.Targets[0].Can) > 0 {
			t.Errorf("%s", text)
		}
	}
	if n := len(l.lab.Requests()); n != 1 {
		t.Errorf("%d requests", n)
	}
}

// TestDoctorDates: certificates, clocks and versions.
func TestDoctorDates(t *testing.T) {
	now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		contact Contact
		state   string
		says    string
	}{
		{Contact{Reached: true, Version: "9.2", Ends: now.Add(400 * 24 * time.Hour)}, CheckOK, ""},
		{Contact{Reached: true, Version: "9.2", Ends: now.Add(20 * 24 * time.Hour), TrustedBy: "pin of the certificate"}, CheckNote, "in 20 days"},
		{Contact{Reached: true, Version: "9.2", Ends: now.Add(-48 * time.Hour)}, CheckProblem, "ended on"},
		{Contact{Reached: true, Version: "9.2", Skew: -3 * time.Minute}, CheckProblem, "3m0s apart"},
		{Contact{Reached: true, Version: "9.2", Skew: 20 * time.Second}, CheckOK, "agrees"},
		{Contact{Fault: "refused"}, CheckProblem, "no connection"},
		{Contact{Reached: true, Fault: "a page"}, CheckProblem, "not as it should"},
	} {
		worst, text := CheckOK, ""
		for _, c := range contactChecks("x", tt.contact, now) {
			text += c.Text + "\n"
			if c.State == CheckProblem || c.State == CheckNote && worst == CheckOK {
				worst = c.State
			}
		}
		if worst != tt.state || !strings.Contains(text, tt.says) {
			t.Errorf("%+v: %s\n%s", tt.contact, worst, text)
		}
	}
	for text, want := range map[string]string{"9.0.0~11": CheckOK, "8.4.1": CheckNote, "7.4-3": CheckProblem, "6.4": CheckProblem, "10.1.2": CheckNote, "": CheckUnknown} {
		if state, said := support(versionOf(text), now); state != want {
			t.Errorf("%q: %s, %s", text, state, said)
		}
	}
	if state, _ := support(rights.Version{Major: 8, Minor: 4}, now.AddDate(0, 6, 0)); state != CheckProblem {
		t.Errorf("8.4 after its end: %s", state)
	}
}
