package lane

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"castellan/internal/command"
)

// Script is a script with what runs it.
type Script struct {
	Text        string
	Interpreter string // "sh", "bash" or "python3"
	Env         []string
	Dir         string
}

const maxScript = 64 << 10

// Interpreters of scripts.
func Interpreters() []string { return []string{"sh", "bash", "python3"} }

// Script judges a script: where scripts are allowed at all, then what it does.
//
// The list of what is refused guards against slips. It is no sandbox: a script that means harm has a thousand other ways to
// do it, and what keeps it in is the guest, the account that runs it, and the person who approves its text.
func (l *Lock) Script(at Place, s Script) Verdict {
	if v := l.Code(at); !v.Allowed {
		return v
	}
	if v := checkEnv(s.Env, func(string, string) string { return "" }); !v.Allowed {
		return v
	}
	if v := checkDir(s.Dir); !v.Allowed {
		return v
	}
	return Judge(s.Text, s.Interpreter)
}

// Code says whether code of a caller's choice may run there at all.
func (l *Lock) Code(at Place) Verdict {
	if l.scripts.Has(at) {
		return Verdict{Allowed: true, Rule: "scripts"}
	}
	return Verdict{Rule: "scripts", Reason: fmt.Sprintf("scripts and other code may not run on %s", at), Hint: l.change("Add %s to scripts", at)}
}

// Free judges a command that is on no list, with what it is fed, as a script would be judged: for ways into a guest that
// castellan does not carry itself.
func (l *Lock) Free(at Place, argv []string, input string) Verdict {
	if v := l.Code(at); !v.Allowed {
		return v
	}
	if len(argv) == 0 {
		return refused("script.unreadable", "no command is given")
	}
	d := &denial{}
	command.WalkArgv(argv, d.watcher())
	if input != "" && d.fed(argv) {
		command.Walk(input, d.watcher())
	}
	return d.verdict()
}

// Judge says whether a script holds what no script may: the same on castellan's side and on the bridge's.
// A shell script is read as its shell would; what cannot be read, or is filled in only when it runs (a command's name, the
// text of eval, what is piped into a shell), is refused as "script.unreadable": name the program instead. Of Python only the
// texts are looked at, each as a command line where it is given to a shell or a new process.
func Judge(text, interpreter string) Verdict {
	switch {
	case !slices.Contains(Interpreters(), interpreter):
		return refused("script.interpreter", "%s is none of %s", show(interpreter), strings.Join(Interpreters(), ", "))
	case strings.TrimSpace(text) == "":
		return refused("script.empty", "the script is empty")
	case len(text) > maxScript:
		return refused("script.long", "the script is longer than %d bytes", maxScript)
	case !utf8.ValidString(text) || strings.ContainsRune(text, 0):
		return refused("script.unreadable", "the script is no valid UTF-8, or holds a NUL")
	}
	if why := deceives(text); why != "" {
		return refused("script.unreadable", "%s", why)
	}
	d := &denial{}
	if interpreter == "python3" {
		d.python(text)
	} else {
		command.Walk(text, d.watcher())
	}
	return d.verdict()
}

// deceives finds characters that let a text look other than it is to the person who approves it.
func deceives(text string) string {
	for i, r := range text {
		switch {
		case r == '\n' || r == '\t' || r == '\r' && strings.HasPrefix(text[i:], "\r\n"):
		case r < 0x20 || r == 0x7f:
			return fmt.Sprintf("it holds the control character U+%04X", r)
		case r >= 0x80 && r <= 0x9f, r == 0xad, r >= 0x200b && r <= 0x200f, r >= 0x2028 && r <= 0x202e, r >= 0x2060 && r <= 0x206f, r == 0xfeff, r == 0x180e, r == 0x3164, r == 0x115f, r == 0x1160, r >= 0xfff0 && r <= 0xfffb, r >= 0xe0000 && r <= 0xe0fff:
			return fmt.Sprintf("it holds U+%04X, which is not seen and changes how the text looks", r)
		}
	}
	return ""
}

// denial collects what is found; the first finding is told.
type denial struct {
	rule, reason string
	depth        int
}

func (d *denial) deny(rule, format string, args ...any) {
	if d.rule == "" {
		d.rule, d.reason = "script."+rule, brief(fmt.Sprintf(format, args...))
	}
}

// brief bounds a reason that holds words of the script, and keeps it to plain letters.
func brief(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < 0x20 || r > 0x7e {
			return '?'
		}
		return r
	}, s)
	return s[:min(len(s), 300)]
}

func (d *denial) verdict() Verdict {
	if d.rule == "" {
		return Verdict{Allowed: true, Rule: "scripts"}
	}
	v := refused(d.rule, "%s", d.reason)
	if d.rule == "script.unreadable" {
		v.Hint = "Write it so that every command's name stands in the text, without eval and without piping text into a shell."
	}
	return v
}

func (d *denial) watcher() command.Watcher {
	return command.Watcher{
		Command: d.command,
		Write:   d.writes,
		Unread:  func(reason string) { d.deny("unreadable", "%s", reason) },
		Repeats: func(name string) { d.deny("forkbomb", "function %s starts itself again and again", show(name)) },
	}
}

// fed says whether a command runs what it is fed.
func (d *denial) fed(argv []string) bool {
	why := badProgram(argv[0])
	return why == shells || slices.ContainsFunc(argv, func(a string) bool { return badProgram(a) == shells })
}

// writes judges a file that is written, made or removed.
func (d *denial) writes(file string) {
	below := func(dir string) bool { return file == dir || strings.HasPrefix(file, dir+"/") }
	switch {
	case below("/etc/pve"):
		d.deny("etc-pve", "it writes to %s, the configuration of the whole cluster; use the API's operation", show(file))
	case below("/dev") && !slices.ContainsFunc([]string{"/dev/null", "/dev/zero", "/dev/full", "/dev/stdout", "/dev/stderr", "/dev/shm/", "/dev/pts/", "/dev/tty", "/dev/log", "/dev/kmsg", "/dev/mqueue/", "/dev/fd/", "/dev/tcp/", "/dev/udp/"}, func(p string) bool { return strings.HasPrefix(file, p) }):
		d.deny("device", "it writes to the device %s", show(file))
	case below("/proc/sysrq-trigger"), file == "/proc/sys/kernel/sysrq":
		d.deny("power", "it writes to %s, which stops or restarts the machine", show(file))
	case slices.Contains([]string{"/etc/passwd", "/etc/shadow", "/etc/group", "/etc/gshadow", "/etc/sudoers", "/etc/passwd-", "/etc/shadow-"}, file), below("/etc/sudoers.d"), below("/etc/pam.d"):
		d.deny("accounts", "it writes to %s, which says who can sign in", show(file))
	}
}

// systems are folders that no script may remove, or hand over to everybody.
var systems = strings.Fields(`/ /bin /boot /dev /etc /etc/pve /home /lib /lib32 /lib64 /media /mnt /opt /proc /root /run /sbin /srv /sys /usr /usr/bin /usr/lib /usr/lib64 /usr/local /usr/sbin /usr/share /var /var/lib /var/log /var/lib/dpkg
	/var/lib/vz /var/lib/pve-cluster /var/lib/pve-manager /var/lib/proxmox-backup /var/lib/lxc /etc/ssh /etc/systemd /boot/efi /efi /rpool /var/spool`)

// deep are folders of which no part may be removed either.
var deep = []string{"/bin", "/boot", "/lib", "/lib64", "/proc", "/sbin", "/sys", "/usr/bin", "/usr/lib", "/usr/sbin", "/dev/mapper", "/dev/disk"}

func system(path string) bool { return slices.Contains(systems, path) }

func within(path string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(d string) bool {
		return path == d || d == "/" && strings.HasPrefix(path, "/") || strings.HasPrefix(path, d+"/")
	})
}
