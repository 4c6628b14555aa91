package estate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unique"

	"castellan/internal/gate"
)

// Part is a part of a site that is read by itself.
type Part string

// The parts. Those after PartConfig are read per guest, node, storage or scope.
const (
	PartResources   Part = "resources"   // GET /cluster/resources
	PartStatus      Part = "status"      // GET /cluster/status: nodes, their addresses, quorum
	PartStorages    Part = "storages"    // GET /storage
	PartPools       Part = "pools"       // GET /pools
	PartHA          Part = "ha"          // resources, groups or rules, state
	PartReplication Part = "replication" // GET /cluster/replication
	PartJobs        Part = "jobs"        // GET /cluster/backup
	PartOptions     Part = "options"     // GET /cluster/options
	PartACL         Part = "acl"         // GET /access/acl
	PartUsers       Part = "users"       // GET /access/users?full=1
	PartGroups      Part = "groups"
	PartRoles       Part = "roles"
	PartRealms      Part = "realms"
	PartZones       Part = "zones" // SDN zones, as staged and as in force
	PartVNets       Part = "vnets"
	PartTasks       Part = "tasks" // GET /cluster/tasks
	PartMetrics     Part = "metrics"
	PartNotify      Part = "notify" // notification endpoints and matchers
	PartMappings    Part = "mappings"

	PartConfig   Part = "config"   // of a guest
	PartPending  Part = "pending"  // of a guest: changes that wait for its next start
	PartSnaps    Part = "snaps"    // of a guest
	PartNetwork  Part = "network"  // of a node: interfaces, with staged changes
	PartContent  Part = "content"  // of a storage on a node, "pve1/local"
	PartFirewall Part = "firewall" // of a scope: "cluster", "node/pve1", "guest/101"
	PartCeph     Part = "ceph"
	PartDisks    Part = "disks" // of a node

	PartRights  Part = "rights"  // GET /access/permissions: what castellan's own token may see
	PartMembers Part = "members" // of a pool

	PartCephNode Part = "ceph_node" // Ceph's pools as a node knows them
)

// Survey reads a site part by part, each once, when a walk asks for it. What could not be read is a Gap, never an empty
// list. Its methods are safe for concurrent use; an answer that has been handed out is not changed any more.
type Survey struct {
	*sight
	after *After // nil = as it was read
}

// sight is what one survey has read.
type sight struct {
	ctx    context.Context
	v      gate.View
	target gate.TargetInfo
	maxAge time.Duration
	since  time.Time // what was read before it is not used
	site   *memory   // what the estate keeps of it; nil for callers that see only a part
	lanes  *lanes

	mu      sync.Mutex
	slots   table[*slot]
	added   int        // counts the slots
	moved   *Inventory // a listing newer than the one that was used first
	relists int
	oldest  time.Time
	gaps    []Gap // of the answers that are there by now
	watch   sync.Once
	watched bool // the site told what was done since it was looked at before
}

// key names one answer: what was asked, and of which guest, node, storage or scope. There are many of them, so it is short.
type key struct {
	asked  unique.Handle[question]
	object string // empty = of the whole site
}

// question is what can be asked of each object.
type question struct {
	part   Part
	op     string
	params string // those that the object does not tell
}

func (q question) of(object string) key { return key{unique.Make(q), object} }

func (k key) what() question { return k.asked.Value() }

// ofSite names an answer of the whole site.
func ofSite(of Part, op string) key { return question{part: of, op: op}.of("") }

// slot is where a survey has an answer.
type slot struct {
	once sync.Once
	a    atomic.Pointer[answer]
}

// answer is what was read once. It is not changed any more.
type answer struct {
	rows      []Config
	text      string // of a guest's settings: all of them, one after another
	inv       *Inventory
	rights    rights
	gap       *Gap
	err       error // of the reading itself, where it failed
	at        time.Time
	untrusted bool // holds free text of outsiders
	size      int  // bytes, about
}

// Survey starts to look at a site. What the estate has read already is used where it is not older than maxAge, and what
// the whole site tells in one call where it is a few seconds old; nothing that was read before the view's Since. Callers whose scope is limited share nothing: what they
// read is cut to it.
func (e *Estate) Survey(ctx context.Context, v gate.View, target string, maxAge time.Duration) (*Survey, error) {
	t, err := v.Target(target)
	if err != nil {
		return nil, err
	}
	s := &Survey{sight: &sight{ctx: ctx, v: v, target: t, maxAge: maxAge, slots: table[*slot]{}, lanes: newLanes()}}
	if w, ok := v.(interface{ Since() time.Time }); ok {
		s.since = w.Since()
	}
	if !v.Scoped() {
		s.site = e.memory(t)
		s.lanes = s.site.lanes
	}
	return s, nil
}

// Older starts a second look at the same site, for a question that everybody has to be asked: what the estate keeps of guests
// and nodes may be as old as maxAge for it, whatever the first look and the view's Since allow.
func (s *Survey) Older(maxAge time.Duration) *Survey {
	return &Survey{&sight{ctx: s.ctx, v: s.v, target: s.target, maxAge: maxAge, slots: table[*slot]{}, site: s.site, lanes: s.lanes}, s.after}
}

// Target is the site's target.
func (s *Survey) Target() gate.TargetInfo { return s.target }

// Now is the time of the view.
func (s *Survey) Now() time.Time { return s.v.Now() }

// Inventory is the site's listing; empty, with a Gap of PartResources, when it cannot be read.
func (s *Survey) Inventory() *Inventory { return s.after.inventory(s.listed()) }

func (s *Survey) listed() *Inventory {
	a := s.get(ofSite(PartResources, listing), s.list)
	s.mu.Lock()
	defer s.mu.Unlock()
	if inv := cmp.Or(s.moved, a.inv); inv != nil {
		return inv
	}
	return &Inventory{Target: s.target}
}

// Unlisted is why nothing is known of the site: it was asked for its listing and did not give any. What else of it can be read
// says nothing of what there is.
func (s *Survey) Unlisted() error {
	a := s.get(ofSite(PartResources, listing), s.list)
	if a.inv != nil {
		return nil
	}
	return a.err
}

const listing = "GET /cluster/resources"

func (s *Survey) list(a *answer) error {
	inv, err := Load(s.ctx, s.v, s.target.Name)
	if err != nil {
		return err
	}
	a.inv, a.size = inv, 400*(len(inv.Guests)+len(inv.Storages)+len(inv.Nodes)+len(inv.Zones))
	if inv.cut {
		return fmt.Errorf("incomplete: %s", strings.Join(inv.Missing, "; "))
	}
	return nil
}

// Rows reads one part by a catalogued read whose answer is a list of objects or one object, nested values as JSON text.
// ok is false when it could not be read, or when castellan's token may see only part of it; there is a Gap then.
func (s *Survey) Rows(of Part, object string, r gate.Read) (rows []Config, ok bool) {
	q := question{part: of, op: r.Operation}
	if len(r.Params) > 0 {
		for _, name := range slices.Sorted(maps.Keys(r.Params)) {
			q.params += name + "=" + r.Params[name] + "\n"
		}
	}
	if s.after != nil && s.after.Made != nil && r.Params["storage"] != "" && s.after.Made(r.Params["storage"]) {
		return nil, true
	}
	if s.after != nil && r.Params["vmid"] != "" { // it is asked for where it is now
		if g, ok := s.listed().ByID(r.Params["vmid"]); ok && r.Params["node"] != g.Node {
			r.Params = maps.Clone(r.Params)
			r.Params["node"] = g.Node
		}
	}
	rows, ok = s.rows(q.of(object), r.Params["node"], r)
	if s.after != nil && object == "" && s.after.Rows[r.Operation] != nil {
		rows = s.after.Rows[r.Operation](rows)
	}
	return rows, ok
}

func (s *Survey) rows(k key, node string, r gate.Read) ([]Config, bool) {
	a := s.get(k, func(a *answer) error { return s.read(a, node, r) })
	return a.rows, a.gap == nil
}

// read fills an answer; no more than a few at a time on one node.
func (s *Survey) read(a *answer, node string, r gate.Read) error {
	if s.off(node) {
		return fmt.Errorf("node %s is off", node)
	}
	leave, err := s.lanes.enter(s.ctx, node)
	if err != nil {
		return err
	}
	got, err := s.v.Read(s.ctx, s.target.Name, r)
	leave()
	if err != nil {
		return err
	}
	a.untrusted, a.size = got.Untrusted, 3*len(got.Data)+200
	if a.rows, err = rowsOf(got.Data); err != nil {
		return err
	}
	if len(got.Missing) > 0 {
		return fmt.Errorf("incomplete: %s", strings.Join(got.Missing, "; "))
	}
	return nil
}

// get finds one answer: this survey's, the estate's where it is young enough, else by reading.
func (s *Survey) get(k key, read func(a *answer) error) *answer {
	s.mu.Lock()
	p := s.slots.get(k)
	if p == nil {
		p = &slot{}
		s.slots.put(k, p)
		s.added++
	}
	s.mu.Unlock()
	p.once.Do(func() {
		a := s.kept(k)
		if a == nil {
			a = s.fetch(k, read)
		}
		s.mu.Lock()
		if s.oldest.IsZero() || a.at.Before(s.oldest) {
			s.oldest = a.at
		}
		if a.gap != nil { // what the estate keeps has none
			s.gaps = append(s.gaps, *a.gap)
		}
		s.mu.Unlock()
		p.a.Store(a)
	})
	return p.a.Load()
}

// ready finds those answers that are there without reading anything for them; nil in place of each that is not yet.
func (s *Survey) ready(keys []key) []*answer {
	out := make([]*answer, len(keys))
	slots := make([]slot, len(keys))
	s.mu.Lock()
	there, before := s.slots.all(keys), s.added
	s.mu.Unlock()
	fresh := s.usable(keys, s.site.find(keys))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.added != before { // somebody is, or was, faster
		there = s.slots.all(keys)
	}
	s.slots.room(keys)
	for i, a := range fresh {
		if p := there[i]; p != nil {
			out[i] = p.a.Load()
			continue
		}
		if a == nil {
			continue
		}
		p := &slots[i]
		p.once.Do(func() { p.a.Store(a) })
		s.slots.put(keys[i], p)
		s.added++
		out[i] = a
		if s.oldest.IsZero() || a.at.Before(s.oldest) {
			s.oldest = a.at
		}
	}
	return out
}

// fetch reads, and lets the estate keep what it got.
func (s *Survey) fetch(k key, read func(a *answer) error) *answer {
	if s.site != nil && k.single() {
		s.watchTasks()
	}
	change := s.site.changes()
	a := &answer{at: s.v.Now()}
	err := read(a)
	if a.err = err; err == nil {
		err = s.partial(k)
	}
	if err != nil {
		a.gap = &Gap{Part: k.what().part, Of: k.object, Why: clipTo(err.Error(), 300), Narrow: errors.As(err, new(narrowError))}
	}
	s.site.keep(k, a, change)
	return a
}

// Oldest is when the oldest of what was used was read.
func (s *Survey) Oldest() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.oldest
}

// Gaps lists what could not be read so far, of these parts; none given = all.
func (s *Survey) Gaps(parts ...Part) []Gap {
	var out []Gap
	s.mu.Lock()
	for _, g := range s.gaps { // many ask, and there may be an answer of each guest
		if len(parts) == 0 || slices.Contains(parts, g.Part) {
			out = append(out, g)
		}
	}
	s.mu.Unlock()
	slices.SortFunc(out, func(a, b Gap) int {
		return cmp.Or(cmp.Compare(a.Part, b.Part), cmp.Compare(a.Of, b.Of), cmp.Compare(a.Why, b.Why))
	})
	return slices.Compact(out)
}

// answers are those that are there by now.
func (s *Survey) answers() map[key]*answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[key]*answer{}
	for k, p := range s.slots.each() {
		if a := p.a.Load(); a != nil {
			out[k] = a
		}
	}
	return out
}

func rowsOf(data json.RawMessage) ([]Config, error) {
	text := strings.TrimSpace(string(data))
	switch {
	case text == "" || text == "null":
		return nil, nil
	case text[0] == '{':
		c, err := ParseConfig(data)
		return []Config{c}, err
	case text[0] != '[':
		return nil, fmt.Errorf("the answer is neither list nor object")
	}
	var list []json.RawMessage
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("read list: %w", err)
	}
	out := make([]Config, 0, len(list))
	for _, raw := range list {
		c, err := ParseConfig(raw)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}
