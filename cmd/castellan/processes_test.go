package main

import (
	"context"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"castellan/internal/gate"
	"castellan/internal/lab"
)

// serving starts the real `serve` and connects a real client to it.
func (g *ground) serving() (*mcp.ClientSession, *exec.Cmd) {
	g.t.Helper()
	cmd := g.program("", "serve")
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	s, err := client.Connect(ctx, &mcp.CommandTransport{Command: cmd, TerminateDuration: 3 * time.Second}, nil)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { _ = s.Close() })
	return s, cmd
}

// ask calls a tool; the outcome's error, if any, comes beside it.
func ask(t *testing.T, s *mcp.ClientSession, tool string, args map[string]any) (gate.Outcome, *gate.Error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	r, err := s.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		return gate.Outcome{}, &gate.Error{Kind: "transport", Message: err.Error()}
	}
	raw, err := json.Marshal(r.StructuredContent)
	if err != nil {
		t.Fatal(err)
	}
	var o struct {
		gate.Outcome
		Error *gate.Error `json:"error"`
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return o.Outcome, o.Error
}

// TestTwoServesAndACommandLineOnOneStore kills the serve that carries a plan out while its task runs. The other serve adopts
// it; the command line finds the object taken meanwhile; nothing is sent twice.
func TestTwoServesAndACommandLineOnOneStore(t *testing.T) {
	if testing.Short() {
		t.Skip("starts and kills programs")
	}
	// Two looks at the task take long, so that the plan is at work for as long as the rest of this test needs.
	slow := lab.Fault{Kind: "slow", Method: "GET", Path: "/nodes/*/tasks/*/status", Count: 2, Delay: lab.Duration(15 * time.Second)}
	g := newGround(t, lab.Config{Delays: true, Faults: []lab.Fault{slow}})
	first, firstProgram := g.serving()
	second, _ := g.serving()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ask(t, first, "backup_guest", map[string]any{"guest": "103", "storage": "local"})
	}()
	deadline := time.Now().Add(30 * time.Second)
	for g.writes("POST", "/vzdump") == 0 && time.Now().Before(deadline) {
		time.Sleep(5 * time.Millisecond)
	}
	if g.writes("POST", "/vzdump") != 1 {
		t.Fatal("the backup was not sent")
	}
	time.Sleep(100 * time.Millisecond)
	if err := firstProgram.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-ended
	list, e := ask(t, second, "list_plans", map[string]any{})
	if e != nil {
		t.Fatal(e)
	}
	id := firstPlan(t, list)
	_, errs, code := g.run("", "call", "backup_guest", "103", "--storage", "local")
	if code != 6 || !strings.Contains(errs, "at work") && !strings.Contains(errs, "locked") || g.writes("POST", "/vzdump") != 1 {
		t.Errorf("a second change of the same guest was not held back: exit %d, %s", code, errs)
	}
	for range 20 {
		o, e := ask(t, second, "show_plan", map[string]any{"plan": id, "wait": 10})
		if e != nil {
			t.Fatal(e)
		}
		if strings.Contains(string(o.Answer), `"state":"done"`) || o.Receipt != nil && o.Receipt.State == gate.PlanDone || o.Plan != nil && o.Plan.State == gate.PlanDone {
			g.verified()
			return
		}
	}
	o, _ := ask(t, second, "show_plan", map[string]any{"plan": id})
	t.Fatalf("the plan of the killed process never ended: %+v %s", o, o.Answer)
}

func firstPlan(t *testing.T, o gate.Outcome) string {
	t.Helper()
	var a struct {
		Plans []struct {
			Plan string `json:"plan"`
		} `json:"plans"`
	}
	if err := json.Unmarshal(o.Answer, &a); err != nil || len(a.Plans) == 0 {
		t.Fatalf("no plan is listed: %s", o.Answer)
	}
	return a.Plans[len(a.Plans)-1].Plan
}
