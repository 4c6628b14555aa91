package pve

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"castellan/internal/gate"
)

type createBackupJobIn struct {
	ID string `json:"id,omitempty" jsonschema:"a name for it; default: one is made up"`
	jobSettings
	Target string `json:"target,omitempty"`
}

func createBackupJob() *gate.Operation {
	return gate.Change(gate.Declaration{
		Name: "create_backup_job", Summary: "Create a backup job; shows whom it covers and its next runs. Write", Product: "pve", Effect: gate.EffectDestroy,
		Kinds: []gate.Kind{gate.KindGuard}, Undo: "delete_backup_job; archives that its retention removed do not come back", Keywords: "backup schedule plan vzdump cron automatic nightly retention new job",
		Toolset: "full", Bounded: true,
	}, planCreateBackupJob)
}

func planCreateBackupJob(ctx context.Context, v gate.View, in createBackupJobIn) (*gate.Draft, error) {
	s, err := open(ctx, v, in.Target)
	if err != nil {
		return nil, err
	}
	params, err := in.params(s)
	if err != nil {
		return nil, err
	}
	switch {
	case params["schedule"] == "":
		return nil, gate.Fail(gate.ErrInvalid, "Give schedule, such as 02:30 or mon..fri 02:00.", "the schedule is missing")
	case params["storage"] == "":
		return nil, gate.Fail(gate.ErrInvalid, "Give storage; list_storage with content=backup shows those for backups.", "the storage is missing")
	case !in.All && in.Pool == "" && len(in.Guests) == 0:
		return nil, gate.Fail(gate.ErrInvalid, "Give one of all, guests and pool.", "no guests are selected")
	case len(in.Exclude) > 0 && !in.All:
		return nil, gate.Fail(gate.ErrInvalid, "Leave exclude out, or give all.", "exclude goes with all only")
	}
	if err := s.backupStorage(ctx, params["storage"]); err != nil {
		return nil, err
	}
	jobs, err := s.jobsNow(ctx)
	if err != nil {
		return nil, err
	}
	id := in.ID
	if id == "" {
		for n := 1; id == "" || jobs[id] != nil; n++ {
			id = fmt.Sprintf("backup-castellan-%d", n)
		}
	}
	if !jobID.MatchString(id) {
		return nil, gate.Fail(gate.ErrInvalid, "Use a letter, then letters, digits, - and _.", "%q is no id of a job", clip(id, 60))
	}
	if jobs[id] != nil {
		return nil, gate.Fail(gate.ErrInvalid, "Choose another id, or change that job with update_backup_job.", "there is a job %s already", id)
	}
	params["id"] = id
	if params["prune-backups"] == "" { // else the storage's own retention would remove archives
		params["remove"] = "0"
	}
	r, err := jobRequest("POST", params)
	if err != nil {
		return nil, err
	}
	there := gate.Condition{Name: "there is no job " + id, Read: jobsRead(), Where: map[string]string{"id": id}, Pointer: "/id", Rule: gate.RuleAbsent}
	step := gate.Step{API: r, Require: []gate.Condition{there}, Verify: jobHas(id, "schedule", params["schedule"])}
	step.Undo.How = "delete job " + id
	if step.Undo.Call, err = jobRequest("DELETE", map[string]string{"id": id}); err != nil {
		return nil, err
	}
	d := &gate.Draft{Target: s.target(), Steps: []gate.Step{step}, Phrase: id, Note: s.whoNote(ctx, params)}
	for _, k := range slices.Sorted(maps.Keys(params)) {
		if k != "id" {
			d.Diff = append(d.Diff, gate.Difference{Object: "job/" + id, Key: k, New: params[k]})
		}
	}
	if params["prune-backups"] != "" && params["prune-backups"] != "keep-all=1" {
		d.Note += " After each backup, unprotected archives of the guest on that storage beyond " + params["prune-backups"] + " are removed for good."
	}
	return d, nil
}
