package catalog

import (
	"slices"
	"strings"

	"castellan/internal/gate"
)

// storage sets up a storage or changes one.
func (v *verdict) storage() {
	change := v.op.Method == "PUT"
	v.plain()
	v.each(func(x value) {
		switch x.name {
		case "password", "keyring", "encryption-key":
			v.add(gate.ClassSin)
			if change {
				v.add(gate.ClassData) // the old one is lost
			}
			if x.name == "encryption-key" {
				v.add(gate.ClassSout) // autogen: the answer is the key
			}
		case "server", "portal", "monhost", "port", "domain", "export", "share", "target", "iscsiprovider", "options", "datastore",
			"namespace", "username", "fingerprint", "subdir", "smbversion", "fs-name", "comstar_hg", "comstar_tg", "lio_tpg":
			v.add(gate.ClassSsrf)
		case "delete":
			v.add(gate.ClassData)
		case "storage", "type", "krbd", "sparse", "blocksize", "bwlimit", "preallocation", "format", "nocow", "snapshot-as-volume-chain",
			"tagged_only":
		case "master-pubkey": // whoever has the other half of it reads every encrypted backup from then on
			v.add(gate.ClassTrust, gate.ClassGuard)
		default: // which nodes and guests it serves, which directory of the host it is, what it keeps
			v.add(gate.ClassGuard)
		}
	}, "storage")
}

// clusterOptions judges each option, set or deleted.
func (v *verdict) clusterOptions() {
	var option func(string)
	option = func(name string) {
		switch name {
		case "keyboard", "language", "description", "tag-style", "next-id", "max_workers", "mac_prefix", "console", "consent-text",
			"location", "bwlimit", "crs":
			v.plain()
		case "migration", "migration_unsecure", "ha", "fencing", "notify", "replication", "email_from":
			v.add(gate.ClassGuard)
		case "http_proxy":
			v.add(gate.ClassSsrf)
		case "u2f", "webauthn":
			v.add(gate.ClassLock, gate.ClassIdent)
		case "user-tag-access", "registered-tags":
			v.add(gate.ClassIdent)
		default:
			v.worst()
		}
	}
	v.options(option)
	if x, ok := v.value("crs"); ok { // HA then moves guests by itself
		for _, text := range x.texts {
			parts := keysOf(text)
			for _, name := range []string{"ha-auto-rebalance", "ha-rebalance-on-start"} {
				if slices.ContainsFunc(parts[name], func(t string) bool { return !isFalse(t) }) {
					v.add(gate.ClassGuard)
				}
			}
		}
	}
}

// options judges by names: of the parameters that are set, and of those that a delete list takes away.
func (v *verdict) options(option func(name string)) {
	for _, x := range v.values() {
		if x.name != "delete" {
			option(x.key)
			continue
		}
		if !x.sure {
			v.worst()
		}
		for _, name := range x.words() {
			option(foldIndex(name))
		}
	}
}

func (v *verdict) nodeOptions() {
	v.options(func(name string) {
		switch name {
		case "description", "wakeonlan", "startall-onboot-delay", "ballooning-target", "location", "default-lang", "task-log-max-days",
			"consent-text":
			v.plain()
		case "http-proxy":
			v.add(gate.ClassSsrf)
		case "acme", "acmedomain[n]", "ciphers-tls-1.2", "ciphers-tls-1.3":
			v.add(gate.ClassLock)
		default:
			v.worst()
		}
	})
}

// retentionJob: a prune job destroys what its retention no longer keeps, a sync job what has vanished at its
// source if told to. Both are safeguards themselves.
func (v *verdict) retentionJob() {
	prune := strings.HasPrefix(v.op.Path, "/config/prune")
	v.add(gate.ClassGuard)
	if prune && v.op.Method == "POST" {
		v.add(gate.ClassData)
	}
	keeps, ok := v.value("remove-vanished")
	elsewhere := v.op.Method == "PUT" && !(ok && keeps.sure && keeps.off())
	v.each(func(x value) {
		switch {
		case x.name == "comment":
		case prune, x.name == "remove-vanished" && x.on(), x.name == "resync-corrupt" && x.on():
			v.add(gate.ClassData)
		case elsewhere && (slices.Contains(syncPlaces, x.name) || x.name == "delete" && slices.ContainsFunc(x.words(), func(key string) bool { return slices.Contains(syncPlaces, key) })):
			v.add(gate.ClassData) // the job may be one that removes what has vanished: at another place nearly all has
		}
	}, "id", "store", "remote", "ns", "remote-ns", "remote-store", "comment")
}

// syncPlaces say what a sync job copies from where to where.
var syncPlaces = []string{"store", "ns", "remote", "remote-store", "remote-ns", "group-filter", "max-depth", "owner", "sync-direction", "encrypted-only", "verified-only"}

// transfer moves snapshots between servers.
func (v *verdict) transfer() {
	for _, class := range v.union {
		if class != gate.ClassData {
			v.add(class)
		}
	}
	v.each(func(x value) {
		if (x.name == "remove-vanished" || x.name == "resync-corrupt") && x.on() {
			v.add(gate.ClassData)
		}
	}, "store", "remote", "remote-store", "ns", "remote-ns")
}

func (v *verdict) datastore() {
	if v.op.Method == "DELETE" {
		v.add(gate.ClassCfgdel)
		if x, ok := v.value("destroy-data"); ok && x.on() {
			v.add(gate.ClassData)
		}
		return
	}
	v.plain()
	v.each(func(x value) {
		switch {
		case x.name == "comment", x.name == "name", x.name == "counter-reset-schedule", x.name == "notification-thresholds":
		case strings.HasPrefix(x.name, "keep-"), x.name == "prune-schedule", x.name == "overwrite-in-use", x.name == "reuse-datastore":
			v.add(gate.ClassData, gate.ClassGuard)
		case x.name == "maintenance-mode", x.name == "delete":
			v.add(gate.ClassLock, gate.ClassGuard)
		default:
			v.add(gate.ClassGuard)
		}
	}, "name", "path", "comment")
}

// mailBackup: the backup server of a mail gateway.
func (v *verdict) mailBackup() {
	v.add(gate.ClassSsrf, gate.ClassTrust)
	v.each(func(x value) {
		switch {
		case strings.HasPrefix(x.name, "keep-"), x.name == "delete":
			v.add(gate.ClassData)
		case x.name == "password":
			v.add(gate.ClassSin)
		case x.name == "encryption-key":
			v.add(gate.ClassSin, gate.ClassSout)
			if v.op.Method == "PUT" {
				v.add(gate.ClassData)
			}
		}
	}, "remote", "server", "datastore", "username")
}
