package pve

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

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
	up, check := requestOf(t, "RUN /nodes/{node}/qemu/{vmid}/upgrade", "101"), requestOf(t, "RUN /nodes/{node}/qemu/{vmid}/updates", "101")
	said, err := json.Marshal(gate.RunResult{Said: "it did not go well: port 80"})
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range []struct {
		guest  string
		state  gate.StepState
		answer []byte
		want   string
	}{{"101", gate.StepFailed, said, "worse"}, {"101", gate.StepDone, said, "well"}, {"102", gate.StepFailed, said, "not_known"}, {"101", gate.StepPending, nil, "not_known"}, {"101", gate.StepFailed, nil, "not_known"}, {"101", gate.StepUnknown, nil, "not_known"}} {
		plan := &gate.PlanRecord{Steps: []gate.StepRecord{{State: gate.StepDone}, {State: k.state, Answer: k.answer}}}
		plan.Plan.Steps = []gate.Step{{API: up}, {API: check, Judgement: gate.Judgement{Effect: gate.EffectRead}}}
		plan.Steps[1].Started = time.Unix(1, 0)
		out := shaped(g, o, false)
		out.held(plan, mine{id: k.guest}, installing(plan, mine{id: k.guest}))
		if out.Verdict != k.want || k.want == "worse" && !strings.Contains(strings.Join(out.Why, " "), "port 80") {
			t.Errorf("%s %s: %s %q", k.guest, k.state, out.Verdict, out.Why)
		}
	}
	out := shaped(g, o, false)
	if out.held(nil, mine{id: "101"}, -1); out.Verdict != "not_known" {
		t.Errorf("no plan is known: %s", out.Verdict)
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

func requestOf(t *testing.T, operation, vmid string) *gate.Request {
	t.Helper()
	args := map[string]any{"node": "n", "vmid": vmid}
	if strings.HasSuffix(operation, "/updates") {
		args["word"] = "verify"
	}
	r, err := gate.NewRequest("pve", operation, args)
	if err != nil {
		t.Fatal(err)
	}
	return &r
}

// A plan of several guests is told of one guest at a time: its installation, its check, its snapshot.
func TestTheGuestOfAPlan(t *testing.T) {
	report := func(o patch.Outcome) []byte {
		b, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		if b, err = json.Marshal(gate.RunResult{OK: true, Report: b}); err != nil {
			t.Fatal(err)
		}
		return b
	}
	r := &gate.PlanRecord{}
	for _, id := range []string{"101", "102"} {
		snap, err := gate.NewRequest("pve", "POST /nodes/{node}/qemu/{vmid}/snapshot", map[string]any{"node": "n", "vmid": id, "snapname": "s" + id})
		if err != nil {
			t.Fatal(err)
		}
		r.Plan.Steps = append(r.Plan.Steps, gate.Step{API: &snap}, gate.Step{API: requestOf(t, "RUN /nodes/{node}/qemu/{vmid}/upgrade", id)}, gate.Step{API: requestOf(t, "RUN /nodes/{node}/qemu/{vmid}/updates", id)})
		r.Steps = append(r.Steps, gate.StepRecord{State: gate.StepDone}, gate.StepRecord{State: gate.StepDone}, gate.StepRecord{State: gate.StepDone, Answer: report(patch.Outcome{ID: "p_1." + id, State: "ended"})})
	}
	first, second := mine{id: "101"}, mine{id: "102"}
	if installing(r, first) != 1 || installing(r, second) != 4 || installing(r, mine{id: "103"}) != -1 || installing(r, mine{"other", "101"}) != -1 {
		t.Errorf("installations: %d %d", installing(r, first), installing(r, second))
	}
	if o, known := recordedOutcome(r, 1); !known || o.ID != "p_1.101" {
		t.Errorf("the first guest's outcome: %+v", o)
	}
	if o, ok := seenWell(r, first, 1); !ok || o.ID != "p_1.101" {
		t.Errorf("the first guest's check: %+v", o)
	}
	if stepOf(r, first, "5") != -1 || stepOf(r, second, "5") != 4 || stepOf(r, first, "x") != -1 {
		t.Error("a guest names another one's installation")
	}
	if text := next(r, first, updateResultOut{VMID: 101, Verdict: "worse"}); !strings.Contains(text, "snapshot=s101 ") {
		t.Error(text)
	}
	if text := next(r, first, updateResultOut{VMID: 101, Verdict: "well", Reboot: rebootText(patch.Reboot{})}); !strings.Contains(text, "no reboot is not known") {
		t.Error(text)
	}
	l := &resultLook{in: updateResultIn{Plan: "p_1"}}
	if _, err := l.whose(t.Context(), r); err == nil || !strings.Contains(gate.AsError(err).Hint, "wave_result") {
		t.Errorf("two guests: %v", err)
	}
}
