package self

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"castellan/internal/catalog"
	"castellan/internal/catalog/facts"
	"castellan/internal/gate"
	"castellan/internal/ops/pve"
)

func searching(t *testing.T) (c Config, find func(query string) (names []string, next string)) {
	t.Helper()
	all, err := catalog.New(catalog.Config{Facts: facts.Open()})
	if err != nil {
		t.Fatal(err)
	}
	c = Config{Catalog: all}
	ops := slices.Concat(Operations(Config{}), pve.Operations())
	return c, func(query string) (names []string, next string) {
		hits, next := c.asked(query, catalog.FindOptions{Products: []string{"pve"}, Limit: 8}, ops)
		for _, h := range hits {
			if h.Name != "" {
				names = append(names, h.Name)
			} else {
				names = append(names, h.Method+" "+h.Path)
			}
		}
		return names, next
	}
}

// TestPlainQuestions: what people ask in plain words has the operation for it among the first ones, and before it none that
// does the opposite. A row is the question, then what has to be there, then what must not come before it.
func TestPlainQuestions(t *testing.T) {
	_, find := searching(t)
	if b, err := os.ReadFile(os.Getenv("QUESTIONS")); err == nil { // to try others by hand
		for q := range strings.Lines(string(b)) {
			names, _ := find(strings.TrimSpace(q))
			fmt.Printf("%s     %s\n", q, strings.ReplaceAll(strings.Join(names, " | "), "/nodes/{node}", ""))
		}
	}
	for _, row := range []struct {
		question, want string
		within         int
		not            string
	}{
		{"patch all test guests tonight", "patch_wave", 1, "unenrol_guest rollback_guest"},
		{"patch every container of the test pool", "patch_wave", 1, "unenrol_guest"},
		{"upgrade all guests", "patch_wave", 1, "rollback_guest"},
		{"install security updates on all containers", "patch_wave", 1, "unenrol_guest"},
		{"patch guest 101", "apply_updates", 1, "unenrol_guest"},
		{"upgrade vm 101's packages", "apply_updates", 1, "unenrol_guest"},
		{"patch the node pve2", "upgrade_node", 1, "apply_updates"},
		{"how do I let castellan look after updates of a guest", "enrol_guest", 5, "unenrol_guest"}, {"castellan shall no longer look after guest 101, unenrol it", "unenrol_guest", 2, "enrol_guest"},
		{"upgrade all nodes of the cluster one after the other", "upgrade_nodes", 2, "apply_updates"},
		{"enrol guest 101", "enrol_guest", 1, "unenrol_guest"},
		{"unenrol guest 101", "unenrol_guest", 1, "enrol_guest"},
		{"stop patching 101", "unenrol_guest", 1, "apply_updates"},
		{"what needs updating", "check_updates", 3, "apply_updates"},
		{"did the update go well", "update_result", 1, "apply_updates rollback_guest"},
		{"roll back the update of 101", "rollback_guest", 1, "apply_updates"},
		{"undo the last change", "undo", 1, "undo_point"},
		{"delete vm 101", "delete_guest", 1, "create_guest"},
		{"destroy container 201", "delete_guest", 1, "create_guest unenrol_guest"},
		{"create a container", "create_guest", 1, "delete_guest"},
		{"snapshot 101", "snapshot_guest", 1, "delete_snapshot rollback_snapshot"},
		{"delete the old snapshots", "prune_snapshots", 2, "snapshot_guest"},
		{"reboot pve2", "POST /nodes/{node}/status", 1, "reboot_guest"},
		{"migrate 101 to pve2", "migrate_guest", 1, ""},
		{"drain node pve2", "node_maintenance", 1, ""},
		{"restore vm 101 from backup", "restore_guest", 1, "backup_guest"},
		{"back up vm 101", "backup_guest", 1, "restore_guest"},
		{"which guests have no backup", "backup_freshness", 1, ""},
		{"why is 105 slow", "diagnose_guest", 1, ""},
		{"what depends on storage nas", "estate_graph", 1, ""},
		{"morning round", "site_check", 1, ""},
		{"what can you do here", "doctor", 1, ""},
		{"help", "doctor", 1, ""},
	} {
		names, _ := find(row.question)
		at := slices.Index(names, row.want)
		if at < 0 || at >= row.within {
			t.Errorf("%q: %s is at %d of %v", row.question, row.want, at, names)
			continue
		}
		for no := range strings.FieldsSeq(row.not) {
			if slices.Contains(names[:at], no) {
				t.Errorf("%q: %s comes before %s", row.question, no, row.want)
			}
		}
	}
}

// TestWhatIfQuestions: who asks what a deed would bring gets the deed, which is planned and not done, and the graph.
func TestWhatIfQuestions(t *testing.T) {
	c, find := searching(t)
	for question, want := range map[string]string{
		"what happens when I reboot pve2":                   "POST /nodes/{node}/status",
		"what would rebooting pve2 hit?":                    "POST /nodes/{node}/status",
		"which guests stop if pve1 goes down?":              "POST /nodes/{node}/status",
		"is it safe to remove storage nas":                  "DELETE /storage/{storage}",
		"what breaks if I delete the storage nas":           "DELETE /storage/{storage}",
		"what is the impact of removing bridge vmbr1":       "DELETE /nodes/{node}/network/{iface}",
		"if I migrate 101 to pve3, what happens?":           "migrate_guest",
		"what is lost when I roll guest 201 back":           "rollback_guest",
		"what if I destroy vm 101":                          "delete_guest",
		"what happens when I patch guest 201":               "apply_updates",
		"do I lose anything when I shut down container 204": "guest_power",
	} {
		names, next := find(question)
		if at := slices.Index(names, want); at < 0 || at > 2 || !slices.Contains(names[:min(2, len(names))], "estate_graph") || !strings.Contains(next, "plan_only") {
			t.Errorf("%q: %v, %s", question, names, next)
		}
		for _, name := range names {
			op, ok := c.Catalog.Lookup("pve", name)
			if ok && c.Catalog.Effect(op) == gate.EffectRead {
				t.Errorf("%q finds the read %s", question, name)
			}
		}
	}
}
