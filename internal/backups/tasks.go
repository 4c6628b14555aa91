package backups

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"castellan/internal/estate"
	"castellan/internal/regex"
)

// taskRow is a task in a list, where status is the exit status.
type taskRow struct {
	UPID   estate.Text `json:"upid"`
	Type   estate.Text `json:"type"`
	ID     estate.Text `json:"id"`
	Node   estate.Text `json:"node"`
	Start  estate.Int  `json:"starttime"`
	End    estate.Int  `json:"endtime"`
	Status estate.Text `json:"status"`
}

// Run is one run of a backup task.
type Run struct {
	UPID  string
	Node  string
	Guest string // empty: of several guests
	Start time.Time
	End   time.Time // zero while it runs
	OK    bool
	Exit  string // the exit status as told, when it is not OK

	read   bool
	made   map[string]bool   // archives that its log names, by archiveName
	failed map[string]string // guests that its log says failed, with the reason
}

// taskLog is what one node's task list shows.
type taskLog struct {
	since time.Time // complete since then; zero = nothing is known
	runs  []*Run
	born  map[string]time.Time // a guest of that id was created or restored
	died  map[string]time.Time
	clone []time.Time // a guest was cloned; the list does not say to which id
}

// maxTasks is how far a node's task list is read at once.
const maxTasks = 1000

// readTasks reads a node's task list. Without Sys.Audit the server shows only one's own tasks: absence means nothing then.
func (s *Site) readTasks(r reader, node string, lock sync.Locker) {
	var rows []taskRow
	err := r.get(&rows, "GET /nodes/{node}/tasks", map[string]string{"node": node, "source": "all", "limit": fmt.Sprint(maxTasks)})
	if err == nil && len(rows) == maxTasks && s.backupsBefore(rows) {
		var more []taskRow // other tasks fill the list: backups by themselves reach further back
		if r.get(&more, "GET /nodes/{node}/tasks", map[string]string{"node": node, "source": "all", "limit": fmt.Sprint(maxTasks), "typefilter": "vzdump"}) == nil {
			rows = append(rows, more...)
		}
	}
	lock.Lock()
	defer lock.Unlock()
	if err != nil {
		s.miss("the task log of node " + node + " could not be read: " + why(err))
		return
	}
	audit := s.rights.has("/nodes/"+node, "Sys.Audit")
	if !audit {
		s.lack("the task log of node "+node+" shows only castellan's own tasks: Sys.Audit on /nodes/"+node, "node "+node, "its task log shows only castellan's own tasks", Grant{"/nodes/" + node, "Sys.Audit"})
	}
	s.logs[node] = readLog(rows, node, audit && !s.scoped)
}

// backupsBefore says whether the oldest row leaves the last days uncovered.
func (s *Site) backupsBefore(rows []taskRow) bool {
	oldest := s.Now
	for _, row := range rows {
		if t := time.Unix(int64(row.Start), 0); t.Before(oldest) {
			oldest = t
		}
	}
	return oldest.After(s.Now.Add(-35 * 24 * time.Hour))
}

func readLog(rows []taskRow, node string, complete bool) *taskLog {
	l := &taskLog{born: map[string]time.Time{}, died: map[string]time.Time{}}
	seen := map[string]*Run{}
	for _, row := range rows {
		start := time.Unix(int64(row.Start), 0).UTC()
		if row.Start <= 0 {
			continue
		}
		if complete && (l.since.IsZero() || start.Before(l.since)) {
			l.since = start
		}
		id := string(row.ID)
		ok := row.Status == "OK" || strings.HasPrefix(string(row.Status), "WARNINGS")
		switch row.Type {
		case "vzdump":
			run := &Run{UPID: string(row.UPID), Node: node, Guest: id, Start: start, OK: ok && row.End > 0}
			if row.End > 0 {
				run.End = time.Unix(int64(row.End), 0).UTC()
				if !ok {
					run.Exit = clip(string(row.Status), 120)
				}
			}
			if old := seen[run.UPID]; old != nil { // running and ended at once: the ended one knows more
				if !run.End.IsZero() {
					*old = *run
				}
				continue
			}
			seen[run.UPID] = run
			l.runs = append(l.runs, run)
		case "qmcreate", "vzcreate", "qmrestore", "vzrestore":
			if start.After(l.born[id]) {
				l.born[id] = start
			}
		case "qmdestroy", "vzdestroy":
			if start.After(l.died[id]) {
				l.died[id] = start
			}
		case "qmclone", "vzclone":
			l.clone = append(l.clone, start)
		}
	}
	return l
}

// readRecent reads the site's short list of recent tasks for the runs of jobs.
func (s *Site) readRecent(r reader, lock sync.Locker) {
	var rows []taskRow
	if r.get(&rows, "GET /cluster/tasks", nil) != nil {
		return
	}
	by := map[string][]taskRow{}
	for _, row := range rows {
		if row.Type == "vzdump" && row.ID == "" {
			by[string(row.Node)] = append(by[string(row.Node)], row)
		}
	}
	lock.Lock()
	defer lock.Unlock()
	for node, rows := range by {
		s.logs["recent of "+node] = readLog(rows, node, false)
	}
}

// born is the latest sign that a guest of that id began, or began anew.
func (s *Site) born(id string) (at time.Time, how string) {
	for _, l := range s.logs {
		if t := l.born[id]; t.After(at) {
			at, how = t, "a guest of that id was created or restored"
		}
		if t := l.died[id]; t.After(at) {
			at, how = t, "a guest of that id was destroyed"
		}
	}
	return at, how
}

// logsReach says whether the task logs of all nodes reach back to a time.
func (s *Site) logsReach(t time.Time) bool {
	for _, n := range s.Inventory.Nodes {
		l := s.logs[n.Name]
		if l == nil || l.since.IsZero() || l.since.After(t) {
			return false
		}
	}
	return len(s.Inventory.Nodes) > 0
}

// skew is how far the clocks of nodes and servers may differ.
const skew = 2 * time.Minute

// during lists the runs of this cluster that could have made an archive of a guest at a time.
func (s *Site) during(a *Archive) []*Run {
	var out []*Run
	for _, l := range s.logs {
		for _, run := range l.runs {
			end := run.End
			if end.IsZero() {
				end = s.Now
			}
			if (run.Guest == "" || run.Guest == a.Guest) && !a.Time.Before(run.Start.Add(-skew)) && !a.Time.After(end.Add(skew)) && !slices.ContainsFunc(out, func(o *Run) bool { return o.UPID == run.UPID }) {
				out = append(out, run)
			}
		}
	}
	return out
}

// madeHere says whether a task of this cluster made the archive; sure is false when that cannot be told.
func (s *Site) madeHere(a *Archive) (made, sure bool) {
	runs := s.during(a)
	if len(runs) == 0 {
		return false, s.logsReach(a.Time.Add(-skew))
	}
	proven := true
	for _, run := range runs {
		switch {
		case run.made[archiveName(a.Volume)]:
			return true, true
		case run.read && !run.End.IsZero():
			continue // its whole log does not name it
		case run.OK && s.alone(a, run) && !s.clonedSince(a.Time):
			return true, true
		}
		proven = false
	}
	return false, proven && s.logsReach(a.Time.Add(-skew))
}

// alone says whether the archive is the only one of its guest on its storage from the time of a run.
func (s *Site) alone(a *Archive, run *Run) bool {
	for _, b := range s.Archives {
		if b.Volume != a.Volume && b.Guest == a.Guest && b.Storage == a.Storage && !b.Time.Before(run.Start.Add(-skew)) && !b.Time.After(run.End.Add(skew)) {
			return false
		}
	}
	return true
}

func (s *Site) clonedSince(t time.Time) bool {
	for _, l := range s.logs {
		if slices.ContainsFunc(l.clone, func(c time.Time) bool { return c.After(t) }) {
			return true
		}
	}
	return false
}

// Logs of runs are read where the list does not prove enough, the newest first.
const (
	maxLogs     = 24
	maxLogLines = 20_000
)

// proveByLog reads the logs of runs that do not prove by their end alone which archives they made.
func (s *Site) proveByLog(r reader) {
	need := map[*Run]bool{}
	for i := range s.Archives {
		a := &s.Archives[i]
		if !a.away && !s.otherClusters(a.Storage) || a.Time.Before(s.Now.Add(-40*24*time.Hour)) {
			continue
		}
		for _, run := range s.during(a) {
			if !run.OK || !s.alone(a, run) || s.clonedSince(a.Time) {
				need[run] = true
			}
		}
	}
	var failed []*Run
	for _, l := range s.logs { // why a guest's last backup failed
		for _, run := range l.runs {
			if !run.OK && !run.End.IsZero() && run.Start.After(s.Now.Add(-8*24*time.Hour)) && (s.q.Guest == "" || run.Guest == "" || run.Guest == s.q.Guest) {
				failed = append(failed, run)
			}
		}
	}
	newestFirst := func(a, b *Run) int { return b.Start.Compare(a.Start) }
	list := make([]*Run, 0, len(need))
	for run := range need {
		list = append(list, run)
	}
	slices.SortFunc(list, newestFirst)
	slices.SortFunc(failed, newestFirst)
	for _, run := range failed {
		if !need[run] {
			list = append(list, run)
		}
	}
	list = list[:min(len(list), maxLogs)]
	each(len(list), func(i int) { readRun(r, list[i]) })
}

var (
	logMade   = &regex.Lazy{Expr: `^INFO: creating (?:Proxmox Backup Server|vzdump) archive '([^']{1,400})'`}
	logFailed = &regex.Lazy{Expr: `^ERROR: Backup of VM ([0-9]{1,9}) failed - (.{0,200})`}
)

func readRun(r reader, run *Run) {
	var lines []struct {
		Text string `json:"t"`
	}
	if r.get(&lines, "GET /nodes/{node}/tasks/{upid}/log", map[string]string{"node": run.Node, "upid": run.UPID, "limit": fmt.Sprint(maxLogLines)}) != nil {
		return
	}
	run.made, run.failed = map[string]bool{}, map[string]string{}
	begun := ""
	for _, l := range lines {
		if m := logMade.FindStringSubmatch(l.Text); m != nil {
			begun = archiveName(m[1])
			run.made[begun] = true
		}
		if m := logFailed.FindStringSubmatch(l.Text); m != nil {
			run.failed[m[1]] = clip(m[2], 160)
			if begun != "" && ownerOfName(begun) == m[1] { // what it had begun is no backup
				delete(run.made, begun)
			}
			begun = ""
		}
	}
	run.read = len(lines) < maxLogLines
}

func ownerOfName(name string) string {
	if id := estate.OwnerOf(name); id != "" {
		return id
	}
	return estate.OwnerOf("backup/" + name)
}

// archiveName is the part of an archive's name that volume and log have in common: "vm/101/2026-…Z", or the file's name.
func archiveName(s string) string {
	parts := strings.Split(s, "/")
	if n := len(parts); n >= 3 && strings.HasSuffix(parts[n-1], "Z") {
		kind := parts[n-3][strings.LastIndexByte(parts[n-3], ':')+1:]
		if kind == "vm" || kind == "ct" {
			return kind + "/" + parts[n-2] + "/" + parts[n-1]
		}
	}
	return parts[len(parts)-1]
}
