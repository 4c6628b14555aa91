package identity

import (
	"context"
	"errors"
	"strings"

	"castellan/internal/gate"
)

// Realm logs a person in at a Proxmox target, to see whether the password is right; it keeps no ticket. userid is
// USER@REALM as the target knows it. An error that is ErrRealmRefused says that the target refused the credentials; any
// other that it could not be asked.
type Realm interface {
	Login(ctx context.Context, target, user, password, totp string) (userid string, err error)
}

const realmSlots = 4

// ErrRealmRefused: the target says that name, password or second factor are wrong.
var ErrRealmRefused = errors.New("the target refused the credentials")

// RealmLogin signs in with the password of a Proxmox realm of the settings (and, where the user has one there, the code of
// a second factor). The account that names this user gives the roles.
func (i *Identity) RealmLogin(ctx context.Context, realm, name, password, totp string, from Remote) (Session, error) {
	var set RealmSettings
	for _, r := range i.set.Realms {
		if r.Name == realm {
			set = r
		}
	}
	if set.Name == "" || i.c.Realm == nil {
		return Session{}, gate.Fail(gate.ErrNotFound, "The sign-in page lists them.", "there is no realm %q to sign in with", clip(realm, 64))
	}
	name = strings.TrimSpace(name)
	user := name + "@" + set.Realm
	if name == "" || len(name) > 128 || strings.ContainsAny(name, "@!:/\\ \t\r\n\x00") || clip(name, 128) != name {
		return Session{}, gate.Fail(gate.ErrInvalid, "Give the name without its realm.", "this is no user name of a realm")
	}
	if password == "" || len(password) > maxPassword || len(totp) > 64 {
		return Session{}, wrong()
	}
	way := "realm/" + realm
	buckets := []bucket{accountBucket(way, strings.ToLower(name)), addressBucket(methodPassword, from.IP)}
	if l, err := i.checkLocked(ctx, buckets...); l != nil || err != nil {
		return Session{}, lockedOr(l, err)
	}
	select {
	case i.realms <- struct{}{}:
		defer func() { <-i.realms }()
	case <-ctx.Done():
		return Session{}, storeDown("sign in", ctx.Err())
	}
	userid, err := i.c.Realm.Login(ctx, set.Target, user, password, totp)
	if err != nil && !errors.Is(err, ErrRealmRefused) {
		return Session{}, &gate.Error{Kind: gate.ErrUnavailable, Target: set.Target, Message: "the target could not be asked whether the password is right", Changed: "nothing",
			Hint: "Try again later, or sign in otherwise.", Cause: err}
	}
	e := event{from: from, method: WayRealm, claimed: user, marks: map[string]string{"provider": realm}}
	var out Session
	uerr := i.update(ctx, "sign in", func(tx gate.Tx) (error, error) {
		if l, err := i.locked(tx, buckets...); l != nil || err != nil {
			if err != nil {
				return nil, err
			}
			return l, nil
		}
		if err != nil || userid != user {
			return i.refuse(tx, nil, e, wrong(), buckets...)
		}
		if err := i.clear(tx, buckets[0]); err != nil {
			return nil, err
		}
		var refusal error
		var terr error
		out, refusal, terr = i.letOutside(tx, Login{Way: WayRealm, Provider: realm, Subject: userid}, session{Method: WayRealm, Strength: gate.StrengthSession}, e)
		return refusal, terr
	})
	if uerr != nil {
		return Session{}, uerr
	}
	return out, nil
}
