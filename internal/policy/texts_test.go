package policy

import (
	"strings"
	"testing"

	"castellan/internal/gate"
)

// A tag that the site does not reserve is no scope, in either form.
func TestOnlyReservedTagsAreScope(t *testing.T) {
	p := load(t, Settings{Capabilities: gate.Capabilities(), Tags: []string{"agents"}})
	for _, c := range []struct {
		tags, reserved []string
		in             bool
	}{{[]string{"agents"}, nil, false}, {[]string{"agents"}, []string{"agents"}, true}, {[]string{"agents", "x"}, []string{"x"}, false}, {nil, nil, false}} {
		o := guest("101", true, c.tags, nil)
		o.Reserved = c.reserved
		if p.Sees(agent, "pve", o) != c.in || (decide(p, plan(one(gate.KindSnapshot), o)).Verdict == gate.VerdictAllow) != c.in {
			t.Errorf("%+v: seen %v", o, p.Sees(agent, "pve", o))
		}
	}
}

func TestAfterFreeText(t *testing.T) {
	p := load(t, Settings{Capabilities: gate.Capabilities(), StandIn: "dialog", AfterFreeText: map[string]string{"exec": "denied", "start": "dialog", "all": "phrase"}})
	for kind, want := range map[gate.Kind][2]gate.Rung{gate.KindSnapshot: {gate.RungNone, gate.RungPhrase}, gate.KindStart: {gate.RungNone, gate.RungDialog}, gate.KindExec: {gate.RungDialog, gate.RungDenied}} {
		for i, tainted := range []bool{false, true} {
			q := plan(one(kind), guest("101", true, nil, nil))
			q.Facts.Tainted = tainted
			d := decide(p, q)
			if want[i] == gate.RungDenied {
				if d.Verdict != gate.VerdictDeny || !strings.Contains(d.Reason, "policy.after_free_text.exec") || !strings.Contains(d.Hint, "policy.taint_for") {
					t.Errorf("%s after free text: %+v", kind, d)
				}
				continue
			}
			if d.Verdict == gate.VerdictDeny || d.Rung != want[i] {
				t.Errorf("%s, tainted %v: %+v, want %s", kind, tainted, d, want[i])
			}
		}
	}
	for _, bad := range []map[string]string{{"exek": "denied"}, {"exec": "never"}} {
		if _, err := New(Config{Settings: Settings{AfterFreeText: bad}}); err == nil {
			t.Errorf("%v was taken", bad)
		}
	}
}

// The risk of commands raises what a change takes, and a low one lowers nothing.
func TestCommandRisk(t *testing.T) {
	ask := func(p *Policy, risks ...gate.CommandRisk) gate.Decision {
		q := plan(one(gate.KindExec), guest("101", true, nil, nil))
		step := q.Steps[0]
		q.Steps = nil
		for _, r := range risks {
			s := step
			if r != gate.RiskNone {
				s.Judgement.Commands = []gate.CommandFact{{Param: "command", Risk: r}}
			}
			q.Steps = append(q.Steps, s)
		}
		return decide(p, q)
	}
	plain := load(t, Settings{Capabilities: gate.Capabilities(), StandIn: "phrase"})
	p := load(t, Settings{Capabilities: gate.Capabilities(), StandIn: "phrase", CommandRisk: map[string]string{"high": "denied", "medium": "passkey"}})
	usual := ask(plain, gate.RiskNone)
	for _, r := range []gate.CommandRisk{gate.RiskLow, gate.RiskMedium, gate.RiskHigh} {
		if got := ask(plain, r); got.Rung != usual.Rung || got.Verdict != usual.Verdict {
			t.Errorf("without a setting, %s changes %+v to %+v", r, usual, got)
		}
	}
	if d := ask(p, gate.RiskLow); d.Rung != usual.Rung {
		t.Errorf("low: %+v", d)
	}
	if d := ask(p, gate.RiskMedium); d.Asked != gate.RungPasskey {
		t.Errorf("medium: %+v", d)
	}
	// The second of two steps that are alike but for their command counts too.
	for _, risks := range [][]gate.CommandRisk{{gate.RiskHigh}, {gate.RiskLow, gate.RiskHigh}, {gate.RiskHigh, gate.RiskLow}, {"unheard of"}} {
		if d := ask(p, risks...); risks[0] != "unheard of" && d.Verdict != gate.VerdictDeny {
			t.Errorf("%v: %+v", risks, d)
		}
	}
}
