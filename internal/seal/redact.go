package seal

import (
	"slices"
	"sort"
	"strings"
	"unicode"

	"castellan/internal/regex"
)

// Redacted stands where a secret was taken out of a text or a value.
const Redacted = "[redacted]"

// Redactor takes secrets out of text and of decoded JSON: values it was told,
// values under keys that sound secret, and what has the form of a secret. It is
// a net under the marks of the catalogue, not a replacement for them. Applying
// it twice changes nothing more.
type Redactor struct {
	known    []Secret
	patterns []pattern
}

type pattern struct {
	re *regex.Lazy
	// needs are texts in lower case of which every match holds at least one: looking for them is much cheaper.
	needs []string
	// fix returns the replacement of one match, given its groups.
	fix func(m []string) string
}

// NewRedactor makes a Redactor that also knows some values. Those shorter than
// six bytes are left out: they would blot out ordinary words.
func NewRedactor(known ...Secret) *Redactor {
	r := &Redactor{patterns: patterns()}
	for _, s := range known {
		if len(s.Bytes()) >= 6 && !strings.Contains(Redacted, s.Reveal()) {
			r.known = append(r.known, s)
		}
	}
	// A value that contains another must go first.
	sort.SliceStable(r.known, func(i, j int) bool { return len(r.known[i].Bytes()) > len(r.known[j].Bytes()) })
	return r
}

const uuid = `[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}`

func patterns() []pattern {
	whole := func([]string) string { return Redacted }
	keep := func(m []string) string { return m[1] + Redacted }
	around := func(m []string) string { return m[1] + Redacted + m[3] }
	p := func(needs, expr string, fix func([]string) string) pattern {
		return pattern{re: &regex.Lazy{Expr: expr}, needs: strings.Fields(needs), fix: fix}
	}
	return []pattern{
		// Private keys, also when the end was cut off.
		p("-----begin", `(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY( BLOCK)?-----.*?(-----END [A-Z0-9 ]*PRIVATE KEY( BLOCK)?-----|$)`, whole),
		p("age-secret-key-1", `AGE-SECRET-KEY-1[A-Z0-9]{8,}`, whole),
		// API tokens of the four products: the id stays, the secret goes.
		p("apitoken", `(?i)((?:PVE|PBS|PDM|PMG)APIToken[= ]\s*[^\s=:]+![^\s=:]+[=:])([^\s"',;]+)`, keep),
		p("!", `([A-Za-z0-9][\w.+-]*@[\w.-]+![\w.-]+[=:]\s*)(`+uuid+`)`, keep),
		// Tickets and the token against cross-site requests.
		p("::", `\b(P(?:VE|BS|MG|DM)[A-Z]*:[^\s:"']+:[0-9A-F]{8}::)([A-Za-z0-9+/=%_.-]{20,})`, keep),
		p("authcookie=", `(?i)((?:PVE|PBS|PMG|PDM)AuthCookie=)([^\s;"']+)`, keep),
		p("csrfpreventiontoken", `(?i)(CSRFPreventionToken["']?\s*[:=]\s*["']?)([^\s"',;]+)`, keep),
		// Authorization in general. A word of the language is no credential.
		p("authorization", `(?i)\b((?:proxy-)?authorization["']?\s*[:=]\s*["']?(?:(?:bearer|basic|token|digest|negotiate)\s+)?)([^\s"',;]+)`, func(m []string) string {
			switch strings.ToLower(m[2]) {
			case "bearer", "basic", "token", "digest", "negotiate":
				return m[0]
			}
			return m[1] + Redacted
		}),
		p("bearer basic", `(?i)\b(bearer\s+|basic\s+)([A-Za-z0-9._~+/=-]{12,})`, func(m []string) string {
			if looksRandom(m[2]) {
				return m[1] + Redacted
			}
			return m[0]
		}),
		p("eyj", `\beyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]*`, whole),
		p("ghp_ gho_ ghu_ ghs_ ghr_ github_pat_ glpat- xox akia sk- tk_", `\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,}|xox[a-z]-[A-Za-z0-9-]{10,}|AKIA[0-9A-Z]{16}|sk-[A-Za-z0-9_-]{20,}|tk_[a-z0-9]{24,})`, whole),
		// Password hashes as in /etc/shadow.
		p("$", `\$(?:1|2[abxy]|5|6|7|y|gy|argon2id?|scrypt|pbkdf2[a-z0-9-]*)\$[./A-Za-z0-9$=,+-]{8,}`, whole),
		// The password of a URL.
		p("://", `([A-Za-z][A-Za-z0-9+.-]*://[^\s/:@"']*:)([^\s/@"']+)(@)`, around),
		// name=value, name: value, "name": "value", --name value.
		p("password passwd passphrase secret token credential key ticket cookie recovery otp psk", `(?i)(["']?\b([a-z0-9_.-]*(?:`+strings.Join(secretWords(), "|")+`)[a-z0-9_.-]*)["']?\s*(?:=|:)\s*)("(?:[^"\\]|\\.)*"|'[^']*'|[^\s"',;&})\]]+\]?)`, func(m []string) string {
			// An API token whose secret is out already keeps its id.
			done := strings.HasSuffix(strings.ToLower(m[2]), "apitoken") && strings.HasSuffix(m[3], Redacted)
			if !SecretKey(m[2]) || harmlessValue(m[3]) || done {
				return m[0]
			}
			return m[1] + quoted(m[3])
		}),
		p("password passwd passphrase secret token key", `(?i)((?:^|\s)--?([a-z0-9-]*(?:password|passwd|secret|token|api-?key|passphrase)[a-z0-9-]*)\s+)("[^"]*"|'[^']*'|[^\s"'-][^\s"']*)`, func(m []string) string {
			if !SecretKey(m[2]) || harmlessValue(m[3]) {
				return m[0]
			}
			return m[1] + quoted(m[3])
		}),
	}
}

func quoted(v string) string {
	if len(v) >= 2 && (v[0] == '"' || v[0] == '\'') && v[len(v)-1] == v[0] {
		return v[:1] + Redacted + v[:1]
	}
	return Redacted
}

// harmlessValue: what says only whether there is a secret.
func harmlessValue(v string) bool {
	switch strings.ToLower(strings.Trim(v, `"'`)) {
	case "", "null", "none", "true", "false", "yes", "no", "nil", "{", "[", "(", "<hidden>", strings.ToLower(Redacted), Mask:
		return true
	}
	return false
}

// looksRandom tells a credential from a word of the language.
func looksRandom(s string) bool {
	if len(s) >= 28 {
		return true
	}
	var digit, upper, lower, other bool
	for _, c := range s {
		switch {
		case unicode.IsDigit(c):
			digit = true
		case unicode.IsUpper(c):
			upper = true
		case unicode.IsLower(c):
			lower = true
		default:
			other = true
		}
	}
	return digit || upper && lower && other || len(s) >= 16 && upper && lower
}

func secretWords() []string {
	return []string{"password", "passwd", "passphrase", "secret", "token", "credential", "api[_-]?key", "private[_-]?key", "access[_-]?key",
		"encryption[_-]?key", "auth[_-]?key", "ticket", "cookie", "recovery", "totp", "otp", "psk"}
}

// SecretKey reports whether a value under a key of that name is to be taken for
// a secret. Names that only speak of secrets (token ids, public keys, expiry,
// counts) are not.
func SecretKey(name string) bool {
	n := strings.ToLower(name)
	n = strings.NewReplacer("-", "", "_", "", ".", "", " ", "").Replace(n)
	for _, end := range []string{"tokenid", "tokenname", "tokenids", "pubkey", "publickey", "publickeys", "fingerprint", "expire", "expires", "expiry",
		"expiresin", "enabled", "required", "count", "length", "path", "file", "type", "url", "endpoint", "tokens", "present", "set", "policy", "comment"} {
		if strings.HasSuffix(n, end) && !strings.HasSuffix(n, "offset") {
			return false
		}
	}
	for _, w := range []string{"password", "passwd", "passphrase", "secret", "token", "credential", "apikey", "privatekey", "privkey", "accesskey",
		"encryptionkey", "authkey", "signingkey", "masterkey", "csrf", "cookie", "ticket", "recoverycode", "recoverykey", "totp", "authorization", "bearer"} {
		if strings.Contains(n, w) {
			return true
		}
	}
	switch n {
	case "auth", "otp", "psk", "pass", "pwd", "cipassword", "wpapsk", "presharedkey", "recovery", "hmackey", "sshkey":
		return true
	}
	return false
}

// Text takes secrets out of free text.
func (r *Redactor) Text(s string) string {
	for _, k := range r.known {
		s = strings.ReplaceAll(s, k.Reveal(), Redacted)
	}
	// One replacement may bring another pattern together with its value; a few
	// rounds settle that, and each round only takes away.
	for range 4 {
		before := s
		lower, plain := lowered(s)
		for _, p := range r.patterns {
			if plain && !slices.ContainsFunc(p.needs, func(n string) bool { return strings.Contains(lower, n) }) {
				continue
			}
			if next := replace(p, s); next != s {
				s = next
				lower, plain = lowered(s)
			}
		}
		if s == before {
			break
		}
	}
	return s
}

// lowered gives a text in lower case; false when it holds more than ASCII, where an expression that ignores case may take
// other letters for the same.
func lowered(s string) (string, bool) {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return "", false
		}
	}
	return strings.ToLower(s), true
}

func replace(p pattern, s string) string {
	found := p.re.FindAllStringSubmatchIndex(s, -1)
	if found == nil {
		return s
	}
	var b strings.Builder
	from := 0
	for _, loc := range found {
		groups := make([]string, len(loc)/2)
		for i := range groups {
			if loc[2*i] >= 0 {
				groups[i] = s[loc[2*i]:loc[2*i+1]]
			}
		}
		b.WriteString(s[from:loc[0]])
		b.WriteString(p.fix(groups))
		from = loc[1]
	}
	b.WriteString(s[from:])
	return b.String()
}

// maxDepth bounds how deep Value looks; what lies deeper is taken out whole.
const maxDepth = 64

// Value returns a copy of decoded JSON (maps, slices, strings, …) without
// secrets: a value under a secret key becomes Redacted whatever it is, save
// null and truth values; every other string goes through Text.
func (r *Redactor) Value(v any) any { return r.value(v, 0) }

func (r *Redactor) value(v any, depth int) any {
	if depth > maxDepth {
		return Redacted
	}
	switch v := v.(type) {
	case string:
		return r.Text(v)
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[k] = r.member(k, e, depth)
		}
		return out
	case map[string]string:
		out := make(map[string]string, len(v))
		for k, e := range v {
			out[k], _ = r.member(k, e, depth).(string)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = r.value(e, depth+1)
		}
		return out
	case []string:
		out := make([]string, len(v))
		for i, e := range v {
			out[i] = r.Text(e)
		}
		return out
	case Secret:
		return Redacted
	}
	return v
}

func (r *Redactor) member(key string, v any, depth int) any {
	if !SecretKey(key) {
		return r.value(v, depth+1)
	}
	switch s := v.(type) {
	case nil, bool:
		return v
	case string:
		if s == "" {
			return s
		}
	}
	return Redacted
}
