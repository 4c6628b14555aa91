package catalog

import (
	"strconv"
	"strings"
)

// intent is what a question wants done.
type intent int

const (
	wantRead intent = iota
	wantCreate
	wantChange
	wantDelete
	wantAct
	intents
)

// lexicon is the vocabulary of the field: which words mean the same, which hint at others, what the verbs
// want, and the basic words of some other languages. It is never changed after it was made.
type lexicon struct {
	stop    map[string]bool
	general map[string]bool     // words that one asks with who does not know yet what to ask
	weak    map[string]bool     // stems that say little, such as "old" or "single"
	same    map[string][]phrase // by first stem; longest phrase first
	hints   map[string][]weighted
	verbs   map[string][intents]float64
	plain   map[string]bool              // verbs that tell the intent and nothing else
	foreign map[string]map[string]string // by language: word (no accents) to English
	glyphs  map[string]string            // the same for scripts without spaces
	longest int                          // runes of the longest glyph word
	product map[string]string            // term to the product that it names
}

// phrase is a run of stems that stands for one term.
type phrase struct {
	stems []string
	term  string
}

type weighted struct {
	term   string
	weight float64
}

func newLexicon() *lexicon {
	l := &lexicon{stop: map[string]bool{}, general: map[string]bool{}, weak: map[string]bool{}, plain: map[string]bool{}, same: map[string][]phrase{}, hints: map[string][]weighted{},
		verbs: map[string][intents]float64{}, foreign: map[string]map[string]string{}, glyphs: map[string]string{}, product: map[string]string{}}
	kinds := map[string]intent{"read": wantRead, "create": wantCreate, "change": wantChange, "delete": wantDelete, "act": wantAct}
	var hints [][2]string
	for _, line := range append(wordLines("synonyms"), wordLines("languages")...) {
		head, rest, _ := strings.Cut(line, "|")
		word, name, _ := strings.Cut(strings.TrimSpace(head), " ")
		rest = strings.TrimSpace(rest)
		switch word {
		case "stop":
			for w := range strings.FieldsSeq(rest) {
				l.stop[w] = true
			}
		case "general":
			for w := range strings.FieldsSeq(rest) {
				l.general[w] = true
			}
		case "weak":
			for w := range strings.FieldsSeq(rest) {
				l.weak[stem(w)] = true
			}
		case "same":
			for w := range strings.SplitSeq(rest, ",") {
				l.addSame(strings.TrimSpace(w), name)
			}
		case "near":
			hints = append(hints, [2]string{name, rest})
		case "say":
			for pair := range strings.SplitSeq(rest, ",") {
				from, to, _ := strings.Cut(strings.TrimSpace(pair), "=")
				l.addForeign(name, from, to)
			}
		case "product":
			for w := range strings.SplitSeq(rest, ",") {
				l.product[strings.TrimSpace(w)] = name
			}
		default:
			kind, known := kinds[word]
			if !known {
				continue
			}
			strength, plain := 1.0, name == "" && kind != wantAct
			if short, marked := strings.CutSuffix(name, "!"); marked {
				name, plain = short, true
			}
			if f, err := strconv.ParseFloat(name, 64); err == nil {
				strength = f
			}
			for w := range strings.FieldsSeq(rest) {
				for _, key := range []string{w, stem(w)} { // terms of the table are not stemmed
					v := l.verbs[key]
					v[kind] = strength
					l.verbs[key] = v
					l.plain[key] = l.plain[key] || plain
				}
			}
		}
	}
	for _, h := range hints {
		for _, from := range strings.Split(h[0], ",") {
			key := l.terms(from, nil)
			if len(key) != 1 {
				continue
			}
			for w := range strings.FieldsSeq(h[1]) {
				w, s, weightGiven := strings.Cut(w, "^")
				weight := 0.6
				if f, err := strconv.ParseFloat(s, 64); weightGiven && err == nil {
					weight = f
				}
				for _, term := range l.terms(w, nil) {
					l.hints[key[0]] = append(l.hints[key[0]], weighted{term, weight})
				}
			}
		}
	}
	return l
}

func (l *lexicon) addSame(words, term string) {
	var stems []string
	for _, t := range tokens(words) {
		stems = append(stems, stem(t.text))
	}
	if len(stems) == 0 {
		return
	}
	list := l.same[stems[0]]
	at := 0
	for at < len(list) && len(list[at].stems) >= len(stems) {
		at++
	}
	list = append(list[:at:at], append([]phrase{{stems, term}}, list[at:]...)...)
	l.same[stems[0]] = list
}

func (l *lexicon) addForeign(language, from, to string) {
	if from == "" {
		return
	}
	if l.foreign[language] == nil {
		l.foreign[language] = map[string]string{}
	}
	if []rune(from)[0] >= 0x2e80 {
		l.glyphs[from] = to
		l.longest = max(l.longest, len([]rune(from)))
		return
	}
	var b strings.Builder
	for _, r := range from {
		fold(&b, r)
	}
	l.foreign[language][b.String()] = to
}

// match looks for a phrase that begins with the first of the stems; n is how many stems it takes.
func (l *lexicon) match(stems []string) (term string, n int) {
	for _, p := range l.same[stems[0]] {
		if len(p.stems) > len(stems) {
			continue
		}
		n = len(p.stems)
		for i := range p.stems {
			if p.stems[i] != stems[i] {
				n = 0
				break
			}
		}
		if n > 0 {
			return p.term, n
		}
	}
	return "", 0
}

// terms turns a text of ours into search terms: phrases joined, stop words and plain verbs left out. The
// unstemmed words are noted in surface, which may be nil.
func (l *lexicon) terms(text string, surface map[string]string) []string {
	var stems, words []string
	for _, t := range tokens(text) {
		if t.named {
			continue
		}
		s, ok := surface[t.text]
		if !ok {
			s = stem(t.text)
			if surface != nil {
				surface[t.text] = s
			}
		}
		stems, words = append(stems, s), append(words, t.text)
	}
	var out []string
	for i := 0; i < len(stems); {
		if term, n := l.match(stems[i:]); n > 0 {
			if !l.plain[term] && !l.stop[term] {
				out = append(out, term)
			}
			i += n
			continue
		}
		if !l.stop[words[i]] && !l.plain[stems[i]] {
			out = append(out, stems[i])
		}
		i++
	}
	return out
}
