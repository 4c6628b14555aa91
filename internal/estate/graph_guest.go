package estate

import (
	"slices"
	"strings"
	"time"

	"castellan/internal/gate"
)

// property is one element of a property string; the first may have no key.
func propertyOf(value, name string) string {
	text, _ := gate.PropertyValue(value, name)
	return text
}

// numbered says whether a key is one of these words and a number: "scsi0".
func numbered(key string, words ...string) bool {
	return slices.ContainsFunc(words, func(w string) bool {
		n, ok := strings.CutPrefix(key, w)
		return ok && isNumber(n)
	})
}

// guestConfig draws what a guest's settings name: disks, media, cards, devices, hook script.
func (d *drawing) guestConfig(id string, c Config, at time.Time) {
	o := guestObject(id)
	for _, key := range sortedKeys(c) {
		value := c[key]
		switch {
		case numbered(key, "scsi", "virtio", "sata", "ide", "efidisk", "tpmstate", "mp") || key == "rootfs":
			d.disk(o, id, key, value, at)
		case numbered(key, "unused"):
			if v := firstOf(value); isVolume(v) {
				d.addVolume(v, at, id)
				d.edge(o, volumeObject(v), EdgeUnused, key)
			}
		case key == "vmstate":
			if isVolume(value) {
				d.addVolume(value, at, id)
				d.edge(o, volumeObject(value), EdgeDisk, key)
			}
		case key == "hookscript":
			if v := firstOf(value); isVolume(v) {
				d.addVolume(v, at, "")
				d.edge(o, volumeObject(v), EdgeMedia, key)
			}
		case key == "cicustom":
			for _, part := range strings.Split(value, ",") {
				if _, v, ok := strings.Cut(part, "="); ok && isVolume(v) {
					d.addVolume(v, at, "")
					d.edge(o, volumeObject(v), EdgeMedia, key)
				}
			}
		case numbered(key, "net"):
			d.nic(o, id, key, value)
		case numbered(key, "hostpci", "usb", "dev", "serial", "parallel") || numbered(key, "virtiofs"):
			d.device(o, id, key, value)
		}
	}
	facts := Config{}
	for _, k := range []string{"protection", "lock", "parent", "template"} {
		if c[k] != "" {
			facts[k] = c[k]
		}
	}
	if len(facts) > 0 {
		if v := d.Vertex(o); v != nil {
			d.Add(Vertex{Object: o, Title: v.Title, Read: at, Facts: facts, Ghost: false})
		}
	}
}

func sortedKeys(c Config) []string {
	out := make([]string, 0, len(c))
	for k := range c {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func firstOf(value string) string {
	v, _, _ := strings.Cut(value, ",")
	for _, k := range []string{"file=", "volume="} {
		v = strings.TrimPrefix(v, k)
	}
	return v
}

// isVolume tells a volume from a path of the host, "none" and "cdrom".
func isVolume(v string) bool {
	storage, rest, ok := strings.Cut(v, ":")
	return ok && storage != "" && rest != "" && !strings.ContainsRune(storage, '/')
}

func (d *drawing) disk(o gate.Object, id, key, value string, at time.Time) {
	v := firstOf(value)
	if !isVolume(v) {
		for _, k := range []string{"file", "volume"} {
			if x := propertyOf(value, k); isVolume(x) {
				v = x
			}
		}
	}
	switch {
	case isVolume(v):
	case strings.HasPrefix(v, "/"): // a device or folder of the host
		if node := d.on[id]; node != "" {
			host := object(gate.ObjectVolume, node+":"+v)
			d.Add(Vertex{Object: host, Title: clipTo(v+" of node "+node, 100), Read: at, Facts: Config{"host": "1"}})
			d.edge(o, host, EdgePassthru, key)
			d.edge(host, nodeObject(node), EdgePassthru, key)
		}
		return
	default: // "none", "cdrom"
		return
	}
	kind := EdgeDisk
	if _, name, _ := strings.Cut(v, ":"); propertyOf(value, "media") == "cdrom" && OwnerOf(name) != id {
		kind = EdgeMedia
	}
	d.addVolume(v, at, id)
	d.edge(o, volumeObject(v), kind, key)
}

// addVolume draws a volume that something names, the storage that it lies on, and the base that its name tells.
func (d *drawing) addVolume(v string, at time.Time, owner string) {
	o := volumeObject(v)
	storage, name, _ := strings.Cut(v, ":")
	if old := d.Vertex(o); old == nil || old.Ghost {
		d.Add(Vertex{Object: o, Title: clipTo(v, 120), Read: at})
	}
	d.edge(o, storageObject(storage), EdgeStoredOn, d.local(storage, owner))
	if base := baseOf(storage, name); base != "" {
		d.addBase(o, base, at)
	} else if owner != "" {
		d.hiddenBase(o, storage, name, owner)
	}
}

func (d *drawing) addBase(o gate.Object, base string, at time.Time) {
	b := volumeObject(base)
	if d.Vertex(b) == nil {
		d.Add(Vertex{Object: b, Title: clipTo(base, 120), Read: at})
		storage, _, _ := strings.Cut(base, ":")
		d.edge(b, storageObject(storage), EdgeStoredOn, "")
	}
	d.edge(o, b, EdgeClone, "")
}

// local is the node on whose share of a storage a guest's volume lies; empty for shared ones.
func (d *drawing) local(storage, owner string) string {
	if v := d.Vertex(storageObject(storage)); v != nil && (v.Facts.On("shared") || owner == "") {
		return ""
	}
	return d.on[owner]
}

// baseOf reads from a linked clone's name which volume it is a clone of.
func baseOf(storage, name string) string {
	switch parts := strings.Split(name, "/"); {
	case len(parts) == 4 && isBase(parts[1]): // 101/base-101-disk-0.raw/102/vm-102-disk-0.qcow2
		return storage + ":" + parts[0] + "/" + parts[1]
	case len(parts) == 2 && isBase(parts[0]): // base-101-disk-0/vm-102-disk-0
		return storage + ":" + parts[0]
	}
	return ""
}

func isBase(name string) bool {
	return strings.HasPrefix(name, "base-") || strings.HasPrefix(name, "basevol-")
}

// hidesBase lists the storages on which a linked clone's name does not tell its base.
func hidesBase(kind string) bool { return kind == "lvmthin" || kind == "btrfs" }

// hiddenBase draws that a volume may be a clone of a template's, where the storage does not tell.
func (d *drawing) hiddenBase(o gate.Object, storage, name, owner string) {
	if !hidesBase(d.types[storage]) || isBase(name) || !strings.HasPrefix(name, "vm-") && !strings.HasPrefix(name, "subvol-") || strings.Contains(name, "cloudinit") {
		return
	}
	if g, ok := d.inv.ByID(owner); ok && !g.Template {
		d.hidden = append(d.hidden, hiddenClone{o, cloneSite{storage, g.Node, g.Kind}})
	}
}

type hiddenClone struct {
	volume gate.Object
	at     cloneSite
}

// cloneSite is where a volume and its base would be together.
type cloneSite struct{ storage, node, kind string }

// connectHidden runs when all settings are drawn: only then the templates' volumes are known.
func (d *drawing) connectHidden() {
	bases := map[cloneSite][]gate.Object{}
	for _, g := range d.inv.Guests {
		if !g.Template {
			continue
		}
		for _, e := range d.Needs(guestObject(g.ID), EdgeDisk) {
			storage, name, _ := strings.Cut(e.To.ID, ":")
			if hidesBase(d.types[storage]) && isBase(name) {
				at := cloneSite{storage, g.Node, g.Kind}
				bases[at] = append(bases[at], e.To)
			}
		}
	}
	for _, h := range d.hidden {
		for _, b := range bases[h.at] {
			d.Connect(Edge{From: h.volume, To: b, Kind: EdgeClone, Unknown: true})
		}
	}
}

// nic draws what a card is plugged into: a vnet where the site has one of that name, else a bridge of the guest's node.
func (d *drawing) nic(o gate.Object, id, key, value string) {
	bridge := propertyOf(value, "bridge")
	if bridge == "" {
		return
	}
	if v := d.Vertex(object(gate.ObjectVNet, bridge)); v != nil && !v.Ghost {
		d.edge(o, object(gate.ObjectVNet, bridge), EdgeNIC, key)
		return
	}
	node := d.on[id]
	if node == "" {
		return
	}
	b := object(gate.ObjectBridge, node+"/"+bridge)
	d.edge(o, b, EdgeNIC, key)
}

// device draws a device of the host, or a mapping, that is handed to a guest.
func (d *drawing) device(o gate.Object, id, key, value string) {
	node := d.on[id]
	what := propertyOf(value, "mapping")
	switch {
	case strings.HasPrefix(key, "virtiofs"):
		what = "mapping " + firstNonEmpty(propertyOf(value, "dirid"), firstOf(value))
	case what != "":
		what = "mapping " + what
	default:
		what = firstNonEmpty(propertyOf(value, "host"), firstOf(value))
	}
	if what == "" || what == "socket" || what == "spice" {
		return
	}
	host := object(gate.ObjectUnknown, node+"/"+what)
	d.Add(Vertex{Object: host, Title: clipTo("device "+what+" of node "+node, 100), Facts: Config{"host": "1"}})
	d.edge(o, host, EdgePassthru, key)
	if node != "" {
		d.edge(host, nodeObject(node), EdgePassthru, key)
	}
}

func firstNonEmpty(all ...string) string {
	for _, s := range all {
		if s != "" {
			return s
		}
	}
	return ""
}

// snapshot draws one row of a guest's snapshots.
func (d *drawing) snapshot(id string, r Config, at time.Time) {
	name := r["name"]
	if name == "" || name == "current" {
		return
	}
	o := object(gate.ObjectSnapshot, id+"/"+name)
	facts := Config{}
	for _, k := range []string{"snaptime", "vmstate", "snapstate"} {
		if r[k] != "" {
			facts[k] = r[k]
		}
	}
	d.Add(Vertex{Object: o, Title: clipTo("snapshot "+name+" of "+id, 100), Read: at, Facts: facts})
	d.edge(o, guestObject(id), EdgeSnapshot, "")
	if p := r["parent"]; p != "" {
		d.edge(o, object(gate.ObjectSnapshot, id+"/"+p), EdgeSnapshot, "parent")
	}
}
