package console

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"castellan/internal/gate"
	"castellan/internal/identity"
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
}

func newFakeGate(p *fakePeople, now func() time.Time) *fakeGate {
	return &fakeGate{people: p, now: now, plans: map[string]*gate.PlanRecord{}, tickets: map[string]gate.Assertion{}, mandates: map[string]*gate.Mandate{}, denied: map[string]string{}}
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
	r.Approvals = append(r.Approvals, gate.Approval{Plan: plan, Rung: rung, By: who, At: g.now(), Until: g.now().Add(time.Hour), Evidence: gate.Evidence{Kind: e.Kind}})
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

// fakePeople keeps accounts, sessions and credentials.
type fakePeople struct {
	mu       sync.Mutex
	now      func() time.Time
	secrets  map[string]string
	roles    map[string][]string
	until    map[string]time.Time
	sessions map[string]gate.Principal
	keys     map[string][]identity.Credential
	failures map[string]int
	n        int
	ended    []string
	down     error  // what Session says instead
	agent    string // what browsers call themselves
}

func newFakePeople(now func() time.Time) *fakePeople {
	return &fakePeople{now: now, secrets: map[string]string{}, roles: map[string][]string{}, until: map[string]time.Time{}, sessions: map[string]gate.Principal{},
		keys: map[string][]identity.Credential{}, failures: map[string]int{}}
}

func (p *fakePeople) add(name, password string, roles ...string) {
	p.secrets[name], p.roles[name] = password, roles
}

func (p *fakePeople) open(name string, s gate.Strength) identity.Session {
	p.n++
	token := fmt.Sprintf("session-%s-%d", name, p.n)
	who := gate.Principal{Person: name, WayIn: "console", Strength: s, Roles: p.roles[name], Until: p.until[name]}
	p.sessions[token] = who
	return identity.Session{Token: token, Principal: who, Expires: p.now().Add(8 * time.Hour)}
}

func (p *fakePeople) Session(_ context.Context, token string) (gate.Principal, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	who, ok := p.sessions[token]
	if p.down != nil {
		return who, p.down
	}
	if !ok {
		return who, gate.Fail(gate.ErrDenied, "Sign in.", "nobody is signed in here")
	}
	who.Roles = p.roles[who.Person]
	return who, nil
}

func (p *fakePeople) Password(_ context.Context, name, password string, _ identity.Remote) (identity.Session, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failures[name] >= 5 {
		return identity.Session{}, &identity.Locked{RetryAfter: 90 * time.Second, What: "this account"}
	}
	if want, ok := p.secrets[name]; !ok || want != password {
		p.failures[name]++
		return identity.Session{}, gate.Fail(gate.ErrDenied, "", "name or password is wrong")
	}
	return p.open(name, gate.StrengthSession), nil
}

func (p *fakePeople) PasskeyStart(context.Context) (json.RawMessage, string, error) {
	return json.RawMessage(`{"challenge":"AAAA"}`), "signin", nil
}

// PasskeyFinish takes {"person":"..."} for an answer.
func (p *fakePeople) PasskeyFinish(_ context.Context, ticket string, response json.RawMessage, _ identity.Remote) (identity.Session, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var a struct{ Person string }
	if json.Unmarshal(response, &a) != nil || ticket != "signin" || len(p.keys[a.Person]) == 0 {
		return identity.Session{}, gate.Fail(gate.ErrDenied, "", "the passkey was not accepted")
	}
	return p.open(a.Person, gate.StrengthPasskey), nil
}

func (p *fakePeople) SignOut(_ context.Context, token string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.sessions, token)
	p.ended = append(p.ended, token)
	return nil
}

func (p *fakePeople) EnrolStart(_ context.Context, _, code string) (json.RawMessage, string, error) {
	if code != "CODE" {
		return nil, "", gate.Fail(gate.ErrDenied, "Ask the administrator of the machine for one.", "that is not the one-time code")
	}
	return json.RawMessage(`{"challenge":"AAAA","user":{"id":"AA"}}`), "enrol", nil
}

func (p *fakePeople) EnrolFinish(ctx context.Context, session, _ string, _ json.RawMessage, name string) error {
	who, err := p.Session(ctx, session)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keys[who.Person] = append(p.keys[who.Person], identity.Credential{ID: fmt.Sprint("k", len(p.keys[who.Person])), Name: name, Enrolled: p.now(), MayApprove: p.now()})
	return nil
}

func (p *fakePeople) Credentials(_ context.Context, person string) ([]identity.Credential, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.keys[person]), nil
}

func (p *fakePeople) RemoveCredential(ctx context.Context, session, id string) error {
	who, err := p.Session(ctx, session)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keys[who.Person] = slices.DeleteFunc(p.keys[who.Person], func(k identity.Credential) bool { return k.ID == id })
	return nil
}

func (p *fakePeople) Accounts(context.Context) ([]*identity.Account, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []*identity.Account
	for name, roles := range p.roles {
		out = append(out, &identity.Account{Name: name, Roles: roles, Until: p.until[name]})
	}
	slices.SortFunc(out, func(a, b *identity.Account) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

func (p *fakePeople) SetRoles(_ context.Context, _ gate.Principal, name string, roles []string, until time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.roles[name], p.until[name] = roles, until
	return nil
}

func (p *fakePeople) Disable(_ context.Context, _ gate.Principal, name string, _ bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.roles, name)
	return nil
}

func (p *fakePeople) PasskeyProblem() error { return nil }

func (p *fakePeople) RequestOptions(_ context.Context, _ string, challenge []byte) (json.RawMessage, error) {
	return json.Marshal(map[string]any{"challenge": challenge, "userVerification": "required"})
}

func (p *fakePeople) RealmLogin(ctx context.Context, realm, name, password, totp string, from identity.Remote) (identity.Session, error) {
	if realm != "site" || totp != "123456" {
		return identity.Session{}, gate.Fail(gate.ErrDenied, "", "the realm said no")
	}
	return p.Password(ctx, name, password, from)
}

func (p *fakePeople) OIDCStart(_ context.Context, name string) (string, string, error) {
	if name != "keycloak" {
		return "", "", gate.Fail(gate.ErrInvalid, "", "there is no provider %q", name)
	}
	return "https://sso.example/auth?state=s", "away", nil
}

func (p *fakePeople) OIDCFinish(_ context.Context, ticket string, q url.Values, _ identity.Remote) (identity.Session, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ticket != "away" || q.Get("state") != "s" {
		return identity.Session{}, gate.Fail(gate.ErrDenied, "", "the answer is to another question")
	}
	return p.open("anna", gate.StrengthSession), nil
}

func (p *fakePeople) Access(_ context.Context, r *http.Request, _ identity.Remote) (identity.Session, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.Header.Get("Cf-Access-Jwt-Assertion") != "good" {
		return identity.Session{}, gate.Fail(gate.ErrDenied, "", "no assertion")
	}
	return p.open("anna", gate.StrengthSession), nil
}

func (p *fakePeople) VouchStart(context.Context, string, string) (json.RawMessage, string, error) {
	return json.RawMessage(`{"challenge":"AAAA"}`), "vouch", nil
}

func (p *fakePeople) VouchFinish(_ context.Context, _, ticket string, _ json.RawMessage) (string, error) {
	if ticket != "vouch" {
		return "", gate.Fail(gate.ErrDenied, "", "the ticket is none of ours")
	}
	return "CODE", nil
}

func (p *fakePeople) Invite(_ context.Context, _, voucher, name string) (string, error) {
	if voucher != "CODE" {
		return "", gate.Fail(gate.ErrDenied, "", "no voucher")
	}
	return "one-time-for-" + name, nil
}

func (p *fakePeople) Sessions(_ context.Context, person string) ([]identity.SessionInfo, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []identity.SessionInfo
	for _, who := range p.sessions {
		if who.Person == person {
			out = append(out, identity.SessionInfo{ID: "s" + person, Person: person, Method: "password", Created: p.now(), Seen: p.now(), IP: "192.0.2.1", UserAgent: p.agent})
			break
		}
	}
	return out, nil
}

func (p *fakePeople) EndSession(_ context.Context, _ gate.Principal, id string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = append(p.ended, id)
	return nil
}
