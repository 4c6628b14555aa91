package catalog

import "strings"

// byAlias finds what a tool name known from elsewhere stands for.
func (c *Catalog) byAlias(query string, parts []*part, extra []Document) []Hit {
	name := strings.ToLower(strings.TrimSpace(query))
	if name == "" || strings.ContainsAny(name, " /") {
		return nil
	}
	c.search.mu.Lock()
	if c.search.names == nil {
		c.search.names = aliasTable()
	}
	targets := c.search.names[name]
	c.search.mu.Unlock()
	var out []Hit
	for _, e := range extra {
		if e.Name == name {
			out = append(out, Hit{Product: e.Product, Name: e.Name, Summary: e.Summary})
		}
	}
	for _, t := range targets {
		product, id, api := strings.Cut(t, " ")
		if !api {
			for _, e := range extra {
				if e.Name == t && t != name {
					out = append(out, Hit{Product: e.Product, Name: e.Name, Summary: e.Summary})
				}
			}
			continue
		}
		for _, p := range parts {
			if i, ok := p.byID[id]; ok && p.product == product {
				out = append(out, p.docs[i].hit(0))
			}
		}
	}
	return out
}

// aliasTable reads lines of the form "name = product METHOD path, curated_operation".
func aliasTable() map[string][]string {
	out := map[string][]string{}
	for _, line := range wordLines("aliases") {
		name, targets, ok := strings.Cut(line, "=")
		if !ok {
			continue
		}
		name = strings.TrimSpace(name)
		for t := range strings.SplitSeq(targets, ",") {
			if t = strings.TrimSpace(t); t != "" {
				out[name] = append(out[name], t)
			}
		}
	}
	return out
}
