package catalog

import (
	"sync"
	"testing"

	"castellan/internal/catalog/facts"
)

func open(t testing.TB) *Catalog {
	t.Helper()
	c, err := New(Config{Facts: facts.Open()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func lookup(t testing.TB, c *Catalog, product, id string) *Operation {
	t.Helper()
	op, ok := c.Lookup(product, id)
	if !ok {
		t.Fatalf("%s has no %s", product, id)
	}
	return op
}

func TestEveryOperationIsFound(t *testing.T) {
	c := open(t)
	want := map[string]int{"pve": 680 + len(runOperations()), "pbs": 367, "pmg": 425, "pdm": 327} // those of the API, and castellan's own
	for _, p := range Products() {
		ops := c.Operations(p)
		if len(ops) != want[p] {
			t.Errorf("%s: %d operations, want %d", p, len(ops), want[p])
		}
		for _, op := range ops {
			if got, ok := c.Lookup(p, op.ID); !ok || got != op {
				t.Errorf("%s %s is not found by its name", p, op.ID)
			}
			for _, name := range op.Placeholders {
				if op.Facts.Params[name] == nil {
					t.Errorf("%s %s: placeholder %s has no description", p, op.ID, name)
				}
			}
		}
		if len(c.Version(p)) != 12 {
			t.Errorf("version of %s is %q", p, c.Version(p))
		}
	}
	if _, ok := c.Lookup("nope", "GET /version"); ok {
		t.Error("an unknown product has operations")
	}
	if _, err := New(Config{}); err == nil {
		t.Error("a catalogue without facts was made")
	}
}

func TestManyAskAtOnce(t *testing.T) {
	c := open(t)
	doc := parseDoc(t, "pve", docWith(node("/nodes/{node}/new", "POST", `"node":{"type":"string"}`)))
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			if i == 3 {
				if _, err := c.Merge(doc); err != nil {
					t.Error(err)
				}
			}
			for _, product := range Products() {
				for _, op := range c.Operations(product)[:40] {
					r, _ := c.Check(op, map[string]any{"node": "pve1", "vmid": 100, "delete": "x"})
					c.References(op, r)
					c.SecretFields(op)
					c.Privileges(op, r)
					c.Match(product, op.Method, op.Path)
				}
				c.Version(product)
			}
		})
	}
	wg.Wait()
	if _, ok := c.Lookup("pve", "POST /nodes/{node}/new"); !ok {
		t.Error("what was merged is not found")
	}
}
