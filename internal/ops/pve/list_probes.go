package pve

import (
	"context"
	"fmt"
	"strings"

	"castellan/internal/gate"
	"castellan/internal/lane"
)

type listProbesIn struct {
	Where string `json:"where,omitempty" enum:"node,container,vm" jsonschema:"only those for such a place"`
	Probe string `json:"probe,omitempty" jsonschema:"one of them, with its arguments"`
}

type listProbesOut struct {
	Probes    []probeRow `json:"probes"`
	Arguments []probeArg `json:"arguments,omitempty"`
	Note      string     `json:"note"`
}

type probeRow struct {
	Probe     string `json:"probe"`
	Arguments string `json:"arguments,omitempty" jsonschema:"* must be given"`
	Only      string `json:"only,omitempty" jsonschema:"where it is not for nodes, containers and VMs"`
	Tells     string `json:"tells"`
}

type probeArg struct {
	Name  string `json:"name"`
	Takes string `json:"takes"`
	Means string `json:"means"`
}

func listProbes() *gate.Operation {
	return gate.Query(gate.Declaration{
		Name: "list_probes", Summary: "The diagnostics that probe_guest and probe_node know, with their arguments. Read", Product: "pve", Kinds: []gate.Kind{gate.KindRead},
		Keywords: "which probes diagnostic commands catalogue allowed inside guest node arguments", Toolset: "full", Bounded: true,
	}, runListProbes)
}

func runListProbes(_ context.Context, _ gate.View, in listProbesIn) (listProbesOut, error) {
	out := listProbesOut{Probes: []probeRow{}, Note: "A probe is a fixed command that only reads. Whether it may run where is said by [lanes] and by the bridge of the node."}
	where := map[string]lane.Where{"node": lane.Host, "container": lane.CT, "vm": lane.VM}[in.Where]
	if in.Probe != "" {
		p, ok := lane.Find(in.Probe)
		if !ok {
			_, err := probeParams(lane.CT, in.Probe, nil)
			return out, err
		}
		out.Probes = append(out.Probes, probeRowOf(p))
		for _, a := range p.Args {
			out.Arguments = append(out.Arguments, argOf(a))
		}
		return out, nil
	}
	for _, p := range lane.Probes() {
		if where == "" || p.Runs(where) {
			out.Probes = append(out.Probes, probeRowOf(p))
		}
	}
	return out, nil
}

func probeRowOf(p lane.Probe) probeRow {
	row := probeRow{Probe: p.Name, Tells: p.Summary}
	var args, where []string
	for _, a := range p.Args {
		mark := ""
		if a.Required {
			mark = "*"
		}
		args = append(args, a.Name+mark)
	}
	row.Arguments = strings.Join(args, ", ")
	if len(p.Where) < len(placeWords) {
		for _, w := range p.Where {
			where = append(where, placeWords[w])
		}
		row.Only = strings.Join(where, ", ")
	}
	return row
}

func argOf(a lane.Arg) probeArg {
	takes := string(a.Kind)
	if len(a.Enum) > 0 {
		takes = "one of " + strings.Join(a.Enum, ", ")
	}
	if a.Max > 0 {
		takes += fmt.Sprintf(", %d to %d", a.Min, a.Max)
	}
	switch {
	case a.Required:
		takes += "; must be given"
	case a.Default != "":
		takes += "; " + a.Default + " if absent"
	}
	return probeArg{Name: a.Name, Takes: takes, Means: a.Summary}
}
