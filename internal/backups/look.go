// Package backups knows what backups a site has: archives on all storages, whose they are, what the jobs promise, and
// whether the promise is kept. What cannot be read is said and never taken for absent.
package backups

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

// Question says what is asked for.
type Question struct {
	Guest  string        // a guest's id; empty = all
	Grace  time.Duration // how long after a run's start its archive may come; 0 = DefaultGrace
	MaxAge time.Duration // when given, an archive older than this is stale whatever the jobs promise
	Jobs   bool          // the jobs alone: no archive is looked for
	// Archives alone: nothing is asked about jobs.
	Archives bool
}

// DefaultGrace is how long a backup run may take before its archive counts as missing.
const DefaultGrace = 6 * time.Hour

// readTime bounds one read: a dead storage must not hold up the rest.
const readTime = 15 * time.Second

// atOnce is how many reads are under way at a time.
const atOnce = 8

// Site is what was read of a site's backups.
type Site struct {
	Inventory *estate.Inventory
	Archives  []Archive // newest first
	Jobs      []Job     // sorted by id
	JobsKnown bool
	Missing   []string // what could not be read, and what would make it readable
	Gaps      []Gap    // the same, in parts
	Now       time.Time

	q        Question
	stores   []store
	rights   rights
	logs     map[string]*taskLog // by node
	zones    map[string]*time.Location
	notIn    map[string]bool // guests that no job selects, by the site's own word; nil = not known
	unread   map[string][]string
	scoped   bool
	allSeen  bool // the guest list is the whole list
	pbsNames []string
}

// reader reads of one target, a few things at once.
type reader struct {
	ctx    context.Context
	v      gate.View
	target string
}

func (r reader) get(out any, operation string, params map[string]string) error {
	return r.getWithin(readTime, out, operation, params)
}

func (r reader) getWithin(limit time.Duration, out any, operation string, params map[string]string) error {
	ctx, cancel := context.WithTimeout(r.ctx, limit)
	defer cancel()
	a, err := r.v.Read(ctx, r.target, gate.Read{Operation: operation, Params: params})
	if err != nil {
		return err
	}
	if len(a.Missing) > 0 {
		return fmt.Errorf("incomplete: %s", strings.Join(a.Missing, "; "))
	}
	if err := json.Unmarshal(a.Data, out); err != nil {
		return fmt.Errorf("read the answer of %s: %w", operation, err)
	}
	return nil
}

// each runs f for the numbers below n, a few at once.
func each(n int, f func(i int)) {
	var group sync.WaitGroup
	gate := make(chan struct{}, atOnce)
	for i := range n {
		gate <- struct{}{}
		group.Add(1)
		go func() {
			defer func() { <-gate; group.Done() }()
			f(i)
		}()
	}
	group.Wait()
}

// Look reads what there is. It fails only when the site cannot be listed at all.
func Look(ctx context.Context, v gate.View, target string, q Question) (*Site, error) {
	inv, err := estate.Load(ctx, v, target)
	if err != nil {
		return nil, err
	}
	if q.Grace == 0 {
		q.Grace = DefaultGrace
	}
	s := &Site{Inventory: inv, Now: v.Now(), q: q, logs: map[string]*taskLog{}, zones: map[string]*time.Location{}, unread: map[string][]string{}, scoped: v.Scoped(),
		Missing: slices.Clone(inv.Missing)}
	for _, m := range inv.Missing {
		s.Gaps = append(s.Gaps, Gap{Text: m, Why: m})
	}
	r := reader{ctx: ctx, v: v, target: inv.Target.Name}
	var defined []storageRow
	var errs [4]error
	var excluded []struct {
		VMID estate.Text `json:"vmid"`
	}
	each(4, func(i int) {
		switch i {
		case 0:
			errs[0] = r.get(&s.rights, "GET /access/permissions", nil)
		case 1:
			errs[1] = r.get(&defined, "GET /storage", nil)
		case 2:
			if q.Archives {
				return
			}
			errs[2] = r.get(&s.Jobs, "GET /cluster/backup", nil)
		case 3:
			if q.Archives {
				return
			}
			errs[3] = r.get(&excluded, "GET /cluster/backup-info/not-backed-up", nil)
		}
	})
	if errs[0] != nil {
		s.rights = nil
		s.miss("what castellan's user may see could not be asked: " + why(errs[0]))
	}
	s.allSeen = s.rights.whole("/vms", "VM.Audit")
	if !s.allSeen && !s.scoped {
		s.miss(fmt.Sprintf("castellan's user sees %d guests and may not see all: VM.Audit on /vms is missing or not held everywhere; archives without a visible guest are unknown, not orphaned", len(inv.Guests)))
	}
	if !q.Archives {
		s.readJobs(errs[2])
	}
	if errs[3] == nil {
		s.notIn = map[string]bool{}
		for _, row := range excluded {
			s.notIn[string(row.VMID)] = true
		}
	}
	if !q.Jobs {
		s.findStores(defined, errs[1])
	}
	s.readAll(r)
	if q.Jobs {
		slices.Sort(s.Missing)
		s.Missing = slices.Compact(s.Missing)
		return s, nil
	}
	s.Archives = slices.DeleteFunc(s.Archives, func(a Archive) bool { return q.Guest != "" && a.Guest != q.Guest })
	s.attribute(r)
	slices.SortStableFunc(s.Archives, func(a, b Archive) int {
		if c := b.Time.Compare(a.Time); c != 0 {
			return c
		}
		return strings.Compare(a.Volume, b.Volume)
	})
	slices.Sort(s.Missing)
	s.Missing = slices.Compact(s.Missing)
	return s, nil
}

// Gap is one thing that could not be read, in parts: many of one cause can be told as one.
type Gap struct {
	Text   string // whole, as in Missing
	Where  string // "storage local of node pve1"; empty where Why says it
	Why    string
	Grants []Grant // what would make it readable
}

// Grant is a privilege on a path.
type Grant struct{ Path, Privilege string }

func (s *Site) miss(text string) {
	s.Missing = append(s.Missing, text)
	s.Gaps = append(s.Gaps, Gap{Text: text, Why: text})
}

// lack is a miss at one place, which grants would mend.
func (s *Site) lack(text, where, why string, grants ...Grant) {
	s.Missing = append(s.Missing, text)
	s.Gaps = append(s.Gaps, Gap{Text: text, Where: where, Why: why, Grants: grants})
}

// why is a cause in a few words.
func why(err error) string { return clip(strings.Join(strings.Fields(err.Error()), " "), 200) }

// readAll reads archives, task logs, zones and job selections.
func (s *Site) readAll(r reader) {
	type work func(lock sync.Locker)
	var jobs []work
	var mu sync.Mutex
	for i := range s.stores {
		st := &s.stores[i]
		jobs = append(jobs, func(lock sync.Locker) { s.readStore(r, st, lock) })
	}
	for _, n := range s.Inventory.Nodes {
		if n.Status != "online" {
			continue
		}
		if !s.q.Jobs {
			jobs = append(jobs, func(lock sync.Locker) { s.readTasks(r, n.Name, lock) })
		}
		if len(s.Jobs) > 0 {
			jobs = append(jobs, func(lock sync.Locker) { s.readZone(r, n.Name, lock) })
		}
	}
	for i := range s.Jobs {
		if j := &s.Jobs[i]; j.On() {
			jobs = append(jobs, func(lock sync.Locker) { s.readSelection(r, j, lock) })
		}
	}
	if s.scoped && !s.q.Jobs { // the log of a node shows a limited caller only the tasks of its own guests, and a job's run bears no guest's id
		jobs = append(jobs, func(lock sync.Locker) { s.readRecent(r, lock) })
	}
	each(len(jobs), func(i int) { jobs[i](&mu) })
	for _, n := range s.Inventory.Nodes {
		if n.Status != "online" && !s.q.Jobs {
			s.miss("node " + n.Name + " is " + n.Status + ": its own storages and its task log cannot be read")
		}
	}
}

// readZone learns the time zone in which a node's schedules run.
func (s *Site) readZone(r reader, node string, lock sync.Locker) {
	var clock struct {
		Zone string `json:"timezone"`
	}
	err := r.get(&clock, "GET /nodes/{node}/time", map[string]string{"node": node})
	var loc *time.Location
	if err == nil {
		if clock.Zone == "" || len(clock.Zone) > 64 {
			err = fmt.Errorf("it tells no time zone")
		} else {
			loc, err = time.LoadLocation(clock.Zone)
		}
	}
	lock.Lock()
	defer lock.Unlock()
	if err != nil {
		s.lack("the time zone of node "+node+" is not known, so that its schedules are taken as anywhere from 14 hours earlier to 14 hours later (Sys.Audit on /nodes/"+node+"): "+why(err),
			"node "+node, "its time zone is not known: its schedules are taken as anywhere from 14 hours earlier to 14 hours later", Grant{"/nodes/" + node, "Sys.Audit"})
		return
	}
	s.zones[node] = loc
}

// Zone is a node's time zone; known is false when it could not be learnt, and UTC stands for it.
func (s *Site) Zone(node string) (loc *time.Location, known bool) {
	if loc := s.zones[node]; loc != nil {
		return loc, true
	}
	return time.UTC, false
}
