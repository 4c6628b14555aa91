package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"castellan/internal/settings"
)

// TestBadValues: a bad value of the environment falls to what lies below where it keeps nobody out, and is named; anywhere
// else it is refused.
func TestBadValues(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.toml")
	if err := os.WriteFile(path, []byte("[policy]\nplan_ttl = \"20m\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	load := func(env map[string]string) (Settings, []string, error) {
		a := &app{config: path, env: func(k string) (string, bool) { v, ok := env[k]; return v, ok }}
		s, _, notes, err := a.load()
		return s, notes, err
	}
	s, notes, err := load(map[string]string{"CASTELLAN_POLICY_PLAN_TTL": "soon", "CASTELLAN_NOTIFY_WINDOW": "never", "CASTELLAN_POLICY_WAIT_TTL": "6h"})
	text := strings.Join(notes, "\n")
	if err != nil || s.Policy.PlanTTL != "20m" || s.Notify.Window != "" || s.Policy.WaitTTL != "6h" || !strings.Contains(text, "policy.plan_ttl: the value of the environment is not taken") ||
		!strings.Contains(text, "the file's value counts") || !strings.Contains(text, "notify.window: ") || !strings.Contains(text, "the default counts") {
		t.Errorf("%+v %v %s", s.Policy, err, text)
	}
	for _, name := range []string{"CASTELLAN_POLICY_READ_ONLY", "CASTELLAN_POLICY_WRITES_PER_HOUR", "CASTELLAN_IDENTITY_LOCK_AFTER"} {
		if _, _, err := load(map[string]string{name: "perhaps"}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	over, faults := overlay(s, map[string]settings.Value{"policy.plan_ttl": {Key: "policy.plan_ttl", Value: json.RawMessage(`"soon"`)}, "policy.taint_for": {Key: "policy.taint_for", Value: json.RawMessage(`"2h"`)},
		"store.url": {Key: "store.url", Value: json.RawMessage(`"x"`)}})
	if over.Policy.PlanTTL != "20m" || over.Policy.TaintFor != "2h" || len(faults) != 2 || !strings.Contains(strings.Join(faults, "\n"), "policy.plan_ttl") {
		t.Errorf("%+v %v", over.Policy, faults)
	}
}

// TestEnvironmentFile: its variables lie below those of the process, and it is said which came from where.
func TestEnvironmentFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "c.toml")
	write := func(name, text string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	write("c.toml", "[policy]\nplan_ttl = \"20m\"\n", 0o600)
	load := func(env map[string]string) (Settings, string, error) {
		a := &app{config: path, env: func(k string) (string, bool) { v, ok := env[k]; return v, ok }}
		s, _, notes, err := a.load()
		return s, strings.Join(notes, "\n"), err
	}
	write(envFile, "# ours\nexport CASTELLAN_POLICY_PLAN_TTL='5m'\n\nCASTELLAN_POLICY_READ_ONLY = true\nCASTELLAN_AGENT=filed\n", 0o600)
	s, notes, err := load(map[string]string{"CASTELLAN_AGENT": "process"})
	if err != nil || s.Policy.PlanTTL != "5m" || !s.Policy.ReadOnly || s.Agent != "process" || !strings.Contains(notes, "CASTELLAN_POLICY_READ_ONLY was loaded from "+dir) ||
		!strings.Contains(notes, "CASTELLAN_AGENT stands in "+dir) || !strings.Contains(notes, "policy.plan_ttl is set in the file and by") {
		t.Errorf("%+v %v\n%s", s.Policy, err, notes)
	}
	for name, text := range map[string]string{"another's variable": "PATH=/x\n", "no variable": "hello\n", "twice": "CASTELLAN_AGENT=a\nCASTELLAN_AGENT=b\n", "misspelt": "CASTELLAN_POLICY_READONLY=true\n"} {
		write(envFile, text, 0o600)
		if _, _, err := load(nil); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	write(envFile, "CASTELLAN_POLICY_READ_ONLY=true\n", 0o644)
	if _, _, err := load(nil); err == nil {
		t.Error("a file that others can read was taken")
	}
	if err := os.Remove(filepath.Join(dir, envFile)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := load(map[string]string{"CASTELLAN_ENV_FILE": filepath.Join(dir, "nothing")}); err == nil {
		t.Error("a file that was asked for and is not there")
	}
}
