package oauth

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"castellan/internal/gate"
)

// site serves metadata documents over TLS under a name of the public kind, on this machine.

type site struct {
	server *httptest.Server
	port   string
	asked  atomic.Int64
	mu     sync.Mutex
	serve  http.HandlerFunc
}

func newSite(t testing.TB) *site {
	s := &site{}
	s.server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked.Add(1)
		s.mu.Lock()
		f := s.serve
		s.mu.Unlock()
		f(w, r)
	}))
	s.server.Config.ErrorLog = nil
	t.Cleanup(s.server.Close)
	u, err := url.Parse(s.server.URL)
	if err != nil {
		t.Fatal(err)
	}
	s.port = u.Port()
	return s
}

func (s *site) does(f http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serve = f
}

// id is a client id at this site; its certificate is for example.com and below.

func (s *site) id(path string) string { return "https://example.com:" + s.port + path }

func (s *site) roots() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(s.server.Certificate())
	return p
}

// fetch reaches the site under any name.

func (s *site) fetch() Fetch {
	return Fetch{Roots: s.roots(), Permit: func(ap netip.AddrPort) bool { return ap.Addr().IsLoopback() },
		Lookup: func(context.Context, string) ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
		}}
}

func doc(id string, redirects ...string) map[string]any {
	return map[string]any{"client_id": id, "client_name": "A client", "redirect_uris": redirects, "grant_types": []string{"authorization_code", "refresh_token"}, "token_endpoint_auth_method": "none"}
}

func give(body any, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for i := 0; i+1 < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		json.NewEncoder(w).Encode(body)
	}
}

func documentHouse(t *testing.T, set Settings) (*house, *site) {
	s := newSite(t)
	h := newHouse(t, set, func(c *Config) { c.Fetch = s.fetch() })
	return h, s
}

func TestDocumentClient(t *testing.T) {
	h, s := documentHouse(t, usual())
	id := s.id("/client.json")
	s.does(give(doc(id, "https://example.com/cb", "http://localhost/callback"), "Cache-Control", "max-age=600"))
	r := h.tokens("client_id", id, "redirect_uri", "https://example.com/cb")
	c := h.mustBearer(r.Access)
	if c.Principal.Agent != "example.com" || c.Principal.Client != "A client" || c.Client != id {
		t.Errorf("%+v", c)
	}
	local := h.tokens("client_id", id, "redirect_uri", "http://localhost:4711/callback")
	if c := h.mustBearer(local.Access); c.Principal.Agent != "example.com:loopback" {
		t.Errorf("%+v", c)
	}
	if n := s.asked.Load(); n != 1 {
		t.Errorf("the document was fetched %d times", n)
	}
	h.pass(601 * time.Second)
	h.tokens("client_id", id, "redirect_uri", "https://example.com/cb")
	if n := s.asked.Load(); n != 2 {
		t.Errorf("the document was fetched %d times after its time", n)
	}
	// The endpoints ask nobody: a client that goes down does not take its connections along.
	s.does(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) })
	h.pass(time.Hour)
	if next := h.post("/token", h.refreshed(r.Refresh, "client_id", id)); next.Status != 200 {
		t.Errorf("%+v", next)
	}
}

func TestDocumentsRefused(t *testing.T) {
	s := newSite(t)
	big := doc(s.id("/c"), "https://example.com/cb")
	big["x"] = strings.Repeat("y", maxDocument)
	with := func(change func(map[string]any)) map[string]any {
		d := doc(s.id("/c"), "https://example.com/cb")
		change(d)
		return d
	}
	raw := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, text)
		}
	}
	good := fmt.Sprintf(`{"client_id":%q,"redirect_uris":["https://example.com/cb"]`, s.id("/c"))
	for name, serve := range map[string]http.HandlerFunc{
		"other client id":    give(doc(s.id("/other"), "https://example.com/cb")),
		"no client id":       give(map[string]any{"redirect_uris": []string{"https://example.com/cb"}}),
		"name in other case": raw(strings.Replace(good, "client_id", "Client_ID", 1) + "}"),
		"name twice":         raw(good + fmt.Sprintf(`,"client_id":%q}`, s.id("/c"))),
		"something after":    raw(good + "}{}"),
		"cut":                raw(good),
		"a list":             raw("[]"),
		"no JSON":            raw("hello"),
		"secret in it":       give(with(func(d map[string]any) { d["client_secret"] = "x" })),
		"secret method":      give(with(func(d map[string]any) { d["token_endpoint_auth_method"] = "client_secret_post" })),
		"key method":         give(with(func(d map[string]any) { d["token_endpoint_auth_method"] = "private_key_jwt" })),
		"no redirects":       give(with(func(d map[string]any) { d["redirect_uris"] = []string{} })),
		"redirects no list":  give(with(func(d map[string]any) { d["redirect_uris"] = "https://example.com/cb" })),
		"a redirect of null": give(with(func(d map[string]any) { d["redirect_uris"] = []any{nil} })),
		"a bad redirect":     give(with(func(d map[string]any) { d["redirect_uris"] = []string{"javascript:alert(1)"} })),
		"many redirects":     give(with(func(d map[string]any) { d["redirect_uris"] = make([]string, maxRedirects+1) })),
		"other grants":       give(with(func(d map[string]any) { d["grant_types"] = []string{"client_credentials"} })),
		"name of numbers":    give(with(func(d map[string]any) { d["client_name"] = 7 })),
		"too large":          give(big),
		"a redirect":         func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/d", 302) },
		"a permanent redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://169.254.169.254/latest/meta-data", 308)
		},
		"not found":       func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) },
		"no content":      func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) },
		"HTML":            give(doc(s.id("/c"), "https://example.com/cb"), "Content-Type", "text/html"),
		"compressed":      give(doc(s.id("/c"), "https://example.com/cb"), "Content-Encoding", "gzip"),
		"large head":      give(doc(s.id("/c"), "https://example.com/cb"), "X-Y", strings.Repeat("z", 64<<10)),
		"as it should be": give(doc(s.id("/c"), "https://example.com/cb")),
		"never ready":     func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			own := newSite(t)
			own.does(func(w http.ResponseWriter, r *http.Request) {
				// The document names the outer site; both have the same name, so let the port follow.
				rec := httptest.NewRecorder()
				if name == "never ready" {
					serve(w, r)
					return
				}
				serve(rec, r)
				for k, v := range rec.Header() {
					w.Header()[k] = v
				}
				w.WriteHeader(rec.Code)
				w.Write([]byte(strings.ReplaceAll(rec.Body.String(), ":"+s.port, ":"+own.port)))
			})
			h := newHouse(t, usual(), func(c *Config) { c.Fetch = own.fetch() })
			a, err := h.s.Authorize(ctx, h.request("client_id", own.id("/c"), "redirect_uri", "https://example.com/cb"), h.from())
			if name == "as it should be" {
				if err != nil {
					t.Errorf("a good document is refused: %v", err)
				}
				return
			}
			var shown *gate.Error
			if err == nil || !errors.As(err, &shown) {
				t.Errorf("%+v, %v", a, err)
			}
			if err != nil && strings.Contains(err.Error(), "127.0.0.1") {
				t.Errorf("the refusal tells what lies behind: %v", err)
			}
			asked := own.asked.Load()
			h.s.Authorize(ctx, h.request("client_id", own.id("/c"), "redirect_uri", "https://example.com/cb"), h.from())
			if own.asked.Load() != asked {
				t.Error("a failure is asked for again at once")
			}
		})
	}
}

func TestDocumentRedirects(t *testing.T) {
	h, s := documentHouse(t, Settings{Redirects: []string{"https://let.example.org/in/*"}, Failures: 100})
	id := s.id("/c")
	s.does(give(doc(id, "https://example.com/cb", "https://evil.example.org/cb", "https://claude.ai/api/mcp/auth_callback", "https://let.example.org/in/x", "http://127.0.0.1:1/cb", "myapp://x/y")))
	for to, ok := range map[string]bool{"https://example.com/cb": true, "https://claude.ai/api/mcp/auth_callback": true, "https://let.example.org/in/x": true, "http://127.0.0.1:4711/cb": true,
		"https://evil.example.org/cb": false, "myapp://x/y": false, "https://let.example.org/in/y": false} {
		if _, err := h.s.Authorize(ctx, h.request("client_id", id, "redirect_uri", to), h.from()); (err == nil) != ok {
			t.Errorf("%s: %v", to, err)
		}
	}
}

// TestNoWayToPrivateAddresses uses the rule as it is, against a listener that would answer.

func TestAllowList(t *testing.T) {
	h, s := documentHouse(t, Settings{DocumentHosts: []string{"claude.ai", "*.example.org"}, Failures: 100})
	s.does(give(doc("x")))
	for host, ok := range map[string]bool{"claude.ai": true, "a.example.org": true, "example.org": false, "evil.ai": false, "xexample.org": false, "claude.ai.evil.org": false} {
		if got := h.s.library.allowed(host); got != ok {
			t.Errorf("%s: %v", host, got)
		}
	}
	if _, err := h.s.Authorize(ctx, h.request("client_id", s.id("/c"), "redirect_uri", "https://example.com/cb"), h.from()); err == nil || s.asked.Load() != 0 {
		t.Errorf("%v, asked %d times", err, s.asked.Load())
	}
	h, s = documentHouse(t, Settings{NoDocuments: true})
	if _, err := h.s.Authorize(ctx, h.request("client_id", s.id("/c"), "redirect_uri", "https://example.com/cb"), h.from()); err == nil || s.asked.Load() != 0 {
		t.Errorf("%v, asked %d times", err, s.asked.Load())
	}
}

// TestFetchesAreBounded: many ask for the same document at once, and one address for many different ones.

func TestFetchesAreBounded(t *testing.T) {
	h, s := documentHouse(t, Settings{Failures: 1000})
	id := s.id("/c")
	body := give(doc(id, "https://example.com/cb"))
	s.does(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(50 * time.Millisecond)
		body(w, r)
	})
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			if _, err := h.s.Authorize(ctx, h.request("client_id", id, "redirect_uri", "https://example.com/cb"), h.from()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := s.asked.Load(); n != 1 {
		t.Errorf("fetched %d times", n)
	}
	h.moved("203.0.113.8")
	var last error
	for i := range fetchesEach + 1 {
		_, last = h.s.Authorize(ctx, h.request("client_id", s.id(fmt.Sprint("/d", i)), "redirect_uri", "https://example.com/cb"), h.from())
	}
	var r *Refused
	if !errors.As(last, &r) || r.Status != 429 || r.Wait() == 0 {
		t.Errorf("the last: %v", last)
	}
	if n := s.asked.Load(); n != 1+fetchesEach {
		t.Errorf("fetched %d times", n)
	}
	l := newLibrary(Fetch{Lookup: func(context.Context, string) ([]netip.Addr, error) { return nil, errors.New("no such host") }}, nil, time.Now)
	for i := range 2 * maxEntries {
		if _, err := l.get(ctx, fmt.Sprint("https://example.com/e", i)); err == nil {
			t.Fatal("no error")
		}
	}
	if n := len(l.entries); n > maxEntries {
		t.Errorf("%d documents are kept", n)
	}
}

func TestRememberedConsent(t *testing.T) {
	set := usual()
	set.RememberConsent = "24h"
	h, s := documentHouse(t, set)
	id := s.id("/c")
	s.does(give(doc(id, "https://example.com/cb", "http://127.0.0.1/cb"), "Cache-Control", "no-store"))
	ask := func(pairs ...string) *Asked {
		t.Helper()
		a, err := h.s.Authorize(ctx, h.request(append([]string{"client_id", id, "redirect_uri", "https://example.com/cb"}, pairs...)...), h.from())
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	recalled := func(want bool, a *Asked, person gate.Principal) {
		t.Helper()
		to, ok, err := h.s.Recall(ctx, a.Ticket, person)
		if err != nil || ok != want || ok != strings.Contains(to, "code=cac_") {
			t.Errorf("recalled %v %s %v", ok, to, err)
		}
	}
	ann := session("ann", "operator")
	recalled(false, ask(), ann)
	a := ask()
	if _, err := h.s.Consent(ctx, a.Ticket, ann, true, a.Scopes); err != nil {
		t.Fatal(err)
	}
	recalled(true, ask(), ann)
	recalled(false, ask(), session("vic", "viewer"))
	recalled(false, ask("prompt", "consent"), ann)
	recalled(false, ask("scope", "read"), ann)
	recalled(false, ask(), gate.Principal{Agent: "x", Person: "ann", Strength: gate.StrengthToken})
	local := ask("redirect_uri", "http://127.0.0.1:4711/cb")
	if _, err := h.s.Consent(ctx, local.Ticket, ann, true, local.Scopes); err != nil {
		t.Fatal(err)
	}
	recalled(false, ask("redirect_uri", "http://127.0.0.1:4711/cb"), ann)
	if a := ask(); a.Changed {
		t.Errorf("changed: %+v", a)
	}
	// Other addresses in the document: the person is asked again, and told.
	s.does(give(doc(id, "https://example.com/cb", "https://example.com/cb2"), "Cache-Control", "no-store"))
	if a := ask(); !a.Changed {
		t.Errorf("not changed: %+v", a)
	}
	recalled(false, ask(), ann)
	a = ask()
	if _, err := h.s.Consent(ctx, a.Ticket, ann, true, a.Scopes); err != nil {
		t.Fatal(err)
	}
	recalled(true, ask(), ann)
	if err := h.s.RevokeClient(ctx, session("ann", "administrator"), id); err != nil {
		t.Fatal(err)
	}
	recalled(false, ask(), ann)
	// Nor is one that was taken back where it shows: at its connection, by the person or whoever oversees.
	h.pass(16 * time.Minute) // fetches are counted
	for _, who := range []gate.Principal{ann, session("boss", "administrator")} {
		a = ask()
		to, err := h.s.Consent(ctx, a.Ticket, ann, true, a.Scopes)
		if err != nil {
			t.Fatal(err)
		}
		u, err := url.Parse(to)
		if err != nil {
			t.Fatal(err)
		}
		h.post(PathToken, h.redeemed(u.Query().Get("code"), "client_id", id, "redirect_uri", "https://example.com/cb"))
		all, err := h.s.Tokens(ctx)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(all, func(c TokenInfo) bool { return c.Client == id && c.Live(h.now()) })
		if i < 0 {
			t.Fatal("there is no connection")
		}
		recalled(true, ask(), ann)
		if err := h.s.RevokeToken(ctx, who, all[i].ID); err != nil {
			t.Fatal(err)
		}
		recalled(false, ask(), ann)
	}
	a = ask()
	if _, err := h.s.Consent(ctx, a.Ticket, ann, true, a.Scopes); err != nil {
		t.Fatal(err)
	}
	h.pass(25 * time.Hour)
	recalled(false, ask(), ann)

	// By default nothing is remembered.
	h2 := newHouse(t, usual())
	for range 2 {
		a, err := h2.s.Authorize(ctx, h2.request(), h2.from())
		if err != nil {
			t.Fatal(err)
		}
		if _, ok, _ := h2.s.Recall(ctx, a.Ticket, ann); ok {
			t.Error("recalled")
		}
		if _, err := h2.s.Consent(ctx, a.Ticket, ann, true, a.Scopes); err != nil {
			t.Fatal(err)
		}
	}
}
