package identity

import (
	"context"

	"castellan/internal/gate"
)

// How people sign in.
const (
	methodPassword = "password"
	methodPasskey  = "passkey"
)

// wrong is the one answer to all that does not fit, so that it does not tell which.
func wrong() error {
	return gate.Fail(gate.ErrDenied, "Check both and try again; after several failures the account and the address are locked for a while.", "the name or the password is wrong")
}

// Password signs in with a local account's password. A *Locked error says for how long nothing will be checked.
func (i *Identity) Password(ctx context.Context, name, password string, from Remote) (Session, error) {
	name = typed(name)
	buckets := []bucket{accountBucket(methodPassword, nameBucket(name)), addressBucket(methodPassword, from.IP)}
	var hash string
	look := func() error {
		var refusal error
		err := i.view(ctx, "sign in", func(tx gate.Tx) error {
			hash, refusal = "", nil
			l, err := i.locked(tx, buckets...)
			if err != nil {
				return err
			}
			if l != nil {
				refusal = l
				return nil
			}
			_, a, err := i.account(tx, name)
			if a != nil {
				hash = a.Hash
			}
			return err
		})
		if err == nil && refusal != nil {
			i.c.Store.Observe(i.record(event{name: "signin_refused", status: "locked", from: from, method: methodPassword, claimed: name}))
		}
		return firstOf(err, refusal)
	}
	if err := look(); err != nil {
		return Session{}, err
	}
	end, err := i.turn(ctx)
	if err != nil {
		return Session{}, storeDown("sign in", err)
	}
	// Whoever sends many at once is locked by the first of them; checking the rest would take everybody's turns.
	err = look()
	var ok, again bool
	if err == nil {
		if ok, again, err = i.checkPassword(hash, password); err != nil {
			err = storeDown("sign in", err)
		}
	}
	end()
	if err != nil {
		return Session{}, err
	}
	fresh := ""
	if ok && again {
		if fresh, err = i.cost.hash(password); err != nil {
			return Session{}, err
		}
	}
	var out Session
	err = i.update(ctx, "sign in", func(tx gate.Tx) (error, error) {
		// Other attempts may have ended meanwhile: what is locked by now is refused, right or wrong.
		l, err := i.locked(tx, buckets...)
		if err != nil {
			return nil, err
		}
		if l != nil {
			return l, nil
		}
		d, a, err := i.account(tx, name)
		if err != nil {
			return nil, err
		}
		if !ok || a == nil || a.Hash != hash {
			return i.refuse(tx, a, event{from: from, method: methodPassword, claimed: name}, wrong(), buckets...)
		}
		if e := a.active(i.now()); e != nil {
			return i.refuse(tx, a, event{from: from, method: methodPassword, claimed: name, why: e.Message}, e, buckets...)
		}
		if err := i.clear(tx, buckets[0]); err != nil {
			return nil, err
		}
		if fresh != "" {
			a.Hash = fresh
			if err := i.put(tx, d, a); err != nil {
				return nil, err
			}
		}
		out, err = i.let(tx, a, session{Method: methodPassword, Strength: gate.StrengthSession}, from)
		return nil, err
	})
	if err != nil {
		return Session{}, err
	}
	return out, nil
}

// nameBucket keeps names that cannot exist from filling the store.
func nameBucket(name string) string {
	if !isName(name) {
		return "?"
	}
	return name
}

// let starts a session and records the sign-in.
func (i *Identity) let(tx gate.Tx, a *account, s session, from Remote) (Session, error) {
	out, err := i.start(tx, a, s, from)
	if err != nil {
		return Session{}, err
	}
	_, err = i.append(tx, event{name: "signin_ok", status: "ok", person: a.Name, from: from, method: s.Method, credential: s.Key})
	return out, err
}

// refuse counts and records a failure; the transaction goes through, and the caller hears no.
func (i *Identity) refuse(tx gate.Tx, a *account, e event, no error, buckets ...bucket) (refusal, err error) {
	e.name, e.status = "signin_fail", "denied"
	if a != nil {
		e.person, e.claimed = a.Name, ""
	}
	if _, err := i.append(tx, e); err != nil {
		return nil, err
	}
	locked, err := i.failed(tx, buckets...)
	if err != nil {
		return nil, err
	}
	for _, b := range locked {
		e.name, e.status, e.why = "signin_lockout", "locked", "too many failures for "+b.what
		if _, err := i.append(tx, e); err != nil {
			return nil, err
		}
	}
	if len(locked) > 0 {
		l, err := i.locked(tx, locked...)
		if err != nil {
			return nil, err
		}
		if l != nil {
			return l, nil
		}
	}
	return no, nil
}

// ChangePassword gives the person of a session a new password; all their other sessions end.
func (i *Identity) ChangePassword(ctx context.Context, token, old, password string, from Remote) error {
	var a account
	var refusal error
	address, mine := addressBucket(methodPassword, from.IP), bucket{}
	err := i.view(ctx, "change password", func(tx gate.Tx) error {
		_, _, found, err := i.session(tx, token)
		if err != nil {
			return err
		}
		a = *found
		// Guessing the old password from a stolen session counts apart: it cannot lock the person out of signing in.
		mine = accountBucket("change", a.Name)
		l, err := i.locked(tx, mine, address)
		if l != nil {
			refusal = l
		}
		return err
	})
	if err != nil || refusal != nil {
		return firstOf(err, refusal)
	}
	if a.Hash == "" {
		return gate.Fail(gate.ErrDenied, "An administrator sets the first password.", "the account %s has no password", a.Name)
	}
	end, err := i.turn(ctx)
	if err != nil {
		return storeDown("change password", err)
	}
	ok, _, err := i.checkPassword(a.Hash, old)
	end()
	if err != nil {
		return storeDown("change password", err)
	}
	hash := ""
	if ok {
		if hash, err = i.newHash(ctx, a.Name, password); err != nil {
			return err
		}
	}
	return i.update(ctx, "change password", func(tx gate.Tx) (error, error) {
		if l, err := i.locked(tx, mine, address); l != nil || err != nil {
			if l != nil {
				return l, err
			}
			return nil, err
		}
		_, _, now, err := i.session(tx, token)
		if err != nil {
			return nil, err
		}
		if !ok || now.Hash != a.Hash || now.UID != a.UID {
			return i.refuse(tx, now, event{from: from, method: methodPassword, why: "the old password was wrong"}, gate.Fail(gate.ErrDenied, "", "the old password is wrong"), mine, address)
		}
		d, stored, err := i.account(tx, a.Name)
		if err != nil {
			return nil, err
		}
		stored.Hash = hash
		if stored.Record, err = i.appendChange(tx, event{name: "password_changed", status: "ok", person: a.Name, from: from}); err != nil {
			return nil, err
		}
		if err := i.put(tx, d, stored); err != nil {
			return nil, err
		}
		if err := i.endAll(tx, a.Name, hashSession(token)); err != nil {
			return nil, err
		}
		return nil, i.clear(tx, mine)
	})
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
