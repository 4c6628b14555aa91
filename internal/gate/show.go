package gate

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// show renders a plan for callers. The token is known only in the answer that made it.
func (g *Gate) show(r *PlanRecord, token string) *PlanView {
	p := &r.Plan
	v := &PlanView{ID: p.ID, Digest: p.Digest, State: r.State, Sentence: p.Sentence, Diff: p.Diff, Skip: p.Skip, Effect: p.Facts.Effect, Classes: p.Facts.Classes,
		Touches: p.Facts.Objects, Rung: p.Decision.Rung, Why: p.Decision.Reason, Token: token, Expires: p.Expires, Note: p.Note, Reason: p.Reason,
		Ended: r.Note, Requester: p.Requester.Key()}
	if r.State == PlanProposed && p.Decision.Rung >= RungDialog {
		v.URL = g.link(p.ID)
	}
	if p.Decision.Asked != p.Decision.Rung {
		v.Asked = p.Decision.Asked
	}
	switch p.Facts.Reversible {
	case "yes":
		v.Undo = "can be undone"
	case "partly":
		v.Undo = "can be undone in part: " + p.Facts.UndoNote
	default:
		v.Undo = "cannot be undone: " + p.Facts.UndoNote
	}
	v.Order, v.Newer = p.order(), g.newer(r)
	v.Undoes, v.UndoPoint, v.Outside = p.Undoes, p.Facts.UndoPoints, p.Outside
	if p.Decision.Rung == RungPhrase {
		v.Phrase = p.Phrase
	}
	v.Hits, v.Unread = hitViews(p.Facts.Reach)
	for _, a := range r.Approvals {
		text := fmt.Sprintf("%s by %s (%s)", a.Rung, a.By.Key(), a.Evidence.Kind)
		if a.Evidence.AllowNewer {
			text += ", newer versions allowed"
		}
		v.Approvals = append(v.Approvals, text)
	}
	ran := map[int]*RunResult{}
	all, authors := outputs(r)
	for i := range all {
		ran[all[i].Step] = &all[i].RunResult
	}
	v.Outside = union(slices.Clone(v.Outside), authors)
	for i, s := range p.Steps {
		sv := StepView{Number: s.Number, Sentence: s.Sentence, Request: g.requestText(s), Undo: undoText(s.Undo), Note: s.Note}
		if p.Course != nil {
			sv.Part = s.Part
		}
		for _, c := range s.Judgement.Commands {
			text := fmt.Sprintf("%s risk", c.Risk)
			if len(c.Reasons) > 0 {
				text += " (" + clip(strings.Join(c.Reasons, "; "), 300) + ")"
			}
			sv.Runs = append(sv.Runs, text+": "+clip(c.Text, 300))
		}
		if s.When.StepFailed > 0 {
			sv.Sentence = fmt.Sprintf("If step %d fails: %s", s.When.StepFailed, sv.Sentence)
		}
		if s.When.CheckFailed > 0 {
			sv.Sentence = fmt.Sprintf("If the check of step %d fails: %s", s.When.CheckFailed, sv.Sentence)
		}
		for _, c := range s.Require {
			if !slices.Contains(sv.Requires, c.Name) { // two reads may be needed to tell one thing
				sv.Requires = append(sv.Requires, c.Name)
			}
		}
		if s.BackedUpWithin > 0 {
			sv.Requires = append(sv.Requires, "its newest backup is at most "+spanText(s.BackedUpWithin)+" old")
		}
		if i < len(r.Steps) && r.Steps[i].State != StepPending {
			st := r.Steps[i]
			sv.State, sv.Result, sv.UPID, sv.Warnings, sv.Log = st.State, st.Result, st.UPID, st.Warnings, st.Log
			sv.Output, sv.Saved = ran[s.Number], st.Saved
		}
		v.Steps = append(v.Steps, sv)
	}
	return washed(v)
}

// maxHitViews bounds how many hits are shown one by one; the console and the plan's record have all.
const maxHitViews = 40

// HitsMore is the class of the last hit shown where there are more of them: it counts the others.
const HitsMore = "more"

// Weights counts hits by weight, the gravest first: "2 of danger, 5 of caution".
func Weights(n map[Weight]int) string {
	var parts []string
	for _, w := range []Weight{WeightDanger, WeightCaution, WeightNote} {
		if n[w] > 0 {
			parts = append(parts, fmt.Sprintf("%d of %s", n[w], w))
		}
	}
	return strings.Join(parts, ", ")
}

func hitViews(r Reach) (hits []HitView, unread []string) {
	for _, h := range r.Hits[:min(maxHitViews, len(r.Hits))] {
		hits = append(hits, HitView{Weight: h.Weight, Class: h.Class, Object: h.Object.String(), Text: h.Text, Unknown: h.Unknown, Blocks: h.Blocks})
	}
	if n := len(r.Hits) - maxHitViews; n > 0 {
		left := map[Weight]int{}
		for _, h := range r.Hits[maxHitViews:] {
			left[h.Weight]++
		}
		hits = append(hits, HitView{Weight: r.Hits[maxHitViews].Weight, Class: HitsMore, Text: fmt.Sprintf("and %d more, none graver than these: %s", n, Weights(left))})
	}
	unread = append(unread, r.Unread[:min(20, len(r.Unread))]...)
	if n := len(r.Unread) - 20; n > 0 {
		unread = append(unread, fmt.Sprintf("and %d more", n))
	}
	for _, op := range r.Unwalked {
		unread = append(unread, "what depends on what "+op+" changes: no walk is known for it")
	}
	return hits, unread
}

// HoldsFreeText says whether text of outsiders is among what is shown.
func (v *PlanView) HoldsFreeText() bool { return len(v.Outsiders()) > 0 }

// Outsiders says who may have written it.
func (v *PlanView) Outsiders() []string {
	if slices.ContainsFunc(v.Steps, func(s StepView) bool { return s.State != StepSkipped && saidOutside(s.Log, s.Warnings, s.Result) }) {
		return union(slices.Clone(v.Outside), []string{taskPrograms})
	}
	return v.Outside
}

// taskPrograms write the logs, warnings and exit statuses of tasks.
const taskPrograms = "programs that the task ran"

// saidOutside says whether a step's end is told in words of others: lines of a log, warnings, the exit of a task, a value
// that was found.
func saidOutside(log []string, warnings, result string) bool {
	return len(log) > 0 || warnings != "" || result != "" && result != "ok"
}

func undoText(u Undo) string {
	if u.None != "" {
		return "no undo: " + u.None
	}
	text := u.How
	switch {
	case text != "":
	case u.Call != nil:
		text = "by " + u.Call.Operation
	default:
		text = "what it changes is set back"
	}
	if len(u.Lost) > 0 {
		text += ", except: " + strings.Join(u.Lost, "; ")
	}
	return text
}

// requestText is the request as it will be sent, secrets and references named as such.
func (g *Gate) requestText(s Step) string {
	if s.API == nil {
		return ""
	}
	hidden := func(v Value) (string, error) {
		switch {
		case v.Secret != nil:
			return v.Secret.Before + "(secret)" + v.Secret.After, nil
		case v.Ref != nil && v.Ref.Guest != "":
			return v.Ref.Plan, nil
		case v.Ref != nil:
			return fmt.Sprintf("(result of step %d)", v.Ref.Step), nil
		}
		return v.Text, nil
	}
	b, err := g.c.Catalog.Render(*s.API, hidden)
	if err != nil {
		return s.API.Operation + " (" + err.Error() + ")"
	}
	text := b.Method + " " + b.Path
	if b.Query != "" {
		text += "?" + b.Query
	}
	if b.Body != "" {
		text += " " + b.Body
	}
	for _, p := range s.API.Params {
		for _, v := range p.Values {
			if v.Ref != nil && v.Ref.Guest != "" {
				text += fmt.Sprintf(" [%s follows guest %s]", p.Name, v.Ref.Guest)
			}
		}
	}
	return strings.TrimSpace(text)
}

// receipt sums up an ended plan.
func receipt(r *PlanRecord) *Receipt {
	out := &Receipt{Plan: r.Plan.ID, EffectDigest: r.Plan.EffectDigest, Digest: r.Plan.Digest, State: r.State, Rung: r.Plan.Decision.Rung}
	for _, a := range r.Approvals {
		out.ApprovedBy = append(out.ApprovedBy, a.By.Key()+" ("+a.Evidence.Kind+")")
	}
	hits, _ := hitViews(r.Plan.Facts.Reach)
	for _, h := range hits {
		out.Hits = append(out.Hits, string(h.Weight)+": "+h.Text)
	}
	for i, s := range r.Plan.Steps {
		st := r.Steps[i]
		out.Steps = append(out.Steps, StepOutcome{Number: s.Number, Sentence: s.Sentence, State: st.State, Result: st.Result, UPID: st.UPID, Warnings: st.Warnings, Log: st.Log})
		if st.State == StepDone {
			out.Undo = append(out.Undo, undoText(s.Undo))
			if s.Undo.Possible() {
				out.UndoWith = "undo with plan=" + r.Plan.ID
			}
		}
	}
	out.UndoPoints = r.Plan.Facts.UndoPoints
	return washed(out)
}

// Show returns a plan that this principal may see, as it is shown and as it is stored.
func (g *Gate) Show(ctx context.Context, who Principal, id string) (*PlanView, *PlanRecord, error) {
	r, err := g.load(ctx, who, id)
	if err != nil {
		return nil, nil, err
	}
	return g.show(r, ""), r, nil
}

// Receipt is the full receipt of an ended plan: with its approvals and the signed records that they, the plan and its end
// stand in. It verifies with the ledger's public key and nothing else, also when retention has dropped the records' parts.
func (g *Gate) Receipt(ctx context.Context, who Principal, id string) (*Receipt, error) {
	r, err := g.load(ctx, who, id)
	if err != nil {
		return nil, err
	}
	if r.Receipt == nil {
		return nil, Fail(ErrNotFound, "show_plan tells where it stands.", "plan %s is %s and has no receipt", id, r.State)
	}
	out := *r.Receipt
	out.Approvals = r.Approvals
	indexes := []uint64{r.Intent}
	for _, a := range r.Approvals {
		if a.Evidence.Passkey != nil {
			indexes = append(indexes, a.Evidence.Passkey.Proof.Enrolled)
		}
		indexes = append(indexes, a.Record)
	}
	for _, index := range append(indexes, r.End) {
		pos, err := g.c.Store.Position(ctx, index)
		if err != nil {
			return nil, &Error{Kind: ErrUnavailable, Message: fmt.Sprintf("record %d of the receipt cannot be proven: %v", index, err), Changed: "nothing", Hint: "audit_verify tells whether the ledger is whole.", Cause: err}
		}
		out.Records = append(out.Records, pos)
	}
	out.Ledger = out.Records[len(out.Records)-1]
	return &out, nil
}
