package reach

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

// readBulk reads calls on many guests at once as one change for each of them: those that are named, else those that the
// server would choose.
func readBulk(w *walk, r gate.Request) ([]change, bool) {
	if r.Product != "pve" {
		return nil, false
	}
	node := r.Text("node")
	named := listOf(r, "vms")
	if len(named) == 0 {
		named = nil
	}
	c := change{}
	var chosen func(estate.Guest) bool
	here := func(g estate.Guest) bool { return node == "" || g.Node == node }
	switch r.Operation {
	case "POST /nodes/{node}/startall", "POST /cluster/bulk-action/guest/start":
		c.verb = starts
		chosen = func(g estate.Guest) bool {
			if !here(g) || g.Status == "running" || g.Template || node != "" && g.HA != "" && g.HA != "ignored" { // those are left to HA
				return false
			}
			conf, ok := w.s.Config(g)
			return !ok || on(r, "force") || conf.On("onboot")
		}
	case "POST /nodes/{node}/stopall", "POST /cluster/bulk-action/guest/shutdown":
		c.verb, c.detail = stops, map[string]string{"hard": bit(on(r, "force-stop"))}
		chosen = func(g estate.Guest) bool { return here(g) && g.Status != "stopped" && !g.Template }
	case "POST /nodes/{node}/suspendall", "POST /cluster/bulk-action/guest/suspend":
		c.verb, c.detail = stops, map[string]string{"suspend": "1", "todisk": bit(on(r, "to-disk")), "state": r.Text("statestorage")}
		chosen = func(g estate.Guest) bool {
			return here(g) && g.Status != "stopped" && !g.Template && g.Kind == estate.VM
		}
	case "POST /nodes/{node}/migrateall", "POST /cluster/bulk-action/guest/migrate":
		c.verb, c.detail = moves, map[string]string{"to": r.Text("target"), "online": "1", "restart": "1", "disks": bit(on(r, "with-local-disks"))}
		chosen = func(g estate.Guest) bool { return here(g) && g.Node != r.Text("target") }
	default:
		return nil, false
	}
	return w.each(c, r, named, chosen), true
}

// each makes one change for each guest of a set.
func (w *walk) each(c change, r gate.Request, named []string, chosen func(estate.Guest) bool) []change {
	inv, _ := w.listing()
	if w.unseen(estate.Config{"vmid": strings.Join(named, ",")}) {
		o := object(gate.ObjectSite, "")
		w.missing(o, "the list of guests", dim{ClassStops, gate.WeightDanger, outage}, dim{ClassStarts, gate.WeightCaution, nil}, dim{ClassMoves, gate.WeightCaution, nil}, losesDisk,
			dim{ClassHA, gate.WeightCaution, nil}, dim{ClassBlocked, gate.WeightNote, nil}, dim{ClassNetwork, gate.WeightCaution, nil}, noSpace, w.unjudged("qemu"), w.unjudged("lxc"),
			dim{ClassLosesData, gate.WeightDanger, []gate.Kind{gate.KindOutage, gate.KindData}})
	}
	var out []change
	for _, g := range inv.Guests {
		if named != nil && !slices.Contains(named, g.ID) || named == nil && !chosen(g) {
			continue
		}
		d := map[string]string{"node": g.Node, "type": g.Path()}
		for k, v := range c.detail {
			d[k] = v
		}
		if named == nil {
			d["named"] = "no"
			if c.verb != stops {
				class := map[verb]string{starts: ClassStarts, moves: ClassMoves}[c.verb]
				w.hit(gate.Hit{Class: class, Weight: gate.WeightCaution, Object: object(gate.ObjectGuest, g.ID), Text: title(g) + " is among those that the server chooses"})
			}
		}
		out = append(out, change{verb: c.verb, object: object(gate.ObjectGuest, g.ID), detail: d})
	}
	if len(out) == 0 {
		out = []change{{verb: nothing}}
	}
	return out
}

// readBackup reads a backup that is made now.
func readBackup(_ *walk, r gate.Request) ([]change, bool) {
	if r.Product != "pve" || r.Operation != "POST /nodes/{node}/vzdump" {
		return nil, false
	}
	return []change{{verb: creates, object: object(gate.ObjectArchive, ""), detail: map[string]string{"node": r.Text("node"), "vmid": strings.Join(listOf(r, "vmid"), ","), "all": bit(on(r, "all")),
		"pool": r.Text("pool"), "exclude": strings.Join(listOf(r, "exclude"), ","), "storage": r.Text("storage"), "mode": r.Text("mode"), "stop": bit(on(r, "stop")), "keep": r.Text("prune-backups"),
		"remove": bit(!off(r, "remove")), "fleecing": r.Text("fleecing")}}}, true
}

// walkBackup names who is backed up, who stands still for it, and what retention deletes.
func walkBackup(w *walk, c change) {
	d := maps.Clone(c.detail)
	mode, sure := w.modeOn(d["mode"], d["node"], d["storage"])
	o := object(gate.ObjectStorage, d["storage"])
	if d["storage"] == "" { // the node's own setting names it
		def, ok := w.vzdumpDefaults(d["node"], "")
		if !ok {
			w.missing(o, "where node "+d["node"]+" puts backups", dim{ClassSpace, gate.WeightCaution, nil}, dim{ClassLosesBackup, gate.WeightCaution, nil}, dim{ClassSetting, gate.WeightNote, nil})
		}
		d["storage"] = def["storage"]
		o.ID = d["storage"]
	}
	stopping := dim{ClassStops, gate.WeightNote, nil}
	chosen := d["all"] != "" || d["pool"] != "" || d["vmid"] == "" && d["exclude"] != ""
	halts := mode != "snapshot"
	if halts {
		stopping.worst = gate.WeightCaution
	}
	if halts && chosen {
		stopping = dim{ClassStops, gate.WeightDanger, outage}
	}
	job := estate.Config{"all": d["all"], "pool": d["pool"], "vmid": d["vmid"], "exclude": d["exclude"], "node": d["node"]}
	if job["vmid"] != "" {
		delete(job, "node")
	}
	inv, _ := w.listing()
	if w.unseen(job) {
		w.missing(o, "the list of guests", stopping, dim{ClassSetting, gate.WeightNote, nil}, dim{ClassBlocked, gate.WeightNote, nil}, dim{ClassGains, gate.WeightCaution, nil})
		w.unreadSelf(o, "whether a guest that castellan depends on is among those that are backed up")
		if mode == "stop" || !w.narrow(estate.PartResources) { // Proxmox backs up none that the caller may not see
			w.missing(o, "the list of guests", w.startDims("qemu", "lxc")...)
		}
	}
	var who []string
	var still, all []estate.Guest
	for _, g := range inv.Guests {
		if !covers(job, g) || g.Node != d["node"] {
			continue
		}
		who, all = append(who, g.ID), append(all, g)
		w.backedUpSelf(g, d["storage"])
		it := object(gate.ObjectGuest, g.ID)
		if g.Lock != "" {
			w.hit(gate.Hit{Class: ClassBlocked, Weight: gate.WeightNote, Object: it, Blocks: !chosen, Text: title(g) + " is locked (" + clean(g.Lock) + "): it is not backed up"})
		}
		if halts && w.runs(g) {
			h := gate.Hit{Class: ClassStops, Weight: gate.WeightCaution, Object: it, Unknown: !sure, Text: title(g) + " " + map[bool]string{true: "is shut down for the backup and started again", false: "stands still while it is backed up"}[mode == "stop"]}
			switch {
			case !sure:
				h.Text = title(g) + " may be shut down for the backup and started again: no mode is named, and that of node " + d["node"] + " could not be read"
			case d["mode"] == "":
				h.Text += ": no mode is named, and that of node " + d["node"] + " (vzdump.conf) is " + clean(mode)
			}
			if chosen {
				h.Weight, h.Kinds = gate.WeightDanger, outage
			}
			w.hit(h)
		}
		if mode == "stop" && w.runs(g) { // it is stopped and started
			w.begins(it, held{Guest: g}, beginning{node: g.Node, when: "when it is started again after the backup", ran: true})
		}
		if g.Kind == estate.VM && !w.runs(g) && g.Lock == "" {
			still = append(still, g)
		}
	}
	w.startedToRead(o, still, !chosen)
	if chosen {
		w.hit(gate.Hit{Class: ClassSetting, Weight: gate.WeightNote, Object: o, Text: fmt.Sprintf("backs up %s: %s", plural(len(who), "guest", "guests"), names(who))})
	}
	w.backedUpDisks(o, all, orText(d["storage"], "local"))
	if mode == "snapshot" {
		w.fleeces(d["fleecing"], d["node"], who)
	}
	if d["storage"] != "" {
		w.backupSpace(d["storage"], d["node"], who)
	}
	if d["keep"] == "" && d["remove"] != "" {
		w.deletes(o, d["storage"], []string{d["node"]}, "guests "+names(who), "afterwards")
	}
	if keep := d["keep"]; keep != "" && !strings.HasPrefix(keep, "keep-all=1") && d["remove"] != "" {
		w.hit(gate.Hit{Class: ClassLosesBackup, Weight: gate.WeightCaution, Object: o, Text: "older backups of guests " + names(who) + " on it beyond " + clean(keep) + " are deleted"})
	}
}

// startedToRead: to back up a VM that does not run, Proxmox starts it with its processor off. All else of a start is done:
// what waits comes into force, its hook script runs, and devices are taken from the node.
func (w *walk) startedToRead(of gate.Object, guests []estate.Guest, asked bool) {
	if len(guests) > most {
		w.missing(of, fmt.Sprintf("what the start of %d more guests brings that do not run", len(guests)-most), w.startDims("qemu")...)
		guests = guests[:most]
	}
	w.s.ReadPending(guests)
	known := w.s.Configs(guests)
	for _, g := range guests {
		o := object(gate.ObjectGuest, g.ID)
		if script := known[g.ID]["hookscript"]; script != "" {
			w.hit(gate.Hit{Class: ClassSetting, Weight: gate.WeightNote, Object: o, Text: title(g) + " does not run: Proxmox starts it for the backup with its processor off, and hook script " + clean(script) + " runs on the node as for any start"})
		}
		if !g.Template {
			w.begins(o, held{Guest: g}, beginning{node: g.Node, when: "for the backup, for which Proxmox starts it with its processor off", ran: false, still: true, asked: asked})
		}
	}
}

// backupSpace looks whether the target is nearly full; how large an archive gets is not known beforehand.
func (w *walk) backupSpace(storage, node string, who []string) {
	o := object(gate.ObjectStorage, storage)
	inv, _ := w.listing() // its gap was reported before
	i := slices.IndexFunc(inv.Storages, func(s estate.Storage) bool { return s.Name == storage && s.Node == node })
	if i < 0 || inv.Storages[i].Total <= 0 {
		w.missing(o, "the space on storage "+storage, dim{ClassSpace, gate.WeightCaution, nil})
		return
	}
	s := inv.Storages[i]
	if free := s.Total - s.Used; free < tight || free < s.Total/10 {
		text := fmt.Sprintf("storage %s has %s of %s free for the backup of guests %s", storage, gib(max(free, 0)), gib(s.Total), names(who))
		if w.onRoot(inv, s) {
			text += "; it is the root file system of " + node
		}
		w.hit(gate.Hit{Class: ClassSpace, Weight: gate.WeightCaution, Object: o, Text: text})
	}
}
