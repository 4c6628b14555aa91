package mcpserver

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// FuzzCallsOf: whatever a body holds, the calls that are found in it are those that a reader of JSON finds.
func FuzzCallsOf(f *testing.F) {
	for _, seed := range []string{`{"method":"tools/call","params":{"name":"a","arguments":{"x":1}}}`, `[{"method":"tools/call","params":{"name":"a"}},{"method":"ping"}]`, `[[]]`, `{`, `{"method":"tools/call","params":[]}`,
		`{"method":"ping","method":"tools/call","params":{"name":"b"}}`, `{"METHOD":"tools/call","params":{"NAME":"c"}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		calls := callsOf(body)
		if len(calls) > 0 && !json.Valid(body) {
			t.Errorf("%d calls in what is no JSON", len(calls))
		}
		for _, c := range calls {
			if c.Arguments != nil && !json.Valid(c.Arguments) {
				t.Errorf("arguments %q", c.Arguments)
			}
		}
	})
}

// TestPagesAreGoodOnce: a nonce is good for its plan and its caller, once, and memory is bounded.
func TestPagesAreGoodOnce(t *testing.T) {
	var p pages
	n := p.add("p-1", "agent|ann")
	for _, c := range [][3]string{{n, "p-2", "agent|ann"}, {n, "p-1", "agent|eve"}, {n + "x", "p-1", "agent|ann"}, {"", "p-1", "agent|ann"}, {"", "", ""}} {
		if _, ok := p.take(c[0], c[1], c[2]); ok {
			t.Errorf("%v is taken", c)
		}
	}
	if got, ok := p.take(n, "p-1", "agent|ann"); !ok || got.plan != "p-1" {
		t.Errorf("%+v %v", got, ok)
	}
	if _, ok := p.take(n, "p-1", "agent|ann"); ok {
		t.Error("it is good twice")
	}
	for i := range maxPages + 500 {
		n = p.add(fmt.Sprint("p-", i), "a|b")
	}
	if len(p.open) > maxPages {
		t.Errorf("%d are remembered", len(p.open))
	}
	if _, ok := p.take(n, fmt.Sprint("p-", maxPages+499), "a|b"); !ok {
		t.Error("the newest is forgotten")
	}
}

// TestWireAsksWhatCanBeShown: a client is asked only what it declared that it can show.
func TestWireAsksWhatCanBeShown(t *testing.T) {
	task := &Task{ID: "p-1", Status: TaskInput, Inputs: mcp.InputRequestMap{"page": &mcp.ElicitParams{Mode: "url"}, "form": &mcp.ElicitParams{Mode: "form"}}}
	for name, c := range map[string]struct {
		caps   *mcp.ClientCapabilities
		status TaskStatus
		asked  string
	}{
		"nothing": {&mcp.ClientCapabilities{}, TaskWorking, ""},
		"pages":   {&mcp.ClientCapabilities{Elicitation: &mcp.ElicitationCapabilities{URL: &mcp.URLElicitationCapabilities{}}}, TaskInput, "page"},
		"forms":   {&mcp.ClientCapabilities{Elicitation: &mcp.ElicitationCapabilities{}}, TaskInput, "form"},
	} {
		req := &mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{Meta: mcp.Meta{mcp.MetaKeyClientCapabilities: c.caps}}}
		out := wire(task, "complete", req)
		var names []string
		for n := range out.InputRequests {
			names = append(names, n)
		}
		if out.Status != c.status || strings.Join(names, " ") != c.asked {
			t.Errorf("%s: %s %v", name, out.Status, names)
		}
	}
}
