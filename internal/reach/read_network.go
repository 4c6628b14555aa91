package reach

import (
	"strings"

	"castellan/internal/gate"
)

// readNetwork reads requests on a node's interfaces, on names and time, and on the network that is the same everywhere.
func readNetwork(_ *walk, r gate.Request) ([]change, bool) {
	method, path, _ := strings.Cut(r.Operation, " ")
	if r.Product != "pve" || method == "GET" {
		return nil, false
	}
	p := given(r)
	node := object(gate.ObjectNode, p["node"])
	one := func(v verb, o gate.Object, what string) ([]change, bool) {
		return []change{{verb: v, object: o, keys: settings(r), detail: map[string]string{"what": what, "method": method, "node": p["node"], "iface": p["iface"], "subnet": p["subnet"]}}}, true
	}
	iface := object(gate.ObjectInterface, p["node"]+"/"+p["iface"])
	switch path {
	case "/nodes/{node}/network":
		switch method {
		case "POST":
			return one(creates, iface, "interface")
		case "PUT":
			return one(cuts, node, "apply")
		}
		return one(cuts, node, "revert")
	case "/nodes/{node}/network/{iface}":
		if method == "DELETE" {
			return one(removes, iface, "interface")
		}
		return one(alters, iface, "interface")
	case "/nodes/{node}/dns":
		return one(alters, node, "dns")
	case "/nodes/{node}/hosts":
		return one(alters, node, "hosts")
	case "/nodes/{node}/time":
		return one(alters, node, "time")
	}
	rest, sdn := strings.CutPrefix(path, "/cluster/sdn")
	if !sdn || strings.Contains(path, "/firewall/") {
		return nil, false
	}
	v := alters
	switch method {
	case "DELETE":
		v = removes
	case "POST":
		v = creates
	}
	zone, vnet := object(gate.ObjectZone, p["zone"]), object(gate.ObjectVNet, p["vnet"])
	switch {
	case rest == "":
		return one(bringsIn, object(gate.ObjectSite, "sdn"), "sdn")
	case rest == "/rollback":
		return one(cuts, object(gate.ObjectSite, "sdn"), "rollback")
	case rest == "/lock":
		if method == "DELETE" && p["force"] == "1" {
			return one(cuts, object(gate.ObjectSite, "sdn"), "unlock")
		}
		return one(nothing, object(gate.ObjectSite, "sdn"), "lock")
	case strings.HasPrefix(rest, "/zones"):
		return one(v, zone, "zone")
	case strings.HasPrefix(rest, "/vnets") && strings.Contains(rest, "/subnets"):
		return one(v, vnet, "subnet")
	case strings.HasPrefix(rest, "/vnets") && strings.HasSuffix(rest, "/ips"):
		return one(nothing, vnet, "ip")
	case strings.HasPrefix(rest, "/vnets"):
		return one(v, vnet, "vnet")
	}
	id, _, _ := strings.Cut(strings.TrimPrefix(rest, "/"), "/")
	return one(v, object(gate.ObjectZone, strings.Trim(id+" "+p["controller"]+p["dns"]+p["ipam"]+p["id"]+p["fabric_id"]+p["route-map-id"], " ")), "staged")
}
