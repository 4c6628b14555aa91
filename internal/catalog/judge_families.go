package catalog

import (
	"slices"

	"castellan/internal/gate"
)

// paramRule judges the requests of one path family by their parameters and values.
type paramRule struct {
	products string
	methods  string
	path     string
	judge    func(*verdict)
}

// family returns the rule for the verdict's operation; nil means that parameters make no difference.
func (v *verdict) family() func(*verdict) {
	for _, r := range paramRules {
		if (familyRule{products: r.products, methods: r.methods, path: r.path}).matches(v.op) {
			return r.judge
		}
	}
	return nil
}

var paramRules = []paramRule{
	{"pve", "POST PUT", "/nodes/*/qemu|lxc/*/config", (*verdict).guestConfig},
	{"pve", "POST", "/nodes/*/qemu|lxc", (*verdict).guestCreate},
	{"pve", "POST", "/nodes/*/qemu|lxc/*/status/*", (*verdict).guestPower},
	{"pdm", "POST", "/pve/remotes/*/qemu|lxc/*/start|stop|shutdown|resume", (*verdict).guestPower},
	{"", "POST", "/**/qemu|lxc/*/migrate", (*verdict).migrate},
	{"", "POST", "/**/qemu|lxc/*/remote_migrate|remote-migrate", (*verdict).remoteMigrate},
	{"pve", "POST", "/nodes/*/qemu|lxc/*/move_disk|move_volume", (*verdict).moveDisk},
	{"pve", "PUT", "/nodes/*/qemu|lxc/*/resize", (*verdict).resize},
	{"", "PUT", "/**/qemu|lxc/*/snapshot/*/config", (*verdict).plain},
	{"pve", "POST", "/nodes/*/qemu/*/agent", (*verdict).agentCommand},
	{"pve", MethodRun, "/nodes/*/script", (*verdict).hostScript},
	{"pve", MethodRun, "/nodes/*/qemu|lxc/*/upgrade|repair", (*verdict).upgrade},
	// What a guest is set to is an ordinary read; passwords in it are masked by the server.
	{"", "GET", "/**/qemu|lxc/*/config|pending", (*verdict).plain},
	{"", "GET", "/**/qemu|lxc/*/snapshot/*/config", (*verdict).plain},
	{"pve", "GET", "/nodes/*/qemu/*/cloudinit", (*verdict).plain},

	{"pve", "POST", "/nodes/*/vzdump", (*verdict).backup},
	{"pve", "POST PUT", "/cluster/backup/**", (*verdict).backupJob},
	{"pve", "PUT DELETE", "/cluster/replication/*", (*verdict).replication},
	{"pve", "PUT", "/nodes/*/storage/*/content/*", (*verdict).protection},
	{"pbs", "PUT", "/admin/datastore/*/protected", (*verdict).protection},
	{"pve", "POST", "/nodes/*/storage/*/upload|download-url", (*verdict).storageFile},
	{"pve", "POST PUT", "/storage/**", (*verdict).storage},
	{"pve", "PUT", "/cluster/options", (*verdict).clusterOptions},
	{"pve pbs pdm", "PUT", "/nodes/*/config", (*verdict).nodeOptions},
	{"pve", "PUT", "/pools/**", (*verdict).pool},

	{"", "POST", "/access/domains/*/sync", (*verdict).orDryRun},
	{"pbs", "POST", "/admin/datastore/*/prune|prune-datastore", (*verdict).orDryRun},
	{"pve", "POST", "/nodes/*/ceph/restart-bulk", (*verdict).orDryRun},

	{"pbs", "POST PUT", "/config/sync|prune/**", (*verdict).retentionJob},
	{"pbs", "POST", "/pull|push", (*verdict).transfer},
	{"pbs", "POST PUT DELETE", "/config/datastore/**", (*verdict).datastore},
	{"pmg", "POST", "/quarantine/content", (*verdict).quarantine},
	{"pmg", "POST PUT", "/config/pbs/**", (*verdict).mailBackup},
	{"", "GET", "/**/tasks/*/log", (*verdict).download},
	{"", "GET", "/**/journal", (*verdict).download},
}

// each calls judge for every parameter that is not part of the path. A parameter whose value is not sure is
// taken at its worst, unless its name alone decides.
func (v *verdict) each(judge func(value), named ...string) {
	for _, x := range v.values() {
		if !x.sure && !slices.Contains(named, x.key) && len(secretsOf(v.op, x.key)) == 0 {
			v.worst()
			continue
		}
		judge(x)
	}
}

func (v *verdict) orDryRun() {
	if x, ok := v.value("dry-run"); ok && x.sure && len(x.texts) == 1 && isTrue(x.texts[0]) {
		v.harmless()
		return
	}
	v.whole()
}

// download: a log that is read is private text at most; as a download it is a file.
func (v *verdict) download() {
	for _, class := range v.union {
		if class != gate.ClassFile {
			v.add(class)
		}
	}
	if x, ok := v.value("download"); ok && x.on() {
		v.add(gate.ClassFile)
	}
	if len(v.kinds) == 0 {
		v.plain()
	}
}

func (v *verdict) agentCommand() {
	x, _ := v.value("command")
	command, ok := x.one()
	if !ok {
		v.worst()
		return
	}
	switch command {
	case "ping", "info", "fsfreeze-status", "get-fsinfo", "get-host-name", "get-memory-block-info", "get-memory-blocks", "get-osinfo",
		"get-time", "get-timezone", "get-vcpus", "network-get-interfaces":
		v.harmless()
	case "get-users":
		v.as(gate.ClassSout, gate.KindPrivate)
	case "fsfreeze-thaw", "fstrim":
		v.plain()
	case "shutdown":
		v.as(gate.ClassPower, gate.KindShutdown)
	case "suspend-disk", "suspend-ram", "suspend-hybrid", "fsfreeze-freeze":
		v.as(gate.ClassPower, gate.KindSuspend)
	default:
		v.worst()
	}
}

func (v *verdict) guestPower() {
	v.whole()
	v.each(func(x value) {
		switch x.name {
		case "forceStop", "skiplock":
			if x.on() {
				v.as(gate.ClassPower, gate.KindStop)
			}
		case "timeout", "overrule-shutdown", "debug", "todisk", "statestorage", "nocheck", "node", "keepActive":
		default: // what a migration tells the other node
			v.worst()
		}
	}, "node")
}

func (v *verdict) migrate() {
	v.whole()
	v.each(func(x value) {
		text, _ := x.one()
		switch x.name {
		case "force":
			if x.on() {
				v.worst()
			}
		case "migration_type", "migration-type":
			if text != "secure" {
				v.worst()
			}
		case "node", "target", "online", "restart", "timeout", "bwlimit", "with-local-disks", "targetstorage", "target-storage",
			"migration_network", "migration-network", "with-conntrack-state":
		default:
			v.worst()
		}
	}, "node", "target", "targetstorage", "target-storage")
}

// remoteMigrate keeps the source guest unless delete is on.
func (v *verdict) remoteMigrate() {
	for _, class := range v.union {
		if class != gate.ClassData && (class != gate.ClassSin || len(sentSecrets(v.op, v.r)) > 0) {
			v.add(class)
		}
	}
	if x, ok := v.value("delete"); ok && x.on() {
		v.add(gate.ClassData)
	}
}

// moveDisk keeps the old volume as unused unless delete is on; a move to another guest takes the disk away.
func (v *verdict) moveDisk() {
	v.plain()
	v.each(func(x value) {
		switch x.name {
		case "disk", "volume", "storage", "format", "bwlimit", "target-digest":
		case "delete":
			if x.on() {
				v.add(gate.ClassData)
			}
		default:
			v.add(gate.ClassData)
		}
	}, "disk", "volume", "storage")
}

// resize grows: neither kind of guest can be made smaller, and no call takes the growth back.
func (v *verdict) resize() {
	v.plain()
	v.each(func(x value) {
		switch x.name {
		case "disk", "size":
		default:
			if x.on() {
				v.add(gate.ClassData)
			}
		}
	}, "disk", "size")
}

// backup makes an archive. Old archives are removed by default, so only an explicit no keeps them.
func (v *verdict) backup() {
	v.plain()
	removes := true
	v.each(func(x value) {
		text, _ := x.one()
		switch x.name {
		case "remove":
			removes = x.on()
		case "prune-backups":
			if text != "keep-all=1" {
				v.add(gate.ClassData)
			}
		case "script", "dumpdir", "tmpdir":
			v.as(gate.ClassExec, gate.KindExec, gate.KindHost)
		case "mode":
			if text != "snapshot" { // suspends or stops the guest meanwhile
				v.as(gate.ClassPower, gate.KindReboot)
			}
		case "stop": // ends other backups that run
			if x.on() {
				v.add(gate.ClassPower)
			}
		case "mailto", "mailnotification":
			v.add(gate.ClassSend)
		case "vmid", "all", "exclude", "exclude-path", "pool", "storage", "bwlimit", "compress", "fleecing", "ionice", "lockwait", "node",
			"notes-template", "notification-mode", "pbs-change-detection-mode", "performance", "pigz", "protected", "quiet", "stdexcludes",
			"stopwait", "zstd":
		default: // stdout, job-id: for the product's own use
			v.worst()
		}
	}, "vmid", "storage", "pool", "node")
	if removes {
		v.add(gate.ClassData)
	}
}

// backupJob runs later what backup runs now; it is a safeguard itself.
func (v *verdict) backupJob() {
	v.add(gate.ClassGuard)
	removes := v.op.Method == "POST"
	v.each(func(x value) {
		switch x.name {
		case "remove":
			removes = x.on()
		case "prune-backups", "storage":
			if v.op.Method == "PUT" || x.name == "prune-backups" {
				v.add(gate.ClassData)
			}
		case "script", "dumpdir", "tmpdir":
			v.as(gate.ClassExec, gate.KindExec, gate.KindHost)
		case "mailto", "mailnotification":
			v.add(gate.ClassSend)
		case "mode":
			if text, _ := x.one(); text != "snapshot" {
				v.as(gate.ClassPower, gate.KindReboot)
			}
		case "delete":
			for _, key := range x.words() {
				if key == "remove" || key == "prune-backups" || key == "storage" {
					v.add(gate.ClassData)
				}
			}
		}
	}, "vmid", "pool", "node")
	if removes {
		v.add(gate.ClassData)
	}
}

// replication: a job that goes takes the copies on the other node with it, unless told to keep them.
func (v *verdict) replication() {
	keeps := v.op.Method == "PUT"
	v.each(func(x value) {
		switch x.name {
		case "keep":
			keeps = x.sure && len(x.texts) == 1 && isTrue(x.texts[0])
		case "remove_job", "force", "delete":
			v.add(gate.ClassData)
		}
	})
	for _, class := range v.union {
		if class != gate.ClassData || !keeps {
			v.add(class)
		}
	}
}

// protection: taking the mark away is a weaker safeguard, setting it or a note is not.
func (v *verdict) protection() {
	v.each(func(x value) {
		switch x.name {
		case "protected":
			if text, ok := x.one(); !ok || !isTrue(text) {
				v.add(gate.ClassGuard)
			}
		case "notes", "backup-id", "backup-time", "backup-type", "ns":
		default:
			v.worst()
		}
	}, "notes", "backup-id", "backup-time", "backup-type", "ns")
}

// storageFile: an upload replaces a file of the same name, a download refuses to; what is no installation
// medium is unpacked or run later.
func (v *verdict) storageFile() {
	for _, class := range v.union {
		switch class {
		case gate.ClassExec:
		case gate.ClassData:
			if matchPath("/**/upload", v.op.Path) {
				v.add(class)
			}
		default:
			v.add(class)
		}
	}
	if x, ok := v.value("content"); ok {
		if text, sure := x.one(); !sure || text != "iso" {
			v.add(gate.ClassExec)
		}
	} else {
		v.add(gate.ClassExec)
	}
	if x, ok := v.value("verify-certificates"); ok && x.off() {
		v.add(gate.ClassExec)
	}
	if _, ok := v.value("tmpfilename"); ok { // a file of the host, for the product's own use
		v.worst()
	}
}

func (v *verdict) pool() {
	v.each(func(x value) {
		switch x.name {
		case "comment", "poolid":
		default:
			v.add(gate.ClassIdent)
		}
	}, "comment", "poolid")
}

// quarantine handles mail that was kept back.
func (v *verdict) quarantine() {
	x, _ := v.value("action")
	action, _ := x.one()
	switch action {
	case "mark-seen", "mark-unseen":
		v.plain()
	case "deliver":
		v.add(gate.ClassSend, gate.ClassGuard)
	case "delete":
		v.add(gate.ClassData)
	case "welcomelist", "whitelist", "blocklist", "blacklist":
		v.add(gate.ClassGuard)
	default:
		v.worst()
	}
}

// hostScript is a script on a node, which may be run as root there.
func (v *verdict) hostScript() {
	v.whole()
	if root, sent := v.value("root"); sent && root.on() {
		v.kinds[gate.KindRoot] = true
	}
}

// upgrade is one of packages: without anything to go back to it counts for more.
func (v *verdict) upgrade() {
	v.whole()
	if x, sent := v.value("protect"); sent && (!x.sure || len(x.texts) != 1 || x.texts[0] != "snapshot" && x.texts[0] != "backup") {
		v.kinds[gate.KindUpgradeBare] = true
	}
}
