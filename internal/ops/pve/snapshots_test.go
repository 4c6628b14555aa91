package pve

import "testing"

// TestOwnSnapshots: only names that castellan makes up are its own, so that pruning leaves what people called alike.
func TestOwnSnapshots(t *testing.T) {
	list := []snapshot{{Name: "castellan_20260101_000000", Time: 1}, {Name: "castellan_before_upgrade", Time: 2}, {Name: "castellan_undo_20260102_000000", Time: 3},
		{Name: "castellan_undo_keep", Time: 4}, {Name: "castellan_20260103_0000001", Time: 5}, {Name: "castellan_undo_20260104_000000", Time: 6, State: "prepare"}}
	var got []string
	for _, s := range prunable(list, 0, false) {
		got = append(got, string(s.Name))
	}
	if len(got) != 2 || got[0] != "castellan_20260101_000000" || got[1] != "castellan_undo_20260102_000000" {
		t.Errorf("to be pruned: %v", got)
	}
}
