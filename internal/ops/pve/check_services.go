package pve

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"castellan/internal/gate"
	"castellan/internal/patch"
)

type checkServicesIn struct {
	Guest  string `json:"guest" jsonschema:"id or unique name"`
	All    bool   `json:"all,omitempty" jsonschema:"every unit; else what failed, restarts or listens"`
	Target string `json:"target,omitempty"`
}

type checkServicesOut struct {
	VMID    int64    `json:"vmid"`
	Name    string   `json:"name,omitempty"`
	Node    string   `json:"node"`
	Verdict string   `json:"verdict" jsonschema:"well, failing (failed, or restarted over and over), or not_known"`
	State   string   `json:"state,omitempty" jsonschema:"of the init system: running, degraded, ..."`
	Failed  []string `json:"failed,omitempty"`
	Restart []string `json:"restarting,omitempty" jsonschema:"units that were restarted by themselves, with how often"`
	Active  int      `json:"active"`
	Units   []string `json:"units,omitempty"`
	Ports   []string `json:"ports,omitempty" jsonschema:"what listens; reached: castellan itself could connect"`
	Unread  []string `json:"unread,omitempty"`
	BootID  string   `json:"boot_id,omitempty"`
}

func checkServices() *gate.Operation {
	return gate.Query(gate.Declaration{
		Name: "check_services", Summary: "Services of a guest: init state, failed and restarting units, listening ports. Asks the guest now", Product: "pve",
		Kinds: []gate.Kind{gate.KindUpdates}, Toolset: "full", Guest: "guest",
		Keywords: "systemd failed units degraded running daemons ports listening health after update",
	}, runCheckServices)
}

// How much of a guest's services one answer holds.
const (
	mostUnits = 200
	mostPorts = 100
)

func runCheckServices(ctx context.Context, v gate.View, in checkServicesIn) (checkServicesOut, error) {
	s, err := open(ctx, v, in.Target)
	if err != nil {
		return checkServicesOut{}, err
	}
	g, err := s.inv.Guest(ctx, v, in.Guest)
	if err != nil {
		return checkServicesOut{}, err
	}
	if why := idle(g); why != "" {
		return checkServicesOut{}, gate.Fail(gate.ErrInvalid, "guest_status tells what is known from outside.", "%s is left alone (%s): nothing in it would answer", g.Title(), why)
	}
	h, _, err := told[patch.House](ctx, s, g, string(patch.Services), nil)
	if err != nil {
		return checkServicesOut{}, err
	}
	out := checkServicesOut{VMID: g.Number, Name: g.Name, Node: g.Node}
	out.of(h, in.All)
	return out, nil
}

// of fills in what a guest answered, and judges it.
func (out *checkServicesOut) of(h patch.House, all bool) {
	out.State, out.BootID, out.Unread = clip(h.State, 40), h.BootID, someOf(clipped(h.Unread, 200), 20)
	for _, u := range h.Units {
		switch {
		case u.Active == "failed":
			out.Failed = append(out.Failed, clip(u.Name, 100))
		case strings.HasPrefix(u.Sub, "auto-restart"): // it ends again and again: between two starts it is not failed
			out.Failed = append(out.Failed, clip(u.Name, 100)+" (ends and is restarted by itself)")
		case u.Active == "active":
			out.Active++
		}
		if u.Restarts > 0 {
			out.Restart = append(out.Restart, fmt.Sprintf("%s (%d)", clip(u.Name, 100), u.Restarts))
		}
		if all {
			line := clip(u.Name, 100) + " " + clip(u.Active, 20)
			if u.Sub != "" && u.Sub != u.Active {
				line += " (" + clip(u.Sub, 20) + ")"
			}
			out.Units = append(out.Units, line)
		}
	}
	for _, p := range h.Ports {
		out.Ports = append(out.Ports, portText(p))
	}
	slices.Sort(out.Failed)
	out.Failed, out.Restart, out.Units, out.Ports = someOf(out.Failed, mostUnits), someOf(out.Restart, 50), someOf(out.Units, mostUnits), someOf(out.Ports, mostPorts)
	if h.State == "degraded" && len(out.Failed) == 0 {
		out.Unread = append(out.Unread, "which unit failed: the init system says degraded, and names none")
	}
	switch {
	case len(out.Failed) > 0:
		out.Verdict = "failing"
	case len(h.Units) == 0, len(out.Unread) > 0:
		out.Verdict = "not_known"
	default:
		out.Verdict = "well"
	}
}

func portText(p patch.Port) string {
	out := fmt.Sprintf("%s %s port %d", clip(p.Proto, 8), cmp.Or(clip(p.Address, 46), "*"), p.Port)
	if p.Program != "" {
		out += " " + clip(p.Program, 40)
	}
	switch {
	case p.Reached == nil:
	case *p.Reached:
		out += ", reached"
	default:
		out += ", not reached"
	}
	return out
}
