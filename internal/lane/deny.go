package lane

import (
	"path"
	"slices"
	"strings"

	"castellan/internal/command"
)

// seen is a command of a script with helpers to look at its arguments.
type seen struct{ command.Simple }

// flag says whether an option is given: short ones by letter, also among others, long ones by a beginning of theirs.
func (s seen) flag(short string, long ...string) bool {
	for _, a := range s.Args {
		given, _, _ := strings.Cut(a.Text, "=")
		switch {
		case a.Text == "--":
			return false
		case strings.HasPrefix(given, "--"):
			if slices.ContainsFunc(long, func(l string) bool { return len(given) > 3 && strings.HasPrefix(l, given) }) {
				return true
			}
		case strings.HasPrefix(given, "-") && strings.ContainsAny(given[1:], short):
			return true
		}
	}
	return false
}

func (s seen) has(words ...string) bool {
	return slices.ContainsFunc(s.Args, func(a command.Part) bool { return slices.Contains(words, a.Text) })
}

// operands are the arguments that are no options.
func (s seen) operands() (out []command.Part) {
	over := false
	for _, a := range s.Args {
		switch {
		case over || !strings.HasPrefix(a.Text, "-") || a.Text == "-":
			out = append(out, a)
		case a.Text == "--":
			over = true
		}
	}
	return out
}

func (s seen) verb() string {
	if o := s.operands(); len(o) > 0 {
		return o[0].Text
	}
	return ""
}

// place is the full path of an operand; all says whether it stands for everything in that folder.
func (s seen) place(p command.Part) (full string, all bool) {
	text := p.Text
	if home := strings.TrimPrefix(text, "~root"); !p.Unknown && (home == "~" || strings.HasPrefix(home, "~/") || home != text && (home == "" || home[0] == '/')) {
		text = "/root" + strings.TrimPrefix(home, "~") // whom else a script runs as
	}
	switch {
	case strings.HasPrefix(text, "/"):
	case p.Unknown && text == "", strings.HasPrefix(text, "~"), s.Folder == "":
		return "", false
	default:
		text = s.Folder + "/" + text
	}
	if p.Glob {
		if dir, last := path.Split(text); strings.Trim(last, "*?.[!]^") == "" {
			return path.Clean(dir), true
		}
	}
	return path.Clean(text), false
}

// command judges one command at command position.
func (d *denial) command(c command.Simple) {
	if d.rule != "" {
		return // one finding is enough
	}
	s := seen{c}
	name := c.Name
	d.disk(s)
	d.network(s)
	d.platform(s)
	switch name {
	case "rm", "unlink", "rmdir", "shred", "srm", "wipe":
		d.removes(s)
	case "rsync":
		if o := s.operands(); s.flag("", "--delete", "--del", "--delete-after", "--delete-before", "--delete-during", "--delete-excluded") && len(o) > 0 {
			if full, _ := s.place(o[len(o)-1]); system(full) {
				d.deny("rm", "rsync --delete removes what is in %s", full)
			}
		}
	case "truncate":
		for _, o := range s.operands() {
			if full, _ := s.place(o); full != "" {
				d.writes(full)
			}
		}
	case ".", "source", "sh", "bash", "dash", "ksh", "zsh", "ash", "python":
		for _, o := range s.operands()[:min(1, len(s.operands()))] {
			if strings.HasPrefix(o.Text, "/dev/") || strings.HasPrefix(o.Text, "/proc/") {
				d.deny("unreadable", "%s runs what it is fed through %s", name, show(o.Text))
			}
		}
		if name == "python" {
			d.embedded(s)
		}
	case "perl", "ruby", "php", "node", "lua", "awk", "gawk", "mawk":
		d.embedded(s)
	case "mv":
		for _, o := range s.operands()[:max(0, len(s.operands())-1)] {
			if full, all := s.place(o); full != "" && !o.Unknown && (system(full) || within(full, []string{"/usr/bin", "/usr/lib", "/usr/sbin"})) {
				d.deny("rm", "mv takes %s away", what(full, all))
			}
		}
	case "find":
		d.find(s)
	case "passwd":
		if !s.flag("S", "--status") || s.flag("dlue", "--delete", "--lock", "--unlock", "--expire") {
			d.deny("accounts", "passwd changes a password")
		}
	case "chpasswd", "newusers", "vipw", "vigr", "visudo", "chgpasswd":
		d.deny("accounts", "%s changes who can sign in", name)
	case "usermod", "useradd", "adduser":
		if s.flag("pL", "--password", "--lock") && name != "adduser" {
			d.deny("accounts", "%s sets or locks a password", name)
		}
	case "userdel", "deluser":
		if s.has("root") {
			d.deny("accounts", "%s removes root", name)
		}
	case "chmod", "chown", "chgrp", "setfacl", "chattr":
		d.modes(s)
	case "crontab":
		if s.flag("r") {
			d.deny("crontab", "crontab -r removes all scheduled commands")
		}
	case "shutdown", "reboot", "halt", "poweroff", "telinit", "init", "kexec", "pm-suspend", "pm-hibernate", "openrc-shutdown":
		d.power(s)
	case "systemctl":
		if slices.Contains([]string{"poweroff", "reboot", "halt", "kexec", "soft-reboot", "suspend", "hibernate", "hybrid-sleep", "suspend-then-hibernate", "rescue", "emergency", "exit", "switch-root"}, s.verb()) ||
			slices.ContainsFunc(s.operands(), func(a command.Part) bool { return stops(a.Text) }) {
			d.deny("power", "systemctl %s stops or restarts the machine; use the power operations", s.verb())
		}
	case "kill":
		if !s.flag("lL", "--list", "--table") && slices.ContainsFunc(s.Args, func(a command.Part) bool { return a.Text == "1" }) && s.has("1") && !s.after("-s", "1") && !s.after("-n", "1") || len(s.Args) > 1 && s.Args[len(s.Args)-1].Text == "-1" {
			d.deny("kill", "kill ends process 1, or every process")
		}
	case "killall5":
		d.deny("kill", "killall5 ends every process")
	}
}

// embedded looks at code of another language that is given as an argument or fed.
func (d *denial) embedded(s seen) {
	for _, a := range s.Args {
		d.python(a.Text)
	}
	d.python(s.Input)
}

func (s seen) after(option, value string) bool {
	for i, a := range s.Args[:max(0, len(s.Args)-1)] {
		if a.Text == option && s.Args[i+1].Text == value {
			return true
		}
	}
	return false
}

func stops(unit string) bool {
	return slices.Contains([]string{"poweroff.target", "reboot.target", "halt.target", "kexec.target", "rescue.target", "emergency.target", "suspend.target", "hibernate.target", "shutdown.target", "exit.target", "ctrl-alt-del.target", "runlevel0.target", "runlevel1.target", "runlevel6.target"}, unit) ||
		strings.HasPrefix(unit, "systemd-poweroff") || strings.HasPrefix(unit, "systemd-reboot") || strings.HasPrefix(unit, "systemd-halt")
}

func (d *denial) power(s seen) {
	switch {
	case len(s.Args) == 1 && s.has("--help", "--version", "--show", "-c"):
	case (s.Name == "init" || s.Name == "telinit") && !slices.Contains([]string{"0", "1", "6", "s", "S", "single"}, s.verb()) && !(len(s.Args) > 0 && s.Args[0].Unknown):
	default:
		d.deny("power", "%s stops or restarts the machine; use the power operations", s.Name)
	}
}

// removes judges rm: of / and of the folders of the system, also where only a variable that may be empty stands before.
func (d *denial) removes(s seen) {
	if s.flag("", "--no-preserve-root") {
		d.deny("rm", "--no-preserve-root lets rm remove everything")
	}
	for _, o := range s.operands() {
		full, all := s.place(o)
		switch {
		case full == "":
		case o.Unknown && (full == "/" || all && system(full)):
			d.deny("rm", "%s removes %s when what is filled in there is empty", s.Name, show(o.Text))
		case o.Unknown:
		case system(full):
			d.deny("rm", "%s removes %s", s.Name, what(full, all))
		case within(full, deep) && full != "/dev":
			d.deny("rm", "%s removes %s, a part of the system", s.Name, show(full))
		}
	}
}

func what(full string, all bool) string {
	if all {
		return "everything in " + full
	}
	return full
}

// find judges -delete and -exec: on folders of the system only with something that chooses.
func (d *denial) find(s seen) {
	chooses := slices.ContainsFunc(s.Args, func(a command.Part) bool {
		for _, p := range []string{"-name", "-iname", "-path", "-ipath", "-wholename", "-regex", "-iregex", "-mtime", "-mmin", "-atime", "-ctime", "-newer", "-older", "-size", "-user", "-group", "-uid", "-perm", "-inum", "-lname", "-empty", "-nouser"} {
			if strings.HasPrefix(a.Text, p) {
				return true
			}
		}
		return false
	})
	var starts []string
	for _, a := range s.Args {
		if strings.HasPrefix(a.Text, "-") || a.Text == "!" || a.Text == "(" {
			break
		}
		full, _ := s.place(a)
		starts = append(starts, full)
	}
	for i := 0; i < len(s.Args); i++ {
		switch s.Args[i].Text {
		case "-delete":
			for _, start := range starts {
				if system(start) && (!chooses || start == "/") || within(start, deep) {
					d.deny("rm", "find deletes in %s", start)
				}
			}
		case "-exec", "-execdir", "-ok", "-okdir":
			inner := s.inner(i + 1)
			if i += len(inner); len(inner) == 0 {
				continue
			}
			if d.depth > 4 {
				d.deny("unreadable", "commands of find are nested too deep")
				return
			}
			if slices.Contains([]string{"rm", "shred", "unlink"}, path.Base(inner[0])) {
				for _, start := range starts {
					if system(start) && (!chooses || start == "/") || within(start, deep) {
						d.deny("rm", "find removes what is in %s", start)
					}
				}
			}
			d.depth++
			command.WalkArgv(inner, d.watcher())
			d.depth--
		}
	}
}

// inner is a command that stands within the arguments, up to its end.
func (s seen) inner(from int) (argv []string) {
	for _, a := range s.Args[min(from, len(s.Args)):] {
		if a.Text == ";" || a.Text == "+" {
			break
		}
		argv = append(argv, a.Text)
	}
	return argv
}

// modes judges chmod and its like on folders of the system.
func (d *denial) modes(s seen) {
	o := s.operands()
	if len(o) < 2 {
		return
	}
	mode := o[0].Text
	wide := s.Name == "chmod" && (strings.HasSuffix(mode, "7") || strings.HasSuffix(mode, "6") || strings.HasSuffix(mode, "2") || strings.HasSuffix(mode, "3")) && strings.Trim(mode, "01234567") == ""
	for part := range strings.SplitSeq(mode, ",") {
		if i := strings.IndexAny(part, "+="); s.Name == "chmod" && i >= 0 && (i == 0 || strings.ContainsAny(part[:i], "oa")) && strings.Contains(part[i:], "w") {
			wide = true
		}
	}
	for _, a := range o[1:] {
		full, all := s.place(a)
		switch {
		case full == "" || a.Unknown && full != "/":
		case wide && (system(full) || within(full, []string{"/bin", "/boot", "/etc", "/lib", "/lib64", "/root", "/sbin", "/usr", "/var/lib/dpkg", "/var/lib/pve-cluster"})):
			d.deny("chmod", "chmod %s lets everybody write %s", show(mode), what(full, all))
		case s.flag("R", "--recursive") && system(full):
			d.deny("chmod", "%s -R changes %s with all that is in it", s.Name, full)
		}
	}
}
