// Package oauth is castellan's own OAuth 2.1 authorization server for MCP clients, and the judge of the bearer tokens
// that it gave: authorization code with PKCE, refresh tokens that rotate, static bearers. Tokens are opaque and stored
// hashed; every document that grants something carries a MAC, so that a row changed in the database is refused. No scope
// reaches approval. Pages (sign-in and consent) are drawn by others, who call Authorize and Consent.
package oauth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"castellan/internal/gate"
	"castellan/internal/seal"
)

// People tells what is left of a person's access.
type People interface {
	// Standing gives the person's principal with the roles and the expiry that hold now; an error when the access has ended.
	Standing(ctx context.Context, p gate.Principal) (gate.Principal, error)
}

// Remote is the other side of a request.
type Remote struct {
	IP        netip.Addr // behind a trusted proxy the client's, else that of the connection
	UserAgent string     // its own words
}

// Config of a Server.
type Config struct {
	Store    gate.Store
	Keys     *seal.Keys
	Settings Settings
	// Issuer is the public URL, scheme and host only: https, or http on a loopback name.
	Issuer string
	// Resource is the URL of the MCP endpoint; Issuer + "/mcp" when empty.
	Resource string
	People   People
	// Roles are the names of the policy's own roles. They limit whoever has them, so a caller has those of its person.
	Roles []string
	// Remote tells who sends a request; nil takes the address of the connection.
	Remote func(*http.Request) Remote
	// Fetch says how client-id metadata documents are fetched.
	Fetch Fetch
	// Secrets opens the secret files of static clients; nil is seal.Open.
	Secrets func(path string) (seal.Secret, error)
	Clock   gate.Clock   // time.Now when nil
	Log     *slog.Logger // nil discards
}

// Server is the authorization server. It is safe for use by many goroutines, and several may share one store.
type Server struct {
	store    gate.Store
	vault    vault
	rules    rules
	issuer   string
	resource string
	people   People
	roles    []string // all that a person is asked about
	remote   func(*http.Request) Remote
	library  *library
	folder   *folder
	clock    gate.Clock
	log      *slog.Logger
}

// New makes a server. Without store, keys or people there is none: nothing would protect from replay.
func New(c Config) (*Server, error) {
	switch {
	case c.Store == nil:
		return nil, errors.New("make authorization server: it has no store")
	case c.Keys == nil:
		return nil, errors.New("make authorization server: it has no keys")
	case c.People == nil:
		return nil, errors.New("make authorization server: it knows no people")
	}
	if err := checkIssuer(c.Issuer); err != nil {
		return nil, fmt.Errorf("make authorization server: public URL %q: %w", c.Issuer, err)
	}
	if c.Resource == "" {
		c.Resource = c.Issuer + "/mcp"
	}
	if !strings.HasPrefix(c.Resource, c.Issuer+"/") {
		return nil, fmt.Errorf("make authorization server: resource %q is not below the public URL %q", c.Resource, c.Issuer)
	}
	if c.Secrets == nil {
		c.Secrets = seal.Open
	}
	r, err := c.Settings.parse(c.Secrets)
	if err != nil {
		return nil, fmt.Errorf("make authorization server: %w", err)
	}
	s := &Server{store: c.Store, vault: vault{c.Keys}, rules: r, issuer: c.Issuer, resource: c.Resource, people: c.People, roles: append([]string{gate.RoleOperator, gate.RoleViewer}, c.Roles...),
		remote: c.Remote, clock: c.Clock, log: c.Log, folder: &folder{}}
	if s.clock == nil {
		s.clock = time.Now
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.remote == nil {
		s.remote = direct
	}
	s.library = newLibrary(c.Fetch, r.documentHosts, s.clock)
	return s, nil
}

// checkIssuer takes an origin only: the well-known paths lie at the root of the host.
func checkIssuer(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return err
	case u.Host == "" || u.User != nil || u.Path != "" || u.RawQuery != "" || u.Fragment != "" || u.Scheme+"://"+u.Host != text:
		return errors.New("give scheme and host only, such as https://castellan.example.org")
	case u.Scheme == "https" || u.Scheme == "http" && isLoopbackName(u.Hostname()):
		return nil
	}
	return errors.New("it must be https (http is for loopback names only)")
}

func direct(r *http.Request) Remote {
	ap, _ := netip.ParseAddrPort(r.RemoteAddr) // invalid: the zero address, which all unknown share
	return Remote{IP: ap.Addr().Unmap(), UserAgent: r.UserAgent()}
}

func (s *Server) now() time.Time { return s.clock().UTC() }

// update runs f in one transaction. A refusal commits what f has written (the record of it), an error undoes it. f may
// run again: it sets what it gives out itself.
func (s *Server) update(ctx context.Context, f func(gate.Tx) (*Refused, error)) error {
	var refused *Refused
	err := s.store.Update(ctx, func(tx gate.Tx) error {
		var err error
		refused, err = f(tx)
		return err
	})
	if err != nil {
		return s.unavailable(ctx, err)
	}
	if refused != nil {
		return refused
	}
	return nil
}

func (s *Server) view(ctx context.Context, f func(gate.Tx) error) error {
	if err := s.store.View(ctx, f); err != nil {
		return s.unavailable(ctx, err)
	}
	return nil
}

// unavailable hides from outsiders what is wrong with the store, and tells the log.
func (s *Server) unavailable(ctx context.Context, err error) error {
	s.log.ErrorContext(ctx, "authorization server cannot use its store", "error", err)
	return &Refused{Status: http.StatusServiceUnavailable, Code: "temporarily_unavailable", After: 30 * time.Second,
		Description: "the server cannot read or record just now; nothing was given; try again later", cause: err}
}

// standing says what a person has now of the roles that a caller can have.
func (s *Server) standing(ctx context.Context, person string) (gate.Principal, error) {
	p, err := s.people.Standing(ctx, gate.Principal{Person: person, WayIn: "console", Strength: gate.StrengthSession, Roles: slices.Clone(s.roles)})
	if err != nil {
		var e *gate.Error
		if errors.As(err, &e) && (e.Kind == gate.ErrDenied || e.Kind == gate.ErrNotFound) {
			return gate.Principal{}, errEnded
		}
		return gate.Principal{}, s.unavailable(ctx, err)
	}
	if p.Person != person || p.Agent != "" || !p.Until.IsZero() && !s.now().Before(p.Until) {
		return gate.Principal{}, errEnded
	}
	return p, nil
}

// errEnded: the person's access has ended, or has no role that a caller could have.
var errEnded = errors.New("the person's access has ended")
