package mcpserver

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"castellan/internal/gate"
)

// route is the one tool that the SDK knows of: it would read the schemas of each tool several times over while it starts,
// and checks no call by them, which the gate does. The filter sends every call there and lists the real tools, so that one
// server of the SDK serves callers who see different ones.
const route = "call"

type nameKey struct{}

func (s *Server) addRoute() {
	s.mcp.AddTool(&mcp.Tool{Name: route, InputSchema: json.RawMessage(`{"type":"object"}`)}, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		name, _ := ctx.Value(nameKey{}).(string)
		handle := s.tools[name]
		if handle == nil {
			return nil, s.unknownTool(route)
		}
		return handle(ctx, req)
	})
}

// routed is the request as the route takes it. A name that is not shown is refused here.
func (s *Server) routed(ctx context.Context, req mcp.Request) (context.Context, mcp.Request, error) {
	call, ok := req.(*mcp.CallToolRequest)
	if !ok || call.Params == nil {
		return ctx, req, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "the call names no tool"}
	}
	if s.tools[call.Params.Name] == nil {
		if s.c.Own != nil && call.Params.Name != route {
			return ctx, req, nil // the SDK knows the embedder's own
		}
		return ctx, req, s.unknownTool(call.Params.Name)
	}
	sent, params := *call, *call.Params
	params.Name, sent.Params = route, &params
	return context.WithValue(ctx, nameKey{}, call.Params.Name), &sent, nil
}

// filter hides tools that this principal is not shown, and refuses methods of capabilities that were never declared.
func (s *Server) filter(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if s.remote {
			if _, ok := callerOf(req); !ok {
				return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the request came without a caller"}
			}
		}
		switch method {
		case "logging/setLevel", "resources/list", "resources/read", "resources/templates/list",
			"resources/subscribe", "resources/unsubscribe", "completion/complete":
			if s.c.Own == nil {
				return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "method not found: " + method}
			}
		case "tools/call":
			return s.call(ctx, next, req)
		case taskGet, taskUpdate, taskCancel:
			return s.guarded(ctx, s.task, method, req)
		}
		res, err := s.guarded(ctx, next, method, req)
		if err != nil {
			return res, err
		}
		switch r := res.(type) {
		case *mcp.ListToolsResult:
			s.list(ctx, s.principal(req), r)
		case *mcp.InitializeResult:
			if err := s.began(req); err != nil {
				return nil, err
			}
			r.Instructions = s.instructions(ctx, s.principal(req))
			if r.Capabilities != nil && !declaresTasks(req) { // who does not speak the extension is not told of it
				mine := *r.Capabilities
				mine.Extensions, r.Capabilities = nil, &mine
			}
		case *mcp.DiscoverResult:
			r.Instructions = s.instructions(ctx, s.principal(req))
		}
		return res, nil
	}
}

// began tells the transport of a session that was just made.
func (s *Server) began(req mcp.Request) error {
	session, ok := req.GetSession().(*mcp.ServerSession)
	if s.onSession == nil || !ok || session.ID() == "" {
		return nil
	}
	c, _ := callerOf(req)
	return s.onSession(session, c)
}

// call passes a tool's call on, and answers with a task where that is what it became.
func (s *Server) call(ctx context.Context, next mcp.MethodHandler, req mcp.Request) (mcp.Result, error) {
	who := s.principal(req)
	if c, ok := req.(*mcp.CallToolRequest); ok && c.Params != nil && !s.mayWrite(who) && s.writes(c.Params.Name, c.Params.Arguments) {
		e := gate.Fail(gate.ErrDenied, "Ask for a person or client with the role "+gate.RoleOperator+"; reads go on.", "%s may only read: its roles are %s",
			orNobody(who.Key()), orNone(who.Roles))
		s.note(ctx, who, "a call of "+bounded(c.Params.Name, 60)+" without the role "+gate.RoleOperator)
		return failure(e), nil
	}
	if c, ok := req.(*mcp.CallToolRequest); ok && c.Params != nil {
		if answer := s.elsewhere(c.Params.Name); answer != nil {
			return answer, nil
		}
	}
	ctx, req, err := s.routed(ctx, req)
	if err != nil {
		return nil, err
	}
	var slot taskSlot
	res, err := s.guarded(context.WithValue(ctx, slotKey{}, &slot), next, "tools/call", req)
	s.tellChange(ctx, who)
	if err == nil && slot.id != "" && declaresTasks(req) {
		return s.created(ctx, who, req, slot.id)
	}
	return res, err
}

func orNobody(key string) string {
	if key == "|" {
		return "this caller"
	}
	return bounded(strings.Trim(key, "|"), 80)
}

func orNone(roles []string) string {
	if len(roles) == 0 {
		return "none"
	}
	return bounded(strings.Join(roles, ", "), 120)
}

// note records what was refused and is no call of an operation. Trouble with the ledger changes nothing for a refusal.
func (s *Server) note(ctx context.Context, who gate.Principal, what string) {
	if err := s.c.Gate.Note(ctx, who, "refused", what); err != nil {
		s.c.Log.Warn("refusal not recorded", "error", err)
	}
}

// list replaces what the SDK lists, which is the route and the embedder's own, by what this principal is shown.
func (s *Server) list(ctx context.Context, who gate.Principal, l *mcp.ListToolsResult) {
	may := s.mayWrite(who)
	listed := map[string]bool{}
	for name, o := range s.ops {
		listed[name] = o.Door() // reads go through it too
	}
	for _, o := range s.c.Gate.Listed(ctx, who) {
		listed[o.Name] = may || o.Door() || !o.Writes() && o.Effect == gate.EffectRead
	}
	for _, t := range s.c.Extra {
		listed[t.Name] = t.Effect == gate.EffectRead || may && (t.Effect != gate.EffectDestroy || s.c.Gate.Offered(ctx, who, t.Effect, t.Kinds))
	}
	kept := make([]*mcp.Tool, 0, len(s.described()))
	for _, t := range s.described() {
		if listed[t.Name] {
			kept = append(kept, t)
		}
	}
	for _, t := range l.Tools {
		if t.Name != route {
			kept = append(kept, t)
		}
	}
	slices.SortStableFunc(kept, func(a, b *mcp.Tool) int { return strings.Compare(a.Name, b.Name) })
	l.Tools = kept
	key, names := listKey(who), s.listNames(ctx, who)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.listed) >= maxListed {
		clear(s.listed)
	}
	s.listed[key] = names
}

// maxListed bounds of how many different callers the last list is remembered.
const maxListed = 5000

// listKey names all that a list of tools depends on beside the settings.
func listKey(who gate.Principal) string { return who.Key() + "|" + strings.Join(who.Roles, ",") }

func (s *Server) listNames(ctx context.Context, who gate.Principal) string {
	var names []string
	for _, o := range s.c.Gate.Listed(ctx, who) {
		names = append(names, o.Name)
	}
	return strings.Join(names, " ")
}

// tellChange lets clients know when settings have changed what this caller was listed. Adding a tool anew is how the SDK
// is made to say so, to all; who lists again is then remembered again.
func (s *Server) tellChange(ctx context.Context, who gate.Principal) {
	key := listKey(who)
	s.mu.Lock()
	was, asked := s.listed[key]
	s.mu.Unlock()
	if !asked || was == s.listNames(ctx, who) {
		return
	}
	s.mu.Lock()
	clear(s.listed)
	s.mu.Unlock()
	s.addRoute()
}

// hasTool says which operations this caller has a tool of.
func (s *Server) hasTool(who gate.Principal) func(string) bool {
	may := s.mayWrite(who)
	return func(name string) bool {
		o := s.ops[name]
		return o != nil && s.shown[name] && (may || o.Door() || !o.Writes() && o.Effect == gate.EffectRead)
	}
}

// elsewhere answers a call of an operation that the toolset does not show with the way to it. It is an answer and no error of
// the protocol, since clients hand only answers to their model. nil: there is no such operation.
func (s *Server) elsewhere(name string) *mcp.CallToolResult {
	o := s.ops[name]
	if o == nil || s.shown[name] {
		return nil
	}
	hint := fmt.Sprintf("Call the tool call_operation with operation=%q and the same arguments as its params", name)
	if o.Writes() {
		hint += " (reason and plan_only beside them)"
	}
	if !s.shown["call_operation"] {
		hint = fmt.Sprintf("This session has no tool that reaches it: castellan serve --toolset full, or with %s among the names, has it", name)
	}
	return failure(gate.Fail(gate.ErrNotFound, hint+".", "%s is an operation, but no tool of this session", name))
}

// unknownTool is a protocol error that still tells a model what to do.
func (s *Server) unknownTool(name string) error {
	text := fmt.Sprintf("unknown tool %q", bounded(name, 60))
	if near := gate.Nearest(name, slices.Sorted(maps.Keys(s.shown))); near != "" {
		text += fmt.Sprintf("; did you mean %s?", near)
	}
	if s.shown["find_operation"] {
		text += " (find_operation finds operations by plain words)"
	}
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: text}
}

// guarded answers a panic as an error: the process goes on, and a call has its one answer.
func (s *Server) guarded(ctx context.Context, next mcp.MethodHandler, method string, req mcp.Request) (res mcp.Result, err error) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		s.c.Log.Error("panic in a request", "method", method, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		if method != "tools/call" {
			res, err = nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "a fault in castellan; its log tells more"}
			return
		}
		res, err = failure(&gate.Error{Kind: gate.ErrInternal, Message: "a fault in castellan ended this call; its log tells more", Changed: "unknown",
			Hint: "Look at list_plans and audit_search for what was done before trying again."}), nil
	}()
	return next(ctx, method, req)
}
