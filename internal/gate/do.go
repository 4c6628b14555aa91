package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Do carries out one call: a query is answered, a change becomes a plan, and the plan is applied at once where
// policy asks for no approval. It returns within Config.CallLimit; longer work goes on and is found by show_plan.
func (g *Gate) Do(ctx context.Context, c Call, progress Progress) (*Outcome, error) {
	began := g.now()
	ctx, cancel := context.WithTimeout(ctx, g.c.CallLimit)
	defer cancel()
	out, err := g.do(ctx, c, began, progress)
	if err != nil {
		e := AsError(err)
		if e.Operation == "" {
			e.Operation = clip(c.Operation, 60)
		}
		e.wash()
		return nil, e
	}
	if err := out.wash(); err != nil {
		return nil, fmt.Errorf("answer of %s: %w", clip(c.Operation, 60), err)
	}
	out.Notices = append(g.notices(ctx), out.Notices...)
	return out, nil
}

func (g *Gate) do(ctx context.Context, c Call, began time.Time, progress Progress) (*Outcome, error) {
	op := g.byName[c.Operation]
	if op == nil {
		e := Fail(ErrNotFound, "Ask find_operation in plain words.", "there is no operation %q", clip(c.Operation, 60))
		if near := Nearest(c.Operation, slices.Sorted(maps.Keys(g.byName))); near != "" {
			e.Message += fmt.Sprintf("; did you mean %s?", near)
		}
		g.refused(ctx, c, nil, began, "not_found", e)
		return nil, e
	}
	if !c.Principal.Until.IsZero() && began.After(c.Principal.Until) {
		e := Fail(ErrDenied, "Sign in again.", "the access of %s has expired", c.Principal.Key())
		g.refused(ctx, c, op, began, "denied", e)
		return nil, e
	}
	args, problems := op.arguments(c.Args)
	if len(problems) > 0 {
		e := problemError(op.Name, problems)
		g.refused(ctx, c, op, began, "invalid", e)
		return nil, e
	}
	c.Args = args
	d := g.askCall(ctx, op, c, targetOf(args))
	var off *Decision
	if d.Verdict == VerdictDeny {
		if !c.PlanOnly || op.run.change == nil || !g.mayKnow(ctx, c) {
			e := denied(op.Name, d)
			g.refused(ctx, c, op, began, "denied", e)
			return nil, e
		}
		off = &d // it stays refused, and says what it would hit
	}
	v := g.view(c.Principal, op)
	v.scheduled, v.idle = c.scheduled, off != nil
	var answer any
	var draft *Draft
	var err error
	switch {
	case op.run.query != nil:
		answer, err = op.run.query(ctx, v, args)
	case op.run.control != nil:
		answer, err = op.run.control(ctx, &desk{view: v, call: c, progress: progress, began: began}, args)
	case op.run.change != nil:
		draft, err = op.run.change(ctx, v, args)
	case op.run.door != nil:
		answer, draft, err = op.run.door(ctx, v, args)
	}
	if off != nil && (err != nil || draft == nil || countSteps(draft) == 0) {
		e := denied(op.Name, *off)
		g.refused(ctx, c, op, began, "denied", e)
		return nil, e
	}
	if err != nil {
		e := because(g.readError(err), v.ignoredTags())
		if v.sawFreeText() && !op.Bounded { // it may quote what was read
			e.Untrusted, e.Outside = true, v.outside()
			if trouble := g.taint(ctx, c.Principal); trouble != nil {
				e = trouble
			}
		}
		g.refused(ctx, c, op, began, string(e.Kind), e)
		return nil, e
	}
	var out *Outcome
	if draft == nil {
		out, err = g.answer(ctx, v, op, c, began, answer)
	} else {
		out, err = g.propose(ctx, v, op, c, draft, off, began, progress)
	}
	if err == nil {
		out.Notices = append(out.Notices, v.ignoredTags()...)
	}
	return out, err
}

// mayKnow says whether this caller may see what any plan on a site would hit: no scope limits it, and policy lets it read
// over the whole site of that product.
func (g *Gate) mayKnow(ctx context.Context, c Call) bool {
	if g.c.Policy.Scoped(c.Principal) {
		return false
	}
	for _, o := range g.sorted {
		if o.wide && o.Effect == EffectRead && slices.Equal(o.Kinds, []Kind{KindRead}) {
			if g.askCall(ctx, o, Call{Operation: o.Name, Args: json.RawMessage(`{}`), Principal: c.Principal}, targetOf(c.Args)).Verdict == VerdictDeny {
				return false
			}
		}
	}
	return true
}

func targetOf(args json.RawMessage) string {
	var a struct {
		Target string `json:"target"`
	}
	_ = json.Unmarshal(args, &a) // arguments were checked; an operation without a target has none
	return a.Target
}

func (g *Gate) askCall(ctx context.Context, op *Operation, c Call, target string) Decision {
	q := CallQuestion{Principal: c.Principal, Operation: op, Target: target, At: g.now()}
	if op.run.change != nil { // taint raises approvals: a query has none, and the door asks again when it plans
		q.Tainted = g.isTainted(ctx, c.Principal)
	}
	return g.c.Policy.Call(ctx, q)
}

// offers says what policy would answer to an operation at all, for listing: it asks no store, so a server can list
// its tools while the store still opens.
func (g *Gate) offers(ctx context.Context, op *Operation, p Principal) Decision {
	q := CallQuestion{Principal: p, Operation: op, At: g.now()}
	if lists, ok := g.c.Policy.(interface {
		Offers(ctx context.Context, q CallQuestion) Decision
	}); ok {
		return lists.Offers(ctx, q)
	}
	return g.c.Policy.Call(ctx, q)
}

func denied(operation string, d Decision) *Error {
	e := Fail(ErrDenied, d.Hint, "%s is refused: %s", operation, d.Reason)
	e.Operation = operation
	return e
}

// answer finishes a query: taint before anything is returned, then the record.
func (g *Gate) answer(ctx context.Context, v *view, op *Operation, c Call, began time.Time, answer any) (*Outcome, error) {
	if out, ok := answer.(*Outcome); ok { // a control operation that ends in an outcome of its own
		return out, nil
	}
	raw, err := json.Marshal(answer)
	if err != nil {
		return nil, fmt.Errorf("write answer of %s: %w", op.Name, err)
	}
	untrusted := v.sawFreeText() && !op.Bounded
	var outside []string
	if untrusted {
		outside = v.outside()
	}
	if own, ok := answer.(interface{ HoldsFreeText() bool }); ok && own.HoldsFreeText() {
		untrusted = true
		if told, ok := answer.(interface{ Outsiders() []string }); ok {
			outside = union(outside, told.Outsiders())
		}
	}
	if untrusted && len(outside) == 0 {
		outside = []string{"other people or programs"}
	}
	if untrusted {
		if err := g.taint(ctx, c.Principal); err != nil {
			return nil, err
		}
	}
	rec := g.record(c, op, began, "read", "ok", map[string]string{"args": string(c.Args)}, len(raw))
	if op.run.door != nil {
		rec.Effect = EffectRead // that is what it came to
	}
	if v.ran {
		rec.Withhold = g.c.Policy.Limits().WithholdRuns
	}
	g.c.Store.Observe(rec)
	return &Outcome{Status: StatusAnswer, Answer: raw, Untrusted: untrusted, Outside: outside}, nil
}

// readError turns what an operation's reads came back with into an Error.
func (g *Gate) readError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	var u *UpstreamError
	if errors.As(err, &u) {
		kind := u.Kind
		if kind == "" {
			kind = ErrUnavailable
		}
		return &Error{Kind: kind, Message: clip(err.Error(), 400), Changed: "nothing", Hint: u.Hint, Cause: err}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return &Error{Kind: ErrUnavailable, Message: "the target did not answer in time", Changed: "nothing", Hint: "Try again, or ask for less.", Cause: err}
	}
	if errors.Is(err, context.Canceled) {
		return &Error{Kind: ErrUnavailable, Message: "the call was cancelled", Changed: "nothing", Cause: err}
	}
	return &Error{Kind: ErrInternal, Message: clip(err.Error(), 400), Changed: "nothing", Cause: err}
}

func (g *Gate) record(c Call, op *Operation, began time.Time, kind, status string, parts map[string]string, size int) Record {
	r := Record{At: g.now(), Kind: kind, Operation: clip(c.Operation, 60), Actor: c.Principal.Key(), Client: clip(c.Principal.Client, 80),
		WayIn: c.Principal.WayIn, Status: status, Duration: g.now().Sub(began), Parts: map[string]string{}, Sizes: map[string]int{}}
	r.Marks = c.Principal.marks()
	veil, args := newVeil(g.c.Catalog.SecretName, c.Args)
	args = veil.elsewhere(args)
	if op != nil {
		r.Operation, r.Effect = op.Name, op.Effect
		if op.Guest != "" {
			var a map[string]json.RawMessage
			if json.Unmarshal([]byte(args), &a) == nil && len(a[op.Guest]) > 0 {
				r.Objects = append(r.Objects, "guest/"+clip(strings.Trim(string(a[op.Guest]), `"`), 60))
			}
		}
	}
	r.Target = clip(targetOf(json.RawMessage(args)), 60)
	if size > 0 {
		r.Sizes["answer"] = size
	}
	if c.Reason != "" {
		parts["reason"] = c.Reason
	}
	for k, text := range parts {
		if text == "" {
			continue
		}
		if k == "args" {
			text = args
		}
		text = g.c.Sealer.Redact(veil.elsewhere(text))
		if len(text) > maxPart {
			r.Sizes[k] = len(text)
			text = middleCut(text, maxPart)
		}
		r.Parts[k] = text
	}
	return r
}

// maxPart bounds one recorded part, in bytes.
const maxPart = 8000

// middleCut keeps the first 70 % and the last 30 % of n bytes and says how much went.
func middleCut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	head, tail := n*7/10, n*3/10
	return strings.ToValidUTF8(s[:head], "") + fmt.Sprintf(" …[%d bytes left out]… ", len(s)-head-tail) + strings.ToValidUTF8(s[len(s)-tail:], "")
}

// refused records a call that went no further: reads in the read tree, writes durably in the write tree. Trouble with the
// ledger changes nothing for a refusal.
func (g *Gate) refused(ctx context.Context, c Call, op *Operation, began time.Time, status string, e *Error) {
	r := g.record(c, op, began, "refused", status, map[string]string{"args": string(c.Args), "error": e.Message}, 0)
	if op != nil && (op.Door() || slices.ContainsFunc(op.Kinds, func(k Kind) bool { return slices.Contains(runKinds, k) })) {
		r.Withhold = g.c.Policy.Limits().WithholdRuns
	}
	if op != nil && op.Effect == EffectRead && !op.Writes() {
		r.Kind = "read"
		g.c.Store.Observe(r)
		return
	}
	if err := g.append(ctx, r); err != nil {
		g.c.Log.Warn("refusal not recorded", "error", err)
	}
}

// append adds one record to the write tree in a transaction of its own. A cancelled call is recorded all the same.
func (g *Gate) append(ctx context.Context, r Record) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return g.c.Store.Update(ctx, func(tx Tx) error {
		_, err := tx.Append(r)
		return err
	})
}

// Note records an event that is no call: a changed setting, something that was refused before it became one.
func (g *Gate) Note(ctx context.Context, who Principal, kind, what string) error {
	status := "ok"
	if kind == "refused" {
		status = "denied"
	}
	return g.append(ctx, Record{At: g.now(), Kind: kind, Operation: kind, Actor: who.Key(), Client: clip(who.Client, 80), WayIn: who.WayIn, Status: status, Marks: who.marks(),
		Parts: map[string]string{"detail": g.c.Sealer.Redact(clip(what, 1000))}})
}
