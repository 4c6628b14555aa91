package reach

import (
	"fmt"
	"slices"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

// walkPoolRemoved: what rests on a pool goes with it. Rights are walked by themselves.
func walkPoolRemoved(w *walk, c change) {
	pool := c.object.ID
	blocked := dim{ClassBlocked, gate.WeightNote, nil}
	inv, ok := w.listing()
	if !ok {
		w.missing(c.object, "the list of guests", blocked, losesBackup)
	}
	var members []string
	for _, g := range inv.Guests {
		if g.Pool == pool {
			members = append(members, g.ID)
		}
	}
	if len(members) > 0 {
		w.hit(gate.Hit{Class: ClassBlocked, Weight: gate.WeightNote, Object: c.object, Blocks: true, Text: fmt.Sprintf("pool %s holds guests %s: it is not removed before it is empty", clean(pool), names(members))})
	}
	jobs, ok := w.s.Jobs()
	if !ok {
		w.missing(c.object, "the backup jobs", losesBackup)
	}
	for _, j := range jobs {
		if j["pool"] == pool {
			w.hit(gate.Hit{Class: ClassLosesBackup, Weight: gate.WeightCaution, Object: object(gate.ObjectJob, j["id"]), Kinds: []gate.Kind{gate.KindGuard}, Text: fmt.Sprintf("backup job %s is for pool %s: it backs up nothing any more", clean(j["id"]), clean(pool))})
		}
	}
}

// walkPoolAltered: guests and storages come into a pool or leave it.
func walkPoolAltered(w *walk, c change) {
	pool, leave := c.object.ID, c.detail["out"] != ""
	ids := words(c.detail["guests"])
	inv, ok := w.listing()
	if !ok {
		w.missing(c.object, "the list of guests", losesBackup, dim{ClassBlocked, gate.WeightNote, nil})
	}
	for _, id := range ids {
		g, there := inv.ByID(id)
		if !there {
			if !leave {
				for _, source := range w.madeOf(id) {
					w.copied(id, source, pool, aCopy)
				}
			}
			continue
		}
		o := object(gate.ObjectGuest, id)
		switch {
		case leave && g.Pool != pool:
			w.hit(gate.Hit{Class: ClassBlocked, Weight: gate.WeightNote, Object: o, Blocks: true, Text: title(g) + " is not in pool " + clean(pool)})
		case !leave && g.Pool != "" && g.Pool != pool:
			if c.detail["move"] == "" {
				w.hit(gate.Hit{Class: ClassBlocked, Weight: gate.WeightNote, Object: o, Blocks: true, Text: fmt.Sprintf("%s is in pool %s, and allow-move is not given", title(g), clean(g.Pool))})
			}
		}
	}
	w.uncovered(c.object, func(jobs []estate.Config) []estate.Config { return jobs }, func(g estate.Guest) estate.Guest {
		if slices.Contains(ids, g.ID) {
			if g.Pool = pool; leave {
				g.Pool = ""
			}
		}
		return g
	})
}
