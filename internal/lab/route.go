package lab

import (
	"strings"

	"castellan/internal/catalog/facts"
)

// router finds the operation of a path: fixed parts before placeholders; a few placeholders take the rest.
type router struct{ root *routeNode }

type routeNode struct {
	fixed map[string]*routeNode
	param *routeNode
	name  string // of the placeholder that leads here
	rest  bool   // this placeholder swallows all that follows
	ops   map[string]*facts.Operation
}

func newRouter(ops []*facts.Operation) *router {
	r := &router{root: &routeNode{}}
	for _, op := range ops {
		n := r.root
		for _, part := range pathParts(op.Path) {
			if strings.HasPrefix(part, "{") {
				if n.param == nil {
					n.param = &routeNode{name: strings.Trim(part, "{}")}
					n.param.rest = n.param.name == "volume" || n.param.name == "cidr"
				}
				n = n.param
				continue
			}
			if n.fixed == nil {
				n.fixed = map[string]*routeNode{}
			}
			if n.fixed[part] == nil {
				n.fixed[part] = &routeNode{}
			}
			n = n.fixed[part]
		}
		if n.ops == nil {
			n.ops = map[string]*facts.Operation{}
		}
		n.ops[op.Method] = op
	}
	return r
}

func pathParts(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
}

func (r *router) find(method, path string) (*facts.Operation, map[string]string) {
	n := r.root
	var vals []string
	parts := pathParts(path)
	for i, part := range parts {
		if next := n.fixed[part]; next != nil {
			n = next
			continue
		}
		if n.param == nil {
			return nil, nil
		}
		n = n.param
		if n.rest {
			vals = append(vals, strings.Join(parts[i:], "/"))
			break
		}
		vals = append(vals, part)
	}
	op := n.ops[method]
	if op == nil {
		return nil, nil
	}
	named := make(map[string]string, len(vals))
	for _, part := range pathParts(op.Path) {
		if strings.HasPrefix(part, "{") && len(vals) > 0 {
			named[strings.Trim(part, "{}")] = vals[0]
			vals = vals[1:]
		}
	}
	return op, named
}

// children lists the fixed names below a path, for indexes.
func (r *router) children(template string) []string {
	n := r.root
	for _, part := range pathParts(template) {
		if strings.HasPrefix(part, "{") {
			n = n.param
		} else {
			n = n.fixed[part]
		}
		if n == nil {
			return nil
		}
	}
	return sortedKeys(n.fixed)
}
