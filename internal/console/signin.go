package console

import (
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"castellan/internal/gate"
	"castellan/internal/identity"
)

type signinPage struct {
	Next      string
	Name      string
	Problem   string
	Wait      string
	Realms    []string
	Providers []provider
	Access    string
	NoKeys    string // why there are no passkeys here
}

type provider struct{ Name, Host string }

// waitOf is how long a locked account or address stays locked.
func waitOf(err error) time.Duration {
	var l *identity.Locked
	if errors.As(err, &l) {
		return l.RetryAfter
	}
	var locked interface{ Wait() time.Duration }
	if errors.As(err, &locked) {
		return locked.Wait()
	}
	return 0
}

func (c *Console) retryAfter(v *visit, d time.Duration) {
	v.w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(max(d, time.Second).Seconds()))))
}

func (c *Console) signinPage(v *visit) {
	if v.in() {
		c.to(v, safeNext(v.r.URL.Query().Get("next")))
		return
	}
	c.drawSignin(v, http.StatusOK, signinPage{Next: v.r.URL.Query().Get("next")})
}

func (c *Console) drawSignin(v *visit, status int, p signinPage) {
	p.Next = safeNext(p.Next)
	for _, r := range c.c.Ways.Realms {
		p.Realms = append(p.Realms, r.Name)
	}
	for _, o := range c.c.Ways.OIDC {
		l := provider{Name: o.Name}
		if u, err := url.Parse(o.Issuer); err == nil {
			l.Host = u.Host
		}
		p.Providers = append(p.Providers, l)
	}
	p.Access = c.c.Ways.Access.Team
	if err := c.c.People.PasskeyProblem(); err != nil {
		p.NoKeys = gate.AsError(err).Message
	}
	c.draw(v, status, "signin", sheet{Title: "Sign in", At: "/signin", Script: true, Body: p})
}

// signinFailed says the same of every failure but those that waiting or another's repair would end.
func (c *Console) signinFailed(v *visit, err error, p signinPage) {
	e := gate.AsError(err)
	status := http.StatusUnauthorized
	p.Problem = "That was not right. Nobody is signed in."
	if wait := waitOf(err); wait > 0 {
		c.retryAfter(v, wait)
		status, p.Wait, p.Problem = http.StatusTooManyRequests, span(wait), "Too many sign-ins have failed. Nothing was checked."
	} else if e.Kind == gate.ErrUnavailable || e.Kind == gate.ErrInternal {
		status, p.Problem = http.StatusServiceUnavailable, "Nobody can be signed in now: what castellan needs for it does not answer. The log of castellan says why."
		c.log.Error("a sign-in could not be checked", "error", e.Message)
	}
	c.drawSignin(v, status, p)
}

func (c *Console) signin(v *visit) {
	f := v.r.PostForm
	name, realm := strings.TrimSpace(f.Get("name")), f.Get("realm")
	p := signinPage{Next: f.Get("next"), Name: clipRunes(name, 100)}
	if name == "" || f.Get("password") == "" || len(name) > 256 || len(f.Get("password")) > 1024 {
		p.Problem = "Give a name and a password."
		c.drawSignin(v, http.StatusBadRequest, p)
		return
	}
	var s identity.Session
	var err error
	if realm == "" {
		s, err = c.c.People.Password(v.ctx, name, f.Get("password"), c.remote(v.r))
	} else {
		s, err = c.c.People.RealmLogin(v.ctx, realm, name, f.Get("password"), strings.TrimSpace(f.Get("totp")), c.remote(v.r))
	}
	if err != nil {
		c.signinFailed(v, err, p)
		return
	}
	c.enter(v, s)
	c.to(v, safeNext(p.Next))
}

// passkeyStart answers the script of the page with what a passkey must sign to sign in.
func (c *Console) passkeyStart(v *visit) {
	options, ticket, err := c.c.People.PasskeyStart(v.ctx)
	c.ceremony(v, options, ticket, err)
}

func (c *Console) passkeyFinish(v *visit) {
	f := v.r.PostForm
	p := signinPage{Next: f.Get("next")}
	if f.Get("ticket") == "" || !json.Valid([]byte(f.Get("response"))) {
		p.Problem = "The passkey gave no answer. Press the button again, with JavaScript allowed for this page."
		c.drawSignin(v, http.StatusBadRequest, p)
		return
	}
	s, err := c.c.People.PasskeyFinish(v.ctx, f.Get("ticket"), json.RawMessage(f.Get("response")), c.remote(v.r))
	if err != nil {
		c.signinFailed(v, err, p)
		return
	}
	c.enter(v, s)
	c.to(v, safeNext(p.Next))
}

// providerStart sends the browser to an OpenID provider. What must come back with it lies in a cookie of this browser.
func (c *Console) providerStart(v *visit) {
	address, ticket, err := c.c.People.OIDCStart(v.ctx, v.r.PostForm.Get("provider"))
	if err != nil {
		c.signinFailed(v, err, signinPage{Next: v.r.PostForm.Get("next")})
		return
	}
	until := c.now().Add(10 * time.Minute)
	c.remember(v, c.cookie()+"-away", ticket, until)
	c.remember(v, c.cookie()+"-next", url.QueryEscape(safeNext(v.r.PostForm.Get("next"))), until)
	c.leave(v, address)
}

// leave draws a page that goes on by itself: a form may not be redirected to other sites by the policy of the page.
func (c *Console) leave(v *visit, address string) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" && !(u.Scheme == "http" && loopback(u.Hostname())) {
		c.refuse(v, http.StatusBadGateway, "This provider cannot be reached safely", "Its address is not https. Nothing was done.")
		return
	}
	c.draw(v, http.StatusOK, "leave", sheet{Title: "Going to " + u.Host, Leave: address, Body: u.Host})
}

func (c *Console) providerFinish(v *visit) {
	ticket, err := v.r.Cookie(c.cookie() + "-away")
	if err != nil || ticket.Value == "" {
		c.refuse(v, http.StatusBadRequest, "This browser did not ask for that", "The provider's answer belongs to another browser, or is too old. Nobody is signed in. Sign in again.")
		return
	}
	next := "/"
	if k, err := v.r.Cookie(c.cookie() + "-next"); err == nil {
		if text, err := url.QueryUnescape(k.Value); err == nil {
			next = text
		}
	}
	c.forget(v, c.cookie()+"-away")
	c.forget(v, c.cookie()+"-next")
	s, err := c.c.People.OIDCFinish(v.ctx, ticket.Value, v.r.URL.Query(), c.remote(v.r))
	if err != nil {
		c.signinFailed(v, err, signinPage{Next: next})
		return
	}
	c.enter(v, s)
	c.to(v, safeNext(next))
}

func (c *Console) proxyLogin(v *visit) {
	next := v.r.PostForm.Get("next")
	s, err := c.c.People.Access(v.ctx, v.r, c.remote(v.r))
	if err != nil {
		c.signinFailed(v, err, signinPage{Next: next})
		return
	}
	c.enter(v, s)
	c.to(v, safeNext(next))
}

func (c *Console) signout(v *visit) {
	if v.in() {
		if err := c.c.People.SignOut(v.ctx, v.token); err != nil {
			c.fail(v, err)
			return
		}
	}
	c.forget(v, c.cookie())
	c.to(v, "/signin")
}

// proven asks for a fresh proof of the same person where something is loosened: the passkey of whoever has one, else the
// password. The sign-in that it makes takes the place of the session.
func (c *Console) proven(v *visit) error {
	f := v.r.PostForm
	keys, err := c.c.People.Credentials(v.ctx, v.who.Person)
	if err != nil {
		return err
	}
	again := gate.Fail(gate.ErrDenied, "Give it again, and press the button once more.", "this needs a fresh proof that it is you, and that was not right")
	var s identity.Session
	switch {
	case c.usable(keys):
		if f.Get("ticket") == "" || !json.Valid([]byte(f.Get("response"))) {
			return gate.Fail(gate.ErrNeedsApproval, "Press the button again, with JavaScript allowed for this page.", "you have a passkey, so this needs it")
		}
		s, err = c.c.People.PasskeyFinish(v.ctx, f.Get("ticket"), json.RawMessage(f.Get("response")), c.remote(v.r))
	case f.Get("password") == "" || len(f.Get("password")) > 1024:
		return gate.Fail(gate.ErrNeedsApproval, "Give your password with it.", "this needs your password once more")
	default:
		s, err = c.c.People.Password(v.ctx, v.who.Person, f.Get("password"), c.remote(v.r))
	}
	if wait := waitOf(err); wait > 0 {
		c.retryAfter(v, wait)
		return err
	}
	if err != nil {
		if e := gate.AsError(err); e.Kind == gate.ErrUnavailable || e.Kind == gate.ErrInternal {
			return err
		}
		return again
	}
	if s.Principal.Person != v.who.Person {
		if err := c.c.People.SignOut(v.ctx, s.Token); err != nil {
			c.log.Warn("a session was not ended", "error", gate.AsError(err).Message)
		}
		return again
	}
	c.enter(v, s)
	return nil
}

// usable: one of these may approve now.
func (c *Console) usable(keys []identity.Credential) bool {
	for _, k := range keys {
		if !c.now().Before(k.MayApprove) {
			return true
		}
	}
	return false
}

// proof says to a page which proof proven will ask for.
func (c *Console) proof(v *visit) string {
	keys, err := c.c.People.Credentials(v.ctx, v.who.Person)
	if err != nil || c.usable(keys) {
		return "passkey"
	}
	return "password"
}
