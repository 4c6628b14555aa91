package hostapt

import (
	"fmt"
	"slices"
	"strings"

	"castellan/internal/patch"
)

// move is one line of a simulation: what would be done to one package.
type move struct {
	name, arch, old, fresh string // name without architecture; arch may be unknown of a removal
	remove                 bool
}

// simulated is what "apt-get -s dist-upgrade" says.
type simulated struct {
	moves   []move
	kept    []string       // kept back
	foreign []patch.Change // from elsewhere than the makers' archives of this release
}

// parseSimulation reads it. A line that is not understood is an error: nothing is overlooked.
func parseSimulation(text string) (simulated, error) {
	var out simulated
	kept := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		switch {
		case kept && strings.HasPrefix(line, "  "):
			out.kept = append(out.kept, strings.Fields(line)...)
			continue
		case strings.HasPrefix(line, "Inst "):
			m, err := parseInst(strings.TrimPrefix(line, "Inst "))
			if err != nil {
				return out, err
			}
			out.moves = append(out.moves, m)
		case strings.HasPrefix(line, "Remv "), strings.HasPrefix(line, "Purg "):
			f := strings.Fields(line)
			if len(f) < 3 || !strings.HasPrefix(f[2], "[") {
				return out, fmt.Errorf("read simulation: %.120q", line)
			}
			m := move{remove: true, old: strings.Trim(f[2], "[]")}
			m.name, m.arch, _ = strings.Cut(f[1], ":")
			out.moves = append(out.moves, m)
		}
		kept = strings.HasPrefix(line, "The following packages have been kept back:")
	}
	return out, nil
}

// parseInst reads "libc6 [2.36-9] (2.36-10 Debian:12.5/stable [amd64]) [other:amd64 ]".
func parseInst(text string) (move, error) {
	var m move
	name, rest, ok := strings.Cut(text, " ")
	m.name, m.arch, _ = strings.Cut(name, ":")
	if ok && strings.HasPrefix(rest, "[") {
		end := strings.IndexByte(rest, ']')
		if end < 0 {
			return m, fmt.Errorf("read simulation: %.120q", text)
		}
		m.old, rest = rest[1:end], strings.TrimPrefix(rest[end+1:], " ")
	}
	inner, found := strings.CutPrefix(rest, "(")
	inner, _, closed := strings.Cut(inner, ")")
	fields := strings.Fields(inner)
	if !found || !closed || len(fields) == 0 {
		return m, fmt.Errorf("read simulation: %.120q", text)
	}
	m.fresh = fields[0]
	if last := fields[len(fields)-1]; strings.HasPrefix(last, "[") {
		m.arch = strings.Trim(last, "[]")
	}
	return m, nil
}

// have is a package of the machine.
type have struct {
	name, arch, version, status string // status: "ii", "hi", "iU", ...
	essential                   bool
}

func (h have) held() bool { return strings.HasPrefix(h.status, "h") }

// inventory are the packages by "name:arch".
type inventory map[string]have

// parseInventory reads dpkg-query's lines of inventoryFormat.
func parseInventory(text string) inventory {
	out := inventory{}
	for line := range strings.Lines(text) {
		f := strings.Split(strings.TrimRight(line, "\r\n"), "\t")
		if len(f) != 5 || f[0] == "" {
			continue
		}
		h := have{name: f[0], arch: f[1], version: f[2], status: strings.TrimSpace(f[3]), essential: f[4] == "yes"}
		if len(h.status) > 1 && (h.status[1] == 'n' || h.status[1] == 'c') { // not there, or its configuration alone
			continue
		}
		out[h.name+":"+h.arch] = h
	}
	return out
}

const inventoryFormat = "${Package}\\t${Architecture}\\t${Version}\\t${db:Status-Abbrev}\\t${Essential}\\n"

// find is the package of this name; the architecture may be unknown.
func (i inventory) find(name, arch string) (have, bool) {
	if arch != "" {
		if h, ok := i[name+":"+arch]; ok {
			return h, true
		}
		if h, ok := i[name+":all"]; ok {
			return h, true
		}
	}
	for _, h := range i {
		if h.name == name && arch == "" {
			return h, true
		}
	}
	return have{}, false
}

// versions are the texts of what is installed, to be compared later.
func (i inventory) versions() map[string]string {
	out := make(map[string]string, len(i))
	for k, h := range i {
		out[k] = h.version
	}
	return out
}

// difference is what became of packages between two looks.
func difference(before, after map[string]string) patch.Transaction {
	var out patch.Transaction
	split := func(k string) (name, arch string) {
		name, arch, _ = strings.Cut(k, ":")
		return name, arch
	}
	for k, v := range after {
		name, arch := split(k)
		switch old, was := before[k]; {
		case !was:
			out = append(out, patch.Change{Action: patch.Install, Name: name, Arch: arch, New: v})
		case old != v:
			out = append(out, patch.Change{Action: patch.Upgrade, Name: name, Arch: arch, Old: old, New: v})
		}
	}
	for k, v := range before {
		if _, is := after[k]; !is {
			name, arch := split(k)
			out = append(out, patch.Change{Action: patch.Remove, Name: name, Arch: arch, Old: v})
		}
	}
	sortTransaction(out)
	return out
}

func sortTransaction(t patch.Transaction) {
	slices.SortFunc(t, func(a, b patch.Change) int { return strings.Compare(a.Name+":"+a.Arch, b.Name+":"+b.Arch) })
}

func key(c patch.Change) string { return c.Name + ":" + c.Arch }
