package backups

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"castellan/internal/estate"
)

// Verdict says how a guest's backups stand.
type Verdict string

// The verdicts, the gravest first.
const (
	Never     Verdict = "never"     // a job covers it, and there is no backup of it
	Stale     Verdict = "stale"     // a promised backup is missing
	Uncovered Verdict = "uncovered" // no job that is on covers it
	Unclear   Verdict = "unknown"   // cannot be told; the reason says what is missing
	Orphaned  Verdict = "orphaned"  // archives of an id that no guest has
	New       Verdict = "new"       // it is younger than the last run: its first is still to come
	Parked    Verdict = "parked"    // stopped, and no job covers it
	Template  Verdict = "template"
	Fresh     Verdict = "fresh"
)

// Verdicts lists them in their order.
func Verdicts() []Verdict {
	return []Verdict{Never, Stale, Uncovered, Unclear, Orphaned, New, Parked, Template, Fresh}
}

// Rank orders verdicts, the gravest first.
func (v Verdict) Rank() int { return slices.Index(Verdicts(), v) }

// State is one guest's.
type State struct {
	ID       string
	Guest    estate.Guest // zero for Orphaned
	Verdict  Verdict
	Why      string
	Newest   *Archive // that counts as its own
	Archives int      // that count as its own
	Others   int      // of its id, and not its own: an earlier guest's, another cluster's, not known whose
	Jobs     []string
	Due      time.Time // the run that is missing, or the last that was kept
	Next     time.Time
	LeftOut  []string // disks that no covering job saves
	Running  bool     // a backup of it is under way
	Failed   string   // why its last backup failed, in the server's words
}

// States gives the state of every guest that the caller sees, or of the one asked for, the gravest first.
func (s *Site) States(sees func(estate.Guest) bool) []State {
	var out []State
	by := map[string][]*Archive{}
	for i := range s.Archives {
		by[s.Archives[i].Guest] = append(by[s.Archives[i].Guest], &s.Archives[i])
	}
	for _, g := range s.Inventory.Guests {
		if s.q.Guest != "" && g.ID != s.q.Guest || !sees(g) {
			continue
		}
		out = append(out, s.state(g, by[g.ID]))
	}
	for id, list := range by {
		if list[0].Whose != Orphan {
			continue
		}
		st := State{ID: id, Verdict: Orphaned, Others: len(list), Newest: list[0], Why: "no guest has this id"}
		out = append(out, st)
	}
	slices.SortStableFunc(out, func(a, b State) int {
		if c := a.Verdict.Rank() - b.Verdict.Rank(); c != 0 {
			return c
		}
		if a.Guest.Status != b.Guest.Status && (a.Guest.Status == "running" || b.Guest.Status == "running") {
			if a.Guest.Status == "running" {
				return -1
			}
			return 1
		}
		if c := newest(a).Compare(newest(b)); c != 0 {
			return c
		}
		return number(a.ID) - number(b.ID)
	})
	return out
}

func newest(s State) time.Time {
	if s.Newest == nil {
		return time.Time{}
	}
	return s.Newest.Time
}

func number(id string) int {
	n := 0
	for _, c := range id {
		n = n*10 + int(c-'0')
	}
	return n
}

func (s *Site) state(g estate.Guest, archives []*Archive) State {
	st := State{ID: g.ID, Guest: g}
	doubtful := 0
	for _, a := range archives {
		switch {
		case a.Counts():
			st.Archives++
			if st.Newest == nil || a.Time.After(st.Newest.Time) {
				st.Newest = a
			}
		case a.Whose == Unknown:
			doubtful++
			st.Others++
		default:
			st.Others++
		}
	}
	last := s.lastRun(g)
	st.Running = g.Lock == "backup" || last != nil && last.Guest == g.ID && last.End.IsZero()
	if last != nil && !last.End.IsZero() && (st.Newest == nil || last.Start.After(st.Newest.Time)) {
		st.Failed = cmpOr(last.failed[g.ID], map[bool]string{true: last.Exit}[last.Guest == g.ID])
	}
	covered, disabled, doubt := s.coverage(g)
	for _, j := range covered {
		st.Jobs = append(st.Jobs, string(j.ID))
	}
	st.LeftOut = leftOut(covered, g.ID)
	switch {
	case g.Template:
		st.Verdict = Template
		return st
	case !s.JobsKnown:
		st.Verdict, st.Why = Unclear, "the backup jobs cannot be read"
	case len(covered) == 0 && doubt != "":
		st.Verdict, st.Why = Unclear, doubt
	case len(covered) == 0 && g.Status == "stopped" && g.HA == "":
		st.Verdict, st.Why = Parked, "it is stopped and no job that is on covers it"+disabled
	case len(covered) == 0:
		st.Verdict, st.Why = Uncovered, "no job that is on covers it"+disabled
	default:
		s.judge(&st, archives, covered, doubtful)
	}
	if s.q.MaxAge > 0 && st.Verdict == Fresh && (st.Newest == nil || s.Now.Sub(st.Newest.Time) > s.q.MaxAge) {
		st.Verdict, st.Why = Stale, "its newest backup is older than "+age(s.q.MaxAge)
	}
	return st
}

func cmpOr(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// coverage lists the jobs that are on and cover a guest; doubt says why that cannot be told.
func (s *Site) coverage(g estate.Guest) (covered []*Job, disabled, doubt string) {
	var off []string
	for i := range s.Jobs {
		j := &s.Jobs[i]
		in, sure := s.covers(j, g)
		switch {
		case in && j.On():
			covered = append(covered, j)
		case in:
			off = append(off, string(j.ID))
		case !sure && j.On():
			doubt = "whether job " + string(j.ID) + " reaches into pools below its own cannot be told"
		}
	}
	if len(covered) > 0 && s.notIn[g.ID] && !slices.ContainsFunc(covered, func(j *Job) bool { return j.chosen[g.ID] }) {
		return nil, "; by the site's own word no job selects it", ""
	}
	if len(off) > 0 {
		disabled = "; switched off: " + strings.Join(off[:min(len(off), 5)], ", ")
	}
	return covered, disabled, doubt
}

// leftOut lists the disks that none of the jobs saves.
func leftOut(jobs []*Job, id string) []string {
	var out []string
	for i, j := range jobs {
		if j.left == nil {
			return nil
		}
		if i == 0 {
			out = slices.Clone(j.left[id])
			continue
		}
		out = slices.DeleteFunc(out, func(d string) bool { return !slices.Contains(j.left[id], d) })
	}
	return out
}

// judge holds a covered guest's archives against what its jobs promise.
func (s *Site) judge(st *State, archives []*Archive, covered []*Job, doubtful int) {
	g := st.Guest
	born, _ := s.born(g.ID)
	var missed, unclear []string
	pending := false
	for _, j := range covered {
		if j.fault != "" {
			unclear = append(unclear, "the schedule of job "+string(j.ID)+" is not understood: "+clip(string(j.Schedule), 40))
			continue
		}
		p := s.promise(j, g)
		if st.Next.IsZero() || !p.next.IsZero() && p.next.Before(st.Next) {
			st.Next = p.next
		}
		if p.due.IsZero() || born.After(p.due) {
			pending = true
			continue
		}
		switch kept, why := s.kept(st, archives, p); {
		case kept:
			if p.due.After(st.Due) && len(missed) == 0 {
				st.Due = p.due
			}
		case why == "":
			missed = append(missed, s.missing(j, g, p))
			if st.Due.IsZero() || len(missed) == 1 || p.due.Before(st.Due) {
				st.Due = p.due
			}
		default:
			unclear = append(unclear, why)
		}
	}
	switch {
	case len(missed) > 0 && st.Archives == 0 && doubtful == 0 && s.seesAll(g):
		st.Verdict, st.Why = Never, strings.Join(missed, "; ")
	case len(missed) > 0 && st.Archives == 0 && len(unclear)+doubtful > 0:
		st.Verdict, st.Why = Unclear, strings.Join(append(unclear, missed...), "; ")
	case len(missed) > 0:
		st.Verdict, st.Why = Stale, strings.Join(missed, "; ")
	case len(unclear) > 0:
		st.Verdict, st.Why = Unclear, strings.Join(unclear, "; ")
	case pending && st.Archives == 0:
		st.Verdict, st.Why = New, "it is younger than the last run of its jobs"
		if born.IsZero() {
			st.Why = "its jobs have had no run yet whose backup would have to be there"
		}
	default:
		st.Verdict = Fresh
	}
}

// kept says whether a promise was kept; when it is neither kept nor surely broken, why says what is missing.
func (s *Site) kept(st *State, archives []*Archive, p promise) (kept bool, why string) {
	storage := string(p.job.Storage)
	from := p.due.Add(-skew - p.wide)
	broken, foreign := "", false
	for _, a := range archives {
		if storage != "" && a.Storage != storage || a.Time.Before(from) {
			continue
		}
		switch {
		case a.Counts():
			return true, ""
		case a.Verify == "failed" && (a.Whose == Own || a.Whose == Likely):
			broken = "bad"
		case a.Whose == Unknown:
			foreign = true
			why = "there is an archive of " + a.Time.Format(time.RFC3339) + " on " + a.Storage + ", and it is not certain to be this guest's: " + a.Why
		}
	}
	if foreign {
		return false, why
	}
	if broken != "" {
		return false, ""
	}
	if !p.before && s.underWay(st.Guest, from) { // then the run before it is what counts
		st.Running = true
		loc, _ := s.Zone(st.Guest.Node)
		if due, ok := p.job.event.Last(p.due.Add(-time.Second), loc); ok {
			p.due, p.before = due, true
			return s.kept(st, archives, p)
		}
		return true, ""
	}
	if p.job.DumpDir != "" {
		return false, "job " + string(p.job.ID) + " writes into a folder that the API does not show"
	}
	if gap := s.blind(storage, st.Guest); gap != "" {
		return false, gap
	}
	return false, ""
}

// underWay says whether a backup of a guest runs that began at a time or later.
func (s *Site) underWay(g estate.Guest, from time.Time) bool {
	run := s.lastRun(g)
	if run == nil {
		return g.Lock == "backup" && s.logs[g.Node] == nil
	}
	return run.End.IsZero() && !run.Start.Before(from)
}

// blind says what keeps a guest's archives on a storage (or on any) from being seen; empty when absence counts.
func (s *Site) blind(storage string, g estate.Guest) string {
	found := false
	for _, st := range s.stores {
		if storage != "" && st.name != storage {
			continue
		}
		found = true
		if !st.read { // a guest may have been on another node when it was saved
			return "storage " + st.name + " could not be read: " + st.gap
		}
		if !s.rights.seesArchives(st.name, g.ID) {
			return "archives on storage " + st.name + " are hidden from castellan's user (they take Datastore.AllocateSpace there and VM.Backup on the guest)"
		}
	}
	if !found && storage != "" {
		return "storage " + storage + " cannot be seen: Datastore.Audit on /storage/" + storage
	}
	return ""
}

// seesAll says whether every archive of a guest would be seen, wherever it is.
func (s *Site) seesAll(g estate.Guest) bool {
	return !slices.ContainsFunc(s.stores, func(st store) bool {
		return !st.read && st.gap != "it is disabled" || !s.rights.seesArchives(st.name, g.ID)
	})
}

// missing says what is missing, and what is known of the cause.
func (s *Site) missing(j *Job, g estate.Guest, p promise) string {
	loc, known := s.Zone(g.Node)
	when := p.due.In(loc).Format("2006-01-02 15:04 MST")
	if !known {
		when = "about " + p.due.Format("2006-01-02")
	}
	out := "job " + string(j.ID) + " should have made one on " + orAny(string(j.Storage)) + " at " + when
	for _, n := range s.Inventory.Nodes {
		if n.Name != g.Node {
			continue
		}
		began := s.Now.Add(-time.Duration(n.Uptime) * time.Second)
		switch {
		case n.Status != "online":
			out += "; node " + n.Name + " is " + n.Status
		case n.Uptime > 0 && began.After(p.due) && !bool(j.RepeatMissed) && !s.ranSince(n.Name, p.due):
			out += "; node " + n.Name + " was started after that, and the job does not repeat what it missed"
		}
	}
	return out
}

// ranSince says whether a backup task of a node began at a time or later.
func (s *Site) ranSince(node string, t time.Time) bool {
	l := s.logs[node]
	return l != nil && slices.ContainsFunc(l.runs, func(r *Run) bool { return !r.Start.Before(t.Add(-skew)) })
}

func orAny(storage string) string {
	if storage == "" {
		return "the default storage"
	}
	return storage
}

// lastRun is the newest run that was for a guest: its own, or one of several guests on its node.
func (s *Site) lastRun(g estate.Guest) *Run {
	var out *Run
	for _, l := range s.logs {
		for _, run := range l.runs {
			if (run.Guest == g.ID || run.Guest == "" && run.Node == g.Node) && (out == nil || run.Start.After(out.Start)) {
				out = run
			}
		}
	}
	return out
}

// Counted tells how many guests have each verdict.
func Counted(states []State) map[string]int {
	out := map[string]int{}
	for _, st := range states {
		out[string(st.Verdict)]++
	}
	return out
}

// Summary says how the archives of a guest's id divide, for texts.
func (st State) Summary() string {
	if st.Others == 0 {
		return fmt.Sprintf("%d", st.Archives)
	}
	return fmt.Sprintf("%d, and %d of the same id that are not certain to be its own", st.Archives, st.Others)
}
