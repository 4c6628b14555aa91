package gate

import (
	"context"
	"fmt"
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

// notBackedUp refuses a step whose guests were to have a backup of late, where they have none now, or it cannot be told.
func (g *Gate) notBackedUp(ctx context.Context, p *Plan, s Step) *Error {
	if s.BackedUpWithin <= 0 {
		return nil
	}
	var guests []string
	for _, r := range s.Judgement.References {
		if r.Use == UseActs && r.Object.Kind == ObjectGuest && r.Object.ID != "" {
			guests = union(guests, []string{r.Object.ID})
		}
	}
	newest := map[string]time.Time{}
	if g.c.Backups != nil {
		newest = g.c.Backups.Newest(ctx, g.wholeView(p.Requester), s.Target, guests)
	}
	if len(guests) == 0 {
		return Fail(ErrStale, "Plan anew.", "a backup of the last %s was asked for, and of which guest cannot be told", spanText(s.BackedUpWithin))
	}
	for _, id := range guests {
		at, known := newest[id]
		switch {
		case !known:
			return Fail(ErrStale, "backup_guest makes one; backup_freshness tells why none is known. Then plan anew.", "guest %s was to have a backup of the last %s: none that surely is of it is known now", id, spanText(s.BackedUpWithin))
		case g.now().Sub(at) > s.BackedUpWithin:
			return Fail(ErrStale, "backup_guest makes one; then plan anew.", "guest %s was to have a backup of the last %s: its newest is %s old by now", id, spanText(s.BackedUpWithin), spanText(g.now().Sub(at)))
		}
	}
	return nil
}

// spanText is a time in whole hours, or minutes where it is short.
func spanText(d time.Duration) string {
	if d < 2*time.Hour {
		return fmt.Sprintf("%d minutes", int(d.Minutes()))
	}
	return fmt.Sprintf("%d hours", int(d.Hours()))
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
