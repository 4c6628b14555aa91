package policy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"castellan/internal/gate"
)

// Question asks what would be decided, without a plan. Zero fields take the usual: kind from the table, an object that
// is known.
type Question struct {
	Principal gate.Principal
	Operation string             // castellan's operation
	API       string             // "POST /nodes/{node}/qemu/{vmid}/status/stop"
	Target    string             //
	Kinds     []gate.Kind        // empty: read
	Effect    gate.Effect        // empty: the worst of the kinds
	Objects   []gate.ObjectFacts // empty: one without a name
	Tainted   bool
	Command   gate.CommandRisk // of what it runs, where a caller chose that
	Governs   []string
	At        time.Time
	Writes    int // sent to the target within the last hour
}

// Explanation says what was asked of each policy and what it answered.
type Explanation struct {
	Decision gate.Decision `json:"decision"`
	Requests []Explained   `json:"requests"`
	Set      string        `json:"policy_set"`
	LockWait string        `json:"lock_wait,omitempty"` // how long a step waits for a guest that a task holds
}

// Explained is one request: one kind and one object, at every rung.
type Explained struct {
	Action  string    `json:"action"`
	API     string    `json:"api,omitempty"`
	Target  string    `json:"target,omitempty"`
	Kind    gate.Kind `json:"kind"`
	Object  string    `json:"object,omitempty"`
	Rung    gate.Rung `json:"rung"` // the lowest at which it and every higher one allow; denied when none
	Answers []Said    `json:"answers"`
}

// Said is the answer at one rung.
type Said struct {
	Rung     gate.Rung `json:"rung"`
	Allow    bool      `json:"allow"`
	Policies []string  `json:"policies,omitempty"` // that determined it; none: no permit
	Errors   []string  `json:"errors,omitempty"`
}

// Explain answers a question as Plan or Call would, and shows how.
func (p *Policy) Explain(q Question) Explanation {
	if q.At.IsZero() {
		q.At = time.Now()
	}
	effect := q.Effect
	if effect == "" {
		effect = gate.EffectRead
		for _, k := range q.Kinds {
			effect = gate.WorseEffect(effect, gate.RowOf(k).Effect)
		}
	}
	if effect == gate.EffectRead && !slices.ContainsFunc(q.Kinds, func(k gate.Kind) bool { return k != gate.KindRead && k != gate.KindPrivate }) {
		d := p.Call(context.Background(), gate.CallQuestion{Principal: q.Principal, Operation: &gate.Operation{Name: q.Operation, Effect: effect},
			Target: q.Target, Tainted: q.Tainted, At: q.At})
		r := request{action: "read", operation: q.Operation, api: q.API, target: q.Target, kind: gate.KindRead, effect: effect, tainted: q.Tainted, reverse: "yes", at: q.At}
		return Explanation{Decision: d, Set: p.digest, Requests: []Explained{p.explained(q.Principal, r)}}
	}
	step := gate.Step{Number: 1, Target: q.Target, API: &gate.Request{Operation: q.API, Product: "pve"},
		Judgement: gate.Judgement{Operation: q.API, Effect: effect, Kinds: q.Kinds}}
	if q.Command != gate.RiskNone {
		step.Judgement.Commands = []gate.CommandFact{{Risk: q.Command}}
	}
	for _, o := range q.Objects {
		step.Site = o.Object.Site
		step.Judgement.References = append(step.Judgement.References, gate.Reference{Object: o.Object, Use: o.Use})
	}
	facts := gate.Facts{Effect: effect, Kinds: slices.Clone(q.Kinds), Objects: q.Objects, Tainted: q.Tainted, Governs: q.Governs, Reversible: "no"}
	if len(q.Governs) > 0 && !slices.Contains(facts.Kinds, gate.KindGoverns) {
		facts.Kinds = append(facts.Kinds, gate.KindGoverns)
	}
	return p.ExplainPlan(gate.PlanQuestion{Principal: q.Principal, Operation: q.Operation, Facts: facts, Steps: []gate.Step{step}, At: q.At,
		Writes: map[string]int{q.Target: q.Writes}})
}

// ExplainPlan decides as Plan does, and shows how.
func (p *Policy) ExplainPlan(q gate.PlanQuestion) Explanation {
	out := Explanation{Decision: p.Plan(context.Background(), q), Set: p.digest}
	if p.rules.lockWait > 0 {
		out.LockWait = p.rules.lockWait.String()
	}
	for i, r := range planRequests(q) {
		if i == 200 { // enough to read
			break
		}
		out.Requests = append(out.Requests, p.explained(q.Principal, r))
	}
	return out
}

func (p *Policy) explained(who gate.Principal, r request) Explained {
	a := p.asker(who)
	e := Explained{Action: r.action, API: r.api, Target: r.target, Kind: r.kind, Rung: a.ladder(&r).rung, Object: described(r.object)}
	set, resource := a.policies(&r), a.resource(&r)
	for _, rung := range gate.Rungs() {
		got := a.at(&r, resource, set, a.context(&r), rung)
		e.Answers = append(e.Answers, Said{rung, got.allow, got.ids, got.errors})
	}
	return e
}

// Text is the explanation for reading.
func (e Explanation) Text() string {
	var b strings.Builder
	switch e.Decision.Verdict {
	case gate.VerdictAllow:
		b.WriteString("allowed without approval\n")
	case gate.VerdictNeeds:
		fmt.Fprintf(&b, "allowed after approval: %s", e.Decision.Rung)
		if e.Decision.Asked > e.Decision.Rung {
			fmt.Fprintf(&b, " (stands for %s)", e.Decision.Asked)
		}
		b.WriteByte('\n')
	default:
		fmt.Fprintf(&b, "denied: %s\n", e.Decision.Reason)
	}
	if e.Decision.Verdict == gate.VerdictNeeds && e.Decision.Reason != "" {
		fmt.Fprintf(&b, "why: %s\n", e.Decision.Reason)
	}
	if e.Decision.Hint != "" {
		fmt.Fprintf(&b, "next: %s\n", e.Decision.Hint)
	}
	switch {
	case len(e.Requests) == 0 || e.Requests[0].Action == "read":
	case e.LockWait != "":
		fmt.Fprintf(&b, "lock: a step waits up to %s for a guest that a task holds (policy.lock_wait)\n", e.LockWait)
	default:
		b.WriteString("lock: a guest that a task holds is refused at once (policy.lock_wait is not set)\n")
	}
	for _, r := range e.Requests {
		fmt.Fprintf(&b, "\n%s, kind %s", r.Action, r.Kind)
		for name, text := range map[string]string{"object": r.Object} {
			if text != "" {
				fmt.Fprintf(&b, ", %s %s", name, text)
			}
		}
		if r.API != "" {
			fmt.Fprintf(&b, ", %s", r.API)
		}
		fmt.Fprintf(&b, ": needs %s\n", r.Rung)
		for _, s := range r.Answers {
			verb := "deny"
			if s.Allow {
				verb = "allow"
			}
			by := strings.Join(s.Policies, ", ")
			if by == "" {
				by = "no policy permits it"
			}
			fmt.Fprintf(&b, "  %-12s %-5s %s\n", s.Rung, verb, by)
			for _, err := range s.Errors {
				fmt.Fprintf(&b, "  %-12s       error in %s\n", "", err)
			}
		}
	}
	return b.String()
}
