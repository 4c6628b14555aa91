package pve

import (
	"slices"
	"testing"
)

// A node has one switch for its firewall: of one guest alone only where nothing else of it is changed.
func TestGuardsOfOneGuest(t *testing.T) {
	for _, tt := range []struct{ add, want []guard }{
		{[]guard{{"a", "firewall", "101"}, {"a", "firewall", "101"}}, []guard{{"a", "firewall", "101"}}},
		{[]guard{{"a", "firewall", "101"}, {"a", "firewall", "102"}, {"a", "firewall", "101"}}, []guard{{"a", "firewall", ""}}},
		{[]guard{{"a", "firewall", ""}, {"a", "firewall", "101"}}, []guard{{"a", "firewall", ""}}},
		{[]guard{{"a", "firewall", "101"}, {"b", "firewall", "102"}, {"a", "network", ""}}, []guard{{"a", "firewall", "101"}, {"b", "firewall", "102"}, {"a", "network", ""}}},
	} {
		var got []guard
		for _, g := range tt.add {
			got = joined(got, g)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%v: %v, want %v", tt.add, got, tt.want)
		}
	}
}
