package rights

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"castellan/internal/gate"
	"castellan/internal/regex"
)

// Want is what castellan's own user and token are to have.
type Want struct {
	Version      Version // unknown counts as the newest
	User         string  // castellan@pve
	Token        string  // castellan; empty: the user logs in itself
	Capabilities []string
	// Pools, Guests (ids) and Storages narrow what the rights on guests and storages reach; none means everywhere.
	Pools, Guests, Storages []string
}

// Role is one of castellan's own.
type Role struct {
	Name       string
	Privileges []string
}

// Entry is a line of the access list.
type Entry struct {
	Path      string
	Kind      string // "user", "token" or "group"
	ID        string
	Role      string
	Propagate bool
}

var (
	userForm  = &regex.Lazy{Expr: `^[A-Za-z0-9][A-Za-z0-9._-]*@[A-Za-z][A-Za-z0-9._-]+$`}
	tokenForm = &regex.Lazy{Expr: `^[A-Za-z][A-Za-z0-9._-]+$`}
	poolForm  = &regex.Lazy{Expr: `^[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+){0,2}$`}
	guestForm = &regex.Lazy{Expr: `^[1-9][0-9]{2,8}$`}
	storeForm = &regex.Lazy{Expr: `^[A-Za-z][A-Za-z0-9._-]*$`}
)

// Check refuses what Proxmox would not take, and what a shell would take apart.
func (w Want) Check() error {
	switch {
	case !userForm.MatchString(w.User):
		return fmt.Errorf("user %.60q: give NAME@REALM, such as castellan@pve", w.User)
	case w.User == "root@pam":
		return errors.New("root@pam may do everything: give a user of castellan's own, such as castellan@pve")
	case w.Token != "" && !tokenForm.MatchString(w.Token):
		return fmt.Errorf("token %.60q: letters, digits, dot, dash and underscore, at least two, beginning with a letter", w.Token)
	}
	for _, c := range w.Capabilities {
		if !slices.Contains(gate.Capabilities(), c) {
			hint := ""
			if near := gate.Nearest(c, gate.Capabilities()); near != "" {
				hint = "; did you mean " + near + "?"
			}
			return fmt.Errorf("there is no capability %.40q%s (names: %s)", c, hint, strings.Join(gate.Capabilities(), ", "))
		}
	}
	for what, list := range map[string][]string{"pool": w.Pools, "guest": w.Guests, "storage": w.Storages} {
		form := map[string]*regex.Lazy{"pool": poolForm, "guest": guestForm, "storage": storeForm}[what]
		for _, name := range list {
			if !form.MatchString(name) {
				return fmt.Errorf("%s %.60q is no name of one", what, name)
			}
		}
	}
	return nil
}

// TokenID is user@realm!token; the user's where there is no token.
func (w Want) TokenID() string {
	if w.Token == "" {
		return w.User
	}
	return w.User + "!" + w.Token
}

func (w Want) narrowed() bool { return len(w.Pools)+len(w.Guests) > 0 }

// roleName is that of a role of this user: two users of castellan on one cluster do not widen each other.
func (w Want) roleName(part string) string {
	name, _, _ := strings.Cut(w.User, "@")
	if name == "" {
		name = "castellan"
	}
	return name + "-" + part
}

// look is the role of reading: that of auditors, or without the guests where only some are to be seen.
func (w Want) look() string {
	if w.narrowed() {
		return w.roleName("look")
	}
	return Auditor
}

// Roles lists the roles that it takes.
func (w Want) Roles() []Role {
	var out []Role
	if w.narrowed() {
		out = append(out, Role{w.look(), []string{"Datastore.Audit", "SDN.Audit", "Sys.Audit"}})
	}
	all := OfCapabilities(w.Capabilities, w.Version)
	for _, place := range Places() {
		r := Role{Name: w.roleName(string(place))}
		for _, x := range all {
			if x.Place == place {
				r.Privileges = append(r.Privileges, x.Privilege)
			}
		}
		if len(r.Privileges) > 0 {
			out = append(out, r)
		}
	}
	return out
}

// Entries lists the lines of the access list, for the user and for the token alike: with privilege separation a token has
// only what both have. An entry on a path takes the place of what would be inherited there, so each names reading too.
func (w Want) Entries() []Entry {
	type line struct {
		path, role string
		propagate  bool
	}
	lines := []line{{"/", w.look(), true}}
	add := func(path, look string, roles ...string) {
		for _, r := range append([]string{look}, roles...) {
			if l := (line{path, r, true}); r != "" && !slices.Contains(lines, l) {
				lines = append(lines, l)
			}
		}
	}
	role := map[Place]string{}
	for _, r := range w.Roles() {
		for _, p := range Places() {
			if r.Name == w.roleName(string(p)) {
				role[p] = r.Name
			}
		}
	}
	if r := role[PlaceSite]; r != "" {
		lines = append(lines, line{"/", r, false})
	}
	for _, place := range Places()[1:] {
		r := role[place]
		switch {
		case (place == PlaceGuests || place == PlacePools) && w.narrowed():
			for _, p := range w.Pools {
				add("/pool/"+p, Auditor, r)
			}
			for _, g := range w.Guests {
				if place == PlaceGuests {
					add("/vms/"+g, Auditor, r)
				}
			}
		case r == "":
		case place == PlaceStorage && len(w.Storages) > 0:
			for _, s := range w.Storages {
				add("/storage/"+s, w.look(), r)
			}
		default:
			add(place.Path(), w.look(), r)
		}
	}
	var out []Entry
	for _, l := range lines {
		out = append(out, Entry{l.path, "user", w.User, l.role, l.propagate})
		if w.Token != "" {
			out = append(out, Entry{l.path, "token", w.TokenID(), l.role, l.propagate})
		}
	}
	return out
}
