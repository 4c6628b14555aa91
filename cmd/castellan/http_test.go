package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

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

// openHouse builds a house in this process and runs it.
func openHouse(t testing.TB, s Settings, path string) *house {
	t.Helper()
	a := &app{in: strings.NewReader(""), out: os.Stderr, err: os.Stderr, env: os.LookupEnv}
	h, err := a.build(context.Background(), s, path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	h.start()
	t.Cleanup(func() { h.end(10 * time.Second) })
	return h
}

// siteHouse is a house for a site of the lab.
func siteHouse(t testing.TB, s *site) *house {
	t.Helper()
	env := func(key string) (string, bool) {
		return map[string]string{"CASTELLAN_CONFIG": s.config}[key], key == "CASTELLAN_CONFIG"
	}
	a := &app{in: strings.NewReader(""), out: os.Stderr, err: os.Stderr, env: env}
	settings, path, _, err := a.load()
	if err != nil {
		t.Fatal(err)
	}
	return openHouse(t, settings, path)
}

// emptyHouse has no target.
func emptyHouse(t testing.TB) *house {
	t.Helper()
	dir := t.TempDir()
	if _, err := seal.CreateKeys(filepath.Join(dir, "keys")); err != nil {
		t.Fatal(err)
	}
	return openHouse(t, Settings{Store: StoreSettings{URL: filepath.Join(dir, "state", "castellan.db"), Keys: filepath.Join(dir, "keys")}}, filepath.Join(dir, "castellan.toml"))
}
