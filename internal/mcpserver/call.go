package mcpserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"castellan/internal/gate"
)

// handler makes the call of a tool. lifts is the own schema of one that changes something, nil of one that reads.
func (s *Server) handler(tool string, lifts json.RawMessage, translate func(json.RawMessage) (string, json.RawMessage)) mcp.ToolHandler {
	return func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		who := s.principal(req)
		progress := s.progress(ctx, req)
		if req.Params.RequestState != "" {
			return s.answered(ctx, who, req, progress)
		}
		if len(req.Params.InputResponses) > 0 {
			s.note(ctx, who, "an answer to a dialog that was never shown, with a call of "+bounded(tool, 60))
		}
		call := gate.Call{Operation: tool, Args: req.Params.Arguments, Principal: who, ClientDialog: canAsk(req), Shown: s.hasTool(who)}
		if lifts != nil {
			call.Args, call.Reason, call.PlanOnly = lift(call.Args, lifts)
		}
		call.PlanOnly = call.PlanOnly || s.c.PlanOnly
		if translate != nil {
			call.Operation, call.Args = translate(call.Args)
		}
		if name, args, ok := s.through(tool, call.Args); ok {
			call.Operation, call.Args = name, args
		}
		out, err := s.brief(ctx, req, progress, func(ctx context.Context, progress gate.Progress) (*gate.Outcome, error) {
			return s.c.Gate.Do(ctx, call, progress)
		})
		if err != nil {
			e := gate.AsError(err)
			if e.Kind == gate.ErrNeedsApproval && tool == "apply_plan" {
				if asked := s.wait(ctx, who, req, planOf(call.Args)); asked != nil {
					return asked, nil
				}
			}
			return failure(e), nil
		}
		if out.Status == gate.StatusWaiting && out.Plan != nil && !call.PlanOnly {
			if asked := s.wait(ctx, who, req, out.Plan.ID); asked != nil {
				return asked, nil
			}
		}
		return result(out), nil
	}
}

// patience is how long a call of a client that speaks tasks waits for what is under way before it becomes a task.
const patience = 2500 * time.Millisecond

// brief runs work that may carry a plan out. For a client that speaks tasks it stops waiting early: the plan goes on, and
// its id is the task's.
func (s *Server) brief(ctx context.Context, req *mcp.CallToolRequest, progress gate.Progress, work func(context.Context, gate.Progress) (*gate.Outcome, error)) (*gate.Outcome, error) {
	if !declaresTasks(req) {
		return work(ctx, progress)
	}
	early, stop := context.WithCancel(ctx)
	defer stop()
	var first time.Time
	out, err := work(early, func(done, total int, message string) {
		progress.Report(done, total, message)
		if first.IsZero() {
			first = time.Now()
		}
		if time.Since(first) >= patience {
			stop()
		}
	})
	if err != nil || ctx.Err() != nil || early.Err() == nil && out.Status != gate.StatusRunning {
		return out, err
	}
	switch {
	case out.Plan != nil:
		BecomesTask(ctx, out.Plan.ID)
	case out.Receipt != nil: // it ended just as the waiting did
		BecomesTask(ctx, out.Receipt.Plan)
	}
	return out, nil
}

// wait shows a plan that waits to the user of a client that has a way for it: a dialog, a task, or the page on which a
// person approves. nil when there is none: then the answer's own words tell.
func (s *Server) wait(ctx context.Context, who gate.Principal, req *mcp.CallToolRequest, plan string) *mcp.CallToolResult {
	v, r, err := s.c.Gate.Show(ctx, who, plan)
	if err != nil || r.State != gate.PlanProposed {
		return nil
	}
	switch {
	case v.Rung == gate.RungDialog && canAsk(req):
		return s.ask(ctx, who, plan)
	case v.Rung >= gate.RungPerson && v.Rung < gate.RungDenied && declaresTasks(req) && r.Plan.Requester.Key() == who.Key():
		BecomesTask(ctx, plan)
		return &mcp.CallToolResult{}
	case v.Rung >= gate.RungPerson && v.Rung < gate.RungDenied && canOpen(req) && v.URL != "":
		return s.askPage(who, v)
	}
	return nil
}

// lift takes what every change accepts beside its own arguments out of them: reason and plan_only.
func lift(args, schema json.RawMessage) (rest json.RawMessage, reason string, planOnly bool) {
	if !bytes.Contains(args, []byte("reason")) && !bytes.Contains(args, []byte("plan_only")) {
		return args, "", false
	}
	var m map[string]json.RawMessage
	var own struct{ Properties map[string]json.RawMessage }
	if json.Unmarshal(args, &m) != nil || json.Unmarshal(schema, &own) != nil || repeats(args) {
		return args, "", false // the gate says what is wrong with it
	}
	if raw, ok := m["reason"]; ok && own.Properties["reason"] == nil && json.Unmarshal(raw, &reason) == nil {
		delete(m, "reason")
	}
	if raw, ok := m["plan_only"]; ok && own.Properties["plan_only"] == nil {
		text := strings.Trim(string(raw), `"`)
		planOnly = text == "true" || text == "1"
		if planOnly || text == "false" || text == "0" || text == "null" {
			delete(m, "plan_only")
		}
	}
	out, err := json.Marshal(m)
	if err != nil {
		return args, "", false
	}
	return out, reason, planOnly
}

// repeats tells an object in which a key stands twice: who reads the first and who reads the last would not read the same.
func repeats(args json.RawMessage) bool {
	d := json.NewDecoder(bytes.NewReader(args))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return false
	}
	seen := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		key, ok := t.(string)
		if err != nil || !ok || seen[key] {
			return true
		}
		seen[key] = true
		var val json.RawMessage
		if d.Decode(&val) != nil {
			return true
		}
	}
	return false
}

func planOf(args json.RawMessage) string {
	var a struct {
		Plan string `json:"plan"`
	}
	_ = json.Unmarshal(args, &a) // no plan named: asking finds none
	return a.Plan
}

func (s *Server) progress(ctx context.Context, req *mcp.CallToolRequest) gate.Progress {
	token := req.Params.GetProgressToken()
	if token == nil {
		return nil
	}
	sent := 0.0
	return func(done, total int, message string) {
		sent++ // must increase with every notice, also while one step lasts
		err := req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: sent,
			Message: bounded(fmt.Sprintf("%d of %d steps done. %s", done, total, message), 300)})
		if err != nil && !errors.Is(err, context.Canceled) {
			s.c.Log.Debug("send progress", "error", err)
		}
	}
}
