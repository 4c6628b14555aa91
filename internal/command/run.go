package command

import (
	"path"
	"slices"
	"strings"
)

// run judges one command with its redirections.
func (j *judge) run(inv invocation) {
	if j.work += 1 + len(inv.words); j.work > maxWork {
		j.unread("it is too long to be read")
		return
	}
	for _, r := range inv.redirects {
		j.redirection(r)
	}
	for _, w := range inv.words {
		j.evaluated(w.text)
	}
	for _, s := range inv.sets {
		j.evaluated(s.text)
		name, value, _ := strings.Cut(s.text, "=")
		j.sets(strings.TrimSuffix(name, "+"), value, len(inv.words) > 0)
	}
	if len(inv.words) == 0 {
		return
	}
	j.nested++
	defer func() { j.nested-- }()
	if j.nested > maxNested+8 {
		j.unread("commands are nested too deep to be read")
		return
	}
	j.words(inv)
}

// names that make a program run or load something else.
var loaders = []string{"BASH_ENV", "ENV", "PATH", "PROMPT_COMMAND", "SHELLOPTS", "BASHOPTS", "IFS", "PS0", "PS1", "PS4", "LESSOPEN", "LESSCLOSE", "PAGER", "MANPAGER", "EDITOR", "VISUAL",
	"HOME", "XDG_CONFIG_HOME", "ZDOTDIR", "INPUTRC", "PSQLRC", "PSQL_PAGER", "APT_CONFIG", "RPM_CONFIGDIR", "RIPGREP_CONFIG_PATH", "OPENSSL_CONF", "OPENSSL_ENGINES", "CEPH_ARGS", "CEPH_CONF",
	"BROWSER", "NODE_OPTIONS", "RUBYOPT", "JAVA_TOOL_OPTIONS", "TAR_OPTIONS", "RSYNC_RSH", "CDPATH", "SHELL", "HOSTALIASES", "GCONV_PATH", "LOCPATH"}

func (j *judge) sets(name, value string, forCommand bool) {
	switch {
	case strings.HasPrefix(name, "LD_") || strings.HasPrefix(name, "PYTHON") || strings.HasPrefix(name, "PERL5") || strings.HasPrefix(name, "GIT_") ||
		strings.HasPrefix(name, "BASH_FUNC") || strings.HasPrefix(name, "SYSTEMD_") && strings.Contains(name, "PAGER"), slices.Contains(loaders, name):
		if name == "HOME" && value == "/root" {
			return
		}
		if name == "PATH" && !forCommand && strings.HasPrefix(value, "/usr/") {
			return // scripts set the usual folders
		}
		j.raise(High, "%s decides what is run or loaded", brief(name))
	}
}

// redirection judges where a redirection writes; reading is harmless.
func (j *judge) redirection(r *redirect) {
	t := r.target
	switch r.op {
	case "<<", "<<-", "<<<":
		return
	case "<":
		if j.placed(t.text); strings.HasPrefix(j.placed(t.text), "/dev/tcp/") || strings.HasPrefix(j.placed(t.text), "/dev/udp/") {
			j.raise(High, "it opens a connection through /dev/tcp")
		}
		return
	case ">&", "<&":
		if t.text == "-" || t.text != "" && strings.Trim(t.text, "0123456789-") == "" && !t.unknown {
			return
		}
		if r.op == "<&" {
			return
		}
	}
	if t.unknown || t.glob {
		j.raise(High, "where the output is written is filled in when it runs")
		return
	}
	j.writes(t.text, "the output")
}

// harmless are devices that may be written.
var harmless = []string{"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty", "/dev/zero", "/dev/full", "/dev/fd/1", "/dev/fd/2"}

// guarded are folders in which a written file changes what the system does.
var guarded = []string{"/dev", "/etc", "/boot", "/efi", "/proc", "/sys", "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/root", "/var/lib/dpkg", "/var/lib/pve-cluster",
	"/var/spool/cron", "/var/lib/systemd", "/run/systemd"}

// writes judges that a file is written, made or replaced.
func (j *judge) writes(file, what string) {
	full := j.placed(file)
	for _, d := range harmless {
		if full == d {
			return
		}
	}
	if j.watch.Write != nil {
		j.watch.Write(full)
	}
	if where := guardedBy(full); where != "" {
		j.raise(High, "%s goes to %s", what, brief(full))
		return
	}
	j.raise(Medium, "%s is written to %s", what, brief(file))
}

func guardedBy(full string) string {
	if full == "/" {
		return full
	}
	for _, d := range guarded {
		if full == d || strings.HasPrefix(full, d+"/") {
			return d
		}
	}
	for _, part := range []string{"/.ssh/", "/authorized_keys", "/.bashrc", "/.profile", "/.bash_profile", "/.zshrc", "/.config/systemd/", "/.config/autostart/"} {
		if strings.Contains(full+"/", part+"") || strings.HasSuffix(full, strings.TrimSuffix(part, "/")) {
			return part
		}
	}
	return ""
}

// placed is the full path of a file, as far as it is told; what leads upwards from an unknown place is taken from the root.
func (j *judge) placed(file string) string {
	switch {
	case strings.HasPrefix(file, "/"):
	case strings.HasPrefix(file, "~"):
		_, rest, _ := strings.Cut(file, "/")
		file = "/home/someone/" + rest
	case j.cwd != "":
		file = j.cwd + "/" + file
	case strings.HasPrefix(file, ".."):
		file = "/" + file
	default:
		file = "/somewhere/" + file
	}
	return path.Clean(file)
}

// words judges a command by its name, taking off what only starts another one.
func (j *judge) words(inv invocation) {
	first := inv.words[0]
	if first.unknown || first.glob && first.text != "[" || first.process {
		j.unread("which command runs is filled in when it runs")
		return
	}
	if first.text == "" {
		if len(inv.words) > 1 || first.quoted {
			j.raise(Medium, "an empty command")
		}
		return
	}
	if j.functions[first.text] {
		if inv.forks && slices.Contains(inv.within, first.text) {
			j.raise(High, "a function starts itself again and again")
			if j.watch.Repeats != nil {
				j.watch.Repeats(first.text)
			}
		}
		return // its body was judged where it stands
	}
	name := nameOf(first.text)
	args := inv.words[1:]
	if strings.ContainsAny(first.text, "/\\") {
		// A program beside the usual places can be anything by any name.
		if dir := path.Dir(j.placed(first.text)); strings.HasPrefix(first.text, "/") && !slices.Contains(usual, dir) || !strings.HasPrefix(first.text, "/") && !strings.Contains(first.text, `\`) {
			j.raise(Medium, "%s is not in one of the usual folders", brief(first.text))
		}
	}
	c := &call{j: j, name: name, args: args, inv: inv}
	for _, a := range args {
		c.unknown = c.unknown || a.unknown && !a.process
	}
	j.tell(name, args, inv)
	c.given()
	if w, ok := j.wrappers[name]; ok {
		c.unwrap(w)
		return
	}
	if rule, ok := j.rules[name]; ok {
		rule(c)
		return
	}
	for _, r := range prefixes() {
		if strings.HasPrefix(name, r.prefix) {
			r.rule(c)
			return
		}
	}
	if slices.Contains(readers, name) {
		return
	}
	j.raise(Medium, "%s is not known to only read", brief(name))
}

var usual = []string{"/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin", "/usr/libexec", "/usr/lib", "/lib", "/lib64", "/usr/lib64", "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu"}

// nameOf is the name by which a program is known: without folders, version and build.
func nameOf(s string) string {
	s = s[strings.LastIndexAny(s, `/\`)+1:]
	s = strings.TrimSuffix(strings.TrimSuffix(s, ".exe"), ".EXE")
	if base, _, ok := strings.Cut(s, "."); ok && (slices.Contains([]string{"python", "python2", "python3", "perl", "perl5", "ruby", "php", "lua", "vim", "awk", "tclsh", "node"}, base) || strings.TrimLeft(base, "abcdefghijklmnopqrstuvwxyz") == "" && len(base) > 1 && (strings.HasSuffix(s, ".real") || strings.HasSuffix(s, ".orig") || strings.HasSuffix(s, ".distrib"))) {
		s = base
	}
	for _, tool := range []string{"python", "perl", "ruby", "php", "lua", "bash", "zsh", "ksh", "tclsh", "node"} {
		if rest, ok := strings.CutPrefix(s, tool); ok && rest != "" && strings.Trim(rest, "0123456789.-") == "" {
			return tool
		}
	}
	for _, build := range []string{"-legacy", "-nft", "-static"} {
		s = strings.TrimSuffix(s, build)
	}
	return s
}

// call is a command whose name is known.
type call struct {
	j       *judge
	name    string
	args    []word
	inv     invocation
	unknown bool // an argument is filled in when it runs
}

func (c *call) high(format string, args ...any)   { c.j.raise(High, format, args...) }
func (c *call) medium(format string, args ...any) { c.j.raise(Medium, format, args...) }

// unsure raises when an argument that is filled in later could be one that matters.
func (c *call) unsure() {
	if c.unknown {
		c.high("arguments of %s are filled in when it runs", brief(c.name))
	}
}

// operands are the arguments that are no options.
func (c *call) operands() []word {
	var out []word
	over := false
	for _, a := range c.args {
		switch {
		case over || !strings.HasPrefix(a.text, "-") || a.text == "-":
			out = append(out, a)
		case a.text == "--":
			over = true
		}
	}
	return out
}

// verb is the first operand.
func (c *call) verb() string {
	if o := c.operands(); len(o) > 0 && !o[0].unknown {
		return o[0].text
	}
	return ""
}

// flag says whether one of the options is given: short ones by their letters ("r", also within -rf), long ones by their
// beginning, as far as programs take it ("--rec" for --recursive).
func (c *call) flag(short string, long ...string) bool {
	for _, a := range c.args {
		switch {
		case a.text == "--":
			return false
		case strings.HasPrefix(a.text, "--"):
			given, _, _ := strings.Cut(a.text, "=")
			for _, l := range long {
				if given == l || len(given) > 3 && strings.HasPrefix(l, given) {
					return true
				}
			}
		case strings.HasPrefix(a.text, "-") && strings.ContainsAny(a.text[1:], short):
			return true
		case slices.Contains(long, a.text):
			return true
		}
	}
	return false
}

// has says whether one of the words stands among the arguments.
func (c *call) has(words ...string) bool {
	return slices.ContainsFunc(c.args, func(a word) bool { return slices.Contains(words, a.text) })
}

// rest judges the arguments from n on as a command of its own.
func (c *call) rest(args []word) {
	inv := c.inv
	inv.words, inv.sets, inv.redirects = args, nil, nil
	c.j.run(inv)
}

// text joins arguments as a shell would be given them; known is false when a part is filled in later.
func text(args []word) (s string, known bool) {
	var parts []string
	known = true
	for _, a := range args {
		parts = append(parts, a.text)
		known = known && !a.unknown && !a.process
	}
	return strings.Join(parts, " "), known
}

// script judges arguments that a shell reads.
func (c *call) script(args []word) {
	s, known := text(args)
	if !known {
		c.unread("what %s runs is filled in when it runs", brief(c.name))
	}
	c.j.shell(s)
}
