package self

import (
	"context"

	"castellan/internal/gate"
)

// Undoer drafts the plan that takes another one back.
type Undoer interface {
	Back(ctx context.Context, v gate.View, r *gate.PlanRecord, partial bool) (*gate.Draft, error)
}

type undoIn struct {
	Plan    string `json:"plan"`
	Partial bool   `json:"partial,omitempty"`
}

func undoPlan(u Undoer) *gate.Operation {
	return gate.Change(gate.Declaration{
		Name: "undo", Summary: "Plan the way back from an ended plan", Effect: gate.EffectDestroy, Undo: "an undo is undone like any plan",
		Keywords: "revert restore take back previous configuration rollback old values receipt last", Toolset: "standard",
	}, func(ctx context.Context, v gate.View, in undoIn) (*gate.Draft, error) {
		past, ok := v.(gate.Past)
		if u == nil || !ok {
			return nil, gate.Fail(gate.ErrUnavailable, "", "nothing is kept here of what plans did")
		}
		r, err := past.Recorded(ctx, in.Plan)
		if err != nil {
			return nil, err
		}
		return u.Back(ctx, v, r, in.Partial)
	})
}
