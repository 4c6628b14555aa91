//go:build unix

package main

import (
	"crypto/hmac"
	"crypto/sha1"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"castellan/internal/lab"
	"castellan/internal/proxmox"
	"castellan/internal/rights"
)

// TestInitWhole: one command makes user, roles and token with root's login, writes the configuration, and all is well.
func TestInitWhole(t *testing.T) {
	for _, version := range []string{"8", "9"} {
		s := newSite(t, lab.Config{Version: version}, "")
		home := t.TempDir()
		env := []string{"HOME=" + home, "XDG_CONFIG_HOME=" + filepath.Join(home, ".config"), "XDG_STATE_HOME="}
		if err := os.MkdirAll(filepath.Join(home, ".cursor"), 0o755); err != nil {
			t.Fatal(err)
		}
		cursor := filepath.Join(home, ".cursor", "mcp.json")
		if err := os.WriteFile(cursor, []byte("{\"zeta\": 1, \"mcpServers\": {\"other\": {\"command\": \"x\"}}, \"alpha\": [2]}"), 0o644); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		r := onTerminal(t, env, "init", "--no-daemon", "--token", "castellan-x@pve!agent")
		r.shows("Address")
		r.types(s.address(t))
		r.shows(s.lab.Fingerprint())
		r.shows("pvenode cert info")
		r.shows("Type yes")
		r.types("yes")
		r.shows("1, 2 or 3")
		r.types("2")
		r.shows("Log in as")
		r.types("root@pam")
		r.shows("settings of Cursor")
		r.types("yes")
		r.shows("Password of root@pam")
		if s.writes() != 0 {
			t.Error("something was written before the person said yes")
		}
		r.types(labRoot)
		r.shows("This is what will be done there, as root@pam")
		r.shows("pveum user add castellan-x@pve")
		r.shows("pveum acl modify / --users castellan-x@pve")
		r.shows("Do it?")
		if s.writes() != 0 {
			t.Error("something was written before the person said yes")
		}
		r.types("yes")
		r.shows("A test read")
		r.shows("pve1")
		code := r.ends()
		shown := r.all.String()
		if code != 0 || strings.Contains(shown, labRoot) || version == "9" && !strings.Contains(shown, "All is fine") {
			t.Errorf("version %s: code %d:\n%s", version, code, shown)
		}
		if took := time.Since(began); took > time.Minute {
			t.Errorf("it took %s", took)
		}
		dir := filepath.Join(home, ".config", "castellan")
		token, err := os.ReadFile(filepath.Join(dir, "pve.token"))
		if err != nil || strings.Contains(shown, strings.TrimSpace(string(token))) {
			t.Errorf("the token: %v, or it was shown", err)
		}
		for path, want := range map[string]os.FileMode{"": 0o700, "castellan.toml": 0o600, "pve.token": 0o600} {
			if info, err := os.Stat(filepath.Join(dir, path)); err != nil || info.Mode().Perm() != want {
				t.Errorf("%q: %v %v", path, info, err)
			}
		}
		// The token does what was chosen, and nothing else.
		if status, _ := s.ask(t, strings.TrimSpace(string(token)), "POST", "/nodes/pve1/qemu/101/snapshot", "snapname=s1"); status != 200 {
			t.Errorf("a snapshot: %d", status)
		}
		if status, _ := s.ask(t, strings.TrimSpace(string(token)), "POST", "/access/groups", "groupid=g"); status != 403 {
			t.Errorf("a group: %d", status)
		}
		text, err := os.ReadFile(cursor)
		var there struct {
			Servers map[string]struct{ Command string } `json:"mcpServers"`
		}
		if err != nil || json.Unmarshal(text, &there) != nil || there.Servers["castellan"].Command == "" || there.Servers["other"].Command != "x" || strings.Index(string(text), "zeta") > strings.Index(string(text), "alpha") {
			t.Errorf("the client's settings: %v\n%s", err, text)
		}
		if info, err := os.Stat(cursor); err != nil || info.Mode().Perm() != 0o644 {
			t.Errorf("mode of the client's settings: %v %v", info.Mode(), err)
		}

		// A second run changes nothing.
		before := snapshotOf(t, home)
		done := s.writes()
		r = onTerminal(t, env, "init", "--no-daemon")
		r.shows("There is a configuration already")
		r.types("yes")
		r.shows("settings of Cursor")
		r.types("yes")
		r.shows("stands in")
		if code := r.ends(); code != 0 || s.writes() != done {
			t.Errorf("again: code %d, %d writes\n%s", code, s.writes()-done, r.all)
		}
		if after := snapshotOf(t, home); !slices.Equal(before, after) {
			t.Errorf("again: the files changed:\n%v\n%v", before, after)
		}
		_, errs, code := castellan(t, env, "", "init", "--keep", "--no-daemon")
		if code != 0 || s.writes() != done {
			t.Errorf("again, without a terminal: code %d, %s", code, errs)
		}
	}
}

// snapshotOf lists the files below a folder with their content, the state left out.
func snapshotOf(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() && d.Name() == ".local" {
			if d != nil && d.IsDir() {
				return filepath.SkipDir
			}
			return err
		}
		if !d.IsDir() {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			out = append(out, path+" "+string(b))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestInitStops: whoever stops at any question has changed nothing, here or there.
func TestInitStops(t *testing.T) {
	s := newSite(t, lab.Config{}, "")
	steps := [][2]string{{"Address", s.address(t)}, {"Type yes", "yes"}, {"1, 2 or 3", "2"}, {"Log in as", "root@pam"}, {"Password of", labRoot}, {"Do it?", ""}}
	for at := range steps {
		home := t.TempDir()
		env := []string{"HOME=" + home, "XDG_CONFIG_HOME=" + filepath.Join(home, ".config"), "XDG_STATE_HOME="}
		r := onTerminal(t, env, "init", "--no-daemon")
		for i, step := range steps[:at+1] {
			r.shows(step[0])
			if i < at {
				r.types(step[1])
			}
		}
		time.Sleep(50 * time.Millisecond)
		if _, err := r.file.Write([]byte{3}); err != nil { // Ctrl-C
			t.Fatal(err)
		}
		if code := r.ends(); code == 0 {
			t.Errorf("stopped at %q: exit code 0", steps[at][0])
		}
		if _, err := os.Stat(filepath.Join(home, ".config", "castellan")); err == nil {
			t.Errorf("stopped at %q: something was written", steps[at][0])
		}
	}
	if s.writes() != 0 {
		t.Errorf("%d writes", s.writes())
	}
	// A no to the requests, and a wrong password: once, and nothing is changed.
	home := t.TempDir()
	env := []string{"HOME=" + home, "XDG_CONFIG_HOME=" + filepath.Join(home, ".config"), "XDG_STATE_HOME="}
	flags := []string{"init", "--no-daemon", "--address", s.address(t), "--fingerprint", s.lab.Fingerprint(), "--allow", "look", "--login", "root@pam"}
	r := onTerminal(t, env, flags...)
	r.shows("Password of")
	r.types(labRoot)
	r.shows("Do it?")
	r.types("no")
	if code := r.ends(); code != 3 || s.writes() != 0 {
		t.Errorf("no: code %d, %d writes", code, s.writes())
	}
	s.lab.ResetRequests()
	r = onTerminal(t, env, flags...)
	r.shows("Password of")
	r.types("wrong")
	r.shows("not let in")
	if code := r.ends(); code != 3 || len(s.lab.Requests()) != 1 {
		t.Errorf("wrong password: code %d, %d requests", code, len(s.lab.Requests()))
	}
	if _, err := os.Stat(filepath.Join(home, ".config", "castellan")); err == nil {
		t.Error("something was written")
	}
}

// code is RFC 6238 for the lab's ann@pve.
func annCode(at time.Time) string {
	m := hmac.New(sha1.New, []byte("12345678901234567890"))
	_ = binary.Write(m, binary.BigEndian, at.Unix()/30)
	sum := m.Sum(nil)
	return fmt.Sprintf("%06d", binary.BigEndian.Uint32(sum[sum[19]&15:])&0x7fffffff%1000000)
}

// TestMint with a second factor; again it does nothing; more capabilities add what they take and no more.
func TestMint(t *testing.T) {
	s := newSite(t, lab.Config{}, "capabilities = [\"snapshot\"]")
	for _, path := range []string{"/", "/pool/dev"} {
		if status, _ := s.ask(t, s.lab.Tokens()["admin"], "PUT", "/access/acl", "path="+path+"&users=ann@pve&roles=Administrator"); status != 200 {
			t.Fatal(status)
		}
	}
	s.lab.ResetRequests()
	file := filepath.Join(t.TempDir(), "t")
	run := func(args ...string) *terminal {
		t.Helper()
		r := onTerminal(t, s.env(), append([]string{"mint", "--target", "lab", "--fingerprint", s.lab.Fingerprint(), "--login", "ann@pve", "--token", "fresh@pve!one", "--write", file}, args...)...)
		r.shows("Password of ann@pve")
		r.types("labpass123")
		r.shows("Code of the authenticator")
		r.types(annCode(time.Now()))
		return r
	}
	r := run("--pool", "dev")
	r.shows("Do it?")
	r.types("yes")
	if code := r.ends(); code != 0 {
		t.Fatalf("code %d\n%s", code, r.all)
	}
	token, err := os.ReadFile(file)
	if err != nil || strings.Contains(r.all.String(), string(token)[len("fresh@pve!one="):20+len("fresh@pve!one=")]) {
		t.Fatalf("%v, or the secret was shown:\n%s", err, r.all)
	}
	for path, want := range map[string]int{"/nodes/pve2/lxc/203/snapshot": 200, "/nodes/pve1/qemu/101/snapshot": 403} {
		if status, _ := s.ask(t, strings.TrimSpace(string(token)), "POST", path, "snapname=m1"); status != want {
			t.Errorf("%s: %d", path, status)
		}
	}
	n := s.writes()
	r = run("--pool", "dev")
	r.shows("nothing was changed")
	if code := r.ends(); code != 0 || s.writes() != n {
		t.Errorf("again: code %d, %d writes", code, s.writes()-n)
	}
	r = run("--pool", "dev", "--capabilities", "snapshot,power")
	r.shows("pveum role modify fresh-guests --append 1 --privs VM.GuestAgent.FileSystemMgmt,VM.PowerMgmt")
	r.shows("Do it?")
	r.types("yes")
	if code := r.ends(); code != 0 || s.writes() != n+1 {
		t.Errorf("more: code %d, %d writes", code, s.writes()-n)
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != string(token) {
		t.Errorf("the token's file was changed: %v", err)
	}
	// Without a terminal nobody can be asked for a password.
	if _, errs, code := castellan(t, s.env(), "labpass123\n", "mint", "--target", "lab", "--login", "ann@pve"); code != 2 || !strings.Contains(errs, "terminal") {
		t.Errorf("code %d: %s", code, errs)
	}
	for _, v := range []string{"8", "9"} {
		out, _, code := castellan(t, s.env(), "", "mint", "--print", v, "--capabilities", "exec")
		if code != 0 || strings.Contains(out, "VM.Monitor") != (v == "8") || strings.Contains(out, "VM.GuestAgent") != (v == "9") {
			t.Errorf("print %s: %s", v, out)
		}
	}
	for _, bad := range [][]string{{"--print", "7"}, {"--print", "9", "--capabilities", "pwoer"}, {"--print", "9", "--token", "root@pam!x"}, {"--print", "9", "--pool", "a;b"}, {"--print", "9", "--token", "x"}} {
		if _, errs, code := castellan(t, s.env(), "", append([]string{"mint"}, bad...)...); code != 2 {
			t.Errorf("%v: code %d %s", bad, code, errs)
		}
	}
}

// TestMintPermits: whatever is asked of it, a login is used for the five requests and the named user only.
func TestMintPermits(t *testing.T) {
	w := rights.Want{User: "fresh@pve", Token: "one", Capabilities: []string{"power"}}
	m, err := proxmox.NewMinter(proxmox.MinterConfig{Address: "127.0.0.1:1", Pins: []string{strings.Repeat("00", 32)}, Person: "root@pam", Want: w})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range w.Commands(nil) {
		if err := m.Permits(c); err != nil {
			t.Errorf("%v: %v", c, err)
		}
	}
	command := func(op string, pairs ...string) rights.Command {
		p := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			p[pairs[i]] = pairs[i+1]
		}
		return rights.Command{Operation: op, Params: p}
	}
	for _, c := range []rights.Command{
		command("POST /nodes/pve1/status", "command", "reboot"),
		command("DELETE /access/users/{userid}", "userid", "fresh@pve"),
		command("POST /access/users", "userid", "other@pve"),
		command("POST /access/users", "userid", "fresh@pve", "password", "x"),
		command("PUT /access/roles/{roleid}", "roleid", "PVEAdmin", "privs", "VM.Audit"),
		command("PUT /access/acl", "path", "/", "users", "other@pve", "roles", "Administrator"),
		command("PUT /access/acl", "path", "/", "groups", "ops", "users", "fresh@pve", "roles", "PVEAuditor"),
		command("PUT /access/acl", "path", "/", "users", "fresh@pve,other@pve", "roles", "PVEAuditor"),
		command("PUT /access/acl", "path", "/", "users", "fresh@pve", "roles", "PVEAuditor", "delete", "1"),
		command("POST /access/users/{userid}/token/{tokenid}", "userid", "fresh@pve", "tokenid", "one", "privsep", "0"),
		command("POST /access/users/{userid}/token/{tokenid}", "userid", "root@pam", "tokenid", "one", "privsep", "1"),
	} {
		if m.Permits(c) == nil {
			t.Errorf("%v may be sent", c)
		}
	}
}
