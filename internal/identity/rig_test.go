package identity_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"castellan/internal/gate"
	"castellan/internal/identity"
	"castellan/internal/ledger"
	"castellan/internal/seal"
	"castellan/internal/store"

	_ "modernc.org/sqlite"
)

// rig is an Identity on a real store, with a clock that tests move.
type rig struct {
	*identity.Identity
	t     testing.TB
	ctx   context.Context
	file  string
	store *store.Store
	keys  *seal.Keys
	conf  identity.Config

	mu      sync.Mutex
	at      time.Time
	notices []identity.Notice
}

var (
	root   = gate.Principal{Person: "root", WayIn: "cli", Strength: gate.StrengthAccount}
	remote = identity.Remote{IP: netip.MustParseAddr("192.0.2.7"), UserAgent: "browser/1"}
)

const secret = "a long pass phrase of ann"

func newRig(t testing.TB, change ...func(*identity.Config)) *rig {
	t.Helper()
	dir := t.TempDir()
	r := &rig{t: t, ctx: t.Context(), file: filepath.Join(dir, "own", "state.db"), at: time.Date(2027, 3, 1, 9, 0, 0, 0, time.UTC)}
	var err error
	if r.keys, err = seal.CreateKeys(filepath.Join(dir, "keys")); err != nil {
		t.Fatal(err)
	}
	if r.store, err = store.Open(r.ctx, store.Config{URL: r.file, Signer: r.keys.Ledger(), Clock: r.now}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.store.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	r.conf = identity.Config{Store: r.store, Keys: r.keys, PublicURL: origin, Clock: r.now, Tell: r.tell}
	for _, f := range change {
		f(&r.conf)
	}
	r.Identity = r.another()
	return r
}

// another is the Identity of another process on the same store.
func (r *rig) another() *identity.Identity {
	r.t.Helper()
	i, err := identity.New(r.conf)
	if err != nil {
		r.t.Fatal(err)
	}
	i.Cheap()
	return i
}

func (r *rig) now() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.at
}

func (r *rig) wait(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at = r.at.Add(d)
}

func (r *rig) tell(n identity.Notice) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notices = append(r.notices, n)
}

func (r *rig) told() (kinds []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range r.notices {
		kinds = append(kinds, n.Kind)
	}
	return kinds
}

func (r *rig) ok(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// no wants a refusal that says this.
func (r *rig) no(err error, says string) {
	r.t.Helper()
	var e *gate.Error
	if err == nil || !strings.Contains(err.Error(), says) || !errors.As(err, &e) {
		r.t.Fatalf("got %v, want a refusal with %q", err, says)
	}
}

// account makes one with a password.
func (r *rig) account(name string, roles ...string) {
	r.t.Helper()
	_, err := r.AddAccount(r.ctx, root, identity.NewAccount{Name: name, Roles: roles, Password: secret})
	r.ok(err)
}

func (r *rig) signIn(name string) string {
	r.t.Helper()
	s, err := r.Password(r.ctx, name, secret, remote)
	r.ok(err)
	return s.Token
}

// enrol gives a person a passkey by a code of root.
func (r *rig) enrol(name string) *key {
	r.t.Helper()
	k := newKey(r.t, "ES256")
	token := r.signIn(name)
	code, err := r.EnrolmentCode(r.ctx, root, name)
	r.ok(err)
	o, ticket, err := r.EnrolStart(r.ctx, token, code)
	r.ok(err)
	r.ok(r.EnrolFinish(r.ctx, token, ticket, k.create(o), "key of "+name))
	return k
}

// passkeySignIn signs in with a passkey.
func (r *rig) passkeySignIn(k *key) (identity.Session, error) {
	r.t.Helper()
	o, ticket, err := r.PasskeyStart(r.ctx)
	r.ok(err)
	return r.PasskeyFinish(r.ctx, ticket, k.get(o), remote)
}

func challenge() []byte {
	b := make([]byte, 32)
	_, _ = rand.Read(b)
	return b
}

// records gives "op status" of each record of the write tree, oldest first.
func (r *rig) records(op string) (out []ledger.Header) {
	r.t.Helper()
	for n := uint64(0); ; n++ {
		p, err := r.store.Position(r.ctx, n)
		if errors.Is(err, gate.ErrStoreNotFound) {
			return out
		}
		r.ok(err)
		h, err := ledger.ParseHeader([]byte(p.Leaf))
		r.ok(err)
		if op == "" || h.Op == op {
			out = append(out, h)
		}
	}
}

// sql changes the database by hand, as somebody would who has no keys.
func (r *rig) sql(query string, args ...any) {
	r.t.Helper()
	db, err := sql.Open("sqlite", r.file)
	r.ok(err)
	defer db.Close()
	res, err := db.Exec(query, args...)
	r.ok(err)
	if n, err := res.RowsAffected(); err != nil || n == 0 {
		r.t.Fatalf("%s: changed %d rows (%v)", query, n, err)
	}
}

// text asks the database for one value.
func (r *rig) text(query string) (s string) {
	r.t.Helper()
	db, err := sql.Open("sqlite", r.file)
	r.ok(err)
	defer db.Close()
	r.ok(db.QueryRow(query).Scan(&s))
	return s
}

// newUsual hashes passwords as in earnest.
func newUsual(r *rig) (*identity.Identity, error) { return identity.New(r.conf) }

func annWithPassword() identity.NewAccount {
	return identity.NewAccount{Name: "ann", Roles: []string{"operator"}, Password: secret}
}

type ctx = context.Context
