package lab

import (
	"sort"
	"strconv"
	"strings"
	"time"

	"castellan/internal/regex"
)

var upidForm = &regex.Lazy{Expr: `^UPID:([a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?):([0-9A-Fa-f]{8}):([0-9A-Fa-f]{8,9}):([0-9A-Fa-f]{8}):([^:\s]+):([^:\s]*):([^:\s]+):$`}

// taskOf finds the task of the path. Its node must be the one asked.
func (c *call) taskOf() (*task, []string, error) {
	upid := c.str("upid")
	m := upidForm.FindStringSubmatch(upid)
	if m == nil {
		return nil, nil, bad("upid", "unable to parse worker upid")
	}
	t := c.s.byUPID[upid]
	if t != nil && t.node != c.node.name {
		t = nil
	}
	return t, m, nil
}

func (c *call) maySeeTask(m []string) error {
	who := m[7]
	if who == c.user.id() {
		return nil
	}
	if u, _ := splitToken(who); c.user.token == "" && u == c.user.user {
		return nil
	}
	return c.need("/nodes/"+c.node.name, "Sys.Audit")
}

func taskStatus(c *call) (any, error) {
	t, m, err := c.taskOf()
	if err != nil {
		return nil, err
	}
	if err := c.maySeeTask(m); err != nil {
		return nil, err
	}
	if m[1] != c.node.name || t == nil {
		return nil, bad("upid", "no such task")
	}
	out := t.info()
	out["status"] = "running"
	if t.done {
		out["status"] = "stopped"
		out["exitstatus"] = t.exit
	}
	return out, nil
}

func taskLog(c *call) (any, error) {
	t, m, err := c.taskOf()
	if err != nil {
		return nil, err
	}
	if err := c.maySeeTask(m); err != nil {
		return nil, err
	}
	lines := []string{"no content"}
	if t == nil {
		lines = []string{"unable to open file - No such file or directory"}
	} else if len(t.log) > 0 {
		lines = t.log
	}
	if c.flag("download") {
		if c.has("start") || c.has("limit") {
			return nil, die("'download' cannot be used together with 'start' or 'limit' parameters")
		}
		return &result{raw: &response{status: 200, reason: "OK", ctype: "text/plain", gzipped: true, body: c.l.zip([]byte(strings.Join(lines, "\n") + "\n")),
			header: map[string]string{"Content-Disposition": `attachment; filename="task-` + c.node.name + `-` + m[5] + `-` + time.Unix(hexTime(m[4]), 0).UTC().Format("2006-01-02T15:04:05Z") + `.log"`}}}, nil
	}
	return &result{data: logPage(lines, c.num("start"), c.numOr("limit", 50)), total: len(lines)}, nil
}

func hexTime(h string) int64 {
	n, err := strconv.ParseInt(h, 16, 64)
	if err != nil {
		return 0
	}
	return n
}

func (c *call) numOr(k string, def int) int {
	if !c.has(k) {
		return def
	}
	return c.num(k)
}

func logPage(lines []string, start, limit int) []M {
	out := []M{}
	for i := start; i >= 0 && i < len(lines) && (limit == 0 || i < start+limit); i++ {
		out = append(out, M{"n": i + 1, "t": lines[i]})
	}
	return out
}

func taskStop(c *call) (any, error) {
	t, m, err := c.taskOf()
	if err != nil {
		return nil, err
	}
	who := m[7]
	u, _ := splitToken(who)
	if who != c.user.id() && (c.user.token != "" || u != c.user.user) {
		if err := c.need("/nodes/"+c.node.name, "Sys.Modify"); err != nil {
			return nil, err
		}
	}
	if m[1] != c.node.name || t == nil {
		if m[1] != c.node.name {
			return nil, bad("upid", "no such task")
		}
		return nil, nil
	}
	c.s.interrupt(t)
	return nil, nil
}

func taskIndex(c *call) (any, error) { return []M{{"name": "log"}, {"name": "status"}}, nil }

// nodeTasks is the task list of a node: newest first.
func nodeTasks(c *call) (any, error) {
	all := c.can("/nodes/"+c.node.name, "Sys.Audit")
	source := c.str("source")
	if source == "" {
		source = "archive"
	}
	filter := map[string]bool{}
	for _, f := range splitList(c.str("statusfilter")) {
		if msg := statusFilter(f); msg != "" {
			return nil, bad("statusfilter", "%s", strings.TrimSuffix(msg, "\n"))
		}
		filter[f] = true
	}
	var picked []*task
	for i := len(c.s.tasks) - 1; i >= 0; i-- {
		t := c.s.tasks[i]
		if t.node != c.node.name || !all && !t.mine(c) {
			continue
		}
		switch source {
		case "archive":
			if !t.done {
				continue
			}
		case "active":
			if t.done {
				continue
			}
		}
		if c.flag("errors") && (!t.done || t.exit == "OK") {
			continue
		}
		if c.has("vmid") && t.id != c.str("vmid") {
			continue
		}
		if c.has("typefilter") && t.typ != c.str("typefilter") {
			continue
		}
		u, _ := splitToken(t.user.id())
		if c.has("userfilter") && !strings.Contains(strings.ToLower(u), strings.ToLower(c.str("userfilter"))) {
			continue
		}
		if c.has("since") && t.start.Unix() < int64(c.num("since")) || c.has("until") && t.start.Unix() > int64(c.num("until")) {
			continue
		}
		if len(filter) > 0 {
			word := "unknown"
			switch {
			case !t.done || t.exit == "unexpected status":
			case t.exit == "OK":
				word = "ok"
			case strings.HasPrefix(t.exit, "WARNINGS: "):
				word = "warning"
			default:
				word = "error"
			}
			if !filter[word] {
				continue
			}
		}
		picked = append(picked, t)
	}
	if source == "archive" {
		// Archives are ordered by the end of the tasks.
		sort.SliceStable(picked, func(i, j int) bool { return picked[i].end.After(picked[j].end) })
	} else {
		sort.SliceStable(picked, func(i, j int) bool { return !picked[i].done && picked[j].done })
	}
	start, limit := c.num("start"), c.numOr("limit", 50)
	out := []M{}
	for i := start; i < len(picked) && i < start+limit; i++ {
		t := picked[i]
		m := t.info()
		if t.done {
			m["endtime"], m["status"] = t.end.Unix(), t.exit
		} else {
			m["status"], m["saved"] = "RUNNING", "0"
			m["user"] = t.user.id()
			delete(m, "tokenid")
		}
		out = append(out, m)
	}
	r := &result{data: out}
	if len(picked) > 0 {
		r.total = len(picked)
	}
	return r, nil
}

func clusterTasks(c *call) (any, error) {
	all := c.can("/", "Sys.Audit")
	out := []M{}
	count := map[string]int{}
	for i := len(c.s.tasks) - 1; i >= 0; i-- {
		t := c.s.tasks[i]
		if count[t.node] >= 25 || !all && !t.mine(c) {
			continue
		}
		count[t.node]++
		m := M{"upid": t.upid, "node": t.node, "starttime": t.start.Unix(), "type": t.typ, "id": t.id}
		t.who(m)
		if t.done {
			m["endtime"], m["status"], m["saved"] = t.end.Unix(), t.exit, "1"
		} else {
			m["pid"] = t.pid
		}
		out = append(out, m)
	}
	return out, nil
}
