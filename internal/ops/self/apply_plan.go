package self

import (
	"context"

	"castellan/internal/gate"
)

type applyPlanIn struct {
	Plan     string `json:"plan"`
	Sentence string `json:"sentence,omitempty" jsonschema:"the plan's, word for word"`
	Token    string `json:"token,omitempty"`
	Phrase   string `json:"phrase,omitempty"`
}

func applyPlan() *gate.Operation {
	return gate.Control(gate.Declaration{
		Name: "apply_plan", Summary: "Carry a plan out as shown, once the user agrees (write)", Effect: gate.EffectDestroy,
		Undo: "as the plan says", Keywords: "confirm approve execute run go ahead commit resume continue", Toolset: "front",
	}, func(ctx context.Context, desk gate.Desk, in applyPlanIn) (*gate.Outcome, error) {
		e := gate.Evidence{Kind: "restated", Sentence: in.Sentence, Phrase: in.Phrase}
		if in.Phrase != "" {
			e.Kind = "phrase"
		}
		return desk.Apply(ctx, in.Plan, e, in.Token)
	})
}
