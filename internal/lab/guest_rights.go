package lab

import (
	"fmt"
	"strings"
)

// optionPriv names the privilege that a configuration key asks for; "" means root only.
func optionPriv(kind, key, val string) string {
	base := strings.TrimRight(key, "0123456789")
	if kind == kindLXC {
		switch base {
		case "cores", "cpuunits", "cpulimit":
			return "VM.Config.CPU"
		case "rootfs", "mp", "unused":
			return "VM.Config.Disk"
		case "memory", "swap":
			return "VM.Config.Memory"
		case "net", "nameserver", "searchdomain", "hostname":
			return "VM.Config.Network"
		}
		return "VM.Config.Options"
	}
	switch base {
	case "cores", "cpu", "cpulimit", "cpuunits", "numa", "smp", "sockets", "vcpus", "affinity":
		return "VM.Config.CPU"
	case "memory", "balloon", "shares":
		return "VM.Config.Memory"
	case "net", "ipconfig":
		return "VM.Config.Network"
	case "boot", "bootdisk", "vmstatestorage", "efidisk", "tpmstate", "unused":
		return "VM.Config.Disk"
	case "scsi", "virtio", "sata", "ide":
		if isCDROM(val) {
			return "VM.Config.CDROM"
		}
		return "VM.Config.Disk"
	case "cicustom", "cipassword", "citype", "ciuser", "ciupgrade", "nameserver", "searchdomain", "sshkeys":
		return "VM.Config.Cloudinit"
	case "acpi", "hotplug", "kvm", "machine", "scsihw", "smbios", "tablet", "vga", "watchdog", "audio", "arch", "rng", "vmgenid", "ivshmem", "serial", "usb", "hostpci", "virtiofs", "spice_enhancements", "amd-sev", "intel-tdx":
		if base == "usb" && !strings.Contains(val, "mapping=") && !strings.HasPrefix(val, "spice") && !strings.Contains(val, "host=spice") && val != "" {
			return ""
		}
		if base == "hostpci" && !strings.Contains(val, "mapping=") && val != "" {
			return ""
		}
		if base == "serial" && val != "socket" && val != "" {
			return ""
		}
		return "VM.Config.HWType"
	case "args", "lock", "parallel", "hookscript":
		if base == "hookscript" {
			return "VM.Config.Options"
		}
		return ""
	}
	return "VM.Config.Options"
}

// mayConfigure applies the rights of single options. pool may carry the rights when a guest is made in one.
func (c *call) mayConfigure(kind string, vmid int, old map[string]string, set map[string]string, del []string, unpriv bool, pool string) error {
	if c.user.root() {
		return nil
	}
	path := fmt.Sprintf("/vms/%d", vmid)
	ask := func(priv string) error {
		if pool != "" && c.s.may(c.user.id(), "/pool/"+pool, priv) {
			return nil
		}
		return c.need(path, priv)
	}
	check := func(key, val string, deleting bool) error {
		if kind == kindLXC {
			if err := c.mayCTOption(key, val, old[key], unpriv, deleting); err != nil {
				return err
			}
		}
		if key == "features" && kind == kindLXC {
			return ask("VM.Allocate")
		}
		priv := optionPriv(kind, key, firstNonEmpty(val, old[key]))
		if priv == "" {
			base := strings.TrimRight(key, "0123456789")
			if base == "hostpci" {
				return die("only root can set '%s' config for non-mapped devices", key)
			}
			if base == "usb" || base == "serial" {
				return die("only root can set '%s' config for real devices", key)
			}
			return die("only root can set '%s' config", key)
		}
		return ask(priv)
	}
	for _, k := range del {
		if err := check(k, "", true); err != nil {
			return err
		}
	}
	for _, k := range sortedKeys(set) {
		if err := check(k, set[k], false); err != nil {
			return err
		}
	}
	return nil
}

// mayCTOption holds what of a container's options is for the true root alone.
func (c *call) mayCTOption(key, val, old string, unpriv, deleting bool) error {
	base := strings.TrimRight(key, "0123456789")
	switch {
	case key == "features":
		if !unpriv {
			return denied("changing feature flags for privileged container is only allowed for root@pam")
		}
		for _, part := range strings.Split(val+","+old, ",") {
			k, _, _ := strings.Cut(part, "=")
			if k != "" && k != "nesting" && option(val, k) != option(old, k) {
				return denied("changing feature flags (except nesting) is only allowed for root@pam")
			}
		}
	case base == "mp" && key != "mp" || key == "rootfs":
		v := firstNonEmpty(val, old)
		first, _, _ := strings.Cut(strings.TrimPrefix(v, "volume="), ",")
		if strings.HasPrefix(first, "/dev/") {
			return denied("mount point type device is only allowed for root@pam")
		}
		if strings.HasPrefix(first, "/") {
			return denied("mount point type bind is only allowed for root@pam")
		}
	case base == "dev" && key != "dev":
		return denied("configuring device passthrough is only allowed for root@pam")
	case key == "hookscript":
		return denied("changing the hookscript is only allowed for root@pam")
	}
	return nil
}

// mayUseStorage asks for the space that new volumes of a configuration take.
func (c *call) mayUseStorage(kind string, conf map[string]string, def string) error {
	for _, k := range sortedKeys(conf) {
		if !isDiskKey(kind, k) {
			continue
		}
		vol := volumeOf(conf[k])
		if vol == "" || isCDROM(conf[k]) && !newDisk.MatchString(vol) {
			continue
		}
		store := storeOf(vol)
		if newDisk.MatchString(vol) || strings.HasSuffix(vol, ":cloudinit") {
			if _, err := c.s.storageOf(store); err != nil && c.can("/storage/"+store, "Datastore.AllocateSpace") {
				return err
			}
			if err := c.need("/storage/"+store, "Datastore.AllocateSpace"); err != nil {
				return err
			}
			continue
		}
		v := c.s.vol(c.node.name, vol)
		if v != nil && !c.mayVolume(v) && v.vmid != c.num("vmid") {
			return denied("")
		}
	}
	return nil
}

// mayUseBridges asks for the networks of a configuration.
func (c *call) mayUseBridges(conf map[string]string) error {
	for _, k := range sortedKeys(conf) {
		if !strings.HasPrefix(k, "net") || lookup(c.s.api.configs[kindLXC], k) == nil {
			continue
		}
		b := option(conf[k], "bridge")
		if b == "" {
			continue
		}
		if err := c.need(c.s.bridgePath(b, option(conf[k], "tag")), "SDN.Use"); err != nil {
			return err
		}
	}
	return nil
}

// bridgePath is the access-control path of a bridge or vnet.
func (s *state) bridgePath(bridge, tag string) string {
	zone := "localnetwork"
	if v := s.sdn.running["vnets"][bridge]; v != nil {
		zone, _ = v["zone"].(string)
	} else if v := s.sdn.conf["vnets"][bridge]; v != nil {
		zone, _ = v["zone"].(string)
	}
	p := "/sdn/zones/" + zone + "/" + bridge
	if tag != "" {
		p += "/" + tag
	}
	return p
}
