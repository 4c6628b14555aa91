package pve

import (
	"context"
	"slices"
	"strings"
	"sync"

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
func backupGaps(give *granting, gaps []backups.Gap) (out []health.Unread) {
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
		give.mend(&u, x.grants)
		out = append(out, u)
	}
	return out
}

// granting writes the commands that give castellan's own user what it lacks for reading. What the user holds is asked for when
// the first of them is written: a command gives on a path what is asked for and keeps what is there, no more.
type granting struct {
	ctx  context.Context
	v    gate.View
	t    gate.TargetInfo
	once sync.Once
	all  rights.Permissions
}

// held is what is in force on a path.
func (g *granting) held(path string) (held map[string]bool, known bool) {
	all := g.permissions(path)
	return all[path], all != nil
}

func (g *granting) permissions(path string) rights.Permissions {
	r := gate.Read{Operation: "GET /access/permissions"}
	if path != "" {
		r.Params = map[string]string{"path": path}
	}
	a, err := g.v.Read(g.ctx, g.t.Name, r)
	if err != nil {
		return nil
	}
	p, err := rights.ReadPermissions(a.Data)
	if err != nil {
		return nil
	}
	return p
}

// confined are the pools and guests that the token is limited to.
func (g *granting) confined() []string {
	g.once.Do(func() { g.all = g.permissions("") })
	return g.all.Confined()
}

// widens says whether a grant on a path would show guests, or let do with guests, beyond what the token is limited to.
func (g *granting) widens(path string) bool {
	if place := rights.PlaceOf(path); place != rights.PlaceGuests && place != rights.PlacePools || len(g.confined()) == 0 {
		return false
	}
	held, _ := g.held(path)
	_, sees := held["VM.Audit"]
	return !sees
}

const limitedWord = "castellan's token is limited to "

// limit says of a limited token why nothing is proposed that would lift the limit.
func (g *granting) limit() string {
	return limitedWord + firstOf(g.confined(), 4) + ", as it seems on purpose: what lies beyond is not to be read, and no grant is proposed that would widen it"
}

// mend adds to what could not be read what is missing and the commands that would give it.
func (g *granting) mend(u *health.Unread, grants []backups.Grant) {
	var limited bool
	if u.Missing, u.Grant, limited = g.of(grants); limited {
		u.Why += "; " + g.limit()
	}
}

// of names privileges on paths, and the commands that give them to castellan's own user. limited: it left out what would widen
// a token that is limited to pools or guests.
func (g *granting) of(grants []backups.Grant) (missing, command string, limited bool) {
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
		if g.widens(p) {
			limited = true
			continue
		}
		held, known := g.held(p)
		if !known && p != "/" {
			continue // an entry there could take away what was inherited
		}
		for _, c := range rights.Give(g.t.User, p, give[p], held) {
			if line := c.String(); !slices.Contains(lines, line) { // one role serves many paths
				lines, all = append(lines, line), append(all, c)
			}
		}
	}
	return strings.Join(said, "; "), rights.Joined(all), limited
}

var missingForm = &regex.Lazy{Expr: `^([A-Za-z]+\.[A-Za-z.]+)(?: or [A-Za-z. ]+)? on (/[A-Za-z0-9{}/._-]*)$`}

// withGrants adds to what could not be read for want of a privilege the commands that would give it. A limited caller is
// not told of castellan's own user.
func (s *site) withGrants(ctx context.Context, unread []health.Unread) {
	give := &granting{ctx: ctx, v: s.v, t: s.inv.Target}
	for i, u := range unread {
		if s.v.Scoped() {
			unread[i].Grant = ""
			continue
		}
		m := missingForm.FindStringSubmatch(u.Missing)
		if u.Grant != "" || m == nil || strings.Contains(u.Why, limitedWord) {
			continue
		}
		path, _, _ := strings.Cut(m[2], "/{") // of many places: on the path above them
		give.mend(&unread[i], []backups.Grant{{Path: path, Privilege: m[1]}})
		unread[i].Missing = u.Missing
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
