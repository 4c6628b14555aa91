package gate

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// maxGroups bounds how many groups of one request are looked at: with more, castellan's own may be among them.
const maxGroups = 20

// governs lists why a plan changes what policy, approval or castellan itself depends on. Naming is not enough, with two
// exceptions: an ACL entry for castellan's own user or token, and membership in a pool or tag that grants scope.
func (g *Gate) governs(ctx context.Context, p *Plan) []string {
	var why []string
	pools, tags, titles := g.rests(ctx)
	targets := map[string]TargetInfo{}
	for _, t := range g.c.Driver.Targets() {
		targets[t.Name] = t
	}
	old := map[Object]ObjectFacts{} // guests as they are now
	for _, o := range p.Facts.Objects {
		if o.Object.Kind == ObjectGuest {
			old[o.Object] = o
		}
	}
	for _, s := range p.Steps {
		if s.API == nil || s.Judgement.Effect == EffectRead {
			continue
		}
		user, token := ownNames(targets[s.Target].User)
		say := func(format string, args ...any) {
			why = union(why, []string{fmt.Sprintf("step %d ", s.Number) + fmt.Sprintf(format, args...)})
		}
		_, path, _ := strings.Cut(s.API.Operation, " ")
		access := path == "/access" || strings.HasPrefix(path, "/access/")
		for _, r := range s.Judgement.References {
			switch {
			case r.Object.Kind == ObjectUser && user != "" && (r.Object.ID == user || r.Object.ID == token):
				say("changes %s, castellan's own access", r.Object.ID)
			case r.Object.Kind == ObjectPool && grants(pools, r.Object.ID) && !strings.HasSuffix(path, "/vzdump") && !strings.HasPrefix(path, "/cluster/backup"): // a backup leaves it as it is
				say("changes pool %s, on which policy or a mandate rests", r.Object.ID)
			case r.Object.Kind == ObjectGuest && r.Use == UseActs && (path == "/pools" || strings.HasPrefix(path, "/pools/")):
				r.Object.Site = s.Site
				for _, pool := range old[r.Object].Pools {
					if grants(pools, pool) {
						say("takes guest %s out of pool %s, on which policy or a mandate rests", r.Object.ID, pool)
					}
				}
			}
		}
		if user != "" && access && s.API.Text("userid") == user {
			say("changes %s, castellan's own user", user)
		}
		switch {
		case path == "/access/acl" && s.API.Get("groups") != nil && !g.outside(ctx, p, s, user, "groups"):
			say("changes the rights of a group, of which castellan's own user is or may be a member")
		case strings.HasPrefix(path, "/access/roles/"):
			say("changes a role, which castellan's own rights may rest on")
		case strings.HasPrefix(path, "/access/groups/") && !g.outside(ctx, p, s, user, "groupid"):
			say("changes a group, which castellan's own rights may rest on")
		case (strings.HasPrefix(path, "/access/domains/") || strings.HasPrefix(path, "/cluster/jobs/realm-sync")) && s.API.Text("realm") != "" && strings.HasSuffix(user, "@"+s.API.Text("realm")):
			say("changes realm %s, by which castellan's own user signs in", s.API.Text("realm"))
		}
		if path == "/cluster/options" && len(tags) > 0 && changesTagRules(s) {
			say("changes who may set tags, and policy or a mandate rests on tags")
		}
		for _, t := range changedTags(s, old) {
			if counts(tags, t) {
				say("gives or takes tag %s, on which policy or a mandate rests", t)
			}
		}
		if names := named(s, old); renames(titles, names) {
			say("calls a guest %s, and policy rests on titles", names[len(names)-1])
		}
	}
	return why
}

// outside proves that castellan's own user is a member of none of the groups that a parameter names: the site lists their
// members, and it is not among them. Who comes to be a member by another step of the plan is named there.
func (g *Gate) outside(ctx context.Context, p *Plan, s Step, user, param string) bool {
	v := g.wholeView(p.Requester)
	v.most = maxGroups
	groups := 0
	for _, text := range s.API.Get(param) {
		if text.Secret != nil || text.Ref != nil {
			return false
		}
		for _, id := range SplitList(text.Text) {
			var group struct{ Members *[]string }
			groups++
			a, err := v.Read(ctx, s.Target, Read{Operation: "GET /access/groups/{groupid}", Params: map[string]string{"groupid": id}})
			if err != nil || json.Unmarshal(a.Data, &group) != nil || group.Members == nil || slices.ContainsFunc(*group.Members, func(m string) bool { return strings.EqualFold(m, user) }) {
				return false
			}
		}
	}
	return user != "" && groups > 0
}

// counts says whether a list of tags has one, or all.
func counts(tags []string, tag string) bool {
	return slices.Contains(tags, tag) || slices.Contains(tags, "*")
}

// renames says whether policy may decide otherwise by another title: of a guest that is there always, of one that is made
// where policy asks about a title such as this.
func renames(titles, names []string) bool {
	return len(titles) > 0 && (len(names) > 1 && names[0] != names[1] ||
		len(names) == 1 && slices.ContainsFunc(titles, func(t string) bool { return like(names[0], t) }))
}

// like says whether a text is as a pattern has it, in which * stands for any text.
func like(text, pattern string) bool {
	first, rest, wild := strings.Cut(pattern, "*")
	text, ok := strings.CutPrefix(text, first)
	if !ok || !wild {
		return ok && text == ""
	}
	parts := strings.Split(rest, "*")
	for _, part := range parts[:len(parts)-1] {
		i := strings.Index(text, part)
		if i < 0 {
			return false
		}
		text = text[i+len(part):]
	}
	return strings.HasSuffix(text, parts[len(parts)-1])
}

// named is how a request calls a guest: before and after, or only after where it makes the guest.
func named(s Step, old map[Object]ObjectFacts) []string {
	_, path, _ := strings.Cut(s.API.Operation, " ")
	guest, key, fresh := strings.HasPrefix(path, "/nodes/{node}/qemu"), "name", false
	if strings.HasPrefix(path, "/nodes/{node}/lxc") {
		guest, key = true, "hostname"
	}
	switch {
	case !guest:
		return nil
	case strings.HasSuffix(path, "/{vmid}/clone"), path == "/nodes/{node}/qemu", path == "/nodes/{node}/lxc":
		fresh = true
	case !strings.HasSuffix(path, "/{vmid}/config"):
		return nil
	}
	was, acts := "", false
	for _, r := range s.Judgement.References {
		if o := r.Object; r.Use == UseActs && o.Kind == ObjectGuest {
			o.Site = s.Site
			if facts, known := old[o]; known && facts.Name != "" {
				was, acts = facts.Name, true
			}
		}
	}
	after := s.API.Text(key)
	if fresh {
		switch {
		case strings.HasSuffix(path, "/clone") && after == "" && acts: // as Proxmox calls it then
			after = "Copy-of-" + strings.ToUpper(map[string]string{"name": "vm", "hostname": "ct"}[key]) + "-" + was
		case acts && !strings.HasSuffix(path, "/clone") && after != "": // in place of one that is there
			return []string{was, after}
		}
		if after == "" {
			return nil
		}
		return []string{after}
	}
	for _, name := range []string{"delete", "revert"} {
		for _, v := range s.API.Get(name) {
			if slices.Contains(SplitList(v.Text), key) {
				return []string{was, after + " (taken away)"}
			}
		}
	}
	if s.API.Get(key) == nil {
		return nil
	}
	return []string{was, after}
}

// grants says whether one of the pools is this one or lies above it: what is in a pool is in those above.
func grants(pools []string, pool string) bool {
	return slices.ContainsFunc(pools, func(p string) bool { return pool == p || p == "*" || strings.HasPrefix(pool, p+"/") })
}

// ownNames splits "user@realm!token" into user and full token id.
func ownNames(id string) (user, token string) {
	user, _, _ = strings.Cut(id, "!")
	return user, id
}

// changesTagRules says whether a request changes which tags are reserved.
func changesTagRules(s Step) bool {
	for _, name := range []string{"registered-tags", "user-tag-access", "tag-style"} {
		if len(s.API.Get(name)) > 0 {
			return true
		}
		for _, v := range s.API.Get("delete") {
			if slices.Contains(SplitList(v.Text), name) {
				return true
			}
		}
	}
	return false
}

// changedTags are the tags that a request gives a guest or takes from it.
func changedTags(s Step, old map[Object]ObjectFacts) []string {
	var before, after []string
	touched := false
	for _, r := range s.Judgement.References {
		if r.Use == UseActs && r.Object.Kind == ObjectGuest {
			r.Object.Site = s.Site
			for _, t := range old[r.Object].Tags {
				before = append(before, strings.ToLower(t))
			}
		}
	}
	for _, v := range s.API.Get("tags") {
		touched = true
		for _, t := range SplitList(v.Text) {
			after = append(after, strings.ToLower(t))
		}
	}
	for _, name := range []string{"delete", "revert"} {
		for _, v := range s.API.Get(name) {
			touched = touched || slices.Contains(SplitList(v.Text), "tags")
		}
	}
	if !touched {
		return nil
	}
	var out []string
	for _, t := range union(slices.Clone(before), after) {
		if slices.Contains(before, t) != slices.Contains(after, t) {
			out = append(out, t)
		}
	}
	return out
}

// SplitList parts a list as Proxmox does, for which any blank parts it, of Unicode too.
func SplitList(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ';' || r == 0 || unicode.IsSpace(r) })
}
