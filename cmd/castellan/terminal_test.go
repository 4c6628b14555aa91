//go:build unix

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"

	"github.com/creack/pty"

	"castellan/internal/cli"
	"castellan/internal/lab"
)

// terminal is castellan on a terminal of its own.
type terminal struct {
	t    testing.TB
	cmd  *exec.Cmd
	file *os.File
	all  *lockedBuffer
	from int
}

func onTerminal(t *testing.T, env []string, args ...string) *terminal {
	t.Helper()
	cmd := command(t, env, args...)
	f, err := pty.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	return readTerminal(t, cmd, f)
}

func readTerminal(t testing.TB, cmd *exec.Cmd, f *os.File) *terminal {
	t.Helper()
	r := &terminal{t: t, cmd: cmd, file: f, all: &lockedBuffer{}}
	go func() {
		b := make([]byte, 4096)
		for {
			n, err := f.Read(b)
			_, _ = r.all.Write(b[:n])
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = f.Close()
	})
	return r
}

// shows waits until this appears after what was shown before.
func (r *terminal) shows(text string) {
	r.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		got := r.all.String()
		if i := strings.Index(got[r.from:], text); i >= 0 {
			r.from += i + len(text)
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("%q is not shown; shown is:\n%s", text, got)
		}
	}
}

func (r *terminal) types(text string) {
	r.t.Helper()
	if _, err := r.file.WriteString(text + "\n"); err != nil {
		r.t.Fatal(err)
	}
}

func (r *terminal) ends() int {
	r.t.Helper()
	done := make(chan struct{})
	go func() { _ = r.cmd.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(patience):
		r.t.Fatalf("it does not end; shown is:\n%s", r.all)
	}
	time.Sleep(50 * time.Millisecond) // the rest of the output
	return r.cmd.ProcessState.ExitCode()
}

// TestInit goes through the set-up as a person does.
func TestInit(t *testing.T) {
	s := newSite(t, lab.Config{}, "")
	address := regexp.MustCompile(`addresses = \["([^"]*)"`).FindStringSubmatch(s.text(t))[1]
	_, secret, _ := strings.Cut(s.lab.Tokens()["operator"], "PVEAPIToken=")
	id, _, _ := strings.Cut(secret, "=")
	home := filepath.Join(t.TempDir(), "a home")
	env := []string{"HOME=" + home, "XDG_CONFIG_HOME=", "XDG_STATE_HOME=", "CASTELLAN_CONFIG="}

	r := onTerminal(t, env, "init", "--minimal")
	r.shows("Address of a Proxmox VE node")
	r.types("https://" + address + "/")
	r.shows(s.lab.Fingerprint())
	r.shows("Type yes")
	r.types("no")
	if code := r.ends(); code != 3 {
		t.Errorf("exit code %d after a no to the fingerprint", code)
	}
	r.shows("nothing was written")
	if _, err := os.Stat(filepath.Join(home, ".config", "castellan")); err == nil {
		t.Error("something was written after a no")
	}

	r = onTerminal(t, env, "init", "--minimal")
	r.shows("Address")
	r.types(address)
	r.shows("Type yes")
	r.types("yes")
	r.shows("1, 2 or 3")
	r.types("2")
	r.shows("castellan-guests")
	r.shows("pveum user token add")
	r.shows("secret that the token command printed")
	r.types(secret)
	r.shows("A test read")
	r.shows("pve1")
	r.shows("mcpServers")
	r.shows("claude mcp add castellan")
	if code := r.ends(); code != 0 {
		t.Errorf("exit code %d:\n%s", code, r.all)
	}
	shown := r.all.String()
	if strings.Contains(shown, secret[len(id)+1:]) {
		t.Error("the token was echoed")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(home, ".config", "castellan", "castellan.toml")
	if !filepath.IsAbs(self) || !strings.Contains(shown, fmt.Sprintf("%q", self)) || !strings.Contains(shown, "--config '"+config+"'") {
		t.Errorf("the snippets:\n%s", shown)
	}
	for path, want := range map[string]os.FileMode{"": 0o700, "castellan.toml": 0o600, "pve.token": 0o600, "keys": 0o700} {
		info, err := os.Stat(filepath.Join(filepath.Dir(config), path))
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%q: %v %v", path, info.Mode(), err)
		}
	}
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`capabilities = ["backup", "config", "power", "snapshot"]`, `stand_in = "dialog"`, s.lab.Fingerprint(), "url = "} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s is not in the configuration:\n%s", want, text)
		}
	}
	if strings.Contains(string(text), secret[len(id)+1:]) {
		t.Error("the token stands in the configuration")
	}
	out, errs, code := castellan(t, env, "", "call", "list_nodes", "--json")
	if code != 0 || !strings.Contains(out, "pve3") {
		t.Errorf("code %d: %s %s", code, out, errs)
	}

	r = onTerminal(t, env, "init", "--minimal")
	r.shows("there is a configuration already")
	if code := r.ends(); code != 2 {
		t.Errorf("exit code %d where there is a configuration", code)
	}
	if again, err := os.ReadFile(config); err != nil || string(again) != string(text) {
		t.Error("the configuration was changed")
	}
}

// TestInitRefuses what cannot be right, before anything is written.
func TestInitRefuses(t *testing.T) {
	s := newSite(t, lab.Config{}, "")
	address := regexp.MustCompile(`addresses = \["([^"]*)"`).FindStringSubmatch(s.text(t))[1]
	env := []string{"CASTELLAN_CONFIG=" + filepath.Join(t.TempDir(), "c", "castellan.toml")}
	for _, c := range []struct {
		args  []string
		stdin string
		code  int
		says  string
	}{
		{nil, "", 2, "nothing was typed"},
		{[]string{"--minimal"}, "", 2, "nothing was typed"},
		{[]string{"--minimal", "--address", "http://x/y"}, "", 2, "host or host:port"},
		{[]string{"--minimal", "--address", "127.0.0.1:1"}, "", 6, "127.0.0.1:1"},
		{[]string{"--minimal", "--address", address, "--fingerprint", "00:11"}, "", 3, s.lab.Fingerprint()},
		{[]string{"--minimal", "--address", address, "--fingerprint", s.lab.Fingerprint(), "--allow", "everything"}, "", 2, "everyday"},
		{[]string{"--minimal", "--address", address, "--fingerprint", s.lab.Fingerprint(), "--allow", "all", "--stand-in", "nobody"}, "00000000-0000-0000-0000-000000000000\n", 2, "dialog"},
		{[]string{"--minimal", "--address", address, "--fingerprint", s.lab.Fingerprint(), "--allow", "look"}, "nonsense\n", 2, "no token secret"},
		{[]string{"--minimal", "--address", address, "--fingerprint", s.lab.Fingerprint(), "--allow", "look", "--token-file", "/nonexistent"}, "", 1, "/nonexistent"},
	} {
		out, errs, code := castellan(t, env, c.stdin, append([]string{"init"}, c.args...)...)
		if code != c.code || out != "" || !strings.Contains(errs, c.says) {
			t.Errorf("%q: code %d, %s%s", c.args, code, out, errs)
		}
	}
	if _, err := os.Stat(filepath.Dir(strings.TrimPrefix(env[0], "CASTELLAN_CONFIG="))); err == nil {
		t.Error("something was written")
	}
	// A wrong secret is found out by the test read; the configuration stays, and what to do is said.
	out, errs, code := castellan(t, env, "castellan@pve!castellan=00000000-0000-0000-0000-000000000000\n", "init", "--minimal", "--address", address, "--fingerprint", s.lab.Fingerprint(), "--allow", "look")
	if code == 0 || !strings.Contains(errs, "The test read failed") || strings.Contains(out, "mcpServers") {
		t.Errorf("code %d: %s%s", code, out, errs)
	}
}

// TestApplyOnATerminal: only the whole word, or the phrase where one is asked for, carries a plan out.
func TestApplyOnATerminal(t *testing.T) {
	s := newSite(t, lab.Config{}, strings.Replace(all(), `"phrase"`, `"dialog"`, 1))
	plan := func(action string) string {
		t.Helper()
		out, errs, code := castellan(t, s.env(), "", "call", "guest_power", "101", "--action", action, "--json")
		m := regexp.MustCompile(`"id": "(p-[a-z0-9]+)"`).FindStringSubmatch(out)
		if code != 8 || m == nil {
			t.Fatalf("code %d: %s%s", code, out, errs)
		}
		return m[1]
	}
	sent := func() int { return s.asked("POST", "/qemu/101/status/") }
	id := plan("stop")
	for _, no := range []string{"no", "y", "YES", "", "yes please"} {
		r := onTerminal(t, s.env(), "apply", id)
		r.shows("Stop VM 101")
		r.shows(`Type "yes"`)
		r.types(no)
		r.shows("Nothing has changed")
		if code := r.ends(); code != 8 || sent() != 0 {
			t.Fatalf("%q: code %d, %d writes", no, code, sent())
		}
	}
	r := onTerminal(t, s.env(), "apply", id)
	r.shows(`Type "yes"`)
	_, _ = r.file.Write([]byte{4}) // end of input
	if code := r.ends(); code != 8 || sent() != 0 {
		t.Errorf("end of input: code %d, %d writes", code, sent())
	}
	r = onTerminal(t, s.env(), "apply", id)
	r.shows(`Type "yes"`)
	r.types("yes")
	r.shows(": done")
	if code := r.ends(); code != 0 || sent() != 1 {
		t.Errorf("yes: code %d, %d writes", code, sent())
	}

	s.write(t, strings.Replace(s.text(t), `stand_in = "dialog"`, `stand_in = "phrase"`, 1))
	if _, errs, code := castellan(t, s.env(), "", "call", "guest_power", "101", "--action", "start"); code != 0 {
		t.Fatal(errs)
	}
	id = plan("stop")
	r = onTerminal(t, s.env(), "apply", id)
	r.shows("Carry this out? Type ")
	r.types("yes")
	r.shows("Nothing has changed")
	if code := r.ends(); code != 8 {
		t.Errorf("yes for a phrase: code %d", code)
	}
	r = onTerminal(t, s.env(), "apply", id)
	r.shows("Carry this out? Type \"")
	time.Sleep(100 * time.Millisecond)
	phrase, _, _ := strings.Cut(r.all.String()[r.from:], `"`)
	r.types(phrase)
	r.shows(": done")
	if code := r.ends(); code != 0 || !strings.Contains(phrase, "101") {
		t.Errorf("phrase %q: code %d", phrase, code)
	}

	// A change asked for on a terminal is asked about there and then.
	r = onTerminal(t, s.env(), "call", "guest_power", "102", "--action", "shutdown")
	r.shows("Shut down VM 102")
	r.shows("Carry this out?")
	r.types("yes")
	r.shows(": done")
	if code := r.ends(); code != 0 {
		t.Errorf("code %d", code)
	}
}

// TestSignalEnds: a signal ends the server in good order, as the end of stdin does.
func TestSignalEnds(t *testing.T) {
	s := newSite(t, lab.Config{Delays: true}, all())
	for _, sig := range []os.Signal{syscall.SIGTERM, os.Interrupt, syscall.SIGHUP} {
		r := startRaw(t, s.env(), "serve")
		r.initialize("2025-11-25")
		r.send(`{"jsonrpc":"2.0","id":90,"method":"tools/call","params":{"name":"list_tasks","arguments":{}}}`)
		began := time.Now()
		if err := r.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			for range r.lines {
			}
			_ = r.cmd.Wait()
			close(done)
		}()
		select {
		case <-done:
		case <-time.After(patience):
			t.Fatalf("%v does not end it", sig)
		}
		if took := time.Since(began); took > 2*time.Second || !r.cmd.ProcessState.Exited() {
			t.Errorf("%v: %v, %v", sig, took, r.cmd.ProcessState)
		}
	}
}

// TestTerminalIsSafe: nothing that a guest says of itself steers the terminal of who reads it.
func TestTerminalIsSafe(t *testing.T) {
	s := newSite(t, lab.Config{}, all())
	const evil = "a\x1b]0;owned\x07\x1b[2J\u009b31m\u202eb\rc\x00"
	header := map[string][]string{"Authorization": {s.lab.Tokens()["admin"]}, "Content-Type": {"application/x-www-form-urlencoded"}}
	body := strings.NewReplacer("\x1b", "%1B", "\x07", "%07", "\u009b", "%C2%9B", "\u202e", "%E2%80%AE", "\r", "%0D", "\x00", "%00", "]", "%5D", "[", "%5B", ";", "%3B").Replace("description=" + evil)
	if status, reason, answer := s.lab.Do(context.Background(), "PUT", "/api2/json/nodes/pve1/qemu/101/config", header, []byte(body)); status != 200 {
		t.Fatalf("the site does not take the description: %d %s %s", status, reason, answer)
	}
	env := s.env()
	for _, args := range [][]string{{"call", "guest_config", "101"}, {"call", "guest_config", "101", "--json"}, {"call", "call_operation", "--operation", "GET /nodes/pve1/qemu/101/config"},
		{"call", "set_guest_config", "101", "--set", `{"description":"x"}`}, {"call", "set_guest_config", "101", "--set", `{"description":"x"}`, "--json"},
		{"call", evil[:20]}, {"plans", "show", "p-\x1b[2J"}, {"call", "guest_status", "x\x1b[2Jy"}, {"catalog", "find", "x\x1b[2J"}, {"audit", "search", "--text", "\x1b[2J"}, {"policy", "explain", "\x1b[2J"},
		{"\x1b[2J"}, {"call", "list_guests", "--\x1b[2J"}, {"apply", "\x1b[2J", "--json"}, {"audit", "search", "--payloads"}, {"audit", "search", "--payloads", "--json"}} {
		out, errs, _ := castellan(t, env, "", args...)
		for _, r := range out + errs {
			if r != '\n' && r != '\t' && (!unicode.IsPrint(r) || cli.Safe(string(r)) != string(r)) && r != unicode.ReplacementChar {
				t.Errorf("castellan %q prints %q:\n%q", args, r, out+errs)
				break
			}
		}
	}
}

// TestInterruptEndsPrompts: Ctrl-C at any question ends the program at once, leaves the terminal as it was, and says
// what stands.
func TestInterruptEndsPrompts(t *testing.T) {
	s := newSite(t, lab.Config{}, all())
	address := regexp.MustCompile(`addresses = \["([^"]*)"`).FindStringSubmatch(s.text(t))[1]
	home := t.TempDir()
	env := []string{"HOME=" + home, "XDG_CONFIG_HOME=", "XDG_STATE_HOME=", "CASTELLAN_CONFIG="}
	questions := [][2]string{{"Address of", address}, {"Type yes", "yes"}, {"1, 2 or 3", "1"}, {"secret that the token command printed", ""}}
	for stop := range questions {
		r := onTerminal(t, env, "init", "--minimal")
		for i, q := range questions[:stop+1] {
			r.shows(q[0])
			if i < stop {
				r.types(q[1])
			}
		}
		time.Sleep(50 * time.Millisecond) // the prompt is shown a moment before echo is off
		if _, err := r.file.WriteString("\x03"); err != nil {
			t.Fatal(err)
		}
		r.shows("nothing was written")
		if code := r.ends(); code == 0 {
			t.Errorf("question %q: exit code 0 after Ctrl-C", questions[stop][0])
		}
	}
	if _, err := os.Stat(filepath.Join(home, ".config")); err == nil {
		t.Error("something was written")
	}
	r := onTerminal(t, s.env(), "call", "guest_power", "101", "--action", "shutdown")
	r.shows("Carry this out?")
	if _, err := r.file.WriteString("\x03"); err != nil {
		t.Fatal(err)
	}
	r.shows("Nothing has changed")
	if code := r.ends(); code != 8 {
		t.Errorf("exit code %d after Ctrl-C", code)
	}
}

// TestInitAsksAgain: a slip does not throw away what was answered before.
func TestInitAsksAgain(t *testing.T) {
	s := newSite(t, lab.Config{}, "")
	address := regexp.MustCompile(`addresses = \["([^"]*)"`).FindStringSubmatch(s.text(t))[1]
	home := t.TempDir()
	env := []string{"HOME=" + home, "XDG_CONFIG_HOME=", "XDG_STATE_HOME=", "CASTELLAN_CONFIG="}
	r := onTerminal(t, env, "init", "--minimal")
	for _, q := range [][2]string{{"Address", "http://x/y"}, {"Once more", address}, {"Type yes", "perhaps"}, {"Once more", "Y"}, {"1, 2 or 3", "4"}, {"Once more", "Look"},
		{"secret that", "nonsense"}, {"secret that", "00000000-0000-0000-0000-000000000000"}, {"does not take this token", ""}} {
		r.shows(q[0])
		if q[1] != "" {
			time.Sleep(50 * time.Millisecond) // a secret is typed once echo is off
			r.types(q[1])
		}
	}
	r.shows("secret that")
	time.Sleep(50 * time.Millisecond)
	r.types(s.lab.Tokens()["auditor"])
	r.shows("pve1 is online")
	r.shows("claude mcp add")
	if code := r.ends(); code != 0 {
		t.Errorf("exit code %d:\n%s", code, r.all)
	}
	config := filepath.Join(home, ".config", "castellan", "castellan.toml")
	if err := os.Remove(config); err != nil {
		t.Fatal(err)
	}
	r = onTerminal(t, env, "init", "--minimal")
	r.shows("there is a token of an earlier set-up")
	if code := r.ends(); code != 2 {
		t.Errorf("exit code %d where a token is left", code)
	}
	token := filepath.Join(filepath.Dir(config), "pve.token")
	if out, errs, code := castellan(t, env, "", "init", "--minimal", "--address", address, "--fingerprint", s.lab.Fingerprint(), "--allow", "look", "--token-file", token); code != 0 || !strings.Contains(out, "mcpServers") {
		t.Errorf("with the token that was left: code %d: %s%s", code, out, errs)
	}
}
