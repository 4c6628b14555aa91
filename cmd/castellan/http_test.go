package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"castellan/internal/estate"
	"castellan/internal/gate"
	"castellan/internal/mcpserver"
	"castellan/internal/seal"
)

// web is castellan's MCP over HTTP as the daemon mounts it, with callers that the test names.
type web struct {
	url   string
	http  *mcpserver.HTTP
	house *house

	mu     sync.Mutex
	tokens map[string]mcpserver.Caller
}

func (w *web) caller(r *http.Request) (mcpserver.Caller, error) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	w.mu.Lock()
	defer w.mu.Unlock()
	c, known := w.tokens[token]
	if !ok && len(w.tokens) > 0 {
		c, known = w.tokens[""]
	}
	if !known || !c.Principal.Until.IsZero() && time.Now().After(c.Principal.Until) {
		return c, errors.New("no such token")
	}
	return c, nil
}

func (w *web) give(token string, c mcpserver.Caller) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tokens[token] = c
}

func (w *web) revoke(token string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.tokens, token)
}

// agentCaller is an agent with a token of these roles.
func agentCaller(agent, person string, roles ...string) mcpserver.Caller {
	return mcpserver.Caller{Principal: gate.Principal{Agent: agent, Person: person, WayIn: "mcp-http", Strength: gate.StrengthToken, Roles: roles}, Client: agent}
}

// newWeb serves a site's house over HTTP, on loopback. Without tokens everybody is an operator.
func newWeb(t testing.TB, h *house, change func(*mcpserver.HTTPConfig)) *web {
	t.Helper()
	w := &web{house: h, tokens: map[string]mcpserver.Caller{"": agentCaller("agent", "ann", gate.RoleOperator)}}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.url = "http://" + listener.Addr().String() + "/mcp"
	c := mcpserver.HTTPConfig{Config: mcpserver.Config{Gate: h.gate, Version: "test"}, Caller: w.caller}
	if change != nil {
		change(&c)
	}
	if w.http, err = mcpserver.NewHTTP(c); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/mcp", w.http)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener) // ends with the test
	}()
	t.Cleanup(func() {
		_ = server.Close()
		w.http.Close()
		<-done
	})
	return w
}

// openHouse builds a house in this process and runs it. Its gate takes the word of signedIn for who may come in, since the
// callers of these tests have no accounts and no grants; rules are those of the house when nil.
func openHouse(t testing.TB, a *app, s Settings, path string, rules gate.Policy) *house {
	t.Helper()
	h, err := a.build(context.Background(), s, path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if rules == nil {
		rules = h.policy
	}
	h.gate, err = gate.New(gate.Config{Operations: h.gate.Operations(), Catalog: h.catalog.Guide(), Driver: h.client, Policy: rules, Store: h.store, Estate: estate.New(),
		Sealer: sealer{h.keys, seal.NewRedactor()}, Witness: signedIn{}, Link: func(plan string) string { return "https://castellan.example/plans/" + plan }})
	if err != nil {
		t.Fatal(err)
	}
	h.start()
	t.Cleanup(func() { h.end(10 * time.Second) })
	return h
}

// siteSettings are those of a site of the lab, and the program that reads them.
func siteSettings(t testing.TB, s *site) (*app, Settings, string) {
	t.Helper()
	env := func(key string) (string, bool) {
		return map[string]string{"CASTELLAN_CONFIG": s.config}[key], key == "CASTELLAN_CONFIG"
	}
	a := &app{in: strings.NewReader(""), out: os.Stderr, err: os.Stderr, env: env}
	settings, path, _, err := a.load()
	if err != nil {
		t.Fatal(err)
	}
	return a, settings, path
}

// siteHouse is a house for a site of the lab.
func siteHouse(t testing.TB, s *site) *house {
	t.Helper()
	a, settings, path := siteSettings(t, s)
	return openHouse(t, a, settings, path, nil)
}

// emptyHouse has no target.
func emptyHouse(t testing.TB) *house {
	t.Helper()
	dir := t.TempDir()
	if _, err := seal.CreateKeys(filepath.Join(dir, "keys")); err != nil {
		t.Fatal(err)
	}
	return openHouse(t, &app{in: strings.NewReader(""), out: os.Stderr, err: os.Stderr, env: os.LookupEnv}, Settings{Store: StoreSettings{URL: filepath.Join(dir, "state", "castellan.db"), Keys: filepath.Join(dir, "keys")}}, filepath.Join(dir, "castellan.toml"), nil)
}

// reply is what one HTTP request brought back: the messages of a JSON body or of a stream.
type reply struct {
	status   int
	header   http.Header
	body     string
	messages []message
}

// answer is the message with a result or an error.
func (r reply) answer() message {
	for _, m := range r.messages {
		if m.Result != nil || m.Error != nil {
			return m
		}
	}
	return message{}
}

// request sends one request. Headers come in pairs; Content-Type and Accept have their usual values unless given, and "-"
// leaves one out.
func (w *web) request(t testing.TB, method, body string, headers ...string) reply {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, w.url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "application/json, text/event-stream")
	if method == "POST" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		switch {
		case headers[i] == "Host":
			req.Host = headers[i+1]
		case headers[i+1] == "-":
			req.Header.Del(headers[i])
		default:
			req.Header.Set(headers[i], headers[i+1])
		}
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, bounded(body), err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	out := reply{status: res.StatusCode, header: res.Header, body: string(b)}
	lines := []string{out.body}
	if strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		lines = nil
		for _, line := range strings.Split(out.body, "\n") {
			if data, ok := strings.CutPrefix(line, "data: "); ok {
				lines = append(lines, data)
			}
		}
	}
	for _, line := range lines {
		var m message
		if json.Unmarshal([]byte(line), &m) == nil && m.Version == "2.0" {
			out.messages = append(out.messages, m)
		}
	}
	return out
}

func bounded(s string) string { return s[:min(len(s), 200)] }

// modern sends a request of 2026-07-28 with these client capabilities and further headers.
func (w *web) modern(t testing.TB, method string, params map[string]any, capabilities map[string]any, headers ...string) reply {
	t.Helper()
	all := map[string]any{"_meta": map[string]any{"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientInfo": map[string]any{"name": "raw", "version": "1"},
		"io.modelcontextprotocol/clientCapabilities": orEmpty(capabilities)}}
	for k, v := range params {
		all[k] = v
	}
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": all})
	if err != nil {
		t.Fatal(err)
	}
	given := []string{"MCP-Protocol-Version", "2026-07-28", "Mcp-Method", method}
	for _, key := range []string{"name", "taskId"} {
		if name, ok := params[key].(string); ok {
			given = append(given, "Mcp-Name", name)
		}
	}
	return w.request(t, "POST", string(body), append(given, headers...)...)
}

func orEmpty(m map[string]any) map[string]any {
	if m == nil {
		return map[string]any{}
	}
	return m
}

// open begins a session of an older client and gives its id.
func (w *web) open(t testing.TB, capabilities string, headers ...string) string {
	t.Helper()
	r := w.request(t, "POST", `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":`+capabilities+`,"clientInfo":{"name":"raw","version":"1"}}}`, headers...)
	id := r.header.Get("Mcp-Session-Id")
	if r.status != 200 || id == "" || r.answer().Error != nil {
		t.Fatalf("initialize: %d %s", r.status, r.body)
	}
	if r := w.request(t, "POST", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, append([]string{"Mcp-Session-Id", id}, headers...)...); r.status != 202 {
		t.Fatalf("initialized: %d %s", r.status, r.body)
	}
	return id
}

// callBody is the body of a tool's call by an older client.
func callBody(name, args string) string {
	return `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"` + name + `","arguments":` + args + `}}`
}

// toolAnswer reads a message as a tool's answer.
func toolAnswer(t testing.TB, m message) answer {
	t.Helper()
	var a answer
	if m.Error != nil || json.Unmarshal(m.Result, &a) != nil {
		t.Fatalf("no tool answered: %+v %s", m.Error, bounded(string(m.Result)))
	}
	return a
}

func decode(t testing.TB, b []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(b, into); err != nil {
		t.Fatalf("%v: %s", err, bounded(string(b)))
	}
}
