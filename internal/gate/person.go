package gate

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Challenge is what a passkey signs.
type Challenge struct {
	Bytes  []byte // for navigator.credentials.get
	Ticket string // comes back with the answer; good once, for five minutes
}

const (
	approvalPurpose = "castellan approval v1"
	mandatePurpose  = "castellan mandate v1"
	ticketLife      = 5 * time.Minute
)

// The verdicts that a person gives on a plan.
const (
	SaysApprove = "approve"
	SaysDeny    = "deny"
)

// ChallengeBytes is SHA-256 over purpose, verdict, plan (or mandate) id, its digest and the approver, each ended by a zero
// byte, and 32 random bytes.
func (a Assertion) ChallengeBytes() []byte {
	h := sha256.New()
	for _, s := range []string{a.Purpose, a.Verdict, a.Plan, a.Digest, a.Approver} {
		h.Write([]byte(s))
		h.Write([]byte{0})
	}
	h.Write(a.Random)
	return h.Sum(nil)
}

// ticket is what a challenge's Ticket holds, sealed.
type ticket struct {
	Assertion
	Expires time.Time `json:"expires"`
}

// Challenge makes what the person of a session signs to approve or deny a plan with a passkey.
func (g *Gate) Challenge(ctx context.Context, session, plan, verdict string) (*Challenge, error) {
	who, err := g.person(ctx, session)
	if err != nil {
		return nil, err
	}
	if verdict != SaysApprove && verdict != SaysApproveNewer && verdict != SaysDeny {
		return nil, Fail(ErrInvalid, "", "the verdict is approve or deny, not %q", clip(verdict, 40))
	}
	r, err := g.load(ctx, who, plan)
	if err != nil {
		return nil, err
	}
	if r.State != PlanProposed {
		return nil, Fail(ErrStale, "", "plan %s is %s", plan, r.State)
	}
	if verdict == SaysApproveNewer && !r.Plan.MayAllowNewer() {
		return nil, nothingNewer(plan)
	}
	return g.challenge(Assertion{Purpose: approvalPurpose, Verdict: verdict, Plan: plan, Digest: r.Plan.Digest, Approver: who.Person})
}

func (g *Gate) challenge(a Assertion) (*Challenge, error) {
	a.Random = make([]byte, 32)
	_, _ = rand.Read(a.Random) // never fails: crypto/rand ends the process instead
	text, err := json.Marshal(ticket{a, g.now().Add(ticketLife)})
	if err != nil {
		return nil, fmt.Errorf("make challenge: %w", err)
	}
	box, err := g.c.Sealer.Seal(text, "challenge")
	if err != nil {
		return nil, fmt.Errorf("make challenge: %w", err)
	}
	return &Challenge{Bytes: a.ChallengeBytes(), Ticket: base64.RawURLEncoding.EncodeToString(box)}, nil
}

// signed checks what came back of a challenge: it must be one of ours for exactly this, and the passkey must have signed it.
func (g *Gate) signed(ctx context.Context, want Assertion, e Evidence) (*Assertion, *Error) {
	refuse := func(format string, args ...any) *Error {
		return Fail(ErrDenied, "Load the page anew and sign again.", format, args...)
	}
	box, err := base64.RawURLEncoding.DecodeString(e.Ticket)
	if err != nil || len(e.Ticket) > 4096 {
		return nil, refuse("the challenge is none of ours")
	}
	text, err := g.c.Sealer.Open(box, "challenge")
	if err != nil {
		return nil, refuse("the challenge is none of ours")
	}
	var t ticket
	if json.Unmarshal(text, &t) != nil || len(t.Random) != 32 {
		return nil, refuse("the challenge is none of ours")
	}
	if !g.now().Before(t.Expires) {
		return nil, refuse("the challenge is older than %s", ticketLife)
	}
	if t.Purpose != want.Purpose || t.Verdict != want.Verdict || t.Plan != want.Plan || t.Digest != want.Digest || t.Approver != want.Approver {
		return nil, refuse("the challenge was for another %s, verdict or person", orText(map[string]string{approvalPurpose: "plan", mandatePurpose: "mandate"}[want.Purpose], "thing"))
	}
	a := t.Assertion
	if a.Proof, err = g.c.Witness.Assertion(ctx, a.Approver, a.ChallengeBytes(), e.Response); err != nil {
		var known *Error
		if errors.As(err, &known) {
			return nil, known
		}
		return nil, refuse("the passkey's answer was not accepted: %s", clip(err.Error(), 200))
	}
	return &a, nil
}

// nonce is what makes an assertion good once.
func (a Assertion) nonce() string { return "assertion/" + hex.EncodeToString(a.Random) }

// person is who signed in with a session; there is nobody without one.
func (g *Gate) person(ctx context.Context, session string) (Principal, error) {
	none := Fail(ErrDenied, "Sign in.", "nobody is signed in here")
	if g.c.Witness == nil || session == "" {
		return Principal{}, none
	}
	who, err := g.c.Witness.Session(ctx, session)
	if err != nil {
		var e *Error
		if errors.As(err, &e) {
			return Principal{}, e
		}
		none.Cause = err
		return Principal{}, none
	}
	if who.Person == "" || who.Agent != "" || who.Strength != StrengthSession && who.Strength != StrengthPasskey {
		return Principal{}, none
	}
	if !who.Until.IsZero() && !g.now().Before(who.Until) {
		return Principal{}, Fail(ErrDenied, "An administrator extends it.", "the access of %s has expired", who.Person)
	}
	return who, nil
}

// Approve takes a person's approval of a plan, by their session or by a passkey. It starts nothing.
func (g *Gate) Approve(ctx context.Context, plan string, e Evidence) (*PlanView, error) {
	who, err := g.person(ctx, e.Session)
	if err != nil {
		return nil, err
	}
	r, err := g.load(ctx, who, plan)
	if err != nil {
		return nil, err
	}
	given := Evidence{Kind: e.Kind, IP: e.IP, AllowNewer: e.AllowNewer}
	if e.AllowNewer && !r.Plan.MayAllowNewer() {
		return nil, nothingNewer(plan)
	}
	rung := RungPerson
	switch e.Kind {
	case "session":
	case "passkey":
		rung = RungPasskey
		a, refusal := g.signed(ctx, Assertion{Purpose: approvalPurpose, Verdict: e.Says(), Plan: plan, Digest: r.Plan.Digest, Approver: who.Person}, e)
		if refusal != nil {
			g.refusedApproval(ctx, &r.Plan, who, refusal)
			return nil, refusal
		}
		given.Passkey, who.Strength = a, StrengthPasskey
	default:
		return nil, Fail(ErrDenied, "", "%q is no evidence that a person can bring", clip(e.Kind, 40))
	}
	rung = min(rung, g.c.Policy.Limits().HighestRung)
	if err := g.approve(ctx, plan, who, rung, given, nil); err != nil {
		return nil, AsError(err)
	}
	if r, err = g.load(ctx, who, plan); err != nil {
		return nil, err
	}
	return g.show(r, ""), nil
}

func nothingNewer(plan string) *Error {
	return Fail(ErrInvalid, "Approve it without.", "plan %s installs no packages of which newer versions could be allowed", plan)
}

// refusedApproval records that somebody tried to approve and could not.
func (g *Gate) refusedApproval(ctx context.Context, p *Plan, who Principal, e *Error) {
	rec := g.planRecord(p, "refused", "approval_refused")
	rec.Actor, rec.Client, rec.WayIn = who.Key(), clip(who.Client, 80), who.WayIn
	rec.Parts["error"] = e.Message
	if err := g.append(ctx, rec); err != nil {
		g.c.Log.Warn("refusal not recorded", "error", err)
	}
}

// Refuse ends a plan that a person says no to. A session is enough: saying no only tightens.
func (g *Gate) Refuse(ctx context.Context, plan, why string, e Evidence) error {
	who, err := g.person(ctx, e.Session)
	if err != nil {
		return err
	}
	err = g.c.Store.Update(ctx, func(tx Tx) error {
		r, err := g.ownPlan(tx, who, plan)
		if err != nil {
			return err
		}
		if r.State != PlanProposed && r.State != PlanApproved {
			return Fail(ErrStale, "Look at the plan again.", "plan %s is %s and cannot be denied", plan, r.State)
		}
		r.State, r.Note, r.TokenHash, r.AskHash = PlanDenied, clip("denied by "+who.Person+": "+orText(why, "no reason given"), 400), "", ""
		if err := tx.UpdatePlan(r); err != nil {
			return err
		}
		if err := errors.Join(tx.Unlock(plan), tx.DropSealed(plan)); err != nil {
			return err
		}
		rec := g.planRecord(&r.Plan, "plan_end", "denied")
		rec.Actor, rec.WayIn = who.Key(), who.WayIn
		rec.Marks = map[string]string{"ip": e.IP}
		rec.Parts["reason"] = g.c.Sealer.Redact(r.Note)
		_, err = tx.Append(rec)
		return err
	})
	if err != nil {
		return ledgerDown(err)
	}
	return nil
}

// Apply carries out a plan that is approved or paused, for its requester or for a person: "run now".
func (g *Gate) Apply(ctx context.Context, who Principal, plan string, progress Progress) (*Outcome, error) {
	began := g.now()
	ctx, cancel := context.WithTimeout(ctx, g.c.CallLimit)
	defer cancel()
	out, err := g.carryOut(ctx, plan, who, began, progress)
	if err != nil {
		return nil, AsError(err)
	}
	out.Notices = g.notices(ctx)
	return out, nil
}

// Plans lists the plans that this principal may see, newest first.
func (g *Gate) Plans(ctx context.Context, who Principal, f PlanFilter) ([]*PlanRecord, string, error) {
	if f.Limit <= 0 {
		f.Limit = 50
	}
	var out []*PlanRecord
	for range 20 {
		var page []*PlanRecord
		err := g.c.Store.View(ctx, func(tx Tx) error {
			var err error
			page, f.Cursor, err = tx.ListPlans(f)
			return err
		})
		if err != nil {
			return nil, "", err
		}
		for _, r := range page {
			if mayRead(who, r) {
				out = append(out, r)
			}
		}
		if f.Cursor == "" || len(out) >= f.Limit {
			break
		}
	}
	return out, f.Cursor, nil
}

// Waiting lists the plans that wait for a person, oldest first.
func (g *Gate) Waiting(ctx context.Context) ([]*PlanRecord, error) {
	var out []*PlanRecord
	f := PlanFilter{States: []PlanState{PlanProposed}, Limit: 200}
	for range 50 {
		err := g.c.Store.View(ctx, func(tx Tx) error {
			page, next, err := tx.ListPlans(f)
			for _, r := range page {
				rung := max(r.Plan.Decision.Rung, r.Plan.Decision.Asked)
				if g.now().Before(r.Plan.Expires) && r.Plan.Decision.Verdict == VerdictNeeds && rung >= RungDialog {
					out = append(out, r)
				}
			}
			f.Cursor = next
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("list waiting plans: %w", err)
		}
		if f.Cursor == "" {
			break
		}
	}
	for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
		out[i], out[j] = out[j], out[i]
	}
	return out, nil
}
