package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"castellan/internal/cli"
	"castellan/internal/gate"
	"castellan/internal/store"
)

// retentionOf reads a setting such as "365d", "52w" or "720h"; "" is 0, for ever.
func retentionOf(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	bad := func() (time.Duration, error) {
		return 0, fmt.Errorf("store.retention is %q; a number of days (\"365d\") or weeks (\"52w\"), at least \"1d\", is wanted; leave it out to keep everything", text)
	}
	unit := map[byte]time.Duration{'d': 24 * time.Hour, 'w': 7 * 24 * time.Hour, 'h': time.Hour}[text[len(text)-1]]
	n, err := strconv.Atoi(text[:len(text)-1])
	if unit == 0 || err != nil || n <= 0 || n > 1_000_000 || strings.HasPrefix(text, "+") {
		return bad()
	}
	if d := time.Duration(n) * unit; d/unit == time.Duration(n) && d >= store.LeastRetention {
		return d, nil
	}
	return bad()
}

// The nightly sweep.
const (
	sweepHour, sweepMinute = 4, 17 // UTC
	sweepTries             = 5
	sweepRetry             = 20 * time.Minute
)

// sweeper carries out retention in a process that stays: at 04:17 UTC, in one of all processes on the store.
type sweeper struct {
	store *lateStore
	keep  time.Duration
	clock func() time.Time
	log   *slog.Logger
	// wait returns at a time, or with the end of ctx; tests bring their own.
	wait func(ctx context.Context, until time.Time) error
}

// machine is who sweeps when nobody asked for it.
func machine() gate.Principal {
	return gate.Principal{Agent: "castellan", WayIn: "timer", Strength: gate.StrengthAccount}
}

func newSweeper(st *lateStore, keep time.Duration, log *slog.Logger) *sweeper {
	return &sweeper{store: st, keep: keep, clock: time.Now, log: log, wait: func(ctx context.Context, until time.Time) error {
		// In short waits: a timer stands still while a machine sleeps, and knows nothing of a clock that is set.
		for {
			left := time.Until(until)
			if left <= 0 {
				return nil
			}
			t := time.NewTimer(min(left, time.Minute))
			select {
			case <-t.C:
			case <-ctx.Done():
				t.Stop()
				return ctx.Err()
			}
		}
	}}
}

// nextSweep is the first 04:17 UTC after now.
func nextSweep(now time.Time) time.Time {
	now = now.UTC()
	at := time.Date(now.Year(), now.Month(), now.Day(), sweepHour, sweepMinute, 0, 0, time.UTC)
	if !at.After(now) {
		at = at.AddDate(0, 0, 1)
	}
	return at
}

// run records a changed retention once somebody had the store opened, and sweeps night after night until ctx ends.
func (w *sweeper) run(ctx context.Context) {
	select {
	case <-w.store.opened:
	case <-ctx.Done():
		return
	}
	if w.store.err != nil {
		return
	}
	s := w.store.store
	if _, err := s.NoteRetention(ctx, w.keep, machine()); err != nil && ctx.Err() == nil {
		w.log.Warn("the retention could not be recorded", "error", err)
	}
	for w.keep > 0 {
		at := nextSweep(w.clock())
		for try := range sweepTries {
			if w.wait(ctx, at.Add(time.Duration(try)*sweepRetry)) != nil {
				return
			}
			if w.night(ctx, s, at, try) {
				break
			}
		}
	}
}

// night tries one sweep; true when nothing is left to do until the next.
func (w *sweeper) night(ctx context.Context, s *store.Store, at time.Time, try int) bool {
	// One process for each try: what one could not do, because its anchor is out of its reach, another may.
	claim := fmt.Sprintf("sweep/%s/%d", at.Format(time.DateOnly), try)
	err := s.Update(ctx, func(t gate.Tx) error {
		if done, err := t.Get("sweep/done"); err != nil || done == at.Format(time.DateOnly) {
			return errors.Join(err, errDone)
		}
		if _, err := s.NoteRetentionIn(t, w.keep, machine()); err != nil {
			return err
		}
		return t.UseNonce(claim, at.Add(48*time.Hour))
	})
	switch {
	case errors.Is(err, errDone):
		return true
	case errors.Is(err, gate.ErrNonceUsed):
		return false // looked at again with the next try
	case err != nil:
		w.log.Warn("the nightly sweep could not begin", "error", err)
		return false
	}
	got, err := s.Sweep(ctx, store.Retention{For: w.keep, By: machine()})
	if err != nil {
		w.log.Warn("the nightly sweep failed", "error", err, "records", got.Records, "parts", got.Parts, "plans", got.Plans)
		return false
	}
	w.log.Info("the nightly sweep is done", "records", got.Records, "parts", got.Parts, "plans", got.Plans, "more", got.More)
	if err := s.Update(ctx, func(t gate.Tx) error { return t.Set("sweep/done", at.Format(time.DateOnly)) }); err != nil {
		w.log.Warn("the nightly sweep could not be noted", "error", err)
	}
	return true
}

var errDone = errors.New("another process has swept")

func (a *app) sweepCommand() *cobra.Command {
	var now, sure bool
	cmd := &cobra.Command{Use: "sweep", Short: "Remove what is older than store.retention, as is done every night at 04:17 UTC", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		s, _, _, err := a.load()
		if err != nil {
			return err
		}
		keep, err := retentionOf(s.Store.Retention)
		if err != nil {
			return err
		}
		switch {
		case keep == 0:
			return cli.Usage{Err: errors.New("store.retention is not set: everything is kept, nothing was removed; set it in the configuration, for example retention = \"365d\"")}
		case sure && !now:
			return cli.Usage{Err: errors.New("give --clock-is-right together with --now")}
		case !now:
			fmt.Fprintf(a.out, "What is older than %s is removed at %s; with --now it is removed at once. Nothing was removed.\n", s.Store.Retention, nextSweep(time.Now()).Format(time.RFC3339))
			return nil
		}
		st, anchors, err := a.openAnchored(cmd.Context())
		if err != nil {
			return err
		}
		got, err := sweepNow(cmd.Context(), st, keep, sure, a.person())
		anchors.after(cmd.Context(), a)
		if err := errors.Join(err, st.Close()); err != nil {
			return err
		}
		if cli.JSON(cmd) {
			return cli.PrintJSON(a.out, got)
		}
		fmt.Fprintf(a.out, "removed what is older than %s: %d records, %d parts of records, %d plans; their hashes stay and the ledger verifies\n", got.Before.Format(time.RFC3339), got.Records, got.Parts, got.Plans)
		if got.More {
			fmt.Fprintln(a.out, "there is more: run it again, or leave it to the next night")
		}
		return nil
	}}
	cmd.Flags().BoolVar(&now, "now", false, "remove it now")
	cmd.Flags().BoolVar(&sure, "clock-is-right", false, "remove it although the clock seems to have jumped since the last sweep")
	return cmd
}

func sweepNow(ctx context.Context, st *store.Store, keep time.Duration, sure bool, by gate.Principal) (store.Swept, error) {
	if _, err := st.NoteRetention(ctx, keep, by); err != nil {
		return store.Swept{}, err
	}
	return st.Sweep(ctx, store.Retention{For: keep, By: by, Sure: sure})
}
