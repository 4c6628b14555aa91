package catalog

import (
	"os"
	"slices"
	"strings"
	"testing"
)

type question struct {
	product, text string
	answers       []string
}

func questions(t testing.TB, file string) []question {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out []question
	for line := range strings.SplitSeq(string(b), "\n") {
		if cols := strings.Split(line, "\t"); len(cols) == 3 && !strings.HasPrefix(line, "#") {
			q := question{product: cols[0], text: cols[1]}
			for a := range strings.SplitSeq(cols[2], ";") {
				q.answers = append(q.answers, strings.TrimSpace(a))
			}
			out = append(out, q)
		}
	}
	return out
}

func (q question) answered(hits []Hit) bool {
	return slices.ContainsFunc(hits, func(h Hit) bool {
		return h.Product == q.product && slices.Contains(q.answers, h.Method+" "+h.Path)
	})
}

// TestQuestionsFindTheirOperation asks what administrators ask, of one product and over all four. Half of
// the first file, and the second file, served to widen the vocabulary; the other half did not.
func TestQuestionsFindTheirOperation(t *testing.T) {
	c := searchCatalog(t)
	first := questions(t, "testdata/questions.tsv")
	seen, held := questions(t, "testdata/questions_seen.tsv"), []question(nil)
	for i, q := range first {
		if i%2 == 0 {
			seen = append(seen, q)
		} else {
			held = append(held, q)
		}
	}
	if len(seen) < 250 || len(held) < 200 {
		t.Fatalf("only %d and %d questions", len(seen), len(held))
	}
	for _, set := range []struct {
		name      string
		questions []question
	}{{"seen", seen}, {"held out", held}} {
		for scope, floor := range map[string]float64{"own product": 94, "all products": 91} {
			found, asked := 0, 0
			for _, q := range set.questions {
				for _, a := range q.answers {
					if _, ok := c.Lookup(q.product, a); !ok {
						t.Fatalf("%q: no such operation %s %s", q.text, q.product, a)
					}
				}
				o := FindOptions{Limit: 5}
				if scope == "own product" {
					o.Products = []string{q.product}
				}
				asked++
				if hits := c.Find(q.text, o); q.answered(hits) {
					found++
				} else if set.name == "seen" && os.Getenv("MISSES") != "" {
					t.Logf("%s: %s %q\n   wants %v", scope, q.product, q.text, q.answers)
					for _, h := range hits {
						t.Logf("      %.2f %s %s %s", h.Score, h.Product, h.Method, h.Path)
					}
				}
			}
			share := 100 * float64(found) / float64(asked)
			t.Logf("%s, %s: %d of %d (%.1f %%)", set.name, scope, found, asked, share)
			if share < floor {
				t.Errorf("%s, %s: %.1f %% have a right operation among the first five, want %.0f %%", set.name, scope, share, floor)
			}
		}
	}
}
