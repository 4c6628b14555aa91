package identity_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"castellan/internal/identity"
)

// target is a Proxmox realm with users.
type target struct {
	users map[string]string // user → password and code
	down  bool
	asked int
	says  string // the user id that it answers with, where not the one asked for
}

func (t *target) Login(_ context.Context, name, user, password, totp string) (string, error) {
	t.asked++
	if t.down || name != "lab" {
		return "", errors.New("connection refused")
	}
	if want, ok := t.users[user]; !ok || want != password+totp {
		return "", identity.ErrRealmRefused
	}
	if t.says != "" {
		return t.says, nil
	}
	return user, nil
}

func TestRealm(t *testing.T) {
	box := &target{users: map[string]string{"ann@pam": "pw123456", "eve@pam": "pw"}}
	r := newRig(t, func(c *identity.Config) {
		c.Realm = box
		c.Settings.Realms = []identity.RealmSettings{{Name: "hosts", Target: "lab", Realm: "pam"}}
	})
	_, err := r.AddAccount(r.ctx, root, identity.NewAccount{Name: "a", Roles: []string{"operator"}, Logins: []identity.Login{{Way: "realm", Provider: "hosts", Subject: "ann@pam"}}})
	r.ok(err)
	_, err = r.AddAccount(r.ctx, root, identity.NewAccount{Name: "b", Roles: []string{"operator"}, Logins: []identity.Login{{Way: "realm", Provider: "hosts", Subject: "ann@pam"}}})
	r.no(err, "answers to that outside identity already")
	s, err := r.RealmLogin(r.ctx, "hosts", "ann", "pw", "123456", remote)
	r.ok(err)
	if s.Principal.Person != "a" {
		t.Errorf("signed in as %+v", s.Principal)
	}
	_, err = r.RealmLogin(r.ctx, "hosts", "ann", "pw", "000000", remote)
	r.no(err, "name or the password")
	_, err = r.RealmLogin(r.ctx, "hosts", "eve", "pw", "", remote)
	r.no(err, "no account here")
	_, err = r.RealmLogin(r.ctx, "other", "ann", "pw", "123456", remote)
	r.no(err, "no realm")
	for _, name := range []string{"", "ann@pve", "ann!token", "an:n", "a\nn", "a/../b"} {
		_, err = r.RealmLogin(r.ctx, "hosts", name, "pw", "123456", remote)
		r.no(err, "no user name")
	}
	box.says = "root@pam"
	_, err = r.RealmLogin(r.ctx, "hosts", "ann", "pw", "123456", remote)
	r.no(err, "name or the password")
	box.says = ""
	// Failures lock; a target that is down does not.
	r.wait(16 * time.Minute)
	box.down = true
	for range 6 {
		_, err = r.RealmLogin(r.ctx, "hosts", "ann", "pw", "123456", remote)
		r.no(err, "could not be asked")
	}
	box.down = false
	for range 5 {
		_, err = r.RealmLogin(r.ctx, "hosts", "ann", "wrong", "", from("198.51.100.3"))
	}
	if locked(err) == 0 {
		t.Errorf("got %v", err)
	}
	asked := box.asked
	_, err = r.RealmLogin(r.ctx, "hosts", "ann", "pw", "123456", remote)
	if locked(err) == 0 || box.asked != asked {
		t.Errorf("got %v, asked %d times more", err, box.asked-asked)
	}
}
