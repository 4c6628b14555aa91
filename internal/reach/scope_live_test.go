package reach_test

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"castellan/internal/gate"
	"castellan/internal/ops/housetest"
	"castellan/internal/ops/pve"
	"castellan/internal/ops/self"
	"castellan/internal/policy"
	"castellan/internal/reach"
)

// reserved are the options of a site where nobody but its administrators can bring agent-ok onto a guest.
var reserved = url.Values{"registered-tags": {"agent-ok"}, "user-tag-access": {"user-allow=existing"}}

// openScoped is a castellan whose changes are limited to a pool and a tag.
func openScoped(t *testing.T) *house {
	t.Helper()
	return &house{t: t, House: housetest.Open(t, housetest.Config{
		Policy: &policy.Settings{Capabilities: gate.Capabilities(), StandIn: "phrase", Guests: []string{"150"}, Pools: []string{"dev"}, Tags: []string{"agent-ok"}},
		Gate: func(h *housetest.House, c *gate.Config) error {
			walker, err := reach.New(reach.Config{Estate: h.Estate, Catalog: h.Catalog})
			c.Operations = slices.Concat(pve.Operations(), self.Operations(self.Config{Catalog: h.Catalog, Estate: h.Estate}))
			c.Walker = walker
			return err
		}})}
}

// said is an outcome or an error, in words.
func said(out *gate.Outcome, err error) string {
	if err != nil {
		return housetest.Text(gate.AsError(err))
	}
	return housetest.Text(out)
}

// others writes past castellan.
func (h *house) others(method, path string, form url.Values) {
	h.t.Helper()
	if _, err := h.Behind(h.t.Context(), method, path, form); err != nil {
		h.t.Fatal(err)
	}
}

// TestTagsGrantWhereReserved: a tag that anybody may set grants nothing, and the refusal says so; reserved by Proxmox it
// grants; what carries such a tag to a guest, or takes it away, governs.
func TestTagsGrantWhereReserved(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole castellan before a simulated site")
	}
	h := openScoped(t)
	const start = `{"guest":"103","action":"start"}`
	config := func(vmid, tags string) {
		h.others("PUT", "/nodes/pve1/qemu/"+vmid+"/config", url.Values{"tags": {tags}})
	}
	if out, err := h.do("guest_power", map[string]string{"guest": "103", "action": "start"}); err == nil {
		t.Fatalf("a guest outside the scope was started: %s", said(out, err))
	}
	config("103", "legacy;agent-ok")
	out, err := h.Do(t.Context(), "guest_power", start)
	if text := said(out, err); err == nil || !strings.Contains(text, "agent-ok") || !strings.Contains(text, "registered-tags") {
		t.Errorf("a tag that anybody may set: %s", text)
	}
	h.others("PUT", "/cluster/options", url.Values{"registered-tags": {"agent-ok"}})
	out, err = h.Do(t.Context(), "guest_power", start)
	if text := said(out, err); err == nil || !strings.Contains(text, "other letters") || !strings.Contains(text, "user-allow=existing") {
		t.Errorf("a registered tag that anybody may type in other letters: %s", text)
	}
	h.others("PUT", "/cluster/options", reserved)
	if out, err := h.Do(t.Context(), "guest_power", start); err != nil || out.Status != gate.StatusDone {
		t.Fatalf("a tag that is reserved: %s", said(out, err))
	}
	h.others("POST", "/nodes/pve1/qemu/103/status/stop", nil)

	// Whoever may act on tagged guests may not make more of them, by no way.
	for _, c := range []struct {
		name, op string
		params   map[string]any
		before   func()
	}{
		{"set by hand", "PUT /nodes/{node}/qemu/{vmid}/config", m{"node": "pve2", "vmid": 107, "tags": "staging;web;agent-ok"}, nil},
		{"taken by hand", "PUT /nodes/{node}/qemu/{vmid}/config", m{"node": "pve1", "vmid": 103, "tags": "legacy"}, nil},
		{"deleted", "PUT /nodes/{node}/qemu/{vmid}/config", m{"node": "pve1", "vmid": 103, "delete": "tags"}, nil},
		{"by a clone", "POST /nodes/{node}/qemu/{vmid}/clone", m{"node": "pve1", "vmid": 103, "newid": 150}, nil},
		{"back from a snapshot", "POST /nodes/{node}/qemu/{vmid}/snapshot/{snapname}/rollback", m{"node": "pve2", "vmid": 107, "snapname": "s1"}, func() {
			h.others("PUT", "/nodes/pve2/qemu/107/config", url.Values{"tags": {"staging;agent-ok"}})
			h.others("POST", "/nodes/pve2/qemu/107/snapshot", url.Values{"snapname": {"s1"}})
			h.others("PUT", "/nodes/pve2/qemu/107/config", url.Values{"tags": {"staging"}})
		}},
		{"away by a snapshot", "POST /nodes/{node}/qemu/{vmid}/snapshot/{snapname}/rollback", m{"node": "pve1", "vmid": 103, "snapname": "s2"}, func() {
			config("103", "legacy")
			h.others("POST", "/nodes/pve1/qemu/103/snapshot", url.Values{"snapname": {"s2"}})
			config("103", "legacy;agent-ok")
		}},
		{"the rules for tags", "PUT /cluster/options", m{"delete": "registered-tags"}, nil},
	} {
		if c.before != nil {
			c.before()
		}
		h.Lab.ResetRequests()
		out, err := h.Run(t.Context(), "call_operation", m{"operation": c.op, "params": c.params})
		if text := said(out, err); err == nil || gate.AsError(err).Kind != gate.ErrDenied || len(h.Sent()) > 0 {
			t.Errorf("%s: %s", c.name, text)
		} else if !strings.Contains(text, "governs") && !strings.Contains(text, "depends on") && c.op != "PUT /cluster/options" {
			t.Errorf("%s is refused, but not as what governs: %s", c.name, text)
		}
	}
}

// TestScopeIsReadAnew: what grants scope is read anew just before a step, however fresh the estate's own readings are.
func TestScopeIsReadAnew(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole castellan before a simulated site")
	}
	h := openScoped(t)
	h.others("PUT", "/cluster/options", reserved)
	for _, c := range []struct {
		name, guest, node string
		before, between   func()
		done              bool
	}{
		{"nobody changed it", "107", "pve2", nil, func() {}, true},
		{"taken out of the pool", "107", "pve2", nil, func() { h.others("PUT", "/pools", url.Values{"poolid": {"dev"}, "vms": {"107"}, "delete": {"1"}}) }, false},
		{"the tag is gone", "103", "pve1", func() { h.others("PUT", "/nodes/pve1/qemu/103/config", url.Values{"tags": {"agent-ok"}}) },
			func() { h.others("PUT", "/nodes/pve1/qemu/103/config", url.Values{"tags": {"other"}}) }, false},
		{"the tag is not reserved any more", "103", "pve1", func() { h.others("PUT", "/nodes/pve1/qemu/103/config", url.Values{"tags": {"agent-ok"}}) },
			func() { h.others("PUT", "/cluster/options", url.Values{"delete": {"registered-tags"}}) }, false},
	} {
		if c.before != nil {
			c.before()
		}
		if _, err := h.Do(t.Context(), "estate_graph", `{"depth":"config","summary":true}`); err != nil { // whatever is kept is warm now
			if _, err := h.Do(t.Context(), "estate_graph", `{}`); err != nil {
				t.Fatal(err)
			}
		}
		out, err := h.Plan(t.Context(), "call_operation", m{"operation": "PUT /nodes/{node}/qemu/{vmid}/config", "params": m{"node": c.node, "vmid": c.guest, "description": c.name}})
		if err != nil || out.Plan == nil {
			t.Fatalf("%s: %s", c.name, said(out, err))
		}
		c.between()
		h.Lab.ResetRequests()
		done, err := h.Apply(t.Context(), out.Plan)
		text := said(done, err)
		if c.done != (err == nil && done.Status == gate.StatusDone) || !c.done && len(h.Sent()) > 0 {
			t.Errorf("%s: %d sent, %s", c.name, len(h.Sent()), text)
		}
	}
}

// TestRefusedBeforehand: a plan that Proxmox will surely refuse says so first; one whose earlier step makes way does not.
func TestRefusedBeforehand(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole castellan before a simulated site")
	}
	h := open(t)
	const first = "As things stand Proxmox will refuse this ("
	for _, c := range []struct {
		op, args string
		first    string // what the sentence says of it; "" = nothing
	}{
		{"call_operation", `{"operation":"DELETE /nodes/{node}/qemu/{vmid}","params":{"node":"pve1","vmid":101}}`, "runs"},
		{"call_operation", `{"operation":"DELETE /pools","params":{"poolid":"dev"}}`, "holds guests"},
		{"call_operation", `{"operation":"DELETE /nodes/{node}/qemu/{vmid}","params":{"node":"pve1","vmid":103}}`, ""},
		{"delete_guest", `{"guest":"101","stop":true}`, ""},
		{"plan_many", `{"calls":[{"operation":"call_operation","args":{"operation":"POST /nodes/{node}/qemu/{vmid}/status/stop","params":{"node":"pve1","vmid":101}}},{"operation":"set_guest_config","args":{"guest":"103","set":{"description":"x"}}}]}`, ""},
	} {
		out, err := h.Plan(t.Context(), c.op, c.args)
		if err != nil || out.Plan == nil {
			t.Errorf("%s: %s", c.args, said(out, err))
			continue
		}
		says := strings.HasPrefix(out.Plan.Sentence, first)
		if says != (c.first != "") || says && !strings.Contains(out.Plan.Sentence[:strings.Index(out.Plan.Sentence, "Asked for is")], c.first) {
			t.Errorf("%s: %s", c.args, out.Plan.Sentence)
		}
		if blocks := slices.ContainsFunc(out.Plan.Hits, func(x gate.HitView) bool { return x.Blocks }); says && !blocks {
			t.Errorf("%s: no hit of it says so: %+v", c.args, out.Plan.Hits)
		}
	}
	if out, err := h.Plan(t.Context(), "call_operation", `{"operation":"PUT /nodes/{node}/network","params":{"node":"pve2"}}`); err != nil || out.Status != gate.StatusNothing || !strings.Contains(out.Next, "Nothing is staged") {
		t.Errorf("applying nothing: %s", said(out, err))
	}
}

// TestABackupLeavesAPoolAsItIs: to back up what is in a pool that grants scope changes nothing of the pool; to make a guest
// in it does.
func TestABackupLeavesAPoolAsItIs(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole castellan before a simulated site")
	}
	h := openScoped(t)
	for _, c := range []struct {
		op      string
		params  m
		changes bool
	}{
		{"POST /cluster/backup", m{"pool": "dev", "storage": "local", "schedule": "01:00"}, false},
		{"POST /nodes/{node}/qemu/{vmid}/clone", m{"node": "pve2", "vmid": 107, "newid": 150, "pool": "dev"}, true},
		{"POST /nodes/{node}/qemu", m{"node": "pve2", "vmid": 150, "pool": "dev"}, true},
	} {
		out, err := h.Plan(t.Context(), "call_operation", m{"operation": c.op, "params": c.params})
		if text := said(out, err); strings.Contains(text, "on which policy or a mandate rests") != c.changes {
			t.Errorf("%s: %s", c.op, text)
		}
	}
}
