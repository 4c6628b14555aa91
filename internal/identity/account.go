package identity

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"time"

	"castellan/internal/gate"
)

// Account is a person who may sign in. What it grants is looked up at every use, never copied into a session.
type Account struct {
	Name     string
	Display  string // as pages show it
	Roles    []string
	Until    time.Time // zero = no end
	Disabled bool
	Password bool    // it has one
	Logins   []Login // by which it is found from outside
	Created  time.Time
	By       string // who made it
	// Damaged: its row was changed in the database. It grants nothing; all but the name is empty. It can be removed.
	Damaged bool
}

// Login is a person's identity elsewhere that an account answers to. It gives no roles: the account does.
type Login struct {
	Way      string `json:"way"`      // "oidc", "realm" or "access"
	Provider string `json:"provider"` // name of the provider or realm in the settings; empty for access
	Subject  string `json:"subject,omitempty"`
	Email    string `json:"email,omitempty"` // instead of the subject; compared without regard to case
}

// The ways in which an outside identity comes.
const (
	WayOIDC   = "oidc"
	WayRealm  = "realm"
	WayAccess = "access"
)

const (
	bySubject = "subject"
	byEmail   = "email"
)

// NewAccount is what AddAccount takes. An account without a password signs in by passkey or from outside.
type NewAccount struct {
	Name     string // lower-case letters, digits, . _ - and @, at most 64
	Display  string
	Roles    []string
	Until    time.Time
	Password string
	Logins   []Login
}

// account is what is stored.
type account struct {
	UID      string    `json:"uid"` // tells it from a later account of that name
	Name     string    `json:"name"`
	Display  string    `json:"display,omitempty"`
	Roles    []string  `json:"roles,omitempty"`
	Until    time.Time `json:"until,omitzero"`
	Disabled bool      `json:"disabled,omitempty"`
	Hash     string    `json:"hash,omitempty"`
	Logins   []Login   `json:"logins,omitempty"`
	Handle   []byte    `json:"handle"` // how passkeys call it: random
	Created  time.Time `json:"created"`
	By       string    `json:"by,omitempty"`
	Record   uint64    `json:"record,omitempty"` // 1 + the index of the record of its latest change; 0 where that is not known
}

func (a *account) public() *Account {
	return &Account{Name: a.Name, Display: a.Display, Roles: slices.Clone(a.Roles), Until: a.Until, Disabled: a.Disabled,
		Password: a.Hash != "", Logins: slices.Clone(a.Logins), Created: a.Created, By: a.By}
}

// active says why the account may not be used now; nil when it may.
func (a *account) active(now time.Time) *gate.Error {
	switch {
	case a.Disabled:
		return gate.Fail(gate.ErrDenied, "An administrator enables it.", "the account %s is disabled", a.Name)
	case !a.Until.IsZero() && !now.Before(a.Until):
		return gate.Fail(gate.ErrDenied, "An administrator extends it.", "the access of %s ended at %s", a.Name, a.Until.UTC().Format(time.RFC3339))
	}
	return nil
}

// weighty says that the roles reach beyond one's own plans.
func weighty(roles []string) bool {
	return slices.Contains(roles, gate.RoleApprover) || slices.Contains(roles, gate.RoleAdministrator)
}

// isName: what an account may be called.
func isName(s string) bool {
	return s != "" && len(s) <= 64 && !strings.ContainsAny(s[:1], "-_.@") &&
		strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-_.@") == ""
}

// typed is a name as a person types it.
func typed(name string) string { return strings.ToLower(strings.TrimSpace(name)) }

// account finds an account; nil when there is none.
func (i *Identity) account(tx gate.Tx, name string) (*gate.Doc, *account, error) {
	if !isName(name) {
		return nil, nil, nil
	}
	a := new(account)
	d, err := i.get(tx, kindAccount, name, a)
	if err != nil || d == nil {
		return nil, nil, err
	}
	if a.Name != name {
		return nil, nil, fmt.Errorf("read account: %w", errForged)
	}
	return d, a, i.current(tx, a)
}

// Accounts lists the people by name, damaged rows included.
func (i *Identity) Accounts(ctx context.Context) ([]*Account, error) {
	var out []*Account
	err := i.view(ctx, "list accounts", func(tx gate.Tx) error {
		out = nil
		return i.each(tx, kindAccount, "", func(d *gate.Doc) error {
			a := new(account)
			err := i.open(d, a)
			if err == nil {
				err = i.current(tx, a)
			}
			if err != nil {
				i.damaged(d, err)
				out = append(out, &Account{Name: clip(d.ID, 64), Damaged: true})
				return nil
			}
			out = append(out, a.public())
			return nil
		})
	})
	return out, err
}

// Account finds one.
func (i *Identity) Account(ctx context.Context, name string) (*Account, error) {
	var out *Account
	err := i.view(ctx, "read account", func(tx gate.Tx) error {
		_, a, err := i.account(tx, name)
		if err != nil {
			return err
		}
		if a == nil {
			return noAccount(name)
		}
		out = a.public()
		return nil
	})
	return out, err
}

func noAccount(name string) error {
	return gate.Fail(gate.ErrNotFound, "castellan people list shows the names.", "there is no account %q", clip(name, 64))
}

// AddAccount makes an account. Only an administrator may, or whoever holds this machine's account.
func (i *Identity) AddAccount(ctx context.Context, who gate.Principal, n NewAccount) (*Account, error) {
	n.Name = typed(n.Name)
	if !isName(n.Name) {
		return nil, gate.Fail(gate.ErrInvalid, "", "the name %q is not made of lower-case letters, digits, . _ - and @ (at most 64)", clip(n.Name, 64))
	}
	a := &account{UID: rand.Text(), Name: n.Name, Display: clip(n.Display, 120), Until: n.Until.UTC(), Logins: slices.Clone(n.Logins), Handle: make([]byte, 32), By: who.Person}
	if n.Until.IsZero() {
		a.Until = time.Time{}
	}
	_, _ = rand.Read(a.Handle) // never fails: crypto/rand ends the process instead
	var err error
	if a.Roles, err = i.roles(n.Roles); err != nil {
		return nil, err
	}
	if err := i.goodLogins(a.Logins); err != nil {
		return nil, err
	}
	if n.Password != "" {
		if a.Hash, err = i.newHash(ctx, a.Name, n.Password); err != nil {
			return nil, err
		}
	}
	var notices []Notice
	err = i.update(ctx, "add account", func(tx gate.Tx) (error, error) {
		if err := i.mayManage(tx, who); err != nil {
			return nil, err
		}
		if err := i.mayRaise(tx, who, a.Name, weighty(a.Roles)); err != nil {
			return nil, err
		}
		d, err := tx.Doc(kindAccount, a.Name)
		if err == nil && d != nil {
			return nil, gate.Fail(gate.ErrInvalid, "Choose another name, or change that account.", "there is an account %q already", a.Name)
		}
		if err := i.loginsFree(tx, a.Name, a.Logins); err != nil {
			return nil, err
		}
		a.Created = i.now()
		if a.Record, err = i.appendChange(tx, event{name: "account_added", status: "ok", person: a.Name, by: who, marks: accountMarks(a)}); err != nil {
			return nil, err
		}
		err = i.put(tx, &gate.Doc{Kind: kindAccount, ID: a.Name}, a)
		if err == nil && weighty(a.Roles) {
			notices, err = i.notices(tx, Notice{Kind: "role_granted", Person: a.Name, By: who.Person})
		}
		return nil, err
	})
	if err != nil {
		return nil, err
	}
	i.tell(notices)
	return a.public(), nil
}

func accountMarks(a *account) map[string]string {
	m := map[string]string{"roles": strings.Join(a.Roles, " ")}
	if !a.Until.IsZero() {
		m["until"] = a.Until.Format(time.RFC3339)
	}
	return m
}

// roles checks role names; the result is sorted and holds each once.
func (i *Identity) roles(roles []string) ([]string, error) {
	out := slices.Clone(roles)
	for _, r := range out {
		if !isRole(r) || !slices.Contains(gate.Roles(), r) && !slices.Contains(i.c.Roles, r) {
			return nil, gate.Fail(gate.ErrInvalid, "", "%q is not a role; known are %s", clip(r, 64), strings.Join(append(gate.Roles(), i.c.Roles...), ", "))
		}
	}
	if !limited(out) {
		return nil, gate.Fail(gate.ErrInvalid, "Give viewer to someone who only looks.", "an account needs at least one of the roles %s", strings.Join(gate.Roles(), ", "))
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// change loads an account, lets f alter it, and stores it with its record. end says that its sessions end.
func (i *Identity) change(ctx context.Context, who gate.Principal, name string, e event, f func(tx gate.Tx, a *account) (end bool, notices []Notice, err error)) error {
	var notices []Notice
	err := i.update(ctx, "change account", func(tx gate.Tx) (error, error) {
		notices = nil
		if err := i.mayManage(tx, who); err != nil {
			return nil, err
		}
		d, a, err := i.account(tx, name)
		if err != nil {
			return nil, err
		}
		if a == nil {
			return nil, noAccount(name)
		}
		end, ns, err := f(tx, a)
		if err != nil {
			return nil, err
		}
		e.person, e.by, e.status, e.marks = name, who, "ok", accountMarks(a)
		if a.Record, err = i.appendChange(tx, e); err != nil {
			return nil, err
		}
		if err := i.put(tx, d, a); err != nil {
			return nil, err
		}
		if end {
			if err := i.endAll(tx, name, ""); err != nil {
				return nil, err
			}
		}
		notices, err = i.notices(tx, ns...)
		return nil, err
	})
	if err == nil {
		i.tell(notices)
	}
	return err
}

// SetRoles gives an account these roles and this end (zero: none). Sessions have them at once.
func (i *Identity) SetRoles(ctx context.Context, who gate.Principal, name string, roles []string, until time.Time) error {
	roles, err := i.roles(roles)
	if err != nil {
		return err
	}
	if !until.IsZero() {
		until = until.UTC()
	}
	return i.change(ctx, who, name, event{name: "roles_set"}, func(tx gate.Tx, a *account) (bool, []Notice, error) {
		more := slices.ContainsFunc(roles, func(r string) bool { return !slices.Contains(a.Roles, r) })
		longer := !a.Until.IsZero() && (until.IsZero() || until.After(a.Until))
		if more || longer {
			if err := i.mayRaise(tx, who, name, weighty(roles)); err != nil {
				return false, nil, err
			}
		}
		var ns []Notice
		if weighty(roles) && (more || longer) {
			ns = append(ns, Notice{Kind: "role_granted", Person: name, By: who.Person})
		}
		a.Roles, a.Until = roles, until
		return false, ns, nil
	})
}

// Disable closes an account and ends its sessions, or opens it again.
func (i *Identity) Disable(ctx context.Context, who gate.Principal, name string, disabled bool) error {
	return i.change(ctx, who, name, event{name: "account_disabled"}, func(tx gate.Tx, a *account) (bool, []Notice, error) {
		if !disabled {
			if err := i.mayRaise(tx, who, name, weighty(a.Roles)); err != nil {
				return false, nil, err
			}
		}
		a.Disabled = disabled
		return disabled, nil, nil
	})
}

// SetPassword gives an account a new password, or none when it is empty, and ends its sessions. A person changes their own
// with ChangePassword.
func (i *Identity) SetPassword(ctx context.Context, who gate.Principal, name, password string) error {
	hash := ""
	if password != "" {
		var err error
		if hash, err = i.newHash(ctx, name, password); err != nil {
			return err
		}
	}
	return i.change(ctx, who, name, event{name: "password_set"}, func(tx gate.Tx, a *account) (bool, []Notice, error) {
		if hash != "" {
			if err := i.mayRaise(tx, who, name, weighty(a.Roles)); err != nil {
				return false, nil, err
			}
		}
		a.Hash = hash
		var ns []Notice
		if weighty(a.Roles) {
			ns = append(ns, Notice{Kind: "password_set", Person: name, By: who.Person})
		}
		return true, ns, i.clear(tx, accountBucket(methodPassword, name))
	})
}

// SetLogins says by which outside identities an account is found.
func (i *Identity) SetLogins(ctx context.Context, who gate.Principal, name string, logins []Login) error {
	if err := i.goodLogins(logins); err != nil {
		return err
	}
	return i.change(ctx, who, name, event{name: "logins_set"}, func(tx gate.Tx, a *account) (bool, []Notice, error) {
		if err := i.loginsFree(tx, name, logins); err != nil {
			return false, nil, err
		}
		added := slices.ContainsFunc(logins, func(l Login) bool { return !slices.Contains(a.Logins, l) })
		if added {
			if err := i.mayRaise(tx, who, name, weighty(a.Roles)); err != nil {
				return false, nil, err
			}
		}
		a.Logins = slices.Clone(logins)
		return true, nil, nil
	})
}

// RemoveAccount removes an account with its sessions, codes and passkeys.
func (i *Identity) RemoveAccount(ctx context.Context, who gate.Principal, name string) error {
	var notices []Notice
	err := i.update(ctx, "remove account", func(tx gate.Tx) (error, error) {
		if err := i.mayManage(tx, who); err != nil {
			return nil, err
		}
		// A row that was tampered with can still be removed: that takes access away.
		if _, err := tx.Doc(kindAccount, name); err != nil || !isName(name) {
			return nil, noAccount(name)
		}
		if err := i.endAll(tx, name, ""); err != nil {
			return nil, err
		}
		if err := i.dropCodes(tx, name); err != nil {
			return nil, err
		}
		ns, err := i.dropAllCredentials(tx, who, name)
		if err != nil {
			return nil, err
		}
		if err := tx.DropDoc(kindAccount, name); err != nil {
			return nil, err
		}
		if _, err := i.append(tx, event{name: "account_removed", status: "ok", person: name, by: who}); err != nil {
			return nil, err
		}
		notices, err = i.notices(tx, ns...)
		return nil, err
	})
	if err == nil {
		i.tell(notices)
	}
	return err
}
