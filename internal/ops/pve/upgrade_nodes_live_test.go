package pve_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"castellan/internal/gate"
	"castellan/internal/ops/housetest"
	"castellan/internal/ops/pve"
	"castellan/internal/ops/self"
	"castellan/internal/patch"
	"castellan/internal/reach"
)

// bridges are those of a cluster's nodes.
type bridges map[string]*bridge

func (b bridges) Run(_ context.Context, p *gate.Permit, id string, _ gate.RunHooks) (gate.RunResult, error) {
	w, err := p.Take()
	if err != nil {
		return gate.RunResult{}, err
	}
	one := b[w.Request.Text("node")]
	if one != nil && one.keep != nil && strings.HasSuffix(w.Request.Operation, "/maintenance") {
		return gate.RunResult{OK: true, Gone: true, Way: "bridge"}, one.keep(w.Request.Text("mode") == "enable")
	}
	if one == nil {
		return gate.RunResult{}, errors.New("no bridge")
	}
	return one.run(w, id)
}

func (b bridges) Look(context.Context, string, gate.Request, string, string) (gate.RunResult, bool, error) {
	return gate.RunResult{}, false, errors.New("no such run")
}

func (b bridges) Judge(context.Context, gate.View, string, gate.Request, []gate.ObjectFacts) gate.LaneVerdict {
	return gate.LaneVerdict{}
}

// inMaintenance is a site whose HA manager has nodes in maintenance, which the simulated one does not know.
type inMaintenance struct {
	gate.Driver
	mu    sync.Mutex
	nodes map[string]bool
}

func (d *inMaintenance) Read(ctx context.Context, target string, r gate.Request) (gate.Answer, error) {
	a, err := d.Driver.Read(ctx, target, r)
	d.mu.Lock()
	defer d.mu.Unlock()
	for node, on := range d.nodes {
		if on && r.Operation == "GET /cluster/ha/status/manager_status" {
			a.Data = json.RawMessage(strings.ReplaceAll(string(a.Data), `"`+node+`":"online"`, `"`+node+`":"maintenance"`))
		}
	}
	return a, err
}

func clusterToUpgrade(t *testing.T) (*housetest.House, bridges, *inMaintenance) {
	t.Helper()
	all, ha := bridges{}, &inMaintenance{nodes: map[string]bool{}}
	h := housetest.Open(t, housetest.Config{Through: func(d gate.Driver) gate.Driver { ha.Driver = d; return ha }, Gate: func(h *housetest.House, c *gate.Config) error {
		walker, err := reach.New(reach.Config{Estate: h.Estate, Catalog: h.Catalog})
		c.Operations = slices.Concat(pve.Operations(), self.Operations(self.Config{Catalog: h.Catalog, Estate: h.Estate}))
		c.Walker, c.Runner, c.Lanes, c.Soak = walker, all, all, 50*time.Millisecond
		return err
	}})
	for i, node := range []string{"pve1", "pve2", "pve3"} {
		waiting, err := patch.ParseTransaction([]string{"upgrade openssl:amd64 3.5.1-1 3.5.1-2 Debian-Security:trixie-security", "upgrade pve-manager:all 9.1.1 9.1.4 Proxmox:trixie/pve-enterprise"})
		if err != nil {
			t.Fatal(err)
		}
		all[node] = &bridge{now: waiting, boot: fmt.Sprintf("0000000%d-2222-4333-8444-555555555555", i)}
		all[node].reboots = func() bool { return slices.Contains(h.Sent(), "POST /nodes/"+node+"/status") }
	}
	return h, all, ha
}

// places are where the guests of a site are.
func places(t *testing.T, h *housetest.House) map[string]string {
	t.Helper()
	data, err := h.Behind(t.Context(), "GET", "/cluster/resources", nil)
	var list struct {
		Data []struct {
			VMID int    `json:"vmid"`
			Node string `json:"node"`
		} `json:"data"`
	}
	if err == nil {
		err = json.Unmarshal(data, &list)
	}
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, g := range list.Data {
		if g.VMID > 0 {
			out[fmt.Sprint(g.VMID)] = g.Node
		}
	}
	return out
}

// stuck reads from a refusal which guests cannot be moved.
func stuck(err error) (ids []string) {
	for _, m := range regexp.MustCompile(`(?:VM|CT) (\d+) \([^)]*\): `).FindAllStringSubmatch(err.Error(), -1) {
		ids = append(ids, m[1])
	}
	return ids
}

// A cluster's nodes are done one after the other, by one plan: guests are back before the next node is begun.
func TestRollingUpgrade(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole castellan before a simulated site")
	}
	h, all, _ := clusterToUpgrade(t)
	was := places(t, h)
	args := map[string]any{"nodes": []string{"pve3", "pve1"}, "reboot": true}
	_, err := h.Do(t.Context(), "upgrade_nodes", args)
	if err == nil || !strings.Contains(err.Error(), "nothing was changed") || !strings.Contains(err.Error(), "cannot be moved away") {
		t.Fatalf("guests that cannot be moved are named before the first node: %v", err)
	}
	args["stop"] = stuck(err)
	out, err := h.Do(t.Context(), "upgrade_nodes", args)
	if err != nil || out.Plan == nil {
		t.Fatalf("%v: %s %v", args["stop"], housetest.Text(out), err)
	}
	text := housetest.Text(out.Plan)
	if out.Plan.Asked != gate.RungPerson || !strings.Contains(text, "node pve3") || !strings.Contains(text, "nodes pve3, pve1") || !strings.Contains(text, "then to pve3 again") || !strings.Contains(text, "STOPS with the reboot of pve1") {
		t.Errorf("%s %s", out.Plan.Asked, text)
	}
	if !strings.Contains(text, "Full upgrade of node pve1: 2 packages") || !strings.Contains(text, "Full upgrade of node pve3: 2 packages") {
		t.Errorf("what each part says is not shown: %s", text)
	}
	done, err := h.Apply(t.Context(), out.Plan)
	if err != nil || done.Status != gate.StatusDone {
		t.Fatalf("%s %v", housetest.Text(done), err)
	}
	var reboots []string
	moves := 0
	for _, s := range h.Sent() {
		if strings.HasSuffix(s, "/status") && strings.HasPrefix(s, "POST /nodes/pve") {
			reboots = append(reboots, s)
		}
		if strings.HasSuffix(s, "/migrate") {
			moves++
		}
	}
	if !slices.Equal(reboots, []string{"POST /nodes/pve3/status", "POST /nodes/pve1/status"}) || moves == 0 || moves%2 != 0 {
		t.Errorf("%d moves, reboots %v", moves, reboots)
	}
	if now := places(t, h); fmt.Sprint(now) != fmt.Sprint(was) {
		t.Errorf("guests are not where they were: %v, before %v", now, was)
	}
	rows, err := h.Do(t.Context(), "wave_result", map[string]any{"plan": out.Plan.ID})
	if text := housetest.Text(rows); err != nil || !strings.Contains(text, `node pve3`) || !strings.Contains(text, `node pve1`) || !strings.Contains(text, `"done":2`) || !strings.Contains(text, `"packages":2`) {
		t.Errorf("a row for each node: %s %v", text, err)
	}
	for node, b := range all {
		if (len(b.now) > 0) != (node == "pve2") {
			t.Errorf("%s: %v waits", node, b.now)
		}
	}
}

// At the first failure nothing else begins, and what was not shown is not installed.
func TestRollingUpgradeStops(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole castellan before a simulated site")
	}
	for _, k := range []struct {
		name string
		do   func(h *housetest.House, all bridges)
		says string
	}{
		{"a node that is not well afterwards", func(_ *housetest.House, all bridges) { all["pve2"].sick = true }, "pve2"},
		{"something else would be installed", func(_ *housetest.House, all bridges) {
			all["pve2"].now = append(slices.Clone(all["pve2"].now), patch.Change{Action: patch.Upgrade, Name: "zlib1g", Arch: "amd64", Old: "1", New: "2", Archive: "Debian:trixie"})
		}, "has changed"},
		{"no majority any more", func(h *housetest.House, _ bridges) { h.Lab.SetQuorum(false) }, "majority"},
	} {
		h, all, _ := clusterToUpgrade(t)
		out, err := h.Do(t.Context(), "upgrade_nodes", map[string]any{"guests": "stay"})
		if err != nil || out.Plan == nil {
			t.Fatalf("%s: %s %v", k.name, housetest.Text(out), err)
		}
		k.do(h, all)
		done, err := h.Apply(t.Context(), out.Plan)
		text := housetest.Text(done) + fmt.Sprint(err)
		if err == nil && done.Status == gate.StatusDone || !strings.Contains(text, k.says) {
			t.Errorf("%s: %s", k.name, text)
		}
		if len(all["pve3"].now) == 0 || slices.Contains(all["pve3"].asked, "upgrade") {
			t.Errorf("%s: pve3 was begun all the same: %v", k.name, all["pve3"].asked)
		}
		if k.name == "a node that is not well afterwards" && !strings.Contains(text, "node pve3") {
			t.Errorf("%s: what was not begun is not named: %s", k.name, text)
		}
	}
	h, all, _ := clusterToUpgrade(t)
	all["pve3"].now[1].New = "9.1.5"
	if _, err := h.Do(t.Context(), "upgrade_nodes", `{"guests":"stay"}`); err == nil || !strings.Contains(err.Error(), "pve-manager (9.1.4 on pve1, pve2; 9.1.5 on pve3)") {
		t.Errorf("nodes that would differ: %v", err)
	}
	all["pve3"].now, all["pve1"].now = nil, nil
	if out, err := h.Do(t.Context(), "upgrade_nodes", `{"guests":"stay"}`); err != nil || out.Plan == nil || !strings.Contains(housetest.Text(out.Plan.Skip), "node pve3: nothing to upgrade") || strings.Contains(housetest.Text(out.Plan.Steps), `pve3/upgrade`) {
		t.Errorf("nodes with nothing to do: %s %v", housetest.Text(out), err)
	}
	for args, says := range map[string]string{`{"nodes":["pve1","pve1"]}`: "named twice", `{"nodes":["pve9"]}`: "no node", `{"stop":["101"]}`: "without a reboot", `{"nodes":["pve3"],"reboot":true,"stop":["999"]}`: "on none of them"} {
		if _, err := h.Do(t.Context(), "upgrade_nodes", args); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", args, err)
		}
	}
}

// What HA manages it moves itself, and is waited for: nothing else is begun before its guests are back.
func TestRollingUpgradeWithHA(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole castellan before a simulated site")
	}
	for _, comesBack := range []bool{true, false} {
		h, all, ha := clusterToUpgrade(t)
		args := map[string]any{"nodes": []string{"pve2", "pve3"}, "reboot": true}
		_, err := h.Do(t.Context(), "upgrade_nodes", args)
		if err == nil {
			t.Fatal("all guests can be moved")
		}
		args["stop"] = stuck(err)
		out, err := h.Do(t.Context(), "upgrade_nodes", args)
		if err != nil || out.Plan == nil {
			t.Fatalf("%s %v", housetest.Text(out), err)
		}
		was := places(t, h)
		var managed []string
		for _, d := range out.Plan.Diff {
			if strings.Contains(d.Note, "by HA") {
				managed = append(managed, strings.TrimPrefix(d.Object, "guest/"))
			}
		}
		if len(managed) == 0 {
			t.Fatalf("no guest under HA is named: %+v", out.Plan.Diff)
		}
		all["pve2"].keep = func(on bool) error {
			ha.mu.Lock()
			ha.nodes["pve2"] = on
			ha.mu.Unlock()
			from, to := "pve2", "pve1"
			if !on {
				from, to = to, from
			}
			for _, id := range managed {
				if !on && !comesBack {
					return nil
				}
				if _, err := h.Behind(t.Context(), "POST", "/nodes/"+from+"/qemu/"+id+"/migrate", url.Values{"target": {to}, "online": {"1"}, "with-local-disks": {"1"}}); err != nil {
					return err
				}
			}
			return nil
		}
		ctx := t.Context()
		if !comesBack {
			short, stop := context.WithTimeout(ctx, 3*time.Second)
			defer stop()
			ctx = short
		}
		done, err := h.Apply(ctx, out.Plan)
		if comesBack {
			if err != nil || done.Status != gate.StatusDone || fmt.Sprint(places(t, h)) != fmt.Sprint(was) {
				t.Errorf("%s %v %v", housetest.Text(done), err, places(t, h))
			}
			continue
		}
		if err == nil && done.Status == gate.StatusDone || slices.Contains(all["pve3"].asked, "upgrade") {
			t.Errorf("the next node was begun though guests are not back: %s %v", housetest.Text(done), err)
		}
	}
}
