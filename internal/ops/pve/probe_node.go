package pve

import (
	"context"

	"castellan/internal/gate"
)

type probeNodeIn struct {
	Node   string         `json:"node"`
	Probe  string         `json:"probe" jsonschema:"such as disk, memory, failed_units; list_probes tells all"`
	With   map[string]any `json:"with,omitempty" jsonschema:"its arguments, name to value"`
	Target string         `json:"target,omitempty"`
}

func probeNode() *gate.Operation {
	return gate.Query(gate.Declaration{
		Name: "probe_node", Summary: "Look on a node itself with a fixed diagnostic that only reads: disks, ZFS, services, kernel log, ports. Read", Product: "pve",
		Kinds:    []gate.Kind{gate.KindHostProbe},
		Keywords: "host hypervisor shell look df zpool lvs smart journal kernel dmesg services failed units logs packages", Toolset: "full",
	}, runProbeNode)
}

func runProbeNode(ctx context.Context, v gate.View, in probeNodeIn) (probeAnswer, error) {
	s, err := open(ctx, v, in.Target)
	if err != nil {
		return probeAnswer{}, err
	}
	node, err := s.pickNode(in.Node)
	if err != nil {
		return probeAnswer{}, err
	}
	if err := s.withinReach(node); err != nil {
		return probeAnswer{}, err
	}
	return s.probeNode(ctx, node, in.Probe, in.With)
}
