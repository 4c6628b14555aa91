package undo

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"castellan/internal/catalog"
	"castellan/internal/estate"
	"castellan/internal/gate"
)

type rawJSON = json.RawMessage

// request is a step's request, looked at for what it changes.
type request struct {
	k    *Keeper
	ctx  context.Context
	v    gate.View
	step gate.Step
	op   *catalog.Operation
}

// kept are the beginnings of the paths below which there are configurations and nothing else; what is deleted there can
// be written again.
var kept = []string{"/cluster/backup", "/cluster/replication", "/cluster/ha/resources", "/cluster/ha/rules", "/cluster/ha/groups", "/cluster/sdn/", "/cluster/firewall/",
	"/cluster/options", "/cluster/metrics/server", "/cluster/notifications/", "/cluster/mapping/", "/cluster/jobs/", "/cluster/bulk-action/none", "/access/users", "/access/groups",
	"/access/roles", "/access/domains", "/access/acl", "/pools", "/storage", "/nodes/{node}/network", "/nodes/{node}/dns", "/nodes/{node}/hosts", "/nodes/{node}/config",
	"/nodes/{node}/firewall/", "/nodes/{node}/qemu/{vmid}/firewall/", "/nodes/{node}/lxc/{vmid}/firewall/", "/nodes/{node}/qemu/{vmid}/config", "/nodes/{node}/lxc/{vmid}/config",
	"/config/"}

// unkept are exceptions: actions, and what holds more than can be read.
var unkept = []string{"/tfa", "/unlock-tfa", "/sync", "/test", "/schedule_now", "/migrate", "/relocate", "/lock", "/rollback", "/cluster/sdn/dry-run", "/ips"}

func keeps(path string) bool {
	if slices.ContainsFunc(unkept, func(end string) bool { return strings.HasSuffix(path, end) || strings.Contains(path, end+"/") }) {
		return false
	}
	return slices.ContainsFunc(kept, func(begin string) bool {
		return path == begin || strings.HasPrefix(path, strings.TrimSuffix(begin, "/")+"/")
	})
}

// sheets lists what the request changes; none when it is no change of a configuration.
func (r *request) sheets() ([]gate.Sheet, error) {
	path := r.op.Path
	if r.op.Product == "pve" {
		switch {
		case path == "/access/acl":
			return []gate.Sheet{aclSheet(map[string]string{"path": r.text("path")})}, nil
		case path == "/pools", path == "/pools/{poolid}":
			return r.pool()
		case strings.HasSuffix(path, "/snapshot") && r.op.Method == "POST":
			return r.snapshot(), nil
		case r.makesGuest():
			return r.newGuest(), nil
		case path == "/cluster/backup" && r.op.Method == "POST" && r.text("id") == "":
			return []gate.Sheet{{Name: "backup jobs", Form: gate.SheetSet, Read: gate.Read{Operation: "GET /cluster/backup"}, Create: "POST /cluster/backup", Update: "PUT /cluster/backup/{id}", Delete: "DELETE /cluster/backup/{id}"}}, nil
		}
	}
	if !keeps(path) || r.op.Method != "PUT" && r.op.Method != "POST" && r.op.Method != "DELETE" {
		return nil, nil
	}
	if strings.HasSuffix(path, "/{pos}") || r.op.Method == "POST" && r.has("GET", path+"/{pos}") {
		return r.rules()
	}
	sheet, err := r.object()
	if err != nil || sheet == nil {
		return nil, err
	}
	more, err := r.alongside(*sheet)
	return append([]gate.Sheet{*sheet}, more...), err
}

func (r *request) text(name string) string { return r.step.API.Text(name) }

func (r *request) has(method, path string) bool {
	_, ok := r.k.c.Catalog.Lookup(r.op.Product, method+" "+path)
	return ok
}

func (r *request) id(method, path string) string {
	if r.has(method, path) {
		return method + " " + path
	}
	return ""
}

// place are the values of a path, from the request's own.
func (r *request) place(path string) (map[string]string, bool) {
	out := map[string]string{}
	for _, name := range placeholders(path) {
		text := r.text(name)
		if text == "" {
			return nil, false
		}
		out[name] = text
	}
	if vmid := out["vmid"]; vmid != "" && out["node"] != "" {
		out["node"] = gate.NodeOf(vmid)
	}
	return out, true
}

func placeholders(path string) (out []string) {
	for part := range strings.SplitSeq(path, "/") {
		if strings.HasPrefix(part, "{") && strings.HasSuffix(part, "}") {
			out = append(out, strings.Trim(part, "{}"))
		}
	}
	return out
}

// object finds the one object that the request makes, changes or deletes.
func (r *request) object() (*gate.Sheet, error) {
	path := r.op.Path
	own := r.op
	if r.op.Method == "POST" && !guestConfig(path) {
		switch below := r.below(); {
		case below != "":
			path = below
		case r.has("DELETE", path), r.has("GET", path) && !r.lists(path): // made or set by a POST to its own path
		default:
			return nil, nil
		}
	}
	place, ok := r.place(path)
	if !ok && path == "/cluster/sdn/vnets/{vnet}/subnets/{subnet}" {
		place, ok = r.subnet()
	}
	if !ok {
		return nil, nil
	}
	if path == "/cluster/sdn/vnets/{vnet}/subnets/{subnet}" && r.op.Method == "POST" {
		if place, ok = r.subnet(); !ok {
			return nil, errUnread
		}
	}
	parent := path[:max(0, strings.LastIndexByte(path, '/'))]
	s := &gate.Sheet{Name: where(path, place), Form: gate.SheetObject, Place: place, Update: r.id("PUT", path), Delete: r.id("DELETE", path), Create: r.id("POST", path)}
	if s.Update == "" && own.Method == "POST" && path == own.Path && s.Delete == "" {
		s.Update, s.Create = own.ID, ""
	}
	if guestConfig(path) {
		s.Create = ""
	} else if strings.HasSuffix(path, "}") && (s.Create == "" || r.lists(path)) { // a POST to what lists adds to it
		s.Create = r.id("POST", parent)
	}
	switch {
	case r.has("GET", path) && !r.lists(path) && !vague(path):
		s.Read = gate.Read{Operation: "GET " + path, Params: copied(place)}
	case strings.HasSuffix(path, "}") && r.has("GET", parent):
		name := strings.Trim(path[strings.LastIndexByte(path, '/')+1:], "{}")
		params := copied(place)
		delete(params, name)
		s.Read, s.Where = gate.Read{Operation: "GET " + parent, Params: params}, map[string]string{name: place[name]}
	default:
		return nil, nil
	}
	return s, nil
}

// vague: asked for one that does not exist, Proxmox calls the name a wrong parameter. The listing tells it.
func vague(path string) bool {
	return path == "/nodes/{node}/network/{iface}" || strings.HasSuffix(path, "/firewall/ipset/{name}/{cidr}")
}

// lists says whether a read answers with a list.
func (r *request) lists(path string) bool {
	op, ok := r.k.c.Catalog.Lookup(r.op.Product, "GET "+path)
	return ok && op.Facts.Returns != nil && op.Facts.Returns.Type == "array"
}

// below is the path of the object that a POST to a collection makes, where the request names it.
func (r *request) below() string {
	for _, o := range r.k.c.Catalog.Operations(r.op.Product) {
		rest, ok := strings.CutPrefix(o.Path, r.op.Path+"/{")
		if o.Method == "DELETE" && ok && !strings.Contains(rest, "/") && (r.text(strings.TrimSuffix(rest, "}")) != "") {
			return o.Path
		}
	}
	return ""
}

// subnet is the place of a subnet that is made: its id is made of zone and address.
func (r *request) subnet() (map[string]string, bool) {
	vnet, cidr := r.text("vnet"), r.text("subnet")
	if r.op.Method != "POST" {
		return map[string]string{"vnet": vnet, "subnet": cidr}, vnet != "" && cidr != ""
	}
	img, err := gate.LookAt(r.ctx, r.v, r.step.Target, gate.Sheet{Name: "vnet " + vnet, Form: gate.SheetObject, Read: gate.Read{Operation: "GET /cluster/sdn/vnets/{vnet}", Params: map[string]string{"vnet": vnet}}})
	if err != nil || len(img.Rows) != 1 {
		return nil, false
	}
	zone, _ := scalar(img.Rows[0]["zone"])
	if strings.HasPrefix(cidr, zone+"-") {
		return map[string]string{"vnet": vnet, "subnet": cidr}, zone != ""
	}
	return map[string]string{"vnet": vnet, "subnet": zone + "-" + strings.ReplaceAll(cidr, "/", "-")}, zone != ""
}

// rules are the list of firewall rules that the request changes.
func (r *request) rules() ([]gate.Sheet, error) {
	list := strings.TrimSuffix(r.op.Path, "/{pos}")
	place, ok := r.place(list)
	if !ok || !r.has("GET", list) {
		return nil, nil
	}
	return []gate.Sheet{{Name: where(list, place), Form: gate.SheetList, Place: place, Read: gate.Read{Operation: "GET " + list, Params: place},
		Create: r.id("POST", list), Update: r.id("PUT", list+"/{pos}"), Delete: r.id("DELETE", list+"/{pos}")}}, nil
}

func aclSheet(w map[string]string) gate.Sheet {
	name := "ACL"
	for _, k := range slices.Sorted(maps.Keys(w)) {
		name += " of " + w[k]
	}
	return gate.Sheet{Name: name, Form: gate.SheetSet, Read: gate.Read{Operation: "GET /access/acl"}, Where: w, Fields: []string{"path", "type", "ugid", "roleid", "propagate"}, Update: "PUT /access/acl"}
}

func poolSheet(pool string) gate.Sheet {
	return gate.Sheet{Name: "members of pool " + pool, Form: gate.SheetSet, Read: gate.Read{Operation: "GET /pools", Params: map[string]string{"poolid": pool}}, At: "/0/members",
		Fields: []string{"vmid", "storage", "type"}, Update: "PUT /pools", Place: map[string]string{"poolid": pool}}
}

// pool are the comment and the members of a pool, and those of the pools from which guests are moved.
func (r *request) pool() ([]gate.Sheet, error) {
	id := r.text("poolid")
	out := []gate.Sheet{{Name: "pool " + id, Form: gate.SheetObject, Read: gate.Read{Operation: "GET /pools", Params: map[string]string{"poolid": id}}, Where: map[string]string{"poolid": id},
		Fields: []string{"poolid", "comment"}, Create: "POST /pools", Update: "PUT /pools", Delete: "DELETE /pools", Place: map[string]string{"poolid": id}}}
	if r.op.Method != "PUT" || r.text("vms") == "" && r.text("storage") == "" {
		return out, nil
	}
	out = append(out, poolSheet(id))
	if r.text("allow-move") != "1" {
		return out, nil
	}
	var refs []gate.Reference
	for _, vm := range listed(r.text("vms")) {
		refs = append(refs, gate.Reference{Object: gate.Object{Kind: gate.ObjectGuest, ID: vm}, Use: gate.UseActs})
	}
	facts, err := r.k.c.Estate.Describe(r.ctx, r.v, r.step.Target, refs)
	if err != nil {
		return nil, fmt.Errorf("look for the pools that guests are in: %w", err)
	}
	var others []string
	for _, f := range facts {
		if !f.Known {
			return nil, fmt.Errorf("it is not known which pool %s is in", f.Object)
		}
		// The innermost pool comes first; the others are those around it.
		if len(f.Pools) > 0 && !slices.Contains(others, f.Pools[0]) && f.Pools[0] != id {
			others = append(others, f.Pools[0])
			out = append(out, poolSheet(f.Pools[0]))
		}
	}
	return out, nil
}

func (r *request) snapshot() []gate.Sheet {
	place, ok := r.place(r.op.Path)
	if !ok || r.text("snapname") == "" {
		return nil
	}
	name := r.text("snapname")
	return []gate.Sheet{{Name: "snapshot " + name + " of guest " + place["vmid"], Form: gate.SheetObject, Read: gate.Read{Operation: "GET " + r.op.Path, Params: place},
		Where: map[string]string{"name": name}, Fields: []string{"name", "snaptime"}, Create: r.op.ID, Delete: "DELETE " + r.op.Path + "/{snapname}",
		Place: map[string]string{"node": place["node"], "vmid": place["vmid"], "snapname": name}}}
}

// makesGuest says whether the request makes a guest: creation, restore, clone.
func (r *request) makesGuest() bool {
	switch r.op.ID {
	case "POST /nodes/{node}/qemu", "POST /nodes/{node}/lxc", "POST /nodes/{node}/qemu/{vmid}/clone", "POST /nodes/{node}/lxc/{vmid}/clone":
		return true
	}
	return false
}

// newGuest is the listing of a guest that is not there yet; of one that is overwritten there is no way back.
func (r *request) newGuest() []gate.Sheet {
	id := r.text("newid")
	if id == "" {
		id = r.text("vmid")
	}
	if id == "" {
		return nil
	}
	kind := "qemu"
	if strings.HasPrefix(r.op.Path, "/nodes/{node}/lxc") {
		kind = "lxc"
	}
	place := map[string]string{"node": gate.NodeOf(id), "vmid": id}
	return []gate.Sheet{{Name: "guest " + id, Form: gate.SheetObject, Read: gate.Read{Operation: "GET /cluster/resources", Params: map[string]string{"type": "vm"}}, Where: map[string]string{"vmid": id},
		Fields: []string{"vmid", "type", "node"}, Delete: "DELETE /nodes/{node}/" + kind + "/{vmid}", Place: place},
		{Name: "the settings of guest " + id, Form: gate.SheetObject, Read: gate.Read{Operation: "GET /nodes/{node}/" + kind + "/{vmid}/config", Params: place}, Fields: []string{"digest"}, Place: place}}
}

// alongside are sheets of what Proxmox changes with an object: entries of the access list go with a user, a group, a role
// or a token, members with a group or a set.
func (r *request) alongside(s gate.Sheet) (out []gate.Sheet, err error) {
	if r.op.ID != s.Delete || r.op.Product != "pve" {
		return nil, nil
	}
	switch r.op.Path {
	case "/access/users/{userid}":
		return []gate.Sheet{aclSheet(map[string]string{"ugid": s.Place["userid"]})}, nil
	case "/access/groups/{groupid}":
		out = []gate.Sheet{aclSheet(map[string]string{"ugid": s.Place["groupid"], "type": "group"})}
		members, err := r.column(s.Read, "members")
		for _, m := range members {
			out = append(out, gate.Sheet{Name: "user " + m, Form: gate.SheetObject, Read: gate.Read{Operation: "GET /access/users/{userid}", Params: map[string]string{"userid": m}}, Fields: []string{"groups"},
				Update: "PUT /access/users/{userid}", Place: map[string]string{"userid": m}})
		}
		return out, err
	case "/access/roles/{roleid}":
		return []gate.Sheet{aclSheet(map[string]string{"roleid": s.Place["roleid"]})}, nil
	case "/access/users/{userid}/token/{tokenid}":
		return []gate.Sheet{aclSheet(map[string]string{"ugid": s.Place["userid"] + "!" + s.Place["tokenid"]})}, nil
	case "/cluster/ha/resources/{sid}":
		return r.haRules(s.Place["sid"])
	}
	if strings.HasSuffix(r.op.Path, "/firewall/ipset/{name}") {
		item := r.op.Path + "/{cidr}"
		entries, err := r.rows(gate.Read{Operation: "GET " + r.op.Path, Params: s.Place}, "cidr")
		for _, e := range entries {
			place := copied(s.Place)
			place["cidr"] = e
			out = append(out, gate.Sheet{Name: where(item, place), Form: gate.SheetObject, Read: gate.Read{Operation: "GET " + r.op.Path, Params: s.Place}, Where: map[string]string{"cidr": e},
				Create: "POST " + r.op.Path, Update: "PUT " + item, Delete: "DELETE " + item, Place: place})
		}
		return out, err
	}
	return nil, nil
}

// haRules are the rules that name a resource: they may lose it, or go with it.
func (r *request) haRules(sid string) (out []gate.Sheet, err error) {
	a, err := r.v.Read(r.ctx, r.step.Target, gate.Read{Operation: "GET /cluster/ha/rules"})
	if err != nil {
		return nil, nil // before PVE 9 there are none
	}
	var rows []struct {
		Rule      string `json:"rule"`
		Resources string `json:"resources"`
	}
	if err := json.Unmarshal(a.Data, &rows); err != nil {
		return nil, fmt.Errorf("read the HA rules: %w", err)
	}
	for _, row := range rows {
		if slices.Contains(listed(row.Resources), sid) {
			out = append(out, gate.Sheet{Name: "HA rule " + row.Rule, Form: gate.SheetObject, Read: gate.Read{Operation: "GET /cluster/ha/rules/{rule}", Params: map[string]string{"rule": row.Rule}},
				Create: "POST /cluster/ha/rules", Update: "PUT /cluster/ha/rules/{rule}", Delete: "DELETE /cluster/ha/rules/{rule}", Place: map[string]string{"rule": row.Rule}})
		}
	}
	return out, nil
}

// column reads a list of texts in a field of one object.
func (r *request) column(read gate.Read, field string) ([]string, error) {
	a, err := r.v.Read(r.ctx, r.step.Target, read)
	if estate.Gone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var row map[string]json.RawMessage
	var out []string
	if err := json.Unmarshal(a.Data, &row); err != nil {
		return nil, err
	}
	if len(row[field]) > 0 {
		err = json.Unmarshal(row[field], &out)
	}
	return out, err
}

// rows reads one field of each row.
func (r *request) rows(read gate.Read, field string) ([]string, error) {
	img, err := gate.LookAt(r.ctx, r.v, r.step.Target, gate.Sheet{Name: read.Operation, Form: gate.SheetSet, Read: read})
	var out []string
	for _, row := range img.Rows {
		text, _ := scalar(row[field])
		out = append(out, text)
	}
	return out, err
}

func guestConfig(path string) bool {
	return path == "/nodes/{node}/qemu/{vmid}/config" || path == "/nodes/{node}/lxc/{vmid}/config"
}
