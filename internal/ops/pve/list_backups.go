package pve

import (
	"context"
	"slices"
	"strings"
	"time"

	"castellan/internal/backups"
	"castellan/internal/gate"
	"castellan/internal/ops/table"
)

type listBackupsIn struct {
	Guest   string `json:"guest,omitempty" jsonschema:"id or unique name; also an id that no guest has any more"`
	Storage string `json:"storage,omitempty"`
	Since   string `json:"since,omitempty" jsonschema:"24h, 7d or RFC 3339"`
	table.Ask
	Target string `json:"target,omitempty"`
}

type listBackupsOut struct {
	Backups []map[string]any `json:"backups"` // newest first
	table.Count
	Incomplete []string `json:"incomplete,omitempty"`
}

var backupColumns = table.Columns{
	All:     []string{"volid", "vmid", "name", "time", "age", "storage", "node", "size", "format", "protected", "encrypted", "verify", "whose", "why", "notes"},
	Default: []string{"volid", "vmid", "name", "time", "age", "size", "protected", "encrypted", "verify", "whose", "why"},
}

func listBackups() *gate.Operation {
	return gate.Query(gate.Declaration{
		Name: "list_backups", Summary: "Archives of a guest or storage, and whose they surely are. Read", Product: "pve", Kinds: []gate.Kind{gate.KindRead},
		Keywords: "backup archives vzdump pbs snapshots restore points volumes list show get_backups", Toolset: "full",
	}, runListBackups)
}

func runListBackups(ctx context.Context, v gate.View, in listBackupsIn) (listBackupsOut, error) {
	since, err := parseSince(in.Since, v.Now())
	if err != nil {
		return listBackupsOut{}, err
	}
	id, err := guestOrOrphan(ctx, v, in.Target, in.Guest)
	if err != nil {
		return listBackupsOut{}, err
	}
	s, err := backups.Look(ctx, v, in.Target, backups.Question{Guest: id})
	if err != nil {
		return listBackupsOut{}, err
	}
	mine, names := seen(ctx, v, s.Inventory.Target.Name), map[string]string{}
	kept := slices.DeleteFunc(slices.Clone(s.Archives), func(a backups.Archive) bool {
		g, live := s.Inventory.ByID(a.Guest)
		names[a.Guest] = g.Name
		return in.Storage != "" && a.Storage != in.Storage || !since.IsZero() && a.Time.Before(since) || live && !mine(g) || !live && v.Scoped()
	})
	out := listBackupsOut{Incomplete: bounded(s.Missing)}
	out.Backups, out.Count, err = table.Cut(in.Ask, backupColumns, kept, func(a backups.Archive) string { return a.Volume }, func(a backups.Archive) map[string]any {
		row := map[string]any{"volid": a.Volume, "vmid": a.Guest, "name": names[a.Guest], "storage": a.Storage, "node": a.Node, "size": a.Size, "format": a.Format,
			"protected": a.Protected, "encrypted": a.Encrypted, "verify": a.Verify, "whose": string(a.Whose), "why": a.Why, "notes": oneLine(a.Notes, 200)}
		if !a.Time.IsZero() {
			row["time"], row["age"] = a.Time.Format(time.RFC3339), roughly(s.Now.Sub(a.Time))
		}
		return row
	})
	return out, err
}

// oneLine is free text of others, without what could pass for anything else.
func oneLine(s string, n int) string {
	return clip(strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f || r == 0x2028 || r == 0x2029 }), " "), n)
}
