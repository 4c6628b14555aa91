package reach

import (
	"maps"
	"slices"
	"strings"
)

// rights are the access control of a site: enough to say what anybody may do on a path. The rules are Proxmox's own: on
// the way from "/" to the path the deepest entries replace those above them, for a user its own entries replace those of
// its groups, NoAccess beats all on its path, a pool's rights reach its members, and a token with privileges of its own
// has no more than its user has.
type rights struct {
	accounts map[string]*account
	roles    map[string]map[string]bool // role → privileges
	entries  map[string]map[entry]bool  // path → entry → whether it propagates
	guests   map[string]string          // guest id → pool
	storages map[string][]string        // storage → pools
}

// account is a user as access control sees it.
type account struct {
	off    bool // disabled or expired: nobody gets in by it
	groups map[string]bool
	tokens map[string]*tokenAccount // by full id
}

type tokenAccount struct{ own, off bool } // own: privileges of its own (privsep)

// entry is one line of the access list.
type entry struct{ kind, who, role string } // kind: user, group, token

const superuser = "root@pam"

func newRights() *rights {
	return &rights{accounts: map[string]*account{}, roles: map[string]map[string]bool{}, entries: map[string]map[entry]bool{}, guests: map[string]string{}, storages: map[string][]string{}}
}

func (r *rights) clone() *rights {
	out := &rights{accounts: map[string]*account{}, roles: map[string]map[string]bool{}, entries: map[string]map[entry]bool{}, guests: maps.Clone(r.guests), storages: map[string][]string{}}
	for id, a := range r.accounts {
		b := &account{off: a.off, groups: maps.Clone(a.groups), tokens: map[string]*tokenAccount{}}
		for t, k := range a.tokens {
			c := *k
			b.tokens[t] = &c
		}
		out.accounts[id] = b
	}
	for name, privs := range r.roles {
		out.roles[name] = maps.Clone(privs)
	}
	for path, e := range r.entries {
		out.entries[path] = maps.Clone(e)
	}
	for name, pools := range r.storages {
		out.storages[name] = slices.Clone(pools)
	}
	return out
}

func (r *rights) account(id string) *account {
	a := r.accounts[id]
	if a == nil {
		a = &account{groups: map[string]bool{}, tokens: map[string]*tokenAccount{}}
		r.accounts[id] = a
	}
	return a
}

func (r *rights) grant(path string, e entry, propagates bool) {
	if r.entries[path] == nil {
		r.entries[path] = map[entry]bool{}
	}
	r.entries[path][e] = propagates
}

// drop takes entries away wherever they are.
func (r *rights) drop(which func(path string, e entry) bool) {
	for path, list := range r.entries {
		maps.DeleteFunc(list, func(e entry, _ bool) bool { return which(path, e) })
		if len(list) == 0 {
			delete(r.entries, path)
		}
	}
}

// above lists a path and those above it, from "/" down.
func above(path string) []string {
	out := []string{"/"}
	for i := 1; i < len(path); i++ {
		if path[i] == '/' {
			out = append(out, path[:i])
		}
	}
	if path != "/" {
		out = append(out, path)
	}
	return out
}

// rolesOn are the roles of a user or token on a path and whether they propagate from there.
func (r *rights) rolesOn(id, path string) map[string]bool {
	if id == superuser {
		return map[string]bool{"Administrator": true}
	}
	user, _, isToken := strings.Cut(id, "!")
	a := r.accounts[user]
	if isToken {
		if a == nil || a.tokens[id] == nil {
			return nil
		}
		if !a.tokens[id].own {
			return r.rolesOn(user, path)
		}
	}
	roles := map[string]bool{}
	for _, p := range above(path) {
		direct, grouped := map[string]bool{}, map[string]bool{}
		for e, propagates := range r.entries[p] {
			if p != path && !propagates {
				continue
			}
			switch {
			case isToken && e.kind == "token" && e.who == id, !isToken && e.kind == "user" && e.who == id:
				direct[e.role] = propagates
			case !isToken && e.kind == "group" && a != nil && a.groups[e.who]:
				grouped[e.role] = grouped[e.role] || propagates
			}
		}
		here := direct
		if len(here) == 0 {
			here = grouped
		}
		if len(here) == 0 {
			continue
		}
		if propagates, no := here["NoAccess"]; no {
			here = map[string]bool{"NoAccess": propagates}
		}
		roles = here
	}
	return roles
}

func (r *rights) poolsOf(path string) []string {
	if id, ok := strings.CutPrefix(path, "/vms/"); ok && r.guests[id] != "" {
		return []string{r.guests[id]}
	}
	if id, ok := strings.CutPrefix(path, "/storage/"); ok {
		return r.storages[id]
	}
	return nil
}

// on are the privileges of a user or token on a path; nil when nobody gets in by it.
func (r *rights) on(id, path string) map[string]bool {
	user, _, isToken := strings.Cut(id, "!")
	a := r.accounts[user]
	if user != superuser && a == nil || a != nil && a.off {
		return nil
	}
	if isToken && (a == nil || a.tokens[id] == nil || a.tokens[id].off) {
		return nil
	}
	if isToken && !a.tokens[id].own {
		return r.on(user, path)
	}
	roles := maps.Clone(r.rolesOn(id, path))
	if _, no := roles["NoAccess"]; !no {
		for _, pool := range r.poolsOf(path) {
			from := r.rolesOn(id, "/pool/"+pool)
			if _, no := from["NoAccess"]; no {
				roles = nil
				break
			}
			for role := range from {
				if roles == nil {
					roles = map[string]bool{}
				}
				roles[role] = true
			}
		}
	}
	out := map[string]bool{}
	for role := range roles {
		for priv := range r.roles[role] {
			out[priv] = true
		}
	}
	if isToken && user != superuser {
		most := r.on(user, path)
		maps.DeleteFunc(out, func(priv string, _ bool) bool { return !most[priv] })
	}
	return out
}

// everybody lists users and tokens with privileges of their own; the others have what their users have.
func (r *rights) everybody() []string {
	var out []string
	for id, a := range r.accounts {
		out = append(out, id)
		for t, k := range a.tokens {
			if k.own {
				out = append(out, t)
			}
		}
	}
	slices.Sort(out)
	return out
}
