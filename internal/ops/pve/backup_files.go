package pve

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"castellan/internal/backups"
	"castellan/internal/gate"
	"castellan/internal/ops/table"
)

// fileBackup is an archive that can be looked into.
type fileBackup struct {
	backups.Archive
	v      gate.View
	target string
}

// openBackup finds an archive on a backup server by its volume id, or by guest and time as GUEST@TIME.
func openBackup(ctx context.Context, v gate.View, target, name string) (*fileBackup, error) {
	volume := name
	if at := strings.LastIndexByte(name, '@'); at > 0 && !strings.Contains(name, ":backup/") {
		var err error
		if volume, err = volumeAt(ctx, v, target, name[:at], name[at+1:]); err != nil {
			return nil, err
		}
	}
	s, a, err := findBackup(ctx, v, target, volume)
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(a.Format, "pbs-") {
		return nil, gate.Fail(gate.ErrInvalid, "Choose one on a backup server, or restore the whole guest beside the old one: restore_guest.", "%s is not on a Proxmox Backup Server: Proxmox looks into no other archives", clip(a.Volume, 120))
	}
	if a.Verify == "failed" {
		return nil, gate.Fail(gate.ErrInvalid, "Choose another one from list_backups, or verify it again on the backup server.", "the backup server found %s damaged when it last verified it", clip(a.Volume, 120))
	}
	return &fileBackup{Archive: a, v: v, target: s.Inventory.Target.Name}, nil
}

// volumeAt finds the backup of a guest at a time.
func volumeAt(ctx context.Context, v gate.View, target, guest, when string) (string, error) {
	at, err := time.Parse(time.RFC3339, when)
	if err != nil {
		return "", gate.Fail(gate.ErrInvalid, "Write GUEST@TIME with the time as list_backups shows it, such as 101@2026-03-01T01:30:30Z, or give the volid.", "%q is no time", clip(when, 60))
	}
	id, err := guestOrOrphan(ctx, v, target, guest)
	if err != nil {
		return "", err
	}
	s, err := backups.Look(ctx, v, target, backups.Question{Guest: id})
	if err != nil {
		return "", err
	}
	var found []string
	for _, a := range s.Archives {
		if a.Guest == id && a.Time.Equal(at) && strings.HasPrefix(a.Format, "pbs-") && !a.Away() && !slices.Contains(found, a.Volume) {
			found = append(found, a.Volume)
		}
	}
	switch len(found) {
	case 0:
		return "", gate.Fail(gate.ErrNotFound, "list_backups shows those that there are.", "there is no backup of guest %s of %s on a backup server that can be seen", clip(id, 20), at.Format(time.RFC3339))
	case 1:
		return found[0], nil
	}
	return "", gate.Fail(gate.ErrInvalid, "Give one of them as archive: "+clip(strings.Join(found, ", "), 400), "guest %s has %d backups of that time", clip(id, 20), len(found))
}

// backupFile is a row of a folder in a backup. Its names are the words of whoever made the backup.
type backupFile struct {
	Key   string      `json:"filepath"` // base64 of the whole path in the archive
	Kind  string      `json:"type"`
	Leaf  any         `json:"leaf"`
	Size  json.Number `json:"size"`
	MTime json.Number `json:"mtime"`

	path string
}

var fileKinds = map[string]string{"d": "folder", "f": "file", "h": "hard link", "l": "link", "b": "block device", "c": "character device", "p": "pipe", "s": "socket", "v": "archive"}

func (f backupFile) kind() string {
	if k := fileKinds[f.Kind]; k != "" {
		return k
	}
	return "unknown"
}

// list reads a folder of the archive.
func (b *fileBackup) list(ctx context.Context, folder string) ([]backupFile, error) {
	at := "/"
	if folder != "/" {
		at = base64.StdEncoding.EncodeToString([]byte(folder))
	}
	a, err := b.v.Read(ctx, b.target, gate.Read{Operation: "GET /nodes/{node}/storage/{storage}/file-restore/list",
		Params: map[string]string{"node": b.Node, "storage": b.Storage, "volume": b.Volume, "filepath": at}})
	if err != nil {
		return nil, err
	}
	var rows []backupFile
	if err := json.Unmarshal(a.Data, &rows); err != nil {
		return nil, gate.Fail(gate.ErrUnavailable, "Try again; the answer of the server was not of the known form.", "the list of files cannot be read")
	}
	out := rows[:0]
	for _, r := range rows {
		raw, err := base64.StdEncoding.DecodeString(r.Key)
		if err != nil {
			continue
		}
		if r.path = string(raw); !strings.HasPrefix(r.path, "/") {
			r.path = "/" + r.path
		}
		out = append(out, r)
	}
	slices.SortFunc(out, func(x, y backupFile) int { return strings.Compare(x.path, y.path) })
	return out, nil
}

// archivePath reads a path inside an archive: plain, or the base64 that list_backup_files shows for names that are no
// plain text.
func archivePath(text string) (string, error) {
	p := text
	if !strings.HasPrefix(p, "/") {
		raw, err := base64.StdEncoding.DecodeString(text)
		if err != nil || !strings.HasPrefix(string(raw), "/") {
			return "", gate.Fail(gate.ErrInvalid, "Give path or path64 of a row of list_backup_files, such as /root.pxar.didx/etc/hosts.", "the path %q does not begin with a slash", clip(text, 80))
		}
		p = string(raw)
	} else if !plainName(p) {
		return "", gate.Fail(gate.ErrInvalid, "Give path64 of the row instead.", "the path holds characters that cannot be seen")
	}
	switch {
	case len(p) > 4096:
		return "", gate.Fail(gate.ErrInvalid, "Look at its folder with list_backup_files.", "the path is longer than 4096 bytes")
	case strings.IndexByte(p, 0) >= 0, path.Clean(p) != p:
		return "", gate.Fail(gate.ErrInvalid, "Write it plainly, as list_backup_files shows it.", "the path %q holds \"..\", \".\", a double or a last slash", clip(oneLine(p, 80), 80))
	}
	return p, nil
}

// plainName says whether a name is text that looks like what it is.
func plainName(s string) bool {
	return utf8.ValidString(s) && gate.Clean(s) == s && oneLine(s, len(s)+1) == s
}

type listBackupFilesIn struct {
	Archive string `json:"archive" jsonschema:"volid on a backup server as list_backups shows it, or GUEST@TIME"`
	Path    string `json:"path,omitempty" jsonschema:"folder in it, path or path64 of a row; / if absent"`
	table.Ask
	Target string `json:"target,omitempty"`
}

type listBackupFilesOut struct {
	Archive string           `json:"archive"`
	Files   []map[string]any `json:"files"`
	table.Count
}

var backupFileColumns = table.Columns{All: []string{"name", "path", "path64", "kind", "size", "changed"}}

func listBackupFiles() *gate.Operation {
	return gate.Query(gate.Declaration{
		Name: "list_backup_files", Summary: "Browse a folder inside a backup on a backup server. Read", Product: "pve", Kinds: []gate.Kind{gate.KindRead},
		Keywords: "files in backup browse look inside archive single file restore catalog folder file-restore", Toolset: "full",
	}, runListBackupFiles)
}

func runListBackupFiles(ctx context.Context, v gate.View, in listBackupFilesIn) (listBackupFilesOut, error) {
	if in.Path == "" {
		in.Path = "/"
	}
	folder, err := archivePath(in.Path)
	if err != nil {
		return listBackupFilesOut{}, err
	}
	b, err := openBackup(ctx, v, in.Target, in.Archive)
	if err != nil {
		return listBackupFilesOut{}, err
	}
	files, err := b.list(ctx, folder)
	if err != nil {
		return listBackupFilesOut{}, err
	}
	out := listBackupFilesOut{Archive: b.Volume}
	out.Files, out.Count, err = table.Cut(in.Ask, backupFileColumns, files, func(f backupFile) string { return f.Key }, func(f backupFile) map[string]any {
		row := map[string]any{"name": oneLine(strings.ToValidUTF8(gate.Clean(path.Base(f.path)), "\uFFFD"), 200), "kind": f.kind()}
		if plainName(f.path) && len(f.path) <= 400 {
			row["path"] = f.path
		} else {
			row["path64"] = f.Key
		}
		if n, err := f.Size.Int64(); err == nil {
			row["size"] = n
		}
		if n, err := f.MTime.Int64(); err == nil && n > 0 {
			row["changed"] = time.Unix(n, 0).UTC().Format(time.RFC3339)
		}
		return row
	})
	return out, err
}
