package catalog

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"castellan/internal/gate"

	"github.com/google/go-cmp/cmp"
)

// TestPublishedClasses holds the judgement of all operations against the reviewed listing: a line for each path
// with method, effect and classes. A change of a rule shows here as a difference to be looked at; when it is
// right, run the test with CASTELLAN_UPDATE_GOLDEN=1 and commit the difference.
func TestPublishedClasses(t *testing.T) {
	c := newTestCatalog(t)
	var b strings.Builder
	last := ""
	for _, op := range c.All() {
		if at := op.Product + " " + op.Path; at != last {
			if last != "" {
				b.WriteByte('\n')
			}
			b.WriteString(at)
			last = at
		}
		fmt.Fprintf(&b, "\t%s %s", op.Method, c.Effect(op))
		if classes := listed(c.Classes(op)); classes != "" {
			b.WriteString(": " + classes)
		}
	}
	b.WriteByte('\n')
	file := filepath.Join("testdata", "classes.tsv")
	if os.Getenv("CASTELLAN_UPDATE_GOLDEN") != "" {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(b.String(), "\n")); diff != "" {
		t.Errorf("the classes differ from the reviewed listing:\n%s", diff)
	}
}

// TestRulesAreAllOfUse: a rule that matches no operation is a slip of the pen or left over.
func TestRulesAreAllOfUse(t *testing.T) {
	c := newTestCatalog(t)
	used := func(what string, r familyRule) {
		for _, op := range c.All() {
			if r.matches(op) {
				return
			}
		}
		t.Errorf("%s %q %q %q matches no operation", what, r.products, r.methods, r.path)
	}
	for _, rules := range allFamilyRules() {
		for _, r := range rules {
			used("class rule", r)
			for word := range strings.FieldsSeq(r.classes) {
				if _, ok := classNamed(strings.TrimPrefix(word, "-")); !ok {
					t.Errorf("rule %q names class %q, which does not exist", r.path, word)
				}
			}
		}
	}
	for _, r := range kindRules {
		used("kind rule", familyRule{products: r.products, methods: r.methods, path: r.path})
		for word := range strings.FieldsSeq(r.kinds) {
			if gate.RowOf(gate.Kind(word)).Kind != gate.Kind(word) {
				t.Errorf("rule %q names kind %q, which does not exist", r.path, word)
			}
		}
	}
	for _, r := range secretAnswers {
		used("secret answer", r)
	}
	for _, path := range freeTextPaths {
		used("free text", familyRule{methods: "GET", path: path})
	}
	for _, e := range reviewedExceptions {
		for product := range strings.FieldsSeq(e.products) {
			if _, ok := c.Lookup(product, e.id); !ok || e.reason == "" {
				t.Errorf("exception %s %s: no such operation, or no reason", product, e.id)
			}
		}
	}
	for _, r := range paramRules {
		used("parameter rule", familyRule{products: r.products, methods: r.methods, path: r.path})
	}
	for _, r := range sentenceRules {
		used("wording", familyRule{products: r.products, methods: r.methods, path: r.path})
		for part := range strings.SplitSeq(r.text, "{") {
			name, _, named := strings.Cut(part, "}")
			if !named || name == "changes" || name == "guest" {
				continue
			}
			found := false
			for _, op := range c.All() {
				if (familyRule{products: r.products, methods: r.methods, path: r.path}).matches(op) && op.Facts.Params[name] != nil {
					found = true
				}
			}
			if !found {
				t.Errorf("wording %q names {%s}, which no operation of its family takes", r.text, name)
			}
		}
	}
}
