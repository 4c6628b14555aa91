package policy

import (
	"context"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"castellan/internal/gate"
)

// The property that all others come down to: whatever makes a plan look worse, or the settings tighter, never makes
// the decision weaker.

// strict orders decisions: allowed, after approval by rung, denied. For what stands in, what was asked for comes first.
func strict(d gate.Decision) (asked, got int) {
	switch d.Verdict {
	case gate.VerdictAllow:
		return 0, 0
	case gate.VerdictNeeds:
		return int(max(d.Rung, d.Asked)), int(d.Rung)
	}
	return int(gate.RungDenied), int(gate.RungDenied)
}

func noWeaker(t *rapid.T, what string, before, after gate.Decision) {
	t.Helper()
	a1, g1 := strict(before)
	a2, g2 := strict(after)
	if a2 < a1 || g2 < g1 {
		t.Fatalf("%s: from %+v to %+v", what, before, after)
	}
}

var (
	kinds = func() []gate.Kind {
		var out []gate.Kind
		for _, r := range gate.Table() {
			out = append(out, r.Kind)
		}
		return append(out, "brand_new")
	}()
	someTags  = []string{"web", "db", "prod"}
	somePools = []string{"dev", "ops"}
	someObj   = []gate.ObjectKind{gate.ObjectGuest, gate.ObjectGuest, gate.ObjectGuest, gate.ObjectVolume, gate.ObjectStorage, gate.ObjectNode,
		gate.ObjectPool, gate.ObjectUser, gate.ObjectSite, gate.ObjectTag, gate.ObjectUnknown}
)

func subset[T comparable](t *rapid.T, name string, of []T) []T {
	return rapid.SliceOfDistinct(rapid.SampledFrom(of), rapid.ID[T]).Draw(t, name)
}

// given is a list as settings hold it: absent, or with entries.
func given[T any](list []T) []T {
	if len(list) == 0 {
		return nil
	}
	return list
}

func drawObject(t *rapid.T) gate.ObjectFacts {
	kind := rapid.SampledFrom(someObj).Draw(t, "object kind")
	id := rapid.SampledFrom([]string{"100", "101", "150", "dev", "web", "local:vm-101-disk-0", "x"}).Draw(t, "object id")
	return gate.ObjectFacts{Object: gate.Object{Site: "s", Kind: kind, ID: id}, Use: rapid.SampledFrom([]gate.Use{gate.UseActs, gate.UseNames}).Draw(t, "use"),
		Known: rapid.Bool().Draw(t, "known"), Tags: someTags, Reserved: subset(t, "tags", someTags), Pools: subset(t, "pools", somePools)}
}

func drawSettings(t *rapid.T) Settings {
	s := Settings{ReadOnly: rapid.IntRange(0, 9).Draw(t, "read only") == 0,
		StandIn:       rapid.SampledFrom([]string{"off", "dialog", "phrase"}).Draw(t, "stand in"),
		WritesPerHour: rapid.SampledFrom([]int{0, 0, 5}).Draw(t, "rate"),
		Guests:        given(subset(t, "guests", []string{"100-120", "150"})),
		Tags:          given(subset(t, "scope tags", someTags[:1])), Pools: given(subset(t, "scope pools", somePools[:1])),
		Rungs: map[string]string{}, Targets: map[string]TargetSettings{}, Roles: map[string]RoleSettings{}}
	if rapid.Bool().Draw(t, "most capabilities") {
		s.Capabilities = gate.Capabilities()
	} else {
		s.Capabilities = subset(t, "capabilities", gate.Capabilities())
	}
	for _, k := range subset(t, "rungs of", kinds[:len(kinds)-1]) {
		if k != gate.KindGoverns {
			s.Rungs[string(k)] = rapid.SampledFrom(gate.Rungs()).Draw(t, "rung").String()
		}
	}
	if rapid.Bool().Draw(t, "role") {
		s.Roles["r"] = RoleSettings{Members: []string{"agent:claude"}, Capabilities: subset(t, "role capabilities", gate.Capabilities())}
	}
	return s
}

func drawPlan(t *rapid.T) gate.PlanQuestion {
	q := gate.PlanQuestion{Principal: agent, Operation: rapid.SampledFrom([]string{"guest_power", "delete_guest"}).Draw(t, "operation"), At: noon,
		Writes: map[string]int{"pve": rapid.IntRange(0, 8).Draw(t, "writes")}, Plan: &gate.Plan{ID: "p", Requester: agent}}
	q.Facts.Effect = gate.EffectRead
	q.Facts.Tainted = rapid.Bool().Draw(t, "tainted")
	if rapid.IntRange(0, 5).Draw(t, "governs") == 0 {
		q.Facts.Governs = []string{"step 1"}
		q.Facts.Kinds = []gate.Kind{gate.KindGoverns}
	}
	for range rapid.IntRange(1, 3).Draw(t, "steps") {
		addStep(t, &q)
	}
	return q
}

func addStep(t *rapid.T, q *gate.PlanQuestion) {
	api := rapid.SampledFrom([]string{"POST /nodes/{node}/qemu/{vmid}/status/stop", "DELETE /nodes/{node}/qemu/{vmid}", "PUT /access/acl"}).Draw(t, "api")
	j := gate.Judgement{Operation: api, Effect: gate.EffectRead, Kinds: subset(t, "kinds", kinds)}
	for _, k := range j.Kinds {
		j.Effect = gate.WorseEffect(j.Effect, gate.RowOf(k).Effect)
	}
	step := gate.Step{Number: len(q.Steps) + 1, Target: "pve", Site: "s", API: &gate.Request{Product: "pve", Operation: api}}
	for range rapid.IntRange(0, 3).Draw(t, "objects") {
		o := drawObject(t)
		if slices.ContainsFunc(q.Facts.Objects, func(x gate.ObjectFacts) bool { return x.Object == o.Object }) {
			continue
		}
		j.References = append(j.References, gate.Reference{Object: gate.Object{Kind: o.Object.Kind, ID: o.Object.ID}, Use: o.Use})
		q.Facts.Objects = append(q.Facts.Objects, o)
	}
	step.Judgement = j
	q.Steps = append(q.Steps, step)
	q.Facts.Effect = gate.WorseEffect(q.Facts.Effect, j.Effect)
	for _, k := range stepKinds(j) {
		if !slices.Contains(q.Facts.Kinds, k) {
			q.Facts.Kinds = append(q.Facts.Kinds, k)
		}
	}
}

func mustLoad(t *rapid.T, s Settings) *Policy {
	p, err := New(Config{Settings: s})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestMoreApprovalNeverForbids(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, q := mustLoad(t, drawSettings(t)), drawPlan(t)
		a := p.asker(q.Principal)
		for _, r := range planRequests(q) {
			set, resource, allowed := a.policies(&r), a.resource(&r), false
			for _, rung := range gate.Rungs() {
				got := a.at(&r, resource, set, a.context(&r), rung).allow
				if allowed && !got {
					t.Fatalf("%+v: allowed below %s, denied there", r, rung)
				}
				allowed = got
			}
		}
	})
}

func TestTighterSettingsNeverAllowMore(t *testing.T) {
	ctx := context.Background()
	rapid.Check(t, func(t *rapid.T) {
		s, q := drawSettings(t), drawPlan(t)
		before := mustLoad(t, s).Plan(ctx, q)
		for i := range s.Capabilities {
			off := s
			off.Capabilities = slices.Delete(slices.Clone(s.Capabilities), i, i+1)
			noWeaker(t, "capability "+s.Capabilities[i]+" off", before, mustLoad(t, off).Plan(ctx, q))
		}
		readOnly := s
		readOnly.ReadOnly = true
		noWeaker(t, "read only", before, mustLoad(t, readOnly).Plan(ctx, q))
		forbid := s
		forbid.Forbid = []string{rapid.SampledFrom([]string{"/access", "delete_guest", "stop", "DELETE /nodes/{node}/qemu/{vmid}"}).Draw(t, "forbid")}
		noWeaker(t, "forbid", before, mustLoad(t, forbid).Plan(ctx, q))
		rate := s
		if rate.WritesPerHour == 0 {
			rate.WritesPerHour = 3
		}
		noWeaker(t, "rate", before, mustLoad(t, rate).Plan(ctx, q))
		target := s
		target.Targets = map[string]TargetSettings{"pve": {Capabilities: subset(t, "target capabilities", gate.Capabilities()), WritesPerHour: 4}}
		noWeaker(t, "target", before, mustLoad(t, target).Plan(ctx, q))
		if len(s.Roles) == 0 {
			role := s
			role.Roles = map[string]RoleSettings{"r": {Members: []string{"person:ann"}, Capabilities: subset(t, "new role", gate.Capabilities()), Guests: []string{"100-110"}}}
			noWeaker(t, "role", before, mustLoad(t, role).Plan(ctx, q))
		}
		if s.StandIn != "off" {
			off := s
			off.StandIn = "off"
			noWeaker(t, "stand-in off", before, mustLoad(t, off).Plan(ctx, q))
		}
		if scope, err := parseScope("policy", s.Guests, s.Pools, s.Tags); err == nil && !scope.limits() {
			narrow := s
			narrow.Guests = []string{"100-110"}
			noWeaker(t, "scope", before, mustLoad(t, narrow).Plan(ctx, q))
		}
		window := s
		window.Windows = []string{"sun 00:00-01:00"}
		noWeaker(t, "window", before, mustLoad(t, window).Plan(ctx, q))
	})
}

func TestWorseFactsNeverAllowMore(t *testing.T) {
	ctx := context.Background()
	rapid.Check(t, func(t *rapid.T) {
		p, q := mustLoad(t, drawSettings(t)), drawPlan(t)
		before := p.Plan(ctx, q)
		change := func(what string, f func(q *gate.PlanQuestion)) {
			worse := q
			worse.Facts.Objects, worse.Facts.Kinds = slices.Clone(q.Facts.Objects), slices.Clone(q.Facts.Kinds)
			worse.Steps = slices.Clone(q.Steps)
			f(&worse)
			noWeaker(t, what, before, p.Plan(ctx, worse))
		}
		for i := range q.Facts.Objects {
			change("an object is not known", func(q *gate.PlanQuestion) { q.Facts.Objects[i].Known = false })
			change("an object is not described", func(q *gate.PlanQuestion) { q.Facts.Objects = slices.Delete(q.Facts.Objects, i, i+1) })
		}
		change("another kind in the facts", func(q *gate.PlanQuestion) {
			q.Facts.Kinds = append(q.Facts.Kinds, rapid.SampledFrom(kinds).Draw(t, "more kind"))
		})
		change("another object in the facts", func(q *gate.PlanQuestion) {
			o := drawObject(t)
			if !slices.ContainsFunc(q.Facts.Objects, func(x gate.ObjectFacts) bool { return x.Object == o.Object }) {
				q.Facts.Objects = append(q.Facts.Objects, o)
			}
		})
		change("another step", func(q *gate.PlanQuestion) { addStep(t, q) })
		i := rapid.IntRange(0, len(q.Steps)-1).Draw(t, "step")
		change("another kind of a step", func(q *gate.PlanQuestion) {
			q.Steps[i].Judgement.Kinds = append(slices.Clone(q.Steps[i].Judgement.Kinds), rapid.SampledFrom(kinds).Draw(t, "step kind"))
		})
		change("a worse effect", func(q *gate.PlanQuestion) { q.Steps[i].Judgement.Effect = gate.EffectDestroy })
		change("another reference of a step", func(q *gate.PlanQuestion) {
			if len(q.Steps[i].Judgement.References) == 0 {
				return // naming nothing stands for the whole site, which is worse than anything
			}
			o := drawObject(t)
			refs := slices.Clone(q.Steps[i].Judgement.References)
			q.Steps[i].Judgement.References = append(refs, gate.Reference{Object: gate.Object{Kind: o.Object.Kind, ID: o.Object.ID}, Use: gate.UseActs})
		})
		change("taint", func(q *gate.PlanQuestion) { q.Facts.Tainted = true })
		change("it governs", func(q *gate.PlanQuestion) {
			q.Facts.Governs = append(q.Facts.Governs, "step 1")
			q.Facts.Kinds = append(q.Facts.Kinds, gate.KindGoverns)
		})
		change("it governs, without the kind", func(q *gate.PlanQuestion) { q.Facts.Governs = append(q.Facts.Governs, "step 1") })
		change("more changes before", func(q *gate.PlanQuestion) { q.Writes = map[string]int{"pve": q.Writes["pve"] + 5} })
	})
}

func TestScopeFormsAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Settings{Capabilities: gate.Capabilities(), Guests: given(subset(t, "guests", []string{"100-120", "150"})), Pools: given(subset(t, "pools in scope", somePools)),
			Tags: given(subset(t, "tags in scope", someTags))}
		p, o := mustLoad(t, s), drawObject(t)
		if o.Object.Kind != gate.ObjectGuest {
			t.Skip()
		}
		sees := p.Sees(agent, "pve", o)
		writes := p.Plan(context.Background(), plan(one(gate.KindSnapshot), o)).Verdict == gate.VerdictAllow
		if sees != writes {
			t.Fatalf("%+v: seen %v, may be changed %v", o, sees, writes)
		}
	})
}

func TestDecisionsAreStable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, q := drawSettings(t), drawPlan(t)
		a, b := mustLoad(t, s), mustLoad(t, s)
		if a.Digest() != b.Digest() {
			t.Fatal("one set of settings has two digests")
		}
		x, y := a.Plan(context.Background(), q), b.Plan(context.Background(), q)
		if x.Reason != y.Reason || x.Hint != y.Hint || !slices.Equal(x.Policies, y.Policies) {
			t.Fatalf("two answers to one question:\n%+v\n%+v", x, y)
		}
	})
}

func TestCompiledPoliciesAreValid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSettings(t)
		s.Forbid, s.Windows, s.FourEyes = []string{"/access", "a\"b\\*"}, []string{"mon 01:00-02:00"}, true
		s.Targets["a \"b\" \\"] = TargetSettings{ReadOnly: true, Forbid: []string{"x"}, Capabilities: []string{}, WritesPerHour: 3}
		if errs := Check("compiled", []byte(mustLoad(t, s).Text())); errs != nil {
			t.Fatal(errs)
		}
	})
}

func FuzzSettings(f *testing.F) {
	f.Add("snapshot", "101-200", "dev", "web", "/access", "mon-fri 08:00-18:00", "15m")
	f.Fuzz(func(t *testing.T, capability, guests, pool, tag, forbid, window, ttl string) {
		p, err := New(Config{Settings: Settings{Capabilities: []string{capability}, Guests: []string{guests}, Pools: []string{pool}, Tags: []string{tag},
			Forbid: []string{forbid}, Windows: []string{window}, PlanTTL: ttl}})
		if err != nil {
			return
		}
		// Whatever is taken compiles to policies that decide without an error.
		d := p.Plan(context.Background(), plan([]gate.Kind{gate.KindSnapshot}, guest("101", true, []string{tag}, []string{pool})))
		if len(d.Policies) == 0 && d.Verdict != gate.VerdictDeny || d.Set == "" {
			t.Fatalf("%+v", d)
		}
		if ttl := p.Limits().PlanTTL; ttl < 10*time.Second || ttl > 7*24*time.Hour {
			t.Fatal(ttl)
		}
	})
}
