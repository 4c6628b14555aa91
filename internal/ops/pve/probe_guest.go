package pve

import (
	"context"

	"castellan/internal/gate"
)

type probeGuestIn struct {
	Guest  string         `json:"guest" jsonschema:"id or unique name"`
	Probe  string         `json:"probe" jsonschema:"such as disk, memory, failed_units, unit_journal; list_probes tells all"`
	With   map[string]any `json:"with,omitempty" jsonschema:"its arguments, name to value, such as unit to nginx"`
	Target string         `json:"target,omitempty"`
}

func probeGuest() *gate.Operation {
	return gate.Query(gate.Declaration{
		Name: "probe_guest", Summary: "Look inside a running guest with a fixed diagnostic that only reads: disks, memory, services, logs, ports. Read", Product: "pve",
		Kinds:    []gate.Kind{gate.KindProbe},
		Keywords: "inside container vm what fills disk full df du memory processes top failed services systemctl status journal log ports listening packages uptime diagnose look into",
		Toolset:  "full", Guest: "guest",
	}, runProbeGuest)
}

func runProbeGuest(ctx context.Context, v gate.View, in probeGuestIn) (probeAnswer, error) {
	s, err := open(ctx, v, in.Target)
	if err != nil {
		return probeAnswer{}, err
	}
	return s.probeGuest(ctx, in.Guest, in.Probe, in.With)
}
