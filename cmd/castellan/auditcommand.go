package main

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"castellan/internal/cli"
	"castellan/internal/gate"
	"castellan/internal/ledger"
	"castellan/internal/seal"
	"castellan/internal/store"
)

// auditCommand reads the ledger. verify of an export needs nothing but the file and a public key.
func (a *app) auditCommand(c cli.Config) *cobra.Command {
	root := &cobra.Command{Use: "audit", Short: "Search, verify and export the ledger"}
	root.AddCommand(a.verifyCommand(), a.searchCommand(c), a.exportCommand(), a.keyCommand())
	return root
}

// verdict is the fixed form for scripts.
type verdict struct {
	OK     bool   `json:"ok"`
	Size   int64  `json:"size"`
	Broken *fault `json:"broken"`
	Head   string `json:"head"`
}

type fault struct {
	Tree   string `json:"tree,omitempty"`
	Index  int64  `json:"index"`
	Reason string `json:"reason"`
}

func verdictOf(r ledger.Result) verdict {
	v := verdict{OK: r.OK, Size: r.Size, Head: r.Head}
	if r.Broken != nil {
		v.Broken = &fault{Tree: string(r.Broken.Tree), Index: r.Broken.Index, Reason: string(r.Broken.Reason)}
		if r.Broken.Detail != "" {
			v.Broken.Reason += ": " + r.Broken.Detail
		}
	}
	return v
}

func (a *app) verifyCommand() *cobra.Command {
	var heads []string
	var file, key string
	cmd := &cobra.Command{Use: "verify", Short: "Verify the ledger, or an export of one; names the broken record and why", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		for i, h := range heads { // a file may be named in place of the text
			if b, err := os.ReadFile(h); err == nil {
				heads[i] = string(b)
			}
		}
		var r ledger.Result
		var err error
		if file != "" {
			r, err = verifyFile(file, key, heads)
		} else {
			r, err = a.verifyStore(cmd.Context(), heads)
		}
		if err != nil {
			return err
		}
		v := verdictOf(r)
		if cli.JSON(cmd) {
			if err := cli.PrintJSON(a.out, v); err != nil {
				return err
			}
		} else {
			printVerdict(a.out, v)
		}
		if !v.OK {
			return cli.Exit(cli.ExitError)
		}
		return nil
	}}
	cmd.Flags().StringArrayVar(&heads, "head", nil, "a checkpoint that the ledger must still contain (text or file); repeatable")
	cmd.Flags().StringVar(&file, "export", "", "verify this export in place of the live ledger; - for stdin")
	cmd.Flags().StringVar(&key, "key", "", "public key (PEM file) for --export")
	return cmd
}

func printVerdict(w io.Writer, v verdict) {
	if v.OK {
		fmt.Fprintf(w, "The ledger is whole: %d records, each as it was written.\nWrite this head down elsewhere; a later verify with --head shows a rewind:\n%s", v.Size, cli.Safe(v.Head))
		return
	}
	if v.Broken == nil {
		fmt.Fprintln(w, "The ledger is BROKEN.")
		return
	}
	fmt.Fprintf(w, "The ledger is BROKEN at record %d of the %s tree: %s\n", v.Broken.Index, v.Broken.Tree, cli.Safe(v.Broken.Reason))
}

func verifyFile(file, key string, heads []string) (ledger.Result, error) {
	if key == "" {
		return ledger.Result{}, cli.Usage{Err: errors.New("give the public key with --key (castellan audit key prints it)")}
	}
	b, err := os.ReadFile(key)
	if err != nil {
		return ledger.Result{}, fmt.Errorf("read public key: %w", err)
	}
	block, _ := pem.Decode(b)
	if block == nil {
		return ledger.Result{}, cli.Usage{Err: fmt.Errorf("%s holds no PEM public key", key)}
	}
	k, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return ledger.Result{}, fmt.Errorf("read public key: %w", err)
	}
	pub, ok := k.(ed25519.PublicKey)
	if !ok {
		return ledger.Result{}, cli.Usage{Err: fmt.Errorf("%s holds a %T, not an Ed25519 key", key, k)}
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

// verifyStore reads the ledger without a gate: it works while the configuration of targets is broken.
func (a *app) verifyStore(ctx context.Context, heads []string) (ledger.Result, error) {
	s, err := a.openStore(ctx)
	if err != nil {
		return ledger.Result{}, err
	}
	r, err := s.Verify(ctx, heads...)
	return r, errors.Join(err, s.Close())
}

func (a *app) openStore(ctx context.Context) (*store.Store, error) {
	s, _, _, err := a.load()
	if err != nil {
		return nil, err
	}
	keys, err := seal.OpenKeys(s.Store.Keys)
	if err != nil {
		return nil, err
	}
	return store.Open(ctx, store.Config{URL: s.Store.URL, Signer: keys.Ledger(), Head: s.Store.Head})
}

func (a *app) searchCommand(c cli.Config) *cobra.Command {
	var since, until, kind, operation, actor, target, status, effect, text, cursor, plan string
	var limit int
	var payloads bool
	cmd := &cobra.Command{Use: "search", Short: "Search the ledger, newest first", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		args := map[string]any{}
		for k, v := range map[string]string{"since": since, "until": until, "kind": kind, "operation": operation, "actor": actor, "target": target,
			"status": status, "effect": effect, "text": text, "cursor": cursor, "plan": plan} {
			if v != "" {
				args[k] = v
			}
		}
		if limit > 0 {
			args["limit"] = limit
		}
		if payloads {
			args["payloads"] = true
		}
		b, err := json.Marshal(args)
		if err != nil {
			return err
		}
		return c.Do(cmd, gate.Call{Operation: "audit_search", Args: b})
	}}
	f := cmd.Flags()
	f.StringVar(&since, "since", "", "time, or an age such as 7d or 12h")
	f.StringVar(&until, "until", "", "time, or an age")
	f.StringVar(&kind, "kind", "", "intent, approval, step, step_end, plan_end, refused, read, settings")
	f.StringVar(&operation, "operation", "", "name of the operation")
	f.StringVar(&actor, "actor", "", "agent|person")
	f.StringVar(&target, "target", "", "part of the target's or object's name")
	f.StringVar(&status, "status", "", "ok, failed, unknown, denied, invalid, …")
	f.StringVar(&effect, "effect", "", "read, change, expose, execute, destroy")
	f.StringVar(&text, "text", "", "literal text")
	f.StringVar(&plan, "plan", "", "plan id")
	f.StringVar(&cursor, "cursor", "", "from the answer before")
	f.IntVar(&limit, "limit", 0, "how many; default 50, at most 500")
	f.BoolVar(&payloads, "payloads", false, "with arguments, answers and errors")
	return cmd
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

func (a *app) keyCommand() *cobra.Command {
	return &cobra.Command{Use: "key", Short: "Print the public key that signs the ledger", Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error {
		s, _, _, err := a.load()
		if err != nil {
			return err
		}
		keys, err := seal.OpenKeys(s.Store.Keys)
		if err != nil {
			return err
		}
		text, err := keys.LedgerPublicPEM()
		if err != nil {
			return err
		}
		_, err = io.WriteString(a.out, text)
		return err
	}}
}

// stateCommand saves and brings back plans, locks, marks and the ledger.
func (a *app) stateCommand() *cobra.Command {
	root := &cobra.Command{Use: "state", Short: "Back up and restore castellan's own state"}
	root.AddCommand(&cobra.Command{Use: "backup FILE", Short: "Write the whole state to a file; the backup is a record of the ledger", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		s, err := a.openStore(cmd.Context())
		if err != nil {
			return err
		}
		defer s.Close()
		f, err := os.OpenFile(args[0], os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return fmt.Errorf("write backup: %w", err)
		}
		if err := errors.Join(s.Backup(cmd.Context(), f, a.person()), f.Sync(), f.Close()); err != nil {
			_ = os.Remove(args[0]) // half a backup is none
			return err
		}
		fmt.Fprintf(a.out, "wrote %s\n", args[0])
		return nil
	}}, &cobra.Command{Use: "restore FILE", Short: "Put a backup in the place of the state; no castellan may run meanwhile", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
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
		if err := store.Restore(cmd.Context(), store.Config{URL: s.Store.URL, Signer: keys.Ledger(), Clock: time.Now}, f, a.person()); err != nil {
			return err
		}
		fmt.Fprintln(a.out, "the state is that of the backup; what came since is gone from the store, and the restore is a record of the ledger")
		return nil
	}})
	return root
}
