package front

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
)

// share gives out something of which there is only so much, so that no single address can have it all. Of IPv6 a whole
// /64 counts as one, since one machine has all of that.
type share struct {
	each, all int64

	mu   sync.Mutex
	used int64
	by   map[netip.Prefix]int64
}

func newShare(each, all int64) *share {
	return &share{each: each, all: all, by: map[netip.Prefix]int64{}}
}

// network is how an address counts; all that are unknown count as one.
func network(a netip.Addr) netip.Prefix {
	a = a.Unmap().WithZone("")
	bits := 64
	if a.Is4() {
		bits = 32
	}
	p, _ := a.Prefix(bits) // of an invalid address: the zero prefix
	return p
}

// take takes n for an address, or nothing.
func (s *share) take(p netip.Prefix, n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used+n > s.all || s.by[p]+n > s.each {
		return false
	}
	s.used += n
	s.by[p] += n
	return true
}

func (s *share) give(p netip.Prefix, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used -= n
	if s.by[p] -= n; s.by[p] == 0 {
		delete(s.by, p)
	}
}

// metered is a body whose bytes count until done, since whoever reads it keeps them.
type metered struct {
	io.ReadCloser
	s *share
	p netip.Prefix
	n int64
}

var errBusy = errors.New("too many bodies are under way")

func (s *share) meter(r *http.Request) *metered {
	ap, _ := netip.ParseAddrPort(r.RemoteAddr) // the zero address is what all unknown share
	return &metered{ReadCloser: r.Body, s: s, p: network(ap.Addr())}
}

// Read counts what it has read.
func (m *metered) Read(b []byte) (int, error) {
	n, err := m.ReadCloser.Read(b)
	if n > 0 && !m.s.take(m.p, int64(n)) {
		return 0, errBusy
	}
	m.n += int64(n)
	return n, err
}

func (m *metered) done() { m.s.give(m.p, m.n) }

// limited bounds the open connections: the next one waits to be accepted. One of an address that has its share already is
// closed at once. Proxies and this machine speak for many, so only the whole bounds them.
type limited struct {
	net.Listener
	slots  chan struct{}
	shares *share
	many   func(netip.Addr) bool
}

// Accept waits for a connection and for room for it.
func (l limited) Accept() (net.Conn, error) {
	l.slots <- struct{}{}
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			<-l.slots
			return nil, err
		}
		free := func() { <-l.slots }
		if ap, err := netip.ParseAddrPort(c.RemoteAddr().String()); err == nil && !l.many(ap.Addr().Unmap()) {
			p := network(ap.Addr())
			if !l.shares.take(p, 1) {
				_ = c.Close()
				continue
			}
			free = func() {
				l.shares.give(p, 1)
				<-l.slots
			}
		}
		return &counted{Conn: c, free: sync.OnceFunc(free)}, nil
	}
}

type counted struct {
	net.Conn
	free func()
}

// Close makes room for another.
func (c *counted) Close() error {
	defer c.free()
	return c.Conn.Close()
}
