package gate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// people is a witness: sessions by token, and passkeys whose answer to a challenge is the challenge itself with a name.
type people struct {
	mu       sync.Mutex
	sessions map[string]Principal
	gone     map[string]bool // principals whose access has ended, by key
}

func newPeople() *people {
	p := &people{sessions: map[string]Principal{}, gone: map[string]bool{}}
	for _, name := range []string{"ann", "bob", "cyd"} {
		p.sessions["s-"+name] = Principal{Person: name, WayIn: "console", Strength: StrengthSession, Roles: []string{RoleApprover}}
	}
	p.sessions["s-vic"] = Principal{Person: "vic", WayIn: "console", Strength: StrengthSession, Roles: []string{RoleViewer}}
	return p
}

func (p *people) Session(_ context.Context, token string) (Principal, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	who, ok := p.sessions[token]
	if !ok {
		return Principal{}, errors.New("no such session")
	}
	return who, nil
}

func (p *people) Assertion(_ context.Context, person string, challenge []byte, response json.RawMessage) (Proof, error) {
	var r struct {
		Person string
		Signed []byte
	}
	if json.Unmarshal(response, &r) != nil || r.Person != person || !bytes.Equal(r.Signed, challenge) {
		return Proof{}, errors.New("the signature does not fit")
	}
	return Proof{Credential: "key-of-" + person}, nil
}

func (p *people) Standing(_ context.Context, who Principal) (Principal, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone[who.Key()] {
		return who, Fail(ErrDenied, "Sign in again.", "the access of %s has ended", who.Key())
	}
	return who, nil
}

func answer(person string, c *Challenge) json.RawMessage {
	b, _ := json.Marshal(map[string]any{"Person": person, "Signed": c.Bytes})
	return b
}

// peopleRig has a plan waiting for a hard stop.
func peopleRig(t *testing.T, least Rung) (*rig, *people, *PlanView) {
	t.Helper()
	s := newSite()
	s.status = "running"
	who := newPeople()
	r := newRigWith(t, newMemory(), s, func(c *Config) {
		c.Witness = who
		c.Link = func(plan string) string { return "https://castellan.example/plans/" + plan }
	})
	r.policy.highest, r.policy.least = RungTwoPasskeys, least
	out, err := r.do(t, "power", `{"guest":"101","action":"stop"}`)
	if err != nil || out.Status != StatusWaiting || out.Plan.Rung != max(least, RungPerson) {
		t.Fatalf("%+v %v", out, err)
	}
	if out.Plan.URL == "" || !strings.Contains(out.Next, out.Plan.URL) || out.Plan.Token != "" {
		t.Errorf("a caller is not told where a person approves: %+v", out)
	}
	return r, who, out.Plan
}

func (r *rig) sign(t *testing.T, session, person, plan string) Evidence {
	t.Helper()
	c, err := r.g.Challenge(context.Background(), session, plan, SaysApprove)
	if err != nil {
		t.Fatal(err)
	}
	return Evidence{Kind: "passkey", Session: session, Ticket: c.Ticket, Response: answer(person, c)}
}

func TestPersonApproves(t *testing.T) {
	ctx := context.Background()
	r, _, p := peopleRig(t, RungPerson)
	for _, e := range []Evidence{{Kind: "session"}, {Kind: "session", Session: "s-eve"}, {Kind: "dialog", Session: "s-ann"}, {Kind: "mandate", Session: "s-ann", Mandate: "m"}, {Kind: "none", Session: "s-ann"}} {
		_, err := r.g.Approve(ctx, p.ID, e)
		wantKind(t, err, ErrDenied)
	}
	_, err := r.g.Approve(ctx, p.ID, Evidence{Kind: "session", Session: "s-vic"})
	wantKind(t, err, ErrNotFound) // a viewer does not see the plans of others
	_, err = apply(t, r, p, nil)
	wantKind(t, err, ErrNeedsApproval)
	_, err = r.g.Confirm(ctx, agent, p.ID, Evidence{Kind: "terminal"}, nil)
	wantKind(t, err, ErrNeedsApproval)
	if v, err := r.g.Approve(ctx, p.ID, Evidence{Kind: "session", Session: "s-bob"}); err != nil || v.State != PlanApproved {
		t.Fatalf("%+v %v", v, err)
	}
	if len(r.site.sent) != 0 {
		t.Fatal("an approval started the plan")
	}
	out, err := apply(t, r, p, func(m map[string]string) { delete(m, "sentence"); delete(m, "token") })
	if err != nil || out.Status != StatusDone || len(r.site.sent) != 1 {
		t.Fatalf("%+v %v", out, err)
	}
	full, err := r.g.Receipt(ctx, agent, p.ID)
	if err != nil || len(full.Approvals) != 1 || full.Approvals[0].By.Person != "bob" || len(full.Records) != 3 {
		t.Errorf("%+v %v", full, err)
	}
}

func TestPasskeyApproves(t *testing.T) {
	ctx := context.Background()
	r, who, p := peopleRig(t, RungPasskey)
	_, err := r.g.Approve(ctx, p.ID, Evidence{Kind: "session", Session: "s-ann"})
	wantKind(t, err, ErrNeedsApproval)
	good := r.sign(t, "s-ann", "ann", p.ID)
	no, err := r.g.Challenge(ctx, "s-ann", p.ID, SaysDeny)
	if err != nil {
		t.Fatal(err)
	}
	other := r.sign(t, "s-bob", "bob", p.ID)
	for name, e := range map[string]Evidence{
		"another verdict":    {Kind: "passkey", Session: "s-ann", Ticket: no.Ticket, Response: answer("ann", no)},
		"another person":     {Kind: "passkey", Session: "s-ann", Ticket: other.Ticket, Response: other.Response},
		"no ticket":          {Kind: "passkey", Session: "s-ann", Response: good.Response},
		"a made-up ticket":   {Kind: "passkey", Session: "s-ann", Ticket: good.Ticket[:20] + "AAAA", Response: good.Response},
		"another's answer":   {Kind: "passkey", Session: "s-ann", Ticket: good.Ticket, Response: other.Response},
		"no answer":          {Kind: "passkey", Session: "s-ann", Ticket: good.Ticket},
		"no session":         {Kind: "passkey", Ticket: good.Ticket, Response: good.Response},
		"a session of other": {Kind: "passkey", Session: "s-bob", Ticket: good.Ticket, Response: good.Response},
	} {
		if v, err := r.g.Approve(ctx, p.ID, e); err == nil {
			t.Fatalf("%s was accepted: %+v", name, v)
		}
	}
	if v, err := r.g.Approve(ctx, p.ID, good); err != nil || v.State != PlanApproved {
		t.Fatalf("%+v %v", v, err)
	}
	if v, err := r.g.Approve(ctx, p.ID, good); err != nil || len(v.Approvals) != 1 {
		t.Errorf("the second of two tabs: %+v %v", v, err)
	}
	// The same answer for the next plan of the same thing.
	if out, err := apply(t, r, p, nil); err != nil || out.Status != StatusDone {
		t.Fatalf("%+v %v", out, err)
	}
	r.site.mu.Lock()
	r.site.status = "running"
	r.site.mu.Unlock()
	next, err := r.do(t, "power", `{"guest":"101","action":"stop"}`)
	if err != nil || next.Plan == nil || next.Plan.ID == p.ID {
		t.Fatalf("%+v %v", next, err)
	}
	_, err = r.g.Approve(ctx, next.Plan.ID, good)
	wantKind(t, err, ErrDenied)
	// Approved, but whoever asked has lost its access before it is carried out.
	if _, err := r.g.Approve(ctx, next.Plan.ID, r.sign(t, "s-bob", "bob", next.Plan.ID)); err != nil {
		t.Fatal(err)
	}
	who.mu.Lock()
	who.gone[agent.Key()] = true
	who.mu.Unlock()
	out, err := apply(t, r, next.Plan, nil)
	if err == nil && out.Status == StatusDone || len(r.site.sent) != 1 {
		t.Errorf("carried out for one whose access has ended: %+v", out)
	}
}

func TestTwoPeopleApprove(t *testing.T) {
	ctx := context.Background()
	r, _, p := peopleRig(t, RungTwoPasskeys)
	for range 2 { // one person twice is one person
		v, err := r.g.Approve(ctx, p.ID, r.sign(t, "s-ann", "ann", p.ID))
		if err != nil || v.State != PlanProposed || len(v.Approvals) != 1 {
			t.Fatalf("%+v %v", v, err)
		}
	}
	_, err := apply(t, r, p, nil)
	wantKind(t, err, ErrNeedsApproval)
	_, err = r.g.Approve(ctx, p.ID, Evidence{Kind: "session", Session: "s-bob"})
	wantKind(t, err, ErrNeedsApproval)
	if v, err := r.g.Approve(ctx, p.ID, r.sign(t, "s-bob", "bob", p.ID)); err != nil || v.State != PlanApproved {
		t.Fatalf("%+v %v", v, err)
	}
	if out, err := r.g.Apply(ctx, Principal{Person: "bob", WayIn: "console", Strength: StrengthSession, Roles: []string{RoleApprover}}, p.ID, nil); err != nil || out.Status != StatusDone {
		t.Errorf("%+v %v", out, err)
	}
}

// TestWhoRunsNow: who approved a plan may have it carried out without being an operator; another approver may not, and a
// refusal of who would carry it out leaves the plan to those who may.
func TestWhoRunsNow(t *testing.T) {
	ctx := context.Background()
	session := func(name string, roles ...string) Principal {
		return Principal{Person: name, WayIn: "console", Strength: StrengthSession, Roles: roles}
	}
	state := func(r *rig, p *PlanView, want PlanState) {
		t.Helper()
		if v, _, err := r.g.Show(ctx, agent, p.ID); err != nil || v.State != want || want == PlanApproved && len(r.site.sent) != 0 {
			t.Fatalf("the plan is %+v, not %s: %v", v, want, err)
		}
	}
	r, _, p := peopleRig(t, RungPerson)
	r.policy.mu.Lock()
	r.policy.roles = true
	r.policy.mu.Unlock()
	if _, err := r.g.Approve(ctx, p.ID, Evidence{Kind: "session", Session: "s-ann"}); err != nil {
		t.Fatal(err)
	}
	_, rec, err := r.g.Show(ctx, agent, p.ID)
	if err != nil {
		t.Fatal(err)
	}
	for who, may := range map[string]bool{"ann": true, "cyd": false} {
		if err := r.g.MayApply(ctx, session(who, RoleApprover), rec); (err == nil) != may {
			t.Errorf("%s: %v", who, err)
		}
	}
	_, err = r.g.Apply(ctx, session("cyd", RoleApprover), p.ID, nil)
	wantKind(t, err, ErrDenied)
	if e := AsError(err); !strings.Contains(e.Message, "cyd may not carry") || !strings.Contains(e.Hint, "The plan stays approved") {
		t.Errorf("%+v", e)
	}
	state(r, p, PlanApproved)
	_, err = r.g.Apply(ctx, Principal{Agent: "a", Person: "ann", WayIn: "mcp", Roles: []string{RoleApprover}}, p.ID, nil)
	wantKind(t, err, ErrNotFound) // an agent of the approver's is not the approver
	if out, err := r.g.Apply(ctx, session("ann", RoleApprover), p.ID, nil); err != nil || out.Status != StatusDone || len(r.site.sent) != 1 {
		t.Fatalf("%+v %v", out, err)
	}

	// Refused between the start and the first request: nothing was sent, and the requester carries it out.
	r, _, p = peopleRig(t, RungPerson)
	if _, err := r.g.Approve(ctx, p.ID, Evidence{Kind: "session", Session: "s-ann"}); err != nil {
		t.Fatal(err)
	}
	trace := r.g.c.Trace
	r.g.c.Trace = func(point Point) {
		if point == PointTaken {
			r.policy.mu.Lock()
			r.policy.shut = "cyd"
			r.policy.mu.Unlock()
		}
		trace(point)
	}
	if out, err := r.g.Apply(ctx, session("cyd", RoleOperator, RoleApprover), p.ID, nil); err != nil || out.Status == StatusDone || len(r.site.sent) != 0 {
		t.Fatalf("%+v %v", out, err)
	}
	state(r, p, PlanPaused)
	if out, err := apply(t, r, p, nil); err != nil || out.Status != StatusDone || len(r.site.sent) != 1 {
		t.Fatalf("%+v %v", out, err)
	}
}

// TestForgedApproval: whoever can write the database cannot approve.
func TestForgedApproval(t *testing.T) {
	for name, change := range map[string]func(*PlanRecord){
		"written by hand": func(r *PlanRecord) {
			r.Approvals = []Approval{{Plan: r.Plan.ID, Digest: r.Plan.Digest, Rung: RungTwoPasskeys, By: agent, At: time.Now(), Until: time.Now().Add(time.Hour)}}
		},
		"raised":           func(r *PlanRecord) { r.Approvals[0].Rung = RungTwoPasskeys },
		"of another":       func(r *PlanRecord) { r.Approvals[0].By.Person = "bob" },
		"longer":           func(r *PlanRecord) { r.Approvals[0].Until = time.Now().Add(time.Hour * 1000) },
		"of another plan":  func(r *PlanRecord) { r.Approvals[0].Plan = "p-other" },
		"without its seal": func(r *PlanRecord) { r.Approvals[0].Seal = nil },
	} {
		r, _, p := peopleRig(t, RungTwoPasskeys)
		if _, err := r.g.Approve(context.Background(), p.ID, r.sign(t, "s-ann", "ann", p.ID)); err != nil {
			t.Fatal(err)
		}
		err := r.store.Update(context.Background(), func(tx Tx) error {
			rec, err := tx.Plan(p.ID)
			if err != nil {
				return err
			}
			change(rec)
			rec.State = PlanApproved
			return tx.UpdatePlan(rec)
		})
		if err != nil {
			t.Fatal(err)
		}
		if out, err := apply(t, r, p, nil); err == nil && out.Status == StatusDone || len(r.site.sent) != 0 {
			t.Errorf("%s: carried out: %+v", name, out)
		}
	}
}

func TestPersonRefuses(t *testing.T) {
	ctx := context.Background()
	r, _, p := peopleRig(t, RungPerson)
	if err := r.g.Refuse(ctx, p.ID, "not today", Evidence{Session: "s-eve"}); err == nil {
		t.Fatal("nobody refused it")
	}
	if err := r.g.Refuse(ctx, p.ID, "not today", Evidence{Session: "s-bob"}); err != nil {
		t.Fatal(err)
	}
	_, err := r.g.Approve(ctx, p.ID, Evidence{Kind: "session", Session: "s-ann"})
	wantKind(t, err, ErrStale)
	v, _, err := r.g.Show(ctx, agent, p.ID)
	if err != nil || v.State != PlanDenied || !strings.Contains(v.Ended, "bob") || !strings.Contains(v.Ended, "not today") {
		t.Errorf("%+v %v", v, err)
	}
	if err := r.g.Refuse(ctx, p.ID, "", Evidence{Session: "s-bob"}); AsError(err).Kind != ErrStale {
		t.Errorf("refused twice: %v", err)
	}
}

// TestOneAccountHoldsAll: what people prove counts as a dialog there.
func TestOneAccountHoldsAll(t *testing.T) {
	s := newSite()
	s.status = "running"
	r := newRigWith(t, newMemory(), s, func(c *Config) { c.Witness = newPeople() })
	r.policy.highest, r.policy.standIn = RungDialog, RungDialog
	out, err := r.do(t, "power", `{"guest":"101","action":"stop"}`)
	if err != nil || out.Plan.Rung != RungDialog {
		t.Fatalf("%+v %v", out, err)
	}
	if v, err := r.g.Approve(context.Background(), out.Plan.ID, r.sign(t, "s-ann", "ann", out.Plan.ID)); err != nil || v.State != PlanApproved || !strings.HasPrefix(v.Approvals[0], "dialog by |ann (passkey)") {
		t.Errorf("%+v %v", v, err)
	}
}

func TestConsentFile(t *testing.T) {
	s := newSite()
	s.status = "running"
	left := map[string]bool{}
	r := newRigWith(t, newMemory(), s, func(c *Config) {
		c.Consent = func(p *Plan) bool { defer delete(left, p.Digest); return left[p.Digest] }
	})
	r.policy.standIn = RungDialog
	out, err := r.do(t, "power", `{"guest":"101","action":"stop"}`)
	if err != nil {
		t.Fatal(err)
	}
	_, err = apply(t, r, out.Plan, nil)
	wantKind(t, err, ErrNeedsApproval)
	left[out.Plan.Digest] = true
	if done, err := apply(t, r, out.Plan, nil); err != nil || done.Status != StatusDone || !slices.Contains(r.store.kinds(), "approval:dialog") {
		t.Errorf("%+v %v", done, err)
	}
	// It never stands for a person.
	r, _, p := peopleRig(t, RungPerson)
	r.g.c.Consent = func(*Plan) bool { return true }
	_, err = apply(t, r, p, nil)
	wantKind(t, err, ErrNeedsApproval)
}

func TestSwitches(t *testing.T) {
	ctx := context.Background()
	r := newRig(t, newMemory(), newSite())
	person := Principal{Person: "ann", Strength: StrengthPeer}
	root := Principal{Person: "root", Strength: StrengthAccount}
	r.policy.arming = true
	start := func() error { _, err := r.do(t, "power", `{"guest":"101","action":"start"}`); return err }
	wantKind(t, start(), ErrDenied)
	wantKind(t, r.g.Arm(ctx, person, time.Now().Add(time.Hour)), ErrDenied)
	wantKind(t, r.g.Arm(ctx, agent, time.Now().Add(time.Hour)), ErrDenied)
	wantKind(t, r.g.Arm(ctx, root, time.Now().Add(48*time.Hour)), ErrInvalid)
	wantKind(t, r.g.Kill(ctx, agent, true), ErrDenied)
	if err := errors.Join(r.g.Arm(ctx, root, time.Now().Add(time.Hour)), r.g.Kill(ctx, person, true)); err != nil {
		t.Fatal(err)
	}
	if s, err := r.g.Switches(ctx); err != nil || s.Killed == "" || s.ArmedUntil.IsZero() || !s.ArmingNeeded {
		t.Errorf("%+v %v", s, err)
	}
	wantKind(t, start(), ErrDenied)
	wantKind(t, r.g.Kill(ctx, person, false), ErrDenied)
	if err := errors.Join(r.g.Kill(ctx, root, false), start()); err != nil {
		t.Error(err)
	}
}

func TestMandate(t *testing.T) {
	ctx := context.Background()
	r, who, p := peopleRig(t, RungPasskey)
	m := Mandate{For: agent.Key(), Operations: []string{"power"}, Targets: []string{"pve1"}, Objects: []string{"guest/101"}, Args: map[string][]string{"action": {"stop"}},
		Count: 2, Until: time.Now().Add(time.Hour)}
	if len(r.site.Targets()) > 0 {
		m.Targets = []string{r.site.Targets()[0].Name}
	}
	grant := func(m Mandate, session, person string) (*Mandate, error) {
		c, err := r.g.ChallengeMandate(ctx, session, m)
		if err != nil {
			return nil, err
		}
		return r.g.Grant(ctx, m, Evidence{Kind: "passkey", Session: session, Ticket: c.Ticket, Response: answer(person, c)})
	}
	for name, change := range map[string]func(*Mandate){
		"no object": func(m *Mandate) { m.Objects = nil }, "every guest": func(m *Mandate) { m.Objects = []string{"guest/*"} },
		"unknown operation": func(m *Mandate) { m.Operations = []string{"x"} }, "no end": func(m *Mandate) { m.Until = time.Time{} },
		"too long": func(m *Mandate) { m.Until = time.Now().AddDate(1, 0, 0) }, "no count": func(m *Mandate) { m.Count = 0 }, "nobody": func(m *Mandate) { m.For = "|" },
	} {
		bad := m
		change(&bad)
		if _, err := grant(bad, "s-ann", "ann"); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	if _, err := grant(m, "s-vic", "vic"); err == nil {
		t.Error("a viewer gave a mandate")
	}
	c, err := r.g.ChallengeMandate(ctx, "s-ann", m)
	if err != nil {
		t.Fatal(err)
	}
	wider := m
	wider.Objects = []string{"guest/101", "guest/102"}
	if _, err := r.g.Grant(ctx, wider, Evidence{Kind: "passkey", Session: "s-ann", Ticket: c.Ticket, Response: answer("ann", c)}); err == nil {
		t.Error("the signature of another mandate was taken")
	}
	byPassword, err := r.g.Grant(ctx, m, Evidence{Kind: "session", Session: "s-ann"})
	if err != nil || byPassword.Rung != RungPerson {
		t.Fatalf("%+v %v", byPassword, err)
	}
	if out, err := r.do(t, "power", `{"guest":"101","action":"stop"}`); err != nil || out.Status != StatusWaiting || out.Plan.ID != p.ID {
		t.Fatalf("a mandate of rung person covered a plan that takes a passkey: %+v %v", out, err)
	}
	given, err := grant(m, "s-ann", "ann")
	if err != nil {
		t.Fatal(err)
	}
	again := func() {
		r.site.mu.Lock()
		r.site.status = "running"
		r.site.mu.Unlock()
	}
	if out, err := r.do(t, "power", `{"guest":"101","action":"stop"}`); err != nil || out.Status != StatusDone {
		t.Fatalf("%+v %v", out, err)
	}
	again()
	who.mu.Lock()
	who.gone["|ann"] = true
	who.mu.Unlock()
	if out, err := r.do(t, "power", `{"guest":"101","action":"stop"}`); err != nil || out.Status != StatusWaiting {
		t.Fatalf("the mandate of one who has gone: %+v %v", out, err)
	}
	who.mu.Lock()
	who.gone["|ann"] = false
	who.mu.Unlock()
	if out, err := r.g.Do(ctx, Call{Operation: "power", Args: json.RawMessage(`{"guest":"101","action":"stop"}`), Principal: Principal{Agent: "other", Person: "ann"}}, nil); err != nil || out.Status != StatusWaiting {
		t.Fatalf("another agent used it: %+v %v", out, err)
	}
	if out, err := r.do(t, "power", `{"guest":"101","action":"stop"}`); err != nil || out.Status != StatusDone {
		t.Fatalf("%+v %v", out, err)
	}
	again()
	if out, err := r.do(t, "power", `{"guest":"101","action":"stop"}`); err != nil || out.Status != StatusWaiting {
		t.Fatalf("a third run of two: %+v %v", out, err)
	}
	all, err := r.g.Mandates(ctx, Principal{Person: "bob", Strength: StrengthSession, Roles: []string{RoleApprover}})
	if err != nil || len(all) != 2 {
		t.Fatalf("%+v %v", all, err)
	}
	for _, x := range all {
		if x.ID == given.ID && len(x.Uses) != 2 {
			t.Errorf("uses %+v", x.Uses)
		}
	}
	if err := r.g.Revoke(ctx, "s-vic", given.ID); err == nil {
		t.Error("a viewer revoked it")
	}
	if err := r.g.Revoke(ctx, "s-bob", given.ID); err != nil {
		t.Error(err)
	}
	// A row written by hand is no mandate.
	r.store.mu.Lock()
	for k, d := range r.store.docs {
		d.Body = bytes.ReplaceAll(d.Body, []byte("mandate/"+d.ID+"/"), []byte("mandate/m-forged/"))
		r.store.docs[k] = d
	}
	r.store.mu.Unlock()
	if _, err := r.g.Mandates(ctx, Principal{Person: "bob", Strength: StrengthSession, Roles: []string{RoleApprover}}); err == nil {
		t.Error("a forged mandate was believed")
	}
}
