package gate

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Run lets an operation look with a probe: a run whose effect is read. The gate asks policy and lanes, and records it.
func (v *view) Run(ctx context.Context, target, operation string, params map[string]any) (RunResult, error) {
	began := v.g.now()
	t, err := v.Target(target)
	if err != nil {
		return RunResult{}, err
	}
	if !strings.HasPrefix(operation, methodRun) {
		return RunResult{}, Fail(ErrInternal, "", "%s is no run", operation)
	}
	if v.idle {
		return RunResult{}, Fail(ErrDenied, "", "%s is refused with the call that needs it", operation)
	}
	if v.g.c.Runner == nil {
		return RunResult{}, Fail(ErrDenied, "A person configures [lanes] and [[bridge]].", "%s is refused: no lane is configured", operation)
	}
	v.mu.Lock()
	v.reads++
	over := v.reads > v.most
	v.mu.Unlock()
	if over {
		return RunResult{}, Fail(ErrUnavailable, "Ask for less at once.", "the call needed more than %d reads", v.most)
	}
	args := map[string]any{}
	for k, value := range params {
		if text, ok := value.(string); ok {
			if vmid, ok := strings.CutPrefix(text, nodeOf); ok {
				if value, err = v.g.c.Estate.NodeOf(ctx, v.g.wholeView(v.principal), t.Name, vmid); err != nil {
					return RunResult{}, err
				}
			}
		}
		args[k] = value
	}
	req, problems := v.g.c.Catalog.Check(t.Product, operation, args)
	if len(problems) > 0 {
		return RunResult{}, problemError(operation, problems)
	}
	if req.Text("node") == "localhost" {
		return RunResult{}, Fail(ErrInvalid, "Name the node as list_nodes shows it.", "the node is given as localhost, which is a different node for each address")
	}
	if err := v.g.c.Store.View(ctx, v.g.stopped); err != nil {
		return RunResult{}, err
	}
	s := Step{Number: 1, Target: t.Name, API: &req, Judgement: v.g.c.Catalog.Judge(req)}
	s.Sentence = line(s.Judgement.Sentence)
	if s.Judgement.Effect != EffectRead {
		return RunResult{}, Fail(ErrDenied, "Call it as a change.", "%s is no probe: its effect is %s", operation, s.Judgement.Effect)
	}
	if _, err := v.within(ctx, t, req, s.Judgement); err != nil {
		return RunResult{}, err
	}
	site, err := v.g.c.Driver.Identify(ctx, t.Name)
	if err != nil {
		return RunResult{}, fmt.Errorf("identify the site of target %s: %w", t.Name, err)
	}
	s.Site = site
	whole := v.g.wholeView(v.principal)
	refs := slices.Clone(s.Judgement.References)
	for i := range refs {
		refs[i].Object.Site = site
	}
	objects := v.g.described(ctx, whole, t.Name, refs)
	if e := v.g.byLane(ctx, whole, &s, objects); e != nil {
		return RunResult{}, e
	}
	if s.Judgement.Effect != EffectRead {
		return RunResult{}, Fail(ErrDenied, "Call it as a change.", "%s is no probe here: its effect is %s", operation, s.Judgement.Effect)
	}
	plan := &Plan{Requester: v.principal, Steps: []Step{s}, Facts: Facts{Effect: s.Judgement.Effect, Classes: s.Judgement.Classes, Kinds: s.Judgement.Kinds, Objects: objects, Reversible: "yes"}}
	if v.op != nil {
		plan.Operation = v.op.Name
	}
	d := v.g.c.Policy.Plan(ctx, PlanQuestion{Principal: v.principal, Operation: plan.Operation, Plan: plan, Facts: plan.Facts, Steps: plan.Steps, At: v.g.now()})
	if d.Verdict == VerdictDeny {
		return RunResult{}, denied(s.Sentence, d)
	}
	if d.Verdict != VerdictAllow && d.Rung != RungNone {
		return RunResult{}, Fail(ErrDenied, "A probe answers at once: only a policy of approval none lets it run.", "%s would need the approval %s", s.Sentence, d.Rung)
	}
	v.mu.Lock()
	v.freeText, v.ran = true, true
	v.authors = union(v.authors, []string{insideOf(req)})
	v.mu.Unlock()
	permit := mint(Write{Target: t.Name, Request: req, Open: openPlain})
	res, err := v.g.c.Runner.Run(ctx, permit, newID("q"), RunHooks{})
	rec := Record{At: v.g.now(), Kind: "read", Operation: operation, Actor: v.principal.Key(), Client: clip(v.principal.Client, 80), WayIn: v.principal.WayIn, Target: t.Name,
		Effect: EffectRead, Status: "ok", Duration: v.g.now().Sub(began), Parts: map[string]string{"request": v.g.c.Sealer.Redact(v.g.requestText(s))}, Marks: runMarks(req, res)}
	rec.Withhold = v.g.c.Policy.Limits().WithholdRuns
	for _, r := range s.Judgement.References {
		if r.Use == UseActs {
			rec.Objects = append(rec.Objects, r.Object.String())
		}
	}
	if err != nil {
		rec.Status = "failed"
		rec.Parts["error"] = v.g.c.Sealer.Redact(clip(err.Error(), 1000))
	}
	v.g.c.Store.Observe(rec)
	if err != nil {
		return RunResult{}, fmt.Errorf("%s: %w", s.Sentence, err)
	}
	return res, nil
}

// insideOf says who may have written what a run prints.
func insideOf(r Request) string {
	if id := r.Text("vmid"); id != "" {
		return "programs in guest " + clip(line(id), 20)
	}
	return "programs on node " + clip(line(r.Text("node")), 60)
}

func openPlain(v Value) (string, error) {
	if v.Secret != nil || v.Ref != nil {
		return "", fmt.Errorf("open value: a probe takes plain values only")
	}
	return v.Text, nil
}
