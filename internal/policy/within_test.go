package policy

import (
	"slices"
	"strings"
	"testing"

	"castellan/internal/gate"
)

// TestWithin: packages and reboots only where people have marked the guest, and a mark that anybody can set is none.
func TestWithin(t *testing.T) {
	s := Settings{Capabilities: []string{"upgrade", "power", "config", "snapshot"}, UpgradePools: []string{"patched"}, UpgradeTags: []string{"Castellan-Update"}, RebootTags: []string{"castellan-reboot"}}
	p := load(t, s)
	free := guest("101", true, []string{"castellan-update"}, nil)
	free.Reserved = nil
	unknown := guest("101", false, []string{"castellan-update"}, []string{"patched"})
	node := gate.ObjectFacts{Object: gate.Object{Site: "s", Kind: gate.ObjectNode, ID: "n1"}, Use: gate.UseNames, Known: true}
	for name, c := range map[string]struct {
		kinds   []gate.Kind
		objects []gate.ObjectFacts
		refused string
	}{
		"in the pool":                    {one(gate.KindUpgrade), []gate.ObjectFacts{guest("101", true, nil, []string{"patched"}), node}, ""},
		"by its tag":                     {one(gate.KindUpgrade), []gate.ObjectFacts{guest("101", true, []string{"castellan-update"}, nil), node}, ""},
		"neither":                        {one(gate.KindUpgrade), []gate.ObjectFacts{guest("101", true, []string{"castellan-reboot"}, []string{"web"})}, "policy.upgrade_pools"},
		"without a way back":             {one(gate.KindUpgradeBare), []gate.ObjectFacts{guest("101", true, nil, nil)}, "policy.upgrade_pools"},
		"a tag that anybody can set":     {one(gate.KindUpgrade), []gate.ObjectFacts{free}, "policy.upgrade_pools"},
		"not known":                      {one(gate.KindUpgrade), []gate.ObjectFacts{unknown}, "policy.upgrade_pools"},
		"one of two":                     {one(gate.KindUpgrade), []gate.ObjectFacts{guest("101", true, nil, []string{"patched"}), guest("102", true, nil, nil)}, "guest/102"},
		"reboot":                         {one(gate.KindReboot), []gate.ObjectFacts{guest("101", true, []string{"castellan-reboot"}, nil)}, ""},
		"reboot of what is only patched": {one(gate.KindReboot), []gate.ObjectFacts{guest("101", true, nil, []string{"patched"})}, "policy.reboot_pools"},
		"something else":                 {one(gate.KindConfig), []gate.ObjectFacts{guest("101", true, nil, nil)}, ""},
	} {
		d := decide(p, plan(c.kinds, c.objects...))
		if refused := d.Verdict == gate.VerdictDeny; refused != (c.refused != "") || !strings.Contains(d.Reason, c.refused) {
			t.Errorf("%s: %+v, want it refused by %q", name, d, c.refused)
		}
	}
	if d := decide(load(t, Settings{Capabilities: []string{"upgrade"}}), plan(one(gate.KindUpgrade), guest("101", true, nil, nil))); d.Verdict == gate.VerdictDeny {
		t.Errorf("nothing is set: %+v", d)
	}
	pools, tags := p.GovernedScope()
	if !slices.Contains(pools, "patched") || !slices.Contains(tags, "castellan-update") || !slices.Contains(tags, "castellan-reboot") {
		t.Errorf("scope that governs: %v %v", pools, tags)
	}
	e := p.ExplainPlan(plan(one(gate.KindUpgrade), guest("101", true, nil, nil)))
	if text := e.Text(); !strings.Contains(text, "within.upgrade") || !strings.Contains(text, "policy.upgrade_tags") {
		t.Error(text)
	}
	if _, err := New(Config{Settings: Settings{UpgradePools: []string{}}}); err == nil || !strings.Contains(err.Error(), "policy.upgrade_pools") {
		t.Errorf("an empty list: %v", err)
	}
	if _, err := New(Config{Settings: Settings{RebootTags: []string{"a b"}}}); err == nil || !strings.Contains(err.Error(), "policy.reboot") {
		t.Errorf("no tag: %v", err)
	}
}
