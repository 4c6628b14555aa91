package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"castellan/internal/gate"
)

// tx is one transaction, or one caller's share of a writing transaction.
type tx struct {
	ctx   context.Context
	q     *session
	now   time.Time
	batch *batch // nil in a transaction that only reads
	back  []func()
}

var _ gate.Tx = (*tx)(nil)

var errReadOnly = errors.New("write to store: this transaction only reads")

func (t *tx) writable() error {
	if t.batch == nil {
		return errReadOnly
	}
	return nil
}

// maxKey bounds what goes into an index; a longer text is told apart by its digest.
const maxKey = 512

func key(s string) string {
	if len(s) <= maxKey {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return s[:maxKey-2*len(sum)] + hex.EncodeToString(sum[:])
}

func micros(t time.Time) int64 { return t.UnixMicro() }

func (t *tx) InsertPlan(r *gate.PlanRecord) error {
	if err := t.writable(); err != nil {
		return err
	}
	if r.Plan.ID == "" {
		return errors.New("insert plan: it has no id")
	}
	body, err := encodePlan(r)
	if err != nil {
		return fmt.Errorf("insert plan %s: %w", r.Plan.ID, err)
	}
	n, err := t.q.exec(t.ctx, `INSERT INTO plans (id, version, state, requester, operation, effect_digest, created, body)
		VALUES (?, 1, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING`,
		key(r.Plan.ID), string(r.State), key(r.Plan.Requester.Key()), r.Plan.Operation, r.Plan.EffectDigest, micros(r.Plan.Created), body)
	if err != nil {
		return fmt.Errorf("insert plan %s: %w", r.Plan.ID, err)
	}
	if n == 0 {
		return fmt.Errorf("insert plan %s: %w: there is a plan of this id", r.Plan.ID, gate.ErrStoreConflict)
	}
	t.setVersion(r, 1)
	return nil
}

// setVersion moves the record's version, and back again should the transaction not come to be.
func (t *tx) setVersion(r *gate.PlanRecord, v int64) {
	old := r.Version
	t.back = append(t.back, func() { r.Version = old })
	r.Version = v
}

func (t *tx) Plan(id string) (*gate.PlanRecord, error) {
	return t.onePlan("read plan "+id, `SELECT version, body FROM plans WHERE id = ?`, key(id))
}

func (t *tx) OpenPlan(effectDigest, requester string) (*gate.PlanRecord, error) {
	return t.onePlan("find open plan", `SELECT version, body FROM plans
		WHERE effect_digest = ? AND requester = ? AND state = 'proposed' ORDER BY created DESC, id DESC LIMIT 1`, effectDigest, key(requester))
}

func (t *tx) onePlan(what, query string, args ...any) (*gate.PlanRecord, error) {
	var version int64
	var body []byte
	found, err := t.q.one(t.ctx, []any{&version, &body}, query, args...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	if !found {
		return nil, fmt.Errorf("%s: %w", what, gate.ErrStoreNotFound)
	}
	r, err := decodePlan(version, body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return r, nil
}

func (t *tx) UpdatePlan(r *gate.PlanRecord) error {
	if err := t.writable(); err != nil {
		return err
	}
	body, err := encodePlan(r)
	if err != nil {
		return fmt.Errorf("update plan %s: %w", r.Plan.ID, err)
	}
	n, err := t.q.exec(t.ctx, `UPDATE plans SET version = ?, state = ?, body = ? WHERE id = ? AND version = ?`,
		r.Version+1, string(r.State), body, key(r.Plan.ID), r.Version)
	if err != nil {
		return fmt.Errorf("update plan %s: %w", r.Plan.ID, err)
	}
	if n == 0 {
		if _, err := t.Plan(r.Plan.ID); errors.Is(err, gate.ErrStoreNotFound) {
			return fmt.Errorf("update plan %s: %w", r.Plan.ID, gate.ErrStoreNotFound)
		}
		return fmt.Errorf("update plan %s: %w", r.Plan.ID, gate.ErrStoreConflict)
	}
	t.setVersion(r, r.Version+1)
	return nil
}

func encodePlan(r *gate.PlanRecord) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(r); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

func decodePlan(version int64, body []byte) (*gate.PlanRecord, error) {
	r := new(gate.PlanRecord)
	if err := json.Unmarshal(body, r); err != nil {
		return nil, fmt.Errorf("decode plan: %w", err)
	}
	r.Version = version
	return r, nil
}

const (
	defaultPlans = 50
	maxPlans     = 1000
)

func (t *tx) ListPlans(f gate.PlanFilter) ([]*gate.PlanRecord, string, error) {
	limit := f.Limit
	if limit <= 0 {
		limit = defaultPlans
	}
	limit = min(limit, maxPlans)
	where, args := []string{"1 = 1"}, []any{}
	if len(f.States) > 0 {
		where = append(where, "state IN (?"+strings.Repeat(", ?", len(f.States)-1)+")")
		for _, s := range f.States {
			args = append(args, string(s))
		}
	}
	if f.Requester != "" {
		where, args = append(where, "requester = ?"), append(args, key(f.Requester))
	}
	if !f.Since.IsZero() {
		where, args = append(where, "created >= ?"), append(args, micros(f.Since))
	}
	if f.Cursor != "" {
		created, id, err := parsePlanCursor(f.Cursor)
		if err != nil {
			return nil, "", gate.Fail(gate.ErrInvalid, "Give the cursor exactly as the last answer returned it, or leave it out.", "list plans: %v", err)
		}
		where, args = append(where, "(created < ? OR created = ? AND id < ?)"), append(args, created, created, id)
	}
	args = append(args, limit+1)
	var plans []*gate.PlanRecord
	var cursor string
	var last struct {
		created int64
		id      string
	}
	err := t.q.each(t.ctx, func(scan func(...any) error) error {
		var id string
		var created, version int64
		var body []byte
		if err := scan(&id, &created, &version, &body); err != nil {
			return err
		}
		if len(plans) == limit {
			cursor = planCursor(last.created, last.id)
			return nil
		}
		last.created, last.id = created, id
		r, err := decodePlan(version, body)
		if err != nil {
			return fmt.Errorf("plan %s: %w", decode(id), err)
		}
		plans = append(plans, r)
		return nil
	}, `SELECT id, created, version, body FROM plans WHERE `+strings.Join(where, " AND ")+` ORDER BY created DESC, id DESC LIMIT ?`, args...)
	if err != nil {
		return nil, "", fmt.Errorf("list plans: %w", err)
	}
	return plans, cursor, nil
}

func planCursor(created int64, id string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(created, 10) + " " + decode(id)))
}

func parsePlanCursor(s string) (int64, string, error) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	created, id, ok := strings.Cut(string(b), " ")
	n, nerr := strconv.ParseInt(created, 10, 64)
	if err != nil || !ok || nerr != nil || len(s) > 2*maxKey {
		return 0, "", errors.New("the cursor is none of ours")
	}
	return n, id, nil
}

func (t *tx) Lock(object, plan string, at time.Time) (string, error) {
	if err := t.writable(); err != nil {
		return "", err
	}
	n, err := t.q.exec(t.ctx, `INSERT INTO locks (object, plan, since) VALUES (?, ?, ?) ON CONFLICT (object) DO NOTHING`, key(object), key(plan), micros(at))
	if err != nil {
		return "", fmt.Errorf("lock %s: %w", object, err)
	}
	if n == 1 {
		return "", nil
	}
	var holder string
	found, err := t.q.one(t.ctx, []any{&holder}, `SELECT plan FROM locks WHERE object = ?`, key(object))
	if err != nil {
		return "", fmt.Errorf("lock %s: %w", object, err)
	}
	if !found { // cannot be: transactions are serial
		return "", fmt.Errorf("lock %s: %w", object, gate.ErrStoreConflict)
	}
	if holder = decode(holder); holder == key(plan) {
		return "", nil
	}
	return holder, nil
}

func (t *tx) Unlock(plan string) error {
	if err := t.writable(); err != nil {
		return err
	}
	if _, err := t.q.exec(t.ctx, `DELETE FROM locks WHERE plan = ?`, key(plan)); err != nil {
		return fmt.Errorf("unlock plan %s: %w", plan, err)
	}
	return nil
}

// nonceGrace is how long a used nonce is kept beyond its expiry, against clocks that differ.
const nonceGrace = time.Hour

func (t *tx) UseNonce(nonce string, expires time.Time) error {
	if err := t.writable(); err != nil {
		return err
	}
	if nonce == "" {
		return errors.New("use nonce: it is empty")
	}
	if _, err := t.q.exec(t.ctx, `DELETE FROM nonces WHERE expires < ?`, micros(t.now.Add(-nonceGrace))); err != nil {
		return fmt.Errorf("use nonce: %w", err)
	}
	n, err := t.q.exec(t.ctx, `INSERT INTO nonces (nonce, expires) VALUES (?, ?) ON CONFLICT (nonce) DO NOTHING`, key(nonce), micros(expires))
	if err != nil {
		return fmt.Errorf("use nonce: %w", err)
	}
	if n == 0 {
		return gate.ErrNonceUsed
	}
	return nil
}

// hitsFor is how long hits are kept: what they are counted for looks back an hour, or a day.
const hitsFor = 25 * time.Hour

func (t *tx) Hit(bucket string, at time.Time) error {
	if err := t.writable(); err != nil {
		return err
	}
	if _, err := t.q.exec(t.ctx, `DELETE FROM hits WHERE bucket = ? AND at < ?`, key(bucket), micros(t.now.Add(-hitsFor))); err != nil {
		return fmt.Errorf("count a hit: %w", err)
	}
	if _, err := t.q.exec(t.ctx, `INSERT INTO hits (bucket, at) VALUES (?, ?)`, key(bucket), micros(at)); err != nil {
		return fmt.Errorf("count a hit: %w", err)
	}
	return nil
}

func (t *tx) Count(bucket string, since time.Time) (int, error) {
	var n int
	if _, err := t.q.one(t.ctx, []any{&n}, `SELECT count(*) FROM hits WHERE bucket = ? AND at > ?`, key(bucket), micros(since)); err != nil {
		return 0, fmt.Errorf("count hits: %w", err)
	}
	return n, nil
}

func (t *tx) PutSealed(plan, handle string, box []byte) error {
	if err := t.writable(); err != nil {
		return err
	}
	_, err := t.q.exec(t.ctx, `INSERT INTO sealed (plan, handle, box) VALUES (?, ?, ?)
		ON CONFLICT (plan, handle) DO UPDATE SET box = excluded.box`, key(plan), key(handle), blob(box))
	if err != nil {
		return fmt.Errorf("keep sealed value: %w", err)
	}
	return nil
}

func (t *tx) Sealed(plan, handle string) ([]byte, error) {
	var box []byte
	found, err := t.q.one(t.ctx, []any{&box}, `SELECT box FROM sealed WHERE plan = ? AND handle = ?`, key(plan), key(handle))
	if err != nil {
		return nil, fmt.Errorf("read sealed value: %w", err)
	}
	if !found {
		return nil, fmt.Errorf("read sealed value: %w", gate.ErrStoreNotFound)
	}
	return box, nil
}

func (t *tx) DropSealed(plan string) error {
	if err := t.writable(); err != nil {
		return err
	}
	if _, err := t.q.exec(t.ctx, `DELETE FROM sealed WHERE plan = ?`, key(plan)); err != nil {
		return fmt.Errorf("drop sealed values: %w", err)
	}
	return nil
}

func (t *tx) Get(name string) (string, error) { return getMark(t.ctx, t.q, name) }

func (t *tx) Set(name, value string) error {
	if err := t.writable(); err != nil {
		return err
	}
	if strings.HasPrefix(name, "store/") {
		return fmt.Errorf("set mark %s: this name belongs to the store", name)
	}
	return setMark(t.ctx, t.q, name, value)
}

func getMark(ctx context.Context, q *session, name string) (string, error) {
	var v string
	if _, err := q.one(ctx, []any{&v}, `SELECT value FROM marks WHERE name = ?`, key(name)); err != nil {
		return "", fmt.Errorf("read mark %s: %w", name, err)
	}
	return decode(v), nil
}

func setMark(ctx context.Context, q *session, name, value string) error {
	_, err := q.exec(ctx, `INSERT INTO marks (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value`, key(name), value)
	if err != nil {
		return fmt.Errorf("set mark %s: %w", name, err)
	}
	return nil
}

// blob keeps an empty value apart from an absent one.
func blob(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
