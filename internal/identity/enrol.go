package identity

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"castellan/internal/gate"
	"castellan/internal/seal"
)

// creationOptions are what PublicKeyCredential.parseCreationOptionsFromJSON takes.
type creationOptions struct {
	RP struct {
		ID   string `json:"id"`
		Name string `json:"name"`
	} `json:"rp"`
	User struct {
		ID          string `json:"id"`
		Name        string `json:"name"`
		DisplayName string `json:"displayName"`
	} `json:"user"`
	Challenge          string       `json:"challenge"`
	Params             []param      `json:"pubKeyCredParams"`
	Timeout            int64        `json:"timeout"` // milliseconds
	ExcludeCredentials []descriptor `json:"excludeCredentials,omitempty"`
	Selection          struct {
		ResidentKey        string `json:"residentKey"`
		RequireResidentKey bool   `json:"requireResidentKey"`
		UserVerification   string `json:"userVerification"`
	} `json:"authenticatorSelection"`
	Attestation string `json:"attestation"`
}

type param struct {
	Type string `json:"type"`
	Alg  int    `json:"alg"`
}

const enrolPurpose = "castellan new passkey v1"

// EnrolStart begins the enrolment of a passkey: options for navigator.credentials.create (not wrapped in "publicKey") and
// a ticket for EnrolFinish. proof is a one-time code, or, for a person who has a passkey, the voucher of VouchFinish. The
// session may be empty for an account that has no other way to sign in than the passkey that it is about to get.
func (i *Identity) EnrolStart(ctx context.Context, session, proof string) (options json.RawMessage, ticketText string, err error) {
	if err := i.PasskeyProblem(); err != nil {
		return nil, "", err
	}
	t := &ticket{}
	var who *account
	var has []*credential
	err = i.view(ctx, "begin enrolment", func(tx gate.Tx) error {
		who, err = i.mayEnrol(tx, t, session, strings.TrimSpace(proof))
		if err != nil {
			return err
		}
		has, err = i.live(tx, who.Name)
		return err
	})
	if err != nil {
		return nil, "", err
	}
	if ticketText, err = i.sealTicket(ticketEnrol, t); err != nil {
		return nil, "", err
	}
	o := creationOptions{Challenge: challengeText(t.challenge(enrolPurpose)), Timeout: ticketLife.Milliseconds(), ExcludeCredentials: descriptors(has), Attestation: "none",
		Params: []param{{"public-key", algES256}, {"public-key", algEdDSA}, {"public-key", algRS256}}}
	o.RP.ID, o.RP.Name = i.party.id, "castellan"
	o.User.ID, o.User.Name, o.User.DisplayName = base64.RawURLEncoding.EncodeToString(who.Handle), who.Name, who.Name
	if who.Display != "" {
		o.User.DisplayName = who.Display
	}
	o.Selection.ResidentKey, o.Selection.RequireResidentKey, o.Selection.UserVerification = "required", true, "required"
	options, err = json.Marshal(o)
	return options, ticketText, err
}

// mayEnrol says for whom the proof lets enrol, and notes in the ticket on what that rests.
func (i *Identity) mayEnrol(tx gate.Tx, t *ticket, session, proof string) (*account, error) {
	var signedIn *account
	if session != "" {
		_, _, a, err := i.session(tx, session)
		if err != nil {
			return nil, err
		}
		signedIn, t.Session = a, hashSession(session)
	}
	if len(proof) == codeLength {
		id := seal.HashToken(proof, codePurpose)
		c, a, err := i.code(tx, id)
		if err != nil {
			return nil, err
		}
		switch {
		case signedIn != nil && signedIn.UID != a.UID:
			return nil, gate.Fail(gate.ErrDenied, "Sign out, then sign in as that person.", "the one-time code is another person's")
		case signedIn == nil && (a.Hash != "" || len(a.Logins) > 0):
			return nil, gate.Fail(gate.ErrDenied, "Sign in, then enter the code.", "%s signs in before enrolling a passkey", a.Name)
		}
		if e := a.active(i.now()); e != nil {
			return nil, e
		}
		t.Person, t.UID, t.Code = c.Person, a.UID, id
		return a, nil
	}
	need := "Root makes a one-time code on the machine."
	if signedIn == nil {
		return nil, gate.Fail(gate.ErrDenied, need, "enrolling a passkey needs a one-time code, or a session")
	}
	if proof == "" {
		has, err := i.live(tx, signedIn.Name)
		if err != nil {
			return nil, err
		}
		if len(has) > 0 {
			need = "Confirm with one of your passkeys first."
		}
		return nil, gate.Fail(gate.ErrDenied, need, "enrolling a passkey needs a one-time code, or a passkey that one has")
	}
	v, err := i.openTicket(ticketVoucher, proof)
	if err != nil {
		return nil, err
	}
	if v.Person != signedIn.Name || v.UID != signedIn.UID || v.For != signedIn.Name || v.Session != t.Session {
		return nil, gate.Fail(gate.ErrDenied, "Confirm with one of your passkeys again.", "the confirmation was for another person or session")
	}
	t.Person, t.UID, t.Voucher, t.Key, t.Expires = signedIn.Name, signedIn.UID, v.Random, v.Key, v.Expires
	return signedIn, nil
}

// EnrolFinish stores the new passkey under a name of the person's choice, with the ledger record that its right to
// anything begins from, and uses up the code or voucher. All approvers are told.
func (i *Identity) EnrolFinish(ctx context.Context, session, ticketText string, response json.RawMessage, name string) error {
	if err := i.PasskeyProblem(); err != nil {
		return err
	}
	t, err := i.openTicket(ticketEnrol, ticketText)
	if err != nil {
		return err
	}
	if session == "" && t.Session != "" || session != "" && t.Session != hashSession(session) {
		return gate.Fail(gate.ErrDenied, "Begin again.", "this ceremony was begun in another session")
	}
	made, why := i.created(t, response)
	if name = clip(strings.TrimSpace(name), 60); name == "" {
		name = "passkey"
	}
	var notices []Notice
	err = i.update(ctx, "enrol passkey", func(tx gate.Tx) (error, error) {
		notices = nil
		if err := i.spend(tx, t.Random, t.Expires); err != nil {
			return nil, err
		}
		who, a, err := i.stillMay(tx, t, session)
		if err != nil {
			return nil, err
		}
		no := why // then code and voucher stay good for another try
		if no == nil {
			no, err = i.isNew(tx, made.CredentialID)
		}
		if err != nil {
			return nil, err
		}
		if no != nil {
			e := event{name: "enrol_fail", status: "denied", person: a.Name, by: who, why: no.Error()}
			return no, i.failure(tx, e)
		}
		if err := i.useProof(tx, t); err != nil {
			return nil, err
		}
		c := *made
		c.Person, c.UID, c.Name = a.Name, a.UID, name
		notices, err = i.enrol(tx, who, t, &c)
		return nil, err
	})
	if err != nil {
		return err
	}
	i.tell(notices)
	return nil
}

// created checks what the browser answered to the creation options.
func (i *Identity) created(t *ticket, response json.RawMessage) (*credential, error) {
	r, err := parseAnswer(response)
	if err != nil {
		return nil, refused("%v", err)
	}
	d, err := parseAttestation(r.attestation)
	if err != nil {
		return nil, refused("%v", err)
	}
	if err := i.party.said(kindCreate, t.challenge(enrolPurpose), r.clientData, d); err != nil {
		return nil, refused("%v", err)
	}
	if string(d.id) != string(r.id) {
		return nil, refused("it names two credentials")
	}
	return &credential{CredentialID: d.id, PublicKey: d.publicKey, Fingerprint: Fingerprint(d.id, d.publicKey), Counter: d.counter,
		AAGUID: d.aaguid, Transports: r.transports, Synced: d.flags&flagEligible != 0}, nil
}

// useProof uses up what the enrolment rests on.
func (i *Identity) useProof(tx gate.Tx, t *ticket) error {
	if t.Code != "" {
		return tx.DropDoc(kindCode, t.Code)
	}
	return i.spend(tx, t.Voucher, t.Expires)
}

// stillMay looks again at all that the enrolment rests on.
func (i *Identity) stillMay(tx gate.Tx, t *ticket, session string) (who gate.Principal, a *account, err error) {
	if session != "" {
		_, s, signedIn, err := i.session(tx, session)
		if err != nil {
			return who, nil, err
		}
		if signedIn.UID != t.UID {
			return who, nil, signInAgain()
		}
		who = i.principal(signedIn, s)
	}
	if _, a, err = i.account(tx, t.Person); err != nil {
		return who, nil, err
	}
	if a == nil || a.UID != t.UID {
		return who, nil, noAccount(t.Person)
	}
	if e := a.active(i.now()); e != nil {
		return who, nil, e
	}
	if session == "" {
		who = gate.Principal{Person: a.Name, WayIn: "console", Strength: gate.StrengthSession}
	}
	switch {
	case t.Code != "":
		if _, _, err := i.code(tx, t.Code); err != nil {
			return who, nil, err
		}
	case len(t.Voucher) == 32:
		has, err := i.live(tx, a.Name)
		if err != nil {
			return who, nil, err
		}
		lost := true
		for _, c := range has {
			lost = lost && c.Fingerprint != t.Key
		}
		if lost {
			return who, nil, gate.Fail(gate.ErrDenied, "Confirm with another one.", "the passkey that confirmed this was removed")
		}
	default:
		return who, nil, refused("it rests on nothing")
	}
	return who, a, nil
}

// isNew refuses a credential that is or was enrolled here, for anybody.
func (i *Identity) isNew(tx gate.Tx, id []byte) (no, err error) {
	for _, kind := range []string{kindCredential, kindGone} {
		_, err := tx.Doc(kind, credentialDoc(id))
		if err == nil {
			return refused("this passkey is or was enrolled here; make another"), nil
		}
		if !errors.Is(err, gate.ErrStoreNotFound) {
			return nil, err
		}
	}
	return nil, nil
}

// maxCredentials of one person.
const maxCredentials = 20

// enrol stores the credential with its record. The first of the installation may approve at once; every other waits.
func (i *Identity) enrol(tx gate.Tx, who gate.Principal, t *ticket, c *credential) ([]Notice, error) {
	now := i.now().Truncate(time.Second)
	ever, err := i.anyCredential(tx)
	if err != nil {
		return nil, err
	}
	c.Enrolled, c.MayApprove = now, now
	if ever {
		c.MayApprove = now.Add(time.Duration(i.set.EnrolWait)).Add(time.Second) // never shorter, whatever is rounded
	}
	has, err := i.live(tx, c.Person)
	if err != nil {
		return nil, err
	}
	if len(has) >= maxCredentials {
		return nil, gate.Fail(gate.ErrDenied, "Remove one first.", "%s has %d passkeys", c.Person, len(has))
	}
	var ns []Notice
	kind := "credential_enrolled"
	if t.Code != "" && len(has) > 0 { // a reset: those are lost
		if ns, err = i.dropAllCredentials(tx, who, c.Person); err != nil {
			return nil, err
		}
		kind = "credential_reset"
	}
	marks := map[string]string{"may_approve": c.MayApprove.Format(time.RFC3339), "by_credential": t.Key}
	c.Record, err = i.append(tx, event{kind: recordCredential, name: kind, status: statusEnrolled, person: c.Person, by: who, credential: c.Fingerprint, marks: marks})
	if err != nil {
		return nil, err
	}
	if err := i.put(tx, &gate.Doc{Kind: kindCredential, ID: credentialDoc(c.CredentialID), Owner: c.Person}, c); err != nil {
		return nil, err
	}
	return i.notices(tx, append(ns, Notice{Kind: kind, Person: c.Person, By: who.Person, Credential: c.Fingerprint, From: c.MayApprove})...)
}
