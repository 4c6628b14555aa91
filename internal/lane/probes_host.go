package lane

// hostProbes look at a node.
func hostProbes() []Probe {
	return []Probe{
		fixed("pve_version", "Versions of Proxmox VE and its packages", hosts, program("pveversion", "--verbose")),
		fixed("pve_services", "State of the services of Proxmox VE", hosts,
			program("systemctl", "show", "--no-pager", "--property=Id,ActiveState,SubState,Result,NRestarts,ActiveEnterTimestamp", "--", "pve-cluster.service", "corosync.service", "pvedaemon.service", "pveproxy.service", "pvestatd.service", "pvescheduler.service", "pve-firewall.service", "pve-ha-lrm.service", "pve-ha-crm.service", "spiceproxy.service", "qmeventd.service", "ssh.service", "chrony.service")),
		fixed("ha_status", "State of high availability, nodes in maintenance included", hosts, program("ha-manager", "status")).root(),
		fixed("maintenance", "What high availability knows of the nodes, maintenance included, as JSON", hosts, program("cat", "/etc/pve/ha/manager_status")).root(),
		fixed("cluster_status", "Quorum and members of the cluster", hosts, program("pvecm", "status").ok(2)).root(),
		fixed("cluster_links", "Links of the cluster's network", hosts, program("corosync-cfgtool", "-s")).root(),
		fixed("ceph_status", "State of Ceph", hosts, program("ceph", "--connect-timeout=10", "status")).root(),
		fixed("ceph_health", "What is wrong with Ceph, in detail", hosts, program("ceph", "--connect-timeout=10", "health", "detail")).root(),
		fixed("ceph_disks", "Fill and state of Ceph's disks", hosts, program("ceph", "--connect-timeout=10", "osd", "df", "tree")).root(),
		fixed("zpool_status", "State of ZFS pools, errors included", hosts, program("zpool", "status", "-v")),
		fixed("zpool_list", "Size, fill and fragmentation of ZFS pools", hosts, program("zpool", "list", "-p")),
		fixed("zfs_list", "ZFS file systems and volumes with the space they take", hosts, program("zfs", "list", "-p", "-t", "filesystem,volume", "-o", "name,used,avail,refer,usedbysnapshots,quota,mountpoint")),
		fixed("raid", "State of software RAID", hosts, program("cat", "/proc/mdstat")),
		fixed("volumes", "Logical volumes, the fill of thin pools included", hosts, program("lvs", "--all", "--units=b", "--options=vg_name,lv_name,lv_attr,lv_size,data_percent,metadata_percent,pool_lv")).root(),
		fixed("volume_groups", "Volume groups with their free space", hosts, program("vgs", "--units=b", "--options=vg_name,pv_count,lv_count,vg_attr,vg_size,vg_free")).root(),
		{Name: "smart", Summary: "Health and attributes of a disk; one that sleeps is left asleep", Where: hosts, Root: true, Args: []Arg{{Name: "disk", Kind: Device, Summary: "such as /dev/sda or /dev/nvme0", Required: true}}, build: func(v values) Invocation {
			i := program("smartctl", "-n", "standby,0", "-i", "-H", "-A", "-l", "error", "--", v["disk"])
			// The exit code is made of bits; of them only the lowest two say that there is no answer.
			for code := 4; code < 256; code += 4 {
				i.OK = append(i.OK, code)
			}
			return i
		}},
		fixed("vm_list", "VMs of this node with state and memory", hosts, program("qm", "list")).root(),
		fixed("ct_list", "Containers of this node with state and lock", hosts, program("pct", "list")).root(),
		fixed("replication_status", "State of the replication jobs of this node", hosts, program("pvesr", "status")).root(),
		fixed("temperatures", "What the sensors of the node say", hosts, program("sensors", "-A")),
	}
}
