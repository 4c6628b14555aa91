package oauth

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"castellan/internal/gate"
	"castellan/internal/ledger"
	"castellan/internal/seal"
	"castellan/internal/store"
)

// people is a register of accounts that can change.
type people struct {
	mu      sync.Mutex
	roles   map[string][]string
	until   map[string]time.Time
	failing bool
}

func (p *people) Standing(_ context.Context, who gate.Principal) (gate.Principal, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failing {
		return gate.Principal{}, errors.New("the register cannot be read")
	}
	have, ok := p.roles[who.Person]
	if !ok || who.Strength != gate.StrengthSession || who.Agent != "" {
		return gate.Principal{}, gate.Fail(gate.ErrDenied, "", "there is no account")
	}
	asked := who.Roles
	who.Roles = nil
	for _, r := range have { // as identity does: what is asked for and there
		if slices.Contains(asked, r) {
			who.Roles = append(who.Roles, r)
		}
	}
	who.Until = p.until[who.Person]
	return who, nil
}

func (p *people) set(name string, roles ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if roles == nil {
		delete(p.roles, name)
		return
	}
	p.roles[name] = roles
}

// house is a server with everything around it: real store, real HTTP, a page that stands for sign-in and consent.
type house struct {
	t      testing.TB
	s      *Server
	store  *store.Store
	dir    string
	keys   *seal.Keys
	people *people
	url    string

	mu     sync.Mutex
	shift  time.Duration
	person gate.Principal
	allow  bool
	scopes []string // nil: all that are asked for
	page   *Asked   // the last consent page
	ip     netip.Addr
}

const (
	staticRedirect = "https://app.example.org/cb"
	loopRedirect   = "http://127.0.0.1/callback"
)

func usual() Settings {
	return Settings{Clients: []StaticClient{
		{ID: "pub", Redirects: []string{staticRedirect, loopRedirect, "http://localhost/callback", "http://[::1]/callback"}},
		{ID: "brief", Redirects: []string{staticRedirect}, Scopes: []string{"operate", "read"}},
		{ID: "other", Redirects: []string{staticRedirect}},
		{ID: "secret", Name: "confidential", SecretFile: "secret", Redirects: []string{staticRedirect}, Scopes: []string{"read"}},
	}}
}

const clientSecret = "a secret of enough characters"

func newHouse(t testing.TB, set Settings, with ...func(*Config)) *house {
	t.Helper()
	h := &house{t: t, dir: t.TempDir(), allow: true, ip: netip.MustParseAddr("203.0.113.7"),
		people: &people{roles: map[string][]string{"ann": {"administrator", "approver", "operator"}, "vic": {"viewer"}, "boss": {"administrator"}}, until: map[string]time.Time{}}}
	h.person = session("ann", "operator")
	var err error
	if h.keys, err = seal.CreateKeys(filepath.Join(h.dir, "keys")); err != nil {
		t.Fatal(err)
	}
	if h.store, err = store.Open(context.Background(), store.Config{URL: filepath.Join(h.dir, "state", "castellan.db"), Signer: h.keys.Ledger(), Clock: h.now}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.store.Close() })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h.url = "http://" + l.Addr().String()
	c := Config{Store: h.store, Keys: h.keys, Settings: set, Issuer: h.url, People: h.people, Clock: h.now, Remote: h.remote,
		Secrets: func(string) (seal.Secret, error) { return seal.NewSecret([]byte(clientSecret)), nil }}
	for _, f := range with {
		f(&c)
	}
	if h.s, err = New(c); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/", h.s.Handler())
	mux.HandleFunc("/authorize", h.consentPage)
	mux.Handle("/mcp", h.mcp())
	ts := &httptest.Server{Listener: l, Config: &http.Server{Handler: mux}}
	ts.Start()
	t.Cleanup(ts.Close)
	return h
}

func session(name string, roles ...string) gate.Principal {
	return gate.Principal{Person: name, WayIn: "console", Strength: gate.StrengthSession, Roles: roles}
}

func (h *house) now() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Now().Add(h.shift)
}

func (h *house) pass(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.shift += d
}

func (h *house) remote(r *http.Request) Remote {
	h.mu.Lock()
	defer h.mu.Unlock()
	return Remote{IP: h.ip, UserAgent: r.UserAgent()}
}

func (h *house) from() Remote {
	h.mu.Lock()
	defer h.mu.Unlock()
	return Remote{IP: h.ip, UserAgent: "test"}
}

// moved gives the requests another address.
func (h *house) moved(ip string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ip = netip.MustParseAddr(ip)
}

// consentPage stands for sign-in and consent: the person of the house answers at once.
func (h *house) consentPage(w http.ResponseWriter, r *http.Request) {
	asked, err := h.s.Authorize(r.Context(), r.URL.Query(), h.remote(r))
	var back *Redirect
	if errors.As(err, &back) {
		http.Redirect(w, r, back.URL, http.StatusFound)
		return
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	h.mu.Lock()
	h.page = asked
	person, allow, scopes := h.person, h.allow, h.scopes
	h.mu.Unlock()
	if scopes == nil {
		scopes = asked.Scopes
	}
	to, err := h.s.Consent(r.Context(), asked.Ticket, person, allow, scopes)
	if err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	http.Redirect(w, r, to, http.StatusFound)
}

// records lists the authorization records of an operation, newest first.
func (h *house) records(op string) []ledger.Found {
	h.t.Helper()
	p, err := h.store.Search(context.Background(), ledger.Query{Kind: "auth", Op: op, Limit: 500})
	if err != nil {
		h.t.Fatal(err)
	}
	return p.Records
}

// recorded checks the newest record of an operation.
func (h *house) recorded(op, reason string) map[string]any {
	h.t.Helper()
	list := h.records(op)
	if len(list) == 0 {
		h.t.Errorf("nothing is recorded as %s", op)
		return nil
	}
	var data map[string]any
	if err := json.Unmarshal(list[0].Data, &data); err != nil {
		h.t.Fatal(err)
	}
	if got := data["reason"]; reason != "" && got != reason {
		h.t.Errorf("%s is recorded with reason %v, want %s", op, got, reason)
	}
	return data
}

const verifier = "a-verifier-of-enough-characters-0123456789._~"

func challengeOf(v string) string {
	sum := sha256.Sum256([]byte(v))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// request is a good authorization request of the public client; pairs change it, an empty value takes one out.
func (h *house) request(pairs ...string) url.Values {
	q := url.Values{"response_type": {"code"}, "client_id": {"pub"}, "redirect_uri": {staticRedirect}, "state": {"s t/+&"}, "scope": {"read operate offline_access"},
		"code_challenge": {challengeOf(verifier)}, "code_challenge_method": {"S256"}, "resource": {h.url + "/mcp"}}
	return changedBy(q, pairs)
}

func changedBy(q url.Values, pairs []string) url.Values {
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] == "" {
			q.Del(pairs[i])
			continue
		}
		q.Set(pairs[i], pairs[i+1])
	}
	return q
}

// code lets the person consent and returns the code.
func (h *house) code(pairs ...string) string {
	h.t.Helper()
	q := h.request(pairs...)
	asked, err := h.s.Authorize(context.Background(), q, h.from())
	if err != nil {
		h.t.Fatal(err)
	}
	to, err := h.s.Consent(context.Background(), asked.Ticket, h.person, true, asked.Scopes)
	if err != nil {
		h.t.Fatal(err)
	}
	u, err := url.Parse(to)
	if err != nil {
		h.t.Fatal(err)
	}
	got := u.Query()
	if got.Get("state") != q.Get("state") || got.Get("iss") != h.url || got.Get("code") == "" || !strings.HasPrefix(to, q.Get("redirect_uri")+"?") {
		h.t.Fatalf("the answer goes to %s", to)
	}
	return got.Get("code")
}

type reply struct {
	Status       int
	Header       http.Header
	Access       string `json:"access_token"`
	Type         string `json:"token_type"`
	Expires      int    `json:"expires_in"`
	Refresh      string `json:"refresh_token"`
	Scope        string `json:"scope"`
	Error        string `json:"error"`
	Description  string `json:"error_description"`
	ID           string `json:"client_id"`
	Method       string `json:"token_endpoint_auth_method"`
	Name         string `json:"client_name"`
	Grants       []string
	RedirectURIs []string `json:"redirect_uris"`
}

func (h *house) send(req *http.Request) reply {
	h.t.Helper()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		h.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		h.t.Fatal(err)
	}
	out := reply{Status: resp.StatusCode, Header: resp.Header}
	if len(b) > 0 {
		if err := json.Unmarshal(b, &out); err != nil {
			h.t.Fatalf("%d %s: %v", resp.StatusCode, b, err)
		}
	}
	if resp.Header.Get("Cache-Control") != "no-store" {
		h.t.Errorf("the answer may be kept: %q", resp.Header.Get("Cache-Control"))
	}
	return out
}

func (h *house) post(path string, form url.Values) reply {
	h.t.Helper()
	req, err := http.NewRequest("POST", h.url+path, strings.NewReader(form.Encode()))
	if err != nil {
		h.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return h.send(req)
}

// redeemed is a good request for a code.
func (h *house) redeemed(code string, pairs ...string) url.Values {
	return changedBy(url.Values{"grant_type": {"authorization_code"}, "code": {code}, "client_id": {"pub"}, "redirect_uri": {staticRedirect}, "code_verifier": {verifier}, "resource": {h.url + "/mcp"}}, pairs)
}

func (h *house) refreshed(token string, pairs ...string) url.Values {
	return changedBy(url.Values{"grant_type": {"refresh_token"}, "refresh_token": {token}, "client_id": {"pub"}}, pairs)
}

// tokens goes the whole way.
func (h *house) tokens(pairs ...string) reply {
	h.t.Helper()
	q := h.request(pairs...)
	r := h.post("/token", h.redeemed(h.code(pairs...), "client_id", q.Get("client_id"), "redirect_uri", q.Get("redirect_uri")))
	if r.Status != 200 || r.Access == "" || r.Type != "Bearer" {
		h.t.Fatalf("%+v", r)
	}
	return r
}

func (h *house) bearer(token string) (Caller, error) {
	return h.s.Bearer(context.Background(), token, h.from())
}

func (h *house) mustBearer(token string) Caller {
	h.t.Helper()
	c, err := h.bearer(token)
	if err != nil {
		h.t.Fatalf("a good token is refused: %v", err)
	}
	return c
}

func (h *house) mustRefuse(token, reason string) {
	h.t.Helper()
	h.pass(foldFor) // so that it is recorded
	c, err := h.bearer(token)
	var r *Refused
	if !errors.As(err, &r) || r.Status != 401 || r.Code != "invalid_token" {
		h.t.Fatalf("want a refusal (%s), got %+v, %v", reason, c, err)
	}
	if c.Principal.Person != "" || c.Principal.Roles != nil {
		h.t.Errorf("a refused caller is %+v", c)
	}
	h.recorded("access_denied", reason)
}

func (h *house) String() string { return fmt.Sprint(h.url) }
