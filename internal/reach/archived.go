package reach

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"castellan/internal/estate"
	"castellan/internal/gate"
	"castellan/internal/regex"
)

// archived is what an archive holds beside its data.
type archived struct {
	settings estate.Config   // the first of readings
	readings []estate.Config // the settings that come into force with it: more than one where it cannot be told which do
	unread   bool            // there are more
	mapped   []string        // the disks of which it has the data: all others that it names are taken as they are named
	odd      []string        // the keys whose value is not one word: a restore of a VM writes those lines as they are
	kept     []keptState     // what lies ready in it to be gone back to
}

// keptState is a section of an archive's settings that is not in force: a snapshot's, or one of Proxmox's own.
type keptState struct {
	name     string
	settings estate.Config
}

var (
	rawLine     = &regex.Lazy{Expr: `^(lxc\.[a-z0-9_.-]+)(?::|\s*=)\s*(.*?)\s*$`}
	settingLine = &regex.Lazy{Expr: `^([a-z][a-z0-9_-]*):\s*(.*?)\s*$`}
	// mapLine is the one form that Proxmox takes. What is blank to Perl and not to us must not pass for part of a word, so
	// a word is what both take for one.
	mapLine = &regex.Lazy{Expr: `^#qmdump#map:([!-~]+):([!-~]+):([!-~]*):([!-~]*):$`}
	oneWord = &regex.Lazy{Expr: `^[!-~]*$`}
	// Headers of sections: of a snapshot, of what waits, and those of Proxmox's own in the settings of a VM. What is none of
	// them belongs to the section before it.
	stateHeader   = &regex.Lazy{Expr: `^\[[A-Za-z][A-Za-z0-9_-]+\][\t ]*$`}
	waitingHeader = &regex.Lazy{Expr: `(?i)^\[(pve:)?pending\][\t ]*$`}
	specialHeader = &regex.Lazy{Expr: `^\[special:(cloudinit|fleecing)\][\t ]*$`}
)

// remade says whether a restore of a VM looks at a key's volume at all: only then does it make it anew where the archive
// has its data, and leave it out where it is said to have none. Every other line comes into the guest as it is.
func (a archived) remade(key string) bool {
	switch base, number := fold(key); base {
	case "ide", "scsi", "virtio", "sata", "efidisk", "tpmstate":
		return number != "" && !slices.Contains(a.odd, key)
	}
	return false
}

// reseeded says whether a restore of a VM makes a cloud-init image anew.
func (a archived) reseeded(d drive) bool {
	switch base, _ := fold(d.key); base {
	case "ide", "scsi", "sata":
		return d.seed && a.remade(d.key)
	}
	return false
}

// reseeds says whether a line has a cloud-init image under a key: what a guest has there when a VM is restored over it goes for
// that. Proxmox looks at all lines for it, whichever section they stand in.
func (a archived) reseeds(key string) bool {
	has := func(c estate.Config) bool {
		d, ok := driveOf(key, c[key])
		return ok && a.reseeded(d)
	}
	return slices.ContainsFunc(a.readings, has) || slices.ContainsFunc(a.kept, func(k keptState) bool { return has(k.settings) })
}

// archiveConfig reads the guest settings that an archive holds.
func (w *walk) archiveConfig(node, volume string) (archived, bool) {
	if !strings.Contains(volume, ":") || strings.HasPrefix(volume, "/") {
		return archived{}, false
	}
	a, err := w.v.Read(w.ctx, w.step.Target, gate.Read{Operation: "GET /nodes/{node}/vzdump/extractconfig", Params: map[string]string{"node": node, "volume": volume}})
	var text string
	if err != nil || json.Unmarshal(a.Data, &text) != nil {
		return archived{}, false
	}
	out := parseArchived(text, strings.Contains(volume, "vzdump-qemu-") || strings.Contains(volume, ":backup/vm/"))
	return out, len(out.settings) > 0
}

// mostReadings bounds in how many ways one archive's settings are read.
const mostReadings = 16

// parseArchived reads settings as Proxmox does that writes them into the new guest line by line: an archive may be
// anybody's. Where a key stands more than once, any of its values may come into force: each is in one of the readings. So it
// is with what stands below a header that is no snapshot's: what waits for the next start comes into force with it, and below
// what is no header at all to one version of Proxmox the guest's own settings go on. Nothing is taken for deleted. A line
// that is no setting is kept under a name that no setting has, so that it counts as the worst.
func parseArchived(text string, vm bool) archived {
	out := archived{}
	values := map[string][]string{} // of what comes into force, or may
	own := func(key, value string) {
		switch old := values[key]; {
		case strings.HasPrefix(key, "lxc.") && len(old) > 0:
			if !slices.Contains(strings.Split(old[0], "; "), value) {
				old[0] += "; " + value
			}
		case !slices.Contains(old, value):
			values[key] = append(old, value)
		}
	}
	var state estate.Config // of the section, where it is one to go back to
	inForce, waits := true, false
	set := func(key, value string) {
		if inForce && (key != "delete" || !waits) {
			own(key, value)
		}
		if state != nil {
			if old, again := state[key]; again && old != value {
				key += " (again)"
			}
			state[key] = value
		}
	}
	for line := range strings.SplitSeq(text, "\n") {
		if m := mapLine.FindStringSubmatch(line); m != nil {
			out.mapped = append(out.mapped, m[1])
		}
		line = strings.TrimRight(line, "\r")
		if strings.HasPrefix(line, "#") || strings.TrimSpace(line) == "" {
			continue
		}
		if rest, ok := strings.CutPrefix(line, "["); ok {
			name, _, _ := strings.Cut(rest, "]")
			waits = waitingHeader.MatchString(line)
			ownHeader := vm && specialHeader.MatchString(line)
			inForce = waits || !ownHeader && !stateHeader.MatchString(line)
			if state = nil; !waits && (!ownHeader || name != "special:cloudinit") { // that tells what the last image was made of
				state = estate.Config{}
				out.kept = append(out.kept, keptState{name, state})
			}
			continue
		}
		if m := rawLine.FindStringSubmatch(line); m != nil {
			set(m[1], m[2])
			continue
		}
		m := settingLine.FindStringSubmatch(line)
		if m == nil {
			set(line, "a line that is no setting")
			continue
		}
		if !oneWord.MatchString(m[2]) {
			out.odd = append(out.odd, m[1])
		}
		set(m[1], m[2])
	}
	most := 1
	for _, all := range values {
		most = max(most, len(all))
	}
	out.unread = most > mostReadings
	for i := range min(most, mostReadings) {
		reading := make(estate.Config, len(values))
		for key, all := range values {
			reading[key] = all[min(i, len(all)-1)]
		}
		out.readings = append(out.readings, reading)
	}
	out.settings = out.readings[0]
	return out
}

// keptStates judges what an archive has ready to be gone back to, as if somebody did: Proxmox puts none in, so whoever did
// wants it used.
func (w *walk) keptStates(c change, b brought, was held, a archived) {
	g := held{Guest: was.Guest, config: was.config}
	g.ID = c.object.ID
	for i, k := range a.kept {
		if i == mostKept {
			w.missing(c.object, fmt.Sprintf("%d more snapshots that the archive names", len(a.kept)-i), w.unjudged(c.detail["type"]))
			return
		}
		if strings.HasPrefix(k.name, "special:") {
			w.hit(gate.Hit{Class: ClassSetting, Weight: gate.WeightDanger, Object: c.object, Kinds: []gate.Kind{gate.KindHost, gate.KindData},
				Text: fmt.Sprintf("the archive brings section %s, in which Proxmox notes volumes of the guest for itself, and deletes some: %s", clean(k.name), names(valuesIn(k.settings)))})
			continue
		}
		name := "snapshot " + clean(k.name)
		b.then, b.how, b.but = withoutVolumes(k.settings), "comes with the archive, and into force with a rollback to its "+name, nil
		w.bring(b)
		for _, d := range drives(k.settings) {
			if d.storage == "" || d.medium || slices.Contains([]string{g.ID, estate.OwnerOf(c.detail["archive"])}, d.owner()) {
				continue
			}
			w.hit(gate.Hit{Class: ClassSetting, Weight: gate.WeightCaution, Object: d.object(), Way: []gate.Object{c.object, d.object()},
				Text: fmt.Sprintf("the archive's %s names %s as %s: with a rollback to it the guest gets what lies there", name, clean(d.volume), d.key)})
			w.alsoOf(g, "", d)
			w.hasDataOf(g, d, c.detail["pool"])
		}
	}
}

func valuesIn(c estate.Config) (out []string) {
	for _, key := range slices.Sorted(maps.Keys(c)) {
		out = append(out, clean(key)+": "+shown(key, c[key]))
	}
	return out
}

// mostKept bounds how many states of one archive are judged one by one.
const mostKept = 50

// carriedDisks: a disk that an archive of a VM names without having its data is not made anew: the guest gets the volume
// of that name, whosever it is. Those of a container are all made anew.
func (w *walk) carriedDisks(c change, was held, a archived) {
	if c.detail["type"] != "qemu" {
		return
	}
	g := held{Guest: was.Guest, config: was.config}
	g.ID, g.Node = c.object.ID, orText(g.Node, c.detail["node"])
	for _, d := range drives(a.settings) {
		remade := a.remade(d.key)
		switch {
		case isVMState(d.key) && slices.Contains([]string{g.ID, estate.OwnerOf(c.detail["archive"])}, d.owner()):
		case d.unused || d.storage == "" && remade || d.medium:
		case remade && (property(d.text, "backup") == "0" || slices.Contains(a.mapped, d.key)):
		case a.reseeded(d) && slices.Contains([]string{"", g.ID, estate.OwnerOf(c.detail["archive"])}, d.owner()):
		case d.owner() == g.ID && w.names(g, d):
		default:
			w.hit(gate.Hit{Class: ClassSetting, Weight: gate.WeightCaution, Object: d.object(), Way: []gate.Object{c.object, d.object()},
				Text: fmt.Sprintf("the archive names %s as %s and does not say that it has its data: the guest gets what lies there now", clean(d.volume), d.key)})
			w.alsoOf(g, "", d)
			w.hasDataOf(g, d, c.detail["pool"])
		}
	}
}

// archivedOthers: an archive holds the disks of others that the guest had when it was made.
func (w *walk) archivedOthers(c change, was held, from string, a archived) {
	made := copyGuest(c.object.ID, estate.Guest{Kind: kindOf(c.detail["type"])})
	for _, d := range drives(a.settings) {
		by := d.owner()
		has := archivedData(d) && (c.detail["type"] != "qemu" || slices.Contains(a.mapped, d.key) && a.remade(d.key))
		if !has || by == "" || by == from || by == made.ID || w.names(was, d) {
			continue
		}
		w.copyHolds(made, d.volume, c.detail["pool"], owner{guest: w.known(by), is: yes}, object(gate.ObjectArchive, c.detail["archive"]))
	}
}

// leftBehind: a restored VM takes in, as unused disks, what lies under its number on the node's storages for images and is named
// by no settings: what an earlier guest of the number left. A restored container does not, nor does a guest that is created.
func (w *walk) leftBehind(c change, was held, over bool) {
	if c.detail["type"] != "qemu" {
		return
	}
	takes := dim{ClassGains, gate.WeightCaution, nil}
	id, node := c.object.ID, c.detail["node"]
	defs, ok := w.s.Storages()
	if !ok {
		w.missing(c.object, "the definitions of storages, and so what lies there under the number "+id+",", takes)
	}
	if over && was.config == nil {
		w.missing(c.object, "the settings of guest "+id+", and so what else lies under its number,", takes)
		return
	}
	var known []aliases
	for _, d := range drives(was.config) {
		storage, name, _ := strings.Cut(d.volume, ":")
		known = append(known, w.sameVolumes(storage, name, takes))
	}
	for _, def := range defs {
		if !onNode(def, node) || !serves(def, "images") {
			continue
		}
		at := object(gate.ObjectStorage, def["storage"])
		rows, ok := w.s.Content(node, def["storage"])
		if !ok {
			w.missing(at, "what lies on storage "+def["storage"]+" under the number "+id, takes)
		}
		for _, r := range rows {
			if r["vmid"] != id || r["content"] != "images" && r["content"] != "rootdir" || strings.Contains(r["volid"], "vm-"+id+"-state-") {
				continue
			}
			is := w.freed(r["volid"])
			for _, k := range known {
				is = max(is, k.answers(r["volid"]))
			}
			if is == yes {
				continue
			}
			storage, name, _ := strings.Cut(r["volid"], ":")
			known = append(known, w.sameVolumes(storage, name, takes)) // by another storage it is the same
			o := object(gate.ObjectVolume, r["volid"])
			h := gate.Hit{Class: ClassGains, Weight: gate.WeightCaution, Object: o, Way: []gate.Object{at, o, c.object},
				Text: fmt.Sprintf("%s lies on storage %s under the number %s and no settings name it: the restored guest gets it as an unused disk, with what an earlier guest of that number left on it", clean(r["volid"]), def["storage"], id)}
			is.unsure(&h)
			w.hit(h)
		}
	}
}
