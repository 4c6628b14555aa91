package mcpserver

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"castellan/internal/gate"
)

func describe(o *gate.Operation) *mcp.Tool {
	t := &mcp.Tool{Name: o.Name, Description: o.Summary, InputSchema: o.Input, OutputSchema: outputSchema(o.Output), Annotations: annotations(o.Effect, o.Writes())}
	if o.Writes() && o.Undo != "" {
		t.Description += ". Undo: " + o.Undo
	}
	if o.Name == "apply_plan" {
		t.Annotations = annotations(gate.EffectDestroy, true)
	}
	return t
}

// annotations sets all four hints. A tool that only makes plans may still carry one out, so it is never read-only.
func annotations(e gate.Effect, writes bool) *mcp.ToolAnnotations {
	destructive := writes && e != gate.EffectChange
	open := true
	return &mcp.ToolAnnotations{ReadOnlyHint: !writes, DestructiveHint: &destructive, IdempotentHint: !writes, OpenWorldHint: &open}
}

// outputSchema is the envelope of every answer, around the operation's own.
func outputSchema(answer json.RawMessage) json.RawMessage {
	if len(answer) == 0 {
		answer = json.RawMessage(`{}`)
	}
	return json.RawMessage(fmt.Sprintf(`{"type":"object","properties":{"status":{"type":"string"},"answer":%s,"plan":{"type":"object"},"receipt":{"type":"object"},`+
		`"next":{"type":"string"},"notices":{"type":"array","items":{"type":"string"}},"untrusted":{"type":"boolean"},"error":{"type":"object"}}}`, answer))
}

// result renders an outcome: structured, and the same as text. What did not end well is an error for the client too.
func result(out *gate.Outcome) *mcp.CallToolResult {
	b, err := json.Marshal(out)
	if err != nil {
		return failure(gate.AsError(fmt.Errorf("write answer: %w", err)))
	}
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(b)}}, StructuredContent: json.RawMessage(b),
		IsError: out.Status == gate.StatusFailed || out.Status == gate.StatusUnknown}
}

// failure renders an error with its next step.
func failure(e *gate.Error) *mcp.CallToolResult {
	text := fmt.Sprintf("%s: %s Changed: %s.", e.Kind, sentence(e.Error()), e.Changed)
	if e.Hint != "" {
		text += " Next: " + e.Hint
	}
	b, err := json.Marshal(map[string]any{"error": e})
	if err != nil {
		b = []byte(`{"error":{"kind":"internal"}}`)
	}
	return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: text}}, StructuredContent: json.RawMessage(b)}
}

func sentence(s string) string {
	if strings.HasSuffix(s, ".") || strings.HasSuffix(s, "!") || strings.HasSuffix(s, "?") {
		return s
	}
	return s + "."
}

// bounded cuts a text of others and takes control characters but newlines out.
func bounded(s string, n int) string {
	var b strings.Builder
	for _, r := range s {
		if b.Len() >= n {
			b.WriteString("…")
			break
		}
		if r != '\n' && !unicode.IsPrint(r) {
			r = '�'
		}
		b.WriteRune(r)
	}
	return b.String()
}
