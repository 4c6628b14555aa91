package reach

import (
	"slices"
	"strings"

	"castellan/internal/gate"
)

// guestReaders read requests on guests, their disks and snapshots, on storages and what lies on them, on pools and backup
// jobs, and on many guests at once.
func guestReaders() []reader {
	return []reader{readGuest, readInside, readNewGuest, readStorage, readContent, readPool, readJob, readBackup, readBulk, readDatastore, readVault, readMail}
}

// guestPath splits "POST /nodes/{node}/qemu/{vmid}/status/stop" into "POST", "qemu" and "/status/stop".
func guestPath(r gate.Request) (method, kind, rest string, ok bool) {
	method, path, _ := strings.Cut(r.Operation, " ")
	for _, kind := range []string{"qemu", "lxc"} {
		if rest, found := strings.CutPrefix(path, "/nodes/{node}/"+kind+"/{vmid}"); found && r.Product == "pve" {
			return method, kind, rest, true
		}
	}
	return "", "", "", false
}

// notSettings are parameters of a guest's configuration request that are no settings.
var notSettings = []string{"node", "vmid", "delete", "revert", "force", "digest", "skiplock", "background_delay", "import-working-storage"}

func readGuest(w *walk, r gate.Request) ([]change, bool) {
	method, kind, rest, ok := guestPath(r)
	if !ok {
		return nil, false
	}
	id := r.Text("vmid")
	guest := object(gate.ObjectGuest, id)
	detail := map[string]string{"node": r.Text("node"), "type": kind}
	does := func(v verb, more ...string) ([]change, bool) {
		for i := 0; i+1 < len(more); i += 2 {
			detail[more[i]] = more[i+1]
		}
		return []change{{verb: v, object: guest, detail: detail}}, true
	}
	switch method + " " + rest {
	case "DELETE ":
		return does(removes, "purge", bit(on(r, "purge")), "force", bit(on(r, "force")), "unreferenced", bit(on(r, "destroy-unreferenced-disks")))
	case "PUT /config", "POST /config":
		keys := map[string]string{}
		for _, p := range r.Params {
			if !slices.Contains(notSettings, p.Name) {
				keys[p.Name] = strings.Join(values(r, p.Name), ";")
			}
		}
		for _, key := range listOf(r, "delete") {
			keys[key] = ""
		}
		ownNameOf(keys)
		detail["force"], detail["revert"] = bit(on(r, "force")), strings.Join(listOf(r, "revert"), ",")
		return []change{{verb: alters, object: guest, keys: keys, detail: detail}}, true
	case "PUT /unlink":
		keys := map[string]string{}
		for _, key := range listOf(r, "idlist") {
			keys[key] = ""
		}
		ownNameOf(keys)
		detail["force"] = bit(on(r, "force"))
		return []change{{verb: alters, object: guest, keys: keys, detail: detail}}, true
	case "POST /template":
		return []change{{verb: alters, object: guest, keys: map[string]string{"template": "1"}, detail: detail}}, true
	case "PUT /resize":
		detail["disk"], detail["size"] = r.Text("disk"), r.Text("size")
		return []change{{verb: alters, object: object(gate.ObjectVolume, id+":"+r.Text("disk")), detail: detail}}, true
	case "POST /move_disk", "POST /move_volume":
		detail["disk"], detail["to"], detail["guest"], detail["delete"] = r.Text("disk")+r.Text("volume"), r.Text("storage"), r.Text("target-vmid"), bit(on(r, "delete"))
		detail["key"], detail["format"] = r.Text("target-disk")+r.Text("target-volume"), r.Text("format")
		return []change{{verb: moves, object: object(gate.ObjectVolume, id+":"+detail["disk"]), detail: detail}}, true
	case "POST /migrate":
		return does(moves, "to", r.Text("target"), "online", bit(on(r, "online")), "restart", bit(on(r, "restart")), "disks", bit(on(r, "with-local-disks")),
			"storage", r.Text("targetstorage")+r.Text("target-storage"), "force", bit(on(r, "force")))
	case "POST /remote_migrate":
		return does(moves, "away", "1", "online", bit(on(r, "online")), "restart", bit(on(r, "restart")), "delete", bit(on(r, "delete")))
	case "POST /clone":
		full := bit(on(r, "full"))
		if r.Get("full") == nil {
			full = ""
		}
		return does(bringsIn, "from", "clone", "snapshot", r.Text("snapname"), "new", r.Text("newid"), "full", full, "storage", r.Text("storage"), "to", r.Text("target"), "pool", r.Text("pool"))
	case "POST /snapshot/{snapname}/rollback":
		return does(bringsIn, "from", "snapshot", "snapshot", r.Text("snapname"), "start", bit(on(r, "start")))
	case "POST /snapshot":
		return []change{{verb: creates, object: object(gate.ObjectSnapshot, id+"/"+r.Text("snapname")), detail: map[string]string{"vmid": id, "ram": bit(on(r, "vmstate"))}}}, true
	case "DELETE /snapshot/{snapname}":
		return []change{{verb: removes, object: object(gate.ObjectSnapshot, id+"/"+r.Text("snapname")), detail: map[string]string{"vmid": id, "snapshot": r.Text("snapname")}}}, true
	case "POST /status/start":
		return does(starts)
	case "POST /status/resume":
		return does(starts, "resume", "1")
	case "POST /status/stop", "POST /status/reset":
		return does(stops, "hard", "1", "again", bit(rest == "/status/reset"))
	case "POST /status/shutdown":
		return does(stops, "hard", bit(on(r, "forceStop")))
	case "POST /status/reboot":
		return does(restarts)
	case "POST /status/suspend":
		return does(stops, "suspend", "1", "todisk", bit(on(r, "todisk")), "state", r.Text("statestorage"))
	case "POST /agent/shutdown", "POST /agent/suspend-disk", "POST /agent/suspend-ram", "POST /agent/suspend-hybrid":
		return does(stops, "inside", "1")
	case "POST /agent":
		if c := r.Text("command"); c == "shutdown" || strings.HasPrefix(c, "suspend-") {
			return does(stops, "inside", "1")
		}
		return nil, false
	case "PUT /cloudinit":
		return does(bringsIn, "from", "cloudinit")
	case "PUT /snapshot/{snapname}/config", "POST /vncproxy", "POST /termproxy", "POST /spiceproxy":
		return []change{{verb: nothing}}, true
	}
	return nil, false
}

// readNewGuest reads creation and restore.
func readNewGuest(w *walk, r gate.Request) ([]change, bool) {
	var kind string
	switch r.Operation {
	case "POST /nodes/{node}/qemu":
		kind = "qemu"
	case "POST /nodes/{node}/lxc":
		kind = "lxc"
	default:
		return nil, false
	}
	if r.Product != "pve" {
		return nil, false
	}
	id := r.Text("vmid")
	guest := object(gate.ObjectGuest, id)
	detail := map[string]string{"node": r.Text("node"), "type": kind, "force": bit(on(r, "force")), "storage": r.Text("storage"), "start": bit(on(r, "start") || on(r, "live-restore")),
		"unique": bit(on(r, "unique")), "live": bit(on(r, "live-restore")), "pool": r.Text("pool"), "template": r.Text("ostemplate")}
	keys := map[string]string{}
	for _, p := range r.Params {
		switch p.Name {
		case "node", "vmid", "force", "storage", "start", "unique", "live-restore", "restore", "archive", "ostemplate", "bwlimit", "pool", "ha-managed", "password",
			"ssh-public-keys", "ignore-unpack-errors", "import-working-storage":
		default:
			keys[p.Name] = strings.Join(values(r, p.Name), ";")
		}
	}
	ownNameOf(keys)
	onStorage(keys, detail["storage"])
	archive := r.Text("archive")
	if kind == "lxc" && on(r, "restore") {
		archive = r.Text("ostemplate")
	}
	if archive == "" {
		return []change{{verb: creates, object: guest, keys: keys, detail: detail}}, true
	}
	detail["from"], detail["archive"] = "archive", archive
	return []change{{verb: bringsIn, object: guest, keys: keys, detail: detail}}, true
}

// ownNameOf puts a key that Proxmox takes under another name under the one that it has: what it holds now is told by that.
func ownNameOf(keys map[string]string) {
	value, ok := keys["cdrom"]
	if !ok {
		return
	}
	delete(keys, "cdrom")
	if value != "" && property(value, "media") == "" {
		value += ",media=cdrom"
	}
	keys["ide2"] = value
}

// onStorage writes out where a new disk comes of which only the size is given: on the storage that the request names for all.
func onStorage(keys map[string]string, storage string) {
	for key, text := range keys {
		if !isDrive(key) || storage == "" {
			continue
		}
		all := strings.Split(text, ",")
		for i, part := range all {
			name, value, named := strings.Cut(part, "=")
			if !named {
				name, value = "", part
			}
			if _, _, made := allocation(storage + ":" + value); made && slices.Contains([]string{"", "file", "volume"}, name) {
				all[i] = strings.TrimSuffix(part, value) + storage + ":" + value
			}
		}
		keys[key] = strings.Join(all, ",")
	}
}

func bit(on bool) string {
	if on {
		return "1"
	}
	return ""
}
