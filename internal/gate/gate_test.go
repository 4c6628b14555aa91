package gate

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

func apply(t *testing.T, r *rig, v *PlanView, change func(m map[string]string)) (*Outcome, error) {
	t.Helper()
	m := map[string]string{"plan": v.ID, "sentence": v.Sentence, "token": v.Token, "phrase": v.Phrase}
	if change != nil {
		change(m)
	}
	b, _ := json.Marshal(m)
	return r.do(t, "apply", string(b))
}

func wantKind(t *testing.T, err error, kind ErrorKind) {
	t.Helper()
	if err == nil || AsError(err).Kind != kind {
		t.Fatalf("got error %v, want kind %s", err, kind)
	}
}

func TestRungNoneRunsAtOnce(t *testing.T) {
	r := newRig(t, newMemory(), newSite())
	out, err := r.do(t, "power", `{"guest":101,"action":"start"}`)
	if err != nil {
		t.Fatal(err)
	}
	if out.Status != StatusDone || r.site.status != "running" || len(r.site.sent) != 1 {
		t.Fatalf("outcome %+v, site %s, sent %d", out, r.site.status, len(r.site.sent))
	}
	want := []string{"intent:planned", "approval:none", "apply:applying", "step:started", "step_sent:answered", "step_end:ok", "plan_end:done"}
	if got := r.store.kinds(); !slices.Equal(got, want) {
		t.Fatalf("records %v, want %v", got, want)
	}
	if _, err := r.site.owner.Take(); !errors.Is(err, ErrPermitSpent) {
		t.Fatalf("the permit can be used twice: %v", err)
	}
	if _, err := (&Permit{}).Take(); !errors.Is(err, ErrPermitSpent) {
		t.Fatalf("a zero permit permits: %v", err)
	}
	again, err := r.do(t, "power", `{"guest":101,"action":"start"}`)
	if err != nil || again.Status != StatusNothing {
		t.Fatalf("second start: %+v %v", again, err)
	}
}

// TestTheAddressIsRecorded: where a call came from stands in its records, and is no part of who called.
func TestTheAddressIsRecorded(t *testing.T) {
	r := newRig(t, newMemory(), newSite())
	who := agent
	who.IP, who.Token = "192.0.2.9", "t1"
	out, err := r.g.Do(context.Background(), Call{Operation: "power", Args: json.RawMessage(`{"guest":"101","action":"start"}`), Principal: who}, nil)
	if err != nil || out.Status != StatusDone || r.store.records[0].Marks["ip"] != "192.0.2.9" || r.store.records[0].Marks["token"] != "t1" {
		t.Errorf("%+v %v: %+v", out, err, r.store.records[0].Marks)
	}
	if again, err := r.do(t, "power", `{"guest":"101","action":"start"}`); err != nil || again.Status != StatusNothing {
		t.Errorf("%+v %v", again, err)
	}
	if err := r.g.Note(context.Background(), who, "refused", "an answer that nobody asked for"); err != nil {
		t.Fatal(err)
	}
	if last := r.store.records[len(r.store.records)-1]; last.Status != "denied" || last.Marks["token"] != "t1" {
		t.Errorf("%+v", last)
	}
}

func TestPlanOnlySendsNothing(t *testing.T) {
	r := newRig(t, newMemory(), newSite())
	out, err := r.g.Do(context.Background(), Call{Operation: "power", Args: json.RawMessage(`{"guest":"101","action":"start"}`), Principal: agent, PlanOnly: true}, nil)
	if err != nil || out.Status != StatusPlanned || len(r.site.sent) != 0 {
		t.Fatalf("%+v %v", out, err)
	}
	done, err := r.do(t, "apply", `{"plan":"`+out.Plan.ID+`"}`)
	if err != nil || done.Status != StatusDone {
		t.Fatalf("%+v %v", done, err)
	}
}

func TestRestatedNeedsSentenceAndToken(t *testing.T) {
	r := newRig(t, newMemory(), newSite())
	out, err := r.do(t, "set", `{"guest":"101","set":{"memory":"1024"}}`)
	if err != nil || out.Status != StatusWaiting || out.Plan.Token == "" {
		t.Fatalf("%+v %v", out, err)
	}
	for name, change := range map[string]func(map[string]string){
		"no token":       func(m map[string]string) { m["token"] = "" },
		"wrong token":    func(m map[string]string) { m["token"] = "tok99" },
		"wrong sentence": func(m map[string]string) { m["sentence"] += " " },
		"nothing":        func(m map[string]string) { m["token"], m["sentence"] = "", "" },
	} {
		if _, err := apply(t, r, out.Plan, change); err == nil {
			t.Fatalf("%s: applied", name)
		} else {
			wantKind(t, err, ErrNeedsApproval)
		}
	}
	if len(r.site.sent) != 0 {
		t.Fatal("something was sent")
	}
	other := Principal{Agent: "other", Person: "ann"}
	b, _ := json.Marshal(map[string]string{"plan": out.Plan.ID, "sentence": out.Plan.Sentence, "token": out.Plan.Token})
	_, err = r.g.Do(context.Background(), Call{Operation: "apply", Args: b, Principal: other}, nil)
	wantKind(t, err, ErrNotFound)
	done, err := apply(t, r, out.Plan, nil)
	if err != nil || done.Status != StatusDone {
		t.Fatalf("%+v %v", done, err)
	}
	if r.site.config["memory"] != "1024" || !strings.Contains(r.site.bodies[0], "digest=d1") {
		t.Fatalf("config %v, body %v", r.site.config, r.site.bodies)
	}
	if again, err := apply(t, r, out.Plan, nil); err == nil {
		t.Fatalf("applied twice: %+v", again)
	}
}

func TestPhraseAndPlanSwap(t *testing.T) {
	s := newSite()
	s.status = "running"
	r := newRig(t, newMemory(), s)
	stop, err := r.do(t, "power", `{"guest":"101","action":"stop"}`)
	if err != nil || stop.Plan.Rung != RungPhrase || stop.Plan.Phrase != "CONFIRM POWER 101" {
		t.Fatalf("%+v %v", stop.Plan, err)
	}
	set, err := r.do(t, "set", `{"guest":"101","set":{"memory":"1024"}}`)
	if err != nil {
		t.Fatal(err)
	}
	// Plan A's token and sentence do not open plan B, whatever is mixed.
	_, err = apply(t, r, stop.Plan, func(m map[string]string) { m["token"] = set.Plan.Token })
	wantKind(t, err, ErrNeedsApproval)
	_, err = apply(t, r, stop.Plan, func(m map[string]string) { m["sentence"] = set.Plan.Sentence })
	wantKind(t, err, ErrNeedsApproval)
	_, err = apply(t, r, stop.Plan, func(m map[string]string) { m["phrase"] = "yes" })
	wantKind(t, err, ErrNeedsApproval)
	_, err = apply(t, r, stop.Plan, func(m map[string]string) { m["phrase"] = "" })
	wantKind(t, err, ErrNeedsApproval)
	done, err := apply(t, r, stop.Plan, nil)
	if err != nil || done.Status != StatusDone {
		t.Fatalf("%+v %v", done, err)
	}
}

func TestDialogNeedsItsNonce(t *testing.T) {
	s := newSite()
	s.status = "running"
	r := newRig(t, newMemory(), s)
	r.policy.standIn = RungDialog
	out, err := r.do(t, "power", `{"guest":"101","action":"stop"}`)
	if err != nil || out.Plan.Rung != RungDialog || out.Plan.Token != "" {
		t.Fatalf("%+v %v", out, err)
	}
	ctx := context.Background()
	_, err = apply(t, r, out.Plan, func(m map[string]string) { m["phrase"] = "CONFIRM POWER 101" })
	wantKind(t, err, ErrNeedsApproval)
	_, err = r.g.Confirm(ctx, agent, out.Plan.ID, Evidence{Kind: "dialog", Nonce: "tok1"}, nil)
	wantKind(t, err, ErrNeedsApproval)
	_, err = r.g.Confirm(ctx, agent, out.Plan.ID, Evidence{Kind: "passkey"}, nil)
	wantKind(t, err, ErrDenied)
	_, nonce, err := r.g.Ask(ctx, agent, out.Plan.ID)
	if err != nil {
		t.Fatal(err)
	}
	done, err := r.g.Confirm(ctx, agent, out.Plan.ID, Evidence{Kind: "dialog", Nonce: nonce}, nil)
	if err != nil || done.Status != StatusDone {
		t.Fatalf("%+v %v", done, err)
	}
}

func TestChangedStateIsStale(t *testing.T) {
	s := newSite()
	s.status = "running"
	r := newRig(t, newMemory(), s)
	out, err := r.do(t, "power", `{"guest":"101","action":"stop"}`)
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	s.status = "stopped"
	s.mu.Unlock()
	done, err := apply(t, r, out.Plan, nil)
	if err != nil || done.Status != StatusFailed || done.Receipt.State != PlanStale || len(s.sent) != 0 {
		t.Fatalf("%+v %v sent %d", done, err, len(s.sent))
	}
}

func TestPolicyChangedBeforeApplying(t *testing.T) {
	r := newRig(t, newMemory(), newSite())
	out, err := r.do(t, "set", `{"guest":"101","set":{"memory":"1024"}}`)
	if err != nil {
		t.Fatal(err)
	}
	r.policy.mu.Lock()
	r.policy.deny[KindConfig] = true
	r.policy.mu.Unlock()
	done, err := apply(t, r, out.Plan, nil)
	if err != nil || done.Status != StatusFailed || len(r.site.sent) != 0 {
		t.Fatalf("%+v %v", done, err)
	}
}

func TestAnotherSiteBehindTheTarget(t *testing.T) {
	r := newRig(t, newMemory(), newSite())
	out, err := r.do(t, "set", `{"guest":"101","set":{"memory":"1024"}}`)
	if err != nil {
		t.Fatal(err)
	}
	r.site.mu.Lock()
	r.site.name = "site-b"
	r.site.mu.Unlock()
	done, err := apply(t, r, out.Plan, nil)
	if err != nil || done.Receipt.State != PlanStale || len(r.site.sent) != 0 {
		t.Fatalf("%+v %v", done, err)
	}
}

func TestLedgerDownStopsWritesNotReads(t *testing.T) {
	r := newRig(t, newMemory(), newSite())
	r.store.mu.Lock()
	r.store.down = errors.New("disk full")
	r.store.mu.Unlock()
	_, err := r.do(t, "power", `{"guest":"101","action":"start"}`)
	wantKind(t, err, ErrUnavailable)
	if AsError(err).Changed != "nothing" || len(r.site.sent) != 0 {
		t.Fatalf("%+v sent %d", AsError(err), len(r.site.sent))
	}
	out, err := r.do(t, "power", `{"guest":"101","action":"stop"}`) // it is stopped: nothing to do, a read
	if err != nil || len(out.Notices) == 0 {
		t.Fatalf("%+v %v", out, err)
	}
}

func TestFaults(t *testing.T) {
	cut := func() error {
		return &UpstreamError{Kind: ErrUnknownOutcome, Delivery: MaybeDone, Message: "connection cut"}
	}
	refused := func() error {
		return &UpstreamError{Kind: ErrDenied, Delivery: NotCarriedOut, Status: 403, Message: "no"}
	}
	for _, c := range []struct {
		name, op, args string
		fault          func() error
		operation      string
		status         Status
	}{
		{"task, failed after the effect", "power", `{"guest":"101","action":"start"}`, cut, "POST /guest/{vmid}/start", StatusDone},
		{"task, refused before", "power", `{"guest":"101","action":"start"}`, refused, "POST /guest/{vmid}/start", StatusFailed},
		{"no task and no proof", "set", `{"guest":"101","set":{"memory":"9"}}`, cut, "PUT /guest/{vmid}", StatusUnknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, newMemory(), newSite())
			r.site.fault[c.operation] = c.fault
			out, err := r.do(t, c.op, c.args)
			if err == nil && out.Status == StatusWaiting {
				out, err = apply(t, r, out.Plan, nil)
			}
			if err != nil || out.Status != c.status {
				t.Fatalf("%+v %v, want %s", out, err, c.status)
			}
			if len(r.site.sent) != 1 {
				t.Fatalf("sent %d times", len(r.site.sent))
			}
		})
	}
}

func TestSecretsAreSealedAndOpenedAtSendTime(t *testing.T) {
	r := newRig(t, newMemory(), newSite())
	out, err := r.do(t, "set", `{"guest":"101","set":{"password":"hunter2"}}`)
	if err != nil {
		t.Fatal(err)
	}
	r.store.mu.Lock()
	stored, _ := json.Marshal([]any{r.store.plans, r.store.records})
	plans := string(r.store.plans[out.Plan.ID])
	r.store.mu.Unlock()
	if strings.Contains(plans, "hunter2") || strings.Contains(string(stored), "hunter2") || strings.Contains(out.Plan.Steps[0].Request, "hunter2") {
		t.Fatal("the secret is stored or shown in clear")
	}
	if _, err := apply(t, r, out.Plan, nil); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(r.site.bodies[0], "password=hunter2") {
		t.Fatalf("body %v", r.site.bodies)
	}
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	if len(r.store.sealed) != 0 {
		t.Fatal("the sealed secret outlived its plan")
	}
}

func TestStopPausesAndAnotherProcessSettles(t *testing.T) {
	store, s := newMemory(), newSite()
	s.slow = 400 * time.Millisecond
	r := newRig(t, store, s)
	got := make(chan *Outcome, 1)
	go func() {
		out, err := r.do(t, "power", `{"guest":"101","action":"start"}`)
		if err != nil {
			t.Error(err)
		}
		got <- out
	}()
	deadline := time.Now().Add(3 * time.Second)
	for !slices.Contains(store.kinds(), "step_sent:answered") && time.Now().Before(deadline) {
		time.Sleep(2 * time.Millisecond)
	}
	r.stop()
	out := <-got
	if out.Status != StatusRunning || out.Plan.State != PlanPaused {
		t.Fatalf("%+v", out)
	}
	second := newRig(t, store, s)
	end, err := second.g.Wait(context.Background(), agent, out.Plan.ID, 3*time.Second)
	for err == nil && end.State != PlanDone && time.Now().Before(deadline.Add(3*time.Second)) {
		time.Sleep(10 * time.Millisecond)
		end, err = second.g.Wait(context.Background(), agent, out.Plan.ID, time.Second)
	}
	if err != nil || end.State != PlanDone || len(s.sent) != 1 {
		t.Fatalf("%+v %v sent %d", end, err, len(s.sent))
	}
}

func TestChildrenAreOnePlan(t *testing.T) {
	r := newRig(t, newMemory(), newSite())
	out, err := r.do(t, "both", `{"guest":"101","set":{}}`)
	if err != nil || len(out.Plan.Steps) != 2 {
		t.Fatalf("%+v %v", out, err)
	}
	done, err := apply(t, r, out.Plan, nil)
	if err != nil || done.Status != StatusDone || r.site.status != "running" || r.site.config["memory"] != "1024" {
		t.Fatalf("%+v %v", done, err)
	}
}

func TestEqualOpenPlanIsReturned(t *testing.T) {
	r := newRig(t, newMemory(), newSite())
	a, err := r.do(t, "set", `{"guest":"101","set":{"memory":"1024"}}`)
	if err != nil {
		t.Fatal(err)
	}
	b, err := r.do(t, "set", `{"guest":"101","set":{"memory":"1024"}}`)
	if err != nil || a.Plan.ID != b.Plan.ID || a.Plan.Token == b.Plan.Token {
		t.Fatalf("%+v %+v %v", a.Plan, b.Plan, err)
	}
	_, err = apply(t, r, a.Plan, nil) // the older token is void
	wantKind(t, err, ErrNeedsApproval)
	if _, err := apply(t, r, b.Plan, nil); err != nil {
		t.Fatal(err)
	}
}

func TestKillSwitch(t *testing.T) {
	r := newRig(t, newMemory(), newSite())
	r.store.values["kill"] = "by ann"
	_, err := r.do(t, "power", `{"guest":"101","action":"start"}`)
	wantKind(t, err, ErrDenied)
}
