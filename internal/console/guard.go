package console

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"castellan/internal/gate"
	"castellan/internal/identity"
)

// mostForm bounds what a form may send, in bytes.
const mostForm = 64 << 10

// visit is one request of a browser with what is known of it.
type visit struct {
	w       http.ResponseWriter
	r       *http.Request
	ctx     context.Context
	token   string         // of the session; empty without one
	who     gate.Principal // its person
	form    string         // what the hidden field of every form must hold
	actions []string       // where else the browser may be sent after a form
}

func (v *visit) in() bool { return v.token != "" }

// current says whether the person's access has not run out.
func (c *Console) current(v *visit) bool { return v.who.Until.IsZero() || c.now().Before(v.who.Until) }

// decides: only those who oversee approve.
func (c *Console) decides(v *visit) bool { return v.who.Oversees() && c.current(v) }

func (c *Console) administers(v *visit) bool {
	return v.who.Agent == "" && c.current(v) && slices.Contains(v.who.Roles, gate.RoleAdministrator)
}

// headers are those of every answer.
func headers(h http.Header) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	// Not no-referrer: that would take the Origin away from our own forms.
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Permissions-Policy", "publickey-credentials-get=(self), publickey-credentials-create=(self), camera=(), microphone=(), geolocation=()")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Content-Security-Policy", contentPolicy(nil))
}

// contentPolicy is the content security policy; actions are further places where a form may lead.
func contentPolicy(actions []string) string {
	return "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; frame-ancestors 'none'; " +
		"require-trusted-types-for 'script'; trusted-types 'none'; form-action 'self'" + strings.Join(append([]string{""}, actions...), " ")
}

// place is a source of a content security policy for an address.
func place(address string) string {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Scheme == "" || strings.ContainsAny(u.Scheme, ";, '\""):
		return ""
	case u.Scheme != "http" && u.Scheme != "https", strings.ContainsAny(u.Host, "[];,* '\""): // an IPv6 address has no form there
		return u.Scheme + ":"
	}
	return u.Scheme + "://" + u.Host
}

// page wraps a handler of pages: headers, session, and for what changes something the token of the form.
func (c *Console) page(open bool, f func(*visit)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		headers(w.Header())
		w.Header().Set("Cache-Control", "no-store")
		v := &visit{w: w, r: r, ctx: r.Context()}
		if err := c.recognise(v); err != nil {
			c.fail(v, gate.Fail(gate.ErrUnavailable, "Try again in a moment.", "who is signed in cannot be found out now: %s", gate.AsError(err).Message))
			return
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			r.Body = http.MaxBytesReader(w, r.Body, mostForm)
			if !c.trusted(v) {
				return
			}
		}
		if !open && !v.in() {
			if r.Method != http.MethodGet {
				c.refuse(v, http.StatusUnauthorized, "You are not signed in any more", "Nothing was done. Sign in, and open the page again.")
				return
			}
			c.to(v, "/signin?next="+url.QueryEscape(r.URL.RequestURI()))
			return
		}
		if r.URL.Path != "/signin" && r.URL.Path != "/authorize" { // a client may have opened those in a window of its own
			w.Header().Set("Cross-Origin-Opener-Policy", "same-origin")
		}
		f(v)
	})
}

// trusted parses the form and checks that it is one of ours. The header check stops other sites; the token stops what
// has no headers.
func (c *Console) trusted(v *visit) bool {
	if err := c.origins.Check(v.r); err != nil {
		c.refuse(v, http.StatusForbidden, "This came from another site", "Nothing was done. Open the page here and press the button again.")
		return false
	}
	kind, _, _ := strings.Cut(v.r.Header.Get("Content-Type"), ";")
	if strings.TrimSpace(strings.ToLower(kind)) != "application/x-www-form-urlencoded" {
		c.refuse(v, http.StatusUnsupportedMediaType, "This is no form", "Nothing was done. Forms are sent as application/x-www-form-urlencoded.")
		return false
	}
	if err := v.r.ParseForm(); err != nil {
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			c.refuse(v, http.StatusRequestEntityTooLarge, "This is too large", "Nothing was done. A form may have 64 KiB.")
		} else {
			c.refuse(v, http.StatusBadRequest, "The form cannot be read", "Nothing was done. Open the page again.")
		}
		return false
	}
	if v.form == "" || !hmac.Equal([]byte(v.r.PostForm.Get("form")), []byte(v.form)) {
		c.refuse(v, http.StatusForbidden, "This form belongs to another sign-in", "Nothing was done. Open the page again and press the button once more.")
		return false
	}
	return true
}

// recognise finds the session; without one, the browser gets a mark of its own that its sign-in form is bound to.
func (c *Console) recognise(v *visit) error {
	if k, err := v.r.Cookie(c.cookie()); err == nil && k.Value != "" && len(k.Value) < 512 {
		who, err := c.c.People.Session(v.ctx, k.Value)
		switch e := gate.AsError(err); {
		case err == nil:
			v.token, v.who, v.form = k.Value, who, bound(k.Value)
			return nil
		case e.Kind == gate.ErrUnavailable || e.Kind == gate.ErrInternal && errors.Is(err, context.DeadlineExceeded):
			return err
		}
		c.forget(v, c.cookie())
	}
	if k, err := v.r.Cookie(c.cookie() + "-form"); err == nil && len(k.Value) == 43 {
		v.form = bound(k.Value)
		return nil
	}
	if v.r.Method == http.MethodGet {
		mark := random()
		c.remember(v, c.cookie()+"-form", mark, time.Time{})
		v.form = bound(mark)
	}
	return nil
}

// bound derives the token of forms from a secret of the browser, so that it is the same in every process and dies with it.
func bound(secret string) string {
	m := hmac.New(sha256.New, []byte(secret))
	m.Write([]byte("castellan form v1"))
	return base64.RawURLEncoding.EncodeToString(m.Sum(nil))
}

func random() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // it never fails
	return base64.RawURLEncoding.EncodeToString(b)
}

// cookie is the name of the session cookie. The prefix makes browsers refuse one that another host or path has set.
func (c *Console) cookie() string {
	if c.secure {
		return "__Host-castellan"
	}
	return "castellan"
}

// remember sets a cookie. Lax, since a client's site sends people to the consent page.
func (c *Console) remember(v *visit, name, value string, until time.Time) {
	k := &http.Cookie{Name: name, Value: value, Path: "/", Secure: c.secure, HttpOnly: true, SameSite: http.SameSiteLaxMode}
	if !until.IsZero() { // an age, since the browser's clock may be another
		k.MaxAge = max(1, int(until.Sub(c.now()).Seconds()))
	}
	http.SetCookie(v.w, k)
}

func (c *Console) forget(v *visit, name string) {
	http.SetCookie(v.w, &http.Cookie{Name: name, Path: "/", Secure: c.secure, HttpOnly: true, SameSite: http.SameSiteLaxMode, MaxAge: -1})
}

// enter puts a new session into place of whatever the browser had.
func (c *Console) enter(v *visit, s identity.Session) {
	if v.in() && v.token != s.Token {
		if err := c.c.People.SignOut(v.ctx, v.token); err != nil {
			c.log.Warn("an old session was not ended", "error", gate.AsError(err).Message)
		}
	}
	c.remember(v, c.cookie(), s.Token, s.Expires)
	c.forget(v, c.cookie()+"-form")
	v.token, v.who, v.form = s.Token, s.Principal, bound(s.Token)
}

// to sends the browser on with a GET.
func (c *Console) to(v *visit, path string) {
	v.w.Header().Set("Location", path)
	v.w.WriteHeader(http.StatusSeeOther)
}

// safeNext keeps a path within the console; anything else leads to the start.
func safeNext(next string) string {
	if len(next) == 0 || len(next) > 4096 || next[0] != '/' || strings.HasPrefix(next, "//") || strings.ContainsRune(next, '\\') {
		return "/"
	}
	for _, r := range next {
		if r <= 0x20 || r == 0x7f || hidden(r) {
			return "/"
		}
	}
	u, err := url.Parse(next)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || !strings.HasPrefix(u.Path, "/") || strings.HasPrefix(u.Path, "//") || strings.ContainsRune(u.Path, '\\') {
		return "/"
	}
	return (&url.URL{Path: u.Path, RawQuery: u.RawQuery}).String()
}

func (c *Console) remote(r *http.Request) identity.Remote {
	out := identity.Remote{UserAgent: clipRunes(r.UserAgent(), 200), WayIn: "console"}
	if c.c.From != nil {
		out.IP = c.c.From(r)
	} else if a, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		out.IP = a.Addr().Unmap()
	}
	return out
}
