package pve

import (
	"context"

	"castellan/internal/gate"
	"castellan/internal/health"
)

type diagnoseNodeIn struct {
	Node   string `json:"node"`
	Target string `json:"target,omitempty"`
}

type diagnoseNodeOut struct {
	Node   string `json:"node"`
	Status string `json:"status"`
	health.Report
}

func diagnoseNode() *gate.Operation {
	return gate.Query(gate.Declaration{
		Name: "diagnose_node", Summary: "Why is a node slow or failing: ranked causes with figures, and what could not be read. Read", Product: "pve", Kinds: []gate.Kind{gate.KindRead},
		Keywords: "host slow problem troubleshoot health check load pressure memory swap io zfs thin pool services failed why", Toolset: "full", Bounded: true,
	}, runDiagnoseNode)
}

func runDiagnoseNode(ctx context.Context, v gate.View, in diagnoseNodeIn) (diagnoseNodeOut, error) {
	s, err := open(ctx, v, in.Target)
	if err != nil {
		return diagnoseNodeOut{}, err
	}
	n, err := s.inv.Node(in.Node)
	if err != nil {
		return diagnoseNodeOut{}, err
	}
	if err := s.withinReach(n.Name); err != nil {
		return diagnoseNodeOut{}, err
	}
	rep := health.Node(ctx, v, s.inv, n)
	s.withGrants(ctx, rep.Unread)
	return diagnoseNodeOut{Node: n.Name, Status: n.Status, Report: rep}, nil
}
