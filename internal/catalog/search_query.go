package catalog

import (
	"maps"
	"slices"
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

// subordinate says whether a word opens a clause that tells a reason or an occasion, not what is wanted.
func subordinate(t token) bool {
	switch t.text {
	case "because", "although", "though", "if", "while", "since", "until", "unless", "whenever":
		return true
	case "when", "before", "after", "once", "so":
		return !t.first
	}
	return false
}

// asking are words that begin a question for information.
func asking(w string) bool {
	switch w {
	case "which", "what", "whats", "who", "whose", "when", "where", "why", "is", "are", "does", "did", "has", "have", "any", "was", "were":
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
	asked := tokens(query)
	tongue := l.tongue(asked, known)
	asked = parted(asked, tongue)
	for _, t := range asked {
		words = append(words, l.english(t, known, tongue)...)
	}
	gather(words)
	stems := make([]string, len(words))
	for i, t := range words {
		if !t.named && !t.quoted && !t.joint && !known(t.text) && len(t.text) > 4 {
			if fixed := l.mend(t.text, parts); fixed != "" {
				words[i].text = fixed
			}
		}
		stems[i] = stem(words[i].text)
		if t.named {
			stems[i] = "\x00" // no phrase goes across a name
		}
	}
	start, aside := true, false
	for i := 0; i < len(words); {
		t := words[i]
		if t.first {
			start, aside = true, false
		}
		aside = aside || subordinate(t)
		if t.named || t.quoted && !known(t.text) {
			a.single = true
			start = false
			if hints := sortHints(t.sort); hints != nil {
				a.groups = append(a.groups, hints)
			}
			i++
			continue
		}
		if t.text == "stop" && i+1 < len(words) && strings.HasSuffix(words[i+1].text, "ing") { // stop doing something
			a.want[wantDelete] += 0.6
			a.want[wantChange] += 0.3
			start = false
			i++
			continue
		}
		term, n := l.match(stems[i:])
		if n == 0 {
			term, n = stems[i], 1
		}
		v, verb := l.verbs[term]
		if own, ok := l.verbs[t.text]; ok && n == 1 {
			v, verb = own, true
		}
		if verb && n == 1 && strings.HasSuffix(t.text, "s") && stems[i] != t.text && v[wantRead] == 0 { // "snapshots of", "updates on": a noun
			if verb = false; start {
				a.want[wantRead] += 0.3
			}
		}
		if verb {
			strength := 0.35
			switch participle := n == 1 && strings.HasSuffix(t.text, "ed") && len(t.text) > 4; {
			case participle: // "a stopped VM", "which jobs are configured"
				strength = 0.1
			case start:
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
		opens := t.first || i > 0 && words[i-1].first
		if opens && start && asking(t.text) && !verb {
			a.want[wantRead] += 0.8
			if i > 0 { // the question comes after its reason
				a.want[wantRead] += 0.6
			}
		}
		if (t.text == "should" || t.text == "must") && i > 0 && len(a.groups) > 0 && a.want[wantRead] == 0 { // X should be Y
			a.want[wantChange] += 0.5
		}
		if t.text == "can" && start && i+1 < len(words) && !slices.Contains([]string{"you", "i", "we", "u"}, words[i+1].text) {
			a.want[wantRead] += 0.8 // can this be done?
			start = false
		}
		if t.text == "how" && i+1 < len(words) {
			switch words[i+1].text {
			case "do", "can", "to", "would", "should", "could":
			default:
				a.want[wantRead] += 0.8
			}
		}
		stopped := n == 1 && l.stop[t.text] || l.stop[term]
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
		if !stopped && !l.plain[term] {
			weight := 1.0
			if l.weak[term] {
				weight = 0.3
			}
			if aside || i > 0 && words[i-1].text == "for" && strings.HasSuffix(t.text, "ing") { // "templates for cloning"
				weight *= 0.65
			}
			if t.joint && n == 1 { // part of a name such as local-lvm
				weight *= 0.6
			}
			group := []weighted{{term, weight}}
			for _, h := range l.hints[term] {
				group = append(group, weighted{h.term, h.weight * weight})
			}
			if t.text == "remotes" || t.text == "clusters" {
				group = append(group, weighted{"everywhere", 0.5})
			}
			a.groups = append(a.groups, group)
		}
		i += n
	}
	if asksState(words) {
		a.groups = append(a.groups, []weighted{{"status", 1}, {"run", 0.8}})
	}
	if total := a.want; total == [intents]float64{} { // a bare noun asks to see it
		a.want[wantRead] = 0.4
	}
	if strings.HasSuffix(strings.TrimSpace(query), "?") {
		a.want[wantRead] += 0.2
	}
	return a
}

// sortHints are the words that a name of some sort stands for.
func sortHints(sort string) []weighted {
	switch sort {
	case "ip":
		return []weighted{{"ip", 0.4}, {"address", 0.4}}
	case "cidr":
		return []weighted{{"network", 0.4}, {"cidr", 0.4}, {"subnet", 0.3}}
	case "mail":
		return []weighted{{"mail", 0.3}, {"address", 0.3}}
	case "domain":
		return []weighted{{"domain", 0.4}}
	case "file":
		return []weighted{{stem("file"), 0.4}}
	case "upid":
		return []weighted{{"task", 0.6}}
	}
	return nil
}

// asksState recognises "is it up?" and the like, whose words alone say nothing.
func asksState(words []token) bool {
	asked := false
	for i, t := range words {
		switch t.text {
		case "is", "are":
			asked = asked || t.first
		case "up", "down", "on", "off", "alive", "online":
			last := i+1 == len(words) || slices.Contains([]string{"right", "now", "still", "or", "and", "at"}, words[i+1].text)
			if asked && last {
				return true
			}
		}
	}
	return false
}

// gather brings the particle of a verb to it: "turn the firewall on" is "turn on the firewall".
func gather(words []token) {
	for i := range words {
		switch words[i].text {
		case "turn", "switch", "power", "shut", "bring", "spin", "fire", "boot", "roll", "back", "put", "take", "throw", "pull", "kick":
		default:
			continue
		}
		for j := i + 2; j < len(words) && j <= i+7 && !words[j].first; j++ {
			switch words[j].text {
			case "on", "off", "up", "down", "back", "out", "away":
				if j+1 < len(words) && !words[j+1].first && words[j].text == "on" {
					continue // "bring the node on the list" is no particle
				}
				particle := words[j]
				copy(words[i+2:j+1], words[i+1:j])
				words[i+1] = particle
				j = len(words)
			}
		}
	}
}

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
