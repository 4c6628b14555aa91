package gate

import (
	"context"
	"strings"
	"testing"
	"time"
)

// shelf knows when guests were backed up.
type shelf map[string]time.Time

func (s shelf) Newest(context.Context, View, string, []string) map[string]time.Time { return s }
func (shelf) Owner(string) string                                                   { return "" }

// TestBackupIsLookedAtAgain: a step that wants a backup of late is stale where there is none by the time it is sent.
func TestBackupIsLookedAtAgain(t *testing.T) {
	for name, c := range map[string]struct {
		now  shelf // when it is carried out
		says string
	}{
		"fresh":          {shelf{"101": time.Now().Add(-time.Minute)}, ""},
		"too old by now": {shelf{"101": time.Now().Add(-25 * time.Hour)}, "its newest is 25 hours old by now"},
		"gone":           {shelf{}, "none that surely is of it is known now"},
	} {
		books := shelf{"101": time.Now()}
		r := newRigWith(t, newMemory(), newSite(), func(c *Config) {
			c.Backups = &books
			c.Operations = append(c.Operations, Change(Declaration{Name: "careful", Summary: "careful", Effect: EffectChange}, func(context.Context, View, struct{}) (*Draft, error) {
				req, err := NewRequest("pve", "PUT /guest/{vmid}", map[string]any{"vmid": "101", "memory": "1"})
				return &Draft{Steps: []Step{{API: &req, Undo: Undo{None: "a test"}, BackedUpWithin: 24 * time.Hour}}}, err
			}))
		})
		r.policy.least = RungRestated
		out, err := r.do(t, "careful", `{}`)
		if err != nil || out.Status != StatusWaiting || !strings.Contains(strings.Join(out.Plan.Steps[0].Requires, "; "), "its newest backup is at most 24 hours old") {
			t.Fatalf("%s: %+v %v", name, out, err)
		}
		books = c.now
		plan := out.Plan.ID
		if _, err = apply(t, r, out.Plan, nil); err != nil {
			t.Fatal(err)
		}
		rec, err := r.g.load(context.Background(), agent, plan)
		if err != nil {
			t.Fatal(err)
		}
		if c.says == "" && rec.State != PlanDone || c.says != "" && (rec.State != PlanStale || !strings.Contains(rec.Note, c.says) || len(r.site.sent) != 0) {
			t.Errorf("%s: %s %s", name, rec.State, rec.Note)
		}
	}
}
