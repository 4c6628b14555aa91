package self

import (
	"context"
	"time"

	"castellan/internal/gate"
)

type listPlansIn struct {
	State  string `json:"state,omitempty" enum:"open,ended"`
	Limit  int    `json:"limit,omitempty"`
	Cursor string `json:"cursor,omitempty"`
}

type planRow struct {
	Plan      string         `json:"plan"`
	State     gate.PlanState `json:"state"`
	Operation string         `json:"operation"`
	Sentence  string         `json:"sentence"`
	Approval  gate.Rung      `json:"approval"`
	Requester string         `json:"requester"`
	Created   string         `json:"created"`
	Expires   string         `json:"expires,omitempty"` // of one that waits
	Note      string         `json:"note,omitempty"`
}

type listPlansOut struct {
	Plans  []planRow `json:"plans"` // newest first
	Shown  int       `json:"shown"`
	Cursor string    `json:"cursor,omitempty"`
}

func listPlans() *gate.Operation {
	return gate.Control(gate.Declaration{
		Name: "list_plans", Summary: "Plans and their states, newest first. Read", Kinds: []gate.Kind{gate.KindRead},
		Keywords: "pending approvals waiting changes history open", Toolset: "front",
	}, func(ctx context.Context, desk gate.Desk, in listPlansIn) (listPlansOut, error) {
		if in.Limit < 0 || in.Limit > 200 {
			return listPlansOut{}, gate.Fail(gate.ErrInvalid, "Give 1 to 200, or nothing for 20.", "limit %d is out of range", in.Limit)
		}
		f := gate.PlanFilter{Limit: in.Limit, Cursor: in.Cursor}
		if f.Limit == 0 {
			f.Limit = 20
		}
		switch in.State {
		case "open":
			f.States = []gate.PlanState{gate.PlanProposed, gate.PlanApproved, gate.PlanApplying, gate.PlanPaused}
		case "ended":
			f.States = []gate.PlanState{gate.PlanDone, gate.PlanFailed, gate.PlanUnknown, gate.PlanDenied, gate.PlanExpired, gate.PlanWithdrawn, gate.PlanStale}
		}
		records, cursor, err := desk.List(ctx, f)
		if err != nil {
			return listPlansOut{}, err
		}
		out := listPlansOut{Plans: []planRow{}, Cursor: cursor}
		for _, r := range records {
			row := planRow{Plan: r.Plan.ID, State: r.State, Operation: r.Plan.Operation, Sentence: clip(r.Plan.Sentence, 240), Approval: r.Plan.Decision.Rung,
				Requester: r.Plan.Requester.Key(), Created: r.Plan.Created.UTC().Format(time.RFC3339), Note: clip(r.Note, 160)}
			if !r.State.Ended() {
				row.Expires = r.Plan.Expires.UTC().Format(time.RFC3339)
			}
			out.Plans = append(out.Plans, row)
		}
		out.Shown = len(out.Plans)
		return out, nil
	})
}
