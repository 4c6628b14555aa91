package pve

import (
	"context"
	"fmt"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

type clusterOverviewIn struct {
	Target string `json:"target,omitempty"`
}

type guestCounts struct {
	Total     int `json:"total"`
	Running   int `json:"running"`
	Stopped   int `json:"stopped"`
	Unknown   int `json:"unknown"`
	Templates int `json:"templates"`
}

type clusterOverviewOut struct {
	Target     string       `json:"target"`
	Site       string       `json:"site,omitempty"`
	Cluster    string       `json:"cluster,omitempty"`
	Quorate    *bool        `json:"quorate,omitempty"`
	Nodes      []nodeRow    `json:"nodes"`
	VMs        guestCounts  `json:"vms"`
	CTs        guestCounts  `json:"cts"`
	Locked     []string     `json:"locked,omitempty"` // guest id and lock
	Memory     usage        `json:"memory"`           // of the nodes that report
	Storages   []storageRow `json:"storages"`
	Pools      []string     `json:"pools,omitempty"`
	Networks   []string     `json:"networks,omitempty"` // SDN zones and the like
	Incomplete []string     `json:"incomplete,omitempty"`
}

// mostStorages bounds the storages of an overview.
const mostStorages = 80

func clusterOverview() *gate.Operation {
	return gate.Query(gate.Declaration{
		Name: "cluster_overview", Summary: "Nodes, guest counts, storages, SDN, quorum of a site. Read", Product: "pve", Kinds: []gate.Kind{gate.KindRead},
		Keywords: "dashboard summary whole picture health status sdn pools everything get_cluster_status", Toolset: "standard", Bounded: true,
	}, runClusterOverview)
}

func runClusterOverview(ctx context.Context, v gate.View, in clusterOverviewIn) (clusterOverviewOut, error) {
	s, err := open(ctx, v, in.Target)
	if err != nil {
		return clusterOverviewOut{}, err
	}
	out := clusterOverviewOut{Target: s.target(), Site: s.inv.Target.Site, Nodes: s.nodeRows(), Pools: s.inv.Pools}
	out.Storages, out.Incomplete = s.storages(ctx)
	if n := len(out.Storages); n > mostStorages {
		out.Storages = out.Storages[:mostStorages]
		out.Incomplete = append(out.Incomplete, fmt.Sprintf("%d more storages: list_storage shows all", n-mostStorages))
	}
	for _, g := range s.inv.Guests {
		c := &out.VMs
		if g.Kind == estate.CT {
			c = &out.CTs
		}
		c.Total++
		switch {
		case g.Template:
			c.Templates++
		case g.Status == "running":
			c.Running++
		case g.Status == "stopped":
			c.Stopped++
		default:
			c.Unknown++
		}
		if g.Lock != "" && len(out.Locked) < 50 {
			out.Locked = append(out.Locked, g.ID+" "+g.Lock)
		}
	}
	for _, n := range s.inv.Nodes {
		out.Memory.Used, out.Memory.Total = out.Memory.Used+n.Mem, out.Memory.Total+n.MaxMem
	}
	out.Memory.Percent = percent(out.Memory.Used, out.Memory.Total)
	seen := map[string]bool{}
	for _, z := range s.inv.Zones {
		if !seen[z.Name] {
			seen[z.Name] = true
			out.Networks = append(out.Networks, z.Name)
		}
	}
	var status []struct {
		Type    estate.Text  `json:"type"`
		Name    estate.Text  `json:"name"`
		Quorate *estate.Bool `json:"quorate"`
	}
	if _, err := s.read(ctx, &status, "GET /cluster/status", nil); err != nil {
		out.Incomplete = append(out.Incomplete, "quorum is not known: "+clip(err.Error(), 200))
	}
	for _, r := range status {
		if r.Type == "cluster" {
			out.Cluster = string(r.Name)
			if r.Quorate != nil {
				q := bool(*r.Quorate)
				out.Quorate = &q
			}
		}
	}
	return out, nil
}
