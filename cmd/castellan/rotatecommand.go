package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"castellan/internal/cli"
	"castellan/internal/seal"
	"castellan/internal/store"
)

// rotateCommand replaces the key that signs the ledger. The new key is stored first, then recorded by both, then put in
// place: whatever ends the program in between, running it again finishes what the ledger has recorded.
func (a *app) rotateCommand() *cobra.Command {
	return &cobra.Command{Use: "rotate-key", Short: "Replace the key that signs the ledger; both keys sign the record of it", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		s, _, _, err := a.load()
		if err != nil {
			return err
		}
		keys, err := seal.OpenKeys(s.Store.Keys)
		if err != nil {
			return err
		}
		finished, err := a.resumeRotation(cmd.Context(), keys)
		if err != nil {
			return err
		}
		if !finished {
			if err := a.rotate(cmd.Context(), keys); err != nil {
				return fmt.Errorf("%w; run castellan audit rotate-key again: it finishes what the ledger has recorded, else it starts anew", err)
			}
		}
		st, anchors, err := a.openAnchored(cmd.Context())
		if err != nil {
			return err
		}
		anchors.after(cmd.Context(), a)
		if err := st.Close(); err != nil {
			return err
		}
		text, err := keys.LedgerPublicPEM()
		if err != nil {
			return err
		}
		if cli.JSON(cmd) {
			return cli.PrintJSON(a.out, map[string]any{"key": text, "resumed": finished})
		}
		fmt.Fprintf(a.out, "the ledger has a new key; the old one vouches for it, and for nothing after it:\n%s", text)
		fmt.Fprintln(a.err, "next: restart every daemon and serve on this store (they hold the old key and refuse to write), and make a new backup: one from before can be restored with the old key only")
		return nil
	}}
}

func (a *app) rotate(ctx context.Context, keys *seal.Keys) error {
	st, _, err := a.openAnchored(ctx)
	if err != nil {
		return err
	}
	next, err := keys.BeginRotation()
	if err != nil {
		return errors.Join(err, st.Close())
	}
	if _, err := st.Rotate(ctx, next, a.person()); err != nil {
		return errors.Join(err, st.Close())
	}
	return errors.Join(st.Close(), keys.FinishRotation())
}

// resumeRotation looks, when a successor lies there, whether the ledger knows it. True: the rotation is finished now.
func (a *app) resumeRotation(ctx context.Context, keys *seal.Keys) (bool, error) {
	next := keys.NextLedger()
	if next == nil {
		return false, nil
	}
	s, _, _, err := a.load()
	if err != nil {
		return false, err
	}
	signed := func(c store.Config) error {
		st, err := store.Open(ctx, c)
		if err != nil {
			return err
		}
		_, err = st.Head(ctx)
		return errors.Join(err, st.Close())
	}
	old := signed(store.Config{URL: s.Store.URL, Signer: keys.Ledger()})
	if old == nil {
		return false, keys.AbandonRotation()
	}
	if err := signed(store.Config{URL: s.Store.URL, Signer: next}); err != nil {
		return false, fmt.Errorf("a key rotation was interrupted, and neither key signed the ledger's head: %w", errors.Join(old, err))
	}
	return true, keys.FinishRotation()
}
