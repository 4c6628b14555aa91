package gate

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
)

// What stops everything that acts stops probes: they start programs in guests. An armed window is for writes alone.
func TestAProbeIsStoppedToo(t *testing.T) {
	probe := `{"guest":"101","command":["probe"]}`
	for name, stop := range map[string]func(r *rig){
		"kill switch":   func(r *rig) { r.store.values[killKey] = "by ann" },
		"configuration": func(r *rig) { r.policy.contained = "a file says so" },
	} {
		h := newHands()
		r := runRig(t, newMemory(), h, &doors{})
		stop(r)
		_, err := r.do(t, "probe", probe)
		wantKind(t, err, ErrDenied)
		if len(h.sent) != 0 {
			t.Errorf("%s: %d probes ran", name, len(h.sent))
		}
	}
	h := newHands()
	r := runRig(t, newMemory(), h, &doors{})
	r.policy.arming = true
	if _, err := r.do(t, "probe", probe); err != nil || len(h.sent) != 1 {
		t.Errorf("arming: %v, %d sent", err, len(h.sent))
	}
}

func TestAProbeNamesItsNode(t *testing.T) {
	h := newHands()
	r := newRigWith(t, newMemory(), newSite(), func(c *Config) {
		c.Runner, c.Lanes = h, &doors{}
		c.Operations = append(testOperations(), Query(Declaration{Name: "near", Summary: "a probe of whatever node answers", Effect: EffectRead, Kinds: []Kind{KindProbe}},
			func(ctx context.Context, v View, _ struct{}) (RunResult, error) {
				return v.Run(ctx, "", "RUN /guest/{vmid}/probe", map[string]any{"vmid": "101", "node": "localhost"})
			}))
	})
	_, err := r.do(t, "near", `{}`)
	wantKind(t, err, ErrInvalid)
	if len(h.sent) != 0 {
		t.Error("it ran")
	}
}

// Consoles and files are ways into a guest as code is: the lanes are asked of each.
func TestLanesAreAskedOfEveryWayIn(t *testing.T) {
	for _, class := range []Class{ClassExec, ClassConsole, ClassFile} {
		d := &doors{}
		d.say(LaneVerdict{Refused: "guest 101 is on no list"})
		r := runRig(t, newMemory(), newHands(), d)
		s := Step{Number: 1, Target: "pve", API: &Request{Product: "pve", Operation: "POST /guest/{vmid}/x"}, Judgement: Judgement{Classes: []Class{class},
			References: []Reference{{Object: Object{Kind: ObjectGuest, ID: "101"}, Use: UseActs}}}}
		if e := r.g.byLane(t.Context(), r.g.wholeView(Principal{}), &s, nil); e == nil {
			t.Errorf("%s goes round the lanes", class)
		}
	}
}

// A guest's report is shown clean and bounded, like all that programs on the other side print.
func TestAReportIsCleanAndBounded(t *testing.T) {
	o := RunOutput{RunResult: RunResult{OK: true, Said: strings.Repeat("x", 1<<20), Report: json.RawMessage("{\"note\":\"a\U000E0041\uFE01\u202Eb\",\"n\":1}")}}
	o.shorten()
	o.wash(&washer{bounded: true})
	if string(o.Report) != `{"note":"ab","n":1}` || len(o.Said) > mostSaid+100 {
		t.Errorf("%s, %d bytes said", o.Report, len(o.Said))
	}
	o.Report = json.RawMessage(`{"units":["` + strings.Repeat(`a","`, mostReport) + `"]}`)
	if o.shorten(); len(o.Report) != 0 || !strings.Contains(o.Note, "left out") {
		t.Errorf("%d bytes of report, note %q", len(o.Report), o.Note)
	}
}
