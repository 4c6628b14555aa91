package store

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"castellan/internal/gate"
)

const (
	defaultDocs = 200
	maxDocs     = 1000
	// maxDoc bounds the body of one document, in bytes.
	maxDoc = 256 << 10
)

// PutDoc inserts or replaces a document and clears away expired ones of its kind.
func (t *tx) PutDoc(d *gate.Doc) error {
	if err := t.writable(); err != nil {
		return err
	}
	if d.Kind == "" || d.ID == "" {
		return errors.New("put document: it has no kind or no id")
	}
	if len(d.Kind) > maxKey || len(d.ID) > maxKey {
		return fmt.Errorf("put document %s: its id is longer than %d bytes", d.Kind, maxKey)
	}
	if len(d.Body) > maxDoc {
		return fmt.Errorf("put document %s: it has %d bytes, at most %d are possible", d.Kind, len(d.Body), maxDoc)
	}
	if _, err := t.q.exec(t.ctx, `DELETE FROM docs WHERE kind = ? AND expires > 0 AND expires <= ?`, key(d.Kind), micros(t.now)); err != nil {
		return fmt.Errorf("clear documents %s: %w", d.Kind, err)
	}
	var n int64
	var err error
	if d.Version == 0 {
		n, err = t.q.exec(t.ctx, `INSERT INTO docs (kind, id, owner, expires, version, body) VALUES (?, ?, ?, ?, 1, ?) ON CONFLICT (kind, id) DO NOTHING`,
			key(d.Kind), key(d.ID), key(d.Owner), expiry(d.Expires), blob(d.Body))
	} else {
		n, err = t.q.exec(t.ctx, `UPDATE docs SET owner = ?, expires = ?, version = ?, body = ? WHERE kind = ? AND id = ? AND version = ?`,
			key(d.Owner), expiry(d.Expires), d.Version+1, blob(d.Body), key(d.Kind), key(d.ID), d.Version)
	}
	if err != nil {
		return fmt.Errorf("put document %s: %w", d.Kind, err)
	}
	if n == 0 {
		return fmt.Errorf("put document %s: %w", d.Kind, gate.ErrStoreConflict)
	}
	old := d.Version
	t.back = append(t.back, func() { d.Version = old })
	d.Version = old + 1
	return nil
}

// expiry is 0 for never.
func expiry(at time.Time) int64 {
	if at.IsZero() {
		return 0
	}
	return max(1, micros(at))
}

const docColumns = `kind, id, owner, expires, version, body`

// Doc finds a document that has not expired.
func (t *tx) Doc(kind, id string) (*gate.Doc, error) {
	var out *gate.Doc
	err := t.q.each(t.ctx, func(scan func(...any) error) error {
		var err error
		out, err = scanDoc(scan)
		return err
	}, `SELECT `+docColumns+` FROM docs WHERE kind = ? AND id = ? AND (expires = 0 OR expires > ?)`, key(kind), key(id), micros(t.now))
	if err != nil {
		return nil, fmt.Errorf("read document %s: %w", kind, err)
	}
	if out == nil {
		return nil, fmt.Errorf("read document %s: %w", kind, gate.ErrStoreNotFound)
	}
	return out, nil
}

func scanDoc(scan func(...any) error) (*gate.Doc, error) {
	d := new(gate.Doc)
	var expires int64
	if err := scan(&d.Kind, &d.ID, &d.Owner, &expires, &d.Version, &d.Body); err != nil {
		return nil, err
	}
	d.Kind, d.ID, d.Owner = decode(d.Kind), decode(d.ID), decode(d.Owner)
	if expires > 0 {
		d.Expires = time.UnixMicro(expires).UTC()
	}
	return d, nil
}

// Docs lists documents of a kind by id.
func (t *tx) Docs(f gate.DocFilter) ([]*gate.Doc, error) {
	limit := f.Limit
	if limit <= 0 {
		limit = defaultDocs
	}
	where, args := []string{"kind = ?", "(expires = 0 OR expires > ?)"}, []any{key(f.Kind), micros(t.now)}
	if f.Owner != "" {
		where, args = append(where, "owner = ?"), append(args, key(f.Owner))
	}
	if f.After != "" {
		where, args = append(where, "id > ?"), append(args, key(f.After))
	}
	var out []*gate.Doc
	err := t.q.each(t.ctx, func(scan func(...any) error) error {
		d, err := scanDoc(scan)
		out = append(out, d)
		return err
	}, `SELECT `+docColumns+` FROM docs WHERE `+strings.Join(where, " AND ")+` ORDER BY id LIMIT ?`, append(args, min(limit, maxDocs))...)
	if err != nil {
		return nil, fmt.Errorf("list documents %s: %w", f.Kind, err)
	}
	return out, nil
}

// DropDoc removes a document.
func (t *tx) DropDoc(kind, id string) error {
	if err := t.writable(); err != nil {
		return err
	}
	if _, err := t.q.exec(t.ctx, `DELETE FROM docs WHERE kind = ? AND id = ?`, key(kind), key(id)); err != nil {
		return fmt.Errorf("drop document %s: %w", kind, err)
	}
	return nil
}
