package lane

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// fuzzLock lets many commands through, so that fuzzing finds ways from one to another.
func fuzzLock(t testing.TB) *Lock {
	t.Helper()
	var s Settings
	for _, argv := range []string{"systemctl restart <unit>", "systemctl <word> <unit:nginx>", "tail -n <number:1-1000> -- <path:/var/log>", "echo <word...>", "cat <path>", "tool --level=<word> name=<name> <package> <address> <span>", "journalctl --vacuum-time=<span>", "/opt/app/run <word>", "uptime", "chmod <word> <path:/srv>", "docker <word> <name>"} {
		s.Commands = append(s.Commands, Rule{Guests: []string{"*"}, Argv: argv, Env: []string{"APP_MODE"}})
	}
	s.Scripts = Scope{Guests: []string{"101"}}
	l, err := New(Config{Settings: s})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// plain says whether an argument is printable ASCII without anything that a shell reads, judged apart from the code under test.
func plain(a string) bool {
	return strings.IndexFunc(a, func(r rune) bool { return r < ' ' || r > '~' || strings.ContainsRune(";|&$()`<>'\"\\", r) }) < 0
}

// What passes the lock of commands is plain text, stands in the list, and has no option that the list does not name.
func FuzzCommand(f *testing.F) {
	for _, s := range []string{"uptime", "systemctl\x01restart\x01nginx", "systemctl\x01restart\x01--root=/", "systemctl\x01start\x01poweroff.target", "tail\x01-n\x015\x01--\x01/var/log/../x", "echo\x01-n", "echo\x01a;b", "cat\x01/etc/passwd", "tool\x01--level=-x\x01name=a\x01b\x01c\x011h", "busybox\x01rm", "/bin/sh\x01-c\x01id", "chmod\x014755\x01/srv/x", "docker\x01exec\x01web", "echo\x01\u0430", "echo\x01@x"} {
		f.Add(s, "A=b", "/")
	}
	l := fuzzLock(f)
	literal := []string{"restart", "-n", "--", "uptime"}
	f.Fuzz(func(t *testing.T, line, env, dir string) {
		argv := strings.Split(line, "\x01")
		v := l.Command(ct101, Command{Argv: argv, Env: []string{env}, Dir: dir})
		if !v.Allowed {
			if v.Rule == "" || v.Reason == "" || v.Hint == "" || !utf8.ValidString(v.Reason) {
				t.Fatalf("%q is refused without saying why: %+v", argv, v)
			}
			return
		}
		for i, a := range argv {
			if !plain(a) {
				t.Fatalf("%q passes", argv)
			}
			if strings.HasPrefix(a, "-") && !slices.Contains(literal, a) && !strings.HasPrefix(a, "--level=") && !strings.HasPrefix(a, "--vacuum-time=") {
				t.Fatalf("%q passes with an option that no rule names", argv)
			}
			if i > 0 && (strings.Contains(a, "..") && strings.Contains(a, "/") || strings.HasPrefix(a, "@")) {
				t.Fatalf("%q passes", argv)
			}
		}
		if !slices.Contains([]string{"systemctl", "tail", "echo", "cat", "tool", "/opt/app/run", "uptime", "chmod", "docker"}, argv[0]) {
			t.Fatalf("%q passes", argv)
		}
		name, _, _ := strings.Cut(env, "=")
		if loads(name) || dir != "" && !strings.HasPrefix(dir, "/") || strings.Contains(dir, "..") && strings.Contains(dir, "/..") {
			t.Fatalf("%q, %q pass with %q", env, dir, argv)
		}
	})
}

// A probe's command differs from that of another value of the same argument in that value only, and no value becomes an option.
func FuzzProbe(f *testing.F) {
	for i := range Probes() {
		f.Add(uint16(i), uint8(0), "nginx")
		f.Add(uint16(i), uint8(1), "-x")
		f.Add(uint16(i), uint8(2), "/var/log/x")
		f.Add(uint16(i), uint8(0), "select 1; drop table x")
	}
	all := Probes()
	f.Fuzz(func(t *testing.T, which uint16, arg uint8, value string) {
		p := all[int(which)%len(all)]
		if len(p.Args) == 0 {
			if _, err := p.Command(map[string]string{value: value}); err == nil {
				t.Fatalf("%s takes the argument %q", p.Name, value)
			}
			return
		}
		a := p.Args[int(arg)%len(p.Args)]
		args := samples(t, p, true)
		base, err := p.Command(args)
		if err != nil {
			t.Fatal(err)
		}
		args[a.Name] = value
		inv, err := p.Command(args)
		if err != nil {
			return
		}
		want := slices.Concat([]Invocation{base}, base.Alternatives)
		got := slices.Concat([]Invocation{inv}, inv.Alternatives)
		if len(want) != len(got) {
			t.Fatalf("%s %s=%q: %d ways in place of %d", p.Name, a.Name, value, len(got), len(want))
		}
		if a.Kind == Query {
			if !slices.Equal(inv.Argv, base.Argv) || !strings.HasPrefix(string(inv.Input), "BEGIN READ ONLY;\n") || !strings.HasSuffix(string(inv.Input), "\n;\nROLLBACK;\n") || strings.Count(string(inv.Input), ";") != 3 || strings.Contains(string(inv.Input), `\`) {
				t.Fatalf("%q is asked as %q", value, inv.Input)
			}
			return
		}
		if strings.HasPrefix(value, "-") || !plain(value) || strings.Contains(value, "/../") {
			t.Fatalf("%s takes %s=%q", p.Name, a.Name, value)
		}
		for n := range got {
			if got[n].Argv[0] != want[n].Argv[0] || !slices.Equal(got[n].Env, want[n].Env) {
				t.Fatalf("%s %s=%q changes the program or its environment", p.Name, a.Name, value)
			}
			if a.Kind == Enum {
				continue // its few words choose options, each checked by the table
			}
			if len(got[n].Argv) != len(want[n].Argv) {
				t.Fatalf("%s %s=%q: %q in place of %q", p.Name, a.Name, value, got[n].Argv, want[n].Argv)
			}
			for i := range got[n].Argv {
				if strings.HasPrefix(got[n].Argv[i], "-") != strings.HasPrefix(want[n].Argv[i], "-") {
					t.Fatalf("%s %s=%q becomes an option: %q", p.Name, a.Name, value, got[n].Argv)
				}
			}
		}
	})
}

// Whatever a script is, the verdict comes, says why, and what is dangerous stays so when harmless lines surround it.
func FuzzJudge(f *testing.F) {
	for _, s := range []string{"ls", "rm -rf /", "$(", "`", "a <<E", "subprocess.run(['rm','-rf','/'])", "find / -exec find / -exec rm {} + ;", ":(){ :|:& };:", "open('/etc/pve/x','w')", "kill -9 -1", "usermod -", "chmod 7", "ip a f", "nft ''"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, by := range Interpreters() {
			if v := Judge(text, by); !v.Allowed && (v.Rule == "" || v.Reason == "" || v.Hint == "" || !utf8.ValidString(v.Reason)) {
				t.Fatalf("%q by %s: %+v", text, by, v)
			}
		}
		if v := Judge("ls\nrm -rf /\n"+text, "sh"); v.Allowed {
			t.Fatalf("rm -rf / passes before %q", text)
		}
	})
}

// A rule is read or refused; what it lets through of its own text has no placeholder left.
func FuzzRule(f *testing.F) {
	for _, s := range []string{"a", "a <word>", "a <word...>", "a <number:1-2> x=<unit:a,b>", "<word>", "a <", "a >", "a <path:/x>", "a -x=<word>", "a <word...> b", "a <unit:->", "a <number:2-1>"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, argv string) {
		p, _, err := parse(argv)
		if err != nil {
			return
		}
		var own []string
		for _, k := range p {
			if !plain(k.text) || k.holder && strings.HasPrefix(k.text, "-") && !strings.HasPrefix(k.text, "--") {
				t.Fatalf("%q is read as %+v", argv, p)
			}
			own = append(own, k.text)
		}
		if p.matches(own) != p.literal() {
			t.Fatalf("%q lets its own text through: %q", argv, own)
		}
	})
}
