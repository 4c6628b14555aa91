package catalog

import (
	"slices"
	"strings"
)

// ask is a question as the search understands it.
type ask struct {
	groups  [][]weighted // one group for each word: the term itself and what it hints at
	want    [intents]float64
	kind    kind
	verbs   map[string]bool // terms of the deeds that it names
	node    bool            // a node is named
	guest   bool            // perhaps a guest is, by its id or its name
	plural  bool
	single  bool
	product map[string]bool // products named outright
	general bool            // it has no words but those of someone who does not know yet what to ask
}

// background marks the words of clauses that only tell a story, where another clause asks or commands.
func (l *lexicon) background(words []token, stems []string) []bool {
	out := make([]bool, len(words))
	type clause struct {
		from, to, content int
		asks              bool
	}
	var clauses []clause
	for i := 0; i < len(words); {
		c := clause{from: i}
		for i < len(words) && (i == c.from || !words[i].first) {
			if !words[i].named && !l.stop[words[i].text] {
				if _, verb := l.verbs[stems[i]]; verb && c.content == 0 {
					c.asks = true
				}
				if term, _ := l.match(stems[i:]); term != "" && c.content == 0 {
					_, verb := l.verbs[term]
					c.asks = c.asks || verb
				}
				c.content++
			}
			c.asks = c.asks || i == c.from && (asking(words[i].text) || words[i].text == "how" || words[i].text == "can")
			i++
		}
		c.to = i
		clauses = append(clauses, c)
	}
	asks := slices.ContainsFunc(clauses, func(c clause) bool { return c.asks })
	for _, c := range clauses {
		for i := c.from; i < c.to && asks && !c.asks && c.content > 2; i++ {
			out[i] = true
		}
	}
	return out
}

// subordinate says whether a word opens a clause that tells a reason or an occasion, not what is wanted.
func subordinate(t token) bool {
	switch t.text {
	case "because", "although", "though", "if", "while", "since", "until", "unless", "whenever", "before", "after", "once":
		return true
	case "when", "so":
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
	a := ask{product: map[string]bool{}, verbs: map[string]bool{}}
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
	strange := len(asked) > 1 || len(asked) == 1 && l.verbs[asked[0].text] == [intents]float64{} // perhaps of another language
	for _, t := range asked {
		strange = strange && !t.named && (l.general[t.text] || l.stop[t.text])
	}
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
	told := l.background(words, stems)
	start, aside, ended := true, false, false
	content := len(words) == 0 || len(words) == 1 && l.verbs[words[0].text] != [intents]float64{}
	for i := 0; i < len(words); {
		t := words[i]
		if t.first {
			start, aside = true, false
		}
		aside = aside || subordinate(t) || told[i]
		if t.named || t.quoted && !known(t.text) {
			a.single, content = true, true
			a.guest = a.guest || t.named && t.sort == "" && len(t.text) >= 3
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
			start, ended = false, true
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
			if strength > 0.3 && v[wantRead] == 0 && !ended {
				a.verbs[term] = true
			}
			ended = false
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
		case "node":
			a.node = true
		}
		content = content || !stopped && !l.general[t.text] && (!l.plain[term] || v[wantRead] == 0)
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
				group = append(group, weighted{"everywhere", 0.3})
			}
			a.groups = append(a.groups, group)
		}
		i += n
	}
	if asksState(words) {
		a.groups = append(a.groups, []weighted{{"status", 1}, {"run", 0.8}})
	}
	a.general = !content || strange
	total := 0.0
	for _, w := range a.want {
		total += w
	}
	if total < 0.2 { // a bare noun asks to see it, with an occasion ("alert when backups fail") to have it
		if aside {
			a.want[wantCreate] += 0.3
		} else {
			a.want[wantRead] += 0.4
		}
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
		case "turn", "switch", "power", "shut", "bring", "spin", "fire", "boot", "roll", "back", "put", "take", "throw", "pull", "kick", "lock", "hook":
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
