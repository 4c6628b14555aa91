package catalog

import (
	"maps"
	"math"
	"slices"
	"strings"
	"sync"

	"castellan/internal/catalog/facts"
)

// searchCache holds what searching needs, made when first asked for. The zero value is ready.
type searchCache struct {
	mu    sync.Mutex
	lex   *lexicon
	words *phrasebook
	names map[string][]string
	parts map[string]*part
}

// part is the index of one product: an inverted list over its documents.
type part struct {
	of      *table // the facts that it was made from
	product string
	docs    []doc
	byID    map[string]int
	posts   map[string][]posting
	surface map[string]string // unstemmed words, for typing errors, with the term of each
	words   float64           // weighted words in all documents
}

type posting struct {
	doc    int32
	weight float32
}

// doc is one operation as the search sees it.
type doc struct {
	op      *Operation
	summary string
	length  float32
	kind    kind
	index   bool // only lists the paths below it
	item    bool // works on one named thing
	rare    bool // hardly ever what a person asks for
	often   bool // what people ask for every day
}

// kind is the sort of thing that a document or a question is about.
type kind uint8

const (
	kindVM kind = 1 << iota
	kindCT
	kindNode
	kindRemote
)

// What a word counts for, by where it stands.
const (
	inSummary = 2.0
	inWords   = 2.0
	inLast    = 2.0 // the last literal path segment
	inPath    = 1.0
	inFirst   = 0.4
	inParam   = 0.55
	inEnum    = 0.3
	inScope   = 0.8
)

// Marks among the words of a table line: what people hardly ever mean, and what they ask every day.
const (
	seldom = "(seldom)"
	daily  = "(daily)"
)

func (d *doc) hit(score float64) Hit {
	return Hit{Product: d.op.Product, Method: d.op.Method, Path: d.op.Path, Score: score, Summary: d.summary}
}

func (s *searchCache) lexicon() *lexicon {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lex == nil {
		s.lex = newLexicon()
	}
	return s.lex
}

// parts returns the indexes of the products, in their usual order; unknown products are left out.
func (c *Catalog) parts(products []string) []*part {
	lex := c.search.lexicon()
	var out []*part
	for _, product := range Products() {
		if !slices.Contains(products, product) {
			continue
		}
		t, err := c.table(product)
		if err != nil {
			continue
		}
		c.search.mu.Lock()
		p := c.search.parts[product]
		if p == nil || p.of != t {
			if c.search.words == nil {
				c.search.words = &phrasebook{}
				// a test reads the tables; an operation without words is still found by its path
				if scopes, rules, err := wordTable(); err == nil {
					c.search.words = &phrasebook{scopes, rules}
				}
			}
			p = newPart(product, t, lex, c.search.words)
			if c.search.parts == nil {
				c.search.parts = map[string]*part{}
			}
			c.search.parts[product] = p
		}
		c.search.mu.Unlock()
		out = append(out, p)
	}
	return out
}

func newPart(product string, t *table, lex *lexicon, w *phrasebook) *part {
	p := &part{of: t, product: product, byID: map[string]int{}, posts: map[string][]posting{}, surface: map[string]string{}}
	told := w.tell(product, t.ops)
	marks := strings.NewReplacer(seldom, "", daily, "")
	children := map[string]bool{}
	for _, op := range t.ops {
		if i := strings.LastIndexByte(op.Path, '/'); i > 0 {
			children[op.Path[:i]] = true
		}
	}
	cut := map[string][]string{} // the same words stand at many operations
	terms := func(text string) []string {
		out, ok := cut[text]
		if !ok {
			out = lex.terms(text, p.surface)
			cut[text] = out
		}
		return out
	}
	for i, op := range t.ops {
		s := told[i]
		d := doc{op: op, summary: s.summary, kind: kindOf(op.Path), index: s.index, rare: strings.Contains(s.words, seldom), often: strings.Contains(s.words, daily)}
		segments := strings.Split(op.Path, "/")
		_, d.item = placeholder(segments[len(segments)-1])
		bag := map[string]float32{}
		put := func(text string, weight float32) {
			for _, term := range terms(text) {
				bag[term] = min(bag[term]+weight, 2*max(weight, inWords))
			}
		}
		put(s.said, inSummary)
		put(marks.Replace(s.words), inWords)
		put(s.scope, inScope)
		put(product, inScope)
		last := true
		for at, seg := range slices.Backward(segments) {
			if name, ok := placeholder(seg); ok {
				put(name, inParam)
				continue
			}
			switch {
			case last:
				put(seg, inLast)
			case at > 1:
				put(seg, inPath)
			default: // "config", "nodes", "cluster": the place, hardly the thing
				put(seg, inFirst)
			}
			last = false
		}
		once := map[string]bool{}
		for _, name := range slices.Sorted(maps.Keys(op.Facts.Params)) {
			if name == "digest" || name == "delete" || name == "node" {
				continue
			}
			s := op.Facts.Params[name]
			place := slices.Contains(op.Placeholders, name)
			name, _, _ = strings.Cut(name, "[")
			for _, term := range terms(name) {
				if !once[term] && !place {
					once[term] = true
					bag[term] += inParam
					if term == "enabl" || term == "disabl" || term == "schedul" {
						bag[term] += inParam
					}
				}
			}
			for _, term := range enumTerms(s, terms) {
				if !once[term] {
					once[term] = true
					bag[term] += inEnum
				}
			}
		}
		for _, term := range slices.Sorted(maps.Keys(bag)) {
			p.posts[term] = append(p.posts[term], posting{int32(i), bag[term]})
			if bag[term] > inParam {
				d.length += bag[term]
			}
		}
		p.words += float64(d.length)
		p.docs = append(p.docs, d)
		p.byID[op.ID] = i
	}
	return p
}

// enumTerms are the words among the values that a parameter can have.
func enumTerms(s *facts.Schema, terms func(string) []string) []string {
	if s == nil || len(s.Enum) == 0 || len(s.Enum) > 24 {
		return nil
	}
	var out []string
	for _, v := range s.Enum {
		if text, ok := v.(string); ok && len(text) > 2 {
			out = append(out, terms(text)...)
		}
	}
	return out
}

func kindOf(path string) kind {
	var k kind
	if strings.Contains(path, "/qemu/{") || strings.HasSuffix(path, "/qemu") {
		k |= kindVM
	}
	if strings.Contains(path, "/lxc/{") || strings.HasSuffix(path, "/lxc") {
		k |= kindCT
	}
	if strings.Contains(path, "/nodes/{node}") && k == 0 {
		k |= kindNode
	}
	if strings.Contains(path, "/remotes/{remote}") {
		k |= kindRemote
	}
	return k
}

// rarity is the usual inverse document frequency, over all products searched.
func rarity(all, having int) float64 {
	return math.Log(1 + (float64(all)-float64(having)+0.5)/(float64(having)+0.5))
}
