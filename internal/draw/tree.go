package draw

import (
	"fmt"
	"strings"
)

// Node is one thing of a tree, with what follows from it.
type Node struct {
	Title    string
	Says     []string // lines below the title
	Grade    Grade
	Unknown  bool // not known whether it is so
	Children []*Node
}

// A tree is as wide as a phone, and deeper branches move in up to here.
const (
	treeWidth  = 360
	treeIndent = 14
	treeDepth  = 8
	lineHeight = 16
	boxPadding = 6
	boxGap     = 8
	letter     = 6.6 // width of a letter at the font's size, about, on the wide side
)

// Tree draws roots and what hangs on them, downwards, as SVG. Words say the same to those who cannot see it.
func Tree(title, words string, roots []*Node) string {
	var body strings.Builder
	y := 2
	for _, r := range roots {
		y = branch(&body, r, 0, y, -1)
	}
	var b strings.Builder
	open(&b, treeWidth, max(y, 10), Clean(title, 200), Clean(words, 2000))
	b.WriteString(body.String())
	b.WriteString("</svg>")
	return b.String()
}

// branch draws a node at y and everything below it, and gives the y after it. parent is where the line comes from.
func branch(b *strings.Builder, n *Node, depth, y, parent int) int {
	x := 1 + min(depth, treeDepth)*treeIndent
	width := treeWidth - x - 1
	columns := int(float64(width-2*boxPadding-16) / letter)
	fill, stroke, sign := n.Grade.look()
	titles := lines(Clean(n.Title, 300), columns, 3)
	var says []string
	for _, s := range n.Says {
		says = append(says, lines(Clean(s, 600), columns, 8)...)
	}
	height := 2*boxPadding + lineHeight*(len(titles)+len(says))
	if parent >= 0 {
		fmt.Fprintf(b, `<path class="way" d="M%d %dV%dH%d" fill="none" stroke="#77776f"/>`, x-treeIndent/2, parent, y+boxPadding+lineHeight/2, x)
	}
	dash := ""
	if n.Unknown {
		dash = ` stroke-dasharray="4 3"`
	}
	fmt.Fprintf(b, `<g class="box %s"><rect x="%d" y="%d" width="%d" height="%d" rx="4" fill="%s" stroke="%s"%s/>`, n.Grade.class(), x, y, width, height, fill, stroke, dash)
	at := y + boxPadding + 12
	put := func(text, extra string) {
		fmt.Fprintf(b, `<text x="%d" y="%d"%s>%s</text>`, x+boxPadding, at, extra, xml(text))
		at += lineHeight
	}
	if n.Unknown {
		sign += "?"
	}
	if sign != "" {
		fmt.Fprintf(b, `<text class="sign" x="%d" y="%d" text-anchor="end" font-weight="bold" fill="%s">%s</text>`, x+width-boxPadding, at, stroke, sign)
	}
	for _, t := range titles {
		put(t, ` font-weight="bold" fill="#1b1b18"`)
	}
	for _, t := range says {
		put(t, ` fill="#1b1b18"`)
	}
	b.WriteString("</g>")
	from, next := y+height, y+height+boxGap
	for _, c := range n.Children {
		next = branch(b, c, depth+1, next, from)
	}
	return next
}
