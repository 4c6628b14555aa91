package console

import (
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"castellan/internal/gate"
)

func TestApproveThenRun(t *testing.T) {
	w := newWorld(t)
	fill(w)
	b := w.signedIn("anna", "correct horse")
	digest := w.gate.plans["p1"].Plan.Digest
	if a := b.post("/plans/p1", "/plans/p1/approve", "digest", digest); a.status != http.StatusSeeOther || a.header.Get("Location") != "/plans/p1" {
		t.Fatalf("approve: %d\n%s", a.status, a.body)
	}
	if len(w.gate.applied) > 0 {
		t.Error("an approval started something")
	}
	page := b.get("/plans/p1").body
	if !strings.Contains(page, "Run now") || !strings.Contains(page, "Approved by") || strings.Contains(page, ">Approve<") {
		t.Errorf("after the approval:\n%s", page)
	}
	if a := b.post("/plans/p1", "/plans/p1/run", "digest", digest); a.status != http.StatusSeeOther || w.gate.state("p1") != gate.PlanDone {
		t.Fatalf("run: %d, %s", a.status, w.gate.state("p1"))
	}
	page = b.get("/plans/p1").body
	for _, want := range []string{"Receipt", "all records of this plan", "Done, and seen done", "Keep the receipt"} {
		if !strings.Contains(page, want) {
			t.Errorf("the ended plan lacks %q", want)
		}
	}
	if a := b.get("/plans/p1?receipt=json"); !strings.Contains(a.body, `"state": "done"`) || a.header.Get("Content-Type") != "application/json" {
		t.Errorf("receipt: %s", a.body)
	}
}

// TestRunNowIsThereForWhoMay: an approver who did not approve this plan sees no button that would be refused, and why.
func TestRunNowIsThereForWhoMay(t *testing.T) {
	w := newWorld(t)
	fill(w)
	w.gate.plans["p7"].Approvals = []gate.Approval{{Plan: "p7", Rung: gate.RungPerson, By: gate.Principal{Person: "somebody"}, Until: w.gate.now().Add(time.Hour), Evidence: gate.Evidence{Kind: "session"}}}
	b := w.signedIn("anna", "correct horse")
	if page := b.get("/plans/p7").body; strings.Contains(page, "Run now") || !strings.Contains(page, "Not by you: policy refuses it now") {
		t.Errorf("a button that would be refused, or no reason:\n%s", page)
	}
	w.gate.plans["p7"].Approvals[0].By.Person = "anna"
	if page := b.get("/plans/p7").body; !strings.Contains(page, "Run now") || strings.Contains(page, "Not by you") {
		t.Errorf("whoever approved it lacks the button:\n%s", page)
	}
}

// TestEffectAndUndoAgree: no page says that a call brings back what cannot be undone.
func TestEffectAndUndoAgree(t *testing.T) {
	w := newWorld(t)
	fill(w)
	b := w.signedIn("anna", "correct horse")
	for reversible, back := range map[string]bool{"yes": true, "partly": true, "no": false, "": false} {
		f := &w.gate.plans["p1"].Plan.Facts
		f.Effect, f.Reversible, f.UndoNote = gate.EffectChange, reversible, "a reboot is not taken back"
		page := b.get("/plans/p1").body
		if strings.Contains(page, "another call can bring back") != back || strings.Contains(page, "undo does not bring back") == back {
			t.Errorf("undo %q:\n%s", reversible, page)
		}
	}
}

func TestDenyTellsWhy(t *testing.T) {
	w := newWorld(t)
	fill(w)
	b := w.signedIn("anna", "correct horse")
	b.post("/plans/p1", "/plans/p1/deny", "digest", w.gate.plans["p1"].Plan.Digest, "why", "  not tonight ")
	if w.gate.state("p1") != gate.PlanDenied || w.gate.denied["p1"] != "not tonight" {
		t.Errorf("%s: %q", w.gate.state("p1"), w.gate.denied["p1"])
	}
	b.post("/plans/p7", "/plans/p7/deny", "digest", w.gate.plans["p7"].Plan.Digest, "why", "thought again")
	if w.gate.state("p7") != gate.PlanDenied {
		t.Error("an approval cannot be taken back")
	}
}

func TestAPageOfAnotherPlanApprovesNothing(t *testing.T) {
	w := newWorld(t)
	fill(w)
	b := w.signedIn("anna", "correct horse")
	for _, digest := range []string{"", w.gate.plans["p2"].Plan.Digest, strings.Repeat("0", 64)} {
		for _, verb := range []string{"approve", "deny", "run"} {
			plan := "p1"
			if verb == "run" {
				plan = "p7"
			}
			a := b.post("/plans/"+plan, "/plans/"+plan+"/"+verb, "digest", digest)
			if a.status != http.StatusConflict || !strings.Contains(a.body, "showed another plan") {
				t.Errorf("%s with digest %q: %d", verb, digest, a.status)
			}
		}
	}
	if w.gate.state("p1") != gate.PlanProposed || w.gate.state("p7") != gate.PlanApproved {
		t.Error("a stale page changed a plan")
	}
}

// TestTwoTabsApproveAtOnce: one wins, the other is told so, and nothing is approved twice.
func TestTwoTabsApproveAtOnce(t *testing.T) {
	w := newWorld(t)
	fill(w)
	w.gate.slow = 20 * time.Millisecond
	a, b := w.signedIn("anna", "correct horse"), w.signedIn("boss", "battery staple")
	digest := w.gate.plans["p1"].Plan.Digest
	forms := []url.Values{{"form": {a.token("/plans/p1")}, "digest": {digest}}, {"form": {b.token("/plans/p1")}, "digest": {digest}}}
	got := make([]answered, 2)
	var both sync.WaitGroup
	for i, tab := range []*browser{a, b} {
		both.Go(func() { got[i] = tab.do("POST", "/plans/p1/approve", forms[i]) })
	}
	both.Wait()
	statuses := map[int]int{got[0].status: 1}
	statuses[got[1].status]++
	if statuses[http.StatusSeeOther] != 1 || statuses[http.StatusConflict] != 1 || len(w.gate.plans["p1"].Approvals) != 1 {
		t.Errorf("statuses %v, approvals %d", statuses, len(w.gate.plans["p1"].Approvals))
	}
	late := a.do("POST", "/plans/p1/approve", forms[0])
	if late.status != http.StatusConflict || !strings.Contains(late.body, "changed nothing") || !strings.Contains(late.body, "Approved by") {
		t.Errorf("late: %d", late.status)
	}
}

func TestEndedPlansSayHow(t *testing.T) {
	w := newWorld(t)
	b := w.signedIn("anna", "correct horse")
	for _, s := range []gate.PlanState{gate.PlanApplying, gate.PlanPaused, gate.PlanDone, gate.PlanFailed, gate.PlanUnknown, gate.PlanDenied, gate.PlanExpired, gate.PlanWithdrawn, gate.PlanStale} {
		r := rollback("x-"+string(s), "101", w.at)
		r.State, r.Note = s, "because of that"
		w.gate.add(r)
		page := b.get("/plans/x-" + string(s)).body
		if !strings.Contains(page, stateText(s)) || strings.Contains(page, ">Approve<") {
			t.Errorf("%s: not said, or still to be approved", s)
		}
		if refresh := strings.Contains(page, `http-equiv="refresh"`); refresh != (s == gate.PlanApplying) {
			t.Errorf("%s: refresh %t", s, refresh)
		}
		if a := b.do("POST", "/plans/x-"+string(s)+"/approve", url.Values{"form": {b.token("/plans/x-" + string(s))}, "digest": {r.Plan.Digest}}); a.status != http.StatusConflict {
			t.Errorf("%s: approve gives %d", s, a.status)
		}
	}
	r := rollback("old", "101", w.at.Add(-13*time.Hour))
	w.gate.add(r)
	if page := b.get("/plans/old").body; !strings.Contains(page, "Expired") || strings.Contains(page, ">Approve<") {
		t.Error("an expired plan is offered")
	}
}

func TestOnlyApproversDecide(t *testing.T) {
	w := newWorld(t)
	fill(w)
	mine := rollback("mine", "105", w.at)
	mine.Plan.Requester.Person = "vic"
	w.gate.add(mine)
	b := w.signedIn("vic", "look only")
	list := b.get("/").body
	if strings.Contains(list, "VM 101") || !strings.Contains(list, "VM 105") {
		t.Error("a viewer sees the plans of others, or not their own")
	}
	if a := b.get("/plans/p1"); a.status != http.StatusNotFound {
		t.Errorf("another's plan: %d", a.status)
	}
	page := b.get("/plans/mine").body
	if !strings.Contains(page, "Only a person with the role") || strings.Contains(page, ">Approve<") {
		t.Error("a viewer is offered to approve")
	}
	for _, verb := range []string{"approve", "deny"} {
		if a := b.post("/plans/mine", "/plans/mine/"+verb, "digest", mine.Plan.Digest); a.status != http.StatusForbidden || w.gate.state("mine") != gate.PlanProposed {
			t.Errorf("%s by a viewer: %d", verb, a.status)
		}
	}
	if a := b.post("/plans/mine", "/plans/mine/challenge", "digest", mine.Plan.Digest, "verdict", "approve"); a.status != http.StatusForbidden {
		t.Errorf("challenge for a viewer: %d", a.status)
	}
	if a := b.post("/", "/group", "plan", "p1:x", "plan", "p2:x"); a.status != http.StatusForbidden {
		t.Errorf("group by a viewer: %d", a.status)
	}
	for path, fields := range map[string][]string{"/switches/kill": {"to", "off", "password", "look only"}, "/switches/arm": {"minutes", "5", "password", "look only"}, "/approvers/roles": {"name", "vic", "role", "administrator", "password", "look only"},
		"/settings": {"key", "policy.wait_ttl", "value", "x", "password", "look only"}, "/clients/revoke": {"what", "client", "id", "c"}, "/mandates": {"for", "a|b", "count", "1", "from", "2026-01-01T00:00", "until", "2027-01-01T00:00"}} {
		if a := b.post("/", path, fields...); a.status != http.StatusForbidden {
			t.Errorf("%s by a viewer: %d", path, a.status)
		}
	}
	if len(w.gate.mandates) != 1 || w.gate.settings["policy.wait_ttl"] != "12h" {
		t.Error("a viewer changed something")
	}
	w.people.until["anna"] = w.at.Add(-time.Second)
	late := w.signedIn("anna", "correct horse")
	if a := late.post("/plans/p1", "/plans/p1/approve", "digest", w.gate.plans["p1"].Plan.Digest); a.status != http.StatusForbidden || w.gate.state("p1") != gate.PlanProposed {
		t.Errorf("approved after the role ran out: %d", a.status)
	}
}

func TestPasskeyPlansTakeNoSession(t *testing.T) {
	w := newWorld(t)
	fill(w)
	w.gate.plans["p5"].Plan.Decision.Rung = gate.RungPasskey
	w.gate.plans["p5"].Approvals = nil
	b := w.signedIn("boss", "battery staple")
	digest := w.gate.plans["p5"].Plan.Digest
	page := b.get("/plans/p5").body
	if !strings.Contains(page, `data-passkey="get"`) || strings.Contains(page, ">Approve<") {
		t.Error("a plan for passkeys shows a plain button")
	}
	if a := b.post("/plans/p5", "/plans/p5/approve", "digest", digest); a.status != http.StatusForbidden || w.gate.state("p5") != gate.PlanProposed {
		t.Errorf("approved by session: %d", a.status)
	}
	if a := b.post("/plans/p5", "/plans/p5/approve", "digest", digest, "by", "passkey"); a.status != http.StatusForbidden {
		t.Errorf("approved by an empty passkey: %d", a.status)
	}
	a := b.post("/plans/p5", "/plans/p5/challenge", "digest", digest, "verdict", "approve")
	if a.status != http.StatusOK || !strings.Contains(a.body, `"userVerification":"required"`) || !strings.Contains(a.body, `"ticket":"ticket-0"`) {
		t.Fatalf("challenge: %d %s", a.status, a.body)
	}
	if a := b.post("/plans/p5", "/plans/p5/approve", "digest", digest, "by", "passkey", "ticket", "ticket-0", "response", "{}"); a.status != http.StatusSeeOther || w.gate.state("p5") != gate.PlanApproved {
		t.Errorf("approved by passkey: %d", a.status)
	}
}

func TestTwoPeople(t *testing.T) {
	w := newWorld(t)
	fill(w)
	boss, anna := w.signedIn("boss", "battery staple"), w.signedIn("anna", "correct horse")
	if page := boss.get("/plans/p5").body; !strings.Contains(page, "You have approved this plan") || strings.Contains(page, `value="approve"`) {
		t.Error("the first approver is offered to approve again")
	}
	if page := anna.get("/plans/p5").body; !strings.Contains(page, "1 of 2 approvals") || !strings.Contains(page, `value="approve"`) {
		t.Error("the second approver is not offered to approve")
	}
}

func TestOneAccountIsSaid(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.OneAccount = true })
	fill(w)
	b := w.signedIn("anna", "correct horse")
	for _, path := range []string{"/", "/plans/p1", "/group?plan=p1&plan=p2"} {
		if !strings.Contains(b.get(path).body, "count as a dialog only") {
			t.Errorf("%s does not say it", path)
		}
	}
}

func TestGroups(t *testing.T) {
	w := newWorld(t)
	fill(w)
	b := w.signedIn("anna", "correct horse")
	page := b.get("/").body
	if !strings.Contains(page, "Differs from the others") || !strings.Contains(page, "2019-first-install") || !strings.Contains(page, "Look at the 3 equal plans together") {
		t.Errorf("the odd one is not marked:\n%s", page)
	}
	pair := func(id string) string { return id + ":" + w.gate.plans[id].Plan.Digest }
	if a := b.post("/", "/group", "plan", pair("p1"), "plan", pair("p4")); a.status != http.StatusForbidden {
		t.Errorf("differing plans together: %d", a.status)
	}
	if a := b.post("/", "/group", "plan", pair("p1"), "plan", "p2:"+w.gate.plans["p1"].Plan.Digest); a.status != http.StatusConflict {
		t.Errorf("a wrong digest: %d", a.status)
	}
	if a := b.post("/", "/group", "plan", pair("p1"), "plan", pair("p1")); a.status != http.StatusBadRequest {
		t.Errorf("one plan twice: %d", a.status)
	}
	if a := b.post("/", "/group", "plan", pair("p1"), "plan", pair("p5")); a.status != http.StatusForbidden {
		t.Errorf("with one for passkeys: %d", a.status)
	}
	if w.gate.state("p1") != gate.PlanProposed {
		t.Fatal("a refused group approved something")
	}
	if a := b.post("/group?plan=p1&plan=p2&plan=p3", "/group", "plan", pair("p1"), "plan", pair("p2"), "plan", pair("p3")); a.status != http.StatusOK || w.gate.state("p1") != gate.PlanApproved || w.gate.state("p3") != gate.PlanApproved || w.gate.state("p4") != gate.PlanProposed {
		t.Errorf("equal plans: %d\n%s", a.status, a.body)
	}
	if len(w.gate.applied) > 0 {
		t.Error("a group started something")
	}
}

// TestGroupAllowsNewer: plans that install packages have the tick of a single one on the page for all of them, and each approval
// keeps what was ticked. Others have none.
func TestGroupAllowsNewer(t *testing.T) {
	for _, tick := range []bool{true, false} {
		w := newWorld(t)
		fill(w)
		b := w.signedIn("anna", "correct horse")
		if page := b.get("/group?plan=p1&plan=p2").body; strings.Contains(page, `name="newer"`) {
			t.Error("plans that install nothing have the tick")
		}
		for _, id := range []string{"p1", "p2"} {
			api := w.gate.plans[id].Plan.Steps[0].API
			api.Operation = "RUN /nodes/{node}/qemu/{vmid}/upgrade"
			api.Params = append(api.Params, gate.Param{Name: "package", Values: text("upgrade openssl:amd64 1 2 Debian:bookworm")})
		}
		if page := b.get("/group?plan=p1&plan=p2").body; !strings.Contains(page, `name="newer"`) || strings.Contains(page, `name="newer" value="1" checked`) {
			t.Errorf("no tick, or one that is set:\n%s", page)
		}
		form := []string{"plan", "p1:" + w.gate.plans["p1"].Plan.Digest, "plan", "p2:" + w.gate.plans["p2"].Plan.Digest}
		if tick {
			form = append(form, "newer", "1")
		}
		a := b.post("/group?plan=p1&plan=p2", "/group", form...)
		if a.status != http.StatusOK || strings.Contains(a.body, "Newer versions allowed") != tick {
			t.Errorf("%t: %d\n%s", tick, a.status, a.body)
		}
		for _, id := range []string{"p1", "p2"} {
			if got := w.gate.plans[id].Approvals; len(got) != 1 || got[0].Evidence.AllowNewer != tick {
				t.Errorf("%t: %s is approved as %+v", tick, id, got)
			}
		}
	}
}

// TestWhatMakesPlansDiffer changes one thing at a time in one of two equal plans.
func TestWhatMakesPlansDiffer(t *testing.T) {
	for name, change := range map[string]func(*gate.Plan){
		"a parameter":    func(p *gate.Plan) { p.Steps[1].API.Params[2].Values = text("other") },
		"another call":   func(p *gate.Plan) { p.Steps[0].API.Operation = "POST /nodes/{node}/qemu/{vmid}/status/stop" },
		"a further step": func(p *gate.Plan) { p.Steps = append(p.Steps, p.Steps[0]) },
		"the caller":     func(p *gate.Plan) { p.Requester.Agent = "other" },
		"the rung":       func(p *gate.Plan) { p.Decision.Rung = gate.RungPasskey },
		"taint":          func(p *gate.Plan) { p.Facts.Tainted = true },
		"governs":        func(p *gate.Plan) { p.Facts.Governs = []string{"its own guest"} },
		"unknown object": func(p *gate.Plan) { p.Facts.Objects[0].Known = false },
		"another storage": func(p *gate.Plan) {
			p.Facts.Objects = append(p.Facts.Objects, gate.ObjectFacts{Object: gate.Object{Kind: gate.ObjectStorage, ID: "nas"}, Use: gate.UseNames, Known: true})
		},
		"a difference": func(p *gate.Plan) { p.Diff = append([]gate.Difference{{Key: "cores", Old: "1", New: "2"}}, p.Diff...) },
		"an old value": func(p *gate.Plan) {
			p.Diff = []gate.Difference{{Object: "guest/102", Key: "memory", Old: "8192", New: "2048"}, p.Diff[1]}
		},
		"undo":           func(p *gate.Plan) { p.Steps[0].Undo = gate.Undo{None: "it is gone"} },
		"a precondition": func(p *gate.Plan) { p.Steps[0].Require = nil },
		"a secret": func(p *gate.Plan) {
			p.Steps[1].API.Params[2].Values = []gate.Value{{Secret: &gate.Handle{Commitment: "aa"}}}
		},
		"what is left out": func(p *gate.Plan) { p.Skip = []string{"VM 103: is a template"} },
		"another site":     func(p *gate.Plan) { p.Steps[0].Target = "elsewhere" },
		"a danger": func(p *gate.Plan) {
			p.Facts.Reach.Hits = []gate.Hit{{Step: 1, Class: "stops", Weight: gate.WeightDanger, Object: gate.Object{Kind: gate.ObjectGuest, ID: "102"}, Text: "VM 102 stops, and stays off"}}
		},
		"what could not be read": func(p *gate.Plan) { p.Facts.Reach.Unread = []string{"the settings of VM 105"} },
		"when it stops":          func(p *gate.Plan) { p.Course = &gate.Course{Parallel: 1} },
		"a batch":                func(p *gate.Plan) { p.Steps[1].Part, p.Steps[1].Batch = 1, 2 },
		"what is verified":       func(p *gate.Plan) { p.Steps[0].Verify = append(p.Steps[0].Verify, gate.Condition{Name: "it runs"}) },
	} {
		a, b := rollback("a", "101", time.Now()), rollback("b", "102", time.Now())
		if signature(features(a)) != signature(features(b)) {
			t.Fatalf("plans that differ in the object alone are not equal: %v", differences(features(a), features(b)))
		}
		change(&b.Plan)
		if signature(features(a)) == signature(features(b)) || len(differences(features(a), features(b))) == 0 {
			t.Errorf("%s does not count", name)
		}
	}
}

// TestAGroupNamesWhatEachNotes: a note that the first plan does not have stands with the plan that has it.
func TestAGroupNamesWhatEachNotes(t *testing.T) {
	w := newWorld(t)
	fill(w)
	b := w.signedIn("anna", "correct horse")
	if page := b.get("/group?plan=p1&plan=p2").body; strings.Contains(page, "its newest backup is of May") {
		t.Fatal("a note that nobody wrote")
	}
	w.gate.plans["p2"].Plan.Note += " Heed: its newest backup is of May."
	if page := b.get("/group?plan=p1&plan=p2").body; !strings.Contains(page, "its newest backup is of May") {
		t.Errorf("the note of the second plan is not shown:\n%s", page)
	}
}

// TestTheOrderOfThePage: what decides comes first, words of others after it, the buttons last.
func TestTheOrderOfThePage(t *testing.T) {
	w := newWorld(t)
	fill(w)
	b := w.signedIn("anna", "correct horse")
	order := func(page string, marks ...string) {
		t.Helper()
		at := 0
		for _, m := range marks {
			i := strings.Index(page[at:], m)
			if i < 0 {
				t.Errorf("%q is missing, or not after what comes before it", m)
				continue
			}
			at += i
		}
	}
	order(b.get("/plans/p1").body, `<h1 class="sentence">Shut down VM 101`, "<dt>Effect</dt>", "<dt>Undo</dt>", "<dt>Needs</dt>", "<dt>Asked by</dt>", `id="risk"`, `id="steps"`, "Step 2 of 2", "snapshot/{snapname}/rollback", "In force when?",
		"Undo:", "Step 1 of 2", `id="diff"`, "4096", "2048", `id="touch"`, "What others say", "The upgrade of the web shop", "planner&#39;s note", `id="decide"`, ">Approve<", ">Deny<", w.gate.plans["p1"].Plan.Digest)
	order(b.get("/plans/p6").body, `<h1 class="sentence">`, `id="decide"`, "Receipt", "<dt>Effect</dt>", "what became of them", "Step 1 of 2", "Step 2 of 2")
}

func TestStoppedWritesAreSaidEverywhere(t *testing.T) {
	w := newWorld(t)
	fill(w)
	b := w.signedIn("anna", "correct horse")
	for want, sw := range map[string]gate.Switches{"kill switch is on": {Killed: "by boss"}, "stopped by the configuration": {Contained: "a file says so"}, "not armed": {ArmingNeeded: true}} {
		w.gate.sw = sw
		for _, path := range []string{"/", "/plans/p1", "/nothing"} {
			if !strings.Contains(b.get(path).body, want) {
				t.Errorf("%s does not say %q", path, want)
			}
		}
	}
	w.gate.sw = gate.Switches{ArmingNeeded: true, ArmedUntil: w.at.Add(time.Minute)}
	if strings.Contains(b.get("/").body, `class="banner`) {
		t.Error("an open window is said to be closed")
	}
}
