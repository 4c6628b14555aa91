package gate

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Ask opens a dialog about a waiting plan: the way in shows the view to its user and brings the nonce back with
// Confirm. A nonce that was never asked for, or used, confirms nothing.
func (g *Gate) Ask(ctx context.Context, who Principal, id string) (*PlanView, string, error) {
	nonce, hash := g.c.Sealer.Token()
	var r *PlanRecord
	err := g.c.Store.Update(ctx, func(tx Tx) error {
		var err error
		if r, err = g.ownPlan(tx, who, id); err != nil {
			return err
		}
		if r.State != PlanProposed {
			return Fail(ErrStale, "show_plan tells how it went.", "plan %s is %s", id, r.State)
		}
		if r.Plan.Decision.Rung != RungDialog {
			return Fail(ErrNeedsApproval, g.next(r), "plan %s needs %s, not a dialog", id, r.Plan.Decision.Rung)
		}
		r.AskHash = hash
		return tx.UpdatePlan(r)
	})
	if err != nil {
		return nil, "", ledgerDown(err)
	}
	return g.show(r, ""), nonce, nil
}

// Confirm approves with evidence that a way in vouches for (a dialog's answer with its nonce, a yes on a terminal),
// then carries the plan out.
func (g *Gate) Confirm(ctx context.Context, who Principal, id string, e Evidence, progress Progress) (*Outcome, error) {
	began := g.now()
	ctx, cancel := context.WithTimeout(ctx, g.c.CallLimit)
	defer cancel()
	var rung Rung
	switch e.Kind {
	case "dialog", "terminal":
		rung = RungDialog
	default:
		return nil, Fail(ErrDenied, "", "%q is no evidence that a way in can bring", clip(e.Kind, 40))
	}
	if err := g.approve(ctx, id, who, rung, e, nil); err != nil {
		return nil, AsError(err)
	}
	out, err := g.carryOut(ctx, id, who, began, progress)
	if err != nil {
		return nil, AsError(err)
	}
	out.Notices = g.notices(ctx)
	return out, nil
}

// Decline withdraws a plan that a person said no to.
func (g *Gate) Decline(ctx context.Context, who Principal, id, why string) error {
	_, err := g.withdraw(ctx, who, id, why)
	return err
}

// ownPlan finds a plan that this principal may see: its own, or any for a person of the account.
func (g *Gate) ownPlan(tx Tx, who Principal, id string) (*PlanRecord, error) {
	r, err := tx.Plan(id)
	if errors.Is(err, ErrStoreNotFound) || err == nil && !mayRead(who, r) {
		return nil, Fail(ErrNotFound, "list_plans shows the plans.", "there is no plan %q", clip(id, 40))
	}
	return r, err
}

// mayRead: the requester, the person on whose behalf it was made, or one who oversees the plans of all.
func mayRead(who Principal, r *PlanRecord) bool {
	return who.Key() == r.Plan.Requester.Key() || who.Agent == "" && who.Person != "" && who.Person == r.Plan.Requester.Person || who.Oversees()
}

// approve checks the evidence against the rung that the plan needs and records the approval. token is nil for
// evidence that a way in vouches for.
func (g *Gate) approve(ctx context.Context, id string, who Principal, rung Rung, e Evidence, token *string) error {
	if token != nil {
		if err := g.untouched(ctx, id, who, rung); err != nil {
			return err
		}
	}
	var refusal *Error
	err := g.c.Store.Update(ctx, func(tx Tx) error {
		refusal = nil
		r, err := g.ownPlan(tx, who, id)
		if err != nil {
			return err
		}
		p := &r.Plan
		if token != nil { // what the plan did not ask for was not checked, so it proves nothing
			rung = min(rung, p.Decision.Rung)
		}
		switch {
		case r.State == PlanApproved || r.State == PlanPaused || r.State == PlanApplying:
			return nil // approved before; applying looks again at everything
		case r.State.Ended():
			return Fail(ErrStale, "show_plan tells how it went; plan anew for another run.", "plan %s is %s", id, r.State)
		case !g.now().Before(p.Expires):
			refusal = Fail(ErrStale, "Plan anew.", "plan %s expired at %s", id, p.Expires.Format(time.RFC3339))
			return g.expire(tx, r)
		}
		if !p.intact() {
			return Fail(ErrInternal, "Plan anew, and look at audit_verify.", "plan %s is not what its digest says", id)
		}
		if refusal = g.checkEvidence(r, rung, e, token); refusal != nil {
			rec := g.planRecord(p, "refused", "approval_refused")
			rec.Actor, rec.Client, rec.WayIn = who.Key(), clip(who.Client, 80), who.WayIn
			rec.Parts["error"] = refusal.Message
			_, err := tx.Append(rec)
			return err
		}
		d := g.c.Policy.Approve(ctx, PlanQuestion{Principal: p.Requester, Operation: p.Operation, Plan: p, Facts: p.Facts, Steps: p.Steps, At: g.now()}, who, rung)
		if d.Verdict == VerdictDeny {
			refusal = denied("approval of "+p.Operation, d)
			rec := g.planRecord(p, "refused", "approval_denied")
			rec.Actor, rec.Client, rec.WayIn = who.Key(), clip(who.Client, 80), who.WayIn
			rec.Parts["error"] = refusal.Message
			_, err := tx.Append(rec)
			return err
		}
		if e.Passkey != nil { // an assertion approves once, whatever else the row says
			if err := tx.UseNonce(e.Passkey.nonce(), g.now().Add(ticketLife)); err != nil {
				if errors.Is(err, ErrNonceUsed) {
					return Fail(ErrDenied, "Load the page anew and sign again.", "this answer of the passkey was used before")
				}
				return err
			}
		}
		switch e.Kind {
		case "mandate":
			m, err := g.spend(tx, e, p)
			if err != nil {
				return err
			}
			e.AllowNewer = m.AllowNewer && p.MayAllowNewer()
		case "session", "passkey":
		default: // nothing that the requester's side can bring
			e.AllowNewer = false
		}
		e.Nonce = "" // spent; only that there was one matters
		at := Approval{Plan: id, Digest: p.Digest, Rung: rung, By: who, At: g.now(), Until: g.now().Add(orElse(g.c.Policy.Limits().ApprovalTTL, 15*time.Minute)),
			Evidence: e, Stands: p.Decision.Asked > p.Decision.Rung}
		if i := slices.IndexFunc(r.Approvals, func(o Approval) bool {
			return o.By.Person == who.Person && o.Rung >= rung && g.now().Before(o.Until) && g.genuine(o)
		}); i >= 0 {
			if r.Approvals[i].Evidence.AllowNewer != e.AllowNewer {
				return Fail(ErrStale, "Deny the plan and have it made anew.", "%s has approved plan %s otherwise as to newer versions", who.Person, id)
			}
			return nil // said before
		}
		rec := g.planRecord(p, "approval", rung.String())
		rec.Actor, rec.Client, rec.WayIn = who.Key(), clip(who.Client, 80), who.WayIn
		rec.Marks = map[string]string{"evidence": e.Kind, "mandate": e.Mandate, "ip": e.IP}
		if e.AllowNewer {
			rec.Marks["allow_newer"] = "1"
		}
		if e.Passkey != nil {
			rec.Marks["credential"] = e.Passkey.Proof.Credential
			if rec.Marks["assertion"], err = Digest(e.Passkey); err != nil {
				return err
			}
			text, err := Canonical(e.Passkey)
			if err != nil {
				return err
			}
			rec.Parts["assertion"] = string(text)
		}
		if at.Record, err = tx.Append(rec); err != nil {
			return err
		}
		if at.Seal, err = g.sealApproval(at); err != nil {
			return err
		}
		r.Approvals = append(slices.Clone(r.Approvals), at)
		if p.Decision.Rung == RungNone || g.reached(r) >= p.Decision.Rung {
			r.State, r.TokenHash, r.AskHash = PlanApproved, "", ""
		}
		return tx.UpdatePlan(r)
	})
	if err != nil {
		return ledgerDown(err)
	}
	if refusal != nil {
		return refusal
	}
	g.c.Trace(PointApproved)
	return nil
}

// sealApproval makes the approval's seal: only this installation can, and it fits no other plan or digest.
func (g *Gate) sealApproval(a Approval) ([]byte, error) {
	a.Seal = nil
	digest, err := Digest(a)
	if err != nil {
		return nil, fmt.Errorf("seal approval: %w", err)
	}
	box, err := g.c.Sealer.Seal([]byte(digest), "approval/"+a.Plan)
	if err != nil {
		return nil, fmt.Errorf("seal approval: %w", err)
	}
	return box, nil
}

// genuine says whether an approval that comes back from the store is one that the gate wrote.
func (g *Gate) genuine(a Approval) bool {
	box := a.Seal
	a.Seal = nil
	digest, err := Digest(a)
	if err != nil || len(box) == 0 {
		return false
	}
	was, err := g.c.Sealer.Open(box, "approval/"+a.Plan)
	return err == nil && subtle.ConstantTimeCompare(was, []byte(digest)) == 1
}

// reached is the rung that a plan's approvals come to now.
func (g *Gate) reached(r *PlanRecord) Rung {
	rung, _ := g.heldAt(r, func(a Approval) time.Time { return a.Until })
	return rung
}

// heldAt is the rung that the approvals come to which hold now; false when none does. Two people with a passkey each make
// the highest.
func (g *Gate) heldAt(r *PlanRecord, until func(Approval) time.Time) (Rung, bool) {
	best, held := RungNone, false
	signers := map[string]bool{}
	for _, a := range r.Approvals {
		if a.Plan != r.Plan.ID || a.Digest != r.Plan.Digest || !g.now().Before(until(a)) || !g.genuine(a) {
			continue
		}
		best, held = max(best, a.Rung), true
		if a.Rung == RungPasskey && a.Evidence.Passkey != nil {
			signers[a.By.Person] = true
		}
	}
	if len(signers) >= 2 {
		best = max(best, RungTwoPasskeys)
	}
	return best, held
}

// expire ends a plan that nobody approved in time; its sealed secrets go with it.
func (g *Gate) expire(tx Tx, r *PlanRecord) error {
	r.State, r.Note, r.TokenHash, r.AskHash = PlanExpired, "nobody approved it in time", "", ""
	if err := tx.UpdatePlan(r); err != nil {
		return err
	}
	if err := tx.DropSealed(r.Plan.ID); err != nil {
		return err
	}
	_, err := tx.Append(g.planRecord(&r.Plan, "plan_end", "expired"))
	return err
}

// untouched refuses a plan that was made before its requester read free text of outsiders, where policy asks more of one
// that was made after.
func (g *Gate) untouched(ctx context.Context, id string, who Principal, rung Rung) error {
	r, err := g.load(ctx, who, id)
	if err != nil {
		return err
	}
	p := r.Plan
	if r.State != PlanProposed || p.Facts.Tainted || !g.isTainted(ctx, p.Requester) {
		return nil
	}
	p.Facts.Tainted = true
	d, err := g.decide(ctx, &p, p.Requester)
	if err != nil {
		return err
	}
	if d.Verdict == VerdictDeny {
		return denied(p.Operation, d)
	}
	if d.Rung > max(rung, p.Decision.Rung) {
		return Fail(ErrStale, "Make the same call again for a plan that says so.",
			"plan %s needs %s now, since text of outsiders was read after it was made", id, d.Rung)
	}
	return nil
}

// checkEvidence says what is missing for the rung that this plan needs; nil when nothing is.
func (g *Gate) checkEvidence(r *PlanRecord, rung Rung, e Evidence, token *string) *Error {
	p := &r.Plan
	need := p.Decision.Rung
	fail := func(format string, args ...any) *Error {
		out := Fail(ErrNeedsApproval, g.next(r), format, args...)
		out.Operation = p.Operation
		return out
	}
	if p.Decision.Verdict == VerdictDeny || need >= RungDenied {
		return denied(p.Operation, p.Decision)
	}
	if e.Kind == "dialog" && !matches(g.c.Sealer.HashToken(e.Nonce), r.AskHash) {
		return fail("plan %s was not shown in a dialog, or its answer was used before", p.ID)
	}
	if rung < need && need != RungNone && !(need == RungTwoPasskeys && rung == RungPasskey) {
		if need > RungPhrase || token == nil {
			return fail("plan %s needs %s; a repeated call cannot give that", p.ID, need)
		}
	}
	if token == nil { // a way in vouches for the evidence
		return nil
	}
	if need == RungNone {
		return nil
	}
	if *token == "" && e.Sentence == "" {
		return fail("plan %s needs its sentence word for word and its one-use token", p.ID)
	}
	if !matches(g.c.Sealer.HashToken(*token), r.TokenHash) {
		return fail("the token does not belong to plan %s, was used, or was replaced by a newer one", p.ID)
	}
	if e.Sentence != p.Sentence {
		return fail("the sentence is not that of plan %s, which is: %s", p.ID, p.Sentence)
	}
	if need == RungPhrase && e.Phrase != p.Phrase {
		return fail("plan %s needs the literal phrase %q", p.ID, p.Phrase)
	}
	return nil
}

func matches(hash, want string) bool {
	return want != "" && subtle.ConstantTimeCompare([]byte(hash), []byte(want)) == 1
}

// withdraw ends a plan that has not begun, or one that is paused.
func (g *Gate) withdraw(ctx context.Context, who Principal, id, why string) (*PlanRecord, error) {
	var r *PlanRecord
	err := g.c.Store.Update(ctx, func(tx Tx) error {
		var err error
		if r, err = g.ownPlan(tx, who, id); err != nil {
			return err
		}
		switch r.State {
		case PlanProposed, PlanApproved, PlanPaused:
		default:
			return Fail(ErrStale, "show_plan tells how it went.", "plan %s is %s and cannot be withdrawn", id, r.State)
		}
		for _, s := range r.Steps {
			if s.State == StepStarted || s.State == StepWaiting {
				return Fail(ErrStale, "show_plan settles it by reading.", "a step of plan %s was sent and is not settled yet", id)
			}
		}
		r.State, r.Note, r.TokenHash, r.AskHash = PlanWithdrawn, clip(orText(why, "withdrawn"), 300), "", ""
		if err := tx.UpdatePlan(r); err != nil {
			return err
		}
		if err := tx.Unlock(id); err != nil {
			return err
		}
		if err := tx.DropSealed(id); err != nil {
			return err
		}
		rec := g.planRecord(&r.Plan, "plan_end", "withdrawn")
		rec.Actor = who.Key()
		rec.Parts["reason"] = g.c.Sealer.Redact(r.Note)
		_, err = tx.Append(rec)
		return err
	})
	if err != nil {
		return nil, ledgerDown(err)
	}
	return r, nil
}

func orText(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// desk is what control operations get: the caller's plans, and the doors to approve and apply them.
type desk struct {
	*view
	call     Call
	progress Progress
	began    time.Time
}

func (d *desk) Show(ctx context.Context, id string) (*PlanView, *PlanRecord, error) {
	r, err := d.g.load(ctx, d.principal, id)
	if err != nil {
		return nil, nil, err
	}
	if d.g.settle(ctx, r) {
		if r, err = d.g.Wait(ctx, d.principal, id, 5*time.Second); err != nil {
			return nil, nil, err
		}
	}
	return d.g.show(r, ""), r, nil
}

func (d *desk) List(ctx context.Context, f PlanFilter) ([]*PlanRecord, string, error) {
	if d.principal.Agent != "" {
		f.Requester = d.principal.Key()
	}
	var out []*PlanRecord
	var cursor string
	err := d.g.c.Store.View(ctx, func(tx Tx) error {
		var err error
		out, cursor, err = tx.ListPlans(f)
		return err
	})
	return out, cursor, err
}

// Apply takes only what a caller can say; stronger evidence comes through Confirm.
func (d *desk) Apply(ctx context.Context, id string, e Evidence, token string) (*Outcome, error) {
	given := Evidence{Kind: "restated", Sentence: e.Sentence}
	rung := RungRestated
	if e.Phrase != "" {
		given.Kind, given.Phrase, rung = "phrase", e.Phrase, RungPhrase
	}
	if e.Sentence == "" && token == "" {
		given.Kind, rung = "none", RungNone
	}
	took, err := d.g.consented(ctx, d.principal, id)
	if err != nil {
		return nil, err
	}
	if !took {
		err = d.g.approve(ctx, id, d.principal, rung, given, &token)
	}
	if err != nil {
		return nil, err
	}
	return d.g.carryOut(ctx, id, d.principal, d.began, d.progress)
}

// consented approves a plan that needs a dialog by the consent file that a person left for it.
func (g *Gate) consented(ctx context.Context, who Principal, id string) (bool, error) {
	if g.c.Consent == nil {
		return false, nil
	}
	r, err := g.load(ctx, who, id)
	if err != nil || r.State != PlanProposed || r.Plan.Decision.Rung != RungDialog || !g.c.Consent(&r.Plan) {
		return false, err
	}
	return true, g.approve(ctx, id, who, RungDialog, Evidence{Kind: "consent_file"}, nil)
}

func (d *desk) Withdraw(ctx context.Context, id, why string) (*Outcome, error) {
	r, err := d.g.withdraw(ctx, d.principal, id, why)
	if err != nil {
		return nil, err
	}
	return &Outcome{Status: StatusAnswer, Plan: d.g.show(r, ""), Next: "The plan is withdrawn. " + sentSoFar(r)}, nil
}

func (d *desk) Wait(ctx context.Context, id string, limit time.Duration) (*PlanRecord, error) {
	return d.g.wait(ctx, d.principal, id, limit, d.progress)
}

func (d *desk) Operations() []*Operation { return d.g.Listed(context.Background(), d.principal) }

func (d *desk) Shown(operation string) bool {
	return d.call.Shown == nil || d.call.Shown(operation)
}

func (d *desk) Status(ctx context.Context) (map[string]Decision, error) {
	out := map[string]Decision{}
	for _, o := range d.g.sorted {
		if o.Effect == EffectRead {
			continue
		}
		if q := d.g.offers(ctx, o, d.principal); q.Verdict == VerdictDeny {
			out[o.Name] = q
		}
	}
	return out, nil
}

func (g *Gate) load(ctx context.Context, who Principal, id string) (*PlanRecord, error) {
	var r *PlanRecord
	err := g.c.Store.View(ctx, func(tx Tx) error {
		var err error
		r, err = g.ownPlan(tx, who, id)
		return err
	})
	if err != nil {
		var e *Error
		if errors.As(err, &e) {
			return nil, e
		}
		return nil, fmt.Errorf("load plan: %w", err)
	}
	return r, nil
}

func sentSoFar(r *PlanRecord) string {
	n := 0
	for _, s := range r.Steps {
		if s.State != StepPending && s.State != StepSkipped {
			n++
		}
	}
	if n == 0 {
		return "Nothing has changed."
	}
	return fmt.Sprintf("%d of its %d steps had been sent.", n, len(r.Steps))
}
