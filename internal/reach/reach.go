// Package reach finds what a plan would hit beyond what its requests name: a blast radius, as a walk over the estate's
// graph. Requests are first read as changes (a storage goes, a node stops, a setting comes into force); each change is
// then walked, whoever's request it comes from. What cannot be read counts as the worst that could be there.
package reach

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"castellan/internal/catalog"
	"castellan/internal/estate"
	"castellan/internal/gate"
)

// Config is what a Walker is made of.
type Config struct {
	Estate  *estate.Estate
	Catalog *catalog.Catalog // judges settings that come into force by another way than a request for them
	Self    Self
}

// Self says where castellan itself lives and who has to keep getting in. Each field may be empty: then nothing is known
// of it beyond what the site itself shows.
type Self struct {
	Guests    []string // guest ids, per target as "target:id" or "id" for every one: castellan's own, its proxy, its identity provider, its alert targets
	Nodes     []string // nodes that it runs on itself
	Storages  []string // storages that hold its state or its anchors
	Operators []netip.Prefix
	// Realms by target are those with whose passwords people sign in at castellan.
	Realms map[string][]string
	// Own are the addresses from which castellan reaches a target; Approvers those from which people approve.
	Own       func(ctx context.Context, target string) []netip.Addr
	Approvers func(ctx context.Context) []netip.Addr
	// MACs of the machine that castellan runs on: a guest with one of them is castellan's own.
	MACs []string
	// Uses are the addresses of what castellan's settings name: its reverse proxy, identity providers, database, anchors,
	// where alerts go. A guest with one of them as a fixed address is one that castellan depends on.
	Uses func(ctx context.Context) []netip.Addr
}

// Walker implements gate.Walker.
type Walker struct{ c Config }

// New makes a Walker.
func New(c Config) (*Walker, error) {
	if c.Estate == nil {
		return nil, fmt.Errorf("make walker: Estate is missing")
	}
	if c.Catalog == nil {
		return nil, fmt.Errorf("make walker: Catalog is missing")
	}
	return &Walker{c}, nil
}

var _ gate.Walker = (*Walker)(nil)

// How old what the estate has read may be: for a plan, and just before a step.
const (
	planAge  = 5 * time.Minute
	applyAge = 15 * time.Second
)

// Walk walks the steps that are given.
func (k *Walker) Walk(ctx context.Context, v gate.View, q gate.WalkQuestion) gate.Reach {
	var out gate.Reach
	surveys, older, filled := map[string]*estate.Survey{}, map[string]*kept{}, map[string]map[string]int64{}
	age := planAge
	if q.Fresh {
		age = applyAge
	}
	var before, planned []gate.Step
	for _, step := range q.Before {
		step, _ = placed(v, step)
		before = append(before, step)
	}
	for _, asked := range q.Steps {
		if asked.API == nil {
			continue
		}
		step, at := placed(v, asked)
		if asked.Judgement.Effect == gate.EffectRead { // what it waits for has come to pass for those after it
			before = append(before, step)
			continue
		}
		s := surveys[step.Target]
		if s == nil {
			var err error
			if s, err = k.c.Estate.Survey(ctx, at, step.Target, age); err != nil {
				out.Hits = append(out.Hits, gate.Hit{Step: step.Number, Class: ClassUnwalked, Weight: gate.WeightDanger, Object: gate.Object{Kind: gate.ObjectSite},
					Unknown: true, Kinds: []gate.Kind{gate.KindOutage}, Text: "the site could not be looked at: " + err.Error()})
				continue
			}
			surveys[step.Target], older[step.Target], filled[step.Target] = s, &kept{}, map[string]int64{}
		}
		w := &walk{ctx: ctx, v: at, s: s, kept: older[step.Target], cat: k.c.Catalog, self: k.c.Self, step: step, before: of(step.Target, before), out: &out, had: map[hitKey][]int{}, lost: map[gate.Object]bool{}, spoken: map[string]int64{}, worst: map[string]dim{}, filled: filled[step.Target]}
		if step.Target != asked.Target {
			w.atNode()
			out.Unread = union(out.Unread, []string{"what HA does with guests of " + clean(step.Target) + ": a Datacenter Manager does not tell it"})
		}
		filled := maps.Clone(w.filled)
		w.run()
		w.filled, filled = filled, w.filled
		w.foresee(of(step.Target, planned)) // what was done before the walk is there to be read
		w.filled = filled
		if step.Target != asked.Target && strings.HasSuffix(step.API.Operation, "migrate") {
			w.missing(object(gate.ObjectGuest, step.API.Text("vmid")), "what HA keeps together with it", dim{ClassMoves, gate.WeightCaution, nil}, dim{ClassHA, gate.WeightCaution, nil})
		}
		before, planned = append(before, step), append(planned, step)
	}
	var looks []*estate.Survey
	for _, target := range slices.Sorted(maps.Keys(surveys)) {
		if looks = append(looks, surveys[target]); older[target].s != nil {
			looks = append(looks, older[target].s)
		}
	}
	said := map[string]bool{}
	for _, s := range looks {
		for _, g := range s.Gaps() {
			text := string(g.Part)
			if g.Of != "" {
				text += " of " + g.Of
			}
			if text += ": " + g.Why; !said[text] {
				said[text] = true
				out.Unread = append(out.Unread, text)
			}
		}
		if at := s.Oldest(); !at.IsZero() && (out.Oldest.IsZero() || at.Before(out.Oldest)) {
			out.Oldest = at
		}
	}
	return out
}

// of picks the requests to one target.
func of(target string, steps []gate.Step) (out []gate.Step) {
	for _, s := range steps {
		if s.API != nil && s.Target == target {
			out = append(out, s)
		}
	}
	return out
}

// walk is the walk of one step.
type walk struct {
	ctx    context.Context
	v      gate.View
	s      *estate.Survey
	kept   *kept
	cat    *catalog.Catalog
	self   Self
	step   gate.Step
	before []gate.Step // the plan's earlier requests to the same target, taken as done
	out    *gate.Reach
	had    map[hitKey][]int     // where this step's hits lie in out
	lost   map[gate.Object]bool // of these it could not be read which disks they name
	first  map[hitKey][]int     // of again: where those lie that it hits as things are
	again  bool                 // the site is looked at as earlier steps leave it: see foresee
	filled map[string]int64     // bytes that this plan puts on storages, by name, and node where each has its own
	worst  map[string]dim       // what settings of a kind of guest can bring at worst: it is asked for each guest
	spoken map[string]int64     // memory of nodes that this step's other guests take, in bytes
}

// hitKey is what makes two hits of a step the same. Of what is unknown the weight is no part.
type hitKey struct {
	class   string
	object  gate.Object
	unknown bool
	weight  gate.Weight
}

func (w *walk) run() {
	changes, known := w.changes()
	if !known {
		w.out.Unwalked = append(w.out.Unwalked, w.step.API.Operation)
	}
	for _, c := range changes {
		walked := false
		for _, r := range rules() {
			if r.verb == c.verb && (r.of == "" || r.of == c.object.Kind) {
				r.walk(w, c)
				walked = true
			}
		}
		if !walked && c.verb != nothing {
			w.out.Unwalked = append(w.out.Unwalked, w.step.API.Operation)
		}
	}
	w.touchesSelf()
}

// mostText is how long the text of one hit is at most: the gate cuts what is longer.
const mostText = 400

// mostAlike bounds how many hits tell of one thing.
const mostAlike = 6

// hit adds a hit of this step. Those of one class, object and weight are one, with what all say; where that is too long to be
// shown they are several, alike but for their texts. A lighter one stays beside a heavier, since it says something else; only
// what could not be read, or is a perhaps, counts as the worst of all.
func (w *walk) hit(h gate.Hit) {
	h.Step = w.step.Number
	if w.again && (h.Weight == gate.WeightNote || w.toldAlready(h)) {
		return
	}
	key := hitKey{h.Class, h.Object, h.Unknown, h.Weight}
	if h.Unknown {
		key.weight = ""
	}
	had := w.had[key]
	if len(had) == 0 {
		w.had[key] = []int{len(w.out.Hits)}
		w.out.Hits = append(w.out.Hits, h)
		return
	}
	all := w.out.Hits[had[0]]
	heavier := h.Weight.Heavier(all.Weight)
	if heavier {
		all.Weight = h.Weight
	}
	all.Kinds = union(all.Kinds, h.Kinds)
	if h.Matter != all.Matter {
		all.Matter += h.Matter
	}
	all.Renamed = union(all.Renamed, h.Renamed)
	all.Blocks = h.Blocks || all.Blocks
	all.Refused = h.Refused || all.Refused
	last := &w.out.Hits[had[len(had)-1]]
	told := slices.ContainsFunc(had, func(i int) bool { return strings.Contains(w.out.Hits[i].Text, h.Text) })
	switch {
	case told || h.Class == ClassSelf:
	case len(last.Text)+len(h.Text)+2 <= mostText && heavier:
		last.Text, last.Way = h.Text+"; "+last.Text, h.Way
	case len(last.Text)+len(h.Text)+2 <= mostText:
		last.Text += "; " + h.Text
	case len(had) < mostAlike:
		w.had[key] = append(had, len(w.out.Hits))
		w.out.Hits = append(w.out.Hits, h)
	case len(had) == mostAlike:
		h.Text, h.Way = "there is more of this sort, which is not told one by one", nil
		w.had[key] = append(had, len(w.out.Hits))
		w.out.Hits = append(w.out.Hits, h)
	}
	for _, i := range w.had[key] {
		text, way := w.out.Hits[i].Text, w.out.Hits[i].Way
		w.out.Hits[i] = all
		w.out.Hits[i].Text, w.out.Hits[i].Way = text, way
	}
}

// unread says that a dimension could not be looked at: weight and kinds are those of the worst that could be there.
func (w *walk) unread(class string, weight gate.Weight, o gate.Object, what string, kinds ...gate.Kind) {
	w.hit(gate.Hit{Class: class, Weight: weight, Object: o, Unknown: true, Kinds: kinds, Text: what + " could not be read; the worst is assumed"})
}

func union[T comparable](all ...[]T) []T {
	var out []T
	for _, list := range all {
		for _, k := range list {
			if !slices.Contains(out, k) {
				out = append(out, k)
			}
		}
	}
	return out
}

// Object makes an object of this site.
func object(kind gate.ObjectKind, id string) gate.Object { return gate.Object{Kind: kind, ID: id} }

// names lists a few titles.
func names(list []string) string {
	const most = 8
	if len(list) <= most {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:most], ", "), len(list)-most)
}
