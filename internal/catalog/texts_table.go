package catalog

// boundedNames are fields whose values are identifiers, states, addresses, times and options: what may stand in them is
// bounded by the product. Numbers at the end (net0) do not count. A value that is none after all counts as free text.
const boundedNames = `
	Key backend-type interfaces redistribute Arch Components ManagerVersion NotifyStatus OldVersion Origin Package Priority RunningKernel Section Suites URIs Version access-key account acme
	acmedomain acpi acr-values action active active-encryption-key active-state addr address address6 affinity agent alert-flags allocation allowed-nodes
	allowed-tags allowed_ips allowed_nodes altnames amd-sev answer-id api arch area assigned-key associated-key audiences audio0 auth-id authentication-type authid authorized authorized-tokens autostart avail back_addr backend backing-device backup-id backup-time backup-type balloon base-dn bind-dn
	bios bond-primary boot bootdisk bridge bridge_ports bridge_vids bucket build_time burst-in burst-out bwlimit caaIdentities capath cdrom ceph_release
	ceph_version ceph_version_short cgroup-mode changer channel checksum-list cicustom cidr cidr6 ciphers-tls-1.2 ciphers-tls-1.3 ciuser class client
	client-id client-key cluster cmode code config_digest console content content-list content-type controller cores counter-reset-schedule country cpu
	cpulimit cputype cpuunits created-by creation_time crm_state crs crush_rule crush_rule_name crypt-mode ctime current current-key data_pool data_pools
	datastore debian-version delay dependent-ha-resources desc-id dest destination dev dev_node device device_ids device_name device_paths devices devpath
	digest directory disk disk-list disk-mode diskread diskwrite dns dns1 dns2 dns3 dnszone domain dport drive dstatus dumpdir ecdsa ed25519 efidisk0
	email-from email_from enabled encrypt encrypted encryption-key encryption-key-fingerprint endpoint endtime exclude exclude-path exit-action exitnodes
	exitnodes-primary exitstatus export-slots fabric_id features file-format filename filesystem filter fingerprint flags format fqdn freeze from from-address front_addr fs_name fsid fullest-pool gateway gateway6 gc-schedule group group-filter group-id groupid groups ha handle hardware-address
	hastate hb_back_addr hb_front_addr health hookscript host hostname hostpci hostrsapubkey hotplug http-proxy http_proxy hugepages hv-vendor-id hwaddr
	icmp-type id ide iface include index inet inet6 intel-tdx ip ip-address ip-address-type ip6 ip6_prefix ip_prefix ipam ipconfig isis-domain isis-ifaces
	isis-net isorelease issuer-url ivshmem key keyboard kind kversion kvm label-text last-run-state last-run-upid layout level link link-type loadavg
	local local_resources localtime location lock lock-token log_ratelimit loopback lv lv_name lv_path lv_uuid lxc mac mac_prefix machine machine-id macro
	mailto mailto-user maintenance maintenance-mode manufacturer map mapped-resources mask match match-calendar match-field match-severity maxcpu maxdisk
	maxmem media-set-name media-set-uuid mem members memory meta metadata_pool method metric mgr-active mgr-standbys migration mimetype mode model mp name
	nameserver namespace neighbor net netin netmask netout network next-due-date next-id next-media-label next-run nextduedate nexthop nexthops
	nf_conntrack_helpers node node_id nodeid nodes notify notify-user ns numa numa_array onboot origin-node osd_data osd_objectstore ostype ovs_bonds
	ovs_bridge ovs_options ovs_ports owner parallel parent path peer-group-name peers pem pending-state performance pg_autoscale_mode phys-bits
	physical_device pid plugin plugintype pmail policy pool pool_name poolid port portal post-hook-base-url post-hook-cert-fp preferred_node privs prodid
	product product-name productname property protected protection proto protocol prune-backups prune-schedule pstart public-key-type public_key pve_addr
	pve_fp pveversion qid qmpstatus quorate rate-in rate-out realm realm-type reboot ref regdate region registered-tags relay release remote remote-ns
	remote-store remotes remove-vanished replication repoid request_state retention reversedns revision ring0_addr rng0 role roleid rootfs rootrsapubkey
	route route-map-id rp rsa rstatus rt-import running running-machine running-nets-host-mtu running-qemu runningcpu runningmachine san sata schedule
	scope scopes script scsi scsihw sdn searchdomain secondary-controllers secret section serial server server1 server2 serverid service set severity
	share shared shares sid size slaves smbios1 snapname snapshot snapstate snaptime socket sockets source speed spice_enhancements sport ssl_fingerprint
	startdate starttime startup state status storage store sub-state subdir subscription-key subsystem_device subsystem_device_name subsystem_vendor
	subsystem_vendor_name supported-on swap sync-attributes sync-defaults-options sysname tablet tag-style tags target target_size template ticket-state
	timeframe timezone tmpdir token token-name tokenid tos total tpmstate0 tty tuning type u2f ugid unavailable_storages unit-state unitfile unprivileged
	unused update_version upid uplink-id uptime url usb usbpath used used_fraction user user-attr user-classes user-tag-access userid username-claim users
	utc uuid vcpus vendid vendor vendor_name verification version vg vg_name vga via virtio virtiofs vlan-raw-device vlan_filtering vlans vmgenid vmid
	vmstate vmstatestorage vnet volid vsize vxlan-local-tunnelip vxlan-physdev vxlan-svcnodeip wakeonlan watchdog web-url webauthn worker_id worker_type
	wwn zone zone-type
	armed-state bridge_fd bridge_stp cluster_name cmd compress drivename export families family ip_version keep-all keep-daily keep-hourly keep-last keep-monthly keep-weekly keep-yearly
	link_mode linknumber mhz mountpoint network-type ordering pbs-library-version policy_in policy_out pos pressurecpufull pressurecpusome pressureiofull pressureiosome pressurememoryfull pressurememorysome
	quorum_votes resources base portal thinpool vgname saved secauth shape subnet subtype wearout`

// freeNames are fields that hold what people and programs wrote. A name in neither list counts as one of these; the
// list is there so that a name that is new in the API is looked at.
const freeNames = `
	Values Comment Description ExtraInfo Title alias application_list args author body call changes cipassword comment comments comments6 consent-text contact
	data desc descr description display-name dn email entrypoint env envelope_sender err-data error errors field filepath files firstname fleecing frr-diff fullname header hint info interfaces-diff issuer keys lastname logs mail master-pubkey message msg msgid notes notes-template notification-thresholds options options6 orders organization origin out-data pass password payload pbs-instance-id pending post-hook-token profile prompt raw
	reason receiver record root-password-hashed root-ssh-keys route_filter rule scan search selector sender signature site sshkeys state-name statusmsg
	subject summary t termsOfService text to username value virusinfo virusname website`

// authors say who writes the free text of a read; the first that matches counts.
var authors = []struct{ products, path, who string }{
	{"", "/**/qemu|lxc/*/config|pending", "whoever may edit the guest"},
	{"", "/**/qemu|lxc/*/snapshot/**", "whoever takes snapshots of the guest"},
	{"pve", "/nodes/*/qemu/*/agent/**", "what runs inside the guest"},
	{"pve", "/nodes/*/qemu/*/cloudinit/**", "whoever may edit the guest"},
	{"", "/**/tasks/*/log|status", "programs that the task ran"},
	{"", "/**/tasks|tasks-archive/**", "programs that tasks ran"},
	{"", "/**/syslog|journal|log|report/**", "programs on the host, and whoever talks to them"},
	{"", "/**/firewall/**", "whoever may edit the firewall, and the senders of what it logs"},
	{"", "/**/apt/**", "the makers of packages"},
	{"", "/**/storage/*/content|file-restore/**", "whoever makes or uploads backups and files"},
	{"", "/nodes/*/vzdump/extractconfig", "whoever made the backup"},
	{"", "/nodes/*/scan|query-url-metadata|query-oci-repo-tags/**", "another server"},
	{"pbs", "/config/remote/*/scan/**", "another backup server"},
	{"pbs", "/admin/datastore/*/**", "whoever makes backups"},
	{"pbs", "/reader|backup|tape/**", "whoever makes backups"},
	{"pmg", "/quarantine|statistics/**", "the senders of mail"},
	{"pmg", "/nodes/*/tracker|postfix/**", "the senders of mail"},
	{"pmg", "/config/ldap/**", "the directory server"},
	{"", "/access/**", "whoever may edit accounts"},
	{"", "/pools/**", "whoever may edit pools"},
	{"pdm", "/pve|pbs|resources|remotes|remote-tasks/**", "other sites, and whoever may edit what is there"},
	{"", "/cluster/**", "whoever may edit the cluster's settings"},
	{"", "/config/**", "whoever may edit the settings"},
	{"", "/nodes/**", "whoever may edit the node's settings, and programs on it"},
}

// freeText tells the operations whose whole answer counts as free text: logs, mail, output of commands, files, and what
// guests and other servers say. Of other reads the fields decide.
func freeText(op *Operation) bool {
	if op.Method != "GET" {
		return matchPath("/nodes/*/qemu/*/monitor|agent/**", op.Path) || matchPath("/**/postfix/**", op.Path)
	}
	for _, pattern := range freeTextPaths {
		if matchPath(pattern, op.Path) {
			return true
		}
	}
	return false
}

var freeTextPaths = []string{
	"/**/log", "/**/syslog|journal|report|notes|group-notes", "/**/apt/changelog|update", "/nodes/*/qemu/*/agent/**", "/nodes/*/qemu/*/cloudinit/**",
	"/nodes/*/storage/*/file-restore/**", "/nodes/*/vzdump/extractconfig", "/nodes/*/query-url-metadata|query-oci-repo-tags", "/nodes/*/scan/*",
	"/nodes/*/storage/*/import-metadata", "/config/remote/*/scan/**", "/admin/datastore/*/catalog|download|download-decoded|pxar-file-download",
	"/reader/**", "/backup/**", "/tape/media/content", "/quarantine/**", "/nodes/*/tracker/**", "/nodes/*/postfix/**", "/statistics/**",
	"/nodes/*/pbs/*/snapshot/**", "/nodes/*/backup/*", "/auto-install/installations", "/config/ldap/*/groups|users/**",
}
