package catalog

import (
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// tongue is the dictionary of the language that a question is most likely in; nil for English. A word that
// English has too is weak evidence.
func (l *lexicon) tongue(words []token, known func(string) bool) map[string]string {
	var best map[string]string
	most := 0.9
	for _, language := range slices.Sorted(maps.Keys(l.foreign)) {
		dictionary, evidence := l.foreign[language], 0.0
		for _, t := range words {
			switch _, ok := dictionary[t.text]; {
			case ok && known(t.text):
				evidence += 0.35
			case ok:
				evidence++
			case !t.named && len(t.text) >= 10 && !known(t.text): // perhaps a compound
				for cut := 4; cut < len(t.text)-3; cut++ {
					_, left := half(t.text[:cut], known, dictionary, l.stop)
					_, right := half(t.text[cut:], known, dictionary, l.stop)
					if left && right {
						evidence += 0.95
						break
					}
				}
			}
		}
		if evidence > most {
			best, most = dictionary, evidence
		}
	}
	return best
}

// parted joins a verb and its far particle where the dictionary has both as one ("läuft … ab").
func parted(words []token, tongue map[string]string) []token {
	for i := range words {
		for j := i + 1; j < len(words) && j <= i+8 && tongue != nil; j++ {
			if _, ok := tongue[words[i].text+" "+words[j].text]; ok {
				words[i].text += " " + words[j].text
				words = slices.Delete(words, j, j+1)
				break
			}
		}
	}
	return words
}

// english gives the English words for one word of a query: itself, or a translation, also of the parts of
// a compound.
func (l *lexicon) english(t token, known func(string) bool, tongue map[string]string) []token {
	if t.named || t.text == "" {
		return []token{t}
	}
	if r, _ := utf8.DecodeRuneInString(t.text); r >= 0x2e80 {
		return l.fromGlyphs(t)
	}
	if to, ok := tongue[t.text]; ok {
		return spread(t, to)
	}
	if tongue == nil {
		return []token{t}
	}
	for _, end := range [][2]string{{"ung", "en"}, {"ungen", "en"}} { // Verifizierung as verifizieren
		if short, ok := strings.CutSuffix(t.text, end[0]); ok {
			if to, ok := tongue[short+end[1]]; ok {
				return spread(t, to)
			}
		}
	}
	if len(t.text) < 8 || known(t.text) {
		return []token{t}
	}
	for cut := len(t.text) - 3; cut >= 3; cut-- {
		head, tail := t.text[:cut], t.text[cut:]
		left, okLeft := half(head, known, tongue, l.stop)
		right, okRight := half(tail, known, tongue, l.stop)
		if okLeft && okRight {
			return spread(t, left+" "+right)
		}
	}
	return []token{t}
}

// half is one part of a compound word, perhaps with a linking s, n or en.
func half(w string, known func(string) bool, tongue map[string]string, stop map[string]bool) (string, bool) {
	for _, link := range []string{"", "s", "n", "en", "es"} {
		short, ok := strings.CutSuffix(w, link)
		if !ok || len(short) < 3 {
			continue
		}
		if to, ok := tongue[short]; ok {
			return to, true
		}
		if link == "" && len(short) > 3 && known(short) && !stop[short] {
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

func sameLetters(a, b string) bool {
	x, y := []byte(a), []byte(b)
	slices.Sort(x)
	slices.Sort(y)
	return slices.Equal(x, y)
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
		if len(cand) < 4 || len(w) < 6 && (cand[0] != w[0] || len(cand) == len(w) && !sameLetters(w, cand)) {
			return // so short a word with another letter is another word
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
