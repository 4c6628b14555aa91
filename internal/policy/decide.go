package policy

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cedar-policy/cedar-go"

	"castellan/internal/gate"
)

// request is one question to Cedar, apart from the rung: one step, one kind, one object.
type request struct {
	action    string
	operation string
	api       string
	target    string
	product   string
	kind      gate.Kind
	effect    gate.Effect
	object    gate.ObjectFacts // for write
	command   gate.CommandRisk
	tainted   bool
	governs   bool
	reverse   string
	steps     int
	objects   int
	writes    int
	at        time.Time
}

// asker asks for one principal; what does not change between requests is made once.
type asker struct {
	p        *Policy
	who      gate.Principal
	entities cedar.EntityMap
	caller   cedar.EntityUID
}

func (p *Policy) asker(who gate.Principal) *asker {
	a := &asker{p: p, who: who, caller: cedar.NewEntityUID("Caller", cedar.String(who.Key()))}
	roles := append(slices.Clone(who.Roles), p.rules.rolesOf(who)...)
	slices.Sort(roles)
	roles = slices.Compact(roles)
	var parents []cedar.EntityUID
	a.entities = cedar.EntityMap{}
	for _, r := range roles {
		uid := cedar.NewEntityUID("Role", cedar.String(r))
		parents = append(parents, uid)
		a.entities[uid] = cedar.Entity{UID: uid}
	}
	a.entities[a.caller] = cedar.Entity{UID: a.caller, Parents: cedar.NewEntityUIDSet(parents...), Attributes: cedar.NewRecord(cedar.RecordMap{
		"agent": cedar.String(who.Agent), "person": cedar.String(who.Person), "way_in": cedar.String(who.WayIn),
		"strength": cedar.String(who.Strength), "roles": words(roles)})}
	return a
}

func words[T ~string](in []T) cedar.Set {
	values := make([]cedar.Value, len(in))
	for i, w := range in {
		values[i] = cedar.String(w)
	}
	return cedar.NewSet(values...)
}

// answer is what Cedar says of one request at one rung.
type answer struct {
	allow  bool
	ids    []string // what determined it, sorted
	errors []string
}

// at evaluates the request at one rung.
func (a *asker) at(q *request, resource cedar.EntityUID, set cedar.PolicyMap, context cedar.RecordMap, rung gate.Rung) answer {
	context["level"], context["rung"] = cedar.Long(rung), cedar.String(rung.String())
	return authorize(set, a.entities, cedar.Request{Principal: a.caller, Action: cedar.NewEntityUID("Action", cedar.String(q.action)), Resource: resource,
		Context: cedar.NewRecord(context)})
}

// context is what policies can ask of a request, apart from the rung.
func (a *asker) context(q *request) cedar.RecordMap {
	row, known := a.p.rows[q.kind]
	if !known {
		row = a.p.rows[gate.KindUnknown]
	}
	local := q.at.Local()
	return cedar.RecordMap{
		"operation": cedar.String(q.operation), "api": cedar.String(q.api), "asked": cedar.String(asked(q.operation, q.api)),
		"target": cedar.String(q.target), "product": cedar.String(q.product),
		"kind": cedar.String(q.kind), "class": cedar.String(row.Class), "capability": cedar.String(row.Capability), "effect": cedar.String(q.effect),
		"command_risk": cedar.String(q.command), "tainted": cedar.Boolean(q.tainted), "governs": cedar.Boolean(q.governs), "reversible": cedar.String(q.reverse),
		"steps": cedar.Long(q.steps), "objects": cedar.Long(q.objects), "writes_last_hour": cedar.Long(q.writes),
		"in_window": cedar.Boolean(a.p.rules.inWindow(q.at)), "hour": cedar.Long(local.Hour()), "weekday": cedar.String(dayNames[local.Weekday()]),
	}
}

func authorize(set cedar.PolicyMap, entities cedar.EntityMap, r cedar.Request) answer {
	decision, diag := cedar.Authorize(set, entities, r)
	var out answer
	for _, e := range diag.Errors {
		out.errors = append(out.errors, fmt.Sprintf("%s: %s", e.PolicyID, e.Message))
		out.ids = append(out.ids, string(e.PolicyID))
	}
	for _, why := range diag.Reasons {
		out.ids = append(out.ids, string(why.PolicyID))
	}
	slices.Sort(out.ids)
	out.ids = slices.Compact(out.ids)
	slices.Sort(out.errors)
	// A forbid whose condition fails is skipped by Cedar; here any failure denies.
	out.allow = decision == cedar.Allow && len(out.errors) == 0
	return out
}

func (r *rules) inWindow(at time.Time) bool {
	if len(r.windows) == 0 {
		return true
	}
	return slices.ContainsFunc(r.windows, func(w window) bool { return w.has(at.Local()) })
}

// verdict is the lowest rung at which a request and every higher rung allow.
type verdict struct {
	rung gate.Rung // RungDenied when none
	why  answer    // of the highest rung that denies
	ids  []string  // what determined the rung: what denies below it, and what allows at it
}

// ladder walks down from the highest rung to the first that denies.
func (a *asker) ladder(q *request) verdict {
	set, resource, context := a.policies(q), a.resource(q), a.context(q)
	v := verdict{rung: gate.RungDenied}
	rungs := gate.Rungs()
	for i := len(rungs) - 1; i >= 0; i-- {
		got := a.at(q, resource, set, context, rungs[i])
		if !got.allow {
			v.why = got
			v.ids = append(v.ids, got.ids...)
			return v
		}
		v.rung, v.ids = rungs[i], got.ids
	}
	return v
}

func (a *asker) policies(q *request) cedar.PolicyMap {
	if q.action == "call" || q.action == "write" {
		if m, ok := a.p.kinds[q.kind]; ok {
			return m
		}
	}
	return a.p.sets[q.action]
}

// resource puts what is asked about among the entities.
func (a *asker) resource(q *request) cedar.EntityUID {
	if q.action != "write" {
		uid := cedar.NewEntityUID("Target", cedar.String(q.target))
		a.entities[uid] = cedar.Entity{UID: uid, Attributes: cedar.NewRecord(cedar.RecordMap{"name": cedar.String(q.target)})}
		return uid
	}
	o := q.object
	uid := cedar.NewEntityUID("Object", cedar.String(o.Object.Site+"\n"+o.Object.String()))
	tags, reserved, pools, title := lower(o.Tags), lower(o.Reserved), o.Pools, o.Name
	if !o.Known { // what is not known of surely must not be judged by what somebody says of it
		tags, reserved, pools, title = nil, nil, nil, ""
	}
	a.entities[uid] = cedar.Entity{UID: uid, Attributes: cedar.NewRecord(cedar.RecordMap{
		"kind": cedar.String(o.Object.Kind), "name": cedar.String(o.Object.ID), "site": cedar.String(o.Object.Site), "title": cedar.String(title),
		"vmid": cedar.Long(vmid(o.Object)), "known": cedar.Boolean(o.Known), "use": cedar.String(useOf(o.Use)),
		"backup_age": backupAge(o, q.at), "tags": words(tags), "reserved_tags": words(reserved), "pools": words(pools), "params": words(o.Params)})}
	return uid
}

func lower(words []string) []string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = strings.ToLower(w)
	}
	return out
}

// backupAge is in whole minutes; never and not known are more than any age.
func backupAge(o gate.ObjectFacts, now time.Time) cedar.Long {
	if o.BackedUp.IsZero() || now.IsZero() || !o.Known {
		return math.MaxInt64
	}
	return cedar.Long(max(0, now.Sub(o.BackedUp)/time.Minute))
}

// useOf takes what is not clear as acting.
func useOf(u gate.Use) gate.Use {
	if u == gate.UseNames {
		return u
	}
	return gate.UseActs
}

// Call decides on principal, operation and target before anything is looked at. A change is let through when one of
// its kinds can be allowed; its plan decides.
func (p *Policy) Call(_ context.Context, q gate.CallQuestion) gate.Decision {
	if q.Operation == nil {
		return p.deny("the operation is missing", "")
	}
	key := fmt.Sprintf("%q %q %q %q %q %q %q %q %v %v %d", q.Principal.Agent, q.Principal.Person, q.Principal.WayIn, q.Principal.Strength, q.Principal.Roles,
		q.Operation.Name, q.Operation.Product, q.Target, q.Operation.Effect, q.Operation.Kinds, q.At.Unix()/60)
	if q.Tainted {
		key += " tainted"
	}
	if d, ok := p.calls.get(key); ok {
		return d
	}
	d := p.call(q)
	p.calls.put(key, d)
	return d
}

// callCache keeps decisions of Call: everything that they rest on is in the key, time by the minute.
type callCache struct {
	mu   sync.Mutex
	kept map[string]gate.Decision
}

const maxCached = 1000

func (c *callCache) get(key string) (gate.Decision, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d, ok := c.kept[key]
	return d, ok
}

func (c *callCache) put(key string, d gate.Decision) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kept == nil || len(c.kept) >= maxCached {
		c.kept = map[string]gate.Decision{}
	}
	c.kept[key] = d
}

func (p *Policy) call(q gate.CallQuestion) gate.Decision {
	a := p.asker(q.Principal)
	base := request{action: "read", operation: q.Operation.Name, target: q.Target, product: q.Operation.Product, kind: gate.KindRead,
		effect: gate.EffectRead, tainted: q.Tainted, reverse: "yes", at: q.At}
	// Composers and the door to every operation have no kind of their own: what they plan is decided when it is planned.
	if q.Operation.Effect == "" || len(q.Operation.Kinds) == 0 || q.Operation.Effect == gate.EffectRead && !slices.ContainsFunc(q.Operation.Kinds, switched) {
		v := a.ladder(&base)
		if v.rung == gate.RungDenied {
			return p.refuse(&base, v.why)
		}
		return gate.Decision{Verdict: gate.VerdictAllow, Set: p.digest, Policies: v.ids}
	}
	base.action, base.effect = "call", q.Operation.Effect
	var first *gate.Decision
	for _, k := range q.Operation.Kinds {
		one := base
		one.kind = k
		v := a.ladder(&one)
		var d gate.Decision
		if v.rung == gate.RungDenied {
			d = p.refuse(&one, v.why)
		} else {
			d = p.settle(v.rung, gate.RungNone, v.ids, k == gate.KindGoverns, nil)
		}
		if d.Verdict != gate.VerdictDeny {
			return gate.Decision{Verdict: gate.VerdictAllow, Set: p.digest, Policies: d.Policies}
		}
		if first == nil {
			first = &d
		}
	}
	return *first
}

// switched says whether a row is on only where its capability is: reading may be so too.
func switched(k gate.Kind) bool { return gate.RowOf(k).Capability != "" }

// maxRequests bounds how many different questions one plan may make.
const maxRequests = 20_000

// Plan decides on facts and every step: each (step, kind, object) must be allowed.
func (p *Policy) Plan(_ context.Context, q gate.PlanQuestion) gate.Decision {
	requests := planRequests(q)
	if len(requests) > maxRequests {
		return p.deny(fmt.Sprintf("the plan raises %d questions, more than %d: make several plans", len(requests), maxRequests), "Make several smaller plans.")
	}
	if len(requests) == 0 {
		return p.deny("the plan has no steps and touches nothing that is known", "Plan anew.")
	}
	a := p.asker(q.Principal)
	need, ids := gate.RungNone, []string(nil)
	own := gate.RungNone // the highest that is asked for and can be had as it is
	governs := len(q.Facts.Governs) > 0 || slices.Contains(q.Facts.Kinds, gate.KindGoverns)
	for i := range requests {
		r := &requests[i]
		v := a.ladder(r)
		if v.rung == gate.RungDenied {
			return p.refuse(r, v.why)
		}
		if v.rung <= p.highest {
			own = max(own, v.rung)
		}
		switch {
		case v.rung > need || ids == nil:
			need, ids = v.rung, v.ids
		case v.rung == need:
			ids = append(ids, v.ids...)
		}
	}
	slices.Sort(ids)
	return p.settle(need, own, slices.Compact(ids), governs, q.Facts.Governs)
}

// planRequests lists what a plan asks, each different question once.
func planRequests(q gate.PlanQuestion) []request {
	known := map[gate.Object]gate.ObjectFacts{}
	for _, o := range q.Facts.Objects {
		if old, twice := known[o.Object]; twice {
			o = worse(old, o)
		}
		known[o.Object] = o
	}
	base := request{action: "write", operation: q.Operation, tainted: q.Facts.Tainted, reverse: q.Facts.Reversible,
		governs: len(q.Facts.Governs) > 0 || slices.Contains(q.Facts.Kinds, gate.KindGoverns),
		steps:   len(q.Steps), objects: len(q.Facts.Objects), at: q.At, effect: q.Facts.Effect}
	type question struct {
		target, api string
		kind        gate.Kind
		effect      gate.Effect
		object      gate.Object
		use         gate.Use
		command     gate.CommandRisk
	}
	var out []request
	asked := map[question]bool{}
	kinds, objects := map[gate.Kind]bool{}, map[gate.Object]bool{}
	ask := func(r request) {
		key := question{r.target, r.api, r.kind, r.effect, r.object.Object, r.object.Use, r.command}
		if !asked[key] {
			asked[key] = true
			out = append(out, r)
		}
	}
	for _, s := range q.Steps { // what is asked of the whole plan is asked of its worst command
		base.command = base.command.Worse(s.Judgement.CommandRisk())
	}
	for _, s := range q.Steps {
		r := base
		r.command = s.Judgement.CommandRisk()
		r.target, r.effect, r.api = s.Target, s.Judgement.Effect, s.Judgement.Operation
		if s.API != nil {
			r.api, r.product = s.API.Operation, s.API.Product
		}
		if r.effect == "" {
			r.effect = gate.EffectDestroy
		}
		r.writes = q.Writes[s.Target]
		touched := touched(s, known)
		for _, k := range stepKinds(s.Judgement) {
			kinds[k] = true
			for _, o := range touched {
				objects[o.Object] = true
				r.kind, r.object = k, o
				ask(r)
			}
		}
	}
	// What the facts hold beyond the steps: kinds that were computed (governs), objects that no step names.
	var target string
	if len(q.Steps) > 0 {
		target = q.Steps[0].Target
	}
	for _, k := range q.Facts.Kinds {
		all := q.Facts.Objects
		if len(all) == 0 {
			all = []gate.ObjectFacts{whole}
		}
		for _, o := range all {
			if kinds[k] && (objects[o.Object] || len(q.Facts.Objects) == 0) {
				continue
			}
			r := base
			r.target, r.kind, r.object, r.writes = target, k, o, q.Writes[target]
			ask(r)
		}
	}
	return out
}

// whole stands for the object of a request that names none.
var whole = gate.ObjectFacts{Object: gate.Object{Kind: gate.ObjectSite}, Use: gate.UseActs}

func touched(s gate.Step, known map[gate.Object]gate.ObjectFacts) []gate.ObjectFacts {
	var out []gate.ObjectFacts
	for _, ref := range s.Judgement.References {
		o := ref.Object
		o.Site = s.Site
		f, ok := known[o]
		if !ok {
			if f, ok = known[ref.Object]; !ok {
				f = gate.ObjectFacts{Object: o}
			}
		}
		f.Use = useOf(ref.Use)
		out = append(out, f)
	}
	if len(out) == 0 {
		return []gate.ObjectFacts{whole}
	}
	return out
}

// worse joins two descriptions of one object: only what both know counts.
func worse(a, b gate.ObjectFacts) gate.ObjectFacts {
	common := func(x, y []string) []string {
		return slices.DeleteFunc(slices.Clone(x), func(w string) bool { return !slices.Contains(y, w) })
	}
	a.Known = a.Known && b.Known
	a.Tags, a.Pools, a.Reserved = common(a.Tags, b.Tags), common(a.Pools, b.Pools), common(a.Reserved, b.Reserved)
	if b.BackedUp.Before(a.BackedUp) {
		a.BackedUp = b.BackedUp
	}
	if useOf(b.Use) == gate.UseActs {
		a.Use = gate.UseActs
	}
	return a
}

// stepKinds are the rows that a step falls under. A step whose effect is worse than all its rows say was not judged.
func stepKinds(j gate.Judgement) []gate.Kind {
	kinds := j.Kinds
	worst := gate.EffectRead
	for _, k := range kinds {
		worst = gate.WorseEffect(worst, gate.RowOf(k).Effect)
	}
	if len(kinds) == 0 || gate.WorseEffect(worst, j.Effect) != worst {
		kinds = append(slices.Clone(kinds), gate.KindUnknown)
	}
	return kinds
}

// named lists policies by id, with why they hold where they say it.
func (p *Policy) named(ids []string) string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = id
		if s := p.own[id]; s.reason != "" {
			out[i] += ": " + s.reason
		}
	}
	return strings.Join(out, ", ")
}

// settle turns the rung that a plan takes into a decision that this installation can keep. What stands in is never less
// than own, which another part of the plan asks for and which can be had.
func (p *Policy) settle(need, own gate.Rung, ids []string, governs bool, why []string) gate.Decision {
	d := gate.Decision{Verdict: gate.VerdictNeeds, Rung: need, Policies: ids, Set: p.digest}
	if need == gate.RungNone {
		d.Verdict = gate.VerdictAllow
		return d
	}
	if need <= p.highest {
		d.Reason = fmt.Sprintf("policy asks for %s (%s)", need, p.named(ids))
		return d
	}
	if governs {
		out := p.deny("it changes what castellan itself depends on ("+strings.Join(why, "; ")+"), which takes "+need.String()+
			"; this installation has at most "+p.highest.String()+", and policy.stand_in never stands for that",
			"A person makes this change in Proxmox itself.")
		out.Policies = ids
		return out
	}
	if need >= gate.RungPerson && p.rules.standIn != gate.RungDenied {
		d.Rung, d.Asked = max(p.rules.standIn, own), need
		d.Reason = fmt.Sprintf("policy asks for %s (%s); policy.stand_in = %q stands for it, since one account holds agent, keys and policy",
			need, p.named(ids), p.rules.standIn)
		return d
	}
	out := p.deny(fmt.Sprintf("it takes the approval %s, which this installation cannot have (at most %s), and policy.stand_in is off", need, p.highest),
		`Whoever may edit the configuration sets policy.stand_in = "dialog" (or "phrase"), or a lower rung for this kind in policy.rungs.`)
	out.Policies = ids
	return out
}

func (p *Policy) deny(reason, hint string) gate.Decision {
	return gate.Decision{Verdict: gate.VerdictDeny, Rung: gate.RungDenied, Set: p.digest, Reason: reason, Hint: hint}
}

// Approve decides whether the approver may approve this plan at the rung.
func (p *Policy) Approve(_ context.Context, q gate.PlanQuestion, approver gate.Principal, rung gate.Rung) gate.Decision {
	if q.Plan == nil || rung < gate.RungNone || rung >= gate.RungDenied {
		return p.deny("there is nothing to approve at this rung", "Plan anew.")
	}
	a := p.asker(approver)
	asker := p.asker(q.Plan.Requester)
	for uid, e := range asker.entities {
		if _, there := a.entities[uid]; !there {
			a.entities[uid] = e
		}
	}
	plan := cedar.NewEntityUID("Plan", cedar.String(q.Plan.ID))
	a.entities[plan] = cedar.Entity{UID: plan, Attributes: cedar.NewRecord(cedar.RecordMap{"requester": asker.caller})}
	got := authorize(p.sets["approve"], a.entities, cedar.Request{Principal: a.caller, Action: cedar.NewEntityUID("Action", "approve"), Resource: plan,
		Context: cedar.NewRecord(cedar.RecordMap{
			"operation": cedar.String(q.Operation), "effect": cedar.String(q.Facts.Effect), "kinds": words(q.Facts.Kinds),
			"governs": cedar.Boolean(len(q.Facts.Governs) > 0), "level": cedar.Long(rung), "rung": cedar.String(rung.String()),
			"requester_agent": cedar.String(q.Plan.Requester.Agent), "requester_person": cedar.String(q.Plan.Requester.Person)})})
	if !got.allow {
		return p.refuse(&request{action: "approve", operation: q.Operation, kind: ""}, got)
	}
	return gate.Decision{Verdict: gate.VerdictAllow, Policies: got.ids, Set: p.digest}
}
