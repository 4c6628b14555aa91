package policy

import (
	"strings"
	"testing"
	"time"

	"castellan/internal/gate"
)

// TestBackupBeforeDestroy: only a known backup that is young enough lets a guest be destroyed or rolled back.
func TestBackupBeforeDestroy(t *testing.T) {
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	p, err := New(Config{Settings: Settings{Capabilities: gate.Capabilities(), StandIn: "phrase", BackupBeforeDestroy: "24h"}, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	guest := gate.Object{Kind: gate.ObjectGuest, ID: "101"}
	volume := gate.Object{Kind: gate.ObjectVolume, ID: "fast:vm-101-disk-0"}
	archive := gate.Object{Kind: gate.ObjectVolume, ID: "nas:backup/vzdump-qemu-101-2026_11_28-02_30_00.vma.zst"}
	for _, c := range []struct {
		name     string
		api      string
		kind     gate.Kind
		object   gate.Object
		backedUp time.Time
		known    bool
		refused  bool
	}{
		{"young enough", "DELETE /nodes/{node}/qemu/{vmid}", gate.KindData, guest, now.Add(-23 * time.Hour), true, false},
		{"too old", "DELETE /nodes/{node}/qemu/{vmid}", gate.KindData, guest, now.Add(-25 * time.Hour), true, true},
		{"never or not known", "DELETE /nodes/{node}/qemu/{vmid}", gate.KindData, guest, time.Time{}, true, true},
		{"a guest that is not known", "DELETE /nodes/{node}/qemu/{vmid}", gate.KindData, guest, now, false, true},
		{"rollback", "POST /nodes/{node}/qemu/{vmid}/snapshot/{snapname}/rollback", gate.KindRollback, guest, time.Time{}, true, true},
		{"its disk", "DELETE /nodes/{node}/storage/{storage}/content/{volume}", gate.KindData, volume, time.Time{}, true, true},
		{"an archive", "DELETE /nodes/{node}/storage/{storage}/content/{volume}", gate.KindData, archive, time.Time{}, true, false},
		{"a backup that prunes", "POST /nodes/{node}/vzdump", gate.KindData, guest, time.Time{}, true, false},
		{"a snapshot that goes", "DELETE /nodes/{node}/qemu/{vmid}/snapshot/{snapname}", gate.KindDeleteSnapshot, guest, time.Time{}, true, false},
	} {
		step := gate.Step{Number: 1, Target: "lab", API: &gate.Request{Product: "pve", Operation: c.api}, Judgement: gate.Judgement{Operation: c.api, Effect: gate.EffectDestroy,
			Kinds: []gate.Kind{c.kind}, References: []gate.Reference{{Object: c.object, Use: gate.UseActs}}}}
		facts := gate.Facts{Effect: gate.EffectDestroy, Kinds: []gate.Kind{c.kind}, Reversible: "no", Objects: []gate.ObjectFacts{{Object: c.object, Use: gate.UseActs, Known: c.known, BackedUp: c.backedUp}}}
		d := p.Plan(t.Context(), gate.PlanQuestion{Principal: gate.Principal{Agent: "a", Person: "p"}, Operation: "x", Facts: facts, Steps: []gate.Step{step}, At: now})
		if refused := d.Verdict == gate.VerdictDeny; refused != c.refused || refused && !strings.Contains(d.Reason, "backup_before_destroy") {
			t.Errorf("%s: %s %s", c.name, d.Verdict, d.Reason)
		}
	}
	for _, bad := range []string{"soon", "0s", "-1h", "1s"} {
		if _, err := New(Config{Settings: Settings{BackupBeforeDestroy: bad}, Dir: t.TempDir()}); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}
