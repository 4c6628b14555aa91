package estate

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"castellan/internal/gate"
)

// Lists hide what a token may not see, without a word. So each list is held against what the token may see at all.

// need is a privilege, any of several, that must reach everything below a path for a list to be whole.
type need struct {
	path string
	any  []string
}

// whole says what the token needs for an answer to be whole. Each must be held. Reads that are refused outright when a
// right is missing need no line.
func (k key) whole() []need {
	audit := func(path string, any ...string) []need { return []need{{path, any}} }
	switch k.what().part {
	case PartResources, PartReplication:
		return audit("/vms", "VM.Audit")
	case PartStorages:
		return audit("/storage", "Datastore.Audit", "Datastore.AllocateSpace", "Datastore.Allocate")
	case PartPools:
		return audit("/pool", "Pool.Audit")
	case PartACL:
		return audit("/access", "Sys.Audit", "Permissions.Modify")
	case PartUsers, PartGroups:
		return audit("/access/groups", "Sys.Audit", "User.Modify")
	case PartOptions, PartTasks:
		return audit("/", "Sys.Audit")
	case PartZones, PartVNets:
		return audit("/sdn", "SDN.Audit", "SDN.Allocate")
	case PartNetwork:
		return audit("/sdn", "SDN.Audit", "SDN.Use")
	case PartMappings:
		return audit("/mapping", "Mapping.Audit", "Mapping.Modify", "Mapping.Use")
	}
	return nil
}

// rights are what castellan's token holds: path → privilege → whether it reaches what lies below.
type rights map[string]map[string]bool

func readRights(rows []Config) (rights, error) {
	out := rights{}
	for _, row := range rows {
		for path, text := range row {
			var privileges map[string]Bool
			if err := json.Unmarshal([]byte(text), &privileges); err != nil {
				return nil, fmt.Errorf("read the rights on %s: %w", path, err)
			}
			held := map[string]bool{}
			for p, reaches := range privileges {
				held[p] = bool(reaches)
			}
			out[path] = held
		}
	}
	return out, nil
}

// always are the paths that the site lists whenever anything is held there: a missing one holds nothing.
func always(path string) bool {
	return slices.Contains([]string{"/", "/access", "/access/groups", "/nodes", "/pool", "/sdn", "/storage", "/vms"}, path)
}

// on is what holds on a path: its own line, else that of the nearest one above it.
func (r rights) on(path string) (held map[string]bool, own bool) {
	for at := path; ; {
		if held, ok := r[at]; ok {
			return held, at == path
		}
		if always(at) || at == "" {
			return nil, at == path
		}
		i := strings.LastIndexByte(at, '/')
		if i <= 0 {
			at = "/"
		} else {
			at = at[:i]
		}
	}
}

// Rights are what castellan's own token may do, by path and privilege: true where it reaches what lies below. ok is false
// when that could not be read. A site with many pooled guests answers it with megabytes.
func (s *Survey) Rights() (map[string]map[string]bool, bool) { return s.rightsOn("") }

const permissions = "GET /access/permissions"

// rightsOn reads what the token holds on one path; empty = on every one that the site lists.
func (s *Survey) rightsOn(path string) (rights, bool) {
	a := s.get(question{PartRights, permissions, path}.of(""), func(a *answer) error {
		r := gate.Read{Operation: permissions}
		if path != "" {
			r.Params = map[string]string{"path": path}
		}
		if err := s.read(a, "", r); err != nil {
			return err
		}
		var err error
		a.rights, err = readRights(a.rows)
		a.rows = nil
		return err
	})
	return a.rights, a.gap == nil
}

// narrowError says which right castellan's token lacks to see all.
type narrowError string

func (e narrowError) Error() string { return string(e) }

// partial is an error when castellan's token may see only part of what was asked for, or when nobody knows.
func (s *Survey) partial(k key) error {
	needs := k.whole()
	if len(needs) == 0 && k.what().part != PartContent {
		return nil
	}
	h := &holdings{s: s, part: k.what().part}
	if k.what().part == PartContent {
		_, storage, _ := strings.Cut(k.object, "/")
		return h.content(storage)
	}
	for _, n := range needs {
		at, err := h.lacks(n)
		if err != nil {
			return err
		}
		if at != "" {
			return narrowError(fmt.Sprintf("castellan's token may see only part of it: it lacks %s on %s", strings.Join(n.any, " or "), at))
		}
	}
	return nil
}

// holdings answers what the token may see. The site's own answer for every path grows with the site, so a few paths are
// asked for, and the access list tells whether anything differs below them. Who may not read that list asks for all.
type holdings struct {
	s    *Survey
	part Part // for which part it is asked: a part is not looked up for itself
}

var errRightsUnread = errors.New("whether castellan's token may see all of it could not be read")

// entries are the lines of the access list that may be about castellan's token; listed is false when it may not read them.
func (h *holdings) entries() (mine []Config, listed bool, err error) {
	access, ok := h.s.rightsOn("/access")
	if !ok {
		return nil, false, errRightsUnread
	}
	held, _ := access.on("/access")
	_, audits := held["Sys.Audit"]
	_, modifies := held["Permissions.Modify"]
	if !audits && !modifies {
		return nil, false, nil
	}
	rows, ok := h.s.ACL()
	if !ok {
		return nil, false, errRightsUnread
	}
	user, _, _ := strings.Cut(h.s.target.User, "!")
	for _, r := range rows {
		switch {
		case r["type"] == "group":
			if !h.member(user, r["ugid"]) {
				continue
			}
		case user != "" && r["ugid"] != user && r["ugid"] != h.s.target.User:
			continue
		}
		mine = append(mine, r)
	}
	return mine, true, nil
}

// member says whether castellan's user may be in a group: what could not be read counts as yes.
func (h *holdings) member(user, group string) bool {
	if h.part == PartUsers || h.part == PartGroups || user == "" {
		return true
	}
	rows, ok := h.s.Users()
	if !ok {
		return true
	}
	for _, r := range rows {
		if r["userid"] == user {
			return slices.Contains(fields(r["groups"]), group)
		}
	}
	return false
}

// held is what the token holds on a path, and which lines of the access list are about what lies below it.
func (h *holdings) held(path string) (held map[string]bool, below []Config, err error) {
	if h.part == PartACL { // the list cannot tell of itself
		r, ok := h.s.rightsOn(path)
		if !ok {
			return nil, nil, errRightsUnread
		}
		held, _ = r.on(path)
		return held, nil, nil
	}
	mine, listed, err := h.entries()
	if err != nil {
		return nil, nil, err
	}
	if !listed {
		r, ok := h.s.rightsOn("")
		if !ok {
			return nil, nil, errRightsUnread
		}
		held, _ = r.on(path)
		for p := range r {
			if path != "/" && strings.HasPrefix(p, path+"/") {
				below = append(below, Config{"path": p})
			}
		}
		return held, below, nil
	}
	ask := "/"
	for _, e := range mine {
		switch p := e["path"]; {
		case p == path || p != "/" && strings.HasPrefix(path, p+"/"):
			ask = path
		case path != "/" && strings.HasPrefix(p, path+"/"):
			below = append(below, e)
		}
	}
	r, ok := h.s.rightsOn(ask)
	if !ok {
		return nil, nil, errRightsUnread
	}
	on, _ := r.on(ask)
	if ask == path {
		return on, below, nil
	}
	held = map[string]bool{}
	for p, reaches := range on {
		if reaches {
			held[p] = true
		}
	}
	return held, below, nil
}

// lacks says where a need is not met; empty when it is met everywhere.
func (h *holdings) lacks(n need) (string, error) {
	held, below, err := h.held(n.path)
	if err != nil {
		return "", err
	}
	reaches := func(held map[string]bool, deep bool) bool {
		return slices.ContainsFunc(n.any, func(p string) bool { got, has := held[p]; return has && (got || !deep) })
	}
	if !reaches(held, n.path != "/") {
		return n.path, nil
	}
	var short []string
	for _, e := range below {
		on, err := h.line(e)
		if err != nil {
			return "", err
		}
		if !reaches(on, false) {
			short = append(short, e["path"])
		}
	}
	if len(short) == 0 {
		return "", nil
	}
	return slices.Min(short), nil
}

// line is what one line of the access list gives, or what the site itself says of its path.
func (h *holdings) line(e Config) (map[string]bool, error) {
	if e["roleid"] == "" {
		r, ok := h.s.rightsOn("")
		if !ok {
			return nil, errRightsUnread
		}
		return r[e["path"]], nil
	}
	roles, ok := h.s.Roles()
	if !ok {
		return nil, errRightsUnread
	}
	held := map[string]bool{}
	for _, r := range roles {
		if r["roleid"] == e["roleid"] {
			for _, p := range fields(r["privs"]) {
				held[p] = true
			}
		}
	}
	return held, nil
}

// content is the rule for the volumes of a storage: who may allocate it sees all, others the volumes of guests whose
// disks they may configure and whose backups they may make.
func (h *holdings) content(storage string) error {
	path := "/storage/" + storage
	held, _, err := h.held(path)
	if err != nil {
		return err
	}
	if _, ok := held["Datastore.Allocate"]; ok {
		return nil
	}
	for _, n := range []need{{"/vms", []string{"VM.Config.Disk"}}, {"/vms", []string{"VM.Backup"}}} {
		at, err := h.lacks(n)
		if err != nil {
			return err
		}
		if at != "" {
			return fmt.Errorf("castellan's token may see only part of it: it lacks Datastore.Allocate on %s, or %s on %s", path, n.any[0], at)
		}
	}
	if _, ok := held["Datastore.AllocateSpace"]; !ok {
		return fmt.Errorf("castellan's token may see only part of it: it lacks Datastore.Allocate or Datastore.AllocateSpace on %s", path)
	}
	return nil
}
