package hostapt

import (
	"slices"
	"strings"
	"unicode"

	"castellan/internal/patch"
)

// source is an archive that apt knows, as "apt-cache policy" tells it.
type source struct {
	name                                        string // "http://mirror.example/debian bookworm/main amd64 Packages"
	origin, label, suite, codename, comp, where string
	proved                                      bool // a key of the maker that it names has signed it
}

// pockets are the parts of a release that a host is kept up from; backports and proposed updates are none.
var pockets = []string{"", "-security", "-updates"}

// makers are those whose archives a Proxmox host is made from.
var makers = []string{"Debian", "Proxmox"}

func (s source) installed() bool { return s.suite == "now" && s.origin == "" }

// release is the release of the distribution that it is of: "bookworm" of "bookworm-security".
func (s source) release() string {
	r, _, _ := strings.Cut(s.codename, "-")
	return r
}

// place is the archive and the release of it: "http://mirror.example/debian bookworm".
func (s source) place() string {
	f := strings.Fields(s.name)
	if len(f) < 2 {
		return ""
	}
	release := f[1]
	if at := strings.LastIndexByte(release, '/'); at > 0 {
		release = release[:at]
	}
	return strings.TrimSuffix(f[0], "/") + " " + release
}

// feigns says whether it calls itself one of a maker's and no key of that maker has signed it.
func (s source) feigns() bool { return slices.Contains(makers, s.origin) && !s.proved }

// official says whether a host of this release is kept up from it.
func (s source) official(codename string) bool {
	if !slices.Contains(makers, s.origin) || codename == "" || !s.proved {
		return false
	}
	return slices.ContainsFunc(pockets, func(p string) bool { return s.codename == codename+p })
}

// otherRelease says whether it is one of the makers' archives of another release.
func (s source) otherRelease(codename string) bool {
	return slices.Contains(makers, s.origin) && codename != "" && s.release() != "" && s.release() != codename
}

func (s source) sort(codename string) patch.Sort {
	switch {
	case !s.official(codename):
		return patch.ThirdParty
	case strings.HasSuffix(s.codename, "-security"):
		return patch.Security
	}
	return patch.Official
}

// archive is what a transaction calls it: no spaces.
func (s source) archive() string {
	word := func(t string) string {
		return strings.TrimLeft(strings.Map(func(r rune) rune {
			if r < 0x80 && (unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("._+~-/", r)) {
				return r
			}
			return '_'
		}, t), "._+~-/")
	}
	name, place := s.label, s.codename
	if s.origin == "Proxmox" {
		name = s.origin
		if c, ok := strings.CutPrefix(s.label, "Proxmox Ceph "); ok {
			version, _, _ := strings.Cut(c, " ")
			name += "-Ceph-" + version
		}
		place += "/" + s.comp
	}
	if name == "" {
		name = s.origin
	}
	if name == "" {
		name = s.where
	}
	if place == "" {
		place = s.suite
	}
	name, place = word(name), word(place)
	if name == "" {
		name = "unknown"
	}
	if place == "" {
		return name
	}
	return name + ":" + place
}

// parsePolicy reads "apt-cache policy" without names.
func parsePolicy(text string) []source {
	var out []source
	files := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		switch {
		case strings.HasPrefix(line, "Package files:"):
			files = true
		case len(line) > 0 && line[0] != ' ':
			files = false
		case !files:
		case strings.HasPrefix(line, "     release "):
			if len(out) > 0 {
				out[len(out)-1].read(strings.TrimPrefix(line, "     release "))
			}
		case strings.HasPrefix(line, "     origin "):
			if len(out) > 0 {
				out[len(out)-1].where = strings.TrimPrefix(line, "     origin ")
			}
		default:
			if _, name, ok := strings.Cut(strings.TrimLeft(line, " "), " "); ok {
				out = append(out, source{name: strings.TrimSpace(name)})
			}
		}
	}
	return out
}

// read takes "v=12.5,o=Debian,a=stable,n=bookworm,l=Debian,c=main,b=amd64"; values may hold commas.
func (s *source) read(text string) {
	to := map[string]*string{"o": &s.origin, "a": &s.suite, "n": &s.codename, "l": &s.label, "c": &s.comp}
	var now *string
	for part := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(part, "=")
		if ok && (to[key] != nil || key == "v" || key == "b") {
			if now = to[key]; now != nil {
				*now = value
			}
			continue
		}
		if now != nil {
			*now += "," + part
		}
	}
}

// version is one that apt knows of a package, with the archives that have it.
type version struct {
	text    string
	sources []string
}

// known is what "apt-cache policy NAME" tells of a package.
type known struct {
	installed, candidate string
	versions             []version
}

// parsePolicyOf reads "apt-cache policy NAME…", by the names as apt writes them ("libc6", "libc6:i386").
func parsePolicyOf(text string) map[string]known {
	out := map[string]known{}
	name, table := "", false
	var k known
	put := func() {
		if name != "" {
			out[name] = k
		}
	}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		trimmed := strings.TrimSpace(line)
		switch {
		case line == "":
		case line[0] != ' ':
			put()
			name, k, table = strings.TrimSuffix(line, ":"), known{}, false
		case strings.HasPrefix(line, "  Installed: "):
			k.installed = strings.TrimPrefix(line, "  Installed: ")
		case strings.HasPrefix(line, "  Candidate: "):
			k.candidate = strings.TrimPrefix(line, "  Candidate: ")
		case strings.HasPrefix(line, "  Version table:"):
			table = true
		case !table:
		case strings.HasPrefix(line, " *** ") || strings.HasPrefix(line, "     ") && len(line) > 5 && line[5] != ' ':
			k.versions = append(k.versions, version{text: strings.Fields(strings.TrimPrefix(trimmed, "*** "))[0]})
		default:
			if _, from, ok := strings.Cut(trimmed, " "); ok && len(k.versions) > 0 {
				v := &k.versions[len(k.versions)-1]
				v.sources = append(v.sources, strings.TrimSpace(from))
			}
		}
	}
	put()
	return out
}

// archives are the sources that have a version of a package.
func (k known) archives(of string, all []source) []source {
	var out []source
	for _, v := range k.versions {
		if v.text != of {
			continue
		}
		for _, s := range all {
			if !s.installed() && slices.Contains(v.sources, s.name) {
				out = append(out, s)
			}
		}
	}
	return out
}

// best is the source that a version is said to come from: security before the rest, official before others.
func best(from []source, codename string) (source, bool) {
	rank := func(s source) int {
		return slices.Index([]patch.Sort{patch.Security, patch.Official, patch.ThirdParty}, s.sort(codename))
	}
	if len(from) == 0 {
		return source{}, false
	}
	return slices.MinFunc(from, func(a, b source) int { return rank(a) - rank(b) }), true
}

// fits says whether a pin of these fields, "n=bookworm", would mean this source too.
func (s source) fits(fields []string) bool {
	return !slices.ContainsFunc(fields, func(f string) bool {
		return !slices.Contains([]string{"o=" + s.origin, "n=" + s.codename, "l=" + s.label, "a=" + s.suite, "c=" + s.comp}, f)
	})
}

// pins are preferences by which nothing comes from archives that are not official: apt then keeps what is installed. What an
// administrator pinned for one package by name stands above them; the transaction is judged all the same.
func pins(all []source, codename string) string {
	var b strings.Builder
	seen := map[string]bool{}
	for _, s := range all {
		if s.installed() || s.official(codename) {
			continue
		}
		pin := ""
		var fields []string
		for _, f := range []struct{ key, value string }{{"o", s.origin}, {"n", s.codename}, {"l", s.label}, {"a", s.suite}, {"c", s.comp}} {
			if f.value != "" && !strings.ContainsAny(f.value, ",\"*?/[]") {
				fields = append(fields, f.key+"="+f.value)
			}
		}
		switch {
		case s.origin+s.label+s.codename != "" && len(fields) > 1 && !slices.ContainsFunc(all, func(o source) bool { return o.official(codename) && o.fits(fields) }):
			pin = "release " + strings.Join(fields, ",")
		case s.where != "" && !slices.ContainsFunc(all, func(o source) bool { return o.where == s.where && o.official(codename) }):
			pin = `origin "` + strings.ReplaceAll(s.where, `"`, "") + `"`
		case s.where == "" && !slices.ContainsFunc(all, func(o source) bool { return !o.installed() && o.where == "" && o.official(codename) }):
			pin = `origin ""`
		}
		if pin != "" && !seen[pin] {
			seen[pin] = true
			b.WriteString("Package: *\nPin: " + pin + "\nPin-Priority: -1\n\n")
		}
	}
	return b.String()
}
