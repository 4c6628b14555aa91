package pve

import (
	"context"
	"strings"
	"time"

	"castellan/internal/catalog"
	"castellan/internal/estate"
	"castellan/internal/gate"
	"castellan/internal/patch"
)

type rebootGuestIn struct {
	Guest   string `json:"guest" jsonschema:"id or unique name"`
	Timeout int    `json:"timeout,omitempty" jsonschema:"seconds for its shutdown, default 180"`
	Wait    int    `json:"wait,omitempty" jsonschema:"seconds until it must answer again, default 300"`
	Target  string `json:"target,omitempty"`
}

func rebootGuest() *gate.Operation {
	return gate.Change(gate.Declaration{
		Name: "reboot_guest", Summary: "Reboot a guest through Proxmox and wait until it is seen to have booted anew", Product: "pve", Effect: gate.EffectChange,
		Kinds: []gate.Kind{gate.KindReboot}, Undo: "none: it runs again afterwards", Keywords: "restart reboot required after update kernel wait boot id answers", Toolset: "full", Guest: "guest",
	}, planRebootGuest)
}

func planRebootGuest(ctx context.Context, v gate.View, in rebootGuestIn) (*gate.Draft, error) {
	if in.Timeout < 0 || in.Timeout > 7200 || in.Wait < 0 || in.Wait > 3600 {
		return nil, gate.Fail(gate.ErrInvalid, "Give a timeout of 1 to 7200 and a wait of 1 to 3600 seconds, or nothing.", "timeout is %d, wait is %d", in.Timeout, in.Wait)
	}
	if in.Timeout == 0 {
		in.Timeout = 180
	}
	if in.Wait == 0 {
		in.Wait = 300
	}
	s, err := open(ctx, v, in.Target)
	if err != nil {
		return nil, err
	}
	g, err := s.inside(ctx, in.Guest)
	if err != nil {
		return nil, err
	}
	p := &powerPlan{guest: g, action: "reboot", timeout: in.Timeout}
	if done, err := p.allowed(); err != nil || done != "" {
		return &gate.Draft{Note: done}, err
	}
	draft, err := p.draft(ctx, in.Guest)
	if err != nil {
		return nil, err
	}
	first := &draft.Steps[0]
	// A guest that Proxmox restarted has another process: what was running before proves nothing.
	if pid := g.current["pid"]; pid != "" && pid != "0" {
		first.Verify = append(first.Verify, gate.Condition{Name: g.short() + " runs as another process than before", Read: g.fresh("/status/current", nil), Pointer: "/pid", Rule: gate.RuleDiffers, Value: text(pid)})
	}
	if first.Wait.Kind == gate.WaitTask && g.managed {
		first.Wait = gate.Wait{Kind: gate.WaitVerify, Limit: time.Duration(in.Timeout)*time.Second + 5*time.Minute}
	}
	status, _, err := told[patch.Report](ctx, s, g.Guest, string(patch.Status), map[string]any{"timeout": 20})
	switch {
	case err != nil:
		_, why := unasked(err)
		draft.Note += " It cannot be asked for its boot id (" + why + "), so a new process of it is all that will be seen."
		if g.current["pid"] == "" {
			draft.Note += " Proxmox tells no process either: whether it was rebooted will not be known for sure; look at its uptime."
		}
		if agentOff(g.Kind, g.config) {
			draft.Note += " Its guest agent is off: it is asked to shut down by ACPI."
		}
		draft.Note = strings.TrimSpace(draft.Note)
		return draft, nil
	case status.Running != "":
		return nil, gate.Fail(gate.ErrUnavailable, "update_result with this guest waits for its end; reboot it then.", "an installation is under way in %s (%s): a reboot would cut it in half", g.Title(), clip(status.Running, 60))
	case status.BootID == "":
		draft.Note = strings.TrimSpace(draft.Note + " It tells no boot id: a new process of it is all that will be seen.")
		return draft, nil
	}
	// Which boot it is in is asked again just before: one between plan and now is not taken for this one.
	before, err := g.step(ctx, catalog.MethodRun, "/updates", map[string]any{"word": string(patch.Status), "timeout": 30})
	if err != nil {
		return nil, err
	}
	look, err := g.step(ctx, catalog.MethodRun, "/updates", map[string]any{"word": string(patch.Status), "other-than": status.BootID, "timeout": in.Wait})
	if err != nil {
		return nil, err
	}
	otherBoot(look.API, 1)
	before.Undo.How, look.Undo.How = "it changes nothing", "it changes nothing"
	draft.Steps = append(append([]gate.Step{before}, draft.Steps...), look)
	if status.Reboot.Known && !status.Reboot.Needed {
		draft.Note += " It needs no reboot by what it says."
	}
	if g.Kind == estate.CT {
		draft.Note += " The kernel is the node's: a container's reboot brings no other one."
	}
	draft.Note = strings.TrimSpace(draft.Note)
	return draft, nil
}

// otherBoot lets a step wait for another boot than the one that an earlier step saw.
func otherBoot(r *gate.Request, step int) {
	for i := range r.Params {
		if p := &r.Params[i]; p.Name == "other-than" {
			p.Values[0] = gate.Value{Ref: &gate.Ref{Step: step, Pointer: "/report/boot_id", Plan: p.Values[0].Text}}
		}
	}
}
