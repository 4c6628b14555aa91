package pve

import (
	"context"

	"castellan/internal/gate"
	"castellan/internal/health"
)

type diagnoseGuestIn struct {
	Guest  string `json:"guest" jsonschema:"id or unique name"`
	Target string `json:"target,omitempty"`
}

type diagnoseGuestOut struct {
	VMID int64  `json:"vmid"`
	Name string `json:"name,omitempty"`
	Kind string `json:"kind"`
	Node string `json:"node"`
	health.Report
}

func diagnoseGuest() *gate.Operation {
	return gate.Query(gate.Declaration{
		Name: "diagnose_guest", Summary: "Why is a guest slow or failing: ranked causes with figures, and what could not be read. Read", Product: "pve", Kinds: []gate.Kind{gate.KindRead},
		Keywords: "slow hangs problem troubleshoot health check performance pressure swap memory cpu disk io neighbours bottleneck why broken unreachable", Toolset: "standard", Bounded: true, Guest: "guest",
	}, runDiagnoseGuest)
}

func runDiagnoseGuest(ctx context.Context, v gate.View, in diagnoseGuestIn) (diagnoseGuestOut, error) {
	s, err := open(ctx, v, in.Target)
	if err != nil {
		return diagnoseGuestOut{}, err
	}
	g, err := s.inv.Guest(ctx, v, in.Guest)
	if err != nil {
		return diagnoseGuestOut{}, err
	}
	rep := health.Guest(ctx, v, s.inv, g)
	s.withGrants(ctx, rep.Unread)
	return diagnoseGuestOut{VMID: g.Number, Name: g.Name, Kind: g.Kind, Node: g.Node, Report: rep}, nil
}
