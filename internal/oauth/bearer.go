package oauth

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"castellan/internal/gate"
)

// Caller is who holds a good bearer token.
type Caller struct {
	Principal gate.Principal
	Scopes    []string // of the token; a static one has those that its roles stand for
	Client    string   // client id; empty for a static bearer
	TokenID   string   // names the token in the ledger
	Grant     string   // the connection that it belongs to; empty for a static bearer
	Expires   time.Time
}

// errToken is what every bad token gets: which fault it has is in the ledger only.
var errToken = refuse(http.StatusUnauthorized, "invalid_token", "the token is not valid here, has expired or was revoked; ask for authorization again")

// BearerText takes the token out of a request's Authorization header; "" when there is none. The only place that counts is
// the one header.
func BearerText(r *http.Request) (string, error) {
	headers := r.Header.Values("Authorization")
	if len(headers) == 0 {
		return "", nil
	}
	scheme, text, ok := strings.Cut(headers[0], " ")
	if len(headers) > 1 || !ok || !strings.EqualFold(scheme, "Bearer") || text == "" || strings.ContainsAny(text, " \t,") {
		return "", refuse(http.StatusBadRequest, "invalid_request", "give one Authorization header: Bearer and the token")
	}
	return text, nil
}

// Bearer says who holds a token. The error is a *Refused: 401 for every token that is not good, 503 when that cannot be
// found out.
func (s *Server) Bearer(ctx context.Context, text string, from Remote) (Caller, error) {
	prefix, id, secret, ok := split(text)
	e := event{name: "access_denied", status: "denied", from: from}
	if !ok || prefix != accessPrefix && prefix != staticPrefix {
		e.reason = "malformed"
		return Caller{}, s.turnAway(ctx, e)
	}
	var c Caller
	var given []string
	err := s.view(ctx, func(tx gate.Tx) error {
		c, given, e.reason = Caller{}, nil, ""
		var t token
		_, err := s.vault.get(tx, kindToken, id, &t)
		switch {
		case errors.Is(err, errAltered):
			e.reason = "altered"
			return nil
		case errors.Is(err, gate.ErrStoreNotFound):
			e.reason = "unknown_token"
			return nil
		case err != nil:
			return err
		case prefix != prefixOf(t.Type) || !right(prefix, id, secret, t.Hash):
			e.reason = "wrong_token"
			return nil
		}
		e.token = id
		if e.reason = s.fault(&t); e.reason != "" {
			return nil
		}
		if t.Type == typeStatic {
			given = t.Roles
			c = Caller{Scopes: rolesScopes(t.Roles), TokenID: id, Expires: t.Until,
				Principal: gate.Principal{Agent: t.Agent, Person: t.Person, Client: t.Name, Until: t.Until}}
			return nil
		}
		g := new(grant)
		if _, err := s.vault.get(tx, kindGrant, t.Grant, g); missing(err) {
			e.reason = "grant_gone"
			return nil
		} else if err != nil {
			return err
		}
		e.grant, e.client, e.who = t.Grant, g.Client, gate.Principal{Agent: g.Agent, Person: g.Person}
		if !g.alive(s.now()) {
			e.reason = "grant_ended"
			return nil
		}
		if _, _, err := s.known(tx, g.Client); errors.Is(err, errUnknownClient) {
			e.reason = "client_gone"
			return nil
		} else if err != nil {
			return err
		}
		given = scopeRoles(t.Scopes)
		c = Caller{Scopes: t.Scopes, Client: g.Client, TokenID: id, Grant: t.Grant, Expires: t.Until,
			Principal: gate.Principal{Agent: g.Agent, Person: g.Person, Client: g.Name, Until: g.until()}}
		return nil
	})
	if err != nil {
		return Caller{}, err
	}
	if e.reason != "" {
		return Caller{}, s.turnAway(ctx, e)
	}
	if c.Principal, err = s.meet(ctx, c.Principal, given); errors.Is(err, errEnded) {
		e.reason, e.who = "person_ended", gate.Principal{Agent: c.Principal.Agent, Person: c.Principal.Person}
		return Caller{}, s.turnAway(ctx, e)
	} else if err != nil {
		return Caller{}, err
	}
	return c, nil
}

// fault names what is wrong with a token by itself.
func (s *Server) fault(t *token) string {
	now := s.now()
	switch {
	case !t.Ended.IsZero():
		return "revoked"
	case t.At.After(now.Add(skew)):
		return "future"
	case !now.Before(t.Until):
		return "expired"
	case t.Resource != s.resource:
		return "audience"
	}
	return ""
}

// meet completes a caller's principal with what the person has now: authority is what both have.
func (s *Server) meet(ctx context.Context, p gate.Principal, given []string) (gate.Principal, error) {
	person, err := s.standing(ctx, p.Person)
	if err != nil {
		return p, err
	}
	p.WayIn, p.Strength, p.Roles = "mcp-http", gate.StrengthToken, rolesOf(given, person.Roles)
	if !effective(p.Roles) {
		return p, errEnded
	}
	if !person.Until.IsZero() && (p.Until.IsZero() || person.Until.Before(p.Until)) {
		p.Until = person.Until
	}
	return p, nil
}

// turnAway records that a bearer was refused; of a burst from one address the first, and how many more there were.
func (s *Server) turnAway(ctx context.Context, e event) error {
	ok, left := s.folder.pass(e.from.IP, s.now())
	if !ok {
		return errToken
	}
	e.left = left
	return s.update(ctx, func(tx gate.Tx) (*Refused, error) { return errToken, s.record(tx, e) })
}

// rolesScopes are the scopes that stand for roles.
func rolesScopes(roles []string) []string {
	var out []string
	if roles = widened(roles); slices.Contains(roles, gate.RoleViewer) {
		out = append(out, ScopeRead)
	}
	if slices.Contains(roles, gate.RoleOperator) {
		out = append(out, ScopeOperate)
	}
	return out
}

// Standing says what is left of the authority that a caller had when it asked for something: its connections and bearers
// of the same agent and person that still live, and the roles that the person has now, never more than it had.
func (s *Server) Standing(ctx context.Context, p gate.Principal) (gate.Principal, error) {
	denied := func() error {
		return gate.Fail(gate.ErrDenied, "Connect the client again.", "the access of %s on behalf of %s has ended", p.Agent, p.Person)
	}
	unsure := func() error {
		return gate.Fail(gate.ErrUnavailable, "Try again later.", "the access of %s cannot be checked", p.Agent)
	}
	if p.Agent == "" || p.Person == "" || p.Strength != gate.StrengthToken {
		return gate.Principal{}, denied()
	}
	var given []string
	var until time.Time
	err := s.view(ctx, func(tx gate.Tx) error {
		given, until = nil, time.Time{}
		add := func(roles []string, end time.Time) {
			given = append(given, roles...)
			if end.After(until) {
				until = end
			}
		}
		err := each(s.vault, tx, kindGrant, p.Person, func(_ *gate.Doc, g *grant) error {
			if g.Agent != p.Agent || g.Person != p.Person || !g.alive(s.now()) || g.Resource != s.resource {
				return nil
			}
			_, _, err := s.known(tx, g.Client)
			if err == nil {
				add(scopeRoles(g.Scopes), g.until())
			} else if errors.Is(err, errUnknownClient) {
				return nil
			}
			return err
		})
		if err != nil {
			return err
		}
		return each(s.vault, tx, kindToken, p.Person, func(_ *gate.Doc, t *token) error {
			if t.Type == typeStatic && t.Agent == p.Agent && t.Person == p.Person && s.fault(t) == "" {
				add(t.Roles, t.Until)
			}
			return nil
		})
	})
	if err != nil {
		return gate.Principal{}, unsure()
	}
	if until.IsZero() {
		return gate.Principal{}, denied()
	}
	had := widened(p.Roles)
	p.Until = until
	p, err = s.meet(ctx, p, given)
	if errors.Is(err, errEnded) {
		return gate.Principal{}, denied()
	}
	if err != nil {
		return gate.Principal{}, unsure()
	}
	p.Roles = slices.DeleteFunc(p.Roles, func(r string) bool { return slices.Contains(gate.Roles(), r) && !slices.Contains(had, r) })
	if !effective(p.Roles) {
		return gate.Principal{}, denied()
	}
	return p, nil
}

// Challenge is the WWW-Authenticate header for a request without a token (err nil) or with one that was refused.
func (s *Server) Challenge(err error) string {
	out := "Bearer "
	if err != nil {
		if r := asRefused(err); r.Status < 500 && r.Status != http.StatusTooManyRequests {
			out += "error=" + quoted(r.Code) + ", error_description=" + quoted(r.Description) + ", "
		}
	}
	return out + "resource_metadata=" + quoted(s.ResourceMetadataURL()) + ", scope=" + quoted(joinScopes(resourceScopes()))
}

// StepUp is the WWW-Authenticate header of a 403 for a caller whose token lacks scopes: it names those that it needs
// beside those that it has, so that asking again loses none.
func (s *Server) StepUp(c Caller, needed ...string) string {
	var scopes []string
	for _, scope := range Scopes() {
		if slices.Contains(c.Scopes, scope) || slices.Contains(needed, scope) {
			scopes = append(scopes, scope)
		}
	}
	return "Bearer error=\"insufficient_scope\", error_description=\"this needs scopes that the token lacks\", resource_metadata=" + quoted(s.ResourceMetadataURL()) + ", scope=" + quoted(joinScopes(scopes))
}

// Lacks lists the scopes that a caller would need for roles but does not have; empty when more scopes would not help,
// because its person lacks them too.
func (s *Server) Lacks(ctx context.Context, c Caller, roles ...string) ([]string, error) {
	var out []string
	person, err := s.standing(ctx, c.Principal.Person)
	if err != nil {
		return nil, err
	}
	if c.Grant == "" {
		return nil, nil // a static bearer cannot ask for more
	}
	for _, scope := range rolesScopes(rolesOf(roles, person.Roles)) {
		if !slices.Contains(c.Scopes, scope) && !(scope == ScopeRead && slices.Contains(c.Scopes, ScopeOperate)) {
			out = append(out, scope)
		}
	}
	return out, nil
}
