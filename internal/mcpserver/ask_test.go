package mcpserver

import (
	"fmt"
	"strings"
	"testing"

	"castellan/internal/gate"
)

// TestQuestionSaysWhatItLeavesOut: a dialog that is cut says so, and never loses what decides.
func TestQuestionSaysWhatItLeavesOut(t *testing.T) {
	v := &gate.PlanView{ID: "p-1", Digest: "abc", Sentence: "Destroy VM 101", Effect: gate.EffectDestroy, Undo: "cannot be undone: gone",
		Reason: "a good \u202e\x1b[31mreason"}
	for i := range 60 {
		v.Steps = append(v.Steps, gate.StepView{Number: i + 1, Request: fmt.Sprintf("PUT /nodes/n/qemu/%d/config description=%s", 100+i, strings.Repeat("x", 20*i))})
	}
	got := question(v)
	for _, want := range []string{"Destroy VM 101", "Effect: destroy", "cannot be undone", "1. PUT", "more steps do not fit here", "The agent's reason"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in %s", want, got)
		}
	}
	if len(got) > longestQuestion+3000 || strings.ContainsAny(got, "\x1b\u202e") {
		t.Errorf("%d bytes: %q", len(got), got)
	}
	v.Steps = v.Steps[59:]
	if got = question(v); !strings.Contains(got, "bytes in all") {
		t.Errorf("a long request is cut in silence: %s", got)
	}
}
