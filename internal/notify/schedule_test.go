package notify

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"castellan/internal/gate"
)

// list is a gate with plans that wait.
type list struct {
	mu    sync.Mutex
	plans []*gate.PlanRecord
}

func (l *list) Waiting(context.Context) ([]*gate.PlanRecord, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.plans), nil
}

func (l *list) add(ids ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		l.plans = append(l.plans, waiting(id, gate.RungPerson))
	}
}

func waiting(id string, rung gate.Rung) *gate.PlanRecord {
	return &gate.PlanRecord{State: gate.PlanProposed, Plan: gate.Plan{ID: id, Operation: "rollback_guest", Sentence: "roll back", Expires: time.Now().Add(12 * time.Hour),
		Steps: []gate.Step{{Target: "pve"}}, Decision: gate.Decision{Verdict: gate.VerdictNeeds, Rung: rung}}}
}

// shared is a store of documents, as several processes have it.
type shared struct {
	gate.Tx
	mu   sync.Mutex
	docs map[string]gate.Doc
	err  error
}

func (s *shared) Update(_ context.Context, f func(gate.Tx) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	before := maps.Clone(s.docs)
	if err := f(s); err != nil {
		s.docs = before
		return err
	}
	return nil
}

func (s *shared) View(ctx context.Context, f func(gate.Tx) error) error { return s.Update(ctx, f) }

func (s *shared) PutDoc(d *gate.Doc) error {
	if s.docs == nil {
		s.docs = map[string]gate.Doc{}
	}
	if s.docs[d.ID].Version != d.Version {
		return gate.ErrStoreConflict
	}
	d.Version++
	s.docs[d.ID] = *d
	return nil
}

func (s *shared) Doc(_, id string) (*gate.Doc, error) {
	d, ok := s.docs[id]
	if !ok || !d.Expires.IsZero() && !d.Expires.After(time.Now()) {
		return nil, gate.ErrStoreNotFound
	}
	return &d, nil
}

func (s *shared) Docs(f gate.DocFilter) ([]*gate.Doc, error) {
	var out []*gate.Doc
	for _, id := range slices.Sorted(maps.Keys(s.docs)) {
		if d := s.docs[id]; id > f.After && len(out) < f.Limit {
			out = append(out, &d)
		}
	}
	return out, nil
}

func (s *shared) DropDoc(_, id string) error {
	delete(s.docs, id)
	return nil
}

// pad is a sink that keeps what it was given.
type pad struct {
	mu   sync.Mutex
	got  []*message
	when []time.Time
	err  error
	hold time.Duration
}

func (p *pad) name() string { return "pad" }

func (p *pad) send(ctx context.Context, m *message) error {
	if p.hold > 0 {
		select {
		case <-time.After(p.hold):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return p.err
	}
	p.got, p.when = append(p.got, m), append(p.when, time.Now())
	return nil
}

func (p *pad) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
}

func (p *pad) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.got)
}

// messages are those it was given.
func (p *pad) messages() []*message {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.got)
}

func (p *pad) subjects() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []string
	for _, m := range p.got {
		out = append(out, m.Subject)
	}
	return strings.Join(out, "\n")
}

// rig runs a notifier over a pad until the test ends.
func rig(t *testing.T, s Settings, l *list, st *shared, sinks ...sink) *Notifier {
	t.Helper()
	s.Zone = "UTC"
	c := Config{Settings: s, Source: l, Link: func(id string) string { return "https://console.example/plans/" + id }}
	if st != nil {
		c.Store = st
	}
	n, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range sinks {
		n.sinks = append(n.sinks, newWorker(k, n.c.Clock, n.c.Log))
	}
	ctx, stop := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- n.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ran; err != nil {
			t.Error(err)
		}
	})
	return n
}

func within1(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f) // begins at midnight UTC, 1 January 2000
}

func TestABurstIsOneNotification(t *testing.T) {
	within1(t, func(t *testing.T) {
		var l list
		p := &pad{}
		rig(t, Settings{}, &l, &shared{}, p)
		l.plans = append(l.plans, waiting("dialog-only", gate.RungDialog))
		for i := range 30 {
			l.add(fmt.Sprintf("p-%02d", i))
			time.Sleep(300 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		if got := p.subjects(); got != "castellan: 30 plans wait for approval: rollback_guest on pve (person)" {
			t.Fatalf("told %q", got)
		}
		if m := p.messages()[0]; len(m.Plans) != maxPlans || m.LeftOut != 10 || m.Count != 30 || strings.Contains(m.text(), "dialog-only") {
			t.Errorf("%+v", m)
		}
		l.add("p-later")
		time.Sleep(time.Hour)
		if got := p.subjects(); !strings.HasSuffix(got, "\ncastellan: rollback_guest on pve waits for approval (person), plan p-later") || p.count() != 2 {
			t.Errorf("told %q", got)
		}
		if u := p.messages()[1].URL; u != "https://console.example/plans/p-later" {
			t.Errorf("link %q", u)
		}
	})
}

func TestSeveralProcessesSendOne(t *testing.T) {
	within1(t, func(t *testing.T) {
		var l list
		var st shared
		p := &pad{hold: 3 * time.Second}
		for range 4 {
			rig(t, Settings{}, &l, &st, p)
			time.Sleep(700 * time.Millisecond)
		}
		for i := range 10 {
			l.add(fmt.Sprintf("p-%d", i))
			time.Sleep(time.Second)
		}
		time.Sleep(time.Hour)
		seen := map[string]int{}
		for _, m := range p.messages() {
			for _, w := range m.Plans {
				seen[w.ID]++
			}
		}
		if p.count() > 2 || len(seen) != 10 {
			t.Errorf("%d notifications of %d plans:\n%s", p.count(), len(seen), p.subjects())
		}
		for id, n := range seen {
			if n != 1 {
				t.Errorf("plan %s was told %d times", id, n)
			}
		}
		rig(t, Settings{}, &l, &st, p) // a restart tells nothing again
		time.Sleep(time.Hour)
		if p.count() > 2 {
			t.Errorf("after a restart:\n%s", p.subjects())
		}
	})
}

// TestAnEventIsToldOnce: several processes see the same switch turned, and turned back, and turned again.
func TestAnEventIsToldOnce(t *testing.T) {
	within1(t, func(t *testing.T) {
		var l list
		var st shared
		p := &pad{}
		var all []*Notifier
		for range 3 {
			all = append(all, rig(t, Settings{Window: "1s"}, &l, &st, p))
		}
		for i, state := range []string{"on", "off", "on", "off"} {
			for j := range all {
				time.Sleep(900 * time.Millisecond)
				all[(i+j)%3].Tell(Notice{Kind: "kill_switch", State: state})
			}
			time.Sleep(20 * time.Second)
		}
		time.Sleep(time.Minute)
		if got := p.subjects(); got != "castellan: kill_switch on\ncastellan: kill_switch off\ncastellan: kill_switch on\ncastellan: kill_switch off" {
			t.Errorf("told %q", got)
		}
	})
}

// TestADeadProcessLosesNothing: what one has claimed and not sent, another sends when the claim has run out.
func TestADeadProcessLosesNothing(t *testing.T) {
	within1(t, func(t *testing.T) {
		var l list
		var st shared
		dead, p := &pad{err: errors.New("no network here")}, &pad{}
		first := rig(t, Settings{}, &l, &st, dead)
		l.add("p-1")
		time.Sleep(90 * time.Second)
		if s := first.States()[0]; s.Failed != 1 || !strings.Contains(s.Trouble, "no network") {
			t.Errorf("%+v", s)
		}
		rig(t, Settings{}, &l, &st, p)
		time.Sleep(6 * time.Minute)
		if p.count() != 1 {
			t.Errorf("told %q", p.subjects())
		}
		dead.fail(nil)
		time.Sleep(time.Hour)
		if dead.count()+p.count() != 1 {
			t.Errorf("told %q and %q", p.subjects(), dead.subjects())
		}
	})
}

func TestQuietHours(t *testing.T) {
	within1(t, func(t *testing.T) {
		var l list
		var st shared
		p := &pad{}
		n := rig(t, Settings{Quiet: []string{"23:00-07:00"}}, &l, &st, p)
		l.add("p-1")
		n.Tell(Notice{Kind: "armed", Person: "ann", State: "on"})
		time.Sleep(time.Hour)
		if p.count() != 0 {
			t.Fatalf("told at night: %q", p.subjects())
		}
		n.Tell(Notice{Kind: "kill_switch", State: "on", By: "bob"})
		n.Tell(Notice{Kind: "credential_enrolled", Person: "eve", By: "eve", Credential: "abc"})
		time.Sleep(time.Minute)
		if got := p.subjects(); got != "castellan: 2 events: credential_enrolled, kill_switch" || !p.messages()[0].Urgent {
			t.Fatalf("the kill switch and a credential at night: %q", got)
		}
		l.add("p-2")
		time.Sleep(time.Until(time.Date(2000, 1, 1, 6, 59, 0, 0, time.UTC)))
		if p.count() != 1 {
			t.Fatalf("before seven: %q", p.subjects())
		}
		rig(t, Settings{Quiet: []string{"23:00-07:00"}}, &l, &st, p) // another process, or the same one restarted
		time.Sleep(5 * time.Minute)
		got := p.subjects()
		if p.count() != 3 || !strings.Contains(got, "castellan: armed on of ann") || !strings.Contains(got, "2 plans wait") {
			t.Errorf("after seven: %q", got)
		}
	})
}

func TestLeftByAnotherProcess(t *testing.T) {
	within1(t, func(t *testing.T) {
		var l list
		var st shared
		p := &pad{}
		rig(t, Settings{Quiet: []string{"23:00-07:00"}}, &l, &st, p)
		for _, kind := range []string{"armed", "role_granted"} { // at night: only the second is urgent
			if err := Leave(t.Context(), &st, time.Now(), Notice{Kind: kind, Person: "eve", By: "root"}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Minute)
		if got := p.subjects(); got != "castellan: role_granted of eve by root" || !p.messages()[0].Urgent {
			t.Fatalf("at night: %q", got)
		}
		time.Sleep(8 * time.Hour)
		if got := p.subjects(); p.count() != 2 || !strings.Contains(got, "armed of eve") {
			t.Errorf("after seven: %q", got)
		}
	})
}

func TestSpans(t *testing.T) {
	at := func(clock string) time.Time {
		c, _ := time.Parse("15:04", clock)
		return time.Date(2026, 6, 1, c.Hour(), c.Minute(), 0, 0, time.UTC)
	}
	for _, c := range []struct {
		quiet, zone, clock string
		want               bool
	}{
		{"22:00-07:00", "UTC", "21:59", false}, {"22:00-07:00", "UTC", "22:00", true}, {"22:00-07:00", "UTC", "06:59", true}, {"22:00-07:00", "UTC", "07:00", false},
		{"12:00-13:00", "UTC", "12:30", true}, {"12:00-13:00", "UTC", "13:00", false}, {"22:00-07:00", "Europe/Berlin", "20:00", true}, {"22:00-07:00", "Europe/Berlin", "19:59", false},
	} {
		r, err := Settings{Quiet: []string{c.quiet}, Zone: c.zone}.rules()
		if err != nil {
			t.Fatal(err)
		}
		if got := r.silent(at(c.clock)); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func TestRetriesAreBounded(t *testing.T) {
	within1(t, func(t *testing.T) {
		var l list
		slow, p, never := &pad{err: errors.New("503")}, &pad{}, &pad{err: permanent{errors.New("404")}}
		n := rig(t, Settings{}, &l, &shared{}, slow, p, never)
		n.Tell(Notice{Kind: "kill_switch", State: "on"})
		time.Sleep(2 * time.Second)
		if p.count() != 1 {
			t.Errorf("a sink that fails holds up another: %q", p.subjects())
		}
		if s := n.States(); s[2].Failed != 1 || s[0].Failed != 0 {
			t.Errorf("%+v", s)
		}
		time.Sleep(20 * time.Second)
		slow.fail(nil)
		time.Sleep(time.Hour)
		if s := n.States(); s[0].Sent != 1 || s[0].Trouble != "" || s[2].Failed != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// TestWhatNobodyTookIsTriedAgain: an event that no sink took is kept and sent when one works again.
func TestWhatNobodyTookIsTriedAgain(t *testing.T) {
	within1(t, func(t *testing.T) {
		var l list
		p := &pad{err: errors.New("down")}
		n := rig(t, Settings{}, &l, &shared{}, p)
		n.Tell(Notice{Kind: "kill_switch", State: "on"})
		time.Sleep(time.Hour)
		p.fail(nil)
		time.Sleep(time.Hour)
		if got := p.subjects(); got != "castellan: kill_switch on" {
			t.Errorf("told %q", got)
		}
	})
}

func TestTellNeverBlocks(t *testing.T) {
	within1(t, func(t *testing.T) {
		var l list
		p := &pad{hold: time.Hour}
		n := rig(t, Settings{}, &l, nil, p)
		start := time.Now()
		for i := range 100_000 {
			n.Tell(Notice{Kind: "credential_enrolled", Count: i})
		}
		if d := time.Since(start); d > 0 {
			t.Errorf("it took %s", d)
		}
		time.Sleep(time.Minute)
		if n.Lost() == 0 {
			t.Error("nothing was counted as lost")
		}
	})
	n, err := New(Config{Source: &list{}}) // tells nobody
	if err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		n.Tell(Notice{Kind: "kill_switch"})
	}
	if n.Lost() != 0 || len(n.States()) != 0 {
		t.Error("without a sink there is nothing to lose")
	}
}

// TestACleanStopSends: what was handed over just before the end goes out.
func TestACleanStopSends(t *testing.T) {
	within1(t, func(t *testing.T) {
		p := &pad{}
		n, err := New(Config{Source: &list{}})
		if err != nil {
			t.Fatal(err)
		}
		n.sinks = append(n.sinks, newWorker(p, n.c.Clock, n.c.Log))
		ctx, stop := context.WithCancel(context.Background())
		ran := make(chan error, 1)
		go func() { ran <- n.Run(ctx) }()
		n.Tell(Notice{Kind: "kill_switch", State: "on"})
		stop()
		<-ran
		if p.subjects() != "castellan: kill_switch on" {
			t.Errorf("told %q", p.subjects())
		}
		p.hold = time.Hour
		start := time.Now()
		ctx, stop = context.WithCancel(context.Background())
		n, _ = New(Config{Source: &list{}})
		n.sinks = append(n.sinks, newWorker(p, n.c.Clock, n.c.Log))
		go func() { ran <- n.Run(ctx) }()
		n.Tell(Notice{Kind: "kill_switch", State: "off"})
		stop()
		<-ran
		if d := time.Since(start); d > endLimit+time.Second {
			t.Errorf("a slow sink held the end up for %s", d)
		}
	})
}

// TestAStoreThatCannotBeWritten: plans are told of once it can.
func TestAStoreThatCannotBeWritten(t *testing.T) {
	within1(t, func(t *testing.T) {
		var l list
		st := &shared{err: gate.ErrReadOnlyStore}
		p := &pad{}
		n := rig(t, Settings{Quiet: []string{"00:00-01:00"}}, &l, st, p)
		l.add("p-1")
		n.Tell(Notice{Kind: "armed"})
		time.Sleep(90 * time.Minute)
		if got := p.subjects(); got != "castellan: armed" {
			t.Fatalf("told %q", got)
		}
		st.mu.Lock()
		st.err = nil
		st.mu.Unlock()
		time.Sleep(time.Minute)
		if got := p.subjects(); !strings.Contains(got, "plan p-1") {
			t.Errorf("told %q", got)
		}
	})
}

// TestClaimsOutOfOrder: who looked at the clock first and waited for the store longer claims nothing that is claimed.
func TestClaimsOutOfOrder(t *testing.T) {
	within1(t, func(t *testing.T) {
		l, st := &list{}, &shared{}
		l.add("a", "b")
		one, other := rig(t, Settings{}, l, st, &pad{}), rig(t, Settings{}, l, st, &pad{})
		looked := time.Now()
		time.Sleep(300 * time.Millisecond)
		if got, _, err := one.claim(t.Context(), time.Now(), l.plans); err != nil || len(got) != 2 {
			t.Fatalf("the first claims %d: %v", len(got), err)
		}
		if got, _, err := other.claim(t.Context(), looked, l.plans); err != nil || len(got) != 0 {
			t.Errorf("what is claimed was claimed again: %d, %v", len(got), err)
		}
		// By a clock that ran hours ahead nothing is kept from being told.
		if got, _, err := other.claim(t.Context(), looked.Add(-2*time.Hour), l.plans); err != nil || len(got) != 2 {
			t.Errorf("%d are claimed after a clock was put right: %v", len(got), err)
		}
	})
}
