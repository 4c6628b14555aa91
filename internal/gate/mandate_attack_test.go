package gate

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// A mandate for updates is none for updates without a way back: where a snapshot cannot be taken the same call makes those.
func TestAMandateKeepsTheWayBack(t *testing.T) {
	r := newRig(t, newMemory(), newSite())
	now := r.g.now()
	p := &Plan{Operation: "patch", Requester: agent, Args: json.RawMessage(`{"guest":"101"}`), Decision: Decision{Verdict: VerdictNeeds, Rung: RungPerson},
		Steps: []Step{{Target: "lab", Judgement: Judgement{Kinds: []Kind{KindUpgrade}}}}}
	m := Mandate{For: agent.Key(), Operations: []string{"patch"}, Targets: []string{"lab"}, Objects: []string{"guest/101"}, Count: 1, From: now.Add(-time.Hour), Until: now.Add(time.Hour), Rung: RungPerson}
	if why := r.g.covers(&m, p); why != "" {
		t.Errorf("with a way back: %s", why)
	}
	p.Steps[0].Judgement.Kinds = []Kind{KindUpgrade, KindUpgradeBare}
	for snapshot, want := range map[string]bool{"": false, "true": false, "*": false, "false": true} {
		m.Args = map[string][]string{"snapshot": {snapshot}}
		if why := r.g.covers(&m, p); (why == "") != want || !want && !strings.Contains(why, "no way back") {
			t.Errorf("snapshot=%q without a way back: %q", snapshot, why)
		}
	}
}
