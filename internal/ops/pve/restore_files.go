package pve

import (
	"context"
	"encoding/base64"
	"path"
	"slices"
	"strings"
	"time"

	"castellan/internal/gate"
)

type restoreFilesIn struct {
	Archive string `json:"archive" jsonschema:"volid on a backup server as list_backups shows it, or GUEST@TIME"`
	Path    string `json:"path" jsonschema:"file or folder in it, path or path64 of a row of list_backup_files"`
	Target  string `json:"target,omitempty"`
}

func restoreFiles() *gate.Operation {
	return gate.Change(gate.Declaration{
		Name: "restore_files", Summary: "Fetch a file or folder (as zip) out of a backup into castellan's own folder; answers local path, size, sha256. Expose", Product: "pve",
		Effect: gate.EffectExpose, Kinds: []gate.Kind{gate.KindFile}, Undo: "none: what was fetched stays known",
		Keywords: "single file restore extract recover download from backup pbs archive folder zip file-restore", Toolset: "full",
	}, planRestoreFiles)
}

func planRestoreFiles(ctx context.Context, v gate.View, in restoreFilesIn) (*gate.Draft, error) {
	p, err := archivePath(in.Path)
	if err != nil {
		return nil, err
	}
	if p == "/" {
		return nil, gate.Fail(gate.ErrInvalid, "list_backup_files shows what is in it; a whole guest is brought back by restore_guest.", "the path / is the backup itself")
	}
	b, err := openBackup(ctx, v, in.Target, in.Archive)
	if err != nil {
		return nil, err
	}
	rows, err := b.list(ctx, path.Dir(p))
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(rows, func(f backupFile) bool { return f.path == p })
	if i < 0 {
		return nil, gate.Fail(gate.ErrNotFound, "list_backup_files shows what is there.", "the backup holds no %q", oneLine(gate.Clean(p), 200))
	}
	what := &gate.Download{Name: strings.ToValidUTF8(oneLine(gate.Clean(path.Base(p)), 200), "_")}
	note := "It goes to the folder for restored files on castellan's own machine, not to the guest; the answer tells path, size and sha256, not what it holds."
	switch f := rows[i]; f.Kind {
	case "f":
		n, err := f.Size.Int64()
		if err != nil || n < 0 {
			note += " The list does not tell its size: whether it came whole cannot be seen."
			break
		}
		what.Size = &n
	case "h":
		note += " The list does not tell its size: whether it came whole cannot be seen."
	case "d", "v":
		what.Zip = true
		note += " It is a folder: it comes as a zip archive, of whose names none is to be trusted when it is unpacked."
	default:
		return nil, gate.Fail(gate.ErrInvalid, "Restore what it leads to, or the folder that it is in.", "%q is a %s, which cannot be fetched by itself", oneLine(gate.Clean(p), 200), f.kind())
	}
	r, err := gate.NewRequest("pve", "GET /nodes/{node}/storage/{storage}/file-restore/download",
		map[string]any{"node": b.Node, "storage": b.Storage, "volume": b.Volume, "filepath": base64.StdEncoding.EncodeToString([]byte(p))})
	if err != nil {
		return nil, err
	}
	note = oneLine(gate.Clean(p), 200) + " of the backup of " + b.Time.Format(time.RFC3339) + ". " + note
	step := gate.Step{API: &r, Download: what, Require: []gate.Condition{backupIs(b.Archive)}, Undo: gate.Undo{None: "what was fetched stays known"}, Note: note}
	return &gate.Draft{Target: b.target, Phrase: b.Guest, Steps: []gate.Step{step}}, nil
}
