package catalog

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

const maxPath = 8 << 10 // bytes of a path with its query

// segment is one node of a product's trie of path templates.
type segment struct {
	fixed map[string]*segment
	open  *segment              // a placeholder takes this part
	ops   map[string]*Operation // by method
	rest  bool                  // the placeholder here takes all that is left
}

func (s *segment) insert(op *Operation) {
	at := s
	for part := range strings.SplitSeq(strings.Trim(op.Path, "/"), "/") {
		if part == "" {
			continue
		}
		if name, ok := placeholder(part); ok {
			if at.open == nil {
				at.open = &segment{}
			}
			at = at.open
			at.rest = at.rest || name == op.rest
			continue
		}
		if at.fixed == nil {
			at.fixed = map[string]*segment{}
		}
		if at.fixed[part] == nil {
			at.fixed[part] = &segment{}
		}
		at = at.fixed[part]
	}
	if at.ops == nil {
		at.ops = map[string]*Operation{}
	}
	at.ops[op.Method] = op
}

// find walks the parts of a concrete path and returns where they end and what the placeholders took.
func (s *segment) find(parts []string) (*segment, []string) {
	var taken []string
	at := s
	for i, part := range parts {
		if next := at.fixed[part]; next != nil {
			at = next
			continue
		}
		if at.open == nil {
			return nil, nil
		}
		at = at.open
		if at.rest {
			return at, append(taken, strings.Join(parts[i:], "/"))
		}
		taken = append(taken, part)
	}
	return at, taken
}

// swallowsRest tells the templates whose last placeholder takes the rest of the path, slashes included.
func swallowsRest(product, template string) bool {
	last := template[strings.LastIndexByte(template, '/')+1:]
	switch product {
	case "pve":
		return last == "{volume}" || strings.HasSuffix(template, "/ipset/{name}/{cidr}")
	case "pmg":
		return template == "/config/mynetworks/{cidr}"
	}
	return false
}

// decodesWhole tells the products that percent-decode the whole path before they split it.
func decodesWhole(product string) bool { return product == "pve" || product == "pmg" }

// formatters are the words after /api2/ below which a product answers the same operations.
func formatters(product string) []string {
	switch product {
	case "pve":
		return []string{"json", "extjs", "html", "htmljs", "png", "spiceconfig"}
	case "pmg":
		return []string{"json", "extjs", "html", "htmljs", "htmlmail", "png", "spiceconfig"}
	}
	return []string{"json", "extjs"}
}

// PathError says why a path was not taken. Nothing was sent.
type PathError struct {
	Product, Method, Path string
	Reason                string
	Nearest               []string // names of operations that may have been meant
}

func (e *PathError) Error() string {
	s := fmt.Sprintf("match %s path %q: %s", e.Product, e.Path, e.Reason)
	if len(e.Nearest) > 0 {
		s += "; nearest: " + strings.Join(e.Nearest, ", ")
	}
	return s
}

// Match finds the operation of a concrete path, read as the product itself would read it, and the values of its
// placeholders and of the query, if there is one. The path may carry the prefix /api2/json or another formatter.
// What two readers could read in two ways is refused with a *PathError.
func (c *Catalog) Match(product, method, path string) (*Operation, map[string]any, error) {
	t, err := c.table(product)
	if err != nil {
		return nil, nil, err
	}
	fail := func(reason string, near ...string) (*Operation, map[string]any, error) {
		return nil, nil, &PathError{Product: product, Method: method, Path: clip(path, 200), Reason: reason, Nearest: near}
	}
	raw, query, _ := strings.Cut(path, "?")
	parts, reason := splitPath(product, raw, len(path))
	if reason != "" {
		return fail(reason)
	}
	parts, reason = stripFormatter(product, parts)
	if reason != "" {
		return fail(reason)
	}
	at, taken := t.trie.find(parts)
	if at == nil || len(at.ops) == 0 {
		if n := strings.Count(strings.ToLower(raw), "%2f"); n > 0 && decodesWhole(product) {
			return fail("no such path; this product decodes %2F before it splits the path, so an id with a slash cannot stand in it", t.nearPaths(method, parts)...)
		}
		return fail("no such path", t.nearPaths(method, parts)...)
	}
	method = strings.ToUpper(method)
	op := at.ops[method]
	if op == nil {
		var have []string
		for m := range at.ops {
			have = append(have, at.ops[m].ID)
		}
		slices.Sort(have)
		return fail("this path has no "+clip(method, 10), have...)
	}
	if decodesWhole(product) && op.rest == "" && strings.Contains(strings.ToLower(raw), "%2f") {
		return fail("an encoded slash would make another path here")
	}
	args, reason := parseQuery(query)
	if reason != "" {
		return fail(reason)
	}
	for i, name := range op.Placeholders {
		if given, ok := args[name]; ok && given != taken[i] {
			return fail("the query contradicts " + name + " of the path")
		}
		args[name] = taken[i]
	}
	return op, args, nil
}

// Resolve finds an operation by its name's two parts or by a concrete path, and joins the values in the path and its
// query with the explicit arguments. An explicit argument wins over the query; it must not contradict the path.
func (c *Catalog) Resolve(product, method, path string, args map[string]any) (*Operation, map[string]any, error) {
	if op, ok := c.Lookup(product, strings.ToUpper(method)+" "+path); ok {
		return op, args, nil
	}
	op, joined, err := c.Match(product, method, fillPath(path, args))
	if err != nil {
		return nil, nil, err
	}
	for name, v := range args {
		if slices.Contains(op.Placeholders, name) {
			if text, ok := plainText(v); !ok || text != joined[name] {
				return nil, nil, &PathError{Product: product, Method: method, Path: clip(path, 200),
					Reason: "the argument " + name + " contradicts the path"}
			}
			continue
		}
		joined[name] = v
	}
	return op, joined, nil
}

// fillPath puts arguments into the parts of a path that are still placeholders.
func fillPath(path string, args map[string]any) string {
	if !strings.Contains(path, "{") {
		return path
	}
	parts := strings.Split(path, "/")
	for i, part := range parts {
		if name, ok := placeholder(part); ok {
			if text, plain := plainText(args[name]); plain {
				parts[i] = escape(text)
			}
		}
	}
	return strings.Join(parts, "/")
}

// splitPath reads the path part as the product does: PVE and PMG decode all of it and then split at runs of
// slashes, PBS and PDM split first and then decode each part.
func splitPath(product, raw string, total int) (parts []string, refusal string) {
	switch {
	case total > maxPath:
		return nil, fmt.Sprintf("longer than %d bytes", maxPath)
	case strings.Contains(raw, "#"):
		return nil, "a # would cut the path; encode it as %23"
	case strings.Contains(raw, "://"):
		return nil, "give the path alone, without scheme and host"
	}
	if bad := firstBadRune(raw, true); bad != "" {
		return nil, bad
	}
	if decodesWhole(product) {
		whole, ok := percentDecode(raw)
		if !ok {
			return nil, "a % is not followed by two hexadecimal digits"
		}
		raw = whole
	}
	for part := range strings.SplitSeq(raw, "/") {
		if part == "" {
			continue
		}
		if !decodesWhole(product) {
			if part[0] == '.' {
				return nil, "a part of the path begins with a dot"
			}
			p, ok := percentDecode(part)
			if !ok {
				return nil, "a % is not followed by two hexadecimal digits"
			}
			part = p
		}
		if bad := firstBadRune(part, decodesWhole(product)); bad != "" {
			return nil, bad
		}
		if part == "." || part == ".." || !decodesWhole(product) && part[0] == '.' {
			return nil, "a part of the path is or begins with dots"
		}
		parts = append(parts, part)
	}
	return parts, ""
}

func stripFormatter(product string, parts []string) ([]string, string) {
	if len(parts) == 0 || parts[0] != "api2" {
		return parts, ""
	}
	if len(parts) < 2 || !slices.Contains(formatters(product), parts[1]) {
		return nil, "after /api2 one of " + strings.Join(formatters(product), ", ") + " must follow"
	}
	return parts[2:], ""
}

// firstBadRune names the first character that no path may hold: controls, invisible ones, other kinds of blanks,
// broken UTF-8.
func firstBadRune(s string, blank bool) string {
	if !utf8.ValidString(s) {
		return "not valid UTF-8"
	}
	for _, r := range s {
		switch {
		case r == ' ' && !blank:
		case unicode.IsControl(r), unicode.IsSpace(r), unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Zs, unicode.Co, unicode.Cs):
			return fmt.Sprintf("the character U+%04X is not allowed in a path", r)
		case isWideDigit(r):
			return fmt.Sprintf("the character U+%04X is not an ASCII digit", r)
		}
	}
	return ""
}

// isWideDigit tells digits other than 0-9, which a product may read as numbers.
func isWideDigit(r rune) bool { return r > 127 && unicode.Is(unicode.Nd, r) }

// percentDecode undoes %XX once; + stays a plus, as in a path.
func percentDecode(s string) (string, bool) {
	if !strings.Contains(s, "%") {
		return s, true
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b.WriteByte(s[i])
			continue
		}
		if i+2 >= len(s) {
			return "", false
		}
		hi, lo := unhex(s[i+1]), unhex(s[i+2])
		if hi < 0 || lo < 0 {
			return "", false
		}
		b.WriteByte(byte(hi<<4 | lo))
		i += 2
	}
	return b.String(), true
}

func unhex(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// parseQuery reads a query in the way that all four products agree on; where they do not, it refuses.
func parseQuery(query string) (map[string]any, string) {
	args := map[string]any{}
	if query == "" {
		return args, ""
	}
	if strings.ContainsAny(query, "#?") {
		return nil, "the query holds an unencoded # or ?"
	}
	if strings.Contains(query, ";") {
		return nil, "the query holds an unencoded semicolon, at which some products split; encode it as %3B"
	}
	for pair := range strings.SplitSeq(query, "&") {
		if pair == "" {
			continue
		}
		key, value, found := strings.Cut(pair, "=")
		if !found || strings.Contains(value, "=") {
			return nil, "each pair of the query must be one key=value; encode = inside a value as %3D"
		}
		k, ok1 := percentDecode(strings.ReplaceAll(key, "+", " "))
		v, ok2 := percentDecode(strings.ReplaceAll(value, "+", " "))
		if !ok1 || !ok2 || !utf8.ValidString(k) || !utf8.ValidString(v) {
			return nil, "the query is not properly encoded"
		}
		if k == "_dc" { // the web interface's cache breaker; the products drop it
			continue
		}
		switch old := args[k].(type) {
		case nil:
			args[k] = v
		case string:
			args[k] = []any{old, v}
		case []any:
			args[k] = append(old, v)
		}
	}
	return args, ""
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}
