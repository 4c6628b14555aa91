package oauth

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestCodeRefused(t *testing.T) {
	h := newHouse(t, Settings{Failures: 1000, Clients: usual().Clients})
	for name, tt := range map[string]struct {
		pairs  []string
		after  time.Duration
		status int
		err    string
		reason string
	}{
		"no type":            {[]string{"grant_type", ""}, 0, 400, "invalid_request", "malformed"},
		"other type":         {[]string{"grant_type", "password"}, 0, 400, "unsupported_grant_type", "grant_type"},
		"no code":            {[]string{"code", ""}, 0, 400, "invalid_request", "malformed"},
		"no verifier":        {[]string{"code_verifier", ""}, 0, 400, "invalid_request", "malformed"},
		"no redirect":        {[]string{"redirect_uri", ""}, 0, 400, "invalid_request", "malformed"},
		"made up":            {[]string{"code", "cac_aaaaaaaaaaaaaaaa_aaaaaaaaaaaaaaaaaaaaaaaa"}, 0, 400, "invalid_grant", "unknown_code"},
		"rubbish":            {[]string{"code", "xyz"}, 0, 400, "invalid_grant", "malformed"},
		"other verifier":     {[]string{"code_verifier", verifier + "x"}, 0, 400, "invalid_grant", "pkce_mismatch"},
		"challenge itself":   {[]string{"code_verifier", challengeOf(verifier)}, 0, 400, "invalid_grant", "pkce_mismatch"},
		"other client":       {[]string{"client_id", "other"}, 0, 400, "invalid_grant", "client_mismatch"},
		"unknown client":     {[]string{"client_id", "nobody"}, 0, 401, "invalid_client", "unknown_client"},
		"no client":          {[]string{"client_id", ""}, 0, 401, "invalid_client", "unknown_client"},
		"document unheard":   {[]string{"client_id", "https://claude.ai/oauth/x"}, 0, 401, "invalid_client", "unknown_client"},
		"other redirect":     {[]string{"redirect_uri", "http://127.0.0.1/callback"}, 0, 400, "invalid_grant", "redirect_mismatch"},
		"other resource":     {[]string{"resource", "https://elsewhere.example.org/mcp"}, 0, 400, "invalid_target", "resource"},
		"too late":           {nil, codeLife + time.Second, 400, "invalid_grant", "expired"},
		"confidential other": {[]string{"client_id", "secret", "client_secret", "wrong"}, 0, 401, "invalid_client", "unknown_client"},
	} {
		t.Run(name, func(t *testing.T) {
			code := h.code()
			h.pass(tt.after)
			r := h.post("/token", h.redeemed(code, tt.pairs...))
			if r.Status != tt.status || r.Error != tt.err || r.Access != "" || r.Description == "" {
				t.Errorf("%+v", r)
			}
			h.recorded("token_denied", tt.reason)
			if r.Status == 401 && r.Header.Get("WWW-Authenticate") == "" {
				t.Error("a 401 without a challenge")
			}
			// A code that met the wrong hands is used up.
			if slices.Contains([]string{"pkce_mismatch", "client_mismatch", "redirect_mismatch", "resource"}, tt.reason) {
				if r := h.post("/token", h.redeemed(code)); r.Status != 400 || r.Error != "invalid_grant" {
					t.Errorf("afterwards %+v", r)
				}
			}
		})
	}
	t.Run("of another server", func(t *testing.T) {
		other := newHouse(t, usual())
		if r := h.post("/token", h.redeemed(other.code())); r.Error != "invalid_grant" {
			t.Errorf("%+v", r)
		}
	})
	t.Run("other secret part", func(t *testing.T) {
		code := h.code()
		if r := h.post("/token", h.redeemed(code[:len(code)-1]+"x")); r.Error != "invalid_grant" {
			t.Errorf("%+v", r)
		}
	})
	t.Run("person gone meanwhile", func(t *testing.T) {
		code := h.code()
		h.people.set("ann")
		defer h.people.set("ann", "operator")
		if r := h.post("/token", h.redeemed(code)); r.Error != "invalid_grant" {
			t.Errorf("%+v", r)
		}
		h.recorded("token_denied", "person_ended")
	})
}

func TestReplayedCodeEndsWhatItGave(t *testing.T) {
	h := newHouse(t, usual())
	code := h.code()
	r := h.post("/token", h.redeemed(code))
	h.mustBearer(r.Access)
	if again := h.post("/token", h.redeemed(code, "client_id", "other")); again.Status != 400 || again.Error != "invalid_grant" {
		t.Errorf("%+v", again)
	}
	h.recorded("token_replay", "code_used_before")
	h.mustRefuse(r.Access, "grant_ended")
	if again := h.post("/token", h.refreshed(r.Refresh)); again.Error != "invalid_grant" {
		t.Errorf("%+v", again)
	}
	h.recorded("token_denied", "grant_ended")
}

func TestReusedRefreshEndsTheFamily(t *testing.T) {
	h := newHouse(t, usual())
	r := h.tokens()
	bystander := h.tokens()
	next := h.post("/token", h.refreshed(r.Refresh))
	if again := h.post("/token", h.refreshed(r.Refresh)); again.Status != 400 || again.Error != "invalid_grant" {
		t.Errorf("%+v", again)
	}
	h.recorded("token_replay", "refresh_used_before")
	if last := h.post("/token", h.refreshed(next.Refresh)); last.Error != "invalid_grant" {
		t.Errorf("the family lives: %+v", last)
	}
	h.mustRefuse(next.Access, "grant_ended")
	h.mustRefuse(r.Access, "grant_ended")
	h.mustBearer(bystander.Access)
}

func TestRefreshRefused(t *testing.T) {
	h := newHouse(t, Settings{Failures: 1000, Clients: usual().Clients})
	for name, tt := range map[string]struct {
		pairs  []string
		after  time.Duration
		scope  string
		status int
		err    string
		reason string
	}{
		"no token":                      {pairs: []string{"refresh_token", ""}, status: 400, err: "invalid_request", reason: "malformed"},
		"made up":                       {pairs: []string{"refresh_token", "crt_aaaaaaaaaaaaaaaa_aaaaaaaaaaaaaaaaaaaaaaaa"}, status: 400, err: "invalid_grant", reason: "unknown_token"},
		"other client":                  {pairs: []string{"client_id", "other"}, status: 400, err: "invalid_grant", reason: "client_mismatch"},
		"unknown client":                {pairs: []string{"client_id", "nobody"}, status: 401, err: "invalid_client", reason: "unknown_client"},
		"wider":                         {scope: "read offline_access", pairs: []string{"scope", "read operate"}, status: 400, err: "invalid_scope", reason: "scope"},
		"a scope of ours but not given": {scope: "read offline_access", pairs: []string{"scope", "operate"}, status: 400, err: "invalid_scope", reason: "scope"},
		"unknown scope":                 {pairs: []string{"scope", "read approve"}, status: 400, err: "invalid_scope", reason: "scope"},
		"only to stay":                  {pairs: []string{"scope", "offline_access"}, status: 400, err: "invalid_scope", reason: "scope"},
		"other resource":                {pairs: []string{"resource", "https://elsewhere.example.org/mcp"}, status: 400, err: "invalid_target", reason: "resource"},
		"idle too long":                 {after: 30*24*time.Hour + time.Second, status: 400, err: "invalid_grant", reason: "expired"},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.scope == "" {
				tt.scope = "read operate offline_access"
			}
			first := h.tokens("scope", tt.scope)
			h.pass(tt.after)
			r := h.post("/token", h.refreshed(first.Refresh, tt.pairs...))
			if r.Status != tt.status || r.Error != tt.err || r.Access != "" {
				t.Errorf("%+v", r)
			}
			h.recorded("token_denied", tt.reason)
		})
	}
	t.Run("narrower, then whole again", func(t *testing.T) {
		r := h.post("/token", h.refreshed(h.tokens().Refresh, "scope", "read"))
		if r.Scope != "read" {
			t.Fatalf("%+v", r)
		}
		if c := h.mustBearer(r.Access); !slices.Equal(c.Principal.Roles, []string{"viewer"}) {
			t.Errorf("%+v", c)
		}
		if r = h.post("/token", h.refreshed(r.Refresh)); r.Scope != "read operate offline_access" {
			t.Errorf("%+v", r)
		}
	})
	t.Run("an access token is none", func(t *testing.T) {
		if r := h.post("/token", h.refreshed(h.tokens().Access)); r.Error != "invalid_grant" {
			t.Errorf("%+v", r)
		}
	})
	t.Run("not for every client", func(t *testing.T) {
		if r := h.tokens("client_id", "brief"); r.Refresh != "" || r.Scope != "read operate" {
			t.Errorf("%+v", r)
		}
	})
	t.Run("too often", func(t *testing.T) {
		r := h.tokens()
		for range refreshesPerHour {
			if r = h.post("/token", h.refreshed(r.Refresh)); r.Status != 200 {
				t.Fatalf("%+v", r)
			}
		}
		if r = h.post("/token", h.refreshed(r.Refresh)); r.Status != 429 || r.Header.Get("Retry-After") == "" {
			t.Errorf("%+v", r)
		}
	})
}

func TestConfidentialClient(t *testing.T) {
	h := newHouse(t, usual())
	basic := func(code, id, secret string) reply {
		form := h.redeemed(code)
		form.Del("client_id")
		req, _ := http.NewRequest("POST", h.url+"/token", strings.NewReader(form.Encode()))
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.SetBasicAuth(url.QueryEscape(id), url.QueryEscape(secret))
		return h.send(req)
	}
	pairs := []string{"client_id", "secret", "scope", "read"}
	if r := basic(h.code(pairs...), "secret", clientSecret); r.Status != 200 {
		t.Errorf("%+v", r)
	}
	if r := h.post("/token", h.redeemed(h.code(pairs...), "client_id", "secret", "client_secret", clientSecret)); r.Status != 200 {
		t.Errorf("%+v", r)
	} else if c := h.mustBearer(r.Access); c.Principal.Agent != "static:confidential" {
		t.Errorf("%+v", c)
	}
	if r := basic(h.code(pairs...), "secret", clientSecret+"x"); r.Status != 401 || r.Error != "invalid_client" || !strings.HasPrefix(r.Header.Get("WWW-Authenticate"), "Basic ") {
		t.Errorf("%+v", r)
	}
	if r := h.post("/token", h.redeemed(h.code(pairs...), "client_id", "secret")); r.Status != 401 {
		t.Errorf("without a secret: %+v", r)
	}
}
