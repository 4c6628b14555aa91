package pve

import (
	"context"
	"time"

	"castellan/internal/gate"
)

type applyNetworkIn struct {
	Node   string `json:"node"`
	Target string `json:"target,omitempty"`
}

func applyNetwork() *gate.Operation {
	return gate.Change(gate.Declaration{
		Name: "apply_network", Summary: "Bring a node's staged network changes into force, whoever staged them. Write, no undo", Product: "pve", Effect: gate.EffectChange,
		Kinds: []gate.Kind{gate.KindLock, gate.KindNet}, Undo: "none: stage the old settings and apply again, from where the node is still reached", Keywords: "interfaces bridge bond vlan reload ifreload pending",
		Toolset: "full", Bounded: true,
	}, planApplyNetwork)
}

func planApplyNetwork(ctx context.Context, v gate.View, in applyNetworkIn) (*gate.Draft, error) {
	s, err := open(ctx, v, in.Target)
	if err != nil {
		return nil, err
	}
	if in.Node, err = s.pickNode(in.Node); err != nil {
		return nil, err
	}
	a, err := s.read(ctx, nil, "GET /nodes/{node}/network", map[string]string{"node": in.Node})
	if err != nil {
		return nil, err
	}
	if text := string(a.Siblings["changes"]); text == "" || text == "null" || text == `""` {
		return &gate.Draft{Target: s.target(), Note: "Nothing is staged on " + in.Node + "."}, nil
	}
	r, err := gate.NewRequest("pve", "PUT /nodes/{node}/network", map[string]any{"node": in.Node})
	if err != nil {
		return nil, err
	}
	return &gate.Draft{Target: s.target(), Steps: []gate.Step{{API: &r, Wait: gate.Wait{Kind: gate.WaitTask, Limit: 5 * time.Minute},
		Undo:   gate.Undo{None: "the settings before it are not kept; where the node is not reached any more, a person at its console puts them back"},
		Verify: []gate.Condition{answers()}}}, Phrase: in.Node}, nil
}

// answers holds when castellan still gets in.
func answers() gate.Condition {
	return gate.Condition{Name: "castellan still gets in", Read: gate.Read{Operation: "GET /version"}, Pointer: "/version", Rule: gate.RulePresent}
}
