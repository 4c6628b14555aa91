package lab

import (
	"encoding/json"
	"strings"

	"castellan/internal/regex"
)

// caller is who asks: a user, perhaps by way of a token.
type caller struct {
	user  string // user@realm
	token string // user@realm!id, or empty
}

func (c caller) id() string {
	if c.token != "" {
		return c.token
	}
	return c.user
}

// root tells whether this is the true root, which no token ever is.
func (c caller) root() bool { return c.user == "root@pam" && c.token == "" }

// privGroups are the privileges as the built-in roles bundle them.
type privGroup struct {
	name              string
	root, admin, user []string
	audit             []string
}

func allPrivGroups() []privGroup {
	return []privGroup{
		{"Datastore", []string{"Datastore.Allocate", "Datastore.AllocateTemplate"}, nil, []string{"Datastore.AllocateSpace"}, []string{"Datastore.Audit"}},
		{"Group", nil, []string{"Group.Allocate"}, nil, nil},
		{"Mapping", nil, []string{"Mapping.Modify"}, []string{"Mapping.Use"}, []string{"Mapping.Audit"}},
		{"Permissions", []string{"Permissions.Modify"}, nil, nil, nil},
		{"Pool", nil, []string{"Pool.Allocate"}, nil, []string{"Pool.Audit"}},
		{"Realm", []string{"Realm.Allocate"}, []string{"Realm.AllocateUser"}, nil, nil},
		{"SDN", []string{"SDN.Allocate"}, nil, []string{"SDN.Use"}, []string{"SDN.Audit"}},
		{"Sys", []string{"Sys.AccessNetwork", "Sys.Incoming", "Sys.Modify", "Sys.PowerMgmt"}, []string{"Sys.Console", "Sys.Syslog"}, nil, []string{"Sys.Audit"}},
		{"User", nil, []string{"User.Modify"}, nil, nil},
		{"VM", nil, []string{"VM.Allocate", "VM.Clone", "VM.Config.CPU", "VM.Config.Disk", "VM.Config.HWType", "VM.Config.Memory", "VM.Config.Network", "VM.Config.Options", "VM.GuestAgent.Unrestricted", "VM.Migrate", "VM.Replicate", "VM.Snapshot", "VM.Snapshot.Rollback"},
			[]string{"VM.Backup", "VM.Config.CDROM", "VM.Config.Cloudinit", "VM.Console", "VM.GuestAgent.FileRead", "VM.GuestAgent.FileSystemMgmt", "VM.GuestAgent.FileWrite", "VM.PowerMgmt"}, []string{"VM.Audit", "VM.GuestAgent.Audit"}},
	}
}

func allPrivs() []string {
	var out []string
	for _, g := range allPrivGroups() {
		out = append(append(append(append(out, g.root...), g.admin...), g.user...), g.audit...)
	}
	return out
}

type role struct {
	privs   map[string]bool
	special bool
}

// user as the site knows him; tokens by their short names.
type user struct {
	id                                          string
	enable                                      bool
	expire                                      int64
	comment, email, first, last, keys, password string
	groups                                      map[string]bool
	tokens                                      map[string]*token
	totp                                        string
	tfa                                         []*tfaEntry
}

type tfaEntry struct {
	id, kind, desc, secret string
	codes                  map[string]bool
	created                int64
	disabled               bool
}

type token struct {
	secret  string
	privsep bool
	expire  int64
	comment string
}

type group struct{ comment string }

// aclNode holds the roles on one path: kind ("user", "group", "token") and id → role → propagates.
type aclNode map[string]map[string]map[string]bool

func splitToken(id string) (userid, name string) {
	i := strings.LastIndex(id, "!")
	if i < 0 {
		return id, ""
	}
	return id[:i], id[i+1:]
}

// rolesOn gives the roles of a user or token on a path: the deepest entries win, token before user before group.
func (s *state) rolesOn(id, path string) map[string]bool {
	if id == "root@pam" {
		return map[string]bool{"Administrator": true}
	}
	userid, tok := splitToken(id)
	u := s.users[userid]
	if tok != "" {
		if u == nil || u.tokens[tok] == nil {
			return nil
		}
		if !u.tokens[tok].privsep {
			return s.rolesOn(userid, path)
		}
	}
	roles := map[string]bool{}
	pick := func(path string, final bool) {
		node := s.acl[path]
		if node == nil {
			return
		}
		take := func(kind, who string, into map[string]bool) bool {
			found := false
			for r, prop := range node[kind][who] {
				if final || prop {
					into[r] = prop
					found = true
				}
			}
			return found
		}
		now := map[string]bool{}
		found := false
		if tok != "" {
			found = take("token", id, now)
		} else {
			found = take("user", id, now)
			if !found && u != nil {
				for g := range u.groups {
					if take("group", g, now) {
						found = true
					}
				}
			}
		}
		if found {
			if p, no := now["NoAccess"]; no {
				now = map[string]bool{"NoAccess": p}
			}
			roles = now
		}
	}
	if path == "/" || path == "" {
		pick("/", true)
		return roles
	}
	pick("/", false)
	for i := 1; i < len(path); i++ {
		if path[i] == '/' {
			pick(path[:i], false)
		}
	}
	pick(path, true)
	return roles
}

// poolOf names the pool whose rights a path inherits.
func (s *state) poolsOf(path string) []string {
	var out []string
	if id, ok := strings.CutPrefix(path, "/vms/"); ok {
		if p := s.guestPool[atoi(id)]; p != "" {
			out = append(out, p)
		}
	}
	if st, ok := strings.CutPrefix(path, "/storage/"); ok {
		for name, p := range s.pools {
			if p.storages[st] {
				out = append(out, name)
			}
		}
	}
	return out
}

// perms are the privileges of a user or token on a path; the value says whether they propagate.
func (s *state) perms(id, path string) map[string]bool {
	if id == "root@pam" {
		if s.adminPrivs == nil {
			s.adminPrivs = s.rolePrivs(map[string]bool{"Administrator": true})
		}
		return s.adminPrivs
	}
	if path == "" { // not an access-control path at all: nobody but the true root holds anything there
		return nil
	}
	userid, tok := splitToken(id)
	var own map[string]bool
	if tok != "" {
		u := s.users[userid]
		if u == nil || u.tokens[tok] == nil {
			return nil
		}
		own = s.perms(userid, path)
		if !u.tokens[tok].privsep {
			return own
		}
	}
	key := id + "\x00" + path
	if got, ok := s.permCache[key]; ok {
		return got
	}
	roles := s.rolesOn(id, path)
	if _, no := roles["NoAccess"]; !no {
		for _, p := range s.poolsOf(path) {
			for r := range s.rolesOn(id, "/pool/"+p) {
				if r == "NoAccess" {
					roles = map[string]bool{"NoAccess": false}
					break
				}
				if _, has := roles[r]; !has {
					if roles == nil {
						roles = map[string]bool{}
					}
					roles[r] = false
				}
			}
		}
	}
	privs := s.rolePrivs(roles)
	if tok != "" && userid != "root@pam" {
		for p, prop := range privs {
			up, has := own[p]
			if !has {
				delete(privs, p)
				continue
			}
			privs[p] = prop && up
		}
	}
	if len(s.permCache) > 200000 {
		s.permCache = map[string]map[string]bool{}
	}
	s.permCache[key] = privs
	return privs
}

// rightsChanged must follow every change of users, tokens, roles, pools and access lists.
func (s *state) rightsChanged() { s.permCache = map[string]map[string]bool{} }

func (s *state) rolePrivs(roles map[string]bool) map[string]bool {
	out := map[string]bool{}
	for name, prop := range roles {
		r := s.roles[name]
		if r == nil {
			continue
		}
		for p := range r.privs {
			out[p] = out[p] || prop
		}
	}
	return out
}

func (s *state) may(id, path string, privs ...string) bool {
	have := s.perms(id, path)
	for _, p := range privs {
		if _, ok := have[p]; !ok {
			return false
		}
	}
	return true
}

func (s *state) mayAny(id, path string, privs ...string) bool {
	have := s.perms(id, path)
	for _, p := range privs {
		if _, ok := have[p]; ok {
			return true
		}
	}
	return false
}

// need refuses unless all privileges are held.
func (c *call) need(path string, privs ...string) error {
	for _, p := range privs {
		path, p := c.s.rel.asked(path, p)
		if _, ok := c.s.perms(c.user.id(), path)[p]; !ok {
			return denied(path + ", " + p)
		}
	}
	return nil
}

func (c *call) needAny(path string, privs ...string) error {
	var asked []string
	for _, p := range privs {
		at, p := c.s.rel.asked(path, p)
		if c.s.mayAny(c.user.id(), at, p) {
			return nil
		}
		if !contains(asked, p) {
			asked = append(asked, p)
		}
	}
	return denied(path + ", " + strings.Join(asked, "|"))
}

func (c *call) can(path string, privs ...string) bool { return c.s.may(c.user.id(), path, privs...) }

// permission applies the operation's published check.
func (c *call) permission() error {
	if len(c.op.Permissions) == 0 || string(c.op.Permissions) == "null" {
		if c.user.user == "" {
			return denied("user != null")
		}
		if !c.user.root() {
			return denied("user != root@pam")
		}
		return nil
	}
	var p struct {
		User  string
		Check json.RawMessage
	}
	if err := json.Unmarshal(c.op.Permissions, &p); err != nil {
		return die("unable to read permissions: %v", err)
	}
	if p.User == "world" {
		return nil
	}
	if c.user.user == "" {
		return denied("user != null")
	}
	if c.user.root() || p.User == "all" {
		return nil
	}
	if p.Check == nil {
		return denied("")
	}
	if c.s.rel.major < 9 && strings.HasSuffix(c.op.Path, "/monitor") {
		return c.need("/vms/"+c.str("vmid"), "VM.Monitor")
	}
	var check []any
	if err := json.Unmarshal(p.Check, &check); err != nil {
		return die("unable to read permissions: %v", err)
	}
	return c.checkTree(check)
}

var placeholder = &regex.Lazy{Expr: `\{([\w-]+)\}`}

func texts(v any) []string {
	l, _ := v.([]any)
	out := make([]string, 0, len(l))
	for _, x := range l {
		if t, ok := x.(string); ok {
			out = append(out, t)
		}
	}
	return out
}

func (c *call) checkTree(check []any) error {
	if len(check) == 0 {
		return denied("")
	}
	opts := map[string]any{}
	options := func(from int) {
		for i := from; i+1 < len(check); i += 2 {
			if k, ok := check[i].(string); ok {
				opts[k] = check[i+1]
			}
		}
	}
	switch check[0] {
	case "and":
		for _, sub := range check[1:] {
			list, _ := sub.([]any)
			if err := c.checkTree(list); err != nil {
				return err
			}
		}
		return nil
	case "or":
		for _, sub := range check[1:] {
			list, _ := sub.([]any)
			if c.checkTree(list) == nil {
				return nil
			}
		}
		return denied("")
	case "perm":
		options(3)
		if rp, ok := opts["require_param"].(string); ok {
			if _, sent := c.p[rp]; !sent {
				return nil
			}
		}
		tmpl, _ := check[1].(string)
		path := normalizePath(placeholder.ReplaceAllStringFunc(tmpl, func(m string) string {
			v, _ := c.p[strings.Trim(m, "{}")].(string)
			return v
		}))
		privs := texts(check[2])
		if opts["any"] != nil {
			return c.needAny(path, privs...)
		}
		return c.need(path, privs...)
	case "perm-modify":
		tmpl, _ := check[1].(string)
		path := normalizePath(placeholder.ReplaceAllStringFunc(tmpl, func(m string) string {
			v, _ := c.p[strings.Trim(m, "{}")].(string)
			return v
		}))
		return c.mayModify(path)
	case "userid-group":
		options(2)
		return c.userGroup(texts(check[1]), opts["groups_param"])
	case "userid-param":
		return c.userParam(check[1])
	case "explicit":
		return nil
	}
	return denied("")
}

// mayModify is the rule for changing the access list of a path.
func (c *call) mayModify(path string) error {
	if path == "" {
		return denied("path, Permissions.Modify")
	}
	privs := []string{"Permissions.Modify"}
	switch {
	case strings.HasPrefix(path, "/storage"):
		privs = append(privs, "Datastore.Allocate")
	case strings.HasPrefix(path, "/vms"):
		privs = append(privs, "VM.Allocate")
	case strings.HasPrefix(path, "/pool"):
		privs = append(privs, "Pool.Allocate")
	}
	if !c.s.mayAny(c.user.id(), path, privs...) {
		return denied(path + ", " + strings.Join(privs, "|"))
	}
	return nil
}

func (c *call) userGroup(privs []string, groupsParam any) error {
	userid, _ := c.p["userid"].(string)
	create := groupsParam == "create"
	if !create && c.s.users[userid] == nil {
		if c.s.mayAny(c.user.id(), "/access/groups", privs...) {
			return die("no such user ('%s')", userid)
		}
		return denied("")
	}
	if c.s.mayAny(c.user.id(), "/access/groups", privs...) {
		return nil
	}
	allowed := map[string]bool{}
	for g := range c.s.groups {
		if c.s.mayAny(c.user.id(), "/access/groups/"+g, privs...) {
			allowed[g] = true
		}
	}
	if groupsParam != nil {
		text, sent := c.p["groups"].(string)
		asked := splitList(text)
		if sent || create {
			if len(asked) == 0 {
				return denied("/access/groups, " + strings.Join(privs, "|"))
			}
			for _, g := range asked {
				if !allowed[g] {
					return denied("/access/groups/" + g + ", " + strings.Join(privs, "|"))
				}
			}
		}
	}
	if create {
		return nil
	}
	for g := range c.s.users[userid].groups {
		if allowed[g] {
			return nil
		}
	}
	return denied("")
}

func (c *call) userParam(what any) error {
	userid, _ := c.p["userid"].(string)
	if what == "self" {
		if c.s.users[userid] != nil && c.user.token == "" && c.user.user == userid {
			return nil
		}
		return denied("")
	}
	i := strings.LastIndex(userid, "@")
	if i < 0 {
		return denied("")
	}
	return c.need("/access/realm/"+userid[i+1:], "Realm.AllocateUser")
}

// normalizePath gives an access-control path its one form; what is no such path becomes empty.
func normalizePath(p string) string {
	for strings.Contains(p, "//") {
		p = strings.ReplaceAll(p, "//", "/")
	}
	if p != "/" {
		p = strings.TrimSuffix(p, "/")
	}
	if p == "" {
		return "/"
	}
	if !strings.HasPrefix(p, "/") {
		p = "/" + p
	}
	if !aclChars.MatchString(p) {
		return ""
	}
	return p
}

var aclChars = &regex.Lazy{Expr: `^[[:alnum:]._/-]+$`}
