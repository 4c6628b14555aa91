package catalog

import (
	"strings"
	"testing"

	"castellan/internal/catalog/facts"
)

func searchCatalog(t testing.TB) *Catalog {
	t.Helper()
	c, err := New(Config{Facts: facts.Open()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestWordTables(t *testing.T) {
	c := searchCatalog(t)
	scopes, rules, err := wordTable()
	if err != nil {
		t.Fatal(err)
	}
	reached := map[string]bool{}
	for _, product := range Products() {
		ops := c.Operations(product)
		have := map[string]bool{}
		for _, op := range ops {
			have[op.Path] = true
		}
		named := map[string]bool{}
		for _, r := range rules {
			if !applies(r.products, product) {
				continue
			}
			for _, s := range r.places(scopes, product) {
				for _, op := range ops {
					if op.Path == s.path && strings.ContainsRune(r.methods, letter(op.Method)) {
						reached[r.products+r.methods+r.path] = true
						if r.text != "" {
							named[op.ID] = true
						}
					}
				}
			}
		}
		for _, op := range ops {
			if !named[op.ID] {
				t.Errorf("%s %s: no line of the word tables describes it", product, op.ID)
			}
		}
	}
	for _, r := range rules {
		if !reached[r.products+r.methods+r.path] {
			t.Errorf("line %s %s %s reaches no operation", r.products, r.methods, r.path)
		}
	}
}

func TestEveryOperationFindsItself(t *testing.T) {
	c := searchCatalog(t)
	for _, op := range c.All() {
		hits := c.Find(op.ID, FindOptions{Products: []string{op.Product}, Limit: 1})
		if len(hits) != 1 || hits[0].Method != op.Method || hits[0].Path != op.Path {
			t.Errorf("%s %s finds %v", op.Product, op.ID, hits)
		}
	}
}
