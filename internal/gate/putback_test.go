package gate

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"
)

// row is what somebody with the database can copy and put back: a plan's row with its version, whole and genuine.
type row struct {
	body    []byte
	version int64
}

func (m *memory) take(id string) row {
	m.mu.Lock()
	defer m.mu.Unlock()
	return row{slices.Clone(m.plans[id]), m.version[id]}
}

func (m *memory) putBack(id string, r row) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.plans[id], m.version[id] = slices.Clone(r.body), r.version
}

// TestAPlanPutBackRunsNoSecondTime: the row of a plan as it was when it was approved is genuine; what happened since stands in
// the ledger.
func TestAPlanPutBackRunsNoSecondTime(t *testing.T) {
	ctx := context.Background()
	bare := func(m map[string]string) { delete(m, "sentence"); delete(m, "token") }
	for name, end := range map[string]func(t *testing.T, r *rig, p *PlanView){
		"carried out": func(t *testing.T, r *rig, p *PlanView) {
			if out, err := apply(t, r, p, bare); err != nil || out.Status != StatusDone {
				t.Fatalf("%+v %v", out, err)
			}
		},
		"denied": func(t *testing.T, r *rig, p *PlanView) {
			if err := r.g.Refuse(ctx, p.ID, "no", Evidence{Kind: "session", Session: "s-bob"}); err != nil {
				t.Fatal(err)
			}
		},
		"withdrawn": func(t *testing.T, r *rig, p *PlanView) {
			if err := r.g.Decline(ctx, agent, p.ID, "no"); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, _, p := peopleRig(t, RungPerson)
			if _, err := r.g.Approve(ctx, p.ID, Evidence{Kind: "session", Session: "s-ann"}); err != nil {
				t.Fatal(err)
			}
			was := r.store.take(p.ID)
			end(t, r, p)
			before := len(r.site.sent)
			r.site.status = "running"
			r.store.putBack(p.ID, was)
			_, err := apply(t, r, p, bare)
			wantKind(t, err, ErrStale)
			if len(r.site.sent) != before {
				t.Errorf("%d requests were sent by a plan that was %s", len(r.site.sent)-before, name)
			}
		})
	}
}

// TestAStepIsSentOnce: a row that was put back while its plan is at work does not let the step go out again.
func TestAStepIsSentOnce(t *testing.T) {
	ctx := context.Background()
	r, _, p := peopleRig(t, RungPerson)
	if _, err := r.g.Approve(ctx, p.ID, Evidence{Kind: "session", Session: "s-ann"}); err != nil {
		t.Fatal(err)
	}
	// As if the process had ended after the request: the ledger has the step as started, the row does not.
	err := r.store.Update(ctx, func(tx Tx) error {
		_, err := tx.Append(Record{Kind: "step", Status: "started", Plan: p.ID, Step: 1})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	out, err := apply(t, r, p, func(m map[string]string) { delete(m, "sentence"); delete(m, "token") })
	if err != nil || out.Status != StatusUnknown || len(r.site.sent) != 0 {
		t.Errorf("%+v %v, sent %d", out, err, len(r.site.sent))
	}
}

// TestAPlanWrittenByHand: digests can be computed by anybody, so they are not what keeps a row from being believed.
func TestAPlanWrittenByHand(t *testing.T) {
	ctx := context.Background()
	bare := func(m map[string]string) { delete(m, "sentence"); delete(m, "token") }
	for name, change := range map[string]func(p *PlanRecord){
		"as one that needs nothing": func(r *PlanRecord) {
			r.Plan.Decision.Rung, r.Plan.Decision.Verdict = RungNone, VerdictAllow
			r.Plan.Facts.Kinds = []Kind{KindStart}
			r.Plan.Steps[0].Judgement.Kinds = []Kind{KindStart}
		},
		"with facts of another": func(r *PlanRecord) { r.Plan.Facts.Objects = nil },
		"as somebody else's":    func(r *PlanRecord) { r.Plan.Requester = Principal{Person: "ann", Strength: StrengthAccount} },
		"as approved": func(r *PlanRecord) {
			r.State = PlanApproved
			r.Approvals = []Approval{{Plan: r.Plan.ID, Digest: r.Plan.Digest, Rung: RungPerson, By: Principal{Person: "ann"}, At: time.Now(), Until: time.Now().Add(time.Hour)}}
		},
		"with another sentence": func(r *PlanRecord) { r.Plan.Sentence = "Start guest 101." },
	} {
		t.Run(name, func(t *testing.T) {
			r, _, p := peopleRig(t, RungPerson)
			var rec PlanRecord
			was := r.store.take(p.ID)
			if err := json.Unmarshal(was.body, &rec); err != nil {
				t.Fatal(err)
			}
			change(&rec)
			var err error
			if rec.Plan.EffectDigest, err = effectDigest(&rec.Plan); err != nil {
				t.Fatal(err)
			}
			if rec.Plan.Digest, err = planDigest(&rec.Plan); err != nil {
				t.Fatal(err)
			}
			if was.body, err = json.Marshal(rec); err != nil {
				t.Fatal(err)
			}
			r.store.putBack(p.ID, was)
			if _, err := apply(t, r, p, bare); err == nil {
				t.Error("it was applied")
			}
			if _, err := r.g.Approve(ctx, p.ID, Evidence{Kind: "session", Session: "s-ann"}); err == nil {
				t.Error("it was approved")
			}
			if w, err := r.g.Waiting(ctx); err != nil || len(w) != 0 {
				t.Errorf("it waits for an approver: %v %v", w, err)
			}
			if all, _, err := r.g.Plans(ctx, Principal{Person: "root", Strength: StrengthAccount}, PlanFilter{}); err != nil || len(all) != 1 || all[0].State != PlanUnknown {
				t.Errorf("it is not shown as changed: %+v %v", all, err)
			}
			if len(r.site.sent) != 0 {
				t.Error("something was sent")
			}
		})
	}
}

// TestSwitchesWithoutTheirRows: what the ledger has of a switch counts, whatever became of its row.
func TestSwitchesWithoutTheirRows(t *testing.T) {
	ctx := context.Background()
	r := newRig(t, newMemory(), newSite())
	root := Principal{Person: "root", Strength: StrengthAccount}
	start := func() error { _, err := r.do(t, "power", `{"guest":"101","action":"start"}`); return err }
	set := func(key, value string) {
		r.store.mu.Lock()
		defer r.store.mu.Unlock()
		r.store.values[key] = value
	}
	if err := r.g.Kill(ctx, root, true); err != nil {
		t.Fatal(err)
	}
	wantKind(t, start(), ErrDenied)
	set(killKey, "")
	wantKind(t, start(), ErrDenied)
	if s, err := r.g.Switches(ctx); err != nil || s.Killed == "" {
		t.Errorf("%+v %v", s, err)
	}
	if err := r.g.Kill(ctx, root, false); err != nil {
		t.Fatal(err)
	}
	r.policy.arming = true
	set(armedKey, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	wantKind(t, start(), ErrDenied)
	if err := r.g.Arm(ctx, root, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if err := r.g.Arm(ctx, root, time.Time{}); err != nil {
		t.Fatal(err)
	}
	set(armedKey, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	wantKind(t, start(), ErrDenied)
	if err := r.g.Arm(ctx, root, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if err := start(); err != nil {
		t.Error(err)
	}
}

// TestAMandatePutBack: its row as it was before it was used, or revoked, gives nothing again.
func TestAMandatePutBack(t *testing.T) {
	ctx := context.Background()
	r, _, _ := peopleRig(t, RungPerson)
	given, err := r.g.Grant(ctx, Mandate{For: agent.Key(), Operations: []string{"power"}, Targets: []string{r.site.Targets()[0].Name}, Objects: []string{"guest/101"},
		Args: map[string][]string{"action": {"stop"}}, Count: 1, Until: time.Now().Add(time.Hour)}, Evidence{Kind: "session", Session: "s-ann"})
	if err != nil {
		t.Fatal(err)
	}
	key := mandateKind + "/" + given.ID
	doc := func() Doc { r.store.mu.Lock(); defer r.store.mu.Unlock(); return r.store.docs[key] }
	put := func(d Doc) { r.store.mu.Lock(); defer r.store.mu.Unlock(); r.store.docs[key] = d }
	stop := func(want Status) {
		t.Helper()
		r.site.mu.Lock()
		r.site.status = "running"
		r.site.mu.Unlock()
		if out, err := r.do(t, "power", `{"guest":"101","action":"stop"}`); err != nil || out.Status != want {
			t.Fatalf("%+v %v, want %s", out, err, want)
		}
	}
	fresh := doc()
	stop(StatusDone)
	stop(StatusWaiting)
	put(fresh)
	stop(StatusWaiting)
	other, err := r.g.Grant(ctx, Mandate{For: agent.Key(), Operations: []string{"power"}, Targets: []string{r.site.Targets()[0].Name}, Objects: []string{"guest/101"},
		Args: map[string][]string{"action": {"stop"}}, Count: 9, Until: time.Now().Add(time.Hour)}, Evidence{Kind: "session", Session: "s-ann"})
	if err != nil {
		t.Fatal(err)
	}
	key = mandateKind + "/" + other.ID
	fresh = doc()
	if err := r.g.Revoke(ctx, "s-ann", other.ID); err != nil {
		t.Fatal(err)
	}
	put(fresh)
	stop(StatusWaiting)
}

// TestAnApproverWhoHasGone: an approval holds no longer than the access of whoever gave it.
func TestAnApproverWhoHasGone(t *testing.T) {
	ctx := context.Background()
	r, who, p := peopleRig(t, RungPerson)
	if _, err := r.g.Approve(ctx, p.ID, Evidence{Kind: "session", Session: "s-bob"}); err != nil {
		t.Fatal(err)
	}
	who.mu.Lock()
	who.gone["|bob"] = true
	who.mu.Unlock()
	out, err := apply(t, r, p, func(m map[string]string) { delete(m, "sentence"); delete(m, "token") })
	if err != nil || out.Status != StatusFailed || len(r.site.sent) != 0 {
		t.Errorf("%+v %v, sent %d", out, err, len(r.site.sent))
	}
}
