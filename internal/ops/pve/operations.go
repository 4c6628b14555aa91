// Package pve holds the curated operations on Proxmox VE, one a file. Each describes: it answers, or it drafts a plan.
package pve

import (
	"cmp"
	"slices"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

// Operations lists them, sorted by name, over an estate of their own.
func Operations() []*gate.Operation { return OperationsOn(estate.New(), PatchingSettings{}, nil) }

// OperationsOn lists them over an estate that others use too: what one has read the others need not read again.
// roll tells which guests' packages are looked after; nil: there is none.
func OperationsOn(e *estate.Estate, set PatchingSettings, roll Roll) []*gate.Operation {
	ops := []*gate.Operation{
		estateGraph(e),
		applyNetwork(), applySDN(), backupFreshness(), backupGuest(), cloneGuest(), clusterOverview(), createBackupJob(), createGuest(), deleteBackup(), deleteBackupJob(), deleteGuest(), deleteSnapshot(), guestConfig(), guestPower(), guestStatus(),
		listBackupJobs(), listBackups(), listGuests(), listNodes(), listSnapshots(), listStorage(), listTasks(), migrateGuest(), nodeStatus(), patchWave(roll), planMany(), protectBackup(), pruneSnapshots(), restoreGuest(), rollbackSnapshot(), runBackupJob(),
		setGuestConfig(), snapshotGuest(), taskStatus(), undoPoint(), waveResult(), withSnapshot(), withDeadMan(), updateBackupJob(),
		guestLog(), guestSQL(), listProbes(), nodeMaintenance(), probeGuest(), probeNode(), readGuestFile(), listBackupFiles(), restoreFiles(), runCommand(), runOnNode(), runScript(), writeGuestFile(),
		applyUpdates(set), checkServices(), checkUpdates(), rebootGuest(), repairPackages(set), rollbackGuest(), updateResult(),
		diagnoseGuest(), diagnoseNode(), siteCheck(),
		enrolGuest(e), enrolGuests(e, roll), unenrolGuest(), listEnrolled(roll),
		checkNodeUpdates(), upgradeNode(), upgradeNodes(),
	}
	slices.SortFunc(ops, func(a, b *gate.Operation) int { return cmp.Compare(a.Name, b.Name) })
	return ops
}
