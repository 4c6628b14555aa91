package catalog

import (
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
	want := map[string]int{"pve": 680, "pbs": 367, "pmg": 425, "pdm": 327}
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
