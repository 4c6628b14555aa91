package undo

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"castellan/internal/estate"
	"castellan/internal/gate"
	"castellan/internal/regex"
)

// unused looks whether anything uses an object that a plan made. It refuses, naming the use; what can be looked at again
// just before the deletion becomes a condition. What cannot be read counts as used.
func (b *back) unused(s gate.Sheet, row map[string]rawJSON) ([]gate.Condition, error) {
	u := &uses{b: b, s: s}
	op := s.Delete
	switch {
	case guestOf(s) != "":
		return u.guest(s.Place["vmid"], row)
	case b.product != "pve":
		u.elsewhere()
	case op == "DELETE /storage/{storage}":
		u.storage(s.Place["storage"])
	case op == "DELETE /pools":
		u.emptyList("pool "+s.Place["poolid"]+" has no members", gate.Read{Operation: "GET /pools", Params: map[string]string{"poolid": s.Place["poolid"]}}, "/0/members")
		u.none("an ACL entry", gate.Read{Operation: "GET /access/acl"}, map[string]string{"path": "/pool/" + s.Place["poolid"]})
		u.none("a backup job", gate.Read{Operation: "GET /cluster/backup"}, map[string]string{"pool": s.Place["poolid"]})
		u.rows("pool", gate.Read{Operation: "GET /pools"}, func(r map[string]string) bool { return strings.HasPrefix(r["poolid"], s.Place["poolid"]+"/") }, "poolid")
	case op == "DELETE /access/users/{userid}":
		id := s.Place["userid"]
		u.none("an ACL entry of "+id, gate.Read{Operation: "GET /access/acl"}, map[string]string{"ugid": id})
		u.emptyList("user "+id+" has no API tokens", gate.Read{Operation: "GET /access/users/{userid}/token", Params: map[string]string{"userid": id}}, "")
	case op == "DELETE /access/groups/{groupid}":
		id := s.Place["groupid"]
		u.none("an ACL entry of group "+id, gate.Read{Operation: "GET /access/acl"}, map[string]string{"ugid": id, "type": "group"})
		u.emptyList("group "+id+" has no members", gate.Read{Operation: "GET /access/groups/{groupid}", Params: map[string]string{"groupid": id}}, "/members")
	case op == "DELETE /access/roles/{roleid}":
		u.none("an ACL entry with role "+s.Place["roleid"], gate.Read{Operation: "GET /access/acl"}, map[string]string{"roleid": s.Place["roleid"]})
	case strings.HasSuffix(op, "/token/{tokenid}"):
		id := s.Place["userid"] + "!" + s.Place["tokenid"]
		u.none("an ACL entry of "+id, gate.Read{Operation: "GET /access/acl"}, map[string]string{"ugid": id})
	case op == "DELETE /access/domains/{realm}":
		u.rows("user", gate.Read{Operation: "GET /access/users"}, func(r map[string]string) bool { return strings.HasSuffix(r["userid"], "@"+s.Place["realm"]) }, "userid")
		u.none("a realm-sync job", gate.Read{Operation: "GET /cluster/jobs/realm-sync"}, map[string]string{"realm": s.Place["realm"]})
	case op == "DELETE /cluster/sdn/controllers/{controller}", op == "DELETE /cluster/sdn/ipams/{ipam}", op == "DELETE /cluster/sdn/dns/{dns}", op == "DELETE /cluster/sdn/fabrics/fabric/{id}":
		u.ofZones(s)
	case op == "DELETE /cluster/sdn/zones/{zone}":
		u.none("a vnet", gate.Read{Operation: "GET /cluster/sdn/vnets"}, map[string]string{"zone": s.Place["zone"]})
	case op == "DELETE /cluster/sdn/vnets/{vnet}":
		u.emptyList("vnet "+s.Place["vnet"]+" has no subnets", gate.Read{Operation: "GET /cluster/sdn/vnets/{vnet}/subnets", Params: map[string]string{"vnet": s.Place["vnet"]}}, "")
		u.configs("a network card of", func(key, text string) bool {
			return strings.HasPrefix(key, "net") && part(text, "bridge", s.Place["vnet"])
		}, "")
	case op == "DELETE /nodes/{node}/network/{iface}":
		u.iface(s.Place["node"], s.Place["iface"])
	case op == "DELETE /cluster/ha/groups/{group}":
		u.none("an HA resource", gate.Read{Operation: "GET /cluster/ha/resources"}, map[string]string{"group": s.Place["group"]})
	case op == "DELETE /cluster/ha/resources/{sid}":
		t, err := b.v.Target(b.target)
		if err != nil {
			u.unread("the version of the site", err)
		}
		if estate.Before9(b.ctx, b.v, t) {
			break // a group does not list its resources: they name it
		}
		u.rows("HA rule", gate.Read{Operation: "GET /cluster/ha/rules"}, func(r map[string]string) bool { return slices.Contains(listed(r["resources"]), s.Place["sid"]) }, "rule")
	case strings.Contains(op, "/notifications/endpoints/"):
		u.rows("notification matcher", gate.Read{Operation: "GET /cluster/notifications/matchers"}, func(r map[string]string) bool {
			return strings.Contains(r["target"], `"`+s.Place["name"]+`"`) || r["target"] == s.Place["name"]
		}, "name")
	case strings.HasPrefix(op, "DELETE /cluster/mapping/"):
		u.configs("a device or share of", func(key, text string) bool {
			return part(text, "mapping", s.Place["id"]) || strings.HasPrefix(key, "virtiofs") && (part(text, "dirid", s.Place["id"]) || part(text, "-", s.Place["id"]))
		}, "")
	case strings.HasSuffix(op, "/firewall/aliases/{name}"):
		u.firewall(s, func(text string) bool { return mentions(text, s.Place["name"]) })
		u.sets(s)
	case strings.HasSuffix(op, "/firewall/ipset/{name}"):
		u.emptyList("ipset "+s.Place["name"]+" is empty", gate.Read{Operation: strings.Replace(op, "DELETE ", "GET ", 1), Params: s.Place}, "")
		u.firewall(s, func(text string) bool { return strings.Contains(text, "+") && mentions(text, s.Place["name"]) })
	case op == "DELETE /cluster/firewall/groups/{group}":
		u.emptyList("security group "+s.Place["group"]+" has no rules", gate.Read{Operation: "GET /cluster/firewall/groups/{group}", Params: s.Place}, "")
		u.firewall(s, func(text string) bool { return text == s.Place["group"] })
	}
	return u.conditions, u.err
}

// alone are what nothing else of a Backup Server, a Mail Gateway or a Datacenter Manager rests on: jobs, limits, single
// entries of lists, where figures go.
var alone = []string{"/config/prune/{id}", "/config/verify/{id}", "/config/sync/{id}", "/config/tape-backup-job/{id}", "/config/traffic-control/{name}", "/config/metrics/influxdb-http/{name}",
	"/config/metrics/influxdb-udp/{name}", "/config/notifications/matchers/{name}", "/config/customscores/{name}", "/config/domains/{domain}", "/config/fetchmail/{id}", "/config/mynetworks/{cidr}",
	"/config/tls-inbound-domains/{domain}", "/config/tlspolicy/{destination}", "/config/transport/{domain}", "/config/welcomelist/objects/{id}", "/config/whitelist/objects/{id}",
	"/config/ruledb/what/{ogroup}/objects/{id}", "/config/ruledb/when/{ogroup}/objects/{id}", "/config/ruledb/who/{ogroup}/objects/{id}", "/config/ruledb/rules/{id}/action/{ogroup}",
	"/config/ruledb/rules/{id}/from/{ogroup}", "/config/ruledb/rules/{id}/to/{ogroup}", "/config/ruledb/rules/{id}/what/{ogroup}", "/config/ruledb/rules/{id}/when/{ogroup}"}

// elsewhere looks at objects of the other products. A key, a datastore, a tape pool may be what backups rest on; of what is
// not known to be unused nothing is deleted.
func (u *uses) elsewhere() {
	place := u.s.Place
	switch path := pathOf(u.s.Delete); {
	case slices.Contains(alone, path), path == "/access/users/{userid}" && u.b.product == "pmg":
	case path == "/config/datastore/{name}":
		u.datastore(place["name"])
	case path == "/config/remote/{name}":
		u.none("a sync job", gate.Read{Operation: "GET /config/sync"}, map[string]string{"remote": place["name"]})
	case path == "/access/users/{userid}":
		id := place["userid"]
		u.none("an ACL entry of "+id, gate.Read{Operation: "GET /access/acl"}, map[string]string{"ugid": id})
		u.emptyList("user "+id+" has no API tokens", gate.Read{Operation: "GET /access/users/{userid}/token", Params: map[string]string{"userid": id}}, "")
	case path == "/access/users/{userid}/token/{token-name}":
		id := place["userid"] + "!" + place["token-name"]
		u.none("an ACL entry of "+id, gate.Read{Operation: "GET /access/acl"}, map[string]string{"ugid": id})
	case strings.HasPrefix(path, "/config/access/"):
		u.rows("user", gate.Read{Operation: "GET /access/users"}, func(r map[string]string) bool { return strings.HasSuffix(r["userid"], "@"+place["realm"]) }, "userid")
	case strings.HasPrefix(path, "/config/notifications/endpoints/"):
		u.rows("notification matcher", gate.Read{Operation: "GET /config/notifications/matchers"}, func(r map[string]string) bool {
			return strings.Contains(r["target"], `"`+place["name"]+`"`) || r["target"] == place["name"]
		}, "name")
	default:
		u.unread("what rests on it", errors.New("castellan does not know what can"))
	}
}

// datastore: it holds no backups, in any namespace, and no job names it.
func (u *uses) datastore(name string) {
	all, err := u.b.look(gate.Sheet{Name: "namespaces", Form: gate.SheetSet, Read: gate.Read{Operation: "GET /admin/datastore/{store}/namespace", Params: map[string]string{"store": name}}})
	if err != nil {
		u.unread("its namespaces", err)
		return
	}
	spaces := []string{""}
	for _, row := range all.Rows {
		if ns := shown(row["ns"]); ns != "" {
			spaces = append(spaces, ns)
		}
	}
	for _, ns := range spaces {
		params := map[string]string{"store": name}
		if ns != "" {
			params["ns"] = ns
		}
		u.emptyList("there are no backups in "+strings.TrimSpace(name+" "+ns), gate.Read{Operation: "GET /admin/datastore/{store}/groups", Params: params}, "")
	}
	for _, job := range []string{"sync", "verify", "prune"} {
		u.none("a "+job+" job", gate.Read{Operation: "GET /config/" + job}, map[string]string{"store": name})
	}
	u.none("an ACL entry", gate.Read{Operation: "GET /access/acl"}, map[string]string{"path": "/datastore/" + name})
}

// uses gathers what uses one object.
type uses struct {
	b          *back
	s          gate.Sheet
	conditions []gate.Condition
	err        error
}

func (u *uses) used(by string) {
	if u.err == nil {
		u.err = fail("Take it out of use first, or leave it.", "%s is in use since it was made: %s. It is not deleted", u.s.Name, clip(by, 200))
	}
}

func (u *uses) unread(what string, err error) {
	if u.err == nil {
		u.err = gate.Fail(gate.ErrUnavailable, "Try again when it answers, or give castellan the right to read it.", "whether %s is in use cannot be told: %s could not be read: %s", u.s.Name, what, clip(err.Error(), 200))
	}
}

// none: no row of a list has these texts, now and just before the deletion.
func (u *uses) none(what string, read gate.Read, where map[string]string) {
	if u.err != nil {
		return
	}
	img, err := u.b.look(gate.Sheet{Name: read.Operation, Form: gate.SheetSet, Read: read, Where: where})
	if err != nil {
		u.unread(what, err)
		return
	}
	if rows := u.b.others(read, img); len(rows) > 0 {
		u.used(what + " (" + content(rows[0]) + ")")
		return
	}
	u.conditions = append(u.conditions, gate.Condition{Name: u.s.Name + " is not named by " + what, Read: read, Where: where, Rule: gate.RuleAbsent})
}

// emptyList: a list is empty, now and just before the deletion.
func (u *uses) emptyList(name string, read gate.Read, at string) {
	if u.err != nil {
		return
	}
	img, err := u.b.look(gate.Sheet{Name: read.Operation, Form: gate.SheetSet, Read: read, At: at})
	if err != nil && at == "/members" { // members are texts, not rows
		u.members(name, read)
		return
	}
	if err != nil {
		u.unread(name, err)
		return
	}
	if rows := u.b.others(read, img); len(rows) > 0 {
		u.used("it is not so that " + name + ": " + content(rows[0]))
		return
	}
	u.conditions = append(u.conditions, gate.Condition{Name: name, Read: read, Pointer: at, Rule: gate.RuleEquals, Value: jsonText("[]")})
}

// drop notes that this plan takes a row out of a listing, told by these fields.
func (b *back) drop(path string, row map[string]rawJSON) {
	fields := map[string]string{}
	for k, v := range row {
		if text := shown(v); text != "" && !slices.Contains(figures, k) {
			fields[k] = text
		}
	}
	b.dropped[b.target+" "+path] = append(b.dropped[b.target+" "+path], fields)
}

// others are the rows of a listing that this plan does not take out of it.
func (b *back) others(read gate.Read, img gate.Image) []map[string]rawJSON {
	dropped := b.dropped[b.target+" "+strings.TrimPrefix(read.Operation, "GET ")]
	return slices.DeleteFunc(slices.Clone(img.Rows), func(row map[string]rawJSON) bool {
		return slices.ContainsFunc(dropped, func(d map[string]string) bool {
			for k, v := range d {
				if shown(row[k]) != v {
					return false
				}
			}
			return len(d) > 0
		})
	})
}

func orNull(raw rawJSON) rawJSON {
	if len(raw) == 0 {
		return rawJSON("null")
	}
	return raw
}

func (u *uses) members(name string, read gate.Read) {
	a, err := u.b.v.Read(u.b.ctx, u.b.target, read)
	if err != nil {
		u.unread(name, err)
		return
	}
	var row struct {
		Members []string `json:"members"`
	}
	if err := json.Unmarshal(a.Data, &row); err != nil {
		u.unread(name, err)
		return
	}
	others := slices.DeleteFunc(slices.Clone(row.Members), func(m string) bool {
		var groups []string
		raw, set := u.b.groups[m]
		return set && json.Unmarshal(orNull(raw), &groups) == nil && !slices.Contains(groups, u.s.Place["groupid"])
	})
	if len(others) > 0 {
		u.used("it has the members " + strings.Join(others, ", "))
	}
	c := gate.Condition{Name: name, Read: read, Pointer: "/members", Rule: gate.RuleEquals, Value: jsonText("[]")}
	if row.Members == nil {
		c.Rule, c.Value = gate.RuleAbsent, nil
	}
	u.conditions = append(u.conditions, c)
}

// rows: no row of a list is such a one, as far as it can be told now.
func (u *uses) rows(what string, read gate.Read, is func(map[string]string) bool, id string) {
	if u.err != nil {
		return
	}
	img, err := u.b.look(gate.Sheet{Name: read.Operation, Form: gate.SheetSet, Read: read})
	if err != nil {
		u.unread(what+"s", err)
		return
	}
	for _, row := range u.b.others(read, img) {
		flat := map[string]string{}
		for k, v := range row {
			flat[k] = shown(v)
		}
		if is(flat) {
			u.used(what + " " + flat[id])
		}
	}
}

// configs: no guest's settings name it. node limits it to the guests of one node.
func (u *uses) configs(what string, is func(key, text string) bool, node string) {
	if u.err != nil {
		return
	}
	inv, err := estate.Load(u.b.ctx, u.b.v, u.b.target)
	if err != nil {
		u.unread("the list of guests", err)
		return
	}
	if len(inv.Missing) > 0 {
		u.unread("the list of guests", fmt.Errorf("incomplete: %s", strings.Join(inv.Missing, "; ")))
		return
	}
	for _, g := range inv.Guests {
		if node != "" && g.Node != node {
			continue
		}
		c, _, err := estate.ReadConfig(u.b.ctx, u.b.v, u.b.target, g)
		if estate.Gone(err) {
			continue
		}
		if err != nil {
			u.unread("the settings of "+g.Title(), err)
			return
		}
		for k, text := range c {
			if is(k, text) {
				u.used(what + " " + g.Title() + " (" + k + ")")
				return
			}
		}
	}
}

// part says whether a property string has this value under the key.
func part(text, key, want string) bool {
	got, ok := gate.PropertyValue(text, key)
	return ok && got == want
}

func (u *uses) storage(name string) {
	inv, err := estate.Load(u.b.ctx, u.b.v, u.b.target)
	if err != nil {
		u.unread("the list of storages", err)
		return
	}
	seen := false
	for _, st := range inv.Storages {
		if st.Name != name {
			continue
		}
		if node, err := inv.Node(st.Node); err != nil || node.Status != "online" {
			u.unread("its content on node "+st.Node, fmt.Errorf("the node is not online"))
			return
		}
		seen = true
		u.emptyList("there is nothing on storage "+name+" of node "+st.Node, gate.Read{Operation: "GET /nodes/{node}/storage/{storage}/content", Params: map[string]string{"node": st.Node, "storage": name}}, "")
	}
	if !seen {
		u.unread("its content", fmt.Errorf("no node shows it"))
	}
	u.configs("a disk of", func(_, text string) bool {
		return regexp.MustCompile(`(^|[=,])` + regexp.QuoteMeta(name) + `:`).MatchString(text)
	}, "")
	u.none("a backup job", gate.Read{Operation: "GET /cluster/backup"}, map[string]string{"storage": name})
	u.rows("backup job that holds back writes on it,", gate.Read{Operation: "GET /cluster/backup"}, func(r map[string]string) bool {
		return strings.Contains(r["fleecing"], `"storage":"`+name+`"`) || part(r["fleecing"], "storage", name)
	}, "id")
	u.none("an ACL entry", gate.Read{Operation: "GET /access/acl"}, map[string]string{"path": "/storage/" + name})
	u.pools("storage", name)
}

// pools: no pool has a storage among its members.
func (u *uses) pools(field, id string) {
	if u.err != nil {
		return
	}
	all, err := u.b.look(gate.Sheet{Name: "pools", Form: gate.SheetSet, Read: gate.Read{Operation: "GET /pools"}, Fields: []string{"poolid"}})
	if err != nil {
		u.unread("the pools", err)
		return
	}
	for _, row := range all.Rows {
		pool := poolSheet(shown(row["poolid"]))
		img, err := u.b.look(pool)
		if err != nil {
			u.unread(pool.Name, err)
			return
		}
		for _, m := range img.Rows {
			if shown(m[field]) == id {
				u.used("pool " + shown(row["poolid"]))
				return
			}
		}
	}
}

// ofZones: no zone and no other controller names what zones are made of.
func (u *uses) ofZones(s gate.Sheet) {
	for kind, id := range s.Place {
		u.rows("SDN zone", gate.Read{Operation: "GET /cluster/sdn/zones"}, func(r map[string]string) bool {
			for _, k := range []string{kind, "controller", "ipam", "dns", "reversedns", "fabric"} {
				if slices.Contains(listed(r[k]), id) && (k == kind || kind == "id" && k == "fabric" || kind == "dns" && k == "reversedns") {
					return true
				}
			}
			return false
		}, "zone")
		u.rows("SDN controller", gate.Read{Operation: "GET /cluster/sdn/controllers"}, func(r map[string]string) bool {
			return kind == "id" && slices.Contains(listed(r["fabric"]), id)
		}, "controller")
	}
}

func (u *uses) iface(node, name string) {
	u.configs("a network card of", func(key, text string) bool { return strings.HasPrefix(key, "net") && part(text, "bridge", name) }, node)
	read := gate.Read{Operation: "GET /nodes/{node}/network", Params: map[string]string{"node": node}}
	u.rows("interface", read, func(r map[string]string) bool {
		for _, k := range []string{"bridge_ports", "slaves", "ovs_bridge", "ovs_ports", "vlan-raw-device", "bond-primary"} {
			if slices.Contains(listed(r[k]), name) {
				return true
			}
		}
		return strings.HasPrefix(r["iface"], name+".")
	}, "iface")
	u.rows("SDN zone", gate.Read{Operation: "GET /cluster/sdn/zones"}, func(r map[string]string) bool { return r["bridge"] == name }, "zone")
}

var word = &regex.Lazy{Expr: `[A-Za-z0-9_-]+`}

// mentions says whether a list of sources or destinations names an alias or a set.
func mentions(text, name string) bool {
	return slices.ContainsFunc(word.FindAllString(text, -1), func(w string) bool { return strings.EqualFold(w, name) })
}

// firewall: no rule names it, in the whole site where it is the cluster's, else in its own scope.
func (u *uses) firewall(s gate.Sheet, is func(string) bool) {
	look := func(read gate.Read) {
		u.rows("a firewall rule of "+where(strings.TrimPrefix(read.Operation, "GET "), read.Params), read, func(r map[string]string) bool {
			return is(r["source"]) || is(r["dest"]) || r["type"] == "group" && is(r["action"])
		}, "pos")
	}
	scope := strings.TrimPrefix(s.Delete, "DELETE ")
	scope = scope[:strings.Index(scope, "/firewall/")+len("/firewall")]
	if scope != "/cluster/firewall" {
		place := map[string]string{}
		for _, name := range placeholders(scope) {
			place[name] = s.Place[name]
		}
		look(gate.Read{Operation: "GET " + scope + "/rules", Params: place})
		return
	}
	look(gate.Read{Operation: "GET /cluster/firewall/rules"})
	groups, err := u.b.look(gate.Sheet{Name: "security groups", Form: gate.SheetSet, Read: gate.Read{Operation: "GET /cluster/firewall/groups"}})
	if err != nil {
		u.unread("the security groups", err)
		return
	}
	for _, g := range groups.Rows {
		look(gate.Read{Operation: "GET /cluster/firewall/groups/{group}", Params: map[string]string{"group": shown(g["group"])}})
	}
	inv, err := estate.Load(u.b.ctx, u.b.v, u.b.target)
	if err != nil {
		u.unread("the list of guests", err)
		return
	}
	for _, n := range inv.Nodes {
		look(gate.Read{Operation: "GET /nodes/{node}/firewall/rules", Params: map[string]string{"node": n.Name}})
	}
	u.vnets(look)
	for _, g := range inv.Guests {
		if u.err != nil {
			return
		}
		look(gate.Read{Operation: "GET /nodes/{node}/" + g.Path() + "/{vmid}/firewall/rules", Params: map[string]string{"node": gate.NodeOf(g.ID), "vmid": g.ID}})
	}
}

// vnets looks at the rules of every vnet, where the site has such rules.
func (u *uses) vnets(look func(gate.Read)) {
	if u.err != nil {
		return
	}
	all, err := u.b.look(gate.Sheet{Name: "vnets", Form: gate.SheetSet, Read: gate.Read{Operation: "GET /cluster/sdn/vnets"}})
	if err != nil {
		u.unread("the vnets", err)
		return
	}
	for _, v := range all.Rows {
		rules := gate.Read{Operation: "GET /cluster/sdn/vnets/{vnet}/firewall/rules", Params: map[string]string{"vnet": shown(v["vnet"])}}
		var said *gate.UpstreamError
		if _, err := u.b.look(gate.Sheet{Name: rules.Operation, Form: gate.SheetSet, Read: rules}); errors.As(err, &said) && said.Status == http.StatusNotImplemented {
			return // its version has none
		}
		look(rules)
	}
}

// sets: no ipset has an alias as a member, in the whole site where it is the cluster's, else in its own scope.
func (u *uses) sets(s gate.Sheet) {
	look := func(scope string, place map[string]string) {
		if u.err != nil {
			return
		}
		all, err := u.b.look(gate.Sheet{Name: "ipsets", Form: gate.SheetSet, Read: gate.Read{Operation: "GET " + scope + "/ipset", Params: place}})
		if err != nil {
			u.unread("the ipsets of "+where(scope, place), err)
			return
		}
		for _, set := range all.Rows {
			params := map[string]string{"name": shown(set["name"])}
			for k, v := range place {
				params[k] = v
			}
			u.rows("ipset "+clip(params["name"], 80)+" of "+where(scope, place)+", in which is", gate.Read{Operation: "GET " + scope + "/ipset/{name}", Params: params},
				func(r map[string]string) bool { return mentions(r["cidr"], s.Place["name"]) }, "cidr")
		}
	}
	scope, _, _ := strings.Cut(strings.TrimPrefix(s.Delete, "DELETE "), "/aliases/")
	if scope != "/cluster/firewall" {
		place := map[string]string{}
		for _, name := range placeholders(scope) {
			place[name] = s.Place[name]
		}
		look(scope, place)
		return
	}
	look(scope, nil)
	inv, err := estate.Load(u.b.ctx, u.b.v, u.b.target)
	if err != nil {
		u.unread("the list of guests", err)
		return
	}
	for _, g := range inv.Guests {
		look("/nodes/{node}/"+g.Path()+"/{vmid}/firewall", map[string]string{"node": gate.NodeOf(g.ID), "vmid": g.ID})
	}
}

// guest: nothing was done with a guest since the plan made it. It must be stopped, and no task of it may have begun since.
func (u *uses) guest(vmid string, row map[string]rawJSON) ([]gate.Condition, error) {
	b := u.b
	kind := "qemu"
	if strings.HasPrefix(u.s.Delete, "DELETE /nodes/{node}/lxc") {
		kind = "lxc"
	}
	place := map[string]string{"node": gate.NodeOf(vmid), "vmid": vmid}
	last := begun(b.record)
	moved := false
	for i, s := range b.plan.Plan.Steps { // what the plan itself did with it later is no use of it
		if s.API != nil && s.Target == b.step.Target && s.API.Text("vmid") == vmid && begun(b.plan.Steps[i]).After(last) {
			last = begun(b.plan.Steps[i])
			moved = moved || strings.HasSuffix(s.API.Operation, "/migrate")
		}
	}
	if left := shown(row["node"]); left != "" && left != b.nodeOf(vmid) && !moved {
		u.used("the guest was moved to node " + b.nodeOf(vmid) + "; delete_guest destroys it all the same")
		return nil, u.err
	}
	status := gate.Read{Operation: "GET /nodes/{node}/" + kind + "/{vmid}/status/current", Params: place}
	tasks := gate.Read{Operation: "GET /nodes/{node}/tasks", Params: map[string]string{"node": place["node"], "vmid": vmid, "source": "all"}}
	stopped := gate.Condition{Name: "guest " + vmid + " is stopped", Read: status, Pointer: "/status", Rule: gate.RuleEquals, Value: jsonText("stopped")}
	untouched := gate.Condition{Name: "nothing was done with guest " + vmid + " since the plan made it", Read: tasks, Since: last, Rule: gate.RuleAbsent}
	a, err := b.v.Read(b.ctx, b.target, status)
	if err != nil {
		u.unread("its state", err)
		return nil, u.err
	}
	var now struct {
		Status string `json:"status"`
	}
	if json.Unmarshal(a.Data, &now) != nil || now.Status != "stopped" {
		u.used("the guest is " + orText(now.Status, "in an unknown state") + "; delete_guest destroys it all the same")
		return nil, u.err
	}
	if by := b.tasksSince(vmid, tasks, last.Unix()); by != "" {
		u.used(by + "; delete_guest destroys it all the same")
		return nil, u.err
	}
	c, digest, err := estate.ReadConfig(b.ctx, b.v, b.target, estate.Guest{ID: vmid, Kind: map[string]string{"qemu": estate.VM, "lxc": estate.CT}[kind], Node: b.nodeOf(vmid)})
	if err != nil {
		u.unread("its settings", err)
		return nil, u.err
	}
	if old := b.digestLeft(vmid); old != "" && digest != old {
		u.used("its settings were changed; delete_guest destroys it all the same")
		return nil, u.err
	}
	if c["protection"] == "1" {
		u.used("it is protected")
		return nil, u.err
	}
	if u.named(vmid, kind); u.err != nil {
		return nil, u.err
	}
	same := gate.Condition{Name: "the settings of guest " + vmid + " are as they were when this was planned", Read: gate.Read{Operation: "GET /nodes/{node}/" + kind + "/{vmid}/config", Params: place},
		Pointer: "/digest", Rule: gate.RuleEquals, Value: jsonText(digest)}
	return append([]gate.Condition{stopped, untouched, same}, u.conditions...), u.err
}

// named: nothing of the site names a guest that leaves no trace in its settings and its tasks, and that its destruction
// would silently take along: rights on it, its pool, jobs that take it, HA.
func (u *uses) named(vmid, kind string) {
	b := u.b
	u.none("an ACL entry", gate.Read{Operation: "GET /access/acl"}, map[string]string{"path": "/vms/" + vmid})
	u.rows("backup job", gate.Read{Operation: "GET /cluster/backup"}, func(r map[string]string) bool { return slices.Contains(listed(r["vmid"]), vmid) }, "id")
	u.rows("replication job", gate.Read{Operation: "GET /cluster/replication"}, func(r map[string]string) bool { return r["guest"] == vmid }, "id")
	u.none("HA", gate.Read{Operation: "GET /cluster/ha/resources"}, map[string]string{"sid": map[string]string{"qemu": "vm:", "lxc": "ct:"}[kind] + vmid})
	if u.err != nil {
		return
	}
	inv, err := estate.Load(b.ctx, b.v, b.target)
	if err != nil {
		u.unread("its pool", err)
		return
	}
	g, _ := inv.ByID(vmid)
	given := g.Pool == ""
	for i, s := range b.plan.Plan.Steps { // those of the plan itself put it there
		if s.API != nil && s.Target == b.step.Target && b.plan.Steps[i].State == gate.StepDone {
			given = given || s.API.Text("pool") == g.Pool && slices.Contains([]string{s.API.Text("vmid"), s.API.Text("newid")}, vmid) || s.API.Text("poolid") == g.Pool && slices.Contains(listed(s.API.Text("vms")), vmid)
		}
	}
	if !given {
		u.used("it is in pool " + g.Pool)
	}
	in := gate.Condition{Name: "guest " + vmid + " is in the pool where it was when this was planned", Read: gate.Read{Operation: "GET /cluster/resources", Params: map[string]string{"type": "vm"}},
		Where: map[string]string{"vmid": vmid}, Pointer: "/pool", Rule: gate.RuleAbsent}
	if g.Pool != "" {
		in.Rule, in.Value = gate.RuleEquals, jsonText(g.Pool)
	}
	if g.Pool == "" || !b.takenOut(g.Pool, vmid) {
		u.conditions = append(u.conditions, in)
	}
}

// takenOut says whether this plan takes a guest out of a pool before.
func (b *back) takenOut(pool, vmid string) bool {
	img, seen := b.now[b.key(poolSheet(pool))]
	return seen && !slices.ContainsFunc(img.Rows, func(r map[string]rawJSON) bool { return shown(r["vmid"]) == vmid })
}

// begun is when a step's task began by the clock of the server that ran it; without a task, when the step ended.
func begun(r gate.StepRecord) time.Time {
	if parts := strings.Split(r.UPID, ":"); len(parts) > 4 {
		if n, err := strconv.ParseInt(parts[4], 16, 64); err == nil {
			return time.Unix(n, 0)
		}
	}
	return r.Ended
}

func (b *back) nodeOf(vmid string) string {
	node, err := b.k.c.Estate.NodeOf(b.ctx, b.v, b.target, vmid)
	if err != nil {
		return ""
	}
	return node
}

// tasksSince names the first task of a guest that began after a time.
func (b *back) tasksSince(vmid string, read gate.Read, since int64) string {
	a, err := b.v.Read(b.ctx, b.target, read)
	if err != nil {
		return "its tasks could not be read (" + clip(err.Error(), 120) + ")"
	}
	var rows []struct {
		Type, User string
		Start      int64 `json:"starttime"`
	}
	if err := json.Unmarshal(a.Data, &rows); err != nil {
		return "its tasks could not be read"
	}
	for _, t := range rows {
		if t.Start > since {
			return fmt.Sprintf("task %s of %s began at %s", clip(t.Type, 40), clip(t.User, 80), stamp(rawJSON(fmt.Sprint(t.Start))))
		}
	}
	_ = vmid
	return ""
}

// digestLeft is the digest of a guest's settings as the plan left them; empty when it did not look.
func (b *back) digestLeft(vmid string) string {
	digest := ""
	for i, s := range b.plan.Plan.Steps {
		for k, sheet := range s.Undo.Sheets {
			if sheet.Place["vmid"] == vmid && strings.HasSuffix(sheet.Read.Operation, "/config") && k < len(b.plan.Steps[i].After) && len(b.plan.Steps[i].After[k].Rows) == 1 {
				digest, _ = scalar(b.plan.Steps[i].After[k].Rows[0]["digest"])
			}
		}
	}
	return digest
}
