package rights

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Permissions is what a server says that someone holds: path → privilege → whether it is passed on to what lies below.
type Permissions map[string]map[string]bool

// ReadPermissions takes the answer of GET /access/permissions.
func ReadPermissions(raw json.RawMessage) (Permissions, error) {
	var rows map[string]map[string]json.RawMessage
	if err := json.Unmarshal(raw, &rows); err != nil {
		return nil, fmt.Errorf("read permissions: %w", err)
	}
	out := Permissions{}
	for path, privileges := range rows {
		out[path] = map[string]bool{}
		for p, passed := range privileges {
			out[path][p] = flag(passed)
		}
	}
	return out, nil
}

// everywhere says whether a right holds at the whole of its place.
func (p Permissions) everywhere(r Right) bool {
	passed, held := p[r.Place.Path()][r.Privilege]
	return held && (passed || r.Place == PlaceSite)
}

// somewhere lists the paths below a place where a right holds; a pool stands for its members.
func (p Permissions) somewhere(r Right) []string {
	var out []string
	for path, held := range p {
		if _, ok := held[r.Privilege]; !ok {
			continue
		}
		pool := (r.Place == PlaceGuests || r.Place == PlaceStorage) && strings.HasPrefix(path, "/pool/")
		if pool || r.Place != PlaceSite && PlaceOf(path) == r.Place && path != r.Place.Path() {
			out = append(out, path)
		}
	}
	slices.Sort(out)
	return out
}

// Confined lists the pools and guests beyond which nothing of guests is seen; none where all are seen, or none.
func (p Permissions) Confined() []string {
	seeing := Right{"VM.Audit", PlaceGuests}
	if p.everywhere(seeing) {
		return nil
	}
	return p.somewhere(seeing)
}

// Lack is one privilege that is missing on one path.
type Lack struct {
	Privilege string `json:"privilege"`
	Path      string `json:"path"`
	Who       string `json:"who"` // user, token, both, or unknown
}

// Ability says how far a capability goes with what is granted.
type Ability struct {
	Capability string   `json:"capability"`
	Can        string   `json:"can"`               // everywhere, partly, no, or with: it takes the rights of what it is used with
	Where      []string `json:"where,omitempty"`   // with partly
	Except     []string `json:"except,omitempty"`  // with everywhere: paths with entries of their own where it does not hold
	Missing    []Lack   `json:"missing,omitempty"` // for everywhere
}

// Who holds what: the effective rights of whoever asks, those of its user, and the token's own before they are cut by the
// user's. What is nil is not known.
type Who struct {
	Effective, User Permissions
	Own             func(r Right) bool
}

// Abilities compares capabilities with what is granted.
func Abilities(capabilities []string, v Version, who Who) []Ability {
	var out []Ability
	for _, c := range capabilities {
		need := OfCapabilities([]string{c}, v)
		a := Ability{Capability: c, Can: "everywhere"}
		if len(need) == 0 {
			a.Can = "with"
		}
		partly := map[string]bool{}
		held := 0
		for _, r := range need {
			if who.Effective.everywhere(r) {
				held++
				for path, held := range who.Effective {
					if _, ok := held[r.Privilege]; !ok && r.Place != PlaceSite && path != r.Place.Path() && PlaceOf(path) == r.Place && !slices.Contains(a.Except, path) {
						a.Except = append(a.Except, path)
					}
				}
				continue
			}
			a.Missing = append(a.Missing, Lack{r.Privilege, r.Place.Path(), who.lacks(r)})
			some := who.Effective.somewhere(r)
			held += len(some)
			for _, p := range some {
				partly[p] = true
			}
		}
		slices.Sort(a.Except)
		switch {
		case held == 0 && len(need) > 0:
			a.Can, a.Except = "no", nil
		case len(a.Missing) > 0:
			a.Can, a.Except, a.Where = "partly", nil, slices.Sorted(maps.Keys(partly))
		}
		out = append(out, a)
	}
	return out
}

// lacks says whose the missing privilege is: a token with privilege separation has only what both its user and it have.
func (w Who) lacks(r Right) string {
	if w.User == nil {
		return "unknown"
	}
	switch user, own := w.User.everywhere(r), w.Own != nil && w.Own(r); {
	case user:
		return "token"
	case w.Own == nil || own:
		return "user"
	}
	return "both"
}

// Excess is what is held on a path and needed for nothing that is switched on.
type Excess struct {
	Path       string   `json:"path"`
	Privileges []string `json:"privileges"`
}

// Beyond lists what is held beside reading and the capabilities; what is held on a path above is said there only.
func (p Permissions) Beyond(capabilities []string, v Version) []Excess {
	need := append(Reading(v), OfCapabilities(capabilities, v)...)
	var out []Excess
	for _, path := range slices.Sorted(maps.Keys(p)) {
		e := Excess{Path: path}
		for privilege := range p[path] {
			needed := slices.ContainsFunc(need, func(r Right) bool {
				if r.Privilege != privilege {
					return false
				}
				if strings.HasPrefix(path, "/pool") {
					return true // rights on a pool reach what is in it
				}
				return r.Place == PlaceOf(path) || path == "/" && p[path][privilege] // what is passed on is judged as such
			})
			if !needed && !inert(privilege, PlaceOf(path)) && !p.inherited(path, privilege) {
				e.Privileges = append(e.Privileges, privilege)
			}
		}
		if len(e.Privileges) > 0 {
			slices.Sort(e.Privileges)
			out = append(out, e)
		}
	}
	return out
}

// inert says that a privilege means nothing at a place: by way of a pool, guests get those on storages, and the other way round.
func inert(privilege string, place Place) bool {
	switch place {
	case PlaceGuests:
		return !strings.HasPrefix(privilege, "VM.") && privilege != "Permissions.Modify"
	case PlaceStorage:
		return !strings.HasPrefix(privilege, "Datastore.") && privilege != "Permissions.Modify"
	}
	return false
}

// inherited says that a privilege on a path is there because it is passed on from above.
func (p Permissions) inherited(path, privilege string) bool {
	for above := path; above != "/" && above != ""; {
		above = above[:strings.LastIndexByte(above, '/')]
		if above == "" {
			above = "/"
		}
		if passed := p[above][privilege]; passed {
			return true
		}
	}
	return false
}

// PassedOn lists what is held on / and passed on to everything, beside reading.
func (p Permissions) PassedOn(v Version) []string {
	var out []string
	for privilege, passed := range p["/"] {
		if passed && !slices.Contains(auditing(v), privilege) {
			out = append(out, privilege)
		}
	}
	slices.Sort(out)
	return out
}

// Blind lists the kinds of reading that are not there, with the privilege that each takes.
func (p Permissions) Blind(v Version) []Lack {
	var out []Lack
	for _, r := range []Right{{"Sys.Audit", PlaceSite}, {"Sys.Audit", PlaceNodes}, {"VM.Audit", PlaceGuests}, {"Datastore.Audit", PlaceStorage}, {"SDN.Audit", PlaceNetwork}, {"Pool.Audit", PlacePools}} {
		if !p.everywhere(r) && len(p.somewhere(r)) == 0 {
			out = append(out, Lack{Privilege: r.Privilege, Path: r.Place.Path()})
		}
	}
	return out
}

// Narrowing takes away the entries of a user and its token that a wish does not name, where they hold more than reading.
// It comes after the wish's own commands, which keep what is there.
func (w Want) Narrowing(have *State) []Command {
	if have == nil || have.Entries == nil || have.Roles == nil {
		return nil
	}
	wanted := w.Entries()
	var out []Command
	for _, e := range have.after(w.Commands(have)) {
		if e.Kind == "group" || e.ID != w.User && e.ID != w.TokenID() || slices.Contains(wanted, e) {
			continue
		}
		more := slices.ContainsFunc(have.Roles[e.Role], func(p string) bool { return !slices.Contains(auditing(w.Version), p) })
		if !more {
			continue
		}
		out = append(out, Command{Operation: "PUT /access/acl", Params: map[string]string{"path": e.Path, e.Kind + "s": e.ID, "roles": e.Role, "delete": "1"}})
	}
	return out
}

// RootOnly lists what Proxmox VE lets only root@pam itself do, logged in with its password: no role and no token helps.
func RootOnly() []string {
	return []string{"bind mounts, device mounts and device passthrough of containers", "features of containers other than nesting (of privileged ones all)",
		"hook scripts of containers; args, lock and parallel ports of VMs; USB, PCI and serial devices of VMs without a mapping",
		"skiplock and the like", "ACME accounts", "creating, joining and leaving a cluster", "creating and destroying Ceph OSDs", "wiping disks",
		"batches of calls (execute)", "passwords and second factors (a login, not a token)"}
}
