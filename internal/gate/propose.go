package gate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
)

// propose freezes a draft, decides, records the intent, and either applies at once or leaves the plan waiting. off is why the
// call is refused whatever the plan is; nil where it is not.
func (g *Gate) propose(ctx context.Context, v *view, op *Operation, c Call, d *Draft, off *Decision, began time.Time, progress Progress) (*Outcome, error) {
	if countSteps(d) == 0 {
		note := "There is nothing to do: everything is already as asked."
		if len(d.Skip) > 0 {
			note = "There is nothing to do. Left out: " + strings.Join(d.Skip, "; ")
		}
		if d.Note != "" {
			note = stopped(note) + " " + clip(d.Note, 400)
		}
		g.c.Store.Observe(g.record(c, op, began, "read", "nothing_to_do", map[string]string{"args": string(c.Args)}, 0))
		out := &Outcome{Status: StatusNothing, Next: note, Untrusted: v.sawFreeText() && !op.Bounded}
		if out.Untrusted {
			out.Outside = v.outside()
			if err := g.taint(ctx, c.Principal); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	d, err := g.withUndoPoints(ctx, v, op, d)
	if err != nil {
		e := g.readError(err)
		g.refused(ctx, c, op, began, string(e.Kind), e)
		return nil, e
	}
	p, boxes, err := g.freeze(ctx, op, c, d)
	if err != nil {
		e := g.readError(err)
		g.refused(ctx, c, op, began, string(e.Kind), e)
		return nil, e
	}
	decision, err := g.decide(ctx, p, c.Principal)
	if err != nil {
		e := AsError(err)
		g.refused(ctx, c, op, began, string(e.Kind), e)
		return nil, e
	}
	if off != nil {
		decision = *off
	}
	p.Decision = decision
	if decision.Rung >= RungPerson {
		p.Expires = p.Created.Add(orElse(g.c.Policy.Limits().WaitTTL, 12*time.Hour))
	}
	if decision.Verdict == VerdictDeny {
		e := denied(op.Name, decision)
		if g.maySee(c.Principal, p) {
			e.Message += ". The plan would have been: " + p.Sentence
		} else {
			e.Message += ". What the plan would have hit is not told: not all of it is known to be within this caller's scope"
		}
		if c.PlanOnly && g.mayKnow(ctx, c) {
			seen := &struct {
				Hits   []HitView
				Unread []string
			}{}
			seen.Hits, seen.Unread = hitViews(p.Facts.Reach)
			seen = washed(seen)
			e.Hits, e.Unread = seen.Hits, seen.Unread
		}
		for _, o := range p.Facts.Objects {
			for _, t := range o.Ignored {
				because(e, []string{fmt.Sprintf("Tag %s of %s does not count as scope: Proxmox lets others set it, perhaps in other letters, or the rules for tags cannot be read; doctor gives the command that reserves it.", clip(t, 60), o.Object)})
			}
		}
		g.refused(ctx, c, op, began, "denied", e)
		return nil, e
	}
	if v.sawFreeText() && !op.Bounded && p.quotes() {
		p.Outside = v.outside()
		if err := g.taint(ctx, c.Principal); err != nil {
			g.refused(ctx, c, op, began, string(err.Kind), err)
			return nil, err
		}
	}
	if p.Digest, err = planDigest(p); err != nil {
		return nil, err
	}
	r, token, err := g.keep(ctx, p, boxes, c, op, began)
	if err != nil {
		return nil, err
	}
	now := decision.Verdict == VerdictAllow && !c.PlanOnly
	if decision.Verdict == VerdictNeeds && !c.PlanOnly {
		if now, err = g.useMandate(ctx, r); err != nil {
			return nil, err
		}
	} else if now {
		if err := g.approve(ctx, r.Plan.ID, c.Principal, RungNone, Evidence{Kind: "none"}, nil); err != nil {
			return nil, err
		}
	}
	if now {
		return g.carryOut(ctx, r.Plan.ID, c.Principal, began, progress)
	}
	out := &Outcome{Status: StatusWaiting, Plan: g.show(r, token), Next: g.next(r), Untrusted: len(p.Outside) > 0, Outside: p.Outside}
	if decision.Verdict == VerdictAllow {
		out.Status = StatusPlanned
	}
	return out, nil
}

// quotes says whether a plan shows what it read: in its differences and notes, or in what its steps rely on. What tells an
// object from another, and single words, are no text.
func (p *Plan) quotes() bool {
	const word = 80
	text := func(s string) bool { return len(s) > word || strings.ContainsFunc(s, unicode.IsSpace) }
	if len(p.Diff) > 0 || p.Note != "" || len(p.Skip) > 0 {
		return true
	}
	return slices.ContainsFunc(p.Steps, func(s Step) bool {
		return slices.ContainsFunc(s.Require, func(c Condition) bool { return !c.Identity && text(plainText(c.Value)) })
	})
}

func countSteps(d *Draft) int {
	n := len(d.Steps)
	for _, c := range d.Children {
		n += countSteps(c)
	}
	return n
}

// decide asks policy about a plan; what the store cannot tell denies.
func (g *Gate) decide(ctx context.Context, p *Plan, who Principal) (Decision, error) {
	writes := map[string]int{}
	err := g.c.Store.View(ctx, func(tx Tx) error {
		err := g.switched(tx)
		if err != nil {
			return err
		}
		for _, s := range p.Steps {
			if _, seen := writes[s.Target]; seen {
				continue
			}
			if writes[s.Target], err = tx.Count("write/"+s.Target, g.now().Add(-time.Hour)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		var e *Error
		if errors.As(err, &e) {
			return Decision{}, e
		}
		return Decision{}, &Error{Kind: ErrUnavailable, Message: "the store cannot be read, so nothing can be decided: " + err.Error(), Changed: "nothing",
			Hint: "See castellan config check; reads go on.", Cause: err}
	}
	if h := p.Facts.Reach.refusal(); h != nil {
		return Decision{Verdict: VerdictDeny, Rung: RungDenied, Set: g.c.Policy.Digest(), Reason: h.Text, Hint: "A person does this in Proxmox itself, with castellan stopped."}, nil
	}
	return g.c.Policy.Plan(ctx, PlanQuestion{Principal: who, Operation: p.Operation, Plan: p, Facts: p.Facts, Steps: p.Steps, At: g.now(), Writes: writes}), nil
}

// maxWaiting bounds how many plans of one caller wait at a time.
const maxWaiting = 200

// keep stores the plan with its intent record, or finds the open one that is the same. A new one-use token is made for
// the rungs that need one; an older one of the same plan is void.
func (g *Gate) keep(ctx context.Context, p *Plan, boxes sealedSecrets, c Call, op *Operation, began time.Time) (*PlanRecord, string, error) {
	token, hash := "", ""
	if p.Decision.Rung == RungRestated || p.Decision.Rung == RungPhrase {
		token, hash = g.c.Sealer.Token()
	}
	var kept *PlanRecord
	err := g.c.Store.Update(ctx, func(tx Tx) error {
		open, err := tx.OpenPlan(p.EffectDigest, p.Requester.Key())
		if err != nil && !errors.Is(err, ErrStoreNotFound) {
			return err
		}
		if err == nil && open.State == PlanProposed && g.now().Before(open.Plan.Expires) && open.Plan.Decision.Set == p.Decision.Set &&
			open.Plan.Decision.Rung == p.Decision.Rung {
			open.TokenHash = hash
			kept = open
			return tx.UpdatePlan(open)
		}
		waiting, _, err := tx.ListPlans(PlanFilter{States: []PlanState{PlanProposed}, Requester: p.Requester.Key(),
			Since: g.now().Add(p.Created.Sub(p.Expires)), Limit: maxWaiting})
		if err != nil {
			return err
		}
		if len(waiting) >= maxWaiting {
			return Fail(ErrUnavailable, "Carry out or withdraw some (list_plans), or wait until they expire.", "%d plans of this caller wait already", len(waiting))
		}
		r := &PlanRecord{Plan: *p, State: PlanProposed, Steps: make([]StepRecord, len(p.Steps)), TokenHash: hash}
		for i := range r.Steps {
			r.Steps[i].State = StepPending
		}
		status := "waiting"
		if p.Decision.Verdict == VerdictAllow {
			status = "planned"
		}
		rec := g.planRecord(p, "intent", status)
		rec.Client, rec.Duration = clip(c.Principal.Client, 80), g.now().Sub(began)
		rec.Marks = c.Principal.marks()
		rec.Parts = map[string]string{"args": string(p.Args), "plan": g.planText(p)}
		if p.runs() {
			rec.Parts["args"] = g.c.Sealer.Redact(rec.Parts["args"])
		}
		if p.Reason != "" {
			rec.Parts["reason"] = g.c.Sealer.Redact(p.Reason)
		}
		if r.Intent, err = tx.Append(rec); err != nil {
			return err
		}
		for handle, box := range boxes {
			if err := tx.PutSealed(p.ID, handle, box); err != nil {
				return err
			}
		}
		kept = r
		return tx.InsertPlan(r)
	})
	if err != nil {
		return nil, "", ledgerDown(err)
	}
	g.c.Trace(PointKept)
	g.c.Log.Info("plan recorded", "plan", kept.Plan.ID, "operation", op.Name)
	return kept, token, nil
}

// ledgerDown says that nothing was sent since it could not be recorded.
func ledgerDown(err error) error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Kind: ErrUnavailable, Message: "it cannot be recorded, so nothing was sent: " + clip(err.Error(), 300), Changed: "nothing",
		Hint: "The ledger or store is not writable: look at its disk and permissions; castellan audit verify shows its state.", Cause: err}
}

// planRecord is a ledger record about a plan.
func (g *Gate) planRecord(p *Plan, kind, status string) Record {
	r := Record{At: g.now(), Kind: kind, Operation: p.Operation, Actor: p.Requester.Key(), Client: clip(p.Requester.Client, 80), WayIn: p.Requester.WayIn,
		Status: status, Effect: p.Facts.Effect, Plan: p.ID, Digest: p.Digest, Parts: map[string]string{}, Sizes: map[string]int{}}
	r.Withhold = p.runs() && g.c.Policy.Limits().WithholdRuns
	for _, s := range p.Steps {
		if r.Target == "" {
			r.Target = s.Target
		}
	}
	for _, o := range p.Facts.Objects {
		if len(r.Objects) < 50 {
			r.Objects = append(r.Objects, clip(o.Object.String(), 80))
		}
	}
	return r
}

// planText is the frozen plan as canonical JSON, as the digests cover it: it holds no secret values.
func (g *Gate) planText(p *Plan) string {
	b, err := Canonical(p)
	if err != nil {
		return "the plan has no canonical form: " + err.Error()
	}
	if !p.runs() {
		return string(b)
	}
	// What a caller wants run may hold a secret in any place.
	var v any
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(&v); err == nil {
		b, err = Canonical(redacted(v, g.c.Sealer.Redact))
	}
	if err != nil {
		return "the plan has no canonical form: " + err.Error()
	}
	return string(b)
}

// redacted is a JSON value with f applied to each of its texts. Names of fields stay.
func redacted(v any, f func(string) string) any {
	switch x := v.(type) {
	case string:
		return f(x)
	case []any:
		for i := range x {
			x[i] = redacted(x[i], f)
		}
	case map[string]any:
		for k := range x {
			x[k] = redacted(x[k], f)
		}
	}
	return v
}

// runs says whether a step of the plan runs something that its caller chose.
func (p *Plan) runs() bool {
	for _, s := range p.Steps {
		if s.API != nil && s.API.IsRun() || slices.Contains(s.Judgement.Classes, ClassExec) {
			return true
		}
	}
	return false
}

// next says what the caller should do with a waiting plan.
func (g *Gate) next(r *PlanRecord) string {
	id := r.Plan.ID
	switch r.Plan.Decision.Rung {
	case RungNone:
		return fmt.Sprintf("Nothing has changed. apply_plan with plan=%s carries it out.", id)
	case RungRestated:
		return fmt.Sprintf("Nothing has changed. If this is what the user wants: apply_plan with plan=%s, its sentence word for word, and its token.", id)
	case RungPhrase:
		return fmt.Sprintf("Nothing has changed. Ask the user. If they agree: apply_plan with plan=%s, its sentence word for word, its token, and phrase=%q.", id, r.Plan.Phrase)
	case RungDialog:
		return fmt.Sprintf("Nothing has changed. A person must agree in a dialog: apply_plan with plan=%s asks where the client can show one; otherwise they run: castellan apply %s", id, id)
	}
	return fmt.Sprintf("Nothing has changed. A person must approve plan %s (%s)%s. You cannot approve it: give them that, then apply_plan with plan=%s carries it out, or they run it themselves.",
		id, r.Plan.Decision.Rung, g.where(id), id)
}

// where says how a person reaches the approval.
func (g *Gate) where(id string) string {
	if url := g.link(id); url != "" {
		return ": " + url
	}
	return ": castellan approve " + id
}

func (g *Gate) link(id string) string {
	if g.c.Link == nil {
		return ""
	}
	return g.c.Link(id)
}

// maySee says whether a plan's sentence tells a caller of nothing beyond its scope: all that the plan touches, hits and comes by
// is in it. A thing that is no guest and is hit may bear the name or the traces of others' guests.
func (g *Gate) maySee(who Principal, p *Plan) bool {
	if !g.c.Policy.Scoped(who) {
		return true
	}
	targets := map[string]string{} // site → target
	for _, s := range p.Steps {
		targets[s.Site] = s.Target
	}
	seen := map[Object]bool{}
	for _, o := range p.Facts.Objects {
		if !g.c.Policy.Sees(who, targets[o.Object.Site], o) {
			return false
		}
		seen[o.Object] = true
	}
	for _, h := range p.Facts.Reach.Hits {
		if !seen[h.Object] {
			return false
		}
		for _, w := range h.Way {
			if w.Site = h.Object.Site; w.Kind == ObjectGuest && !seen[w] {
				return false
			}
		}
	}
	return true
}
