// Command empty is the baseline of the start-up measurements: thirty tools that do nothing, on the same SDK, linking the
// same modules as castellan.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	_ "github.com/cedar-policy/cedar-go"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	_ "github.com/pelletier/go-toml/v2"
	_ "github.com/spf13/cobra"
	_ "golang.org/x/crypto/chacha20poly1305"
	_ "golang.org/x/mod/sumdb/note"
	_ "golang.org/x/mod/sumdb/tlog"
	_ "golang.org/x/term"
	_ "modernc.org/sqlite"
)

func main() {
	s := mcp.NewServer(&mcp.Implementation{Name: "empty", Version: "1"}, nil)
	for i := range 30 {
		s.AddTool(&mcp.Tool{Name: fmt.Sprintf("tool_%02d", i), Description: "Does nothing, but says so in a line of the usual length",
			InputSchema: json.RawMessage(`{"type":"object","properties":{"guest":{"type":"string"},"limit":{"type":"integer"}}}`)},
			func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "{}"}}}, nil
			})
	}
	if err := s.Run(context.Background(), &mcp.StdioTransport{}); err != nil {
		os.Exit(1)
	}
}
