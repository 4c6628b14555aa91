package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"castellan/internal/anchor"
	"castellan/internal/cli"
	"castellan/internal/seal"
	"castellan/internal/store"
)

// heads is the ledger as anchors follow it: it opens no store.
type heads struct{ store *lateStore }

var _ anchor.Source = heads{}

// Head is the present head, "" while nobody had the store opened.
func (h heads) Head(ctx context.Context) (string, error) {
	select {
	case <-h.store.opened:
	default:
		return "", h.store.lastFault()
	}
	if h.store.err != nil {
		return "", h.store.err
	}
	return h.store.store.Head(ctx)
}

// Wrote says whether this process has appended to the ledger.
func (h heads) Wrote() bool {
	select {
	case <-h.store.opened:
		return h.store.store != nil && h.store.store.Wrote()
	default:
		return false
	}
}

// Contains proves that the ledger contains the head of an anchor.
func (h heads) Contains(ctx context.Context, name, head string) error {
	s, err := h.store.get(ctx)
	if err != nil {
		return err
	}
	return s.Contains(ctx, name, head)
}

// upkeep is what keeps the ledger of a store that is opened late: its anchors, which the store asks, and the nightly sweep.
func (s Settings) upkeep(st *lateStore, log *slog.Logger) (*anchor.Anchors, *sweeper, error) {
	a, err := anchor.New(anchor.Config{Settings: s.Anchors, Source: heads{st}, Own: s.ownFolders(), Log: log})
	if err != nil {
		return nil, nil, err
	}
	if a.Len() > 0 {
		st.config.Anchors = a
	}
	keep, err := retentionOf(s.Store.Retention)
	return a, newSweeper(st, keep, log), err
}

// ownFolders hold what an anchor is to outlive.
func (s Settings) ownFolders() []string {
	out := []string{s.Store.Keys}
	if !strings.Contains(s.Store.URL, "://") {
		out = append(out, filepath.Dir(s.Store.URL))
	}
	return out
}

// openAnchors are the anchors of a store that one command has opened.
type openAnchors struct {
	*anchor.Anchors
	store *store.Store
}

// Head is the present head.
func (o *openAnchors) Head(ctx context.Context) (string, error) { return o.store.Head(ctx) }

// Wrote says whether this process has appended to the ledger.
func (o *openAnchors) Wrote() bool { return o.store.Wrote() }

// Contains proves that the ledger contains the head of an anchor.
func (o *openAnchors) Contains(ctx context.Context, name, head string) error {
	return o.store.Contains(ctx, name, head)
}

// after brings the head that a command has made to the anchors; what fails is said, not undone.
func (o *openAnchors) after(ctx context.Context, a *app) {
	if o.Len() == 0 {
		return
	}
	head, err := o.store.Head(ctx)
	if err == nil && head != "" {
		err = o.Put(ctx, head)
	}
	if err != nil {
		fmt.Fprintln(a.err, "note: "+cli.Safe(err.Error()))
	}
}

// openAnchored opens the store with its anchors, for one command.
func (a *app) openAnchored(ctx context.Context) (*store.Store, *openAnchors, error) {
	s, _, _, err := a.load()
	if err != nil {
		return nil, nil, err
	}
	a.overseer = true
	if err := a.inReach(s); err != nil {
		return nil, nil, err
	}
	keys, err := seal.OpenKeys(s.Store.Keys)
	if err != nil {
		return nil, nil, err
	}
	o := &openAnchors{}
	if o.Anchors, err = anchor.New(anchor.Config{Settings: s.Anchors, Source: o, Own: s.ownFolders()}); err != nil {
		return nil, nil, err
	}
	c := store.Config{URL: s.Store.URL, Signer: keys.Ledger(), Head: s.Store.Head}
	if o.Len() > 0 {
		c.Anchors = o.Anchors
	}
	o.store, err = store.Open(ctx, c)
	return o.store, o, err
}

func (a *app) anchorsCommand() *cobra.Command {
	var put bool
	cmd := &cobra.Command{Use: "anchors", Short: "Read every anchor back, and say whether the ledger goes on from what it holds", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		st, o, err := a.openAnchored(cmd.Context())
		if err != nil {
			return err
		}
		defer st.Close()
		if o.Len() == 0 {
			_, why := o.Outside()
			return cli.Usage{Err: errors.New(why + "; name one as [[anchor]] in the configuration")}
		}
		head, err := st.Head(cmd.Context())
		if err != nil {
			return err
		}
		if put && head != "" {
			err = o.Put(cmd.Context(), head)
		} else {
			err = o.Compare(cmd.Context())
		}
		outside, why := o.Outside()
		if cli.JSON(cmd) {
			if e := cli.PrintJSON(a.out, map[string]any{"ok": err == nil, "head": head, "anchors": o.States(), "outside": outside}); e != nil {
				return e
			}
		} else {
			for _, s := range o.States() {
				fmt.Fprintln(a.out, cli.Safe(describeAnchor(s)))
			}
			if !outside && put {
				fmt.Fprintln(a.err, "note: "+why)
			}
		}
		return err
	}}
	cmd.Flags().BoolVar(&put, "put", false, "bring the present head there as well")
	return cmd
}

func describeAnchor(s anchor.State) string {
	line := s.Name + ": "
	switch {
	case s.Rewound != "":
		line += "the ledger is NOT a continuation of what it holds: " + s.Rewound
	case s.Trouble != "":
		line += "does not work: " + s.Trouble
	case s.Size > 0:
		line += fmt.Sprintf("holds a head of %d records, which the ledger contains", s.Size)
	case s.Readable:
		line += "holds nothing yet"
	default:
		line += "cannot be read back"
	}
	return line
}

// acceptRewindCommand lets writes go on after an older state was brought back. It asks at a terminal: what was recorded
// since is given up, and nobody but a person may decide that.
func (a *app) acceptRewindCommand() *cobra.Command {
	return &cobra.Command{Use: "accept-rewind", Short: "Go on with a ledger that is older than its anchors; asks a person at this machine", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		if !a.terminal() {
			return cli.Usage{Err: errors.New("accept-rewind is for a person at a terminal of this machine; nothing was changed")}
		}
		st, o, err := a.openAnchored(cmd.Context())
		if err != nil {
			return err
		}
		defer st.Close()
		if err := o.Compare(cmd.Context()); err == nil {
			return cli.Usage{Err: errors.New("there is nothing to accept: the ledger contains what its anchors hold; nothing was changed")}
		}
		for _, s := range o.States() {
			fmt.Fprintln(a.err, cli.Safe(describeAnchor(s)))
		}
		h, err := st.Health(cmd.Context())
		if err != nil {
			return err
		}
		fmt.Fprintf(a.err, "This ledger has %d records. Whatever was recorded after them is given up for good: approvals that were used, switches that were turned, plans that were carried out.\nType %d to go on with it: ", h.Size, h.Size)
		answer, err := cli.ReadLine(cmd.Context(), bufio.NewReader(a.in))
		if err != nil {
			return err
		}
		if strings.TrimSpace(answer) != fmt.Sprint(h.Size) {
			return cli.Usage{Err: errors.New("not accepted; nothing was changed")}
		}
		names, err := st.AcceptRewind(cmd.Context(), a.person())
		if err != nil {
			return err
		}
		fmt.Fprintf(a.out, "accepted at %s; that is a record of the ledger, and every anchor has its head. Given up: %s\n", time.Now().UTC().Format(time.RFC3339), cli.Safe(strings.Join(names, ", ")))
		return nil
	}}
}
