package reach

import (
	"fmt"
	"slices"
	"strings"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

// archive is one backup.
type archive struct {
	volume, guest, storage, node string
	made                         string // seconds
	protected                    bool
}

// archives lists the backups on all storages that are to be had; blind names those that could not be looked at.
func (w *walk) archives() (all []archive, blind []string) {
	inv, listed := w.listing()
	defs, ok := w.s.Storages()
	if !ok || !listed {
		blind = append(blind, "some storages")
	}
	for _, d := range defs {
		if !serves(d, "backup") || d.On("disable") {
			continue
		}
		seen := false
		for _, n := range inv.Nodes {
			if !onNode(d, n.Name) || seen && isShared(d) {
				continue
			}
			if n.Status != "online" {
				if !isShared(d) {
					blind = append(blind, d["storage"]+" of "+n.Name)
				}
				continue
			}
			rows, ok := w.s.Content(n.Name, d["storage"])
			if !ok {
				if !isShared(d) {
					blind = append(blind, d["storage"]+" of "+n.Name)
				}
				continue
			}
			seen = true
			for _, r := range rows {
				if r["content"] != "backup" {
					continue
				}
				a := archive{volume: r["volid"], guest: r["vmid"], storage: d["storage"], node: n.Name, made: r["ctime"], protected: r.On("protected")}
				if a.guest == "" {
					a.guest = estate.OwnerOf(a.volume)
				}
				all = append(all, a)
			}
		}
		if isShared(d) && !seen {
			blind = append(blind, d["storage"])
		}
	}
	return all, blind
}

// archivesOf are those of one guest, the newest first.
func archivesOf(all []archive, guest string) []archive {
	var out []archive
	for _, a := range all {
		if a.guest == guest {
			out = append(out, a)
		}
	}
	slices.SortStableFunc(out, func(a, b archive) int {
		if len(a.made) != len(b.made) {
			return len(b.made) - len(a.made)
		}
		return strings.Compare(b.made, a.made)
	})
	return out
}

// jobSelection says in short what a job backs up.
func jobSelection(j estate.Config) string {
	switch {
	case everyone(j) && j["exclude"] != "":
		return "all guests but " + clean(j["exclude"])
	case everyone(j):
		return "all guests"
	case j["pool"] != "":
		return "pool " + clean(j["pool"])
	}
	return "guests " + clean(j["vmid"])
}

// covers says whether a job backs up a guest.
func covers(j estate.Config, g estate.Guest) bool {
	if off1(j["enabled"]) || j["node"] != "" && j["node"] != g.Node {
		return false
	}
	switch {
	case slices.Contains(words(j["exclude"]), g.ID):
		return false
	case everyone(j):
		return true
	case j["pool"] != "":
		return slices.Contains(estate.Pools(g.Pool), j["pool"])
	}
	return slices.Contains(words(j["vmid"]), g.ID)
}

// everyone says whether a backup is of all guests: also where it names only those that it leaves out.
func everyone(j estate.Config) bool {
	return j.On("all") || j["exclude"] != "" && j["pool"] == "" && j["vmid"] == ""
}

// uncovered names the guests that some job backs up now and none does afterwards.
func (w *walk) uncovered(of gate.Object, after func(jobs []estate.Config) []estate.Config, moved func(estate.Guest) estate.Guest) {
	jobs, ok := w.s.Jobs()
	if !ok {
		w.missing(of, "the backup jobs", losesBackup)
	}
	inv, ok := w.listing()
	if !ok {
		w.missing(of, "the list of guests", losesBackup)
	}
	next := after(jobs)
	for _, g := range inv.Guests {
		then := g
		if moved != nil {
			then = moved(g)
		}
		before := slices.ContainsFunc(jobs, func(j estate.Config) bool { return covers(j, g) })
		if !before || slices.ContainsFunc(next, func(j estate.Config) bool { return covers(j, then) }) {
			continue
		}
		o := object(gate.ObjectGuest, g.ID)
		w.hit(gate.Hit{Class: ClassLosesBackup, Weight: gate.WeightCaution, Object: o, Way: []gate.Object{of, o}, Kinds: []gate.Kind{gate.KindGuard},
			Text: title(g) + " falls out of every backup job"})
	}
}

func walkJobGone(w *walk, c change) {
	w.uncovered(c.object, func(jobs []estate.Config) []estate.Config {
		return slices.DeleteFunc(slices.Clone(jobs), func(j estate.Config) bool { return j["id"] == c.object.ID })
	}, nil)
}

func walkJobAltered(w *walk, c change) {
	var was, is estate.Config
	w.uncovered(c.object, func(jobs []estate.Config) []estate.Config {
		out := slices.Clone(jobs)
		for i, j := range out {
			if j["id"] == c.object.ID {
				was, is = j, alteredJob(j, c.keys)
				out[i] = is
			}
		}
		return out
	}, nil)
	if is == nil { // it cannot be read, or is made by an earlier step
		is = estate.Config{"mode": "stop", "all": "1", "remove": "0"}
		if m := c.keys["mode"]; m != "" {
			is["mode"] = m
		}
		if _, ok := w.s.Jobs(); ok {
			is = estate.Config(c.keys)
		} else {
			w.missing(c.object, "the backup jobs, and so what its runs delete,", dim{ClassLosesBackup, gate.WeightCaution, []gate.Kind{gate.KindData}})
		}
	}
	w.jobPrune(c, was, is)
	w.jobOfSelf(c.object, was, is)
	if _, ok := c.keys["schedule"]; ok {
		was = nil // it comes at another time to all of them
	}
	w.jobHalts(c, was, is)
	w.jobReads(c, was, is)
	for _, key := range []string{"schedule", "mode", "storage"} {
		if v, ok := c.keys[key]; ok {
			w.hit(gate.Hit{Class: ClassSetting, Weight: gate.WeightNote, Object: c.object, Text: fmt.Sprintf("%s of job %s becomes %s", key, clean(c.object.ID), orNothing(v))})
		}
	}
}

// alteredJob is a job with other settings; choosing one selection drops the others.
func alteredJob(j estate.Config, keys map[string]string) estate.Config {
	next := estate.Config{}
	for k, v := range j {
		next[k] = v
	}
	for _, choice := range []string{"all", "vmid", "pool"} {
		if keys[choice] != "" && keys[choice] != "0" {
			for _, other := range []string{"all", "vmid", "pool"} {
				delete(next, other)
			}
		}
	}
	for k, v := range keys {
		if v == "" {
			delete(next, k)
			continue
		}
		next[k] = v
	}
	return next
}

func walkJobCreated(w *walk, c change) {
	w.jobPrune(c, nil, c.keys)
	inv, ok := w.listing()
	if !ok {
		w.missing(c.object, "the list of guests", dim{ClassSetting, gate.WeightNote, nil})
	}
	job := estate.Config(c.keys)
	w.jobHalts(c, nil, job)
	w.jobReads(c, nil, job)
	w.jobOfSelf(c.object, nil, job)
	var who []string
	for _, g := range inv.Guests {
		if covers(job, g) {
			who = append(who, g.ID)
		}
	}
	w.hit(gate.Hit{Class: ClassSetting, Weight: gate.WeightNote, Object: c.object, Text: fmt.Sprintf("backs up %s now: %s", plural(len(who), "guest", "guests"), names(who))})
}

// jobOfSelf: a job that comes to take a guest that castellan depends on, or to put it elsewhere.
func (w *walk) jobOfSelf(o gate.Object, was, is estate.Config) {
	inv, _ := w.listing()
	if w.unseen(is) {
		w.missing(o, "the list of guests, and so whether a backup holds disks of others,", dim{ClassGains, gate.WeightCaution, nil})
		w.unreadSelf(o, "whether a guest that castellan depends on is among those that are backed up")
	}
	var more []estate.Guest
	for _, g := range inv.Guests {
		if covers(is, g) && !(was != nil && covers(was, g) && was["storage"] == is["storage"]) {
			w.backedUpSelf(g, orText(is["storage"], "local"))
			more = append(more, g)
		}
	}
	w.backedUpDisks(o, more, orText(is["storage"], "local"))
}

// jobHalts names the guests that stand still at each run of a job as it is to be, and did not as it was.
func (w *walk) jobHalts(c change, was, is estate.Config) {
	if is["mode"] != "" && is["mode"] != "stop" && is["mode"] != "suspend" {
		return
	}
	chosen := everyone(is) || is["pool"] != ""
	h := gate.Hit{Class: ClassStops, Weight: gate.WeightCaution}
	if chosen {
		h.Weight, h.Kinds = gate.WeightDanger, outage
	}
	inv, ok := w.listing()
	if !ok {
		w.unread(ClassStops, h.Weight, c.object, "the list of guests", h.Kinds...)
		if is["mode"] != "suspend" {
			w.missing(c.object, "the list of guests", w.startDims("qemu", "lxc")...)
		}
	}
	var stopped []estate.Guest
	for _, g := range inv.Guests {
		if g.Template || !covers(is, g) || was != nil && covers(was, g) && was["mode"] == is["mode"] {
			continue
		}
		mode, sure := w.modeOn(is["mode"], g.Node, is["storage"])
		if mode == "snapshot" {
			continue
		}
		h.Object, h.Way, h.Unknown = object(gate.ObjectGuest, g.ID), []gate.Object{c.object, object(gate.ObjectGuest, g.ID)}, !sure
		h.Text = title(g) + " " + map[bool]string{true: "is shut down for the backup and started again", false: "stands still while it is backed up"}[mode == "stop"] + ", at each run of the job"
		switch {
		case !sure:
			h.Text = title(g) + " may be shut down and started again at each run of the job: it names no mode, and that of node " + g.Node + " could not be read"
		case is["mode"] == "":
			h.Text += ": it names no mode, and that of node " + g.Node + " (vzdump.conf) is " + clean(mode)
		}
		w.hit(h)
		if mode == "stop" && w.runs(g) {
			stopped = append(stopped, g)
		}
	}
	w.waitForJob(c, stopped)
}

// jobReads: a VM that does not run is started at each run of a job that comes to take it, to read its disks.
func (w *walk) jobReads(c change, was, is estate.Config) {
	inv, _ := w.listing()
	if w.unseen(is) {
		w.missing(c.object, "the list of guests", w.startDims("qemu")...)
	}
	var still []estate.Guest
	for _, g := range inv.Guests {
		if g.Kind == estate.VM && !g.Template && !w.runs(g) && covers(is, g) && (was == nil || !covers(was, g)) {
			still = append(still, g)
		}
	}
	w.startedToRead(c.object, still, false)
}

// waitForJob: what waits for the next start of a guest comes into force when a job stops and starts it.
func (w *walk) waitForJob(c change, guests []estate.Guest) {
	if len(guests) > most {
		what := fmt.Sprintf("what waits for the next start of %d more guests", len(guests)-most)
		w.missing(c.object, what, w.startDims("qemu", "lxc")...)
		guests = guests[:most]
	}
	w.s.ReadPending(guests)
	for _, g := range guests {
		w.begins(object(gate.ObjectGuest, g.ID), held{Guest: g}, beginning{node: g.Node, when: "when the job stops and starts it", ran: true})
	}
}

// jobPrune says what the runs of a job delete: its own retention beats that of its storage, and that beats its nodes'.
func (w *walk) jobPrune(c change, was, is estate.Config) {
	if keep, ok := c.keys["prune-backups"]; ok && retention(keep) != "" {
		w.hit(gate.Hit{Class: ClassLosesBackup, Weight: gate.WeightCaution, Object: c.object, Kinds: []gate.Kind{gate.KindData},
			Text: "each run deletes the older backups of its guests beyond " + clean(keep)})
	}
	if is["prune-backups"] != "" || off1(is["remove"]) {
		return
	}
	same := was != nil && was["prune-backups"] == "" && !off1(was["remove"]) && was["storage"] == is["storage"]
	inv, ok := w.listing()
	if !ok {
		w.unread(ClassLosesBackup, gate.WeightCaution, c.object, "on which nodes its guests are, and so what its runs delete,", gate.KindData)
	}
	var nodes []string
	for _, g := range inv.Guests {
		if covers(is, g) && !(same && covers(was, g)) {
			nodes = append(nodes, g.Node)
		}
	}
	if len(nodes) > 0 {
		w.deletes(c.object, is["storage"], nodes, "its guests", "at each run", gate.KindData)
	}
}

// walkArchiveFreed says what remains of a guest's backups.
func (w *walk) archiveFreed(volume string) {
	o := object(gate.ObjectArchive, volume)
	storage, name, _ := strings.Cut(volume, ":")
	guest := estate.OwnerOf(name)
	all, blind := w.archives()
	var left, unsure []archive
	for _, a := range all {
		if a.volume == volume && a.storage == storage {
			if a.guest != "" {
				guest = a.guest
			}
			if a.protected {
				w.hit(gate.Hit{Class: ClassBlocked, Weight: gate.WeightNote, Object: o, Blocks: true, Text: "the backup is protected: it is not deleted"})
			}
		}
	}
	// By another storage that shows the same place it is the same one.
	same := w.sameVolumes(storage, name, losesArchive)
	for _, a := range archivesOf(all, guest) {
		switch gone := max(same.answers(a.volume), w.freed(a.volume)); gone {
		case no:
			left = append(left, a)
		case perhaps:
			unsure = append(unsure, a)
		}
	}
	if len(blind) > 0 {
		w.missing(o, "what other backups lie on "+names(blind), dim{ClassBlocked, gate.WeightNote, nil})
	}
	switch {
	case guest == "":
		w.hit(gate.Hit{Class: ClassLosesBackup, Weight: gate.WeightDanger, Object: o, Unknown: true, Text: "whose backup it is cannot be told: it may be a guest's last"})
	case len(left) > 0:
		_, when := w.ago(left[0].made)
		if good, why := w.asWhole(archivesOf(all, guest), volume, left); !good {
			w.hit(gate.Hit{Class: ClassLosesBackup, Weight: gate.WeightDanger, Object: object(gate.ObjectGuest, guest), Unknown: true, Way: []gate.Object{o, object(gate.ObjectGuest, guest)},
				Text: fmt.Sprintf("it may be the last backup of guest %s with all that is in it: %s left, the newest of %s, but %s", guest, plural(len(left), "other is", "others are"), when, why)})
			return
		}
		w.hit(gate.Hit{Class: ClassLosesBackup, Weight: gate.WeightNote, Object: o, Text: fmt.Sprintf("%s of guest %s %s left, the newest of %s", plural(len(left), "other backup", "other backups"), guest, isAre(len(left)), when)})
	default:
		w.hit(gate.Hit{Class: ClassLosesBackup, Weight: gate.WeightDanger, Object: object(gate.ObjectGuest, guest), Unknown: len(blind)+len(unsure) > 0, Way: []gate.Object{o, object(gate.ObjectGuest, guest)},
			Text: "it is the last backup of guest " + guest + unlessOn(blind) + unlessTwo(unsure)})
	}
}

// mostCompared bounds how many archives of a guest are looked into.
const mostCompared = 5

// asWhole says whether one of those that are left holds what the one that goes holds: the disks, of the same guest. A number
// may have been another guest's before, and disks may be left out of backups.
func (w *walk) asWhole(all []archive, volume string, left []archive) (good bool, why string) {
	node := w.step.API.Text("node")
	if i := slices.IndexFunc(all, func(a archive) bool { return a.volume == volume }); i >= 0 {
		node = all[i].node
	}
	was, ok := w.archiveConfig(node, volume)
	if !ok {
		return false, "what this one holds could not be read"
	}
	for n, a := range left {
		if n == mostCompared {
			return false, why + fmt.Sprintf("; %d more were not looked into", len(left)-n)
		}
		it, ok := w.archiveConfig(a.node, a.volume)
		var says string
		switch gone := lacks(was.settings, it.settings); {
		case !ok:
			says = "what " + clean(a.volume) + " holds could not be read"
		case identity(was.settings) != identity(it.settings):
			says = clean(a.volume) + " is of another guest that had this number"
		case len(gone) > 0:
			says = clean(a.volume) + " has no data of " + names(gone)
		default:
			return true, ""
		}
		if n > 0 {
			why += "; "
		}
		why += says
	}
	return false, why
}

// lacks are the disks of which one archive has the data and the other has not.
func lacks(was, is estate.Config) (gone []string) {
	has := map[string]bool{}
	for _, d := range drives(is) {
		has[d.key] = archivedData(d)
	}
	for _, d := range drives(was) {
		if archivedData(d) && !has[d.key] {
			gone = append(gone, d.key)
		}
	}
	return gone
}

// archivedData says whether a backup takes the data of a volume: of a VM's disks all but those that say no, of a container's
// mount points those that say yes.
func archivedData(d drive) bool {
	base, _ := fold(d.key)
	switch says := property(d.text, "backup"); {
	case !d.inUse() || isVMState(d.key):
		return false
	case base == "mp":
		return says != "" && !off1(says)
	default:
		return says == "" || !off1(says)
	}
}

// identity tells a VM from another one that had its number before; of a container nothing does.
func identity(c estate.Config) string {
	return strings.ToLower(property(c["smbios1"], "uuid"))
}

func isAre(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

func unlessOn(blind []string) string {
	if len(blind) == 0 {
		return ""
	}
	return ", unless there is one on " + names(blind) + ", which could not be read"
}

// unlessTwo names archives that are others only where two storages are two places, which cannot be told.
func unlessTwo(unsure []archive) string {
	if len(unsure) == 0 {
		return ""
	}
	return ", unless " + clean(unsure[0].volume) + " lies in another place: the server of its storage is named otherwise, and may be the same"
}

// walkArchiveAltered: what loses its protection may be pruned.
func walkArchiveAltered(w *walk, c change) {
	w.hit(gate.Hit{Class: ClassLosesBackup, Weight: gate.WeightCaution, Object: c.object, Text: "the backup may be deleted from now on, also by the next pruning"})
}
