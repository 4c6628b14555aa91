package identity

import (
	"slices"
	"strings"

	"castellan/internal/gate"
)

const maxLogins = 16

// goodLogins checks the outside identities that an account is to answer to.
func (i *Identity) goodLogins(logins []Login) error {
	if len(logins) > maxLogins {
		return gate.Fail(gate.ErrInvalid, "", "an account answers to at most %d outside identities", maxLogins)
	}
	for _, l := range logins {
		known := false
		switch l.Way {
		case WayOIDC:
			known = slices.ContainsFunc(i.set.OIDC, func(o OIDCSettings) bool { return o.Name == l.Provider })
		case WayRealm:
			known = slices.ContainsFunc(i.set.Realms, func(r RealmSettings) bool { return r.Name == l.Provider })
			if l.Email != "" {
				return gate.Fail(gate.ErrInvalid, "Name it as USER@REALM.", "a user of a realm is found by its name, not by an e-mail address")
			}
		case WayAccess:
			known = l.Provider == ""
		default:
			return gate.Fail(gate.ErrInvalid, "", "%q is no way to sign in from outside; there are oidc, realm and access", clip(l.Way, 40))
		}
		if !known {
			return gate.Fail(gate.ErrInvalid, "Add it to the settings first.", "the settings know no %s provider %q", l.Way, clip(l.Provider, 64))
		}
		if (l.Subject == "") == (l.Email == "") || len(l.Subject) > 255 || len(l.Email) > 255 || clip(l.Subject+l.Email, 600) != l.Subject+l.Email {
			return gate.Fail(gate.ErrInvalid, "", "an outside identity is either a subject or an e-mail address, of at most 255 bytes")
		}
		if l.Email != "" && (strings.Count(l.Email, "@") != 1 || strings.ContainsFunc(l.Email, func(r rune) bool { return r <= ' ' || r > '~' })) {
			return gate.Fail(gate.ErrInvalid, "", "%q is no e-mail address in ASCII", clip(l.Email, 80))
		}
	}
	return nil
}

// same says whether two name one identity. Of e-mail addresses only the case of A to Z does not count: other letters that
// fold into these are those of somebody else.
func (l Login) same(o Login) bool {
	return l.Way == o.Way && l.Provider == o.Provider && l.Subject == o.Subject && lower(l.Email) == lower(o.Email)
}

func lower(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			r += 'a' - 'A'
		}
		return r
	}, s)
}

// owners finds the accounts that answer to an outside identity.
func (i *Identity) owners(tx gate.Tx, l Login) ([]*account, error) {
	var out []*account
	err := i.each(tx, kindAccount, "", func(d *gate.Doc) error {
		a := new(account)
		err := i.open(d, a)
		if err == nil {
			err = i.current(tx, a)
		}
		if err != nil {
			i.damaged(d, err)
			return nil
		}
		if a.Name == d.ID && slices.ContainsFunc(a.Logins, l.same) {
			out = append(out, a)
		}
		return nil
	})
	return out, err
}

func (i *Identity) loginsFree(tx gate.Tx, name string, logins []Login) error {
	for _, l := range logins {
		has, err := i.owners(tx, l)
		if err != nil {
			return err
		}
		for _, a := range has {
			if a.Name != name {
				return gate.Fail(gate.ErrInvalid, "Take it from that account first.", "the account %s answers to that outside identity already", a.Name)
			}
		}
	}
	return nil
}

// letOutside signs in the one account that answers to an identity proven outside.
func (i *Identity) letOutside(tx gate.Tx, l Login, s session, e event, buckets ...bucket) (out Session, refusal, err error) {
	has, err := i.owners(tx, l)
	if err != nil {
		return out, nil, err
	}
	if len(has) != 1 {
		no := gate.Fail(gate.ErrDenied, "An administrator lists this identity on an account.", "you are known to the provider, but no account here answers to that identity")
		e.why = "no account answers to this identity"
		refusal, err = i.refuse(tx, nil, e, no, buckets...)
		return out, refusal, err
	}
	a := has[0]
	no := a.active(i.now())
	if no == nil && s.Capped && !limited(intersect(a.Roles, s.Roles)) {
		no = gate.Fail(gate.ErrDenied, "Ask whoever keeps the groups.", "no group of yours gives a role that the account %s has", a.Name)
	}
	if no != nil {
		e.why = no.Message
		refusal, err = i.refuse(tx, a, e, no, buckets...)
		return out, refusal, err
	}
	out, err = i.let(tx, a, s, e.from)
	return out, nil, err
}

// limited says that the roles hold a built-in one. A principal with none of them is one that roles do not limit, which
// nobody who signs in may be.
func limited(roles []string) bool {
	return slices.ContainsFunc(gate.Roles(), func(r string) bool { return slices.Contains(roles, r) })
}
