package channel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"castellan/internal/patch"
)

const (
	// MaxAnswer bounds what is read of an answer, in bytes.
	MaxAnswer = 1 << 20
	maxSaid   = 4 << 10  // of standard error that is kept
	maxErrors = 64 << 10 // of standard error
	closing   = time.Second
)

// Ask sends one of the fixed words into a guest, with what it reads, and gives what it answers. limit bounds all of it; the
// errors are those of this package, or the context's. A word that ended otherwise than well gives its answer with an *EndError.
func (c *Channels) Ask(ctx context.Context, e *Entry, word patch.Word, stdin []byte, limit time.Duration) ([]byte, error) {
	if !slices.Contains(patch.Words(), word) {
		return nil, fmt.Errorf("ask guest: %q is no word of the channel", clip(string(word), 40))
	}
	w, err := c.of(e)
	if err != nil {
		return nil, &CutError{Cause: err}
	}
	return c.ask(ctx, w, e, word, stdin, limit)
}

func (c *Channels) ask(ctx context.Context, w *way, e *Entry, word patch.Word, stdin []byte, limit time.Duration) ([]byte, error) {
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for try := 0; ; try++ {
		l, leave, err := c.take(limited, w, e)
		if err != nil {
			if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
				return nil, &UnreachableError{Tried: []string{fmt.Sprintf("no connection within %s", limit)}}
			}
			return nil, err
		}
		s := &talk{w: w, l: l, limit: limit, began: began}
		out, err := s.ask(limited, ctx, word, stdin)
		leave(s.crowded)
		var cut *CutError
		switch {
		case err == nil:
			c.saw(ctx, w)
			return out, nil
		case s.crowded && try < 6, errors.As(err, &cut) && !cut.Started && try == 0 && ctx.Err() == nil:
			continue // the kept connection was dead, or full: the guest has not seen the word
		}
		return out, err
	}
}

// talk is one word over one connection.
type talk struct {
	w       *way
	l       *link
	limit   time.Duration
	began   time.Time
	crowded bool // the guest took no further session over this connection
}

// gathered reads an output, up to a bound.
type gathered struct {
	mu    sync.Mutex
	b     []byte
	most  int // kept
	total int // then it is too much
	n     int
	over  chan struct{}
	once  sync.Once
}

func (g *gathered) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.n += len(p)
	g.b = append(g.b, p[:max(0, min(len(p), g.most-len(g.b)))]...)
	if g.n > g.total {
		g.once.Do(func() { close(g.over) })
		return 0, io.ErrShortWrite
	}
	return len(p), nil
}

func (g *gathered) bytes() ([]byte, int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.b), g.n
}

// ask opens a session, starts the word and reads its answer. limited ends with the limit, whole with whoever asked.
func (s *talk) ask(limited, whole context.Context, word patch.Word, stdin []byte) ([]byte, error) {
	type opened struct {
		session *ssh.Session
		err     error
	}
	s.l.meter.allow(allowWord)
	ready := make(chan opened, 1)
	go func() {
		session, err := s.l.client.NewSession()
		ready <- opened{session, err}
	}()
	var session *ssh.Session
	select {
	case o := <-ready:
		if o.err != nil {
			var full *ssh.OpenChannelError
			if errors.As(o.err, &full) {
				s.crowded = true
				return nil, &EndError{Code: -1, Said: "the guest takes no further word over one connection: " + clip(full.Message, 100)}
			}
			s.w.drop(s.l)
			return nil, &CutError{Cause: o.err}
		}
		session = o.session
	case <-limited.Done():
		s.w.drop(s.l)
		return nil, s.late(whole, 0)
	}
	out := &gathered{most: MaxAnswer, total: MaxAnswer, over: make(chan struct{})}
	said := &gathered{most: maxSaid, total: maxErrors, over: make(chan struct{})}
	session.Stdout, session.Stderr = out, said
	in, err := session.StdinPipe()
	if err != nil {
		session.Close()
		return nil, &CutError{Cause: err}
	}
	ended := make(chan error, 1)
	started := make(chan struct{})
	go func() {
		if err := session.Start(string(word)); err != nil {
			ended <- err
			return
		}
		close(started)
		go func() {
			_, _ = in.Write(stdin) // a word need not read it
			_ = in.Close()
		}()
		ended <- session.Wait()
	}()
	select {
	case err = <-ended:
	case <-out.over:
		s.w.drop(s.l)
		return nil, &TooMuchError{Most: MaxAnswer}
	case <-said.over:
		s.w.drop(s.l)
		return nil, &TooMuchError{Most: maxErrors}
	case <-limited.Done():
		return nil, s.leave(whole, session, ended, out)
	}
	begun := false
	select {
	case <-started:
		begun = true
	default:
	}
	session.Close()
	for _, g := range []*gathered{out, said} { // it may have ended just then
		select {
		case <-g.over:
			s.w.drop(s.l)
			return nil, &TooMuchError{Most: g.total}
		default:
		}
	}
	answer, _ := out.bytes()
	words, _ := said.bytes()
	text := clip(string(words), 600)
	var exit *ssh.ExitError
	var missing *ssh.ExitMissingError
	switch {
	case err == nil:
		return answer, nil
	case errors.As(err, &exit) && exit.Signal() != "":
		return answer, &EndError{Code: -1, Signal: clip(exit.Signal(), 20), Said: text}
	case errors.As(err, &exit):
		return answer, &EndError{Code: exit.ExitStatus(), Said: text}
	case errors.As(err, &missing):
		s.w.drop(s.l) // sshd was ended, or the guest plays a game
		return nil, &CutError{Started: begun, Cause: errors.New("it ended without telling how")}
	}
	s.w.drop(s.l)
	return nil, &CutError{Started: begun, Cause: errors.New(clip(err.Error(), 200))}
}

// leave ends a word that nobody waits for any more, or that took too long. A guest that does not end it loses the connection.
func (s *talk) leave(whole context.Context, session *ssh.Session, ended <-chan error, out *gathered) error {
	_, n := out.bytes()
	go session.Close() // what runs in the guest is told by the end of its session
	select {
	case <-ended:
	case <-time.After(closing):
		s.w.drop(s.l)
	}
	return s.late(whole, n)
}

func (s *talk) late(whole context.Context, n int) error {
	if whole.Err() != nil {
		return whole.Err()
	}
	return &SlowError{After: s.limit, Bytes: n}
}

// Try sends a word to a guest that is not enrolled yet, over a connection of its own: at its address, or the first of the
// addresses that Proxmox tells where it is found. It gives the address.
func (c *Channels) Try(ctx context.Context, e *Entry, word patch.Word, limit time.Duration) (netip.Addr, []byte, error) {
	if !slices.Contains(patch.Words(), word) {
		return netip.Addr{}, nil, fmt.Errorf("ask guest: %q is no word of the channel", clip(string(word), 40))
	}
	w := newWay(e)
	w.kept = false
	defer w.close()
	out, err := c.ask(ctx, w, e, word, nil, limit)
	if err != nil && len(out) == 0 {
		return netip.Addr{}, nil, err
	}
	at, ok := w.where()
	if !ok {
		return netip.Addr{}, nil, &CutError{Started: true, Cause: errors.New("it ended just then")}
	}
	return at, out, err
}

// where is the address of a connection that is there.
func (w *way) where() (netip.Addr, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.links) == 0 {
		return netip.Addr{}, false
	}
	return w.links[0].at.Addr(), true
}

// The bounds of Reach.
const (
	mostPorts  = 32
	reachLimit = 1500 * time.Millisecond
	reachTurns = 8
)

// Reach connects to TCP ports of the guest itself, at the address where it has proved who it is, and says which took the
// connection; nothing is sent to them. Ports beyond a bound are not tried and are not in the answer.
func (c *Channels) Reach(ctx context.Context, e *Entry, ports []int) (map[int]bool, error) {
	w, err := c.of(e)
	if err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, dialLimit+helloLimit)
	l, leave, err := c.take(limited, w, e)
	cancel()
	if err != nil {
		return nil, err
	}
	at := l.at.Addr()
	leave(false)
	ports = slices.Compact(slices.Sorted(slices.Values(ports)))
	out := map[int]bool{}
	var mu sync.Mutex
	var group sync.WaitGroup
	turns := make(chan struct{}, reachTurns)
	tried := 0
	for _, p := range ports {
		if p < 1 || p > 65535 {
			continue
		}
		if tried++; tried > mostPorts {
			break
		}
		group.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			dialing, stop := context.WithTimeout(ctx, reachLimit)
			defer stop()
			conn, err := c.dial(dialing, netip.AddrPortFrom(at, uint16(p)))
			if err == nil {
				conn.Close()
			}
			mu.Lock()
			defer mu.Unlock()
			out[p] = err == nil
		})
	}
	group.Wait()
	return out, ctx.Err()
}
