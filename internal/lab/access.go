package lab

import (
	"strings"
)

func listDomains(c *call) (any, error) {
	out := []M{}
	for _, r := range sortedKeys(c.s.realms) {
		m := M{"realm": r, "type": c.s.realms[r]["type"]}
		for _, k := range []string{"comment", "default", "tfa"} {
			if v, ok := c.s.realms[r][k]; ok {
				m[k] = v
			}
		}
		out = append(out, m)
	}
	return out, nil
}

func (s *state) realmText() string {
	var b strings.Builder
	for _, r := range sortedKeys(s.realms) {
		b.WriteString(r + digestMap(s.realms[r]))
	}
	return digestOf(b.String())
}

func getDomain(c *call) (any, error) {
	r := c.s.realms[c.str("realm")]
	if r == nil {
		return nil, die("domain '%s' does not exist", c.str("realm"))
	}
	m := copyM(r)
	m["digest"] = c.s.realmText()
	return m, nil
}

func copyM(m M) M {
	out := make(M, len(m)+1)
	for k, v := range m {
		out[k] = v
	}
	return out
}

func createDomain(c *call) (any, error) {
	id := c.str("realm")
	if c.s.realms[id] != nil {
		return nil, die("add auth server failed: domain '%s' already exists", id)
	}
	if t := c.str("type"); t == "pam" || t == "pve" {
		return nil, die("add auth server failed: unable to create builtin type '%s'", t)
	}
	m := M{}
	for k := range c.p {
		if k != "realm" && k != "password" {
			m[k] = c.typedParam(k)
		}
	}
	c.s.realms[id] = m
	return nil, nil
}

// typedParam gives a parameter the type that the schema names.
func (c *call) typedParam(k string) any {
	v := c.str(k)
	if s := lookup(c.op.Params, k); s != nil {
		switch s.Type {
		case "integer", "boolean", "number":
			return number(v)
		}
	}
	return v
}

func updateDomain(c *call) (any, error) {
	id := c.str("realm")
	r := c.s.realms[id]
	if r == nil {
		return nil, die("update auth server failed: domain '%s' does not exist", id)
	}
	if d := c.str("digest"); d != "" && d != c.s.realmText() {
		return nil, die("update auth server failed: %s", msgModified)
	}
	for _, k := range splitList(c.str("delete")) {
		delete(r, k)
	}
	for k := range c.p {
		if k != "realm" && k != "digest" && k != "delete" && k != "password" {
			r[k] = c.typedParam(k)
		}
	}
	return nil, nil
}

func deleteDomain(c *call) (any, error) {
	id := c.str("realm")
	if c.s.realms[id] == nil {
		return nil, die("delete auth server failed: domain '%s' does not exist", id)
	}
	if id == "pam" || id == "pve" {
		return nil, die("delete auth server failed: you can't delete realm '%s'", id)
	}
	delete(c.s.realms, id)
	return nil, nil
}

// userLine is a user in a list.
func (s *state) userLine(u *user) M {
	m := M{"userid": u.id, "enable": b2i(u.enable), "expire": u.expire, "realm-type": "unknown"}
	if r := s.realms[u.id[strings.LastIndex(u.id, "@")+1:]]; r != nil {
		m["realm-type"] = r["type"]
	} else {
		delete(m, "realm-type")
	}
	for k, v := range map[string]string{"comment": u.comment, "email": u.email, "firstname": u.first, "lastname": u.last, "keys": u.keys} {
		if v != "" {
			m[k] = v
		}
	}
	return m
}

func tokenInfo(t *token) M {
	m := M{"expire": t.expire, "privsep": b2i(t.privsep)}
	if t.comment != "" {
		m["comment"] = t.comment
	}
	return m
}

func listUsers(c *call) (any, error) {
	id := c.user.id()
	all := c.s.mayAny(id, "/access/groups", "User.Modify", "Sys.Audit")
	groups := map[string]bool{}
	for g := range c.s.groups {
		groups[g] = c.s.mayAny(id, "/access/groups/"+g, "User.Modify", "Sys.Audit")
	}
	out := []M{}
	for _, uid := range sortedKeys(c.s.users) {
		u := c.s.users[uid]
		see := all || uid == id
		for g := range u.groups {
			see = see || groups[g]
		}
		if !see || c.has("enabled") && u.enable != c.flag("enabled") {
			continue
		}
		m := c.s.userLine(u)
		if c.flag("full") {
			m["groups"] = strings.Join(sortedKeys(u.groups), ",")
			m["tokens"] = nil
			if len(u.tokens) > 0 {
				list := []M{}
				for _, t := range sortedKeys(u.tokens) {
					x := tokenInfo(u.tokens[t])
					x["tokenid"] = t
					list = append(list, x)
				}
				m["tokens"] = list
			}
		}
		out = append(out, m)
	}
	return out, nil
}

func (c *call) userOf() (*user, error) {
	u := c.s.users[c.str("userid")]
	if u == nil {
		return nil, die("no such user ('%s')", c.str("userid"))
	}
	return u, nil
}

func getUser(c *call) (any, error) {
	u, err := c.userOf()
	if err != nil {
		return nil, err
	}
	m := M{"enable": b2i(u.enable), "expire": u.expire, "groups": sortedKeys(u.groups), "tokens": nil}
	for k, v := range map[string]string{"comment": u.comment, "email": u.email, "firstname": u.first, "lastname": u.last, "keys": u.keys} {
		if v != "" {
			m[k] = v
		}
	}
	m["email"] = u.email
	if len(u.tokens) > 0 {
		t := M{}
		for k, x := range u.tokens {
			t[k] = tokenInfo(x)
		}
		m["tokens"] = t
	}
	return m, nil
}

func createUser(c *call) (any, error) {
	id := c.str("userid")
	if c.s.users[id] != nil {
		return nil, die("create user failed: user '%s' already exists", id)
	}
	u := &user{id: id, enable: true, groups: map[string]bool{}, tokens: map[string]*token{}}
	if err := c.fillUser(u); err != nil {
		return nil, prefixed("create user failed", err)
	}
	u.password = c.str("password")
	c.s.users[id] = u
	c.s.rightsChanged()
	return nil, nil
}

func (c *call) fillUser(u *user) error {
	if c.has("groups") {
		groups := splitList(c.str("groups"))
		for _, g := range groups { // a refusal changes nothing
			if c.s.groups[g] == nil {
				return die("no such group '%s'", g)
			}
		}
		if !c.flag("append") {
			u.groups = map[string]bool{}
		}
		for _, g := range groups {
			u.groups[g] = true
		}
	}
	if c.has("enable") {
		u.enable = c.flag("enable")
	}
	if c.has("expire") {
		u.expire = int64(c.num("expire"))
	}
	for k, p := range map[string]*string{"comment": &u.comment, "email": &u.email, "firstname": &u.first, "lastname": &u.last, "keys": &u.keys} {
		if c.has(k) {
			*p = c.str(k)
		}
	}
	return nil
}

func updateUser(c *call) (any, error) {
	u, err := c.userOf()
	if err != nil {
		return nil, err
	}
	if err := c.fillUser(u); err != nil {
		return nil, prefixed("update user failed", err)
	}
	c.s.rightsChanged()
	return nil, nil
}

func deleteUser(c *call) (any, error) {
	u, err := c.userOf()
	if err != nil {
		return nil, err
	}
	if u.id == "root@pam" {
		return nil, die("cannot delete user '%s' - it is needed", u.id)
	}
	delete(c.s.users, u.id)
	c.s.dropACL("user", u.id)
	for t := range u.tokens {
		c.s.dropACL("token", u.id+"!"+t)
	}
	return nil, nil
}

func changePassword(c *call) (any, error) {
	u := c.s.users[c.str("userid")]
	if u == nil {
		return nil, die("no such user ('%s')", c.str("userid"))
	}
	if !c.user.root() {
		conf := c.str("confirmation-password")
		if conf == "" {
			return nil, bad("confirmation-password", "password is required to modify user")
		}
		if me := c.s.users[c.user.user]; me == nil || me.password != conf {
			return nil, &failure{code: 401, msg: "authentication failure", delay: authDelay}
		}
		if strings.HasSuffix(u.id, "@pam") {
			return nil, denied("only root can change the password of a pam user")
		}
	}
	u.password = c.str("password")
	return nil, nil
}

func (c *call) tokenOf(u *user) (*token, error) {
	t := u.tokens[c.str("tokenid")]
	if t == nil {
		return nil, die("no such token '%s' for user '%s'", c.str("tokenid"), u.id)
	}
	return t, nil
}

func listTokens(c *call) (any, error) {
	u, err := c.userOf()
	if err != nil {
		return nil, err
	}
	out := []M{}
	for _, k := range sortedKeys(u.tokens) {
		m := tokenInfo(u.tokens[k])
		m["tokenid"] = k
		out = append(out, m)
	}
	return out, nil
}

func getToken(c *call) (any, error) {
	u, err := c.userOf()
	if err != nil {
		return nil, err
	}
	t, err := c.tokenOf(u)
	if err != nil {
		return nil, err
	}
	return tokenInfo(t), nil
}

// sentInfo echoes token settings; what was sent in this call is text, as the genuine code has it.
func (c *call) sentInfo(t *token, all bool) M {
	m := M{}
	if all {
		m = tokenInfo(t)
	}
	for _, k := range []string{"expire", "privsep", "comment"} {
		if c.has(k) {
			m[k] = c.str(k)
		}
	}
	if !all && !c.has("privsep") {
		m["privsep"] = 1
	}
	return m
}

func createToken(c *call) (any, error) {
	u, err := c.userOf()
	if err != nil {
		return nil, err
	}
	id := c.str("tokenid")
	if u.tokens[id] != nil {
		return nil, bad("tokenid", "Token already exists.")
	}
	t := &token{secret: newUUID(), privsep: c.flagOr("privsep", true), expire: int64(c.num("expire")), comment: c.str("comment")}
	u.tokens[id] = t
	c.s.rightsChanged()
	return M{"full-tokenid": u.id + "!" + id, "value": t.secret, "info": c.sentInfo(t, false)}, nil
}

func updateToken(c *call) (any, error) {
	u, err := c.userOf()
	if err != nil {
		return nil, err
	}
	t, err := c.tokenOf(u)
	if err != nil {
		return nil, err
	}
	if c.has("privsep") {
		t.privsep = c.flag("privsep")
	}
	if c.has("expire") {
		t.expire = int64(c.num("expire"))
	}
	if c.has("comment") {
		t.comment = c.str("comment")
	}
	for _, k := range splitList(c.str("delete")) {
		if k == "comment" {
			t.comment = ""
		}
	}
	c.s.rightsChanged()
	m := c.sentInfo(t, true)
	if c.flag("regenerate") {
		t.secret = newUUID()
		m["value"], m["full-tokenid"] = t.secret, u.id+"!"+c.str("tokenid")
	}
	return m, nil
}

func deleteToken(c *call) (any, error) {
	u, err := c.userOf()
	if err != nil {
		return nil, err
	}
	if _, err := c.tokenOf(u); err != nil {
		return nil, err
	}
	delete(u.tokens, c.str("tokenid"))
	c.s.dropACL("token", u.id+"!"+c.str("tokenid"))
	return nil, nil
}

func listGroups(c *call) (any, error) {
	out := []M{}
	for _, g := range sortedKeys(c.s.groups) {
		if !c.s.mayAny(c.user.id(), "/access/groups/"+g, "User.Modify", "Sys.Audit", "Group.Allocate") {
			continue
		}
		m := M{"groupid": g, "users": strings.Join(c.s.members(g), ",")}
		if t := c.s.groups[g].comment; t != "" {
			m["comment"] = t
		}
		out = append(out, m)
	}
	return out, nil
}

func (s *state) members(g string) []string {
	out := []string{}
	for _, u := range sortedKeys(s.users) {
		if s.users[u].groups[g] {
			out = append(out, u)
		}
	}
	return out
}

func getGroup(c *call) (any, error) {
	g := c.s.groups[c.str("groupid")]
	if g == nil {
		return nil, die("group '%s' does not exist", c.str("groupid"))
	}
	m := M{"members": c.s.members(c.str("groupid"))}
	if g.comment != "" {
		m["comment"] = g.comment
	}
	return m, nil
}

func createGroup(c *call) (any, error) {
	id := c.str("groupid")
	if c.s.groups[id] != nil {
		return nil, die("create group failed: group '%s' already exists", id)
	}
	c.s.groups[id] = &group{comment: c.str("comment")}
	return nil, nil
}

func updateGroup(c *call) (any, error) {
	g := c.s.groups[c.str("groupid")]
	if g == nil {
		return nil, die("update group failed: group '%s' does not exist", c.str("groupid"))
	}
	if c.has("comment") {
		g.comment = c.str("comment")
	}
	return nil, nil
}

func deleteGroup(c *call) (any, error) {
	id := c.str("groupid")
	if c.s.groups[id] == nil {
		return nil, die("delete group failed: group '%s' does not exist", id)
	}
	delete(c.s.groups, id)
	for _, u := range c.s.users {
		delete(u.groups, id)
	}
	c.s.dropACL("group", id)
	return nil, nil
}

func listRoles(c *call) (any, error) {
	out := []M{}
	for _, r := range sortedKeys(c.s.roles) {
		out = append(out, M{"roleid": r, "privs": strings.Join(sortedKeys(c.s.roles[r].privs), ","), "special": b2i(c.s.roles[r].special)})
	}
	return out, nil
}

func getRole(c *call) (any, error) {
	r := c.s.roles[c.str("roleid")]
	if r == nil {
		return nil, die("role '%s' does not exist", c.str("roleid"))
	}
	m := M{}
	for p := range r.privs {
		m[p] = 1
	}
	return m, nil
}

func createRole(c *call) (any, error) {
	id := c.str("roleid")
	if c.s.roles[id] != nil {
		return nil, die("create role failed: role '%s' already exists", id)
	}
	if strings.HasPrefix(id, "PVE") {
		return nil, die("create role failed: role ID '%s' is not allowed - the prefix 'PVE' is reserved", id)
	}
	if err := c.knowsPrivs(); err != nil {
		return nil, err
	}
	r := &role{privs: map[string]bool{}}
	for _, p := range splitList(c.str("privs")) {
		r.privs[p] = true
	}
	c.s.roles[id] = r
	return nil, nil
}

func updateRole(c *call) (any, error) {
	id := c.str("roleid")
	r := c.s.roles[id]
	if r == nil {
		return nil, die("update role failed: role '%s' does not exist", id)
	}
	if r.special {
		return nil, die("auto-generated role '%s' cannot be modified", id)
	}
	if err := c.knowsPrivs(); err != nil {
		return nil, err
	}
	if !c.flag("append") {
		r.privs = map[string]bool{}
	}
	for _, p := range splitList(c.str("privs")) {
		r.privs[p] = true
	}
	c.s.rightsChanged()
	return nil, nil
}

func deleteRole(c *call) (any, error) {
	id := c.str("roleid")
	r := c.s.roles[id]
	if r == nil {
		return nil, die("delete role failed: role '%s' does not exist", id)
	}
	if r.special {
		return nil, die("auto-generated role '%s' cannot be deleted", id)
	}
	delete(c.s.roles, id)
	for path, n := range c.s.acl {
		for _, ids := range n {
			for who, roles := range ids {
				delete(roles, id)
				if len(roles) == 0 {
					delete(ids, who)
				}
			}
		}
		if len(n["user"])+len(n["group"])+len(n["token"]) == 0 {
			delete(c.s.acl, path)
		}
	}
	c.s.rightsChanged()
	return nil, nil
}

func accessIndex(c *call) (any, error) {
	out := []M{}
	for _, k := range []string{"users", "groups", "roles", "acl", "domains", "openid", "tfa", "ticket", "password", "permissions"} {
		out = append(out, M{"subdir": k})
	}
	return out, nil
}
