package catalog

import (
	"slices"
	"strings"
)

// WhatIf takes a question about what a deed would bring ("what happens when I reboot pve2?", "is it safe to remove vmbr1?")
// apart: deed is the deed as a command. ok is false for every other question, one about what has happened too.
func (c *Catalog) WhatIf(query string) (deed string, ok bool) {
	if len(query) > longestAsk {
		return "", false
	}
	words := strings.Fields(query)
	plain := make([]string, len(words)) // lower case, without punctuation
	for i, w := range words {
		plain[i] = strings.ToLower(strings.Trim(w, "\"'`.,;:!?()[]«»„“”…"))
		plain[i] = strings.NewReplacer("'", "", "’", "").Replace(plain[i])
	}
	from := 0
	for from < len(plain) && opening(plain[from]) {
		from++
	}
	if from >= len(plain) || slices.ContainsFunc(plain[from:], past) {
		return "", false
	}
	w := words[from:]
	p := plain[from:]
	for _, find := range []func(words, plain []string) []string{conditionFirst, conditionLast, deedBetween} {
		if d := c.search.lexicon().command(find(w, p)); len(d) > 0 {
			return strings.Join(d, " "), true
		}
	}
	return "", false
}

// General says whether a question names nothing at all: what someone asks who does not know yet what there is to ask.
func (c *Catalog) General(query string) bool {
	if len(query) > longestAsk {
		return false
	}
	return c.search.lexicon().read(query, c.parts(Products())).general
}

// opening are words that only lead to the question.
func opening(w string) bool {
	switch w {
	case "", "please", "ok", "okay", "so", "and", "but", "hey", "hi", "hello", "tell", "show", "explain", "say", "me", "us", "exactly", "first", "now", "list", "find", "out":
		return true
	}
	return false
}

// past are words of a question about what was, not about what would be.
func past(w string) bool {
	switch w {
	case "why", "did", "didnt", "happened", "ago", "yesterday", "broke":
		return true
	}
	return false
}

// outcome are words for what comes of a deed.
func outcome(w string) bool {
	switch w {
	case "happen", "happens", "hit", "hits", "break", "breaks", "affect", "affects", "affected", "impact", "impacts", "impacted", "effect", "effects", "consequence", "consequences",
		"lose", "loses", "lost", "die", "dies", "down", "offline", "stop", "stops", "stopped", "interrupt", "interrupts", "interrupted", "disrupt", "disrupts", "disrupted", "fail", "fails", "suffer",
		"suffers", "radius", "risk", "risks", "risky", "dangerous", "safe", "safely", "danger", "fallout", "cost", "costs", "kill", "kills", "touch", "touches", "cause", "causes",
		"bad", "downtime", "outage", "survive", "survives", "ok", "okay", "fine", "wise", "hurt", "hurts":
		return true
	}
	return false
}

// moves are words for what guests do of themselves when something is done to what they stand on.
func moves(w string) bool {
	switch w {
	case "reboot", "restart", "move", "moves", "go", "goes", "change", "changes", "migrate", "migrates":
		return true
	}
	return false
}

// asks says whether a clause begins like a question.
func asks(w string) bool {
	switch w {
	case "what", "whats", "which", "who", "whose", "how", "is", "are", "will", "would", "does", "do", "can", "could", "may", "might", "any", "anything", "impact", "effect", "effects", "consequences",
		"risk", "risks", "blast", "fallout":
		return true
	}
	return false
}

func condition(w string) bool {
	return w == "if" || w == "when" || w == "once" || w == "suppose" || w == "supposing" || w == "assuming" || w == "should" || w == "after" || w == "while"
}

// conditionFirst takes "if I reboot pve2, which guests stop?" apart.
func conditionFirst(words, plain []string) []string {
	if !condition(plain[0]) {
		return nil
	}
	for i, w := range words {
		if !strings.HasSuffix(w, ",") && !strings.HasSuffix(w, ".") && !strings.HasSuffix(w, ":") && !strings.HasSuffix(w, ";") && !(i+1 < len(plain) && (plain[i+1] == "what" || plain[i+1] == "which") && i > 1) {
			continue
		}
		if rest := plain[i+1:]; len(rest) > 0 && asks(rest[0]) && slices.ContainsFunc(rest, outcome) {
			return words[1 : i+1]
		}
	}
	return nil
}

// conditionLast takes "what happens when I reboot pve2?", "what is the impact of removing vmbr1?" and "is it safe to reboot
// pve2?" apart.
func conditionLast(words, plain []string) []string {
	if !asks(plain[0]) {
		return nil
	}
	if plain[0] == "how" && len(plain) > 1 && slices.Contains([]string{"do", "to", "can", "should", "could", "would", "does"}, plain[1]) {
		return nil // that asks for the way
	}
	if (plain[0] == "can" || plain[0] == "could" || plain[0] == "may") && !slices.ContainsFunc(plain, func(w string) bool {
		return slices.Contains([]string{"safely", "lose", "break", "affect", "hurt", "risk"}, w)
	}) {
		return nil
	}
	said, judged := false, false // a word for what comes of it; one for whether it is wise
	for i, w := range plain {
		if i > 0 && i+1 < len(plain) {
			switch {
			case condition(w) && w != "should" && (said || judged || plain[0] == "what" && (i == 1 || i == 2 && plain[1] == "about")):
				return words[i+1:]
			case (w == "of" || w == "by" || w == "from" || w == "on") && said && (i < 6 || w == "by"):
				return words[i+1:]
			case w == "to" && (judged || said && slices.Contains(plain[:i], "it")) && !slices.Contains(plain[:i], "want"):
				return words[i+1:]
			case w == "safely":
				return words[i+1:]
			}
		}
		said = said || outcome(w) || moves(w) && slices.Contains([]string{"what", "which", "who", "will", "would", "does"}, plain[0])
		judged = judged || slices.Contains([]string{"safe", "ok", "okay", "risky", "dangerous", "bad", "wise", "fine"}, w)
	}
	return nil
}

// deedBetween takes "what would rebooting pve2 hit?" and "is rebooting pve2 safe?" apart.
func deedBetween(words, plain []string) []string {
	last := len(plain) - 1
	if last < 2 {
		return nil
	}
	switch plain[0] {
	case "is", "are", "would", "will", "does", "could", "how":
		if plain[0] == "how" {
			if len(plain) > 3 && outcome(plain[1]) && (plain[2] == "is" || plain[2] == "would") {
				return words[3:]
			}
			return nil
		}
		for i := 2; i <= last; i++ {
			if outcome(plain[i]) && strings.HasSuffix(plain[1], "ing") {
				return words[1:i]
			}
		}
	case "what", "which", "who":
		for i := 1; i < min(len(plain), 5); i++ {
			switch plain[i] {
			case "would", "will", "could", "might", "does", "do":
				for j := last; j > i+1; j-- {
					if outcome(plain[j]) || j == last && plain[i] != "does" && plain[i] != "do" && (plain[j] == "do" || plain[j] == "mean" || plain[j] == "take") {
						return words[i+1 : j]
					}
				}
			}
		}
	}
	return nil
}

// command makes a clause a command: who does it is left out, the deed comes first. nil where the clause has no deed.
func (l *lexicon) command(clause []string) []string {
	var out, plain []string
	for _, w := range clause {
		w = strings.Trim(w, "\"'`,;:!?()[]«»„“”…")
		w = strings.TrimSuffix(w, ".")
		if w != "" {
			out, plain = append(out, w), append(plain, strings.ToLower(w))
		}
	}
	for len(plain) > 0 && subject(plain[0]) {
		out, plain = out[1:], plain[1:]
	}
	if len(plain) == 0 {
		return nil
	}
	if slices.Contains([]string{"lose", "losing", "unplug", "unplugging"}, plain[0]) {
		return l.gone(out[1:], plain[1:])
	}
	if l.deedWord(plain[0]) { // "reboot pve2", "removing vmbr1", "a reboot of pve2"
		return out
	}
	for i, w := range plain { // "pve2 is rebooted", "the storage nas is removed", "pve1 goes down"
		if i == 0 {
			continue
		}
		end := strings.Join(plain[i:], " ")
		for _, gone := range []string{"goes down", "go down", "went down", "is down", "are down", "dies", "die", "crashes", "crash", "loses power", "lose power", "is off", "goes offline", "is offline", "is powered off",
			"is gone", "fails", "is lost", "is unavailable", "becomes unavailable", "is unreachable", "disappears", "has an outage", "breaks", "burns"} {
			if end == gone || strings.HasPrefix(end, gone+" ") {
				return l.gone(out[:i], plain[:i])
			}
		}
		if (w == "is" || w == "are" || w == "gets" || w == "get" || w == "was" || w == "were" || w == "being") && i+1 < len(plain) && l.deedWord(plain[i+1]) {
			return append([]string{l.bare(strings.ToLower(out[i+1]))}, append(slices.Clone(out[:i]), out[i+2:]...)...)
		}
		if l.deedWord(w) && !strings.HasSuffix(w, "s") && i < 3 && subject(plain[i-1]) {
			return out[i:]
		}
		if l.deedWord(strings.TrimSuffix(w, "s")) && strings.HasSuffix(w, "s") && i <= 2 && l.names(plain[:i], "node", "vm", "ct", "guest") { // "node pve2 reboots"
			return append([]string{strings.TrimSuffix(out[i], "s")}, append(slices.Clone(out[:i]), out[i+1:]...)...)
		}
	}
	return nil
}

// gone is the deed that takes something away as its failure would; nil where it is not known what it is.
func (l *lexicon) gone(words, plain []string) []string {
	switch {
	case l.names(plain, "storage", "datastore", "network", "bridge", "disk", "pool"):
		return append([]string{"remove"}, words...)
	case l.names(plain, "node", "vm", "ct", "guest"):
		return append([]string{"shut", "down"}, words...)
	}
	return nil
}

// subject are words for whoever does it, and how.
func subject(w string) bool {
	switch w {
	case "i", "we", "you", "one", "someone", "somebody", "an", "a", "the", "my", "our", "admin", "admins", "were", "was", "to", "just", "now", "simply", "would", "will", "should", "could", "can", "may", "must",
		"have", "need", "want", "wanted", "decide", "decided", "try", "accidentally", "then", "it", "that", "both", "he", "she", "they", "go", "ahead", "and", "planned", "plan":
		return true
	}
	return false
}

// deedWord says whether a word names something that can be done to a thing.
func (l *lexicon) deedWord(w string) bool {
	switch w {
	case "removal", "deletion", "destruction", "shutdown", "loss":
		return true
	}
	switch l.bare(w) {
	case "shut", "power", "pull", "take", "turn", "bring", "put", "drain", "evacuate", "fence", "unplug", "downgrade", "roll", "patch", "upgrade":
		return true
	}
	term := stem(w)
	if same, n := l.match([]string{term}); n > 0 {
		term = same
	}
	for _, key := range []string{w, l.bare(w), term} {
		if v, ok := l.verbs[key]; ok && v[wantRead] == 0 {
			return true
		}
	}
	return false
}

// bare is the verb of "rebooting" or "removed", as far as an ending and the vocabulary tell.
func (l *lexicon) bare(w string) string {
	for _, end := range []string{"ing", "ed"} {
		s, ok := strings.CutSuffix(w, end)
		if n := len(s); ok && n > 2 {
			if n > 3 && s[n-1] == s[n-2] && s[n-1] != 'l' && s[n-1] != 's' {
				s = s[:n-1]
			}
			if _, known := l.verbs[s+"e"]; known { // the vocabulary has stems too
				s += "e"
			}
			return s
		}
	}
	return w
}

// names says whether words name a thing of one of these sorts, or for guests one by its number or name.
func (l *lexicon) names(words []string, sorts ...string) bool {
	for _, w := range words {
		for _, t := range tokens(w) {
			term := stem(t.text)
			if same, n := l.match([]string{term}); n > 0 {
				term = same
			}
			if slices.ContainsFunc(sorts, func(s string) bool { return s == term || stem(s) == term }) || t.named && slices.Contains(sorts, "guest") {
				return true
			}
		}
	}
	return false
}
