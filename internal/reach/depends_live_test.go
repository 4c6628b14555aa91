package reach_test

import (
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"castellan/internal/gate"
	"castellan/internal/ops/housetest"
	"castellan/internal/ops/pve"
	"castellan/internal/ops/self"
	"castellan/internal/policy"
	"castellan/internal/reach"
)

// TestWhatPoliciesOfOnesOwnAskGoverns: to change by which pool, tag or title a policy file decides is to change what it says, by
// whatever operation; without the file the same changes are ordinary ones.
func TestWhatPoliciesOfOnesOwnAskGoverns(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole castellan before a simulated site")
	}
	const own = `forbid (principal, action == Action::"write", resource) when { resource.pools.contains("team") && context.level < 3 };
forbid (principal, action == Action::"write", resource) when { resource.reserved_tags.contains("prod") && context.level < 3 };
forbid (principal, action == Action::"write", resource) when { resource.title like "live-*" && context.level < 3 };`
	openWith := func(t *testing.T, files ...string) *house {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "own.cedar"), []byte(own), 0o600); err != nil {
			t.Fatal(err)
		}
		p, err := policy.New(policy.Config{Settings: policy.Settings{Capabilities: gate.Capabilities(), StandIn: "phrase", Files: files}, Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		h := &house{t: t, House: housetest.Open(t, housetest.Config{Rules: func(gate.Policy) gate.Policy { return p }, Gate: func(h *housetest.House, c *gate.Config) error {
			walker, err := reach.New(reach.Config{Estate: h.Estate, Catalog: h.Catalog})
			c.Operations, c.Walker = slices.Concat(pve.Operations(), self.Operations(self.Config{Catalog: h.Catalog, Estate: h.Estate})), walker
			return err
		}})}
		for _, pool := range []string{"team", "other"} {
			h.others("POST", "/pools", url.Values{"poolid": {pool}})
		}
		return h
	}
	with, without := openWith(t, "own.cedar"), openWith(t)
	for _, c := range []struct {
		name, operation string
		args            m
		governs         bool
	}{
		{"a pool", "call_operation", m{"operation": "PUT /pools", "params": m{"poolid": "team", "vms": "103", "allow-move": 1}}, true},
		{"another pool", "call_operation", m{"operation": "PUT /pools", "params": m{"poolid": "other", "vms": "103", "allow-move": 1}}, false},
		{"a clone into the pool", "clone_guest", m{"guest": "103", "pool": "team"}, true},
		{"a clone into another pool", "clone_guest", m{"guest": "103", "pool": "other"}, false},
		{"the pool itself", "call_operation", m{"operation": "DELETE /pools", "params": m{"poolid": "team"}}, true},
		{"a tag", "set_guest_config", m{"guest": "103", "set": m{"tags": "legacy;prod"}}, true},
		{"another tag", "set_guest_config", m{"guest": "103", "set": m{"tags": "legacy;blue"}}, false},
		{"a title", "set_guest_config", m{"guest": "103", "set": m{"name": "live-app"}}, true},
		{"other settings", "set_guest_config", m{"guest": "103", "set": m{"cores": 3}}, false},
	} {
		for _, h := range []*house{with, without} {
			out, err := h.Plan(t.Context(), c.operation, c.args)
			got := said(out, err)
			want := c.governs && h == with
			if governs := strings.Contains(got, "changes what castellan itself depends on"); governs != want {
				t.Errorf("%s, with the file %v: governs %v: %s", c.name, h == with, governs, got)
			}
			if !want && (err != nil || out.Plan == nil) {
				t.Errorf("%s, with the file %v: no plan: %s", c.name, h == with, got)
			}
		}
	}
}
