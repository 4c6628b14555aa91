package lane

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Rule is a line of the list of commands: where it holds, and which arguments it lets through.
type Rule struct {
	Guests []string `toml:"guests"` // in guests of these ids; "*" is every guest
	Pools  []string `toml:"pools"`  // in guests of these pools
	Nodes  []string `toml:"nodes"`  // on these nodes themselves; "*" is every node
	// Argv is the program and its arguments with blanks between: plain text that must be the same, and placeholders: <unit>,
	// <unit:nginx,php8.2-fpm>, <path:/var/log>, <number:1-100>, <word>, <word:start,stop>, <name>, <package>, <address>,
	// <span>; behind "--option=" or "name=" too. <word...> at the end is one or more words. No placeholder takes what begins with "-".
	Argv string `toml:"argv"`
	// Env names variables that the caller may set, beside LANG, LC_*, TZ, TERM, COLUMNS, LINES and NO_COLOR.
	Env []string `toml:"env"`
}

// Scope says where something is allowed; an empty one allows it nowhere.
type Scope struct {
	Guests []string `toml:"guests"` // ids, or "*"
	Pools  []string `toml:"pools"`
	Nodes  []string `toml:"nodes"` // the nodes themselves
}

func (r Rule) scope() Scope { return Scope{Guests: r.Guests, Pools: r.Pools, Nodes: r.Nodes} }

// Has says whether the place is within the scope.
func (s Scope) Has(p Place) bool {
	switch p.Where {
	case Host:
		return p.Node != "" && (slices.Contains(s.Nodes, "*") || slices.Contains(s.Nodes, p.Node))
	case CT, VM:
		if p.VMID <= 0 {
			return false
		}
		return slices.Contains(s.Guests, "*") || slices.Contains(s.Guests, strconv.Itoa(p.VMID)) ||
			slices.ContainsFunc(p.Pools, func(pool string) bool { return pool != "" && slices.Contains(s.Pools, pool) })
	}
	return false
}

// Empty says whether it allows nothing anywhere.
func (s Scope) Empty() bool { return len(s.Guests)+len(s.Pools)+len(s.Nodes) == 0 }

// check returns warnings.
func (s Scope) check() (warnings []string, err error) {
	for _, g := range s.Guests {
		if g == "*" {
			warnings = append(warnings, "guests holds \"*\": every guest, also those made later")
			continue
		}
		if _, err := ID(g); err != nil {
			return nil, err
		}
	}
	for _, n := range s.Nodes {
		if n == "*" {
			warnings = append(warnings, "nodes holds \"*\": every node itself")
			continue
		}
		if err := (Arg{Name: "nodes", Kind: Name}).Check(n); err != nil {
			return nil, err
		}
	}
	for _, p := range s.Pools {
		if p == "*" {
			return nil, errors.New("pools holds \"*\": write guests = [\"*\"] for every guest")
		}
		if p == "" || clean(p) != nil {
			return nil, fmt.Errorf("%s is no name of a pool", show(p))
		}
	}
	return warnings, nil
}

// token is one part of a pattern: text alone, or text followed by a placeholder.
type token struct {
	text   string
	holder bool
	many   bool // one or more arguments
	arg    Arg
	oneOf  []string
}

// pattern is the argv of a rule, understood.
type pattern []token

func (t token) matches(arg string) bool {
	if !t.holder {
		return arg == t.text
	}
	value, ok := strings.CutPrefix(arg, t.text)
	if !ok || t.arg.check(value) != nil {
		return false
	}
	return len(t.oneOf) == 0 || slices.Contains(t.oneOf, value) || t.arg.Kind == Unit && slices.Contains(t.oneOf, strings.TrimSuffix(value, ".service"))
}

func (p pattern) matches(argv []string) bool {
	if len(p) == 0 || len(argv) < len(p) || len(argv) > len(p) && !p[len(p)-1].many {
		return false
	}
	for i, a := range argv {
		if !p[min(i, len(p)-1)].matches(a) {
			return false
		}
	}
	return true
}

// literal patterns let exactly one command through.
func (p pattern) literal() bool {
	return !slices.ContainsFunc(p, func(t token) bool { return t.holder })
}

// parse reads the argv of a rule.
func parse(argv string) (pattern, []string, error) {
	var p pattern
	var warnings []string
	words := strings.Fields(argv)
	if len(words) == 0 {
		return nil, nil, errors.New("argv is empty")
	}
	if len(words) > maxArgs {
		return nil, nil, fmt.Errorf("argv has more than %d parts", maxArgs)
	}
	for i, w := range words {
		text, holder, is := strings.Cut(w, "<")
		if !is {
			if err := clean(w); err != nil {
				return nil, nil, fmt.Errorf("argv part %s: %w", show(w), err)
			}
			p = append(p, token{text: w})
			continue
		}
		holder, ok := strings.CutSuffix(holder, ">")
		if !ok || strings.ContainsAny(holder, "<>") {
			return nil, nil, fmt.Errorf("argv part %s: a placeholder stands alone or at the end of \"--option=\" or \"name=\"", show(w))
		}
		t, err := placeholder(holder)
		if err != nil {
			return nil, nil, fmt.Errorf("argv part %s: %w", show(w), err)
		}
		t.text = text
		switch {
		case i == 0:
			return nil, nil, fmt.Errorf("argv part %s: the program must be named", show(w))
		case t.many && (i != len(words)-1 || text != ""):
			return nil, nil, fmt.Errorf("argv part %s: it must stand alone, as the last part", show(w))
		case clean(text) != nil || text != "" && (!strings.HasSuffix(text, "=") || strings.Trim(text, "-=") == "" || strings.HasPrefix(text, "-") && !strings.HasPrefix(text, "--")):
			return nil, nil, fmt.Errorf("argv part %s: before a placeholder only \"--option=\" or \"name=\" may stand", show(w))
		}
		if t.many {
			warnings = append(warnings, "<word...> takes any number of words")
		}
		if t.arg.Kind == Path && t.arg.Under == "" {
			warnings = append(warnings, "<path> takes every path; name a folder: <path:/srv>")
		}
		if t.arg.Kind == Path {
			warnings = append(warnings, "whoever can write in the folder of a <path> can put links to other places there")
		}
		p = append(p, t)
	}
	return p, warnings, nil
}

// placeholder reads what stands between < and >.
func placeholder(s string) (token, error) {
	kind, of, limited := strings.Cut(s, ":")
	t := token{holder: true}
	if kind, t.many = strings.CutSuffix(kind, "..."); t.many && (kind != string(Word) || limited) {
		return t, errors.New("only <word...> takes more than one argument")
	}
	t.arg = Arg{Name: "placeholder", Kind: Kind(kind)}
	switch t.arg.Kind {
	case Unit, Path, Number, Package, Span, Name, Address, Word:
	default:
		return t, fmt.Errorf("there is no placeholder <%s>: there are unit, path, number, package, span, name, address and word", kind)
	}
	if !limited {
		return t, nil
	}
	switch t.arg.Kind {
	case Path:
		if err := (Arg{Kind: Path}).check(of); err != nil {
			return t, err
		}
		t.arg.Under = of
	case Number:
		low, high, ok := strings.Cut(of, "-")
		for _, n := range []string{low, high} {
			if err := (Arg{Kind: Number}).check(n); err != nil || !ok {
				return t, errors.New("the range of a number is written <number:1-100>")
			}
		}
		t.arg.Min, _ = strconv.ParseInt(low, 10, 64)
		t.arg.Max, _ = strconv.ParseInt(high, 10, 64)
		if t.arg.Max == 0 || t.arg.Min > t.arg.Max {
			return t, errors.New("the range of a number is empty")
		}
	default:
		for _, one := range strings.Split(of, ",") {
			if err := t.arg.check(one); err != nil {
				return t, fmt.Errorf("%s: %w", show(one), err)
			}
			t.oneOf = append(t.oneOf, one)
		}
	}
	return t, nil
}
