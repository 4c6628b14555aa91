package console

import (
	"errors"
	"net/http"
	"net/url"

	"castellan/internal/gate"
	"castellan/internal/oauth"
)

type consentPage struct {
	*oauth.Asked
	Scopes []scopeShown
	Person string
	App    bool   // the answer goes to a program, not to a web site
	Alone  bool   // nobody vouches for the client
	Proof  string // what a yes needs beside the session
}

type scopeShown struct {
	Scope, Text string
	Known       bool
	Optional    bool
	Grave       bool
}

// scopeTexts are the scopes in plain words. None ever lets a client approve.
func scopeText(scope string) scopeShown {
	switch scope {
	case "read":
		return scopeShown{scope, "See what there is: guests, nodes, storages, logs, plans. It changes nothing.", true, false, false}
	case "operate":
		return scopeShown{scope, "Ask for changes in your name. Each becomes a plan; what policy wants approved still waits for a person.", true, true, true}
	case "offline_access":
		return scopeShown{scope, "Stay connected when you are not there, until you revoke it under Clients.", true, true, false}
	}
	return scopeShown{Scope: scope, Text: "This page does not know what that means."}
}

// authorize asks the person whether a client may act for them.
func (c *Console) authorize(v *visit) {
	if c.c.OAuth == nil {
		c.refuse(v, http.StatusNotFound, "Clients cannot connect here", "This installation has no authorization server.")
		return
	}
	from := c.remote(v.r)
	asked, err := c.c.OAuth.Authorize(v.ctx, v.r.URL.Query(), oauth.Remote{IP: from.IP, UserAgent: from.UserAgent})
	var back interface{ Redirect() string }
	switch {
	case errors.As(err, &back) && back.Redirect() != "":
		c.to(v, back.Redirect())
		return
	case err != nil:
		c.fail(v, err)
		return
	}
	if !c.exposed { // else a consent that is remembered would go to whoever has the cookie
		address, ok, err := c.c.OAuth.Recall(v.ctx, asked.Ticket, v.who)
		if err != nil {
			c.fail(v, err)
			return
		}
		if ok { // a setting remembers consents, and this is the very same
			c.to(v, address)
			return
		}
	}
	body := consentPage{Asked: asked, Person: v.who.Person, Alone: asked.ClientHost == "" && asked.Kind != oauth.KindStatic}
	for _, s := range asked.Scopes {
		body.Scopes = append(body.Scopes, scopeText(s))
	}
	u, err := url.Parse(asked.RedirectURI)
	if err != nil {
		c.refuse(v, http.StatusBadRequest, "The address of the client cannot be read", "Nothing was granted.")
		return
	}
	body.App = u.Scheme != "http" && u.Scheme != "https"
	if at := place(asked.RedirectURI); at != "" { // else the browser would stop the answer on its way to the client
		v.actions = []string{at}
	}
	if c.exposed {
		body.Proof = c.proof(v)
	}
	c.draw(v, http.StatusOK, "consent", sheet{Title: "Let a client act for you?", At: "/authorize", Script: body.Proof == "passkey", Body: body})
}

func (c *Console) consent(v *visit) {
	if c.c.OAuth == nil {
		c.refuse(v, http.StatusNotFound, "Clients cannot connect here", "This installation has no authorization server.")
		return
	}
	f := v.r.PostForm
	allow := f.Get("answer") == "allow"
	if !allow && f.Get("answer") != "deny" {
		c.fail(v, gate.Fail(gate.ErrInvalid, "Open the page again from the client.", "the answer is neither allow nor deny"))
		return
	}
	if allow && c.exposed {
		if err := c.proven(v); err != nil {
			c.fail(v, err)
			return
		}
	}
	address, err := c.c.OAuth.Consent(v.ctx, f.Get("ticket"), v.who, allow, f["scope"])
	var back interface{ Redirect() string }
	if errors.As(err, &back) && back.Redirect() != "" {
		address, err = back.Redirect(), nil
	}
	if err != nil {
		c.fail(v, err)
		return
	}
	c.to(v, address)
}

type clientsPage struct {
	Clients []oauth.ClientInfo
	Tokens  []oauth.TokenInfo
	All     bool
}

// liveTokens are those that still give access; a person without oversight sees and revokes their own.
func (c *Console) liveTokens(v *visit) ([]oauth.TokenInfo, error) {
	all, err := c.c.OAuth.Tokens(v.ctx)
	if err != nil {
		return nil, err
	}
	var out []oauth.TokenInfo
	for _, t := range all {
		if t.Live(c.now()) && (c.decides(v) || t.Person == v.who.Person) {
			out = append(out, t)
		}
	}
	return out, nil
}

func (c *Console) clients(v *visit) {
	if c.c.OAuth == nil {
		c.refuse(v, http.StatusNotFound, "There are no clients", "This installation has no authorization server; castellan token list shows static tokens.")
		return
	}
	body := clientsPage{All: c.decides(v)}
	var err error
	if body.Tokens, err = c.liveTokens(v); err == nil && body.All {
		body.Clients, err = c.c.OAuth.Clients(v.ctx)
	}
	if err != nil {
		c.fail(v, err)
		return
	}
	c.draw(v, http.StatusOK, "clients", sheet{Title: "Clients and tokens", At: "/clients", Body: body})
}

// revoke only ever takes away.
func (c *Console) revoke(v *visit) {
	if c.c.OAuth == nil {
		c.refuse(v, http.StatusNotFound, "There are no clients", "Nothing was revoked.")
		return
	}
	id := v.r.PostForm.Get("id")
	var err error
	switch v.r.PostForm.Get("what") {
	case "client":
		if !c.decides(v) {
			err = gate.Fail(gate.ErrDenied, "Revoke your own tokens, or ask an approver.", "only an approver or administrator may revoke a client")
		} else {
			err = c.c.OAuth.RevokeClient(v.ctx, v.who, id)
		}
	case "token":
		var own []oauth.TokenInfo
		if own, err = c.liveTokens(v); err != nil {
			break
		}
		err = gate.Fail(gate.ErrNotFound, "Look at the list again.", "there is no such token")
		for _, t := range own {
			if t.ID == id {
				err = c.c.OAuth.RevokeToken(v.ctx, v.who, id)
			}
		}
	default:
		err = gate.Fail(gate.ErrInvalid, "Use the buttons of the page.", "what to revoke is not said")
	}
	if err != nil {
		c.failAt(v, err, "/clients")
		return
	}
	c.to(v, "/clients")
}
