package mcpserver

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"castellan/internal/gate"
)

// FuzzMessages: whatever a line holds, it becomes messages that the SDK takes, or one refusal that is protocol, or nothing.
func FuzzMessages(f *testing.F) {
	for _, seed := range []string{`{"jsonrpc":"2.0","id":1,"method":"ping"}`, `[{"jsonrpc":"2.0","method":"x"}]`, `[]`, `{`, `null`, "\xff", `{"jsonrpc":"2.0","id":1.5,"method":"m","params":[1]}`, " "} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		messages, refusal := messagesOf(line, false)
		if len(messages) > 0 && refusal != "" {
			t.Error("both passed on and refused")
		}
		for _, m := range messages {
			if b, err := jsonrpc.EncodeMessage(m); err != nil || !json.Valid(b) || bytes.ContainsAny(b, "\n\r") {
				t.Errorf("passed on %q, %v", b, err)
			}
		}
		if refusal != "" && (!json.Valid([]byte(refusal)) || strings.Contains(refusal, "\n")) {
			t.Errorf("refused with %q", refusal)
		}
	})
}

// TestLongLines: a line that is too long is one refusal, however it arrives, and what follows is read.
func TestLongLines(t *testing.T) {
	in := strings.Repeat("x", maxLine+1) + "\n{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n" + strings.Repeat("y", 3*maxLine)
	var answers bytes.Buffer
	l := newLines(&answers)
	l.messages = make(chan jsonrpc.Message, 10)
	if err := l.feed(io.MultiReader(strings.NewReader(in[:100]), strings.NewReader(in[100:]))); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(answers.String(), "\n"); got != 2 || len(l.messages) != 1 {
		t.Errorf("%d refusals, passed on %d", got, len(l.messages))
	}
	line, tooLong, err := readLine(bufio.NewReader(strings.NewReader(strings.Repeat("z", maxLine-1) + "\n")))
	if err != nil || tooLong || len(line) != maxLine {
		t.Errorf("a line of the longest kind: %v %v %d", err, tooLong, len(line))
	}
}

func TestWithLifted(t *testing.T) {
	for in, want := range map[string]string{
		`{"type":"object","properties":{},"additionalProperties":false}`:                                       `{"type":"object","properties":{"plan_only":{"type":"boolean"},"reason":{"type":"string"}},"additionalProperties":false}`,
		`{"type":"object","properties":{"reason":{"type":"string"},"a":{"type":"string"}},"required":["a"]}`:   `{"type":"object","properties":{"reason":{"type":"string"},"a":{"type":"string"},"plan_only":{"type":"boolean"}},"required":["a"]}`,
		`{"type":"object","properties":{"b":{"type":"string"}},"required":["b"],"additionalProperties":false}`: `{"type":"object","properties":{"b":{"type":"string"},"plan_only":{"type":"boolean"},"reason":{"type":"string"}},"required":["b"],"additionalProperties":false}`,
	} {
		if got := string(withLifted(json.RawMessage(in))); got != want {
			t.Errorf("%s\n got %s\nwant %s", in, got, want)
		}
	}
}

func TestBounded(t *testing.T) {
	if got := bounded("a\x1b[31mb\u202ec\nd", 100); strings.ContainsAny(got, "\x1b\u202e") || !strings.Contains(got, "\n") {
		t.Errorf("%q", got)
	}
	if got := failure(gate.Fail(gate.ErrStale, "Plan anew.", "old")); !got.IsError || !strings.Contains(string(got.StructuredContent.(json.RawMessage)), `"kind":"stale"`) {
		t.Errorf("%+v", got)
	}
}

// TestPanicIsAnAnswer: a fault in a tool ends its call, not the session.
func TestPanicIsAnAnswer(t *testing.T) {
	s := &Server{c: Config{Log: slog.New(slog.DiscardHandler)}}
	broken := func(context.Context, string, mcp.Request) (mcp.Result, error) { panic("at the disco") }
	res, err := s.guarded(context.Background(), broken, "tools/call", nil)
	a, ok := res.(*mcp.CallToolResult)
	if err != nil || !ok || !a.IsError || !strings.Contains(string(a.StructuredContent.(json.RawMessage)), `"kind":"internal"`) || strings.Contains(string(a.StructuredContent.(json.RawMessage)), "disco") {
		t.Errorf("%+v %v", res, err)
	}
	var wire *jsonrpc.Error
	if res, err := s.guarded(context.Background(), broken, "tools/list", nil); res != nil || !errors.As(err, &wire) || wire.Code != jsonrpc.CodeInternalError {
		t.Errorf("%+v %v", res, err)
	}
}
