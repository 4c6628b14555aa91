package guest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"castellan/internal/gate"
	"castellan/internal/lab"
	"castellan/internal/lane"
	"castellan/internal/ops/housetest"
	"castellan/internal/ops/self"
)

// house is a castellan in front of a simulated site: what it runs passes the gate, the lanes and the runner.
type house struct {
	*housetest.House
	t testing.TB

	mu     sync.Mutex
	req    gate.Request
	last   gate.RunResult
	handle string // of the newest run
	err    error
	ran    bool
}

// Run is the runner as the gate sees it; what comes of it is kept.
func (h *house) Run(ctx context.Context, p *gate.Permit, id string, on gate.RunHooks) (gate.RunResult, error) {
	res, err := h.runner().Run(ctx, p, id, gate.RunHooks{Live: on.Live, Handle: func(handle string) {
		h.mu.Lock()
		h.handle = handle
		h.mu.Unlock()
		on.Handle(handle)
	}})
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last, h.err, h.ran = res, err, true
	return res, err
}

func (h *house) Look(ctx context.Context, target string, r gate.Request, id, handle string) (gate.RunResult, bool, error) {
	return h.runner().Look(ctx, target, r, id, handle)
}

func (h *house) runner() *Runner {
	b, err := NewBridges(BridgesConfig{})
	if err != nil {
		h.t.Fatal(err)
	}
	r, err := NewRunner(RunnerConfig{Driver: h.Client, Bridges: b, Agent: h.Client})
	if err != nil {
		h.t.Fatal(err)
	}
	return r
}

// everywhere lets files and scripts be anywhere, and a few commands.
func everywhere() LaneSettings {
	return LaneSettings{Scripts: lane.Scope{Guests: []string{"*"}}, Files: lane.Scope{Guests: []string{"*"}},
		Commands: []lane.Rule{{Guests: []string{"101"}, Argv: "echo <word...>"}, {Guests: []string{"101"}, Argv: "cat"}, {Guests: []string{"101"}, Argv: "nosuch"}, {Guests: []string{"101"}, Argv: "hostname"}}}
}

func newHouse(t testing.TB, token string, lanes LaneSettings, change func(*lab.Config)) *house {
	t.Helper()
	h := &house{t: t}
	h.House = housetest.Open(t, housetest.Config{Token: token, Lab: change, Gate: func(x *housetest.House, c *gate.Config) error {
		b, err := NewBridges(BridgesConfig{})
		if err != nil {
			return err
		}
		l, err := NewLanes(LanesConfig{Targets: []string{"lab"}, Settings: lanes, Bridges: b})
		if err != nil {
			return err
		}
		c.Runner, c.Lanes = h, l
		c.Operations = append(self.Operations(self.Config{Catalog: x.Catalog, Estate: x.Estate}), gate.Change(gate.Declaration{Name: "carry", Summary: "carry a run out", Effect: gate.EffectExecute, Kinds: []gate.Kind{gate.KindExec}},
			func(context.Context, gate.View, struct{}) (*gate.Draft, error) {
				h.mu.Lock()
				defer h.mu.Unlock()
				return &gate.Draft{Target: "lab", Phrase: "101", Steps: []gate.Step{{Target: "lab", API: &h.req, Undo: gate.Undo{None: "a test"}}}}, nil
			}))
		return nil
	}})
	return h
}

func inGuest(t testing.TB, word string, params map[string]any) gate.Request {
	t.Helper()
	params["node"], params["vmid"] = "pve1", "101"
	return request(t, "qemu/{vmid}/"+word, params)
}

// errNotRun is a plan that was refused before the runner saw it.
var errNotRun = errors.New("the runner was not asked")

func (h *house) do(r gate.Request) (gate.RunResult, error) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), 60*time.Second)
	defer cancel()
	h.mu.Lock()
	h.req, h.ran = r, false
	h.mu.Unlock()
	_, err := h.House.Run(ctx, "carry", "{}")
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.ran {
		return gate.RunResult{}, errors.Join(errNotRun, err)
	}
	return h.last, h.err
}

func TestAgentOfLab(t *testing.T) {
	h := newHouse(t, "admin", everywhere(), nil)
	cases := []struct {
		name string
		req  gate.Request
		want func(gate.RunResult, error) bool
	}{
		{"a command", inGuest(t, "command", map[string]any{"command": []string{"echo", "a", "b.c", "d"}}), func(r gate.RunResult, err error) bool {
			return err == nil && r.OK && r.Stdout == "a b.c d\n" && r.Way == "agent"
		}},
		{"input", inGuest(t, "command", map[string]any{"command": []string{"cat"}, "input": "€ and \u00fc"}), func(r gate.RunResult, err error) bool {
			return err == nil && r.Stdout == "€ and ü"
		}},
		{"a program that is not there", inGuest(t, "command", map[string]any{"command": []string{"nosuch"}}), func(r gate.RunResult, err error) bool {
			return err == nil && !r.OK && *r.ExitCode == 127
		}},
		{"too much input", inGuest(t, "command", map[string]any{"command": []string{"cat"}, "input": strings.Repeat("x", 65<<10)}), func(r gate.RunResult, err error) bool { return errors.Is(err, errNotRun) }},
		{"a file", inGuest(t, "read-file", map[string]any{"path": "/etc/hostname"}), func(r gate.RunResult, err error) bool {
			return err == nil && r.File.Content == "web\n" && len(r.File.SHA256) == 64
		}},
		{"a folder", inGuest(t, "read-file", map[string]any{"path": "/etc"}), func(r gate.RunResult, err error) bool { return notStarted(err) }},
		{"no file", inGuest(t, "read-file", map[string]any{"path": "/etc/none"}), func(r gate.RunResult, err error) bool { return notStarted(err) }},
		{"another file than expected", inGuest(t, "write-file", map[string]any{"path": "/etc/hostname", "content": "x", "expect": strings.Repeat("0", 64)}), func(r gate.RunResult, err error) bool { return notStarted(err) }},
		{"a new file", inGuest(t, "write-file", map[string]any{"path": "/etc/new", "content": "ü€\n", "expect": "absent"}), func(r gate.RunResult, err error) bool { return err == nil && r.File.Absent }},
		{"and what it holds", inGuest(t, "read-file", map[string]any{"path": "/etc/new"}), func(r gate.RunResult, err error) bool { return err == nil && r.File.Content == "ü€\n" }},
		{"too much content", inGuest(t, "write-file", map[string]any{"path": "/etc/big", "content": strings.Repeat("x", 61<<10), "expect": "absent"}), func(r gate.RunResult, err error) bool { return notStarted(err) }},
	}
	for _, c := range cases {
		if res, err := h.do(c.req); !c.want(res, err) {
			t.Errorf("%s: %+v %v", c.name, res, err)
		}
	}
	for _, r := range []gate.Request{
		inGuest(t, "command", map[string]any{"command": []string{"id"}}),
		inGuest(t, "command", map[string]any{"command": []string{"echo", "a;b"}}),
		inGuest(t, "script", map[string]any{"script": "rm -rf /"}),
	} {
		if _, err := h.do(r); !errors.Is(err, errNotRun) || !strings.Contains(err.Error(), "rule") {
			t.Errorf("%v: %v", r, err)
		}
	}
	// A script is put into a file, and the file is taken away whatever comes of it.
	if _, err := h.do(inGuest(t, "script", map[string]any{"script": "echo hello\necho you\n"})); err != nil {
		t.Error(err)
	}
	sent := h.Sent()
	if n := len(sent); n < 4 || !slices.Contains(sent, "POST /nodes/pve1/qemu/101/agent/file-write") {
		t.Errorf("sent %v", sent)
	}
}

// A token that may not use agents is told so, with the grant, before anything was started.
func TestAgentRights(t *testing.T) {
	hostname := map[string]any{"command": []string{"hostname"}}
	h := newHouse(t, "operator", everywhere(), nil)
	if res, err := h.do(inGuest(t, "command", hostname)); err != nil || !res.OK {
		t.Errorf("a token with the rights: %+v %v", res, err)
	}
	h = newHouse(t, "auditor", everywhere(), nil)
	_, err := h.do(inGuest(t, "command", hostname))
	if !errors.Is(err, errNotRun) && !notStarted(err) {
		t.Errorf("a token that only reads: %v", err)
	}
	var u *gate.UpstreamError
	if err == nil || !strings.Contains(err.Error(), "VM.GuestAgent.Unrestricted") || errors.As(err, &u) && u.Hint == "" {
		t.Errorf("the privilege is not named, or not what to do: %v", err)
	}
	if sent := agentCalls(h); slices.ContainsFunc(sent, func(c string) bool { return strings.Contains(c, "exec-status") }) {
		t.Errorf("the end of something was asked for: %v", sent)
	}
}

// agentCalls are the requests that reached an agent.
func agentCalls(h *house) (out []string) {
	for _, r := range h.Lab.Requests() {
		if strings.Contains(r.Path, "/agent/") {
			path, _, _ := strings.Cut(r.Path, "?")
			out = append(out, r.Method+" "+strings.TrimPrefix(path, "/api2/json"))
		}
	}
	return out
}

// An agent that does not answer under load is asked again for the same process, which is not started twice.
func TestAgentBusy(t *testing.T) {
	h := newHouse(t, "admin", everywhere(), nil)
	h.Lab.SetFaults([]lab.Fault{{Kind: "status", Method: "GET", Path: "/nodes/*/qemu/101/agent/exec-status", Status: 500, Reason: "VM 101 qga command 'guest-exec-status' failed - got timeout", Count: 4}})
	res, err := h.do(inGuest(t, "command", map[string]any{"command": []string{"echo", "once"}}))
	if err != nil || !res.OK || res.Stdout != "once\n" {
		t.Errorf("%+v %v", res, err)
	}
	calls := strings.Join(agentCalls(h), "\n")
	if begun, asked := strings.Count(calls, "/agent/exec\n"), strings.Count(calls, "/agent/exec-status"); asked < begun+4 || !strings.HasPrefix(calls, "POST /nodes/pve1/qemu/101/agent/exec\n"+strings.Repeat("GET /nodes/pve1/qemu/101/agent/exec-status\n", 5)) {
		t.Errorf("asked otherwise than five times for the one process:\n%s", calls)
	}
}

// An agent that is switched off is not asked at all.
func TestAgentOff(t *testing.T) {
	lanes := everywhere()
	lanes.Commands = []lane.Rule{{Guests: []string{"*"}, Argv: "hostname"}}
	h := newHouse(t, "admin", lanes, nil)
	_, err := h.do(request(t, "qemu/{vmid}/command", map[string]any{"node": "pve2", "vmid": "107", "command": []string{"hostname"}}))
	if !errors.Is(err, errNotRun) && !notStarted(err) || !strings.Contains(err.Error(), "guest agent of VM 107") {
		t.Errorf("%v", err)
	}
	if sent := agentCalls(h); len(sent) > 0 {
		t.Errorf("sent %v", sent)
	}
}
