package console

import (
	"fmt"
	"net/http"
	"slices"
	"sort"
	"strings"

	"castellan/internal/gate"
)

// group holds waiting plans of one operation.
type group struct {
	Operation string
	Product   string
	Plans     []planLine
	Equal     int      // how many of them differ in nothing but their objects
	Together  bool     // these may be approved together
	Query     string   // ids of the equal ones, for the page that shows them together
	Why       string   // why they may not be approved together
	ids       []string // of the equal ones
}

// feature is one thing in which plans can differ.
type feature struct{ name, value string }

// features are all that decides whether two plans have the same effect on different objects: whatever is sent, required,
// judged and shown, with the names of the plan's own objects taken out.
func features(r *gate.PlanRecord) []feature {
	p := &r.Plan
	hide := without(p)
	var out []feature
	add := func(name, value string) { out = append(out, feature{name, value}) }
	add("the caller", p.Requester.Key())
	add("the approval needed", p.Decision.Rung.String()+" "+p.Decision.Asked.String())
	add("the effect", string(p.Facts.Effect))
	add("the classes", fmt.Sprint(p.Facts.Classes))
	add("the kinds", fmt.Sprint(p.Facts.Kinds))
	add("what it governs", hide(strings.Join(p.Facts.Governs, "; ")))
	add("whether it touches castellan", fmt.Sprint(p.Facts.Self))
	add("whether the caller read text of outsiders", fmt.Sprint(p.Facts.Tainted))
	add("how far it can be undone", p.Facts.Reversible+" "+hide(p.Facts.UndoNote))
	add("the number of objects that nothing identifies", fmt.Sprint(len(p.Facts.Unidentified)))
	add("the number of approvals there", fmt.Sprint(len(r.Approvals)))
	add("the number of steps", fmt.Sprint(len(p.Steps)))
	var objects []string
	for _, o := range p.Facts.Objects {
		id := "*"
		if o.Use != gate.UseActs && o.Object.Kind != gate.ObjectNode {
			id = o.Object.ID
		}
		objects = append(objects, fmt.Sprintf("%s %s/%s known=%t", o.Use, o.Object.Kind, id, o.Known))
	}
	sort.Strings(objects)
	add("the objects touched", strings.Join(objects, ", "))
	for _, d := range p.Diff {
		add("the difference in "+d.Key, hide(d.Old)+" → "+hide(d.New)+" "+hide(d.Note))
	}
	add("what is left out", fmt.Sprint(len(p.Skip)))
	if p.Course != nil {
		add("the order of its parts", fmt.Sprintf("%d at a time, stop after %d, first alone %v", p.Course.Parallel, p.Course.StopAfter, p.Course.Canaries))
	}
	for i, text := range hits(p, hide) {
		add(fmt.Sprintf("what it hits beyond that, %d", i+1), text)
	}
	add("what could not be read of what it hits", fmt.Sprint(len(p.Facts.Reach.Unread), len(p.Facts.Reach.Unwalked)))
	for _, s := range p.Steps {
		stepFeatures(s, hide, add)
	}
	return out
}

func stepFeatures(s gate.Step, hide func(string) string, add func(name, value string)) {
	at := fmt.Sprintf("step %d", s.Number)
	add(at+": the target", s.Target+" "+s.Site)
	if s.Part != 0 {
		add(at+": its part", fmt.Sprint(s.Part, " in batch ", s.Batch))
	}
	add(at+": when it runs", fmt.Sprint(s.When))
	add(at+": what it waits for", fmt.Sprint(s.Wait.Kind, s.Wait.Limit))
	add(at+": how it is undone", hide(s.Undo.None)+"|"+hide(s.Undo.How))
	if s.API != nil {
		add(at+": the call", s.API.Product+" "+s.API.Operation)
		for _, q := range s.API.Params {
			var values []string
			for _, v := range q.Values {
				switch {
				case v.Secret != nil: // every secret is one of its own
					values = append(values, "secret "+v.Secret.Commitment)
				case v.Ref != nil:
					values = append(values, fmt.Sprintf("result %d %s", v.Ref.Step, v.Ref.Pointer))
				case q.Name == "node" || acts(s.Judgement, q.Name):
					values = append(values, "*")
				default:
					values = append(values, v.Text)
				}
			}
			add(at+": "+q.Name, strings.Join(values, ", "))
		}
	}
	for i, q := range s.Require {
		add(fmt.Sprintf("%s: precondition %d", at, i+1), hide(q.Name))
	}
	for i, q := range s.Verify {
		add(fmt.Sprintf("%s: what must be seen afterwards %d", at, i+1), fmt.Sprint(hide(q.Name), " soft=", q.Soft))
	}
}

// hits are what the plan does beyond what its requests say, in no order: with the words of those that are more than worth knowing.
func hits(p *gate.Plan, hide func(string) string) (out []string) {
	for _, h := range p.Facts.Reach.Hits {
		text := fmt.Sprintf("%s %s %s step %d unknown=%t blocks=%t refused=%t %s", h.Weight, h.Class, hide(h.Object.String()), h.Step, h.Unknown, h.Blocks, h.Refused, hide(h.Matter))
		if h.Weight == gate.WeightDanger || h.Weight == gate.WeightCaution {
			text += " " + hide(h.Text)
		}
		out = append(out, text)
	}
	sort.Strings(out)
	return out
}

// aside are a plan's note and what it leaves out, where they are not those of the plan that is shown in full.
func aside(first, r *gate.PlanRecord) (out []string) {
	hideFirst, hide := without(&first.Plan), without(&r.Plan)
	if hide(r.Plan.Note) != hideFirst(first.Plan.Note) {
		out = append(out, r.Plan.Note)
	}
	shown := map[string]bool{}
	for _, text := range first.Plan.Skip {
		shown[hideFirst(text)] = true
	}
	for _, text := range r.Plan.Skip {
		if !shown[hide(text)] {
			out = append(out, "left out: "+text)
		}
	}
	if n := len(out) - mostAside; n > 0 {
		out = append(out[:mostAside], fmt.Sprintf("and %d more: open it", n))
	}
	return out
}

// mostAside bounds what is told of one plan of a group beside its sentence.
const mostAside = 12

// acts: the whole value of this parameter names what the step acts on.
func acts(j gate.Judgement, param string) bool {
	found := false
	for _, ref := range j.References {
		if ref.Param == param {
			if ref.Use != gate.UseActs || ref.Object.Kind == gate.ObjectUnknown {
				return false
			}
			found = true
		}
	}
	return found
}

// without takes the plan's own objects out of a text: their ids, names and nodes, as whole words.
func without(p *gate.Plan) func(string) string {
	own := map[string]bool{}
	for _, o := range p.Facts.Objects {
		if o.Use == gate.UseActs || o.Object.Kind == gate.ObjectNode {
			own[o.Object.ID], own[o.Name] = true, true
		}
	}
	delete(own, "")
	return func(s string) string {
		word := func(r rune) bool {
			return r == '-' || r == '_' || r == '.' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		}
		var b strings.Builder
		for s != "" {
			n := strings.IndexFunc(s, func(r rune) bool { return !word(r) })
			if n < 0 {
				n = len(s)
			}
			if own[s[:n]] {
				b.WriteString("*")
			} else {
				b.WriteString(s[:n])
			}
			rest := s[n:]
			m := strings.IndexFunc(rest, word)
			if m < 0 {
				m = len(rest)
			}
			b.WriteString(rest[:m])
			s = rest[m:]
		}
		return b.String()
	}
}

func signature(fs []feature) string {
	var b strings.Builder
	for _, f := range fs {
		fmt.Fprintf(&b, "%d:%s%d:%s", len(f.name), f.name, len(f.value), f.value)
	}
	return b.String()
}

// groups puts plans of one operation together and marks those that differ from the most.
func (c *Console) groups(plans []*gate.PlanRecord) []group {
	var order []string
	byKey := map[string][]*gate.PlanRecord{}
	for _, r := range plans {
		key := r.Plan.Operation
		if byKey[key] == nil {
			order = append(order, key)
		}
		byKey[key] = append(byKey[key], r)
	}
	var out []group
	for _, key := range order {
		out = append(out, c.groupOf(key, byKey[key]))
	}
	return out
}

func (c *Console) groupOf(operation string, plans []*gate.PlanRecord) group {
	g := group{Operation: operation}
	all := make([][]feature, len(plans))
	count := map[string]int{}
	for i, r := range plans {
		all[i] = features(r)
		count[signature(all[i])]++
	}
	most, tied := -1, false // the index of one of the most frequent shape
	for i := range all {
		switch n := count[signature(all[i])]; {
		case n < 2:
		case most < 0 || n > count[signature(all[most])]:
			most, tied = i, false
		case n == count[signature(all[most])] && signature(all[i]) != signature(all[most]):
			tied = true
		}
	}
	for i, r := range plans {
		l := c.lineOf(r)
		switch {
		case most < 0 || len(plans) < 2:
		case signature(all[i]) == signature(all[most]):
			g.ids = append(g.ids, l.ID)
		default:
			l.Odd = differences(all[most], all[i])
		}
		g.Plans = append(g.Plans, l)
	}
	if tied { // no side is the odd one
		g.ids = nil
		g.Why = "These are of several shapes, none the most frequent: look at each."
	}
	if g.Equal = len(g.ids); g.Equal > 1 {
		g.Why = bulkBar(plans[most])
		g.Together = g.Why == ""
		g.Query = "plan=" + strings.Join(g.ids, "&plan=")
	}
	slices.SortStableFunc(g.Plans, func(a, b planLine) int { return len(b.Odd) - len(a.Odd) })
	return g
}

// bulkBar says why plans of this shape are never approved together; empty when they may be.
func bulkBar(r *gate.PlanRecord) string {
	p := &r.Plan
	switch {
	case p.Decision.Rung >= gate.RungPasskey:
		return "Each needs a passkey's signature of its own: look at each."
	case len(p.Facts.Governs) > 0 || p.Facts.Self:
		return "They change what castellan itself depends on: look at each."
	}
	return ""
}

// differences names the features in which b is not like a.
func differences(a, b []feature) []string {
	have := map[string]string{}
	for _, f := range a {
		have[f.name] = f.value
	}
	var out []string
	for _, f := range b {
		if v, ok := have[f.name]; !ok {
			out = append(out, f.name+": the others have none")
		} else if v != f.value {
			out = append(out, fmt.Sprintf("%s: %q, where the others have %q", f.name, clipRunes(f.value, 120), clipRunes(v, 120)))
		}
		delete(have, f.name)
	}
	for _, f := range a {
		if _, left := have[f.name]; left {
			out = append(out, f.name+": it has none, the others have")
		}
	}
	if len(out) > 6 {
		out = append(out[:6], fmt.Sprintf("and %d more differences", len(out)-6))
	}
	return out
}

type groupPage struct {
	Proof   string // what an approval needs beside the session
	First   *planPage
	Plans   []planLine
	Done    []groupDone
	Problem string
}

type groupDone struct {
	ID, Sentence, Problem string
	Newer                 bool // newer versions are allowed
}

// together loads the plans of a group page and refuses what is not of one shape.
func (c *Console) together(v *visit, ids []string) ([]*gate.PlanRecord, []*gate.PlanView, error) {
	slices.Sort(ids)
	ids = slices.Compact(ids)
	if len(ids) < 2 || len(ids) > mostWaiting {
		return nil, nil, gate.Fail(gate.ErrInvalid, "Go back to what waits and choose again.", "a group has 2 to %d plans", mostWaiting)
	}
	var plans []*gate.PlanRecord
	var views []*gate.PlanView
	for _, id := range ids {
		view, r, err := c.c.Gate.Show(v.ctx, v.who, id)
		if err != nil {
			return nil, nil, err
		}
		if r.State != gate.PlanProposed || !c.now().Before(r.Plan.Expires) {
			return nil, nil, gate.Fail(gate.ErrStale, "Go back to what waits: the others still do.", "plan %s does not wait any more: %s", id, lowerFirst(stateText(r.State)))
		}
		plans, views = append(plans, r), append(views, view)
	}
	first := signature(features(plans[0]))
	for _, r := range plans[1:] {
		if signature(features(r)) != first || r.Plan.Operation != plans[0].Plan.Operation {
			return nil, nil, gate.Fail(gate.ErrDenied, "Look at each of them.", "plan %s would not have the same effect as the others, so they are not approved together", r.Plan.ID)
		}
	}
	if why := bulkBar(plans[0]); why != "" {
		return nil, nil, gate.Fail(gate.ErrDenied, why, "these plans are not approved together")
	}
	return plans, views, nil
}

func (c *Console) group(v *visit) {
	plans, views, err := c.together(v, v.r.URL.Query()["plan"])
	if err != nil {
		c.failAt(v, err, "/")
		return
	}
	body := groupPage{First: c.planPage(v, views[0], plans[0])}
	if c.exposed {
		body.Proof = c.proof(v)
	}
	for _, r := range plans {
		l := c.lineOf(r)
		l.Aside = aside(plans[0], r)
		body.Plans = append(body.Plans, l)
	}
	c.draw(v, http.StatusOK, "group", sheet{Title: fmt.Sprintf("%d equal plans", len(plans)), At: "/", Script: body.Proof == "passkey", Body: body})
}

// approveGroup approves each plan by its own digest; one that fails does not stop the others.
func (c *Console) approveGroup(v *visit) {
	var ids []string
	digests := map[string]string{}
	for _, pair := range v.r.PostForm["plan"] {
		id, digest, _ := strings.Cut(pair, ":")
		ids, digests[id] = append(ids, id), digest
	}
	if !c.decides(v) {
		c.failAt(v, gate.Fail(gate.ErrDenied, "Ask somebody who has one of these roles.", "only an approver or administrator may approve"), "/")
		return
	}
	plans, _, err := c.together(v, ids)
	if err == nil {
		for _, r := range plans {
			if !same(digests[r.Plan.ID], r.Plan.Digest) {
				err = gate.Fail(gate.ErrStale, "Go back to what waits.", "plan %s is not the one that the page showed", r.Plan.ID)
			}
		}
	}
	if err != nil {
		c.failAt(v, err, "/")
		return
	}
	e, err := c.sure(v)
	if err != nil {
		c.failAt(v, err, "/")
		return
	}
	body := groupPage{}
	for _, r := range plans {
		done := groupDone{ID: r.Plan.ID, Sentence: r.Plan.Sentence}
		if _, err := c.c.Gate.Approve(v.ctx, r.Plan.ID, e); err != nil {
			done.Problem = gate.AsError(err).Message
		}
		done.Newer = done.Problem == "" && e.AllowNewer && r.Plan.MayAllowNewer()
		body.Done = append(body.Done, done)
	}
	c.draw(v, http.StatusOK, "group", sheet{Title: "What was approved", At: "/", Body: body})
}
