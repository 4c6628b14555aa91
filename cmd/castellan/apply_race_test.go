package main

import (
	"context"
	"encoding/json"
	"sync"
	"testing"

	"castellan/internal/gate"
	"castellan/internal/lab"
)

// TestFiftyAppliesAtOnce: one approved plan, two houses on one store, fifty at once: it is sent once, and each caller hears how
// it ended.
func TestFiftyAppliesAtOnce(t *testing.T) {
	s := newSite(t, lab.Config{}, all())
	houses := []*house{peopleHouse(t, s), peopleHouse(t, s)}
	ctx := context.Background()
	agent := agentCaller("claude", "ann", gate.RoleOperator).Principal
	out, err := houses[0].gate.Do(ctx, gate.Call{Operation: "guest_power", Args: json.RawMessage(`{"guest":"101","action":"stop"}`), Principal: agent}, nil)
	if err != nil || out.Plan == nil || out.Plan.Rung != gate.RungPerson {
		t.Fatalf("%+v %v", out, err)
	}
	plan := out.Plan.ID
	args, err := json.Marshal(map[string]string{"plan": plan})
	if err != nil {
		t.Fatal(err)
	}
	apply := func(h *house) (*gate.Outcome, error) {
		return h.gate.Do(ctx, gate.Call{Operation: "apply_plan", Args: args, Principal: agent}, nil)
	}
	together := func(f func(h *house)) {
		var group sync.WaitGroup
		for i := range 50 {
			group.Go(func() { f(houses[i%2]) })
		}
		group.Wait()
	}
	together(func(h *house) { // before anybody approved
		if out, err := apply(h); err == nil {
			t.Errorf("applied without an approval: %+v", out)
		}
	})
	together(func(h *house) { // many tabs
		if _, err := h.gate.Approve(ctx, plan, bySession); err != nil && gate.AsError(err).Kind != gate.ErrStale {
			t.Errorf("approve: %v", err)
		}
	})
	together(func(h *house) {
		out, err := apply(h)
		if e := gate.AsError(err); e != nil && e.Kind == gate.ErrStale && e.Message == "plan "+plan+" is done" {
			return // it came when the others had ended it, and is told so
		}
		if err != nil || out.Status != gate.StatusDone && out.Status != gate.StatusRunning {
			t.Errorf("%+v %v", out, err)
		}
	})
	if n := s.asked("POST", "/101/status/stop"); n != 1 {
		t.Errorf("the stop was sent %d times", n)
	}
	_, r, err := houses[1].gate.Show(ctx, agent, plan)
	if err != nil || r.State != gate.PlanDone || len(r.Approvals) != 1 {
		t.Errorf("%+v %v", r, err)
	}
}
