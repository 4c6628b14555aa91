package oauth

import (
	"slices"
	"time"

	"castellan/internal/gate"
)

// grant is what a person gave to a client: the family of all tokens that come of one code.
type grant struct {
	Client   string    `json:"client"`
	Agent    string    `json:"agent"`
	Name     string    `json:"name,omitempty"`
	Person   string    `json:"person"`
	Scopes   []string  `json:"scopes"`
	Resource string    `json:"resource"`
	Redirect string    `json:"redirect"`
	At       time.Time `json:"at"`
	Used     time.Time `json:"used"`             // when tokens were last issued
	Access   time.Time `json:"access"`           // until when the newest access token is good
	Refresh  time.Time `json:"refresh,omitzero"` // until when the refresh token is good
	Ended    time.Time `json:"ended,omitzero"`
	Why      string    `json:"why,omitempty"`
}

// until is when the grant ends by itself.
func (g *grant) until() time.Time {
	if g.Refresh.After(g.Access) {
		return g.Refresh
	}
	return g.Access
}

func (g *grant) alive(now time.Time) bool { return g.Ended.IsZero() && now.Before(g.until()) }

// Types of tokens.
const (
	typeAccess  = "access"
	typeRefresh = "refresh"
	typeStatic  = "static"
)

// token is a token as stored; its id is the document's.
type token struct {
	Type     string    `json:"type"`
	Hash     string    `json:"hash"`
	Grant    string    `json:"grant,omitempty"`
	Scopes   []string  `json:"scopes,omitempty"`
	Resource string    `json:"resource"`
	At       time.Time `json:"at"`
	Until    time.Time `json:"until"`
	Used     time.Time `json:"used,omitzero"` // of a refresh token: it was exchanged
	Ended    time.Time `json:"ended,omitzero"`
	// Of a static one only:
	Name   string   `json:"name,omitempty"`
	Agent  string   `json:"agent,omitempty"`
	Person string   `json:"person,omitempty"`
	Roles  []string `json:"roles,omitempty"`
	By     string   `json:"by,omitempty"`
}

// current says whether a token's time is now: neither over nor yet to come.
func (t *token) current(now time.Time) bool {
	return t.Ended.IsZero() && now.Before(t.Until) && !t.At.After(now.Add(skew))
}

// issued is the answer of the token endpoint.
type issued struct {
	Access  string `json:"access_token"`
	Type    string `json:"token_type"`
	Expires int    `json:"expires_in"` // seconds
	Refresh string `json:"refresh_token,omitempty"`
	Scope   string `json:"scope"`

	accessID string
}

// issue writes new tokens of a grant and the grant itself, whose document d is new or as read.
func (s *Server) issue(tx gate.Tx, d *gate.Doc, g *grant, scopes []string) (*issued, error) {
	now := s.now()
	access, err := draw(accessPrefix)
	if err != nil {
		return nil, err
	}
	g.Used, g.Access = now, now.Add(s.rules.access)
	out := &issued{Access: access.text, Type: "Bearer", Expires: int(s.rules.access / time.Second), Scope: joinScopes(scopes), accessID: access.id}
	t := token{Type: typeAccess, Hash: access.hash, Grant: d.ID, Scopes: scopes, Resource: g.Resource, At: now, Until: g.Access}
	if err := s.vault.put(tx, &gate.Doc{Kind: kindToken, ID: access.id, Owner: d.ID, Expires: t.Until.Add(graceLife)}, t); err != nil {
		return nil, err
	}
	if slices.Contains(g.Scopes, ScopeOffline) {
		refresh, err := draw(refreshPrefix)
		if err != nil {
			return nil, err
		}
		g.Refresh = now.Add(s.rules.refresh)
		t := token{Type: typeRefresh, Hash: refresh.hash, Grant: d.ID, Scopes: g.Scopes, Resource: g.Resource, At: now, Until: g.Refresh}
		if err := s.vault.put(tx, &gate.Doc{Kind: kindToken, ID: refresh.id, Owner: d.ID, Expires: t.Until.Add(graceLife)}, t); err != nil {
			return nil, err
		}
		out.Refresh = refresh.text
	}
	d.Expires = g.until().Add(graceLife)
	if err := s.vault.put(tx, d, g); err != nil {
		return nil, err
	}
	return out, s.keepClient(tx, g.Client, g.until().Add(graceLife))
}

// keepClient lets a client's registration live as long as what it has.
func (s *Server) keepClient(tx gate.Tx, id string, until time.Time) error {
	c, d, err := s.known(tx, id)
	if err != nil || d == nil || !d.Expires.Before(until) {
		return err
	}
	d.Expires = until
	return s.vault.put(tx, d, c)
}

// end ends a grant, and with it every token of it and the consent that it came of. It is no error when that has happened before.
func (s *Server) end(tx gate.Tx, id, why string) (*grant, error) {
	g := new(grant)
	d, err := s.vault.get(tx, kindGrant, id, g)
	if missing(err) {
		return nil, nil
	}
	if err != nil || !g.Ended.IsZero() {
		return g, err
	}
	g.Ended, g.Why = s.now(), why
	// A consent that is remembered would give the same again without asking.
	err = each(s.vault, tx, kindConsent, g.Person, func(d *gate.Doc, c *consent) error {
		if c.Client != g.Client {
			return nil
		}
		return tx.DropDoc(kindConsent, d.ID)
	})
	if err != nil {
		return nil, err
	}
	return g, s.vault.put(tx, d, g)
}

func joinScopes(scopes []string) string {
	out := ""
	for i, s := range scopes {
		if i > 0 {
			out += " "
		}
		out += s
	}
	return out
}
