package estate

import (
	"slices"
	"strings"
	"sync"
	"time"

	"castellan/internal/gate"
)

const (
	// clusterAge is how old an answer about the whole site may be: it costs one call.
	clusterAge = 15 * time.Second
	// keptBytes bounds what is kept of one site, about.
	keptBytes = 160 << 20
)

// memory is what an Estate keeps of one site: answers that were read whole, by callers that may see all.
type memory struct {
	lanes *lanes

	mu       sync.Mutex
	answers  table[*answer]
	byObject map[string][]key
	bytes    int
	change   int               // counts what was forgotten: an answer that was on its way then is not kept
	tasks    map[string]string // the tasks that were seen last, and how they stood; nil = never looked
	seen     time.Time         // since when each look at the tasks could be compared with one before
	drawn    *drawn
}

// single says that the answer is of one guest, node, storage or scope: there are many of those, so they are kept longer
// and watched for changes.
func (k key) single() bool { return k.object != "" }

// memory finds what is kept of a target's site. A target that has come to lead elsewhere, or to ask as somebody else,
// starts anew.
func (e *Estate) memory(t gate.TargetInfo) *memory {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sites == nil {
		e.sites = map[string]*known{}
	}
	k := e.sites[t.Name]
	if k == nil || k.site != t.Site || k.user != t.User {
		k = &known{site: t.Site, user: t.User, kept: newMemory()}
		e.sites[t.Name] = k
	}
	return k.kept
}

type known struct {
	site, user string
	kept       *memory
}

func newMemory() *memory {
	return &memory{lanes: newLanes(), answers: table[*answer]{}, byObject: map[string][]key{}}
}

// kept finds an answer that is young enough.
func (s *Survey) kept(k key) *answer {
	keys := []key{k}
	return s.usable(keys, s.site.find(keys))[0]
}

// usable leaves of the answers that were kept those that are young enough now, or younger ones in their place; nil in
// place of each other. It changes kept.
func (s *Survey) usable(keys []key, kept []*answer) []*answer {
	now, short := s.v.Now(), min(s.maxAge, clusterAge)
	old := func(i int) bool {
		age := now.Sub(kept[i].at)
		return keys[i].single() && age > short && age <= s.maxAge
	}
	most := short
	for i, a := range kept {
		if a == nil || !old(i) {
			continue
		}
		if s.watchTasks(); s.watched { // asked once; what was done meanwhile is forgotten
			most = s.maxAge
			kept, now = s.site.find(keys), s.v.Now()
		}
		break
	}
	seen := s.site.seenSince()
	for i, a := range kept {
		if a == nil {
			continue
		}
		limit := short
		if keys[i].single() && !a.at.Before(seen) {
			limit = most
		}
		if age := now.Sub(a.at); age > limit || age < 0 || a.at.Before(s.since) {
			kept[i] = nil
			continue
		}
		if a.untrusted {
			call, ok := s.v.(interface{ SawFreeText() })
			if !ok {
				kept[i] = nil // the caller would not learn that it holds text of outsiders
				continue
			}
			call.SawFreeText()
		}
	}
	return kept
}

// watchTasks asks the site, once in a survey, for what was done since it was last looked at, and forgets what that changed.
// Settings that somebody changed without a task show in the listing, or not before they have become too old.
func (s *Survey) watchTasks() {
	s.watch.Do(func() {
		now := s.v.Now()
		got, err := s.v.Read(s.ctx, s.target.Name, gate.Read{Operation: "GET /cluster/tasks"})
		var rows []Config
		if err == nil {
			rows, err = rowsOf(got.Data)
		}
		if err == nil {
			err = s.partial(ofSite(PartTasks, ""))
		}
		if err != nil {
			s.site.unwatched()
			return
		}
		before := s.site.look(rows, now)
		inv := s.get(ofSite(PartResources, listing), s.list)
		s.watched = before && inv.gap == nil
	})
}

// seenSince is the time from which on the tasks tell what was done.
func (t *memory) seenSince() time.Time {
	if t == nil {
		return time.Time{}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.seen
}

// find gives what is kept, nil in place of each answer that is not; nil receivers keep nothing.
func (t *memory) find(keys []key) []*answer {
	if t == nil {
		return make([]*answer, len(keys))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.answers.all(keys)
}

// changes counts what was forgotten so far; nil receivers keep nothing.
func (t *memory) changes() int {
	if t == nil {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.change
}

// keep takes an answer, unless something was forgotten while it was on its way.
func (t *memory) keep(k key, a *answer, change int) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if k.what().part == PartResources && a.inv != nil {
		t.compare(k, a.inv)
	}
	if a.gap != nil || t.change != change && k.what().part != PartResources {
		return
	}
	t.drop(k)
	t.answers.put(k, a)
	t.bytes += a.size
	if k.single() {
		t.byObject[k.object] = append(t.byObject[k.object], k)
	}
	if t.bytes > keptBytes {
		t.shrink()
	}
}

func (t *memory) drop(k key) {
	a := t.answers.get(k)
	if a == nil {
		return
	}
	t.answers.drop(k)
	t.bytes -= a.size
	if !k.single() {
		return
	}
	rest := slices.DeleteFunc(t.byObject[k.object], func(x key) bool { return x == k })
	if len(rest) == 0 {
		delete(t.byObject, k.object)
		return
	}
	t.byObject[k.object] = rest
}

func (t *memory) dropObject(object string) {
	for _, k := range slices.Clone(t.byObject[object]) {
		t.drop(k)
	}
}

func (t *memory) dropGuest(id string) {
	t.dropObject(id)
	t.dropObject("guest/" + id)
}

// dropWhere forgets the answers of some parts.
func (t *memory) dropWhere(which func(key) bool) {
	for k := range t.answers.each() {
		if which(k) {
			t.drop(k)
		}
	}
}

// shrink lets the oldest go until a tenth is free.
func (t *memory) shrink() {
	var all []key
	for k := range t.answers.each() {
		all = append(all, k)
	}
	slices.SortFunc(all, func(a, b key) int { return t.answers.get(a).at.Compare(t.answers.get(b).at) })
	for _, k := range all {
		if t.bytes <= keptBytes*9/10 {
			return
		}
		t.drop(k)
	}
}

// compare forgets what a new listing shows to have changed.
func (t *memory) compare(k key, now *Inventory) {
	old := t.answers.get(k)
	if old == nil || old.inv == nil {
		return
	}
	forget := func(id string) {
		if len(t.byObject[id])+len(t.byObject["guest/"+id]) > 0 {
			t.change++
		}
		t.dropGuest(id)
	}
	contents := false
	for i := range now.Guests {
		g := &now.Guests[i]
		before, ok := old.inv.ByID(g.ID)
		if !ok {
			contents = true
		}
		if !ok || !before.same(g) {
			forget(g.ID)
		}
	}
	for i := range old.inv.Guests {
		if id := old.inv.Guests[i].ID; !now.has(id) {
			contents = true
			forget(id)
		}
	}
	if contents {
		t.dropWhere(func(k key) bool { return k.what().part == PartContent })
	}
}

func (inv *Inventory) has(id string) bool { _, ok := inv.byID[id]; return ok }

// same compares what the listing shows of a guest's settings and place; its figures move by themselves.
func (g *Guest) same(o *Guest) bool {
	return g.Kind == o.Kind && g.Node == o.Node && g.Name == o.Name && g.Status == o.Status && g.Template == o.Template && g.Lock == o.Lock &&
		g.Pool == o.Pool && g.CPUs == o.CPUs && g.MaxMem == o.MaxMem && g.MaxDisk == o.MaxDisk && slices.Equal(g.Tags, o.Tags)
}

func (t *memory) unwatched() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tasks = nil
}

// harmless are the tasks that change neither settings nor disks.
func harmless(kind string) bool {
	return slices.Contains([]string{"vncproxy", "vncshell", "spiceproxy", "spiceshell", "termproxy", "aptupdate", "qmstart", "qmstop", "qmshutdown", "qmreboot",
		"qmsuspend", "qmresume", "vzstart", "vzstop", "vzshutdown", "vzreboot", "startall", "stopall", "suspendall"}, kind)
}

// look compares the tasks with those seen before, and forgets what the new ones may have changed. It says whether there
// was anything to compare with.
func (t *memory) look(rows []Config, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.tasks
	if before == nil {
		t.seen = now
	}
	t.tasks = make(map[string]string, len(rows))
	type seen struct{ old, fresh int }
	nodes := map[string]*seen{}
	for _, r := range rows {
		state := r["status"] + "|" + r["endtime"]
		t.tasks[r["upid"]] = state
		n := nodes[r["node"]]
		if n == nil {
			n = &seen{}
			nodes[r["node"]] = n
		}
		old, known := before[r["upid"]]
		if known && old == state && r["endtime"] != "" {
			n.old++
			continue
		}
		n.fresh++
		if before != nil {
			t.done(r)
		}
	}
	for name, n := range nodes { // the site lists a few of each node only: none of them known may mean that some were missed
		if before != nil && n.old == 0 && n.fresh > 0 {
			t.dropNode(name)
		}
	}
	return before != nil
}

// done forgets what one task may have changed.
func (t *memory) done(r Config) {
	t.change++
	for _, id := range strings.FieldsFunc(r["id"], func(c rune) bool { return c < '0' || c > '9' }) { // "102-scsi1>101-scsi2" gives one's disk to another
		t.dropGuest(id)
	}
	node := r["node"]
	if !harmless(r["type"]) {
		t.dropWhere(func(k key) bool {
			return k.what().part == PartContent && (strings.HasPrefix(k.object, node+"/") || t.shared(k.object))
		})
	}
	if !isNumber(r["id"]) && !harmless(r["type"]) && r["type"] != "vzdump" {
		t.dropObject(node)
		t.dropWhere(func(k key) bool { return k.what().part == PartCeph || k.what().part == PartDisks })
	}
}

// shared says whether a content's storage is seen from several nodes; not known counts as yes.
func (t *memory) shared(object string) bool {
	a := t.answers.get(ofSite(PartResources, listing))
	if a == nil || a.inv == nil {
		return true
	}
	_, name, _ := strings.Cut(object, "/")
	return slices.ContainsFunc(a.inv.Storages, func(s Storage) bool { return s.Name == name && s.Shared })
}

func (t *memory) dropNode(name string) {
	t.change++
	on := map[string]bool{}
	if a := t.answers.get(ofSite(PartResources, listing)); a != nil && a.inv != nil {
		for _, g := range a.inv.Guests {
			if g.Node == name {
				on[g.ID] = true
			}
		}
	}
	t.dropWhere(func(k key) bool {
		return k.object == name || strings.HasPrefix(k.object, name+"/") || on[k.object] || on[strings.TrimPrefix(k.object, "guest/")]
	})
}

// Forget lets go what a request has changed: what the site says as a whole, and all of the objects that the request
// touches. Of a site or object that cannot be told everything goes.
func (e *Estate) Forget(target string, touched []gate.Object) {
	e.mu.Lock()
	k := e.sites[target]
	e.mu.Unlock()
	if k == nil {
		return
	}
	t := k.kept
	t.mu.Lock()
	defer t.mu.Unlock()
	t.change++
	t.dropWhere(func(k key) bool { return !k.single() })
	for _, o := range touched {
		switch o.Kind {
		case gate.ObjectGuest:
			t.dropGuest(o.ID)
			t.dropWhere(func(k key) bool { return k.what().part == PartContent })
		case gate.ObjectVolume, gate.ObjectArchive:
			storage, volume, _ := strings.Cut(o.ID, ":")
			t.dropGuest(OwnerOf(volume))
			t.dropWhere(func(k key) bool { return k.what().part == PartContent && strings.HasSuffix(k.object, "/"+storage) })
		case gate.ObjectStorage:
			t.dropWhere(func(k key) bool { return k.what().part == PartContent && strings.HasSuffix(k.object, "/"+o.ID) })
		case gate.ObjectNode, gate.ObjectBridge, gate.ObjectInterface:
			node, _, _ := strings.Cut(o.ID, "/")
			t.dropWhere(func(k key) bool {
				return k.what().part != PartConfig && k.what().part != PartSnaps && (k.object == node || k.object == "node/"+node || strings.HasPrefix(k.object, node+"/"))
			})
		case gate.ObjectTag, gate.ObjectUser, gate.ObjectACL:
		default:
			t.dropWhere(func(key) bool { return true })
		}
	}
}
