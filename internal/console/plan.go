package console

import (
	"cmp"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strings"
	"time"

	"castellan/internal/gate"
)

// planPage is one plan as its approver reads it. All of it but Said comes from the stored, typed plan.
type planPage struct {
	ID, Digest, Sentence string
	Operation            string
	State                gate.PlanState
	StateText, Ended     string
	Live                 bool // still waits for a decision
	Over                 bool // begun or ended: what became of it comes first
	Expires              time.Time
	Left                 string
	Agent, Person, WayIn string
	Rung                 string
	RungText, Asked, Why string
	Policies             []string
	Effect               string
	Worst                string
	Undo                 string
	Undoable             string // yes, partly, no
	Steps                []stepShown
	Newer                string // of a plan that installs packages: whether exactly the versions that it lists
	MayNewer             bool
	Order                []string // in which parts run side by side are carried out
	WorstFirst           bool
	Diff                 []gate.Difference
	Skip                 []string
	Risks                []risk
	Unread               []string
	Touches              []touched
	Reach                reached
	Said                 []speech
	Approvals            []approvalShown
	Need                 int
	Mine                 bool
	Decides              bool
	ByPasskey            bool
	NoPasskey            bool
	Password             bool // an approval needs it once more
	WhyNot               string
	CanRun               bool
	Running              bool
	Receipt              *gate.Receipt
	Problem              string // what came of a press of a button
	Hint                 string
}

type stepShown struct {
	Number   int
	Sentence string
	Target   string
	Request  string
	Script   []template.HTML
	Words    []string
	Effect   gate.Effect
	Classes  []gate.Class
	Rung     gate.Rung
	Grave    bool
	Requires []string
	Sees     []string // what is read back afterwards
	Pending  []string // what is said when it is not in force at once
	Undo     string
	NoUndo   bool
	Wait     string
	State    gate.StepState
	Result   string
	UPID     string
	Warnings string
	Log      []template.HTML
}

type risk struct {
	Text  string
	Grave bool
	Words []string // objects and reasons, shown as values
}

type touched struct {
	Object, Name, Use string
	Tags, Pools       []string
	Known             bool
}

// speech is text of somebody who is not the gate.
type speech struct {
	By    string
	Agent string // whose words, where it has a name
	Lines []template.HTML
}

type approvalShown struct {
	By, Rung, How string
	At, Until     time.Time
	StandIn       bool
	Newer         bool // newer versions are allowed
}

func (c *Console) plan(v *visit) {
	id := v.r.PathValue("id")
	view, r, err := c.c.Gate.Show(v.ctx, v.who, id)
	if err != nil {
		c.fail(v, err)
		return
	}
	if v.r.URL.Query().Get("receipt") == "json" {
		c.receipt(v, id)
		return
	}
	c.drawPlan(v, http.StatusOK, view, r, nil)
}

// receipt hands out the full receipt as a file.
func (c *Console) receipt(v *visit, id string) {
	r, err := c.c.Gate.Receipt(v.ctx, v.who, id)
	if err != nil {
		c.fail(v, err)
		return
	}
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		c.fail(v, err)
		return
	}
	v.w.Header().Set("Content-Type", "application/json")
	v.w.Header().Set("Content-Disposition", `attachment; filename="castellan-receipt.json"`)
	_, _ = v.w.Write(b) // the browser is gone
}

func (c *Console) drawPlan(v *visit, status int, view *gate.PlanView, r *gate.PlanRecord, problem error) {
	p := c.planPage(v, view, r)
	if problem != nil {
		e := gate.AsError(problem)
		p.Problem, p.Hint = e.Message, e.Hint
	}
	s := sheet{Title: "Plan " + p.ID + ": " + lowerFirst(p.StateText), At: "/", Body: p, Script: p.ByPasskey && p.Decides && p.Live}
	if p.Running {
		s.Refresh = 3
	}
	c.draw(v, status, "plan", s)
}

func (c *Console) planPage(v *visit, view *gate.PlanView, r *gate.PlanRecord) *planPage {
	p := &r.Plan
	out := &planPage{ID: p.ID, Digest: p.Digest, Sentence: p.Sentence, Operation: p.Operation, State: r.State, Ended: r.Note, Expires: p.Expires,
		Agent: p.Requester.Agent, Person: p.Requester.Person, WayIn: p.Requester.WayIn, Rung: p.Decision.Rung.String(), RungText: rungText(p.Decision.Rung),
		Why: p.Decision.Reason, Policies: p.Decision.Policies, Effect: string(p.Facts.Effect), Undo: upperFirst(view.Undo), Undoable: p.Facts.Reversible,
		Diff: p.Diff, Skip: p.Skip, Receipt: r.Receipt, Need: 1}
	if p.Decision.Asked > p.Decision.Rung {
		out.Asked = rungText(p.Decision.Asked)
	}
	now := c.now()
	out.Live = r.State == gate.PlanProposed && now.Before(p.Expires)
	out.StateText = stateText(r.State)
	if r.State == gate.PlanProposed && !out.Live {
		out.State, out.StateText = gate.PlanExpired, stateText(gate.PlanExpired)
	}
	if out.Live {
		out.Left = span(p.Expires.Sub(now))
	}
	out.Over = r.State.Ended() || r.State == gate.PlanApplying || r.State == gate.PlanPaused
	c.steps(out, view, r)
	c.risks(out, p)
	for _, o := range p.Facts.Objects {
		out.Touches = append(out.Touches, touched{Object: o.Object.String(), Name: o.Name, Use: string(o.Use), Tags: o.Tags, Pools: o.Pools, Known: o.Known})
	}
	out.Reach = reachOf(p)
	out.Said = speeches(p)
	for _, a := range r.Approvals {
		out.Approvals = append(out.Approvals, approvalShown{By: nameOf(a.By), Rung: a.Rung.String(), How: a.Evidence.Kind, At: a.At, Until: a.Until, StandIn: a.Stands, Newer: a.Evidence.AllowNewer})
		out.Mine = out.Mine || a.By.Person == v.who.Person && a.By.Agent == ""
	}
	c.choices(v, out, p)
	if (r.State == gate.PlanApproved || r.State == gate.PlanPaused) && (c.decides(v) || v.who.Person == p.Requester.Person) {
		err := c.c.Gate.MayApply(v.ctx, v.who, r)
		if out.CanRun = err == nil; !out.CanRun {
			out.WhyNot = "It is carried out by whoever asked for it, or by who approved it. Not by you: " + gate.AsError(err).Message + "."
		}
	}
	out.Running = r.State == gate.PlanApplying
	return out
}

// choices says what this person can do with the plan, and why not where nothing.
func (c *Console) choices(v *visit, out *planPage, p *gate.Plan) {
	rung := p.Decision.Rung
	out.ByPasskey = rung == gate.RungPasskey || rung == gate.RungTwoPasskeys
	if rung == gate.RungTwoPasskeys {
		out.Need = 2
	}
	out.Decides = out.Live && c.decides(v)
	switch {
	case !out.Live:
	case rung >= gate.RungDenied || p.Decision.Verdict == gate.VerdictDeny:
		out.Decides, out.WhyNot = false, "Policy allows this plan to nobody, so it cannot be approved."
	case !c.decides(v):
		out.WhyNot = "Only a person with the role approver or administrator may decide. You may look."
	case out.Mine && out.Need > 1:
		out.Decides, out.WhyNot = false, "You have approved this plan. It needs a second, different person."
	case out.ByPasskey:
		keys, err := c.c.People.Credentials(v.ctx, v.who.Person)
		out.NoPasskey = err == nil && !c.usable(keys)
	case c.exposed && out.Decides:
		out.ByPasskey = c.proof(v) == "passkey"
		out.Password = !out.ByPasskey
	}
}

// steps puts the gravest first; each keeps the number that tells the order of sending.
func (c *Console) steps(out *planPage, view *gate.PlanView, r *gate.PlanRecord) {
	out.Order, out.Newer, out.MayNewer = view.Order, view.Newer, r.Plan.MayAllowNewer()
	for i, s := range r.Plan.Steps {
		shown := stepShown{Number: s.Number, Sentence: s.Sentence, Target: s.Target, Effect: s.Judgement.Effect, Classes: s.Judgement.Classes, Rung: c.rungOf(s.Judgement.Kinds),
			Undo: s.Undo.How, NoUndo: s.Undo.None != "", Wait: waitText(s.Wait)}
		shown.Grave = s.Judgement.Effect != gate.EffectRead && s.Judgement.Effect != gate.EffectChange || shown.Rung >= gate.RungPerson
		if i < len(view.Steps) {
			w := view.Steps[i]
			shown.Sentence, shown.Request, shown.Requires, shown.Undo = w.Sentence, w.Request, w.Requires, strings.TrimPrefix(w.Undo, "no undo: ")
			shown.State, shown.Result, shown.UPID, shown.Warnings = w.State, w.Result, w.UPID, w.Warnings
			if len(w.Log) > 0 {
				shown.Log = said(strings.Join(w.Log, "\n"))
			}
		}
		if s.API != nil && s.API.IsRun() {
			for _, v := range s.API.Get("command") {
				shown.Words = append(shown.Words, v.Text)
			}
			for _, name := range []string{"script", "input", "content"} {
				if text := s.API.Text(name); text != "" {
					shown.Script = append(shown.Script, said(text)...)
				}
			}
		}
		for _, q := range s.Verify {
			if q.Soft && q.Else != "" {
				shown.Pending = append(shown.Pending, q.Else)
			} else if !slices.Contains(shown.Sees, q.Name) {
				shown.Sees = append(shown.Sees, q.Name)
			}
		}
		out.Steps = append(out.Steps, shown)
	}
	if out.Over {
		return
	}
	before := slices.Clone(out.Steps)
	slices.SortStableFunc(out.Steps, func(a, b stepShown) int {
		if a.Rung != b.Rung {
			return cmp.Compare(b.Rung, a.Rung)
		}
		if a.Effect != b.Effect && gate.WorseEffect(a.Effect, b.Effect) == a.Effect {
			return -1
		} else if a.Effect != b.Effect {
			return 1
		}
		return 0
	})
	for i := range before {
		out.WorstFirst = out.WorstFirst || before[i].Number != out.Steps[i].Number
	}
}

func (c *Console) rungOf(kinds []gate.Kind) gate.Rung {
	unknown := c.rows[gate.KindUnknown].Rung
	if len(kinds) == 0 {
		return unknown
	}
	out := gate.RungNone
	for _, k := range kinds {
		if row, ok := c.rows[k]; ok {
			out = max(out, row.Rung)
		} else {
			out = max(out, unknown)
		}
	}
	return out
}

// graveClass: one of the plan's kinds puts a grave row of the table into this class.
func (c *Console) graveClass(k gate.Class, kinds []gate.Kind) bool {
	known := false
	for _, kind := range kinds {
		row, ok := c.rows[kind]
		if ok && row.Class == k {
			known = true
			if row.Rung >= gate.RungPerson || row.Effect != gate.EffectRead && row.Effect != gate.EffectChange {
				return true
			}
		}
	}
	return !known
}

// risks gives each reason that facts hold, the gravest first.
func (c *Console) risks(out *planPage, p *gate.Plan) {
	f := p.Facts
	add := func(grave bool, text string, words ...string) {
		out.Risks = append(out.Risks, risk{text, grave, words})
	}
	grave := f.Effect != gate.EffectRead && f.Effect != gate.EffectChange
	out.Worst = effectText(f.Effect)
	if f.Effect == gate.EffectChange && f.Reversible != "yes" && f.Reversible != "partly" {
		out.Worst = "It changes something that undo does not bring back." // never beside "cannot be undone" that it can be
	}
	add(grave, out.Worst)
	if len(f.Governs) > 0 {
		add(true, "It changes something that policy, approval or castellan itself depends on:", f.Governs...)
	} else if f.Self {
		add(true, "It touches castellan's own guest, user or address.")
	}
	for _, k := range f.Classes {
		add(c.graveClass(k, f.Kinds), classText(k))
	}
	if f.Tainted {
		add(true, "Before it asked, the agent had read text that outsiders can write. That text may have told it to ask for this.")
	}
	for _, h := range f.Reach.Hits {
		if h.Weight != gate.WeightNote {
			add(h.Weight != gate.WeightCaution, "It hits more than it names; the gravest: "+h.Text)
			break // they stand in their order below
		}
	}
	var unknown []string
	for _, o := range f.Objects {
		if !o.Known {
			unknown = append(unknown, o.Object.String())
		}
	}
	if len(unknown) > 0 {
		add(true, "Not found or not readable, so policy took the worst case for:", unknown...)
		out.Unread = append(out.Unread, unknown...)
	}
	if len(f.Unidentified) > 0 {
		add(true, "Nothing tells these from a later object of the same name:", f.Unidentified...)
	}
	switch f.Reversible {
	case "yes":
	case "partly":
		add(false, "It can be taken back only in part.")
	default:
		add(true, "It cannot be taken back.")
	}
	var kinds []string
	for _, k := range f.Kinds {
		kinds = append(kinds, string(k))
	}
	if len(kinds) > 0 {
		add(false, "Kinds of effect that policy looked at:", kinds...)
	}
	slices.SortStableFunc(out.Risks, func(a, b risk) int {
		switch {
		case a.Grave == b.Grave:
			return 0
		case a.Grave:
			return -1
		}
		return 1
	})
}

// speeches are the words of others: never above what decides.
func speeches(p *gate.Plan) []speech {
	var out []speech
	who := p.Requester.Agent
	by := "the agent"
	if who == "" {
		who, by = p.Requester.Person, "the person who asks"
	}
	if strings.TrimSpace(p.Reason) != "" {
		out = append(out, speech{By: "The reason that " + by + " gave", Agent: who, Lines: said(p.Reason)})
	}
	if strings.TrimSpace(p.Requester.Client) != "" {
		out = append(out, speech{By: "What the client program calls itself", Lines: said(clipRunes(p.Requester.Client, 200))})
	}
	if strings.TrimSpace(p.Note) != "" {
		out = append(out, speech{By: "The planner's note; it may quote texts of Proxmox and of guests", Lines: said(p.Note)})
	}
	var notes []string
	for _, s := range p.Steps {
		if s.Note != "" {
			notes = append(notes, fmt.Sprintf("step %d: %s", s.Number, strings.ReplaceAll(s.Note, "\n", " ")))
		}
	}
	if len(notes) > 0 {
		out = append(out, speech{By: "The planner's notes on steps; they may quote texts of Proxmox and of guests", Lines: said(strings.Join(notes, "\n"))})
	}
	return out
}
