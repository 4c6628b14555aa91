package estate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"castellan/internal/gate"
)

// Somebody defined what a request names: who is of a group, what a security group lets in, where a zone leads. Whoever
// approved the request has seen what the names stood for then.

// maxDefinitions bounds how many definitions one step rests on.
const maxDefinitions = 40

// definitions collects what the names in one request stand for.
type definitions struct {
	ctx     context.Context
	v       gate.View
	target  string
	seen    map[string]bool
	answers map[string]said
	out     []gate.Condition
	unread  []string
}

type said struct {
	answer gate.Answer
	err    error
}

// rows are the objects of an answer, for going on from them.
type rows []Config

// hold makes what a read shows now a condition, once, and gives its rows. What does not exist must not come to exist.
func (d *definitions) hold(c gate.Condition) rows {
	key := fmt.Sprint(c.Read.Operation, c.Read.Params, c.Pointer, c.Where)
	if d.seen[key] {
		return nil
	}
	d.seen[key] = true
	if len(d.out) >= maxDefinitions {
		d.fail(c.Name, "there are too many names to look at")
		return nil
	}
	answer, err := d.read(c.Read)
	var e *gate.Error
	switch {
	case errors.As(err, &e) && e.Kind == gate.ErrInvalid: // there is no such read
		return nil
	case Gone(err) && !missing(err): // Proxmox itself refuses what names it
		return nil
	case err != nil && !missing(err):
		d.fail(c.Name, err.Error())
		return nil
	case err == nil && len(answer.Missing) > 0:
		d.fail(c.Name, "the answer is incomplete: "+strings.Join(answer.Missing, "; "))
		return nil
	}
	k, ok := d.v.(gate.Keeping)
	if !ok {
		return nil // what is not to be carried out
	}
	if err := k.Keep(d.target, &c, answer.Data); err != nil {
		d.fail(c.Name, err.Error())
		return nil
	}
	d.out = append(d.out, c)
	list, err := rowsOf(answer.Data)
	if err != nil {
		return nil // a list of texts leads nowhere
	}
	return slices.DeleteFunc(list, func(r Config) bool {
		for k, want := range c.Where {
			if r[k] != want {
				return true
			}
		}
		return false
	})
}

// missing says whether the answer is plainly that it is not there, as a condition takes it.
func missing(err error) bool {
	var u *gate.UpstreamError
	var e *gate.Error
	return errors.As(err, &e) && e.Kind == gate.ErrNotFound || errors.As(err, &u) && u.Kind == gate.ErrNotFound
}

// read asks once for what several names rest on.
func (d *definitions) read(r gate.Read) (gate.Answer, error) {
	key := fmt.Sprint(r.Operation, r.Params)
	got, had := d.answers[key]
	if !had {
		got.answer, got.err = d.v.Read(d.ctx, d.target, r)
		d.answers[key] = got
	}
	return got.answer, got.err
}

// list reads rows that names are looked for in.
func (d *definitions) list(operation, what string) []Config {
	answer, err := d.read(gate.Read{Operation: operation})
	list, unread := rowsOf(answer.Data)
	if err = errors.Join(err, unread); err != nil {
		d.fail(what, err.Error())
	}
	return list
}

// fail says once of what kind of thing it is not known whether it stays.
func (d *definitions) fail(name, why string) {
	if text := name + " until then could not be read: " + clipTo(why, 120); !slices.Contains(d.unread, text) {
		d.unread = append(d.unread, text)
	}
}

// object holds one object that a path leads to.
func (d *definitions) object(name, path string, params map[string]string) rows {
	return d.hold(gate.Condition{Name: name, Read: gate.Read{Operation: "GET " + path, Params: params}})
}

// pool holds the members of a pool, and of the pools below it: rights and jobs may reach these too.
func (d *definitions) pool(pool string) {
	members := func(id string) {
		d.hold(gate.Condition{Name: "pool " + clipTo(id, 60) + " holds the same members", Read: gate.Read{Operation: "GET /pools", Params: map[string]string{"poolid": id}}, Pointer: "/0/members", Fields: []string{"id"}})
	}
	members(pool)
	for _, row := range d.list("GET /pools", "what lies below pool "+clipTo(pool, 60)) {
		if strings.HasPrefix(row["poolid"], pool+"/") {
			members(row["poolid"])
		}
	}
}

// request holds what the parameters of a request name. was is the object that it changes, as far as it can be read: what
// it names goes on counting where the request gives nothing else.
func (d *definitions) request(path string, params map[string]string, was Config) {
	get := func(name string) string {
		if text, given := params[name]; given {
			return text
		}
		return was[name]
	}
	switch {
	case strings.HasPrefix(path, "/cluster/backup") && path != "/cluster/backup-info", strings.HasSuffix(path, "/vzdump"):
		if pool := get("pool"); pool != "" && !chooses(params) {
			d.pool(pool)
		}
		if storage := get("storage"); storage != "" && get("prune-backups") == "" && !off(get("remove")) {
			d.hold(gate.Condition{Name: "storage " + clipTo(storage, 60) + " keeps backups as it did", Read: gate.Read{Operation: "GET /storage"}, Where: map[string]string{"storage": storage}, Fields: []string{"prune-backups", "maxfiles", "keep-all"}})
		}
	case strings.HasPrefix(path, "/cluster/ha/resources"):
		if group := get("group"); group != "" {
			d.object("HA group "+clipTo(group, 60)+" is as it was", "/cluster/ha/groups/{group}", map[string]string{"group": group})
		}
		d.haRules(params["sid"])
	case path == "/access/acl":
		for _, g := range splitNames(params["groups"]) {
			d.group(g)
		}
		for _, r := range splitNames(params["roles"]) {
			d.object("role "+clipTo(r, 60)+" is as it was", "/access/roles/{roleid}", map[string]string{"roleid": r})
		}
	case strings.HasPrefix(path, "/cluster/sdn/vnets"):
		d.zone(get("zone"))
	case strings.HasPrefix(path, "/cluster/sdn/zones"):
		d.zoneUses(get)
	case path == "/nodes/{node}/replication/{id}/schedule_now":
		d.object("replication "+clipTo(params["id"], 60)+" is as it was", "/cluster/replication/{id}", map[string]string{"id": params["id"]})
	case strings.HasSuffix(path, "/{vmid}/clone"):
		d.source(path, params)
	case strings.Contains(path, "/firewall/"):
		d.firewall(path, params, was)
	}
	if strings.HasPrefix(path, "/nodes/{node}/qemu") || strings.HasPrefix(path, "/nodes/{node}/lxc") {
		d.networks(params)
		d.disks(path, params)
	}
	d.within(path, params)
}

func off(text string) bool { return text == "0" || text == "false" || text == "no" || text == "off" }

// chooses says whether a job is given another choice of guests than a pool.
func chooses(params map[string]string) bool {
	return params["pool"] == "" && (params["vmid"] != "" || params["all"] != "" && params["all"] != "0")
}

// group holds who is of a group: rights that it gets are theirs.
func (d *definitions) group(id string) {
	d.object("group "+clipTo(id, 60)+" has the same members", "/access/groups/{groupid}", map[string]string{"groupid": id})
}

// haRules holds the rules that name a resource already.
func (d *definitions) haRules(sid string) {
	if sid == "" {
		return
	}
	if _, id, full := strings.Cut(sid, ":"); full {
		sid = id
	}
	answer, err := d.read(gate.Read{Operation: "GET /cluster/ha/rules"})
	list, unread := rowsOf(answer.Data)
	if err != nil || unread != nil {
		return // before version 9 there are none
	}
	for _, row := range list {
		for _, r := range splitNames(row["resources"]) {
			if _, id, _ := strings.Cut(r, ":"); id == sid {
				d.object("HA rule "+clipTo(row["rule"], 60)+" is as it was", "/cluster/ha/rules/{rule}", map[string]string{"rule": row["rule"]})
			}
		}
	}
}

// zone holds an SDN zone with what it names.
func (d *definitions) zone(id string) {
	if id == "" {
		return
	}
	for _, row := range d.object("SDN zone "+clipTo(id, 60)+" is as it was", "/cluster/sdn/zones/{zone}", map[string]string{"zone": id}) {
		d.zoneUses(func(name string) string { return row[name] })
	}
}

func (d *definitions) zoneUses(get func(string) string) {
	for _, use := range [][3]string{{"controller", "/cluster/sdn/controllers/{controller}", "controller"}, {"ipam", "/cluster/sdn/ipams/{ipam}", "ipam"}, {"dns", "/cluster/sdn/dns/{dns}", "dns"}, {"reversedns", "/cluster/sdn/dns/{dns}", "dns"}} {
		if id := get(use[0]); id != "" && id != "pve" {
			d.object("SDN "+use[0]+" "+clipTo(id, 60)+" is as it was", use[1], map[string]string{use[2]: id})
		}
	}
}

// networks holds the vnets among the networks on which a guest is put. Bridges belong to nodes, and a guest may move.
func (d *definitions) networks(params map[string]string) {
	var names []string
	for _, k := range slices.Sorted(maps.Keys(params)) {
		if name, ok := gate.PropertyValue(params[k], "bridge"); ok && strings.HasPrefix(k, "net") && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return
	}
	for _, row := range d.list("GET /cluster/sdn/vnets", "which of "+clipTo(strings.Join(names, ", "), 80)+" are vnets, and what they are") {
		if !slices.Contains(names, row["vnet"]) {
			continue
		}
		for _, v := range d.object("vnet "+clipTo(row["vnet"], 60)+" is as it was", "/cluster/sdn/vnets/{vnet}", map[string]string{"vnet": row["vnet"]}) {
			d.zone(v["zone"])
		}
	}
}

// source holds the settings that a copy takes over.
func (d *definitions) source(path string, params map[string]string) {
	kind, title := "qemu", "VM "
	if strings.HasPrefix(path, "/nodes/{node}/lxc") {
		kind, title = "lxc", "CT "
	}
	read := map[string]string{"node": gate.NodeOf(params["vmid"]), "vmid": params["vmid"]}
	if snap := params["snapname"]; snap != "" {
		read["snapshot"] = snap
	}
	d.object("the settings of "+title+params["vmid"]+" are as they were", "/nodes/{node}/"+kind+"/{vmid}/config", read)
}

// disks holds the keys of disks in a request on a guest to the volumes that they stand for: what is moved, grown, taken away or
// put in the place of another is what was approved. A key that stands for none must not come to stand for one.
func (d *definitions) disks(path string, params map[string]string) {
	kind, _, ok := strings.Cut(strings.TrimPrefix(path, "/nodes/{node}/"), "/{vmid}/")
	if !ok {
		return // one that is yet to be made
	}
	keys := map[string][]string{} // by guest
	add := func(id, key string) {
		if key == "cdrom" {
			key = "ide2"
		}
		if diskKey(key) && id != "" && !slices.Contains(keys[id], key) {
			keys[id] = append(keys[id], key)
		}
	}
	for name, text := range params {
		switch name {
		case "disk", "volume", "idlist", "delete", "revert", "boot", "bootdisk":
			for _, key := range gate.SplitList(strings.ReplaceAll(text, "=", " ")) {
				add(params["vmid"], key)
			}
		case "target-disk", "target-volume":
			add(params["target-vmid"], text)
		default:
			add(params["vmid"], name)
		}
	}
	if to := params["target-vmid"]; to != "" && params["target-disk"]+params["target-volume"] == "" {
		add(to, params["disk"]+params["volume"]) // Proxmox takes the same key there
	}
	for _, id := range slices.Sorted(maps.Keys(keys)) {
		slices.Sort(keys[id])
		d.disksOf(kind, id, keys[id])
	}
}

func (d *definitions) disksOf(kind, id string, keys []string) {
	title := map[string]string{"qemu": "VM ", "lxc": "CT "}[kind] + id
	read := gate.Read{Operation: "GET /nodes/{node}/" + kind + "/{vmid}/config", Params: map[string]string{"node": gate.NodeOf(id), "vmid": id, "current": "1"}}
	answer, err := d.read(read)
	if missing(err) || Gone(err) { // Proxmox itself refuses what names it, or it is made by the plan
		return
	}
	list, unread := rowsOf(answer.Data)
	if err = errors.Join(err, unread); err != nil || len(list) != 1 || len(answer.Missing) > 0 {
		d.fail("which volumes the disks of "+title+" stand for", fmt.Sprint(err))
		return
	}
	for _, key := range keys {
		c := gate.Condition{Name: title + " has no " + key, Read: read, Pointer: "/" + key, Rule: gate.RuleAbsent}
		if text := list[0][key]; strings.TrimSpace(text) != "" {
			c.Rule = gate.RuleEquals
			for _, c.Key = range []string{"-", "file", "volume"} {
				if volume, ok := gate.PropertyValue(text, c.Key); ok {
					c.Name, c.Value = key+" of "+title+" is still "+clipTo(volume, 120), quoted(volume)
					break
				}
			}
			if c.Value == nil {
				continue // it names none
			}
		}
		if len(d.out) >= maxDefinitions {
			d.fail(c.Name, "there are too many names to look at")
			return
		}
		d.out = append(d.out, c)
	}
}

// diskKey says whether a key of a guest's settings holds a volume.
func diskKey(key string) bool {
	return numbered(key, "scsi", "virtio", "sata", "ide", "efidisk", "tpmstate", "mp", "unused") || key == "rootfs"
}

// within holds what the path goes through: the realm that is synchronised, the vnet that gets a subnet. What the path ends
// at is what the request changes.
func (d *definitions) within(path string, params map[string]string) {
	if strings.HasPrefix(path, "/nodes/") || strings.Contains(path, "/firewall/") || strings.HasPrefix(path, "/pools") {
		return
	}
	parts := strings.Split(path, "/")
	for i, part := range parts[:len(parts)-1] {
		if !strings.HasPrefix(part, "{") {
			continue
		}
		above := strings.Join(parts[:i+1], "/")
		read := gate.Read{Operation: "GET " + above, Params: map[string]string{}}
		var name []string
		for _, p := range parts[:i+1] {
			if k := strings.Trim(p, "{}"); k != p {
				read.Params[k] = params[k]
				name = append(name, params[k])
			}
		}
		if answer, err := d.read(read); err == nil && !strings.HasPrefix(strings.TrimSpace(string(answer.Data)), "{") {
			continue // an index
		}
		for _, row := range d.object(strings.Trim(parts[i-1], "{}")+" "+clipTo(strings.Join(name, "/"), 60)+" is as it was", above, read.Params) {
			if strings.HasPrefix(above, "/cluster/sdn/vnets/") {
				d.zone(row["zone"])
			}
		}
	}
}

func splitNames(text string) []string { return gate.SplitList(text) }

// texts are the parameters of a request by name; what is not known before the step is left out.
func texts(r gate.Request) map[string]string {
	out := map[string]string{}
	for _, p := range r.Params {
		var parts []string
		for _, v := range p.Values {
			switch {
			case v.Ref != nil:
				parts = append(parts, v.Ref.Plan)
			case v.Secret == nil:
				parts = append(parts, v.Text)
			}
		}
		out[p.Name] = strings.Join(parts, ",")
	}
	return out
}

// before reads the object that a request changes, and holds it as a whole: what the request leaves alone comes into force
// with what it sets. Only the settings of a guest are many that have nothing to do with each other: of those its steps name
// what they rest on.
func (d *definitions) before(operation string, params map[string]string) Config {
	method, path, _ := strings.Cut(operation, " ")
	if method != "PUT" || path == "/access/acl" || path == "/pools" { // lists of many objects
		return nil
	}
	read := gate.Read{Operation: "GET " + path, Params: map[string]string{}}
	var kind, name string
	for part := range strings.SplitSeq(path, "/") {
		if k := strings.Trim(part, "{}"); k != part {
			read.Params[k], name = params[k], params[k]
		} else {
			kind, name = part, ""
		}
	}
	if vmid := read.Params["vmid"]; vmid != "" {
		read.Params["node"] = gate.NodeOf(vmid)
	}
	answer, err := d.read(read)
	if err == nil && !strings.HasPrefix(strings.TrimSpace(string(answer.Data)), "{") {
		return nil // an index
	}
	if !strings.HasSuffix(path, "/{vmid}/config") {
		d.object(strings.TrimSpace(kind+" "+clipTo(name, 60))+" is as it was", path, read.Params)
	}
	var list rows
	if err == nil {
		list, err = rowsOf(answer.Data)
	}
	if err != nil || len(list) != 1 {
		return nil
	}
	return list[0]
}
