package draw

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Thing is a vertex of a graph.
type Thing struct {
	ID    string // unique
	Title string
	Kind  string
	Ghost bool // referred to, and never seen
}

// Link leads from what depends to what it depends on.
type Link struct {
	From, To string // ids of things; links to others are left out
	Kind     string
	Key      string
	Unknown  bool
}

// DOT writes a graph in the language of Graphviz.
func DOT(title string, things []Thing, links []Link) string {
	var b strings.Builder
	fmt.Fprintf(&b, "digraph %s {\n  rankdir=LR;\n  node [shape=box, fontname=\"sans-serif\"];\n", quote(title, 200))
	known := map[string]int{}
	for i, t := range things {
		known[t.ID] = i
		style := ""
		if t.Ghost {
			style = ", style=dashed"
		}
		fmt.Fprintf(&b, "  n%d [label=%s, tooltip=%s%s];\n", i, quote(t.Title, 120), quote(t.ID, 200), style)
	}
	for _, l := range links {
		from, ok := known[l.From]
		to, has := known[l.To]
		if !ok || !has {
			continue
		}
		label, style := l.Kind, ""
		if l.Key != "" {
			label += " " + l.Key
		}
		if l.Unknown {
			label, style = label+" (not known)", ", style=dashed"
		}
		fmt.Fprintf(&b, "  n%d -> n%d [label=%s%s];\n", from, to, quote(label, 80), style)
	}
	b.WriteString("}\n")
	return b.String()
}

// quote makes a quoted string of DOT: in it a backslash begins an escape of the label, so each stands for itself.
func quote(s string, most int) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(Clean(s, most)) + `"`
}

const (
	cellWidth   = 210
	cellHeight  = 22
	columnGap   = 90
	top         = 28
	cellLetters = 30
)

// Graph draws things in columns by kind, those that depend on others to their left, as SVG. column gives the place and
// the heading of a kind.
func Graph(title, words string, things []Thing, links []Link, column func(kind string) (int, string)) string {
	type at struct{ x, y int }
	place := map[string]at{}
	byColumn := map[int][]Thing{}
	headings := map[int]string{}
	for _, t := range things {
		c, heading := column(t.Kind)
		byColumn[c] = append(byColumn[c], t)
		headings[c] = heading
	}
	var columns []int
	for c := range byColumn {
		columns = append(columns, c)
	}
	slices.Sort(columns)
	// Within a column things stand near what they are linked to: by the mean place of their neighbours in the columns
	// that are placed already.
	height := 0
	for i, c := range columns {
		list := byColumn[c]
		near := map[string][2]int{}
		for _, l := range links {
			for _, pair := range [][2]string{{l.From, l.To}, {l.To, l.From}} {
				if p, ok := place[pair[1]]; ok {
					n := near[pair[0]]
					near[pair[0]] = [2]int{n[0] + p.y, n[1] + 1}
				}
			}
		}
		mean := func(t Thing) int {
			if n := near[t.ID]; n[1] > 0 {
				return n[0] / n[1]
			}
			return 1 << 30
		}
		slices.SortStableFunc(list, func(a, b Thing) int { return cmp.Compare(mean(a), mean(b)) })
		for j, t := range list {
			place[t.ID] = at{2 + i*(cellWidth+columnGap), top + j*(cellHeight+6)}
			height = max(height, top+(j+1)*(cellHeight+6))
		}
	}
	width := max(360, 4+len(columns)*(cellWidth+columnGap)-columnGap)
	var b strings.Builder
	open(&b, width, max(height+2, 40), Clean(title, 200), Clean(words, 4000))
	for i, c := range columns {
		fmt.Fprintf(&b, `<text x="%d" y="16" font-weight="bold" fill="#55554e">%s</text>`, 2+i*(cellWidth+columnGap), xml(Clean(headings[c], 40)))
	}
	for _, l := range links {
		from, ok := place[l.From]
		to, has := place[l.To]
		if !ok || !has {
			continue
		}
		dash := ""
		if l.Unknown {
			dash = ` stroke-dasharray="4 3"`
		}
		says := l.Kind
		if l.Key != "" {
			says += " " + l.Key
		}
		if l.Unknown {
			says += " (not known)"
		}
		x1, x2, bend := from.x+cellWidth, to.x, columnGap/2
		switch {
		case from.x > to.x:
			x1, x2, bend = from.x, to.x+cellWidth, -columnGap/2
		case from.x == to.x:
			x1, x2 = from.x+cellWidth, to.x+cellWidth
		}
		y1, y2 := from.y+cellHeight/2, to.y+cellHeight/2
		end := x2 - bend
		if from.x == to.x {
			end = x2 + bend
		}
		fmt.Fprintf(&b, `<path d="M%d %dC%d %d %d %d %d %d" fill="none" stroke="#9a9a90"%s><title>%s</title></path>`, x1, y1, x1+bend, y1, end, y2, x2, y2, dash, xml(Clean(says, 80)))
	}
	for _, t := range things {
		p := place[t.ID]
		dash := ""
		if t.Ghost {
			dash = ` stroke-dasharray="4 3"`
		}
		shown := lines(Clean(t.Title, 120), cellLetters, 1)
		text := ""
		if len(shown) > 0 {
			text = shown[0]
		}
		fmt.Fprintf(&b, `<g><title>%s</title><rect x="%d" y="%d" width="%d" height="%d" rx="3" fill="#f4f4f2" stroke="#77776f"%s/><text x="%d" y="%d" fill="#1b1b18">%s</text></g>`,
			xml(Clean(t.ID, 200)), p.x, p.y, cellWidth, cellHeight, dash, p.x+5, p.y+15, xml(text))
	}
	b.WriteString("</svg>")
	return b.String()
}
