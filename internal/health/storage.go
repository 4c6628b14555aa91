package health

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"castellan/internal/estate"
)

// thinPools judges data and metadata of a node's thin pools: a pool that runs out of either stops its guests.
func thinPools(b *bag, a *ask, node string) {
	if !a.ok() {
		return
	}
	for _, p := range a.rows {
		where := fmt.Sprintf("thin pool %s/%s on node %s", clean(p["vg"], 60), clean(p["lv"], 60), node)
		next := &Next{Operation: "list_storage", Arguments: map[string]string{"node": node}}
		total, _ := num(p, "lv_size")
		u, known := num(p, "used")
		if f, yes := fill(Flag{Check: "thin_pool_data", Where: where, What: "the data of the thin pool is filling up; when it is full, writes of all its guests fail", Next: next}, u, total, poolFull, poolFullBad, "data", a.source()); known && yes {
			b.add(f)
		}
		total, _ = num(p, "metadata_size")
		u, known = num(p, "metadata_used")
		if f, yes := fill(Flag{Check: "thin_pool_metadata", Where: where, What: "the metadata of the thin pool is filling up; when it is full, the pool turns read-only even with free data", Next: next}, u, total, metadataFull, metadataFullBad, "metadata", a.source()); known && yes {
			b.add(f)
		}
	}
}

// zfsPools judges health and fill of a node's ZFS pools.
func zfsPools(b *bag, a *ask, node string) {
	if !a.ok() {
		return
	}
	for _, p := range a.rows {
		name := clean(p["name"], 60)
		where := fmt.Sprintf("ZFS pool %s on node %s", name, node)
		next := &Next{Operation: "call_operation", Arguments: map[string]string{"operation": "GET /nodes/" + node + "/disks/zfs/" + name}}
		if state := strings.ToUpper(p["health"]); state != "ONLINE" {
			f := Flag{Level: Critical, Check: "zfs_health", Where: where, What: "the ZFS pool is not healthy", Next: next, excess: 2,
				Evidence: []Evidence{{Figure: "health", Value: cmp.Or(clean(state, 30), "not told"), Threshold: "ONLINE", Source: a.source()}}}
			if state == "DEGRADED" {
				f.What, f.excess = "the ZFS pool runs without all its disks: a further failure may lose it", 1
			}
			b.add(f)
		}
		total, _ := num(p, "size")
		u, known := num(p, "alloc")
		if f, yes := fill(Flag{Check: "zfs_full", Where: where, What: "the ZFS pool is filling up; it gets slow well before it is full", Next: next}, u, total, poolFull, poolFullBad, "allocated", a.source()); known && yes {
			b.add(f)
		}
	}
}

// share is one storage as the site counts it: a shared one once.
type share struct {
	name, kind, node string
	shared           bool
	used, total      float64
	status           string
	nodes, lost      []string // that have it, and that do not reach it
}

// shares joins what the nodes report: a shared storage is one, whoever reports it.
func shares(inv *estate.Inventory) []share {
	off := map[string]bool{}
	for _, n := range inv.Nodes {
		off[n.Name] = n.Status != "online"
	}
	at := map[string]int{}
	var out []share
	for _, s := range inv.Storages {
		if off[s.Node] {
			continue // of a node that is off nothing is known; the node has a flag of its own
		}
		key := s.Name
		if !s.Shared {
			key += "@" + s.Node
		}
		i, again := at[key]
		if !again {
			i = len(out)
			at[key] = i
			out = append(out, share{name: s.Name, kind: s.Type, shared: s.Shared, status: "unknown"})
			if !s.Shared {
				out[i].node = s.Node
			}
		}
		x := &out[i]
		x.nodes = append(x.nodes, s.Node)
		if s.Status != "available" {
			x.lost = append(x.lost, s.Node)
			continue
		}
		x.status = s.Status
		if float64(s.Total) > x.total { // nodes report the same figures, some of them late
			x.used, x.total = float64(s.Used), float64(s.Total)
		}
	}
	return out
}

func (s share) where() string {
	if s.shared {
		return "storage " + s.name
	}
	return "storage " + s.name + " on node " + s.node
}

// storageFlags judges storages: full, or not reached.
//
// A pool that b has a flag of already is not told again as a storage.
func storageFlags(b *bag, all []share, wanted func(share) bool) {
	for _, s := range all {
		if !wanted(s) {
			continue
		}
		next := &Next{Operation: "list_storage"}
		if s.node != "" {
			next.Arguments = map[string]string{"node": s.node}
		}
		if len(s.lost) > 0 {
			level := Critical
			if len(s.lost) < len(s.nodes) {
				level = Warning
			}
			b.add(Flag{Level: level, Check: "storage_down", Where: s.where(), What: "the storage is enabled and not available on " + some(s.lost, 6), Next: next,
				Evidence: []Evidence{{Figure: "nodes that do not reach it", Value: fmt.Sprintf("%d of %d", len(s.lost), len(s.nodes)), Threshold: "0", Source: "GET /cluster/resources"}}})
		}
		if s.kind == "lvmthin" && b.tells("thin_pool_data", s.node) || s.kind == "zfspool" && b.tells("zfs_full", s.node) {
			continue
		}
		warn, bad := storageFull, storageFullBad
		if slices.Contains([]string{"lvmthin", "zfspool"}, s.kind) {
			warn, bad = poolFull, poolFullBad
		}
		if f, yes := fill(Flag{Check: "storage_full", Where: s.where(), What: "the storage is filling up", Next: next}, s.used, s.total, warn, bad, "use", "GET /cluster/resources"); yes && s.kind != "pbs" {
			b.add(f)
		} else if yes {
			f.What = "the backup storage is filling up: prune or garbage collection on the backup server has to make room"
			b.add(f)
		}
	}
}

func nodeStorages(b *bag, inv *estate.Inventory, node string) {
	storageFlags(b, shares(inv), func(s share) bool { return slices.Contains(s.nodes, node) })
}

// failedServices tells services that systemd calls failed, and those that every node needs and that do not run.
func failedServices(b *bag, a *ask, node string) {
	if !a.ok() {
		return
	}
	for _, s := range a.rows {
		state, active, unit := s["state"], s["active-state"], s["unit-state"]
		name := clean(s["service"], 60)
		failed := state == "failed" || active == "failed"
		needed := slices.Contains([]string{"pveproxy", "pvedaemon", "pvestatd", "pve-cluster", "pvescheduler"}, name) && active != "active" && active != "activating" && active != "reloading" && active != ""
		if !failed && !needed || unit == "not-found" || unit == "masked" {
			continue
		}
		f := Flag{Level: Warning, Check: "service_failed", Where: whereNode(node), What: "service " + name + " is " + clean(cmp.Or(active, state), 30),
			Next:     &Next{Operation: "call_operation", Arguments: map[string]string{"operation": "GET /nodes/" + node + "/services/" + name + "/state"}},
			Evidence: []Evidence{{Figure: "state", Value: clean(state+", "+active, 60), Threshold: "active", Source: a.source()}}}
		if slices.Contains([]string{"pve-cluster", "corosync", "pvestatd", "pvedaemon", "pveproxy", "pve-ha-lrm", "pve-ha-crm", "pvescheduler"}, name) {
			f.Level, f.excess = Critical, 1
		}
		b.add(f)
	}
}

// downInterfaces tells bridges and bonds that start with the node and are down.
func downInterfaces(b *bag, a *ask, node string) {
	if !a.ok() {
		return
	}
	for _, i := range a.rows {
		if i["autostart"] != "1" || i["active"] == "1" || !strings.Contains(strings.ToLower(i["type"]), "bridge") && i["type"] != "bond" && i["type"] != "OVSBond" {
			continue
		}
		b.add(Flag{Level: Warning, Check: "interface_down", Where: whereNode(node), What: clean(i["type"], 20) + " " + clean(i["iface"], 30) + " starts with the node and is not up",
			Evidence: []Evidence{{Figure: "active", Value: cmp.Or(i["active"], "0"), Threshold: "1", Source: a.source()}},
			Next:     &Next{Operation: "call_operation", Arguments: map[string]string{"operation": "GET /nodes/" + node + "/network"}}})
	}
}
