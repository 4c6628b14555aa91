package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/spf13/cobra"

	"castellan/internal/gate"
)

// elsewhere is a gate whose plans are carried out by another process: each look finds the next state.
type elsewhere struct {
	states []gate.PlanState
	fails  error
	only   int // so many looks fail; 0: all of them
	failed int
	looks  int
}

func (e *elsewhere) Do(_ context.Context, c gate.Call, _ gate.Progress) (*gate.Outcome, error) {
	if c.Operation != "show_plan" || !strings.Contains(string(c.Args), "p-1") {
		return nil, errors.New("asked for something else")
	}
	if e.failed++; e.fails != nil && (e.only == 0 || e.failed <= e.only) {
		return nil, e.fails
	}
	state := e.states[min(e.looks, len(e.states)-1)]
	e.looks++
	text, err := json.Marshal(gate.PlanView{ID: "p-1", State: state})
	return &gate.Outcome{Status: gate.StatusAnswer, Answer: text}, err
}

func (e *elsewhere) Confirm(context.Context, gate.Principal, string, gate.Evidence, gate.Progress) (*gate.Outcome, error) {
	return nil, errors.New("nothing is to be confirmed")
}

// A plan that goes on elsewhere is waited for, and the command ends as the plan does; where the waiting is cut, it says so and has
// a code of its own.
func TestAwait(t *testing.T) {
	for _, k := range []struct {
		name string
		gate elsewhere
		code int
		says string
	}{
		{"done", elsewhere{states: []gate.PlanState{gate.PlanApplying, gate.PlanPaused, gate.PlanApplying, gate.PlanDone}}, ExitOK, ""},
		{"failed", elsewhere{states: []gate.PlanState{gate.PlanApplying, gate.PlanFailed}}, ExitError, ""},
		{"not known", elsewhere{states: []gate.PlanState{gate.PlanUnknown}}, ExitUnknown, ""},
		{"stale", elsewhere{states: []gate.PlanState{gate.PlanStale}}, ExitStale, ""},
		{"nobody goes on with it", elsewhere{states: []gate.PlanState{gate.PlanPaused}}, ExitRunning, "it is paused"},
		{"the daemon is gone", elsewhere{fails: errors.New("connection refused")}, ExitRunning, "connection refused"},
		{"the daemon is started anew", elsewhere{states: []gate.PlanState{gate.PlanApplying, gate.PlanDone}, fails: errors.New("connection refused"), only: 3}, ExitOK, ""},
		{"it is taken up again", elsewhere{states: []gate.PlanState{gate.PlanPaused, gate.PlanPaused, gate.PlanPaused, gate.PlanFailed}}, ExitError, ""},
		{"it may not be looked at", elsewhere{states: []gate.PlanState{gate.PlanDone}, fails: gate.Fail(gate.ErrDenied, "", "not yours"), only: 1}, ExitRunning, "not yours"},
		{"it takes longer than is waited", elsewhere{states: []gate.PlanState{gate.PlanApplying}}, ExitRunning, "plans show --wait p-1"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var out, errs bytes.Buffer
			cmd := &cobra.Command{}
			cmd.SetContext(t.Context())
			c := Config{Out: &out, Err: &errs, Declared: func() []*gate.Operation { return nil }}
			err := c.outcome(cmd, &k.gate, &gate.Outcome{Status: gate.StatusRunning, Plan: &gate.PlanView{ID: "p-1", State: gate.PlanApplying}})
			if Code(err) != k.code || !strings.Contains(errs.String(), k.says) || k.gate.looks > awaitLooks {
				t.Errorf("%s: code %d after %d looks: %s", k.name, Code(err), k.gate.looks, errs.String())
			}
		})
	}
	cut, stop := context.WithCancel(t.Context())
	stop()
	cmd := &cobra.Command{}
	cmd.SetContext(cut)
	var out, errs bytes.Buffer
	if err := (Config{Out: &out, Err: &errs, Declared: func() []*gate.Operation { return nil }}).outcome(cmd, &elsewhere{fails: context.Canceled}, &gate.Outcome{Status: gate.StatusRunning, Plan: &gate.PlanView{ID: "p-1"}}); Code(err) != ExitRunning {
		t.Errorf("interrupted: code %d %s", Code(err), errs.String())
	}
}
