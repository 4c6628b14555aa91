package pve

import (
	"context"
	"fmt"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

type nodeStatusIn struct {
	Node   string `json:"node"`
	Target string `json:"target,omitempty"`
}

type usage struct {
	Used    int64  `json:"used"`
	Total   int64  `json:"total"`
	Percent string `json:"percent,omitempty"`
}

type nodeStatusOut struct {
	Node       string   `json:"node"`
	Status     string   `json:"status"`
	CPU        *float64 `json:"cpu,omitempty"` // 0 to 1
	CPUs       int64    `json:"cpus,omitempty"`
	Model      string   `json:"cpu_model,omitempty"`
	Load       []string `json:"load,omitempty"` // over 1, 5 and 15 minutes
	Memory     *usage   `json:"memory,omitempty"`
	Swap       *usage   `json:"swap,omitempty"`
	Rootfs     *usage   `json:"rootfs,omitempty"`
	KSM        int64    `json:"ksm_shared,omitempty"`
	Uptime     int64    `json:"uptime,omitempty"`
	Version    string   `json:"version,omitempty"`
	Kernel     string   `json:"kernel,omitempty"`
	Boot       string   `json:"boot_mode,omitempty"`
	Incomplete []string `json:"incomplete,omitempty"`
}

func nodeStatus() *gate.Operation {
	return gate.Query(gate.Declaration{
		Name: "node_status", Summary: "Load, memory, swap, disk, version of a node. Read", Product: "pve", Kinds: []gate.Kind{gate.KindRead},
		Keywords: "host cpu ram uptime kernel pveversion health get_node_status", Toolset: "standard", Bounded: true,
	}, runNodeStatus)
}

func runNodeStatus(ctx context.Context, v gate.View, in nodeStatusIn) (nodeStatusOut, error) {
	s, err := open(ctx, v, in.Target)
	if err != nil {
		return nodeStatusOut{}, err
	}
	n, err := s.inv.Node(in.Node)
	if err != nil {
		return nodeStatusOut{}, err
	}
	out := nodeStatusOut{Node: n.Name, Status: n.Status}
	if n.Status != "online" {
		out.Incomplete = s.inv.Missing
		return out, nil
	}
	type amount struct{ Used, Total estate.Int }
	var st struct {
		CPU     estate.Float  `json:"cpu"`
		Load    []estate.Text `json:"loadavg"`
		Memory  *amount       `json:"memory"`
		Swap    *amount       `json:"swap"`
		Rootfs  *amount       `json:"rootfs"`
		Uptime  estate.Int    `json:"uptime"`
		Version estate.Text   `json:"pveversion"`
		KSM     struct {
			Shared estate.Int `json:"shared"`
		} `json:"ksm"`
		Info struct {
			CPUs  estate.Int  `json:"cpus"`
			Model estate.Text `json:"model"`
		} `json:"cpuinfo"`
		Kernel struct {
			Release estate.Text `json:"release"`
		} `json:"current-kernel"`
		Boot struct {
			Mode estate.Text `json:"mode"`
		} `json:"boot-info"`
	}
	if _, err := s.read(ctx, &st, "GET /nodes/{node}/status", map[string]string{"node": n.Name}); err != nil {
		return nodeStatusOut{}, fmt.Errorf("read the state of node %s: %w", n.Name, err)
	}
	load := round(float64(st.CPU))
	out.CPU, out.CPUs, out.Model = &load, int64(st.Info.CPUs), string(st.Info.Model)
	for _, l := range st.Load {
		out.Load = append(out.Load, string(l))
	}
	used := func(a *amount) *usage {
		if a == nil {
			return nil
		}
		return &usage{Used: int64(a.Used), Total: int64(a.Total), Percent: percent(int64(a.Used), int64(a.Total))}
	}
	out.Memory, out.Swap, out.Rootfs = used(st.Memory), used(st.Swap), used(st.Rootfs)
	out.KSM, out.Uptime, out.Version = int64(st.KSM.Shared), int64(st.Uptime), string(st.Version)
	out.Kernel, out.Boot = string(st.Kernel.Release), string(st.Boot.Mode)
	return out, nil
}
