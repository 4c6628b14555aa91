package backups

import (
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

// maxNamespaces bounds how many namespaces of a backup server are looked through.
const maxNamespaces = 80

// group is one guest's backups in a namespace of a backup server.
type group struct {
	Type  string     `json:"backup-type"`
	ID    string     `json:"backup-id"`
	Last  estate.Int `json:"last-backup"`
	Count estate.Int `json:"backup-count"`
	Owner string     `json:"owner"`
}

// place is one namespace of one datastore.
type place struct{ data, ns string }

func (p place) params() map[string]string {
	out := map[string]string{"store": p.data}
	if p.ns != "" {
		out["ns"] = p.ns
	}
	return out
}

// askOwners looks at backup servers that are targets of their own: whose groups the archives are in, and what there is in
// namespaces that no storage of the site leads to.
func (s *Site) askOwners(r reader) {
	for _, t := range r.v.Targets() {
		if t.Product != "pbs" || !slices.ContainsFunc(s.stores, func(st store) bool { return st.typ == "pbs" && serves(t, st.server) }) {
			continue
		}
		s.askServer(reader{ctx: r.ctx, v: r.v, target: t.Name}, t)
	}
}

// serves says whether a target is the server that a storage names.
func serves(t gate.TargetInfo, server string) bool {
	return server != "" && slices.ContainsFunc(t.Addresses, func(a string) bool {
		if host, _, err := net.SplitHostPort(a); err == nil {
			a = host
		}
		return strings.EqualFold(strings.Trim(a, "[]"), strings.Trim(server, "[]"))
	})
}

func (s *Site) askServer(r reader, t gate.TargetInfo) {
	var stores []struct {
		Store string `json:"store"`
	}
	if err := r.get(&stores, "GET /admin/datastore", nil); err != nil {
		s.miss("backup server " + t.Name + " could not be asked for its datastores (Datastore.Audit on /datastore there): " + why(err))
		return
	}
	var places []place
	for _, d := range stores {
		places = append(places, place{d.Store, ""})
		var spaces []struct {
			NS string `json:"ns"`
		}
		if err := r.get(&spaces, "GET /admin/datastore/{store}/namespace", map[string]string{"store": d.Store}); err != nil {
			s.miss("the namespaces of datastore " + d.Store + " on " + t.Name + " could not be read: " + why(err))
			continue
		}
		for _, n := range spaces {
			if n.NS != "" {
				places = append(places, place{d.Store, n.NS})
			}
		}
	}
	if len(places) > maxNamespaces {
		s.miss("backup server " + t.Name + " has more namespaces than are looked through at once")
		places = places[:maxNamespaces]
	}
	var mu sync.Mutex
	each(len(places), func(i int) {
		var groups []group
		err := r.get(&groups, "GET /admin/datastore/{store}/groups", places[i].params())
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			s.miss("the backups in " + places[i].data + "/" + places[i].ns + " on " + t.Name + " could not be read: " + why(err))
			return
		}
		s.take(t, places[i], groups)
	})
}

// take notes the owners of groups that a storage leads to, and counts those of other places by their newest backup.
func (s *Site) take(t gate.TargetInfo, p place, groups []group) {
	var here []string
	for _, st := range s.stores {
		if st.typ == "pbs" && serves(t, st.server) && st.data == p.data && st.ns == p.ns {
			here = append(here, st.name)
		}
	}
	kinds := map[string]string{"vm": estate.VM, "ct": estate.CT}
	name := t.Name + ":" + p.data
	if p.ns != "" {
		name += "/" + p.ns
	}
	for _, g := range groups {
		kind := kinds[g.Type]
		if kind == "" || s.q.Guest != "" && g.ID != s.q.Guest || strings.Trim(g.ID, "0123456789") != "" {
			continue
		}
		for i := range s.Archives {
			if a := &s.Archives[i]; a.Guest == g.ID && a.Kind == kind && slices.Contains(here, a.Storage) {
				a.Owner = g.Owner
			}
		}
		if len(here) > 0 || g.Last <= 0 {
			continue
		}
		at := time.Unix(int64(g.Last), 0).UTC()
		s.Archives = append(s.Archives, Archive{Volume: name + ":" + g.Type + "/" + g.ID + "/" + at.Format("2006-01-02T15:04:05Z"), Storage: name, Guest: g.ID, Kind: kind, Time: at,
			Format: "pbs-" + g.Type, away: true})
	}
}

// ownedBy says whether a group's owner is the user by which a storage signs in: the user, or one of its tokens.
func ownedBy(owner, user string) bool {
	return owner == user || !strings.Contains(user, "!") && strings.HasPrefix(owner, user+"!")
}
