// Package catalog is every API operation of the four products as data: its parameters and how to check them,
// what they refer to, which are secret, how dangerous a request is, and how to find the operation for a question.
package catalog

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"castellan/internal/catalog/facts"
)

// Config is what a Catalog is made from.
type Config struct {
	Facts *facts.Facts // the embedded API facts
}

// Catalog answers questions about operations. A product is decoded when it is first asked for, at most once.
// It is safe for concurrent use.
type Catalog struct {
	tables   map[string]*lazyTable
	patterns patterns
	search   searchCache
}

// Operation is one documented method of one path. It is shared and must not be changed.
type Operation struct {
	ID           string // "PUT /nodes/{node}/qemu/{vmid}/config"
	Product      string // pve, pbs, pmg, pdm
	Method       string
	Path         string           // the template
	Placeholders []string         // names in the template, in order
	Facts        *facts.Operation // as published (or as merged from a host's own description)
	Foreign      bool             // known only from a host's own description: nobody has judged it
	ForeignParam map[string]bool  // parameters known only from there

	api   *facts.API // for formats that schemas name only
	rest  string     // the placeholder that swallows the rest of the path, or ""
	known *knowledge
}

// knowledge is what was found out about an operation and is kept for the next question.
type knowledge struct {
	properties sync.Map // *facts.Schema → *propSchema
	secret     sync.Map // template of a described value → bool
	refers     sync.Map // template of a described value → referral
	secrets    atomic.Pointer[[]string]
	fields     atomic.Pointer[[]string]
	settings   atomic.Pointer[[]string]
}

// keep returns what a place holds, or computes and keeps it.
func keep(place *atomic.Pointer[[]string], compute func() []string) []string {
	if have := place.Load(); have != nil {
		return *have
	}
	v := compute()
	place.Store(&v)
	return v
}

// table is one product, decoded and indexed. It is never changed after it was made.
type table struct {
	api     *facts.API
	version string
	ops     []*Operation // sorted by path, then method
	byID    map[string]*Operation
	trie    *segment
}

type lazyTable struct {
	load   func() (*table, error)
	sum    func() string         // names the embedded facts without decoding them
	merged atomic.Pointer[table] // replaces the loaded one once a host's description was accepted
	mu     sync.Mutex            // held while merging
}

func (l *lazyTable) get() (*table, error) {
	if t := l.merged.Load(); t != nil {
		return t, nil
	}
	return l.load()
}

// New makes a catalogue; nothing is decoded yet.
func New(cfg Config) (*Catalog, error) {
	if cfg.Facts == nil {
		return nil, fmt.Errorf("make catalogue: no API facts given")
	}
	c := &Catalog{tables: map[string]*lazyTable{}}
	for _, p := range facts.Products() {
		sum := sync.OnceValue(func() string {
			text, err := cfg.Facts.Sum(p)
			if err != nil {
				return "unknown"
			}
			return text[:12]
		})
		c.tables[string(p)] = &lazyTable{sum: sum, load: sync.OnceValues(func() (*table, error) {
			api, err := cfg.Facts.API(p)
			if err != nil {
				return nil, err
			}
			return newTable(api, sum()), nil
		})}
	}
	return c, nil
}

// Products lists the four products in their usual order.
func Products() []string {
	var out []string
	for _, p := range facts.Products() {
		out = append(out, string(p))
	}
	return out
}

func (c *Catalog) table(product string) (*table, error) {
	l, ok := c.tables[product]
	if !ok {
		return nil, fmt.Errorf("look up product: %q is none of %s", product, strings.Join(Products(), ", "))
	}
	return l.get()
}

// Lookup finds an operation by its name, such as "PUT /nodes/{node}/qemu/{vmid}/config".
func (c *Catalog) Lookup(product, id string) (*Operation, bool) {
	t, err := c.table(product)
	if err != nil {
		return nil, false
	}
	op, ok := t.byID[id]
	return op, ok
}

// Operations lists a product's operations, sorted by path and method. The slice must not be changed.
func (c *Catalog) Operations(product string) []*Operation {
	t, err := c.table(product)
	if err != nil {
		return nil
	}
	return t.ops
}

// All lists the operations of all four products, product by product.
func (c *Catalog) All() []*Operation {
	var out []*Operation
	for _, p := range Products() {
		out = append(out, c.Operations(p)...)
	}
	return out
}

// Version names a product's facts, including what was merged into them; it belongs into the digest of a plan.
// Nothing is decoded for it.
func (c *Catalog) Version(product string) string {
	l, ok := c.tables[product]
	if !ok {
		return ""
	}
	if t := l.merged.Load(); t != nil {
		return t.version
	}
	return l.sum()
}

func newTable(api *facts.API, version string) *table {
	t := &table{api: api, version: version, byID: map[string]*Operation{}}
	for _, f := range api.Operations {
		t.add(newOperation(api, f))
	}
	if api.Product == facts.PVE {
		for _, f := range runOperations() {
			t.add(newOperation(api, f))
		}
	}
	t.index()
	t.describePlaceholders()
	return t
}

// describePlaceholders gives the indexes, which the published trees leave without parameters, the placeholders of
// their paths, described as in the operations below them or beside them.
func (t *table) describePlaceholders() {
	for _, op := range t.ops {
		var missing []string
		for _, name := range op.Placeholders {
			if op.Facts.Params[name] == nil {
				missing = append(missing, name)
			}
		}
		if len(missing) == 0 {
			continue
		}
		f := *op.Facts
		f.Params = maps.Clone(op.Facts.Params)
		if f.Params == nil {
			f.Params = map[string]*facts.Schema{}
		}
		op.Facts = &f
		for _, name := range missing {
			f.Params[name] = t.placeholderLike(op, name)
		}
	}
}

func (t *table) placeholderLike(op *Operation, name string) *facts.Schema {
	var best *facts.Schema
	for _, other := range t.ops {
		s := other.Facts.Params[name]
		if s == nil || !slices.Contains(other.Placeholders, name) {
			continue
		}
		if strings.HasPrefix(other.Path, op.Path+"/") {
			return s
		}
		if best == nil {
			best = s
		}
	}
	if best == nil {
		one := 1
		best = &facts.Schema{Type: "string", MinLength: &one}
	}
	return best
}

func newOperation(api *facts.API, f *facts.Operation) *Operation {
	op := &Operation{ID: f.Method + " " + f.Path, Product: string(api.Product), Method: f.Method, Path: f.Path, Facts: f, api: api, known: &knowledge{}}
	for part := range strings.SplitSeq(f.Path, "/") {
		if name, ok := placeholder(part); ok {
			op.Placeholders = append(op.Placeholders, name)
		}
	}
	if n := len(op.Placeholders); n > 0 && swallowsRest(op.Product, f.Path) {
		op.rest = op.Placeholders[n-1]
	}
	return op
}

func (t *table) add(op *Operation) {
	t.ops = append(t.ops, op)
	t.byID[op.ID] = op
}

// index sorts and builds the trie of path segments.
func (t *table) index() {
	slices.SortFunc(t.ops, func(a, b *Operation) int {
		if d := strings.Compare(a.Path, b.Path); d != 0 {
			return d
		}
		return strings.Compare(a.Method, b.Method)
	})
	t.trie = &segment{}
	for _, op := range t.ops {
		t.trie.insert(op)
	}
}

func placeholder(part string) (string, bool) {
	if len(part) > 2 && part[0] == '{' && part[len(part)-1] == '}' {
		return part[1 : len(part)-1], true
	}
	return "", false
}
