package policy

import (
	"context"
	"strings"
	"testing"

	"castellan/internal/gate"
)

// on is a question about a guest of a target.
func on(target string, kinds []gate.Kind, o gate.ObjectFacts) gate.PlanQuestion {
	q := plan(kinds, o)
	for i := range q.Steps {
		q.Steps[i].Target = target
	}
	return q
}

// A number or pool that is said of one target counts on no other, in what is seen and in what is changed.
func TestGuestsOfOneTarget(t *testing.T) {
	all := gate.Capabilities()
	sites := []string{"a", "b"}
	mk := func(s Settings) *Policy {
		t.Helper()
		s.Capabilities = all
		p, err := New(Config{Settings: s, Targets: []string{"a", "b", "pbs"}, Sites: sites})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	may := func(p *Policy, target string, kind gate.Kind, o gate.ObjectFacts) bool {
		return p.Plan(context.Background(), on(target, one(kind), o)).Verdict != gate.VerdictDeny
	}
	plain, pooled, tagged := guest("101", true, nil, nil), guest("105", true, nil, []string{"web"}), guest("106", true, []string{"agents"}, nil)
	p := mk(Settings{Targets: map[string]TargetSettings{
		"a": {Guests: []string{"101"}, Pools: []string{"web"}}, "b": {Guests: []string{"200"}, Tags: []string{"agents"}}}})
	for _, c := range []struct {
		target string
		o      gate.ObjectFacts
		in     bool
	}{
		{"a", plain, true}, {"b", plain, false}, {"a", pooled, true}, {"b", pooled, false}, {"a", tagged, false}, {"b", tagged, true},
		{"a", guest("200", true, nil, nil), false}, {"b", guest("200", true, nil, nil), true},
	} {
		if got := p.Sees(agent, c.target, c.o); got != c.in {
			t.Errorf("%s %s: seen %v", c.target, c.o.Object.ID, got)
		}
		if got := may(p, c.target, gate.KindSnapshot, c.o); got != c.in {
			t.Errorf("%s %s: may be changed %v", c.target, c.o.Object.ID, got)
		}
	}
	if d := p.Plan(context.Background(), on("b", one(gate.KindSnapshot), plain)); !strings.Contains(d.Reason, "policy.target.b.guests") {
		t.Errorf("the refusal names no setting: %+v", d)
	}
	if pools, tags := p.GovernedScope(); len(pools) != 1 || len(tags) != 1 || !p.Scoped(agent) {
		t.Errorf("%v %v %v", pools, tags, p.Scoped(agent))
	}
	p = mk(Settings{Targets: map[string]TargetSettings{"a": {UpgradePools: []string{"web"}}, "b": {UpgradePools: []string{"*"}}}})
	for target, want := range map[string][2]bool{"a": {false, true}, "b": {true, true}} {
		if got := [2]bool{may(p, target, gate.KindUpgrade, plain), may(p, target, gate.KindUpgrade, pooled)}; got != want {
			t.Errorf("upgrades on %s: %v", target, got)
		}
	}
	// A role's numbers count on the one target that it names; its tags on every one that it may change.
	p = mk(Settings{Roles: map[string]RoleSettings{"r": {Members: []string{"agent:" + agent.Agent}, Capabilities: all, Targets: []string{"a", "pbs"}, Guests: []string{"101"}, Tags: []string{"agents"}}}})
	for target, want := range map[string][3]bool{"a": {true, true, true}, "b": {false, true, false}, "pbs": {false, true, false}} {
		if got := [3]bool{p.Sees(agent, target, plain), p.Sees(agent, target, tagged), may(p, target, gate.KindSnapshot, plain)}; got != want {
			t.Errorf("role on %s: %v", target, got)
		}
	}
	for _, s := range []string{"a", "b"} { // what bounds a target compiles to policies that are sound
		if errs := Check("x", []byte(targetRules{scope: scope{ranges: []idRange{{1, 2}, {3, 3}}, pools: []string{"p"}, tags: []string{"t"}, bound: s}}.compile(s)[0].text)); errs != nil {
			t.Error(errs)
		}
	}
}

// Settings that would take a guest of one site for that of another are refused, and what is said of one must be said of each.
func TestSettingsThatNameNoSite(t *testing.T) {
	role := func(targets ...string) map[string]RoleSettings {
		return map[string]RoleSettings{"r": {Members: []string{"agent:x"}, Targets: targets, Pools: []string{"web"}}}
	}
	of := func(a, b TargetSettings) map[string]TargetSettings {
		return map[string]TargetSettings{"a": a, "b": b}
	}
	one := TargetSettings{Guests: []string{"101"}, RebootTags: []string{"x"}}
	for name, c := range map[string]struct {
		s    Settings
		want string
	}{
		"numbers":               {Settings{Guests: []string{"101", "200-299"}}, "policy.guests"},
		"pools":                 {Settings{Pools: []string{"web"}, UpgradePools: []string{"web"}}, "policy.pools, policy.upgrade_pools"},
		"reboots":               {Settings{RebootPools: []string{"web"}}, "[policy.target.a]"},
		"every guest":           {Settings{Guests: []string{"*"}}, ""},
		"tags":                  {Settings{Tags: []string{"x"}, UpgradeTags: []string{"x"}}, ""},
		"one says nothing":      {Settings{Targets: of(one, TargetSettings{})}, "policy.target.b says nothing of guests"},
		"nothing of reboots":    {Settings{Targets: of(one, TargetSettings{Guests: []string{"*"}})}, `reboot_pools = ["*"]`},
		"each says":             {Settings{Targets: of(one, TargetSettings{Guests: []string{"*"}, RebootPools: []string{"*"}})}, ""},
		"tags beside":           {Settings{Tags: []string{"x"}, RebootTags: []string{"y"}, Targets: of(one, TargetSettings{})}, ""},
		"role of none":          {Settings{Roles: role()}, "policy.role.r"},
		"role of two":           {Settings{Roles: role("a", "b")}, "policy.role.r"},
		"role of one":           {Settings{Roles: role("b")}, ""},
		"role of another alone": {Settings{Roles: role("pbs")}, "policy.role.r"},
	} {
		_, err := New(Config{Settings: c.s, Targets: []string{"a", "b", "pbs"}, Sites: []string{"a", "b"}})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := New(Config{Settings: c.s, Targets: []string{"a", "b", "pbs"}, Sites: []string{"a"}}); err != nil {
			t.Errorf("%s, with one site: %v", name, err)
		}
	}
}

// A target that passes on to other sites has a guest 101 on each of them: nothing there is named by number or pool.
func TestNumbersOfManySites(t *testing.T) {
	role := func(targets ...string) Settings {
		return Settings{Roles: map[string]RoleSettings{"r": {Members: []string{"agent:x"}, Targets: targets, Guests: []string{"101"}}}}
	}
	for name, c := range map[string]struct {
		s     Settings
		sites []string
		want  string
	}{
		"alone, numbers":        {Settings{Guests: []string{"101"}}, []string{"fleet"}, "policy.guests names"},
		"alone, pools":          {Settings{Pools: []string{"web"}, RebootPools: []string{"web"}}, []string{"fleet"}, "policy.pools, policy.reboot_pools names"},
		"alone, its own":        {Settings{Targets: map[string]TargetSettings{"fleet": {Guests: []string{"101"}}}}, []string{"fleet"}, "policy.target.fleet.guests"},
		"alone, a role":         {role(), []string{"fleet"}, "policy.role.r.guests"},
		"alone, everything":     {Settings{Guests: []string{"*"}, Capabilities: []string{"power"}}, []string{"fleet"}, ""},
		"alone, tags":           {Settings{Tags: []string{"x"}}, []string{"fleet"}, ""},
		"beside, its own":       {Settings{Targets: map[string]TargetSettings{"a": {Guests: []string{"101"}}, "fleet": {UpgradePools: []string{"web"}, Guests: []string{"1-9"}}}}, []string{"a", "fleet"}, "policy.target.fleet.guests, policy.target.fleet.upgrade_pools"},
		"beside, of the other":  {Settings{Targets: map[string]TargetSettings{"a": {Guests: []string{"101"}}, "fleet": {Guests: []string{"*"}}}}, []string{"a", "fleet"}, ""},
		"beside, a role there":  {role("fleet"), []string{"a", "fleet"}, "policy.role.r.guests"},
		"beside, a role on one": {role("a"), []string{"a", "fleet"}, ""},
	} {
		_, err := New(Config{Settings: c.s, Targets: []string{"a", "fleet", "pbs"}, Sites: c.sites, Fleets: []string{"fleet"}})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
