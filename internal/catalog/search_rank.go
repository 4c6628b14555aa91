package catalog

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// How strongly a document's method fits what is wanted; rows are intents, columns GET, POST, PUT, DELETE.
var fitness = [intents][4]float64{
	wantRead:   {1.25, 0.60, 0.52, 0.45},
	wantCreate: {0.58, 1.25, 0.88, 0.50},
	wantChange: {0.58, 1.02, 1.25, 0.60},
	wantDelete: {0.52, 0.75, 0.78, 1.40},
	wantAct:    {0.62, 1.20, 1.05, 0.80},
}

// column is the one of a method; what castellan runs acts, where it does not only look.
func column(method, path string) int {
	switch method {
	case "POST":
		return 1
	case MethodRun:
		if looks(path) {
			return 0
		}
		return 1
	case "PUT":
		return 2
	case "DELETE":
		return 3
	}
	return 0
}

// methodFit is the factor for each method.
func (a ask) methodFit() [4]float64 {
	total := 0.0
	for _, w := range a.want {
		total += w
	}
	out := [4]float64{1, 1, 1, 1}
	if total == 0 {
		return out
	}
	for m := range out {
		for k, w := range a.want {
			out[m] *= math.Pow(fitness[k][m], w/max(total, 0.8))
		}
	}
	return out
}

const (
	saturation = 1.6
	lengthPart = 0.25
	longest    = 2.5 // a long document is not held against its operation beyond this
)

// rank scores all documents for a question.
func rank(a ask, l *lexicon, parts []*part, extra []Document) []Hit {
	docs, words := 0, 0.0
	for _, p := range parts {
		docs += len(p.docs)
		words += p.words
	}
	if docs == 0 && len(extra) == 0 || len(a.groups) == 0 {
		return nil
	}
	mean := max(words/float64(max(docs, 1)), 1)
	idf := map[string]float64{}
	for _, g := range a.groups {
		for _, w := range g {
			n := 0
			for _, p := range parts {
				n += len(p.posts[w.term])
			}
			if n > 0 {
				idf[w.term] = rarity(docs, n)
			}
		}
	}
	full := 0.0 // the score weight of a document that has every known word
	for _, g := range a.groups {
		best := 0.0
		for _, w := range g {
			best = max(best, idf[w.term]*w.weight)
		}
		full += best
	}
	if full == 0 && len(extra) == 0 {
		return nil
	}
	fit := a.methodFit()
	gain := func(w weighted, weight, length float64) float64 {
		norm := 1 - lengthPart + lengthPart*min(length/mean, longest)
		return idf[w.term] * w.weight * weight * (saturation + 1) / (weight + saturation*norm)
	}
	type found struct {
		score float64
		part  int
		doc   int
	}
	var all []found
	for at, p := range parts {
		score, cover := make([]float64, len(p.docs)), make([]float64, len(p.docs))
		best, bestCover := make([]float64, len(p.docs)), make([]float64, len(p.docs))
		var touched []int32
		for _, g := range a.groups {
			touched = touched[:0]
			for _, w := range g {
				for _, post := range p.posts[w.term] {
					if best[post.doc] == 0 {
						touched = append(touched, post.doc)
					}
					best[post.doc] = max(best[post.doc], gain(w, float64(post.weight), float64(p.docs[post.doc].length)))
					bestCover[post.doc] = max(bestCover[post.doc], idf[w.term]*w.weight*min(1, float64(post.weight)))
				}
			}
			for _, d := range touched {
				score[d] += best[d]
				cover[d] += bestCover[d]
				best[d], bestCover[d] = 0, 0
			}
		}
		for i := range p.docs {
			if score[i] > 0 {
				d := &p.docs[i]
				s := score[i] * (0.55 + 0.45*cover[i]/full) * fit[column(d.op.Method, d.op.Path)] * a.aptness(d)
				all = append(all, found{s, at, i})
			}
		}
	}
	slices.SortFunc(all, func(x, y found) int { // documents stand in the order of path and method
		return cmp.Or(cmp.Compare(y.score, x.score), cmp.Compare(x.part, y.part), cmp.Compare(x.doc, y.doc))
	})
	var hits []Hit
	for _, f := range all[:min(len(all), mostHits)] {
		hits = append(hits, parts[f.part].docs[f.doc].hit(f.score))
	}
	for _, e := range extra {
		if e.Method == "" && takesBack(e.Name, extra) {
			e.Method = "DELETE"
		}
		if h, ok := a.scoreExtra(e, l, parts, fit, gain, idf, full, mean); ok {
			hits = append(hits, h)
		}
	}
	if len(extra) > 0 {
		slices.SortStableFunc(hits, func(x, y Hit) int {
			return cmp.Or(cmp.Compare(y.Score, x.Score), cmp.Compare(x.Name, y.Name))
		})
	}
	vary(hits)
	return hits
}

// takesBack says whether a name's deed is that of another one taken back: unlock of lock. It fits what a question removes.
func takesBack(name string, extra []Document) bool {
	deed, _, _ := strings.Cut(name, "_")
	other, is := strings.CutPrefix(deed, "un")
	return is && other != "" && slices.ContainsFunc(extra, func(e Document) bool {
		first, _, _ := strings.Cut(e.Name, "_")
		return first == other
	})
}

const (
	varied   = 10 // so many places are filled with an eye to variety
	sameTail = 0.92
)

// vary reorders the first hits so that variants of one operation (of a container as of a VM, of another
// product) do not crowd out others: each variant counts for less than the one before it.
func vary(hits []Hit) {
	seen := map[string]int{}
	for at := 0; at < min(varied, len(hits)); at++ {
		best, top := at, -1.0
		for i := at; i < len(hits) && hits[i].Score > top; i++ {
			if s := hits[i].Score * math.Pow(sameTail, float64(seen[hits[i].tail()])); s > top {
				best, top = i, s
			}
		}
		h := hits[best]
		h.Score = top
		copy(hits[at+1:best+1], hits[at:best])
		hits[at] = h
		seen[h.tail()]++
	}
}

// tail is what variants of an operation have in common: the method and the last literal path segment.
func (h Hit) tail() string {
	for _, seg := range slices.Backward(strings.Split(h.Path, "/")) {
		if _, hole := placeholder(seg); !hole {
			return h.Method + seg
		}
	}
	return h.Name
}

// aptness weighs what a document is beside its words: its product, its sort of thing, list or item.
func (a ask) aptness(d *doc) float64 {
	f := 1.0
	switch {
	case len(a.product) > 0 && a.product[d.op.Product]:
		f *= 1.3
	case len(a.product) > 0:
		f *= 0.88
	case d.op.Product == "pve":
		f *= 1.06
	case d.op.Product == "pdm":
		f *= 0.9
	}
	if d.kind&(kindVM|kindCT) != 0 && a.kind != 0 && a.kind&d.kind == 0 {
		f *= 0.6
	}
	if d.kind&(kindVM|kindCT) != 0 && a.ofNode() {
		f *= otherHost
	}
	if d.kind&(kindVM|kindCT) == 0 && a.kind != 0 && a.kind != kindVM|kindCT {
		f *= 0.84
	}
	if d.often {
		f *= 1.12
	}
	if d.rare {
		f *= 0.8
	}
	if d.index {
		f *= 0.6
	}
	if d.op.Method == "GET" {
		switch {
		case a.plural && (d.item || strings.HasSuffix(d.op.Path, "}/status") || strings.HasSuffix(d.op.Path, "}/config")):
			f *= 0.85
		case a.single && !a.plural && d.item:
			f *= 1.08
		}
	}
	return f
}
