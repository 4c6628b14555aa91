package oauth

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"castellan/internal/gate"
)

// credentials are what a client sends of itself.
type credentials struct {
	id, secret string
	basic      bool
}

// exchange is a request of the token endpoint.
type exchange struct {
	form url.Values
	cred credentials
	from Remote
}

// refreshesPerHour bounds how often one grant is refreshed.
const refreshesPerHour = 120

// answerToken is the token endpoint.
func (s *Server) answerToken(ctx context.Context, x exchange) (*issued, error) {
	switch x.form.Get("grant_type") {
	case "authorization_code":
		return s.redeem(ctx, x)
	case "refresh_token":
		return s.refresh(ctx, x)
	case "":
		return nil, s.deny(ctx, "token", x.denied("malformed"), refuse(http.StatusBadRequest, "invalid_request", "grant_type is missing"))
	}
	return nil, s.deny(ctx, "token", x.denied("grant_type"), refuse(http.StatusBadRequest, "unsupported_grant_type", "grant_type must be authorization_code or refresh_token"))
}

func (x exchange) denied(reason string) event {
	return event{name: "token_denied", status: "denied", from: x.from, client: x.cred.id, reason: reason}
}

// deny records a refusal and counts it, and returns it.
func (s *Server) deny(ctx context.Context, door string, e event, r *Refused) error {
	return s.update(ctx, func(tx gate.Tx) (*Refused, error) { return r, s.failed(tx, door, e) })
}

// authenticate finds the client of a request and checks what it proves.
func (s *Server) authenticate(tx gate.Tx, c credentials) (*client, *Refused, error) {
	no := &Refused{Status: http.StatusUnauthorized, Code: "invalid_client", basic: c.basic, Description: "the client is not known here, or did not prove who it is; register again"}
	found, _, err := s.known(tx, c.id)
	if errors.Is(err, errUnknownClient) {
		return nil, no, nil
	}
	if err != nil {
		return nil, nil, err
	}
	if found.Confidential && !found.secret(c.secret) {
		return nil, no, nil
	}
	return found, nil, nil
}

var errGrant = refuse(http.StatusBadRequest, "invalid_grant", "the code or token is not valid, has expired, was used before, or is another client's; ask for authorization again")

// redeem exchanges a code for tokens.
func (s *Server) redeem(ctx context.Context, x exchange) (*issued, error) {
	text, verifier, to := x.form.Get("code"), x.form.Get("code_verifier"), x.form.Get("redirect_uri")
	if text == "" || verifier == "" || to == "" {
		return nil, s.deny(ctx, "token", x.denied("malformed"), refuse(http.StatusBadRequest, "invalid_request", "code, code_verifier and redirect_uri are needed"))
	}
	prefix, id, secret, ok := split(text)
	if !ok || prefix != codePrefix {
		return nil, s.deny(ctx, "token", x.denied("malformed"), errGrant)
	}
	var person string
	err := s.view(ctx, func(tx gate.Tx) error {
		var c code
		_, err := s.vault.get(tx, kindCode, id, &c)
		if err == nil && right(prefix, id, secret, c.Hash) {
			person = c.Person
		}
		if missing(err) {
			return nil
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	ended, err := s.gone(ctx, person)
	if err != nil {
		return nil, err
	}
	var out *issued
	err = s.update(ctx, func(tx gate.Tx) (*Refused, error) {
		out = nil
		e := x.denied("")
		e.token = id
		fail := func(reason string, r *Refused) (*Refused, error) {
			e.reason = reason
			return r, s.failed(tx, "token", e)
		}
		cl, refused, err := s.authenticate(tx, x.cred)
		if err != nil {
			return nil, err
		}
		var c code
		d, err := s.vault.get(tx, kindCode, id, &c)
		known := err == nil && right(prefix, id, secret, c.Hash)
		if err != nil && !missing(err) {
			return nil, err
		}
		if known {
			e.who = gate.Principal{Agent: c.Agent, Person: c.Person}
		}
		switch {
		case known && !c.Used.IsZero(): // whoever sends it: it is known to two
			e.name, e.grant = "token_replay", c.Grant
			if _, err := s.end(tx, c.Grant, "its code was used twice"); err != nil {
				return nil, err
			}
			return fail("code_used_before", errGrant)
		case refused != nil:
			return fail("unknown_client", refused)
		case errors.Is(err, errAltered):
			return fail("altered", errGrant)
		case !known:
			return fail("unknown_code", errGrant)
		case !s.now().Before(c.Until) || c.At.After(s.now().Add(skew)):
			return fail("expired", errGrant)
		}
		// What follows uses the code up, whatever comes of it.
		c.Used = s.now()
		burn := func(reason string, r *Refused) (*Refused, error) {
			if err := s.vault.put(tx, d, c); err != nil {
				return nil, err
			}
			return fail(reason, r)
		}
		switch {
		case c.Client != cl.ID:
			return burn("client_mismatch", errGrant)
		case c.Redirect != to:
			return burn("redirect_mismatch", errGrant)
		case !proves(verifier, c.Challenge):
			return burn("pkce_mismatch", errGrant)
		case !s.ours(x.form["resource"]) || c.Resource != s.resource:
			return burn("resource", refuse(http.StatusBadRequest, "invalid_target", "resource is not the one that was authorized"))
		case ended:
			return burn("person_ended", errGrant)
		}
		g := &grant{Client: c.Client, Agent: c.Agent, Name: c.Name, Person: c.Person, Scopes: c.Scopes, Resource: c.Resource, Redirect: c.Redirect, At: s.now()}
		gd := &gate.Doc{Kind: kindGrant, ID: newID(), Owner: c.Person}
		if out, err = s.issue(tx, gd, g, c.Scopes); err != nil {
			return nil, err
		}
		c.Grant = gd.ID
		if err := s.vault.put(tx, d, c); err != nil {
			return nil, err
		}
		return nil, s.record(tx, event{name: "token_issued", status: "ok", from: x.from, who: e.who, client: c.Client, token: out.accessID, grant: gd.ID, detail: out.Scope})
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// gone says whether a person's access has ended; of nobody it says no.
func (s *Server) gone(ctx context.Context, person string) (bool, error) {
	if person == "" {
		return false, nil
	}
	_, err := s.standing(ctx, person)
	if errors.Is(err, errEnded) {
		return true, nil
	}
	return false, err
}

// proves checks a PKCE verifier.
func proves(verifier, challenge string) bool {
	if len(verifier) < 43 || len(verifier) > 128 || strings.Trim(verifier, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~") != "" {
		return false
	}
	sum := sha256.Sum256([]byte(verifier))
	return subtle.ConstantTimeCompare([]byte(base64.RawURLEncoding.EncodeToString(sum[:])), []byte(challenge)) == 1
}

// refresh exchanges a refresh token for new tokens. One that comes twice ends its whole family: one of the two who have it
// should not.
func (s *Server) refresh(ctx context.Context, x exchange) (*issued, error) {
	text := x.form.Get("refresh_token")
	if text == "" {
		return nil, s.deny(ctx, "token", x.denied("malformed"), refuse(http.StatusBadRequest, "invalid_request", "refresh_token is missing"))
	}
	prefix, id, secret, ok := split(text)
	if !ok || prefix != refreshPrefix {
		return nil, s.deny(ctx, "token", x.denied("malformed"), errGrant)
	}
	var person string
	err := s.view(ctx, func(tx gate.Tx) error {
		var t token
		var g grant
		if _, err := s.vault.get(tx, kindToken, id, &t); err != nil || t.Type != typeRefresh || !right(prefix, id, secret, t.Hash) {
			return unlessMissing(err)
		}
		_, err := s.vault.get(tx, kindGrant, t.Grant, &g)
		person = g.Person
		return unlessMissing(err)
	})
	if err != nil {
		return nil, err
	}
	ended, err := s.gone(ctx, person)
	if err != nil {
		return nil, err
	}
	var out *issued
	err = s.update(ctx, func(tx gate.Tx) (*Refused, error) {
		out = nil
		e := x.denied("")
		e.token = id
		fail := func(reason string, r *Refused) (*Refused, error) {
			e.reason = reason
			return r, s.failed(tx, "token", e)
		}
		cl, refused, err := s.authenticate(tx, x.cred)
		if err != nil {
			return nil, err
		}
		var t token
		d, err := s.vault.get(tx, kindToken, id, &t)
		if err != nil && !missing(err) {
			return nil, err
		}
		if err != nil || t.Type != typeRefresh || !right(prefix, id, secret, t.Hash) {
			if refused != nil {
				return fail("unknown_client", refused)
			}
			return fail("unknown_token", errGrant)
		}
		g := new(grant)
		gd, err := s.vault.get(tx, kindGrant, t.Grant, g)
		if err != nil && !missing(err) {
			return nil, err
		}
		e.grant, e.who = t.Grant, gate.Principal{Agent: g.Agent, Person: g.Person}
		asked := strings.Fields(x.form.Get("scope"))
		scopes := g.Scopes
		if len(asked) > 0 {
			scopes = knownScopes(x.form.Get("scope"))
		}
		switch {
		case !t.Used.IsZero():
			e.name = "token_replay"
			if _, err := s.end(tx, t.Grant, "a refresh token of it was used twice"); err != nil {
				return nil, err
			}
			return fail("refresh_used_before", errGrant)
		case refused != nil:
			return fail("unknown_client", refused)
		case err != nil || !g.Ended.IsZero():
			return fail("grant_ended", errGrant)
		case g.Client != cl.ID:
			return fail("client_mismatch", errGrant)
		case !t.current(s.now()):
			return fail("expired", errGrant)
		case !s.ours(x.form["resource"]) || g.Resource != s.resource:
			return fail("resource", refuse(http.StatusBadRequest, "invalid_target", "resource is not the one that was authorized"))
		case !subset(asked, g.Scopes) || !usable(scopes):
			return fail("scope", refuse(http.StatusBadRequest, "invalid_scope", "a refresh gives at most the scopes that were authorized; for more, ask for authorization again"))
		case ended:
			return fail("person_ended", errGrant)
		}
		pace := "oauth/refresh/" + t.Grant
		n, err := tx.Count(pace, s.now().Add(-time.Hour))
		if err != nil {
			return nil, err
		}
		if n >= refreshesPerHour {
			return &Refused{Status: http.StatusTooManyRequests, Code: "temporarily_unavailable", After: 10 * time.Minute, Description: "the connection was refreshed too often within an hour"}, nil
		}
		if err := tx.Hit(pace, s.now()); err != nil {
			return nil, err
		}
		t.Used = s.now()
		if err := s.vault.put(tx, d, t); err != nil {
			return nil, err
		}
		if out, err = s.issue(tx, gd, g, slices.Clone(scopes)); err != nil {
			return nil, err
		}
		return nil, s.record(tx, event{name: "token_issued", status: "ok", from: x.from, who: e.who, client: g.Client, token: out.accessID, grant: t.Grant, detail: out.Scope, reason: "refreshed"})
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func unlessMissing(err error) error {
	if missing(err) {
		return nil
	}
	return err
}
