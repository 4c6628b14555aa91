package catalog

import (
	"cmp"
	"slices"
	"strings"
)

// FindOptions narrows a search.
type FindOptions struct {
	Products []string // pve, pbs, pmg, pdm; empty means all four
	Limit    int      // at most so many hits; 0 means 10, never more than 200
}

// Hit is one operation that a search found, best first.
type Hit struct {
	Product string
	Method  string
	Path    string
	Name    string  // of a document that the caller brought along; empty for an API operation
	Score   float64 // comparable within one search only
	Summary string
}

// Document is something else to be found beside the API operations, such as a curated operation.
type Document struct {
	Product  string // empty: belongs to every product
	Name     string
	Summary  string
	Keywords string // further words that a user may say for it
	Method   string // the HTTP method whose intent it shares (GET for a query); empty: that of the verb in its name
	Guest    bool   // works on one guest, which the call names
}

const (
	defaultHits = 10
	mostHits    = 200
	longestAsk  = 2000 // bytes of a query that are read
)

// Find returns the operations that a question is likely about, best first and in a stable order. A query may
// also be a path, "METHOD path", or the name of a tool that an administrator knows from elsewhere.
// It returns nil when nothing fits.
func (c *Catalog) Find(query string, o FindOptions) []Hit { return c.FindIn(query, o, nil) }

// FindIn is Find over the operations and the given documents together.
func (c *Catalog) FindIn(query string, o FindOptions, extra []Document) []Hit {
	if len(query) > longestAsk {
		query = strings.ToValidUTF8(query[:longestAsk], "")
	}
	products := o.Products
	if len(products) == 0 {
		products = Products()
	}
	limit := o.Limit
	if limit <= 0 {
		limit = defaultHits
	}
	limit = min(limit, mostHits)

	lex := c.search.lexicon()
	parts := c.parts(products)
	hits := c.byAlias(query, parts, extra)
	if exact := byPath(query, parts); len(exact) > 0 {
		hits = append(hits, exact...)
	}
	known := map[string]bool{}
	for _, h := range hits {
		known[h.key()] = true
	}
	ask := lex.read(query, parts)
	found := rank(ask, lex, parts, extra)
	top := 1.0
	if len(found) > 0 {
		top += found[0].Score
	}
	for i := range hits { // what is named outright comes before what is only described
		hits[i].Score = top + float64(len(hits)-i)
	}
	for _, h := range found {
		if len(hits) >= limit {
			break
		}
		if !known[h.key()] {
			hits = append(hits, h)
		}
	}
	return hits[:min(limit, len(hits))]
}

// Describe returns one short sentence on what an operation does, or "" for an unknown one.
func (c *Catalog) Describe(product, id string) string {
	for _, p := range c.parts([]string{product}) {
		if i, ok := p.byID[id]; ok {
			return p.docs[i].summary
		}
	}
	return ""
}

func (h Hit) key() string { return h.Product + " " + h.Name + " " + h.Method + " " + h.Path }

// byPath answers a query that is itself a path or "METHOD path", also with real values in place of the
// placeholders.
func byPath(query string, parts []*part) []Hit {
	words := strings.Fields(query)
	if len(words) == 0 || len(words) > 2 {
		return nil
	}
	method, path := "", words[len(words)-1]
	if len(words) == 2 {
		method = strings.ToUpper(words[0])
	}
	if !strings.HasPrefix(path, "/") || path == "/" && method == "" {
		return nil
	}
	path = strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(path, "/api2/json"), "/api2/extjs"), "/")
	want := strings.Split(cmp.Or(path, "/"), "/")
	type match struct {
		hit     Hit
		literal int
	}
	var out []match
	for _, p := range parts {
		for i := range p.docs {
			d := &p.docs[i]
			have := strings.Split(d.op.Path, "/")
			if len(have) != len(want) || method != "" && d.op.Method != method {
				continue
			}
			literal, same := 0, true
			for j := range have {
				_, hole := placeholder(have[j])
				switch {
				case have[j] == want[j]:
					literal++
				case !hole || want[j] == "":
					same = false
				}
			}
			if same {
				out = append(out, match{d.hit(0), literal})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b match) int { return cmp.Compare(b.literal, a.literal) })
	var hits []Hit
	for _, m := range out {
		if m.literal == out[0].literal {
			hits = append(hits, m.hit)
		}
	}
	return hits
}
