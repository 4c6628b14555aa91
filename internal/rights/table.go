package rights

import (
	"cmp"
	"slices"
	"strings"

	"castellan/internal/gate"
)

// The table: what each kind of change takes beside reading, in the words of Proxmox VE 9. It holds what the API publishes for
// the operations of a kind and what the products check in their code. A change of several kinds takes the sum of their rows,
// so a row names only what none of the others does.
var byKind = map[gate.Kind]map[Place]string{
	gate.KindSnapshot: {PlaceGuests: "VM.Snapshot"},
	gate.KindBackup:   {PlaceGuests: "VM.Backup", PlaceStorage: "Datastore.AllocateSpace"},
	gate.KindStart:    {PlaceGuests: "VM.PowerMgmt"},
	gate.KindResume:   {PlaceGuests: "VM.PowerMgmt"},
	gate.KindShutdown: {PlaceGuests: "VM.PowerMgmt"},
	gate.KindReboot:   {PlaceGuests: "VM.PowerMgmt"},
	gate.KindSuspend:  {PlaceGuests: "VM.PowerMgmt VM.GuestAgent.FileSystemMgmt"},
	gate.KindStop:     {PlaceGuests: "VM.PowerMgmt"},
	gate.KindMigrate:  {PlaceGuests: "VM.Migrate", PlaceStorage: "Datastore.AllocateSpace"},
	gate.KindCreate: {PlaceGuests: "VM.Allocate VM.Config.CDROM VM.Config.CPU VM.Config.Cloudinit VM.Config.Disk VM.Config.HWType VM.Config.Memory VM.Config.Network VM.Config.Options",
		PlaceStorage: "Datastore.AllocateSpace", PlaceNetwork: "SDN.Use", PlaceMapping: "Mapping.Use"},
	gate.KindClone:   {PlaceGuests: "VM.Allocate VM.Clone", PlaceStorage: "Datastore.AllocateSpace", PlaceNetwork: "SDN.Use"},
	gate.KindRestore: {PlaceGuests: "VM.Allocate VM.Backup", PlaceStorage: "Datastore.AllocateSpace", PlaceNetwork: "SDN.Use"},
	gate.KindGrow:    {PlaceGuests: "VM.Config.Disk", PlaceStorage: "Datastore.AllocateSpace"},
	gate.KindConfig: {PlaceGuests: "VM.Config.CDROM VM.Config.CPU VM.Config.Cloudinit VM.Config.Disk VM.Config.HWType VM.Config.Memory VM.Config.Network VM.Config.Options VM.Snapshot VM.GuestAgent.FileSystemMgmt",
		PlaceStorage: "Datastore.AllocateSpace", PlaceNetwork: "SDN.Use", PlaceMapping: "Mapping.Use"},
	gate.KindSettings:       {PlaceSite: "Sys.Modify", PlaceGuests: "VM.Replicate", PlaceStorage: "Datastore.Allocate", PlaceMapping: "Mapping.Modify", PlacePools: "Pool.Allocate"},
	gate.KindRollback:       {PlaceGuests: "VM.Snapshot.Rollback"},
	gate.KindDeleteSnapshot: {PlaceGuests: "VM.Snapshot"},
	gate.KindPower:          {PlaceSite: "Sys.Console Sys.Modify", PlaceGuests: "VM.PowerMgmt VM.Migrate", PlaceNodes: "Sys.Modify Sys.PowerMgmt"},
	gate.KindNet:            {PlaceGuests: "VM.Config.Network VM.Config.Cloudinit", PlaceNetwork: "SDN.Allocate", PlaceNodes: "Sys.Modify"},
	gate.KindGuard:          {PlaceSite: "Sys.Modify Sys.Console", PlaceGuests: "VM.Config.Options", PlaceNodes: "Sys.Modify", PlaceMapping: "Mapping.Modify"},
	gate.KindLock:           {PlaceSite: "Sys.Modify", PlaceNodes: "Sys.Modify"},
	gate.KindCfgdel:         {PlaceSite: "Sys.Modify", PlaceGuests: "VM.Replicate", PlaceStorage: "Datastore.Allocate", PlaceMapping: "Mapping.Modify"},
	gate.KindFile:           {PlaceStorage: "Datastore.AllocateTemplate Datastore.AllocateSpace"},
	gate.KindSend:           {PlaceNodes: "Sys.Modify", PlaceMapping: "Mapping.Use"},
	gate.KindSsrf:           {PlaceSite: "Sys.Modify", PlaceStorage: "Datastore.Allocate", PlaceNodes: "Sys.AccessNetwork"},
	gate.KindLic:            {PlaceNodes: "Sys.Modify"},
	gate.KindProbe:          {PlaceGuests: "VM.GuestAgent.Unrestricted"}, // of VMs, where the agent is the way
	gate.KindCommand:        {PlaceGuests: "VM.GuestAgent.Unrestricted"},
	gate.KindEnrol:          {PlaceGuests: "VM.GuestAgent.Unrestricted"},
	gate.KindReadFile:       {PlaceGuests: "VM.GuestAgent.FileRead"},
	gate.KindExec:           {PlaceGuests: "VM.GuestAgent.Unrestricted VM.Config.Cloudinit VM.Config.Options VM.Console"},
	gate.KindData:           {PlaceGuests: "VM.Allocate VM.Config.Disk VM.Backup", PlaceStorage: "Datastore.Allocate"},
	gate.KindIdent: {PlaceSite: "Permissions.Modify", PlaceGuests: "Permissions.Modify VM.GuestAgent.Unrestricted", PlaceStorage: "Permissions.Modify",
		PlaceNetwork: "Permissions.Modify", PlaceNodes: "Permissions.Modify", PlaceMapping: "Permissions.Modify", PlacePools: "Permissions.Modify Pool.Allocate",
		PlaceAccess: "Permissions.Modify User.Modify Group.Allocate Realm.Allocate Realm.AllocateUser Sys.Modify"},
	gate.KindTrust:   {PlaceSite: "Sys.Modify"},
	gate.KindSout:    {PlaceGuests: "VM.GuestAgent.FileRead"},
	gate.KindConsole: {PlaceSite: "Sys.Incoming", PlaceGuests: "VM.Console VM.Migrate VM.Allocate", PlaceNodes: "Sys.Console"},
	gate.KindHost:    {PlaceSite: "Sys.Modify", PlaceGuests: "VM.Config.HWType VM.Config.Options", PlaceNodes: "Sys.Modify Sys.Console"},
}

// OfKind lists what a kind of change takes on a version beside reading, sorted by place.
func OfKind(k gate.Kind, v Version) []Right {
	var out []Right
	for _, place := range Places() {
		for word := range strings.FieldsSeq(byKind[k][place]) {
			if p := on(word, v); p != "" && !slices.Contains(out, Right{p, place}) {
				out = append(out, Right{p, place})
			}
		}
	}
	return out
}

// OfCapabilities lists what capabilities take together.
func OfCapabilities(capabilities []string, v Version) []Right {
	var out []Right
	for _, row := range gate.Table() {
		if row.Capability != "" && slices.Contains(capabilities, row.Capability) {
			out = append(out, OfKind(row.Kind, v)...)
		}
	}
	return tidy(out)
}

// Borrowing lists the capabilities that take no right of their own: what they let through is a property of a change (that it
// takes a secret, that castellan itself depends on what it changes, that nobody has judged it), and takes the rights of the change.
// What is run on a node itself goes through its bridge, and packages of guests through a channel into them: neither asks Proxmox
// for anything.
func Borrowing() []string {
	return []string{"governs", "host_command", "host_probe", "host_upgrade", "root_on_host", "secrets", "unjudged", "updates", "upgrade"}
}

func tidy(all []Right) []Right {
	places := Places()
	slices.SortFunc(all, func(a, b Right) int {
		return cmp.Or(cmp.Compare(slices.Index(places, a.Place), slices.Index(places, b.Place)), cmp.Compare(a.Privilege, b.Privilege))
	})
	return slices.Compact(all)
}

// Reading lists what reading takes; the built-in role of auditors has it.
func Reading(v Version) []Right {
	var out []Right
	for _, p := range auditing(v) {
		for _, place := range Places() {
			out = append(out, Right{p, place})
		}
	}
	return out
}

// Further is a kind of reading that the auditors' role does not cover.
type Further struct {
	What string
	Right
}

// FurtherReading lists what can be read only with privileges that a reader has no other use for. Nothing grants them by itself.
func FurtherReading(v Version) []Further {
	return []Further{
		{"the journal of a node, its firewall's and Ceph's log", Right{"Sys.Syslog", PlaceNodes}},
		{"the packages that a node could update, its USB devices", Right{"Sys.Modify", PlaceNodes}},
		{"which archives of backups there are, so that their freshness can be told", Right{"Datastore.AllocateSpace", PlaceStorage}},
		{"the settings of one storage, and what is on the disks of backups", Right{"Datastore.Allocate", PlaceStorage}},
		{"the settings of SDN zones and controllers", Right{"SDN.Allocate", PlaceNetwork}},
		{"what a guest's agent tells", Right{on("VM.GuestAgent.Audit", v), PlaceGuests}},
		{"the firewall's log of a guest", Right{"VM.Console", PlaceGuests}},
	}
}
