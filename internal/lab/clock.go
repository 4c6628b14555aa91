package lab

import (
	"container/heap"
	"time"
)

// event is something that happens at a time. Nothing in the lab runs by itself: whatever is due is done,
// in order, before the next request is looked at.
type event struct {
	at  time.Time
	seq int
	do  func()
}

type agenda []*event

func (a agenda) Len() int { return len(a) }
func (a agenda) Less(i, j int) bool {
	if a[i].at.Equal(a[j].at) {
		return a[i].seq < a[j].seq
	}
	return a[i].at.Before(a[j].at)
}
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(x any)   { *a = append(*a, x.(*event)) }
func (a *agenda) Pop() any {
	old := *a
	e := old[len(old)-1]
	*a = old[:len(old)-1]
	return e
}

// after schedules do. Without delays it is due as soon as the running call is done.
func (s *state) after(d time.Duration, do func()) *event {
	if !s.delays {
		d = 0
	}
	s.seq++
	e := &event{at: s.now.Add(d), seq: s.seq, do: do}
	heap.Push(&s.agenda, e)
	return e
}

// cancel takes an event out again.
func (s *state) cancel(e *event) {
	if e != nil {
		e.do = nil
	}
}

// maxEvents bounds the work between two requests.
const maxEvents = 1 << 20

// run lets happen what is due by now.
func (s *state) run(now time.Time) {
	for i := 0; i < maxEvents && len(s.agenda) > 0 && !s.agenda[0].at.After(now); i++ {
		s.step()
	}
	if now.After(s.now) {
		s.now = now
	}
	s.tick()
}

// drain lets everything happen that is scheduled, whatever its time.
func (s *state) drain() {
	for i := 0; i < maxEvents && len(s.agenda) > 0; i++ {
		s.step()
	}
	s.publishAll()
}

func (s *state) step() {
	e := heap.Pop(&s.agenda).(*event)
	if e.at.After(s.now) {
		s.now = e.at
		s.tick()
	}
	if e.do != nil {
		e.do()
	}
}

// statPeriod is the time between two rounds of the daemon that publishes figures.
const statPeriod = 10 * time.Second

// tick publishes guests that changed, when a round of the statistics daemon has passed.
func (s *state) tick() {
	if !s.delays {
		s.publishDirty()
		return
	}
	if s.now.Sub(s.lastStat) < statPeriod {
		return
	}
	s.lastStat = s.lastStat.Add(s.now.Sub(s.lastStat).Truncate(statPeriod))
	s.publishDirty()
}

func (l *Lab) now() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.clock().Add(l.offset)
}
