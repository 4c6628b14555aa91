package pve

import (
	"context"
	"maps"
	"slices"
	"strings"

	"castellan/internal/gate"
)

type deleteBackupJobIn struct {
	ID     string `json:"id"`
	Target string `json:"target,omitempty"`
}

func deleteBackupJob() *gate.Operation {
	return gate.Change(gate.Declaration{
		Name: "delete_backup_job", Summary: "Delete a backup job; its archives stay. Write; undo: it is created again", Product: "pve", Effect: gate.EffectChange,
		Kinds: []gate.Kind{gate.KindGuard}, Undo: "the job is created again", Keywords: "remove backup schedule job stop backing up", Toolset: "full",
	}, planDeleteBackupJob)
}

// notRecreated are keys of a stored job that its creation does not take.
var notRecreated = []string{"next-run", "type", "digest", "last-run"}

func planDeleteBackupJob(ctx context.Context, v gate.View, in deleteBackupJobIn) (*gate.Draft, error) {
	s, err := open(ctx, v, in.Target)
	if err != nil {
		return nil, err
	}
	jobs, err := s.jobsNow(ctx)
	if err != nil {
		return nil, err
	}
	old, err := oneJob(jobs, in.ID)
	if err != nil {
		return nil, err
	}
	r, err := jobRequest("DELETE", map[string]string{"id": in.ID})
	if err != nil {
		return nil, err
	}
	step := gate.Step{API: r, Verify: []gate.Condition{{Name: "there is no job " + in.ID, Read: jobsRead(), Where: map[string]string{"id": in.ID}, Pointer: "/id", Rule: gate.RuleAbsent}}}
	back := map[string]string{}
	d := &gate.Draft{Target: s.target(), Phrase: in.ID}
	for _, k := range slices.Sorted(maps.Keys(old)) {
		if slices.Contains(notRecreated, k) {
			continue
		}
		back[k] = settingOf(k, old[k])
		if k != "id" {
			d.Diff = append(d.Diff, gate.Difference{Object: "job/" + in.ID, Key: k, Old: oneLine(back[k], 200)})
			step.Require = append(step.Require, jobHas(in.ID, k, old[k])...)
		}
	}
	if len(step.Require) == 0 {
		step.Require = jobHas(in.ID, "id", in.ID)
	}
	step.Undo.How = "create the job again as it is now"
	if step.Undo.Call, err = jobRequest("POST", back); err != nil {
		step.Undo.Call = nil
	}
	d.Steps = []gate.Step{step}
	d.Note = strings.TrimSpace("Its archives stay. " + s.uncovered(ctx, in.ID, nil))
	return d, nil
}
