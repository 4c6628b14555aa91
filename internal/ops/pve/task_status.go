package pve

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

type taskStatusIn struct {
	UPID   string `json:"upid"`
	Wait   int    `json:"wait,omitempty" jsonschema:"seconds, up to 45"`
	Log    *bool  `json:"log,omitempty" jsonschema:"force or forbid"`
	Lines  int    `json:"lines,omitempty"`
	Target string `json:"target,omitempty"`
}

type taskStatusOut struct {
	UPID     string   `json:"upid"`
	Type     string   `json:"type"`
	ID       string   `json:"id,omitempty"`
	Node     string   `json:"node"`
	User     string   `json:"user"`
	Started  string   `json:"started"`
	State    string   `json:"state"` // running, ok, warnings, failed, unknown
	Exit     string   `json:"exit,omitempty"`
	Log      []string `json:"log,omitempty" jsonschema:"force or forbid"` // its end
	LogTotal int      `json:"log_total,omitempty"`                        // lines there are
	Next     string   `json:"next,omitempty"`
}

func taskStatus() *gate.Operation {
	return gate.Query(gate.Declaration{
		Name: "task_status", Summary: "State of a task, with its log if failed or running. Read", Product: "pve", Kinds: []gate.Kind{gate.KindRead, gate.KindPrivate},
		Keywords: "upid job result finished wait progress log output error why failed", Toolset: "standard",
	}, runTaskStatus)
}

const (
	waitMost   = 45
	linesShown = 50
	linesMost  = 500
)

func runTaskStatus(ctx context.Context, v gate.View, in taskStatusIn) (taskStatusOut, error) {
	u, err := parseUPID(strings.TrimSpace(in.UPID))
	if err != nil {
		return taskStatusOut{}, err
	}
	if in.Wait < 0 || in.Lines < 0 || in.Lines > linesMost {
		return taskStatusOut{}, gate.Fail(gate.ErrInvalid, "Give wait as 0 to 45 seconds and lines as 1 to 500.", "wait %d or lines %d is out of range", in.Wait, in.Lines)
	}
	t, err := v.Target(in.Target)
	if err != nil {
		return taskStatusOut{}, err
	}
	if v.Scoped() && !vmidForm.MatchString(u.id) { // it may concern guests that this caller is not to know of
		return taskStatusOut{}, gate.Fail(gate.ErrDenied, "list_tasks shows the tasks within reach.", "this task is not about one guest within this caller's scope")
	}
	q := taskQuery{v: v, target: t.Name, params: map[string]string{"node": u.node, "upid": strings.TrimSpace(in.UPID)}}
	out := taskStatusOut{UPID: q.params["upid"], Type: u.kind, ID: u.id, Node: u.node, User: u.user, Started: u.start.Format(time.RFC3339)}
	out.State, out.Exit, err = q.wait(ctx, min(in.Wait, waitMost))
	if err != nil {
		return taskStatusOut{}, err
	}
	want := out.State != "ok"
	if in.Log != nil {
		want = *in.Log
	}
	if want {
		lines := in.Lines
		if lines == 0 {
			lines = linesShown
		}
		if out.Log, out.LogTotal, err = q.log(ctx, lines); err != nil {
			out.Next = "The log could not be read: " + clip(err.Error(), 200)
		}
	}
	if out.State == "running" {
		out.Next = "Call again with wait to follow it. " + out.Next
	}
	return out, nil
}

type taskQuery struct {
	v      gate.View
	target string
	params map[string]string
}

// wait looks at the task until it has ended or the seconds are over.
func (q taskQuery) wait(ctx context.Context, seconds int) (state, exit string, err error) {
	deadline := q.v.Now().Add(time.Duration(seconds) * time.Second)
	for pause := 250 * time.Millisecond; ; pause = min(2*pause, 3*time.Second) {
		if state, exit, err = q.look(ctx); err != nil || state != "running" {
			return state, exit, err
		}
		left := deadline.Sub(q.v.Now())
		if left <= 0 {
			return state, exit, nil
		}
		timer := time.NewTimer(min(pause, left))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return state, exit, nil
		}
	}
}

func (q taskQuery) look(ctx context.Context) (state, exit string, err error) {
	a, err := q.v.Read(ctx, q.target, gate.Read{Operation: "GET /nodes/{node}/tasks/{upid}/status", Params: q.params})
	if err != nil {
		if strings.Contains(err.Error(), "no such task") {
			return "", "", gate.Fail(gate.ErrNotFound, "Look it up in list_tasks; nodes forget old tasks.", "node %s knows no task %s", q.params["node"], clip(q.params["upid"], 120))
		}
		return "", "", fmt.Errorf("read the task: %w", err)
	}
	var st struct {
		Status estate.Text  `json:"status"`
		Exit   *estate.Text `json:"exitstatus"`
	}
	if err := json.Unmarshal(a.Data, &st); err != nil {
		return "", "", fmt.Errorf("read the task: %w", err)
	}
	if st.Exit != nil {
		exit = string(*st.Exit)
	}
	return taskState(st.Status != "running", exit), exit, nil
}

// log reads the end of the log, and how many lines there are.
func (q taskQuery) log(ctx context.Context, lines int) ([]string, int, error) {
	total, err := q.logTotal(ctx)
	if err != nil {
		return nil, 0, err
	}
	got, _, err := q.logPart(ctx, max(0, total-lines), lines)
	return got, total, err
}

func (q taskQuery) logTotal(ctx context.Context) (int, error) {
	first, a, err := q.logPart(ctx, 0, 1)
	if err != nil {
		return 0, err
	}
	total, err := strconv.Atoi(string(a.Siblings["total"]))
	if err != nil {
		total = len(first)
	}
	return total, nil
}

func (q taskQuery) logPart(ctx context.Context, start, limit int) ([]string, gate.Answer, error) {
	params := map[string]string{"node": q.params["node"], "upid": q.params["upid"], "start": strconv.Itoa(start), "limit": strconv.Itoa(limit)}
	a, err := q.v.Read(ctx, q.target, gate.Read{Operation: "GET /nodes/{node}/tasks/{upid}/log", Params: params})
	if err != nil {
		return nil, a, fmt.Errorf("read the task log: %w", err)
	}
	var rows []struct {
		Text estate.Text `json:"t"`
	}
	if err := json.Unmarshal(a.Data, &rows); err != nil {
		return nil, a, fmt.Errorf("read the task log: %w", err)
	}
	var out []string
	for _, r := range rows {
		out = append(out, clip(string(r.Text), 300))
	}
	return out, a, nil
}
