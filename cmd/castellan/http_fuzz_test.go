package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"castellan/internal/gate"
	"castellan/internal/lab"
	"castellan/internal/mcpserver"
	"castellan/internal/mcpserver/fixtures"
)

// FuzzHTTP: whatever comes as headers and body, the server answers with what is the client's fault or a result, and goes on.
func FuzzHTTP(f *testing.F) {
	h := emptyHouse(f)
	caller := func(*http.Request) (mcpserver.Caller, error) {
		return agentCaller("agent", "ann", gate.RoleViewer), nil
	}
	web, err := mcpserver.NewHTTP(mcpserver.HTTPConfig{Config: mcpserver.Config{Gate: h.gate}, Caller: caller})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(web.Close)
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"f","version":"1"},"io.modelcontextprotocol/clientCapabilities":{"elicitation":{"url":{}},"extensions":{"io.modelcontextprotocol/tasks":{}}}}`
	for _, seed := range [][4]string{
		{"", "", "", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"f","version":"1"}}}`},
		{"2026-07-28", "tools/call", "list_plans", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{` + meta + `,"name":"list_plans","arguments":{}}}`},
		{"2026-07-28", "tools/call", "guest_power", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{` + meta + `,"name":"guest_power","arguments":{},"requestState":"p-1 x","inputResponses":{"approve":{"action":"accept"}}}}`},
		{"2026-07-28", "tasks/get", "p-1", `{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{` + meta + `,"taskId":"p-1"}}`},
		{"2026-07-28", "tasks/update", "p-1", `{"jsonrpc":"2.0","id":1,"method":"tasks/update","params":{` + meta + `,"taskId":"p-1","inputResponses":{"approve":7,"x":null}}}`},
		{"2026-07-28", "server/discover", "", `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{` + meta + `}}`},
		{"2025-03-26", "", "", `[{"jsonrpc":"2.0","id":1,"method":"ping"}]`}, {"\x00", "é", "=?base64?eA==?=", `{`},
	} {
		f.Add(seed[0], seed[1], seed[2], seed[3])
	}
	f.Fuzz(func(t *testing.T, version, method, name, body string) {
		if strings.Contains(body, "subscriptions/listen") { // stays open by its nature
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		r := httptest.NewRequestWithContext(ctx, "POST", "/mcp", strings.NewReader(body))
		for k, v := range map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Mcp-Protocol-Version": version, "Mcp-Method": method, "Mcp-Name": name} {
			if v != "" {
				r.Header.Set(k, v)
			}
		}
		w := httptest.NewRecorder()
		web.ServeHTTP(w, r)
		if ctx.Err() != nil {
			t.Fatalf("no answer: %.300q", body)
		}
		if w.Code >= 500 {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}

// TestFixturesStayHome: what the conformance suite needs is never served where anything could be reached.
func TestFixturesStayHome(t *testing.T) {
	empty, full := emptyHouse(t), siteHouse(t, newSite(t, lab.Config{}, ""))
	for listen, h := range map[string]*house{"0.0.0.0:80": empty, "[::]:80": empty, ":80": empty, "192.0.2.1:80": empty, "castellan.example:80": empty, "127.0.0.1": empty, "": empty, "127.0.0.1:80": full} {
		c := mcpserver.HTTPConfig{Config: mcpserver.Config{Gate: h.gate}}
		if err := fixtures.Add(&c, listen); err == nil || c.Own != nil {
			t.Errorf("%q with %d targets: %v", listen, len(h.gate.Targets()), err)
		}
	}
	for _, listen := range []string{"127.0.0.1:80", "[::1]:80", "localhost:0"} {
		c := mcpserver.HTTPConfig{Config: mcpserver.Config{Gate: empty.gate}}
		if err := fixtures.Add(&c, listen); err != nil || c.Own == nil {
			t.Errorf("%q: %v", listen, err)
		}
		if err := fixtures.Add(&c, listen); err == nil {
			t.Error("twice")
		}
	}
	if err := fixtures.Add(&mcpserver.HTTPConfig{}, "127.0.0.1:80"); err == nil {
		t.Error("without a gate")
	}
}
