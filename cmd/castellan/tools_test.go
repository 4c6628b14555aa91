package main

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tiktoken-go/tokenizer"

	"castellan/internal/lab"
)

var toolNameForm = regexp.MustCompile(`^[a-z0-9_]{1,40}$`)

// TestToolLists holds what every list must be for clients of all kinds.
func TestToolLists(t *testing.T) {
	s := newSite(t, lab.Config{}, all())
	enc, err := tokenizer.Get(tokenizer.O200kBase)
	if err != nil {
		t.Fatal(err)
	}
	for _, set := range []struct {
		name      string
		least     int
		maxTokens int
	}{{"front", 9, 1200}, {"standard", 25, 3000}, {"full", 25, 0}, {"everything", 600, 0}, {"guest_power", 3, 0}} {
		t.Run(set.name, func(t *testing.T) {
			r := startRaw(t, s.env(), "serve", "--toolset", set.name)
			r.initialize("2025-11-25")
			tools, again := r.tools(), r.tools()
			if !reflect.DeepEqual(tools, again) || !slices.IsSortedFunc(tools, func(a, b toolSeen) int { return strings.Compare(a.Name, b.Name) }) {
				t.Error("the order is not always the same")
			}
			if len(tools) < set.least {
				t.Errorf("%d tools", len(tools))
			}
			tokens := 0
			for i, tool := range tools {
				if i > 0 && tool.Name == tools[i-1].Name || !toolNameForm.MatchString(tool.Name) {
					t.Errorf("name %q", tool.Name)
				}
				if tool.Description == "" {
					t.Errorf("%s has no description", tool.Name)
				}
				for _, hint := range []string{"readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"} {
					if _, ok := tool.Annotations[hint].(bool); !ok {
						t.Errorf("%s: %s is %v", tool.Name, hint, tool.Annotations[hint])
					}
				}
				if tool.Annotations["readOnlyHint"] == true && tool.Annotations["destructiveHint"] == true {
					t.Errorf("%s reads only and destroys", tool.Name)
				}
				for which, schema := range map[string]json.RawMessage{"input": tool.InputSchema, "output": tool.OutputSchema} {
					var root map[string]any
					if err := json.Unmarshal(schema, &root); err != nil || root["type"] != "object" {
						t.Errorf("%s: %s schema: %.100s", tool.Name, which, schema)
						continue
					}
					for _, fault := range unportable(root, which, true) {
						t.Errorf("%s: %s", tool.Name, fault)
					}
				}
				b, err := json.Marshal(map[string]any{"name": tool.Name, "description": tool.Description, "input_schema": tool.InputSchema})
				if err != nil {
					t.Fatal(err)
				}
				n, err := enc.Count(string(b))
				if err != nil {
					t.Fatal(err)
				}
				tokens += n
			}
			t.Logf("%d tools, %d tokens as a client hands them to a model", len(tools), tokens)
			if set.maxTokens > 0 && tokens > set.maxTokens {
				t.Errorf("%d tokens, at most %d", tokens, set.maxTokens)
			}
			r.end()
		})
	}
}

// unportable lists what some client refuses. Only a field whose value is a person's own JSON may have no type.
func unportable(s map[string]any, at string, root bool) []string {
	var out []string
	for _, k := range []string{"anyOf", "oneOf", "allOf", "not", "$ref", "$schema", "$defs", "definitions", "if", "patternProperties"} {
		if _, ok := s[k]; ok {
			out = append(out, at+" has "+k)
		}
	}
	if kind, there := s["type"]; there {
		if _, ok := kind.(string); !ok {
			out = append(out, fmt.Sprintf("%s has the types %v", at, kind))
		}
	} else if root {
		out = append(out, at+" has no type")
	}
	if s["type"] == "array" && s["items"] == nil {
		out = append(out, at+" has no items")
	}
	props, _ := s["properties"].(map[string]any)
	for name, p := range props {
		inner, ok := p.(map[string]any)
		if !ok {
			out = append(out, at+"."+name+" is no schema object")
			continue
		}
		out = append(out, unportable(inner, at+"."+name, strings.HasPrefix(at, "input"))...)
	}
	if items, ok := s["items"].(map[string]any); ok {
		out = append(out, unportable(items, at+"[]", false)...)
	}
	return out
}

// TestHints: a tool says that it changes something exactly when it can.
func TestHints(t *testing.T) {
	s := newSite(t, lab.Config{}, all())
	r := startRaw(t, s.env(), "serve", "--toolset", "full")
	r.initialize("2025-11-25")
	for _, tool := range r.tools() {
		reads := strings.HasPrefix(tool.Name, "list_") || strings.HasPrefix(tool.Name, "audit_") || slices.Contains([]string{"guest_status", "guest_config", "node_status",
			"cluster_overview", "task_status", "wave_result", "estate_graph", "backup_freshness", "diagnose_guest", "diagnose_node", "site_check", "doctor", "get_settings", "guest_log", "guest_sql", "probe_guest", "check_updates", "check_services", "update_result", "probe_node", "check_node_updates", "find_operation", "describe_operation", "show_plan"}, tool.Name)
		if tool.Annotations["readOnlyHint"] != reads {
			t.Errorf("%s: readOnlyHint %v", tool.Name, tool.Annotations["readOnlyHint"])
		}
		destroys := slices.Contains([]string{"apply_plan", "call_operation", "plan_many", "delete_guest", "delete_snapshot", "rollback_snapshot", "rollback_guest", "undo", "with_snapshot", "with_dead_man", "prune_snapshots",
			"apply_sdn", "delete_backup", "restore_guest", "create_backup_job", "update_backup_job", "run_backup_job", "read_guest_file", "restore_files", "run_command", "run_on_node", "run_script", "write_guest_file"}, tool.Name)
		if tool.Annotations["destructiveHint"] != destroys {
			t.Errorf("%s: destructiveHint %v", tool.Name, tool.Annotations["destructiveHint"])
		}
		changes := !reads && tool.Name != "apply_plan" && tool.Name != "withdraw_plan" && tool.Name != "update_settings"
		if got := strings.Contains(string(tool.InputSchema), `"plan_only"`); got != changes {
			t.Errorf("%s: takes plan_only: %v", tool.Name, got)
		}
	}
}

// TestListsFit: over a big site the first answer fits, says how to get the rest, and asks the API a handful of times.
func TestListsFit(t *testing.T) {
	if testing.Short() {
		t.Skip("big sites")
	}
	enc, err := tokenizer.Get(tokenizer.O200kBase)
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []string{"2000", "10000"} {
		s := newSite(t, lab.Config{Site: size}, "")
		r := startRaw(t, s.env(), "serve", "--toolset", "full")
		r.initialize("2025-11-25")
		for _, c := range []struct {
			tool string
			args any
			max  int
		}{{"list_guests", nil, 5}, {"list_guests", map[string]any{"limit": 100000}, 5}, {"cluster_overview", nil, 20}, {"list_nodes", nil, 20},
			{"call_operation", map[string]any{"operation": "GET /cluster/resources"}, 5}, {"list_storage", nil, 20}, {"list_tasks", nil, 5}} {
			s.lab.ResetRequests()
			a := r.call(c.tool, c.args)
			if a.IsError {
				t.Errorf("%s %s: %s", size, c.tool, a.Content[0].Text)
				continue
			}
			n, err := enc.Count(a.Content[0].Text)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s %s %v: %d tokens, %d bytes, %d requests", size, c.tool, c.args, n, len(a.Content[0].Text), len(s.lab.Requests()))
			if n > 20000 || len(s.lab.Requests()) > c.max {
				t.Errorf("%s %s: %d tokens, %d requests", size, c.tool, n, len(s.lab.Requests()))
			}
		}
		seen, cursor := map[string]bool{}, ""
		for range 400 {
			args := map[string]any{"fields": []string{"vmid"}, "limit": 1000}
			if cursor != "" {
				args["cursor"] = cursor
			}
			var page struct {
				Guests []struct{ VMID json.Number }
				Cursor string
			}
			if err := json.Unmarshal(r.call("list_guests", args).Structured.Answer, &page); err != nil {
				t.Fatal(err)
			}
			for _, g := range page.Guests {
				if seen[g.VMID.String()] {
					t.Fatalf("guest %s comes twice", g.VMID)
				}
				seen[g.VMID.String()] = true
			}
			if cursor = page.Cursor; cursor == "" {
				break
			}
		}
		if fmt.Sprint(len(seen)) != size {
			t.Errorf("the pages hold %d guests of %s", len(seen), size)
		}
		r.end()
	}
}
