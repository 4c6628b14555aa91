package policy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"castellan/internal/gate"
	"castellan/internal/rights"
)

var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.Local) // a Wednesday

var agent = gate.Principal{Agent: "claude", Person: "ann", WayIn: "mcp-stdio", Strength: gate.StrengthAccount}

func load(t testing.TB, s Settings) *Policy {
	t.Helper()
	p, err := New(Config{Settings: s, Users: map[string]string{"pve": "castellan@pve!agent"}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func guest(id string, known bool, tags, pools []string) gate.ObjectFacts {
	return gate.ObjectFacts{Object: gate.Object{Site: "s", Kind: gate.ObjectGuest, ID: id}, Use: gate.UseActs, Known: known, Tags: tags, Reserved: tags, Pools: pools}
}

// plan asks about one step of the kinds on the objects.
func plan(kinds []gate.Kind, objects ...gate.ObjectFacts) gate.PlanQuestion {
	effect := gate.EffectRead
	for _, k := range kinds {
		effect = gate.WorseEffect(effect, gate.RowOf(k).Effect)
	}
	step := gate.Step{Number: 1, Target: "pve", Site: "s", API: &gate.Request{Product: "pve", Operation: "POST /nodes/{node}/qemu/{vmid}/status/stop"},
		Judgement: gate.Judgement{Operation: "POST /nodes/{node}/qemu/{vmid}/status/stop", Effect: effect, Kinds: kinds}}
	for _, o := range objects {
		step.Judgement.References = append(step.Judgement.References, gate.Reference{Object: gate.Object{Kind: o.Object.Kind, ID: o.Object.ID}, Use: o.Use})
	}
	return gate.PlanQuestion{Principal: agent, Operation: "guest_power", Steps: []gate.Step{step}, At: noon, Writes: map[string]int{},
		Plan:  &gate.Plan{ID: "p", Requester: agent},
		Facts: gate.Facts{Effect: effect, Kinds: kinds, Objects: objects, Reversible: "yes"}}
}

func decide(p *Policy, q gate.PlanQuestion) gate.Decision { return p.Plan(context.Background(), q) }

func one(k gate.Kind) []gate.Kind { return []gate.Kind{k} }

func TestDefaultsReadOnly(t *testing.T) {
	p := load(t, Settings{})
	d := p.Call(context.Background(), gate.CallQuestion{Principal: agent, Operation: &gate.Operation{Name: "list_guests", Effect: gate.EffectRead}, At: noon})
	if d.Verdict != gate.VerdictAllow {
		t.Errorf("a read: %+v", d)
	}
	for _, row := range gate.Table() {
		d := decide(p, plan(one(row.Kind), guest("101", true, nil, nil)))
		if want := row.Rung == gate.RungNone && row.Capability == ""; (d.Verdict == gate.VerdictAllow) != want {
			t.Errorf("kind %s: %+v", row.Kind, d)
		}
		if row.Capability != "" && (!strings.Contains(d.Reason, row.Capability) || !strings.Contains(d.Hint, "castellan capability on "+row.Capability)) {
			t.Errorf("kind %s: the refusal names no setting: %q, %q", row.Kind, d.Reason, d.Hint)
		}
		if row.Rung > gate.RungDialog && row.Kind != gate.KindGoverns && !strings.Contains(d.Hint, "policy.stand_in") {
			t.Errorf("kind %s: the refusal does not say what comes next: %q", row.Kind, d.Hint)
		}
		if need := rights.OfKind(row.Kind, rights.Version{}); len(need) > 0 && row.Capability != "" && (!strings.Contains(d.Hint, grantedThere(need)) || !strings.Contains(d.Hint, "castellan mint --target pve (")) {
			t.Errorf("kind %s: the refusal names no grant: %q", row.Kind, d.Hint)
		}
	}
}

func TestTableWithEverythingOn(t *testing.T) {
	for _, standIn := range []string{"off", "dialog", "phrase"} {
		p := load(t, Settings{Capabilities: gate.Capabilities(), StandIn: standIn})
		for _, row := range gate.Table() {
			d := decide(p, plan(one(row.Kind), guest("101", true, nil, nil)))
			var want gate.Decision
			switch {
			case row.Rung == gate.RungNone:
				want = gate.Decision{Verdict: gate.VerdictAllow}
			case row.Rung <= gate.RungDialog:
				want = gate.Decision{Verdict: gate.VerdictNeeds, Rung: row.Rung}
			case standIn == "off" || row.Kind == gate.KindGoverns:
				want = gate.Decision{Rung: gate.RungDenied}
			default:
				rung, _ := gate.ParseRung(standIn)
				want = gate.Decision{Verdict: gate.VerdictNeeds, Rung: rung, Asked: row.Rung}
			}
			if d.Verdict != want.Verdict || d.Rung != want.Rung || d.Asked != want.Asked {
				t.Errorf("stand_in %s, kind %s: %+v", standIn, row.Kind, d)
			}
			if d.Verdict == gate.VerdictDeny && !strings.Contains(d.Reason+d.Hint, "policy.stand_in") {
				t.Errorf("stand_in %s, kind %s: the refusal does not name policy.stand_in: %+v", standIn, row.Kind, d)
			}
		}
	}
}

func TestSettings(t *testing.T) {
	all := gate.Capabilities()
	stop, snap := one(gate.KindStop), one(gate.KindSnapshot)
	in := guest("101", true, []string{"Web"}, []string{"dev"})
	unknown := gate.ObjectFacts{Object: gate.Object{Site: "s", Kind: gate.ObjectUnknown, ID: "x"}, Use: gate.UseNames}
	node := gate.ObjectFacts{Object: gate.Object{Site: "s", Kind: gate.ObjectNode, ID: "n1"}, Use: gate.UseNames, Known: true}
	nested := func(q gate.PlanQuestion) gate.PlanQuestion {
		q.Steps[0].API = &gate.Request{Product: "pve", Operation: "POST /nodes/{node}/execute"}
		q.Steps[0].Judgement.Operation = q.Steps[0].API.Operation
		return q
	}
	nodeActs := node
	nodeActs.Use = gate.UseActs
	volume := gate.ObjectFacts{Object: gate.Object{Site: "s", Kind: gate.ObjectVolume, ID: "local:iso/x.iso"}, Use: gate.UseActs, Known: true}
	for _, c := range []struct {
		name string
		s    Settings
		q    gate.PlanQuestion
		want string // "allow", a rung, or a part of the refusal
	}{
		{"read only", Settings{Capabilities: all, ReadOnly: true}, plan(snap, in), "policy.read_only"},
		{"id in range", Settings{Capabilities: all, Guests: []string{"100-110"}}, plan(snap, in, node), "allow"},
		{"id out of range", Settings{Capabilities: all, Guests: []string{"102", "200-299"}}, plan(snap, in), "policy.guests"},
		{"every guest", Settings{Capabilities: all, Guests: []string{"*"}}, plan(snap, in), "allow"},
		{"by tag, whatever its case", Settings{Capabilities: all, Tags: []string{"wEb"}}, plan(snap, in), "allow"},
		{"by pool", Settings{Capabilities: all, Pools: []string{"dev"}}, plan(snap, in), "allow"},
		{"another pool", Settings{Capabilities: all, Pools: []string{"prod"}}, plan(snap, in), "policy.pools"},
		{"tag of a guest that is not known", Settings{Capabilities: all, Tags: []string{"web"}}, plan(snap, guest("101", false, []string{"web"}, nil)), "nothing is known"},
		{"id of a guest that is not known", Settings{Capabilities: all, Guests: []string{"101"}}, plan(snap, guest("101", false, nil, nil)), "allow"},
		{"another guest by parameter", Settings{Capabilities: all, Guests: []string{"101"}}, plan(snap, in, gate.ObjectFacts{Object: gate.Object{Site: "s", Kind: gate.ObjectGuest, ID: "102"}, Use: gate.UseNames, Known: true}), "guest/102"},
		{"unresolvable reference within a scope", Settings{Capabilities: all, Guests: []string{"101"}}, plan(snap, in, unknown), "outside the guests"},
		{"acting on a node within a scope", Settings{Capabilities: all, Guests: []string{"101"}}, plan(snap, in, nodeActs), "outside the guests"},
		{"a volume of nobody within a scope", Settings{Capabilities: all, Guests: []string{"101"}}, plan(snap, in, volume), "outside the guests"},
		{"naming nothing within a scope", Settings{Capabilities: all, Guests: []string{"101"}}, plan(snap), "outside the guests"},
		{"forbidden by API operation", Settings{Capabilities: all, Forbid: []string{"POST /nodes/{n}/qemu/{id}/status/stop"}}, plan(snap, in), "policy.forbid"},
		{"forbidden by a part", Settings{Capabilities: all, Forbid: []string{"Status/Stop"}}, plan(snap, in), "policy.forbid"},
		{"forbidden, hidden in a list of calls", Settings{Capabilities: all, Forbid: []string{"DELETE /nodes/{n}/qemu/{id}"}}, nested(plan(snap, in)), "policy.forbid"},
		{"a list of calls", Settings{Capabilities: all}, nested(plan(snap, in)), "allow"},
		{"forbidden by name", Settings{Capabilities: all, Forbid: []string{"guest_power"}}, plan(snap, in), "policy.forbid"},
		{"forbidden below a path", Settings{Capabilities: all, Forbid: []string{"/nodes"}}, plan(snap, in), "policy.forbid"},
		{"another operation forbidden", Settings{Capabilities: all, Forbid: []string{"POST /nodes/{n}/qemu/{id}/status", "/node", "DELETE /nodes/{n}/qemu/{id}/status/stop"}}, plan(snap, in), "allow"},
		{"rung of a kind", Settings{Capabilities: all, Rungs: map[string]string{"stop": "restated"}}, plan(stop, in), "restated"},
		{"rung of a class", Settings{Capabilities: all, Rungs: map[string]string{"power": "dialog", "start": "none"}}, plan(stop, in), "dialog"},
		{"kind before class", Settings{Capabilities: all, Rungs: map[string]string{"power": "dialog", "stop": "none"}}, plan(stop, in), "allow"},
		{"rate", Settings{Capabilities: all, WritesPerHour: 3}, func() gate.PlanQuestion { q := plan(snap, in); q.Writes["pve"] = 3; return q }(), "policy.writes_per_hour"},
		{"rate of another target", Settings{Capabilities: all, WritesPerHour: 3}, func() gate.PlanQuestion { q := plan(snap, in); q.Writes["b"] = 3; return q }(), "allow"},
		{"taint", Settings{Capabilities: all}, func() gate.PlanQuestion { q := plan(snap, in); q.Facts.Tainted = true; return q }(), "restated"},
		{"taint raises no further", Settings{Capabilities: all, Rungs: map[string]string{"stop": "phrase"}}, func() gate.PlanQuestion { q := plan(stop, in); q.Facts.Tainted = true; return q }(), "phrase"},
		{"outside the window", Settings{Capabilities: all, Windows: []string{"sat-sun 00:00-24:00"}}, plan(snap, in), "policy.windows"},
		{"within a window", Settings{Capabilities: all, Windows: []string{"mon-fri 11:00-13:00"}}, plan(snap, in), "allow"},
		{"target read only", Settings{Capabilities: all, Targets: map[string]TargetSettings{"pve": {ReadOnly: true}}}, plan(snap, in), "policy.target.pve.read_only"},
		{"target capabilities", Settings{Capabilities: all, Targets: map[string]TargetSettings{"pve": {Capabilities: []string{"power"}}}}, plan(snap, in), "policy.target.pve.capabilities"},
		{"no target capabilities", Settings{Capabilities: all, Targets: map[string]TargetSettings{"pve": {Capabilities: []string{}}}}, plan(snap, in), "policy.target.pve.capabilities"},
		{"target forbid", Settings{Capabilities: all, Targets: map[string]TargetSettings{"pve": {Forbid: []string{"stop"}}}}, plan(snap, in), "policy.target.pve.forbid"},
		{"other target", Settings{Capabilities: all, Targets: map[string]TargetSettings{"b": {ReadOnly: true, Forbid: []string{"stop"}, Capabilities: []string{}, WritesPerHour: 1}}}, plan(snap, in), "allow"},
		{"role without the capability", Settings{Capabilities: all, Roles: map[string]RoleSettings{"r": {Members: []string{"agent:claude"}, Capabilities: []string{"power"}}}}, plan(snap, in), "policy.role"},
		{"one of two roles", Settings{Capabilities: all, Roles: map[string]RoleSettings{"r": {Members: []string{"agent:claude"}, Capabilities: []string{"power"}}, "s": {Members: []string{"person:ann"}, Capabilities: []string{"snapshot"}}}}, plan(snap, in), "allow"},
		{"role of others", Settings{Capabilities: all, Roles: map[string]RoleSettings{"r": {Members: []string{"agent:other"}}}}, plan(snap, in), "allow"},
		{"role with a scope", Settings{Capabilities: all, Roles: map[string]RoleSettings{"r": {Members: []string{"person:ann"}, Capabilities: all, Guests: []string{"102"}}}}, plan(snap, in), "policy.role"},
		{"role on another target", Settings{Capabilities: all, Roles: map[string]RoleSettings{"r": {Members: []string{"person:ann"}, Capabilities: all, Targets: []string{"b"}}}}, plan(snap, in), "policy.role"},
		{"role does not switch on", Settings{Roles: map[string]RoleSettings{"r": {Members: []string{"person:ann"}, Capabilities: all}}}, plan(snap, in), "capability \"snapshot\" is off"},
		{"no kind at all", Settings{Capabilities: []string{"snapshot"}}, func() gate.PlanQuestion { q := plan(snap, in); q.Steps[0].Judgement.Kinds = nil; return q }(), "unjudged"},
		{"effect worse than its kind", Settings{Capabilities: []string{"snapshot"}}, func() gate.PlanQuestion {
			q := plan(snap, in)
			q.Steps[0].Judgement.Effect = gate.EffectDestroy
			return q
		}(), "unjudged"},
		{"a kind that nobody knows", Settings{Capabilities: []string{"snapshot"}}, plan(one("brand_new"), in), "unjudged"},
		{"an empty plan", Settings{Capabilities: all}, gate.PlanQuestion{Principal: agent, At: noon}, "no steps"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := decide(load(t, c.s), c.q)
			got := d.Reason + " " + d.Hint
			switch d.Verdict {
			case gate.VerdictAllow:
				got = "allow"
			case gate.VerdictNeeds:
				got = d.Rung.String()
			}
			if d.Verdict == gate.VerdictDeny && !strings.Contains(got, c.want) || d.Verdict != gate.VerdictDeny && got != c.want {
				t.Errorf("want %q, got %+v", c.want, d)
			}
		})
	}
}

func TestGoverns(t *testing.T) {
	for _, standIn := range []string{"off", "dialog", "phrase"} {
		p := load(t, Settings{Capabilities: gate.Capabilities(), StandIn: standIn, Rungs: map[string]string{"config": "none"}})
		q := plan(one(gate.KindConfig), guest("101", true, nil, nil))
		if d := decide(p, q); d.Verdict != gate.VerdictAllow {
			t.Errorf("without governing: %+v", d)
		}
		q.Facts.Governs = []string{"step 1 gives or takes tag web, which grants scope"}
		if d := decide(p, q); d.Verdict != gate.VerdictDeny || !strings.Contains(d.Reason, "tag web") {
			t.Errorf("stand_in %s: a governing change: %+v", standIn, d)
		}
		q.Facts.Kinds = append(q.Facts.Kinds, gate.KindGoverns)
		if d := decide(p, q); d.Verdict != gate.VerdictDeny {
			t.Errorf("stand_in %s: a governing change by kind: %+v", standIn, d)
		}
	}
	p, err := New(Config{Settings: Settings{Capabilities: gate.Capabilities(), StandIn: "dialog"}, Highest: gate.RungTwoPasskeys})
	if err != nil {
		t.Fatal(err)
	}
	q := plan(one(gate.KindConfig), guest("101", true, nil, nil))
	q.Facts.Governs, q.Facts.Kinds = []string{"x"}, append(q.Facts.Kinds, gate.KindGoverns)
	if d := decide(p, q); d.Verdict != gate.VerdictNeeds || d.Rung != gate.RungPasskey || d.Asked != 0 {
		t.Errorf("where passkeys can be had: %+v", d)
	}
}

func TestBrokenSettings(t *testing.T) {
	for _, c := range []struct {
		s    Settings
		want string
	}{
		{Settings{Capabilities: []string{"snapshots"}}, `did you mean "snapshot"`},
		{Settings{StandIn: "dialogue"}, `did you mean "dialog"`},
		{Settings{Rungs: map[string]string{"stopp": "none"}}, `did you mean "stop"`},
		{Settings{Rungs: map[string]string{"stop": "pass"}}, "policy.rungs.stop"},
		{Settings{Rungs: map[string]string{"governs": "dialog"}}, "never take less than passkey"},
		{Settings{Guests: []string{"10-5"}}, "ends before it begins"},
		{Settings{Guests: []string{"0101"}}, "policy.guests"},
		{Settings{Guests: []string{}}, "let every guest in"},
		{Settings{Tags: []string{}, Pools: []string{}}, "let every guest in"},
		{Settings{Guests: []string{"*", "101"}}, "would mean nothing"},
		{Settings{Tags: []string{`a" || true`}}, "policy.tags"},
		{Settings{Pools: []string{""}}, "policy.pools"},
		{Settings{Forbid: []string{" * "}}, "policy.read_only"},
		{Settings{WritesPerHour: -1}, "policy.writes_per_hour"},
		{Settings{Windows: []string{"never"}}, "policy.windows[0]"},
		{Settings{PlanTTL: "1"}, "policy.plan_ttl"},
		{Settings{Roles: map[string]RoleSettings{"r": {Members: []string{"ann"}}}}, "agent:NAME"},
		{Settings{Targets: map[string]TargetSettings{"pvee": {}}}, `did you mean "pve"`},
		{Settings{Forbid: []string{"delete_gest"}}, "matches no operation"},
		{Settings{Files: []string{"none.cedar"}}, "none.cedar"},
	} {
		_, err := New(Config{Settings: c.s, Dir: t.TempDir(), Targets: []string{"pve"}, Known: [][2]string{{"delete_guest", "DELETE /nodes/{node}/qemu/{vmid}"}}})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.s, err)
		}
	}
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(text string) Settings {
		if err := os.WriteFile(filepath.Join(dir, "own.cedar"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return Settings{Capabilities: []string{"snapshot"}, Files: []string{"own.cedar"}}
	}
	s := write(`@id("night") @reason("not this one") @hint("ask Bob")
		forbid (principal, action == Action::"write", resource) when { resource.tags.contains("prod") && context.level < 3 };`)
	p, err := New(Config{Settings: s, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	q := plan(one(gate.KindSnapshot), guest("101", true, []string{"prod"}, nil))
	if d := decide(p, q); d.Rung != gate.RungDialog {
		t.Errorf("raised by an own policy: %+v", d)
	}
	for _, bad := range []string{
		"forbid (principal, action, resource) when { resource.tgs.contains(\"prod\") };",
		"forbid (principal, action, resource) when { context.level.contains(1) };",
		"forbid (principal, action == Action::\"wite\", resource);",
		"forbid (principal, action, resource",
		"",
	} {
		if _, err := New(Config{Settings: write(bad), Dir: dir}); err == nil {
			t.Errorf("%q was taken", bad)
		}
		if errs := Check("own.cedar", []byte(bad)); len(errs) == 0 {
			t.Errorf("check: %q was taken", bad)
		}
	}
	// Two identical ids, and a file that others may write.
	if _, err := New(Config{Settings: write(`@id("a") permit (principal, action, resource); @id("a") permit (principal, action, resource);`), Dir: dir}); err == nil {
		t.Error("two policies of one id were taken")
	}
	os.Chmod(filepath.Join(dir, "own.cedar"), 0o666)
	if _, err := New(Config{Settings: s, Dir: dir}); err == nil || !strings.Contains(err.Error(), "chmod") {
		t.Errorf("a file that others may write: %v", err)
	}
}

// TestOwnPermits: a permit of one's own can stand for a capability, and for nothing that forbids.
func TestOwnPermits(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "all.cedar"), []byte("permit (principal, action, resource);"), 0o600); err != nil {
		t.Fatal(err)
	}
	in := guest("101", true, nil, nil)
	for _, c := range []struct {
		name string
		s    Settings
		q    gate.PlanQuestion
		want gate.Verdict
	}{
		{"a capability that is off", Settings{}, plan(one(gate.KindData), in), gate.VerdictAllow},
		{"read only", Settings{ReadOnly: true}, plan(one(gate.KindSnapshot), in), gate.VerdictDeny},
		{"out of scope", Settings{Guests: []string{"102"}}, plan(one(gate.KindSnapshot), in), gate.VerdictDeny},
		{"forbidden", Settings{Forbid: []string{"stop"}}, plan(one(gate.KindSnapshot), in), gate.VerdictDeny},
		{"tainted", Settings{}, func() gate.PlanQuestion { q := plan(one(gate.KindSnapshot), in); q.Facts.Tainted = true; return q }(), gate.VerdictNeeds},
		{"governs", Settings{StandIn: "dialog"}, func() gate.PlanQuestion {
			q := plan(one(gate.KindSnapshot), in)
			q.Facts.Governs = []string{"x"}
			return q
		}(), gate.VerdictDeny},
		{"governs, by kind", Settings{StandIn: "dialog"}, plan([]gate.Kind{gate.KindSnapshot, gate.KindGoverns}, in), gate.VerdictDeny},
	} {
		c.s.Files = []string{"all.cedar"}
		p, err := New(Config{Settings: c.s, Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		if d := decide(p, c.q); d.Verdict != c.want {
			t.Errorf("%s: %+v", c.name, d)
		}
	}
}

func TestPolicyErrorDenies(t *testing.T) {
	dir := t.TempDir()
	// It passes the validator, and overflows when evaluated.
	text := `forbid (principal, action == Action::"write", resource) when { resource.vmid * 9223372036854775807 == 1 };`
	if err := os.WriteFile(filepath.Join(dir, "own.cedar"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := New(Config{Settings: Settings{Capabilities: []string{"snapshot"}, Files: []string{"own.cedar"}}, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	d := decide(p, plan(one(gate.KindSnapshot), guest("101", true, nil, nil)))
	if d.Verdict != gate.VerdictDeny || !strings.Contains(d.Reason, "could not be evaluated") || !strings.Contains(d.Reason, "own.cedar#1") {
		t.Errorf("an error in a policy: %+v", d)
	}
}

func TestApprove(t *testing.T) {
	q := plan(one(gate.KindStop), guest("101", true, nil, nil))
	ann := gate.Principal{Person: "ann", WayIn: "cli", Strength: gate.StrengthAccount}
	bob := gate.Principal{Person: "bob", WayIn: "cli", Strength: gate.StrengthAccount}
	for _, c := range []struct {
		s    Settings
		who  gate.Principal
		rung gate.Rung
		want gate.Verdict
	}{
		{Settings{}, agent, gate.RungRestated, gate.VerdictAllow},
		{Settings{}, ann, gate.RungDialog, gate.VerdictAllow},
		{Settings{}, ann, gate.RungPerson, gate.VerdictDeny},
		{Settings{}, ann, gate.RungPasskey, gate.VerdictDeny},
		{Settings{}, gate.Principal{Person: "ann", Strength: gate.StrengthPasskey, Roles: []string{"approver"}}, gate.RungTwoPasskeys, gate.VerdictAllow},
		{Settings{}, gate.Principal{Person: "ann", Strength: gate.StrengthSession, Roles: []string{"administrator"}}, gate.RungPerson, gate.VerdictAllow},
		{Settings{}, gate.Principal{Person: "ann", Strength: gate.StrengthSession, Roles: []string{"approver"}}, gate.RungPasskey, gate.VerdictDeny},
		{Settings{}, gate.Principal{Person: "ann", Strength: gate.StrengthPasskey, Roles: []string{"operator", "viewer"}}, gate.RungPasskey, gate.VerdictDeny},
		{Settings{}, gate.Principal{Person: "ann", Strength: gate.StrengthSession}, gate.RungDialog, gate.VerdictDeny},
		{Settings{}, gate.Principal{Agent: "x", Person: "ann", Strength: gate.StrengthToken, Roles: []string{"operator"}}, gate.RungPerson, gate.VerdictDeny},
		{Settings{FourEyes: true}, ann, gate.RungDialog, gate.VerdictDeny},
		{Settings{FourEyes: true}, gate.Principal{Agent: "x"}, gate.RungDialog, gate.VerdictDeny},
		{Settings{FourEyes: true}, bob, gate.RungDialog, gate.VerdictAllow},
		{Settings{FourEyes: true}, agent, gate.RungNone, gate.VerdictAllow},
		{Settings{}, ann, gate.RungDenied, gate.VerdictDeny},
	} {
		if d := load(t, c.s).Approve(context.Background(), q, c.who, c.rung); d.Verdict != c.want {
			t.Errorf("%+v by %s at %s: %+v", c.s, c.who.Key(), c.rung, d)
		}
	}
}

// TestBuiltInRoles: who has one of the four does only what one of them lets.
func TestBuiltInRoles(t *testing.T) {
	for role, want := range map[string]gate.Verdict{"": gate.VerdictAllow, gate.RoleViewer: gate.VerdictDeny, gate.RoleOperator: gate.VerdictAllow,
		gate.RoleApprover: gate.VerdictDeny, gate.RoleAdministrator: gate.VerdictAllow} {
		q := plan(one(gate.KindSnapshot), guest("101", true, nil, nil))
		q.Principal = gate.Principal{Agent: "a", Person: "ann", Strength: gate.StrengthToken}
		if role != "" {
			q.Principal.Roles = []string{role}
		}
		p := load(t, Settings{Capabilities: []string{"snapshot"}})
		if d := p.Plan(context.Background(), q); d.Verdict != want {
			t.Errorf("a change by %q: %+v", role, d)
		}
		read := gate.CallQuestion{Principal: q.Principal, Operation: &gate.Operation{Name: "list_guests", Effect: gate.EffectRead, Kinds: one(gate.KindRead)}}
		if d := p.Call(context.Background(), read); d.Verdict != gate.VerdictAllow {
			t.Errorf("a read by %q: %+v", role, d)
		}
	}
}

func TestCall(t *testing.T) {
	ctx := context.Background()
	ask := func(p *Policy, op gate.Operation) gate.Decision {
		return p.Call(ctx, gate.CallQuestion{Principal: agent, Operation: &op, Target: "pve", At: noon})
	}
	power := gate.Operation{Name: "guest_power", Product: "pve", Effect: gate.EffectChange, Kinds: []gate.Kind{gate.KindStop, gate.KindStart}}
	door := gate.Operation{Name: "call_operation", Effect: gate.EffectDestroy}
	if d := ask(load(t, Settings{}), power); d.Verdict != gate.VerdictDeny || !strings.Contains(d.Hint, "castellan capability on power") {
		t.Errorf("off: %+v", d)
	}
	if d := ask(load(t, Settings{Capabilities: []string{"power"}}), power); d.Verdict != gate.VerdictAllow {
		t.Errorf("one kind can be had: %+v", d)
	}
	if d := ask(load(t, Settings{Capabilities: []string{"power"}, ReadOnly: true}), power); d.Verdict != gate.VerdictDeny || !strings.Contains(d.Reason, "read_only") {
		t.Errorf("read only: %+v", d)
	}
	if d := ask(load(t, Settings{ReadOnly: true}), door); d.Verdict != gate.VerdictAllow {
		t.Errorf("the door, which reads too: %+v", d)
	}
	if d := ask(load(t, Settings{Forbid: []string{"call_operation"}}), door); d.Verdict != gate.VerdictDeny {
		t.Errorf("the door, forbidden: %+v", d)
	}
}

func TestLive(t *testing.T) {
	var next *Policy
	var broken error
	l, err := NewLive(LiveConfig{Policy: load(t, Settings{}), Load: func() (*Policy, error) {
		p := next
		next = nil
		return p, broken
	}})
	if err != nil {
		t.Fatal(err)
	}
	q := plan(one(gate.KindSnapshot), guest("101", true, nil, nil))
	ctx := context.Background()
	if d := l.Plan(ctx, q); d.Verdict != gate.VerdictDeny {
		t.Errorf("at first: %+v", d)
	}
	next = load(t, Settings{Capabilities: []string{"snapshot"}})
	if d := l.Plan(ctx, q); d.Verdict != gate.VerdictAllow {
		t.Errorf("changed: %+v", d)
	}
	broken = errors.New("line 3: no such key")
	if d := l.Plan(ctx, q); d.Verdict != gate.VerdictAllow {
		t.Errorf("broken: %+v", d)
	}
	if n := l.Limits().Notices; len(n) != 1 || !strings.Contains(n[0], "line 3") {
		t.Errorf("notices %q", n)
	}
	broken, next = nil, load(t, Settings{})
	if n := l.Limits().Notices; len(n) != 0 {
		t.Errorf("notices %q", n)
	}
}

func TestExplain(t *testing.T) {
	p := load(t, Settings{Capabilities: []string{"power"}, StandIn: "dialog"})
	e := p.Explain(Question{Principal: agent, Operation: "guest_power", Target: "pve", Kinds: one(gate.KindStop), Objects: []gate.ObjectFacts{guest("101", true, nil, nil)}, At: noon})
	if e.Decision.Rung != gate.RungDialog || e.Decision.Asked != gate.RungPerson || len(e.Requests) != 1 || len(e.Requests[0].Answers) != len(gate.Rungs()) {
		t.Errorf("%+v", e)
	}
	if text := e.Text(); !strings.Contains(text, "stands for person") || !strings.Contains(text, "table.stop") {
		t.Error(text)
	}
	if e := p.Explain(Question{Principal: agent, Operation: "list_guests", At: noon}); e.Decision.Verdict != gate.VerdictAllow {
		t.Errorf("%+v", e)
	}
	if text := p.TableText(); strings.Count(text, "\n") != len(gate.Table())+1 {
		t.Error(text)
	}
}

func TestScopeIsTheSameInBothForms(t *testing.T) {
	p := load(t, Settings{Capabilities: gate.Capabilities(), Guests: []string{"100-110", "200"}, Pools: []string{"dev"}, Tags: []string{"web"}})
	for _, id := range []string{"99", "100", "105", "110", "111", "200", "201", "x", "", "0100", "100-110"} {
		for _, known := range []bool{false, true} {
			for _, tags := range [][]string{nil, {"web"}, {"WEB"}, {"db"}} {
				for _, pools := range [][]string{nil, {"dev"}, {"prod"}} {
					o := guest(id, known, tags, pools)
					sees := p.Sees(agent, "pve", o)
					writes := decide(p, plan(one(gate.KindSnapshot), o)).Verdict == gate.VerdictAllow
					if sees != writes {
						t.Errorf("%+v: seen %v, may be changed %v", o, sees, writes)
					}
				}
			}
		}
	}
	for _, s := range []string{`quote " and \`, "line\nbreak", "null\x00", "ä€", "*", "\x7f"} {
		text := fmt.Sprintf("forbid (principal, action == Action::\"write\", resource) when { context.target == %s };", quote(s))
		if errs := Check("x", []byte(text)); errs != nil {
			t.Errorf("%q: %v", s, errs)
		}
	}
}

func BenchmarkCallRead(b *testing.B) {
	p := load(b, Settings{Capabilities: gate.Capabilities(), Guests: []string{"100-200"}, Forbid: []string{"/access", "delete_guest"}, WritesPerHour: 10})
	op := &gate.Operation{Name: "guest_status", Product: "pve", Effect: gate.EffectRead}
	for b.Loop() {
		p.Call(context.Background(), gate.CallQuestion{Principal: agent, Operation: op, Target: "pve", At: noon})
	}
}

func BenchmarkPlan(b *testing.B) {
	p := load(b, Settings{Capabilities: gate.Capabilities(), Guests: []string{"100-200"}, Forbid: []string{"/access", "delete_guest"}, WritesPerHour: 10})
	q := plan(one(gate.KindSnapshot), guest("101", true, nil, nil))
	for b.Loop() {
		p.Plan(context.Background(), q)
	}
}

func BenchmarkNew(b *testing.B) {
	for b.Loop() {
		load(b, Settings{Capabilities: gate.Capabilities(), Guests: []string{"100-200"}, Forbid: []string{"/access", "delete_guest"}, WritesPerHour: 10})
	}
}

// grantedThere is a privilege that a refusal about guest 101 names.
func grantedThere(need []rights.Right) string {
	if i := slices.IndexFunc(need, func(r rights.Right) bool { return r.Place == rights.PlaceGuests }); i >= 0 {
		return need[i].Privilege
	}
	return need[0].Privilege
}

// TestExplainSaysWhatRaises: an explanation takes the text and the command that a plan would bring, and tells of locks.
func TestExplainSaysWhatRaises(t *testing.T) {
	for _, c := range []struct {
		settings Settings
		q        Question
		rung     gate.Rung
		want     []string
	}{
		{Settings{Capabilities: []string{"config"}}, Question{Kinds: []gate.Kind{gate.KindConfig}}, gate.RungRestated, []string{"refused at once (policy.lock_wait is not set)"}},
		{Settings{Capabilities: []string{"config"}, LockWait: "5m"}, Question{Kinds: []gate.Kind{gate.KindConfig}}, gate.RungRestated, []string{"waits up to 5m0s"}},
		{Settings{Capabilities: []string{"config"}, AfterFreeText: map[string]string{"all": "denied"}}, Question{Kinds: []gate.Kind{gate.KindConfig}, Tainted: true}, gate.RungDenied, []string{"after_free_text"}},
		{Settings{Capabilities: []string{"exec"}, StandIn: "phrase", CommandRisk: map[string]string{"high": "denied"}}, Question{Kinds: []gate.Kind{gate.KindExec}, Command: gate.RiskHigh}, gate.RungDenied, []string{"command_risk"}},
		{Settings{Capabilities: []string{"exec"}, StandIn: "phrase", CommandRisk: map[string]string{"high": "denied"}}, Question{Kinds: []gate.Kind{gate.KindExec}, Command: gate.RiskLow}, gate.RungPhrase, nil},
	} {
		p, err := New(Config{Settings: c.settings, Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		c.q.Principal = gate.Principal{Agent: "a", Person: "ann"}
		c.q.Objects = []gate.ObjectFacts{{Object: gate.Object{Kind: gate.ObjectGuest, ID: "101"}, Use: gate.UseActs, Known: true}}
		e := p.Explain(c.q)
		if e.Decision.Rung != c.rung {
			t.Errorf("%+v: %s, want %s: %s", c.q, e.Decision.Rung, c.rung, e.Text())
		}
		for _, want := range c.want {
			if !strings.Contains(e.Text(), want) {
				t.Errorf("%+v: it lacks %q: %s", c.q, want, e.Text())
			}
		}
	}
}
