package command

import (
	"maps"
	"strings"
)

// readers only read and print, whatever their arguments.
var readers = strings.Fields(`: true false test [ echo printf pwd read local return exit shift wait type which whereis whoami id uname uptime ls dir vdir cat tac head tail
	grep egrep fgrep zgrep wc cut tr ps free df du stat file readlink realpath dirname basename printenv lsblk lscpu lspci lsusb lsof netstat ping ping6
	traceroute tracepath mtr dig host nslookup last lastlog w who findmnt blkid pvs vgs lvs pvdisplay lvdisplay vgdisplay pvscan vgscan lvscan sensors nproc getent cmp diff md5sum
	sha1sum sha224sum sha256sum sha384sum sha512sum b2sum cksum sum od hexdump strings base64 base32 jq column nl rev fold comm join seq sleep expr vmstat iostat mpstat pidstat
	pgrep pidof locate apropos whatis zcat bzcat xzcat lz4cat zstdcat pveversion pveperf lsmod modinfo getfacl lsattr tty groups users arch tput cal numfmt tsort paste
	lsns lsipc lsmem lslocks lslogins numastat getconf locale getopts break continue times ulimit umask jobs hash unset export declare typeset readonly let
	iotop htop atop nload iftop acpi dmidecode lshw hwinfo needrestart pmgversion proxmox-boot-tool-status zstreamdump zdb-l mdstat bc yes logname hostid pathchk chronyc-tracking
	dpkg-query apt-cache apt-config rpmquery cd-info isoinfo cd pushd popd dirs`)

type prefixRule struct {
	prefix string
	rule   func(*call)
}

func prefixes() []prefixRule {
	always := func(c *call) { c.high("%s destroys what was there", brief(c.name)) }
	return []prefixRule{{"mkfs", always}, {"mkdosfs", always}, {"mkntfs", always}, {"mke2fs", always}, {"mkswap", always}, {"ld-linux", loader}, {"ld.so", loader}, {"ld-musl", loader},
		{"proxmox-backup-", toolOf("list status show version get help snapshots ls task", "remove forget prune delete update-acl restart unmount gc garbage-collection destroy wipe initialize format")},
		{"pg_", func(c *call) { c.medium("%s is not known to only read", c.name) }}}
}

// loader: the dynamic linker starts the program that it is given.
func loader(c *call) {
	o := c.operands()
	if len(o) > 0 {
		c.rest(o)
	}
	if c.flag("", "--preload", "--library-path") {
		c.high("it loads other libraries")
	}
}

// rules judge commands by their arguments.
func rules() map[string]func(*call) {
	m := map[string]func(*call){}
	add := func(names string, rule func(*call)) {
		for _, n := range strings.Fields(names) {
			m[n] = rule
		}
	}
	destroys := func(c *call) { c.high("%s destroys data", brief(c.name)) }
	add("dd shred wipe srm blkdiscard badblocks scrub secure-delete sfill sswap mkfs ddrescue dcfldd pvcreate vgcreate", destroys)
	add("lvremove vgremove pvremove lvreduce vgreduce dropdb dropuser", func(c *call) { c.high("%s removes storage", c.name) })
	add("cfdisk gdisk cgdisk", func(c *call) { c.high("it changes partitions") })
	add("sh bash dash zsh ksh ash mksh rbash fish csh tcsh yash busybox-sh", shell)
	add("source .", sourced)
	add("rm", rm)
	add("rmdir unlink", func(c *call) { c.writesAll("what is removed"); c.medium("%s removes a file or folder", c.name) })
	add("find", find)
	add("fd fdfind", func(c *call) {
		if c.flag("xX", "--exec", "--exec-batch") {
			c.high("fd runs a command on what it finds")
		}
	})
	add("wipefs", func(c *call) {
		if len(c.args) > 0 && !c.flag("n", "--no-act") {
			if c.flag("aot", "--all", "--offset", "--types", "--force") || c.unknown {
				c.high("wipefs destroys signatures")
			}
		}
	})
	add("fdisk sfdisk", listing("-l --list -d --dump -x -s --show-size -V --verify -F --list-free --json -J", "it changes partitions"))
	add("sgdisk", listing("-p --print -i -v --verify -O", "it changes partitions"))
	add("parted", func(c *call) {
		if !c.has("print", "-l", "--list", "unit") || c.has("mklabel", "mktable", "mkpart", "rm", "resizepart", "rescue", "set", "toggle", "name") {
			c.high("it changes partitions")
		}
	})
	add("cryptsetup", toolOf("luksDump luksUUID isLuks status benchmark", "*"))
	add("dmsetup", toolOf("ls info status table deps version targets", "*"))
	add("mdadm", func(c *call) {
		if !c.flag("DEQ", "--detail", "--examine", "--query", "--examine-bitmap") || c.flag("CASGrf", "--create", "--assemble", "--stop", "--grow", "--zero-superblock", "--remove", "--fail", "--add") {
			c.high("it changes an array")
		}
	})
	add("zpool", toolOf("list status get history iostat events", "destroy labelclear remove detach offline clear export split initialize trim rollback create upgrade"))
	add("zfs", toolOf("list get holds diff userspace groupspace", "destroy rollback receive recv rename promote unmount umount inherit key unload-key"))
	add("lvm", func(c *call) {
		if o := c.operands(); len(o) > 0 {
			c.rest(o)
		} else {
			c.high("lvm reads its commands from elsewhere")
		}
	})
	add("btrfs", func(c *call) {
		c.byVerb([]string{"filesystem", "subvolume", "device", "scrub", "qgroup", "inspect-internal"}, []string{"check", "rescue", "restore", "receive", "replace", "balance"})
		if c.has("delete", "del", "remove", "snapshot", "create", "add", "resize", "defragment", "set-default") {
			c.high("it changes a file system's parts")
		}
	})
	add("ceph", func(c *call) {
		c.byVerb([]string{"status", "-s", "health", "df", "quorum_status", "versions", "log", ""}, []string{"fs"})
		if !c.has("ls", "tree", "stat", "dump", "df", "perf", "get") || c.has("rm", "purge", "destroy", "out", "down", "delete", "set", "remove", "add", "reweight", "crush", "unset", "--yes-i-really-mean-it", "--yes-i-really-really-mean-it") {
			if c.verb() != "status" && c.verb() != "health" && c.verb() != "df" && c.verb() != "" && c.verb() != "versions" && c.verb() != "quorum_status" {
				c.high("it changes the Ceph cluster")
			}
		}
	})
	add("rbd rados", toolOf("ls list info status df lspools du showmapped stat get", "rm remove purge rollback cleanup trash rmpool deep resize migration merge-diff import"))
	add("nvme", toolOf("list smart-log id-ctrl id-ns error-log list-subsys version", "*"))
	add("hdparm", func(c *call) {
		if c.flag("", "--security-erase", "--security-erase-enhanced", "--write-sector", "--make-bad-sector", "--trim-sector-ranges", "--fwdownload", "--yes-i-know-what-i-am-doing") || hasPrefix(c, "--security", "--write", "--trim", "--make", "--fwdownload", "--dco") {
			c.high("it destroys data on a disk")
		} else {
			c.medium("it may change a disk's settings")
		}
	})
	add("debugfs", func(c *call) {
		if c.flag("w") {
			c.high("it writes to a file system behind its back")
		} else {
			c.medium("it opens a file system")
		}
	})
	add("truncate", func(c *call) { c.high("truncate cuts off a file's content") })
	add("fallocate", func(c *call) {
		if c.flag("pcz", "--punch-hole", "--collapse-range", "--zero-range") {
			c.high("it takes away a file's content")
		}
		c.medium("it makes a file larger")
	})
	add("chmod chown chgrp chattr setfacl", modes)
	add("setcap", func(c *call) { c.high("it gives a program rights of root") })
	add("iptables ip6tables ebtables arptables", iptables)
	add("iptables-restore ip6tables-restore ebtables-restore", func(c *call) { c.high("it replaces the firewall's rules") })
	add("nft", func(c *call) {
		c.byVerb([]string{"list", "describe", "monitor"}, []string{"flush", "delete", "destroy", "reset", "replace", "insert"})
		if c.flag("fi", "--file", "--interactive") {
			c.high("it runs commands that are not told here")
		}
		if s, _ := text(c.args); strings.Contains(s, "flush") || strings.Contains(s, "delete") || strings.Contains(s, "destroy") {
			c.high("it takes away firewall rules")
		}
	})
	add("ipset", toolOf("list test save", "flush destroy del restore swap rename"))
	add("ufw", toolOf("status show version app", "disable reset delete enable default"))
	add("firewall-cmd", func(c *call) {
		if hasPrefix(c, "--panic", "--reload", "--complete-reload", "--remove", "--delete", "--set-default") {
			c.high("it takes away firewall rules")
		} else if !hasPrefix(c, "--list", "--state", "--get", "--query", "--info") {
			c.medium("it changes the firewall")
		}
	})
	add("pve-firewall", toolOf("status compile localnet simulate", "stop"))
	add("userdel groupdel deluser delgroup", func(c *call) { c.high("it removes an account or group") })
	add("passwd", func(c *call) {
		if !c.flag("S", "--status") || c.flag("dlue", "--delete", "--lock", "--unlock", "--expire") {
			c.high("it changes who can sign in")
		}
	})
	add("chpasswd newusers vipw vigr visudo chsh gpasswd pwconv pwunconv grpconv grpunconv faillock pam-auth-update authselect ssh-copy-id update-passwd", func(c *call) { c.high("it changes who can sign in") })
	add("useradd usermod adduser addgroup groupadd groupmod", accounts)
	add("crontab", func(c *call) {
		switch {
		case c.flag("r", "-r"):
			c.high("it removes all scheduled commands")
		case !c.flag("l", "-l"):
			c.high("it replaces the scheduled commands")
		}
	})
	add("kill", kill)
	add("killall pkill skill snice xkill", func(c *call) { c.medium("it ends processes by name") })
	add("killall5", func(c *call) { c.high("it ends every process") })
	add("fuser", func(c *call) {
		if c.flag("k", "--kill") {
			c.high("it ends whatever uses a file")
		}
	})
	add("shutdown reboot halt poweroff init telinit kexec pm-suspend pm-hibernate", func(c *call) {
		if c.has("--help", "--version", "--show") && len(c.args) == 1 {
			return
		}
		c.high("%s stops or restarts the machine", c.name)
	})
	add("systemctl", systemctl)
	add("service", func(c *call) {
		o := c.operands()
		switch {
		case c.has("--status-all") || len(o) > 1 && o[len(o)-1].text == "status":
		case len(o) > 0 && vital(o[0].text) && c.has("stop", "restart"):
			c.high("it stops %s", brief(o[0].text))
		default:
			c.medium("it changes the state of a service")
		}
	})
	add("ip", ip)
	add("ifdown ifquery-down", func(c *call) { c.high("it takes a network down") })
	add("ifconfig", func(c *call) {
		if c.has("down", "del", "delete", "0.0.0.0") {
			c.high("it takes a network down")
		} else if len(c.operands()) > 1 {
			c.medium("it changes a network interface")
		}
	})
	add("route", func(c *call) {
		if c.has("del", "delete", "flush") {
			c.high("it takes away a route")
		} else if c.has("add", "change", "replace") {
			c.medium("it changes routes")
		}
	})
	add("brctl ovs-vsctl", toolOf("show showmacs showstp list list-br list-ports get find", "delbr delif del-br del-port emer-reset del-controller destroy"))
	add("nmcli", func(c *call) {
		if c.has("down", "delete", "off", "disconnect", "del") {
			c.high("it takes a network down")
		} else if c.has("up", "add", "modify", "edit", "set", "on", "reload", "connect") {
			c.medium("it changes the network")
		}
	})
	add("ethtool", func(c *call) {
		if c.flag("sKCGAUXEfrLNpW") {
			c.medium("it changes a network card")
		}
	})
	add("ss", func(c *call) {
		if c.flag("K", "--kill") {
			c.high("it ends connections")
		}
	})
	add("apt apt-get aptitude dnf yum zypper apk", toolOf("list show search policy info check depends rdepends changelog download madison repolist history provides whatprovides check-update", "remove purge autoremove autopurge erase del dist-upgrade full-upgrade distro-sync reinstall-from swap downgrade rm remove-pkgs dup"))
	add("dpkg", func(c *call) {
		switch {
		case c.flag("rP", "--remove", "--purge"):
			c.high("it removes software")
		case c.flag("ilx", "--force-all") && hasPrefix(c, "--force"):
			c.high("it forces a change of software")
		case !c.flag("lLsSpICVc", "--list", "--listfiles", "--status", "--search", "--print-avail", "--info", "--audit", "--verify", "--contents", "--print-architecture", "--get-selections") || c.flag("i", "--install", "--configure", "--unpack", "--set-selections", "--clear-selections"):
			c.medium("it changes software")
		}
	})
	add("rpm", func(c *call) {
		if c.flag("e", "--erase") {
			c.high("it removes software")
		} else if !c.flag("qV", "--query", "--verify") {
			c.medium("it changes software")
		}
	})
	add("pacman", func(c *call) {
		if c.flag("R") {
			c.high("it removes software")
		} else if !c.flag("Q") {
			c.medium("it changes software")
		}
	})
	add("python perl ruby php lua tclsh node deno osascript pwsh powershell cmd wscript cscript mshta rundll32 regsvr32 gdb expect R julia irb groovy scala", interpreter)
	add("awk gawk mawk nawk", awk)
	add("sed", sed)
	add("ed ex vi vim nvim view emacs nano pico joe", func(c *call) {
		if c.flag("cS", "-c", "--cmd", "-e", "--eval") || hasPrefix(c, "+") || c.inv.fed {
			c.high("an editor runs commands that are given to it")
		}
		c.writesAll("the edited file")
		c.medium("it opens an editor")
	})
	add("tee sponge", func(c *call) { c.writesAll("the output") })
	add("cp install ln rsync scp", copies)
	add("mv", func(c *call) { c.unsureTarget(); c.writesAll("what is moved"); c.medium("it moves or renames files") })
	add("touch mkdir mkfifo mknod split csplit", func(c *call) { c.writesAll("a file or folder"); c.medium("it makes files or folders") })
	add("tar bsdtar", tar)
	add("unzip 7z 7za cpio pax ar gzip gunzip bzip2 xz zstd lz4 unxz zip", func(c *call) {
		if c.flag("", "--unzip-command", "-TT", "--to-command") || c.has("-TT") {
			c.high("it runs a command")
		}
		if d := c.after("-d"); d != "" {
			c.j.writes(d, "what is unpacked")
		}
		c.medium("it packs or unpacks files")
	})
	add("patch", func(c *call) { c.writesAll("what is patched"); c.medium("it changes files") })
	add("less more most man info", func(c *call) {
		if hasPrefix(c, "+", "-P", "--pager", "-k", "-o", "-O") || c.name == "man" && c.flag("PHB") {
			c.high("a pager runs commands that are given to it")
		}
	})
	add("sort", func(c *call) {
		if hasPrefix(c, "--compress-program", "--comp") {
			c.high("sort runs another program")
		}
		c.output("o", "--output")
	})
	add("shuf tree xxd uniq", func(c *call) {
		c.output("o", "--output")
		if (c.name == "uniq" || c.name == "xxd") && len(c.operands()) > 1 {
			c.j.writes(c.operands()[1].text, "the output")
		}
	})
	add("yq", func(c *call) {
		if c.flag("i", "--inplace", "--in-place") {
			c.writesAll("the file")
			c.medium("it changes a file")
		}
	})
	add("rg ag ack", func(c *call) {
		if hasPrefix(c, "--pre", "--pager", "--hostname-bin", "--output") {
			c.high("a search runs another program")
		}
	})
	add("date", func(c *call) {
		if c.flag("s", "--set") || len(c.operands()) > 0 && !strings.HasPrefix(c.operands()[0].text, "+") {
			c.medium("it sets the clock")
		}
	})
	add("hostname domainname", func(c *call) {
		if len(c.operands()) > 0 || c.flag("bF") {
			c.medium("it changes the machine's name")
		}
	})
	add("timedatectl hostnamectl localectl", func(c *call) {
		if v := c.verb(); strings.HasPrefix(v, "set") || strings.HasPrefix(v, "revert") {
			c.medium("it changes settings of the system")
		}
	})
	add("loginctl", toolOf("list-sessions list-users list-seats show-session show-user session-status user-status", "terminate-session terminate-user kill-session kill-user lock-sessions"))
	add("resolvectl networkctl", toolOf("status query statistics list lldp", "revert down delete"))
	add("journalctl", func(c *call) {
		if hasPrefix(c, "--vacuum", "--rotate", "--flush", "--relinquish", "--setup-keys", "--update") {
			if hasPrefix(c, "--vacuum") {
				c.high("it deletes logs")
			}
			c.medium("it changes the journal")
		}
	})
	add("dmesg", func(c *call) {
		if c.flag("cCDEn", "--clear", "--read-clear", "--console-off") {
			c.medium("it clears or changes the kernel's log")
		}
	})
	add("sysctl", func(c *call) {
		if c.flag("wp", "--write", "--load", "--system") || hasInfix(c, "=") {
			c.medium("it changes the kernel's settings")
		}
	})
	add("modprobe insmod rmmod depmod", func(c *call) { c.high("it changes what the kernel runs") })
	add("mount", func(c *call) {
		if len(c.operands()) > 0 {
			c.unsure()
			if c.flag("", "--bind", "--move", "--rbind") || hasInfix(c, "remount") {
				c.high("it changes what stands where in the file system")
			}
			c.medium("it mounts a file system")
		}
	})
	add("smartctl", func(c *call) {
		if c.flag("ts", "--test", "--smart", "--set", "--offlineauto") {
			c.medium("it changes or tests a disk")
		}
	})
	add("pvesm", toolOf("status list path scan apiinfo cifsscan nfsscan lvmscan zfsscan export", "free remove prune-backups set add import"))
	add("pvesh", func(c *call) { c.byVerb([]string{"get", "ls", "usage"}, []string{"delete", "create", "set"}) })
	add("pvecm", toolOf("status nodes keygen-status mtunnel", "delnode expected add create updatecerts qdevice"))
	add("pveum pmgsh pveceph", func(c *call) {
		c.byVerb([]string{"status", "usage", "help", "user", "acl", "role", "group", "realm", "pool", "osd", "mon"}, []string{"passwd", "aclmod", "aclmodify", "useradd", "userdel", "usermod", "roledel", "roleadd", "rolemod", "purge", "destroy", "createosd", "destroyosd", "init", "stop"})
		if c.has("delete", "modify", "add", "remove", "destroy", "create", "out", "del", "token", "tfa") {
			c.high("it changes access or storage")
		}
	})
	add("ha-manager", toolOf("status config", "remove set migrate crm-command stop"))
	add("pvesr", toolOf("status list read", "delete disable"))
	add("pmxcfs pveproxy pvedaemon", func(c *call) { c.high("it starts or stops a part of the platform") })
	add("virsh", toolOf("list dominfo domstate nodeinfo version dumpxml domblklist vol-list pool-list net-list", "destroy undefine shutdown vol-delete pool-destroy pool-delete snapshot-delete snapshot-revert net-destroy reset managedsave-remove blockpull"))
	add("curl wget aria2c fetch", func(c *call) {
		if hasPrefix(c, "--use-askpass", "-K", "--config", "--execute") {
			c.high("it takes options that are not told here")
		}
		c.output("oO", "--output", "--output-document")
		c.medium("it talks to another machine")
	})
	add("nc ncat netcat socat telnet", func(c *call) {
		if c.flag("ec", "--exec", "--sh-exec", "--lua-exec") || hasInfix(c, "exec:", "EXEC:", "system:", "SYSTEM:", "shell:", "SHELL:") {
			c.high("it gives a command to whoever connects")
		}
		c.medium("it talks to another machine")
	})
	add("psql", database("c", "--command", "f", "--file"))
	add("mysql mariadb", database("e", "--execute", "", ""))
	add("sqlite3", func(c *call) {
		o := c.operands()
		for _, a := range o[min(1, len(o)):] {
			c.query(a)
		}
		c.queryFed(len(o) > 1)
	})
	add("redis-cli", func(c *call) {
		s, _ := text(c.args)
		s = strings.ToUpper(s)
		for _, w := range []string{"FLUSH", "SHUTDOWN", "CONFIG", "DEBUG", "EVAL", "SCRIPT", "MODULE", "DEL", "UNLINK", "REPLICAOF", "SLAVEOF", "FUNCTION", "MIGRATE", "RESTORE", "SAVE", "ACL", "CLUSTER", "FAILOVER"} {
			if strings.Contains(s, w) {
				c.high("it may delete or change everything (%s)", w)
			}
		}
		c.medium("it talks to a database")
	})
	add("mongo mongosh", func(c *call) { c.high("it runs code in a database") })
	add("mysqladmin", toolOf("status ping version processlist variables extended-status", "drop shutdown flush-hosts kill password reload"))
	add("swapoff umount", func(c *call) { c.medium("%s takes something out of use", c.name) })
	add("git svn hg", toolOf("status log diff show branch remote blame ls-files rev-parse describe", "clean reset filter-branch"))
	m["set"] = func(*call) {}
	m["cd"] = cd
	m["pushd"] = cd
	maps.Copy(m, optionRules())
	return m
}

func cd(c *call) {
	o := c.operands()
	switch {
	case len(o) == 0:
		c.j.cwd = "/home/someone"
	case o[0].unknown || o[0].text == "-":
		c.j.cwd = ""
	default:
		c.j.cwd = c.j.placed(o[0].text)
	}
}

// toolOf makes a rule for a command whose first operand says what it does.
func toolOf(low, high string) func(*call) {
	l, h := strings.Fields(low), strings.Fields(high)
	return func(c *call) { c.byVerb(l, h) }
}

// byVerb: verbs that only read are low, those that destroy are high ("*": all others), the rest is medium.
func (c *call) byVerb(low, high []string) {
	for _, a := range c.args {
		if a.unknown {
			if c.verb() == "" {
				c.high("what %s does is filled in when it runs", c.name)
				return
			}
			break
		}
		if !strings.HasPrefix(a.text, "-") {
			break
		}
	}
	v := c.verb()
	for _, o := range c.operands() {
		for _, w := range high {
			if o.text == w && (o.text == v || len(w) > 3) {
				c.high("%s %s", c.name, w)
				return
			}
		}
	}
	switch {
	case v == "" && len(c.operands()) == 0 || contains(low, v):
	case contains(high, "*"):
		c.high("%s %s", c.name, brief(v))
	default:
		c.medium("%s %s changes something", c.name, brief(v))
	}
}

// listing makes a rule for a command that only reads with one of these options.
func listing(options, otherwise string) func(*call) {
	list := strings.Fields(options)
	return func(c *call) {
		if len(c.args) == 0 || !c.has(list...) || c.flag("", "--delete", "--wipe", "--zap", "--zap-all") || c.inv.fed {
			c.high("%s", otherwise)
			return
		}
		for _, a := range c.args {
			if a.unknown || strings.HasPrefix(a.text, "-") && !contains(list, a.text) {
				c.high("%s", otherwise)
			}
		}
	}
}

func hasPrefix(c *call, prefixes ...string) bool {
	for _, a := range c.args {
		for _, p := range prefixes {
			if strings.HasPrefix(a.text, p) {
				return true
			}
		}
	}
	return false
}

func hasInfix(c *call, parts ...string) bool {
	for _, a := range c.args {
		for _, p := range parts {
			if strings.Contains(a.text, p) {
				return true
			}
		}
	}
	return false
}

// after is the value of an option.
func (c *call) after(option string) string {
	for i, a := range c.args {
		if a.text == option && i+1 < len(c.args) {
			return c.args[i+1].text
		}
		if v, ok := strings.CutPrefix(a.text, option+"="); ok {
			return v
		}
		if v, ok := strings.CutPrefix(a.text, option); ok && len(option) == 2 && v != "" {
			return v
		}
	}
	return ""
}

// output judges the file that an option names.
func (c *call) output(short string, long ...string) {
	for i, a := range c.args {
		for _, l := range long {
			if v, ok := strings.CutPrefix(a.text, l+"="); ok {
				c.j.writes(v, "the output")
			} else if a.text == l && i+1 < len(c.args) {
				c.j.writes(c.args[i+1].text, "the output")
			}
		}
		for _, s := range short {
			if v, ok := strings.CutPrefix(a.text, "-"+string(s)); ok {
				if v == "" && i+1 < len(c.args) {
					v = c.args[i+1].text
				}
				c.j.writes(v, "the output")
			}
		}
	}
}

// writesAll judges every operand as a file that is written.
func (c *call) writesAll(what string) {
	for _, o := range c.operands() {
		if o.unknown {
			c.high("a file that %s changes is filled in when it runs", c.name)
			continue
		}
		c.j.writes(o.text, what)
	}
}

func (c *call) unsureTarget() {
	if o := c.operands(); len(o) > 0 && o[len(o)-1].unknown {
		c.high("where %s writes is filled in when it runs", c.name)
	}
}
