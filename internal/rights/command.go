package rights

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"castellan/internal/regex"
)

// Command is one step of giving rights: a request of the API, which String writes as the command of Proxmox's own shell.
type Command struct {
	Operation string            // "PUT /access/acl"
	Params    map[string]string // placeholders of the path too
	Else      *Command          // what to do where this is refused, since it is not known what is there
}

// String is the pveum line.
func (c Command) String() string {
	p := func(name string) string { return shellWord(c.Params[name]) }
	var out string
	switch c.Operation {
	case "POST /access/users":
		out = "pveum user add " + p("userid") + " --comment " + p("comment")
	case "POST /access/roles":
		out = "pveum role add " + p("roleid") + " --privs " + p("privs")
	case "PUT /access/roles/{roleid}":
		out = "pveum role modify " + p("roleid")
		if c.Params["append"] == "1" {
			out += " --append 1"
		}
		out += " --privs " + p("privs")
	case "POST /access/users/{userid}/token/{tokenid}":
		out = "pveum user token add " + p("userid") + " " + p("tokenid") + " --privsep " + p("privsep")
	case "PUT /access/acl":
		out = "pveum acl modify " + p("path")
		if c.Params["delete"] == "1" {
			out = "pveum acl delete " + p("path")
		}
		for _, who := range []string{"users", "groups", "tokens"} {
			if c.Params[who] != "" {
				out += " --" + who + " " + p(who)
			}
		}
		out += " --roles " + p("roles")
		if c.Params["propagate"] == "0" {
			out += " --propagate 0"
		}
	}
	if c.Else != nil {
		out += " || " + c.Else.String()
	}
	return out
}

var plain = &regex.Lazy{Expr: `^[A-Za-z0-9@/._,:=-]+$`}

// shellWord quotes what a shell would not take as it is.
func shellWord(s string) string {
	if plain.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// Lines writes commands one a line.
func Lines(all []Command) []string {
	out := make([]string, len(all))
	for i, c := range all {
		out[i] = c.String()
	}
	return out
}

// Commands lists what is still to be done for a wish, in the order in which it works. have is what is there; nil, or a field
// of it that is nil, is not known, and then the commands do no harm where something is there already.
func (w Want) Commands(have *State) []Command {
	if have == nil {
		have = &State{}
	}
	var out []Command
	if groups := have.Users; groups == nil || !has(groups, w.User) {
		out = append(out, Command{Operation: "POST /access/users", Params: map[string]string{"userid": w.User, "comment": "castellan"}})
	}
	for _, r := range w.Roles() {
		out = append(out, roleCommand(r, have)...)
	}
	if w.Token != "" && !has(have.Tokens, w.TokenID()) {
		out = append(out, Command{Operation: "POST /access/users/{userid}/token/{tokenid}", Params: map[string]string{"userid": w.User, "tokenid": w.Token, "privsep": "1"}})
	}
	return append(out, w.aclCommands(have)...)
}

// Shared says who else holds the roles to which commands would add: they would get what is added too.
func (w Want) Shared(have *State, todo []Command) (out []string) {
	for _, c := range todo {
		if c.Operation != "PUT /access/roles/{roleid}" {
			continue
		}
		for _, e := range have.Entries {
			if e.Role == c.Params["roleid"] && e.ID != w.User && !strings.HasPrefix(e.ID, w.User+"!") {
				out = append(out, fmt.Sprintf("role %s is held by %s %s on %s", e.Role, e.Kind, e.ID, e.Path))
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Surplus says what is there already and more than was wished: privileges of roles of these names, and a token that may do
// all that its user may. Commands take nothing away.
func (w Want) Surplus(have *State) (out []string) {
	for _, r := range w.Roles() {
		more := slices.DeleteFunc(slices.Clone(have.Roles[r.Name]), func(p string) bool { return slices.Contains(r.Privileges, p) })
		if len(more) > 0 {
			slices.Sort(more)
			out = append(out, fmt.Sprintf("role %s has more than was asked for: %s", r.Name, strings.Join(more, ", ")))
		}
	}
	if separated, known := have.Tokens[w.TokenID()]; known && !separated {
		out = append(out, fmt.Sprintf("token %s has no privileges of its own (privsep=0): it may do all that %s may", w.TokenID(), w.User))
	}
	return out
}

func has[V any](m map[string]V, key string) bool {
	_, ok := m[key]
	return ok
}

func roleCommand(r Role, have *State) []Command {
	privs := strings.Join(r.Privileges, ",")
	add := Command{Operation: "POST /access/roles", Params: map[string]string{"roleid": r.Name, "privs": privs}}
	grow := Command{Operation: "PUT /access/roles/{roleid}", Params: map[string]string{"roleid": r.Name, "append": "1", "privs": privs}}
	if have.Roles == nil {
		grow.Else = &add
		return []Command{grow}
	}
	old, there := have.Roles[r.Name]
	if !there {
		return []Command{add}
	}
	missing := slices.DeleteFunc(slices.Clone(r.Privileges), func(p string) bool { return slices.Contains(old, p) })
	if len(missing) == 0 {
		return nil
	}
	grow.Params["privs"] = strings.Join(missing, ",")
	return []Command{grow}
}

// aclCommands gives the entries that are missing. Where one begins to stand on a path, what was inherited there is named with
// it, so that nothing is lost.
func (w Want) aclCommands(have *State) []Command {
	type key struct {
		path      string
		propagate bool
	}
	var order []key
	roles := map[key]map[string][]string{} // → "users" or "tokens" → roles
	for _, e := range w.Entries() {
		if separated, known := have.Tokens[e.ID]; e.Kind == "token" && known && !separated || have.has(e) {
			continue // a token without separation has what its user has
		}
		k := key{e.Path, e.Propagate}
		if roles[k] == nil {
			roles[k] = map[string][]string{}
			order = append(order, k)
		}
		who := e.Kind + "s"
		if len(roles[k][who]) == 0 && e.Path != "/" && !have.own(e.Path, e.Kind, e.ID) {
			for _, kept := range slices.Sorted(maps.Keys(have.Effective(e.ID, e.Path))) {
				if kept != "NoAccess" && !slices.Contains(roles[k][who], kept) {
					roles[k][who] = append(roles[k][who], kept)
				}
			}
		}
		if !slices.Contains(roles[k][who], e.Role) {
			roles[k][who] = append(roles[k][who], e.Role)
		}
	}
	var out []Command
	for _, k := range order {
		of := roles[k]
		command := func(ids map[string]string, list []string) {
			c := Command{Operation: "PUT /access/acl", Params: map[string]string{"path": k.path, "roles": strings.Join(list, ",")}}
			maps.Copy(c.Params, ids)
			if !k.propagate {
				c.Params["propagate"] = "0"
			}
			out = append(out, c)
		}
		users, tokens := of["users"], of["tokens"]
		if slices.Equal(users, tokens) {
			command(map[string]string{"users": w.User, "tokens": w.TokenID()}, users)
			continue
		}
		if len(users) > 0 {
			command(map[string]string{"users": w.User}, users)
		}
		if len(tokens) > 0 {
			command(map[string]string{"tokens": w.TokenID()}, tokens)
		}
	}
	return out
}

// Give lists the commands that give some privileges on one path to a user or token ("user@realm!token"): these and no others.
// held is what it has there (privilege → whether it is passed on), and is given along, since an entry on a path takes the place
// of what was inherited; what is not passed on stands in an entry of the path itself, which stays. No role of the user's others
// is used or grown: what such a role holds, or comes to hold on other paths, is not what is asked for here. An empty name stands
// for a placeholder.
func Give(who, path string, privileges []string, held map[string]bool) []Command {
	w := Want{User: who}
	if who == "" || !nameForm.MatchString(w.roleName("x")) {
		w.User = ""
	}
	if who == "" {
		who = "USER@REALM!TOKEN"
	}
	var kept []string
	for p, passed := range held {
		if passed && path != "/" && !slices.Contains(privileges, p) {
			kept = append(kept, p)
		}
	}
	var roles []Role
	if at := w.roleName("at" + strings.ReplaceAll(path, "/", "-")); len(kept) > 0 && nameForm.MatchString(at) {
		all := append(kept, privileges...)
		slices.Sort(all)
		roles = []Role{{at, slices.Compact(all)}}
	} else {
		for _, p := range privileges {
			roles = append(roles, Role{w.roleName(p), []string{p}})
		}
	}
	var out []Command
	var names []string
	for _, r := range roles {
		params := map[string]string{"roleid": r.Name, "privs": strings.Join(r.Privileges, ",")}
		out = append(out, Command{Operation: "PUT /access/roles/{roleid}", Params: params, Else: &Command{Operation: "POST /access/roles", Params: params}})
		names = append(names, r.Name)
	}
	user, token, _ := strings.Cut(who, "!")
	acl := Command{Operation: "PUT /access/acl", Params: map[string]string{"path": path, "users": user, "roles": strings.Join(names, ",")}}
	if token != "" {
		acl.Params["tokens"] = who
	}
	if path == "/" {
		acl.Params["propagate"] = "0"
	}
	return append(out, acl)
}

var nameForm = &regex.Lazy{Expr: `^[A-Za-z0-9._-]+$`}

// Replaces is what to know of an entry on a path.
const Replaces = "An entry on a path takes the place of what was inherited there; castellan doctor prints commands that keep it."

// Unkept is said in its place where it is not known what is held on a path.
const Unkept = "What is in force there now could not be read, and an entry on a path takes the place of what was inherited: name those roles in the same command (pveum user permissions shows them)."

// Joined writes commands on one line, each after the one before it worked.
func Joined(all []Command) string {
	lines := Lines(all)
	for i, c := range all {
		if c.Else != nil && len(all) > 1 {
			lines[i] = "{ " + lines[i] + "; }"
		}
	}
	return strings.Join(lines, " && ")
}
