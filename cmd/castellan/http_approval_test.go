package main

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"castellan/internal/gate"
	"castellan/internal/lab"
	"castellan/internal/policy"
)

// signedIn is a witness who knows one person by one session.
type signedIn struct{}

func (signedIn) Session(_ context.Context, token string) (gate.Principal, error) {
	if token != "session of bob" {
		return gate.Principal{}, errors.New("no such session")
	}
	return gate.Principal{Person: "bob", WayIn: "console", Strength: gate.StrengthSession, Roles: []string{gate.RoleApprover}}, nil
}

func (signedIn) Assertion(context.Context, string, []byte, json.RawMessage) (gate.Proof, error) {
	return gate.Proof{}, errors.New("no passkeys here")
}

func (signedIn) Standing(_ context.Context, p gate.Principal) (gate.Principal, error) { return p, nil }

var bySession = gate.Evidence{Kind: "session", Session: "session of bob"}

// peopleHouse is a house in which people approve: a hard stop needs one.
func peopleHouse(t testing.TB, s *site) *house {
	t.Helper()
	a, settings, path := siteSettings(t, s)
	settings.Policy.StandIn = "off"
	rules, err := policy.New(policy.Config{Settings: settings.Policy, Highest: gate.RungTwoPasskeys})
	if err != nil {
		t.Fatal(err)
	}
	return openHouse(t, a, settings, path, rules)
}

// opener is a client that can open pages; what it is asked, and what it does then.
type opener struct {
	mu    sync.Mutex
	urls  []string
	times atomic.Int32
	then  func(plan string)
	says  string
}

func (o *opener) options() *mcp.ClientOptions {
	return &mcp.ClientOptions{Capabilities: &mcp.ClientCapabilities{Elicitation: &mcp.ElicitationCapabilities{URL: &mcp.URLElicitationCapabilities{}}},
		ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			o.times.Add(1)
			o.mu.Lock()
			o.urls = append(o.urls, r.Params.Mode+" "+r.Params.URL)
			o.mu.Unlock()
			if o.then != nil {
				o.then(r.Params.URL[strings.LastIndex(r.Params.URL, "/")+1:])
			}
			return &mcp.ElicitResult{Action: o.says}, nil
		}}
}

// TestApprovalPage: a client that can opens the page; only what a person does there approves.
func TestApprovalPageOverHTTP(t *testing.T) {
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(version, func(t *testing.T) {
			s := newSite(t, lab.Config{}, all())
			h := peopleHouse(t, s)
			w := newWeb(t, h, nil)
			ctx := context.Background()
			for name, c := range map[string]struct {
				says   string
				guest  int
				then   func(plan string)
				status string // or the kind of the error
			}{
				"approved while it waits": {"accept", 101, func(plan string) {
					time.AfterFunc(1500*time.Millisecond, func() { _, _ = h.gate.Approve(ctx, plan, bySession) })
				}, "done"},
				"denied":   {"accept", 102, func(plan string) { _ = h.gate.Refuse(ctx, plan, "not today", bySession) }, "failed"},
				"declined": {"decline", 107, nil, "denied"},
				"closed":   {"cancel", 106, nil, "needs_approval"},
			} {
				o := &opener{then: c.then, says: c.says}
				cs := w.client(t, version, "", o.options())
				before := s.asked("POST", "/status/stop")
				a := called(t, cs, &mcp.CallToolParams{Name: "guest_power", Arguments: map[string]any{"guest": c.guest, "action": "stop"}})
				got := a.Structured.Status
				if a.Structured.Error != nil {
					got = a.Structured.Error.Kind
				}
				if o.times.Load() != 1 || !strings.HasPrefix(o.urls[0], "url https://castellan.example/plans/p-") {
					t.Errorf("%s: asked %v", name, o.urls)
				}
				if n := s.asked("POST", "/status/stop") - before; got != c.status || (n == 1) != (c.status == "done") || n > 1 {
					t.Errorf("%s: %s, %d stops, %+v", name, got, n, a)
				}
			}
		})
	}
}

// TestPageWithoutApproval: opening the page, whatever the client says of it, approves nothing; nor does any state of others.
func TestForgedPagesOverHTTP(t *testing.T) {
	s := newSite(t, lab.Config{}, all())
	h := peopleHouse(t, s)
	w := newWeb(t, h, nil)
	w.give("other", agentCaller("other", "eve", gate.RoleOperator))
	url := map[string]any{"elicitation": map[string]any{"url": map[string]any{}, "form": map[string]any{}}}
	call := func(state string, responses any, headers ...string) (answer, string) {
		t.Helper()
		p := map[string]any{"name": "guest_power", "arguments": stop101}
		if state != "" {
			p["requestState"] = state
		}
		if responses != nil {
			p["inputResponses"] = responses
		}
		m := w.modern(t, "tools/call", p, url, headers...).answer()
		var asked struct {
			RequestState  string
			InputRequests map[string]struct {
				Method string
				Params struct{ Mode, URL string }
			}
		}
		decode(t, m.Result, &asked)
		if len(asked.InputRequests) > 0 {
			return answer{}, asked.RequestState
		}
		return toolAnswer(t, m), ""
	}
	yes := map[string]any{"approve": map[string]any{"action": "accept"}, "confirm": map[string]any{"action": "accept", "content": map[string]any{"confirm": true}}}
	if a, state := call("", yes); state == "" || a.Structured.Status == "done" {
		t.Errorf("an answer that nobody asked for is taken: %+v", a)
	}
	_, state := call("", nil)
	plan, nonce, _ := strings.Cut(state, " ")
	for _, forged := range []string{plan, plan + " ", plan + " AAAA", plan + " " + nonce + "x", "p-aaaaaaaaaa " + nonce, " ", "x", nonce} {
		if a, again := call(forged, yes); a.Structured.Status == "done" || again == "" && !a.IsError {
			t.Errorf("state %q: %+v", forged, a)
		}
	}
	if a, again := call(state, yes, "Authorization", "Bearer other"); again != "" || !a.IsError || a.Structured.Error.Kind != "not_found" {
		t.Errorf("another caller goes on with it: %+v", a)
	}
	if _, again := call(state, map[string]any{}); again == "" || again == state {
		t.Errorf("without an answer it is asked again as %q", again)
	}
	if a, again := call(state, yes); again != "" || !a.IsError {
		t.Errorf("a state works twice: %+v", a)
	}
	if n := s.asked("POST", "/status/"); n != 0 {
		t.Errorf("%d writes were sent", n)
	}
	var found struct {
		Records []struct{ Kind, Status string }
	}
	decode(t, toolAnswer(t, w.modern(t, "tools/call", map[string]any{"name": "call_operation", "arguments": map[string]any{"operation": "audit_search", "params": map[string]any{"limit": 100}}}, nil).answer()).Structured.Answer, &found)
	refused := 0
	for _, r := range found.Records {
		if r.Kind == "refused" {
			refused++
		}
	}
	if refused < 11 { // every one that was refused, of this caller
		t.Errorf("%d refusals are recorded: %+v", refused, found)
	}
	// A client without pages gets the link in words.
	a := toolAnswer(t, w.modern(t, "tools/call", map[string]any{"name": "guest_power", "arguments": stop101}, nil).answer())
	if a.Structured.Status != "needs_approval" || !strings.Contains(a.Structured.Next, "https://castellan.example/plans/"+plan) {
		t.Errorf("%+v", a)
	}
}
