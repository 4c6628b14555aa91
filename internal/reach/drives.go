package reach

import (
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"

	"castellan/internal/estate"
	"castellan/internal/gate"
	"castellan/internal/regex"
)

// drive is one volume that a guest's settings name: disk, medium, mount point, or one kept as unused.
type drive struct {
	key     string
	volume  string // "fast:vm-101-disk-0", or a path of the host
	storage string // empty: a path of the host
	medium  bool   // an ISO image in a drive
	seed    bool   // a cloud-init image, which is made anew by itself
	unused  bool
	size    int64  // bytes; 0 = not told
	text    string // as the settings have it
}

// inUse says whether the guest works with it now.
func (d drive) inUse() bool { return !d.unused && !d.medium && !d.seed && d.storage != "" }

// owner is the guest that the volume's name gives it to; empty = it says none.
func (d drive) owner() string { return estate.OwnerOf(strings.TrimPrefix(d.volume, d.storage+":")) }

func (d drive) object() gate.Object { return object(gate.ObjectVolume, d.volume) }

// isDrive says whether a key of a guest's settings holds a volume.
func isDrive(key string) bool {
	switch base, number := fold(key); base {
	case "scsi", "virtio", "sata", "ide", "unused", "mp", "efidisk", "tpmstate":
		return number != ""
	case "rootfs", "vmstate", "cdrom":
		return number == ""
	}
	return false
}

// fold cuts a key into its name and number.
func fold(key string) (base, number string) {
	base = strings.TrimRight(key, "0123456789")
	return base, key[len(base):]
}

// drives lists the volumes that settings name, by key.
func drives(c estate.Config) []drive { return drivesOf(maps.All(c)) }

// drivesNaming lists those of a guest that name one of these texts.
func (h held) drivesNaming(texts ...string) []drive { return drivesOf(h.quick.Naming(texts...)) }

func drivesOf(settings iter.Seq2[string, string]) []drive {
	var out []drive
	for key, value := range settings {
		if d, ok := driveOf(key, value); ok {
			out = append(out, d)
		}
	}
	slices.SortFunc(out, func(a, b drive) int { return strings.Compare(a.key, b.key) })
	return out
}

// seedName is how Proxmox knows a cloud-init image: any other name with the word in it is a disk like others.
var seedName = &regex.Lazy{Expr: `[:/](vm-[0-9]+-)?cloudinit(\.(raw|cow|qcow|qcow2|qed|vmdk|cloop))?$`}

// blockDevice is a path of a node at which a disk, a part of one or a volume is: no drive for media, and no other device.
var blockDevice = &regex.Lazy{Expr: `^/+dev/+(disk|mapper|zvol|rbd|rbd-pve|block)/|^/+dev/+([shvx]v?d[a-z]|nvme|md|dm-|zd|rbd|nbd|loop|drbd|bcache)[0-9a-z]*`}

// driveOf reads one key; ok is false when it names no volume.
func driveOf(key, value string) (drive, bool) {
	if !isDrive(key) {
		return drive{}, false
	}
	d := drive{key: key, text: value}
	for _, name := range [...]string{"", "file", "volume"} {
		if v := property(value, name); v != "" {
			d.volume = v
		}
	}
	if d.volume == "" || d.volume == "none" || d.volume == "cdrom" {
		return drive{}, false
	}
	if !strings.HasPrefix(d.volume, "/") {
		d.storage, _, _ = strings.Cut(d.volume, ":")
	}
	base, _ := fold(key)
	d.unused = base == "unused"
	d.seed = d.storage != "" && seedName.MatchString(d.volume)
	// A guest's disk in a drive for media is read all the same: only an image, or what belongs to nobody, is a medium.
	d.medium = !d.seed && (property(value, "media") == "cdrom" || key == "cdrom") && (d.owner() == "" || strings.HasPrefix(d.volume, d.storage+":iso/")) && !blockDevice.MatchString(d.volume)
	d.size = bytesOf(property(value, "size"))
	return d, true
}

// parts goes over a property string; what has no name is under "".
func parts(text string) iter.Seq2[string, string] {
	return func(yield func(name, value string) bool) {
		for part := range strings.SplitSeq(text, ",") {
			name, value, named := strings.Cut(part, "=")
			if !named {
				name, value = "", part
			}
			if !yield(strings.TrimSpace(name), strings.TrimSpace(value)) {
				return
			}
		}
	}
}

// properties reads all of a property string. The first of a name counts.
func properties(text string) map[string]string {
	out := map[string]string{}
	for name, value := range parts(text) {
		if _, ok := out[name]; !ok {
			out[name] = value
		}
	}
	return out
}

// property reads one of them.
func property(text, name string) string {
	for n, value := range parts(text) {
		if n == name {
			return value
		}
	}
	return ""
}

// bytesOf reads a size such as "32G", "700M" or "1.5T"; without a letter it is bytes. 0 = no size.
func bytesOf(text string) int64 {
	text = strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(text), "+"), "B"), "i")
	unit := 1.0
	if i := strings.IndexAny(text, "KkMmGgTtPp"); i >= 0 && i == len(text)-1 {
		unit = map[byte]float64{'k': 1 << 10, 'm': 1 << 20, 'g': 1 << 30, 't': 1 << 40, 'p': 1 << 50}[text[i]|0x20]
		text = text[:i]
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || f < 0 || f*unit > 1<<62 {
		return 0
	}
	return int64(f * unit)
}

// allocation reads a volume that is yet to be made, as "fast:32": its storage and its size in bytes.
func allocation(volume string) (storage string, size int64, ok bool) {
	storage, rest, named := strings.Cut(volume, ":")
	if !named || rest == "" || strings.Trim(rest, "0123456789.") != "" {
		return "", 0, false
	}
	f, err := strconv.ParseFloat(rest, 64)
	if err != nil {
		return "", 0, false
	}
	return storage, int64(f * (1 << 30)), true
}

// gib writes bytes for people.
func gib(n int64) string {
	switch {
	case n >= 10<<40:
		return strconv.FormatInt(n>>40, 10) + " TiB"
	case n >= 100<<30:
		return strconv.FormatInt(n>>30, 10) + " GiB"
	case n >= 1<<30:
		return strings.TrimSuffix(strconv.FormatFloat(float64(n)/(1<<30), 'f', 1, 64), ".0") + " GiB"
	}
	return strconv.FormatInt(n>>20, 10) + " MiB"
}
