package catalog

import (
	"net/netip"
	"strings"
	"unicode"
)

// token is one word of a text. Words that name something (numbers, addresses, paths, task ids) are kept
// apart, since no operation is told by them, at most by their sort.
type token struct {
	text   string // lower case, accents folded
	first  bool   // begins a sentence or a clause
	named  bool   // a number, an address, a path or the like
	sort   string // what a name looks like: "ip", "cidr", "mail", "domain", "file", "upid" or empty
	quoted bool
	joint  bool // part of a word with hyphens or underscores
}

// tokens splits a text into words. It never fails and its result is linear in the input.
func tokens(text string) []token {
	var out []token
	first, quoted := true, false
	for _, field := range strings.Fields(text) {
		if strings.HasPrefix(field, "\"") || strings.HasPrefix(field, "'") || strings.HasPrefix(field, "`") {
			quoted = true
		}
		core := strings.Trim(field, "\"'`.,;:!?()[]«»„“”…")
		if named(core) {
			out = append(out, token{text: core, first: first, named: true, sort: sortOf(core), quoted: quoted})
			first = false
		} else {
			parts := split(core)
			for _, w := range parts {
				w.first, w.quoted, w.joint = first, quoted, len(parts) > 1 && strings.ContainsAny(core, "-_")
				out = append(out, w)
				first = false
			}
		}
		last := field[len(field)-1]
		if last == '"' || last == '\'' || last == '`' || strings.ContainsAny(field[max(0, len(field)-3):], "\"'`") {
			quoted = false
		}
		switch last {
		case '.', ',', ';', ':', '!', '?':
			first = true
		}
	}
	return out
}

// named says whether a word is a name or a number rather than vocabulary.
func named(s string) bool {
	if strings.HasPrefix(strings.ToUpper(s), "UPID:") || strings.Contains(s, "@") || strings.Contains(s, "://") {
		return true
	}
	digits, letters, marks := 0, 0, 0
	for _, r := range s {
		switch {
		case unicode.IsDigit(r):
			digits++
		case unicode.IsLetter(r):
			letters++
		case r == '.' || r == ':' || r == '/':
			marks++
		}
	}
	return digits > 0 && letters == 0 || digits > 0 && marks > 1 || isDomain(s)
}

// isDomain recognises mail.example.com, and not a file name of the field such as ceph.conf.
func isDomain(s string) bool {
	at := strings.LastIndexByte(s, '.')
	if at < 2 || strings.ContainsAny(s, "/_:()") {
		return false
	}
	switch s[at+1:] {
	case "exe", "iso", "zip", "docm", "js":
		return false
	}
	for _, r := range s[at+1:] {
		if !unicode.IsLetter(r) { // osd.12
			return false
		}
	}
	return len(s)-at-1 >= 2
}

// isFile recognises the name of a file by its ending.
func isFile(s string) bool {
	at := strings.LastIndexByte(s, '.')
	if at < 1 {
		return false
	}
	switch s[at+1:] {
	case "conf", "cfg", "log", "img", "gz", "zst", "pem", "key", "crt", "yaml", "json", "sh", "txt", "service", "qcow2", "raw", "vma", "list", "pxar", "fidx", "didx", "blob", "ova", "ovf", "vmdk":
		return true
	}
	return false
}

func sortOf(s string) string {
	if strings.HasPrefix(strings.ToUpper(s), "UPID:") {
		return "upid"
	}
	if _, err := netip.ParsePrefix(s); err == nil {
		return "cidr"
	}
	if _, err := netip.ParseAddr(s); err == nil {
		return "ip"
	}
	if user, host, ok := strings.Cut(s, "@"); ok && isDomain(host) && !strings.Contains(host, "!") {
		if user == "" {
			return "domain"
		}
		return "mail"
	}
	if isFile(s) {
		return "file"
	}
	if isDomain(s) {
		return "domain"
	}
	return ""
}

// split cuts a word at everything that is no letter or digit, and takes trailing digits
// off (net0, vm101).
func split(s string) []token {
	var out []token
	var b strings.Builder
	flush := func() {
		w := b.String()
		b.Reset()
		if w == "" {
			return
		}
		if t := strings.TrimRight(w, "0123456789"); len(t) < len(w) && len(t) >= 2 && !keepDigits(w) {
			digits := w[len(t):]
			if t == "pve" { // the usual name of a node
				t = "node"
			}
			if numbered(t) {
				out = append(out, token{text: t}, token{text: digits, named: true})
			} else {
				out = append(out, token{text: w, named: true}) // web01
			}
			return
		}
		out = append(out, token{text: w})
	}
	for _, r := range s {
		if r == '\'' || r == '’' {
			if b.Len() > 2 { // node's, but l'hôte and d'une begin with an article
				continue
			}
			b.Reset()
			continue
		}
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != 'ー' {
			flush()
			continue
		}
		fold(&b, unicode.ToLower(r))
	}
	flush()
	return out
}

// numbered says whether things of that name are counted (net0, vm101); other words with a number are names.
func numbered(w string) bool {
	switch w {
	case "vm", "ct", "node", "net", "scsi", "sata", "ide", "virtio", "mp", "unused", "hostpci", "usb", "serial", "efidisk", "tpmstate",
		"ipconfig", "eth", "eno", "bond", "vmbr", "vnet", "osd", "pbs", "pmg", "pdm", "vlan", "zone", "mon", "slot", "drive", "ipv", "nfs", "raid":
		return true
	}
	return false
}

// keepDigits names the few words of the field that end in digits.
func keepDigits(w string) bool {
	switch w {
	case "s3", "q35", "x86", "ipv4", "ipv6", "ip4", "ip6", "base64", "influx2", "p12", "ext4", "oauth2", "md5", "sha256", "2fa":
		return true
	}
	return false
}

var folds = strings.NewReplacer("ß", "ss", "æ", "ae", "œ", "oe", "ø", "o", "ł", "l", "đ", "d")

const (
	accented = "àáâãäåāçčćďèéêëēěęìíîïīñňńòóôõöřŕšśťùúûüůūýÿžźż"
	plain    = "aaaaaaacccdeeeeeeeiiiiinnnooooorrsstuuuuuuyyzzz"
)

func fold(b *strings.Builder, r rune) {
	if r < 0x80 {
		b.WriteByte(byte(r))
		return
	}
	at := 0
	for _, a := range accented {
		if a == r {
			b.WriteByte(plain[at])
			return
		}
		at++
	}
	b.WriteString(folds.Replace(string(r)))
}

// stem takes English endings off. It is small and only has to give one form to the forms of a word.
func stem(w string) string {
	switch w {
	case "vms", "cts", "ips", "ids", "vgs", "mps", "gws":
		return w[:2]
	}
	if len(w) <= 3 || w[0] >= 0x80 {
		return w
	}
	switch {
	case strings.HasSuffix(w, "ies") && len(w) > 4:
		w = w[:len(w)-3] + "y"
	case strings.HasSuffix(w, "sses"), strings.HasSuffix(w, "xes"), strings.HasSuffix(w, "shes"), strings.HasSuffix(w, "ches"):
		w = w[:len(w)-2]
	case strings.HasSuffix(w, "s") && !strings.HasSuffix(w, "ss") && !strings.HasSuffix(w, "us") && !strings.HasSuffix(w, "is"):
		w = w[:len(w)-1]
	}
	for _, end := range []struct{ from, to string }{
		{"ization", "iz"}, {"ification", "ify"}, {"isation", "iz"}, {"ising", "iz"}, {"ised", "iz"}, {"ise", "iz"},
		{"ation", "at"}, {"ition", "it"}, {"ution", "ut"}, {"etion", "et"}, {"ction", "ct"}, {"ption", "pt"},
		{"iness", "y"}, {"ingly", ""}, {"edly", ""}, {"ying", "y"}, {"ing", ""}, {"ied", "y"}, {"eed", "ee"}, {"ed", ""},
	} {
		if strings.HasSuffix(w, end.from) && len(w)-len(end.from) >= 3 {
			w = w[:len(w)-len(end.from)] + end.to
			if n := len(w); end.to == "" && n > 3 && w[n-1] == w[n-2] && !strings.ContainsRune("lsz", rune(w[n-1])) {
				w = w[:n-1]
			}
			break
		}
	}
	if len(w) > 3 && w[len(w)-1] == 'e' {
		w = w[:len(w)-1]
	}
	return w
}

// near returns the optimal string alignment distance of two words, or limit+1 when it is above limit.
func near(a, b string, limit int) int {
	x, y := []rune(a), []rune(b)
	if d := len(x) - len(y); d > limit || -d > limit {
		return limit + 1
	}
	two, one, row := make([]int, len(y)+1), make([]int, len(y)+1), make([]int, len(y)+1)
	for j := range one {
		one[j] = j
	}
	for i := 1; i <= len(x); i++ {
		row[0] = i
		best := i
		for j := 1; j <= len(y); j++ {
			cost := 1
			if x[i-1] == y[j-1] {
				cost = 0
			}
			row[j] = min(row[j-1]+1, one[j]+1, one[j-1]+cost)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				row[j] = min(row[j], two[j-2]+1)
			}
			best = min(best, row[j])
		}
		if best > limit {
			return limit + 1
		}
		two, one, row = one, row, two
	}
	return one[len(y)]
}
