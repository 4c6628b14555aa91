package pve

import (
	"context"
	"fmt"
	"strings"

	"castellan/internal/gate"
	"castellan/internal/patch"
)

type repairPackagesIn struct {
	Guest    string `json:"guest" jsonschema:"id or unique name"`
	Snapshot *bool  `json:"snapshot,omitempty" jsonschema:"default true; false needs a person"`
	Target   string `json:"target,omitempty"`
}

func repairPackages(set PatchingSettings) *gate.Operation {
	return gate.Change(gate.Declaration{
		Name: "repair_packages", Summary: "Finish an interrupted installation in a guest (dpkg --configure -a and the like), snapshot first", Product: "pve", Effect: gate.EffectChange,
		Kinds: []gate.Kind{gate.KindUpgrade, gate.KindUpgradeBare}, Undo: "rollback_guest, to the snapshot taken first: what was written since is lost",
		Keywords: "fix broken packages dpkg interrupted half configured apt repair database", Toolset: "full", Guest: "guest",
	}, func(ctx context.Context, v gate.View, in repairPackagesIn) (*gate.Draft, error) {
		return planRepairPackages(ctx, v, set, in)
	})
}

func planRepairPackages(ctx context.Context, v gate.View, set PatchingSettings, in repairPackagesIn) (*gate.Draft, error) {
	s, err := open(ctx, v, in.Target)
	if err != nil {
		return nil, err
	}
	g, err := s.inside(ctx, in.Guest)
	if err != nil {
		return nil, err
	}
	rep, _, err := told[patch.Report](ctx, s, g.Guest, string(patch.Check), map[string]any{"timeout": 40})
	if err != nil {
		return nil, err
	}
	switch {
	case rep.Running != "":
		return nil, gate.Fail(gate.ErrUnavailable, "update_result with this guest waits for its end.", "an installation is under way in %s (%s)", g.Title(), clip(rep.Running, 60))
	case rep.Packages.Clean:
		return nothing("The package database of " + g.Title() + " is clean: there is nothing to repair."), nil
	case !rep.Packages.Repair:
		return nil, gate.Fail(gate.ErrInvalid, "It takes a look by a person in the guest.", "castellan's repair does not help %s: %s", g.Title(), strings.Join(someOf(clipped(rep.Packages.Problems, 200), 6), "; "))
	}
	if err := g.helped(rep.Helper); err != nil {
		return nil, err
	}
	p := &upgradePlan{guest: g, set: set, in: applyUpdatesIn{Snapshot: in.Snapshot}, draft: &gate.Draft{Target: s.target(), Phrase: g.ID}}
	if err := p.protectFirst(ctx); err != nil {
		return nil, err
	}
	params := map[string]any{"protect": p.protect}
	if len(rep.Fix) > 0 {
		params["package"] = rep.Fix.Texts()
	}
	step, err := g.run(ctx, "repair", params)
	if err != nil {
		return nil, err
	}
	step.Undo = noWayBack("a repair", p.protect == "snapshot", "guest")
	switch p.protect {
	case "snapshot":
		p.draft.Note += "Without the snapshot the rest is not done. "
	case "backup":
		step.Undo = gate.Undo{None: "a repair is not taken back; the backup made first can be restored"}
	case "none":
		step.Undo = gate.Undo{None: "a repair is not taken back, and no snapshot is taken"}
	}
	look, err := g.verify(ctx, set.settle())
	if err != nil {
		return nil, err
	}
	p.draft.Steps = append(p.draft.Steps, step, look)
	brings := "brings no package that is not there"
	if len(rep.Fix) > 0 {
		brings = fmt.Sprintf("brings exactly what is named (%s), without which it cannot be completed", counted(len(rep.Fix), "package"))
		for _, c := range rep.Fix {
			p.draft.Diff = append(p.draft.Diff, gate.Difference{Object: "guest/" + g.ID, Key: c.Name + ":" + c.Arch, Old: c.Old, New: c.New, Note: clip(c.Archive, 120)})
		}
	}
	p.draft.Note += "Found: " + strings.Join(someOf(clipped(rep.Packages.Problems, 120), 5), "; ") + ". It finishes what was begun and " + brings + "; what would take more is told in the result, and not done. Check again afterwards with check_updates."
	return p.draft, nil
}
