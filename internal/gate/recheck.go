package gate

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"
)

// recheck looks at everything again just before a step: expiry, policy for requester and applier, kill switch, rung, and
// the step's own preconditions. nil means go.
func (c *carrier) recheck(ctx context.Context, i int) *Error {
	r, g := c.record(), c.g
	p := &r.Plan
	if !p.intact() {
		return Fail(ErrStale, "Plan anew, and look at audit_verify.", "plan %s is not what its digests say: it was changed in the store", p.ID)
	}
	need := p.Decision.Rung
	v := g.freshView(p.Requester, g.now())
	p = g.factsNow(ctx, v, p, i)
	if e := g.walkNow(ctx, v.since, p, i); e != nil {
		return e
	}
	for _, who := range []Principal{p.Requester, r.Applier} {
		if who.Key() == "|" {
			continue
		}
		rung, e := g.mayCarry(ctx, p, r.Approvals, who)
		if e != nil {
			out := *e
			out.applier = who.Key() != p.Requester.Key()
			return &out
		}
		need = max(need, rung)
	}
	ended := "the approval has expired"
	best, held := g.heldAt(r, func(a Approval) time.Time {
		if a.Evidence.Mandate != "" {
			if why := g.mandateEnded(ctx, a.Evidence.Mandate, p); why != "" {
				ended = why
				return time.Time{}
			}
		}
		if !g.mayStillApprove(ctx, p, a) {
			return time.Time{}
		}
		return c.holdsUntil(a)
	})
	if !held {
		return Fail(ErrStale, "Plan anew and approve again.", "%s", ended)
	}
	if best < need {
		return Fail(ErrStale, "Plan anew.", "it needs %s now, and was approved at %s", need, best)
	}
	s := p.Steps[i]
	if site, err := g.c.Driver.Identify(ctx, s.Target); err != nil || site != s.Site {
		if err == nil {
			err = fmt.Errorf("target %s is now site %q, it was %q", s.Target, site, s.Site)
		}
		return Fail(ErrStale, "Look at the target's addresses.", "the site could not be confirmed: %v", err)
	}
	if e := g.laneNow(ctx, p, s); e != nil {
		return e
	}
	if e := g.notBackedUp(ctx, p, s); e != nil {
		return e
	}
	shared := readings{}
	for _, cond := range r.required(i) {
		ok, got, err := shared.holds(ctx, v, s.Target, cond)
		if err == nil && !ok && cond.isLock() {
			lock := got
			shared = readings{} // much may have changed while it was waited for
			if ok, got, err = c.unlocked(ctx, v, s.Target, cond); err == nil && !ok {
				return g.lockedBy(ctx, v, s.Target, cond, orText(got, lock))
			}
		}
		if err != nil {
			e := AsError(err)
			return Fail(e.Kind, e.Hint, "%s could not be checked: %s", cond.Name, e.Message)
		}
		if !ok {
			return Fail(ErrStale, "Plan anew to see what it would do now.", "no longer so: %s (found: %s)", cond.Name, got)
		}
	}
	return nil
}

// mayCarry says why this principal may not carry the plan out as it is now, or the rung that it takes of it. Whoever may
// make the change may, and a person who approved this very plan, while that approval could still be given: it is not theirs
// to make changes, but to say that this one is made. What the requester may is judged beside in any case.
func (g *Gate) mayCarry(ctx context.Context, p *Plan, approvals []Approval, who Principal) (Rung, *Error) {
	who, err := g.standing(ctx, who)
	if err != nil {
		return 0, AsError(err)
	}
	if !who.Until.IsZero() && g.now().After(who.Until) {
		return 0, Fail(ErrDenied, "Sign in again.", "the access of %s has expired", who.Key())
	}
	if who.Key() != p.Requester.Key() && g.approvedBy(ctx, p, approvals, who) {
		return RungNone, nil
	}
	d, err := g.decide(ctx, p, who)
	if err != nil {
		return 0, AsError(err)
	}
	if d.Verdict == VerdictDeny {
		return 0, Fail(ErrDenied, d.Hint, "policy refuses it now: %s", d.Reason)
	}
	return d.Rung, nil
}

// approvedBy says whether one of the approvals is this signed-in person's own yes to this plan, and still stands.
func (g *Gate) approvedBy(ctx context.Context, p *Plan, approvals []Approval, who Principal) bool {
	if who.Agent != "" || who.Person == "" {
		return false
	}
	return slices.ContainsFunc(approvals, func(a Approval) bool {
		return (a.Evidence.Kind == "session" || a.Evidence.Kind == "passkey") && a.By.Agent == "" && a.By.Person == who.Person &&
			a.Plan == p.ID && a.Digest == p.Digest && g.genuine(a) && g.mayStillApprove(ctx, p, a)
	})
}

// MayApply says why this principal may not carry a plan out that is approved or paused: nil when it may, judged by what was
// seen when the plan was made.
func (g *Gate) MayApply(ctx context.Context, who Principal, r *PlanRecord) error {
	if _, e := g.mayCarry(ctx, &r.Plan, r.Approvals, who); e != nil {
		return e
	}
	return nil
}

// mayTake is MayApply by the facts of now. It is asked before the plan is taken, so that a refusal of who would carry it out
// leaves it as it is for those who may; what stands against the plan itself is told by the check before each step.
func (g *Gate) mayTake(ctx context.Context, who Principal, r *PlanRecord) *Error {
	i := slices.IndexFunc(r.Steps, func(s StepRecord) bool { return s.State == StepPending })
	if who.Key() == r.Plan.Requester.Key() || i < 0 {
		return nil
	}
	p := g.factsNow(ctx, g.freshView(r.Plan.Requester, g.now()), &r.Plan, i)
	rung, e := g.mayCarry(ctx, p, r.Approvals, who)
	if best, held := g.heldAt(r, func(a Approval) time.Time { return (&carrier{g: g, r: r}).holdsUntil(a) }); e == nil && held && best < rung {
		e = Fail(ErrDenied, "", "policy asks for %s of them, and the plan was approved at %s", rung, best)
	}
	if e == nil {
		return nil
	}
	out := *e
	out.Message = fmt.Sprintf("%s may not carry plan %s out now: %s", orText(strings.Trim(who.Key(), "|"), "this caller"), p.ID, e.Message)
	out.Hint = strings.TrimSpace(fmt.Sprintf("The plan stays %s: whoever asked for it (apply_plan), or approved it, carries it out. %s", r.State, e.Hint))
	return &out
}

// mayStillApprove says whether the person of an approval could give it now: an account that was closed, or that lost its
// role, takes its approvals with it.
func (g *Gate) mayStillApprove(ctx context.Context, p *Plan, a Approval) bool {
	if a.Rung < RungPerson && a.By.Strength != StrengthSession && a.By.Strength != StrengthPasskey {
		return true // the requester's own word, whose standing is looked at beside
	}
	by, err := g.standing(ctx, a.By)
	if err != nil || !by.Until.IsZero() && !g.now().Before(by.Until) {
		return false
	}
	d := g.c.Policy.Approve(ctx, PlanQuestion{Principal: p.Requester, Operation: p.Operation, Plan: p, Facts: p.Facts, Steps: p.Steps, At: g.now()}, by, a.Rung)
	return d.Verdict != VerdictDeny
}

// factsNow is the plan with the facts of what step i touches as they are now. What an earlier step of the plan acts on
// keeps what was seen when it was approved: the plan itself changes it.
func (g *Gate) factsNow(ctx context.Context, v *view, p *Plan, i int) *Plan {
	now := *p
	now.Facts.Objects = slices.Clone(p.Facts.Objects)
	own := map[Object]bool{}
	for _, s := range p.Steps[:i] {
		for _, r := range s.Judgement.References {
			if r.Object.Site = s.Site; r.Use == UseActs {
				own[r.Object] = true
			}
		}
	}
	s := p.Steps[i]
	var refs []Reference
	for _, r := range s.Judgement.References {
		if r.Object.Site = s.Site; !own[r.Object] {
			own[r.Object] = true
			refs = append(refs, r)
		}
	}
	if len(refs) == 0 {
		return &now
	}
	described := g.described(ctx, v, s.Target, refs)
	for k, r := range refs {
		for n := range now.Facts.Objects {
			if o := &now.Facts.Objects[n]; o.Object == r.Object {
				o.Known, o.Name, o.Tags, o.Pools = described[k].Known, described[k].Name, described[k].Tags, described[k].Pools
				o.Reserved, o.Ignored = described[k].Reserved, described[k].Ignored
			}
		}
	}
	g.backedUp(ctx, &now, p.Steps[i:i+1])
	if now.Facts.Governs = g.governs(ctx, &now); len(now.Facts.Governs) > 0 {
		now.Facts.Kinds = union(slices.Clone(now.Facts.Kinds), []Kind{KindGoverns})
	}
	return &now
}

// holdsUntil: an approval covers the start of the work, and each later step while the work goes on without a long pause.
func (c *carrier) holdsUntil(a Approval) time.Time {
	until, r := a.Until, c.record()
	for _, s := range r.Steps {
		went := s.State == StepDone || s.State == StepFailed && !s.Started.IsZero() && r.Plan.Course != nil
		if later := s.Ended.Add(a.Until.Sub(a.At)); went && later.After(until) {
			until = later
		}
	}
	return until
}

// resolve makes the request as it will be sent: references filled in, the fresh digest put in.
func (c *carrier) resolve(ctx context.Context, i int) (Request, error) {
	r := c.record()
	s := r.Plan.Steps[i]
	v := c.g.wholeView(r.Plan.Requester)
	args := map[string]any{}
	secrets := map[string][]Value{}
	for _, p := range s.API.Params {
		var texts []any
		for _, val := range p.Values {
			text := val.Text
			switch {
			case val.Secret != nil:
				secrets[p.Name] = p.Values
			case val.Ref != nil && val.Ref.Guest != "":
				node, err := c.g.c.Estate.NodeOf(ctx, v, s.Target, val.Ref.Guest)
				if err != nil {
					return Request{}, err
				}
				text = node
			case val.Ref != nil:
				found, err := resultOf(r, val.Ref)
				if err != nil {
					return Request{}, err
				}
				text = found
			}
			texts = append(texts, text)
		}
		if secrets[p.Name] != nil {
			continue
		}
		if len(texts) == 1 {
			args[p.Name] = texts[0]
		} else {
			args[p.Name] = texts
		}
	}
	if s.API.exact() { // what stood in the plan for it, of a version before this one, counts for nothing
		delete(args, newerParam)
		if c.g.allowsNewer(r) {
			args[newerParam] = true
		}
	}
	if s.FreshDigest != nil {
		a, err := v.Read(ctx, s.Target, *s.FreshDigest)
		if err != nil {
			return Request{}, fmt.Errorf("read the digest: %w", err)
		}
		digest, found, err := Condition{Name: "digest", Pointer: "/digest"}.find(a.Data)
		if err != nil {
			return Request{}, err
		}
		if found {
			args["digest"] = digest
		}
	}
	// A secret's place is kept by a text that passes no check of its own; only the resolved texts are checked here.
	req, problems := c.g.c.Catalog.Check(s.API.Product, s.API.Operation, args)
	problems = slices.DeleteFunc(problems, func(p Problem) bool { return secrets[p.Param] != nil })
	if len(problems) > 0 {
		return Request{}, problemError(s.API.Operation, problems)
	}
	for name, values := range secrets {
		req.Params = slices.DeleteFunc(req.Params, func(p Param) bool { return p.Name == name })
		req.Params = append(req.Params, Param{Name: name, Values: values})
	}
	sort.SliceStable(req.Params, func(a, b int) bool { return req.Params[a].Name < req.Params[b].Name })
	// What a reference turned out to be must not be worse than what was approved.
	j := c.g.c.Catalog.Judge(unsealed(req))
	for _, k := range j.Kinds {
		if !slices.Contains(s.Judgement.Kinds, k) {
			return Request{}, Fail(ErrStale, "Plan anew.", "the request would now count as %s", k)
		}
	}
	if risk := s.Judgement.CommandRisk(); j.CommandRisk().Worse(risk) != risk {
		return Request{}, Fail(ErrStale, "Plan anew.", "what it runs would now be of %s risk", j.CommandRisk())
	}
	if WorseEffect(j.Effect, s.Judgement.Effect) != s.Judgement.Effect {
		return Request{}, Fail(ErrStale, "Plan anew.", "the request would now have effect %s", j.Effect)
	}
	return req, nil
}

// unsealed puts a word in the place of each secret, for judging: the plan was judged by what is sealed, and that is still
// the same.
func unsealed(r Request) Request {
	out := Request{Product: r.Product, Operation: r.Operation}
	for _, p := range r.Params {
		p.Values = slices.Clone(p.Values)
		for i, v := range p.Values {
			if v.Secret != nil {
				p.Values[i] = Value{Text: v.Secret.Before + "sealed" + v.Secret.After}
			}
		}
		out.Params = append(out.Params, p)
	}
	return out
}

// resultOf takes a value out of an earlier step's answer.
func resultOf(r *PlanRecord, ref *Ref) (string, error) {
	if ref.Step < 1 || ref.Step > len(r.Steps) {
		return "", fmt.Errorf("resolve reference: there is no step %d", ref.Step)
	}
	st := r.Steps[ref.Step-1]
	if st.State != StepDone {
		return "", fmt.Errorf("resolve reference: step %d is %s", ref.Step, st.State)
	}
	text, found, err := Condition{Name: "result", Pointer: ref.Pointer}.find(orNull(st.Answer))
	if err != nil {
		return "", err
	}
	if !found {
		return "", fmt.Errorf("resolve reference: the answer of step %d has nothing at %q", ref.Step, ref.Pointer)
	}
	return text, nil
}

func orNull(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("null")
	}
	return raw
}
