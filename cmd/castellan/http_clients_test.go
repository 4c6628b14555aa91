package main

import (
	"context"
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"castellan/internal/gate"
	"castellan/internal/lab"
	"castellan/internal/mcpserver"
)

// TestTypeScriptClientsOverHTTP: both SDKs, both eras, without dialogs and with each answer in one.
func TestTypeScriptClientsOverHTTP(t *testing.T) {
	if testing.Short() {
		t.Skip("starts Node")
	}
	nodeHome(t)
	for _, c := range []struct{ script, mode, dialog, stopped string }{
		{"http-client-v1.mjs", "", "", "done"}, {"http-client-v1.mjs", "", "accept", "done"}, {"http-client-v1.mjs", "", "decline", "denied"},
		{"http-client-v2.mjs", "legacy", "", "done"}, {"http-client-v2.mjs", "legacy", "accept", "done"}, {"http-client-v2.mjs", "auto", "", "done"},
		{"http-client-v2.mjs", "auto", "accept", "done"}, {"http-client-v2.mjs", "pin", "accept", "done"}, {"http-client-v2.mjs", "pin", "decline", "denied"},
		{"http-client-v2.mjs", "pin", "cancel", "needs_approval"},
	} {
		t.Run(strings.Join([]string{c.script, c.mode, c.dialog}, " "), func(t *testing.T) {
			policy := all()
			if c.dialog != "" {
				policy = dialogs()
			}
			s := newSite(t, lab.Config{}, policy)
			w := newWeb(t, siteHouse(t, s), nil)
			w.give("node", agentCaller("node", "ann", gate.RoleOperator))
			w.revoke("")
			out, errs, err := byNode(t, []string{"MODE=" + c.mode, "DIALOG=" + c.dialog}, "testdata/"+c.script, w.url)
			var got told
			if err != nil || json.Unmarshal([]byte(out), &got) != nil {
				t.Fatalf("%v: %s\n%s", err, out, errs)
			}
			if got.Tools < 25 || got.Nodes != 3 || got.Wrong != "not_found" || got.Made != "done" || got.Stopped != c.stopped || got.IsError != (c.stopped != "done") {
				t.Errorf("%+v", got)
			}
			if want := c.dialog != ""; (len(got.Asked) == 1) != want || want && !strings.Contains(got.Asked[0], "Stop VM 101") {
				t.Errorf("asked %q", got.Asked)
			}
			if n := s.asked("POST", "/status/stop"); (n == 1) != (c.stopped == "done") || n > 1 {
				t.Errorf("stop was sent %d times", n)
			}
		})
	}
}

// TestInspectorOverHTTP: the reference inspector takes every schema in both eras, in the smallest and the largest toolset.
func TestInspectorOverHTTP(t *testing.T) {
	if testing.Short() {
		t.Skip("starts Node")
	}
	home, _ := nodeHome(t)
	inspector := filepath.Join(home, "node_modules", "@modelcontextprotocol", "inspector", "clients", "launcher", "build", "index.js")
	h := siteHouse(t, newSite(t, lab.Config{}, all()))
	for _, toolset := range []string{"standard", "everything"} {
		w := newWeb(t, h, func(c *mcpserver.HTTPConfig) {
			c.Toolset, c.Extra = []string{toolset}, everyOperation(h, []string{toolset})
		})
		for _, era := range []string{"legacy", "modern"} {
			args := []string{"--cli", w.url, "--transport", "http", "--protocol-era", era}
			out, errs, err := byNode(t, nil, inspector, append(args, "--method", "tools/list", "--strict")...)
			if err != nil || !strings.Contains(out, "list_guests") || strings.Contains(strings.ToLower(errs), "warning") {
				t.Errorf("%s, %s: %v\n%.1500s\n%.1500s", toolset, era, err, errs, out)
			}
			out, errs, err = byNode(t, nil, inspector, append(args, "--method", "tools/call", "--tool-name", "guest_status", "--tool-arg", "guest=101")...)
			if err != nil || !strings.Contains(out, `"answer"`) {
				t.Errorf("%s, %s: guest_status: %v\n%.1500s\n%.1500s", toolset, era, err, errs, out)
			}
		}
	}
}

type bearer struct{ token string }

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return http.DefaultTransport.RoundTrip(r)
}

// client is a client of the Go SDK in the era of a version.
func (w *web) client(t testing.TB, version, token string, o *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	t.Cleanup(cancel)
	cs, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, o).Connect(ctx,
		&mcp.StreamableClientTransport{Endpoint: w.url, HTTPClient: &http.Client{Transport: bearer{token}}}, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cs.Close() })
	return cs
}

// TestDialogsOverHTTP: what a person answers in the client's dialog is what happens, in both eras.
func TestDialogsOverHTTP(t *testing.T) {
	for _, version := range []string{"2025-06-18", "2025-11-25", "2026-07-28"} {
		for action, want := range map[string]string{"accept": "", "decline": "denied", "cancel": "needs_approval"} {
			s := newSite(t, lab.Config{}, dialogs())
			w := newWeb(t, siteHouse(t, s), nil)
			var asked atomic.Int32
			cs := w.client(t, version, "", &mcp.ClientOptions{ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
				asked.Add(1)
				res := &mcp.ElicitResult{Action: action}
				if action == "accept" {
					res.Content = map[string]any{"confirm": true}
				}
				return res, nil
			}})
			a := called(t, cs, &mcp.CallToolParams{Name: "guest_power", Arguments: stop101})
			if done := want == ""; asked.Load() != 1 || a.IsError == done || done && a.Structured.Status != "done" || !done && a.Structured.Error.Kind != want || (s.asked("POST", "/status/stop") == 1) != done {
				t.Errorf("%s, %s: asked %d times, %+v", version, action, asked.Load(), a)
			}
		}
	}
}

// TestProgressOverHTTP: while a call waits, its client hears of it, ever more; a call that is given up goes on in the gate.
func TestProgressOverHTTP(t *testing.T) {
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		s := newSite(t, lab.Config{Delays: true}, all())
		w := newWeb(t, siteHouse(t, s), nil)
		heard := make(chan float64, 1000)
		cs := w.client(t, version, "", &mcp.ClientOptions{ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { heard <- r.Params.Progress }})
		p := &mcp.CallToolParams{Name: "backup_guest", Arguments: map[string]any{"guest": 101, "storage": "nas"}}
		p.SetProgressToken("tok")
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		ended := make(chan error, 1)
		go func() {
			_, err := cs.CallTool(ctx, p)
			ended <- err
		}()
		last := 0.0
		for range 2 {
			select {
			case got := <-heard:
				if got <= last {
					t.Errorf("%s: %v after %v", version, got, last)
				}
				last = got
			case <-time.After(patience):
				t.Fatalf("%s: nothing was heard", version)
			}
		}
		cancel()
		if err := <-ended; err == nil {
			t.Errorf("%s: the call was not given up", version)
		}
		s.lab.Drain()
		for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
			var list struct{ Plans []struct{ State string } }
			decode(t, called(t, cs, &mcp.CallToolParams{Name: "list_plans"}).Structured.Answer, &list)
			if len(list.Plans) == 1 && list.Plans[0].State == "done" {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: plans %+v", version, list)
			}
		}
	}
}
