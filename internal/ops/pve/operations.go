// Package pve holds the curated operations on Proxmox VE, one a file. Each describes: it answers, or it drafts a plan.
package pve

import (
	"cmp"
	"slices"

	"castellan/internal/gate"
)

// Operations lists them, sorted by name.
func Operations() []*gate.Operation {
	ops := []*gate.Operation{
		backupGuest(), cloneGuest(), clusterOverview(), createGuest(), deleteGuest(), deleteSnapshot(), guestConfig(), guestPower(), guestStatus(),
		listGuests(), listNodes(), listSnapshots(), listStorage(), listTasks(), migrateGuest(), nodeStatus(), planMany(), rollbackSnapshot(),
		setGuestConfig(), snapshotGuest(), taskStatus(),
	}
	slices.SortFunc(ops, func(a, b *gate.Operation) int { return cmp.Compare(a.Name, b.Name) })
	return ops
}
