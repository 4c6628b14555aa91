package gate

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// maxReads bounds what one call may ask of its targets, maxWalkReads what the gate's own walk may: each guest of a large
// site has settings of its own, and there is no call that reads them all.
const (
	maxReads     = 400
	maxWalkReads = 50_000
)

// walkReads are reads that only the gate's own walk may make, though their answers hold secrets: what an archive would
// bring into force has to be judged, and a walk tells of keys, not of secret values.
var walkReads = []string{"GET /nodes/{node}/vzdump/extractconfig"}

// view is the read-only window of one call.
type view struct {
	g         *Gate
	principal Principal
	op        *Operation
	strict    bool // a generic read: it must bind a guest or have a row filter where the caller is scoped
	whole     bool // the gate's own look, not cut to the caller's scope
	most      int  // how many reads it may make
	walk      bool // the walker's look: it may see what archives hold, see walkReads
	scheduled bool // for a mandate's schedule: nothing is added that no mandate covers
	since     time.Time

	mu       sync.Mutex
	reads    int
	freeText bool
	authors  []string
	rules    map[string]TagRules
	ignored  []string
	ran      bool // it looked with a probe
	idle     bool // it runs nothing anywhere: the call is refused, and only what it would hit is looked at
	depth    int
	seen     map[string]bool // guest id → in scope
}

func (g *Gate) view(p Principal, op *Operation) *view {
	most := maxReads
	if op != nil && op.wide {
		most = maxWalkReads
	}
	return &view{g: g, principal: p, op: op, strict: op != nil && op.run.door != nil, most: most, seen: map[string]bool{}}
}

func (g *Gate) wholeView(p Principal) *view {
	return &view{g: g, principal: p, whole: true, most: maxReads, seen: map[string]bool{}}
}

// freshView is the look just before a step: what was read before it began to be checked counts for nothing, however short
// ago; what the looks of one check have read they share.
func (g *Gate) freshView(p Principal, since time.Time) *view {
	v := g.wholeView(p)
	v.since = since
	return v
}

// Since is the time before which nothing that was kept may have been read; zero = it may be as old as the asker says.
func (v *view) Since() time.Time { return v.since }

func (v *view) Principal() Principal  { return v.principal }
func (v *view) Now() time.Time        { return v.g.now() }
func (v *view) Targets() []TargetInfo { return v.g.c.Driver.Targets() }
func (v *view) Scoped() bool          { return !v.whole && v.g.c.Policy.Scoped(v.principal) }

func (v *view) Sees(ctx context.Context, target string, o ObjectFacts) bool {
	if v.whole {
		return true
	}
	if o.Reserved == nil && len(o.Tags) > 0 {
		one := []ObjectFacts{o}
		v.countTags(ctx, target, one, false)
		o = one[0]
	}
	return v.g.c.Policy.Sees(v.principal, target, o)
}

// SawFreeText says that the call gets text of outsiders from somewhere that had read it before.
func (v *view) SawFreeText() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.freeText = true
}

func (v *view) sawFreeText() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.freeText
}

func (v *view) Target(name string) (TargetInfo, error) {
	all := v.Targets()
	if name == "" && len(all) == 1 {
		return all[0], nil
	}
	var names []string
	for _, t := range all {
		if t.Name == name {
			return t, nil
		}
		names = append(names, t.Name)
	}
	slices.Sort(names)
	switch {
	case len(all) == 0:
		return TargetInfo{}, Fail(ErrUnavailable, "Configure a target: castellan init.", "no target is configured")
	case name == "":
		return TargetInfo{}, Fail(ErrInvalid, "Give target, one of: "+strings.Join(names, ", "), "there are %d targets", len(all))
	}
	e := Fail(ErrNotFound, "Give target, one of: "+strings.Join(names, ", "), "there is no target %q", clip(name, 60))
	if near := Nearest(name, names); near != "" {
		e.Message += fmt.Sprintf("; did you mean %s?", near)
	}
	return TargetInfo{}, e
}

// Read passes only catalogued reads, within the scope of the caller.
func (v *view) Read(ctx context.Context, target string, r Read) (Answer, error) {
	t, err := v.Target(target)
	if err != nil {
		return Answer{}, err
	}
	v.mu.Lock()
	v.reads++
	over := v.reads > v.most
	v.mu.Unlock()
	if over {
		return Answer{}, Fail(ErrUnavailable, "Ask for less at once.", "the call needed more than %d reads", v.most)
	}
	req, err := v.request(ctx, t, r)
	if err != nil {
		return Answer{}, err
	}
	if req.IsRun() {
		return Answer{}, Fail(ErrInternal, "", "%s is a run, and no read of the API", r.Operation)
	}
	j := v.g.c.Catalog.Judge(req)
	if j.Effect != EffectRead && !(v.walk && slices.Contains(walkReads, r.Operation)) {
		return Answer{}, Fail(ErrDenied, "Call it as a change.", "%s is no read: its effect is %s", r.Operation, j.Effect)
	}
	filter, err := v.within(ctx, t, req, j)
	if err != nil {
		return Answer{}, err
	}
	a, err := v.g.c.Driver.Read(ctx, t.Name, req)
	if err != nil {
		return Answer{}, fmt.Errorf("read %s: %w", r.Operation, err)
	}
	a.Data = v.g.c.Catalog.Scrub(req, a.Data)
	who := v.g.c.Catalog.Outside(req, a.Data)
	a.Untrusted = a.Untrusted || len(who) > 0
	if a.Untrusted {
		v.mu.Lock()
		v.freeText = true
		v.authors = union(v.authors, who)
		v.mu.Unlock()
	}
	if filter != nil {
		if a.Data, err = filter(a.Data); err != nil {
			return Answer{}, err
		}
	}
	return a, nil
}

// request checks a read's parameters and resolves where guests are.
func (v *view) request(ctx context.Context, t TargetInfo, r Read) (Request, error) {
	args := map[string]any{}
	for k, text := range r.Params {
		if vmid, ok := strings.CutPrefix(text, nodeOf); ok {
			node, err := v.g.c.Estate.NodeOf(ctx, v.g.wholeView(v.principal), t.Name, vmid)
			if err != nil {
				return Request{}, err
			}
			text = node
		}
		args[k] = text
	}
	req, problems := v.g.c.Catalog.Check(t.Product, r.Operation, args)
	if len(problems) > 0 {
		return Request{}, problemError(r.Operation, problems)
	}
	return req, nil
}

// within refuses a read that leaves the caller's scope, or returns a filter for its rows.
func (v *view) within(ctx context.Context, t TargetInfo, req Request, j Judgement) (func(json.RawMessage) (json.RawMessage, error), error) {
	if !v.Scoped() {
		return nil, nil
	}
	bound := false
	for _, ref := range j.References {
		if ref.Object.Kind != ObjectGuest {
			continue
		}
		bound = true
		if !v.inScope(ctx, t.Name, ref) {
			return nil, Fail(ErrNotFound, "list_guests shows the guests within reach.", "guest %s is not within this caller's scope", clip(ref.Object.ID, 20))
		}
	}
	param, field, ok := v.g.c.Catalog.ReadScope(req.Product, req.Operation)
	if ok && field != "" {
		return func(data json.RawMessage) (json.RawMessage, error) { return v.rows(ctx, t.Name, field, data) }, nil
	}
	if v.strict && !(bound && param != "") {
		return nil, Fail(ErrDenied, "Use the curated operations, such as list_guests, guest_status, list_storage.",
			"%s shows more than this caller's guests", req.Operation)
	}
	return nil, nil
}

func (v *view) inScope(ctx context.Context, target string, ref Reference) bool {
	key := target + "/" + ref.Object.ID
	v.mu.Lock()
	in, known := v.seen[key]
	v.mu.Unlock()
	if known {
		return in
	}
	facts, err := v.g.c.Estate.Describe(ctx, v.g.wholeView(v.principal), target, []Reference{ref})
	if err == nil {
		v.countTags(ctx, target, facts, false)
	}
	in = err == nil && len(facts) == 1 && v.g.c.Policy.Sees(v.principal, target, facts[0])
	v.mu.Lock()
	v.seen[key] = in
	v.mu.Unlock()
	return in
}

// rows keeps the rows of guests in scope; rows that are no guests stay.
func (v *view) rows(ctx context.Context, target, field string, data json.RawMessage) (json.RawMessage, error) {
	var list []map[string]json.RawMessage
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("filter rows by %s: %w", field, err)
	}
	var refs []Reference
	ids := map[string]bool{}
	for _, row := range list {
		if id := plainText(row[field]); id != "" && !ids[id] {
			ids[id] = true
			refs = append(refs, Reference{Object: Object{Kind: ObjectGuest, ID: id}, Use: UseActs})
		}
	}
	facts, err := v.g.c.Estate.Describe(ctx, v.g.wholeView(v.principal), target, refs)
	if err != nil {
		return nil, fmt.Errorf("filter rows by %s: %w", field, err)
	}
	v.countTags(ctx, target, facts, false)
	in := map[string]bool{}
	for _, f := range facts {
		in[f.Object.ID] = v.g.c.Policy.Sees(v.principal, target, f)
	}
	kept := make([]map[string]json.RawMessage, 0, len(list))
	for _, row := range list {
		id := plainText(row[field])
		if _, has := row[field]; has && !in[id] {
			continue
		}
		kept = append(kept, row)
	}
	return json.Marshal(kept)
}

// plainText reads a scalar as text: 101 and "101" are the same.
func plainText(raw json.RawMessage) string {
	if len(raw) == 0 || string(raw) == "null" {
		return ""
	}
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}

// Plan asks another operation for its draft.
func (v *view) Plan(ctx context.Context, operation string, args json.RawMessage) (*Draft, error) {
	op, args, err := v.child(ctx, operation, args)
	if err != nil {
		return nil, err
	}
	inner := v.inner(op)
	defer v.saw(inner)
	switch {
	case op.run.change != nil:
		return op.run.change(ctx, inner, args)
	case op.run.door != nil:
		_, d, err := op.run.door(ctx, inner, args)
		if err == nil && d == nil {
			err = Fail(ErrInvalid, "Call it by itself.", "%s reads here; only changes can be planned together", operation)
		}
		return d, err
	}
	return nil, Fail(ErrInvalid, "Call it by itself.", "%s makes no plan", operation)
}

// saw takes over that a composed operation read free text which it may show.
func (v *view) saw(inner *view) {
	if notes := inner.ignoredTags(); len(notes) > 0 {
		v.mu.Lock()
		v.ignored = union(v.ignored, notes)
		v.mu.Unlock()
	}
	if inner.ran {
		v.mu.Lock()
		v.ran = true
		v.mu.Unlock()
	}
	if inner.sawFreeText() && !inner.op.Bounded {
		v.mu.Lock()
		v.freeText = true
		v.authors = union(v.authors, inner.outside())
		v.mu.Unlock()
	}
}

// outside lists who may have written the free text that was read, sorted.
func (v *view) outside() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Sorted(slices.Values(v.authors))
}

// Query asks another operation for its answer.
func (v *view) Query(ctx context.Context, operation string, args json.RawMessage) (json.RawMessage, error) {
	op, args, err := v.child(ctx, operation, args)
	if err != nil {
		return nil, err
	}
	if op.run.query == nil {
		e := Fail(ErrInvalid, "Call it by itself.", "%s is no query", operation)
		e.Cause = ErrNoQuery
		return nil, e
	}
	inner := v.inner(op)
	answer, err := op.run.query(ctx, inner, args)
	if err != nil {
		return nil, err
	}
	v.saw(inner)
	return json.Marshal(answer)
}

func (v *view) inner(op *Operation) *view {
	w := v.g.view(v.principal, op)
	w.depth, w.whole, w.idle = v.depth+1, v.whole, v.idle
	return w
}

func (v *view) child(ctx context.Context, operation string, args json.RawMessage) (*Operation, json.RawMessage, error) {
	if v.depth >= 2 {
		return nil, nil, Fail(ErrInvalid, "Make fewer levels.", "calls are nested too deep at %s", clip(operation, 60))
	}
	op := v.g.byName[operation]
	if op != nil && op.Alone() {
		return nil, nil, Fail(ErrInvalid, "Call "+op.Name+" itself.", "%s acts on castellan itself and is no part of another call", op.Name)
	}
	if op == nil {
		e := Fail(ErrNotFound, "Ask find_operation in plain words.", "there is no operation %q", clip(operation, 60))
		if near := Nearest(operation, slices.Sorted(maps.Keys(v.g.byName))); near != "" {
			e.Message += fmt.Sprintf("; did you mean %s?", near)
		}
		return nil, nil, e
	}
	args, problems := op.arguments(args)
	if len(problems) > 0 {
		return nil, nil, problemError(operation, problems)
	}
	if d := v.g.askCall(ctx, op, Call{Operation: operation, Principal: v.principal, Args: args}, targetOf(args)); d.Verdict == VerdictDeny {
		return nil, nil, denied(operation, d)
	}
	return op, args, nil
}
