package gate

import (
	"fmt"
	"slices"
	"sync"
)

// Effect says what an operation or step does to the world.
type Effect string

// The effects, from harmless to worst; WorseEffect keeps that order.
const (
	EffectRead    Effect = "read"    // changes nothing and reveals no stored secret
	EffectChange  Effect = "change"  // changes something that another call can bring back
	EffectExpose  Effect = "expose"  // the answer is a secret, a ticket or a key
	EffectExecute Effect = "execute" // runs code or commands chosen by the caller
	EffectDestroy Effect = "destroy" // destroys data or state that no other call brings back
)

var effectOrder = []Effect{EffectRead, EffectChange, EffectExpose, EffectExecute, EffectDestroy}

// WorseEffect returns the worse of two effects; an unknown word counts as EffectDestroy.
func WorseEffect(a, b Effect) Effect {
	return effectOrder[max(effectRank(a), effectRank(b))]
}

func effectRank(e Effect) int {
	if i := slices.Index(effectOrder, e); i >= 0 {
		return i
	}
	return len(effectOrder) - 1
}

// Class is one way in which a call can be dangerous. A call may be in several; in none it is harmless.
type Class string

// The sixteen classes.
const (
	ClassData    Class = "data"    // destroys or overwrites data that cannot be brought back by another call
	ClassCfgdel  Class = "cfgdel"  // deletes a configuration object
	ClassLock    Class = "lock"    // can lock the operator out, or take the management plane away
	ClassNet     Class = "net"     // changes or cuts network reachability
	ClassPower   Class = "power"   // stops, restarts, resets or moves a guest, a node or a service
	ClassIdent   Class = "ident"   // changes identities, permissions, authentication
	ClassSin     Class = "sin"     // takes a secret as a parameter
	ClassSout    Class = "sout"    // returns a secret, a ticket, a credential or private content
	ClassExec    Class = "exec"    // runs a command or code chosen by the caller
	ClassConsole Class = "console" // opens a console, a tunnel or a websocket, or mints the ticket for one
	ClassFile    Class = "file"    // uploads or downloads files
	ClassSsrf    Class = "ssrf"    // makes the server contact an address chosen by the caller
	ClassSend    Class = "send"    // sends something outwards
	ClassGuard   Class = "guard"   // weakens a safeguard
	ClassLic     Class = "lic"     // subscription keys
	ClassTrust   Class = "trust"   // joins or changes trust between hosts
)

// Classes lists all classes in their published order.
func Classes() []Class {
	return []Class{ClassData, ClassCfgdel, ClassLock, ClassNet, ClassPower, ClassIdent, ClassSin, ClassSout, ClassExec,
		ClassConsole, ClassFile, ClassSsrf, ClassSend, ClassGuard, ClassLic, ClassTrust}
}

// Rung is a step of the approval ladder.
type Rung int

// The ladder. RungDenied is above all: nothing reaches it.
const (
	RungNone        Rung = iota // the first call carries the plan out
	RungRestated                // apply_plan with the plan's sentence and a one-use token
	RungPhrase                  // and a literal phrase naming operation and guest
	RungDialog                  // a dialog that the client shows to its user
	RungPerson                  // a signed-in person outside the agent's reach
	RungPasskey                 // a person with a passkey
	RungTwoPasskeys             // two different people with passkeys
	RungDenied
)

var rungNames = []string{"none", "restated", "phrase", "dialog", "person", "passkey", "two_passkeys", "denied"}

// Rungs lists the rungs that an approval can have, lowest first.
func Rungs() []Rung {
	return []Rung{RungNone, RungRestated, RungPhrase, RungDialog, RungPerson, RungPasskey, RungTwoPasskeys}
}

func (r Rung) String() string {
	if r < 0 || int(r) >= len(rungNames) {
		return "denied"
	}
	return rungNames[r]
}

// ParseRung takes the names that policies and settings use.
func ParseRung(s string) (Rung, error) {
	if i := slices.Index(rungNames, s); i >= 0 && Rung(i) != RungDenied {
		return Rung(i), nil
	}
	return RungDenied, fmt.Errorf("parse rung: %q is none of %v", s, rungNames[:len(rungNames)-1])
}

// MarshalText writes the rung's name.
func (r Rung) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads the rung's name; what it does not know is an error, never a low rung.
func (r *Rung) UnmarshalText(b []byte) error {
	if string(b) == "denied" {
		*r = RungDenied
		return nil
	}
	v, err := ParseRung(string(b))
	*r = v
	return err
}

// Kind names one row of the policy table: a class, or the part of one that has a rung of its own.
type Kind string

// The rows of the table.
const (
	KindRead           Kind = "read"
	KindSnapshot       Kind = "snapshot"
	KindBackup         Kind = "backup"
	KindStart          Kind = "start"
	KindResume         Kind = "resume"
	KindShutdown       Kind = "shutdown"
	KindReboot         Kind = "reboot"
	KindSuspend        Kind = "suspend"
	KindStop           Kind = "stop" // hard stop and reset
	KindMigrate        Kind = "migrate"
	KindCreate         Kind = "create"
	KindClone          Kind = "clone"
	KindRestore        Kind = "restore" // a guest from an archive; over an existing one it is KindData too
	KindGrow           Kind = "grow"    // disk growth
	KindConfig         Kind = "config"  // reversible configuration of a guest
	KindRollback       Kind = "rollback"
	KindDeleteSnapshot Kind = "delete_snapshot"
	KindSettings       Kind = "settings" // reversible configuration of anything but a guest
	KindData           Kind = "data"
	KindCfgdel         Kind = "cfgdel"
	KindLock           Kind = "lock"
	KindNet            Kind = "net"
	KindPower          Kind = "power" // power of anything but a guest: nodes, services, HA, bulk
	KindIdent          Kind = "ident"
	KindSin            Kind = "sin"
	KindSout           Kind = "sout"         // effect expose: the secret is the answer
	KindPrivate        Kind = "private"      // private text in an answer of effect read
	KindProbe          Kind = "probe"        // a diagnostic command of the fixed catalogue in a guest
	KindHostProbe      Kind = "host_probe"   // the same on a node, or in a privileged container
	KindCommand        Kind = "command"      // a command of the administrator's list in a guest
	KindHostCommand    Kind = "host_command" // the same on a node, or in a privileged container
	KindReadFile       Kind = "read_file"    // a file of a guest is the answer
	KindExec           Kind = "exec"         // scripts, and every other code that a caller chooses
	KindHost           Kind = "host"         // code or disks on a host
	KindRoot           Kind = "root_on_host" // as root on a node
	KindUpdates        Kind = "updates"      // what a guest or node reports of its packages and services
	KindUpgrade        Kind = "upgrade"      // packages of a guest, from its distribution's archives, behind a snapshot or backup
	KindUpgradeBare    Kind = "upgrade_bare" // the same without any way back
	KindHostUpgrade    Kind = "host_upgrade" // packages of a Proxmox host
	KindEnrol          Kind = "enrol"        // lets castellan look after the packages of a guest, or ends that
	KindConsole        Kind = "console"
	KindFile           Kind = "file"
	KindSsrf           Kind = "ssrf"
	KindSend           Kind = "send"
	KindGuard          Kind = "guard"
	KindLic            Kind = "lic"
	KindTrust          Kind = "trust"
	KindGoverns        Kind = "governs"
	KindOutage         Kind = "outage"  // others than those named stop, or lose a disk, a network, a way back
	KindLockout        Kind = "lockout" // castellan, an approver or an operator would not get in any more
	KindUnknown        Kind = "unknown" // an operation or parameter that nobody has judged
)

// Row is one line of the policy table.
type Row struct {
	Kind       Kind
	Class      Class  // empty for a harmless row
	Capability string // the switch that must be on; empty = always on
	Effect     Effect
	Rung       Rung // the approval that it takes once the capability is on
}

// Table is the one place that says what each kind of effect takes. Its order is the order of printing.
func Table() []Row {
	return []Row{
		{KindRead, "", "", EffectRead, RungNone},
		{KindPrivate, ClassSout, "", EffectRead, RungNone},
		{KindProbe, ClassSout, "probe", EffectRead, RungNone},
		{KindHostProbe, ClassSout, "host_probe", EffectRead, RungNone},
		{KindUpdates, ClassSout, "updates", EffectRead, RungNone},
		{KindSnapshot, "", "snapshot", EffectChange, RungNone},
		{KindBackup, "", "backup", EffectChange, RungNone},
		{KindStart, ClassPower, "power", EffectChange, RungNone},
		{KindResume, ClassPower, "power", EffectChange, RungNone},
		{KindShutdown, ClassPower, "power", EffectChange, RungRestated},
		{KindReboot, ClassPower, "power", EffectChange, RungRestated},
		{KindSuspend, ClassPower, "power", EffectChange, RungRestated},
		{KindStop, ClassPower, "power", EffectChange, RungPerson},
		{KindMigrate, ClassPower, "migrate", EffectChange, RungRestated},
		{KindCreate, "", "create", EffectChange, RungRestated},
		{KindClone, "", "create", EffectChange, RungRestated},
		{KindRestore, "", "restore", EffectChange, RungRestated},
		{KindGrow, "", "config", EffectChange, RungRestated},
		{KindConfig, "", "config", EffectChange, RungRestated},
		{KindSettings, "", "settings", EffectChange, RungRestated},
		{KindRollback, ClassData, "rollback", EffectDestroy, RungPerson},
		{KindDeleteSnapshot, ClassData, "rollback", EffectDestroy, RungPerson},
		{KindPower, ClassPower, "host", EffectChange, RungPerson},
		{KindNet, ClassNet, "network", EffectChange, RungPerson},
		{KindGuard, ClassGuard, "guard", EffectChange, RungPerson},
		{KindLock, ClassLock, "guard", EffectChange, RungPerson},
		{KindCfgdel, ClassCfgdel, "delete_config", EffectDestroy, RungPerson},
		{KindFile, ClassFile, "file", EffectChange, RungPerson},
		{KindSend, ClassSend, "send", EffectChange, RungPerson},
		{KindSsrf, ClassSsrf, "send", EffectChange, RungPerson},
		{KindLic, ClassLic, "license", EffectChange, RungPerson},
		{KindSin, ClassSin, "secrets", EffectChange, RungPerson},
		{KindUpgrade, ClassPower, "upgrade", EffectChange, RungRestated},
		{KindUpgradeBare, ClassPower, "upgrade", EffectChange, RungPerson},
		{KindHostUpgrade, ClassPower, "host_upgrade", EffectChange, RungPerson},
		{KindEnrol, ClassTrust, "enrol", EffectChange, RungPerson},
		{KindCommand, ClassExec, "command", EffectExecute, RungRestated},
		{KindHostCommand, ClassExec, "host_command", EffectExecute, RungPerson},
		{KindExec, ClassExec, "exec", EffectExecute, RungPerson},
		{KindReadFile, ClassFile, "read_file", EffectExpose, RungPerson},
		{KindOutage, "", "", EffectChange, RungPerson},
		{KindLockout, ClassLock, "", EffectChange, RungPasskey},
		{KindUnknown, ClassData, "unjudged", EffectDestroy, RungPerson},
		{KindData, ClassData, "destroy", EffectDestroy, RungPasskey},
		{KindIdent, ClassIdent, "access", EffectChange, RungPasskey},
		{KindTrust, ClassTrust, "access", EffectChange, RungPasskey},
		{KindSout, ClassSout, "expose", EffectExpose, RungPasskey},
		{KindConsole, ClassConsole, "console", EffectExecute, RungPasskey},
		{KindHost, ClassExec, "host", EffectExecute, RungPasskey},
		{KindRoot, ClassExec, "root_on_host", EffectExecute, RungPasskey},
		{KindGoverns, "", "governs", EffectDestroy, RungPasskey},
	}
}

// RowOf returns the row of a kind; an unknown kind gets the row of KindUnknown.
func RowOf(k Kind) Row {
	rows := tableByKind()
	if r, ok := rows[k]; ok {
		return r
	}
	return rows[KindUnknown]
}

// tableByKind is the table for looking up, made once: it is asked several times in every call.
var tableByKind = sync.OnceValue(func() map[Kind]Row {
	out := map[Kind]Row{}
	for _, r := range Table() {
		out[r.Kind] = r
	}
	return out
})

// Capabilities lists the switches of the table, sorted.
func Capabilities() []string {
	var out []string
	for _, r := range Table() {
		if r.Capability != "" && !slices.Contains(out, r.Capability) {
			out = append(out, r.Capability)
		}
	}
	slices.Sort(out)
	return out
}
