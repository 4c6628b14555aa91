package local

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"castellan/internal/gate"
)

// Gate is what the command line may ask of the daemon's gate.
type Gate interface {
	Do(ctx context.Context, c gate.Call, p gate.Progress) (*gate.Outcome, error)
	Confirm(ctx context.Context, who gate.Principal, id string, e gate.Evidence, p gate.Progress) (*gate.Outcome, error)
	Kill(ctx context.Context, who gate.Principal, on bool) error
	Arm(ctx context.Context, who gate.Principal, until time.Time) error
	Switches(ctx context.Context) (gate.Switches, error)
}

// People approve. A nil one means that this daemon knows no people.
type People interface {
	// SignIn checks a password and returns a session for this connection only.
	SignIn(ctx context.Context, from Peer, person, password string) (session string, who gate.Principal, err error)
	SignOut(ctx context.Context, session string)
	Show(ctx context.Context, who gate.Principal, plan string) (*gate.PlanView, error)
	Approve(ctx context.Context, session, plan string, newer bool) (*gate.PlanView, error)
	Deny(ctx context.Context, session, plan, why string) error
}

// Config is what a Server is made of.
type Config struct {
	Path string // of the socket; its folder must be there
	Gate Gate
	// Agents are the accounts that are served, each with the agent that its processes are taken for.
	Agents map[string]string
	People People
	// MCP serves one client on in and out until one of them ends or ctx does.
	MCP func(ctx context.Context, who gate.Principal, h Hello, in io.Reader, out io.Writer) error
	// Checksum is that of a toolset.
	Checksum func(who gate.Principal, toolset []string) (string, error)
	// Separate says whether the daemon is out of reach of those whom it serves.
	Separate func() bool
	// Refused is told of peers that are not served.
	Refused  func(ctx context.Context, p Peer)
	Accounts Accounts
	Log      *slog.Logger
}

// Server serves the socket.
type Server struct {
	c     Config
	mu    sync.Mutex
	perID map[int]int // connections by user
}

// Bounds of the connections at the same time.
const (
	maxConnections = 256
	maxPerAccount  = 64
	maxPerStranger = 4
	greeting       = 10 * time.Second // within which the first line must come
)

// New checks the configuration; Run opens the socket.
func New(c Config) (*Server, error) {
	if c.Path == "" || c.Gate == nil || c.MCP == nil || c.Checksum == nil {
		return nil, errors.New("make socket: a path, a gate and a way to serve MCP are needed")
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Separate == nil {
		c.Separate = func() bool { return false }
	}
	return &Server{c: c, perID: map[int]int{}}, nil
}

// Listen opens the socket. One that a process before this one left behind is taken away; one that answers is not.
func (s *Server) Listen() (net.Listener, error) {
	path := s.c.Path
	if fault := above(filepath.Dir(path), os.Geteuid()); fault != "" {
		return nil, fmt.Errorf("open socket %s: %s: others could put a socket of their own in its place and read passwords", path, fault)
	}
	if info, err := os.Lstat(path); err == nil {
		if info.Mode()&os.ModeSocket == 0 {
			return nil, fmt.Errorf("open socket %s: something else lies there", path)
		}
		if c, err := net.DialTimeout("unix", path, time.Second); err == nil {
			_ = c.Close()
			return nil, fmt.Errorf("open socket %s: another daemon serves it; stop that one, or set daemon.socket to another path", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("open socket: take the old one away: %w", err)
		}
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("open socket: %w", err)
	}
	// Anybody may connect; who is served is decided by the account, which the kernel tells.
	if err := os.Chmod(path, 0o666); err != nil {
		return nil, errors.Join(fmt.Errorf("open socket: %w", err), l.Close())
	}
	return l, nil
}

// Run serves l until ctx ends, and returns when every connection has ended.
func (s *Server) Run(ctx context.Context, l net.Listener) error {
	var group sync.WaitGroup
	defer group.Wait()
	defer l.Close() // once more does no harm, and the path is gone when Run returns
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	slots := make(chan struct{}, maxConnections)
	pause := time.Millisecond
	for {
		c, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = c.Close()
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("serve socket: %w", err)
		case err != nil: // too many open files: it passes
			s.c.Log.Warn("accept on the socket", "error", err)
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
			pause = min(2*pause, time.Second)
			continue
		}
		pause = time.Millisecond
		select {
		case slots <- struct{}{}:
			group.Go(func() {
				defer func() { <-slots }()
				s.connection(ctx, c)
			})
		default:
			go refuse(c, gate.Fail(gate.ErrUnavailable, "Try again when others have ended.", "the daemon serves %d connections and takes no more", maxConnections))
		}
	}
}

// refuse answers a greeting with an error, without reading it.
func refuse(c net.Conn, e *gate.Error) {
	_ = c.SetDeadline(time.Now().Add(time.Second))
	_ = (&lines{w: c}).write(Welcome{Error: e}) // whoever does not read it has lost it
	if u, ok := c.(*net.UnixConn); ok {
		_ = u.CloseWrite()
		_, _ = io.CopyN(io.Discard, c, maxHello) // closing with unread bytes would take the answer away
	}
	_ = c.Close()
}

// connection serves one peer.
func (s *Server) connection(ctx context.Context, c net.Conn) {
	defer c.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p, err := peerOf(c, s.c.Accounts)
	if err != nil {
		s.c.Log.Warn("ask who is at the socket", "error", err)
		refuse(c, gate.Fail(gate.ErrDenied, "", "the daemon cannot tell which account this is"))
		return
	}
	agent, served := s.c.Agents[p.Account]
	served = served && p.Account != ""
	if !s.enter(p.UID, served) {
		if served {
			refuse(c, gate.Fail(gate.ErrUnavailable, "End some of them.", "the account has %d connections and gets no more", maxPerAccount))
		}
		return
	}
	defer s.leave(p.UID)
	if !served {
		s.c.Log.Warn("refused at the socket", "uid", p.UID)
		if s.c.Refused != nil {
			s.c.Refused(ctx, p)
		}
		refuse(c, gate.Fail(gate.ErrDenied, "Whoever runs the daemon names the accounts that it serves in daemon.accounts.", "the account %q (%d) is not served on this socket", p.Account, p.UID))
		return
	}
	_ = c.SetReadDeadline(time.Now().Add(greeting))
	r := bufio.NewReader(c)
	w := &lines{w: c}
	var h Hello
	if err := readJSON(r, maxHello, &h); err != nil {
		_ = w.write(Welcome{Error: gate.Fail(gate.ErrInvalid, "castellan serve and the commands of castellan speak to this socket.", "no greeting was understood: %v", err)})
		return
	}
	_ = c.SetReadDeadline(time.Time{})
	who := gate.Principal{Agent: agent, Person: p.Account, WayIn: "mcp-stdio", Strength: gate.StrengthPeer}
	welcome := Welcome{Account: p.Account, Agent: agent, Separate: s.c.Separate()}
	if welcome.Error = s.greet(&welcome, who, h); welcome.Error != nil || h.Checksum {
		_ = w.write(welcome)
		return
	}
	if err := w.write(welcome); err != nil {
		return
	}
	stop := context.AfterFunc(ctx, func() {
		_ = c.SetReadDeadline(time.Now())
		_ = c.SetWriteDeadline(time.Now().Add(2 * time.Second)) // a client that does not read holds nobody up
	})
	defer stop()
	if h.Kind == KindMCP {
		if err := s.c.MCP(ctx, who, h, r, w.w); err != nil {
			s.c.Log.Warn("serve a client on the socket", "account", p.Account, "error", err)
		}
		return
	}
	who.WayIn = "socket"
	(&calls{s: s, who: who, peer: p, planOnly: h.PlanOnly, w: w}).serve(ctx, r)
}

// greet answers what a greeting asks for.
func (s *Server) greet(w *Welcome, who gate.Principal, h Hello) *gate.Error {
	switch {
	case h.Castellan != protocol:
		return gate.Fail(gate.ErrInvalid, "Use the same version of castellan on both sides.", "the client speaks version %d of the socket's protocol, this daemon %d", h.Castellan, protocol)
	case !slices.Contains([]string{KindMCP, KindCalls}, h.Kind):
		return gate.Fail(gate.ErrInvalid, "", "there is no connection of kind %.40q", h.Kind)
	case h.Kind != KindMCP:
		return nil
	}
	sum, err := s.c.Checksum(who, h.Toolset)
	if err != nil {
		return gate.Fail(gate.ErrInvalid, "castellan serve --help names the toolsets.", "%v", err)
	}
	if h.Checksum {
		w.Checksum = sum
	}
	if h.Pin != "" && h.Pin != sum {
		return gate.Fail(gate.ErrDenied, "Read what the tools say now (docs/reference.md); if that is right, pin the new checksum.",
			"the toolset has the checksum %s, but %.80q is pinned: nothing is served", sum, h.Pin)
	}
	return nil
}

// enter counts a connection in. Who is not served gets few at a time: each only hears that it is not.
func (s *Server) enter(uid int, served bool) bool {
	most := maxPerAccount
	if !served {
		most = maxPerStranger
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.perID[uid] >= most {
		return false
	}
	s.perID[uid]++
	return true
}

func (s *Server) leave(uid int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.perID[uid]--; s.perID[uid] == 0 {
		delete(s.perID, uid)
	}
}
