package self

import (
	"context"

	"castellan/internal/gate"
)

type applyPlanIn struct {
	Plan     string `json:"plan"`
	Sentence string `json:"sentence,omitempty" jsonschema:"the plan's, word for word"`
	Token    string `json:"token,omitempty" jsonschema:"one-use, from the plan"`
	Phrase   string `json:"phrase,omitempty" jsonschema:"if the plan names one"`
}

func applyPlan() *gate.Operation {
	return gate.Control(gate.Declaration{
		Name: "apply_plan", Summary: "Carry a waiting plan out exactly as shown, once the user agrees. Write; then show_plan", Effect: gate.EffectDestroy,
		Undo: "as the plan says", Keywords: "confirm approve execute run go ahead commit resume continue", Toolset: "front",
	}, func(ctx context.Context, desk gate.Desk, in applyPlanIn) (*gate.Outcome, error) {
		e := gate.Evidence{Kind: "restated", Sentence: in.Sentence, Phrase: in.Phrase}
		if in.Phrase != "" {
			e.Kind = "phrase"
		}
		return desk.Apply(ctx, in.Plan, e, in.Token)
	})
}
