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
	Probes []string `json:"probes" jsonschema:"name(arguments; * must be given): what it tells [where it is not for all three]"`
	Note   string   `json:"note"`
}

func listProbes() *gate.Operation {
	return gate.Query(gate.Declaration{
		Name: "list_probes", Summary: "The diagnostics that probe_guest and probe_node know, with their arguments. Read", Product: "pve", Kinds: []gate.Kind{gate.KindRead},
		Keywords: "which probes diagnostic commands catalogue allowed inside guest node arguments", Toolset: "full", Bounded: true,
	}, runListProbes)
}

func runListProbes(_ context.Context, _ gate.View, in listProbesIn) (listProbesOut, error) {
	out := listProbesOut{Probes: []string{}, Note: "A probe is a fixed command that only reads. Whether it may run where is said by [lanes] and by the bridge of the node."}
	where := map[string]lane.Where{"node": lane.Host, "container": lane.CT, "vm": lane.VM}[in.Where]
	if in.Probe != "" {
		p, ok := lane.Find(in.Probe)
		if !ok {
			_, err := probeParams(lane.CT, in.Probe, nil)
			return out, err
		}
		out.Probes = append(out.Probes, probeLine(p))
		for _, a := range p.Args {
			out.Probes = append(out.Probes, argLine(a))
		}
		return out, nil
	}
	for _, p := range lane.Probes() {
		if where == "" || p.Runs(where) {
			out.Probes = append(out.Probes, probeLine(p))
		}
	}
	return out, nil
}

func probeLine(p lane.Probe) string {
	var args []string
	for _, a := range p.Args {
		mark := ""
		if a.Required {
			mark = "*"
		}
		args = append(args, a.Name+mark)
	}
	text := p.Name
	if len(args) > 0 {
		text += "(" + strings.Join(args, ", ") + ")"
	}
	text += ": " + p.Summary
	if len(p.Where) < len(placeWords) {
		var where []string
		for _, w := range p.Where {
			where = append(where, placeWords[w])
		}
		text += " [" + strings.Join(where, ", ") + " only]"
	}
	return text
}

func argLine(a lane.Arg) string {
	text := fmt.Sprintf("%s (%s): %s", a.Name, a.Kind, a.Summary)
	if len(a.Enum) > 0 {
		text += "; one of " + strings.Join(a.Enum, ", ")
	}
	if a.Max > 0 {
		text += fmt.Sprintf("; %d to %d", a.Min, a.Max)
	}
	switch {
	case a.Required:
		text += "; must be given"
	case a.Default != "":
		text += "; " + a.Default + " if absent"
	}
	return text
}
