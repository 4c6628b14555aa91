package mcpserver

import (
	"container/list"
	"context"
	"fmt"
	"iter"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// events keeps what was sent to sessions, so that a client whose connection broke reads on where it was. The oldest goes
// first: of a session that has more than its share, and of all when there is more than the process may hold.
type events struct {
	perSession, inAll int // bytes

	mu       sync.Mutex
	used     int
	order    *list.List // of *event, oldest first
	sessions map[string]*journal
	closed   func(session string) // told outside of the lock
}

type event struct {
	session, stream string
	index           int
	data            []byte
}

// journal is what is kept of one session.
type journal struct {
	used    int
	order   *list.List               // of the elements of events.order
	streams map[string]*streamEvents // by stream
	opened  []string                 // streams by age, without the standing one
}

type streamEvents struct {
	first, next int             // indices kept: first ≤ i < next
	kept        []*list.Element // of events.order, by index
}

const (
	eventCost  = 128 // bytes of bookkeeping that an event counts beside its data
	maxStreams = 128 // kept of one session
)

func newEvents(perSession, inAll int) *events {
	return &events{perSession: perSession, inAll: inAll, order: list.New(), sessions: map[string]*journal{}}
}

// Open begins a stream.
func (e *events) Open(_ context.Context, session, stream string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stream(session, stream)
	return nil
}

// stream finds or begins one; mu is held.
func (e *events) stream(session, stream string) (*journal, *streamEvents) {
	j := e.sessions[session]
	if j == nil {
		j = &journal{order: list.New(), streams: map[string]*streamEvents{}}
		e.sessions[session] = j
	}
	s := j.streams[stream]
	if s == nil {
		s = &streamEvents{}
		j.streams[stream] = s
		if stream != "" {
			j.opened = append(j.opened, stream)
			if len(j.opened) > maxStreams {
				e.drop(j, j.opened[0])
			}
		}
	}
	return j, s
}

// drop forgets a stream with all that is kept of it; mu is held.
func (e *events) drop(j *journal, stream string) {
	if s := j.streams[stream]; s != nil {
		for len(s.kept) > 0 {
			e.forget(s.kept[0])
		}
		delete(j.streams, stream)
	}
	for i, name := range j.opened {
		if name == stream {
			j.opened = append(j.opened[:i], j.opened[i+1:]...)
			break
		}
	}
}

// forget takes the oldest event of its stream out; mu is held.
func (e *events) forget(at *list.Element) {
	ev := e.order.Remove(at).(*event)
	e.used -= len(ev.data) + eventCost
	j := e.sessions[ev.session]
	j.used -= len(ev.data) + eventCost
	for i := j.order.Front(); i != nil; i = i.Next() { // the oldest of a session stands in front
		if i.Value.(*list.Element) == at {
			j.order.Remove(i)
			break
		}
	}
	s := j.streams[ev.stream]
	s.kept, s.first = s.kept[1:], ev.index+1
}

// Append keeps what is sent on a stream.
func (e *events) Append(_ context.Context, session, stream string, data []byte) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	j, s := e.stream(session, stream)
	ev := &event{session: session, stream: stream, index: s.next, data: data}
	s.next++
	at := e.order.PushBack(ev)
	j.order.PushBack(at)
	s.kept = append(s.kept, at)
	e.used += len(data) + eventCost
	j.used += len(data) + eventCost
	for j.used > e.perSession && j.order.Len() > 0 {
		e.forget(j.order.Front().Value.(*list.Element))
	}
	for e.used > e.inAll && e.order.Len() > 0 {
		e.forget(e.order.Front())
	}
	return nil
}

// After gives what was sent on a stream after an index; -1: all that is still there. An index whose next event is gone is
// an error, since the client would miss something without knowing.
func (e *events) After(_ context.Context, session, stream string, index int) iter.Seq2[[]byte, error] {
	e.mu.Lock()
	var data [][]byte
	var err error
	switch s := e.of(session, stream); {
	case s == nil:
		err = fmt.Errorf("read events: there is no such stream")
	case index >= 0 && index+1 < s.first:
		err = fmt.Errorf("read events: %w", mcp.ErrEventsPurged)
	case index >= s.next:
		err = fmt.Errorf("read events: the stream has no event %d yet", index)
	default:
		for _, at := range s.kept {
			if ev := at.Value.(*event); ev.index > index {
				data = append(data, ev.data)
			}
		}
	}
	e.mu.Unlock()
	return func(yield func([]byte, error) bool) {
		if err != nil {
			yield(nil, err)
			return
		}
		for _, d := range data {
			if !yield(d, nil) {
				return
			}
		}
	}
}

func (e *events) of(session, stream string) *streamEvents {
	if j := e.sessions[session]; j != nil {
		return j.streams[stream]
	}
	return nil
}

// SessionClosed forgets a session.
func (e *events) SessionClosed(_ context.Context, session string) error {
	e.mu.Lock()
	if j := e.sessions[session]; j != nil {
		for stream := range j.streams {
			e.drop(j, stream)
		}
		delete(e.sessions, session)
	}
	e.mu.Unlock()
	if e.closed != nil {
		e.closed(session)
	}
	return nil
}

var _ mcp.EventStore = (*events)(nil)
