package identity_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"castellan/internal/gate"
	"castellan/internal/identity"
)

func TestWhoMayChangeAccounts(t *testing.T) {
	r := newRig(t)
	r.account("ann", "administrator")
	r.account("bob", "approver", "operator")
	session := func(name string) gate.Principal {
		p, err := r.Session(r.ctx, r.signIn(name))
		r.ok(err)
		return p
	}
	ann, bob := session("ann"), session("bob")
	forged := bob
	forged.Roles = []string{"administrator"} // what a caller claims does not count
	token := gate.Principal{Person: "ann", Strength: gate.StrengthToken, Roles: []string{"administrator"}}
	agent := ann
	agent.Agent = "claude"
	for _, who := range []gate.Principal{bob, forged, token, agent, {}, {Person: "ann"}, {Person: "root", Strength: gate.StrengthPeer}, {Agent: "x", Person: "root", Strength: gate.StrengthAccount}} {
		_, err := r.AddAccount(r.ctx, who, identity.NewAccount{Name: "eve", Roles: []string{"viewer"}})
		r.no(err, "only an administrator")
		r.no(r.SetRoles(r.ctx, who, "bob", []string{"administrator"}, time.Time{}), "only an administrator")
		r.no(r.SetPassword(r.ctx, who, "ann", secret), "only an administrator")
		r.no(r.Disable(r.ctx, who, "ann", true), "only an administrator")
		r.no(r.RemoveAccount(r.ctx, who, "ann"), "only an administrator")
		r.no(r.SetLogins(r.ctx, who, "ann", nil), "only an administrator")
	}
	_, err := r.AddAccount(r.ctx, ann, identity.NewAccount{Name: "eve", Roles: []string{"viewer"}})
	r.ok(err)
	// Nobody raises themselves.
	r.no(r.SetRoles(r.ctx, ann, "ann", []string{"administrator", "approver"}, time.Time{}), "nobody gives more to themselves")
	r.ok(r.SetRoles(r.ctx, ann, "eve", []string{"approver"}, time.Time{}))
	// With a passkey enrolled, a password makes nobody an approver, and opens no way in as one.
	k := r.enrol("bob")
	_ = k
	r.no(r.SetRoles(r.ctx, ann, "eve", []string{"administrator"}, time.Time{}), "passkeys are enrolled here")
	r.no(r.SetPassword(r.ctx, ann, "bob", "another long pass phrase"), "passkeys are enrolled here")
	_, err = r.AddAccount(r.ctx, ann, identity.NewAccount{Name: "mal", Roles: []string{"approver"}, Password: secret})
	r.no(err, "passkeys are enrolled here")
	r.ok(r.SetRoles(r.ctx, ann, "eve", []string{"viewer"}, time.Time{})) // taking away is always possible
	r.ok(r.SetPassword(r.ctx, ann, "eve", secret))
	r.ok(r.Disable(r.ctx, ann, "bob", true))
	r.no(r.Disable(r.ctx, ann, "bob", false), "passkeys are enrolled here")
	strong := ann
	strong.Strength = gate.StrengthPasskey
	r.ok(r.Disable(r.ctx, strong, "bob", false))
	if !slices.Contains(r.told(), "role_granted") {
		t.Errorf("told %v", r.told())
	}
	r.ok(r.Disable(r.ctx, root, "ann", true))
	r.no(r.Disable(r.ctx, ann, "eve", true), "is disabled")
}

func TestAccountInputs(t *testing.T) {
	r := newRig(t, func(c *identity.Config) { c.Roles = []string{"backup-team"} })
	for _, name := range []string{"", "a|b", "ann b", "änn", "-ann", "@x", "a/b", "ann\n!", string(make([]byte, 65))} {
		_, err := r.AddAccount(r.ctx, root, identity.NewAccount{Name: name, Roles: []string{"viewer"}})
		r.no(err, "the name")
	}
	for _, roles := range [][]string{nil, {"root"}, {"viewer", "nope"}, {"backup-team"}, {"Viewer"}} {
		_, err := r.AddAccount(r.ctx, root, identity.NewAccount{Name: "ann", Roles: roles})
		r.no(err, "role")
	}
	_, err := r.AddAccount(r.ctx, root, identity.NewAccount{Name: "ann@example.org", Roles: []string{"viewer", "backup-team"}})
	r.ok(err)
	_, err = r.AddAccount(r.ctx, root, identity.NewAccount{Name: "ann@example.org", Roles: []string{"viewer"}})
	r.no(err, "already")
	r.no(r.SetRoles(r.ctx, root, "nobody", []string{"viewer"}, time.Time{}), "there is no account")
	list, err := r.Accounts(r.ctx)
	r.ok(err)
	if len(list) != 1 || list[0].Password || list[0].By != "root" || !slices.Equal(list[0].Roles, []string{"backup-team", "viewer"}) {
		t.Errorf("accounts %+v", list[0])
	}
}

// grants is an OAuth server with a state.
type grants map[string]gate.Principal

func (g grants) Standing(_ context.Context, p gate.Principal) (gate.Principal, error) {
	if now, ok := g[p.Key()]; ok {
		return now, nil
	}
	return gate.Principal{}, gate.Fail(gate.ErrDenied, "", "the token was revoked")
}

func TestStanding(t *testing.T) {
	g := grants{}
	r := newRig(t, func(c *identity.Config) { c.Grants = g })
	r.account("ann", "operator")
	r.account("adm", "administrator")
	token := func(person string, roles ...string) gate.Principal {
		p := gate.Principal{Agent: "claude", Person: person, Strength: gate.StrengthToken, Roles: roles, WayIn: "mcp-http", Until: r.now().Add(time.Hour)}
		g[p.Key()] = p
		return p
	}
	for _, tt := range []struct {
		name  string
		p     gate.Principal
		roles []string // nil: refused
	}{
		{"this machine's account", gate.Principal{Person: "root", Strength: gate.StrengthAccount}, []string{}},
		{"a peer", gate.Principal{Person: "uid 1000", Strength: gate.StrengthPeer}, []string{}},
		{"both have it", token("ann", "operator"), []string{"operator"}},
		{"the token has less", token("ann", "viewer"), []string{"viewer"}},
		{"the person has less", token("ann", "administrator", "viewer"), []string{"operator"}},
		{"an administrator's operator token", token("adm", "operator"), []string{"operator"}},
		{"nothing in common", token("ann", "approver-of-things"), nil},
		{"no roles", token("ann"), nil},
		{"no such person", token("zoe", "viewer"), nil},
		{"no person", token("", "viewer"), []string{"viewer"}},
		{"no person, no roles", token(""), nil},
		{"revoked", gate.Principal{Agent: "old", Person: "ann", Strength: gate.StrengthToken, Roles: []string{"viewer"}}, nil},
		{"a session", gate.Principal{Person: "ann", Strength: gate.StrengthSession, Roles: []string{"administrator"}}, []string{"operator"}},
		{"a session of an agent", gate.Principal{Agent: "x", Person: "ann", Strength: gate.StrengthSession, Roles: []string{"operator"}}, nil},
		{"of no strength", gate.Principal{Person: "ann", Roles: []string{"operator"}}, nil},
	} {
		if tt.name == "no person, no roles" || tt.name == "no person" {
			g[tt.p.Key()] = tt.p
		}
		if tt.p.Person == "ann" && tt.p.Agent == "claude" {
			g[tt.p.Key()] = tt.p
		}
		got, err := r.Standing(r.ctx, tt.p)
		if tt.roles == nil {
			if err == nil {
				t.Errorf("%s: %+v", tt.name, got)
			}
			continue
		}
		if err != nil || !slices.Equal(got.Roles, tt.roles) || got.Key() != tt.p.Key() || !got.Until.Equal(tt.p.Until) && tt.p.Agent != "" {
			t.Errorf("%s: %+v, %v", tt.name, got, err)
		}
	}
	// The earlier end counts.
	p := token("ann", "operator")
	until := r.now().Add(time.Minute)
	r.ok(r.SetRoles(r.ctx, root, "ann", []string{"operator"}, until))
	got, err := r.Standing(r.ctx, p)
	r.ok(err)
	if !got.Until.Equal(until) {
		t.Errorf("until %s", got.Until)
	}
	r.ok(r.Disable(r.ctx, root, "ann", true))
	_, err = r.Standing(r.ctx, p)
	r.no(err, "is disabled")
}
