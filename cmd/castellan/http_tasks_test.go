package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"castellan/internal/gate"
	"castellan/internal/lab"
)

// taskSeen is a task as it came.
type taskSeen struct {
	ResultType, TaskID, Status, StatusMessage string
	CreatedAt, LastUpdatedAt                  time.Time
	TTLMs                                     *int64
	PollIntervalMs                            int64
	Result                                    json.RawMessage
	InputRequests                             map[string]struct {
		Method string
		Params struct{ Mode, URL string }
	}
}

var (
	speaksTasks = map[string]any{"extensions": map[string]any{"io.modelcontextprotocol/tasks": map[string]any{}}}
	opensPages  = map[string]any{"elicitation": map[string]any{"url": map[string]any{}}, "extensions": speaksTasks["extensions"]}
)

func taskOf(t testing.TB, m message) taskSeen {
	t.Helper()
	if m.Error != nil {
		t.Fatalf("%+v", m.Error)
	}
	var task taskSeen
	decode(t, m.Result, &task)
	return task
}

// follow asks for a task until it has this status.
func (w *web) follow(t testing.TB, id, status string, capabilities map[string]any) taskSeen {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		task := taskOf(t, w.modern(t, "tasks/get", map[string]any{"taskId": id}, capabilities).answer())
		if task.Status == status {
			return task
		}
		if time.Now().After(deadline) || task.Status == "completed" || task.Status == "cancelled" || task.Status == "failed" {
			t.Fatalf("the task is %+v, not %s", task, status)
		}
	}
}

// TestPlanAsTask: a plan that waits for a person is a task; being asked how it goes carries it out once it is approved.
func TestPlanAsTask(t *testing.T) {
	s := newSite(t, lab.Config{}, all())
	h := peopleHouse(t, s)
	w := newWeb(t, h, nil)
	w.give("other", agentCaller("other", "eve", gate.RoleOperator))
	ctx := context.Background()
	stop := func(guest int, capabilities map[string]any) taskSeen {
		t.Helper()
		return taskOf(t, w.modern(t, "tools/call", map[string]any{"name": "guest_power", "arguments": map[string]any{"guest": guest, "action": "stop"}}, capabilities).answer())
	}

	made := stop(101, speaksTasks)
	if made.ResultType != "task" || made.Status != "working" || !strings.HasPrefix(made.TaskID, "p-") || made.CreatedAt.IsZero() || made.TTLMs == nil || *made.TTLMs <= 0 || made.PollIntervalMs <= 0 ||
		!strings.Contains(made.StatusMessage, "https://castellan.example/plans/"+made.TaskID) || made.Result != nil {
		t.Errorf("%+v", made)
	}
	id := made.TaskID
	if again := stop(101, speaksTasks); again.TaskID != id {
		t.Errorf("the same call makes another task: %s, then %s", id, again.TaskID)
	}
	if r := w.modern(t, "tasks/get", map[string]any{"taskId": id}, nil); r.status != 400 || r.answer().Error == nil || r.answer().Error.Code != -32021 {
		t.Errorf("without the extension: %d %s", r.status, r.body)
	}
	if r := w.modern(t, "tasks/get", map[string]any{"taskId": id}, speaksTasks, "Mcp-Name", "p-other"); r.answer().Error == nil || r.answer().Error.Code != -32020 {
		t.Errorf("with another name in the header: %d %s", r.status, r.body)
	}
	for _, method := range []string{"tasks/get", "tasks/cancel", "tasks/update"} {
		if r := w.modern(t, method, map[string]any{"taskId": id}, speaksTasks, "Authorization", "Bearer other"); r.answer().Error == nil || r.answer().Error.Code != -32602 {
			t.Errorf("%s by another caller: %d %s", method, r.status, r.body)
		}
		if r := w.modern(t, method, map[string]any{"taskId": "p-nosuch"}, speaksTasks); r.answer().Error == nil || r.answer().Error.Code != -32602 {
			t.Errorf("%s of no task: %d %s", method, r.status, r.body)
		}
	}
	// Whatever the client sends, nothing approves.
	for _, answers := range []map[string]any{{"approve": map[string]any{"action": "accept"}}, {"confirm": map[string]any{"action": "accept", "content": map[string]any{"confirm": true}}}, {"x": 1}, {}} {
		if r := w.modern(t, "tasks/update", map[string]any{"taskId": id, "inputResponses": answers}, speaksTasks); r.answer().Error != nil {
			t.Errorf("%v: %s", answers, r.body)
		}
	}
	time.Sleep(300 * time.Millisecond)
	if task := taskOf(t, w.modern(t, "tasks/get", map[string]any{"taskId": id}, speaksTasks).answer()); task.Status != "working" || s.asked("POST", "/status/stop") != 0 {
		t.Fatalf("%+v after answers that nobody asked for", task)
	}
	if _, err := h.gate.Approve(ctx, id, bySession); err != nil {
		t.Fatal(err)
	}
	done := w.follow(t, id, "completed", speaksTasks)
	var a answer
	decode(t, done.Result, &a)
	if a.IsError || a.Structured.Status != "done" || a.Structured.Receipt == nil || a.Structured.Receipt.Plan != id || s.asked("POST", "/101/status/stop") != 1 || done.ResultType != "complete" {
		t.Errorf("%+v: %s", done, done.Result)
	}
	if r := w.modern(t, "tasks/cancel", map[string]any{"taskId": id}, speaksTasks); r.answer().Error != nil {
		t.Errorf("cancel of what has ended: %s", r.body)
	}
	if task := taskOf(t, w.modern(t, "tasks/get", map[string]any{"taskId": id}, speaksTasks).answer()); task.Status != "completed" {
		t.Errorf("%+v", task)
	}

	// With pages: it asks once, and opening approves nothing.
	task := w.follow(t, stop(102, opensPages).TaskID, "input_required", opensPages)
	if in := task.InputRequests["approve"]; in.Method != "elicitation/create" || in.Params.Mode != "url" || in.Params.URL != "https://castellan.example/plans/"+task.TaskID {
		t.Errorf("%+v", task.InputRequests)
	}
	open := func(id, action string) {
		t.Helper()
		if r := w.modern(t, "tasks/update", map[string]any{"taskId": id, "inputResponses": map[string]any{"approve": map[string]any{"action": action}}}, opensPages); r.answer().Error != nil {
			t.Errorf("%s: %s", action, r.body)
		}
	}
	open(task.TaskID, "accept")
	if again := taskOf(t, w.modern(t, "tasks/get", map[string]any{"taskId": task.TaskID}, opensPages).answer()); again.Status != "working" || s.asked("POST", "/102/status/stop") != 0 {
		t.Errorf("%+v", again)
	}
	if err := h.gate.Refuse(ctx, task.TaskID, "not today", bySession); err != nil {
		t.Fatal(err)
	}
	no := w.follow(t, task.TaskID, "completed", opensPages)
	decode(t, no.Result, &a)
	if !a.IsError || !strings.Contains(string(no.Result), "not today") {
		t.Errorf("a denied plan: %s", no.Result)
	}
	task = stop(107, opensPages)
	open(task.TaskID, "decline")
	w.follow(t, task.TaskID, "cancelled", opensPages)
	task = stop(106, speaksTasks)
	if r := w.modern(t, "tasks/cancel", map[string]any{"taskId": task.TaskID}, speaksTasks); r.answer().Error != nil || strings.Contains(string(r.answer().Result), "taskId") {
		t.Errorf("cancel: %s", r.body)
	}
	w.follow(t, task.TaskID, "cancelled", speaksTasks)
	if _, err := h.gate.Approve(ctx, task.TaskID, bySession); err == nil {
		t.Error("a cancelled task's plan can still be approved")
	}
	if n := s.asked("POST", "/status/stop"); n != 1 {
		t.Errorf("%d stops were sent", n)
	}
	// Who only wants to see the plan gets the plan.
	plan := toolAnswer(t, w.modern(t, "tools/call", map[string]any{"name": "guest_power", "arguments": map[string]any{"guest": 108, "action": "stop", "plan_only": true}}, speaksTasks).answer())
	if plan.Structured.Plan == nil || plan.Structured.Status != "needs_approval" {
		t.Errorf("%+v", plan)
	}
}

// TestLongCallAsTask: work that takes long answers early with a task; what is quick, and every client that does not speak
// tasks, gets the result itself. The task outlives the process that made it.
func TestLongCallAsTask(t *testing.T) {
	s := newSite(t, lab.Config{Delays: true}, all())
	h := siteHouse(t, s)
	w := newWeb(t, h, nil)
	quick := w.modern(t, "tools/call", map[string]any{"name": "list_nodes", "arguments": map[string]any{}}, speaksTasks)
	if a := toolAnswer(t, quick.answer()); a.IsError || a.Structured.Status != "answer" {
		t.Errorf("%+v", a)
	}
	began := time.Now()
	var calls []any
	guests := []int{101, 102, 106, 107, 108, 201, 202, 204}
	for _, guest := range guests {
		calls = append(calls, map[string]any{"operation": "backup_guest", "args": map[string]any{"guest": guest, "storage": "nas"}})
	}
	made := taskOf(t, w.modern(t, "tools/call", map[string]any{"name": "call_operation", "arguments": map[string]any{"operation": "plan_many", "params": map[string]any{"calls": calls}}}, speaksTasks).answer())
	if took := time.Since(began); made.ResultType != "task" || made.Status != "working" || took > 30*time.Second {
		t.Fatalf("after %v: %+v", took, made)
	}
	if r := w.modern(t, "tasks/cancel", map[string]any{"taskId": made.TaskID}, speaksTasks); r.answer().Error != nil {
		t.Errorf("cancel: %s", r.body)
	}
	if task := taskOf(t, w.modern(t, "tasks/get", map[string]any{"taskId": made.TaskID}, speaksTasks).answer()); task.Status != "working" || !strings.Contains(task.StatusMessage, "steps done") {
		t.Errorf("what was sent goes on, and the task says %+v", task)
	}
	later := newWeb(t, h, nil) // as after a restart: nothing but the store remembers
	done := later.follow(t, made.TaskID, "completed", speaksTasks)
	var a answer
	decode(t, done.Result, &a)
	if a.IsError || a.Structured.Status != "done" || a.Structured.Receipt == nil || s.asked("POST", "/vzdump") != len(guests) {
		t.Errorf("%s", done.Result)
	}
}
