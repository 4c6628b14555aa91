package lab

import (
	"strings"

	"castellan/internal/catalog/facts"
)

// generic is a collection without a model of its own: what was created can be read, changed and deleted.
type generic struct {
	items map[string]M
	order []string
}

// generic answers an operation that no handler models.
func (c *call) generic() (any, error) {
	op := c.op
	last := op.Path[strings.LastIndex(op.Path, "/")+1:]
	item := strings.HasPrefix(last, "{")
	switch {
	case op.Task != "":
		return nil, c.notModelled()
	case item:
		return c.genericItem(strings.Trim(last, "{}"))
	case op.Method == "GET" && c.isCollection():
		return c.genericList()
	case op.Method == "GET":
		if kids := c.l.ops.children(op.Path); len(kids) > 0 && isIndex(op) {
			return indexOf(op, kids), nil
		}
		return c.genericRead()
	case op.Method == "POST" && c.idParam() != "":
		return c.genericCreate(c.idParam())
	case op.Method == "PUT" && c.l.ops.has("GET", op.Path):
		return c.genericSet()
	}
	return nil, c.notModelled()
}

func (c *call) notModelled() error {
	return die("%s %s is not modelled by the lab", c.op.Method, c.op.Path)
}

func isIndex(op *facts.Operation) bool {
	return op.Returns != nil && op.Returns.Type == "array" && len(op.Returns.Links) > 0 || op.Returns == nil
}

// indexOf prints an index with the key that its documented rows have.
func indexOf(op *facts.Operation, kids []string) []M {
	key := "name"
	if op.Returns != nil && op.Returns.Items != nil {
		for _, k := range []string{"subdir", "id", "name", "cmd"} {
			if op.Returns.Items.Properties[k] != nil {
				key = k
				break
			}
		}
	}
	out := []M{}
	for _, k := range kids {
		out = append(out, M{key: k})
	}
	return out
}

func (r *router) has(method, path string) bool {
	op, _ := r.find(method, path)
	return op != nil && op.Path == path
}

// collection is the key of the collection that a path belongs to, placeholders above it filled in.
func (c *call) collection(path string) string {
	parts := pathParts(path)
	for i, p := range parts {
		if strings.HasPrefix(p, "{") {
			parts[i] = c.str(strings.Trim(p, "{}"))
		}
	}
	return "/" + strings.Join(parts, "/")
}

func (c *call) items(key string) *generic {
	g := c.s.objects[key]
	if g == nil {
		g = &generic{items: map[string]M{}}
		c.s.objects[key] = g
	}
	return g
}

// child is the placeholder below this path that names an item.
func (c *call) child() string {
	n := c.l.ops.root
	for _, part := range pathParts(c.op.Path) {
		if strings.HasPrefix(part, "{") {
			n = n.param
		} else {
			n = n.fixed[part]
		}
		if n == nil {
			return ""
		}
	}
	if n.param == nil {
		return ""
	}
	return n.param.name
}

func (c *call) isCollection() bool { return c.child() != "" }

// idParam is the parameter of a create call that names the new item.
func (c *call) idParam() string {
	k := c.child()
	if k == "" || lookup(c.op.Params, k) == nil {
		return ""
	}
	return k
}

func (c *call) genericList() (any, error) {
	g := c.items(c.collection(c.op.Path))
	out := []M{}
	for _, id := range g.order {
		m := copyM(g.items[id])
		if c.child() != "" {
			m[c.child()] = id
		}
		out = append(out, m)
	}
	return out, nil
}

func (c *call) genericCreate(key string) (any, error) {
	return c.genericAdd(c.collection(c.op.Path), key, c.str(key))
}

func (c *call) genericAdd(coll, key, id string) (any, error) {
	g := c.items(coll)
	if g.items[id] != nil {
		return nil, die("%s '%s' already exists", c.thing(coll), id)
	}
	m := M{}
	for k := range c.p {
		if k == key || k == "node" || k == "digest" || k == "delete" || strings.Contains(c.op.Path, "{"+k+"}") || secretKey(k) {
			continue
		}
		m[k] = c.typedValue(k)
	}
	g.items[id] = m
	g.order = append(g.order, id)
	return nil, nil
}

// secretKey names parameters that are kept apart and never read back.
func secretKey(k string) bool {
	return k == "password" || k == "secret" || k == "keyring"
}

func (c *call) typedValue(k string) any {
	if l, ok := c.p[k].([]string); ok {
		return l
	}
	return c.typedParam(k)
}

func (c *call) thing(coll string) string {
	parts := pathParts(coll)
	return strings.TrimSuffix(parts[len(parts)-1], "s")
}

func (c *call) genericItem(key string) (any, error) {
	coll := c.collection(c.op.Path[:strings.LastIndex(c.op.Path, "/")])
	g, id := c.items(coll), c.str(key)
	m := g.items[id]
	if c.op.Method == "POST" && m == nil {
		return c.genericAdd(coll, key, id)
	}
	if m == nil {
		return nil, die("%s '%s' does not exist", c.thing(coll), id)
	}
	switch c.op.Method {
	case "GET":
		out := copyM(m)
		out[key] = id
		if c.op.Returns == nil || c.op.Returns.Properties["digest"] != nil {
			out["digest"] = digestMap(m)
		}
		return out, nil
	case "DELETE":
		delete(g.items, id)
		for i, x := range g.order {
			if x == id {
				g.order = append(g.order[:i:i], g.order[i+1:]...)
				break
			}
		}
		return nil, nil
	case "PUT":
		return nil, c.change(m)
	}
	return nil, c.notModelled()
}

// change applies a PUT to stored keys.
func (c *call) change(m M) error {
	if d := c.str("digest"); d != "" && d != digestMap(m) {
		return die(msgModified)
	}
	for _, k := range c.deletions() {
		delete(m, k)
	}
	for k := range c.p {
		if k == "digest" || k == "delete" || strings.Contains(c.op.Path, "{"+k+"}") || secretKey(k) {
			continue
		}
		m[k] = c.typedValue(k)
	}
	return nil
}

func (c *call) deletions() []string {
	if l, ok := c.p["delete"].([]string); ok {
		return l
	}
	return splitList(c.str("delete"))
}

// genericRead and genericSet keep one object per path.
func (c *call) genericRead() (any, error) {
	key := c.collection(c.op.Path)
	if g := c.s.objects[key]; g != nil && g.items[""] != nil {
		return copyM(g.items[""]), nil
	}
	if c.op.Returns != nil {
		switch c.op.Returns.Type {
		case "array":
			return []any{}, nil
		case "object":
			if c.l.ops.has("PUT", c.op.Path) {
				return M{}, nil
			}
		case "null":
			return nil, nil
		}
	}
	return nil, c.notModelled()
}

func (c *call) genericSet() (any, error) {
	g := c.items(c.collection(c.op.Path))
	if g.items[""] == nil {
		g.items[""] = M{}
	}
	return nil, c.change(g.items[""])
}
