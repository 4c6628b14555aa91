package pve

import (
	"context"
	"strconv"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

type guestStatusIn struct {
	Guest  string `json:"guest" jsonschema:"id or unique name"`
	Target string `json:"target,omitempty"`
}

type guestStatusOut struct {
	VMID       int64    `json:"vmid"`
	Name       string   `json:"name,omitempty"`
	Kind       string   `json:"kind"`
	Node       string   `json:"node"`
	Status     string   `json:"status"` // running, paused, stopped, suspended, unknown
	Uptime     int64    `json:"uptime,omitempty"`
	CPU        *float64 `json:"cpu,omitempty"` // 0 to 1
	CPUs       int64    `json:"maxcpu,omitempty"`
	Memory     *usage   `json:"memory,omitempty"`
	Disk       *usage   `json:"disk,omitempty"`
	NetIn      int64    `json:"net_in,omitempty"` // bytes since start
	NetOut     int64    `json:"net_out,omitempty"`
	Template   bool     `json:"template,omitempty"`
	Tags       []string `json:"tags,omitempty"`
	Pool       string   `json:"pool,omitempty"`
	OnBoot     *bool    `json:"onboot,omitempty"`
	Protection bool     `json:"protection,omitempty"`
	Agent      *bool    `json:"guest_agent,omitempty"` // switched on in the settings of a VM
	HA         string   `json:"ha,omitempty"`
	Lock       string   `json:"lock,omitempty"`
	LockedBy   string   `json:"locked_by,omitempty"` // the task that holds the lock
	Incomplete []string `json:"incomplete,omitempty"`
}

func guestStatus() *gate.Operation {
	return gate.Query(gate.Declaration{
		Name: "guest_status", Summary: "State, load, lock and HA of a guest. Read", Product: "pve", Kinds: []gate.Kind{gate.KindRead},
		Keywords: "vm container is it running uptime memory cpu usage info get_vm_status get_container_status", Toolset: "standard", Bounded: true, Guest: "guest",
	}, runGuestStatus)
}

func runGuestStatus(ctx context.Context, v gate.View, in guestStatusIn) (guestStatusOut, error) {
	s, err := open(ctx, v, in.Target)
	if err != nil {
		return guestStatusOut{}, err
	}
	found, err := s.inv.Guest(ctx, v, in.Guest)
	if err != nil {
		return guestStatusOut{}, err
	}
	if found.NodeOff {
		return guestStatusOut{VMID: found.Number, Name: found.Name, Kind: found.Kind, Node: found.Node, Status: "unknown", Tags: found.Tags, Pool: found.Pool, Lock: found.Lock,
			Incomplete: []string{"node " + found.Node + " is not online: what the guest does is not known"}}, nil
	}
	g, err := s.guest(ctx, found.ID)
	if err != nil {
		return guestStatusOut{}, err
	}
	out := guestStatusOut{VMID: g.Number, Name: g.Name, Kind: g.Kind, Node: g.Node, Status: g.Status, Template: g.Template, Tags: estate.Tags(g.config["tags"]), Pool: g.Pool,
		Protection: g.config.On("protection"), Lock: g.Lock, CPUs: g.number("cpus")}
	onboot := g.config.On("onboot")
	out.OnBoot = &onboot
	switch {
	case g.paused():
		out.Status = "paused"
	case g.Lock == "suspended" && !g.running():
		out.Status = "suspended"
	}
	if g.running() {
		load := round(g.figure("cpu"))
		out.CPU, out.Uptime, out.NetIn, out.NetOut = &load, g.number("uptime"), g.number("netin"), g.number("netout")
		out.Memory = &usage{Used: g.number("mem"), Total: g.number("maxmem"), Percent: percent(g.number("mem"), g.number("maxmem"))}
	} else {
		out.Memory = &usage{Total: g.number("maxmem")}
	}
	out.Disk = &usage{Used: g.number("disk"), Total: g.number("maxdisk")}
	if g.Kind == estate.CT && g.running() {
		out.Disk.Percent = percent(out.Disk.Used, out.Disk.Total)
	}
	if g.Kind == estate.VM {
		on := g.config.On("agent")
		out.Agent = &on
	}
	if g.managed {
		out.HA = g.haState
	}
	if g.Lock != "" {
		if task, known := g.holder(ctx); task != nil {
			out.LockedBy = string(task.UPID)
		} else if !known {
			out.Incomplete = append(out.Incomplete, "which task holds the lock cannot be seen")
		}
	}
	return out, nil
}

func (g *guest) number(key string) int64 {
	var n estate.Int
	_ = n.UnmarshalJSON([]byte(g.current[key])) // cannot fail: an absent figure counts as 0
	return int64(n)
}

func (g *guest) figure(key string) float64 {
	f, err := strconv.ParseFloat(g.current[key], 64)
	if err != nil {
		return 0
	}
	return f
}
