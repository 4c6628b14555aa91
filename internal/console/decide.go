package console

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"castellan/internal/gate"
)

// runFor is how long the answer to "run now" waits for the end; the plan goes on without it.
const runFor = 4 * time.Second

// shownPlan loads the plan that a form is about and checks that the form was made of this very plan, by somebody who may
// decide. What it refuses it has answered.
func (c *Console) shownPlan(v *visit, verb string) (*gate.PlanView, *gate.PlanRecord, bool) {
	view, r, err := c.c.Gate.Show(v.ctx, v.who, v.r.PathValue("id"))
	if err != nil {
		c.fail(v, err)
		return nil, nil, false
	}
	refuse := func(status int, e *gate.Error) (*gate.PlanView, *gate.PlanRecord, bool) {
		c.drawPlan(v, status, view, r, e)
		return nil, nil, false
	}
	if !c.decides(v) {
		return refuse(http.StatusForbidden, gate.Fail(gate.ErrDenied, "Ask somebody who has one of these roles.", "Nothing was done: only an approver or administrator may %s a plan", verb))
	}
	if !same(v.r.PostForm.Get("digest"), r.Plan.Digest) {
		return refuse(http.StatusConflict, gate.Fail(gate.ErrStale, "Read it again as it stands below, then decide.",
			"Nothing was done: the page on which you pressed %s showed another plan than this one", verb))
	}
	if late := r.State != gate.PlanProposed || !c.now().Before(r.Plan.Expires); late && !(verb == gate.SaysDeny && r.State == gate.PlanApproved) {
		return refuse(http.StatusConflict, gate.Fail(gate.ErrStale, "", "%s", c.late(r, verb)))
	}
	return view, r, true
}

// late says how another was faster.
func (c *Console) late(r *gate.PlanRecord, verb string) string {
	state := r.State
	if state == gate.PlanProposed {
		state = gate.PlanExpired
	}
	text := "Your press of " + verb + " changed nothing: " + lowerFirst(stateText(state))
	if n := len(r.Approvals); n > 0 {
		a := r.Approvals[n-1]
		text += ". Approved by " + nameOf(a.By) + ", " + c.ago(a.At)
	}
	return text
}

func lowerFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToLower(s[:1]) + s[1:]
}

func upperFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

func same(a, b string) bool {
	return b != "" && subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1
}

// evidence is what the form brings: a passkey's answer, or the session itself.
func (c *Console) evidence(v *visit) (gate.Evidence, error) {
	f := v.r.PostForm
	e := gate.Evidence{Kind: "session", Session: v.token, AllowNewer: f.Get("newer") != ""}
	if ip := c.remote(v.r).IP; ip.IsValid() {
		e.IP = ip.String()
	}
	if f.Get("by") == "passkey" {
		e.Kind, e.Ticket, e.Response = "passkey", f.Get("ticket"), json.RawMessage(f.Get("response"))
		if e.Ticket == "" || !json.Valid(e.Response) {
			return e, gate.Fail(gate.ErrNeedsApproval, "Press the button again, with JavaScript allowed for this page.", "the passkey gave no answer")
		}
	}
	return e, nil
}

// sure is evidence that somebody else's program cannot bring who has only read the cookie of the session.
func (c *Console) sure(v *visit) (gate.Evidence, error) {
	e, err := c.evidence(v)
	if err != nil || e.Kind == "passkey" || !c.exposed {
		return e, err
	}
	err = c.proven(v)
	e.Session = v.token // of the sign-in that was the proof
	return e, err
}

func (c *Console) approve(v *visit) {
	view, r, ok := c.shownPlan(v, "approve")
	if !ok {
		return
	}
	e, err := c.sure(v)
	if err == nil {
		_, err = c.c.Gate.Approve(v.ctx, r.Plan.ID, e)
	}
	c.decided(v, view, r, err)
}

func (c *Console) deny(v *visit) {
	view, r, ok := c.shownPlan(v, "deny")
	if !ok {
		return
	}
	e, err := c.evidence(v)
	if err == nil {
		err = c.c.Gate.Refuse(v.ctx, r.Plan.ID, clipRunes(strings.TrimSpace(v.r.PostForm.Get("why")), 300), e)
	}
	c.decided(v, view, r, err)
}

// decided shows the plan as it stands now.
func (c *Console) decided(v *visit, view *gate.PlanView, r *gate.PlanRecord, err error) {
	if err == nil {
		c.to(v, "/plans/"+r.Plan.ID)
		return
	}
	if nowView, now, again := c.c.Gate.Show(v.ctx, v.who, r.Plan.ID); again == nil {
		view, r = nowView, now
	}
	e := gate.AsError(err)
	status := http.StatusForbidden
	switch e.Kind {
	case gate.ErrStale:
		status = http.StatusConflict
	case gate.ErrInvalid:
		status = http.StatusBadRequest
	case gate.ErrUnavailable:
		status = http.StatusServiceUnavailable
	case gate.ErrInternal:
		status = http.StatusInternalServerError
		c.log.Error("a decision failed", "plan", r.Plan.ID, "error", e.Message)
	}
	c.drawPlan(v, status, view, r, e)
}

// challenge gives a browser what a passkey must sign for this plan and verdict.
func (c *Console) challenge(v *visit) {
	_, r, err := c.c.Gate.Show(v.ctx, v.who, v.r.PathValue("id"))
	verdict := v.r.PostForm.Get("verdict")
	if verdict == gate.SaysApprove && v.r.PostForm.Get("newer") != "" {
		verdict = gate.SaysApproveNewer
	}
	switch {
	case err != nil:
	case !c.decides(v):
		err = gate.Fail(gate.ErrDenied, "", "only an approver or administrator may decide")
	case verdict != gate.SaysApprove && verdict != gate.SaysApproveNewer && verdict != gate.SaysDeny:
		err = gate.Fail(gate.ErrInvalid, "", "the verdict is neither approve nor deny")
	case !same(v.r.PostForm.Get("digest"), r.Plan.Digest):
		err = gate.Fail(gate.ErrStale, "Open the page again.", "the page showed another plan than this one")
	case r.State != gate.PlanProposed || !c.now().Before(r.Plan.Expires):
		err = gate.Fail(gate.ErrStale, "Open the page again.", "%s", c.late(r, verdict))
	}
	var ch *gate.Challenge
	var options json.RawMessage
	if err == nil {
		ch, err = c.c.Gate.Challenge(v.ctx, v.token, r.Plan.ID, verdict)
	}
	if err == nil {
		options, err = c.c.People.RequestOptions(v.ctx, v.who.Person, ch.Bytes)
	}
	if err != nil {
		c.failJSON(v, err)
		return
	}
	c.json(v, http.StatusOK, map[string]any{"ticket": ch.Ticket, "options": options})
}

func (c *Console) json(v *visit, status int, body any) {
	b, err := json.Marshal(body)
	if err != nil {
		status, b = http.StatusInternalServerError, []byte(`{"error":"the answer cannot be written"}`)
	}
	v.w.Header().Set("Content-Type", "application/json")
	v.w.WriteHeader(status)
	_, _ = v.w.Write(b) // the browser is gone
}

func (c *Console) failJSON(v *visit, err error) {
	e := gate.AsError(err)
	status := http.StatusForbidden
	switch e.Kind {
	case gate.ErrStale:
		status = http.StatusConflict
	case gate.ErrInvalid:
		status = http.StatusBadRequest
	case gate.ErrNotFound:
		status = http.StatusNotFound
	case gate.ErrUnavailable:
		status = http.StatusServiceUnavailable
	case gate.ErrInternal:
		status = http.StatusInternalServerError
	}
	if wait := waitOf(err); wait > 0 {
		status = http.StatusTooManyRequests
		c.retryAfter(v, wait)
	}
	c.json(v, status, map[string]string{"error": strings.TrimSpace(e.Message + ". " + e.Hint)})
}

// run carries an approved plan out. The gate goes on when the browser leaves.
func (c *Console) run(v *visit) {
	view, r, err := c.c.Gate.Show(v.ctx, v.who, v.r.PathValue("id"))
	if err != nil {
		c.fail(v, err)
		return
	}
	if !same(v.r.PostForm.Get("digest"), r.Plan.Digest) {
		c.drawPlan(v, http.StatusConflict, view, r, gate.Fail(gate.ErrStale, "Read it again as it stands below.", "Nothing was started: the page showed another plan than this one"))
		return
	}
	if r.State != gate.PlanApproved && r.State != gate.PlanPaused {
		c.drawPlan(v, http.StatusConflict, view, r, gate.Fail(gate.ErrStale, "", "%s", c.late(r, "run now")))
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(v.ctx), runFor)
	defer cancel()
	_, err = c.c.Gate.Apply(ctx, v.who, r.Plan.ID, nil)
	if err != nil && ctx.Err() != nil { // it was taken up, or the page tells that it was not
		err = nil
	}
	c.decided(v, view, r, err)
}
