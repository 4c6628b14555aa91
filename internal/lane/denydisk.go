package lane

import (
	"path"
	"slices"
	"strings"

	"castellan/internal/command"
)

// disk judges what destroys disks, partitions and volumes.
func (d *denial) disk(s seen) {
	n := s.Name
	onDevice := slices.ContainsFunc(s.operands(), func(a command.Part) bool { return strings.HasPrefix(a.Text, "/dev/") || a.Unknown })
	switch {
	case strings.HasPrefix(n, "mkfs") || slices.Contains([]string{"mke2fs", "mkdosfs", "mkntfs", "mkudffs", "mkreiserfs"}, n):
		d.deny("mkfs", "%s makes a file system over what was there", n)
	case n == "mkswap" && onDevice:
		d.deny("mkfs", "mkswap makes swap over what was on a device")
	case n == "dd" || n == "ddrescue" || n == "dcfldd" || n == "dc3dd":
		for _, a := range s.Args {
			if to, ok := strings.CutPrefix(a.Text, "of="); ok {
				d.writes(path.Clean(to))
			}
		}
		if n == "ddrescue" && onDevice {
			d.deny("device", "ddrescue writes to a device")
		}
	case n == "wipefs" && !s.flag("n", "--no-act") && (s.flag("aof", "--all", "--offset", "--force") || len(s.Args) > 0 && s.Args[0].Unknown):
		d.deny("partitions", "wipefs removes signatures")
	case n == "blkdiscard", n == "badblocks" && s.flag("wn"), n == "shred" && onDevice, n == "sg_format", n == "flashrom":
		d.deny("device", "%s destroys what is on a device", n)
	case slices.Contains([]string{"fdisk", "sfdisk"}, n) && !s.flag("lsxVdFJ", "--list", "--show-size", "--verify", "--dump", "--list-free", "--json", "--help", "--version"), n == "sgdisk" && !s.flag("pivO", "--print", "--info", "--verify"),
		n == "sgdisk" && s.flag("oZzdnGgt", "--zap", "--zap-all", "--clear", "--delete", "--new", "--mbrtogpt", "--typecode"), slices.Contains([]string{"cfdisk", "gdisk", "cgdisk"}, n) && !s.flag("l"):
		d.deny("partitions", "%s changes partitions", n)
	case n == "parted" && s.has("mklabel", "mktable", "mkpart", "rm", "resizepart", "rescue", "set", "toggle"):
		d.deny("partitions", "parted changes partitions")
	case slices.Contains([]string{"pvremove", "vgremove", "lvremove", "lvreduce", "pvcreate"}, n):
		d.deny("volumes", "%s removes or overwrites volumes", n)
	case n == "lvm" && s.has("pvremove", "vgremove", "lvremove", "lvreduce", "pvcreate"):
		d.deny("volumes", "lvm %s removes or overwrites volumes", s.verb())
	case n == "zpool" && s.has("destroy", "labelclear", "create", "offline"), n == "zfs" && s.has("destroy", "rollback", "receive", "recv"):
		d.deny("volumes", "%s %s destroys what is there", n, s.verb())
	case n == "cryptsetup" && s.has("luksFormat", "erase", "luksErase", "luksKillSlot", "luksRemoveKey", "reencrypt"):
		d.deny("volumes", "cryptsetup %s makes data unreadable", s.verb())
	case n == "mdadm" && s.flag("C", "--create", "--zero-superblock"):
		d.deny("volumes", "mdadm overwrites an array")
	case n == "hdparm" && s.flag("", "--security-erase", "--security-erase-enhanced", "--trim-sector-ranges", "--write-sector", "--make-bad-sector"), n == "nvme" && s.has("format", "sanitize", "write", "write-zeroes", "delete-ns"):
		d.deny("device", "%s destroys what is on a disk", n)
	}
}

// network judges what cuts off the ways in.
func (d *denial) network(s seen) {
	switch s.Name {
	case "iptables", "ip6tables", "ebtables", "arptables":
		if s.flag("FX", "--flush", "--delete-chain") || s.flag("P", "--policy") && s.has("DROP", "REJECT") {
			d.deny("firewall", "%s flushes the rules, or lets nothing through", s.Name)
		}
	case "iptables-restore", "ip6tables-restore":
		d.deny("firewall", "%s replaces all rules", s.Name)
	case "nft":
		var words []string
		for _, a := range s.Args {
			words = append(words, strings.Fields(a.Text)...)
		}
		for _, w := range words {
			if w == "flush" || w == "destroy" || w == "delete" && slices.Contains(words, "table") {
				d.deny("firewall", "nft %s takes away firewall rules", w)
			}
		}
	case "ufw":
		if s.has("reset", "disable") {
			d.deny("firewall", "ufw %s takes away the firewall", s.verb())
		}
	case "pve-firewall":
		if s.verb() == "stop" {
			d.deny("firewall", "pve-firewall stop takes away the firewall")
		}
	case "firewall-cmd":
		if s.flag("", "--panic-on") {
			d.deny("firewall", "firewall-cmd --panic-on lets nothing through")
		}
	case "ip":
		o := s.operands()
		for len(o) > 0 && slices.Contains([]string{"inet", "inet6"}, o[0].Text) {
			o = o[1:]
		}
		if len(o) > 1 && len(o[0].Text) > 0 && len(o[1].Text) > 0 && (strings.HasPrefix("address", o[0].Text) || strings.HasPrefix("route", o[0].Text) || o[0].Text == "addr") && strings.HasPrefix("flush", o[1].Text) {
			d.deny("network", "ip %s flush takes away addresses or routes", o[0].Text)
		}
	case "ifdown":
		if s.flag("a", "--all") {
			d.deny("network", "ifdown -a takes down every network")
		}
	}
}

// platform judges commands of Proxmox that the API has: there they are planned, approved and can often be undone.
func (d *denial) platform(s seen) {
	verbs := map[string]string{
		"qm": "destroy rollback delsnapshot unlink", "pct": "destroy rollback delsnapshot unlock", "pvesh": "delete create set", "pvecm": "delnode expected add create updatecerts",
		"pveum": "user role acl group realm passwd useradd userdel usermod aclmod roleadd roledel rolemod token ticket", "pveceph": "purge destroy destroyosd destroymon destroypool stop", "pvesm": "remove free prune-backups",
		"ceph": "osd fs mds auth config", "ha-manager": "remove crm-command", "qmrestore": "*", "proxmox-backup-manager": "datastore acl user disk", "proxmox-backup-client": "forget",
	}
	reads := []string{"ls", "list", "tree", "stat", "df", "dump", "status", "show", "get", "permissions", "perf", "config", "versions", "help"}
	list, ok := verbs[s.Name]
	if !ok || len(s.Args) == 0 {
		return
	}
	verb := s.verb()
	o := s.operands()
	if len(o) > 1 && slices.Contains(reads, o[1].Text) {
		return
	}
	if list == "*" || slices.Contains(strings.Fields(list), verb) {
		d.deny("platform", "%s %s goes round castellan; use the API's operation, which is planned and recorded", s.Name, verb)
	}
}
