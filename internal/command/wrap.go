package command

import (
	"strings"
)

// wrapper is a command that starts another one.
type wrapper struct {
	valued  string   // short options that take a value
	long    []string // long options that take a value in the next argument
	skip    int      // operands before the command
	sets    bool     // NAME=value may stand before the command
	risk    Risk     // what starting something that way is by itself
	special func(c *call) bool
}

// wrappers lists them by name.
func wrappers() map[string]wrapper {
	plain := wrapper{}
	return map[string]wrapper{
		"sudo":   {valued: "ughpCrtTUDRc", long: []string{"--user", "--group", "--host", "--prompt", "--chdir", "--chroot", "--role", "--type", "--other-user", "--close-from"}, sets: true, special: sudo},
		"doas":   {valued: "uCa", sets: true},
		"env":    {valued: "uCS", long: []string{"--unset", "--chdir", "--split-string"}, sets: true, special: env},
		"nice":   {valued: "n", long: []string{"--adjustment"}},
		"ionice": {valued: "cnpPu", long: []string{"--class", "--classdata", "--pid"}},
		"nohup":  plain, "setsid": plain, "exec": {valued: "a"}, "command": {special: lookup}, "builtin": plain, "unbuffer": plain, "catchsegv": plain, "fakeroot": {valued: "lsib"},
		"stdbuf": {valued: "ioe", long: []string{"--input", "--output", "--error"}}, "timeout": {valued: "sk", long: []string{"--signal", "--kill-after"}, skip: 1},
		"time": {valued: "fo", long: []string{"--format", "--output"}}, "chrt": {valued: "TPD", skip: 1}, "taskset": {skip: 1}, "numactl": {valued: "NmiCPH"},
		"unshare": {valued: "RwSGl", risk: Medium}, "nsenter": {valued: "tSGr", long: []string{"--target"}, risk: High}, "chroot": {skip: 1, risk: Medium, long: []string{"--userspec", "--groups"}},
		"setpriv": {long: []string{"--reuid", "--regid", "--groups"}}, "prlimit": plain, "setarch": {skip: 1}, "linux32": plain, "linux64": plain, "strace": {valued: "eoapsuEPSIOXb"}, "ltrace": {valued: "eoasuEnlx"},
		"systemd-run":     {valued: "pEHMtu", long: []string{"--unit", "--property", "--description", "--slice", "--uid", "--gid", "--nice", "--working-directory", "--setenv", "--machine", "--on-calendar", "--on-active"}, sets: true, risk: Medium},
		"systemd-inhibit": plain, "systemd-cat": {valued: "tp"}, "cpulimit": {valued: "lpe"}, "firejail": plain, "proxychains": plain, "torsocks": plain, "chpst": {valued: "uUbemdonlpfcr"}, "setuidgid": {skip: 1},
		"xargs":    {valued: "aEILnPsdi", long: []string{"--arg-file", "--delimiter", "--max-lines", "--max-args", "--max-procs", "--max-chars", "--replace"}, special: xargs},
		"parallel": {valued: "jJaINLnSs", long: []string{"--jobs", "--arg-file"}, special: xargs}, "watch": {valued: "n", long: []string{"--interval"}, special: joined}, "entr": plain,
		"busybox": {special: busybox}, "toybox": {special: busybox}, "flock": {valued: "wEc", long: []string{"--timeout", "--command"}, skip: 1, special: dashC},
		"ssh": {valued: "bcDEeFIiJLlmOopQRSWwB", skip: 1, risk: Medium, special: remote}, "su": {special: su}, "runuser": {valued: "ugGsc", special: runuser}, "script": {special: dashC}, "sg": {special: su}, "newgrp": plain,
		"pct": {special: proxmoxGuest}, "qm": {special: proxmoxGuest}, "lxc-attach": {valued: "nf", long: []string{"--name"}, risk: Medium, special: afterDashes}, "machinectl": {special: afterDashes},
		"docker": {special: container}, "podman": {special: container}, "kubectl": {special: container}, "nerdctl": {special: container}, "crictl": {special: container}, "lxc": {special: container}, "incus": {special: container},
		"eval": {special: eval}, "trap": {special: trap}, "alias": {special: alias}, "at": {special: later}, "batch": {special: later},
	}
}

// unwrap judges what a wrapper starts.
func (c *call) unwrap(w wrapper) {
	if w.risk > Low {
		c.j.raise(w.risk, "%s runs a command elsewhere or later", c.name)
	}
	if w.special != nil && w.special(c) {
		return
	}
	i, sure := c.skipOptions(w)
	for skip := w.skip; skip > 0 && i < len(c.args); skip-- {
		i++
	}
	for w.sets && i < len(c.args) && assigns(c.args[i].text) {
		name, value, _ := strings.Cut(c.args[i].text, "=")
		c.j.sets(name, value, true)
		i++
	}
	if i < len(c.args) {
		c.rest(c.args[i:])
	}
	if !sure {
		// An option that is not known may take a value: then the command begins later.
		for k := i + 1; k < len(c.args) && k < i+6; k++ {
			in := &judge{cwd: c.j.cwd, functions: c.j.functions, nested: c.j.nested, work: c.j.work, watch: Watcher{Command: c.j.watch.Command}, wrappers: c.j.wrappers, rules: c.j.rules}
			inv := c.inv
			inv.words, inv.sets, inv.redirects = c.args[k:], nil, nil
			in.run(inv)
			c.j.work = in.work
			if in.risk == High {
				for _, r := range in.reasons[High] {
					c.high("%s", r)
				}
			}
		}
	}
}

// skipOptions finds where the options end; sure is false when one of them is not known.
func (c *call) skipOptions(w wrapper) (i int, sure bool) {
	sure = true
	for i < len(c.args) {
		a := c.args[i].text
		switch {
		case c.args[i].unknown:
			return i, sure
		case a == "--":
			return i + 1, sure
		case strings.HasPrefix(a, "--"):
			name, _, valued := strings.Cut(a, "=")
			i++
			for _, l := range w.long {
				if !valued && name == l {
					i++
				}
			}
			sure = sure && (valued || contains(w.long, name) || plainOption(name))
		case strings.HasPrefix(a, "-") && a != "-":
			i++
			if n := strings.IndexAny(a[1:], w.valued); w.valued != "" && n >= 0 {
				if n == len(a)-2 {
					i++
				}
			} else if strings.Trim(a[1:], "0123456789") != "" && len(a) > 2 {
				sure = false
			}
		case strings.HasPrefix(a, "+") && c.name == "chrt":
			i++
		default:
			return i, sure
		}
	}
	return i, sure
}

func plainOption(name string) bool {
	return contains([]string{"--ignore-environment", "--preserve-env", "--login", "--non-interactive", "--stdin", "--set-home", "--foreground", "--preserve-status", "--wait", "--pty", "--pipe", "--quiet", "--scope",
		"--null", "--no-run-if-empty", "--interactive", "--verbose", "--user", "--collect", "--fork", "--mount", "--net", "--pid", "--ipc", "--uts"}, name)
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

func sudo(c *call) bool {
	if c.flag("e", "--edit") {
		c.high("it edits a file as another user")
		return true
	}
	if c.flag("si", "--shell", "--login") && len(c.operands()) == 0 {
		c.shellFed()
		return true
	}
	return false
}

func env(c *call) bool {
	for i, a := range c.args {
		s, ok := strings.CutPrefix(a.text, "--split-string=")
		if !ok && strings.HasPrefix(a.text, "-") && !strings.HasPrefix(a.text, "--") && strings.Contains(a.text, "S") {
			_, s, _ = strings.Cut(a.text, "S")
			ok = true
		}
		if ok || a.text == "--split-string" {
			rest := c.args[i+1:]
			if s != "" {
				rest = append([]word{{text: s}}, rest...)
			}
			c.script(rest)
			return true
		}
	}
	return false
}

func lookup(c *call) bool { return c.flag("vV") }

// xargs gives what it reads to a command, as options too.
func xargs(c *call) bool {
	i, _ := c.skipOptions(c.j.wrappers[c.name])
	if i < len(c.args) {
		args := append(append([]word(nil), c.args[i:]...), word{unknown: true})
		c.rest(args)
		return true
	}
	if c.name == "parallel" {
		c.high("it runs the lines that it reads")
	}
	return true // echo
}

func joined(c *call) bool {
	i, _ := c.skipOptions(c.j.wrappers[c.name])
	c.script(c.args[i:])
	return true
}

func busybox(c *call) bool {
	if len(c.args) > 0 && strings.HasPrefix(c.args[0].text, "--") {
		return true
	}
	return false
}

// dashC: the command is the text after -c.
func dashC(c *call) bool {
	for i, a := range c.args {
		if a.text == "--" {
			return false
		}
		short := strings.HasPrefix(a.text, "-") && !strings.HasPrefix(a.text, "--")
		switch {
		case short && strings.HasSuffix(a.text, "c") || a.text == "--command":
			if i+1 < len(c.args) {
				c.script(c.args[i+1 : i+2])
			}
			return true
		case strings.HasPrefix(a.text, "--command="):
			c.script([]word{{text: strings.TrimPrefix(a.text, "--command="), unknown: a.unknown}})
			return true
		case short && strings.Contains(a.text, "c") && c.name != "flock":
			_, s, _ := strings.Cut(a.text, "c")
			c.script([]word{{text: s, unknown: a.unknown}})
			return true
		}
	}
	if c.name == "script" {
		c.medium("it writes a record of a session")
		return true
	}
	return false
}

func su(c *call) bool {
	if !dashC(c) {
		if o := c.operands(); c.name == "sg" && len(o) > 1 {
			c.script(o[1:])
			return true
		}
		c.shellFed()
	}
	return true
}

func runuser(c *call) bool {
	if c.flag("u", "--user") {
		return false
	}
	return su(c)
}

// remote: everything after the host is joined and read by a shell there.
func remote(c *call) bool {
	for i, a := range c.args {
		if strings.Contains(strings.ToLower(a.text), "command") && (strings.HasPrefix(a.text, "-o") || i > 0 && c.args[i-1].text == "-o") {
			c.high("an option of ssh runs a command here")
		}
	}
	i, _ := c.skipOptions(c.j.wrappers["ssh"])
	if i+1 < len(c.args) {
		c.script(c.args[i+1:])
	} else {
		c.shellFed()
	}
	return true
}

// afterDashes: the command stands after --.
func afterDashes(c *call) bool {
	for i, a := range c.args {
		if a.text == "--" {
			if i+1 < len(c.args) {
				c.rest(c.args[i+1:])
			}
			return true
		}
	}
	if c.name == "machinectl" && (c.verb() == "list" || c.verb() == "status" || c.verb() == "") {
		return true
	}
	c.medium("%s reaches into a container", c.name)
	return true
}

func proxmoxGuest(c *call) bool {
	o := c.operands()
	verb := c.verb()
	switch {
	case verb == "exec" && len(o) > 2 || verb == "enter" || verb == "guest" && len(o) > 3 && o[1].text == "exec":
		c.medium("it runs a command in a guest")
		skip := 2
		if verb == "guest" {
			skip = 3
		}
		if len(o) > skip {
			c.rest(o[skip:])
		}
	default:
		c.byVerb([]string{"list", "config", "status", "pending", "listsnapshot", "showcmd", "df", "cpusets", "help", "guest"},
			[]string{"destroy", "rollback", "delsnapshot", "unlock", "stop", "reset", "monitor", "terminal", "push", "template", "unlink", "nbdstop", "sendkey", "fsck", "restore", "import"})
	}
	return true
}

func container(c *call) bool {
	o := c.operands()
	for i, a := range o {
		if i > 0 && i < 3 && (o[i-1].text == "exec" || o[i-1].text == "run") {
			_ = a
			c.medium("it runs a command in a container")
			rest := o[i+1:]
			for k := range rest {
				c.rest(rest[k:])
				if k > 3 {
					break
				}
			}
			if c.flag("", "--privileged") || c.has("-v", "--volume", "--mount") {
				c.high("the container reaches the host")
			}
			return true
		}
	}
	c.byVerb([]string{"ps", "images", "logs", "inspect", "stats", "top", "version", "info", "get", "describe", "list", "ls", "events", "port", "diff", "history", "search"},
		[]string{"rm", "rmi", "kill", "prune", "delete", "drain", "down", "system", "volume", "stop", "apply", "replace", "cordon"})
	return true
}

func eval(c *call) bool { c.script(c.args); return true }

func trap(c *call) bool {
	if len(c.args) > 1 {
		c.script(c.args[:1])
	}
	return true
}

func alias(c *call) bool {
	for _, a := range c.args {
		if _, value, ok := strings.Cut(a.text, "="); ok {
			c.high("it gives a command another meaning")
			c.script([]word{{text: value, unknown: a.unknown}})
		}
	}
	return true
}

// later: at and batch run what they are fed.
func later(c *call) bool {
	switch {
	case c.flag("l", "-l"):
	case c.flag("f"):
		c.high("it runs a file later")
	default:
		c.medium("it runs commands later")
		c.shellFed()
	}
	return true
}

// shellFed judges a shell that reads what it is fed.
func (c *call) shellFed() {
	fed := false
	for _, r := range c.inv.redirects {
		switch r.op {
		case "<<", "<<-", "<<<":
			fed = true
			if !r.known {
				c.unread("a part of what %s runs is filled in when it runs", c.name)
			}
			c.j.shell(r.body)
		case "<", "<>":
			fed = true
			c.high("%s runs a file that is not told here", c.name)
		}
	}
	switch {
	case fed:
	case c.inv.fed && c.inv.feed != nil:
		c.j.shell(*c.inv.feed)
	case c.inv.fed:
		c.unread("%s runs what another command writes", c.name)
	default:
		c.medium("%s runs what it is given later", c.name)
	}
}
