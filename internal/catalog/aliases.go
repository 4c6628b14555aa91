package catalog

import (
	"slices"
	"strings"
)

// byAlias finds what a tool name known from elsewhere stands for: operations that the caller brought along
// first, then API operations.
func (c *Catalog) byAlias(query string, parts []*part, extra []Document) []Hit {
	name := strings.ToLower(strings.TrimSpace(query))
	name, _, _ = strings.Cut(name, "(") // called with arguments
	if name == "" || strings.ContainsAny(name, " \t\n/") {
		return nil
	}
	names := c.search.aliases()
	targets := slices.Clone(names[name])
	if targets == nil {
		for _, product := range Products() {
			targets = append(targets, names[product+"_"+name]...)
		}
	}
	if i := slices.IndexFunc(extra, func(e Document) bool { return e.Name == name }); i >= 0 {
		targets = append([]string{name}, targets...)
	}
	var out []Hit
	known := map[string]bool{}
	add := func(h Hit) {
		if !known[h.key()] {
			known[h.key()] = true
			out = append(out, h)
		}
	}
	for _, t := range targets {
		product, id, api := strings.Cut(t, " ")
		for _, e := range extra {
			if !api && e.Name == t {
				add(Hit{Product: e.Product, Name: e.Name, Summary: e.Summary})
			}
		}
		for _, p := range parts {
			if i, ok := p.byID[id]; ok && p.product == product {
				add(p.docs[i].hit(0))
			}
		}
	}
	return out
}

func (s *searchCache) aliases() map[string][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.names == nil {
		s.names = aliasTable()
	}
	return s.names
}

// aliasTable reads the table of names. Each name has targets of the form "product METHOD path" or the name
// of a curated operation.
func aliasTable() map[string][]string {
	out := map[string][]string{}
	places := strings.NewReplacer("@guest", "/nodes/{node}/(qemu,lxc)/{vmid}",
		"@listed", "(/cluster,/nodes/{node}/qemu/{vmid},/nodes/{node}/lxc/{vmid})",
		"@walled", "(/cluster,/nodes/{node},/nodes/{node}/qemu/{vmid},/nodes/{node}/lxc/{vmid})")
	put := func(name string, targets ...string) {
		for _, t := range targets {
			for _, t := range spell(places.Replace(t)) {
				if !slices.Contains(out[name], t) {
					out[name] = append(out[name], t)
				}
			}
		}
	}
	for _, line := range wordLines("aliases") {
		left, right, _ := strings.Cut(line, "=")
		name, right := strings.TrimSpace(left), strings.TrimSpace(right)
		sort, rest, several := strings.Cut(name, " ")
		at := strings.Fields(right)
		switch {
		case sort == "crud" && len(at) == 3:
			product, all, one := at[0], at[1], at[2]
			put(rest+"_list", product+" GET "+all)
			put(rest+"s_list", product+" GET "+all)
			put(rest+"_get", product+" GET "+one)
			for _, verb := range []string{"_create", "_add"} {
				put(rest+verb, product+" POST "+all, product+" POST "+one)
			}
			for _, verb := range []string{"_update", "_set"} {
				put(rest+verb, product+" PUT "+one)
			}
			for _, verb := range []string{"_delete", "_remove", "_destroy"} {
				put(rest+verb, product+" DELETE "+one)
			}
		case sort == "each":
			for _, product := range Products() {
				for _, t := range targets(right) {
					put(product+"_"+rest, product+" "+t)
				}
			}
		case sort == "roles": // the object groups and actions of a mail filter rule
			for _, role := range []string{"action", "from", "to", "what", "when"} {
				put(rest+"_"+role+"_list", at[0]+" GET "+at[1]+"/"+role)
				put(rest+"_"+role+"_attach", at[0]+" POST "+at[1]+"/"+role)
				put(rest+"_"+role+"_detach", at[0]+" DELETE "+at[1]+"/"+role+"/{ogroup}")
			}
		case sort == "groups": // the object groups of the mail filter and what is in them
			for group, kinds := range map[string]string{"who": "domain,email,ip,ldap,ldapuser,network,regex", "when": "timeframe",
				"what": "archivefilenamefilter,archivefilter,contenttype,filenamefilter,matchfield,spamfilter,virusfilter"} {
				base := at[1] + "/" + group
				put(rest+"_"+group+"_groups_list", at[0]+" GET "+base)
				put(rest+"_"+group+"_group_create", at[0]+" POST "+base)
				put(rest+"_"+group+"_group_delete", at[0]+" DELETE "+base+"/{ogroup}")
				put(rest+"_"+group+"_group_get", at[0]+" GET "+base+"/{ogroup}/config")
				put(rest+"_"+group+"_group_update", at[0]+" PUT "+base+"/{ogroup}/config")
				put(rest+"_"+group+"_group_objects", at[0]+" GET "+base+"/{ogroup}/objects")
				put(rest+"_"+group+"_object_add", at[0]+" POST "+base+"/{ogroup}/("+kinds+")")
				put(rest+"_"+group+"_object_update", at[0]+" PUT "+base+"/{ogroup}/("+kinds+")/{id}")
				put(rest+"_"+group+"_object_delete", at[0]+" DELETE "+base+"/{ogroup}/objects/{id}")
			}
		case !several:
			put(name, targets(right)...)
		}
	}
	return out
}

// targets splits at commas outside parentheses.
func targets(text string) []string {
	var out []string
	depth, from := 0, 0
	for i, r := range text {
		switch {
		case r == '(':
			depth++
		case r == ')':
			depth--
		case r == ',' && depth == 0:
			out = append(out, strings.TrimSpace(text[from:i]))
			from = i + 1
		}
	}
	return append(out, strings.TrimSpace(text[from:]))
}
