package pve

import (
	"context"
	"strings"
	"time"

	"castellan/internal/gate"
)

type deleteSnapshotIn struct {
	Guest  string `json:"guest" jsonschema:"id or unique name"`
	Name   string `json:"name"`
	Target string `json:"target,omitempty"`
}

func deleteSnapshot() *gate.Operation {
	return gate.Change(gate.Declaration{
		Name: "delete_snapshot", Summary: "Delete a snapshot. Write, no undo", Product: "pve", Effect: gate.EffectDestroy,
		Kinds: []gate.Kind{gate.KindDeleteSnapshot}, Undo: "none: the state that it kept is gone", Keywords: "remove drop checkpoint restore point clean up",
		Toolset: "full", Bounded: true, Guest: "guest",
	}, planDeleteSnapshot)
}

func planDeleteSnapshot(ctx context.Context, v gate.View, in deleteSnapshotIn) (*gate.Draft, error) {
	s, err := open(ctx, v, in.Target)
	if err != nil {
		return nil, err
	}
	g, err := s.guest(ctx, in.Guest)
	if err != nil {
		return nil, err
	}
	if err := g.notLocked(ctx); err != nil {
		return nil, err
	}
	snap, list, err := g.snapshot(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	name := string(snap.Name)
	step, err := g.step(ctx, "DELETE", "/snapshot/{snapname}", map[string]any{"snapname": name})
	if err != nil {
		return nil, err
	}
	step.Wait = gate.Wait{Kind: gate.WaitTask, Limit: 2 * time.Hour}
	step.Require = append(step.Require, g.snapshotIs(snap))
	step.Verify = []gate.Condition{g.noSnapshot(name)}
	step.Undo.None = "the state of " + stamp(int64(snap.Time)) + " cannot be gone back to any more"
	note := g.nameNote(in.Guest)
	var children []string
	for _, c := range list {
		if string(c.Parent) == name {
			children = append(children, string(c.Name))
		}
	}
	if len(children) > 0 {
		note += "Snapshots that build on it stay: " + strings.Join(children, ", ") + ". "
	}
	if !madeUp(name) {
		note += "It was not made by castellan under a made-up name: somebody chose to keep it. "
	}
	return &gate.Draft{Target: s.target(), Steps: []gate.Step{step}, Note: strings.TrimSpace(note), Phrase: g.ID}, nil
}
