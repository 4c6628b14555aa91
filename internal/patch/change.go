package patch

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Bounds of what a report may hold. More is an error where all of it counts, and cut with a word about it elsewhere.
const (
	maxChanges = 2000
	maxText    = 600 // bytes of a change, as the catalogue takes it
)

// String is the text of a change; ParseChange reads it.
func (c Change) String() string {
	return fmt.Sprintf("%s %s:%s %s %s %s", c.Action, c.Name, c.Arch, dash(c.Old), dash(c.New), dash(c.Archive))
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func undash(s string) string {
	if s == "-" {
		return ""
	}
	return s
}

// ParseChange reads the text of a change, strictly: what it returns has that very text again.
func ParseChange(text string) (Change, error) {
	c, err := parseChange(text)
	if err == nil && c.Action != Remove && c.Archive == "" {
		err = fmt.Errorf("read change %q: it names no archive", clip(text, 100))
	}
	if err != nil {
		return Change{}, err
	}
	return c, nil
}

// parseChange takes a change without an archive too: a package database does not know where a version came from.
func parseChange(text string) (Change, error) {
	fail := func(why string) (Change, error) {
		return Change{}, fmt.Errorf("read change %q: %s", clip(Clean(text), 100), why)
	}
	if len(text) > maxText {
		return fail(fmt.Sprintf("it has more than %d bytes", maxText))
	}
	parts := strings.Split(text, " ")
	if len(parts) != 5 {
		return fail(`it is not of the form "upgrade name:arch old new archive"`)
	}
	name, arch, _ := strings.Cut(parts[1], ":")
	c := Change{Action: Action(parts[0]), Name: name, Arch: arch, Old: undash(parts[2]), New: undash(parts[3]), Archive: undash(parts[4])}
	switch {
	case !word(c.Name, "+._@~-"):
		return fail("its package has no valid name")
	case !word(c.Arch, "_-") || len(c.Arch) > 30:
		return fail("its architecture is not valid")
	case c.Old != "" && !word(c.Old, ".+:~^_-"), c.New != "" && !word(c.New, ".+:~^_-"):
		return fail("a version is not valid")
	case c.Archive != "" && !word(c.Archive, "._:/+@~-"):
		return fail("its archive is not valid")
	}
	switch c.Action {
	case Upgrade:
		if c.Old == "" || c.New == "" || c.Old == c.New {
			return fail("an upgrade has two different versions")
		}
	case Install:
		if c.Old != "" || c.New == "" {
			return fail("what is installed has no old version and a new one")
		}
	case Remove:
		if c.Old == "" || c.New != "" || c.Archive != "" {
			return fail("what is removed has an old version alone")
		}
	default:
		return fail("the action is none of upgrade, install, remove")
	}
	return c, nil
}

// word says whether a text is of ASCII letters, digits and the other characters given, and begins with one of the former.
func word(s, more string) bool {
	if s == "" || len(s) > 200 {
		return false
	}
	for i := range len(s) {
		b := s[i]
		if b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' {
			continue
		}
		if i == 0 || strings.IndexByte(more, b) < 0 {
			return false
		}
	}
	return true
}

// Texts are the texts of its changes, in the order of ParseTransaction.
func (t Transaction) Texts() []string {
	t = slices.Clone(t)
	t.sort()
	out := make([]string, 0, len(t))
	for _, c := range t {
		out = append(out, c.String())
	}
	return out
}

func (t Transaction) sort() {
	slices.SortFunc(t, func(a, b Change) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Arch, b.Arch), cmp.Compare(a.Action, b.Action), cmp.Compare(a.Old, b.Old), cmp.Compare(a.New, b.New))
	})
}

// ParseTransaction reads the texts of changes. The same package twice is an error, but for one version that comes while another
// goes, as kernels do in some families.
func ParseTransaction(texts []string) (Transaction, error) {
	if len(texts) > maxChanges {
		return nil, fmt.Errorf("read transaction: it has %d changes; %d is the most", len(texts), maxChanges)
	}
	var out Transaction
	for _, text := range texts {
		c, err := ParseChange(text)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, out.check()
}

// check sorts a transaction and finds what contradicts itself.
func (t Transaction) check() error {
	if len(t) > maxChanges {
		return fmt.Errorf("read transaction: it has %d changes; %d is the most", len(t), maxChanges)
	}
	t.sort()
	for i := 1; i < len(t); i++ {
		a, b := t[i-1], t[i]
		if a.Name != b.Name || a.Arch != b.Arch {
			continue
		}
		if a.Action == Upgrade || b.Action == Upgrade || a == b || a.Action == b.Action && a.Old == b.Old && a.New == b.New || a.Action != b.Action && a.New == b.Old {
			return fmt.Errorf("read transaction: %s:%s is in it twice", a.Name, a.Arch)
		}
	}
	return nil
}

// With adds to a part of a transaction what the part needs of the rest. brought says of each that was added, by "name:arch", the
// packages that need it.
func (t Transaction) With(part Transaction) (whole Transaction, brought map[string][]string) {
	at := map[string]Change{}
	for _, c := range t {
		at[c.Name+":"+c.Arch] = c
	}
	brought, taken := map[string][]string{}, map[string]bool{}
	for _, c := range part {
		taken[c.Name+":"+c.Arch] = true
	}
	whole = slices.Clone(part)
	for i := 0; i < len(whole); i++ {
		for _, other := range strings.Fields(at[whole[i].Name+":"+whole[i].Arch].Needs) {
			c, there := at[other]
			switch {
			case !there:
			case !taken[other]:
				taken[other] = true
				whole = append(whole, c)
				fallthrough
			case brought[other] != nil:
				brought[other] = append(brought[other], whole[i].Name)
			}
		}
	}
	whole.sort()
	return whole, brought
}

// key is what tells a change from others, wherever it is said to come from.
func (c Change) key() Change {
	return Change{Action: c.Action, Name: c.Name, Arch: c.Arch, Old: c.Old, New: c.New}
}

// differ finds what was asked for and not done, and what was done and not asked for.
func differ(asked, done Transaction) (missing, beyond Transaction) {
	has := func(t Transaction) map[Change]bool {
		m := map[Change]bool{}
		for _, c := range t {
			m[c.key()] = true
		}
		return m
	}
	did, want := has(done), has(asked)
	for _, c := range asked {
		if !did[c.key()] {
			missing = append(missing, c)
		}
	}
	for _, c := range done {
		if !want[c.key()] {
			beyond = append(beyond, c)
		}
	}
	return missing, beyond
}
