package reach

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

// A guest may have as a disk what lies below storages: a LUN on which a volume group is, a whole disk or a partition of its node.

// atPath names who has what a guest's drive leads to by a path of its node.
func (w *walk) atPath(g held, does string, d drive) {
	defs, ok := w.s.Storages()
	if !ok {
		w.missing(d.object(), "the definitions of storages", alsoLoses)
	}
	for _, v := range volumesAt(defs, d.volume) {
		x := d
		x.volume = v
		x.storage, _, _ = strings.Cut(v, ":")
		w.byName(g, does, x, w.names(g, d))
	}
	if isDevice(defs, d) {
		w.onDevice(g, does, d)
	}
}

// isDevice says whether a drive may be a disk or partition of its node, and is not a volume of a storage by the path of that.
func isDevice(defs []estate.Config, d drive) bool {
	return strings.HasPrefix(d.volume, "/dev/") && !d.medium && (strings.HasPrefix(d.volume, "/dev/disk/") || len(volumesAt(defs, d.volume)) == 0)
}

// sameDevice names guests of the node that have a device, or a part of it, by whichever path.
func (w *walk) sameDevice(g held, does string, d drive, rows []estate.Config) {
	if _, manager := w.v.(through); manager {
		return // as in ownToo
	}
	ours := deviceIn(rows, d.volume)
	all := w.kept.of(w, g.Node)
	for _, other := range all.known {
		if other.ID == g.ID || !other.mentions("/dev/") {
			continue
		}
		for _, theirs := range drives(other.config) {
			if theirs.storage != "" || theirs.medium {
				continue
			}
			if path.Clean(theirs.volume) == path.Clean(d.volume) || overlap(ours, deviceIn(rows, theirs.volume)) {
				w.sharedBy(g, does, d, theirs, other, yes, "")
			}
		}
	}
	w.blindTo(g, all.blind)
}

// onItsDisk names guests of the node that have as a disk what a guest's storages of the node lie on. As in ownToo what is kept is
// asked, and nothing where no guest of the node has a device of it.
func (w *walk) onItsDisk(g held, does string, own []drive, same []aliases, all roster) {
	var rows []estate.Config
	for _, other := range all.known {
		if other.ID == g.ID || other.Node != g.Node || !other.mentions("/dev/") {
			continue
		}
		for _, theirs := range drives(other.config) {
			for i, d := range own {
				at := slices.IndexFunc(same[i].defs, func(x estate.Config) bool { return x["storage"] == d.storage })
				if at < 0 || !isDevice(same[i].defs, theirs) || !slices.Contains([]string{"lvm", "lvmthin", "zfspool"}, same[i].defs[at]["type"]) || same[i].answers(theirs.volume) != no {
					continue
				}
				read := w.disksOf(w.kept.s, object(gate.ObjectGuest, g.ID), g.Node, theirs.volume, alsoLoses)
				if rows == nil {
					rows, _ = read("list", "include-partitions", "1", "skipsmart", "1")
				}
				blind := func(what string) { w.missing(object(gate.ObjectGuest, g.ID), what, alsoLoses) }
				for _, l := range w.lyingOn(g.Node, deviceIn(rows, theirs.volume), read, blind) {
					if l.sure && slices.Contains(same[i].sure, l.def["storage"]) {
						w.sharedBy(g, does, d, theirs, other, yes, rests(d, theirs, other))
					}
				}
			}
		}
	}
}

// rests says that another guest has what a volume's storage lies on.
func rests(d, theirs drive, other held) string {
	return fmt.Sprintf("%s of %s (%s) is what storage %s lies on, with %s", theirs.key, title(other.Guest), clean(theirs.volume), d.storage, d.volume)
}

// overlap says whether two devices are one, or one is a part of the other.
func overlap(a, b []estate.Config) bool {
	return slices.ContainsFunc(a, func(x estate.Config) bool {
		return slices.ContainsFunc(b, func(y estate.Config) bool { return x["devpath"] == y["devpath"] })
	})
}

// standing are the storages that a LUN of another storage holds.
func (w *walk) standing(g held, d drive, same aliases) {
	for _, def := range same.defs {
		if is := same.answers(def["base"]); def["base"] != "" && is != no {
			w.storageOn(g, d, def, is == yes, "it")
		}
	}
}

// storageOn hits a storage that lies on what a guest has as a disk, and the guests with disks there.
func (w *walk) storageOn(g held, d drive, def estate.Config, sure bool, where string) {
	name, how := def["storage"], "lies on "+where
	if !sure {
		how = "may lie on " + where
	}
	o := object(gate.ObjectStorage, name)
	say := func(it gate.Object, text string) {
		w.hit(gate.Hit{Class: ClassLosesData, Weight: gate.WeightDanger, Object: it, Unknown: !sure, Kinds: alsoLoses.kinds, Way: union([]gate.Object{object(gate.ObjectGuest, g.ID), d.object(), o, it}), Text: text})
	}
	say(o, fmt.Sprintf("storage %s %s: what %s writes to %s (%s) destroys it", name, how, title(g.Guest), d.key, clean(d.volume)))
	sees := func(x *estate.Guest) bool { return x.ID != g.ID && (x.Node == g.Node || reachedByAll(def)) }
	for other := range w.guests(o, sees, alsoLoses) {
		if !other.mentions(name + ":") {
			continue
		}
		for _, theirs := range drives(other.config) {
			if theirs.storage == name && !theirs.medium {
				say(object(gate.ObjectGuest, other.ID), fmt.Sprintf("%s of %s is on storage %s, which %s", theirs.key, title(other.Guest), name, how))
			}
		}
	}
}

// part is a volume group or pool with what it is made of, as Proxmox tells it.
type part struct {
	Name     string
	Children []part
}

func (p part) leaves() (out []string) {
	if len(p.Children) == 0 {
		return []string{p.Name}
	}
	for _, c := range p.Children {
		out = append(out, c.leaves()...)
	}
	return out
}

// parts reads what groups or pools of a node are made of.
func partsOf(rows []estate.Config) (out []part, ok bool) {
	for _, r := range rows {
		p := part{Name: r["name"]}
		if text := r["children"]; text != "" && json.Unmarshal([]byte(text), &p.Children) != nil {
			return nil, false
		}
		out = append(out, p)
	}
	return out, true
}

// disksOf reads about the disks of a node; what cannot be read counts as the worst.
func (w *walk) disksOf(s *estate.Survey, o gate.Object, node, of string, worst ...dim) func(op string, more ...string) ([]estate.Config, bool) {
	return func(op string, more ...string) ([]estate.Config, bool) {
		params := map[string]string{"node": node}
		for i := 0; i+1 < len(more); i += 2 {
			params[more[i]] = more[i+1]
		}
		rows, ok := s.Rows(estate.PartDisks, node, gate.Read{Operation: "GET /nodes/{node}/disks/" + op, Params: params})
		if !ok {
			w.missing(o, "what "+clean(of)+", a device of node "+node+", is used for", worst...)
		}
		return rows, ok
	}
}

// onDevice looks what a disk or partition of the node that a guest has as its own holds of the node: volume groups, pools, file
// systems, an OSD of Ceph.
func (w *walk) onDevice(g held, does string, d drive) {
	o := object(gate.ObjectGuest, g.ID)
	read := w.disksOf(w.s, o, g.Node, d.volume, alsoLoses)
	rows, ok := read("list", "include-partitions", "1", "skipsmart", "1")
	w.sameDevice(g, does, d, rows)
	if !ok {
		return
	}
	disk := deviceIn(rows, d.volume)
	if len(disk) == 0 {
		w.hit(gate.Hit{Class: ClassLosesData, Weight: gate.WeightDanger, Object: o, Unknown: true, Kinds: alsoLoses.kinds,
			Text: fmt.Sprintf("%s of %s is %s, which is not among the disks that node %s shows: whether it is another guest's, or holds a storage, cannot be told", d.key, title(g.Guest), clean(d.volume), g.Node)})
		return
	}
	for _, r := range disk {
		if id := r["osdid"]; id != "" && id != "-1" {
			w.hit(gate.Hit{Class: ClassLosesData, Weight: gate.WeightDanger, Object: object(gate.ObjectCeph, "osd."+id), Kinds: alsoLoses.kinds,
				Text: fmt.Sprintf("%s of %s (%s) is the disk of Ceph's osd.%s", d.key, title(g.Guest), clean(d.volume), id)})
		}
	}
	for _, l := range w.lyingOn(g.Node, disk, read, func(what string) { w.missing(o, what, alsoLoses) }) {
		w.storageOn(g, d, l.def, l.sure, clean(d.volume)+" of node "+g.Node)
	}
}

// lying is a storage that lies on a disk, for sure or perhaps.
type lying struct {
	def  estate.Config
	sure bool
}

// lyingOn finds the storages of a node on a disk of it, by what its volume groups and pools are made of.
func (w *walk) lyingOn(node string, disk []estate.Config, read func(op string, more ...string) ([]estate.Config, bool), blind func(what string)) (out []lying) {
	var names, uses []string
	for _, r := range disk {
		names = append(names, path.Base(r["devpath"]))
		if link := r["by_id_link"]; link != "" {
			names = append(names, path.Base(link))
		}
		uses = append(uses, r["used"])
		if r.On("mounted") {
			uses = append(uses, "mounted")
		}
	}
	defs, ok := w.s.Storages()
	if !ok {
		blind("the definitions of storages")
	}
	holds := func(sure bool, which func(def estate.Config) bool) {
		for _, def := range defs {
			had := slices.ContainsFunc(out, func(l lying) bool { return l.def["storage"] == def["storage"] && (l.sure || !sure) })
			if onNode(def, node) && which(def) && !had {
				out = append(out, lying{def, sure})
			}
		}
	}
	if slices.Contains(uses, "LVM") {
		rows, ok := read("lvm")
		roots, clear := partsOf(rows)
		if ok && !clear {
			blind("the volume groups of node " + node)
		}
		for _, root := range roots {
			for _, vg := range append(root.Children, root) { // the groups are children of one root
				if vg.Name != "" && slices.ContainsFunc(vg.leaves(), func(l string) bool { return slices.Contains(names, path.Base(l)) }) {
					holds(true, func(def estate.Config) bool { return def["vgname"] == vg.Name })
					holds(false, folderOfNode) // which may be on a volume of the group, as the node's own system is
				}
			}
		}
	}
	if slices.Contains(uses, "ZFS") {
		pools, _ := read("zfs")
		for _, p := range pools {
			name := p["name"]
			detail, ok := read("zfs/{name}", "name", name)
			tree, clear := partsOf(detail)
			if ok && !clear {
				blind("what pool " + clean(name) + " of node " + node + " is made of")
			}
			if !slices.ContainsFunc(tree, func(t part) bool {
				return slices.ContainsFunc(t.leaves(), func(l string) bool { return sameDisk(disk, names, l) })
			}) {
				continue
			}
			holds(true, func(def estate.Config) bool {
				return def["type"] == "zfspool" && (def["pool"] == name || strings.HasPrefix(def["pool"], name+"/"))
			})
			holds(false, folderOfNode)
		}
	}
	if slices.Contains(uses, "mounted") {
		holds(false, folderOfNode)
	}
	return out
}

// folderOfNode says whether a storage is a folder in a file system of the node: no read tells in which.
func folderOfNode(def estate.Config) bool {
	return (def["type"] == "dir" || def["type"] == "btrfs") && !isShared(def)
}

// deviceUsers names the guests of a node that have a device of it, or a part of one, as a disk of theirs.
func (w *walk) deviceUsers(o gate.Object, node string, rows, disk []estate.Config) {
	defs, _ := w.s.Storages() // its gap is reported with what lies on the disk
	for g := range w.guests(o, func(x *estate.Guest) bool { return x.Node == node }, losesDisk) {
		if !g.mentions("/dev/") {
			continue
		}
		for _, d := range drives(g.config) {
			if !strings.HasPrefix(d.volume, "/dev/") || d.medium {
				continue
			}
			theirs := deviceIn(rows, d.volume)
			unclear := len(theirs) == 0 && len(volumesAt(defs, d.volume)) == 0
			if !unclear && !overlap(disk, theirs) {
				continue
			}
			it := object(gate.ObjectGuest, g.ID)
			h := gate.Hit{Class: ClassLosesDisk, Weight: gate.WeightDanger, Object: it, Kinds: outage, Unknown: unclear, Way: []gate.Object{o, d.object(), it},
				Text: fmt.Sprintf("%s has it as %s (%s)", title(g.Guest), d.key, clean(d.volume))}
			if unclear {
				h.Text = fmt.Sprintf("%s has %s as %s; whether that is it cannot be told", title(g.Guest), clean(d.volume), d.key)
			}
			w.hit(h)
		}
	}
}

// deviceIn finds a device among the disks that a node shows, with its partitions; of a partition it alone.
func deviceIn(rows []estate.Config, at string) (out []estate.Config) {
	at = path.Clean(at)
	for _, r := range rows {
		if r["devpath"] == at || r["by_id_link"] == at {
			return append(slices.DeleteFunc(slices.Clone(rows), func(p estate.Config) bool { return p["parent"] != r["devpath"] || r["devpath"] == "" }), r)
		}
	}
	link, ok := strings.CutPrefix(at, "/dev/disk/by-id/")
	if !ok {
		return nil
	}
	whole := partition.ReplaceAllString(link, "")
	for _, r := range rows { // a disk has several links, of which one is shown; the others tell its serial number or WWN
		if r["parent"] != "" || !tells(whole, r["serial"]) && !tells(whole, strings.TrimPrefix(r["wwn"], "0x")) {
			continue
		}
		number := strings.TrimPrefix(link[len(whole):], "-part")
		if number == "" {
			return deviceIn(rows, r["devpath"])
		}
		for _, p := range rows {
			if p["parent"] == r["devpath"] && (p["devpath"] == r["devpath"]+number || p["devpath"] == r["devpath"]+"p"+number) {
				return []estate.Config{p}
			}
		}
		return nil
	}
	return nil
}

// tells says whether a link of a disk holds what is told of it; short ones tell nothing.
func tells(link, number string) bool {
	number = strings.ReplaceAll(strings.TrimSpace(number), " ", "_")
	return len(number) >= 6 && number != "unknown" && strings.Contains(strings.ToLower(link), strings.ToLower(number))
}

// sameDisk says whether a part of a pool is one of a disk's devices, by whichever link the pool has it.
func sameDisk(disk []estate.Config, names []string, leaf string) bool {
	base := path.Base(leaf)
	if slices.Contains(names, base) {
		return true
	}
	whole := partition.ReplaceAllString(base, "")
	for _, r := range disk {
		if r["parent"] == "" && (slices.Contains(names, whole) || tells(whole, r["serial"]) || tells(whole, strings.TrimPrefix(r["wwn"], "0x"))) {
			return true
		}
	}
	return false
}
