package identity

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"

	"castellan/internal/gate"
)

// requestOptions are what PublicKeyCredential.parseRequestOptionsFromJSON takes.
type requestOptions struct {
	Challenge        string       `json:"challenge"`
	Timeout          int64        `json:"timeout"` // milliseconds
	RPID             string       `json:"rpId"`
	AllowCredentials []descriptor `json:"allowCredentials,omitempty"`
	UserVerification string       `json:"userVerification"`
}

type descriptor struct {
	Type       string   `json:"type"`
	ID         string   `json:"id"`
	Transports []string `json:"transports,omitempty"`
}

func descriptors(cs []*credential) []descriptor {
	var out []descriptor
	for _, c := range cs {
		out = append(out, descriptor{"public-key", base64.RawURLEncoding.EncodeToString(c.CredentialID), c.Transports})
	}
	return out
}

func (i *Identity) request(challenge []byte, allow []*credential) (json.RawMessage, error) {
	return json.Marshal(requestOptions{Challenge: challengeText(challenge), Timeout: ticketLife.Milliseconds(), RPID: i.party.id,
		AllowCredentials: descriptors(allow), UserVerification: "required"})
}

// RequestOptions gives the options of navigator.credentials.get (the JSON that parseRequestOptionsFromJSON takes, not
// wrapped in "publicKey") with which this person's passkeys sign a challenge of the gate.
func (i *Identity) RequestOptions(ctx context.Context, person string, challenge []byte) (json.RawMessage, error) {
	if err := i.PasskeyProblem(); err != nil {
		return nil, err
	}
	var cs []*credential
	err := i.view(ctx, "list passkeys", func(tx gate.Tx) error {
		var err error
		cs, err = i.live(tx, person)
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(cs) == 0 {
		return nil, gate.Fail(gate.ErrDenied, "Enrol one first.", "%s has no passkey", person)
	}
	return i.request(challenge, cs)
}

// PasskeyStart begins a sign-in by passkey: options for navigator.credentials.get (not wrapped in "publicKey") and a
// ticket that PasskeyFinish takes within five minutes.
func (i *Identity) PasskeyStart(context.Context) (options json.RawMessage, ticketText string, err error) {
	if err := i.PasskeyProblem(); err != nil {
		return nil, "", err
	}
	t := &ticket{}
	if ticketText, err = i.sealTicket(ticketSignIn, t); err != nil {
		return nil, "", err
	}
	options, err = i.request(t.challenge(signInPurpose), nil)
	return options, ticketText, err
}

// PasskeyFinish signs in whoever's passkey answered. An account that strangers locked out of its password still signs in
// so.
func (i *Identity) PasskeyFinish(ctx context.Context, ticketText string, response json.RawMessage, from Remote) (Session, error) {
	address := addressBucket(methodPasskey, from.IP)
	if l, err := i.checkLocked(ctx, address); l != nil || err != nil {
		return Session{}, lockedOr(l, err)
	}
	t, err := i.openTicket(ticketSignIn, ticketText)
	if err != nil {
		return Session{}, err
	}
	c, since, why := i.answered(ctx, "", t.challenge(signInPurpose), response)
	var out Session
	var notices []Notice
	err = i.update(ctx, "sign in", func(tx gate.Tx) (error, error) {
		var a *account
		no, e := why, event{from: from, method: methodPasskey}
		notices = nil
		if err := i.spend(tx, t.Random, t.Expires); err != nil {
			return nil, err
		}
		if no == nil {
			a, notices, no = i.take(tx, c)
			e.credential = c.Fingerprint
		}
		if no != nil {
			var known *gate.Error
			if !errors.As(no, &known) || known.Kind != gate.ErrDenied {
				return nil, no
			}
			e.why = known.Message
			return i.refuse(tx, a, e, no, address)
		}
		if no := a.active(i.now()); no != nil {
			e.why = no.Message
			return i.refuse(tx, a, e, no, address)
		}
		strength := gate.StrengthPasskey
		if since.waits(i.now()) != nil { // it signs in, and counts as no more than a password while it waits
			strength = gate.StrengthSession
		}
		out, err = i.let(tx, a, session{Method: methodPasskey, Strength: strength, Key: c.Fingerprint}, from)
		return nil, err
	})
	i.tell(notices)
	if err != nil {
		return Session{}, err
	}
	return out, nil
}

// checkLocked asks without writing.
func (i *Identity) checkLocked(ctx context.Context, b ...bucket) (l *Locked, err error) {
	err = i.view(ctx, "sign in", func(tx gate.Tx) error {
		var err error
		l, err = i.locked(tx, b...)
		return err
	})
	return l, err
}

func lockedOr(l *Locked, err error) error {
	if err != nil {
		return err
	}
	return l
}

// taken is a passkey's answer that holds, with what it said.
type taken struct {
	*credential
	data   *authenticatorData
	answer *answer
}

// answered checks a passkey's answer to a challenge: the credential's rows and its ledger record, what browser and
// authenticator said, and the signature. person is whose it must be; empty when the answer says.
func (i *Identity) answered(ctx context.Context, person string, challenge []byte, response json.RawMessage) (*taken, *enrolmentTime, error) {
	if err := i.PasskeyProblem(); err != nil {
		return nil, nil, err
	}
	r, err := parseAnswer(response)
	if err != nil {
		return nil, nil, refused("%v", err)
	}
	d, err := parseAuthenticatorData(r.authData)
	if err != nil {
		return nil, nil, refused("%v", err)
	}
	var c *credential
	err = i.view(ctx, "look up passkey", func(tx gate.Tx) error {
		var a *account
		var err error
		if _, c, a, err = i.credential(tx, r.id); err != nil {
			return err
		}
		if person != "" && c.Person != person {
			return refused("it is another person's passkey")
		}
		if len(r.userHandle) > 0 && !bytes.Equal(r.userHandle, a.Handle) || person == "" && len(r.userHandle) == 0 {
			return refused("it does not say whose it is, or says another")
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	if err := i.party.said(kindGet, challenge, r.clientData, d); err != nil {
		return nil, nil, refused("%v", err)
	}
	if d.flags&flagCredential != 0 {
		return nil, nil, refused("%v", errAuthenticator)
	}
	if err := verifySignature(c.PublicKey, signedBytes(r.authData, r.clientData), r.signature); err != nil {
		return nil, nil, refused("%v", err)
	}
	from, err := i.enrolled(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	return &taken{credential: c, data: d, answer: r}, &enrolmentTime{from}, nil
}

// take notes the use of a credential in the transaction that acts on it: its counter must have moved on.
func (i *Identity) take(tx gate.Tx, t *taken) (*account, []Notice, error) {
	d, c, a, err := i.credential(tx, t.CredentialID)
	if err != nil {
		return nil, nil, err
	}
	if c.Fingerprint != t.Fingerprint {
		return nil, nil, refused("%v", errForged)
	}
	if n := t.data.counter; (n != 0 || c.Counter != 0) && n <= c.Counter {
		ns, err := i.notices(tx, Notice{Kind: "counter_back", Person: c.Person, By: c.Person, Credential: c.Fingerprint})
		if err != nil {
			return nil, nil, err
		}
		return a, ns, refused("its counter went back from %d to %d: there may be a copy of it; remove it and enrol another", c.Counter, n)
	}
	c.Counter, c.Used = t.data.counter, i.now()
	if err := i.put(tx, d, c); err != nil {
		return nil, nil, fmt.Errorf("note the use of a passkey: %w", err)
	}
	return a, nil, nil
}
