package main

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"castellan/internal/gate"
	"castellan/internal/lab"
	"castellan/internal/mcpserver"
)

const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`

// TestHTTPRefusals: what is no proper request gets the status that says so, and nothing is done.
func TestHTTPRefusals(t *testing.T) {
	w := newWeb(t, emptyHouse(t), func(c *mcpserver.HTTPConfig) { c.MaxBody = 100 << 10 })
	id := w.open(t, "{}")
	in := []string{"Mcp-Session-Id", id}
	old := func(more ...string) []string { return append(slices.Clone(in), more...) }
	large := `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"` + strings.Repeat("a", 101<<10) + `"}}`
	for name, c := range map[string]struct {
		method, body string
		headers      []string
		status       int
		says         string
	}{
		"put":                        {"PUT", ping, in, 405, "GET, POST, DELETE"},
		"options":                    {"OPTIONS", "", in, 405, "POST"},
		"head":                       {"HEAD", "", in, 405, ""},
		"get of the sessionless":     {"GET", "", []string{"MCP-Protocol-Version", "2026-07-28"}, 405, "POST"},
		"delete of the sessionless":  {"DELETE", "", []string{"MCP-Protocol-Version", "2026-07-28"}, 405, "POST"},
		"no content type":            {"POST", ping, old("Content-Type", "-"), 415, "application/json"},
		"form":                       {"POST", "a=b", old("Content-Type", "application/x-www-form-urlencoded"), 415, "application/json"},
		"text":                       {"POST", ping, old("Content-Type", "text/plain"), 415, "application/json"},
		"accepts no stream":          {"POST", ping, old("Accept", "application/json"), 400, "Accept"},
		"listens for JSON":           {"GET", "", old("Accept", "application/json"), 400, "Accept"},
		"large":                      {"POST", large, in, 413, "larger"},
		"large first request":        {"POST", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"` + strings.Repeat("n", 70<<10) + `","version":"1"}}}`, nil, 413, "larger"},
		"large of the sessionless":   {"POST", large, []string{"MCP-Protocol-Version", "2026-07-28"}, 413, "larger"},
		"empty":                      {"POST", "", in, 400, "empty"},
		"no JSON":                    {"POST", "{", in, 400, "malformed"},
		"no message":                 {"POST", `{"a":1}`, in, 400, ""},
		"version of nobody":          {"POST", ping, old("MCP-Protocol-Version", "1999-01-01"), 400, "supported"},
		"version of words":           {"POST", ping, old("MCP-Protocol-Version", "latest"), 400, ""},
		"version of the future":      {"POST", ping, old("MCP-Protocol-Version", "2027-01-01"), 400, ""},
		"header and body differ":     {"POST", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2025-11-25"}}}`, []string{"MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/list"}, 400, "-32020"},
		"batch of a newer":           {"POST", "[" + ping + "]", old("MCP-Protocol-Version", "2025-11-25"), 400, "batch"},
		"listens without a session":  {"GET", "", nil, 400, "Mcp-Session-Id"},
		"unknown session":            {"POST", ping, []string{"Mcp-Session-Id", "nosuch"}, 404, "initialize again"},
		"listens to unknown":         {"GET", "", []string{"Mcp-Session-Id", "nosuch"}, 404, "initialize again"},
		"deletes unknown":            {"DELETE", "", []string{"Mcp-Session-Id", "nosuch"}, 404, "initialize again"},
		"host of another":            {"POST", ping, old("Host", "evil.example"), 403, ""},
		"origin of another":          {"POST", ping, old("Origin", "https://evil.example"), 403, "another site"},
		"listens for another origin": {"GET", "", old("Origin", "https://evil.example"), 403, "another site"},
		"deletes for another origin": {"DELETE", "", old("Origin", "null"), 403, "another site"},
		"cross-site":                 {"POST", ping, old("Sec-Fetch-Site", "cross-site"), 403, "another site"},
		"last event of a post":       {"POST", ping, old("Last-Event-ID", "x_1"), 400, "Last-Event-ID"},
		"nonsense to resume":         {"GET", "", old("Last-Event-ID", "nonsense"), 400, "Last-Event-ID"},
		"unknown to resume":          {"GET", "", old("Last-Event-ID", "nosuch_3"), 400, "replay"},
		"ends another's call":        {"POST", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, nil, 200, "invalid during session"},
	} {
		t.Run(name, func(t *testing.T) {
			r := w.request(t, c.method, c.body, c.headers...)
			if r.status != c.status || !strings.Contains(r.body+r.header.Get("Allow"), c.says) {
				t.Errorf("%d %v %s", r.status, r.header, bounded(r.body))
			}
			if c.status == 405 && r.header.Get("Allow") == "" {
				t.Error("no Allow header")
			}
		})
	}
	if r := w.request(t, "POST", ping, in...); r.status != 200 || r.answer().Error != nil {
		t.Errorf("the session does not go on: %d %s", r.status, r.body)
	}
	if r := w.request(t, "DELETE", "", in...); r.status != 204 {
		t.Errorf("delete: %d %s", r.status, r.body)
	}
	if r := w.request(t, "POST", ping, in...); r.status != 404 {
		t.Errorf("a deleted session answers %d", r.status)
	}
}

// TestHTTPCallers: every request is authenticated anew, and what a token may not do is refused with what it would take.
func TestHTTPCallers(t *testing.T) {
	s := newSite(t, lab.Config{}, all())
	w := newWeb(t, siteHouse(t, s), func(c *mcpserver.HTTPConfig) {
		c.Metadata = "https://castellan.example/.well-known/oauth-protected-resource/mcp"
	})
	viewer := agentCaller("eye", "ann", gate.RoleViewer)
	viewer.StepUp = func(role string) string { return `Bearer error="insufficient_scope", scope="read ` + role + `"` }
	plain := agentCaller("plain", "ann", gate.RoleViewer) // nothing to ask for
	w.give("operator", agentCaller("hand", "ann", gate.RoleOperator))
	w.give("viewer", viewer)
	w.give("plain", plain)
	w.give("nothing", agentCaller("none", "ann"))
	w.revoke("")
	as := func(token string) []string { return []string{"Authorization", "Bearer " + token} }

	r := w.request(t, "POST", ping)
	if h := r.header.Get("WWW-Authenticate"); r.status != 401 || !strings.HasPrefix(h, "Bearer ") || !strings.Contains(h, `resource_metadata="https://castellan.example/`) || strings.Contains(h, "error=") {
		t.Errorf("without a token: %d %q", r.status, h)
	}
	r = w.request(t, "POST", ping, as("wrong")...)
	if h := r.header.Get("WWW-Authenticate"); r.status != 401 || !strings.Contains(h, `error="invalid_token"`) || !strings.Contains(h, "resource_metadata") {
		t.Errorf("with a wrong token: %d %q", r.status, h)
	}
	if r = w.request(t, "POST", ping, as("nothing")...); r.status != 403 {
		t.Errorf("a token without any role: %d", r.status)
	}

	names := func(r reply) []string {
		var list struct{ Tools []struct{ Name string } }
		decode(t, r.answer().Result, &list)
		var out []string
		for _, tool := range list.Tools {
			out = append(out, tool.Name)
		}
		return out
	}
	seen := names(w.modern(t, "tools/list", nil, nil, as("viewer")...))
	whole := names(w.modern(t, "tools/list", nil, nil, as("operator")...))
	if again := names(w.modern(t, "tools/list", nil, nil, as("operator")...)); !slices.Equal(again, whole) || !slices.IsSorted(whole) {
		t.Errorf("the list differs from call to call, or is not sorted: %v", whole)
	}
	for _, tool := range []string{"guest_power", "apply_plan", "set_guest_config", "rollback_snapshot", "withdraw_plan"} {
		if slices.Contains(seen, tool) || !slices.Contains(whole, tool) {
			t.Errorf("%s: a viewer is shown %v, an operator %v", tool, slices.Contains(seen, tool), slices.Contains(whole, tool))
		}
	}
	if !slices.Contains(seen, "list_guests") || !slices.Contains(seen, "call_operation") {
		t.Errorf("a viewer is shown only %v", seen)
	}

	writes := s.asked("POST", "") + s.asked("PUT", "")
	session := w.open(t, "{}", as("viewer")...)
	for name, args := range map[string]string{"guest_power": `{"guest":101,"action":"start"}`, "call_operation": `{"operation":"POST /nodes/{node}/qemu/{vmid}/status/start","params":{"node":"pve1","vmid":101}}`,
		"apply_plan": `{"plan":"p-nosuch"}`, "snapshot_guest": `{"guest":101,"name":"x"}`} {
		var given map[string]any
		decode(t, []byte(args), &given)
		for era, r := range map[string]reply{
			"sessions": w.request(t, "POST", callBody(name, args), append([]string{"Mcp-Session-Id", session}, as("viewer")...)...),
			"batch":    w.request(t, "POST", "["+ping+","+callBody(name, args)+"]", append([]string{"Mcp-Session-Id", session}, as("viewer")...)...),
			"none":     w.modern(t, "tools/call", map[string]any{"name": name, "arguments": given}, nil, as("viewer")...),
		} {
			if h := r.header.Get("WWW-Authenticate"); r.status != 403 || !strings.Contains(h, "insufficient_scope") || !strings.Contains(h, "read operator") {
				t.Errorf("%s, %s: %d %q %s", name, era, r.status, h, bounded(r.body))
			}
		}
		if a := toolAnswer(t, w.modern(t, "tools/call", map[string]any{"name": name, "arguments": given}, nil, as("plain")...).answer()); !a.IsError || a.Structured.Error.Kind != "denied" {
			t.Errorf("%s by a viewer who can get no more: %+v", name, a)
		}
	}
	for name, args := range map[string]map[string]any{"list_nodes": {}, "call_operation": {"operation": "GET /version"}} {
		if a := toolAnswer(t, w.modern(t, "tools/call", map[string]any{"name": name, "arguments": args}, nil, as("viewer")...).answer()); a.IsError {
			t.Errorf("a viewer may not %s: %+v", name, a)
		}
	}
	// The header names a tool that reads, the body one that writes.
	r = w.modern(t, "tools/call", map[string]any{"name": "guest_power", "arguments": map[string]any{"guest": 101, "action": "start"}}, nil, append(as("viewer"), "Mcp-Name", "list_nodes")...)
	if r.status != 403 && r.status != 400 {
		t.Errorf("a header that hides the tool: %d %s", r.status, bounded(r.body))
	}
	if n := s.asked("POST", "") + s.asked("PUT", ""); n != writes {
		t.Errorf("%d writes were sent", n-writes)
	}

	// A session belongs to its caller, and ends with the token.
	mine := w.open(t, "{}", as("operator")...)
	in := append([]string{"Mcp-Session-Id", mine}, as("operator")...)
	for _, method := range []string{"POST", "GET", "DELETE"} {
		if r := w.request(t, method, ping, append([]string{"Mcp-Session-Id", mine}, as("viewer")...)...); r.status != 404 {
			t.Errorf("%s on the session of another: %d", method, r.status)
		}
	}
	if r := w.request(t, "POST", callBody("list_nodes", "{}"), in...); r.status != 200 || r.answer().Error != nil {
		t.Errorf("%d %s", r.status, bounded(r.body))
	}
	w.give("renewed", agentCaller("hand", "ann", gate.RoleOperator))
	if r := w.request(t, "POST", ping, append([]string{"Mcp-Session-Id", mine}, as("renewed")...)...); r.status != 200 {
		t.Errorf("a renewed token of the same client does not go on: %d", r.status)
	}
	w.revoke("operator")
	if r := w.request(t, "POST", ping, in...); r.status != 401 {
		t.Errorf("after the revocation: %d", r.status)
	}
	// Less authority in a session that was begun with more.
	w.give("renewed", agentCaller("hand", "ann", gate.RoleViewer))
	if a := toolAnswer(t, w.request(t, "POST", callBody("snapshot_guest", `{"guest":101,"name":"x"}`), append([]string{"Mcp-Session-Id", mine}, as("renewed")...)...).answer()); !a.IsError {
		t.Errorf("a session keeps authority that its token lost: %+v", a)
	}
}

// TestTheDoorLeadsToSettings: what the toolset leaves out is reached through the door, also where it is no part of a plan,
// and only by who may.
func TestTheDoorLeadsToSettings(t *testing.T) {
	w := newWeb(t, siteHouse(t, newSite(t, lab.Config{}, all())), nil)
	w.give("viewer", agentCaller("eye", "ann", gate.RoleViewer))
	w.give("operator", agentCaller("hand", "ann", gate.RoleOperator))
	w.revoke("")
	tighten := func(token, value string) answer {
		return toolAnswer(t, w.modern(t, "tools/call", map[string]any{"name": "call_operation", "arguments": map[string]any{"operation": "update_settings",
			"params": map[string]any{"setting": "policy.read_only", "value": value}}}, nil, "Authorization", "Bearer "+token).answer())
	}
	if a := tighten("viewer", "true"); !a.IsError || a.Structured.Error.Kind != "denied" {
		t.Errorf("a viewer: %+v", a)
	}
	if a := tighten("operator", "true"); a.IsError {
		t.Errorf("an operator: %+v", a)
	}
	stopped := toolAnswer(t, w.modern(t, "tools/call", map[string]any{"name": "snapshot_guest", "arguments": map[string]any{"guest": 101, "name": "x"}}, nil, "Authorization", "Bearer operator").answer())
	if !stopped.IsError || !strings.Contains(stopped.Structured.Error.Hint, "config set") {
		t.Errorf("what the setting stops: %+v", stopped)
	}
	if a := tighten("operator", "false"); !a.IsError {
		t.Errorf("it was loosened: %+v", a)
	}
	for name, says := range map[string]string{"apply_plan": "itself", "nosuch_plan": "there is no operation"} {
		a := toolAnswer(t, w.modern(t, "tools/call", map[string]any{"name": "call_operation", "arguments": map[string]any{"operation": name, "params": map[string]any{"plan": "p-nosuch"}}}, nil, "Authorization", "Bearer operator").answer())
		if !a.IsError || !strings.Contains(a.Structured.Error.Message, says) {
			t.Errorf("%s: %+v", name, a)
		}
	}
}

// TestHTTPStreamEndsWithTheToken: also a stream that stays open.
func TestHTTPStreamEndsWithTheToken(t *testing.T) {
	w := newWeb(t, emptyHouse(t), nil)
	c := agentCaller("agent", "ann", gate.RoleOperator)
	c.Principal.Until = time.Now().Add(time.Second)
	w.give("brief", c)
	id := w.open(t, "{}", "Authorization", "Bearer brief")
	began := time.Now()
	r := w.request(t, "GET", "", "Mcp-Session-Id", id, "Authorization", "Bearer brief")
	if took := time.Since(began); r.status != 200 || took > 15*time.Second {
		t.Errorf("%d after %v", r.status, took)
	}
	if r := w.request(t, "GET", "", "Mcp-Session-Id", id, "Authorization", "Bearer brief"); r.status != 401 {
		t.Errorf("then: %d", r.status)
	}
}

// TestRefusalOfTheCaller: the embedder's own words, status and waiting time reach the client.
func TestRefusalOfTheCaller(t *testing.T) {
	w := newWeb(t, emptyHouse(t), func(c *mcpserver.HTTPConfig) {
		c.Caller = func(r *http.Request) (mcpserver.Caller, error) {
			switch r.Header.Get("Authorization") {
			case "Bearer busy":
				return mcpserver.Caller{}, &mcpserver.Refusal{Status: 429, Message: "too many", RetryAfter: 90 * time.Second}
			case "Bearer down":
				return mcpserver.Caller{}, &mcpserver.Refusal{Status: 503, Message: "the store is down"}
			}
			return mcpserver.Caller{}, &mcpserver.Refusal{Challenge: `Bearer error="own"`, Message: "own words"}
		}
	})
	for token, want := range map[string]struct {
		status                  int
		challenge, retry, words string
	}{"busy": {429, "", "90", "too many"}, "down": {503, "", "", "the store is down"}, "x": {401, `Bearer error="own"`, "", "own words"}} {
		r := w.request(t, "POST", ping, "Authorization", "Bearer "+token)
		if r.status != want.status || r.header.Get("WWW-Authenticate") != want.challenge || r.header.Get("Retry-After") != want.retry || !strings.Contains(r.body, want.words) {
			t.Errorf("%s: %d %v %s", token, r.status, r.header, r.body)
		}
	}
}
