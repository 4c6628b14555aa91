package gate

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"
)

// sealedSecrets are the boxes of one plan's secret values, by handle.
type sealedSecrets map[string][]byte

// freeze turns a draft into a plan: requests checked again, secrets replaced by handles, every step judged,
// facts computed, digests taken. Nothing in the result is the planner's word but its notes.
func (g *Gate) freeze(ctx context.Context, op *Operation, c Call, d *Draft) (*Plan, sealedSecrets, error) {
	p := &Plan{ID: newID("p"), Operation: op.Name, Requester: c.Principal, Reason: clip(c.Reason, 400), Created: g.now(),
		Undoes: d.Undoes, Note: clip(d.Note, 1000), Catalogue: g.c.Catalog.Version()}
	p.Expires = p.Created.Add(orElse(g.c.Policy.Limits().PlanTTL, 15*time.Minute))
	boxes := sealedSecrets{}
	if err := g.flatten(p, d, "", 0); err != nil {
		return nil, nil, err
	}
	most, course, err := courseOf(p, d)
	if err != nil {
		return nil, nil, err
	}
	p.Course = course
	if len(p.Steps) > most {
		return nil, nil, Fail(ErrInvalid, "Make several plans.", "the plan has %d steps; at most %d are taken", len(p.Steps), most)
	}
	whole := g.wholeView(c.Principal)
	var phrase string
	var unheld []string
	for i := range p.Steps {
		s := &p.Steps[i]
		t, err := whole.Target(s.Target)
		if err != nil {
			return nil, nil, err
		}
		s.Target = t.Name
		if s.API == nil {
			return nil, nil, Fail(ErrInvalid, "Only API requests can be carried out by this version.", "step %d is no API request", s.Number)
		}
		if slices.Contains([]WaitKind{WaitGuest, WaitBoot}, s.Wait.Kind) {
			return nil, nil, Fail(ErrInvalid, "Only tasks, times and read-backs can be waited for by this version.", "step %d waits for %q", s.Number, s.Wait.Kind)
		}
		if s.Wait.Kind == WaitSoak && s.Wait.Limit == 0 {
			s.Wait.Limit = g.c.Soak
		}
		if err := g.freezeRequest(s, t, p.ID, boxes); err != nil {
			return nil, nil, err
		}
		if e := s.notOurs(); e != nil {
			return nil, nil, e
		}
		if s.Site, err = g.c.Driver.Identify(ctx, t.Name); err != nil {
			return nil, nil, fmt.Errorf("identify the site of target %s: %w", t.Name, err)
		}
		if e := g.byLane(ctx, whole, s, nil); e != nil {
			return nil, nil, e
		}
		g.wayBack(ctx, whole, s)
		unheld = append(unheld, g.hold(ctx, whole, p, i)...)
		if phrase == "" {
			for _, r := range s.Judgement.References {
				if r.Use == UseActs {
					phrase = r.Object.ID
				}
				if r.Use == UseActs && r.Object.Kind == ObjectGuest {
					break
				}
			}
		}
	}
	if d.Phrase != "" {
		phrase = d.Phrase
	}
	if e := p.apart(); e != nil {
		return nil, nil, e
	}
	p.Phrase = strings.TrimSpace("CONFIRM " + strings.ToUpper(strings.ReplaceAll(op.Name, "_", " ")) + " " + clip(phrase, 60))
	if err := g.facts(ctx, whole, p); err != nil {
		return nil, nil, err
	}
	g.walk(ctx, p)
	p.Facts.Reach.Unread = append(p.Facts.Reach.Unread, unheld...)
	g.confirm(p)
	p.Sentence = line(p.Facts.Reach.refused(p.Steps) + p.course() + sentence(p) + p.Facts.Reach.summary(p.Steps))
	digestArgs, err := g.plainArgs(c.Args, boxes)
	if err != nil {
		return nil, nil, err
	}
	p.Args = digestArgs
	if p.EffectDigest, err = effectDigest(p); err != nil {
		return nil, nil, err
	}
	return p, boxes, nil
}

// effectDigest covers what would happen: sites, steps, preconditions, catalogue. Handles are random per plan, so
// secrets count by place only and are compared as new each time. What the steps would hit beyond what they name is part of
// it by class, weight and object: a plan that hits more is another plan.
func effectDigest(p *Plan) (string, error) {
	what := map[string]any{"steps": p.Steps, "catalogue": p.Catalogue, "reach": p.Facts.Reach.essence()}
	if p.Course != nil {
		what["course"] = p.Course
	}
	return Digest(what)
}

// planDigest adds what makes this plan this plan.
func planDigest(p *Plan) (string, error) {
	return Digest(map[string]any{"effect": p.EffectDigest, "id": p.ID, "requester": p.Requester, "expires": p.Expires,
		"policy_set": p.Decision.Set, "rung": p.Decision.Rung, "sentence": p.Sentence, "reach": p.Facts.Reach})
}

// intact says whether the plan is still what its digests say: it comes back from a store that others can reach.
func (p *Plan) intact() bool {
	effect, err := effectDigest(p)
	if err != nil || effect != p.EffectDigest {
		return false
	}
	digest, err := planDigest(p)
	return err == nil && digest == p.Digest
}

// flatten puts own steps and those of children into one order; a child's references to its steps move along.
func (g *Gate) flatten(p *Plan, d *Draft, target string, part int) error {
	if d.Target != "" {
		target = d.Target
	}
	offset := len(p.Steps)
	for i, s := range d.Steps {
		if s.Target == "" {
			s.Target = target
		}
		s.Number, s.Part = offset+i+1, part
		move := func(n *int) error {
			if *n < 0 || *n > i {
				return Fail(ErrInternal, "", "step %d refers to step %d, which does not come before it", i+1, *n)
			}
			if *n > 0 {
				*n += offset
			}
			return nil
		}
		if err := move(&s.When.StepFailed); err != nil {
			return err
		}
		if err := move(&s.When.CheckFailed); err != nil {
			return err
		}
		if s.API != nil {
			r := Request{Product: s.API.Product, Operation: s.API.Operation}
			for _, param := range s.API.Params {
				values := slices.Clone(param.Values)
				for k := range values {
					if values[k].Ref != nil {
						ref := *values[k].Ref
						if err := move(&ref.Step); err != nil {
							return err
						}
						values[k].Ref = &ref
					}
				}
				r.Params = append(r.Params, Param{Name: param.Name, Values: values})
			}
			s.API = &r
		}
		p.Steps = append(p.Steps, s)
	}
	for _, diff := range d.Diff {
		diff.Old, diff.New, diff.Note = Clean(diff.Old), Clean(diff.New), line(diff.Note)
		p.Diff = append(p.Diff, diff)
	}
	for _, s := range d.Skip {
		p.Skip = append(p.Skip, line(s))
	}
	if part != 0 && d.Parallel > 0 {
		return Fail(ErrInvalid, "Plan it by itself.", "a plan whose parts run side by side is no part of another one")
	}
	for i, child := range d.Children {
		next := part
		if part == 0 {
			next = i + 1
		}
		first := len(p.Steps)
		if err := g.flatten(p, child, target, next); err != nil {
			return err
		}
		for k := first; part == 0 && d.Parallel > 0 && k < len(p.Steps); k++ {
			p.Steps[k].Batch = child.Batch
		}
	}
	return nil
}

// freezeRequest checks the request against the catalogue once more, judges it, and replaces its secrets.
func (g *Gate) freezeRequest(s *Step, t TargetInfo, plan string, boxes sealedSecrets) error {
	if s.API.Product != "" && s.API.Product != t.Product {
		return Fail(ErrInvalid, "Choose a target of that product.", "step %d is for %s, but target %s is %s", s.Number, s.API.Product, t.Name, t.Product)
	}
	args, refs, veiled := map[string]any{}, map[string][]Value{}, map[string]bool{}
	for _, p := range s.API.Params {
		var texts []any
		for _, v := range p.Values {
			switch {
			case v.Ref != nil:
				refs[p.Name] = p.Values
				texts = append(texts, v.Ref.Plan)
			case v.Secret != nil:
				return Fail(ErrInternal, "", "step %d brings a secret handle of another plan", s.Number)
			default:
				texts = append(texts, v.Text)
				veiled[p.Name] = veiled[p.Name] || v.Veiled
			}
		}
		if len(texts) == 1 {
			args[p.Name] = texts[0]
		} else {
			args[p.Name] = texts
		}
		if v := refs[p.Name]; v != nil && texts[0] == "" { // nothing to check or judge it by yet
			delete(args, p.Name)
		}
	}
	req, problems := g.c.Catalog.Check(t.Product, s.API.Operation, args)
	problems = slices.DeleteFunc(problems, func(p Problem) bool { return refs[p.Param] != nil && args[p.Param] == nil })
	if len(problems) > 0 {
		return problemError(s.API.Operation, problems)
	}
	if node := req.Text("node"); node == "localhost" && refs["node"] == nil && t.Product == "pve" {
		return Fail(ErrInvalid, "Name the node as list_nodes shows it.", "the node is given as localhost, which is a different node for each address")
	}
	j := g.c.Catalog.Judge(req)
	for i := range req.Params {
		if v := refs[req.Params[i].Name]; v != nil {
			req.Params[i].Values = v
			delete(refs, req.Params[i].Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(refs)) {
		req.Params = append(req.Params, Param{Name: name, Values: refs[name]})
		j.References = append(j.References, Reference{Object: Object{Kind: ObjectUnknown, ID: name}, Param: name, Use: UseActs})
	}
	sort.SliceStable(req.Params, func(a, b int) bool { return req.Params[a].Name < req.Params[b].Name })
	if err := g.sealSecrets(&req, plan, s.Number, boxes, veiled); err != nil {
		return err
	}
	hidden := g.c.Catalog.Judge(req)
	j.Sentence = hidden.Sentence
	s.API, s.Judgement, s.Sentence = &req, j, line(j.Sentence)
	if s.Sentence == "" {
		return Fail(ErrInternal, "", "there is no sentence for %s", req.Operation)
	}
	s.Judgement.Sentence = ""
	if s.Wait.Kind == WaitNone && j.Task {
		s.Wait.Kind = WaitTask
	}
	return nil
}

// secretPlace is what a secret's box is bound to. The length of the salt stands beside the box, so it is part of it: else
// the beginning of the secret could be cut off, or put before it, in the database.
func secretPlace(plan, id string, salt int) string { return fmt.Sprintf("%s/%s/%d", plan, id, salt) }

func (g *Gate) sealSecrets(r *Request, plan string, step int, boxes sealedSecrets, veiled map[string]bool) error {
	for i := range r.Params {
		p := &r.Params[i]
		for k := range p.Values {
			v := &p.Values[k]
			if v.Ref != nil || v.Text == "" {
				continue
			}
			parts := g.c.Catalog.SecretValue(*r, p.Name, v.Text)
			if veiled[p.Name] {
				parts = []SecretPart{{0, len(v.Text)}}
			}
			if len(parts) == 0 {
				continue
			}
			from, to := parts[0].From, parts[len(parts)-1].To // what lies between two secrets is sealed with them
			id := strconv.Itoa(step) + "." + p.Name + "." + strconv.Itoa(k)
			plain := []byte(v.Text[from:to])
			commitment, salt := g.c.Sealer.Commit(plain)
			box, err := g.c.Sealer.Seal(append(slices.Clone(salt), plain...), secretPlace(plan, id, len(salt)))
			if err != nil {
				return fmt.Errorf("seal secret %s: %w", p.Name, err)
			}
			boxes[id] = append([]byte{byte(len(salt))}, box...)
			*v = Value{Secret: &Handle{ID: id, Commitment: commitment, Before: v.Text[:from], After: v.Text[to:]}}
		}
	}
	return nil
}

// facts computes what policy judges, from the frozen steps and the estate alone.
func (g *Gate) facts(ctx context.Context, whole *view, p *Plan) error {
	f := &p.Facts
	f.Effect = EffectRead
	undone, lost := 0, []string(nil)
	merged := map[string]*Reference{}
	byTarget := map[string][]*Reference{}
	params := map[*Reference][]string{}
	for _, s := range p.Steps {
		j := s.Judgement
		f.Effect = WorseEffect(f.Effect, j.Effect)
		f.Classes = union(f.Classes, j.Classes)
		kinds := j.Kinds
		if len(kinds) == 0 {
			kinds = []Kind{KindUnknown}
		}
		f.Kinds = union(f.Kinds, kinds)
		switch {
		case s.Undo.None != "":
			f.UndoNote = orText(f.UndoNote, s.Undo.None)
		case !s.Undo.Possible():
			f.UndoNote = orText(f.UndoNote, "not by castellan: "+s.Undo.How)
		default:
			undone++
		}
		if s.Undo.None == "" && len(s.Undo.Lost) > 0 {
			lost = append(lost, s.Undo.Lost...)
		}
		for _, r := range j.References {
			r.Object.Site = s.Site
			key := s.Target + " " + r.Object.String()
			m := merged[key]
			if m == nil {
				m = &Reference{Object: r.Object, Use: r.Use}
				merged[key] = m
				byTarget[s.Target] = append(byTarget[s.Target], m)
			}
			if r.Use == UseActs {
				m.Use = UseActs
			}
			if r.Param != "" && !slices.Contains(params[m], r.Param) {
				params[m] = append(params[m], r.Param)
			}
		}
	}
	switch {
	case undone == 0:
		f.Reversible = "no"
	case undone == len(p.Steps) && len(lost) == 0:
		f.Reversible = "yes"
	default:
		f.Reversible = "partly"
		f.UndoNote = clip(orText(f.UndoNote, strings.Join(lost, "; ")), 600)
	}
	for _, target := range slices.Sorted(maps.Keys(byTarget)) {
		refs := make([]Reference, len(byTarget[target]))
		for i, r := range byTarget[target] {
			refs[i] = *r
		}
		described := g.described(ctx, whole, target, refs)
		for i := range described {
			described[i].Params = params[byTarget[target][i]]
			f.Objects = append(f.Objects, described[i])
		}
	}
	g.backedUp(ctx, p, p.Steps)
	f.UndoPoints = undoPoints(p)
	f.Tainted = g.isTainted(ctx, p.Requester)
	f.Governs = g.governs(ctx, p)
	if len(f.Governs) > 0 {
		f.Kinds = union(f.Kinds, []Kind{KindGoverns})
		f.Self = true
	}
	for _, s := range p.Steps {
		bound := false
		for _, c := range s.Require {
			bound = bound || c.Identity
		}
		for _, r := range s.Judgement.References {
			if r.Use == UseActs && r.Object.Kind == ObjectGuest && !bound {
				f.Unidentified = union(f.Unidentified, []string{r.Object.String()})
			}
		}
	}
	return nil
}

func union[T ~string](a, b []T) []T {
	for _, x := range b {
		if !slices.Contains(a, x) {
			a = append(a, x)
		}
	}
	return a
}

// plainArgs are the caller's arguments as they may be kept: what the catalogue sealed as secret is gone from them.
func (g *Gate) plainArgs(args []byte, boxes sealedSecrets) ([]byte, error) {
	if len(boxes) > 0 {
		return Canonical(map[string]string{"withheld": "the arguments hold secrets; the steps show them by handle"})
	}
	_, plain := newVeil(g.c.Catalog.SecretName, args)
	return []byte(g.c.Sealer.Redact(plain)), nil
}
