package policy

import (
	"fmt"

	"castellan/internal/gate"
)

// within bounds some kinds of changes to guests that people have marked: by a pool, or by a tag that Proxmox reserves.
type within struct {
	word  string // "upgrade": of the settings and of the statement
	what  string // for refusals
	kinds []gate.Kind
	scope scope
}

func (r *rules) parseWithin(s Settings) error {
	for _, w := range []struct {
		within
		pools, tags []string
	}{
		{within{word: "upgrade", what: "packages are installed", kinds: []gate.Kind{gate.KindUpgrade, gate.KindUpgradeBare}}, s.UpgradePools, s.UpgradeTags},
		{within{word: "reboot", what: "guests are rebooted", kinds: []gate.Kind{gate.KindReboot}}, s.RebootPools, s.RebootTags},
	} {
		if w.pools == nil && w.tags == nil {
			continue
		}
		if len(w.pools)+len(w.tags) == 0 {
			return fmt.Errorf("policy.%s_pools or policy.%s_tags is an empty list, which would let every guest in; leave the key out to mean that, or name some", w.word, w.word)
		}
		var err error
		if w.scope, err = parseScope("policy."+w.word, nil, w.pools, w.tags); err != nil {
			return err
		}
		r.within = append(r.within, w.within)
	}
	return nil
}

func (w within) statement() statement {
	var kinds []string
	for _, k := range w.kinds {
		kinds = append(kinds, string(k))
	}
	pools, tags := "policy."+w.word+"_pools", "policy."+w.word+"_tags"
	return statement{id: "within." + w.word, names: true, action: []string{"write"}, setting: pools + ", " + tags,
		reason: w.what + " only in guests of " + pools + " and " + tags,
		hint:   "A person puts the guest into such a pool, or gives it such a tag (one that the options of the datacenter list in registered-tags), or changes these settings.",
		text: "forbid (principal, action == Action::\"write\", resource)\nwhen { " + set(kinds) + ".contains(context.kind) && resource.use == \"acts\" }\nunless { resource.kind == \"guest\" && (" +
			w.scope.marked() + ") };"}
}
