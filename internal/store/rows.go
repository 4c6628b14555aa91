package store

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"castellan/internal/ledger"
)

// rows is the ledger's view of a transaction.
type rows struct {
	ctx   context.Context
	q     *session
	clock time.Time // for heads; the zero time leaves it
}

var (
	_ ledger.Finder      = (*rows)(nil)
	_ ledger.Sweeper     = (*rows)(nil)
	_ ledger.SessionRows = (*rows)(nil)
)

func table(tree ledger.Tree) string {
	if tree == ledger.Read {
		return "read_records"
	}
	return "write_records"
}

func (r *rows) Head(ctx context.Context, tree ledger.Tree) (ledger.Head, error) {
	lock := ""
	if !r.clock.IsZero() {
		lock = r.q.kind.lockHead()
	}
	var h ledger.Head
	found, err := r.q.one(ctx, []any{&h.Size, &h.Frontier, &h.Note}, `SELECT size, frontier, note FROM heads WHERE tree = ?`+lock, string(tree))
	if err == nil && !found {
		err = errors.New("the row of the head is missing")
	}
	return h, err
}

func (r *rows) SetHead(ctx context.Context, tree ledger.Tree, h ledger.Head) error {
	n, err := r.q.exec(ctx, `UPDATE heads SET size = ?, frontier = ?, note = ?, clock = ? WHERE tree = ?`,
		h.Size, blob(h.Frontier), h.Note, micros(r.clock), string(tree))
	if err == nil && n != 1 {
		err = errors.New("the row of the head is missing")
	}
	return err
}

func (r *rows) Insert(ctx context.Context, tree ledger.Tree, records []ledger.Record) error {
	query := `INSERT INTO ` + table(tree) + ` (idx, header, hashes, sig, parts, ts, kind, op, actor, client, target, status, effect, plan)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	for i := range records {
		c := &records[i]
		if _, err := r.q.exec(ctx, query, c.Index, c.Header, blob(c.Hashes), c.Sig, packParts(c.Parts),
			c.TS, c.Kind, c.Op, c.Actor, c.Client, c.Target, c.Status, c.Effect, c.Plan); err != nil {
			return fmt.Errorf("insert record %d: %w", c.Index, err)
		}
	}
	return nil
}

func (r *rows) Hashes(ctx context.Context, tree ledger.Tree, from, to int64) ([]byte, error) {
	var out []byte
	err := r.q.each(ctx, func(scan func(...any) error) error {
		var b []byte
		if err := scan(&b); err != nil {
			return err
		}
		out = append(out, b...)
		return nil
	}, `SELECT hashes FROM `+table(tree)+` WHERE idx >= ? AND idx < ? ORDER BY idx`, from, to)
	return out, err
}

const recordColumns = `idx, header, hashes, sig, parts, ts, kind, op, actor, client, target, status, effect, plan`

func (r *rows) Scan(ctx context.Context, tree ledger.Tree, from, to int64, fn func(*ledger.Record) error) error {
	var c cells
	return r.q.each(ctx, func(scan func(...any) error) error {
		if err := c.scan(scan); err != nil {
			return err
		}
		return fn(&c.record)
	}, `SELECT `+recordColumns+` FROM `+table(tree)+` WHERE idx >= ? AND idx < ? ORDER BY idx`, from, to)
}

// cells reads records one after another into the same memory: what record holds is valid until the next scan.
type cells struct {
	record ledger.Record
	raw    [13]sql.RawBytes
	into   []any
}

func (c *cells) scan(scan func(...any) error) error {
	if c.into == nil {
		c.into = append(c.into, &c.record.Index)
		for i := range c.raw {
			c.into = append(c.into, &c.raw[i])
		}
	}
	if err := scan(c.into...); err != nil {
		return err
	}
	r := &c.record
	r.Header, r.Hashes, r.Sig = c.raw[0], c.raw[1], c.raw[2]
	for i, s := range [...]*string{&r.TS, &r.Kind, &r.Op, &r.Actor, &r.Client, &r.Target, &r.Status, &r.Effect, &r.Plan} {
		if raw := c.raw[i+4]; string(raw) != *s { // most repeat what the record before had
			*s = decode(string(raw))
		}
	}
	var err error
	if r.Parts, err = unpackParts(c.raw[3], r.Parts[:0]); err != nil {
		r.Parts = nil // what cannot be read is not there: the verifier says so
	}
	return nil
}

// keep is the record in memory of its own.
func (c *cells) keep() ledger.Record {
	r := c.record
	r.Header, r.Hashes, r.Sig = bytes.Clone(r.Header), bytes.Clone(r.Hashes), bytes.Clone(r.Sig)
	r.Parts = slices.Clone(r.Parts)
	for i := range r.Parts {
		r.Parts[i].Body = bytes.Clone(r.Parts[i].Body)
	}
	return r
}

func (r *rows) Select(ctx context.Context, tree ledger.Tree, q ledger.Query, below int64, limit int) ([]ledger.Record, error) {
	return r.between(ctx, tree, q, 0, below, limit)
}

// between is Select from an index on.
func (r *rows) between(ctx context.Context, tree ledger.Tree, q ledger.Query, from, below int64, limit int) ([]ledger.Record, error) {
	where, args := "idx < ? AND ts <> ''", []any{below}
	if from > 0 {
		where, args = where+" AND idx >= ?", append(args, from)
	}
	for _, f := range []struct{ column, want string }{
		{"kind", q.Kind}, {"op", q.Op}, {"actor", q.Actor}, {"client", q.Client},
		{"status", q.Status}, {"effect", q.Effect}, {"plan", q.Plan},
	} {
		if f.want != "" {
			where, args = where+" AND "+f.column+" = ?", append(args, f.want)
		}
	}
	if q.Target != "" {
		where, args = where+" AND "+r.q.kind.position()+"(target, ?) > 0", append(args, q.Target)
	}
	since, until := q.Window()
	if since != "" {
		where, args = where+" AND ts >= ?", append(args, since)
	}
	if until != "" {
		where, args = where+" AND ts < ?", append(args, until)
	}
	hint := r.q.kind.columns(table(tree))
	if q.Plan != "" {
		hint = "" // it has an index of its own
	}
	args = append(args, limit)
	var out []ledger.Record
	var c cells
	err := r.q.each(ctx, func(scan func(...any) error) error {
		err := c.scan(scan)
		out = append(out, c.keep())
		return err
	}, `SELECT `+recordColumns+` FROM `+table(tree)+` WHERE idx IN (SELECT idx FROM `+table(tree)+hint+` WHERE `+where+
		` ORDER BY idx DESC LIMIT ?) ORDER BY idx DESC`, args...)
	return out, err
}

func (r *rows) DropParts(ctx context.Context, tree ledger.Tree, from, to int64, names []string) (int64, error) {
	type change struct {
		idx   int64
		parts []byte
	}
	var changes []change
	var dropped int64
	err := r.q.each(ctx, func(scan func(...any) error) error {
		var idx int64
		var packed []byte
		if err := scan(&idx, &packed); err != nil {
			return err
		}
		parts, err := unpackParts(packed, nil)
		if err != nil {
			return fmt.Errorf("record %d: %w", idx, err)
		}
		kept := slices.DeleteFunc(slices.Clone(parts), func(p ledger.Part) bool {
			return len(names) == 0 || slices.Contains(names, p.Name)
		})
		if len(kept) < len(parts) {
			dropped += int64(len(parts) - len(kept))
			changes = append(changes, change{idx, packParts(kept)})
		}
		return nil
	}, `SELECT idx, parts FROM `+table(tree)+` WHERE idx >= ? AND idx < ? AND parts IS NOT NULL ORDER BY idx`, from, to)
	if err != nil {
		return 0, err
	}
	for _, c := range changes {
		if _, err := r.q.exec(ctx, `UPDATE `+table(tree)+` SET parts = ? WHERE idx = ?`, c.parts, c.idx); err != nil {
			return 0, err
		}
	}
	return dropped, nil
}

func (r *rows) DropRecords(ctx context.Context, tree ledger.Tree, from, to int64) (int64, error) {
	return r.q.exec(ctx, `UPDATE `+table(tree)+` SET header = NULL, parts = NULL, ts = '', kind = '', op = '', actor = '',
		client = '', target = '', status = '', effect = '', plan = '' WHERE idx >= ? AND idx < ? AND header IS NOT NULL`, from, to)
}

func (r *rows) PutSession(ctx context.Context, s ledger.Session) error {
	_, err := r.q.exec(ctx, `INSERT INTO sessions (id, host, pid, opened, seen) VALUES (?, ?, ?, ?, ?)
		ON CONFLICT (id) DO UPDATE SET host = excluded.host, pid = excluded.pid, opened = excluded.opened, seen = excluded.seen`,
		s.ID, s.Host, s.PID, micros(s.Opened), micros(s.Seen))
	return err
}

func (r *rows) DropSession(ctx context.Context, id string) (bool, error) {
	n, err := r.q.exec(ctx, `DELETE FROM sessions WHERE id = ?`, id)
	return n > 0, err
}

func (r *rows) Sessions(ctx context.Context) ([]ledger.Session, error) {
	var out []ledger.Session
	err := r.q.each(ctx, func(scan func(...any) error) error {
		var s ledger.Session
		var opened, seen int64
		if err := scan(&s.ID, &s.Host, &s.PID, &opened, &seen); err != nil {
			return err
		}
		s.ID, s.Host = decode(s.ID), decode(s.Host)
		s.Opened, s.Seen = time.UnixMicro(opened).UTC(), time.UnixMicro(seen).UTC()
		out = append(out, s)
		return nil
	}, `SELECT id, host, pid, opened, seen FROM sessions ORDER BY id`)
	return out, err
}

// packParts puts the parts of a record into one value: for each the length and text of its name, its salt, the
// length and bytes of its body. Nil for none.
func packParts(parts []ledger.Part) []byte {
	if len(parts) == 0 {
		return nil
	}
	n := 0
	for _, p := range parts {
		n += len(p.Name) + len(p.Salt) + len(p.Body) + 2*binary.MaxVarintLen32
	}
	b := make([]byte, 0, n)
	for _, p := range parts {
		b = binary.AppendUvarint(b, uint64(len(p.Name)))
		b = append(append(b, p.Name...), p.Salt[:]...)
		b = binary.AppendUvarint(b, uint64(len(p.Body)))
		b = append(b, p.Body...)
	}
	return b
}

var errParts = errors.New("the parts of the record are damaged")

func unpackParts(b []byte, parts []ledger.Part) ([]ledger.Part, error) {
	for len(b) > 0 {
		var p ledger.Part
		name, rest, ok := cutLength(b)
		if !ok || len(rest) < len(p.Salt) {
			return nil, errParts
		}
		p.Name = string(name)
		rest = rest[copy(p.Salt[:], rest):]
		if p.Body, b, ok = cutLength(rest); !ok {
			return nil, errParts
		}
		parts = append(parts, p)
	}
	return parts, nil
}

func cutLength(b []byte) (value, rest []byte, ok bool) {
	n, w := binary.Uvarint(b)
	if w <= 0 || n > uint64(len(b)-w) {
		return nil, nil, false
	}
	return b[w : w+int(n)], b[w+int(n):], true
}
