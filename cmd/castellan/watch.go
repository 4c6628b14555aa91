package main

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"castellan/internal/front"
	"castellan/internal/gate"
	"castellan/internal/local"
)

// watch looks at what health tells of: in the background, so that asking costs nothing.
type watch struct {
	house *house
	judge func() local.Separation
	log   *slog.Logger

	mu        sync.Mutex
	separated local.Separation
	reachable map[string]bool
	verified  string // "yes", "no", "not yet"
	records   int64
}

// How often what is looked at.
const (
	judgeEvery  = 30 * time.Second
	reachEvery  = time.Minute
	verifyEvery = 6 * time.Hour
)

func newWatch(judge func() local.Separation, log *slog.Logger) *watch {
	return &watch{judge: judge, log: log, separated: judge(), reachable: map[string]bool{}, verified: "not yet"}
}

// separate is the last verdict on whether the daemon is out of reach of those whom it serves.
func (w *watch) separate() local.Separation {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.separated
}

// run looks until ctx ends.
func (w *watch) run(ctx context.Context) error {
	var group sync.WaitGroup
	group.Go(func() { every(ctx, judgeEvery, w.judgeAgain) })
	group.Go(func() { every(ctx, reachEvery, w.reach) })
	group.Go(func() { every(ctx, verifyEvery, w.verify) })
	group.Wait()
	return nil
}

func every(ctx context.Context, pause time.Duration, look func(context.Context)) {
	t := time.NewTicker(pause)
	defer t.Stop()
	for {
		look(ctx)
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

func (w *watch) judgeAgain(context.Context) {
	now := w.judge()
	w.mu.Lock()
	changed := now.OK != w.separated.OK
	w.separated = now
	w.mu.Unlock()
	if changed {
		w.log.Warn("approvals", "why", now.Text())
	}
}

// reach asks every target for its version.
func (w *watch) reach(ctx context.Context) {
	var group sync.WaitGroup
	for _, t := range w.house.client.Targets() {
		group.Go(func() {
			asking, cancel := context.WithTimeout(ctx, 15*time.Second)
			defer cancel()
			err := w.ask(asking, t)
			if ctx.Err() != nil {
				return
			}
			w.mu.Lock()
			before, known := w.reachable[t.Name]
			w.reachable[t.Name] = err == nil
			w.mu.Unlock()
			if err != nil && (!known || before) {
				w.log.Warn("a target does not answer", "target", t.Name, "error", err)
			}
		})
	}
	group.Wait()
}

func (w *watch) ask(ctx context.Context, t gate.TargetInfo) error {
	r, problems := w.house.catalog.Guide().Check(t.Product, "GET /version", map[string]any{})
	if len(problems) > 0 {
		return errors.New("its version cannot be asked for")
	}
	_, err := w.house.client.Read(ctx, t.Name, r)
	return err
}

// verify reads the whole ledger.
func (w *watch) verify(ctx context.Context) {
	s, err := w.house.store.get(ctx)
	verdict, records := "no", int64(0)
	if err == nil {
		r, verr := s.Verify(ctx)
		err, records = verr, r.Size
		if verr == nil && r.OK {
			verdict = "yes"
		} else if verr == nil && r.Broken != nil {
			w.log.Error("the ledger is broken", "tree", string(r.Broken.Tree), "record", r.Broken.Index, "reason", r.Broken.Reason)
		}
	}
	if err != nil {
		if ctx.Err() != nil {
			return
		}
		w.log.Error("verify the ledger", "error", err)
		verdict = "not yet"
	}
	w.mu.Lock()
	w.verified, w.records = verdict, records
	w.mu.Unlock()
}

// ready says whether writes can be recorded and the ledger was found whole.
func (w *watch) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if err := w.house.store.Ready(ctx); err != nil {
		w.log.Debug("not ready", "error", err)
		return errors.New("the store cannot be written")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch w.verified {
	case "yes":
		return nil
	case "no":
		return errors.New("the ledger is broken")
	}
	return errors.New("the ledger is still being verified")
}

// state is the picture for /health.
func (w *watch) state(ctx context.Context) front.State {
	var s front.State
	problem := func(text string) { s.Problems = append(s.Problems, text) }
	targets := w.house.client.Targets()
	s.Configured, s.Targets.Configured = len(targets) > 0, len(targets)
	w.mu.Lock()
	for _, t := range targets {
		switch up, known := w.reachable[t.Name]; {
		case !known:
			s.Targets.Unknown++
		case up:
			s.Targets.Reachable++
		}
	}
	s.Ledger.Verified, s.Ledger.Records = w.verified, w.records
	sep := w.separated
	w.mu.Unlock()
	s.Ledger.Writable = w.house.store.Ready(ctx) == nil
	outside, _ := w.house.anchors.Outside()
	s.Anchored.Configured = w.house.anchors.Len() > 0
	s.Anchored.Outside, s.Anchored.Current = outside, s.Anchored.Configured && len(w.house.anchors.Notices()) == 0
	if !outside {
		s.Notes = append(s.Notes, "no anchor outside this machine: a store that was set back as a whole is not noticed")
	}
	if s.Anchored.Configured && !s.Anchored.Current {
		problem("an anchor does not hold the newest head of the ledger, or cannot be read")
	}
	if sw, err := w.house.gate.Switches(ctx); err != nil {
		problem("the switches cannot be read; every write is refused")
	} else {
		s.Switches.Killed, s.Switches.ArmingNeeded, s.Switches.ArmedUntil = sw.Killed != "" || sw.Contained != "", sw.ArmingNeeded, sw.ArmedUntil
	}
	if waiting, err := w.house.gate.Waiting(ctx); err == nil {
		s.Waiting = len(waiting)
	}
	s.Separate.OK, s.Separate.Highest = sep.OK, w.house.gate.Limits().HighestRung.String()
	for _, r := range sep.Reasons {
		if !slices.Contains(s.Separate.Why, r.Short) {
			s.Separate.Why = append(s.Separate.Why, r.Short)
		}
	}
	for _, n := range w.house.notes { // "store.url comes from CASTELLAN_STORE_URL"
		if key, _, ok := strings.Cut(n, " "); ok {
			s.Overridden = append(s.Overridden, key)
		}
	}
	if len(w.house.gate.Limits().Notices) > 0 {
		problem("a changed configuration was not taken up")
	}
	return s
}
