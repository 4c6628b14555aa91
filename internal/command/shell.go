package command

import (
	"strings"
)

// word is one word of a command after quotes are gone.
type word struct {
	text    string
	unknown bool // a part of it is filled in when it runs
	quoted  bool // no part of it can become several words
	glob    bool // holds an unquoted pattern
	process bool // a process substitution
	brace   bool // holds an unquoted {
}

// redirect is one redirection of a command.
type redirect struct {
	op     string
	target word
	body   string // of a here-document or here-string
	known  bool   // whether the body is all there is
}

// invocation is one simple command.
type invocation struct {
	sets      []word // NAME=value before the command
	words     []word
	redirects []*redirect
	fed       bool    // gets its input from a pipe
	feed      *string // what it gets from that pipe, where that is told
	forks     bool    // in a pipe or in the background
	within    []string
}

// parser reads a script in one pass; substitutions are read where they stand.
type parser struct {
	j       *judge
	s       string
	at      int
	heres   []*redirect    // here-documents whose bodies begin after this line
	waiting [][]invocation // pipelines that are not judged yet
	fault   string
	depth   int
}

// shell judges a script.
func (j *judge) shell(text string) {
	if !j.enter(text) {
		return
	}
	defer func() { j.nested-- }()
	if strings.IndexByte(text, 0) >= 0 {
		j.unread("it holds a zero byte")
		return
	}
	p := &parser{j: j, s: text}
	p.list("")
	defer p.flush()
	if p.fault == "" && p.at < len(p.s) {
		p.fail("there is a %q that nothing opens", p.s[p.at:p.at+1])
	}
	if p.fault == "" && len(p.heres) > 0 {
		p.fail("a here-document does not begin")
	}
	if p.fault != "" {
		j.unread("it cannot be read as shell: %s", p.fault)
	}
}

func (p *parser) fail(format string, args ...any) {
	if p.fault == "" {
		p.fault = printable(sprintf(format, args...))
	}
	p.at = len(p.s) // nothing after it is read
}

func (p *parser) peek() byte {
	if p.at < len(p.s) {
		return p.s[p.at]
	}
	return 0
}

func (p *parser) has(prefix string) bool { return strings.HasPrefix(p.s[p.at:], prefix) }

// blank skips blanks, continued lines and comments.
func (p *parser) blank() {
	for p.at < len(p.s) {
		switch c := p.s[p.at]; {
		case c == ' ' || c == '\t':
			p.at++
		case c == '\\' && p.has("\\\n"):
			p.at += 2
		case c == '#':
			if n := strings.IndexByte(p.s[p.at:], '\n'); n >= 0 {
				p.at += n
			} else {
				p.at = len(p.s)
			}
		default:
			return
		}
	}
}

// newline ends a line, after which the bodies of its here-documents stand.
func (p *parser) newline() {
	p.at++
	heres := p.heres
	p.heres = nil
	for _, h := range heres {
		p.hereBody(h)
	}
	if len(p.heres) == 0 {
		p.flush()
	}
}

func (p *parser) hereBody(h *redirect) {
	var body strings.Builder
	strip := h.op == "<<-"
	for p.at < len(p.s) {
		line, rest, more := strings.Cut(p.s[p.at:], "\n")
		p.at = len(p.s) - len(rest)
		if !more {
			p.at = len(p.s)
		}
		if strip {
			line = strings.TrimLeft(line, "\t")
		}
		if line == h.target.text {
			h.body, h.known = body.String(), true
			if !h.target.quoted && strings.ContainsAny(h.body, "$`") {
				h.known = !p.substitutions(h.body)
			}
			return
		}
		body.WriteString(line + "\n")
	}
	p.fail("a here-document does not end with %q", brief(h.target.text))
}

// substitutions reads what a text in double quotes would run; it says whether any part of the text is filled in then.
func (p *parser) substitutions(text string) (unknown bool) {
	if !p.j.enter(text) {
		return true
	}
	defer func() { p.j.nested-- }()
	in := &parser{j: p.j, s: text, depth: p.depth}
	for in.at < len(in.s) && in.fault == "" {
		switch in.s[in.at] {
		case '\\':
			in.at += 2
		case '$':
			w := &word{}
			in.dollar(w, true)
			unknown = unknown || w.unknown
		case '`':
			in.backquote()
			unknown = true
		default:
			in.at++
		}
	}
	in.flush()
	if in.fault != "" {
		p.fail("%s", in.fault)
	}
	return unknown
}

// list reads commands up to a closing word or sign, which it leaves; "" is the end of the text.
func (p *parser) list(closes string) {
	if p.depth++; p.depth > 200 {
		p.fail("it is nested too deep")
	}
	defer func() { p.depth-- }()
	for p.fault == "" {
		p.blank()
		switch c := p.peek(); {
		case p.at >= len(p.s):
			if closes != "" {
				p.fail("%q is missing", closes)
			}
			return
		case c == '\n':
			p.newline()
		case p.has(";;") && closes == "esac", c == ')' && closes != "":
			return
		case c == ';' || c == '&' || c == '|':
			p.at++
		case c == ')':
			return
		default:
			if p.closing(closes) {
				return
			}
			p.pipeline()
		}
	}
}

// reserved words that end a list, by what the list is part of.
var ends = map[string][]string{"}": {"}"}, "fi": {"then", "elif", "else", "fi"}, "done": {"do", "done"}, "esac": {"esac"}}

func (p *parser) closing(closes string) bool {
	bare := p.bare()
	for _, w := range ends[closes] {
		if bare == w {
			return true
		}
	}
	return false
}

// bare is the unquoted word that stands here, where it is made of plain letters only.
func (p *parser) bare() string {
	n := p.at
	for n < len(p.s) && strings.IndexByte(" \t\n;&|()<>", p.s[n]) < 0 {
		n++
	}
	w := p.s[p.at:n]
	if strings.ContainsAny(w, "\\'\"$`*?[") && w != "[[" {
		return ""
	}
	return w
}

// pipeline reads commands joined by |. They are judged when the line is over: bodies of here-documents follow it.
func (p *parser) pipeline() {
	var pipe []invocation
	fed := false
	for p.fault == "" {
		p.blank()
		inv, _ := p.command()
		if p.fault != "" {
			return
		}
		inv.fed, inv.within = fed, p.within()
		pipe = append(pipe, inv)
		p.blank()
		if p.peek() != '|' || p.has("||") {
			break
		}
		p.at++
		if p.peek() == '&' {
			p.at++
		}
		for p.blank(); p.peek() == '\n' && p.fault == ""; p.blank() {
			p.newline()
		}
		fed = true
	}
	forks := len(pipe) > 1 || p.peek() == '&' && !p.has("&&")
	for i := range pipe {
		pipe[i].forks = forks
	}
	p.waiting = append(p.waiting, pipe)
}

// within is a copy: the functions whose bodies are being read here.
func (p *parser) within() []string { return append([]string(nil), p.j.within...) }

// flush judges what was read.
func (p *parser) flush() {
	for _, pipe := range p.waiting {
		for i := range pipe {
			if i > 0 {
				pipe[i].feed = pipe[i-1].says()
			}
			p.j.run(pipe[i])
		}
	}
	p.waiting = nil
}

// says is what a command writes, where that stands in its text.
func (inv invocation) says() *string {
	if len(inv.words) == 0 || inv.words[0].unknown {
		return nil
	}
	name, args := inv.words[0].text, inv.words[1:]
	var out []string
	for _, w := range args {
		if w.unknown || w.glob || w.process {
			return nil
		}
		out = append(out, w.text)
	}
	switch name {
	case "echo":
		if len(out) > 0 && out[0] == "-n" {
			out = out[1:]
		}
		text := strings.Join(out, " ")
		if strings.Contains(text, `\`) {
			return nil // some shells resolve it
		}
		return &text
	case "cat":
		if len(out) == 0 {
			for _, r := range inv.redirects {
				if strings.HasPrefix(r.op, "<<") && r.known {
					return &r.body
				}
			}
		}
	}
	return nil
}
