package identity

import (
	"context"
	"encoding/json"
	"errors"

	"castellan/internal/gate"
)

// VouchStart begins the confirmation, with a passkey that the person of the session has, that name may enrol one: oneself
// (then the voucher goes to EnrolStart) or another (then to Invite). It returns options for navigator.credentials.get (not
// wrapped in "publicKey") and a ticket for VouchFinish.
func (i *Identity) VouchStart(ctx context.Context, session, name string) (options json.RawMessage, ticketText string, err error) {
	if err := i.PasskeyProblem(); err != nil {
		return nil, "", err
	}
	var t *ticket
	var has []*credential
	err = i.view(ctx, "begin confirmation", func(tx gate.Tx) error {
		_, _, a, err := i.session(tx, session)
		if err != nil {
			return err
		}
		if has, err = i.live(tx, a.Name); err != nil {
			return err
		}
		if len(has) == 0 {
			return gate.Fail(gate.ErrDenied, "Root makes a one-time code on the machine.", "%s has no passkey to confirm with", a.Name)
		}
		if _, other, err := i.account(tx, name); err != nil || other == nil {
			return firstOf(err, noAccount(name))
		}
		t = &ticket{Person: a.Name, UID: a.UID, Session: hashSession(session), For: name}
		return nil
	})
	if err != nil {
		return nil, "", err
	}
	if ticketText, err = i.sealTicket(ticketVouch, t); err != nil {
		return nil, "", err
	}
	options, err = i.request(t.challenge(vouchPurpose), has)
	return options, ticketText, err
}

// VouchFinish checks the passkey's answer and gives a voucher, good once, for five minutes, in this session. A passkey
// that still waits may not vouch.
func (i *Identity) VouchFinish(ctx context.Context, session, ticketText string, response json.RawMessage) (voucher string, err error) {
	t, err := i.openTicket(ticketVouch, ticketText)
	if err != nil {
		return "", err
	}
	if t.Session != hashSession(session) {
		return "", gate.Fail(gate.ErrDenied, "Begin again.", "this ceremony was begun in another session")
	}
	c, since, why := i.answered(ctx, t.Person, t.challenge(vouchPurpose), response)
	if why == nil {
		if no := since.waits(i.now()); no != nil {
			why = no
		}
	}
	var notices []Notice
	err = i.update(ctx, "confirm with a passkey", func(tx gate.Tx) (error, error) {
		no := why
		notices = nil
		_, s, a, err := i.session(tx, session)
		if err != nil {
			return nil, err
		}
		if a.Name != t.Person || a.UID != t.UID {
			return nil, signInAgain()
		}
		if err := i.spend(tx, t.Random, t.Expires); err != nil {
			return nil, err
		}
		e := event{name: "voucher", status: "ok", person: a.Name, by: i.principal(a, s), method: methodPasskey, marks: map[string]string{"for": t.For}}
		if c != nil {
			e.credential = c.Fingerprint
		}
		if no == nil {
			_, notices, no = i.take(tx, c)
		}
		if no != nil {
			var known *gate.Error
			if !errors.As(no, &known) || known.Kind != gate.ErrDenied {
				return nil, no
			}
			e.name, e.status, e.why = "assertion_fail", "denied", known.Message
			return no, i.failure(tx, e)
		}
		_, err = i.append(tx, e)
		return nil, err
	})
	i.tell(notices)
	if err != nil {
		return "", err
	}
	return i.sealTicket(ticketVoucher, &ticket{Person: t.Person, UID: t.UID, Session: t.Session, For: t.For, Key: c.Fingerprint})
}
