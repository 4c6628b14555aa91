package catalog

import (
	"slices"
	"strings"

	"castellan/internal/gate"
	"castellan/internal/regex"
)

// one adds what a single text of a kind refers to.
func (w *refWalk) one(kind refKind, param, text string, use gate.Use) {
	switch kind {
	case refGuest:
		w.guest(param, text, use)
	case refHA:
		_, id, named := strings.Cut(text, ":")
		if !named {
			id = text
		}
		w.guest(param, id, use)
	case refJob:
		id, _, _ := strings.Cut(text, "-")
		w.guest(param, id, use)
	case refNode:
		node, _, _ := strings.Cut(text, ":") // an HA node may carry a priority
		w.add(gate.ObjectNode, node, param, use)
	case refVolume:
		w.volume(param, text, use)
	case refSnapshot:
		w.volume(param, text, use)
	case refPairs, refBridges:
		if text == "1" { // the same names on both sides
			return
		}
		target := gate.ObjectStorage
		if kind == refBridges {
			target = gate.ObjectBridge
		}
		for part := range strings.SplitSeq(text, ":") {
			w.add(target, part, param, use)
		}
	case refMapping:
		w.add(gate.ObjectACL, "/mapping/"+w.mappingType(param)+"/"+text, param, use)
	case refToken:
		user := w.request.Text("userid")
		w.add(gate.ObjectUser, user+"!"+text, param, use)
	case refUser:
		w.add(gate.ObjectUser, text, param, use)
		if user, _, isToken := strings.Cut(text, "!"); isToken {
			w.add(gate.ObjectUser, user, param, gate.UseNames)
		}
	case refRemote:
		w.add(gate.ObjectSite, text, param, use)
	case refTask:
		w.task(param, text, use)
	case refAll:
		if text != "0" {
			w.add(gate.ObjectSite, "", param, gate.UseActs)
		}
	case refTag:
		for _, tag := range gate.SplitList(text) {
			w.add(gate.ObjectTag, strings.ToLower(tag), param, use)
		}
	case refACL:
		w.acl(param, text, use)
	case refBatch:
		w.batch(param, text)
	default:
		w.add(gate.ObjectKind(kind), text, param, use)
	}
}

func (w *refWalk) guest(param, id string, use gate.Use) {
	if plainGuest.MatchString(id) {
		w.add(gate.ObjectGuest, id, param, use)
		return
	}
	w.add(gate.ObjectUnknown, id, param, use)
}

func (w *refWalk) mappingType(param string) string {
	for _, t := range []string{"pci", "usb", "dir"} {
		if strings.HasPrefix(w.op.Path, "/cluster/mapping/"+t) || strings.HasPrefix(param, "host"+t) || strings.HasPrefix(param, t) {
			return t
		}
	}
	if strings.HasPrefix(param, "virtiofs") {
		return "dir"
	}
	return "pci"
}

var exprUPID = &regex.Lazy{Expr: `\A(?:(?:pve|pbs):[^\s:!/]+!)?UPID:([^:/\s]+):[0-9A-Fa-f]+:[0-9A-Fa-f]+:(?:[0-9A-Fa-f]+:)?[0-9A-Fa-f]{8}:([^:/\s]+):([^:/\s]*):([^:/\s]+):\z`}

// task adds the node and the guest that a task id names. Who started it is not touched by what is done with the task.
func (w *refWalk) task(param, text string, use gate.Use) {
	m := exprUPID.FindStringSubmatch(text)
	if m == nil {
		w.add(gate.ObjectUnknown, text, param, use)
		return
	}
	w.add(gate.ObjectNode, m[1], param, gate.UseNames)
	id := strings.ReplaceAll(m[3], `\x3a`, ":")
	switch {
	case plainGuest.MatchString(id):
		w.add(gate.ObjectGuest, id, param, use)
	default:
		for _, guest := range volumeGuests(id) {
			w.add(gate.ObjectGuest, guest, param, use)
		}
		if len(volumeGuests(id)) == 0 { // a task of the node itself, or of many guests
			w.add(gate.ObjectNode, m[1], param, use)
		}
	}
}

// acl adds an ACL path and what it stands for.
func (w *refWalk) acl(param, path string, use gate.Use) {
	w.add(gate.ObjectACL, path, param, use)
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if len(parts) < 2 || !strings.HasPrefix(path, "/") {
		w.add(gate.ObjectSite, "", param, use) // "/", or all of one sort
		return
	}
	name := strings.Join(parts[1:], "/")
	switch parts[0] {
	case "vms":
		w.guest(param, name, use)
	case "storage", "datastore":
		w.add(gate.ObjectStorage, parts[1], param, use)
	case "pool":
		w.add(gate.ObjectPool, name, param, use)
	case "nodes":
		w.add(gate.ObjectNode, parts[1], param, use)
	case "sdn":
		switch {
		case len(parts) == 3 && parts[1] == "zones":
			w.add(gate.ObjectZone, parts[2], param, use)
		case len(parts) > 3 && parts[1] == "zones":
			w.add(gate.ObjectBridge, parts[3], param, use)
		default:
			w.add(gate.ObjectSite, "", param, use)
		}
	case "mapping":
	case "resource": // PDM: /resource/{remote}/guest/{vmid}
		site := parts[1]
		switch {
		case len(parts) == 4 && parts[2] == "guest" && plainGuest.MatchString(parts[3]):
			w.out = append(w.out, gate.Reference{Object: gate.Object{Site: site, Kind: gate.ObjectGuest, ID: parts[3]}, Param: param, Use: use})
		default:
			w.add(gate.ObjectSite, site, param, use)
		}
	default: // access, system, remote, tape and what is not known
		w.add(gate.ObjectSite, "", param, use)
	}
}

// batch adds what nested calls refer to; a call that is not understood, or nests again, is unknown.
func (w *refWalk) batch(param, text string) {
	calls, ok := jsonArray(text)
	if !ok {
		w.add(gate.ObjectUnknown, "", param, gate.UseActs)
		return
	}
	for _, c := range calls {
		call, _ := c.(map[string]any)
		method, _ := call["method"].(string)
		path, _ := call["path"].(string)
		args, _ := call["args"].(map[string]any)
		if !strings.HasPrefix(path, "/") {
			path = "/nodes/" + w.request.Text("node") + "/" + path
		}
		op, joined, err := w.cat.Resolve(w.op.Product, method, path, args)
		if err != nil || op.Facts.Params["commands"] != nil {
			w.add(gate.ObjectUnknown, clip(path, 200), param, gate.UseActs)
			continue
		}
		inner, problems := w.cat.Check(op, joined)
		if len(problems) > 0 {
			w.add(gate.ObjectUnknown, clip(path, 200), param, gate.UseActs)
			continue
		}
		for _, ref := range w.cat.References(op, inner) {
			ref.Param = param
			w.out = append(w.out, ref)
		}
	}
}

// implied adds what a request touches without naming it.
func (w *refWalk) implied() {
	w.backup()
	for _, v := range w.request.Get("delete") {
		if slices.Contains(gate.SplitList(v.Text), "tags") {
			w.add(gate.ObjectTag, "*", "delete", gate.UseActs)
		}
	}
	if w.serverChooses() {
		w.add(gate.ObjectSite, "", "", gate.UseActs)
	}
	if w.op.Method == "GET" {
		return
	}
	if w.sharedSetting() {
		w.add(gate.ObjectSite, "", "", gate.UseActs)
	}
	if !slices.ContainsFunc(w.out, func(r gate.Reference) bool { return r.Use == gate.UseActs }) {
		w.add(gate.ObjectSite, "", "", gate.UseActs)
	}
}

// sharedSetting tells writes to something of the whole site that has a name of its own and no kind: a backup job, a
// rule. Whatever it names anew, it may have served others before.
func (w *refWalk) sharedSetting() bool {
	if strings.HasPrefix(w.op.Path, "/nodes/{node}") || strings.Contains(w.op.Path, "{vmid}") {
		return false
	}
	return slices.ContainsFunc(w.op.Placeholders, func(name string) bool {
		kind, _ := w.op.reference(name, w.op.Facts.Params[name])
		return kind == ""
	})
}

// demoteNode makes the node of the path a place and not the thing acted on, when the call is about guests.
func (w *refWalk) demoteNode() {
	if !slices.ContainsFunc(w.out, func(r gate.Reference) bool { return r.Object.Kind == gate.ObjectGuest && r.Use == gate.UseActs }) {
		return
	}
	for i, r := range w.out {
		if r.Object.Kind == gate.ObjectNode && r.Param == "node" {
			w.out[i].Use = gate.UseNames
		}
	}
}

// serverChooses tells calls that act on guests of the server's choice, since the request names none.
func (w *refWalk) serverChooses() bool {
	if w.op.Product != "pve" || w.op.Method == "GET" {
		return false
	}
	named := func(params ...string) bool {
		return slices.ContainsFunc(params, func(p string) bool { return len(w.request.Get(p)) > 0 })
	}
	switch {
	case strings.HasPrefix(w.op.Path, "/cluster/bulk-action/"):
		return !named("vms")
	case slices.Contains([]string{"/nodes/{node}/startall", "/nodes/{node}/stopall", "/nodes/{node}/suspendall", "/nodes/{node}/migrateall"}, w.op.Path):
		return !named("vms")
	case w.op.ID == "POST /nodes/{node}/vzdump", w.op.ID == "POST /cluster/backup":
		return !named("vmid", "pool")
	}
	return false
}

// backup adds the backup group or snapshot that PBS names by several parameters, and its guest.
func (w *refWalk) backup() {
	kind, id := w.request.Text("backup-type"), w.request.Text("backup-id")
	if id == "" {
		return
	}
	store := w.request.Text("store")
	if store == "" {
		store = w.request.Text("datastore")
	}
	if store == "" {
		store = w.request.Text("remote")
	}
	volume := store + ":"
	if ns := w.request.Text("ns"); ns != "" {
		volume += "ns/" + strings.ReplaceAll(ns, "/", "/ns/") + "/"
	}
	if kind == "" { // PMG names its own group host/NAME or only the name
		volume += id
	} else {
		volume += kind + "/" + id
	}
	if t := w.request.Text("backup-time"); t != "" {
		volume += "/" + t
	}
	w.add(gate.ObjectVolume, volume, "backup-id", gate.UseActs)
	if (kind == "vm" || kind == "ct") && plainGuest.MatchString(id) {
		w.add(gate.ObjectGuest, id, "backup-id", gate.UseActs)
	}
}

// rowFilters name, for reads whose path binds no guest, the field of each row that holds its guest: an id, a task's
// id, or an HA resource id such as vm:100. Rows without a guest there are not for a caller with a guest scope.
var rowFilters = map[string]string{
	"pve GET /cluster/resources":                      "vmid",
	"pve GET /cluster/tasks":                          "id",
	"pve GET /cluster/replication":                    "guest",
	"pve GET /cluster/ha/resources":                   "sid",
	"pve GET /cluster/ha/status/current":              "sid",
	"pve GET /cluster/backup-info/not-backed-up":      "vmid",
	"pve GET /nodes/{node}/qemu":                      "vmid",
	"pve GET /nodes/{node}/lxc":                       "vmid",
	"pve GET /nodes/{node}/tasks":                     "id",
	"pve GET /nodes/{node}/replication":               "guest",
	"pve GET /nodes/{node}/storage/{storage}/content": "vmid",
	"pdm GET /pve/remotes/{remote}/qemu":              "vmid",
	"pdm GET /pve/remotes/{remote}/lxc":               "vmid",
	"pdm GET /pve/remotes/{remote}/resources":         "vmid",
	"pdm GET /pve/remotes/{remote}/tasks":             "id",
}

// GuestBinding says how a read can be confined to guests: param is the placeholder that binds one guest, else
// rowField is the field by which the rows of the answer can be filtered. ok is false when neither is known.
func (c *Catalog) GuestBinding(op *Operation) (param, rowField string, ok bool) {
	if slices.Contains(op.Placeholders, "vmid") {
		return "vmid", "", true
	}
	if field := rowFilters[op.Product+" "+op.ID]; field != "" {
		return "", field, true
	}
	return "", "", false
}
