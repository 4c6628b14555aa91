package lab

import (
	"fmt"

	"castellan/internal/regex"
)

// dropACL removes what an id holds on any path.
func (s *state) dropACL(kind, id string) {
	for path, n := range s.acl {
		delete(n[kind], id)
		if len(n["user"])+len(n["group"])+len(n["token"]) == 0 {
			delete(s.acl, path)
		}
	}
	s.rightsChanged()
}

var aclPath = &regex.Lazy{Expr: `^/(access(/groups(/[A-Za-z0-9._-]+)?|/realm(/[A-Za-z0-9._-]+)?)?|nodes(/[[:alnum:]._-]+)?|pool(/[A-Za-z0-9._/-]+)?|sdn(/(controllers|dns|fabrics|ipams|prefix-lists|route-maps|zones)(/[[:alnum:]._-]+){0,3})?|storage(/[[:alnum:]._-]+)?|vms(/[1-9][0-9]{2,8})?|mapping(/[[:alnum:]._-]+){0,2})?$`}

func setACL(c *call) (any, error) {
	path := normalizePath(c.str("path"))
	if path == "" || !aclPath.MatchString(path) {
		return nil, bad("path", "invalid ACL path '%s'", c.str("path"))
	}
	if !c.has("users") && !c.has("groups") && !c.has("tokens") {
		return nil, bad("users", "either 'users', 'groups' or 'tokens' is required.")
	}
	roles := splitList(c.str("roles"))
	for _, r := range roles {
		if c.s.roles[r] == nil {
			return nil, die("ACL update failed: role '%s' does not exist", r)
		}
	}
	if err := c.mayGrant(path, roles); err != nil {
		return nil, err
	}
	for kind, key := range map[string]string{"user": "users", "group": "groups", "token": "tokens"} {
		for _, id := range splitList(c.str(key)) {
			switch kind {
			case "user":
				if c.s.users[id] == nil {
					return nil, die("ACL update failed: user '%s' does not exist", id)
				}
			case "group":
				if c.s.groups[id] == nil {
					return nil, die("ACL update failed: group '%s' does not exist", id)
				}
			case "token":
				uid, t := splitToken(id)
				if u := c.s.users[uid]; u == nil || u.tokens[t] == nil {
					return nil, die("ACL update failed: no such token '%s' for user '%s'", t, uid)
				}
			}
			for _, r := range roles {
				if c.flag("delete") {
					c.s.revoke(path, kind, id, r)
				} else {
					c.s.grant(path, kind, id, r, c.flagOr("propagate", true))
				}
			}
		}
	}
	return nil, nil
}

// mayGrant keeps callers without Permissions.Modify from giving more than they have.
func (c *call) mayGrant(path string, roles []string) error {
	if c.user.root() || c.can(path, "Permissions.Modify") {
		return nil
	}
	have := c.s.perms(c.user.id(), path)
	for _, r := range roles {
		if r == "NoAccess" {
			return denied(path + ", Permissions.Modify")
		}
		for p := range c.s.roles[r].privs {
			if _, ok := have[p]; !ok {
				return denied(fmt.Sprintf("%s, Permissions.Modify", path))
			}
		}
	}
	return nil
}

func (s *state) grant(path, kind, id, role string, propagate bool) {
	n := s.acl[path]
	if n == nil {
		n = aclNode{}
		s.acl[path] = n
	}
	if n[kind] == nil {
		n[kind] = map[string]map[string]bool{}
	}
	if n[kind][id] == nil {
		n[kind][id] = map[string]bool{}
	}
	n[kind][id][role] = propagate
	s.rightsChanged()
}

func (s *state) revoke(path, kind, id, role string) {
	n := s.acl[path]
	if n == nil || n[kind][id] == nil {
		return
	}
	delete(n[kind][id], role)
	if len(n[kind][id]) == 0 {
		delete(n[kind], id)
	}
	if len(n["user"])+len(n["group"])+len(n["token"]) == 0 {
		delete(s.acl, path)
	}
	s.rightsChanged()
}

func listACL(c *call) (any, error) {
	all := c.can("/access", "Sys.Audit") || c.can("/access", "Permissions.Modify")
	out := []M{}
	for _, path := range sortedKeys(c.s.acl) {
		if !all && !c.can(path, "Permissions.Modify") {
			continue
		}
		for _, kind := range []string{"user", "group", "token"} {
			for _, id := range sortedKeys(c.s.acl[path][kind]) {
				for _, r := range sortedKeys(c.s.acl[path][kind][id]) {
					out = append(out, M{"path": path, "type": kind, "ugid": id, "roleid": r, "propagate": b2i(c.s.acl[path][kind][id][r])})
				}
			}
		}
	}
	return out, nil
}

func listPermissions(c *call) (any, error) {
	id := c.user.id()
	if who := c.str("userid"); who != "" && who != id {
		uid, tok := splitToken(who)
		if err := c.need("/access", "Sys.Audit"); err != nil && !(c.user.token == "" && uid == c.user.user) {
			return nil, err
		}
		u := c.s.users[uid]
		if u == nil {
			return nil, die("no such user ('%s')", uid)
		}
		if tok != "" && u.tokens[tok] == nil {
			return nil, die("no such token '%s' for user '%s'", tok, uid)
		}
		id = who
	}
	out := M{}
	show := func(p M, path string) {
		if len(p) > 0 {
			out[path] = p
		}
	}
	as := func(path string) M {
		m := M{}
		for k, prop := range c.s.perms(id, path) {
			m[k] = b2i(prop)
		}
		return m
	}
	if p := c.str("path"); p != "" {
		show(as(normalizePath(p)), normalizePath(p))
		return out, nil
	}
	for _, path := range c.s.effectivePaths() {
		show(as(path), path)
	}
	return out, nil
}

// effectivePaths are the paths worth a look: the top level, those of the access list and the members of pools.
func (s *state) effectivePaths() []string {
	paths := map[string]bool{"/": true, "/access": true, "/access/groups": true, "/nodes": true, "/pool": true, "/sdn": true, "/storage": true, "/vms": true}
	for p := range s.acl {
		for i := 1; i < len(p); i++ {
			if p[i] == '/' {
				paths[p[:i]] = true
			}
		}
		paths[p] = true
	}
	for g := range s.guestPool {
		paths[fmt.Sprintf("/vms/%d", g)] = true
	}
	for _, p := range s.pools {
		for st := range p.storages {
			paths["/storage/"+st] = true
		}
	}
	return sortedKeys(paths)
}
