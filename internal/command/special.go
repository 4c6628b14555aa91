package command

import (
	"slices"
	"strconv"
	"strings"
)

// shell judges a shell: the text of -c, what it is fed, or a file that cannot be seen here.
func shell(c *call) {
	command := false
	for i := 0; i < len(c.args); i++ {
		a := c.args[i]
		switch {
		case a.process:
			c.unread("%s runs what another command writes", c.name)
			return
		case a.unknown && !command:
			c.unread("what %s runs is filled in when it runs", c.name)
			return
		case command && (!strings.HasPrefix(a.text, "-") && !strings.HasPrefix(a.text, "+") || a.text == "--"):
			if a.text == "--" && i+1 < len(c.args) {
				a = c.args[i+1]
			}
			if a.unknown {
				c.unread("what %s runs is filled in when it runs", c.name)
			}
			c.j.shell(a.text)
			return
		case a.text == "--rcfile" || a.text == "--init-file" || a.text == "-O" || a.text == "+O" || a.text == "-o" || a.text == "+o":
			if strings.HasSuffix(a.text, "file") {
				c.high("it runs a file that is not told here")
			}
			i++
		case a.text == "--help" || a.text == "--version":
			return
		case a.text == "--" || a.text == "-":
			if i+1 < len(c.args) {
				c.high("%s runs a file that is not told here", c.name)
				return
			}
		case strings.HasPrefix(a.text, "--"):
		case strings.HasPrefix(a.text, "-"):
			command = command || strings.Contains(a.text, "c")
			if strings.Contains(a.text, "s") && !command {
				c.shellFed()
				return
			}
		case strings.HasPrefix(a.text, "+"):
		default:
			c.high("%s runs a file that is not told here", c.name)
			return
		}
	}
	c.shellFed()
}

func sourced(c *call) {
	if len(c.args) > 0 && c.args[0].text == "/etc/os-release" {
		return
	}
	c.high("it runs a file that is not told here")
}

func rm(c *call) {
	if c.flag("rR", "--recursive", "--dir-recursive") {
		c.high("rm removes folders with all that is in them")
		return
	}
	c.unsure()
	for _, o := range c.operands() {
		if o.glob && strings.Trim(o.text, "/*.?") == "" {
			c.high("rm removes everything that it finds")
		}
	}
	if c.flag("", "--no-preserve-root") {
		c.high("rm may remove everything")
	}
	c.writesAll("what is removed")
	c.medium("rm removes files")
}

func find(c *call) {
	for _, a := range c.args {
		switch {
		case slices.Contains([]string{"-delete", "-exec", "-execdir", "-ok", "-okdir"}, a.text):
			c.high("find %s acts on all that it finds", a.text)
		case strings.HasPrefix(a.text, "-fprint") || a.text == "-fls":
			c.high("find writes files (%s)", a.text)
		}
	}
	c.unsure()
}

func modes(c *call) {
	if c.flag("R", "--recursive") {
		c.high("%s changes a folder with all that is in it", c.name)
	}
	c.unsure()
	o := c.operands()
	for i, a := range c.args {
		mode := strings.TrimPrefix(a.text, "--mode=")
		if c.name == "chmod" && (i == 0 || len(o) > 0 && a.text == o[0].text || strings.HasPrefix(a.text, "-")) && setsID(mode) {
			c.high("chmod lets a program run with the rights of its owner")
		}
	}
	for _, f := range o[min(1, len(o)):] {
		if where := guardedBy(c.j.placed(f.text)); where != "" {
			c.high("%s changes %s", c.name, brief(f.text))
		}
	}
	c.medium("%s changes who may use a file", c.name)
}

// setsID says whether a mode sets the set-user-id or set-group-id bit.
func setsID(mode string) bool {
	if n, err := strconv.ParseUint(mode, 8, 32); err == nil {
		return n&0o6000 != 0
	}
	for part := range strings.SplitSeq(mode, ",") {
		if i := strings.IndexAny(part, "+="); i >= 0 && strings.Trim(part[:i], "ugoa") == "" && strings.Contains(part[i:], "s") {
			return true
		}
	}
	return false
}

func iptables(c *call) {
	switch {
	case c.flag("FXPDR", "--flush", "--delete-chain", "--policy", "--delete", "--replace"):
		c.high("it takes away firewall rules, or changes what happens without one")
	case c.flag("AINZE", "--append", "--insert", "--new-chain", "--zero", "--rename-chain"):
		c.medium("it changes firewall rules")
		if c.has("DROP", "REJECT") {
			c.high("it may cut off a way in")
		}
	case c.flag("LSC", "--list", "--list-rules", "--check"):
	default:
		c.medium("it may change firewall rules")
	}
	c.unsure()
}

func accounts(c *call) {
	if c.flag("o", "--non-unique") || c.after("-u") == "0" || c.after("--uid") == "0" || c.after("-g") == "0" || c.after("--gid") == "0" {
		c.high("it makes another account that is root")
	}
	for _, a := range c.args {
		for _, g := range strings.FieldsFunc(a.text, func(r rune) bool { return r == ',' || r == '=' }) {
			if slices.Contains([]string{"root", "sudo", "wheel", "admin", "adm", "disk", "docker", "shadow", "lxd", "libvirt", "kvm", "www-data"}, g) && c.name != "groupadd" {
				c.high("it gives an account the rights of group %s", g)
			}
		}
	}
	if c.flag("pL", "--password", "--lock") && strings.HasPrefix(c.name, "user") {
		c.high("it changes who can sign in")
	}
	c.unsure()
	c.medium("it changes accounts")
}

func kill(c *call) {
	if c.flag("lL", "--list", "--table") {
		return
	}
	for i, a := range c.args {
		if a.text == "1" && !(i > 0 && slices.Contains([]string{"-s", "--signal", "-n"}, c.args[i-1].text)) {
			c.high("it signals process 1, on which all others rest")
		}
		if (a.text == "-1" || a.text == "0") && i > 0 {
			c.high("it signals every process")
		}
		if n, err := strconv.ParseInt(a.text, 0, 64); err == nil && n == 1 && a.text != "1" {
			c.high("it signals process 1, on which all others rest")
		}
	}
	if c.has("-0") && len(c.args) > 1 {
		return
	}
	c.medium("it ends a process")
}

// vital are services without which nobody gets in, or guests lose what they run on.
func vital(unit string) bool {
	unit = strings.TrimSuffix(strings.TrimSuffix(unit, ".service"), ".socket")
	return slices.Contains([]string{"pveproxy", "pvedaemon", "pve-cluster", "pvestatd", "pve-ha-lrm", "pve-ha-crm", "corosync", "ssh", "sshd", "networking", "NetworkManager", "systemd-networkd", "systemd-logind",
		"dbus", "proxmox-backup", "proxmox-backup-proxy", "pmgproxy", "pmgdaemon", "ceph", "ceph.target", "libvirtd", "docker", "qemu-guest-agent", "nftables", "firewalld", "ufw", "pve-firewall", "network.target"}, unit) ||
		strings.HasPrefix(unit, "ceph-") || strings.ContainsAny(unit, "*?[")
}

func systemctl(c *call) {
	c.unsure()
	if c.flag("H", "--host", "--machine") {
		c.medium("it acts on another machine")
	}
	v := c.verb()
	units := c.operands()
	switch {
	case v == "" && len(units) == 0:
	case slices.Contains([]string{"status", "show", "cat", "get-default", "help", "is-active", "is-enabled", "is-failed", "is-system-running"}, v) || strings.HasPrefix(v, "list-"):
	case slices.Contains([]string{"poweroff", "reboot", "halt", "kexec", "soft-reboot", "emergency", "rescue", "default", "isolate", "suspend", "hibernate", "hybrid-sleep", "suspend-then-hibernate", "exit", "switch-root"}, v):
		c.high("systemctl %s stops or changes the whole machine", v)
	case slices.Contains([]string{"mask", "set-default", "set-environment", "edit", "link", "revert", "import-environment", "bind", "mount-image", "set-property", "clean"}, v):
		c.high("systemctl %s changes what the machine starts", v)
	case slices.Contains([]string{"stop", "restart", "kill", "disable", "try-restart", "reload-or-restart", "condrestart", "force-reload"}, v):
		for _, u := range units[1:] {
			if vital(u.text) {
				c.high("systemctl %s %s", v, brief(u.text))
			}
		}
		c.medium("systemctl %s", v)
	default:
		c.medium("systemctl %s", brief(v))
	}
}

// ip takes its words by their beginnings.
func ip(c *call) {
	c.unsure()
	for _, a := range c.args {
		if len(a.text) > 1 && strings.HasPrefix("-batch", strings.TrimPrefix(a.text, "-")) || len(a.text) > 1 && strings.HasPrefix("-batch", a.text) {
			c.high("it runs commands that are not told here")
		}
	}
	o := c.operands()
	for len(o) > 0 && slices.Contains([]string{"inet", "inet6", "bridge", "mpls"}, o[0].text) {
		o = o[1:]
	}
	if len(o) < 2 {
		return // lists
	}
	object, verb := o[0].text, o[1].text
	begins := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(w, verb) })
	}
	switch {
	case strings.HasPrefix("netns", object) && object != "n" && strings.HasPrefix("exec", verb) && len(o) > 3:
		c.medium("it runs a command in another network")
		c.rest(o[3:])
	case strings.HasPrefix("vrf", object) && verb == "exec" && len(o) > 3:
		c.rest(o[3:])
	case begins("flush", "delete", "remove"), verb == "del":
		c.high("ip %s %s takes away a part of the network", brief(object), brief(verb))
	case strings.HasPrefix("link", object) && slices.ContainsFunc(o, func(w word) bool {
		return w.text == "down" || w.text == "nomaster" || w.text == "netns" || w.text == "master"
	}):
		c.high("it takes a network interface away")
	case begins("replace", "change") && strings.HasPrefix("route", object):
		c.high("ip %s %s changes where traffic goes", brief(object), brief(verb))
	case begins("show", "list", "lst", "get", "help", "save", "monitor", "showdump", "stats", "ls"):
	default:
		c.medium("ip %s %s changes the network", brief(object), brief(verb))
	}
}

// interpreter judges programs that run code in a language that is not read here.
func interpreter(c *call) {
	if len(c.args) == 1 && slices.Contains([]string{"--version", "-V", "-v", "--help", "-h"}, c.args[0].text) && !c.inv.fed {
		return
	}
	switch {
	case len(c.args) == 0 && !c.inv.fed && len(c.inv.redirects) == 0:
		c.medium("%s runs what it is given later", c.name)
	default:
		c.high("%s runs code that is not read here", c.name)
	}
}

func awk(c *call) {
	if c.flag("fEil", "--file", "--include", "--load") {
		c.high("awk runs a program that is not told here")
		return
	}
	s, known := text(c.args)
	if !known {
		c.unsure()
	}
	for _, bad := range []string{"system", "|", ">", "getline", "@load", "@include", "@"} {
		if strings.Contains(s, bad) {
			c.high("awk may run commands or write files (%s)", bad)
		}
	}
}

// sed: scripts of plain substitutions and printing only read.
func sed(c *call) {
	inPlace := hasPrefix(c, "--in-place") || c.flag("i")
	if hasPrefix(c, "-f", "--file") {
		c.high("sed runs a script that is not told here")
	}
	c.unsure()
	scripts := []string{}
	o := c.operands()
	files := o
	for i, a := range c.args {
		if (a.text == "-e" || a.text == "--expression") && i+1 < len(c.args) {
			scripts = append(scripts, c.args[i+1].text)
			files = slices.DeleteFunc(slices.Clone(files), func(w word) bool { return w.text == c.args[i+1].text })
		} else if v, ok := strings.CutPrefix(a.text, "--expression="); ok {
			scripts = append(scripts, v)
		}
	}
	if len(scripts) == 0 && len(o) > 0 {
		scripts, files = append(scripts, o[0].text), o[1:]
	}
	for _, s := range scripts {
		if !plainSed(s) {
			c.high("a script of sed may run commands or write files")
		}
	}
	if inPlace {
		for _, f := range files {
			c.j.writes(f.text, "the edited file")
		}
		c.medium("sed changes files")
	}
}

// plainSed takes addresses with p, d, q or = and one s command with flags that neither write nor run.
func plainSed(s string) bool {
	s = strings.TrimLeft(s, "0123456789,$!~ \t")
	if strings.HasPrefix(s, "/") {
		if n := strings.IndexByte(s[1:], '/'); n >= 0 {
			s = strings.TrimLeft(s[n+2:], "0123456789,$!~ I")
		}
	}
	if s == "" || strings.Trim(s, "pdqQ=;0123456789,$ ") == "" {
		return true
	}
	if s[0] != 's' && s[0] != 'y' || len(s) < 4 {
		return false
	}
	sep, seps, i := s[1], 1, 2
	for ; i < len(s) && seps < 3; i++ {
		switch s[i] {
		case '\\':
			i++
		case '\n':
			return false
		case sep:
			seps++
		}
	}
	return seps == 3 && strings.Trim(s[min(i, len(s)):], "gpIi0123456789 ") == ""
}

func copies(c *call) {
	c.unsureTarget()
	if t := c.after("-t") + c.after("--target-directory"); t != "" {
		c.j.writes(t, "what is copied")
	}
	if o := c.operands(); len(o) > 0 && !o[len(o)-1].unknown {
		c.j.writes(o[len(o)-1].text, "what is copied")
	}
	if c.name == "rsync" && (hasPrefix(c, "--del", "--remove-source", "-e", "--rsh", "--rsync-path") || c.flag("e")) {
		c.high("rsync deletes, or runs another program")
	}
	if c.name == "install" && setsID(c.after("-m")+c.after("--mode")) {
		c.high("it lets a program run with the rights of its owner")
	}
	if c.name == "scp" && (hasPrefix(c, "-S", "-o", "-J")) {
		c.high("scp runs another program")
	}
	c.medium("%s writes files", c.name)
}

func tar(c *call) {
	if hasPrefix(c, "--checkpoint-action", "--to-command", "--use-compress-program", "-I", "--rsh-command", "--info-script", "--new-volume-script", "-F", "--remove-files", "--rmt-command") {
		c.high("tar runs another program, or removes files")
	}
	mode := ""
	if len(c.args) > 0 {
		mode = c.args[0].text
	}
	switch {
	case strings.Contains(mode, "x") || c.flag("x", "--extract", "--get"):
		if d := c.after("-C") + c.after("--directory"); d != "" {
			c.j.writes(d, "what is unpacked")
		} else if c.j.cwd != "" {
			c.j.writes(c.j.cwd, "what is unpacked")
		}
		if c.flag("P", "--absolute-names") || strings.Contains(mode, "P") {
			c.high("tar writes anywhere")
		}
		c.medium("tar unpacks files")
	case strings.Contains(strings.TrimPrefix(mode, "-"), "t") && !strings.HasPrefix(mode, "--"), c.flag("", "--list"):
	default:
		c.output("f", "--file")
		c.medium("tar writes an archive")
	}
}

// database makes a rule for a client that takes statements by an option, or by what it is fed.
func database(short, long, fileShort, fileLong string) func(*call) {
	return func(c *call) {
		given := false
		for i, a := range c.args {
			v, inline := strings.CutPrefix(a.text, long+"=")
			switch {
			case inline:
				c.query(word{text: v, unknown: a.unknown})
				given = true
			case a.text == long || a.text == "-"+short || strings.HasPrefix(a.text, "-") && !strings.HasPrefix(a.text, "--") && strings.HasSuffix(a.text, short):
				if i+1 < len(c.args) {
					c.query(c.args[i+1])
					given = true
				}
			case strings.HasPrefix(a.text, "-"+short):
				c.query(word{text: a.text[2:], unknown: a.unknown})
				given = true
			case fileShort != "" && (strings.HasPrefix(a.text, "-"+fileShort) || strings.HasPrefix(a.text, fileLong)):
				c.high("it runs statements that are not told here")
				given = true
			}
		}
		if c.flag("l", "--list") || c.has("--version", "--help", "-V") {
			given = true
		}
		c.queryFed(given)
	}
}

func (c *call) query(a word) {
	if a.unknown {
		c.high("a statement is filled in when it runs")
	}
	c.j.sql(a.text)
}

func (c *call) queryFed(given bool) {
	for _, r := range c.inv.redirects {
		switch r.op {
		case "<<", "<<-", "<<<":
			if !r.known {
				c.high("a part of a statement is filled in when it runs")
			}
			c.j.sql(r.body)
			given = true
		case "<":
			c.high("it runs statements that are not told here")
			given = true
		}
	}
	switch {
	case c.inv.fed && c.inv.feed != nil:
		c.j.sql(*c.inv.feed)
	case c.inv.fed:
		c.high("it runs statements that another command writes")
	case !given:
		c.medium("it opens a database")
	}
}
