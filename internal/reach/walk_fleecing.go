package reach

import (
	"fmt"
	"slices"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

// fleeces: while a VM is backed up, what it overwrites is kept on a storage of its own, which may need the space of its disks
// there; one guest after the other.
func (w *walk) fleeces(fleecing, node string, who []string) {
	p := properties(fleecing)
	if on := (estate.Config{"enabled": orText(p["enabled"], p[""])}); !on.On("enabled") {
		return
	}
	storage := p["storage"]
	o := object(gate.ObjectStorage, storage)
	if storage == "" { // Proxmox takes the storage that the disk is on
		o = object(gate.ObjectNode, node)
	}
	most, whose := map[string]int64{}, map[string]string{}
	for g := range w.guests(o, func(g *estate.Guest) bool { return g.Kind == estate.VM && slices.Contains(who, g.ID) }, noSpace, dim{ClassBlocked, gate.WeightNote, nil}) {
		need := map[string]int64{}
		for _, d := range drives(g.config) {
			if d.inUse() && property(d.text, "backup") != "0" {
				need[orText(storage, d.storage)] += d.size
			}
		}
		for at, size := range need {
			if size >= most[at] {
				most[at], whose[at] = size, title(g.Guest)
			}
		}
	}
	for at, size := range most {
		w.takes(at, node, size, fmt.Sprintf("what %s overwrites while it is backed up (fleecing)", whose[at]))
	}
}

// backedUpSelf: a backup of a guest that castellan depends on holds its keys and records, for all who may read it there.
func (w *walk) backedUpSelf(g estate.Guest, storage string) {
	own := w.ownGuest(g)
	if own == no {
		return
	}
	at, it := "/storage/"+storage, "/vms/"+g.ID
	r, ok := w.readRights()
	h := gate.Hit{Class: ClassSelf, Weight: gate.WeightDanger, Object: object(gate.ObjectGuest, g.ID), Way: []gate.Object{object(gate.ObjectStorage, storage)}, Unknown: own == perhaps || !ok, Kinds: []gate.Kind{gate.KindGoverns}}
	var others []string
	for _, id := range r.everybody() {
		if id == superuser || id == w.ownUser() || id == w.s.Target().User {
			continue
		}
		if on := r.on(id, at); on["Datastore.Allocate"] || on["Datastore.AllocateSpace"] && r.on(id, it)["VM.Backup"] {
			others = append(others, clean(id))
		}
	}
	def, known := w.storage(storage)
	switch {
	case !ok:
		h.Text = fmt.Sprintf("a backup of %s, which castellan depends on, comes to storage %s; who may read it there could not be read", title(g), clean(storage))
	case len(others) > 0:
		h.Text = fmt.Sprintf("a backup of %s, which castellan depends on, comes to storage %s, where others may read it: %s", title(g), clean(storage), names(others))
	case !known || isShared(def) && (def["type"] != "pbs" || def["encryption-key"] == ""):
		h.Unknown = h.Unknown || !known
		h.Text = fmt.Sprintf("a backup of %s, which castellan depends on, comes to storage %s unencrypted: whoever may read there, outside of this site too, has its keys", title(g), clean(storage))
	default:
		return
	}
	w.hit(h)
}
