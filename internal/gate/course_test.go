package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// herd is a runner with many guests at once. It never starts a run twice, and sees to it that each was recorded before.
type herd struct {
	mu      sync.Mutex
	store   *memory
	runs    map[string]*RunResult
	order   []string       // "101.look" in the order of their start
	now     map[string]int // runs under way, by guest
	most    int            // guests with a run under way at the same time
	faults  []string
	fail    map[string]string // guest and word → "failed", "large", "lost", "late", "spent" or "refused"
	takes   time.Duration
	between func(guest, word string)
}

func newHerd(store *memory) *herd {
	return &herd{store: store, runs: map[string]*RunResult{}, now: map[string]int{}, fail: map[string]string{}, takes: 2 * time.Millisecond}
}

func (h *herd) Run(ctx context.Context, p *Permit, id string, on RunHooks) (RunResult, error) {
	w, err := p.Take()
	if err != nil {
		return RunResult{}, err
	}
	guest, word := w.Request.Text("vmid"), w.Request.Text("word")
	h.mu.Lock()
	if _, twice := h.runs[id]; twice {
		h.faults = append(h.faults, id+" was started twice")
	}
	if !h.store.recorded(id) {
		h.faults = append(h.faults, id+" was started without a record")
	}
	zero, one := 0, 1
	res := &RunResult{ExitCode: &zero, OK: true, Gone: true}
	how := h.fail[guest+" "+word]
	switch how {
	case "failed":
		res = &RunResult{ExitCode: &one, Gone: true}
	case "large":
		res = &RunResult{ExitCode: &one, Gone: true, Stdout: strings.Repeat("x", maxAnswer+1)}
	case "late":
		res = &RunResult{ExitCode: &one, Gone: true}
		h.runs[id] = res
		h.mu.Unlock()
		return RunResult{}, errors.New("the connection was cut")
	case "spent":
		h.mu.Unlock()
		return RunResult{}, ErrPermitSpent
	case "refused":
		h.mu.Unlock()
		return RunResult{}, &UpstreamError{Kind: ErrUnavailable, Delivery: NotCarriedOut, Message: "does not answer"}
	}
	h.runs[id] = res
	h.order = append(h.order, guest+"."+word)
	h.now[guest]++
	h.most = max(h.most, len(h.now))
	between := h.between
	h.mu.Unlock()
	if between != nil {
		between(guest, word)
	}
	time.Sleep(h.takes)
	h.mu.Lock()
	if h.now[guest]--; h.now[guest] == 0 {
		delete(h.now, guest)
	}
	h.mu.Unlock()
	if ctx.Err() != nil {
		return RunResult{}, ctx.Err()
	}
	if how == "lost" {
		h.mu.Lock()
		delete(h.runs, id)
		h.mu.Unlock()
		return RunResult{}, errors.New("the connection was cut")
	}
	return *res, nil
}

func (h *herd) Look(_ context.Context, _ string, _ Request, id, _ string) (RunResult, bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if res := h.runs[id]; res != nil {
		return *res, false, nil
	}
	return RunResult{}, false, errors.New("no such run")
}

func (h *herd) begun() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.order)
}

// recorded says whether a run's step is recorded as started.
func (m *memory) recorded(run string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.ContainsFunc(m.records, func(r Record) bool { return r.Kind == "step" && runID(r.Plan, r.Step) == run })
}

type wavePart struct {
	Guest  string   `json:"guest"`
	Batch  int      `json:"batch"`
	Canary bool     `json:"canary,omitempty"`
	Words  []string `json:"words"`          // "=word" is there for the case that the step before it fails, "?word" only looks
	Soak   int      `json:"soak,omitempty"` // milliseconds after each step
}

type waveIn struct {
	Parts    []wavePart `json:"parts"`
	Parallel int        `json:"parallel"`
	Stop     int        `json:"stop,omitempty"`
	First    string     `json:"first,omitempty"` // a guest that a step of the plan itself is about
}

func wave() *Operation {
	return Change(Declaration{Name: "wave", Summary: "wave", Effect: EffectExecute}, func(_ context.Context, _ View, in waveIn) (*Draft, error) {
		step := func(guest, word string) Step {
			word, looks := strings.CutPrefix(word, "?")
			r, err := NewRequest("pve", map[bool]string{false: "RUN /guest/{vmid}/command", true: "RUN /guest/{vmid}/probe"}[looks], map[string]any{"vmid": guest, "word": word})
			if err != nil {
				panic(err)
			}
			return Step{API: &r, Undo: Undo{None: "a test"}}
		}
		d := &Draft{Parallel: in.Parallel, StopAfter: in.Stop}
		if in.First != "" {
			d.Steps = append(d.Steps, step(in.First, "first"))
		}
		for _, p := range in.Parts {
			c := &Draft{Batch: p.Batch, Canary: p.Canary}
			for _, word := range p.Words {
				name, after := strings.CutPrefix(word, "=")
				s := step(p.Guest, name)
				if after {
					s.When.StepFailed = len(c.Steps)
				}
				if p.Soak > 0 {
					s.Wait = Wait{Kind: WaitSoak, Limit: time.Duration(p.Soak) * time.Millisecond}
				}
				c.Steps = append(c.Steps, s)
			}
			d.Children = append(d.Children, c)
		}
		return d, nil
	})
}

func waveRig(t *testing.T, store *memory, h Runner, change func(*Config)) *rig {
	return newRigWith(t, store, newSite(), func(c *Config) {
		c.Operations, c.Runner, c.Lanes = append(c.Operations, wave()), h, &doors{}
		if change != nil {
			change(c)
		}
	})
}

func guests(batches ...int) (out []wavePart) {
	n := 101
	for b, many := range batches {
		for range many {
			out = append(out, wavePart{Guest: fmt.Sprint(n), Batch: b + 1, Words: []string{"do", "look"}})
			n++
		}
	}
	return out
}

func runWave(t *testing.T, r *rig, in waveIn) *PlanRecord {
	t.Helper()
	b, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	out, err := r.do(t, "wave", string(b))
	if err != nil || out.Plan == nil {
		t.Fatalf("%+v %v", out, err)
	}
	id := out.Plan.ID
	if _, err = apply(t, r, out.Plan, nil); err != nil {
		t.Fatal(err)
	}
	_, record, err := r.g.Show(context.Background(), agent, id)
	if err != nil {
		t.Fatal(err)
	}
	return record
}

func partStates(r *PlanRecord) string {
	var out []string
	for _, p := range r.Strip() {
		out = append(out, strings.Fields(p.About)[1]+"="+string(p.State))
	}
	return strings.Join(out, " ")
}

// TestCourse: batches come one after the other, parts of one side by side, and what ends the rest is said.
func TestCourse(t *testing.T) {
	canary := guests(1, 2)
	canary[0].Canary = true
	rolled := guests(1, 1)
	rolled[0].Words = []string{"do", "look", "=back", "soak"}
	for name, c := range map[string]struct {
		in     waveIn
		fail   map[string]string
		state  PlanState
		parts  string
		said   string
		never  string // a run that must not be
		always string
	}{
		"all well":                    {in: waveIn{Parts: guests(1, 4, 2), Parallel: 3}, state: PlanDone, parts: "101=done 102=done 103=done 104=done 105=done 106=done 107=done"},
		"one fails, the others go on": {in: waveIn{Parts: guests(2, 2), Parallel: 2}, fail: map[string]string{"101 do": "failed"}, state: PlanFailed, parts: "101=failed 102=done 103=done 104=done", said: "3 parts done, 1 failed (guest 101)", never: "101.look"},
		"the stop rule":               {in: waveIn{Parts: guests(1, 1, 1), Parallel: 1, Stop: 1}, fail: map[string]string{"101 look": "failed"}, state: PlanFailed, parts: "101=failed 102=skipped 103=skipped", said: "after 1 no other begins"},
		"the stop rule counts":        {in: waveIn{Parts: guests(1, 1, 1), Parallel: 1, Stop: 2}, fail: map[string]string{"101 look": "refused"}, state: PlanFailed, parts: "101=failed 102=done 103=done"},
		"an unknown end":              {in: waveIn{Parts: guests(1, 2), Parallel: 2}, fail: map[string]string{"101 do": "lost"}, state: PlanUnknown, parts: "101=unknown 102=done 103=done", said: "2 parts done, 1 not known (guest 101)", never: "101.look"},
		"an unknown end counts":       {in: waveIn{Parts: guests(1, 1, 1), Parallel: 1, Stop: 1}, fail: map[string]string{"101 do": "lost"}, state: PlanUnknown, parts: "101=unknown 102=skipped 103=skipped", said: "1 parts have failed (of 1 the end is not known), and after 1 no other begins"},
		"two of them, after a failed": {in: waveIn{Parts: guests(1, 1, 1), Parallel: 1, Stop: 2}, fail: map[string]string{"101 look": "failed", "102 do": "lost"}, state: PlanUnknown, parts: "101=failed 102=unknown 103=skipped", said: "2 parts have failed (of 1 the end is not known)"},
		"the trial ends unknown":      {in: waveIn{Parts: canary, Parallel: 2}, fail: map[string]string{"101 do": "lost"}, state: PlanUnknown, parts: "101=unknown 102=skipped 103=skipped", said: "not known what became of the trial with guest 101"},
		"the same guest once more":    {in: waveIn{Parts: append(guests(1, 1), wavePart{Guest: "101", Batch: 3, Words: []string{"again"}}), Parallel: 1}, fail: map[string]string{"101 do": "lost"}, state: PlanUnknown, parts: "101=unknown 102=done 101=skipped", said: "not known what became of step 1 (guest 101)", never: "101.again"},
		"the trial fails":             {in: waveIn{Parts: canary, Parallel: 2}, fail: map[string]string{"101 look": "failed"}, state: PlanFailed, parts: "101=failed 102=skipped 103=skipped", said: "the trial with guest 101 failed"},
		"a way back":                  {in: waveIn{Parts: rolled, Parallel: 2}, fail: map[string]string{"101 look": "failed"}, state: PlanFailed, parts: "101=failed 102=done", never: "101.soak", always: "101.back"},
		"no way back is needed":       {in: waveIn{Parts: rolled, Parallel: 2}, state: PlanDone, parts: "101=done 102=done", never: "101.back", always: "101.soak"},
		"the plan's own step fails":   {in: waveIn{First: "100", Parts: guests(2), Parallel: 2}, fail: map[string]string{"100 first": "failed"}, state: PlanFailed, parts: "101=skipped 102=skipped", said: "step 1 failed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := newMemory()
			h := newHerd(store)
			for k, v := range c.fail {
				h.fail[k] = v
			}
			record := runWave(t, waveRig(t, store, h, nil), c.in)
			if record.State != c.state || partStates(record) != c.parts || !strings.Contains(record.Note, c.said) {
				t.Errorf("%s, %s, %q\nwant %s, %s, %q", record.State, partStates(record), record.Note, c.state, c.parts, c.said)
			}
			if len(h.faults) > 0 || h.most > c.in.Parallel {
				t.Errorf("faults %v, %d guests at the same time", h.faults, h.most)
			}
			order := h.begun()
			if c.never != "" && slices.Contains(order, c.never) || c.always != "" && !slices.Contains(order, c.always) {
				t.Errorf("runs %v, never %s, always %s", order, c.never, c.always)
			}
			batch, highest := map[string]int{}, 0
			for _, p := range c.in.Parts {
				if batch[p.Guest] == 0 {
					batch[p.Guest] = p.Batch
				}
			}
			for _, run := range order {
				b := batch[run[:3]]
				if b < highest {
					t.Errorf("%s of batch %d ran after one of batch %d: %v", run, b, highest, order)
				}
				highest = max(highest, b)
			}
		})
	}
}

// TestACheckThatIsNotAsked: what is there for the case that a check fails comes where it was asked and said so, never where it
// could not be asked.
func TestACheckThatIsNotAsked(t *testing.T) {
	for how, back := range map[string]bool{"failed": true, "large": true, "late": true, "refused": false, "spent": false, "lost": false, "lane": false, "": false} {
		for _, parallel := range []int{0, 1} {
			t.Run(fmt.Sprintf("%s %d", how, parallel), func(t *testing.T) {
				t.Parallel()
				store := newMemory()
				h, d := newHerd(store), &doors{}
				if h.fail["101 look"] = how; how == "lane" {
					h.between = func(_, word string) {
						if word == "do" {
							d.say(LaneVerdict{Refused: "it is switched off"})
						}
					}
				}
				r := waveRig(t, store, h, func(c *Config) { c.Lanes = d })
				record := runWave(t, r, waveIn{Parts: []wavePart{{Guest: "101", Batch: 1, Words: []string{"do", "?look", "=back", "then"}}}, Parallel: parallel})
				order := h.begun()
				if has := slices.Contains(order, "101.back"); has != back {
					t.Errorf("runs %v, a way back %v", order, back)
				}
				if how != "" && !back && (slices.Contains(order, "101.then") || record.State == PlanDone || !strings.Contains(record.Steps[2].Result, "could not be asked")) {
					t.Errorf("runs %v, %s, %q", order, record.State, record.Steps[2].Result)
				}
				if how == "" && record.State != PlanDone {
					t.Errorf("%s %s", record.State, record.Note)
				}
			})
		}
	}
}

// TestSideBySide: parts of one batch do run at the same time.
func TestSideBySide(t *testing.T) {
	store := newMemory()
	h := newHerd(store)
	var in sync.WaitGroup
	in.Add(3)
	h.between = func(_, word string) {
		if word == "do" {
			in.Done()
			in.Wait() // ends only when three are there at once
		}
	}
	if record := runWave(t, waveRig(t, store, h, nil), waveIn{Parts: guests(3), Parallel: 3}); record.State != PlanDone || h.most != 3 {
		t.Errorf("%s, %d at once", record.State, h.most)
	}
}

// TestTwoPartsOnOneObject are refused in one batch, and taken in two.
func TestTwoPartsOnOneObject(t *testing.T) {
	r := waveRig(t, newMemory(), newHerd(newMemory()), nil)
	parts := guests(2)
	parts[1].Guest = "101"
	b, _ := json.Marshal(waveIn{Parts: parts, Parallel: 2})
	_, err := r.do(t, "wave", string(b))
	wantKind(t, err, ErrInvalid)
	parts[1].Batch = 2
	b, _ = json.Marshal(waveIn{Parts: parts, Parallel: 2})
	out, err := r.do(t, "wave", string(b))
	if err != nil || out.Plan == nil {
		t.Fatalf("%+v %v", out, err)
	}
	for _, n := range []int{-1, maxParallel + 1} {
		b, _ = json.Marshal(waveIn{Parts: guests(2), Parallel: n})
		_, err = r.do(t, "wave", string(b))
		wantKind(t, err, ErrInvalid)
	}
	b, _ = json.Marshal(waveIn{Parts: []wavePart{{Guest: "101", Batch: 2, Words: []string{"do"}}, {Guest: "102", Batch: 1, Words: []string{"do"}}}, Parallel: 1})
	_, err = r.do(t, "wave", string(b))
	wantKind(t, err, ErrInternal)
}

// TestOrderIsPartOfThePlan: it is shown, said, and covered by both digests.
func TestOrderIsPartOfThePlan(t *testing.T) {
	r := waveRig(t, newMemory(), newHerd(newMemory()), nil)
	effects := map[string]string{}
	for name, change := range map[string]func(*waveIn){
		"as it is":   func(*waveIn) {},
		"parallel":   func(in *waveIn) { in.Parallel = 3 },
		"stop":       func(in *waveIn) { in.Stop = 2 },
		"no canary":  func(in *waveIn) { in.Parts[0].Canary = false },
		"one batch":  func(in *waveIn) { in.Parts[2].Batch = 2 },
		"other soak": func(in *waveIn) { in.Parts[0].Soak = 5 },
	} {
		in := waveIn{Parts: guests(1, 1, 1), Parallel: 2, Stop: 1}
		in.Parts[0].Canary = true
		change(&in)
		b, _ := json.Marshal(in)
		out, err := r.do(t, "wave", string(b))
		if err != nil || out.Plan == nil {
			t.Fatalf("%s: %+v %v", name, out, err)
		}
		_, record, err := r.g.Show(context.Background(), agent, out.Plan.ID)
		if err != nil {
			t.Fatal(err)
		}
		if other := effects[record.Plan.EffectDigest]; other != "" {
			t.Errorf("%s and %s have one digest", name, other)
		}
		effects[record.Plan.EffectDigest] = name
		if name != "as it is" {
			continue
		}
		again, err := r.do(t, "wave", string(b))
		if err != nil || again.Plan.ID != out.Plan.ID {
			t.Errorf("the same wave is another plan: %+v %v", again, err)
		}
		order := strings.Join(out.Plan.Order, "\n")
		for _, want := range []string{"At most 2 parts", "Batch 1: guest 101. A trial", "Batch 3: guest 103", "When 1 parts have failed", "not known"} {
			if !strings.Contains(order, want) {
				t.Errorf("%q is not in:\n%s", want, order)
			}
		}
		if !strings.HasPrefix(out.Plan.Sentence, "3 parts in 3 batches, at most 2 at the same time, the first 1 as a trial, none begun any more after 1 failed: ") {
			t.Error(out.Plan.Sentence)
		}
	}
}

// mortal is the store and the runner of a process that dies: from then on nothing of it reaches either.
type mortal struct {
	Runner
	*memory
	dead atomic.Bool
}

var errDead = errors.New("this process is dead")

func (m *mortal) Update(ctx context.Context, f func(Tx) error) error {
	if m.dead.Load() {
		return errDead
	}
	return m.memory.Update(ctx, f)
}

func (m *mortal) View(ctx context.Context, f func(Tx) error) error {
	if m.dead.Load() {
		return errDead
	}
	return m.memory.View(ctx, f)
}

func (m *mortal) Observe(r Record) { m.memory.Observe(r) }

func (m *mortal) Run(ctx context.Context, p *Permit, id string, on RunHooks) (RunResult, error) {
	if m.dead.Load() {
		return RunResult{}, errDead
	}
	res, err := m.Runner.Run(ctx, p, id, RunHooks{})
	if m.dead.Load() {
		return RunResult{}, errDead
	}
	return res, err
}

func (m *mortal) Look(ctx context.Context, target string, r Request, id, handle string) (RunResult, bool, error) {
	if m.dead.Load() {
		return RunResult{}, false, errDead
	}
	return m.Runner.Look(ctx, target, r, id, handle)
}

// TestKilledSideBySide ends the process at each point that a plan with parts side by side passes. Another one takes it over:
// nothing is sent twice or without a record, no more parts run at once than were approved, and each ends known or unknown.
func TestKilledSideBySide(t *testing.T) {
	in := waveIn{Parts: guests(1, 2, 1), Parallel: 2, Stop: 3}
	in.Parts[0].Canary = true
	in.Parts[0].Words = []string{"do", "look", "=back", "soak"}
	fail := map[string]string{"103 do": "failed"}
	run := func(t *testing.T, at int64) (points int64) {
		store := newMemory()
		h := newHerd(store)
		for k, v := range fail {
			h.fail[k] = v
		}
		m := &mortal{Runner: h, memory: store}
		var passed atomic.Int64
		killed := make(chan struct{})
		first := waveRig(t, store, m, func(c *Config) {
			c.Store = m
			c.Process = "first"
			c.Trace = func(p Point) {
				if p == PointKept || p == PointApproved {
					return
				}
				if passed.Add(1) == at {
					m.dead.Store(true)
					close(killed)
				}
			}
		})
		b, _ := json.Marshal(in)
		out, err := first.do(t, "wave", string(b))
		if err != nil {
			t.Fatal(err)
		}
		id := out.Plan.ID
		approved(t, first, out.Plan)
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			_, _ = apply(t, first, out.Plan, nil) // of a dead process nobody hears
		}()
		select {
		case <-killed:
		case <-answered:
		}
		second := waveRig(t, store, h, func(c *Config) { c.Process = "second" })
		var record *PlanRecord
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(15 * time.Millisecond) {
			if _, record, err = second.g.Show(context.Background(), agent, id); err != nil {
				t.Fatal(err)
			}
			if record.State.Ended() {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("killed at point %d: it is %s: %s", at, record.State, partStates(record))
			}
		}
		<-answered
		h.mu.Lock()
		defer h.mu.Unlock()
		if len(h.faults) > 0 || h.most > in.Parallel {
			t.Errorf("killed at point %d: faults %v, %d guests at the same time", at, h.faults, h.most)
		}
		for i, s := range record.Steps {
			if !slices.Contains([]StepState{StepDone, StepFailed, StepUnknown, StepSkipped}, s.State) {
				t.Errorf("killed at point %d: step %d is %s", at, i+1, s.State)
			}
			if s.State == StepUnknown && h.runs[runID(id, i+1)] != nil {
				t.Errorf("killed at point %d: step %d ran, and counts as unknown: %s", at, i+1, s.Result)
			}
			if s.State == StepDone && h.runs[runID(id, i+1)] == nil {
				t.Errorf("killed at point %d: step %d is done and never ran", at, i+1)
			}
		}
		if record.State == PlanDone || record.State == PlanStale {
			t.Errorf("killed at point %d: %s", at, record.State)
		}
		return passed.Load()
	}
	total := run(t, -1)
	if total < 30 {
		t.Fatalf("only %d points", total)
	}
	stride := int64(1)
	if testing.Short() {
		stride = 5
	}
	for at := int64(1); at <= total; at += stride {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			t.Parallel()
			run(t, at)
		})
	}
}

// TestStoppedSideBySide: a process that stops lets nothing new begin; the same approval lets it go on, where a part had
// failed before as well.
func TestStoppedSideBySide(t *testing.T) {
	store := newMemory()
	h := newHerd(store)
	h.fail["101 do"] = "failed"
	reached := make(chan struct{})
	var once sync.Once
	release := make(chan struct{})
	h.between = func(guest, _ string) {
		if guest == "103" {
			once.Do(func() { close(reached) })
			<-release
		}
	}
	first := waveRig(t, store, h, nil)
	b, _ := json.Marshal(waveIn{Parts: guests(1, 1, 1, 1), Parallel: 1})
	out, err := first.do(t, "wave", string(b))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); _, _ = apply(t, first, out.Plan, nil) }()
	<-reached
	go func() { time.Sleep(20 * time.Millisecond); close(release) }()
	first.stop()
	<-done
	second := waveRig(t, store, h, nil)
	_, record, err := second.g.Show(context.Background(), agent, out.Plan.ID)
	if err != nil || record.State != PlanPaused {
		t.Fatalf("%s %v: %s", record.State, err, partStates(record))
	}
	if _, err := second.do(t, "apply", `{"plan":"`+out.Plan.ID+`"}`); err != nil {
		t.Fatal(err)
	}
	_, record, err = second.g.Show(context.Background(), agent, out.Plan.ID)
	if err != nil || record.State != PlanFailed || partStates(record) != "101=failed 102=done 103=done 104=done" {
		t.Errorf("%s %v: %s", record.State, err, partStates(record))
	}
	if len(h.faults) > 0 {
		t.Error(h.faults)
	}
}
