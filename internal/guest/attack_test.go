package guest

import (
	"context"
	"slices"
	"strings"
	"testing"

	"castellan/internal/gate"
	"castellan/internal/lane"
)

// siteView reads what the site has, as the gate's own look does.
type siteView struct {
	gate.View
	s *site
}

func (v siteView) Read(ctx context.Context, target string, r gate.Read) (gate.Answer, error) {
	req := gate.Request{Product: "pve", Operation: r.Operation}
	for name, text := range r.Params {
		req.Params = append(req.Params, gate.Param{Name: name, Values: []gate.Value{{Text: text}}})
	}
	return v.s.Read(ctx, target, req)
}

func lanesOf(t *testing.T, set LaneSettings) *Lanes {
	t.Helper()
	b, err := NewBridges(BridgesConfig{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := NewLanes(LanesConfig{Targets: []string{"lab"}, Settings: set, Bridges: b})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func api(t *testing.T, operation string, params map[string]any) gate.Request {
	t.Helper()
	r, err := gate.NewRequest("pve", operation, params)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

var guest101 = []gate.ObjectFacts{{Object: gate.Object{Kind: gate.ObjectGuest, ID: "101"}, Use: gate.UseActs, Known: true}}

// What the API itself has as ways into a guest is held to the lists that castellan's own runs are held to.
func TestNoWayRoundTheLanes(t *testing.T) {
	closed, scripts, both := lanesOf(t, LaneSettings{}), lanesOf(t, LaneSettings{Scripts: lane.Scope{Guests: []string{"101"}}}),
		lanesOf(t, LaneSettings{Scripts: lane.Scope{Guests: []string{"101"}}, Files: lane.Scope{Guests: []string{"101"}}})
	at := func(more map[string]any) map[string]any {
		p := map[string]any{"node": "pve1", "vmid": "101"}
		for k, v := range more {
			p[k] = v
		}
		return p
	}
	for _, c := range []struct {
		operation string
		params    map[string]any
		open      *Lanes // the narrowest lanes that let it pass
	}{
		{"POST /nodes/{node}/qemu/{vmid}/agent/exec", at(map[string]any{"command": []string{"uptime"}}), scripts},
		{"POST /nodes/{node}/qemu/{vmid}/monitor", at(map[string]any{"command": "info status"}), scripts},
		{"PUT /nodes/{node}/qemu/{vmid}/sendkey", at(map[string]any{"key": "a"}), scripts},
		{"POST /nodes/{node}/qemu/{vmid}/termproxy", at(nil), scripts},
		{"POST /nodes/{node}/qemu/{vmid}/vncproxy", at(nil), scripts},
		{"POST /nodes/{node}/lxc/{vmid}/termproxy", at(nil), scripts},
		{"PUT /nodes/{node}/lxc/{vmid}/config", at(map[string]any{"entrypoint": "/sbin/init"}), scripts},
		{"GET /nodes/{node}/qemu/{vmid}/agent/file-read", at(map[string]any{"file": "/etc/shadow"}), both},
		{"POST /nodes/{node}/qemu/{vmid}/agent/file-write", at(map[string]any{"file": "/etc/cron.d/x", "content": "x"}), both},
		{"POST /nodes/{node}/execute", map[string]any{"node": "pve1", "commands": `[{"method":"POST","path":"/qemu/101/agent/exec"}]`}, nil},
	} {
		for _, l := range []*Lanes{closed, scripts, both} {
			said := l.Judge(t.Context(), siteView{s: newSite()}, "lab", api(t, c.operation, c.params), guest101)
			may := c.open != nil && (l == c.open || l == both)
			if (said.Refused == "") != may {
				t.Errorf("%s: passes=%v, want %v (%+v)", c.operation, said.Refused == "", may, said)
			}
		}
	}
	other := []gate.ObjectFacts{{Object: gate.Object{Kind: gate.ObjectGuest, ID: "102"}, Use: gate.UseActs, Known: true}}
	if said := both.Judge(t.Context(), siteView{s: newSite()}, "lab", api(t, "POST /nodes/{node}/qemu/{vmid}/termproxy", map[string]any{"node": "pve1", "vmid": "102"}), other); said.Refused == "" {
		t.Error("a console of a guest that is on no list")
	}
}

// A part that is sealed is not seen by those who judge: it would run all the same.
func TestNothingSealedRuns(t *testing.T) {
	l := lanesOf(t, LaneSettings{Scripts: lane.Scope{Guests: []string{"*"}}})
	r := api(t, "POST /nodes/{node}/qemu/{vmid}/agent/exec", map[string]any{"node": "pve1", "vmid": "101", "command": []string{"sh", "-c", "PLACE"}})
	for _, hidden := range []gate.Value{{Secret: &gate.Handle{ID: "1.command.2", Before: "x://y:", After: "@z"}}, {Ref: &gate.Ref{Step: 1, Plan: "true"}}} {
		for i, p := range r.Params {
			if p.Name == "command" {
				r.Params[i].Values = append(slices.Clone(p.Values[:2]), hidden)
			}
		}
		if said := l.Judge(t.Context(), siteView{s: newSite()}, "lab", r, guest101); said.Refused == "" {
			t.Errorf("%+v passes", hidden)
		}
	}
}

// Root in a privileged container is root on the node, by whichever way one comes to be it.
func TestAPrivilegedContainerIsTheNode(t *testing.T) {
	l, s := lanesOf(t, LaneSettings{Scripts: lane.Scope{Guests: []string{"101"}}}), newSite()
	for _, r := range []gate.Request{api(t, "PUT /nodes/{node}/lxc/{vmid}/config", map[string]any{"node": "pve1", "vmid": "101", "entrypoint": "/x"}),
		api(t, "POST /nodes/{node}/lxc/{vmid}/vncproxy", map[string]any{"node": "pve1", "vmid": "101"})} {
		s.conf["unprivileged"] = "1"
		if said := l.Judge(t.Context(), siteView{s: s}, "lab", r, guest101); said.Refused != "" || len(said.Kinds) > 0 {
			t.Errorf("%s, unprivileged: %+v", r.Operation, said)
		}
		delete(s.conf, "unprivileged")
		if said := l.Judge(t.Context(), siteView{s: s}, "lab", r, guest101); !slices.Contains(said.Kinds, gate.KindHost) || !strings.Contains(said.Note, "privileged") {
			t.Errorf("%s: %+v", r.Operation, said)
		}
		s.conf["unprivileged"] = "0"
		r.Params = slices.DeleteFunc(slices.Clone(r.Params), func(p gate.Param) bool { return p.Name == "vmid" })
		gone := []gate.ObjectFacts{{Object: gate.Object{Kind: gate.ObjectGuest, ID: "777"}, Use: gate.UseActs}}
		all := lanesOf(t, LaneSettings{Scripts: lane.Scope{Guests: []string{"*"}}})
		if said := all.Judge(t.Context(), siteView{s: s}, "lab", r, gone); said.Refused == "" {
			t.Errorf("%s: a container whose configuration cannot be read passes: %+v", r.Operation, said)
		}
	}
}
