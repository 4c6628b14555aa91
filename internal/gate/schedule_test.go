package gate

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestWindows(t *testing.T) {
	for _, bad := range []string{"", "mon", "xyz 01:00-02:00", "mon-xyz 01:00-02:00", "mon 1:00-02:00", "mon 01:00", "mon 25:00-26:00", "24:00-01:00", "01:00-01:00", "mon 01:00-02:00 Nowhere/City", "mon 01:00-02:00 UTC x", "mon 01:60-02:00", "mon 01:00-02:00 local", "mon,,tue 01:00-02:00"} {
		if w, err := ParseWindow(bad); err == nil {
			t.Errorf("%q is taken as %v", bad, w)
		}
	}
	at := func(text string) time.Time {
		t.Helper()
		x, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	for _, c := range []struct {
		window, at string
		from, to   string // "" = shut
	}{
		{"sat,sun 22:00-04:00 Europe/Berlin", "2026-01-03T21:30:00Z", "2026-01-03T21:00:00Z", "2026-01-04T03:00:00Z"}, // a Saturday
		{"sat,sun 22:00-04:00 Europe/Berlin", "2026-01-05T02:59:00Z", "2026-01-04T21:00:00Z", "2026-01-05T03:00:00Z"}, // begun on Sunday
		{"sat,sun 22:00-04:00 Europe/Berlin", "2026-01-05T03:00:00Z", "", ""},
		{"sat,sun 22:00-04:00 Europe/Berlin", "2026-01-03T01:00:00Z", "", ""}, // begun on Friday: none did
		{"sat,sun 22:00-04:00 Europe/Berlin", "2026-07-04T20:00:00Z", "2026-07-04T20:00:00Z", "2026-07-05T02:00:00Z"},
		{"mon-fri 08:00-18:00", "2026-01-05T17:59:59Z", "2026-01-05T08:00:00Z", "2026-01-05T18:00:00Z"},
		{"mon-fri 08:00-18:00", "2026-01-05T07:59:59Z", "", ""},
		{"fri-mon 00:00-24:00", "2026-01-05T23:59:59Z", "2026-01-05T00:00:00Z", "2026-01-06T00:00:00Z"},
		{"02:00-03:00 Europe/Berlin", "2026-03-29T00:30:00Z", "", ""},                                         // an hour that is left out that night
		{"02:00-04:00 Europe/Berlin", "2026-10-25T01:30:00Z", "2026-10-25T01:00:00Z", "2026-10-25T03:00:00Z"}, // an hour that comes twice: the later one
	} {
		s, open := openAt([]string{c.window}, at(c.at))
		if open != (c.from != "") {
			t.Errorf("%s at %s: open %v (%v)", c.window, c.at, open, s)
			continue
		}
		if open && (!s.from.Equal(at(c.from)) || !s.to.Equal(at(c.to))) {
			t.Errorf("%s at %s: %s to %s", c.window, c.at, s.from.UTC(), s.to.UTC())
		}
	}
	w, err := ParseWindow("sat 22:00-04:00")
	if err != nil {
		t.Fatal(err)
	}
	if got := w.between(at("2026-01-01T00:00:00Z"), at("2026-02-01T00:00:00Z")); len(got) != 5 || !got[0].from.Equal(at("2026-01-03T22:00:00Z")) {
		t.Errorf("a month has %v", got)
	}
	if from, _, ok := NextWindow([]string{"sun 01:00-02:00", "sat 22:00-04:00"}, at("2026-01-01T00:00:00Z")); !ok || !from.Equal(at("2026-01-03T22:00:00Z")) {
		t.Errorf("next: %s %v", from, ok)
	}
}

// planner is a rig whose clock is moved, and a mandate with a schedule that ann has given.
type planner struct {
	*rig
	clock *movable
	m     *Mandate
}

// saturday is when windows of these tests are open: from 22:00 to 04:00 UTC.
func (p *planner) toSaturday(t *testing.T, hour int) {
	t.Helper()
	now := p.clock.now().UTC()
	day := time.Date(now.Year(), now.Month(), now.Day(), hour, 0, 0, 0, time.UTC)
	for !day.After(now) || day.Weekday() != time.Saturday {
		day = day.AddDate(0, 0, 1)
	}
	p.clock.move(day.Sub(now))
}

func newPlanner(t *testing.T, store *memory, change func(*Mandate), more func(*Config)) *planner {
	t.Helper()
	clock := &movable{}
	r := newRigWith(t, store, newSite(), func(c *Config) {
		c.Clock, c.Witness = clock.now, newPeople()
		if more != nil {
			more(c)
		}
	})
	r.policy.highest = RungTwoPasskeys
	m := Mandate{For: agent.Key(), Operations: []string{"power"}, Targets: []string{"pve"}, Objects: []string{"guest/101"}, Args: map[string][]string{"action": {"start"}}, Count: 3,
		From: clock.now().Add(-time.Minute), Until: clock.now().Add(40 * 24 * time.Hour), Windows: []string{"sat 22:00-04:00"}, Schedule: &Schedule{Operation: "power", Args: json.RawMessage(`{"guest":"101","action":"start"}`)}}
	if change != nil {
		change(&m)
	}
	given, err := r.g.Grant(context.Background(), m, Evidence{Kind: "session", Session: "s-ann"})
	if err != nil {
		t.Fatal(err)
	}
	return &planner{r, clock, given}
}

func asAgent(context.Context, string) (Principal, error) { return agent, nil }

func (p *planner) pass(t *testing.T) string {
	t.Helper()
	runs, err := p.g.Schedules(context.Background(), asAgent)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, r := range runs {
		out = append(out, string(r.State))
	}
	return strings.Join(out, " ")
}

// TestSchedule: once in each window, by whatever process; what nobody was there for is said and not made up for.
func TestSchedule(t *testing.T) {
	p := newPlanner(t, newMemory(), nil, nil)
	if got := p.pass(t); got != "" {
		t.Errorf("before its window: %s", got)
	}
	p.toSaturday(t, 23)
	if got := p.pass(t); got != "carried" || len(p.site.sent) != 1 {
		t.Fatalf("in its window: %q, %d sent", got, len(p.site.sent))
	}
	if got := p.pass(t); got != "" || len(p.site.sent) != 1 {
		t.Errorf("again in its window: %q, %d sent", got, len(p.site.sent))
	}
	p.clock.move(7 * 24 * time.Hour) // the guest runs by now
	if got := p.pass(t); got != "nothing" {
		t.Errorf("a week later: %q", got)
	}
	p.clock.move(12 * 24 * time.Hour)
	if got := p.pass(t); got != "missed" || len(p.site.sent) != 1 {
		t.Errorf("after a window without anybody: %q, %d sent", got, len(p.site.sent))
	}
	if got := p.pass(t); got != "" {
		t.Errorf("it is said once: %q", got)
	}
	runs, err := p.g.ScheduleRuns(context.Background(), p.m)
	if err != nil || len(runs) != 3 || runs[0].State != ScheduleMissed || runs[2].State != ScheduleCarried || runs[2].Plan == "" {
		t.Errorf("%+v %v", runs, err)
	}
	_, record, err := p.g.Show(context.Background(), agent, runs[2].Plan)
	if err != nil || record.State != PlanDone || record.Approvals[0].Evidence.Mandate != p.m.ID {
		t.Errorf("%+v %v", record, err)
	}
	kinds := strings.Join(p.store.kinds(), " ")
	for _, want := range []string{"schedule:claimed intent:planned approval:person", "schedule:carried", "schedule:missed"} {
		if !strings.Contains(kinds, want) {
			t.Errorf("%q is not among the records: %s", want, kinds)
		}
	}
}

// TestScheduleOnce: many processes on one store make one call.
func TestScheduleOnce(t *testing.T) {
	store := newMemory()
	p := newPlanner(t, store, nil, nil)
	p.toSaturday(t, 23)
	gates := []*Gate{p.g}
	for n := range 4 {
		r := newRigWith(t, store, p.site, func(c *Config) {
			c.Clock, c.Witness, c.Process = p.clock.now, newPeople(), fmt.Sprint(n)
		})
		r.policy.highest = RungTwoPasskeys
		gates = append(gates, r.g)
	}
	var group sync.WaitGroup
	var mu sync.Mutex
	total := 0
	for range 3 {
		for _, g := range gates {
			group.Go(func() {
				runs, err := g.Schedules(context.Background(), asAgent)
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				total += len(runs)
			})
		}
	}
	group.Wait()
	if total != 1 || len(p.site.sent) != 1 {
		t.Errorf("%d calls, %d sent", total, len(p.site.sent))
	}
}

// TestScheduleNotContained: a plan that the mandate does not hold waits for a person, and nothing is sent.
func TestScheduleNotContained(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Mandate)
		want   ScheduleState
		note   string
	}{
		"another guest":      {func(m *Mandate) { m.Objects = []string{"guest/102"} }, ScheduleWaiting, "guest/101 is not among its objects"},
		"another target":     {func(m *Mandate) { m.Targets = []string{"pve"}; m.Objects = []string{"pool:web"} }, ScheduleWaiting, "not among its objects"},
		"its own arguments":  {func(m *Mandate) { m.Args = nil }, ScheduleCarried, ""},
		"arguments not good": {func(m *Mandate) { m.Schedule.Args = json.RawMessage(`{"guest":"101","action":"explode"}`) }, ScheduleRefused, ""},
	} {
		p := newPlanner(t, newMemory(), c.change, nil)
		p.toSaturday(t, 23)
		runs, err := p.g.Schedules(context.Background(), asAgent)
		if err != nil || len(runs) != 1 || runs[0].State != c.want || !strings.Contains(runs[0].Note, c.note) {
			t.Errorf("%s: %+v %v", name, runs, err)
		}
		if sent := len(p.site.sent); (sent > 0) != (c.want == ScheduleCarried) {
			t.Errorf("%s: %d sent", name, sent)
		}
	}
	p := newPlanner(t, newMemory(), nil, nil)
	p.toSaturday(t, 23)
	runs, err := p.g.Schedules(context.Background(), func(context.Context, string) (Principal, error) { return Principal{Agent: "other", Person: "ann"}, nil })
	if err != nil || len(runs) != 1 || runs[0].State != ScheduleRefused || len(p.site.sent) != 0 {
		t.Errorf("as another: %+v %v", runs, err)
	}
	p = newPlanner(t, newMemory(), nil, nil)
	if err := p.g.Revoke(context.Background(), "s-ann", p.m.ID); err != nil {
		t.Fatal(err)
	}
	p.toSaturday(t, 23)
	if got := p.pass(t); got != "" || len(p.site.sent) != 0 {
		t.Errorf("revoked: %q, %d sent", got, len(p.site.sent))
	}
}

// TestScheduleMoved: what cannot be now, as for a backup, is tried again in the same window, and given up with it.
func TestScheduleMoved(t *testing.T) {
	busy := true
	var mu sync.Mutex
	op := Change(Declaration{Name: "later", Summary: "later", Effect: EffectChange}, func(_ context.Context, _ View, _ struct{}) (*Draft, error) {
		mu.Lock()
		defer mu.Unlock()
		if busy {
			return nil, Fail(ErrUnavailable, "", "a backup runs")
		}
		r, err := NewRequest("pve", "POST /guest/{vmid}/start", map[string]any{"vmid": "101"})
		return &Draft{Steps: []Step{{API: &r}}}, err
	})
	p := newPlanner(t, newMemory(), func(m *Mandate) {
		m.Operations, m.Schedule = []string{"later"}, &Schedule{Operation: "later"}
	}, func(c *Config) { c.Operations = append(c.Operations, op) })
	p.toSaturday(t, 22)
	for range 2 {
		if got := p.pass(t); got != "moved" {
			t.Fatalf("while a backup runs: %q", got)
		}
		if got := p.pass(t); got != "" {
			t.Fatalf("at once again: %q", got)
		}
		p.clock.move(scheduleAgain + time.Second)
	}
	mu.Lock()
	busy = false
	mu.Unlock()
	if got := p.pass(t); got != "carried" || len(p.site.sent) != 1 {
		t.Fatalf("when it is over: %q, %d sent", got, len(p.site.sent))
	}
	mu.Lock()
	busy = true
	mu.Unlock()
	p.clock.move(7 * 24 * time.Hour)
	if got := p.pass(t); got != "moved" {
		t.Fatalf("the next week: %q", got)
	}
	p.clock.move(8 * time.Hour)
	if got := p.pass(t); got != "missed" {
		t.Errorf("when that window is over: %q", got)
	}
}

// TestWindowEnds: when a mandate's window is over no new part begins, what runs goes on, and that is said; outside of it the
// mandate covers nothing.
func TestWindowEnds(t *testing.T) {
	store := newMemory()
	h := newHerd(store)
	in := waveIn{Parts: guests(1, 1, 1), Parallel: 1}
	args, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	p := newPlanner(t, store, func(m *Mandate) {
		m.Operations, m.Objects = []string{"wave"}, []string{"guest/101", "guest/102", "guest/103"}
		m.Schedule = &Schedule{Operation: "wave", Args: args}
	}, func(c *Config) {
		c.Operations, c.Runner, c.Lanes = append(c.Operations, wave()), h, &doors{}
	})
	out, err := p.do(t, "wave", string(args))
	if err != nil || out.Status != StatusWaiting {
		t.Fatalf("outside of its window: %+v %v", out, err)
	}
	p.toSaturday(t, 23)
	p.clock.move(4*time.Hour + 55*time.Minute)
	h.between = func(guest, word string) {
		if guest == "102" && word == "do" {
			p.clock.move(6 * time.Minute)
		}
	}
	runs, err := p.g.Schedules(context.Background(), asAgent)
	if err != nil || len(runs) != 1 || runs[0].Plan == "" {
		t.Fatalf("%+v %v", runs, err)
	}
	_, record, err := p.g.Show(context.Background(), agent, runs[0].Plan)
	if err != nil {
		t.Fatal(err)
	}
	if record.State != PlanFailed || partStates(record) != "101=done 102=done 103=skipped" || !strings.Contains(record.Note, "the window of mandate "+p.m.ID+" is over") {
		t.Errorf("%s, %s: %s", record.State, partStates(record), record.Note)
	}
}

func TestScheduleIsChecked(t *testing.T) {
	p := newPlanner(t, newMemory(), nil, nil)
	for name, change := range map[string]func(*Mandate){
		"no window":         func(m *Mandate) { m.Windows = nil },
		"a bad window":      func(m *Mandate) { m.Windows = []string{"whenever"} },
		"another operation": func(m *Mandate) { m.Schedule = &Schedule{Operation: "set"} },
		"arguments no JSON": func(m *Mandate) { m.Schedule = &Schedule{Operation: "power", Args: json.RawMessage(`[1]`)} },
		"too many windows":  func(m *Mandate) { m.Windows = strings.Split(strings.Repeat("01:00-02:00,", 21), ",")[:21] },
		"arguments too long": func(m *Mandate) {
			m.Schedule = &Schedule{Operation: "power", Args: json.RawMessage(`{"guest":"` + strings.Repeat("1", 9000) + `"}`)}
		},
	} {
		m := *p.m
		change(&m)
		if _, err := p.g.Grant(context.Background(), m, Evidence{Kind: "session", Session: "s-ann"}); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	plain := *p.m
	plain.Windows, plain.Schedule = nil, nil
	a, err := plain.digest()
	if err != nil {
		t.Fatal(err)
	}
	b, err := p.m.digest()
	if err != nil || a == b {
		t.Errorf("windows and schedule are not in the digest: %v", err)
	}
}
