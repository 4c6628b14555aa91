package estate

import (
	"encoding/json"
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
	switch k.part {
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

// lacks says where a need is not met; empty when it is met everywhere.
func (r rights) lacks(n need) string {
	reaches := func(held map[string]bool, below bool) bool {
		return slices.ContainsFunc(n.any, func(p string) bool { got, has := held[p]; return has && (got || !below) })
	}
	held, _ := r.on(n.path)
	if !reaches(held, true) {
		return n.path
	}
	prefix := strings.TrimSuffix(n.path, "/") + "/"
	if n.path == "/" {
		return "" // what is asked of the site itself is asked on / alone
	}
	var short []string
	for path, held := range r {
		if strings.HasPrefix(path, prefix) && !reaches(held, false) {
			short = append(short, path)
		}
	}
	if len(short) == 0 {
		return ""
	}
	return slices.Min(short)
}

// Rights are what castellan's own token may do, by path and privilege: true where it reaches what lies below. ok is false
// when that could not be read.
func (s *Survey) Rights() (map[string]map[string]bool, bool) {
	a := s.get(key{part: PartRights, op: permissions}, func(a *answer) error {
		if err := s.read(a, "", gate.Read{Operation: permissions}); err != nil {
			return err
		}
		_, err := readRights(a.rows)
		return err
	})
	if a.gap != nil {
		return nil, false
	}
	r, err := readRights(a.rows)
	return r, err == nil
}

const permissions = "GET /access/permissions"

// partial is an error when castellan's token may see only part of what was asked for, or when nobody knows.
func (s *Survey) partial(k key) error {
	needs := k.whole()
	if len(needs) == 0 && k.part != PartContent {
		return nil
	}
	held, ok := s.Rights()
	if !ok {
		return fmt.Errorf("whether castellan's token may see all of it could not be read")
	}
	r := rights(held)
	if k.part == PartContent {
		_, storage, _ := strings.Cut(k.object, "/")
		return r.content(storage)
	}
	for _, n := range needs {
		if at := r.lacks(n); at != "" {
			return fmt.Errorf("castellan's token may see only part of it: it lacks %s on %s", strings.Join(n.any, " or "), at)
		}
	}
	return nil
}

// content is the rule for the volumes of a storage: who may allocate it sees all, others the volumes of guests whose
// disks they may configure and whose backups they may make.
func (r rights) content(storage string) error {
	path := "/storage/" + storage
	has := func(path, privilege string) bool { held, _ := r.on(path); _, ok := held[privilege]; return ok }
	if has(path, "Datastore.Allocate") {
		return nil
	}
	for _, n := range []need{{"/vms", []string{"VM.Config.Disk"}}, {"/vms", []string{"VM.Backup"}}} {
		if at := r.lacks(n); at != "" {
			return fmt.Errorf("castellan's token may see only part of it: it lacks Datastore.Allocate on %s, or %s on %s", path, n.any[0], at)
		}
	}
	if !has(path, "Datastore.AllocateSpace") {
		return fmt.Errorf("castellan's token may see only part of it: it lacks Datastore.Allocate or Datastore.AllocateSpace on %s", path)
	}
	return nil
}
