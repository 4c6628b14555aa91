package console

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"castellan/internal/gate"
)

// fakeGate keeps plans as the gate does, without a store.
type fakeGate struct {
	mu       sync.Mutex
	people   *fakePeople
	now      func() time.Time
	plans    map[string]*gate.PlanRecord
	order    []string
	tickets  map[string]gate.Assertion
	mandates map[string]*gate.Mandate
	sw       gate.Switches
	applied  []string
	denied   map[string]string
	slow     time.Duration
	records  []map[string]any // of the ledger
	asked    []map[string]any // of audit_search
	settings map[string]any
}

func newFakeGate(p *fakePeople, now func() time.Time) *fakeGate {
	return &fakeGate{people: p, now: now, plans: map[string]*gate.PlanRecord{}, tickets: map[string]gate.Assertion{}, mandates: map[string]*gate.Mandate{}, denied: map[string]string{}, settings: map[string]any{}}
}

func (g *fakeGate) add(r *gate.PlanRecord) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r.State == "" {
		r.State = gate.PlanProposed
	}
	g.plans[r.Plan.ID] = r
	g.order = append(g.order, r.Plan.ID)
}

func (g *fakeGate) state(id string) gate.PlanState {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.plans[id].State
}

func copyOf(r *gate.PlanRecord) *gate.PlanRecord {
	c := *r
	c.Approvals = slices.Clone(r.Approvals)
	return &c
}

func (g *fakeGate) Waiting(context.Context) ([]*gate.PlanRecord, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []*gate.PlanRecord
	for _, id := range g.order {
		if r := g.plans[id]; r.State == gate.PlanProposed && g.now().Before(r.Plan.Expires) {
			out = append(out, copyOf(r))
		}
	}
	return out, nil
}

func (g *fakeGate) Plans(_ context.Context, who gate.Principal, f gate.PlanFilter) ([]*gate.PlanRecord, string, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []*gate.PlanRecord
	for _, id := range slices.Backward(g.order) {
		if r := g.plans[id]; g.sees(who, r) {
			out = append(out, copyOf(r))
		}
	}
	return out, "", nil
}

func (g *fakeGate) sees(who gate.Principal, r *gate.PlanRecord) bool {
	return who.Oversees() || who.Person != "" && who.Person == r.Plan.Requester.Person
}

func (g *fakeGate) Show(_ context.Context, who gate.Principal, id string) (*gate.PlanView, *gate.PlanRecord, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.plans[id]
	if r == nil || !g.sees(who, r) {
		return nil, nil, gate.Fail(gate.ErrNotFound, "list_plans shows the plans.", "there is no plan %q", id)
	}
	return viewOf(r), copyOf(r), nil
}

func viewOf(r *gate.PlanRecord) *gate.PlanView {
	p := r.Plan
	out := &gate.PlanView{ID: p.ID, Digest: p.Digest, State: r.State, Sentence: p.Sentence, Undo: "cannot be undone: " + p.Facts.UndoNote}
	if p.Facts.Reversible == "yes" {
		out.Undo = "can be undone"
	}
	for i, s := range p.Steps {
		v := gate.StepView{Number: s.Number, Sentence: s.Sentence, Undo: s.Undo.How, Note: s.Note}
		if s.Undo.None != "" {
			v.Undo = "no undo: " + s.Undo.None
		}
		if s.API != nil {
			v.Request = s.API.Operation
			for _, q := range s.API.Params {
				v.Request += " " + q.Name + "=" + q.Values[0].Text
			}
		}
		for _, c := range s.Require {
			v.Requires = append(v.Requires, c.Name)
		}
		if i < len(r.Steps) {
			v.State, v.Result, v.Log, v.Warnings = r.Steps[i].State, r.Steps[i].Result, r.Steps[i].Log, r.Steps[i].Warnings
		}
		out.Steps = append(out.Steps, v)
	}
	return out
}

func (g *fakeGate) Challenge(ctx context.Context, session, plan, verdict string) (*gate.Challenge, error) {
	who, err := g.people.Session(ctx, session)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	a := gate.Assertion{Purpose: "castellan approval v1", Verdict: verdict, Plan: plan, Digest: g.plans[plan].Plan.Digest, Approver: who.Person, Random: make([]byte, 32)}
	t := fmt.Sprintf("ticket-%d", len(g.tickets))
	g.tickets[t] = a
	return &gate.Challenge{Bytes: a.ChallengeBytes(), Ticket: t}, nil
}

func (g *fakeGate) Approve(ctx context.Context, plan string, e gate.Evidence) (*gate.PlanView, error) {
	who, err := g.people.Session(ctx, e.Session)
	if err != nil {
		return nil, err
	}
	if g.slow > 0 {
		time.Sleep(g.slow)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.plans[plan]
	if r.State != gate.PlanProposed {
		return nil, gate.Fail(gate.ErrStale, "Look at it again.", "plan %s is %s", plan, r.State)
	}
	rung := gate.RungPerson
	if e.Kind == "passkey" {
		rung = gate.RungPasskey
		if a, ok := g.tickets[e.Ticket]; !ok || a.Plan != plan || a.Verdict != "approve" {
			return nil, gate.Fail(gate.ErrDenied, "", "the challenge was for another plan")
		}
	}
	need := r.Plan.Decision.Rung
	if rung < min(need, gate.RungPasskey) {
		return nil, gate.Fail(gate.ErrNeedsApproval, "", "plan %s needs %s", plan, need)
	}
	for _, a := range r.Approvals {
		if a.By.Person == who.Person {
			return nil, gate.Fail(gate.ErrDenied, "", "%s has approved it already", who.Person)
		}
	}
	r.Approvals = append(r.Approvals, gate.Approval{Plan: plan, Rung: rung, By: who, At: g.now(), Until: g.now().Add(time.Hour), Evidence: gate.Evidence{Kind: e.Kind, AllowNewer: e.AllowNewer}})
	if need != gate.RungTwoPasskeys || len(r.Approvals) > 1 {
		r.State = gate.PlanApproved
	}
	return viewOf(r), nil
}

func (g *fakeGate) Refuse(ctx context.Context, plan, why string, e gate.Evidence) error {
	if _, err := g.people.Session(ctx, e.Session); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.plans[plan].State, g.denied[plan] = gate.PlanDenied, why
	return nil
}

func (g *fakeGate) Apply(_ context.Context, who gate.Principal, plan string, _ gate.Progress) (*gate.Outcome, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.plans[plan]
	if r.State != gate.PlanApproved {
		return nil, gate.Fail(gate.ErrStale, "", "plan %s is %s", plan, r.State)
	}
	g.applied = append(g.applied, plan)
	r.State = gate.PlanDone
	for range r.Plan.Steps {
		r.Steps = append(r.Steps, gate.StepRecord{State: gate.StepDone, Result: "OK"})
	}
	r.Receipt = &gate.Receipt{Plan: plan, State: gate.PlanDone, ApprovedBy: []string{"|anna (session)"}, Ledger: &gate.LedgerPosition{Index: 41, Size: 42}}
	return &gate.Outcome{Status: gate.StatusDone}, nil
}

// MayApply lets whoever approved it, and operators, as the gate does.
func (g *fakeGate) MayApply(_ context.Context, who gate.Principal, r *gate.PlanRecord) error {
	if slices.Contains(who.Roles, gate.RoleOperator) || slices.Contains(who.Roles, gate.RoleAdministrator) ||
		slices.ContainsFunc(r.Approvals, func(a gate.Approval) bool { return a.By.Person == who.Person }) {
		return nil
	}
	return gate.Fail(gate.ErrDenied, "", "policy refuses it now: changes take the role operator, which this caller does not have")
}

func (g *fakeGate) Grant(ctx context.Context, m gate.Mandate, e gate.Evidence) (*gate.Mandate, error) {
	who, err := g.people.Session(ctx, e.Session)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	m.ID, m.By, m.Given, m.Rung = fmt.Sprintf("m%d", len(g.mandates)+1), who, g.now(), gate.RungPerson
	if e.Kind == "passkey" {
		m.Rung = gate.RungPasskey
	}
	g.mandates[m.ID] = &m
	return &m, nil
}

func (g *fakeGate) ScheduleRuns(_ context.Context, m *gate.Mandate) ([]gate.ScheduleRun, error) {
	return []gate.ScheduleRun{{Mandate: m.ID, From: g.now().Add(-time.Hour), State: gate.ScheduleMissed, Note: "nobody was there"}}, nil
}

func (g *fakeGate) ChallengeMandate(context.Context, string, gate.Mandate) (*gate.Challenge, error) {
	return &gate.Challenge{Bytes: make([]byte, 32), Ticket: "mandate"}, nil
}

func (g *fakeGate) Mandates(_ context.Context, who gate.Principal) ([]*gate.Mandate, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []*gate.Mandate
	for _, m := range g.mandates {
		out = append(out, m)
	}
	return out, nil
}

func (g *fakeGate) Revoke(ctx context.Context, session, id string) error {
	who, err := g.people.Session(ctx, session)
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mandates[id] == nil {
		return gate.Fail(gate.ErrNotFound, "", "there is no mandate %q", id)
	}
	g.mandates[id].Revoked = "by " + who.Person
	return nil
}

func (g *fakeGate) Receipt(_ context.Context, _ gate.Principal, id string) (*gate.Receipt, error) {
	if r := g.plans[id]; r != nil && r.Receipt != nil {
		return r.Receipt, nil
	}
	return nil, gate.Fail(gate.ErrNotFound, "", "plan %s has no receipt", id)
}

func (g *fakeGate) Operations() []*gate.Operation {
	type in struct {
		Guest string `json:"guest"`
	}
	return []*gate.Operation{gate.Change(gate.Declaration{Name: "start_guest", Summary: "Start a guest", Product: "pve", Effect: gate.EffectChange, Kinds: []gate.Kind{gate.KindStart}},
		func(context.Context, gate.View, in) (*gate.Draft, error) { return &gate.Draft{}, nil })}
}

func (g *fakeGate) Targets() []gate.TargetInfo {
	return []gate.TargetInfo{{Name: "home", Product: "pve"}}
}

func (g *fakeGate) Switches(context.Context) (gate.Switches, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.sw, nil
}

func (g *fakeGate) Kill(_ context.Context, who gate.Principal, on bool) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sw.Killed = ""
	if on {
		g.sw.Killed = "by " + who.Person
	}
	return nil
}

func (g *fakeGate) Arm(_ context.Context, _ gate.Principal, until time.Time) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sw.ArmedUntil = until
	return nil
}

// Do answers the reads that pages make.
func (g *fakeGate) Do(_ context.Context, c gate.Call, _ gate.Progress) (*gate.Outcome, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var args map[string]any
	if err := json.Unmarshal(c.Args, &args); err != nil {
		return nil, err
	}
	var out any
	switch c.Operation {
	case "audit_search":
		g.asked = append(g.asked, args)
		page := map[string]any{"records": []map[string]any{}, "shown": 0}
		if args["cursor"] == nil {
			page["records"], page["cursor"] = g.records, "next"
		}
		out = page
	case "get_settings":
		rows := []map[string]any{{"key": "identity.password_file", "set": true, "source": "file"}, {"key": "policy.read_only", "value": false, "set": false, "source": "default", "person": true}}
		for k, v := range g.settings {
			rows = append(rows, map[string]any{"key": k, "value": v, "set": true, "source": "runtime", "by": "|boss", "at": g.now(), "person": true})
		}
		out = map[string]any{"settings": rows, "notes": []string{}}
	default:
		return nil, gate.Fail(gate.ErrNotFound, "", "there is no operation %q", c.Operation)
	}
	raw, err := json.Marshal(out)
	return &gate.Outcome{Status: gate.StatusAnswer, Answer: raw}, err
}

// Set sets a key of the settings.
func (g *fakeGate) Set(_ context.Context, _ gate.Principal, key string, value json.RawMessage) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if value == nil {
		delete(g.settings, key)
		return nil
	}
	var v any
	if err := json.Unmarshal(value, &v); err != nil {
		return err
	}
	g.settings[key] = v
	return nil
}
