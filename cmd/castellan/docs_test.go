package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
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
