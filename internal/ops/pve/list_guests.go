package pve

import (
	"context"
	"slices"
	"strings"

	"castellan/internal/estate"
	"castellan/internal/gate"
	"castellan/internal/ops/table"
)

type listGuestsIn struct {
	Status string `json:"status,omitempty" enum:"running,stopped,unknown"`
	Kind   string `json:"kind,omitempty" enum:"vm,ct"`
	Node   string `json:"node,omitempty"`
	Pool   string `json:"pool,omitempty"`
	Tag    string `json:"tag,omitempty"`
	Name   string `json:"name,omitempty" jsonschema:"part of it"`
	table.Ask
	Target string `json:"target,omitempty"`
}

type listGuestsOut struct {
	Guests     []map[string]any `json:"guests"`
	Incomplete []string         `json:"incomplete,omitempty"` // what is missing and why
	table.Count
}

var guestColumns = table.Columns{
	All:     []string{"vmid", "name", "kind", "status", "node", "template", "lock", "tags", "pool", "ha", "cpu", "maxcpu", "mem", "maxmem", "disk", "maxdisk", "uptime"},
	Default: []string{"vmid", "name", "kind", "status", "node", "template", "lock", "tags", "pool", "ha", "cpu", "maxcpu", "mem", "maxmem", "uptime"},
}

func listGuests() *gate.Operation {
	return gate.Query(gate.Declaration{
		Name: "list_guests", Summary: "List VMs and containers; sizes in bytes. Read", Product: "pve", Kinds: []gate.Kind{gate.KindRead},
		Keywords: "show all virtual machines containers vms cts inventory resources qemu lxc running stopped get_vms get_containers", Toolset: "standard", Bounded: true,
	}, runListGuests)
}

func runListGuests(ctx context.Context, v gate.View, in listGuestsIn) (listGuestsOut, error) {
	s, err := open(ctx, v, in.Target)
	if err != nil {
		return listGuestsOut{}, err
	}
	if in.Node != "" {
		if _, err := s.inv.Node(in.Node); err != nil && len(s.inv.Nodes) > 0 {
			return listGuestsOut{}, err
		}
	}
	matched := make([]estate.Guest, 0, len(s.inv.Guests))
	for _, g := range s.inv.Guests {
		if in.fits(g) && (!v.Scoped() || v.Sees(ctx, s.target(), gate.ObjectFacts{Object: gate.Object{Kind: gate.ObjectGuest, ID: g.ID}, Use: gate.UseNames, Name: g.Name,
			Tags: g.Tags, Pools: estate.Pools(g.Pool), Known: true})) {
			matched = append(matched, g)
		}
	}
	rows, count, err := table.Cut(in.Ask, guestColumns, matched, func(g estate.Guest) string { return g.ID }, guestRow)
	if err != nil {
		return listGuestsOut{}, err
	}
	out := listGuestsOut{Guests: rows, Count: count, Incomplete: s.inv.Missing}
	if len(s.inv.Guests) == 0 {
		out.Incomplete = append(out.Incomplete, s.blind(ctx, "VM.Audit", "guests"))
	}
	return out, nil
}

func (in listGuestsIn) fits(g estate.Guest) bool {
	return (in.Status == "" || g.Status == in.Status || in.Status == "unknown" && g.Status != "running" && g.Status != "stopped") &&
		(in.Kind == "" || g.Kind == in.Kind) && (in.Node == "" || g.Node == in.Node) &&
		(in.Pool == "" || slices.Contains(estate.Pools(g.Pool), in.Pool)) &&
		(in.Tag == "" || slices.ContainsFunc(g.Tags, func(t string) bool { return strings.EqualFold(t, in.Tag) })) &&
		(in.Name == "" || strings.Contains(strings.ToLower(g.Name), strings.ToLower(in.Name)))
}

func guestRow(g estate.Guest) map[string]any {
	row := map[string]any{"vmid": g.Number, "name": g.Name, "kind": g.Kind, "status": g.Status, "node": g.Node, "template": g.Template, "lock": g.Lock,
		"tags": strings.Join(g.Tags, ";"), "pool": g.Pool, "ha": g.HA, "maxcpu": g.CPUs, "maxmem": g.MaxMem, "maxdisk": g.MaxDisk}
	if g.Status == "running" { // of any other the figures are zero or of an earlier time
		row["cpu"], row["mem"], row["disk"], row["uptime"] = round(g.CPU), g.Mem, g.Disk, g.Uptime
	}
	return row
}

// round keeps three digits of a load between 0 and 1.
func round(f float64) float64 { return float64(int64(f*1000+0.5)) / 1000 }

// blind explains an empty list: nothing there, or nothing that may be seen.
func (s *site) blind(ctx context.Context, privilege, what string) string {
	var may map[string]map[string]estate.Int
	if _, err := s.read(ctx, &may, "GET /access/permissions", nil); err != nil {
		return "no " + what + " were listed; whether castellan may see them could not be asked: without " + privilege + " the server hides them silently"
	}
	for _, privileges := range may {
		if _, has := privileges[privilege]; has {
			return "no " + what + " were listed where castellan holds " + privilege + "; elsewhere the server hides them silently"
		}
	}
	return "castellan's user holds " + privilege + " nowhere, so that the server hides all " + what + ": this list says nothing about what there is"
}
