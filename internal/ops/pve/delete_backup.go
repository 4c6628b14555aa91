package pve

import (
	"context"
	"fmt"
	"strings"
	"time"

	"castellan/internal/backups"
	"castellan/internal/estate"
	"castellan/internal/gate"
)

type deleteBackupIn struct {
	Backup string `json:"backup" jsonschema:"volid as list_backups shows it"`
	Target string `json:"target,omitempty"`
}

func deleteBackup() *gate.Operation {
	return gate.Change(gate.Declaration{
		Name: "delete_backup", Summary: "Delete one backup archive. Write, no undo", Product: "pve", Effect: gate.EffectDestroy, Kinds: []gate.Kind{gate.KindData},
		Undo: "none: the archive is gone", Keywords: "remove erase backup archive vzdump pbs snapshot free space prune", Toolset: "full", Bounded: true,
	}, planDeleteBackup)
}

func planDeleteBackup(ctx context.Context, v gate.View, in deleteBackupIn) (*gate.Draft, error) {
	s, a, err := findBackup(ctx, v, in.Target, in.Backup)
	if err != nil {
		return nil, err
	}
	if a.Protected {
		return nil, gate.Fail(gate.ErrInvalid, "If it really is to go, take the mark off first: protect_backup with protected=false.", "backup %s is protected", clip(a.Volume, 120))
	}
	r, err := gate.NewRequest("pve", "DELETE /nodes/{node}/storage/{storage}/content/{volume}", map[string]any{"node": a.Node, "storage": a.Storage, "volume": a.Volume})
	if err != nil {
		return nil, err
	}
	step := gate.Step{API: &r, Wait: gate.Wait{Kind: gate.WaitTask, Limit: time.Hour}, Require: []gate.Condition{backupIs(a), backupUnprotected(a)}, Verify: []gate.Condition{backupGone(a)}}
	step.Undo.None = "the archive of " + a.Time.Format(time.RFC3339) + " is gone"
	return &gate.Draft{Target: s.Inventory.Target.Name, Steps: []gate.Step{step}, Note: restNote(s, a), Phrase: a.Guest}, nil
}

// restNote says what is left of a guest's backups when one goes.
func restNote(s *backups.Site, a backups.Archive) string {
	own, other := 0, 0
	var newest time.Time
	for _, b := range s.Archives {
		switch {
		case b.Volume == a.Volume && b.Node == a.Node || b.Guest != a.Guest:
		case b.Counts():
			own++
			if b.Time.After(newest) {
				newest = b.Time
			}
		default:
			other++
		}
	}
	note := ""
	switch {
	case a.Whose == backups.Orphan:
		note = "No guest has the id " + a.Guest + " any more; "
		if other == 0 {
			note += "this is the last archive of it that can be seen."
		} else {
			note += plural(other, "other archive of it stays.", "other archives of it stay.")
		}
	case own == 0:
		note = "It is the only backup of guest " + a.Guest + " that can be seen and surely is of it."
	default:
		note = fmt.Sprintf("%s of guest %s; the newest is of %s.", plural(own, "other backup stays", "other backups stay"), a.Guest, newest.Format(time.RFC3339))
	}
	if a.Whose == backups.Foreign || a.Whose == backups.Unknown || a.Whose == backups.Earlier {
		note += " It is not certain to be a backup of the guest that has this id now: " + a.Why + "."
	}
	if len(s.Missing) > 0 {
		note += " Not everything could be read: " + clip(s.Missing[0], 160) + "."
	}
	return note
}

// findBackup finds an archive by its volume id and reads what else there is of its guest.
func findBackup(ctx context.Context, v gate.View, target, volume string) (*backups.Site, backups.Archive, error) {
	storage, name, ok := strings.Cut(volume, ":")
	if !ok || storage == "" || name == "" || len(volume) > 400 || strings.ContainsAny(volume, "\r\n\x00") {
		return nil, backups.Archive{}, gate.Fail(gate.ErrInvalid, "list_backups shows them, such as nas:backup/vzdump-qemu-101-….vma.zst or pbs1:backup/vm/101/….", "%q is no volume id of a backup", clip(volume, 80))
	}
	s, err := backups.Look(ctx, v, target, backups.Question{Guest: estate.OwnerOf(name)})
	if err != nil {
		return nil, backups.Archive{}, err
	}
	mine := seen(ctx, v, s.Inventory.Target.Name)
	for _, a := range s.Archives {
		if a.Volume != volume {
			continue
		}
		if g, live := s.Inventory.ByID(a.Guest); live && !mine(g) || !live && v.Scoped() {
			break
		}
		if a.Away() {
			return nil, backups.Archive{}, gate.Fail(gate.ErrInvalid, "Add a storage for its namespace, or act on the backup server.", "no storage of this site leads to %s", clip(a.Volume, 120))
		}
		return s, a, nil
	}
	hint := "list_backups shows those that there are."
	if len(s.Missing) > 0 {
		hint += " Not everything could be read: " + clip(strings.Join(s.Missing, "; "), 300)
	}
	return nil, backups.Archive{}, gate.Fail(gate.ErrNotFound, hint, "there is no backup %q that can be seen", clip(volume, 120))
}

func backupRead(a backups.Archive) gate.Read {
	p := map[string]string{"node": a.Node, "storage": a.Storage, "content": "backup"}
	if a.Guest != "" {
		p["vmid"] = a.Guest
	}
	return gate.Read{Operation: "GET /nodes/{node}/storage/{storage}/content", Params: p}
}

func backupIs(a backups.Archive) gate.Condition {
	return gate.Condition{Name: "the archive is still that of " + a.Time.Format(time.RFC3339), Read: backupRead(a), Where: map[string]string{"volid": a.Volume}, Pointer: "/ctime",
		Rule: gate.RuleEquals, Value: text(fmt.Sprint(a.Time.Unix()))}
}

func backupUnprotected(a backups.Archive) gate.Condition {
	return gate.Condition{Name: "the archive is not protected", Read: backupRead(a), Where: map[string]string{"volid": a.Volume}, Pointer: "/protected", Rule: gate.RuleDiffers, Value: text("1")}
}

func backupGone(a backups.Archive) gate.Condition {
	return gate.Condition{Name: "the archive is gone", Read: backupRead(a), Where: map[string]string{"volid": a.Volume}, Pointer: "/volid", Rule: gate.RuleAbsent}
}
