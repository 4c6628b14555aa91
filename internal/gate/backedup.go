package gate

import (
	"context"
	"slices"
	"time"
)

// Backups knows when guests were last backed up.
type Backups interface {
	// Newest gives the time of the newest backup that surely is of the guest that has each id now; what is not known, or was
	// never backed up, is left out.
	Newest(ctx context.Context, v View, target string, guests []string) map[string]time.Time
	// Owner is the id of the guest that a volume belongs to; empty for backups, and for what belongs to none.
	Owner(volume string) string
}

// backedUp puts into the facts when the guests were last backed up that steps destroy, or whose volumes they destroy.
func (g *Gate) backedUp(ctx context.Context, p *Plan, steps []Step) {
	if g.c.Backups == nil || !g.c.Policy.Limits().BackupAge { // it takes many reads
		return
	}
	at := map[string][]string{} // target → guests
	of := map[Object]string{}
	targets := []string{}
	for _, s := range steps {
		if WorseEffect(s.Judgement.Effect, EffectExecute) != EffectDestroy {
			continue
		}
		for _, r := range s.Judgement.References {
			r.Object.Site = s.Site
			id := r.Object.ID
			switch {
			case r.Use != UseActs:
				continue
			case r.Object.Kind == ObjectVolume:
				id = g.c.Backups.Owner(id)
			case r.Object.Kind != ObjectGuest:
				continue
			}
			if id == "" {
				continue
			}
			of[r.Object] = id
			if !slices.Contains(targets, s.Target) {
				targets = append(targets, s.Target)
			}
			at[s.Target] = union(at[s.Target], []string{id})
		}
	}
	for _, t := range targets {
		v := g.wholeView(p.Requester)
		newest := g.c.Backups.Newest(ctx, v, t, at[t])
		for i := range p.Facts.Objects {
			o := &p.Facts.Objects[i]
			if id := of[o.Object]; id != "" && slices.Contains(at[t], id) {
				o.BackedUp = newest[id]
			}
		}
	}
}
