package reach

import (
	"fmt"
	"strings"
	"testing"

	"castellan/internal/gate"
)

// TestHitsKeepWhatTheySay: whatever comes together under one class and object, no text is lost, none is cut by the gate, and
// the weights and kinds stay.
func TestHitsKeepWhatTheySay(t *testing.T) {
	o := object(gate.ObjectGuest, "101")
	said := func(out gate.Reach, text string) gate.Weight {
		for _, h := range out.Hits {
			if len(h.Text) > mostText {
				t.Errorf("%d bytes are more than is shown", len(h.Text))
			}
			if strings.Contains(h.Text, text) {
				return h.Weight
			}
		}
		return ""
	}
	long := strings.Repeat("x", 300)
	for _, order := range [][]gate.Weight{{gate.WeightDanger, gate.WeightNote, gate.WeightCaution}, {gate.WeightNote, gate.WeightDanger, gate.WeightDanger}, {gate.WeightNote, gate.WeightCaution, gate.WeightDanger}} {
		for _, unknown := range []bool{false, true} {
			var out gate.Reach
			w := &walk{out: &out, had: map[hitKey][]int{}}
			for i, weight := range order {
				w.hit(gate.Hit{Class: ClassSetting, Object: o, Weight: weight, Unknown: unknown, Text: fmt.Sprint(i, long), Kinds: []gate.Kind{gate.KindExec}, Matter: fmt.Sprint(i)})
			}
			for i, weight := range order {
				if has := said(out, fmt.Sprint(i, long)); has == "" || weight.Heavier(has) || !unknown && has != weight {
					t.Errorf("%v, unknown %v: text %d weighs %q in\n%s", order, unknown, i, has, showReach(out))
				}
			}
		}
	}
	var out gate.Reach
	w := &walk{out: &out, had: map[hitKey][]int{}}
	for i := range 100 {
		w.hit(gate.Hit{Class: ClassSetting, Object: o, Weight: gate.WeightNote, Text: fmt.Sprint(i, long)})
	}
	if len(out.Hits) != mostAlike+1 || said(out, "there is more") == "" {
		t.Errorf("%d hits of one sort, and whether there is more is not said", len(out.Hits))
	}
}
