package self

import (
	"context"

	"castellan/internal/gate"
)

type withdrawPlanIn struct {
	Plan string `json:"plan"`
	Why  string `json:"why,omitempty"`
}

func withdrawPlan() *gate.Operation {
	return gate.Control(gate.Declaration{
		Name: "withdraw_plan", Summary: "Drop a waiting plan; nothing is sent to Proxmox", Effect: gate.EffectChange,
		Undo: "plan again", Keywords: "cancel reject decline abort discard", Toolset: "front",
	}, func(ctx context.Context, desk gate.Desk, in withdrawPlanIn) (*gate.Outcome, error) {
		return desk.Withdraw(ctx, in.Plan, in.Why)
	})
}
