package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"castellan/internal/catalog/facts"
	"castellan/internal/gate"
	"castellan/internal/lab"
	"castellan/internal/seal"
)

// ground is a simulated site and a configuration for real programs to work on it.
type ground struct {
	t      testing.TB
	lab    *lab.Lab
	dir    string
	config string
}

func newGround(t testing.TB, c lab.Config) *ground {
	t.Helper()
	if c.Site == "" {
		c.Site = "small"
	}
	c.Facts = facts.Open()
	l, err := lab.New(c)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = l.Serve(ctx, listener) }()
	t.Cleanup(func() { stop(); _ = listener.Close(); <-done })
	g := &ground{t: t, lab: l, dir: t.TempDir()}
	if err := os.Chmod(g.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	g.config = filepath.Join(g.dir, "castellan.toml")
	token := strings.TrimPrefix(l.Tokens()["admin"], "PVEAPIToken=")
	g.write("token", token+"\n")
	g.write("castellan.toml", fmt.Sprintf(`
[store]
url = %q

[policy]
capabilities = [%s]
stand_in = "phrase"

[[target]]
name = "lab"
kind = "pve"
addresses = [%q]
token_file = %q
pins = [%q]
`, filepath.Join(g.dir, "state", "castellan.db"), `"`+strings.Join(gate.Capabilities(), `", "`)+`"`, listener.Addr(), filepath.Join(g.dir, "token"), l.Fingerprint()))
	if _, err := seal.CreateKeys(filepath.Join(g.dir, "keys")); err != nil {
		t.Fatal(err)
	}
	return g
}

func (g *ground) write(name, text string) {
	g.t.Helper()
	if err := os.WriteFile(filepath.Join(g.dir, name), []byte(text), 0o600); err != nil {
		g.t.Fatal(err)
	}
}

// program prepares the test binary to run as castellan on this ground.
func (g *ground) program(end string, args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), asProgram+"=1", "CASTELLAN_CONFIG="+g.config, endAt+"="+end, beatEvery+"=200ms")
	return cmd
}

// run runs a command to its end and returns stdout, stderr and the exit code; -1 when it was killed.
func (g *ground) run(end string, args ...string) (string, string, int) {
	g.t.Helper()
	cmd := g.program(end, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		g.t.Fatal(err)
	}
	timer := time.AfterFunc(90*time.Second, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	_ = cmd.Wait() // the exit code says it
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// outcome runs a call with --json and reads what became of it.
func (g *ground) outcome(end string, args ...string) (gate.Outcome, int) {
	g.t.Helper()
	out, errs, code := g.run(end, append(args, "--json")...)
	var o gate.Outcome
	if out != "" {
		if err := json.Unmarshal([]byte(out), &o); err != nil {
			g.t.Fatalf("castellan %v answered %q, %q: %v", args, out, errs, err)
		}
	}
	return o, code
}

// writes counts the requests of a method on a path that reached the site.
func (g *ground) writes(method, suffix string) int {
	n := 0
	for _, r := range g.lab.Requests() {
		if r.Method == method && strings.HasSuffix(r.Path, suffix) {
			n++
		}
	}
	return n
}

// plans lists all plans of the store.
func (g *ground) plans() []gate.PlanRecord {
	g.t.Helper()
	out, errs, code := g.run("", "plans", "--all", "--json")
	var o struct {
		Answer struct {
			Plans []struct {
				Plan  string         `json:"plan"`
				ID    string         `json:"id"`
				State gate.PlanState `json:"state"`
			} `json:"plans"`
		} `json:"answer"`
	}
	if err := json.Unmarshal([]byte(out), &o); err != nil || code != 0 {
		g.t.Fatalf("list_plans: %d %q %q %v", code, out, errs, err)
	}
	var plans []gate.PlanRecord
	for _, p := range o.Answer.Plans {
		r := gate.PlanRecord{State: p.State}
		r.Plan.ID = p.ID
		if r.Plan.ID == "" {
			r.Plan.ID = p.Plan
		}
		plans = append(plans, r)
	}
	return plans
}

// settled waits until every plan that is on its way has ended, by asking a fresh process each time.
func (g *ground) settled() []gate.PlanRecord {
	g.t.Helper()
	var plans []gate.PlanRecord
	for range 60 { // each program lives only as long as its command: on a loaded machine it takes several to adopt and end a plan
		plans = g.plans()
		open := false
		for _, p := range plans {
			switch p.State {
			case gate.PlanApplying:
				open = true
				g.run("", "plans", "show", p.Plan.ID, "--wait", "--json")
			case gate.PlanPaused: // a program that had adopted it ended before it came to the step
				open = true
				g.run("", "apply", p.Plan.ID, "--json")
			}
		}
		if !open {
			return plans
		}
	}
	g.t.Fatalf("plans do not settle: %+v", plans)
	return nil
}

func (g *ground) verified() {
	g.t.Helper()
	out, errs, code := g.run("", "audit", "verify", "--json")
	if code != 0 || !strings.Contains(out, `"ok": true`) {
		g.t.Fatalf("the ledger does not verify: %d %s %s", code, out, errs)
	}
}

// guestStatus asks the site itself.
func (g *ground) status(vmid string) string {
	g.t.Helper()
	out, errs, code := g.run("", "call", "guest_status", vmid, "--json")
	var o struct {
		Answer struct {
			Status string `json:"status"`
		} `json:"answer"`
	}
	if err := json.Unmarshal([]byte(out), &o); err != nil || code != 0 {
		g.t.Fatalf("guest_status: %d %q %q %v", code, out, errs, err)
	}
	return o.Answer.Status
}

var points = []gate.Point{gate.PointKept, gate.PointApproved, gate.PointTaken, gate.PointRechecked, gate.PointStarted, gate.PointSent, gate.PointAnswered, gate.PointSeen, gate.PointEnded}

// TestKilledBetweenAnyTwoSteps kills the program at each point of a plan's way, then starts others and looks at what is left.
func TestKilledBetweenAnyTwoSteps(t *testing.T) {
	if testing.Short() {
		t.Skip("starts and kills many programs")
	}
	for _, point := range points {
		t.Run(string(point), func(t *testing.T) {
			t.Parallel()
			g := newGround(t, lab.Config{})
			_, errs, code := g.run(string(point), "call", "guest_power", "103", "--action", "start")
			if code != -1 {
				t.Fatalf("the program was not killed at %s: exit %d, %s", point, code, errs)
			}
			sentBefore := g.writes("POST", "/qemu/103/status/start")
			plans := g.settled()
			if len(plans) != 1 {
				t.Fatalf("%d plans are left", len(plans))
			}
			sent, state := g.writes("POST", "/qemu/103/status/start"), plans[0].State
			switch point {
			case gate.PointKept, gate.PointApproved: // nobody owned it yet: it still waits, nothing was sent
				if sent != 0 || state.Ended() {
					t.Errorf("sent %d, state %s", sent, state)
				}
			case gate.PointTaken, gate.PointRechecked: // adopted, and carried out by the other process
				if sentBefore != 0 || sent != 1 || state != gate.PlanDone {
					t.Errorf("sent %d then %d, state %s", sentBefore, sent, state)
				}
			case gate.PointStarted: // recorded as started, not sent: never sent, so it cannot be called done
				if sent != 0 || state != gate.PlanUnknown {
					t.Errorf("sent %d, state %s", sent, state)
				}
			default: // sent once: found, never sent again
				if sent != 1 || state != gate.PlanDone {
					t.Errorf("sent %d, state %s", sent, state)
				}
			}
			if running := g.status("103") == "running"; running != (sent == 1) {
				t.Errorf("running %t, sent %d", running, sent)
			}
			g.verified()
		})
	}
}

// TestKilledWithoutATask does the same for a change that the server makes at once.
func TestKilledWithoutATask(t *testing.T) {
	if testing.Short() {
		t.Skip("starts and kills many programs")
	}
	for _, point := range []gate.Point{gate.PointStarted, gate.PointSent, gate.PointAnswered} {
		t.Run(string(point), func(t *testing.T) {
			t.Parallel()
			g := newGround(t, lab.Config{})
			o, code := g.outcome("", "call", "set_guest_config", "103", "--args", `{"set":{"onboot":"1"}}`)
			if code != 8 || o.Plan == nil {
				t.Fatalf("exit %d, %+v", code, o)
			}
			if _, errs, code := g.run(string(point), "apply", o.Plan.ID, "--sentence", o.Plan.Sentence, "--token", o.Plan.Token); code != -1 {
				t.Fatalf("the program was not killed: exit %d, %s", code, errs)
			}
			plans := g.settled()
			sent := g.writes("PUT", "/qemu/103/config")
			want := gate.PlanDone
			if point == gate.PointStarted {
				want = gate.PlanUnknown
			}
			if plans[0].State != want || sent > 1 || (sent == 1) != (point != gate.PointStarted) {
				t.Errorf("state %s, sent %d", plans[0].State, sent)
			}
			g.verified()
		})
	}
}

// TestTheWireFails scripts the site: the request is lost before its effect, or its answer after it.
func TestTheWireFails(t *testing.T) {
	if testing.Short() {
		t.Skip("starts many programs")
	}
	start := "/nodes/*/qemu/*/status/start"
	for _, c := range []struct {
		name  string
		fault lab.Fault
		state gate.PlanState
		code  int
	}{
		{"cut before the effect", lab.Fault{Kind: "before the effect", Method: "POST", Path: start, Count: 1}, gate.PlanUnknown, 7},
		{"cut after the effect", lab.Fault{Kind: "after the effect", Method: "POST", Path: start, Count: 1}, gate.PlanDone, 0},
		{"half an answer", lab.Fault{Kind: "cut", Method: "POST", Path: start, Count: 1}, gate.PlanDone, 0},
		{"a page of a proxy", lab.Fault{Kind: "html", Method: "POST", Path: start, Count: 1, Status: 502}, gate.PlanUnknown, 7},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := newGround(t, lab.Config{Faults: []lab.Fault{c.fault}})
			o, code := g.outcome("", "call", "guest_power", "103", "--action", "start")
			if code != c.code {
				t.Errorf("exit code %d, want %d: %+v", code, c.code, o)
			}
			plans := g.settled()
			if plans[0].State != c.state {
				t.Errorf("state %s, want %s: %+v", plans[0].State, c.state, o)
			}
			if n := g.writes("POST", "/qemu/103/status/start"); n > 1 {
				t.Errorf("sent %d times", n)
			}
			if c.state == gate.PlanDone && g.status("103") != "running" {
				t.Error("called done, but the guest does not run")
			}
			g.verified()
		})
	}
}
