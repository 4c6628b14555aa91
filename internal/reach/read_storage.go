package reach

import (
	"strings"

	"castellan/internal/gate"
)

// readStorage reads changes of storage definitions.
func readStorage(_ *walk, r gate.Request) ([]change, bool) {
	if r.Product != "pve" {
		return nil, false
	}
	o := object(gate.ObjectStorage, r.Text("storage"))
	keys := map[string]string{}
	for _, p := range r.Params {
		if p.Name != "storage" && p.Name != "delete" && p.Name != "digest" {
			keys[p.Name] = strings.Join(values(r, p.Name), ",")
		}
	}
	switch r.Operation {
	case "POST /storage":
		return []change{{verb: creates, object: o, keys: keys}}, true
	case "DELETE /storage/{storage}":
		return []change{{verb: removes, object: o}}, true
	case "PUT /storage/{storage}":
	default:
		return nil, false
	}
	var out []change
	for _, key := range listOf(r, "delete") {
		keys[key] = ""
	}
	if r.Get("disable") != nil && on(r, "disable") {
		out = append(out, change{verb: disables, object: o})
	}
	if nodes, ok := keys["nodes"]; ok && nodes != "" {
		out = append(out, change{verb: restricts, object: o, detail: map[string]string{"nodes": nodes}})
	}
	delete(keys, "disable")
	delete(keys, "nodes")
	if len(keys) > 0 {
		out = append(out, change{verb: alters, object: o, keys: keys})
	}
	if len(out) == 0 {
		out = []change{{verb: nothing}}
	}
	return out, true
}

// readContent reads what is done with volumes on a storage.
func readContent(_ *walk, r gate.Request) ([]change, bool) {
	method, path, _ := strings.Cut(r.Operation, " ")
	rest, ok := strings.CutPrefix(path, "/nodes/{node}/storage/{storage}/")
	if !ok || r.Product != "pve" {
		return nil, false
	}
	storage, node := r.Text("storage"), r.Text("node")
	volume := r.Text("volume")
	if volume != "" && !strings.Contains(volume, ":") {
		volume = storage + ":" + volume
	}
	fill := func(size string) []change {
		return []change{{verb: fills, object: object(gate.ObjectStorage, storage), detail: map[string]string{"node": node, "size": size}}}
	}
	switch method + " " + rest {
	case "DELETE content/{volume}":
		return []change{{verb: frees, object: object(gate.ObjectVolume, volume), detail: map[string]string{"node": node}}}, true
	case "POST content":
		return fill(r.Text("size")), true
	case "POST content/{volume}":
		to := r.Text("target_node")
		if to == "" {
			to = node
		}
		target := r.Text("target")
		if !strings.Contains(target, ":") {
			target = storage + ":" + target
		}
		at, _, _ := strings.Cut(target, ":")
		return []change{{verb: fills, object: object(gate.ObjectStorage, at), detail: map[string]string{"node": to, "like": volume, "from": node, "target": target}}}, true
	case "PUT content/{volume}":
		if off(r, "protected") {
			return []change{{verb: alters, object: object(gate.ObjectArchive, volume), keys: map[string]string{"protected": "0"}, detail: map[string]string{"node": node}}}, true
		}
		return []change{{verb: nothing}}, true
	case "POST upload", "POST download-url", "POST oci-registry-pull":
		out := fill("")
		name := r.Text("filename")
		if content := r.Text("content"); content != "" && name != "" && rest == "upload" {
			out = append(out, change{verb: alters, object: object(gate.ObjectVolume, storage+":"+content+"/"+name), detail: map[string]string{"node": node, "replaced": "1"}})
		}
		return out, true
	case "DELETE prunebackups":
		return []change{{verb: frees, object: object(gate.ObjectStorage, storage), detail: map[string]string{"node": node, "keep": r.Text("prune-backups"), "type": r.Text("type"), "vmid": r.Text("vmid")}}}, true
	}
	return nil, false
}

// readPool reads changes of pools and their members.
func readPool(_ *walk, r gate.Request) ([]change, bool) {
	method, path, _ := strings.Cut(r.Operation, " ")
	if r.Product != "pve" || path != "/pools" && path != "/pools/{poolid}" {
		return nil, false
	}
	o := object(gate.ObjectPool, r.Text("poolid"))
	switch method {
	case "DELETE":
		return []change{{verb: removes, object: o}}, true
	case "POST":
		return []change{{verb: nothing}}, true
	}
	vms, storages := listOf(r, "vms"), listOf(r, "storage")
	if len(vms)+len(storages) == 0 {
		return []change{{verb: nothing}}, true
	}
	return []change{{verb: alters, object: o, detail: map[string]string{"guests": strings.Join(vms, ","), "storages": strings.Join(storages, ","), "out": bit(on(r, "delete")),
		"move": bit(on(r, "allow-move"))}}}, true
}

// readJob reads changes of backup jobs.
func readJob(_ *walk, r gate.Request) ([]change, bool) {
	if r.Product != "pve" {
		return nil, false
	}
	o := object(gate.ObjectJob, r.Text("id"))
	keys := map[string]string{}
	for _, p := range r.Params {
		if p.Name != "id" && p.Name != "delete" {
			keys[p.Name] = strings.Join(values(r, p.Name), ",")
		}
	}
	for _, key := range listOf(r, "delete") {
		keys[key] = ""
	}
	switch r.Operation {
	case "POST /cluster/backup":
		return []change{{verb: creates, object: o, keys: keys}}, true
	case "PUT /cluster/backup/{id}":
		return []change{{verb: alters, object: o, keys: keys}}, true
	case "DELETE /cluster/backup/{id}":
		return []change{{verb: removes, object: o}}, true
	}
	return nil, false
}
