package mcpserver

import (
	"context"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"castellan/internal/gate"
)

// NewBroken makes a server for when castellan cannot be put together: it greets, lists no tool, and answers every call
// with e.
func NewBroken(version string, e *gate.Error) *Server {
	s := &Server{}
	s.mcp = mcp.NewServer(&mcp.Implementation{Name: "castellan", Title: "castellan", Version: version}, &mcp.ServerOptions{
		Instructions: bounded("castellan does not work here now. "+e.Error()+" "+e.Hint, 1990),
		Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}},
	})
	s.mcp.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			switch method {
			case "tools/call":
				return failure(e), nil
			case "tools/list":
				return &mcp.ListToolsResult{Tools: []*mcp.Tool{}}, nil
			case "logging/setLevel", "prompts/list", "prompts/get", "resources/list", "resources/read", "resources/templates/list",
				"resources/subscribe", "resources/unsubscribe", "completion/complete":
				return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "method not found: " + method}
			}
			return next(ctx, method, req)
		}
	})
	return s
}
