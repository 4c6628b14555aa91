//go:build linux

package bridge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"castellan/internal/frame"
	"castellan/internal/lane"
	"castellan/internal/regex"
)

// Config is what a Bridge is made of.
type Config struct {
	Settings Settings
	Build    string // version of the program
	Peer     string // who is at the other end, for the record
	// Program is this program and the arguments that name this mode and its settings: a dead man's switch starts it.
	Program []string
	Log     *slog.Logger
}

// Bridge answers asks. It is safe for concurrent use.
type Bridge struct {
	set   Settings
	build string

	program []string
	log     *slog.Logger
	state   *state
	lock    *lane.Lock
	rec     *recorder
	seats   chan struct{} // of runs at once
	sight   *sight
	scans   scans

	mu    sync.Mutex
	inits map[int]process        // first processes of containers
	stops map[string]chan string // of runs of this process
	under map[string]int         // asks under way, by id
	files map[int]chan struct{}  // places of what is done with the files of a guest
}

// New makes a Bridge; it opens the folder of its state and its record.
func New(c Config) (*Bridge, error) {
	st, err := openState(c.Settings.State, time.Duration(c.Settings.Limits.Keep)*time.Minute)
	if err != nil {
		return nil, err
	}
	lock, err := lane.New(lane.Config{Settings: c.Settings.Rules, Store: "[rules] in " + c.Settings.path + " on the node", Person: "root on the node; castellan cannot change it"})
	if err != nil {
		return nil, err
	}
	rec, err := openRecord(c.Settings.Log, c.Peer)
	if err != nil {
		return nil, err
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Bridge{set: c.Settings, build: c.Build, program: c.Program, log: c.Log, state: st, lock: lock, rec: rec, inits: map[int]process{}, stops: map[string]chan string{}, under: map[string]int{},
		seats: make(chan struct{}, c.Settings.Limits.Runs), files: map[int]chan struct{}{}, sight: &sight{seen: map[process]string{}}}, nil
}

// Close closes the record.
func (b *Bridge) Close() error { return b.rec.close() }

const (
	mostAsks = 512 // of one connection at once
	mostSame = 8   // of one id at once, over all connections of this process
	// What asks and their answers may take of memory over one connection, until the answers are read: in parts of 128 KiB.
	partBytes = 128 << 10
	mostParts = 512
)

// weight is how many parts an ask and its answer may take, at most. To ask how things stand, and to end a run, take none: that
// must always be possible.
func weight(a frame.Ask) int {
	n := 0
	switch {
	case a.Run != nil:
		n = len(a.Run.Script) + len(a.Run.Input) + 2*min(max(a.Run.MaxOutput, 0), frame.MaxOutput)
		for _, text := range append(slices.Clone(a.Run.Argv), a.Run.Env...) {
			n += len(text)
		}
	case a.Verb == frame.Write && a.File != nil:
		n = 2*len(a.File.Content) + frame.MaxFile // what it replaces is told
	case a.File != nil:
		n = min(max(a.File.Max, 0), frame.MaxFile)
	case a.Verb == frame.Look:
		n = 2 * frame.MaxOutput
	}
	return (n*4/3 + partBytes - 1) / partBytes // as it is written
}

var idGrammar = &regex.Lazy{Expr: `^[A-Za-z0-9._-]{1,64}$`}

// Serve answers the asks of one connection until it ends, and stays until the last of its runs has ended: whoever comes
// again may look for them. An error means that the connection spoke otherwise than it should.
func (b *Bridge) Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	var busy sync.WaitGroup
	mouth := newMouth(out)
	defer mouth.close()
	defer busy.Wait()
	busy.Go(func() { b.reap(ctx) })
	asks, parts := make(chan struct{}, mostAsks), make(chan struct{}, mostParts)
	r := frame.NewReader(in)
	for bad := 0; bad < 16; {
		var ask frame.Ask
		err := r.Next(&ask)
		switch {
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			return nil // a line that was cut is no ask
		case errors.Is(err, frame.ErrTooLong):
			mouth.say(frame.Tell{Ending: frame.Refused, Reason: err.Error()})
			return err
		case err != nil && !strings.HasPrefix(err.Error(), "read frame"):
			return err // of the connection
		case err != nil:
			bad++
			b.rec.note(entry{Verb: "?", Ending: string(frame.Refused), Reason: short(err.Error())})
			mouth.say(frame.Tell{Ending: frame.Refused, Reason: err.Error()})
			continue
		}
		asks <- struct{}{}
		n := weight(ask)
		for range n { // whoever does not read answers is not read either
			select {
			case parts <- struct{}{}:
			case <-mouth.deaf:
				return nil
			}
		}
		busy.Go(func() {
			defer func() { <-asks }()
			b.Answer(ctx, ask, mouth.say)
			for range n {
				<-parts
			}
		})
	}
	return errors.New("serve bridge: too many lines that are no asks")
}

// mouth writes Tells one after the other. Whoever does not read them holds up nobody but those who end: what is told
// meanwhile is left out.
type mouth struct {
	lines chan frame.Tell
	deaf  chan struct{} // closed when nobody can be told any more
}

func newMouth(out io.Writer) *mouth {
	m := &mouth{lines: make(chan frame.Tell, 16), deaf: make(chan struct{})}
	w := frame.NewWriter(out)
	go func() {
		defer close(m.deaf)
		for t := range m.lines {
			if w.Put(t) != nil {
				return // the connection is gone: what ended is kept
			}
		}
	}()
	return m
}

func (m *mouth) say(t frame.Tell) {
	if t.Ending == "" {
		select {
		case m.lines <- t:
		default:
		}
		return
	}
	select {
	case m.lines <- t:
	case <-m.deaf:
	}
}

// close waits a moment for what is still to be told. Nobody may say anything after it.
func (m *mouth) close() {
	close(m.lines)
	select {
	case <-m.deaf:
	case <-time.After(10 * time.Second):
	}
}

// Answer answers one ask; the last Tell has an Ending. Tell is called by one goroutine at a time.
func (b *Bridge) Answer(ctx context.Context, ask frame.Ask, tell func(frame.Tell)) {
	last, err := b.answer(ctx, ask, tell)
	if err != nil {
		last = ending(ask.ID, err)
	}
	if last.ID = ask.ID; !idGrammar.MatchString(ask.ID) {
		last.ID = ""
	}
	switch ask.Verb {
	case frame.Exec, frame.Hello, frame.Look, frame.Read, frame.Write: // what is begun by these notes its own end
		if err != nil {
			b.rec.note(entryOf(ask, last))
		}
	default:
		word := ask.Verb == frame.Manage && ask.Place.Where == frame.Host // of the node: root's, in a container it notes its own end
		if err != nil || ask.Verb == frame.Kill || word {
			b.rec.note(entryOf(ask, last).rooted(err == nil && word))
		}
	}
	tell(last)
}

func (b *Bridge) answer(ctx context.Context, ask frame.Ask, tell func(frame.Tell)) (frame.Tell, error) {
	if !idGrammar.MatchString(ask.ID) {
		return frame.Tell{}, refuse("", "the id of an ask is 1 to 64 of A-Z a-z 0-9 . _ -")
	}
	if ask.V != frame.Version && ask.Verb != frame.Hello {
		return frame.Tell{}, refuse("Bring castellan and its bridge to the same version.", "the ask speaks version %d, this bridge version %d", ask.V, frame.Version)
	}
	if err := parts(ask); err != nil {
		return frame.Tell{}, err
	}
	if ask.Verb != frame.Hello { // each connection says that by one id
		leave, ok := b.among(ask.ID)
		if !ok { // it may be running: nothing that is said here may read as if it were not
			return frame.Tell{Ending: frame.Unknown, Running: true, Reason: fmt.Sprintf("%d asks for the id %s are under way at this bridge, which is the limit: nothing was done for this one; ask again when one of them has ended", mostSame, ask.ID)}, nil
		}
		defer leave()
	}
	switch ask.Verb {
	case frame.Hello:
		s, err := b.hello()
		if err != nil {
			return frame.Tell{}, err
		}
		return frame.Tell{Ending: frame.Done, Hello: s}, nil
	case frame.Exec:
		return b.exec(ctx, ask, tell)
	case frame.Look:
		return b.look(ctx, ask.ID)
	case frame.Kill:
		return b.kill(ctx, ask.ID)
	case frame.Read, frame.Write:
		return b.file(ctx, ask)
	case frame.Manage:
		if ask.Word.Name == wordEnrol || ask.Word.Name == wordUnenrol {
			return b.channel(ctx, ask, tell)
		}
		return b.manage(ctx, ask, tell)
	}
	return frame.Tell{}, refuse("", "this bridge knows no verb %.40q", ask.Verb)
}

// among counts the asks of an id that are under way.
func (b *Bridge) among(id string) (leave func(), ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.under[id] >= mostSame {
		return nil, false
	}
	b.under[id]++
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.under[id]--; b.under[id] == 0 {
			delete(b.under, id)
		}
	}, true
}

// parts refuses an ask that brings what its verb does not take, or lacks what it takes.
func parts(ask frame.Ask) error {
	want := map[frame.Verb][3]bool{frame.Exec: {true, false, false}, frame.Read: {false, true, false}, frame.Write: {false, true, false}, frame.Manage: {false, false, true}}[ask.Verb]
	if got := [3]bool{ask.Run != nil, ask.File != nil, ask.Word != nil}; got != want {
		return refuse("", "the ask brings other parts than its verb %.40q takes", ask.Verb)
	}
	return nil
}

// look says what became of a run; it starts nothing.
func (b *Bridge) look(ctx context.Context, id string) (frame.Tell, error) {
	if t, known, err := b.lookUpgrade(ctx, id); known {
		return t, err
	}
	f, err := b.state.look(id)
	if err != nil {
		return frame.Tell{}, err
	}
	switch {
	case !f.known:
		return frame.Tell{Ending: frame.Unknown, Reason: "this bridge knows of no such run"}, nil
	case f.end != nil:
		return *f.end, nil
	case f.running:
		return frame.Tell{Ending: frame.Unknown, Running: true, Reason: "it runs"}, nil
	}
	left := "none of its processes is seen"
	running := f.mark.Nonce != "" && len(b.hunterOf(f.mark).look()) > 0
	if running {
		left = "processes of it are seen"
	}
	return frame.Tell{Ending: frame.Unknown, Running: running, Reason: "the bridge that began it has ended, or its result was not kept; " + left}, nil
}

// hunterOf finds the processes of a run that another bridge has started, by its control group where it
// has one, else by its nonce alone.
func (b *Bridge) hunterOf(m mark) *hunter {
	if m.Group != "" && exists(m.Group) {
		return newHunter(m.Nonce, &scan{groups: []string{m.Group}}, m.Group, b.sightOf(m.Group, m.Place.Where != frame.Host))
	}
	return newHunter(m.Nonce, b.scans.of(nil), "", b.sight)
}

// sightOf is how the processes of a run are told by their environment: those of a guest not, where its group tells them.
func (b *Bridge) sightOf(group string, guest bool) *sight {
	if guest && group != "" {
		return nil
	}
	return b.sight
}

// kill ends a run, whichever bridge of this node stays with it.
func (b *Bridge) kill(ctx context.Context, id string) (frame.Tell, error) {
	b.mu.Lock()
	stop, here := b.stops[id]
	b.mu.Unlock()
	f, err := b.state.look(id)
	if err != nil {
		return frame.Tell{}, err
	}
	if !f.known || f.end != nil {
		return b.look(ctx, id)
	}
	if t, upgrade, err := b.lookUpgrade(ctx, id); upgrade {
		t.Reason = strings.TrimSpace(t.Reason + " an upgrade of the node is never cut off")
		return t, err
	}
	gone := false
	if here {
		select {
		case stop <- "it was asked to be ended":
		default: // it is being ended
		}
	} else if f.mark.Nonce != "" {
		gone = b.hunterOf(f.mark).kill(graceTerm)
	}
	for end := time.Now().Add(12 * time.Second); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
		if f, err = b.state.look(id); err != nil || f.end != nil || !f.running {
			break
		}
	}
	if f.end == nil && !f.running && gone {
		t := frame.Tell{ID: id, Ending: frame.Unknown, Reason: "it was ended, and the bridge that began it is gone: its result was not kept"}
		return t, b.state.put(t)
	}
	return b.look(ctx, id)
}

// reap ends, at their limits, runs whose bridges are gone.
func (b *Bridge) reap(ctx context.Context) {
	b.takeUp(ctx)
	for _, id := range b.state.sweep(time.Now()) {
		f, err := b.state.look(id)
		if err != nil || f.running || f.end != nil || f.mark.Nonce == "" || time.Since(f.mark.Began) < time.Duration(f.mark.Limit) {
			continue
		}
		if ctx.Err() != nil {
			return
		}
		gone := b.hunterOf(f.mark).kill(graceTerm)
		reason := "the bridge that began it ended before it; none of its processes is left"
		if !gone {
			reason = "the bridge that began it ended before it; processes of it are left"
		}
		if err := b.state.put(frame.Tell{ID: id, Ending: frame.Unknown, Reason: reason}); err != nil {
			b.log.Warn("keep result", "err", err)
		}
		b.rec.note(entry{ID: id, Verb: "reap", Ending: string(frame.Unknown), Reason: reason})
	}
}

// seat waits for a place among the runs; a full house refuses.
func (b *Bridge) seat() (func(), error) {
	select {
	case b.seats <- struct{}{}:
		return func() { <-b.seats }, nil
	default:
		return nil, refuse(b.set.hint("limits.runs", "raise it"), "%d runs go on over this connection, which is the limit", cap(b.seats))
	}
}
