package backups

import (
	"encoding/json"
	"strings"

	"castellan/internal/estate"
)

// rights are castellan's own at a site, by path as the site tells them; nil = not known. 1 = reaches down, 0 = held there
// alone.
type rights map[string]map[string]estate.Int

// UnmarshalJSON takes the empty list that Perl writes for an empty object.
func (r *rights) UnmarshalJSON(b []byte) error {
	*r = rights{}
	if strings.HasPrefix(strings.TrimSpace(string(b)), "[") {
		return nil
	}
	return json.Unmarshal(b, (*map[string]map[string]estate.Int)(r))
}

// has says whether a privilege is held on a path; not knowing counts as no.
func (r rights) has(path, privilege string) bool {
	if held, listed := r[path]; listed {
		_, ok := held[privilege]
		return ok
	}
	for path != "/" && path != "" {
		path = path[:strings.LastIndexByte(path, '/')]
		if path == "" {
			path = "/"
		}
		if held, listed := r[path]; listed {
			return held[privilege] == 1
		}
	}
	return false
}

// whole says whether a privilege is held on a path and on everything below it.
func (r rights) whole(path, privilege string) bool {
	if !r.has(path, privilege) || r[path] != nil && r[path][privilege] != 1 {
		return false
	}
	for below, held := range r {
		if _, ok := held[privilege]; !ok && strings.HasPrefix(below, path+"/") {
			return false
		}
	}
	return true
}

// seesArchives says whether archives of a guest on a storage are shown: without the right the server hides them and
// answers with an empty list.
func (r rights) seesArchives(storage, guest string) bool {
	path := "/storage/" + storage
	return r.has(path, "Datastore.Allocate") || r.has(path, "Datastore.AllocateSpace") && r.has("/vms/"+guest, "VM.Backup")
}

// grantFor names what is missing for seesArchives.
func grantFor(storage, guest string) string {
	vms := "/vms"
	if guest != "" {
		vms += "/" + guest
	}
	return "Datastore.AllocateSpace on /storage/" + storage + " and VM.Backup on " + vms + " (or Datastore.Allocate on /storage/" + storage + ")"
}
