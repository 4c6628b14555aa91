package identity_test

import (
	"crypto/rand"
	"crypto/rsa"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"castellan/internal/gate"
	"castellan/internal/identity"
)

// oidcRig is a rig with an outside provider, and an account that answers to its user.
func oidcRig(t *testing.T, change ...func(*identity.OIDCSettings)) (*rig, *op) {
	t.Helper()
	var r *rig
	o := newOP(t, func() time.Time { return r.now() })
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(o.secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r = newRig(t, func(c *identity.Config) {
		set := identity.OIDCSettings{Name: "corp", Issuer: o.URL, ClientID: "castellan", ClientSecretFile: file}
		for _, f := range change {
			f(&set)
		}
		c.Settings.OIDC = []identity.OIDCSettings{set}
	})
	l := identity.Login{Way: "oidc", Provider: "corp", Subject: "user-7"}
	if r.conf.Settings.OIDC[0].MapBy == "email" {
		l.Subject, l.Email = "", "ann@example.org"
	}
	_, err := r.AddAccount(r.ctx, root, identity.NewAccount{Name: "ann", Roles: []string{"operator", "approver"}, Logins: []identity.Login{l}})
	r.ok(err)
	return r, o
}

func (r *rig) oidc(o *op, bend ...func(q url.Values)) (identity.Session, error) {
	r.t.Helper()
	redirect, ticket, err := r.OIDCStart(r.ctx, "corp")
	if err != nil {
		return identity.Session{}, err
	}
	q := o.authorize(redirect)
	for _, f := range bend {
		f(q)
	}
	return r.another().OIDCFinish(r.ctx, ticket, q, remote)
}

func TestOIDC(t *testing.T) {
	r, o := oidcRig(t)
	s, err := r.oidc(o)
	r.ok(err)
	if s.Principal.Person != "ann" || s.Principal.Strength != gate.StrengthSession || !slices.Equal(s.Principal.Roles, []string{"approver", "operator"}) {
		t.Errorf("signed in as %+v", s.Principal)
	}
	// RSA keys, and keys that change.
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	r.ok(err)
	o.signer, o.kid = key, "k2"
	r.wait(time.Minute)
	_, err = r.oidc(o)
	r.ok(err)
	// What the account gives, now.
	r.ok(r.Disable(r.ctx, root, "ann", true))
	_, err = r.oidc(o)
	r.no(err, "is disabled")
	r.ok(r.RemoveAccount(r.ctx, root, "ann"))
	_, err = r.oidc(o)
	r.no(err, "no account here")
	if n := len(r.records("signin_ok")); n != 2 {
		t.Errorf("%d sign-ins recorded", n)
	}
}

func TestOIDCByEmailAndGroups(t *testing.T) {
	groups := func(s *identity.OIDCSettings) {
		s.MapBy, s.GroupsClaim, s.Groups = "email", "groups", map[string][]string{"ops": {"operator", "administrator"}, "look": {"viewer"}}
	}
	r, o := oidcRig(t, groups)
	o.user["groups"] = []string{"ops", "all"}
	s, err := r.oidc(o)
	r.ok(err)
	if !slices.Equal(s.Principal.Roles, []string{"approver", "operator"}) { // never administrator: the account has it not
		t.Errorf("roles %v", s.Principal.Roles)
	}
	o.user["groups"] = "look"
	s, err = r.oidc(o)
	r.ok(err)
	if !slices.Equal(s.Principal.Roles, []string{"viewer"}) {
		t.Errorf("roles %v", s.Principal.Roles)
	}
	p, err := r.Standing(r.ctx, s.Principal)
	r.ok(err)
	if !slices.Equal(p.Roles, []string{"viewer"}) {
		t.Errorf("standing %v", p.Roles)
	}
	o.user["groups"] = []string{"all"}
	_, err = r.oidc(o)
	r.no(err, "no group of yours")
	o.user["groups"] = []string{"look"}
	for _, v := range []any{false, "true", nil, 1} {
		o.user["email_verified"] = v
		_, err = r.oidc(o)
		r.no(err, "has not verified")
		r.wait(10 * time.Minute)
	}
	o.user["email_verified"] = true
	_, err = r.AddAccount(r.ctx, root, identity.NewAccount{Name: "kim", Roles: []string{"viewer"}, Logins: []identity.Login{{Way: "oidc", Provider: "corp", Email: "Kim@sample.org"}}})
	r.ok(err)
	o.user["email"] = "kIm@sAmple.org"
	_, err = r.oidc(o)
	r.ok(err)
	for _, v := range []any{"ann@eKample.org", "ann@example.org.", "ann@example.org ", "\u212aim@\u017fample.org", []string{"ann@example.org"}} {
		o.user["email"] = v
		_, err = r.oidc(o)
		r.no(err, "")
		r.wait(10 * time.Minute)
	}
	// From userinfo, of the same subject only.
	delete(o.user, "email")
	delete(o.user, "groups")
	o.info = map[string]any{"sub": "user-7", "email": "ann@example.org", "email_verified": true, "groups": []string{"look"}}
	_, err = r.oidc(o)
	r.ok(err)
	o.info["sub"] = "user-8"
	_, err = r.oidc(o)
	r.no(err, "somebody else")
}

func TestOIDCRefusals(t *testing.T) {
	claim := func(name string, v any) func(*op) {
		return func(o *op) { o.mutate = func(c map[string]any) { c[name] = v } }
	}
	for _, tt := range []struct {
		name, says string
		set        func(o *op)
		bend       func(q url.Values)
	}{
		{"state of another browser", "this browser began", nil, func(q url.Values) { q.Set("state", "x") }},
		{"two states", "this browser began", nil, func(q url.Values) { q.Add("state", "x") }},
		{"no state", "this browser began", nil, func(q url.Values) { q.Del("state") }},
		{"error", "it says access_denied", nil, func(q url.Values) { q.Set("error", "access_denied"); q.Del("code") }},
		{"no code", "no code", nil, func(q url.Values) { q.Del("code") }},
		{"foreign code", "does not take its code", nil, func(q url.Values) { q.Set("code", "x") }},
		{"mixed up", "another provider", nil, func(q url.Values) { q.Set("iss", "https://evil.example") }},
		{"no iss", "another provider", nil, func(q url.Values) { q.Del("iss") }},
		{"issuer", "not from", claim("iss", "https://evil.example"), nil},
		{"audience", "somebody else", claim("aud", "another"), nil},
		{"other client among", "another client", claim("aud", []string{"castellan", "other"}), nil},
		{"authorized party", "another client", claim("azp", "other"), nil},
		{"nonce", "another sign-in", claim("nonce", "x"), nil},
		{"no nonce", "another sign-in", claim("nonce", nil), nil},
		{"expired", "has expired", claim("exp", 1000000000), nil},
		{"no expiry", "until when", func(o *op) { o.mutate = func(c map[string]any) { delete(c, "exp") } }, nil},
		{"expiry as text", "malformed", claim("exp", "9999999999"), nil},
		{"from the future", "future", claim("nbf", 9999999999), nil},
		{"no subject", "names no subject", claim("sub", ""), nil},
		{"another subject", "no account here", claim("sub", "user-8"), nil},
		{"unsigned", "not with RS256", func(o *op) { o.header = map[string]any{"alg": "none"} }, nil},
		{"shared secret", "not with RS256", func(o *op) { o.header = map[string]any{"alg": "HS256"} }, nil},
		{"other algorithm than key", "no key", func(o *op) { o.header = map[string]any{"alg": "RS256"} }, nil},
		{"critical extension", "extensions", func(o *op) { o.header = map[string]any{"crit": []string{"x"}} }, nil},
		{"unknown key", "no key", func(o *op) { o.header = map[string]any{"kid": "other"} }, nil},
		{"wrong secret", "does not take its code", func(o *op) { o.secret = "changed" }, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, o := oidcRig(t)
			if tt.set != nil {
				tt.set(o)
			}
			bend := tt.bend
			if bend == nil {
				bend = func(url.Values) {}
			}
			_, err := r.oidc(o, bend)
			r.no(err, tt.says)
			if n := len(r.records("signin_ok")); n != 0 {
				t.Errorf("%d sign-ins", n)
			}
			if n := len(r.records("signin_fail")); n != 1 && !strings.Contains(tt.name, "state") {
				t.Errorf("%d failures recorded", n)
			}
		})
	}
}

func TestOIDCAnswerIsGoodOnce(t *testing.T) {
	r, o := oidcRig(t)
	redirect, ticket, err := r.OIDCStart(r.ctx, "corp")
	r.ok(err)
	q := o.authorize(redirect)
	_, err = r.OIDCFinish(r.ctx, ticket, q, remote)
	r.ok(err)
	_, err = r.OIDCFinish(r.ctx, ticket, q, remote)
	r.no(err, "finished before")
	redirect, ticket, err = r.OIDCStart(r.ctx, "corp")
	r.ok(err)
	q = o.authorize(redirect)
	r.wait(5 * time.Minute)
	_, err = r.OIDCFinish(r.ctx, ticket, q, remote)
	r.no(err, "older than")
	_, _, err = r.OIDCStart(r.ctx, "other")
	r.no(err, "no provider")
}

func TestOIDCDiscoveryIsNotFollowedAnywhere(t *testing.T) {
	for name, document := range map[string]func(d map[string]any){
		"another issuer":   func(d map[string]any) { d["issuer"] = "https://evil.example" },
		"plain http":       func(d map[string]any) { d["token_endpoint"] = "http://evil.example/token" },
		"a file":           func(d map[string]any) { d["jwks_uri"] = "file:///etc/passwd" },
		"no token address": func(d map[string]any) { delete(d, "token_endpoint") },
		"a user in it":     func(d map[string]any) { d["token_endpoint"] = "https://a:b@example.org/" },
	} {
		t.Run(name, func(t *testing.T) {
			r, o := oidcRig(t)
			o.document = document
			_, err := r.oidc(o)
			r.no(err, "cannot use the provider")
		})
	}
	t.Run("a private address", func(t *testing.T) {
		r, o := oidcRig(t)
		o.document = func(d map[string]any) { d["token_endpoint"] = "https://10.0.0.1/token" }
		_, err := r.oidc(o)
		r.no(err, "cannot ask the provider")
	})
	t.Run("keys are asked for rarely", func(t *testing.T) {
		r, o := oidcRig(t)
		i := r.another()
		for range 3 {
			redirect, ticket, err := r.OIDCStart(r.ctx, "corp")
			r.ok(err)
			if _, err := i.OIDCFinish(r.ctx, ticket, o.authorize(redirect), remote); err != nil {
				r.no(err, "no key")
			}
			o.header = map[string]any{"kid": "unknown"}
		}
		if o.asked != 1 {
			t.Errorf("asked %d times", o.asked)
		}
	})
}
