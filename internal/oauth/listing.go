package oauth

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"castellan/internal/gate"
)

// ClientInfo is a client for the console.
type ClientInfo struct {
	ID        string    `json:"id"`
	Kind      string    `json:"kind"`
	Name      string    `json:"name"`           // its own words, cleaned
	Host      string    `json:"host,omitempty"` // who vouches for it
	Redirects []string  `json:"redirects"`
	Since     time.Time `json:"since,omitzero"`
	Expires   time.Time `json:"expires,omitzero"` // zero: it stands in the configuration
	Live      int       `json:"live"`             // connections that hold
}

// TokenInfo is a connection of a client, or a static bearer.
type TokenInfo struct {
	ID      string    `json:"id"`
	Kind    string    `json:"kind"` // "connection" or "static"
	Name    string    `json:"name,omitempty"`
	Agent   string    `json:"agent"`
	Person  string    `json:"person"`
	Client  string    `json:"client,omitempty"`
	Scopes  []string  `json:"scopes,omitempty"`
	Roles   []string  `json:"roles"` // at most; the person's own roles limit them
	Since   time.Time `json:"since"`
	Used    time.Time `json:"used,omitzero"` // when tokens were last given
	Expires time.Time `json:"expires"`
	Ended   time.Time `json:"ended,omitzero"`
	Why     string    `json:"why,omitempty"`
}

// Live says whether it still gives access.
func (t TokenInfo) Live(now time.Time) bool { return t.Ended.IsZero() && now.Before(t.Expires) }

// Clients lists the clients that are known, by id.
func (s *Server) Clients(ctx context.Context) (out []ClientInfo, err error) {
	defer forPeople(&err)
	err = s.view(ctx, func(tx gate.Tx) error {
		out = nil
		live := map[string]int{}
		if err := each(s.vault, tx, kindGrant, "", func(_ *gate.Doc, g *grant) error {
			if g.alive(s.now()) {
				live[g.Client]++
			}
			return nil
		}); err != nil {
			return err
		}
		add := func(c *client, expires time.Time) {
			out = append(out, ClientInfo{ID: c.ID, Kind: c.Kind, Name: c.Name, Host: c.host(), Redirects: c.Redirects, Since: c.Since, Expires: expires, Live: live[c.ID]})
		}
		for _, c := range s.rules.clients {
			add(c, time.Time{})
		}
		return each(s.vault, tx, kindClient, "", func(d *gate.Doc, c *client) error {
			add(c, d.Expires)
			return nil
		})
	})
	slices.SortFunc(out, func(a, b ClientInfo) int { return strings.Compare(a.ID, b.ID) })
	return out, err
}

// Tokens lists connections and static bearers, newest first.
func (s *Server) Tokens(ctx context.Context) (out []TokenInfo, err error) {
	defer forPeople(&err)
	err = s.view(ctx, func(tx gate.Tx) error {
		out = nil
		if err := each(s.vault, tx, kindGrant, "", func(d *gate.Doc, g *grant) error {
			out = append(out, TokenInfo{ID: d.ID, Kind: "connection", Name: g.Name, Agent: g.Agent, Person: g.Person, Client: g.Client, Scopes: g.Scopes, Roles: scopeRoles(g.Scopes),
				Since: g.At, Used: g.Used, Expires: g.until(), Ended: g.Ended, Why: g.Why})
			return nil
		}); err != nil {
			return err
		}
		return each(s.vault, tx, kindToken, "", func(d *gate.Doc, t *token) error {
			if t.Type == typeStatic {
				out = append(out, TokenInfo{ID: d.ID, Kind: "static", Name: t.Name, Agent: t.Agent, Person: t.Person, Roles: t.Roles, Since: t.At, Expires: t.Until, Ended: t.Ended})
			}
			return nil
		})
	})
	slices.SortFunc(out, func(a, b TokenInfo) int {
		if c := b.Since.Compare(a.Since); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return out, err
}

// mine lets people take back what was given in their name, and those who oversee everything.
func mine(who gate.Principal, person string) bool {
	return who.Oversees() || isPerson(who) == nil && who.Person == person
}

// RevokeToken ends a connection, an access token or a static bearer by its id.
func (s *Server) RevokeToken(ctx context.Context, who gate.Principal, id string) (err error) {
	defer forPeople(&err)
	absent := gate.Fail(gate.ErrNotFound, "The list of tokens has the ids.", "there is no token of yours with this id")
	var fault error
	err = s.update(ctx, func(tx gate.Tx) (*Refused, error) {
		fault = nil
		e := event{name: "revoke_ok", status: "ok", who: who, token: id, reason: "by_person"}
		refused := func() (*Refused, error) {
			e.name, e.status, e.reason = "revoke_denied", "denied", "not_found_or_not_theirs"
			fault = absent
			return nil, s.record(tx, e)
		}
		g := new(grant)
		_, err := s.vault.get(tx, kindGrant, id, g)
		if err == nil {
			if !mine(who, g.Person) {
				return refused()
			}
			e.client, e.grant, e.token = g.Client, id, ""
			if _, err := s.end(tx, id, "revoked by "+who.Person); err != nil {
				return nil, err
			}
			return nil, s.record(tx, e)
		}
		if !missing(err) {
			return nil, err
		}
		t := new(token)
		d, err := s.vault.get(tx, kindToken, id, t)
		if err == nil && t.Type != typeStatic {
			_, err = s.vault.get(tx, kindGrant, t.Grant, g)
		}
		if err != nil && !missing(err) {
			return nil, err
		}
		if err != nil || !mine(who, t.Person+g.Person) {
			return refused()
		}
		if t.Type == typeRefresh {
			if _, err := s.end(tx, t.Grant, "revoked by "+who.Person); err != nil {
				return nil, err
			}
		} else if t.Ended.IsZero() {
			t.Ended = s.now()
			if err := s.vault.put(tx, d, t); err != nil {
				return nil, err
			}
		}
		e.client, e.grant = g.Client, t.Grant
		return nil, s.record(tx, e)
	})
	if err != nil {
		return err
	}
	return fault
}

// RevokeClient ends everything that a client has, and its registration. One that is set up by hand, or has a document,
// can be let in again by a person.
func (s *Server) RevokeClient(ctx context.Context, who gate.Principal, id string) error {
	if !who.Oversees() {
		return errNotGoverning
	}
	return s.revokeAll(ctx, who, event{client: id, reason: "client"}, func(g *grant) bool { return g.Client == id }, func(tx gate.Tx) (bool, error) {
		_, _, err := s.known(tx, id)
		if errors.Is(err, errUnknownClient) {
			_, err = tx.Doc(kindClient, id)
		}
		if err != nil {
			return false, unlessMissing(err)
		}
		if err := each(s.vault, tx, kindConsent, "", func(d *gate.Doc, c *consent) error {
			if c.Client == id {
				return tx.DropDoc(kindConsent, d.ID)
			}
			return nil
		}); err != nil {
			return false, err
		}
		if err := s.burn(tx, "", func(c *code) bool { return c.Client == id }); err != nil {
			return false, err
		}
		return true, tx.DropDoc(kindClient, id)
	})
}

// RevokePerson ends everything that was given in a person's name: to be called when the account is removed, so that a later
// one of the same name does not have it.
func (s *Server) RevokePerson(ctx context.Context, who gate.Principal, person string) error {
	if !mine(who, person) {
		return errNotGoverning
	}
	return s.revokeAll(ctx, who, event{reason: "person", detail: person}, func(g *grant) bool { return g.Person == person }, func(tx gate.Tx) (bool, error) {
		if err := each(s.vault, tx, kindConsent, person, func(d *gate.Doc, _ *consent) error { return tx.DropDoc(kindConsent, d.ID) }); err != nil {
			return false, err
		}
		if err := s.burn(tx, person, func(*code) bool { return true }); err != nil {
			return false, err
		}
		return true, each(s.vault, tx, kindToken, person, func(d *gate.Doc, t *token) error {
			if t.Type != typeStatic || !t.Ended.IsZero() {
				return nil
			}
			t.Ended = s.now()
			return s.vault.put(tx, d, t)
		})
	})
}

func (s *Server) revokeAll(ctx context.Context, who gate.Principal, e event, of func(*grant) bool, more func(gate.Tx) (bool, error)) (err error) {
	defer forPeople(&err)
	found := false
	err = s.update(ctx, func(tx gate.Tx) (*Refused, error) {
		var err error
		if found, err = more(tx); err != nil {
			return nil, err
		}
		var ids []string
		if err := each(s.vault, tx, kindGrant, "", func(d *gate.Doc, g *grant) error {
			if of(g) && g.Ended.IsZero() {
				ids = append(ids, d.ID)
			}
			return nil
		}); err != nil {
			return nil, err
		}
		for _, id := range ids {
			if _, err := s.end(tx, id, "revoked by "+who.Person); err != nil {
				return nil, err
			}
		}
		if !found && len(ids) == 0 {
			return nil, nil
		}
		found = true
		e.name, e.status, e.who = "revoke_ok", "ok", who
		return nil, s.record(tx, e)
	})
	if err == nil && !found {
		return gate.Fail(gate.ErrNotFound, "The list of clients has the ids.", "there is no such client")
	}
	return err
}

// burn uses up the codes that nobody has exchanged yet.
func (s *Server) burn(tx gate.Tx, person string, of func(*code) bool) error {
	return each(s.vault, tx, kindCode, person, func(d *gate.Doc, c *code) error {
		if !c.Used.IsZero() || !of(c) {
			return nil
		}
		c.Used = s.now()
		return s.vault.put(tx, d, c)
	})
}
