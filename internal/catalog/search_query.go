package catalog

import (
	"strings"
	"unicode/utf8"
)

// ask is a question as the search understands it.
type ask struct {
	groups  [][]weighted // one group for each word: the term itself and what it hints at
	want    [intents]float64
	kind    kind
	plural  bool
	single  bool
	product map[string]bool // products named outright
}

// asking are words that begin a question for information.
func asking(w string) bool {
	switch w {
	case "which", "what", "whats", "who", "whose", "when", "where", "why", "is", "are", "does", "did", "has", "have", "any", "do", "was", "were":
		return true
	}
	return false
}

// read analyses a query. What it does not know it leaves out; near misses of known words are mended.
func (l *lexicon) read(query string, parts []*part) ask {
	a := ask{product: map[string]bool{}}
	known := func(w string) bool {
		if l.stop[w] || l.same[stem(w)] != nil {
			return true
		}
		if _, ok := l.verbs[stem(w)]; ok {
			return true
		}
		for _, p := range parts {
			if _, ok := p.surface[w]; ok {
				return true
			}
			if _, ok := p.posts[stem(w)]; ok {
				return true
			}
		}
		return false
	}
	var words []token
	for _, t := range tokens(query) {
		words = append(words, l.english(t, known)...)
	}
	stems := make([]string, len(words))
	for i, t := range words {
		if !t.named && !known(t.text) && len(t.text) > 3 {
			if fixed := l.mend(t.text, parts); fixed != "" {
				words[i].text = fixed
			}
		}
		stems[i] = stem(words[i].text)
		if t.named {
			stems[i] = "\x00" // no phrase goes across a name
		}
	}
	start := true
	for i := 0; i < len(words); {
		t := words[i]
		if t.first {
			start = true
		}
		if t.named || t.quoted && !known(t.text) {
			a.single = true
			start = false
			i++
			continue
		}
		term, n := l.match(stems[i:])
		if n == 0 {
			term, n = stems[i], 1
		}
		v, verb := l.verbs[term]
		if !verb {
			v, verb = l.verbs[stems[i]]
		}
		if verb {
			strength := 0.35
			if start {
				strength = 1
			}
			for k := range v {
				a.want[k] += v[k] * strength
			}
		}
		switch t.text {
		case "all", "every", "list", "which", "any", "overview", "many", "each", "everything", "available":
			a.plural = true
		}
		if start && asking(t.text) && !verb {
			a.want[wantRead] += 0.8
		}
		if t.text == "how" && i+1 < len(words) {
			switch words[i+1].text {
			case "do", "can", "to", "would", "should", "could":
			default:
				a.want[wantRead] += 0.8
			}
		}
		stopped := n == 1 && l.stop[t.text]
		if !stopped {
			start = false
		} else if asking(t.text) {
			start = true
		}
		if p := l.product[term]; p != "" {
			a.product[p] = true
		}
		switch term {
		case "vm":
			a.kind |= kindVM
		case "ct":
			a.kind |= kindCT
		case "guest":
			a.kind |= kindVM | kindCT
		}
		if !stopped && !l.plainVerb(term) {
			group := []weighted{{term, 1}}
			group = append(group, l.hints[term]...)
			a.groups = append(a.groups, group)
		}
		i += n
	}
	if strings.HasSuffix(strings.TrimSpace(query), "?") {
		a.want[wantRead] += 0.2
	}
	return a
}

// english gives the English words for one word of a query: itself, or a translation, also of the parts of
// a compound.
func (l *lexicon) english(t token, known func(string) bool) []token {
	if t.named || t.text == "" {
		return []token{t}
	}
	if r, _ := utf8.DecodeRuneInString(t.text); r >= 0x2e80 {
		return l.fromGlyphs(t)
	}
	if known(t.text) && l.foreign[t.text] == "" {
		return []token{t}
	}
	if to, ok := l.foreign[t.text]; ok {
		return spread(t, to)
	}
	if len(t.text) < 8 || known(t.text) {
		return []token{t}
	}
	for cut := len(t.text) - 3; cut >= 3; cut-- {
		head, tail := t.text[:cut], t.text[cut:]
		left, okLeft := l.half(head, known)
		right, okRight := l.half(tail, known)
		if okLeft && okRight {
			return spread(t, left+" "+right)
		}
	}
	return []token{t}
}

// half is one part of a compound word, perhaps with a linking s, n or en.
func (l *lexicon) half(w string, known func(string) bool) (string, bool) {
	for _, link := range []string{"", "s", "n", "en", "es"} {
		short, ok := strings.CutSuffix(w, link)
		if !ok || len(short) < 3 {
			continue
		}
		if to, ok := l.foreign[short]; ok {
			return to, true
		}
		if link == "" && len(short) > 3 && known(short) && !l.stop[short] {
			return short, true
		}
	}
	return "", false
}

func spread(t token, text string) []token {
	out := tokens(text)
	for i := range out {
		out[i].first, out[i].quoted = t.first && i == 0, t.quoted
	}
	return out
}

// fromGlyphs cuts a run of a script without spaces into the words of the table, longest first.
func (l *lexicon) fromGlyphs(t token) []token {
	var out []token
	runes := []rune(t.text)
	for i := 0; i < len(runes); {
		took := 1
		for n := min(l.longest, len(runes)-i); n > 0; n-- {
			if to, ok := l.glyphs[string(runes[i:i+n])]; ok {
				words := tokens(to)
				for j := range words {
					words[j].first = t.first && len(out) == 0 && j == 0
				}
				out = append(out, words...)
				took = n
				break
			}
		}
		if took == 1 && runes[i] < 0x80 { // Latin letters within the run
			j := i
			for j < len(runes) && runes[j] < 0x80 {
				j++
			}
			out = append(out, token{text: string(runes[i:j])})
			took = j - i
		}
		i += took
	}
	return out
}

// mend finds the known word that an unknown one was most likely meant to be: one slip in a short word, two
// in a long one. Among equals the first in the alphabet is taken.
func (l *lexicon) mend(w string, parts []*part) string {
	limit := 1
	if len(w) >= 8 {
		limit = 2
	}
	best, at := "", limit+1
	try := func(cand string) {
		if len(cand) < 4 || cand[0] != w[0] && limit == 1 && len(w) < 6 {
			return
		}
		if d := near(w, cand, min(limit, at)); d < at || d == at && d <= limit && cand < best {
			best, at = cand, d
		}
	}
	for _, p := range parts {
		for cand := range p.surface {
			try(cand)
		}
	}
	for cand := range l.same {
		try(cand)
	}
	if at > limit {
		return ""
	}
	return best
}
