package gate

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// beyond says what a plan does that who gave a mandate did not agree to: it acts on or hits something else than the mandate's
// objects, or what comes with it destroys. Empty when nothing is.
func (g *Gate) beyond(m *Mandate, p *Plan) string {
	several := g.severalSites(m.Targets) != ""
	held := map[Object]bool{}
	for _, o := range p.Facts.Objects {
		own := m.holds(o, several)
		if !own && !several && o.Object.Kind == ObjectVolume && g.c.Backups != nil {
			owner := g.c.Backups.Owner(o.Object.ID)
			own = owner != "" && m.names(Object{Kind: ObjectGuest, ID: owner})
		}
		switch {
		case own:
			held[o.Object] = true
		case o.Use == UseActs:
			return m.lacks(o.Object, o.Object.String()+" is not among its objects")
		case o.Use == UseHits:
			return m.lacks(o.Object, "it would hit "+o.Object.String()+", which is not among its objects")
		}
	}
	for _, h := range p.Facts.Reach.Hits {
		if h.Weight == WeightNote || h.Weight == WeightCaution && len(h.Kinds) == 0 {
			continue
		}
		o := h.Object
		if o.Kind == ObjectSnapshot { // of a guest
			o.Kind = ObjectGuest
			o.ID, _, _ = strings.Cut(o.ID, "/")
		}
		if !held[o] && (several || !m.names(o)) {
			return m.lacks(o, "it would hit more than its objects: "+h.Text)
		}
	}
	for _, k := range p.Facts.Kinds {
		if RowOf(k).Effect == EffectDestroy {
			return fmt.Sprintf("what comes with the plan counts as %s, and no mandate covers what destroys", k)
		}
	}
	return ""
}

// maxMandatesRead bounds how many mandates are looked at; where there may be more, none counts as seen.
const maxMandatesRead = 1000

// rests names the pools, tags and titles on which a decision rests: by policy, and the pools and tags that mandates which can
// still be used name as their objects. Who changes membership in them changes what is allowed. Where the mandates cannot be
// read, every pool and tag counts.
func (g *Gate) rests(ctx context.Context) (pools, tags, titles []string) {
	pools, tags, titles = g.c.Policy.Depends()
	now := g.now()
	err := g.c.Store.View(ctx, func(tx Tx) error {
		docs, err := tx.Docs(DocFilter{Kind: mandateKind, Limit: maxMandatesRead})
		if err == nil && len(docs) >= maxMandatesRead {
			return errors.New("there are too many of them")
		}
		for _, d := range docs {
			m, err := g.openMandate(d)
			if err != nil || m.Revoked != "" || !now.Before(m.Until) || len(m.Uses) >= m.Count {
				continue // one that castellan did not write approves nothing
			}
			for _, o := range m.Objects {
				if pool, ok := strings.CutPrefix(o, "pool:"); ok {
					pools = union(pools, []string{pool})
				}
				if tag, ok := strings.CutPrefix(o, "tag:"); ok {
					tags = union(tags, []string{strings.ToLower(tag)})
				}
			}
		}
		return err
	})
	if err != nil {
		g.c.Log.Warn("mandates could not be read: every pool and tag counts", "error", err.Error())
		return union(pools, []string{"*"}), union(tags, []string{"*"}), titles
	}
	return pools, tags, titles
}
