package pve

import (
	"slices"
	"strings"

	"castellan/internal/backups"
	"castellan/internal/gate"
	"castellan/internal/health"
	"castellan/internal/regex"
	"castellan/internal/rights"
)

// mostPaths is on how many paths of one kind a grant is named one by one; more of them are named by the path above.
const mostPaths = 4

// backupGaps tells what of the backups could not be read: what has one cause is one line, with its places counted and the
// grant that would mend it.
func backupGaps(user string, gaps []backups.Gap) (out []health.Unread) {
	type group struct {
		where  []string
		grants []backups.Grant
	}
	at := map[string]*group{}
	var order []string
	for _, g := range gaps {
		if strings.HasPrefix(g.Text, "node ") && strings.Contains(g.Text, " is offline") {
			continue // told with the node itself
		}
		x := at[g.Why]
		if x == nil {
			x = &group{}
			at[g.Why] = x
			order = append(order, g.Why)
		}
		if g.Where != "" && !slices.Contains(x.where, g.Where) {
			x.where = append(x.where, g.Where)
		}
		x.grants = append(x.grants, g.Grants...)
	}
	slices.Sort(order)
	for i, why := range order {
		x := at[why]
		if i == 12 { // each of these has words of its own, such as an error
			return append(out, health.Unread{Part: "ages of backups", Why: plural(len(order)-i, "further reason: backup_freshness tells it", "further reasons: backup_freshness tells them"), Hides: health.Warning})
		}
		u := health.Unread{Part: "ages of backups", Why: clip(why, 200), Hides: health.Warning}
		slices.Sort(x.where)
		if u.Where = firstOf(x.where, 6); len(x.where) > 1 {
			u.Where = plural(len(x.where), "place", "places") + ": " + u.Where
		}
		u.Missing, u.Grant = grantFor(user, x.grants)
		out = append(out, u)
	}
	return out
}

// grantFor names privileges on paths, and the commands that give them to castellan's own user.
func grantFor(user string, grants []backups.Grant) (missing, command string) {
	paths := map[string][]string{} // privilege → paths
	var names []string
	for _, g := range grants {
		if paths[g.Privilege] == nil {
			names = append(names, g.Privilege)
		}
		if !slices.Contains(paths[g.Privilege], g.Path) {
			paths[g.Privilege] = append(paths[g.Privilege], g.Path)
		}
	}
	slices.Sort(names)
	var said []string
	give := map[string][]string{} // path → privileges
	for _, name := range names {
		list := paths[name]
		slices.Sort(list)
		if len(list) > mostPaths {
			up, _, _ := strings.Cut(strings.TrimPrefix(list[0], "/"), "/")
			list = []string{"/" + up}
		}
		said = append(said, name+" on "+strings.Join(list, ", "))
		for _, p := range list {
			give[p] = append(give[p], name)
		}
	}
	var all []rights.Command
	var order, lines []string
	for p := range give {
		order = append(order, p)
	}
	slices.Sort(order)
	for _, p := range order {
		for _, c := range rights.Give(user, p, give[p]) {
			if line := c.String(); !slices.Contains(lines, line) { // one role serves many paths
				lines, all = append(lines, line), append(all, c)
			}
		}
	}
	return strings.Join(said, "; "), rights.Joined(all)
}

var missingForm = &regex.Lazy{Expr: `^([A-Za-z]+\.[A-Za-z.]+)(?: or [A-Za-z. ]+)? on (/[A-Za-z0-9{}/._-]*)$`}

// withGrants adds to what could not be read for want of a privilege the commands that would give it. A limited caller is
// not told of castellan's own user.
func (s *site) withGrants(unread []health.Unread) {
	for i, u := range unread {
		if s.v.Scoped() {
			unread[i].Grant = ""
			continue
		}
		m := missingForm.FindStringSubmatch(u.Missing)
		if u.Grant != "" || m == nil {
			continue
		}
		path, _, _ := strings.Cut(m[2], "/{") // of many places: on the path above them
		_, unread[i].Grant = grantFor(s.inv.Target.User, []backups.Grant{{Path: path, Privilege: m[1]}})
	}
}

// withinReach refuses a node that holds none of a limited caller's guests.
func (s *site) withinReach(node string) error {
	if !s.v.Scoped() || node == "" {
		return nil
	}
	for _, g := range s.inv.Guests {
		if g.Node == node {
			return nil
		}
	}
	return gate.Fail(gate.ErrDenied, "list_guests shows this caller's guests and their nodes.", "node %s holds none of the guests within this caller's scope", clip(node, 40))
}
