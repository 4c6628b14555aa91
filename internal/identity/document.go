package identity

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"castellan/internal/gate"
)

// The kinds of documents that this package keeps.
const (
	kindAccount    = "account"
	kindCredential = "credential"
	kindGone       = "credential_gone" // a removed credential: its id is never taken again
	kindSession    = "session"
	kindCode       = "enrolment_code"
	kindLock       = "signin_lock"
)

const (
	docPurpose = "identity document"
	macSize    = 32
)

// errForged: the row is not what this installation wrote.
var errForged = errors.New("the row was changed in the database, or put there by hand")

// seal writes the body under a MAC that also covers what the row says beside it, and the version that it will have: a body
// cannot be moved to another row, nor an older one put in its place under the newer version.
func (i *Identity) seal(d *gate.Doc, body any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode %s: %w", d.Kind, err)
	}
	mac := i.c.Keys.MAC(docPurpose, d.Kind, d.ID, d.Owner, expiryText(d.Expires), strconv.FormatInt(d.Version+1, 10), string(text))
	d.Body = append(mac[:], text...)
	return nil
}

func expiryText(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return strconv.FormatInt(t.UnixMicro(), 10)
}

// put seals and stores a document.
func (i *Identity) put(tx gate.Tx, d *gate.Doc, body any) error {
	if err := i.seal(d, body); err != nil {
		return err
	}
	return tx.PutDoc(d)
}

// open checks the MAC and decodes.
func (i *Identity) open(d *gate.Doc, into any) error {
	if len(d.Body) < macSize {
		return fmt.Errorf("read %s: %w", d.Kind, errForged)
	}
	mac, text := d.Body[:macSize], d.Body[macSize:]
	if !i.c.Keys.CheckMAC(mac, docPurpose, d.Kind, d.ID, d.Owner, expiryText(d.Expires), strconv.FormatInt(d.Version, 10), string(text)) {
		return fmt.Errorf("read %s: %w", d.Kind, errForged)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("read %s: %w", d.Kind, err)
	}
	return nil
}

// damaged says in the log that a row cannot be believed. Lists show it as such, so that it can be removed.
func (i *Identity) damaged(d *gate.Doc, err error) {
	i.log.Error("a row of the store is not what was written; it grants nothing", "kind", d.Kind, "owner", clip(d.Owner, 64), "error", err)
}

// get finds a document and opens it; nil and no error when there is none, or when it has expired by this clock.
func (i *Identity) get(tx gate.Tx, kind, id string, into any) (*gate.Doc, error) {
	d, err := tx.Doc(kind, id)
	if errors.Is(err, gate.ErrStoreNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if d.Kind != kind || d.ID != id {
		return nil, fmt.Errorf("read %s: %w", kind, errForged)
	}
	if err := i.open(d, into); err != nil {
		return nil, err
	}
	if !d.Expires.IsZero() && !i.now().Before(d.Expires) {
		return nil, nil
	}
	return d, nil
}

// maxPages bounds a walk over documents of one kind: 20,000 of them.
const maxPages = 20

// each walks over the documents of a kind, those of one owner or all, by id.
func (i *Identity) each(tx gate.Tx, kind, owner string, f func(d *gate.Doc) error) error {
	after := ""
	for range maxPages {
		page, err := tx.Docs(gate.DocFilter{Kind: kind, Owner: owner, After: after, Limit: 1000})
		if err != nil {
			return err
		}
		for _, d := range page {
			if !d.Expires.IsZero() && !i.now().Before(d.Expires) {
				continue
			}
			if err := f(d); err != nil {
				return err
			}
		}
		if len(page) < 1000 {
			return nil
		}
		after = page[len(page)-1].ID
	}
	return fmt.Errorf("list documents %s: there are more than %d", kind, maxPages*1000)
}
