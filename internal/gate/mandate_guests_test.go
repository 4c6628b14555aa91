package gate

import (
	"context"
	"strings"
	"testing"
	"time"
)

// TestAMandateIsForTheGuestThatWas: a guest that was destroyed and made anew under its number is another one, at the plan and at the
// step, unless the mandate was given for the number alone.
func TestAMandateIsForTheGuestThatWas(t *testing.T) {
	ctx := context.Background()
	r, _, _ := peopleRig(t, RungPerson)
	target := r.site.Targets()[0].Name
	evidence := Evidence{Kind: "session", Session: "s-ann"}
	grant := func(byNumber bool) (*Mandate, error) {
		return r.g.Grant(ctx, Mandate{For: agent.Key(), Operations: []string{"power"}, Targets: []string{target}, Objects: []string{"guest/101"}, Args: map[string][]string{"action": {"*"}},
			Count: 5, Until: time.Now().Add(time.Hour), ByNumber: byNumber, Guests: map[string][]Condition{"guest/101": nil}}, evidence)
	}
	replaced := func(text string) {
		r.site.mu.Lock()
		defer r.site.mu.Unlock()
		r.site.config["replaced"] = text
	}
	known, err := grant(false)
	if err != nil {
		t.Fatal(err)
	}
	if len(known.Guests["guest/101"]) == 0 {
		t.Fatalf("nothing was kept of the guest: %+v", known)
	}
	act := func(action string) *Outcome {
		t.Helper()
		out, err := r.do(t, "power", `{"guest":"101","action":"`+action+`"}`)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	if out := act("stop"); out.Status != StatusDone {
		t.Fatalf("the guest that was meant: %+v", out)
	}
	p := &Plan{Operation: "power", Requester: agent, Args: []byte(`{"guest":"101","action":"stop"}`), Decision: Decision{Verdict: VerdictNeeds, Rung: RungPerson}, Steps: []Step{{Target: target}},
		Facts: Facts{Objects: []ObjectFacts{{Object: Object{Kind: ObjectGuest, ID: "101"}, Use: UseActs, Known: true}}}}
	if why := r.g.mandateEnded(ctx, known.ID, p); why != "" {
		t.Errorf("while the guest is there: %s", why)
	}
	replaced("yes")
	if out := act("start"); out.Status != StatusWaiting {
		t.Errorf("another guest under the number is covered: %+v", out)
	}
	for name, why := range map[string]string{"at the plan": r.g.coversNow(ctx, known, p), "at the step": r.g.mandateEnded(ctx, known.ID, p)} {
		if !strings.Contains(why, "guest/101 may not be the guest for which it was given (no longer so: guest 101 was not replaced; found: yes)") {
			t.Errorf("%s: %q", name, why)
		}
	}
	// A volume and a snapshot of the number are the later guest's, too.
	for _, o := range []Object{{Kind: ObjectSnapshot, ID: "101/before"}} {
		q := *p
		q.Facts.Objects, q.Facts.Reach = nil, Reach{Hits: []Hit{{Step: 1, Class: "lost", Weight: WeightDanger, Object: o, Text: "x"}}}
		if why := r.g.coversNow(ctx, known, &q); !strings.Contains(why, "may not be the guest") {
			t.Errorf("%s: %q", o, why)
		}
	}
	replaced("")
	if why := r.g.coversNow(ctx, known, p); why != "" {
		t.Errorf("the guest that was meant again: %s", why)
	}
	if why := r.g.covers(&Mandate{For: known.For, Operations: known.Operations, Targets: known.Targets, Objects: known.Objects, Args: known.Args, Count: 1, Until: known.Until, Rung: known.Rung, Guests: known.Guests}, p); why == "" {
		t.Error("a number counts that nobody has looked at")
	}
	old := *known
	old.Guests = nil
	if why := r.g.coversNow(ctx, &old, p); !strings.Contains(why, "kept with the number alone") {
		t.Errorf("a mandate of before: %q", why)
	}
	if err := r.g.Revoke(ctx, "s-ann", known.ID); err != nil {
		t.Fatal(err)
	}

	r.estate.mu.Lock()
	r.estate.nameless = true
	r.estate.mu.Unlock()
	if _, err := grant(false); err == nil || !strings.Contains(AsError(err).Message, "nothing that distinguishes it") || !strings.Contains(AsError(err).Hint, "the number alone counts") {
		t.Errorf("a guest that nothing tells: %v", err)
	}
	number, err := grant(true)
	if err != nil {
		t.Fatal(err)
	}
	replaced("yes")
	if why := r.g.coversNow(ctx, number, p); why != "" {
		t.Errorf("the number alone: %s", why)
	}
	a, err := known.digest()
	if err != nil {
		t.Fatal(err)
	}
	b, err := Mandate{For: known.For, Operations: known.Operations, Targets: known.Targets, Objects: known.Objects, Args: known.Args, Count: known.Count, From: known.From, Until: known.Until}.digest()
	if err != nil || a == b {
		t.Errorf("what tells the guest is not in what is signed: %v", err)
	}
}
