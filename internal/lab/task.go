package lab

import (
	"fmt"
	"strings"
	"time"
)

// task is a worker: it runs in steps on the agenda and writes a log.
type task struct {
	upid       string
	node       string
	pid        int
	pstart     int64
	start      time.Time
	typ, id    string
	user       caller
	done       bool
	end        time.Time
	exit       string // exit status once done
	log        []string
	next       *event
	warnings   int
	onStop     func() string // undoes what is half done; its text is the exit status, "" = received interrupt
	noTaskLine bool
}

// newTask starts a worker on a node.
// newTask begins a task; one from before the node's start counts the time of that start by another, unknown one.
func (s *state) newTask(n *node, typ, id string, who caller) *task {
	s.pid += 7
	t := &task{node: n.name, pid: s.pid, pstart: int64(uint32(s.now.Sub(s.boot) / (10 * time.Millisecond))), start: s.now, typ: typ, id: id, user: who}
	t.upid = fmt.Sprintf("UPID:%s:%08X:%08X:%08X:%s:%s:%s:", n.name, t.pid, t.pstart, s.now.Unix(), typ, id, who.id())
	for s.byUPID[t.upid] != nil {
		t.pid++
		s.pid++
		t.upid = fmt.Sprintf("UPID:%s:%08X:%08X:%08X:%s:%s:%s:", n.name, t.pid, t.pstart, s.now.Unix(), typ, id, who.id())
	}
	s.tasks = append(s.tasks, t)
	s.byUPID[t.upid] = t
	if len(s.tasks) > 20000 {
		for _, old := range s.tasks[:10000] {
			delete(s.byUPID, old.upid)
		}
		s.tasks = append([]*task(nil), s.tasks[10000:]...)
	}
	return t
}

func (t *task) say(format string, args ...any) {
	t.log = append(t.log, strings.Split(fmt.Sprintf(format, args...), "\n")...)
}

func (t *task) warn(format string, args ...any) {
	t.warnings++
	t.say("WARN: "+format, args...)
}

// finish ends a task; "" is OK.
func (s *state) finish(t *task, failure string) {
	if t.done {
		return
	}
	t.done, t.end = true, s.now
	s.cancel(t.next)
	t.next = nil
	switch {
	case failure != "":
		t.exit = strings.SplitN(failure, "\n", 2)[0]
		t.say("TASK ERROR: %s", failure)
	case t.warnings > 0:
		t.exit = fmt.Sprintf("WARNINGS: %d", t.warnings)
		t.say("TASK WARNINGS: %d", t.warnings)
	default:
		t.exit = "OK"
		t.say("TASK OK")
	}
}

// work lets a task go on after d; an error of do ends it as failed. A step that schedules none ends it well.
func (s *state) work(t *task, d time.Duration, do func() error) {
	t.next = s.after(d, func() {
		if t.done {
			return
		}
		me := t.next
		if err := do(); err != nil {
			msg := err.Error()
			if f, ok := err.(*failure); ok {
				msg = f.Error()
			}
			s.finish(t, strings.TrimSuffix(msg, "\n"))
			return
		}
		if t.next == me {
			s.finish(t, "")
		}
	})
}

// quick is a task of one step; it gives the UPID.
func (c *call) quick(typ, id string, d time.Duration, do func(t *task) error) any {
	t := c.s.newTask(c.node, typ, id, c.user)
	c.s.work(t, d, func() error { return do(t) })
	return t.upid
}

// interrupt stops a running task as DELETE does.
func (s *state) interrupt(t *task) {
	if t.done {
		return
	}
	failure := "received interrupt"
	if t.onStop != nil {
		if text := t.onStop(); text != "" {
			failure = text
		}
	}
	if t.noTaskLine {
		t.done, t.end, t.exit = true, s.now, "unexpected status"
		s.cancel(t.next)
		return
	}
	s.finish(t, failure)
}

// info is a task in a list.
func (t *task) info() M {
	m := M{"upid": t.upid, "node": t.node, "pid": t.pid, "pstart": t.pstart, "starttime": t.start.Unix(), "type": t.typ, "id": t.id}
	t.who(m)
	return m
}

func (t *task) who(m M) {
	u, name := splitToken(t.user.id())
	m["user"] = u
	if name != "" {
		m["tokenid"] = name
	}
}

func (t *task) mine(c *call) bool {
	if t.user.id() == c.user.id() {
		return true
	}
	// A user sees what his tokens do; a token sees its own tasks only.
	return c.user.token == "" && t.user.user == c.user.user
}
