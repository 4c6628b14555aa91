package oauth

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"castellan/internal/gate"
)

const (
	// unusedLife is how long a registration lives that no person has let in.
	unusedLife = 7 * 24 * time.Hour
	// Registrations within an hour of one address, and within a day of all.
	registersEach = 20
	registersAll  = 200
)

// registered is the answer of the registration endpoint (RFC 7591).
type registered struct {
	ID        string   `json:"client_id"`
	Issued    int64    `json:"client_id_issued_at"`
	Name      string   `json:"client_name,omitempty"`
	Redirects []string `json:"redirect_uris"`
	Grants    []string `json:"grant_types"`
	Responses []string `json:"response_types"`
	Method    string   `json:"token_endpoint_auth_method"`
	Scope     string   `json:"scope"`
}

// answerRegister is the registration endpoint. Whatever is asked for, the client is a public one: a secret that anybody
// may have proves nothing.
func (s *Server) answerRegister(ctx context.Context, body []byte, from Remote) (*registered, error) {
	e := event{name: "register_denied", status: "denied", from: from}
	if s.rules.noRegister {
		e.reason = "switched_off"
		return nil, s.deny(ctx, "register", e, refuse(http.StatusForbidden, "access_denied", "registration is switched off here (oauth.no_registration); use a client id metadata document, or ask whoever runs this server for a client id"))
	}
	c, refused := s.register(body)
	if refused != nil {
		e.reason, e.detail = refused.Code, refused.Description
		return nil, s.deny(ctx, "register", e, refused)
	}
	var out *registered
	err := s.update(ctx, func(tx gate.Tx) (*Refused, error) {
		for _, limit := range []struct {
			bucket string
			since  time.Duration
			n      int
		}{{"oauth/registered/" + block(from), time.Hour, registersEach}, {"oauth/registered", 24 * time.Hour, registersAll}} {
			n, err := tx.Count(limit.bucket, s.now().Add(-limit.since))
			if err != nil {
				return nil, err
			}
			if n >= limit.n {
				return &Refused{Status: http.StatusTooManyRequests, Code: "temporarily_unavailable", After: time.Hour, Description: "too many clients registered; try again in an hour"}, nil
			}
			if err := tx.Hit(limit.bucket, s.now()); err != nil {
				return nil, err
			}
		}
		c.ID, c.Since = dynamicPrefix+newID(), s.now()
		if err := s.vault.put(tx, &gate.Doc{Kind: kindClient, ID: c.ID, Owner: KindDynamic, Expires: s.now().Add(unusedLife)}, c); err != nil {
			return nil, err
		}
		out = &registered{ID: c.ID, Issued: c.Since.Unix(), Name: c.Name, Redirects: c.Redirects, Grants: []string{"authorization_code"}, Responses: []string{"code"}, Method: "none", Scope: joinScopes(c.Scopes)}
		if c.Refresh {
			out.Grants = append(out.Grants, "refresh_token")
		}
		return nil, s.record(tx, event{name: "register_ok", status: "ok", from: from, client: c.ID, detail: c.Name + " " + strings.Join(c.Redirects, " ")})
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// register reads a registration.
func (s *Server) register(body []byte) (*client, *Refused) {
	bad := func(err error) *Refused { return refuse(http.StatusBadRequest, "invalid_client_metadata", err.Error()) }
	f, err := parseFields(body)
	if err != nil {
		return nil, bad(err)
	}
	if _, ok := f["redirect_uris"]; !ok {
		return nil, refuse(http.StatusBadRequest, "invalid_redirect_uri", "redirect_uris names no address")
	}
	c := &client{Kind: KindDynamic, Scopes: Scopes()}
	if err := c.describe(f); err != nil {
		return nil, bad(err)
	}
	for i, text := range c.Redirects {
		r, err := parseRedirect(text)
		if err != nil {
			return nil, refuse(http.StatusBadRequest, "invalid_redirect_uri", fmt.Sprintf("redirect_uris[%d]: %s", i, err))
		}
		if !s.rules.openRedirect(r) {
			return nil, refuse(http.StatusBadRequest, "invalid_redirect_uri", fmt.Sprintf("redirect_uris[%d] is not let in here; whoever runs this server can add it to oauth.redirects", i))
		}
	}
	scope, err := f.text("scope", 2000)
	if err != nil {
		return nil, bad(err)
	}
	if scope != "" {
		if c.Scopes = knownScopes(scope); !usable(c.Scopes) {
			return nil, bad(fmt.Errorf("scope names neither read nor operate"))
		}
		if c.Refresh && !slices.Contains(c.Scopes, ScopeOffline) {
			c.Scopes = append(c.Scopes, ScopeOffline)
		}
	}
	return c, nil
}
