package gate

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// movable is a clock that a test moves on.
type movable struct{ ahead atomic.Int64 }

func (m *movable) now() time.Time       { return time.Now().Add(time.Duration(m.ahead.Load())) }
func (m *movable) move(d time.Duration) { m.ahead.Add(int64(d)) }

func propose(t *testing.T, r *rig) *PlanView {
	t.Helper()
	out, err := r.do(t, "set", `{"guest":"101","set":{"memory":"1024"}}`)
	if err != nil || out.Status != StatusWaiting {
		t.Fatalf("%+v %v", out, err)
	}
	return out.Plan
}

// approved approves a plan without carrying it out.
func approved(t *testing.T, r *rig, v *PlanView) {
	t.Helper()
	if err := r.g.approve(context.Background(), v.ID, agent, RungRestated, Evidence{Kind: "restated", Sentence: v.Sentence}, &v.Token); err != nil {
		t.Fatal(err)
	}
}

// TestEndsWithoutSending: every way in which a plan ends before its first request.
func TestEndsWithoutSending(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(t *testing.T, r *rig, clock *movable, v *PlanView)
		state PlanState // "" where its row is not believed at all
		kind  ErrorKind // "" where the answer is an outcome
	}{
		{"nobody approved in time", func(_ *testing.T, _ *rig, clock *movable, _ *PlanView) { clock.move(16 * time.Minute) }, PlanExpired, ErrStale},
		{"withdrawn", func(t *testing.T, r *rig, _ *movable, v *PlanView) {
			if err := r.g.Decline(context.Background(), agent, v.ID, "no longer wanted"); err != nil {
				t.Fatal(err)
			}
		}, PlanWithdrawn, ErrStale},
		{"the approval has run out", func(t *testing.T, r *rig, clock *movable, v *PlanView) {
			approved(t, r, v)
			clock.move(16 * time.Minute)
		}, PlanStale, ""},
		{"its steps were changed in the store before the approval", func(_ *testing.T, r *rig, _ *movable, v *PlanView) { tamper(r, v.ID, "1024", "4096") }, "", ErrInternal},
		{"its steps were changed in the store after the approval", func(t *testing.T, r *rig, _ *movable, v *PlanView) {
			approved(t, r, v)
			tamper(r, v.ID, "1024", "4096")
		}, "", ErrInternal},
		{"its rung was lowered in the store", func(_ *testing.T, r *rig, _ *movable, v *PlanView) {
			tamper(r, v.ID, `"rung":"restated"`, `"rung":"none"`)
		}, "", ErrInternal},
	} {
		t.Run(c.name, func(t *testing.T) {
			clock := &movable{}
			r := newRigWith(t, newMemory(), newSite(), func(c *Config) { c.Clock = clock.now })
			v := propose(t, r)
			c.spoil(t, r, clock, v)
			out, err := apply(t, r, v, nil)
			if c.kind != "" {
				wantKind(t, err, c.kind)
			} else if err != nil || out.Status != StatusFailed {
				t.Fatalf("%+v %v", out, err)
			}
			_, record, err := r.g.Show(context.Background(), agent, v.ID)
			if c.state == "" {
				wantKind(t, err, ErrInternal)
			} else if err != nil || record.State != c.state {
				t.Errorf("state %s, %v; want %s", record.State, err, c.state)
			}
			if n := len(r.site.sent); n != 0 {
				t.Errorf("%d requests were sent", n)
			}
		})
	}
}

func tamper(r *rig, id, old, text string) {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	r.store.plans[id] = []byte(strings.ReplaceAll(string(r.store.plans[id]), old, text))
}

func TestOneAtATimeOnAnObject(t *testing.T) {
	s := newSite()
	s.slow = 2 * time.Second
	r := newRig(t, newMemory(), s)
	v := propose(t, r)
	first := make(chan *Outcome, 1)
	go func() {
		out, err := r.do(t, "power", `{"guest":"101","action":"start"}`)
		if err != nil {
			t.Error(err)
		}
		first <- out
	}()
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		s.mu.Lock()
		n := len(s.sent)
		s.mu.Unlock()
		if n > 0 {
			break
		}
	}
	_, err := apply(t, r, v, nil)
	wantKind(t, err, ErrUnavailable)
	if !strings.Contains(AsError(err).Error(), "same object") {
		t.Error(err)
	}
	if out := <-first; out == nil || out.Status != StatusDone {
		t.Errorf("%+v", out)
	}
	if out, err := apply(t, r, v, func(m map[string]string) { m["token"], m["sentence"], m["phrase"] = "", "", "" }); err != nil || out.Status != StatusDone {
		t.Errorf("after the first: %+v %v", out, err)
	}
}

// compensating starts the guest; if that fails it sets memory, and in any case a note that takes the first answer.
func compensating() *Operation {
	return Change(Declaration{Name: "pair", Summary: "pair", Effect: EffectChange}, func(_ context.Context, _ View, in setIn) (*Draft, error) {
		start, err := NewRequest("pve", "POST /guest/{vmid}/start", map[string]any{"vmid": in.Guest})
		if err != nil {
			return nil, err
		}
		repair, err := NewRequest("pve", "PUT /guest/{vmid}", map[string]any{"vmid": in.Guest, "memory": "256"})
		if err != nil {
			return nil, err
		}
		note, err := NewRequest("pve", "PUT /guest/{vmid}", map[string]any{"vmid": in.Guest})
		note.Params = append(note.Params, Param{Name: "note", Values: []Value{{Ref: &Ref{Step: 1}}}})
		return &Draft{Steps: []Step{{API: &start}, {API: &repair, When: When{StepFailed: 1}}, {API: &note}}}, err
	})
}

func TestCompensationAndReferences(t *testing.T) {
	for name, c := range map[string]struct {
		fault  error
		bodies []string
		state  PlanState
	}{
		"the first works": {nil, []string{"vmid=101", "note=UPID%3An1%3A00000001%3Astart%3A101%3Aagent%40pve%21castellan%3A&vmid=101"}, PlanDone},
		"the first fails": {&UpstreamError{Kind: ErrDenied, Delivery: NotCarriedOut, Status: 403, Message: "no"}, []string{"vmid=101", "memory=256&vmid=101"}, PlanFailed},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite()
			s.fault["POST /guest/{vmid}/start"] = func() error { return c.fault }
			r := newRigWith(t, newMemory(), s, func(c *Config) { c.Operations = append(c.Operations, compensating()) })
			out, err := r.do(t, "pair", `{"guest":"101","set":{}}`)
			if err == nil && out.Status == StatusWaiting {
				out, err = apply(t, r, out.Plan, nil)
			}
			if err != nil || out.Receipt == nil || out.Receipt.State != c.state {
				t.Fatalf("%+v %v", out, err)
			}
			if got := strings.Join(s.bodies, " "); got != strings.Join(c.bodies, " ") {
				t.Errorf("sent %s\nwant %s", got, strings.Join(c.bodies, " "))
			}
		})
	}
}

// TestWhoseTaskItIs: a lost request is not taken for done because somebody else's task ran meanwhile.
func TestWhoseTaskItIs(t *testing.T) {
	for _, c := range []struct {
		operation string
		args      map[string]any
		task      string // its id
		mine      bool
	}{
		{"POST /nodes/{node}/apt/update", map[string]any{"node": "n1"}, "", true},
		{"POST /nodes/{node}/apt/update", map[string]any{"node": "n1"}, "101", false},
		{"POST /nodes/{node}/services/{service}/restart", map[string]any{"node": "n1", "service": "ssh"}, "ssh", true},
		{"POST /nodes/{node}/services/{service}/restart", map[string]any{"node": "n1", "service": "ssh"}, "cron", false},
		{"POST /nodes/{node}/vzdump", map[string]any{"node": "n1", "vmid": "101"}, "101", true},
		{"POST /nodes/{node}/vzdump", map[string]any{"node": "n1", "vmid": "101,102"}, "", true},
		{"POST /nodes/{node}/vzdump", map[string]any{"node": "n1", "vmid": "101,102"}, "101", false},
		{"POST /nodes/{node}/qemu/{vmid}/clone", map[string]any{"node": "n1", "vmid": "101", "newid": "500"}, "101", true},
		{"POST /nodes/{node}/qemu/{vmid}/clone", map[string]any{"node": "n1", "vmid": "101", "newid": "500"}, "", false},
		{"POST /nodes/{node}/qemu/{vmid}/status/start", map[string]any{"node": "n1", "vmid": "101"}, "102", false},
	} {
		r, err := NewRequest("pve", c.operation, c.args)
		if err != nil {
			t.Fatal(err)
		}
		s := newSite()
		s.tasks["UPID:other"] = TaskState{UPID: "UPID:other", ID: c.task, Known: true, OK: true}
		rig := newRig(t, newMemory(), s)
		k := &carrier{g: rig.g, r: &PlanRecord{Plan: Plan{Steps: []Step{{Target: "pve", API: &r}}}, Steps: []StepRecord{{Resolved: &r, Started: time.Now()}}}}
		upid, err := k.findTask(context.Background(), 0)
		if err != nil || (upid != "") != c.mine {
			t.Errorf("%s %v: a task of %q is its own: %v, %v", c.operation, c.args, c.task, upid != "", err)
		}
	}
}

// TestTheAddressIsInThePermit: where a write goes is settled, and written down, before it is sent.
func TestTheAddressIsInThePermit(t *testing.T) {
	store, s := newMemory(), newSite()
	var before string
	r := newRigWith(t, store, s, func(c *Config) {
		c.Trace = func(p Point) {
			if p == PointStarted {
				store.mu.Lock()
				defer store.mu.Unlock()
				for _, b := range store.plans {
					before = string(b)
				}
			}
		}
		c.Notices = func() []string { return []string{"the certificate of pve1 ends in 3 days"} }
	})
	out, err := r.do(t, "power", `{"guest":"101","action":"start"}`)
	if err != nil || out.Status != StatusDone || s.sent[0].Address != "pve1:8006" {
		t.Fatalf("%+v %v, sent %+v", out, err, s.sent)
	}
	if len(out.Notices) != 1 {
		t.Errorf("notices: %v", out.Notices)
	}
	var stored PlanRecord
	if err := json.Unmarshal([]byte(before), &stored); err != nil || stored.Steps[0].Address != "pve1:8006" || stored.Steps[0].State != StepStarted {
		t.Errorf("stored before it was sent: %s, %v", before, err)
	}
}

func TestAddressOfATargetThatIsGone(t *testing.T) {
	s := newSite()
	s.gone = errors.New("no target is called pve")
	r := newRig(t, newMemory(), s)
	out, err := r.do(t, "power", `{"guest":"101","action":"start"}`)
	if err != nil || out.Status != StatusFailed || len(s.sent) != 0 {
		t.Errorf("%+v %v", out, err)
	}
}
