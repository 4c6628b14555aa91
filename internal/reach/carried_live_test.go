package reach_test

import (
	"net/url"
	"strings"
	"testing"

	"castellan/internal/gate"
)

// behind writes past castellan, as somebody else does.
func (h *house) behind(method, path string, form map[string]string) {
	h.t.Helper()
	v := url.Values{}
	for k, x := range form {
		v.Set(k, x)
	}
	if _, err := h.Behind(h.t.Context(), method, path, v); err != nil {
		h.t.Fatal(err)
	}
}

func (h *house) try(op string, params map[string]any) {
	h.t.Helper()
	out, err := h.do("call_operation", map[string]any{"operation": op, "params": params})
	if err != nil {
		h.t.Logf("%s %v: %v", op, params, err)
		return
	}
	h.told(op, out)
}

func (h *house) told(what string, out *gate.Outcome) {
	h.t.Helper()
	if out.Plan == nil {
		h.t.Logf("== %s: %s", what, out.Status)
		return
	}
	h.t.Logf("== %s: %s kinds=%v\n%s\n%s", what, out.Plan.Rung, out.Plan.Why, out.Plan.Sentence, shown(out.Plan))
}

type m = map[string]any

// TestCarriedAlong: what others left waiting is judged with whatever takes it along, and nothing else is.
func TestCarriedAlong(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole castellan before a simulated site")
	}
	h := open(t)
	h.behind("PUT", "/nodes/pve1/qemu/101/config", map[string]string{"ciuser": "somebody", "cores": "3"})
	backup := m{"node": "pve1", "vmid": "101", "storage": "pbs1", "remove": false, "mode": "snapshot"}
	if out, err := h.do("call_operation", m{"operation": "POST /nodes/{node}/vzdump", "params": backup}); err != nil || out.Plan != nil && out.Plan.Rung > gate.RungRestated {
		t.Errorf("a backup that stops nobody takes more: %v %+v", err, out)
	}
	if p := h.plan("PUT /nodes/{node}/qemu/{vmid}/config", m{"node": "pve1", "vmid": 101, "description": "x"}); p.Rung != gate.RungRestated {
		t.Errorf("what goes on waiting takes %s: %s", p.Rung, shown(p))
	}
	backup["mode"] = "stop"
	for _, p := range []*gate.PlanView{
		h.plan("POST /nodes/{node}/vzdump", backup),
		h.plan("PUT /cluster/ha/resources/{sid}", m{"sid": "vm:101", "state": "stopped"}),
		h.plan("POST /nodes/{node}/qemu/{vmid}/status/reboot", m{"node": "pve1", "vmid": 101}),
	} {
		if !strings.Contains(shown(p), "danger setting guest/101: ciuser") || !strings.Contains(p.Why, "table.exec") {
			t.Errorf("%s: %s\n%s", p.Sentence, p.Why, shown(p))
		}
	}
}

// TestOthersDisk: a disk of another guest is a hit of that guest, in whatever drive it is put.
func TestOthersDisk(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole castellan before a simulated site")
	}
	h := open(t)
	for _, v := range []m{{"scsi5": "nas:106/vm-106-disk-0.qcow2"}, {"ide3": "nas:106/vm-106-disk-0.qcow2,media=cdrom"}, {"ide3": "media=cdrom,file=nas:106/vm-106-disk-0.qcow2"}, {"ide3": "nas:106/vm-106-cloudinit.qcow2,media=cdrom"}} {
		v["node"], v["vmid"] = "pve1", 103
		if p := h.plan("PUT /nodes/{node}/qemu/{vmid}/config", v); !strings.Contains(shown(p), "danger loses_data guest/106") {
			t.Errorf("%v: %s", v, shown(p))
		}
	}
}

// TestSnapshotOfThatName: another snapshot of the same name is another one, a moment later too.
func TestSnapshotOfThatName(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole castellan before a simulated site")
	}
	h := open(t)
	keep := func(key, value string) {
		h.behind("PUT", "/nodes/pve1/qemu/103/config", map[string]string{key: value})
		h.behind("POST", "/nodes/pve1/qemu/103/snapshot", map[string]string{"snapname": "aa"})
		h.behind("PUT", "/nodes/pve1/qemu/103/config", map[string]string{"delete": key})
	}
	back := m{"node": "pve1", "vmid": 103, "snapname": "aa"}
	const rollback = "POST /nodes/{node}/qemu/{vmid}/snapshot/{snapname}/rollback"
	keep("ciuser", "joe")
	p := h.plan(rollback, back)
	if !strings.Contains(shown(p), "danger setting guest/103: ciuser") {
		t.Fatalf("what the snapshot brings: %s", shown(p))
	}
	h.behind("DELETE", "/nodes/pve1/qemu/103/snapshot/aa", nil)
	keep("cicustom", "user=local:snippets/any.yaml")
	out, err := h.do("apply_plan", m{"plan": p.ID, "sentence": p.Sentence, "token": p.Token, "phrase": p.Phrase})
	if err == nil && !strings.Contains(out.Next, "stale: it would now hit more than was approved") {
		t.Errorf("a snapshot with other settings was rolled back to: %+v", out)
	}
	if p := h.plan(rollback, back); !strings.Contains(shown(p), "danger setting guest/103: cicustom") {
		t.Errorf("the settings of the old snapshot are shown: %s", shown(p))
	}
}

// TestSnapshotOfThisPlan: what goes back to a snapshot that the same plan takes says beforehand what is lost.
func TestSnapshotOfThisPlan(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole castellan before a simulated site")
	}
	h := open(t)
	out, err := h.do("plan_many", m{"calls": []m{{"operation": "snapshot_guest", "args": m{"guest": "103", "name": "before"}},
		{"operation": "call_operation", "args": m{"operation": "POST /nodes/{node}/qemu/{vmid}/snapshot/{snapname}/rollback", "params": m{"node": "pve1", "vmid": 103, "snapname": "before"}}}}})
	if err != nil || out.Plan == nil {
		t.Fatalf("%v %+v", err, out)
	}
	p := out.Plan
	if !strings.Contains(shown(p), "danger time guest/103") || strings.Contains(shown(p), "has no snapshot") {
		t.Fatalf("%s", shown(p))
	}
}
