package pve

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

// undoPrefix begins the names of snapshots that are taken before a change.
const undoPrefix = gate.UndoPointPrefix

// What follows the prefix, and what the snapshot says of itself.
const (
	undoStamp       = "20060102_150405"
	undoDescription = "taken by castellan before a change"
)

type undoPointIn struct {
	Guest    string `json:"guest" jsonschema:"id or unique name"`
	Rollback string `json:"rollback,omitempty" jsonschema:"the snapshot that is gone back to afterwards, if any"`
	Target   string `json:"target,omitempty"`
}

func undoPoint() *gate.Operation {
	return gate.Change(gate.Declaration{
		Name: gate.UndoPoint, Summary: "Snapshot a guest before a change, free space checked; refused where that cannot be", Product: "pve", Effect: gate.EffectChange,
		Kinds: []gate.Kind{gate.KindSnapshot}, Undo: "delete_snapshot, or prune_snapshots later", Keywords: "safety snapshot before change way back",
		Toolset: "full", Bounded: true, Guest: "guest",
	}, planUndoPoint)
}

func planUndoPoint(ctx context.Context, v gate.View, in undoPointIn) (*gate.Draft, error) {
	s, err := open(ctx, v, in.Target)
	if err != nil {
		return nil, err
	}
	g, err := s.guest(ctx, in.Guest)
	if err != nil {
		return nil, err
	}
	if yes, known := g.supports(ctx, "snapshot"); !known || !yes {
		why := "it cannot be told whether it can be snapshotted"
		if known {
			why = "a storage or mount point of it does not support snapshots (volumes: " + strings.Join(g.disks(), ", ") + ")"
		}
		return nil, gate.Fail(gate.ErrInvalid, "Take a backup_guest first, or go without.", "no undo point of %s can be taken: %s", g.Title(), why)
	}
	note, err := g.roomForSnapshot(ctx, in.Rollback)
	if err != nil {
		return nil, err
	}
	list, _, err := g.snapshots(ctx)
	if err != nil {
		return nil, err
	}
	at := v.Now().UTC()
	name := func() string { return undoPrefix + at.Format(undoStamp) }
	for slices.ContainsFunc(list, func(s snapshot) bool { return string(s.Name) == name() }) { // another one of this second
		at = at.Add(time.Second)
	}
	draft, err := planSnapshotGuest(ctx, v, snapshotGuestIn{Guest: in.Guest, Name: name(), Description: undoDescription, Target: in.Target})
	if err != nil {
		return nil, err
	}
	draft.Note = strings.TrimSpace(draft.Note + " " + note)
	return draft, nil
}

// storageState is what a node tells of one storage.
type storageState struct {
	Type   string      `json:"type"`
	Active estate.Bool `json:"active"`
	Avail  estate.Int  `json:"avail"`
	Total  estate.Int  `json:"total"`
}

// What must be free for a snapshot: a full thin pool stops every guest on it.
const (
	leastFree     = 1 << 30
	leastFreePart = 10 // percent of the storage
	mostMetadata  = 80 // percent of a thin pool's metadata
)

// roomForSnapshot looks at each storage that holds a disk of the guest. What cannot be read is no room.
func (g *guest) roomForSnapshot(ctx context.Context, rollback string) (note string, err error) {
	for _, name := range g.storages() {
		var st storageState
		if _, err := g.site.read(ctx, &st, "GET /nodes/{node}/storage/{storage}/status", map[string]string{"node": g.Node, "storage": name}); err != nil {
			return "", g.noRoom("the free space of storage %s cannot be read: %s", name, clip(err.Error(), 160))
		}
		switch {
		case st.Type == "zfspool" && rollback != "":
			return "", g.noRoom("storage %s is ZFS, which goes back to its newest snapshot only: a new one would make the rollback to %s impossible", name, rollback)
		case !bool(st.Active):
			return "", g.noRoom("storage %s is not active on %s", name, g.Node)
		case st.Total <= 0:
			return "", g.noRoom("storage %s does not tell its size", name)
		case int64(st.Avail) < leastFree || int64(st.Avail)*100/int64(st.Total) < leastFreePart:
			return "", g.noRoom("storage %s has %d MiB of %d MiB free; %d %% and 1 GiB are wanted", name, int64(st.Avail)>>20, int64(st.Total)>>20, leastFreePart)
		}
		if st.Type == "lvmthin" {
			more, err := g.thinMetadata(ctx, name)
			if err != nil {
				return "", err
			}
			note += more
		}
	}
	return strings.TrimSpace(note), nil
}

func (g *guest) noRoom(format string, args ...any) error {
	return gate.Fail(gate.ErrInvalid, "Make room or take a backup_guest first, or go without an undo point.", "no undo point of %s can be taken: %s", g.Title(), fmt.Sprintf(format, args...))
}

// thinMetadata looks how full the metadata of a thin pool is: full metadata breaks a pool that has space left.
func (g *guest) thinMetadata(ctx context.Context, storage string) (note string, err error) {
	var conf struct {
		VG   string `json:"vgname"`
		Pool string `json:"thinpool"`
	}
	var pools []struct {
		VG       string       `json:"vg"`
		LV       string       `json:"lv"`
		Used     estate.Float `json:"metadata_used"`
		Size     estate.Float `json:"metadata_size"`
		DataUsed estate.Float `json:"used"`
		DataSize estate.Float `json:"lv_size"`
	}
	if _, err := g.site.read(ctx, &conf, "GET /storage/{storage}", map[string]string{"storage": storage}); err != nil {
		return "", g.noRoom("the settings of storage %s cannot be read: %s", storage, clip(err.Error(), 160))
	}
	if _, err := g.site.read(ctx, &pools, "GET /nodes/{node}/disks/lvmthin", map[string]string{"node": g.Node}); err != nil {
		return "", g.noRoom("the metadata of the thin pool of %s cannot be read: %s", storage, clip(err.Error(), 160))
	}
	for _, p := range pools {
		if p.VG != conf.VG || p.LV != conf.Pool {
			continue
		}
		if p.Size > 0 && p.Used*100 > p.Size*mostMetadata {
			return "", g.noRoom("the metadata of the thin pool of %s is %.0f %% full", storage, float64(p.Used*100/p.Size))
		}
		return "", nil
	}
	return fmt.Sprintf("The metadata of the thin pool of %s is shown nowhere. ", storage), nil
}

// storages are those that hold disks of the guest.
func (g *guest) storages() (out []string) {
	for k, val := range g.config {
		b, disk := diskKey(k)
		if !disk || b == "unused" {
			continue
		}
		volume := properties(k, val)[nameless[b]]
		name, _, ok := strings.Cut(volume, ":")
		if !ok || strings.HasPrefix(volume, "/") || properties(k, val)["media"] == "cdrom" && !strings.Contains(volume, "cloudinit") || slices.Contains(out, name) {
			continue
		}
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

type withSnapshotIn struct {
	Guest     string         `json:"guest" jsonschema:"id or unique name"`
	Operation string         `json:"operation" jsonschema:"what is done after the snapshot"`
	Params    map[string]any `json:"params,omitempty" jsonschema:"its arguments"`
	Target    string         `json:"target,omitempty"`
}

func withSnapshot() *gate.Operation {
	return gate.Change(gate.Declaration{
		Name: "with_snapshot", Summary: "Do an operation after a snapshot of the guest; without the snapshot it is not done", Product: "pve", Effect: gate.EffectDestroy,
		Undo: "as of the operation; rollback_snapshot goes back to the snapshot", Keywords: "safety snapshot before change undo point protect", Toolset: "full", Guest: "guest",
	}, planWithSnapshot)
}

func planWithSnapshot(ctx context.Context, v gate.View, in withSnapshotIn) (*gate.Draft, error) {
	if slices.Contains([]string{"with_snapshot", gate.UndoPoint, "prune_snapshots"}, in.Operation) {
		return nil, gate.Fail(gate.ErrInvalid, "Name the operation that changes the guest.", "%s takes no snapshot before it", in.Operation)
	}
	args, err := json.Marshal(in.Params)
	if err != nil {
		return nil, gate.Fail(gate.ErrInvalid, "Correct params.", "params: %v", err)
	}
	if in.Params == nil {
		args = json.RawMessage("{}")
	}
	child, err := v.Plan(ctx, in.Operation, args)
	if err != nil {
		return nil, err
	}
	if len(allSteps(child)) == 0 {
		return nothing(strings.TrimSpace(in.Operation + ": nothing to do, so no snapshot is taken. " + child.Note)), nil
	}
	s, err := open(ctx, v, in.Target)
	if err != nil {
		return nil, err
	}
	g, err := s.inv.Guest(ctx, v, in.Guest)
	if err != nil {
		return nil, err
	}
	touched, rollback := false, ""
	for _, step := range allSteps(child) {
		if step.API == nil || step.API.Text("vmid") != g.ID {
			continue
		}
		touched = true
		if strings.HasSuffix(step.API.Operation, "/rollback") {
			rollback = step.API.Text("snapname")
		}
	}
	if !touched {
		return nil, gate.Fail(gate.ErrInvalid, "Name the guest that the operation changes.", "%s does nothing with %s, so a snapshot of it would be no way back", in.Operation, g.Title())
	}
	point, err := planUndoPoint(ctx, v, undoPointIn{Guest: g.ID, Rollback: rollback, Target: in.Target})
	if err != nil {
		return nil, err
	}
	return &gate.Draft{Target: s.target(), Steps: point.Steps, Children: []*gate.Draft{child}, Phrase: child.Phrase,
		Note: strings.TrimSpace(point.Note + " Without the snapshot the rest is not done. " + child.Note)}, nil
}
