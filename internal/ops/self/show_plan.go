package self

import (
	"context"
	"time"

	"castellan/internal/gate"
)

type showPlanIn struct {
	Plan string `json:"plan"`
	Wait int    `json:"wait,omitempty" jsonschema:"seconds, up to 45"`
}

func showPlan() *gate.Operation {
	return gate.Control(gate.Declaration{
		Name: "show_plan", Summary: "A plan: its steps, the approval it needs, progress, outcome. Read", Kinds: []gate.Kind{gate.KindRead},
		Keywords: "status progress result receipt pending approval waiting change", Toolset: "front",
	}, func(ctx context.Context, desk gate.Desk, in showPlanIn) (*gate.PlanView, error) {
		if in.Wait < 0 {
			return nil, gate.Fail(gate.ErrInvalid, "Give 0 to 45 seconds.", "wait %d is out of range", in.Wait)
		}
		if in.Wait > 0 {
			if _, err := desk.Wait(ctx, in.Plan, time.Duration(min(in.Wait, 45))*time.Second); err != nil {
				return nil, err
			}
		}
		view, _, err := desk.Show(ctx, in.Plan)
		return view, err
	})
}
