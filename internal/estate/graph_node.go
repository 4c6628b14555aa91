package estate

import (
	"cmp"
	"encoding/json"
	"strings"
	"time"

	"castellan/internal/gate"
)

// network draws a node's interfaces: what each one rests on.
func (d *drawing) network(node string, rows []Config, at time.Time) {
	kinds := map[string]string{}
	for _, r := range rows {
		kinds[r["iface"]] = r["type"]
	}
	named := func(name string) gate.Object {
		if isBridge(kinds[name]) || kinds[name] == "" && d.Vertex(object(gate.ObjectBridge, node+"/"+name)) != nil {
			return object(gate.ObjectBridge, node+"/"+name)
		}
		return object(gate.ObjectInterface, node+"/"+name)
	}
	for _, r := range rows {
		name := r["iface"]
		if name == "" {
			continue
		}
		o := named(name)
		facts := Config{}
		for _, k := range []string{"type", "active", "autostart", "cidr", "cidr6", "gateway", "gateway6", "bridge_vlan_aware", "vlan-id", "vlan-raw-device", "bond_mode", "ovs_bridge", "mtu"} {
			if r[k] != "" {
				facts[k] = r[k]
			}
		}
		word := "interface "
		if o.Kind == gate.ObjectBridge {
			word = "bridge "
		}
		d.Add(Vertex{Object: o, Title: clipTo(word+name+" of node "+node, 100), Read: at, Facts: facts})
		under := func(key, list string) {
			for _, n := range fields(list) {
				if n != "none" && n != name {
					d.edge(o, named(n), EdgeCarries, key)
				}
			}
		}
		under("bridge_ports", r["bridge_ports"])
		under("ovs_ports", r["ovs_ports"])
		under("slaves", r["slaves"])
		under("ovs_bonds", r["ovs_bonds"])
		under("vlan-raw-device", r["vlan-raw-device"])
		if r["vlan-raw-device"] == "" && r["type"] == "vlan" {
			if raw, _, ok := cutLast(name, "."); ok {
				under("vlan-raw-device", raw)
			}
		}
		if r["ovs_bridge"] != "" && !strings.HasPrefix(r["type"], "OVSBridge") {
			d.edge(o, named(r["ovs_bridge"]), EdgeCarries, "ovs_bridge")
		}
		d.edge(o, nodeObject(node), EdgeCarries, "node")
		if o.Kind != gate.ObjectBridge {
			continue
		}
		for i, c := range name { // vmbr0.5 rests on vmbr0 where it is a bridge
			if c == '.' {
				under("vlan", name[:i])
			}
		}
	}
}

func isBridge(kind string) bool { return kind == "bridge" || kind == "OVSBridge" || kind == "vnet" }

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// staged takes an SDN object as it would be once what waits is applied, and says how it differs from what is in force.
func staged(r Config) Config {
	var pending map[string]Text
	out := Config{}
	for k, v := range r {
		out[k] = v
	}
	if json.Unmarshal([]byte(r["pending"]), &pending) == nil {
		for k, v := range pending {
			if _, set := out[k]; !set || out["state"] == "new" {
				out[k] = string(v)
			}
		}
	}
	return out
}

func (d *drawing) zone(r Config, at time.Time) {
	r = staged(r)
	o := object(gate.ObjectZone, r["zone"])
	facts := Config{}
	for _, k := range []string{"type", "state", "nodes", "bridge", "controller", "peers", "exitnodes"} {
		if r[k] != "" {
			facts[k] = r[k]
		}
	}
	d.Add(Vertex{Object: o, Title: "zone " + r["zone"], Read: at, Facts: facts})
	on := fields(r["nodes"])
	if len(on) == 0 {
		on = d.nodes
	}
	for _, n := range on {
		if !hasTo(d.Needs(o, EdgeCarries), nodeObject(n)) {
			d.edge(o, nodeObject(n), EdgeCarries, "")
		}
		if r["bridge"] != "" {
			d.edge(o, object(gate.ObjectBridge, n+"/"+r["bridge"]), EdgeCarries, "bridge")
		}
	}
}

func (d *drawing) vnet(r Config, at time.Time) {
	r = staged(r)
	o := object(gate.ObjectVNet, r["vnet"])
	facts := Config{}
	for _, k := range []string{"zone", "tag", "state", "vlanaware"} {
		if r[k] != "" {
			facts[k] = r[k]
		}
	}
	d.Add(Vertex{Object: o, Title: "vnet " + r["vnet"], Read: at, Facts: facts})
	if r["zone"] != "" {
		d.edge(o, object(gate.ObjectZone, r["zone"]), EdgeCarries, "zone")
	}
}

// volume draws one row of a storage's content.
func (d *drawing) volume(node, storage string, r Config, at time.Time) {
	id := r["volid"]
	if id == "" {
		return
	}
	o := volumeObject(id)
	facts := Config{"content": r["content"]}
	for _, k := range []string{"format", "size", "ctime", "protected", "vmid", "encrypted"} {
		if r[k] != "" {
			facts[k] = r[k]
		}
	}
	if r["content"] == "backup" {
		o.Kind = gate.ObjectArchive
		if owner := cmp.Or(r["vmid"], OwnerOf(strings.TrimPrefix(id, storage+":"))); owner != "" && owner != "0" {
			defer d.edge(o, guestObject(owner), EdgeArchive, "")
		}
	}
	on := node
	if v := d.Vertex(storageObject(storage)); v != nil && v.Facts.On("shared") {
		on = ""
	} else {
		facts["node"] = node
	}
	d.Add(Vertex{Object: o, Title: clipTo(id, 120), Read: at, Facts: facts})
	d.edge(o, storageObject(storage), EdgeStoredOn, on)
	if parent := r["parent"]; parent != "" {
		p, _, _ := strings.Cut(parent, "@")
		if !strings.Contains(p, ":") {
			p = storage + ":" + p
		}
		if p != id {
			d.edge(o, volumeObject(p), EdgeClone, "")
		}
	} else if base := baseOf(storage, strings.TrimPrefix(id, storage+":")); base != "" && o.Kind == gate.ObjectVolume {
		d.edge(o, volumeObject(base), EdgeClone, "")
	}
}

// Ceph is what the site's Ceph says of itself, with its monitors and daemons as JSON text; empty where there is none.
func (s *Survey) Ceph() (Config, bool) {
	a := s.get(ofSite(PartCeph, "GET /cluster/ceph/metadata"), func(a *answer) error {
		err := s.read(a, "", gate.Read{Operation: "GET /cluster/ceph/metadata", Params: map[string]string{"scope": "versions"}})
		if noCeph(err) {
			return nil
		}
		return err
	})
	return one(a.rows, a.gap == nil)
}

// noCeph says that the site runs no Ceph, which is no gap.
func noCeph(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "binary not installed") || strings.Contains(err.Error(), "not initialized") || strings.Contains(err.Error(), "not configured"))
}

// CephPools lists the Ceph pools as a node knows them.
func (s *Survey) CephPools(node string) ([]Config, bool) {
	return s.Rows(PartCephNode, node, gate.Read{Operation: "GET /nodes/{node}/ceph/pool", Params: map[string]string{"node": node}})
}

// ceph draws daemons and pools.
func (d *drawing) ceph(k key, rows []Config, at time.Time) {
	if k.what().op == "GET /nodes/{node}/ceph/pool" {
		for _, r := range rows {
			name := cmp.Or(r["pool_name"], r["name"])
			facts := Config{}
			for _, f := range []string{"size", "min_size", "type"} {
				if r[f] != "" {
					facts[f] = r[f]
				}
			}
			d.Add(Vertex{Object: object(gate.ObjectCeph, "pool/"+name), Title: "Ceph pool " + clip(name), Read: at, Facts: facts})
		}
		return
	}
	for _, r := range rows {
		for _, kind := range []string{"mon", "mgr", "mds", "osd"} {
			d.daemons(kind, r[kind], at)
		}
	}
}

// daemons draws those of one kind: a list, or an object by name.
func (d *drawing) daemons(kind, text string, at time.Time) {
	add := func(id, host string) {
		if id == "" {
			return
		}
		o := object(gate.ObjectCeph, kind+"."+id)
		d.Add(Vertex{Object: o, Title: "Ceph " + clip(o.ID), Read: at})
		if host != "" {
			d.edge(o, nodeObject(host), EdgeServes, "")
		}
	}
	var list []map[string]json.RawMessage
	if json.Unmarshal([]byte(text), &list) == nil {
		for _, x := range list {
			add(unquote(x["id"]), unquote(x["hostname"]))
		}
		return
	}
	var by map[string]map[string]json.RawMessage
	if json.Unmarshal([]byte(text), &by) == nil {
		for name, x := range by {
			id, host, _ := strings.Cut(name, "@")
			add(id, cmp.Or(unquote(x["hostname"]), host))
		}
	}
}
