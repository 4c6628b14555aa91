// Package anchor carries the signed head of the ledger off the machine and reads it back, so that a ledger put back to
// an older state, with the machine that holds it, is noticed before anything is written on it.
//
// An anchor is a file elsewhere, a URL, a syslog collector or the systemd journal. The first two can be read back.
package anchor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"castellan/internal/ledger"
)

// Source is the ledger whose heads go out.
type Source interface {
	// Head is the present signed head, "" while the ledger is empty or nobody has opened it.
	Head(ctx context.Context) (string, error)
	// Wrote says whether this process has moved the head. One that only reads, and ends soon, leaves the anchors alone.
	Wrote() bool
	// Contains proves that the ledger contains the head that the anchor of that name holds; an error wraps
	// ledger.ErrRewound when it does not.
	Contains(ctx context.Context, anchor, head string) error
}

// Config of Anchors.
type Config struct {
	Settings []Settings
	// Source of heads; needed by Run only.
	Source Source
	// Own are the folders that hold castellan's own state: no file anchor may lie there.
	Own []string
	// Clock tells the time, time.Now when nil.
	Clock func() time.Time
	// Log takes warnings; nil discards them.
	Log *slog.Logger
}

// Anchors are all anchors of one store. They are safe for use by many goroutines.
type Anchors struct {
	source Source
	clock  func() time.Time
	log    *slog.Logger
	all    []*one
}

// sink is one kind of place.
type sink interface {
	// put adds the head; force also where the place holds a later one.
	put(ctx context.Context, note string, force bool) error
	// latest is the head put last, "" when there is none.
	latest(ctx context.Context) (string, error)
	readable() bool
	// away says that what is put lies on another machine, as far as that can be seen.
	away() bool
}

var errNotReadable = errors.New("this kind of anchor cannot be read back")

// one is an anchor with what is known of it.
type one struct {
	plan
	sink sink

	work sync.Mutex // one put at a time

	mu      sync.Mutex
	put     string    // the head that is known to be there
	putAt   time.Time // when that was last seen to be the ledger's head
	behind  time.Time // since when the ledger's head is another one
	back    string    // the head read back last
	backAt  time.Time // when; zero when never
	failed  time.Time // the last failure to read
	trouble string    // why it does not work, "" when it does
	since   time.Time // when the trouble began
	rewound string    // why the ledger is not a continuation of what is there
}

// New makes Anchors. It opens nothing but the certificates that are to be trusted.
func New(c Config) (*Anchors, error) {
	if err := Validate(c.Settings); err != nil {
		return nil, fmt.Errorf("read settings of anchors: %w", err)
	}
	a := &Anchors{source: c.Source, clock: c.Clock, log: c.Log}
	if a.clock == nil {
		a.clock = time.Now
	}
	if a.log == nil {
		a.log = slog.New(slog.DiscardHandler)
	}
	for _, s := range c.Settings {
		p, err := understand(s)
		if err != nil {
			return nil, fmt.Errorf("read settings of anchors: %w", err)
		}
		o := &one{plan: p}
		switch p.Kind {
		case "file":
			o.sink, err = newFile(p, c.Own, a.clock)
		case "http":
			o.sink, err = newHTTP(p)
		case "syslog":
			o.sink, err = newSyslog(p, a.clock)
		case "journal":
			o.sink = newJournal(p)
		}
		if err != nil {
			return nil, fmt.Errorf("open anchor %s: %w", p.Name, err)
		}
		a.all = append(a.all, o)
	}
	return a, nil
}

// Len is how many anchors are configured.
func (a *Anchors) Len() int { return len(a.all) }

// each runs f for all anchors at once and joins what they say, each with its name.
func (a *Anchors) each(f func(*one) error) error {
	errs := make([]error, len(a.all))
	var group sync.WaitGroup
	for i, o := range a.all {
		group.Go(func() {
			if err := f(o); err != nil {
				errs[i] = fmt.Errorf("anchor %s: %w", o.Name, err)
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

// Put brings a signed head to every anchor. The error names those that did not take it, or hold a head that the ledger
// does not contain; the others have it.
func (a *Anchors) Put(ctx context.Context, note string) error {
	if _, err := ledger.ParseCheckpoint(note); err != nil {
		return fmt.Errorf("put head to anchors: %w", err)
	}
	return a.each(func(o *one) error { return a.putOne(ctx, o, note) })
}

// Replace brings a head to every anchor although some hold one that the ledger does not contain. It is for a person
// who has accepted an older state.
func (a *Anchors) Replace(ctx context.Context, note string) error {
	if _, err := ledger.ParseCheckpoint(note); err != nil {
		return fmt.Errorf("replace head of anchors: %w", err)
	}
	return a.each(func(o *one) error {
		o.work.Lock()
		defer o.work.Unlock()
		err := o.sink.put(ctx, note, true)
		o.noteRewound("")
		a.noted(o, note, err)
		o.forget()
		return err
	})
}

// putOne proves, where the anchor can be read, that the ledger goes on from what is there, and then puts the head. What
// is there is evidence: it is never covered up by a ledger that lacks it.
func (a *Anchors) putOne(ctx context.Context, o *one, note string) error {
	o.work.Lock()
	defer o.work.Unlock()
	if o.sink.readable() {
		there, err := o.read(ctx, a.clock())
		if err != nil {
			a.noted(o, note, err)
			return err
		}
		if there == note {
			o.noteRewound("")
			a.noted(o, note, nil)
			return nil
		}
		if there != "" && a.source != nil {
			if err := a.source.Contains(ctx, o.Name, there); err != nil {
				if errors.Is(err, ledger.ErrRewound) {
					o.noteRewound(err.Error())
				}
				a.noted(o, note, err)
				return err
			}
		}
		o.noteRewound("")
		if was, err := ledger.ParseCheckpoint(there); err == nil {
			if is, err := ledger.ParseCheckpoint(note); err == nil && was.Origin == is.Origin && was.Size >= is.Size {
				a.noted(o, note, nil) // another process is ahead of this one
				return nil
			}
		}
	}
	err := o.sink.put(ctx, note, false)
	a.noted(o, note, err)
	return err
}

// Compare reads every anchor that can be read and proves that the ledger goes on from what is there. It puts nothing.
func (a *Anchors) Compare(ctx context.Context) error {
	return a.each(func(o *one) error {
		if !o.sink.readable() {
			return nil
		}
		there, err := o.read(ctx, a.clock())
		if err == nil && there != "" && a.source != nil {
			err = a.source.Contains(ctx, o.Name, there)
		}
		why := ""
		if errors.Is(err, ledger.ErrRewound) {
			why = err.Error()
		}
		o.noteRewound(why)
		if err != nil && why == "" {
			a.noted(o, "", err)
		}
		return err
	})
}

// read gets the latest head and takes note of it.
func (o *one) read(ctx context.Context, now time.Time) (string, error) {
	note, err := o.sink.latest(ctx)
	if err == nil && note != "" {
		if _, err = ledger.ParseCheckpoint(note); err != nil {
			err = fmt.Errorf("what is there is no head: %w", err)
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil {
		o.failed = now
		return "", err
	}
	o.back, o.backAt, o.failed = note, now, time.Time{}
	return note, nil
}

// forget has the next look read anew.
func (o *one) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.backAt = time.Time{}
}

func (o *one) noteRewound(why string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.rewound = why
}

// noted takes note of how a put went.
func (a *Anchors) noted(o *one, note string, err error) {
	now := a.clock()
	o.mu.Lock()
	defer o.mu.Unlock()
	if err == nil {
		if o.trouble != "" {
			a.log.Info("anchor works again", "anchor", o.Name)
		}
		o.put, o.putAt, o.behind, o.trouble = note, now, time.Time{}, ""
		return
	}
	if o.behind.IsZero() {
		o.behind = now
	}
	if o.trouble == "" {
		o.since = now
		a.log.Warn("anchor does not take the head of the ledger", "anchor", o.Name, "error", err)
	}
	o.trouble = oneLine(err.Error())
}

func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > 500 {
		s = strings.ToValidUTF8(s[:500], "") + "…"
	}
	return s
}

// Latest reads the latest head of the first anchor that can be read; "" when none holds one. Heads reads all.
func (a *Anchors) Latest(ctx context.Context) (string, error) {
	var errs []error
	for _, o := range a.all {
		if !o.sink.readable() {
			continue
		}
		note, err := o.read(ctx, a.clock())
		if err == nil {
			return note, nil
		}
		errs = append(errs, fmt.Errorf("anchor %s: %w", o.Name, err))
	}
	if len(errs) == 0 {
		return "", errNotReadable
	}
	return "", errors.Join(errs...)
}

const (
	readLimit = 3 * time.Second  // for reading back before a write
	freshFor  = 2 * time.Second  // how long what was read back counts as the latest
	restFor   = 10 * time.Second // how long an anchor that could not be read is left alone by writes
)

// Heads gives the latest head of each anchor that can be read, by its name, no older than two seconds. One that cannot
// be reached is left out, unless it is required: the error then says that nothing may be written as things stand.
func (a *Anchors) Heads(ctx context.Context) (map[string]string, error) {
	out := map[string]string{}
	var mu sync.Mutex
	err := a.each(func(o *one) error {
		note, err := a.lookAt(ctx, o)
		if err == nil && note != "" {
			mu.Lock()
			out[o.Name] = note
			mu.Unlock()
		}
		if !o.Required {
			return nil
		}
		now := a.clock()
		o.mu.Lock()
		defer o.mu.Unlock()
		switch {
		case o.sink.readable() && err != nil && o.back == "" && o.put == "":
			return fmt.Errorf("it is required and could not be read since the start: %w", err)
		case !o.behind.IsZero() && now.Sub(o.behind) > o.limit:
			return fmt.Errorf("it is required and behind since %s (%s)", o.behind.UTC().Format(time.RFC3339), o.trouble)
		}
		return nil
	})
	return out, err
}

func (a *Anchors) lookAt(ctx context.Context, o *one) (string, error) {
	if !o.sink.readable() {
		return "", nil
	}
	now := a.clock()
	o.mu.Lock()
	back, at, failed, trouble := o.back, o.backAt, o.failed, o.trouble
	o.mu.Unlock()
	// A clock that was put back makes neither count.
	if d := now.Sub(at); !at.IsZero() && d >= 0 && d < freshFor {
		return back, nil
	}
	if d := now.Sub(failed); !failed.IsZero() && d >= 0 && d < restFor {
		return "", fmt.Errorf("it could not be read a moment ago (%s)", trouble)
	}
	// A caller that gives up must not make the anchor look dead to the next one.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readLimit)
	defer cancel()
	note, err := o.read(ctx, now)
	if err != nil {
		o.mu.Lock()
		if o.trouble == "" {
			o.trouble, o.since = oneLine(err.Error()), now
		}
		o.mu.Unlock()
	}
	return note, err
}
