package gate

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// An agent that adds a phrase which nobody asked for gets no higher approval by it.
func TestUncheckedPhraseRaisesNothing(t *testing.T) {
	for _, only := range []bool{true, false} {
		r := newRig(t, newMemory(), newSite())
		args, op := `{"guest":"101","set":{"memory":"1024"}}`, "set"
		if only {
			args, op = `{"guest":"101","action":"start"}`, "power"
		}
		out, err := r.g.Do(context.Background(), Call{Operation: op, Args: json.RawMessage(args), Principal: agent, PlanOnly: true}, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.policy.mu.Lock()
		r.policy.least = RungPhrase // a person tightens policy while the plan waits
		r.policy.mu.Unlock()
		done, err := apply(t, r, out.Plan, func(m map[string]string) { m["phrase"] = "whatever" })
		if err == nil && done.Status == StatusDone || len(r.site.sent) != 0 {
			t.Errorf("%s: a phrase that was never checked stands for one: %+v", op, done)
		}
	}
}

// What a guest is at the time of the step decides, not what it was when the plan was made.
func TestGuestThatLeftTheScopeIsNotTouched(t *testing.T) {
	r := newRig(t, newMemory(), newSite())
	r.policy.scope, r.estate.pools = "mine", []string{"mine"}
	out, err := r.do(t, "set", `{"guest":"101","set":{"memory":"1024"}}`)
	if err != nil || out.Status != StatusWaiting {
		t.Fatalf("%+v %v", out, err)
	}
	r.estate.set([]string{"theirs"}, nil)
	done, err := apply(t, r, out.Plan, nil)
	if err != nil || done.Status != StatusFailed || len(r.site.sent) != 0 {
		t.Fatalf("%+v %v, sent %d", done, err, len(r.site.sent))
	}
}

// A plan without approval that was made before outsiders' text was read is not applied after it.
func TestTaintBetweenPlanAndApply(t *testing.T) {
	r := newRig(t, newMemory(), newSite())
	out, err := r.g.Do(context.Background(), Call{Operation: "power", Args: json.RawMessage(`{"guest":"101","action":"start"}`), Principal: agent, PlanOnly: true}, nil)
	if err != nil || out.Status != StatusPlanned {
		t.Fatalf("%+v %v", out, err)
	}
	r.g.taint(context.Background(), agent)
	_, err = r.do(t, "apply", `{"plan":"`+out.Plan.ID+`"}`)
	wantKind(t, err, ErrStale)
	if len(r.site.sent) != 0 {
		t.Fatal("it was sent")
	}
	again, err := r.do(t, "power", `{"guest":"101","action":"start"}`)
	if err != nil || again.Plan == nil || again.Plan.Rung != RungRestated {
		t.Fatalf("%+v %v", again, err)
	}
	if done, err := apply(t, r, again.Plan, nil); err != nil || done.Status != StatusDone {
		t.Fatalf("%+v %v", done, err)
	}
}

// Secrets of calls that come to nothing are in no record, in whatever form they were given.
func TestRefusedCallsKeepNoSecret(t *testing.T) {
	const secret = "Sup3r-s3cret!"
	for _, args := range []string{
		`{"guest":"101","set":{"password":"` + secret + `","memory":"bad"}}`,
		`{"guest":"101","sett":{"password":"` + secret + `"}}`,
		`{"guest":"101","set":"{\"password\":\"` + secret + `\"}","x":1}`,
		`{"guest":"101","set":{"note":"a?pass%77ord=Sup3r-s3cret%21&x=1"},"x":1}`,
		`{"guest":"101","set":{"note":"[{\"args\":{\"password\":\"` + secret + `\"}}]","memory":"bad"}}`,
		`{"guest":"` + secret + `","set":{"password":"` + secret + `"},"x":1}`,
		`{"guest":"101","set":{"password":["` + secret + `"],"memory":"bad"}}`,
		`{"guest":"101","set":{"password":"` + secret + `"}} trailing`,
	} {
		r := newRig(t, newMemory(), newSite())
		r.policy.deny[KindConfig] = true
		if _, err := r.do(t, "set", args); err == nil {
			t.Errorf("%s is taken", args)
		}
		b, err := json.Marshal([]any{r.store.records, r.store.reads, r.store.plans})
		if err != nil {
			t.Fatal(err)
		}
		if text := string(b); len(r.store.records) == 0 || strings.Contains(text, secret) || strings.Contains(text, "s3cret%21") {
			t.Errorf("%s: in the records: %s", args, text)
		}
	}
}

// The worst step of a long plan is in its sentence, wherever it stands.
func TestNoStepHidesInALongSentence(t *testing.T) {
	for _, n := range []int{5, 40, 200} {
		p := &Plan{}
		for i := range n {
			s := Step{Number: i + 1, Sentence: fmt.Sprintf("Start VM %d on node n1", 100+i), API: &Request{Operation: "POST start"},
				Judgement: Judgement{Effect: EffectChange, Kinds: []Kind{KindStart}}}
			if i == n/2 {
				s.Sentence, s.API = "Destroy VM 999 on node n1 and its disks", &Request{Operation: "DELETE vm"}
				s.Judgement = Judgement{Effect: EffectDestroy, Kinds: []Kind{KindData}}
			}
			p.Steps = append(p.Steps, s)
		}
		first := sentence(p)
		if !strings.Contains(first, "Destroy VM 999") || len(first) > longestSentence+200 {
			t.Errorf("%d steps: %s", n, first)
		}
		p.Steps[n-1].Sentence = "Start VM 777 on node n1"
		if sentence(p) == first {
			t.Errorf("%d steps: two plans have one sentence", n)
		}
	}
}

func TestPoolsBelowAGrantingPoolGovern(t *testing.T) {
	r := newRig(t, newMemory(), newSite())
	r.policy.pools = []string{"prod"}
	guest := Object{Kind: ObjectGuest, ID: "101"}
	for name, c := range map[string]struct {
		refs  []Reference
		facts []ObjectFacts
		want  bool
	}{
		"itself":   {[]Reference{{Object: Object{Kind: ObjectPool, ID: "prod"}, Use: UseActs}}, nil, true},
		"below":    {[]Reference{{Object: Object{Kind: ObjectPool, ID: "prod/web"}, Use: UseActs}}, nil, true},
		"alike":    {[]Reference{{Object: Object{Kind: ObjectPool, ID: "production"}, Use: UseActs}}, nil, false},
		"moved on": {[]Reference{{Object: Object{Kind: ObjectPool, ID: "test"}, Use: UseActs}, {Object: guest, Use: UseActs}}, []ObjectFacts{{Object: guest, Pools: []string{"prod"}}}, true},
		"another":  {[]Reference{{Object: Object{Kind: ObjectPool, ID: "test"}, Use: UseActs}, {Object: guest, Use: UseActs}}, []ObjectFacts{{Object: guest, Pools: []string{"x"}}}, false},
	} {
		p := &Plan{Facts: Facts{Objects: c.facts}, Steps: []Step{{Number: 1, Target: "pve", API: &Request{Operation: "PUT /pools"},
			Judgement: Judgement{Effect: EffectChange, References: c.refs}}}}
		if got := r.g.governs(t.Context(), p); len(got) > 0 != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestExpiredPlanKeepsNoSecret(t *testing.T) {
	store := newMemory()
	r := newRig(t, store, newSite())
	out, err := r.do(t, "set", `{"guest":"101","set":{"password":"hunter22"}}`)
	if err != nil || len(store.sealed) != 1 {
		t.Fatalf("%+v %v", out, err)
	}
	r.stop()
	r.g.c.Clock = func() time.Time { return time.Now().Add(time.Hour) }
	if err := r.g.sweepExpired(context.Background()); err != nil {
		t.Fatal(err)
	}
	rec, err := r.g.load(context.Background(), agent, out.Plan.ID)
	if err != nil || rec.State != PlanExpired || len(store.sealed) != 0 {
		t.Fatalf("%+v %v, %d secrets", rec, err, len(store.sealed))
	}
}

func TestPlansOfOneCallerAreBounded(t *testing.T) {
	r := newRig(t, newMemory(), newSite())
	var err error
	for i := range maxWaiting + 1 {
		if _, err = r.do(t, "set", fmt.Sprintf(`{"guest":"101","set":{"memory":"%d"}}`, 1000+i)); err != nil {
			break
		}
	}
	wantKind(t, err, ErrUnavailable)
}

// A plan whose stored steps were changed is not approved, and not carried out when it was approved before.
func TestStoredPlanIsHeldToItsDigests(t *testing.T) {
	for _, approved := range []bool{false, true} {
		store := newMemory()
		r := newRig(t, store, newSite())
		out, err := r.do(t, "set", `{"guest":"101","set":{"memory":"1024"}}`)
		if err != nil {
			t.Fatal(err)
		}
		store.mu.Lock()
		rec, err := (*memoryTx)(store).Plan(out.Plan.ID)
		if err != nil {
			t.Fatal(err)
		}
		for i, p := range rec.Plan.Steps[0].API.Params {
			if p.Name == "memory" {
				rec.Plan.Steps[0].API.Params[i].Values[0].Text = "8192"
			}
		}
		if approved {
			rec.State, rec.Approvals = PlanApproved, []Approval{{Plan: out.Plan.ID, Digest: rec.Plan.Digest, Rung: RungDialog, By: agent, At: time.Now(), Until: time.Now().Add(time.Hour)}}
		}
		if err := (*memoryTx)(store).UpdatePlan(rec); err != nil {
			t.Fatal(err)
		}
		store.mu.Unlock()
		if done, err := apply(t, r, out.Plan, nil); err == nil && done.Status == StatusDone || len(r.site.sent) != 0 {
			t.Errorf("approved %v: a changed plan was carried out: %+v", approved, done)
		}
	}
}
