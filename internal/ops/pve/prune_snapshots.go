package pve

import (
	"context"
	"fmt"
	"time"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

type pruneSnapshotsIn struct {
	Guest  string `json:"guest,omitempty" jsonschema:"id or unique name; all when left out"`
	Days   *int   `json:"older_than_days,omitempty" jsonschema:"default 14"`
	Keep   *int   `json:"keep,omitempty" jsonschema:"newest own ones of each guest that stay; default 3"`
	Points bool   `json:"undo_points,omitempty" jsonschema:"only those that were taken before a change"`
	Target string `json:"target,omitempty"`
}

func pruneSnapshots() *gate.Operation {
	return gate.Change(gate.Declaration{
		Name: "prune_snapshots", Summary: "Delete old snapshots that castellan itself made, each named in the plan. Write, no undo", Product: "pve", Effect: gate.EffectDestroy,
		Kinds: []gate.Kind{gate.KindDeleteSnapshot}, Undo: "none: the states that they kept are gone", Keywords: "clean up remove old undo points checkpoints retention",
		Toolset: "full", Bounded: true, Guest: "guest",
	}, planPruneSnapshots)
}

// mostPruned bounds one plan.
const mostPruned = 50

func planPruneSnapshots(ctx context.Context, v gate.View, in pruneSnapshotsIn) (*gate.Draft, error) {
	days, keep := 14, 3
	if in.Days != nil {
		days = *in.Days
	}
	if in.Keep != nil {
		keep = *in.Keep
	}
	if days < 1 || keep < 0 || keep > 1000 {
		return nil, gate.Fail(gate.ErrInvalid, "Give at least one day, and 0 to 1000 to keep.", "older_than_days is %d and keep is %d", days, keep)
	}
	s, err := open(ctx, v, in.Target)
	if err != nil {
		return nil, err
	}
	guests := s.inv.Guests
	if in.Guest != "" {
		one, err := s.inv.Guest(ctx, v, in.Guest)
		if err != nil {
			return nil, err
		}
		guests = []estate.Guest{one}
	}
	needs, err := needed(ctx, v, s.target())
	if err != nil {
		return nil, err
	}
	draft := &gate.Draft{Target: s.target()}
	before := v.Now().Add(-time.Duration(days) * 24 * time.Hour)
	due := 0
	for _, found := range guests {
		if in.Guest == "" && (found.NodeOff || !v.Sees(ctx, s.target(), gate.ObjectFacts{Object: gate.Object{Kind: gate.ObjectGuest, ID: found.ID}, Known: true, Name: found.Name, Tags: found.Tags, Pools: estate.Pools(found.Pool)})) {
			if found.NodeOff {
				draft.Skip = append(draft.Skip, found.Title()+": its node is not online")
			}
			continue
		}
		g := &guest{Guest: found, site: s}
		list, _, err := g.snapshots(ctx)
		if err != nil {
			draft.Skip = append(draft.Skip, found.Title()+": "+clip(err.Error(), 120))
			continue
		}
		for _, snap := range prunable(list, keep, in.Points) {
			at := time.Unix(int64(snap.Time), 0)
			if !at.Before(before) {
				continue
			}
			if needs.Snapshots[[2]string{found.ID, string(snap.Name)}] {
				draft.Skip = append(draft.Skip, fmt.Sprintf("%s of %s: a plan that has not ended names it", snap.Name, found.Title()))
				continue
			}
			if !needs.Oldest.IsZero() && at.After(needs.Oldest) {
				draft.Skip = append(draft.Skip, fmt.Sprintf("%s of %s: a plan that has not ended is older and may need it", snap.Name, found.Title()))
				continue
			}
			if due++; due > mostPruned {
				continue
			}
			child, err := planDeleteSnapshot(ctx, v, deleteSnapshotIn{Guest: found.ID, Name: string(snap.Name), Target: in.Target})
			if err != nil {
				draft.Skip = append(draft.Skip, fmt.Sprintf("%s of %s: %s", snap.Name, found.Title(), clip(err.Error(), 160)))
				continue
			}
			draft.Children = append(draft.Children, child)
			draft.Diff = append(draft.Diff, gate.Difference{Object: "guest/" + found.ID, Key: "snapshot " + string(snap.Name), Old: stamp(int64(snap.Time))})
		}
	}
	if due > mostPruned {
		draft.Note = fmt.Sprintf("%d more are due: prune again afterwards.", due-mostPruned)
	}
	return draft, nil
}

// prunable are a guest's own snapshots without the newest that stay. One that is unfinished, or that castellan did not
// make, is none of its business. An undo point has the name and the description that castellan gives it: whoever changed
// the description wants to keep it.
func prunable(list []snapshot, keep int, points bool) []snapshot {
	var own []snapshot
	for _, s := range list { // the oldest first
		mine := madeUp(string(s.Name))
		if points {
			mine = s.isPoint()
		}
		if mine && s.State == "" && s.Time > 0 {
			own = append(own, s)
		}
	}
	return own[:max(0, len(own)-keep)]
}

// needed tells what plans need that have not ended; nothing when none are kept.
func needed(ctx context.Context, v gate.View, target string) (gate.Needs, error) {
	past, ok := v.(gate.Past)
	if !ok {
		return gate.Needs{}, nil
	}
	return past.Needed(ctx, target)
}
