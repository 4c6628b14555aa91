package gate

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// hands is a runner whose runs are kept by id; it never starts one twice.
type hands struct {
	mu      sync.Mutex
	runs    map[string]*RunResult // nil while it goes on
	sent    []Request
	looks   int
	result  RunResult
	fail    func(id string) error // instead of an answer, after the start
	refuse  error                 // before the start
	slow    chan struct{}         // a run ends when it is closed
	spent   error                 // of a second Take
	forgets bool
}

func newHands() *hands {
	zero := 0
	return &hands{runs: map[string]*RunResult{}, result: RunResult{ExitCode: &zero, OK: true, Gone: true, Stdout: "fine\n", Way: "bridge"}}
}

func (h *hands) Run(ctx context.Context, p *Permit, id string, on RunHooks) (RunResult, error) {
	w, err := p.Take()
	if err != nil {
		return RunResult{}, err
	}
	h.mu.Lock()
	_, h.spent = p.Take()
	if h.refuse != nil {
		h.mu.Unlock()
		return RunResult{}, h.refuse
	}
	if _, twice := h.runs[id]; twice {
		h.mu.Unlock()
		panic("run " + id + " is started twice")
	}
	h.runs[id] = nil
	h.sent = append(h.sent, w.Request)
	slow, fail, res := h.slow, h.fail, h.result
	h.mu.Unlock()
	if on.Handle != nil {
		on.Handle("pid 7")
	}
	if on.Live != nil {
		on.Live([]byte("working \x1b[31mhard\n"))
	}
	end := func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.runs[id] = &res
	}
	if slow != nil {
		select {
		case <-slow:
		case <-ctx.Done():
			go func() { <-slow; end() }() // it goes on over there
			return RunResult{}, ctx.Err()
		}
	}
	end()
	if fail != nil {
		if err := fail(id); err != nil {
			return RunResult{}, err
		}
	}
	return res, nil
}

func (h *hands) Look(_ context.Context, _ string, _ Request, id, _ string) (RunResult, bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.looks++
	res, known := h.runs[id]
	switch {
	case !known || h.forgets:
		return RunResult{}, false, errors.New("no such run")
	case res == nil:
		return RunResult{}, true, nil
	}
	return *res, false, nil
}

// doors are lanes that say what they are told to.
type doors struct {
	mu    sync.Mutex
	said  LaneVerdict
	asked []Request
}

func (d *doors) say(v LaneVerdict) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.said = v
}

func (d *doors) Judge(_ context.Context, _ View, _ string, r Request, objects []ObjectFacts) LaneVerdict {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = append(d.asked, r)
	if len(objects) == 0 {
		return LaneVerdict{Refused: "nobody knows where it runs"}
	}
	return d.said
}

type runIn struct {
	Guest   string   `json:"guest"`
	Command []string `json:"command"`
}

func runOperations() []*Operation {
	command := Change(Declaration{Name: "run", Summary: "run", Effect: EffectExecute, Kinds: []Kind{KindCommand}, Guest: "guest"},
		func(_ context.Context, _ View, in runIn) (*Draft, error) {
			r, err := NewRequest("pve", "RUN /guest/{vmid}/command", map[string]any{"vmid": in.Guest, "command": in.Command})
			return &Draft{Steps: []Step{{API: &r, Undo: Undo{None: "what it did is not known"}}}}, err
		})
	probe := Query(Declaration{Name: "probe", Summary: "probe", Effect: EffectRead, Kinds: []Kind{KindProbe}, Guest: "guest"},
		func(ctx context.Context, v View, in runIn) (RunResult, error) {
			return v.Run(ctx, "", "RUN /guest/{vmid}/"+in.Command[0], map[string]any{"vmid": in.Guest})
		})
	sly := Query(Declaration{Name: "sly", Summary: "a read that is a run", Effect: EffectRead}, func(ctx context.Context, v View, in runIn) (json.RawMessage, error) {
		a, err := v.Read(ctx, "", Read{Operation: "RUN /guest/{vmid}/probe", Params: map[string]string{"vmid": in.Guest}})
		return a.Data, err
	})
	return append(testOperations(), command, probe, sly)
}

func runRig(t *testing.T, store *memory, h *hands, d *doors) *rig {
	t.Helper()
	return newRigWith(t, store, newSite(), func(c *Config) {
		c.Operations = runOperations()
		if h != nil {
			c.Runner = h
		}
		if d != nil {
			c.Lanes = d
		}
	})
}

const runArgs = `{"guest":"101","command":["systemctl","restart","nginx"]}`

// approved plans the command and carries it out.
func (r *rig) approved(t *testing.T) (*Outcome, error) {
	t.Helper()
	out, err := r.do(t, "run", runArgs)
	if err != nil {
		return nil, err
	}
	if out.Plan == nil {
		return out, nil
	}
	return apply(t, r, out.Plan, nil)
}

func TestARunIsAStepLikeAnyOther(t *testing.T) {
	h := newHands()
	r := runRig(t, newMemory(), h, &doors{})
	out, err := r.do(t, "run", runArgs)
	if err != nil || out.Status != StatusWaiting || len(h.sent) != 0 || !strings.Contains(out.Plan.Steps[0].Request, "nginx") {
		t.Fatalf("%+v %v, %d sent", out, err, len(h.sent))
	}
	out, err = apply(t, r, out.Plan, nil)
	if err != nil || out.Status != StatusDone || len(h.sent) != 1 {
		t.Fatalf("%+v %v", out, err)
	}
	if len(out.Output) != 1 || out.Output[0].Stdout != "fine\n" || !out.Untrusted || !slices.Contains(out.Outside, "programs in guest 101") {
		t.Fatalf("output %+v, outside %v", out.Output, out.Outside)
	}
	if !errors.Is(h.spent, ErrPermitSpent) {
		t.Fatalf("the permit of a run can be used twice: %v", h.spent)
	}
	want := []string{"intent:waiting", "approval:restated", "apply:applying", "step:started", "step_sent:running", "step_sent:answered", "step_end:done", "plan_end:done"}
	if got := r.store.kinds(); !slices.Equal(got, want) {
		t.Fatalf("records %v, want %v", got, want)
	}
	if !r.g.isTainted(context.Background(), agent) {
		t.Error("what a program printed taints nobody")
	}
}

func TestWithoutLanesNothingRuns(t *testing.T) {
	for name, rig := range map[string]*rig{"no lanes": runRig(t, newMemory(), newHands(), nil), "no runner": runRig(t, newMemory(), nil, nil)} {
		_, err := rig.do(t, "run", runArgs)
		if err == nil || AsError(err).Kind != ErrDenied || AsError(err).Hint == "" {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := rig.do(t, "probe", `{"guest":"101","command":["probe"]}`); err == nil || AsError(err).Kind != ErrDenied {
			t.Errorf("%s: probe: %v", name, err)
		}
	}
}

func TestLanesRefuseAtPlanAndAtApply(t *testing.T) {
	h, d := newHands(), &doors{}
	r := runRig(t, newMemory(), h, d)
	d.say(LaneVerdict{Refused: "systemctl is not on the list", Hint: "A person changes [lanes]."})
	_, err := r.do(t, "run", runArgs)
	wantKind(t, err, ErrDenied)
	d.say(LaneVerdict{})
	out, err := r.do(t, "run", runArgs)
	if err != nil {
		t.Fatal(err)
	}
	d.say(LaneVerdict{Refused: "systemctl is not on the list any more"})
	out, err = apply(t, r, out.Plan, nil)
	if err != nil || out.Status != StatusFailed || len(h.sent) != 0 || !strings.Contains(out.Receipt.Steps[0].Result, "not sent") {
		t.Fatalf("%+v %v, %d sent", out, err, len(h.sent))
	}
}

func TestLanesMakeItGraver(t *testing.T) {
	h, d := newHands(), &doors{}
	r := runRig(t, newMemory(), h, d)
	out, err := r.do(t, "run", runArgs)
	if err != nil {
		t.Fatal(err)
	}
	d.say(LaneVerdict{Kinds: []Kind{KindHostCommand}}) // the container has become a privileged one
	done, err := apply(t, r, out.Plan, nil)
	if err != nil || done.Status != StatusFailed || len(h.sent) != 0 {
		t.Fatalf("%+v %v, %d sent", done, err, len(h.sent))
	}
	out, err = r.do(t, "run", runArgs)
	if err != nil || out.Plan == nil || out.Plan.Asked != RungPerson && out.Plan.Rung != RungPerson {
		t.Fatalf("%+v %v", out.Plan, err)
	}
	r.policy.deny[KindHostCommand] = true
	if _, err = r.do(t, "run", `{"guest":"102","command":["id"]}`); err == nil || AsError(err).Kind != ErrDenied {
		t.Fatalf("its capability is off: %v", err)
	}
}

func TestHowRunsEnd(t *testing.T) {
	three := 3
	for name, c := range map[string]struct {
		res   RunResult
		state StepState
		plan  Status
		says  string
	}{
		"exit code":     {RunResult{ExitCode: &three, Gone: true, Stderr: "no such unit"}, StepFailed, StatusFailed, "exit code 3"},
		"signal":        {RunResult{Signal: "KILL", Gone: true}, StepFailed, StatusFailed, "signal KILL"},
		"timed out":     {RunResult{TimedOut: true, Gone: true}, StepFailed, StatusFailed, "nothing of it is left"},
		"still there":   {RunResult{TimedOut: true}, StepUnknown, StatusUnknown, "could not be seen"},
		"nothing known": {RunResult{}, StepUnknown, StatusUnknown, "not known"},
		"done":          {RunResult{ExitCode: &three, OK: true, Gone: true}, StepDone, StatusDone, "exit code 3"},
	} {
		h := newHands()
		h.result = c.res
		r := runRig(t, newMemory(), h, &doors{})
		out, err := r.approved(t)
		if err != nil || out.Status != c.plan || out.Receipt.Steps[0].State != c.state || !strings.Contains(out.Receipt.Steps[0].Result, c.says) {
			t.Errorf("%s: %+v %v", name, out, err)
			continue
		}
		if len(out.Output) != 1 || out.Output[0].Stderr != c.res.Stderr {
			t.Errorf("%s: what it printed is lost: %+v", name, out.Output)
		}
	}
}

func TestALostRunIsLookedForAndNeverStartedAgain(t *testing.T) {
	lost := func(string) error { return &UpstreamError{Delivery: MaybeDone, Message: "the connection was cut"} }
	t.Run("found", func(t *testing.T) {
		h := newHands()
		h.fail = lost
		r := runRig(t, newMemory(), h, &doors{})
		out, err := r.approved(t)
		if err != nil || out.Status != StatusDone || len(h.sent) != 1 || h.looks == 0 {
			t.Fatalf("%+v %v, %d sent, %d looks", out, err, len(h.sent), h.looks)
		}
	})
	t.Run("not known of", func(t *testing.T) {
		h := newHands()
		h.fail, h.forgets = lost, true
		r := runRig(t, newMemory(), h, &doors{})
		out, err := r.approved(t)
		if err != nil || out.Status != StatusUnknown || len(h.sent) != 1 {
			t.Fatalf("%+v %v, %d sent", out, err, len(h.sent))
		}
	})
	t.Run("not started", func(t *testing.T) {
		h := newHands()
		h.refuse = &UpstreamError{Delivery: NotCarriedOut, Message: "no bridge is there", Hint: "castellan bridge install"}
		r := runRig(t, newMemory(), h, &doors{})
		out, err := r.approved(t)
		if err != nil || out.Status != StatusFailed || h.looks != 0 {
			t.Fatalf("%+v %v, %d looks", out, err, h.looks)
		}
	})
}

func TestAStopLeavesTheRunToAnotherProcess(t *testing.T) {
	store, h := newMemory(), newHands()
	h.slow = make(chan struct{})
	r := runRig(t, store, h, &doors{})
	got := make(chan *Outcome, 1)
	go func() {
		out, err := r.approved(t)
		if err != nil {
			t.Error(err)
		}
		got <- out
	}()
	deadline := time.Now().Add(5 * time.Second)
	for !slices.Contains(store.kinds(), "step_sent:running") && time.Now().Before(deadline) {
		time.Sleep(2 * time.Millisecond)
	}
	r.stop()
	out := <-got
	if out.Status != StatusRunning {
		t.Fatalf("%+v", out)
	}
	close(h.slow)
	second := runRig(t, store, h, &doors{})
	var end *PlanRecord
	for time.Now().Before(deadline) {
		var err error
		if end, err = second.g.Wait(context.Background(), agent, out.Plan.ID, time.Second); err != nil {
			t.Fatal(err)
		}
		if end.State.Ended() {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if end.State != PlanDone || len(h.sent) != 1 {
		t.Fatalf("%s (%s), %d sent", end.State, end.Note, len(h.sent))
	}
}

func TestProbes(t *testing.T) {
	h, d := newHands(), &doors{}
	store := newMemory()
	r := runRig(t, store, h, d)
	probe := `{"guest":"101","command":["probe"]}`
	out, err := r.do(t, "probe", probe)
	if err != nil || out.Status != StatusAnswer || !out.Untrusted || len(h.sent) != 1 || !errors.Is(h.spent, ErrPermitSpent) {
		t.Fatalf("%+v %v", out, err)
	}
	if !slices.ContainsFunc(store.reads, func(rec Record) bool {
		return rec.Operation == "RUN /guest/{vmid}/probe" && slices.Contains(rec.Objects, "guest/101")
	}) {
		t.Errorf("no record of the probe: %+v", store.reads)
	}
	if len(store.kinds()) != 0 {
		t.Errorf("a probe moved the write tree: %v", store.kinds())
	}
	sent := len(h.sent)
	refused := func(name, op, args string) {
		t.Helper()
		if _, err := r.do(t, op, args); err == nil || len(h.sent) != sent {
			t.Errorf("%s: %v, %d sent", name, err, len(h.sent)-sent)
		}
	}
	refused("a command as a probe", "probe", `{"guest":"101","command":["command"]}`)
	refused("a run as a read", "sly", probe)
	d.say(LaneVerdict{Kinds: []Kind{KindCommand}})
	refused("a probe that the lanes take for more", "probe", probe)
	d.say(LaneVerdict{Refused: "probes of guest 101 are off"})
	refused("refused by the lane", "probe", probe)
	d.say(LaneVerdict{})
	r.policy.deny[KindProbe] = true
	refused("its capability is off", "probe", probe)
	r.policy.deny[KindProbe] = false
	r.policy.least = RungPerson
	refused("policy asks for a person", "probe", probe)
	r.policy.least, r.policy.scope = RungNone, "theirs"
	refused("out of scope", "probe", probe)
}

func TestTheLedgerKeepsNoSecretOfAScript(t *testing.T) {
	store := newMemory()
	h := newHands()
	r := newRigWith(t, store, newSite(), func(c *Config) {
		c.Operations, c.Runner, c.Lanes = runOperations(), h, &doors{}
		c.Sealer = &maskingSealer{}
	})
	out, err := r.do(t, "run", `{"guest":"101","command":["echo","hunter2"]}`)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.Plan.Steps[0].Request, "hunter2") {
		t.Error("whoever approves is not shown what runs")
	}
	if out, err = apply(t, r, out.Plan, nil); err != nil || out.Status != StatusDone || h.sent[0].Get("command")[1].Text != "hunter2" {
		t.Fatalf("%+v %v", out, err)
	}
	for _, rec := range store.records {
		for name, text := range rec.Parts {
			if strings.Contains(text, "hunter2") {
				t.Errorf("%s %s holds the secret: %s", rec.Kind, name, text)
			}
		}
		if rec.Withhold {
			t.Errorf("%s is withheld, which nobody asked for", rec.Kind)
		}
	}
	r.policy.withhold = true
	before := len(store.records)
	if _, err := r.do(t, "run", `{"guest":"101","command":["echo","again"]}`); err != nil {
		t.Fatal(err)
	}
	for _, rec := range store.records[before:] {
		if !rec.Withhold {
			t.Errorf("%s is not withheld", rec.Kind)
		}
	}
}

// maskingSealer takes one word for a secret.
type maskingSealer struct{ plainSealer }

func (maskingSealer) Redact(s string) string { return strings.ReplaceAll(s, "hunter2", "(removed)") }
