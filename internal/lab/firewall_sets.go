package lab

import (
	"sort"
	"strings"
)

func (f *firewall) aliasList() []M {
	out := []M{}
	for _, k := range sortedKeys(f.aliases) {
		out = append(out, f.aliases[k])
	}
	return out
}

func listAliases(c *call) (any, error) {
	list := c.fwScope().aliasList()
	d := listDigest(list)
	out := []M{}
	for _, a := range list {
		m := copyM(a)
		m["digest"] = d
		out = append(out, m)
	}
	return out, nil
}

func (c *call) aliasOf() (M, error) {
	a := c.fwScope().aliases[strings.ToLower(c.str("name"))]
	if a == nil {
		return nil, bad("name", "no such alias")
	}
	return a, nil
}

func getAlias(c *call) (any, error) {
	a, err := c.aliasOf()
	if err != nil {
		return nil, err
	}
	return copyM(a), nil
}

func createAlias(c *call) (any, error) {
	f := c.fwScope()
	name := c.str("name")
	if f.aliases[strings.ToLower(name)] != nil {
		return nil, bad("name", "alias '%s' already exists", strings.ToLower(name))
	}
	m := M{"name": name, "cidr": c.str("cidr"), "ipversion": ipVersion(c.str("cidr"))}
	if c.has("comment") {
		m["comment"] = c.str("comment")
	}
	f.aliases[strings.ToLower(name)] = m
	return nil, nil
}

func updateAlias(c *call) (any, error) {
	a, err := c.aliasOf()
	if err != nil {
		return nil, err
	}
	f := c.fwScope()
	if err := c.sameDigest(listDigest(f.aliasList())); err != nil {
		return nil, err
	}
	a["cidr"], a["ipversion"] = c.str("cidr"), ipVersion(c.str("cidr"))
	delete(a, "comment")
	if c.str("comment") != "" {
		a["comment"] = c.str("comment")
	}
	if to := c.str("rename"); to != "" && !strings.EqualFold(to, c.str("name")) {
		if f.aliases[strings.ToLower(to)] != nil {
			return nil, bad("name", "alias '%s' already exists", to)
		}
		delete(f.aliases, strings.ToLower(c.str("name")))
		a["name"] = to
		f.aliases[strings.ToLower(to)] = a
	}
	return nil, nil
}

func deleteAlias(c *call) (any, error) {
	f := c.fwScope()
	if err := c.sameDigest(listDigest(f.aliasList())); err != nil {
		return nil, err
	}
	delete(f.aliases, strings.ToLower(c.str("name")))
	return nil, nil
}

func (f *firewall) setList() []M {
	out := []M{}
	for _, k := range sortedKeys(f.ipsets) {
		m := M{"name": k}
		if t := f.ipsets[k].comment; t != "" {
			m["comment"] = t
		}
		out = append(out, m)
	}
	return out
}

func listIPSets(c *call) (any, error) {
	list := c.fwScope().setList()
	d := listDigest(list)
	for _, m := range list {
		m["digest"] = d
	}
	return list, nil
}

func createIPSet(c *call) (any, error) {
	f, name := c.fwScope(), c.str("name")
	if old := c.str("rename"); old != "" {
		s := f.ipsets[old]
		if s == nil {
			return nil, bad("rename", "IPSet '%s' does not exist", old)
		}
		if name != old && f.ipsets[name] != nil {
			return nil, bad("name", "IPSet '%s' already exists", name)
		}
		delete(f.ipsets, old)
		f.ipsets[name] = s
		s.comment = c.str("comment")
		return nil, nil
	}
	if f.ipsets[name] != nil {
		return nil, bad("name", "IPSet '%s' already exists", name)
	}
	f.ipsets[name] = &ipset{comment: c.str("comment")}
	return nil, nil
}

func deleteIPSet(c *call) (any, error) {
	f, name := c.fwScope(), c.str("name")
	s := f.ipsets[name]
	if s == nil {
		return nil, nil
	}
	if len(s.members) > 0 && !c.flag("force") {
		return nil, die("IPSet '%s' is not empty", name)
	}
	delete(f.ipsets, name)
	return nil, nil
}

func (c *call) setOf() (*ipset, error) {
	s := c.fwScope().ipsets[c.str("name")]
	if s == nil {
		return nil, die("no such IPSet '%s'", c.str("name"))
	}
	return s, nil
}

func listMembers(c *call) (any, error) {
	s, err := c.setOf()
	if err != nil {
		return nil, err
	}
	out := []M{}
	d := listDigest(s.members)
	for _, x := range s.members {
		m := copyM(x)
		m["digest"] = d
		if cidr, _ := x["cidr"].(string); ipVersion(cidr) == 0 && c.findAlias(cidr) == nil {
			m["errors"] = M{"cidr": "no such alias '" + cidr + "'"}
		}
		out = append(out, m)
	}
	return out, nil
}

func addMember(c *call) (any, error) {
	s, err := c.setOf()
	if err != nil {
		return nil, err
	}
	cidr := c.str("cidr")
	for _, m := range s.members {
		if m["cidr"] == cidr {
			return nil, bad("cidr", "address '%s' already exists", cidr)
		}
	}
	if ipVersion(cidr) == 0 && c.findAlias(cidr) == nil {
		return nil, die("no such alias '%s'", cidr)
	}
	m := M{"cidr": cidr}
	if c.flag("nomatch") {
		m["nomatch"] = 1
	}
	if c.has("comment") {
		m["comment"] = c.str("comment")
	}
	s.members = append([]M{m}, s.members...)
	sort.SliceStable(s.members, func(i, j int) bool {
		return s.members[i]["cidr"].(string) < s.members[j]["cidr"].(string)
	})
	return nil, nil
}

func (c *call) memberOf() (*ipset, int, error) {
	s, err := c.setOf()
	if err != nil {
		return nil, 0, err
	}
	for i, m := range s.members {
		if m["cidr"] == c.str("cidr") {
			return s, i, nil
		}
	}
	return s, -1, nil
}

func getMember(c *call) (any, error) {
	s, i, err := c.memberOf()
	if err != nil {
		return nil, err
	}
	if i < 0 {
		return nil, bad("cidr", "no such IP/Network")
	}
	return copyM(s.members[i]), nil
}

func updateMember(c *call) (any, error) {
	s, i, err := c.memberOf()
	if err != nil {
		return nil, err
	}
	if err := c.sameDigest(listDigest(s.members)); err != nil {
		return nil, err
	}
	if i < 0 {
		return nil, bad("cidr", "no such IP/Network")
	}
	m := s.members[i]
	delete(m, "nomatch")
	if c.flag("nomatch") {
		m["nomatch"] = 1
	}
	delete(m, "comment")
	if c.has("comment") {
		m["comment"] = c.str("comment")
	}
	return nil, nil
}

func deleteMember(c *call) (any, error) {
	s, i, err := c.memberOf()
	if err != nil {
		return nil, err
	}
	if err := c.sameDigest(listDigest(s.members)); err != nil {
		return nil, err
	}
	if i >= 0 {
		s.members = append(s.members[:i:i], s.members[i+1:]...)
	}
	return nil, nil
}

func fwRefs(c *call) (any, error) {
	out := []M{}
	want := c.str("type")
	add := func(scope string, f *firewall) {
		if f == nil {
			return
		}
		if want == "" || want == "ipset" {
			for _, k := range sortedKeys(f.ipsets) {
				m := M{"type": "ipset", "name": k, "ref": "+" + k, "scope": scope}
				if t := f.ipsets[k].comment; t != "" {
					m["comment"] = t
				}
				out = append(out, m)
			}
		}
		if want == "" || want == "alias" {
			for _, k := range sortedKeys(f.aliases) {
				m := M{"type": "alias", "name": k, "ref": k, "scope": scope}
				if t, ok := f.aliases[k]["comment"]; ok {
					m["comment"] = t
				}
				out = append(out, m)
			}
		}
	}
	if f := c.fwScope(); f != c.s.fw["cluster"] {
		add("dc", c.s.fw["cluster"])
		add("guest", f)
	} else {
		add("dc", f)
	}
	return out, nil
}
