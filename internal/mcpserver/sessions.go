package mcpserver

import (
	"errors"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// sessions knows who owns which session of clients that need one. A session that is not in it is dead or was never there.
type sessions struct {
	most, each int // of all, and of one owner

	mu   sync.Mutex
	byID map[string]*session
}

type session struct {
	owner  string
	live   *mcp.ServerSession
	used   time.Time
	active int // requests under way
}

var errSessionsFull = errors.New("too many sessions are open: close one, or try again later")

// add takes a new session in. Where its owner has its share already, its own that was idle for longest goes; where all
// are taken, the one of anybody that was.
func (s *sessions) add(live *mcp.ServerSession, owner string) error {
	var gone *mcp.ServerSession
	s.mu.Lock()
	mine := 0
	for _, o := range s.byID {
		if o.owner == owner {
			mine++
		}
	}
	full := false
	if mine >= s.each {
		gone, full = s.idlest(owner), true
	} else if len(s.byID) >= s.most {
		if gone = s.idlest(owner); gone == nil {
			gone = s.idlest("")
		}
		full = true
	}
	if gone != nil {
		delete(s.byID, gone.ID())
	}
	if full && gone == nil {
		s.mu.Unlock()
		return errSessionsFull
	}
	s.byID[live.ID()] = &session{owner: owner, live: live, used: time.Now(), active: 1}
	s.mu.Unlock()
	if gone != nil {
		go gone.Close() // it waits for calls whose client has gone; the session is not to be found any more
	}
	return nil
}

// idlest finds the session of an owner (empty: of anybody) that nothing is under way on and that was not used for
// longest; mu is held.
func (s *sessions) idlest(owner string) *mcp.ServerSession {
	var found *session
	for _, o := range s.byID {
		if o.active == 0 && (owner == "" || o.owner == owner) && (found == nil || o.used.Before(found.used)) {
			found = o
		}
	}
	if found == nil {
		return nil
	}
	return found.live
}

// enter begins a request on a session of this owner; leave ends it. One of somebody else is not there. A request that only
// listens does not keep a session from making room.
func (s *sessions) enter(id, owner string, works bool) (leave func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.byID[id]
	if o == nil || o.owner != owner {
		return nil, false
	}
	o.used = time.Now()
	if !works {
		return func() {}, true
	}
	o.active++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		o.active--
		o.used = time.Now()
	}, true
}

// begun ends the request that made a session.
func (s *sessions) begun(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.byID[id]; o != nil {
		o.active--
	}
}

func (s *sessions) drop(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byID, id)
}

func (s *sessions) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.byID)
}

// closeAll ends every session, and waits for what still runs on them for limit at most.
func (s *sessions) closeAll(limit time.Duration) {
	s.mu.Lock()
	all := s.byID
	s.byID = map[string]*session{}
	s.mu.Unlock()
	var group sync.WaitGroup
	for _, o := range all {
		group.Go(func() { _ = o.live.Close() }) // nobody is left to be told
	}
	done := make(chan struct{})
	go func() {
		group.Wait()
		close(done)
	}()
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	}
}
