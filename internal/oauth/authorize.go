package oauth

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strings"
	"time"

	"castellan/internal/gate"
)

// Redirect is an error of an authorization request that its client is to be told: send the browser to URL.
type Redirect struct {
	URL  string
	Code string // of the RFCs
}

// Redirect is URL, for those who know errors by their methods.
func (r *Redirect) Redirect() string { return r.URL }

func (r *Redirect) Error() string { return "the authorization request was refused: " + r.Code }

// Asked is a good request for authorization, for the page that asks the person. What decides are the hosts; the name is
// the client's own word.
type Asked struct {
	Ticket       string    // names the request to Pending, Recall and Consent; it is good for 15 minutes and one answer
	ClientID     string    // bounded
	ClientName   string    // its own words, cleaned; an operator's for a static client
	ClientHost   string    // the host that vouches for the client; empty when nobody does
	Kind         string    // KindStatic, KindDocument or KindDynamic
	Agent        string    // how policy and audit will call it
	RedirectURI  string    // where the answer goes
	RedirectHost string    // where the answer goes; scheme and host where that is no web address
	Loopback     bool      // the answer goes to a program on the person's own machine; which one, nobody can tell
	Scopes       []string  // what it asks for, from least to most
	Resource     string    // what the tokens would be for
	Changed      bool      // the client's addresses are not those that somebody let in before
	Expires      time.Time // of the ticket
}

// request is what a ticket holds.
type request struct {
	Client    string    `json:"c"`
	Kind      string    `json:"k"`
	Name      string    `json:"n,omitempty"`
	Refresh   bool      `json:"f,omitempty"`
	Redirects []string  `json:"rs"`
	Redirect  string    `json:"r"`
	Challenge string    `json:"h"`
	State     string    `json:"s,omitempty"`
	Scopes    []string  `json:"sc"`
	Resource  string    `json:"a"`
	Ask       bool      `json:"p,omitempty"` // the client wants the person to be asked
	Until     time.Time `json:"u"`
	ID        string    `json:"i"`
	Changed   bool      `json:"d,omitempty"`
	From      Remote    `json:"o"` // who asked, for the ledger
}

const (
	ticketLife = 15 * time.Minute
	maxState   = 4096
	maxValue   = 2048
)

// Authorize checks an authorization request. An error is a *Redirect when the client is to be told, else it is for the
// person: a *gate.Error, whose cause has the method Wait() time.Duration when there were too many.
func (s *Server) Authorize(ctx context.Context, q url.Values, from Remote) (_ *Asked, err error) {
	defer forPeople(&err)
	if err := s.enter(ctx, "authorize", from); err != nil {
		return nil, err
	}
	asked, client, reason, err := s.judge(ctx, q, from)
	if err == nil {
		return asked, nil
	}
	var refused *Refused
	if errors.As(err, &refused) {
		return nil, err
	}
	e := event{name: "authorize_fail", status: "denied", from: from, client: client, reason: reason, detail: err.Error()}
	if broken := s.update(ctx, func(tx gate.Tx) (*Refused, error) { return nil, s.failed(tx, "authorize", e) }); broken != nil {
		return nil, broken
	}
	return nil, err
}

// judge finds the first fault; reason names it in the ledger.
func (s *Server) judge(ctx context.Context, q url.Values, from Remote) (asked *Asked, clientID, reason string, err error) {
	const again = "Start again from the client; when it stays so, tell its maker."
	for name, values := range q {
		if name != "resource" && len(values) > 1 {
			return nil, "", "malformed", page(again, "the request has a parameter twice")
		}
		for _, v := range values {
			if len(v) > maxValue && name != "state" || len(v) > maxState {
				return nil, "", "malformed", page(again, "a parameter of the request is too long")
			}
		}
	}
	id := q.Get("client_id")
	if id == "" {
		return nil, "", "malformed", page(again, "the request names no client")
	}
	c, err := s.asking(ctx, id, from)
	if err != nil {
		return nil, id, "unknown_client", err
	}
	if !q.Has("redirect_uri") {
		return nil, id, "redirect", page(again, "the request does not say where the answer should go")
	}
	r, err := s.redirect(c, q.Get("redirect_uri"))
	if err != nil {
		return nil, id, "redirect", err
	}
	// From here on the client can be told.
	state := q.Get("state")
	tell := func(code, description string) error {
		return &Redirect{Code: code, URL: withQuery(r.text, "error", code, "error_description", description, "state", state, "iss", s.issuer)}
	}
	if q.Has("request") {
		return nil, id, "malformed", tell("request_not_supported", "give the parameters themselves")
	}
	if q.Has("request_uri") {
		return nil, id, "malformed", tell("request_uri_not_supported", "give the parameters themselves")
	}
	if q.Get("response_type") != "code" {
		return nil, id, "response_type", tell("unsupported_response_type", "response_type must be code")
	}
	if m := q.Get("response_mode"); m != "" && m != "query" {
		return nil, id, "response_mode", tell("invalid_request", "response_mode must be query")
	}
	if q.Get("code_challenge_method") != "S256" {
		return nil, id, "challenge", tell("invalid_request", "PKCE with code_challenge_method S256 is needed")
	}
	if !isChallenge(q.Get("code_challenge")) {
		return nil, id, "challenge", tell("invalid_request", "code_challenge is not the base64url text of a SHA-256")
	}
	if !s.ours(q["resource"]) {
		return nil, id, "resource", tell("invalid_target", "resource is not "+s.resource)
	}
	scopes, ok := s.scopesFor(c, q)
	if !ok {
		return nil, id, "scope", tell("invalid_scope", "ask for read, operate or both; offline_access may be added")
	}
	prompt := strings.Fields(q.Get("prompt"))
	if slices.Contains(prompt, "none") {
		return nil, id, "prompt", tell("consent_required", "a person is always asked")
	}
	changed, err := s.changed(ctx, c)
	if err != nil {
		return nil, id, "internal", err
	}
	req := request{Client: c.ID, Kind: c.Kind, Name: c.Name, Refresh: c.Refresh, Redirects: c.Redirects, Redirect: r.text, Challenge: q.Get("code_challenge"), State: state,
		Scopes: scopes, Resource: s.resource, Ask: slices.Contains(prompt, "consent") || slices.Contains(prompt, "login"), Until: s.now().Add(ticketLife), ID: newID(), Changed: changed,
		From: Remote{from.IP, clip(from.UserAgent, maxAgentText)}}
	ticket, err := s.ticket(req)
	if err != nil {
		return nil, id, "internal", err
	}
	asked, err = s.asked(ticket, req)
	return asked, id, "internal", err
}

// changed says whether a document names other addresses than when somebody let its client in.
func (s *Server) changed(ctx context.Context, c *client) (bool, error) {
	if c.Kind != KindDocument {
		return false, nil
	}
	old := new(client)
	err := s.view(ctx, func(tx gate.Tx) error {
		_, err := s.vault.get(tx, kindClient, c.ID, old)
		if missing(err) {
			old = nil
			return nil
		}
		return err
	})
	return err == nil && old != nil && !slices.Equal(slices.Sorted(slices.Values(old.Redirects)), slices.Sorted(slices.Values(c.Redirects))), err
}

// scopesFor are those asked for that there are and that the client may have. Who names none gets the least. A client that
// can use refresh tokens is taken to want to stay connected, since many do not ask for it; the person decides.
func (s *Server) scopesFor(c *client, q url.Values) ([]string, bool) {
	text := q.Get("scope")
	if strings.TrimSpace(text) == "" {
		text = ScopeRead
	}
	if c.Refresh {
		text += " " + ScopeOffline
	}
	out := slices.DeleteFunc(knownScopes(text), func(scope string) bool { return !slices.Contains(c.Scopes, scope) })
	return out, usable(out)
}

func isChallenge(s string) bool {
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	return err == nil && len(b) == 32 && len(s) == 43
}

// ours says whether each resource named is this one; naming none means it too.
func (s *Server) ours(resources []string) bool {
	for _, r := range resources {
		if strings.TrimSuffix(r, "/") != s.resource {
			return false
		}
	}
	return true
}

// ticket writes a request so that only we can have: nothing is stored for a request that nobody has answered.
func (s *Server) ticket(r request) (string, error) {
	b, err := json.Marshal(r)
	if err != nil {
		return "", err
	}
	mac := s.vault.keys.MAC("oauth ticket", string(b))
	return base64.RawURLEncoding.EncodeToString(append(mac[:], b...)), nil
}

func (s *Server) open(ticket string) (request, error) {
	bad := page("Start again from the client.", "the request is not one that was asked here")
	var r request
	if len(ticket) > 32<<10 {
		return r, bad
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(ticket)
	if err != nil || len(b) < macLen || !s.vault.keys.CheckMAC(b[:macLen], "oauth ticket", string(b[macLen:])) || json.Unmarshal(b[macLen:], &r) != nil {
		return request{}, bad
	}
	if !s.now().Before(r.Until) || r.Resource != s.resource {
		return request{}, page("Start again from the client.", "the request is older than %d minutes", int(ticketLife/time.Minute))
	}
	return r, nil
}

func (s *Server) asked(ticket string, r request) (*Asked, error) {
	to, err := parseRedirect(r.Redirect)
	if err != nil {
		return nil, err
	}
	c := r.asClient()
	return &Asked{Ticket: ticket, ClientID: r.Client, ClientName: r.Name, ClientHost: c.host(), Kind: r.Kind, Agent: c.agent(to), RedirectURI: r.Redirect, RedirectHost: to.host,
		Loopback: to.loopback, Scopes: r.Scopes, Resource: r.Resource, Changed: r.Changed, Expires: r.Until}, nil
}

func (r request) asClient() *client {
	return &client{ID: r.Client, Kind: r.Kind, Name: r.Name, Redirects: r.Redirects, Scopes: Scopes(), Refresh: r.Refresh}
}

// Pending gives the request of a ticket again, for drawing the page once more.
func (s *Server) Pending(_ context.Context, ticket string) (*Asked, error) {
	r, err := s.open(ticket)
	if err != nil {
		return nil, err
	}
	return s.asked(ticket, r)
}
