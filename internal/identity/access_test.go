package identity_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"castellan/internal/gate"
	"castellan/internal/identity"
)

const team = "example.cloudflareaccess.com"

func accessRig(t *testing.T) (*rig, *op) {
	t.Helper()
	var r *rig
	o := newOP(t, func() time.Time { return r.now() })
	keys := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.Host != team || q.URL.Path != "/cdn-cgi/access/certs" {
			t.Errorf("asked for %s%s", q.Host, q.URL)
		}
		o.asked++
		o.answer(w, o.set())
	}))
	t.Cleanup(keys.Close)
	r = newRig(t, func(c *identity.Config) {
		c.Settings.Access = identity.AccessSettings{Team: team, Audience: []string{"aud-1", "aud-2"}}
	})
	r.Through(&http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) { //nolint:gosec // a test's own server
		return (&net.Dialer{}).DialContext(ctx, network, keys.Listener.Addr().String())
	}})
	_, err := r.AddAccount(r.ctx, root, identity.NewAccount{Name: "ann", Roles: []string{"operator"}, Logins: []identity.Login{{Way: "access", Email: "ann@example.org"}}})
	r.ok(err)
	return r, o
}

func (r *rig) access(tokens ...string) (identity.Session, error) {
	q := httptest.NewRequest(http.MethodGet, "/", nil)
	for _, t := range tokens {
		q.Header.Add("Cf-Access-Jwt-Assertion", t)
	}
	return r.Access(r.ctx, q, remote)
}

func TestAccess(t *testing.T) {
	r, o := accessRig(t)
	claims := func(change ...any) map[string]any {
		c := map[string]any{"iss": "https://" + team, "aud": []string{"aud-2"}, "email": "ann@example.org", "sub": "s", "type": "app",
			"iat": r.now().Unix(), "nbf": r.now().Unix(), "exp": r.now().Add(time.Hour).Unix()}
		for n := 0; n+1 < len(change); n += 2 {
			c[change[n].(string)] = change[n+1]
		}
		return c
	}
	s, err := r.access(o.jwt(claims()))
	r.ok(err)
	if s.Principal.Person != "ann" || s.Principal.Strength != gate.StrengthSession || !s.Expires.Equal(r.now().Add(time.Hour)) {
		t.Errorf("signed in as %+v until %s", s.Principal, s.Expires)
	}
	if _, err := r.access(); !errors.Is(err, identity.ErrNoAssertion) {
		t.Errorf("without an assertion: %v", err)
	}
	good := o.jwt(claims())
	other := ecKey(t)
	for _, tt := range []struct{ name, token, says string }{
		{"another team", o.jwt(claims("iss", "https://evil.cloudflareaccess.com")), "not from"},
		{"another application", o.jwt(claims("aud", []string{"aud-3"})), "somebody else"},
		{"no audience", o.jwt(claims("aud", nil)), "somebody else"},
		{"expired", o.jwt(claims("exp", r.now().Add(-2*time.Minute).Unix())), "expired"},
		{"a service token", o.jwt(claims("email", "", "common_name", "x")), "names no person"},
		{"nobody here", o.jwt(claims("email", "eve@example.org")), "no account here"},
		{"bent", good[:len(good)-8] + "AAAAAAAA", "no key"},
		{"claims exchanged", strings.Join([]string{strings.Split(good, ".")[0], b64([]byte(`{"email":"ann@example.org"}`)), strings.Split(good, ".")[2]}, "."), "no key"},
		{"a foreign key", func() string {
			k := o.signer
			o.signer = other
			defer func() { o.signer = k }()
			return o.jwt(claims())
		}(), "no key"},
		{"unsigned", b64([]byte(`{"alg":"none"}`)) + "." + b64([]byte(`{"email":"ann@example.org"}`)) + ".", "malformed"},
		{"not a token", "x", "malformed"},
		{"too long", good + strings.Repeat("A", 20<<10), "malformed"},
		{"claims twice", func() string {
			return strings.Split(good, ".")[0] + "." + b64([]byte(`{"email":"a","email":"ann@example.org"}`)) + ".AAAA"
		}(), "malformed"},
	} {
		_, err := r.access(tt.token)
		r.no(err, tt.says)
		r.wait(4 * time.Minute) // below what locks
	}
	_, err = r.access(good, good)
	r.no(err, "several")
}

func TestAccessLocksTheAddress(t *testing.T) {
	r, _ := accessRig(t)
	var err error
	for range 5 {
		_, err = r.access("x")
	}
	if locked(err) == 0 {
		t.Errorf("got %v", err)
	}
}
