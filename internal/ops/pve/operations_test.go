package pve

import (
	"context"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pelletier/go-toml/v2"
	"golang.org/x/tools/txtar"

	"castellan/internal/estate"
	"castellan/internal/gate"
	"castellan/internal/ops/opstest"
)

var update = flag.Bool("update", false, "write the expectations anew")

func query[In, Out any](f func(context.Context, gate.View, In) (Out, error)) opstest.Run {
	return func(ctx context.Context, v gate.View, args json.RawMessage) (any, *gate.Draft, error) {
		var in In
		if err := json.Unmarshal(args, &in); err != nil {
			return nil, nil, err
		}
		out, err := f(ctx, v, in)
		return out, nil, err
	}
}

func change[In any](f func(context.Context, gate.View, In) (*gate.Draft, error)) opstest.Run {
	return func(ctx context.Context, v gate.View, args json.RawMessage) (any, *gate.Draft, error) {
		var in In
		if err := json.Unmarshal(args, &in); err != nil {
			return nil, nil, err
		}
		d, err := f(ctx, v, in)
		return nil, d, err
	}
}

func runs(patching *PatchingSettings) map[string]opstest.Run {
	return map[string]opstest.Run{
		"apply_network": change(planApplyNetwork), "apply_sdn": change(planApplySDN),
		"list_guests": query(runListGuests), "guest_status": query(runGuestStatus), "guest_config": query(runGuestConfig), "list_nodes": query(runListNodes),
		"node_status": query(runNodeStatus), "list_storage": query(runListStorage), "cluster_overview": query(runClusterOverview), "list_tasks": query(runListTasks),
		"task_status": query(runTaskStatus), "list_snapshots": query(runListSnapshots), "guest_power": change(planGuestPower), "snapshot_guest": change(planSnapshotGuest),
		"rollback_snapshot": change(planRollback), "delete_snapshot": change(planDeleteSnapshot), "backup_guest": change(planBackup), "set_guest_config": change(planSetGuestConfig),
		"estate_graph": query(func(ctx context.Context, v gate.View, in estateGraphIn) (estateGraphOut, error) {
			return runEstateGraph(ctx, v, estate.New(), in)
		}),
		"clone_guest": change(planClone), "migrate_guest": change(planMigrate), "create_guest": change(planCreate), "delete_guest": change(planDelete), "plan_many": change(runPlanMany), "patch_wave": change(func(ctx context.Context, v gate.View, in patchWaveIn) (*gate.Draft, error) {
			return planPatchWave(ctx, v, in, testRoll{})
		}), "wave_result": query(runWaveResult),
		"backup_freshness": query(runBackupFreshness), "list_backups": query(runListBackups), "list_backup_jobs": query(runListBackupJobs), "delete_backup": change(planDeleteBackup),
		"protect_backup": change(planProtectBackup), "restore_guest": change(planRestore), "create_backup_job": change(planCreateBackupJob), "update_backup_job": change(planUpdateBackupJob),
		"undo_point": change(planUndoPoint), "with_snapshot": change(planWithSnapshot), "with_dead_man": change(planWithDeadMan), "prune_snapshots": change(planPruneSnapshots), "delete_backup_job": change(planDeleteBackupJob), "run_backup_job": change(planRunBackupJob),
		"guest_log": query(runGuestLog), "guest_sql": query(runGuestSQL), "list_probes": query(runListProbes), "node_maintenance": change(planNodeMaintenance), "probe_guest": query(runProbeGuest), "probe_node": query(runProbeNode),
		"read_guest_file": change(planReadGuestFile), "run_command": change(planRunCommand), "run_on_node": change(planRunOnNode), "run_script": change(planRunScript), "write_guest_file": change(planWriteGuestFile),
		"list_backup_files": query(runListBackupFiles), "restore_files": change(planRestoreFiles),
		"check_updates": query(runCheckUpdates), "check_services": query(runCheckServices), "update_result": query(runUpdateResult), "repair_packages": change(func(ctx context.Context, v gate.View, in repairPackagesIn) (*gate.Draft, error) {
			return planRepairPackages(ctx, v, *patching, in)
		}), "reboot_guest": change(planRebootGuest),
		"rollback_guest": change(planRollbackGuest), "apply_updates": change(func(ctx context.Context, v gate.View, in applyUpdatesIn) (*gate.Draft, error) {
			return planApplyUpdates(ctx, v, *patching, in)
		}),
		"enrol_guest": change(func(ctx context.Context, v gate.View, in enrolGuestIn) (*gate.Draft, error) {
			return planEnrolGuest(ctx, v, estate.New(), in)
		}), "enrol_guests": change(func(ctx context.Context, v gate.View, in enrolGuestsIn) (*gate.Draft, error) {
			return planEnrolGuests(ctx, v, estate.New(), in, testRoll{})
		}), "unenrol_guest": change(planUnenrolGuest), "list_enrolled": query(func(ctx context.Context, v gate.View, in listEnrolledIn) (listEnrolledOut, error) {
			return runListEnrolled(ctx, v, in, testRoll{})
		}),
		"diagnose_guest": query(runDiagnoseGuest), "diagnose_node": query(runDiagnoseNode), "site_check": query(runSiteCheck),
		"check_node_updates": query(runCheckNodeUpdates), "upgrade_node": change(planUpgradeNode), "upgrade_nodes": change(planUpgradeNodes),
	}
}

// testRoll is one enrolled guest of the site, and one of another.
type testRoll struct{}

func (testRoll) Site(context.Context, string) (string, error) { return "house", nil }

func (testRoll) Enrolled(context.Context) ([]Enrolled, error) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return []Enrolled{{Site: "house", Kind: "lxc", VMID: 200, System: "Debian GNU/Linux 12 (bookworm)", Address: "10.0.0.5", Since: at, Answered: at.Add(time.Hour), From: "10.0.0.1", Automatic: "off", Way: "bridge", By: "ann"},
		{Site: "house", Kind: "qemu", VMID: 999, Name: "was", System: "Ubuntu 24.04", Address: "10.0.0.9", Since: at}, {Site: "other", VMID: 101, Since: at}}, nil
}

// TestOperations runs every testdata/NAME.txtar: "call" sections (one call a line: operation and arguments), optional
// "site" lines beside the small site, "runs" for what probes answer, "user" to be at the target, and what each call is expected to return.
func TestOperations(t *testing.T) {
	base, err := os.ReadFile("testdata/small.site")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no expectations: %v", err)
	}
	tried, patching := map[string]bool{}, PatchingSettings{}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			v, err := opstest.New(string(base))
			if err != nil {
				t.Fatal(err)
			}
			v.Compose = runs(&patching)
			call := ""
			for i, f := range a.Files {
				switch f.Name {
				case "site":
					if err := v.Add(string(f.Data)); err != nil {
						t.Fatal(err)
					}
				case "user":
					v.Info.User = strings.TrimSpace(string(f.Data))
				case "patching":
					patching = PatchingSettings{}
					if err := toml.Unmarshal(f.Data, &patching); err != nil {
						t.Fatal(err)
					}
				case "runs":
					if err := json.Unmarshal(f.Data, &v.Runs); err != nil {
						t.Fatal(err)
					}
				case "call":
					call = strings.TrimSpace(string(f.Data))
				case "want":
					name, args, _ := strings.Cut(call, " ")
					run, ok := v.Compose[name]
					if !ok {
						t.Fatalf("no operation %q", name)
					}
					tried[name] = true
					answer, draft, err := run(t.Context(), v, json.RawMessage(args))
					got := opstest.Show(v.Catalog, answer, draft, err)
					if strings.Contains(got, "PROBLEM") || strings.Contains(got, "bare error") || strings.Contains(got, "the test site has no answer") {
						t.Errorf("%s\n%s", call, got)
					}
					if *update {
						a.Files[i].Data = []byte(got)
					} else if d := cmp.Diff(string(f.Data), got); d != "" {
						t.Errorf("%s\n(-want +got)\n%s", call, d)
					}
				default:
					t.Fatalf("unknown section %q", f.Name)
				}
			}
			if *update {
				if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
	if f := flag.Lookup("test.run"); f != nil && strings.Contains(f.Value.String(), "/") {
		return // only some were run
	}
	for _, o := range Operations() {
		if !tried[o.Name] {
			t.Errorf("%s has no expectation", o.Name)
		}
	}
}
