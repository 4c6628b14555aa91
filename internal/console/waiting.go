package console

import (
	"net/http"
	"slices"
	"time"

	"castellan/internal/gate"
)

// mostWaiting bounds the page of waiting plans.
const mostWaiting = 300

type waitingPage struct {
	Groups  []group
	Count   int
	More    int // beyond the bound
	Own     bool
	Recent  []planLine
	Nothing bool
}

type planLine struct {
	ID, Digest, Sentence string
	Operation            string
	Who                  string
	Rung                 string
	Grave                bool
	Effect               string
	State                string
	Expires, Created     time.Time
	Approvals            int
	Need                 int
	Odd                  []string // in what it differs from its equals
	Aside                []string // in a group: its note and what it leaves out, where they are not the first one's
}

func (c *Console) lineOf(r *gate.PlanRecord) planLine {
	p := &r.Plan
	out := planLine{ID: p.ID, Digest: p.Digest, Sentence: p.Sentence, Operation: p.Operation, Who: nameOf(p.Requester), Rung: rungText(p.Decision.Rung), Effect: string(p.Facts.Effect),
		State: stateText(r.State), Expires: p.Expires, Created: p.Created, Approvals: len(r.Approvals), Need: 1,
		Grave: p.Facts.Effect != gate.EffectRead && p.Facts.Effect != gate.EffectChange || len(p.Facts.Governs) > 0}
	if p.Decision.Rung == gate.RungTwoPasskeys {
		out.Need = 2
	}
	return out
}

// visibleWaiting are the waiting plans that this person may see, oldest first.
func (c *Console) visibleWaiting(v *visit) ([]*gate.PlanRecord, error) {
	all, err := c.c.Gate.Waiting(v.ctx)
	if err != nil {
		return nil, err
	}
	if c.decides(v) {
		return all, nil
	}
	var out []*gate.PlanRecord
	for _, r := range all {
		if r.Plan.Requester.Person == v.who.Person {
			out = append(out, r)
		}
	}
	return out, nil
}

func (c *Console) waiting(v *visit) {
	all, err := c.visibleWaiting(v)
	if err != nil {
		c.fail(v, err)
		return
	}
	body := waitingPage{Count: len(all), Own: !c.decides(v)}
	if len(all) > mostWaiting {
		body.More, all = len(all)-mostWaiting, all[:mostWaiting]
	}
	body.Groups = c.groups(all)
	recent, _, err := c.c.Gate.Plans(v.ctx, v.who, gate.PlanFilter{Limit: 12})
	if err != nil {
		c.fail(v, err)
		return
	}
	for _, r := range recent {
		if !slices.ContainsFunc(all, func(w *gate.PlanRecord) bool { return w.Plan.ID == r.Plan.ID }) {
			body.Recent = append(body.Recent, c.lineOf(r))
		}
	}
	title := "Nothing waits"
	if body.Count > 0 {
		title = "Waiting for a decision"
	}
	c.draw(v, http.StatusOK, "waiting", sheet{Title: title, At: "/", Body: body})
}

type historyPage struct {
	Plans []planLine
	Next  string
}

// history lists all plans that this person may see, newest first.
func (c *Console) history(v *visit) {
	plans, next, err := c.c.Gate.Plans(v.ctx, v.who, gate.PlanFilter{Limit: 50, Cursor: clipRunes(v.r.URL.Query().Get("cursor"), 200)})
	if err != nil {
		c.fail(v, err)
		return
	}
	body := historyPage{Next: next}
	for _, r := range plans {
		body.Plans = append(body.Plans, c.lineOf(r))
	}
	c.draw(v, http.StatusOK, "history", sheet{Title: "All plans", At: "/plans/", Body: body})
}
