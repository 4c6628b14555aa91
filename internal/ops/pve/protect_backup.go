package pve

import (
	"context"

	"castellan/internal/gate"
)

type protectBackupIn struct {
	Backup    string `json:"backup" jsonschema:"volid as list_backups shows it"`
	Protected *bool  `json:"protected,omitempty" jsonschema:"default: true"`
	Target    string `json:"target,omitempty"`
}

func protectBackup() *gate.Operation {
	return gate.Change(gate.Declaration{
		Name: "protect_backup", Summary: "Mark a backup so that nothing deletes it, or take the mark off. Write; undo: the other way", Product: "pve", Effect: gate.EffectChange,
		Kinds: []gate.Kind{gate.KindSettings, gate.KindGuard}, Undo: "the mark as it was", Keywords: "backup archive protected keep prune retention lock unprotect", Toolset: "full", Bounded: true,
	}, planProtectBackup)
}

func planProtectBackup(ctx context.Context, v gate.View, in protectBackupIn) (*gate.Draft, error) {
	s, a, err := findBackup(ctx, v, in.Target, in.Backup)
	if err != nil {
		return nil, err
	}
	want := in.Protected == nil || *in.Protected
	if want == a.Protected {
		return nothing("The mark is already so."), nil
	}
	mark := func(on bool) (*gate.Request, error) {
		r, err := gate.NewRequest("pve", "PUT /nodes/{node}/storage/{storage}/content/{volume}", map[string]any{"node": a.Node, "storage": a.Storage, "volume": a.Volume, "protected": on})
		return &r, err
	}
	r, err := mark(want)
	if err != nil {
		return nil, err
	}
	rule := map[bool]gate.Rule{true: gate.RuleEquals, false: gate.RuleDiffers}
	marked := func(on bool) gate.Condition {
		c := backupUnprotected(a)
		c.Rule = rule[on]
		if on {
			c.Name = "the archive is protected"
		}
		return c
	}
	step := gate.Step{API: r, Require: []gate.Condition{backupIs(a), marked(!want)}, Verify: []gate.Condition{marked(want)}}
	step.Undo.How = "set the mark back"
	if step.Undo.Call, err = mark(!want); err != nil {
		return nil, err
	}
	yes := map[bool]string{true: "yes", false: "no"}
	d := gate.Difference{Object: "archive/" + a.Volume, Key: "protected", Old: yes[a.Protected], New: yes[want]}
	if !want {
		d.Note = "retention and people may delete it from then on"
	}
	return &gate.Draft{Target: s.Inventory.Target.Name, Steps: []gate.Step{step}, Diff: []gate.Difference{d}, Phrase: a.Guest}, nil
}
