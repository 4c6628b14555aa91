package pve

import (
	"encoding/json"
	"strings"
	"testing"

	"castellan/internal/estate"
	"castellan/internal/gate"
	"castellan/internal/patch"
)

// What castellan saw when a plan was carried out is not made good by what the guest says afterwards, and what was not seen is
// not called well.
func TestAGuestsLaterWord(t *testing.T) {
	g := estate.Guest{ID: "101", Number: 101}
	house := &patch.House{Units: []patch.Unit{{Name: "a.service", Active: "active"}}}
	c := patch.Change{Action: patch.Upgrade, Name: "a", Arch: "all", Old: "1", New: "2", Archive: "x"}
	o := patch.Outcome{ID: "p_1.2", State: "ended", Mode: "all", Asked: patch.Transaction{c}, Done: patch.Transaction{c}, Packages: patch.State{Clean: true}, Before: house, After: house}
	if out := shaped(g, o, false); out.Verdict != "well" {
		t.Errorf("all is well: %+v", out)
	}
	r, err := gate.NewRequest("pve", "RUN /nodes/{node}/qemu/{vmid}/updates", map[string]any{"node": "n", "vmid": "101", "word": "verify"})
	if err != nil {
		t.Fatal(err)
	}
	said, err := json.Marshal(gate.RunResult{Said: "it did not go well: port 80"})
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range []struct {
		guest string
		state gate.StepState
		want  string
	}{{"101", gate.StepFailed, "worse"}, {"101", gate.StepDone, "well"}, {"102", gate.StepFailed, "well"}} {
		plan := &gate.PlanRecord{Steps: []gate.StepRecord{{State: k.state, Answer: said}}}
		plan.Plan.Steps = []gate.Step{{API: &r}}
		out := shaped(g, o, false)
		out.held(plan, estate.Guest{ID: k.guest})
		if out.Verdict != k.want || k.want == "worse" && !strings.Contains(strings.Join(out.Why, " "), "port 80") {
			t.Errorf("%v: %s %q", k, out.Verdict, out.Why)
		}
	}
	o.Services.Unread = []string{"there is the guest's own word only"}
	if out := shaped(g, o, false); out.Verdict != "not_known" {
		t.Errorf("not all was seen: %s", out.Verdict)
	}
	o.Missing = patch.Transaction{c}
	if out := shaped(g, o, false); out.Verdict != "worse" {
		t.Errorf("something is missing: %s", out.Verdict)
	}
}
