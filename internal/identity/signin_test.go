package identity_test

import (
	"errors"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"castellan/internal/gate"
	"castellan/internal/identity"
	"castellan/internal/seal"
)

func from(ip string) identity.Remote {
	return identity.Remote{IP: netip.MustParseAddr(ip), UserAgent: "b"}
}

// locked says for how long an error locks; 0 when it does not.
func locked(err error) time.Duration {
	var l *identity.Locked
	if errors.As(err, &l) {
		return l.RetryAfter
	}
	return 0
}

func TestPassword(t *testing.T) {
	r := newRig(t)
	r.account("ann", "operator")
	_, err := r.AddAccount(r.ctx, root, identity.NewAccount{Name: "keyless", Roles: []string{"viewer"}})
	r.ok(err)
	s, err := r.Password(r.ctx, " Ann ", secret, remote)
	r.ok(err)
	if p := s.Principal; p.Person != "ann" || p.Strength != gate.StrengthSession || p.WayIn != "console" || len(s.Token) < 20 || !s.Expires.Equal(r.now().Add(12*time.Hour)) {
		t.Errorf("signed in as %+v until %s", p, s.Expires)
	}
	other, err := r.Password(r.ctx, "ann", secret, remote)
	r.ok(err)
	if other.Token == s.Token {
		t.Error("two sign-ins have one token")
	}
	var said []string
	for n, try := range [][2]string{{"ann", "wrong"}, {"nobody", secret}, {"keyless", ""}, {"keyless", secret}, {"", ""}, {"ann|root", secret}, {"ann", secret + " "}, {"ann", strings.Repeat("x", 1<<20)}} {
		_, err := r.Password(r.ctx, try[0], try[1], from("192.0.2."+string(rune('1'+n))))
		r.no(err, "name or the password")
		said = append(said, err.Error())
	}
	slices.Sort(said)
	if len(slices.Compact(said)) != 1 {
		t.Errorf("the answers differ: %q", said)
	}
	rec := r.records("signin_fail")
	if len(rec) != 8 || !strings.Contains(string(rec[0].Data), `"person":"ann"`) || strings.Contains(string(rec[1].Data), "nobody") || !strings.Contains(string(rec[1].Data), `"ip":"192.0.2.2"`) {
		t.Errorf("records %+v", rec)
	}
	for _, h := range r.records("") {
		if strings.Contains(string(h.Data)+h.Target+h.Actor, s.Token) {
			t.Error("a token stands in the ledger")
		}
	}
}

func TestNewRefusesWithoutStoreOrKeys(t *testing.T) {
	r := newRig(t)
	for _, c := range []identity.Config{{Keys: r.keys, PublicURL: origin}, {Store: r.store, PublicURL: origin}, {Store: r.store, Keys: r.keys}, {Store: r.store, Keys: r.keys, PublicURL: "castellan.example"},
		{Store: r.store, Keys: r.keys, PublicURL: origin, Settings: identity.Settings{LockAfter: -1}}} {
		if _, err := identity.New(c); err == nil {
			t.Errorf("made of %+v", c)
		}
	}
}

// TestOtherKeys: what another installation's keys made is nothing here.
func TestOtherKeys(t *testing.T) {
	r := newRig(t)
	r.account("ann", "administrator")
	token := r.signIn("ann")
	keys, err := seal.CreateKeys(filepath.Join(t.TempDir(), "keys"))
	r.ok(err)
	r.conf.Keys = keys
	other := r.another()
	_, err = other.Password(r.ctx, "ann", secret, remote)
	r.no(err, "does not answer as it should")
	_, err = other.Session(r.ctx, token)
	r.no(err, "does not answer as it should")
}

func TestLockOut(t *testing.T) {
	r := newRig(t)
	r.account("ann", "operator")
	r.account("bob", "operator")
	// Per account: from many addresses, in two processes.
	two := r.another()
	for n := range 4 {
		i := []*identity.Identity{r.Identity, two}[n%2]
		_, err := i.Password(r.ctx, "ann", "wrong", from("198.51.100."+string(rune('1'+n))))
		if err == nil || locked(err) > 0 {
			t.Fatalf("failure %d: %v", n+1, err)
		}
		r.wait(time.Minute)
	}
	_, err := two.Password(r.ctx, "ann", "wrong", from("198.51.100.9"))
	if d := locked(err); d != 15*time.Minute {
		t.Fatalf("the fifth failure: %v (%s)", err, d)
	}
	r.wait(time.Minute)
	_, err = r.Password(r.ctx, "ann", secret, from("198.51.100.77"))
	if d := locked(err); d != 14*time.Minute {
		t.Fatalf("the right password while locked: %v (%s)", err, d)
	}
	if _, err := r.Password(r.ctx, "bob", secret, from("198.51.100.77")); err != nil {
		t.Errorf("another account: %v", err)
	}
	if n := len(r.records("signin_lockout")); n != 1 {
		t.Errorf("%d records of the lock-out", n)
	}
	r.wait(14 * time.Minute)
	if _, err := r.Password(r.ctx, "ann", secret, from("198.51.100.77")); err != nil {
		t.Errorf("after the lock: %v", err)
	}
	// Per address: over many names, known and unknown. IPv6 counts by network.
	for n, name := range []string{"bob", "x1", "x2", "", "x|3"} {
		_, err = r.Password(r.ctx, name, "wrong", from("2001:db8:1:2::"+string(rune('1'+n))))
		if got := locked(err) > 0; got != (n == 4) {
			t.Errorf("failure %d of the address: %v", n+1, err)
		}
	}
	_, err = r.Password(r.ctx, "bob", secret, from("2001:db8:1:2:ffff::1"))
	if locked(err) == 0 {
		t.Errorf("the same network: %v", err)
	}
	if _, err = r.Password(r.ctx, "bob", secret, from("2001:db8:1:3::1")); err != nil {
		t.Errorf("another network: %v", err)
	}
}

func TestSuccessClearsTheAccountOnly(t *testing.T) {
	r := newRig(t)
	r.account("ann", "operator")
	for n := range 4 {
		_, err := r.Password(r.ctx, "ann", "wrong", from("198.51.100."+string(rune('1'+n))))
		r.no(err, "name or the password")
	}
	r.wait(time.Second)
	_, err := r.Password(r.ctx, "ann", secret, remote)
	r.ok(err)
	r.wait(time.Second)
	for range 4 { // four more are no lock-out
		_, err := r.Password(r.ctx, "ann", "wrong", from("198.51.100.9"))
		r.no(err, "name or the password")
	}
	r.wait(time.Second)
	_, err = r.Password(r.ctx, "ann", secret, from("198.51.100.9"))
	r.ok(err)
	// One's own success does not clear the address for guesses at others.
	_, err = r.Password(r.ctx, "bob", "wrong", from("198.51.100.9"))
	if locked(err) == 0 {
		t.Errorf("the address: %v", err)
	}
}

// TestManyAtOnce: attempts that run together do not get more guesses.
func TestManyAtOnce(t *testing.T) {
	r := newRig(t)
	r.account("ann", "operator")
	var wg sync.WaitGroup
	var mu sync.Mutex
	wrong := 0
	for n := range 40 {
		wg.Go(func() {
			_, err := r.Password(r.ctx, "ann", "wrong", from("198.51.100."+string(rune('1'+n%9))))
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				t.Error("a wrong password signed in")
			}
			if locked(err) == 0 {
				wrong++
			}
		})
	}
	wg.Wait()
	if wrong != 4 || len(r.records("signin_fail")) != 5 {
		t.Errorf("%d attempts were judged, %d recorded", wrong, len(r.records("signin_fail")))
	}
}

func TestLockedAccountStillSignsInByPasskey(t *testing.T) {
	r := newRig(t)
	r.account("ann", "approver")
	k := r.enrol("ann")
	for range 5 {
		_, err := r.Password(r.ctx, "ann", "wrong", remote)
		if err == nil {
			t.Fatal("a wrong password signed in")
		}
	}
	_, err := r.Password(r.ctx, "ann", secret, remote)
	if locked(err) == 0 {
		t.Fatalf("not locked: %v", err)
	}
	_, err = r.passkeySignIn(k) // from that very address
	r.ok(err)
	// Passkeys that fail lock the address for passkeys.
	k.flags = present
	for range 5 {
		_, err = r.passkeySignIn(k)
	}
	if locked(err) == 0 {
		t.Errorf("passkeys that fail: %v", err)
	}
}

func TestSession(t *testing.T) {
	r := newRig(t)
	r.account("ann", "operator")
	token := r.signIn("ann")
	check := func(what string, live bool) {
		t.Helper()
		_, err := r.another().Session(r.ctx, token)
		if live {
			r.ok(err)
		} else {
			r.no(err, "")
		}
	}
	check("at once", true)
	for range 20 { // used, it lives on
		r.wait(29 * time.Minute)
		check("used", true)
	}
	r.wait(30 * time.Minute)
	check("idle", false)

	token = r.signIn("ann")
	for range 25 {
		r.wait(28 * time.Minute)
		check("used", true)
	}
	r.wait(20*time.Minute + time.Second)
	check("after twelve hours", false)

	// What the account has now counts.
	token = r.signIn("ann")
	r.ok(r.SetRoles(r.ctx, root, "ann", []string{"viewer", "viewer"}, r.now().Add(time.Minute)))
	p, err := r.Session(r.ctx, token)
	r.ok(err)
	if !slices.Equal(p.Roles, []string{"viewer"}) || !p.Until.Equal(r.now().Add(time.Minute)) {
		t.Errorf("now %+v", p)
	}
	r.wait(time.Minute)
	_, err = r.Session(r.ctx, token)
	r.no(err, "ended")
	_, err = r.Password(r.ctx, "ann", secret, remote)
	r.no(err, "ended")
	_, err = r.Standing(r.ctx, p)
	r.no(err, "ended")
	r.ok(r.SetRoles(r.ctx, root, "ann", []string{"operator"}, time.Time{}))
	check("extended", true)

	// Signing out ends one, disabling all, and so does a new password.
	other := r.signIn("ann")
	r.ok(r.SignOut(r.ctx, token))
	r.ok(r.SignOut(r.ctx, token))
	check("signed out", false)
	token = other
	check("the other", true)
	r.ok(r.Disable(r.ctx, root, "ann", true))
	_, err = r.Session(r.ctx, token)
	r.no(err, "")
	r.ok(r.Disable(r.ctx, root, "ann", false))
	check("enabled again", false)
	token = r.signIn("ann")
	r.ok(r.SetPassword(r.ctx, root, "ann", "another long pass phrase"))
	check("new password", false)
	for _, bad := range []string{"", "x", strings.Repeat("x", 1<<20)} {
		_, err := r.Session(r.ctx, bad)
		r.no(err, "nobody is signed in")
	}
}

func TestSessionsAreListedAndEnded(t *testing.T) {
	r := newRig(t)
	r.account("ann", "operator")
	r.account("bob", "operator")
	for range 22 {
		r.signIn("ann")
		r.wait(time.Second)
	}
	token := r.signIn("bob")
	list, err := r.Sessions(r.ctx, "ann")
	r.ok(err)
	if len(list) != 20 || list[0].IP != "192.0.2.7" || list[0].UserAgent != "browser/1" || !list[0].Created.After(list[19].Created) {
		t.Errorf("%d sessions, first %+v", len(list), list[0])
	}
	bob, err := r.Session(r.ctx, token)
	r.ok(err)
	r.no(r.EndSession(r.ctx, bob, list[0].ID), "only an administrator")
	mine, err := r.Sessions(r.ctx, "bob")
	r.ok(err)
	bob.Agent = "claude" // an agent acting for him ends nothing
	r.no(r.EndSession(r.ctx, bob, mine[0].ID), "only an administrator")
	bob.Agent = ""
	r.ok(r.EndSession(r.ctx, bob, mine[0].ID))
	_, err = r.Session(r.ctx, token)
	r.no(err, "nobody is signed in")
	r.ok(r.EndSession(r.ctx, root, list[0].ID))
	r.no(r.EndSession(r.ctx, root, list[0].ID), "no such session")
	r.no(r.EndSessions(r.ctx, bob, "ann"), "only an administrator")
	r.no(r.EndSessions(r.ctx, gate.Principal{Person: "ann", Strength: gate.StrengthToken}, "ann"), "only an administrator")
	r.ok(r.EndSessions(r.ctx, root, "ann"))
	if list, err = r.Sessions(r.ctx, ""); err != nil || len(list) != 0 {
		t.Errorf("left: %v, %v", list, err)
	}
}

func TestSessionOfALaterAccount(t *testing.T) {
	r := newRig(t)
	r.account("ann", "administrator")
	k := r.enrol("ann")
	s, err := r.passkeySignIn(k)
	r.ok(err)
	row := r.text(`SELECT hex(body) FROM docs WHERE kind = 'session' AND owner = 'ann' ORDER BY id LIMIT 1`)
	id := r.text(`SELECT id FROM docs WHERE kind = 'session' AND owner = 'ann' ORDER BY id LIMIT 1`)
	expires := r.text(`SELECT CAST(expires AS TEXT) FROM docs WHERE kind = 'session' AND owner = 'ann' ORDER BY id LIMIT 1`)
	r.ok(r.RemoveAccount(r.ctx, root, "ann"))
	r.account("ann", "administrator")
	_, err = r.Session(r.ctx, s.Token)
	r.no(err, "nobody is signed in")
	_, err = r.passkeySignIn(k)
	r.no(err, "")
	// Not even when the old row is put back.
	r.sql(`INSERT INTO docs (kind, id, owner, expires, version, body) VALUES ('session', ?, 'ann', ?, 1, unhex(?))`, id, expires, row)
	_, err = r.Session(r.ctx, s.Token)
	r.no(err, "nobody is signed in")
}

func TestChangePassword(t *testing.T) {
	r := newRig(t)
	r.account("ann", "operator")
	token, other := r.signIn("ann"), r.signIn("ann")
	r.no(r.ChangePassword(r.ctx, token, "wrong", "another long pass phrase", remote), "old password")
	r.no(r.ChangePassword(r.ctx, token, secret, "short", remote), "at least 12")
	r.ok(r.ChangePassword(r.ctx, token, secret, "another long pass phrase", remote))
	_, err := r.Session(r.ctx, token)
	r.ok(err)
	_, err = r.Session(r.ctx, other)
	r.no(err, "nobody is signed in")
	_, err = r.Password(r.ctx, "ann", "another long pass phrase", remote)
	r.ok(err)
}

func TestWeakPasswords(t *testing.T) {
	r := newRig(t)
	for _, p := range []string{"short", "aaaaaaaaaaaaaaaaaaaa", "abababababababab", "annabelle123", "\xff\xfe long enough really", strings.Repeat("long ", 300)} {
		_, err := r.AddAccount(r.ctx, root, identity.NewAccount{Name: "annabelle", Roles: []string{"viewer"}, Password: p})
		r.no(err, "the password")
	}
}

// TestBurstOfPasswords: of many passwords that one address sends at once, those that waited while it was locked are not
// checked: each check takes memory and time of everybody.
func TestBurstOfPasswords(t *testing.T) {
	r := newRig(t)
	done := r.Busy()
	const many = 20
	answers := make(chan error, many)
	for range many {
		go func() {
			_, err := r.Password(r.ctx, "nobody", "a wrong pass phrase", remote)
			answers <- err
		}()
	}
	time.Sleep(100 * time.Millisecond) // most wait for their turn now
	if err := r.Lock(r.ctx, remote.IP); err != nil {
		t.Fatal(err)
	}
	done()
	for range many {
		var locked *identity.Locked
		if err := <-answers; !errors.As(err, &locked) {
			t.Fatalf("a password was checked: %v", err)
		}
	}
}
