package identity

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"castellan/internal/gate"
)

// enrolmentTime is from when a credential may approve.
type enrolmentTime struct{ from time.Time }

func (e *enrolmentTime) waits(now time.Time) *gate.Error {
	if !now.Before(e.from) {
		return nil
	}
	return gate.Fail(gate.ErrDenied, "Wait, or use a passkey that was enrolled earlier.",
		"this passkey is new: it may approve from %s on (in %s); it may sign in already", e.from.UTC().Format(time.RFC3339), e.from.Sub(now).Round(time.Second))
}

// Assertion verifies the answer of navigator.credentials.get to a challenge of the gate: by a passkey of this person that
// the ledger knows, past its waiting time, at the exact origin, with the person verified. It writes to the store itself
// (the counter, a refusal's record), so it is not to be called within a transaction.
func (i *Identity) Assertion(ctx context.Context, person string, challenge []byte, response json.RawMessage) (gate.Proof, error) {
	if !isName(person) || len(challenge) != 32 {
		return gate.Proof{}, gate.Fail(gate.ErrInvalid, "", "an assertion needs a person and a challenge of 32 bytes")
	}
	t, since, why := i.answered(ctx, person, challenge, response)
	if why == nil {
		if no := since.waits(i.now()); no != nil {
			why = no
		}
	}
	var notices []Notice
	err := i.update(ctx, "verify passkey", func(tx gate.Tx) (error, error) {
		no, e := why, event{name: "assertion_fail", status: "denied", person: person, method: methodPasskey}
		if t != nil {
			e.credential = t.Fingerprint
		}
		notices = nil
		if no == nil {
			a, ns, err := i.take(tx, t)
			if notices, no = ns, err; no == nil {
				if inactive := a.active(i.now()); inactive != nil {
					no = inactive
				}
			}
		}
		if no == nil {
			return nil, nil
		}
		var known *gate.Error
		if !errors.As(no, &known) || known.Kind != gate.ErrDenied {
			return nil, no
		}
		e.why = known.Message
		return no, i.failure(tx, e)
	})
	i.tell(notices)
	if err != nil {
		return gate.Proof{}, err
	}
	return gate.Proof{Credential: t.Fingerprint, CredentialID: t.CredentialID, PublicKey: t.PublicKey, Enrolled: t.Record, Origin: i.party.origin,
		AuthenticatorData: t.answer.authData, ClientData: t.answer.clientData, Signature: t.answer.signature}, nil
}

// Standing gives a principal with the roles and the expiry that hold now: for a person those of the account, for a token
// those that both token and person have. Principals of this machine's accounts come back as they are.
func (i *Identity) Standing(ctx context.Context, p gate.Principal) (gate.Principal, error) {
	switch p.Strength {
	case gate.StrengthAccount, gate.StrengthPeer:
		return p, nil
	case gate.StrengthToken:
		if i.c.Grants == nil {
			return gate.Principal{}, gate.Fail(gate.ErrDenied, "", "nothing here gives out tokens, so none can be checked")
		}
		now, err := i.c.Grants.Standing(ctx, p)
		if err != nil {
			return gate.Principal{}, err
		}
		if now.Key() != p.Key() || now.Strength != gate.StrengthToken {
			return gate.Principal{}, gate.Fail(gate.ErrInternal, "", "the standing of a token came back as another's")
		}
		if p.Person == "" {
			if !limited(now.Roles) {
				return gate.Principal{}, noRole(clip(p.Agent, 64))
			}
			return now, nil
		}
		a, err := i.standing(ctx, p.Person)
		if err != nil {
			return gate.Principal{}, err
		}
		now.Roles, now.Until = intersect(now.Roles, a.Roles), earlier(now.Until, a.Until)
		if !limited(now.Roles) {
			return gate.Principal{}, noRole(p.Person)
		}
		return now, nil
	case gate.StrengthSession, gate.StrengthPasskey:
		if p.Agent != "" || p.Person == "" {
			return gate.Principal{}, gate.Fail(gate.ErrDenied, "", "only a person signs in")
		}
		a, err := i.standing(ctx, p.Person)
		if err != nil {
			return gate.Principal{}, err
		}
		p.Roles, p.Until = intersect(p.Roles, a.Roles), a.Until
		if !limited(p.Roles) {
			return gate.Principal{}, noRole(p.Person)
		}
		return p, nil
	}
	return gate.Principal{}, gate.Fail(gate.ErrDenied, "", "a principal of strength %q has no standing here", clip(string(p.Strength), 40))
}

func (i *Identity) standing(ctx context.Context, person string) (*account, error) {
	var out *account
	err := i.view(ctx, "look up account", func(tx gate.Tx) error {
		_, a, err := i.account(tx, person)
		if err != nil {
			return err
		}
		if a == nil {
			return gate.Fail(gate.ErrDenied, "An administrator makes the account.", "there is no account %q any more", clip(person, 64))
		}
		if e := a.active(i.now()); e != nil {
			return e
		}
		out = a
		return nil
	})
	return out, err
}

// intersect gives the roles that both lists give. What a role includes counts as given; of the result only the greatest
// are named.
func intersect(a, b []string) []string {
	x, y := included(a), included(b)
	var both, out []string
	for _, r := range x {
		if slices.Contains(y, r) {
			both = append(both, r)
		}
	}
	for _, r := range both {
		if !slices.ContainsFunc(both, func(o string) bool { return o != r && slices.Contains(included([]string{o}), r) }) {
			out = append(out, r)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// included adds to roles those that the built-in ones include.
func included(roles []string) []string {
	out := slices.Clone(roles)
	if slices.Contains(out, gate.RoleAdministrator) {
		out = append(out, gate.RoleOperator, gate.RoleApprover)
	}
	if slices.Contains(out, gate.RoleOperator) || slices.Contains(out, gate.RoleApprover) {
		out = append(out, gate.RoleViewer)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// earlier of two expiries; zero is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
