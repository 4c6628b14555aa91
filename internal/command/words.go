package command

import (
	"fmt"
	"strconv"
	"strings"
)

func sprintf(format string, args ...any) string { return fmt.Sprintf(format, args...) }

// command reads one command: a simple one, which it returns, or a compound one, whose parts are judged as they are read.
func (p *parser) command() (inv invocation, compound bool) {
	for p.fault == "" {
		p.blank()
		switch bare := p.bare(); {
		case p.has("(("):
			p.arithmetic("((", "))")
			return p.tail(), true
		case p.peek() == '(':
			p.at++
			p.list(")")
			p.expect(")")
			return p.tail(), true
		case bare == "{":
			p.at++
			p.list("}")
			p.expect("}")
			return p.tail(), true
		case bare == "!" || bare == "time" || bare == "coproc":
			p.at += len(bare)
			for p.blank(); bare == "time" && strings.HasPrefix(p.bare(), "-"); p.blank() {
				p.at += len(p.bare())
			}
			continue
		case bare == "if":
			p.at += 2
			for p.list("fi"); p.fault == ""; p.list("fi") {
				w := p.bare()
				if p.expect(w); w == "fi" {
					break
				}
			}
			return p.tail(), true
		case bare == "while" || bare == "until":
			p.at += len(bare)
			p.list("done")
			p.expect("do")
			p.list("done")
			p.expect("done")
			return p.tail(), true
		case bare == "for" || bare == "select":
			p.at += len(bare)
			p.loop()
			return p.tail(), true
		case bare == "case":
			p.at += 4
			p.cases()
			return p.tail(), true
		case bare == "function":
			p.at += len(bare)
			p.blank()
			name := p.bare()
			p.at += len(name)
			p.blank()
			if p.has("(") {
				p.expect("(")
				p.blank()
				p.expect(")")
			}
			p.body(name)
			return p.tail(), true
		case bare == "[[":
			p.at += 2
			p.test()
			return p.tail(), true
		case bare == "then" || bare == "do" || bare == "else" || bare == "elif" || bare == "fi" || bare == "done" || bare == "esac" || bare == "}":
			p.fail("%q stands where a command should", bare)
			return inv, true
		}
		return p.simple()
	}
	return inv, true
}

func (p *parser) expect(w string) {
	p.blank()
	if p.fault != "" {
		return
	}
	if w == "" || !p.has(w) {
		p.fail("%q is missing", w)
		return
	}
	p.at += len(w)
}

// tail reads the redirections after a compound command.
func (p *parser) tail() (inv invocation) {
	for p.fault == "" {
		p.blank()
		if !p.redirection(&inv) {
			return inv
		}
	}
	return inv
}

func (p *parser) loop() {
	p.blank()
	if p.has("((") {
		p.arithmetic("((", "))")
	} else {
		name := p.bare()
		p.at += len(name)
		p.j.sets(name, "", false)
		p.blank()
		for p.peek() == '\n' {
			p.newline()
			p.blank()
		}
		if p.bare() == "in" {
			p.at += 2
			for p.blank(); p.fault == "" && p.at < len(p.s) && strings.IndexByte("\n;", p.peek()) < 0; p.blank() {
				before := p.at
				if p.word(); p.at == before {
					p.fail("a loop's words cannot be read")
				}
			}
		}
	}
	p.list("done")
	p.expect("do")
	p.list("done")
	p.expect("done")
}

func (p *parser) cases() {
	p.blank()
	p.word()
	p.blank()
	for p.peek() == '\n' {
		p.newline()
		p.blank()
	}
	p.expect("in")
	for p.fault == "" {
		p.blank()
		for p.peek() == '\n' {
			p.newline()
			p.blank()
		}
		if p.bare() == "esac" {
			p.at += 4
			return
		}
		if p.peek() == '(' {
			p.at++
		}
		for p.fault == "" && p.peek() != ')' { // patterns
			p.blank()
			before := p.at
			if p.peek() == '|' {
				p.at++
			} else {
				p.word()
			}
			p.blank()
			if p.at == before {
				p.fail("a pattern of case cannot be read")
			}
		}
		if p.fault != "" {
			return
		}
		p.at++
		p.list("esac")
		for _, end := range []string{";;&", ";;", ";&"} {
			if p.has(end) {
				p.at += len(end)
				break
			}
		}
		if p.peek() == ')' {
			p.fail("there is a \")\" that nothing opens")
		}
	}
}

// body reads the body of a function.
func (p *parser) body(name string) {
	for p.blank(); p.peek() == '\n'; p.blank() {
		p.newline()
	}
	if p.j.functions == nil {
		p.j.functions = map[string]bool{}
	}
	p.j.functions[name] = true
	p.j.within = append(p.j.within, name)
	if _, compound := p.command(); !compound && p.fault == "" {
		p.fail("the body of function %s cannot be read", brief(name))
	}
	p.j.within = p.j.within[:len(p.j.within)-1]
}

// test reads [[ … ]]: nothing in it runs but substitutions.
func (p *parser) test() {
	for p.fault == "" {
		p.blank()
		switch {
		case p.at >= len(p.s):
			p.fail("\"]]\" is missing")
		case p.bare() == "]]":
			p.at += 2
			return
		case strings.IndexByte("\n()<>&|;", p.peek()) >= 0:
			p.at++
		default:
			w := p.word()
			p.j.evaluated(w.text)
		}
	}
}

// arithmetic skips an expression, reading what it substitutes.
func (p *parser) arithmetic(open, closes string) {
	p.at += len(open)
	depth := 0
	for p.fault == "" {
		switch {
		case p.at >= len(p.s):
			p.fail("%q is missing", closes)
		case depth == 0 && p.has(closes):
			p.at += len(closes)
			return
		case p.peek() == '(':
			depth++
			p.at++
		case p.peek() == ')':
			depth--
			p.at++
			if depth < 0 {
				p.fail("an expression cannot be read")
			}
		case p.peek() == '$':
			p.dollar(&word{}, true)
		case p.peek() == '`':
			p.backquote()
		default:
			p.at++
		}
	}
}

// simple reads a simple command, or the definition of a function.
func (p *parser) simple() (inv invocation, compound bool) {
	for p.fault == "" {
		p.blank()
		if p.redirection(&inv) {
			continue
		}
		if c := p.peek(); p.at >= len(p.s) || strings.IndexByte("\n;&|)", c) >= 0 {
			return inv, false
		}
		if p.peek() == '(' {
			if len(inv.words) != 1 || len(inv.sets) > 0 {
				p.fail("there is a \"(\" within a command")
				return inv, true
			}
			p.expect("(")
			p.expect(")")
			p.body(inv.words[0].text)
			return p.tail(), true
		}
		before := p.at
		w := p.word()
		if p.at == before && p.fault == "" {
			p.fail("%q stands where a word should", p.s[p.at:p.at+1])
			return inv, true
		}
		if len(inv.words) == 0 && assigns(p.s[before:p.at]) {
			if p.peek() == '(' { // an array
				p.at++
				for p.blank(); p.fault == "" && p.peek() != ')'; p.blank() {
					at := p.at
					if p.peek() == '\n' {
						p.newline()
					} else if p.word(); p.at == at {
						p.fail("an array cannot be read")
					}
				}
				p.expect(")")
			}
			inv.sets = append(inv.sets, w)
			continue
		}
		inv.words = append(inv.words, braces(w)...)
		if len(inv.words) > 20_000 {
			p.fail("a command has too many words")
		}
	}
	return inv, false
}

// assigns says whether a word as written is NAME=… or NAME[…]=….
func assigns(raw string) bool {
	name, _, ok := strings.Cut(raw, "=")
	name = strings.TrimSuffix(name, "+")
	if i := strings.IndexByte(name, '['); i > 0 && strings.HasSuffix(name, "]") {
		name = name[:i]
	}
	if !ok || name == "" || name[0] >= '0' && name[0] <= '9' {
		return false
	}
	return strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == ""
}

// redirection reads one, if one stands here.
func (p *parser) redirection(inv *invocation) bool {
	at := p.at
	for at < len(p.s) && p.s[at] >= '0' && p.s[at] <= '9' {
		at++
	}
	if at == p.at && p.peek() == '{' { // {fd}>file
		if n := strings.IndexByte(p.s[at:], '}'); n > 0 && assigns(p.s[at+1:at+n]+"=") {
			at += n + 1
		}
	}
	rest := p.s[at:]
	op := ""
	for _, o := range []string{"&>>", "<<<", "<<-", "&>", "<<", ">>", ">|", ">&", "<&", "<>", "<", ">"} {
		if strings.HasPrefix(rest, o) {
			op = o
			break
		}
	}
	if op == "" || strings.HasPrefix(op, "&") && at != p.at || (op == "<" || op == ">") && strings.HasPrefix(rest[1:], "(") {
		return false
	}
	p.at = at + len(op)
	p.blank()
	before := p.at
	r := redirect{op: op, target: p.word()}
	if p.at == before {
		p.fail("a redirection leads nowhere")
		return true
	}
	if op == "<<<" {
		r.body, r.known = r.target.text, !r.target.unknown
	}
	inv.redirects = append(inv.redirects, &r)
	if op == "<<" || op == "<<-" {
		r.target.quoted = strings.ContainsAny(p.s[before:p.at], `'"\`)
		p.heres = append(p.heres, &r)
	}
	return true
}

// word reads one word.
func (p *parser) word() word {
	var b strings.Builder
	w := word{quoted: true}
	for p.fault == "" && p.at < len(p.s) {
		switch c := p.s[p.at]; {
		case strings.IndexByte(" \t\n;&|)", c) >= 0:
			w.text = b.String()
			return w
		case c == '(':
			if n := b.Len(); n > 0 && strings.IndexByte("?*+@!", p.s[p.at-1]) >= 0 { // an extended pattern
				w.glob, w.unknown = true, true
				p.skipParens()
				continue
			}
			w.text = b.String()
			return w
		case c == '<' || c == '>':
			if !p.has("<(") && !p.has(">(") {
				w.text = b.String()
				return w
			}
			p.at += 2
			p.list(")")
			p.expect(")")
			w.unknown, w.process = true, true
		case c == '\\':
			if p.at+1 >= len(p.s) {
				p.at++
				b.WriteByte('\\')
				continue
			}
			if p.s[p.at+1] != '\n' {
				b.WriteByte(p.s[p.at+1])
			}
			p.at += 2
		case c == '\'':
			n := strings.IndexByte(p.s[p.at+1:], '\'')
			if n < 0 {
				p.fail("a quote does not end")
				break
			}
			b.WriteString(p.s[p.at+1 : p.at+1+n])
			p.at += n + 2
		case c == '"':
			p.double(&b, &w)
		case c == '`':
			p.backquote()
			w.unknown, w.quoted = true, false
		case c == '$':
			switch {
			case p.has("$'"):
				p.ansi(&b)
			case p.has(`$"`):
				p.at++
			default:
				before := w.unknown
				w.unknown = false
				lit := p.dollar(&w, false)
				b.WriteString(lit)
				if w.unknown {
					w.quoted = false
				}
				w.unknown = w.unknown || before
			}
		case c == '*' || c == '?' || c == '[':
			w.glob = true
			b.WriteByte(c)
			p.at++
		default:
			w.brace = w.brace || c == '{'
			b.WriteByte(c)
			p.at++
		}
	}
	w.text = b.String()
	return w
}

func (p *parser) skipParens() {
	depth := 0
	for p.fault == "" {
		switch {
		case p.at >= len(p.s):
			p.fail("\")\" is missing")
		case p.peek() == '(':
			depth++
			p.at++
		case p.peek() == ')':
			depth--
			p.at++
			if depth == 0 {
				return
			}
		case p.peek() == '$':
			p.dollar(&word{}, true)
		case p.peek() == '`':
			p.backquote()
		default:
			p.at++
		}
	}
}

func (p *parser) double(b *strings.Builder, w *word) {
	for p.at++; p.fault == ""; {
		if p.at >= len(p.s) {
			p.fail("a double quote does not end")
			return
		}
		switch c := p.s[p.at]; c {
		case '"':
			p.at++
			return
		case '\\':
			if p.at+1 < len(p.s) && strings.IndexByte("$`\"\\\n", p.s[p.at+1]) >= 0 {
				if p.s[p.at+1] != '\n' {
					b.WriteByte(p.s[p.at+1])
				}
				p.at += 2
				continue
			}
			b.WriteByte(c)
			p.at++
		case '`':
			p.backquote()
			w.unknown = true
		case '$':
			b.WriteString(p.dollar(w, true))
		default:
			b.WriteByte(c)
			p.at++
		}
	}
}

// dollar reads an expansion and marks the word; it returns the text when it is none.
func (p *parser) dollar(w *word, quoted bool) string {
	switch {
	case p.has("$(("):
		// $(( may also open a substitution that begins with a subshell; both are read.
		save, mark := *p, len(p.j.within)
		p.j.work += min(len(p.s)-p.at, 4096)
		p.arithmetic("$((", "))")
		if p.fault != "" && save.fault == "" && p.j.work <= maxWork {
			*p = save
			p.j.within = p.j.within[:mark]
			p.at += 2
			p.list(")")
			p.expect(")")
		}
	case p.has("$("):
		p.at += 2
		p.list(")")
		p.expect(")")
	case p.has("${"):
		p.at += 2
		p.parameter()
	case p.has("$["):
		p.arithmetic("$[", "]")
	default:
		p.at++
		n := 0
		for p.at+n < len(p.s) && isNameByte(p.s[p.at+n]) {
			n++
		}
		if n == 0 {
			if p.at < len(p.s) && strings.IndexByte("@*#?-$!", p.s[p.at]) >= 0 {
				p.at++
				break
			}
			return "$"
		}
		p.at += n
	}
	w.unknown = true
	return ""
}

func isNameByte(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// parameter reads the rest of ${…}.
func (p *parser) parameter() {
	n := 0
	for p.at+n < len(p.s) && isNameByte(p.s[p.at+n]) {
		n++
	}
	if name, rest := p.s[p.at:p.at+n], strings.TrimPrefix(p.s[p.at+n:], ":"); strings.HasPrefix(rest, "=") {
		p.j.sets(name, rest[1:], false)
	}
	for p.fault == "" {
		if p.at >= len(p.s) {
			p.fail("\"}\" is missing")
			return
		}
		switch p.s[p.at] {
		case '}':
			p.at++
			return
		case '\\':
			p.at += 2
		case '\'':
			n := strings.IndexByte(p.s[p.at+1:], '\'')
			if n < 0 {
				p.at++ // within double quotes it is an ordinary sign
				continue
			}
			if strings.ContainsAny(p.s[p.at+1:p.at+1+n], "$`}") {
				p.fail("what lies between quotes in \"${…}\" can be read in two ways")
				return
			}
			p.at += n + 2
		case '"':
			p.double(&strings.Builder{}, &word{})
		case '`':
			p.backquote()
		case '$':
			p.dollar(&word{}, true)
		case '@':
			if p.has("@P}") || p.has("@E}") {
				p.j.raise(High, "a value is expanded as a prompt, which runs what it holds")
			}
			p.at++
		default:
			p.at++
		}
	}
}

// backquote reads `…`, whose text is unescaped first.
func (p *parser) backquote() {
	var b strings.Builder
	for p.at++; ; p.at++ {
		if p.at >= len(p.s) {
			p.fail("a back quote does not end")
			return
		}
		c := p.s[p.at]
		if c == '`' {
			p.at++
			break
		}
		if c == '\\' && p.at+1 < len(p.s) && strings.IndexByte("$`\\\"", p.s[p.at+1]) >= 0 {
			p.at++
			c = p.s[p.at]
		}
		b.WriteByte(c)
	}
	p.j.shell(b.String())
}

// ansi reads $'…'.
func (p *parser) ansi(b *strings.Builder) {
	p.at += 2
	for ; p.at < len(p.s); p.at++ {
		c := p.s[p.at]
		if c == '\'' {
			p.at++
			return
		}
		if c != '\\' || p.at+1 >= len(p.s) {
			b.WriteByte(c)
			continue
		}
		p.at++
		switch c = p.s[p.at]; c {
		case 'n':
			b.WriteByte('\n')
		case 't':
			b.WriteByte('\t')
		case 'r':
			b.WriteByte('\r')
		case 'a', 'b', 'e', 'E', 'f', 'v', 'c':
			b.WriteByte(0x1b)
		case 'x', 'u', 'U':
			most := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
			n := p.digits(most, 16)
			if c == 'x' {
				b.WriteByte(byte(n))
			} else {
				b.WriteRune(rune(n))
			}
		case '0', '1', '2', '3', '4', '5', '6', '7':
			p.at--
			b.WriteByte(byte(p.digits(3, 8)))
		default:
			b.WriteByte(c)
		}
	}
	p.fail("a quote does not end")
}

// digits reads up to n digits after this place and stays on the last.
func (p *parser) digits(n, base int) int64 {
	end := p.at + 1
	for end < len(p.s) && end-p.at <= n {
		if _, err := strconv.ParseInt(p.s[end:end+1], base, 64); err != nil {
			break
		}
		end++
	}
	v, err := strconv.ParseInt(p.s[p.at+1:end], base, 64)
	if err != nil {
		return 0
	}
	p.at = end - 1
	return v
}

// braces expands {a,b} far enough that no option hides in it.
func braces(w word) []word {
	open := strings.IndexByte(w.text, '{')
	if open < 0 || !w.brace || !strings.Contains(w.text[open:], ",") || !strings.Contains(w.text[open:], "}") {
		return []word{w}
	}
	out := []word{w}
	inner := w.text[open+1 : open+strings.LastIndexByte(w.text[open:], '}')]
	after := w.text[open+strings.LastIndexByte(w.text[open:], '}')+1:]
	for i, part := range strings.Split(inner, ",") {
		if i >= 100 {
			break
		}
		next := w
		next.text, next.unknown = w.text[:open]+strings.Trim(part, "{}")+after, w.unknown || strings.Contains(inner, "{")
		out = append(out, next)
	}
	return out[1:]
}
