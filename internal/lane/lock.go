package lane

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"castellan/internal/command"
)

// Settings say what may run: the part [lanes] of castellan's configuration; the bridge has the same in its own. Empty lists
// let nobody run anything but probes, which are switched on elsewhere.
type Settings struct {
	// Commands are the exact commands that may run, each with where.
	Commands []Rule `toml:"commands"`
	// Scripts says where scripts and other code of a caller's choice may run.
	Scripts Scope `toml:"scripts"`
	// ProbesOff are names of probes that are not to be run.
	ProbesOff []string `toml:"probes_off"`
}

// Config of a Lock.
type Config struct {
	Settings Settings
	// Store says for refusals where the settings stand: "[lanes] in /etc/castellan/castellan.toml".
	Store string
	// Person says for refusals who can change them: "whoever administers castellan".
	Person string
}

// Lock holds the settings, understood. It is safe for concurrent use.
type Lock struct {
	rules   []rule
	scripts Scope
	off     []string
	store   string
	person  string
}

type rule struct {
	Rule
	name    string
	pattern pattern
}

// Validate reads the settings. Warnings are about what is allowed and wider, or of less use, than it may look.
func (s Settings) Validate() (warnings []string, err error) {
	_, warnings, err = s.read()
	return warnings, err
}

func (s Settings) read() (rules []rule, warnings []string, err error) {
	for i, r := range s.Commands {
		name := "commands[" + strconv.Itoa(i+1) + "]"
		p, warn, err := parse(r.Argv)
		if err != nil {
			return nil, nil, fmt.Errorf("read %s: %w", name, err)
		}
		where, err := r.scope().check()
		if err != nil {
			return nil, nil, fmt.Errorf("read %s: %w", name, err)
		}
		if r.scope().Empty() {
			where = append(where, "it names no guests, pools or nodes: it allows nothing")
		}
		if err := r.readEnv(); err != nil {
			return nil, nil, fmt.Errorf("read %s: %w", name, err)
		}
		if why := badProgram(p[0].text); why != "" {
			return nil, nil, fmt.Errorf("read %s: %s %s; no rule can allow it", name, show(p[0].text), why)
		}
		if why := p.guarded(); why != "" && !p.literal() {
			warn = append(warn, fmt.Sprintf("%s, which only a rule without placeholders can allow: this one never does", why))
		}
		for _, w := range slices.Concat(where, warn) {
			warnings = append(warnings, name+" ("+r.Argv+"): "+w)
		}
		rules = append(rules, rule{Rule: r, name: name, pattern: p})
	}
	where, err := s.Scripts.check()
	if err != nil {
		return nil, nil, fmt.Errorf("read scripts: %w", err)
	}
	for _, w := range where {
		warnings = append(warnings, "scripts: "+w)
	}
	for _, name := range s.ProbesOff {
		if _, ok := Find(name); !ok {
			return nil, nil, fmt.Errorf("read probes_off: there is no probe %s", show(name))
		}
	}
	return rules, warnings, nil
}

// guarded says why only a literal rule can allow what the pattern stands for.
func (p pattern) guarded() string {
	var argv []string
	for _, t := range p {
		argv = append(argv, t.text+t.example())
	}
	if why := badOption(argv); why != "" {
		return why
	}
	if v := command.Argv(argv); v.Risk == command.High {
		return "it is high risk: " + strings.Join(v.Reasons, "; ")
	}
	return ""
}

// example is a harmless value of a placeholder.
func (t token) example() string {
	switch {
	case !t.holder:
		return ""
	case len(t.oneOf) > 0:
		return t.oneOf[0]
	case t.arg.Kind == Number:
		return strconv.FormatInt(max(t.arg.Min, min(t.arg.Max, 7)), 10)
	case t.arg.Kind == Path && t.arg.Under != "":
		return t.arg.Under + "/example"
	case t.arg.Kind == Path:
		return "/srv/example"
	case t.arg.Kind == Span:
		return "1h"
	}
	return "example"
}

// New makes a Lock.
func New(c Config) (*Lock, error) {
	rules, _, err := c.Settings.read()
	if err != nil {
		return nil, fmt.Errorf("make lock: %w", err)
	}
	if c.Store == "" {
		c.Store = "the settings of lanes"
	}
	if c.Person == "" {
		c.Person = "whoever administers castellan"
	}
	return &Lock{rules: rules, scripts: c.Settings.Scripts, off: slices.Clone(c.Settings.ProbesOff), store: c.Store, person: c.Person}, nil
}

// change is the hint of a refusal that a setting could lift.
func (l *Lock) change(format string, args ...any) string {
	return fmt.Sprintf(format, args...) + " in " + l.store + ". Only a person can do that: " + l.person + ", who then starts it anew."
}

// Probe judges a probe and makes its command.
func (l *Lock) Probe(at Place, name string, args map[string]string) (Invocation, Verdict) {
	p, ok := Find(name)
	switch {
	case !ok:
		return Invocation{}, Verdict{Rule: "probe", Reason: "there is no probe " + show(name), Hint: "Probes are a fixed catalogue; take one of it."}
	case slices.Contains(l.off, name):
		return Invocation{}, Verdict{Rule: "probes_off", Reason: "the probe " + name + " is switched off", Hint: l.change("Take %s out of probes_off", name)}
	case !p.Runs(at.Where):
		return Invocation{}, Verdict{Rule: "probe", Reason: fmt.Sprintf("the probe %s is not for %s", name, at), Hint: fmt.Sprintf("It is for: %v.", p.Where)}
	}
	inv, err := p.Command(args)
	if err != nil {
		return Invocation{}, Verdict{Rule: "probe", Reason: err.Error(), Hint: "Give the arguments as the catalogue of probes says."}
	}
	return inv, Verdict{Allowed: true, Rule: "probe " + name}
}

// Command is an exact command.
type Command struct {
	Argv []string
	Env  []string // "NAME=value"
	Dir  string   // absolute; "" leaves it to whoever runs it
}

// Command judges an exact command. Programs of the block-list never pass; what else destroys, runs other programs or looks
// dangerous passes only by a rule without placeholders.
func (l *Lock) Command(at Place, c Command) Verdict {
	if v := checkArgv(c.Argv); !v.Allowed {
		return v
	}
	if why := badProgram(c.Argv[0]); why != "" {
		return refused("program", "%s %s", show(c.Argv[0]), why)
	}
	var here, fit []rule
	for _, r := range l.rules {
		if r.scope().Has(at) {
			here = append(here, r)
			if r.pattern.matches(c.Argv) {
				fit = append(fit, r)
			}
		}
	}
	switch {
	case len(here) == 0:
		return Verdict{Rule: "commands", Reason: fmt.Sprintf("no rule allows any command on %s", at), Hint: l.change("Add a rule for %s to commands", at)}
	case len(fit) == 0:
		var list []string
		for _, r := range here[:min(len(here), 20)] {
			list = append(list, r.Argv)
		}
		return Verdict{Rule: "commands", Reason: fmt.Sprintf("no rule for %s allows this command; allowed there: %s", at, strings.Join(list, " | ")), Hint: l.change("Add a rule for it to commands")}
	}
	literal := func(r rule) bool { return r.pattern.literal() }
	if why := badOption(c.Argv); why != "" {
		if fit = slices.DeleteFunc(fit, func(r rule) bool { return !literal(r) }); len(fit) == 0 {
			return Verdict{Rule: "option", Reason: why, Hint: l.change("Add a rule with exactly this command, without placeholders, to commands")}
		}
	}
	if v := command.Argv(c.Argv); v.Risk == command.High {
		if fit = slices.DeleteFunc(fit, func(r rule) bool { return !literal(r) }); len(fit) == 0 {
			return Verdict{Rule: "risk", Reason: "it is high risk: " + strings.Join(v.Reasons, "; "), Hint: l.change("Add a rule with exactly this command, without placeholders, to commands")}
		}
	}
	by, v := l.byEnv(fit, c.Env)
	if !v.Allowed {
		return v
	}
	if v := checkDir(c.Dir); !v.Allowed {
		return v
	}
	return Verdict{Allowed: true, Rule: by.name + ": " + by.Argv}
}

// byEnv finds the rule that lets these variables through.
func (l *Lock) byEnv(fit []rule, env []string) (by rule, v Verdict) {
	for _, by = range fit {
		v = checkEnv(env, func(name, value string) string {
			switch {
			case common(name, value):
				return ""
			case !slices.Contains(by.Env, name):
				return "neither is it of the common ones with a plain value, nor does the rule name it"
			}
			if err := clean(value); err != nil {
				return err.Error()
			}
			return ""
		})
		if v.Allowed {
			return by, v
		}
	}
	if v.Hint == "" {
		v.Hint = l.change("Name the variable in env of %s", by.name)
	}
	return by, v
}

// checkArgv judges the arguments as text.
func checkArgv(argv []string) Verdict {
	total := 0
	if len(argv) == 0 || argv[0] == "" {
		return refused("argument", "no program is given")
	}
	if len(argv) > maxArgs {
		return refused("argument", "there are more than %d arguments", maxArgs)
	}
	for i, a := range argv {
		if total += len(a) + 1; total > maxArgv {
			return refused("argument", "the arguments are longer than %d bytes together", maxArgv)
		}
		if err := clean(a); err != nil {
			return refused("argument", "argument %d (%s): %v", i, show(a), err)
		}
	}
	return Verdict{Allowed: true}
}

func checkDir(dir string) Verdict {
	if dir == "" {
		return Verdict{Allowed: true}
	}
	if err := (Arg{Name: "dir", Kind: Path}).Check(dir); err != nil {
		return refused("dir", "%v", err)
	}
	return Verdict{Allowed: true}
}
