package lab

import "strings"

// release is what differs between the simulated versions of the product.
type release struct {
	major                    int
	version, release, repoid string
}

// releaseOf knows the versions that can be simulated; the parameters of operations are those of the newest.
func releaseOf(version string) (release, bool) {
	switch version {
	case "", "9":
		return release{major: 9, version: pveVersion, release: pveRelease, repoid: pveRepoID}, true
	case "8":
		return release{major: 8, version: "8.4.14", release: "8.4", repoid: "b502d23c55afcba1"}, true
	}
	return release{}, false
}

// lacks tells the paths that a version does not have yet.
func (r release) lacks(path string) bool {
	if r.major >= 9 {
		return false
	}
	for _, p := range []string{"/cluster/ha/rules", "/cluster/bulk-action", "/cluster/sdn/fabrics", "/cluster/sdn/lock", "/cluster/sdn/rollback", "/cluster/sdn/prefix-lists", "/cluster/sdn/route-maps", "/cluster/sdn/dry-run", "/cluster/qemu"} {
		if path == p || strings.HasPrefix(path, p+"/") {
			return true
		}
	}
	return strings.HasSuffix(path, "/oci-registry-pull") || strings.HasSuffix(path, "/query-oci-repo-tags")
}

// asked gives a check of the newest version its form in this one: 8 has one privilege for the agent and the monitor, and none for
// replication jobs, which take the right to storages there.
func (r release) asked(path, privilege string) (string, string) {
	switch {
	case r.major >= 9:
	case strings.HasPrefix(privilege, "VM.GuestAgent."):
		return path, "VM.Monitor"
	case privilege == "VM.Replicate":
		return "/storage", "Datastore.Allocate"
	}
	return path, privilege
}

// privGroups are the privileges of this version as the built-in roles bundle them.
func (r release) privGroups() []privGroup {
	all := allPrivGroups()
	if r.major >= 9 {
		return all
	}
	older := func(list []string) []string {
		var out []string
		for _, p := range list {
			if !strings.HasPrefix(p, "VM.GuestAgent.") && p != "VM.Replicate" {
				out = append(out, p)
			}
		}
		return out
	}
	for i, g := range all {
		all[i].admin, all[i].user, all[i].audit = older(g.admin), older(g.user), older(g.audit)
		if g.name == "VM" {
			all[i].admin = append(all[i].admin, "VM.Monitor")
		}
	}
	return all
}

func (r release) privs() []string {
	var out []string
	for _, g := range r.privGroups() {
		out = append(append(append(append(out, g.root...), g.admin...), g.user...), g.audit...)
	}
	return out
}

// knowsPrivs refuses what this version has no privilege of that name for.
func (c *call) knowsPrivs() error {
	known := c.s.rel.privs()
	for _, p := range splitList(c.str("privs")) {
		if !contains(known, p) {
			return bad("privs", "invalid format - invalid privilege '%s'\n", p)
		}
	}
	return nil
}

// haGroups are what 8 has in place of rules.
func haGroups(c *call) (any, error) {
	if c.s.rel.major >= 9 {
		return noHAGroups(c)
	}
	all := c.s.ha.groups
	id := c.str("group")
	shown := func(id string) M {
		m := copyM(all[id])
		m["group"], m["type"], m["digest"] = id, "group", digestMap(all[id])
		return m
	}
	if c.op.Path == "/cluster/ha/groups" && c.op.Method == "GET" {
		out := []M{}
		for _, id := range sortedKeys(all) {
			out = append(out, shown(id))
		}
		return out, nil
	}
	if (all[id] != nil) == (c.op.Method == "POST") {
		if c.op.Method == "POST" {
			return nil, die("create ha group failed: group ID '%s' already defined", id)
		}
		return nil, die("no such ha group '%s'", id)
	}
	switch c.op.Method {
	case "GET":
		return shown(id), nil
	case "DELETE":
		for _, r := range c.s.ha.resources {
			if r.group == id {
				return nil, die("delete group failed: ha group is used by service '%s'", r.sid)
			}
		}
		delete(all, id)
		return nil, nil
	case "POST":
		all[id] = M{}
	}
	for _, k := range splitList(c.str("delete")) {
		delete(all[id], k)
	}
	for k := range c.p {
		if k != "group" && k != "digest" && k != "delete" && k != "type" {
			all[id][k] = c.typedParam(k)
		}
	}
	return nil, nil
}
