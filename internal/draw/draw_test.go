package draw

import (
	encodingxml "encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"unicode"
)

// hostile are names that break out of something where they are not escaped.
func hostile() []string {
	return []string{`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `' onload='x`, `]]><!--`, `\"]; evil -> x [label="`, `\N\G\l\\`, "a\x00b\x1b[31mc", "\u202egnp.exe", "a\u200bb", "\xff\xfe", "a\u2060b\u00adc", "tag\U000e0041\U000e0042", "vs\ufe0f\U000e0101", "filler\u3164\u115f\u2800", "\x1b]0;title\x07", "\u009b31m",
		strings.Repeat("x", 5000), strings.Repeat("漢字", 900), "", " ", "Büro Straße 7", "&lt;&amp;", "&#0;", "url(javascript:alert(1))", "{{.}}", "\n\n\n", "}", `"`, "// c", "/* c", "# c"}
}

// whole reads SVG and fails on what is no XML, on elements or attributes that a drawing has no need of.
func whole(t *testing.T, svg string) (texts string) {
	t.Helper()
	d := encodingxml.NewDecoder(strings.NewReader(svg))
	d.Strict = true
	elements := map[string]bool{"svg": true, "title": true, "desc": true, "g": true, "rect": true, "path": true, "text": true}
	for {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			return texts
		}
		if err != nil {
			t.Fatalf("no XML: %v\n%.500q", err, svg)
		}
		switch x := tok.(type) {
		case encodingxml.StartElement:
			if !elements[x.Name.Local] {
				t.Fatalf("element %s in a drawing", x.Name.Local)
			}
			for _, a := range x.Attr {
				if strings.HasPrefix(strings.ToLower(a.Name.Local), "on") || a.Name.Local == "href" || a.Name.Local == "style" {
					t.Fatalf("attribute %s in a drawing", a.Name.Local)
				}
			}
		case encodingxml.CharData:
			texts += string(x) + "\n"
		case encodingxml.Comment, encodingxml.Directive, encodingxml.ProcInst:
			t.Fatalf("%T in a drawing", tok)
		}
	}
}

func TestDrawingsOfHostileNames(t *testing.T) {
	var things []Thing
	var links []Link
	root := &Node{Title: "root"}
	for i, h := range hostile() {
		things = append(things, Thing{ID: h + string(rune('a'+i)), Title: h, Kind: h, Ghost: i%2 == 0})
		links = append(links, Link{From: things[0].ID, To: things[i].ID, Kind: h, Key: h, Unknown: i%3 == 0})
		root.Children = append(root.Children, &Node{Title: h, Says: []string{h, h}, Grade: Grade(h), Unknown: true, Children: []*Node{{Title: h}}})
	}
	tree := Tree(hostile()[0], hostile()[1], []*Node{root})
	graph := Graph(hostile()[0], hostile()[1], things, links, func(k string) (int, string) { return len(k) % 3, k })
	whole(t, tree)
	whole(t, graph)
	dot := DOT(hostile()[0], things, links)
	checkDOT(t, dot)
	for _, drawn := range []string{tree, graph, dot} {
		for _, r := range drawn {
			if r != '\n' && (!unicode.IsPrint(r) || unicode.In(r, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point)) || r == 0x2800 {
				t.Fatalf("%U is drawn", r)
			}
		}
	}
}

// checkDOT reads DOT as Graphviz's grammar does: outside of quoted strings only the words that we write may stand.
func checkDOT(t *testing.T, dot string) {
	t.Helper()
	var outside strings.Builder
	in := false
	for i := 0; i < len(dot); i++ {
		switch c := dot[i]; {
		case in && c == '\\':
			i++
		case c == '"':
			in = !in
			outside.WriteByte('S')
		case in && c < ' ':
			t.Fatalf("control character %q in a string", c)
		case !in:
			outside.WriteByte(c)
		}
	}
	if in {
		t.Fatal("a string does not end")
	}
	for _, line := range strings.Split(outside.String(), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line == "}" || line == "rankdir=LR;" || line == "node [shape=box, fontname=SS];" || line == "digraph SS {" {
			continue
		}
		line = strings.TrimSuffix(strings.TrimSuffix(line, "];"), ", style=dashed")
		head, rest, _ := strings.Cut(line, " [")
		if rest != "label=SS" && rest != "label=SS, tooltip=SS" {
			t.Fatalf("line %q", line)
		}
		if strings.Trim(head, "n0123456789-> ") != "" {
			t.Fatalf("line %q", line)
		}
	}
}

func FuzzDrawings(f *testing.F) {
	for _, h := range hostile() {
		f.Add(h, h)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		things := []Thing{{ID: a, Title: b, Kind: a}, {ID: b + "x", Title: a, Ghost: true}}
		links := []Link{{From: a, To: b + "x", Kind: b, Key: a, Unknown: true}, {From: a, To: a}, {From: b, To: "nowhere"}}
		whole(t, Tree(a, b, []*Node{{Title: a, Says: []string{b}, Grade: Grade(b), Children: []*Node{{Title: b}}}}))
		whole(t, Graph(a, b, things, links, func(k string) (int, string) { return len(k), k }))
		checkDOT(t, DOT(a, things, links))
	})
}

func TestTreeSaysEverything(t *testing.T) {
	got := whole(t, Tree("what it reaches", "in words", []*Node{{Title: "storage/nas", Children: []*Node{{Title: "VM 101 (web)", Says: []string{"loses its disk scsi0"}, Grade: Danger, Unknown: true}}}}))
	for _, want := range []string{"what it reaches", "in words", "storage/nas", "VM 101 (web)", "loses its disk scsi0", "!!?"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in the drawing: %s", want, got)
		}
	}
}
