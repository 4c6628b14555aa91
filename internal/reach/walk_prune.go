package reach

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

// freed says whether an earlier step deletes a volume.
func (w *walk) freed(volume string) answer {
	out := no
	for _, s := range w.before {
		if s.API == nil || s.Target != w.step.Target {
			continue
		}
		changes, _ := readContent(w, *s.API)
		for _, c := range changes {
			switch {
			case c.verb != frees:
			case c.object.Kind == gate.ObjectVolume:
				storage, name, _ := strings.Cut(c.object.ID, ":")
				out = max(out, w.sameVolumes(storage, name).answers(volume))
			case c.object.Kind == gate.ObjectStorage:
				rows, ok := w.foretold(c)
				if !ok { // it may be any of them
					_, name, _ := strings.Cut(volume, ":")
					out = max(out, min(perhaps, w.sameVolumes(c.object.ID, name).answers(volume)))
				}
				out = max(out, w.pruned(rows)[volume])
			}
		}
	}
	return out
}

// foretold is what the product says that a pruning would do, archive by archive.
func (w *walk) foretold(c change) (rows []estate.Config, ok bool) {
	params := map[string]string{"node": c.detail["node"], "storage": c.object.ID}
	for param, key := range map[string]string{"prune-backups": "keep", "type": "type", "vmid": "vmid"} {
		if c.detail[key] != "" {
			params[param] = c.detail[key]
		}
	}
	return w.s.Rows(estate.PartContent, c.detail["node"]+"/"+c.object.ID, gate.Read{Operation: "GET /nodes/{node}/storage/{storage}/prunebackups", Params: params})
}

// pruned are the archives that go with a pruning, under each name of their place.
func (w *walk) pruned(rows []estate.Config) map[string]answer {
	gone := map[string]answer{}
	for _, r := range rows {
		if r["mark"] != "remove" {
			continue
		}
		storage, name, _ := strings.Cut(r["volid"], ":")
		same := w.sameVolumes(storage, name, losesArchive)
		for _, s := range same.perhaps {
			gone[s+":"+name] = max(gone[s+":"+name], perhaps)
		}
		for _, s := range same.sure {
			gone[s+":"+name] = yes
		}
	}
	return gone
}

// mostPruned bounds for how many guests it is compared what is left of their backups.
const mostPruned = 25

// walkPrune names what a pruning would delete, as the product itself foretells it, and whose last backup is among it.
func walkPrune(w *walk, c change) {
	rows, ok := w.foretold(c)
	if !ok {
		w.missing(c.object, "what a pruning of storage "+c.object.ID+" would delete", losesArchive)
		return
	}
	removed := map[string][]string{} // by guest
	for _, r := range rows {
		if r["mark"] == "remove" {
			removed[r["vmid"]] = append(removed[r["vmid"]], r["volid"])
			w.hit(gate.Hit{Class: ClassLosesBackup, Weight: gate.WeightCaution, Object: object(gate.ObjectArchive, r["volid"]), Matter: "goes", Text: "the backup of guest " + clean(r["vmid"]) + " is deleted"})
		}
	}
	gone := w.pruned(rows)
	all, blind := w.archives()
	compared := 0
	for _, id := range slices.Sorted(maps.Keys(removed)) {
		var left, unsure []archive
		of := archivesOf(all, id)
		for _, a := range of {
			switch max(gone[a.volume], w.freed(a.volume)) {
			case no:
				left = append(left, a)
			case perhaps:
				unsure = append(unsure, a)
			}
		}
		h := gate.Hit{Class: ClassLosesBackup, Weight: gate.WeightDanger, Object: object(gate.ObjectGuest, id), Way: []gate.Object{c.object, object(gate.ObjectGuest, id)}, Unknown: true}
		if len(left) == 0 {
			h.Unknown = len(blind)+len(unsure) > 0
			h.Text = "guest " + clean(id) + " keeps no backup at all" + unlessOn(blind) + unlessTwo(unsure)
			w.hit(h)
			continue
		}
		if compared++; compared > mostPruned {
			h.Text = fmt.Sprintf("what is left of the backups of guest %s was not looked into: %d guests lose some", clean(id), len(removed))
			w.hit(h)
			continue
		}
		for n, volume := range removed[id] {
			if n == mostCompared {
				h.Text = fmt.Sprintf("%d more backups of guest %s that are deleted were not looked into: something may be in one of them alone", len(removed[id])-n, clean(id))
				w.hit(h)
				break
			}
			if good, why := w.asWhole(of, volume, left); !good {
				h.Text = fmt.Sprintf("%s may be the last backup of guest %s with all that is in it: %s left, but %s", clean(volume), clean(id), plural(len(left), "other is", "others are"), why)
				w.hit(h)
				break
			}
		}
	}
}
