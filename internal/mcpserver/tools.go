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
	t := &mcp.Tool{Name: o.Name, Description: o.Summary, InputSchema: o.Input, OutputSchema: outputSchema(o.Output),
		Annotations: annotations(o.Effect, o.Writes() || o.Effect != gate.EffectRead)}
	if o.Writes() {
		t.InputSchema = withLifted(o.Input)
	}
	return t
}

// withLifted adds what every change takes beside its own arguments, and lift takes out again.
func withLifted(input json.RawMessage) json.RawMessage {
	var s struct {
		Type       string          `json:"type"`
		Properties json.RawMessage `json:"properties,omitempty"`
		Required   json.RawMessage `json:"required,omitempty"`
		Additional json.RawMessage `json:"additionalProperties,omitempty"`
	}
	var own map[string]json.RawMessage
	if json.Unmarshal(input, &s) != nil || json.Unmarshal(s.Properties, &own) != nil {
		return input
	}
	text := strings.TrimSuffix(strings.TrimSpace(string(s.Properties)), "}")
	for _, add := range []struct{ name, schema string }{{"plan_only", `{"type":"boolean"}`}, {"reason", `{"type":"string"}`}} {
		if own[add.name] != nil {
			continue
		}
		if text != "{" {
			text += ","
		}
		text += fmt.Sprintf("%q:%s", add.name, add.schema)
	}
	s.Properties = json.RawMessage(text + "}")
	b, err := json.Marshal(s)
	if err != nil {
		return input
	}
	return b
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
		answer = json.RawMessage(`{"type":"object","additionalProperties":true}`)
	}
	return json.RawMessage(`{"type":"object","properties":{"status":{"type":"string"},"answer":` + string(answer) + `,"plan":{"type":"object"},"receipt":{"type":"object"},` +
		`"next":{"type":"string"},"notices":{"type":"array","items":{"type":"string"}},"untrusted":{"type":"boolean"},"outside":{"type":"array","items":{"type":"string"}},"error":{"type":"object"}}}`)
}

// result renders an outcome: structured, and the same as text, with a fence around what outsiders wrote. What did not end well is an error for the client too.
func result(out *gate.Outcome) *mcp.CallToolResult {
	b, err := json.Marshal(out)
	if err != nil {
		return failure(gate.AsError(fmt.Errorf("write answer: %w", err)))
	}
	before, after := out.Fence()
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: before + string(b) + after}}, StructuredContent: json.RawMessage(b),
		IsError: out.Status == gate.StatusFailed || out.Status == gate.StatusUnknown}
}

// failure renders an error with its next step.
func failure(e *gate.Error) *mcp.CallToolResult {
	text := fmt.Sprintf("%s: %s Changed: %s.", e.Kind, sentence(e.Error()), e.Changed)
	if len(e.Hits) > 0 {
		text += " It would hit: "
		for i, h := range e.Hits {
			if i > 0 {
				text += "; "
			}
			text += h.Text
		}
		text += "."
	}
	if len(e.Unread) > 0 {
		text += " Not read: " + strings.Join(e.Unread, "; ") + "."
	}
	if e.Hint != "" {
		text += " Next: " + e.Hint
	}
	b, err := json.Marshal(map[string]any{"error": e})
	if err != nil {
		b = []byte(`{"error":{"kind":"internal"}}`)
	}
	before, after := e.Fence()
	return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: before + text + after}}, StructuredContent: json.RawMessage(b)}
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
