package hostapt

import (
	"fmt"
	"slices"
	"strings"

	"castellan/internal/patch"
)

// products are the packages that make a machine a Proxmox host, with what each kind is called.
var products = []struct{ name, kind string }{
	{"proxmox-ve", "pve"}, {"pve-manager", "pve"}, {"proxmox-backup-server", "pbs"}, {"proxmox-backup", "pbs"},
	{"proxmox-mailgateway", "pmg"}, {"proxmox-mailgateway-container", "pmg"}, {"pmg-api", "pmg"},
	{"proxmox-datacenter-manager", "pdm"},
}

// kept are packages that a host, and the way to it, cannot do without; none of them is removed by an upgrade that castellan
// starts. Those that dpkg marks as essential are kept as well.
var kept = []string{
	"apt", "base-files", "bash", "ceph-mds", "ceph-mgr", "ceph-mon", "ceph-osd", "corosync", "dpkg", "ifupdown", "ifupdown2", "init", "iproute2", "libc6", "login",
	"lxc-pve", "libpve-access-control", "openssh-server", "openvswitch-switch", "proxmox-backup-client", "proxmox-boot-uefi-efi", "proxmox-default-kernel", "proxmox-firewall",
	"proxmox-kernel-helper", "pve-cluster", "pve-container", "pve-firewall", "pve-ha-manager", "pve-qemu-kvm", "qemu-server", "sudo", "systemd", "systemd-boot", "systemd-sysv",
	"udev", "zfs-initramfs", "zfsutils-linux", "lvm2",
}

// MustStay says why a package must not be removed from a host; empty = it may. running is the release of the kernel that runs.
func MustStay(name, running string, essential bool) string {
	for _, p := range products {
		if p.name == name {
			return "it makes this machine a Proxmox host"
		}
	}
	switch {
	case essential:
		return "it is essential to the system"
	case slices.Contains(kept, name):
		return "the host, or the way to it, cannot do without it"
	case running != "" && isKernel(name, running):
		return "it is the kernel that runs"
	}
	return ""
}

var kernelPrefixes = []string{"proxmox-kernel-", "pve-kernel-", "linux-image-", "linux-image-unsigned-"}

// kernelOf is the release of a kernel that a package brings, as uname tells it. A package that only names a series brings none.
func kernelOf(name string) (string, bool) {
	for _, prefix := range kernelPrefixes {
		rest, ok := strings.CutPrefix(name, prefix)
		if !ok || rest == "" || rest[0] < '0' || rest[0] > '9' {
			continue
		}
		rest = strings.TrimSuffix(strings.TrimSuffix(rest, "-signed"), "-unsigned")
		if strings.Count(rest, "-") > 0 { // 6.8.12-4-pve, 6.1.0-28-amd64; a series is 6.8
			return rest, true
		}
	}
	return "", false
}

func isKernel(name, release string) bool {
	k, ok := kernelOf(name)
	return ok && k == release
}

// major is the upstream major version: "9" of "1:9.0.3-1".
func major(version string) string {
	if _, rest, ok := strings.Cut(version, ":"); ok {
		version = rest
	}
	end := strings.IndexFunc(version, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		return version
	}
	return version[:end]
}

// Forbidden says what of a transaction is not done on a host, whoever asks: each a line for a reader.
func Forbidden(t patch.Transaction, running string, essential func(name string) bool) []string {
	var out []string
	for _, c := range t {
		switch c.Action {
		case patch.Remove:
			if why := MustStay(c.Name, running, essential != nil && essential(c.Name)); why != "" {
				out = append(out, fmt.Sprintf("it would remove %s (%s): %s", c.Name, c.Old, why))
			}
		case patch.Upgrade:
			if slices.ContainsFunc(products, func(p struct{ name, kind string }) bool { return p.name == c.Name }) || c.Name == "base-files" {
				if major(c.Old) != major(c.New) {
					out = append(out, fmt.Sprintf("it would take %s from %s to %s, another major version: a release upgrade is done by hand, by Proxmox's own instructions", c.Name, c.Old, c.New))
				}
			}
		}
	}
	return out
}

// Match compares what was asked for with what apt would do now; an empty text means that it is the same. newer lets a package
// come in a newer version than asked for, from the same archive; later says whether a version is later than another.
func Match(asked, now patch.Transaction, newer bool, later func(a, b string) bool) string {
	var out []string
	want := map[string]patch.Change{}
	for _, c := range asked {
		if _, twice := want[key(c)]; twice {
			return c.Name + " is asked for twice"
		}
		want[key(c)] = c
	}
	for _, c := range now {
		a, ok := want[key(c)]
		delete(want, key(c))
		switch {
		case !ok:
			out = append(out, "apt would now also "+describe(c))
		case a.Action != c.Action || a.Old != c.Old:
			out = append(out, "apt would now "+describe(c)+", where "+describe(a)+" was asked for")
		case c.Action == patch.Remove:
		case a.Archive != c.Archive:
			out = append(out, fmt.Sprintf("%s would come from %s, not from %s", c.Name, c.Archive, a.Archive))
		case a.New != c.New && !(newer && later(c.New, a.New)):
			out = append(out, fmt.Sprintf("%s is at %s now, and %s was asked for", c.Name, c.New, a.New))
		}
	}
	for _, c := range asked {
		if _, left := want[key(c)]; left {
			out = append(out, "apt would not "+describe(c)+" any more")
		}
	}
	slices.Sort(out)
	if len(out) > 20 {
		out = append(out[:20], fmt.Sprintf("and %d more", len(out)-20))
	}
	return strings.Join(out, "; ")
}

func describe(c patch.Change) string {
	switch c.Action {
	case patch.Remove:
		return "remove " + c.Name + " " + c.Old
	case patch.Install:
		return "install " + c.Name + " " + c.New
	}
	return fmt.Sprintf("upgrade %s from %s to %s", c.Name, c.Old, c.New)
}
