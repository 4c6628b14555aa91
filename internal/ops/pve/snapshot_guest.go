package pve

import (
	"context"
	"strings"
	"time"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

type snapshotGuestIn struct {
	Guest       string `json:"guest" jsonschema:"id or unique name"`
	Name        string `json:"name,omitempty"`
	Description string `json:"description,omitempty"`
	RAM         bool   `json:"vmstate,omitempty" jsonschema:"with RAM, VMs only"`
	Target      string `json:"target,omitempty"`
}

func snapshotGuest() *gate.Operation {
	return gate.Change(gate.Declaration{
		Name: "snapshot_guest", Summary: "Take a snapshot. Write; a name is made up if absent; undo: delete_snapshot", Product: "pve", Effect: gate.EffectChange,
		Kinds: []gate.Kind{gate.KindSnapshot}, Undo: "delete_snapshot", Keywords: "create make checkpoint restore point save state before change",
		Toolset: "standard", Bounded: true, Guest: "guest",
	}, planSnapshotGuest)
}

func planSnapshotGuest(ctx context.Context, v gate.View, in snapshotGuestIn) (*gate.Draft, error) {
	name := in.Name
	if name == "" {
		name = ownPrefix + v.Now().UTC().Format("20060102_150405")
	}
	if err := checkSnapshotName(name); err != nil {
		return nil, err
	}
	if len(in.Description) > 8192 {
		return nil, gate.Fail(gate.ErrInvalid, "Shorten it.", "the description has %d bytes; 8192 are taken", len(in.Description))
	}
	s, err := open(ctx, v, in.Target)
	if err != nil {
		return nil, err
	}
	g, err := s.guest(ctx, in.Guest)
	if err != nil {
		return nil, err
	}
	if err := g.notTemplate("snapshotted"); err != nil {
		return nil, err
	}
	if err := g.notLocked(ctx); err != nil {
		return nil, err
	}
	list, _, err := g.snapshots(ctx)
	if err != nil {
		return nil, err
	}
	for _, old := range list {
		if string(old.Name) == name {
			return nil, gate.Fail(gate.ErrInvalid, "Choose another name, or leave it out for a made-up one.", "%s has a snapshot %s already, of %s", g.Title(), name, stamp(int64(old.Time)))
		}
	}
	if yes, known := g.supports(ctx, "snapshot"); known && !yes {
		return nil, gate.Fail(gate.ErrInvalid, "backup_guest works on every storage; or move the disks to one that can (LVM-thin, ZFS, Ceph, qcow2 files).",
			"%s cannot be snapshotted: a storage or mount point of it does not support snapshots (volumes: %s)", g.Title(), strings.Join(g.disks(), ", "))
	}
	draft := &gate.Draft{Target: s.target(), Phrase: g.ID, Note: g.nameNote(in.Guest)}
	params := map[string]any{"snapname": name}
	if in.Description != "" {
		params["description"] = in.Description
	}
	switch {
	case in.RAM && g.Kind == estate.CT:
		draft.Skip = append(draft.Skip, "vmstate: containers have no saved memory; the snapshot holds the disks only")
	case in.RAM && !g.running():
		draft.Skip = append(draft.Skip, "vmstate: the VM is not running, so there is no memory to save")
	case in.RAM:
		params["vmstate"] = true
	case g.running() && g.Kind == estate.VM:
		draft.Note += "Without vmstate a rollback leaves the VM stopped, its disks as after a power cut. "
	}
	step, err := g.step(ctx, "POST", "/snapshot", params)
	if err != nil {
		return nil, err
	}
	step.Wait = gate.Wait{Kind: gate.WaitTask, Limit: 30 * time.Minute}
	step.Require = append(step.Require, g.noSnapshot(name))
	step.Verify = g.hasSnapshot(name)
	step.Undo.How = "delete snapshot " + name
	if step.Undo.Call, err = g.request("DELETE", "/snapshot/{snapname}", map[string]any{"snapname": name}); err != nil {
		return nil, err
	}
	draft.Steps = []gate.Step{step}
	draft.Note = strings.TrimSpace(draft.Note)
	return draft, nil
}
