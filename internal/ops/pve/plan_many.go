package pve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"castellan/internal/gate"
)

type planManyIn struct {
	Calls []plannedCall `json:"calls" jsonschema:"in order"`
}

type plannedCall struct {
	Operation string         `json:"operation"`
	Args      map[string]any `json:"args,omitempty"`
}

const mostCalls = 50

func planMany() *gate.Operation {
	return gate.Change(gate.Declaration{
		Name: "plan_many", Summary: "Put several writes into one plan with one approval; templates are skipped", Effect: gate.EffectDestroy,
		Undo: "as of each call", Keywords: "batch bulk group together all at once multiple guests", Toolset: "full",
	}, runPlanMany)
}

func runPlanMany(ctx context.Context, v gate.View, in planManyIn) (*gate.Draft, error) {
	if len(in.Calls) == 0 || len(in.Calls) > mostCalls {
		return nil, gate.Fail(gate.ErrInvalid, fmt.Sprintf("Give 1 to %d calls, each with operation and args.", mostCalls), "%d calls are given", len(in.Calls))
	}
	draft := &gate.Draft{}
	seen := map[string]int{}
	moves := map[string]int{} // guests whose running state an earlier call changes
	for i, c := range in.Calls {
		if c.Operation == "plan_many" {
			return nil, gate.Fail(gate.ErrInvalid, "Put its calls into this list.", "call %d is plan_many itself", i+1)
		}
		args, err := json.Marshal(c.Args)
		if err != nil {
			return nil, gate.Fail(gate.ErrInvalid, "Correct its args.", "call %d: %v", i+1, err)
		}
		if same, twice := seen[c.Operation+string(args)]; twice {
			return nil, gate.Fail(gate.ErrInvalid, "Leave one out.", "calls %d and %d are the same", same, i+1)
		}
		seen[c.Operation+string(args)] = i + 1
		child, err := v.Plan(ctx, c.Operation, args)
		if errors.Is(err, errTemplate) {
			draft.Skip = append(draft.Skip, fmt.Sprintf("call %d (%s): %v", i+1, c.Operation, err))
			continue
		}
		if err != nil {
			return nil, inCall(i+1, c.Operation, err)
		}
		steps := allSteps(child)
		if len(steps) == 0 {
			if earlier := touches(moves, c.Args); earlier > 0 {
				return nil, gate.Fail(gate.ErrInvalid, "Plan them one after the other.", "call %d finds nothing to do now, but call %d before it changes that", i+1, earlier)
			}
			draft.Skip = append(draft.Skip, strings.TrimSpace(fmt.Sprintf("call %d (%s): nothing to do. %s", i+1, c.Operation, child.Note)))
			continue
		}
		for _, s := range steps {
			vmid := ""
			if s.API != nil {
				vmid = s.API.Text("vmid")
			}
			if earlier := moves[vmid]; earlier > 0 && vmid != "" && reliesOnState(s) {
				return nil, gate.Fail(gate.ErrInvalid, "Plan them one after the other.",
					"call %d relies on the state in which guest %s is now, but call %d before it changes that", i+1, vmid, earlier)
			}
		}
		for _, s := range steps {
			if vmid := movesState(s); vmid != "" && moves[vmid] == 0 {
				moves[vmid] = i + 1
			}
		}
		draft.Children = append(draft.Children, child)
	}
	return draft, nil
}

func allSteps(d *gate.Draft) []gate.Step {
	out := slices.Clone(d.Steps)
	for _, c := range d.Children {
		out = append(out, allSteps(c)...)
	}
	return out
}

// touches says which earlier call changes a guest that these arguments name.
func touches(moves map[string]int, args map[string]any) (first int) {
	for _, k := range []string{"guest", "vmid"} {
		if i := moves[fmt.Sprint(args[k])]; i > 0 {
			return i
		}
	}
	if _, byName := args["guest"]; byName {
		for _, i := range moves { // named otherwise: it may be the same one
			if first == 0 || i < first {
				first = i
			}
		}
	}
	return first
}

func reliesOnState(s gate.Step) bool {
	return slices.ContainsFunc(s.Require, func(c gate.Condition) bool { return c.Pointer == "/status" || c.Pointer == "/qmpstatus" })
}

// movesState returns the guest whose running state, place or existence the step changes.
func movesState(s gate.Step) string {
	if s.API == nil {
		return ""
	}
	op := s.API.Operation
	switch {
	case strings.Contains(op, "/status/") && !strings.HasSuffix(op, "/reboot") && !strings.HasSuffix(op, "/reset"),
		strings.HasSuffix(op, "/rollback"), strings.HasSuffix(op, "/migrate"),
		strings.HasPrefix(op, "DELETE ") && strings.HasSuffix(op, "/{vmid}"):
		return s.API.Text("vmid")
	}
	return ""
}

// inCall names the call that an error is about.
func inCall(n int, operation string, err error) error {
	var e *gate.Error
	if !errors.As(err, &e) {
		return fmt.Errorf("call %d (%s): %w", n, operation, err)
	}
	named := *e
	named.Message = fmt.Sprintf("call %d (%s): %s", n, operation, e.Message)
	return &named
}
