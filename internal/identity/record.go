package identity

import (
	"time"

	"castellan/internal/gate"
)

// Kinds of ledger records.
const (
	recordAuth       = "auth"
	recordCredential = "credential"
)

// event is what is recorded of something that happened to somebody's access.
type event struct {
	kind       string // recordAuth when empty
	name       string // "signin_ok", "signin_fail", "signin_lockout", "session_ended", ...
	status     string // "ok", "denied", "locked"
	person     string // an account that exists; never what a stranger typed
	by         gate.Principal
	from       Remote
	method     string // "password", "passkey", "oidc", "realm", "access"
	credential string
	marks      map[string]string
	claimed    string // the name that was typed, of nobody that exists
	why        string
}

func (i *Identity) record(e event) gate.Record {
	kind := e.kind
	if kind == "" {
		kind = recordAuth
	}
	actor, wayIn := e.by, e.by.WayIn
	if actor.Person == "" && actor.Agent == "" {
		actor = gate.Principal{Person: e.person}
	}
	if wayIn == "" {
		wayIn = wayInOf(e.from)
	}
	r := gate.Record{At: i.now(), Kind: kind, Operation: e.name, Actor: actor.Key(), WayIn: wayIn, Status: e.status, Target: e.credential,
		Marks: map[string]string{}, Parts: map[string]string{}}
	mark := func(name, value string) {
		if value != "" {
			r.Marks[name] = value
		}
	}
	for name, value := range e.marks {
		mark(name, value)
	}
	mark("person", e.person)
	mark("method", e.method)
	mark("credential", e.credential)
	if e.from.IP.IsValid() {
		mark("ip", e.from.IP.Unmap().WithZone("").String())
	}
	part := func(name, value string, limit int) {
		if value != "" {
			r.Parts[name] = clip(value, limit)
		}
	}
	part("user_agent", e.from.UserAgent, 256)
	part("name", e.claimed, 128)
	part("error", e.why, 300)
	return r
}

// enough failures of one person are recorded durably; what follows within the hour goes to the read tree, which drops
// what is too much. A person who is signed in cannot fill the ledger so.
const enough = 50

func (i *Identity) failure(tx gate.Tx, e event) error {
	bucket, now := "failure/"+e.person, i.now()
	n, err := tx.Count(bucket, now.Add(-time.Hour))
	if err != nil {
		return err
	}
	if n >= enough {
		i.c.Store.Observe(i.record(e))
		return nil
	}
	if err := tx.Hit(bucket, now); err != nil {
		return err
	}
	_, err = i.append(tx, e)
	return err
}

func (i *Identity) append(tx gate.Tx, e event) (uint64, error) { return tx.Append(i.record(e)) }

func wayInOf(from Remote) string {
	if from.WayIn == "" {
		return "console"
	}
	return clip(from.WayIn, 40)
}
