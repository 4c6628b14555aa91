package oauth

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestMetadata(t *testing.T) {
	h := newHouse(t, usual())
	get := func(path string) map[string]any {
		t.Helper()
		resp, err := http.Get(h.url + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		out := map[string]any{}
		if err := json.NewDecoder(resp.Body).Decode(&out); err != nil || resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "application/json" || resp.Header.Get("Access-Control-Allow-Origin") != "*" {
			t.Fatalf("%s: %d %v", path, resp.StatusCode, err)
		}
		return out
	}
	m := get("/.well-known/oauth-authorization-server")
	for name, want := range map[string]string{
		"issuer": h.url, "authorization_endpoint": h.url + "/authorize", "token_endpoint": h.url + "/token", "registration_endpoint": h.url + "/register", "revocation_endpoint": h.url + "/revoke",
		"response_types_supported": "[code]", "code_challenge_methods_supported": "[S256]", "grant_types_supported": "[authorization_code refresh_token]", "scopes_supported": "[read operate offline_access]",
		"client_id_metadata_document_supported": "true", "authorization_response_iss_parameter_supported": "true", "token_endpoint_auth_methods_supported": "[none client_secret_basic client_secret_post]",
	} {
		if got := fmt.Sprint(m[name]); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	for _, path := range []string{"/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp"} {
		p := get(path)
		if p["resource"] != h.url+"/mcp" || fmt.Sprint(p["authorization_servers"]) != "["+h.url+"]" || fmt.Sprint(p["scopes_supported"]) != "[read operate]" || fmt.Sprint(p["bearer_methods_supported"]) != "[header]" {
			t.Errorf("%s: %v", path, p)
		}
	}
	off := newHouse(t, Settings{NoRegistration: true, NoDocuments: true})
	resp, err := http.Get(off.url + "/.well-known/oauth-authorization-server")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	m = map[string]any{}
	if json.NewDecoder(resp.Body).Decode(&m); m["registration_endpoint"] != nil || m["client_id_metadata_document_supported"] != false {
		t.Errorf("%v", m)
	}
}

func TestEndpointsRefuse(t *testing.T) {
	h := newHouse(t, Settings{Failures: 1000})
	form := "application/x-www-form-urlencoded"
	for name, tt := range map[string]struct {
		method, path, kind, body string
		headers                  []string
		status                   int
		code                     string
	}{
		"get token":           {"GET", "/token", "", "", nil, 405, "invalid_request"},
		"put token":           {"PUT", "/token", form, "", nil, 405, "invalid_request"},
		"get register":        {"GET", "/register", "", "", nil, 405, "invalid_request"},
		"delete revoke":       {"DELETE", "/revoke", "", "", nil, 405, "invalid_request"},
		"post metadata":       {"POST", "/.well-known/oauth-authorization-server", "", "", nil, 405, "invalid_request"},
		"elsewhere":           {"GET", "/tokens", "", "", nil, 404, "not_found"},
		"below":               {"POST", "/token/x", form, "", nil, 404, "not_found"},
		"other well-known":    {"GET", "/.well-known/oauth-protected-resource/other", "", "", nil, 404, "not_found"},
		"JSON at token":       {"POST", "/token", "application/json", "{}", nil, 415, "invalid_request"},
		"no type":             {"POST", "/token", "", "grant_type=x", nil, 415, "invalid_request"},
		"multipart":           {"POST", "/token", "multipart/form-data; boundary=x", "--x--", nil, 415, "invalid_request"},
		"charset":             {"POST", "/token", form + "; charset=utf-16", "grant_type=x", nil, 415, "invalid_request"},
		"compressed":          {"POST", "/token", form, "grant_type=x", []string{"Content-Encoding", "gzip"}, 415, "invalid_request"},
		"form at register":    {"POST", "/register", form, "x=y", nil, 415, "invalid_request"},
		"query":               {"POST", "/token?code=x", form, "grant_type=authorization_code", nil, 400, "invalid_request"},
		"large":               {"POST", "/token", form, "x=" + strings.Repeat("y", maxForm), nil, 413, "invalid_request"},
		"large registration":  {"POST", "/register", "application/json", `{"x":"` + strings.Repeat("y", maxRegistration) + `"}`, nil, 413, "invalid_request"},
		"twice":               {"POST", "/token", form, "grant_type=authorization_code&code=a&code=b", nil, 400, "invalid_request"},
		"semicolon":           {"POST", "/token", form, "grant_type=a;b", nil, 400, "invalid_request"},
		"bad escape":          {"POST", "/token", form, "grant_type=%zz", nil, 400, "invalid_request"},
		"long parameter":      {"POST", "/token", form, "code=" + strings.Repeat("y", maxValue+1), nil, 400, "invalid_request"},
		"bearer for client":   {"POST", "/token", form, "grant_type=authorization_code", []string{"Authorization", "Bearer x"}, 401, "invalid_client"},
		"broken basic":        {"POST", "/token", form, "grant_type=authorization_code", []string{"Authorization", "Basic ???"}, 401, "invalid_client"},
		"two ways":            {"POST", "/token", form, "grant_type=authorization_code&client_secret=x", []string{"Authorization", "Basic YTpi"}, 400, "invalid_request"},
		"two clients":         {"POST", "/token", form, "grant_type=authorization_code&client_id=x", []string{"Authorization", "Basic YTpi"}, 400, "invalid_request"},
		"empty":               {"POST", "/token", form, "", nil, 400, "invalid_request"},
		"revoke nothing":      {"POST", "/revoke", form, "", nil, 400, "invalid_request"},
		"register nothing":    {"POST", "/register", "application/json", "", nil, 400, "invalid_client_metadata"},
		"register a list":     {"POST", "/register", "application/json", "[]", nil, 400, "invalid_client_metadata"},
		"register two":        {"POST", "/register", "application/json", `{"redirect_uris":["http://127.0.0.1/x"]}{}`, nil, 400, "invalid_client_metadata"},
		"register deep":       {"POST", "/register", "application/json", `{"x":` + strings.Repeat("[", 15000), nil, 400, "invalid_client_metadata"},
		"register no address": {"POST", "/register", "application/json", `{}`, nil, 400, "invalid_redirect_uri"},
		"register elsewhere":  {"POST", "/register", "application/json", `{"redirect_uris":["https://evil.example.org/cb"]}`, nil, 400, "invalid_redirect_uri"},
		"register both":       {"POST", "/register", "application/json", `{"redirect_uris":["http://127.0.0.1/cb","https://evil.example.org/cb"]}`, nil, 400, "invalid_redirect_uri"},
		"register script":     {"POST", "/register", "application/json", `{"redirect_uris":["javascript:alert(1)"]}`, nil, 400, "invalid_redirect_uri"},
		"register grants":     {"POST", "/register", "application/json", `{"redirect_uris":["http://127.0.0.1/cb"],"grant_types":["implicit"]}`, nil, 400, "invalid_client_metadata"},
		"register response":   {"POST", "/register", "application/json", `{"redirect_uris":["http://127.0.0.1/cb"],"response_types":["token"]}`, nil, 400, "invalid_client_metadata"},
		"register scope":      {"POST", "/register", "application/json", `{"redirect_uris":["http://127.0.0.1/cb"],"scope":"admin"}`, nil, 400, "invalid_client_metadata"},
		"register name":       {"POST", "/register", "application/json", `{"redirect_uris":["http://127.0.0.1/cb"],"client_name":{}}`, nil, 400, "invalid_client_metadata"},
		"register long name":  {"POST", "/register", "application/json", `{"redirect_uris":["http://127.0.0.1/cb"],"client_name":"` + strings.Repeat("x", 2000) + `"}`, nil, 400, "invalid_client_metadata"},
	} {
		t.Run(name, func(t *testing.T) {
			req, err := http.NewRequest(tt.method, h.url+tt.path, strings.NewReader(tt.body))
			if err != nil {
				t.Fatal(err)
			}
			if tt.kind != "" {
				req.Header.Set("Content-Type", tt.kind)
			}
			for i := 0; i+1 < len(tt.headers); i += 2 {
				req.Header.Set(tt.headers[i], tt.headers[i+1])
			}
			r := h.send(req)
			if r.Status != tt.status || r.Error != tt.code || r.Description == "" || strings.ContainsAny(r.Description, "\"\\\n") {
				t.Errorf("%+v", r)
			}
			if r.Status == 405 && r.Header.Get("Allow") == "" {
				t.Error("405 without Allow")
			}
		})
	}
}

func (h *house) register(body string) reply {
	h.t.Helper()
	req, err := http.NewRequest("POST", h.url+"/register", strings.NewReader(body))
	if err != nil {
		h.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json; charset=utf-8")
	return h.send(req)
}

func TestDynamicClient(t *testing.T) {
	h := newHouse(t, usual())
	r := h.register(`{"redirect_uris":["http://127.0.0.1/callback","https://claude.ai/api/mcp/auth_callback"],"client_name":"Claude\u202e Code","token_endpoint_auth_method":"client_secret_basic",
		"grant_types":["authorization_code","refresh_token","urn:x"],"response_types":["code"],"logo_uri":"https://evil.example.org/x.svg","client_id":"chosen","client_secret":"chosen","scope":"read operate"}`)
	if r.Status != 201 || !strings.HasPrefix(r.ID, "dyn-") || r.Method != "none" || r.Name != "Claude Code" {
		t.Fatalf("%+v", r)
	}
	h.recorded("register_ok", "")
	tok := h.tokens("client_id", r.ID, "redirect_uri", "http://127.0.0.1:4711/callback", "scope", "read")
	c := h.mustBearer(tok.Access)
	if c.Principal.Agent != "dynamic:loopback:claude-code" || c.Principal.Client != "Claude Code" || tok.Refresh == "" || !slices.Equal(c.Principal.Roles, []string{"viewer"}) {
		t.Errorf("%+v %+v", c, tok)
	}
	web := h.tokens("client_id", r.ID, "redirect_uri", "https://claude.ai/api/mcp/auth_callback")
	if c := h.mustBearer(web.Access); c.Principal.Agent != "dynamic:claude.ai" {
		t.Errorf("%+v", c)
	}
	// It lives as long as what it has; one that nobody let in is forgotten.
	idle := h.register(`{"redirect_uris":["http://127.0.0.1/callback"]}`)
	h.pass(unusedLife + time.Second)
	if _, err := h.s.Authorize(ctx, h.request("client_id", idle.ID, "redirect_uri", "http://127.0.0.1/callback"), h.from()); err == nil {
		t.Error("an old registration is known")
	}
	if r := h.post("/token", h.refreshed(tok.Refresh, "client_id", idle.ID)); r.Status != 401 || r.Error != "invalid_client" {
		t.Errorf("%+v", r)
	}
	if r := h.post("/token", h.refreshed(tok.Refresh, "client_id", r.ID)); r.Status != 200 {
		t.Errorf("%+v", r)
	}
	off := newHouse(t, Settings{NoRegistration: true})
	if r := off.register(`{"redirect_uris":["http://127.0.0.1/callback"]}`); r.Status != 403 {
		t.Errorf("%+v", r)
	}
	off.recorded("register_denied", "switched_off")
}

func TestRegistrationsAreBounded(t *testing.T) {
	h := newHouse(t, usual())
	const good = `{"redirect_uris":["http://127.0.0.1/callback"]}`
	for i := range registersEach {
		if r := h.register(good); r.Status != 201 {
			t.Fatalf("%d: %+v", i, r)
		}
	}
	if r := h.register(good); r.Status != 429 || r.Header.Get("Retry-After") != "3600" {
		t.Errorf("%+v", r)
	}
	h.moved("2001:db8:1::1")
	if r := h.register(good); r.Status != 201 {
		t.Errorf("%+v", r)
	}
	h.moved("203.0.113.7")
	h.pass(time.Hour + time.Second)
	if r := h.register(good); r.Status != 201 {
		t.Errorf("%+v", r)
	}
}

func TestLockOut(t *testing.T) {
	h := newHouse(t, Settings{Failures: 5, Clients: usual().Clients})
	code := h.code()
	bad := h.redeemed("cac_aaaaaaaaaaaaaaaa_aaaaaaaaaaaaaaaaaaaaaaaa")
	for i := range 5 {
		if r := h.post("/token", bad); r.Status != 400 {
			t.Fatalf("%d: %+v", i, r)
		}
	}
	h.recorded("authorize_lockout", "token")
	n := len(h.records("token_denied"))
	for range 3 {
		if r := h.post("/token", h.redeemed(code)); r.Status != 429 || r.Header.Get("Retry-After") != "900" || r.Access != "" {
			t.Errorf("a good code of a locked address: %+v", r)
		}
	}
	if now := len(h.records("token_denied")); now != n || n != 5 || len(h.records("authorize_lockout")) != 1 {
		t.Errorf("%d denied, %d before, %d lock-outs", now, n, len(h.records("authorize_lockout")))
	}
	// Others are not touched, and neither are the other doors.
	h.moved("203.0.113.9")
	if r := h.post("/token", h.redeemed(code)); r.Status != 200 {
		t.Errorf("%+v", r)
	}
	h.moved("203.0.113.7")
	if r := h.post("/revoke", map[string][]string{"token": {"x"}, "client_id": {"pub"}}); r.Status != 200 {
		t.Errorf("%+v", r)
	}
	h.pass(window + time.Second)
	if r := h.post("/token", bad); r.Status != 400 {
		t.Errorf("after the time: %+v", r)
	}
	// A whole /64 is one.
	for i := range 5 {
		h.moved(fmt.Sprintf("2001:db8:2::%d", i+1))
		h.post("/token", bad)
	}
	h.moved("2001:db8:2::99")
	if r := h.post("/token", bad); r.Status != 429 {
		t.Errorf("another address of the same network: %+v", r)
	}
	for range 5 {
		h.post("/revoke", map[string][]string{"token": {"x"}})
		h.register(`{}`)
		h.s.Authorize(ctx, h.request("client_id", "nobody"), h.from())
	}
	if r := h.post("/revoke", map[string][]string{"token": {"x"}}); r.Status != 429 {
		t.Errorf("revoke: %+v", r)
	}
	if r := h.register(`{"redirect_uris":["http://127.0.0.1/callback"]}`); r.Status != 429 {
		t.Errorf("register: %+v", r)
	}
	if _, err := h.s.Authorize(ctx, h.request(), h.from()); asRefused(err).Status != 429 {
		t.Errorf("authorize: %v", err)
	}
}

func TestRevocation(t *testing.T) {
	h := newHouse(t, Settings{Failures: 100, Clients: usual().Clients})
	revoke := func(token, client string) reply {
		t.Helper()
		form := map[string][]string{"token": {token}, "token_type_hint": {"access_token"}}
		if client != "" {
			form["client_id"] = []string{client}
		}
		return h.post("/revoke", form)
	}
	r := h.tokens()
	if got := revoke(r.Access, "other"); got.Status != 400 || got.Error != "invalid_grant" {
		t.Errorf("%+v", got)
	}
	h.recorded("revoke_denied", "client_mismatch")
	if got := revoke(r.Access, "nobody"); got.Status != 401 || got.Error != "invalid_client" {
		t.Errorf("%+v", got)
	}
	h.mustBearer(r.Access)
	for range 2 { // again is fine
		if got := revoke(r.Access, "pub"); got.Status != 200 {
			t.Errorf("%+v", got)
		}
	}
	h.recorded("revoke_ok", "access")
	h.mustRefuse(r.Access, "revoked")
	next := h.post("/token", h.refreshed(r.Refresh))
	if next.Status != 200 {
		t.Fatalf("%+v", next)
	}
	if got := revoke(next.Refresh, "pub"); got.Status != 200 {
		t.Errorf("%+v", got)
	}
	h.mustRefuse(next.Access, "grant_ended")
	if got := h.post("/token", h.refreshed(next.Refresh)); got.Error != "invalid_grant" {
		t.Errorf("%+v", got)
	}
	// Who holds the token of a public client may give it up without saying more.
	r = h.tokens()
	if got := revoke(r.Access, ""); got.Status != 200 {
		t.Errorf("%+v", got)
	}
	h.mustRefuse(r.Access, "revoked")
	// A confidential client has to say who it is.
	code := h.code("client_id", "secret", "scope", "read")
	r = h.post("/token", h.redeemed(code, "client_id", "secret", "client_secret", clientSecret))
	if got := revoke(r.Access, ""); got.Status != 400 {
		t.Errorf("%+v", got)
	}
	h.mustBearer(r.Access)
	for _, unknown := range []string{"x", "cat_aaaaaaaaaaaaaaaa_aaaaaaaaaaaaaaaaaaaaaaaa", r.Access[:len(r.Access)-1] + "_", h.code()} {
		if got := revoke(unknown, "pub"); got.Status != 200 {
			t.Errorf("%+v", got)
		}
		h.recorded("revoke_denied", "unknown_token")
	}
	h.mustBearer(r.Access)
}
