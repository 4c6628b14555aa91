package main

import (
	"bytes"
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTheReferencePageIsFresh(t *testing.T) {
	var want bytes.Buffer
	if err := writeReference(&want); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../docs/reference.md")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.String(), string(got)); diff != "" {
		t.Errorf("docs/reference.md is old; run go generate ./cmd/castellan:\n%s", diff)
	}
}

func TestTheReadmeIsShortAndItsLinksLead(t *testing.T) {
	b, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(b), "\n"); n > 200 {
		t.Errorf("README.md has %d lines; at most 200", n)
	}
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	link := regexp.MustCompile(`\]\(([^)#:]+)[)#]`)
	for _, page := range append(pages, "../../README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), m[1])); err != nil {
				t.Errorf("%s links to %s, which is not there", page, m[1])
			}
		}
	}
}

// TestEveryCommandInTheDocsIsThere looks for words after "castellan" in code that no command has.
func TestEveryCommandInTheDocsIsThere(t *testing.T) {
	a := &app{env: func(string) (string, bool) { return "", false }}
	root := a.root(true)
	known := map[string]bool{"help": true, "completion": true}
	for _, c := range root.Commands() {
		known[c.Name()] = true
	}
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	use := regexp.MustCompile("(?m)(?:^|`)castellan ([a-z][a-z_]+)")
	for _, page := range append(pages, "../../README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, code := range codeOf(string(text)) {
			for _, m := range use.FindAllStringSubmatch(code, -1) {
				if !known[m[1]] {
					t.Errorf("%s names the command castellan %s, which does not exist", page, m[1])
				}
			}
		}
	}
}

// TestEveryTestInTheDocsIsThere: a command that is to show something runs at least one test for each name it gives.
func TestEveryTestInTheDocsIsThere(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, page := range append(pages, "../../README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, code := range codeOf(string(text)) {
			words := strings.Fields(strings.ReplaceAll(code, `\|`, "|"))
			if len(words) < 3 || words[0] != "go" || words[1] != "test" {
				continue
			}
			var names []string
			have := map[string]string{}
			for i := 2; i < len(words); i++ {
				switch {
				case words[i] == "-run" && i+1 < len(words):
					names = strings.Split(strings.Trim(words[i+1], `'"`), "|")
					i++
				case strings.HasPrefix(words[i], "./"):
					have[words[i]] = testNames(t, words[i])
					if have[words[i]] == "" {
						t.Errorf("%s runs the tests of %s, which has none", page, words[i])
					}
				default:
					t.Errorf("%s: %s: go test would hand %s to the tests", page, code, words[i])
				}
			}
			used := map[string]bool{}
			for _, name := range names {
				seen++
				hit := false
				for dir, list := range have {
					if regexp.MustCompile(`(?m)^\S*` + name).MatchString(list) {
						hit, used[dir] = true, true
					}
				}
				if !hit {
					t.Errorf("%s: %s: no test matches %q", page, code, name)
				}
			}
			if len(names) > 0 && len(used) != len(have) {
				t.Errorf("%s: %s: a package has no test of these names", page, code)
			}
		}
	}
	if seen == 0 {
		t.Error("no page names a test: the search is wrong")
	}
}

// testNames are the top-level tests of a package, one in a line.
func testNames(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("../..", dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	out := ""
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+|Fuzz\w+)\(`).FindAllStringSubmatch(string(b), -1) {
			out += m[1] + "\n"
		}
	}
	return out
}

// codeOf returns the code spans and blocks of a page.
func codeOf(text string) []string {
	var out []string
	for i, part := range strings.Split(text, "```") {
		if i%2 == 1 {
			out = append(out, part)
			continue
		}
		for k, span := range strings.Split(part, "`") {
			if k%2 == 1 {
				out = append(out, span)
			}
		}
	}
	return out
}

// TestEveryKeyIsDescribed: a key of the configuration that no page names is one that nobody can find.
func TestEveryKeyIsDescribed(t *testing.T) {
	var text strings.Builder
	for _, page := range []string{"configuration", "policies", "anchors", "daemon"} {
		b, err := os.ReadFile("../../docs/" + page + ".md")
		if err != nil {
			t.Fatal(err)
		}
		text.Write(b)
	}
	for _, key := range keysOf(reflect.TypeFor[Settings](), "") {
		name := key[strings.LastIndexByte(key, '.')+1:]
		described := false
		for _, form := range []string{"`" + name, "." + name, "[" + key, "[" + name, "\n" + name + " = "} {
			described = described || strings.Contains(text.String(), form)
		}
		if !described {
			t.Errorf("no page describes %s", key)
		}
	}
}

// TestHintsNameCommandsThatAreThere: what a message of the program says to type can be typed.
func TestHintsNameCommandsThatAreThere(t *testing.T) {
	a := &app{env: func(string) (string, bool) { return "", false }}
	below := map[string]map[string]bool{}
	for _, c := range a.root(true).Commands() {
		below[c.Name()] = map[string]bool{}
		for _, sub := range c.Commands() {
			below[c.Name()][sub.Name()] = true
		}
	}
	use := regexp.MustCompile(`castellan (?:--config \S+ )?([a-z]+)(?: ([a-z][a-z_-]*))?`)
	gone := map[string]bool{"account": true, "ledger": true, "approver": true} // that once were thought of
	seen := 0
	for _, s := range sources(t) {
		if strings.HasSuffix(s.path, "_test.go") {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			l, ok := n.(*ast.BasicLit)
			if !ok || l.Kind != token.STRING {
				return true
			}
			for _, m := range use.FindAllStringSubmatch(l.Value, -1) {
				subs, known := below[m[1]]
				switch {
				case gone[m[1]] && !strings.HasPrefix(m[0], "castellan ledger "):
					t.Errorf("%s: there is no command %s", s.path, m[0])
				case known && len(subs) > 0 && m[2] != "" && !subs[m[2]] && !slices.Contains([]string{"is", "and", "lists", "list", "on"}, m[2]):
					t.Errorf("%s: there is no command %s", s.path, m[0])
				case known:
					seen++
				}
			}
			return true
		})
	}
	if seen < 20 {
		t.Errorf("only %d commands were found in texts", seen)
	}
}
