package policy

import (
	"fmt"

	"castellan/internal/gate"
)

// within bounds some kinds of changes to guests that people have marked: by a pool, or by a tag that Proxmox reserves.
type within struct {
	word  string // "upgrade": of the settings and of the statement
	key   string // "policy", or that of a target
	on    string // the target alone that it is about; empty: every one
	what  string // for refusals
	kinds []gate.Kind
	scope scope
}

// parseWithin reads the settings of all targets, or of one.
func parseWithin(target string, upgradePools, upgradeTags, rebootPools, rebootTags []string) ([]within, error) {
	key := "policy"
	if target != "" {
		key = "policy.target." + target
	}
	var out []within
	for _, w := range []struct {
		within
		pools, tags []string
	}{
		{within{word: "upgrade", what: "packages are installed", kinds: []gate.Kind{gate.KindUpgrade, gate.KindUpgradeBare}}, upgradePools, upgradeTags},
		{within{word: "reboot", what: "guests are rebooted", kinds: []gate.Kind{gate.KindReboot}}, rebootPools, rebootTags},
	} {
		if w.pools == nil && w.tags == nil {
			continue
		}
		w.key, w.on = key, target
		if len(w.pools)+len(w.tags) == 0 {
			return nil, fmt.Errorf("%[1]s.%[2]s_pools or %[1]s.%[2]s_tags is an empty list, which would let every guest in; leave the key out to mean that, or name some", key, w.word)
		}
		if target != "" && len(w.tags) == 0 && len(w.pools) == 1 && w.pools[0] == "*" {
			w.scope.all = true
			out = append(out, w.within)
			continue
		}
		var err error
		if w.scope, err = parseScope(key+"."+w.word, nil, w.pools, w.tags); err != nil {
			return nil, err
		}
		out = append(out, w.within)
	}
	return out, nil
}

func (w within) statement() statement {
	var kinds []string
	for _, k := range w.kinds {
		kinds = append(kinds, string(k))
	}
	id, here := "within."+w.word, ""
	if w.on != "" {
		id, here = "target."+w.on+"."+id, "context.target == "+quote(w.on)+" && "
	}
	pools, tags := w.key+"."+w.word+"_pools", w.key+"."+w.word+"_tags"
	return statement{id: id, names: true, action: []string{"write"}, setting: pools + ", " + tags,
		reason: w.what + " only in guests of " + pools + " and " + tags,
		hint:   "A person puts the guest into such a pool, or gives it such a tag (one that Proxmox lets nobody else set: doctor gives the command that reserves it), or changes these settings.",
		text: "forbid (principal, action == Action::\"write\", resource)\nwhen { " + here + set(kinds) + ".contains(context.kind) && resource.use == \"acts\" }\nunless { resource.kind == \"guest\" && (" +
			w.scope.marked() + ") };"}
}
