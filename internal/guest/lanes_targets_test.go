package guest

import (
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"

	"castellan/internal/gate"
	"castellan/internal/lane"
)

// What the lanes let run in guest 101 of one target they do not let run in guest 101 of another.
func TestLanesOfTwoTargets(t *testing.T) {
	b, err := NewBridges(BridgesConfig{})
	if err != nil {
		t.Fatal(err)
	}
	var set struct {
		Lanes LaneSettings `toml:"lanes"`
	}
	if err := toml.Unmarshal([]byte(`
[lanes]
probes_off = ["kernel_log"]
[[lanes.target.lab.commands]]
guests = ["101"]
argv = "hostname"
[lanes.target.lab.scripts]
pools = ["web"]
[lanes.target.lab.files]
guests = ["101"]
[lanes.target.other]
probes_off = ["disk"]
[lanes.target.other.scripts]
nodes = ["pve1"]
`), &set); err != nil {
		t.Fatal(err)
	}
	l, err := NewLanes(LanesConfig{Settings: set.Lanes, Targets: []string{"lab", "other", "third"}, Bridges: b, File: "/etc/c.toml"})
	if err != nil {
		t.Fatal(err)
	}
	inPool := lane.Place{Where: lane.VM, Node: "pve1", VMID: 101, Pools: []string{"web"}}
	node := lane.Place{Where: lane.Host, Node: "pve1"}
	for target, want := range map[string]struct{ command, script, files, node, disk bool }{
		"lab": {true, true, true, false, true}, "other": {false, false, false, true, false}, "third": {disk: true}, "pdm": {disk: true}, "": {disk: true},
	} {
		a := l.of(target)
		got := []lane.Verdict{a.lock.Command(inPool, lane.Command{Argv: []string{"hostname"}}), a.lock.Script(inPool, lane.Script{Text: "true", Interpreter: "sh"}), a.file(inPool), a.lock.Script(node, lane.Script{Text: "true", Interpreter: "sh"})}
		for i, want := range []bool{want.command, want.script, want.files, want.node} {
			if got[i].Allowed != want {
				t.Errorf("%s: %d: %+v", target, i, got[i])
			}
			if where := "[lanes.target." + target + "] in /etc/c.toml"; !want && (target == "lab" || target == "third") && !strings.Contains(got[i].Hint, where) {
				t.Errorf("%s: the hint names no table: %+v", target, got[i])
			}
		}
		if _, v := a.lock.Probe(inPool, "disk", nil); v.Allowed != want.disk {
			t.Errorf("%s: %+v", target, v)
		}
		if _, v := a.lock.Probe(node, "kernel_log", nil); v.Allowed {
			t.Errorf("%s: a probe that is off everywhere: %+v", target, v)
		}
	}
	// And through the gate's question, whole.
	r, guest101 := api(t, "POST /nodes/{node}/qemu/{vmid}/agent/file-read", map[string]any{"node": "pve1", "vmid": "101", "file": "/etc/hostname"}),
		[]gate.ObjectFacts{{Object: gate.Object{Kind: gate.ObjectGuest, ID: "101"}, Use: gate.UseActs, Known: true}}
	for target, allowed := range map[string]bool{"lab": true, "other": false, "third": false, "pdm": false} {
		if said := l.Judge(t.Context(), siteView{s: newSite()}, target, r, guest101); (said.Refused == "") != allowed {
			t.Errorf("%s: %+v", target, said)
		}
	}
}

// Lists that do not say of which target they are count for the only one, and are an error where there are more.
func TestListsThatNameNoTarget(t *testing.T) {
	lists := LaneSettings{Commands: []lane.Rule{{Guests: []string{"101"}, Argv: "hostname"}}, Scripts: lane.Scope{Nodes: []string{"pve1"}}}
	own := map[string]TargetLanes{"a": {Scripts: lane.Scope{Guests: []string{"*"}}}}
	for name, c := range map[string]struct {
		set     LaneSettings
		targets []string
		want    []string // of the error; none: it is good
	}{
		"one target":             {lists, []string{"a"}, nil},
		"no target yet":          {lists, nil, nil},
		"two targets":            {lists, []string{"a", "b"}, []string{"lanes.commands, lanes.scripts", "[[lanes.target.a.commands]]", "[lanes.target.a.scripts]", "same for b"}},
		"files alone":            {LaneSettings{Files: lane.Scope{Pools: []string{"web"}}}, []string{"a", "b"}, []string{"[lanes.target.a.files]"}},
		"every guest":            {LaneSettings{Scripts: lane.Scope{Guests: []string{"*"}}}, []string{"a", "b"}, []string{"lanes.scripts"}},
		"what closes":            {LaneSettings{ProbesOff: []string{"disk"}}, []string{"a", "b"}, nil},
		"tables":                 {LaneSettings{Targets: own}, []string{"a", "b"}, nil},
		"a table for one alone":  {LaneSettings{Targets: own}, []string{"a"}, nil},
		"both for one":           {LaneSettings{Scripts: lists.Scripts, Targets: own}, []string{"a"}, []string{"stands beside", "[lanes.target.a.scripts]"}},
		"a target that is none":  {LaneSettings{Targets: own}, []string{"b", "c"}, []string{`no target "a"`, "b, c"}},
		"a bad list of a target": {LaneSettings{Targets: map[string]TargetLanes{"a": {Scripts: lane.Scope{Guests: []string{"0101"}}}}}, []string{"a"}, []string{"lanes.target.a", "0101"}},
	} {
		warnings, err := c.set.Validate(c.targets)
		if (err == nil) != (len(c.want) == 0) {
			t.Errorf("%s: %v", name, err)
		}
		for _, w := range c.want {
			if err != nil && !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %q is not in %v", name, w, err)
			}
		}
		if name == "tables" && (len(warnings) != 1 || !strings.HasPrefix(warnings[0], "lanes.target.a: scripts: ")) {
			t.Errorf("%q", warnings)
		}
	}
}
