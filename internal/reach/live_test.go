package reach_test

import (
	"context"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"castellan/internal/gate"
	"castellan/internal/ops/housetest"
	"castellan/internal/ops/pve"
	"castellan/internal/ops/self"
	"castellan/internal/reach"
)

// house is a whole castellan with its walker in front of a simulated site.
type house struct {
	*housetest.House
	t *testing.T
}

func open(t *testing.T) *house { return openSelf(t, reach.Self{}) }

// openSelf tells castellan what it depends on itself.
func openSelf(t *testing.T, me reach.Self) *house {
	t.Helper()
	return &house{t: t, House: housetest.Open(t, housetest.Config{Gate: func(h *housetest.House, c *gate.Config) error {
		me.Own = func(_ context.Context, target string) []netip.Addr { return h.Client.Own(target) }
		walker, err := reach.New(reach.Config{Estate: h.Estate, Catalog: h.Catalog, Self: me})
		c.Operations = slices.Concat(pve.Operations(), self.Operations(self.Config{Catalog: h.Catalog, Estate: h.Estate}))
		c.Walker, c.Soak = walker, 50*time.Millisecond
		return err
	}})}
}

func (h *house) do(operation string, args any) (*gate.Outcome, error) {
	h.t.Helper()
	return h.Do(h.t.Context(), operation, args)
}

// plan asks for a catalogued call and returns what waits.
func (h *house) plan(operation string, params map[string]any) *gate.PlanView {
	h.t.Helper()
	out, err := h.do("call_operation", map[string]any{"operation": operation, "params": params})
	if err != nil {
		h.t.Fatalf("%s %v: %v", operation, params, err)
	}
	if out.Plan == nil {
		h.t.Fatalf("%s %v: %s", operation, params, out.Status)
	}
	return out.Plan
}

// carryOut plans and applies.
func (h *house) carryOut(operation string, params map[string]any) *gate.Outcome {
	h.t.Helper()
	p := h.plan(operation, params)
	out, err := h.Apply(h.t.Context(), p)
	if err != nil {
		h.t.Fatalf("%s %v: %v", operation, params, err)
	}
	return out
}

func shown(p *gate.PlanView) string {
	var b strings.Builder
	for _, h := range p.Hits {
		b.WriteString(string(h.Weight) + " " + h.Class + " " + h.Object + ": " + h.Text + "\n")
	}
	return b.String() + strings.Join(p.Unread, "\n")
}

// TestLive asks for each class once on a simulated site, through the real gate.
func TestLive(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole castellan before a simulated site")
	}
	h := open(t)
	type m = map[string]any
	for _, c := range []struct {
		op     string
		params m
		want   []string
	}{
		{"DELETE /storage/{storage}", m{"storage": "nas"}, []string{"danger loses_disk guest/103", "danger loses_disk guest/106", "HA (state", "caution loses_backup job/db-hourly"}},
		{"DELETE /storage/{storage}", m{"storage": "pbs1"}, []string{"caution loses_backup job/nightly", "caution loses_backup storage/pbs1"}},
		{"PUT /storage/{storage}", m{"storage": "tank", "nodes": "pve1"}, []string{"danger loses_disk guest/203"}},
		{"PUT /storage/{storage}", m{"storage": "local-lvm", "disable": true}, []string{"danger loses_disk guest/101", "danger loses_disk guest/108"}},
		{"POST /nodes/{node}/qemu/{vmid}/move_disk", m{"node": "pve1", "vmid": 101, "disk": "scsi0", "storage": "nas"}, []string{"note space storage/nas", "note moves volume/local-lvm:vm-101-disk-0"}},
		{"PUT /nodes/{node}/qemu/{vmid}/resize", m{"node": "pve1", "vmid": 101, "disk": "scsi0", "size": "+900G"}, []string{"danger space storage/local-lvm"}},
		{"DELETE /nodes/{node}/storage/{storage}/content/{volume}", m{"node": "pve1", "storage": "nas", "volume": "nas:103/vm-103-disk-0.qcow2"}, []string{"danger loses_disk guest/103"}},
		{"POST /nodes/{node}/qemu/{vmid}/migrate", m{"node": "pve2", "vmid": 106, "target": "pve3", "online": true}, []string{"caution loses_redundancy ha_rule/gateway-nodes", "note moves guest/106"}},
		{"DELETE /nodes/{node}/qemu/{vmid}", m{"node": "pve1", "vmid": 103}, []string{"danger loses_data volume/nas:103/vm-103-disk-0.qcow2", "caution loses_backup guest/103"}},
		{"POST /nodes/{node}/qemu/{vmid}/snapshot/{snapname}/rollback", m{"node": "pve1", "vmid": 102, "snapname": "before-upgrade"}, []string{"danger time guest/102", "caution stops guest/102"}},
		{"POST /nodes/{node}/qemu/{vmid}/clone", m{"node": "pve1", "vmid": 103, "newid": 150}, []string{"note setting tag/legacy", "note space storage/nas"}},
		{"DELETE /cluster/backup/{id}", m{"id": "nightly"}, []string{"caution loses_backup guest/101", "caution loses_backup guest/206"}},
		{"POST /nodes/{node}/stopall", m{"node": "pve1"}, []string{"danger stops guest/101", "danger stops guest/201"}},
		{"POST /nodes/{node}/vzdump", m{"node": "pve1", "all": true, "storage": "pbs1", "mode": "stop"}, []string{"danger stops guest/101"}},
		{"PUT /nodes/{node}/qemu/{vmid}/config", m{"node": "pve1", "vmid": 103, "scsi1": "tank:vm-102-disk-1"}, []string{"danger loses_data guest/102"}},
		{"PUT /pools", m{"poolid": "dev", "vms": "203", "delete": true}, []string{"caution loses_access"}},
	} {
		p := h.plan(c.op, c.params)
		for _, want := range c.want {
			if got := shown(p); !strings.Contains(got, want) {
				t.Errorf("%s %v lacks %q:\n%s", c.op, c.params, want, got)
			}
		}
		if len(p.Unread) > 0 {
			t.Errorf("%s %v could not read %v", c.op, c.params, p.Unread)
		}
	}
}

// TestRoutine: what is done every day needs no more than it did where all can be read.
func TestRoutine(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole castellan before a simulated site")
	}
	h := open(t)
	for _, c := range []struct {
		op     string
		params map[string]any
		rung   gate.Rung
	}{
		{"POST /nodes/{node}/qemu/{vmid}/status/shutdown", map[string]any{"node": "pve1", "vmid": 101}, gate.RungRestated},
		{"POST /nodes/{node}/qemu/{vmid}/status/reboot", map[string]any{"node": "pve1", "vmid": 102}, gate.RungRestated},
		{"POST /nodes/{node}/qemu/{vmid}/clone", map[string]any{"node": "pve1", "vmid": 103, "newid": 150}, gate.RungRestated},
		{"POST /nodes/{node}/qemu/{vmid}/migrate", map[string]any{"node": "pve2", "vmid": 106, "target": "pve1", "online": true}, gate.RungRestated},
		{"PUT /nodes/{node}/qemu/{vmid}/config", map[string]any{"node": "pve1", "vmid": 103, "memory": "4096"}, gate.RungRestated},
		{"PUT /nodes/{node}/qemu/{vmid}/resize", map[string]any{"node": "pve1", "vmid": 103, "disk": "scsi0", "size": "+1G"}, gate.RungRestated},
	} {
		if p := h.plan(c.op, c.params); p.Rung != c.rung {
			t.Errorf("%s %v takes %s, not %s: %s\n%s", c.op, c.params, p.Rung, c.rung, p.Why, shown(p))
		}
	}
	for _, c := range []struct {
		op     string
		params map[string]any
	}{
		{"POST /nodes/{node}/qemu/{vmid}/snapshot", map[string]any{"node": "pve1", "vmid": 103, "snapname": "now1"}},
		{"POST /nodes/{node}/qemu/{vmid}/status/start", map[string]any{"node": "pve1", "vmid": 103}},
	} {
		out, err := h.do("call_operation", map[string]any{"operation": c.op, "params": c.params})
		if err != nil || out.Status != gate.StatusDone {
			t.Errorf("%s %v: %v %+v", c.op, c.params, err, out)
		}
	}
}

// TestCarriedIn: danger that comes with an archive is judged as if it were asked for, though its text is shown to nobody.
func TestCarriedIn(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole castellan before a simulated site")
	}
	h := open(t)
	out, err := h.do("call_operation", map[string]any{"operation": "GET /nodes/{node}/storage/{storage}/content", "params": map[string]any{"node": "pve1", "storage": "pbs1"}})
	if err != nil {
		t.Fatal(err)
	}
	var answer struct {
		Data []struct{ Volid string }
	}
	if err := json.Unmarshal(out.Answer, &answer); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(answer.Data, func(r struct{ Volid string }) bool { return strings.Contains(r.Volid, "vm/101/") })
	if i < 0 {
		t.Fatalf("no archive: %s", out.Answer)
	}
	p := h.plan("POST /nodes/{node}/qemu", map[string]any{"node": "pve1", "vmid": 160, "archive": answer.Data[i].Volid, "storage": "nas"})
	if got := shown(p); strings.Contains(got, "could not be read") || !strings.Contains(got, "loses_network guest/101") {
		t.Errorf("the archive's settings were not compared:\n%s", got)
	}
}
