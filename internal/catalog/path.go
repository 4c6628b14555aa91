package catalog

import "strings"

// segment is one node of a product's trie of path templates.
type segment struct {
	fixed map[string]*segment
	open  *segment              // a placeholder takes this part
	ops   map[string]*Operation // by method
	rest  bool                  // the placeholder here takes all that is left
}

func (s *segment) insert(op *Operation) {
	at := s
	for part := range strings.SplitSeq(strings.Trim(op.Path, "/"), "/") {
		if part == "" {
			continue
		}
		if name, ok := placeholder(part); ok {
			if at.open == nil {
				at.open = &segment{}
			}
			at = at.open
			at.rest = at.rest || name == op.rest
			continue
		}
		if at.fixed == nil {
			at.fixed = map[string]*segment{}
		}
		if at.fixed[part] == nil {
			at.fixed[part] = &segment{}
		}
		at = at.fixed[part]
	}
	if at.ops == nil {
		at.ops = map[string]*Operation{}
	}
	at.ops[op.Method] = op
}

// swallowsRest tells the templates whose last placeholder takes the rest of the path, slashes included.
func swallowsRest(product, template string) bool {
	last := template[strings.LastIndexByte(template, '/')+1:]
	switch product {
	case "pve":
		return last == "{volume}" || last == "{cidr}"
	case "pmg":
		return template == "/config/mynetworks/{cidr}"
	}
	return false
}
