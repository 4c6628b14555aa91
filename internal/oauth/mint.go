package oauth

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"castellan/internal/gate"
	"castellan/internal/seal"
)

// MintRequest asks for a static bearer.
type MintRequest struct {
	Name   string    // tells it from others: letters, digits, ".", "_" and "-"
	Agent  string    // how policy and audit call whoever holds it; Name when empty
	Person string    // on whose behalf it acts
	Roles  []string  // viewer, operator
	Until  time.Time // at most a year from now; 90 days when zero
}

// Minted is a new static bearer. Its text is shown this once.
type Minted struct {
	ID    string
	Token seal.Secret
	Until time.Time
	Agent string
	Roles []string
}

const (
	mintUsually = 90 * 24 * time.Hour
	mintAtMost  = 366 * 24 * time.Hour
)

// governs says whether somebody may give and take access: a person at this machine's own account, or an administrator who
// signed in. An agent never may.
func governs(who gate.Principal) bool {
	if who.Agent != "" || who.Person == "" {
		return false
	}
	switch who.Strength {
	case gate.StrengthAccount:
		return true
	case gate.StrengthSession, gate.StrengthPasskey:
		return slices.Contains(who.Roles, gate.RoleAdministrator)
	}
	return false
}

var errNotGoverning = gate.Fail(gate.ErrDenied, "Ask an administrator.", "only an administrator gives and takes the access of others")

// Mint makes a static bearer.
func (s *Server) Mint(ctx context.Context, who gate.Principal, m MintRequest) (_ *Minted, err error) {
	defer forPeople(&err)
	if !governs(who) {
		return nil, errNotGoverning
	}
	if m.Agent == "" {
		m.Agent = m.Name
	}
	if m.Until.IsZero() {
		m.Until = s.now().Add(mintUsually)
	}
	roles := slices.Sorted(slices.Values(m.Roles))
	roles = slices.Compact(roles)
	for _, w := range []struct{ what, word string }{{"name", m.Name}, {"agent", m.Agent}} {
		if !clientWord.MatchString(w.word) {
			return nil, gate.Fail(gate.ErrInvalid, "Give another "+w.what+".", "%s %q is not up to 64 letters, digits, \".\", \"_\" and \"-\"", w.what, w.word)
		}
	}
	switch {
	case m.Person == "":
		return nil, gate.Fail(gate.ErrInvalid, "Name the account that it acts for.", "no person is named")
	case len(roles) == 0:
		return nil, gate.Fail(gate.ErrInvalid, "Give viewer, operator or both.", "no role is named")
	case !subset(roles, []string{gate.RoleViewer, gate.RoleOperator}):
		return nil, gate.Fail(gate.ErrInvalid, "Give viewer, operator or both.", "a token can have the roles viewer and operator only, not %s", strings.Join(roles, ", "))
	case !m.Until.After(s.now()) || m.Until.After(s.now().Add(mintAtMost)):
		return nil, gate.Fail(gate.ErrInvalid, "Give a time within the next 366 days.", "the token would end at %s", m.Until.UTC().Format(time.RFC3339))
	}
	person, err := s.standing(ctx, m.Person)
	if errors.Is(err, errEnded) {
		return nil, gate.Fail(gate.ErrNotFound, "Make the account first, or name another.", "there is no account %q whose access holds", m.Person)
	}
	if err != nil {
		return nil, err
	}
	if !subset(roles, rolesOf(roles, person.Roles)) {
		return nil, gate.Fail(gate.ErrDenied, "Give the account its roles and these first: castellan people roles "+m.Person+" ROLE…", "%s has not all of the roles %s, so the token could not have them", m.Person, strings.Join(roles, ", "))
	}
	var out *Minted
	taken := false
	err = s.update(ctx, func(tx gate.Tx) (*Refused, error) {
		out, taken = nil, false
		err := each(s.vault, tx, kindToken, m.Person, func(_ *gate.Doc, t *token) error {
			taken = taken || t.Type == typeStatic && t.Name == m.Name && s.fault(t) == ""
			return nil
		})
		if err != nil {
			return nil, err
		}
		if taken {
			return nil, nil
		}
		d, err := draw(staticPrefix)
		if err != nil {
			return nil, err
		}
		t := token{Type: typeStatic, Hash: d.hash, Resource: s.resource, At: s.now(), Until: m.Until.UTC(), Name: m.Name, Agent: m.Agent, Person: m.Person, Roles: roles, By: who.Key()}
		if err := s.vault.put(tx, &gate.Doc{Kind: kindToken, ID: d.id, Owner: m.Person, Expires: t.Until.Add(graceLife)}, t); err != nil {
			return nil, err
		}
		out = &Minted{ID: d.id, Token: seal.NewSecret([]byte(d.text)), Until: t.Until, Agent: m.Agent, Roles: roles}
		return nil, s.record(tx, event{name: "token_issued", status: "ok", who: who, token: d.id, reason: "minted",
			detail: fmt.Sprintf("%s for %s on behalf of %s: %s until %s", m.Name, m.Agent, m.Person, strings.Join(roles, " "), t.Until.Format(time.RFC3339))})
	})
	if err != nil {
		return nil, err
	}
	if taken {
		return nil, gate.Fail(gate.ErrInvalid, "Revoke it, or give another name.", "%s has a token named %s already", m.Person, m.Name)
	}
	return out, nil
}
