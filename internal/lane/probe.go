package lane

import (
	"fmt"
	"slices"
	"strings"
)

// Probe is a diagnostic command that only reads.
type Probe struct {
	Name    string
	Summary string
	Where   []Where
	Root    bool // on a host it takes the rights of root; in a guest all run as root
	Args    []Arg

	build func(values) Invocation
}

// values are the arguments of a probe: checked, with defaults.
type values map[string]string

// Invocation is a command as it is run: no shell is between it and whoever runs it.
type Invocation struct {
	Argv  []string // the program is a plain name, to be looked for along Search and nowhere else
	Input []byte   // standard input
	Env   []string // the whole environment
	OK    []int    // exit codes after which what was printed is the answer, were it nothing
	// Partial are exit codes after which what was printed is the answer as far as it goes; nothing is none.
	Partial []int
	// Other are exit codes that, with nothing on standard output, say that this system's program takes other options.
	Other []int
	// Files are opened by name: who can see the tree refuses where one is no regular file, or a link is on the way to it.
	Files []string
	// Alternatives are tried in order where the program is not there or takes other options. They have none of their own.
	Alternatives []Invocation
}

// Search is where the programs of probes are looked for: folders that only root can write on any usual system.
const Search = "/usr/sbin:/usr/bin:/sbin:/bin"

// Environ is the environment of a probe: no pager, no colours, one locale, nobody's home.
func Environ() []string {
	return []string{"PATH=" + Search, "HOME=/", "LC_ALL=C.UTF-8", "LANG=C.UTF-8", "TZ=UTC", "TERM=dumb", "COLUMNS=200", "NO_COLOR=1", "PAGER=cat", "SYSTEMD_PAGER=cat", "SYSTEMD_COLORS=0", "SYSTEMD_URLIFY=0"}
}

// Answered says whether a run that ended with this exit code gave an answer, be it one that lacks something.
func (i Invocation) Answered(code int) bool {
	return slices.Contains(i.OK, code) || slices.Contains(i.Partial, code)
}

// Whole says whether the answer of a run that ended with this exit code lacks nothing. Where it does and nothing was
// printed, there is none: standard error says why.
func (i Invocation) Whole(code int) bool { return slices.Contains(i.OK, code) }

// Unfit says whether a run that ended with this exit code calls for the next alternative; printed is whether it wrote to
// standard output. Exit code 127 stands for a program that is not there, however the caller learned of it.
func (i Invocation) Unfit(code int, printed bool) bool {
	return code == 127 || !printed && slices.Contains(i.Other, code)
}

// Enveloped is the command for a way that passes no environment on: started by env, in this environment and no other.
func (i Invocation) Enveloped() []string {
	return slices.Concat([]string{"/usr/bin/env", "-i"}, i.Env, i.Argv)
}

// Find finds a probe by its name.
func Find(name string) (Probe, bool) {
	all := Probes()
	n, ok := slices.BinarySearchFunc(all, name, func(p Probe, name string) int { return strings.Compare(p.Name, name) })
	if !ok {
		return Probe{}, false
	}
	return all[n], true
}

// Probes lists the catalogue, sorted by name.
func Probes() []Probe {
	all := slices.Concat(systemProbes(), diskProbes(), logProbes(), networkProbes(), appProbes(), hostProbes())
	slices.SortFunc(all, func(a, b Probe) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Runs says whether the probe is for such a place.
func (p Probe) Runs(w Where) bool { return slices.Contains(p.Where, w) }

// Command makes the command of these arguments, by name. Arguments that the probe does not have, lack, or that are not
// within their grammar are errors.
func (p Probe) Command(args map[string]string) (Invocation, error) {
	if p.build == nil {
		return Invocation{}, fmt.Errorf("make probe %s: there is no such probe", show(p.Name))
	}
	var names []string
	v := values{}
	for _, a := range p.Args {
		names = append(names, a.Name)
		value, given := args[a.Name]
		switch {
		case given:
			if err := a.Check(value); err != nil {
				return Invocation{}, fmt.Errorf("make probe %s: %w", p.Name, err)
			}
			v[a.Name] = value
		case a.Required:
			return Invocation{}, fmt.Errorf("make probe %s: argument %s is missing: %s", p.Name, a.Name, a.Summary)
		case a.Default != "":
			v[a.Name] = a.Default
		}
	}
	for name := range args {
		if !slices.Contains(names, name) {
			has := "it takes none"
			if len(names) > 0 {
				has = "it takes " + strings.Join(names, ", ")
			}
			return Invocation{}, fmt.Errorf("make probe %s: there is no argument %s; %s", p.Name, show(name), has)
		}
	}
	return p.build(v), nil
}

// program makes an invocation that answers with exit code 0.
func program(argv ...string) Invocation {
	return Invocation{Argv: argv, Env: Environ(), OK: []int{0}}
}

// ok adds exit codes that are answers.
func (i Invocation) ok(codes ...int) Invocation {
	i.OK = append(slices.Clone(i.OK), codes...)
	return i
}

// partial adds exit codes after which what was printed may lack something.
func (i Invocation) partial(codes ...int) Invocation {
	i.Partial = append(slices.Clone(i.Partial), codes...)
	return i
}

// with adds arguments where the condition holds.
func (i Invocation) with(yes bool, argv ...string) Invocation {
	if yes {
		i.Argv = append(slices.Clone(i.Argv), argv...)
	}
	return i
}

// reads says which files the command opens.
func (i Invocation) reads(files ...string) Invocation {
	i.Files = files
	return i
}

// other says which exit codes call for an alternative where nothing was printed.
func (i Invocation) other(codes ...int) Invocation {
	i.Other = codes
	return i
}

// or adds an alternative.
func (i Invocation) or(a Invocation) Invocation {
	i.Alternatives = append(slices.Clone(i.Alternatives), a)
	return i
}

var (
	anywhere = []Where{Host, CT, VM}
	guests   = []Where{CT, VM}
	hosts    = []Where{Host}
)

// lines is the argument that says how many lines are wanted.
func lines(most int64) Arg {
	return Arg{Name: "lines", Kind: Number, Summary: "how many lines at most, the newest", Default: "100", Min: 1, Max: most}
}

// fixed makes a probe without arguments.
func fixed(name, summary string, where []Where, i Invocation) Probe {
	return Probe{Name: name, Summary: summary, Where: where, build: func(values) Invocation { return i }}
}

// root marks a probe that takes the rights of root on a host.
func (p Probe) root() Probe {
	p.Root = true
	return p
}
