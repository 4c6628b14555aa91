package catalog

import (
	"slices"
	"strings"
)

const (
	sameDeed   = 1.2  // for a document whose own verb is one of the question's
	otherDeed  = 0.55 // for a document whose own verb is none of the question's
	otherThing = 0.5  // for one about a guest where a node is meant, and for one guest where many are
	otherHost  = 0.8  // for one of the API about a guest where a node is meant
	wordy      = 1.3  // so many times the usual length is held against a document that brings keywords along
)

// scoreExtra scores a document that the caller brought along. Its name says what it does: what only its keywords mention is
// what it has to do with, so one that unenrols is no answer to who wants to patch.
func (a ask) scoreExtra(e Document, l *lexicon, parts []*part, fit [4]float64, gain func(weighted, float64, float64) float64, idf map[string]float64, full, mean float64) (Hit, bool) {
	if e.Product != "" && !slices.ContainsFunc(parts, func(p *part) bool { return p.product == e.Product }) {
		return Hit{}, false
	}
	bag, length := map[string]float64{}, 0.0
	for _, f := range []struct {
		text   string
		weight float64
	}{{e.Name, inLast}, {e.Summary, inSummary}, {e.Keywords, inWords}} {
		for _, term := range l.terms(f.text, nil) {
			bag[term] = min(bag[term]+f.weight, 2*inWords)
			length += f.weight
		}
	}
	length = min(length, wordy*mean)
	score, cover := 0.0, 0.0
	for _, g := range a.groups {
		best, bestCover := 0.0, 0.0
		for _, w := range g {
			weight := bag[w.term]
			if w.term == "vm" || w.term == "ct" {
				weight = max(weight, 0.85*bag["guest"])
			}
			if weight > 0 {
				if idf[w.term] == 0 { // a word that only the extra documents have
					idf[w.term] = 5
				}
				best = max(best, gain(w, weight, length))
				bestCover = max(bestCover, idf[w.term]*w.weight)
			}
		}
		score, cover = score+best, cover+bestCover
	}
	if score == 0 {
		return Hit{}, false
	}
	if full > 0 {
		score *= 0.55 + 0.45*min(1, cover/full)
	}
	return Hit{Product: e.Product, Name: e.Name, Score: score * a.extraFit(e, l, fit), Summary: e.Summary}, true
}

// extraFit weighs what a document does and to what, beside its words.
func (a ask) extraFit(e Document, l *lexicon, fit [4]float64) float64 {
	f, method := 1.0, e.Method
	verb, plain := l.deed(e.Name)
	if method == "" && plain {
		method = l.methodOf(verb)
	}
	named := slices.ContainsFunc(l.terms(e.Name, nil), func(term string) bool { return a.verbs[term] })
	switch {
	case method != "":
		f *= fit[column(method, "")]
	case named && !a.reads():
		f *= fit[column("POST", "")] * sameDeed
	case verb != "" && !named && len(a.verbs) > 0:
		f *= fit[column("POST", "")] * otherDeed
	default:
		f *= fit[column("POST", "")]
	}
	if e.Guest && (a.plural && !a.single || a.ofNode()) {
		f *= otherThing
	}
	return f
}

// reads says whether the question rather asks than commands.
func (a ask) reads() bool {
	others := 0.0
	for k, w := range a.want {
		if intent(k) != wantRead {
			others += w
		}
	}
	return a.want[wantRead] > others
}

// ofNode says whether a node is what the question is about: it names one, and no guest.
func (a ask) ofNode() bool { return a.node && !a.guest && a.kind == 0 }

// deed is the verb that a name begins with, as a term, and whether it is a plain one, which all sorts of things can be done
// to; empty where it begins with none.
func (l *lexicon) deed(name string) (verb string, plain bool) {
	first, _, _ := strings.Cut(name, "_")
	term := stem(first)
	if same, n := l.match([]string{term}); n > 0 {
		term = same
	}
	for _, key := range []string{first, term} {
		if v, ok := l.verbs[key]; ok {
			return key, l.plain[key] || v[wantDelete] > 0
		}
	}
	return "", false
}

// methodOf is the method that a plain verb stands for.
func (l *lexicon) methodOf(verb string) string {
	switch v := l.verbs[verb]; {
	case v[wantDelete] > 0:
		return "DELETE"
	case v[wantCreate] > 0:
		return "POST"
	case v[wantChange] > 0:
		return "PUT"
	}
	return "GET"
}
