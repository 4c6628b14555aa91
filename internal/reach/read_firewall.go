package reach

import (
	"strings"

	"castellan/internal/gate"
)

// readFirewall reads every request on rules, options and address sets: of the site, a node, a guest or a vnet.
func readFirewall(_ *walk, r gate.Request) ([]change, bool) {
	method, path, _ := strings.Cut(r.Operation, " ")
	at, what, ok := strings.Cut(path, "/firewall/")
	if r.Product != "pve" || !ok || method == "GET" {
		return nil, false
	}
	p := given(r)
	scope := "cluster"
	switch {
	case strings.Contains(at, "{vmid}"):
		scope = "guest/" + p["vmid"]
	case strings.Contains(at, "{vnet}"):
		scope = "vnet/" + p["vnet"]
	case strings.HasPrefix(at, "/nodes/"):
		scope = "node/" + p["node"]
	}
	what, rest, _ := strings.Cut(what, "/")
	detail := map[string]string{"what": what, "method": method, "rest": rest, "vmid": p["vmid"], "node": p["node"]}
	keys := settings(r)
	for _, name := range []string{"pos", "name", "cidr", "group"} { // those of the path say what is meant
		if v, ok := p[name]; ok {
			detail[name] = v
		}
	}
	return []change{{verb: filters, object: object(gate.ObjectFirewall, scope), keys: keys, detail: detail}}, true
}
