package reach

import (
	"fmt"
	"slices"
	"strings"

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
		if !leave && g.Pool != pool {
			w.comesWith(g, pool)
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
	if !leave {
		w.jobsOfPool(pool, ids)
	}
}

// jobsOfPool: what backup jobs of a pool, or of one above it, do to the guests that come into it.
func (w *walk) jobsOfPool(pool string, ids []string) {
	o := object(gate.ObjectPool, pool)
	takes := append(w.startDims("qemu", "lxc"), dim{ClassStops, gate.WeightCaution, nil})
	jobs, ok := w.s.Jobs()
	if !ok {
		w.missing(o, "the backup jobs, and so what they do to the guests that come into the pool,", takes...)
		w.unreadSelf(o, "whether a backup job takes a guest that castellan depends on")
	}
	inv, _ := w.listing() // its gap was reported before
	for _, j := range jobs {
		if off1(j["enabled"]) || !slices.Contains(estate.Pools(pool), j["pool"]) {
			continue
		}
		var come []string
		for _, id := range ids {
			switch g, there := inv.ByID(id); {
			case !there && !w.made(id):
				w.missing(object(gate.ObjectGuest, id), "guest "+clean(id)+", which backup job "+clean(j["id"])+" comes to take,", takes...)
				w.unreadSelf(object(gate.ObjectGuest, id), "whether castellan depends on guest "+clean(id))
			case there && !slices.Contains(estate.Pools(g.Pool), j["pool"]):
				come = append(come, id)
			}
		}
		if len(come) == 0 {
			continue
		}
		c, job := change{object: object(gate.ObjectJob, j["id"])}, with(j, map[string]string{"pool": "", "vmid": strings.Join(come, ",")})
		w.jobHalts(c, nil, job)
		w.jobReads(c, nil, job)
		w.jobOfSelf(c.object, nil, job)
	}
}

// comesWith: who has rights on the pool has them on the disks of others that a guest brings into it.
func (w *walk) comesWith(g estate.Guest, pool string) {
	if g.NodeOff { // nobody can ask there, and nothing is made heavier for it
		w.out.Unread = union(w.out.Unread, []string{"whether " + title(g) + ", on a node that is off, has disks of other guests"})
		return
	}
	it, _ := w.one(g.ID, copyGains)
	for _, d := range othersDisks(it) {
		for _, x := range w.whose(d.volume, g.ID) {
			w.copied(g.ID, x.guest.ID, pool, d.volume)
		}
	}
}
