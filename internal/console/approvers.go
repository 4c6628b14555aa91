package console

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"castellan/internal/gate"
)

type enrolPage struct {
	Keys    []Credential
	Problem string
	Hint    string
	Done    string
	Proof   string
	Ready   bool // one of them may approve now
}

func (c *Console) drawEnrol(v *visit, status int, p enrolPage) {
	keys, err := c.c.People.Credentials(v.ctx, v.who.Person)
	if err != nil {
		c.fail(v, err)
		return
	}
	p.Keys, p.Ready, p.Proof = keys, c.usable(keys), c.proof(v)
	c.draw(v, status, "enrol", sheet{Title: "Your passkeys", At: "/enrol", Script: true, Body: p})
}

func (c *Console) enrolPage(v *visit) { c.drawEnrol(v, http.StatusOK, enrolPage{}) }

func (c *Console) enrolStart(v *visit) {
	options, ticket, err := c.c.People.EnrolStart(v.ctx, v.token, strings.TrimSpace(v.r.PostForm.Get("code")))
	if err != nil {
		c.failJSON(v, err)
		return
	}
	c.json(v, http.StatusOK, map[string]any{"ticket": ticket, "options": options})
}

func (c *Console) enrolFinish(v *visit) {
	f := v.r.PostForm
	name := clipRunes(strings.TrimSpace(f.Get("name")), 60)
	if f.Get("ticket") == "" || !json.Valid([]byte(f.Get("response"))) {
		c.drawEnrol(v, http.StatusBadRequest, enrolPage{Problem: "The passkey gave no answer. Nothing was enrolled.", Hint: "Press the button again, with JavaScript allowed for this page."})
		return
	}
	if err := c.c.People.EnrolFinish(v.ctx, v.token, f.Get("ticket"), json.RawMessage(f.Get("response")), name); err != nil {
		e := gate.AsError(err)
		c.drawEnrol(v, http.StatusForbidden, enrolPage{Problem: e.Message + ". Nothing was enrolled.", Hint: e.Hint})
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
		e := gate.AsError(err)
		status := http.StatusForbidden
		if waitOf(err) > 0 {
			status = http.StatusTooManyRequests
		}
		c.drawEnrol(v, status, enrolPage{Problem: e.Message + ". Nothing was removed.", Hint: e.Hint})
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
}

type accountLine struct {
	Account
	Approves bool
	Ended    bool
	Keys     []Credential
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
		if l.Keys, err = c.c.People.Credentials(v.ctx, a.Name); err != nil {
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
	c.account(v, func() error { return c.c.People.Disable(v.ctx, v.who, v.r.PostForm.Get("name")) })
}
