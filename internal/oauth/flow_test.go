package oauth

import (
	"context"
	"encoding/base64"
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"castellan/internal/gate"
)

var ctx = context.Background()

func TestFlow(t *testing.T) {
	h := newHouse(t, usual())
	r := h.tokens()
	if r.Expires != 3600 || r.Scope != "read operate offline_access" || r.Refresh == "" {
		t.Errorf("%+v", r)
	}
	c := h.mustBearer(r.Access)
	if d := cmp.Diff(gate.Principal{Agent: "static:pub", Person: "ann", Client: "pub", WayIn: "mcp-http", Strength: gate.StrengthToken, Roles: []string{"operator", "viewer"}, Until: c.Principal.Until}, c.Principal); d != "" {
		t.Error(d)
	}
	if days := c.Principal.Until.Sub(h.now()).Hours() / 24; days < 29.9 || days > 30.1 {
		t.Errorf("the connection lasts %v days", days)
	}
	issued := h.recorded("token_issued", "")
	if issued["ip"] != "203.0.113.7" || issued["credential"] != c.TokenID || strings.Contains(r.Access, "203") {
		t.Errorf("recorded %v", issued)
	}
	if got := h.records("token_issued")[0]; got.Actor != "static:pub|ann" || got.Client != "pub" {
		t.Errorf("the record names %q, %q", got.Actor, got.Client)
	}
	if ok := h.recorded("authorize_ok", ""); ok["ip"] == nil {
		t.Errorf("recorded %v", ok)
	}
	for _, op := range []string{"authorize_ok", "token_issued"} {
		for _, rec := range h.records(op) {
			for _, secret := range []string{r.Access, r.Refresh, r.Access[21:], r.Refresh[21:]} {
				if strings.Contains(string(rec.Raw), secret) {
					t.Errorf("%s holds a token", op)
				}
			}
		}
	}
	// The refresh token is exchanged once; the new access token is good beside the old one.
	again := h.post("/token", h.refreshed(r.Refresh))
	if again.Status != 200 || again.Refresh == r.Refresh || again.Access == r.Access || again.Scope != r.Scope {
		t.Fatalf("%+v", again)
	}
	h.mustBearer(again.Access)
	h.mustBearer(r.Access)
	h.recorded("token_issued", "refreshed")
	h.pass(time.Hour + time.Second)
	h.mustRefuse(again.Access, "expired")
	if v, err := h.store.Verify(ctx); err != nil || !v.OK {
		t.Errorf("the ledger: %+v %v", v, err)
	}
}

func TestAuthorizeRefuses(t *testing.T) {
	h := newHouse(t, Settings{Failures: 1000, Clients: usual().Clients})
	for name, tt := range map[string]struct {
		pairs  []string
		told   string // code told to the client; empty: shown to the person
		reason string
	}{
		"no client":             {[]string{"client_id", ""}, "", "malformed"},
		"unknown client":        {[]string{"client_id", "nobody"}, "", "unknown_client"},
		"dynamic of nobody":     {[]string{"client_id", "dyn-aaaaaaaaaaaaaaaa"}, "", "unknown_client"},
		"long client":           {[]string{"client_id", strings.Repeat("x", 500)}, "", "unknown_client"},
		"no redirect":           {[]string{"redirect_uri", ""}, "", "redirect"},
		"other host":            {[]string{"redirect_uri", "https://evil.example.org/cb"}, "", "redirect"},
		"other path":            {[]string{"redirect_uri", staticRedirect + "/x"}, "", "redirect"},
		"query added":           {[]string{"redirect_uri", staticRedirect + "?x=1"}, "", "redirect"},
		"fragment":              {[]string{"redirect_uri", staticRedirect + "#x"}, "", "redirect"},
		"port of no loopback":   {[]string{"redirect_uri", "https://app.example.org:444/cb"}, "", "redirect"},
		"userinfo":              {[]string{"redirect_uri", "https://app.example.org@evil.example.org/cb"}, "", "redirect"},
		"backslash":             {[]string{"redirect_uri", "https://app.example.org\\@evil.example.org/cb"}, "", "redirect"},
		"dots":                  {[]string{"redirect_uri", "https://app.example.org/x/../cb"}, "", "redirect"},
		"script":                {[]string{"redirect_uri", "javascript://app.example.org/%0aalert(1)"}, "", "redirect"},
		"loopback path":         {[]string{"redirect_uri", "http://127.0.0.1:4711/other"}, "", "redirect"},
		"loopback name":         {[]string{"redirect_uri", "http://127.0.0.2:4711/callback"}, "", "redirect"},
		"loopback with https":   {[]string{"redirect_uri", "https://127.0.0.1:4711/callback"}, "", "redirect"},
		"loopback look-alike":   {[]string{"redirect_uri", "http://127.0.0.1.evil.example.org/callback"}, "", "redirect"},
		"implicit":              {[]string{"response_type", "token"}, "unsupported_response_type", "response_type"},
		"hybrid":                {[]string{"response_type", "code token"}, "unsupported_response_type", "response_type"},
		"no type":               {[]string{"response_type", ""}, "unsupported_response_type", "response_type"},
		"fragment mode":         {[]string{"response_mode", "fragment"}, "invalid_request", "response_mode"},
		"no challenge":          {[]string{"code_challenge", ""}, "invalid_request", "challenge"},
		"plain":                 {[]string{"code_challenge_method", "plain"}, "invalid_request", "challenge"},
		"no method":             {[]string{"code_challenge_method", ""}, "invalid_request", "challenge"},
		"short challenge":       {[]string{"code_challenge", "abc"}, "invalid_request", "challenge"},
		"padded challenge":      {[]string{"code_challenge", challengeOf(verifier) + "="}, "invalid_request", "challenge"},
		"loose last bits":       {[]string{"code_challenge", challengeOf(verifier)[:42] + "B"}, "invalid_request", "challenge"},
		"other resource":        {[]string{"resource", "https://elsewhere.example.org/mcp"}, "invalid_target", "resource"},
		"below the resource":    {[]string{"resource", h.url + "/mcp/x"}, "invalid_target", "resource"},
		"root of the resource":  {[]string{"resource", h.url}, "invalid_target", "resource"},
		"no scope of ours":      {[]string{"scope", "openid admin approve"}, "invalid_scope", "scope"},
		"only offline":          {[]string{"scope", "offline_access"}, "invalid_scope", "scope"},
		"not of the client":     {[]string{"client_id", "secret", "scope", "operate"}, "invalid_scope", "scope"},
		"silent":                {[]string{"prompt", "none"}, "consent_required", "prompt"},
		"request object":        {[]string{"request", "eyJ"}, "request_not_supported", "malformed"},
		"request by reference":  {[]string{"request_uri", "https://x.example.org/r"}, "request_uri_not_supported", "malformed"},
		"a huge parameter":      {[]string{"scope", strings.Repeat("read ", 500)}, "", "malformed"},
		"an address of private": {[]string{"client_id", "https://10.0.0.1/c.json"}, "", "unknown_client"},
	} {
		t.Run(name, func(t *testing.T) {
			asked, err := h.s.Authorize(ctx, h.request(tt.pairs...), h.from())
			var back *Redirect
			var shown *gate.Error
			switch {
			case err == nil:
				t.Fatalf("let through: %+v", asked)
			case errors.As(err, &back):
				u, e := url.Parse(back.URL)
				if e != nil || tt.told == "" || u.Query().Get("error") != tt.told || u.Query().Get("state") != "s t/+&" || u.Query().Get("iss") != h.url || u.Query().Get("code") != "" || !strings.HasPrefix(back.URL, staticRedirect+"?") {
					t.Errorf("told %s", back.URL)
				}
			case !errors.As(err, &shown) || tt.told != "" || shown.Hint == "" || shown.Changed != "nothing":
				t.Errorf("shown %#v", err)
			}
			h.recorded("authorize_fail", tt.reason)
		})
	}
	q := h.request()
	q.Add("redirect_uri", "https://evil.example.org")
	if _, err := h.s.Authorize(ctx, q, h.from()); err == nil || errors.As(err, new(*Redirect)) {
		t.Errorf("two redirects: %v", err)
	}
	q = h.request()
	q.Add("resource", "https://elsewhere.example.org/mcp")
	if _, err := h.s.Authorize(ctx, q, h.from()); !errors.As(err, new(*Redirect)) {
		t.Errorf("a resource of somebody else beside ours: %v", err)
	}
}

func TestScopesAskedFor(t *testing.T) {
	h := newHouse(t, usual())
	for in, want := range map[string][]string{
		"": {"read"}, "read": {"read"}, "operate read": {"read", "operate"}, "operate admin approve": {"operate"}, "read openid offline_access": {"read"},
	} {
		if a, err := h.s.Authorize(ctx, h.request("scope", in, "client_id", "brief"), h.from()); err != nil || !slices.Equal(a.Scopes, want) {
			t.Errorf("%q: %v %v", in, a, err)
		}
		a, err := h.s.Authorize(ctx, h.request("scope", in), h.from())
		want = append(want, "offline_access")
		if err != nil || !slices.Equal(a.Scopes, want) {
			t.Errorf("%q: %v %v", in, a, err)
		}
	}
	for _, redirect := range []string{"http://127.0.0.1:4711/callback", "http://localhost:80/callback", "http://localhost/callback", "http://[::1]:9/callback"} {
		a, err := h.s.Authorize(ctx, h.request("redirect_uri", redirect), h.from())
		if err != nil || !a.Loopback || strings.Contains(a.RedirectHost, "4711") {
			t.Errorf("%s: %+v %v", redirect, a, err)
		}
	}
}

func TestConsentRefuses(t *testing.T) {
	h := newHouse(t, usual())
	ask := func() *Asked {
		a, err := h.s.Authorize(ctx, h.request("scope", "read offline_access"), h.from())
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	other := newHouse(t, usual())
	for name, tt := range map[string]struct {
		ticket func(string) string
		person gate.Principal
		scopes []string
		after  time.Duration
	}{
		"an agent":             {person: gate.Principal{Agent: "claude", Person: "ann", Strength: gate.StrengthSession}},
		"a token":              {person: gate.Principal{Person: "ann", Strength: gate.StrengthToken}},
		"an account":           {person: gate.Principal{Person: "ann", Strength: gate.StrengthAccount}},
		"nobody":               {person: gate.Principal{Strength: gate.StrengthSession}},
		"somebody unknown":     {person: session("eve", "operator")},
		"without a role":       {person: session("boss", "administrator")},
		"more than asked":      {person: session("ann"), scopes: []string{"read", "operate"}},
		"a scope there is not": {person: session("ann"), scopes: []string{"read", "approve"}},
		"nothing":              {person: session("ann"), scopes: []string{}},
		"only to stay":         {person: session("ann"), scopes: []string{"offline_access"}},
		"too late":             {person: session("ann"), after: ticketLife + time.Second},
		"made up":              {person: session("ann"), ticket: func(string) string { return "AAAA" }},
		"empty":                {person: session("ann"), ticket: func(string) string { return "" }},
		"changed": {person: session("ann"), ticket: func(s string) string {
			b, _ := base64.RawURLEncoding.DecodeString(s)
			return base64.RawURLEncoding.EncodeToString([]byte(strings.Replace(string(b), "app.example.org", "evil.example.org", 1)))
		}},
		"of another server": {person: session("ann"), ticket: func(string) string {
			a, _ := other.s.Authorize(ctx, other.request(), other.from())
			return a.Ticket
		}},
	} {
		t.Run(name, func(t *testing.T) {
			a := ask()
			if tt.ticket != nil {
				a.Ticket = tt.ticket(a.Ticket)
			}
			if tt.scopes == nil {
				tt.scopes = a.Scopes
			}
			h.pass(tt.after)
			to, err := h.s.Consent(ctx, a.Ticket, tt.person, true, tt.scopes)
			if err == nil || to != "" {
				t.Errorf("consented: %s", to)
			}
		})
	}
	if n := len(h.records("authorize_ok")); n != 0 {
		t.Errorf("%d consents are recorded", n)
	}
	t.Run("one answer each", func(t *testing.T) {
		a := ask()
		if again, err := h.s.Pending(ctx, a.Ticket); err != nil || again.ClientID != a.ClientID {
			t.Error(again, err)
		}
		if _, err := h.s.Consent(ctx, a.Ticket, session("ann"), true, a.Scopes); err != nil {
			t.Fatal(err)
		}
		for _, allow := range []bool{true, false} {
			if to, err := h.s.Consent(ctx, a.Ticket, session("ann"), allow, a.Scopes); err == nil {
				t.Errorf("answered twice: %s", to)
			}
		}
	})
	t.Run("refused by the person", func(t *testing.T) {
		to, err := h.s.Consent(ctx, ask().Ticket, session("ann"), false, nil)
		u, _ := url.Parse(to)
		if err != nil || u.Query().Get("error") != "access_denied" || u.Query().Get("iss") != h.url || u.Query().Get("state") == "" {
			t.Error(to, err)
		}
		h.recorded("authorize_fail", "refused_by_person")
	})
}
