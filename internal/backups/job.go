package backups

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"castellan/internal/estate"
)

// Job is a backup job as Proxmox stores it. A job whose enabled is absent is on.
type Job struct {
	ID           estate.Text  `json:"id"`
	Schedule     estate.Text  `json:"schedule"`
	StartTime    estate.Text  `json:"starttime"` // of jobs from before schedules
	DOW          estate.Text  `json:"dow"`
	Enabled      *estate.Bool `json:"enabled"`
	All          estate.Bool  `json:"all"`
	VMID         estate.Text  `json:"vmid"`
	Exclude      estate.Text  `json:"exclude"`
	Pool         estate.Text  `json:"pool"`
	Node         estate.Text  `json:"node"`
	Storage      estate.Text  `json:"storage"`
	DumpDir      estate.Text  `json:"dumpdir"`
	Mode         estate.Text  `json:"mode"`
	Comment      estate.Text  `json:"comment"`
	RepeatMissed estate.Bool  `json:"repeat-missed"`
	Prune        keep         `json:"prune-backups"`

	event   Event
	fault   string              // why the schedule cannot be computed
	chosen  map[string]bool     // the guests that the site itself says it selects; nil = not asked or not told
	partial bool                // chosen lacks guests that castellan's user may not see
	left    map[string][]string // guest → disks that are left out
}

// keep is a retention as text, whether it came as text or as object.
type keep string

// UnmarshalJSON takes both.
func (k *keep) UnmarshalJSON(b []byte) error {
	var set map[string]estate.Text
	if json.Unmarshal(b, &set) == nil {
		var parts []string
		for name, v := range set {
			parts = append(parts, name+"="+string(v))
		}
		slices.Sort(parts)
		*k = keep(strings.Join(parts, ","))
		return nil
	}
	var t estate.Text
	_ = t.UnmarshalJSON(b) // takes everything
	*k = keep(t)
	return nil
}

// On says whether the job runs at all.
func (j *Job) On() bool { return j.Enabled == nil || bool(*j.Enabled) }

// When is its schedule as text.
func (j *Job) When() string {
	if j.Schedule != "" || j.StartTime == "" {
		return string(j.Schedule)
	}
	return strings.TrimSpace(string(j.DOW) + " " + string(j.StartTime))
}

// Fault says why its schedule cannot be computed; empty when it can.
func (j *Job) Fault() string { return j.fault }

// Selects says in words which guests it is for.
func (j *Job) Selects() string {
	out := "guests " + string(j.VMID)
	switch {
	case bool(j.All):
		out = "all guests"
		if j.Exclude != "" {
			out += " but " + string(j.Exclude)
		}
	case j.Pool != "":
		out = "pool " + string(j.Pool)
	}
	if j.Node != "" {
		out += " on node " + string(j.Node)
	}
	return out
}

func (s *Site) readJobs(failed error) {
	if failed != nil {
		s.Jobs = nil
		s.miss("the backup jobs could not be read, so that nothing is known of what is promised: Sys.Audit on /: " + why(failed))
		return
	}
	s.JobsKnown = true
	for i := range s.Jobs {
		s.Jobs[i].prepare()
	}
	slices.SortFunc(s.Jobs, func(a, b Job) int { return cmp.Compare(a.ID, b.ID) })
}

func (j *Job) prepare() {
	var err error
	if j.event, err = ParseEvent(j.When()); err != nil {
		j.fault = err.Error()
	}
}

// readSelection asks the site which guests a job selects, and which of their disks it leaves out.
func (s *Site) readSelection(r reader, j *Job, lock sync.Locker) {
	type item struct {
		ID       estate.Text `json:"id"`
		Included estate.Bool `json:"included"`
		Reason   estate.Text `json:"reason"`
		Children []item      `json:"children"`
	}
	var tree struct {
		Children []item      `json:"children"`
		Partial  estate.Bool `json:"not_all_permissions"`
	}
	err := r.get(&tree, "GET /cluster/backup/{id}/included_volumes", map[string]string{"id": string(j.ID)})
	lock.Lock()
	defer lock.Unlock()
	if err != nil {
		s.miss("which disks job " + string(j.ID) + " leaves out could not be read: " + why(err))
		return
	}
	j.chosen, j.left, j.partial = map[string]bool{}, map[string][]string{}, bool(tree.Partial)
	for _, g := range tree.Children {
		j.chosen[string(g.ID)] = true
		for _, disk := range g.Children {
			if reason := strings.ToLower(string(disk.Reason)); !bool(disk.Included) && !strings.Contains(reason, "cd-rom") && !strings.Contains(reason, "cloudinit") {
				j.left[string(g.ID)] = append(j.left[string(g.ID)], string(disk.ID))
			}
		}
		slices.Sort(j.left[string(g.ID)])
	}
}

// covers says whether a job selects a guest; sure is false where that cannot be told.
func (s *Site) covers(j *Job, g estate.Guest) (in, sure bool) {
	if j.Node != "" && string(j.Node) != g.Node {
		return false, true
	}
	if j.chosen != nil {
		if j.chosen[g.ID] {
			return true, true
		}
		if !j.partial {
			return false, true
		}
	}
	list := func(t estate.Text) bool { return slices.Contains(estate.Tags(string(t)), g.ID) }
	switch {
	case bool(j.All):
		return !list(j.Exclude), true
	case j.Pool != "":
		if string(j.Pool) == g.Pool {
			return true, true
		}
		if strings.HasPrefix(g.Pool, string(j.Pool)+"/") { // whether a job reaches into pools below depends on the version
			if s.notIn != nil {
				return !s.notIn[g.ID], true
			}
			return false, false
		}
		return false, true
	}
	return list(j.VMID), true
}

// Covers says whether a job selects a guest, and how many of its disks the job leaves out.
func (s *Site) Covers(j *Job, g estate.Guest) (in bool, left int) {
	in, _ = s.covers(j, g)
	return in, len(j.left[g.ID])
}

// NextRun is the job's next run on a node; ok is false when it is off, cannot be computed, or never comes.
func (s *Site) NextRun(j *Job, node string) (time.Time, bool) {
	if !j.On() || j.fault != "" {
		return time.Time{}, false
	}
	loc, _ := s.Zone(node)
	return j.event.Next(s.Now, loc)
}

// NextRuns lists the next runs of a schedule by the clock of a node, for showing what a change would mean.
func (s *Site) NextRuns(j *Job, node string, n int) []time.Time {
	var out []time.Time
	loc, _ := s.Zone(node)
	at := s.Now
	for range n {
		next, ok := j.event.Next(at, loc)
		if !ok || j.fault != "" {
			break
		}
		out = append(out, next)
		at = next
	}
	return out
}

// HomeNode is the node by whose clock a job is shown: its own, or the first that is online.
func (s *Site) HomeNode(j *Job) string {
	if j.Node != "" {
		return string(j.Node)
	}
	for _, n := range s.Inventory.Online() {
		if s.zones[n] != nil {
			return n
		}
	}
	return ""
}

// ZonesDiffer says whether the nodes' clocks show different times, so that a job runs at different moments.
func (s *Site) ZonesDiffer() bool {
	var first string
	for _, loc := range s.zones {
		switch {
		case first == "":
			first = loc.String()
		case first != loc.String():
			return true
		}
	}
	return false
}

// promise is what one job owes a guest.
type promise struct {
	job  *Job
	due  time.Time // the latest run whose archive should be there by now; zero = none yet
	wide time.Duration
	next time.Time

	before bool // due is the run before the latest
}

// unsure is how far a clock of an unknown zone may be from UTC.
const unsure = 14 * time.Hour

func (s *Site) promise(j *Job, g estate.Guest) promise {
	p := promise{job: j}
	loc, known := s.Zone(g.Node)
	if !known && !j.event.utc {
		p.wide = unsure
	}
	if last, ok := j.event.Last(s.Now.Add(-s.q.Grace-p.wide), loc); ok {
		p.due = last
	}
	if next, ok := j.event.Next(s.Now, loc); ok {
		p.next = next
	}
	return p
}

// Every says in words how far apart the runs are.
func (j *Job) Every(now time.Time) string {
	a, ok := j.event.Next(now, time.UTC)
	b, again := j.event.Next(a, time.UTC)
	if !ok || !again || j.fault != "" {
		return ""
	}
	return age(b.Sub(a))
}

// age writes a duration in its largest fitting units.
func age(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + age(-d)
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d d", int(d.Hours()/24))
}

// NewJob makes a job of settings as they are sent, to see what it would do.
func NewJob(settings map[string]string) Job {
	j := Job{ID: estate.Text(settings["id"]), Schedule: estate.Text(settings["schedule"]), All: settings["all"] == "1", VMID: estate.Text(settings["vmid"]), Exclude: estate.Text(settings["exclude"]),
		Pool: estate.Text(settings["pool"]), Node: estate.Text(settings["node"]), Storage: estate.Text(settings["storage"]), StartTime: estate.Text(settings["starttime"]), DOW: estate.Text(settings["dow"])}
	if on, given := settings["enabled"]; given {
		b := estate.Bool(on == "1")
		j.Enabled = &b
	}
	j.prepare()
	return j
}
