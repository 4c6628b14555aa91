package proxmox

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"castellan/internal/gate"
)

const (
	logTail     = 50
	warningTail = 1000
	taskRows    = 1000
)

// Task reads a task once, at the node that its name holds. A node that cannot be asked is an error and the state is
// not known; a task that the server does not know is gate.ErrNotFound.
func (c *Client) Task(ctx context.Context, name, upid string) (gate.TaskState, error) {
	t, err := c.target(name)
	if err != nil {
		return gate.TaskState{UPID: upid}, err
	}
	u, err := ParseUPID(upid)
	if err != nil {
		return gate.TaskState{UPID: upid}, gate.Fail(gate.ErrInvalid, "Take the task id from the answer or from list_tasks, whole.", "%v", err)
	}
	state := gate.TaskState{UPID: upid, Node: u.Node, Type: u.Type, ID: u.ID, User: u.User, Started: u.Started}
	base, params, err := taskPath(t.set.Kind, u)
	if err != nil {
		return state, err
	}
	answer, err := c.readAs(ctx, t, "GET "+base+"/status", params)
	if err != nil {
		if e := asUpstream(err); e != nil && e.Status == 400 && strings.Contains(e.Message+e.Params["upid"], "no such task") {
			e.Kind, e.Hint = gate.ErrNotFound, "No node keeps this task any more, or it is not of this target."
		}
		return state, err
	}
	var told struct {
		Status string  `json:"status"`
		Exit   *string `json:"exitstatus"`
	}
	if err := json.Unmarshal(answer.Data, &told); err != nil {
		return state, &gate.UpstreamError{Kind: gate.ErrUnavailable, Delivery: gate.NotCarriedOut, Message: "the status of the task cannot be read", Cause: err}
	}
	settle(&state, told.Status, told.Exit)
	if state.Running || state.OK && !strings.HasPrefix(state.Exit, "WARNINGS") {
		return state, nil
	}
	c.readLog(ctx, t, base, params, &state)
	return state, nil
}

// settle reads status and exit status. Only what is surely ended is known.
func settle(s *gate.TaskState, status string, exit *string) {
	switch {
	case exit != nil && *exit != "":
		s.Exit = clean(*exit, 2000)
		switch {
		case s.Exit == "OK" || strings.HasPrefix(s.Exit, "WARNINGS: "):
			s.Known, s.OK = true, true
		case strings.EqualFold(s.Exit, "unexpected status") || strings.EqualFold(s.Exit, "unknown"):
			// The worker died or its log has no last line: how it ended is not known.
		default:
			s.Known = true
		}
	case strings.EqualFold(status, "running"):
		s.Running, s.Known = true, true
	}
}

// taskPath gives the template below which a task is asked for, and its parameters.
func taskPath(kind string, u UPID) (string, map[string]any, error) {
	if u.Remote != "" {
		if kind != kindPDM {
			return "", nil, gate.Fail(gate.ErrInvalid, "Ask the datacenter manager that told it.", "%q is a task of a remote, and this target is no datacenter manager", clip(u.Text))
		}
		return "/" + u.Product + "/remotes/{remote}/tasks/{upid}", map[string]any{"remote": u.Remote, "upid": u.Text}, nil
	}
	node := u.Node
	if kind == kindPBS || kind == kindPDM {
		node = "localhost"
	}
	return "/nodes/{node}/tasks/{upid}", map[string]any{"node": node, "upid": u.Text}, nil
}

func (c *Client) readAs(ctx context.Context, t *target, operation string, params map[string]any) (gate.Answer, error) {
	r, err := gate.NewRequest(t.set.Kind, operation, params)
	if err != nil {
		return gate.Answer{}, err
	}
	return c.read(ctx, t, r)
}

// readLog adds the end of the log, its length, and the lines that warn. A log that cannot be read leaves the state as
// it is.
func (c *Client) readLog(ctx context.Context, t *target, base string, params map[string]any, s *gate.TaskState) {
	page := func(start, limit int) ([]string, int, bool) {
		p := map[string]any{"start": start, "limit": limit}
		for k, v := range params {
			p[k] = v
		}
		answer, err := c.readAs(ctx, t, "GET "+base+"/log", p)
		if err != nil {
			return nil, 0, false
		}
		var rows []struct {
			Text string `json:"t"`
		}
		if json.Unmarshal(answer.Data, &rows) != nil {
			return nil, 0, false
		}
		lines := make([]string, len(rows))
		for i, r := range rows {
			lines[i] = clean(r.Text, 2000)
		}
		total, ok := integer(answer.Siblings["total"])
		if !ok {
			total = int64(start + len(rows))
		}
		return lines, int(total), true
	}
	want := logTail
	if s.OK {
		want = warningTail
	}
	lines, total, ok := page(0, want)
	if !ok {
		return
	}
	if total > want {
		if lines, total, ok = page(total-want, want); !ok {
			return
		}
	}
	s.LogTotal = total
	var warnings []string
	for _, l := range lines {
		if strings.HasPrefix(l, "WARN") || strings.Contains(l, ": WARN") {
			warnings = append(warnings, l)
		}
	}
	if s.OK {
		if len(warnings) > 20 {
			warnings = append(warnings[:20], fmt.Sprintf("and %d more lines", len(warnings)-20))
		}
		s.Warnings = strings.Join(warnings, "\n")
		if s.Warnings == "" {
			s.Warnings = s.Exit
		}
	}
	s.Log = lines[max(0, len(lines)-logTail):]
}

// FindTasks lists the tasks of castellan's own user on a node that started since (by castellan's clock; the node's is
// allowed for), the newest first. At most the newest thousand are looked at.
func (c *Client) FindTasks(ctx context.Context, name, node string, since time.Time) ([]gate.TaskState, error) {
	t, err := c.target(name)
	if err != nil {
		return nil, err
	}
	ahead, known := t.clockAhead()
	if !known {
		// Right after a start nothing has been asked yet, and a task must not be overlooked for a wrong clock.
		if _, err := c.readAs(ctx, t, "GET /version", nil); err != nil {
			return nil, err
		}
		ahead, _ = t.clockAhead()
	}
	since = since.Add(ahead).Add(-time.Second)
	user, token, _ := strings.Cut(t.user, "!")
	params := map[string]any{"since": since.Unix(), "limit": taskRows}
	operation := "GET /nodes/{node}/tasks"
	switch t.set.Kind {
	case kindPVE:
		params["source"], params["userfilter"] = "all", user
	case kindPMG:
		params["userfilter"] = user
	default:
		node, params["userfilter"] = "localhost", user
	}
	if node == "" {
		if t.set.Kind != kindPVE {
			return nil, gate.Fail(gate.ErrInvalid, "Name the node.", "tasks are looked for on one node")
		}
		operation, params = "GET /cluster/tasks", nil
	} else {
		params["node"] = node
	}
	answer, err := c.readAs(ctx, t, operation, params)
	if err != nil {
		return nil, err
	}
	var rows []taskRow
	if err := json.Unmarshal(answer.Data, &rows); err != nil {
		return nil, &gate.UpstreamError{Kind: gate.ErrUnavailable, Delivery: gate.NotCarriedOut, Message: "the list of tasks cannot be read", Cause: err}
	}
	var out []gate.TaskState
	for _, r := range rows {
		s, ok := r.state()
		if !ok || s.Started.Before(since.Truncate(time.Second)) {
			continue
		}
		if full := user + "!" + token; s.User != t.user && !(token != "" && s.User == full) {
			continue
		}
		out = append(out, s)
	}
	return out, nil
}

// taskRow is a row of a task list, where words mean something else than in a task's own status: status is the exit
// status, and a running task has none.
type taskRow struct {
	UPID    string          `json:"upid"`
	Node    string          `json:"node"`
	User    string          `json:"user"`
	TokenID string          `json:"tokenid"`
	Status  *string         `json:"status"`
	End     json.RawMessage `json:"endtime"`
}

func (r taskRow) state() (gate.TaskState, bool) {
	u, err := ParseUPID(r.UPID)
	if err != nil {
		return gate.TaskState{}, false
	}
	// The name itself holds user and token, in one form for running and ended ones.
	s := gate.TaskState{UPID: r.UPID, Node: u.Node, Type: u.Type, ID: u.ID, User: u.User, Started: u.Started}
	_, ended := integer(r.End)
	switch {
	case r.Status != nil && strings.EqualFold(*r.Status, "running"), r.Status == nil && !ended:
		s.Running, s.Known = true, true
	case r.Status != nil:
		settle(&s, "stopped", r.Status)
	}
	return s, true
}

// clockAhead is how far the servers' clocks are ahead of ours; of several the one furthest behind counts, so that
// nothing is overlooked.
func (t *target) clockAhead() (ahead time.Duration, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, d := range t.skew {
		if !known || d < ahead {
			ahead, known = d, true
		}
	}
	// Dates are told to the second, rounded down.
	return ahead.Truncate(time.Second), known
}

// integer reads a whole number that is given as 5, "5" or 5e0.
func integer(raw json.RawMessage) (int64, bool) {
	s := strings.Trim(string(raw), `"`)
	if s == "" || s == "null" {
		return 0, false
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n, true
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return 0, false
	}
	return int64(f), true
}
