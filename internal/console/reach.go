package console

import (
	"html/template"
	"slices"
	"strings"
	"time"

	"castellan/internal/draw"
	"castellan/internal/gate"
)

// What is drawn and told of a plan's reach; a page of thousands of hits would be read by nobody.
const (
	mostDrawn = 40
	mostHits  = 200
	mostGaps  = 60
)

// reached is what a plan hits beyond what it names, as a picture and in the same order in words.
type reached struct {
	Walked  bool
	Drawing template.HTML
	Hits    []hitShown
	More    int
	Gaps    []string // what could not be read
	NoWalk  []string // operations of which nothing is known
	Oldest  time.Time
	Gravest gate.Weight
}

type hitShown struct {
	Weight  gate.Weight
	Class   string
	Object  string
	Way     []string
	Text    string
	Step    int
	Unknown bool
	Blocks  bool
}

func reachOf(p *gate.Plan) reached {
	r := p.Facts.Reach
	out := reached{Walked: !r.Oldest.IsZero() || len(r.Hits)+len(r.Unread)+len(r.Unwalked) > 0, Oldest: r.Oldest, NoWalk: r.Unwalked}
	for _, h := range r.Hits[:min(mostHits, len(r.Hits))] {
		shown := hitShown{Weight: h.Weight, Class: strings.ReplaceAll(h.Class, "_", " "), Object: named(p, h.Object), Text: h.Text, Unknown: h.Unknown, Blocks: h.Blocks}
		if len(p.Steps) > 1 {
			shown.Step = h.Step
		}
		for _, o := range h.Way {
			if plainObject(o) != plainObject(h.Object) {
				shown.Way = append(shown.Way, named(p, o))
			}
		}
		out.Hits = append(out.Hits, shown)
		if out.Gravest == "" || h.Weight.Heavier(out.Gravest) {
			out.Gravest = h.Weight
		}
	}
	out.More = len(r.Hits) - len(out.Hits)
	out.Gaps = slices.Clone(r.Unread[:min(mostGaps, len(r.Unread))])
	if n := len(r.Unread) - len(out.Gaps); n > 0 {
		out.Gaps = append(out.Gaps, "and more")
	}
	if len(r.Hits) > 0 {
		out.Drawing = drawReach(p)
	}
	return out
}

// plainObject leaves the site out: a plan's drawing is of one, and walks name it or not.
func plainObject(o gate.Object) gate.Object { return gate.Object{Kind: o.Kind, ID: o.ID} }

// named is an object with the name that the estate told for it.
func named(p *gate.Plan, o gate.Object) string {
	for _, f := range p.Facts.Objects {
		if plainObject(f.Object) == plainObject(o) && f.Name != "" && f.Name != o.ID {
			return strings.TrimSpace(string(o.Kind)+" "+o.ID) + " (" + f.Name + ")"
		}
	}
	return strings.TrimSpace(strings.ReplaceAll(string(o.Kind), "_", " ") + " " + o.ID)
}

// drawReach draws each step, and below it what it hits along the way by which it does.
func drawReach(p *gate.Plan) template.HTML {
	roots := map[int]*draw.Node{}
	var order []*draw.Node
	at := map[*draw.Node]map[gate.Object]*draw.Node{}
	below := func(n *draw.Node, o gate.Object) *draw.Node {
		o = plainObject(o)
		if at[n] == nil {
			at[n] = map[gate.Object]*draw.Node{}
		}
		if at[n][o] == nil {
			at[n][o] = &draw.Node{Title: named(p, o)}
			n.Children = append(n.Children, at[n][o])
		}
		return at[n][o]
	}
	hits := p.Facts.Reach.Hits
	for _, h := range hits[:min(mostDrawn, len(hits))] {
		root := roots[h.Step]
		if root == nil {
			root = &draw.Node{Title: "The plan"}
			if h.Step > 0 && h.Step <= len(p.Steps) {
				root.Title = p.Steps[h.Step-1].Sentence
			}
			roots[h.Step] = root
			order = append(order, root)
		}
		n := root
		for _, o := range h.Way {
			if plainObject(o) != plainObject(h.Object) {
				n = below(n, o)
			}
		}
		n = below(n, h.Object)
		n.Says = append(n.Says, says(h))
		if n.Grade == draw.Plain || h.Weight.Heavier(gate.Weight(n.Grade)) {
			n.Grade, n.Unknown = draw.Grade(h.Weight), h.Unknown
		}
	}
	if n := len(hits) - mostDrawn; n > 0 {
		order = append(order, &draw.Node{Title: "More is hit than is drawn", Says: []string{"The list below goes on; none of it is graver than what is drawn."}, Grade: draw.Grade(hits[mostDrawn].Weight)})
	}
	return template.HTML(draw.Tree("What the plan hits beyond what it names", "The list below says the same in words.", order))
}

func says(h gate.Hit) string {
	text := strings.ReplaceAll(h.Class, "_", " ") + ": " + h.Text
	if h.Unknown {
		text += " (not known)"
	}
	if h.Blocks {
		text += " (Proxmox will refuse it)"
	}
	return text
}
