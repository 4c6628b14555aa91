package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// bind refuses settings that would take a guest of one site for that of another, and ties those of roles to their site. A tag
// may stand for all sites: people of each reserve it and give it.
func (r *rules) bind(sites, fleets []string) error {
	if err := r.manySites(sites, fleets); err != nil {
		return err
	}
	if len(sites) < 2 {
		return nil
	}
	var loose []string
	if len(r.scope.ranges) > 0 {
		loose = append(loose, "guests")
	}
	if len(r.scope.pools) > 0 {
		loose = append(loose, "pools")
	}
	for _, w := range r.within {
		if len(w.scope.pools) > 0 {
			loose = append(loose, w.word+"_pools")
		}
	}
	others := "the targets are " + strings.Join(sites, ", ")
	if len(loose) > 0 {
		return fmt.Errorf("policy.%s names guests by number or pool, and %s: guest 101 of one would be taken for guest 101 of the others. Write it in [policy.target.%s], and so for each of the others",
			strings.Join(loose, ", policy."), others, sites[0])
	}
	if err := r.everySite(sites); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(r.roles)) {
		role := r.roles[name]
		if len(role.scope.ranges)+len(role.scope.pools) == 0 {
			continue
		}
		of := slices.DeleteFunc(slices.Clone(sites), func(s string) bool { return !slices.Contains(role.targets, s) })
		if len(of) != 1 {
			return fmt.Errorf("policy.role.%[1]s names guests by number or pool, and %[2]s: guest 101 of one would be taken for guest 101 of the others. Say of which in policy.role.%[1]s.targets, one of them: targets = [%[3]q], with a role for each, or name the guests by tags",
				name, others, sites[0])
		}
		role.scope.bound = of[0]
		r.roles[name] = role
	}
	return nil
}

// manySites refuses numbers and pools of a target that passes on to other sites, each of which has its own.
func (r *rules) manySites(sites, fleets []string) error {
	for _, f := range fleets {
		var loose []string
		note := func(key string, s scope) {
			if len(s.ranges) > 0 {
				loose = append(loose, key+"guests")
			}
			if len(s.pools) > 0 {
				loose = append(loose, key+"pools")
			}
		}
		kept := func(all []within) {
			for _, w := range all {
				if len(w.scope.pools) > 0 {
					loose = append(loose, w.key+"."+w.word+"_pools")
				}
			}
		}
		note("policy.target."+f+".", r.targets[f].scope)
		kept(r.targets[f].within)
		alone := len(sites) == 1 && sites[0] == f
		if alone { // with others beside it bind says where they belong
			note("policy.", r.scope)
			kept(r.within)
		}
		for _, name := range slices.Sorted(maps.Keys(r.roles)) {
			if alone || slices.Contains(r.roles[name].targets, f) && !slices.ContainsFunc(sites, func(s string) bool { return s != f && slices.Contains(r.roles[name].targets, s) }) {
				note("policy.role."+name+".", r.roles[name].scope)
			}
		}
		if len(loose) > 0 {
			return fmt.Errorf("%s names guests by number or pool, and target %s passes on to each of its remotes: guest 101 of one would be taken for guest 101 of the others. Bound that target by capabilities, read_only or forbid in [policy.target.%s], and say guests = [\"*\"] there, or name a target of kind pve for the site that is meant",
				strings.Join(loose, ", "), f, f)
		}
	}
	return nil
}

// everySite asks that what bounds the guests of one site is said for each: what was left out would be open.
func (r *rules) everySite(sites []string) error {
	missing := func(has func(targetRules) bool) (some bool, out []string) {
		for _, s := range sites {
			if has(r.targets[s]) {
				some = true
			} else {
				out = append(out, s)
			}
		}
		return some, out
	}
	if !r.scope.limits() && !r.scope.all {
		if some, left := missing(func(t targetRules) bool { return t.scope.limits() || t.scope.all }); some && len(left) > 0 {
			return fmt.Errorf("policy.target.%[1]s says nothing of guests, pools and tags, and other targets do: every guest of it would be in scope; if that is meant, write guests = [\"*\"] in [policy.target.%[1]s]", left[0])
		}
	}
	for _, word := range []string{"upgrade", "reboot"} {
		is := func(w within) bool { return w.word == word }
		if slices.ContainsFunc(r.within, is) {
			continue
		}
		if some, left := missing(func(t targetRules) bool { return slices.ContainsFunc(t.within, is) }); some && len(left) > 0 {
			return fmt.Errorf("policy.target.%[1]s says nothing of %[2]s_pools and %[2]s_tags, and other targets do: every guest of it would count; if that is meant, write %[2]s_pools = [\"*\"] in [policy.target.%[1]s]", left[0], word)
		}
	}
	return nil
}
