package undo

import (
	"testing"

	"castellan/internal/gate"
)

// TestWithin: a step goes with the guest that the plan made only where it acted on nothing but that: what it did to another guest
// has to be taken back, or said.
func TestWithin(t *testing.T) {
	guest := func(id string, use gate.Use) gate.Reference {
		return gate.Reference{Object: gate.Object{Kind: gate.ObjectGuest, ID: id}, Use: use}
	}
	for _, c := range []struct {
		name   string
		target string
		refs   []gate.Reference
		sheets []gate.Sheet
		want   bool
	}{
		{"the made one", "a", []gate.Reference{guest("700", gate.UseActs)}, nil, true},
		{"the made one, naming another", "a", []gate.Reference{guest("700", gate.UseActs), guest("103", gate.UseNames)}, nil, true},
		{"the made one and another", "a", []gate.Reference{guest("700", gate.UseActs), guest("103", gate.UseActs)}, nil, false},
		{"another and the made one", "a", []gate.Reference{guest("103", gate.UseActs), guest("700", gate.UseActs)}, nil, false},
		{"two made ones", "a", []gate.Reference{guest("700", gate.UseActs), guest("701", gate.UseActs)}, nil, true},
		{"that number elsewhere", "b", []gate.Reference{guest("700", gate.UseActs)}, nil, false},
		{"no guest", "a", []gate.Reference{{Object: gate.Object{Kind: gate.ObjectPool, ID: "p"}, Use: gate.UseActs}}, nil, false},
		{"its making", "a", []gate.Reference{guest("700", gate.UseActs)}, []gate.Sheet{{Form: gate.SheetObject, Read: gate.Read{Operation: "GET /cluster/resources"}, Delete: "DELETE /nodes/{node}/qemu/{vmid}", Place: map[string]string{"vmid": "700"}}}, false},
	} {
		b := &back{gone: map[string]bool{"a/guest/700": true, "a/guest/701": true}}
		b.step = gate.Step{Target: c.target, Judgement: gate.Judgement{References: c.refs}, Undo: gate.Undo{Sheets: c.sheets}}
		if got := b.within(); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
