package oauth

import (
	"context"
	"errors"
	"net/http"

	"castellan/internal/gate"
)

// answerRevoke is the revocation endpoint of RFC 7009. What is not known is revoked already; what is another client's is
// refused. Who names no client shows by holding the token that he may.
func (s *Server) answerRevoke(ctx context.Context, x exchange) error {
	e := x.denied("")
	e.name = "revoke_denied"
	text := x.form.Get("token")
	if text == "" {
		e.reason = "malformed"
		return s.deny(ctx, "revoke", e, refuse(http.StatusBadRequest, "invalid_request", "token is missing"))
	}
	prefix, id, secret, ok := split(text)
	return s.update(ctx, func(tx gate.Tx) (*Refused, error) {
		fail := func(reason string, r *Refused) (*Refused, error) {
			e.reason = reason
			return r, s.failed(tx, "revoke", e)
		}
		var cl *client
		if x.cred.id != "" {
			var refused *Refused
			var err error
			if cl, refused, err = s.authenticate(tx, x.cred); err != nil {
				return nil, err
			}
			if refused != nil {
				return fail("unknown_client", refused)
			}
		}
		var t token
		var d *gate.Doc
		if ok {
			var err error
			d, err = s.vault.get(tx, kindToken, id, &t)
			if err != nil && !missing(err) {
				return nil, err
			}
			ok = err == nil && prefix == prefixOf(t.Type) && right(prefix, id, secret, t.Hash)
		}
		if !ok {
			// The answer is that of success, but an address that tries this often is guessing.
			e.reason = "unknown_token"
			return nil, s.failed(tx, "revoke", e)
		}
		g := new(grant)
		if t.Type != typeStatic {
			_, err := s.vault.get(tx, kindGrant, t.Grant, g)
			if missing(err) {
				return nil, nil // its family is gone: nothing is left of it
			}
			if err != nil {
				return nil, err
			}
		}
		e.token, e.grant, e.who, e.client = id, t.Grant, gate.Principal{Agent: g.Agent + t.Agent, Person: g.Person + t.Person}, g.Client
		owner, _, err := s.known(tx, g.Client)
		if err != nil && !errors.Is(err, errUnknownClient) {
			return nil, err
		}
		if cl != nil && cl.ID != g.Client || cl == nil && owner != nil && owner.Confidential {
			return fail("client_mismatch", refuse(http.StatusBadRequest, "invalid_grant", "the token is another client's; nothing was revoked"))
		}
		switch t.Type {
		case typeRefresh:
			if _, err := s.end(tx, t.Grant, "its client revoked it"); err != nil {
				return nil, err
			}
		default:
			if t.Ended.IsZero() {
				t.Ended = s.now()
				if err := s.vault.put(tx, d, t); err != nil {
					return nil, err
				}
			}
		}
		e.name, e.status, e.reason = "revoke_ok", "ok", t.Type
		return nil, s.record(tx, e)
	})
}

func prefixOf(kind string) string {
	switch kind {
	case typeAccess:
		return accessPrefix
	case typeRefresh:
		return refreshPrefix
	case typeStatic:
		return staticPrefix
	}
	return ""
}
