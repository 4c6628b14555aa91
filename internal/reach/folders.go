package reach

import (
	"fmt"
	"path"
	"strings"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

// A container may have a folder of its node, or a device of it, as its own. What of other guests lies there is then its own too.

// hasFolderOf names the guests whose disks lie in a folder that a container gets. What is mounted below a folder does not come
// along with it: neither the volumes of a ZFS pool, nor a storage of the network.
func (w *walk) hasFolderOf(g held, d drive, pool string) {
	if g.Kind != estate.CT || d.storage != "" || !strings.HasPrefix(d.volume, "/") || strings.HasPrefix(path.Clean(d.volume), "/dev/") {
		return
	}
	worst := []dim{alsoLoses, copyGains}
	defs, ok := w.s.Storages()
	if !ok {
		w.missing(d.object(), "the definitions of storages", worst...)
	}
	at := path.Clean(d.volume)
	for _, def := range defs {
		if def["type"] == "zfspool" || !onNode(def, g.Node) || !serves(def, "images") && !serves(def, "rootdir") {
			continue
		}
		for _, l := range locationsOf(def) {
			if l.kind != "folder" {
				continue
			}
			images := path.Join(l.at, imagesIn(def))
			folder, below := strings.CutPrefix(at, images+"/")
			above := within(l.at, at) && l.own && (def["is_mountpoint"] == "" || off1(def["is_mountpoint"]))
			if at == images || at == l.at || within(images, at) && within(at, l.at) || above {
				w.inFolder(g, d, def, "", pool, worst)
			} else if below && strings.Trim(folder, "0123456789") == "" && folder != g.ID {
				w.inFolder(g, d, def, folder+"/", pool, worst)
			}
		}
	}
}

// inFolder hits those with a disk on a storage, or in one folder of it.
func (w *walk) inFolder(g held, d drive, def estate.Config, folder, pool string, worst []dim) {
	begins := def["storage"] + ":" + folder
	for other := range w.guests(d.object(), func(x *estate.Guest) bool { return x.ID != g.ID && (x.Node == g.Node || reachedByAll(def)) }, worst...) {
		for _, theirs := range other.drivesNaming(begins) {
			name, there := strings.CutPrefix(theirs.volume, begins)
			if !there || theirs.medium || strings.HasPrefix(name, "iso/") {
				continue
			}
			o := object(gate.ObjectGuest, other.ID)
			h := gate.Hit{Class: ClassLosesData, Weight: gate.WeightDanger, Object: o, Kinds: alsoLoses.kinds, Way: []gate.Object{object(gate.ObjectGuest, g.ID), object(gate.ObjectStorage, def["storage"]), o},
				Text: fmt.Sprintf("%s of %s lies in %s, which %s gets as %s: what is done there is done to that guest", theirs.key, title(other.Guest), clean(d.volume), title(g.Guest), d.key)}
			if property(d.text, "ro") == "1" {
				h.Class, h.Kinds, h.Text = ClassGains, copyGains.kinds, fmt.Sprintf("%s of %s lies in %s, which %s gets as %s and can read", theirs.key, title(other.Guest), clean(d.volume), title(g.Guest), d.key)
			}
			w.hit(h)
			w.copied(g.ID, other.ID, pool, theirs.volume)
		}
	}
}

// deviceGiven: a disk of the node may be given to a container as a device.
func (w *walk) deviceGiven(g held, key, text, pool string) {
	base, number := fold(key)
	if base != "dev" || number == "" || g.Kind != estate.CT {
		return
	}
	at := orText(property(text, ""), property(text, "path"))
	d := drive{key: key, volume: at, text: text}
	if !strings.HasPrefix(at, "/") {
		return
	}
	defs, ok := w.s.Storages()
	if !ok {
		w.missing(object(gate.ObjectGuest, g.ID), "the definitions of storages", alsoLoses, copyGains)
	}
	if len(volumesAt(defs, at)) == 0 && !blockDevice.MatchString(at) {
		return
	}
	w.alsoOf(g, "", d)
	w.hasDataOf(g, d, pool)
}
