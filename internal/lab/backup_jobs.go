package lab

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

func (s *state) dropJob(id string) {
	delete(s.jobs, id)
	for i, x := range s.jobOrder {
		if x == id {
			s.jobOrder = append(s.jobOrder[:i:i], s.jobOrder[i+1:]...)
			return
		}
	}
}

func (c *call) jobShow(id string) M {
	m := copyM(c.s.jobs[id])
	m["id"], m["type"] = id, "vzdump"
	if cal, ok := parseCalendar(fmt.Sprint(m["schedule"])); ok {
		if at := cal.next(c.s.now); !at.IsZero() {
			m["next-run"] = at.Unix()
		}
	}
	return m
}

func listJobs(c *call) (any, error) {
	out := []M{}
	for _, id := range c.s.jobOrder {
		out = append(out, c.jobShow(id))
	}
	return out, nil
}

func getJob(c *call) (any, error) {
	id := c.str("id")
	if c.s.jobs[id] == nil {
		return nil, bad("id", "No such job '%s'", id)
	}
	m := c.jobShow(id)
	delete(m, "next-run")
	return m, nil
}

// jobParams turns parameters into a job's stored keys.
func (c *call) jobParams(m M) error {
	sel := 0
	var first string
	for _, k := range []string{"all", "vmid", "pool"} {
		if c.has(k) && !(k == "all" && !c.flag(k)) {
			sel++
			if first == "" {
				first = k
			}
		}
	}
	if sel > 1 {
		other := "vmid"
		if !c.has("vmid") {
			other = "pool"
		}
		return wrapped(map[string]string{first: "option conflicts with option '" + other + "'"})
	}
	for k := range c.p {
		switch k {
		case "id", "delete", "starttime", "dow", "comment-delete":
			continue
		case "prune-backups", "fleecing", "performance":
			obj := M{}
			for a, b := range parseKeep(c.str(k)) {
				obj[a] = b
			}
			m[k] = obj
		default:
			m[k] = c.typedParam(k)
		}
	}
	if c.has("starttime") {
		m["schedule"] = c.str("starttime")
		if c.has("dow") {
			m["schedule"] = c.str("dow") + " " + c.str("starttime")
		}
	}
	return nil
}

func (c *call) jobRights() error {
	if c.has("pool") && c.s.pools[c.str("pool")] == nil {
		return denied("pool '" + c.str("pool") + "' does not exist")
	}
	for _, k := range []string{"tmpdir", "dumpdir", "script"} {
		if c.has(k) && !c.user.root() {
			return denied("parameter '" + k + "' is only allowed for root@pam")
		}
	}
	if st := c.str("storage"); st != "" && c.s.storages[st] != nil {
		return c.need("/storage/"+st, "Datastore.Allocate")
	}
	return nil
}

func createJob(c *call) (any, error) {
	if err := c.jobRights(); err != nil {
		return nil, err
	}
	id := c.str("id")
	if id == "" {
		id = "backup-" + newUUID()[:13]
	}
	m := M{"enabled": 1}
	if err := c.jobParams(m); err != nil {
		return nil, err
	}
	if !c.has("vmid") && !c.has("pool") && !c.flag("all") {
		return nil, wrapped(map[string]string{"vmid": "property is missing"})
	}
	if c.has("starttime") && c.has("schedule") {
		return nil, bad("schedule", "'starttime' and 'schedule' cannot both be set")
	}
	if m["schedule"] == nil {
		return nil, bad("schedule", "property is missing and it is not optional")
	}
	if c.s.jobs[id] != nil {
		return nil, die("Job '%s' already exists", id)
	}
	c.s.jobs[id] = m
	c.s.jobOrder = append(c.s.jobOrder, id)
	return nil, nil
}

func updateJob(c *call) (any, error) {
	if err := c.jobRights(); err != nil {
		return nil, err
	}
	job := c.s.jobs[c.str("id")]
	if job == nil {
		return nil, die("no such vzdump job")
	}
	m := copyM(job)
	for _, k := range splitList(c.str("delete")) {
		if lookup(c.op.Params, k) == nil {
			return nil, bad("delete", "unknown option '%s'", k)
		}
		delete(m, k)
	}
	if err := c.jobParams(m); err != nil {
		return nil, err
	}
	for _, k := range []string{"all", "vmid", "pool"} {
		if !c.has(k) || k == "all" && !c.flag(k) {
			continue
		}
		for _, other := range []string{"all", "vmid", "pool"} {
			if other != k {
				delete(m, other)
			}
		}
		if k != "all" {
			delete(m, "exclude")
		}
	}
	c.s.jobs[c.str("id")] = m
	return nil, nil
}

func deleteJob(c *call) (any, error) {
	id := c.str("id")
	if c.s.jobs[id] == nil {
		return nil, wrapped(map[string]string{"id": "No such job '" + id + "'"})
	}
	c.s.dropJob(id)
	return nil, nil
}

// jobGuests are the guests that a job selects.
func (s *state) jobGuests(j M) []int {
	var out []int
	skip := map[int]bool{}
	ex, _ := j["exclude"].(string)
	for _, v := range splitList(ex) {
		skip[atoi(v)] = true
	}
	list, _ := j["vmid"].(string)
	pool, _ := j["pool"].(string)
	for _, id := range s.sortedIDs() {
		switch {
		case skip[id]:
		case fmt.Sprint(j["all"]) == "1", pool != "" && s.guestPool[id] == pool, contains(splitList(list), strconv.Itoa(id)):
			if n, _ := j["node"].(string); n == "" || s.guests[id].node == n {
				out = append(out, id)
			}
		}
	}
	return out
}

func notBackedUp(c *call) (any, error) {
	in := map[int]bool{}
	for _, j := range c.s.jobs {
		for _, id := range c.s.jobGuests(j) {
			in[id] = true
		}
	}
	out := []M{}
	for _, id := range c.s.sortedIDs() {
		if g := c.s.guests[id]; !in[id] && c.can(fmt.Sprintf("/vms/%d", id), "VM.Audit") {
			out = append(out, M{"vmid": id, "name": g.name(), "type": g.kind})
		}
	}
	return out, nil
}

func includedVolumes(c *call) (any, error) {
	j := c.s.jobs[c.str("id")]
	if j == nil {
		return nil, bad("id", "No such job '%s'", c.str("id"))
	}
	kids := []M{}
	for _, id := range c.s.jobGuests(j) {
		g := c.s.guests[id]
		vols := []M{}
		for _, k := range g.diskKeys(g.conf) {
			if strings.HasPrefix(k, "unused") {
				continue
			}
			in, why := 1, "enabled"
			if isCDROM(g.conf[k]) {
				in, why = 0, "CD-ROM is excluded"
			} else if k == "rootfs" {
				why = "rootfs"
			} else if option(g.conf[k], "backup") == "0" || strings.HasPrefix(k, "mp") && option(g.conf[k], "backup") != "1" {
				in, why = 0, "disabled"
			}
			name := volumeOf(g.conf[k])
			if name == "" {
				name, _, _ = strings.Cut(g.conf[k], ",")
			}
			vols = append(vols, M{"id": k, "included": in, "leaf": 1, "name": name, "reason": why})
		}
		kids = append(kids, M{"id": id, "type": g.kind, "name": g.name(), "leaf": 0, "children": vols})
	}
	return M{"children": kids, "leaf": 0, "not_all_permissions": 0}, nil
}

func scheduleAnalyze(c *call) (any, error) {
	cal, ok := parseCalendar(c.str("schedule"))
	if !ok {
		return nil, bad("schedule", "unable to parse calendar event")
	}
	at := c.s.now
	if c.has("starttime") {
		at = time.Unix(int64(c.num("starttime")), 0)
	}
	out := []M{}
	for i := 0; i < c.numOr("iterations", 10); i++ {
		if at = cal.next(at); at.IsZero() {
			break
		}
		out = append(out, M{"timestamp": at.Unix(), "utc": at.UTC().Format("Mon Jan _2 15:04:05 2006")})
	}
	return out, nil
}

// Replication jobs.
