package catalog

import (
	"regexp"
	"strings"
	"sync"
	"unicode/utf8"
)

// patterns holds the products' regular expressions, translated to Go's, each compiled at most once.
type patterns struct {
	compiled sync.Map // pattern as published → *regexp.Regexp, nil when it cannot be translated
}

// The three published patterns that Go cannot compile, checked by hand.
const (
	patternAtomicKeyValues = `(?^u:^((?>[+-]?[\w\-\._=]+,?)+)$)`
	patternManyKeys        = `[0-9a-zA-Z!=]{0,4096}`
	patternPosixPrint      = `^\p{PosixPrint}{1,998}$`
)

// match tells whether the whole text has the form of a pattern. known is false when the pattern cannot be checked.
func (p *patterns) match(pattern, text string) (ok, known bool) {
	switch pattern {
	case patternAtomicKeyValues:
		return text != "" && !strings.Contains(text, ",,") && text[0] != ',' && only(text, "+-._=,", true) && signsLead(text), true
	case patternManyKeys:
		return len(text) <= 4096 && only(text, "!=", false), true
	case patternPosixPrint:
		n := utf8.RuneCountInString(text)
		return n >= 1 && n <= 998 && !strings.ContainsFunc(text, func(r rune) bool { return r < 0x20 || r > 0x7e }), true
	}
	if lines, multi := strings.CutPrefix(pattern, "(?m)"); multi {
		for line := range strings.SplitSeq(text, "\n") {
			if ok, known := p.match(lines, line); !ok || !known {
				return ok, known
			}
		}
		return true, true
	}
	re := p.get(pattern)
	if re == nil {
		return false, false
	}
	return re.MatchString(text), true
}

func (p *patterns) get(pattern string) *regexp.Regexp {
	if re, ok := p.compiled.Load(pattern); ok {
		return re.(*regexp.Regexp)
	}
	re, err := regexp.Compile(`\A(?:` + translate(pattern) + `)\z`)
	if err != nil {
		re = nil
	}
	p.compiled.Store(pattern, re)
	return re
}

// translate turns a Perl or Rust expression into Go's: (?^u: is Perl's way to print a compiled group, {,n} means
// {0,n}, $ before the end would also match before a line end.
func translate(pattern string) string {
	var b strings.Builder
	class := false
	for i := 0; i < len(pattern); i++ {
		rest := pattern[i:]
		switch {
		case pattern[i] == '\\' && i+1 < len(pattern):
			switch pattern[i+1] {
			case '0': // NUL in Perl; Go wants it in hexadecimal
				b.WriteString(`\x00`)
			case '/':
				b.WriteByte('/')
			case '@', '!', '"', '#', '%', '&', '\'', ',', ':', ';', '<', '=', '>', '_', '`', '~':
				b.WriteByte(pattern[i+1])
			default:
				b.WriteString(pattern[i : i+2])
			}
			i++
		case class:
			class = pattern[i] != ']'
			if strings.HasPrefix(rest, "[:") {
				if end := strings.Index(rest, ":]"); end > 0 {
					b.WriteString(rest[:end+2])
					i += end + 1
					class = true
					continue
				}
			}
			b.WriteByte(pattern[i])
		case pattern[i] == '[':
			class = true
			b.WriteByte('[')
			for _, lead := range []string{"^]", "]", "^"} {
				if strings.HasPrefix(rest[1:], lead) {
					b.WriteString(strings.ReplaceAll(lead, "]", `\]`))
					i += len(lead)
					break
				}
			}
		case strings.HasPrefix(rest, "(?^"):
			colon := strings.IndexByte(rest, ':')
			if colon < 0 {
				b.WriteByte(pattern[i])
				continue
			}
			b.WriteString("(?")
			for _, flag := range rest[3:colon] {
				if flag == 'i' || flag == 's' || flag == 'm' {
					b.WriteRune(flag)
				}
			}
			b.WriteByte(':')
			i += colon
		case strings.HasPrefix(rest, "{,"):
			b.WriteString("{0,")
			i++
		case pattern[i] == '$':
			b.WriteString(`\z`)
		default:
			b.WriteByte(pattern[i])
		}
	}
	return b.String()
}

// only tells whether a text holds nothing but ASCII letters, digits, and the extra characters.
func only(text, extra string, underscore bool) bool {
	return !strings.ContainsFunc(text, func(r rune) bool {
		return !(r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || underscore && r == '_' ||
			r < 128 && strings.ContainsRune(extra, r))
	})
}

// signsLead tells whether a plus stands only at the start of a comma-separated part.
func signsLead(text string) bool {
	for part := range strings.SplitSeq(text, ",") {
		if strings.Contains(strings.TrimPrefix(part, "+"), "+") || part == "+" {
			return false
		}
	}
	return true
}
