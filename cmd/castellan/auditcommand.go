package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

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
	root.AddCommand(a.verifyCommand(), a.searchCommand(c), a.exportCommand(), a.keyCommand(),
		a.anchorsCommand(), a.acceptRewindCommand(), a.rotateCommand(), a.sweepCommand())
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
		v.Broken = &fault{Tree: string(r.Broken.Tree), Index: r.Broken.Index, Reason: r.Broken.Reason}
	}
	return v
}

func (a *app) verifyCommand() *cobra.Command {
	var heads []string
	var file, key, receipt string
	cmd := &cobra.Command{Use: "verify", Short: "Verify the ledger, or an export of one; names the broken record and why", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		for i, h := range heads { // a file may be named in place of the text
			if b, err := os.ReadFile(h); err == nil {
				heads[i] = string(b)
			}
		}
		if receipt != "" {
			return a.verifyReceiptFile(cmd, receipt, file, key, heads)
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
	cmd.Flags().StringVar(&receipt, "receipt", "", "verify this receipt (a file of castellan receipt), and with --export that the log contains it")
	cmd.Flags().StringVar(&key, "key", "", "public key (PEM file) for --export and --receipt")
	return cmd
}

func printVerdict(w io.Writer, v verdict) {
	if v.OK {
		fmt.Fprintf(w, "The ledger is whole: %d records, each as it was written. Reads are in a tree of their own, which this does not count.\nWrite this head down elsewhere; a later verify with --head shows a rewind:\n%s", v.Size, cli.Safe(v.Head))
		return
	}
	if v.Broken == nil {
		fmt.Fprintln(w, "The ledger is BROKEN.")
		return
	}
	fmt.Fprintf(w, "The ledger is BROKEN at record %d of the %s tree: %s\n", v.Broken.Index, v.Broken.Tree, cli.Safe(v.Broken.Reason))
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
	s, _, err := a.openAnchored(ctx)
	return s, err
}

func (a *app) searchCommand(c cli.Config) *cobra.Command {
	var since, until, operation, actor, target, status, effect, text, cursor string
	var limit int
	var payloads bool
	cmd := &cobra.Command{Use: "search", Short: "Search the ledger, newest first", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		args := map[string]any{}
		for k, v := range map[string]string{"since": since, "until": until, "operation": operation, "actor": actor, "object": target,
			"status": status, "effect": effect, "text": text, "cursor": cursor} {
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
	f.StringVar(&since, "since", "", "time, or an age such as 30m, 12h or 30d; default 7d")
	f.StringVar(&until, "until", "", "time, or an age")
	f.StringVar(&operation, "operation", "", "name of the operation")
	f.StringVar(&actor, "actor", "", "agent|person")
	f.StringVar(&target, "target", "", "target or object, such as guest/101")
	f.StringVar(&status, "status", "", "ok, failed, unknown, denied, invalid, …")
	f.StringVar(&effect, "effect", "", "read, change, expose, execute, destroy")
	f.StringVar(&text, "text", "", "literal text")
	f.StringVar(&cursor, "cursor", "", "from the answer before")
	f.IntVar(&limit, "limit", 0, "how many; default 50, at most 500")
	f.BoolVar(&payloads, "payloads", false, "with arguments, answers and errors")
	return cmd
}

func (a *app) keyCommand() *cobra.Command {
	return &cobra.Command{Use: "key", Short: "Print the public key that signs the ledger", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
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
		if cli.JSON(cmd) {
			return cli.PrintJSON(a.out, map[string]any{"key": text})
		}
		_, err = io.WriteString(a.out, text)
		return err
	}}
}
