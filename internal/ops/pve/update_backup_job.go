package pve

import (
	"context"
	"maps"
	"slices"
	"strings"

	"castellan/internal/estate"
	"castellan/internal/gate"
)

type updateBackupJobIn struct {
	ID string `json:"id"`
	jobSettings
	Unset  []string `json:"unset,omitempty" jsonschema:"settings to take away, e.g. exclude, node, prune-backups"`
	Target string   `json:"target,omitempty"`
}

func updateBackupJob() *gate.Operation {
	return gate.Change(gate.Declaration{
		Name: "update_backup_job", Summary: "Change a backup job; shows whom it covers then and its next runs. Write", Product: "pve", Effect: gate.EffectDestroy,
		Kinds: []gate.Kind{gate.KindGuard}, Undo: "the old settings are set again", Keywords: "backup schedule edit modify enable disable retention storage job", Toolset: "full", Bounded: true,
	}, planUpdateBackupJob)
}

func planUpdateBackupJob(ctx context.Context, v gate.View, in updateBackupJobIn) (*gate.Draft, error) {
	s, err := open(ctx, v, in.Target)
	if err != nil {
		return nil, err
	}
	set, err := in.params(s)
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
	if set["storage"] != "" {
		if err := s.backupStorage(ctx, set["storage"]); err != nil {
			return nil, err
		}
	}
	gone := slices.Clone(in.Unset)
	for _, k := range gone {
		if _, both := set[k]; both || k == "id" || k == "schedule" || slices.Contains(jobKeys, k) {
			return nil, gate.Fail(gate.ErrInvalid, "Give a new value instead.", "%s cannot be unset here", clip(k, 40))
		}
	}
	gone = slices.DeleteFunc(gone, func(k string) bool { return old[k] == "" })
	for k, val := range set {
		if settingOf(k, old[k]) == val {
			delete(set, k)
		}
	}
	for _, k := range jobKeys { // a new way of selecting takes the place of the old one
		if set[k] == "" {
			continue
		}
		for _, other := range append(slices.Clone(jobKeys), "exclude") {
			if other != k && old[other] != "" && !(other == "exclude" && k == "all") && !slices.Contains(gone, other) {
				gone = append(gone, other)
			}
		}
	}
	if len(set)+len(gone) == 0 {
		return nothing("The job is so already."), nil
	}
	slices.Sort(gone)
	return s.jobChange(ctx, in.ID, old, set, gone)
}

// jobChange drafts the change of a job: set and gone are what really changes.
func (s *site) jobChange(ctx context.Context, id string, old estate.Config, set map[string]string, gone []string) (*gate.Draft, error) {
	params, back := maps.Clone(set), map[string]string{"id": id}
	params["id"] = id
	if params["notes-template"] != "" && params["storage"] == "" { // the server takes it only beside a storage
		params["storage"] = old["storage"]
	}
	if len(gone) > 0 {
		params["delete"] = strings.Join(gone, ",")
	}
	r, err := jobRequest("PUT", params)
	if err != nil {
		return nil, err
	}
	step := gate.Step{API: r}
	after := maps.Clone(map[string]string(old))
	var added, diff = []string{}, []gate.Difference{}
	for _, k := range slices.Sorted(maps.Keys(set)) {
		was := settingOf(k, old[k])
		diff = append(diff, gate.Difference{Object: "job/" + id, Key: k, Old: was, New: set[k]})
		step.Require = append(step.Require, jobHas(id, k, old[k])...)
		if !composite(k) {
			step.Verify = append(step.Verify, jobHas(id, k, set[k])...)
		}
		if was == "" {
			added = append(added, k)
		} else {
			back[k] = was
		}
		after[k] = set[k]
	}
	for _, k := range gone {
		was := settingOf(k, old[k])
		diff = append(diff, gate.Difference{Object: "job/" + id, Key: k, Old: was})
		step.Require = append(step.Require, jobHas(id, k, old[k])...)
		step.Verify = append(step.Verify, jobHas(id, k, "")...)
		back[k] = was
		delete(after, k)
	}
	if len(added) > 0 {
		back["delete"] = strings.Join(added, ",")
	}
	step.Undo.How = "the old settings are set again; archives that a run removed meanwhile do not come back"
	if back["notes-template"] != "" && back["storage"] == "" {
		back["storage"] = old["storage"]
	}
	if step.Undo.Call, err = jobRequest("PUT", back); err != nil {
		return nil, err
	}
	note := s.whoNote(ctx, after)
	if lost := s.uncovered(ctx, id, after); lost != "" {
		note += " " + lost
	}
	return &gate.Draft{Target: s.target(), Steps: []gate.Step{step}, Diff: diff, Note: strings.TrimSpace(note), Phrase: id}, nil
}
