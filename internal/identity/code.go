package identity

import (
	"context"
	"errors"
	"time"

	"castellan/internal/gate"
	"castellan/internal/seal"
)

const (
	codePurpose = "enrolment code"
	codeLife    = time.Hour
	codeLength  = 24 // of a one-time code; a voucher is longer
)

// code is a one-time code for an enrolment, stored under its hash.
type code struct {
	UID    string `json:"uid"` // of the account
	Person string `json:"person"`
	By     string `json:"by"`
	// Reset: the person had passkeys when the code was made. Using it removes them: they are lost.
	Reset bool `json:"reset,omitempty"`
}

// EnrolmentCode makes a one-time code with which this person enrols a passkey within an hour: the first of the
// installation, or after the last was lost (then it removes the old ones). Only who holds this machine's account may make
// one so; an administrator invites others with Invite. An earlier code of the person is void.
func (i *Identity) EnrolmentCode(ctx context.Context, who gate.Principal, name string) (string, error) {
	if who.Strength != gate.StrengthAccount || who.Agent != "" || who.Person == "" {
		return "", gate.Fail(gate.ErrDenied, "Root runs castellan's command for it on the machine, or an administrator confirms the invitation with a passkey.",
			"a one-time code is made by root on the machine")
	}
	var out string
	var notices []Notice
	err := i.update(ctx, "make one-time code", func(tx gate.Tx) (error, error) {
		var err error
		out, notices, err = i.newCode(tx, who, name)
		return nil, err
	})
	if err != nil {
		return "", err
	}
	i.tell(notices)
	return out, nil
}

// Invite makes a one-time code for another person, for an administrator who has just confirmed it with a passkey: voucher
// is what VouchFinish gave for that very person.
func (i *Identity) Invite(ctx context.Context, session, voucher, name string) (string, error) {
	v, err := i.openTicket(ticketVoucher, voucher)
	if err != nil {
		return "", err
	}
	if v.For != name || v.Session != hashSession(session) {
		return "", gate.Fail(gate.ErrDenied, "Confirm the invitation with a passkey again.", "the confirmation was for another person or session")
	}
	var out string
	var notices []Notice
	err = i.update(ctx, "make one-time code", func(tx gate.Tx) (error, error) {
		_, s, a, err := i.session(tx, session)
		if err != nil {
			return nil, err
		}
		who := i.principal(a, s)
		if err := i.mayManage(tx, who); err != nil {
			return nil, err
		}
		if name == a.Name {
			return nil, gate.Fail(gate.ErrInvalid, "Enrol a further passkey with one that you have.", "an invitation is for another person")
		}
		if err := i.spend(tx, v.Random, v.Expires); err != nil {
			return nil, err
		}
		has, err := i.live(tx, name)
		if err != nil {
			return nil, err
		}
		if len(has) > 0 {
			return nil, gate.Fail(gate.ErrDenied, "They enrol a further one with one that they have. Where all are lost, root makes a one-time code on the machine.", "%s has a passkey", clip(name, 64))
		}
		out, notices, err = i.newCode(tx, who, name)
		return nil, err
	})
	if err != nil {
		return "", err
	}
	i.tell(notices)
	return out, nil
}

func (i *Identity) newCode(tx gate.Tx, who gate.Principal, name string) (string, []Notice, error) {
	_, a, err := i.account(tx, name)
	if err != nil {
		return "", nil, err
	}
	if a == nil {
		return "", nil, noAccount(name)
	}
	if e := a.active(i.now()); e != nil {
		return "", nil, e
	}
	has, err := i.live(tx, name)
	if err != nil {
		return "", nil, err
	}
	if err := i.dropCodes(tx, name); err != nil {
		return "", nil, err
	}
	token, hash, err := seal.NewToken(codePurpose)
	if err != nil {
		return "", nil, err
	}
	d := &gate.Doc{Kind: kindCode, ID: hash, Owner: name, Expires: i.now().Add(codeLife)}
	if err := i.put(tx, d, code{UID: a.UID, Person: name, By: who.Person, Reset: len(has) > 0}); err != nil {
		return "", nil, err
	}
	if _, err := i.append(tx, event{name: "enrolment_code", status: "ok", person: name, by: who}); err != nil {
		return "", nil, err
	}
	ns, err := i.notices(tx, Notice{Kind: "enrolment_code", Person: name, By: who.Person})
	return token.Reveal(), ns, err
}

func (i *Identity) dropCodes(tx gate.Tx, person string) error {
	return i.each(tx, kindCode, person, func(d *gate.Doc) error { return tx.DropDoc(kindCode, d.ID) })
}

// code finds an open one-time code by its document.
func (i *Identity) code(tx gate.Tx, id string) (*code, *account, error) {
	no := gate.Fail(gate.ErrDenied, "Ask for a new one: root makes it on the machine.", "the one-time code is wrong, was used, or is older than %s", codeLife)
	c := new(code)
	d, err := i.get(tx, kindCode, id, c)
	if err != nil {
		if errors.Is(err, errForged) {
			return nil, nil, no
		}
		return nil, nil, err
	}
	if d == nil || d.Owner != c.Person {
		return nil, nil, no
	}
	_, a, err := i.account(tx, c.Person)
	if err != nil {
		return nil, nil, err
	}
	if a == nil || a.UID != c.UID {
		return nil, nil, no
	}
	return c, a, nil
}
