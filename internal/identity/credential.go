package identity

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"castellan/internal/gate"
)

// Credential is a passkey as lists show it.
type Credential struct {
	ID         string // for RemoveCredential
	Person     string
	Name       string // as its owner called it
	Enrolled   time.Time
	MayApprove time.Time // when it may approve; it may sign in at once
	Used       time.Time
	Record     uint64 // index of its enrolment in the write tree
	Synced     bool   // may be copied to other devices
	Damaged    bool   // its row was changed in the database: it is good for nothing, and can be removed
}

// credential is what is stored, under the hash of its id.
type credential struct {
	CredentialID []byte    `json:"credential_id"`
	PublicKey    []byte    `json:"public_key"` // COSE
	Fingerprint  string    `json:"fingerprint"`
	UID          string    `json:"uid"` // of the account
	Person       string    `json:"person"`
	Name         string    `json:"name"`
	Record       uint64    `json:"record"`
	Enrolled     time.Time `json:"enrolled"`
	MayApprove   time.Time `json:"may_approve"`
	Used         time.Time `json:"used,omitzero"`
	Counter      uint32    `json:"counter"`
	AAGUID       []byte    `json:"aaguid,omitempty"`
	Transports   []string  `json:"transports,omitempty"`
	Synced       bool      `json:"synced,omitempty"`
}

// gone remembers a removed credential.
type gone struct {
	Fingerprint string `json:"fingerprint"`
	Record      uint64 `json:"record"` // of its removal
}

// The statuses of ledger records of kind "credential".
const (
	statusEnrolled = "enrolled"
	statusRemoved  = "removed"
)

func credentialDoc(id []byte) string {
	sum := sha256.Sum256(id)
	return hex.EncodeToString(sum[:])
}

// refused is why a passkey's answer is not taken; the reason is recorded and, unlike with passwords, told.
func refused(format string, args ...any) *gate.Error {
	return gate.Fail(gate.ErrDenied, "Load the page anew and try again; castellan daemon check prints the address that passkeys belong to.", "the passkey's answer is not accepted: "+format, args...)
}

// credential finds a credential by its id and checks what the rows say of it: the MAC, that it is of this account, and
// that it was not removed.
func (i *Identity) credential(tx gate.Tx, id []byte) (*gate.Doc, *credential, *account, error) {
	unknown := refused("this passkey is not enrolled here")
	docID := credentialDoc(id)
	c := new(credential)
	d, err := i.get(tx, kindCredential, docID, c)
	if err != nil {
		if errors.Is(err, errForged) {
			return nil, nil, nil, refused("%v", errForged)
		}
		return nil, nil, nil, err
	}
	if d == nil {
		return nil, nil, nil, unknown
	}
	if _, err := tx.Doc(kindGone, docID); !errors.Is(err, gate.ErrStoreNotFound) {
		if err != nil {
			return nil, nil, nil, err
		}
		return nil, nil, nil, refused("this passkey was removed")
	}
	if !bytes.Equal(c.CredentialID, id) || c.Fingerprint != Fingerprint(c.CredentialID, c.PublicKey) || d.Owner != c.Person {
		return nil, nil, nil, refused("%v", errForged)
	}
	_, a, err := i.account(tx, c.Person)
	if err != nil {
		return nil, nil, nil, err
	}
	if a == nil || a.UID != c.UID {
		return nil, nil, nil, unknown
	}
	return d, c, a, nil
}

// enrolment is what the ledger says of a credential.
type enrolment struct {
	Kind   string `json:"kind"`
	Status string `json:"status"`
	Target string `json:"target"`
	Tree   string `json:"tree"`
	Seq    *int64 `json:"seq"`
	Data   struct {
		Credential string `json:"credential"`
		Person     string `json:"person"`
		MayApprove string `json:"may_approve"`
	} `json:"data"`
}

// enrolled checks a credential against the signed record of its enrolment, which is where its right to anything begins.
// It returns from when it may approve.
func (i *Identity) enrolled(ctx context.Context, c *credential) (time.Time, error) {
	at, err := i.c.Store.Position(ctx, c.Record)
	if errors.Is(err, gate.ErrStoreNotFound) {
		return time.Time{}, refused("the ledger has no record of its enrolment")
	}
	if err != nil {
		return time.Time{}, storeDown("look up the passkey's enrolment", err)
	}
	if at.Leaf == "" {
		return time.Time{}, refused("the record of its enrolment is not kept any more (retention must keep records of kind %q); enrol it anew", recordCredential)
	}
	if !leadsToRoot(at) {
		return time.Time{}, refused("the record of its enrolment does not lead to the ledger's root")
	}
	from, err := parseEnrolment(at.Leaf, c)
	if err != nil {
		return time.Time{}, refused("%v", err)
	}
	if i.c.Removed != nil {
		removed, err := i.c.Removed(ctx, c.Fingerprint)
		if err != nil {
			return time.Time{}, storeDown("look up the passkey's removal", err)
		}
		if removed {
			return time.Time{}, refused("the ledger says that it was removed")
		}
	}
	return from, nil
}

func parseEnrolment(leaf string, c *credential) (time.Time, error) {
	var e enrolment
	if err := json.Unmarshal([]byte(leaf), &e); err != nil {
		return time.Time{}, errors.New("the record of its enrolment cannot be read")
	}
	if e.Kind != recordCredential || e.Status != statusEnrolled || e.Tree != "write" || e.Seq == nil || uint64(*e.Seq) != c.Record ||
		e.Target != c.Fingerprint || e.Data.Credential != c.Fingerprint || e.Data.Person != c.Person {
		return time.Time{}, errors.New("the ledger's record of its enrolment is of another passkey or person")
	}
	from, err := time.Parse(time.RFC3339, e.Data.MayApprove)
	if err != nil {
		return time.Time{}, errors.New("the record of its enrolment does not say from when it may approve")
	}
	return from, nil
}

// live lists the credentials of a person that can be opened, or of all.
func (i *Identity) live(tx gate.Tx, person string) ([]*credential, error) {
	var out []*credential
	err := i.each(tx, kindCredential, person, func(d *gate.Doc) error {
		c := new(credential)
		if i.open(d, c) == nil && c.Person == d.Owner {
			out = append(out, c)
		}
		return nil
	})
	return out, err
}

// Enrolled says whether any passkey was ever enrolled here.
func (i *Identity) Enrolled(ctx context.Context) (bool, error) {
	ever := false
	err := i.view(ctx, "look for passkeys", func(tx gate.Tx) error {
		var err error
		ever, err = i.anyCredential(tx)
		return err
	})
	return ever, err
}

// anyCredential says whether any passkey was ever enrolled, removed ones included: by rows, or by the ledger where somebody
// took the rows away.
func (i *Identity) anyCredential(tx gate.Tx) (bool, error) {
	for _, kind := range []string{kindCredential, kindGone} {
		d, err := tx.Docs(gate.DocFilter{Kind: kind, Limit: 1})
		if err != nil || len(d) > 0 {
			return len(d) > 0, err
		}
	}
	r, err := tx.Recorded(gate.RecordFilter{Kind: recordCredential, Status: statusEnrolled, Limit: 1})
	return len(r) > 0, err
}

// Credentials lists the passkeys of a person, or of all when person is empty, oldest first.
func (i *Identity) Credentials(ctx context.Context, person string) ([]Credential, error) {
	var out []Credential
	err := i.view(ctx, "list passkeys", func(tx gate.Tx) error {
		out = nil
		return i.each(tx, kindCredential, person, func(d *gate.Doc) error {
			var c credential
			if err := i.open(d, &c); err != nil {
				i.damaged(d, err)
				out = append(out, Credential{ID: clip(d.ID, 64), Person: clip(d.Owner, 64), Damaged: true})
				return nil
			}
			out = append(out, Credential{ID: c.Fingerprint, Person: c.Person, Name: c.Name, Enrolled: c.Enrolled, MayApprove: c.MayApprove,
				Used: c.Used, Record: c.Record, Synced: c.Synced})
			return nil
		})
	})
	slices.SortFunc(out, func(x, y Credential) int { return x.Enrolled.Compare(y.Enrolled) })
	return out, err
}

// RemoveCredential removes a passkey by its fingerprint: one of the session's person, or anybody's for an administrator.
func (i *Identity) RemoveCredential(ctx context.Context, session, id string) error {
	who, err := i.Session(ctx, session)
	if err != nil {
		return err
	}
	return i.DropCredential(ctx, who, id)
}

// DropCredential is RemoveCredential for who holds this machine's account, or is signed in.
func (i *Identity) DropCredential(ctx context.Context, who gate.Principal, fingerprint string) error {
	var notices []Notice
	err := i.update(ctx, "remove passkey", func(tx gate.Tx) (error, error) {
		var found, damaged *gate.Doc
		var c credential
		err := i.each(tx, kindCredential, "", func(d *gate.Doc) error {
			var x credential
			if err := i.open(d, &x); err == nil && x.Fingerprint == fingerprint {
				found, c = d, x
			} else if err != nil && d.ID == fingerprint {
				damaged = d
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		signedIn := who.Strength == gate.StrengthSession || who.Strength == gate.StrengthPasskey
		own := found != nil && signedIn && who.Agent == "" && who.Person == c.Person
		if !own {
			if err := i.mayManage(tx, who); err != nil {
				return nil, err
			}
		}
		if damaged != nil {
			_, err := i.append(tx, event{name: "damaged_row_removed", status: "ok", by: who, marks: map[string]string{"kind": kindCredential}})
			return nil, firstOf(err, tx.DropDoc(kindCredential, damaged.ID))
		}
		if found == nil {
			return nil, gate.Fail(gate.ErrNotFound, "The list of passkeys shows them.", "there is no passkey %q", clip(fingerprint, 64))
		}
		n, err := i.dropCredential(tx, who, found, &c, "credential_removed")
		if err != nil {
			return nil, err
		}
		notices, err = i.notices(tx, n)
		return nil, err
	})
	if err == nil {
		i.tell(notices)
	}
	return err
}

// dropCredential removes a credential: the record that makes it dead, the mark that keeps it so, and its sessions.
func (i *Identity) dropCredential(tx gate.Tx, who gate.Principal, d *gate.Doc, c *credential, kind string) (Notice, error) {
	index, err := i.append(tx, event{kind: recordCredential, name: kind, status: statusRemoved, person: c.Person, by: who, credential: c.Fingerprint})
	if err != nil {
		return Notice{}, err
	}
	if err := tx.DropDoc(kindCredential, d.ID); err != nil {
		return Notice{}, err
	}
	if err := tx.DropDoc(kindGone, d.ID); err != nil {
		return Notice{}, err
	}
	if err := i.put(tx, &gate.Doc{Kind: kindGone, ID: d.ID, Owner: c.Person}, gone{Fingerprint: c.Fingerprint, Record: index}); err != nil {
		return Notice{}, err
	}
	err = i.each(tx, kindSession, c.Person, func(d *gate.Doc) error {
		var s session
		if i.open(d, &s) == nil && s.Key != c.Fingerprint {
			return nil
		}
		return tx.DropDoc(kindSession, d.ID)
	})
	return Notice{Kind: kind, Person: c.Person, By: who.Person, Credential: c.Fingerprint}, err
}

func (i *Identity) dropAllCredentials(tx gate.Tx, who gate.Principal, person string) ([]Notice, error) {
	var docs []*gate.Doc
	err := i.each(tx, kindCredential, person, func(d *gate.Doc) error { docs = append(docs, d); return nil })
	if err != nil {
		return nil, err
	}
	var out []Notice
	for _, d := range docs {
		c := credential{Person: person}
		if i.open(d, &c) != nil {
			if err := tx.DropDoc(kindCredential, d.ID); err != nil { // tampered with: it was dead already
				return nil, err
			}
			continue
		}
		n, err := i.dropCredential(tx, who, d, &c, "credential_removed")
		if err != nil {
			return nil, err
		}
		out = append(out, n)
	}
	return out, nil
}
