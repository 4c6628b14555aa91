package catalog

import (
	"slices"
	"strings"
	"testing"
)

func curated() []Document {
	var out []Document
	for _, n := range strings.Fields("list_guests guest_status guest_config list_nodes node_status list_storage cluster_overview list_tasks task_status list_snapshots guest_power snapshot_guest rollback_snapshot delete_snapshot backup_guest set_guest_config clone_guest migrate_guest create_guest delete_guest plan_many diagnose_node diagnose_guest probe_guest probe_node guest_log guest_sql run_command run_script run_on_node read_guest_file write_guest_file find_operation describe_operation call_operation show_plan apply_plan list_plans withdraw_plan audit_search audit_verify") {
		out = append(out, Document{Product: "", Name: n, Summary: "The curated operation."})
	}
	return out
}

// TestAliasesReachSomething holds every name of the table against the operations that exist.
func TestAliasesReachSomething(t *testing.T) {
	c := searchCatalog(t)
	names := curated()
	table := aliasTable()
	if len(table) < 500 {
		t.Fatalf("only %d names", len(table))
	}
	exists := func(target string) bool {
		product, id, api := strings.Cut(target, " ")
		if !api {
			return slices.ContainsFunc(names, func(d Document) bool { return d.Name == target })
		}
		_, ok := c.Lookup(product, id)
		return ok
	}
	written := 0
	for _, line := range wordLines("aliases") { // what is written out by hand has to exist
		left, right, _ := strings.Cut(line, "=")
		if name := strings.TrimSpace(left); !strings.Contains(name, " ") {
			written++
			for _, target := range table[name] {
				if !exists(target) {
					t.Errorf("%s: no such operation: %s", name, target)
				}
			}
			continue
		}
		if !strings.HasPrefix(left, "each ") && !strings.HasPrefix(left, "crud ") {
			continue
		}
		reached := false // a family reaches something in at least one product
		_, family, _ := strings.Cut(strings.TrimSpace(left), " ")
		for name, targets := range table {
			reached = reached || strings.Contains(name, family) && slices.ContainsFunc(targets, exists)
		}
		if !reached {
			t.Errorf("%s= %s: reaches no operation", left, right)
		}
	}
	if written < 200 {
		t.Errorf("only %d names are written out", written)
	}
}

func TestAliasFindsCuratedFirst(t *testing.T) {
	c := searchCatalog(t)
	for query, want := range map[string]string{
		"pve_guest_power":              "guest_power",
		"guest_power":                  "guest_power",
		"start_guest":                  "guest_power",
		"pve_backup":                   "backup_guest",
		"PVE_Snapshot_Create(vmid=1)":  "snapshot_guest",
		"pve_api":                      "call_operation",
		"pve_ceph_osd_tree":            "GET /nodes/{node}/ceph/osd",
		"pbs_gc_start":                 "POST /admin/datastore/{store}/gc",
		"gc_start":                     "POST /admin/datastore/{store}/gc",
		"pmg_who_object_add":           "POST /config/ruledb/who/{ogroup}/domain",
		"pdm_pve_qemu_remote_migrate":  "POST /pve/remotes/{remote}/qemu/{vmid}/remote-migrate",
		"pve_firewall_security_groups": "", // not a name of the table: searched for as words
	} {
		hits := c.FindIn(query, FindOptions{Limit: 3}, curated())
		if len(hits) == 0 {
			t.Errorf("%s finds nothing", query)
			continue
		}
		got := hits[0].Name
		if got == "" {
			got = hits[0].Method + " " + hits[0].Path
		}
		if want != "" && got != want {
			t.Errorf("%s finds %s first, want %s", query, got, want)
		}
	}
}
