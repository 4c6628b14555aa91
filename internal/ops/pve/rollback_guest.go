package pve

import (
	"context"
	"fmt"
	"strings"
	"time"

	"castellan/internal/gate"
)

type rollbackGuestIn struct {
	Guest    string `json:"guest" jsonschema:"id or unique name"`
	Snapshot string `json:"snapshot,omitempty" jsonschema:"the newest of castellan's own if absent"`
	Start    *bool  `json:"start,omitempty" jsonschema:"afterwards; default true"`
	Target   string `json:"target,omitempty"`
}

func rollbackGuest() *gate.Operation {
	return gate.Change(gate.Declaration{
		Name: "rollback_guest", Summary: "Go back to a snapshot that castellan took before a change, and start the guest. Destroys what came later", Product: "pve", Effect: gate.EffectDestroy,
		Kinds: []gate.Kind{gate.KindRollback}, Undo: "none: what was written since the snapshot is lost", Keywords: "undo update revert back after failed patch broken service restore own snapshot",
		Toolset: "full", Bounded: true, Guest: "guest",
	}, planRollbackGuest)
}

func planRollbackGuest(ctx context.Context, v gate.View, in rollbackGuestIn) (*gate.Draft, error) {
	s, err := open(ctx, v, in.Target)
	if err != nil {
		return nil, err
	}
	g, err := s.guest(ctx, in.Guest)
	if err != nil {
		return nil, err
	}
	list, _, err := g.snapshots(ctx)
	if err != nil {
		return nil, err
	}
	var own []snapshot
	var named []string
	for _, snap := range list {
		if snap.isPoint() && snap.State == "" && snap.Time > 0 {
			own, named = append(own, snap), append(named, string(snap.Name))
		}
	}
	switch {
	case len(own) == 0:
		return nil, gate.Fail(gate.ErrNotFound, "list_snapshots shows all; rollback_snapshot goes back to one that somebody else took.", "%s has no snapshot that castellan took before a change", g.Title())
	case in.Snapshot == "":
		own = own[len(own)-1:]
	default:
		var one []snapshot
		for _, snap := range own {
			if string(snap.Name) == in.Snapshot {
				one = append(one, snap)
			}
		}
		if len(one) == 0 {
			return nil, gate.Fail(gate.ErrInvalid, "Its own are: "+strings.Join(someOf(named, 20), ", ")+". rollback_snapshot goes back to one that somebody else took.", "%q of %s is no snapshot that castellan took before a change", clip(in.Snapshot, 60), g.Title())
		}
		own = one
	}
	snap := own[0]
	start := in.Start == nil || *in.Start // an update may be what stopped it
	draft, err := planRollback(ctx, v, rollbackSnapshotIn{Guest: g.ID, Name: string(snap.Name), Start: start, Target: s.target()})
	if err != nil {
		return nil, err
	}
	at := time.Unix(int64(snap.Time), 0).UTC()
	lost := fmt.Sprintf("EVERYTHING written in %s since %s (%s ago) is lost: data, databases, mail, logs, and the packages installed since. ", g.Title(), at.Format(time.RFC3339), roughly(v.Now().Sub(at)))
	if later := newer(list, snap); later > 0 {
		lost += fmt.Sprintf("%d later snapshots stand in the way where a disk is on ZFS. ", later)
	}
	if start && !g.running() {
		lost += "It does not run now, and is started afterwards; start=false leaves it stopped. "
	}
	draft.Note = strings.TrimSpace(lost + g.nameNote(in.Guest) + draft.Note)
	return draft, nil
}

// newer counts the snapshots that were taken after one.
func newer(list []snapshot, than snapshot) (n int) {
	for _, s := range list {
		if s.Time > than.Time {
			n++
		}
	}
	return n
}
