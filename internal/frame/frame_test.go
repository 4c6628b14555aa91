package frame

import (
	"errors"
	"io"
	"strings"
	"testing"
)

func TestLines(t *testing.T) {
	var b strings.Builder
	w := NewWriter(&b)
	for _, id := range []string{"a", "b"} {
		if err := w.Put(Ask{V: Version, ID: id, Verb: Hello}); err != nil {
			t.Fatal(err)
		}
	}
	r := NewReader(strings.NewReader(b.String()))
	for _, id := range []string{"a", "b"} {
		var a Ask
		if err := r.Next(&a); err != nil || a.ID != id || a.Verb != Hello {
			t.Fatalf("got %+v, %v", a, err)
		}
	}
	var a Ask
	if err := r.Next(&a); !errors.Is(err, io.EOF) {
		t.Fatalf("after the end: %v", err)
	}
}

func TestBadLines(t *testing.T) {
	for name, text := range map[string]string{
		"unknown key":  `{"v":1,"id":"a","verb":"exec","run":{"lane":"probe","sudo":true}}` + "\n",
		"two values":   `{"v":1,"id":"a","verb":"hello"} {"v":1}` + "\n",
		"a bracket":    `{"v":1,"id":"a","verb":"hello"}} {"v":1}` + "\n",
		"a list's end": `{"v":1,"id":"a","verb":"hello"}]` + "\n",
		"cut":          `{"v":1,"id":"a","verb":"hello"}`,
		"not a number": `{"v":"1"}` + "\n",
		"empty":        "\n",
	} {
		var a Ask
		if err := NewReader(strings.NewReader(text)).Next(&a); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("%s: taken (%v)", name, err)
		}
	}
	endless := io.MultiReader(strings.NewReader(`{"id":"`), zeros{})
	var a Ask
	if err := NewReader(endless).Next(&a); !errors.Is(err, ErrTooLong) {
		t.Errorf("an endless line: %v", err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '0'
	}
	return len(p), nil
}
