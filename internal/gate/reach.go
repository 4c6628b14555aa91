package gate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Walker finds what a plan would hit beyond what its requests name. It never fails: what it could not read is in its
// answer, and counts as the worst that could be there.
type Walker interface {
	Walk(ctx context.Context, v View, q WalkQuestion) Reach
}

// WalkQuestion is what a walk starts from. Steps that are given are walked, in their order; Before are those that come
// before them in the plan and are taken as done.
type WalkQuestion struct {
	Principal Principal
	Before    []Step
	Steps     []Step
	Fresh     bool // just before a step: what was read for the plan is too old
}

// Reach is what a plan would hit, as the estate showed it.
type Reach struct {
	Hits []Hit `json:"hits,omitempty"`
	// Unread names what could not be read, and why: each is also a hit where it matters.
	Unread []string `json:"unread,omitempty"`
	// Unwalked names the operations for which no walk is known: nothing is said of what depends on what they change.
	Unwalked []string  `json:"unwalked,omitempty"`
	Oldest   time.Time `json:"oldest,omitzero"` // when the oldest of what it rests on was read
}

// Hit is one thing that happens beyond what a request says.
type Hit struct {
	Step   int      `json:"step"`
	Class  string   `json:"class"` // what kind of thing: "stops", "loses_disk", "lockout", ...
	Weight Weight   `json:"weight"`
	Object Object   `json:"object"`
	Way    []Object `json:"way,omitempty"` // from what the step acts on to the object
	Text   string   `json:"text"`          // one line, made of typed facts and bounded identifiers
	// Unknown: it could not be read whether it is so. It counts as if it were.
	Unknown bool `json:"unknown,omitempty"`
	// Kinds are the rows of the table under which the plan falls for it, beside those of its requests.
	Kinds []Kind `json:"kinds,omitempty"`
	// Matter tells apart what comes into force: with another one it is another hit, though class and object are the same.
	Matter string `json:"matter,omitempty"`
	// Renamed: how a guest is called before and after, or only after where it is made by it.
	Renamed []string `json:"renamed,omitempty"`
	// Blocks: Proxmox itself will refuse the step for it.
	Blocks bool `json:"blocks,omitempty"`
	// Refused: castellan itself never does this, whoever approves.
	Refused bool `json:"refused,omitempty"`
}

// Weight says how much a hit matters.
type Weight string

// The weights. A note says what an administrator would ask; a caution is something lost or interrupted that comes back;
// a danger is data, access or a service that may not.
const (
	WeightNote    Weight = "note"
	WeightCaution Weight = "caution"
	WeightDanger  Weight = "danger"
)

var weights = []Weight{WeightNote, WeightCaution, WeightDanger}

// Heavier compares weights; a word that is not known weighs most.
func (w Weight) Heavier(than Weight) bool { return w.rank() > than.rank() }

func (w Weight) rank() int {
	if i := slices.Index(weights, w); i >= 0 {
		return i
	}
	return len(weights)
}

// forget tells an estate that keeps what it has read that a step has changed, or may have changed, what it touches.
func (g *Gate) forget(s *Step) {
	e, ok := g.c.Estate.(interface {
		Forget(target string, touched []Object)
	})
	if !ok {
		return
	}
	var touched []Object
	for _, r := range s.Judgement.References {
		touched = append(touched, r.Object)
	}
	e.Forget(s.Target, touched)
}

// confirm lets a step that may lock somebody out end only when castellan has got in once more after what it changed is
// surely in force, by a connection of its own.
func (g *Gate) confirm(p *Plan) {
	check := Condition{Name: "castellan still gets in", Read: Read{Operation: "GET /version"}, Pointer: "/version", Rule: RulePresent}
	for _, h := range p.Facts.Reach.Hits {
		if !slices.Contains(h.Kinds, KindLockout) || h.Step < 1 || h.Step > len(p.Steps) {
			continue
		}
		s := &p.Steps[h.Step-1]
		had := func(s Step) bool {
			return slices.ContainsFunc(s.Verify, func(c Condition) bool { return c.Name == check.Name })
		}
		if s.API == nil || s.API.Product != "pve" || had(*s) {
			continue
		}
		if slices.ContainsFunc(p.Steps[h.Step:], func(later Step) bool {
			return later.Wait.Kind == WaitSoak && later.Target == s.Target && later.Part == s.Part && later.When == (When{}) && had(later)
		}) {
			continue // the plan itself looks after all of its steps
		}
		if s.Wait.Kind == WaitNone {
			s.Wait = Wait{Kind: WaitSoak, Limit: g.c.Soak}
		}
		s.Verify = append(slices.Clip(s.Verify), check)
	}
}

// renewer is a driver that can be told to make new connections for what comes next.
type renewer interface{ Renew(target string) }

// maxReached bounds how many reached objects policy judges one by one; with more, the whole site counts as reached.
const maxReached = 200

// walkTime bounds a walk; what it has not read by then is unread.
const walkTime = 20 * time.Second

// stepTime bounds a walk just before a step, when nothing counts that was read before: a large site was perhaps planned on with
// what several looks had read.
const stepTime = 3 * time.Minute

// walk puts into the facts what the steps would hit.
func (g *Gate) walk(ctx context.Context, p *Plan) {
	if g.c.Walker == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, walkTime)
	defer cancel()
	v := g.wholeView(p.Requester)
	v.most, v.walk = maxWalkReads, true
	p.Facts.Reach = g.c.Walker.Walk(ctx, v, WalkQuestion{Principal: p.Requester, Steps: p.Steps})
	g.judgeHits(ctx, v, p)
}

// judgeHits adds what the hits are judged by: their kinds, and the guests that they hit.
func (g *Gate) judgeHits(ctx context.Context, v *view, p *Plan) {
	f := &p.Facts
	_, tags, titles := g.rests(ctx)
	for i := range f.Reach.Hits {
		h := &f.Reach.Hits[i]
		h.Text = clip(line(h.Text), 400)
		if givesTag(*h, tags) || renames(titles, h.Renamed) {
			h.Kinds = union(slices.Clone(h.Kinds), []Kind{KindGoverns})
		}
		if slices.Contains(h.Kinds, KindGoverns) {
			h.Weight = WeightDanger
		}
	}
	f.Reach.order()
	had := map[Object]bool{}
	for _, o := range f.Objects {
		had[o.Object] = true
	}
	byTarget, targets := map[string][]Reference{}, []string{}
	count := 0
	for i := range f.Reach.Hits {
		h := &f.Reach.Hits[i]
		f.Kinds = union(f.Kinds, h.Kinds)
		if slices.Contains(h.Kinds, KindGoverns) {
			f.Governs = union(f.Governs, []string{fmt.Sprintf("step %d: %s", h.Step, h.Text)})
			f.Self = true
		}
		if h.Step < 1 || h.Step > len(p.Steps) {
			continue
		}
		s := p.Steps[h.Step-1]
		h.Object.Site = s.Site
		if h.Weight == WeightNote || h.Object.Kind != ObjectGuest && h.Object.Kind != ObjectVolume || had[h.Object] {
			continue
		}
		had[h.Object] = true
		if count++; count > maxReached {
			continue
		}
		if byTarget[s.Target] == nil {
			targets = append(targets, s.Target)
		}
		byTarget[s.Target] = append(byTarget[s.Target], Reference{Object: h.Object, Use: UseHits})
	}
	for _, t := range targets {
		f.Objects = append(f.Objects, g.described(ctx, v, t, byTarget[t])...)
	}
	if count > maxReached {
		f.Objects = append(f.Objects, ObjectFacts{Object: Object{Site: p.Steps[0].Site, Kind: ObjectSite}, Use: UseHits})
	}
}

// described is what the estate tells of objects; when it cannot be asked, nothing is known and policy takes the worst.
func (g *Gate) described(ctx context.Context, v View, target string, refs []Reference) []ObjectFacts {
	out, err := g.c.Estate.Describe(ctx, v, target, refs)
	if err != nil || len(out) != len(refs) {
		out = make([]ObjectFacts, len(refs))
	}
	for i := range out {
		out[i].Object, out[i].Use = refs[i].Object, refs[i].Use
	}
	if w, ok := v.(*view); ok {
		w.countTags(ctx, target, out, true)
	}
	return out
}

// takes is how high the approval is for which a hit asks; what governs comes above all.
func (h Hit) takes() int {
	most := 0
	for _, k := range h.Kinds {
		most = max(most, int(RowOf(k).Rung))
		if k == KindGoverns {
			most = max(most, int(RungDenied))
		}
	}
	return most
}

// order puts the gravest first, equal ones by step, class and object, so that equal plans have equal digests.
func (r *Reach) order() {
	slices.SortStableFunc(r.Hits, func(a, b Hit) int {
		if c := b.Weight.rank() - a.Weight.rank(); c != 0 {
			return c
		}
		if c := b.takes() - a.takes(); c != 0 {
			return c
		}
		if c := a.Step - b.Step; c != 0 {
			return c
		}
		if c := strings.Compare(a.Class, b.Class); c != 0 {
			return c
		}
		return strings.Compare(a.Object.String(), b.Object.String())
	})
	slices.Sort(r.Unread)
	r.Unread = slices.Compact(r.Unread)
	slices.Sort(r.Unwalked)
	r.Unwalked = slices.Compact(r.Unwalked)
}

// essence is the part of the hits that makes two plans different: figures in the texts move by themselves.
func (r Reach) essence() any {
	out := make([]map[string]any, len(r.Hits))
	for i, h := range r.Hits {
		out[i] = map[string]any{"step": h.Step, "class": h.Class, "weight": h.Weight, "object": h.Object, "unknown": h.Unknown, "kinds": h.Kinds, "matter": h.Matter}
		if h.Blocks {
			out[i]["blocks"] = true
		}
	}
	return out
}

// summary says in few words what is hit, for the plan's sentence: dangers, and cautions for others than what the steps act
// on anyway, counted by class.
func (r Reach) summary(steps []Step) string {
	type line struct {
		class   string
		objects []string
		unknown bool
	}
	acts, said := map[Object]bool{}, map[string]bool{}
	for _, s := range steps {
		for _, ref := range s.Judgement.References {
			if ref.Object.Site = s.Site; ref.Use == UseActs {
				acts[ref.Object] = true
			}
		}
	}
	var lines []*line
	by := map[string]*line{}
	for _, h := range r.Hits {
		if h.Weight == WeightNote || h.Weight == WeightCaution && acts[h.Object] {
			continue
		}
		key := h.Class
		if h.Unknown {
			key += "?"
		}
		l := by[key]
		if l == nil {
			l = &line{class: h.Class, unknown: h.Unknown}
			by[key] = l
			lines = append(lines, l)
		}
		if name := h.Object.String(); !said[key+" "+name] {
			said[key+" "+name] = true
			l.objects = append(l.objects, name)
		}
	}
	var parts []string
	for _, l := range lines {
		const most = 4
		text := strings.ReplaceAll(l.class, "_", " ") + ": " + strings.Join(l.objects[:min(most, len(l.objects))], ", ")
		if n := len(l.objects) - most; n > 0 {
			text += fmt.Sprintf(" and %d more", n)
		}
		if l.unknown {
			text += " (could not be read, so perhaps)"
		}
		parts = append(parts, text)
	}
	if len(parts) == 0 {
		return ""
	}
	return "; hits beyond this: " + clip(strings.Join(parts, "; "), 700)
}

// refused begins the plan's sentence where Proxmox, as things stand, refuses a step of it. A step that an earlier one of the
// same plan prepares is not said to be refused: what holds it up now may be gone by then.
func (r Reach) refused(steps []Step) string {
	var said []string
	more := 0
	for _, h := range r.Hits {
		if !h.Blocks || h.Unknown || h.Step < 1 || h.Step > len(steps) || prepared(steps[:h.Step-1], steps[h.Step-1]) {
			continue
		}
		text := clip(h.Text, 160)
		if len(steps) > 1 {
			text = fmt.Sprintf("step %d, %s", h.Step, text)
		}
		switch {
		case slices.Contains(said, text):
		case len(said) < 2:
			said = append(said, text)
		default:
			more++
		}
	}
	if len(said) == 0 {
		return ""
	}
	if more > 0 {
		said = append(said, fmt.Sprintf("and %d more reasons", more))
	}
	return "As things stand Proxmox will refuse this (" + strings.Join(said, "; ") + "). Asked for is: "
}

// prepared says whether an earlier step acts on something that a step acts on as well.
func prepared(before []Step, s Step) bool {
	acts := func(s Step, o Object) bool {
		return slices.ContainsFunc(s.Judgement.References, func(r Reference) bool { return r.Use == UseActs && r.Object.Kind == o.Kind && r.Object.ID == o.ID })
	}
	return slices.ContainsFunc(before, func(b Step) bool {
		return b.Target == s.Target && slices.ContainsFunc(s.Judgement.References, func(r Reference) bool { return r.Use == UseActs && acts(b, r.Object) })
	})
}

// walkNow walks step i again with what is there now. Kinds and objects that were not there when the plan was judged come
// into its facts, so that policy sees them; a danger that the approver was not shown, or that falls under more than was
// judged, is an error.
func (g *Gate) walkNow(ctx context.Context, since time.Time, p *Plan, i int) *Error {
	if g.c.Walker == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()
	v := g.freshView(p.Requester, since)
	v.most, v.walk = maxWalkReads, true
	seen, judged := p.Facts.Reach, p.Facts.Kinds
	p.Facts.Reach = g.c.Walker.Walk(ctx, v, WalkQuestion{Principal: p.Requester, Before: p.Steps[:i], Steps: p.Steps[i : i+1], Fresh: true})
	p.Facts.Kinds = slices.Clone(p.Facts.Kinds)
	g.judgeHits(ctx, v, p)
	for _, h := range p.Facts.Reach.Hits {
		more := slices.ContainsFunc(h.Kinds, func(k Kind) bool { return !slices.Contains(judged, k) })
		if more || !seen.covers(h) && (h.Weight == WeightDanger || h.Matter != "" && h.Weight != WeightNote) {
			if h.Unknown {
				return Fail(ErrStale, "Look whether the site answers, and plan anew: what cannot be read counts as the worst then.", "what could be read when it was planned could not be read now, so it may hit more than was approved: %s", h.Text)
			}
			return Fail(ErrStale, "Plan anew to see what it would do now.", "it would now hit more than was approved: %s", h.Text)
		}
	}
	return nil
}

// refusal is the first hit for which castellan itself refuses.
func (r Reach) refusal() *Hit {
	for i := range r.Hits {
		if r.Hits[i].Refused {
			return &r.Hits[i]
		}
	}
	return nil
}

// covers says whether a hit was there already: the same one, or one of its class that could not be read.
func (r Reach) covers(h Hit) bool {
	return slices.ContainsFunc(r.Hits, func(o Hit) bool {
		return o.Step == h.Step && o.Class == h.Class && !h.Weight.Heavier(o.Weight) && (o.Unknown || o.Object == h.Object && o.Matter == h.Matter)
	})
}
