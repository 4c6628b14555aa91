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
	got := question(v, gate.Principal{})
	for _, want := range []string{"Destroy VM 101", "Effect: destroy", "cannot be undone", "1. PUT", "more steps do not fit here", "The agent's reason"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in %s", want, got)
		}
	}
	if len(got) > longestQuestion+10 || strings.ContainsAny(got, "\x1b\u202e") {
		t.Errorf("%d bytes: %q", len(got), got)
	}
	v.Steps = v.Steps[59:]
	if got = question(v, gate.Principal{}); !strings.Contains(got, "bytes in all") {
		t.Errorf("a long request is cut in silence: %s", got)
	}
}

// TestQuestionTellsHits: whoever says yes in the dialog has read what the plan hits, the gravest first, and where there are
// too many how many more and how grave; no text of others makes a line of its own.
func TestQuestionTellsHits(t *testing.T) {
	who := gate.Principal{Agent: "claude", Person: "root", Client: "Some Client 1"}
	v := &gate.PlanView{ID: "p-1", Digest: "abc", Sentence: "Send reboot to node pve1 itself", Effect: gate.EffectChange, Undo: "cannot be undone: no call is known", Requester: who.Key(),
		Why: "the table asks a person", Note: "of\nthe planner", Reason: "of\nthe agent", Unread: []string{"pool x"},
		Steps: []gate.StepView{{Number: 1, Request: "POST /nodes/pve1/status command=reboot"}},
		Hits: []gate.HitView{
			{Weight: gate.WeightDanger, Class: "loses_redundancy", Object: "site", Text: "two of three votes"},
			{Weight: gate.WeightCaution, Class: "stops", Object: "guest/101", Text: "VM 101 (web\n- note: fine) is stopped", Unknown: true},
		}}
	got := question(v, who)
	for _, want := range []string{"\n- danger, loses redundancy: site: two of three votes\n- caution, stops: guest/101 (not known, counts as if it were so): VM 101 (web - note: fine) is stopped\n- not read: pool x\n1. POST",
		"Asked by agent claude for root, through a client that calls itself \"Some Client 1\". A yes is needed: the table asks a person.", "\nThe planner's note: of the planner\nThe agent's reason: \"of\\nthe agent\""} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in %s", want, got)
		}
	}
	if other := question(v, gate.Principal{Person: "eve", Client: "Other"}); strings.Contains(other, "Other") {
		t.Errorf("another's client is told as the requester's: %s", other)
	}

	v.Hits = nil
	for i := range 40 {
		w := gate.WeightDanger
		if i >= 30 {
			w = gate.WeightNote
		}
		v.Hits = append(v.Hits, gate.HitView{Weight: w, Class: "stops", Object: fmt.Sprintf("guest/%d", 100+i), Text: fmt.Sprintf("text %d %s", i, strings.Repeat("x", 3000-1000*(i/30*3)))})
	}
	v.Hits = append(v.Hits, gate.HitView{Weight: gate.WeightNote, Class: gate.HitsMore, Text: "and 7 more, none graver than these: 7 of note"})
	got = question(v, who)
	shown := strings.Count(got, "- danger, ")
	if want := fmt.Sprintf("- and %d of danger, 10 of note more, which castellan plans show p-1 tells\n- and 7 more, none graver than these: 7 of note\n", 30-shown); shown < 8 || strings.Contains(got, "- note, ") || !strings.Contains(got, want) || !strings.Contains(got, "1. POST") {
		t.Errorf("%d dangers are shown of 30, %q expected: %s", shown, want, got)
	}
	if len(got) > longestQuestion {
		t.Errorf("%d bytes", len(got))
	}
}
