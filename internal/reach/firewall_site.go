package reach

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

// fwScope is what one scope has of its own.
type fwScope struct {
	options estate.Config
	rules   []estate.Config
	sets    *addressSets
	here    []netip.Addr
	local   []span
	nolan   bool
	gap     bool // something of it could not be read
}

// siteFirewall is what the firewall of a site is made of. Scopes of nodes and guests are read when they are asked for.
type siteFirewall struct {
	w       *walk
	cluster *fwScope
	groups  map[string][]estate.Config
	mu      sync.Mutex
	scopes  map[string]*fwScope // "node/pve1", "guest/101"
	gap     bool
}

func (w *walk) readSiteFirewall() *siteFirewall {
	f := &siteFirewall{w: w, groups: map[string][]estate.Config{}, scopes: map[string]*fwScope{}}
	f.cluster = w.readScope("cluster", "/cluster/firewall", nil, true)
	groups, ok := w.fwRows("cluster", "/cluster/firewall/groups", nil)
	f.gap = f.cluster.gap || !ok
	for _, g := range groups {
		rules, ok := w.fwRows("cluster", "/cluster/firewall/groups/{group}", map[string]string{"group": g["group"]})
		f.groups[g["group"]] = rules
		f.gap = f.gap || !ok
	}
	return f
}

func (w *walk) fwRows(scope, path string, params map[string]string) ([]estate.Config, bool) {
	return w.s.Rows(estate.PartFirewall, scope, gate.Read{Operation: "GET " + path, Params: params})
}

// readScope reads options, rules and, where the scope has its own, address sets.
func (w *walk) readScope(scope, path string, params map[string]string, sets bool) *fwScope {
	s := &fwScope{sets: newAddressSets()}
	options, ok1 := w.fwRows(scope, path+"/options", params)
	if len(options) > 0 {
		s.options = options[0]
	}
	var ok2 bool
	s.rules, ok2 = w.fwRows(scope, path+"/rules", params)
	s.gap = !ok1 || !ok2
	if !sets {
		return s
	}
	aliases, ok := w.fwRows(scope, path+"/aliases", params)
	s.gap = s.gap || !ok
	for _, a := range aliases {
		s.sets.setAlias(a["name"], a["cidr"])
	}
	names, ok := w.fwRows(scope, path+"/ipset", params)
	s.gap = s.gap || !ok
	for _, n := range names {
		with := maps.Clone(params)
		if with == nil {
			with = map[string]string{}
		}
		with["name"] = n["name"]
		members, ok := w.fwRows(scope, path+"/ipset/{name}", with)
		s.gap = s.gap || !ok
		s.sets.sets[n["name"]] = nil
		for _, m := range members {
			s.sets.sets[n["name"]] = append(s.sets.sets[n["name"]], member{m["cidr"], m.On("nomatch")})
		}
	}
	return s
}

func (a *addressSets) setAlias(name, cidr string) {
	if s, ok := parseSpan(cidr); ok {
		a.aliases[strings.ToLower(name)] = s
	}
}

func (a *addressSets) clone() *addressSets {
	return &addressSets{aliases: maps.Clone(a.aliases), sets: maps.Clone(a.sets), outer: a.outer}
}

func (f *siteFirewall) scope(name string, read func() *fwScope) *fwScope {
	f.mu.Lock()
	s := f.scopes[name]
	f.mu.Unlock()
	if s != nil {
		return s
	}
	s = read()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.scopes[name] == nil {
		f.scopes[name] = s
	}
	return f.scopes[name]
}

func (f *siteFirewall) node(name string) *fwScope {
	return f.scope("node/"+name, func() *fwScope {
		s := f.w.readScope("node/"+name, "/nodes/{node}/firewall", map[string]string{"node": name}, false)
		s.here, s.local, s.nolan = f.w.nodeNetworks(name)
		return s
	})
}

func (f *siteFirewall) guest(g estate.Guest) *fwScope {
	return f.scope("guest/"+g.ID, func() *fwScope {
		return f.w.readScope("guest/"+g.ID, "/nodes/{node}/"+g.Path()+"/{vmid}/firewall", map[string]string{"node": g.Node, "vmid": g.ID}, true)
	})
}

// clone copies what changes touch; scopes that were read stay shared until they are changed.
func (f *siteFirewall) clone() *siteFirewall {
	c := *f.cluster
	c.options, c.rules, c.sets = maps.Clone(c.options), slices.Clone(c.rules), c.sets.clone()
	f.mu.Lock()
	defer f.mu.Unlock()
	return &siteFirewall{w: f.w, cluster: &c, groups: maps.Clone(f.groups), scopes: maps.Clone(f.scopes), gap: f.gap}
}

// change carries a change out on a copy.
func (f *siteFirewall) change(c change) *siteFirewall {
	out := f.clone()
	d := c.detail
	if d["what"] == "groups" {
		out.changeGroup(c)
		return out
	}
	s := out.cluster
	kind, id, _ := strings.Cut(c.object.ID, "/")
	switch kind {
	case "node":
		own := *out.node(id)
		s = &own
		out.scopes[c.object.ID] = s
	case "guest":
		g, ok := out.w.guest(id)
		if !ok {
			out.gap = true
			return out
		}
		own := *out.guest(g)
		s = &own
		s.sets = s.sets.clone()
		out.scopes[c.object.ID] = s
	case "vnet":
		return out
	}
	switch d["what"] {
	case "options":
		s.options = maps.Clone(s.options)
		if s.options == nil {
			s.options = estate.Config{}
		}
		for k, v := range c.keys {
			if v == "" {
				delete(s.options, k)
				continue
			}
			s.options[k] = v
		}
	case "rules":
		s.rules = changeRules(s.rules, c)
	case "aliases":
		s.sets.changeAlias(c)
	case "ipset":
		s.sets.changeSet(c)
	}
	return out
}

func (f *siteFirewall) changeGroup(c change) {
	d, name := c.detail, c.detail["group"]
	switch {
	case d["rest"] == "" && c.keys["rename"] != "":
		f.groups[name] = f.groups[c.keys["rename"]]
		if name != c.keys["rename"] {
			delete(f.groups, c.keys["rename"])
		}
	case d["rest"] == "" && d["method"] == "POST":
		f.groups[name] = slices.Clone(f.groups[name])
	case d["rest"] == "{group}" && d["method"] == "DELETE":
		delete(f.groups, name)
	default:
		f.groups[name] = changeRules(f.groups[name], c)
	}
}

// changeRules makes, alters, moves or deletes a rule; a new one comes first, whatever place is asked for.
func changeRules(rules []estate.Config, c change) []estate.Config {
	pos := int(number(c.detail["pos"]))
	switch c.detail["method"] {
	case "POST":
		r := estate.Config{}
		maps.Copy(r, c.keys)
		return append([]estate.Config{r}, rules...)
	case "DELETE":
		if pos >= 0 && pos < len(rules) {
			return slices.Delete(slices.Clone(rules), pos, pos+1)
		}
		return rules
	}
	if pos < 0 || pos >= len(rules) {
		return rules
	}
	// A move to where it is already is none: then the rule is altered.
	if at := int(number(c.keys["moveto"])); c.keys["moveto"] != "" && at != pos {
		var out []estate.Config
		for i, r := range rules {
			if i == at {
				out = append(out, rules[pos])
			}
			if i != pos {
				out = append(out, r)
			}
		}
		if at >= len(rules) {
			out = append(out, rules[pos])
		}
		return out
	}
	r := maps.Clone(rules[pos])
	for k, v := range c.keys {
		switch {
		case v == "":
			delete(r, k)
		case k != "moveto":
			r[k] = v
		}
	}
	delete(r, "errors")
	out := slices.Clone(rules)
	out[pos] = r
	return out
}

func (a *addressSets) changeAlias(c change) {
	name := strings.ToLower(c.detail["name"])
	switch c.detail["method"] {
	case "DELETE":
		delete(a.aliases, name)
		return
	case "PUT":
		if to := c.keys["rename"]; to != "" {
			delete(a.aliases, name)
			name = to
		}
	}
	a.setAlias(name, c.detail["cidr"])
}

func (a *addressSets) changeSet(c change) {
	d, name := c.detail, c.detail["name"]
	one := func(m member) bool { return m.cidr == d["cidr"] }
	switch {
	case d["rest"] == "" && c.keys["rename"] != "":
		a.sets[name] = a.sets[c.keys["rename"]]
		if name != c.keys["rename"] {
			delete(a.sets, c.keys["rename"])
		}
	case d["rest"] == "" && d["method"] == "POST":
		a.sets[name] = slices.Clone(a.sets[name])
	case d["rest"] == "{name}" && d["method"] == "DELETE":
		delete(a.sets, name)
	case d["method"] == "POST":
		a.sets[name] = append(slices.Clone(a.sets[name]), member{d["cidr"], c.keys["nomatch"] == "1"})
	case d["method"] == "DELETE":
		a.sets[name] = slices.DeleteFunc(slices.Clone(a.sets[name]), one)
	case d["method"] == "PUT":
		a.sets[name] = append(slices.DeleteFunc(slices.Clone(a.sets[name]), one), member{d["cidr"], c.keys["nomatch"] == "1"})
	}
}

// hostRules is the ruleset of a node.
func (f *siteFirewall) hostRules(node string) (*ruleset, bool) {
	n := f.node(node)
	on := f.cluster.options.On("enable") && n.options["enable"] != "0"
	forward := f.cluster.options["policy_forward"]
	if own := n.options["policy_forward"]; own != "" {
		forward = own
	}
	local, nolan := n.local, n.nolan
	if s, ok := f.cluster.sets.aliases["local_network"]; ok { // it takes the place of the network that is found out
		local, nolan = []span{s}, false
	}
	return &ruleset{on: on, host: true, rules: append(slices.Clone(n.rules), f.cluster.rules...), groups: f.groups, sets: f.cluster.sets, here: n.here,
		local: local, nolan: nolan, policy: f.cluster.options["policy_in"], policyOut: f.cluster.options["policy_out"], policyForward: forward}, !f.gap && !n.gap
}

// guestRules is the ruleset of a guest. Whether its interfaces are filtered at all is the guest's own setting.
func (f *siteFirewall) guestRules(g estate.Guest, filtered bool) (*ruleset, bool) {
	s := f.guest(g)
	sets := s.sets.clone()
	sets.outer = f.cluster.sets
	return &ruleset{on: filtered && f.cluster.options.On("enable") && s.options.On("enable"), rules: s.rules, groups: f.groups, sets: sets, policy: s.options["policy_in"], policyOut: s.options["policy_out"]}, !f.gap && !s.gap
}

// guest finds a guest of the site by its id.
func (w *walk) guest(id string) (estate.Guest, bool) {
	return w.s.Inventory().ByID(id)
}

// nodeNetworks are a node's own addresses and the network in which its cluster address lies, which Proxmox lets in for
// management where the site has no alias local_network.
func (w *walk) nodeNetworks(node string) (here []netip.Addr, local []span, unknown bool) {
	status, ok := w.s.Status()
	var main netip.Addr
	for _, r := range status {
		if r["type"] == "node" && r["name"] == node {
			if a, err := netip.ParseAddr(r["ip"]); err == nil {
				main = a
				here = append(here, a)
			}
		}
	}
	rows, ok2 := w.s.Network(node)
	if !ok || !ok2 || !main.IsValid() {
		return nil, nil, true
	}
	for _, r := range rows {
		for _, key := range []string{"cidr", "cidr6"} {
			p, err := netip.ParsePrefix(r[key])
			if err != nil {
				continue
			}
			if p.Addr() != main {
				here = append(here, p.Addr())
			}
			if p.Contains(main) {
				local = append(local, spanOf(p))
			}
		}
	}
	return here, local, len(local) == 0
}
