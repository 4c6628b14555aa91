package channel

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
)

const (
	dialLimit  = 4 * time.Second  // of TCP, for each address
	helloLimit = 10 * time.Second // of the SSH handshake
	keepAlive  = 15 * time.Second
	idleLimit  = 5 * time.Minute
	// perLink is below the ten sessions that an sshd takes over one connection; mostLinks bounds the connections to one guest.
	perLink   = 8
	mostLinks = 4
)

// way is the way to one guest: a few kept connections, made one at a time.
type way struct {
	id     string
	record uint64
	key    string
	kept   bool          // the channel is enrolled, not tried out
	turn   chan struct{} // of whoever connects
	seats  chan struct{} // of words under way

	mu    sync.Mutex
	links []*link
	last  netip.Addr // where it was found last, when not at its enrolled address
	seen  time.Time  // its answer was last written down
	ended bool
}

// link is one connection.
type link struct {
	client *ssh.Client
	at     netip.AddrPort
	meter  *meter
	done   chan struct{} // closed when it has ended
	once   sync.Once

	// By the way's mutex.
	busy int
	most int
	used time.Time
}

func newWay(e *Entry) *way {
	return &way{id: e.ID(), record: e.Record, key: e.PublicKey, kept: e.Record > 0, turn: make(chan struct{}, 1), seats: make(chan struct{}, perLink*mostLinks)}
}

func (l *link) close() {
	l.once.Do(func() { close(l.done) })
	_ = l.client.Close() // it is over in any case
}

func (w *way) close() {
	w.mu.Lock()
	w.ended = true
	links := w.links
	w.links = nil
	w.mu.Unlock()
	for _, l := range links {
		l.close()
	}
}

// drop ends one connection.
func (w *way) drop(l *link) {
	w.mu.Lock()
	w.links = slices.DeleteFunc(w.links, func(x *link) bool { return x == l })
	w.mu.Unlock()
	l.close()
}

// free gives a connection with room for one more word; nil where there is none.
func (w *way) free() *link {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.links {
		if l.busy < l.most {
			l.busy++
			return l
		}
	}
	return nil
}

// release gives the place back. crowded says that the guest took no further word over this connection.
func (w *way) release(l *link, crowded bool, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l.busy--
	l.used = now
	if crowded {
		l.most = max(1, l.busy)
	}
}

// take gives a connection with a place on it, connecting where there is none. leave must be called.
func (c *Channels) take(ctx context.Context, w *way, e *Entry) (*link, func(crowded bool), error) {
	select {
	case w.seats <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	l, err := c.place(ctx, w, e)
	if err != nil {
		<-w.seats
		return nil, nil, err
	}
	return l, func(crowded bool) {
		w.release(l, crowded, c.now())
		<-w.seats
	}, nil
}

func (c *Channels) place(ctx context.Context, w *way, e *Entry) (*link, error) {
	if l := w.free(); l != nil {
		return l, nil
	}
	select {
	case w.turn <- struct{}{}:
		defer func() { <-w.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	for {
		if l := w.free(); l != nil { // another has made it meanwhile
			return l, nil
		}
		w.mu.Lock()
		full := len(w.links) >= mostLinks
		w.mu.Unlock()
		if !full {
			break
		}
		select { // the guest takes fewer words at once than it should
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	l, err := c.connect(ctx, w, e)
	if err != nil {
		return nil, err
	}
	l.busy, l.most, l.used = 1, perLink, c.now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		go l.close()
		return nil, errors.New("the channel was replaced or closed meanwhile")
	}
	w.links = append(w.links, l)
	go c.watch(w, l)
	return l, nil
}

// watch ends a connection that is dead, or that nobody has used for a while.
func (c *Channels) watch(w *way, l *link) {
	gone := make(chan struct{})
	go func() {
		_ = l.client.Wait() // how it ended, whoever used it says
		close(gone)
	}()
	defer w.drop(l)
	tick := time.NewTicker(keepAlive)
	defer tick.Stop()
	for {
		select {
		case <-gone:
			return
		case <-l.done:
			return
		case <-tick.C:
		}
		w.mu.Lock()
		idle := l.busy == 0 && c.now().Sub(l.used) > idleLimit
		w.mu.Unlock()
		if idle {
			return
		}
		l.meter.allow(allowAlive)
		answered := make(chan error, 1)
		go func() {
			_, _, err := l.client.SendRequest("keepalive@openssh.com", true, nil)
			answered <- err
		}()
		select {
		case err := <-answered:
			if err != nil {
				return
			}
		case <-gone:
			return
		case <-l.done:
			return
		case <-time.After(keepAlive):
			return
		}
	}
}

// connect tries the enrolled address first, then those where Proxmox sees the guest now. Only a server with a pinned host key
// is believed to be the guest, wherever it is.
func (c *Channels) connect(ctx context.Context, w *way, e *Entry) (*link, error) {
	own, err := c.own()
	if err != nil {
		return nil, err
	}
	enrolled, err := netip.ParseAddr(e.Address)
	if err != nil && e.Address != "" {
		return nil, &UnreachableError{Tried: []string{clip(e.Address, 60) + ": it is no address"}}
	}
	w.mu.Lock()
	last := w.last
	w.mu.Unlock()
	tries := search{c: c, e: e, own: own}
	for _, a := range []netip.Addr{last, enrolled} {
		if !a.IsValid() {
			continue
		}
		if l, err := tries.at(ctx, a); l != nil || err != nil {
			return l, err
		}
	}
	if e.Addresses != nil && ctx.Err() == nil {
		now, err := e.Addresses(ctx)
		if err != nil {
			tries.tried = append(tries.tried, "Proxmox does not tell where it is now: "+clip(err.Error(), 200))
		}
		// What a guest reports leads to no server of castellan's, and what is found there is not told: else a guest and an agent
		// could have castellan look around. At its enrolment a person does.
		if tries.told = w.kept; tries.told {
			tries.own = append(slices.Clone(own), c.barred.Addresses(ctx)...)
		}
		for _, a := range now[:min(len(now), mostAddresses)] {
			l, err := tries.at(ctx, a)
			if l != nil {
				w.mu.Lock()
				w.last = a
				w.mu.Unlock()
			}
			if l != nil || err != nil {
				return l, err
			}
		}
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if tries.other != nil {
		return nil, tries.other
	}
	return nil, &UnreachableError{Tried: tries.tried}
}

// search is the search for a guest.
type search struct {
	c     *Channels
	e     *Entry
	own   []netip.Addr
	seen  []netip.Addr
	tried []string
	other *HostKeyError // of the first server that was another
	told  bool          // by the guest: why an address is none of its own stays untold
}

// at tries one address; neither a link nor an error says that the next may be tried.
func (s *search) at(ctx context.Context, a netip.Addr) (*link, error) {
	a = a.Unmap()
	if slices.Contains(s.seen, a) || ctx.Err() != nil {
		return nil, nil
	}
	s.seen = append(s.seen, a)
	to := netip.AddrPortFrom(a, uint16(s.e.Port))
	if why := Forbidden(a, s.own); why != "" {
		s.not(to, "not tried, "+why)
		return nil, nil
	}
	l, err := s.c.handshake(ctx, s.e, to)
	if err == nil {
		return l, nil
	}
	var refused *KeyRefusedError
	if errors.As(err, &refused) {
		return nil, err // it is the guest: no other address is better
	}
	var other *HostKeyError
	if errors.As(err, &other) && s.other == nil && !s.told {
		s.other = other
	}
	s.not(to, clip(err.Error(), 200))
	return nil, nil
}

// not writes down that the guest is not there.
func (s *search) not(to netip.AddrPort, why string) {
	if s.told {
		why = "it does not answer there"
	}
	s.tried = append(s.tried, to.String()+": "+why)
}

// handshake connects to one address. castellan's key is offered only after the server has proved that it has a pinned one.
func (c *Channels) handshake(ctx context.Context, e *Entry, to netip.AddrPort) (*link, error) {
	var pins []ssh.PublicKey
	var algorithms []string
	for _, text := range e.HostKeys {
		k, err := parseKey(text)
		if err != nil {
			return nil, err
		}
		pins = append(pins, k)
		if k.Type() == ssh.KeyAlgoRSA {
			algorithms = append(algorithms, ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256)
		} else {
			algorithms = append(algorithms, k.Type())
		}
	}
	if len(pins) == 0 {
		return nil, errors.New("no host key is pinned")
	}
	signer, err := ssh.NewSignerFromKey(e.key)
	if err != nil {
		return nil, err
	}
	dialing, stop := context.WithTimeout(ctx, dialLimit)
	tcp, err := c.dial(dialing, to)
	stop()
	if err != nil {
		return nil, plainDial(err)
	}
	ctx, cancel := context.WithTimeout(ctx, helloLimit)
	defer cancel()
	ending := context.AfterFunc(ctx, func() { tcp.Close() })
	var other *HostKeyError
	proved := false
	m := newMeter(tcp)
	conn, channels, requests, err := ssh.NewClientConn(m, to.String(), &ssh.ClientConfig{
		User: e.Account, Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)}, HostKeyAlgorithms: algorithms, ClientVersion: "SSH-2.0-castellan",
		HostKeyCallback: func(_ string, _ net.Addr, key ssh.PublicKey) error {
			if slices.ContainsFunc(pins, func(p ssh.PublicKey) bool { return string(p.Marshal()) == string(key.Marshal()) }) {
				proved = true
				return nil
			}
			other = &HostKeyError{Address: to.String(), Got: clip(key.Type(), 40) + " " + ssh.FingerprintSHA256(key)}
			return other
		},
	})
	ending()
	if err == nil {
		return &link{client: ssh.NewClient(conn, channels, requests), at: to, meter: m, done: make(chan struct{})}, nil
	}
	tcp.Close()
	switch {
	case other != nil:
		return nil, other
	case strings.Contains(err.Error(), "no common algorithm for host key"):
		return nil, &HostKeyError{Address: to.String(), Got: "of another kind"}
	case proved && strings.Contains(err.Error(), "unable to authenticate"):
		return nil, &KeyRefusedError{Address: to.String(), From: e.From}
	case ctx.Err() != nil:
		return nil, errors.New("it does not answer as an sshd within " + helloLimit.String())
	}
	return nil, errors.New(clip(err.Error(), 200))
}

// plainDial leaves out of an error what is said anyway.
func plainDial(err error) error {
	var op *net.OpError
	if errors.As(err, &op) && op.Err != nil {
		return op.Err
	}
	return err
}
