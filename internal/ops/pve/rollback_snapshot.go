package pve

import (
	"context"
	"fmt"
	"strings"
	"time"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

type rollbackSnapshotIn struct {
	Guest  string `json:"guest" jsonschema:"id or unique name"`
	Name   string `json:"name"`
	Start  bool   `json:"start,omitempty" jsonschema:"start it afterwards"`
	Target string `json:"target,omitempty"`
}

func rollbackSnapshot() *gate.Operation {
	return gate.Change(gate.Declaration{
		Name: "rollback_snapshot", Summary: "Put a guest back to a snapshot. Write, no undo: destroys what came later", Product: "pve", Effect: gate.EffectDestroy,
		Kinds: []gate.Kind{gate.KindRollback}, Undo: "none: what was written since the snapshot is lost",
		Keywords: "revert restore go back undo changes reset to checkpoint", Toolset: "standard", Bounded: true, Guest: "guest",
	}, planRollback)
}

func planRollback(ctx context.Context, v gate.View, in rollbackSnapshotIn) (*gate.Draft, error) {
	s, err := open(ctx, v, in.Target)
	if err != nil {
		return nil, err
	}
	g, err := s.guest(ctx, in.Guest)
	if err != nil {
		return nil, err
	}
	if err := g.notTemplate("rolled back"); err != nil {
		return nil, err
	}
	if err := g.notLocked(ctx); err != nil {
		return nil, err
	}
	snap, _, err := g.snapshot(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	if snap.State != "" {
		return nil, gate.Fail(gate.ErrInvalid, "Choose another snapshot, or delete this one.", "snapshot %s of %s is unfinished (%s)", snap.Name, g.Title(), snap.State)
	}
	draft := &gate.Draft{Target: s.target(), Phrase: g.ID}
	if draft.Diff, err = g.broughtIn(ctx, string(snap.Name)); err != nil {
		return nil, err
	}
	params := map[string]any{"snapname": string(snap.Name)}
	after := "stopped"
	switch {
	case bool(snap.RAM):
		after = "running"
		if in.Start {
			draft.Skip = append(draft.Skip, "start: the snapshot holds the memory, so the VM runs again by itself")
		}
	case in.Start:
		params["start"], after = true, "running"
	}
	step, err := g.step(ctx, "POST", "/snapshot/{snapname}/rollback", params)
	if err != nil {
		return nil, err
	}
	step.Wait = gate.Wait{Kind: gate.WaitTask, Limit: time.Hour}
	step.Require = append(step.Require, g.snapshotIs(snap), g.inState(g.Status))
	step.Verify = []gate.Condition{{Name: g.short() + " builds on snapshot " + string(snap.Name), Read: g.fresh("/snapshot", nil),
		Where: map[string]string{"name": current}, Pointer: "/parent", Rule: gate.RuleEquals, Value: text(string(snap.Name))}, g.inState(after)}
	step.Undo.None = "what was written since " + stamp(int64(snap.Time)) + " is lost; a backup_guest before it keeps a way back, a snapshot_guest too where no disk is on ZFS, which goes back to its newest snapshot only"
	draft.Steps = []gate.Step{step}
	draft.Note = strings.TrimSpace(g.rollbackNote(in, after))
	return draft, nil
}

func (g *guest) rollbackNote(in rollbackSnapshotIn, after string) string {
	note := g.nameNote(in.Guest)
	if g.running() && after == "stopped" {
		note += "It stays stopped afterwards unless start is given. "
	}
	return note + "The description stays as it is now; every other setting is that of the snapshot."
}

// notBroughtIn are keys of a snapshot's settings that are about the snapshot, or that a rollback leaves alone.
var notBroughtIn = map[string]bool{"digest": true, "snaptime": true, "parent": true, "vmstate": true, "snapstate": true, "description": true, "lock": true,
	"vmgenid": true, "runningmachine": true, "runningcpu": true, "running-nets-host-mtu": true, "meta": true}

// broughtIn compares the settings that a snapshot brings back with those of now.
func (g *guest) broughtIn(ctx context.Context, name string) ([]gate.Difference, error) {
	a, err := g.site.read(ctx, nil, g.at("GET", "/config"), g.params(map[string]string{"snapshot": name}))
	if err != nil {
		return nil, fmt.Errorf("read the settings in snapshot %s of %s: %w", name, g.Title(), err)
	}
	then, err := estate.ParseConfig(a.Data)
	if err != nil {
		return nil, fmt.Errorf("read the settings in snapshot %s of %s: %w", name, g.Title(), err)
	}
	var out []gate.Difference
	for _, k := range unionKeys(then, g.config) {
		if notBroughtIn[k] || sameSetting(k, g.config[k], then[k]) {
			continue
		}
		out = append(out, gate.Difference{Object: "guest/" + g.ID, Key: k, Old: masked(k, g.config[k]), New: masked(k, then[k])})
	}
	return out, nil
}
