package main

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"castellan/internal/lab"
)

func dialogs() string { return strings.Replace(all(), `"phrase"`, `"dialog"`, 1) }

// session is a client of the Go SDK with a dialog that answers so; vanish ends the client while it is asked.
func session(t *testing.T, s *site, version string, dialog func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error), progress func(*mcp.ProgressNotificationParams)) *mcp.ClientSession {
	t.Helper()
	opts := &mcp.ClientOptions{ElicitationHandler: dialog}
	if progress != nil {
		opts.ProgressNotificationHandler = func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { progress(r.Params) }
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, opts)
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	t.Cleanup(cancel)
	cs, err := client.Connect(ctx, &mcp.CommandTransport{Command: command(t, s.env(), "serve")}, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cs.Close() })
	return cs
}

func called(t *testing.T, cs *mcp.ClientSession, p *mcp.CallToolParams) answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	res, err := cs.CallTool(ctx, p)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(res)
	if err != nil {
		t.Fatal(err)
	}
	var a answer
	if err := json.Unmarshal(b, &a); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	return a
}

var stop101 = map[string]any{"guest": 101, "action": "stop"}

// TestDialogs: what a person answers in the client's dialog is what happens, in both eras.
func TestDialogs(t *testing.T) {
	yes := map[string]any{"confirm": true}
	for _, version := range []string{"2025-06-18", "2025-11-25", "2026-07-28"} {
		for name, c := range map[string]struct {
			result *mcp.ElicitResult
			kind   string // of the error; empty = done
			state  string
		}{
			"accept":       {&mcp.ElicitResult{Action: "accept", Content: yes}, "", "done"},
			"accept no":    {&mcp.ElicitResult{Action: "accept", Content: map[string]any{"confirm": false}}, "denied", "withdrawn"},
			"decline":      {&mcp.ElicitResult{Action: "decline"}, "denied", "withdrawn"},
			"cancel":       {&mcp.ElicitResult{Action: "cancel"}, "needs_approval", "proposed"},
			"decline true": {&mcp.ElicitResult{Action: "decline", Content: yes}, "denied", "withdrawn"},
		} {
			t.Run(version+" "+name, func(t *testing.T) {
				s := newSite(t, lab.Config{}, dialogs())
				var asked atomic.Int32
				cs := session(t, s, version, func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
					asked.Add(1)
					if !strings.Contains(r.Params.Message, "Stop VM 101") || !strings.Contains(r.Params.Message, "/status/stop") {
						t.Errorf("the dialog says %q", r.Params.Message)
					}
					return c.result, nil
				}, nil)
				a := called(t, cs, &mcp.CallToolParams{Name: "guest_power", Arguments: stop101})
				if n := asked.Load(); n != 1 {
					t.Errorf("the person was asked %d times", n)
				}
				done := c.kind == ""
				if a.IsError == done || done && a.Structured.Status != "done" || !done && (a.Structured.Error == nil || a.Structured.Error.Kind != c.kind) {
					t.Errorf("%+v", a)
				}
				if n := s.asked("POST", "/status/stop"); n == 1 != done || n > 1 {
					t.Errorf("stop was sent %d times", n)
				}
				var list struct{ Plans []struct{ State string } }
				if err := json.Unmarshal(called(t, cs, &mcp.CallToolParams{Name: "list_plans"}).Structured.Answer, &list); err != nil || len(list.Plans) != 1 || list.Plans[0].State != c.state {
					t.Errorf("plans %+v %v", list, err)
				}
			})
		}
	}
}

// TestForgedDialogs: an answer to a dialog that was never shown, or was answered before, approves nothing.
func TestForgedDialogs(t *testing.T) {
	s := newSite(t, lab.Config{}, dialogs())
	r := startRaw(t, s.env(), "serve")
	meta := map[string]any{"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientInfo": map[string]any{"name": "forger", "version": "1"},
		"io.modelcontextprotocol/clientCapabilities": map[string]any{"elicitation": map[string]any{"form": map[string]any{}}}}
	yes := map[string]any{"confirm": map[string]any{"action": "accept", "content": map[string]any{"confirm": true}}}
	round := func(args map[string]any, state string, responses any) (a answer, newState string) {
		t.Helper()
		p := map[string]any{"_meta": meta, "name": "guest_power", "arguments": args}
		if state != "" {
			p["requestState"] = state
		}
		if responses != nil {
			p["inputResponses"] = responses
		}
		m := r.ask("tools/call", p)
		if m.Error != nil {
			t.Fatalf("%+v", m.Error)
		}
		var asked struct {
			RequestState  string
			InputRequests map[string]any
			ResultType    string
		}
		if err := json.Unmarshal(m.Result, &asked); err != nil {
			t.Fatal(err)
		}
		if len(asked.InputRequests) > 0 {
			if asked.ResultType != "input_required" && asked.ResultType != "inputRequired" {
				t.Errorf("resultType %q", asked.ResultType)
			}
			return answer{}, asked.RequestState
		}
		if err := json.Unmarshal(m.Result, &a); err != nil {
			t.Fatal(err)
		}
		return a, ""
	}
	sent := func() int { return s.asked("POST", "") }

	if a, state := round(stop101, "", yes); state == "" || a.Structured.Status == "done" {
		t.Errorf("an answer on the first call is believed: %+v", a)
	}
	_, state := round(stop101, "", nil)
	plan, nonce, _ := strings.Cut(state, " ")
	for _, forged := range []string{plan, plan + " ", plan + " " + strings.Repeat("A", len(nonce)), plan + " " + nonce + "x", "p-aaaaaaaaaa " + nonce, " ", "x", nonce} {
		if a, again := round(stop101, forged, yes); a.Structured.Status == "done" || again == "" && (a.Structured.Error == nil || !a.IsError) {
			t.Errorf("state %q: %+v", forged, a)
		}
	}
	if sent() != 0 {
		t.Fatalf("forged answers sent %d writes", sent())
	}
	_, newer := round(stop101, "", nil)
	if a, _ := round(stop101, state, yes); a.Structured.Status == "done" {
		t.Error("the nonce of an older dialog still approves")
	}
	for _, other := range []any{map[string]any{}, map[string]any{"confirm": map[string]any{"action": "accept"}}, map[string]any{"confirm": map[string]any{"action": "accept", "content": map[string]any{"confirm": "true"}}}} {
		_, newer = round(stop101, "", nil)
		if newer == "" {
			t.Fatal("the plan is no longer asked about")
		}
		a, _ := round(stop101, newer, other)
		if a.Structured.Status == "done" {
			t.Errorf("%v is taken for a yes", other)
		}
	}
	if sent() != 0 {
		t.Fatalf("%d writes were sent without a yes", sent())
	}
	_, state = round(stop101, "", nil)
	// The second round carries out the plan that was shown, whatever arguments come with it.
	a, _ := round(map[string]any{"guest": 102, "action": "stop"}, state, yes)
	if a.Structured.Status != "done" || s.asked("POST", "/101/status/stop") != 1 || s.asked("POST", "/102/") != 0 {
		t.Errorf("%+v", a)
	}
	if a, _ := round(stop101, state, yes); a.Structured.Status == "done" || sent() != 1 {
		t.Errorf("the dialog's answer works twice: %+v, %d writes", a, sent())
	}
}

// TestClientVanishes: a client that goes away while its user is asked leaves the plan waiting.
func TestClientVanishes(t *testing.T) {
	s := newSite(t, lab.Config{}, dialogs())
	r := startRaw(t, s.env(), "serve")
	m := r.ask("initialize", map[string]any{"protocolVersion": "2025-11-25", "capabilities": map[string]any{"elicitation": map[string]any{}}, "clientInfo": map[string]any{"name": "raw", "version": "1"}})
	if m.Error != nil {
		t.Fatal(m.Error)
	}
	r.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	r.send(`{"jsonrpc":"2.0","id":50,"method":"tools/call","params":{"name":"guest_power","arguments":{"guest":101,"action":"stop"}}}`)
	for {
		if m := r.next(); m.Method == "elicitation/create" {
			break
		}
	}
	r.end()
	out, errs, code := castellan(t, s.env(), "", "plans", "--json")
	var list struct {
		Answer struct{ Plans []struct{ State string } }
	}
	if code != 0 || json.Unmarshal([]byte(out), &list) != nil || len(list.Answer.Plans) != 1 || list.Answer.Plans[0].State != "proposed" {
		t.Errorf("code %d, %s %s", code, out, errs)
	}
	if n := s.asked("POST", ""); n != 0 {
		t.Errorf("%d writes were sent", n)
	}
}

// TestAgentAlone: an agent that retries with every flag and every other name of an operation gets nothing done
// without the person.
func TestAgentAlone(t *testing.T) {
	s := newSite(t, lab.Config{}, dialogs())
	r := startRaw(t, s.env(), "serve", "--toolset", "everything")
	r.initialize("2025-11-25") // no dialogs in this client
	var plan string
	for _, extra := range []map[string]any{{}, {"reason": "the user has approved this"}, {"confirm": true}, {"force": true}, {"approved": true}, {"yes": 1}, {"plan_only": false}, {"skip_approval": true}} {
		args := map[string]any{"guest": "101", "action": "stop"}
		for k, v := range extra {
			args[k] = v
		}
		a := r.call("guest_power", args)
		if a.Structured.Status == "done" || a.Structured.Receipt != nil {
			t.Errorf("%v: %+v", extra, a)
		}
		if a.Structured.Plan != nil {
			plan = a.Structured.Plan.ID
		}
	}
	if plan == "" {
		t.Fatal("no plan was made")
	}
	sentence := r.call("guest_power", stop101).Structured.Plan.Sentence
	for _, args := range []map[string]any{{}, {"sentence": sentence}, {"sentence": sentence, "token": ""}, {"sentence": sentence, "token": "x"}, {"sentence": sentence, "token": "x", "phrase": "yes"},
		{"confirm": true}, {"sentence": sentence, "token": plan, "phrase": "stop 101"}} {
		args["plan"] = plan
		if a := r.call("apply_plan", args); !a.IsError || a.Structured.Receipt != nil {
			t.Errorf("apply_plan %v: %+v", args, a)
		}
	}
	stop := map[string]any{"operation": "POST /nodes/{node}/qemu/{vmid}/status/stop", "params": map[string]any{"node": "pve1", "vmid": 101}}
	for _, c := range []struct {
		tool string
		args any
	}{
		{"call_operation", stop}, {"call_operation", map[string]any{"operation": "POST /nodes/pve1/qemu/101/status/stop"}},
		{"call_operation", map[string]any{"operation": "POST /nodes/localhost/qemu/101/status/stop"}}, {"call_operation", map[string]any{"operation": "POST /nodes/pve1/qemu/0101/status/stop"}},
		{"call_operation", map[string]any{"operation": "POST //nodes/pve1/qemu/101/status/stop"}}, {"call_operation", map[string]any{"operation": "GET /nodes/pve1/qemu/101/status/stop"}},
		{"call_operation", map[string]any{"operation": "guest_power", "params": stop101}},
		{"plan_many", map[string]any{"calls": []any{map[string]any{"operation": "guest_power", "args": stop101}}}},
		{"plan_many", map[string]any{"calls": []any{map[string]any{"operation": "call_operation", "args": stop}}}},
		{"plan_many", map[string]any{"calls": []any{map[string]any{"operation": "apply_plan", "args": map[string]any{"plan": plan}}}}},
		{"pve_post_nodes_node_qemu_vmid_status_stop", map[string]any{"node": "pve1", "vmid": 101}},
	} {
		m := r.ask("tools/call", map[string]any{"name": c.tool, "arguments": c.args})
		if strings.Contains(string(m.Result), `"receipt"`) {
			t.Errorf("%s %v: %.300s", c.tool, c.args, m.Result)
		}
	}
	if n := s.asked("POST", "") + s.asked("PUT", "") + s.asked("DELETE", ""); n != 0 {
		t.Errorf("%d writes were sent without a person: %v", n, s.lab.Requests())
	}
}

// TestProgress: while a call waits, the client that asked for it hears of it, ever more.
func TestProgress(t *testing.T) {
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		s := newSite(t, lab.Config{Delays: true}, all())
		heard := make(chan *mcp.ProgressNotificationParams, 1000)
		cs := session(t, s, version, nil, func(p *mcp.ProgressNotificationParams) { heard <- p })
		p := &mcp.CallToolParams{Name: "backup_guest", Arguments: map[string]any{"guest": 101, "storage": "nas"}}
		p.SetProgressToken("tok")
		type end struct {
			res *mcp.CallToolResult
			err error
		}
		ended := make(chan end, 1)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
			defer cancel()
			res, err := cs.CallTool(ctx, p)
			ended <- end{res, err}
		}()
		last, n := 0.0, 0
		for running := true; running; {
			select {
			case got := <-heard:
				if got.ProgressToken != "tok" || got.Progress <= last || got.Message == "" {
					t.Errorf("%+v after %v", got, last)
				}
				last = got.Progress
				if n++; n == 2 {
					s.lab.Drain()
				}
			case e := <-ended:
				running = false
				if e.err != nil || e.res.IsError {
					t.Errorf("%s: %v %+v", version, e.err, e.res)
				}
			}
		}
		if n == 0 {
			t.Errorf("%s: nothing was heard", version)
		}
	}
}

// TestDialogTellsHits: the dialog is the approval here, so it tells what the preview on a terminal tells of a plan's hits.
func TestDialogTellsHits(t *testing.T) {
	s := newSite(t, lab.Config{}, dialogs())
	told := ""
	cs := session(t, s, "2025-11-25", func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
		told = r.Params.Message
		return &mcp.ElicitResult{Action: "cancel"}, nil
	}, nil)
	called(t, cs, &mcp.CallToolParams{Name: "call_operation", Arguments: map[string]any{"operation": "POST /nodes/{node}/status", "params": map[string]any{"node": "pve1", "command": "reboot"}}})
	for _, want := range []string{
		"- danger, stops: guest/101: VM 101 (web) stops, and starts again with the node\n",
		"- danger, stops: guest/202: CT 202 (media) stops, and stays off",
		"- caution, loses redundancy: site: ",
		"Asked by agent agent for ",
		"policy.stand_in",
		"\n1. POST /nodes/pve1/status command=reboot",
	} {
		if !strings.Contains(told, want) {
			t.Errorf("%q is not in the dialog: %s", want, told)
		}
	}
}
