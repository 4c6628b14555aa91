package console

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"castellan/internal/gate"
	"castellan/internal/identity"
)

type enrolPage struct {
	Keys     []keyShown
	Sessions []identity.SessionInfo
	Voucher  string // lets the person of this session enrol, once
	NoKeys   string // why there can be none here
	Problem  string
	Hint     string
	Proof    string
}

type keyShown struct {
	identity.Credential
	Waits bool
}

func (c *Console) keysOf(v *visit, person string) ([]keyShown, error) {
	keys, err := c.c.People.Credentials(v.ctx, person)
	if err != nil {
		return nil, err
	}
	var out []keyShown
	for _, k := range keys {
		out = append(out, keyShown{k, k.MayApprove.After(c.now())})
	}
	return out, nil
}

func (c *Console) drawEnrol(v *visit, status int, p enrolPage) {
	var err error
	if v.in() {
		if p.Keys, err = c.keysOf(v, v.who.Person); err == nil {
			p.Sessions, err = c.c.People.Sessions(v.ctx, v.who.Person)
		}
		if err != nil {
			c.fail(v, err)
			return
		}
		p.Proof = c.proof(v)
	}
	if err := c.c.People.PasskeyProblem(); err != nil {
		p.NoKeys = gate.AsError(err).Message
	}
	c.draw(v, status, "enrol", sheet{Title: "Your passkeys", At: "/enrol", Script: true, Body: p})
}

func (c *Console) enrolPage(v *visit) { c.drawEnrol(v, http.StatusOK, enrolPage{}) }

func (c *Console) enrolFailed(v *visit, err error, done string) {
	e := gate.AsError(err)
	status := http.StatusForbidden
	switch {
	case waitOf(err) > 0:
		status = http.StatusTooManyRequests
		c.retryAfter(v, waitOf(err))
	case e.Kind == gate.ErrInvalid:
		status = http.StatusBadRequest
	case e.Kind == gate.ErrUnavailable:
		status = http.StatusServiceUnavailable
	}
	c.drawEnrol(v, status, enrolPage{Problem: e.Message + ". " + done, Hint: e.Hint})
}

func (c *Console) enrolStart(v *visit) {
	options, ticket, err := c.c.People.EnrolStart(v.ctx, v.token, strings.TrimSpace(v.r.PostForm.Get("code")))
	c.ceremony(v, options, ticket, err)
}

func (c *Console) ceremony(v *visit, options json.RawMessage, ticket string, err error) {
	if err != nil {
		c.failJSON(v, err)
		return
	}
	c.json(v, http.StatusOK, map[string]any{"ticket": ticket, "options": options})
}

// response is what the page's script brings from a passkey.
func response(v *visit) (ticket string, answer json.RawMessage, err error) {
	ticket, answer = v.r.PostForm.Get("ticket"), json.RawMessage(v.r.PostForm.Get("response"))
	if ticket == "" || !json.Valid(answer) {
		return "", nil, gate.Fail(gate.ErrInvalid, "Press the button again, with JavaScript allowed for this page.", "the passkey gave no answer")
	}
	return ticket, answer, nil
}

func (c *Console) enrolFinish(v *visit) {
	ticket, answer, err := response(v)
	if err == nil {
		err = c.c.People.EnrolFinish(v.ctx, v.token, ticket, answer, clipRunes(strings.TrimSpace(v.r.PostForm.Get("name")), 60))
	}
	if err != nil {
		c.enrolFailed(v, err, "Nothing was enrolled.")
		return
	}
	if !v.in() { // it is the way in now
		c.to(v, "/signin?next=/enrol")
		return
	}
	c.to(v, "/enrol")
}

// vouchStart begins the confirmation that somebody, oneself or another, may enrol a passkey.
func (c *Console) vouchStart(v *visit) {
	options, ticket, err := c.c.People.VouchStart(v.ctx, v.token, v.r.PostForm.Get("name"))
	c.ceremony(v, options, ticket, err)
}

func (c *Console) vouch(v *visit) {
	ticket, answer, err := response(v)
	var voucher string
	if err == nil {
		voucher, err = c.c.People.VouchFinish(v.ctx, v.token, ticket, answer)
	}
	if err != nil {
		c.enrolFailed(v, err, "Nothing was enrolled.")
		return
	}
	c.drawEnrol(v, http.StatusOK, enrolPage{Voucher: voucher})
}

// invite shows a one-time code for another person, this once.
func (c *Console) invite(v *visit) {
	name := v.r.PostForm.Get("name")
	ticket, answer, err := response(v)
	if !c.administers(v) {
		err = gate.Fail(gate.ErrDenied, "Ask an administrator.", "only an administrator may do this")
	}
	var voucher, code string
	if err == nil {
		voucher, err = c.c.People.VouchFinish(v.ctx, v.token, ticket, answer)
	}
	if err == nil {
		code, err = c.c.People.Invite(v.ctx, v.token, voucher, name)
	}
	if err != nil {
		e := gate.AsError(err)
		c.drawApprovers(v, http.StatusForbidden, approversPage{Problem: e.Message + ". No code was made.", Hint: e.Hint})
		return
	}
	c.drawApprovers(v, http.StatusOK, approversPage{Code: code, CodeFor: name})
}

// endSession signs out elsewhere; it only takes away.
func (c *Console) endSession(v *visit) {
	if err := c.c.People.EndSession(v.ctx, v.who, v.r.PostForm.Get("id")); err != nil {
		c.enrolFailed(v, err, "Nothing was ended.")
		return
	}
	c.to(v, "/enrol")
}

// removePasskey takes one of one's own away. It wants a fresh proof: whoever removes the last one can approve less, and
// whoever borrowed the browser must not.
func (c *Console) removePasskey(v *visit) {
	err := c.proven(v)
	if err == nil {
		err = c.c.People.RemoveCredential(v.ctx, v.token, v.r.PostForm.Get("id"))
	}
	if err != nil {
		c.enrolFailed(v, err, "Nothing was removed.")
		return
	}
	c.to(v, "/enrol")
}

type approversPage struct {
	Accounts []accountLine
	Roles    []string
	Problem  string
	Hint     string
	Proof    string
	Code     string // one-time, for CodeFor
	CodeFor  string
}

type accountLine struct {
	*identity.Account
	Approves bool
	Ended    bool
	Keys     []keyShown
}

func (c *Console) drawApprovers(v *visit, status int, p approversPage) {
	if !c.decides(v) {
		c.refuse(v, http.StatusForbidden, "Only approvers and administrators see this page", "Your own passkeys are under Passkeys.")
		return
	}
	accounts, err := c.c.People.Accounts(v.ctx)
	if err != nil {
		c.fail(v, err)
		return
	}
	for _, a := range accounts {
		l := accountLine{Account: a, Ended: a.Disabled || !a.Until.IsZero() && !c.now().Before(a.Until)}
		if l.Keys, err = c.keysOf(v, a.Name); err != nil {
			c.fail(v, err)
			return
		}
		for _, r := range a.Roles {
			l.Approves = l.Approves || r == gate.RoleApprover || r == gate.RoleAdministrator
		}
		p.Accounts = append(p.Accounts, l)
	}
	p.Roles, p.Proof = gate.Roles(), c.proof(v)
	c.draw(v, status, "approvers", sheet{Title: "Approvers", At: "/approvers", Script: true, Body: p})
}

func (c *Console) approvers(v *visit) { c.drawApprovers(v, http.StatusOK, approversPage{}) }

// onlyAdministrator runs f for an administrator who has just proven to be one.
func (c *Console) onlyAdministrator(v *visit, f func() error) error {
	if !c.administers(v) {
		return gate.Fail(gate.ErrDenied, "Ask an administrator.", "only an administrator may do this")
	}
	if err := c.proven(v); err != nil {
		return err
	}
	return f()
}

func (c *Console) account(v *visit, f func() error) {
	if err := c.onlyAdministrator(v, f); err != nil {
		e := gate.AsError(err)
		status := http.StatusForbidden
		if waitOf(err) > 0 {
			status = http.StatusTooManyRequests
		} else if e.Kind == gate.ErrInvalid {
			status = http.StatusBadRequest
		}
		c.drawApprovers(v, status, approversPage{Problem: e.Message + ". Nothing was changed.", Hint: e.Hint})
		return
	}
	c.to(v, "/approvers")
}

func (c *Console) setRoles(v *visit) {
	c.account(v, func() error {
		f := v.r.PostForm
		var until time.Time
		if text := f.Get("until"); text != "" {
			var err error
			if until, err = time.Parse("2006-01-02T15:04", text); err != nil {
				return gate.Fail(gate.ErrInvalid, "Give it as 2026-01-31T18:00, or leave it empty.", "the time until which the roles hold cannot be read")
			}
		}
		return c.c.People.SetRoles(v.ctx, v.who, f.Get("name"), f["role"], until)
	})
}

func (c *Console) disable(v *visit) {
	c.account(v, func() error {
		return c.c.People.Disable(v.ctx, v.who, v.r.PostForm.Get("name"), v.r.PostForm.Get("to") != "open")
	})
}
