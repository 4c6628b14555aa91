package reach

import (
	"path"
	"slices"
	"strings"

	"castellan/internal/estate"
	"castellan/internal/gate"
	"castellan/internal/regex"
)

// aliases are the ways in which one volume is named: through each storage that shows its place, as a linked clone with its
// base before it or without, and by its path on a node.
type aliases struct {
	sure, perhaps []string // storages; of the second ones it cannot be told whether they are the same place
	leaf          string   // the volume's own name there
	texts         []string // one of them stands in whatever names it
	apart         bool     // each node has its own of these storages
	defs          []estate.Config
	lun           *aliases // what the storage itself lies on, where that is a volume too
}

// sameVolumes are the ways in which a volume of a storage is named.
func (w *walk) sameVolumes(storage, name string, dims ...dim) aliases {
	defs, ok := w.s.Storages()
	if !ok {
		w.missing(object(gate.ObjectVolume, storage+":"+name), "the definitions of storages", dims...)
	}
	a := aliases{sure: []string{storage}, leaf: leafOf(name), defs: defs}
	last := strings.TrimSuffix(path.Base(a.leaf), ".raw") // which btrfs leaves out of a path
	a.texts = []string{last}
	if strings.Contains(last, "-") {
		a.texts = append(a.texts, mapped(last))
	}
	for _, d := range defs {
		if d["storage"] != storage {
			continue
		}
		a.apart = !reachedByAll(d)
		if on, lun, ok := strings.Cut(d["base"], ":"); ok && on != storage {
			l := lunOf(defs, on, lun)
			a.lun = &l
		}
		for _, t := range twins(defs, d) {
			if t.sure {
				a.sure = append(a.sure, t.name)
			} else {
				a.perhaps = append(a.perhaps, t.name)
			}
			i := slices.IndexFunc(defs, func(x estate.Config) bool { return x["storage"] == t.name })
			a.apart = a.apart && !reachedByAll(defs[i])
		}
	}
	return a
}

// lunOf are the ways in which the LUN is named that a storage lies on.
func lunOf(defs []estate.Config, storage, name string) aliases {
	leaf := leafOf(name)
	a := aliases{sure: []string{storage}, leaf: leaf, texts: []string{leaf}, defs: defs}
	for _, d := range defs {
		if d["storage"] != storage {
			continue
		}
		for _, t := range twins(defs, d) {
			a.sure = append(a.sure, t.name) // a LUN's own name is one everywhere
		}
	}
	return a
}

// below says whether a text names what the volume's storage lies on.
func (a aliases) below(volume string) answer {
	if a.lun == nil {
		return no
	}
	return a.lun.answers(volume)
}

// allTexts are texts of which one stands in whatever names the volume, or what its storage lies on.
func (a aliases) allTexts() []string {
	if a.lun == nil {
		return a.texts
	}
	return slices.Concat(a.texts, a.lun.texts)
}

// reachedByAll says whether several nodes have the same of a storage, also where it is not marked so: a volume group on a LUN.
func reachedByAll(def estate.Config) bool { return isShared(def) || def["base"] != "" }

// answers says whether a text names the volume.
func (a aliases) answers(volume string) answer {
	return a.match(volume, func(name string) bool { return leafOf(name) == a.leaf })
}

// beside says whether a text names anything on the volume's storage.
func (a aliases) beside(volume string) answer {
	return a.match(volume, func(string) bool { return true })
}

// under says whether a text names a linked clone of the volume.
func (a aliases) under(volume string) answer {
	return a.match(volume, func(name string) bool {
		for i := strings.LastIndexByte(name, '/'); i > 0; i = strings.LastIndexByte(name[:i], '/') {
			if base := name[:i]; baseName.MatchString(base) && leafOf(base) == a.leaf {
				return true
			}
		}
		return false
	})
}

func (a aliases) match(volume string, is func(name string) bool) answer {
	storage, name, named := strings.Cut(volume, ":")
	switch {
	case strings.HasPrefix(volume, "/"):
		out := no
		for _, v := range volumesAt(a.defs, volume) {
			out = max(out, a.match(v, is))
		}
		return out
	case !named || !is(name):
		return no
	case slices.Contains(a.sure, storage):
		return yes
	case slices.Contains(a.perhaps, storage):
		return perhaps
	}
	return no
}

var (
	baseName   = &regex.Lazy{Expr: `(^|/)base(vol)?-[1-9][0-9]*-[^/]*$`}
	lunAddress = &regex.Lazy{Expr: `^[0-9]+\.[0-9]+\.[0-9]+\.`}
)

// leafOf is a volume's own name on its storage: of a linked clone that after its base, with the folder of the guest where
// there is one; of a LUN that by which every node has it.
func leafOf(name string) string {
	folder, _, in := strings.Cut(name, "/")
	if !in {
		return lunAddress.ReplaceAllString(name, "")
	}
	if strings.Trim(folder, "0123456789") != "" && !baseName.MatchString(folder) {
		return name // an image, an archive: its whole name is its own
	}
	i := strings.LastIndexByte(name, '/')
	if above := path.Base(name[:i]); strings.Trim(above, "0123456789") == "" {
		return above + name[i:]
	}
	return name[i+1:]
}

// mapped is how the device mapper writes a name.
func mapped(name string) string { return strings.ReplaceAll(name, "-", "--") }

// volumesAt are the volumes that a path on a node leads to, by the names that storages have for it.
func volumesAt(defs []estate.Config, at string) (out []string) {
	at = path.Clean(at)
	below := func(folder string) (string, bool) { return strings.CutPrefix(at, strings.TrimRight(folder, "/")+"/") }
	for _, d := range defs {
		add := func(name string) { out = append(out, d["storage"]+":"+name) }
		switch d["type"] {
		case "lvm", "lvmthin":
			if name, ok := below("/dev/" + d["vgname"]); ok && d["vgname"] != "" {
				add(name)
			} else if name, ok := strings.CutPrefix(at, "/dev/mapper/"+mapped(d["vgname"])+"-"); ok && !strings.HasPrefix(name, "-") {
				add(strings.ReplaceAll(name, "--", "-"))
			}
			continue
		case "rbd":
			pool := strings.TrimSuffix(orText(d["pool"], "rbd")+"/"+d["namespace"], "/")
			if name, ok := below("/dev/rbd/" + pool); ok {
				add(name)
			} else if rest, ok := below("/dev/rbd-pve"); ok {
				if _, rest, _ = strings.Cut(rest, "/"); strings.HasPrefix(rest, pool+"/") {
					add(strings.TrimPrefix(rest, pool+"/"))
				}
			}
			continue
		case "iscsi", "iscsidirect":
			if name, ok := below("/dev/disk/by-id"); ok && strings.HasPrefix(name, "scsi-") {
				add(partition.ReplaceAllString(name, ""))
			}
			continue
		case "zfspool":
			if name, ok := below("/dev/zvol/" + d["pool"]); ok {
				add(partition.ReplaceAllString(name, ""))
				continue
			}
		}
		for _, l := range locationsOf(d) {
			rest, ok := below(l.at)
			if l.kind != "folder" || !ok {
				continue
			}
			if d["type"] == "zfspool" {
				add(rest)
				continue
			}
			if name, ok := strings.CutPrefix(rest, imagesIn(d)+"/"); ok {
				if volume, ok := strings.CutSuffix(name, "/disk.raw"); ok && d["type"] == "btrfs" {
					name = volume + ".raw"
				}
				add(name)
			}
		}
	}
	return out
}

// imagesIn is the folder of a storage in which guests' disks are.
func imagesIn(def estate.Config) string {
	images := "images"
	for _, part := range words(def["content-dirs"]) {
		if dir, ok := strings.CutPrefix(part, "images="); ok {
			images = strings.Trim(dir, "/")
		}
	}
	return images
}

var partition = &regex.Lazy{Expr: `-part[0-9]+$`}
