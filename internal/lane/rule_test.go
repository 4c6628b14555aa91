package lane

import (
	"strings"
	"testing"
)

func TestRulesThatAreRefused(t *testing.T) {
	for argv, why := range map[string]string{
		"": "empty", "<word>": "the program must be named", "a <nothing>": "there is no placeholder", "a <word": "placeholder stands alone", "a <word>x": "placeholder stands alone", "a <wo<rd>": "placeholder stands alone", "a x<word>": "before a placeholder", "a -n<number>": "before a placeholder", "a -x=<word>": "before a placeholder",
		"a =<word>": "before a placeholder", "a --=<word>": "before a placeholder", "a <word...> b": "last part", "a x=<word...>": "last part", "a <path...>": "only <word...>", "a <word...:b>": "only <word...>", "a <sql>": "there is no placeholder", "a <enum>": "there is no placeholder", "a <path:etc>": "path", "a <path:/a/../b>": "..",
		"a <number:5>": "range", "a <number:9-1>": "range", "a <number:a-b>": "range", "a <unit:a;b>": "shells", "a <unit:-x>": "begins with", "a <unit:a,>": "empty", "a b;c": "shells", "a $x": "shells", "a 'b'": "shells", "a \u0430": "not ASCII", "sh -c x": "shell", "/usr/bin/python3 x": "runs code", "busybox ls": "starts other programs",
		"../x": "plain absolute path", "./x": "plain absolute path", "bin/x": "plain absolute path", "/opt/../bin/x": "plain absolute path", "/tmp/x": "others than root", "/proc/self/exe": "others than root", "A=b c": "no name of a program", "-x": "no name of a program", "env x": "starts other programs", "rm x": "destroys", "qm list": "goes round", "apt-get install x": "packages", "passwd x": "sign in",
		"systemd-run x": "starts", "mkfs.ext4 x": "destroys", "vi": "shell from within", "psql": "database", "crontab -l": "later", "reboot": "power", "modprobe x": "kernel", "nice ls": "starts", "sudo ls": "starts", "ld-linux-x86-64.so.2 x": "starts", "git-shell x": "", "Bash": "shell", "nc.traditional x": "starts", "perl5.36-x86_64-linux-gnu x": "runs code", "busybox-static ls": "starts",
	} {
		_, err := New(Config{Settings: Settings{Commands: []Rule{{Guests: []string{"101"}, Argv: argv}}}})
		if err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %v, want %q", argv, err, why)
		}
	}
	for name, s := range map[string]Settings{
		"id":      {Commands: []Rule{{Guests: []string{"0101"}, Argv: "uptime"}}},
		"id2":     {Scripts: Scope{Guests: []string{"101 -- sh"}}},
		"pool":    {Scripts: Scope{Pools: []string{"*"}}},
		"node":    {Scripts: Scope{Nodes: []string{"a b"}}},
		"env":     {Commands: []Rule{{Guests: []string{"101"}, Argv: "uptime", Env: []string{"LD_PRELOAD"}}}},
		"envname": {Commands: []Rule{{Guests: []string{"101"}, Argv: "uptime", Env: []string{"A=b"}}}},
		"probe":   {ProbesOff: []string{"nothing"}},
	} {
		if _, err := s.Validate(); err == nil {
			t.Errorf("settings %s are taken", name)
		}
	}
}

func TestWarnings(t *testing.T) {
	for _, c := range []struct {
		s    Settings
		want string // "" for none
	}{
		{Settings{}, ""},
		{Settings{Commands: []Rule{{Guests: []string{"101"}, Argv: "systemctl restart <unit:nginx>"}}}, ""},
		{Settings{Commands: []Rule{{Guests: []string{"*"}, Argv: "uptime"}}}, "every guest"},
		{Settings{Commands: []Rule{{Nodes: []string{"*"}, Argv: "uptime"}}}, "every node"},
		{Settings{Scripts: Scope{Guests: []string{"*"}}}, "every guest"},
		{Settings{Commands: []Rule{{Argv: "uptime"}}}, "allows nothing"},
		{Settings{Commands: []Rule{{Guests: []string{"101"}, Argv: "cat <path>"}}}, "every path"},
		{Settings{Commands: []Rule{{Guests: []string{"101"}, Argv: "cat <path:/srv>"}}}, "links"},
		{Settings{Commands: []Rule{{Guests: []string{"101"}, Argv: "app <word...>"}}}, "any number"},
		{Settings{Commands: []Rule{{Guests: []string{"101"}, Argv: "journalctl --vacuum-time=<span>"}}}, "never does"},
		{Settings{Commands: []Rule{{Guests: []string{"101"}, Argv: "systemctl edit <unit>"}}}, "never does"},
		{Settings{Commands: []Rule{{Guests: []string{"101"}, Argv: "journalctl --vacuum-time=7d"}}}, ""},
		{Settings{Commands: []Rule{{Guests: []string{"101"}, Argv: "docker stop <name>"}}}, "never does"},
		{Settings{Commands: []Rule{{Guests: []string{"101"}, Argv: "docker restart <name>"}}}, ""},
		{Settings{Commands: []Rule{{Guests: []string{"101"}, Argv: "sysctl vm.swappiness=<number:0-100>"}}}, ""},
	} {
		got, err := c.s.Validate()
		if err != nil || (len(got) == 0) != (c.want == "") || !strings.Contains(strings.Join(got, "\n"), c.want) {
			t.Errorf("%+v: %q, %v, want %q", c.s, got, err, c.want)
		}
	}
}

// A rule holds where it says, and nowhere else.
func TestPlaces(t *testing.T) {
	l, err := New(Config{Settings: Settings{ProbesOff: []string{"psql"}, Commands: []Rule{
		{Guests: []string{"101", "102"}, Argv: "a"}, {Pools: []string{"web"}, Argv: "b"}, {Nodes: []string{"pve1"}, Argv: "c"}, {Guests: []string{"*"}, Argv: "d"}, {Nodes: []string{"*"}, Argv: "e"},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		at   Place
		runs string
	}{
		{Place{Where: CT, Node: "pve1", VMID: 101}, "ad"}, {Place{Where: VM, Node: "pve1", VMID: 102}, "ad"}, {Place{Where: CT, VMID: 103, Pools: []string{"web", "x"}}, "bd"}, {Place{Where: CT, VMID: 1010}, "d"}, {Place{Where: Host, Node: "pve1"}, "ce"},
		{Place{Where: Host, Node: "pve2"}, "e"}, {Place{Where: Host, Node: "pve1", VMID: 101, Pools: []string{"web"}}, "ce"}, {Place{Where: Host}, ""}, {Place{Where: CT}, ""}, {Place{Where: CT, VMID: -101}, ""}, {Place{VMID: 101}, ""}, {Place{Where: "ct", VMID: 101}, ""}, {Place{Where: CT, VMID: 103, Pools: []string{""}}, "d"},
	} {
		got := ""
		for _, p := range []string{"a", "b", "c", "d", "e"} {
			if v := l.Command(c.at, Command{Argv: []string{p}}); v.Allowed {
				got += p
			} else if v.Rule != "commands" {
				t.Errorf("%v %s: %+v", c.at, p, v)
			}
		}
		if got != c.runs {
			t.Errorf("%v runs %q, want %q", c.at, got, c.runs)
		}
	}
	for _, c := range []struct {
		at   Place
		name string
		args map[string]string
		rule string
	}{
		{ct101, "memory", nil, ""}, {ct101, "smart", map[string]string{"disk": "/dev/sda"}, "probe"}, {ct101, "psql", map[string]string{"sql": "select 1"}, "probes_off"}, {ct101, "rm", nil, "probe"}, {ct101, "memory", map[string]string{"x": "y"}, "probe"}, {Place{}, "memory", nil, "probe"}, {Place{Where: Host, Node: "pve1"}, "containers", nil, "probe"},
	} {
		if inv, v := l.Probe(c.at, c.name, c.args); v.Allowed != (c.rule == "") || !v.Allowed && (v.Rule != c.rule || v.Reason == "" || v.Hint == "" || inv.Argv != nil) {
			t.Errorf("probe %s on %v: %+v", c.name, c.at, v)
		}
	}
}

// Each attack is refused by the rule that is meant against it, and the reason says what it was.
func TestAttacksAndTheirReasons(t *testing.T) {
	l := lockOf(t, "echo <word>", "systemctl restart <unit>", "docker <word> <name>")
	for _, c := range []struct {
		argv       []string
		env, dir   string
		rule, says string
	}{
		{argv: nil, rule: "argument", says: "no program"},
		{argv: []string{""}, rule: "argument", says: "no program"},
		{argv: []string{"echo", "a;b"}, rule: "argument", says: `";"`},
		{argv: []string{"echo", "a\nb"}, rule: "argument", says: "line break"},
		{argv: []string{"echo", "a\x00b"}, rule: "argument", says: "NUL"},
		{argv: []string{"echo", "a\x1b[2J"}, rule: "argument", says: "control character U+001B"},
		{argv: []string{"echo", "\u202eabc"}, rule: "argument", says: "invisible character U+202E"},
		{argv: []string{"echo", "\uff0d\uff0dhelp"}, rule: "argument", says: "not ASCII"},
		{argv: []string{"echo", "\xff"}, rule: "argument", says: "UTF-8"},
		{argv: []string{"echo", strings.Repeat("a", maxArg+1)}, rule: "argument", says: "longer than"},
		{argv: append([]string{"echo"}, strings.Split(strings.Repeat("a ", maxArgs), " ")...), rule: "argument", says: "more than"},
		{argv: append([]string{"echo"}, strings.Split(strings.Repeat(strings.Repeat("a", 4000)+" ", 20), " ")...), rule: "argument", says: "together"},
		{argv: []string{"/bin/echo", "a"}, rule: "commands", says: "no rule"},
		{argv: []string{"./echo", "a"}, rule: "program", says: "absolute path"},
		{argv: []string{"busybox", "echo", "a"}, rule: "program", says: "starts other programs"},
		{argv: []string{"env", "echo", "a"}, rule: "program", says: "starts other programs"},
		{argv: []string{"systemctl", "restart", "-Hroot"}, rule: "commands", says: "no rule"},
		{argv: []string{"systemctl", "restart", "reboot.target"}, rule: "option", says: "stops the machine"},
		{argv: []string{"systemctl", "restart", "pveproxy"}, rule: "risk", says: "high risk"},
		{argv: []string{"docker", "run", "alpine"}, rule: "option", says: "reaches further"},
		{argv: []string{"echo", "a"}, env: "LD_PRELOAD=/x", rule: "env", says: "decides what is run"},
		{argv: []string{"echo", "a"}, env: "APP=x", rule: "env", says: "nor does the rule name it"},
		{argv: []string{"echo", "a"}, env: "LANG=/tmp/x", rule: "env", says: "plain value"},
		{argv: []string{"echo", "a"}, env: "TZ=../../tmp/x", rule: "env", says: "plain value"},
		{argv: []string{"echo", "a"}, dir: "srv", rule: "dir", says: "path"},
		{argv: []string{"echo", "a"}, dir: "/srv/../etc", rule: "dir", says: ".."},
	} {
		cmd := Command{Argv: c.argv, Dir: c.dir}
		if c.env != "" {
			cmd.Env = []string{c.env}
		}
		if v := l.Command(ct101, cmd); v.Allowed || v.Rule != c.rule || !strings.Contains(v.Reason, c.says) || v.Hint == "" {
			t.Errorf("%.80q %s %s: %+v, want %s: %s", c.argv, c.env, c.dir, v, c.rule, c.says)
		}
	}
	if v := l.Command(ct101, Command{Argv: []string{"echo", "a"}, Env: []string{"LANG=C.UTF-8", "TZ=Europe/Berlin"}, Dir: "/srv"}); !v.Allowed || v.Rule != "commands[1]: echo <word>" {
		t.Errorf("%+v", v)
	}
	if v := l.Command(Place{Where: CT, VMID: 999}, Command{Argv: []string{"echo", "a"}}); !strings.Contains(v.Hint, "the test") || !strings.Contains(v.Hint, "person") {
		t.Errorf("the hint names neither the setting nor that a person changes it: %s", v.Hint)
	}
}
