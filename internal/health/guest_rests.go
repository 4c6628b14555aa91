package health

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"castellan/internal/estate"
)

// rests: the storages, pools and root disk that it rests on.
func (p *patient) rests(causes, flags *bag) {
	mine := p.storages()
	under := &bag{}
	thinPools(under, p.host.thin, p.g.Node)
	zfsPools(under, p.host.zfs, p.g.Node)
	storageFlags(under, shares(p.inv), func(s share) bool { return mine[s.name] && slices.Contains(s.nodes, p.g.Node) })
	for _, f := range under.flags {
		f.Confidence = Possible
		if f.Level == Critical {
			f.Confidence = Likely
		}
		causes.add(f)
	}
	for name := range mine {
		if !slices.ContainsFunc(p.inv.Storages, func(s estate.Storage) bool { return s.Name == name && s.Node == p.g.Node }) {
			for _, r := range p.storage.rows {
				if r["storage"] == name && r["disable"] == "1" {
					causes.add(Flag{Level: Critical, Check: "storage_down", Where: "storage " + clean(name, 60), What: "it has a disk there, and the storage is disabled", Confidence: Likely, Next: &Next{Operation: "list_storage"},
						Evidence: []Evidence{{Figure: "disable", Value: "1", Threshold: "0", Source: p.storage.source()}}})
				}
			}
		}
	}
	p.host.rootDisk(flags)
}

// snapshots: deep chains and old ones cost speed and room.
func (p *patient) snapshots(causes, flags *bag) {
	var list []estate.Config
	for _, r := range p.snaps.rows {
		if r["name"] != "current" {
			list = append(list, r)
		}
	}
	if len(list) == 0 {
		return
	}
	next := p.next("list_snapshots")
	oldest := list[0]
	for _, r := range list {
		if t := whole(r, "snaptime"); t > 0 && (whole(oldest, "snaptime") == 0 || t < whole(oldest, "snaptime")) {
			oldest = r
		}
		if r["snapstate"] != "" {
			flags.add(Flag{Level: Warning, Check: "snapshot_broken", Where: p.where, What: "snapshot " + clean(r["name"], 40) + " is half made or half deleted (" + clean(r["snapstate"], 20) + ")", Next: next,
				Evidence: []Evidence{{Figure: "snapstate", Value: clean(r["snapstate"], 20), Threshold: "none", Source: p.snaps.source()}}})
		}
	}
	if len(list) >= manySnapshots {
		f := Flag{Level: Info, Check: "snapshot_chain", Where: p.where, What: "it has many snapshots", excess: float64(len(list)) / manySnapshots, Next: next,
			Evidence: []Evidence{{Figure: "snapshots", Value: fmt.Sprint(len(list)), Threshold: fmt.Sprintf("from %d", manySnapshots), Source: p.snaps.source()}}}
		if file := p.fileDisk(); file != "" { // each read may go through the whole chain there
			f.Level, f.Confidence, f.What = Warning, Possible, "it has many snapshots, and "+file+" is a file that reads through them"
			causes.add(f)
		} else {
			flags.add(f)
		}
	}
	if t := whole(oldest, "snaptime"); t > 0 && age(p.now, t) >= oldSnapshot {
		flags.add(snapshotFlag(p.where, oldest, p.now.Unix(), p.snaps.source(), next))
	}
}

// snapshotFlag tells the oldest snapshot of a guest.
func snapshotFlag(where string, snap estate.Config, now int64, source string, next *Next) Flag {
	t := whole(snap, "snaptime")
	days := (now - t) / 86400
	f := Flag{Level: Info, Check: "snapshot_old", Where: where, What: "snapshot " + clean(snap["name"], 40) + " is old: it holds room that only grows", Since: stamp(t), excess: float64(days) / (oldSnapshot.Hours() / 24), Next: next,
		Evidence: []Evidence{{Figure: "age", Value: fmt.Sprintf("%d days", days), Threshold: fmt.Sprintf("info from %d, warning from %d days", int(oldSnapshot.Hours()/24), int(veryOldSnapshot.Hours()/24)), Source: source}}}
	if days >= int64(veryOldSnapshot.Hours()/24) {
		f.Level = Warning
	}
	return f
}

// fileDisk names a disk that is a qcow2 file.
func (p *patient) fileDisk() string {
	for _, d := range disksOf(p.config.row()) {
		if strings.HasSuffix(d.volume, ".qcow2") {
			return d.key
		}
	}
	return ""
}

func keysOf(c estate.Config, base string) []string {
	var out []string
	for k := range c {
		if b := strings.TrimRight(k, "0123456789"); b == base && k != base {
			out = append(out, k)
		}
	}
	slices.Sort(out)
	return out
}

// network: links that are off, bridges that are missing or down, a firewall that drops.
func (p *patient) network(causes, flags *bag) {
	conf := p.config.row()
	filtered := false
	for _, k := range keysOf(conf, "net") {
		bridge, _ := property(conf[k], "bridge")
		if on, _ := property(conf[k], "firewall"); on == "1" {
			filtered = true
		}
		f := Flag{Where: p.where, Next: p.next("guest_config"), Confidence: Likely}
		if down, _ := property(conf[k], "link_down"); down == "1" {
			f.Level, f.Check, f.What = Warning, "link_down", k+" is switched off (link_down)"
			f.Evidence = []Evidence{{Figure: k + " link_down", Value: "1", Threshold: "0", Source: p.config.source()}}
			causes.add(f)
			continue
		}
		if bridge == "" || !p.host.network.ok() {
			continue
		}
		i := slices.IndexFunc(p.host.network.rows, func(r estate.Config) bool { return r["iface"] == bridge })
		switch {
		case i < 0 && strings.HasPrefix(bridge, "vmbr") && p.seesBridges():
			f.Level, f.Check, f.What = Critical, "bridge_missing", fmt.Sprintf("%s is on bridge %s, which node %s does not have", k, clean(bridge, 30), p.g.Node)
			f.Evidence = []Evidence{{Figure: "interfaces of the node with that name", Value: "0", Threshold: "1", Source: p.host.network.source()}}
			causes.add(f)
		case i >= 0 && p.host.network.rows[i]["active"] != "1":
			f.Level, f.Check, f.What = Critical, "bridge_down", fmt.Sprintf("%s is on bridge %s, which is not up on node %s", k, clean(bridge, 30), p.g.Node)
			f.Evidence = []Evidence{{Figure: "active", Value: cmp.Or(p.host.network.rows[i]["active"], "0"), Threshold: "1", Source: p.host.network.source()}}
			causes.add(f)
		}
	}
	if !filtered || !p.firewall.ok() || !p.cluster.ok() || p.cluster.row()["enable"] != "1" || p.firewall.row()["enable"] != "1" {
		return
	}
	for _, way := range []struct{ key, name, normal string }{{"policy_in", "incoming", "DROP"}, {"policy_out", "outgoing", "ACCEPT"}} {
		policy := strings.ToUpper(cmp.Or(p.firewall.row()[way.key], way.normal))
		if policy != "DROP" && policy != "REJECT" {
			continue
		}
		f := Flag{Level: Info, Check: "firewall_drops", Where: p.where, What: fmt.Sprintf("its firewall is on and %ss %s traffic that no rule allows", strings.ToLower(policy), way.name),
			Next:     &Next{Operation: "call_operation", Arguments: map[string]string{"operation": fmt.Sprintf("GET /nodes/%s/%s/%s/firewall/rules", p.g.Node, p.g.Path(), p.g.ID)}},
			Evidence: []Evidence{{Figure: way.key, Value: policy, Threshold: "ACCEPT", Source: p.firewall.source()}}}
		if way.key == "policy_out" {
			f.Level = Warning
		}
		flags.add(f)
	}
}

// seesBridges says whether the node shows its bridges at all: it hides those that castellan may not use.
func (p *patient) seesBridges() bool {
	g, ok := grantsOf(p.host.rights)
	return ok && g.has("/sdn/zones/localnetwork", "SDN.Audit", "SDN.Use")
}

// highAvailability: what the HA manager says of it.
func (p *patient) highAvailability(causes, flags *bag) {
	if p.ha == nil {
		return
	}
	sid := p.g.Kind + ":" + p.g.ID
	for _, r := range p.ha.rows {
		if r["sid"] != sid {
			continue
		}
		state, wanted := cmp.Or(r["crm_state"], r["state"]), r["request_state"]
		f := Flag{Where: p.where, Evidence: []Evidence{{Figure: "HA state", Value: clean(state, 30) + ", wanted " + clean(wanted, 30), Threshold: "as wanted", Source: p.ha.source()}}, Next: p.next("guest_status")}
		switch {
		case state == "error":
			f.Level, f.Check, f.What, f.Confidence = Critical, "ha_error", "HA has given it up (error): it does nothing until the error is cleared", Certain
			causes.add(f)
		case state == "fence" || state == "recovery":
			f.Level, f.Check, f.What, f.Confidence = Critical, "ha_recovery", "HA is recovering it from a lost node ("+state+")", Likely
			causes.add(f)
		case wanted == "started" && state != "started" && state != "queued" && !slices.Contains([]string{"request_start", "request_start_balance", "migrate", "relocate", "starting"}, state):
			f.Level, f.Check, f.What = Warning, "ha_mismatch", "HA wants it started, and it is not"
			flags.add(f)
		}
		return
	}
	_ = causes
}

// replication of the guest: failures and lag.
func (p *patient) replication(flags *bag) {
	replicationFlags(flags, p.repl, p.now, func(string) bool { return true })
}
