package gate

import (
	"context"
	"encoding/json"
	"errors"
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
	p = g.factsNow(ctx, p, i)
	for _, who := range []Principal{p.Requester, r.Applier} {
		if who.Key() == "|" {
			continue
		}
		if !who.Until.IsZero() && g.now().After(who.Until) {
			return Fail(ErrDenied, "Sign in again.", "the access of %s has expired", who.Key())
		}
		d, err := g.decide(ctx, p, who)
		if err != nil {
			return AsError(err)
		}
		if d.Verdict == VerdictDeny {
			return Fail(ErrDenied, d.Hint, "policy refuses it now: %s", d.Reason)
		}
		need = max(need, d.Rung)
	}
	best, held := RungNone, false
	for _, a := range r.Approvals {
		if a.Digest == p.Digest && g.now().Before(c.holdsUntil(a)) {
			best, held = max(best, a.Rung), true
		}
	}
	if !held {
		return Fail(ErrStale, "Plan anew and approve again.", "the approval has expired")
	}
	if best < need {
		return Fail(ErrStale, "Plan anew.", "it needs %s now, and was approved at %s", need, best)
	}
	s := p.Steps[i]
	v := g.wholeView(p.Requester)
	if site, err := g.c.Driver.Identify(ctx, s.Target); err != nil || site != s.Site {
		if err == nil {
			err = fmt.Errorf("target %s is now site %q, it was %q", s.Target, site, s.Site)
		}
		return Fail(ErrStale, "Look at the target's addresses.", "the site could not be confirmed: %v", err)
	}
	for _, cond := range s.Require {
		ok, got, err := v.holds(ctx, s.Target, cond)
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

// factsNow is the plan with the facts of what step i touches as they are now. What an earlier step of the plan acts on
// keeps what was seen when it was approved: the plan itself changes it.
func (g *Gate) factsNow(ctx context.Context, p *Plan, i int) *Plan {
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
	described, err := g.c.Estate.Describe(ctx, g.wholeView(p.Requester), s.Target, refs)
	if err != nil || len(described) != len(refs) {
		described = make([]ObjectFacts, len(refs)) // nothing is known: policy takes the worst
	}
	for k, r := range refs {
		for n := range now.Facts.Objects {
			if o := &now.Facts.Objects[n]; o.Object == r.Object {
				o.Known, o.Name, o.Tags, o.Pools = described[k].Known, described[k].Name, described[k].Tags, described[k].Pools
			}
		}
	}
	if now.Facts.Governs = g.governs(&now); len(now.Facts.Governs) > 0 {
		now.Facts.Kinds = union(slices.Clone(now.Facts.Kinds), []Kind{KindGoverns})
	}
	return &now
}

// holdsUntil: an approval covers the start of the work, and each later step while the work goes on without a long pause.
func (c *carrier) holdsUntil(a Approval) time.Time {
	until := a.Until
	for _, s := range c.record().Steps {
		if later := s.Ended.Add(a.Until.Sub(a.At)); s.State == StepDone && later.After(until) {
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
	j := c.g.c.Catalog.Judge(req)
	for _, k := range j.Kinds {
		if !slices.Contains(s.Judgement.Kinds, k) {
			return Request{}, Fail(ErrStale, "Plan anew.", "the request would now count as %s", k)
		}
	}
	if WorseEffect(j.Effect, s.Judgement.Effect) != s.Judgement.Effect {
		return Request{}, Fail(ErrStale, "Plan anew.", "the request would now have effect %s", j.Effect)
	}
	return req, nil
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

// look finds out what became of a request that was sent but not answered. It only reads.
func (c *carrier) look(ctx context.Context, i int, why string) error {
	g := c.g
	s := c.record().Plan.Steps[i]
	v := g.wholeView(c.record().Plan.Requester)
	lookCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 90*time.Second)
	defer cancel()
	var seen string
	// A server that was slow to answer may start the task later: look a few times.
	for try := range 4 {
		if try > 0 {
			if err := pause(ctx, time.Duration(try)*2*g.c.PollFirst*4); err != nil {
				return err
			}
		}
		if s.Wait.Kind == WaitTask {
			upid, err := c.findTask(lookCtx, i)
			if err == nil && upid != "" {
				rec := c.stepRecord(i, "step_sent", "found")
				rec.UPID = upid
				rec.Parts["result"] = "its task was found after: " + clip(why, 300)
				return c.save(func(r *PlanRecord) { r.Steps[i].State, r.Steps[i].UPID = StepWaiting, upid }, rec)
			}
			if err != nil {
				seen = "its task could not be looked for: " + err.Error()
				continue
			}
			seen = "no task of it is to be seen"
		}
		if len(s.Verify) > 0 {
			ok, got := true, ""
			for _, cond := range s.Verify {
				if cond.Soft {
					continue
				}
				holds, found, err := v.holds(lookCtx, s.Target, cond)
				if err != nil {
					ok, got = false, "it could not be read back: "+err.Error()
					break
				}
				if !holds {
					ok, got = false, cond.Name+" is not so (found: "+found+")"
					break
				}
			}
			if ok && changedSomething(s) {
				return c.end(i, StepDone, "seen done by reading back, after: "+clip(why, 200))
			}
			if !ok {
				seen = strings.TrimPrefix(seen+"; "+got, "; ")
			}
		}
	}
	return c.end(i, StepUnknown, "unknown whether it was carried out: "+clip(why, 300)+orSeen(seen))
}

func orSeen(seen string) string {
	if seen == "" {
		return ""
	}
	return " (" + clip(seen, 300) + ")"
}

// changedSomething says whether the verify conditions prove a change: what held before as well proves nothing.
func changedSomething(s Step) bool {
	for _, v := range s.Verify {
		for _, r := range s.Require {
			if r.Read.Operation == v.Read.Operation && r.Pointer == v.Pointer && r.Key == v.Key && fmt.Sprint(r.Where) == fmt.Sprint(v.Where) {
				if r.Rule != v.Rule || string(r.Value) != string(v.Value) {
					return true
				}
			}
		}
	}
	return false
}

// findTask looks for the one task that this step's request can have started.
func (c *carrier) findTask(ctx context.Context, i int) (string, error) {
	r := c.record()
	s, st := r.Plan.Steps[i], r.Steps[i]
	if st.Resolved == nil {
		return "", errors.New("the request was not recorded")
	}
	node := st.Resolved.Text("node")
	tasks, err := c.g.c.Driver.FindTasks(ctx, s.Target, node, st.Started.Add(-2*time.Second))
	if err != nil {
		return "", err
	}
	ids := map[string]bool{}
	for _, name := range []string{"newid", "vmid"} {
		if id := st.Resolved.Text(name); id != "" {
			ids[id] = true
		}
	}
	var found []string
	for _, t := range tasks {
		mine := len(ids) == 0 || ids[t.ID]
		for k, other := range r.Steps {
			if k != i && other.UPID == t.UPID {
				mine = false
			}
		}
		if mine {
			found = append(found, t.UPID)
		}
	}
	switch len(found) {
	case 0:
		return "", nil
	case 1:
		return found[0], nil
	}
	return "", fmt.Errorf("%d tasks could be it", len(found))
}

// wait follows a step that was answered until its end is seen.
func (c *carrier) wait(ctx context.Context, i int) error {
	s, st := c.record().Plan.Steps[i], c.record().Steps[i]
	switch s.Wait.Kind {
	case WaitTask:
		if st.UPID == "" {
			// An answer without a task: the server did it at once, or there was nothing to do.
			return c.seen(ctx, i, "")
		}
		return c.waitTask(ctx, i)
	case WaitNone, WaitVerify:
		return c.seen(ctx, i, "")
	case WaitUntil:
		if d := s.Wait.Until.Sub(c.g.now()); d > 0 {
			if err := pause(ctx, d); err != nil {
				return err
			}
		}
		return c.seen(ctx, i, "")
	case WaitSoak:
		if err := pause(ctx, s.Wait.Limit); err != nil {
			return err
		}
		return c.seen(ctx, i, "")
	}
	return c.end(i, StepUnknown, fmt.Sprintf("this version cannot wait for %q", s.Wait.Kind))
}

func (c *carrier) waitTask(ctx context.Context, i int) error {
	s, st := c.record().Plan.Steps[i], c.record().Steps[i]
	deadline := c.g.now().Add(orElse(s.Wait.Limit, time.Hour))
	every, blind := c.g.c.PollFirst, 0
	for {
		t, err := c.g.c.Driver.Task(ctx, s.Target, st.UPID)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			blind++
		case t.Running:
			blind = 0
		case !t.Known:
			blind++
			if blind >= 5 {
				return c.end(i, StepUnknown, "the task is not running and has no exit status")
			}
		case t.OK:
			return c.seen(ctx, i, t.Warnings)
		default:
			return c.taskFailed(i, t)
		}
		if c.g.now().After(deadline) {
			why := "its task still runs after the time given to it"
			if err != nil {
				why = "its task could not be followed: " + err.Error()
			}
			return c.end(i, StepUnknown, why)
		}
		if err := pause(ctx, every); err != nil {
			return err
		}
		every = min(every*3/2, 5*time.Second)
	}
}

func (c *carrier) taskFailed(i int, t TaskState) error {
	rec := c.stepRecord(i, "step_end", "failed")
	rec.Parts["result"] = c.g.c.Sealer.Redact(t.Exit)
	rec.Parts["log"] = c.g.c.Sealer.Redact(middleCut(strings.Join(t.Log, "\n"), maxPart))
	return c.save(func(r *PlanRecord) {
		st := &r.Steps[i]
		st.State, st.Result, st.Ended = StepFailed, "the task failed: "+clip(t.Exit, 400), c.g.now()
		for _, line := range t.Log[max(0, len(t.Log)-20):] {
			st.Log = append(st.Log, clip(line, 300))
		}
	}, rec)
}

// seen ends a step that its server calls done: what the planner named is read back before it counts as done.
func (c *carrier) seen(ctx context.Context, i int, warnings string) error {
	s := c.record().Plan.Steps[i]
	v := c.g.wholeView(c.record().Plan.Requester)
	limit := 20 * time.Second
	if s.Wait.Kind == WaitVerify {
		limit = orElse(s.Wait.Limit, 5*time.Minute)
	}
	deadline := c.g.now().Add(limit)
	every := c.g.c.PollFirst
	for {
		missing, unread, soft := "", "", warnings
		for _, cond := range s.Verify {
			ok, got, err := v.holds(ctx, s.Target, cond)
			if cond.Soft {
				if err != nil || !ok {
					soft = strings.TrimPrefix(soft+"; "+orText(cond.Else, cond.Name+" is not seen yet"), "; ")
				}
				continue
			}
			if err != nil {
				unread = fmt.Sprintf("%s could not be read back: %s", cond.Name, err)
			} else if !ok {
				missing = fmt.Sprintf("%s is not seen (found: %s)", cond.Name, got)
			}
		}
		if missing == "" && unread == "" {
			rec := c.stepRecord(i, "step_end", "ok")
			if soft != "" {
				rec.Parts["warnings"] = c.g.c.Sealer.Redact(clip(soft, 1000))
			}
			return c.save(func(r *PlanRecord) {
				st := &r.Steps[i]
				st.State, st.Result, st.Warnings, st.Ended = StepDone, "ok", clip(soft, 600), c.g.now()
			}, rec)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if c.g.now().After(deadline) {
			return c.end(i, StepUnknown, "the server called it done, but "+orText(missing, unread))
		}
		if err := pause(ctx, every); err != nil {
			return err
		}
		every = min(every*3/2, 3*time.Second)
	}
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
