package gate

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
)

type exactIn struct {
	Guest string `json:"guest"`
	Newer bool   `json:"newer,omitempty"`
}

// newerRig has a plan that installs a package, and waits at this rung.
func newerRig(t *testing.T, least Rung) (*rig, *hands, *memory) {
	t.Helper()
	h, st := newHands(), newMemory()
	r := newRigWith(t, st, newSite(), func(c *Config) {
		c.Witness, c.Runner, c.Lanes = newPeople(), h, &doors{}
		c.Operations = append(c.Operations, Change(Declaration{Name: "install", Summary: "install", Effect: EffectChange}, func(_ context.Context, _ View, in exactIn) (*Draft, error) {
			args := map[string]any{"vmid": in.Guest, "package": []string{"upgrade x:all 1 2 a:b"}, "protect": "none"}
			if in.Newer {
				args["newer"] = true
			}
			req, err := NewRequest("pve", "RUN /guest/{vmid}/upgrade", args)
			return &Draft{Steps: []Step{{API: &req, Undo: Undo{None: "a test"}}}}, err
		}))
	})
	r.policy.highest, r.policy.least = RungTwoPasskeys, least
	return r, h, st
}

func installs(t *testing.T, r *rig, guest string) *PlanView {
	t.Helper()
	out, err := r.do(t, "install", `{"guest":"`+guest+`"}`)
	if err != nil || out.Status != StatusWaiting {
		t.Fatalf("%+v %v", out, err)
	}
	return out.Plan
}

// sentNewer says whether the last run was told that it may take newer versions.
func (h *hands) sentNewer(t *testing.T) bool {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.sent) == 0 {
		t.Fatal("nothing was sent")
	}
	return h.sent[len(h.sent)-1].Text(newerParam) != ""
}

func (r *rig) signAs(t *testing.T, person, plan, verdict string) Evidence {
	t.Helper()
	c, err := r.g.Challenge(context.Background(), "s-"+person, plan, verdict)
	if err != nil {
		t.Fatal(err)
	}
	return Evidence{Kind: "passkey", Session: "s-" + person, Ticket: c.Ticket, Response: answer(person, c), AllowNewer: verdict == SaysApproveNewer}
}

// TestNewerIsTheApproversWord: what is sent to the guest follows the person's tick alone, which stands in ledger and receipt.
func TestNewerIsTheApproversWord(t *testing.T) {
	ctx := context.Background()
	for name, c := range map[string]struct {
		rung  Rung
		give  func(r *rig, p string) []Evidence
		newer bool
	}{
		"a session": {RungPerson, func(*rig, string) []Evidence { return []Evidence{{Kind: "session", Session: "s-bob"}} }, false},
		"a session with the tick": {RungPerson, func(*rig, string) []Evidence {
			return []Evidence{{Kind: "session", Session: "s-bob", AllowNewer: true}}
		}, true},
		"a passkey":               {RungPasskey, func(r *rig, p string) []Evidence { return []Evidence{r.signAs(t, "ann", p, SaysApprove)} }, false},
		"a passkey with the tick": {RungPasskey, func(r *rig, p string) []Evidence { return []Evidence{r.signAs(t, "ann", p, SaysApproveNewer)} }, true},
		"one tick of two": {RungTwoPasskeys, func(r *rig, p string) []Evidence {
			return []Evidence{r.signAs(t, "ann", p, SaysApproveNewer), r.signAs(t, "bob", p, SaysApprove)}
		}, false},
		"two ticks": {RungTwoPasskeys, func(r *rig, p string) []Evidence {
			return []Evidence{r.signAs(t, "ann", p, SaysApproveNewer), r.signAs(t, "bob", p, SaysApproveNewer)}
		}, true},
		"no person": {RungRestated, nil, false},
	} {
		r, h, st := newerRig(t, c.rung)
		p := installs(t, r, "101")
		if !strings.Contains(p.Newer, "may allow newer ones") {
			t.Errorf("%s: the plan says %q", name, p.Newer)
		}
		if c.give != nil {
			for _, e := range c.give(r, p.ID) {
				if _, err := r.g.Approve(ctx, p.ID, e); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
			}
		}
		if out, err := apply(t, r, p, nil); err != nil || out.Status != StatusDone {
			t.Fatalf("%s: %+v %v", name, out, err)
		}
		if got := h.sentNewer(t); got != c.newer {
			t.Errorf("%s: sent newer %v, want %v", name, got, c.newer)
		}
		rec, err := r.g.Receipt(ctx, agent, p.ID)
		if err != nil {
			t.Fatal(err)
		}
		ticked, marked := 0, 0
		for _, m := range st.records {
			if m.Kind == "approval" && m.Marks["allow_newer"] == "1" {
				marked++
			}
		}
		for _, a := range rec.Approvals {
			e := a.Evidence
			if e.Passkey != nil && e.Passkey.Verdict != e.Says() {
				t.Errorf("%s: signed %q, recorded %v", name, e.Passkey.Verdict, e.AllowNewer)
			}
			if e.AllowNewer {
				ticked++
			}
		}
		if marked != ticked || ticked == 0 && c.newer {
			t.Errorf("%s: the ledger has %d ticks, the approvals %d", name, marked, ticked)
		}
	}
}

// TestNobodyElseAllowsNewer: not the requester by what it asks for, not an answer that was given to the other question, not a row
// that somebody wrote.
func TestNobodyElseAllowsNewer(t *testing.T) {
	ctx := context.Background()
	t.Run("in the request", func(t *testing.T) {
		r, h, _ := newerRig(t, RungNone)
		if _, err := r.do(t, "install", `{"guest":"101","newer":true}`); err == nil || !strings.Contains(AsError(err).Message, "only an approver allows") {
			t.Errorf("%v", err)
		}
		if len(h.sent) != 0 {
			t.Error("it was sent")
		}
	})
	t.Run("with the call that confirms", func(t *testing.T) {
		r, h, _ := newerRig(t, RungRestated)
		p := installs(t, r, "101")
		args, _ := json.Marshal(map[string]any{"plan": p.ID, "sentence": p.Sentence, "token": p.Token, "allow_newer": true})
		if _, err := r.do(t, "apply", string(args)); err == nil {
			t.Error("an argument that is not there is taken")
		}
		if err := r.g.approve(ctx, p.ID, agent, RungRestated, Evidence{Kind: "restated", Sentence: p.Sentence, AllowNewer: true}, &p.Token); err != nil {
			t.Fatal(err)
		}
		if out, err := r.g.Apply(ctx, agent, p.ID, nil); err != nil || out.Status != StatusDone || h.sentNewer(t) {
			t.Errorf("%+v %v", out, err)
		}
	})
	t.Run("a dialog", func(t *testing.T) {
		r, h, _ := newerRig(t, RungDialog)
		p := installs(t, r, "101")
		if out, err := r.g.Confirm(ctx, agent, p.ID, Evidence{Kind: "terminal", AllowNewer: true}, nil); err != nil || out.Status != StatusDone || h.sentNewer(t) {
			t.Errorf("%+v %v", out, err)
		}
	})
	t.Run("an answer to the other question", func(t *testing.T) {
		r, _, _ := newerRig(t, RungPasskey)
		p := installs(t, r, "101")
		for _, verdict := range []string{SaysApprove, SaysApproveNewer} {
			e := r.signAs(t, "ann", p.ID, verdict)
			e.AllowNewer = !e.AllowNewer
			_, err := r.g.Approve(ctx, p.ID, e)
			wantKind(t, err, ErrDenied)
		}
		no := r.signAs(t, "ann", p.ID, SaysDeny)
		no.AllowNewer = true
		_, err := r.g.Approve(ctx, p.ID, no)
		wantKind(t, err, ErrDenied)
	})
	t.Run("said otherwise before", func(t *testing.T) {
		r, _, _ := newerRig(t, RungTwoPasskeys)
		p := installs(t, r, "101")
		if _, err := r.g.Approve(ctx, p.ID, r.signAs(t, "ann", p.ID, SaysApprove)); err != nil {
			t.Fatal(err)
		}
		_, err := r.g.Approve(ctx, p.ID, r.signAs(t, "ann", p.ID, SaysApproveNewer))
		wantKind(t, err, ErrStale)
	})
	t.Run("a plan without packages", func(t *testing.T) {
		r, _, p := peopleRig(t, RungPasskey)
		_, err := r.g.Challenge(ctx, "s-ann", p.ID, SaysApproveNewer)
		wantKind(t, err, ErrInvalid)
		_, err = r.g.Approve(ctx, p.ID, Evidence{Kind: "session", Session: "s-ann", AllowNewer: true})
		wantKind(t, err, ErrInvalid)
	})
	t.Run("a row", func(t *testing.T) {
		r, _, _ := newerRig(t, RungTwoPasskeys)
		p := installs(t, r, "101")
		if _, err := r.g.Approve(ctx, p.ID, r.signAs(t, "ann", p.ID, SaysApprove)); err != nil {
			t.Fatal(err)
		}
		rec, err := r.g.load(ctx, agent, p.ID)
		if err != nil {
			t.Fatal(err)
		}
		forged := *rec
		forged.Approvals = slices.Clone(rec.Approvals)
		forged.Approvals[0].Evidence.AllowNewer = true
		if r.g.allowsNewer(&forged) || r.g.genuine(forged.Approvals[0]) {
			t.Error("an approval that was changed counts")
		}
	})
}

// TestNewerByMandate: off, unless the mandate's giver ticked it, which is part of what they sign.
func TestNewerByMandate(t *testing.T) {
	ctx := context.Background()
	for _, ticked := range []bool{false, true} {
		r, h, _ := newerRig(t, RungPerson)
		m := Mandate{For: agent.Key(), Operations: []string{"install"}, Targets: []string{"pve"}, Objects: []string{"guest/101"}, Count: 1, From: time.Now().Add(-time.Minute), Until: time.Now().Add(time.Hour), AllowNewer: ticked}
		other := m
		other.AllowNewer = !ticked
		c, err := r.g.ChallengeMandate(ctx, "s-ann", other)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.g.Grant(ctx, m, Evidence{Kind: "passkey", Session: "s-ann", Ticket: c.Ticket, Response: answer("ann", c)}); err == nil {
			t.Error("the signature of another mandate is taken")
		}
		if _, err := r.g.Grant(ctx, m, Evidence{Kind: "session", Session: "s-ann"}); err != nil {
			t.Fatal(err)
		}
		if out, err := r.do(t, "install", `{"guest":"101"}`); err != nil || out.Status != StatusDone || h.sentNewer(t) != ticked {
			t.Errorf("ticked %v: %+v %v", ticked, out, err)
		}
	}
}
