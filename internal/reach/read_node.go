package reach

import (
	"strings"

	"castellan/internal/gate"
)

// readNode reads requests on a node's power, services, disks, certificates and packages.
func readNode(_ *walk, r gate.Request) ([]change, bool) {
	method, path, _ := strings.Cut(r.Operation, " ")
	rest, ok := strings.CutPrefix(path, "/nodes/{node}/")
	if r.Product != "pve" || !ok || method == "GET" {
		return nil, false
	}
	p := given(r)
	node := object(gate.ObjectNode, p["node"])
	one := func(v verb, o gate.Object, what string) ([]change, bool) {
		return []change{{verb: v, object: o, keys: settings(r), detail: map[string]string{"what": what, "method": method, "node": p["node"], "service": p["service"], "name": p["name"], "disk": p["disk"] + p["device"] + p["dev"] + p["devices"]}}}, true
	}
	ceph := func(kind, id string) gate.Object { return object(gate.ObjectCeph, kind+id) }
	switch method + " " + rest {
	case "POST status":
		if p["command"] == "reboot" {
			return one(restarts, node, "power")
		}
		return one(stops, node, "power")
	case "POST wakeonlan":
		return one(starts, node, "power")
	case "POST services/{service}/start":
		return one(nothing, node, "service")
	case "POST services/{service}/stop":
		return one(stops, node, "service")
	case "POST services/{service}/restart", "POST services/{service}/reload":
		return one(restarts, node, "service")
	case "PUT config":
		return one(alters, node, "config")
	case "DELETE certificates/custom", "POST certificates/custom", "DELETE certificates/acme/certificate", "POST certificates/acme/certificate", "PUT certificates/acme/certificate":
		return one(trusts, node, "certificate")
	case "POST apt/repositories", "PUT apt/repositories":
		return one(trusts, node, "packages")
	case "POST apt/update", "POST replication/{id}/schedule_now", "POST aplinfo":
		return one(nothing, node, "")
	case "PUT subscription", "POST subscription", "DELETE subscription":
		return one(alters, node, "subscription")
	case "PUT disks/wipedisk", "POST disks/initgpt", "POST disks/directory", "POST disks/lvm", "POST disks/lvmthin", "POST disks/zfs", "POST ceph/osd":
		return one(frees, node, "disk")
	case "DELETE disks/directory/{name}", "DELETE disks/lvm/{name}", "DELETE disks/lvmthin/{name}", "DELETE disks/zfs/{name}":
		return one(removes, node, "volumes of "+strings.Split(rest, "/")[1])
	case "POST ceph/osd/{osdid}/out":
		return one(disables, ceph("osd.", p["osdid"]), "osd")
	case "POST ceph/osd/{osdid}/in", "POST ceph/osd/{osdid}/scrub", "POST ceph/start":
		return one(nothing, ceph("osd.", p["osdid"]), "osd")
	case "DELETE ceph/osd/{osdid}":
		return one(removes, ceph("osd.", p["osdid"]), "osd")
	case "DELETE ceph/mon/{monid}":
		return one(removes, ceph("mon.", p["monid"]), "mon")
	case "DELETE ceph/mgr/{id}":
		return one(removes, ceph("mgr.", p["id"]), "mgr")
	case "DELETE ceph/mds/{name}":
		return one(removes, ceph("mds.", p["name"]), "mds")
	case "DELETE ceph/pool/{name}":
		return one(removes, ceph("pool/", p["name"]), "pool")
	case "POST ceph/pool":
		return one(creates, ceph("pool/", p["name"]), "pool")
	case "PUT ceph/pool/{name}":
		return one(alters, ceph("pool/", p["name"]), "pool")
	case "DELETE ceph/fs/{name}":
		return one(removes, ceph("fs/", p["name"]), "fs")
	case "POST ceph/stop", "POST ceph/restart":
		service := p["service"]
		if service == "" {
			service = "ceph.target"
		}
		v := stops
		if strings.HasSuffix(rest, "restart") {
			v = restarts
		}
		return one(v, ceph("", service), "daemon")
	case "POST ceph/restart-bulk":
		if p["dry-run"] == "1" {
			return one(nothing, node, "daemon")
		}
		return one(restarts, ceph("", "ceph.target"), "daemon")
	case "POST ceph/mon/{monid}", "POST ceph/mgr/{id}", "POST ceph/mds/{name}", "POST ceph/fs/{name}", "POST ceph/init":
		return one(nothing, node, "ceph")
	}
	return nil, false
}

// readHA reads requests on HA, replication and Ceph's flags.
func readHA(_ *walk, r gate.Request) ([]change, bool) {
	method, path, _ := strings.Cut(r.Operation, " ")
	if r.Product != "pve" || method == "GET" {
		return nil, false
	}
	p := given(r)
	one := func(v verb, kind gate.ObjectKind, id, what string) ([]change, bool) {
		return []change{{verb: v, object: object(kind, id), keys: settings(r), detail: map[string]string{"what": what, "method": method, "to": p["node"]}}}, true
	}
	byMethod := map[string]verb{"POST": creates, "PUT": alters, "DELETE": removes}[method]
	switch path {
	case "/cluster/ha/resources", "/cluster/ha/resources/{sid}":
		return one(byMethod, gate.ObjectHA, p["sid"], "resource")
	case "/cluster/ha/resources/{sid}/migrate":
		return one(moves, gate.ObjectHA, p["sid"], "migrate")
	case "/cluster/ha/resources/{sid}/relocate":
		return one(moves, gate.ObjectHA, p["sid"], "relocate")
	case "/cluster/ha/rules", "/cluster/ha/rules/{rule}":
		return one(byMethod, gate.ObjectHARule, p["rule"], "rule")
	case "/cluster/ha/groups", "/cluster/ha/groups/{group}":
		return one(byMethod, gate.ObjectHARule, p["group"], "group")
	case "/cluster/ha/status/disarm-ha":
		return one(disables, gate.ObjectHA, "", "disarm")
	case "/cluster/ha/status/arm-ha":
		return one(starts, gate.ObjectHA, "", "arm")
	case "/cluster/replication", "/cluster/replication/{id}":
		return one(byMethod, gate.ObjectReplication, p["id"], "replication")
	case "/cluster/ceph/flags", "/cluster/ceph/flags/{flag}":
		keys, out := settings(r), change{verb: alters, object: object(gate.ObjectCeph, "flags"), keys: map[string]string{}, detail: map[string]string{"what": "flags"}}
		if p["flag"] != "" {
			keys = map[string]string{p["flag"]: p["value"]}
		}
		out.keys = keys
		return []change{out}, true
	case "/cluster/ceph/health-mute/{code}":
		return one(nothing, gate.ObjectCeph, "", "mute")
	case "/cluster/ceph/restart-bulk":
		if p["dry-run"] == "1" {
			return one(nothing, gate.ObjectCeph, "", "daemon")
		}
		return one(restarts, gate.ObjectCeph, "ceph.target", "daemon")
	}
	return nil, false
}

// readCluster reads requests on the cluster as a whole: membership, options, alerts, mappings, metrics.
func readCluster(_ *walk, r gate.Request) ([]change, bool) {
	method, path, _ := strings.Cut(r.Operation, " ")
	rest, ok := strings.CutPrefix(path, "/cluster/")
	if r.Product != "pve" || !ok || method == "GET" {
		return nil, false
	}
	p := given(r)
	site := object(gate.ObjectSite, "")
	one := func(v verb, o gate.Object, what string) ([]change, bool) {
		return []change{{verb: v, object: o, keys: settings(r), detail: map[string]string{"what": what, "method": method, "name": p["name"] + p["id"], "node": p["node"]}}}, true
	}
	switch {
	case rest == "options":
		return one(alters, site, "options")
	case rest == "config" || rest == "config/join":
		return one(trusts, site, rest)
	case rest == "config/nodes/{node}" && method == "DELETE":
		return one(removes, object(gate.ObjectNode, p["node"]), "member")
	case rest == "config/nodes/{node}":
		return one(trusts, site, "member")
	case strings.HasPrefix(rest, "notifications/targets"):
		return one(nothing, site, "")
	case strings.HasPrefix(rest, "notifications/"):
		if method == "POST" {
			return one(nothing, site, "")
		}
		return one(alters, object(gate.ObjectSite, "notifications"), "notifications")
	case strings.HasPrefix(rest, "mapping/"):
		v := map[string]verb{"POST": creates, "PUT": alters, "DELETE": removes}[method]
		return one(v, object(gate.ObjectSite, "mapping/"+p["id"]), strings.Split(rest, "/")[1])
	case strings.HasPrefix(rest, "acme/"), strings.HasPrefix(rest, "metrics/"), strings.HasPrefix(rest, "qemu/custom-cpu-models"):
		if method == "POST" {
			return one(nothing, site, "")
		}
		return one(alters, object(gate.ObjectSite, strings.Split(rest, "/")[0]), strings.Join(strings.Split(rest, "/")[:2], "/"))
	}
	return nil, false
}
