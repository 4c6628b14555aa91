package catalog

import (
	"regexp"
	"slices"
	"sort"
	"strings"

	"castellan/internal/catalog/facts"
	"castellan/internal/gate"
)

// refKind says what a value refers to; the zero value means that it refers to nothing.
type refKind string

// Besides the kinds of objects, some values hold several objects in one.
const (
	refGuest    refKind = refKind(gate.ObjectGuest)
	refVolume   refKind = refKind(gate.ObjectVolume)
	refStorage  refKind = refKind(gate.ObjectStorage)
	refNode     refKind = refKind(gate.ObjectNode)
	refBridge   refKind = refKind(gate.ObjectBridge)
	refPool     refKind = refKind(gate.ObjectPool)
	refUser     refKind = refKind(gate.ObjectUser)
	refZone     refKind = refKind(gate.ObjectZone)
	refTag      refKind = refKind(gate.ObjectTag)
	refACL      refKind = refKind(gate.ObjectACL)
	refRemote   refKind = "remote"   // another site: a PDM or PBS remote, the far end of a migration
	refHA       refKind = "ha"       // vm:100, or a guest id
	refJob      refKind = "job"      // a replication job, 100-0
	refPairs    refKind = "storages" // from:to pairs of storages
	refBridges  refKind = "bridges"  // from:to pairs of bridges
	refMapping  refKind = "mapping"  // a resource mapping, by its ACL path
	refToken    refKind = "token"    // a token's name below the user of the path
	refSnapshot refKind = "backup"   // store:type/id/time
	refBatch    refKind = "batch"    // nested calls
	refAll      refKind = "all"      // a switch that means everything
	refTask     refKind = "task"     // a UPID: its node, its guest, its user
)

// refFormats are the named formats that refer to something.
var refFormats = map[string]refKind{
	"pve-vmid": refGuest, "pve-node": refNode, "pve-ha-node": refNode, "pve-storage-id": refStorage, "pve-bridge-id": refBridge,
	"pve-poolid": refPool, "pve-userid": refUser, "pmg-userid": refUser, "pve-groupid": refUser, "pve-roleid": refUser, "pve-realm": refUser,
	"pmg-realm": refUser, "pve-tokenid": refUser, "role": refUser, "pve-tag": refTag,
	"pve-volume-id": refVolume, "pve-volume-id-or-qm-path": refVolume, "pve-volume-id-or-absolute-path": refVolume,
	"pve-ha-resource-or-vm-id": refHA, "pve-ha-resource-id": refHA, "pve-replication-job-id": refJob,
	"storage-pair": refPairs, "bridge-pair": refBridges, "pve-sdn-fabric-id": refZone, "pve-sdn-subnet-id": refZone,
	"tape-snapshot": refSnapshot, "pve-command-batch": refBatch,
}

// refNames are the names that refer to something wherever no more special rule says otherwise, by the last part of
// a template. They serve where the description names no format.
var refNames = map[string]refKind{
	"vmid": refGuest, "vms": refGuest, "newid": refGuest, "target-vmid": refGuest, "guest": refGuest,
	"node": refNode, "nodes": refNode, "target_node": refNode, "target-node": refNode, "node_id": refNode, "check-node": refNode, "node-list": refNode,
	"storage": refStorage, "storages": refStorage, "store": refStorage, "datastore": refStorage, "target-storage": refPairs, "targetstorage": refPairs,
	"bridge": refBridge, "vnet": refBridge, "iface": refBridge, "target-bridge": refBridges, "bridge_ports": refBridge, "slaves": refBridge, "ovs_bridge": refBridge,
	"vlan-raw-device": refBridge, "bond-primary": refBridge, "ovs_ports": refBridge, "ovs_bonds": refBridge, "bridges": refBridge, "interfaces.name": refBridge,
	"pool": refPool, "poolid": refPool,
	"userid": refUser, "username": refUser, "users": refUser, "user": refUser, "groups": refUser, "groupid": refUser, "group": refUser, "roles": refUser,
	"roleid": refUser, "role": refUser, "realm": refUser, "auth-id": refUser, "authid": refUser, "owner": refUser, "new-owner": refUser, "notify-user": refUser,
	"tokens": refUser, "mailto-user": refUser, "userfilter": refUser,
	"tokenid": refToken, "token-name": refToken,
	"volume": refVolume, "ostemplate": refVolume, "archive": refVolume, "zone": refZone, "tags": refTag,
	"remote": refRemote, "remotes": refRemote, "target-endpoint": refRemote, "sid": refHA, "resources": refHA, "resource": refHA,
	"upid": refTask, "mapping": refMapping, "dirid": refMapping, "pci-id-or-mapping": refMapping,
}

// refRule is a reviewed rule for one place; it wins over formats and names.
type refRule struct {
	product, path, param string // path: holds this text; "" = anywhere
	kind                 refKind
	use                  gate.Use // "" = as the kind usually is
}

// refRules are read in order; the first that fits decides. An empty kind says that the value refers to nothing.
var refRules = []refRule{
	{"", "/access/acl", "path", refACL, gate.UseActs},
	{"", "/access/permissions", "path", refACL, gate.UseNames},
	{"pve", "/pools", "vms", refGuest, gate.UseActs},
	{"pve", "/pools", "storage", refStorage, gate.UseActs},
	{"pve", "/pools", "type", "", ""},
	{"pve", "/cluster/backup", "id", "", ""},
	{"pve", "/vzdump", "all", refAll, ""},
	{"pve", "/cluster/backup", "all", refAll, ""},
	{"pve", "/vzdump", "pool", refPool, gate.UseActs},
	{"pve", "/cluster/backup", "pool", refPool, gate.UseActs},
	{"pve", "/vzdump", "exclude", refGuest, gate.UseNames},
	{"pve", "/cluster/backup", "exclude", refGuest, gate.UseNames},
	{"pve", "/cluster/nextid", "vmid", refGuest, gate.UseNames},
	{"pve", "/cluster/replication", "target", refNode, gate.UseNames},
	{"pve", "/cluster/replication", "source", refNode, gate.UseNames},
	{"pve", "/cluster/mapping/pci/", "id", refMapping, gate.UseActs},
	{"pve", "/cluster/mapping/", "id", refMapping, gate.UseActs},
	{"pve", "/cluster/mapping/", "map.path", "", ""},
	{"pve", "/cluster/sdn/fabrics/fabric", "id", refZone, gate.UseActs},
	{"pve", "/cluster/sdn/fabrics", "interfaces", refBridge, ""},
	{"pve", "/cluster/sdn/zones", "zone", refZone, gate.UseActs},
	{"pve", "/cluster/sdn/vnets", "vnet", refBridge, gate.UseActs},
	{"pve", "/cluster/sdn", "controller", refZone, ""},
	{"pve", "/cluster/sdn", "secondary-controllers", refZone, gate.UseNames},
	{"pve", "/cluster/sdn", "exitnodes-primary", refNode, gate.UseNames},
	{"pve", "/cluster/sdn", "exitnodes", refNode, gate.UseNames},
	{"pve", "/cluster/sdn", "isis-ifaces", refBridge, gate.UseNames},
	{"pve", "/cluster/sdn", "peers.node", refNode, gate.UseNames},
	{"pve", "/cluster/firewall/groups", "group", "", ""},
	{"pve", "/firewall/", "iface", "", ""}, // in a rule: net0, or an interface of the node that the path names
	{"pve", "/cluster/ha/groups", "group", "", ""},
	{"pve", "/cluster/ha/resources", "group", "", ""},
	{"pve", "/cluster/config/nodes", "node", refNode, gate.UseActs},
	{"pve", "/cluster/config", "clustername", "", ""},
	{"pve", "/cluster/qemu/custom-cpu-models", "cputype", "", ""},
	{"pve", "/storage", "nodes", refNode, gate.UseNames},
	{"pve", "/storage", "username", "", ""}, // an account of the storage server
	{"pve", "/storage", "pool", "", ""},     // a ZFS or Ceph pool
	{"pve", "/storage", "datastore", "", ""},
	{"pve", "/storage", "base", refVolume, gate.UseNames},
	{"pve", "/ceph/", "pool", "", ""},
	{"pve", "/ceph/", "name", "", ""},
	{"pve", "/scan/", "username", "", ""},
	{"pve", "/disks/", "name", "", ""},
	{"pve", "/migrate", "target", refNode, gate.UseNames},
	{"pve", "/migrateall", "target", refNode, gate.UseNames},
	{"pve", "/bulk-action/guest/migrate", "target", refNode, gate.UseNames},
	{"pve", "/clone", "target", refNode, gate.UseNames},
	{"pve", "/nodes/{node}/storage/{storage}/content/{volume}", "target", refVolume, gate.UseActs},
	{"pve", "/nodes/{node}/storage/{storage}/content/{volume}", "target_node", refNode, gate.UseNames},
	{"pve", "/nodes/{node}/storage", "target", refNode, gate.UseNames},
	{"pve", "/nodes/{node}/storage", "filename", "", ""},
	{"pve", "/status/start", "migratedfrom", refNode, gate.UseNames},
	{"pve", "/access/users", "users", "", ""},
	{"pve", "/access/tfa", "id", "", ""},
	{"pve", "/agent/set-user-password", "username", "", ""}, // an account inside the guest
	{"pve", "/access/domains", "group_name_attr", "", ""},
	{"pve", "/capabilities/qemu", "node", refNode, ""},
	{"pve", "/mtunnel", "storages", refStorage, gate.UseNames},
	{"pve", "/mtunnel", "bridges", refBridge, gate.UseNames},
	{"pve", "/notifications/", "target", "", ""}, // names of notification endpoints
	{"pve", "/notifications/", "username", "", ""},
	{"", "/notifications/", "username", "", ""},
	{"pve", "/metrics/", "path", "", ""},
	{"pve", "/cluster/metrics/export", "node-list", refNode, gate.UseNames},
	{"pve", "", "volume-group", "", ""},
	{"pve", "", "source", "", ""}, // an address in firewall rules, a task source in task lists
	{"pve", "", "features.mount", "", ""},
	{"pve", "", "hostpci[n].host", "", ""},
	{"pve", "", "statestorage", refStorage, gate.UseNames},
	{"pve", "", "vmstatestorage", refStorage, gate.UseNames},
	{"pve", "", "import-working-storage", refStorage, gate.UseNames},
	{"pve", "", "fleecing.storage", refStorage, gate.UseNames},
	{"pve", "", "wakeonlan.bind-interface", refBridge, gate.UseNames},
	{"pve", "", "mp[n].volume", refVolume, gate.UseNames},
	{"pve", "", "rootfs.volume", refVolume, gate.UseNames},
	{"pve", "", "net[n].name", "", ""}, // the interface's name inside the container
	{"pve", "", "virtiofs[n].dirid", refMapping, gate.UseNames},
	{"pve", "", "cloned", "", ""},
	{"pbs", "/config/datastore", "name", refStorage, gate.UseActs},
	{"pbs", "/access/users", "group", "", ""},
	{"pbs", "", "group-filter", "", ""},
	{"pbs", "", "pool", "", ""}, // a pool of tape media
	{"pbs", "/media-pool", "name", "", ""},
	{"pbs", "/config/remote", "name", refRemote, gate.UseActs},
	{"pbs", "/config/remote", "auth-id", "", ""}, // an account of the remote
	{"pbs", "", "remote-store", "", ""},          // a datastore of the remote
	{"pbs", "/tape/restore", "store", refStorage, gate.UseActs},
	{"pbs", "/traffic-control", "users", refUser, gate.UseNames},
	{"pmg", "/config/ruledb", "group", "", ""}, // an LDAP group in a filter rule
	{"pmg", "/config/fetchmail", "user", "", ""},
	{"pmg", "/config/pbs", "username", "", ""},
	{"pmg", "/config/pbs", "datastore", "", ""},
	{"pmg", "/config/pbs", "remote", refRemote, gate.UseActs},
	{"pmg", "/quarantine", "username", "", ""},
	{"pmg", "/config/cluster", "name", refNode, gate.UseActs},
	{"pdm", "/remotes/remote", "id", refRemote, gate.UseActs},
	{"pdm", "/remotes/remote", "authid", "", ""}, // an account of the remote
	{"pdm", "/scan", "authid", "", ""},
	{"pdm", "/remotes/remote", "nodes", "", ""},
	{"pdm", "/sdn/", "remotes.remote", refRemote, gate.UseActs},
	{"pdm", "/sdn/", "remotes.zone", refZone, gate.UseActs},
	{"pdm", "/sdn/", "remotes.controller", refZone, gate.UseNames},
	{"pdm", "/remote-migrate", "target", refRemote, gate.UseNames},
	{"pdm", "/migrate", "target", refNode, gate.UseNames},
	{"pdm", "/nodes/{node}/storage", "target", refNode, gate.UseNames},
	{"pdm", "/subscriptions", "proposal.assignments.node", refNode, gate.UseActs},
	{"pdm", "/subscriptions", "proposal.assignments.remote", refRemote, gate.UseActs},
	{"pdm", "/nodes/{node}/network", "slaves", refBridge, ""},
}

// reference returns what a parameter or property-string key refers to and how the request uses it.
func (op *Operation) reference(template string, s *facts.Schema) (refKind, gate.Use) {
	name := leaf(template)
	last := name[strings.LastIndexByte(name, '.')+1:]
	inPath := slices.Contains(op.Placeholders, template)
	for _, r := range refRules {
		if (r.product == "" || r.product == op.Product) && (r.path == "" || strings.Contains(op.Path+"/", r.path)) && leaf(r.param) == name {
			return r.kind, op.use(r.kind, r.use, template, inPath)
		}
	}
	if s != nil && s.Format != nil && s.Format.Name != "" {
		base := strings.TrimSuffix(strings.TrimSuffix(s.Format.Name, "-list"), "-opt")
		if k, ok := refFormats[base]; ok {
			return k, op.use(k, "", template, inPath)
		}
	}
	if op.Product == "pmg" && (last == "target" || last == "group") {
		return "", ""
	}
	if k, ok := refNames[name]; ok {
		return k, op.use(k, "", template, inPath)
	}
	if k, ok := refNames[last]; ok {
		return k, op.use(k, "", template, inPath)
	}
	if last == "target" && op.Product == "pdm" {
		return refRemote, gate.UseNames
	}
	return "", ""
}

// use says how a request uses what a parameter names. The thing that the path ends at is acted on; what stands
// before it in the path, and storages, nodes and bridges among the parameters, are only named.
func (op *Operation) use(kind refKind, reviewed gate.Use, template string, inPath bool) gate.Use {
	switch {
	case kind == "":
		return ""
	case reviewed != "":
		return reviewed
	case inPath && (kind == refNode || kind == refStorage || kind == refRemote):
		if op.deepest() == template {
			return gate.UseActs
		}
		return gate.UseNames
	case inPath:
		return gate.UseActs
	}
	switch kind {
	case refGuest, refHA, refJob, refPool, refUser, refToken, refTag, refACL, refBatch, refAll:
		return gate.UseActs
	case refBridge, refZone:
		if strings.HasSuffix(op.Path, "/network") || op.Product == "pve" && strings.HasPrefix(op.Path, "/cluster/sdn/") {
			return gate.UseActs
		}
	}
	return gate.UseNames
}

// deepest is the last placeholder of the path that names an object of its own.
func (op *Operation) deepest() string {
	for i := len(op.Placeholders) - 1; i >= 0; i-- {
		name := op.Placeholders[i]
		if k := refNames[name]; k != "" && k != refToken {
			return name
		}
	}
	return ""
}

// References lists every object that a request acts on or names, in a fixed order. A write that names none acts on
// the whole site; a value that cannot be resolved is ObjectUnknown.
func (c *Catalog) References(op *Operation, r gate.Request) []gate.Reference {
	w := &refWalk{cat: c, op: op, request: r, site: siteOf(op, r)}
	for _, p := range r.Params {
		s, template, ok := op.Schema(p.Name)
		if !ok {
			w.add(gate.ObjectUnknown, "", p.Name, gate.UseActs)
			continue
		}
		for _, v := range p.Values {
			w.value(p.Name, template, s, v)
		}
	}
	w.implied()
	sort.SliceStable(w.out, func(i, j int) bool {
		a, b := w.out[i], w.out[j]
		if a.Param != b.Param {
			return a.Param < b.Param
		}
		return a.Object.String() < b.Object.String()
	})
	return slices.Compact(w.out)
}

// siteOf is the remote of a PDM operation that passes through to one.
func siteOf(op *Operation, r gate.Request) string {
	if op.Product == "pdm" && slices.Contains(op.Placeholders, "remote") {
		return r.Text("remote")
	}
	return ""
}

type refWalk struct {
	cat     *Catalog
	op      *Operation
	request gate.Request
	site    string
	out     []gate.Reference
}

func (w *refWalk) add(kind gate.ObjectKind, id, param string, use gate.Use) {
	o := gate.Object{Site: w.site, Kind: kind, ID: id}
	w.out = append(w.out, gate.Reference{Object: o, Param: param, Use: use})
}

// value adds what one value of a parameter refers to.
func (w *refWalk) value(name, template string, s *facts.Schema, v gate.Value) {
	item := s
	if s.Type == "array" && s.Items != nil {
		item = s.Items
	} else if s.Type == "array" && len(s.OneOf) > 0 && s.OneOf[0].Items != nil {
		item = s.OneOf[0].Items
	}
	kind, use := w.op.reference(template, item)
	text := v.Text
	if v.Ref != nil {
		text = v.Ref.Plan
	}
	if v.Secret != nil {
		text = v.Secret.Before + "sealed" + v.Secret.After
	}
	if p := w.op.properties(item); p != nil {
		w.keys(name, template, p, text)
		if kind == "" || kind == refRemote {
			return
		}
		if len(p.props) > 0 {
			return
		}
	}
	if item.Type == "object" {
		w.object(name, template, item, text)
		return
	}
	if kind == "" {
		return
	}
	if text == "" {
		w.add(gate.ObjectUnknown, "", name, use)
		return
	}
	if kind == refTag || kind == refBatch || kind == refACL || len(splitList(text)) <= 1 {
		w.one(kind, name, text, use)
		return
	}
	for _, e := range splitList(text) {
		w.one(kind, name, e, use)
	}
}

// keys walks a property string.
func (w *refWalk) keys(name, template string, p *propSchema, text string) {
	props, prob := p.parse(text)
	if prob != nil {
		w.add(gate.ObjectUnknown, "", name, gate.UseActs)
		return
	}
	for _, kv := range props {
		kt := template + "." + kv.Key
		if template == "target-endpoint" && kv.Key == "host" {
			w.add(gate.ObjectSite, kv.Value, name+".host", gate.UseNames)
			continue
		}
		kind, use := w.op.reference(kt, p.props[kv.Key])
		if kind == "" {
			continue
		}
		for _, e := range splitList(kv.Value) {
			w.one(kind, name+"."+kv.Key, e, use)
		}
	}
}

// object walks a true JSON object.
func (w *refWalk) object(name, template string, s *facts.Schema, text string) {
	o, err := jsonObject(text)
	if err != nil {
		w.add(gate.ObjectUnknown, "", name, gate.UseActs)
		return
	}
	w.members(name, template, s, o, 0)
}

func (w *refWalk) members(name, template string, s *facts.Schema, o map[string]any, depth int) {
	if depth > maxDepth {
		w.add(gate.ObjectUnknown, "", name, gate.UseActs)
		return
	}
	for key, v := range o {
		ks := s.Properties[key]
		if ks == nil {
			continue
		}
		kn, kt := name+"."+key, template+"."+key
		switch x := v.(type) {
		case map[string]any:
			w.members(kn, kt, ks, x, depth+1)
		case []any:
			for _, e := range x {
				if m, ok := e.(map[string]any); ok && ks.Items != nil {
					w.members(kn, kt, ks.Items, m, depth+1)
				}
			}
		default:
			if kind, use := w.op.reference(kt, ks); kind != "" {
				text, _ := plainText(x)
				w.one(kind, kn, text, use)
			}
		}
	}
}

var (
	volumeGuest = regexp.MustCompile(`(?:^|[/:-])(?:vm|base|subvol|basevol)-([1-9][0-9]{2,8})-`)
	backupGuest = regexp.MustCompile(`vzdump-(?:qemu|lxc|openvz)-([1-9][0-9]{2,8})-`)
	folderGuest = regexp.MustCompile(`(?:^|[:/])([1-9][0-9]{2,8})/`)
	pbsGuest    = regexp.MustCompile(`(?:^|[:/])(?:vm|ct)/([1-9][0-9]{2,8})(?:/|$)`)
	newVolume   = regexp.MustCompile(`\A[0-9]+(?:\.[0-9]+)?\z`)
	plainGuest  = regexp.MustCompile(`\A[1-9][0-9]{2,8}\z`)
)

// volume adds a volume, its storage, and every guest that its name gives it to.
func (w *refWalk) volume(param, text string, use gate.Use) {
	if text == "none" || text == "cdrom" {
		return
	}
	if strings.HasPrefix(text, "/") { // a path of the host: anything
		w.add(gate.ObjectUnknown, text, param, use)
		return
	}
	storage, rest, named := strings.Cut(text, ":")
	if !named {
		storage, rest = w.request.Text("storage"), text
		if !slices.Contains(w.op.Placeholders, "storage") {
			w.add(gate.ObjectUnknown, text, param, use)
			return
		}
	}
	w.add(gate.ObjectStorage, storage, param, gate.UseNames)
	if newVolume.MatchString(rest) && named { // a new volume of that many GiB
		return
	}
	w.add(gate.ObjectVolume, storage+":"+rest, param, use)
	for _, id := range volumeGuests(rest) {
		w.add(gate.ObjectGuest, id, param, use)
	}
}

// volumeGuests finds the ids of the guests to which a volume's name says it belongs.
func volumeGuests(volume string) []string {
	var ids []string
	for _, re := range []*regexp.Regexp{volumeGuest, backupGuest, folderGuest, pbsGuest} {
		for _, m := range re.FindAllStringSubmatch(volume, -1) {
			if !slices.Contains(ids, m[1]) {
				ids = append(ids, m[1])
			}
		}
	}
	slices.Sort(ids)
	return ids
}
