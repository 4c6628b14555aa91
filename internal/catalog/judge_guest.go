package catalog

import (
	"slices"
	"strings"

	"castellan/internal/gate"
	"castellan/internal/regex"
)

// guestConfig judges each key that is set or deleted.
func (v *verdict) guestConfig() {
	force := false
	if x, ok := v.value("force"); ok {
		force = x.on()
	}
	v.each(func(x value) {
		switch x.name {
		case "delete":
			for _, key := range x.words() {
				v.guestDelete(key, force)
			}
		case "revert":
			for _, key := range x.words() {
				v.guestRevert(key)
			}
		case "force":
			if force {
				v.add(gate.ClassData)
			}
		case "skiplock":
			if x.on() {
				v.add(gate.ClassGuard)
			}
		case "background_delay", "import-working-storage":
		default:
			v.guestKey(x)
		}
	}, "description")
	if len(v.kinds) == 0 {
		v.plain()
	}
}

// guestCreate makes a guest that was not there, unless force lets it take another one's place. What a key does
// to a running guest's network or safeguards does not count for a new one.
func (v *verdict) guestCreate() {
	opens := false
	v.plain()
	v.each(func(x value) {
		switch x.name {
		case "force":
			if x.on() {
				v.add(gate.ClassData)
			}
		case "start":
			if x.on() {
				v.kinds[gate.KindStart] = true
			}
		case "archive", "ostemplate":
			if x.name == "archive" {
				v.restores()
			}
			for _, t := range x.texts {
				if x.name == "ostemplate" && strings.Contains(t, ":") && !strings.Contains(t, ":vztmpl/") { // a backup is unpacked too, whether or not restore is on
					v.restores()
				}
				if !strings.Contains(t, ":") || strings.HasPrefix(t, "/") { // a path on the host, or what it reads from a pipe
					v.as(gate.ClassExec, gate.KindExec, gate.KindHost)
				}
			}
		case "restore":
			if x.on() {
				v.restores()
			}
		case "ha-managed": // as an entry among the resources of HA: the node watches itself from then on
			opens = opens || x.on()
		case "vmid", "pool", "storage", "bwlimit", "unique", "live-restore", "ignore-unpack-errors", "import-working-storage":
		case "password":
			v.add(gate.ClassSin)
		case "ssh-public-keys":
			v.add(gate.ClassExec)
		default:
			switch x.key {
			case "hostpci[n]", "usb[n]", "virtiofs[n]": // what a new guest gets of the host it has from its first start
				probe := newVerdict(v.op, v.r)
				probe.guestKey(x)
				opens = opens || probe.kinds[gate.KindGuard]
			}
			v.guestKey(x)
		}
	}, "vmid", "pool", "storage", "description")
	if v.op.Method == "POST" {
		for _, k := range []gate.Kind{gate.KindNet, gate.KindGuard, gate.KindConfig} {
			delete(v.kinds, k)
		}
		if opens {
			v.kinds[gate.KindGuard] = true
		}
		if x, ok := v.value("features"); ok { // what opens the host to a container does so from its first start
			for _, text := range x.texts {
				for name, texts := range keysOf(text) {
					if name != "nesting" && name != "keyctl" && slices.ContainsFunc(texts, func(t string) bool { return !isFalse(t) }) {
						v.kinds[gate.KindGuard] = true
					}
				}
			}
		}
	}
}

// restores: the guest comes from an archive, with whatever settings that holds.
func (v *verdict) restores() {
	delete(v.kinds, gate.KindCreate)
	v.kinds[gate.KindRestore] = true
}

// guestKey judges one key of a guest's configuration that is set.
func (v *verdict) guestKey(x value) {
	for _, text := range x.texts {
		v.guestValue(x.key, text)
	}
	if len(x.texts) == 0 {
		v.worst()
	}
}

func (v *verdict) guestValue(key, text string) {
	parts := keysOf(text)
	switch key {
	case "acpi", "affinity", "agent", "allow-ksm", "amd-sev", "arch", "audio0", "autostart", "balloon", "bios", "boot", "bootdisk", "cores",
		"cpu", "cpulimit", "cpuunits", "description", "freeze", "hotplug", "hugepages", "intel-tdx", "keephugepages", "keyboard",
		"kvm", "localtime", "machine", "memory", "migrate_downtime", "migrate_speed", "name", "numa", "numa[n]", "onboot", "ostype",
		"reboot", "rng0", "scsihw", "shares", "smbios1", "smp", "sockets", "spice_enhancements", "startdate", "startup", "tablet", "tags",
		"tdf", "vcpus", "vga", "vmgenid", "vmstatestorage", "watchdog",
		"console", "debug", "hostname", "swap", "timezone", "tty":
		v.plain()
	case "ivshmem": // memory of the host, which every guest that names it shares
		v.hostAccess()
	case "cmode":
		v.plain()
		if text == "shell" { // the console needs no login
			v.add(gate.ClassGuard)
		}
	case "net[n]":
		v.add(gate.ClassNet)
		if fw := parts["firewall"]; len(fw) == 0 || slices.ContainsFunc(fw, func(t string) bool { return !isTrue(t) }) {
			v.add(gate.ClassGuard) // without the key the guest's firewall does not filter this interface
		}
	case "ipconfig[n]", "nameserver", "searchdomain":
		v.add(gate.ClassNet)
	case "cipassword":
		v.add(gate.ClassSin, gate.ClassExec)
	case "cicustom", "ciupgrade", "ciuser", "citype", "sshkeys", "entrypoint", "env":
		v.add(gate.ClassExec)
	case "args", "hookscript":
		v.as(gate.ClassExec, gate.KindExec, gate.KindHost)
	case "protection":
		if isTrue(text) {
			v.plain()
		} else {
			v.add(gate.ClassGuard)
		}
	case "lock":
		v.add(gate.ClassGuard)
	case "template":
		if isFalse(text) {
			v.plain()
		} else {
			v.add(gate.ClassData)
		}
	case "features":
		v.plain()
		for name, texts := range parts {
			if name == "mount" || slices.ContainsFunc(texts, func(t string) bool { return !isFalse(t) }) {
				v.add(gate.ClassGuard)
			}
		}
	case "unprivileged":
		v.plain()
		if !isTrue(text) {
			v.add(gate.ClassGuard)
		}
	case "hostpci[n]", "usb[n]", "virtiofs[n]":
		v.hostDevice(key, parts)
	case "serial[n]":
		if text == "socket" {
			v.plain()
		} else {
			v.hostAccess()
		}
	case "parallel[n]", "dev[n]":
		v.hostAccess()
	case "scsi[n]", "virtio[n]", "sata[n]", "ide[n]", "efidisk0", "tpmstate0", "cdrom", "rootfs", "mp[n]", "unused[n]":
		v.disk(key, parts)
	default:
		v.worst()
	}
}

// hostAccess: the guest gets hold of something of the host.
func (v *verdict) hostAccess() { v.as(gate.ClassExec, gate.KindHost) }

// hostDevice: a mapping was released for guests by whoever set it up; a raw device was not.
func (v *verdict) hostDevice(key string, parts map[string][]string) {
	_, mapped := parts["mapping"]
	host := append(slices.Clone(parts["host"]), parts[""]...)
	spice := key == "usb[n]" && len(host) > 0 && !slices.ContainsFunc(host, func(t string) bool { return !strings.EqualFold(t, "spice") })
	switch {
	case spice:
		v.plain()
	case key == "virtiofs[n]", mapped && len(host) == 0:
		v.plain()
		v.add(gate.ClassGuard)
	default:
		v.hostAccess()
	}
}

var (
	allocation  = &regex.Lazy{Expr: `^[^:/]+:[0-9]+(\.[0-9]+)?$`}
	baseVolume  = &regex.Lazy{Expr: `\A(?:[1-9][0-9]*/)?base-[1-9][0-9]*-[^/:]*\z`}
	volumeOwner = &regex.Lazy{Expr: `(?:^|[:/])(?:vm|base|subvol|basevol)-([0-9]+)-[^:/]*`}
)

// disk judges a drive or mount point: what it names, and the keys that weaken what protects it.
func (v *verdict) disk(key string, parts map[string][]string) {
	v.plain()
	volumes := slices.Concat(parts[""], parts["file"], parts["volume"])
	medium := slices.Equal(parts["media"], []string{"cdrom"}) || key == "cdrom"
	for _, vol := range volumes {
		switch {
		case vol == "none" || vol == "cdrom" && (medium || strings.HasPrefix(key, "ide")):
		case strings.HasPrefix(vol, "/"):
			v.hostAccess()
			v.add(gate.ClassData)
		case strings.HasSuffix(vol, ":cloudinit"), allocation.MatchString(vol), v.ownVolume(vol):
		case medium && strings.Contains(vol, ":iso/") && len(volumeGuests(vol)) == 0:
		default: // another guest's volume, or one that says nothing of its owner
			v.add(gate.ClassData)
		}
	}
	if len(volumes) == 0 {
		v.add(gate.ClassData)
	}
	for name, texts := range parts {
		for _, text := range texts {
			switch name {
			case "", "file", "volume", "media", "aio", "detect_zeroes", "discard", "format", "iothread", "queues", "rerror", "werror", "ro",
				"serial", "size", "ssd", "vendor", "product", "wwn", "acl", "quota", "mp", "mountoptions", "keepattrs", "efitype",
				"pre-enrolled-keys", "ms-cert", "version", "secs", "cyls", "heads", "trans", "model":
			case "import-from":
				if !strings.Contains(text, ":") || strings.HasPrefix(text, "/") {
					v.hostAccess()
				} else {
					v.copies(text)
				}
			case "backup", "replicate":
				if !isTrue(text) {
					v.add(gate.ClassGuard)
				}
			case "cache":
				if text == "unsafe" {
					v.add(gate.ClassGuard)
				}
			case "snapshot":
				if !isFalse(text) {
					v.add(gate.ClassData) // what the guest writes is thrown away
				}
			case "shared":
				if !isFalse(text) {
					v.add(gate.ClassGuard)
				}
			case "idmap":
				v.add(gate.ClassGuard)
			case "scsiblock":
				if !isFalse(text) {
					v.hostAccess()
				}
			default:
				if !strings.HasPrefix(name, "bps") && !strings.HasPrefix(name, "iops") && !strings.HasPrefix(name, "mbps") {
					v.worst()
				}
			}
		}
	}
}

// copies: a disk filled with a copy of another guest's has all that a clone has; and more than a clone, what is on it can be
// read from a guest of the caller's own. The base of a template is made for being copied.
func (v *verdict) copies(volume string) {
	_, name, _ := strings.Cut(volume, ":")
	switch {
	case v.ownVolume(volume), strings.HasPrefix(name, "import/") && !strings.Contains(name, ".."):
	case len(volumeGuests(volume)) == 1 && baseVolume.MatchString(name):
		v.kinds[gate.KindClone] = true
	default: // what says nothing of its owner may be anybody's
		v.kinds[gate.KindClone], v.kinds[gate.KindFile] = true, true
	}
}

// ownVolume reports whether a volume's name says that it belongs to the guest of the request and to no other.
func (v *verdict) ownVolume(volume string) bool {
	x, ok := v.value("vmid")
	vmid, sure := x.one()
	if !ok || !sure || vmid == "" || !strings.Contains(volume, ":") || strings.Contains(volume, "..") {
		return false
	}
	owners := volumeOwner.FindAllStringSubmatch(volume, -1)
	if len(owners) == 0 {
		return false
	}
	// In a directory the folder decides, whatever the file in it is called.
	if folders := folderGuest.FindAllStringSubmatch(volume, -1); len(folders) > 0 && folders[len(folders)-1][1] != strings.TrimLeft(vmid, "0") {
		return false
	}
	// A linked clone is named BASE/VOLUME: the last part is the one that is written.
	return strings.TrimLeft(owners[len(owners)-1][1], "0") == strings.TrimLeft(vmid, "0")
}

// guestDelete judges one key that is taken out of a guest's configuration.
func (v *verdict) guestDelete(key string, force bool) {
	switch folded := foldIndex(key); folded {
	case "unused[n]", "rootfs":
		v.add(gate.ClassData)
	case "scsi[n]", "virtio[n]", "sata[n]", "ide[n]", "efidisk0", "tpmstate0", "cdrom", "mp[n]", "efidisk[n]", "tpmstate[n]":
		v.plain() // detached, and kept as unused
		if force {
			v.add(gate.ClassData)
		}
	case "net[n]", "ipconfig[n]", "nameserver", "searchdomain":
		v.add(gate.ClassNet)
	case "protection", "lock", "unprivileged", "amd-sev", "intel-tdx":
		v.add(gate.ClassGuard)
	case "cicustom", "ciupgrade", "ciuser", "citype", "sshkeys", "cipassword", "entrypoint", "env":
		v.add(gate.ClassExec)
	case "args", "hookscript":
		v.as(gate.ClassExec, gate.KindExec, gate.KindHost)
	case "hostpci[n]", "usb[n]", "virtiofs[n]", "serial[n]", "parallel[n]", "dev[n]", "features":
		v.plain()
	default:
		if v.deletable(key) || v.deletable(folded) {
			v.plain()
			return
		}
		v.worst()
	}
}

// deletable reports whether a key is one whose every value is plain, so that its default is too.
func (v *verdict) deletable(key string) bool {
	probe := newVerdict(v.op, v.r)
	probe.guestValue(key, "")
	return len(probe.classes) == 0
}

// guestRevert takes back a change that waits: the key gets the value again that it has in the running guest.
func (v *verdict) guestRevert(key string) {
	switch folded := foldIndex(key); folded {
	case "scsi[n]", "virtio[n]", "sata[n]", "ide[n]", "mp[n]", "unused[n]", "rootfs", "efidisk[n]", "tpmstate[n]", "cdrom":
		v.plain()
	default:
		v.guestDelete(key, false)
	}
}

// keysOf splits a property string; what has no name is under "". Keys are not trusted to come once.
func keysOf(text string) map[string][]string {
	parts := map[string][]string{}
	for part := range strings.SplitSeq(text, ",") {
		name, val, named := strings.Cut(part, "=")
		if !named {
			name, val = "", part
		}
		name = strings.TrimSpace(name)
		parts[name] = append(parts[name], strings.TrimSpace(val))
	}
	return parts
}
