package pve

import (
	"context"
	"encoding/json"
	"time"

	"castellan/internal/catalog"
	"castellan/internal/gate"
)

type nodeMaintenanceIn struct {
	Node   string `json:"node"`
	Mode   string `json:"mode" enum:"enable,disable"`
	Target string `json:"target,omitempty"`
}

func nodeMaintenance() *gate.Operation {
	return gate.Change(gate.Declaration{
		Name: "node_maintenance", Summary: "Put a node into HA maintenance or take it out: HA moves its guests away. Write; undo: the other mode", Product: "pve", Effect: gate.EffectChange,
		Kinds: []gate.Kind{gate.KindPower}, Undo: "node_maintenance with the other mode", Keywords: "ha-manager crm-command node-maintenance drain evacuate empty host", Toolset: "full", Bounded: true,
	}, planNodeMaintenance)
}

// haPath is where the HA manager tells the state of each node.
const haPath = "/manager_status/node_status/"

func planNodeMaintenance(ctx context.Context, v gate.View, in nodeMaintenanceIn) (*gate.Draft, error) {
	s, err := open(ctx, v, in.Target)
	if err != nil {
		return nil, err
	}
	node, err := s.pickNode(in.Node)
	if err != nil {
		return nil, err
	}
	var status struct {
		Manager struct {
			Nodes map[string]string `json:"node_status"`
		} `json:"manager_status"`
	}
	read := gate.Read{Operation: "GET /cluster/ha/status/manager_status"}
	a, err := s.read(ctx, nil, read.Operation, nil)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(a.Data, &status); err != nil || status.Manager.Nodes[node] == "" {
		return nil, gate.Fail(gate.ErrUnavailable, "HA has to manage something before a node can be in maintenance; migrate_guest moves guests by itself.",
			"the HA manager says nothing of node %s: it could not be seen whether it enters maintenance", node)
	}
	now, enable := status.Manager.Nodes[node], in.Mode == "enable"
	if enable == (now == "maintenance") {
		return nothing("Node " + node + " is " + clip(now, 20) + " already, as the HA manager says."), nil
	}
	params := map[string]any{"node": node, "mode": in.Mode}
	r, err := gate.NewRequest("pve", catalog.MethodRun+" /nodes/{node}/maintenance", params)
	if err != nil {
		return nil, err
	}
	other := map[bool]string{true: "disable", false: "enable"}[enable]
	back, err := gate.NewRequest("pve", catalog.MethodRun+" /nodes/{node}/maintenance", map[string]any{"node": node, "mode": other})
	if err != nil {
		return nil, err
	}
	was := gate.Condition{Name: "the HA manager says " + clip(now, 20) + " of node " + node, Read: read, Pointer: haPath + node, Rule: gate.RuleEquals, Value: text(now)}
	seen := gate.Condition{Name: "the HA manager has node " + node + " in maintenance", Read: read, Pointer: haPath + node, Rule: gate.RuleEquals, Value: text("maintenance")}
	note := "HA moves the guests that it manages off the node; all others stay where they are and keep running."
	if !enable {
		seen.Name, seen.Value = "the HA manager has node "+node+" online", text("online")
		note = "HA moves guests back that it had moved away, where its rules say so."
	}
	step := gate.Step{API: &r, Require: []gate.Condition{online(node), was}, Verify: []gate.Condition{seen}, Wait: gate.Wait{Kind: gate.WaitVerify, Limit: 2 * time.Minute},
		Undo: gate.Undo{How: other + " maintenance again", Call: &back}}
	return &gate.Draft{Target: s.target(), Phrase: node, Note: note, Steps: []gate.Step{step}}, nil
}
