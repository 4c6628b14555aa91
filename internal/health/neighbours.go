package health

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"castellan/internal/estate"
)

// mostNeighbours bounds how many neighbours are named, and how many are read for their disk load.
const mostNeighbours = 6

// busyGuests names the guests that use most of a node's processors, when the node is busy or a guest uses much of it.
func busyGuests(b *bag, inv *estate.Inventory, n estate.Node, except string, scoped bool) {
	if n.CPUs <= 0 {
		return
	}
	type use struct {
		g     estate.Guest
		share float64
	}
	var all []use
	seen := 0.0
	for _, g := range inv.Guests {
		if g.Node != n.Name || g.Status != "running" {
			continue
		}
		share := g.CPU * float64(g.CPUs) / float64(n.CPUs)
		seen += share
		if g.ID != except && share >= neighbourCPU {
			all = append(all, use{g, share})
		}
	}
	busy := n.CPU >= nodeCPU
	if !busy {
		return // on an idle node a busy guest takes nothing from others
	}
	slices.SortStableFunc(all, func(a, b use) int { return cmp.Or(cmp.Compare(b.share, a.share), cmp.Compare(a.g.Number, b.g.Number)) })
	for _, u := range all[:min(len(all), mostNeighbours)] {
		b.add(Flag{Level: Info, Check: "neighbour_cpu", Where: u.g.Title(), What: "it uses a large share of the busy processors of node " + n.Name, Confidence: Possible, excess: u.share / neighbourCPU,
			Evidence: []Evidence{{Figure: "share of the node's processors", Value: pct(u.share), Threshold: "from " + pct(neighbourCPU) + " on a node at " + pct(nodeCPU) + " or more", Source: "GET /cluster/resources"},
				{Figure: "use of the node's processors by all", Value: pct(n.CPU), Source: "GET /cluster/resources"}},
			Next: &Next{Operation: "diagnose_guest", Arguments: map[string]string{"guest": u.g.ID}}})
	}
	if rest := n.CPU - seen; scoped && rest >= neighbourCPU {
		b.add(Flag{Level: Info, Check: "neighbour_cpu", Where: whereNode(n.Name), What: "guests outside of this caller's scope, or the node itself, use a large share of its busy processors", Confidence: Possible, excess: rest / neighbourCPU,
			Evidence: []Evidence{{Figure: "share of the node's processors", Value: pct(rest), Source: "GET /cluster/resources"}}})
	}
}

// neighbour is a guest that may load the same storage.
type neighbour struct {
	guest        estate.Guest
	hour, config *ask
}

// candidates are the running guests that moved most data per second since their start: on the same node, or on any node
// where the storage is shared. Which of them use the storage, and how much they move now, is read of these alone.
func candidates(inv *estate.Inventory, g estate.Guest, shared bool) []neighbour {
	var all []estate.Guest
	for _, x := range inv.Guests {
		if x.ID != g.ID && x.Status == "running" && !x.NodeOff && (x.Node == g.Node || shared) {
			all = append(all, x)
		}
	}
	per := func(x estate.Guest) float64 {
		return float64(x.DiskRead+x.DiskWrite) / float64(max(x.Uptime, 1))
	}
	slices.SortStableFunc(all, func(a, b estate.Guest) int {
		return cmp.Or(cmp.Compare(per(b), per(a)), cmp.Compare(b.CPU, a.CPU), cmp.Compare(a.Number, b.Number))
	})
	var out []neighbour
	for _, x := range all[:min(len(all), mostNeighbours)] {
		if per(x) <= 0 {
			break
		}
		n := neighbour{guest: x}
		n.hour = onGuest("load of neighbours", x, "/rrddata", Info, map[string]string{"timeframe": "hour", "cf": "AVERAGE"})
		n.config = onGuest("disks of neighbours", x, "/config", Info, map[string]string{"current": "1"})
		out = append(out, n)
	}
	return out
}

// sharing names the neighbours that move much data on the same storage, ranked.
func sharing(b *bag, list []neighbour, storages map[string]bool, own float64) {
	found := []Flag{}
	for _, n := range list {
		if !n.hour.ok() || !n.config.ok() {
			continue
		}
		var same []string
		for _, d := range disksOf(n.config.row()) {
			if storages[d.storage] && !slices.Contains(same, d.storage) {
				same = append(same, d.storage)
			}
		}
		s := n.hour.series()
		io := s.over(neighbourIO, sum("diskread", "diskwrite"))
		if len(same) == 0 || io.n == 0 || io.mean < neighbourIO && io.last < neighbourIO {
			continue
		}
		f := Flag{Level: Info, Check: "neighbour_io", Where: n.guest.Title(), What: "it moves much data on the same storage (" + strings.Join(same, ", ") + ")", Confidence: Possible, excess: max(io.mean, io.last) / neighbourIO,
			Since: stamp(io.since), Next: &Next{Operation: "diagnose_guest", Arguments: map[string]string{"guest": n.guest.ID}},
			Evidence: []Evidence{{Figure: "disk traffic, last hour, mean", Value: rate(io.mean), Threshold: "from " + rate(neighbourIO), Source: n.hour.source()},
				{Figure: "disk traffic at the newest point", Value: rate(io.last), Source: n.hour.source()},
				{Figure: "disk traffic of the guest itself, last hour, mean", Value: rate(own), Source: "its own history"}}}
		found = append(found, f)
	}
	rankCauses(found)
	b.flags = append(b.flags, found...)
}

// disk is a volume of a guest.
type disk struct {
	key, volume, storage, value string
}

// disksOf lists the volumes that a guest's settings name; unused ones and drives for media are left out.
func disksOf(c estate.Config) []disk {
	var out []disk
	for k, v := range c {
		base := strings.TrimRight(k, "0123456789")
		if !slices.Contains([]string{"scsi", "virtio", "sata", "ide", "mp", "rootfs", "efidisk"}, base) || strings.Contains(v, "media=cdrom") {
			continue
		}
		first, _, _ := strings.Cut(v, ",")
		first = strings.TrimPrefix(strings.TrimPrefix(first, "volume="), "file=")
		storage, _, named := strings.Cut(first, ":")
		if !named || strings.HasPrefix(first, "/") {
			continue
		}
		out = append(out, disk{key: k, volume: first, storage: storage, value: v})
	}
	slices.SortFunc(out, func(a, b disk) int { return strings.Compare(a.key, b.key) })
	return out
}

func (d disk) String() string { return fmt.Sprintf("%s (%s)", d.key, d.volume) }
