package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"castellan/internal/gate"
	"castellan/internal/lab"
	"castellan/internal/rights"
	"castellan/internal/seal"
)

// pveumLine does on the site what the line does there; only acl, role and token commands are understood.
func (s *site) pveumLine(t *testing.T, line string) {
	t.Helper()
	for _, half := range strings.Split(line, " || ") {
		words := strings.Fields(strings.ReplaceAll(half, "'", ""))
		form := ""
		var plain []string
		for i := 1; i < len(words); i++ {
			if name, ok := strings.CutPrefix(words[i], "--"); ok {
				form += "&" + name + "=" + words[i+1]
				i++
				continue
			}
			plain = append(plain, words[i])
		}
		method, path := "PUT", "/access/acl"
		switch strings.Join(plain[:2], " ") {
		case "user add":
			method, path, form = "POST", "/access/users", form+"&userid="+plain[2]
		case "role add":
			method, path, form = "POST", "/access/roles", form+"&roleid="+plain[2]
		case "role modify":
			path = "/access/roles/" + plain[2]
		case "acl modify":
			form += "&path=" + plain[2]
		case "acl delete":
			form += "&delete=1&path=" + plain[2]
		case "user token":
			method, path = "POST", "/access/users/"+plain[3]+"/token/"+plain[4]
		default:
			t.Fatalf("no command: %s", line)
		}
		if status, _ := s.ask(t, s.lab.Tokens()["admin"], method, path, form[1:]); status == 200 {
			return
		}
	}
	t.Fatalf("the site does not take: %s", line)
}

// useToken makes a token for a user on the site and puts it into castellan's file.
func (s *site) useToken(t *testing.T, user, id string, privsep int) {
	t.Helper()
	status, data := s.ask(t, s.lab.Tokens()["admin"], "POST", "/access/users/"+user+"/token/"+id, fmt.Sprintf("privsep=%d", privsep))
	var made struct {
		ID    string `json:"full-tokenid"`
		Value string
	}
	if status != 200 || json.Unmarshal(data, &made) != nil {
		t.Fatal(status)
	}
	if err := seal.Replace(filepath.Join(s.dir, "token"), []byte(made.ID+"="+made.Value+"\n")); err != nil {
		t.Fatal(err)
	}
}

func (s *site) doctor(t *testing.T, args ...string) (examined, int) {
	t.Helper()
	out, errs, code := castellan(t, s.env(), "", append([]string{"doctor", "--json"}, args...)...)
	var x examined
	if err := json.Unmarshal([]byte(out), &x); err != nil {
		t.Fatalf("code %d: %v\n%s%s", code, err, out, errs)
	}
	return x, code
}

func (x examined) says(t *testing.T, want ...string) {
	t.Helper()
	b, err := json.Marshal(x)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range want {
		if quoted, _ := json.Marshal(w); !strings.Contains(string(b), strings.Trim(string(quoted), `"`)) {
			t.Errorf("%q is not said:\n%s", w, b)
		}
	}
}

// TestDoctorHeals: for each version and each capability, the commands that doctor prints for a token that may nothing of it
// make castellan fine, and leave nothing to be done.
func TestDoctorHeals(t *testing.T) {
	if testing.Short() {
		t.Skip("goes through all capabilities twice")
	}
	for _, version := range []string{"8", "9"} {
		s := newSite(t, lab.Config{Version: version}, "")
		plain := s.text(t)
		for _, c := range gate.Capabilities() {
			if slices.Contains(rights.Borrowing(), c) {
				continue
			}
			user := "new-" + strings.ReplaceAll(c, "_", "-") + "@pve"
			s.write(t, strings.Replace(plain, "[policy]\n", fmt.Sprintf("[policy]\ncapabilities = [%q]\n", c), 1))
			if status, _ := s.ask(t, s.lab.Tokens()["admin"], "POST", "/access/users", "userid="+user); status != 200 {
				t.Fatal(status)
			}
			s.useToken(t, user, "agent", 1)
			x, code := s.doctor(t)
			if code != 1 || len(x.Targets) != 1 || len(x.Targets[0].Commands) == 0 {
				t.Fatalf("%s on %s: code %d, %+v", c, version, code, x)
			}
			x.says(t, c+" is switched on, and Proxmox lets it do nothing of it", "an empty list then does not mean that there is nothing")
			for _, line := range x.Targets[0].Commands {
				s.pveumLine(t, line)
			}
			x, _ = s.doctor(t)
			for _, p := range x.Problems {
				if !strings.Contains(p.Text, "gets no fixes") { // of 8, which is so
					t.Errorf("%s on %s: still %+v", c, version, p)
				}
			}
			if len(x.Targets[0].Commands) > 0 {
				t.Errorf("%s on %s: still %q", c, version, x.Targets[0].Commands)
			}
		}
	}
}

// TestDoctorSaysWhoLacks: a token with privilege separation has only what both have.
func TestDoctorSaysWhoLacks(t *testing.T) {
	s := newSite(t, lab.Config{}, "capabilities = [\"snapshot\"]")
	w := rights.Want{User: "half@pve", Token: "agent", Capabilities: []string{"snapshot"}}
	if status, _ := s.ask(t, s.lab.Tokens()["admin"], "POST", "/access/users", "userid=half@pve"); status != 200 {
		t.Fatal(status)
	}
	s.useToken(t, "half@pve", "agent", 1)
	for _, line := range rights.Lines(w.Commands(nil))[1:] {
		if !strings.Contains(line, "token add") {
			s.pveumLine(t, line)
		}
	}
	if x, code := s.doctor(t); code != 0 || x.Verdict != "fine" {
		t.Errorf("code %d %+v", code, x.Problems)
	}
	for _, tt := range []struct{ line, undo, says string }{
		{"pveum acl delete /vms --users half@pve --roles half-guests", "pveum acl modify /vms --users half@pve --roles half-guests", "the user lacks VM.Snapshot on /vms"},
		{"pveum acl delete /vms --tokens half@pve!agent --roles half-guests", "pveum acl modify /vms --tokens half@pve!agent --roles half-guests", "the token lacks VM.Snapshot on /vms"},
	} {
		s.pveumLine(t, tt.line)
		x, code := s.doctor(t)
		if code != 1 {
			t.Errorf("code %d", code)
		}
		x.says(t, tt.says)
		if c := x.Targets[0].Commands; len(c) != 1 || strings.Contains(c[0], "--users") == strings.Contains(c[0], "--tokens") {
			t.Errorf("%s: %q", tt.says, c)
		}
		s.pveumLine(t, tt.undo)
	}
}

// TestDoctorNarrows: what is too much is named, and the commands take it away without losing what is needed.
func TestDoctorNarrows(t *testing.T) {
	s := newSite(t, lab.Config{}, "capabilities = [\"snapshot\"]")
	for _, line := range []string{"pveum user add wide@pve", "pveum acl modify / --users wide@pve --roles Administrator"} {
		s.pveumLine(t, line+" --comment x"[:len(" --comment x")*btoi(strings.Contains(line, "user add"))])
	}
	s.useToken(t, "wide@pve", "agent", 0)
	x, code := s.doctor(t)
	if code != 1 {
		t.Errorf("code %d", code)
	}
	x.says(t, "wide@pve has the role Administrator on /", "no privilege separation", "needed for nothing that is switched on", "passed on to everything")
	for _, line := range slices.Concat(x.Targets[0].Commands, x.Targets[0].Narrow) {
		s.pveumLine(t, line)
	}
	if x, code = s.doctor(t); code != 0 {
		t.Errorf("code %d %+v", code, x.Problems)
	}

	s.useToken(t, "root@pam", "agent", 0)
	x, code = s.doctor(t)
	if code != 1 {
		t.Errorf("code %d", code)
	}
	x.says(t, "the login belongs to root@pam", "pveum user token add castellan@pve")
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// TestDoctorUnreachable: exit codes tell what is not reached from what is wrong, and a wrong secret is tried once.
func TestDoctorUnreachable(t *testing.T) {
	s := newSite(t, lab.Config{}, "")
	good, address := s.text(t), s.address(t)
	s.write(t, strings.Replace(good, "addresses = [", "addresses = [\"127.0.0.1:9\", ", 1))
	x, code := s.doctor(t)
	if code != 1 {
		t.Errorf("one of two addresses: code %d", code)
	}
	x.says(t, "no connection to 127.0.0.1:9", "the others stand in")
	s.write(t, strings.Replace(good, address, "127.0.0.1:9", 1))
	if x, code = s.doctor(t); code != 6 || x.Verdict != "unreachable" {
		t.Errorf("no address: code %d, %s", code, x.Verdict)
	}
	s.write(t, good)
	s.write(t, strings.Replace(good, s.lab.Fingerprint(), strings.Repeat("00:", 31)+"00", 1))
	s.lab.ResetRequests()
	x, code = s.doctor(t)
	if code == 0 || len(s.lab.Requests()) != 0 {
		t.Errorf("another certificate: code %d, %d requests", code, len(s.lab.Requests()))
	}
	x.says(t, s.lab.Fingerprint(), "nothing secret was sent")
	s.write(t, strings.Replace(good, "addresses = [", "addresses = [\"localhost"+address[strings.LastIndex(address, ":"):]+"\", ", 1))
	if err := seal.Replace(filepath.Join(s.dir, "token"), []byte("castellan@pve!x=00000000-0000-0000-0000-000000000000\n")); err != nil {
		t.Fatal(err)
	}
	s.lab.ResetRequests()
	x, code = s.doctor(t)
	if code != 1 || len(s.lab.Requests()) != 1 {
		t.Errorf("wrong secret: code %d, %d requests", code, len(s.lab.Requests()))
	}
	x.says(t, "wrong token, wrong secret")
	_, errs, code := castellan(t, []string{"CASTELLAN_CONFIG=" + filepath.Join(t.TempDir(), "none.toml")}, "", "doctor")
	if code != 1 {
		t.Errorf("no configuration: code %d %s", code, errs)
	}
	out, _, code := castellan(t, []string{"CASTELLAN_SOCKET=" + filepath.Join(t.TempDir(), "none")}, "", "doctor")
	if code != 6 || !strings.Contains(out, "daemon") {
		t.Errorf("no daemon: code %d %s", code, out)
	}
}

// TestDoctorReport: it can be shared: no secret, and no names where none are wanted.
func TestDoctorReport(t *testing.T) {
	s := newSite(t, lab.Config{}, "capabilities = [\"snapshot\"]")
	if err := os.Chmod(filepath.Join(s.dir, "keys"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(s.dir, "keys"), 0o700); err != nil {
		t.Fatal(err)
	}
	secret, err := os.ReadFile(filepath.Join(s.dir, "token"))
	if err != nil {
		t.Fatal(err)
	}
	_, uuid, _ := strings.Cut(strings.TrimSpace(string(secret)), "=")
	for _, args := range [][]string{nil, {"--anonymous"}} {
		file := filepath.Join(t.TempDir(), "r.json")
		_, errs, code := castellan(t, s.env(), "", append([]string{"doctor", "--report", file}, args...)...)
		b, err := os.ReadFile(file)
		if code != 1 || err != nil || !json.Valid(b) || strings.Contains(string(b), uuid) { // the token is root's
			t.Fatalf("code %d: %v %s", code, err, errs)
		}
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("mode %v %v", info.Mode(), err)
		}
		for _, name := range []string{s.dir, `127.0.0.1`, `"lab"`, accountName()} {
			if name != "root" && strings.Contains(string(b), name) != (args == nil) && (args != nil || name != accountName()) {
				t.Errorf("%v: %q in\n%s", args, name, b)
			}
		}
		if _, _, code := castellan(t, s.env(), "", append([]string{"doctor", "--report", file}, args...)...); code != 2 {
			t.Errorf("over a file that is there: code %d", code)
		}
	}
}

// TestDoctorSettings: where settings come from, what is shadowed, and what stops writes.
func TestDoctorSettings(t *testing.T) {
	s := newSite(t, lab.Config{}, "capabilities = [\"snapshot\"]\nwrites_per_hour = 5")
	if _, errs, code := castellan(t, s.env(), "", "config", "set", "policy.four_eyes", "true"); code != 0 {
		t.Fatal(errs)
	}
	out, errs, _ := castellan(t, append(s.env(), "CASTELLAN_POLICY_WRITES_PER_HOUR=9"), "", "doctor", "--json")
	var x examined
	if err := json.Unmarshal([]byte(out), &x); err != nil {
		t.Fatal(err, errs)
	}
	x.says(t, "policy.writes_per_hour is set in the file and by CASTELLAN_POLICY_WRITES_PER_HOUR: the environment won", "policy.four_eyes (runtime)", "policy.writes_per_hour (environment)",
		"capabilities that are on: snapshot (file)", "the highest approval that counts is dialog", "no anchor")
	if err := os.Chmod(filepath.Join(s.dir, "keys"), 0o755); err != nil {
		t.Fatal(err)
	}
	x, code := s.doctor(t)
	if code != 1 {
		t.Errorf("keys open to others: code %d", code)
	}
	x.says(t, "keys")
}

// TestDoctorOneSiteTwice: two targets that are one site are two sets of lanes and policies.
func TestDoctorOneSiteTwice(t *testing.T) {
	s := newSite(t, lab.Config{Version: "9"}, "")
	plain := s.text(t)
	const text = "are one site"
	x, _ := s.doctor(t)
	if b, err := json.Marshal(x); err != nil || strings.Contains(string(b), text) {
		t.Errorf("%v: %s", err, b)
	}
	at := strings.Index(plain, "[[target]]")
	if at < 0 {
		t.Fatalf("no target in %s", plain)
	}
	block := plain[at:]
	if end := strings.Index(block[2:], "\n["); end >= 0 {
		block = block[:end+3]
	}
	name := regexp.MustCompile(`(?m)^name *= *"([^"]*)"`)
	if name.FindString(block) == "" {
		t.Fatalf("no name in %s", block)
	}
	s.write(t, plain[:at]+name.ReplaceAllString(block, `name = "other-name"`)+plain[at:])
	x, code := s.doctor(t)
	x.says(t, text, "other-name")
	if code != 1 {
		t.Errorf("code %d", code)
	}
}
