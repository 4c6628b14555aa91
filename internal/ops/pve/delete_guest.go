package pve

import (
	"context"
	"strings"
	"time"

	"castellan/internal/gate"
)

type deleteGuestIn struct {
	Guest  string `json:"guest" jsonschema:"id or unique name"`
	Purge  bool   `json:"purge,omitempty" jsonschema:"also from backup jobs, HA, replication"`
	Stop   bool   `json:"stop,omitempty" jsonschema:"hard stop first if running"`
	Target string `json:"target,omitempty"`
}

func deleteGuest() *gate.Operation {
	return gate.Change(gate.Declaration{
		Name: "delete_guest", Summary: "Destroy a guest and its disks. Write, no undo", Product: "pve", Effect: gate.EffectDestroy,
		Kinds: []gate.Kind{gate.KindData}, Undo: "none: only a backup brings it back", Keywords: "remove erase destroy purge vm container delete_vm",
		Toolset: "full", Bounded: true, Guest: "guest",
	}, planDelete)
}

func planDelete(ctx context.Context, v gate.View, in deleteGuestIn) (*gate.Draft, error) {
	s, err := open(ctx, v, in.Target)
	if err != nil {
		return nil, err
	}
	g, err := s.guest(ctx, in.Guest)
	if err != nil {
		return nil, err
	}
	if g.config.On("protection") {
		return nil, gate.Fail(gate.ErrInvalid, "If it really is to go, take the protection off first: set_guest_config with set={\"protection\":0}.", "%s is protected", g.Title())
	}
	if g.managed && !in.Purge {
		return nil, gate.Fail(gate.ErrInvalid, "Give purge to take it out of HA, backup jobs and replication as well.", "%s is managed by HA (state %s)", g.Title(), g.haState)
	}
	if g.Status != "stopped" && !in.Stop {
		return nil, gate.Fail(gate.ErrInvalid, "Shut it down with guest_power first, or give stop to plan a hard stop before it.", "%s is %s", g.Title(), g.Status)
	}
	if err := g.notLocked(ctx); err != nil {
		return nil, err
	}
	draft := &gate.Draft{Target: s.target(), Phrase: g.ID}
	if g.Status != "stopped" {
		stop, err := g.step(ctx, "POST", "/status/stop", nil)
		if err != nil {
			return nil, err
		}
		stop.Wait = gate.Wait{Kind: gate.WaitTask, Limit: 10 * time.Minute}
		if g.managed {
			stop.Wait = gate.Wait{Kind: gate.WaitVerify, Limit: 10 * time.Minute}
		}
		stop.Require = append(stop.Require, g.inState(g.Status))
		stop.Verify = []gate.Condition{g.inState("stopped")}
		stop.Undo.How, stop.Undo.Lost = "start it again", []string{"what was only in its memory, and what was not yet on its disks"}
		if stop.Undo.Call, err = g.request("POST", "/status/start", nil); err != nil {
			return nil, err
		}
		draft.Steps = append(draft.Steps, stop)
	}
	params := map[string]any{}
	if in.Purge {
		params["purge"] = true
	}
	step, err := g.step(ctx, "DELETE", "", params)
	if err != nil {
		return nil, err
	}
	step.Wait = gate.Wait{Kind: gate.WaitTask, Limit: time.Hour}
	step.Require = append(step.Require, g.inState("stopped"), gate.Condition{Name: g.short() + " is not protected", Read: g.fresh("/config", nil), Pointer: "/protection",
		Rule: gate.RuleDiffers, Value: text("1")})
	step.Verify = []gate.Condition{{Name: "no guest has the id " + g.ID, Read: gate.Read{Operation: "GET /cluster/resources", Params: map[string]string{"type": "vm"}},
		Where: map[string]string{"vmid": g.ID}, Rule: gate.RuleAbsent}}
	step.Undo.None = "the disks are destroyed; only a backup brings the guest back"
	draft.Steps = append(draft.Steps, step)
	note := g.nameNote(in.Guest) + "Its ACL entries, pool membership and firewall rules go with it. "
	draft.Note = strings.TrimSpace(note)
	return draft, nil
}
