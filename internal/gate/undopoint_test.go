package gate

import "testing"

// TestSnapshotThatIsTakenAway: a snapshot that a plan takes stands for the undo point, unless the plan deletes it again.
func TestSnapshotThatIsTakenAway(t *testing.T) {
	r := newRig(t, newMemory(), newSite())
	step := func(operation string, params map[string]any) Step {
		req, err := NewRequest("pve", operation, params)
		if err != nil {
			t.Fatal(err)
		}
		return Step{API: &req}
	}
	take := step("POST /nodes/{node}/qemu/{vmid}/snapshot", map[string]any{"node": "pve1", "vmid": "101", "snapname": "aa"})
	drop := step("DELETE /nodes/{node}/qemu/{vmid}/snapshot/{snapname}", map[string]any{"node": "pve1", "vmid": "101", "snapname": "aa"})
	other := step("DELETE /nodes/{node}/qemu/{vmid}/snapshot/{snapname}", map[string]any{"node": "pve1", "vmid": "101", "snapname": "bb"})
	set := step("PUT /nodes/{node}/qemu/{vmid}/config", map[string]any{"node": "pve1", "vmid": "101", "memory": "1024"})
	for _, c := range []struct {
		steps []Step
		has   bool
	}{{[]Step{take, set}, true}, {[]Step{take, other, set}, true}, {[]Step{take, drop, set}, false}, {[]Step{take, set, drop}, false}, {[]Step{set}, false}} {
		wanted, had := map[[2]string]string{}, map[[2]string]string{}
		r.g.pointsOf(&Draft{Target: "lab", Steps: c.steps}, "", []Kind{KindConfig}, wanted, had)
		if has := len(had) > 0; has != c.has {
			t.Errorf("%d steps: a snapshot is left %v, want %v", len(c.steps), has, c.has)
		}
	}
}
