package reach_test

import (
	"strings"
	"testing"

	"castellan/internal/gate"
)

// TestTakenAwayWaits: a disk of which a deletion by force waits goes with the stop of its guest, and that is told before.
func TestTakenAwayWaits(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole castellan before a simulated site")
	}
	h := open(t)
	disks := func() string {
		t.Helper()
		out, err := h.Behind(t.Context(), "GET", "/nodes/pve1/qemu/103/pending", nil)
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	stop := m{"node": "pve1", "vmid": "103"}
	const op = "POST /nodes/{node}/qemu/{vmid}/status/stop"
	h.behind("PUT", "/nodes/pve1/qemu/103/config", map[string]string{"sata5": "nas:1"})
	if out, err := h.do("call_operation", m{"operation": "POST /nodes/{node}/qemu/{vmid}/status/start", "params": stop}); err != nil || out.Status != gate.StatusDone {
		t.Fatal(err, out)
	}
	h.behind("PUT", "/nodes/pve1/qemu/103/config", map[string]string{"delete": "sata5", "force": "1"})
	if got := disks(); !strings.Contains(got, "sata5") {
		t.Fatalf("it does not wait: %s", got)
	}
	p := h.plan(op, stop)
	if got := shown(p); !strings.Contains(got, "danger loses_data volume/nas:103/") {
		t.Errorf("the stop lacks it:\n%s", got)
	}
	if _, err := h.Apply(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if got := disks(); strings.Contains(got, "sata5") || strings.Contains(got, "unused") {
		t.Errorf("it is still there: %s", got)
	}
}

// TestForeseen: what a later step of a plan takes away that an earlier one has brought there is in the plan, which is carried out to its end.
func TestForeseen(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole castellan before a simulated site")
	}
	h := open(t)
	h.behind("PUT", "/nodes/pve1/qemu/103/config", map[string]string{"scsi5": "nas:1"})
	h.behind("POST", "/storage", map[string]string{"storage": "made", "type": "dir", "path": "/mnt/made", "content": "images"})
	call := func(op string, params m) m {
		return m{"operation": "call_operation", "args": m{"operation": op, "params": params}}
	}
	out, err := h.Plan(t.Context(), "plan_many", m{"calls": []m{call("POST /nodes/{node}/qemu/{vmid}/move_disk", m{"node": "pve1", "vmid": 103, "disk": "scsi5", "storage": "made", "delete": 1}), call("DELETE /storage/{storage}", m{"storage": "made"})}})
	if err != nil {
		t.Fatal(err)
	}
	if got := shown(out.Plan); !strings.Contains(got, "danger loses_disk guest/103") {
		t.Errorf("the plan lacks it:\n%s", got)
	}
	if out, err = h.Apply(t.Context(), out.Plan); err != nil || out.Status != gate.StatusDone {
		t.Errorf("%v %s", err, out.Status)
	}
}
