package reach

import (
	"testing"

	"castellan/internal/gate"
)

// TestEarlierStepsOfOthers: what a plan does at one target is not taken as done at another.
func TestEarlierStepsOfOthers(t *testing.T) {
	r := &gate.Request{}
	got := of("a", []gate.Step{{Target: "b", API: r}, {Target: "a"}, {Target: "a", API: r, Number: 3}})
	if len(got) != 1 || got[0].Number != 3 {
		t.Errorf("%+v", got)
	}
}
