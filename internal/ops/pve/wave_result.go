package pve

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"castellan/internal/gate"
	"castellan/internal/ops/table"
	"castellan/internal/patch"
)

type waveResultIn struct {
	Plan string `json:"plan" jsonschema:"of patch_wave, enrol_guests or upgrade_nodes"`
	table.Ask
}

type waveResultOut struct {
	Plan   string           `json:"plan"`
	State  string           `json:"state"`
	Sums   map[string]int   `json:"sums"`
	Guests []map[string]any `json:"guests"`
	table.Count
	LeftOut []string `json:"left_out,omitempty"`
	Next    string   `json:"next"`
}

var waveColumns = table.Columns{All: []string{"part", "batch", "guest", "state", "packages", "missing", "beyond", "services_worse", "conffiles_kept", "reboot", "way_back", "why"}}

func waveResult() *gate.Operation {
	return gate.Query(gate.Declaration{
		Name: "wave_result", Summary: "How a patch_wave, enrol_guests or upgrade_nodes goes or went: a row for each guest or node. Read", Product: "pve",
		Kinds: []gate.Kind{gate.KindRead}, Keywords: "patch wave enrol enroll rolling upgrade nodes summary table progress outcome fleet failed guests rollout", Toolset: "full", Bounded: true,
	}, runWaveResult)
}

func runWaveResult(ctx context.Context, v gate.View, in waveResultIn) (waveResultOut, error) {
	past, ok := v.(gate.Past)
	if !ok {
		return waveResultOut{}, gate.Fail(gate.ErrUnavailable, "show_plan tells it.", "no plans are kept here")
	}
	r, err := past.Recorded(ctx, in.Plan)
	if err != nil {
		return waveResultOut{}, err
	}
	parts := r.Strip()
	if len(parts) == 0 {
		return waveResultOut{}, gate.Fail(gate.ErrInvalid, "show_plan shows it; list_plans shows the waves.", "plan %s has no parts", clip(in.Plan, 40))
	}
	out := waveResultOut{Plan: r.Plan.ID, State: string(r.State), Sums: map[string]int{}, LeftOut: r.Plan.Skip, Next: "update_result with guest and plan tells more of one guest."}
	for _, p := range parts {
		out.Sums[waveState(p.State)]++
	}
	if r.Plan.Operation != "patch_wave" {
		out.Next = "show_plan with plan has each step, and its own words."
	}
	if !r.State.Ended() {
		out.Next = "It has not ended. " + out.Next
	}
	out.Guests, out.Count, err = table.Cut(in.Ask, waveColumns, parts, func(p gate.PartView) string { return fmt.Sprintf("%06d", p.Part) }, func(p gate.PartView) map[string]any {
		return waveRow(r, p)
	})
	return out, err
}

func waveState(s gate.StepState) string {
	switch s {
	case gate.StepStarted, gate.StepWaiting:
		return "running"
	case gate.StepSkipped:
		return "not begun"
	case gate.StepUnknown:
		return "not known"
	}
	return string(s)
}

// waveRow is one guest of a wave: numbers and castellan's own words, no text of the guest.
func waveRow(r *gate.PlanRecord, p gate.PartView) map[string]any {
	row := map[string]any{"part": p.Part, "batch": p.Batch, "guest": p.About, "state": waveState(p.State)}
	for _, n := range p.Steps {
		s, st := r.Plan.Steps[n-1], r.Steps[n-1]
		operation := s.API.Operation
		if st.State == gate.StepFailed || st.State == gate.StepUnknown || st.State == gate.StepSkipped && st.Result != "" {
			if _, has := row["why"]; !has {
				row["why"] = fmt.Sprintf("step %d, %s", n, clip(waveWhy(r, n-1), 160))
			}
		}
		if s.When != (gate.When{}) && strings.HasSuffix(operation, "/rollback") && st.State != gate.StepPending && st.State != gate.StepSkipped {
			row["way_back"] = "gone back to its snapshot: " + string(st.State)
		}
		if !s.API.IsRun() || len(st.Answer) == 0 {
			continue
		}
		var res gate.RunResult
		var o patch.Outcome
		if json.Unmarshal(st.Answer, &res) != nil || json.Unmarshal(res.Report, &o) != nil || o.State == "" {
			continue
		}
		row["packages"], row["missing"], row["beyond"] = len(o.Done), len(o.Missing), len(o.Beyond)
		row["services_worse"], row["conffiles_kept"] = len(o.Services.Worse), len(o.Conffiles)
		switch {
		case !o.Reboot.Known:
			row["reboot"] = "not known"
		case o.Reboot.Needed:
			row["reboot"] = "needed"
		default:
			row["reboot"] = "not needed"
		}
	}
	return row
}

// waveWhy sorts a step's end into words of castellan's own: its text may be another's.
func waveWhy(r *gate.PlanRecord, i int) string {
	st := r.Steps[i]
	switch {
	case strings.HasPrefix(st.Result, "stale:"):
		return "not sent: something had changed since the plan"
	case strings.HasPrefix(st.Result, "not sent:"):
		return "not sent"
	case st.State == gate.StepFailed && r.Unasked(i):
		return "it could not be asked, so whether all is well is not known"
	case st.State == gate.StepUnknown:
		return "its end is not known"
	case st.State == gate.StepSkipped:
		return "not begun"
	}
	return "failed"
}
