package pve

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"castellan/internal/backups"
	"castellan/internal/gate"
)

type runBackupJobIn struct {
	ID     string `json:"id"`
	Target string `json:"target,omitempty"`
}

func runBackupJob() *gate.Operation {
	return gate.Change(gate.Declaration{
		Name: "run_backup_job", Summary: "Run a backup job now: one backup task on each node with guests of it. Write", Product: "pve", Effect: gate.EffectDestroy,
		Kinds: []gate.Kind{gate.KindBackup}, Undo: "delete the archives that its tasks name", Keywords: "backup job start now run immediately vzdump", Toolset: "full", Bounded: true,
	}, planRunBackupJob)
}

// passedOn are the keys of a job that its run takes.
var passedOn = []string{"storage", "mode", "compress", "notes-template", "bwlimit", "ionice", "pigz", "zstd", "lockwait", "stopwait", "protected", "fleecing", "performance", "pbs-change-detection-mode", "exclude-path",
	"notification-mode", "mailnotification", "mailto", "stdexcludes", "remove", "prune-backups"}

func planRunBackupJob(ctx context.Context, v gate.View, in runBackupJobIn) (*gate.Draft, error) {
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
	for _, k := range []string{"script", "dumpdir", "tmpdir"} {
		if old[k] != "" {
			return nil, gate.Fail(gate.ErrInvalid, "Run it at the site itself.", "job %s has %s, which only root itself may give", in.ID, k)
		}
	}
	bs, err := backups.Look(ctx, v, in.Target, backups.Question{Jobs: true})
	if err != nil {
		return nil, err
	}
	d := &gate.Draft{Target: s.target(), Phrase: in.ID}
	by := map[string][]string{}
	mine := seen(ctx, v, bs.Inventory.Target.Name)
	for i := range bs.Jobs {
		if string(bs.Jobs[i].ID) != in.ID {
			continue
		}
		for _, g := range s.inv.Guests {
			covered, _ := bs.Covers(&bs.Jobs[i], g)
			switch {
			case !covered:
			case !mine(g):
				d.Skip = append(d.Skip, "guests outside this caller's scope")
			case g.NodeOff:
				d.Skip = append(d.Skip, g.Title()+": node "+g.Node+" is not online")
			case g.Lock != "":
				d.Skip = append(d.Skip, g.Title()+": it is locked ("+g.Lock+")")
			default:
				by[g.Node] = append(by[g.Node], g.ID)
			}
		}
	}
	slices.Sort(d.Skip)
	d.Skip = slices.Compact(d.Skip)
	if len(d.Skip) > 20 {
		d.Skip = append(d.Skip[:20], fmt.Sprintf("and %d more", len(d.Skip)-20))
	}
	for _, node := range slices.Sorted(maps.Keys(by)) {
		params := map[string]any{"node": node, "vmid": strings.Join(by[node], ",")}
		for _, k := range passedOn {
			if old[k] != "" {
				params[k] = settingOf(k, old[k])
			}
		}
		r, err := gate.NewRequest("pve", "POST /nodes/{node}/vzdump", params)
		if err != nil {
			return nil, err
		}
		step := gate.Step{API: &r, Wait: gate.Wait{Kind: gate.WaitTask, Limit: 24 * time.Hour}, Require: jobHas(in.ID, "storage", old["storage"])}
		step.Undo.How = "delete the archives that the task's log names"
		if p := settingOf("prune-backups", old["prune-backups"]); p != "" && p != "keep-all=1" {
			step.Undo.None, step.Undo.How = "older archives that "+p+" does not keep are removed for good", ""
		}
		d.Steps = append(d.Steps, step)
	}
	if len(d.Steps) == 0 {
		d.Note = "The job covers no guest that could be saved now."
		return d, nil
	}
	d.Note = "The job itself stays as it is; the guests are named as they are now. Each guest is locked while it is saved; the nodes come one after the other, and after a failure the rest is not begun."
	return d, nil
}
