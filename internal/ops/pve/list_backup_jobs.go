package pve

import (
	"context"
	"fmt"
	"strings"
	"time"

	"castellan/internal/backups"
	"castellan/internal/gate"
	"castellan/internal/ops/table"
)

type listBackupJobsIn struct {
	table.Ask
	Target string `json:"target,omitempty"`
}

type listBackupJobsOut struct {
	Jobs []map[string]any `json:"jobs"`
	table.Count
	Incomplete []string `json:"incomplete,omitempty"`
}

var jobColumns = table.Columns{All: []string{"id", "enabled", "schedule", "selects", "guests", "storage", "mode", "keeps", "next", "zone", "repeat_missed", "left_out", "fault", "comment"}}

func listBackupJobs() *gate.Operation {
	return gate.Query(gate.Declaration{
		Name: "list_backup_jobs", Summary: "Backup jobs, whom they cover and when they run next. Read", Product: "pve", Kinds: []gate.Kind{gate.KindRead},
		Keywords: "backup schedule vzdump jobs.cfg cron planned next run coverage retention get_backup_jobs", Toolset: "full",
	}, runListBackupJobs)
}

func runListBackupJobs(ctx context.Context, v gate.View, in listBackupJobsIn) (listBackupJobsOut, error) {
	s, err := backups.Look(ctx, v, in.Target, backups.Question{Jobs: true})
	if err != nil {
		return listBackupJobsOut{}, err
	}
	if !s.JobsKnown {
		return listBackupJobsOut{}, gate.Fail(gate.ErrDenied, "castellan's user needs Sys.Audit on / at the site.", "the backup jobs could not be read: %s", clip(strings.Join(s.Missing, "; "), 300))
	}
	mine := seen(ctx, v, s.Inventory.Target.Name)
	out := listBackupJobsOut{Incomplete: bounded(s.Missing)}
	out.Jobs, out.Count, err = table.Cut(in.Ask, jobColumns, s.Jobs, func(j backups.Job) string { return string(j.ID) }, func(j backups.Job) map[string]any {
		covered, partly := 0, 0
		for _, g := range s.Inventory.Guests {
			if in, left := s.Covers(&j, g); in && mine(g) {
				covered++
				if left > 0 {
					partly++
				}
			}
		}
		row := map[string]any{"id": string(j.ID), "enabled": j.On(), "schedule": j.When(), "guests": covered, "storage": string(j.Storage), "mode": string(j.Mode), "keeps": string(j.Prune),
			"repeat_missed": bool(j.RepeatMissed), "fault": j.Fault(), "comment": oneLine(string(j.Comment), 200)}
		if !v.Scoped() {
			row["selects"] = clip(j.Selects(), 300)
		}
		if partly > 0 {
			row["left_out"] = fmt.Sprintf("disks of %s", plural(partly, "guest", "guests"))
		}
		node := s.HomeNode(&j)
		if next, ok := s.NextRun(&j, node); ok {
			row["next"] = next.Format(time.RFC3339)
			row["zone"] = next.Location().String() + " (node " + node + ")"
		}
		return row
	})
	return out, err
}
