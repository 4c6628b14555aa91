package gate

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// sitesOf is a driver with more targets than one.
type sitesOf struct {
	*site
	targets []TargetInfo
}

func (s sitesOf) Targets() []TargetInfo { return s.targets }

// Guest 101 of one site is another one than that of the next: a mandate for several sites names none by number, name or pool, and one
// that was kept with such objects covers nothing by them.
func TestAMandateForSeveralSites(t *testing.T) {
	s := newSite()
	r := newRigWith(t, newMemory(), s, func(c *Config) {
		c.Driver = sitesOf{s, []TargetInfo{{Name: "pve", Product: "pve"}, {Name: "south", Product: "pve"}, {Name: "fleet", Product: "pdm"}, {Name: "vault", Product: "pbs"}}}
	})
	now := r.g.now()
	for _, c := range []struct {
		targets, objects []string
		named            bool // objects by number, name or pool count
	}{
		{[]string{"pve"}, []string{"guest/101", "pool:web"}, true},
		{[]string{"pve", "vault"}, []string{"guest/101", "pool:web"}, true},
		{[]string{"pve", "south"}, []string{"guest/101"}, false},
		{[]string{"pve", "south"}, []string{"pool:web"}, false},
		{[]string{"pve", "fleet"}, []string{"guest/101"}, false},
		{[]string{"fleet"}, []string{"guest/101"}, false},
		{[]string{"pve", "south"}, []string{"tag:dev"}, true},
	} {
		m := Mandate{For: agent.Key(), Operations: []string{"power"}, Targets: c.targets, Objects: c.objects, Count: 1, From: now.Add(-time.Hour), Until: now.Add(time.Hour), Rung: RungPerson}
		if bad := r.g.checkMandate(&m); (bad == nil) != c.named || bad != nil && !strings.Contains(bad.Message, c.objects[0]) {
			t.Errorf("%v %v: %v", c.targets, c.objects, bad)
		}
		for _, target := range c.targets {
			p := &Plan{Operation: "power", Requester: agent, Args: json.RawMessage(`{"guest":"101"}`), Decision: Decision{Verdict: VerdictNeeds, Rung: RungPerson}, Steps: []Step{{Target: target}},
				Facts: Facts{Objects: []ObjectFacts{{Object: Object{Kind: ObjectGuest, ID: "101"}, Use: UseActs, Known: true, Pools: []string{"web"}, Tags: []string{"dev"}, Reserved: []string{"dev"}}}}}
			if why := r.g.covers(&m, p); (why == "") != c.named {
				t.Errorf("%v %v, on %s: %q", c.targets, c.objects, target, why)
			}
		}
	}
}
