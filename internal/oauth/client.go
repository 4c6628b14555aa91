package oauth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"castellan/internal/gate"
	"castellan/internal/seal"
)

// Kinds of clients.
const (
	KindStatic   = "static"   // set up by hand
	KindDocument = "document" // its id is the URL of its metadata document
	KindDynamic  = "dynamic"  // registered itself
)

const dynamicPrefix = "dyn-"

// client is whoever may ask for authorization.
type client struct {
	ID           string    `json:"id"`
	Kind         string    `json:"kind"`
	Name         string    `json:"name,omitempty"` // its own words, cleaned; of a static one the operator's
	Redirects    []string  `json:"redirects"`
	Scopes       []string  `json:"scopes"`
	Refresh      bool      `json:"refresh,omitempty"` // it can use refresh tokens
	Confidential bool      `json:"confidential,omitempty"`
	Since        time.Time `json:"since,omitzero"`
	secretHash   string
}

// host is that of the client id; only a document has one.
func (c *client) host() string {
	if c.Kind != KindDocument {
		return ""
	}
	u, err := url.Parse(c.ID)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// agent names the client where policy and audit look: by what it has proved, as far as it has proved anything.
func (c *client) agent(r redirect) string {
	switch c.Kind {
	case KindStatic:
		return "static:" + c.Name
	case KindDocument:
		if r.loopback {
			return c.host() + ":loopback" // any program on the person's machine can say that it is this client
		}
		return c.host()
	}
	if r.loopback {
		return strings.TrimSuffix("dynamic:loopback:"+word(c.Name), ":")
	}
	return "dynamic:" + r.host
}

// word makes a name of a client's own words.
func word(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.' || r == '_':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, s)
	return strings.Trim(s[:min(len(s), 40)], "-")
}

// parseDocument reads a client-id metadata document.
func parseDocument(id string, body []byte) (*client, error) {
	host, err := checkDocumentID(id)
	if err != nil {
		return nil, err
	}
	f, err := parseFields(body)
	if err != nil {
		return nil, err
	}
	own, err := f.text("client_id", maxClientID)
	if err != nil {
		return nil, err
	}
	if own != id {
		return nil, errors.New("the client_id in it is not its own address")
	}
	if _, ok := f["client_secret"]; ok {
		return nil, errors.New("it holds a client_secret, which cannot be secret there")
	}
	method, err := f.text("token_endpoint_auth_method", 64)
	if err != nil {
		return nil, err
	}
	if method != "" && method != "none" {
		return nil, errors.New("its token_endpoint_auth_method is not none, the only one that a document can use here")
	}
	c := &client{ID: id, Kind: KindDocument, Scopes: Scopes()}
	if err := c.describe(f); err != nil {
		return nil, err
	}
	for _, text := range c.Redirects {
		if _, err := parseRedirect(text); err != nil {
			return nil, fmt.Errorf("redirect_uris: %w", err)
		}
	}
	if c.Name == "" {
		c.Name = host
	}
	return c, nil
}

// describe reads what documents and registrations have in common.
func (c *client) describe(f fields) error {
	name, err := f.text("client_name", 1000)
	if err != nil {
		return err
	}
	c.Name = label(name)
	if c.Redirects, err = f.texts("redirect_uris", maxRedirects); err != nil {
		return err
	}
	if len(c.Redirects) == 0 {
		return errors.New("redirect_uris names no address")
	}
	grants, err := f.texts("grant_types", 20)
	if err != nil {
		return err
	}
	if len(grants) > 0 && !slices.Contains(grants, "authorization_code") {
		return errors.New("grant_types lacks authorization_code")
	}
	c.Refresh = slices.Contains(grants, "refresh_token")
	responses, err := f.texts("response_types", 20)
	if err != nil {
		return err
	}
	if len(responses) > 0 && !slices.Contains(responses, "code") {
		return errors.New("response_types lacks code")
	}
	return nil
}

// errUnknownClient says that there is no such client, or no longer.
var errUnknownClient = errors.New("there is no such client")

// known finds a client without asking anybody: one that is set up, has registered, or was let in by a person.
func (s *Server) known(tx gate.Tx, id string) (*client, *gate.Doc, error) {
	if c := s.rules.clients[id]; c != nil {
		return c, nil, nil
	}
	if id == "" || len(id) > maxClientID {
		return nil, nil, errUnknownClient
	}
	c := new(client)
	d, err := s.vault.get(tx, kindClient, id, c)
	if missing(err) {
		return nil, nil, errUnknownClient
	}
	if err != nil {
		return nil, nil, err
	}
	if c.ID != id || c.Kind == KindDocument && (s.rules.noDocuments || !s.library.allowed(c.host())) || c.Kind != KindDocument && c.Kind != KindDynamic {
		return nil, nil, errUnknownClient
	}
	return c, d, nil
}

// Fetches that are not answered from memory, within the window.
const (
	fetchesEach = 20  // of one address
	fetchesAll  = 300 // of all
)

// asking finds the client that asks for authorization, which may mean to fetch its document. The error is for a person.
func (s *Server) asking(ctx context.Context, id string, from Remote) (*client, error) {
	if !strings.HasPrefix(id, "https://") {
		var c *client
		err := s.view(ctx, func(tx gate.Tx) error {
			var err error
			if c, _, err = s.known(tx, id); errors.Is(err, errUnknownClient) {
				return nil
			}
			return err
		})
		if err == nil && c == nil {
			return nil, page("Remove the connection in the client and add it again, so that it registers anew.", "the client is not known here, or its registration has expired")
		}
		return c, err
	}
	host, err := checkDocumentID(id)
	if err != nil {
		return nil, page("Tell the maker of the client.", "the client id is an address that cannot be used: %s", err)
	}
	if s.rules.noDocuments || !s.library.allowed(host) {
		return nil, page("Whoever runs this server can change oauth.no_documents and oauth.document_hosts.", "clients of %s are not let in here", host)
	}
	if c, err, ok := s.library.kept(id); ok {
		return c, pageOf(host, err)
	}
	err = s.update(ctx, func(tx gate.Tx) (*Refused, error) {
		for bucket, limit := range map[string]int{"oauth/fetch/" + block(from): fetchesEach, "oauth/fetch": fetchesAll} {
			n, err := tx.Count(bucket, s.now().Add(-window))
			if err != nil {
				return nil, err
			}
			if n >= limit {
				return &Refused{Status: http.StatusTooManyRequests, Code: "temporarily_unavailable", After: window,
					Description: "too many different clients were asked for; try again in 15 minutes"}, nil
			}
			if err := tx.Hit(bucket, s.now()); err != nil {
				return nil, err
			}
		}
		return nil, nil
	})
	if err != nil {
		return nil, err
	}
	c, err := s.library.get(ctx, id)
	if err != nil {
		s.log.WarnContext(ctx, "client metadata document cannot be used", "client", id, "error", err)
	}
	return c, pageOf(host, err)
}

// pageOf tells a person why a document cannot be used. What the network said stays in the log: it may say what lies behind.
func pageOf(host string, err error) error {
	var dial interface{ Timeout() bool }
	switch {
	case err == nil:
		return nil
	case errors.As(err, &dial), errors.Is(err, errForbiddenAddress):
		return page("Try again in a minute; when it stays so, tell the maker of the client.", "the description of the client at %s cannot be fetched", host)
	}
	return page("Try again in a minute; when it stays so, tell the maker of the client.", "the description of the client at %s cannot be used: %s", host, err)
}

// secret checks a confidential client's secret in constant time.
func (c *client) secret(text string) bool {
	return c.secretHash != "" && seal.CheckToken(text, c.secretHash, "oauth client", c.ID)
}

// redirect finds the address that the client asks for among its own.
func (s *Server) redirect(c *client, text string) (redirect, error) {
	r, err := parseRedirect(text)
	if err != nil {
		return r, page("Tell the maker of the client.", "the address that the answer would go to cannot be used: %s", err)
	}
	if !slices.ContainsFunc(c.Redirects, func(own string) bool { return sameRedirect(own, r) }) {
		return r, page("Start again from the client; when it stays so, remove the connection there and add it again.", "the answer would go to %s, which is no address of this client", r.host)
	}
	if c.Kind == KindStatic || c.Kind == KindDocument && r.web && r.host == c.host() || s.rules.openRedirect(r) {
		return r, nil
	}
	return r, page("Whoever runs this server can add it to oauth.redirects.", "the answer would go to %s, which is not let in here", r.host)
}
