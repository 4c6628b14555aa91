package guest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"castellan/internal/frame"
	"castellan/internal/seal"
)

// line is a bridge that has said hello.
type line interface {
	self() *frame.Self
	// ask sends one ask and waits for its end; errors are *cutError.
	ask(ctx context.Context, a frame.Ask, live func([]byte)) (frame.Tell, error)
	ended() error // why it can be used no more
	close(error)
	retire() // takes no new ask: what goes on over it ends it
}

// cutError is an ask whose end was not told.
type cutError struct {
	before  bool // no byte of it was sent, or nobody has read it
	started bool // the bridge had said that it runs
	cause   error
}

func (e *cutError) Error() string { return e.cause.Error() }
func (e *cutError) Unwrap() error { return e.cause }

// BridgesConfig is what Bridges are made from.
type BridgesConfig struct {
	Settings Settings
	Targets  []string                               // names of the targets that can have bridges
	Secrets  func(path string) (seal.Secret, error) // opens secret files; default seal.Open
	ReadFile func(path string) ([]byte, error)      // reads public files; default os.ReadFile
	Log      *slog.Logger
}

// Bridges are the ways to the nodes. It is safe for concurrent use; connections are made when they are needed and kept.
type Bridges struct {
	all []*bridge
	log *slog.Logger
}

// NewBridges checks the settings and opens what they name. No connection is made.
func NewBridges(c BridgesConfig) (*Bridges, error) {
	if c.Secrets == nil {
		c.Secrets = seal.Open
	}
	if c.ReadFile == nil {
		c.ReadFile = os.ReadFile
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if err := c.Settings.Validate(c.Targets); err != nil {
		return nil, err
	}
	out := &Bridges{log: c.Log}
	problems := &SettingsError{}
	for i, set := range c.Settings.Bridges {
		b := &bridge{set: set, seats: make(chan struct{}, set.parallel()), turn: make(chan struct{}, 1), secrets: c.Secrets}
		var err error
		if set.URL != "" {
			b.http, err = newHTTPWay(set, c.Secrets, c.ReadFile)
		} else {
			b.ssh, err = newSSHWay(set, c.Secrets)
		}
		if err == nil && set.RootSecretFile != "" {
			_, err = b.rootSecret()
		}
		if err != nil {
			problems.add(fmt.Sprintf("bridge[%d]", i), "%v", err)
			continue
		}
		out.all = append(out.all, b)
	}
	if len(problems.Problems) > 0 {
		return nil, problems
	}
	return out, nil
}

// Close ends all connections. What runs on the nodes goes on.
func (b *Bridges) Close() {
	for _, x := range b.all {
		x.drop(errors.New("castellan ends"))
	}
}

func (b *Bridges) of(target, node string) *bridge {
	for _, x := range b.all {
		if x.set.Target == target && x.set.Node == node {
			return x
		}
	}
	return nil
}

// nodes lists the nodes of a target that have bridges.
func (b *Bridges) nodes(target string) []string {
	var out []string
	for _, x := range b.all {
		if x.set.Target == target {
			out = append(out, x.set.Node)
		}
	}
	slices.Sort(out)
	return out
}

// bridge is the way to one node.
type bridge struct {
	set     BridgeSettings
	ssh     *sshWay
	http    *httpWay
	secrets func(path string) (seal.Secret, error)
	seats   chan struct{} // of runs at once
	turn    chan struct{} // of whoever connects

	mu    sync.Mutex
	now   line
	fails int
	last  error     // of the newest connection that could not be made
	next  time.Time // no connection is tried before it
}

func (b *bridge) rootSecret() (string, error) {
	s, err := b.secrets(b.set.RootSecretFile)
	if err != nil {
		return "", fmt.Errorf("read root_secret_file: %w", err)
	}
	return strings.TrimSpace(s.Reveal()), nil
}

const (
	backoffFirst = 250 * time.Millisecond
	backoffMost  = 30 * time.Second
	backoffWait  = 2 * time.Second // a longer pause is not waited for
	helloLimit   = 10 * time.Second
)

// otherError is a bridge that is not the one that was meant, or speaks another version.
type otherError struct{ text, hint string }

func (e *otherError) Error() string { return e.text }

// live gives the line that is there.
func (b *bridge) live() line {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.now != nil && b.now.ended() == nil {
		return b.now
	}
	return nil
}

// drop ends the line that is there.
func (b *bridge) drop(why error) {
	b.mu.Lock()
	l := b.now
	b.now = nil
	b.mu.Unlock()
	if l != nil {
		l.close(why)
	}
}

// renew makes what is asked next go by a connection of its own, so that its answer proves that one can be made. What goes on
// over the one that is there goes on.
func (b *bridge) renew() {
	b.mu.Lock()
	l := b.now
	b.now = nil
	b.mu.Unlock()
	if b.http != nil {
		b.http.renew()
	}
	if l != nil {
		l.retire()
	}
}

// get gives a line whose bridge has proved to belong to the site, connecting where there is none.
func (b *bridge) get(ctx context.Context, site string) (line, error) {
	for {
		if l := b.live(); l != nil {
			return l, b.same(l.self(), site)
		}
		select {
		case b.turn <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		l, again, err := b.connect(ctx, site)
		<-b.turn
		if !again {
			return l, err
		}
	}
}

// connect makes a line, holding the turn.
func (b *bridge) connect(ctx context.Context, site string) (l line, again bool, err error) {
	if b.live() != nil {
		return nil, true, nil // another has made it
	}
	b.mu.Lock()
	pause, last := time.Until(b.next), b.last
	b.mu.Unlock()
	if pause > backoffWait {
		return nil, false, fmt.Errorf("%w (castellan tries again in %s)", last, pause.Round(time.Second))
	}
	if pause > 0 {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
	}
	l, err = b.open(ctx)
	if err == nil {
		if err = b.same(l.self(), site); err != nil {
			l.close(err)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		if ctx.Err() == nil { // else it says nothing of the bridge
			b.fails++
			b.last, b.next = err, time.Now().Add(min(backoffFirst<<min(b.fails, 10), backoffMost))
		}
		return nil, false, err
	}
	b.now, b.fails, b.last, b.next = l, 0, nil, time.Time{}
	return l, false, nil
}

// open connects and says hello.
func (b *bridge) open(ctx context.Context) (line, error) {
	hello := frame.Ask{V: frame.Version, ID: "hello", Verb: frame.Hello}
	ctx, cancel := context.WithTimeout(ctx, connectLimit+helloLimit)
	defer cancel()
	if b.http != nil {
		t, err := b.http.post(ctx, hello, nil)
		if err != nil {
			return nil, err
		}
		if t.Hello == nil {
			return nil, fmt.Errorf("it does not say hello: %s", bounded(t.Reason, 300))
		}
		return &httpLine{way: b.http, told: t.Hello, till: time.Now().Add(helloHolds)}, nil
	}
	raw, err := b.ssh.dial(ctx)
	if err != nil {
		return nil, err
	}
	c := newConn(raw)
	go c.read()
	ctx, stop := context.WithTimeout(ctx, helloLimit)
	defer stop()
	t, err := c.ask(ctx, hello, nil)
	switch {
	case err != nil && ctx.Err() != nil:
		err = fmt.Errorf("it did not say hello within %s", helloLimit)
	case err == nil && t.Hello == nil:
		err = fmt.Errorf("it does not say hello: %s", bounded(t.Reason, 300))
	}
	if err != nil {
		c.end(err)
		return nil, err
	}
	c.told = t.Hello
	return c, nil
}

// same compares what a bridge said of itself with what it must be.
func (b *bridge) same(s *frame.Self, site string) error {
	switch {
	case s.Version != frame.Version:
		return &otherError{fmt.Sprintf("the bridge speaks version %d, castellan version %d", s.Version, frame.Version), "Bring castellan and its bridge on the node to the same version."}
	case s.Site != site:
		return &otherError{fmt.Sprintf("split target: the bridge is on a node of the site %s, and the target is %s", bounded(s.Site, 80), site),
			fmt.Sprintf("The [[bridge]] of node %s names another cluster than target %s does: a person corrects one of them.", b.set.Node, b.set.Target)}
	case s.Node != b.set.Node:
		return &otherError{fmt.Sprintf("the bridge is on node %s, not on %s", bounded(s.Node, 80), b.set.Node), "A person corrects node or address of this [[bridge]]."}
	}
	return nil
}

// do asks the bridge. What ends the context ends the waiting, not the run.
func (b *bridge) do(ctx context.Context, site string, a frame.Ask, live func([]byte)) (frame.Tell, error) {
	if a.Verb == frame.Look {
		return b.ask(ctx, site, a, live)
	}
	select {
	case b.seats <- struct{}{}:
		defer func() { <-b.seats }()
	case <-ctx.Done():
		return frame.Tell{}, &cutError{before: true, cause: fmt.Errorf("%d runs are under way on this bridge, and none ended in time: %w", cap(b.seats), ctx.Err())}
	}
	return b.ask(ctx, site, a, live)
}

func (b *bridge) ask(ctx context.Context, site string, a frame.Ask, live func([]byte)) (frame.Tell, error) {
	for try := 0; ; try++ {
		l, err := b.get(ctx, site)
		if err != nil {
			return frame.Tell{}, &cutError{before: true, cause: err}
		}
		t, err := l.ask(ctx, a, live)
		var cut *cutError
		if try < 3 && errors.As(err, &cut) && cut.before && errors.Is(err, errRetired) {
			continue // its connection was given up a moment before
		}
		return t, err
	}
}
