package main

import (
	"encoding/json"
	"fmt"
	"testing"

	"castellan/internal/gate"
	"castellan/internal/lab"
)

// three guests whose settings one plan changes; its undo has three steps, the last guest first.
var undone = []struct{ id, kind, key, value string }{{"103", "qemu", "description", "changed"}, {"107", "qemu", "description", "changed"}, {"201", "lxc", "description", "changed"}}

// configs are the settings of these guests, as the site tells them.
func (g *ground) configs() string {
	g.t.Helper()
	all := ""
	for _, u := range undone {
		out, errs, code := g.run("", "call", "guest_config", u.id, "--json")
		var o struct {
			Answer struct {
				Config map[string]any `json:"config"`
			} `json:"answer"`
		}
		if err := json.Unmarshal([]byte(out), &o); err != nil || code != 0 || len(o.Answer.Config) == 0 {
			g.t.Fatalf("guest_config %s: %d %q %q %v", u.id, code, out, errs, err)
		}
		all += fmt.Sprintln(u.id, o.Answer.Config[u.key])
	}
	return all
}

func (g *ground) puts() (n int) {
	for _, u := range undone {
		n += g.writes("PUT", "/"+u.kind+"/"+u.id+"/config")
	}
	return n
}

// through plans and applies; the last process ends at the named point.
func (g *ground) through(end string, args ...string) (*gate.Outcome, int) {
	g.t.Helper()
	o, code := g.outcome("", args...)
	if code != 8 || o.Plan == nil {
		return &o, code
	}
	apply := []string{"apply", o.Plan.ID, "--sentence", o.Plan.Sentence, "--token", o.Plan.Token}
	if o.Plan.Rung == gate.RungPhrase {
		apply = append(apply, "--phrase", o.Plan.Phrase)
	}
	done, code := g.outcome(end, apply...)
	if done.Plan == nil {
		done.Plan = o.Plan
	}
	return &done, code
}

// TestKilledInTheMiddleOfAnUndo kills the program between the steps of an undo, and within one. Nothing is sent twice, the
// plan ends, and undoing the first plan again brings about what was there before, except where nobody can know.
func TestKilledInTheMiddleOfAnUndo(t *testing.T) {
	if testing.Short() {
		t.Skip("starts and kills many programs")
	}
	for _, c := range []struct {
		at    gate.Point
		pass  int // the n-th time
		state gate.PlanState
		sent  int // requests of the undo, in all
	}{
		{gate.PointSeen, 1, gate.PlanDone, 3},
		{gate.PointRechecked, 2, gate.PlanDone, 3},
		{gate.PointStarted, 2, gate.PlanUnknown, 1}, // recorded, not sent: nobody sends it for it
		{gate.PointSent, 2, gate.PlanDone, 3},
		{gate.PointAnswered, 2, gate.PlanDone, 3},
		{gate.PointSeen, 2, gate.PlanDone, 3},
	} {
		t.Run(fmt.Sprintf("%s %d", c.at, c.pass), func(t *testing.T) {
			t.Parallel()
			g := newGround(t, lab.Config{})
			was := g.configs()
			calls := []map[string]any{}
			for _, u := range undone {
				calls = append(calls, map[string]any{"operation": "set_guest_config", "args": map[string]any{"guest": u.id, "set": map[string]string{u.key: u.value}}})
			}
			many, err := json.Marshal(map[string]any{"calls": calls})
			if err != nil {
				t.Fatal(err)
			}
			made, code := g.through("", "call", "plan_many", "--args", string(many))
			if code != 0 || made.Receipt == nil || g.puts() != 3 || g.configs() == was {
				t.Fatalf("exit %d, %+v", code, made)
			}
			back, code := g.through(fmt.Sprintf("%s:%d", c.at, c.pass), "undo", made.Receipt.Plan)
			if code != -1 || back.Plan == nil {
				t.Fatalf("the program was not killed: exit %d, %+v", code, back)
			}
			var state gate.PlanState
			for _, p := range g.settled() {
				if p.Plan.ID == back.Plan.ID {
					state = p.State
				}
			}
			if sent := g.puts() - 3; state != c.state || sent != c.sent {
				t.Errorf("state %s, sent %d; want %s, %d", state, sent, c.state, c.sent)
			}
			if done := g.configs() == was; done != (c.state == gate.PlanDone) {
				t.Errorf("the plan is %s, and found is\n%s, was\n%s", state, g.configs(), was)
			}
			again, code := g.through("", "undo", made.Receipt.Plan)
			if code != 0 || again.Status != gate.StatusDone && again.Status != gate.StatusNothing || g.configs() != was {
				t.Errorf("the first plan undone again: exit %d, %+v\n%s", code, again, g.configs())
			}
			if sent := g.puts() - 3; sent != 3 {
				t.Errorf("%d requests went out for three settings", sent)
			}
			g.verified()
		})
	}
}
