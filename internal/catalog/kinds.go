package catalog

import (
	"strings"

	"castellan/internal/gate"
)

// kindRule gives a class its rows of the policy table within a path family, where the row named like the class
// does not fit.
type kindRule struct {
	products string
	methods  string // empty = every method but GET
	path     string
	class    gate.Class // empty: the operation is in no class
	kinds    string     // blank separated
}

func (r kindRule) matches(op *Operation) bool {
	return familyRule{products: r.products, methods: r.methods, path: r.path}.matches(op)
}

// kindsOf returns the rows under which a class of an operation falls.
func kindsOf(op *Operation, class gate.Class) []gate.Kind {
	for _, r := range kindRules {
		if r.class == class && r.matches(op) {
			var kinds []gate.Kind
			for k := range strings.FieldsSeq(r.kinds) {
				kinds = append(kinds, gate.Kind(k))
			}
			return kinds
		}
	}
	if class == "" {
		return []gate.Kind{plainKind(op)}
	}
	if class == gate.ClassSout && op.Method == "GET" && !answerIsSecret(op) {
		return []gate.Kind{gate.KindPrivate}
	}
	return []gate.Kind{rowOfClass(class)}
}

// rowOfClass is the row named like the class: what a class takes when nothing more is known.
func rowOfClass(class gate.Class) gate.Kind { return gate.Kind(class) }

func plainKind(op *Operation) gate.Kind {
	switch {
	case op.Method == "GET":
		return gate.KindRead
	case matchPath("/nodes/*/qemu|lxc/*/**", op.Path), matchPath("/pve/remotes/*/qemu|lxc/*/**", op.Path):
		return gate.KindConfig
	}
	return gate.KindSettings
}

// kindRules: the first that matches decides.
var kindRules = []kindRule{
	// Guests: each call of the power family has a row of its own.
	{"pve", "POST", "/nodes/*/qemu|lxc/*/status/start", gate.ClassPower, "start"},
	{"pve", "POST", "/nodes/*/qemu|lxc/*/status/resume", gate.ClassPower, "resume"},
	{"pve", "POST", "/nodes/*/qemu|lxc/*/status/shutdown", gate.ClassPower, "shutdown"},
	{"pve", "POST", "/nodes/*/qemu|lxc/*/status/reboot", gate.ClassPower, "reboot"},
	{"pve", "POST", "/nodes/*/qemu|lxc/*/status/suspend", gate.ClassPower, "suspend"},
	{"pve", "POST", "/nodes/*/qemu|lxc/*/status/stop|reset", gate.ClassPower, "stop"},
	{"pdm", "POST", "/pve/remotes/*/qemu|lxc/*/start", gate.ClassPower, "start"},
	{"pdm", "POST", "/pve/remotes/*/qemu|lxc/*/resume", gate.ClassPower, "resume"},
	{"pdm", "POST", "/pve/remotes/*/qemu|lxc/*/shutdown", gate.ClassPower, "shutdown"},
	{"pdm", "POST", "/pve/remotes/*/qemu|lxc/*/stop", gate.ClassPower, "stop"},
	{"pve", "POST", "/nodes/*/qemu/*/agent/shutdown", gate.ClassPower, "shutdown"},
	{"pve", "POST", "/nodes/*/qemu/*/agent/suspend-disk|suspend-ram|suspend-hybrid|fsfreeze-freeze", gate.ClassPower, "suspend"},
	{"pve", "PUT", "/nodes/*/qemu/*/sendkey", gate.ClassPower, "stop"}, // ctrl-alt-delete
	{"", "POST", "/**/qemu|lxc/*/migrate", gate.ClassPower, "migrate"},
	{"", "POST", "/**/qemu|lxc/*/remote_migrate|remote-migrate", gate.ClassPower, "migrate power"}, // leaves the cluster
	{"", "POST", "/**/qemu|lxc/*/snapshot/*/rollback", gate.ClassData, "rollback"},
	{"", "POST", "/**/qemu|lxc/*/snapshot/*/rollback", gate.ClassPower, "rollback"},
	{"", "DELETE", "/**/qemu|lxc/*/snapshot/*", gate.ClassData, "delete_snapshot"},
	{"pve", "POST", "/nodes/*/qemu/*/monitor", gate.ClassExec, "exec host"}, // reaches files of the host

	{"pve", "GET", "/nodes/*/qemu/*/agent/exec-status", gate.ClassSout, "exec"}, // what any process printed, told once: whoever asks takes it from whoever waits

	{"pve", MethodRun, "/nodes/*/qemu|lxc/*/probe", gate.ClassSout, "probe"},
	{"pve", MethodRun, "/nodes/*/qemu|lxc/*/command", gate.ClassExec, "command"},
	{"pve", MethodRun, "/nodes/*/qemu|lxc/*/read-file", gate.ClassFile, "read_file"},
	{"pve", MethodRun, "/nodes/*/qemu|lxc/*/write-file", gate.ClassData, "file"}, // what it replaces is kept

	{"pve", MethodRun, "/nodes/*/qemu|lxc/*/updates", gate.ClassSout, "updates"},
	{"pve", MethodRun, "/nodes/*/qemu|lxc/*/upgrade|repair", gate.ClassPower, "upgrade"},
	{"pve", MethodRun, "/nodes/*/qemu|lxc/*/enrol|unenrol", gate.ClassTrust, "enrol"},
	{"pve", MethodRun, "/nodes/*/updates", gate.ClassSout, "updates"},
	{"pve", MethodRun, "/nodes/*/upgrade", gate.ClassPower, "host_upgrade"},

	// Code and disks on a host.
	{"pve", MethodRun, "/nodes/*/probe", gate.ClassSout, "host_probe"},
	{"pve", MethodRun, "/nodes/*/command", gate.ClassExec, "host_command"},
	{"pve", MethodRun, "/nodes/*/script", gate.ClassExec, "host"},
	{"", "", "/**/nodes/*/apt/**", gate.ClassExec, "host"},
	{"", "POST", "/**/nodes/*/termproxy|vncshell|spiceshell", gate.ClassExec, "host"},
	{"pve", "POST", "/nodes/*/execute", gate.ClassExec, "host"},
	{"", "", "/**/acme/plugins/**", gate.ClassExec, "exec host"},
	{"pmg", "", "/config/admin", gate.ClassExec, "exec host"},
	{"pdm", "", "/auto-install/**", gate.ClassExec, "exec host"},
	{"", "", "/**/nodes/*/disks/**", gate.ClassData, "data host"},
	{"pve", "", "/nodes/*/ceph/**", gate.ClassData, "data host"},

	// In no class.
	{"pve", "POST", "/nodes/*/vzdump", "", "backup"},
	{"", "POST", "/**/qemu|lxc/*/snapshot", "", "snapshot"},
	{"pve", "POST", "/nodes/*/qemu|lxc/*/clone", "", "clone"},
	{"pve", "POST", "/nodes/*/qemu|lxc", "", "create"},
	{"pve", "PUT", "/nodes/*/qemu|lxc/*/resize", "", "grow"},
	{"pve", "POST", "/nodes/*/qemu/*/agent/ping|fsfreeze-status", "", "read"},
	{"pmg", "POST", "/config/regextest", "", "read"},
	{"pve", "POST PUT", "/cluster/mapping/**", "", "guard"},   // which directories and devices of hosts guests may get
	{"pbs", "POST PUT", "/config/media-pool/**", "", "guard"}, // how long tapes are kept, and whether encrypted
	{"pdm", "POST PUT", "/config/views/**", "", "guard"},      // who has rights on a view sees what it takes in
}

// answerIsSecret tells the reads whose whole answer is a secret, a ticket, or the content of somebody's files:
// there is no field that could be taken out of it. Every other read in the class sout has its secret fields
// removed, or holds private text only.
func answerIsSecret(op *Operation) bool {
	for _, r := range secretAnswers {
		if r.matches(op) {
			return true
		}
	}
	return false
}

var secretAnswers = []familyRule{
	{"pve", "GET", "/nodes/*/qemu/*/cloudinit/dump", ""},
	{"pve", "GET", "/nodes/*/vzdump/extractconfig", ""},
	{"pve", "GET", "/nodes/*/qemu/*/agent/file-read", ""},
	{"pve", "GET", "/nodes/*/storage/*/file-restore/download", ""},
	{"pve", "GET", "/nodes/*/ceph/cfg/db|value", ""}, // module options may hold passwords
	{"pbs", "GET", "/admin/datastore/*/download|download-decoded|pxar-file-download", ""},
	{"pbs", "GET", "/reader/**", ""},
	{"pbs", "GET", "/backup/**", ""},
	{"pmg", "GET", "/nodes/*/backup/*", ""},
	{"pmg", "GET", "/nodes/*/postfix/queue/*/*", ""},
	{"pmg", "GET", "/quarantine/content|download|link", ""},
	{"pdm", "GET", "/subscriptions/keys/**", ""},
}
