package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"castellan/internal/gate"
)

// TasksExtension is the extension by which a call answers with a task and is then asked for how it goes.
const TasksExtension = "io.modelcontextprotocol/tasks"

const (
	taskGet    = "tasks/get"
	taskUpdate = "tasks/update"
	taskCancel = "tasks/cancel"
)

// TaskStatus is where a task stands.
type TaskStatus string

// The statuses. Failed is for errors of the protocol only: a tool that failed is completed, and its result says so.
const (
	TaskWorking   TaskStatus = "working"
	TaskInput     TaskStatus = "input_required"
	TaskCompleted TaskStatus = "completed"
	TaskFailed    TaskStatus = "failed"
	TaskCancelled TaskStatus = "cancelled"
)

// Task is long work as clients see it.
type Task struct {
	ID               string
	Status           TaskStatus
	Message          string // in words, for a reader
	Created, Updated time.Time
	TTL              time.Duration // how long after Created it can be asked for at least; 0 = no limit
	Poll             time.Duration // how often to ask
	Result           *mcp.CallToolResult
	Error            *jsonrpc.Error
	Inputs           mcp.InputRequestMap // what it waits for
}

// TaskSource keeps tasks. Those of others are not there for a caller.
type TaskSource interface {
	// Task finds a task; ErrNoTask when there is none that this principal may see.
	Task(ctx context.Context, who gate.Principal, id string) (*Task, error)
	// Answer hands over what a task asked for, by the names of its inputs; others are never passed on.
	Answer(ctx context.Context, who gate.Principal, id string, answers map[string]json.RawMessage) error
	// Cancel ends a task where that is still possible; one that has ended stays as it is.
	Cancel(ctx context.Context, who gate.Principal, id string) error
}

// ErrNoTask says that there is no such task for this principal.
var ErrNoTask = errors.New("no such task")

type slotKey struct{}

// taskSlot is where the handler of a tool leaves that its call became a task.
type taskSlot struct{ id string }

// BecomesTask makes the running call answer with this task of a TaskSource, when its client speaks the extension; the
// handler's own result is then dropped.
func BecomesTask(ctx context.Context, id string) {
	if slot, ok := ctx.Value(slotKey{}).(*taskSlot); ok {
		slot.id = id
	}
}

// DeclaresTasks says whether the client of a call speaks the extension.
func DeclaresTasks(req *mcp.CallToolRequest) bool { return declaresTasks(req) }

func declaresTasks(req mcp.Request) bool {
	caps := capabilities(req)
	if caps == nil {
		return false
	}
	_, ok := caps.Extensions[TasksExtension]
	return ok
}

// capabilities are what the client declared, with this request or for its session.
func capabilities(req mcp.Request) *mcp.ClientCapabilities {
	if r, ok := req.(interface {
		ClientCapabilities() *mcp.ClientCapabilities
	}); ok {
		return r.ClientCapabilities()
	}
	return nil
}

// stateless is the first version without sessions, in which every request says for itself what its client can do.
const stateless = "2026-07-28"

// protocol is the version that a request follows.
func protocol(req mcp.Request) string {
	if r, ok := req.(interface{ ProtocolVersion() string }); ok {
		return r.ProtocolVersion()
	}
	return ""
}

// MissingTasks is the error for a client that does not speak the extension where nothing else will do.
func MissingTasks() error {
	return &jsonrpc.Error{Code: mcp.CodeMissingRequiredClientCapabilities, Message: "this needs the tasks extension, which the client did not declare",
		Data: json.RawMessage(`{"requiredCapabilities":{"extensions":{"` + TasksExtension + `":{}}}}`)}
}

// wireTask is a task as it is sent, flat beside the members of every result.
type wireTask struct {
	mcp.ResultBase
	ResultType     string              `json:"resultType"`
	TaskID         string              `json:"taskId"`
	Status         TaskStatus          `json:"status"`
	StatusMessage  string              `json:"statusMessage,omitempty"`
	CreatedAt      time.Time           `json:"createdAt"`
	LastUpdatedAt  time.Time           `json:"lastUpdatedAt"`
	TTLMs          *int64              `json:"ttlMs"`
	PollIntervalMs int64               `json:"pollIntervalMs,omitempty"`
	Result         *mcp.CallToolResult `json:"result,omitempty"`
	Error          *jsonrpc.Error      `json:"error,omitempty"`
	InputRequests  mcp.InputRequestMap `json:"inputRequests,omitempty"`
}

// taskParams are those of every method on tasks. Answers stay raw: names that nobody asked for are no error.
type taskParams struct {
	mcp.ParamsBase
	TaskID         string                     `json:"taskId"`
	InputResponses map[string]json.RawMessage `json:"inputResponses,omitempty"`
}

type acknowledged struct {
	mcp.ResultBase
	ResultType string `json:"resultType"`
}

// addTaskMethods makes the SDK read the methods on tasks; the filter answers them, since it knows who asks.
func (s *Server) addTaskMethods() error {
	var errs []error
	for _, method := range []string{taskGet, taskUpdate, taskCancel} {
		errs = append(errs, mcp.AddReceivingCustomMethod(s.mcp, method, func(context.Context, *mcp.ServerSession, *taskParams) (*acknowledged, error) {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "not answered by the filter"}
		}))
	}
	return errors.Join(errs...)
}

// task answers the methods on tasks.
func (s *Server) task(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
	if !declaresTasks(req) {
		return nil, MissingTasks()
	}
	p, ok := req.GetParams().(*taskParams)
	if !ok || p == nil || p.TaskID == "" {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "taskId is missing"}
	}
	if x := req.GetExtra(); x != nil && x.Header != nil && protocol(req) >= stateless && x.Header.Get("Mcp-Name") != p.TaskID {
		return nil, &jsonrpc.Error{Code: mcp.CodeHeaderMismatch, Message: "the header Mcp-Name must be the taskId"}
	}
	who := s.principal(req)
	source, t, err := s.findTask(ctx, who, p.TaskID)
	if err != nil {
		return nil, err
	}
	switch method {
	case taskUpdate:
		answers := map[string]json.RawMessage{}
		var foreign []string
		for name, answer := range p.InputResponses {
			if t.Inputs[name] == nil {
				foreign = append(foreign, bounded(name, 40))
				continue
			}
			answers[name] = answer
		}
		if len(foreign) > 0 {
			slices.Sort(foreign)
			s.note(ctx, who, "answers that task "+bounded(p.TaskID, 40)+" never asked for: "+bounded(strings.Join(foreign, ", "), 200))
		}
		if len(answers) > 0 {
			err = source.Answer(ctx, who, p.TaskID, answers)
		}
	case taskCancel:
		err = source.Cancel(ctx, who, p.TaskID)
	default:
		return wire(t, "complete", req), nil
	}
	if err != nil {
		return nil, s.taskError(err)
	}
	return &acknowledged{ResultType: "complete"}, nil
}

// created answers a call with the task that it became.
func (s *Server) created(ctx context.Context, who gate.Principal, req mcp.Request, id string) (mcp.Result, error) {
	_, t, err := s.findTask(ctx, who, id)
	if err != nil {
		return nil, err
	}
	out := wire(t, "task", req)
	out.Result, out.Error, out.InputRequests = nil, nil, nil // tasks/get has them
	return out, nil
}

func (s *Server) findTask(ctx context.Context, who gate.Principal, id string) (TaskSource, *Task, error) {
	for _, source := range s.sources {
		t, err := source.Task(ctx, who, id)
		if errors.Is(err, ErrNoTask) {
			continue
		}
		if err != nil {
			return nil, nil, s.taskError(err)
		}
		return source, t, nil
	}
	return nil, nil, s.taskError(ErrNoTask)
}

func (s *Server) taskError(err error) error {
	var wire *jsonrpc.Error
	switch {
	case errors.As(err, &wire):
		return wire
	case errors.Is(err, ErrNoTask):
		return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "there is no such task (list_plans shows the plans)"}
	}
	s.c.Log.Warn("task", "error", err)
	return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: bounded(err.Error(), 300)}
}

// wire renders a task for a client. What the client has no way to show is not asked of it: then it is told in words.
func wire(t *Task, resultType string, req mcp.Request) *wireTask {
	out := &wireTask{ResultType: resultType, TaskID: t.ID, Status: t.Status, StatusMessage: bounded(t.Message, 600), CreatedAt: t.Created.UTC(), LastUpdatedAt: t.Updated.UTC(),
		PollIntervalMs: t.Poll.Milliseconds()}
	if t.TTL > 0 {
		ms := t.TTL.Milliseconds()
		out.TTLMs = &ms
	}
	switch t.Status {
	case TaskCompleted:
		out.Result = t.Result
	case TaskFailed:
		out.Error = t.Error
	case TaskInput:
		out.InputRequests = mcp.InputRequestMap{}
		for name, in := range t.Inputs {
			if canShow(capabilities(req), in) {
				out.InputRequests[name] = in
			}
		}
		if len(out.InputRequests) == 0 {
			out.Status, out.InputRequests = TaskWorking, nil
		}
	}
	return out
}

// canShow says whether a client declared that it can take this request.
func canShow(caps *mcp.ClientCapabilities, in mcp.InputRequest) bool {
	if caps == nil {
		return false
	}
	switch p := in.(type) {
	case *mcp.ElicitParams:
		e := caps.Elicitation
		if e == nil {
			return false
		}
		if p.Mode == "url" {
			return e.URL != nil
		}
		return e.Form != nil || e.URL == nil // an empty object means form
	case *mcp.ListRootsParams:
		return caps.RootsV2 != nil
	}
	return caps.Sampling != nil
}

func badAnswer(name string, err error) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "the answer to " + name + " cannot be read: " + bounded(err.Error(), 200)}
}
