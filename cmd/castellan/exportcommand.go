package main

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"castellan/internal/cli"
	"castellan/internal/ledger"
	"castellan/internal/seal"
	"castellan/internal/store"
)

// publicKey reads the ledger's public key from a PEM file.
func publicKey(file string) (ed25519.PublicKey, error) {
	if file == "" {
		return nil, cli.Usage{Err: errors.New("give the public key with --key (castellan audit key prints it)")}
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read public key: %w", err)
	}
	block, _ := pem.Decode(b)
	if block == nil || block.Type != "PUBLIC KEY" {
		return nil, cli.Usage{Err: fmt.Errorf("%s holds no PEM public key (castellan audit key prints it)", file)}
	}
	k, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("read public key: %w", err)
	}
	pub, ok := k.(ed25519.PublicKey)
	if !ok {
		return nil, cli.Usage{Err: fmt.Errorf("%s holds a %T, not an Ed25519 key", file, k)}
	}
	return pub, nil
}

func verifyFile(file, key string, heads []string) (ledger.Result, error) {
	pub, err := publicKey(key)
	if err != nil {
		return ledger.Result{}, err
	}
	in := io.Reader(os.Stdin)
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return ledger.Result{}, fmt.Errorf("read export: %w", err)
		}
		defer f.Close()
		in = f
	}
	return ledger.VerifyExport(in, ledger.Options{Keys: []ed25519.PublicKey{pub}, Heads: heads})
}

func (a *app) exportCommand() *cobra.Command {
	return &cobra.Command{Use: "export", Short: "Write the whole ledger to stdout, for a verifier that needs only this and the public key", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		s, err := a.openStore(cmd.Context())
		if err != nil {
			return err
		}
		return errors.Join(s.Export(cmd.Context(), a.out), s.Close())
	}}
}

// stateCommand saves and brings back plans, locks, marks and the ledger.
func (a *app) stateCommand() *cobra.Command {
	root := &cobra.Command{Use: "state", Short: "Back up and restore castellan's own state"}
	root.AddCommand(a.acceptClockCommand(), &cobra.Command{Use: "backup FILE", Short: "Write the whole state to a file; the backup is a record of the ledger", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		s, err := a.openStore(cmd.Context())
		if err != nil {
			return err
		}
		defer s.Close()
		f, err := os.OpenFile(args[0], os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return fmt.Errorf("write backup: %w", err)
		}
		st, err := s.Backup(cmd.Context(), f, a.person())
		if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
			_ = os.Remove(args[0]) // half a backup is none
			return err
		}
		return a.printState(cmd, "wrote "+args[0], st)
	}}, &cobra.Command{Use: "restore FILE", Short: "Bring a backup back into an empty store; move the old one away first", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		s, _, _, err := a.load()
		if err != nil {
			return err
		}
		keys, err := seal.OpenKeys(s.Store.Keys)
		if err != nil {
			return err
		}
		f, err := os.Open(args[0])
		if err != nil {
			return fmt.Errorf("read backup: %w", err)
		}
		defer f.Close()
		st, err := store.Restore(cmd.Context(), store.Config{URL: s.Store.URL, Signer: keys.Ledger(), Clock: time.Now}, f, a.person())
		if err != nil {
			return err
		}
		return a.printState(cmd, "restored into "+s.Store.URL, st)
	}})
	return root
}

// acceptClockCommand lets writes go on after records with a time in the future, once a person has looked.
func (a *app) acceptClockCommand() *cobra.Command {
	return &cobra.Command{Use: "accept-clock", Short: "Accept the present time although the newest record is of a later one", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		s, err := a.openStore(cmd.Context())
		if err != nil {
			return err
		}
		if err := errors.Join(s.AcceptClock(cmd.Context(), a.person()), s.Close()); err != nil {
			return err
		}
		fmt.Fprintln(a.out, "the present time is accepted; that is a record of the ledger")
		return nil
	}}
}

func (a *app) printState(cmd *cobra.Command, what string, st store.State) error {
	if cli.JSON(cmd) {
		return cli.PrintJSON(a.out, st)
	}
	fmt.Fprintf(a.out, "%s: %d ledger records, %d rows, state of %s\n", what, st.Size, st.Rows, st.At.Format(time.RFC3339))
	if !st.Recorded {
		fmt.Fprintln(a.err, "note: this could not be recorded in the ledger")
	}
	for _, id := range st.Closed {
		fmt.Fprintf(a.err, "note: plan %s was open and is closed: what became of it since the backup is not known\n", id)
	}
	return nil
}
