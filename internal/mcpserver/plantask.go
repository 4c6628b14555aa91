package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"castellan/internal/gate"
)

// planTasks shows plans as tasks: a task's id is its plan's, and nothing is kept beside the plan but what saves asking
// twice. Approval starts nothing by itself; being asked how the task goes does, for the same caller that made the call.
type planTasks struct {
	gate *gate.Gate

	mu    sync.Mutex
	asked map[string]time.Time // plans whose page was opened: not asked for again
	moved map[string]moved     // plans that were tried to be carried out
}

type moved struct {
	at  time.Time
	why string // why it did not start
}

const (
	taskPoll    = 2 * time.Second
	personPoll  = 5 * time.Second
	maxRemember = 5000
	taskKept    = 24 * time.Hour // after the plan's own time
)

func (p *planTasks) Task(ctx context.Context, who gate.Principal, id string) (*Task, error) {
	v, r, err := p.find(ctx, who, id)
	if err != nil {
		return nil, err
	}
	if r.State == gate.PlanApproved || r.State == gate.PlanPaused {
		why := p.move(ctx, who, id)
		if v, r, err = p.find(ctx, who, id); err != nil {
			return nil, err
		}
		if r.State == gate.PlanApproved || r.State == gate.PlanPaused {
			t := planTask(v, r, TaskWorking, taskPoll)
			t.Message = fmt.Sprintf("Plan %s is %s. %s", id, r.State, why)
			return t, nil
		}
	}
	switch {
	case r.State == gate.PlanProposed:
		return p.waiting(v, r), nil
	case r.State == gate.PlanWithdrawn:
		t := planTask(v, r, TaskCancelled, 0)
		t.Message = "Withdrawn: " + r.Note
		return t, nil
	case !r.State.Ended():
		t := planTask(v, r, TaskWorking, taskPoll)
		t.Message = under(v)
		return t, nil
	}
	out, err := p.gate.Apply(ctx, who, id, nil) // of an ended plan: what the call would have answered
	if err != nil {
		return nil, err
	}
	t := planTask(v, r, TaskCompleted, 0)
	t.Message, t.Result = out.Next, result(out)
	return t, nil
}

// waiting shows a plan that waits: for a person by the page to open, once; for its caller in words.
func (p *planTasks) waiting(v *gate.PlanView, r *gate.PlanRecord) *Task {
	t := planTask(v, r, TaskWorking, personPoll)
	if v.Rung < gate.RungPerson {
		t.Message = fmt.Sprintf("Plan %s waits for apply_plan (%s).", v.ID, v.Rung)
		return t
	}
	t.Message = fmt.Sprintf("Plan %s waits for a person's approval (%s)", v.ID, v.Rung)
	if v.URL != "" {
		t.Message += ": " + v.URL
		p.mu.Lock()
		_, asked := p.asked[v.ID]
		p.mu.Unlock()
		if !asked {
			t.Status, t.Inputs = TaskInput, mcp.InputRequestMap{"approve": pageRequest(v)}
		}
	}
	return t
}

func planTask(v *gate.PlanView, r *gate.PlanRecord, status TaskStatus, poll time.Duration) *Task {
	t := &Task{ID: v.ID, Status: status, Created: r.Plan.Created, Updated: r.Plan.Created, Poll: poll, TTL: r.Plan.Expires.Sub(r.Plan.Created) + taskKept}
	for _, a := range r.Approvals {
		t.Updated = later(t.Updated, a.At)
	}
	t.Updated = later(t.Updated, r.Heartbeat)
	for _, s := range r.Steps {
		t.Updated = later(later(t.Updated, s.Started), s.Ended)
	}
	return t
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// under says which step is under way.
func under(v *gate.PlanView) string {
	done, now := 0, ""
	for _, s := range v.Steps {
		switch s.State {
		case gate.StepDone, gate.StepSkipped:
			done++
		case gate.StepStarted, gate.StepWaiting:
			now = s.Sentence
		}
	}
	return fmt.Sprintf("%d of %d steps done. %s", done, len(v.Steps), now)
}

// find gives the caller's own plans only, also to one who oversees those of others.
func (p *planTasks) find(ctx context.Context, who gate.Principal, id string) (*gate.PlanView, *gate.PlanRecord, error) {
	v, r, err := p.gate.Show(ctx, who, id)
	if err != nil {
		if gate.AsError(err).Kind == gate.ErrNotFound {
			return nil, nil, ErrNoTask
		}
		return nil, nil, err
	}
	if r.Plan.Requester.Key() != who.Key() {
		return nil, nil, ErrNoTask
	}
	return v, r, nil
}

// move carries an approved or paused plan on, at most every few seconds, and says why it did not.
func (p *planTasks) move(ctx context.Context, who gate.Principal, id string) string {
	p.mu.Lock()
	last, tried := p.moved[id]
	p.mu.Unlock()
	if tried && time.Since(last.at) < 2*taskPoll {
		return last.why
	}
	early, stop := context.WithCancel(ctx)
	defer stop()
	why := ""
	if _, err := p.gate.Apply(early, who, id, func(int, int, string) { stop() }); err != nil {
		why = gate.AsError(err).Error()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.moved == nil || len(p.moved) >= maxRemember {
		p.moved = map[string]moved{}
	}
	p.moved[id] = moved{at: time.Now(), why: why}
	return why
}

// Answer takes that the page was opened, or was not to be: neither approves anything.
func (p *planTasks) Answer(ctx context.Context, who gate.Principal, id string, answers map[string]json.RawMessage) error {
	if _, _, err := p.find(ctx, who, id); err != nil {
		return err
	}
	var answer struct {
		Action string `json:"action"`
	}
	if err := json.Unmarshal(answers["approve"], &answer); err != nil {
		return badAnswer("approve", err)
	}
	switch answer.Action {
	case "decline":
		return p.end(ctx, who, id, "the user declined to open the approval page")
	case "accept", "cancel":
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.asked == nil || len(p.asked) >= maxRemember {
			p.asked = map[string]time.Time{}
		}
		p.asked[id] = time.Now()
		return nil
	}
	return badAnswer("approve", errors.New("its action is none of accept, decline, cancel"))
}

// Cancel withdraws a plan of which nothing is under way; another goes on, which its message says.
func (p *planTasks) Cancel(ctx context.Context, who gate.Principal, id string) error {
	if _, _, err := p.find(ctx, who, id); err != nil {
		return err
	}
	return p.end(ctx, who, id, "the client cancelled its task")
}

func (p *planTasks) end(ctx context.Context, who gate.Principal, id, why string) error {
	err := p.gate.Decline(ctx, who, id, why)
	if err != nil && gate.AsError(err).Kind == gate.ErrStale { // it has ended, or what was sent cannot be taken back
		return nil
	}
	return err
}
