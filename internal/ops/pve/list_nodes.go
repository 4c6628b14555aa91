package pve

import (
	"context"

	"castellan/internal/gate"
)

type listNodesIn struct {
	Target string `json:"target,omitempty"`
}

type nodeRow struct {
	Node    string   `json:"node"`
	Status  string   `json:"status"`
	CPU     *float64 `json:"cpu,omitempty"` // 0 to 1
	CPUs    int64    `json:"maxcpu,omitempty"`
	Mem     int64    `json:"mem,omitempty"`
	MaxMem  int64    `json:"maxmem,omitempty"`
	Disk    int64    `json:"rootfs,omitempty"`
	MaxDisk int64    `json:"maxrootfs,omitempty"`
	Uptime  int64    `json:"uptime,omitempty"`
	HA      string   `json:"ha,omitempty"`
	Guests  int      `json:"guests"`
	Running int      `json:"running"`
}

type listNodesOut struct {
	Nodes      []nodeRow `json:"nodes"`
	Count      int       `json:"count"`
	Incomplete []string  `json:"incomplete,omitempty"`
}

func listNodes() *gate.Operation {
	return gate.Query(gate.Declaration{
		Name: "list_nodes", Summary: "List cluster nodes with load. Read", Product: "pve", Kinds: []gate.Kind{gate.KindRead},
		Keywords: "hosts hypervisors servers members cluster online offline get_nodes", Toolset: "standard", Bounded: true,
	}, runListNodes)
}

func runListNodes(ctx context.Context, v gate.View, in listNodesIn) (listNodesOut, error) {
	s, err := open(ctx, v, in.Target)
	if err != nil {
		return listNodesOut{}, err
	}
	out := listNodesOut{Nodes: s.nodeRows(), Incomplete: s.inv.Missing}
	out.Count = len(out.Nodes)
	for _, n := range s.inv.Nodes {
		if n.Status == "online" && !n.Figures {
			out.Incomplete = append(out.Incomplete, "no figures of "+n.Name+": castellan's user lacks Sys.Audit on /nodes/"+n.Name)
		}
	}
	return out, nil
}

func (s *site) nodeRows() []nodeRow {
	guests, running := map[string]int{}, map[string]int{}
	for _, g := range s.inv.Guests {
		guests[g.Node]++
		if g.Status == "running" {
			running[g.Node]++
		}
	}
	rows := []nodeRow{}
	for _, n := range s.inv.Nodes {
		r := nodeRow{Node: n.Name, Status: n.Status, CPUs: n.CPUs, Mem: n.Mem, MaxMem: n.MaxMem, Disk: n.Disk, MaxDisk: n.MaxDisk, Uptime: n.Uptime,
			HA: n.HA, Guests: guests[n.Name], Running: running[n.Name]}
		if n.Figures {
			load := round(n.CPU)
			r.CPU = &load
		}
		rows = append(rows, r)
	}
	return rows
}
